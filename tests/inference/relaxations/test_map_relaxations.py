"""The common contract of the algorithms for the linear relaxation of the MAP problem."""

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import LOOPY, cycle, models, random_model
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    AD3,
    MPLP,
    TRWS,
    BruteForce,
    DualDecomposition,
    IncMP,
    LinearProgram,
    convergence_left_to_caller,
)
from sklearn_crf.models import PairwiseModel, score

ALGORITHMS = [AD3, DualDecomposition, IncMP]
every = pytest.mark.parametrize("cls", ALGORITHMS, ids=lambda cls: cls.__name__)
# Algorithms that may stop above the relaxation promise less.
every_bound = pytest.mark.parametrize("cls", [*ALGORITHMS, MPLP, TRWS], ids=lambda cls: cls.__name__)

# Maximum relative difference between an algorithm's bound, with default options, and the bound of the linear program.
NEAR = {AD3: 2e-3, DualDecomposition: 1e-4, IncMP: 1e-4}
SMALL_STEPS = {"tol": 1e-7, "decay": 0.999, "backoff": 0.98, "least_step": 1e-5, "max_iter": 20_000}
PRECISE = {AD3: {"tol": 1e-7, "max_iter": 20_000}, DualDecomposition: SMALL_STEPS, IncMP: SMALL_STEPS}

ALIKE = np.where(np.eye(2), 0.0, -np.inf)


def solve(algorithm, model, **kwargs):
    with convergence_left_to_caller():
        return algorithm.map(model, **kwargs)


