"""A noisy digit, labelled pixel by pixel and by a field."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from sklearn_crf import DRFClassifier

y = (load_digits().images[:60] > 7).astype(int)
X = (y + np.random.default_rng(0).normal(scale=0.5, size=y.shape))[..., np.newaxis]
field = DRFClassifier().fit(X[:30], y[:30])
alone = LogisticRegression().fit(X[:30].reshape(-1, 1), y[:30].ravel())
i = 33
panels = {
    "noisy": X[i, ..., 0],
    "single pixels": alone.predict(X[i].reshape(-1, 1)).reshape(y[i].shape),
    "field": field.predict(X[i : i + 1])[0],
    "truth": y[i],
}
figure, axes = plt.subplots(1, 4, figsize=(8, 2.2), layout="constrained")
for ax, (title, image) in zip(axes, panels.items(), strict=True):
    ax.imshow(image, cmap="gray_r")
    ax.set(title=title, xticks=[], yticks=[])
