"""Max-margin training, which minimises structured hinge losses and computes a duality gap."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._reports import open_progress_reporter, warn_caller
from sklearn_crf._threads import count_threads, map_tasks
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AutoMap, CountingNumbers, Inference, convergence_left_to_caller
from sklearn_crf.learning._few_labels import keep_labelled_components
from sklearn_crf.learning._plan import FitPlan
from sklearn_crf.learning._smoothed_margins import minimize_smoothed
from sklearn_crf.learning._solvers import LBFGS
from sklearn_crf.learning._training import TrainingRecord
from sklearn_crf.objectives import (
    DualBlock,
    EmpiricalRisk,
    JointHingeRisk,
    PlaneOracle,
    RelaxedHinge,
    ShardedRisk,
    ShardPlanes,
    complete_labels,
    make_blocks,
    plane_oracle,
)
from sklearn_crf.optimize import (
    UNPROVEN,
    bmrm,
    cutting_plane,
    frank_wolfe,
    maximize_dual,
    one_slack,
    subgradient,
)


class PlaneSolver(HoldsOptions):
    """Base of the solvers for max-margin losses, which are maxima of linear functions (planes).

    Attributes
    ----------
    name : str
        Name for the parameter ``solver`` of estimators.
    by_blocks : bool
        Whether the weights change after each mini-batch of examples.
    by_dual : bool
        Whether the solver changes dual variables, which the oracle of planes may store itself.

    Examples
    --------
    >>> from sklearn_crf.learning import CuttingPlane, FrankWolfe, PlaneSolver
    >>> [
    ...     (solver.name, isinstance(solver, PlaneSolver))
    ...     for solver in (CuttingPlane(), FrankWolfe())
    ... ]
    [('cutting_plane', True), ('frank_wolfe', True)]
    """

    _parameter_constraints: ClassVar[dict] = {}
    name: ClassVar[str] = ""
    by_blocks: ClassVar[bool] = True
    by_dual: ClassVar[bool] = False
    _optimizer: ClassVar[Any] = None

    def _solve(self, oracle, start, setting, run, limits):
        """Run the optimizer on a risk whose cutting planes are computed by an oracle, and return its result."""
        bounded = setting.lower_bounded[oracle.places]
        if self.by_dual:
            limits = limits | {"dual": oracle.dual(bounded)}
        limits = limits | {"lower_bounded": bounded, "random_state": run.rng}
        return type(self)._optimizer(oracle, oracle.sizes, oracle.value, len(bounded), **limits)


class CuttingPlane(PlaneSolver):
    """Cutting-plane solver that updates after each mini-batch and stores the worst labelings of each example (n-slack).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import CuttingPlane
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     solver=CuttingPlane(), tol=0.01, edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "cutting_plane"
    _optimizer = staticmethod(cutting_plane)


class OneSlack(PlaneSolver):
    """Bundle method that reuses planes of earlier labelings of each example, as long as this makes progress.

    On forests and small graphs, computing new labelings is quicker than reusing planes. There, the solver is the plain
    bundle method.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import OneSlack
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     solver=OneSlack(), tol=0.01, edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "one_slack"
    by_blocks = False
    _optimizer = staticmethod(one_slack)

    def _solve(self, oracle, start, setting, run, limits):
        # On forests, computing new labelings takes less time than evaluating the planes of earlier labelings.
        solve = BundleMethod()._solve if oracle.is_of_forests else super()._solve
        return solve(oracle, start, setting, run, limits)


class FrankWolfe(PlaneSolver):
    """Block-coordinate Frank-Wolfe, which stores a single combination of worst labelings for each example.

    Frank-Wolfe needs less memory than cutting planes. It reaches a rough solution sooner than cutting planes, but an
    accurate solution later. Source: Lacoste-Julien et al. 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import FrankWolfe
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     solver=FrankWolfe(), tol=0.01, edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "frank_wolfe"
    by_dual = True
    _optimizer = staticmethod(frank_wolfe)


class Subgradient(PlaneSolver):
    """Subgradient steps, as in Pegasos.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import Subgradient
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     solver=Subgradient(), tol=0.01, edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "subgradient"
    _optimizer = staticmethod(subgradient)


class BundleMethod(PlaneSolver):
    """Bundle method with one plane for each pass over all examples (1-slack), without randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import BundleMethod
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     solver=BundleMethod(), tol=0.01, edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "bmrm"
    by_blocks = False

    def _solve(self, oracle, start, setting, run, limits):
        bounded, start = setting.lower_bounded[oracle.places], (start / setting.scale)[oracle.places]
        return bmrm(oracle.value_grad, start, floor=0.0, lower_bounded=bounded, **limits)


