"""Learned filters and influence functions of one stage; a noisy photograph and its restoration."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import LearnedFilters
from sklearn_crf.rtf import GaussianNoise

luma = load_sample_image("china.jpg").mean(axis=2).astype(np.float32)
# Training tiles have no pixels of the test tile.
tiles = [luma[top : top + 96, left : left + 128] for top in (0, 100, 200, 320) for left in (0, 130, 440, 510)]
test = luma[180:308, 290:430]
model = LearnedFilters(GaussianNoise(25), n_stages=3, max_iter=250, random_state=0).fit(tiles)
noisy = test + 25 * np.random.default_rng(0).normal(size=test.shape).astype(np.float32)
figure, axes = plt.subplots(2, 5, figsize=(11, 4.2), layout="constrained", width_ratios=[1, 1, 1, 1.4, 1.4])
responses, centres = np.linspace(-7, 7, 141), np.linspace(-6, 6, model.weights_.shape[-1])
inside = np.clip(responses, -6, 6)[:, np.newaxis]
gaussians = np.exp(-0.5 * ((inside - centres) / (centres[1] - centres[0])) ** 2)
for k, (top, bottom) in zip((0, 4, 12), axes.T[:3], strict=True):
    top.imshow(model.filters_[0, k], cmap="gray")
    top.set(xticks=[], yticks=[])
    bottom.plot(responses, gaussians @ model.weights_[0, k] * 25)
    bottom.set(xlabel="response / noise", yticks=[])
images = {"noisy": noisy, "restored": model.predict([noisy])[0], "truth": test, "restored - truth": None}
for ax, (title, image) in zip(axes[:, 3:].ravel(), images.items(), strict=True):
    if image is None:
        ax.imshow(images["restored"] - test, cmap="gray", vmin=-60, vmax=60)
    else:
        ax.imshow(image, cmap="gray", vmin=0, vmax=255)
    error = f", error {np.sqrt(np.mean((image - test) ** 2)):.1f}" if title in ("noisy", "restored") else ""
    ax.set(xticks=[], yticks=[], title=title + error)
