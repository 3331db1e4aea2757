"""X as features on graphs, whatever form it came in, and its outline, on which weights depend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import is_sparse_matrix
from sklearn_crf._threads import cached_property
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._compact_lists import ChainList
from sklearn_crf.encoding._edge_features import difference, edge_feature_function, of_inputs, one_computed_edge
from sklearn_crf.encoding._examples import trusted_example
from sklearn_crf.encoding._node_features import OperatorFeatures, SharedRows


@dataclass(frozen=True, eq=False)
class Encoded:
    """X as features on graphs, and how predictions go back.

    There are three layouts. ``"nodes"`` is plain scikit-learn data, every row an isolated node. ``"array"`` is
    one array of equal lattices. ``"list"`` is anything ragged, or a list of :class:`~sklearn_crf.Example`.
    :func:`encode_X` makes it.
    """

    layout: str
    n_examples: int
    n_features: int
    lattice_ndim: int | None
    edge_feature_function: Callable  # callable
    n_edge_types: int
    n_node_types: int = 1
    array: Any = None  # of the layouts "nodes" and "array"
    graph: Any = None  # Graph, of the layout "array"
    edge_type: str | np.ndarray | None = None  # {"offset", "tied"} or (E,)
    node_type: np.ndarray | None = None  # (N,)
    items: Any = None  # sequence of Example, of the layout "list", as shapes are
    shapes: Any = None
    feature_names: np.ndarray | None = None
    has_boundaries: bool = False  # whether the last two features say which nodes are the first and last of sequences

    @cached_property
    def representatives(self):
        """Examples of a ``"list"`` that have between them whatever one of all has besides nodes; else none."""
        if self.items is None:
            return []
        return self.items[:1] if isinstance(self.items, ChainList) else self.items

    @property
    def dtype(self):
        """Precision of the features, float32 or float64."""
        return self.items[0].node_features.dtype if self.layout == "list" else self.array.dtype

    @property
    def is_sparse(self):
        """Whether features are sparse, of one example at least."""
        if self.layout == "list":
            return any(is_sparse_matrix(example.node_features) for example in self.representatives)
        return sp.issparse(self.array)

    @property
    def has_operators(self):
        """Whether features are linear operators, of one example at least."""
        return any(isinstance(example.node_features, OperatorFeatures) for example in self.representatives)

    @cached_property
    def examples(self):
        """List of :class:`~sklearn_crf.Example`; None for plain rows, which need no object each."""
        if self.layout == "array":
            features = self.array.reshape(self.n_examples, self.graph.n_nodes, self.n_features)
            return [trusted_example(x, self.graph, edge_type=self.edge_type) for x in features]
        return self.items

    @property
    def has_factors(self):
        """Whether an example has factors besides nodes and edges."""
        return any(example.has_factors for example in self.representatives)

    @property
    def n_nodes(self):
        """Number of nodes of all examples."""
        if isinstance(self.items, ChainList):
            return int(self.items.lengths.sum())
        if self.layout == "list":
            return sum(prod(shape) for shape in self.shapes)
        return self.n_examples * (self.graph.n_nodes if self.layout == "array" else 1)

    @cached_property
    def n_edges(self):
        """Number of edges of all examples."""
        if isinstance(self.items, ChainList):
            return self.n_nodes - self.n_examples
        if self.layout == "list":
            return sum(example.graph.n_edges for example in self.items)
        return self.n_examples * self.graph.n_edges if self.layout == "array" else 0

    @cached_property
    def n_edge_features(self):
        """Number R of features of an edge, also where examples have no edges; 0 for plain rows."""
        return 0 if self.layout == "nodes" else self._some_edge_features.shape[1]

    @property
    def has_own_edges(self):
        """Whether an example brings features of edges."""
        return any(example.edge_features is not None for example in self.representatives)

    @property
    def has_differences(self):
        """Whether all features of edges are differences of the features of their nodes."""
        return self.edge_feature_function in (difference, of_inputs(difference)) and not self.has_own_edges

    @cached_property
    def has_sparse_edges(self):
        """Whether features of edges are sparse, those of one example at least or computed ones."""
        if any(is_sparse_matrix(example.edge_features) for example in self.representatives):
            return True
        return self.layout != "nodes" and sp.issparse(self._some_edge_features)

    @cached_property
    def _some_edge_features(self):
        if self.layout == "array":
            return one_computed_edge(self.edge_feature_function, self.array[0].reshape(-1, self.n_features))
        for example in self.representatives:
            if example.edge_features is not None:
                return example.edge_features
        nodes = next((x.node_features for x in self.items if x.n_nodes), np.zeros((1, self.n_features), self.dtype))
        return one_computed_edge(self.edge_feature_function, nodes)

    def label_shape(self, i):
        """Shape of the labels of example i."""
        if self.layout == "list":
            return self.shapes[i]
        return self.array.shape[1:-1]

    def features_of(self, start, stop):
        """Features of the nodes of some examples of an ``"array"``, one example after the other."""
        # returns: (n_nodes, n_features), or SharedRows
        return self.array[start:stop].reshape(-1, self.n_features)

    def n_together(self, max_nodes):
        """Examples of an ``"array"`` that a batch of so many nodes takes."""
        return max(1, max_nodes // self.graph.n_nodes)

    def with_edge_features(self, name):
        """The same examples with other computed features of edges."""
        function = edge_feature_function(name)
        return replace(self, edge_feature_function=of_inputs(function) if self.has_boundaries else function)


class _EncodedRowFields(Encoded):
    """Those of :class:`RowFields`, whose edges have a constant and no features."""

    def features_of(self, start, stop):
        return SharedRows(self.array[start:stop, 0], self.graph.n_nodes)

    def n_together(self, max_nodes):
        share = self.n_examples // _tuning.N_BATCHES
        least, most = (times * max_nodes // self.graph.n_nodes for times in (_tuning.LEAST_TIMES, _tuning.MOST_TIMES))
        return max(1, min(max_nodes, max(least, min(most, share))))

    def with_edge_features(self, name):
        return self


def n_inputs(encoded):
    """Number of features that X has."""
    # encoded: Encoded or Outline
    return encoded.n_features - 2 * encoded.has_boundaries


def record_input(encoded, estimator):
    """Set ``n_features_in_``, ``feature_names_in_`` and ``lattice_ndim_``, at the end of a fit that succeeded."""
    # encoded: Encoded or Outline
    estimator.n_features_in_ = n_inputs(encoded)
    estimator.lattice_ndim_ = encoded.lattice_ndim
    if encoded.feature_names is not None:
        estimator.feature_names_in_ = encoded.feature_names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def encode_row_fields(X):
    """Read :class:`RowFields`."""
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
    )


@dataclass(frozen=True, eq=False)
class Outline:
    """Properties of encoded examples, which may be elsewhere in parts, that the weights of a field depend on."""

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
    n_nodes: int
    n_edges: int
    feature_names: np.ndarray | None
    has_boundaries: bool

    @classmethod
    def of(cls, encoded: Encoded) -> "Outline":
        """The outline of some examples."""
        return cls(**{name: getattr(encoded, name) for name in cls.__dataclass_fields__})

    @classmethod
    def joined(cls, parts: "Sequence[Outline]", names: Sequence[str]) -> "Outline":
        """The outline of all examples."""
        first = parts[0]
        for part, name in zip(parts[1:], names[1:], strict=True):
            for field, what in _SHARED.items():
                before, now = getattr(first, field), getattr(part, field)
                if not np.array_equal(before, now):
                    raise ValueError(f"All shards need the same {what}: {names[0]} has {before}, {name} has {now}.")
        most = {name: max(getattr(part, name) for part in parts) for name in ("n_edge_types", "n_node_types")}
        total = {name: sum(getattr(part, name) for part in parts) for name in ("n_examples", "n_nodes", "n_edges")}
        return replace(
            first,
            has_factors=any(part.has_factors for part in parts),
            has_own_edges=any(part.has_own_edges for part in parts),
            has_differences=all(part.has_differences for part in parts),
            **most,
            **total,
        )

    def with_edge_features(self, name: str) -> "Outline":
        """The same outline with other computed features of edges, as :meth:`Encoded.with_edge_features`."""
        if self.has_own_edges:
            return self
        function = edge_feature_function(name)
        made = one_computed_edge(function, np.zeros((1, n_inputs(self))))
        return replace(self, n_edge_features=made.shape[1], has_differences=function is difference)


_SHARED = {
    "n_features": "number of features",
    "lattice_ndim": "number of lattice axes",
    "is_sparse": "kind of features (sparse: True, dense: False)",
    "has_operators": "kind of features (linear operators: True)",
    "has_sparse_edges": "kind of edge features (sparse: True, dense: False)",
    "n_edge_features": "number of edge features",
    "feature_names": "names of the columns",
}
