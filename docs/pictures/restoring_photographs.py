"""A photograph with noise and one with gaps, and their restorations by the fields of the package."""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import stereo_motorcycle

from sklearn_crf import restore

truth = stereo_motorcycle()[0][200:328, 280:440]
rng = np.random.default_rng(0)
noisy = np.clip(truth + 25 * rng.normal(size=truth.shape), 0, 255).astype(np.uint8)
gone = rng.random(truth.shape[:2]) < 0.6
holed = np.where(gone[..., np.newaxis], 255, truth).astype(np.uint8)
shown = {"noise": noisy, "restored": restore(noisy), "gaps": holed, "filled in": restore(holed, mask=gone)}
figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
for ax, (title, image) in zip(axes, shown.items(), strict=True):
    ax.imshow(image)
    psnr = 10 * np.log10(255**2 / np.mean((image.astype(float) - truth) ** 2))
    ax.set(xticks=[], yticks=[], title=f"{title}, {psnr:.1f} dB")
