"""Input of regression tree fields: conversion of images to planes, targets, missing pixels, offsets."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._numbers import as_array, as_reals
from sklearn_crf._ranges import clip_isolated_values
from sklearn_crf.encoding import Example, count_examples, encode_X, make_object_array
from sklearn_crf.encoding._layouts import read_layout
from sklearn_crf.graphs import lattice
from sklearn_crf.rtf._options import Window
from sklearn_crf.rtf.images import _channels


class TrainingData(NamedTuple):
    """Images of a data set with their targets.

    Plain samples form a single plane with one row.
    """

    features: list  # channels (H, W, F) or (D, H, W, F) of each image
    graphs: list
    targets: list  # targets (N, D) of each image, with mean 0 and variance 1
    weights: list | None  # pixel weights (N,) of each image
    observations: list | None = None  # terms that each degraded image adds to its field

    @property
    def n_images(self):
        """Number of images."""
        return len(self.features)

    @property
    def n_pixels(self):
        """Total number of pixels of all images."""
        return sum(len(target) for target in self.targets)

    def parts(self, function, *arguments):
        """Return ``[function(images, None, *arguments)]``: images in memory count as one unnumbered shard."""
        return [function(self, None, *arguments)]

    def total(self, function, *arguments):
        """Return the sum of the results of ``function`` over all shards."""
        return function(self, None, *arguments)

    def cut(self, number, *sides):
        """Return a rectangle of one image, or a box of a volume, given as slices."""
        features, graph = self.features[number], self.graphs[number]
        shape = features.shape[:-1]
        own = np.ascontiguousarray(features[sides])
        weights = None if self.weights is None else [cut_values(self.weights[number], shape, sides)]
        inner = lattice(own.shape[len(shape) - len(graph.shape) : -1], graph.offsets)
        return TrainingData([own], [inner], [cut_values(self.targets[number], shape, sides)], weights)


def cut_values(values, shape, sides):
    """Select, from values (N, ...) of all pixels, the values (n, ...) in a part of the image, given as slices."""
    return values.reshape(*shape, *values.shape[1:])[tuple(sides)].reshape(-1, *values.shape[1:])


def build_plane_graph(shape, offsets, n_axes):
    """Return the lattice of a plane or volume, or a lattice with one axis for chains and tables."""
    # shape, offsets: shape and offsets along two axes, or along three axes for volumes
    n_planar = len(shape)
    return lattice(shape[n_planar - n_axes :], offsets[:, n_planar - n_axes :])


def joined(parts):
    """Return the union of several data sets."""
    columns = zip(*parts, strict=True)
    return TrainingData._make(None if column[0] is None else [x for part in column for x in part] for column in columns)


class Planes(NamedTuple):
    """Images of X as planes.

    Chains are planes with one row; a table is a single plane with one row.
    """

    features: list  # channels (H, W, F) or (D, H, W, F) of each image
    offsets: np.ndarray  # (n_offsets, 2), row and column offset of each pair type; (n_offsets, 3) for volumes
    encoded: Any
    graphs: dict  # cache of lattices by shape
    missing: tuple  # channels of X that may be NaN; the last channels of features mark where these are known
    n_node_types: int = 1  # if above 1, the last channel is the type of each node
    sample: _channels.InputSample | None = None  # sample of X
    channels: Any = None  # dict: fitted attributes that describe the channels of X
    units: Any = None  # ChannelUnits of the features

    def graph_of(self, shape):
        """Return the lattice for planes of a given shape; planes of equal shape share one lattice."""
        if shape not in self.graphs:
            # Tables are chains without edges.
            self.graphs[shape] = build_plane_graph(shape, self.offsets, max(self.encoded.lattice_ndim, 1))
        return self.graphs[shape]


def choose_channels(channels, n_channels, name="pairwise_channels"):
    """Return the validated channels of a parameter, or None for all channels."""
    if channels is None:
        return None
    read = as_array(channels, name)
    fits = read.ndim == 1 and read.dtype.kind in "iu" and len(np.unique(read)) == len(read) > 0
    if not fits or read.min() < 0 or read.max() >= n_channels:
        raise InvalidParameterError(
            f"{name} must be different channels of X, from 0 to {n_channels - 1}, got {channels!r}."
        )
    found = tuple(read.tolist())
    return None if found == tuple(range(n_channels)) else found


def choose_multiplier_channels(channels, n_channels):
    """Return the channels that increase precisions, by default no channels."""
    chosen = None if channels is None else choose_channels(channels, n_channels, "precision_channels")
    return () if channels is None else chosen or tuple(range(n_channels))


def check_multipliers(features, multipliers):
    """Raise ValueError if a channel that increases precisions has negative values.

    Negative values could make precisions indefinite.
    """
    # features: list of (H, W, F) or (D, H, W, F)
    for channel in multipliers:
        least = min(float(plane[..., channel].min()) for plane in features)
        if least < 0:
            raise ValueError(f"precision_channels must never be negative, but channel {channel} of X has {least:g}.")


def _find_missing_channels(gaps, expected):
    """Return the channels with missing values; raise ValueError if values are missing in unexpected channels."""
    # gaps: mask of each image, or None; expected: ndarray, None if any channel may have missing values
    of_images = [() if own is None else np.flatnonzero(own.reshape(-1, own.shape[-1]).any(axis=0)) for own in gaps]
    if expected is None:
        return tuple(sorted({int(channel) for own in of_images for channel in own}))
    for i, own in enumerate(of_images):
        more = [c for c in own if c not in expected]
        if more:
            raise ValueError(
                f"X[{i}] contains NaN in channel {more[0]}, which was complete in fit: train on images with"
                " missing pixels, for example with corruption=MissingPixels(0.5)."
            )
    return tuple(expected.tolist())


def _get_shape(values):
    """Return the shape of an array of numbers, or None for anything else, such as a list of arrays."""
    if isinstance(values, list | tuple) and any(hasattr(value, "shape") for value in values):
        return None
    try:
        values = np.asarray(values)
    except ValueError:
        return None
    return None if values.dtype == object else values.shape


def are_grey_images(X: Any, y: Any) -> bool:
    """Return whether X and y are lists of grey images (H, W) with equal shapes, rather than arrays of chains."""
    if sp.issparse(X) or (_get_shape(X) is not None and _get_shape(y) is not None):
        return False
    if not count_examples(X, "X") == count_examples(y, "y") > 0:
        return False
    shapes = [np.shape(x) for x in X]
    return shapes == [np.shape(own) for own in y] and all(len(own) == 2 and own[1] > 1 for own in shapes)


def require_one_reading(X, y):
    """Raise ValueError if X and y could be chains, but are more likely images without a channel axis."""
    if sp.issparse(X) or y is None:
        return
    say_chains = "(pass window=Window(lattice_ndim=1))"
    shape, of_target = _get_shape(X), _get_shape(y)
    if shape is None or of_target is None:
        count_examples(X, "X")
        count_examples(y, "y")
        pairs = list(zip(X, y, strict=False))
        _require_no_volumes([np.shape(x) for x, _ in pairs], [np.shape(own) for _, own in pairs])
        return
    if len(shape) == 2 and of_target == shape and min(shape) > 1 and not hasattr(X, "columns"):
        raise ValueError(
            f"X and y both have shape {shape}, which is ambiguous: one grey image (pass X[np.newaxis, ..., np.newaxis] "
            f"and y[np.newaxis, ..., np.newaxis]), or {shape[0]} rows with {shape[1]} features and {shape[1]} targets "
            "each (pass window=Window(lattice_ndim=0))."
        )
    if len(shape) == 4:
        _require_no_volumes([shape[1:]], [of_target[1:]])
    if len(shape) != 3:
        return
    n, height, width = shape
    if of_target == shape and width > 1:
        images = f"{n} grey images of {height} x {width} pixels (pass X[..., np.newaxis])"
        if width in _channels.COLOURS:
            images = f"one image of {n} x {height} pixels and {width} colours (pass X[np.newaxis] and y[np.newaxis])"
        raise ValueError(
            f"X and y both have shape {shape}, which is ambiguous: {images}, or {n} chains of {height} nodes with "
            f"{width} features and {width} targets each {say_chains}."
        )
    if n > 1 and width == 1 and of_target in (shape, shape[:2]):
        raise ValueError(
            f"X of shape {shape} with y of shape {of_target} is ambiguous: one image of {n} x {height} pixels "
            f"(pass X[np.newaxis] and y[np.newaxis]), or {n} chains of {height} nodes {say_chains}."
        )


def _require_no_volumes(shapes, of_targets):
    """Raise ValueError if X probably holds grey volumes: the last axis is too long for colours, as in y."""
    if shapes and shapes == of_targets and all(len(own) == 3 and own[2] > max(_channels.COLOURS) for own in shapes):
        depth, height, width = shapes[0]
        raise ValueError(
            f"X[0] and y[0] both have shape ({depth}, {height}, {width}), which is ambiguous: a volume of {depth} "
            f"slices of {height} x {width} voxels (pass [x[..., np.newaxis] for x in X]), or an image of {depth} x "
            f"{height} pixels with {width} features and {width} targets each (pass window=Window(lattice_ndim=2))."
        )


def _require_channel_axis(X, n_features, ndim):
    """Raise ValueError if X is a single image, or a stack of images without a channel axis."""
    shape = _get_shape(X)
    if ndim in (2, 3) and shape is not None and len(shape) == ndim + 1:
        one = "image" if ndim == 2 else "volume"
        raise ValueError(
            f"X of shape {shape} is ambiguous: {shape[0]} {one}s without an axis of channels (pass "
            f"X[..., np.newaxis]), or one {one} with {shape[-1]} channels (pass X[np.newaxis]); the field was fitted "
            f"on {one}s of {n_features} channels."
        )


# Fitted attributes that describe the channels of X.
OF_CHANNELS = "channel_centre_", "channel_scale_", "channel_range_", "input_dtype_"

# Fitted attributes that scikit-learn's validation uses.
OF_INPUT = "n_features_in_", "feature_names_in_", "lattice_ndim_"


@dataclass(frozen=True)
class Reading:
    """Reader of X, for a first fit or for a fitted field."""

    # door: object passed to scikit-learn's validation in place of the estimator, with the input attributes seen in fit
    # known: fitted attributes that describe the channels of X; None in a first fit

    door: Any
    window: Window
    takes_examples: bool = False
    known: Any = None

    def match_fitted_attributes(self, known: Mapping) -> "Reading":
        """Return a reader of images that match fitted attributes."""
        door = copy(self.door)
        vars(door).update({name: known[name] for name in OF_INPUT if name in known})
        return replace(self, door=door, known=known)

    def describe_channels(self, sample: _channels.InputSample, ndim: int) -> tuple[dict, _channels.ChannelUnits]:
        """Return the attributes that describe the channels of X, estimated from a sample if unknown, and the units."""
        if self.known is None:
            # Channels that increase precisions must stay in the user's units.
            is_free = self.window.precision_channels is None
            found = sample.attributes(is_image=is_free and ndim >= 2, is_centred=is_free)
        else:
            found = {name: self.known[name] for name in OF_CHANNELS if name in self.known}
        return found, _channels.ChannelUnits.of(found, sample.values.shape[1])

    def read_planes_to_predict(self, X) -> Planes:
        """Return the planes of X; raise ValueError if channels have other units than in fit."""
        planes, known = self.planes(X), self.known
        if known["lattice_ndim_"] >= 2:
            _channels.require_range(known, planes.sample)
        return planes

    def planes(self, X, is_clean: bool = False) -> Planes:
        """Return the planes of X, in units that float32 can represent, with gaps filled and marked by channels."""
        # is_clean: whether X will be corrupted or degraded later, and therefore stays in the user's units
        layout, read, ndim = self._read_layout(X)
        may_have_gaps = ndim >= 2 and not (layout == "list" and isinstance(read[0], Example))
        images = list(read) if may_have_gaps else []
        gaps = [_channels.find_missing_values(image) for image in images]
        for i, own in enumerate(gaps):
            if own is not None and own.all():
                raise ValueError(f"X[{i}] contains only NaN: none of its pixels is known.")
        missing = _find_missing_channels(gaps, None if self.known is None else self.known["missing_channels_"])
        is_nodes = layout == "nodes"
        raw = [np.asarray(read)] if is_nodes else [x.node_features if isinstance(x, Example) else x for x in read]
        sample = _channels.InputSample.of(raw)
        channels, units = self.describe_channels(sample, ndim)
        seen, kind = (lambda x: x), sample.kind
        if not is_clean:
            seen, kind = units.seen, np.float32 if units.are_of_user else kind
        if any(own is not None for own in gaps):
            filled = [
                x if own is None else _channels.fill_gaps(x) for x, own in zip(map(seen, images), gaps, strict=True)
            ]
            read, seen, kind = np.stack(filled) if layout == "array" else filled, (lambda x: x), np.float32
        # Planes have no edges here, because the edges of a plane that is predicted in tiles would not fit into memory.
        none = np.zeros((0, ndim), dtype=np.int64)
        options = {"dtype": (kind,), "estimator": self.door, "reset": self.known is None}
        encoded = replace(encode_X(read, lattice_ndim=ndim, connectivity=none, **options), lattice_ndim=ndim)
        described = {"sample": sample, "channels": channels, "units": units}
        steps = compute_window_offsets(self.window.size, ndim)
        # Planes have at least two axes.
        offsets = np.zeros((len(steps), max(ndim, 2)), dtype=np.int64)
        offsets[:, offsets.shape[1] - steps.shape[1] :] = steps
        if layout == "nodes":
            plane = np.ascontiguousarray(seen(encoded.array[None]))
            _channels.require_held(plane, "X")
            return Planes([plane], offsets, encoded, {}, missing, **described)
        n_node_types = encoded.n_node_types if self.known is None else self.known.get("n_node_types_", 1)
        features = []
        for i, example in enumerate(encoded.examples):
            shape = example.graph.shape
            shape = (1, *shape) if len(shape) == 1 else shape
            plane = np.ascontiguousarray(seen(example.node_features.reshape(*shape, encoded.n_features)))
            if not is_clean:
                _channels.require_held(plane, f"X[{i}]")
            if missing:
                plane = _channels.append_masks(plane, gaps[i] if gaps else None, missing)
            features.append(plane if n_node_types == 1 else self._append_node_type(plane, example, i, n_node_types))
        if self.known is None:
            _check_reach(offsets, features)
        return Planes(features, offsets, encoded, {}, missing, n_node_types, **described)

    def _read_layout(self, X):
        """Return the layout of X, the converted X, and the number of axes of its lattices."""
        if self.known is not None:
            _require_channel_axis(X, self.known["n_features_in_"], self.known["lattice_ndim_"])
        layout, read = read_layout(X, self.window.lattice_ndim if self.known is None else self.known["lattice_ndim_"])
        if layout == "nodes" and sp.issparse(read):
            raise TypeError("Sparse data was passed for X, but dense data is required: use '.toarray()'.")
        if layout == "nodes":
            return layout, read, 0
        if layout == "array":
            return layout, read, read.ndim - 2
        if isinstance(read[0], Example):
            return layout, read, self._count_example_axes(read)
        if any(sp.issparse(x) for x in read):
            raise TypeError("Sparse data was passed for X, but images must be dense: use '.toarray()'.")
        return layout, read, read[0].ndim - 1

    def _append_node_type(self, plane, example, i, n_node_types):
        """Return the plane with the type of each node as the last channel."""
        if example.node_type is None:
            types = np.zeros((*plane.shape[:-1], 1), dtype=np.float32)
        elif example.node_type.max() >= n_node_types:
            raise ValueError(
                f"X[{i}] has nodes of type {example.node_type.max()}, but {type(self.door).__name__} was fitted with "
                f"{n_node_types} types of nodes, numbered from 0."
            )
        else:
            types = example.node_type.reshape(*plane.shape[:-1], 1).astype(np.float32)
        return np.concatenate([plane, types], axis=-1)

    def _count_example_axes(self, X):
        """Return the number of lattice axes of Examples; raise ValueError if they hold unsupported data."""
        if not self.takes_examples:
            raise ValueError(
                "X must hold volumes, images, chains or plain samples, got Example: a window needs a lattice; use "
                "DRFClassifier or TRWCRF for the labels of graphs."
            )
        ndim: Any = None if self.known is None else self.known["lattice_ndim_"]
        for i, x in enumerate(X):
            shape = x.graph.shape
            if shape is None:
                raise ValueError(
                    f"X[{i}] is an Example on a graph that is not a lattice, but a window needs a lattice: make its "
                    "graph by sklearn_crf.graphs.lattice(shape), or use DRFClassifier or TRWCRF for the labels of "
                    "graphs."
                )
            ndim = len(shape) if ndim is None else ndim
            if len(shape) != ndim:
                raise ValueError(f"X[{i}] is an Example on a lattice of {len(shape)} axes, but {ndim} axes are needed.")
            if not isinstance(x.node_features, np.ndarray):
                raise TypeError(
                    f"X[{i}] is an Example whose node_features are sparse, but dense node_features are required."
                )
            for name in ("edge_features", "edge_type", "n_states"):
                if getattr(x, name) is not None:
                    raise ValueError(
                        f"X[{i}] is an Example with {name}, which {type(self.door).__name__} does not support: the "
                        "window defines the pairs, a pair uses the features of both its nodes, and each node may take "
                        "any class."
                    )
        if not 1 <= ndim <= 3:
            raise ValueError(f"X[0] is an Example on a lattice of {ndim} axes, but 1 to 3 are supported.")
        return ndim


def _check_reach(offsets, features):
    """Raise ValueError if there is an offset at which no image has a pair of pixels."""
    largest = np.max([plane.shape[:-1] for plane in features], axis=0)
    for offset in np.abs(offsets):
        if np.any(offset >= largest):
            if len(largest) == 3:
                raise ValueError(
                    f"window joins voxels at a distance of {offset.tolist()} slices, rows and columns, but volumes "
                    f"of X have at most {largest.tolist()}: use a smaller window, or a window of offsets."
                )
            rows, columns = largest
            raise ValueError(
                f"window joins pixels at a distance of {offset[0]} rows and {offset[1]} columns, but images of X "
                f"have at most {rows} rows and {columns} columns: use a smaller window, or a window of offsets."
            )


def compute_window_offsets(window, ndim):
    """Return the offsets of the pairwise factors; of two opposite offsets, only one is returned."""
    # window: (n_offsets, ndim); returns (n_offsets, ndim)
    if isinstance(window, Integral):
        if window < 1 or window % 2 == 0:
            raise InvalidParameterError(
                f"window must be an odd number of at least 1, or an array of offsets, got {window!r}."
            )
        if ndim == 0:
            return np.zeros((0, 0), dtype=np.int64)
        half = int(window) // 2
        reach = np.arange(-half, half + 1)
        offsets = np.stack(np.meshgrid(*[reach] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)
    else:
        offsets = as_array(window, "window given as offsets")
        if offsets.ndim != 2 or offsets.shape[1] != (ndim or offsets.shape[1]) or offsets.dtype.kind not in "iu":
            raise InvalidParameterError(
                f"window given as offsets must be integers of shape (n_offsets, {ndim}), got {window!r}."
            )
        if ndim == 0:
            return np.zeros((0, 0), dtype=np.int64)
    kept: dict = {}
    for offset in offsets.tolist():
        leading = next((step for step in offset if step), 0)
        if leading:
            kept.setdefault(tuple(offset) if leading > 0 else tuple(-step for step in offset))
    return np.array(list(kept), dtype=np.int64).reshape(len(kept), ndim)


def read_targets(planes, y, name="y", missing=False):
    """Return the targets of each plane as (N, D), and whether y has an axis of length D."""
    # targets: list of (N, D)
    if y is None:
        raise ValueError("RegressionTreeField requires y to be passed, but the target y is None.")
    encoded = planes.encoded
    if encoded.layout == "nodes":
        shapes, values = [(encoded.n_examples,)], [_as_values(y, name, missing)]
    else:
        if count_examples(y, name) != encoded.n_examples:
            raise ValueError(f"{name} has {len(y)} examples, but X has {encoded.n_examples}.")
        shapes = [encoded.label_shape(i) for i in range(encoded.n_examples)]
        values = [_as_values(part, f"{name}[{i}]", missing) for i, part in enumerate(y)]
    for i, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        if value.shape not in (shape, (*shape, *value.shape[len(shape) :][:1])) or value.size == 0:
            if encoded.layout == "nodes":
                raise ValueError(f"{name} has shape {value.shape}, but X has {shape[0]} samples: inconsistent numbers.")
            raise ValueError(f"{name}[{i}] has shape {value.shape}, but X[{i}] has pixels of shape {shape}.")
        if value.ndim != values[0].ndim or value.shape[len(shape) :] != values[0].shape[len(shape) :]:
            raise ValueError(f"{name}[{i}] has shape {value.shape}, but {name}[0] has shape {values[0].shape}.")
    names = [name] if encoded.layout == "nodes" else [f"{name}[{i}]" for i in range(len(values))]
    values = clip_isolated_values(values, names, "If they mark missing values, replace them by NaN.")
    targets = [value.reshape(int(np.prod(shape)), -1) for value, shape in zip(values, shapes, strict=True)]
    return targets, values[0].ndim > len(shapes[0])


class TargetMoments(NamedTuple):
    """Total weight, mean and weighted sum of squared deviations for each of the D values."""

    weight: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, targets, weights):
        """Return the moments of the known values."""
        # targets: list of (N, D); weights: list of (N,)
        stacked = np.concatenate(targets)
        weight = np.ones(len(stacked)) if weights is None else np.concatenate(weights)
        is_known = ~np.isnan(stacked)
        weight = np.where(is_known, weight[:, None], 0.0)
        total = weight.sum(axis=0)
        mean = np.sum(weight * np.where(is_known, stacked, 0.0), axis=0) / np.where(total > 0, total, 1.0)
        deviation = np.where(is_known, stacked - mean, 0.0)
        return cls(total, mean, np.sum(weight * deviation**2, axis=0))

    def joined(self, other):
        """Return the joint moments of the values summarised here and in ``other``."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + self.weight * share * gap**2
        return TargetMoments(weight, self.mean + share * gap, squares)

    def compute_mean_and_scale(self):
        """Return the mean of each of the D values, and their common standard deviation (1 if constant)."""
        # mean: (D,)
        without = np.flatnonzero(~(self.weight > 0))
        if len(without):
            raise ValueError(
                f"y has no value in channel {without[0]}: all values of this channel are missing, or have no weight."
            )
        return self.mean, float(np.sqrt(self.squares.sum() / self.weight.sum())) or 1.0


