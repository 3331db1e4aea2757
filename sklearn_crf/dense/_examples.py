"""Examples of dense fields: scores of pixels, and an image, whose colours kernels compare."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import _ranges, encoding
from sklearn_crf._numbers import as_array, as_pixels, as_reals
from sklearn_crf._reports import warn_caller
from sklearn_crf.dense._tuning import DARK_RANGE, NARROW_RANGE

_FLOATS = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class DenseExample:
    """Scores of the pixels of an image or volume, with the image itself.

    Parameters
    ----------
    scores : array-like of shape (*lattice, n_scores)
        Score of each class at each pixel, such as the logits of a network, the logarithms of a classifier's
        probabilities, or features for ``DenseCRF(unaries="linear")``. A score of -inf forbids a class. float16 is
        stored as given, for example as a memory map of a file, and converted to float32 whenever scores are used.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours or other channels, which :class:`Bilateral` kernels compare. Fields rescale them to 0 to 255, according
        to their data type and range (``color_range``).
    spacing : sequence of float, optional
        Distance between neighbours along each axis of the lattice, for volumes whose voxels are not cubes. Bandwidths
        have its units. None is 1.

    Raises
    ------
    ValueError
        If the image has another size, or a value is NaN or +inf.

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
        scores = as_pixels(self.scores, "scores")
        scores = scores if scores.dtype in _FLOATS else scores.astype(np.float64)
        if scores.ndim < 2 or 0 in scores.shape:
            raise ValueError(f"scores must have shape (*lattice, n_scores), got {scores.shape}.")
        if np.isnan(scores).any() or np.isposinf(scores).any():
            raise ValueError("scores must be finite or -inf, found NaN or +inf.")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "_range_of_type", _ranges.get_type_range(self.image))
        if self.image is not None:
            object.__setattr__(self, "image", check_example_image(self.image, scores))
        if self.spacing is not None:
            spacing = as_reals(self.spacing, "spacing")
            if spacing.shape != (scores.ndim - 1,) or not np.all(np.isfinite(spacing) & (spacing > 0)):
                raise ValueError(
                    f"spacing must be {scores.ndim - 1} positive numbers, one per axis of the lattice, got "
                    f"{self.spacing!r}."
                )

    def _with(self, **values):
        """Return a copy of the example with new values of the given fields, without checks."""
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
        """Number of channels of the image, 0 without an image."""
        return 0 if self.image is None else self.image.shape[-1]

    @property
    def kind(self) -> np.dtype:
        """Precision of computations, float32 or float64."""
        return np.promote_types(self.scores.dtype, np.float32)

    @property
    def rows(self) -> np.ndarray:
        """Scores of all pixels, (n_nodes, n_scores)."""
        return self.scores.reshape(-1, self.scores.shape[-1]).astype(self.kind, copy=False)


def check_color_range(color_range):
    """Check a colour range that a user has passed, and return its ends as floats."""
    ends = as_array(color_range, "color_range")
    if ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise InvalidParameterError(
            f"color_range must be two finite numbers, the smaller one first, got {color_range!r}."
        )
    return float(ends[0]), float(ends[1])


def warn_of_unused_range(images: list, ends: tuple[float, float]) -> None:
    """Warn if the colours of all images cover only a small part of their assumed range."""
    if _ranges.uses_hardly_any_of(ends, images):
        low, high = _ranges.find_ends(images)
        warn_caller(
            f"The colours {low:.6g} to {high:.6g} span only a small part of the assumed range {ends[0]:.6g} to "
            f"{ends[1]:.6g}, so Bilateral kernels can hardly tell them apart: pass the range of the colours as "
            "color_range."
        )


def clip_isolated_colors(images: list, names: list) -> list:
    """Clip isolated colours of images whose range is estimated, and warn the user."""
    return _ranges.clip_isolated_values(
        images, names, "If they mark missing pixels, fill these pixels in, or pass color_range."
    )


class Task(NamedTuple):
    """Training example, with labels and weights of its pixels."""

    index: int  # type: ignore[assignment]
    example: DenseExample
    labels: np.ndarray  # (N,) class indices, 0 where unlabelled
    weight: np.ndarray  # (N,) float64, weight of each node, 0 where unlabelled


class TrainingData(NamedTuple):
    """Training examples with their labels; colours are rescaled to the range 0 to 255."""

    input: "DenseInput"
    color_range: tuple[float, float]  # range of the colours before rescaling
    classes: np.ndarray
    tasks: list[Task]

    @property
    def total_weight(self):
        """Sum of the weights of all pixels."""
        return sum(float(task.weight.sum()) for task in self.tasks)


