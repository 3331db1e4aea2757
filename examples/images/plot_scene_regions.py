"""
Regions of a scene, labelled together
=====================================

A picture that is divided into small regions is a graph whose nodes have different
numbers of neighbours. The lengths of shared boundaries differ, some regions lie above
other regions, and some regions are unlabelled.
"""

# %%
# Scenes
# ------
#
# The scenes have sky above woods, and woods above a field with houses. Regions are the
# Voronoi cells of random points. The features of a region are its colour with noise.
# Edges point from the upper region to the lower region, because the order of the
# classes from top to bottom matters.
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import cKDTree

from sklearn_crf import TRWCRF, Example
from sklearn_crf.learning import Relaxation

rng = np.random.default_rng(0)
SIZE, N_REGIONS = 60, 80
CLASSES = np.array(["field", "house", "sky", "wood"])
COLOURS = np.array(
    [[0.55, 0.6, 0.3], [0.6, 0.45, 0.4], [0.6, 0.65, 0.75], [0.35, 0.45, 0.3]]
)


def scene():
    rows, columns = np.mgrid[:SIZE, :SIZE]
    horizon, edge = (
        level + 3 * np.sin(columns / rng.uniform(5, 9))
        for level in (rng.uniform(15, 25), rng.uniform(32, 40))
    )
    pixels = np.where(rows < horizon, 2, np.where(rows < edge, 3, 0))
    for left in rng.integers(5, 45, size=2):
        top = rng.integers(28, 40)
        pixels[top : top + 14, left : left + 10] = 1
    return pixels


def example(pixels):
    points = rng.uniform(0, SIZE, size=(N_REGIONS, 2))
    cells = cKDTree(points).query(np.stack(np.mgrid[:SIZE, :SIZE], axis=-1))[1]
    labels = np.array(
        [
            np.bincount(pixels[cells == i], minlength=4).argmax()
            for i in range(N_REGIONS)
        ]
    )
    touching = [
        np.stack([a.ravel(), b.ravel()], axis=1)
        for a, b in ((cells[1:], cells[:-1]), (cells[:, 1:], cells[:, :-1]))
    ]
    pairs = np.concatenate(touching)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    upper_first = np.take_along_axis(
        pairs, np.argsort(points[pairs, 0], axis=1), axis=1
    )
    edges, length = np.unique(upper_first, axis=0, return_counts=True)
    colours = COLOURS[labels] + 0.13 * rng.normal(size=(N_REGIONS, 3))
    edge_features = np.stack([np.ones(len(edges)), np.sqrt(length)], axis=1)
    return Example(colours, edges, edge_features), labels, cells


scenes = [example(scene()) for _ in range(16)]
X, labels, cells = (list(part) for part in zip(*scenes, strict=True))
# A fifth of the regions is unlabelled. Training sums over the labels of these regions.
y = [np.where(rng.random(N_REGIONS) < 0.2, "", CLASSES[part]) for part in labels]

# %%
# With and without neighbours
# ---------------------------
fields = {"alone": [Example(x.node_features, []) for x in X], "with neighbours": X}
found = {}
for name, data in fields.items():
    field = TRWCRF(C=1, learning=Relaxation(tol=1e-3), missing_label="", tol=1e-2).fit(
        data[:12], y[:12]
    )
    found[name] = field.predict(data[12:])
    accuracy = np.mean(
        np.concatenate(list(found[name])) == CLASSES[np.concatenate(labels[12:])]
    )
    print(f"{name:16s} {100 * accuracy:.1f} % of regions right")

# %%
# The printed table shows the pairwise scores of an edge of average length. Rows are
# classes of the upper region, and columns are classes of the lower region.
table = np.tensordot(
    [1, np.mean([x.edge_features[:, 1].mean() for x in X])], field.edge_coef_[0], axes=1
).reshape(4, 4)
print(f"{'':8s}" + "".join(f"{name:>8s}" for name in CLASSES))
for name, row in zip(CLASSES, table - table.mean(), strict=True):
    print(f"{name:8s}" + "".join(f"{value:8.1f}" for value in row))

# %%
titles = ["colours", "truth", *fields]
figure, axes = plt.subplots(2, 4, figsize=(9, 4.8), layout="constrained")
for row, i in zip(axes, (0, 1), strict=True):
    k = 12 + i
    row[0].imshow(X[k].node_features[cells[k]].clip(0, 1))
    pictures = [
        labels[k],
        *(np.searchsorted(CLASSES, found[name][i]) for name in fields),
    ]
    for ax, part in zip(row[1:], pictures, strict=True):
        ax.imshow(COLOURS[part][cells[k]])
        ax.set_xlabel(
            ""
            if part is labels[k]
            else f"{100 * np.mean(part != labels[k]):.0f} % wrong"
        )
    for ax, title in zip(row, titles, strict=True):
        ax.set_xticks([])
        ax.set_yticks([])
        if i == 0:
            ax.set_title(title)
plt.show()