@every_bound
@given(model=models(structures=("full", "potts", "submodular"), max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=40, deadline=None)
def test_bounds_hold_after_any_number_of_iterations(cls, model):
    best = BruteForce().map(model).score
    tol = 1e-5 if model.dtype == np.float32 else 1e-9
    for max_iter in (1, 3, 100):
        found = solve(cls(max_iter=max_iter), model)
        assert found.bound >= best - tol * (1 + abs(best))
        assert found.bound >= found.score
        assert found.gap >= 0
        assert found.score <= best + tol * (1 + abs(best))
        assert found.score == pytest.approx(score(model, found.labels))
        if found.certified:
            assert found.score >= best - tol * (1 + abs(best))


@every
@given(model=models(topologies=tuple(LOOPY), structures=("full", "potts"), max_states=4))
@settings(max_examples=25, deadline=None)
def test_bound_comes_to_the_linear_program(cls, model):
    relaxed = LinearProgram().map(model).bound
    size = 1 + abs(relaxed)
    for options, near in (({}, NEAR[cls]), (PRECISE[cls], 1e-6)):
        found = solve(cls(**options), model)
        assert relaxed - 1e-9 * size <= found.bound <= relaxed + near * size
        assert found.converged


@every
def test_bound_comes_to_the_linear_program_where_that_has_a_gap(cls):
    for structure, n_states in (("full", 3), ("potts", 2)):
        model = random_model(lattice((5, 5)), n_states, "untied", structure=structure, scale=2.0, seed=1)
        relaxed = LinearProgram().map(model)
        assert relaxed.gap > 0.1
        assert solve(cls(), model).bound == pytest.approx(relaxed.bound, rel=NEAR[cls])
        assert solve(cls(**PRECISE[cls]), model).bound == pytest.approx(relaxed.bound, rel=1e-6)


@every
def test_submodular_models_are_solved(cls):
    for seed in range(8):
        model = random_model("grid", 2, "untied", structure="submodular", scale=2.0, seed=seed)
        found, best = solve(cls(), model), BruteForce().map(model)
        assert found.bound == pytest.approx(best.score, rel=NEAR[cls])
        assert found.score == pytest.approx(best.score, abs=1e-9)


@every
def test_a_frustrated_cycle_keeps_its_gap(cls):
    model = PairwiseModel(cycle(3), np.zeros((3, 2)), (1 - np.eye(2))[None])
    found = solve(cls(**PRECISE[cls]), model)
    assert found.score == 2
    assert found.bound == pytest.approx(3, abs=1e-6)
    assert not found.certified


@every_bound
def test_certified_labels_are_optimal(cls):
    n_certified = 0
    for seed in range(8):
        model = random_model("grid", 3, "weighted", seed=seed)
        found = solve(cls(), model)
        if found.certified:
            n_certified += 1
            assert found.score == pytest.approx(BruteForce().map(model).score, abs=1e-9)
    assert n_certified > 0


@every
def test_a_start_must_fit(cls):
    model = random_model(lattice((4, 4)), 3, "untied", seed=0)
    first = solve(cls(), model)
    with pytest.raises(ValueError, match=f"init must be the state of an earlier result of {cls.__name__}"):
        cls().map(model, init=1)
    for other in (random_model("grid", 3, seed=0), random_model(lattice((4, 4)), 2, seed=0)):
        with pytest.raises(ValueError, match="init must"):
            cls().map(other, init=first.state)


@every
def test_results_repeat_and_do_not_depend_on_threads(cls):
    model = random_model(lattice((9, 8)), 3, "weighted", scale=2.0, seed=3)
    first = solve(cls(max_iter=30), model)
    for n_threads in (1, 2, 3):
        again = solve(cls(max_iter=30), model, n_threads=n_threads)
        assert_array_equal(again.labels, first.labels)
        assert again.bound == first.bound


@every
def test_forbidden_pairs_are_avoided(cls):
    # Neighbours must differ, which plain candidate labelings hardly ever satisfy.
    model = PairwiseModel(
        lattice((6, 6)), np.random.default_rng(0).normal(size=(36, 3)), (np.where(np.eye(3), -np.inf, 0))[None]
    )
    assert np.isfinite(solve(cls(), model).score)
    found = solve(cls(**PRECISE[cls]), model)
    assert found.bound == pytest.approx(LinearProgram().map(model).bound, rel=1e-6)


@every
def test_infeasible_models(cls):
    unary = np.zeros((3, 2))
    unary[0, 0] = unary[1, 1] = -np.inf
    with pytest.raises(ValueError, match="model is infeasible"):
        cls().map(PairwiseModel(cycle(3), unary, ALIKE[None]))
    # Three nodes cannot all differ in two states, but half of each state is a solution of the relaxation.
    differ = PairwiseModel(cycle(3), np.zeros((3, 2)), ALIKE[None, ::-1])
    with pytest.raises(ValueError, match="model is infeasible"):
        cls().map(differ)
    # Two edges need equal labels, the third unequal labels. Only a fixed label of the first node reveals the conflict.
    graph = Graph(3, [[0, 1], [1, 2], [2, 0]])
    with pytest.raises(ValueError, match="model is infeasible"):
        cls().map(PairwiseModel(graph, [[0, -np.inf], [0, 0], [0, 0]], [ALIKE, ALIKE, ALIKE[::-1]], [0, 1, 2]))


@every
def test_no_choice_and_no_edges(cls):
    assert cls().map(PairwiseModel(Graph(0, []), np.zeros((0, 2)), np.zeros((1, 2, 2)))).score == 0
    one_state = PairwiseModel(cycle(4), np.ones((4, 1)), np.ones((1, 1, 1)))
    found = cls().map(one_state)
    assert found.certified
    assert found.score == 8


@every
def test_unconverged_and_wrong_options(cls):
    model = random_model(lattice((6, 6)), 3, "untied", scale=2.0, seed=5)
    with pytest.warns(ConvergenceWarning, match=f"{cls.__name__} stopped after max_iter=1 "):
        found = cls(max_iter=1).map(model)
    assert not found.converged
    for option in ("max_iter", "tol"):
        with pytest.raises(ValueError, match=f"{option} must"):
            cls(**{option: -1}).map(model)
