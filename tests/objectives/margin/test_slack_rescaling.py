"""Slack rescaling compared with enumeration and a quadratic program, and the search over weights of the cost."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from built_fields import m3n_classifier
from field_data import chains, noisy_blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import FORESTS, TOPOLOGIES, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example
from sklearn_crf.inference import (
    ICM,
    BruteForce,
    GraphCut,
    LoopyBP,
    TreeInference,
    convergence_left_to_caller,
    score_all_labelings,
)
from sklearn_crf.learning import LEARNINGS
from sklearn_crf.models import score
from sklearn_crf.objectives import SlackRescaledHinge
from sklearn_crf.objectives.margin import _slack_rescaling as slack_rescaling
from sklearn_crf.objectives.margin._slack_rescaling import find_best_by_cost

SMALL = sorted(set(TOPOLOGIES) - {"grid", "disconnected", "disconnected_forest"})


def random_cost(n_classes, rng, whole):
    cost = rng.integers(1, 4, size=(n_classes, n_classes)).astype(float) if whole else rng.random((n_classes,) * 2)
    np.fill_diagonal(cost, 0)
    return cost


def enumerated(model, labels, cost):
    """Return the products of cost and slack of all labelings; cost[s, k] belongs to state k of node s."""
    labelings, scores = score_all_labelings(model)
    own = cost[np.arange(len(labels)), labelings].sum(axis=1)
    return own * (1.0 + scores - score(model, labels))


@pytest.fixture
def never_enumerates(monkeypatch):
    monkeypatch.setattr(slack_rescaling, "ENUMERABLE", 0)
    monkeypatch.setattr(slack_rescaling, "PROFILED", 0)


# The loss -----------------------------------------------------------------------------------------------------------


@given(name=st.sampled_from(SMALL), weighted=st.booleans(), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_few_labelings_are_enumerated(name, weighted, seed):
    rng = np.random.default_rng(seed)
    model = random_model(name, 2, "typed", seed=seed)
    n_nodes = model.graph.n_nodes
    labels, cost = rng.integers(2, size=n_nodes).astype(np.int32), random_cost(2, rng, whole=False)
    node_weight = rng.random(n_nodes) if weighted else None
    loss = SlackRescaledHinge(ICM(), cost).loss_statistics(model, labels, node_weight=node_weight)
    own = cost.T[labels] * (np.ones(n_nodes) if node_weight is None else node_weight)[:, None]
    assert_allclose(loss.terms.sum(), max(enumerated(model, labels, own).max(), 0.0), atol=1e-9)
    assert loss.gap == 0.0
    # The loss is the cost of the found labeling plus the statistics times the scores.
    moved = np.sum(loss.statistics.unary * model.unary) + np.sum(loss.statistics.tables * model.tables)
    assert_allclose(moved + own[np.arange(n_nodes), loss.predicted].sum(), loss.terms.sum(), atol=1e-9)


@given(name=st.sampled_from(SMALL), whole=st.booleans(), scale=st.floats(0.05, 2.0), seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_search_brackets_the_largest_product(name, whole, scale, seed):
    rng = np.random.default_rng(seed)
    model = random_model(name, 3, "weighted", seed=seed, scale=scale)
    labels, cost = rng.integers(3, size=model.graph.n_nodes).astype(np.int32), random_cost(3, rng, whole)
    truth = max(enumerated(model, labels, cost.T[labels]).max(), 0.0)
    hinge = SlackRescaledHinge(BruteForce(), cost)
    found = hinge._search(model, labels, cost.T[labels], None, None, 1)
    assert found.score <= truth + 1e-9 * (1 + truth)
    assert truth <= found.bound + 1e-9 * (1 + truth)
    # An inference with a looser bound also encloses the loss.
    with convergence_left_to_caller():
        loose = SlackRescaledHinge(LoopyBP(max_iter=10), cost)._search(model, labels, cost.T[labels], None, None, 1)
    assert loose.score <= truth + 1e-9 * (1 + truth)
    assert truth <= loose.bound + 1e-9 * (1 + truth)


@given(name=st.sampled_from(sorted(FORESTS)), seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_whole_costs_of_forests_are_exact(name, seed):
    rng = np.random.default_rng(seed)
    model = random_model(name, 3, "typed", seed=seed, vary_states=bool(seed % 2))
    labels = TreeInference().map(model).labels
    cost = rng.integers(0, 4, size=(model.graph.n_nodes, 3))
    labelings, scores = score_all_labelings(model)
    totals = cost[np.arange(len(labels)), labelings].sum(axis=1)
    profile, labels_at = find_best_by_cost(model, cost)
    for total, best in enumerate(profile):
        own = totals == total
        assert_allclose(best, scores[own].max() if own.any() else -np.inf)
        if np.isfinite(best):
            found = labels_at(total)
            assert cost[np.arange(len(labels)), found].sum() == total
            assert_allclose(score(model, found), best)


def test_long_chains_take_the_same_product_as_enumeration():
    model = random_model("chain", 3, "weighted", seed=3)
    labels = TreeInference().map(model).labels
    hinge = SlackRescaledHinge(ICM(), 1.0 - np.eye(3))
    profiled = slack_rescaling._maximise_by_profile(model, labels, hinge.cost.T[labels])
    counted = slack_rescaling._maximise_by_enumeration(model, labels, hinge.cost.T[labels])
    assert_allclose(profiled.score, counted.score)
    assert_array_equal(profiled.labels, counted.labels)


def test_unproven_products_are_in_the_gap(never_enumerates):
    model = random_model("cycle", 2, seed=0)
    labels = np.zeros(5, dtype=np.int32)
    assert SlackRescaledHinge(ICM(), 1.0 - np.eye(2)).loss_statistics(model, labels).gap == np.inf


def test_forbidden_states_are_left_out(never_enumerates):
    model = random_model("chain", 3, seed=1)
    model = replace(model, unary=np.where(np.arange(3) == 2, -np.inf, model.unary))
    labels = np.zeros(6, dtype=np.int32)
    hinge = SlackRescaledHinge(TreeInference(), 1.0 - np.eye(3))
    found = hinge.most_violated(model, labels)
    labelings, scores = score_all_labelings(model)
    allowed = np.isfinite(scores)
    costs = (labelings[allowed] != 0).sum(axis=1)
    truth = max(np.max(costs * (1.0 + scores[allowed] - score(model, labels))), 0.0)
    assert found.score <= truth + 1e-9 <= found.bound + 2e-9
    assert 2 not in found.labels


# Training -----------------------------------------------------------------------------------------------------------


def fitted(X, y, node_weight=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return m3n_classifier(rescaling="slack", random_state=0, **options).fit(X, y, node_weight=node_weight)


def test_rows_solve_the_direct_quadratic_programme():
    X, y = load_iris(return_X_y=True)
    X, y = (X[::5] - X.mean(axis=0)) / X.std(axis=0), y[::5]
    cost, C = np.array([[0, 1, 4], [1, 0, 2], [3, 1, 0]], dtype=float), 0.1
    model = fitted(X, y, C=C, cost=cost, fit_intercept=False, tol=1e-8)
    n, K, F = len(y), 3, X.shape[1]

    # Hinges of all rows, cost * (1 + score of a class - score of the true class), and multipliers of the highest
    # hinges, by a linear programme: weights that nearly equal minus the combination of their slopes are nearly optimal.
    costs, others = cost[:, y].T, np.eye(K)[None] - np.eye(K)[y][:, None]
    slopes = (costs[..., None, None] * others[..., None] * X[:, None, None, :]).reshape(n * K, K * F)
    w = model.coef_.ravel()
    hinges = costs + (slopes @ w).reshape(n, K)
    below = hinges.max(axis=1, keepdims=True) - hinges
    found = linprog(
        np.concatenate((below.ravel(), np.ones(K * F))),
        A_ub=np.block([[slopes.T, -np.eye(K * F)], [-slopes.T, -np.eye(K * F)]]),
        b_ub=np.concatenate((-w, w)),
        A_eq=np.hstack((np.repeat(np.eye(n), K, axis=1), np.zeros((n, K * F)))),
        b_eq=np.full(n, C),
    )
    assert found.success
    multipliers = found.x[: n * K]
    dual = multipliers @ costs.ravel() - 0.5 * np.sum((slopes.T @ multipliers) ** 2)
    primal = 0.5 * w @ w + C * hinges.max(axis=1).sum()
    assert_allclose(model.loss_curve_.min(), primal, rtol=1e-8)
    assert 0 <= primal - dual <= 1e-6 * primal


@pytest.mark.parametrize("data", [chains, noisy_blobs], ids=["forests", "grids"])
@pytest.mark.parametrize("solver", ["cutting_plane", "frank_wolfe", "subgradient"])
def test_solvers_reach_one_optimum(data, solver):
    X, y = data(6)
    X, y = ([x[:5] for x in X], [part[:5] for part in y]) if data is chains else (X[:, :3, :3], y[:, :3, :3])
    form = "auto" if data is chains else "ising"
    options = {"C": 0.02, "pairwise": form, "edge_features": "constant", "max_iter": 300}
    optimum = fitted(X, y, solver="bmrm", **{**options, "tol": 1e-6, "max_iter": 2000})
    assert optimum.duality_gap_ <= 1.1e-6 * optimum.loss_curve_.min()
    model = fitted(X, y, solver=solver, tol=2e-2, **options)
    assert model.dual_curve_[-1] <= optimum.loss_curve_.min() <= model.loss_curve_[-1] + 1e-9
    assert model.duality_gap_ <= 2.1e-2 * model.loss_curve_[-1]


def test_the_gap_of_searched_products_is_true(never_enumerates, monkeypatch):
    X, y = chains(5)
    X, y = [x[:5] for x in X], [part[:5] for part in y]
    searched = fitted(X, y, C=0.1, solver="cutting_plane", tol=1e-2, max_iter=100)
    monkeypatch.setattr(slack_rescaling, "ENUMERABLE", 4096)
    exact = fitted(X, y, C=0.1, solver="bmrm", tol=1e-6, max_iter=1000)
    assert searched.dual_curve_[-1] <= exact.loss_curve_.min() * (1 + 1e-6)
    assert exact.loss_curve_.min() <= searched.dual_curve_[-1] + searched.duality_gap_ + 1e-9
    assert np.isfinite(searched.duality_gap_)


def test_weights_are_repetition_and_threads_change_nothing():
    X, y = chains(4)
    options = {"C": 0.05, "solver": "bmrm", "tol": 1e-3, "max_iter": 40}
    weighted = fitted(X, y, **options, n_jobs=2).set_params(n_jobs=1)
    assert_array_equal(weighted.coef_, fitted(X, y, **options).coef_)
    once = fitted([X[0], *X], [y[0], *y], **options)
    again = m3n_classifier(rescaling="slack", random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again.fit(X, y, sample_weight=[2, 1, 1, 1])
    assert_allclose(again.loss_curve_[:10], once.loss_curve_[:10], rtol=1e-8)


def test_costs_of_nodes_and_disconnected_examples():
    rng = np.random.default_rng(0)
    y = [rng.integers(2, size=4) for _ in range(6)]
    X = [Example(part[:, None] + 0.5 * rng.normal(size=(4, 1)), [[0, 1], [2, 3]]) for part in y]
    options = {"C": 0.1, "edge_features": "constant", "solver": "bmrm", "tol": 1e-7}
    same = fitted(X, y, node_weight=[np.full(4, 2.0) for _ in y], **options)
    twice = fitted(X, y, cost=2 * (1 - np.eye(2)), **options)
    assert_allclose(same.coef_, twice.coef_, rtol=1e-6)


@pytest.mark.parametrize(
    "learning", ["relaxed_margin", "dual_margin", "smoothed_margin", "reparameterized_margin", "joint_margin"]
)
def test_relaxations_have_no_slack_rescaling(learning):
    assert "rescaling" not in LEARNINGS[learning]().get_params()


def test_inference_that_does_not_take_the_model_says_so():
    X, y = noisy_blobs(3)
    with pytest.raises(ValueError, match="without cycles"):
        m3n_classifier(rescaling="slack", inference=TreeInference()).fit(X, y)
    assert (
        m3n_classifier(
            pairwise="ising",
            solver="cutting_plane",
            rescaling="slack",
            inference=GraphCut(nonsubmodular="qpbo"),
            max_iter=3,
            tol=1.0,
        )
        .fit(X, y)
        .score(X, y)
        > 0.5
    )
