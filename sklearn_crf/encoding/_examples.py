"""Examples (graphs with features), examples that compute edge features, and batches, on which inference runs."""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sklearn_crf._numbers import as_integers, as_reals
from sklearn_crf._own_methods import restoring
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._edge_features import (
    compute_edge_features,
    constant,
    difference,
    scale_edge_features,
    sum_weighted_edges,
    weighted_differences,
)
from sklearn_crf.encoding._node_features import OperatorFeatures, SharedRows, is_operator
from sklearn_crf.graphs import Graph, build_trusted_graph
from sklearn_crf.models._factor_tables import iterate_factor_pairs


class Factors(NamedTuple):
    """All factors of one type in an example."""

    scope: np.ndarray  # (n_factors, arity) int32: the nodes of each factor
    features: np.ndarray | None = None  # (n_factors, R) float64; None means a single feature equal to 1


# Attributes of :class:`Example`, in the order of the parameters of its constructor.
FIELDS = "node_features", "graph", "edge_features", "node_type", "_edge_type", "n_states", "factors", "fixed_factors"


class Example:
    """One example: a graph whose nodes, and optionally edges, have features.

    Parameters
    ----------
    node_features : array-like, sparse matrix or linear operator of shape (N, F)
        Features of each node. Any type other than float32 and float64 becomes float64. A linear operator is any object
        with ``shape`` and real products ``@`` and ``.T @`` with two-dimensional arrays, such as
        :class:`scipy.sparse.linalg.LinearOperator` or a result of :class:`~sklearn_crf.preprocessing.PatchOverlays`.
        Features that would not fit in memory then need not be stored. Several threads may compute its products at the
        same time.
    edges : Graph, array-like of shape (E, 2) or (2, E) of int, sparse matrix of shape (N, N), or networkx graph
        Each undirected edge once, in any form that :class:`Graph` accepts. The order of the two nodes only matters if
        tables are not symmetric.
    edge_features : array-like or sparse matrix of shape (E, R), optional
        Features of each edge. If None, the estimator computes them according to its parameter ``edge_features``.
    node_type : array-like of shape (N,) of int, optional
        Type of each node. Each type has its own weights.
    edge_type : array-like of shape (E,) of int, optional
        Type of each edge. Each type has its own weights.
    n_states : array-like of shape (N,) of int, optional
        Number of states of each node, if nodes differ. The states of node s are the first ``n_states[s]`` classes of
        ``classes_``.
    factors : dict of str to array-like of shape (n_factors, arity) of int, optional
        Factors of any number of nodes, by the name of their type. A row lists the nodes of a factor, in an order that
        has the same meaning for all factors of the type. Each type has its own weights, which all its factors share in
        all examples. If factors have features, the value is a pair of the nodes and an array of features, of shape
        (n_factors, R).
    fixed_factors : list of (scope, table), optional
        Factors with given scores that are not learned, in the form that
        :meth:`~sklearn_crf.models.FactorGraph.from_factors` accepts, such as the hard constraint
        :func:`~sklearn_crf.models.exactly_one`. To apply constraints at prediction only, add them to the examples to
        predict (:meth:`with_fixed_factors`).

    Raises
    ------
    ValueError
        If shapes do not match, an edge or factor contains a node that does not exist, or a factor contains a node
        twice.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Example, TRWCRF
    >>> X = [
    ...     Example([[1.0], [0.9], [0.1]], edges=[[0, 1], [1, 2]]),
    ...     Example([[0.0], [0.8]], edges=[[0, 1]]),
    ... ]
    >>> X[0]
    Example(n_nodes=3, n_features=1, n_edges=2)
    >>> TRWCRF(edge_features="constant").fit(X, [[1, 1, 0], [0, 1]]).predict(X)[0]
    array([1, 1, 0])
    """

    #: Features of runs of nodes, or None. Potentials of segments define them as a named tuple of arrays.
    run_features: Any = None
    #: Whether edge features are stored in memory, instead of computed whenever they are read
    stores_edges = True

    def __init__(
        self,
        node_features: Any,
        edges: Any,
        edge_features: Any = None,
        node_type: Any = None,
        edge_type: Any = None,
        n_states: Any = None,
        factors: Any = None,
        fixed_factors: Any = None,
    ) -> None:
        self._set(node_features, edges, edge_features, node_type, edge_type, n_states, factors, fixed_factors)

    def _set(self, node_features, edges, edge_features, node_type, edge_type, n_states, factors, fixed_factors):
        """Set the fields of the example, after checking their values."""
        self.node_features = _as_features(node_features)
        n_nodes = self.node_features.shape[0]
        if edges is None:
            raise ValueError("edges is None: pass an empty list for an example without edges.")
        self.graph = edges if isinstance(edges, Graph) else Graph(n_nodes, edges)
        if self.graph.n_nodes != n_nodes:
            raise ValueError(f"edges is a graph of {self.graph.n_nodes} nodes, but node_features has {n_nodes} rows.")
        self.edge_features = _as_edge_features(edge_features, self.graph.n_edges)
        self.node_type = _as_integers(node_type, n_nodes, "node_type", lowest=0)
        # Edge types "offset" and "tied" are only passed by this package, for lattices.
        if isinstance(edge_type, str) and edge_type in ("offset", "tied") and self.graph.offsets is not None:
            self._edge_type = edge_type
        else:
            self._edge_type = _as_integers(edge_type, self.graph.n_edges, "edge_type", lowest=0)
        self.n_states = _as_integers(n_states, n_nodes, "n_states", lowest=1)
        if not isinstance(factors, Mapping | None):
            raise ValueError(f"factors must be a dict that maps names to nodes, got {type(factors).__name__}.")
        named = {name: _as_factors(value, name, n_nodes) for name, value in (factors or {}).items()}
        # An example with few nodes may have no factors of a type with many nodes.
        self.factors = {name: found for name, found in named.items() if len(found.scope)}
        self.fixed_factors = _as_fixed_factors([] if fixed_factors is None else fixed_factors, n_nodes)

    def __setstate__(self, state):
        # Pickles made by older versions lack the fields that were added later.
        self.__dict__.update(dict.fromkeys(FIELDS) | state)
        with restoring(self):
            self._set(*(getattr(self, name) for name in FIELDS))

    @property
    def edge_type(self) -> Any:
        """Type of each edge, (E,) int32; None means that all edges have one type."""
        return choose_edge_types(self._edge_type, self.graph)

    @edge_type.setter
    def edge_type(self, edge_type):
        self._edge_type = edge_type

    def _with(self, **fields):
        """Return a copy with the given fields replaced, without checks."""
        example = object.__new__(type(self))
        # For many thousands of copies, copy.copy would take several times as long as this update.
        example.__dict__.update(self.__dict__)
        for name, value in fields.items():
            setattr(example, name, value)
        return example

    @property
    def is_plain_lattice(self) -> bool:
        """Whether the example has nothing but dense node features on a lattice."""
        has_own = self.node_type is not None or self.n_states is not None or self.has_factors
        is_dense = isinstance(self.node_features, np.ndarray)
        return is_dense and self._has_no_edge_features and isinstance(self._edge_type, str) and not has_own

    @property
    def _has_no_edge_features(self):
        return self.edge_features is None

    @property
    def has_quick_edges(self) -> bool:
        """Whether computing edge features takes no longer than reading stored scores of edges."""
        return True

    def rows(self, start: int, stop: int) -> "Example":
        """Return the part of a plain lattice between two indices of its first axis.

        Parameters
        ----------
        start, stop : int

        Returns
        -------
        Example
            The part, with all edges that have both ends in it.
        """
        shape, offsets = self.graph.shape, self.graph.offsets
        assert shape is not None
        width = self.n_nodes // shape[0]
        n_nodes = (stop - start) * width
        # Parts of equal height share a graph, so that its edges and neighbours are listed only once.
        height = stop - start
        graph = self.graph.keep(
            ("rows", height), lambda: build_trusted_graph(n_nodes, None, (height, *shape[1:]), offsets)
        )
        features = self.node_features[start * width : stop * width]
        return make_trusted_example(features, graph, edge_type=self._edge_type)

    def with_fixed_factors(self, fixed_factors: Any) -> "Example":
        """Return a copy of the example with other fixed factors, such as constraints that only apply at prediction.

        Parameters
        ----------
        fixed_factors : list of (scope, table)
            New factors, in the form of the constructor's parameter. The new factors replace the present fixed factors.

        Returns
        -------
        Example
        """
        return self._with(fixed_factors=_as_fixed_factors(fixed_factors, self.n_nodes))

    @property
    def edges(self) -> np.ndarray:
        """The two nodes of every edge, (E, 2) int32."""
        return self.graph.edges

    @property
    def n_nodes(self) -> int:
        """Number of nodes, N."""
        return self.graph.n_nodes

    @property
    def has_factors(self) -> bool:
        """Whether there are factors besides nodes and edges."""
        return bool(self.factors or self.fixed_factors)

    @property
    def is_forest(self) -> bool:
        """Whether nodes, edges and factors form no cycle."""
        if not self.has_factors:
            return self.graph.is_forest
        scopes = [*self.edges, *(nodes for found in self.factors.values() for nodes in found.scope)]
        scopes += [scope for scope, _ in self.fixed_factors if len(scope)]
        arity = np.array([len(scope) for scope in scopes])
        owner = self.n_nodes + np.repeat(np.arange(len(arity)), arity)
        size = self.n_nodes + len(arity)
        ends = np.ones(len(owner), dtype=np.int8), (np.concatenate(scopes), owner)
        n_components = connected_components(sp.coo_matrix(ends, shape=(size, size)), directed=False)[0]
        return len(owner) == size - n_components

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of ``node_features``, whose last entry is the number of features, as for an array."""
        return self.node_features.shape

    def __repr__(self):
        n_nodes, n_features = self.shape
        shown = f"n_nodes={n_nodes}, n_features={n_features}, n_edges={self.graph.n_edges}"
        if self.has_factors:
            shown += f", n_factors={sum(len(found.scope) for found in self.factors.values()) + len(self.fixed_factors)}"
        return f"Example({shown})"


class ComputedEdges(Example):
    """Example that computes its edge features whenever they are read."""

    stores_edges = False

    def __init__(self, example, function):
        # All fields are copied except edge features, which this class computes in a property.
        for name in FIELDS:
            if name != "edge_features":
                setattr(self, name, getattr(example, name))
        # Edge features are computed from the original node features, even if ``node_features`` is later scaled.
        self._source = example.node_features
        self._scale = None
        self._function = function

    def __setstate__(self, state):
        self.__dict__.update(state)

    @property
    def has_constant_edges(self):
        """Whether each edge has a single feature, which is 1."""
        return self._function is constant and self._scale is None

    @property
    def _has_no_edge_features(self):
        return self._scale is None and self._source is self.node_features

    @property
    def has_quick_edges(self):
        return self._function is constant or (self._function is difference and self.shape[1] <= _tuning.FEW_FEATURES)

    def rows(self, start, stop):
        return ComputedEdges(super().rows(start, stop), self._function)

    @property
    def edge_features(self):
        features = compute_edge_features(self._function, self._source, self.graph.edges, self.graph)
        return features if self._scale is None else scale_edge_features(features, self.edge_type, self._scale)

    def _with(self, **fields):
        if "edge_features" not in fields:
            return super()._with(**fields)
        # If new edge features are given, the copy stores them and computes none.
        plain = make_trusted_example(
            self.node_features, self.graph, None, self.node_type, self._edge_type, self.n_states
        )
        return replace_fields(plain, factors=self.factors, fixed_factors=self.fixed_factors, **fields)


def make_trusted_example(node_features, graph, edge_features=None, node_type=None, edge_type=None, n_states=None):
    """Make an example without checks, from parts that this package has already checked."""
    example = Example.__new__(Example)
    example.node_features = node_features
    example.graph = graph
    example.edge_features = edge_features
    example.node_type = node_type
    example._edge_type = edge_type
    example.n_states = n_states
    example.factors, example.fixed_factors = {}, []
    return example


def replace_fields(example, **fields):
    """Return a copy of an example with the given fields replaced, without checks."""
    return example._with(**fields)


def copy_with_scaled_edges(example, scale):
    """Return a copy of an example whose edge features are divided by the scales of their types, (n_edge_types, R)."""
    if isinstance(example, ComputedEdges):
        return example._with(_scale=scale)
    if example.edge_features is None:
        return example
    return example._with(edge_features=scale_edge_features(example.edge_features, example.edge_type, scale))


def sum_edges_of_example(example, weights):
    """Return, for each edge, the sum of its features, each multiplied by its weight for the edge's type."""
    if isinstance(example, ComputedEdges) and example._function is difference and example._scale is None:
        return weighted_differences(example._source, example.graph.edges, example.edge_type, weights)
    return sum_weighted_edges(example.edge_features, example.edge_type, weights)


