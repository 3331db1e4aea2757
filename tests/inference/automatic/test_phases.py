"""Mixtures of the fixed points of belief propagation for strong edges."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMarginals, GraphCut, JunctionTree, LoopyBP, convergence_left_to_caller
from sklearn_crf.inference.automatic._phases import PhaseState, _compute_influences, may_have_phases
from sklearn_crf.models import PairwiseModel, factor_graph_of
from sklearn_crf.objectives import MaximumMarginal


def potts(shape, n_states, gain, seed, dtype=np.float64, field=1.0):
    graph = lattice(shape)
    unary = field * np.random.default_rng(seed).normal(size=(graph.n_nodes, n_states))
    return PairwiseModel(graph, unary.astype(dtype), gain * np.eye(n_states)[None])


def with_renamed_states(model, seed):
    """Return the model with the states of each node in a random order."""
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random(model.unary.shape), axis=1)
    tails, heads = model.graph.edges.T
    edges = np.arange(model.graph.n_edges)[:, None, None]
    tables = model.edge_tables()[edges, order[tails][:, :, None], order[heads][:, None]]
    unary = np.take_along_axis(model.unary, order, axis=1)
    return PairwiseModel(model.graph, unary, tables, np.arange(model.graph.n_edges))


def by_messages(model, init=None, **options):
    # With this budget, results are not replaced by those of parallel tempering.
    return AutoMarginals(**{"budget": 0.0} | options)._run_belief_propagation(model, init, 1)


def error(found, exact):
    return np.abs(found.unary - exact.unary).sum(axis=1).mean() / 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mixtures_are_nearer_to_the_truth(dtype):
    errors = []
    for seed in range(4):
        for model in (potts((8, 8), 3, 2.0, seed, dtype), potts((9, 9), 2, 2.5, seed, dtype)):
            exact = JunctionTree().marginals(model)
            with convergence_left_to_caller():
                plain = LoopyBP().marginals(model)
            found = by_messages(model)
            assert found.unary.dtype == dtype
            assert_allclose(found.unary.sum(axis=1), 1, atol=1e-5)
            assert found.log_z_terms.sum() == pytest.approx(found.log_z, rel=1e-6)
            errors.append((error(found, exact), error(plain, exact)))
    mixed, plain = np.mean(errors, axis=0)
    assert mixed < 0.5 * plain


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_phases_need_no_names_in_common(dtype):
    errors = []
    for seed in range(4):
        model = with_renamed_states(potts((8, 8), 3, 2.0, seed, dtype), seed)
        exact = JunctionTree().marginals(model)
        assert may_have_phases(model)
        found = by_messages(model)
        assert found.unary.dtype == dtype
        assert found.log_z_terms.sum() == pytest.approx(found.log_z, rel=1e-6)
        errors.append((error(found, exact), error(by_messages(model, search=False), exact)))
    with_search, without = np.mean(errors, axis=0)
    assert with_search < 0.05
    assert with_search < 0.5 * without


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factor_graphs_of_pairs_are_as_pairwise_models(dtype):
    model = with_renamed_states(potts((8, 8), 3, 2.0, 1, dtype), 1)
    graph = factor_graph_of(model)
    exact, found = JunctionTree().marginals(graph), by_messages(graph, budget=0.0)
    assert "fixed points" in found.method
    assert found.unary.dtype == dtype
    assert found.statistics.log_table.shape == exact.statistics.log_table.shape
    assert found.statistics.table_default.shape == exact.statistics.table_default.shape
    assert error(found, exact) < 0.03
    assert_allclose(found.statistics.log_table, exact.statistics.log_table, atol=0.1)
    assert found.log_z == pytest.approx(exact.log_z, rel=1e-2)
    again = by_messages(graph, found.state, budget=0.0)
    assert again.n_iter < found.n_iter
    assert_allclose(again.unary, found.unary, atol=1e-3)


def test_learning_leaves_out_the_search():
    expected = AutoMarginals(max_iter=7, search=False, budget="fast")
    assert AutoMarginals(max_iter=7).for_learning().get_params() == expected.get_params()
    assert AutoMarginals(budget=1e4).for_learning().budget == 1e4
    automatic = MaximumMarginal().coupled(AutoMarginals()).inference
    assert automatic.search is False
    assert MaximumMarginal().coupled(LoopyBP(max_iter=7)).inference.max_iter == 7


def test_forbidden_pairs_and_numbers_of_states_that_differ():
    rng = np.random.default_rng(0)
    model = potts((7, 7), 3, 2.0, 0)
    tables = model.edge_tables().copy()
    tables[::5, 0, 1] = -np.inf
    counts = rng.integers(2, 4, size=49)
    forbidding = PairwiseModel(model.graph, model.unary, tables, np.arange(model.graph.n_edges), n_states=counts)
    exact = JunctionTree().marginals(forbidding)
    found = by_messages(forbidding)
    assert np.all(np.isfinite(found.unary))
    assert np.all(found.unary[np.arange(3) >= counts[:, None]] == 0)
    assert error(found, exact) < 0.05


def test_marginals_are_the_gradient_of_the_log_partition():
    model = potts((6, 6), 3, 2.5, 0, field=0.3)
    found = by_messages(model, tol=1e-10, max_iter=2000)
    assert "fixed points" in found.method
    assert found.bound is None
    step = 1e-5
    for node, state in ((0, 0), (14, 1), (35, 2)):
        values = []
        for sign in (1, -1):
            unary = model.unary.copy()
            unary[node, state] += sign * step
            values.append(by_messages(replace(model, unary=unary), tol=1e-10, max_iter=2000).log_z)
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(found.unary[node, state], abs=1e-5)
    expected = [
        by_messages(potts((6, 6), 3, 2.5 + s, 0, field=0.3), tol=1e-10, max_iter=2000).log_z for s in (step, -step)
    ]
    assert (expected[0] - expected[1]) / (2 * step) == pytest.approx(np.trace(found.tables.reshape(3, 3)), abs=1e-4)


def test_a_former_mixture_is_gone_on_from():
    model = potts((20, 20), 2, 3.0, 0, field=0.3)
    automatic = AutoMarginals(budget=0.0)
    first = automatic.marginals(model)
    assert isinstance(first.state.state, PhaseState)
    again = automatic.marginals(model, init=first.state)
    assert_allclose(again.unary, first.unary, atol=1e-3)
    assert again.n_iter < first.n_iter
    threaded = automatic.marginals(model, n_threads=3)
    assert_array_equal(threaded.unary, first.unary)


def test_large_models_with_strong_edges():
    truth = np.zeros((80, 80), dtype=int)
    truth[20:60, 30:70] = 1
    unary = 0.3 * np.eye(2)[truth.ravel()] + 0.6 * np.random.default_rng(0).normal(size=(6400, 2))
    graph = lattice((80, 80))
    # Weights of features of edges, as in trained fields.
    edge_weight = np.ones((graph.n_edges, 2))
    model = PairwiseModel(graph, unary, [[3 * np.eye(2), np.zeros((2, 2))]], edge_weight=edge_weight)
    found = by_messages(model, budget="fast")
    # The log-partition is at least the score of any labeling, but the fixed point from a uniform start is below it.
    best = GraphCut().map(model)
    assert LoopyBP().marginals(model).log_z < best.score < found.log_z
    assert np.mean(found.unary.argmax(axis=1) == best.labels) > 0.98


@pytest.mark.parametrize("shape", [(10, 10), (50, 50)])
def test_symmetry_is_kept(shape):
    model = potts(shape, 3, 3.0, 0, field=0.0)
    found = by_messages(model)
    assert_allclose(found.unary, 1 / 3, atol=0.02)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (potts((10, 10), 3, 2.0, 0), True),
        (potts((10, 10), 3, 0.5, 0), False),
        (potts((10, 10), 3, -2.0, 0), True),
        (potts((10, 10), 3, -0.5, 0), False),
        (with_renamed_states(potts((10, 10), 3, 2.0, 0), 0), True),
        (with_renamed_states(potts((10, 10), 3, 0.5, 0), 0), False),
        (potts((50,), 3, 5.0, 0), False),
        (potts((60, 60), 3, 2.0, 0), True),
        (factor_graph_of(potts((6, 6), 3, 2.0, 0)), True),
        (PairwiseModel(Graph(3, np.zeros((0, 2))), np.zeros((3, 2)), np.eye(2)[None]), False),
        (PairwiseModel(lattice((4, 4)), np.zeros((16, 1)), np.ones((1, 1, 1))), False),
    ],
)
def test_strong_edges_on_small_graphs_with_cycles_alone(model, expected):
    assert may_have_phases(model) is expected


@pytest.mark.parametrize("weight", [None, 1, 2])
def test_influences_of_edges(weight):
    rng, graph = np.random.default_rng(0), lattice((3, 4))
    tables = rng.normal(size=(2, weight or 1, 3, 3))
    edge_weight = None if weight is None else rng.normal(size=(graph.n_edges, weight))
    model = PairwiseModel(graph, np.zeros((12, 3)), tables, rng.integers(2, size=graph.n_edges), edge_weight)
    expected = [
        max(table[a, b] + table[c, d] - table[a, d] - table[c, b] for a, b, c, d in product(range(3), repeat=4))
        for table in model.edge_tables()
    ]
    assert_allclose(_compute_influences(model), expected)


def test_weak_edges_have_one_fixed_point():
    model = potts((12, 12), 3, 0.5, 0)
    assert by_messages(model).method == "LoopyBP"
    between = potts((12, 12), 4, 1.0, 0)
    assert may_have_phases(between)
    assert by_messages(between).method == "LoopyBP"
