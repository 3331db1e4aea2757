"""Ranges of the values of images, and isolated values, such as sentinels, which must not determine a range."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_crf._numbers import as_array
from sklearn_crf._reports import warn_caller

# Range of colours for each data type.
BYTES, UINT16 = (0.0, 255.0), (0.0, 65535.0)
_RANGES = {np.dtype(np.uint8): BYTES, np.dtype(np.uint16): UINT16, np.dtype(bool): (0.0, 1.0)}

# Colours that span less than HARDLY_ANY_RANGE of a range hardly use it, such as 12-bit colours stored in 16 bits.
# Values are isolated if a gap of TIMES_AS_FAR times the range of the other values separates them from these values.
# Smaller gaps occur in photographs of high dynamic range; the gap between -9999 and bytes is 39 times their range.
# The number of distinct isolated values is at most MOST_DISTINCT, or the fraction LARGEST_SHARE of all values, because
# more values are a distant object.
# The range of the other values begins with the quartiles of about VALUES_OF_QUARTILES values.
HARDLY_ANY_RANGE, TIMES_AS_FAR = 0.1, 16
MOST_DISTINCT, LARGEST_SHARE, VALUES_OF_QUARTILES = 5, 0.001, 100_000


def get_type_range(image: Any) -> tuple[float, float] | None:
    """Return the range of colours that an image's data type determines, or None if the range depends on the values."""
    return None if image is None else _RANGES.get(as_array(image, "image").dtype)


def find_ends(images: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest value of images."""
    return min(float(image.min()) for image in images), max(float(image.max()) for image in images)


def estimate_color_range(images: Sequence[np.ndarray]) -> tuple[float, float]:
    """Estimate the range of colours from the values of images whose data type does not determine the range."""
    low, high = find_ends(images)
    for ends in ((0.0, 1.0), (-1.0, 1.0)):
        if ends[0] <= low and high <= ends[1]:
            return ends
    # Noise may go beyond 0 and 255. The small range of dark photographs must not be stretched to 0 to 255.
    is_near = -BYTES[1] <= low and high <= 2 * BYTES[1]
    if is_near and (low == high or HARDLY_ANY_RANGE * BYTES[1] <= high - low <= 2 * BYTES[1]):
        return BYTES
    # Extend the range of a constant image so that its value lies in the middle.
    return (low, high) if low < high else (low - abs(low), high + abs(high))


def convert_to_bytes(image: np.ndarray) -> np.ndarray:
    """Rescale an image to the range 0 to 255, in float32.

    The original range is the range of the image's type. If this type has no range, it is estimated from the values.
    """
    low, high = get_type_range(image) or estimate_color_range([image])
    # float32 holds the product of 255 and any 16-bit integer exactly.
    return (BYTES[1] * (image.astype(np.float32) - np.float32(low)) / np.float32(high - low)).astype(np.float32)


def uses_hardly_any_of(ends: tuple[float, float], images: Sequence[np.ndarray]) -> bool:
    """Return whether the values of images differ, but span only a small part of the range ``ends``."""
    low, high = find_ends(images)
    return 0 < high - low <= HARDLY_ANY_RANGE * (ends[1] - ends[0])


def clip_isolated_values(images: Sequence[np.ndarray], names: Sequence[str], advice: str) -> list[np.ndarray]:
    """Clip isolated values of images to the range of the other values, and warn the user.

    A sentinel or a defect, such as -9999, would otherwise determine the range or the mean of all values. NaN is kept.
    """
    # names: name of each image in the warning; advice: last sentence of the warning
    found = list(images)
    if not all(image.dtype.kind in "iuf" and image.dtype.itemsize > 1 for image in found):
        return found
    # Only images with NaN are copied. The minimum of an image with NaN is NaN.
    values = [image[~np.isnan(image)] if image.size and np.isnan(image.min()) else image for image in found]
    values = [own for own in values if own.size]
    if not values or not all(np.isfinite(find_ends([own])).all() for own in values):
        return found
    low, high = _find_common_range(values)
    far = [(image < low) | (image > high) for image in found]
    n_far = sum(map(np.count_nonzero, far))
    distinct = np.unique(np.concatenate([image[own] for image, own in zip(found, far, strict=True)]))
    if not 0 < len(distinct) <= max(MOST_DISTINCT, LARGEST_SHARE * sum(own.size for own in values)):
        return found
    i = next(i for i, own in enumerate(far) if own.any())
    cell = tuple(np.argwhere(far[i])[0].tolist())
    warn_caller(
        f"{n_far} value(s), such as {names[i]}[{', '.join(map(str, cell))}] = {found[i][cell]:g}, lie far outside the "
        f"range {low:g} to {high:g} of the other values, and are clipped to this range. {advice}"
    )
    return [np.clip(image, image.dtype.type(low), image.dtype.type(high)) for image in found]


def _find_common_range(values: list[np.ndarray]) -> tuple[float, float]:
    """Return the ends of the values that no wide gap separates from the values between the quartiles."""
    # values: arrays of finite numbers, not empty
    ends = find_ends(values)
    step = -(-sum(own.size for own in values) // VALUES_OF_QUARTILES)
    # Each distinct value counts once, so that many equal sentinels do not determine the quartiles.
    some = np.unique(np.concatenate([own.reshape(-1)[::step] for own in values]).astype(np.float64))
    low, high = map(float, np.quantile(some, (0.25, 0.75), method="nearest"))
    while True:
        reach = TIMES_AS_FAR * (high - low)
        if ends[0] >= low - reach and ends[1] <= high + reach:
            return ends
        near = [own[(own >= low - reach) & (own <= high + reach)] for own in values]
        found = find_ends([own for own in near if own.size])
        if found == (low, high):
            return found
        low, high = found
