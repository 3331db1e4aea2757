"""Stochastic subgradient steps for a quadratic penalty plus a sum of maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import (
    Callback,
    Checks,
    DualPoint,
    Oracle,
    RandomSeed,
    make_random_state,
    mask_of_bounds,
)


class _PegasosIterate(DualPoint):
    """Iterate of the Pegasos schedule, which is a dual point after each whole epoch."""

    dual = 0.0  # largest dual value after an epoch
    n_steps = 0

    def step(self, slope, offset, n_blocks):
        self.n_steps += 1
        share = 1.0 / self.n_steps
        self.offset += share * (n_blocks * offset - self.offset)
        self._place((1.0 - share) * self._free - share * n_blocks * slope)

    def end_epoch(self):
        """Update the best dual value so far by the value at the current dual point."""
        self.dual = max(self.dual, super().dual)


def subgradient(
    oracle: Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 0.001,
    average: bool = True,
    check_every: int = 10,
    random_state: RandomSeed = None,
    callback: Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes by stochastic subgradient steps.

    .. math::
        x_t = \Pi \bigl[ (1 - \tfrac1t) \, z_{t-1} - \tfrac1t \, B \sum_{i \in b_t} s_{i \hat y_i} \bigr]

    for B blocks, with the step sizes of Pegasos. Each epoch visits every block once, so that after whole epochs the
    weights of every term's planes sum to one. The iterate is then a dual point, and its value bounds P from below.

    Parameters
    ----------
    oracle, sizes, risk, n
        See :func:`frank_wolfe`.
    lower_bounded : array-like of shape (n,) of bool, optional
        Entries of x that must not be negative.
    max_iter : int, default=100
        Maximum number of epochs.
    tol : float, default=1e-3
        Duality gap, relative to the primal value, at which to stop.
    average : bool, default=True
        Whether the average of the iterates, which gives late iterates more weight, is a candidate too.
    check_every : int, default=10
        Number of epochs between two computations of the duality gap.
    random_state : int, RandomState instance or None, default=None
        Determines the order of the blocks.
    callback : callable, optional
        See :func:`frank_wolfe`.

    Returns
    -------
    scipy.optimize.OptimizeResult
        See :func:`frank_wolfe`.

    References
    ----------
    S. Shalev-Shwartz, Y. Singer, N. Srebro and A. Cotter. Pegasos: Primal Estimated sub-GrAdient SOlver for SVM.
    Mathematical Programming 127, 2011, :doi:`10.1007/s10107-010-0420-4`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import subgradient
    >>> a = np.array([[2.0, 0.0], [0.0, 4.0]])  # two terms, max(0, 1 - a_i x), a block each
    >>> def oracle(block, x):
    ...     violated = float(1 - a[block] @ x > 0)
    ...     return -violated * a[[block]], np.array([violated])
    >>> risk = lambda x: np.maximum(0, 1 - a @ x).sum()
    >>> subgradient(oracle, [1, 1], risk, 2, tol=1e-6, random_state=0).x.round(3)
    array([0.5 , 0.25])
    """
    rng = make_random_state(random_state)
    state = _PegasosIterate(mask_of_bounds(lower_bounded, n))
    found = Checks(risk, state, tol, callback)
    mean = np.zeros(n)
    for epoch in range(1, max_iter + 1):
        for block in rng.permutation(len(sizes)):
            slopes, offsets = oracle(block, state.x)
            state.step(slopes.sum(axis=0), float(offsets.sum()), len(sizes))
            mean += 2.0 / (state.n_steps + 1.0) * (state.x - mean)
        state.end_epoch()
        due = epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [mean, state.x] if average else [state.x], due):
            break
    return found.result(epoch)
