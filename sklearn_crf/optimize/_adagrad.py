"""Stochastic gradient steps whose lengths adapt to each variable, and which can go on at any time."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

# Of s in the weights (s + 1) / (n + s) of the newest iterate in the average: late iterates count more.
_FORGETTING = 3.0


class AdaGradState(NamedTuple):
    """Where adaptive gradient steps have come to, all that is needed to go on.

    Attributes
    ----------
    x : ndarray of shape (n,)
        The last iterate.
    average : ndarray of shape (n,)
        The average of all iterates, in which late ones weigh more: the result.
    squares : ndarray of shape (n,)
        Sums of the squared gradients.
    n_steps : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import AdaGradState
    >>> AdaGradState.at(np.ones(2)).n_steps
    0
    """

    x: np.ndarray
    average: np.ndarray
    squares: np.ndarray
    n_steps: int

    @classmethod
    def at(cls, x: np.ndarray) -> "AdaGradState":
        """The state before the first step.

        Parameters
        ----------
        x : ndarray of shape (n,)

        Returns
        -------
        AdaGradState
        """
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

    Parameters
    ----------
    gradient : callable
        ``gradient(batch, x)`` returns a stochastic gradient, an ndarray of shape (n,).
    state : AdaGradState
        Of the former steps; it is left as it is.
    batches : iterable
        Passed on one by one.
    step_size : float, default=0.1
        :math:`\eta`, the length of the first step of every variable.
    project : callable, optional
        ``project(x)``: :math:`\Pi`, the nearest point of the convex set that x must stay in.

    Returns
    -------
    AdaGradState

    Raises
    ------
    ValueError
        If a gradient is not finite.

    References
    ----------
    J. Duchi, E. Hazan and Y. Singer. Adaptive Subgradient Methods for Online Learning and Stochastic Optimization.
    Journal of Machine Learning Research 12, 2011.

    O. Shamir and T. Zhang. Stochastic Gradient Descent for Non-smooth Optimization: Convergence Results and Optimal
    Averaging Schemes. ICML 2013 (the average).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import AdaGradState, adagrad_steps
    >>> state = AdaGradState.at(np.zeros(1))
    >>> for _ in range(50):
    ...     state = adagrad_steps(
    ...         lambda value, x: x - value, state, [1.0, 2.0, 6.0], step_size=1.0
    ...     )
    >>> bool(abs(state.average[0] - 3) < 0.2), state.n_steps
    (True, 150)
    """
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
