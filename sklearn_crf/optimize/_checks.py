"""Primal values, the duality gap and the end of methods that go through blocks."""

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._duality import is_closed, stopped_at


class Checks:
    """Points whose primal value was worked out, and the best of them.

    Parameters
    ----------
    risk : callable
        ``risk(x)``: P without its penalty.
    state : object
        With ``x``, the iterate, and ``dual``, a lower bound on the least P.
    tol : float
        Duality gap, of the primal value, at which to stop.
    callback : callable or None
        Hears of every epoch.
    """

    def __init__(self, risk, state, tol, callback):
        self.x, self.fun = state.x.copy(), np.inf
        self._risk, self._state, self._tol, self._callback = risk, state, tol, callback
        self._epochs, self._primal, self._dual = [], [], []
        self._message = None

    def ends(self, epoch, candidates, due):
        """Whether to stop after this epoch; the candidates are looked at if that is due."""
        if due:
            self._check(epoch, candidates)
        if stopped_at(self._callback, self._state.x, self.fun, self._state.dual, epoch):
            if not due:
                self._check(epoch, candidates)
            self._message = "STOP: by the callback"
        if due and is_closed(self.fun, self._state.dual, self._tol):
            self._message = "CONVERGENCE: duality gap within tol"
        return self._message is not None

    def _check(self, epoch, candidates):
        for x in candidates:
            primal = 0.5 * float(x @ x) + self._risk(x)
            if primal < self.fun:
                self.x, self.fun = x.copy(), primal
        self._epochs.append(epoch)
        self._primal.append(self.fun)
        self._dual.append(self._state.dual)

    def result(self, n_epochs, max_iter):
        """What the optimizer returns."""
        return OptimizeResult(
            x=self.x,
            fun=self.fun,
            dual=self._state.dual,
            gap=self.fun - self._state.dual,
            loss_curve=np.array(self._primal),
            dual_curve=np.array(self._dual),
            checks=np.array(self._epochs),
            nit=n_epochs,
            success=self._message is not None,
            message=self._message or f"STOP: max_iter={max_iter} epochs made",
        )
