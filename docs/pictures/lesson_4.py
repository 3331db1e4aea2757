"""An image, its predicted labels, the entropy of their probabilities, and the errors."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(24, 16, 16)), (0, 2, 2)) > 0.08).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
field = DRFClassifier(edge_features="constant").fit(X[:12], y[:12])
proba = field.predict_proba(X[13:14])[0]
labels = field.predict(X[13:14])[0]
panels = {
    "image": X[13, ..., 0],
    "labels": labels,
    "entropy": -(proba * np.log(proba)).sum(axis=-1),
    "errors": labels != y[13],
}
figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), layout="constrained")
for ax, (title, image) in zip(axes, panels.items(), strict=True):
    ax.imshow(image, cmap="magma" if title == "entropy" else "gray")
    ax.set(title=title, xticks=[], yticks=[])
