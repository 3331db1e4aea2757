"""Gaussian fields whose factors take their parameters from leaves of regression trees."""

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import cached_property, make_range_runner
from sklearn_crf.graphs import Graph
from sklearn_crf.kernels.rtf.leaf_models import (
    CHANNEL_BLOCK,
    add_factors,
    add_gradients,
    linear_values,
)
from sklearn_crf.kernels.rtf.trees import clip_eigenvalues_in_place
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf.images._degradation import Observation


def packed_inputs(whitening, paired):
    """Return a matrix for linear models, with columns in the order that kernels require.

    Kernels read the channels of a pixel in blocks of ``CHANNEL_BLOCK``. If there are fewer channels, a block has half
    this size. The last block ends with the pixel's last channel, and overlaps the block before it. Columns of
    repeated channels are zero, so that no channel is counted twice.
    """
    # whitening: (B, n_inputs); returns (B, 1 + size)
    n_pixels = 2 if paired else 1
    n_channels = (whitening.shape[1] - 1) // n_pixels
    size = compute_packed_size(n_channels)
    place = np.arange(n_channels)
    block = CHANNEL_BLOCK if n_channels > CHANNEL_BLOCK else CHANNEL_BLOCK // 2
    if n_channels > block:
        place[n_channels // block * block :] += size - n_channels
    packed = np.zeros((len(whitening), 1 + n_pixels * size))
    packed[:, np.concatenate([[0], *(1 + k * size + place for k in range(n_pixels))])] = whitening
    return packed


def compute_packed_size(n_channels):
    """Return the number of columns for the channels of one pixel."""
    return n_channels if n_channels < CHANNEL_BLOCK // 2 else -(-n_channels // CHANNEL_BLOCK) * CHANNEL_BLOCK


def clip_eigenvalues(matrices, low, high):
    """Return the nearest symmetric matrices, in Frobenius norm, with eigenvalues between bounds."""
    # matrices: (..., m, m)
    size = matrices.shape[-1]
    if size > 2:
        values, vectors = np.linalg.eigh(matrices)
        return np.einsum("...ia,...a,...ja->...ij", vectors, np.clip(values, low, high), vectors)
    found = np.array(matrices, dtype=np.float64, order="C")
    clip_eigenvalues_in_place(found.reshape(-1), np.arange(0, found.size, size**2), size, low, high)
    return found


def _clip_together(parts, low, high):
    """Clip the eigenvalues of the symmetric parts of several arrays of matrices, in place."""
    # parts: list of (L, m, m), views
    if not any(map(len, parts)):
        return
    stacked = np.concatenate(parts)
    clipped = clip_eigenvalues((stacked + stacked.transpose(0, 2, 1)) / 2, low, high)
    for part, own in zip(parts, np.split(clipped, np.cumsum([len(part) for part in parts[:-1]])), strict=True):
        part[:] = own


def compute_slope_gradient(kind, features, leaf, square, n_leaves):
    """Convert derivatives with respect to factor precisions to derivatives with respect to slopes of leaves."""
    # features: (H, W, F) or (D, H, W, F); leaf: (n_factors,); square: (n_factors, m, m); returns (n_leaves, I, m, m)
    terms = kind.average_multiplier_channels(features).astype(np.float64)[:, :, None, None] * square[:, None]
    # Sum factor by factor, in an order that does not depend on the number of threads.
    members = sp.csc_matrix((np.ones(len(leaf)), leaf, np.arange(len(leaf) + 1)), shape=(n_leaves, len(leaf)))
    return (members @ terms.reshape(len(leaf), -1)).reshape(n_leaves, *terms.shape[1:])


def as_plane(features):
    """Stack the slices of a volume vertically into a plane; return planes unchanged."""
    # features: (H, W, F) or (D, H, W, F), contiguous
    return features if features.ndim == 3 else features.reshape(-1, *features.shape[-2:])


@dataclass(frozen=True, eq=False)
class FieldImage:
    """Input of the potentials: channels, lattice and leaves of an image."""

    # features: channels (H, W, F), or (D, H, W, F) for volumes, contiguous
    # graph: lattice of the image, with edges grouped by offset
    # leaves: for each type, an array (n_factors,) with the leaf of each factor
    # chosen: dict from channel indices to arrays of these channels, for types whose models use only some channels
    # observation: contribution of a degraded image to the field

    features: np.ndarray
    graph: Graph
    leaves: list
    chosen: dict = field(default_factory=dict)
    observation: Observation | None = None

    @classmethod
    def of(cls, features, graph, types, trees, n_threads=1, observation=None):
        """Return the input of the potentials, after looking up the leaves of all factors."""
        # features: (H, W, F) or (D, H, W, F)
        run = make_range_runner(n_threads)
        leaves = [tree.leaves(features, kind, run) for tree, kind in zip(trees, types, strict=True)]
        chosen = {kind.channels: kind for kind in types if kind.channels is not None}
        seen = {key: kind.seen(features) for key, kind in chosen.items()}
        return cls(features, graph, leaves, seen, observation)

    @property
    def start(self):
        """Values (N, D) at which solves start for an observed image, else None."""
        return None if self.observation is None else self.observation.start

    @property
    def known(self):
        """Mask (N, D) of known values, which predictions keep, or None if there are none."""
        own = self.observation
        return None if own is None or own.diagonal is None else own.diagonal > 0

    def seen(self, kind):
        """Return the channels used by the linear models of a type."""
        return self.features if kind.channels is None else self.chosen[kind.channels]


class GaussianStatistics(NamedTuple):
    r"""Derivative of a scalar function of a :class:`~sklearn_crf.models.GaussianModel`, in factored form.

    The derivative with respect to ``h`` is ``linear``, and with respect to ``diagonal[s]`` it is ``square[s]``. The
    derivative with respect to the block of an edge (s, t) is ``-(linear[s] values[t]' + values[s] linear[t]')``, plus
    ``cross`` of the edge, if given.
    """

    # linear: (N, D), derivative with respect to ``h``
    # values: (N, D), values that are multiplied by ``linear`` in the derivative for an edge
    # square: (N, D, D), derivative with respect to ``diagonal``
    # cross: (E, D, D), additional derivative with respect to the blocks of edges, or None

    linear: np.ndarray
    values: np.ndarray
    square: np.ndarray
    cross: np.ndarray | None = None

    def split(self, n):
        """Split the statistics of n concatenated images of equal size into the statistics of each image."""
        return [GaussianStatistics(*own) for own in zip(*(np.split(part, n) for part in self[:3]), strict=True)]


class LeafParameters(NamedTuple):
    """Parameters of the leaves of one type, as views of the flat parameter vector."""

    precision: np.ndarray  # (L, m, m), precision of each leaf; m is D for a pixel, and 2 D for a pair
    weight: np.ndarray  # (L, m, B), weights of the whitened inputs
    slopes: np.ndarray  # (L, I, m, m), increase of the precision per unit of each of I channels


class RegressionTreePotentials:
    r"""Gaussian field of an image: a sum over factors whose parameters are stored in the leaves of trees.

    .. math::
        h = \sum_F W_{l(F)} V_t b(x_F), \qquad J = \sum_F \Big( J_{l(F)} + \sum_i c_i(x_F) S^{(i)}_{l(F)} \Big)

    where :math:`b(x_F)` holds 1 and the channels at the pixels of the factor, and l(F) is the factor's leaf.
    :math:`V_t` whitens these inputs for type t, so that no direction of the weights is much flatter than another. The
    precision may grow with channels :math:`c_i \ge 0`. The field is linear in the parameters.
    """

    # n_leaves: list of int, number of leaves for each type
    # whitening: list with the matrix V, (B, n_inputs), of each type
    # packed: whitening with columns in the order that kernels require
    # n_values: number D of values of a pixel

    def __init__(self, types, n_leaves, whitening, n_values):
        self.types = types
        self.n_leaves = list(n_leaves)
        self.whitening = whitening
        self.n_values = n_values
        self._sizes = [n_values * (2 if kind.paired else 1) for kind in types]
        self.packed = [packed_inputs(v, kind.paired) for v, kind in zip(whitening, types, strict=True)]

    @property
    def n_coef(self):
        """Length of the flat parameter vector."""
        return self._places[-1][-1][1].stop

    @property
    def n_coef_of_leaves(self):
        """Sum, over all types, of the number of parameters of one leaf."""
        lengths = (own[-1][1].stop - own[0][1].start for own in self._places)
        return sum(length // n for length, n in zip(lengths, self.n_leaves, strict=True))

    @cached_property
    def _places(self):
        """For each type, the shape of each parameter array, and the slice of the flat vector that holds the array."""
        sizes = zip(self.types, self.n_leaves, self._sizes, self.whitening, strict=True)
        places, start = [], 0
        for kind, n, m, white in sizes:
            own = []
            for shape in ((n, m, m), (n, m, len(white)), (n, len(kind.multipliers), m, m)):
                own.append((shape, slice(start, start + prod(shape))))
                start = own[-1][1].stop
            places.append(own)
        return places

    def unpack(self, coef):
        """Return the parameters of each type as views of the flat vector."""
        return [LeafParameters(*(coef[own].reshape(shape) for shape, own in places)) for places in self._places]

    def pack(self, precisions, weights, slopes):
        """Return the flat parameter vector; this is the inverse of :meth:`unpack`."""
        # returns (n_coef,)
        coef = np.empty(self.n_coef)
        for part, *given in zip(self.unpack(coef), precisions, weights, slopes, strict=True):
            part.precision[:], part.weight[:], part.slopes[:] = given
        return coef

    def start(self):
        """Return initial parameters: identity precisions, zero weights and slopes."""
        coef = np.zeros(self.n_coef)
        for part in self.unpack(coef):
            part.precision[:] = np.eye(part.precision.shape[1])
        return coef

    def spread(self, values):
        """Return a flat vector in which all parameters of a leaf have the value given for the leaf."""
        # values: list of (n_leaves,); returns (n_coef,)
        coef = np.empty(self.n_coef)
        for part, own in zip(self.unpack(coef), values, strict=True):
            for parameters in part:
                parameters.reshape(len(own), -1)[:] = own[:, None]
        return coef

    def grown(self, coef, parents, n_leaves):
        """Return potentials with more leaves, and parameters in which new leaves copy their parents' parameters."""
        potentials = RegressionTreePotentials(self.types, n_leaves, self.whitening, self.n_values)
        grown = np.empty(potentials.n_coef)
        for old, new, parent in zip(self.unpack(coef), potentials.unpack(grown), parents, strict=True):
            for parameters, former in zip(new, old, strict=True):
                parameters[:] = former[parent]
        return potentials, grown

    def project(self, coef, bounds):
        """Project parameters onto the set in which the eigenvalues of precisions and slopes are within bounds.

        Eigenvalues of precisions are within both bounds, and eigenvalues of slopes are from 0 to the upper bound.
        """
        # coef: (n_coef,); returns (n_coef,)
        projected = coef.copy()
        parts = self.unpack(projected)
        for size, (precisions, slopes) in self._starts.items():
            if size <= 2:
                clip_eigenvalues_in_place(projected, precisions, size, *bounds)
                clip_eigenvalues_in_place(projected, slopes, size, 0.0, bounds[1])
                continue
            # The matrices of all pairwise types have equal size.
            # A single call for all pairwise types is several times as fast as one call for each type.
            own = [part for part, m in zip(parts, self._sizes, strict=True) if m == size]
            _clip_together([part.precision for part in own], *bounds)
            _clip_together([part.slopes.reshape(-1, size, size) for part in own], 0.0, bounds[1])
        return projected

    @cached_property
    def _starts(self):
        """For each matrix size, positions in the flat vector at which precisions and slopes of leaves begin."""
        found: dict = {size: ([], []) for size in sorted(set(self._sizes))}
        for size, (precisions, _, slopes) in zip(self._sizes, self._places, strict=True):
            for starts, (_, own) in zip(found[size], (precisions, slopes), strict=True):
                starts.append(np.arange(own.start, own.stop, size**2))
        return {size: tuple(np.concatenate(own).astype(np.int64) for own in both) for size, both in found.items()}

    def at(self, coef, dtype):
        """Return the parameters in the layout that the kernels expect, in the floating point type of the images."""
        return _PackedParameters(self, coef, dtype)

    def model(self, coef, image, n_threads=1):
        """Return the Gaussian field of an image."""
        return self.at(coef, image.features.dtype).model(image, n_threads)

    def pullback(self, image, statistics):
        """Convert the derivative with respect to an image's field to the derivative with respect to the parameters."""
        # returns (n_coef,)
        sums = GradientSums(self)
        sums.add(image, statistics)
        return sums.total()


class _PackedParameters:
    """Parameters of a field in the layout and floating point type that kernels require."""

    def __init__(self, potentials, coef, dtype):
        self.potentials, self.dtype = potentials, dtype
        self.parts = potentials.unpack(coef)
        self.weights = [
            _apply(part.weight, white).astype(dtype) for part, white in zip(self.parts, potentials.packed, strict=True)
        ]
        self.precisions = [part.precision.astype(dtype) for part in self.parts]

    def model(self, image, n_threads=1):
        """Return the Gaussian field of an image."""
        dtype, d = self.dtype, self.potentials.n_values
        shape = image.features.shape[:-1]
        width, n_rows = shape[-1], prod(shape[:-1])
        h = np.zeros((n_rows * width, d), dtype=dtype)
        diagonal = np.zeros((n_rows * width, d, d), dtype=dtype)
        blocks, edge_types, n_blocks = [np.zeros((0, d, d), dtype)], [np.empty(0, np.int32)], 0
        run = make_range_runner(n_threads)
        for number, kind in enumerate(self.potentials.types):
            x, placed = _locate_factors(image, kind, number)
            precision, place = self.precisions[number], placed[0]
            if kind.multipliers:
                slopes = self.parts[number].slopes.astype(dtype)
                factors = kind.average_multiplier_channels(image.features)
                precision = precision[place] + np.einsum("fi,fiab->fab", factors, slopes[place])
                place = np.arange(len(place), dtype=np.int32)
            own = x, self.weights[number], precision, place, kind.locate_plane_rows(shape), placed
            _add_type(run, own, h, diagonal)
            if kind.paired:
                blocks.append(precision[:, :d, d:])
                edge_types.append(place + np.int32(n_blocks))
                n_blocks += len(precision)
        more = None
        if image.observation is not None:
            h += image.observation.linear
            more = image.observation.precision
            if image.observation.diagonal is not None:
                diagonal[:, np.arange(d), np.arange(d)] += image.observation.diagonal
        return GaussianModel(image.graph, h, diagonal, np.concatenate(blocks), np.concatenate(edge_types), more)


def _apply(weight, matrix):
    """Multiply linear models (L, m, B) by a matrix, in one product."""
    return (weight.reshape(-1, weight.shape[2]) @ matrix).reshape(*weight.shape[:2], -1)


class GradientSums:
    """Derivative with respect to the parameters, summed over images.

    Until the total is computed, derivatives of linear models stay in the layout of the kernels.
    """

    def __init__(self, potentials):
        self.potentials = potentials
        self.gradient = np.zeros(potentials.n_coef)
        self.parts = potentials.unpack(self.gradient)
        self.of_weights = [
            np.zeros((*part.weight.shape[:2], white.shape[1]))
            for part, white in zip(self.parts, potentials.packed, strict=True)
        ]

    def add(self, image, statistics):
        """Add the gradient of an image's loss, given the derivatives with respect to the image's Gaussian model."""
        linear, values, square = contiguous(statistics)
        types = []
        for number, (kind, part) in enumerate(zip(self.potentials.types, self.parts, strict=True)):
            x, placed = _locate_factors(image, kind, number)
            cross = cross_of(statistics, image, self.potentials.types, number)
            types.append((x, self.of_weights[number], part.precision, cross, placed))
            leaf = image.leaves[number]
            if kind.multipliers and len(leaf):
                of_factors = compute_factor_terms(statistics, image, self.potentials.types, number)[1]
                part.slopes[:] += compute_slope_gradient(kind, image.features, leaf, of_factors, len(part.slopes))
        add_gradients(types, image.features.shape[-2], as_plane(image.features), linear, values, square)

    def total(self):
        """Return the derivative, summed over all images that were added."""
        # returns (n_coef,)
        for part, white, own in zip(self.parts, self.potentials.packed, self.of_weights, strict=True):
            part.weight[:] = _apply(own, white.T)
        return self.gradient


def _locate_factors(image, kind, number):
    """Return the channels of a type's linear models, and the location of its factors."""
    x, leaf = as_plane(image.seen(kind)), image.leaves[number]
    return x, (leaf, compute_packed_size(x.shape[2]), *kind.rows(image.features.shape[:-1]))


def _add_type(run, own, h, diagonal):
    """Add the factors of one type to the field, with rows distributed over threads."""
    x, weight, precision, place, of_row, placed = own
    leaf, _, first, left, columns, _, right = placed
    if not len(leaf):
        return
    width, values = x.shape[1], np.empty((len(leaf), weight.shape[1]), dtype=weight.dtype)
    run(
        lambda start, stop: linear_values(x, leaf, weight, *placed[1:], start, stop, values),
        len(first),
        smallest_range=max(1, tuned.PIXELS_OF_THREAD // columns),
    )
    run(
        lambda start, stop: add_factors(
            values, precision, place, width, of_row, left, columns, right, start, stop, h, diagonal
        ),
        len(h) // width,
        smallest_range=max(1, tuned.PIXELS_OF_THREAD // width),
    )


def compute_factor_terms(statistics, image, types, number):
    """Return, for each factor of a type, the derivatives with respect to its linear values and its precision."""
    # slope: (n_factors, m); square: (n_factors, m, m)
    kind = types[number]
    linear, values, square = (at_ends(part, kind, image.features.shape[:-1]) for part in statistics[:3])
    if not kind.paired:
        return linear[0], square[0]
    cross = linear[0][:, :, None] * values[1][:, None, :] + values[0][:, :, None] * linear[1][:, None, :]
    if statistics.cross is not None:
        cross = cross - cross_of(statistics, image, types, number)
    n, d = linear[0].shape
    whole = np.empty((n, 2 * d, 2 * d), dtype=square[0].dtype)
    whole[:, :d, :d], whole[:, d:, d:] = square
    whole[:, :d, d:] = -cross / 2
    whole[:, d:, :d] = whole[:, :d, d:].transpose(0, 2, 1)
    return np.concatenate(linear, axis=1), whole


def at_ends(values, kind, shape):
    """Return values (N, ...) at the first pixels of the factors of a type and, for pairs, at the second pixels."""
    plane = values.reshape(*shape, *values.shape[1:])
    return [plane[end].reshape(-1, *values.shape[1:]) for end in kind.ends(shape)]


def contiguous(statistics):
    """Return the statistics of pixels as contiguous float64 arrays, for kernels."""
    return [np.ascontiguousarray(part, dtype=np.float64) for part in statistics[:3]]


def cross_of(statistics, image, types, number):
    """Return the part of ``cross`` that belongs to one type, or an empty array if the type has none."""
    if statistics.cross is None or not types[number].paired:
        return np.zeros((0, 1, 1))
    start = sum(len(leaf) for leaf, kind in zip(image.leaves[:number], types, strict=False) if kind.paired)
    return np.ascontiguousarray(statistics.cross[start : start + len(image.leaves[number])])
