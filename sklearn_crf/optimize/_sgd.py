"""Stochastic gradient descent in mini-batches of examples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates

# Power of the running average: weights of the iterates grow like t**3.
_FORGETTING = 3


def minimize_sgd(
    fun: Callable[[np.ndarray, np.ndarray], tuple[float | None, np.ndarray]],
    x0: ArrayLike,
    n_examples: int,
    *,
    step_size: float,
    schedule: str = "annealed",
    decay_steps: float | None = None,
    n_epochs: int = 10,
    batch_size: int = 1,
    average: bool = True,
    random_state: _iterates.RandomSeed = None,
    first_step: int = 0,
    project: _iterates.Projection | None = None,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a sum over examples by steps along gradients of random parts of it.

    .. math::
        x_{t+1} = \Pi \bigl[ x_t - \eta_t \, \tilde g(B_t, x_t) \bigr], \qquad
        \bar x_t = \Big(1 - \frac{4}{t + 3}\Big) \bar x_{t-1} + \frac{4}{t + 3} x_t
    """
    # fun: callable; x0: (n,); project: callable; callback: callable
    x = _iterates.checked_start(x0)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size!r}.")
    if n_examples < 1:
        raise ValueError(f"n_examples must be at least 1, got {n_examples!r}.")
    steps_of_epoch = -(-n_examples // batch_size)
    size = _iterates.step_sizes(step_size, schedule, steps_of_epoch if decay_steps is None else decay_steps)
    rng = _iterates.random_state_of(random_state)
    state = OptimizeResult(x=x, last_x=x, fun=None, jac=None, nit=0, n_steps=0, success=True, message="", loss_curve=[])
    for _ in range(n_epochs):
        order = rng.permutation(n_examples)
        batches = [order[start : start + batch_size] for start in range(0, n_examples, batch_size)]
        if not _epoch(state, fun, batches, lambda t: size(first_step + t), average, project):
            state.success, state.message = False, "ABNORMAL: gradient is not finite, try a smaller step_size"
            break
        state.nit += 1
        if _iterates.stopped_by(callback, x=state.x.copy(), fun=state.fun, nit=state.nit):
            state.message = "STOP: by the callback"
            break
    else:
        state.message = "STOP: all epochs made"
    state.loss_curve = None if None in state.loss_curve else np.array(state.loss_curve)
    return state


def _epoch(state, fun, batches, size, average, project):
    """One step for each batch, the results in ``state``; False if a gradient is not finite."""
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
        newest = (1 + _FORGETTING) / (state.n_steps + _FORGETTING) if average else 1.0
        state.x = (1 - newest) * state.x + newest * state.last_x
        state.jac = gradient
    state.fun = None if total is None else total / sum(map(len, batches))
    state.loss_curve.append(state.fun)
    return True
