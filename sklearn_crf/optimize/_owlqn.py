"""Orthant-wise limited-memory quasi-Newton method, for L1 penalties, and for L-BFGS with little memory."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates

# Number of steps, each with its gradient change, that define the approximate Hessian.
_CORRECTIONS = 6

# Vectors are processed in parts of this number of entries, to limit peak memory.
_PART = 2**13

# Line search: sufficient fraction of the predicted decrease; backtracking factor; maximum number of points tried.
_DECREASE, _SHRINK, _MOST_SHRINKS = 1e-4, 0.5, 40


def minimize_owlqn(
    fun: _iterates.ValueGradient,
    x0: ArrayLike,
    *,
    l1: ArrayLike = 0.0,
    curvature: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 0.0001,
    most_left: float = np.inf,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a smooth function plus an L1 penalty by orthant-wise limited-memory quasi-Newton steps.

    .. math:: \min_x \; f(x) + \sum_i \lambda_i |x_i|

    Parameters
    ----------
    fun : callable
        ``fun(x)`` returns the value of f, a float, and its gradient, an ndarray of shape (n,) that it does not
        modify afterwards.
    x0 : array-like of shape (n,)
        Starting point.
    l1 : float or array-like of shape (n,), default=0.0
        Weights of the penalty, not negative. If all are zero, the method is L-BFGS with a backtracking line search.
    curvature : array-like of shape (n,), optional
        Positive numbers proportional to the expected curvature of f along each coordinate. They are the diagonal of the
        initial approximate Hessian. None means one for all coordinates.
    max_iter : int, default=100
        Maximum number of iterations.
    tol : float, default=1e-4
        Iterations stop when the largest absolute entry of the subgradient of least norm is at most ``tol``.
    most_left : float, default=inf
        Maximum fraction of the value by which it may still decrease at convergence, estimated from the last iterations.
    callback : callable, optional
        Called as ``callback(intermediate)`` after each iteration. The fields of ``intermediate`` are ``x``, ``fun``
        (penalty included), ``jac`` (of the smooth part) and ``nit``. Iterations stop if it returns a true value or
        raises StopIteration.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, ``fun``, ``jac`` (the subgradient of least norm), ``nit``, ``nfev``, ``success``, ``message``, and
        ``loss_curve``: the value, penalty included, at the start and after each iteration.

    Raises
    ------
    ValueError
        If ``x0`` is not a finite vector, ``l1`` is negative, ``curvature`` is not positive and finite, or ``fun`` is
        not finite at the start.

    References
    ----------
    G. Andrew, J. Gao. Scalable training of L1-regularized log-linear models. ICML 2007, :doi:`10.1145/1273496.1273501`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.optimize import minimize_owlqn
    >>> target = np.array([3.0, 0.5])
    >>> found = minimize_owlqn(
    ...     lambda x: (0.5 * np.sum((x - target) ** 2), x - target), np.zeros(2), l1=1.0
    ... )
    >>> found.x.round(4)
    array([2., 0.])
    """
    x = _iterates.check_start(x0)
    l1 = np.asarray(l1, dtype=np.float64)
    if not np.all(l1 >= 0):
        raise ValueError(f"l1 must not be negative or NaN, got {l1.min()}.")
    curvature = _check_curvature(curvature, len(x))
    if max_iter < 0:
        raise ValueError(f"max_iter must not be negative, got {max_iter!r}.")
    value, gradient = _evaluate(fun, x, l1)
    if not np.isfinite(value):
        raise ValueError(f"fun must be finite at x0, got value {value}.")
    pairs: deque = deque(maxlen=_CORRECTIONS)
    curve, n_evaluations = [value], 1
    message = _iterates.AT_LIMIT
    for _ in range(max_iter):
        slope = compute_least_subgradient(x, gradient, l1)
        if _iterates.has_converged(_iterates.largest(slope), curve, tol, most_left):
            message = "CONVERGENCE: subgradient within tol"
            break
        found, n_tried = _search_line(fun, x, value, slope, l1, pairs, curvature)
        if found is None and pairs:
            # The approximate Hessian may be misleading, so the search is repeated without it, along the gradient.
            pairs.clear()
            found, n_more = _search_line(fun, x, value, slope, l1, pairs, curvature)
            n_tried += n_more
        n_evaluations += n_tried
        if found is None:
            message = "ABNORMAL: no better point on the line"
            break
        new_x, new_value, new_gradient = found
        _remember(pairs, x, gradient, new_x, new_gradient)
        fall = value - new_value
        x, value, gradient = new_x, new_value, new_gradient
        curve.append(value)
        if _iterates.notify_callback(callback, x=x, fun=value, jac=gradient, nit=len(curve) - 1):
            message = "STOP: by the callback"
            break
        if fall <= 0:
            message = "CONVERGENCE: the value no longer changes"
            break
    slope = compute_least_subgradient(x, gradient, l1)
    x.flags.writeable = True
    meets_tol = _iterates.has_converged(_iterates.largest(slope), curve, tol, most_left)
    return _iterates.build_result(x, value, slope, curve, n_evaluations, message, meets_tol)


