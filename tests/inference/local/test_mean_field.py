"""Naive mean field: the lower bound never decreases, and marginals are its derivatives."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import scores_given_marginals, weighted
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce, MeanField
from sklearn_crf.inference.local import _mean_field
from sklearn_crf.models import PairwiseModel

SCHEDULES = ("sequential", "checkerboard")
TIGHT = {"max_iter": 20000, "tol": 1e-14}


def one_sweep(model, init=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MeanField(max_iter=1, **options).marginals(model, init=init)


def reference_sweep(model, q, nodes, damping):
    q = q.copy()
    for node in nodes:
        q[node] = damping * q[node] + (1 - damping) * softmax(scores_given_marginals(model, q, node))
    return q


def reference_bound(model, q):
    unary = model.unary.astype(np.float64)
    bound = weighted(unary, q).sum() - np.sum(q * np.log(np.where(q > 0, q, 1)))
    for (tail, head), table in zip(model.graph.edges, model.edge_tables().astype(np.float64), strict=True):
        bound += weighted(table, np.outer(q[tail], q[head])).sum()
    return bound


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_sweep_is_the_reference(topology, kind, structure, schedule):
    model = random_model(topology, 3, kind, structure=structure, seed=3)
    nodes = np.arange(model.graph.n_nodes) if schedule == "sequential" else model.graph.colouring.nodes
    found = one_sweep(model, schedule=schedule, damping=0.3)
    expected = reference_sweep(model, softmax(model.unary, axis=1), nodes, 0.3)
    np.testing.assert_allclose(found.unary, expected, atol=1e-12)
    assert found.log_z == pytest.approx(reference_bound(model, expected), abs=1e-10)


@given(model=models(dtypes=(np.float32, np.float64)), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=60, deadline=None)
def test_bound_holds_at_every_iteration(model, schedule):
    exact = BruteForce().marginals(model).log_z
    tolerance = (1e-9 if model.dtype == np.float64 else 1e-5) * max(1.0, abs(exact))
    result, previous = None, -np.inf
    for _ in range(5):
        result = one_sweep(model, init=result and result.state, schedule=schedule)
        assert result.bound == "lower"
        assert result.log_z <= exact + tolerance
        assert result.log_z >= previous - tolerance
        assert result.unary.dtype == model.dtype
        np.testing.assert_allclose(result.unary.sum(axis=1), 1, rtol=1e-6)
        assert result.log_z == pytest.approx(result.log_z_terms.sum())
        assert not np.any(result.unary[np.isneginf(model.unary)])
        previous = result.log_z


@given(model=models(topologies=("grid", "tree", "disconnected"), max_states=3), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=15, deadline=None)
def test_marginals_are_derivatives_of_the_bound(model, schedule):
    algorithm = MeanField(schedule=schedule, **TIGHT)
    result = algorithm.marginals(model)
    if not np.isfinite(result.log_z):
        return

    def bound(changed):
        return algorithm.marginals(changed, init=result.state).log_z

    step = 1e-5
    rng = np.random.default_rng(0)
    direction = rng.normal(size=model.unary.shape)
    slope = bound(replace(model, unary=model.unary + step * direction))
    slope -= bound(replace(model, unary=model.unary - step * direction))
    assert np.sum(result.unary * direction) == pytest.approx(slope / (2 * step), abs=1e-6)
    direction = rng.normal(size=model.tables.shape)
    slope = bound(replace(model, tables=model.tables + step * direction))
    slope -= bound(replace(model, tables=model.tables - step * direction))
    assert np.sum(result.tables * direction) == pytest.approx(slope / (2 * step), abs=1e-6)


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_tables_are_products(kind):
    model = random_model("grid", 3, kind, seed=1)
    result = MeanField().marginals(model)
    expected = np.zeros(model.tables.shape)
    for e, (tail, head) in enumerate(model.graph.edges):
        weight = np.ones(1) if model.edge_weight is None else model.edge_weight[e]
        pair = np.outer(result.state[tail], result.state[head])
        expected[model.edge_type[e]] += weight[:, None, None] * pair
    np.testing.assert_allclose(result.tables, expected, atol=1e-12)


def test_exact_without_edges():
    model = random_model("no_edges", 4, forbidden=0.3, seed=2)
    exact, result = BruteForce().marginals(model), MeanField().marginals(model)
    np.testing.assert_allclose(result.unary, exact.unary, atol=1e-12)
    assert result.log_z == pytest.approx(exact.log_z, abs=1e-12)


def test_terms_of_a_component_are_its_bound():
    parts = [random_model("grid", 3, seed=1), random_model("chain", 3, seed=2)]
    tables = np.concatenate([part.tables for part in parts])
    edge_type = np.concatenate([np.full(part.graph.n_edges, k) for k, part in enumerate(parts)])
    union = PairwiseModel(
        build_disjoint_union([part.graph for part in parts]),
        np.concatenate([part.unary for part in parts]),
        tables,
        edge_type=edge_type,
    )
    result = MeanField(**TIGHT).marginals(union)
    alone = [MeanField(**TIGHT).marginals(part).log_z for part in parts]
    np.testing.assert_allclose([result.log_z_terms[:9].sum(), result.log_z_terms[9:].sum()], alone, atol=1e-9)


def test_damping_leaves_the_fixed_point():
    model = random_model("grid", 3, scale=0.5, seed=4)
    plain, damped = MeanField(**TIGHT).marginals(model), MeanField(damping=0.5, **TIGHT).marginals(model)
    np.testing.assert_allclose(plain.unary, damped.unary, atol=1e-10)
    assert damped.n_iter > plain.n_iter


def test_warm_start_goes_on_where_it_was():
    model = random_model("grid", 3, seed=4)
    result = MeanField(tol=1e-10).marginals(model)
    again = MeanField(tol=1e-9).marginals(model, init=result.state)
    assert again.n_iter == 1
    assert result.n_iter > 5
    np.testing.assert_allclose(again.unary, result.unary, atol=1e-9)


def test_labels_choose_the_mode():
    # Two equally good modes: the start determines the result.
    model = PairwiseModel(lattice((4, 4)), np.zeros((16, 2)), 2 * np.eye(2)[None])
    for state in (0, 1):
        result = MeanField().marginals(model, init=np.full(16, state))
        assert np.all(result.unary[:, state] > 0.9)


def test_map_is_the_likeliest_of_each_node():
    model = random_model("grid", 3, seed=7)
    labels = MeanField().map(model)
    np.testing.assert_array_equal(labels.labels, MeanField().marginals(model).unary.argmax(axis=1))
    assert labels.score <= BruteForce().map(model).score + 1e-9


def test_a_forbidden_pair_that_cannot_happen_costs_nothing():
    tables = np.array([[[0.0, -np.inf], [0.0, 1.0]]])
    model = PairwiseModel(lattice((6,)), np.tile([0.3, 0.0], (6, 1)), tables)
    result = MeanField().marginals(model, init=np.zeros(6, dtype=int))
    assert np.isfinite(result.log_z)
    assert result.log_z <= BruteForce().marginals(model).log_z


@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("graph", ["chain", "tree", "cycle", "bridges"])
def test_forbidden_pairs_leave_a_bound_that_says_something(graph, damping):
    for seed in range(6):
        model = random_model(graph, 3, ("tied", "weighted", "untied")[seed % 3], scale=2.0, forbidden=0.5, seed=seed)
        found, exact = MeanField(damping=damping, max_iter=5000).marginals(model), BruteForce().marginals(model)
        assert -np.inf < found.log_z <= exact.log_z + 1e-9
        assert found.bound == "lower"
        assert found.converged
        assert not found.unary[exact.unary == 0].any()


def test_a_bound_of_minus_infinity_is_no_claim(monkeypatch):
    tables = np.array([[[0.0, -np.inf], [0.0, 1.0]]])
    model = PairwiseModel(lattice((6,)), np.tile([0.3, 0.0], (6, 1)), tables)
    monkeypatch.setattr(_mean_field, "search_allowed_labels", lambda model, labels: None)
    with pytest.warns(ConvergenceWarning, match="bound of MeanField is -inf"):
        result = MeanField(max_iter=3, tol=1.0, damping=0.5).marginals(model)
    assert result.bound is None
    assert not result.converged
    assert np.all(np.isfinite(result.unary))


def test_no_labeling_at_all_is_an_error():
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), [[[-np.inf, 0.0], [-np.inf, -np.inf]]])
    with pytest.raises(ValueError, match="infeasible"):
        MeanField().marginals(model)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_anything(n_threads):
    rng = np.random.default_rng(2)
    model = PairwiseModel(lattice((70, 60)), rng.normal(size=(4200, 3)), rng.normal(size=(1, 3, 3)))
    algorithm = MeanField(schedule="checkerboard")
    alone, shared = algorithm.marginals(model), algorithm.marginals(model, n_threads=n_threads)
    np.testing.assert_array_equal(alone.unary, shared.unary)
    np.testing.assert_array_equal(alone.tables, shared.tables)
    assert alone.log_z == shared.log_z


def test_stopping_early_warns():
    model = random_model("grid", 3, seed=4)
    for task in ("map", "marginals"):
        with pytest.warns(ConvergenceWarning, match="max_iter=2 ") as caught:
            result = getattr(MeanField(max_iter=2), task)(model)
        assert caught[0].filename == __file__
        assert not result.converged
        assert result.n_iter == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_iter": 0}, "max_iter"), ({"schedule": 1}, "schedule"), ({"tol": -1.0}, "tol"), ({"damping": 1}, "damping")],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MeanField(**options).marginals(random_model("chain"))


@pytest.mark.parametrize("init", [np.full((6, 2), 0.5), np.full((6, 3), np.nan), np.full((6, 3), 2.0), np.zeros(5)])
def test_bad_starts_are_named(init):
    with pytest.raises(ValueError, match=r"(init|labels) must"):
        MeanField().marginals(random_model("chain"), init=init)
