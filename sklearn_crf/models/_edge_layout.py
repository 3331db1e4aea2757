"""Tables, types and weights of the edges in pairwise models."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from sklearn_crf._numbers import as_integers, as_scores, check_product, sum_squares


class EdgeLayout:
    """Types and weights of edges, shared by models that differ only in their scores, and a cache of derived data."""

    # edge_type: (E,), int32; edge_weight: (E, R) or None

    def __init__(self, edge_type: np.ndarray, edge_weight: np.ndarray | None) -> None:
        self.edge_type = edge_type
        self.edge_weight = edge_weight
        self.kept: dict[Hashable, Any] = {}
        self._squares = None if edge_weight is None else sum_squares(edge_weight)

    @classmethod
    def of(cls, edge_type, edge_weight, n_edges, n_types, n_features, dtype):
        """Check edge types and weights for tables of shape (n_types, n_features, K, K), and return the layout."""
        edge_type = check_edge_type(edge_type, n_edges, n_types, "tables")
        return cls(edge_type, _check_edge_weight(edge_weight, n_edges, n_features, dtype))

    def check_product(self, tables):
        """Raise ValueError if products of weights and tables are undefined or may exceed the limit on scores."""
        weight = self.edge_weight
        if weight is None or not len(weight):
            return
        if tables.min(initial=0.0) == -np.inf:
            # forbids: (T, R), True for tables that contain -inf, whose weights must be positive
            forbids = np.isneginf(tables).any(axis=(2, 3))
            if np.any(forbids[self.edge_type] & (weight <= 0)):
                raise ValueError(
                    "tables with -inf need a positive edge_weight of their feature on every edge: 0 * -inf has no "
                    "meaning. Keep -inf in the table of a feature that is 1 everywhere."
                )
        check_product(weight, tables, "edge_weight times tables", self._squares)


def check_edge_type(edge_type: np.ndarray | None, n_edges: int, n_types: int, name: str) -> np.ndarray:
    """Return edge types as contiguous int32, after checking that each type is a row of the field ``name``."""
    if n_types < 1 and n_edges:
        raise ValueError(f"{name} has no edge type, but the graph has edges.")
    if edge_type is None:
        return np.zeros(n_edges, dtype=np.int32)
    return as_integers(edge_type, "edge_type", shape=(n_edges,), lowest=0, highest=n_types - 1)


def _check_edge_weight(edge_weight, n_edges, n_features, dtype):
    if edge_weight is None:
        if n_features != 1 and n_edges:
            raise ValueError(f"tables has {n_features} features, so edge_weight must be given.")
        return None if n_features == 1 else np.zeros((0, n_features), dtype=dtype)
    edge_weight = as_scores(edge_weight, "edge_weight", dtype, may_forbid=False)
    if edge_weight.ndim == 1:
        edge_weight = edge_weight[:, None]
    if edge_weight.shape != (n_edges, n_features):
        raise ValueError(f"edge_weight must have shape ({n_edges}, {n_features}), got {edge_weight.shape}.")
    return np.ascontiguousarray(edge_weight)
