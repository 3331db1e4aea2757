"""Block-coordinate Frank-Wolfe for a quadratic penalty and a sum of maxima."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates


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
    oracle: _iterates.Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 0.001,
    average: bool = True,
    check_every: int = 10,
    random_state: _iterates.RandomSeed = None,
    callback: _iterates.Callback | None = None,
    dual: Any = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, block by block in the dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step asks for the highest plane of each term of one block and moves the terms' convex combinations of planes
    towards them. The steps of a block are jointly optimal, each term with one of its own, so that the dual value never
    falls however many terms share a block. Blocks come in random order, each once an epoch.
    """
    # oracle: callable; risk: callable; lower_bounded: (n,) of bool; callback: callable
    rng = _iterates.random_state_of(random_state)
    state = BlockDual(oracle, sizes, _iterates.checked_bounds(lower_bounded, n)) if dual is None else dual
    found = _iterates.Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        slack = state.pass_over(rng)
        # Slacks belong to earlier points, and are seldom less than the present gap.
        promising = _iterates.is_closed(state.dual + slack, state.dual, tol)
        due = promising or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.mean, state.x] if average else [state.x], due):
            break
    return found.result(epoch)
