"""Features that are appended to the features of X: indicators of missing values, and of the ends of sequences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding._compact_lists import ChainList
from sklearn_crf.encoding._edge_features import leave_out_added
from sklearn_crf.encoding._encoded import Encoded
from sklearn_crf.encoding._examples import replace_fields


@dataclass(frozen=True, eq=False)
class MeanFilling:
    """Means that replace missing values, and the features with gaps in training, which have an indicator."""

    values: np.ndarray  # (n_features,)
    marked: np.ndarray  # (n_marked,) ascending; empty if gaps are not marked
    treatment: str  # "mark", if features without an indicator must be complete, or "mean"

    @classmethod
    def of(cls, sums: np.ndarray, name: str, treatment: str) -> "MeanFilling":
        """Make a filling with the weighted means of the known values, from the result of ``_sum_known``."""
        # sums: (4, n_features); name: name of the features in errors; treatment: "mark" or "mean"
        lacking = np.flatnonzero(sums[3] == 0)
        if len(lacking):
            raise ValueError(f"Feature {lacking[0]} of {name} has no known value: leave this feature out.")
        return cls(sums[0] / sums[1], np.flatnonzero(sums[2] if treatment == "mark" else ()), treatment)

    def fill(self, features: Any, name: str) -> Any:
        """Replace missing values of features, and append an indicator for each marked feature."""
        # features: (..., n_features)
        known, gaps = _split_gaps(features, self.values, name)
        new = np.setdiff1d(_find_columns(gaps), self.marked)
        if self.treatment == "mark" and len(new):
            use = "set missing_features='mean' in the learning method."
            raise ValueError(f"{name} contains NaN in feature {new[0]}, which had no missing values in fit: {use}")
        return _append_columns(known, gaps[:, self.marked] if sp.issparse(gaps) else gaps[..., self.marked])


def _split_gaps(features: Any, values: np.ndarray, name: str) -> tuple[Any, Any]:
    """Replace gaps in features by the value of the column; return the filled features, and a mask of the gaps."""
    # values: (n_features,)
    if isinstance(features, np.ndarray):
        gaps = np.isnan(features)
        return np.where(gaps, values.astype(features.dtype), features), gaps
    if not sp.issparse(features):
        raise ValueError(f"{name} is a linear operator, but missing features need arrays or sparse matrices.")
    known = features.copy()
    known.sum_duplicates()
    gaps = known.copy()
    gaps.data = np.isnan(gaps.data)
    known.data = np.where(gaps.data, values.astype(features.dtype)[known.indices], known.data)
    gaps.eliminate_zeros()
    return known, gaps


def _find_columns(gaps: Any) -> np.ndarray:
    """Return the indices of the columns that contain a gap, given the mask of gaps."""
    if sp.issparse(gaps):
        return np.unique(gaps.indices)
    return np.flatnonzero(gaps.reshape(-1, gaps.shape[-1]).any(axis=0))


def _sum_known(parts: Iterable[tuple[Any, np.ndarray]], n_features: int, name: str) -> np.ndarray:
    """Sum over rows, for each feature: known values; their weights; the number of gaps; the number of known values."""
    # parts: pairs of an array of features, (n, n_features), and the weights of its rows, (n,)
    # returns: (4, n_features); values in rows of weight 0 do not count as known
    sums = np.zeros((4, n_features))
    for features, weight in parts:
        known, gaps = _split_gaps(features, np.zeros(n_features), name)
        gaps, counted = gaps.astype(float), (weight > 0).astype(float)
        totals = np.stack([weight @ gaps, counted @ gaps])
        ones = np.ones(len(weight))
        sums += np.stack([weight @ known, weight.sum() - totals[0], ones @ gaps, counted.sum() - totals[1]])
    return sums


# Names of the fitted attributes that hold the filling of node features; the same for edge features.
_ATTRIBUTES = ("fill_values_", "indicator_features_"), ("edge_fill_values_", "edge_indicator_features_")


@dataclass(frozen=True, eq=False)
class Filling:
    """Filling of node features, and also of edge features if all examples were given with edge features."""

    nodes: MeanFilling
    edges: MeanFilling | None

    @classmethod
    def of_field(cls, field: Any, treatment: str) -> "Filling | None":
        """Return the filling of a fitted field, or None if ``fit`` stored no means."""
        parts: list[list[Any]] = [[getattr(field, name, None) for name in names] for names in _ATTRIBUTES]
        nodes, edges = (None if values is None else MeanFilling(values, marked, treatment) for values, marked in parts)
        return None if nodes is None else cls(nodes, edges)

    @classmethod
    def of(cls, parts: Iterable[tuple[np.ndarray, np.ndarray | None]], treatment: str) -> "Filling":
        """Make a filling with the weighted means of the training data, given ``sum_known_features`` of each part."""
        nodes, edges = zip(*parts, strict=True)
        edges = [own for own in edges if own is not None]
        return cls(
            MeanFilling.of(np.sum(nodes, axis=0), "X", treatment),
            MeanFilling.of(np.sum(edges, axis=0), "edge_features", treatment) if edges else None,
        )

    def fill(self, encoded: Encoded) -> Encoded:
        """Replace missing values, and append an indicator for each marked feature."""
        parts = {"array": encoded.array, "items": encoded.items}
        if encoded.layout == "list":
            parts["items"] = [self._fill_example(x, i) for i, x in enumerate(encoded.items)]
        else:
            parts["array"] = encoded.map_array(lambda features: self.nodes.fill(features, "X"))
        n_marked = len(self.nodes.marked)
        return replace(
            encoded,
            n_features=encoded.n_features + n_marked,
            n_indicators=n_marked,
            filling=self,
            edge_feature_function=leave_out_added(encoded.edge_feature_function, n_marked),
            **parts,
        )

    def _fill_example(self, x, i):
        """Return example i of X with filled features."""
        found = {"node_features": self.nodes.fill(x.node_features, f"X[{i}]")}
        if self.edges is not None and x.edge_features is not None:
            found["edge_features"] = self.edges.fill(x.edge_features, f"X[{i}].edge_features")
        elif self.edges is not None and len(self.edges.marked) and x.graph.n_edges:
            raise ValueError(
                f"X[{i}] has no edge_features, but edge_features had missing values in fit: pass edge_features or NaN."
            )
        return replace_fields(x, **found)


def sum_known_features(encoded: Encoded, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Sum the known node features of examples, and the edge features if examples were given with any."""
    # weight: (n_examples,), or None if all are one
    # returns: (4, n_features) and (4, n_edge_features)
    weight = np.ones(encoded.n_examples) if weight is None else weight
    edges = list(_iterate_edge_features(encoded, weight))
    return (
        _sum_known(encoded.iterate_nodes(weight), encoded.n_features, "X"),
        _sum_known(edges, edges[0][0].shape[1], "edge_features") if edges else None,
    )