#: Solvers of max-margin learning by name. "lbfgs" is for smoothed margins.
MARGIN_SOLVERS: dict[str, type[PlaneSolver] | type[LBFGS]] = {
    kind.name: kind for kind in (CuttingPlane, OneSlack, FrankWolfe, BundleMethod, Subgradient)
} | {"lbfgs": LBFGS}


class MarginSetting(NamedTuple):
    """Options of max-margin training: kind of problem, inference, solver and bounds."""

    problem: str
    entropy: str | CountingNumbers  # Entropy of smooth problems
    trees: Any  # Trees of the entropy ``entropy``, as in TightenBound
    inference: Inference  # Inference for training
    solver: PlaneSolver | LBFGS | None  # Solver, or None for the problem "dual", which has its own kind of steps
    scale: np.ndarray  # (n_coef,): solvers use and penalise the weights divided by this scale
    lower_bounded: np.ndarray  # (n_coef,) bool: weights that must not be negative
    share_penalty: float = 0.0  # Penalty of squared shares, divided by C, for the problem "joint_planes"


@dataclass(eq=False)
class MarginRecord(TrainingRecord):
    """Iterates and result of max-margin training."""

    calls: list = field(default_factory=list)  # Number of inference calls on single examples up to each iterate
    dual: float = 0.0  # The latest dual value
    found: Any = None  # OptimizeResult of the optimizer
    gap: float = np.inf  # Duality gap of the objective at ``coef``, including the gaps of inference
    calls_curve: np.ndarray | None = None  # As ``calls``, but for each point of the optimizer's curves
    n_inference_calls: int = 0
    n_rounds: int | None = None  # Number of rounds of completing labels, if labels were missing
    rough_end: str | None = None  # Stop reason if training ended far from the optimum

    def summary(self) -> str:
        """Return the latest entry as text for a progress bar."""
        return f"loss {self.loss[-1]:.6g}, dual {self.dual:.6g}"

    @property
    def is_over(self) -> bool:
        """Whether training ended by convergence, not by a limit or the callback."""
        return bool(self.found.success and self.found.message.startswith("CONVERGENCE"))

    @property
    def is_stopped(self) -> bool:
        """Whether the callback ended training."""
        return self.found.message == "STOP: by the callback"

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes that describe the training."""
        found = self.found
        checks = found.get("checks", np.arange(1, found.nit + 1))
        of_rounds = {} if self.n_rounds is None else {"n_rounds_": self.n_rounds}
        return of_rounds | {
            "duality_gap_": self.gap,
            "loss_curve_": found.loss_curve,
            "dual_curve_": found.dual_curve,
            "checks_": checks,
            "n_iter_": found.nit,
            "converged_": self.is_over and self.rough_end is None,
            "stop_reason_": self.rough_end or found.message,
            "training_path_": self.path,
            "best_iter_": int(checks[np.argmin(found.loss_curve)]) - 1,
            "inference_calls_curve_": self.calls_curve,
            "n_inference_calls_": self.n_inference_calls,
        }

    def visit(self, point, n_calls):
        """Record an iterate, which has the fields ``fun`` and ``dual``."""
        self.loss.append(point.fun)
        self.dual = point.dual
        self.calls.append(n_calls)


def train_by_margins(risk, start: np.ndarray, setting: MarginSetting, run: FitPlan) -> MarginRecord:
    """Minimise the sum of half the squared norm of the weights and C times the structured hinge losses."""
    # start: (n_coef,), initial weights of the bundle method; block-wise solvers start at zero
    train = _TRAIN.get(setting.problem, _train_by_planes)
    with open_progress_reporter(run.verbose, run.max_iter, _get_solver_name(setting)) as show:
        return train(risk, start, setting, run, show)


def _get_solver_name(setting):
    return setting.problem if setting.solver is None else type(setting.solver).__name__


def warn_of_margins(record: MarginRecord, setting: MarginSetting) -> None:
    """Warn if training did not converge, or if all weights are zero."""
    found = record.found
    gap = found.gap / max(abs(found.fun), np.finfo(np.float64).tiny)
    # If AutoMap cannot prove that its labelings are optimal, a small gap is no reason for a warning.
    is_small = found.message == UNPROVEN and isinstance(setting.inference, AutoMap) and gap <= _MOST_UNPROVEN
    if not found.success and not is_small:
        remedy = "increase max_iter or tol, decrease C, or scale the features"
        if found.message == UNPROVEN:
            better = "an inference that proves more of its labelings, such as TRWS(max_iter=200)"
            remedy = f"increase tol, decrease C, or use {better}"
        warn_caller(
            f"{_get_solver_name(setting)} ended with {found.message!r} at a duality gap of {gap:.2g} of the objective: "
            f"{remedy}.",
            ConvergenceWarning,
        )
    elif not np.any(record.coef) and found.fun > 0:
        warn_caller(
            "Training ended with all weights zero, because hardly any other weights have a lower objective. "
            "Max-margin training has this result if no label is more likely than all other labels together: use "
            "TRWCRF or DRFClassifier, which learn probabilities.",
            UserWarning,
        )


def _train_smoothed(risk, start, setting, run, show):
    record = MarginRecord(risk.path)

    def callback(point):
        record.visit(point, 0)
        show(record.summary)
        return run.on_iteration(setting.scale * point.x)

    record.found = minimize_smoothed(risk, start, setting, run, callback)
    record.coef, record.gap = setting.scale * record.found.x, record.found.gap
    record.calls_curve = risk.n_examples * record.found.passes
    record.n_inference_calls = int(record.calls_curve[-1])
    return record


def _train_by_planes(risk, start, setting, run, show):
    oracle = _build_oracle(risk, setting, run)
    record = MarginRecord(risk.path if setting.problem == "dual" else oracle.path)

    def callback(point):
        record.visit(point, oracle.n_inference_calls)
        show(record.summary)
        return run.on_iteration(oracle.weights_of(point.x))

    if setting.problem == "dual":
        # The risk has a SoftmaxMargin objective over a relaxed likelihood, whose marginals stay in the polytope.
        blocks = DualBlock.of_risk(risk, run.C, np.zeros(len(setting.scale)), setting.scale)
        dual = partial(DualBlock.compute_feasible_dual, blocks)
        limits = {"max_iter": run.max_iter, "tol": run.tol, "random_state": run.rng, "callback": callback}
        # The duality gap tells how accurate the marginals are.
        with convergence_left_to_caller():
            found = maximize_dual(blocks, oracle.value_grad, dual, **limits)
    else:
        limits = {"max_iter": run.max_iter, "tol": run.tol, "callback": callback}
        found = setting.solver._solve(oracle, start, setting, run, limits)
    record.coef = oracle.weights_of(found.x)
    record.found, record.gap = found, found.gap
    record.n_inference_calls = oracle.n_inference_calls
    record.calls_curve = np.array(record.calls)[found.get("checks", np.arange(1, found.nit + 1)) - 1]
    return record


def _train_joint_planes(risk, start, setting, run, show):
    """Learn the weights, and how the scores of each model are divided among its parts, by the bundle method."""
    # The unknowns are the weights, followed by the divisions of scores. These divisions have a small penalty.
    joint = JointHingeRisk(risk, setting.entropy, setting.trees)
    n_weights, n_others = len(start), joint.potentials.n_coef - len(start)
    scale = np.concatenate((setting.scale, np.full(n_others, 1 / np.sqrt(setting.share_penalty * run.C))))
    bounded = np.concatenate((setting.lower_bounded, np.zeros(n_others, dtype=bool)))
    record = MarginRecord(risk.path)

    def value_grad(x):
        found = joint.value_grad(scale * x)
        return run.C * found.value, run.C * scale * found.gradient

    def callback(point):
        record.visit(point, risk.n_examples * joint.n_passes)
        show(record.summary)
        return run.on_iteration((scale * point.x)[:n_weights])

    x0 = np.concatenate((start / setting.scale, np.zeros(n_others)))
    limits = {"max_iter": run.max_iter, "tol": run.tol, "callback": callback}
    record.found = found = bmrm(value_grad, x0, floor=0.0, lower_bounded=bounded, **limits)
    record.coef, record.gap = (scale * found.x)[:n_weights], found.gap
    record.calls_curve = np.array(record.calls)
    record.n_inference_calls = risk.n_examples * joint.n_passes
    return record


_TRAIN = {"smoothed": _train_smoothed, "joint": _train_smoothed, "joint_planes": _train_joint_planes}


def _build_oracle(risk, setting, run):
    """Return the oracle that computes the planes of the losses."""
    if setting.problem == "dual":
        # The relaxed quadratic program is the dual problem of the relaxed hinge loss.
        hinge = risk.having(objective=RelaxedHinge(setting.inference, risk.objective.cost))
        return PlaneOracle(hinge, run.C, setting.scale, make_blocks(hinge.batches))
    if isinstance(risk, ShardedRisk):
        return ShardPlanes(risk, run.C, setting.scale)
    asks = {"by_blocks": setting.solver.by_blocks, "by_dual": setting.solver.by_dual}
    return plane_oracle(risk, run.C, setting.scale, count_threads(run.n_jobs), **asks)


# There is no warning if unproven labelings cause a gap of at most this fraction of the objective.
# Images of several classes have gaps of 2 to 10 percent, and better proofs hardly change the labelling accuracy.
_MOST_UNPROVEN = 0.25


# Partly labelled examples -------------------------------------------------------------------------------------------

STILL_FALLING = "STOP: max_rounds reached while completing labels still lowered the objective"


def train_by_alternation(
    risk,
    first: np.ndarray,
    train: Callable[[EmpiricalRisk, np.ndarray | None], MarginRecord],
    inference: Inference,
    max_rounds: int,
    tol: float,
) -> MarginRecord:
    r"""Minimise max-margin losses of partly labelled examples by alternating with completion of the missing labels h.

    .. math::
        \ell_i(w) = \max_{y} \bigl[ \Delta(y, y_i) + \mathrm{score}(y) \bigr] - \max_h \mathrm{score}(y_i, h)

    The cost counts labelled nodes only. The loss is a difference of convex functions. With h fixed, it is bounded from
    above by a convex function that equals the loss at the weights for which h is the best completion. The objective
    therefore decreases from round to round, to a stationary point that need not be a global minimum (Yu and Joachims
    2009).
    """
    # first: (n_coef,), weights that predict the missing labels for the first round
    # train(risk, start): function that trains with complete labels, from the weights of the previous round
    # tol: relative decrease of the objective at which the rounds end
    risk = risk.derived(keep_labelled_components)

    def learned(coef, start):
        return train(risk.derived(partial(complete_risk_labels, coef=coef, inference=inference)), start)

    best = learned(first, None)
    n_rounds, n_calls, is_last = 1, best.n_inference_calls, best.is_stopped or not risk.has_unlabelled
    while not is_last and n_rounds < max_rounds:
        record = learned(best.coef, best.coef)
        n_rounds, n_calls = n_rounds + 1, n_calls + record.n_inference_calls
        gain = best.found.fun - record.found.fun
        is_last = gain <= tol * abs(record.found.fun) or record.is_stopped
        best = record if gain > 0 else best
    if not is_last:
        best.rough_end = STILL_FALLING
    best.n_rounds, best.n_inference_calls = n_rounds, n_calls
    return best


def warn_of_rounds(record: MarginRecord) -> None:
    """Warn if the last round of completing labels still lowered the objective."""
    if record.rough_end == STILL_FALLING:
        warn_caller(
            f"Training on partly labelled examples stopped after {record.n_rounds} rounds of completing labels, but "
            "the last round still lowered the objective: increase max_rounds of the learning method, or decrease C.",
            ConvergenceWarning,
        )


def complete_risk_labels(risk: EmpiricalRisk, coef: np.ndarray, inference: Inference) -> EmpiricalRisk:
    """Return the risk with missing labels replaced by the best labels under the weights.

    The best labels are computed without costs of errors.
    """

    def completed(i, n_threads):
        batch = risk.batches[i]
        model = risk.potentials.model(coef, batch.example)
        with convergence_left_to_caller(), batch.named_in_errors():
            labels, weight = complete_labels(model, batch.labels, batch.node_weight, inference, n_threads)
        return replace(batch, labels=labels, node_weight=np.ones(len(labels)) if weight is None else weight)

    return risk.having(batches=map_tasks(completed, range(len(risk.batches)), risk.n_jobs))