def read_training_data(X, y, sample_weight, *, image_channels, color_range, missing_label, classes, class_weight):
    """Read the examples and labels passed to ``fit``."""
    data = read_examples(X, image_channels)
    if color_range is None:
        data = data.without_isolated_colors()
        fixed, ends = None, _find_training_range(data.examples)
    else:
        fixed = ends = check_color_range(color_range)
    data = data.in_bytes(ends, fixed)
    labels = encoding.encode_y(y, data, missing_label=missing_label, classes=classes)
    sample_weight = encoding.validate_sample_weight(sample_weight, data.n_examples)
    of_class = np.ones(len(labels.classes_))
    if class_weight is not None:
        counts = encoding.compute_node_counts(labels.labels, encoding.scale_sample_weight(sample_weight))
        of_class = encoding.compute_class_weights(class_weight, labels, counts)
    tasks = []
    for i, (example, own) in enumerate(zip(data.examples, labels.labels, strict=True)):
        weight = np.where(own >= 0, of_class[np.maximum(own, 0)], 0.0)
        weight = weight if sample_weight is None else weight * sample_weight[i]
        tasks.append(Task(i, example, np.maximum(own, 0), weight))
    if not any(task.weight.any() for task in tasks):
        raise ValueError("y has no labelled pixel of positive weight: there is nothing to learn from.")
    return TrainingData(data, ends, labels.classes_, tasks)


def _find_training_range(examples):
    """Return the colour range of training images whose data type does not determine their range.

    Warn if the images of a data type cover only a small part of its range.
    """
    images = {key: [examples[i].image for i in own] for key, own in _group_by_type_range(examples).items()}
    ends = _ranges.estimate_color_range(images[None]) if None in images else next(iter(images), _ranges.BYTES)
    if None in images:
        images.setdefault(ends, []).extend(images.pop(None))
    for own_range, own in images.items():
        warn_of_unused_range(own, own_range)
    return ends


def _group_by_type_range(examples: list) -> dict:
    """Return the indices of the examples with images, for each range that a data type determines, or None."""
    groups: dict = {}
    for i, example in enumerate(examples):
        if example.image is not None:
            groups.setdefault(example._range_of_type, []).append(i)
    return groups


def read_fitting_examples(X, image_channels, fitted, color_range, *, is_fixed):
    """Read X for a fitted field, check that the layout is as in fit, and rescale colours to 0 to 255."""
    # fitted: number of features, number of channels and number of lattice axes in fit
    # color_range: range of colours in fit
    # is_fixed: whether color_range applies to all images, whatever their data type
    data = read_examples(X, image_channels)
    found = (data.n_features, data.n_channels, data.lattice_ndim)
    if found[0] != fitted[0]:
        raise ValueError(f"X has {found[0]} features, but DenseCRF is expecting {fitted[0]} features as input.")
    if found != fitted:
        raise ValueError(
            f"X has {found[1]} image channels and {found[2]} lattice axes, but DenseCRF was fitted "
            f"with {fitted[1]} image channels and {fitted[2]} axes."
        )
    return data.in_bytes(color_range, color_range if is_fixed else None, of_fit=True)


def check_channel_bandwidths(kernels, ends):
    """Raise ValueError if bandwidths seem to be made for colours that are not in the range 0 to 255."""
    for m, kernel in enumerate(kernels if ends != _ranges.BYTES else ()):
        least = np.min(getattr(kernel, "channel_bandwidth", np.inf))
        if least < 1:
            raise ValueError(
                f"kernels[{m}].channel_bandwidth={least:g} is less than one colour step, because colours in the range "
                f"{ends[0]:.6g} to {ends[1]:.6g} are rescaled to 0 to 255: pass "
                f"{least * 255 / (ends[1] - ends[0]):.4g}, or color_range=(0, 255) to compare colours without "
                "rescaling."
            )


def in_bytes(example, ends):
    """Return the example with colours rescaled from the range ``ends`` to 0 to 255."""
    if example.image is None or ends == _ranges.BYTES:
        return example
    low, high = ends
    return example._with(image=(example.image - low) * (_ranges.BYTES[1] / (high - low)))


def choose_range_after_fit(image, ends, name):
    """Return the colour range of an image whose data type does not determine it, given the range of fit."""
    low, high = float(image.min()), float(image.max())
    # Images with fractional values are not images of bytes.
    has_fractions = ends[1] > _ranges.BYTES[1] / 2 and low < high and np.any(image != np.floor(image))
    is_in_ones = has_fractions and low >= -1 and high <= 1
    width = ends[1] - ends[0]
    # Resampling filters may overshoot the range of an image, but do not narrow the range.
    is_in_other_units = low < ends[0] and high - low < NARROW_RANGE * width
    is_in_other_units |= has_fractions and high - ends[0] < DARK_RANGE * width
    if not is_in_ones and (is_in_other_units or low < ends[0] - width or high > ends[1] + width):
        raise ValueError(
            f"{name} has colours from {low:.6g} to {high:.6g}, but the images passed to fit have the range "
            f"{ends[0]:.6g} to {ends[1]:.6g}: pass images in this range, or pass a color_range that covers all images."
        )
    return _ranges.estimate_color_range([image]) if is_in_ones else ends


def _as_floats(values, name):
    values = as_pixels(values, name)
    return values.astype(
        np.promote_types(values.dtype, np.float32) if values.dtype in _FLOATS else np.float64, copy=False
    )


