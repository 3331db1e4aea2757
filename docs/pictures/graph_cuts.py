"""A photograph with seeds, and the minimum cut between them."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import solve

photo = load_sample_image("flower.jpg")[20:400:3, 60:560:3] / 255.0
costs = np.full((*photo.shape[:2], 2), 0.0)
inside, outside = np.zeros((2, *photo.shape[:2]), dtype=bool)
inside[45:65, 75:95] = True
outside[:6], outside[-6:], outside[:, :6], outside[:, -6:] = True, True, True, True
seeds = [photo[outside].mean(axis=0), photo[inside].mean(axis=0)]
costs = np.stack([((photo - seed) ** 2).sum(axis=-1) for seed in seeds], axis=-1)
costs[inside, 0] = costs[outside, 1] = np.inf
contrast = [np.exp(-20 * (np.diff(photo, axis=axis) ** 2).sum(axis=-1)) for axis in (1, 0)]
mask = solve(costs, 0.5, costs=True, edge_weight=contrast).labels
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].imshow(photo)
axes[0].contour(inside, [0.5], colors="white")
axes[1].imshow(np.where(mask[..., np.newaxis], photo, 0.85))
for ax, title in zip(axes, ["photograph with a seed", "minimum cut"], strict=True):
    ax.set(title=title, xticks=[], yticks=[])
