"""Cutting planes for a sum of maxima that is treated as a single function: BMRM and the 1-slack method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates
from sklearn_crf.optimize._active_set import climb_active_set
from sklearn_crf.optimize._cutting_plane import count_affordable_planes

# Maximum violation of the optimality conditions, relative to the largest gradient entry and to the terms of an entry.
_PRECISION = 1e-12

# Ridge added to the diagonal of the Gram matrix, as a fraction of each entry, because planes may be linearly dependent.
# If a slope is zero, the ridge is _LEAST_RIDGE, whose inverse is finite.
_RIDGE, _LEAST_RIDGE = 1e-13, 1e-150


def maximize_on_simplex(gram, offset, start, n_simplex):
    r"""Maximize a concave quadratic function over a simplex and half-lines.

    .. math::
        \max_a \; o^\top a - \tfrac12 a^\top G a, \qquad a \ge 0, \quad \sum_{k < p} a_k = 1

    G is positive semidefinite and the start is feasible. The solver is a primal active-set method (Nocedal & Wright
    2006, section 16.5). It is exact up to rounding errors, and takes few steps from a start near the optimum.
    """
    # gram: (n, n), the matrix G with contiguous rows; offset: (n,), the vector o; start: (n,), a feasible point
    # n_simplex: the number p of entries on the simplex
    # returns (n,), the maximiser
    weight = start.copy()
    climb_active_set(gram, offset, weight, n_simplex, _RIDGE, _LEAST_RIDGE, _PRECISION)
    return weight


class _StepFromBest:
    """Step length on the line from the best point to the minimiser of the penalty plus the highest plane.

    As long as points improve, the step leads to the minimiser. Otherwise, the step is halved, down to a tenth of the
    distance.
    """

    def __init__(self):
        self._share = 1.0

    def to(self, best, minimizer):
        return minimizer if self._share == 1.0 else best + self._share * (minimizer - best)

    def judge(self, is_better):
        """Lengthen the step if the last point was better than all earlier points, and shorten it otherwise."""
        self._share = min(1.0, 2 * self._share) if is_better else max(0.1, 0.5 * self._share)

    def allow_full_step(self):
        """Make the next step a full step to the minimiser."""
        self._share = 1.0


def _has_risen(dual, former):
    """Return whether a new plane has raised the dual value.

    A plane at the minimiser increases the dual value except in three cases: the gap is within rounding errors, the
    function is not convex, or the maxima were not found. If the units of x are large, the first planes increase the
    dual value by many orders of magnitude, so that its increase does not measure progress.
    """
    return dual - former > _LEAST_RISE * abs(dual)


# A rise of the dual value counts if it exceeds this fraction of the dual value.
_LEAST_RISE = 1e-12


def bmrm(
    fun: _iterates.ValueGradient,
    x0: ArrayLike,
    *,
    floor: float | None = None,
    lower_bounded: ArrayLike | None = None,
    max_iter: int = 1000,
    tol: float = 0.001,
    max_planes: int = 500,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a convex function by cutting planes.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + R(x) \;\ge\;
        \max_{a \in \Delta} \; \sum_k a_k o_k - \tfrac12 \lVert x(a) \rVert^2, \qquad x(a) = -\sum_k a_k s_k

    Each call of ``fun`` adds a plane :math:`o_k + s_k^\top x` below R. Then :math:`x(a)` minimises the penalty plus the
    highest plane. The next plane is computed on the line from the best point so far to :math:`x(a)`. As long as points
    improve, it is computed at the end of this line. Otherwise it is computed nearer to the best point, down to a tenth
    of the way, because minimisers oscillate while there are few planes. The remaining decrease is at most the
    difference between the least P seen and the dual value. For the structured hinge loss, this is the 1-slack
    cutting-plane method.
    """
    # fun: function that returns the value of R and a subgradient; x0: (n,), the starting point
    # lower_bounded: (n,) bool, mask of the entries of x that must not be negative
    # callback: function called after every iteration
    x = _iterates.check_start(x0)
    bundle = Bundle(_iterates.mask_of_bounds(lower_bounded, len(x)), len(x), max_planes)
    if floor is not None:
        bundle.add(np.zeros(len(x)), floor)
    best, step = _iterates.BestPoint(x), _StepFromBest()
    curves: tuple[list, list] = [], []
    message, minimizer, dual = _iterates.AT_LIMIT, x, -np.inf
    for _ in range(max_iter):
        risk, slope = fun(x)
        value, upper = risk if isinstance(risk, tuple) else (risk, risk)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            raise ValueError(f"fun must be finite, got value {value}.")
        step.judge(best.visit(x, risk))
        curves[0].append(0.5 * float(x @ x) + (upper if np.isfinite(upper) else value))
        bundle.add(slope, value - slope @ x)
        former, was_at_minimizer = dual, x is minimizer
        minimizer, dual = bundle.solve()
        curves[1].append(dual)
        fields = {"x": best.x.copy(), "fun": best.fun(dual), "dual": dual, "nit": len(curves[0])}
        stop = _iterates.notify_callback(callback, **fields)
        has_risen = _has_risen(dual, former)
        end = best.end(dual, tol, is_stuck=was_at_minimizer and not has_risen)
        if end or stop:
            message = "STOP: by the callback" if stop else end
            break
        if not has_risen:
            step.allow_full_step()
        x = step.to(best.x, minimizer)
    return OptimizeResult(
        x=best.x,
        fun=float(best.fun(dual)),
        dual=dual,
        gap=best.upper - dual,
        # Planes never exceed the function that they bound, so P is never below the dual value.
        loss_curve=np.maximum(curves[0], dual),
        dual_curve=np.array(curves[1]),
        nit=len(curves[0]),
        **_iterates.ended(message),
    )


