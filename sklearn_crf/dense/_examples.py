"""Examples of dense fields: the scores of pixels and the image that kernels compare."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import encoding
from sklearn_crf._numbers import as_array, as_pixels, as_reals
from sklearn_crf._reports import warn_caller
from sklearn_crf.dense._tuning import DARK_RANGE, HARDLY_ANY_RANGE, NARROW_RANGE


@dataclass(frozen=True, eq=False)
class DenseExample:
    """Scores of the pixels of an image or volume, and the image itself.

    Parameters
    ----------
    scores : array-like of shape (*lattice, n_scores)
        Score of each class at each pixel, such as logarithms of a classifier's probabilities; with
        ``DenseCRF(unaries="linear")``, features. Kept in float32 or float64; -inf forbids a class.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours or other channels, which :class:`Bilateral` kernels compare. Fields read them as colours of 0 to 255 by
        their type and range (``color_range``).
    spacing : sequence of float, optional
        Distance between neighbours along each axis of the lattice, for volumes whose voxels are not cubes; bandwidths
        are in its units. None is 1.

    Raises
    ------
    ValueError
        If the image is of another size, or a value is NaN or +inf.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DenseExample
    >>> DenseExample(np.zeros((4, 6, 2)), image=np.zeros((4, 6, 3))).shape
    (4, 6)
    """

    scores: np.ndarray
    image: np.ndarray | None = None
    spacing: Sequence[float] | None = None

    _range_of_type = None

    def __post_init__(self):
        scores = _as_floats(self.scores, "scores")
        if scores.ndim < 2 or 0 in scores.shape:
            raise ValueError(f"scores must have shape (*lattice, n_scores), got {scores.shape}.")
        if np.isnan(scores).any() or np.isposinf(scores).any():
            raise ValueError("scores must be finite or -inf, found NaN or +inf.")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "_range_of_type", range_of_type(self.image))
        if self.image is not None:
            object.__setattr__(self, "image", _checked_image(self.image, scores))
        if self.spacing is not None:
            spacing = as_reals(self.spacing, "spacing")
            if spacing.shape != (scores.ndim - 1,) or not np.all(np.isfinite(spacing) & (spacing > 0)):
                raise ValueError(
                    f"spacing must be {scores.ndim - 1} positive numbers, one per axis of the lattice, got "
                    f"{self.spacing!r}."
                )

    def _with(self, **values):
        """Return the same example with other values of some fields, unchecked."""
        example = copy(self)
        for name, value in values.items():
            object.__setattr__(example, name, value)
        return example

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the lattice."""
        return self.scores.shape[:-1]

    @property
    def n_channels(self) -> int:
        """Channels of the image, 0 without one."""
        return 0 if self.image is None else self.image.shape[-1]

    @property
    def rows(self) -> np.ndarray:
        """Scores of all pixels, (n_nodes, n_scores)."""
        return self.scores.reshape(-1, self.scores.shape[-1])


# Bandwidths of colours are in units of those of bytes.
_RANGES = {np.dtype(np.uint8): (0.0, 255.0), np.dtype(np.uint16): (0.0, 65535.0), np.dtype(bool): (0.0, 1.0)}
BYTES = _RANGES[np.dtype(np.uint8)]


def range_of_type(image):
    """Range of colours that the type of an image stands for; None where that is in its values."""
    return None if image is None else _RANGES.get(np.asarray(image).dtype)


def check_color_range(color_range):
    """Return the ends of a range that a user gives, as floats."""
    ends = as_array(color_range, "color_range")
    if ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise InvalidParameterError(
            f"color_range must be two finite numbers, the smaller one first, got {color_range!r}."
        )
    return float(ends[0]), float(ends[1])


def range_of_images(images):
    """Range of the colours of images whose type does not say it, by the values of all of them."""
    low = min(float(image.min()) for image in images)
    high = max(float(image.max()) for image in images)
    for ends in ((0.0, 1.0), (-1.0, 1.0)):
        if ends[0] <= low and high <= ends[1]:
            return ends
    # Noise may lead beyond 0 and 255, and dark photographs stay far below: they are not to look like bright ones.
    is_near = -BYTES[1] <= low and high <= 2 * BYTES[1]
    if is_near and (low == high or BYTES[1] / 10 <= high - low <= 2 * BYTES[1]):
        return BYTES
    # One colour is the middle of its range.
    return (low, high) if low < high else (low - abs(low), high + abs(high))


def warn_of_unused_range(images, ends):
    """Warn where the colours of all images take a small part of the range that they are read in."""
    low = min(float(image.min()) for image in images)
    high = max(float(image.max()) for image in images)
    if ends != BYTES and 0 < high - low <= HARDLY_ANY_RANGE * (ends[1] - ends[0]):
        warn_caller(
            f"Colours of {low:.6g} to {high:.6g} are read in the range {ends[0]:.6g} to {ends[1]:.6g}, a small part of "
            "which they take, so that Bilateral kernels hardly tell them apart: pass their own range as color_range."
        )


