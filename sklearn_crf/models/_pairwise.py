"""Pairwise models, which score every labeling of a graph, and comparisons of labelings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import MAX_INT32, as_integer, as_integers, as_scores, check_product, sum_squares
from sklearn_crf._own_methods import ChecksPickles
from sklearn_crf._threads import cached_property
from sklearn_crf.graphs import Graph, check_graph
from sklearn_crf.kernels.exact.labelings import changes_of_labelings, count_pairs, labeling_terms, marginals_less_labels


class EdgeLayout:
    """Types and weights of edges, and a cache of derived data, shared by models that differ only in their scores."""

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
        """Raise ValueError if a product of weights and tables is undefined, or may exceed the limit on scores."""
        weight = self.edge_weight
        if weight is None or not len(weight):
            return
        if tables.min(initial=0.0) == -np.inf:
            # forbids: (T, R), True for tables that contain -inf; the weights of these tables must be positive
            forbids = np.isneginf(tables).any(axis=(2, 3))
            if np.any(forbids[self.edge_type] & (weight <= 0)):
                raise ValueError(
                    "tables with -inf need a positive edge_weight for their feature on every edge, because 0 * -inf"
                    " is undefined. Use -inf only in the table of a feature that is 1 everywhere."
                )
        check_product(weight, tables, "edge_weight times tables", self._squares)


def check_edge_type(edge_type: np.ndarray | None, n_edges: int, n_types: int, name: str) -> np.ndarray:
    """Return edge types as contiguous int32, after checking that each type is a row index of the field ``name``."""
    if n_types < 1 and n_edges:
        raise ValueError(f"{name} is empty, so it defines no edge type, but the graph has edges.")
    if edge_type is None:
        return np.zeros(n_edges, dtype=np.int32)
    return as_integers(edge_type, "edge_type", shape=(n_edges,), lowest=0, highest=n_types - 1)


def _check_edge_weight(edge_weight, n_edges, n_features, dtype):
    if edge_weight is None:
        if n_features != 1 and n_edges:
            raise ValueError(f"edge_weight must be given, because tables has {n_features} features.")
        return None if n_features == 1 else np.zeros((0, n_features), dtype=dtype)
    edge_weight = as_scores(edge_weight, "edge_weight", dtype, may_forbid=False)
    if edge_weight.ndim == 1:
        edge_weight = edge_weight[:, None]
    if edge_weight.shape != (n_edges, n_features):
        raise ValueError(f"edge_weight must have shape ({n_edges}, {n_features}), got {edge_weight.shape}.")
    return np.ascontiguousarray(edge_weight)


class Statistics(NamedTuple):
    """Derivatives of a scalar with respect to the scores of a :class:`PairwiseModel`.

    The derivatives of ``log_z`` are the expected sufficient statistics. The derivatives of the score of a labeling are
    the sufficient statistics of this labeling.
    Statistics are added, subtracted and scaled component by component.

    Attributes
    ----------
    unary : ndarray of shape (N, K)
        Derivative with respect to the unary scores.
    tables : ndarray of shape (T, R, K, K), float64
        Derivative with respect to the tables, summed over the edges that share a table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, compute_labeling_statistics
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> counted = compute_labeling_statistics(model, [1, 1, 0])
    >>> counted.unary.tolist()
    [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    >>> counted.minus(compute_labeling_statistics(model, [1, 1, 1])).unary.tolist()
    [[0.0, 0.0], [0.0, 0.0], [1.0, -1.0]]
    """

    unary: np.ndarray
    tables: np.ndarray

    def minus(self, other: Statistics) -> Statistics:
        """Return ``self - other``, component by component.

        Parameters
        ----------
        other : Statistics
            Statistics of a model of the same shape.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary - other.unary, self.tables - other.tables)

    def plus(self, other: Statistics) -> Statistics:
        """Return ``self + other``, component by component.

        Parameters
        ----------
        other : Statistics
            Statistics of a model of the same shape.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary + other.unary, self.tables + other.tables)

    def scaled(self, unary_scale: ArrayLike, tables_scale: ArrayLike) -> Statistics:
        """Return the statistics, with ``unary`` and ``tables`` multiplied by separate factors.

        Parameters
        ----------
        unary_scale, tables_scale : float or array-like
            Scalars, or arrays that broadcast with ``unary`` and ``tables``.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary * unary_scale, self.tables * tables_scale)


