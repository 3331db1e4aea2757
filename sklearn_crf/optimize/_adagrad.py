"""Stochastic gradient steps whose lengths adapt to each variable, and which can go on at any time."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

# Of s in the weights (s + 1) / (n + s) of the newest iterate in the average: late iterates count more.
_FORGETTING = 3.0


class AdaGradState(NamedTuple):
    """Where adaptive gradient steps have come to, all that is needed to go on."""

    x: np.ndarray  # (n,)
    average: np.ndarray  # (n,)
    squares: np.ndarray  # (n,)
    n_steps: int

    @classmethod
    def at(cls, x: np.ndarray) -> "AdaGradState":
        """The state before the first step."""
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
    r"""One step down the gradient of each batch, of a length of its own for each variable.

    .. math::
        h_{t+1} = h_t + g_t^2, \qquad x_{t+1} = \Pi \Bigl( x_t - \eta \frac{g_t}{\sqrt{h_{t+1}}} \Bigr)

    Features that are rare or small get longer steps, so that no scale has to be known before the data are.
    """
    # gradient: callable; project: callable
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
