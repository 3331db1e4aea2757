"""Random corruptions of clean images, which training draws anew in every round."""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.fft
from scipy.special import ndtri
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._reports import warn_caller
from sklearn_crf.preprocessing._default_bank import estimate_detail_noise
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._options import Options
from sklearn_crf.rtf.images._channels import InputSample, append_masks, fill_gaps, find_missing_values


@dataclass(eq=False, repr=False)
class _Range(Options):
    """Parameter of a corruption: a number, or bounds between which a number is drawn uniformly for every image."""

    _least: ClassVar[float] = 0.0
    _largest: ClassVar[float] = np.inf
    _example: ClassVar[float] = 25

    low: float | None = None
    high: float | None = None

    def check(self) -> None:
        """Raise InvalidParameterError if the bounds are invalid."""
        low: Any = self.low
        high: Any = self.low if self.high is None else self.high
        for name, value in (("low", low), ("high", high)):
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not self._least <= value <= min(self._largest, np.finfo(float).max) or low > high:
                raise InvalidParameterError(
                    f"The '{name}' parameter of {type(self).__name__} must be a number from {self._least:g} to "
                    f"{self._largest:g}, with low <= high, as in {type(self).__name__}({self._example}). Got "
                    f"low={self.low!r}, high={self.high!r} instead."
                )

    def _draw(self, rng):
        self.check()
        return self.low if self.high is None else rng.uniform(self.low, self.high)


@dataclass(eq=False, repr=False)
class GaussianNoise(_Range):
    r"""Additive white noise, :math:`x + \sigma \epsilon` with :math:`\epsilon \sim N(0, 1)`, not clipped.

    Parameters
    ----------
    low : float
        Standard deviation :math:`\sigma`, in units of the image.
    high : float or None, default=None
        If given, :math:`\sigma` is drawn uniformly between ``low`` and ``high`` for every image.
    level_channel : bool, default=False
        Whether to append :math:`\sigma` as a channel, so that a single field learns to restore images of any known
        noise level. Images to predict then also need this channel.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf import GaussianNoise
    >>> noisy = GaussianNoise(5, 50)(np.zeros((100, 100)), np.random.default_rng(0))
    >>> bool(5 < noisy.std() < 50)
    True
    """

    _: KW_ONLY
    level_channel: bool = False

    def check(self) -> None:
        """Raise InvalidParameterError for the first invalid parameter."""
        super().check()
        if not isinstance(self.level_channel, bool | np.bool_):
            raise InvalidParameterError(
                f"The 'level_channel' parameter of GaussianNoise must be a bool. Got {self.level_channel!r} instead."
            )

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image with noise.

        Parameters
        ----------
        image : ndarray of shape (H, W), (H, W, C) or (D, H, W, C)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of the same shape, float32
            Noisy image, with one more channel if ``level_channel`` is set.
        """
        image = np.asarray(image, dtype=np.float32)
        sigma = np.float32(self._draw(rng))
        noisy = image + sigma * rng.standard_normal(image.shape, dtype=np.float32)
        if not self.level_channel:
            return noisy
        # Images with two axes have no channel axis.
        noisy = noisy[..., None] if noisy.ndim == 2 else noisy
        return np.concatenate([noisy, np.full((*noisy.shape[:-1], 1), sigma)], axis=-1)


class MissingPixels(_Range):
    """Random missing pixels (NaN), for training fields that fill gaps.

    Parameters
    ----------
    low : float
        Fraction of missing pixels, from 0 to 1.
    high : float or None, default=None
        If given, the fraction is drawn uniformly between ``low`` and ``high`` for every image.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf import MissingPixels
    >>> image = MissingPixels(0.5)(np.zeros((100, 100)), np.random.default_rng(0))
    >>> bool(0.45 < np.isnan(image).mean() < 0.55)
    True
    """

    _least, _largest, _example = 0.0, 1.0, 0.5

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image with NaN in all channels of the missing pixels.

        Parameters
        ----------
        image : ndarray of shape (H, W), (H, W, C) or (D, H, W, C)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of the same shape, float32
        """
        image = np.array(image, dtype=np.float32)
        image[rng.random(image.shape[: max(image.ndim - 1, 2)]) < self._draw(rng)] = np.nan
        return image