def get_stored_edge_types(example):
    """Return the edge types in stored form: an array, None, or the name of a rule for the edges of a lattice."""
    return example._edge_type


def _as_features(values):
    if isinstance(values, SharedRows):
        return values
    if isinstance(values, OperatorFeatures):
        values.check("node_features")
        return values
    if is_operator(values):
        return OperatorFeatures.checked(values, "node_features")
    values = as_reals(values, "node_features")
    if values.ndim != 2:
        raise ValueError(f"node_features must have shape (n_nodes, n_features), got {values.shape}.")
    return values


def choose_edge_types(types, graph):
    """Convert edge types to an array (E,) int32, from an array, a rule ("offset" or "tied") or None (one type)."""
    if not isinstance(types, str):
        return types
    return graph.lattice_edge_type if types == "offset" else np.zeros(graph.n_edges, dtype=np.int32)


def _as_edge_features(values, n_edges):
    if values is None:
        return None
    values = as_reals(values, "edge_features")
    if values.ndim == 1 and len(values) == n_edges:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] != n_edges:
        raise ValueError(f"edge_features must have shape ({n_edges}, n_edge_features), got {values.shape}.")
    return values


def _as_integers(values, length, name, lowest):
    if values is None:
        return None
    return as_integers(values, name, shape=(length,), lowest=lowest)


