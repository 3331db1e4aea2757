"""Training: a risk and a start in, weights and what was visited on the way out."""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._callbacks import progress_reporter
from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import TreeInference
from sklearn_crf.objectives import Likelihood
from sklearn_crf.optimize import CycleDetector, gradient_ascent, minimize_lbfgs, minimize_owlqn, minimize_sgd

# Weights are recorded at every iteration while the whole record stays below this many numbers.
_RECORD_LIMIT = 2_000_000


@dataclass(eq=False)
class Trace:
    """What training has visited, an entry an iteration."""

    loss: list = field(default_factory=list)
    errors: list = field(default_factory=list)
    gradient_norm: list = field(default_factory=list)
    n_nonsubmodular: list = field(default_factory=list)
    coef: list = field(default_factory=list)
    gradient: list = field(default_factory=list)
    inference_converged: bool = True  # at the latest entry
    latest: np.ndarray | None = None

    def summary(self):
        """The latest entry in words, for a progress bar."""
        parts = [f"gradient {self.gradient_norm[-1]:.3g}"]
        if self.loss[-1] is not None:
            parts.insert(0, f"loss {self.loss[-1]:.6g}")
        if self.errors[-1] is not None:
            parts.append(f"errors {self.errors[-1]:g}")
        return ", ".join(parts)

    def arrays(self):
        """Every record as an array; NaN where a rule has no loss or counts no errors."""
        curves = {
            name: np.array([np.nan if item is None else item for item in getattr(self, name)], dtype=np.float64)
            for name in ("loss", "errors", "gradient_norm", "n_nonsubmodular")
        }
        return curves | {"coef": np.array(self.coef), "gradient": np.array(self.gradient)}


class PenalisedRisk:
    r"""The regularised primal objective, and the same per labelled node.

    .. math::
        P(w) = \tfrac{1 - \alpha}2 \lVert w \rVert^2 + \alpha \lVert w \rVert_1 + C \, R(w),
        \qquad f(w) = P(w) / (C N)

    Intercepts are free. Optimizers see f, whose gradients do not grow with the data: ``tol`` then means what it
    means for scikit-learn's LogisticRegression. The trace records P.

    Parameters
    ----------
    risk : EmpiricalRisk
    C : float or None
        Inverse strength of the penalty; None is no penalty (f is then R / N and P is R).
    max_iter : int
        Decides whether weights are recorded in full.
    l1_ratio : float, default=0.0
        Share alpha of the L1 penalty. :meth:`evaluate` leaves it to the optimizer, who is given :attr:`l1`.
    """

    def __init__(self, risk, C, max_iter, l1_ratio=0.0):
        self.risk = risk
        self.C = C
        self.trace = Trace()
        self.n_nodes = max(risk.n_labelled, np.finfo(np.float64).tiny)
        self.l1_ratio = l1_ratio
        self._penalised = risk.potentials.penalised
        self._keeps_coef = risk.potentials.n_coef * max_iter <= _RECORD_LIMIT
        self._last = None

    @property
    def _strength(self):
        return 0.0 if self.C is None else 1.0 / (self.C * self.n_nodes)

    @property
    def l1(self):
        """Weight of the L1 penalty on each weight, in units of f; one number for none."""
        return self.l1_ratio * self._strength * self._penalised if self.l1_ratio else 0.0

    def evaluate(self, coef, members=None):
        """One pass over the examples.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)
        members : sequence of int, optional
            Batches to visit; their sum stands for all.

        Returns
        -------
        value : float or None
            f without its L1 penalty; None if the rule has no loss.
        gradient : ndarray of shape (n_coef,)
        """
        result = self.risk.value_grad(coef, members)
        share = 1.0 if members is None else self.risk.labelled_share(members)
        n_nodes = self.n_nodes * share
        penalty = np.where(self._penalised, coef, 0.0)
        strength = (1 - self.l1_ratio) * self._strength
        # In place, and kept once: there may be many million weights.
        gradient = result.gradient
        gradient /= n_nodes
        value = None if result.value is None else result.value / n_nodes + 0.5 * strength * (penalty @ penalty)
        penalty *= strength
        gradient += penalty
        self._last = (np.array(coef), value, gradient, result._replace(gradient=None))
        return value, gradient

    def direction(self, coef):
        """Direction of a gradient step: down f, pairwise weights in steps of their own.

        Kumar et al. count every edge from both its ends and hold half of our pairwise weight, which makes their
        pairwise steps four times as long. So are these on sparse graphs; nodes of more than four neighbours share it.
        """
        direction = -self.evaluate(coef)[1]
        self.risk.potentials.unpack(direction).edge_coef[...] *= 4 * min(1.0, 2 / max(self.risk.edges_per_node, 1e-9))
        return direction

    def record(self, coef):
        """Enter an iterate in the trace; free if it is the one evaluated last."""
        if self._last is None or not np.array_equal(self._last[0], coef):
            self.evaluate(coef)
        latest, value, gradient, result = self._last
        scale = self.n_nodes if self.C is None else self.C * self.n_nodes
        if value is not None:
            value += float(np.sum(self.l1 * np.abs(coef)))
        trace = self.trace
        trace.loss.append(None if value is None else value * scale)
        trace.errors.append(result.n_errors)
        trace.gradient_norm.append(float(np.linalg.norm(gradient)))
        trace.n_nonsubmodular.append(result.n_nonsubmodular)
        trace.inference_converged = result.converged
        trace.latest = latest
        if self._keeps_coef:
            trace.coef.append(latest)
            trace.gradient.append(gradient)


