"""
Deblurring, filling gaps and enlarging a photograph
===================================================

The degradation of an image is often known: the blur of a moving camera, lost pixels, or
a sensor with too few pixels. A regression tree field uses this known degradation, and
learns the properties of images from sharp examples. In this example, the field is
trained on tiles of the two photographs of scikit-learn, and restores another tile. The
results are compared with results of scikit-image and SciPy.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import zoom
from skimage.restoration import inpaint_biharmonic, richardson_lucy
from sklearn.datasets import load_sample_images

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Blur, Downsampling, MissingPixels


def grey(image):
    """Return the luma at half scale; each pixel is the mean of four pixels."""
    luma = image @ np.array([0.299, 0.587, 0.114])
    height, width = luma.shape[0] // 2 * 2, luma.shape[1] // 2 * 2
    blocks = luma[:height, :width].reshape(height // 2, 2, width // 2, 2)
    return blocks.mean(axis=(1, 3)).astype(np.float32)


def tiles(image, side=104):
    rows, columns = image.shape[0] // side, image.shape[1] // side
    return [
        image[i * side : (i + 1) * side, j * side : (j + 1) * side]
        for i in range(rows)
        for j in range(columns)
    ]


sharp = [tile for image in load_sample_images().images for tile in tiles(grey(image))]
truth = sharp.pop(7)
rng = np.random.default_rng(0)


def show(**images):
    """Show images side by side; signal-to-noise ratios exclude the border."""
    axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained")[1]
    images["truth"] = truth
    for ax, (name, image) in zip(axes, images.items(), strict=True):
        title = name.replace("_", " ")
        if name not in ("truth", "small", "seen"):
            error = np.mean((image - truth)[8:-8, 8:-8] ** 2)
            psnr = 10 * np.log10(255**2 / error)
            print(f"{title}: {psnr:.1f} dB")
            title = f"{title}\n{psnr:.2f} dB"
        ax.imshow(image, cmap="gray", vmin=0, vmax=255)
        ax.set_title(title, fontsize=10)
        ax.axis("off")
    plt.show()


###############################################################################
# **Deblurring.** The camera moved along the diagonal. The likelihood of the blurred
# image is a part of the field, and trees predict the differences between pixels.

kernel = np.eye(7) / 7
blur = Blur(kernel, noise=2.0)
blurred = blur(truth, rng)
field = RegressionTreeField(degradation=blur, random_state=0).fit(sharp)
rival = 255 * richardson_lucy(np.clip(blurred / 255, 1e-3, 1), kernel, num_iter=20)
show(blurred=blurred, Richardson_Lucy=rival, field=field.predict([blurred])[0])

###############################################################################
# **Filling gaps.** Two thirds of the pixels are missing (NaN). The field does not
# change the known pixels, and replaces missing pixels by their conditional means.

gaps = MissingPixels(0.67)
seen = gaps(truth, rng)
field = RegressionTreeField(corruption=gaps, random_state=0).fit(sharp)
rival = inpaint_biharmonic(np.nan_to_num(seen), np.isnan(seen))
show(seen=seen, biharmonic=rival, field=field.predict([seen])[0])

###############################################################################
# **Enlarging.** Each pixel of the small image is the mean of a square of four pixels.

halved = Downsampling(2, noise=0.5)
small = halved(truth, rng)
field = RegressionTreeField(degradation=halved, random_state=0).fit(sharp)
rival = zoom(small, 2, order=3, mode="nearest", grid_mode=True)
show(small=small, cubic=rival, field=field.predict([small])[0])
