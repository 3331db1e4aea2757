"""Potentials whose models include costs of errors on edges, given the true labels of the edges."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_crf.encoding import replace_fields
from sklearn_crf.potentials._extended import ExtendedPotentials
from sklearn_crf.potentials._linear import LinearPotentials
from sklearn_crf.potentials._sparse import SparseEdgePotentials, SparsePotentials


class _LinearWithCosts(LinearPotentials):
    """:class:`LinearPotentials` with costs of edges.

    An edge has type ``t * n_kinds + k`` if its original type is t and its labels have costs of kind k.
    """

    edge_costs: np.ndarray

    def compute_scores_and_tables(self, coef, example, unary_of=None):
        unary, tables = super().compute_scores_and_tables(coef, example, unary_of)
        costs = np.tile(self.edge_costs, (len(tables), 1, 1))[:, None].astype(tables.dtype)
        tables = np.repeat(tables, len(self.edge_costs), axis=0)
        if super().compute_edge_layout(example)[2] is None:
            return unary, tables + costs
        return unary, np.concatenate([tables, costs], axis=1)

    def compute_edge_layout(self, example):
        (n_types, n_features), edge_type, features = super().compute_edge_layout(example)
        shape = n_types * len(self.edge_costs), n_features
        if features is None:
            return shape, edge_type, None
        ones = np.ones((len(features), 1), dtype=features.dtype)
        return (shape[0], n_features + 1), edge_type, np.concatenate([features, ones], axis=1)

    def _compute_edge_gradient(self, tables):
        n_types = tables.shape[-4] // len(self.edge_costs)
        split = tables.reshape(*tables.shape[:-4], n_types, len(self.edge_costs), *tables.shape[-3:])
        return super()._compute_edge_gradient(split.sum(axis=-4))


class _SparseWithCosts(_LinearWithCosts, SparsePotentials):
    """:class:`SparsePotentials` with costs of edges."""


class _SparseEdgesWithCosts(SparseEdgePotentials):
    """:class:`SparseEdgePotentials` with costs of edges; even without costs, every edge has a separate table."""

    edge_costs: np.ndarray

    def compute_scores_and_tables(self, coef, example, unary_of=None):
        unary, tables = super().compute_scores_and_tables(coef, example, unary_of)
        if example.graph.n_edges:
            tables = tables + self.edge_costs[example.edge_type % len(self.edge_costs)][:, None].astype(tables.dtype)
        return unary, tables


_WITH_COSTS: dict[type, Any] = {
    LinearPotentials: _LinearWithCosts,
    SparsePotentials: _SparseWithCosts,
    SparseEdgePotentials: _SparseEdgesWithCosts,
}


def add_edge_costs(potentials: Any, cost: np.ndarray, batches: list) -> tuple[Any, list]:
    """Return potentials whose models include the costs of edges, and batches that contain the true labels of edges.

    Costs are zero for the true labels, and for edges with an unlabelled end. Every loss of these models is therefore
    loss-augmented. The weights have the same layout as in the given potentials.
    """
    # cost: (K, K, K, K), ``cost[a, b, c, d]`` of labelling the ends of an edge a and b if their labels are c and d
    n_classes = potentials.n_classes
    by_truth = cost.transpose(2, 3, 0, 1).reshape(n_classes**2, n_classes**2)
    # The last row contains the costs of unlabelled edges. Equal cost tables are stored only once.
    tables, kind = np.unique(np.vstack([by_truth, np.zeros(n_classes**2)]), axis=0, return_inverse=True)
    costs, kind = tables.reshape(-1, n_classes, n_classes), kind.ravel()

    def mark(batch):
        example = batch.example
        if not example.graph.n_edges:
            return batch
        tail, head = batch.counted_labels[example.graph.edges.T]
        is_known = (tail >= 0) & (head >= 0)
        own = kind[np.where(is_known, tail * n_classes + head, n_classes**2)]
        edge_type = own if example.edge_type is None else example.edge_type.astype(np.int64) * len(costs) + own
        # Computed edge features are stored, because they may depend on the original types of edges.
        marked = replace_fields(example, edge_features=example.edge_features, edge_type=edge_type.astype(np.int32))
        return replace(batch, example=marked)

    return _with_costs(potentials, costs), [mark(batch) for batch in batches]


def _with_costs(potentials, costs):
    if isinstance(potentials, ExtendedPotentials):
        found = copy(potentials)
        found.pairwise = _with_costs(potentials.pairwise, costs)
        return found
    found = object.__new__(_WITH_COSTS[type(potentials)])
    vars(found).update(vars(potentials), edge_costs=costs)
    return found
