"""Tree of labels learned by a multi-label field."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import MultiLabelField

rng = np.random.default_rng(0)
names = ["beach", "sea", "boat", "city", "night"]
at_the_coast = rng.integers(2, size=600)
chance = np.array([[0.1, 0.1, 0.1, 0.8, 0.5], [0.8, 0.9, 0.6, 0.1, 0.1]])[at_the_coast]
Y = (rng.random(chance.shape) < chance).astype(int)
X = Y @ rng.normal(size=(5, 6)) + rng.normal(scale=2, size=(600, 6))
field = MultiLabelField(structure="chow_liu").fit(X, Y)
angles = 2 * np.pi * np.arange(5) / 5
positions = np.stack([np.sin(angles), np.cos(angles)], axis=1)
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
for (a, b), weight in zip(field.edges_, field.estimator_.edge_coef_.ravel(), strict=True):
    ax.plot(*positions[[a, b]].T, color="C0" if weight > 0 else "C3", linewidth=2 + 4 * abs(weight), zorder=1)
    ax.annotate(f"{weight:+.1f}", positions[[a, b]].mean(axis=0), backgroundcolor="white")
for name, position in zip(names, positions, strict=True):
    ax.text(*position, name, ha="center", bbox={"boxstyle": "round", "facecolor": "white"})
ax.set(xlim=(-1.3, 1.3), ylim=(-1.2, 1.3))
ax.axis("off")
