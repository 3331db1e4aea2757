"""Orthant-wise quasi-Newton against scikit-learn, closed forms and its optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.linear_model import Lasso

from sklearn_crf.optimize import minimize_lbfgs, minimize_owlqn


def quadratic(n=8, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(2 * n, n))
    b = rng.normal(size=2 * n)

    def fun(x):
        residual = A @ x - b
        return 0.5 * residual @ residual / len(b), A.T @ residual / len(b)

    return fun, A, b


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5])
def test_least_squares_with_l1_is_the_lasso(alpha):
    fun, A, b = quadratic()
    found = minimize_owlqn(fun, np.zeros(8), l1=alpha, max_iter=500, tol=1e-10)
    reference = Lasso(alpha=alpha, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(A, b)
    assert found.success
    assert_allclose(found.x, reference.coef_, atol=1e-7)
    assert_array_equal(found.x == 0, reference.coef_ == 0)


def test_without_penalty_it_is_lbfgs():
    X, y = make_classification(200, 10, random_state=0)
    sign = 2 * y - 1

    def fun(w):
        margin = sign * (X @ w)
        return np.logaddexp(0, -margin).sum() + 0.5 * w @ w, w - X.T @ (sign / (1 + np.exp(margin)))

    found, reference = (
        minimize(fun, np.ones(10), max_iter=500, tol=1e-8) for minimize in (minimize_owlqn, minimize_lbfgs)
    )
    assert found.success
    assert_allclose(found.x, reference.x, atol=1e-7)
    assert np.all(np.diff(found.loss_curve) <= 0)
    assert found.nit == len(found.loss_curve) - 1 <= found.nfev


def test_some_coordinates_may_be_free():
    fun, _, _ = quadratic()
    l1 = np.array([0.0, 10.0] * 4)
    found = minimize_owlqn(fun, np.ones(8), l1=l1, max_iter=500, tol=1e-10)
    assert_array_equal(found.x[1::2], 0)
    assert np.all(found.x[::2] != 0)
    _, gradient = fun(found.x)
    assert_allclose(gradient[::2], 0, atol=1e-8)
    assert np.all(np.abs(gradient[1::2]) <= 10)


def test_a_large_penalty_leaves_nothing():
    fun, _, _ = quadratic()
    found = minimize_owlqn(fun, np.ones(8), l1=100.0, tol=1e-8)
    assert_array_equal(found.x, 0)
    assert found.success


def test_callback_stops_and_sees_every_iterate():
    fun, _, _ = quadratic()
    seen = []
    found = minimize_owlqn(fun, np.ones(8), l1=0.1, callback=lambda point: seen.append(point.fun) or len(seen) == 2)
    assert found.nit == 2
    assert_allclose(seen, found.loss_curve[1:])


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_known_curvature_saves_iterations(l1):
    curvature = np.logspace(-1, 3, 12)
    target = np.linspace(-1, 1, 12)

    def fun(x):
        residual = x - target
        return 0.5 * curvature @ residual**2 + np.sum(residual**4), curvature * residual + 4 * residual**3

    options = {"l1": l1, "max_iter": 2000, "tol": 1e-7}
    plain = minimize_owlqn(fun, np.zeros(12), **options)
    scaled = minimize_owlqn(fun, np.zeros(12), curvature=curvature, **options)
    assert plain.success
    assert scaled.success
    assert_allclose(scaled.x, plain.x, atol=1e-6)
    assert scaled.nfev < plain.nfev / 2


def test_too_few_iterations_are_no_success():
    fun, _, _ = quadratic()
    found = minimize_owlqn(fun, np.ones(8), max_iter=1, tol=1e-12)
    assert not found.success
    assert "max_iter" in found.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x0": [np.nan]}, "finite"),
        ({"l1": -1.0}, "l1 must not be negative"),
        ({"curvature": [0.0]}, "curvature must hold 1 positive"),
        ({"curvature": [1.0, 1.0]}, "curvature must hold 1 positive"),
        ({"max_iter": -1}, "max_iter"),
        ({"fun": lambda x: (np.inf, x)}, "finite at x0"),
    ],
)
def test_bad_input(changes, message):
    options = {"fun": lambda x: (0.5 * x @ x, x), "x0": [1.0]} | changes
    with pytest.raises(ValueError, match=message):
        minimize_owlqn(options.pop("fun"), options.pop("x0"), **options)


def test_points_are_never_changed_once_they_were_evaluated():
    seen = []

    def fun(x):
        assert not x.flags.writeable
        seen.append((x, x.copy()))
        return 0.5 * x @ x + np.sum(x**4), x + 4 * x**3

    found = minimize_owlqn(fun, np.array([3.0, -1.0]))
    assert found.success
    assert all(np.array_equal(x, copy) for x, copy in seen)
    assert found.x.flags.writeable


@pytest.mark.parametrize("l1", [0.0, 1e-3])
def test_long_vectors_in_parts(l1):
    n = 20_011
    rng = np.random.default_rng(0)
    curvature, target = rng.uniform(0.5, 20, n), rng.normal(size=n)

    def fun(x):
        residual = x - target
        return 0.5 * curvature @ residual**2 / n, curvature * residual / n

    found = minimize_owlqn(fun, np.zeros(n), l1=l1 / n, curvature=np.ones(n), max_iter=500, tol=1e-9 / n)
    assert found.success
    assert_allclose(found.x, np.sign(target) * np.maximum(np.abs(target) - l1 / curvature, 0), atol=1e-6)
    assert np.all(np.diff(found.loss_curve) <= 0)


def test_a_second_point_on_a_line():
    tried = []

    def fun(x):
        tried.append(float(x[0]))
        return float(np.cosh(x[0])), np.sinh(x)

    found = minimize_owlqn(fun, np.array([0.1]), tol=1e-8)
    assert found.success
    assert found.nfev == len(tried) > found.nit + 1
    assert_allclose(found.x, 0, atol=1e-8)