def are_potts(tables: np.ndarray) -> bool:
    """Return whether each table in (T, R, K, K) has one value on its diagonal and one value elsewhere."""
    n_columns = tables.shape[-1]
    if n_columns == 1:
        return True
    # The entries of the first table suffice to rule out most models.
    if len(tables) and tables[0, 0, 0, 1] != tables[0, 0, 1, 0]:
        return False
    diagonal = np.eye(n_columns, dtype=bool)
    for some in (tables[:1], tables):
        on, off = some[..., diagonal], some[..., ~diagonal]
        if np.any(on != on[..., :1]) or np.any(off != off[..., :1]):
            return False
    return True


class HasUnary(ChecksPickles):
    """Base of models with unary scores of all nodes in one array."""

    @property
    def n_nodes(self: Any) -> int:
        """Number of nodes, N."""
        return len(self.unary)

    @property
    def n_columns(self: Any) -> int:
        """Largest number of states of a node, K."""
        return self.unary.shape[1]

    @property
    def dtype(self: Any) -> np.dtype:
        """Precision of the scores, float32 or float64."""
        return self.unary.dtype


class HasGraph(HasUnary):
    """Base of models with unary scores of the nodes of a graph."""

    @property
    def component(self: Any) -> np.ndarray:
        """Index of each node's connected component, (N,) int32."""
        return self.graph.component

    @property
    def n_components(self: Any) -> int:
        """Number of connected components."""
        return self.graph.n_components


@dataclass(frozen=True, eq=False)
class PairwiseModel(HasGraph):
    r"""Scores of the labelings of a graph with unary and pairwise terms.

    .. math::
        \mathrm{score}(y) = \sum_s u_{s, y_s}
            + \sum_{e = (i, j)} \sum_r w_{e r} \, \theta_{t_e, r, y_i, y_j}

    Larger is better: the distribution is :math:`p(y) = \exp(\mathrm{score}(y)) / Z`.

    Parameters
    ----------
    graph : Graph
        Topology, N nodes and E edges. The table of an edge depends on the edge's direction.
    unary : array-like of shape (N, K)
        Score of each state of each node, float32 or float64 (other types are converted to float64). -inf forbids a
        state.
    tables : array-like of shape (T, K, K) or (T, R, K, K)
        Pairwise tables of T edge types and R features; stored as (T, R, K, K) in the dtype of ``unary``.
        -inf forbids a pair of states. A table with -inf needs a feature that is positive on every edge of its type.
    edge_type : array-like of shape (E,), optional
        Type of each edge. None means type 0 for all edges, and ``arange(E)`` means a separate table for each edge.
    edge_weight : array-like of shape (E,) or (E, R), optional
        Features of each edge, stored as (E, R). None means weight 1 for every edge, which requires R = 1.
    n_states : array-like of shape (N,), optional
        Number of states of each node, if nodes differ. States beyond this number are forbidden.

    Raises
    ------
    ValueError
        If shapes or types are inconsistent, or a value is NaN, +inf, or in magnitude above 1e100 (float32: 1e18). This
        limit also applies to products of edge weights and tables.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, score
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> model.unary.shape, model.tables.shape
    ((3, 2), (1, 1, 2, 2))
    >>> score(model, [1, 1, 1]), score(model, [1, 0, 1])
    (3.0, 2.2)
    """

    graph: Graph
    unary: np.ndarray
    tables: np.ndarray
    edge_type: np.ndarray = None  # type: ignore[assignment]  # the argument may be None, the attribute never is
    edge_weight: np.ndarray | None = None
    n_states: np.ndarray | None = None
    _kept: ClassVar[dict[Hashable, Any]]  # cache of data derived from the EdgeLayout, set on every model

    def __post_init__(self):
        check_graph(self.graph)
        unary = as_scores(self.unary, "unary")
        n_nodes, n_edges = self.graph.n_nodes, self.graph.n_edges
        if unary.ndim != 2 or len(unary) != n_nodes or unary.shape[1] < 1:
            raise ValueError(f"unary must have shape ({n_nodes}, n_states), got {unary.shape}.")
        n_columns = unary.shape[1]
        tables = as_scores(self.tables, "tables", unary.dtype)
        if tables.ndim == 3:
            tables = tables[:, None]
        if tables.ndim != 4 or tables.shape[2:] != (n_columns, n_columns) or tables.shape[1] < 1:
            raise ValueError(
                f"tables must have shape (n_types, n_features, {n_columns}, {n_columns}) or "
                f"(n_types, {n_columns}, {n_columns}), got {np.shape(self.tables)}."
            )
        n_types, n_features = tables.shape[:2]
        edges = EdgeLayout.of(self.edge_type, self.edge_weight, n_edges, n_types, n_features, unary.dtype)
        edges.check_product(tables)
        if self.n_states is not None:
            unary, n_states = _forbid_missing_states(unary, self.n_states)
            object.__setattr__(self, "n_states", n_states)
        self._set(unary, tables, edges)

    def _set(self, unary: np.ndarray, tables: np.ndarray, edges: EdgeLayout) -> None:
        """Set the fields to arrays that have been checked."""
        object.__setattr__(self, "unary", np.ascontiguousarray(unary))
        object.__setattr__(self, "tables", np.ascontiguousarray(tables))
        object.__setattr__(self, "edge_type", edges.edge_type)
        object.__setattr__(self, "edge_weight", edges.edge_weight)
        object.__setattr__(self, "_kept", edges.kept)

    @cached_property
    def is_potts(self) -> bool:
        """Whether tables have one value on their diagonal and one elsewhere, so that messages take O(K), not O(K^2)."""
        return are_potts(self.tables)

    def edge_tables(self, edges: Any = slice(None)) -> np.ndarray:
        """Return the weighted table of each edge, for small models and tests; the result has E x K x K numbers.

        Parameters
        ----------
        edges : slice or array of int, default=all

        Returns
        -------
        ndarray of shape (n_edges, K, K)
        """
        tables = self.tables[self.edge_type[edges]]
        if self.edge_weight is None:
            return tables[:, 0]
        return np.einsum("er,erab->eab", self.edge_weight[edges], tables)


