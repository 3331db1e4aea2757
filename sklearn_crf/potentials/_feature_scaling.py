"""Scaling of features for training: moments, robust centres and spreads, choice of scales, conversion of weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._reports import warn_caller
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding import OperatorFeatures, SharedRows, copy_with_scaled_edges, replace_fields


class FeatureBulk(NamedTuple):
    """Robust centre and spread of features, on which outliers (up to a quarter of the values) have little influence.

    Centre and spread are estimated from several thousand nodes or edges, sampled at regular intervals.
    """

    number: np.ndarray  # (n_types,), number of sampled nodes or edges
    center: np.ndarray  # (n_types, n_features)
    spread: np.ndarray  # (n_types, n_features)

    @classmethod
    def of_nodes(cls, batches: Sequence, n_types: int, wanted: np.ndarray) -> "FeatureBulk":
        """Estimate the centre and spread of node features."""
        # wanted: (n_features,), bool, mask of the features to compute
        parts = [(each.example.node_features, each.example.node_type) for each in batches]
        if isinstance(parts[0][0], SharedRows):
            # Nodes of all types share the same rows, so all types have the same centre and spread.
            alone = cls._from_samples([(values.rows, None) for values, _ in parts], 1, wanted, _compute_distances)
            return cls(*(np.repeat(each, n_types, axis=0) for each in alone))
        return cls._from_samples(parts, n_types, wanted, _compute_distances)

    @classmethod
    def of_edges(cls, batches: Sequence, n_types: int, wanted: np.ndarray) -> "FeatureBulk":
        """Estimate the centre of edge features, and their spread around 0, because edge features have no intercept."""
        # wanted: (n_features,), bool, mask of the features to compute
        featured = (each.example for each in batches if each.example.edge_features is not None)
        return cls._from_samples([(each.edge_features, each.edge_type) for each in featured], n_types, wanted, np.abs)

    @classmethod
    def _from_samples(cls, parts, n_types, wanted, distances):
        shape = n_types, len(wanted)
        found = cls(np.zeros(n_types), np.zeros(shape), np.full(shape, np.inf))
        if not wanted.any():
            return found
        rows, kinds = _sample(parts, wanted)
        for t in range(n_types):
            columns = np.ascontiguousarray(rows[kinds == t].T)
            if not columns.size:
                continue
            found.number[t] = columns.shape[1]
            found.center[t, wanted] = np.median(columns, axis=1)
            # Estimate the spread from nonzero distances only, because more than half of the values may be equal.
            apart = np.sort(distances(columns), axis=1)
            n_equal = np.count_nonzero(apart == 0, axis=1)
            varies = np.flatnonzero(n_equal < apart.shape[1])
            quartile = apart[varies, (3 * n_equal + apart.shape[1])[varies] // 4]
            found.spread[t, np.flatnonzero(wanted)[varies]] = _NORMAL_QUARTILE * quartile
        return found

    @classmethod
    def joined(cls, parts: "Sequence[FeatureBulk]") -> "FeatureBulk":
        """Combine the results of several parts by weighted medians of their centres and spreads."""
        number, center, spread = (np.array(each) for each in zip(*parts, strict=True))
        weight = np.broadcast_to(number[..., np.newaxis], center.shape)
        return cls(
            number.sum(axis=0), _compute_weighted_median(center, weight), _compute_weighted_median(spread, weight)
        )


# Maximum number of sampled nodes or edges; maximum number of sampled values.
# With many features, the number of values limits the sample.
_SAMPLE, _MOST_SAMPLED = 4096, 2**22

# For a normal distribution: standard deviation, divided by the lower quartile of distances between two values.
_NORMAL_QUARTILE = 2.219


def _sample(parts, wanted):
    """Sample rows of the wanted features evenly over all parts; return the rows in float64, and their types."""
    n_rows = sum(len(values) for values, _ in parts)
    step = -(-n_rows // int(np.clip(_MOST_SAMPLED // np.count_nonzero(wanted), 64, _SAMPLE)))
    rows, kinds, first = [], [], 0
    for values, kind in parts:
        chosen = slice(-first % max(step, 1), None, max(step, 1))
        rows.append(np.asarray(values[chosen], dtype=np.float64)[:, wanted])
        kinds.append(np.zeros(len(rows[-1]), dtype=np.int32) if kind is None else kind[chosen])
        first += len(values)
    return (np.concatenate(rows), np.concatenate(kinds)) if rows else (np.zeros((0, 0)), np.zeros(0))


def _compute_distances(columns):
    """Return the distance between each value in the first half of a row and its counterpart in the second half."""
    half = columns.shape[1] // 2
    return np.abs(columns[:, :half] - columns[:, half : 2 * half])


def _compute_weighted_median(values, weight):
    """Return the weighted median along the first axis, for non-negative weights."""
    order = np.argsort(values, axis=0, kind="stable")
    values, weight = np.take_along_axis(values, order, 0), np.cumsum(np.take_along_axis(weight, order, 0), axis=0)
    place = np.argmax(2 * weight >= weight[-1], axis=0)
    return np.take_along_axis(values, place[np.newaxis], 0)[0]


# A feature is centred if its mean is more than this number of standard deviations from 0.
# A constant feature is centred if the absolute value of its mean is more than this number.
_FAR = 10.0

# Features whose standard deviation is in this range are not scaled.
# Features with a smaller standard deviation are only scaled if the curvature of the penalty is also small.
_SMALL, _LARGE = 1e-2, 10.0

# Features whose range is below _MINUTE cause a warning if the penalty suppresses their effect.
# An effect is suppressed if the curvature of the loss is below _LEAST_INFORMATION times the curvature of the penalty.
_MINUTE, _LEAST_INFORMATION = 0.1, 0.1

# Number of rows that are converted to float64 at a time.
_ROWS = 8192

# A feature has outliers if the ratio of its scale to its robust spread is larger than this number.
_LONG_TAIL = 10.0


class FeatureMoments(NamedTuple):
    """Total weight of rows, and mean, squared deviation and range of features, for each type of nodes or edges."""

    number: np.ndarray  # (n_types,), total weight of the rows
    mean: np.ndarray  # (n_types, n_features), float64
    squares: np.ndarray  # (n_types, n_features), float64, sums of squared deviations
    low: np.ndarray  # (n_types, n_features), float64
    high: np.ndarray  # (n_types, n_features), float64

    @classmethod
    def of_nodes(cls, batches: Sequence, n_types: int, n_jobs: int | None = 1) -> "FeatureMoments":
        """Return the moments of dense node features, weighting each node by the weight of its component in the loss."""
        n_features = batches[0].example.shape[1]
        parts = ((each.example.node_features, each.example.node_type, _compute_node_weights(each)) for each in batches)
        return cls._from_parts(parts, n_types, n_features, n_jobs)

    @classmethod
    def of_rows(cls, rows: np.ndarray, weight: np.ndarray) -> "FeatureMoments":
        """Return the moments of the features of weighted rows that all have the same type."""
        return cls._from_parts([(rows, None, weight)], 1, rows.shape[1])

    @classmethod
    def of_edges(cls, batches: Sequence, n_types: int, n_features: int) -> "FeatureMoments":
        """Return the moments of dense edge features.

        Each edge has the weight of its component in the loss. Edges without features do not count.
        """
        parts = ((each.example.edge_features, each.example.edge_type, _compute_edge_weights(each)) for each in batches)
        return cls._from_parts((part for part in parts if part[0] is not None), n_types, n_features)

    @classmethod
    def _from_parts(cls, parts, n_types, n_features, n_jobs=1):
        shape = n_types, n_features
        none = cls(np.zeros(n_types), np.zeros(shape), np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf))
        lists = map_tasks(lambda part, n_threads: none._compute_part_moments(*part), parts, n_jobs)
        return cls.joined([none, *(found for each in lists for found in each)])

    def _compute_part_moments(self, values, kind, weight):
        """Return the moments of each block of rows, given a part of the features."""
        if isinstance(values, SharedRows):
            # Nodes of all types share the same rows, so the moments of all types are equal.
            if weight is not None:
                weight = weight.reshape(-1, values.n_sharing).max(axis=1)
            alone = self._from_parts([(values.rows, None, weight)], 1, values.shape[1])
            return [FeatureMoments(*(np.repeat(each, values.n_sharing, axis=0) for each in alone))]
        return [self._add_rows(*rows) for rows in _iterate_rows(values, kind, weight)]

    def _add_rows(self, rows, kind, weight):
        found = FeatureMoments(*(np.array(each) for each in self))
        one = len(self.number) == 1
        for t in [0] if one else np.unique(kind):
            # Summing along contiguous memory is several times as fast as summing over short rows.
            columns = np.ascontiguousarray((rows if one else rows[kind == t]).T)
            own = None if weight is None else weight if one else weight[kind == t]
            found.number[t] = columns.shape[1] if own is None else own.sum()
            found.low[t], found.high[t] = columns.min(axis=1), columns.max(axis=1)
            largest = np.maximum(-found.low[t], found.high[t])
            if np.any(largest > _LARGEST):
                feature = int(np.argmax(largest))
                raise ValueError(
                    f"Feature {feature} has values up to {largest[feature]:.3g}, but training supports at most "
                    f"{_LARGEST:g}: divide it by a constant."
                )
            if not found.number[t]:
                continue
            found.mean[t] = columns.mean(axis=1) if own is None else (columns * own).sum(axis=1) / found.number[t]
            columns = columns - found.mean[t][:, np.newaxis]
            squares = np.square(columns, out=columns)
            found.squares[t] = (squares if own is None else squares * own).sum(axis=1)
        return found

    @classmethod
    def joined(cls, parts: "Sequence[FeatureMoments]") -> "FeatureMoments":
        """Combine the moments of all parts; rounding errors depend on the order of the parts."""
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
        """Standard deviations of the features, (n_types, n_features)."""
        return np.sqrt(self.squares / np.where(self.number > 0, self.number, 1.0)[:, np.newaxis])

    @property
    def varies(self) -> np.ndarray:
        """Mask of features that have more than one value, (n_types, n_features) bool."""
        return self.high > self.low


# Largest magnitude of a feature: sums of squares of larger values would overflow float64.
_LARGEST = 1e150


def _iterate_rows(values, kind, weight=None):
    """Yield blocks of rows in float64, with the types and the weights of the rows."""
    for start in range(0, len(values), _ROWS):
        part = slice(start, start + _ROWS)
        rows = np.asarray(values[part], dtype=np.float64)
        kinds = np.zeros(len(rows), dtype=np.int32) if kind is None else kind[part]
        yield rows, kinds, None if weight is None else weight[part]


def _compute_node_weights(batch: Any) -> np.ndarray | None:
    """Return, for each node, the weight of its connected component in the loss, or None if all weights are 1.

    The weight of a component is the weight of the example times the largest weight of a labelled node in the component.
    If the component has no labelled node, its weight is 0.
    """
    graph, labels = batch.example.graph, batch.labels
    weight = np.ones(graph.n_nodes)
    if batch.weight is not None:
        weight = np.repeat(np.asarray(batch.weight, dtype=np.float64), np.diff(batch.node_ptr))
    if batch.node_weight is not None or (labels is not None and np.any(labels < 0)):
        own = np.ones(graph.n_nodes) if batch.node_weight is None else batch.node_weight
        largest = np.zeros(graph.n_components)
        np.maximum.at(largest, graph.component, own if labels is None else own * (labels >= 0))
        weight *= largest[graph.component]
    return None if np.all(weight == 1) else weight


def _compute_edge_weights(batch: Any) -> np.ndarray | None:
    """Return, for each edge, the weight of its connected component in the loss, or None if all weights are 1."""
    weight = _compute_node_weights(batch)
    return None if weight is None else weight[batch.example.graph.edges[:, 0]]


def _rescale(values, kind, center, scale):
    """Subtract from each row the centre of its type, and divide by the scale of its type."""
    if isinstance(values, SharedRows):
        # Nodes of all types share the same rows, so all types have the same centre and scale.
        return values.replace_rows(_rescale(values.rows, None, center, scale))
    changed = np.empty_like(values)
    start = 0
    for rows, kinds, _ in _iterate_rows(values, kind):
        changed[start : start + len(rows)] = (rows - center[kinds]) / scale[kinds]
        start += len(rows)
    return changed


class FeatureScaling:
    r"""Centring and scaling of features that are far from 0, or whose scale is far from 1.

    .. math:: x'_j = (x_j - m_j) / s_j, \qquad w'_j = s_j w_j, \qquad b' = b + \sum_j m_j w_j

    Feature j is centred by :math:`m_j` and divided by its scale :math:`s_j`; :math:`w_j` is its weight and b the
    intercept. Scores do not change. With a penalty of :math:`(w'_j / s_j)^2` the objective does not change either. The
    curvatures of the objective along the weights become more alike, and a tolerance has a similar meaning for all
    entries of the gradient. Features that need no change have :math:`m_j = 0, s_j = 1`.

    Weights of differences on edges have the penalty :math:`(d_j w_j)^2`, where :math:`d_j` is the root mean square of
    difference j over the edges. This penalty does not depend on the units of X. Tables with more than one weight also
    contain information on single nodes. For such tables :math:`d_j` is at least 1, so that their weights are never
    penalised less than the weights of nodes.
    """

    # center, scale: (n_node_types, n_features), or None if no feature changes
    # edge_scale: (n_edge_types, n_edge_features), or None if no feature changes
    # tail, edge_tail: scales divided by robust spreads, with the shapes of ``scale`` and ``edge_scale``, or None
    # edge_size: (n_edge_types, n_edge_features), sizes d_j of differences in the penalty; None for other edge features

    def __init__(self, center: Any = None, scale: Any = None, edge_scale: Any = None, edge_size: Any = None):
        self.center = center
        self.scale = scale
        self.edge_scale = edge_scale
        self.edge_size = edge_size
        self.tail: np.ndarray | None = None
        self.edge_tail: np.ndarray | None = None

    @staticmethod
    def moments(batches: list, potentials: Any, n_jobs: int | None = 1) -> tuple[FeatureMoments, FeatureMoments] | None:
        """Return the moments of node and edge features, or None for sparse features and linear operators."""
        if potentials.by_columns or any(isinstance(b.example.node_features, OperatorFeatures) for b in batches):
            return None
        # Check node features first: edge features may be computed from them, and errors should name the node feature.
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
        least_size: float | None = None,
    ) -> "FeatureScaling":
        """Choose the scaling for training examples with the given moments."""
        # bulk_of: function of a FeatureScaling that returns robust centres and spreads, see :meth:`bulk`
        # least_size: lower limit of the sizes d_j of differences in the penalty; None for other edge features
        if moments is None:
            return cls()
        nodes, edges = moments
        # Approximate curvature of the penalty divided by the curvature of the loss, for a feature of variance 1.
        # The factor 4 is the inverse of the largest variance of a binary label.
        penalty = 4.0 / (C * max(nodes.number.sum(), 1.0))
        is_far = fit_intercept & (np.abs(nodes.mean) > _FAR * np.where(nodes.varies, nodes.deviation, 1.0))
        scale = _choose_scales(nodes, nodes.deviation, penalty)
        if fit_intercept and penalises_intercept:
            is_far |= scale != 1
        center = np.where(is_far, nodes.mean, 0.0)
        # Edge features are not centred, since they have no intercept.
        size = np.hypot(edges.mean, edges.deviation)
        edge_size = None if least_size is None else np.where(size > 0, np.maximum(size, least_size), 1.0)
        penalty_of_edges = penalty * (1.0 if edge_size is None else edge_size**2)
        edge_scale = _choose_scales(edges, size, penalty_of_edges)
        if not center.any() and np.all(scale == 1) and np.all(edge_scale == 1):
            return cls(edge_size=edge_size)
        scaling = cls(center, scale, edge_scale, edge_size)
        if bulk_of is not None:
            scaling._measure_tails(*bulk_of(scaling), (penalty, penalty_of_edges), fit_intercept, penalises_intercept)
        return scaling

    def bulk(self, batches: list, potentials: Any) -> tuple[FeatureBulk, FeatureBulk]:
        """Estimate robust centres and spreads of the node features and edge features that are scaled."""
        wanted, wanted_of_edges = np.any(self.scale != 1, axis=0), np.any(self.edge_scale != 1, axis=0)
        of_edges = FeatureBulk.of_edges(batches, potentials.n_edge_types, wanted_of_edges)
        return FeatureBulk.of_nodes(batches, potentials.n_node_types, wanted), of_edges

    def _measure_tails(self, nodes, edges, penalties, fit_intercept, penalises_intercept):
        """Set the tail factors of all features, and the centres of features with outliers.

        The centre of a feature with outliers is its robust centre if this centre is far from 0, or if the intercept is
        penalised.
        """
        tail = _compute_tail_factors(self.scale, nodes, penalties[0])
        self.tail, self.edge_tail = tail, _compute_tail_factors(self.edge_scale, edges, penalties[1])
        if fit_intercept:
            is_far = penalises_intercept | (np.abs(nodes.center) > _FAR * self.scale / tail)
            self.center = np.where(tail > 1, np.where(is_far, nodes.center, 0.0), self.center)

    @property
    def is_identity(self) -> bool:
        """Whether features are neither scaled nor centred."""
        return self.center is None

    def rescale_penalty(self, potentials: Any) -> None:
        """Set the penalty of potentials so that it applies to weights of scaled features."""
        linear = _get_linear_part(potentials)
        linear.feature_scale, linear.edge_scale = self.scale, self.edge_scale
        if self.edge_size is not None:
            linear.edge_scale = (1.0 if self.edge_scale is None else self.edge_scale) / self.edge_size
        linear.feature_tail, linear.edge_tail = self.tail, self.edge_tail

    def scaled(self, batches: list) -> list:
        """Scale the features of batches."""
        if self.is_identity:
            return batches
        return [replace(batch, example=self._scale_example(batch.example)) for batch in batches]

    def _scale_example(self, example):
        if np.any(self.edge_scale != 1):
            example = copy_with_scaled_edges(example, self.edge_scale)
        if not np.any(self.center) and np.all(self.scale == 1):
            return example
        return replace_fields(
            example, node_features=_rescale(example.node_features, example.node_type, self.center, self.scale)
        )

    def inner(self, potentials: Any, coef: np.ndarray) -> np.ndarray:
        """Convert weights for the original features to weights for scaled features."""
        # coef: (n_coef,); returns: (n_coef,)
        return coef if self.is_identity else self._shift_intercepts(potentials, coef, 1)

    def outer(self, potentials: Any, coef: np.ndarray) -> np.ndarray:
        """Convert weights for scaled features to weights for the original features, the inverse of :meth:`inner`."""
        # coef: (n_coef,); returns: (n_coef,)
        return coef if self.is_identity else self._shift_intercepts(potentials, coef, -1)

    def _shift_intercepts(self, potentials, coef, direction):
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
        """Convert the gradient for weights of scaled features to the gradient for weights of the original features."""
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


def _get_linear_part(potentials):
    """Return the potentials of nodes and edges, whose weights precede the weights of factors."""
    return getattr(potentials, "pairwise", potentials)


def _parts(potentials, flat):
    linear = _get_linear_part(potentials)
    return linear.unpack(flat[: linear.n_coef])


def _choose_scales(moments, deviation, penalty):
    """Return the scale of each feature: the square root of its weight's curvature, or 1 if scaling is not needed."""
    curvature = np.sqrt(deviation**2 + penalty)
    return np.where(moments.varies & ((deviation > _LARGE) | (curvature < _SMALL)), curvature, 1.0)


def _compute_tail_factors(scale, bulk, penalty):
    """Return the scale divided by the robust spread for each feature with outliers, and 1 for other features."""
    tail = scale / np.hypot(bulk.spread, np.sqrt(penalty))
    return np.where((scale != 1) & (tail > _LONG_TAIL), tail, 1.0)


def warn_of_small_features(
    moments: FeatureMoments, C: float, remedy: str = "scale X, for example with NodeTransformer(StandardScaler())"
) -> None:
    """Warn if the range of features is so small that the penalty suppresses their effect."""
    information = C * moments.number.sum() * moments.deviation**2
    is_small = (moments.high < moments.low + _MINUTE) & (information < _LEAST_INFORMATION)
    minute = np.any(moments.varies & is_small, axis=0)
    if minute.any():
        chosen = np.flatnonzero(minute)
        named = f"{chosen[:5].tolist()}" if len(chosen) <= 5 else f"{chosen[:5].tolist()} and {len(chosen) - 5} more"
        warn_caller(
            f"Features {named} range over less than {_MINUTE:g}, so the penalty with C={C:g} suppresses their "
            f"effect: {remedy}, or increase C."
        )