def _range_of_training(examples):
    """Range of the colours of training images, for images whose type does not say theirs."""
    images = [x.image for x in examples if x.image is not None and x._range_of_type is None]
    if images:
        return range_of_images(images)
    return next((x._range_of_type for x in examples if x.image is not None), BYTES)


class Task(NamedTuple):
    """One example of training."""

    index: int  # type: ignore[assignment]
    example: DenseExample
    labels: np.ndarray  # (N,) columns, 0 where unlabelled
    weight: np.ndarray  # (N,) float64, 0 where unlabelled


class TrainingData(NamedTuple):
    """The examples of a fit, with colours of 0 to 255, and their labels."""

    input: "DenseInput"
    color_range: tuple[float, float]  # of the colours before
    classes: np.ndarray
    tasks: list[Task]

    @property
    def total_weight(self):
        """Sum of the weights of all pixels."""
        return sum(float(task.weight.sum()) for task in self.tasks)


def read_training_data(X, y, sample_weight, *, image_channels, color_range, missing_label, classes, class_weight):
    """Read the examples and labels of a fit."""
    data = read_examples(X, image_channels)
    fixed = None if color_range is None else check_color_range(color_range)
    ends = _range_of_training(data.examples) if fixed is None else fixed
    if fixed is None:
        _warn_of_unused_ranges(data.examples, ends)
    data = data.in_bytes(ends, fixed)
    labels = encoding.encode_y(y, data, missing_label=missing_label, classes=classes)
    sample_weight = encoding.validate_sample_weight(sample_weight, data.n_examples)
    of_class = np.ones(len(labels.classes_))
    if class_weight is not None:
        counts = encoding.counts_of_nodes(labels.labels, encoding.summable_weight(sample_weight))
        of_class = encoding.class_weights(class_weight, labels, counts)
    tasks = []
    for i, (example, own) in enumerate(zip(data.examples, labels.labels, strict=True)):
        weight = np.where(own >= 0, of_class[np.maximum(own, 0)], 0.0)
        weight = weight if sample_weight is None else weight * sample_weight[i]
        tasks.append(Task(i, example, np.maximum(own, 0), weight))
    if not any(task.weight.any() for task in tasks):
        raise ValueError("y has no labelled pixel of positive weight: there is nothing to learn from.")
    return TrainingData(data, ends, labels.classes_, tasks)


def _warn_of_unused_ranges(examples, ends):
    """Warn of the images of each type whose colours take a small part of its range."""
    # ends: range of the colours of images whose type does not say it
    images: dict = {}
    for example in examples:
        if example.image is not None:
            images.setdefault(example._range_of_type or ends, []).append(example.image)
    for own_range, own in images.items():
        warn_of_unused_range(own, own_range)


def read_fitting_examples(X, image_channels, fitted, color_range, *, is_fixed):
    """Read X for a fitted field, with colours of 0 to 255, and require what fit had."""
    # fitted: numbers of features, channels and axes of the lattice; color_range: of fit
    # is_fixed: whether that is the range of all images, whatever their type says
    data = read_examples(X, image_channels)
    found = (data.n_features, data.n_channels, data.lattice_ndim)
    if found[0] != fitted[0]:
        raise ValueError(f"X has {found[0]} features, but DenseCRF is expecting {fitted[0]} features as input.")
    if found != fitted:
        raise ValueError(
            f"X has {found[1]} channels of the image and {found[2]} axes of the lattice, but DenseCRF was fitted "
            f"with {fitted[1]} and {fitted[2]}."
        )
    return data.in_bytes(color_range, color_range if is_fixed else None, of_fit=True)


def check_channel_bandwidths(kernels, ends):
    """Raise ValueError where bandwidths seem to be in the units of images of another range than 0 to 255."""
    for m, kernel in enumerate(kernels if ends != BYTES else ()):
        least = np.min(getattr(kernel, "channel_bandwidth", np.inf))
        if least < 1:
            raise ValueError(
                f"kernels[{m}].channel_bandwidth={least:g} is less than one step of colours of 0 to 255, as which "
                f"images of {ends[0]:.6g} to {ends[1]:.6g} are read: pass {least * 255 / (ends[1] - ends[0]):.4g}, or "
                "color_range=(0, 255) to compare colours as they are."
            )


def in_bytes(example, ends):
    """Return the example with colours of 0 to 255 in place of those of a range."""
    if example.image is None or ends == BYTES:
        return example
    low, high = ends
    return example._with(image=(example.image - low) * (BYTES[1] / (high - low)))


def range_after_fit(image, ends, name):
    """Return the range of the colours of one image, whose type does not say it, by that of the images of fit."""
    low, high = float(image.min()), float(image.max())
    # Fractions are no colours of bytes.
    has_fractions = ends[1] > BYTES[1] / 2 and low < high and np.any(image != np.floor(image))
    is_in_ones = has_fractions and low >= -1 and high <= 1
    width = ends[1] - ends[0]
    # Filters overshoot the range of an image, but they do not make it narrow.
    is_in_other_units = low < ends[0] and high - low < NARROW_RANGE * width
    is_in_other_units |= has_fractions and high - ends[0] < DARK_RANGE * width
    if not is_in_ones and (is_in_other_units or low < ends[0] - width or high > ends[1] + width):
        raise ValueError(
            f"{name} has colours of {low:.6g} to {high:.6g}, but those of fit have the range {ends[0]:.6g} to "
            f"{ends[1]:.6g}: give images in the range of fit, or color_range to both."
        )
    return range_of_images([image]) if is_in_ones else ends


