"""
Restoring a disparity map from given costs
==========================================

A stereo pair gives a matching cost for each pixel of one view and each disparity.
Neighbouring pixels should have similar disparities, except at edges of the image. There
is nothing to learn: :func:`sklearn_crf.solve` computes the labels, and
:func:`sklearn_crf.marginals` computes their probabilities.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import marginals, solve

# %%
# A scene of three planes
# -----------------------
# The left view is a random texture that is shifted by the disparity of each pixel, with
# noise. The planes differ in brightness.

rng = np.random.default_rng(0)
height, width, n_disparities = 60, 90, 8
row, column = np.indices((height, width))
disc = (row - 30) ** 2 + (column - 60) ** 2 < 300
disparity = 1 + 2 * (column > 30) + 3 * disc
right = rng.random((height, width + n_disparities))
texture = np.take_along_axis(right, column + disparity, axis=1)
texture = texture + rng.normal(scale=0.1, size=texture.shape)
left = texture + 0.5 * disparity
moved = [right[:, d : d + width] for d in range(n_disparities)]
costs = np.stack([np.abs(texture - view) for view in moved], axis=-1)

# %%
# Smoothing that stops at edges
# -----------------------------
# The cost of a jump in disparity increases with the size of the jump, up to two steps.
# The cost is smaller if the brightness also changes.

levels = np.arange(n_disparities)
truncated = 0.2 * np.minimum(np.abs(np.subtract.outer(levels, levels)), 2)
weights = [np.exp(-(np.diff(left, axis=axis) ** 2)) for axis in (1, 0)]
found = solve(costs, truncated, costs=True, edge_weight=weights)
alone = costs.argmin(axis=-1)
for name, labels in (("each pixel alone", alone), ("field", found.labels)):
    print(f"{name}: {np.mean(labels != disparity):.1%} wrong")

# %%
# Probabilities of the labels
# ---------------------------

options = {"edge_weight": weights, "inference": "mean_field"}
proba = marginals(-5 * costs, -5 * truncated, **options).unary
entropy = -(proba * np.log(np.maximum(proba, 1e-12))).sum(axis=-1)
figure, axes = plt.subplots(2, 2, figsize=(7, 4.6), layout="constrained")
titles = ("left view", "each pixel alone", "field", "entropy of the marginals")
pictures = (left, alone, found.labels, entropy)
for ax, picture, title in zip(axes.flat, pictures, titles, strict=True):
    ax.imshow(picture, cmap="gray" if title == "left view" else "viridis")
    ax.set_title(title)
    ax.axis("off")
plt.show()
