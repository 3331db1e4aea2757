"""Arrays that describe labelled forests and small graphs with linear scores, for the kernels of hinge losses."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.encoding import SharedRows


class ForestExamples(NamedTuple):
    """Arrays that describe one batch to the kernels; arrays that are not needed have length 0."""

    labels: np.ndarray  # (N,) int32, true label of each node
    order: np.ndarray  # (N,) int32, nodes of each example, parents before children
    parent: np.ndarray  # (N,) int32, parent of each node, -1 at a root
    half_edge: np.ndarray  # (N,) int32, half-edge from each node to its parent
    has_cycles: np.ndarray  # (m,) int32, whether an example has cycles; its labelings are then enumerated
    earlier_ptr: np.ndarray  # (N + 1,) int64, start of each node in ``earlier``
    earlier: np.ndarray  # (E,) int32, half-edges from each node to neighbours with lower numbers
    edges: np.ndarray  # (E, 2) int32, nodes of each edge
    edge_type: np.ndarray  # (E,) int32, type of each edge
    feature_ptr: np.ndarray  # (N + 1,) int64, first sparse feature of each node, or empty if features are dense
    feature_index: np.ndarray  # (nnz,) int32, node type times n_features, plus feature index
    edge_weight: np.ndarray  # (E, n_edge_features), features of each edge, or empty if all features are one
    node_type: np.ndarray  # (N,) int32, type of each node, or empty
    barred: np.ndarray  # (N, K) uint8, whether a state of a node is forbidden, or empty
    node_ptr: np.ndarray  # (m + 1,) int64, first node of each example
    edge_ptr: np.ndarray  # (m + 1,) int64, first edge of each example
    cost: np.ndarray  # (K, K), cost[b, a] of state a if b is the true state
    node_weight: np.ndarray  # (N,), factor by which the costs of each node are multiplied, or empty
    weight: np.ndarray  # (m,), factor by which the hinge of each example is multiplied
    index: np.ndarray  # type: ignore[assignment]  # (K, K) int32, index of the weight of each table entry
    sign: np.ndarray  # (K, K), factor by which the weight of each table entry is multiplied
    forbidden: np.ndarray  # (K, K) uint8, whether a pair of states is forbidden, or empty
    constant: np.ndarray  # (1,), value of the feature whose weights are the intercepts; 0 without intercepts
    features: np.ndarray  # (N / n_sharing, n_features), or (nnz,) sparse features
    n_states: int
    n_members: int
    n_features: int
    n_sharing: int  # number of nodes that share a row of features
    n_columns: int  # number of columns of feature weights, which is 1 for two states
    n_node_types: int
    n_edge_types: int
    n_edge_features: int
    n_table_weights: int

    @property
    def most_features(self):
        """Largest number of sparse feature entries in an example."""
        return int(np.diff(self.feature_ptr[self.node_ptr]).max()) if len(self.feature_ptr) else 0

    def for_kernel(self):
        """Return the address of each array, with 0 for an empty array, followed by the fields that are numbers."""
        return [x if isinstance(x, int) else x.ctypes.data if x.size else 0 for x in self]


def build_forest_examples(batch, potentials, cost, C, constant, sparse=None):
    """Build the :class:`ForestExamples` of a batch of forests or small graphs."""
    # sparse: CSR matrix of sparse node features with separate columns for each node type, or None
    # cost: (K, K), cost[a, b] of predicting a if b is the true state
    # C: factor by which the hinge of an example of weight one is multiplied
    # constant: value of the feature whose weights are the intercepts
    example, form = batch.example, potentials.form
    graph, features = example.graph, example.node_features
    parent, to_parent = graph.parents
    earlier_ptr, earlier = _find_earlier_edges(graph)
    n_members, n_sharing = len(batch.members), 1
    if sparse is not None:
        rows = sparse.data
    elif isinstance(features, SharedRows):
        rows, n_sharing = features.rows, features.n_sharing
    else:
        rows = features
    # Convert each array to its exact type, because kernels read arrays by their addresses.
    arrays = {
        "labels": (batch.labels, np.int32),
        "order": (graph.forest.order, np.int32),
        "parent": (parent, np.int32),
        "half_edge": (to_parent, np.int32),
        "has_cycles": (count_member_cycles(batch) > 0, np.int32),
        "earlier_ptr": (earlier_ptr, np.int64),
        "earlier": (earlier, np.int32),
        "edges": (graph.edges, np.int32),
        "edge_type": (np.zeros(graph.n_edges) if example.edge_type is None else example.edge_type, np.int32),
        "feature_ptr": (None if sparse is None else sparse.indptr, np.int64),
        "feature_index": (None if sparse is None else sparse.indices, np.int32),
        "edge_weight": (example.edge_features, rows.dtype),
        "node_type": (example.node_type, np.int32),
        "barred": (_find_forbidden_states(example, potentials), np.uint8),
        "node_ptr": (batch.node_ptr, np.int64),
        "edge_ptr": (_compute_edge_ptr(batch), np.int64),
        "cost": (cost.T, np.float64),
        "node_weight": (batch.node_weight, np.float64),
        "weight": (np.full(n_members, float(C)) if batch.weight is None else C * batch.weight, np.float64),
        "index": (form.index, np.int32),
        "sign": (form.sign, np.float64),
        "forbidden": (potentials.forbidden, np.uint8),
        "constant": ([constant if potentials.fit_intercept else 0.0], np.float64),
        "features": (rows, rows.dtype),
    }
    return ForestExamples(
        **{
            name: np.ascontiguousarray([] if array is None else array, dtype) for name, (array, dtype) in arrays.items()
        },
        n_states=potentials.n_classes,
        n_members=n_members,
        n_features=features.shape[1],
        n_sharing=n_sharing,
        n_columns=potentials.n_columns,
        n_node_types=potentials.n_node_types,
        n_edge_types=potentials.n_edge_types,
        n_edge_features=potentials.n_edge_features,
        n_table_weights=form.n_weights,
    )


def _find_forbidden_states(example, potentials):
    """Return a mask (N, K) of the forbidden states of nodes, or None if no state is forbidden."""
    n_states, ends = example.n_states, potentials.forbidden_ends
    if n_states is None and ends is None:
        return None
    scores = np.zeros((example.n_nodes, potentials.n_classes))
    if n_states is not None:
        scores[np.arange(potentials.n_classes) >= n_states[:, None]] = -np.inf
    return np.isneginf(potentials.forbid_ends(scores, *example.graph.ends))


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
    """Return each node's half-edges to lower-numbered neighbours, as start positions and one joined list."""
    tail, head = graph.edges.T
    half_edge = 2 * np.arange(graph.n_edges, dtype=np.int32) + (tail < head)
    later = np.maximum(tail, head)
    order = np.argsort(later, kind="stable")
    counts = np.bincount(later, minlength=graph.n_nodes)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), half_edge[order].astype(np.int32)


def map_edges_to_members(batch):
    """Return, for each edge of a batch, the index of its example."""
    # returns: (E,) int32, index of the example of each edge
    tails = batch.example.graph.edges[:, 0]
    return (np.searchsorted(batch.node_ptr, tails, side="right") - 1).astype(np.int32)
