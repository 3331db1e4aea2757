"""Models with forbidden joint states that are known to be feasible, or to be infeasible."""

from itertools import combinations, product

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sklearn_crf.graphs import Graph
from sklearn_crf.models import FactorGraph, PairwiseModel, SparseTable, exactly_one


def random_edges(rng, n_nodes, n_edges, is_wanted=lambda a, b: True):
    edges = set()
    while len(edges) < n_edges:
        a, b = sorted(rng.choice(n_nodes, 2, replace=False).tolist())
        if is_wanted(a, b):
            edges.add((a, b))
    return np.array(sorted(edges))


def colouring(seed, n_nodes=60, n_states=5, density=None):
    """Return a colouring problem with a planted solution: neighbours must have different labels."""
    rng = np.random.default_rng(seed)
    planted = rng.integers(n_states, size=n_nodes)
    n_edges = int((rng.uniform(3, 9) if density is None else density) * n_nodes)
    edges = random_edges(rng, n_nodes, n_edges, lambda a, b: planted[a] != planted[b])
    table = np.where(np.eye(n_states) > 0, -np.inf, 0.0)
    return PairwiseModel(Graph(n_nodes, edges), rng.normal(size=(n_nodes, n_states)), table[None])


def sudoku_graph():
    cells = list(product(range(9), repeat=2))
    alike = [
        (i, j)
        for (i, (r, c)), (j, (s, d)) in combinations(enumerate(cells), 2)
        if r == s or c == d or (r // 3, c // 3) == (s // 3, d // 3)
    ]
    return Graph(81, alike)


def sudoku(seed, n_given=None):
    """Return a sudoku in which some cells are given."""
    rng = np.random.default_rng(seed)
    order = [[3 * band + row for band in rng.permutation(3) for row in rng.permutation(3)] for _ in range(2)]
    grid = np.array([[(3 * (r % 3) + r // 3 + c) % 9 for c in range(9)] for r in range(9)])
    grid = rng.permutation(9)[grid[np.ix_(*order)]].ravel()
    n_given = int(rng.integers(25, 36)) if n_given is None else n_given
    given = rng.choice(81, n_given, replace=False)
    unary = rng.normal(size=(81, 9))
    unary[given] = np.where(np.arange(9) == grid[given, None], 0.0, -np.inf)
    return PairwiseModel(sudoku_graph(), unary, np.where(np.eye(9) > 0, -np.inf, 0.0)[None])


def two_satisfiability(seed, n_nodes=None, ratio=None, satisfiable=True):
    """Return random clauses of two literals. If ``satisfiable``, the planted labels satisfy all clauses."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(20, 300)) if n_nodes is None else n_nodes
    ratio = rng.uniform(0.8, 2.0) if ratio is None else ratio
    planted, tables = rng.integers(2, size=n_nodes), {}
    for _ in range(int(ratio * n_nodes)):
        a, b = sorted(rng.choice(n_nodes, 2, replace=False).tolist())
        forbidden = rng.integers(2, size=2)
        while satisfiable and (forbidden == planted[[a, b]]).all():
            forbidden = rng.integers(2, size=2)
        tables.setdefault((a, b), np.zeros((2, 2)))[tuple(forbidden)] = -np.inf
    graph = Graph(n_nodes, np.array(list(tables)))
    return PairwiseModel(graph, rng.normal(size=(n_nodes, 2)), np.array(list(tables.values())), np.arange(len(tables)))


def is_satisfiable(model):
    """Return whether a pairwise model with two states is feasible, by strong components of its implications."""
    n_nodes, (tails, heads) = model.graph.n_nodes, model.graph.edges.T
    forbidden = np.isneginf(model.edge_tables())
    start, end = [], []
    for a, b in product(range(2), repeat=2):
        s, t = tails[forbidden[:, a, b]], heads[forbidden[:, a, b]]
        # Literal 2 v + a is true if node v has state a.
        start += [2 * s + a, 2 * t + b]
        end += [2 * t + 1 - b, 2 * s + 1 - a]
    nodes, states = np.nonzero(np.isneginf(model.unary))
    start, end = np.concatenate([*start, 2 * nodes + states]), np.concatenate([*end, 2 * nodes + 1 - states])
    implied = csr_array((np.ones(len(start)), (start, end)), shape=(2 * n_nodes, 2 * n_nodes))
    component = connected_components(implied, directed=True, connection="strong")[1]
    return bool((component[::2] != component[1::2]).all())


def constraint_network(seed, n_nodes=None, n_states=None, share=None):
    """Return random pairwise constraints (model B), so that few labelings besides the planted labeling are allowed."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(50, 101)) if n_nodes is None else n_nodes
    n_states = int(rng.integers(5, 11)) if n_states is None else n_states
    planted = rng.integers(n_states, size=n_nodes)
    tightness = rng.uniform(0.2, 0.5)
    threshold = n_nodes * np.log(n_states) / -np.log1p(-tightness)
    n_edges = min(int((rng.uniform(0.7, 1.1) if share is None else share) * threshold), n_nodes * (n_nodes - 1) // 2)
    edges = random_edges(rng, n_nodes, n_edges)
    tables = np.where(rng.random((n_edges, n_states, n_states)) < tightness, -np.inf, 0.0)
    tables[np.arange(n_edges), planted[edges[:, 0]], planted[edges[:, 1]]] = 0.0
    unary = rng.normal(size=(n_nodes, n_states))
    return PairwiseModel(Graph(n_nodes, edges), unary, tables, np.arange(n_edges))


def frequency_assignment(seed, n_nodes=100, n_states=40):
    """Return a frequency assignment with a planted solution: pairs have exact or minimum distances of frequencies."""
    rng = np.random.default_rng(seed)
    planted = rng.integers(n_states, size=n_nodes)
    gap = np.abs(np.subtract.outer(np.arange(n_states), np.arange(n_states)))
    pairs = {(2 * i, 2 * i + 1): gap == abs(planted[2 * i] - planted[2 * i + 1]) for i in range(n_nodes // 2)}
    for a, b in random_edges(rng, n_nodes, int(rng.uniform(2, 8) * n_nodes)).tolist():
        distance = min(int(rng.integers(1, 13)), abs(int(planted[a] - planted[b])))
        pairs.setdefault((a, b), gap >= distance)
    unary = np.where(rng.random((n_nodes, n_states)) < 0.2, -np.inf, rng.normal(size=(n_nodes, n_states)))
    unary[np.arange(n_nodes), planted] = 0.0
    tables = np.where(np.array(list(pairs.values())), 0.0, -np.inf)
    return PairwiseModel(Graph(n_nodes, np.array(list(pairs))), unary, tables, np.arange(len(tables)))


def three_satisfiability(seed, n_nodes=None, ratio=None, satisfiable=True):
    """Return random clauses of three literals. If ``satisfiable``, the planted labels satisfy all clauses."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(50, 201)) if n_nodes is None else n_nodes
    planted = rng.integers(2, size=n_nodes)
    factors = [((s,), rng.normal(size=2)) for s in range(n_nodes)]
    for _ in range(int((rng.uniform(3.0, 4.6) if ratio is None else ratio) * n_nodes)):
        scope, forbidden = rng.choice(n_nodes, 3, replace=False), rng.integers(2, size=3)
        while satisfiable and (forbidden == planted[scope]).all():
            forbidden = rng.integers(2, size=3)
        table = np.zeros((2, 2, 2))
        table[tuple(forbidden)] = -np.inf
        factors.append((scope, table))
    return FactorGraph.from_factors([2] * n_nodes, factors)


def exact_cover(seed, n_nodes=None):
    """Return an exact cover problem with a planted solution, and sparse tables of allowed joint states."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(30, 80)) if n_nodes is None else n_nodes
    planted = rng.random(n_nodes) < 0.3
    factors = [((s,), rng.normal(size=2)) for s in range(n_nodes)]
    taken, left_out = np.flatnonzero(planted), np.flatnonzero(~planted)
    for _ in range(n_nodes // 3):
        scope = np.append(rng.choice(left_out, 4, replace=False), rng.choice(taken))
        factors.append((rng.permutation(scope), exactly_one()))
    for _ in range(n_nodes // 3):
        scope = rng.choice(n_nodes, 5, replace=False)
        states = np.unique(np.vstack((rng.integers(2, size=(10, 5)), planted[scope])), axis=0)
        factors.append((scope, SparseTable(states, rng.normal(size=len(states)), -np.inf)))
    return FactorGraph.from_factors([2] * n_nodes, factors)


#: Builders of feasible models, by name.
PLANTED = {
    "colouring": colouring,
    "sudoku": sudoku,
    "2-SAT": two_satisfiability,
    "constraint network": constraint_network,
    "frequency assignment": frequency_assignment,
    "3-SAT": three_satisfiability,
    "exact cover": exact_cover,
}


def crowded_colouring(seed):
    """Return an infeasible colouring problem, in which a clique has one node more than there are labels."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(2, 6))
    model = colouring(seed, n_states=n_states, density=2.0)
    clique = rng.choice(60, n_states + 1, replace=False).tolist()
    edges = {*map(tuple, model.graph.edges.tolist()), *combinations(sorted(clique), 2)}
    return PairwiseModel(Graph(60, sorted(edges)), model.unary, model.tables)


def wrong_sudoku(seed):
    """Return an infeasible sudoku: two given cells of a row are equal, or no digit is possible for a cell."""
    rng = np.random.default_rng(seed)
    model = sudoku(seed, n_given=0)
    unary = model.unary.copy()
    if seed % 2:
        row = int(rng.integers(9))
        cells, digit = 9 * row + rng.choice(9, 2, replace=False), rng.integers(9)
        unary[cells] = np.where(np.arange(9) == digit, 0.0, -np.inf)
    else:
        # The first row has one empty cell. Its missing digit is already in the box of the cell.
        digits = rng.permutation(9)
        unary[:8] = np.where(np.arange(9) == digits[:8, None], 0.0, -np.inf)
        unary[9 * 2 + 7] = np.where(np.arange(9) == digits[8], 0.0, -np.inf)
    return PairwiseModel(model.graph, unary, model.tables)


def contradictory_clauses(seed):
    """Return contradictory clauses of two literals."""
    while True:
        model = two_satisfiability(seed, ratio=3.0, satisfiable=False)
        if not is_satisfiable(model):
            return model
        seed += 10_000


def small_network(seed):
    """Return random constraints on few nodes, so that enumeration can decide whether the model is feasible."""
    rng = np.random.default_rng(seed)
    n_nodes, n_states = 8, 3
    edges = random_edges(rng, n_nodes, int(rng.integers(10, 22)))
    tables = np.where(rng.random((len(edges), n_states, n_states)) < 0.35, -np.inf, 0.0)
    return PairwiseModel(Graph(n_nodes, edges), rng.normal(size=(n_nodes, n_states)), tables, np.arange(len(edges)))


def small_clauses(seed):
    """Return clauses of three literals over twelve nodes, so that enumeration can decide whether they are feasible."""
    return three_satisfiability(seed, n_nodes=12, ratio=5.5, satisfiable=False)


def has_allowed_labeling(model):
    """Return whether a model is feasible, by enumeration of all labelings."""
    n_states = model.n_states if isinstance(model, FactorGraph) else np.full(model.graph.n_nodes, model.n_columns)
    free = np.flatnonzero(n_states > 1)
    labels = np.zeros((n_states[free].prod(), len(n_states)), dtype=int)
    labels[:, free] = np.indices(n_states[free]).reshape(len(free), -1).T
    allowed = np.ones(len(labels), dtype=bool)
    if isinstance(model, FactorGraph):
        for f in range(model.n_factors):
            scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
            allowed &= model.factor_scores(np.full(len(labels), f), labels[:, scope]) > -np.inf
        return bool(allowed.any())
    for (s, t), table in zip(model.graph.edges.tolist(), model.edge_tables(), strict=True):
        allowed &= table[labels[:, s], labels[:, t]] > -np.inf
    return bool((allowed & (model.unary[np.arange(len(n_states)), labels] > -np.inf).all(axis=1)).any())


#: Builders of models that may be infeasible, by name.
IMPOSSIBLE = {
    "crowded colouring": crowded_colouring,
    "wrong sudoku": wrong_sudoku,
    "contradictory clauses": contradictory_clauses,
    "small network": small_network,
    "small 3-SAT": small_clauses,
}


def impossible_models(kind, number, first_seed=0):
    """Yield ``number`` infeasible models of a kind."""
    enumerated, seed = kind.startswith("small"), first_seed
    while number:
        model = IMPOSSIBLE[kind](seed)
        seed += 1
        if not (enumerated and has_allowed_labeling(model)):
            number -= 1
            yield model