def expand_edge_tables(model: PairwiseModel) -> PairwiseModel:
    """Return a model with equal scores and one table per edge, so that statistics of tables are pair marginals."""
    edge_type = np.arange(model.graph.n_edges, dtype=np.int32)
    return replace(model, tables=model.edge_tables(), edge_type=edge_type, edge_weight=None)


def build_model_with_layout(graph: Graph, unary: Any, tables: Any, edges: EdgeLayout) -> PairwiseModel:
    """Build a model from scores whose shapes and precision fit an :class:`EdgeLayout` of the graph."""
    model = object.__new__(PairwiseModel)
    object.__setattr__(model, "graph", graph)
    object.__setattr__(model, "n_states", None)
    unary = as_scores(unary, "unary")
    tables = as_scores(tables, "tables", unary.dtype)
    edges.check_product(tables)
    model._set(unary, tables, edges)
    return model


def cache_with_layout(model: PairwiseModel, key: Hashable, make: Callable[[], Any]) -> Any:
    """Return the result of ``make``, cached for all models that share an :class:`EdgeLayout`.

    The result may only depend on the graph and on the types and weights of edges.
    """
    kept = model._kept.get(key)
    return model._kept.setdefault(key, make()) if kept is None else kept


@singledispatch
def replace_unary(model: Any, unary: Any) -> Any:
    """Return a copy of a model with other unary scores, which must have the same shape and precision."""
    model = _copy(model)
    object.__setattr__(model, "unary", np.ascontiguousarray(as_scores(unary, "unary")))
    return model


def replace_edge_weight(model: PairwiseModel, key: Hashable | None, make: Callable[[], Any]) -> PairwiseModel:
    """Return a copy of a model with other edge weights of shape (E, R), which are not checked and must be finite.

    ``make`` returns the weights. It may only use data that models with the same :class:`EdgeLayout` share. The weights
    are cached under ``key``, unless ``key`` is None.
    """

    def made():
        return EdgeLayout(model.edge_type, np.ascontiguousarray(make(), dtype=model.dtype))

    edges = made() if key is None else cache_with_layout(model, key, made)
    changed = _copy(model)
    object.__setattr__(changed, "edge_weight", edges.edge_weight)
    object.__setattr__(changed, "_kept", edges.kept)
    return changed


def _copy(model):
    """Copy a model without checks; the copy shares the cache of its :class:`EdgeLayout`."""
    copied = object.__new__(type(model))
    copied.__dict__.update(model.__dict__)
    return copied


def _forbid_missing_states(unary: np.ndarray, n_states: np.ndarray) -> tuple:
    n_columns = unary.shape[1]
    n_states = as_integers(n_states, "n_states", shape=(len(unary),), lowest=1, highest=n_columns)
    return np.where(np.arange(n_columns) < n_states[:, None], unary, unary.dtype.type(-np.inf)), n_states


