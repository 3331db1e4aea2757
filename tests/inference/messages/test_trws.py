"""Sequential tree-reweighted max-product."""

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import LOOPY, TABLE_KINDS, models, random_model
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import TRWS, AutoMap, BruteForce, LinearProgram, TRWSState, convergence_left_to_caller
from sklearn_crf.inference._field import build_initial_messages, make_field
from sklearn_crf.kernels.exact.labelings import decode
from sklearn_crf.kernels.messages.sweeps import sequential_iteration, sequential_pass
from sklearn_crf.models import PairwiseModel, score


def plain_pass(model, messages, direction):
    """Update the messages {(s, t): (K,)} in place by one pass, and return the subtracted constants."""
    scores = {}
    for (i, j), table in zip(model.graph.edges.tolist(), model.edge_tables(), strict=True):
        scores[i, j], scores[j, i] = table, table.T
    n_nodes, bound = model.graph.n_nodes, 0.0
    for s in range(n_nodes)[::direction]:
        neighbours = [t for a, t in scores if a == s]
        n_later = sum(t > s for t in neighbours)
        total = model.unary[s] + sum(messages[t, s] for t in neighbours)
        bound += total.max()
        total = total - total.max()
        for t in neighbours:
            if direction * (t - s) > 0:
                share = 1 / max(n_later, len(neighbours) - n_later)
                fresh = np.max((share * total - messages[t, s])[:, None] + scores[s, t], axis=0)
                bound += fresh.max()
                messages[s, t] = fresh - fresh.max()
    return bound


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
def test_kernel_against_plain_passes(structure, kind):
    model = random_model("grid", 3, kind, structure=structure, seed=1)
    field, _ = make_field(model, maximum=True)
    messages = build_initial_messages(field)
    ptr, neighbor, _, _ = model.graph.incidence
    receiver = np.repeat(np.arange(9), np.diff(ptr))
    plain = {(int(s), int(t)): np.zeros(3) for s, t in zip(neighbor, receiver, strict=True)}
    degree = [(np.sum(neighbor[receiver == s] > s), np.sum(neighbor[receiver == s] < s)) for s in range(9)]
    share = 1 / np.maximum(np.max(degree, axis=1), 1)
    for direction in (1, -1, 1, -1):
        bound = sequential_pass(field, messages, share, direction, field.workspace())
        assert bound == pytest.approx(plain_pass(model, plain, direction), abs=1e-10)
    for slot, (s, t) in enumerate(zip(neighbor, receiver, strict=True)):
        np.testing.assert_allclose(messages[slot, :3], plain[int(s), int(t)], atol=1e-10)


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_an_iteration_is_two_passes_and_labels(kind):
    model = random_model("grid", 3, kind, forbidden=0.1 if kind == "tied" else 0.0, seed=2)
    field, _ = make_field(model, maximum=True)
    at_once, apart = build_initial_messages(field), build_initial_messages(field)
    share, order, work = np.full(9, 0.5), np.arange(9, dtype=np.int32), field.workspace()
    labels, plain = np.empty_like(order), np.empty_like(order)
    for _ in range(3):
        bound, found = sequential_iteration(field, at_once, share, labels, work)
        for direction in (1, -1):
            expected = sequential_pass(field, apart, share, direction, work)
        decode(field, apart, order, order, plain, work)
        assert bound == expected
        np.testing.assert_array_equal(at_once, apart)
        np.testing.assert_array_equal(labels, plain)
        assert found == pytest.approx(score(model, plain), abs=1e-12)


def test_bound_never_rises():
    model = random_model(lattice((5, 5)), 4, "untied", seed=2)
    state, bounds = None, []
    with convergence_left_to_caller():
        for _ in range(15):
            found = TRWS(max_iter=1, tol=0).map(model, init=state)
            state = found.state
            bounds.append(found.bound)
    assert np.all(np.diff(bounds) <= 1e-9)
    assert bounds[-1] < bounds[0]


