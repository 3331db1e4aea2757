"""Four families of random models of Jancsary 2012 ("Novel Convergent Inference Algorithms", Experiments)."""

from functools import partial

import numpy as np

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.models import PairwiseModel

SPINS = np.array([-1.0, 1.0])


def _ising(graph, node, edge):
    """Return a model with scores theta_s y_s and theta_st y_s y_t, y in {-1, 1}, and a separate table for each edge.

    Separate tables give separate marginals of edges.
    """
    tables = edge[:, None, None] * np.outer(SPINS, SPINS)
    return PairwiseModel(graph, node[:, None] * SPINS, tables, edge_type=np.arange(graph.n_edges))


def grid_isinggauss(side, rng):
    """Return a square grid with all theta drawn from N(0, 1)."""
    graph = lattice((side, side))
    return _ising(graph, rng.normal(size=graph.n_nodes), rng.normal(size=graph.n_edges))


def grid_isinguniform(side, rng):
    """Return a square grid with all theta drawn from U(-1, 1)."""
    graph = lattice((side, side))
    return _ising(graph, rng.uniform(-1, 1, size=graph.n_nodes), rng.uniform(-1, 1, size=graph.n_edges))


def regular_isinggauss(n_nodes, rng, degree=10, coupling=1.0):
    """Return a random regular graph with all theta drawn from N(0, 1), and theta of edges times ``coupling``."""
    graph = random_regular(n_nodes, degree, rng)
    return _ising(graph, rng.normal(size=graph.n_nodes), coupling * rng.normal(size=graph.n_edges))


def complete_expgauss(n_nodes, rng, n_states=4):
    """Return a complete graph without unary scores, with all entries of tables drawn from N(0, 1)."""
    graph = Graph(n_nodes, np.stack(np.triu_indices(n_nodes, 1), axis=1))
    tables = rng.normal(size=(graph.n_edges, n_states, n_states))
    return PairwiseModel(graph, np.zeros((n_nodes, n_states)), tables, edge_type=np.arange(graph.n_edges))


def random_regular(n_nodes, degree, rng, rounds=20):
    """Return a random regular graph: a ring lattice of even degree after many random swaps of ends of two edges."""
    near = np.arange(1, degree // 2 + 1)
    edges = [(s, (s + step) % n_nodes) for s in range(n_nodes) for step in near.tolist()]
    present = {frozenset(edge) for edge in edges}
    for _ in range(rounds * len(edges)):
        i, j = rng.integers(len(edges), size=2)
        (a, b), (c, d) = edges[i], edges[j][:: rng.choice((-1, 1))]
        fresh = frozenset((a, d)), frozenset((c, b))
        if len({a, b, c, d}) < 4 or any(edge in present for edge in fresh):
            continue
        present -= {frozenset(edges[i]), frozenset(edges[j])}
        present |= set(fresh)
        edges[i], edges[j] = (a, d), (c, b)
    return Graph(n_nodes, np.sort(np.array(edges), axis=1))


# Not in the thesis under this name, but its figures of regular graphs match this family, see trw_table1.py.
STRONG = "REGULAR, COUPLINGS x 3"

FAMILIES = {
    "GRID ISINGGAUSS": grid_isinggauss,
    "GRID ISINGUNIFORM": grid_isinguniform,
    "REGULAR ISINGGAUSS": regular_isinggauss,
    "COMPLETE EXPGAUSS": complete_expgauss,
    STRONG: partial(regular_isinggauss, coupling=3.0),
}
