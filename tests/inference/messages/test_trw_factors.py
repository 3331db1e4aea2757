"""Tree-reweighted belief propagation on factor graphs."""

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph
from hypothesis import given, settings
from model_strategies import random_model
from numpy.testing import assert_allclose

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import BruteForce, NormProductBP, TRWMessagePassing, convergence_left_to_caller
from sklearn_crf.models import FactorGraph, factor_graph_of, score

TIGHT = {"tol": 1e-11, "max_iter": 3000}


def squares_on_a_lattice(side, scale, seed=0):
    """Return a two-state lattice of which every square of four nodes is a factor that favours equal states."""
    rng, number = np.random.default_rng(seed), np.arange(side**2).reshape(side, side)
    squares = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]], axis=-1).reshape(-1, 4)
    table = scale * rng.normal(size=(2, 2, 2, 2))
    table[0, 0, 0, 0] = table[1, 1, 1, 1] = 2 * scale
    factors = [((s,), rng.normal(size=2)) for s in range(side**2)]
    factors += [(edge, scale * np.eye(2) / 2) for edge in lattice((side, side)).edges] + [(s, table) for s in squares]
    return FactorGraph.from_factors([2] * side**2, factors)


@given(factor_graphs(max_arity=4))
@settings(max_examples=40, deadline=None)
def test_bounds_hold_for_any_messages(model):
    exact, best = BruteForce().marginals(model).log_z, BruteForce().map(model).score
    with convergence_left_to_caller():
        for max_iter, damping in ((1, 0.0), (4, 0.0), (7, 0.3), (300, 0.2)):
            algorithm = TRWMessagePassing("covering", max_iter=max_iter, damping=damping)
            found = algorithm.marginals(model)
            assert found.bound in ("upper", "exact")
            assert found.log_z >= exact - 1e-9 * (1 + abs(exact))
            assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
            assert_allclose(found.unary.sum(axis=1), 1, atol=1e-9)
            labeling = algorithm.map(model)
            assert labeling.bound >= best - 1e-9 * (1 + abs(best))
            assert labeling.score == pytest.approx(score(model, labeling.labels))


@pytest.mark.parametrize("constraint", [None, *CONSTRAINTS])
def test_fixed_points_minimise_the_bound_of_norm_product(constraint):
    # NormProductBP lowers the same bound step by step.
    for seed in range(4):
        model = random_factor_graph(max_arity=4, forbidden=0.2 * (seed % 2), constraint=constraint, seed=seed)
        expected = NormProductBP("trw", edge_probabilities="covering", tol=1e-10, max_iter=20_000).marginals(model)
        for damping in (0.0, 0.3):
            found = TRWMessagePassing("covering", damping=damping, **TIGHT).marginals(model)
            assert found.converged
            assert found.log_z == pytest.approx(expected.log_z, abs=1e-6)
            assert_allclose(found.unary, expected.unary, atol=1e-4)
            assert_allclose(found.statistics.log_table, expected.statistics.log_table, atol=1e-4)


def test_factors_of_two_nodes_are_edges():
    for seed in range(4):
        model = random_model("grid", 3, "untied", vary_states=bool(seed % 2), seed=seed)
        expected = TRWMessagePassing("covering", **TIGHT).marginals(model)
        found = TRWMessagePassing("covering", **TIGHT).marginals(factor_graph_of(model))
        assert found.log_z == pytest.approx(expected.log_z, abs=1e-8)
        assert_allclose(found.unary, expected.unary, atol=1e-7)


def test_log_z_is_accurate_to_the_second_order():
    model = squares_on_a_lattice(6, 0.5)
    exact = TRWMessagePassing("covering", **TIGHT).marginals(model).log_z
    algorithm = TRWMessagePassing("covering", tol=1e-2)
    assert 0 <= algorithm.marginals(model).log_z - exact < 0.1
    assert abs(algorithm.marginals_for_learning(model).log_z - exact) < 1e-3


def test_few_sweeps_suffice_on_a_lattice_of_squares():
    # The convergent messages are still far from the bound after two thousand iterations.
    found = TRWMessagePassing("covering", tol=1e-3).marginals_for_learning(squares_on_a_lattice(14, 0.5))
    assert found.converged
    assert found.n_iter < 100


def test_warm_starts_continue():
    model = squares_on_a_lattice(6, 0.5)
    algorithm = TRWMessagePassing("covering", tol=1e-6)
    first = algorithm.marginals(model)
    again = algorithm.marginals(model, init=first.state)
    assert again.n_iter <= 2 < first.n_iter
    assert_allclose(again.unary, first.unary, atol=1e-5)


def test_schedules_of_edges_are_refused():
    with pytest.raises(ValueError, match="FactorGraph"):
        TRWMessagePassing(schedule="checkerboard").marginals(squares_on_a_lattice(3, 0.5))
    convergent = TRWMessagePassing("covering", schedule="convergent", tol=1e-6, max_iter=3000)
    model = squares_on_a_lattice(3, 0.5)
    plain = TRWMessagePassing("covering", **TIGHT).marginals(model)
    assert convergent.marginals(model).log_z == pytest.approx(plain.log_z, abs=1e-4)
