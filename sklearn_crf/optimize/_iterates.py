"""What all optimizers share: the checked start, the number of iterations, step sizes, the call of the callback."""

import numpy as np
from scipy.optimize import OptimizeResult

SCHEDULES = ("constant", "annealed", "sqrt")


def checked_start(x0):
    """A private float64 copy of the start, one vector of finite numbers."""
    x = np.array(x0, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"x0 must be a vector, got shape {x.shape}.")
    if not np.all(np.isfinite(x)):
        raise ValueError("x0 must be finite, found NaN or infinity.")
    return x


def check_max_iter(max_iter):
    if max_iter < 0:
        raise ValueError(f"max_iter must not be negative, got {max_iter!r}.")


def step_sizes(step_size, schedule, decay_steps):
    """A function of the number of steps made before, t = 0, 1, ...

    ``"constant"`` is ``step_size``, ``"annealed"`` is ``step_size / (1 + t / decay_steps)``, ``"sqrt"`` is
    ``step_size / sqrt(1 + t / decay_steps)``.
    """
    if not (np.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step_size must be positive, got {step_size!r}.")
    if not decay_steps > 0:
        raise ValueError(f"decay_steps must be positive, got {decay_steps!r}.")
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}.")
    power = {"constant": 0.0, "annealed": 1.0, "sqrt": 0.5}[schedule]
    return lambda t: step_size / (1 + t / decay_steps) ** power


def stopped_by(callback, **fields):
    """True if the callback returns a true value or raises StopIteration; it gets the fields as OptimizeResult."""
    if callback is None:
        return False
    try:
        return bool(callback(OptimizeResult(**fields)))
    except StopIteration:
        return True


def largest(gradient):
    """Infinity norm of a gradient, 0 for none."""
    return float(np.abs(gradient).max(initial=0.0))
