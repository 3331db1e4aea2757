"""Gradient steps with exact or approximate gradients: full, stochastic and adaptive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates


def gradient_ascent(
    gradient: Callable[[np.ndarray], np.ndarray],
    x0: ArrayLike,
    *,
    step_size: float,
    schedule: str = "constant",
    max_iter: int = 100,
    tol: float = 0.0,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Make steps of a given size along an exact or approximate gradient.

    .. math::
        x_{t+1} = x_t + \eta_t \, g(x_t)

    Saddle point and maximum marginal approximations give directions without an objective value (Kumar, August and
    Hebert 2005, section 3). A line search is therefore impossible. If the approximations are piecewise constant, the
    steps cycle instead of converging. ``callback`` is called at every point, so that it can choose one of the points.
    With ``schedule="adaptive"``, every variable has its own step size, as in :func:`adagrad_steps`,

    .. math::
        x_{t+1} = x_t + \eta \frac{g_t}{\sqrt{g_1^2 + \dots + g_t^2}},

    which decreases as squared gradients accumulate. Decreasing steps dampen oscillations, whatever the units of the
    variables.
    """
    # gradient: function of a point
    # x0: (n,), starting point
    # callback: function called at every point
    x = _iterates.check_start(x0)
    is_adaptive = schedule == "adaptive"
    size = _iterates.step_sizes(step_size, "constant" if is_adaptive else schedule, decay_steps=100)
    squares = np.zeros(len(x))
    found = OptimizeResult(x=x, fun=None, jac=None, nit=0, success=False, message=_iterates.AT_LIMIT)
    for t in range(max_iter + 1):
        direction = np.array(gradient(x), dtype=np.float64)
        if not np.all(np.isfinite(direction)):
            if t == 0:
                raise ValueError("gradient must be finite at x0, found NaN or infinity.")
            found.message = "ABNORMAL: the gradient is not finite, try a smaller step_size"
            break
        found.x, found.jac, found.nit = x, direction, t
        if _iterates.largest(direction) <= tol:
            found.success, found.message = True, "CONVERGENCE: gradient within tol"
            break
        if _iterates.notify_callback(callback, x=x.copy(), jac=direction.copy(), nit=t):
            found.success, found.message = True, "STOP: by the callback"
            break
        step = direction
        if is_adaptive:
            squares += direction**2
            step = direction / np.sqrt(np.where(squares > 0, squares, 1.0))
        x = x + size(t) * step
    return found


# Number s in the weight (s + 1) / (n + s) with which iterate n enters the average.
# With s = 3, the weight of iterate t in the final average is proportional to about t**3.
_FORGETTING = 3


