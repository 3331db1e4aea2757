"""Examples of dense fields: the scores of pixels and the image that kernels compare."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sklearn_crf.encoding import number_of_examples, object_array


@dataclass(frozen=True, eq=False)
class DenseExample:
    """Scores of the pixels of an image or volume, and the image itself.

    Parameters
    ----------
    scores : array-like of shape (*lattice, n_scores)
        Score of each class at each pixel, such as logarithms of a classifier's probabilities; with
        ``DenseCRF(unaries="linear")``, features. Kept in float32 or float64; -inf forbids a class.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours or other channels, which :class:`Bilateral` kernels compare.
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

    def __post_init__(self):
        scores = _as_floats(self.scores, "scores")
        if scores.ndim < 2 or 0 in scores.shape:
            raise ValueError(f"scores must have shape (*lattice, n_scores), got {scores.shape}.")
        if np.isnan(scores).any() or np.isposinf(scores).any():
            raise ValueError("scores must be finite or -inf, found NaN or +inf.")
        object.__setattr__(self, "scores", scores)
        if self.image is not None:
            object.__setattr__(self, "image", _checked_image(self.image, scores))
        if self.spacing is not None:
            spacing = np.asarray(self.spacing, dtype=np.float64)
            if spacing.shape != (scores.ndim - 1,) or not np.all(np.isfinite(spacing) & (spacing > 0)):
                raise ValueError(
                    f"spacing must be {scores.ndim - 1} positive numbers, one per axis of the lattice, got "
                    f"{self.spacing!r}."
                )

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


def _as_floats(values, name):
    values = np.asarray(values)
    if values.dtype.kind not in "iufb":
        raise ValueError(f"{name} must hold real numbers, got {values.dtype}.")
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

    def decode(self, rows):
        """Values of nodes in the form of X."""
        # rows: list of (n_nodes,) or (n_nodes, n_columns)
        # returns of shape (n_examples, *lattice) or with a last axis; of objects where X is a list
        parts = [
            part.reshape(example.shape + part.shape[1:]) for part, example in zip(rows, self.examples, strict=True)
        ]
        return np.stack(parts) if self.is_array else object_array(parts)


def read_examples(X, image_channels):
    """Read X: a list of :class:`DenseExample`, or arrays whose last channels are the image."""
    # X: list of (n_examples, *lattice, n_scores + image_channels)
    # image_channels: channels at the end of the last axis that are the image; 0 for none
    if isinstance(X, DenseExample):
        raise ValueError("X is one DenseExample: pass a list of examples, [X].")
    is_array = getattr(X, "dtype", np.dtype(object)) != np.dtype(object)
    if not number_of_examples(X, "X"):
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
            examples[i] = DenseExample(example.scores.astype(kind), example.image, example.spacing)
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
        return DenseExample(array[..., :n_scores], array[..., n_scores:] if image_channels else None)
    except ValueError as error:
        raise ValueError(f"X[{i}]: {error}") from error
