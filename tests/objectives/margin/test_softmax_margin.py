"""Costs and temperatures in the likelihood: enumeration, both limits of the temperature, and estimators."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from built_fields import trw_crf
from hypothesis import given, settings
from hypothesis import strategies as st
from margin_problems import random_cost, random_labels
from model_strategies import TOPOLOGIES, random_model
from numpy.testing import assert_allclose
from relaxed_problems import TIGHT, fitted, graphs
from scipy.special import logsumexp

from sklearn_crf.inference import BruteForce, NormProductBP
from sklearn_crf.models import score
from sklearn_crf.objectives import Likelihood, RelaxedLikelihood, SoftmaxMargin, StructuredHinge, apply_temperature

SMALL = sorted(set(TOPOLOGIES) - {"grid", "disconnected", "disconnected_forest"})


@given(
    name=st.sampled_from(SMALL),
    n_columns=st.integers(1, 3),
    temperature=st.floats(0.1, 3),
    weighted=st.booleans(),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_the_loss_is_that_of_its_definition(name, n_columns, temperature, weighted, seed):
    rng = np.random.default_rng(seed)
    model = random_model(name, n_columns, "typed", seed=seed)
    labels, cost = random_labels(model, rng), random_cost(n_columns, rng)
    node_weight = rng.random(len(labels)) if weighted else None
    loss = SoftmaxMargin(Likelihood(BruteForce()), cost, temperature).loss_statistics(
        model, labels, node_weight=node_weight
    )
    weight = np.ones(len(labels)) if node_weight is None else node_weight
    values = np.array(
        [weight @ cost[np.array(y), labels] + score(model, y) for y in product(range(n_columns), repeat=len(labels))]
    )
    expected = temperature * logsumexp(values / temperature) - score(model, labels)
    assert_allclose(loss.terms.sum(), expected, atol=1e-10)
    # Between the hinge and the hinge plus the largest entropy.
    hinge = values.max() - score(model, labels)
    assert hinge - 1e-9 <= expected <= hinge + temperature * np.log(len(values)) + 1e-9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "likelihood", [Likelihood(BruteForce()), RelaxedLikelihood(NormProductBP("trivial", tol=1e-12))]
)
def test_statistics_are_its_derivative(likelihood, dtype):
    rng = np.random.default_rng(0)
    model = random_model("cycle", 3, "weighted", seed=1, dtype=dtype)
    labels = random_labels(model, rng)
    objective = SoftmaxMargin(likelihood, random_cost(3, rng), 0.7)
    found = objective.loss_statistics(model, labels).statistics
    double = replace(model, unary=model.unary.astype(np.float64))
    for field in ("unary", "tables"):
        direction = rng.normal(size=getattr(double, field).shape)

        def value(step, field=field, direction=direction):
            moved = replace(double, **{field: getattr(double, field) + step * direction})
            return objective.loss_statistics(moved, labels).terms.sum()

        slope = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
        assert_allclose(np.sum(getattr(found, field) * direction), slope, atol=1e-7 if dtype == np.float64 else 1e-4)


def test_unlabelled_nodes_cost_nothing():
    rng = np.random.default_rng(0)
    model = random_model("chain", 3, seed=2)
    labels = random_labels(model, rng)
    labels[1] = -1
    cost = random_cost(3, rng)
    rest = np.arange(len(labels)) != 1
    values, fits = [], []
    for y in map(np.array, product(range(3), repeat=len(labels))):
        values.append(score(model, y) + cost[y[rest], labels[rest]].sum())
        fits.append(np.array_equal(y[rest], labels[rest]))
    values = np.array(values) / 0.5
    expected = 0.5 * (logsumexp(values) - logsumexp(values[fits]))
    loss = SoftmaxMargin(Likelihood(BruteForce()), cost, 0.5).loss_statistics(model, labels)
    assert_allclose(loss.terms.sum(), expected)


def test_forbidden_states_stay_forbidden():
    model = random_model("chain", 2, seed=0)
    unary = model.unary.copy()
    unary[0, 1] = -np.inf
    model = replace(model, unary=unary)
    labels = np.zeros(len(unary), dtype=np.int32)
    loss = SoftmaxMargin(Likelihood(BruteForce()), 1 - np.eye(2), 0.3).loss_statistics(model, labels)
    assert loss.statistics.unary[0, 1] == 0
    assert np.isneginf(apply_temperature(model, 0.3).unary[0, 1])


def test_towards_zero_the_loss_is_the_hinge():
    rng = np.random.default_rng(3)
    model = random_model("chain", 3, seed=5)
    labels, cost = random_labels(model, rng), random_cost(3, rng)
    hinge = StructuredHinge(BruteForce(), cost).loss_statistics(model, labels)
    cold = SoftmaxMargin(Likelihood(BruteForce()), cost, 1e-3).loss_statistics(model, labels)
    assert_allclose(cold.terms.sum(), hinge.terms.sum(), atol=1e-2)
    assert_allclose(cold.statistics.unary, hinge.statistics.unary, atol=1e-3)


# The estimator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learning", ["exact", "relaxation", "joint_relaxation", "pseudolikelihood"])
def test_a_temperature_alone_is_another_scale_of_the_weights(learning):
    X, y = graphs(n=4)
    # T log Z(w / T) at C and weights w is the likelihood at C T and weights w / T: w^2 / 2 is T^2 (w / T)^2 / 2.
    options = {"learning": learning} | ({"edge_scale": 1} if learning == "pseudolikelihood" else {})
    cold = fitted(X, y, temperature=0.5, C=0.3, **options)
    warm = fitted(X, y, C=0.3 / 0.5, **options)
    assert_allclose(cold.coef_ / 0.5, warm.coef_, atol=1e-4)
    for one, other in zip(cold.predict_proba(X), warm.predict_proba(X), strict=True):
        assert_allclose(one, other, atol=1e-4)
    assert_allclose(cold.log_likelihood(X, y).values, warm.log_likelihood(X, y).values, atol=1e-3)


def test_learnings_agree_with_costs():
    X, y = graphs(n=3)
    options = {"cost": "hamming", "temperature": 0.7, "pairwise": "potts"}
    models = [fitted(X, y, learning=name, **options) for name in ("relaxation", "joint_relaxation")]
    assert_allclose(models[0].coef_, models[1].coef_, atol=1e-4)
    assert models[0].loss_curve_[-1] > fitted(X, y, pairwise="potts", temperature=0.7).loss_curve_[-1]


def test_costs_of_nodes_are_costs_of_states():
    X, y = graphs(n=3)
    matrix = fitted(X, y, cost=2 * (1 - np.eye(2)))
    by_node = trw_crf(**TIGHT, cost="hamming").fit(X, y, node_weight=[np.full(4, 2.0) for _ in X])
    assert_allclose(by_node.coef_, matrix.coef_, atol=1e-6)


def test_a_costly_class_is_predicted_more_often():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(60, 5))
    X = y[..., None] + rng.normal(scale=1.5, size=(60, 5, 1))
    plain = trw_crf(**TIGHT).fit(X, y)
    careful = trw_crf(cost=[[0, 4], [0, 0]], **TIGHT).fit(X, y)
    assert (careful.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": [[0, 1]]}, "cost must have shape"),
        ({"cost": [[1, 1], [1, 0]]}, "zero on its diagonal"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_bad_costs_are_named(options, message):
    X, y = graphs(n=3)
    with pytest.raises(ValueError, match=message):
        trw_crf(**options).fit(X, y)