def _check_curvature(curvature, n):
    if curvature is None:
        return np.broadcast_to(1.0, n)
    curvature = np.asarray(curvature)
    if curvature.dtype != np.float32:
        curvature = curvature.astype(np.float64)
    if curvature.shape != (n,) or not np.all(np.isfinite(curvature) & (curvature > 0)):
        raise ValueError(f"curvature must hold {n} positive and finite numbers.")
    return curvature


def _evaluate(fun, x, l1):
    # From here on, x is not modified. Its read-only flag tells ``fun`` that x can be stored without a copy.
    x.flags.writeable = False
    value, gradient = fun(x)
    penalty = float(np.sum(l1 * np.abs(x))) if l1.any() else 0.0
    return float(value) + penalty, np.asarray(gradient, dtype=np.float64)


def compute_least_subgradient(x, gradient, l1):
    """Return the subgradient of least norm; its entry is 0 where x is 0 and the penalty outweighs the gradient."""
    if not l1.any():
        return gradient
    shrunk = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(x == 0, shrunk, gradient + l1 * np.sign(x))


def _search_line(fun, x, value, slope, l1, pairs, curvature):
    """Search a line in the orthant of x for sufficient decrease; return the point or None, and the number of trials."""
    has_l1 = l1.any()
    if has_l1:
        penalised = l1 > 0
        orthant = np.where(x == 0, -np.sign(slope), np.sign(x))
    step = 1.0
    for n_tried in range(1, _MOST_SHRINKS + 1):
        # The direction is computed again for each point, because storing it would take as much memory as x.
        # Few searches try a second point, so the direction is rarely computed twice.
        new_x = _compute_newton_direction(slope, pairs, curvature)
        if has_l1:
            new_x[penalised & (new_x * slope >= 0)] = 0.0
        if not pairs and n_tried == 1:
            step = 1.0 / max(float(np.linalg.norm(new_x)), np.finfo(float).tiny)
        new_x *= step
        new_x += x
        if has_l1:
            new_x[penalised & (new_x * orthant <= 0)] = 0.0
        new_value, new_gradient = _evaluate(fun, new_x, l1)
        expected = sum(float(slope[part] @ (new_x[part] - x[part])) for part in _parts(x))
        if expected < 0 and new_value <= value + _DECREASE * expected and np.all(np.isfinite(new_gradient)):
            return (new_x, new_value, new_gradient), n_tried
        del new_x, new_gradient
        step *= _SHRINK
    return None, _MOST_SHRINKS


def _compute_newton_direction(slope, pairs, scale):
    """Compute the negative product of the approximate inverse Hessian and the slope, by the two-loop recursion."""
    direction = -slope
    shares = []
    for s, y, curvature in reversed(pairs):
        share = float(s @ direction) / curvature
        direction -= share * y
        shares.append(share)
    direction /= scale
    if pairs:
        s, y, curvature = pairs[-1]
        direction *= curvature / sum(float(y[part] @ (y[part] / scale[part])) for part in _parts(y))
    for (s, y, curvature), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(y @ direction) / curvature) * s
    return direction


def _remember(pairs, x, gradient, new_x, new_gradient):
    """Store a step, and the change of the gradient between its ends, if the curvature along the step is positive."""
    # Steps and gradient changes are stored in single precision: they take most memory and need not be exact.
    kept = pairs.popleft()[:2] if len(pairs) == pairs.maxlen else (np.empty(len(x), dtype=np.float32) for _ in range(2))
    s, y = kept
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(new_x, x, out=s, casting="same_kind")
        np.subtract(new_gradient, gradient, out=y, casting="same_kind")
        curvature, square = _compute_dot(s, y), _compute_dot(y, y)
    if np.finfo(float).eps * square < curvature < np.inf:
        pairs.append((s, y, curvature))


def _compute_dot(a, b):
    """Return the scalar product of two vectors in double precision."""
    return sum(float(a[part].astype(np.float64) @ b[part]) for part in _parts(a))


def _parts(vector):
    return [slice(first, first + _PART) for first in range(0, len(vector), _PART)]