@singledispatch
def check_labels(model: Any, labels: ArrayLike, *, may_miss: bool = False, name: str = "labels") -> np.ndarray:
    """Return labels as contiguous int32, after checking that each label is a state of its node."""
    # labels: (N,); name: argument name for errors; returns: (N,), int32, -1 for missing labels
    shape, highest = (model.n_nodes,), model.n_columns - 1
    if not may_miss:
        return as_integers(labels, name, shape=shape, lowest=0, highest=highest, kinds="iub")
    labels = as_integers(labels, name, shape=shape, kinds="iub")
    if labels.max(initial=-1) > highest:
        raise ValueError(f"{name} must be between 0 and {highest}, or negative if unknown, found {labels.max()}.")
    # Replace all negative labels by -1, because callers use missing labels as indices, and -1 selects the last entry.
    return np.maximum(labels, -1)


def require_states(labels: np.ndarray, n_states: np.ndarray, may_miss: bool, name: str) -> None:
    """Raise ValueError if a label is not a state of its node."""
    wrong = (labels >= n_states) | ((labels < 0) & (not may_miss))
    if wrong.any():
        node = int(np.argmax(wrong))
        raise ValueError(f"{name}[{node}] is {labels[node]}, but node {node} has {n_states[node]} states.")


@singledispatch
def check_allowed_states(model: Any) -> None:
    """Raise ValueError if a single node or a single factor forbids every labeling."""
    # If no state is forbidden, one pass without a temporary array suffices.
    if not model.unary.size or model.unary.min() > -np.inf:
        return
    nodes = np.flatnonzero(np.isneginf(model.unary).all(axis=1))
    if len(nodes):
        raise ValueError(f"model is infeasible: every state of node {nodes[0]} is forbidden by unary.")


@singledispatch
def compute_score_terms(model: Any, labels: ArrayLike) -> np.ndarray:
    """Return the score of a labeling as a sum of terms, one for each node.

    The term of a node is its unary score plus the scores of the edges or factors whose first node it is. The terms of a
    connected component sum to the score of the component.
    """
    # labels: (N,) of int; returns: (N,), float64
    labels = check_labels(model, labels)
    terms = np.empty(model.graph.n_nodes)
    labeling_terms(
        model.unary, model.tables, model.graph.edges, model.edge_type, get_kernel_weights(model), labels, terms
    )
    return terms


def get_kernel_weights(model: PairwiseModel) -> np.ndarray:
    """Return edge weights in the form that kernels expect, with an empty array if every weight is one."""
    return np.zeros((0, 0), dtype=model.dtype) if model.edge_weight is None else model.edge_weight


def score(model: Any, labels: ArrayLike) -> float:
    """Return the score of a labeling, the sum of :func:`compute_score_terms`.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,) of int

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, score
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> score(model, [1, 1, 1]), score(model, [1, 0, 1])
    (3.0, 2.2)
    """
    return float(compute_score_terms(model, labels).sum())


@singledispatch
def compute_labeling_statistics(model: Any, labels: ArrayLike) -> Any:
    """Return the derivatives of the score of a labeling with respect to the scores of the model."""
    # labels: (N,) of int
    labels = check_labels(model, labels)
    unary = np.zeros(model.unary.shape, dtype=model.dtype)
    # This assignment is twice as fast as put_along_axis, which checks its arguments.
    unary.reshape(-1)[np.arange(0, unary.size, unary.shape[1]) + labels] = 1
    tables = np.zeros(model.tables.shape)
    count_pairs(model.graph.edges, model.edge_type, get_kernel_weights(model), labels, tables)
    return Statistics(unary, tables)


@singledispatch
def subtract_labeling(model: Any, statistics: Any, labels: ArrayLike) -> Any:
    """Subtract a labeling's statistics from given statistics; all given arrays but ``unary`` may be overwritten."""
    return statistics.minus(compute_labeling_statistics(model, labels))


