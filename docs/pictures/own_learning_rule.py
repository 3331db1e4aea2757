"""Edge weights and errors on new images for several ways to learn from the same data."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(16, 12, 12)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
rules = ["pma", "pl", "spa", "cd"]
fields = [
    DRFClassifier(learning=rule, inference="map", pairwise="ising", edge_features="constant", random_state=0).fit(
        X[:8], y[:8]
    )
    for rule in rules
]
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
axes[0].bar(rules, [field.edge_coef_.item() for field in fields])
axes[0].set_title("weight of the edges")
axes[1].bar(rules, [100 * (1 - field.score(X[8:], y[8:])) for field in fields], color="C1")
axes[1].set_title("wrong pixels of new images, %")
