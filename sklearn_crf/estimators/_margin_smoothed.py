"""Training by margins at a temperature: a smooth problem, and what its solution lacks to that without temperature."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.special import entr

from sklearn_crf._threads import map_tasks
from sklearn_crf.objectives import JointRisk
from sklearn_crf.optimize import minimize_lbfgs


class SmoothedOutcome(NamedTuple):
    """What minimising at a temperature found; ``passes`` over all examples made at each point of the curves."""

    coef: np.ndarray
    found: OptimizeResult
    gap: float
    passes: np.ndarray


class _Problem:
    r"""The penalised risk over weights, and over shares behind them that have no penalty.

    .. math:: P(x, \lambda) = \tfrac12 \lVert x \rVert^2 + C R(\mathrm{scale} \cdot x, \lambda)
    """

    def __init__(self, risk, options):
        self.risk, self.C = risk, options.C
        self.n_weights, n = len(options.scale), risk.potentials.n_coef
        self.scale = np.concatenate((options.scale, np.ones(n - self.n_weights)))
        self.bounded = np.concatenate((options.lower_bounded, np.zeros(n - self.n_weights, dtype=bool)))
        self.n_passes = 0

    def value_grad(self, x):
        """P and its gradient."""
        result = self.risk.value_grad(self.scale * x)
        self.n_passes += 1
        own = x[: self.n_weights]
        gradient = self.C * self.scale * result.gradient
        gradient[: self.n_weights] += own
        return 0.5 * float(own @ own) + self.C * result.value, gradient

    def project(self, x):
        """The nearest point within the bounds."""
        return np.where(self.bounded, np.maximum(x, 0.0), x)

    def lacks(self, x, gradient):
        """What P without shares may be above its least, at most: half the squared gradient, for it bends as |x|^2/2."""
        step = self.project(x - gradient) - x
        return -float(gradient @ step + 0.5 * step @ step)

    def minimize(self, x, max_iter, callback):
        """A minimum, by L-BFGS."""
        limits = {"lower_bounded": self.bounded, "max_iter": max_iter, "tol": 0.0}
        return minimize_lbfgs(self.value_grad, x, callback=callback, **limits)


def train_smoothed(risk, start, options, joint, callback):
    r"""Minimise half the squared weights plus C times hinges at a temperature that falls to its last value.

    .. math:: P_0(w) \le P_T(w) \le P_0(w) + C \, T \sum_i \omega_i \sum_s \log K_s

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.SoftmaxMargin`.
    start : ndarray of shape (n_coef,)
    options : MarginOptions
    joint : bool
        Whether shares of scores are variables beside the weights.
    callback : callable
        Called with ``x``, ``fun`` and ``dual`` of every iterate; True asks to stop.

    Returns
    -------
    SmoothedOutcome
    """
    last, objective = risk.objective.temperature, risk.objective
    problem = _Problem(JointRisk(risk) if joint else risk, options)
    plain = _Problem(risk, options) if joint else problem
    x = np.concatenate((start / options.scale, np.zeros(len(problem.scale) - problem.n_weights)))
    curves, passes, best_dual, message = ([], []), [], 0.0, None
    entropy = options.C * _largest_entropy(risk)

    def visit(point):
        nonlocal best_dual, message
        # At any temperature, less all that entropy can add: a bound on what there is without temperature.
        slope = np.where(np.arange(len(point.x)) < problem.n_weights, point.jac, 0.0)
        lacks = problem.lacks(point.x, slope)
        # How far marginals of trees are apart.
        apart = np.abs(point.jac - slope).max(initial=0.0) / (options.C * objective.temperature)
        if not joint:
            best_dual = max(best_dual, point.fun - lacks - objective.temperature * entropy)
        curves[0].append(point.fun)
        curves[1].append(best_dual)
        passes.append(problem.n_passes)
        own = point.x[: problem.n_weights]
        if callback(OptimizeResult(x=own, fun=point.fun, dual=best_dual)):
            message = "STOP: by the callback"
        return message is not None or (lacks <= options.tol * abs(point.fun) and apart <= options.tol)

    try:
        for temperature in _falling(last):
            x[problem.n_weights :] *= objective.temperature / temperature
            objective.temperature = temperature
            risk.forget()
            found = problem.minimize(x, options.max_iter, visit)
            x = problem.project(found.x)
            if message is not None:
                break
    finally:
        objective.temperature = last
    own = x[: problem.n_weights]
    # Messages of another temperature are no place to start from, and with shares the gradient is not that of weights.
    value, gradient = plain.value_grad(own)
    entropy = options.C * _entropy(risk, options.scale * own)
    best_dual = max(best_dual, value - plain.lacks(own, gradient) - last * entropy)
    curves[0].append(value)
    curves[1].append(best_dual)
    passes.append(problem.n_passes + 1 + joint)
    success = message is not None or plain.lacks(own, gradient) <= 2 * options.tol * abs(value)
    result = OptimizeResult(
        x=own,
        fun=value,
        dual=best_dual,
        gap=value - best_dual,
        loss_curve=np.array(curves[0]),
        dual_curve=np.array(curves[1]),
        nit=len(curves[0]),
        success=success,
        message=message or ("CONVERGENCE: gradient small" if success else f"STOP: {found.message}"),
    )
    return SmoothedOutcome(options.scale * own, result, result.gap, np.array(passes))


def _falling(last):
    """Temperatures from one down to the last."""
    temperatures = []
    temperature = 1.0
    while temperature > _FACTOR * last:
        temperatures.append(temperature)
        temperature /= _FACTOR
    return [*temperatures, last]


# Between one temperature and the next.
_FACTOR = 10.0


def _entropy(risk, coef):
    """Summed over examples and nodes, of the marginals of training: never less than the entropy of the relaxation."""

    def of_batch(i, n_threads):
        batch = risk.batches[i]
        share = risk.loss(i, coef, n_threads=n_threads).statistics.unary.astype(np.float64)
        share[np.arange(len(share)), batch.labels] += 1.0
        weight = np.ones(len(batch.members)) if batch.weight is None else batch.weight
        return float(np.repeat(weight, np.diff(batch.node_ptr)) @ entr(np.clip(share, 0.0, 1.0)).sum(axis=1))

    return sum(map_tasks(of_batch, range(len(risk.batches)), risk.n_jobs))


def _largest_entropy(risk):
    """Summed over examples, their weights and nodes: the logarithm of the number of states."""
    total = 0.0
    for batch in risk.batches:
        counts = batch.example.n_states
        weight = np.ones(len(batch.members)) if batch.weight is None else batch.weight
        node_weight = np.repeat(weight, np.diff(batch.node_ptr))
        total += float(
            node_weight @ np.log(np.full(len(node_weight), risk.potentials.n_classes) if counts is None else counts)
        )
    return total
