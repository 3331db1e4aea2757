"""Label all superpixels of a photograph from strokes on a few superpixels."""

import numpy as np
from skimage.graph import RAG
from skimage.segmentation import slic
from sklearn.datasets import load_sample_image

from sklearn_crf import TRWCRF, Example

photo = load_sample_image("flower.jpg")[::4, ::4] / 255.0
regions = slic(photo, n_segments=200, start_label=0)
colours = np.array([photo[regions == r].mean(axis=0) for r in np.unique(regions)])
example = Example(colours, RAG(regions))  # edges join adjacent regions

strokes = {
    "flower": (slice(40, 60), slice(70, 90)),
    "leaf": (slice(5, 20), slice(5, 20)),
}
labels = np.full(len(colours), None, dtype=object)  # None: unlabelled
for name, where in strokes.items():
    labels[np.unique(regions[where])] = name

field = TRWCRF(C=10, edge_features="difference").fit([example], [labels])
mask = field.predict([example])[0][regions] == "flower"
print(f"the flower takes {mask.mean():.0%} of the photograph")
