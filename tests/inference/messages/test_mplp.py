"""Max-product linear programming."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import factor_graphs
from hypothesis import given, settings
from model_strategies import models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import MPLP, BruteForce, LinearProgram, NormProductBP, convergence_left_to_caller
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._mplp import _MPLPMessages
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, exactly_one, score


def reference_sweep(unary, scopes, tables, messages, factors):
    """Update ``messages[f][d]`` in place as in Figure 1.4 of Sontag, Globerson and Jaakkola (2011)."""
    for f in factors:
        cavities = []
        for s in scopes[f]:
            total = unary[s]
            for g, scope in enumerate(scopes):
                if g != f and s in scope:
                    total = total + messages[g][scope.index(s)]
            cavities.append(total)
        joint = tables[f]
        for d, cavity in enumerate(cavities):
            joint = joint + cavity.reshape([-1 if axis == d else 1 for axis in range(joint.ndim)])
        for d, cavity in enumerate(cavities):
            best = joint.max(axis=tuple(axis for axis in range(joint.ndim) if axis != d))
            messages[f][d] = best / len(cavities) - cavity


def test_sweeps_are_those_of_the_reference():
    scopes = [[0, 2], [2, 3], [0, 1, 3], [1, 2, 4]]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n_states = rng.integers(1, 4, size=5)
        unary = [rng.normal(size=n) for n in n_states]
        tables = [rng.normal(size=n_states[scope]) for scope in scopes]
        messages = [[np.zeros(n) for n in n_states[scope]] for scope in scopes]
        factors = [((s,), table) for s, table in enumerate(unary)]
        run = _MPLPMessages(
            LayeredModel(FactorGraph.from_factors(n_states, factors + list(zip(scopes, tables, strict=True)))), None
        )
        for _ in range(3):
            reference_sweep(unary, scopes, tables, messages, range(4))
            reference_sweep(unary, scopes, tables, messages, range(3, -1, -1))
            run.lower()
        slots = [message for of_factor in messages for message in of_factor]
        for found, message in zip(run.messages, slots, strict=True):
            assert_allclose(found[: len(message)], message, atol=1e-12)


@given(factor_graphs(max_arity=4))
@settings(max_examples=60, deadline=None)
def test_bounds_of_factor_graphs(model):
    best = BruteForce().map(model).score
    relaxed = LinearProgram().map(model).bound
    run = _MPLPMessages(LayeredModel(model), None)
    falls = [run.lower() for _ in range(20)]
    assert np.all(np.array(falls) >= -1e-10)
    assert run.bound >= relaxed - 1e-7 * (1 + abs(relaxed))
    with convergence_left_to_caller():
        for max_iter in (1, 200):
            found = MPLP(max_iter=max_iter).map(model)
            assert found.bound >= best - 1e-9 * (1 + abs(best))
            assert found.score <= best + 1e-9
            assert found.score == pytest.approx(score(model, found.labels))


@given(models(max_states=2))
@settings(max_examples=40, deadline=None)
def test_two_states_come_to_the_relaxation(model):
    found, relaxed = MPLP(max_iter=5000, tol=1e-12).map(model), LinearProgram().map(model)
    assert found.bound == pytest.approx(relaxed.bound, abs=1e-5 * (1 + abs(relaxed.bound)))


def test_more_states_can_stop_short_of_the_relaxation_but_not_below():
    for seed in range(10):
        model = random_model("grid", 3, "untied", scale=2.0, seed=seed)
        found = MPLP(max_iter=2000, tol=1e-11).map(model)
        assert found.bound >= LinearProgram().map(model).bound - 1e-8


def test_assignments_are_certified():
    # One node of each row and column: the relaxation of an assignment problem is tight.
    rng = np.random.default_rng(0)
    n = 8
    gain = rng.normal(size=(n, n))
    nodes = np.arange(n * n).reshape(n, n)
    factors = [((s,), np.array([0, gain.ravel()[s]])) for s in range(n * n)]
    factors += [(row, exactly_one()) for row in nodes] + [(column, exactly_one()) for column in nodes.T]
    found = MPLP(max_iter=3000).map(FactorGraph.from_factors([2] * n * n, factors))
    chosen = found.labels.reshape(n, n)
    assert_array_equal(chosen.sum(axis=0), 1)
    assert_array_equal(chosen.sum(axis=1), 1)
    assert found.certified


@pytest.mark.parametrize("algorithm", [MPLP(max_iter=7, tol=0), NormProductBP("trivial", max_iter=7, tol=0)], ids=str)
@pytest.mark.parametrize("kind", ["untied", "weighted"])
def test_messages_move_scores_and_the_bound_is_what_the_parts_have_at_best(algorithm, kind):
    model = random_model(lattice((4, 4)), 3, kind, seed=1)
    with convergence_left_to_caller():
        found = algorithm.map(model)
    taken = found.state.values.reshape(model.graph.n_edges, 2, 3)
    nodes = np.array(model.unary)
    np.add.at(nodes, model.graph.edges, taken)
    pairs = model.edge_tables() - taken[:, 0, :, None] - taken[:, 1, None, :]
    labels = found.labels
    tails, heads = labels[model.graph.edges].T
    moved = nodes[np.arange(16), labels].sum() + pairs[np.arange(len(pairs)), tails, heads].sum()
    assert moved == pytest.approx(found.score, abs=1e-10)
    assert found.bound == pytest.approx(nodes.max(axis=1).sum() + pairs.max(axis=(1, 2)).sum(), abs=1e-10)


def test_warm_start():
    rng = np.random.default_rng(0)
    model = random_model(lattice((10, 10)), 2, "untied", structure="submodular", seed=2)
    algorithm = MPLP(max_iter=5000, tol=1e-10)
    first = algorithm.map(model)
    before = np.array(first.state.values)
    moved = replace(model, unary=model.unary + 1e-4 * rng.normal(size=model.unary.shape))
    again, cold = algorithm.map(moved, init=first.state), algorithm.map(moved)
    assert again.n_iter < cold.n_iter
    assert again.bound == pytest.approx(cold.bound, abs=1e-5)
    assert_array_equal(first.state.values, before)
    # Other algorithms for the same dual, such as NormProductBP, return messages that are also valid starts.
    other = NormProductBP("trivial").map(model)
    assert algorithm.map(model, init=other.state).bound <= other.bound + 1e-9


def test_errors():
    model = random_model("grid", 3, "untied", scale=3.0, seed=6)
    with pytest.warns(ConvergenceWarning, match="MPLP stopped after max_iter=1 iterations, which is too few") as record:
        MPLP(max_iter=1, tol=0).map(model)
    assert [warning.filename for warning in record] == [__file__]
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        MPLP(max_iter=0).map(model)
    with pytest.raises(ValueError, match="tol must not be negative"):
        MPLP(tol=-1).map(model)
    with pytest.raises(ValueError, match="state of an earlier result"):
        MPLP().map(model, init=3)


def test_infeasible_models():
    alike = np.where(np.eye(2), 0.0, -np.inf)[None]
    unary = np.zeros((6, 2))
    unary[0, 0] = unary[5, 1] = -np.inf
    chain = PairwiseModel(lattice((6,)), unary, alike)
    factors = [((s,), np.array([-np.inf, 0.0])) for s in (0, 3)] + [(range(5), at_most_one())]
    for model in (chain, FactorGraph.from_factors(np.full(5, 2), factors)):
        with pytest.raises(ValueError, match="infeasible: every labeling of nodes 0, 1, 2"):
            MPLP().map(model)


def test_a_bound_that_stands_still_for_one_iteration_falls_on():
    rng = np.random.default_rng(25)
    scopes, tables = [], []
    for _ in range(27):
        scopes.append(tuple(map(int, rng.choice(9, 3, replace=False))))
        tables.append(-1.0 * (rng.random((3, 3, 3)) < 0.6))
    # One more node, so that scores are not integers, to which bounds would be rounded down.
    factors = [*zip(scopes, tables, strict=True), ((9,), [0.0, 2**0.5])]
    model = FactorGraph.from_factors([3] * 9 + [2], factors)
    with convergence_left_to_caller():
        first, second = (MPLP(max_iter=n).map(model).bound for n in (1, 2))
        found, long = MPLP().map(model), MPLP(max_iter=1000, tol=0).map(model)
    assert first == pytest.approx(second, abs=1e-8)
    assert long.bound < second - 1e-3
    assert found.bound == pytest.approx(long.bound, abs=1e-3)
