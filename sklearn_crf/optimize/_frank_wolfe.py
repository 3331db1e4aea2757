"""Block-coordinate Frank-Wolfe for a quadratic penalty and a sum of maxima."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import (
    Callback,
    Checks,
    Oracle,
    RandomSeed,
    checked_bounds,
    is_closed,
    random_state_of,
)


class BlockDual:
    r"""Dual variables of many maxima of planes, one convex combination of planes for each.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr), \qquad
        D(a) = \sum_{i, y} a_{iy} o_{iy} - \tfrac12 \lVert x(a) \rVert^2, \qquad
        x(a) = \nu - \sum_{i, y} a_{iy} s_{iy}

    Of each term the combined plane is kept. It begins as the plane that is zero everywhere, which every term must have
    (that of the true labeling). The multipliers :math:`\nu \ge 0` of entries bounded below are always at their best,
    :math:`\max(0, \sum a s)`, so that x is a projection.
    """

    # sizes: terms of each block
    # bounded: (n,) bool, entries of x that must not be negative

    def __init__(self, oracle, sizes, bounded):
        n = len(bounded)
        self._oracle = oracle
        self._n_steps = 0
        self.bounded = np.flatnonzero(bounded)
        self.x = np.zeros(n)
        self.mean = np.zeros(n)  # of the x after each step, step k with weight k
        self.offset = 0.0  # of all combined planes
        self._free = np.zeros(n)  # x without multipliers
        self._slopes = [np.zeros((size, n)) for size in sizes]
        self._offsets = [np.zeros(size) for size in sizes]

    @property
    def dual(self):
        """D at the current variables."""
        return self.offset - 0.5 * float(self.x @ self.x)

    def pass_over(self, rng):
        """One step for every block, in random order; returns the sum of their slacks."""
        total = 0.0
        for block in rng.permutation(len(self._slopes)):
            total += self.step(block, *self._oracle(block, self.x))
            self._n_steps += 1
            self.mean += 2.0 / (self._n_steps + 1.0) * (self.x - self.mean)
        return total

    def step(self, block, slopes, offsets):
        """Move the combined planes of a block towards new ones, and return the duality gap of the block before."""
        # slopes: (m, n); offsets: (m,), of the highest planes at x
        rows = slopes - self._slopes[block]
        lift = offsets - self._offsets[block]
        slack = lift + rows @ self.x
        # Entries at their bound only flatten the dual: steps that are good without bounds raise it too.
        share = _box_ascent(rows @ rows.T, slack)
        self._slopes[block] += share[:, None] * rows
        self._offsets[block] += share * lift
        self.offset += float(share @ lift)
        self._free -= share @ rows
        self._project()
        return float(np.maximum(slack, 0.0).sum())

    def _project(self):
        self.x = self._free.copy()
        self.x[self.bounded] = np.maximum(self.x[self.bounded], 0.0)


def _box_ascent(gram, gradient):
    """Shares in [0, 1] that raise gradient' share - share' gram share / 2, by coordinate ascent from zero."""
    gradient, share = gradient.copy(), np.zeros(len(gradient))
    curvature = np.maximum(gram.diagonal(), np.finfo(np.float64).tiny)
    for _ in range(_SWEEPS):
        for i in range(len(share)):
            moved = min(max(share[i] + gradient[i] / curvature[i], 0.0), 1.0) - share[i]
            if moved:
                share[i] += moved
                gradient -= moved * gram[i]
    return share


# The planes of a step are soon out of date, so that an exact solution is of no use.
_SWEEPS = 3


def frank_wolfe(
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
    dual: Any = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, block by block in the dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step asks for the highest plane of each term of one block and moves the terms' convex combinations of planes
    towards them. The steps of a block are jointly optimal, each term with one of its own, so that the dual value never
    falls however many terms share a block. Blocks come in random order, each once an epoch.

    Parameters
    ----------
    oracle : callable
        ``oracle(block, x)`` returns slopes (m, n) and offsets (m,) of the highest plane of each term of the block.
        Every term must have a plane that is zero everywhere among its own.
    sizes : sequence of int
        Terms of each block.
    risk : callable
        ``risk(x)`` returns the sum of maxima, for the duality gap; where they may not have been found, the sum of those
        that were and an upper bound. The bounds then choose the best x and prove the gap.
    n : int
        Length of x, which starts at zero.
    lower_bounded : array-like of shape (n,) of bool, optional
        Entries of x that must not be negative.
    max_iter : int, default=100
        Most epochs.
    tol : float, default=1e-3
        Duality gap, of the primal value, at which to stop.
    average : bool, default=True
        Whether the average of the iterates, which weighs late ones more, is a candidate too.
    check_every : int, default=10
        Epochs after which the gap is worked out. It is at other times if the slacks that an epoch met promise it.
    random_state : int, RandomState instance or None, default=None
        Draws the order of the blocks.
    callback : callable, optional
        ``callback(intermediate)`` after each epoch with fields ``x``, ``fun``, the least P of all checks,
        ``dual``, ``nit``. Returning a true value or raising StopIteration stops here.
    dual : object, optional
        What holds the dual variables and makes the steps, with ``x``, ``mean``, ``dual`` and ``pass_over(rng)``, where
        there is a quicker way than to ask the oracle block by block.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, the best point checked; ``fun``, its P; ``dual``; ``gap``; ``loss_curve`` and ``dual_curve``, the least
        P so far and the dual value at each check; ``checks``, the epochs of these; ``nit``, epochs; ``success``;
        ``message``.

    References
    ----------
    S. Lacoste-Julien, M. Jaggi, M. Schmidt and P. Pletscher. Block-Coordinate Frank-Wolfe Optimization for Structural
    SVMs. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import frank_wolfe
    >>> a = np.array([[2.0, 0.0], [0.0, 4.0]])  # two terms, max(0, 1 - a_i x), a block each
    >>> def oracle(block, x):
    ...     violated = float(1 - a[block] @ x > 0)
    ...     return -violated * a[[block]], np.array([violated])
    >>> risk = lambda x: np.maximum(0, 1 - a @ x).sum()
    >>> frank_wolfe(oracle, [1, 1], risk, 2, tol=1e-6, random_state=0).x.round(3)
    array([0.5 , 0.25])
    """
    rng = random_state_of(random_state)
    state = BlockDual(oracle, sizes, checked_bounds(lower_bounded, n)) if dual is None else dual
    found = Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        slack = state.pass_over(rng)
        # Slacks belong to earlier points, and are seldom less than the present gap.
        promising = is_closed(state.dual + slack, state.dual, tol)
        due = promising or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.mean, state.x] if average else [state.x], due):
            break
    return found.result(epoch)
