"""Block-coordinate Frank-Wolfe for a quadratic penalty plus a sum of maxima."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates


class BlockDual(_iterates.DualPoint):
    r"""Dual variables of a sum of maxima of planes, as a convex combination of planes for each maximum.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr), \qquad
        D(a) = \sum_{i, y} a_{iy} o_{iy} - \tfrac12 \lVert x(a) \rVert^2, \qquad
        x(a) = \nu - \sum_{i, y} a_{iy} s_{iy}

    Only the combined plane of each term is stored. At the start, the combined plane is zero everywhere. Every term must
    have the zero plane, which belongs to the true labeling. The multipliers :math:`\nu \ge 0` of entries bounded below
    are always optimal, :math:`\max(0, \sum a s)`, so that x is a projection.
    """

    # sizes: number of terms of each block
    # bounded: (n,) of bool, entries of x that must not be negative

    def __init__(self, oracle, sizes, bounded):
        super().__init__(bounded)
        n = len(bounded)
        self._oracle = oracle
        self._n_steps = 0
        self.mean = np.zeros(n)  # average of x over all steps, with weight k for step k
        self._slopes = [np.zeros((size, n)) for size in sizes]
        self._offsets = [np.zeros(size) for size in sizes]

    def pass_over(self, rng):
        """Make one step for every block, in random order, and return the sum of the slacks of all blocks."""
        total = 0.0
        for block in rng.permutation(len(self._slopes)):
            total += self.step(block, *self._oracle(block, self.x))
            self._n_steps += 1
            self.mean += 2.0 / (self._n_steps + 1.0) * (self.x - self.mean)
        return total

    def step(self, block, slopes, offsets):
        """Move the combined planes of a block towards new planes, and return the block's previous duality gap."""
        # slopes: (m, n), offsets: (m,), the slopes and offsets of the highest planes at x
        rows = slopes - self._slopes[block]
        lift = offsets - self._offsets[block]
        slack = lift + rows @ self.x
        # Bounds on entries only flatten the dual. A step that raises the dual without bounds raises it with bounds.
        share = _maximise_in_box(rows @ rows.T, slack)
        self._slopes[block] += share[:, None] * rows
        self._offsets[block] += share * lift
        self.offset += float(share @ lift)
        self._place(self._free - share @ rows)
        return float(np.maximum(slack, 0.0).sum())


def _maximise_in_box(gram, gradient):
    """Maximise the quadratic function gradient' share - share' gram share / 2 over shares in [0, 1].

    The algorithm is coordinate ascent from zero.
    """
    gradient, share = gradient.copy(), np.zeros(len(gradient))
    curvature = np.maximum(gram.diagonal(), np.finfo(np.float64).tiny)
    for _ in range(_SWEEPS):
        for i in range(len(share)):
            moved = min(max(share[i] + gradient[i] / curvature[i], 0.0), 1.0) - share[i]
            if moved:
                share[i] += moved
                gradient -= moved * gram[i]
    return share


# Few sweeps suffice: the planes of a step are soon out of date, so that an exact solution would be useless.
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

    Every step calls the oracle for the highest plane of each term of one block and moves the terms' combined planes
    towards these planes. Each term has its own step size, and the sizes in a block are optimised jointly, so that
    the dual value never falls, however many terms share a block. Each epoch visits every block once, in random order.
    """
    # oracle: function of a block and a point that returns planes; risk: function that returns P without its penalty
    # lower_bounded: (n,) of bool, entries of x that must not be negative; callback: function called after every epoch
    rng = _iterates.make_random_state(random_state)
    state = BlockDual(oracle, sizes, _iterates.mask_of_bounds(lower_bounded, n)) if dual is None else dual
    found = _iterates.Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        slack = state.pass_over(rng)
        # Slacks belong to earlier points, and are seldom smaller than the current gap.
        promising = _iterates.is_closed(state.dual + slack, state.dual, tol)
        due = promising or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.mean, state.x] if average else [state.x], due):
            break
    return found.result(epoch)