def attributes_of_filling(filling: Filling | None) -> dict[str, np.ndarray | None]:
    """Return the fitted attributes that hold a filling, as a dict with values of None if no feature was missing."""
    parts = (None, None) if filling is None else (filling.nodes, filling.edges)
    return {
        name: value
        for names, part in zip(_ATTRIBUTES, parts, strict=True)
        for name, value in zip(names, (None, None) if part is None else (part.values, part.marked), strict=True)
    }


def _iterate_edge_features(encoded: Encoded, weight: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield given edge features, (n, n_edge_features), and the weights of their edges, (n,)."""
    for x, own in zip(encoded.items if encoded.layout == "list" else (), weight, strict=False):
        if x.edge_features is not None:
            yield x.edge_features, np.full(x.edge_features.shape[0], own)


def append_boundaries(encoded):
    """Append indicators of first and last nodes to the features of sequences; a lone node is both first and last."""
    n_axes = encoded.lattice_ndim or 0
    if n_axes > 1 or (encoded.layout == "array" and encoded.lattice_ndim is None):
        what = f"lattices of {n_axes} axes" if n_axes > 1 else "fields over labels"
        raise ValueError(
            f"boundary_weights=True needs sequences, but X holds {what}, which have no first node: use "
            "boundary_weights=False."
        )
    if encoded.has_operators:
        raise ValueError(
            "boundary_weights=True adds node features, but node_features in X is a linear operator: pass arrays or "
            "sparse matrices."
        )
    parts = {"array": encoded.array, "items": encoded.items}
    if encoded.layout == "nodes":
        parts["array"] = _append_columns(encoded.array, np.ones((encoded.n_examples, 2)))
    elif encoded.layout == "array":
        ends = np.zeros((*encoded.array.shape[:-1], 2))
        ends[:, :1, 0] = ends[:, -1:, 1] = 1
        parts["array"] = _append_columns(encoded.array, ends)
    elif isinstance(encoded.items, ChainList):
        chains = list(map(_append_to_chain, encoded.items.chains))
        parts["items"] = ChainList.of(chains, (encoded.dtype,))
    else:
        parts["items"] = [
            replace_fields(x, node_features=_append_columns(x.node_features, _mark_ends(x))) for x in encoded.items
        ]
    return replace(
        encoded,
        n_features=encoded.n_features + 2,
        has_boundaries=True,
        edge_feature_function=leave_out_added(encoded.edge_feature_function, 2),
        **parts,
    )


def _mark_ends(example):
    """Return the two indicators (first node, last node) of all nodes of an example, (N, 2)."""
    ends = np.zeros((example.n_nodes, 2))
    for k, nodes in enumerate(example.graph.ends):
        ends[nodes, k] = 1
    return ends


def _append_columns(features, columns):
    """Append columns to features, in the format and precision of the features."""
    if sp.issparse(features):
        return sp.hstack([features, columns.astype(features.dtype)], format=features.format)
    return np.concatenate([features, columns.astype(features.dtype)], axis=-1)


def _append_to_chain(features):
    """Append indicators of the first and last node to a chain's features; this is fast for thousands of chains."""
    n_nodes, n_features = features.shape
    if not sp.issparse(features):
        widened = np.zeros((n_nodes, n_features + 2), dtype=features.dtype)
        widened[:, :-2] = features
        widened[0, -2] = widened[-1, -1] = 1
        return widened
    # The indicators are the last columns, so their entries are inserted at the ends of rows.
    places = [features.indptr[1], len(features.indices)]
    indptr = features.indptr.copy()
    indptr[1:] += 1
    indptr[-1] += 1
    indices = np.insert(features.indices, places, [n_features, n_features + 1])
    widened = type(features)((n_nodes, n_features + 2), dtype=features.dtype)
    widened.data, widened.indices, widened.indptr = np.insert(features.data, places, 1), indices, indptr
    return widened
