"""
Snakes: labels that only neighbours determine
=============================================

A snake is a path of six cells. The colour of a cell encodes the direction of the next
cell. The label of a cell is its position on the path, and the background has label 0.
The colour of a cell does not determine its position, but the position of the previous
cell does. The colours determine which neighbour is the previous cell. If the pairwise
factors of a field depend on the input, one linear system propagates positions along the
path. Nowozin et al. (2011) introduced this task; the grids of this example are
generated.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.rtf import Splits, Window

MOVES = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}  # up, down, left, right
LENGTH, SIDE = 6, 7


def snake(rng):
    """Draw a square with one snake; return colours and labels (0 is background)."""
    while True:
        path = [tuple(rng.integers(SIDE, size=2))]
        colours = rng.integers(1, 5, size=LENGTH)
        for down, right in (MOVES[colour] for colour in colours):
            path.append((path[-1][0] + down, path[-1][1] + right))
        if len(set(path)) == len(path) and np.min(path) >= 0 and np.max(path) < SIDE:
            break
    seen, labels = np.zeros((2, SIDE, SIDE), dtype=int)
    rows, columns = np.transpose(path[:-1])
    seen[rows, columns], labels[rows, columns] = colours, np.arange(1, LENGTH + 1)
    return seen, labels


def grid(rng, n=4):
    """Draw a grid of n x n squares; return one-hot colours and labels."""
    squares = [[snake(rng) for _ in range(n)] for _ in range(n)]
    seen, labels = (
        np.block([[square[k] for square in row] for row in squares]) for k in (0, 1)
    )
    return np.eye(5)[seen], labels


rng = np.random.default_rng(0)
X, y = (np.array(part) for part in zip(*(grid(rng) for _ in range(9)), strict=True))
X_train, y_train, X_test, y_test = X[:6], y[:6], X[6:], y[6:]

###############################################################################
# This example compares three models. The first model has trees of single cells, which
# test the colours around each cell. The Gaussian field also has pairwise factors, which
# are equal for all pairs of neighbours. The tree field has trees for pairs instead of
# trees for cells; the leaves of these trees distinguish pairs along the path from other
# pairs. Labels are encoded as unit vectors, so a linear model of a pair can express
# that the label of one cell is the label of the other cell plus one.

# Trees may test every channel of every surrounding cell. Channels are 0 or 1, so a
# single threshold is enough.
near = Splits(
    n_feature_tests=None, n_thresholds=1, min_samples_leaf=5, feature_radius=1
)
far = Splits(n_feature_tests=None, n_thresholds=1, min_samples_leaf=5, feature_radius=2)
models = {
    "trees of cells": {"window": 1, "max_depth": 4, "split": far},
    "Gaussian field": {
        "window": Window([[0, 1], [1, 0]], max_depth=0),
        "max_depth": 4,
        "split": far,
    },
    "tree field": {
        "window": Window([[0, 1], [1, 0]], max_depth=5),
        "max_depth": 0,
        "split": near,
    },
}
labels = {}
for name, own in models.items():
    model = RegressionTreeFieldClassifier(
        "pseudolikelihood", **own, max_iter=8, random_state=0, n_jobs=2
    )
    with warnings.catch_warnings():  # few iterations are enough
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels[name] = model.fit(X_train, y_train).predict(X_test)

###############################################################################
# The titles show the fraction of correctly labelled cells of snakes. The background is
# not counted, because it is easy to label.

on_snake, part = y_test > 0, (0, slice(14), slice(14))
for name, found in labels.items():
    print(f"{name}: {np.mean(found[on_snake] == y_test[on_snake]):.0%} of the cells")
figure, axes = plt.subplots(2, 3, figsize=(9, 6.6), layout="constrained")
*axes, legend = axes.flat
legend.axis("off")
palette = ListedColormap(["white", "tab:red", "tab:green", "tab:cyan", "gold"])
axes[0].imshow(X_test[part].argmax(axis=-1), cmap=palette, vmin=0, vmax=4)
axes[0].set_title("input", fontsize=11)
for ax, (name, found) in zip(
    axes[1:], [("truth", y_test), *labels.items()], strict=True
):
    ax.imshow(found[part], cmap="magma_r", vmin=0, vmax=LENGTH)
    for place in np.argwhere(found[part]):
        label = found[part][tuple(place)]
        color = "black" if label < 4 else "white"
        ax.text(*place[::-1], label, ha="center", va="center", color=color, fontsize=8)
    share = np.mean(found[on_snake] == y_test[on_snake])
    ax.set_title(name if found is y_test else f"{name}: {share:.0%}", fontsize=11)
for ax in axes:
    ax.set_xticks([])
    ax.set_yticks([])
for colour, name in enumerate(("up", "down", "left", "right"), start=1):
    legend.plot([], [], "s", color=palette(colour), label=f"the next cell is {name}")
legend.legend(loc="center", frameon=False)
plt.show()
