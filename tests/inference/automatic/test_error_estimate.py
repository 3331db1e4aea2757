"""Estimated errors of marginals by messages, compared with true errors."""

import warnings

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from model_strategies import random_model
from numpy.testing import assert_allclose

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMarginals, BruteForce, JunctionTree, LoopyBP, convergence_left_to_caller
from sklearn_crf.inference.automatic._error_estimate import estimate_error
from sklearn_crf.models import FactorGraph, PairwiseModel, expand_edge_tables, factor_graph_of

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def spin_glass(shape, seed, coupling):
    rng, grid = np.random.default_rng(seed), lattice(shape)
    weight = coupling * rng.normal(size=grid.n_edges)
    return PairwiseModel(grid, 0.5 * rng.normal(size=(grid.n_nodes, 2)), SPIN[None], edge_weight=weight)


def true_errors(model, found):
    """Return the mean errors of node marginals, and of the marginals of factors or edges with tables of their own."""
    exact = JunctionTree().marginals(model)
    nodes = np.abs(found.unary - exact.unary).sum(axis=1).mean() / 2
    if isinstance(model, FactorGraph):
        differences = np.abs(found.statistics.log_table - exact.statistics.log_table)
        large = model.table_id[model.arity > 1]
        return nodes, np.mean([differences[slice(*model.table_ptr[t : t + 2])].sum() / 2 for t in large])
    return nodes, np.abs(found.tables - exact.tables).sum(axis=(1, 2, 3)).mean() / 2


def bipartite(n_left, n_right, seed, coupling, field=0.5):
    """Return spins of two layers, in which every pair of different layers is an edge."""
    rng = np.random.default_rng(seed)
    graph = Graph(n_left + n_right, [(s, n_left + t) for s in range(n_left) for t in range(n_right)])
    unary, weight = field * rng.normal(size=(graph.n_nodes, 2)), coupling * rng.normal(size=graph.n_edges)
    return PairwiseModel(graph, unary, SPIN[None], edge_weight=weight)


MODELS = {
    "weak spins": lambda seed: spin_glass((9, 9), seed, 0.3),
    "spins": lambda seed: spin_glass((9, 9), seed, 0.8),
    "tables": lambda seed: random_model(lattice((5, 6)), 4, "untied", seed=seed, scale=1.0),
    "factors": lambda seed: random_factor_graph(15, 20, 4, 3, seed=seed),
    "forbidden": lambda seed: random_model(lattice((5, 5)), 3, "untied", seed=seed, scale=1.0, forbidden=0.2),
}


@pytest.mark.parametrize("name", MODELS)
def test_estimates_are_upper_estimates_of_the_size_of_errors(name):
    errors, estimates = [], []
    for seed in range(4):
        model = MODELS[name](seed)
        model = expand_edge_tables(model) if isinstance(model, PairwiseModel) else model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = AutoMarginals(budget=0).marginals(model)
        errors.append(max(true_errors(model, found)))
        estimates.append(found.error)
    assert np.mean(np.array(estimates) >= 0.95 * np.array(errors) - 1e-4) >= 0.75
    assert 0.98 * np.mean(errors) <= np.mean(estimates) <= 3 * np.mean(errors) + 2e-3


def test_small_models_have_their_true_error():
    # The neighbourhood of every node is the whole graph.
    model = random_model(lattice((3, 4)), 2, "untied", seed=1, scale=1.0)
    found = LoopyBP(tol=1e-10, max_iter=1000).marginals(model)
    estimate = estimate_error(model, found, LoopyBP(tol=1e-10, max_iter=1000))
    assert estimate == pytest.approx(max(true_errors(model, found)), abs=1e-6)
    assert estimate_error(factor_graph_of(model), found, LoopyBP(tol=1e-10, max_iter=1000)) == pytest.approx(estimate)


@pytest.mark.parametrize("budget", [0, 6e6])
def test_errors_of_edges_count_where_nodes_are_symmetric(budget):
    # Uniform messages are a fixed point. Its node marginals are right, its edge marginals and log_z are not.
    model = bipartite(8, 12, 0, 0.8, field=0.0)
    exact = JunctionTree().marginals(model)
    with convergence_left_to_caller():
        plain = LoopyBP().marginals(model)
        found = AutoMarginals(budget=budget)._run_belief_propagation(model, None, 1)
    assert_allclose(plain.unary, exact.unary, atol=1e-6)
    assert plain.log_z > exact.log_z + 2
    if budget:
        assert found.method == "parallel tempering"
        assert found.log_z == pytest.approx(exact.log_z, abs=0.5)
    else:
        assert found.error > 0.05


