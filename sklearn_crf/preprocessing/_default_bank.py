"""The filter bank that images get by default, by how far they are off their targets."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf.preprocessing._filter_bank import ChannelUnion, FilterBank
from sklearn_crf.preprocessing._patch_denoisers import PatchAverages, PatchGroups, PatchShrinkage, averages_of_noise
from sklearn_crf.preprocessing._tuning import N_THRESHOLDS, NOISE_SPREAD, THRESHOLDS

# Groups of patches that take a fifth of the time of the transformer's own, but for the pilot that is there already.
_QUICK_GROUPS = {"search_radius": 12, "step": 8}

# Names of banks that go by the noise: the second finds groups of patches more thoroughly.
DEFAULT_BANKS = "auto", "groups"

# Transformers that may make the channels of a field.
TRANSFORMERS_OF_BANKS = FilterBank, PatchShrinkage, PatchAverages, PatchGroups, ChannelUnion

# Images of more channels are taken to be features already.
MOST_CHANNELS = 4


def default_bank(inputs, targets, weight=None, noise=None, has_groups=False, scale=1.0):
    """Return derivatives of Gaussians, and copies of the image denoised in proportion to its noise.

    By thresholds, by averages over similar patches and by groups of patches, of many patches if these are asked for.
    """
    # inputs: list of (H, W, C) or (D, H, W, C); targets: list of (N, D); weight: of each image
    # noise: of each image, where it is known
    # scale: what images of the user were multiplied by; numbers are short in their units
    levels = [_deviation(x, y) for x, y in zip(inputs, targets, strict=True)] if noise is None else noise
    quantiles = weighted_quantiles(levels, weight, (0.1, 0.5, 0.9))
    low, middle, high = (scale * float(f"{level / scale:.4g}") for level in quantiles)
    if high <= NOISE_SPREAD * low or low == 0:
        thresholds, averaged = [multiple * middle for multiple in THRESHOLDS], [middle]
    else:
        thresholds = np.geomspace(THRESHOLDS[0] * low, THRESHOLDS[-1] * high, N_THRESHOLDS).tolist()
        averaged = [low, high]
    parts: list = [FilterBank("gaussian_derivatives"), PatchShrinkage(thresholds)]
    for level in averaged:
        if level > 0:
            parts += [averages_of_noise(level), PatchGroups(level, **({} if has_groups else _QUICK_GROUPS))]
    return ChannelUnion(parts)


def bank_in_units(bank, scale):
    """Return a filter bank whose thresholds are in units of images that are multiplied by a number."""
    if isinstance(bank, ChannelUnion):
        return ChannelUnion([bank_in_units(part, scale) for part in bank.transformers], n_jobs=bank.n_jobs)
    if scale == 1:
        return bank
    names = {PatchShrinkage: ["thresholds"], PatchAverages: ["bandwidths", "guide_threshold"], PatchGroups: ["noise"]}
    given = {name: getattr(bank, name) for name in names.get(type(bank), ())}
    scaled = {name: np.multiply(value, scale).tolist() for name, value in given.items() if value is not None}
    return bank.set_params(**scaled)


def weighted_quantiles(values: ArrayLike, weight: ArrayLike | None, shares: ArrayLike) -> np.ndarray:
    """Return quantiles by linear interpolation, in which a value of weight k counts as k equal values."""
    values, shares = (np.asarray(numbers, dtype=np.float64) for numbers in (values, shares))
    if weight is None:
        return np.quantile(values, shares)
    order = np.argsort(values, kind="stable")
    values, weight = values[order], np.asarray(weight, dtype=np.float64)[order]
    values, weight = values[weight > 0], weight[weight > 0]
    # Ranks of the first and the last copy of each value.
    last = np.cumsum(weight) - 1
    first = np.minimum(last, last - weight + 1)
    ranks = shares * max(last[-1], 0.0)
    return np.interp(ranks, np.stack([first, last], axis=1).ravel(), np.repeat(values, 2))


def _deviation(plane, target):
    """Root mean square difference of input and target, or noise of the finest detail if their channels differ."""
    if plane.shape[-1] == target.shape[1]:
        squares = (plane.reshape(target.shape) - target) ** 2
        known = squares[~np.isnan(squares)]
        return float(np.sqrt(known.mean(dtype=np.float64))) if known.size else 0.0
    return noise_of_detail(plane)


def noise_of_detail(plane):
    """Estimate the standard deviation of white noise by the median magnitude of the finest diagonal detail."""
    # plane: (..., H, W, C)
    detail = np.diff(np.diff(plane, axis=-3), axis=-2) / 2
    return float(np.median(np.abs(detail)) / 0.6745) if detail.size else 0.0


def image_channels(bank, n_channels):
    """Channels after a default bank, of n in all, that are not responses to filters."""
    n_filters = len(bank.transformers_[0].get_feature_names_out())
    return [*range(bank.n_channels_), *range(n_filters, n_channels)]
