"""Three nodes joined by edges, and by one factor."""

import matplotlib.pyplot as plt
import numpy as np

corners = np.array([[0, 0], [1, 0], [0.5, 0.85]])
figure, axes = plt.subplots(1, 2, figsize=(6, 2.4), layout="constrained")
for a, b in [(0, 1), (1, 2), (0, 2)]:
    axes[0].plot(*corners[[a, b]].T, color="0.6", zorder=1)
middle = corners.mean(axis=0)
for corner in corners:
    axes[1].plot(*np.stack([corner, middle]).T, color="0.6", zorder=1)
axes[1].plot(*middle, "s", color="C3", markersize=14)
for ax, title in zip(axes, ["three edges", "one factor"], strict=True):
    ax.scatter(*corners.T, s=200, zorder=2)
    ax.set(title=title, aspect="equal", xlim=(-0.3, 1.3), ylim=(-0.2, 1.05))
    ax.axis("off")
