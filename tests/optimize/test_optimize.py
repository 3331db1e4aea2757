"""Optimizers on functions with known minima, and on objectives of inference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import expit

from sklearn_crf.optimize import (
    CycleDetector,
    gradient_ascent,
    minimize_lbfgs,
    minimize_sgd,
    scaling_by_differences,
)


def ascended(gradient, start, **options):
    """Return the result of gradient ascent, and every point on its way."""
    points = []
    found = gradient_ascent(gradient, start, callback=lambda step: points.append(step.x), **options)
    return found, np.array(points)


def detect_cycle(values, n_cycles=2, **options):
    """Return the iteration at which recorded values have completed a number of cycles, or None."""
    detector = CycleDetector(n_cycles, **options)
    return next((t for t, value in enumerate(values) if detector.update(value)), None)


def quadratic(seed=0, n=6):
    """Return a convex function, as its value and gradient, and its minimum."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + 2, n))
    matrix, minimum = root.T @ root, rng.normal(size=n)
    return lambda x: (0.5 * (x - minimum) @ matrix @ (x - minimum), matrix @ (x - minimum)), minimum


def logistic_regression(seed=0, n_samples=200, n_features=4):
    """Return the parts of a penalised logistic loss, which is fun(indices, x) for a mini-batch."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_samples, n_features))
    target = rng.random(n_samples) < expit(features @ rng.normal(size=n_features))

    def fun(indices, x):
        margin = features[indices] @ x
        value = np.mean(np.logaddexp(0, margin) - target[indices] * margin) + 0.005 * x @ x
        return value, features[indices].T @ (expit(margin) - target[indices]) / len(indices) + 0.01 * x

    return fun, n_samples, n_features


class TestLBFGS:
    def test_scaling_spares_evaluations_of_what_is_curved_unevenly(self):
        rng = np.random.default_rng(0)
        directions = np.linalg.qr(rng.normal(size=(12, 12)))[0]
        matrix, minimum = directions * np.logspace(-3, 3, 12) @ directions.T, rng.normal(size=12)

        def fun(x):
            return 0.5 * (x - minimum) @ matrix @ (x - minimum), matrix @ (x - minimum)

        start = np.zeros(12)
        scaling = scaling_by_differences(fun, start, floor=1e-8)
        assert_allclose(scaling.T @ matrix @ scaling, np.eye(12), atol=1e-5)
        plain = minimize_lbfgs(fun, start, tol=1e-8, max_iter=500)
        found = minimize_lbfgs(fun, start, tol=1e-8, max_iter=500, scaling=scaling)
        assert found.success
        assert found.message == "CONVERGENCE: gradient within tol"
        assert np.abs(found.jac).max() <= 1e-8
        assert_allclose(found.x, minimum, atol=1e-4)
        assert found.nfev + 13 < plain.nfev / 2

    def test_callback_of_scaled_steps_sees_unscaled_iterates(self):
        fun, minimum = quadratic()
        seen = []

        def callback(point):
            assert_allclose(point.jac, fun(point.x)[1])
            seen.append(point.x)

        scaling = 3 * np.eye(6)
        found = minimize_lbfgs(fun, np.ones(6), tol=1e-9, max_iter=200, scaling=scaling, callback=callback)
        assert_allclose(found.x, minimum, atol=1e-6)
        assert_allclose(seen[-1], found.x)
        stopped = minimize_lbfgs(fun, np.ones(6), tol=0, scaling=scaling, callback=lambda point: point.nit == 2)
        assert (stopped.nit, stopped.message) == (2, "STOP: by the callback")

    def test_scaling_by_the_size_of_negative_curvature(self):
        curvature = np.array([4.0, -0.25, 1.0])
        scaling = scaling_by_differences(lambda x: (0.5 * curvature @ x**2, curvature * x), np.ones(3))
        assert_allclose(scaling @ scaling.T, np.diag(1 / np.abs(curvature)), atol=1e-8)

    def test_scaling_of_what_is_not_convex_is_none(self):
        assert_allclose(scaling_by_differences(lambda x: (-x @ x, -2 * x), np.ones(3)), np.eye(3))
        assert_allclose(scaling_by_differences(lambda x: (0.0, np.full(3, np.nan)), np.ones(3)), np.eye(3))

    @given(seed=st.integers(0, 1000), n=st.integers(1, 20))
    @settings(max_examples=30, deadline=None)
    def test_finds_the_minimum(self, seed, n):
        fun, minimum = quadratic(seed, n)
        found = minimize_lbfgs(fun, np.zeros(n), tol=1e-9, max_iter=500)
        assert found.success
        assert np.abs(found.jac).max() <= 1e-9 or "no longer changes" in found.message
        np.testing.assert_allclose(found.x, minimum, atol=1e-4)
        assert found.fun == fun(found.x)[0]
        np.testing.assert_array_equal(found.jac, fun(found.x)[1])

    def test_loss_curve_falls_from_start_to_end(self):
        fun, _ = quadratic()
        found = minimize_lbfgs(fun, np.ones(6), tol=1e-8)
        assert len(found.loss_curve) == found.nit + 1
        assert found.loss_curve[0] == fun(np.ones(6))[0]
        assert found.loss_curve[-1] == found.fun
        assert np.all(np.diff(found.loss_curve) < 0)
        assert found.nfev >= found.nit + 1

    def test_max_iter_ends_it_without_success(self):
        fun, _ = quadratic()
        found = minimize_lbfgs(fun, np.ones(6), tol=1e-10, max_iter=2)
        assert not found.success
        assert found.nit == 2
        assert found.message == "STOP: max_iter reached"

    @pytest.mark.parametrize("max_iter", [0, 10])
    def test_a_start_at_the_minimum_is_kept(self, max_iter):
        fun, minimum = quadratic()
        found = minimize_lbfgs(fun, minimum, max_iter=max_iter)
        assert found.success
        assert found.message == "CONVERGENCE: gradient within tol"
        assert found.nit == 0
        np.testing.assert_array_equal(found.x, minimum)

    def test_no_iteration_allowed(self):
        fun, _ = quadratic()
        found = minimize_lbfgs(fun, np.ones(6), max_iter=0)
        assert not found.success
        assert found.message == "STOP: max_iter reached"
        np.testing.assert_array_equal(found.x, np.ones(6))

    def test_no_variables(self):
        assert minimize_lbfgs(lambda x: (1.0, x), np.zeros(0)).success

    @pytest.mark.parametrize("noise", [1e-6, 1e-3])
    def test_an_inexact_objective_gives_the_best_point_seen(self, noise):
        fun, minimum = quadratic()
        rng = np.random.default_rng(0)
        seen = []

        def inexact(x):
            value, gradient = fun(x)
            value += noise * rng.normal()
            seen.append(value)
            return value, gradient + noise * rng.normal(size=6)

        found = minimize_lbfgs(inexact, np.ones(6), tol=1e-12, max_iter=1000)
        assert not found.success
        assert "ABNORMAL" in found.message
        assert found.fun == min(seen)
        np.testing.assert_allclose(found.x, minimum, atol=0.2)
        assert not minimize_lbfgs(inexact, np.ones(6), tol=1e-12, max_iter=1000, noise=1e-12).success
        seen.clear()
        found = minimize_lbfgs(inexact, np.ones(6), tol=1e-12, max_iter=1000, noise=100 * noise)
        assert found.success
        assert "noise" in found.message
        assert found.fun == min(seen)

    def test_leaving_the_finite_numbers_gives_the_best_point_seen(self):
        def fun(x):
            with np.errstate(invalid="ignore"):
                return float(-np.sqrt(1 - x @ x)), x / np.sqrt(1 - x @ x) - 3

        found = minimize_lbfgs(fun, np.zeros(2))
        assert not found.success
        assert "not finite" in found.message
        assert np.isfinite(found.fun)
        assert np.all(np.isfinite(found.x))

    def test_callback_sees_each_iteration(self):
        fun, _ = quadratic()
        seen = []
        found = minimize_lbfgs(fun, np.ones(6), callback=seen.append)
        assert [step.nit for step in seen] == list(range(1, found.nit + 1))
        np.testing.assert_array_equal([step.fun for step in seen], found.loss_curve[1:])
        np.testing.assert_array_equal(seen[-1].x, found.x)
        np.testing.assert_array_equal(seen[-1].jac, found.jac)

    @pytest.mark.parametrize("raises", [False, True])
    def test_callback_stops(self, raises):
        fun, _ = quadratic()

        def callback(step):
            if step.nit == 3 and raises:
                raise StopIteration
            return step.nit == 3

        found = minimize_lbfgs(fun, np.ones(6), callback=callback, tol=1e-12)
        assert found.nit == 3
        assert found.success
        assert "callback" in found.message
        assert found.fun == found.loss_curve[-1] == fun(found.x)[0]

    def test_other_exceptions_go_through(self):
        fun, _ = quadratic()

        def interrupt(step):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            minimize_lbfgs(fun, np.ones(6), callback=interrupt)

    def test_bad_input_is_named(self):
        fun, _ = quadratic()
        with pytest.raises(ValueError, match="x0 must be a vector"):
            minimize_lbfgs(fun, np.ones((2, 3)))
        with pytest.raises(ValueError, match="x0 must be finite"):
            minimize_lbfgs(fun, np.full(6, np.nan))
        with pytest.raises(ValueError, match="fun must be finite at x0"):
            minimize_lbfgs(lambda x: (np.inf, x), np.ones(6))

    def test_the_start_is_left_as_it_is(self):
        fun, _ = quadratic()
        start = np.ones(6)
        minimize_lbfgs(fun, start)
        np.testing.assert_array_equal(start, 1)


class TestGradientAscent:
    def test_converges_on_a_concave_function(self):
        fun, maximum = quadratic()
        found = gradient_ascent(lambda x: -fun(x)[1], np.zeros(6), step_size=0.02, max_iter=5000, tol=1e-6)
        assert found.success
        assert np.abs(found.jac).max() <= 1e-6
        np.testing.assert_allclose(found.x, maximum, atol=1e-4)

    @pytest.mark.parametrize(
        ("schedule", "sizes"),
        [("constant", [2, 2, 2]), ("annealed", [2, 2 / 1.01, 2 / 1.02]), ("sqrt", [2, 2 / 1.01**0.5, 2 / 1.02**0.5])],
    )
    def test_steps_follow_the_schedule(self, schedule, sizes):
        found, points = ascended(np.ones_like, np.zeros(1), max_iter=3, step_size=2.0, schedule=schedule)
        np.testing.assert_allclose(np.diff(points[:, 0]), sizes)
        assert found.nit == 3
        assert not found.success

    def test_the_result_is_the_last_point_and_its_gradient(self):
        fun, _ = quadratic()
        found, points = ascended(lambda x: -fun(x)[1], np.zeros(6), step_size=0.01, max_iter=7)
        assert points.shape == (8, 6)
        np.testing.assert_array_equal(found.x, points[-1])
        np.testing.assert_array_equal(found.jac, -fun(points[-1])[1])
        assert found.fun is None

    def test_a_gradient_of_zero_ends_it(self):
        found = gradient_ascent(np.zeros_like, np.ones(3), step_size=1.0)
        assert found.success
        assert found.nit == 0

    def test_a_piecewise_constant_gradient_cycles_until_the_callback_stops(self):
        # The sign of the distance to 0.3: the form of a saddle point approximation.
        detector, distances = CycleDetector(n_cycles=2, patience=4, min_iter=4), []

        def callback(step):
            distances.append(abs(step.x[0] - 0.3))
            return detector.update(distances[-1])

        found = gradient_ascent(
            lambda x: np.where(x < 0.3, 1.0, -1.0), np.array([-5.0]), step_size=0.25, max_iter=1000, callback=callback
        )
        assert found.success
        assert 20 < found.nit < 40
        assert distances[detector.best_iter] <= 0.125

    def test_divergence_is_said(self):
        with np.errstate(over="ignore"):
            found, points = ascended(lambda x: x**3, np.array([10.0]), step_size=10.0)
        assert not found.success
        assert "smaller step_size" in found.message
        assert np.all(np.isfinite(points))

    def test_a_bad_gradient_at_the_start_is_named(self):
        with pytest.raises(ValueError, match="gradient must be finite at x0"):
            gradient_ascent(lambda x: x * np.nan, np.zeros(2), step_size=1.0)


class TestSGD:
    def test_comes_close_to_the_minimum(self):
        fun, n_samples, n_features = logistic_regression()
        everything = np.arange(n_samples)
        best = minimize_lbfgs(lambda x: fun(everything, x), np.zeros(n_features), tol=1e-8)
        found = minimize_sgd(
            fun, np.zeros(n_features), n_samples, step_size=1.0, n_epochs=40, batch_size=10, random_state=0
        )
        assert fun(everything, found.x)[0] - best.fun < 1e-3
        assert found.success
        assert found.nit == len(found.loss_curve) == 40
        assert found.n_steps == 800
        assert found.loss_curve[-1] < found.loss_curve[0]
        assert found.fun == found.loss_curve[-1]

    def test_the_average_is_nearer_than_the_last(self):
        fun, n_samples, n_features = logistic_regression(1)
        everything = np.arange(n_samples)
        best = minimize_lbfgs(lambda x: fun(everything, x), np.zeros(n_features), tol=1e-8)
        runs = [
            minimize_sgd(fun, np.zeros(n_features), n_samples, step_size=0.5, schedule="constant", random_state=seed)
            for seed in range(10)
        ]
        averaged, last = (np.mean([np.sum((run[name] - best.x) ** 2) for run in runs]) for name in ("x", "last_x"))
        assert averaged < 0.3 * last

    def test_every_example_is_visited_once_an_epoch(self):
        batches = []

        def fun(indices, x):
            batches.append(indices)
            return None, np.zeros(1)

        found = minimize_sgd(fun, np.zeros(1), 7, step_size=1.0, n_epochs=2, batch_size=3, random_state=0)
        assert [len(batch) for batch in batches] == [3, 3, 1] * 2
        first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
        np.testing.assert_array_equal(np.sort(first), np.arange(7))
        np.testing.assert_array_equal(np.sort(second), np.arange(7))
        assert np.any(first != second)
        assert found.fun is None
        assert found.loss_curve is None

    def test_value_is_the_mean_over_examples(self):
        found = minimize_sgd(
            lambda indices, x: (np.mean(indices), np.zeros(1)), np.zeros(1), 7, step_size=1.0, n_epochs=1, batch_size=3
        )
        assert found.fun == pytest.approx(3.0)

    def test_average_has_the_weights_documented(self):
        # With gradient -1 and steps of 1 the iterates are 1, 2, ..., n.
        found = minimize_sgd(
            lambda indices, x: (None, -np.ones(1)), np.zeros(1), 5, step_size=1.0, schedule="constant", n_epochs=1
        )
        average = 0.0
        for t in range(1, 6):
            average = (1 - 4 / (t + 3)) * average + 4 / (t + 3) * t
        assert found.x[0] == pytest.approx(average)
        assert found.last_x[0] == 5

    def test_default_decay_is_an_epoch_and_goes_on(self):
        def fun(indices, x):
            return None, -np.ones(1)

        found = minimize_sgd(fun, np.zeros(1), 4, n_epochs=2, step_size=1.0)
        assert found.last_x[0] == pytest.approx(sum(1 / (1 + t / 4) for t in range(8)))

    def test_seeds_decide(self):
        fun, n_samples, n_features = logistic_regression()
        first, again, other = (
            minimize_sgd(fun, np.zeros(n_features), n_samples, step_size=1.0, n_epochs=1, random_state=seed).x
            for seed in (0, np.random.RandomState(0), 1)
        )
        np.testing.assert_array_equal(first, again)
        assert np.any(first != other)

    def test_callback_stops(self):
        fun, n_samples, n_features = logistic_regression()
        found = minimize_sgd(
            fun, np.zeros(n_features), n_samples, step_size=1.0, random_state=0, callback=lambda step: step.nit == 2
        )
        assert found.nit == 2
        assert "callback" in found.message

    def test_divergence_is_said(self):
        with np.errstate(over="ignore"):
            found = minimize_sgd(lambda indices, x: (None, -(x**3)), np.array([10.0]), 20, step_size=10.0)
        assert not found.success
        assert "smaller step_size" in found.message
        assert np.all(np.isfinite(found.last_x))


class TestCycles:
    def test_large_oscillations_are_counted_at_each_return(self):
        descent = [1000, 400, 700, 200, 300, 100]
        cycle = [104, 100, 101, 160, 400, 220, 105]
        values = descent + 3 * cycle
        assert detect_cycle(values, 1, min_iter=1) == len(descent) + len(cycle) - 1
        assert detect_cycle(values, 2, min_iter=1) == len(descent) + 2 * len(cycle) - 1
        assert detect_cycle(values, 4, min_iter=1) is None

    def test_oscillating_descent_is_no_cycle(self):
        values = np.repeat(1000.0 * 0.8 ** np.arange(20), 2)
        values[1::2] *= 2
        assert detect_cycle(values, 1, min_iter=1) is None

    @pytest.mark.parametrize("n_cycles", [1, 2, 3])
    def test_period_of_two_with_sinking_minima_is_no_cycle(self, n_cycles):
        # Error counts of saddle point training on noisy shapes. Successive minima fall by less than the tolerance.
        values = [976, 1882, 953, 1728, 930, 1624, 931]
        assert detect_cycle(values[:-1], n_cycles, min_iter=1) is None
        assert detect_cycle(values, n_cycles) is None
        # Every other value falls by a tenth of a percent, for many more iterations than min_iter.
        falling = np.ravel(np.column_stack([1000 * 0.999 ** np.arange(200), np.full(200, 2000.0)]))
        assert detect_cycle(falling, n_cycles) is None

    def test_period_of_two_without_progress_is_a_cycle_after_the_floor(self):
        values = [1000, 500] + [900, 500] * 30
        assert detect_cycle(values, 2, min_iter=1) == 5
        assert detect_cycle(values, 2) == 21  # twenty iterations after the minimum at 1
        assert detect_cycle(values, 2, min_iter=40) == 41

    def test_small_oscillations_count_by_patience(self):
        values = [1000, 500, 100] + [100, 101, 103] * 40
        # The iteration that reaches 100 already counts as an iteration without change.
        assert detect_cycle(values, 2, patience=20) == 2 + 2 * 20 - 1
        assert detect_cycle(values[:30], 2, patience=20) is None

    @pytest.mark.parametrize("rate", [0.99, 1 - 1e-9])
    def test_slow_descent_is_no_cycle(self, rate):
        values = 1000 * rate ** np.arange(200)
        assert detect_cycle(values, 1, patience=5) is None

    def test_the_edge_of_the_zone_counts_for_neither(self):
        assert detect_cycle([100, 120, 100, 120, 100, 120, 100], 1, min_iter=1) is None
        assert detect_cycle([100, 160, 120, 130, 160, 120], 1, min_iter=1) is None

    def test_progress_starts_anew(self):
        detector = CycleDetector(2, min_iter=1)
        assert not any(detector.update(value) for value in [100, 200, 100])
        assert detector.n_completed == 1
        assert not detector.update(99)
        assert (detector.n_completed, detector.minimum, detector.best_iter) == (0, 99, 3)
        assert [detector.update(value) for value in [200, 100, 200, 99]] == [False, False, False, True]

    def test_no_errors_at_all(self):
        assert detect_cycle([5, 0, 3, 0, 2, 0], 2, min_iter=1) == 5

    @given(values=st.lists(st.floats(0, 100), max_size=60), n_cycles=st.integers(1, 3), min_iter=st.integers(1, 20))
    @settings(max_examples=60, deadline=None)
    def test_function_and_class_agree_and_ignore_scale(self, values, n_cycles, min_iter):
        options = {"patience": 10, "min_iter": min_iter}
        found = detect_cycle(values, n_cycles, **options)
        assert found == detect_cycle([4 * value for value in values], n_cycles, **options)
        detector = CycleDetector(n_cycles, **options)
        done = [detector.update(value) for value in values]
        assert found == (done.index(True) if True in done else None)
        assert detector.n_iter == len(values)
        if found is not None:
            assert found - np.argmin(values[: found + 1]) >= min_iter
        if values:
            assert detector.minimum == min(values)
            assert values[detector.best_iter] == min(values)


def test_lbfgs_stays_within_bounds():
    target = np.array([1.0, -2.0, -3.0, 4.0])

    def fun(x):
        return float(np.sum((x - target) ** 2) + x[0] * x[1]), 2 * (x - target) + np.array([x[1], x[0], 0.0, 0.0])

    bounded = np.array([True, True, False, True])
    found = minimize_lbfgs(fun, np.full(4, -1.0), lower_bounded=bounded, tol=1e-8)
    assert found.success
    assert_allclose(found.x, [1.0, 0.0, -3.0, 4.0], atol=1e-7)


def test_adaptive_steps_do_not_depend_on_the_units_of_variables():
    units = np.array([1.0, 100.0, 0.01])

    def path(units):
        options = {"step_size": 0.3, "schedule": "adaptive", "max_iter": 30}
        return ascended(lambda x: -np.sign(x - 1.0) * units, np.zeros(3), **options)[1]

    first, second = path(np.ones(3)), path(units)
    assert_allclose(first, second, rtol=1e-12)
    # The sum of the squares of t signs is t.
    assert_allclose(first[:4, 0], np.cumsum([0, 0.3, 0.3 / np.sqrt(2), 0.3 / np.sqrt(3)]))
    assert np.abs(first[-1] - 1.0).max() < 0.3 / np.sqrt(30) + 1e-12
