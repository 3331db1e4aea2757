"""Examples of a row, a chain, an image and a graph."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import Graph, lattice

rng = np.random.default_rng(1)
points = rng.uniform(size=(7, 2))
examples = {
    "(F,)": (lattice((1,)), [[0.5, 0.5]]),
    "(T, F)": (lattice((5,)), [[t / 4, 0.5] for t in range(5)]),
    "(H, W, F)": (lattice((4, 5)), [[c / 4, 1 - r / 3] for r in range(4) for c in range(5)]),
    "Example": (Graph(7, [[0, 1], [0, 4], [1, 2], [2, 3], [3, 6], [4, 5], [5, 6], [0, 6]]), points),
}
figure, axes = plt.subplots(1, 4, figsize=(9, 2.2), layout="constrained")
for ax, (title, (graph, positions)) in zip(axes, examples.items(), strict=True):
    positions = np.asarray(positions)
    ax.plot(*positions[graph.edges].transpose(2, 1, 0), color="0.6", zorder=1)
    ax.scatter(*positions.T, s=80, zorder=2)
    ax.set(title=title, xlim=(-0.15, 1.15), ylim=(-0.15, 1.15))
    ax.axis("off")
