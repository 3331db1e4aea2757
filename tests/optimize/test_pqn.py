"""Projected quasi-Newton method."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.optimize._pqn import _QuadraticModel


def anywhere(x):
    return np.array(x)


def quadratic(matrix, vector):
    def fun(x):
        return 0.5 * x @ matrix @ x - vector @ x, matrix @ x - vector

    return fun


def on_simplex(x):
    """Return the nearest probability distribution."""
    falling = np.sort(x)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(x) + 1)
    return np.maximum(x - excess[np.flatnonzero(falling > excess)[-1]], 0)


@given(st.integers(0, 2**16), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_nonnegative_least_squares(seed, n):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n + 3, n)), rng.normal(size=n + 3)
    found = minimize_pqn(
        quadratic(a.T @ a, a.T @ b), rng.normal(size=n), project=lambda x: np.maximum(x, 0), tol=1e-9, max_iter=3000
    )
    assert found.success
    assert found.residual <= 1e-9
    assert_allclose(found.x, nnls(a, b)[0], atol=1e-6)


@given(st.integers(0, 2**16), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_largest_entropy_on_the_simplex_meets_its_conditions(seed, n):
    rng = np.random.default_rng(seed)
    score = 2 * rng.normal(size=n)

    def fun(x):
        x = np.maximum(x, 1e-300)
        return float(x @ (np.log(x) - score)), np.log(x) - score + 1

    found = minimize_pqn(fun, np.full(n, 1 / n), project=on_simplex, tol=1e-7, inner_iter=50)
    assert found.success
    assert_allclose(found.x, np.exp(score) / np.exp(score).sum(), atol=1e-5)


def test_matrix_is_that_of_bfgs():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 6))
    matrix = a @ a.T + np.eye(6)
    model = _QuadraticModel(3)
    steps = rng.normal(size=(4, 6))
    for step in steps:
        model.learn(step, matrix @ step)
    sigma, times = model._matrix()
    expected = sigma * np.eye(6)
    for step in steps[1:]:
        turn, curved = matrix @ step, expected @ step
        expected += np.outer(turn, turn) / (turn @ step) - np.outer(curved, curved) / (step @ curved)
    assert_allclose(np.array([times(e) for e in np.eye(6)]), expected, atol=1e-10)
    model.learn(steps[0], -steps[0])
    assert len(model.steps) == 3


def test_takes_fewer_calls_than_spg_where_curvature_differs():
    matrix = np.diag(np.geomspace(1, 1e4, 30))
    fun = quadratic(matrix, np.ones(30))
    options = {"project": lambda x: np.maximum(x, 2e-4), "tol": 1e-6, "max_iter": 5000}
    newton, spectral = (
        minimize_pqn(fun, np.ones(30), inner_iter=50, **options),
        minimize_spg(fun, np.ones(30), **options),
    )
    expected = np.maximum(1 / np.diag(matrix), 2e-4)
    assert newton.success
    assert_allclose(newton.x, expected, atol=1e-6)
    assert_allclose(spectral.x, expected, atol=1e-6)
    assert newton.nfev < spectral.nfev


def test_never_rises_and_stops():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(10, 10))
    fun = quadratic(a.T @ a + 1e-2 * np.eye(10), rng.normal(size=10))
    found = minimize_pqn(fun, np.zeros(10), project=anywhere, tol=1e-8)
    assert found.success
    assert np.all(np.diff(found.loss_curve) <= 1e-12)
    assert len(found.loss_curve) == found.nit + 1
    assert not minimize_pqn(fun, np.zeros(10), project=anywhere, max_iter=2, tol=0).success
    assert minimize_pqn(fun, found.x, project=anywhere, tol=1e-7).nit == 0
    stopped = minimize_pqn(fun, np.zeros(10), project=anywhere, callback=lambda at: at.nit == 3)
    assert stopped.nit == 3


def test_slopes_decide_where_values_are_inexact():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(12, 12))
    exact = quadratic(a.T @ a + np.eye(12), rng.normal(size=12))

    def fun(x):
        value, gradient = exact(x)
        return value + 1e-8 * np.cos(1e10 * x[0]), gradient

    options = {"project": anywhere, "tol": 1e-9, "max_iter": 2000}
    found = minimize_pqn(fun, np.zeros(12), precision=1e-7, **options)
    assert found.success
    assert_allclose(found.x, minimize_pqn(exact, np.zeros(12), **options).x, atol=1e-8)
    assert found.nfev <= 2 * found.nit
    # If the values were taken as exact, they would allow no step.
    assert not minimize_pqn(fun, np.zeros(12), **options).success


def test_start_must_be_finite():
    with pytest.raises(ValueError, match="x0"):
        minimize_pqn(quadratic(np.eye(1), np.ones(1)), [np.nan], project=anywhere)
