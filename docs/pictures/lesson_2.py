"""Wrong pixels for each combination of learning and inference."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(24, 12, 12)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
rules, inferences = ["pma", "spa", "pl", "cd"], ["map", "mpm", "icm"]
wrong = np.zeros((4, 3))
for row, learning in enumerate(rules):
    field = DRFClassifier(learning=learning, inference="map", edge_features="constant", random_state=0)
    field.fit(X[:12], y[:12])
    for column, inference in enumerate(inferences):
        wrong[row, column] = 100 * np.mean(field.predict(X[12:], inference=inference) != y[12:])
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.imshow(wrong, cmap="Blues", aspect="auto")
for row, column in np.ndindex(wrong.shape):
    dark = wrong[row, column] > wrong.mean()
    ax.text(column, row, f"{wrong[row, column]:.1f}", ha="center", va="center", color="white" if dark else "black")
ax.set(xticks=range(3), xticklabels=inferences, yticks=range(4), yticklabels=rules)
ax.set(xlabel="inference", ylabel="learning")
