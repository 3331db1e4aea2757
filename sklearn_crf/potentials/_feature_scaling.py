"""Features in units that suit training: moments, the change of units, and weights on both sides of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._reports import warn_caller
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding import OperatorFeatures, SharedRows, with_fields, with_scaled_edges
from sklearn_crf.potentials._feature_bulk import FeatureBulk

# A feature is centred where its mean is this many standard deviations from 0 (a constant one where it is as far).
_FAR = 10.0

# Standard deviations beyond which a feature gets another unit; below the smaller one only where the penalty of its
# weight is as small.
_SMALL, _LARGE = 1e-2, 10.0

# What a feature of so small a range says is nothing next to a penalty of the usual strength.
_MINUTE = 1e-3

_ROWS = 8192

# A feature has outlying values where its unit is this many times the spread of its bulk.
_LONG_TAIL = 10.0


class FeatureMoments(NamedTuple):
    """Number, mean and spread of the features of nodes or edges, for each of their types."""

    number: np.ndarray  # (n_types,)
    mean: np.ndarray  # (n_types, n_features), float64
    squares: np.ndarray  # (n_types, n_features), float64
    low: np.ndarray  # (n_types, n_features), float64
    high: np.ndarray  # (n_types, n_features), float64

    @classmethod
    def of_nodes(cls, batches: Sequence, n_types: int, n_jobs: int | None = 1) -> "FeatureMoments":
        """Moments of the features of nodes, which are dense."""
        n_features = batches[0].example.shape[1]
        parts = ((each.example.node_features, each.example.node_type) for each in batches)
        return cls._of(parts, n_types, n_features, n_jobs)

    @classmethod
    def of_edges(cls, batches: Sequence, n_types: int, n_features: int) -> "FeatureMoments":
        """Moments of the features of edges, which are dense; edges without any are not counted."""
        featured = (each.example for each in batches if each.example.edge_features is not None)
        return cls._of(((each.edge_features, each.edge_type) for each in featured), n_types, n_features)

    @classmethod
    def _of(cls, parts, n_types, n_features, n_jobs=1):
        shape = n_types, n_features
        none = cls(np.zeros(n_types), np.zeros(shape), np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf))
        lists = map_tasks(lambda part, n_threads: none._of_part(*part), parts, n_jobs)
        return cls.joined([none, *(found for each in lists for found in each)])

    def _of_part(self, values, kind):
        """Moments of a bounded number of rows each."""
        if isinstance(values, SharedRows):
            # Nodes of every type have the same rows.
            alone = self._of([(values.rows, None)], 1, values.shape[1])
            return [FeatureMoments(*(np.repeat(each, values.n_sharing, axis=0) for each in alone))]
        return [self._seen(*rows) for rows in _rows(values, kind)]

    def _seen(self, rows, kind):
        found = FeatureMoments(*(np.array(each) for each in self))
        one = len(self.number) == 1
        for t in [0] if one else np.unique(kind):
            # Along columns: sums over rows of a few numbers each take several times as long.
            columns = np.ascontiguousarray((rows if one else rows[kind == t]).T)
            found.number[t] = columns.shape[1]
            found.low[t], found.high[t] = columns.min(axis=1), columns.max(axis=1)
            _require_squares(np.maximum(-found.low[t], found.high[t]))
            found.mean[t] = columns.mean(axis=1)
            columns = columns - found.mean[t][:, np.newaxis]
            found.squares[t] = np.square(columns, out=columns).sum(axis=1)
        return found

    @classmethod
    def joined(cls, parts: "Sequence[FeatureMoments]") -> "FeatureMoments":
        """Moments of all nodes from those of parts, in their order."""
        total = parts[0]
        for part in parts[1:]:
            number = total.number + part.number
            share = np.divide(part.number, number, out=np.zeros_like(number), where=number > 0)[:, np.newaxis]
            gap = part.mean - total.mean
            total = cls(
                number,
                total.mean + share * gap,
                total.squares + part.squares + gap**2 * share * total.number[:, np.newaxis],
                np.minimum(total.low, part.low),
                np.maximum(total.high, part.high),
            )
        return total

    @property
    def deviation(self) -> np.ndarray:
        """(n_types, n_features): standard deviations."""
        return np.sqrt(self.squares / np.maximum(self.number, 1)[:, np.newaxis])

    @property
    def varies(self) -> np.ndarray:
        """(n_types, n_features) bool: features of more than one value."""
        return self.high > self.low


# Sums of squares of larger values are infinite in float64.
_LARGEST = 1e150


def _require_squares(largest):
    """Raise ValueError where values of a feature are too large."""
    if np.any(largest > _LARGEST):
        feature = int(np.argmax(largest))
        raise ValueError(
            f"Feature {feature} has values up to {largest[feature]:.3g}, but training takes at most {_LARGEST:g}: "
            "divide it by a constant."
        )


def _rows(values, kind):
    """Rows of features in float64, a bounded number at a time, and their types."""
    for start in range(0, len(values), _ROWS):
        rows = np.asarray(values[start : start + _ROWS], dtype=np.float64)
        yield rows, np.zeros(len(rows), dtype=np.int32) if kind is None else kind[start : start + _ROWS]


def _rescaled(values, kind, center, scale):
    """Rows less the center of their type, over its scale."""
    if isinstance(values, SharedRows):
        # As nodes of every type have the same rows, they have one center and scale.
        return values.with_rows(_rescaled(values.rows, None, center, scale))
    changed = np.empty_like(values)
    start = 0
    for rows, kinds in _rows(values, kind):
        changed[start : start + len(rows)] = (rows - center[kinds]) / scale[kinds]
        start += len(rows)
    return changed


class FeatureScaling:
    r"""Other units of the features that are far from 0, or whose scale is far from 1.

    .. math:: x'_j = (x_j - m_j) / s_j, \qquad w'_j = s_j w_j, \qquad b' = b + \sum_j m_j w_j

    The scores, and with a penalty of :math:`(w'_j / s_j)^2` the objective, are the same. What differs is how alike the
    curvatures of the objective along the weights are, and what one tolerance means for the gradient by each of them.
    Features without need keep :math:`m_j = 0, s_j = 1`.
    """

    # center, scale: (n_node_types, n_features), or None; edge_scale: (n_edge_types, n_edge_features), or None; tail,
    # edge_tail: ndarray of the shapes of ``scale`` and ``edge_scale``, or None

    def __init__(self, center: Any = None, scale: Any = None, edge_scale: Any = None):
        self.center = center
        self.scale = scale
        self.edge_scale = edge_scale
        self.tail: np.ndarray | None = None
        self.edge_tail: np.ndarray | None = None

    @staticmethod
    def moments(batches: list, potentials: Any, n_jobs: int | None = 1) -> tuple[FeatureMoments, FeatureMoments] | None:
        """Return moments of the features of nodes and edges, or None for sparse features and operators."""
        if potentials.by_columns or any(isinstance(b.example.node_features, OperatorFeatures) for b in batches):
            return None
        # Those of nodes come first: they make those of edges, and errors name them.
        of_nodes = FeatureMoments.of_nodes(batches, potentials.n_node_types, n_jobs)
        return of_nodes, FeatureMoments.of_edges(batches, potentials.n_edge_types, potentials.n_edge_features)

    @classmethod
    def for_training(
        cls,
        moments: tuple[FeatureMoments, FeatureMoments] | None,
        C: float,
        fit_intercept: bool = True,
        penalises_intercept: bool = False,
        bulk_of: "Callable[[FeatureScaling], tuple[FeatureBulk, FeatureBulk]] | None" = None,
    ) -> "FeatureScaling":
        """The units that suit some training data."""
        # bulk_of: callable
        if moments is None:
            return cls()
        nodes, edges = moments
        # About the curvature of the penalty along a weight, in units of that of the loss.
        penalty = 4.0 / (C * max(nodes.number.sum(), 1.0))
        is_far = fit_intercept & (np.abs(nodes.mean) > _FAR * np.where(nodes.varies, nodes.deviation, 1.0))
        scale = _units(nodes, nodes.deviation, penalty)
        if fit_intercept and penalises_intercept:
            is_far |= scale != 1
        center = np.where(is_far, nodes.mean, 0.0)
        # Features of edges are not centred: they have no intercept.
        edge_scale = _units(edges, np.hypot(edges.mean, edges.deviation), penalty)
        if not is_far.any() and np.all(scale == 1) and np.all(edge_scale == 1):
            return cls()
        scaling = cls(center, scale, edge_scale)
        if bulk_of is not None:
            scaling._measure_tails(*bulk_of(scaling), penalty, fit_intercept, penalises_intercept)
        return scaling

    def bulk(self, batches: list, potentials: Any) -> tuple[FeatureBulk, FeatureBulk]:
        """Bulk of those features of nodes and of edges that have other units."""
        wanted, wanted_of_edges = np.any(self.scale != 1, axis=0), np.any(self.edge_scale != 1, axis=0)
        of_edges = FeatureBulk.of_edges(batches, potentials.n_edge_types, wanted_of_edges)
        return FeatureBulk.of_nodes(batches, potentials.n_node_types, wanted), of_edges

    def _measure_tails(self, nodes, edges, penalty, fit_intercept, penalises_intercept):
        """Find the features with outlying values, and centre these where their bulk is."""
        tail = _tails(self.scale, nodes, penalty)
        self.tail, self.edge_tail = tail, _tails(self.edge_scale, edges, penalty)
        if fit_intercept:
            is_far = penalises_intercept | (np.abs(nodes.center) > _FAR * self.scale / tail)
            self.center = np.where(tail > 1, np.where(is_far, nodes.center, 0.0), self.center)

    @property
    def is_identity(self) -> bool:
        """Whether all features stay as they are."""
        return self.center is None

    def rescale_penalty(self, potentials: Any) -> None:
        """Let the penalty of potentials be that of weights for these units."""
        linear = _linear_part(potentials)
        linear.feature_scale, linear.edge_scale = self.scale, self.edge_scale
        linear.feature_tail, linear.edge_tail = self.tail, self.edge_tail

    def scaled(self, batches: list) -> list:
        """Batches in these units."""
        if self.is_identity:
            return batches
        return [replace(batch, example=self._scaled_example(batch.example)) for batch in batches]

    def _scaled_example(self, example):
        if np.any(self.edge_scale != 1):
            example = with_scaled_edges(example, self.edge_scale)
        if not np.any(self.center) and np.all(self.scale == 1):
            return example
        return with_fields(
            example, node_features=_rescaled(example.node_features, example.node_type, self.center, self.scale)
        )

    def inner(self, potentials: Any, coef: np.ndarray) -> np.ndarray:
        """Weights for features in these units."""
        # coef: (n_coef,); returns: (n_coef,)
        return coef if self.is_identity else self._moved(potentials, coef, 1)

    def outer(self, potentials: Any, coef: np.ndarray) -> np.ndarray:
        """Weights for the features as they are, the inverse of :meth:`inner`."""
        # coef: (n_coef,); returns: (n_coef,)
        return coef if self.is_identity else self._moved(potentials, coef, -1)

    def _moved(self, potentials, coef, direction):
        moved = np.array(coef, dtype=np.float64)
        parts = _parts(potentials, moved)
        scale, edge_scale = self.scale[:, np.newaxis], self.edge_scale[..., np.newaxis]
        if direction < 0:
            parts.coef[...] /= scale
        if parts.intercept.size:
            parts.intercept[...] += direction * np.einsum("tcf,tf->tc", parts.coef, self.center)
        if direction > 0:
            parts.coef[...] *= scale
        parts.edge_coef[...] *= edge_scale**direction
        return moved

    def outer_gradient(self, potentials: Any, gradient: np.ndarray) -> np.ndarray:
        """The gradient by weights for the features as they are, of that by :meth:`inner` ones."""
        # gradient: (n_coef,); returns: (n_coef,)
        if self.is_identity:
            return gradient
        moved = np.array(gradient)
        parts = _parts(potentials, moved)
        parts.coef[...] *= self.scale[:, np.newaxis]
        parts.edge_coef[...] *= self.edge_scale[..., np.newaxis]
        if parts.intercept.size:
            parts.coef[...] += parts.intercept[..., np.newaxis] * self.center[:, np.newaxis]
        return moved


def _linear_part(potentials):
    """The potentials of nodes and edges, whose weights come before those of factors."""
    return getattr(potentials, "pairwise", potentials)


def _parts(potentials, flat):
    linear = _linear_part(potentials)
    return linear.unpack(flat[: linear.n_coef])


def _units(moments, deviation, penalty):
    """Units of features: the square root of the curvature along their weights where that is far from 1."""
    curvature = np.sqrt(deviation**2 + penalty)
    return np.where(moments.varies & ((deviation > _LARGE) | (curvature < _SMALL)), curvature, 1.0)


def _tails(scale, bulk, penalty):
    """Units of features over the spread of their bulk where that is much less, else 1."""
    tail = scale / np.hypot(bulk.spread, np.sqrt(penalty))
    return np.where((scale != 1) & (tail > _LONG_TAIL), tail, 1.0)


def warn_of_minute_features(moments: FeatureMoments, C: float) -> None:
    """Warn of features so small that the penalty leaves their weights no effect."""
    information = C * moments.number.sum() * moments.deviation**2
    minute = np.any(moments.varies & (moments.high < moments.low + _MINUTE) & (information < 1), axis=0)
    if minute.any():
        chosen = np.flatnonzero(minute)
        named = f"{chosen[:5].tolist()}" if len(chosen) <= 5 else f"{chosen[:5].tolist()} and {len(chosen) - 5} more"
        warn_caller(
            f"Features {named} range over less than {_MINUTE:g}, so that the penalty of C={C:g} leaves their weights "
            "no effect: scale X, as with NodeTransformer(StandardScaler()), or increase C."
        )
