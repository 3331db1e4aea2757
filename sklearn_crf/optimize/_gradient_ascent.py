"""Plain steps along a direction: for approximate gradients that are the gradient of nothing."""

from collections import deque
from collections.abc import Callable

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
    decay_steps: float = 100,
    max_iter: int = 100,
    tol: float = 0.0,
    first_step: int = 0,
    keep_trajectory: bool = True,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Follow a gradient, exact or approximate, with steps of a given size.

    .. math::
        x_{t+1} = x_t + \eta_t \, g(x_t)

    Saddle point and maximum marginal approximations give such directions without a value to maximise
    (Kumar, August and Hebert 2005, section 3): there is no line search to be made, and where they are piecewise
    constant the steps do not converge but cycle. The whole trajectory is kept, to choose from. With
    ``schedule="adaptive"`` every variable has steps of its own, as in :func:`adagrad_steps`,

    .. math::
        x_{t+1} = x_t + \eta \frac{g_t}{\sqrt{g_1^2 + \dots + g_t^2}},

    which shrink as gradients of both signs add up: less goes to and fro, whatever the units of the variables.
    """
    # gradient: callable; x0: (n,); callback: callable
    x = _iterates.checked_start(x0)
    _iterates.check_max_iter(max_iter)
    is_adaptive = schedule == "adaptive"
    size = _iterates.step_sizes(step_size, "constant" if is_adaptive else schedule, decay_steps)
    squares = np.zeros(len(x))
    most = None if keep_trajectory else 1
    trajectory: deque = deque(maxlen=most)
    gradients: deque = deque(maxlen=most)
    for t in range(max_iter + 1):
        direction = np.array(gradient(x), dtype=np.float64)
        if not np.all(np.isfinite(direction)):
            if t == 0:
                raise ValueError("gradient must be finite at x0, found NaN or infinity.")
            return _result(
                t - 1, trajectory, gradients, False, "ABNORMAL: gradient is not finite, try a smaller step_size"
            )
        trajectory.append(x)
        gradients.append(direction)
        if _iterates.largest(direction) <= tol:
            return _result(t, trajectory, gradients, True, "CONVERGENCE: gradient within tol")
        if _iterates.stopped_by(callback, x=x.copy(), jac=direction.copy(), nit=t):
            return _result(t, trajectory, gradients, True, "STOP: by the callback")
        step = direction
        if is_adaptive:
            squares += direction**2
            step = direction / np.sqrt(np.where(squares > 0, squares, 1.0))
        x = x + size(first_step + t) * step
    return _result(max_iter, trajectory, gradients, False, _iterates.AT_LIMIT)


def _result(n_steps, trajectory, gradients, success, message):
    return OptimizeResult(
        x=trajectory[-1].copy(),
        fun=None,
        jac=gradients[-1].copy(),
        nit=n_steps,
        success=success,
        message=message,
        trajectory=np.array(trajectory),
        gradients=np.array(gradients),
    )