# Squares and sums of larger values would overflow float64; squares of smaller values would underflow.
_LARGEST_VALUE, _SMALLEST_VALUE = 1e100, 1e-100


def require_size(ends):
    """Raise ValueError if all values of y are so small that their squares underflow."""
    largest = np.abs(ends).max()
    if 0 < largest < _SMALLEST_VALUE:
        raise ValueError(
            f"the largest magnitude in y is {largest:.3g}, but it must be at least {_SMALLEST_VALUE:g}: rescale y."
        )


def _as_values(values, name, missing):
    try:
        values = as_reals(values, name, np.float64)
    except ValueError as error:
        raise ValueError(f"{error} Use RegressionTreeFieldClassifier for labels.") from error
    if np.any(np.isinf(values)) or (not missing and np.any(np.isnan(values))):
        raise ValueError(f"{name} contains {'infinity' if missing else 'NaN or infinity'}.")
    largest = np.nanmax(np.abs(values), initial=0.0)
    if largest > _LARGEST_VALUE:
        raise ValueError(f"{name} has values up to {largest:.3g}, but the limit is {_LARGEST_VALUE:g}: rescale y.")
    return values


def put_back(planes, values, has_channels):
    """Convert values of planes, (N, D) each, to the layout of X."""
    encoded = planes.encoded
    values = [value if has_channels else value[:, 0] for value in values]
    if encoded.layout == "nodes":
        return values[0]
    values = [value.reshape(*encoded.label_shape(i), *value.shape[1:]) for i, value in enumerate(values)]
    return np.stack(values) if encoded.layout == "array" else make_object_array(values)


def join_examples(parts):
    """Combine results for single examples, in the layout of X."""
    return np.concatenate(parts) if parts[0].dtype != object else make_object_array([part[0] for part in parts])


def put_samples_back(planes, drawn, has_channels):
    """Convert samples (n_samples, N, D) for each plane to the layout of X, with a leading axis for samples."""
    by_sample = [put_back(planes, list(values), has_channels) for values in zip(*drawn, strict=True)]
    if planes.encoded.layout != "list":
        return np.stack(by_sample)
    return make_object_array([np.stack([part[i] for part in by_sample]) for i in range(len(drawn))])
