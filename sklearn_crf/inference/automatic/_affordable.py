"""Where exact elimination is affordable: the sizes of its tables, known before any work, beside what messages cost."""

from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._reduction import Reduction
from sklearn_crf.inference.exact._junction_tree import JunctionTree, planned_cells
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.models import FactorGraph, PairwiseModel, model_of_components

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


def exact_inference(
    structure: Graph | PairwiseModel | FactorGraph, n_states: int | None = None, n_sweeps: int = _SWEEPS
) -> Inference | None:
    r"""The exact algorithm for a structure, if one is affordable: the rule behind every "auto".

    Forests go to :class:`TreeInference`. Elimination (:class:`JunctionTree`) is affordable if, in each connected
    component c, its number of table cells is at most

    .. math:: \min\Big(2^{24}, \; n \max\big(2^{21} / 100, \; 2 \sum_{e \in c} K^2\big)\Big),

    the entries that n sweeps of messages read, within bounds: with the 100 sweeps of the default some 20 milliseconds
    are always affordable, and 128 MB never. Components with cycles and more than 2,000 nodes are not tried. The number
    of cells is that of the order of elimination found by minimum degree, which is known at once, and then that of the
    plan.

    Parameters
    ----------
    structure : Graph, PairwiseModel or FactorGraph
        A graph stands for all models on it; nodes of which a model allows one state only cost nothing.
    n_states : int, optional
        Number of states of each node, needed with a graph alone.
    n_sweeps : int, default=100
        Sweeps of messages that elimination is compared with. Training takes 10, since messages go on there from those
        of the step before.

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
        unary = np.zeros((structure.n_nodes, n_states), dtype=np.float32)
        structure = PairwiseModel(structure, unary, np.zeros((1, n_states, n_states)))
    if isinstance(structure, PairwiseModel) and structure.graph.is_forest:
        return TreeInference()
    return JunctionTree() if affordable_components(structure, n_sweeps).all() else None


def affordable_components(model: PairwiseModel | FactorGraph, n_sweeps: int = _SWEEPS) -> np.ndarray:
    """Which connected components elimination can afford, (n_components,) bool; one False if it can afford none."""
    if isinstance(model, FactorGraph):
        structure = _Factors(model, model.component, model.n_components)
    else:
        graph = model.graph
        if graph.n_nodes > _MOST_TOGETHER:
            return np.zeros(1, dtype=bool)
        if graph.n_nodes > _MOST_NODES and graph.n_components == 1 and graph.n_edges >= graph.n_nodes:
            return np.zeros(1, dtype=bool)
        structure = _Edges(model, graph.component, graph.n_components)
    tried = ~structure.too_large
    if not tried.any():
        return tried
    budgets = np.minimum(n_sweeps * np.maximum(structure.n_entries, _LEAST_CELLS / _SWEEPS), _MOST_CELLS)
    cells = np.where(tried, structure.cells(tried), np.inf)
    unclear = (cells > budgets) & (cells <= _SLACK * budgets)
    if unclear.any():
        part = model if unclear.all() else model_of_components(model, unclear)[0]
        cells[unclear] = planned_cells(part)
    return cells <= budgets


class _Edges:
    """Sizes of the components of a pairwise model."""

    def __init__(self, model, component, n_components):
        self.model, self.graph = model, model.graph
        self.component, self.n_components = component, n_components
        n_nodes = np.bincount(component, minlength=n_components)
        n_edges = np.bincount(component[model.graph.edges[:, 0]], minlength=n_components)
        dense = (n_edges > _MOST_EDGES_OF_A_NODE * n_nodes) & (n_nodes > _SMALL)
        self.too_large = (n_edges >= n_nodes) & ((n_nodes > _MOST_NODES) | dense)
        self.n_entries = 2.0 * n_edges * model.n_columns**2

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

    def __init__(self, model, component, n_components):
        self.problem = problem = Reduction(model)
        self.component, self.n_components = component, n_components
        self.edges = _pairs(problem.scopes)
        sizes = [float(n_joint_states(problem.n_states[scope])) * len(scope) for scope in problem.scopes]
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


def most_states(graph: Graph, most_cells: float) -> int:
    """States that all nodes may have for elimination to take no more than so many cells."""
    _, ptr = _cliques(graph.edges, graph.n_nodes)
    sizes = np.bincount(np.diff(ptr))
    n_states = 1
    while sizes @ (n_states + 1.0) ** np.arange(len(sizes)) <= most_cells:
        n_states += 1
    return n_states


def _cells_of_components(edges, n_states, component, n_components):
    """Cells of the cliques of a minimum-degree order, by component."""
    log_states = np.log(np.maximum(n_states, 1))
    edges = edges[(log_states[edges] > 0).all(axis=1)]
    members, ptr = _cliques(edges, len(n_states))
    cells = np.exp(np.minimum(np.add.reduceat(log_states[members], ptr[:-1]), _ENDLESS))
    return np.bincount(component[members[ptr[:-1]]], cells, n_components)


def _cliques(edges, n_nodes):
    """Nodes of the cliques of a minimum-degree order, each first in one: the columns of a Cholesky factor."""
    # returns members: nodes, clique by clique; ptr: (n_nodes + 1,)
    rows, columns = np.concatenate((edges, edges[:, ::-1])).T
    joined = sp.coo_matrix((np.full(len(rows), -1.0), (rows, columns)), shape=(n_nodes, n_nodes)).tocsr()
    joined.data[:] = -1.0
    dominant = sp.diags(np.diff(joined.indptr) + 1.0) + joined
    options = {"SymmetricMode": True}
    factor = splu(dominant.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    lower = factor.L.tocsc()
    return np.argsort(factor.perm_c)[lower.indices], lower.indptr
