"""Shared parts of the optimizers: checks of arguments, step sizes, duality gaps and callbacks."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._tuning import LAST_SHARE, MOST_FALL, MOST_SLOPE

ValueGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]
Projection = Callable[[np.ndarray], np.ndarray]
# Function of a block and a point that returns slopes (m, n) and offsets (m,) of the highest plane of each term.
Oracle = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
Callback = Callable[[OptimizeResult], object]
RandomSeed = int | np.random.RandomState | None


def make_random_state(random_state):
    """Return the given ``RandomState``, or make a ``RandomState`` from a seed or None."""
    return random_state if isinstance(random_state, np.random.RandomState) else np.random.RandomState(random_state)


def has_converged(steepest: float, loss_curve: Sequence[float], tol: float, most_left: float) -> bool:
    """Return whether the gradient is within the tolerance, and the value can hardly decrease further.

    Far from the minimum, the gradient may already be within a loose tolerance. Therefore, the gradient must also be
    small relative to the value, and the last iterations must hardly have decreased the value. If the value decreases
    like a power of the number of iterations, or faster, the remaining decrease is about as large as the decrease in the
    last part of the iterations.
    """
    # steepest: largest absolute entry of the gradient
    # loss_curve: values at the start and after each iteration
    # most_left: maximum estimated remaining decrease, as a fraction of the value; inf disables the test
    if steepest == 0 or np.isinf(most_left):
        return steepest <= tol
    n_iter, value = len(loss_curve) - 1, abs(loss_curve[-1])
    if steepest > min(tol, MOST_SLOPE * value):
        return False
    n_last = math.ceil(LAST_SHARE * n_iter)
    return bool(loss_curve[-1 - n_last] - loss_curve[-1] <= min(most_left, n_last * MOST_FALL) * value)


def is_closed(primal, dual, tol):
    """Return whether the duality gap is within ``tol`` times the primal value, or within rounding errors."""
    return primal - dual <= max(tol * abs(primal), 1e-14 * max(abs(primal), abs(dual)))


def mask_of_bounds(lower_bounded, n):
    """Return a mask (n,) of the entries that must not be negative."""
    return np.zeros(n, dtype=bool) if lower_bounded is None else np.asarray(lower_bounded, dtype=bool)


class DualPoint:
    """Point x that corresponds to dual variables, and the dual objective D of these variables.

    Multipliers of the entries bounded below are always optimal, so x is a projection onto these bounds.
    """

    # bounded: (n,) bool, mask of the entries of x that must not be negative
    # offset: sum of the offsets of all combined planes

    def __init__(self, bounded):
        n = len(bounded)
        self.x, self._free = np.zeros(n), np.zeros(n)  # _free: x without multipliers
        self.offset = 0.0
        self._bounded = np.flatnonzero(bounded)

    @property
    def dual(self):
        """Dual objective D at the current dual variables."""
        return self.offset - 0.5 * float(self.x @ self.x)

    def _place(self, free):
        """Move to a point that is given without multipliers."""
        self._free, self.x = free, free.copy()
        self.x[self._bounded] = np.maximum(self.x[self._bounded], 0.0)


# Value of a sum of maxima at a point, or a pair of value and upper bound if maxima are not proven to be optimal.
Risk = float | tuple[float, float]


class BestPoint:
    """Point with the smallest upper bound on P or, without such bounds, the point with the smallest P."""

    # x: (n,), the best point
    # upper: the smallest upper bound on P, inf if no bound is known
    # least: the smallest value of P at any point

    def __init__(self, x):
        self.x, self.upper, self.least = x.copy(), np.inf, np.inf
        self._value = np.inf

    def visit(self, x, risk):
        """Record a point and return whether it is the best so far; ``risk`` is P without its penalty at the point."""
        value, upper = risk if isinstance(risk, tuple) else (risk, risk)
        penalty = 0.5 * float(x @ x)
        value, upper = penalty + value, penalty + upper
        self.least = min(self.least, value)
        is_best = (upper, value) < (self.upper, self._value)
        if is_best:
            self.x, self.upper, self._value = x.copy(), upper, value
        return is_best

    @property
    def is_proven(self):
        """Whether an upper bound on P is known."""
        return bool(np.isfinite(self.upper))

    def fun(self, dual):
        """Return the upper bound on P at x or, without a bound, the larger of the value found and the dual value."""
        return self.upper if self.is_proven else max(self._value, dual)

    def end(self, dual, tol, is_stuck=False):
        """Return the reason to stop, or None; ``is_stuck`` tells whether the last plane left x unchanged."""
        if self.is_proven and is_closed(self.upper, dual, tol):
            return "CONVERGENCE: duality gap within tol"
        if is_stuck:
            return "STOP: the last cutting plane changed nothing" if self.upper <= self._value else UNPROVEN
        if not is_closed(self.least, dual, tol):
            return None
        # New planes cannot reduce the part of the gap that is due to unproven maxima.
        # Stop if the rest of the gap is small.
        in_reach = self.is_proven and is_closed(self.upper, self._value, tol)
        return None if in_reach and not is_closed(self.least, dual, _CLOSED * tol) else UNPROVEN


# The part of the gap that planes can reduce is negligible if it is below this fraction of the tolerance.
_CLOSED = 0.1

#: Message of an optimizer that has reached its maximum number of iterations.
AT_LIMIT = "STOP: max_iter reached"

#: Message if the duality gap exceeds its tolerance only because some maxima are not proven to be optimal.
UNPROVEN = "STOP: the gap left is due to maxima that are not proven optimal"


def ended(message):
    """Return the result fields ``success`` and ``message``; a stop by the callback counts as a success."""
    return {"success": message.startswith(("CONVERGENCE", "STOP: by the callback")), "message": message}


def build_result(x, value, gradient, loss_curve, nfev, message, meets_tol=False, **fields):
    """Return the result of a descent method; ``meets_tol`` marks it as a success whatever the message."""
    found = ended(message)
    found["success"] |= meets_tol
    nit, curve = len(loss_curve) - 1, np.array(loss_curve)
    return OptimizeResult(x=x, fun=value, jac=gradient, nit=nit, nfev=nfev, loss_curve=curve, **fields, **found)


class Checks:
    """Checks of the duality gap; they record the best point, and the epochs at which the primal value was computed."""

    # risk: function that returns P at x without its penalty
    # state: object with ``x``, the iterate, and ``dual``, a lower bound on the minimum of P
    # max_iter: maximum number of epochs
    # tol: duality gap at which to stop, as a fraction of the primal value
    # check_every: number of epochs between two computations of the duality gap
    # callback: function called after every epoch

    def __init__(self, risk, state, *, max_iter=100, tol=0.001, check_every=10, callback=None):
        self._best = BestPoint(state.x)
        self._risk, self._state, self._callback = risk, state, callback
        self.max_iter, self._tol, self._check_every = max_iter, tol, check_every
        self._n_epochs, self._epochs, self._primal, self._dual = 0, [], [], []
        self._message = None

    def ends(self, candidates, primal=None, is_stuck=False):
        """Count an epoch and return whether to stop; compute the gap if a check is due or the gap may be closed."""
        # candidates: points at which to compute the primal value; primal: estimate of this value, or None
        self._n_epochs += 1
        dual, epoch = self._state.dual, self._n_epochs
        due = is_stuck or epoch % self._check_every == 0 or epoch == self.max_iter
        due = due or (primal is not None and is_closed(primal, dual, self._tol))
        if due:
            self._check(candidates)
        fields = {"x": self._state.x.copy(), "fun": self._best.fun(dual), "dual": dual, "nit": epoch}
        if notify_callback(self._callback, **fields):
            if not due:
                self._check(candidates)
            self._message = "STOP: by the callback"
        if due:
            self._message = self._best.end(dual, self._tol, is_stuck) or self._message
        return self._message is not None

    def _check(self, candidates):
        for x in candidates:
            self._best.visit(x, self._risk(x))
        self._epochs.append(self._n_epochs)
        self._primal.append(self._best.fun(self._state.dual))
        self._dual.append(self._state.dual)

    def result(self):
        """Return the result of the optimizer."""
        dual = self._state.dual
        return OptimizeResult(
            x=self._best.x,
            fun=self._best.fun(dual),
            dual=dual,
            gap=self._best.upper - dual,
            # Planes never exceed the function that they bound, so P is never below the dual value.
            loss_curve=np.maximum(self._primal, dual),
            dual_curve=np.array(self._dual),
            checks=np.array(self._epochs),
            nit=self._n_epochs,
            **ended(self._message or AT_LIMIT),
        )


def check_start(x0):
    """Check that the start is a vector of finite numbers, and return a float64 copy."""
    x = np.array(x0, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"x0 must be a vector, got shape {x.shape}.")
    if not np.all(np.isfinite(x)):
        raise ValueError("x0 must be finite, found NaN or infinity.")
    return x


def step_sizes(step_size, schedule, decay_steps):
    """Return a function that maps t, the number of earlier steps, to the size of the next step.

    ``"constant"`` is ``step_size``, ``"annealed"`` is ``step_size / (1 + t / decay_steps)``, ``"sqrt"`` is
    ``step_size / sqrt(1 + t / decay_steps)``.
    """
    power = {"constant": 0.0, "annealed": 1.0, "sqrt": 0.5}[schedule]
    return lambda t: step_size / (1 + t / decay_steps) ** power


def notify_callback(callback, **fields):
    """Call the callback with the fields; return True if it returns a true value or raises StopIteration."""
    if callback is None:
        return False
    try:
        return bool(callback(OptimizeResult(**fields)))
    except StopIteration:
        return True


def largest(gradient):
    """Return the infinity norm of a gradient, or 0 for an empty gradient."""
    return float(np.abs(gradient).max(initial=0.0))
