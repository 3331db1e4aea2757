"""Noisy digits, labelled pixel by pixel and by a field."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF

y = (load_digits().images[:120] > 7).astype(int)
noise = np.random.default_rng(0).normal(scale=0.5, size=y.shape)
X = (y + noise)[..., np.newaxis]
alone = LogisticRegression().fit(X[:60].reshape(-1, 1), y[:60].ravel())
field = TRWCRF().fit(X[:60], y[:60])
chosen = slice(64, 67)
rows = {
    "seen": X[chosen, ..., 0],
    "pixel by pixel": alone.predict(X[chosen].reshape(-1, 1)).reshape(-1, 8, 8),
    "field": field.predict(X[chosen]),
    "truth": y[chosen],
}
figure, axes = plt.subplots(3, 4, figsize=(7, 5), layout="constrained")
for column, (title, images) in enumerate(rows.items()):
    axes[0, column].set_title(title)
    for ax, image in zip(axes[:, column], images, strict=True):
        ax.imshow(image, cmap="gray_r")
        ax.set(xticks=[], yticks=[])