# A vote of more costs more at every prediction than it gains.
_MOST_VOTERS = 9


class Selection:
    """Choice among the weights that an iteration without a limit has visited.

    Parameters
    ----------
    rule : {"best", "last", "averaged", "voted"}
        Fewest training errors (of ties the last), the last, the mean, or the ``9`` with the fewest errors among
        those visited, which vote at prediction.
    """

    def __init__(self, rule):
        self.rule = rule
        self._n_visited = 0
        self._mean = None
        self._kept = []  # (errors, -visit, coef), best first

    def visit(self, coef, n_errors):
        """Consider an iterate, an array that stays as it is.

        ``n_errors`` is None for rules that count none, which keep the last instead.
        """
        self._n_visited += 1
        if self.rule == "averaged":
            mean = np.zeros_like(coef) if self._mean is None else self._mean
            self._mean = mean + (coef - mean) / self._n_visited
            return
        if self.rule == "last" or n_errors is None:
            n_errors = 0.0
        self._kept.append((n_errors, -self._n_visited, coef))
        self._kept.sort(key=lambda entry: entry[:2])
        del self._kept[_MOST_VOTERS if self.rule == "voted" else 1 :]

    def chosen(self):
        """The weights kept, and the voters (None unless several vote).

        Returns
        -------
        coef : ndarray of shape (n_coef,)
            The mean of the voters, where several vote.
        voters : ndarray of shape (n_voters, n_coef) or None
        """
        if self.rule == "averaged":
            return self._mean, None
        kept = [coef for _, _, coef in self._kept]
        if self.rule == "voted":
            return np.mean(kept, axis=0), np.array(kept)
        return kept[0], None


class TrainingOptions(NamedTuple):
    """Constructor parameters that govern training."""

    solver: str
    C: float | None
    step_size: float
    step_schedule: str
    batch_size: int
    select: str
    n_cycles: int
    max_iter: int
    tol: float
    keeps_interrupted: bool
    verbose: int
    l1_ratio: float = 0.0
    # What to change where an approximate inference leads astray.
    remedy: str = "increase its max_iter or damping, decrease C, use solver='gradient', or inference='map'"


@dataclass(eq=False)
class Outcome:
    """What training found."""

    coef: np.ndarray  # (n_coef,)
    trace: Trace
    n_iter: int
    voters: np.ndarray | None = None  # (n_voters, n_coef) where several weights vote
    interrupted: BaseException | None = None


def train(risk, start, options, rng, on_iteration):
    """Minimise a risk, or follow its approximate gradient.

    Parameters
    ----------
    risk : EmpiricalRisk
    start : ndarray of shape (n_coef,)
    options : TrainingOptions
    rng : RandomState
        For the order of mini-batches.
    on_iteration : callable(coef) -> bool
        Called with every accepted iterate; True asks to stop.

    Returns
    -------
    Outcome
        After Ctrl-C with ``keeps_interrupted`` it carries the interruption, to be raised once stored.
    """
    problem = PenalisedRisk(risk, options.C, options.max_iter, options.l1_ratio)
    solver = _choose_solver(problem, start, options)
    with progress_reporter(options.verbose, options.max_iter, solver) as show:

        def report(coef):
            show(problem.trace)
            return on_iteration(coef)

        try:
            return _SOLVERS[solver](problem, start, options, rng, report)
        except KeyboardInterrupt as interruption:
            latest = problem.trace.latest
            if not options.keeps_interrupted or latest is None:
                raise
            return Outcome(latest, problem.trace, len(problem.trace.loss), interrupted=interruption)


