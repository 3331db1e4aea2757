"""What the methods with a duality gap share: when it is closed, and bounds."""

import numpy as np

from sklearn_crf.optimize._iterates import stopped_by


def is_closed(primal, dual, tol):
    """Whether the gap is within ``tol`` of the primal value, or of rounding."""
    return primal - dual <= max(tol * abs(primal), 1e-14 * max(abs(primal), abs(dual)))


def checked_bounds(lower_bounded, n):
    """(n,) bool: which entries must not be negative."""
    if lower_bounded is None:
        return np.zeros(n, dtype=bool)
    bounded = np.asarray(lower_bounded, dtype=bool)
    if bounded.shape != (n,):
        raise ValueError(f"lower_bounded must have shape ({n},), got {bounded.shape}.")
    return bounded


def stopped_at(callback, x, primal, dual, nit):
    """True if the callback wants to stop at this point."""
    return stopped_by(callback, x=x.copy(), fun=primal, dual=dual, nit=nit)
