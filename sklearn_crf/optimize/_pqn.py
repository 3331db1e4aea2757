"""Projected quasi-Newton method for smooth functions on convex sets with a cheap projection."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lu_factor, lu_solve
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import AT_LIMIT, Callback, Projection, ValueGradient
from sklearn_crf.optimize._spg import PRECISION, ProjectedRun, minimize_spg

# Below this relative curvature along a step, the curvature consists mostly of rounding errors.
_LEAST_CURVATURE = 1e-12


def minimize_pqn(
    fun: ValueGradient,
    x0: ArrayLike,
    *,
    project: Projection,
    max_iter: int = 1000,
    tol: float = 1e-06,
    most_left: float = np.inf,
    memory: int = 10,
    inner_iter: int = 10,
    precision: float = PRECISION,
    callback: Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a smooth function over a convex set by the projected quasi-Newton method.

    .. math::
        z_t = \arg\min_{z \in C} \; \nabla f(x_t) \cdot (z - x_t) + \tfrac{1}{2} (z - x_t)^\top B_t (z - x_t),
        \qquad x_{t+1} = x_t + \lambda_t (z_t - x_t)

    until :math:`\|P(x_t - \nabla f(x_t)) - x_t\|_\infty \le \mathrm{tol}`. The matrix B is the limited-memory BFGS
    approximation in its compact form. :func:`minimize_spg` minimises the quadratic model without calls of ``fun``. The
    method is therefore suitable if ``fun`` takes far longer than a projection. The value never increases.
    """
    # most_left: maximum remaining decrease, estimated from the last iterations, as a fraction of the value
    run = ProjectedRun(fun, project, x0, history=1, shrink=0.5, callback=callback, precision=precision)
    if run.has_converged(tol, most_left):
        return run.result("CONVERGENCE: no iteration was needed")
    model = _QuadraticModel(memory)
    while run.nit < max_iter:
        if not _step(run, model, inner_iter):
            return run.result("ABNORMAL: no better point on the line")
        if run.has_converged(tol, most_left):
            return run.result("CONVERGENCE: projected gradient within tol")
        if run.stopped:
            return run.result("STOP: by the callback")
        model.learn(run.moved, run.turned)
    return run.result(AT_LIMIT)


def _step(run, model, inner_iter):
    """Make a step towards the minimum of the model or, if this step fails, along the projected gradient."""
    if model.steps:
        direction = model.minimum(run, inner_iter) - run.x
        if run.gradient @ direction < 0 and run.move_along(direction):
            return True
        model.forget()
    direction = run.project(run.x - run.gradient / max(run.residual, 1.0)) - run.x
    return run.move_along(direction)


class _QuadraticModel:
    """Quadratic model of a function, built from the last steps and gradient changes.

    The Hessian is B = sigma I - N' M^-1 N. Steps are the rows of S, and gradient changes are the rows of Y.
    """

    def __init__(self, memory):
        self.steps: deque[np.ndarray] = deque(maxlen=memory)
        self.turns: deque[np.ndarray] = deque(maxlen=memory)

    def forget(self):
        self.steps.clear()
        self.turns.clear()

    def learn(self, step, turn):
        # The square may underflow to 0 if the change of the gradient is very small.
        if turn @ turn > 0 and step @ turn > _LEAST_CURVATURE * np.linalg.norm(step) * np.linalg.norm(turn):
            self.steps.append(step)
            self.turns.append(turn)

    def minimum(self, run, inner_iter):
        """Return an approximate minimiser of the model over the set."""
        sigma, times = self._matrix()

        def value_grad(z):
            d = z - run.x
            curved = times(d)
            return run.gradient @ d + 0.5 * (d @ curved), run.gradient + curved

        # A more accurate minimum of the model would not help the outer iterations.
        found = minimize_spg(
            value_grad,
            run.x,
            project=run.project,
            max_iter=inner_iter,
            tol=0.01 * run.residual,
            first_step=1 / sigma,
        )
        return found.x

    def _matrix(self):
        """Return the number sigma in the Hessian B, and a function that multiplies a vector by B."""
        steps, turns = np.array(self.steps), np.array(self.turns)
        curvatures = steps @ turns.T
        sigma = float(turns[-1] @ turns[-1] / curvatures[-1, -1])
        factor = np.concatenate((sigma * steps, turns))
        lower = np.tril(curvatures, -1)
        middle = np.block([[sigma * (steps @ steps.T), lower], [lower.T, -np.diag(np.diag(curvatures))]])
        factored = lu_factor(middle)
        return sigma, lambda d: sigma * d - lu_solve(factored, factor @ d) @ factor
