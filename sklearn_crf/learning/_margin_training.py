"""Training by margins: a risk of structured hinges in, weights with a duality gap out."""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.optimize import OptimizeResult
from scipy.special import entr
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._callbacks import progress_reporter
from sklearn_crf._threads import map_tasks, ordered_map
from sklearn_crf.objectives import (
    DualBlock,
    EmpiricalRisk,
    ForestDual,
    ForestPlanes,
    JointRisk,
    PlaneOracle,
    RelaxedHinge,
    are_exact_by_kernel,
    risk_in_blocks,
)
from sklearn_crf.optimize import (
    bmrm,
    cutting_plane,
    exponentiated_gradient,
    frank_wolfe,
    minimize_lbfgs,
    one_slack,
    subgradient,
)


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


class _ScaledBlock(DualBlock):
    """A block that sees x of w = scale x, as the solvers of primal problems do."""

    def __init__(self, scale, *arguments):
        self._scale = scale
        super().__init__(*arguments)

    def scores(self, coef):
        return super().scores(self._scale * coef)

    def pullback(self, marginals):
        return super().pullback(marginals) * self._scale[self.touched]


def dual_hinge_risk(risk, inference):
    """The same examples under the relaxed hinge, to which the relaxed quadratic programme is the dual.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.SoftmaxMargin`.
    inference : Inference
        One with fractional solutions.

    Returns
    -------
    EmpiricalRisk
    """
    hinge = RelaxedHinge(inference, risk.objective.cost)
    return EmpiricalRisk(hinge, risk.potentials, risk.batches, n_jobs=risk.n_jobs, seed=risk.seed)


def train_by_marginals(risk, value_grad, options, rng, callback):
    r"""Maximise the relaxed dual by exponentiated gradient, one example after the other.

    .. math::
        \max_{\tau_i \in L_i} \; C \sum_i \omega_i \langle \Delta_i, \tau_i \rangle - \tfrac12 \lVert w(\tau) \rVert^2,
        \qquad w(\tau) = C \sum_i \omega_i B(x_i)^\top (\phi(y_i) - \tau_i)

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.SoftmaxMargin` over a relaxed likelihood, whose marginals stay within L.
    value_grad : callable
        Value and gradient of the relaxed hinges without penalty, at x.
    options : MarginOptions
    rng : RandomState
    callback : callable
        Called with ``x``, ``fun`` and ``dual`` of every epoch; True asks to stop.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As block solvers return, each epoch checked.
    """
    weights = [1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches]
    start = np.zeros(len(options.scale))
    blocks = [
        _ScaledBlock(options.scale, risk, i, options.C * weight, start)
        for i, weight in enumerate(weights)
        if weight > 0
    ]
    best, closed = OptimizeResult(x=start, fun=np.inf), False
    curves = [], []

    def primal(x):
        value, slope = value_grad(x)
        return 0.5 * float(x @ x) + value, x + slope

    def visit(point):
        nonlocal best, closed
        if point.fun < best.fun:
            best = OptimizeResult(x=point.x, fun=point.fun)
        curves[0].append(best.fun)
        curves[1].append(point.dual)
        closed = best.fun - point.dual <= options.tol * abs(best.fun)
        return callback(OptimizeResult(x=best.x, fun=best.fun, dual=point.dual)) or closed

    found = exponentiated_gradient(
        blocks, primal, temperature=0.0, max_iter=options.max_iter, tol=0.0, random_state=rng, callback=visit
    )
    dual = max(curves[1])
    return OptimizeResult(
        x=best.x,
        fun=best.fun,
        dual=dual,
        gap=best.fun - dual,
        loss_curve=np.array(curves[0]),
        dual_curve=np.maximum.accumulate(curves[1]),
        nit=found.nit,
        success=found.success,
        message="CONVERGENCE: duality gap within tol" if closed else found.message,
    )


#: Solvers that go through the examples block by block, each step a few of them.
BLOCK_SOLVERS = {
    "cutting_plane": cutting_plane,
    "one_slack": one_slack,
    "frank_wolfe": frank_wolfe,
    "subgradient": subgradient,
}

SOLVERS = ("bmrm", "lbfgs", *BLOCK_SOLVERS)


class MarginOptions(NamedTuple):
    """Constructor parameters that govern training."""

    problem: str  # "planes", "dual", "joint", or another that is smooth
    inference: object  # that of prediction
    solver: str
    C: float
    scale: np.ndarray  # (n_coef,) solvers see weights divided by it, and penalise those
    lower_bounded: np.ndarray  # (n_coef,) bool
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int


@dataclass(eq=False)
class MarginTrace:
    """What training has visited."""

    loss: list = field(default_factory=list)
    dual: float = 0.0
    calls: list = field(default_factory=list)

    def summary(self):
        """The latest entry in words, for a progress bar."""
        return f"loss {self.loss[-1]:.6g}, dual {self.dual:.6g}"


@dataclass(eq=False)
class MarginOutcome:
    """What training found."""

    coef: np.ndarray  # (n_coef,)
    found: object  # the optimizer's result
    gap: float
    calls_curve: np.ndarray  # best labelings of one example asked for, at each point of the curves
    n_inference_calls: int
    interrupted: BaseException | None = None


