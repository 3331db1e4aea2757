"""Factors as additional nodes of pairwise models: scores, and what runs on these models."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_crf.inference import ICM, BruteForce, IncMP, LinearProgram, LoopyBP, gibbs_sweeps
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
from sklearn_crf.models import CountTable, FactorGraph, SparseTable, expand_factors, score
from sklearn_crf.objectives import TruncatedLoss


def mixed_graph(dtype=np.float64, scopes=((0,), (1,), (3,), (0, 1), (1, 0), (3, 2), (2, 0, 1))):
    """Return factors of no to four nodes, with dense, sparse and count tables, and two factors on one pair."""
    rng = np.random.default_rng(0)
    n_states = [2, 3, 2, 2]
    factors = [(scope, rng.normal(size=[n_states[s] for s in scope]).astype(dtype)) for scope in scopes]
    sparse = SparseTable([[1, 1, 1, 1], [0, 2, 0, 0]], np.array([1.0, -0.5], dtype), dtype(0.3))
    factors += [((0, 1, 2, 3), sparse), ((0, 2, 3), CountTable(np.array([0.2, -0.7], dtype), dtype(0.4)))]
    return FactorGraph.from_factors(n_states, [*factors, ((), np.array(0.7, dtype))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_consistent_labelings_keep_their_scores(dtype):
    graph = mixed_graph(dtype)
    expanded = expand_factors(graph)
    assert expanded.model.dtype == graph.dtype
    for labels in map(np.array, product(*map(range, graph.n_states))):
        assert_allclose(score(expanded.model, expanded.expand_labels(labels)), score(graph, labels), rtol=1e-5)


def test_labels_of_factors_with_an_unlabelled_node_are_missing():
    expanded = expand_factors(mixed_graph())
    labels = expanded.expand_labels(np.array([0, -1, 1, 1]))
    assert sorted(labels.tolist())[:3] == [-1, -1, -1]
    assert np.count_nonzero(labels == -1) == 3


def test_large_factors_do_not_become_nodes():
    graph = FactorGraph.from_factors([2] * 11, [(range(11), CountTable([0.0, 1.0]))])
    with pytest.raises(ValueError, match=r"factor 0 has 2.05e\+03 joint states"):
        IncMP().map(graph)


@pytest.mark.parametrize("method", ["trw", "loopy"])
@pytest.mark.parametrize("loss", ["clique", "univariate", "quadratic", "expected_cost"])
def test_losses_through_sweeps_are_differentiated_by_the_scores_of_factors(method, loss):
    graph, labels = mixed_graph(), np.array([1, 2, 0, 1], dtype=np.int32)
    objective = TruncatedLoss(FixedSweeps(method=method, n_sweeps=2), loss)
    found = objective.loss_statistics(graph, labels)
    rng, step = np.random.default_rng(1), 1e-5
    moves = {name: rng.normal(size=getattr(graph, name).shape) for name in ("log_table", "table_default")}
    moves["table_default"][np.isneginf(graph.table_default)] = 0.0

    def value(size):
        moved = {name: getattr(graph, name) + size * move for name, move in moves.items()}
        return objective.loss_statistics(replace(graph, **moved), labels, state=found.state).terms.sum()

    slope = sum(float(getattr(found.statistics, name) @ move) for name, move in moves.items())
    assert_allclose((value(step) - value(-step)) / (2 * step), slope, rtol=1e-6)
    fresh = objective.loss_statistics(graph, labels)
    assert_allclose(found.terms, fresh.terms)


@pytest.mark.parametrize("missing", [False, True])
def test_clique_loss_counts_each_factor_once(missing):
    rng = np.random.default_rng(0)
    scopes = ((0,), (2,), (0, 1, 2), (2, 3), (3, 4, 5))
    n_states = np.array([2, 3, 2, 2, 2, 3, 2])
    tree = FactorGraph.from_factors(n_states, [(scope, rng.normal(size=n_states[list(scope)])) for scope in scopes])
    labels = np.array([1, 2, 0, 1, -1 if missing else 0, 2, 1], dtype=np.int32)
    found = TruncatedLoss(FixedSweeps(method="loopy", n_sweeps=10), "clique").loss_statistics(tree, labels)
    every = np.array(list(product(*map(range, tree.n_states))))
    p = np.exp([score(tree, states) for states in every])

    def loss(nodes):
        fits = (every[:, nodes] == labels[nodes]).all(axis=1)
        return -np.log(p[fits].sum() / p.sum())

    # The last node has no factor. A factor with an unlabelled node counts its labelled nodes one by one.
    cliques = [[0, 1, 2], [2, 3], [6], *([[3], [5]] if missing else [[3, 4, 5]])]
    assert_allclose(found.terms.sum(), sum(map(loss, cliques)), rtol=1e-9)


def test_many_sweeps_are_belief_propagation():
    # Factors on one pair are joined in the pairwise model, which changes the Bethe approximation.
    graph = mixed_graph(scopes=((0,), (1,), (3,), (1, 0), (3, 2), (2, 0, 1)))
    swept = FixedSweeps(method="loopy", n_sweeps=60).marginals(graph)
    settled = LoopyBP(max_iter=1000, tol=1e-10).marginals(graph)
    assert_allclose(swept.unary, settled.unary, atol=1e-7)
    assert_allclose(swept.statistics.log_table, settled.statistics.log_table, atol=1e-7)


def test_gibbs_sweeps_and_modes_of_factor_graphs():
    graph, rng = mixed_graph(), np.random.default_rng(0)
    every, labels, counts = BruteForce().marginals(graph).unary, np.zeros(4, dtype=np.int32), np.zeros((4, 3))
    for seed in rng.integers(2**31, size=4000).tolist():
        labels = gibbs_sweeps(graph, labels, 1, seed)
        counts[np.arange(4), labels] += 1
    assert_allclose(counts / counts.sum(axis=1, keepdims=True), every, atol=0.05)
    assert_allclose(ICM(n_restarts=50, random_state=0).map(graph).score, BruteForce().map(graph).score)


def test_incmp_reaches_the_bound_of_the_linear_program_on_factor_graphs():
    graph = mixed_graph()
    found = IncMP(decay=0.99, least_step=1e-5, tol=1e-7, max_iter=1000).map(graph)
    assert_allclose(found.score, BruteForce().map(graph).score)
    assert_allclose(found.score, score(graph, found.labels))
    assert_allclose(found.bound, LinearProgram().map(graph).bound, atol=1e-3)
    assert found.bound >= found.score
    assert found.fractional.shape == (4, 3)
    again = IncMP().map(graph, init=found.state)
    assert_allclose(again.bound, found.bound, atol=1e-3)
