"""Block-coordinate Frank-Wolfe for a quadratic penalty plus a sum of maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates


class BlockDual(_iterates.DualPoint):
    r"""Dual variables of a sum of maxima of planes: for each maximum, a convex combination of its planes.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr), \qquad
        D(a) = \sum_{i, y} a_{iy} o_{iy} - \tfrac12 \lVert x(a) \rVert^2, \qquad
        x(a) = \nu - \sum_{i, y} a_{iy} s_{iy}

    Only the combined plane of each term is stored. At the start, the combined plane is zero everywhere. Every term must
    have the zero plane, which belongs to the true labeling. The multipliers :math:`\nu \ge 0` of entries bounded below
    are always optimal, :math:`\max(0, \sum a s)`, so x is a projection.
    """

    # sizes: number of terms of each block
    # bounded: (n,) bool, mask of the entries of x that must not be negative

    def __init__(self, oracle, sizes, bounded):
        super().__init__(bounded)
        n = len(bounded)
        self._oracle = oracle
        self._n_steps = 0
        self.mean = np.zeros(n)  # mean of x over all steps, with weight k for step k
        first = np.cumsum([0, *sizes])
        self._blocks = [slice(*bounds) for bounds in pairwise(first)]  # terms of each block
        self._slopes, self._offsets = np.zeros((first[-1], n)), np.zeros(first[-1])

    def pass_over(self, rng):
        """Make one step for every block, in random order, and return the sum of the slacks of all blocks."""
        total = 0.0
        for block in rng.permutation(len(self._blocks)):
            total += self.step(self._blocks[block], *self._oracle(block, self.x))
            self._n_steps += 1
            self.mean += 2.0 / (self._n_steps + 1.0) * (self.x - self.mean)
        return total

    def step(self, terms, slopes, offsets):
        """Move the combined planes of the given terms towards new planes; return the terms' previous duality gap."""
        # terms: slice or (m,) int, indices of terms
        # slopes: (m, n), offsets: (m,), slopes and offsets of the highest plane of each term at x
        rows = slopes - self._slopes[terms]
        lift = offsets - self._offsets[terms]
        slack = lift + rows @ self.x
        # The step is computed as if no entry had a lower bound.
        # Lower bounds only make the dual flatter, so the step also increases the dual with bounds.
        share = _maximise_in_box(rows @ rows.T, slack)
        self._slopes[terms] += share[:, None] * rows
        self._offsets[terms] += share * lift
        self.offset += float(share @ lift)
        self._place(self._free - share @ rows)
        return float(np.maximum(slack, 0.0).sum())


def _maximise_in_box(gram, gradient):
    """Maximise the quadratic function ``gradient' share - share' gram share / 2`` over shares in [0, 1].

    The algorithm is coordinate ascent, starting from the best common share.
    """
    n = len(gradient)
    curvature = np.maximum(gram.diagonal(), _TINY)
    common = 0.0 if n == 1 else min(max(gradient.sum(), 0.0) / max(gram.sum(), _TINY), 1.0)
    gradient, share = gradient - common * gram.sum(axis=1), np.full(n, common)
    for _ in range(1 if n == 1 else _SWEEPS):
        for i in range(n):
            moved = min(max(share[i] + gradient[i] / curvature[i], 0.0), 1.0) - share[i]
            if moved:
                share[i] += moved
                gradient -= moved * gram[i]
    return share


_TINY = float(np.finfo(np.float64).tiny)

# A few sweeps are sufficient. An exact solution would be useless, because the planes of a step are soon out of date.
_SWEEPS = 10


def frank_wolfe(
    oracle: _iterates.Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    random_state: _iterates.RandomSeed = None,
    dual: Any = None,
    **limits: Any,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, block by block in the dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step calls the oracle for the highest plane of each term of one block, and moves the combined planes of the
    terms towards these planes. Each term has its own step size, and the step sizes of a block are optimised jointly.
    The dual value therefore never decreases, however many terms a block has. Each epoch visits every block once, in
    random order.
    """
    # oracle: function of a block and a point that returns planes
    # risk: function that returns P without its penalty
    # lower_bounded: (n,) bool, mask of the entries of x that must not be negative
    # limits: arguments of ``Checks``, such as ``max_iter`` and ``tol``
    rng = _iterates.make_random_state(random_state)
    state = BlockDual(oracle, sizes, _iterates.mask_of_bounds(lower_bounded, n)) if dual is None else dual
    found = _iterates.Checks(risk, state, **limits)
    for _ in range(found.max_iter):
        slack = state.pass_over(rng)
        # Slacks were computed at earlier points of the epoch, and their sum is seldom smaller than the current gap.
        if found.ends([state.mean, state.x], state.dual + slack):
            break
    return found.result()
