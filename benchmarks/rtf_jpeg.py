"""Removal of JPEG artefacts: Table 7 of Jancsary (2012).

BSDS500 at half scale, compressed by Pillow at qualities 10 to 40, where the thesis has MATLAB's encoder: read the gain
over the input. Besides the responses of the filter bank the field sees two channels that tell the borders of blocks of
8 x 8 and of 4 x 4 pixels, and two that tell the place in a block. `--quick` takes 40 training images, windows of 3,
trees of depth 5, 40 test images.

    python benchmarks/rtf_jpeg.py --quick
    python benchmarks/rtf_jpeg.py --settings quality10 --loss ssim
    python benchmarks/rtf_jpeg.py --filters default          # what fields see by default, and patches shrunk by tables
    python benchmarks/rtf_jpeg.py --quick --table            # all figures in the folder, without any work

Trees grow level by level, and every level is kept in `--folder`: a run that was stopped goes on at the level it was at.
"""

import io

import numpy as np
from _restoration_task import main
from PIL import Image

from sklearn_crf.preprocessing import PatchShrinkage

# PSNR of the thesis's fields less that of the input, in decibels (Table 7).
THESIS = {
    ("quality10", "psnr"): 27.66 - 26.62,
    ("quality20", "psnr"): 29.84 - 28.80,
    ("quality30", "psnr"): 31.15 - 30.08,
    ("quality40", "psnr"): 32.10 - 31.01,
    ("quality10", "pseudolikelihood"): 27.50 - 26.62,
    ("quality20", "pseudolikelihood"): 29.69 - 28.80,
    ("quality30", "pseudolikelihood"): 31.01 - 30.08,
    ("quality40", "pseudolikelihood"): 31.96 - 31.01,
    ("quality10", "ssim"): 27.18 - 26.62,
    ("quality10", "mae"): 27.66 - 26.62,
}


def compressed(clean, setting, seed):
    """Images after compression; nothing in it is random."""
    images = []
    for image in clean:
        buffer = io.BytesIO()
        Image.fromarray(np.rint(image).astype(np.uint8)).save(buffer, format="JPEG", quality=int(setting[7:]))
        images.append(np.asarray(Image.open(buffer)).astype(np.float32))
    return images


def shrinkage_of_tables(setting):
    """Patches shrunk by multiples of the table of quantization, which a file of JPEG tells."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, format="JPEG", quality=int(setting[7:]))
    table = np.reshape(Image.open(buffer).quantization[0], (8, 8)).astype(float)
    return PatchShrinkage([multiple * table for multiple in (0.15, 0.3, 0.5)])


def with_borders(image, responses):
    """Responses, and 1 where a pixel is the first or last of its block of 8, or of 4, in a row or column.

    Then the pixel's row and column in its block of 8, from 0 in the middle to 3 at the border.
    """
    borders = []
    for side in (8, 4):
        is_border = [np.isin(np.arange(length) % side, (0, side - 1)) for length in image.shape]
        borders.append(is_border[0][:, None] | is_border[1][None, :])
    down, right = (np.abs(np.arange(length) % 8 - 3.5) - 0.5 for length in image.shape)
    places = np.broadcast_to(down[:, None], image.shape), np.broadcast_to(right, image.shape)
    return np.dstack([responses, *borders, *places]).astype(np.float32)


if __name__ == "__main__":
    settings = [f"quality{q}" for q in (10, 20, 30, 40)]
    main(__doc__, "rtf_jpeg", settings, compressed, with_borders, THESIS, shrinkage=shrinkage_of_tables)
