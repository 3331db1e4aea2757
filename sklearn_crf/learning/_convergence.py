"""Convergence where features have outlying values: a test that these cannot pass alone, and units to go on in."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._reports import warn_caller
from sklearn_crf.optimize import AT_LIMIT, SHARE_LEFT, minimize_lbfgs

# Least share of the objective whose decrease is told from rounding.
_ROUNDING = 1e-10

# Most weights that are tried one by one; more are in so many groups.
_MOST_TRIALS = 64

# Curvature along a weight in units of the bulk that only outlying values make, and the share of it along the weight of
# another feature from which on the two weights can be traded: with less, the other one would have to move too far.
_MOST_CURVED, _COUPLED = 10.0, 0.1

# Attempts in the same units, each with an approximate Hessian of its own, after which nothing better is to be expected.
_MOST_IN_VAIN = 2

#: Messages of solvers that cannot go on, or hardly do, though the objective falls.
STUCK = "STOP: outlying values of features hide where the objective falls"
SLOW = "STOP: the objective still falls where the steps are too short"


def weights_left(problem: Any, x: np.ndarray, tol: float, *, among: np.ndarray | None = None) -> np.ndarray:
    r"""Find the weights along which the objective may fall by more than the tolerance.

    The unit of a feature with outlying values is set by these. Once their nodes are labelled with certainty, all other
    nodes move the gradient by too little to be seen. So the gradient is measured in units in which the bulk of every
    feature has a spread of one. Where it exceeds the tolerance, a trial step down the slope tells more: the step that
    would lower the objective by ``tol`` if it were as steep all along. If the slope has turned there, the least
    objective along that weight is closer, and lower by less. The weights of features without outlying values, which are
    steep only where rounding ended a solver, are tried together: all are left if the objective falls by half as much.

    Parameters
    ----------
    problem : PenalisedRisk
    x : ndarray of shape (n_coef,)
    tol : float
        Largest entry of the gradient, as of the solvers, and decrease of the objective per node that may be left along
        each weight.
    among : ndarray of shape (n_coef,), bool, optional
        Weights to look at; None is all.

    Returns
    -------
    ndarray of shape (n_coef,), bool
    """
    tails = problem.tails
    slope = problem.least_subgradient(x)
    steep = np.abs(slope) * tails > tol
    if among is not None:
        steep &= among
    left = np.zeros(len(x), dtype=bool)
    outlying, usual = np.flatnonzero(steep & (tails > 1)), np.flatnonzero(steep & (tails == 1))
    groups = _groups(outlying, _MOST_TRIALS) + _groups(usual, 1)
    value = problem.value(x)
    decrease = max(tol, _ROUNDING * abs(value))
    for group in groups:
        moved, tail = np.array(x), tails[group]
        if tail[0] == 1 and len(group) > 1:
            moved[group] -= decrease / float(slope[group] @ slope[group]) * slope[group]
            left[group] = problem.value(moved) < value - 0.5 * decrease
            continue
        step = decrease / slope[group]
        moved[group] -= step
        there = problem.least_subgradient(moved)
        if not np.all(np.isfinite(there)):
            left[group] = True
            continue
        left[group] |= (there[group] * slope[group] > 0) & (np.abs(there[group]) * tail > tol)
        # The change of the gradient, and what the bulk alone changes at most, in units of the bulk.
        change = np.abs(there - slope) * tails
        is_turned_by_outliers = change[group] > _MOST_CURVED * np.abs(step) / tail
        if is_turned_by_outliers.any():
            # Where outlying values of several features meet in a node, no weight falls alone, but two together may. The
            # weights of one feature have the same tail.
            coupled = (tails > 1) & (change > _COUPLED * change[group].max()) & ~np.isin(tails, tail)
            left |= coupled
            left[group] |= coupled.any() & (tail > 1)
    return left


def _groups(weights, n_most):
    """Weights one by one, or else in so many groups."""
    return np.array_split(weights, min(len(weights), n_most)) if len(weights) else []


def minimize_in_bulk(
    minimize: Callable,
    problem: Any,
    found: OptimizeResult,
    n_left: Callable[[], int],
    *,
    tol: float,
    callback: Callable,
    **options,
) -> OptimizeResult:
    """Go on from where a solver ended, until the objective falls along no weight any more.

    Weights along which it falls are counted in the spread of the bulk of their features, others as before.

    Parameters
    ----------
    minimize : callable
        The solver, of :mod:`sklearn_crf.optimize`.
    problem : PenalisedRisk
    found : OptimizeResult
        Its result.
    n_left : callable
        Number of iterations that are left; negative where the callback has asked to stop.
    tol : float
        Largest entry of the gradient, as of the solver.
    callback : callable
        As of the solver.
    **options : object
        Of the solver.

    Returns
    -------
    OptimizeResult
        ``success`` is True only if no weight is left.
    """
    # A loose tolerance leaves no more than a tight one.
    tol = min(tol, SHARE_LEFT * abs(found.fun))
    tails, units, reached, n_in_vain = problem.tails, None, np.inf, 0
    if not np.any(tails > 1) and not (found.success and problem.is_precise):
        return found
    while n_left() >= 0:
        left = weights_left(problem, found.x, tol, among=tails > 1 if "project" in options else None)
        if not left.any():
            if not found.success:
                found.success, found.message = True, "CONVERGENCE: the objective falls along no weight"
            break
        # Powers of two change units without rounding.
        new_units = np.where(left, np.exp2(np.round(np.log2(tails))), 1.0)
        # A first attempt may have got no further than to where outlying values no longer rule the slope.
        in_vain = units is not None and np.array_equal(units, new_units) and reached - found.fun <= tol
        n_in_vain = n_in_vain + 1 if in_vain else 0
        is_stuck = n_in_vain == _MOST_IN_VAIN
        if is_stuck or n_left() == 0:
            found.success, found.message = False, STUCK if is_stuck else AT_LIMIT
            break
        units, reached = new_units, found.fun
        options["max_iter"] = n_left()
        found = _minimize_in_units(minimize, problem, found.x, units, tol=tol, callback=callback, **options)
    return found


def _minimize_in_units(minimize, problem, x, units, *, callback, project=None, l1=None, curvature=None, **options):
    """The result of a solver that sees weights divided by their units."""

    def evaluate(z):
        value, gradient = problem.evaluate(units * z)
        return value, units * gradient

    if project is not None:
        options["project"] = lambda z: project(units * z) / units
    if l1 is not None:
        options["l1"] = l1 * units
    if curvature is not None:
        options["curvature"] = curvature * units**2
    found = minimize(evaluate, x / units, callback=lambda point: callback(_in_weights(point, units)), **options)
    return _in_weights(found, units)


def _in_weights(point, units):
    return OptimizeResult(point | {"x": units * point.x, "jac": point.jac / units})


def warn_unconverged(message, problem):
    """Warn of weights that are not optimal; the message says what happened and what to change."""
    norm = problem.record.gradient_norm[-1]
    warn_caller(f"{message} (norm of the gradient {norm:.3g}).", ConvergenceWarning)


def slope_left(problem, coef, tol, n_most):
    """Return why steps have not converged, with a warning, or None: a descent from their weights ends close by."""
    # n_most: most iterations of the descent
    objective = problem.risk.objective
    if not (objective.smooth and problem.has_value(coef)):
        # Without a loss to descend only a gradient that vanishes is an end; by labelings drawn it may do so by chance.
        steepest = np.abs(problem.least_subgradient(coef)).max(initial=0.0)
        is_over = not objective.draws and steepest <= (tol if objective.smooth else 0.0)
        return None if is_over else AT_LIMIT
    value, n_left = problem.value(coef), n_most
    # Steps have no such accuracy as L-BFGS, which shows what they left where its own gradient is much smaller.
    floor = value / (1 + SHARE_LEFT)
    tol = min(tol, SHARE_LEFT * (value - floor))

    def callback(point):
        nonlocal n_left
        n_left = -1 if point.fun < floor else n_left - 1
        return n_left < 0

    options = {"tol": tol, "callback": callback, "noise": objective.noise}
    seen = found = minimize_lbfgs(problem.evaluate, coef, max_iter=n_most, **options)
    if found.success and found.fun >= floor:
        found = minimize_in_bulk(minimize_lbfgs, problem, found, lambda: n_left, **options)
    if found.success and found.fun >= floor:
        return None
    is_hidden = found is not seen
    warn_unconverged(_OUTLIERS if is_hidden else _TOO_SLOW, problem)
    return STUCK if is_hidden else SLOW


_TOO_SLOW = (
    f"The steps make little progress, but the objective is not shown to be within {SHARE_LEFT:.0%} of its least: "
    "increase max_iter or step_size, or take solver='lbfgs'"
)

_OUTLIERS = (
    "Some features have outlying values, behind which training does not see where the objective falls: clip them, or "
    "transform X, as with NodeTransformer(QuantileTransformer())"
)


def warn_of_lbfgs(result, problem):
    """Warn that L-BFGS ended before it had converged."""
    if result.message == STUCK:
        warn_unconverged(_OUTLIERS, problem)
        return
    warn_unconverged(f"L-BFGS ended with {result.message!r}: increase max_iter, or scale the features", problem)