def minimize_sgd(
    fun: Callable[[np.ndarray, np.ndarray], tuple[float | None, np.ndarray]],
    x0: ArrayLike,
    n_examples: int,
    *,
    step_size: float,
    schedule: str = "annealed",
    n_epochs: int = 10,
    batch_size: int = 1,
    random_state: _iterates.RandomSeed = None,
    project: _iterates.Projection | None = None,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a sum over examples by steps along gradients of random mini-batches.

    .. math::
        x_{t+1} = \Pi \bigl[ x_t - \eta_t \, \tilde g(B_t, x_t) \bigr], \qquad
        \bar x_t = \Big(1 - \frac{4}{t + 3}\Big) \bar x_{t-1} + \frac{4}{t + 3} x_t
    """
    # fun: function of a mini-batch and a point that returns value and gradient
    # x0: (n,), starting point
    # project: projection onto the allowed set
    # callback: function called after every epoch
    x = _iterates.check_start(x0)
    size = _iterates.step_sizes(step_size, schedule, decay_steps=-(-n_examples // batch_size))
    rng = _iterates.make_random_state(random_state)
    state = OptimizeResult(x=x, last_x=x, fun=None, jac=None, nit=0, n_steps=0, success=True, message="", loss_curve=[])
    for _ in range(n_epochs):
        order = rng.permutation(n_examples)
        batches = [order[start : start + batch_size] for start in range(0, n_examples, batch_size)]
        if not _run_epoch(state, fun, batches, size, project):
            state.success, state.message = False, "ABNORMAL: the gradient is not finite, try a smaller step_size"
            break
        state.nit += 1
        if _iterates.notify_callback(callback, x=state.x.copy(), fun=state.fun, nit=state.nit):
            state.message = "STOP: by the callback"
            break
    else:
        state.message = "STOP: all epochs made"
    state.loss_curve = None if None in state.loss_curve else np.array(state.loss_curve)
    return state


def _run_epoch(state, fun, batches, size, project):
    """Make one step for each batch, and store the results in ``state``; return False if a gradient is not finite."""
    total = 0.0
    for batch in batches:
        value, gradient = fun(batch, state.last_x)
        gradient = np.array(gradient, dtype=np.float64)
        if not np.all(np.isfinite(gradient)):
            if state.n_steps == 0:
                raise ValueError("the gradient of fun must be finite at x0, found NaN or infinity.")
            return False
        total = None if value is None or total is None else total + len(batch) * float(value)
        state.last_x = state.last_x - size(state.n_steps) * gradient
        if project is not None:
            state.last_x = project(state.last_x)
        state.n_steps += 1
        newest = (1 + _FORGETTING) / (state.n_steps + _FORGETTING)
        state.x = (1 - newest) * state.x + newest * state.last_x
        state.jac = gradient
    state.fun = None if total is None else total / sum(map(len, batches))
    state.loss_curve.append(state.fun)
    return True


class AdaGradState(NamedTuple):
    """State of adaptive gradient steps, from which further steps can continue."""

    x: np.ndarray  # (n,), the latest iterate
    average: np.ndarray  # (n,), weighted average of the iterates
    squares: np.ndarray  # (n,), sums of squared gradients
    n_steps: int

    @classmethod
    def at(cls, x: np.ndarray) -> AdaGradState:
        """Return the state before the first step, at a starting point."""
        # x: (n,)
        x = np.array(x, dtype=np.float64)
        return cls(x, x, np.zeros(len(x)), 0)


def adagrad_steps(
    gradient: Callable[[object, np.ndarray], np.ndarray],
    state: AdaGradState,
    batches: Iterable,
    *,
    step_size: float = 0.1,
    project: Callable[[np.ndarray], np.ndarray] | None = None,
) -> AdaGradState:
    r"""Make one step down the gradient of each batch, with a separate step size for each variable.

    .. math::
        h_{t+1} = h_t + g_t^2, \qquad x_{t+1} = \Pi \Bigl( x_t - \eta \frac{g_t}{\sqrt{h_{t+1}}} \Bigr)

    Features that are rare or small get longer steps, so the scale of the data need not be known in advance.
    """
    # gradient: function of a batch and a point
    # project: projection onto the allowed set
    x, average, squares = (np.array(part) for part in state[:3])
    n_steps = state.n_steps
    for batch in batches:
        slope = np.asarray(gradient(batch, x), dtype=np.float64)
        if not np.all(np.isfinite(slope)):
            raise ValueError(f"the gradient must be finite, found NaN or infinity at step {n_steps}.")
        squares += slope**2
        moving = squares > 0
        x[moving] -= step_size * slope[moving] / np.sqrt(squares[moving])
        if project is not None:
            x = project(x)
        n_steps += 1
        average += (1 + _FORGETTING) / (n_steps + _FORGETTING) * (x - average)
    return AdaGradState(x, average, squares, n_steps)


class CycleDetector:
    r"""Detector of cycles in training, in which the number of errors repeatedly rises and returns to its minimum.

    Gradient ascent with saddle point or maximum marginal approximations cannot converge, because the approximate
    gradient is piecewise constant and never exactly zero. Training enters a zone of few errors and small gradients. It
    then leaves the zone in large oscillations and comes back, or oscillates within the zone forever (Kumar, August and
    Hebert 2005, sections 5 and 7). One or two cycles are enough for choosing parameters.

    With :math:`E_t` the number of errors (or the norm of the gradient) at iteration t and :math:`m_t` its minimum so
    far:

    - the low zone is :math:`E_t \le 1.1 \, m_t`;
    - the zone is left when :math:`E_t > (1 + \mathrm{departure}) m_t`;
    - a cycle is complete when the zone is entered after it was left, or after ``patience`` iterations in
    a row without leaving it;
    - a new minimum is progress, however small, and restarts the count;
    - cycles count only after ``min_iter`` iterations without a new minimum.

    A descent is therefore not mistaken for cycles, whether it is slow or oscillates. Values between the two bounds
    (oscillations at the edge of the zone) neither leave nor enter the zone. Labelings need not recur exactly: on images
    they rarely do, and even if they do, the parameters keep changing.
    """

    def __init__(
        self,
        n_cycles: int = 2,
        *,
        departure: float = 0.5,
        patience: int = 50,
        min_iter: int = 20,
    ):
        self.n_cycles = n_cycles
        self.departure = departure
        self.patience = patience
        self.min_iter = min_iter
        self.minimum = float("inf")
        self.best_iter = -1
        self.n_iter = 0
        self.n_completed = 0
        self._is_away = False
        self._n_at_rest = 0

    def update(self, value: float) -> bool:
        """Record the value of the next iteration and return whether training should stop."""
        if value < self.minimum:
            self.minimum, self.best_iter = value, self.n_iter
            self.n_completed, self._is_away, self._n_at_rest = 0, False, 0
        self.n_iter += 1
        if value > (1 + self.departure) * self.minimum:
            self._is_away, self._n_at_rest = True, 0
        else:
            self._n_at_rest += 1
            returned = self._is_away and value <= 1.1 * self.minimum
            if returned or self._n_at_rest >= self.patience:
                self.n_completed += 1
                self._is_away, self._n_at_rest = False, 0
        return self.n_completed >= self.n_cycles and self.n_iter - 1 - self.best_iter >= self.min_iter