@singledispatch
def clamped(model: Any, labels: ArrayLike) -> Any:
    """Return a copy of a model in which some nodes are observed: all other states of these nodes are forbidden.

    Parameters
    ----------
    model : PairwiseModel, DenseModel, SegmentModel or FactorGraph
    labels : array-like of shape (N,) of int
        State of each observed node, negative for nodes that are not observed.

    Returns
    -------
    PairwiseModel, DenseModel, SegmentModel or FactorGraph
        Model of the same type as ``model``.

    Raises
    ------
    ValueError
        If ``labels`` does not have shape (N,), or a label is not a state.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, clamped
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> clamped(model, [-1, 0, -1]).unary.tolist()
    [[0.0, 1.0], [0.2, -inf], [0.0, 1.0]]
    """
    labels = check_labels(model, labels, may_miss=True)
    observed = labels >= 0
    unary = np.array(model.unary)
    keep = np.arange(model.n_columns) == labels[observed, None]
    unary[observed] = np.where(keep, unary[observed], -np.inf)
    return replace(model, unary=unary)


@singledispatch
def compute_labeling_difference(model: Any, labels: ArrayLike, others: ArrayLike) -> tuple[np.ndarray, Any]:
    """Return the score terms and statistics of ``labels``, minus the score terms and statistics of ``others``."""
    # labels: (N,) of int; others: (N,) of int; returns: terms: (N,), float64, and statistics
    statistics = compute_labeling_statistics(model, labels).minus(compute_labeling_statistics(model, others))
    return compute_score_terms(model, labels) - compute_score_terms(model, others), statistics


@compute_labeling_difference.register
def _subtract_in_one_pass(
    model: PairwiseModel, labels: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, Statistics]:
    labels, others = check_labels(model, labels), check_labels(model, others)
    terms = np.empty(len(labels))
    unary, tables = np.zeros(model.unary.shape, dtype=model.dtype), np.zeros(model.tables.shape)
    edges = model.graph.edges, model.edge_type, get_kernel_weights(model)
    changes_of_labelings(model.unary, model.tables, *edges, labels, others, terms, unary, tables)
    return terms, Statistics(unary, tables)


def compute_label_excess(
    model: PairwiseModel, labels: np.ndarray, statistics: Statistics, log_z_terms: np.ndarray
) -> tuple[np.ndarray, Statistics, np.ndarray] | None:
    """Subtract the score terms and statistics of labels from log-partition terms and expected statistics.

    Return both differences, and the state with the largest marginal of each node. If a label is not a state, return
    None.
    """
    # labels: (N,) of int; log_z_terms: (N,), float64
    # returns: terms: (N,), float64; excess; predicted: (N,), int32
    labels = as_integers(labels, "labels", shape=(model.n_nodes,), kinds="iub")
    marginals = np.ascontiguousarray(statistics.unary, dtype=model.dtype)
    log_z_terms = np.ascontiguousarray(log_z_terms, dtype=np.float64)
    shapes = marginals.shape, np.shape(statistics.tables), log_z_terms.shape
    if shapes != (model.unary.shape, model.tables.shape, labels.shape):
        raise ValueError(
            f"statistics and log_z_terms must have shapes {model.unary.shape}, {model.tables.shape} and {labels.shape} "
            f"for this model, got {', '.join(map(str, shapes))}."
        )
    excess, counts = np.empty_like(model.unary), np.zeros(model.tables.shape)
    terms, predicted = np.empty(len(excess)), np.empty(len(excess), dtype=np.int32)
    edges = model.graph.edges, model.edge_type, get_kernel_weights(model)
    given = labels, marginals, log_z_terms
    if not marginals_less_labels(model.unary, model.tables, *edges, *given, excess, counts, terms, predicted):
        return None
    return terms, Statistics(excess, statistics.tables - counts), predicted


def count_pair_states(model: PairwiseModel, labels: ArrayLike, edge_group: ArrayLike, n_groups: int) -> np.ndarray:
    """Return the derivatives of a labeling's score with respect to the tables, separately for each group of edges."""
    # labels: (N,) of int; edge_group: (E,) of int; returns: (n_groups, T, R, K, K), float64
    n_types = max(len(model.tables), 1)
    n_groups = as_integer(n_groups, "n_groups", highest=MAX_INT32 // n_types)
    edge_group = as_integers(edge_group, "edge_group", shape=(model.graph.n_edges,), lowest=0, highest=n_groups - 1)
    counts = np.zeros((n_groups * len(model.tables), *model.tables.shape[1:]))
    kind = model.edge_type + np.int32(n_types) * edge_group
    count_pairs(model.graph.edges, kind, get_kernel_weights(model), check_labels(model, labels), counts)
    return counts.reshape(n_groups, *model.tables.shape)