def test_strong_edges_get_a_second_opinion():
    # Messages have one fixed point, near a mode of little weight, so that no neighbourhood shows the error.
    model = bipartite(14, 22, 20, 0.8)
    automatic = AutoMarginals(budget=6e6)
    plain = automatic._run_plain_propagation(model, None, 1)
    found = automatic._run_belief_propagation(model, None, 1)
    assert plain.converged
    assert estimate_error(model, plain, LoopyBP(damping=0.5)) < 0.5 * true_errors(model, plain)[0]
    assert found.method == "parallel tempering"
    assert true_errors(model, found)[0] < 0.25 * true_errors(model, plain)[0]
    assert true_errors(model, found)[0] <= found.error + 0.01


def test_averages_of_messages_have_no_estimate_of_their_own():
    model = spin_glass((6, 6), 0, 3.0)
    with convergence_left_to_caller():
        found = AutoMarginals(budget=0, max_iter=3)._run_belief_propagation(model, None, 1)
        assert (found.converged, found.error) == (False, None)
        # Parallel tempering gives an estimate.
        compared = AutoMarginals(budget=6e6, max_iter=3)._run_belief_propagation(model, None, 1)
    assert compared.error > 0


def test_large_errors_are_warned_of_with_what_to_change():
    unary = 0.1 * np.random.default_rng(1).normal(size=(120, 2))
    strong = PairwiseModel(lattice((10, 12)), unary, [0.44 * SPIN])
    with pytest.warns(UserWarning, match=r"average error of 0\.\d+, .*budget \(now 0\).*gibbs"):
        found = AutoMarginals(budget=0).marginals(strong)
    assert found.error > 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weak = AutoMarginals(budget=0).marginals(spin_glass((10, 10), 0, 0.2))
        exact = AutoMarginals().marginals(strong)
        quick = AutoMarginals(budget="fast").marginals(spin_glass((20, 20), 0, 0.3))
    assert 0 < weak.error < 0.01
    assert (exact.error, quick.error) == (0.0, None)


@pytest.mark.parametrize("kind", ["pairwise", "factors"])
@pytest.mark.parametrize(("coupling", "is_off"), [(0.42, True), (0.1, False)])
def test_large_models_are_estimated_around_some_nodes(kind, coupling, is_off):
    # Elimination gives exact marginals of a long strip, which has more factors than an estimate computes messages for.
    grid = lattice((6, 1200))
    unary = 0.1 * np.random.default_rng(1).normal(size=(grid.n_nodes, 2))
    model = PairwiseModel(grid, unary, [coupling * SPIN])
    large = model if kind == "pairwise" else factor_graph_of(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = AutoMarginals(budget=0, max_iter=500).marginals(large)
    error = np.abs(found.unary - JunctionTree().marginals(large).unary).sum(axis=1).mean() / 2
    assert error <= found.error <= 3.5 * error + 4e-3
    assert (found.error > 0.05) == is_off
    assert len(caught) == is_off


def test_nodes_of_many_neighbours_have_no_estimate():
    n_nodes = 7001
    star = np.stack((np.zeros(n_nodes - 1, dtype=int), np.arange(1, n_nodes)), axis=1)
    edges = np.concatenate((star, [[1, 2], [2, 3]]))
    model = PairwiseModel(Graph(n_nodes, edges), np.zeros((n_nodes, 2)), [0.1 * SPIN])
    assert AutoMarginals(budget=0).marginals(model).error is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_log_z_of_attracting_states_is_a_lower_bound(scale, dtype):
    rng, n_lower = np.random.default_rng(0), 0
    for _ in range(20):
        tables = scale * rng.normal(size=(12, 2, 2))
        gain = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
        tables[gain < 0] = tables[gain < 0][:, ::-1]
        unary = rng.normal(size=(9, 2))
        unary[0, rng.integers(2)] = -np.inf
        model = PairwiseModel(lattice((3, 3)), unary.astype(dtype), tables.astype(dtype), edge_type=np.arange(12))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, exact = AutoMarginals(budget=0).marginals(model), BruteForce().marginals(model)
        if found.bound == "lower":
            n_lower += 1
            assert found.log_z <= exact.log_z + 1e-9 * abs(exact.log_z)
            assert found.log_z == pytest.approx(exact.log_z, abs=0.5)
            assert found.log_z_terms.sum() == pytest.approx(found.log_z)
        else:
            assert found.bound is None
            assert "fixed points" in found.method or not found.converged
    assert n_lower > 5


def test_other_models_have_no_bound():
    mixed, weak = spin_glass((4, 4), 0, 0.3), PairwiseModel(lattice((3, 3)), np.zeros((9, 3)), [0.1 * np.eye(3)])
    forbidding = PairwiseModel(lattice((3, 3)), np.zeros((9, 2)), [[[0.0, -np.inf], [0.0, 0.0]]])
    for model in (mixed, weak, forbidding):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert AutoMarginals(budget=0).marginals(model).bound is None
