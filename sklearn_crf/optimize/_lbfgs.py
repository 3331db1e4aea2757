"""Limited-memory BFGS for smooth losses, including losses with small errors from approximate inference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, minimize

from sklearn_crf.optimize import _iterates


def minimize_lbfgs(
    fun: _iterates.ValueGradient,
    x0: ArrayLike,
    *,
    lower_bounded: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 0.0001,
    most_left: float = np.inf,
    history_size: int = 10,
    scaling: ArrayLike | None = None,
    noise: float = 0.0,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a smooth function by limited-memory BFGS.

    .. math::
        x_{t+1} = x_t - \eta_t H_t \nabla f(x_t), \qquad \text{until } \|\nabla f(x_t)\|_\infty \le \mathrm{tol}
    """
    # fun: function that returns value and gradient
    # x0: (n,), starting point
    # callback: function called after every iteration
    # most_left: maximum remaining decrease, estimated from the last iterations, as a fraction of the value
    # lower_bounded: (n,) bool, mask of the entries of x (of z if ``scaling`` is given) that must not be negative
    start = _iterates.check_start(x0)
    bounded = _iterates.mask_of_bounds(lower_bounded, len(start))
    start[bounded] = np.maximum(start[bounded], 0.0)
    run = _Iterations(fun, start, scaling, callback, bounded, tol, most_left)
    try:
        run(run.first)
    except _NonFiniteValue as error:
        raise ValueError(f"fun must be finite at x0, got value {error.args[0]}.") from None
    run.loss_curve.append(run.last.value)
    if run.has_converged():
        return run.result(run.last, _CONVERGED)
    if max_iter == 0:
        return run.result(run.last, _iterates.AT_LIMIT)
    bounds = np.stack((np.where(bounded, 0.0, -np.inf), np.full(len(start), np.inf)), axis=1) if bounded.any() else None
    options = {
        "maxiter": max_iter,
        # SciPy's own test is disabled, because ``has_converged`` checks the gradient with respect to x, not z.
        "gtol": 0.0,
        "ftol": _VALUE_TOL,
        "maxls": 50,
        "maxfun": 10**9,
        "maxcor": history_size,
    }

    limits = {"bounds": bounds, "options": options, "callback": run.iteration}
    try:
        found = minimize(run, run.first, jac=True, method="L-BFGS-B", **limits)
    except _NonFiniteValue:
        return run.result(run.best, "ABNORMAL: fun is not finite during the line search")
    if run.stopped:
        return run.result(run.last, "STOP: by the callback")
    if found.status in (0, 1, _STOPPED):
        run(found.x)
    if found.status in (0, _STOPPED) and run.has_converged():
        return run.result(run.last, _CONVERGED)
    if found.status == 0 and run.has_stalled():
        return run.result(run.best, "CONVERGENCE: the value no longer changes")
    if found.status == 1:
        return run.result(run.last, _iterates.AT_LIMIT)
    if noise and run.has_stalled(noise):
        return run.result(run.best, "CONVERGENCE: the value changes only by its noise")
    return run.result(run.best, "ABNORMAL: no better point on the line, value and gradient disagree")


# Relative decrease of the value at which iterations stop, equal to the value in scikit-learn's LogisticRegression.
# This value is so small that iterations usually stop because of the gradient.
_VALUE_TOL = 64 * np.finfo(float).eps


_CONVERGED = "CONVERGENCE: gradient within tol"


# Status that scipy.optimize.minimize returns if its callback stops it.
_STOPPED = 99


def scaling_by_differences(
    fun: _iterates.ValueGradient, x0: ArrayLike, *, step: float = 0.01, floor: float = 1e-4
) -> np.ndarray:
    r"""Return a scaling with which a function has about the same curvature in all directions near a point.

    .. math:: A = V \max(|\Lambda|, \mathrm{floor} \cdot |\lambda|_{\max})^{-1/2}, \qquad
        \nabla^2 f(x_0) = V \Lambda V^\top
    """
    # fun: function that returns value and gradient; x0: (n,), the point; returns: (n, n), the scaling matrix A
    start = _iterates.check_start(x0)
    gradient = np.array(fun(start)[1], dtype=np.float64)
    hessian = np.empty((len(start), len(start)))
    for row, shift in zip(hessian, step * np.eye(len(start)), strict=True):
        row[:] = np.subtract(fun(start + shift)[1], gradient) / step
    if not np.all(np.isfinite(hessian)):
        return np.eye(len(start))
    curvature, directions = np.linalg.eigh((hessian + hessian.T) / 2)
    if not len(start) or curvature[-1] <= 0:
        return np.eye(len(start))
    # If the function is not convex, steps along directions of negative curvature must also have a moderate length.
    curvature = np.abs(curvature)
    return directions / np.sqrt(np.maximum(curvature, floor * curvature.max()))


class _NonFiniteValue(Exception):
    """Exception that is raised if the objective becomes infinite or NaN during a line search."""


class _Point(NamedTuple):
    """Point at which the objective was evaluated."""

    x: np.ndarray
    value: float
    gradient: np.ndarray


class _Iterations:
    """Objective as a function of z, where x = x0 + A z (without A, z is x), with iterates, last point and best point.

    The class also tests iterates for convergence.
    """

    def __init__(self, fun, start, matrix, callback, bounded, tol, most_left):
        self.fun, self.start, self.matrix = fun, start, matrix
        self.callback, self.bounded, self.tol, self.most_left = callback, bounded, tol, most_left
        self.first = start if matrix is None else np.zeros(len(start))
        self.count = 0
        self.best: Any = None
        self.last: Any = None
        self.loss_curve: list = []
        self.stopped = False

    def __call__(self, z):
        x = z if self.matrix is None else self.start + self.matrix @ z
        if self.last is None or not np.array_equal(x, self.last.x):
            value, gradient = self.fun(x)
            point = _Point(np.array(x), float(value), np.array(gradient, dtype=np.float64))
            self.count += 1
            if not (np.isfinite(point.value) and np.all(np.isfinite(point.gradient))):
                raise _NonFiniteValue(point.value)
            self.last = point
            if self.best is None or point.value < self.best.value:
                self.best = point
        gradient = self.last.gradient
        return self.last.value, gradient if self.matrix is None else self.matrix.T @ gradient

    def iteration(self, z):
        """Record a point as an iterate and call the callback."""
        self(z)
        x, value, gradient = self.last
        self.loss_curve.append(value)
        nit = len(self.loss_curve) - 1
        self.stopped = _iterates.notify_callback(self.callback, x=x.copy(), fun=value, jac=gradient.copy(), nit=nit)
        if self.stopped or self.has_converged():
            raise StopIteration

    def steepest(self, point):
        """Return the largest absolute entry of the projected gradient."""
        return _iterates.largest(np.where(self.bounded, np.minimum(point.gradient, point.x), point.gradient))

    def has_converged(self):
        """Return whether the last gradient is zero, or is within ``tol`` while the value hardly decreases."""
        return _iterates.has_converged(self.steepest(self.last), self.loss_curve, self.tol, self.most_left)

    def has_stalled(self, noise=_VALUE_TOL):
        """Return whether the last iteration changed the value by at most ``noise`` times the value."""
        if len(self.loss_curve) < 2:
            return False
        before, after = self.loss_curve[-2:]
        return abs(after - before) <= noise * max(abs(before), abs(after), 1)

    def result(self, point, message):
        meets_tol = _iterates.has_converged(self.steepest(point), self.loss_curve, self.tol, self.most_left)
        return _iterates.build_result(
            point.x, point.value, point.gradient, self.loss_curve, self.count, message, meets_tol
        )