def _as_factors(value, name, n_nodes):
    if not isinstance(name, str):
        raise ValueError(f"The keys of factors are names of factor types and must be strings, got {name!r}.")
    scope, features = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    what = f"factors[{name!r}]"
    scope = as_integers(scope, what)
    if not scope.size:
        return Factors(np.zeros((0, 1), dtype=np.int32))
    if scope.ndim != 2:
        raise ValueError(f"{what} must be integers of shape (n_factors, arity), got shape {scope.shape}.")
    for nodes in scope:
        _check_scope(nodes, n_nodes, what)
    if features is None:
        return Factors(scope)
    features = as_reals(features, f"features of {what}", np.float64)
    if features.ndim != 2 or len(features) != len(scope) or not np.all(np.isfinite(features)):
        raise ValueError(
            f"features of {what} must be finite numbers of shape ({len(scope)}, n_features), got {features.shape}."
        )
    return Factors(scope, features)


def _as_fixed_factors(factors, n_nodes):
    found = []
    for f, (scope, table) in enumerate(iterate_factor_pairs(factors, "fixed_factors")):
        scope = as_integers(scope, f"the scope of fixed_factors[{f}]").ravel()
        _check_scope(scope, n_nodes, f"fixed_factors[{f}]")
        found.append((scope, table))
    return found


