"""Channels of images: units and ranges, missing pixels, filter responses, and restoration of single channels."""

from collections.abc import Mapping
from copy import copy
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import make_object_array
from sklearn_crf.rtf import _tuning as tuned


class ChannelUnits(NamedTuple):
    """Conversion of each channel of X to the units of a field, ``z = (x - centre) * scale``."""

    centre: np.ndarray  # (C,), centre of each channel in the units of the user
    scale: np.ndarray  # (C,), factor of each channel

    @classmethod
    def of(cls, attributes, n_channels):
        """Return the units from the fitted attributes of an estimator, or the identity if these have no units."""
        of_user = {"channel_centre_": np.zeros(n_channels), "channel_scale_": np.ones(n_channels)}
        found = of_user | attributes
        return cls(found["channel_centre_"], found["channel_scale_"])

    @property
    def are_of_user(self):
        """Whether the field uses X in the user's units."""
        return not self.centre.any() and bool(np.all(self.scale == 1))

    def seen(self, image):
        """Convert an image of X to the units of the field, as float32, keeping NaN."""
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
        """Convert the first channels of a plane back to the units of the user; this is the inverse of :meth:`seen`."""
        if self.are_of_user or not plane.shape[-1]:
            return plane
        n_channels = plane.shape[-1]
        return plane / self.scale[:n_channels] + self.centre[:n_channels]

    def shift(self, gain):
        """Return the shift, in the units of the field, of a linear map that multiplies constants by ``gain``."""
        return (gain - 1) * self.centre * self.scale

    def of_targets(self, mean, scale):
        """Convert the mean (D,) and scale of y to the units of the first D channels."""
        centre, unit = np.zeros(len(mean)), np.ones(len(mean))
        centre[: len(self.centre)], unit[: len(self.scale)] = self.centre[: len(mean)], self.scale[: len(mean)]
        return (mean - centre) * unit, scale * float(self.scale[0])