def test_submodular_models_of_two_states_are_solved():
    for seed in range(8):
        model = random_model("grid", 2, "untied", structure="submodular", scale=2.0, seed=seed)
        found = TRWS(max_iter=2000, tol=1e-12).map(model)
        best = BruteForce().map(model)
        assert found.bound == pytest.approx(best.score, abs=1e-6)
        assert found.score == pytest.approx(best.score, abs=1e-9)


@given(models(topologies=tuple(LOOPY), max_states=2))
@settings(max_examples=60, deadline=None)
def test_bound_of_two_states_comes_to_the_linear_program(model):
    relaxed = LinearProgram().map(model).bound
    found = TRWS(max_iter=5000, tol=1e-12).map(model)
    assert found.bound == pytest.approx(relaxed, rel=1e-8, abs=1e-8)
    assert TRWS().map(model).bound == pytest.approx(relaxed, rel=1e-5, abs=1e-5)


def test_frustrated_cycles_of_two_states():
    for seed in range(4):
        model = random_model(lattice((6, 6)), 2, "untied", scale=2.0, seed=seed)
        relaxed = LinearProgram().map(model).bound
        assert TRWS(max_iter=5000, tol=1e-12).map(model).bound == pytest.approx(relaxed, rel=1e-8)
    cycle = Graph(3, [[0, 1], [1, 2], [2, 0]])
    model = PairwiseModel(cycle, np.zeros((3, 2)), (1 - np.eye(2))[None])
    found = TRWS().map(model)
    assert found.score == 2
    assert found.bound == pytest.approx(3)
    assert not found.certified


def test_forests_are_exact():
    model = random_model("tree", 3, "typed", seed=3)
    found = TRWS().map(model)
    assert found.bound == found.score
    assert found.score == pytest.approx(BruteForce().map(model).score, abs=1e-12)


def test_warm_start_keeps_the_best_labels():
    model = random_model(lattice((6, 6)), 3, "untied", scale=2.0, seed=4)
    first = TRWS().map(model)
    again = TRWS().map(model, init=first.state)
    assert again.score >= first.score
    assert again.bound <= first.bound + 1e-9
    assert again.n_iter <= first.n_iter
    moved = PairwiseModel(model.graph, model.unary + 0.01, model.tables, model.edge_type)
    assert TRWS().map(moved, init=first.state).score >= score(moved, first.labels)
    with pytest.raises(ValueError, match="init must be the state"):
        TRWS().map(model, init=1)
    with pytest.raises(ValueError, match="init must hold messages"):
        TRWS().map(random_model("grid", 3, seed=0), init=first.state)


def test_infeasible_and_unconverged():
    cycle = Graph(3, [[0, 1], [1, 2], [2, 0]])
    alike = np.where(np.eye(2), 0.0, -np.inf)[None]
    unary = np.zeros((3, 2))
    unary[0, 0] = unary[1, 1] = -np.inf
    with pytest.raises(ValueError, match="model is infeasible"):
        TRWS().map(PairwiseModel(cycle, unary, alike))
    model = random_model(lattice((6, 6)), 3, "untied", scale=2.0, seed=5)
    with pytest.warns(ConvergenceWarning, match="TRWS stopped after max_iter=1"):
        found = TRWS(max_iter=1, tol=0).map(model)
    assert isinstance(found.state, TRWSState)
    assert not found.converged
    assert_array_equal(found.labels, found.state.labels)


def test_the_automatic_choice_has_a_bound_where_asked_for():
    model = random_model("grid", 3, "typed", seed=4)
    best = BruteForce().map(model).score
    with convergence_left_to_caller():
        bounded, plain = AutoMap(max_iter=20, bounded=True).map(model), AutoMap().map(model)
        again = AutoMap(max_iter=20, bounded=True).map(model, init=bounded.state)
    assert bounded.score <= best + 1e-9 <= bounded.bound + 2e-9
    assert np.isfinite(bounded.bound)
    assert again.bound <= bounded.bound + 1e-9
    # The state of another algorithm is not a valid start.
    assert AutoMap(bounded=True).map(model, init=plain.state).score <= best + 1e-9
