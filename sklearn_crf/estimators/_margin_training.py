"""Training by margins: a risk of structured hinges in, weights with a duality gap out."""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._threads import ordered_map
from sklearn_crf.estimators._margin_dual import dual_hinge_risk, train_by_marginals
from sklearn_crf.estimators._margin_smoothed import train_smoothed
from sklearn_crf.estimators._progress import progress_reporter
from sklearn_crf.objectives import ForestDual, ForestPlanes, PlaneOracle, are_exact_by_kernel, risk_in_blocks
from sklearn_crf.optimize import bmrm, cutting_plane, frank_wolfe, one_slack, subgradient

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
