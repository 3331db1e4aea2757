"""Spectral projected gradient."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from sklearn_crf.optimize import minimize_spg
from sklearn_crf.optimize._spg import PRECISION, ProjectedRun


def anywhere(x):
    return np.array(x)


def quadratic(matrix, vector):
    def fun(x):
        return 0.5 * x @ matrix @ x - vector @ x, matrix @ x - vector

    return fun


@given(st.integers(0, 2**16), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_nonnegative_least_squares(seed, n):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n + 3, n)), rng.normal(size=n + 3)
    found = minimize_spg(
        quadratic(a.T @ a, a.T @ b), rng.normal(size=n), project=lambda x: np.maximum(x, 0), tol=1e-10, max_iter=5000
    )
    assert found.success
    assert found.residual <= 1e-10
    assert_allclose(found.x, nnls(a, b)[0], atol=1e-7)


@given(st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_minimum_on_a_plane_meets_the_conditions_of_lagrange(seed):
    rng = np.random.default_rng(seed)
    a, normal = rng.normal(size=(6, 6)), rng.normal(size=6)
    matrix, vector = a.T @ a + np.eye(6), rng.normal(size=6)
    found = minimize_spg(
        quadratic(matrix, vector),
        np.zeros(6),
        project=lambda x: x - normal * (normal @ x - 1) / (normal @ normal),
        tol=1e-11,
    )
    system = np.block([[matrix, normal[:, None]], [normal[None], np.zeros((1, 1))]])
    assert_allclose(found.x, np.linalg.solve(system, np.append(vector, 1))[:6], atol=1e-8)


def test_rosenbrock_in_a_box():
    def fun(x):
        value = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        return value, np.array([-400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)])

    found = minimize_spg(fun, [-1.2, 1.0], project=anywhere, tol=1e-9)
    assert_allclose(found.x, 1, atol=1e-7)
    # With x[0] <= 1/2 the other variable is the square of x[0].
    found = minimize_spg(fun, [-1.2, 1.0], project=lambda x: np.minimum(x, 0.5), tol=1e-9)
    assert_allclose(found.x, [0.5, 0.25], atol=1e-7)


def test_history_of_one_never_rises():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(10, 10))
    fun = quadratic(a.T @ a + 1e-2 * np.eye(10), rng.normal(size=10))
    found = minimize_spg(fun, np.zeros(10), project=anywhere, history=1, tol=1e-7, max_iter=5000)
    assert found.success
    assert np.all(np.diff(found.loss_curve) <= 1e-12)
    assert len(found.loss_curve) == found.nit + 1


@pytest.mark.parametrize("seed", range(10))
def test_rounding_errors_of_the_value_do_not_end_the_search(seed):
    rng, orders = np.random.default_rng(0), np.random.default_rng(seed)
    a = rng.normal(size=(10, 10))
    matrix, vector = a.T @ a + 1e-2 * np.eye(10), rng.normal(size=10)

    def fun(x):
        order = orders.permutation(10)
        product = (matrix[:, order] * x[order]).cumsum(axis=1)[:, -1]
        return sum((0.5 * x * product - vector * x)[order]), product - vector

    found = minimize_spg(fun, np.zeros(10), project=anywhere, history=1, tol=1e-7, max_iter=5000)
    assert found.success
    assert np.all(np.diff(found.loss_curve) <= 1e-12)


def test_stopped_early_gives_the_best_point_seen():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(10, 10))
    fun = quadratic(a.T @ a + 1e-3 * np.eye(10), rng.normal(size=10))
    for max_iter in range(1, 30):
        found = minimize_spg(fun, np.zeros(10), project=anywhere, max_iter=max_iter, tol=0)
        assert not found.success
        assert found.fun == found.loss_curve.min()
        assert found.fun == pytest.approx(fun(found.x)[0])


def test_values_that_are_not_finite_shorten_the_step():
    def fun(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(np.sum(x - np.log(x))), 1 - 1 / x

    found = minimize_spg(fun, [1e-3, 5.0], project=anywhere, tol=1e-9)
    assert found.success
    assert_allclose(found.x, 1, atol=1e-8)


def test_callback_and_start():
    fun = quadratic(np.diag([1.0, 30.0]), np.ones(2))
    seen = []

    def stop_at_two(intermediate):
        seen.append(intermediate.nit)
        return intermediate.nit == 2

    found = minimize_spg(fun, [5.0, 5.0], project=anywhere, callback=stop_at_two)
    assert seen == [1, 2]
    assert found.success
    solution = np.array([1.0, 1 / 30])
    assert minimize_spg(fun, solution, project=anywhere).nit == 0
    assert not minimize_spg(fun, [5.0, 5.0], project=anywhere, max_iter=0).success
    # The start itself need not be feasible.
    inside = minimize_spg(fun, [50.0, 50.0], project=lambda x: np.clip(x, -2, 2), max_iter=0)
    assert_allclose(inside.x, 2)


def test_start_must_be_finite():
    with pytest.raises(ValueError, match="x0"):
        minimize_spg(quadratic(np.eye(1), np.ones(1)), [np.nan], project=anywhere)
    with pytest.raises(ValueError, match="fun must be finite"):
        minimize_spg(lambda x: (np.inf, x), [0.0], project=anywhere)


def test_steps_within_the_rounding_of_x_are_none():
    calls = []

    def fun(x):
        calls.append(x)
        return 0.5 * float(x @ x), x

    run = ProjectedRun(fun, np.copy, np.full(2, 1e6), history=1, shrink=0.5, callback=None, precision=PRECISION)
    assert not run.move_along(np.full(2, -1e-11))
    assert len(calls) == 1
    assert run.move_along(np.full(2, -1e-3))
    assert run.nit == 1