# Quantisation tables for luminance and chrominance, Tables K.1 and K.2 of ITU-T T.81.
_LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
_CHROMINANCE = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""
_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])


class JPEG(_Range):
    r"""Baseline JPEG compression of images with values from 0 to 255, without chroma subsampling.

    .. math::
        \hat c = q \, \mathrm{round}(c / q)

    for each coefficient c of the cosine transform of 8 x 8 blocks. The tables q of annex K of the standard are scaled
    by the quality as in libjpeg. The result is rounded and clipped to 0 to 255.

    Parameters
    ----------
    low : float
        Quality, from 1 to 100.
    high : float or None, default=None
        If given, the quality is drawn uniformly between ``low`` and ``high`` for every image, and rounded.

    References
    ----------
    ITU-T Recommendation T.81, 1992, Annexes A and K.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf import JPEG
    >>> image = np.add.outer(np.arange(32.0), np.arange(32.0))
    >>> float(np.abs(JPEG(90)(image, np.random.default_rng(0)) - image).max())
    1.0
    """

    _least, _largest, _example = 1.0, 100.0, 50

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image after compression.

        Parameters
        ----------
        image : ndarray of shape (H, W) or (H, W, C)
            Grey image for one channel, RGB for three. For other numbers, each channel is compressed as a grey image.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of the same shape, float32
        """
        quality = round(self._draw(rng))
        image = np.asarray(image, dtype=np.float64)
        planes = image[..., None] if image.ndim == 2 else image
        is_colour = planes.shape[2] == 3
        planes = planes @ _YCC.T + [0, 128, 128] if is_colour else planes
        tables = [_LUMINANCE, _CHROMINANCE, _CHROMINANCE] if is_colour else [_LUMINANCE] * planes.shape[2]
        found = np.stack([_quantise(planes[..., c], _table(own, quality)) for c, own in enumerate(tables)], axis=2)
        found = (found - [0, 128, 128]) @ np.linalg.inv(_YCC).T if is_colour else found
        return np.clip(np.rint(found), 0, 255).astype(np.float32).reshape(image.shape)


def _table(name, quality=50):
    table = np.array(name.split(), dtype=np.float64).reshape(8, 8)
    percents = np.rint(100 * compute_table_factor(quality) * table)
    return np.clip((percents + 50) // 100, 1, 255)


def compute_table_factor(quality: int) -> float:
    """Return the factor by which JPEG multiplies the standard tables at a given quality."""
    return (5000 // quality if quality < 50 else 200 - 2 * quality) / 100


def find_quality(factor: float) -> int:
    """Return the quality, rounded to an integer, at which JPEG multiplies the standard tables by ``factor``."""
    return round(50 / factor if factor > 1 else 100 - 50 * factor)


def estimate_table_factor(image: np.ndarray) -> float:
    """Estimate the factor of the JPEG tables from a grey or red-green-blue image (H, W) or (H, W, 3) of bytes.

    The factor is about 0.2 for images that were not compressed, and 0 for images of a single colour.
    """
    return _compute_largest_median(_list_table_factors(image))


def _compute_largest_median(factors: list[np.ndarray]) -> float:
    return float(max((np.nanmedian(found) for found in factors if np.isfinite(found).any()), default=0.0))


def find_least_step(image: np.ndarray) -> float:
    """Return the smallest quantisation step of brightness in a grey or red-green-blue image of bytes.

    The step is 0 unless JPEG has compressed the image at a quality of at most about 85. At such a quality, nearly all
    frequencies have coarse steps, or at the lowest qualities only zeros. Uncompressed pictures of flat squares or of
    gradients have coarse steps at few frequencies only.
    """

    def count_coarse(factors: np.ndarray) -> int:
        n_coarse = np.count_nonzero(factors >= tuned.LEAST_COARSE_FACTOR)
        may_be_0 = np.count_nonzero(factors >= tuned.LEAST_FACTOR_OF_ZEROS) >= tuned.LEAST_KNOWN_FREQUENCIES
        return int(n_coarse + may_be_0 * np.count_nonzero(np.isnan(factors)))

    factors = _list_table_factors(image)
    if max(map(count_coarse, factors)) < tuned.LEAST_COARSE_FREQUENCIES:
        return 0.0
    return _compute_largest_median(factors) * float(_table(_LUMINANCE).min())


def _list_table_factors(image: np.ndarray) -> list[np.ndarray]:
    """Return, for each possible block corner, the table factors of the lowest 9 frequencies, (9,); NaN if unknown."""
    luma = image @ _YCC[0] if image.ndim == 3 else image
    is_clipped = (image == 0) | (image == 255)
    is_clipped = np.any(is_clipped, axis=2) if image.ndim == 3 else is_clipped
    corners = {(0, 0), (_find_first_border(luma, 0), _find_first_border(luma, 1))}
    return [_estimate_factors_at_corner(luma[top:, left:], is_clipped[top:, left:]) for top, left in sorted(corners)]


def _estimate_factors_at_corner(luma: np.ndarray, is_clipped: np.ndarray) -> np.ndarray:
    """Return the table factors of the 9 lowest frequencies, for an image whose upper left corner is a block corner."""
    rows, columns = (side // 8 for side in luma.shape)
    blocks, clipped = (
        part[: 8 * rows, : 8 * columns].reshape(rows, 8, columns, 8).swapaxes(1, 2) for part in (luma, is_clipped)
    )
    blocks = blocks[~clipped.any(axis=(2, 3))]
    if not len(blocks):
        return np.full(9, np.nan)
    blocks = blocks[:: len(blocks) // tuned.BLOCKS_TRIED + 1]
    coefficients = np.abs(scipy.fft.dctn(blocks - 128, axes=(1, 2), norm="ortho"))
    return np.array([_estimate_step(coefficients[:, i, j]) / _table(_LUMINANCE)[i, j] for i, j in np.ndindex(3, 3)])


def _find_first_border(luma, axis):
    """Return the first row or column at which a JPEG block begins, because images may have been cropped.

    Differences between neighbours are largest across the borders of blocks.
    """
    jumps = np.abs(np.diff(luma, axis=axis)).mean(axis=1 - axis)
    n = len(jumps) // 8 * 8
    return (int(np.argmax(jumps[:n].reshape(-1, 8).sum(axis=0))) + 1) % 8 if n else 0


def _estimate_step(coefficients):
    """Return the largest quantisation step that divides most coefficients, or NaN if nearly all coefficients are 0."""
    seen, steps = coefficients[coefficients > tuned.LEAST_COEFFICIENT], np.arange(1.0, 256)
    if len(seen) < tuned.LEAST_COEFFICIENTS:
        return np.nan
    # The pixels of an image are rounded, which causes errors of about 0.3 in its coefficients.
    is_multiple = np.abs(seen - steps[:, np.newaxis] * np.rint(seen / steps[:, np.newaxis])) < 1
    return steps[is_multiple.mean(axis=1) > tuned.SHARE_OF_MULTIPLES].max()


def _quantise(plane, table):
    height, width = plane.shape
    padded = np.pad(plane, [(0, -height % 8), (0, -width % 8)], mode="edge") - 128
    rows, columns = padded.shape
    blocks = padded.reshape(rows // 8, 8, columns // 8, 8)
    coefficients = scipy.fft.dctn(blocks, axes=(1, 3), norm="ortho")
    table = table[:, None, :]
    blocks = scipy.fft.idctn(table * np.rint(coefficients / table), axes=(1, 3), norm="ortho")
    # JPEG decoders return integers.
    return np.clip(np.rint(blocks.reshape(rows, columns)[:height, :width] + 128), 0, 255)


def corrupt_image(corruption, image, rng, kind):
    """Corrupt a clean image."""
    # image: in the form that the corruption expects; kind: data type, float64 if float32 cannot represent the image
    if kind == np.float32 or not isinstance(corruption, GaussianNoise | MissingPixels):
        return np.asarray(corruption(image.copy(), rng), dtype=kind)
    # Both corruptions return float32, so apply them to zeros, in a unit near the range of the image.
    unit = np.ldexp(1.0, np.frexp(np.ptp(image))[1])
    if isinstance(corruption, MissingPixels):
        return image + corruption(np.zeros(image.shape), rng)
    low, high = (None if level is None else level / unit for level in (corruption.low, corruption.high))
    options = {"level_channel": corruption.level_channel}
    found = GaussianNoise(low, high, **options)(np.zeros(image.shape), rng).astype(np.float64) * unit
    if not corruption.level_channel:
        return image + found
    found[..., :-1] += image if image.ndim == found.ndim else image[..., None]
    return found


def require_noise_within(given, low, high, sample):
    """Raise ValueError if the noise level is larger than the range of the images."""
    least, largest = np.nanmin(sample.values, initial=np.inf), np.nanmax(sample.values, initial=-np.inf)
    level = low if high is None else (low + high) / 2
    if 0 < largest - least < level:
        raise ValueError(
            f"{given} has noise of standard deviation {level:.3g}, but X has values from {least:.3g} to {largest:.3g}: "
            "noise is in the units of X."
        )


def get_single_level(corruption):
    """Return the noise level of a corruption with a single level, else None."""
    is_noise = isinstance(corruption, GaussianNoise) and not corruption.level_channel
    return corruption.low if is_noise and corruption.low > 0 and corruption.high in (None, corruption.low) else None


def require_noise_level(corruption):
    """Return the single noise level that a field was trained for, or raise ValueError."""
    level = get_single_level(corruption)
    if level is None:
        raise ValueError(
            "noise needs a field that was trained for one level, with corruption=GaussianNoise(level), got "
            f"corruption={corruption!r}."
        )
    return level


def warn_of_other_noise(corruption, X):
    """Warn if a field was trained for a single noise level, and the noise of an image is far from this level."""
    trained = get_single_level(corruption)
    for x in X[: tuned.IMAGES_TRIED] if trained is not None else ():
        level = estimate_noise(x)
        if not 1 / tuned.FAR_FROM_TRAINED <= level / trained <= tuned.FAR_FROM_TRAINED and np.ptp(x):
            warn_caller(
                f"X has an image with noise of standard deviation near {level:.3g}, but the field was trained for "
                f"{trained:.3g}: pass noise='auto' to predict."
            )
            return


def estimate_noise(x: Any, clipped: np.ndarray | None = None) -> float:
    """Estimate the noise level of an image from its smoothest square blocks, because these contain little detail.

    Clipping reduces noise. Therefore, blocks with few clipped values are used, and the estimate is increased.
    """
    # x: (H, W), (H, W, C) or (D, H, W, C); clipped: (H, W), fraction of each pixel's values that are clipped
    x = np.asarray(x, dtype=np.float64)
    x = x[..., None] if x.ndim == 2 else x
    side = tuned.SMOOTH_SQUARE
    rows, columns = x.shape[-3] // side, x.shape[-2] // side
    if rows * columns < tuned.LEAST_SQUARES_OF_NOISE:
        return estimate_detail_noise(x)
    squares, remaining = cut_into_squares(x, side), 1.0
    if clipped is not None:
        fraction = cut_into_squares(clipped[..., None], side).mean(axis=(1, 2, 3))
        are_used = fraction <= max(np.quantile(fraction, tuned.SHARE_OF_UNCLIPPED), tuned.LEAST_CLIPPED)
        squares, remaining = squares[are_used], compute_noise_after_clipping(fraction[are_used].mean())
    levels = [estimate_detail_noise(own) for own in squares]
    return float(np.quantile(levels, tuned.SHARE_OF_SQUARES)) / tuned.BIAS_OF_SQUARES / remaining


def compute_noise_after_clipping(fraction: float) -> float:
    """Return the standard deviation of max(n, t), for standard normal n and a threshold t.

    The threshold clips the given fraction of values. If more values are clipped than noise usually explains, parts of
    the image itself are at the end of the range: return 1.
    """
    if not 0 < fraction <= tuned.LARGEST_CLIPPED:
        return 1.0
    t = ndtri(fraction)
    density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    mean, square = density + t * fraction, 1 - fraction + t * density + t**2 * fraction
    return float(np.sqrt(square - mean**2))


def cut_into_squares(x: np.ndarray, side: int) -> np.ndarray:
    """Return the square blocks (n, side, side, C) of images (..., H, W, C)."""
    rows, columns = x.shape[-3] // side, x.shape[-2] // side
    squares = x[..., : rows * side, : columns * side, :].reshape(-1, rows, side, columns, side, x.shape[-1])
    return squares.swapaxes(2, 3).reshape(-1, side, side, x.shape[-1])


def choose_noise_levels(noise, X, least):
    """Return the noise level of each image, given or estimated, at least ``least``."""
    if isinstance(noise, str) and noise == "auto":
        return [max(estimate_noise(x), least) for x in X]
    levels = np.asarray(noise)
    is_fitting = levels.dtype.kind in "iuf" and levels.shape in ((), (len(X),))
    if not is_fitting or not np.all((levels > 0) & (levels < np.inf)):
        raise ValueError(
            f"noise must be 'auto', a positive number, or one positive number for each of {len(X)} images, got "
            f"{noise!r}."
        )
    sample = InputSample.of([np.reshape(x, (-1, 1)) for x in X])
    require_noise_within(f"noise={noise!r}", levels.max(initial=0.0), None, sample)
    return np.maximum(np.broadcast_to(levels, len(X)), least).tolist()


def require_units(corruption, sample):
    """Raise ValueError if a corruption is meant for images with another range of values."""
    if isinstance(corruption, GaussianNoise):
        require_noise_within(f"corruption={corruption!r}", corruption.low, corruption.high, sample)
    if isinstance(corruption, JPEG) and len(sample.values):
        least, largest = sample.values.min(), sample.values.max()
        if least < -tuned.OVERSHOOT or largest > 255 + tuned.OVERSHOOT or least < largest <= 1:
            raise ValueError(
                f"corruption={corruption!r} is for images with values from 0 to 255, but X has values from {least:.3g} "
                f"to {largest:.3g}: rescale X and y."
            )


def prepare_draws(planes, draw, describe, choices=None, missing=None):
    """Prepare the use of inputs that are corrupted or degraded anew in every round.

    The four results are a function that draws an input, the planes (with attributes that describe the channels of
    inputs), the channels with gaps, and the inputs drawn for the first images.
    """
    # planes: Planes of clean images in the units of the user
    # draw: function of a plane, its degradation and a Generator; returns the input in these units
    # describe: function of a sample of inputs; returns attributes of the channels, and units of the field
    # choices: degradations to draw from, for each image; missing: channels with gaps, None if unknown
    some = planes.features[: tuned.IMAGES_TRIED]
    first = [None if choices is None else choices[i][0] for i in range(len(some))]
    tried = [draw(x, own, np.random.default_rng(i)) for i, (x, own) in enumerate(zip(some, first, strict=True))]
    sample = InputSample.of(tried)._replace(dtype=planes.sample.dtype)
    channels, units = describe(sample)
    if missing is None:
        gaps = [
            own.reshape(-1, own.shape[-1]).any(axis=0) for own in map(find_missing_values, tried) if own is not None
        ]
        missing = tuple(np.flatnonzero(np.any(gaps, axis=0)).tolist()) if gaps else ()

    def prepared(found):
        where, found = find_missing_values(found), units.seen(found)
        found = found if where is None else fill_gaps(found)
        return np.ascontiguousarray(append_masks(found, where, missing) if missing else found)

    planes = planes._replace(sample=sample, channels=channels, units=units)
    return lambda *given: prepared(draw(*given)), planes, missing, list(map(prepared, tried))


def make_corrupter(corruption, planes, is_grey):
    """Return a function ``(plane, degradation, rng)`` that corrupts clean planes."""
    # is_grey: whether the corruption receives images without an axis of channels
    if planes.encoded.lattice_ndim < 2 or planes.missing:
        raise ValueError("corruption needs images without missing pixels as X.")
    require_units(corruption, planes.sample)

    def drawn(plane, degradation, rng):
        found = corrupt_image(corruption, plane[..., 0] if is_grey else plane, rng, plane.dtype)
        found = found[..., None] if found.ndim == plane.ndim - 1 else found
        if found.shape[:-1] != plane.shape[:-1] or np.isinf(found).any():
            size = " x ".join(map(str, plane.shape[:-1]))
            raise ValueError(
                f"corruption must return finite images of {size} pixels, got shape "
                f"{found.shape}{' with infinity' if np.isinf(found).any() else ''}."
            )
        return found

    return drawn
