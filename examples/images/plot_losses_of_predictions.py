"""
Losses that take the prediction into account
============================================

This example finds a flower in noisy crops of a photograph. Likelihood learning fits a
bound on the likelihood, and ignores how labels will be predicted. Two other losses take
the prediction into account. *Truncated learning* minimises the loss of the marginals
after ten sweeps of messages. A *cost of edges* makes margin learning avoid wrong
boundaries.
"""

# %%
# Data
# ----
#
# The true mask of the flower comes from the colours of the photograph, which
# scikit-learn contains. The features of a pixel are its mean grey value and its blue
# value, both with noise. There are fifteen crops; every third crop is for training.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.learning import ErrorCost

photo = load_sample_image("flower.jpg")[:424] / 255
photo = photo.reshape(106, 4, 160, 4, 3).mean(axis=(1, 3))
flower = (photo[..., 0] - photo[..., 1] > 0.2).astype(int)
features = np.stack([photo.mean(axis=-1), photo[..., 2]], axis=-1)
features += 0.3 * np.random.default_rng(0).normal(size=features.shape)


def crop(image, side=32):
    """Return the crops of an image, from left to right and top to bottom."""
    corners = [(i, j) for i in range(5, 70, side) for j in range(0, 160, side)]
    return np.stack([image[i : i + side, j : j + side] for i, j in corners])


X, y = crop(features), crop(flower)
is_train = np.arange(len(y)) % 3 == 0
X_train, y_train, X_test, y_test = X[is_train], y[is_train], X[~is_train], y[~is_train]
print(f"{len(y_train)} crops for training, {len(y_test)} for testing")

# %%
# Learning
# --------
#
# The likelihood and the truncated loss both use tree-reweighted belief propagation. An
# edge is wrong if its labels wrongly agree or wrongly differ. ``edges="boundary"``
# adds the number of wrong edges to the cost of margin learning.


def wrong_edges(found, truth):
    """Return the fraction of edges whose labels wrongly agree or wrongly differ."""
    wrong = [
        (np.diff(found, axis=axis) != 0) != (np.diff(truth, axis=axis) != 0)
        for axis in (1, 2)
    ]
    return np.mean(np.concatenate([part.ravel() for part in wrong]))


fields = {
    "likelihood": TRWCRF(learning="relaxation", inference="trw"),
    "truncated": TRWCRF(learning="truncated"),
    "margin": M3NClassifier(random_state=0),
    "margin, cost of edges": M3NClassifier(
        cost=ErrorCost(edges="boundary"), random_state=0
    ),
}
found = {
    name: field.fit(X_train, y_train).predict(X_test) for name, field in fields.items()
}
for name, labels in found.items():
    print(
        f"{name:22s} {np.mean(labels != y_test):.1%} wrong pixels, "
        f"{wrong_edges(labels, y_test):.1%} wrong edges"
    )

# %%
# On these crops, truncated learning has fewer wrong pixels and fewer wrong edges than
# the likelihood. The cost of edges lowers both fractions for the margin.

# %%
# Labels
# ------
#
# Four test crops, their true labels and the labels that each method predicts:
shown = np.argsort(np.abs(y_test.mean(axis=(1, 2)) - 0.4))[:4]
columns = {"grey value": X_test[..., 0], "truth": y_test, **found}
figure, axes = plt.subplots(len(shown), len(columns), figsize=(10, 6.6))
for row, number in zip(axes, shown, strict=True):
    for axis, (name, images) in zip(row, columns.items(), strict=True):
        axis.imshow(images[number], cmap="gray", interpolation="nearest")
        axis.set_title(name if number == shown[0] else "", fontsize=8)
        axis.set_axis_off()
figure.tight_layout()
plt.show()
