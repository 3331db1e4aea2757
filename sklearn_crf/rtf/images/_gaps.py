"""Missing pixels of the input: where they are, what they are filled with."""

from itertools import combinations

import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf.rtf import _tuning as tuned


def missing_values(image):
    """Mask (..., C) of the NaN of an image or volume, None if there is no NaN."""
    image = np.asarray(image)
    if image.dtype.kind != "f":
        return None
    is_missing = np.isnan(image)
    return is_missing if is_missing.any() else None


def without_gaps(image):
    """The image with missing values replaced by a thin plate through the known values."""
    # image: (H, W, C) or (D, H, W, C); returns the same
    image = np.asarray(image)
    is_known = ~np.isnan(image)
    out = np.where(is_known, image, 0).astype(np.float32)
    for c in range(image.shape[-1]):
        gaps = ~is_known[..., c]
        if gaps.any() and not gaps.all():
            _fill(out[..., c], gaps)
    return out


def _fill(plane, gaps):
    # Small numbers keep more digits.
    level = plane[~gaps].mean(dtype=np.float64)
    values = _spread_into(np.where(gaps, 0, plane - level).astype(np.float32), gaps)
    _bend(values, gaps)
    plane[gaps] = level + values[gaps]


def _spread_into(values, gaps):
    """Values with gaps filled by Gaussian means of the known values around them, wider and wider."""
    # values: (H, W) or (D, H, W), 0 in gaps; gaps: the same
    known, weight, left = values.copy(), (~gaps).astype(np.float32), gaps.copy()
    scale = tuned.GAP_SCALES[0]
    while left.any() and scale < 2 * max(values.shape):
        mass = gaussian_filter(weight, scale, truncate=3)
        near = left & (mass > tuned.LEAST_MASS)
        values[near] = gaussian_filter(known, scale, truncate=3)[near] / mass[near]
        left &= ~near
        scale *= tuned.GAP_SCALES[1]
    return values


def _bend(values, gaps):
    r"""Make the values in gaps, in place, those of least :math:`\int \sum_{ab} f_{ab}^2` over pairs of axes."""
    # values: (H, W) or (D, H, W); gaps: the same
    residual = np.where(gaps, -_plate_gradient(values), 0)
    direction, square = residual.copy(), _square(residual)
    least = tuned.PLATE_TOL**2 * square
    for _ in range(tuned.PLATE_STEPS):
        if square <= least:
            return
        product = np.where(gaps, _plate_gradient(direction), 0)
        step = np.float32(square / np.sum(direction * product, dtype=np.float64))
        values += step * direction
        residual -= step * product
        former, square = square, _square(residual)
        direction = residual + np.float32(square / former) * direction


def _square(values):
    return float(np.sum(values * values, dtype=np.float64))


def _plate_gradient(values):
    """Half of the derivative of the bending energy."""
    out = np.zeros_like(values)
    for axis in range(values.ndim):
        plane, own = np.moveaxis(values, axis, 0), np.moveaxis(out, axis, 0)
        bend = plane[2:] - 2 * plane[1:-1] + plane[:-2]
        own[2:] += bend
        own[1:-1] -= 2 * bend
        own[:-2] += bend
    for pair in combinations(range(values.ndim), 2):
        plane, own = np.moveaxis(values, pair, (0, 1)), np.moveaxis(out, pair, (0, 1))
        twist = 2 * (plane[1:, 1:] - plane[1:, :-1] - plane[:-1, 1:] + plane[:-1, :-1])
        own[1:, 1:] += twist
        own[1:, :-1] -= twist
        own[:-1, 1:] -= twist
        own[:-1, :-1] += twist
    return out


# Channels that say where a channel was known.
_MASKS = 2


def with_masks(plane, missing, channels):
    """The plane without gaps, and for some channels: 1 where the channel was known; share of known pixels around."""
    # plane: (..., C) and missing: (..., C) of an image or volume; returns (..., C + 2 n)
    known = np.ones((*plane.shape[:-1], len(channels)), dtype=np.float32)
    if missing is not None:
        known -= missing[..., list(channels)]
    around = gaussian_filter(known, [tuned.NEAR] * (plane.ndim - 1) + [0], mode="nearest")
    return np.concatenate([plane, known, around], axis=-1)


def n_masks(missing):
    """Number of channels that tell where channels are missing."""
    return _MASKS * len(missing)


def known_values(plane, missing, n_values):
    """Mask (..., D) of the values that a plane with masks was given, for the first D channels."""
    # plane: (..., C + 2 n)
    known = np.ones((*plane.shape[:-1], n_values), dtype=bool)
    first = plane.shape[-1] - n_masks(missing)
    for k, channel in enumerate(missing):
        if channel < n_values:
            known[..., channel] = plane[..., first + k] > 0
    return known


def are_kept(planes, targets, missing, units):
    """Whether what is known of the first channels of X is the target itself, as where pixels were only removed."""
    # planes: list of (..., C + 2 n); targets: list of (N, D), not scaled; units: of the channels of X
    for plane, target in zip(planes, targets, strict=False):
        n_values = target.shape[1]
        if not missing or plane.shape[-1] - n_masks(missing) < n_values or not set(range(n_values)) & set(missing):
            return False
        known = known_values(plane, missing, n_values).reshape(target.shape)
        value = plane[..., :n_values].reshape(target.shape)
        if np.any(known & ~np.isnan(target) & (value != units.seen(target))):
            return False
    return True
