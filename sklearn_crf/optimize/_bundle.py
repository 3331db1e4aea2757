"""Cutting planes for a sum of maxima as one function, with the planes of its terms kept: the 1-slack method."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates
from sklearn_crf.optimize._active_set import climb_active_set
from sklearn_crf.optimize._cutting_plane import affordable_planes

# Violation of optimality that is tolerated, as a share of the largest gradient and of the terms that it is a sum of.
_PRECISION = 1e-12

# Ridge on the diagonal, as a share of each entry, since planes may depend on each other linearly; and the least of it
# where a slope is zero, whose inverse is finite.
_RIDGE, _LEAST_RIDGE = 1e-13, 1e-150


def maximize_on_simplex(gram, offset, start, n_simplex):
    r"""Maximize a concave quadratic function over a simplex and half-lines.

    .. math::
        \max_a \; o^\top a - \tfrac12 a^\top G a, \qquad a \ge 0, \quad \sum_{k < p} a_k = 1

    G is positive semidefinite and the start feasible. A primal active-set method (Nocedal & Wright 2006, section
    16.5): exact up to rounding, with few steps from a start near the optimum.
    """
    # gram: G, (n, n), each row contiguous; offset: o, (n,); start: (n,); n_simplex: p; returns (n,)
    weight = start.copy()
    climb_active_set(gram, offset, weight, n_simplex, _RIDGE, _LEAST_RIDGE, _PRECISION)
    return weight


class _StepFromBest:
    """Where the next plane is made, on the way from the best point so far to the minimiser under the planes.

    All the way as long as points get better, down to a tenth of it where they do not.
    """

    def __init__(self):
        self._share = 1.0

    def to(self, best, minimizer):
        return minimizer if self._share == 1.0 else best + self._share * (minimizer - best)

    def judge(self, is_better):
        """Take note of whether the last point was better than all before."""
        self._share = min(1.0, 2 * self._share) if is_better else max(0.1, 0.5 * self._share)

    def go_all_the_way(self):
        """Make the next plane at the minimiser itself."""
        self._share = 1.0


def _has_risen(dual, former):
    """Whether a plane has raised the dual value.

    One made at the minimiser does, but for gaps of rounding size, functions that are not convex and maxima that were
    not found. In large units of x the dual rises by many orders of magnitude, and is no measure to begin with.
    """
    return dual - former > _LEAST_RISE * abs(dual)


# As a share of the dual value.
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

    Each call of ``fun`` adds a plane :math:`o_k + s_k^\top x` below R. The next one is made on the way from the best
    point so far to :math:`x(a)`, which minimises the penalty plus the highest plane: all the way as long as points get
    better, down to a tenth of it where they do not, as minimisers go to and fro while planes are few. The difference
    between the least P seen and the dual value is a bound on what is left to gain. For the structured hinge this is the
    1-slack cutting-plane method.
    """
    # fun: callable; x0: (n,); lower_bounded: (n,) of bool; callback: callable
    x = _iterates.checked_start(x0)
    bundle = Bundle(_iterates.checked_bounds(lower_bounded, len(x)), len(x), max_planes)
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
        stop = _iterates.stopped_at(callback, best.x, best.fun(dual), dual, len(curves[0]))
        has_risen = _has_risen(dual, former)
        end = best.end(dual, tol, is_stuck=was_at_minimizer and not has_risen)
        if end or stop:
            message = "STOP: by the callback" if stop else end
            break
        if not has_risen:
            step.go_all_the_way()
        x = step.to(best.x, minimizer)
    return OptimizeResult(
        x=best.x,
        fun=float(best.fun(dual)),
        dual=dual,
        gap=best.upper - dual,
        # No plane is above what it is a plane of: P is never below the dual.
        loss_curve=np.maximum(curves[0], dual),
        dual_curve=np.array(curves[1]),
        nit=len(curves[0]),
        success=_iterates.is_success(message),
        message=message,
    )


class _DenseRows:
    """Vectors side by side, in an array that grows."""

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
    """The same of vectors most of whose entries are zero: slopes of sparse features, which errors alone have."""

    def __init__(self, n):
        self._n = n
        # In use up to the last of the pointers.
        self._value, self._index = np.empty(0), np.empty(0, dtype=np.int32)
        self._ptr = np.zeros(1, dtype=np.int64)

    @property
    def n_rows(self):
        return len(self._ptr) - 1

    @property
    def matrix(self):
        """All rows, (n_rows, n) CSR."""
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


