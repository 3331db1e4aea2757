"""
Denoising a photograph with a regression tree field
===================================================

A Gaussian field smooths an image, and decision trees on the input determine how
strongly it smooths each part. For each factor (a pixel or a pair of pixels), a tree
tests the surroundings and chooses a leaf. The leaf contains the precision and the
linear model of the factor. In this example, the two photographs of scikit-learn are cut
into tiles. The field is trained on all tiles except one, and denoises the remaining
tile.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from sklearn_crf import RegressionTreeField
from sklearn_crf.preprocessing import FilterBank

SIGMA = 30.0


def grey(image):
    """Return the luma at half scale; each pixel is the mean of four pixels."""
    luma = image @ np.array([0.299, 0.587, 0.114])
    height, width = luma.shape[0] // 2 * 2, luma.shape[1] // 2 * 2
    blocks = luma[:height, :width].reshape(height // 2, 2, width // 2, 2)
    return blocks.mean(axis=(1, 3)).astype(np.float32)


def psnr(image):
    return 10 * np.log10(255**2 / np.mean((image - truth) ** 2))


def tiles(image, side=106):
    rows, columns = image.shape[0] // side, image.shape[1] // side
    return [
        image[i * side : (i + 1) * side, j * side : (j + 1) * side]
        for i in range(rows)
        for j in range(columns)
    ]


truth, *clean = (
    tile for image in load_sample_images().images for tile in tiles(grey(image))
)
rng = np.random.default_rng(0)
noisy = [tile + SIGMA * rng.normal(size=tile.shape) for tile in clean]
noisy_truth = truth + SIGMA * rng.normal(size=truth.shape)

###############################################################################
# This example compares three fields. The first field has a single leaf for each type of
# factor, so it is the same linear filter at all pixels. The second and the third field
# have trees of depth three. The second field is trained by pseudolikelihood, and the
# third field is trained for the squared error of its prediction. Features are the pixel
# itself and derivatives of Gaussians at three scales.

fields = {
    "no trees": {"loss": "mse", "max_depth": 0},
    "trees, pseudolikelihood": {"loss": "pseudolikelihood", "max_depth": 3},
    "trees, squared error": {"loss": "mse", "max_depth": 3},
}
images = {"noisy": noisy_truth}
for name, options in fields.items():
    field = RegressionTreeField(
        **options, max_iter=10, tol=1e-3, random_state=0, n_jobs=2
    )
    denoiser = make_pipeline(FilterBank("gaussian_derivatives"), field)
    with warnings.catch_warnings():  # few iterations are enough
        warnings.simplefilter("ignore", ConvergenceWarning)
        images[name] = denoiser.fit(noisy, clean).predict([noisy_truth])[0]

###############################################################################
# Without trees, the field makes the same compromise between noise and blur at all
# pixels. With trees, the field smooths walls, and edges remain sharp.

for name, image in images.items():
    print(f"{name:24} {psnr(image):.1f} dB")
figure, axes = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
*axes, empty = axes.flat
empty.axis("off")
for ax, (name, image) in zip(axes, [*images.items(), ("truth", truth)], strict=True):
    ax.imshow(image, cmap="gray", vmin=0, vmax=255)
    ax.set_title(
        name if image is truth else f"{name}\n{psnr(image):.2f} dB", fontsize=10
    )
    ax.axis("off")
plt.show()
