"""Arrays of labelled forests and small graphs with linear scores, for the kernels of structured hinges."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import allocate_workspace
from sklearn_crf.encoding import SharedRows


class ForestExamples(NamedTuple):
    """Arrays of one batch for the kernels; arrays that are not needed have length 0."""

    labels: np.ndarray  # (N,) int32, true label of each node
    order: np.ndarray  # (N,) int32, nodes of each example, parents before children
    parent: np.ndarray  # (N,) int32, parent of each node, -1 at a root
    half_edge: np.ndarray  # (N,) int32, half-edge from each node to its parent
    has_cycles: np.ndarray  # (m,) int32, whether an example has cycles, so that its labelings are enumerated
    earlier_ptr: np.ndarray  # (N + 1,) int64, start of each node in ``earlier``
    earlier: np.ndarray  # (E,) int32, half-edges from each node to neighbours with lower numbers
    edges: np.ndarray  # (E, 2) int32, nodes of each edge
    edge_type: np.ndarray  # (E,) int32, type of each edge
    feature_ptr: np.ndarray  # (N + 1,) int64, first sparse feature of each node, or empty for dense features
    feature_index: np.ndarray  # (nnz,) int32, node type times n_features, plus index of the feature
    edge_weight: np.ndarray  # (E, n_edge_features), features of each edge, or (0, 0) for ones
    node_type: np.ndarray  # (N,) int32, type of each node, or empty
    barred: np.ndarray  # (N, K) uint8, whether a state of a node is forbidden, or (0, 0)
    node_ptr: np.ndarray  # (m + 1,) int64, first node of each example
    edge_ptr: np.ndarray  # (m + 1,) int64, first edge of each example
    cost: np.ndarray  # (K, K), cost by true state, then other state
    node_weight: np.ndarray  # (N,), multiplies the costs of each node, or empty
    weight: np.ndarray  # (m,), multiplies the hinge of each example
    index: np.ndarray  # type: ignore[assignment]  # (K, K) int32, index of the weight of each table entry
    sign: np.ndarray  # (K, K), multiplies the weight of each table entry
    forbidden: np.ndarray  # (K, K) uint8, whether a pair of states is forbidden, or (0, 0)
    n_features: int
    n_sharing: int  # number of nodes that share a row of features
    n_columns: int
    n_node_types: int
    n_edge_types: int
    n_edge_features: int
    n_table_weights: int
    constant: float  # value of the feature whose weights are the intercepts; 0 without intercepts

    @property
    def most_features(self):
        """Largest number of sparse feature entries in an example."""
        return int(np.diff(self.feature_ptr[self.node_ptr]).max()) if len(self.feature_ptr) else 0

    def workspace(self, n):
        """Return the float and integer workspaces of a kernel for n weights."""
        n_states, largest = len(self.cost), int(np.diff(self.node_ptr).max())
        n_tables, width = self.n_edge_types * self.n_edge_features, n_states + n_states % 2
        tables = (2 * n_tables + 1) * n_states * width + width
        numbers = allocate_workspace(tables + (2 * n_states + 1) * largest + self.n_features + 1 + n)
        integers = allocate_workspace(2 * largest + self.n_features + 1 + 2 * n, np.int32)
        integers[:] = 0
        return numbers, integers


def build_forest_examples(batch, potentials, cost, C, constant, sparse=None):
    """Build the :class:`ForestExamples` of a batch of forests or small graphs."""
    # sparse: CSR matrix of sparse node features with separate columns for each node type, or None
    # cost: (K, K), cost by predicted state, then true state
    # C: multiplies the hinge of an example of weight one
    # constant: value of the feature whose weights are the intercepts
    example, form = batch.example, potentials.form
    graph, features = example.graph, example.node_features
    parent, to_parent = graph.parents
    cyclic = count_member_cycles(batch) > 0
    earlier_ptr, earlier = _find_earlier_edges(graph)
    none, edge_features = np.zeros(0, dtype=np.int32), example.edge_features
    n_members = len(batch.members)
    return ForestExamples(
        labels=batch.labels,
        order=graph.forest.order,
        parent=parent,
        half_edge=to_parent,
        has_cycles=cyclic.astype(np.int32),
        earlier_ptr=earlier_ptr,
        earlier=earlier,
        edges=graph.edges,
        edge_type=np.zeros(graph.n_edges, dtype=np.int32) if example.edge_type is None else example.edge_type,
        feature_ptr=np.zeros(0, dtype=np.int64) if sparse is None else sparse.indptr.astype(np.int64),
        feature_index=none if sparse is None else sparse.indices.astype(np.int32, copy=False),
        edge_weight=np.zeros((0, 0), features.dtype)
        if edge_features is None
        else np.ascontiguousarray(edge_features, dtype=features.dtype),
        node_type=none if example.node_type is None else example.node_type,
        barred=_mask_forbidden_states(example, potentials),
        node_ptr=batch.node_ptr.astype(np.int64),
        edge_ptr=_compute_edge_ptr(batch),
        cost=np.ascontiguousarray(cost.T),
        node_weight=np.zeros(0) if batch.node_weight is None else batch.node_weight,
        weight=np.full(n_members, float(C)) if batch.weight is None else C * batch.weight,
        index=np.ascontiguousarray(form.index, dtype=np.int32),
        sign=np.ascontiguousarray(form.sign, dtype=np.float64),
        forbidden=np.zeros((0, 0), np.uint8)
        if potentials.forbidden is None
        else np.ascontiguousarray(potentials.forbidden, dtype=np.uint8),
        n_features=features.shape[1],
        n_sharing=features.n_sharing if isinstance(features, SharedRows) else 1,
        n_columns=potentials.n_columns,
        n_node_types=potentials.n_node_types,
        n_edge_types=potentials.n_edge_types,
        n_edge_features=potentials.n_edge_features,
        n_table_weights=form.n_weights,
        constant=float(constant) if potentials.fit_intercept else 0.0,
    )


def _mask_forbidden_states(example, potentials):
    """Return a mask of the forbidden states of nodes, (N, K) uint8, or (0, 0) if no state is forbidden."""
    n_states, ends = example.n_states, potentials.forbidden_ends
    if n_states is None and ends is None:
        return np.zeros((0, 0), np.uint8)
    scores = np.zeros((example.n_nodes, potentials.n_classes))
    if n_states is not None:
        scores[np.arange(potentials.n_classes) >= n_states[:, None]] = -np.inf
    return np.isneginf(potentials.forbid_ends(scores, *example.graph.ends)).astype(np.uint8)


def _compute_edge_ptr(batch):
    """Return the index of the first edge of each example, followed by the number of edges."""
    before = np.concatenate(([0], np.cumsum(np.bincount(map_edges_to_members(batch), minlength=len(batch.members)))))
    return before.astype(np.int64)


def count_member_cycles(batch):
    """Return the number of independent cycles of each example of a batch."""
    # returns: (m,), number of cycles of each example
    components = np.maximum.reduceat(batch.example.graph.component, batch.node_ptr[:-1]) + 1
    n_components = np.diff(components, prepend=0)
    return np.diff(_compute_edge_ptr(batch)) - np.diff(batch.node_ptr) + n_components


def _find_earlier_edges(graph):
    """Return the start of each node in a list of half-edges to neighbours with lower numbers, and the list."""
    tail, head = graph.edges.T
    half_edge = 2 * np.arange(graph.n_edges, dtype=np.int32) + (tail < head)
    later = np.maximum(tail, head)
    order = np.argsort(later, kind="stable")
    counts = np.bincount(later, minlength=graph.n_nodes)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), half_edge[order].astype(np.int32)


def map_edges_to_members(batch):
    """Return for each edge of a batch the index of its example."""
    # returns: (E,) int32, index of the example of each edge
    tails = batch.example.graph.edges[:, 0]
    return (np.searchsorted(batch.node_ptr, tails, side="right") - 1).astype(np.int32)
