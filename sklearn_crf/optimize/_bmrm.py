"""Bundle method for a quadratic penalty and a convex risk that is not smooth."""

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._duality import checked_bounds, is_closed, stopped_at
from sklearn_crf.optimize._iterates import checked_start
from sklearn_crf.optimize._simplex_qp import maximize_on_simplex


def bmrm(fun, x0, *, floor=None, lower_bounded=None, max_iter=1000, tol=1e-3, max_planes=500, callback=None):
    r"""Minimize a quadratic penalty plus a convex function by cutting planes.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + R(x) \;\ge\;
        \max_{a \in \Delta} \; \sum_k a_k o_k - \tfrac12 \lVert x(a) \rVert^2, \qquad x(a) = -\sum_k a_k s_k

    Each call of ``fun`` adds a plane :math:`o_k + s_k^\top x` below R; the next point minimises the penalty plus the
    highest plane. The difference between the least P seen and the dual value is a bound on what is left to gain.
    For the structured hinge this is the 1-slack cutting-plane method.

    Parameters
    ----------
    fun : callable
        ``fun(x)`` returns R and a subgradient, an ndarray of shape (n,).
    x0 : array-like of shape (n,)
        Where the first plane is made.
    floor : float, optional
        What R never falls below: a plane to begin with. Losses have 0, without which a least P of 0 is never proven.
    lower_bounded : array-like of shape (n,) of bool, optional
        Entries of x that must not be negative.
    max_iter : int, default=1000
        Most calls of ``fun``.
    tol : float, default=1e-3
        Duality gap, of the primal value, at which to stop.
    max_planes : int, default=500
        Planes kept. Beyond it those without weight go, then those of least weight are added up into one.
    callback : callable, optional
        ``callback(intermediate)`` after each call with fields ``x``, the best point, ``fun``, its P, ``dual`` and
        ``nit``. Returning a true value or raising StopIteration stops here.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, the best point; ``fun``, its P; ``dual``; ``gap``; ``loss_curve``, P at each call; ``dual_curve``;
        ``nit``; ``success``, False if ``max_iter`` or a plane that cuts off nothing ended it; ``message``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``fun`` is not finite.

    References
    ----------
    C. H. Teo, S. V. N. Vishwanathan, A. Smola and Q. V. Le. Bundle Methods for Regularized Risk Minimization. JMLR 11,
    2010. T. Joachims, T. Finley and C.-N. Yu. Cutting-Plane Training of Structural SVMs. Machine Learning 77, 2009.
    """
    x = checked_start(x0)
    bundle = Bundle(checked_bounds(lower_bounded, len(x)), len(x), max_planes)
    if floor is not None:
        bundle.add(np.zeros(len(x)), floor)
    best = OptimizeResult(x=x, fun=np.inf)
    curves = [], []
    message = f"STOP: max_iter={max_iter} planes made"
    for _ in range(max_iter):
        risk, slope = fun(x)
        if not (np.isfinite(risk) and np.all(np.isfinite(slope))):
            raise ValueError(f"fun must be finite, got value {risk}.")
        primal = 0.5 * float(x @ x) + risk
        curves[0].append(primal)
        if primal < best.fun:
            best = OptimizeResult(x=x, fun=primal)
        bundle.add(slope, risk - slope @ x)
        x, dual = bundle.solve()
        curves[1].append(dual)
        stop = stopped_at(callback, best.x, best.fun, dual, len(curves[0]))
        if is_closed(best.fun, dual, tol) or stop:
            message = "STOP: by the callback" if stop else "CONVERGENCE: duality gap within tol"
            break
        # A gap of rounding size, or a fun that is not convex: the plane did not cut off its own point.
        if len(curves[1]) > 1 and curves[1][-1] <= curves[1][-2] and np.array_equal(x, bundle.former):
            message = "STOP: the last plane cut off nothing"
            break
        bundle.former = x
    return OptimizeResult(
        x=best.x,
        fun=best.fun,
        dual=curves[1][-1],
        gap=best.fun - curves[1][-1],
        loss_curve=np.array(curves[0]),
        dual_curve=np.array(curves[1]),
        nit=len(curves[0]),
        success=not message.startswith("STOP: max_iter") and not message.endswith("nothing"),
        message=message,
    )


class Bundle:
    """Planes, their Gram matrix and their dual weights; rows of entries bounded below come last."""

    def __init__(self, bounded, n, max_planes):
        self.max_planes = max(2, max_planes)
        self.n_planes = 0
        self.former = None
        self._bounded = np.flatnonzero(bounded)
        self._rows = np.empty((0, n))  # minus the slopes
        self._offset = np.empty(0)
        self._gram = np.empty((0, 0))
        self._weight = np.empty(0)
        self._multiplier = np.zeros(len(self._bounded))

    def add(self, slope, offset):
        if self.n_planes == self.max_planes:
            self._shrink()
        row = -np.asarray(slope, dtype=np.float64)
        across = self._rows @ row
        self._gram = np.block([[self._gram, across[:, None]], [across[None], np.full((1, 1), row @ row)]])
        self._rows = np.concatenate((self._rows, row[None]))
        self._offset = np.append(self._offset, offset)
        self._weight = np.append(self._weight, 0.0 if self.n_planes else 1.0)
        self.n_planes += 1

    def solve(self):
        """Point of least penalty plus highest plane, and its dual value."""
        n_planes, bounded = self.n_planes, self._bounded
        gram, offset, weight = self._gram, self._offset, self._weight
        if len(bounded):
            across = self._rows[:, bounded]
            gram = np.block([[gram, across], [across.T, np.eye(len(bounded))]])
            offset, weight = np.append(offset, np.zeros(len(bounded))), np.append(weight, self._multiplier)
        weight = maximize_on_simplex(gram, offset, weight, n_planes)
        self._weight, self._multiplier = weight[:n_planes], weight[n_planes:]
        x = self._weight @ self._rows
        x[bounded] = np.maximum(x[bounded], 0.0)
        return x, float(self._offset @ self._weight - 0.5 * (x @ x))

    def _shrink(self):
        """Drop planes without weight; if all have some, add the lighter half up into one plane."""
        light = np.flatnonzero(self._weight <= 0)
        if not len(light):
            light = np.argsort(self._weight, kind="stable")[: self.n_planes // 2 + 1]
            share = self._weight[light] / self._weight[light].sum()
            self._rows[light[0]] = share @ self._rows[light]
            self._offset[light[0]] = share @ self._offset[light]
            self._weight[light[0]] = self._weight[light].sum()
            light = light[1:]
        keep = np.setdiff1d(np.arange(self.n_planes), light)
        self._rows, self._offset, self._weight = self._rows[keep], self._offset[keep], self._weight[keep]
        self._gram = self._rows @ self._rows.T
        self.n_planes = len(keep)
