"""Parallel tempering against enumeration and elimination."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMarginals, BruteForce, JunctionTree
from sklearn_crf.inference.local._tempering import compute_tempered_marginals
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of


def spins(n_rows, n_columns, strength, rng, dtype=np.float64):
    graph = lattice((n_rows, n_columns))
    weight = (strength * rng.normal(size=graph.n_edges)).astype(dtype)
    unary = (0.3 * rng.normal(size=(graph.n_nodes, 2))).astype(dtype)
    return PairwiseModel(graph, unary, np.array([[[1, -1], [-1, 1]]], dtype=dtype), edge_weight=weight)


@pytest.mark.parametrize(("n_states", "dtype"), [(2, np.float32), (3, np.float64)])
def test_against_enumeration(n_states, dtype):
    rng = np.random.default_rng(0)
    graph = lattice((3, 3))
    unary = rng.normal(size=(9, n_states)).astype(dtype)
    unary[4, 0] = -np.inf
    tables = (2 * rng.normal(size=(2, n_states, n_states))).astype(dtype)
    model = PairwiseModel(graph, unary, tables, rng.integers(2, size=graph.n_edges).astype(np.int32))
    found, exact = compute_tempered_marginals(model, 3e6), BruteForce().marginals(model)
    assert found.unary.dtype == dtype
    assert 0.5 * np.abs(found.unary - exact.unary).sum(axis=1).mean() < 0.02
    assert np.all(found.unary[4, 0] == 0)
    np.testing.assert_allclose(found.tables, exact.tables, atol=0.25)
    assert found.log_z == pytest.approx(exact.log_z, abs=0.1)
    assert found.log_z_terms.sum() == pytest.approx(found.log_z)


@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_modes_far_apart(strength):
    rng = np.random.default_rng(0)
    model = spins(8, 8, strength, rng)
    found, exact = compute_tempered_marginals(model, 2e7), JunctionTree().marginals(model)
    assert found.log_z == pytest.approx(exact.log_z, abs=0.5)
    assert 0.5 * np.abs(found.unary - exact.unary).sum(axis=1).mean() < 3 * found.error + 0.01


def test_factor_graphs_have_the_statistics_of_their_own_tables():
    rng = np.random.default_rng(0)
    model = spins(3, 4, 1.0, rng)
    pairs = [((1, 0), rng.normal(size=(2, 2))), ((0, 1), rng.normal(size=(2, 2))), ((), np.array(0.7))]
    first = factor_graph_of(model)
    scopes = [tuple(first.scope[a:b].tolist()) for a, b in zip(first.scope_ptr, first.scope_ptr[1:], strict=False)]
    graph = FactorGraph.from_factors(
        [2] * 12, [*((s, first.dense_table(f)) for f, s in enumerate(scopes)), *pairs, ((2,), rng.normal(size=2))]
    )
    found, exact = compute_tempered_marginals(graph, 3e6), BruteForce().marginals(graph)
    np.testing.assert_allclose(found.statistics.log_table, exact.statistics.log_table, atol=0.05)
    assert found.log_z == pytest.approx(exact.log_z, abs=0.1)


def test_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    model = spins(6, 6, 1.0, rng)
    one, three = (compute_tempered_marginals(model, 2e6, n_threads) for n_threads in (1, 3))
    np.testing.assert_array_equal(one.unary, three.unary)
    np.testing.assert_array_equal(one.tables, three.tables)


def colouring(graph, n_states, rng):
    table = np.zeros((n_states, n_states))
    np.fill_diagonal(table, -np.inf)
    return PairwiseModel(graph, 0.5 * rng.normal(size=(graph.n_nodes, n_states)), [table])


def test_forbidden_pairs_are_allowed_in_warm_chains():
    rng = np.random.default_rng(0)
    model = colouring(lattice((4, 4)), 3, rng)
    for given in (model, factor_graph_of(model), replace(model, edge_weight=np.full((model.graph.n_edges, 1), 0.1))):
        found, exact = compute_tempered_marginals(given, 1e7), JunctionTree().marginals(given)
        assert 0.5 * np.abs(found.unary - exact.unary).sum(axis=1).mean() < 0.03
        assert found.log_z == pytest.approx(exact.log_z, abs=0.2)
        if isinstance(given, PairwiseModel):
            assert np.all(found.tables[np.isneginf(given.tables)] == 0)


def test_no_result_if_no_allowed_labeling_was_found():
    # A clique of four nodes has no colouring with three states.
    graph = Graph(4, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    assert compute_tempered_marginals(colouring(graph, 3, np.random.default_rng(0)), 1e7) is None


def test_no_result_for_large_models_and_triples():
    rng = np.random.default_rng(0)
    model = spins(3, 3, 1.0, rng)
    assert compute_tempered_marginals(model, 1e4) is None
    triple = FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), rng.normal(size=(2, 2, 2)))])
    assert compute_tempered_marginals(triple, 1e8) is None


def test_estimated_errors_are_rarely_too_low():
    rng, ratios = np.random.default_rng(1), []
    for strength in np.linspace(0.3, 2, 10):
        model = spins(7, 7, strength, rng)
        found, exact = compute_tempered_marginals(model, 3e6), JunctionTree().marginals(model)
        ratios.append(2 * found.error / np.abs(found.unary - exact.unary).sum(axis=1).mean())
    assert np.mean(np.array(ratios) >= 1) >= 0.8
    assert np.median(ratios) < 3


def test_auto_takes_the_smaller_estimated_error():
    rng = np.random.default_rng(0)
    model = spins(18, 18, 2.0, rng)
    exact = JunctionTree().marginals(model).unary
    errors = {}
    for budget in (1.0, 2e7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = AutoMarginals(budget=budget).marginals(model)
        errors[found.method.split("(")[0]] = 0.5 * np.abs(found.unary - exact).sum(axis=1).mean()
    assert list(errors) == ["LoopyBP", "parallel tempering"]
    assert errors["parallel tempering"] < 0.7 * errors["LoopyBP"]
