"""Values on a topology: the score of every labeling of a graph."""

from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import NamedTuple

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.kernels.labelings import count_pairs, labeling_terms


class Statistics(NamedTuple):
    """Derivative of a scalar by the values of a :class:`PairwiseModel`.

    Of ``log_z`` they are the expected sufficient statistics, of the score of a labeling the counted ones.
    Statistics are added, subtracted and scaled component by component.

    Attributes
    ----------
    unary : ndarray of shape (N, K)
        Derivative by the unary scores.
    tables : ndarray of shape (T, R, K, K), float64
        Derivative by the tables, summed over the edges that share one.
    """

    unary: np.ndarray
    tables: np.ndarray

    def minus(self, other):
        """``self - other``, component by component.

        Parameters
        ----------
        other : Statistics
            Of a model of the same shape.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary - other.unary, self.tables - other.tables)

    def plus(self, other):
        """``self + other``, component by component.

        Parameters
        ----------
        other : Statistics
            Of a model of the same shape.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary + other.unary, self.tables + other.tables)

    def scaled(self, unary_scale, tables_scale):
        """Nodes and tables multiplied, each by its own factor.

        Parameters
        ----------
        unary_scale, tables_scale : float or array-like
            Scalars, or arrays that broadcast with ``unary`` and ``tables``.

        Returns
        -------
        Statistics
        """
        return Statistics(self.unary * unary_scale, self.tables * tables_scale)


