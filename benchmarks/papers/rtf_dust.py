"""Removal of dust, a structured noise: Figure 69 of Jancsary (2012), for which the thesis prints no numbers.

Images are from BSDS500 at half scale. The number of dust particles of an image has a Poisson distribution with mean 20,
and their positions are random. Each particle is a dark blot with the shape of a Gaussian, with a scale of 5 (small) or
20 pixels (large). The thesis does not say how dark blots are; in this benchmark, the centre is darker by 80 grey
values. BM3D, which is designed for independent noise of pixels, is run with three noise levels. In addition to the
responses of the filter bank, the field reads three blurred copies of the image (scales of 8, 16 and 32 pixels), because
blots are larger than the filters.

    python benchmarks/papers/rtf_dust.py --quick
    python benchmarks/papers/rtf_dust.py --quick --rivals --tests 10
    python benchmarks/papers/rtf_dust.py --quick --table            # print all stored results
"""

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from support.restoration_task import main

SCALES = {"small": 5.0, "large": 20.0}
DARKNESS = 80.0
PARTICLES = 20


def dusty(clean, setting, seed):
    """Return images with dust."""
    rng = np.random.default_rng(seed)
    images = []
    for image in clean:
        places = rng.uniform(size=(rng.poisson(PARTICLES), 2)) * image.shape
        rows, columns = (np.arange(length) for length in image.shape)
        scale = 2 * SCALES[setting] ** 2
        down, across = (
            np.exp(-((axis[:, None] - place) ** 2) / scale)
            for axis, place in zip((rows, columns), places.T, strict=True)
        )
        images.append((image - DARKNESS * down @ across.T).astype(np.float32))
    return images


def with_blurred(image, responses):
    """Return responses, and copies of the image with more blur than the bank has."""
    return np.dstack([responses, *(gaussian_filter(image, scale) for scale in (8, 16, 32))]).astype(np.float32)


def bm3d_of(strength):
    def method(image):
        import bm3d

        return bm3d.bm3d(image.astype(float), strength)

    return method


if __name__ == "__main__":
    rivals = {f"BM3D {strength}": bm3d_of(strength) for strength in (5, 10, 20)}
    main(__doc__, "rtf_dust", list(SCALES), dusty, with_blurred, {}, rivals)