def join_factors(examples):
    """Join the factors and the fixed factors of examples to the factors of their disjoint union."""
    first = np.cumsum([0, *(example.n_nodes for example in examples[:-1])]).tolist()
    found: dict[str, Any] = {}
    fixed_factors = []
    for example, start in zip(examples, first, strict=True):
        for name, (scope, features) in example.factors.items():
            found.setdefault(name, []).append((scope + np.int32(start), features))
        fixed_factors += [(scope + np.int32(start), table) for scope, table in example.fixed_factors]
    factors = {}
    for name, parts in found.items():
        scopes, features = zip(*parts, strict=True)
        if any(rows is not None for rows in features):
            ones = [np.ones((len(scope), 1)) for scope in scopes]
            features = [one if rows is None else rows for rows, one in zip(features, ones, strict=True)]
        factors[name] = Factors(np.concatenate(scopes), None if features[0] is None else np.concatenate(features))
    return factors, fixed_factors


def _check_scope(nodes, n_nodes, what):
    if len(nodes) and (nodes.min() < 0 or nodes.max() >= n_nodes):
        raise ValueError(f"{what} has the nodes {nodes.tolist()}, but nodes are numbered 0 to {n_nodes - 1}.")
    if len(set(nodes.tolist())) < len(nodes):
        raise ValueError(f"{what} has a node twice in {nodes.tolist()}.")


def stacked(parts):
    """Concatenate the arrays of several examples."""
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    if isinstance(parts[0], OperatorFeatures | SharedRows):
        return type(parts[0]).stacked(parts)
    if sp.issparse(parts[0]):
        return _stack_rows(parts)
    if parts[0].ndim != 2 or parts[0].strides[0]:
        return np.concatenate(parts)
    # Without the argument ``out``, NumPy would store the result by columns if arrays repeat one row with stride 0.
    rows = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.result_type(*{part.dtype for part in parts}))
    return np.concatenate(parts, out=rows)


