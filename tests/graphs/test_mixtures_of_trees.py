"""Distributions over the trees of each component: valid probabilities, nearest weights, the steepest tree."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from sklearn_crf.graphs import ComponentTrees, Graph, check_edge_probabilities, lattice
from sklearn_crf.graphs._trees import find_cheapest_tree

GRAPHS = {
    "triangle": Graph(3, [[0, 1], [1, 2], [2, 0]]),
    "two cycles and a chain": Graph(9, [[0, 1], [6, 7], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [4, 8]]),
    "lattice": lattice((3, 3)),
    "no edges": Graph(3, np.zeros((0, 2), dtype=int)),
}


def some_mixture(graph, rng, n_grown=3):
    mixture = ComponentTrees.covering(graph)
    weights = mixture.even_weights()
    for _ in range(n_grown):
        mixture, weights, _ = mixture.grown(weights, rng.normal(size=graph.n_edges))
        weights = mixture.project(weights + 0.1)
    return mixture, weights


@pytest.mark.parametrize("name", GRAPHS)
def test_edge_probabilities_belong_to_trees_whatever_the_weights(name):
    rng = np.random.default_rng(0)
    mixture, _ = some_mixture(GRAPHS[name], rng)
    weights = mixture.project(rng.normal(size=mixture.n_trees))
    probabilities = mixture.edge_probabilities(weights)
    check_edge_probabilities(GRAPHS[name], probabilities)
    assert np.all(probabilities > 0)
    direction = rng.normal(size=len(probabilities))
    step = rng.normal(size=mixture.n_trees)
    moved = mixture.edge_probabilities(weights + step) - probabilities
    assert_allclose(direction @ moved, mixture.gradient(direction) @ step, atol=1e-12)


@pytest.mark.parametrize("name", ["triangle", "two cycles and a chain", "lattice"])
def test_projection_is_the_nearest_distribution_of_each_component(name):
    rng = np.random.default_rng(1)
    mixture, _ = some_mixture(GRAPHS[name], rng)
    values = rng.normal(size=mixture.n_trees)
    found = mixture.project(values)
    assert_allclose(np.bincount(mixture.component, found)[np.unique(mixture.component)], 1)
    assert_allclose(mixture.project(found), found, atol=1e-12)
    for component in np.unique(mixture.component):
        part = mixture.component == component
        expected = minimize(
            lambda x, target=values[part]: np.sum((x - target) ** 2),
            np.full(part.sum(), 1 / part.sum()),
            bounds=[(0, 1)] * part.sum(),
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            tol=1e-12,
        )
        assert_allclose(found[part], expected.x, atol=1e-5)


def spanning_trees(graph):
    n = graph.n_nodes - graph.n_components
    for edges in combinations(range(graph.n_edges), n):
        if Graph(graph.n_nodes, graph.edges[list(edges)]).n_components == graph.n_components:
            yield list(edges)


@pytest.mark.parametrize("name", ["triangle", "two cycles and a chain", "lattice"])
def test_grown_adds_the_tree_of_largest_gain_and_keeps_the_probabilities(name):
    graph, rng = GRAPHS[name], np.random.default_rng(2)
    mixture, weights = some_mixture(graph, rng, n_grown=1)
    gain = rng.normal(size=graph.n_edges)
    grown, new_weights, gap = mixture.grown(weights, gain)
    before = mixture.edge_probabilities(weights)
    assert_allclose(grown.edge_probabilities(new_weights), before, atol=1e-12)
    assert np.all(np.diff(grown.component) >= 0)
    best = max(gain[tree].sum() for tree in spanning_trees(graph))
    covered = gain @ mixture.cover
    mean = (gain @ before - 1e-3 * covered) / (1 - 1e-3)
    assert_allclose(gap.sum(), (1 - 1e-3) * (best - mean))
    # Once all weight is on the steepest trees, no tree is steeper, and no tree occurs twice.
    at_best = np.where(
        grown.trees @ gain
        >= np.maximum.reduceat(grown.trees @ gain, np.flatnonzero(np.diff(grown.component, prepend=-1)))[
            np.unique(grown.component, return_inverse=True)[1]
        ]
        - 1e-12,
        1.0,
        0.0,
    )
    again, _, rest = grown.grown(grown.project(10 * at_best), gain)
    assert_allclose(rest, 0, atol=1e-12)
    assert again.n_trees == len(np.unique(again.component))


def test_a_gain_that_is_no_number_is_the_least():
    graph, rng = lattice((30, 30)), np.random.default_rng(0)
    mixture = ComponentTrees.covering(graph)
    gain = np.where(rng.random(graph.n_edges) < 0.3, np.nan, rng.normal(size=graph.n_edges))
    with np.errstate(invalid="ignore"):
        steepest = find_cheapest_tree(graph, -gain, ())
        mixture.grown(mixture.even_weights(), gain)
    assert_array_equal(steepest, find_cheapest_tree(graph, np.nan_to_num(-gain, nan=1e3), ()))
    assert steepest.sum() == graph.n_nodes - 1