@dataclass(frozen=True, eq=False)
class PairwiseModel:
    r"""Scores of the labelings of a graph with unary and pairwise terms.

    .. math::
        \mathrm{score}(y) = \sum_s u_{s, y_s}
            + \sum_{e = (i, j)} \sum_r w_{e r} \, \theta_{t_e, r, y_i, y_j}

    Larger is better: the distribution is :math:`p(y) = \exp(\mathrm{score}(y)) / Z`.

    Parameters
    ----------
    graph : Graph
        Topology, N nodes and E edges. The direction of an edge matters to its table.
    unary : array-like of shape (N, K)
        Score of each state of each node, float32 or float64 (anything else becomes float64). -inf forbids a state.
    tables : array-like of shape (T, K, K) or (T, R, K, K)
        Pairwise tables of T types of edges and R features; kept as (T, R, K, K) in the precision of ``unary``.
        -inf forbids a pair of states (with R = 1 and positive weights only).
    edge_type : array-like of shape (E,), optional
        Type of each edge; None is 0 for all, ``arange(E)`` unties all tables.
    edge_weight : array-like of shape (E,) or (E, R), optional
        Features of each edge, kept as (E, R); None is one (R must be 1 then).
    n_states : array-like of shape (N,), optional
        Number of states of each node where they differ: states from there on are forbidden.

    Raises
    ------
    ValueError
        If shapes or types do not fit, or a value is NaN or +inf.
    """

    graph: Graph
    unary: np.ndarray
    tables: np.ndarray
    edge_type: np.ndarray | None = None
    edge_weight: np.ndarray | None = None
    n_states: np.ndarray | None = None

    def __post_init__(self):
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
        edge_type = check_edge_type(self.edge_type, n_edges, len(tables), "tables")
        edge_weight = _check_edge_weight(self.edge_weight, n_edges, tables, unary.dtype)
        if self.n_states is not None:
            unary, n_states = _forbid_missing_states(unary, self.n_states)
            object.__setattr__(self, "n_states", n_states)
        object.__setattr__(self, "unary", np.ascontiguousarray(unary))
        object.__setattr__(self, "tables", np.ascontiguousarray(tables))
        object.__setattr__(self, "edge_type", edge_type)
        object.__setattr__(self, "edge_weight", edge_weight)

    @property
    def n_columns(self):
        """Largest number of states of a node, K."""
        return self.unary.shape[1]

    @property
    def dtype(self):
        """Precision of the scores, float32 or float64."""
        return self.unary.dtype

    @cached_property
    def is_potts(self):
        """True if every table has one value on and one off its diagonal: its messages cost O(K), not O(K^2)."""
        n_columns = self.n_columns
        if n_columns == 1:
            return True
        diagonal = np.eye(n_columns, dtype=bool)
        # The first table alone gives most others away.
        return all(
            bool(np.all(part == part[..., :1]))
            for tables in (self.tables[:1], self.tables)
            for part in (tables[..., diagonal], tables[..., ~diagonal])
        )

    def edge_tables(self, edges=slice(None)):
        """Table of each edge, weights applied: for small models and tests, as it takes E x K x K numbers.

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


def as_scores(values, name, dtype=None):
    """Values as float32 or float64 (anything else becomes float64), each finite or -inf."""
    values = np.asarray(values)
    if dtype is None:
        dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    values = values.astype(dtype, copy=False)
    # A sum is one pass without a temporary: NaN or +inf anywhere cannot hide in it. A finite overflow looks
    # like +inf, so only then look closer.
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(dtype=np.float64)
    if not total < np.inf and not np.all(values < np.inf):
        raise ValueError(f"{name} must be finite or -inf, found NaN or +inf.")
    return values


def check_edge_type(edge_type, n_edges, n_types, name):
    """Types as contiguous int32, each a row of the field ``name``."""
    if n_types < 1 and n_edges:
        raise ValueError(f"{name} holds no type, but the graph has edges.")
    if edge_type is None:
        return np.zeros(n_edges, dtype=np.int32)
    edge_type = np.asarray(edge_type)
    if edge_type.shape != (n_edges,):
        raise ValueError(f"edge_type must have shape ({n_edges},), got {edge_type.shape}.")
    if n_edges and not np.issubdtype(edge_type.dtype, np.integer):
        raise ValueError(f"edge_type must be integers, got {edge_type.dtype}.")
    if n_edges and (edge_type.min() < 0 or edge_type.max() >= n_types):
        raise ValueError(f"edge_type must lie in 0 to {n_types - 1}, found {edge_type.min()} to {edge_type.max()}.")
    return np.ascontiguousarray(edge_type, dtype=np.int32)


def _check_edge_weight(edge_weight, n_edges, tables, dtype):
    n_features = tables.shape[1]
    if edge_weight is None:
        if n_features != 1 and n_edges:
            raise ValueError(f"tables has {n_features} features, so edge_weight must be given.")
        return None if n_features == 1 else np.zeros((0, n_features), dtype=dtype)
    edge_weight = np.asarray(edge_weight, dtype=dtype)
    if edge_weight.ndim == 1:
        edge_weight = edge_weight[:, None]
    if edge_weight.shape != (n_edges, n_features):
        raise ValueError(f"edge_weight must have shape ({n_edges}, {n_features}), got {edge_weight.shape}.")
    if not np.isfinite(edge_weight.sum(dtype=np.float64)) and not np.all(np.isfinite(edge_weight)):
        raise ValueError("edge_weight must be finite, found NaN or infinity.")
    if np.isneginf(tables).any() and (n_features > 1 or edge_weight.min(initial=1.0) <= 0):
        raise ValueError("tables with -inf need edge_weight of one feature, all positive: 0 * -inf has no meaning.")
    return np.ascontiguousarray(edge_weight)


def _forbid_missing_states(unary, n_states):
    n_states = np.asarray(n_states)
    n_columns = unary.shape[1]
    if n_states.shape != (len(unary),) or not np.issubdtype(n_states.dtype, np.integer):
        raise ValueError(f"n_states must be {len(unary)} integers, got {n_states.dtype} of shape {n_states.shape}.")
    if len(n_states) and (n_states.min() < 1 or n_states.max() > n_columns):
        raise ValueError(f"n_states must lie in 1 to {n_columns}, found {n_states.min()} to {n_states.max()}.")
    unary = np.where(np.arange(n_columns) < n_states[:, None], unary, unary.dtype.type(-np.inf))
    return unary, np.ascontiguousarray(n_states, dtype=np.int32)


def check_labels(model, labels):
    """Labels as contiguous int32, each a column of ``model.unary``.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,)

    Returns
    -------
    ndarray of shape (N,), int32

    Raises
    ------
    ValueError
        If the shape differs from the nodes' or a label is not a state.
    """
    labels = _check_label_vector(model, labels)
    if labels.size and (labels.min() < 0 or labels.max() >= model.n_columns):
        raise ValueError(f"labels must lie in 0 to {model.n_columns - 1}, found {labels.min()} to {labels.max()}.")
    return np.ascontiguousarray(labels, dtype=np.int32)


def _check_label_vector(model, labels):
    labels = np.asarray(labels)
    if labels.shape != (len(model.unary),):
        raise ValueError(f"labels must have shape ({len(model.unary)},), got {labels.shape}.")
    if labels.size and labels.dtype.kind not in "iub":
        raise ValueError(f"labels must be integers, got {labels.dtype}.")
    return labels


@singledispatch
def check_allowed_states(model):
    """Raise ValueError if no labeling can be allowed because one node alone, or one factor alone, forbids all.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    """
    # One pass without a temporary, where nothing is forbidden.
    if not model.unary.size or model.unary.min() > -np.inf:
        return
    nodes = np.flatnonzero(np.isneginf(model.unary).all(axis=1))
    if len(nodes):
        raise ValueError(f"model is infeasible: every state of node {nodes[0]} is forbidden by unary.")


@singledispatch
def score_terms(model, labels):
    """What each node adds to the score of a labeling: its unary score and its edges' or factors'.

    An edge or factor counts for its first node. Terms of a connected component sum to that component's score.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,) of int

    Returns
    -------
    ndarray of shape (N,), float64
    """
    labels = check_labels(model, labels)
    terms = np.empty(model.graph.n_nodes)
    labeling_terms(model.unary, model.tables, model.graph.edges, model.edge_type, _stored_weights(model), labels, terms)
    return terms


def _stored_weights(model):
    """Edge weights as kernels take them: an empty array where every weight is one."""
    return np.zeros((0, 0), dtype=model.dtype) if model.edge_weight is None else model.edge_weight


def score(model, labels):
    """Score of a labeling, the sum of :func:`score_terms`.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,) of int

    Returns
    -------
    float
    """
    return float(score_terms(model, labels).sum())


@singledispatch
def labeling_statistics(model, labels):
    """Derivative of the score of a labeling by the values of the model.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,) of int

    Returns
    -------
    Statistics or FactorStatistics
        One-hot rows for nodes; for tables, the summed edge weights of each (type, feature, state, state). Of a
        factor graph, how often each stored score is used.
    """
    labels = check_labels(model, labels)
    unary = np.zeros(model.unary.shape, dtype=model.dtype)
    np.put_along_axis(unary, labels[:, None], 1, axis=1)
    tables = np.zeros(model.tables.shape)
    count_pairs(model.graph.edges, model.edge_type, _stored_weights(model), labels, tables)
    return Statistics(unary, tables)


def pair_counts(model, labels, edge_group, n_groups):
    """Derivative of the score of a labeling by the tables, for each group of edges apart.

    Parameters
    ----------
    model : PairwiseModel
    labels : array-like of shape (N,) of int
    edge_group : ndarray of shape (E,), int32
        Such as the example that each edge is of.
    n_groups : int

    Returns
    -------
    ndarray of shape (n_groups, T, R, K, K), float64
    """
    counts = np.zeros((n_groups * len(model.tables), *model.tables.shape[1:]))
    kind = model.edge_type + np.int32(len(model.tables)) * edge_group
    count_pairs(model.graph.edges, kind, _stored_weights(model), check_labels(model, labels), counts)
    return counts.reshape(n_groups, *model.tables.shape)


@singledispatch
def clamped(model, labels):
    """The same model with some nodes observed: their other states are forbidden.

    Parameters
    ----------
    model : PairwiseModel, DenseModel or FactorGraph
    labels : array-like of shape (N,) of int
        State of each observed node, negative where it is unknown.

    Returns
    -------
    PairwiseModel or FactorGraph
        Of the type of ``model``.

    Raises
    ------
    ValueError
        If the shape differs from the nodes' or a label is not a state.
    """
    labels = _check_label_vector(model, labels)
    if labels.max(initial=-1) >= model.n_columns:
        raise ValueError(f"labels must lie below {model.n_columns}, found {labels.max()}.")
    observed = labels >= 0
    unary = np.array(model.unary)
    keep = np.arange(model.n_columns) == labels[observed, None]
    unary[observed] = np.where(keep, unary[observed], -np.inf)
    return replace(model, unary=unary)
