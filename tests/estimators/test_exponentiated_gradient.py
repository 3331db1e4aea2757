"""Exponentiated gradient on duals: against the primal problem, alone and as a learning of TRWCRF."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import trw_crf
from numpy.testing import assert_allclose, assert_array_equal
from relaxed_problems import TIGHT, fitted, graphs, sparse_chains
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.optimize import exponentiated_gradient

# Alone: the local polytope is a simplex, and the problem multinomial logistic regression -----------------------------


class SimplexBlock:
    """One example of a linear classifier: scores ``features @ x``, K of them."""

    touched = slice(None)

    def __init__(self, features, label, weight, costs):
        self.features, self.weight, self.costs = features, weight, costs
        self.truth = np.eye(len(features))[label]
        self.n = features.shape[1]

    def start(self):
        return np.zeros(len(self.features))

    def scores(self, x):
        return self.features @ x + self.costs

    def forward(self, parameters):
        marginals = softmax(parameters)
        return marginals, logsumexp(parameters) - parameters @ marginals

    def bounded(self, parameters):
        return np.maximum(parameters - parameters.max(), -300)

    def pullback(self, marginals):
        return self.features.T @ marginals


def simplex_problem(temperature, with_costs, seed=0):
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(12):
        label = rng.integers(3)
        costs = with_costs * (np.arange(3) != label) * rng.random(3)
        blocks.append(SimplexBlock(rng.normal(size=(3, 4)), label, rng.uniform(0.2, 1), costs))

    def fun(x):
        value, gradient = 0.5 * x @ x, x.copy()
        for block in blocks:
            scores = block.scores(x)
            marginals = softmax(scores / temperature)
            value += block.weight * (temperature * logsumexp(scores / temperature) - scores @ block.truth)
            gradient += block.weight * block.pullback(marginals - block.truth)
        return value, gradient

    return blocks, fun


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("with_costs", [False, True])
def test_it_finds_the_least_primal_value(temperature, with_costs):
    blocks, fun = simplex_problem(temperature, with_costs)
    found = exponentiated_gradient(blocks, fun, temperature=temperature, max_iter=500, tol=1e-8, random_state=0)
    best = minimize(fun, np.zeros(4), jac=True, tol=1e-12)
    assert found.success
    assert_allclose(found.x, best.x, atol=1e-6)
    assert_allclose(found.dual, best.fun, atol=1e-9)
    assert np.all(np.diff(found.dual_curve) >= -1e-12)
    assert np.all(found.loss_curve >= found.dual_curve - 1e-12)


def test_without_entropy_it_approaches_the_hinge():
    blocks, _ = simplex_problem(1.0, True)

    def primal(x):
        terms = [block.weight * (block.scores(x).max() - block.scores(x) @ block.truth) for block in blocks]
        return 0.5 * x @ x + sum(terms), np.ones(4)

    found = exponentiated_gradient(blocks, primal, temperature=0, max_iter=100, random_state=0)
    assert not found.success
    assert np.all(np.diff(found.dual_curve) >= -1e-12)
    assert 0 <= found.fun - found.dual < 0.05 * found.fun


def test_the_callback_stops_it():
    blocks, fun = simplex_problem(1.0, False)
    found = exponentiated_gradient(blocks, fun, callback=lambda point: point.nit == 2, tol=0)
    assert found.nit == 2
    assert found.success


# As a learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("entropy", ["trw", "trivial"])
@pytest.mark.parametrize("options", [{}, {"cost": "hamming", "temperature": 0.5}])
def test_the_dual_reaches_the_weights_of_the_primal(n_classes, entropy, options):
    X, y = graphs(n_classes=n_classes, n=3)
    options = {"entropy": entropy, "fit_intercept": False, **options}
    primal = fitted(X, y, learning="relaxation", **options)
    dual = fitted(X, y, learning="dual_relaxation", random_state=0, **options)
    assert_allclose(dual.loss_curve_[-1], primal.loss_curve_[-1], rtol=1e-6)
    assert_allclose(dual.coef_, primal.coef_, atol=1e-5)
    assert_allclose(dual.edge_coef_, primal.edge_coef_, atol=1e-5)


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_the_dual_is_exact_on_chains(weights):
    X, y = sparse_chains(n=8)
    options = {"weights": weights, "fit_intercept": False, "C": 0.5, "tol": 1e-7, "inner_tol": 1e-9}
    weight = np.arange(8) % 3
    exact = trw_crf(max_iter=500, **options).fit(X, y, sample_weight=weight)
    dual = trw_crf(learning="dual_relaxation", max_iter=500, random_state=0, **options).fit(X, y, sample_weight=weight)
    one, other = (sp.csr_matrix(model.coef_).toarray() for model in (exact, dual))
    assert_allclose(one, other, atol=1e-5)
    assert_allclose(dual.edge_coef_, exact.edge_coef_, atol=1e-5)


def test_a_warm_start_in_the_dual_stays():
    X, y = graphs(n=3)
    model = trw_crf(learning="dual_relaxation", fit_intercept=False, warm_start=True, **TIGHT).fit(X, y)
    best = model.loss_curve_[-1]
    assert_allclose(model.fit(X, y).loss_curve_, best, rtol=1e-7)


def test_the_dual_does_not_depend_on_threads():
    X, y = graphs(n=4)
    models = [
        trw_crf(learning="dual_relaxation", fit_intercept=False, random_state=0, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 2)
    ]
    assert_array_equal(models[0].coef_, models[1].coef_)


def test_forbidden_pairs_stay_forbidden_in_the_dual():
    X, y = sparse_chains(n=8)
    y = [np.sort(labels) for labels in y]
    options = {"forbidden": [[1, 0], [2, 0], [2, 1]], "fit_intercept": False, "tol": 1e-6, "inner_tol": 1e-9}
    exact = trw_crf(max_iter=500, **options).fit(X, y)
    dual = trw_crf(learning="dual_relaxation", max_iter=500, random_state=0, **options).fit(X, y)
    assert_allclose(dual.coef_, exact.coef_, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "fit_intercept=False"),
        ({"fit_intercept": False, "l1_ratio": 0.5}, "l1_ratio=0"),
        ({"fit_intercept": False, "solver": "sgd"}, "solver='lbfgs'"),
    ],
)
def test_what_the_dual_refuses(options, message):
    X, y = graphs(n=3)
    with pytest.raises(ValueError, match=message):
        trw_crf(learning="dual_relaxation", **options).fit(X, y)


def test_too_few_epochs_are_named():
    X, y = graphs(n=3)
    with pytest.warns(ConvergenceWarning, match="increase max_iter, or decrease C"):
        trw_crf(learning="dual_relaxation", fit_intercept=False, max_iter=1, tol=1e-9).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trw_crf(learning="dual_relaxation", fit_intercept=False, max_iter=300).fit(X, y)
