"""Families of random models for ``auto_limits.py``, including families for which "auto" once chose badly."""

from itertools import combinations, product

import numpy as np

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.models import FactorGraph, PairwiseModel

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])
FORBIDDEN = -np.inf


def spins(graph, rng, coupling=1.0, field=0.5):
    weight = coupling * rng.normal(size=graph.n_edges)
    return PairwiseModel(graph, field * rng.normal(size=(graph.n_nodes, 2)), SPIN[None], edge_weight=weight)


def tables(graph, rng, n_states, scale=1.0):
    unary = scale * rng.normal(size=(graph.n_nodes, n_states))
    pairs = scale * rng.normal(size=(graph.n_edges, n_states, n_states))
    return PairwiseModel(graph, unary, pairs, np.arange(graph.n_edges))


def potts(graph, rng, n_states, coupling):
    return PairwiseModel(graph, rng.normal(size=(graph.n_nodes, n_states)), [coupling * np.eye(n_states)])


def bipartite(n_left, n_right):
    return Graph(n_left + n_right, [(s, n_left + t) for s in range(n_left) for t in range(n_right)])


def clique(n_nodes):
    return Graph(n_nodes, list(combinations(range(n_nodes), 2)))


def skip_chain(n_nodes):
    chain = [(s, s + 1) for s in range(n_nodes - 1)]
    return Graph(n_nodes, chain + [(s, s + 2) for s in range(0, n_nodes - 2, 3)])


def regular(n_nodes, degree, rng):
    while True:
        ends = rng.permutation(np.repeat(np.arange(n_nodes), degree)).reshape(-1, 2)
        ends.sort(axis=1)
        if (ends[:, 0] < ends[:, 1]).all() and len(np.unique(ends, axis=0)) == len(ends):
            return Graph(n_nodes, ends)


def cubic_spins(rng, n_nodes=300):
    graph = regular(n_nodes, 3, rng)
    return PairwiseModel(graph, np.zeros((n_nodes, 2)), SPIN[None], edge_weight=rng.normal(size=graph.n_edges))


def planted_sat(rng, n_nodes=60, n_clauses=250, soft=0.0):
    """Return clauses of three literals that a hidden assignment satisfies, or with ``soft`` any clauses with costs."""
    truth, factors = rng.integers(0, 2, n_nodes), []
    while len(factors) < n_clauses:
        scope, signs = np.sort(rng.choice(n_nodes, 3, replace=False)), rng.integers(0, 2, 3)
        if not soft and (signs == truth[scope]).all():
            continue
        table = np.zeros((2, 2, 2))
        table[tuple(signs)] = -soft * (0.5 + rng.random()) if soft else FORBIDDEN
        factors.append((tuple(scope.tolist()), table))
    return FactorGraph.from_factors([2] * n_nodes, factors)


def colouring(rng, n_nodes=60, n_edges=140, n_colours=3):
    hidden, pairs = rng.integers(0, n_colours, n_nodes), set()
    while len(pairs) < n_edges:
        a, b = np.sort(rng.choice(n_nodes, 2, replace=False)).tolist()
        if hidden[a] != hidden[b]:
            pairs.add((a, b))
    table = np.where(np.eye(n_colours, dtype=bool), FORBIDDEN, 0.0)
    return PairwiseModel(Graph(n_nodes, sorted(pairs)), 0.3 * rng.normal(size=(n_nodes, n_colours)), [table])


def max_clique(rng, n_nodes=60, density=0.65):
    pairs = [pair for pair in combinations(range(n_nodes), 2) if rng.random() > density]
    table = np.array([[0.0, 0.0], [0.0, FORBIDDEN]])
    return PairwiseModel(Graph(n_nodes, pairs), np.tile([0.0, 1.0], (n_nodes, 1)), [table])


