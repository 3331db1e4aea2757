"""Proofs by bounds: rounding, and the steps between possible scores."""

from dataclasses import replace

import numpy as np
import pytest
from model_strategies import random_model
from numpy.testing import assert_array_equal

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    AD3,
    MPLP,
    TRWS,
    AutoMap,
    BruteForce,
    ClusterTightening,
    CycleRelaxation,
    Inference,
    Labeling,
    LinearProgram,
    NormProductBP,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.models import CountTable, FactorGraph, PairwiseModel, factor_graph_of, score

BOUNDING = [TRWS(), MPLP(), AD3(), LinearProgram(), NormProductBP(), TRWMessagePassing(), ClusterTightening(1e6)]
TRIANGLE = Graph(3, [[0, 1], [1, 2], [0, 2]])


class Claims(Inference):
    """Returns given labels and a given bound."""

    tasks = frozenset({"map"})
    takes = (PairwiseModel, FactorGraph)

    def __init__(self, labels, excess):
        self.labels = labels
        self.excess = excess

    def _map(self, model, init, n_threads):
        value = score(model, self.labels)
        return Labeling(self.labels, value, value + self.excess)


def frustrated(seed, n_states=2, n_nodes=3):
    """Return integer scores on a clique, whose relaxation is loose for many seeds."""
    rng = np.random.default_rng(seed)
    graph = Graph(n_nodes, [[s, t] for s in range(n_nodes) for t in range(s)])
    tables = rng.integers(-3, 4, size=(graph.n_edges, n_states, n_states)).astype(float)
    unary = rng.integers(-2, 3, size=(n_nodes, n_states)).astype(float)
    return PairwiseModel(graph, unary, tables, np.arange(graph.n_edges))


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9, -1e12, 1e14])
@pytest.mark.parametrize("as_factors", [False, True])
def test_an_offset_certifies_nothing(as_factors, offset):
    unary = np.array([[0.0, 0.4], [0.3, 0.0], [0.0, 1.3]])
    unary[0] += offset
    model = PairwiseModel(TRIANGLE, unary, [np.zeros((2, 2))])
    model = factor_graph_of(model) if as_factors else model
    claims = Claims(np.array([1, 0, 0], dtype=np.int32), 1.3)
    claims.climb = False
    found = claims.map(model)
    assert not found.certified
    assert found.gap == pytest.approx(1.3, abs=1e-3 + np.spacing(abs(offset)))
    for inference in BOUNDING:
        if not isinstance(model, inference.takes):
            continue
        found = inference.map(model)
        assert found.bound >= BruteForce().map(model).score
        assert_array_equal(found.labels, [1, 0, 1])


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_one_strong_edge_certifies_nothing(scale):
    tables = np.stack([scale * np.eye(2), np.eye(2), np.eye(2)])
    model = PairwiseModel(TRIANGLE, np.array([[0.0, 0.1], [0.0, 0.1], [0.7, 0.0]]), tables, np.arange(3))
    claims = Claims(np.array([0, 0, 1], dtype=np.int32), 2.7)
    claims.climb = False
    assert not claims.map(model).certified


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [1.0, 0.25, 1e-3, 7e5])
@pytest.mark.parametrize("inference", BOUNDING)
def test_bounds_of_scores_with_a_step_are_multiples_above_the_score(inference, step, dtype):
    n_closed = 0
    for seed in range(15):
        whole = frustrated(seed, n_nodes=4)
        offset = np.random.default_rng(seed).normal(size=(4, 1))
        unary, tables = step * whole.unary + offset * (dtype == np.float64), step * whole.tables
        model = PairwiseModel(whole.graph, unary.astype(dtype), tables.astype(dtype), whole.edge_type)
        if dtype == np.float32 and step == 1e-3:
            # In single precision, thousandths are multiples of a far smaller step.
            assert Proof(model).step < 1e-9
            continue
        assert Proof(model).step / step == pytest.approx(np.rint(Proof(model).step / step), abs=1e-6)
        with convergence_left_to_caller():
            found = inference.map(model)
        best = BruteForce().map(model).score
        steps = found.gap / step
        assert found.bound >= best - 1e-9 * step
        assert steps == pytest.approx(np.rint(steps), abs=1e-6)
        assert not found.certified or found.score == pytest.approx(best, abs=1e-9 * step)
        n_closed += found.certified
    assert n_closed or (dtype == np.float32 and step == 1e-3)


