"""Robust centre and spread of features, on which outliers have little influence."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklearn_crf.encoding import SharedRows


class FeatureBulk(NamedTuple):
    """Robust centre and spread of features, on which outliers have little influence, up to a quarter of the values.

    Centre and spread are estimated from a sample of several thousand nodes or edges, at regular intervals.
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
            # Estimate the spread from nonzero distances only, because most values may be equal.
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


# Maximum number of sampled nodes or edges, and of sampled values, which limits the sample for many features.
_SAMPLE, _MOST_SAMPLED = 4096, 2**22

# Ratio, for a normal distribution, of the standard deviation to the lower quartile of distances between two values.
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
    """Return the distances between each value in the first half of the columns and a value in the second half."""
    half = columns.shape[1] // 2
    return np.abs(columns[:, :half] - columns[:, half : 2 * half])


def _compute_weighted_median(values, weight):
    """Return the weighted median along the first axis, for non-negative weights."""
    order = np.argsort(values, axis=0, kind="stable")
    values, weight = np.take_along_axis(values, order, 0), np.cumsum(np.take_along_axis(weight, order, 0), axis=0)
    place = np.argmax(2 * weight >= weight[-1], axis=0)
    return np.take_along_axis(values, place[np.newaxis], 0)[0]
