"""Spanning trees and edge probabilities against enumeration of all trees and of all sets of nodes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TOPOLOGIES, cycle

from sklearn_crf.graphs import (
    Graph,
    SpanningTrees,
    _tuning,
    build_disjoint_union,
    check_edge_probabilities,
    compute_covering_probabilities,
    compute_uniform_edge_probabilities,
    covering_trees,
    effective_resistances,
    lattice,
    minimum_spanning_tree,
    snakes,
)
from sklearn_crf.kernels.graphs.graphs import selected_inverse

few = settings(max_examples=60, deadline=None)


def complete(n):
    return Graph(n, np.stack(np.triu_indices(n, 1), axis=1))


def pendant_triangle():
    """Return a triangle with a pendant node, the smallest graph on which equal edge probabilities are invalid."""
    return Graph(4, [[0, 1], [1, 2], [2, 0], [2, 3]])


def barbell(n):
    """Return two complete graphs joined by a bridge."""
    edges = complete(n).edges
    return Graph(2 * n, np.concatenate((edges, edges + n, [[0, n]])))


@st.composite
def graphs(draw, max_nodes=7):
    n_nodes = draw(st.integers(1, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    share = draw(st.sampled_from([0.3, 0.5, 0.8, 1.0]))
    return Graph(n_nodes, np.argwhere(np.triu(rng.random((n_nodes, n_nodes)) < share, 1)))


def is_spanning(graph, edges):
    part = Graph(graph.n_nodes, graph.edges[edges])
    return part.is_forest and part.n_components == graph.n_components


def all_trees(graph):
    """Return all spanning trees, found by testing every set of edges of the right size."""
    size = graph.n_nodes - graph.n_components
    return np.array([edges for edges in combinations(range(graph.n_edges), size) if is_spanning(graph, list(edges))])


def probabilities_of_all_trees(graph):
    trees = all_trees(graph)
    return np.bincount(trees.ravel().astype(np.int64), minlength=graph.n_edges) / len(trees)


def is_valid(graph, probability, tol=1e-7):
    """Check the edge probabilities against the bounds of all sets of nodes."""
    inside = np.arange(2**graph.n_nodes)[:, None] >> np.arange(graph.n_nodes) & 1
    both = inside[:, graph.edges[:, 0]] * inside[:, graph.edges[:, 1]]
    fits = both @ probability <= inside.sum(axis=1) - 1 + tol
    total = abs(probability.sum() - (graph.n_nodes - graph.n_components)) < tol
    return bool(fits[1:].all() and total and np.all(probability > -tol))


def passes_check(graph, probability):
    try:
        check_edge_probabilities(graph, probability)
    except ValueError:
        return False
    return True


@few
@given(graphs(max_nodes=6))
def test_effective_resistances_are_those_of_all_spanning_trees(graph):
    np.testing.assert_allclose(effective_resistances(graph), probabilities_of_all_trees(graph), atol=1e-10)


@pytest.mark.parametrize("graph", [lattice((30, 20)), lattice((5, 6, 7)), barbell(20), cycle(50)], ids=repr)
def test_effective_resistances_against_the_dense_pseudoinverse(graph):
    laplacian = np.diag(graph.degree).astype(float)
    tails, heads = graph.edges.T
    laplacian[tails, heads] -= 1
    laplacian[heads, tails] -= 1
    # Add a constant, which cancels in the result. Otherwise rounding would decide whether pinv finds the null space.
    inverse = np.linalg.inv(laplacian + 1 / graph.n_nodes)
    expected = inverse[tails, tails] + inverse[heads, heads] - 2 * inverse[tails, heads]
    found = effective_resistances(graph)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(found.sum(), graph.n_nodes - 1, rtol=1e-10)
    check_edge_probabilities(graph, found)


def test_bridges_have_probability_one():
    graph = barbell(4)
    assert effective_resistances(graph)[-1] == 1
    assert covering_trees(graph, "uniform").edge_probabilities[-1] == 1
    assert np.all(effective_resistances(graph)[:-1] < 1)


def test_the_selected_inverse_against_the_dense_one():
    rng = np.random.default_rng(0)
    lower = np.eye(8) + np.tril(rng.normal(size=(8, 8)), -1)
    diagonal = rng.uniform(1, 2, size=8)
    expected = np.linalg.inv(lower @ np.diag(diagonal) @ lower.T)
    rows, columns = np.tril_indices(8)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    indptr = np.searchsorted(columns, np.arange(9)).astype(np.int32)
    inverse = np.empty(len(rows))
    selected_inverse(
        indptr,
        rows.astype(np.int32),
        lower[rows, columns],
        diagonal,
        inverse,
        np.zeros(8),
        np.full(8, -1, dtype=np.int32),
        np.zeros(8),
    )
    np.testing.assert_allclose(inverse, expected[rows, columns], rtol=1e-9)


@few
@given(graphs())
def test_equal_probabilities_are_given_only_where_valid(graph):
    n_edges = np.bincount(graph.component[graph.edges[:, 0]], minlength=graph.n_components)
    n_nodes = np.bincount(graph.component, minlength=graph.n_components)
    equal = ((n_nodes - 1) / np.maximum(n_edges, 1))[graph.component[graph.edges[:, 0]]]
    if is_valid(graph, equal):
        np.testing.assert_allclose(compute_uniform_edge_probabilities(graph), equal)
    else:
        with pytest.raises(ValueError, match="not valid on this graph"):
            compute_uniform_edge_probabilities(graph)


@few
@given(graphs(), st.floats(0, 6), st.integers(0, 100))
def test_the_check_is_exact(graph, step, seed):
    """Along a line out of the polytope, the check fails exactly where the bound of some set of nodes is violated."""
    inside = effective_resistances(graph)
    towards = covering_trees(graph, 1 if graph.is_forest else "covering", random_state=seed).edge_probabilities
    probability = inside + step * (towards - inside)
    assert passes_check(graph, probability) == is_valid(graph, probability)


def test_every_violated_set_is_found():
    # The dense part is in the second component, far from the node at which the check begins.
    graph = build_disjoint_union(
        [lattice((4, 4)), Graph(14, np.concatenate(([[k, k + 1] for k in range(10)], complete(4).edges + 10)))]
    )
    valid = effective_resistances(graph)
    check_edge_probabilities(graph, valid)
    wrong = valid.copy()
    wrong[-6:] += 0.01
    wrong[-7] -= 0.06
    with pytest.raises(ValueError, match=r"a set of nodes around node 2\d"):
        check_edge_probabilities(graph, wrong)


@pytest.mark.parametrize(
    ("graph", "probability", "message"),
    [
        (cycle(3), [1.0, 1.0], r"must have shape \(3,\)"),
        (cycle(3), [1.2, 0.4, 0.4], r"edge_probabilities\[0\] must be a number from 0 to 1, got 1.2"),
        (cycle(3), [1.0, np.nan, 1.0], r"edge_probabilities\[1\] must be a number from 0 to 1, got nan"),
        (cycle(3), [0.5, 0.5, 0.5], "sum to 1.5, but must sum to 2, the number of edges"),
        (pendant_triangle(), [0.75] * 4, "around node"),
    ],
)
def test_invalid_probabilities_are_named(graph, probability, message):
    with pytest.raises(ValueError, match=message):
        check_edge_probabilities(graph, probability)


@pytest.mark.parametrize(
    "graph", [lattice((5,)), lattice((7, 9)), lattice((3, 4, 5)), complete(9), cycle(8), Graph(4, [])], ids=repr
)
def test_uniformly_dense_graphs_have_equal_probabilities(graph):
    probability = compute_uniform_edge_probabilities(graph)
    assert np.all(probability == (graph.n_nodes - graph.n_components) / max(graph.n_edges, 1))


@few
@given(graphs(), st.sampled_from(["covering", "uniform", 12]), st.integers(0, 3))
def test_covering_trees_cover(graph, rule, seed):
    if rule == 12 and graph.n_edges > 12:
        rule = "covering"
    found = covering_trees(graph, rule, random_state=seed)
    SpanningTrees(graph, found.trees, found.weights)  # its checks pass
    assert found.trees.any(axis=0).all()
    assert is_valid(graph, found.edge_probabilities)
    if isinstance(rule, int):
        assert found.n_trees == rule
    again = covering_trees(graph, rule, random_state=seed)
    assert np.array_equal(found.trees, again.trees)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_covering_trees_on_all_topologies(topology):
    graph = TOPOLOGIES[topology](np.random.default_rng(0))
    found = covering_trees(graph)
    if graph.is_forest:
        assert found.n_trees == 1
        assert found.trees.all()
    for t in range(found.n_trees):
        tree = Graph(graph.n_nodes, graph.edges[found.trees[t]])
        assert tree.is_forest
        assert np.array_equal(tree.component, graph.component)


@pytest.mark.parametrize("graph", [lattice((15, 15)), complete(10), lattice((4, 5, 6))], ids=repr)
def test_uniform_trees_reach_the_ratio(graph, monkeypatch):
    probability = covering_trees(graph, "uniform").edge_probabilities
    assert probability.min() >= 0.9 * probability.max()
    monkeypatch.setattr(_tuning, "EVEN_RATIO", 0.95)
    monkeypatch.setattr(_tuning, "EVEN_TOL", 0.0)
    closer = covering_trees(graph, "uniform").edge_probabilities
    assert closer.min() >= 0.95 * closer.max()


def test_uniform_trees_stop_where_the_ratio_cannot_be_reached(monkeypatch):
    graph = barbell(6)
    monkeypatch.setattr(_tuning, "EVEN_TOL", 0.02)
    monkeypatch.setattr(_tuning, "MOST_EVEN_TREES", 10000)
    found = covering_trees(graph, "uniform")
    assert found.n_trees < 10000
    # The most even probabilities: a third in both complete graphs (5 of 15 edges), one on the bridge.
    np.testing.assert_allclose(found.edge_probabilities, [1 / 3] * 30 + [1], atol=0.02)
    monkeypatch.setattr(_tuning, "EVEN_TOL", 0.0)
    monkeypatch.setattr(_tuning, "MOST_EVEN_TREES", 25)
    assert covering_trees(lattice((9, 9), 2), "uniform").n_trees == 25


def test_minimal_sets_are_small():
    # A grid needs at least two trees, a complete graph of ten nodes at least five.
    assert all(covering_trees(lattice((15, 15)), random_state=seed).n_trees <= 3 for seed in range(5))
    assert all(covering_trees(complete(10), random_state=seed).n_trees <= 7 for seed in range(5))


def test_too_few_trees_are_an_error():
    with pytest.raises(ValueError, match=r"2 trees leave \d+ of 45 edges uncovered"):
        covering_trees(complete(10), 2)
    for rule in ("all", 0, True, 1.5):
        with pytest.raises(ValueError, match="rule must be"):
            covering_trees(complete(3), rule)


@few
@given(graphs(max_nodes=6), st.integers(0, 2**16))
def test_minimum_spanning_tree_is_the_cheapest(graph, seed):
    cost = np.random.default_rng(seed).normal(size=graph.n_edges).round(1)
    tree = minimum_spanning_tree(graph, cost)
    assert is_spanning(graph, tree)
    np.testing.assert_allclose(cost[tree].sum(), min(cost[list(edges)].sum() for edges in all_trees(graph).astype(int)))


def test_ties_go_to_the_first_edges():
    graph = complete(5)
    assert np.flatnonzero(minimum_spanning_tree(graph, np.zeros(10))).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="cost must be 10 finite numbers"):
        minimum_spanning_tree(graph, np.full(10, np.nan))


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (6, 4), (2, 2), (1, 5), (4, 1), (2, 3, 4), (3, 1, 3), (2, 2, 2, 3)])
def test_snakes_are_paths_that_cover(shape):
    graph = lattice(shape)
    found = snakes(graph)
    long_axes = sum(length > 1 for length in shape)
    assert found.n_trees == (2 * long_axes if long_axes > 1 else 1)
    SpanningTrees(graph, found.trees, found.weights)
    assert found.trees.any(axis=0).all()
    for t in range(found.n_trees):
        assert Graph(graph.n_nodes, graph.edges[found.trees[t]]).degree.max() <= 2


def test_four_snakes_have_the_probabilities_of_the_paper():
    graph = lattice((5, 7))
    probability = snakes(graph).edge_probabilities
    row, column = np.divmod(graph.edges, 7)
    on_boundary = (
        (row == 0).all(axis=1) | (row == 4).all(axis=1) | (column == 0).all(axis=1) | (column == 6).all(axis=1)
    )
    assert np.array_equal(probability, np.where(on_boundary, 0.75, 0.5))


def test_snakes_of_a_point_and_of_other_graphs():
    assert snakes(lattice(())).n_trees == 1
    with pytest.raises(ValueError, match="must be a lattice"):
        snakes(cycle(4))
    with pytest.raises(ValueError, match="not axis neighbours"):
        snakes(lattice((3, 3), connectivity=2))
    with pytest.raises(ValueError, match="no edge between the axis neighbours"):
        snakes(lattice((3, 3), connectivity=[[0, 1]]))


def test_copies_of_a_tree_are_merged():
    graph = cycle(3)
    one, other = [True, True, False], [False, True, True]
    trees = SpanningTrees(graph, [one, other, one, one])
    merged = trees.merged()
    assert merged.trees.tolist() == [one, other]
    assert merged.weights.tolist() == [0.75, 0.25]
    np.testing.assert_allclose(merged.edge_probabilities, trees.edge_probabilities)
    assert trees.edge_probabilities.tolist() == [0.75, 1.0, 0.25]


def test_a_step_towards_a_tree():
    graph = cycle(3)
    trees = SpanningTrees(graph, [[True, True, False]])
    for k in range(1, 6):
        trees = trees.stepped([False, True, True], 1 / (k + 1))
        assert np.array_equal(trees.weights, np.full(k + 1, 1 / (k + 1)))
    longer = trees.stepped([True, False, True], 0.4)
    np.testing.assert_allclose(longer.weights, [0.1] * 6 + [0.4])
    np.testing.assert_allclose(longer.edge_probabilities, 0.6 * trees.edge_probabilities + [0.4, 0, 0.4])
    with pytest.raises(ValueError, match="step must lie between"):
        trees.stepped([False, True, True], 1.0)


@pytest.mark.parametrize(
    ("trees", "weights", "message"),
    [
        ([[True, True, True]], None, r"trees\[0\] must have 2 edges to span the graph, got 3"),
        ([[1, 1, 0]], None, "must be an array of bool"),
        ([[True, True]], None, r"of shape \(n_trees, 3\)"),
        ([], None, "at least one tree"),
        ([[True, True, False]], [0.5], "weights must be 1 positive numbers"),
        ([[True, True, False]] * 2, [1.0, 0.0], "weights must be 2 positive numbers"),
    ],
)
def test_what_is_no_distribution_is_refused(trees, weights, message):
    with pytest.raises(ValueError, match=message):
        SpanningTrees(cycle(3), trees, weights)


def test_edge_lists():
    found = SpanningTrees.from_edge_lists(pendant_triangle(), [[0, 1, 3], [2, 1, 3]])
    assert found.edge_probabilities.tolist() == [0.5, 1, 0.5, 1]
    with pytest.raises(ValueError, match="has a cycle"):
        SpanningTrees.from_edge_lists(pendant_triangle(), [[0, 1, 2]])
    with pytest.raises(ValueError, match=r"edge_lists\[0\] must be between 0 and 3"):
        SpanningTrees.from_edge_lists(pendant_triangle(), [[0, 1, 4]])


@few
@given(graphs(max_nodes=12))
def test_covering_probabilities_are_those_of_covering_trees(graph):
    """Probabilities are bitwise equal to the probabilities of trees computed for each component as a separate graph."""
    alone = np.zeros(graph.n_edges)
    for c in range(graph.n_components):
        nodes = np.flatnonzero(graph.component == c)
        edges = np.flatnonzero(graph.component[graph.edges[:, 0]] == c)
        part = Graph(len(nodes), np.searchsorted(nodes, graph.edges[edges]))
        alone[edges] = covering_trees(part).merged().edge_probabilities
    np.testing.assert_array_equal(compute_covering_probabilities(graph), alone)
    check_edge_probabilities(graph, compute_covering_probabilities(graph))


def test_covering_probabilities_of_a_lattice():
    grid = lattice((40, 50), 2)
    np.testing.assert_array_equal(compute_covering_probabilities(grid), covering_trees(grid).edge_probabilities)
