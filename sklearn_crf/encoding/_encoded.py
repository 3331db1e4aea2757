"""Encoded X (features on graphs), and the outline of an encoded X, which determines the weights of a field."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import convert_to_csr, is_sparse_matrix
from sklearn_crf._threads import cached_property
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._compact_lists import ChainList, RowFields
from sklearn_crf.encoding._edge_features import (
    compute_one_edge,
    difference,
    edge_feature_function,
    get_function_of_inputs,
    leave_out_added,
)
from sklearn_crf.encoding._examples import make_trusted_example
from sklearn_crf.encoding._node_features import OperatorFeatures, SharedRows
from sklearn_crf.graphs import Graph


@dataclass(frozen=True, eq=False)
class Encoded:
    """X converted to features on graphs, with the information needed to convert predictions to the layout of X.

    There are three layouts. ``"nodes"`` is plain scikit-learn data: every row is an isolated node. ``"array"`` is an
    array of lattices of equal shape. ``"list"`` is a list of lattices of any shapes, or of
    :class:`~sklearn_crf.Example`. :func:`encode_X` creates objects of this class.
    """

    layout: str
    n_examples: int
    n_features: int
    lattice_ndim: int | None
    edge_feature_function: Callable
    n_edge_types: int
    n_node_types: int = 1
    array: Any = None  # features, for the layouts "nodes" and "array"
    graph: Any = None  # Graph that all examples share, for the layout "array"
    edge_type: str | np.ndarray | None = None  # "offset", "tied" or an array (E,)
    node_type: np.ndarray | None = None  # (N,)
    items: Any = None  # sequence of Example, only for the layout "list"
    shapes: Any = None
    feature_names: np.ndarray | None = None
    has_boundaries: bool = False  # whether the last two features mark the first and last nodes of sequences
    n_indicators: int = 0  # number of features that mark missing values; they precede the indicators of ends
    filling: Any = None  # Filling of missing values, or None if no feature was missing
    has_nan: bool = False  # whether features are missing and not yet filled

    @property
    def n_added(self) -> int:
        """Number of features, at the end, that were added to the features of X."""
        return 2 * self.has_boundaries + self.n_indicators

    @cached_property
    def representatives(self):
        """Examples that determine the properties of X: all of a list, the first of a ChainList, none of an array."""
        if self.items is None:
            return []
        return self.items[:1] if isinstance(self.items, ChainList) else self.items

    @cached_property
    def filled(self):
        """Return the indices of the examples with nodes, or None if X is an array, or if all examples have nodes."""
        if self.layout != "list" or isinstance(self.items, ChainList) or all(example.n_nodes for example in self.items):
            return None
        return np.flatnonzero([example.n_nodes for example in self.items])

    @property
    def n_filled(self):
        """Number of examples that have nodes."""
        return self.n_examples if self.filled is None else len(self.filled)

    def take(self, indices):
        """Return the examples of a list at the given indices."""
        items = [self.items[i] for i in indices]
        if self.lattice_ndim == 1 and items and np.array_equal(items[0].graph.offsets, [[1]]):
            items = ChainList.of([example.node_features for example in items], (self.dtype,)) or items
        return replace(self, n_examples=len(items), items=items, shapes=[self.shapes[i] for i in indices])

    @property
    def dtype(self):
        """Precision of the features, float32 or float64."""
        if self.layout == "list":
            return self.items[0].node_features.dtype if self.items else np.dtype(np.float64)
        return self.array.dtype

    @property
    def is_sparse(self):
        """Whether the node features of any example are sparse."""
        if self.layout == "list":
            return any(is_sparse_matrix(example.node_features) for example in self.representatives)
        return sp.issparse(self.array)

    @property
    def has_operators(self):
        """Whether the node features of any example are a linear operator."""
        return any(isinstance(example.node_features, OperatorFeatures) for example in self.representatives)

    @cached_property
    def examples(self):
        """List of :class:`~sklearn_crf.Example`, or None for an array of rows, because such a list would take long."""
        if self.layout == "array":
            features = self.array.reshape(self.n_examples, self.graph.n_nodes, self.n_features)
            return [make_trusted_example(x, self.graph, edge_type=self.edge_type) for x in features]
        return self.items

    @property
    def has_factors(self):
        """Whether any example has factors besides nodes and edges."""
        return any(example.has_factors for example in self.representatives)

    @property
    def n_nodes(self):
        """Total number of nodes of all examples."""
        if isinstance(self.items, ChainList):
            return int(self.items.lengths.sum())
        if self.layout == "list":
            return sum(prod(shape) for shape in self.shapes)
        return self.n_examples * (self.graph.n_nodes if self.layout == "array" else 1)

    @cached_property
    def n_edges(self):
        """Total number of edges of all examples."""
        if isinstance(self.items, ChainList):
            return self.n_nodes - self.n_examples
        if self.layout == "list":
            return sum(example.graph.n_edges for example in self.items)
        return self.n_examples * self.graph.n_edges if self.layout == "array" else 0

    @cached_property
    def n_edge_features(self):
        """Dimension R of the features of each edge, which is known even without edges; 0 for an array of rows."""
        return 0 if self.layout == "nodes" else self._some_edge_features.shape[1]

    @property
    def has_own_edges(self):
        """Whether any example was given with edge features, instead of edge features computed from node features."""
        return any(example.edge_features is not None for example in self.representatives)

    @property
    def has_differences(self):
        """Whether all edge features are computed by :func:`difference`."""
        return get_function_of_inputs(self.edge_feature_function) is difference and not self.has_own_edges

    @cached_property
    def has_sparse_edges(self):
        """Whether any edge features, given or computed, are sparse."""
        if any(is_sparse_matrix(example.edge_features) for example in self.representatives):
            return True
        return self.layout != "nodes" and sp.issparse(self._some_edge_features)

    @cached_property
    def _some_edge_features(self):
        if self.layout == "array":
            nodes = self.array[:1].reshape(-1, self.n_features)
            nodes = nodes if len(nodes) else np.zeros((1, self.n_features), self.dtype)
            return compute_one_edge(self.edge_feature_function, nodes)
        for example in self.representatives:
            if example.edge_features is not None:
                return example.edge_features
        nodes = next((x.node_features for x in self.items if x.n_nodes), np.zeros((1, self.n_features)))
        return compute_one_edge(self.edge_feature_function, nodes)

    def label_shape(self, i):
        """Return the shape of the labels of example i."""
        return self.shapes[i] if self.layout == "list" else self.array.shape[1:-1]

    def features_of(self, start, stop):
        """Return the concatenated node features of examples ``start`` to ``stop``, for the layout ``"array"``."""
        # returns: (n_nodes, n_features), or SharedRows
        return self.array[start:stop].reshape(-1, self.n_features)

    def map_array(self, function: Callable) -> Any:
        """Return the array of features after applying a function that processes each node separately."""
        return function(self.array)

    def iterate_nodes(self, weight: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the features (n, n_features) and the weights (n,) of nodes, given the weights of the examples."""
        if self.layout == "nodes":
            yield self.array, weight
            return
        for x, own in zip(self.items if self.layout == "list" else self.array, weight, strict=True):
            rows = x.node_features if self.layout == "list" else x.reshape(-1, self.n_features)
            yield rows, np.full(rows.shape[0], own)

    def n_together(self, max_nodes):
        """Return how many examples fit in a batch of at most ``max_nodes`` nodes, for the layout ``"array"``."""
        return max(1, max_nodes // self.graph.n_nodes)

    @property
    def copied_graph(self) -> Graph | None:
        """Graph of all examples if the examples share a graph and their tables are equal, otherwise None."""
        return None

    def replace_edge_features(self, name):
        """Return a copy that computes edge features by another function, which is given by its name."""
        function = edge_feature_function(name)
        return replace(self, edge_feature_function=leave_out_added(function, self.n_added))


class _EncodedRowFields(Encoded):
    """Encoded :class:`RowFields`: all examples share a graph, and all nodes of an example share a row."""

    def features_of(self, start, stop):
        return SharedRows(self.array[start:stop, 0], self.graph.n_nodes)

    def map_array(self, function: Callable) -> Any:
        return RowFields(function(self.array[:, 0]), self.graph).features

    def iterate_nodes(self, weight: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        yield self.array[:, 0], weight

    def n_together(self, max_nodes):
        share = self.n_examples // _tuning.N_BATCHES
        least, most = (times * max_nodes // self.graph.n_nodes for times in (_tuning.LEAST_TIMES, _tuning.MOST_TIMES))
        return max(1, min(max_nodes, max(least, min(most, share))))

    @property
    def copied_graph(self) -> Graph | None:
        return self.graph

    def replace_edge_features(self, name):
        return self


def n_inputs(encoded):
    """Return the number of features of X, not counting indicators of missing values and of first and last nodes."""
    # encoded: Encoded or Outline
    return encoded.n_features - encoded.n_added


def record_input(encoded, estimator):
    """Set ``n_features_in_``, ``feature_names_in_`` and ``lattice_ndim_`` of an estimator after a successful fit."""
    # encoded: Encoded or Outline
    estimator.n_features_in_ = n_inputs(encoded)
    estimator.lattice_ndim_ = encoded.lattice_ndim
    if encoded.feature_names is not None:
        estimator.feature_names_in_ = encoded.feature_names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def encode_row_fields(X: RowFields, has_nan: bool) -> Encoded:
    """Convert :class:`RowFields` to an :class:`Encoded`."""
    return _EncodedRowFields(
        layout="array",
        n_examples=len(X),
        n_features=X.rows.shape[1],
        lattice_ndim=None,
        edge_feature_function=edge_feature_function("constant"),
        n_edge_types=X.graph.n_edges,
        n_node_types=X.graph.n_nodes,
        array=X.features,
        graph=X.graph,
        edge_type=X.edge_type,
        node_type=X.node_type,
        has_nan=has_nan,
    )


@dataclass(frozen=True, eq=False)
class Outline:
    """Properties of encoded examples on which the weights of a field depend, also for examples in shards."""

    n_features: int
    lattice_ndim: int | None
    is_sparse: bool
    has_operators: bool
    has_sparse_edges: bool
    has_own_edges: bool
    has_differences: bool
    has_factors: bool
    n_edge_features: int
    n_edge_types: int
    n_node_types: int
    n_examples: int
    n_filled: int
    n_nodes: int
    n_edges: int
    feature_names: np.ndarray | None
    has_boundaries: bool
    n_added: int
    filling: Any

    @classmethod
    def of(cls, encoded: Encoded) -> "Outline":
        """Return the outline of encoded examples."""
        return cls(**{name: getattr(encoded, name) for name in cls.__dataclass_fields__})

    @classmethod
    def joined(cls, parts: "Sequence[Outline]", names: Sequence[str]) -> "Outline":
        """Combine the outlines of all shards, after checking that the shards agree."""
        # names: names of the shards, for errors
        first = parts[0]
        for part, name in zip(parts[1:], names[1:], strict=True):
            for field, what in _SHARED.items():
                before, now = getattr(first, field), getattr(part, field)
                if not np.array_equal(before, now):
                    raise ValueError(f"All shards need the same {what}: {names[0]} has {before}, {name} has {now}.")
        most = {name: max(getattr(part, name) for part in parts) for name in ("n_edge_types", "n_node_types")}
        counts = "n_examples", "n_filled", "n_nodes", "n_edges"
        total = {name: sum(getattr(part, name) for part in parts) for name in counts}
        return replace(
            first,
            has_factors=any(part.has_factors for part in parts),
            has_own_edges=any(part.has_own_edges for part in parts),
            has_differences=all(part.has_differences for part in parts),
            **most,
            **total,
        )

    def replace_edge_features(self, name: str) -> "Outline":
        """Return a copy with another function for edge features, see :meth:`Encoded.replace_edge_features`."""
        if self.has_own_edges:
            return self
        function = edge_feature_function(name)
        made = compute_one_edge(function, np.zeros((1, n_inputs(self))))
        return replace(self, n_edge_features=made.shape[1], has_differences=function is difference)


# Properties that must be equal in all shards, and what errors call these properties.
_SHARED = {
    "n_features": "number of features",
    "lattice_ndim": "number of lattice axes",
    "is_sparse": "kind of features (sparse: True, dense: False)",
    "has_operators": "kind of features (linear operators: True)",
    "has_sparse_edges": "kind of edge features (sparse: True, dense: False)",
    "n_edge_features": "number of edge features",
    "feature_names": "names of the columns",
}


def take_examples(values, indices):
    """Return the examples at the given indices, in a container of the original type."""
    if hasattr(values, "iloc"):
        return values.iloc[indices]
    if sp.issparse(values):
        return convert_to_csr(values, "X")[indices]
    if hasattr(values, "shape"):
        return values[indices]
    return [values[i] for i in indices]
