"""Noise of photographs, whose variance may grow with brightness, and which may be clipped at black and white."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._ranges import BYTES
from sklearn_crf.preprocessing._default_bank import estimate_detail_noise
from sklearn_crf.restoration import _tuning as tuned
from sklearn_crf.rtf._tuning import LARGEST_CLIPPED, SMOOTH_SQUARE
from sklearn_crf.rtf.images._corruption import compute_noise_after_clipping, cut_into_squares


class PhotoNoise(NamedTuple):
    r"""Noise of an image whose values x lie in the range 0 to 255.

    .. math:: y = \min(\max(x + \sigma(x) \, n, 0), 255), \qquad \sigma^2(x) \propto x + \text{offset}

    An infinite offset stands for noise of equal variance everywhere. An end of the range clips values only if some
    values lie at this end and no value lies beyond it.
    """

    offset: float
    low: bool
    high: bool
    clipped: np.ndarray | None  # mask of clipped values, in the shape of the image; None if no end of the range clips

    @classmethod
    def of(cls, values: np.ndarray, is_white: bool, bounded: tuple[bool, bool]) -> "PhotoNoise":
        """Describe the noise of an image, (H, W) or (H, W, C); with ``is_white``, the variance is equal everywhere."""
        # bounded: whether 0 and 255 stand for ends of a usual range, not just for the smallest and largest value
        # The comparisons have a tolerance, because conversion to the range of bytes has rounding errors.
        at_low, at_high = values <= BYTES[0] + 1e-6, values >= BYTES[1] - 1e-6
        low = bool(bounded[0] and at_low.any() and values.min() >= BYTES[0] - 1e-6)
        high = bool(bounded[1] and at_high.any() and values.max() <= BYTES[1] + 1e-6)
        clipped = (at_low & low) | (at_high & high) if low or high else None
        return cls(np.inf if is_white else _estimate_offset(values, clipped), low, high, clipped)

    @property
    def fraction(self) -> np.ndarray | None:
        """Fraction of clipped colour values at each pixel, (H, W), or None if no value is clipped."""
        clipped = self.clipped
        return None if clipped is None else clipped.reshape(*clipped.shape[:2], -1).mean(axis=2)

    def stabilise(self, values: np.ndarray) -> np.ndarray:
        """Transform values so that their noise has equal variance everywhere; 0 and 255 stay as they are."""
        if np.isinf(self.offset):
            return values
        root = np.sqrt(np.maximum(values + self.offset, 0.0))
        low, high = np.sqrt(np.add(BYTES, self.offset))
        return BYTES[1] * (root - low) / (high - low)

    def compute_means(self, brightness: np.ndarray, level: float) -> np.ndarray:
        """Return the means of transformed noisy values; ``level`` is the deviation of the transformed noise."""
        deviation = np.full_like(brightness, level)
        if np.isfinite(self.offset):
            low, high = np.sqrt(np.add(BYTES, self.offset))
            deviation *= 2 * (high - low) / BYTES[1] * np.sqrt(np.maximum(brightness + self.offset, 0.0))
        steps = np.linspace(-4.0, 4.0, 161)
        weights = np.exp(-0.5 * steps**2)
        ends = BYTES[0] if self.low else -np.inf, BYTES[1] if self.high else np.inf
        noisy = np.clip(brightness[:, np.newaxis] + deviation[:, np.newaxis] * steps, *ends)
        return self.stabilise(noisy) @ (weights / weights.sum())

    def invert(self, values: np.ndarray, level: float) -> np.ndarray:
        """Return the brightnesses whose transformed noisy values have the given means."""
        if np.isinf(self.offset) and self.clipped is None:
            return values
        low, high = BYTES[0] if self.low else -BYTES[1] / 2, BYTES[1] if self.high else 1.5 * BYTES[1]
        brightness = np.linspace(max(low, -self.offset), high, 1024)
        return np.interp(values, np.maximum.accumulate(self.compute_means(brightness, level)), brightness)


def _estimate_offset(values: np.ndarray, clipped: np.ndarray | None) -> float:
    r"""Estimate the offset of a variance proportional to x + offset, from the noise and the means of image squares.

    Detail of the image only adds to the noise of a square. The fit therefore targets a low quantile of the
    measured variances: it minimises the pinball loss of the logarithms of the ratios of measured to fitted variances.
    """
    mean, variance = _compute_moments_of_squares(values, clipped)
    if len(mean) < tuned.LEAST_SQUARES:
        return np.inf
    # The smallest possible variance is the variance of rounding to integers.
    variance, best, loss_of_white = np.log(np.maximum(variance, 1 / 12)), (np.inf, np.inf), np.inf
    for growth in np.linspace(0, 1, 21):
        shape = (1 - growth) * BYTES[1] / 2 + growth * np.maximum(mean, 1.0)
        excess = variance - np.log(shape)
        excess -= np.quantile(excess, tuned.SMOOTH_SHARE)
        loss = np.mean(np.maximum(tuned.SMOOTH_SHARE * excess, (tuned.SMOOTH_SHARE - 1) * excess))
        if growth == 0:
            loss_of_white = loss
        else:
            best = min(best, (loss, (1 - growth) / growth * BYTES[1] / 2))
    return best[1] if best[0] < tuned.LOSS_OF_GROWTH * loss_of_white else np.inf


def _compute_moments_of_squares(values: np.ndarray, clipped: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each square block with few clipped values, the mean value and the variance of the finest detail.

    The variance is corrected for clipping.
    """
    # returns: (n_squares,), (n_squares,)
    if min(values.shape[:2]) < SMOOTH_SQUARE:
        return np.zeros(0), np.zeros(0)

    def cut(x):
        channels = np.moveaxis(x.reshape(*x.shape[:2], -1), -1, 0)
        return cut_into_squares(channels[..., np.newaxis], SMOOTH_SQUARE)

    squares = cut(values)
    fraction = np.zeros(len(squares)) if clipped is None else cut(clipped).mean(axis=(1, 2, 3))
    squares, fraction = squares[fraction <= LARGEST_CLIPPED], fraction[fraction <= LARGEST_CLIPPED]
    levels = [
        estimate_detail_noise(own) / compute_noise_after_clipping(p) for own, p in zip(squares, fraction, strict=True)
    ]
    return squares.mean(axis=(1, 2, 3)), np.square(levels)
