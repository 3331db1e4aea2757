"""
Superpixels of a noisy photograph, from four strokes
====================================================

A photograph is divided into some hundred regions of similar colour. Regions are nodes,
and edges join adjacent regions. Four strokes label regions as flower or background. All
other regions are unlabelled, and training sums over the possible labels of these
regions.

The photograph is noisy, so the colour of a small region is uncertain. The numbers above
the pictures are the fractions of wrong pixels if each region is labelled by itself, and
if all regions are labelled together.
"""

# %%
# Regions
# -------
#
# ``RAG`` of scikit-image is a graph that joins adjacent regions. An
# :class:`~sklearn_crf.Example` accepts this graph without conversion.
import matplotlib.pyplot as plt
import numpy as np
from skimage.graph import RAG
from skimage.segmentation import slic
from sklearn.datasets import load_sample_image

from sklearn_crf import TRWCRF, Example

clean = load_sample_image("flower.jpg")[:336:4, ::4] / 255.0
flower = clean[..., 0] - clean[..., 1] > 0.05  # the true class: red petals
photo = clean + np.random.default_rng(0).normal(scale=0.7, size=clean.shape)
photo = photo.clip(0, 1)
regions = slic(photo, n_segments=600, sigma=1, start_label=0)
colours = np.array([photo[regions == r].mean(axis=0) for r in np.unique(regions)])
example = Example(colours, RAG(regions))

# %%
# Strokes
# -------
strokes = [
    ("flower", (slice(40, 60), slice(65, 90))),
    ("leaf", (slice(5, 20), slice(5, 60))),
    ("leaf", (slice(70, 82), slice(5, 40))),
    ("leaf", (slice(30, 70), slice(130, 140))),
]
labels = np.full(len(colours), None, dtype=object)
for name, where in strokes:
    labels[np.unique(regions[where])] = name

# %%
# Regions alone and together
# --------------------------
#
# Edge features are the differences of the colours of two regions: labels tend to change
# where colours change.
alone = Example(colours, [])
masks = {}
for name, x in {"each region alone": alone, "field": example}.items():
    field = TRWCRF(C=10, edge_features="difference").fit([x], [labels])
    mask = (field.predict([x])[0] == "flower")[regions]
    wrong = np.mean(mask != flower)
    masks[f"{name}: {wrong:.1%} of pixels wrong"] = mask
probability = field.predict_proba([example])[0][:, field.classes_ == "flower"]

figure, axes = plt.subplots(2, 2, figsize=(9, 5.4), layout="constrained")
marked = photo.copy()
for _, where in strokes:
    marked[where] = 1
panels = {f"photograph and strokes, {len(colours)} regions": marked}
for title, mask in masks.items():
    panels[title] = np.where(mask[..., np.newaxis], clean, 0.9)
panels["field: probability of flower"] = probability[regions][..., 0]
for ax, (title, image) in zip(axes.ravel(), panels.items(), strict=True):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
for title in masks:
    print(title)
