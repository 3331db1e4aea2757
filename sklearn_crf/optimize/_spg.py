"""Spectral projected gradient method for smooth functions on convex sets with a cheap projection."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates

# Relative errors of estimated decreases and of values in float64. A value has the larger error, because it is often a
# small sum of large terms.
_ROUNDING, PRECISION = 16 * np.finfo(float).eps, 100 * np.finfo(float).eps

# Line search: minimum step length; sufficient fraction of the decrease that the slope predicts.
_SHORTEST, _ENOUGH = 1e-14, 1e-4

# Minimum and maximum spectral step size.
_LEAST_STEP, _MOST_STEP = 1e-10, 1e10


class ProjectedRun:
    """Iterations of a projected gradient method, with their line search."""

    # stopped: whether the callback has requested to stop
    # x, value, gradient: the last point, its value and its gradient
    # moved, turned: the last step, and the change of the gradient along the step
    # residual: largest absolute entry of the projected gradient

    # history: number of latest values; a step is accepted if its value is sufficiently below the largest of them
    # shrink: factor by which a step with insufficient decrease is multiplied

    def __init__(self, fun, project, x0, *, history, shrink, callback, precision):
        self.shrink = shrink
        self.fun, self.project, self.callback = fun, project, callback
        self.precision = precision
        self.x = project(_iterates.check_start(x0))
        self.value, self.gradient = self._evaluate(self.x, n_before=0)
        if not (np.isfinite(self.value) and np.all(np.isfinite(self.gradient))):
            raise ValueError(f"fun must be finite at the projection of x0, got value {self.value}.")
        self.nit = 0
        self.recent = deque([self.value], maxlen=history)
        self.loss_curve = [self.value]
        self.best = self.x, self.value, self.gradient
        self.stopped = False
        self.residual = self._compute_residual(self.x, self.gradient)

    def _evaluate(self, x, n_before):
        self.nfev = n_before + 1
        value, gradient = self.fun(x)
        return float(value), np.array(gradient, dtype=np.float64)

    def _compute_residual(self, x, gradient):
        return _iterates.largest(self.project(x - gradient) - x)

    def move_along(self, direction):
        """Make the longest step along a direction that decreases the value sufficiently; return False if there is none.

        If values differ by less than their error, the decrease is estimated from the slopes at both ends, as for a
        parabola, because slopes have more correct digits (Hager & Zhang 2005).
        """
        slope = float(self.gradient @ direction)
        reference = max(self.recent)
        size = max(1.0, abs(self.value))
        # A step as short as the rounding error of x makes no progress, whatever the slope.
        shortest = max(
            _SHORTEST, np.finfo(float).eps * _iterates.largest(self.x) / (_iterates.largest(direction) or 1.0)
        )
        length = 1.0
        while length > shortest:
            x = self.x + length * direction
            value, gradient = self._evaluate(x, self.nfev)
            enough = _ENOUGH * length * min(slope, 0.0)
            rise = 0.5 * length * (slope + float(gradient @ direction))
            is_level = value <= reference + self.precision * size and rise <= enough + _ROUNDING * size
            if (value <= reference + enough or is_level) and np.all(np.isfinite(gradient)):
                self._accept(x, value, gradient)
                return True
            length *= self.shrink
        return False

    def _accept(self, x, value, gradient):
        self.moved, self.turned = x - self.x, gradient - self.gradient
        self.x, self.value, self.gradient = x, value, gradient
        self.residual = self._compute_residual(x, gradient)
        self.nit += 1
        self.recent.append(value)
        self.loss_curve.append(value)
        if value < self.best[1]:
            self.best = x, value, gradient
        self.stopped = _iterates.notify_callback(
            self.callback, x=x.copy(), fun=value, jac=gradient.copy(), nit=self.nit
        )

    def has_converged(self, tol, most_left=np.inf):
        """Return whether the projected gradient is within ``tol``, and the value can hardly decrease further."""
        return _iterates.has_converged(self.residual, self.loss_curve, tol, most_left)

    def result(self, message):
        is_success = _iterates.ended(message)["success"]
        if not is_success and self.best[1] < self.value:
            self.x, self.value, self.gradient = self.best
            self.residual = self._compute_residual(self.x, self.gradient)
        point = self.x, self.value, self.gradient
        return _iterates.build_result(*point, self.loss_curve, self.nfev, message, residual=self.residual)


def minimize_spg(
    fun: _iterates.ValueGradient,
    x0: ArrayLike,
    *,
    project: _iterates.Projection,
    max_iter: int = 1000,
    tol: float = 1e-06,
    history: int = 10,
    first_step: float | None = None,
    precision: float = PRECISION,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a smooth function over a convex set by the spectral projected gradient method.

    .. math::
        d_t = P(x_t - a_t \nabla f(x_t)) - x_t, \qquad x_{t+1} = x_t + \lambda_t d_t, \qquad
        a_{t+1} = \frac{s_t \cdot s_t}{s_t \cdot y_t}

    with the Euclidean projection P, the steps :math:`s_t = x_{t+1} - x_t` and the changes :math:`y_t` of the gradient,
    until :math:`\|P(x_t - \nabla f(x_t)) - x_t\|_\infty \le \mathrm{tol}`. The value may increase temporarily: a step
    is accepted if its value is sufficiently below the largest of the latest values.
    """
    # fun: function that returns value and gradient
    # x0: (n,), starting point
    # project: projection onto the convex set
    # callback: function called after every iteration
    run = ProjectedRun(fun, project, x0, history=history, shrink=0.3, callback=callback, precision=precision)
    if run.residual <= tol:
        return run.result("CONVERGENCE: no iteration was needed")
    step = 1 / run.residual if first_step is None else first_step
    while run.nit < max_iter:
        # If rounding errors make the spectral step far too long, the plain gradient step is used.
        for length in (np.clip(step, _LEAST_STEP, _MOST_STEP), 1.0):
            direction = project(run.x - length * run.gradient) - run.x
            if run.move_along(direction):
                break
        else:
            return run.result("ABNORMAL: no better point on the line")
        if run.residual <= tol:
            return run.result("CONVERGENCE: projected gradient within tol")
        if run.stopped:
            return run.result("STOP: by the callback")
        # The spectral step size is the inverse curvature along the last step.
        curvature = float(run.moved @ run.turned)
        step = float(run.moved @ run.moved) / curvature if curvature > 0 else _MOST_STEP
    return run.result(_iterates.AT_LIMIT)
