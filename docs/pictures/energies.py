"""A noisy disc, and its labels of lowest energy."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import marginals, solve

rng = np.random.default_rng(0)
row, column = np.indices((40, 60))
disc = (row - 20) ** 2 + (column - 30) ** 2 < 150
image = disc + rng.normal(scale=0.6, size=disc.shape)
costs = np.stack([image**2, (image - 1) ** 2], axis=-1)
panels = {
    "image": image,
    "each pixel alone": image > 0.5,
    "solve": solve(costs, 1.5, costs=True).labels,
    "marginals": marginals(-costs / 0.72, 1.5).unary[..., 1],
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.1), layout="constrained")
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    ax.imshow(values, cmap="viridis")
    ax.set(title=title, xticks=[], yticks=[])
