"""
Removing the blocks of JPEG by learned filters
==============================================

:class:`~sklearn_crf.LearnedFilters` restores images by a few steps of a diffusion whose
filters and influence functions are trained together. Training needs clean images and a
function that degrades them, here JPEG compression of quality 10.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import stereo_motorcycle
from sklearn.datasets import load_sample_images

from sklearn_crf import LearnedFilters
from sklearn_crf.rtf import JPEG

###############################################################################
# The model is trained on tiles of two photographs at half size, and tested on another
# photograph.

halves = [image[:420:2, ::2].mean(axis=2) for image in load_sample_images().images]
tiles = [
    half[top : top + 104, left : left + 104]
    for half in halves
    for top in (0, 104)
    for left in (0, 104, 208)
]
truth = stereo_motorcycle()[0][180:340, 250:450].mean(axis=2)
damage = JPEG(10)
damaged = damage(truth, np.random.default_rng(0))

###############################################################################
# Every training step uses new random crops of the tiles, which are rotated at random
# and then compressed.

model = LearnedFilters(damage, n_stages=3, max_iter=250, random_state=0).fit(tiles)
restored = model.predict([damaged])[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
looks = np.linspace(0, model.n_iter_, len(model.validation_curve_))
left.plot(looks, model.validation_curve_ / model.validation_curve_[0])
left.set(xlabel="steps", title="held-out squared error relative to the start")
rows = np.pad(model.filters_[0], [(0, 0), (1, 1), (1, 1)]).reshape(3, 8, 7, 7)
right.imshow(rows.swapaxes(1, 2).reshape(21, 56), cmap="gray")
right.set(xticks=[], yticks=[], title="filters of the first stage")

###############################################################################
# The following lines print and show peak signal-to-noise ratios in decibels:


def psnr(image):
    return 10 * np.log10(255**2 / np.mean((image - truth) ** 2))


print(f"JPEG {psnr(damaged):.2f}, restored {psnr(restored):.2f}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
shown = {"JPEG": damaged, "restored": restored, "truth": truth}
for ax, (title, image) in zip(axes, shown.items(), strict=True):
    ax.imshow(image[40:140, 60:180], cmap="gray", vmin=0, vmax=255)
    ax.set_title(title if title == "truth" else f"{title}, {psnr(image):.1f} dB")
    ax.axis("off")
plt.show()
