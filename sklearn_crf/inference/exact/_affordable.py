"""The rule for exact inference: the cost of elimination, known from the structure before any work."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._reduction import Reduction
from sklearn_crf.inference.exact._junction_tree import JunctionTree, planned_cells
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.models import FactorGraph, PairwiseModel

# Looking for an order of elimination takes Python some 0.1 ms a node.
_MOST_NODES = 2000
# Components are not even counted in graphs with more.
_MOST_TOGETHER = 100_000
# A graph of width w has fewer than w * N edges. Denser ones are small, or too wide.
_MOST_EDGES_OF_A_NODE = 8
_SMALL = 300

# What is compared with: sweeps of messages that each read all tables in both directions.
_SWEEPS = 100
# Table cells of elimination that are always affordable (some 20 ms), and those that never are (128 MB).
_LEAST_CELLS, _MOST_CELLS = 2**21, 2**24
# Tables of minimum-degree orders are up to so many times as large as those of the order that is found in the end.
_SLACK = 16
# Logarithm of as good as infinitely many cells.
_ENDLESS = 600.0


def exact_inference(structure: Graph | PairwiseModel | FactorGraph, n_states: int | None = None) -> Inference | None:
    r"""The exact algorithm for a structure, if one is affordable: the rule behind every "auto".

    Forests go to :class:`TreeInference`. Elimination (:class:`JunctionTree`) is affordable if, in each connected
    component c, its number of table cells is at most

    .. math:: \min(2^{24}, \max(2^{21}, 100 \cdot 2 \sum_{e \in c} K^2)),

    the entries that 100 sweeps of messages read, within bounds: some 20 milliseconds are always affordable, 128 MB
    never. Components with cycles and more than 2,000 nodes are not tried. The number of cells is that of the order of
    elimination found by minimum degree, which is known at once, and then that of the plan.

    Parameters
    ----------
    structure : Graph, PairwiseModel or FactorGraph
        A graph stands for all models on it; nodes of which a model allows one state only cost nothing.
    n_states : int, optional
        Number of states of each node, needed with a graph alone.

    Returns
    -------
    TreeInference, JunctionTree or None
        None where no exact algorithm is affordable.

    Examples
    --------
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import exact_inference
    >>> exact_inference(lattice((9, 9)), n_states=2)
    JunctionTree()
    >>> exact_inference(lattice((40, 40)), n_states=2) is None
    True
    """
    if isinstance(structure, Graph):
        if n_states is None:
            raise ValueError("n_states is needed with a Graph: the number of states of each node.")
        structure = _blank_model(structure, n_states)
    if isinstance(structure, PairwiseModel) and structure.graph.is_forest:
        return TreeInference()
    return JunctionTree() if affordable_components(structure).all() else None


def _blank_model(graph, n_states):
    unary = np.zeros((graph.n_nodes, n_states), dtype=np.float32)
    return PairwiseModel(graph, unary, np.zeros((1, n_states, n_states)))


def affordable_components(model: PairwiseModel | FactorGraph) -> np.ndarray:
    """Which connected components elimination can afford, (n_components,) bool; one False if it can afford none."""
    if not isinstance(model, FactorGraph) and model.graph.n_nodes > _MOST_TOGETHER:
        return np.zeros(1, dtype=bool)
    structure = (_Factors if isinstance(model, FactorGraph) else _Edges)(model)
    tried = ~structure.too_large
    if not tried.any():
        return tried
    budgets = np.clip(_SWEEPS * structure.n_entries, _LEAST_CELLS, _MOST_CELLS)
    cells = np.where(tried, structure.cells(tried), np.inf)
    unclear = (cells > budgets) & (cells <= _SLACK * budgets)
    if unclear.any():
        part = model if unclear.all() else submodel(model, unclear)[0]
        cells[unclear] = planned_cells(part)
    return cells <= budgets


class _Edges:
    """Sizes of the components of a pairwise model."""

    def __init__(self, model):
        self.model, self.graph = model, model.graph
        self.component = self.graph.component
        self.n_components = self.graph.n_components
        self._count()

    def _count(self):
        graph = self.graph
        n_nodes = np.bincount(self.component, minlength=self.n_components)
        n_edges = np.bincount(self.component[graph.edges[:, 0]], minlength=self.n_components)
        dense = (n_edges > _MOST_EDGES_OF_A_NODE * n_nodes) & (n_nodes > _SMALL)
        self.too_large = (n_edges >= n_nodes) & ((n_nodes > _MOST_NODES) | dense)
        self.n_entries = 2.0 * n_edges * self.model.n_columns**2

    def cells(self, tried):
        graph, allowed = self.graph, ~np.isneginf(self.model.unary)
        if not allowed.all():
            return self._cells(allowed.sum(axis=1), tried)
        # Models of one graph differ in their scores, and training has hundreds of them.
        known = graph.__dict__.setdefault("_elimination_cells", {})
        if self.model.n_columns not in known:
            known.clear()
            known[self.model.n_columns] = self._cells(np.full(graph.n_nodes, self.model.n_columns), tried)
        return known[self.model.n_columns]

    def _cells(self, n_states, tried):
        edges = self.graph.edges[tried[self.component[self.graph.edges[:, 0]]]]
        return _cells_of_components(edges, n_states, self.component, self.n_components)


class _Factors:
    """Sizes of the components of a factor graph."""

    def __init__(self, model):
        self.problem = problem = Reduction(model)
        self.component, self.n_components = model.component, model.n_components
        self.edges = _pairs(problem.scopes)
        sizes = [float(np.prod(problem.n_states[scope])) * len(scope) for scope in problem.scopes]
        owners = [self.component[scope[0]] for scope in problem.scopes if scope]
        sizes = [size for size, scope in zip(sizes, problem.scopes, strict=True) if scope]
        self.n_entries = 2.0 * np.bincount(owners, sizes, self.n_components)
        n_nodes = np.bincount(self.component, minlength=self.n_components)
        self.too_large = n_nodes > _MOST_NODES if self.edges is not None else np.ones(self.n_components, dtype=bool)

    def cells(self, tried):
        edges = self.edges[tried[self.component[self.edges[:, 0]]]]
        return _cells_of_components(edges, self.problem.n_states, self.component, self.n_components)


def _pairs(scopes):
    """Pairs of free nodes with a factor in common, each once or more; None if there are too many."""
    if sum(len(scope) ** 2 for scope in scopes) > 2 * _MOST_NODES * _MOST_EDGES_OF_A_NODE * 8:
        return None
    pairs = [pair for scope in scopes for pair in combinations(scope, 2)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _cells_of_components(edges, n_states, component, n_components):
    """Cells of all cliques of a minimum-degree order, by component: those of a Cholesky factor, a column each."""
    log_states = np.log(np.maximum(n_states, 1))
    edges = edges[(log_states[edges] > 0).all(axis=1)]
    n_nodes = len(n_states)
    rows, columns = np.concatenate((edges, edges[:, ::-1])).T
    joined = sp.coo_matrix((np.full(len(rows), -1.0), (rows, columns)), shape=(n_nodes, n_nodes)).tocsr()
    joined.data[:] = -1.0
    dominant = sp.diags(np.diff(joined.indptr) + 1.0) + joined
    options = {"SymmetricMode": True}
    factor = splu(dominant.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    node_of = np.argsort(factor.perm_c)
    lower = factor.L.tocsc()
    log_sizes = np.add.reduceat(log_states[node_of[lower.indices]], lower.indptr[:-1])
    cells = np.exp(np.minimum(log_sizes, _ENDLESS))
    return np.bincount(component[node_of], cells, n_components)


def submodel(model, chosen):
    """The part of a model in some components; its nodes.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    chosen : ndarray of shape (n_components,) of bool

    Returns
    -------
    part : PairwiseModel or FactorGraph
        With all tables of the model.
    nodes : ndarray of int
        Numbers of its nodes in the model.
    """
    component = model.component if isinstance(model, FactorGraph) else model.graph.component
    inside = chosen[component]
    nodes = np.flatnonzero(inside)
    number = np.cumsum(inside) - 1
    if isinstance(model, FactorGraph):
        return _factors_inside(model, inside, number), nodes
    edges = np.flatnonzero(inside[model.graph.edges[:, 0]]) if model.graph.n_edges else np.zeros(0, dtype=np.int64)
    part = replace(
        model,
        graph=Graph._trusted(len(nodes), number[model.graph.edges[edges]].astype(np.int32).reshape(-1, 2)),
        unary=model.unary[nodes],
        edge_type=model.edge_type[edges],
        edge_weight=None if model.edge_weight is None else model.edge_weight[edges],
        n_states=None if model.n_states is None else model.n_states[nodes],
    )
    return part, nodes


def _factors_inside(model, inside, number):
    # A factor without nodes belongs to the first node.
    first = np.zeros(model.n_factors, dtype=np.int64)
    first[model.arity > 0] = model.scope[model.scope_ptr[:-1][model.arity > 0]]
    factors = np.flatnonzero(inside[first])
    slots = np.repeat(inside[first], model.arity)
    return replace(
        model,
        n_states=model.n_states[inside],
        scope=number[model.scope[slots]],
        scope_ptr=np.concatenate(([0], np.cumsum(model.arity[factors]))),
        table_id=model.table_id[factors],
    )
