"""Cutting planes for a sum of maxima as one function, with the planes of its terms kept: the 1-slack method."""

import numpy as np

from sklearn_crf.optimize._bmrm import Bundle
from sklearn_crf.optimize._checks import Checks
from sklearn_crf.optimize._duality import checked_bounds, is_closed
from sklearn_crf.optimize._plane_cache import affordable_planes


def one_slack(
    oracle,
    sizes,
    risk,
    n,
    *,
    lower_bounded=None,
    max_iter=1000,
    tol=1e-3,
    max_planes=500,
    max_kept=10,
    cache_size=256,
    check_every=50,
    random_state=None,
    callback=None,
):
    r"""Minimize a quadratic penalty plus a sum of maxima, by planes below the sum, made of planes kept where possible.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    As :func:`~sklearn_crf.optimize.bmrm`, but the last planes found of each term are kept. The highest of these at x
    add up to a plane below the sum without asking the oracle; only where that plane is hardly above those in the bundle
    does an epoch go through all terms. Planes that were the highest of their term longest ago go first; planes of the
    bundle without weight go when it is full.

    Parameters
    ----------
    oracle, sizes, risk, n
        As for :func:`frank_wolfe`.
    lower_bounded : array-like of shape (n,) of bool, optional
        Entries of x that must not be negative.
    max_iter : int, default=1000
        Most epochs, each of which asks for a plane of every term.
    tol : float, default=1e-3
        Duality gap, of the primal value, at which to stop.
    max_planes : int, default=500
        Planes of the sum that are kept.
    max_kept : int, default=10
        Planes of each term that are kept.
    cache_size : float, default=256
        Megabytes that these may take; it lowers ``max_kept`` if need be, down to none.
    check_every : int, default=50
        Epochs after which the risk is asked for. It is at other times if the planes promise the gap.
    random_state : object
        Not used: the order of the terms does not matter.
    callback : callable, optional
        As for :func:`frank_wolfe`.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As of :func:`frank_wolfe`.

    References
    ----------
    T. Joachims, T. Finley and C.-N. Yu. Cutting-Plane Training of Structural SVMs. Machine Learning 77, 2009.
    """
    max_kept = min(max_kept, affordable_planes(cache_size, sizes, n))
    state = _State(oracle, sizes, checked_bounds(lower_bounded, n), max_planes, max_kept)
    found = Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        state.pass_over()
        promising = is_closed(state.best_primal, state.dual, tol)
        if found.ends(epoch, [state.best], promising or epoch % check_every == 0 or epoch == max_iter):
            break
        state.use_kept()
    return found.result(epoch, max_iter)


class _State:
    """The bundle, the planes kept of each term, and the best point at which all maxima were asked for."""

    def __init__(self, oracle, sizes, bounded, max_planes, max_kept):
        n = len(bounded)
        self.x = self.best = np.zeros(n)
        self.dual, self.best_primal = 0.0, np.inf
        self._oracle = oracle
        self._kept = [_Kept(size, n, max_kept) for size in sizes]
        self._bundle = Bundle(bounded, n, max_planes)
        self._bundle.add(np.zeros(n), 0.0)

    def pass_over(self):
        """A plane of every term at x, and the next x."""
        slope, offset = np.zeros(len(self.x)), 0.0
        for block, kept in enumerate(self._kept):
            slopes, offsets = self._oracle(block, self.x)
            slope += slopes.sum(axis=0)
            offset += float(offsets.sum())
            kept.add(slopes, offsets)
        primal = 0.5 * float(self.x @ self.x) + offset + float(slope @ self.x)
        if primal < self.best_primal:
            self.best, self.best_primal = self.x, primal
        self._add(slope, offset)

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


class _Kept:
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