def _choose_solver(problem, start, options):
    objective = problem.risk.objective
    if options.solver not in ("auto", "lbfgs"):
        return options.solver
    if objective.smooth and problem.evaluate(start)[0] is not None:
        return "lbfgs"
    if options.solver == "lbfgs":
        raise ValueError(
            "solver='lbfgs' needs a smooth loss, but this combination of learning and inference has none: "
            "use solver='gradient'."
        )
    return "gradient"


# From here on what L-BFGS-B keeps beside its corrections (bounds, copies) weighs as much as they do.
_MANY_WEIGHTS = 100_000


def _train_lbfgs(problem, start, options, rng, report):
    selection = Selection(options.select)
    trace = problem.trace
    exact = problem.risk.is_exact

    def visit(coef):
        problem.record(coef)
        selection.visit(trace.latest, trace.errors[-1])

    def callback(point):
        visit(point.x)
        return report(point.x) or (not exact and _has_gone_astray(trace.errors))

    visit(start)
    limits = {"max_iter": options.max_iter, "tol": options.tol, "callback": callback}
    if options.l1_ratio or len(start) > _MANY_WEIGHTS:
        result = minimize_owlqn(problem.evaluate, start, l1=problem.l1, **limits)
    else:
        result = minimize_lbfgs(problem.evaluate, start, **limits)
    if result.success and trace.inference_converged and (exact or not _has_gone_astray(trace.errors)):
        return Outcome(result.x, trace, len(trace.loss))
    if exact and not trace.inference_converged:
        _warn_of_inner_problem(problem)
        return Outcome(result.x, trace, len(trace.loss))
    if exact:
        warn_of_lbfgs(result, problem)
        return Outcome(result.x, trace, len(trace.loss))
    # Past the point where the inference has one answer, its free energy falls on while its labels get worse: the
    # number of errors is the better guide (Kumar et al. 2005, section 7.2).
    chosen = "with the fewest errors" if options.select == "best" else f"chosen by select={options.select!r}"
    warn_unconverged(
        "The approximate inference has no consistent gradient near the last weights, so those "
        f"{chosen} among the weights visited are kept: {options.remedy}",
        problem,
    )
    coef, voters = selection.chosen()
    return Outcome(coef, trace, len(trace.loss), voters=voters)


# Iterations in a row, and how many more errors than the fewest, after which nothing better is to be expected.
_PATIENCE = 6
_MARGIN = 1.05


def _has_gone_astray(errors):
    """Whether the latest iterates all made clearly more errors than the best one."""
    latest = errors[-_PATIENCE:]
    return len(latest) == _PATIENCE and None not in latest and min(latest) > _MARGIN * min(errors)


def _train_by_gradient(problem, start, options, rng, report):
    """Steps along the negative gradient, until it vanishes or its errors have gone through their cycles."""
    smooth = problem.risk.objective.smooth
    # Steps down a loss whose inference is approximate may pass by their best labels (see _train_lbfgs).
    selection = Selection("last" if smooth and problem.risk.is_exact else options.select)
    cycles = CycleDetector(options.n_cycles)
    trace = problem.trace
    n_constant_errors = problem.risk.n_constant_errors

    def callback(point):
        problem.record(point.x)
        selection.visit(trace.latest, trace.errors[-1])
        cycled = not smooth and has_cycled(trace.errors[-1])
        return report(point.x) or cycled

    def has_cycled(n_errors):
        # From a bad start every node gets one label, then the other: the same errors again, but no cycle yet. A rule
        # that counts no errors (CD) has none: its gradient is down to the noise of its samples long before it settles.
        return n_errors is not None and n_errors < n_constant_errors and cycles.update(n_errors)

    result = gradient_ascent(
        problem.direction,
        start,
        step_size=options.step_size,
        schedule=options.step_schedule,
        # The start is an iterate like any other.
        max_iter=options.max_iter - 1,
        tol=options.tol if smooth else 0.0,
        keep_trajectory=False,
        callback=callback,
    )
    if trace.latest is None or not np.array_equal(trace.latest, result.x):
        # A vanishing gradient ends the ascent before the callback hears of its last point.
        callback(result)
    if smooth and result.success:
        return Outcome(result.x, trace, len(trace.loss))
    if smooth:
        warn_unconverged("Gradient steps did not converge: increase max_iter or change step_size", problem)
    coef, voters = selection.chosen()
    return Outcome(coef, trace, len(trace.loss), voters=voters)


