"""Edge probabilities of distributions over spanning trees, computed without the trees."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import depth_first_order
from scipy.sparse.linalg import splu

from sklearn_crf._numbers import as_reals
from sklearn_crf.graphs._graph import Graph
from sklearn_crf.kernels.graphs.graphs import find_violation, selected_inverse

# Rounding error of probabilities, and relative rounding error of their sums.
_ROUNDING = 1e-8


def check_edge_probabilities(graph: Graph, edge_probabilities: ArrayLike) -> None:
    r"""Raise ValueError unless edge probabilities lie in the spanning tree polytope.

    The polytope contains the edge probabilities of all distributions over spanning trees (forests, on a disconnected
    graph). The polytope is given (Edmonds 1971) by

    .. math::
        \nu \ge 0, \quad \sum_{e \in E} \nu_e = |V| - 1, \quad
        \sum_{e \subseteq S} \nu_e \le |S| - 1 \ \text{ for all sets } S \text{ of nodes}

    for each component. The sets are not enumerated. For a given node r, all sets that contain r obey the bound if and
    only if the probability of each edge can be divided between its ends such that every node receives at most one, and
    r receives nothing. One maximum flow finds this division for the first r. For each further r, only one unit of flow
    is rerouted. The flows are integers.
    """
    # edge_probabilities: (E,)
    probability = as_reals(edge_probabilities, "edge_probabilities", np.float64)
    if probability.shape != (graph.n_edges,):
        raise ValueError(f"edge_probabilities must have shape ({graph.n_edges},), got {probability.shape}.")
    outside = ~((probability >= -_ROUNDING) & (probability <= 1 + _ROUNDING))
    if outside.any():
        e = int(np.argmax(outside))
        raise ValueError(f"edge_probabilities[{e}] must be a number from 0 to 1, got {probability[e]:.6g}.")
    _check_sums(graph, probability)
    node = _find_violated_node(graph, np.clip(probability, 0, 1))
    if node >= 0:
        raise ValueError(
            "edge_probabilities do not come from a distribution over trees: within a set of nodes around node "
            f"{node}, they sum to more than the number of edges that a tree can have there."
        )


def _check_sums(graph, probability):
    component = graph.component
    total = np.bincount(component[graph.edges[:, 0]], weights=probability, minlength=graph.n_components)
    expected = np.bincount(component, minlength=graph.n_components) - 1
    wrong = np.abs(total - expected) > _ROUNDING * np.maximum(expected, 1)
    if wrong.any():
        c = int(np.argmax(wrong))
        raise ValueError(
            f"edge_probabilities in the component of node {int(np.argmax(component == c))} sum to {total[c]:.9g}, "
            f"but must sum to {expected[c]}, the number of edges of a spanning tree."
        )


def _find_violated_node(graph, probability):
    n_nodes, n_edges = graph.n_nodes, graph.n_edges
    # Sums over all nodes must fit in 62 bits.
    unit = 2 ** (60 - int(np.ceil(np.log2(n_nodes + 2))))
    ptr, neighbor, half_edge, _ = graph.incidence
    return find_violation(
        ptr,
        neighbor,
        half_edge,
        _order_depth_first(graph),
        graph.component,
        np.floor(probability * (unit / (1 + _ROUNDING))).astype(np.int64),
        unit,
        np.empty(2 * n_edges, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.full(n_nodes, -1, dtype=np.int32),
        np.empty(n_nodes, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int32),
        np.empty(n_nodes, dtype=np.int32),
    )


def _order_depth_first(graph):
    """Return all nodes in depth-first order, component by component, so that flow moves over short distances."""
    n_nodes = graph.n_nodes
    first = np.unique(graph.component, return_index=True)[1]
    # An extra node, joined to each component, lets a single traversal reach all nodes.
    tails = np.concatenate((graph.edges[:, 0], np.full(len(first), n_nodes)))
    heads = np.concatenate((graph.edges[:, 1], first))
    joined = sp.csr_matrix((np.ones(len(tails)), (tails, heads)), shape=(n_nodes + 1, n_nodes + 1))
    order = depth_first_order(joined, n_nodes, directed=False, return_predecessors=False)
    return order[1:].astype(np.int32)


def compute_uniform_edge_probabilities(graph: Graph) -> np.ndarray:
    """Return equal edge probabilities in each component, (nodes - 1) / edges, or raise ValueError if they are invalid.

    Equal probabilities are valid on grids, complete graphs and most regular graphs. Equal probabilities are invalid if
    a part of the graph is denser than the whole, for instance if there is a bridge, which is in every spanning tree.
    :func:`effective_resistances` are valid on all graphs.
    """
    # returns: (E,), float64
    component = graph.component
    n_nodes = np.bincount(component, minlength=graph.n_components)
    n_edges = np.bincount(component[graph.edges[:, 0]], minlength=graph.n_components)
    probability = ((n_nodes - 1) / np.maximum(n_edges, 1))[component[graph.edges[:, 0]]]
    try:
        check_edge_probabilities(graph, probability)
    except ValueError as error:
        raise ValueError(
            "Equal edge probabilities are not valid on this graph, because a part of it is denser than the whole "
            "graph (a bridge, for example, is in every spanning tree): use effective_resistances or covering_trees."
        ) from error
    return probability


def effective_resistances(graph: Graph) -> np.ndarray:
    r"""Return the probability of each edge to be in a spanning tree that is drawn uniformly from all spanning trees.

    .. math::
        \nu_{ij} = L^+_{ii} + L^+_{jj} - 2 L^+_{ij}

    for the Laplacian L of the graph: the resistance between the ends of the edge if every edge is a resistor of one ohm
    (Kirchhoff 1847). Effective resistances are valid on every graph, and exactly one for bridges. Takahashi's
    recurrence computes only the needed entries of the inverse, from a sparse factorisation.
    """
    # returns: (E,), float64
    n_nodes, n_edges = graph.n_nodes, graph.n_edges
    if n_edges == 0:
        return np.zeros(0)
    # Removing (grounding) one node of each component leaves a positive definite matrix.
    grounded = np.unique(graph.component, return_index=True)[1]
    place = np.full(n_nodes, -1)
    place[np.setdiff1d(np.arange(n_nodes), grounded)] = np.arange(n_nodes - len(grounded))
    kept = place >= 0
    tails, heads = graph.edges.T
    adjacency = sp.coo_matrix((np.ones(n_edges), (tails, heads)), shape=(n_nodes, n_nodes)).tocsr()
    laplacian = (sp.diags(graph.degree.astype(float)) - adjacency - adjacency.T).tocsc()[kept][:, kept]
    inverse, new_place = _compute_selected_inverse(laplacian)
    place[kept] = new_place
    own = np.zeros(n_nodes)
    own[kept] = inverse.diagonal()[place[kept]]
    inner = kept[tails] & kept[heads]
    ends = np.sort(place[graph.edges[inner]], axis=1)
    between = np.zeros(n_edges)
    between[inner] = np.asarray(inverse[ends[:, 1], ends[:, 0]]).ravel()
    resistance = np.minimum(own[tails] + own[heads] - 2 * between, 1.0)
    # Set bridges to exactly one: an edge on a cycle of n nodes has a resistance of at most 1 - 1 / n.
    resistance[resistance > 1 - 0.5 / max(graph.n_nodes, 1)] = 1.0
    return resistance


def _compute_selected_inverse(matrix):
    """Return the lower triangle of a positive definite matrix's inverse, with permuted rows, and each row's new index.

    Only entries in the sparsity pattern of the Cholesky factor are computed. The pattern includes all non-zero entries
    of the matrix.
    """
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    lower = factors.L.tocsc()
    lower.sort_indices()
    n = matrix.shape[0]
    inverse = np.empty(lower.nnz)
    selected_inverse(
        lower.indptr.astype(np.int32),
        lower.indices.astype(np.int32),
        lower.data,
        factors.U.diagonal(),
        inverse,
        np.zeros(n),
        np.full(n, -1, dtype=np.int32),
        np.zeros(n),
    )
    return sp.csc_matrix((inverse, lower.indices, lower.indptr), shape=(n, n)), factors.perm_c


def compute_chain_probabilities(graph: Graph) -> np.ndarray:
    r"""Return edge probabilities, as equal as possible, of chains along which node indices ascend.

    .. math::
        \nu_{st} = 1 / \max(n^+_s, n^-_t), \qquad s < t,

    where :math:`n^+_s` is the number of neighbours after node s and :math:`n^-_t` the number of neighbours before node
    t. At each node, the probabilities of the edges to later nodes sum to at most one. The same is true of the edges to
    earlier nodes. On forests all probabilities are one. On lattices, all probabilities are equal to the smallest of
    these values, so that they do not change if the lattice is mirrored.
    """
    # returns: (E,), float64
    if graph.is_forest:
        return np.ones(graph.n_edges)
    earlier, later = np.sort(graph.edges, axis=1).T
    n_after = np.bincount(earlier, minlength=graph.n_nodes)
    n_before = np.bincount(later, minlength=graph.n_nodes)
    if graph.shape is not None:
        return np.full(graph.n_edges, 1.0 / max(n_after.max(), n_before.max()))
    return 1.0 / np.maximum(n_after[earlier], n_before[later])


def follows_chains(graph: Graph, edge_probabilities: ArrayLike) -> bool:
    r"""Return whether the probabilities of each node's edges to later nodes, and to earlier nodes, sum to at most one.

    .. math::
        \sum_{t > s} \nu_{st} \le 1, \qquad \sum_{t < s} \nu_{st} \le 1 \qquad \text{for all nodes } s.
    """
    # edge_probabilities: (E,)
    ends = np.sort(graph.edges, axis=1).T
    sums = [np.bincount(nodes, weights=edge_probabilities, minlength=graph.n_nodes) for nodes in ends]
    return bool(np.max(sums, initial=0) <= 1 + 1e-9)
