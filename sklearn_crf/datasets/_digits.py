"""Handwritten digits with noise, made from the images that come with scikit-learn."""

from numbers import Integral

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from sklearn.utils import check_random_state

# Pixels have values from 0 (no ink) to 16. Larger values than _INK become 1 in the binary images.
_INK = 8
_LEVELS = {"flip": 0.1, "gaussian": 0.5}


def make_noisy_digits(
    n_samples: int | None = None,
    *,
    noise: str = "flip",
    level: float | None = None,
    scale: int = 1,
    random_state: int | np.random.RandomState | None = None,
) -> tuple:
    r"""Generate noisy images of handwritten digits, with clean binary images as labels, for image restoration.

    The labels y are the 8 x 8 images of :func:`sklearn.datasets.load_digits`, enlarged by bilinear interpolation and
    thresholded at half of the largest pixel value. ``"flip"`` inverts each pixel with probability ``level``;
    ``"gaussian"`` adds :math:`N(0, \mathrm{level}^2)` to y.

    Parameters
    ----------
    n_samples : int, optional
        Number of digits, in the order of the data set; None means all 1797.
    noise : {"flip", "gaussian"}, default="flip"
        Type of noise, independent for each pixel.
    level : float, optional
        Probability of a flip (None means 0.1), or standard deviation of Gaussian noise (None means 0.5).
    scale : int, default=1
        Images are ``8 * scale`` pixels wide and high.
    random_state : int, RandomState instance or None, default=None
        Determines the noise.

    Returns
    -------
    X : ndarray of shape (n, 8 * scale, 8 * scale, 1), float64
        Noisy images.
    y : ndarray of shape (n, 8 * scale, 8 * scale), int64
        1 for ink, 0 for background.
    digits : ndarray of shape (n,), int64
        The digit in each image.

    Examples
    --------
    >>> from sklearn_crf.datasets import make_noisy_digits
    >>> X, y, digits = make_noisy_digits(10, random_state=0)
    >>> X.shape, y.shape, digits.tolist()
    ((10, 8, 8, 1), (10, 8, 8), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    if noise not in _LEVELS:
        raise ValueError(f"noise must be 'flip' or 'gaussian', got {noise!r}.")
    level = _LEVELS[noise] if level is None else level
    if not level >= 0 or (noise == "flip" and level > 1):
        raise ValueError(f"level must be {'a probability' if noise == 'flip' else 'at least 0'}, got {level!r}.")
    if not isinstance(scale, Integral) or scale < 1:
        raise ValueError(f"scale must be an integer of at least 1, got {scale!r}.")
    source = load_digits()
    if n_samples is not None and not 1 <= n_samples <= len(source.images):
        raise ValueError(f"n_samples must be 1 to {len(source.images)}, got {n_samples!r}.")
    ink = zoom(source.images[:n_samples], (1, scale, scale), order=1, mode="nearest", grid_mode=True)
    y = (ink >= _INK).astype(np.int64)
    rng = check_random_state(random_state)
    if noise == "flip":
        x = np.where(rng.uniform(size=y.shape) < level, 1 - y, y).astype(np.float64)
    else:
        x = y + level * rng.standard_normal(y.shape)
    return x[..., np.newaxis], y, source.target[:n_samples].astype(np.int64)