def _train_sgd(problem, start, options, rng, report):
    selection = Selection("last" if problem.risk.objective.smooth else options.select)

    def callback(point):
        problem.record(point.x)
        selection.visit(problem.trace.latest, problem.trace.errors[-1])
        return report(point.x)

    minimize_by_epochs(problem, start, options, rng, lambda members, coef: problem.evaluate(coef, members), callback)
    if problem.risk.is_exact and not problem.trace.inference_converged:
        _warn_of_inner_problem(problem)
    coef, voters = selection.chosen()
    return Outcome(coef, problem.trace, len(problem.trace.loss), voters=voters)


def minimize_by_epochs(problem, start, options, rng, gradient, callback):
    """Stochastic gradient descent over the batches of a problem; warns where it blows up.

    Parameters
    ----------
    problem : PenalisedRisk
    start : ndarray of shape (n_coef,)
    options : TrainingOptions or ContrastiveOptions
    rng : RandomState
        For the order of mini-batches.
    gradient : callable(members, coef) -> (value, gradient)
    callback : callable(OptimizeResult) -> bool
        Called after every epoch; True asks to stop.

    Returns
    -------
    OptimizeResult
    """
    result = minimize_sgd(
        gradient,
        start,
        len(problem.risk.batches),
        step_size=options.step_size,
        schedule=options.step_schedule,
        n_epochs=options.max_iter,
        batch_size=options.batch_size,
        random_state=rng,
        callback=callback,
    )
    if not result.success:
        warn_unconverged(f"Stochastic gradient descent ended with {result.message!r}: decrease step_size", problem)
    return result


_SOLVERS = {"lbfgs": _train_lbfgs, "gradient": _train_by_gradient, "sgd": _train_sgd}


def warn_unconverged(message, problem):
    """Warn of weights that are not optimal.

    Parameters
    ----------
    message : str
        What happened and what to change.
    problem : PenalisedRisk
    """
    norm = problem.trace.gradient_norm[-1]
    warnings.warn(f"{message} (norm of the gradient {norm:.3g}).", ConvergenceWarning, stacklevel=5)


def _warn_of_inner_problem(problem):
    warn_unconverged(
        "The inner problem did not converge, so the loss is not quite convex: increase inner_max_iter", problem
    )


def warn_of_lbfgs(result, problem):
    """Warn that L-BFGS ended before it had converged.

    Parameters
    ----------
    result : OptimizeResult
    problem : PenalisedRisk
    """
    warn_unconverged(f"L-BFGS ended with {result.message!r}: increase max_iter, or scale the features", problem)


def train_without_edges(risk, options):
    """Weights of the same potentials on the nodes alone: logistic regression, pairwise weights zero.

    Parameters
    ----------
    risk : EmpiricalRisk
        Its potentials and batches are used, its objective is not.
    options : TrainingOptions

    Returns
    -------
    ndarray of shape (n_coef,)
    """
    batches = [_without_edges(batch) for batch in risk.batches]
    nodes = type(risk)(Likelihood(TreeInference()), risk.potentials, batches, n_jobs=risk.n_jobs)
    problem = PenalisedRisk(nodes, options.C or 1.0, options.max_iter)
    start = np.zeros(risk.potentials.n_coef)
    return minimize_lbfgs(problem.evaluate, start, max_iter=options.max_iter, tol=options.tol).x


def _without_edges(batch):
    example = batch.example
    nodes = Example._trusted(
        example.node_features,
        Graph._trusted(example.n_nodes, np.zeros((0, 2), dtype=np.int32)),
        node_type=example.node_type,
        edge_type=np.zeros(0, dtype=np.int32),
        n_states=example.n_states,
    )
    return Batch(nodes, batch.members, batch.node_ptr, batch.labels, batch.weight)
