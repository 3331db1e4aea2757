"""What projected methods share: checks of options, points of the set, a line search between them, and the result."""

from collections import deque

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import check_max_iter, checked_start, largest, stopped_by

# Relative error of values worked out in float64.
ROUNDING = 16 * np.finfo(float).eps

# A direction whose every step down to this length fails is none.
_SHORTEST = 1e-14


def check_options(max_iter, tol, *, counts, shares):
    """Raise for the first option that is out of range; ``counts`` and ``shares`` are options by name."""
    check_max_iter(max_iter)
    if not tol >= 0:
        raise ValueError(f"tol must not be negative, got {tol!r}.")
    for name, value in counts.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}.")
    for name, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")


class ProjectedRun:
    """Where the iterations of a projected method have come to.

    Attributes
    ----------
    x, value, gradient
        The last point, with its value and gradient.
    moved, turned
        The last step, and by what the gradient changed along it.
    residual : float
        Largest entry of the projected gradient.
    nit : int
        Iterations made.
    stopped : bool
        Whether the callback asked to stop.
    """

    def __init__(self, fun, project, x0, history, callback, precision):
        self.fun, self.project, self.callback = fun, project, callback
        self.precision = precision
        self.x = project(checked_start(x0))
        self.value, self.gradient = self._evaluated(self.x, n_before=0)
        if not (np.isfinite(self.value) and np.all(np.isfinite(self.gradient))):
            raise ValueError(f"fun must be finite at the projection of x0, got value {self.value}.")
        self.nit = 0
        self.recent = deque([self.value], maxlen=history)
        self.loss_curve = [self.value]
        self.best = self.x, self.value, self.gradient
        self.stopped = False
        self.residual = self._residual(self.x, self.gradient)

    def _evaluated(self, x, n_before):
        self.nfev = n_before + 1
        value, gradient = self.fun(x)
        return float(value), np.array(gradient, dtype=np.float64)

    def _residual(self, x, gradient):
        return largest(self.project(x - gradient) - x)

    def move_along(self, direction, backtracking, sufficient_decrease):
        """Take the longest step that is good enough; False if there is none.

        Values that differ by no more than their error say nothing, and gradients have more digits: there the fall is
        worked out from the slopes at both ends, as along a parabola (Hager & Zhang 2005).
        """
        slope = float(self.gradient @ direction)
        reference = max(self.recent)
        size = max(1.0, abs(self.value))
        length = 1.0
        while length > _SHORTEST:
            x = self.x + length * direction
            value, gradient = self._evaluated(x, self.nfev)
            enough = sufficient_decrease * length * min(slope, 0.0)
            rise = 0.5 * length * (slope + float(gradient @ direction))
            is_level = value <= reference + self.precision * size and rise <= enough + ROUNDING * size
            if (value <= reference + enough or is_level) and np.all(np.isfinite(gradient)):
                self._accept(x, value, gradient)
                return True
            length *= backtracking
        return False

    def _accept(self, x, value, gradient):
        self.moved, self.turned = x - self.x, gradient - self.gradient
        self.x, self.value, self.gradient = x, value, gradient
        self.residual = self._residual(x, gradient)
        self.nit += 1
        self.recent.append(value)
        self.loss_curve.append(value)
        if value < self.best[1]:
            self.best = x, value, gradient
        self.stopped = stopped_by(self.callback, x=x.copy(), fun=value, jac=gradient.copy(), nit=self.nit)

    def result(self, success, message):
        if not success and self.best[1] < self.value:
            self.x, self.value, self.gradient = self.best
            self.residual = self._residual(self.x, self.gradient)
        return OptimizeResult(
            x=self.x,
            fun=self.value,
            jac=self.gradient,
            nit=self.nit,
            nfev=self.nfev,
            success=success,
            message=message,
            residual=self.residual,
            loss_curve=np.array(self.loss_curve),
        )
