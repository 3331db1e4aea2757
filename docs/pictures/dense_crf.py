"""Coarse probabilities of an object, refined by the image."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image

from sklearn_crf import refine

photo = load_sample_image("flower.jpg")[20:400:3, 60:560:3]
redness = photo[..., 0].astype(float) - photo[..., 1]
coarse = gaussian_filter((redness > 60).astype(float), 5)
coarse = np.clip(coarse + np.random.default_rng(0).normal(scale=0.05, size=coarse.shape), 0.02, 0.98)
refined = refine(np.stack([1 - coarse, coarse], axis=-1), photo)[..., 1]
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for ax, (title, image) in zip(axes, {"image": photo, "coarse": coarse, "refined": refined}.items(), strict=True):
    ax.imshow(image, cmap="viridis", vmin=0, vmax=1 if image.ndim == 2 else None)
    ax.set(title=title, xticks=[], yticks=[])
