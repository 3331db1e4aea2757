"""Iterated conditional modes: scores never decrease, and no change of one node improves the result."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import scores_given_labels
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import ICM, BruteForce
from sklearn_crf.models import PairwiseModel, score

SCHEDULES = ("sequential", "checkerboard")


def assert_no_single_change_improves(model, labels):
    for node in range(model.graph.n_nodes):
        scores = scores_given_labels(model, labels, node)
        present = scores[labels[node]]
        assert present >= scores.max() - 1e-9 * max(1.0, abs(present))


def reference_sweep(model, labels, nodes):
    labels = labels.copy()
    for node in nodes:
        scores = scores_given_labels(model, labels, node)
        if scores.max() > scores[labels[node]]:
            labels[node] = np.argmax(scores)
    return labels


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_sweep_is_the_reference(topology, kind, structure, schedule):
    model = random_model(topology, 3, kind, structure=structure, seed=3)
    nodes = np.arange(model.graph.n_nodes) if schedule == "sequential" else model.graph.colouring.nodes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = ICM(max_iter=1, schedule=schedule).map(model)
    np.testing.assert_array_equal(found.labels, reference_sweep(model, model.unary.argmax(axis=1), nodes))


@given(model=models(dtypes=(np.float32, np.float64)), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=60, deadline=None)
def test_ends_at_a_local_maximum(model, schedule):
    found = ICM(schedule=schedule).map(model)
    assert found.converged
    assert found.score == score(model, found.labels)
    rounding = 1e-9 if model.dtype == np.float64 else 1e-4
    assert found.score <= BruteForce().map(model).score + rounding
    assert found.bound == np.inf
    if np.isfinite(found.score):
        assert_no_single_change_improves(model, found.labels)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_score_never_falls(schedule):
    rng = np.random.default_rng(0)
    model = PairwiseModel(lattice((30, 20)), rng.normal(size=(600, 4)), 2 * rng.normal(size=(1, 4, 4)))
    labels = model.unary.argmax(axis=1)
    scores = [score(model, labels)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(20):
            found = ICM(max_iter=1, schedule=schedule).map(model, init=labels)
            labels = found.state
            scores.append(found.score)
    assert np.all(np.diff(scores) >= -1e-9)
    assert scores[-1] > scores[0] + 1
    assert found.converged


def test_an_optimum_given_as_start_is_kept():
    model = random_model("grid", 3, seed=5)
    best = BruteForce().map(model)
    found = ICM().map(model, init=best.labels)
    np.testing.assert_array_equal(found.labels, best.labels)
    assert found.n_iter == 1


def test_the_start_given_is_left_as_it_is():
    model = random_model("grid", 3, seed=5)
    start = np.zeros(model.graph.n_nodes, dtype=np.int32)
    start.flags.writeable = False
    assert np.any(ICM().map(model, init=start).labels != 0)


def test_restarts_never_lose_and_find_small_optima():
    n_optimal = np.zeros(2, dtype=int)
    for seed in range(20):
        model = random_model("grid", 3, scale=2.0, seed=seed)
        plain = ICM().map(model)
        restarted = ICM(n_restarts=10, random_state=0).map(model)
        assert restarted.score >= plain.score
        optimum = BruteForce().map(model).score
        n_optimal += np.isclose([plain.score, restarted.score], optimum)
    assert n_optimal[1] >= 18 > n_optimal[0]


def test_restarts_are_reproducible():
    rng = np.random.default_rng(1)
    graph = lattice((12, 12))
    tables = rng.normal(size=(graph.n_edges, 3, 3))
    model = PairwiseModel(graph, np.zeros((144, 3)), tables, edge_type=np.arange(graph.n_edges))
    first, second, other = (ICM(n_restarts=3, random_state=seed).map(model).labels for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert np.any(first != other)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_anything(n_threads):
    rng = np.random.default_rng(2)
    model = PairwiseModel(lattice((60, 50), 2), rng.normal(size=(3000, 3)), rng.normal(size=(1, 3, 3)))
    icm = ICM(schedule="checkerboard", n_restarts=1, random_state=0)
    alone, shared = icm.map(model), icm.map(model, n_threads=n_threads)
    np.testing.assert_array_equal(alone.labels, shared.labels)
    assert alone.n_iter == shared.n_iter


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_forbidden_pairs_are_left_behind(schedule):
    # Outside, begin, inside: "inside" must not follow "outside", but single nodes prefer this.
    tables = np.zeros((1, 3, 3))
    tables[0, 0, 2] = -np.inf
    unary = np.tile([[1.0, 0.0, 0.5], [0.0, 0.2, 2.0]], (4, 1))
    model = PairwiseModel(lattice((8,)), unary, tables)
    assert score(model, unary.argmax(axis=1)) == -np.inf
    found = ICM(schedule=schedule).map(model)
    assert np.isfinite(found.score)
    assert_no_single_change_improves(model, found.labels)


def test_no_way_out_of_forbidden_pairs_is_an_error():
    # Both nodes must differ, but both have only one state.
    tables = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)[None]
    unary = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    with pytest.raises(ValueError, match="infeasible"):
        ICM().map(PairwiseModel(lattice((2,)), unary, tables))


def test_stopping_early_warns():
    model = random_model("grid", 4, scale=3.0, seed=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        found = ICM(max_iter=1).map(model)
    assert not found.converged


def test_no_nodes():
    model = PairwiseModel(Graph(0, []), np.zeros((0, 2)), np.zeros((1, 2, 2)))
    assert ICM(schedule="checkerboard", n_restarts=1).map(model).labels.shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_iter": 0}, "max_iter"), ({"schedule": "random"}, "schedule"), ({"n_restarts": -1}, "n_restarts")],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ICM(**options).map(random_model("chain"))


def test_bad_starts_are_named():
    model = PairwiseModel(lattice((2,)), [[0.0, -np.inf], [0.0, 0.0]], np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="init must have shape"):
        ICM().map(model, init=[0])
    with pytest.raises(ValueError, match=r"init\[0\] is 1"):
        ICM().map(model, init=[1, 0])


def test_labels_that_were_repaired_are_changed_as_long_as_that_gains():
    clique, n_repaired = Graph(6, [[s, t] for s in range(6) for t in range(s)]), 0
    for seed in range(40):
        model = random_model(clique, 3, "untied", forbidden=0.25, scale=3.0, seed=seed)
        n_repaired += np.isneginf(ICM()._map(model).score)
        assert_no_single_change_improves(model, ICM().map(model).labels)
    assert n_repaired > 5
