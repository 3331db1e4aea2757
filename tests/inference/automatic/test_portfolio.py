"""Labelings of models too large for exact algorithms: bounds, proofs, and no worse labels for larger budgets."""

import numpy as np
import pytest
from model_strategies import random_model

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMap
from sklearn_crf.models import FactorGraph, PairwiseModel, score


def frequencies(seed, n_nodes=40, n_states=20, n_edges=120):
    """Return a model of pairs that must be several states apart, at costs from one to a thousand."""
    rng, pairs, states = np.random.default_rng(seed), set(), np.arange(n_states)
    while len(pairs) < n_edges:
        pairs.add(tuple(np.sort(rng.choice(n_nodes, 2, replace=False)).tolist()))
    apart = np.abs(states[:, None] - states)
    tables = [np.where(apart > rng.integers(1, 8), 0.0, -float(10 ** rng.integers(0, 4))) for _ in pairs]
    graph = Graph(n_nodes, sorted(pairs))
    return PairwiseModel(graph, np.zeros((n_nodes, n_states)), np.array(tables), np.arange(n_edges))


def satisfiability(seed, n_nodes, n_clauses, planted):
    """Return clauses of three literals that a planted assignment satisfies."""
    rng, factors = np.random.default_rng(seed), []
    truth = rng.integers(0, 2, n_nodes)
    while len(factors) < n_clauses:
        scope, signs = np.sort(rng.choice(n_nodes, 3, replace=False)), rng.integers(0, 2, 3)
        if planted and (signs == truth[scope]).all():
            continue
        table = np.zeros((2, 2, 2))
        table[tuple(signs)] = -np.inf
        factors.append((tuple(scope.tolist()), table))
    return FactorGraph.from_factors([2] * n_nodes, factors)


def disparities(shape, n_states):
    rng = np.random.default_rng(0)
    states = np.arange(n_states)
    seen = np.where(rng.random(shape) < 0.35, rng.integers(0, n_states, shape), np.arange(shape[0])[:, None] // 5)
    unary = -np.minimum(np.abs(states - seen.reshape(-1, 1)), 4.0)
    unary = unary + 0.05 * rng.normal(size=unary.shape)
    return PairwiseModel(lattice(shape), unary, [-np.minimum(np.abs(states[:, None] - states), 2.0)])


@pytest.mark.parametrize("seed", range(3))
def test_constraints_with_costs_are_solved_with_a_proof(seed):
    found = AutoMap().map(frequencies(seed))
    assert found.certified
    assert found.score == 0


def test_clauses_are_satisfied_or_refuted():
    assert AutoMap().map(satisfiability(0, 60, 250, planted=True)).score == 0
    with pytest.raises(ValueError, match="infeasible"):
        AutoMap().map(satisfiability(1, 40, 320, planted=False))


def test_many_nodes_and_states_have_a_bound():
    model = disparities((60, 80), 16)
    found = AutoMap().map(model)
    assert "TRWS" in found.method
    assert np.isfinite(found.bound)
    assert found.gap <= 1e-3 * abs(found.score)


def test_random_tables_are_proven():
    for seed in range(2):
        model = random_model(lattice((10, 10)), 6, "untied", seed=seed)
        found = AutoMap().map(model)
        assert found.certified
        assert found.score == pytest.approx(score(model, found.labels))


def test_a_larger_budget_is_no_worse():
    rng = np.random.default_rng(0)
    pairs = np.array([pair for pair in np.ndindex(60, 60) if pair[0] < pair[1] and rng.random() > 0.6])
    table = np.array([[0.0, 0.0], [0.0, -np.inf]])
    model = PairwiseModel(Graph(60, pairs), np.tile([0.0, 1.0], (60, 1)), [table])
    results = [AutoMap(budget=budget).map(model) for budget in (1e4, "fast", "default")]
    assert results[0].score <= results[1].score <= results[2].score
    assert results[0].bound >= results[1].bound >= results[2].bound
    assert results[2].certified


def test_learning_leaves_out_the_searches():
    learning = AutoMap(max_iter=7).for_learning()
    assert learning.get_params() == AutoMap(max_iter=7, bounded=True).get_params()
    model = frequencies(0)
    found = learning.map(model)
    assert "branch and bound" not in found.method
    assert "LargeNeighborhoodSearch" not in found.method
    assert found.bound >= found.score


def test_frustrated_hexagons_are_proven():
    # The shortest cycles have six edges.
    rows, columns = np.divmod(np.arange(900), 30)
    nodes = np.arange(900)
    right, below = nodes[columns < 29], nodes[(rows < 29) & ((rows + columns) % 2 == 0)]
    edges = np.concatenate((np.stack((right, right + 1), axis=1), np.stack((below, below + 30), axis=1)))
    rng = np.random.default_rng(1)
    spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    unary, weight = 0.5 * rng.normal(size=(900, 2)), rng.normal(size=len(edges))
    found = AutoMap().map(PairwiseModel(Graph(900, edges), unary, spins[None], edge_weight=weight))
    assert found.certified
    assert "CycleRelaxation" in found.method
