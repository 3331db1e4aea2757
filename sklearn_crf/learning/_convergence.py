"""Test of convergence for features with outliers. If it fails, minimisation continues with rescaled weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._reports import warn_caller
from sklearn_crf.objectives import choose_trees
from sklearn_crf.optimize import AT_LIMIT, SHARE_LEFT, minimize_lbfgs

# Smallest relative decrease of the objective that can be distinguished from rounding errors.
_ROUNDING = 1e-10

# Maximum number of trial steps. If there are more weights than this, groups of weights are tried together.
_MOST_TRIALS = 64

# Outliers are present if a gradient changes more than `_MOST_CURVED` times as much as the bulk of features explains.
# A change of one weight can offset a change of another if the ratio of their gradient changes exceeds `_COUPLED`.
# If the ratio of the gradient changes is smaller, the second weight would have to change too much.
_MOST_CURVED, _COUPLED = 10.0, 0.1

# Maximum number of successive attempts without progress at the same scales.
# Each attempt at the same scales builds a new approximate Hessian.
_MOST_IN_VAIN = 2

#: Messages of solvers that make little or no progress although the objective can still decrease.
STUCK = "STOP: outlying feature values dominate the gradient, but the objective can still decrease"
SLOW = "STOP: steps are too short, but the objective can still decrease"


def alternate_with_trees(
    train: Callable[[np.ndarray | None], np.ndarray | None],
    risk: Any,
    value: Callable[[np.ndarray], float],
    tol: float,
) -> bool:
    """Alternate between minimising over the weights and choosing each bound's trees; return whether both have ended.

    The bound is jointly convex in the weights and the probabilities of trees. The objective therefore falls towards the
    joint minimum.
    """
    # train: function that minimises from given weights, or from its own start if they are None; returns the new
    # weights, or None if training is over
    # value: function that returns the objective at given weights, for the trees chosen last
    # tol: training stops if a choice of trees lowers the objective by at most this fraction
    coef = train(None)
    while coef is not None:
        before = value(coef)
        risk.summed(choose_trees, coef, tol, changes=True)
        after = value(coef)
        if before - after <= tol * abs(after):
            return True
        coef = train(coef)
    return False


def weights_left(problem: Any, x: np.ndarray, tol: float, *, among: np.ndarray | None = None) -> np.ndarray:
    """Return a mask of the weights along which the objective may still decrease by more than the tolerance.

    If a feature has outliers, they determine its scale. Once the nodes with outliers are labelled with certainty, all
    other nodes contribute too little to the gradient to be noticed. The gradient is therefore measured for features
    that are scaled so that the bulk of each feature has a spread of one. If this gradient exceeds the tolerance along a
    weight, a trial step is made down the slope. The step would lower the objective by ``tol`` if the slope were
    constant. If the slope has changed its sign at the end of the step, the minimum along the weight is closer and the
    decrease is smaller. For features without outliers, the gradient exceeds the tolerance only if rounding errors have
    stopped a solver. The weights of these features are tried together: all are returned if the objective decreases by
    at least half of ``tol``.
    """
    # tol: maximum absolute gradient entry, and maximum decrease per node that changing a single weight may still give
    # among: (n_coef,) bool, mask of the weights to test; None to test all weights
    tails = problem.risk.potentials.tails
    slope = problem.compute_least_subgradient(x)
    steep = np.abs(slope) * tails > tol
    if among is not None:
        steep &= among
    left = np.zeros(len(x), dtype=bool)
    outlying, usual = np.flatnonzero(steep & (tails > 1)), np.flatnonzero(steep & (tails == 1))
    groups = _divide_into_groups(outlying, _MOST_TRIALS) + _divide_into_groups(usual, 1)
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
        there = problem.compute_least_subgradient(moved)
        if not np.all(np.isfinite(there)):
            left[group] = True
            continue
        left[group] |= (there[group] * slope[group] > 0) & (np.abs(there[group]) * tail > tol)
        # Change of the gradient, for features scaled so that their bulk has a spread of one.
        # Only outliers change the gradient by more than `_MOST_CURVED` times the step.
        change = np.abs(there - slope) * tails
        is_turned_by_outliers = change[group] > _MOST_CURVED * np.abs(step) / tail
        if is_turned_by_outliers.any():
            # If a node has outliers in several features, lowering the objective may require a change of two weights.
            # Weights with the same tail are excluded, because they may belong to the same feature.
            coupled = (tails > 1) & (change > _COUPLED * change[group].max()) & ~np.isin(tails, tail)
            left |= coupled
            left[group] |= coupled.any() & (tail > 1)
    return left


def _divide_into_groups(weights, n_most):
    """Divide weights into groups: one group for each weight, or ``n_most`` groups if there are more weights."""
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
    """Continue from the result of a solver until the objective no longer decreases along any weight.

    If the objective can decrease along a weight, the weight is rescaled to the spread of the bulk of its feature. Other
    weights are not rescaled. ``success`` of the result is True only if the objective no longer decreases along any
    weight.
    """
    # minimize: solver from sklearn_crf.optimize, with its ``callback`` and further ``options``
    # found: result of the solver
    # n_left: function that returns the number of remaining iterations, or a negative number to stop
    # Even with a loose tolerance, the remaining decrease must be small relative to the objective.
    tol = min(tol, SHARE_LEFT * abs(found.fun))
    tails, units, reached, n_in_vain = problem.risk.potentials.tails, None, np.inf, 0
    # If a risk is approximate or noisy, its gradient is not the exact gradient of its value.
    is_precise = problem.risk.is_exact and not problem.risk.objective.noise
    if not np.any(tails > 1) and not (found.success and is_precise):
        return found
    while n_left() >= 0:
        left = weights_left(problem, found.x, tol, among=tails > 1 if "project" in options else None)
        if not left.any():
            if not found.success:
                found.success, found.message = True, "CONVERGENCE: the objective falls along no weight"
            break
        # Scales are powers of two, because multiplying by a power of two causes no rounding error.
        new_units = np.where(left, np.exp2(np.round(np.log2(tails))), 1.0)
        # The first attempt with new scales never counts as an attempt without progress.
        # The first attempt may have served only to reach a point at which outliers no longer dominate the gradient.
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
    """Run a solver on weights divided by ``units``, and convert its result to the original weights."""

    def evaluate(z):
        value, gradient = problem.evaluate(units * z)
        return value, units * gradient

    if project is not None:
        options["project"] = lambda z: project(units * z) / units
    if l1 is not None:
        options["l1"] = l1 * units
    if curvature is not None:
        options["curvature"] = curvature * units**2
    found = minimize(evaluate, x / units, callback=lambda point: callback(_restore_weights(point, units)), **options)
    return _restore_weights(found, units)


def _restore_weights(point, units):
    return OptimizeResult(point | {"x": units * point.x, "jac": point.jac / units})


def warn_unconverged(message, problem):
    """Warn that the weights are not optimal; ``message`` says what happened and what to change."""
    norm = problem.record.gradient_norm[-1]
    warn_caller(f"{message} (norm of the gradient {norm:.3g}).", ConvergenceWarning)


def check_remaining_slope(problem, coef, tol, n_most):
    """Check, by a descent from the final weights, whether gradient steps have converged.

    Return None if the steps have converged, otherwise the reason why they stopped. If there is a loss, also warn.
    """
    # n_most: maximum number of iterations of the descent
    objective = problem.risk.objective
    if not (objective.smooth and problem.has_value(coef)):
        # Without a loss, only a zero gradient is a sign of convergence.
        # If labelings are drawn at random, the gradient may be zero by chance.
        steepest = np.abs(problem.compute_least_subgradient(coef)).max(initial=0.0)
        is_over = not objective.draws and steepest <= (tol if objective.smooth else 0.0)
        return None if is_over else AT_LIMIT
    value, n_left = problem.value(coef), n_most
    # L-BFGS needs a tighter tolerance than gradient steps to show the decrease that the gradient steps missed.
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
    f"The steps make little progress, but the objective may be more than {SHARE_LEFT:.0%} above its minimum: "
    "increase max_iter or step_size, or use solver='lbfgs'"
)

_OUTLIERS = (
    "Some features have outlying values, which dominate the gradient although the objective can still decrease: clip "
    "the values, or transform X, for example with NodeTransformer(QuantileTransformer())"
)


def warn_of_lbfgs(result, problem, max_iter):
    """Warn that L-BFGS ended before convergence."""
    # max_iter: the estimator's parameter, which the message quotes
    if result.message == STUCK:
        warn_unconverged(_OUTLIERS, problem)
        return
    remedy = f"increase max_iter={max_iter}, or scale the features"
    warn_unconverged(f"L-BFGS ended with {result.message!r}: {remedy}", problem)