def check_example_image(image: Any, scores: np.ndarray) -> np.ndarray:
    image = _as_floats(image, "image")
    lattice = scores.shape[:-1]
    if image.shape == lattice:
        image = image[..., np.newaxis]
    if image.shape[:-1] != lattice or image.ndim != scores.ndim or not image.shape[-1]:
        raise ValueError(f"image has shape {image.shape}, but scores are for a lattice of shape {lattice}.")
    if not np.isfinite(image).all():
        raise ValueError("image must be finite, found NaN or infinity.")
    return image.astype(np.promote_types(scores.dtype, np.float32), copy=False)


@dataclass(frozen=True, eq=False)
class DenseInput:
    """X in the form of a list of examples, with the shapes that their labels must have."""

    is_array: bool  # Whether X is one array; if so, predictions are an array, otherwise an object array
    examples: list
    lattice_ndim: int  # Number of axes of every lattice
    n_scores: int  # Number of scores of every example
    n_channels: int  # Number of image channels of every example

    # Attributes that the encoding of labels reads: name of the layout; examples that may limit the states of nodes.
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
        """Return the shape of the labels of example i."""
        return self.examples[i].shape

    def without_isolated_colors(self):
        """Return the input with isolated colours clipped to the range of the other colours of the same data type."""
        examples = list(self.examples)
        for type_range, own in _group_by_type_range(examples).items():
            if type_range in (None, _ranges.UINT16):
                images = clip_isolated_colors([examples[i].image for i in own], [f"X[{i}].image" for i in own])
                for i, image in zip(own, images, strict=True):
                    examples[i] = examples[i]._with(image=image)
        return replace(self, examples=examples)

    def in_bytes(self, ends, fixed=None, *, of_fit=False):
        """Return the input with colours rescaled to 0 to 255."""
        # ends: colour range of images whose data type determines no range
        # fixed: colour range of all images, or None
        # of_fit: whether ``ends`` comes from fit; images far outside this range are then errors
        examples = []
        for i, example in enumerate(self.examples):
            known = example._range_of_type if fixed is None else fixed
            if known is None and of_fit and example.image is not None:
                known = choose_range_after_fit(example.image, ends, f"X[{i}]")
            examples.append(in_bytes(example, ends if known is None else known))
        return replace(self, examples=examples)

    def decode(self, rows):
        """Convert values of nodes to the layout of X."""
        # rows: list of (n_nodes,) or (n_nodes, n_columns)
        # returns (n_examples, *lattice) or (n_examples, *lattice, n_columns); an object array if X is a list
        parts = [
            part.reshape(example.shape + part.shape[1:]) for part, example in zip(rows, self.examples, strict=True)
        ]
        return np.stack(parts) if self.is_array else encoding.make_object_array(parts)


def read_examples(X, image_channels):
    """Read X, which is a list of :class:`DenseExample`, or consists of arrays whose last channels are the image."""
    # X: arrays (n_examples, *lattice, n_scores + image_channels), or list of (*lattice, n_scores + image_channels)
    # image_channels: number of channels at the end of the last axis that belong to the image; 0 without images
    if isinstance(X, DenseExample):
        raise ValueError("X is one DenseExample: pass a list of examples, [X].")
    is_array = getattr(X, "dtype", np.dtype(object)) != np.dtype(object)
    if not encoding.count_examples(X, "X"):
        raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")
    examples = [_read_example(item, i, image_channels) for i, item in enumerate(X)]
    first = examples[0]
    kind = max(example.kind for example in examples)
    for i, example in enumerate(examples):
        found = (len(example.shape), example.scores.shape[-1], example.n_channels)
        wanted = (len(first.shape), first.scores.shape[-1], first.n_channels)
        if found != wanted:
            raise ValueError(
                f"Examples must agree in the numbers of lattice axes, of scores per pixel and of channels: X[{i}] has "
                f"{', '.join(map(str, found))}, but X[0] has {', '.join(map(str, wanted))}."
            )
        if example.kind != kind:
            image = None if example.image is None else example.image.astype(kind)
            examples[i] = example._with(scores=example.scores.astype(kind), image=image)
    return DenseInput(is_array, examples, len(first.shape), first.scores.shape[-1], first.n_channels)


def _read_example(item, i, image_channels):
    if isinstance(item, DenseExample):
        return item
    try:
        array = as_pixels(item, f"X[{i}]")
    except ValueError as error:
        raise ValueError(f"X[{i}] is not an array of numbers: {error}") from error
    if array.ndim < 2 or array.shape[-1] <= image_channels:
        raise ValueError(
            f"X[{i}] of shape {array.shape} is not an example: its first axes must be the lattice axes, and its last "
            f"axis must hold scores, then image_channels={image_channels} channels of the image. Or pass a "
            "DenseExample."
        )
    n_scores = array.shape[-1] - image_channels
    try:
        example = DenseExample(array[..., :n_scores], array[..., n_scores:] if image_channels else None)
    except ValueError as error:
        raise ValueError(f"X[{i}]: {error}") from error
    return example._with(_range_of_type=_ranges.get_type_range(item)) if image_channels else example
