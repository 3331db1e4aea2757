"""Cutting planes for each term of a sum of maxima, which are stored over all epochs (the n-slack method)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates


def count_affordable_planes(cache_size, sizes, n):
    """Return the number of planes per term that fit in ``cache_size`` megabytes."""
    return int(cache_size * 2**20 / (8 * n * max(sum(sizes), 1)))


class PlaneCache(_iterates.DualPoint):
    r"""Dual variables of a sum of maxima: weights of the planes that have been found for each maximum.

    .. math::
        D(a) = \sum_{i, k} a_{ik} o_{ik} - \tfrac12 \lVert x(a) \rVert^2, \qquad x(a) = \nu - \sum_{i, k} a_{ik}
        s_{ik}, \qquad a_i \in \Delta

    Every term starts with the plane that is zero everywhere. The multipliers :math:`\nu` of entries bounded below are
    always optimal, so x is a projection.
    """

    # sizes: number of terms of each block; max_planes: maximum number of planes of a term, at least 2
    # bounded: (n,) bool, mask of the entries of x that must not be negative

    def __init__(self, sizes, bounded, max_planes):
        super().__init__(bounded)
        self._blocks = [_PlanesOfBlock(size, len(bounded), max_planes) for size in sizes]

    def add(self, block, slopes, offsets):
        """Store new planes that rise above the stored planes of a block; return the block's previous duality gap."""
        return self._blocks[block].add(slopes, offsets, self.x)

    def ascend(self, block, precision, max_steps):
        """Shift weight between the planes of a block to increase the dual objective D."""
        part = self._blocks[block]
        before = part.weight.copy()
        part.ascend(part.offsets + part.slopes @ self.x, precision, max_steps)
        change = part.weight - before
        moved = np.flatnonzero(change)
        if len(moved):
            self.offset += float(change[moved] @ part.offsets[moved])
            self._place(self._free - change[moved] @ part.slopes[moved])


