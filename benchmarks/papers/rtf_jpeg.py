"""Removal of JPEG artefacts: Table 7 of Jancsary (2012).

Images are from BSDS500 at half scale, compressed by Pillow at qualities from 10 to 40. The thesis uses the encoder of
MATLAB, so compare the gains over the input. In addition to the responses of the filter bank, the field has two channels
that mark the borders of blocks of 8 x 8 and of 4 x 4 pixels, and two channels with the position in a block. With
`--filters default`, the field reads the default filters and channels computed from the JPEG file (see `Compression`).
`--quick` uses 40 training images, windows of 3, trees of depth 5 and 40 test images.

    python benchmarks/papers/rtf_jpeg.py --quick
    python benchmarks/papers/rtf_jpeg.py --settings quality10 --loss ssim
    python benchmarks/papers/rtf_jpeg.py --filters default  # default filters, and channels computed from the file
    python benchmarks/papers/rtf_jpeg.py --quick --table            # print all stored results

Trees grow level by level. Every level is stored in `--folder`, and an interrupted run continues at its level.
"""

import io

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
import scipy.fft
from PIL import Image
from support.restoration import TURNS, mean_of_mirrors, mirrored
from support.restoration_task import main
from support.thesis_tables import DEBLOCKING

from sklearn_crf.preprocessing import AdaptiveFilters, PatchShrinkage


def compressed(clean, setting, seed):
    """Return images after compression, which is deterministic."""
    images = []
    for image in clean:
        buffer = io.BytesIO()
        Image.fromarray(np.rint(image).astype(np.uint8)).save(buffer, format="JPEG", quality=int(setting[7:]))
        images.append(np.asarray(Image.open(buffer)).astype(np.float32))
    return images


def table_of(setting):
    """Return the quantization table, read from a JPEG file."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, format="JPEG", quality=int(setting[7:]))
    return np.reshape(Image.open(buffer).quantization[0], (8, 8)).astype(float)


def with_borders(image, responses):
    """Return responses, and indicators for the first and last pixel of blocks of 8 and of 4, by row and column.

    Two more channels are the pixel's row and column in its block of 8, from 0 in the middle to 3 at the border.
    """
    borders = []
    for side in (8, 4):
        is_border = [np.isin(np.arange(length) % side, (0, side - 1)) for length in image.shape]
        borders.append(is_border[0][:, None] | is_border[1][None, :])
    down, right = (np.abs(np.arange(length) % 8 - 3.5) - 0.5 for length in image.shape)
    places = np.broadcast_to(down[:, None], image.shape), np.broadcast_to(right, image.shape)
    return np.dstack([responses, *borders, *places]).astype(np.float32)


class Compression:
    """Properties of images of one quality: their quantization table, and filters for each position in a block."""

    # Number of the channels after the channels of filters.
    names = (
        "border_8",
        "border_4",
        "down",
        "right",
        "n_coefficients",
        "n_fine",
        "linear",
        "adaptive",
        "within",
        "nearest",
    )
    of_pairs = "intensity", "shrunk_1", "down", "right", "border_8", "n_coefficients", "adaptive", "within"

    def __init__(self, setting, inputs, clean, path):
        self.table = table_of(setting)
        # Patches shrunk by multiples of the table, named shrunk_0 to shrunk_2.
        self.filters = [PatchShrinkage([multiple * self.table for multiple in (0.15, 0.3, 0.5)])]
        if not path.exists():
            adaptive = AdaptiveFilters(8)
            joblib.dump((adaptive, adaptive.fit_transform(inputs(), clean)), path)
        self.adaptive, self.of_training = joblib.load(path)

    def coefficients(self, image):
        """Return the coefficients of the cosine transform of each block."""
        height, width = image.shape
        padded = np.pad(image.astype(float), [(0, -height % 8), (0, -width % 8)], mode="edge") - 128
        blocks = padded.reshape(padded.shape[0] // 8, 8, padded.shape[1] // 8, 8)
        return scipy.fft.dctn(blocks, axes=(1, 3), norm="ortho") / self.table[:, None, :]

    def within(self, image, compressed):
        """Return the nearest image whose coefficients round to the coefficients of the compressed image."""
        known = np.rint(self.coefficients(compressed))
        kept = np.clip(self.coefficients(image), known - 0.5, known + 0.5) * self.table[:, None, :]
        found = scipy.fft.idctn(kept, axes=(1, 3), norm="ortho") + 128
        return found.reshape(8 * found.shape[0], -1)[: image.shape[0], : image.shape[1]]

    def channels(self, image, responses, filtered=None):
        """Return responses, the place in a block, the block's nonzero coefficients, and four restored images.

        ``filtered`` holds the images restored by adaptive filters, if they are known.
        """
        height, width = image.shape
        used = np.rint(self.coefficients(image)) != 0
        used[:, 0, :, 0] = False
        is_fine = np.add.outer(np.arange(8), np.arange(8)) > 3
        counts = [np.minimum(used.sum(axis=(1, 3)), 20), (used & is_fine[:, None, :]).sum(axis=(1, 3))]
        counts = [np.kron(own, np.ones((8, 8)))[:height, :width] for own in counts]
        filtered = self.adaptive.transform([image])[0] if filtered is None else filtered
        restored = filtered, self.within(responses[..., -2], image), self.within(filtered[..., 1], image)
        return np.dstack([with_borders(image, responses), *counts, *restored]).astype(np.float32)

    def restored(self, field, channels, image):
        """Return the mean of the restored mirror images, projected onto the images that the file allows."""
        turns = TURNS[:1] if any(n % 8 for n in image.shape) else TURNS
        found = field.predict(channels(mirrored(image, turns)))
        return self.within(mean_of_mirrors(found, turns), image)


if __name__ == "__main__":
    settings = [f"quality{q}" for q in (10, 20, 30, 40)]
    main(__doc__, "rtf_jpeg", settings, compressed, with_borders, DEBLOCKING, task=Compression)
