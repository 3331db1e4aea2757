"""Default filter bank for images, which depends on the noise level of the images."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf.preprocessing._filter_bank import ChannelUnion, FilterBank
from sklearn_crf.preprocessing._patch_denoisers import PatchAverages, PatchGroups, PatchShrinkage, make_noise_averages
from sklearn_crf.preprocessing._tuning import N_THRESHOLDS, NOISE_SPREAD, SMALLEST_NOISE, THRESHOLDS

# With these options, PatchGroups takes a fifth of its default time (without the pilot image, which is shared).
_QUICK_GROUPS = {"search_radius": 12, "step": 8}

# Names of filter banks that adapt to the noise; "groups" searches for similar patches more thoroughly than "auto".
DEFAULT_BANKS = "auto", "groups"

# Transformers that can produce the channels of a field.
TRANSFORMERS_OF_BANKS = FilterBank, PatchShrinkage, PatchAverages, PatchGroups, ChannelUnion

# Images with more channels than this are assumed to hold features, which need no filter bank.
MOST_CHANNELS = 4


def build_default_bank(inputs, targets, weight=None, noise=None, has_groups=False, scale=1.0):
    """Return a filter bank whose channels are Gaussian derivatives and denoised copies of the image.

    The copies are denoised for the noise level of the inputs, in three ways: by thresholding, by averaging similar
    patches, and by groups of patches. With ``has_groups``, the search for groups is more thorough.
    """
    # inputs: list of (H, W, C) or (D, H, W, C); targets: list of (N, D); weight: weight of each image
    # noise: noise level of each image, or None if unknown
    # scale: factor by which the user's images were multiplied; thresholds are rounded to few digits in the user's units
    levels = [_compute_deviation(x, y) for x, y in zip(inputs, targets, strict=True)] if noise is None else noise
    quantiles = compute_weighted_quantiles(levels, weight, (0.1, 0.5, 0.9))
    low, middle, high = (scale * float(f"{level / scale:.4g}") for level in quantiles)
    if high <= NOISE_SPREAD * low or low == 0:
        thresholds, averaged = [multiple * middle for multiple in THRESHOLDS], [middle]
    else:
        thresholds = np.geomspace(THRESHOLDS[0] * low, THRESHOLDS[-1] * high, N_THRESHOLDS).tolist()
        averaged = [low, high]
    parts: list = [FilterBank("gaussian_derivatives"), PatchShrinkage(thresholds)]
    for level in averaged:
        if level >= SMALLEST_NOISE:
            parts += [make_noise_averages(level), PatchGroups(level, **({} if has_groups else _QUICK_GROUPS))]
    return ChannelUnion(parts)


def rescale_bank(bank, scale):
    """Convert a filter bank's thresholds for images that are multiplied by ``scale``."""
    if isinstance(bank, ChannelUnion):
        return ChannelUnion([rescale_bank(part, scale) for part in bank.transformers], n_jobs=bank.n_jobs)
    if scale == 1:
        return bank
    names = {PatchShrinkage: ["thresholds"], PatchAverages: ["bandwidths", "guide_threshold"], PatchGroups: ["noise"]}
    given = {name: getattr(bank, name) for name in names.get(type(bank), ())}
    scaled = {name: np.multiply(value, scale).tolist() for name, value in given.items() if value is not None}
    return bank.set_params(**scaled)


def compute_weighted_quantiles(values: ArrayLike, weight: ArrayLike | None, shares: ArrayLike) -> np.ndarray:
    """Return quantiles with linear interpolation; a value of weight k counts as k equal values."""
    values, shares = (np.asarray(numbers, dtype=np.float64) for numbers in (values, shares))
    if weight is None:
        return np.quantile(values, shares)
    order = np.argsort(values, kind="stable")
    values, weight = values[order], np.asarray(weight, dtype=np.float64)[order]
    values, weight = values[weight > 0], weight[weight > 0]
    # Each value stands for several equal values; compute the ranks of the last and the first of them.
    last = np.cumsum(weight) - 1
    first = np.minimum(last, last - weight + 1)
    ranks = shares * max(last[-1], 0.0)
    return np.interp(ranks, np.stack([first, last], axis=1).ravel(), np.repeat(values, 2))


def _compute_deviation(plane, target):
    """Return the root mean square of input minus target; if channel counts differ, return an estimated noise level."""
    if plane.shape[-1] == target.shape[1]:
        squares = (plane.reshape(target.shape) - target) ** 2
        known = squares[~np.isnan(squares)]
        return float(np.sqrt(known.mean(dtype=np.float64))) if known.size else 0.0
    return estimate_detail_noise(plane)


def estimate_detail_noise(plane):
    """Estimate the standard deviation of white noise from the median magnitude of the finest diagonal detail."""
    # plane: (..., H, W, C)
    detail = np.diff(np.diff(plane, axis=-3), axis=-2) / 2
    return float(np.median(np.abs(detail)) / 0.6745) if detail.size else 0.0


def image_channels(bank, n_channels):
    """Return the indices of those channels of a default bank that are copies of the image, not filter responses."""
    n_filters = len(bank.transformers_[0].get_feature_names_out())
    return [*range(bank.n_channels_), *range(n_filters, n_channels)]