def _as_floats(values, name):
    values = as_pixels(values, name)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _checked_image(image, scores):
    image = _as_floats(image, "image")
    lattice = scores.shape[:-1]
    if image.shape == lattice:
        image = image[..., np.newaxis]
    if image.shape[:-1] != lattice or image.ndim != scores.ndim or not image.shape[-1]:
        raise ValueError(f"image has shape {image.shape}, but scores are of a lattice of shape {lattice}.")
    if not np.isfinite(image).all():
        raise ValueError("image must be finite, found NaN or infinity.")
    return image.astype(scores.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class DenseInput:
    """X as a list of examples, with the shapes that labels must have."""

    is_array: bool  # Whether X is one array: predictions come back as an array, else as an object array of arrays
    examples: list
    lattice_ndim: int  # Axes of every lattice
    n_scores: int  # Of every example
    n_channels: int  # Of every example

    # What the encoding of labels asks: the name of this input, and examples whose nodes may differ in their states.
    layout = "dense"
    representatives = ()

    @property
    def n_examples(self):
        """Number of examples."""
        return len(self.examples)

    @property
    def n_features(self):
        """Length of the last axis of an example given as one array."""
        return self.n_scores + self.n_channels

    def label_shape(self, i):
        """Shape of the labels of example i."""
        return self.examples[i].shape

    def in_bytes(self, ends, fixed=None, *, of_fit=False):
        """Return the same input with colours of 0 to 255."""
        # ends: range of the colours of images whose type does not say it; fixed: of all images, or None
        # of_fit: whether the range is that of former images, from which these may not be far
        examples = []
        for i, example in enumerate(self.examples):
            known = example._range_of_type if fixed is None else fixed
            if known is None and of_fit and example.image is not None:
                known = range_after_fit(example.image, ends, f"X[{i}]")
            examples.append(in_bytes(example, ends if known is None else known))
        return replace(self, examples=examples)

    def decode(self, rows):
        """Values of nodes in the form of X."""
        # rows: list of (n_nodes,) or (n_nodes, n_columns)
        # returns of shape (n_examples, *lattice) or with a last axis; of objects where X is a list
        parts = [
            part.reshape(example.shape + part.shape[1:]) for part, example in zip(rows, self.examples, strict=True)
        ]
        return np.stack(parts) if self.is_array else encoding.object_array(parts)


def read_examples(X, image_channels):
    """Read X: a list of :class:`DenseExample`, or arrays whose last channels are the image."""
    # X: list of (n_examples, *lattice, n_scores + image_channels)
    # image_channels: channels at the end of the last axis that are the image; 0 for none
    if isinstance(X, DenseExample):
        raise ValueError("X is one DenseExample: pass a list of examples, [X].")
    is_array = getattr(X, "dtype", np.dtype(object)) != np.dtype(object)
    if not encoding.number_of_examples(X, "X"):
        raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")
    examples = [_read_example(item, i, image_channels) for i, item in enumerate(X)]
    first = examples[0]
    kind = np.float32 if all(example.scores.dtype == np.float32 for example in examples) else np.float64
    for i, example in enumerate(examples):
        found = (len(example.shape), example.scores.shape[-1], example.n_channels)
        wanted = (len(first.shape), first.scores.shape[-1], first.n_channels)
        if found != wanted:
            raise ValueError(
                f"X[{i}] has {found[0]} axes, {found[1]} scores and {found[2]} channels of the image, but X[0] has "
                f"{wanted[0]}, {wanted[1]} and {wanted[2]}."
            )
        if example.scores.dtype != kind:
            image = None if example.image is None else example.image.astype(kind)
            examples[i] = example._with(scores=example.scores.astype(kind), image=image)
    return DenseInput(is_array, examples, len(first.shape), first.scores.shape[-1], first.n_channels)


def _read_example(item, i, image_channels):
    if isinstance(item, DenseExample):
        return item
    try:
        array = _as_floats(item, f"X[{i}]")
    except ValueError as error:
        raise ValueError(f"X[{i}] is not an array of numbers: {error}") from error
    if array.ndim < 2 or array.shape[-1] <= image_channels:
        raise ValueError(
            f"X[{i}] of shape {array.shape} is not an example: it must have the axes of its lattice, then scores and "
            f"image_channels={image_channels} channels of the image in the last axis; or pass a DenseExample."
        )
    n_scores = array.shape[-1] - image_channels
    try:
        example = DenseExample(array[..., :n_scores], array[..., n_scores:] if image_channels else None)
    except ValueError as error:
        raise ValueError(f"X[{i}]: {error}") from error
    return example._with(_range_of_type=range_of_type(item)) if image_channels else example
