"""Where kernels look for the weights of channels."""

import numpy as np

from sklearn_crf.kernels.leaf_models import CHANNEL_BLOCK


def packed_inputs(whitening, paired):
    """Columns of a matrix of linear models where the kernels look for them.

    Kernels read the channels of a pixel in blocks of ``CHANNEL_BLOCK``. The last block ends with the pixel, and repeats
    channels of the block before it; there the columns are zero, so that nothing is counted twice.

    Parameters
    ----------
    whitening : ndarray of shape (B, n_inputs)
    paired : bool

    Returns
    -------
    ndarray of shape (B, 1 + size) or (B, 1 + 2 * size)
    """
    n_pixels = 2 if paired else 1
    n_channels = (whitening.shape[1] - 1) // n_pixels
    size = packed_size(n_channels)
    place = np.arange(n_channels)
    if n_channels > CHANNEL_BLOCK:
        place[n_channels // CHANNEL_BLOCK * CHANNEL_BLOCK :] += size - n_channels
    packed = np.zeros((len(whitening), 1 + n_pixels * size))
    packed[:, np.concatenate([[0], *(1 + k * size + place for k in range(n_pixels))])] = whitening
    return packed


def packed_size(n_channels):
    """Columns that the channels of one pixel take."""
    return n_channels if n_channels < CHANNEL_BLOCK else -(-n_channels // CHANNEL_BLOCK) * CHANNEL_BLOCK
