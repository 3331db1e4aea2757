"""Examples: graphs with features, and the batches inference runs on."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from sklearn_crf.graphs import Graph


class Example:
    """One example: a graph whose nodes, and perhaps edges, carry features.

    Parameters
    ----------
    node_features : array-like or sparse matrix of shape (N, F)
        Features of each node, float32 or float64 (anything else becomes float64).
    edges : Graph or array-like of shape (E, 2) of int
        Each undirected edge once; the direction matters to tables that are not symmetric.
    edge_features : array-like or sparse matrix of shape (E, R), optional
        Features of each edge. None leaves them to the estimator's ``edge_features``.
    node_type : array-like of shape (N,) of int, optional
        Nodes of different types have weights of their own.
    edge_type : array-like of shape (E,) of int, optional
        Edges of different types have weights of their own.
    n_states : array-like of shape (N,) of int, optional
        Number of states of each node where they differ: the first ``n_states[s]`` of ``classes_``.

    Raises
    ------
    ValueError
        If shapes do not fit or an edge leaves the graph.
    """

    def __init__(self, node_features, edges, edge_features=None, node_type=None, edge_type=None, n_states=None):
        self.node_features = _as_features(node_features)
        n_nodes = self.node_features.shape[0]
        if edges is None:
            raise ValueError("edges is None: pass an empty list for an example without edges.")
        self.graph = edges if isinstance(edges, Graph) else Graph(n_nodes, edges)
        if self.graph.n_nodes != n_nodes:
            raise ValueError(f"edges is a graph of {self.graph.n_nodes} nodes, node_features has {n_nodes} rows.")
        self.edge_features = _as_edge_features(edge_features, self.graph.n_edges)
        self.node_type = _as_integers(node_type, n_nodes, "node_type", lowest=0)
        self.edge_type = _as_integers(edge_type, self.graph.n_edges, "edge_type", lowest=0)
        self.n_states = _as_integers(n_states, n_nodes, "n_states", lowest=1)

    @classmethod
    def _trusted(cls, node_features, graph, edge_features=None, node_type=None, edge_type=None, n_states=None):
        """Skip the checks, for parts that this package checked itself."""
        example = cls.__new__(cls)
        example.node_features = node_features
        example.graph = graph
        example.edge_features = edge_features
        example.node_type = node_type
        example.edge_type = edge_type
        example.n_states = n_states
        return example

    @property
    def edges(self):
        """(E, 2) int32."""
        return self.graph.edges

    @property
    def n_nodes(self):
        """Number of nodes N."""
        return self.graph.n_nodes

    @property
    def shape(self):
        """Shape of ``node_features``: its last entry is the number of features, as for an array."""
        return self.node_features.shape

    def __repr__(self):
        n_nodes, n_features = self.shape
        return f"Example(n_nodes={n_nodes}, n_features={n_features}, n_edges={self.graph.n_edges})"


def as_numbers(values, name, dtype=None):
    """An array or CSR matrix in ``dtype``, or in float32 or float64 as it is; anything else becomes float64."""
    if sp.issparse(values):
        values = values.tocsr()
    else:
        try:
            values = np.asarray(values)
        except ValueError as error:
            raise ValueError(f"{name} must be a rectangular array: {error}") from error
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold numbers, got {values.dtype}.")
    if dtype is None:
        dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    try:
        return values.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {values.dtype}: {error}") from error


def _as_features(values):
    values = as_numbers(values, "node_features")
    if values.ndim != 2:
        raise ValueError(f"node_features must have shape (n_nodes, n_features), got {values.shape}.")
    return values


def _as_edge_features(values, n_edges):
    if values is None:
        return None
    values = as_numbers(values, "edge_features")
    if values.ndim == 1 and len(values) == n_edges:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] != n_edges:
        raise ValueError(f"edge_features must have shape ({n_edges}, n_edge_features), got {values.shape}.")
    return values


def _as_integers(values, length, name, lowest):
    if values is None:
        return None
    values = np.asarray(values)
    if values.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {values.shape}.")
    if length and (not np.issubdtype(values.dtype, np.integer) or values.min() < lowest):
        raise ValueError(f"{name} must be integers of at least {lowest}, got {values.dtype} from {values.min()}.")
    return np.ascontiguousarray(values, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples on which inference runs at once: their disjoint union, and who is who.

    Forests are packed, many examples a batch, since exact inference treats them apart anyway and one kernel call
    costs less than hundreds. An example with cycles is a batch of its own, so that its result depends on nothing
    else.
    """

    example: Example  # the disjoint union, edge features and types resolved
    members: np.ndarray  # (n,) int64: which examples of X
    node_ptr: np.ndarray  # (n + 1,) int64: nodes of member k are node_ptr[k]:node_ptr[k + 1]
    labels: np.ndarray | None = None  # (N,) int32: column of each node's label, -1 where unlabelled
    weight: np.ndarray | None = None  # (n,) float64: sample_weight of each member; None is 1
    node_weight: np.ndarray | None = None  # (N,) float64: of each node in costs, where a loss has them; None is 1

    @contextmanager
    def named_in_errors(self):
        """Context that says in a ValueError which example of X it is about; an algorithm knows its model alone."""
        try:
            yield
        except ValueError as error:
            first, last = self.members[0], self.members[-1]
            which = f"X[{first}]" if first == last else f"one of X[{first}] to X[{last}]"
            error.args = (f"{which}: {error}",)
            raise
