"""
Restoring a photograph in one call
==================================

:func:`sklearn_crf.restore` removes noise, fills gaps, removes a known blur, or enlarges
a photograph. The function uses trained fields that are part of the package, so this
example needs no training. The fields were trained on other photographs.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import convolve
from skimage.data import stereo_motorcycle

from sklearn_crf import restore

truth = stereo_motorcycle()[0][180:340, 250:450]
rng = np.random.default_rng(0)


def psnr(image):
    return 10 * np.log10(255**2 / np.mean((image.astype(float) - truth) ** 2))


###############################################################################
# This example restores four kinds of degradation. ``restore`` estimates the noise level
# from the image. If the image is blurred, the estimate uses the frequencies that the
# blur suppresses most.

noise = np.clip(truth + 20 * rng.normal(size=truth.shape), 0, 255).astype(np.uint8)

gone = rng.random(truth.shape[:2]) < 0.5
gaps = np.where(gone[..., np.newaxis], 0, truth).astype(np.uint8)

kernel = np.eye(9)  # a camera that moved along the diagonal
blur = convolve(truth.astype(float), kernel[..., np.newaxis] / 9, mode="nearest")
blur = np.clip(blur + rng.normal(size=truth.shape), 0, 255).astype(np.uint8)

small = truth.reshape(80, 2, 100, 2, 3).mean(axis=(1, 3)).astype(np.uint8)

pairs = {
    "noise": (noise, restore(noise)),
    "missing pixels": (gaps, restore(gaps, mask=gone)),
    "blur": (blur, restore(blur, kernel=kernel)),
    "half the size": (
        small.repeat(2, axis=0).repeat(2, axis=1),
        restore(small, scale=2),
    ),
}

###############################################################################
# The following lines print peak signal-to-noise ratios before and after the
# restoration, in decibels:

for name, (given, restored) in pairs.items():
    print(f"{name:<15} {psnr(given):5.2f} -> {psnr(restored):5.2f}")

figure, axes = plt.subplots(2, 4, figsize=(11, 5), layout="constrained")
for (name, images), column in zip(pairs.items(), axes.T, strict=True):
    for image, ax in zip(images, column, strict=True):
        ax.imshow(image)
        ax.set_title(f"{name}, {psnr(image):.1f} dB", fontsize=10)
        ax.axis("off")
plt.show()