class _DenseRows:
    """Rows of a dense matrix, to which rows are added one at a time."""

    def __init__(self, n, matrix=None):
        self._rows = np.empty((0, n)) if matrix is None else matrix.toarray()
        self.n_rows = len(self._rows)

    def append(self, row):
        if self.n_rows == len(self._rows):
            self._store(self._rows[: self.n_rows], 2 * self.n_rows)
        self._rows[self.n_rows] = row
        self.n_rows += 1

    def _store(self, rows, capacity):
        self._rows = np.empty((max(16, capacity), rows.shape[1]))
        self._rows[: len(rows)] = rows
        self.n_rows = len(rows)

    def take(self, kept):
        self._store(self._rows[kept], len(self._rows))

    def times(self, vector):
        return self._rows[: self.n_rows] @ vector

    def combined(self, weight):
        return weight @ self._rows[: self.n_rows]

    def columns(self, places):
        return self._rows[: self.n_rows, places]


class _SparseRows:
    """Growing sparse matrix of slopes. Slopes are often sparse: only features of wrongly labelled nodes are nonzero."""

    def __init__(self, n):
        self._n = n
        # The entries after the last pointer are not in use.
        self._value, self._index = np.empty(0), np.empty(0, dtype=np.int32)
        self._ptr = np.zeros(1, dtype=np.int64)

    @property
    def n_rows(self):
        return len(self._ptr) - 1

    @property
    def matrix(self):
        """All rows, as a CSR array of shape (n_rows, n)."""
        end = self._ptr[-1]
        return sp.csr_array((self._value[:end], self._index[:end], self._ptr), shape=(self.n_rows, self._n))

    def append(self, row):
        places = np.flatnonzero(row)
        start = self._ptr[-1]
        stop = start + len(places)
        if stop > len(self._value):
            capacity = max(stop, 2 * len(self._value))
            self._value, self._index = (np.resize(array, capacity) for array in (self._value, self._index))
        self._value[start:stop], self._index[start:stop] = row[places], places
        self._ptr = np.append(self._ptr, stop)

    def take(self, kept):
        matrix = self.matrix[kept]
        self._value, self._index, self._ptr = matrix.data, matrix.indices, matrix.indptr.astype(np.int64)

    def times(self, vector):
        return self.matrix @ vector

    def combined(self, weight):
        return weight @ self.matrix

    def columns(self, places):
        return self.matrix[:, places].toarray()


# Slopes are stored as sparse rows if at most this fraction of the first slope's entries is not zero.
# The first slope usually has the most entries, because most examples have errors at the start.
_MOST_ENTRIES = 0.2