class InputSample(NamedTuple):
    """Sampled values of each channel of X, in the units of the user."""

    values: np.ndarray  # (n, C) float64, NaN where missing
    dtype: str

    @classmethod
    def of(cls, images):
        """Sample pixels of images (..., C); return an empty sample if the images contain no numbers."""
        images = [image for image in images if np.size(image)]
        if not images:
            return cls(np.zeros((0, 0)), "")
        dtype = np.asarray(images[0]).dtype
        chosen = images[:: -(-len(images) // (tuned.VALUES_OF_CHANNEL // tuned.LEAST_VALUES_OF_IMAGE))]
        most = max(tuned.LEAST_VALUES_OF_IMAGE, tuned.VALUES_OF_CHANNEL // len(chosen))
        parts = []
        for image in map(np.asarray, chosen):
            pixels = image.reshape(-1, image.shape[-1]) if image.ndim else image.reshape(1, 1)
            # For most widths, an odd step visits all columns.
            step = -(-len(pixels) // most) | 1
            parts.append(pixels[::step] if len(pixels) > most else pixels)
        if any(part.dtype.kind not in "biuf" or part.shape[1] != parts[0].shape[1] for part in parts):
            return cls(np.zeros((0, parts[0].shape[1])), dtype.str)
        values = np.concatenate(parts).astype(np.float64)
        return cls(np.where(np.isfinite(values), values, np.nan), dtype.str)

    @classmethod
    def joined(cls, parts):
        """Join the samples of several parts."""
        return cls(np.concatenate([part.values for part in parts]), parts[0].dtype)

    @property
    def kind(self):
        """Data type for the images: float32, or float64 if float32 cannot represent them."""
        units = ChannelUnits.of(self.attributes(), self.values.shape[1])
        return np.float32 if units.are_of_user else np.float64

    def attributes(self, is_image=False, is_centred=True):
        """Return fitted attributes of the channels: units, range and data type."""
        # is_image: whether to scale values near the range of bytes; is_centred: whether channels may be shifted
        n_channels = self.values.shape[1]
        columns = [_describe(column[~np.isnan(column)]) for column in self.values.T]
        level, reach, low, high = np.array(columns).reshape(n_channels, 4).T
        far = (reach > 0) & (np.abs(level) > tuned.LARGEST_LEVEL * reach)
        if not is_centred:
            lost = (reach > 0) & (np.abs(level) > tuned.LEVEL_LOST * reach)
            far[:] = False
        if not is_centred and lost.any():
            c = np.flatnonzero(lost)[0]
            raise ValueError(
                "precision_channels needs channels whose spread is not small compared with their mean, but "
                f"channel {c} of X has values near {level[c]:.3g} that differ by about {reach[c]:.3g}: subtract a "
                "constant from the channel."
            )
        centre = np.where(far, level, 0.0)
        scale = _choose_scales(np.where(far, reach, np.maximum(np.abs(level), reach)), is_image)
        return {
            "channel_centre_": centre,
            "channel_scale_": scale,
            "channel_range_": np.stack([low, high], axis=1),
            "input_dtype_": self.dtype,
        }


def _describe(values):
    """Return the median, the typical distance from the median, and the range without the outermost values."""
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
    """Return whether float32 can represent values of a given magnitude, and the squares of these values."""
    return np.abs(np.frexp(size)[1]) <= tuned.MOST_DOUBLINGS


def choose_decimal_unit(size, top):
    """Return the power of ten that scales values of a given size to between ``top / 10`` and ``top``."""
    return 10.0 ** np.floor(np.log10(top) - np.log10(size))


def _choose_scales(size, is_image):
    """Return factors that scale channels into the supported range, using a common factor if possible."""
    # size: (C,), typical magnitude of each channel, 0 if unknown
    known = size > 0
    size = np.where(known, size, 1.0)
    if not known.any() or (is_held(size).all() and not is_image):
        return np.ones(len(size))
    top = size[known].max()
    if is_held(top):
        steps = (np.frexp(top)[1] - tuned.LEAST_DOUBLINGS) // tuned.DOUBLINGS * tuned.DOUBLINGS
        common = np.ldexp(1.0, -steps)
    else:
        common = choose_decimal_unit(top, tuned.TOP)
    if is_held(common * size)[known].all():
        return np.full(len(size), common)
    return np.where(is_held(size), 1.0, choose_decimal_unit(size, tuned.TOP))


def require_held(plane, name):
    """Raise ValueError if a plane of X has values that are so large that float32 cannot hold sums of their squares."""
    largest = max(-float(plane.min(initial=0.0)), float(plane.max(initial=0.0)))
    if largest > tuned.LARGEST_VALUE:
        channel = np.argmax(np.abs(plane)) % plane.shape[-1]
        raise ValueError(
            f"{name} contains values in channel {channel} that are so far from typical values that float32 cannot "
            "represent both: replace missing values by NaN, or clip the values."
        )


def require_range(attributes, sample):
    """Raise ValueError if all varying channels of X have another unit than in fit, or lie far outside the range in fit.

    Warn if the channels use so little of the range that X either has another unit or is very dark. The values do not
    tell which of these is the case.
    """
    seen = attributes.get("channel_range_")
    if seen is None or not len(sample.values):
        return
    wrong, dark = [], []
    for (low, high), column in zip(seen, sample.values.T, strict=True):
        values = column[~np.isnan(column)]
        width = high - low
        if not width > 0 or not len(values):
            continue
        beyond = np.quantile(np.maximum(low - values, values - high), (1 - tuned.QUANTILE_OF_RANGE, 0.5)) / width
        share = np.quantile(np.abs(values), tuned.QUANTILE_OF_RANGE) / width
        varies = values.min() < values.max()
        may_be_scaled = varies and (sample.dtype[1] == "f" or sample.dtype != attributes["input_dtype_"])
        if np.any(beyond > tuned.WIDTHS_OUTSIDE) or (may_be_scaled and share < tuned.SHARE_OF_RANGE):
            wrong.append((low, high, values.min(), values.max()))
        elif may_be_scaled and share < tuned.SHARE_OF_DARK:
            dark.append((low, high, values.min(), values.max()))
        elif varies:
            return
    if not wrong and not dark:
        return
    low, high, least, largest = (dark or wrong)[0]
    what = f"X has values from {least:.3g} to {largest:.3g}, but had values from {low:.3g} to {high:.3g} in fit: "
    if not dark:
        raise ValueError(what + "pass images in the units of fit.")
    warn_caller(what + "if its images are not very dark, pass them in the units of fit.", UserWarning)


def find_missing_values(image):
    """Return the mask (..., C) of NaN in an image or volume, or None if there is no NaN."""
    image = np.asarray(image)
    if image.dtype.kind != "f":
        return None
    is_missing = np.isnan(image)
    return is_missing if is_missing.any() else None


def fill_gaps(image):
    """Return the image with missing values replaced by a thin plate through the known values."""
    # image: (H, W, C) or (D, H, W, C)
    image = np.asarray(image)
    is_known = ~np.isnan(image)
    out = np.where(is_known, image, 0).astype(np.float32)
    for c in range(image.shape[-1]):
        gaps = ~is_known[..., c]
        if gaps.any() and not gaps.all():
            plane = out[..., c]
            # Subtract the mean, because centred values keep more digits in float32.
            level = plane[~gaps].mean(dtype=np.float64)
            values = _spread_into(np.where(gaps, 0, plane - level).astype(np.float32), gaps)
            _bend(values, gaps)
            plane[gaps] = level + values[gaps]
    return out


def _spread_into(values, gaps):
    """Fill gaps by Gaussian means of known values; return the values. Larger gaps are filled by wider Gaussians."""
    # values: (H, W) or (D, H, W), 0 in gaps; gaps: mask of the same shape
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
    r"""Minimise, in place, the bending energy :math:`\int \sum_{ab} f_{ab}^2` (axes a and b) over values in gaps."""
    # values: (H, W) or (D, H, W); gaps: mask of the same shape
    residual = np.where(gaps, -_compute_plate_gradient(values), 0)
    direction, square = residual.copy(), _square(residual)
    least = tuned.PLATE_TOL**2 * square
    for _ in range(tuned.PLATE_STEPS):
        if square <= least:
            return
        product = np.where(gaps, _compute_plate_gradient(direction), 0)
        step = np.float32(square / np.sum(direction * product, dtype=np.float64))
        values += step * direction
        residual -= step * product
        former, square = square, _square(residual)
        direction = residual + np.float32(square / former) * direction


def _square(values):
    return float(np.sum(values * values, dtype=np.float64))


def _compute_plate_gradient(values):
    """Return half of the derivative of the bending energy."""
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


def append_masks(plane, missing, channels):
    """Append masks of known pixels, and local fractions of known pixels, to a filled plane, for the given channels."""
    # plane: (..., C) and missing: (..., C) of an image or volume; returns (..., C + 2 n)
    known = np.ones((*plane.shape[:-1], len(channels)), dtype=np.float32)
    if missing is not None:
        known -= missing[..., list(channels)]
    around = gaussian_filter(known, [tuned.NEAR] * (plane.ndim - 1) + [0], mode="nearest")
    return np.concatenate([plane, known, around], axis=-1)


def count_masks(missing):
    """Return the number of channels that describe missing pixels."""
    return 2 * len(missing)


def find_known_values(plane, missing, n_values):
    """Return the mask (..., D) of known values in the first D channels of a plane with masks."""
    # plane: (..., C + 2 n)
    known = np.ones((*plane.shape[:-1], n_values), dtype=bool)
    first = plane.shape[-1] - count_masks(missing)
    for k, channel in enumerate(missing):
        if channel < n_values:
            known[..., channel] = plane[..., first + k] > 0
    return known


def are_kept(planes, targets, missing, units):
    """Return whether known values in the first channels of X equal the targets, as if X were y with pixels removed."""
    # planes: list of (..., C + 2 n); targets: list of (N, D), not scaled; units: units of the channels
    for plane, target in zip(planes, targets, strict=False):
        n_values = target.shape[1]
        if not missing or plane.shape[-1] - count_masks(missing) < n_values or not set(range(n_values)) & set(missing):
            return False
        known = find_known_values(plane, missing, n_values).reshape(target.shape)
        value = plane[..., :n_values].reshape(target.shape)
        if np.any(known & ~np.isnan(target) & (value != units.seen(target))):
            return False
    return True


# If the last axis has one of these lengths, it more likely holds channels than columns.
COLOURS = 3, 4


def read_clean_images(X):
    """Return clean images as input (with a channel axis) and as target, and whether the channel axis was added."""
    # X: (n, H, W)
    require_several(X)
    images = [np.asarray(x) for x in X]
    axes = {image.ndim for image in images}
    if axes == {2}:
        return append_channel_axis(X), X, True
    if axes in ({3}, {4}):
        return X, X, False
    raise ValueError(
        "Without y, X must hold images of shape (H, W) or (H, W, C), or volumes of shape (D, H, W, C), got arrays "
        f"of {sorted(axes)} axes."
    )


def append_channel_axis(X: Any) -> np.ndarray:
    """Return grey images (H, W), as an array or a list, with an axis of one channel."""
    return np.asarray(X)[..., None] if _is_stack(X) else make_object_array([np.asarray(x)[..., None] for x in X])


def is_single_image(X: Any, fitted: Mapping) -> bool:
    """Return whether X is one image without an axis of images, given the attributes of a fitted field."""
    if not _is_stack(X) or fitted["lattice_ndim_"] != 2:
        return False
    n_features = fitted["n_features_in_"]
    return (X.ndim == 2 and fitted["_is_grey"]) or (X.ndim == 3 and X.shape[2] == n_features > 1)


def _is_stack(X):
    return hasattr(X, "dtype") and X.dtype != object


def match_layout(X, images):
    """Return images as one array if X is an array, else as an object array."""
    return np.stack(images) if _is_stack(X) else make_object_array(images)


def require_several(X):
    """Raise ValueError if X is, or could be, a single image."""
    shape: tuple = X.shape if _is_stack(X) else ()
    if len(shape) == 2:
        raise ValueError(f"X of shape {shape} is one image: pass X[np.newaxis].")
    if len(shape) == 3 and shape[2] in (1, *COLOURS):
        one = "one image with an axis of channels" if shape[2] == 1 else "one colour image"
        raise ValueError(
            f"X of shape {shape} is ambiguous: {shape[0]} grey images of {shape[1]} x {shape[2]} pixels (pass "
            f"X[..., np.newaxis]), or {one} (pass X[np.newaxis])."
        )


class Channels(NamedTuple):
    """Images in the form that a single-channel field requires, with each channel as a separate image."""

    X: Any
    n_colours: Any  # list: channel count of each image (0 without a channel axis); None if images are not split

    @classmethod
    def of(cls, X, n_features):
        """Read images for a field with ``n_features`` channels, trained on grey images without a channel axis."""
        require_several(X)
        if _is_stack(X) and X.ndim == 3:
            return cls(X[..., None], None)
        if _is_stack(X) and (n_features > 1 or X.ndim != 4 or X.shape[3] == 1):
            return cls(X, None)
        images = [np.asarray(x) for x in X]
        n_colours = [image.shape[2] if image.ndim == 3 else 0 for image in images]
        if n_features > 1 or max(n_colours, default=0) < 2:
            return cls(make_object_array([x[..., None] if x.ndim == 2 else x for x in images]), None)
        planes = [plane for x in images for plane in (np.moveaxis(x, 2, 0) if x.ndim == 3 else x[None])]
        return cls(make_object_array([plane[..., None] for plane in planes]), n_colours)

    def of_images(self, values):
        """Repeat the value of each image for each of its channels."""
        if not isinstance(values, list | tuple):
            return values
        return [value for value, n in zip(values, self.n_colours, strict=True) for _ in range(max(n, 1))]

    def predicted(self, predict, X, return_std, evidence, of_images):
        """Predict colour images channel by channel, with a prediction function for grey images."""
        # of_images: degradation or noise level of each image
        known = None if evidence is None else [own[..., 0] for own in Channels.of(evidence, 1).X]
        found = predict(self.X, return_std, known, self.of_images(of_images))
        if return_std:
            return tuple(self.together(part, X) for part in found)
        return self.together(found, X)

    def together(self, values, X):
        """Combine values (H, W) of single channels into images with the layout of X."""
        found, first = [], 0
        for n in self.n_colours:
            own = values[first : first + max(n, 1)]
            found.append(np.stack(list(own), axis=-1) if n else own[0])
            first += max(n, 1)
        return match_layout(X, found)


def require_channels(X, n_features, lattice_ndim):
    """Raise ValueError if X has several channels but the field was fitted to single-channel images."""
    if lattice_ndim != 2 or n_features != 1 or len(X) == 0:
        return
    shape = np.shape(X[0])
    if len(shape) == 3 and shape[2] in COLOURS:
        raise ValueError(
            f"X has {shape[2]} features, but RegressionTreeField is expecting 1 features as input. To restore colours, "
            "predict each channel separately: np.stack([field.predict(X[..., [c]]) for c in range(3)], axis=-1)."
        )


def filtered(filter_bank, features, n_jobs):
    """Return the responses of a fitted filter bank, followed by the channels to which the bank was not fitted."""
    # features: list of (H, W, F), or of volumes (D, H, W, F), filtered slice by slice; returns list of (H, W, B)
    # The bank is copied, because tiles on several threads share it.
    own, n = copy(filter_bank).set_params(n_jobs=n_jobs), filter_bank.n_channels_
    slices = [plane[..., :n] for volume in features for plane in split_slices(volume)]
    responses = iter(own.transform(slices))
    found = [next(responses) if x.ndim == 3 else np.stack([next(responses) for _ in x]) for x in features]
    return [
        np.concatenate([new, x[..., n:]], axis=-1) if x.shape[-1] > n else new
        for new, x in zip(found, features, strict=True)
    ]


def split_slices(plane):
    """Return the slices (H, W, F) of a volume; a plane is its own single slice."""
    return [plane] if plane.ndim == 3 else list(plane)