class _PlanesOfBlock:
    """Planes of the terms of one block, sorted by term, and their Gram matrix."""

    def __init__(self, n_terms, n, max_planes):
        self.max_planes = max(2, max_planes)
        self.owner = np.arange(n_terms)
        self.slopes = np.zeros((n_terms, n))
        self.offsets = np.zeros(n_terms)
        self.weight = np.ones(n_terms)
        self._idle = np.zeros(n_terms, dtype=np.int64)  # number of visits since the plane last had weight
        self._gram = np.zeros((n_terms, n_terms))
        self._start = np.arange(n_terms)

    def add(self, slopes, offsets, x):
        height = self.offsets + self.slopes @ x
        found = offsets + slopes @ x
        slack = found - np.add.reduceat(self.weight * height, self._start)
        highest = np.maximum.reduceat(height, self._start)
        new = np.flatnonzero(found > highest + 1e-10 * (1.0 + np.abs(highest)))
        if len(new):
            self._evict(new)
            across = slopes[new] @ self.slopes.T
            gram = np.block([[self._gram, across.T], [across, slopes[new] @ slopes[new].T]])
            owner = np.concatenate((self.owner, new))
            order = np.argsort(owner, kind="stable")
            self._take(order, owner, np.concatenate((self.slopes, slopes[new])), gram, offsets[new])
        return float(np.maximum(slack, 0.0).sum())

    def _take(self, order, owner, slopes, gram, new_offsets):
        n_new = len(new_offsets)
        self.owner, self.slopes = owner[order], slopes[order]
        self._gram = gram[np.ix_(order, order)]
        self.offsets = np.concatenate((self.offsets, new_offsets))[order]
        self.weight = np.concatenate((self.weight, np.zeros(n_new)))[order]
        self._idle = np.concatenate((self._idle, np.zeros(n_new, dtype=np.int64)))[order]
        self._start = np.searchsorted(self.owner, np.arange(self.owner[-1] + 1))

    def _evict(self, terms):
        """Drop one plane of each given term that is full, and all planes that had no weight for many visits."""
        self._idle = np.where(self.weight > 0, 0, self._idle + 1)
        drop = self._idle > _PATIENCE
        counts = np.bincount(self.owner[~drop], minlength=len(self._start))
        for term in terms[counts[terms] >= self.max_planes]:
            planes = np.flatnonzero((self.owner == term) & ~drop)
            first, second = planes[np.lexsort((-self._idle[planes], self.weight[planes]))[:2]]
            drop[first] = True
            if self.weight[first] > 0:
                self._merge(first, second)
        if drop.any():
            self._take(np.flatnonzero(~drop), self.owner, self.slopes, self._gram, np.zeros(0))

    def _merge(self, first, second):
        """Merge the first of two planes into the second; the combined plane of the term does not change."""
        total = self.weight[first] + self.weight[second]
        share = self.weight[first] / total
        for values in (self.slopes, self.offsets, self._gram, self._gram.T):
            values[second] += share * (values[first] - values[second])
        self.weight[second], self.weight[first] = total, 0.0

    def ascend(self, gradient, precision, max_steps):
        """Repeatedly shift weight between two planes of the most violated term, to increase the dual."""
        start = self._start
        stop = np.append(start[1:], len(self.weight))
        for _ in range(max_steps):
            low = np.minimum.reduceat(np.where(self.weight > 0, gradient, np.inf), start)
            violation = np.maximum.reduceat(gradient, start) - low
            term = int(np.argmax(violation))
            if violation[term] <= precision:
                break
            own = slice(start[term], stop[term])
            up = start[term] + int(np.argmax(gradient[own]))
            down = self._find_best_partner(own, gradient, up)
            row = self._gram[up] - self._gram[down]
            curvature = max(float(row[up] - row[down]), np.finfo(np.float64).tiny)
            move = min((gradient[up] - gradient[down]) / curvature, self.weight[down])
            self.weight[up] += move
            self.weight[down] = 0.0 if move == self.weight[down] else self.weight[down] - move
            gradient -= move * row

    def _find_best_partner(self, own, gradient, up):
        """Return the plane whose weight should be shifted to the plane ``up`` for the largest second-order gain."""
        difference = gradient[up] - gradient[own]
        gram = self._gram
        curvature = gram[up, up] + gram.diagonal()[own] - 2 * gram[up, own]
        usable = (self.weight[own] > 0) & (difference > 0)
        gain = np.where(usable, difference**2 / np.maximum(curvature, 1e-12 * gram[up, up] + 1e-300), -1.0)
        return own.start + int(np.argmax(gain))


# Number of visits without weight after which a plane is dropped.
_PATIENCE = 20


def cutting_plane(
    oracle: _iterates.Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    max_planes: int = 20,
    cache_size: float = 256,
    random_state: _iterates.RandomSeed = None,
    **limits: Any,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, using all planes found so far.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step calls the oracle for the highest plane of each term of one block, adds the planes that rise above the
    stored planes, and increases the dual over the weights of all planes of the block. Between two epochs, passes over
    the stored planes of all blocks increase the dual without the oracle. The dual never decreases. If high accuracy is
    wanted or the oracle is expensive, the method converges much faster than :func:`frank_wolfe`, which stores one plane
    per term.
    """
    # lower_bounded, limits: as in ``frank_wolfe``
    rng = _iterates.make_random_state(random_state)
    max_planes = min(max_planes, count_affordable_planes(cache_size, sizes, n))
    state = PlaneCache(sizes, _iterates.mask_of_bounds(lower_bounded, n), max_planes)
    found = _iterates.Checks(risk, state, **limits)
    precision = 0.0
    for _ in range(found.max_iter):
        slack = 0.0
        for block in rng.permutation(len(sizes)):
            slack += state.add(block, *oracle(block, state.x))
            state.ascend(block, precision, _STEPS * sizes[block])
        if found.ends([state.x], state.dual + slack):
            break
        # End passes when the violation of each term is small compared with the expected gain per term of new planes.
        precision = 0.1 * slack / max(sum(sizes), 1)
        for _ in range(_PASSES):
            for block in rng.permutation(len(sizes)):
                state.ascend(block, precision, _STEPS * sizes[block])
    return found.result()


# Number of passes over the stored planes between two epochs; maximum number of steps per term in a visit of a block.
_PASSES = 2
_STEPS = 3
