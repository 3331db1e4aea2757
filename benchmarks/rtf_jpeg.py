"""Removal of JPEG artefacts: Table 7 of Jancsary (2012).

BSDS500 at half scale, compressed by Pillow at qualities 10 to 40, where the thesis has MATLAB's encoder and another
filter of reduction: read the gain over the input. Besides the responses of the filter bank the field sees two channels
that tell the borders of blocks of 8 x 8 and of 4 x 4 pixels. `--quick` takes 40 training images, windows of 3, trees of
depth 5, 40 test images.

    python benchmarks/rtf_jpeg.py --quick
    python benchmarks/rtf_jpeg.py --settings quality10 --loss ssim
    python benchmarks/rtf_jpeg.py --quick --table            # all figures in the folder, without any work

Trees grow level by level, and every level is kept in `--folder`: a run that was stopped goes on at the level it was at.
"""

import io

import numpy as np
from _restoration_task import main
from PIL import Image

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


def with_borders(image, responses):
    """Responses, and 1 where a pixel is the first or last of its block of 8, or of 4, in a row or column."""
    borders = []
    for side in (8, 4):
        is_border = [np.isin(np.arange(length) % side, (0, side - 1)) for length in image.shape]
        borders.append(is_border[0][:, None] | is_border[1][None, :])
    return np.dstack([responses, *borders]).astype(np.float32)


if __name__ == "__main__":
    main(__doc__, "rtf_jpeg", [f"quality{q}" for q in (10, 20, 30, 40)], compressed, with_borders, THESIS)
