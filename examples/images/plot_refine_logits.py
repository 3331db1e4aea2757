"""
Refining the logits of a network
================================

Networks for segmentation are often coarse near contours. :func:`sklearn_crf.refine`
moves contours to edges of the image, and accepts logits in float16 files.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import Bilateral, Spatial, refine

# %%
# Coarse logits of 21 classes
# ---------------------------
# Twenty regions of different colours stand for objects. Logits are blurred and noisy.

rng = np.random.default_rng(0)
height, width, n_classes = 90, 120, 21
sites = rng.uniform(size=(20, 2)) * [height, width]
pixels = np.stack(np.indices((height, width)), axis=-1)
labels = np.square(pixels[..., None, :] - sites).sum(axis=-1).argmin(axis=-1)
colours = rng.uniform(80, 175, size=(20, 3))
image = np.clip(colours[labels] + rng.normal(scale=12, size=(height, width, 3)), 0, 255)
logits = gaussian_filter(8.0 * np.eye(n_classes)[labels], (5, 5, 0))
logits += gaussian_filter(rng.normal(scale=8, size=logits.shape), (3, 3, 0))

# %%
# From a file to refined probabilities
# ------------------------------------
# The file is read as a memory map. With several files, each image would be read and
# refined separately.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "logits.npy"
    np.save(path, logits.astype(np.float16))
    kernels = [Spatial(3.0, weight=3.0), Bilateral(20.0, 15.0, weight=10.0)]
    file = np.load(path, mmap_mode="r")
    refined = refine(file, image.astype(np.uint8), kernels=kernels, logits=True)
    found = {"logits": file.argmax(axis=-1), "refined": refined.argmax(axis=-1)}
for name, own in found.items():
    print(f"{name}: {np.mean(own == labels):.1%} of the pixels are right")

# %%
# Contours
# --------

figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
pictures = {"image": image.astype(np.uint8)} | found
for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
    ax.imshow(picture, cmap="tab20", interpolation="nearest")
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
