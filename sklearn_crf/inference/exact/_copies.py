"""Exact marginals of many copies of one graph with equal tables, such as the labels of each row in multi-label data."""

from collections.abc import Callable
from functools import partial

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._threads import allocate_workspace, limit_blas_threads
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.inference.exact._chains import WIDEST_RANGE
from sklearn_crf.kernels.exact.labelings import ROWS_OF_A_NODE, SIDE_BY_SIDE, marginals_of_copies
from sklearn_crf.models import Statistics, cache_with_layout


def _find_copy_tables(model):
    """Return the graph, edge types and edge tables of one copy if a model consists of copies of a graph, else None."""
    # tables: (E, K, K) float64, finite
    part, is_plain = model.graph.copied_part, model.edge_weight is None and model.n_states is None
    if part is None or not part.n_edges or not is_plain or model.tables.shape[1] != 1:
        return None
    kind = cache_with_layout(model, "types of copies", partial(_find_copy_types, model.edge_type, part.n_edges))
    tables = model.tables[kind, 0].astype(np.float64)
    return (part, kind, tables) if len(kind) and np.all(np.isfinite(tables)) else None


def _find_copy_types(edge_type, n_edges):
    """Return the types of the edges of each copy, or an empty array if copies differ."""
    kind = edge_type.reshape(-1, n_edges)
    return kind[0] if np.all(kind == kind[0]) else kind[0, :0]


class _Forest:
    """A two-state forest whose copies make up a model, in the form that the kernel expects."""

    def __init__(self, graph, tables):
        # tables: (E, 2, 2) float64, a table for each edge of the forest
        self.graph = graph
        self.parent, to_parent = graph.parents
        self.child = np.flatnonzero(self.parent >= 0)
        #: Edge from each child to its parent, and whether the child is the head of the edge.
        self.edge, self.turned = np.divmod(to_parent[self.child], 2)
        towards = np.where(self.turned[:, None, None] == 1, tables[self.edge].swapaxes(1, 2), tables[self.edge])
        self.best, self.factors = np.zeros(graph.n_nodes), np.ones((graph.n_nodes, 4))
        self.best[self.child] = towards.max(axis=(1, 2))
        self.factors[self.child] = np.exp(towards - self.best[self.child, None, None]).reshape(-1, 4)
        spread = (tables.max(axis=(1, 2)) - tables.min(axis=(1, 2))).max(initial=0.0)
        self.widest = WIDEST_RANGE - (graph.largest_degree + 1) * spread

    def marginals(self, unary, with_pairs):
        """Return marginals of nodes and child-parent pairs, and log-partition terms, or None if sums may underflow."""
        n_nodes = self.graph.n_nodes
        posterior = np.empty_like(unary)
        pairs, terms = np.empty((n_nodes * with_pairs, 4)), np.empty(len(unary) * with_pairs)
        work = allocate_workspace(ROWS_OF_A_NODE * n_nodes * SIDE_BY_SIDE)
        order = self.graph.forest.order
        fits = self.widest > 0 and marginals_of_copies(
            unary, order, self.parent, self.factors, self.best, self.widest, posterior, pairs, terms, work
        )
        return (posterior, pairs, terms) if fits else None

    def by_edge(self, pairs):
        """Convert marginals of child-parent pairs to marginals (E, 2, 2) of the ends of each edge."""
        sums = np.empty((self.graph.n_edges, 2, 2))
        towards = pairs[self.child].reshape(-1, 2, 2)
        sums[self.edge] = np.where(self.turned[:, None, None] == 1, towards.swapaxes(1, 2), towards)
        return sums


def compute_forest_node_marginals(model):
    """Return node marginals of copies of a forest, or None if the model or its range of scores is unsuitable."""
    copied = _find_copy_tables(model) if model.n_columns == 2 else None
    found = None if copied is None else _Forest(copied[0], copied[2]).marginals(model.unary, False)
    return None if found is None else found[0]


def compute_forest_marginals(model):
    """Return marginals and log Z of copies of a forest, or None if the model or its range of scores is unsuitable."""
    copied = _find_copy_tables(model) if model.n_columns == 2 else None
    if copied is None:
        return None
    part, kind, tables = copied
    forest = _Forest(part, tables)
    found = forest.marginals(model.unary, True)
    if found is None:
        return None
    posterior, pairs, terms = found
    return _as_marginals(model, posterior, kind, forest.by_edge(pairs), terms)


def _as_marginals(model, unary, kind, pairs, terms):
    # kind: (E,), edge types of one copy; pairs: (E, K, K), sums over copies
    tables = np.zeros(model.tables.shape)
    np.add.at(tables[:, 0], kind, pairs)
    return Marginals(unary, Statistics(unary, tables), float(terms.sum()), terms, bound="exact", n_iter=1)


def is_enumerated(graph: Graph, n_states: int, n_cells_of: Callable[[Graph, int], float]) -> bool:
    """Return whether a graph has few joint states, and a sum over these is faster than elimination."""
    size = n_joint_states(np.full(graph.n_nodes, n_states))
    return size <= _tuning.MOST_ENUMERATED and size <= _tuning.PRODUCTS_OF_A_CELL * n_cells_of(graph, n_states)


