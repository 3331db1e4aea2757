"""Noisy digits, labelled pixel by pixel and by a field; wrong pixels are red."""

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
test = slice(60, 120)
labels = {
    "pixel by pixel": alone.predict(X[test].reshape(-1, 1)).reshape(-1, 8, 8),
    "field": field.predict(X[test]),
    "truth": y[test],
}
PAPER_INK_WRONG = np.array([[255, 255, 255], [40, 40, 40], [255, 190, 170], [190, 30, 20]], dtype=np.uint8)
figure, axes = plt.subplots(3, 4, figsize=(7, 5.4), layout="constrained")
for ax, image in zip(axes[:, 0], X[test][4:7, ..., 0], strict=True):
    ax.imshow(image, cmap="gray_r")
axes[0, 0].set_title("seen")
for column, (title, images) in enumerate(labels.items(), start=1):
    wrong = images != y[test]
    axes[0, column].set_title(title if title == "truth" else f"{title}\n{wrong.mean():.1%} wrong")
    for ax, image in zip(axes[:, column], (images + 2 * wrong)[4:7], strict=True):
        ax.imshow(PAPER_INK_WRONG[image])
for ax in axes.ravel():
    ax.set(xticks=[], yticks=[])
