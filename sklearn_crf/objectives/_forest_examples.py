"""Forests with linear scores and true labels, as the kernels of their structured hinges take them."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.potentials import SparsePotentials


class ForestExamples(NamedTuple):
    """The arrays of one batch. Arrays that it does without have length 0."""

    labels: np.ndarray  # (N,) int32
    order: np.ndarray  # (N,) int32 every node after its parent, examples one after the other
    parent: np.ndarray  # (N,) int32, -1 at a root
    half_edge: np.ndarray  # (N,) int32 from each node to its parent
    edges: np.ndarray  # (E, 2) int32
    edge_type: np.ndarray  # (E,) int32
    edge_weight: np.ndarray  # (E, n_edge_features) or (0, 0): one
    node_type: np.ndarray  # (N,) int32 or empty
    state_counts: np.ndarray  # (N,) int32 or empty
    node_ptr: np.ndarray  # (m + 1,) int64
    edge_ptr: np.ndarray  # (m + 1,) int64
    cost: np.ndarray  # (K, K) of the true state, then the other
    node_weight: np.ndarray  # (N,) or empty
    weight: np.ndarray  # (m,) factor of each hinge
    index: np.ndarray  # (K, K) int32 weight of each table entry
    sign: np.ndarray  # (K, K) its factor
    n_columns: int
    n_node_types: int
    n_edge_types: int
    n_edge_features: int
    n_table_weights: int
    constant: float  # feature whose weights are the intercepts; 0 without

    def work_space(self):
        """What a kernel needs for itself beside a vector of weights: numbers, and labels of one example."""
        n_states, largest = len(self.cost), int(np.diff(self.node_ptr).max())
        n_tables = self.n_edge_types * self.n_edge_features
        numbers = np.empty(2 * (n_tables + 1) * n_states**2 + (largest + 1) * n_states)
        return numbers, np.empty(largest, dtype=np.int32)


def are_exact_forests(risk):
    """Whether best labelings are exact by dynamic programming, and kernels read the features.

    Parameters
    ----------
    risk : EmpiricalRisk

    Returns
    -------
    bool
    """
    exact_on, batches = risk.objective.exact_on, risk.batches
    is_dense = not isinstance(risk.potentials, SparsePotentials)
    return is_dense and exact_on in ("any", "forest") and all(batch.example.graph.is_forest for batch in batches)


def forest_examples(batch, potentials, cost, C, constant):
    """The arrays of a batch of forests.

    Parameters
    ----------
    batch : Batch
        With labels.
    potentials : LinearPotentials
    cost : ndarray of shape (K, K)
        Of each state, then the true one.
    C : float
        Factor of the hinge of an example of weight one.
    constant : float
        Feature whose weights are the intercepts.

    Returns
    -------
    ForestExamples
    """
    example, form = batch.example, potentials.form
    graph, features = example.graph, example.node_features
    _, neighbor, half_edge, _ = graph.incidence
    slot = graph.forest.parent_slot
    has_parent = slot >= 0
    parent, to_parent = (np.full(graph.n_nodes, -1, dtype=np.int32) for _ in range(2))
    parent[has_parent], to_parent[has_parent] = neighbor[slot[has_parent]], half_edge[slot[has_parent]]
    none, edge_features = np.zeros(0, dtype=np.int32), example.edge_features
    n_members = len(batch.members)
    return ForestExamples(
        labels=batch.labels,
        order=graph.forest.order,
        parent=parent,
        half_edge=to_parent,
        edges=graph.edges,
        edge_type=np.zeros(graph.n_edges, dtype=np.int32) if example.edge_type is None else example.edge_type,
        edge_weight=np.zeros((0, 0), features.dtype)
        if edge_features is None
        else np.ascontiguousarray(edge_features, dtype=features.dtype),
        node_type=none if example.node_type is None else example.node_type,
        state_counts=none if example.n_states is None else example.n_states,
        node_ptr=batch.node_ptr.astype(np.int64),
        edge_ptr=_edge_ptr(batch),
        cost=np.ascontiguousarray(cost.T),
        node_weight=np.zeros(0) if batch.node_weight is None else batch.node_weight,
        weight=np.full(n_members, float(C)) if batch.weight is None else C * batch.weight,
        index=np.ascontiguousarray(form.index, dtype=np.int32),
        sign=np.ascontiguousarray(form.sign, dtype=np.float64),
        n_columns=potentials.n_columns,
        n_node_types=potentials.n_node_types,
        n_edge_types=potentials.n_edge_types,
        n_edge_features=potentials.n_edge_features,
        n_table_weights=form.n_weights,
        constant=float(constant) if potentials.fit_intercept else 0.0,
    )


def _edge_ptr(batch):
    """(m + 1,) int64: first edge of each member, whose edges come one after the other."""
    before = np.concatenate(([0], np.cumsum(np.bincount(edge_members(batch), minlength=len(batch.members)))))
    return before.astype(np.int64)


def edge_members(batch):
    """Which member of a batch each edge is of.

    Parameters
    ----------
    batch : Batch

    Returns
    -------
    ndarray of shape (E,), int32
    """
    tails = batch.example.graph.edges[:, 0]
    return (np.searchsorted(batch.node_ptr, tails, side="right") - 1).astype(np.int32)
