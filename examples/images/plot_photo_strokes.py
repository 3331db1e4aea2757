"""
A photograph segmented from a few strokes
=========================================

A user draws a few strokes on a photograph, each with the name of a class. All other
pixels are unlabelled, and training sums over the possible labels of unlabelled pixels.
"""

# %%
# Image and strokes
# -----------------
#
# The photograph is part of scikit-learn. It is reduced to a fifth of its size, so that
# this example runs quickly. Strokes are given in pixels of the original image. Pixels
# without a stroke have the label "none". The last stroke of each class is kept for
# testing.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import DRFClassifier
from sklearn_crf.display import FieldDisplay
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

factor = 5
photo = load_sample_image("china.jpg")[:425] / np.float32(255)
image = photo.reshape(425 // factor, factor, 640 // factor, factor, 3).mean(axis=(1, 3))
strokes = {
    "sky": [
        (20, 40, 120, 60),
        (280, 60, 600, 40),
        (345, 190, 480, 180),
        (350, 260, 520, 255),
    ],
    "temple": [
        (204, 40, 204, 395),
        (150, 180, 150, 330),
        (280, 130, 280, 330),
        (310, 355, 355, 335),
        (130, 105, 290, 110),
        (120, 160, 300, 160),
        (75, 262, 330, 252),
    ],
    "trees": [
        (30, 390, 190, 390),
        (590, 150, 590, 400),
        (400, 390, 520, 300),
        (15, 200, 50, 225),
        (560, 210, 620, 170),
        (350, 400, 420, 340),
    ],
}
marked = np.full(image.shape[:2], "none", dtype="<U6")
held_out = marked.copy()
for name, lines in strokes.items():
    for i, (x0, y0, x1, y1) in enumerate(lines, 1):
        along = np.linspace(0, 1, 500)
        rows, columns = y0 + (y1 - y0) * along, x0 + (x1 - x0) * along
        rows, columns = rows / factor, columns / factor
        drawn = held_out if i == len(lines) else marked
        drawn[rows.astype(int), columns.astype(int)] = name
print(f"{np.mean(marked != 'none'):.1%} of the pixels are marked")

# %%
# Features
# --------
#
# The features are colours, local means and standard deviations of the colours, and
# products of these features. A single image needs a leading axis for examples.
squares = PolynomialFeatures(2, include_bias=False)
features = make_pipeline(
    LocalImageFeatures(("intensity", "mean", "deviation"), scales=(1.0,)),
    NodeTransformer(make_pipeline(StandardScaler(), squares, StandardScaler())),
)
X = features.fit_transform(image[np.newaxis])
y = marked[np.newaxis]

# %%
# Pixels alone, and a field
# -------------------------
#
# An edge feature measures the similarity of the colours of two neighbours, so regions
# tend to end where the colours change. With ``pairwise="potts"``, each edge feature has
# one weight, which rewards equal labels.


def colour_likeness(x_tail, x_head):
    """Return a constant and the similarity of the colours of neighbouring pixels."""
    difference = np.abs(x_tail[:, :3] - x_head[:, :3]).mean(axis=1)
    return np.stack([np.ones_like(difference), np.exp(-4 * difference)], axis=1)


known = marked != "none"
alone = DRFClassifier(C=0.1).fit(X[0][known], marked[known])
options = {"missing_label": "none", "pairwise": "potts", "max_iter": 20}
field = DRFClassifier(C=0.1, edge_features=colour_likeness, **options)
with warnings.catch_warnings():  # few iterations are enough
    warnings.simplefilter("ignore", ConvergenceWarning)
    field.fit(X, y)
print("edge weights (constant, likeness):", np.round(field.edge_coef_.ravel(), 2))

y_alone = alone.predict(X[0].reshape(-1, X.shape[-1])).reshape(marked.shape)
tested = held_out != "none"
for name, labels in {"pixel by pixel": y_alone, "field": field.predict(X)[0]}.items():
    wrong = np.mean(labels[tested] != held_out[tested])
    print(f"{name}: {wrong:.1%} of the held-out strokes are wrong")

# %%
# The pictures show the strokes, the labels of each pixel by itself, the labels of the
# field, and the largest marginal of each pixel. The largest marginal is low if the
# field is uncertain.
figure, axes = plt.subplots(2, 3, figsize=(11, 5.2), layout="constrained")
*axes, empty = axes.flat
empty.axis("off")
FieldDisplay.from_predictions(
    marked,
    y_alone,
    image=image,
    missing_label="none",
    panels=["image", "truth", "prediction"],
    axes=axes[:3],
)
FieldDisplay.from_estimator(
    field, X[0], panels=["marginals", "prediction"], axes=axes[3:]
)
titles = ["photograph", "strokes", "pixel by pixel", "largest marginal", "field"]
for ax, title in zip(axes, titles, strict=True):
    ax.set_title(title)
plt.show()