def frequencies(rng, n_links=40, n_states=20, n_edges=120):
    """Return links whose pairs have costs if their frequencies are closer than a minimum distance."""
    pairs, states = set(), np.arange(n_states)
    while len(pairs) < n_edges:
        pairs.add(tuple(np.sort(rng.choice(n_links, 2, replace=False)).tolist()))
    apart = np.abs(states[:, None] - states)
    found = [np.where(apart > rng.integers(1, 8), 0.0, -float(10 ** rng.integers(0, 4))) for _ in pairs]
    return PairwiseModel(
        Graph(n_links, sorted(pairs)), np.zeros((n_links, n_states)), np.array(found), np.arange(n_edges)
    )


def stereo(rng, shape=(80, 110), n_disparities=16):
    height, width = shape
    truth = (np.add.outer(np.arange(height) // 20, np.arange(width) // 22) * 3) % n_disparities
    noise = rng.integers(0, n_disparities, shape)
    seen = np.where(rng.random(shape) < 0.35, noise, truth).ravel()
    states = np.arange(n_disparities)
    unary = -np.minimum(np.abs(states - seen[:, None]), 4.0) + 0.05 * rng.normal(size=(seen.size, n_disparities))
    return PairwiseModel(lattice(shape), unary, [-np.minimum(np.abs(states[:, None] - states), 2.0)])


def diagnosis(rng, n_causes=60, n_findings=60):
    """Return a network of causes and observed noisy-or findings."""
    factors = []
    for cause in range(n_causes):
        prior = 0.02 + 0.1 * rng.random()
        factors.append(((cause,), np.log([1 - prior, prior])))
    for _ in range(n_findings):
        scope = tuple(np.sort(rng.choice(n_causes, rng.integers(2, 7), replace=False)).tolist())
        fails = np.ones(())
        for _ in scope:
            fails = np.multiply.outer(fails, [1.0, 0.05 + 0.4 * rng.random()])
        positive = rng.random() < 0.5
        factors.append((scope, np.log(np.maximum(1 - 0.99 * fails if positive else 0.99 * fails, 1e-300))))
    return FactorGraph.from_factors([2] * n_causes, factors)


def sparse_network(rng, n_nodes=120, n_states=3, n_parents=3):
    """Return a Bayesian network without observations; half of the conditional probabilities are zero."""
    factors = []
    for node in range(n_nodes):
        parents = sorted(rng.choice(node, min(node, n_parents), replace=False).tolist()) if node else []
        shape = (n_states,) * (len(parents) + 1)
        weight = rng.random(shape) * (rng.random(shape) < 0.5)
        weight[weight.sum(axis=-1) == 0] = 1.0
        with np.errstate(divide="ignore"):
            factors.append(((*parents, node), np.log(weight / weight.sum(axis=-1, keepdims=True))))
    return FactorGraph.from_factors([n_states] * n_nodes, factors)


def hypergraph_colouring(rng, n_nodes=60, n_factors=220, n_colours=2, arity=4):
    """Return preferences for colours, and factors that score sets of nodes of the same colour."""
    factors = [((s,), 0.3 * rng.normal(size=n_colours)) for s in range(n_nodes)]
    for _ in range(n_factors):
        scope = tuple(np.sort(rng.choice(n_nodes, arity, replace=False)).tolist())
        table = np.zeros((n_colours,) * arity)
        for colour in range(n_colours):
            table[(colour,) * arity] = rng.normal() - 1.0
        factors.append((scope, table))
    return FactorGraph.from_factors([n_colours] * n_nodes, factors)


def pigeons(n_pigeons=9, n_holes=8):
    """Return a colouring of a clique with one colour too few."""
    table = np.where(np.eye(n_holes, dtype=bool), FORBIDDEN, 0.0)
    return PairwiseModel(clique(n_pigeons), np.zeros((n_pigeons, n_holes)), [table])


def network_with_zeros(rng, n_nodes=100, n_states=4):
    """Return a Bayesian network whose tables have many zero probabilities, with observed nodes."""
    factors = []
    for node in range(n_nodes):
        parents = sorted(rng.choice(node, min(node, 2), replace=False).tolist()) if node else []
        weight = rng.random((n_states,) * (len(parents) + 1)) * (rng.random((n_states,) * (len(parents) + 1)) < 0.4)
        weight[..., 0] += 1e-3
        with np.errstate(divide="ignore"):
            factors.append(((*parents, node), np.log(weight / weight.sum(axis=-1, keepdims=True))))
    seen = rng.choice(n_nodes, n_nodes // 10, replace=False)
    return FactorGraph.from_factors(
        [n_states] * n_nodes, factors + [((int(s),), np.array([0.0] + [-3.0] * (n_states - 1))) for s in seen]
    )


def arity_five(rng, n_nodes=35, n_factors=40):
    factors = [((s,), rng.normal(size=2)) for s in range(n_nodes)]
    for _ in range(n_factors):
        scope = tuple(np.sort(rng.choice(n_nodes, 5, replace=False)).tolist())
        factors.append((scope, rng.normal(size=(2,) * 5)))
    return FactorGraph.from_factors([2] * n_nodes, factors)


def warehouses(rng, n_sites=10, n_shops=20):
    """Return a facility location problem: shops choose among sites, and open sites have costs."""
    factors = [((site,), np.array([0.0, -20.0 - 20 * rng.random()])) for site in range(n_sites)]
    for shop in range(n_shops):
        factors.append(((n_sites + shop,), -np.round(50 * rng.random(n_sites))))
        for site in range(n_sites):
            table = np.zeros((2, n_sites))
            table[0, site] = FORBIDDEN
            factors.append(((site, n_sites + shop), table))
    return FactorGraph.from_factors([2] * n_sites + [n_sites] * n_shops, factors)


def latin_square(rng, side=9, n_holes=45, box=3):
    """Return a sudoku, or with ``box=0`` a quasi-group, with holes and random preferences."""
    base = np.array(
        [[(3 * (r % 3) + r // 3 + c) % side if box else (r + c) % side for c in range(side)] for r in range(side)]
    )
    base = rng.permutation(side)[base]
    unary = rng.random((side * side, side))
    for cell in rng.permutation(side * side)[n_holes:]:
        unary[cell, np.arange(side) != base.flat[cell]] = FORBIDDEN
    cells = list(product(range(side), repeat=2))

    def differ(a, b):
        boxes = box and (a[0] // box, a[1] // box) == (b[0] // box, b[1] // box)
        return a[0] == b[0] or a[1] == b[1] or boxes

    pairs = [(i, j) for (i, a), (j, b) in combinations(enumerate(cells), 2) if differ(a, b)]
    table = np.where(np.eye(side, dtype=bool), FORBIDDEN, 0.0)
    return PairwiseModel(Graph(side * side, pairs), unary, [table])


#: Families for MAP inference: functions from a random generator to a model, by name.
LABELED = {
    "spins 30 x 30": lambda rng: spins(lattice((30, 30)), rng),
    "spins 7 x 7 x 7": lambda rng: spins(lattice((7, 7, 7)), rng),
    "cubic spins": cubic_spins,
    "planted 3-SAT": planted_sat,
    "max-3-SAT": lambda rng: planted_sat(rng, 50, 300, soft=1.0),
    "colouring": colouring,
    "max-clique": max_clique,
    "clique of 14, 44 states": lambda rng: tables(clique(14), rng, 44),
    "frequencies": frequencies,
    "stereo": stereo,
    "diagnosis": diagnosis,
    "network with zeros": network_with_zeros,
    "factors of five": arity_five,
    "warehouses": warehouses,
    "sudoku": latin_square,
    "quasi-group": lambda rng: latin_square(rng, 10, 60, 0),
    "any tables 10 x 10": lambda rng: tables(lattice((10, 10)), rng, 6),
    "Potts 20 x 20": lambda rng: potts(lattice((20, 20)), rng, 4, 0.6),
    "network, 3 parents": sparse_network,
    "hypergraph, 2 colours": hypergraph_colouring,
    "hypergraph, 3 colours": lambda rng: hypergraph_colouring(rng, n_factors=300, n_colours=3, arity=3),
    "max-clique of 200": lambda rng: max_clique(rng, 200),
    "cubic spins of 1,500": lambda rng: cubic_spins(rng, 1500),
}

#: Families for marginals: functions from a random generator to a model, by name.
SUMMED = {
    "ladder 2 x 1500": lambda rng: spins(lattice((2, 1500)), rng),
    "ladder 3 x 700": lambda rng: spins(lattice((3, 700)), rng),
    "ladder 8 x 300": lambda rng: spins(lattice((8, 300)), rng),
    "ladder 12 x 100": lambda rng: spins(lattice((12, 100)), rng),
    "ladder 4 x 20,000": lambda rng: spins(lattice((4, 20_000)), rng),
    "Ising 10 x 100": lambda rng: PairwiseModel(lattice((10, 100)), 0.1 * rng.normal(size=(1000, 2)), [0.44 * SPIN]),
    "skip chain, 9 states": lambda rng: tables(skip_chain(3000), rng, 9),
    "Potts 11 x 11, 3 states": lambda rng: potts(lattice((11, 11)), rng, 3, 1.0),
    "Potts 6 x 6, 8 states": lambda rng: potts(lattice((6, 6)), rng, 8, 1.5),
    "planted 3-SAT, 30": lambda rng: planted_sat(rng, 30, 120),
    "factors of five": lambda rng: arity_five(rng, 35, 30),
    "network with zeros": lambda rng: network_with_zeros(rng, 60, 4),
    "diagnosis": lambda rng: diagnosis(rng, 40, 30),
    "spins 18 x 18": lambda rng: spins(lattice((18, 18)), rng),
    "spins 20 x 20": lambda rng: spins(lattice((20, 20)), rng),
    "cubic spins": lambda rng: cubic_spins(rng, 100),
    "clique of 18": lambda rng: tables(clique(18), rng, 2, 0.5),
}

# Models whose exact marginals are affordable with 8 GB, with edges of random strength.
ESTIMATED = {
    "spins 10 x 24": lambda rng: spins(lattice((10, 24)), rng, rng.uniform(0.3, 1.5), 0.3),
    "attraction 10 x 24": lambda rng: PairwiseModel(
        lattice((10, 24)), 0.1 * rng.normal(size=(240, 2)), [rng.uniform(0.1, 0.6) * SPIN]
    ),
    "Potts 7 x 12, 3 states": lambda rng: potts(lattice((7, 12)), rng, 3, rng.uniform(0.3, 2.0)),
    "grid 5 x 20, 4 states": lambda rng: tables(lattice((5, 20)), rng, 4, rng.uniform(0.3, 1.5)),
    "cubic graph": lambda rng: spins(regular(50, 3, rng), rng, rng.uniform(0.3, 1.5), 0.2),
    "clique of 15": lambda rng: spins(clique(15), rng, rng.uniform(0.1, 0.5), 0.2),
    "two layers of 14 and 22": lambda rng: spins(bipartite(14, 22), rng, rng.uniform(0.3, 1.0), 0.5),
    "skip chain, 5 states": lambda rng: tables(skip_chain(60), rng, 5, rng.uniform(0.3, 1.5)),
    "volume 3 x 3 x 12": lambda rng: spins(lattice((3, 3, 12)), rng, rng.uniform(0.3, 1.2), 0.3),
    "factors of five": lambda rng: arity_five(rng, 28, 15),
    "clauses": lambda rng: planted_sat(rng, 24, 90, rng.uniform(0.5, 4.0)),
    "diagnosis": lambda rng: diagnosis(rng, 20, 15),
}
