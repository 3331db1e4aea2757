"""The small dual of cutting planes, by an active-set method."""

import numpy as np

# Violation of optimality that counts as none, of the largest gradient and diagonal entry.
_PRECISION = 1e-12

# Planes may depend on each other linearly: so much is added to the diagonal, of its largest entry.
_RIDGE = 1e-13


def maximize_on_simplex(gram, offset, start, n_simplex):
    r"""Maximize a concave quadratic function over a simplex and half-lines.

    .. math::
        \max_a \; o^\top a - \tfrac12 a^\top G a, \qquad a \ge 0, \quad \sum_{k < p} a_k = 1

    A primal active-set method: exact up to rounding, and a few steps from a start that is nearly right.

    Parameters
    ----------
    gram : ndarray of shape (n, n), float64
        G, positive semidefinite.
    offset : ndarray of shape (n,), float64
        o.
    start : ndarray of shape (n,), float64
        Feasible.
    n_simplex : int
        p; variables from there on are half-lines.

    Returns
    -------
    ndarray of shape (n,)

    References
    ----------
    J. Nocedal and S. J. Wright. Numerical Optimization, 2nd ed., 2006, section 16.5.
    """
    weight = start.copy()
    free = weight > 0
    in_simplex = np.arange(len(weight)) < n_simplex
    ridge = _RIDGE * max(float(gram.diagonal().max(initial=0.0)), np.finfo(np.float64).tiny)
    for _ in range(20 * len(weight) + 100):
        members = np.flatnonzero(free)
        found, level = _stationary(gram, offset, members, in_simplex[members], ridge)
        negative = found < 0
        if negative.any():
            _move_to_boundary(weight, free, members, found, negative)
            continue
        weight[members] = found
        gradient = offset - gram @ weight
        violation = np.where(free, 0.0, gradient - np.where(in_simplex, level, 0.0))
        best = int(np.argmax(violation))
        # The ridge alone violates by its own size, which counts as none even where all gradients are zero.
        if violation[best] <= _PRECISION * (np.abs(gradient).max() + gram.diagonal().max()):
            break
        free[best] = True
    return weight


def _stationary(gram, offset, members, in_simplex, ridge):
    """Best point of the free variables if they could be negative, and the multiplier of their sum."""
    n_free = len(members)
    system = np.zeros((n_free + 1, n_free + 1))
    system[:n_free, :n_free] = gram[np.ix_(members, members)]
    system[np.arange(n_free), np.arange(n_free)] += ridge
    system[:n_free, n_free] = system[n_free, :n_free] = in_simplex
    found = np.linalg.solve(system, np.append(offset[members], 1.0))
    return found[:n_free], found[n_free]


def _move_to_boundary(weight, free, members, found, negative):
    """Go towards a point as far as no weight turns negative; the first to vanish is free no more."""
    now = weight[members]
    length = np.where(negative, now / np.where(negative, now - found, 1.0), np.inf)
    first = int(np.argmin(length))
    weight[members] = np.maximum(now + min(length[first], 1.0) * (found - now), 0.0)
    weight[members[first]] = 0.0
    free[members[first]] = False