def enumerate_copy_marginals(model, n_cells_of):
    r"""Return marginals of copies of a small dense graph, or None if elimination is faster or sums may underflow.

    All copies share the scores S of edges. The nodes are split in two halves, and matrix products sum over the joint
    states (a, b) of the halves. If w and v are the exponentials of the unary scores of the two halves,

    .. math:: Z_r = w_r^\top e^S v_r, \qquad \sum_r P_r(a, b) = e^{S(a, b)} \sum_r \frac{w_r(a) v_r(b)}{Z_r}.
    """
    # n_cells_of: function that returns the number of table cells that elimination needs for a graph
    copied = _find_copy_tables(model)
    if copied is None:
        return None
    part, kind, tables = copied
    n_nodes, n_states = part.n_nodes, model.n_columns
    if not is_enumerated(part, n_states, n_cells_of):
        return None
    sizes = n_nodes // 2, n_nodes - n_nodes // 2
    # Indicators (n_joint, nodes * K) of the states of nodes in each joint state of a half
    halves = part.keep(("joint states", n_states), lambda: [_build_state_indicators(n, n_states) for n in sizes])
    scores = _score_halves(part, tables, *halves)
    if np.ptp(scores) > WIDEST_RANGE:
        return None
    with limit_blas_threads():
        unary, terms, both = _sum_over_halves(model.unary.reshape(-1, n_nodes, n_states), scores, *halves)
        pairs = _sum_by_edge(part, both, *halves)
    return _as_marginals(model, unary.astype(model.dtype), kind, pairs, terms)


def _score_halves(graph, tables, first, second):
    """Return the scores of edges in each pair of joint states of the halves."""
    # tables: (E, K, K)
    size, cut, n_states = first.shape[1] + second.shape[1], first.shape[1], tables.shape[1]
    of_edges = np.zeros((graph.n_nodes, n_states, graph.n_nodes, n_states))
    of_edges[graph.edges[:, 0], :, graph.edges[:, 1]] = tables
    of_edges = of_edges.reshape(size, size)
    of_edges = np.triu(of_edges + of_edges.T)
    scores = first @ of_edges[:cut, cut:] @ second.T
    scores += ((first @ of_edges[:cut, :cut]) * first).sum(axis=1)[:, None]
    scores += ((second @ of_edges[cut:, cut:]) * second).sum(axis=1)
    return scores


def _sum_over_halves(unary, scores, of_first, of_second):
    """Return node marginals (copies * N, K), log-partition terms, and the sum over copies of joint marginals."""
    # unary: (copies, N, K)
    (n_copies, n_nodes, n_states), best = unary.shape, float(scores.max())
    factor, middle = np.exp(scores - best), n_nodes // 2
    found, terms, both = np.empty(unary.shape), np.zeros((n_copies, n_nodes)), np.zeros(factor.shape)
    step = max(1, _tuning.MOST_ENUMERATED // sum(factor.shape))
    for start in range(0, n_copies, step):
        rows = slice(start, start + step)
        own = unary[rows].astype(np.float64)
        highest = own.max(axis=2, keepdims=True)
        shares = np.exp(own - highest)
        first, second = _multiply_node_values(shares[:, :middle]), _multiply_node_values(shares[:, middle:])
        total = first @ factor
        total *= second
        sums = total.sum(axis=1)
        terms[rows, 0] = np.log(sums) + best + highest.sum(axis=(1, 2))
        first /= sums[:, None]
        both += first.T @ second
        first *= second @ factor.T
        total /= sums[:, None]
        nodes = np.concatenate((first @ of_first, total @ of_second), axis=1)
        found[rows] = nodes.reshape(own.shape)
    return found.reshape(-1, n_states), terms.ravel(), both * factor


def _sum_by_edge(graph, both, first, second):
    """Return sums over joint states, (E, K, K): for each edge, one sum for each pair of states of its ends."""
    across = first.T @ both @ second
    in_first = (first * both.sum(axis=1)[:, None]).T @ first
    in_second = (second * both.sum(axis=0)[:, None]).T @ second
    pairs = np.block([[in_first, across], [across.T, in_second]])
    tails, heads = graph.edges.T
    return pairs.reshape(graph.n_nodes, -1, graph.n_nodes, len(pairs) // graph.n_nodes)[tails, :, heads]


def _multiply_node_values(shares):
    """Return, for each joint state, the product of its node values; the last node's state changes fastest."""
    found = np.ones((len(shares), 1))
    for node in range(shares.shape[1]):
        found = (found[:, :, None] * shares[:, node, None, :]).reshape(len(shares), -1)
    return found


def _build_state_indicators(n_nodes, n_states):
    """Return indicators (K^n, n * K), zeros and ones, of the states of nodes in each joint state of the nodes."""
    states = np.indices((n_states,) * n_nodes).reshape(n_nodes, -1).T
    return (states[:, :, None] == np.arange(n_states)).reshape(len(states), -1).astype(np.float64)
