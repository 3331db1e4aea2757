"""Stochastic gradient descent in mini-batches of examples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import (
    Callback,
    Projection,
    RandomSeed,
    checked_start,
    random_state_of,
    step_sizes,
    stopped_by,
)

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
    random_state: RandomSeed = None,
    first_step: int = 0,
    project: Projection | None = None,
    callback: Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a sum over examples by steps along gradients of random parts of it.

    .. math::
        x_{t+1} = \Pi \bigl[ x_t - \eta_t \, \tilde g(B_t, x_t) \bigr], \qquad
        \bar x_t = \Big(1 - \frac{4}{t + 3}\Big) \bar x_{t-1} + \frac{4}{t + 3} x_t

    Parameters
    ----------
    fun : callable
        ``fun(indices, x)`` returns the value, or None, and the gradient, an ndarray of shape (n,), of the objective as
        estimated from the examples ``indices``, an ndarray of int.
    x0 : array-like of shape (n,)
        Where to start.
    n_examples : int
        Number of examples; each epoch visits each once, in random order.
    step_size : float
        The first step's :math:`\eta_0`.
    schedule : {"annealed", "sqrt", "constant"}, default="annealed"
        :math:`\eta_t` is :math:`\eta_0 / (1 + t / d)`, :math:`\eta_0 / \sqrt{1 + t / d}` or :math:`\eta_0`.
    decay_steps : float, optional
        The number of steps :math:`d` of the schedule; None is the steps of one epoch.
    n_epochs : int, default=10
        Passes over the examples.
    batch_size : int, default=1
        Examples of one step; the last of an epoch may have fewer.
    average : bool, default=True
        Return the running average :math:`\bar x`, which weighs late iterates more, instead of the last iterate.
    random_state : int, RandomState instance or None, default=None
        Draws the order of the examples.
    first_step : int, default=0
        Number t of the first step, to go on with a schedule where a former call stopped.
    project : callable, optional
        ``project(x)``: :math:`\Pi`, the nearest point of the convex set that x must stay in.
    callback : callable, optional
        ``callback(intermediate)`` after each epoch with fields ``x``, ``fun``, ``nit``. Returning a true value or
        raising StopIteration stops here; any other exception goes through.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``; ``last_x``, the last iterate, to go on from; ``fun`` and ``loss_curve``, the mean value over each
        epoch's steps, weighted by their examples, or None; ``jac``, the last step's gradient; ``nit``, epochs;
        ``n_steps``; ``success``, False only if a gradient was not finite; ``message``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or the first gradient is not finite.

    References
    ----------
    O. Shamir and T. Zhang. Stochastic Gradient Descent for Non-smooth Optimization: Convergence Results and Optimal
    Averaging Schemes. ICML 2013 (the average).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import minimize_sgd
    >>> values = np.array([1.0, 2.0, 6.0])
    >>> fun = lambda rows, x: (
    ...     0.5 * np.mean((x - values[rows]) ** 2),
    ...     np.array([x[0] - values[rows].mean()]),
    ... )
    >>> found = minimize_sgd(
    ...     fun, np.zeros(1), 3, step_size=0.5, n_epochs=200, random_state=0
    ... )
    >>> bool(abs(found.x[0] - values.mean()) < 0.1)
    True
    """
    x = checked_start(x0)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size!r}.")
    if n_examples < 1:
        raise ValueError(f"n_examples must be at least 1, got {n_examples!r}.")
    steps_of_epoch = -(-n_examples // batch_size)
    size = step_sizes(step_size, schedule, steps_of_epoch if decay_steps is None else decay_steps)
    rng = random_state_of(random_state)
    state = OptimizeResult(x=x, last_x=x, fun=None, jac=None, nit=0, n_steps=0, success=True, message="", loss_curve=[])
    for _ in range(n_epochs):
        order = rng.permutation(n_examples)
        batches = [order[start : start + batch_size] for start in range(0, n_examples, batch_size)]
        if not _epoch(state, fun, batches, lambda t: size(first_step + t), average, project):
            state.success, state.message = False, "ABNORMAL: gradient is not finite, try a smaller step_size"
            break
        state.nit += 1
        if stopped_by(callback, x=state.x.copy(), fun=state.fun, nit=state.nit):
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
