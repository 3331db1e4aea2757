"""
Segmentation with contrast-sensitive edges
==========================================

One feature of each pixel is a hint at its class, but the hints are wrong in whole
patches. Only changes of the grey values show where an object ends. A field has to
spread hints over regions of similar grey values. This example compares three training
methods: the tree-reweighted relaxation of the likelihood, piecewise training, and
pseudolikelihood (as in Figure 35 of Jancsary 2012).
"""

# %%
# Images
# ------
#
# Objects are unions of ellipses. They are lighter or darker than their background at
# random, so a single grey value contains no information about the class. The hint is
# the true class plus noise that is correlated over six pixels, which resembles the
# output of a classifier of patches.
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import TRWCRF
from sklearn_crf.learning import PiecewiseTraining, PseudolikelihoodTraining, Relaxation
from sklearn_crf.potentials import PairwiseTables

rng = np.random.default_rng(0)
HEIGHT, WIDTH = 30, 40


def mask():
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    center = np.array([rng.uniform(11, 19), rng.uniform(14, 26)])
    inside = np.zeros((HEIGHT, WIDTH), dtype=bool)
    for radii, offset in (
        ((6, 11), (0, 0)),
        ((5, 4), (-5, -10)),
        ((9, 2), (6, -6)),
        ((9, 2), (6, 7)),
    ):
        row, column = center + offset
        inside |= ((rows - row) / radii[0]) ** 2 + (
            (columns - column) / radii[1]
        ) ** 2 < 1
    return inside


def image():
    inside = mask()
    noise = gaussian_filter(rng.normal(size=inside.shape), 3)
    hint = np.where(inside, 1.0, -1.0) + 1.6 * noise / noise.std()
    background = rng.uniform(0.2, 0.8)
    grey = (
        background
        + np.where(inside, rng.choice([-0.3, 0.3]), 0)
        + 0.04 * rng.normal(size=inside.shape)
    )
    return np.stack([hint, grey], axis=-1), inside.astype(int)


images, masks = (
    np.array(part) for part in zip(*[image() for _ in range(24)], strict=True)
)
X, y, X_test, y_test = images[:16], masks[:16], images[16:], masks[16:]
wrong = np.mean((X_test[..., 0] > 0) != y_test)
print(f"hints by themselves: {100 * wrong:.1f} % of pixels wrong")

# %%
# Three estimators
# ----------------
#
# Edges have two features: a constant and the difference of grey values. Horizontal and
# vertical edges have separate weights. All fields predict the best labeling.
# ``edge_scale=1`` selects plain pseudolikelihood, as in the thesis. The default reduces
# the weights of edges after training.


def contrast(x_tail, x_head):
    difference = np.abs(x_tail[:, 1] - x_head[:, 1])
    return np.stack([np.ones_like(difference), difference], axis=1)


fields = {
    learning.name: TRWCRF(
        C=0.1,
        learning=learning,
        inference="map",
        edge_features=contrast,
        pairwise=PairwiseTables("full", edge_types="offset"),
        max_iter=60,
        tol=1e-3,
    ).fit(X, y)
    for learning in (
        Relaxation(tol=1e-3),
        PiecewiseTraining(),
        PseudolikelihoodTraining(edge_scale=1),
    )
}
labels = {name: field.predict(X_test) for name, field in fields.items()}
for name, predicted in labels.items():
    print(f"{name:17s} {100 * np.mean(predicted != y_test):5.1f} % wrong")

# %%
# Scores of the true labels
# -------------------------
#
# Pseudolikelihood makes every pixel probable given the true labels of its neighbours,
# and piecewise training makes every edge probable by itself. Neither method compares
# whole labelings. The table shows the scores of whole labelings per pixel. With the
# weights of pseudolikelihood or piecewise training, a labeling with only background has
# a higher score than the true labeling. Better inference cannot help, because the
# predicted labelings already have the highest score: the weights are wrong. With the
# weights of the relaxation, the true labeling has a higher score than a labeling with
# only background.
constant = {"background": np.zeros_like(y_test), "object": np.ones_like(y_test)}
print(f"{'':17s}{'truth':>12s}{'background':>12s}{'object':>12s}{'predicted':>12s}")
for name, field in fields.items():
    candidates = [y_test, *constant.values(), labels[name]]
    scores = [
        -np.mean(field.energy(X_test, part)) / (HEIGHT * WIDTH) for part in candidates
    ]
    print(f"{name:17s}" + "".join(f"{value:12.3f}" for value in scores))

# %%
titles = ["hints", "grey values", "truth", *fields]
figure, axes = plt.subplots(
    3, len(titles), figsize=(2.1 * len(titles), 5.2), layout="constrained"
)
for i, row in enumerate(axes):
    pictures = [
        X_test[i, ..., 0],
        X_test[i, ..., 1],
        y_test[i],
        *(labels[name][i] for name in fields),
    ]
    for ax, picture, title in zip(row, pictures, titles, strict=True):
        ax.imshow(picture, cmap="gray", interpolation="nearest")
        ax.set_xticks([])
        ax.set_yticks([])
        if i == 0:
            ax.set_title(title)
        if title in fields:
            ax.set_xlabel(f"{100 * np.mean(picture != y_test[i]):.1f} % wrong")
plt.show()