def test_steps_of_scores():
    def step_of(unary, tables, **options):
        return Proof(PairwiseModel(TRIANGLE, unary, tables, **options)).step

    rng = np.random.default_rng(0)
    whole = rng.integers(-9, 10, size=(3, 2))
    spins = rng.choice([-1.0, 1.0], size=3)
    assert step_of(np.zeros((3, 2)), [np.eye(2)], edge_weight=spins) == 1.0
    assert step_of(6.0 * whole, [4 * np.eye(2)]) == 2.0
    assert step_of(0.1 * whole, [0.25 * np.eye(2)]) == pytest.approx(0.05)
    assert step_of(whole / 3, [np.eye(2)]) == pytest.approx(1 / 3)
    assert step_of(whole + rng.normal(size=(3, 1)), [np.eye(2)]) == pytest.approx(1.0)
    assert step_of(rng.normal(size=(3, 2)), [np.eye(2)]) == 0.0
    assert step_of(1.0 * whole, [np.eye(2)], edge_weight=rng.normal(size=3)) == 0.0
    assert step_of(np.full((3, 2), 7.5), [np.zeros((2, 2))]) == 0.0
    # Differences below rounding define no step.
    assert step_of(1e-9 * whole, [1e9 * np.eye(2)]) == 1e9
    assert step_of(1e-9 * whole, [np.pi * 1e6 * np.eye(2)], edge_weight=rng.normal(size=3)) == 0.0
    forbidden = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    assert step_of(3.0 * whole, [forbidden]) == 3.0
    factors = [((0, 1, 2), CountTable([0.0, 4.0], -2.0)), ((0, 1), [[0.5, 2.5], [6.5, 0.5]])]
    assert Proof(FactorGraph.from_factors([2, 2, 2], factors)).step == 2.0


def test_a_step_saves_the_search():
    # Spins of even degree: scores differ by multiples of 4 in weights of 2.
    rng, graph = np.random.default_rng(1), lattice((16, 16), connectivity=2)
    weight = rng.choice([-1.0, 1.0], size=graph.n_edges)
    model = PairwiseModel(graph, np.zeros((graph.n_nodes, 2)), [2 * np.eye(2)], edge_weight=weight)
    found = AutoMap().map(model)
    assert found.gap == pytest.approx(2 * np.rint(found.gap / 2))
    blurred = replace(model, unary=1e-3 * rng.normal(size=model.unary.shape))
    other = AutoMap().map(blurred)
    assert found.gap <= other.gap + 1.0


@pytest.mark.parametrize("inference", [*BOUNDING, CycleRelaxation(), AutoMap()])
def test_certificates_of_random_models_hold(inference):
    for seed in range(25):
        kind = ("tied", "weighted", "untied")[seed % 3]
        scale = 10.0 ** np.random.default_rng(seed).uniform(-1, 3)
        model = random_model("grid", 2, kind, scale=scale, seed=seed)
        unary = model.unary + 1e7 * (seed % 2) * (np.arange(len(model.unary)) == 4)[:, None]
        model, best = replace(model, unary=unary), None
        best = BruteForce().map(model).score
        with convergence_left_to_caller():
            found = inference.map(model)
        tolerance = 1e-12 * (abs(best) + 1e2 * scale)
        assert found.bound >= best - tolerance
        assert not found.certified or found.score >= best - tolerance


@pytest.mark.parametrize("offset", [1e12, 6e13, -1e15])
@pytest.mark.parametrize("as_factors", [False, True])
def test_far_from_zero_what_is_certified_is_the_best(as_factors, offset):
    for seed in range(10):
        model = random_model("grid", 3, "untied", seed=seed)
        best = BruteForce().map(model).score
        unary, tables = model.unary.copy(), model.tables.copy()
        unary[seed % len(unary)] += offset
        tables[0] -= 2 * offset
        far = replace(model, unary=unary, tables=tables)
        for algorithm in BOUNDING:
            if "map" in algorithm.tasks and (not as_factors or FactorGraph in algorithm.takes):
                with convergence_left_to_caller():
                    found = algorithm.map(factor_graph_of(far) if as_factors else far)
                lost = best - score(model, found.labels)
                assert lost <= 16 * np.spacing(abs(offset)) or not found.certified, algorithm
                assert found.bound >= found.score