def _stack_rows(parts):
    # SciPy's vstack would take several times as long, because it checks and converts each part.
    sizes = [part.indptr[-1] for part in parts]
    lengths = [part.shape[0] for part in parts]
    ends = np.repeat(np.cumsum(sizes) - sizes, lengths) + np.concatenate([part.indptr[1:] for part in parts])
    arrays = (
        np.concatenate([part.data[:size] for part, size in zip(parts, sizes, strict=True)]),
        np.concatenate([part.indices[:size] for part, size in zip(parts, sizes, strict=True)]),
        np.concatenate(([0], ends)),
    )
    return sp.csr_matrix(arrays, shape=(sum(lengths), parts[0].shape[1]))


def stack_types(types, lengths):
    """Concatenate the node types or edge types of several examples; None in place of types stands for type 0."""
    return np.concatenate(
        [np.zeros(n, dtype=np.int32) if kind is None else kind for kind, n in zip(types, lengths, strict=True)]
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """Disjoint union of examples on which inference runs jointly, with the range of nodes of each example.

    A batch may hold many forests: exact inference treats them separately anyway, and one kernel call costs less than
    hundreds of calls. Unless larger batches are requested, an example with cycles or factors has its own batch, so that
    its result does not depend on other examples.
    """

    example: Example
    members: np.ndarray  # (n,), int64
    node_ptr: np.ndarray  # (n + 1,), int64
    labels: np.ndarray | None = None  # (N,), int32
    weight: np.ndarray | None = None  # (n,), float64
    node_weight: np.ndarray | None = None  # (N,), float64
    joint_cost: Any = None  # costs of the joint states of edges and factors, for losses that include them

    @property
    def counted_labels(self):
        """Labels of the nodes, (N,) int32; -1 marks unlabelled nodes and nodes of examples with weight zero."""
        if self.weight is None or self.labels is None:
            return self.labels
        return np.where(np.repeat(self.weight > 0, np.diff(self.node_ptr)), self.labels, -1)

    def rows(self, start, stop):
        """Return the part between two indices of the first axis, for a batch of one plain lattice."""
        example = self.example.rows(start, stop)
        shape = self.example.graph.shape
        assert shape is not None
        width = self.example.n_nodes // shape[0]
        labels = None if self.labels is None else self.labels[start * width : stop * width]
        return Batch(example, self.members, np.array([0, example.n_nodes]), labels, self.weight)

    def find_labelled_edges(self):
        """Find the edges that join two labelled nodes of positive weight.

        Return the labels of both ends and the first node of each of these edges.
        """
        # returns: tail labels, head labels and first nodes, (n_edges,) int32 each
        edges, labels = self.example.graph.edges, self.counted_labels
        tail, head = labels[edges.T]
        known = (tail >= 0) & (head >= 0)
        return tail[known], head[known], edges[known, 0]

    @contextmanager
    def named_in_errors(self):
        """Add the example's index in X to each ValueError that is raised inside the ``with`` block."""
        try:
            yield
        except ValueError as error:
            part, text = getattr(error, "part", None), str(error)
            nodes: Any = getattr(error, "nodes", ())
            if part is None and len(nodes):
                part = int(np.searchsorted(self.node_ptr, nodes[0], side="right")) - 1
                text = error.format_message(self.node_ptr[part])  # type: ignore[attr-defined]  # of Infeasible
            first, last = self.members[[0, -1] if part is None else [part, part]]
            which = f"X[{first}]" if first == last else f"one of X[{first}] to X[{last}]"
            error.args = (f"{which}: {text}",)
            raise


def require_complete(batch, what, name="y"):
    """Return the labels of a batch, or raise ValueError if a node has no label."""
    # name: name of the argument with the labels
    # returns: (N,), int32
    unlabelled = np.flatnonzero(batch.labels < 0)
    if len(unlabelled):
        member = batch.members[np.searchsorted(batch.node_ptr, unlabelled[0], side="right") - 1]
        raise ValueError(
            f"{name}[{member}] has unlabelled nodes, but {what} needs a label for every node: DRFClassifier and TRWCRF "
            "accept unlabelled nodes with their default parameters."
        )
    return batch.labels
