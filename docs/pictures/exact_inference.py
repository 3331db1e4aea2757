"""Exact marginals of a grid and marginals of belief propagation."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import JunctionTree, LoopyBP
from sklearn_crf.models import PairwiseModel

rng = np.random.default_rng(2)
grid = lattice((12, 12))
model = PairwiseModel(grid, rng.normal(scale=0.6, size=(144, 2)), 1.2 * np.eye(2)[None])
exact, loopy = (method.marginals(model).unary[:, 1].reshape(12, 12) for method in (JunctionTree(), LoopyBP()))
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for ax, (title, values) in zip(axes, {"exact": exact, "belief propagation": loopy}.items(), strict=False):
    ax.imshow(values, vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
axes[2].plot([0, 1], [0, 1], color="0.7")
axes[2].plot(exact.ravel(), loopy.ravel(), ".")
axes[2].set(xlabel="exact", ylabel="belief propagation", aspect="equal")