class Bundle:
    """Cutting planes, with their Gram matrix, their dual weights, and multipliers of entries with a lower bound."""

    def __init__(self, bounded, n, max_planes):
        self.max_planes = max(2, max_planes)
        self.n_planes = 0
        self._bounded = np.flatnonzero(bounded)
        self._multiplier = np.zeros(len(self._bounded))
        self._rows: _SparseRows | _DenseRows = _SparseRows(n)  # negative slopes of the planes
        self._has_slope = False
        # Only the first n_planes entries of these arrays are in use.
        self._gram = np.empty((0, 0))
        self._offset, self._weight = np.empty(0), np.empty(0)

    def add(self, slope, offset):
        if self.n_planes == self.max_planes:
            self._shrink()
        self._append(-np.asarray(slope, dtype=np.float64), offset, 0.0 if self.n_planes else 1.0)

    def _append(self, row, offset, weight):
        k = self.n_planes
        if k == len(self._offset):
            self._take(np.arange(k), min(max(16, 2 * k), self.max_planes))
        if not self._has_slope and (n_entries := np.count_nonzero(row)):
            self._has_slope = True
            if n_entries > _MOST_ENTRIES * len(row):
                self._rows = _DenseRows(len(row), self._rows.matrix)  # type: ignore[union-attr]  # sparse so far
        self._rows.append(row)
        self._gram[k, : k + 1] = self._gram[: k + 1, k] = self._rows.times(row)
        self._offset[k], self._weight[k] = offset, weight
        self.n_planes += 1

    def _take(self, kept, capacity):
        """Drop all but the given planes, and allocate arrays for ``capacity`` planes."""
        gram, offset, weight = self._gram, self._offset, self._weight
        self.n_planes = n = len(kept)
        self._gram, self._offset, self._weight = np.empty((capacity, capacity)), np.empty(capacity), np.empty(capacity)
        self._gram[:n, :n], self._offset[:n], self._weight[:n] = gram[np.ix_(kept, kept)], offset[kept], weight[kept]
        if n < self._rows.n_rows:
            self._rows.take(kept)

    def solve(self):
        """Return the point that minimises the penalty plus the highest plane, and the dual value."""
        n_planes, bounded = self.n_planes, self._bounded
        gram = self._gram[:n_planes, :n_planes]
        offset, weight = self._offset[:n_planes], self._weight[:n_planes]
        if len(bounded):
            across = self._rows.columns(bounded)
            gram = np.block([[gram, across], [across.T, np.eye(len(bounded))]])
            offset, weight = np.append(offset, np.zeros(len(bounded))), np.append(weight, self._multiplier)
        weight = maximize_on_simplex(gram, offset, weight, n_planes)
        self._weight[:n_planes], self._multiplier = weight[:n_planes], weight[n_planes:]
        x = self._rows.combined(weight[:n_planes])
        x[bounded] = np.maximum(x[bounded], 0.0)
        return x, float(self._offset[:n_planes] @ weight[:n_planes] - 0.5 * (x @ x))

    def _shrink(self):
        """Drop planes of weight zero; if there are none, merge the half of the planes with the smallest weights."""
        light = np.flatnonzero(self._weight <= 0)
        sums = None
        if not len(light):
            light = np.argsort(self._weight, kind="stable")[: self.n_planes // 2 + 1]
            share, total = np.zeros(self.n_planes), self._weight[light].sum()
            share[light] = self._weight[light] / total
            sums = self._rows.combined(share), share @ self._offset, total
        self._take(np.setdiff1d(np.arange(self.n_planes), light), self.max_planes)
        if sums is not None:
            self._append(*sums)


def one_slack(
    oracle: _iterates.Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    max_planes: int = 500,
    max_kept: int = 10,
    cache_size: float = 256,
    random_state: _iterates.RandomSeed = None,
    **limits: Any,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima by cutting planes of the sum, reusing planes of the terms.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    The method is as in :func:`~sklearn_crf.optimize.bmrm`, but the latest planes of each term are stored. The highest
    stored planes at x sum to a plane below the whole sum, without a call of the oracle. Once the added planes hardly
    exceed the planes in the bundle, an epoch calls the oracle for all terms. Two rules limit memory. Each term drops
    the plane that has not been its highest plane for the longest time. A full bundle drops planes without weight.
    """
    # lower_bounded, limits: as in ``frank_wolfe``
    max_kept = min(max_kept, count_affordable_planes(cache_size, sizes, n))
    state = _OneSlackIterate(oracle, sizes, _iterates.mask_of_bounds(lower_bounded, n), max_planes, max_kept)
    # Each epoch computes a primal value, so regular checks are rarely needed.
    found = _iterates.Checks(risk, state, check_every=50, **limits)
    for _ in range(found.max_iter):
        state.pass_over()
        if found.ends([state.best], state.best_primal, state.is_stuck):
            break
        state.reuse_kept_planes()
    return found.result()


class _OneSlackIterate:
    """Bundle, stored planes of each term, and best point at which the oracle was called for all terms."""

    def __init__(self, oracle, sizes, bounded, max_planes, max_kept):
        n = len(bounded)
        self.x = self.best = np.zeros(n)
        self.dual, self.best_primal = 0.0, np.inf
        self.is_stuck = False
        self._step = _StepFromBest()
        self._oracle = oracle
        self._kept = [_KeptPlanes(size, n, max_kept) for size in sizes]
        self._bundle = Bundle(bounded, n, max_planes)
        self._bundle.add(np.zeros(n), 0.0)

    def pass_over(self):
        """Call the oracle for all terms at a point between the best point and x, add the summed plane, and update x."""
        slope, offset = np.zeros(len(self.x)), 0.0
        minimizer, former = self.x, self.dual
        x = self._step.to(self.best, minimizer)
        for block, kept in enumerate(self._kept):
            slopes, offsets = self._oracle(block, x)
            slope += slopes.sum(axis=0)
            offset += float(offsets.sum())
            kept.add(slopes, offsets)
        primal = 0.5 * float(x @ x) + offset + float(slope @ x)
        is_better = primal < self.best_primal
        self._step.judge(is_better)
        if is_better:
            self.best, self.best_primal = x, primal
        self._add(slope, offset)
        if not _has_risen(self.dual, former):
            self.is_stuck = x is minimizer
            self._step.allow_full_step()

    def reuse_kept_planes(self):
        """Add sums of stored planes of all terms to the bundle, as long as such a sum rises well above the bundle."""
        for _ in range(_MOST_BETWEEN):
            slope, offset = np.zeros(len(self.x)), 0.0
            for kept in self._kept:
                offset += kept.add_highest(self.x, slope)
            above = offset + float(slope @ self.x) - (self.dual - 0.5 * float(self.x @ self.x))
            if above <= _WORTH_ADDING * (self.best_primal - self.dual):
                break
            self._add(slope, offset)

    def _add(self, slope, offset):
        self._bundle.add(slope, offset)
        self.x, self.dual = self._bundle.solve()


# A sum of stored planes enters the bundle if it exceeds the bundle by more than this fraction of the gap.
_WORTH_ADDING = 0.1

# Maximum number of sums of stored planes that enter the bundle between two epochs.
_MOST_BETWEEN = 20


class _KeptPlanes:
    """Latest planes of each term of one block."""

    def __init__(self, n_terms, n, max_kept):
        self._slopes = np.zeros((n_terms, max_kept, n))
        self._offsets = np.zeros((n_terms, max_kept))
        self._used = np.zeros((n_terms, max_kept), dtype=np.int64)
        self._now = 0
        self._terms = np.arange(n_terms)

    def add(self, slopes, offsets):
        """Store a new plane of each term, in place of the plane that has not been the highest for the longest time."""
        if not self._offsets.size:
            return
        self._now += 1
        oldest = np.argmin(self._used, axis=1)
        self._slopes[self._terms, oldest], self._offsets[self._terms, oldest] = slopes, offsets
        self._used[self._terms, oldest] = self._now

    def add_highest(self, x, slope):
        """Add the slopes of the highest planes at x to ``slope`` and return the sum of their offsets."""
        if not self._offsets.size:
            return 0.0
        self._now += 1
        # A term without stored planes has planes of zeros, which also are below the maximum of the term.
        highest = np.argmax(self._offsets + self._slopes @ x, axis=1)
        slope += self._slopes[self._terms, highest].sum(axis=0)
        self._used[self._terms, highest] = self._now
        return float(self._offsets[self._terms, highest].sum())