class PenalisedHinge:
    r"""The risk of structured hinges, as optimizers see it.

    .. math:: R(x) = C \sum_i \omega_i \, \ell_i(\mathrm{scale} \cdot x), \qquad P(x) = \tfrac12 \lVert x \rVert^2 +
    R(x)

    It remembers how much the best P that it met may be too small by, if losses were maxima that nothing proves.
    """

    def __init__(self, risk, options):
        self.risk = risk
        self.n_inference_calls = 0
        self.best = np.inf
        self.lacking = 0.0
        self._C, self._scale = options.C, options.scale
        self._n_examples = sum(len(batch.members) for batch in risk.batches)

    def value_grad(self, x):
        """R and a subgradient."""
        result = self.risk.value_grad(self._scale * x)
        self.n_inference_calls += self._n_examples
        value = self._C * result.value
        primal = 0.5 * float(x @ x) + value
        if primal < self.best:
            self.best, self.lacking = primal, self._C * result.gap
        return value, self._C * self._scale * result.gradient

    def value(self, x):
        """R."""
        return self.value_grad(x)[0]


def train_by_margins(risk, start, options, rng, on_iteration):
    """Minimise half the squared weights plus C times the structured hinges.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.StructuredHinge`.
    start : ndarray of shape (n_coef,)
        For the bundle method; those that go block by block begin at zero.
    options : MarginOptions
    rng : RandomState
        For the order of blocks.
    on_iteration : callable(coef) -> bool
        Called with every iterate; True asks to stop.

    Returns
    -------
    MarginOutcome
    """
    train = {"planes": _train_by_planes, "dual": _train_dual}.get(options.problem, _train_smoothed)
    outcome = train(risk, start, options, rng, on_iteration)
    if not outcome.found.success:
        _warn(outcome.found, options)
    return outcome


def _train_smoothed(risk, start, options, rng, on_iteration):
    trace = MarginTrace()
    n_examples = sum(len(batch.members) for batch in risk.batches)
    with progress_reporter(options.verbose, options.max_iter, options.problem) as show:

        def callback(point):
            trace.loss.append(point.fun)
            trace.dual = point.dual
            show(trace)
            return on_iteration(options.scale * point.x)

        found = train_smoothed(risk, start, options, options.problem == "joint", callback)
    calls = n_examples * found.passes
    return MarginOutcome(found.coef, found.found, found.gap, calls, int(calls[-1]))


def _train_dual(risk, start, options, rng, on_iteration):
    problem = PenalisedHinge(dual_hinge_risk(risk, options.inference), options)
    trace = MarginTrace()
    with progress_reporter(options.verbose, options.max_iter, options.problem) as show:

        def callback(point):
            trace.loss.append(point.fun)
            trace.dual = point.dual
            trace.calls.append(problem.n_inference_calls)
            show(trace)
            return on_iteration(options.scale * point.x)

        found = train_by_marginals(risk, problem.value_grad, options, rng, callback)
    return MarginOutcome(
        options.scale * found.x, found, found.gap + problem.lacking, np.array(trace.calls), problem.n_inference_calls
    )


def _train_by_planes(risk, start, options, rng, on_iteration):
    by_kernel = are_exact_by_kernel(risk)
    if not by_kernel:
        risk, blocks = risk_in_blocks(risk)
    problem = PenalisedHinge(risk, options)
    trace = MarginTrace()
    with (
        progress_reporter(options.verbose, options.max_iter, options.solver) as show,
        ordered_map(effective_n_jobs(options.n_jobs)) as map_in_threads,
    ):
        if by_kernel:
            oracle = ForestPlanes(risk, options.C, options.scale, map_in_threads)
        else:
            oracle = PlaneOracle(risk, options.C, options.scale, blocks, map_in_threads)

        def callback(point):
            trace.loss.append(point.fun)
            trace.dual = point.dual
            trace.calls.append(problem.n_inference_calls + oracle.n_inference_calls)
            show(trace)
            return on_iteration(oracle.weights_of(point.x))

        limits = {"max_iter": options.max_iter, "tol": options.tol, "callback": callback}
        solve = _by_passes if options.solver == "bmrm" else _by_blocks
        found = solve(problem, oracle, start, options, rng, limits)
        coef = oracle.weights_of(found.x)
    n_calls = problem.n_inference_calls + oracle.n_inference_calls
    calls = np.array(trace.calls)[found.get("checks", np.arange(1, found.nit + 1)) - 1]
    return MarginOutcome(coef, found, found.gap + problem.lacking, calls, n_calls)


def _by_passes(problem, oracle, start, options, rng, limits):
    bounded, value_grad, start = options.lower_bounded, problem.value_grad, start / options.scale
    if isinstance(oracle, ForestPlanes):
        bounded, value_grad, start = bounded[oracle.places], oracle.value_grad, start[oracle.places]
    return bmrm(value_grad, start, floor=0.0, lower_bounded=bounded, **limits)


def _by_blocks(problem, oracle, start, options, rng, limits):
    bounded, value = options.lower_bounded, problem.value
    if isinstance(oracle, ForestPlanes):
        bounded, value = bounded[oracle.places], oracle.value
        if options.solver == "frank_wolfe":
            limits["dual"] = ForestDual(oracle, bounded)
    solve = BLOCK_SOLVERS[options.solver]
    return solve(oracle, oracle.sizes, value, len(bounded), lower_bounded=bounded, random_state=rng, **limits)


def _warn(found, options):
    share = found.gap / max(abs(found.fun), np.finfo(np.float64).tiny)
    warnings.warn(
        f"solver={options.solver!r} ended with {found.message!r} at a duality gap of {share:.2g} of the objective: "
        "increase max_iter or tol, decrease C, or scale the features.",
        ConvergenceWarning,
        stacklevel=6,
    )
