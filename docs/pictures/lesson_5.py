"""CPU time of training against the size of images, for three ways to learn."""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier

warnings.simplefilter("ignore")  # training stops after few iterations, enough to see how time grows
rng = np.random.default_rng(0)
sides = [8, 16, 32]
rules = {
    "pseudolikelihood": {"learning": "pl"},
    "marginals (PMA)": {"learning": "pma", "inference": "trw"},
    "best labelings (SPA)": {"learning": "spa", "inference": "map"},
}
for name, options in rules.items():
    seconds = []
    for side in sides:
        y = (gaussian_filter(rng.normal(size=(10, side, side)), (0, 3, 3)) > 0).astype(int)
        X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
        start = time.process_time()
        DRFClassifier(edge_features="constant", max_iter=15, random_state=0, **options).fit(X, y)
        seconds.append(time.process_time() - start)
    plt.loglog(10 * np.square(sides), seconds, "o-", label=name)
plt.xlabel("pixels in all")
plt.ylabel("processor seconds, 15 iterations")
plt.legend()