# Entries of the first slope that may be other than zero, as a share: it has most of them, as all examples have errors.
_MOST_ENTRIES = 0.2


class Bundle:
    """Planes, their Gram matrix and their dual weights; rows of entries bounded below come last."""

    def __init__(self, bounded, n, max_planes):
        self.max_planes = max(2, max_planes)
        self.n_planes = 0
        self._bounded = np.flatnonzero(bounded)
        self._multiplier = np.zeros(len(self._bounded))
        self._rows: _SparseRows | _DenseRows = _SparseRows(n)  # minus the slopes
        self._has_slope = False
        # Of the arrays, the first n_planes entries are in use.
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
        """Keep some planes, in arrays for so many."""
        gram, offset, weight = self._gram, self._offset, self._weight
        self.n_planes = n = len(kept)
        self._gram, self._offset, self._weight = np.empty((capacity, capacity)), np.empty(capacity), np.empty(capacity)
        self._gram[:n, :n], self._offset[:n], self._weight[:n] = gram[np.ix_(kept, kept)], offset[kept], weight[kept]
        if n < self._rows.n_rows:
            self._rows.take(kept)

    def solve(self):
        """Point of least penalty plus highest plane, and its dual value."""
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
        """Drop planes without weight; if all have some, add the lighter half up into one plane."""
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
    max_iter: int = 1000,
    tol: float = 0.001,
    max_planes: int = 500,
    max_kept: int = 10,
    cache_size: float = 256,
    check_every: int = 50,
    random_state: _iterates.RandomSeed = None,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima, by planes below the sum, made of planes kept where possible.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    As :func:`~sklearn_crf.optimize.bmrm`, but the last planes found of each term are kept. The highest of these at x
    add up to a plane below the sum without asking the oracle; only where that plane is hardly above those in the bundle
    does an epoch go through all terms. Planes that were the highest of their term longest ago go first; planes of the
    bundle without weight go when it is full.
    """
    # lower_bounded: (n,) of bool; callback: callable
    max_kept = min(max_kept, affordable_planes(cache_size, sizes, n))
    state = _OneSlackIterate(oracle, sizes, _iterates.checked_bounds(lower_bounded, n), max_planes, max_kept)
    found = _iterates.Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        state.pass_over()
        promising = _iterates.is_closed(state.best_primal, state.dual, tol)
        due = promising or state.is_stuck or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.best], due, state.is_stuck):
            break
        state.use_kept()
    return found.result(epoch)


class _OneSlackIterate:
    """The bundle, the planes kept of each term, and the best point at which all maxima were asked for."""

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
        """A plane of every term between the best point and x, and the next x."""
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
            self._step.go_all_the_way()

    def use_kept(self):
        """Planes of the sum from those kept, as long as each is well above the bundle."""
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


# A plane of those kept is added if it rises above the bundle by this share of the gap.
_WORTH_ADDING = 0.1

# Most such planes between two epochs.
_MOST_BETWEEN = 20


class _KeptPlanes:
    """The last planes of the terms of one block."""

    def __init__(self, n_terms, n, max_kept):
        self._slopes = np.zeros((n_terms, max_kept, n))
        self._offsets = np.zeros((n_terms, max_kept))
        self._used = np.zeros((n_terms, max_kept), dtype=np.int64)
        self._now = 0
        self._terms = np.arange(n_terms)

    def add(self, slopes, offsets):
        """Keep a plane of each term, in place of the one that was the highest longest ago."""
        if not self._offsets.size:
            return
        self._now += 1
        oldest = np.argmin(self._used, axis=1)
        self._slopes[self._terms, oldest], self._offsets[self._terms, oldest] = slopes, offsets
        self._used[self._terms, oldest] = self._now

    def add_highest(self, x, slope):
        """Add the slopes of the highest planes at x; returns the sum of their offsets."""
        if not self._offsets.size:
            return 0.0
        self._now += 1
        # A term that has no plane yet has one of zeros, which is below its maximum too.
        highest = np.argmax(self._offsets + self._slopes @ x, axis=1)
        slope += self._slopes[self._terms, highest].sum(axis=0)
        self._used[self._terms, highest] = self._now
        return float(self._offsets[self._terms, highest].sum())
