"""Channels of X in units that float32 can hold, and the range that they had in fit."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.rtf import _tuning as tuned

# float32 has 24 binary digits. A channel is centred where its level would take more than a quarter of them from what
# differs between pixels.
_LARGEST_LEVEL = 2.0**6

# Where it may not be centred, float32 has lost a channel of so high a level.
_LEVEL_LOST = 2.0**20

# Channels keep their unit where fourth powers of usual values, and sums of these, lie within the range of float32.
_MOST_DOUBLINGS = 24

# Usual values of images are brought near those of bytes, from 16 to 256, by a power of two: trees compare images with
# what filters make of them in other units, and should find the same in images of any range. Where float32 does not hold
# a unit, it is left for one that differs by a power of ten, as units do: numbers are then nearly the same in all.
_LEAST_DOUBLINGS, _DOUBLINGS, _TOP = 5, 4, 256.0

# Largest values, as multiples of usual ones or in their unit, whose squares can be summed in float32.
_LARGEST_VALUE = 2.0**48


class ChannelUnits(NamedTuple):
    """``z = (x - centre) * scale`` of each channel of X, which is what a field sees."""

    centre: np.ndarray  # (C,)
    scale: np.ndarray  # (C,)

    @classmethod
    def of(cls, attributes, n_channels):
        """Those of a fitted estimator, as a dict of its attributes; models of older versions have none."""
        of_user = {"channel_centre_": np.zeros(n_channels), "channel_scale_": np.ones(n_channels)}
        found = of_user | attributes
        return cls(found["channel_centre_"], found["channel_scale_"])

    @property
    def are_of_user(self):
        """Whether X is seen as it is."""
        return not self.centre.any() and bool(np.all(self.scale == 1))

    def seen(self, image):
        """An image of X as float32 in these units; NaN stays."""
        # image: (..., C)
        if self.are_of_user:
            return np.asarray(image, dtype=np.float32)
        n_channels = image.shape[-1]
        if not self.centre.any() and np.asarray(image).dtype == np.float32:
            return image * self.scale[:n_channels].astype(np.float32)
        with np.errstate(over="ignore"):
            centred = np.asarray(image, dtype=np.float64) - self.centre[:n_channels]
            return (centred * self.scale[:n_channels]).astype(np.float32)

    def given(self, plane):
        """The inverse of :meth:`seen` for the first channels of a plane."""
        if self.are_of_user or not plane.shape[-1]:
            return plane
        n_channels = plane.shape[-1]
        return plane / self.scale[:n_channels] + self.centre[:n_channels]

    def shift(self, gain):
        """What a linear map that multiplies constants by a gain has to be shifted by in these units."""
        return (gain - 1) * self.centre * self.scale

    def of_targets(self, mean, scale):
        """Mean (D,) and scale of values of y in the units of the first D channels."""
        centre, unit = np.zeros(len(mean)), np.ones(len(mean))
        centre[: len(self.centre)], unit[: len(self.scale)] = self.centre[: len(mean)], self.scale[: len(mean)]
        return (mean - centre) * unit, scale * float(self.scale[0])


class InputSample(NamedTuple):
    """Some values of each channel of X, in the units of the user."""

    values: np.ndarray  # (n, C) float64, NaN where missing
    dtype: str

    @classmethod
    def of(cls, images):
        """Values of some pixels of images, (..., C) each; none where these hold no numbers."""
        if not len(images) or not np.size(images[0]):
            return cls(np.zeros((0, 0)), "")
        dtype = np.asarray(images[0]).dtype
        chosen = images[:: -(-len(images) // (tuned.VALUES_OF_CHANNEL // tuned.LEAST_VALUES_OF_IMAGE))]
        most = max(tuned.LEAST_VALUES_OF_IMAGE, tuned.VALUES_OF_CHANNEL // len(chosen))
        parts = []
        for image in map(np.asarray, chosen):
            pixels = image.reshape(-1, image.shape[-1]) if image.ndim else image.reshape(1, 1)
            # An odd step does not stay in some columns.
            step = -(-len(pixels) // most) | 1
            parts.append(pixels[::step] if len(pixels) > most else pixels)
        if any(part.dtype.kind not in "biuf" or part.shape[1] != parts[0].shape[1] for part in parts):
            return cls(np.zeros((0, parts[0].shape[1])), dtype.str)
        values = np.concatenate(parts).astype(np.float64)
        return cls(np.where(np.isfinite(values), values, np.nan), dtype.str)

    @classmethod
    def joined(cls, parts):
        """The values of several parts."""
        return cls(np.concatenate([part.values for part in parts]), parts[0].dtype)

    @property
    def kind(self):
        """float32, or float64 if float32 does not hold the images."""
        units = ChannelUnits.of(self.attributes(), self.values.shape[1])
        return np.float32 if units.are_of_user else np.float64

    def attributes(self, is_image=False, is_centred=True):
        """Fitted attributes: units, range and type of the channels."""
        # is_image: whether values are brought near those of bytes; is_centred: whether channels may be shifted
        n_channels = self.values.shape[1]
        columns = [_described(column[~np.isnan(column)]) for column in self.values.T]
        level, reach, low, high = np.array(columns).reshape(n_channels, 4).T
        far = (reach > 0) & (np.abs(level) > _LARGEST_LEVEL * reach)
        if not is_centred:
            lost = (reach > 0) & (np.abs(level) > _LEVEL_LOST * reach)
            far[:] = False
        if not is_centred and lost.any():
            c = np.flatnonzero(lost)[0]
            raise ValueError(
                f"precision_channels needs channels whose values are not far from 0 beside their spread, but channel "
                f"{c} of X has values near {level[c]:.3g} that differ by some {reach[c]:.3g}: subtract its level."
            )
        centre = np.where(far, level, 0.0)
        scale = _scales(np.where(far, reach, np.maximum(np.abs(level), reach)), is_image)
        return {
            "channel_centre_": centre,
            "channel_scale_": scale,
            "channel_range_": np.stack([low, high], axis=1),
            "input_dtype_": self.dtype,
        }


def _described(values):
    """Median, usual distance from it, and range without the outermost values."""
    if not len(values):
        return 0.0, 0.0, 0.0, 0.0
    level = np.median(values)
    with np.errstate(over="ignore"):
        distance = np.abs(values - level)
    distance = distance[distance > 0]
    low, high = np.quantile(values, (0.005, 0.995), method="nearest")
    if low == high:
        low, high = values.min(), values.max()
    return level, np.median(distance) if len(distance) else 0.0, low, high


def is_held(size):
    """Whether float32 holds values of a size, and their powers."""
    return np.abs(np.frexp(size)[1]) <= _MOST_DOUBLINGS


def decimal_unit(size, top):
    """Power of ten that brings values of a size to at most ``top``, and above a tenth of it."""
    return 10.0 ** np.floor(np.log10(top) - np.log10(size))


def _scales(size, is_image):
    """Factors that bring channels of usual values of a size into range: one for all if one will do."""
    # size: (C,), 0 where nothing is known
    known = size > 0
    size = np.where(known, size, 1.0)
    if not known.any() or (is_held(size).all() and not is_image):
        return np.ones(len(size))
    top = size[known].max()
    if is_held(top):
        steps = (np.frexp(top)[1] - _LEAST_DOUBLINGS) // _DOUBLINGS * _DOUBLINGS
        common = np.ldexp(1.0, -steps)
    else:
        common = decimal_unit(top, _TOP)
    if is_held(common * size)[known].all():
        return np.full(len(size), common)
    return np.where(is_held(size), 1.0, decimal_unit(size, _TOP))


def require_held(plane, name):
    """Raise if a plane of X holds values that float32 cannot add the squares of."""
    largest = max(-float(plane.min(initial=0.0)), float(plane.max(initial=0.0)))
    if largest > _LARGEST_VALUE:
        channel = np.argmax(np.abs(plane)) % plane.shape[-1]
        raise ValueError(
            f"{name} holds values in channel {channel} so far from the usual ones that float32 cannot hold both: make "
            "NaN of what is missing, or clip them."
        )


def require_range(attributes, sample):
    """Raise if all channels of X that vary have another unit, or lie far outside of the range that they had in fit."""
    seen = attributes.get("channel_range_")
    if seen is None or not len(sample.values):
        return
    wrong = []
    for (low, high), column in zip(seen, sample.values.T, strict=True):
        values = column[~np.isnan(column)]
        width = high - low
        if not width > 0 or not len(values):
            continue
        outside = np.median(np.maximum(low - values, values - high)) > tuned.WIDTHS_OUTSIDE * width
        usual = np.quantile(np.abs(values), tuned.QUANTILE_OF_RANGE)
        near = usual < tuned.SHARE_OF_RANGE * width and values.min() < values.max()
        if outside or ((near and sample.dtype != attributes["input_dtype_"]) or (near and sample.dtype[1] == "f")):
            wrong.append((low, high, values.min(), values.max()))
        elif values.min() < values.max():
            return
    if wrong:
        low, high, least, largest = wrong[0]
        raise ValueError(
            f"X has values from {least:.3g} to {largest:.3g}, but had values from {low:.3g} to {high:.3g} in fit: "
            "pass images in the units of fit."
        )
