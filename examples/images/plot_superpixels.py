"""
Superpixels of a photograph, from three strokes
===============================================

A photograph is cut into some hundred regions of one colour each. Regions are nodes,
regions that touch are joined, and three strokes say what is flower and what is not. All
other regions are unlabelled: training sums over what they could be.
"""

# %%
# Regions
# -------
#
# ``RAG`` of scikit-image joins the regions that touch; an :class:`~sklearn_crf.Example`
# takes it as it is.
import matplotlib.pyplot as plt
import numpy as np
from skimage.graph import RAG
from skimage.segmentation import mark_boundaries, slic
from sklearn.datasets import load_sample_image

from sklearn_crf import TRWCRF, Example

photo = load_sample_image("flower.jpg")[::4, ::4] / 255.0
regions = slic(photo, n_segments=200, start_label=0)
colours = np.array([photo[regions == r].mean(axis=0) for r in np.unique(regions)])
example = Example(colours, RAG(regions))

# %%
# Strokes
# -------
strokes = [
    ("flower", (slice(45, 60), slice(75, 85))),
    ("leaf", (slice(5, 20), slice(5, 60))),
    ("leaf", (slice(88, 100), slice(5, 60))),
]
labels = np.full(len(colours), None, dtype=object)
for name, where in strokes:
    labels[np.unique(regions[where])] = name

# %%
# Each region by its colour, and all together
# -------------------------------------------
#
# Edge features tell how much the colours of two regions differ: labels rather change
# where colours do.
alone = (
    TRWCRF(C=10)
    .fit([Example(colours, [])], [labels])
    .predict([Example(colours, [])])[0]
)
field = TRWCRF(C=10, edge_features="difference").fit([example], [labels])
together = field.predict([example])[0]
flower = field.predict_proba([example])[0][:, field.classes_.tolist().index("flower")]

figure, axes = plt.subplots(2, 2, figsize=(9, 6.2), layout="constrained")
outlined = mark_boundaries(photo, regions, color=(1, 1, 1))
for _, where in strokes:
    outlined[where] = 0.3 * outlined[where] + 0.7
panels = {
    "regions and strokes": outlined,
    "each region alone": np.where((alone == "flower")[regions][..., None], photo, 0.9),
    "field": np.where((together == "flower")[regions][..., None], photo, 0.9),
    "probability of flower": flower[regions],
}
for ax, (title, image) in zip(axes.ravel(), panels.items(), strict=True):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
