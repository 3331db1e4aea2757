"""Training by margins: a risk of structured hinges in, weights with a duality gap out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._reports import progress_reporter, warn_caller
from sklearn_crf._threads import map_tasks, ordered_map, thread_count
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AutoMap, CountingNumbers, Inference, convergence_left_to_caller
from sklearn_crf.learning._few_labels import of_labelled_components
from sklearn_crf.learning._smoothed_margins import minimize_smoothed
from sklearn_crf.learning._solvers import LBFGS
from sklearn_crf.learning._training import TrainingRun
from sklearn_crf.objectives import (
    DualBlock,
    EmpiricalRisk,
    PlaneOracle,
    RelaxedHinge,
    ShardedRisk,
    ShardPlanes,
    completed_labels,
    make_blocks,
    plane_oracle,
)
from sklearn_crf.optimize import (
    UNPROVEN,
    bmrm,
    cutting_plane,
    exponentiated_gradient,
    frank_wolfe,
    one_slack,
    subgradient,
)


def maximize_dual(risk, value_grad, setting, run, callback):
    r"""Maximise the relaxed dual by exponentiated gradient, one example after the other.

    .. math::
        \max_{\tau_i \in L_i} \; C \sum_i \omega_i \langle \Delta_i, \tau_i \rangle - \tfrac12 \lVert w(\tau) \rVert^2,
        \qquad w(\tau) = C \sum_i \omega_i B(x_i)^\top (\phi(y_i) - \tau_i)

    ``risk`` is of a :class:`SoftmaxMargin` over a relaxed likelihood, whose marginals stay within L; ``value_grad`` are
    the relaxed hinges without penalty, at x.
    """
    start = np.zeros(len(setting.scale))
    blocks = DualBlock.of_risk(risk, run.C, start, setting.scale)
    best, best_dual, closed = OptimizeResult(x=start, fun=np.inf), -np.inf, False
    curves: tuple[list, list] = [], []

    def primal(x):
        (_, value), slope = value_grad(x)
        return 0.5 * float(x @ x) + value, x + slope

    def visit(point):
        nonlocal best, best_dual, closed
        if point.fun < best.fun:
            best = OptimizeResult(x=point.x, fun=point.fun)
        best_dual = max(best_dual, DualBlock.feasible_dual(blocks, point.parameters))
        curves[0].append(best.fun)
        curves[1].append(best_dual)
        closed = best.fun - best_dual <= run.tol * abs(best.fun)
        return callback(OptimizeResult(x=best.x, fun=best.fun, dual=best_dual)) or closed

    found = exponentiated_gradient(
        blocks, primal, temperature=0.0, max_iter=run.max_iter, tol=0.0, random_state=run.rng, callback=visit
    )
    return OptimizeResult(
        x=best.x,
        fun=best.fun,
        dual=best_dual,
        gap=best.fun - best_dual,
        loss_curve=np.array(curves[0]),
        dual_curve=np.array(curves[1]),
        nit=found.nit,
        success=found.success,
        message="CONVERGENCE: duality gap within tol" if closed else found.message,
    )


class PlaneSolver(HoldsOptions):
    """Base of the solvers of maxima of planes.

    Attributes
    ----------
    name : str
        By which ``solver=`` knows it.
    by_blocks : bool
        Whether it moves the weights after each mini-batch of examples.
    by_dual : bool
        Whether it moves dual variables, which the planes may have themselves.

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
        """Return the optimizer's result for a risk whose planes an oracle gives."""
        bounded = setting.lower_bounded[oracle.places]
        if self.by_dual:
            limits = limits | {"dual": oracle.dual(bounded)}
        limits = limits | {"lower_bounded": bounded, "random_state": run.rng}
        return type(self)._optimizer(oracle, oracle.sizes, oracle.value, len(bounded), **limits)


class CuttingPlane(PlaneSolver):
    """Cutting planes of mini-batches, which keep the worst labelings found of each example (the n-slack method).

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
    """The bundle method, with planes of the last labelings of each example as long as those will do.

    On forests and small graphs, where new labelings take less time than that, it is the bundle method itself.

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
        # There new labelings are found in less time than planes of known ones are compared.
        solve = BundleMethod()._solve if oracle.is_of_forests else super()._solve
        return solve(oracle, start, setting, run, limits)


class FrankWolfe(PlaneSolver):
    """Block-coordinate Frank-Wolfe: one combination of the worst labelings of each example.

    Less memory than cutting planes; quicker to a rough solution and slower to an accurate one. Source: Lacoste-Julien
    et al. 2013.

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
    """Subgradient steps, as those of Pegasos.

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
    """The bundle method, one plane for each pass over all examples (1-slack), deterministic.

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


#: Solvers of margins by name; "lbfgs" is for margins at a temperature.
MARGIN_SOLVERS: dict[str, type[PlaneSolver] | type[LBFGS]] = {
    kind.name: kind for kind in (CuttingPlane, OneSlack, FrankWolfe, BundleMethod, Subgradient)
} | {"lbfgs": LBFGS}


class MarginSetting(NamedTuple):
    """The problem of training by margins: its kind, inference, solver and bounds."""

    problem: str
    entropy: str | CountingNumbers  # Of smooth problems
    inference: Inference  # That of prediction
    solver: PlaneSolver | LBFGS | None  # None for "dual", which has steps of its own
    scale: np.ndarray  # (n_coef,): solvers see weights divided by it, and penalise those
    lower_bounded: np.ndarray  # (n_coef,) bool: weights that must not be negative


@dataclass(eq=False)
class MarginRecord:
    """Iterates of training by margins, and its result."""

    path: str  # How the risk is evaluated
    loss: list = field(default_factory=list)  # The objective at each iterate
    calls: list = field(default_factory=list)  # Best labelings of one example asked for until then
    dual: float = 0.0  # The latest dual value
    coef: np.ndarray | None = None  # (n_coef,) or None
    found: Any = None  # OptimizeResult of the optimizer
    gap: float = np.inf  # Of the objective at ``coef``, including what inference could not prove
    calls_curve: np.ndarray | None = None  # ``calls`` at each point of the optimizer's curves
    n_inference_calls: int = 0
    n_rounds: int | None = None  # Rounds of completing labels, where some were missing
    rough_end: str | None = None  # Why training ended, where it did so far from the optimum
    interrupted: BaseException | None = None

    def summary(self) -> str:
        """The latest entry in words, for a progress bar."""
        return f"loss {self.loss[-1]:.6g}, dual {self.dual:.6g}"

    @property
    def is_over(self) -> bool:
        """Whether training came to its own end."""
        return bool(self.found.success and self.found.message.startswith("CONVERGENCE"))

    @property
    def is_stopped(self) -> bool:
        """Whether the callback ended training."""
        return self.found.message == "STOP: by the callback"

    def require_gap(self, share: float, rough_end: str) -> None:
        """Say that training ended early, unless the gap is at most a share of the objective."""
        if self.is_over and self.gap > share * abs(np.min(self.found.loss_curve)):
            self.rough_end = rough_end

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes that tell of the training."""
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
        """Enter an iterate with ``fun`` and ``dual``."""
        self.loss.append(point.fun)
        self.dual = point.dual
        self.calls.append(n_calls)


def train_by_margins(risk, start: np.ndarray, setting: MarginSetting, run: TrainingRun) -> MarginRecord:
    """Minimise half the squared weights plus C times the structured hinges."""
    # start: (n_coef,), for the bundle method; those that go block by block begin at zero
    train = _train_by_planes if setting.problem in ("planes", "dual") else _train_smoothed
    with progress_reporter(run.verbose, run.max_iter, _name_of(setting)) as show:
        return train(risk, start, setting, run, show)


def _name_of(setting):
    return setting.problem if setting.solver is None else type(setting.solver).__name__


def warn_of_margins(record: MarginRecord, setting: MarginSetting) -> None:
    """Warn of a training that did not come to its end, and of weights that are all zero."""
    if not record.found.success and not _is_all_that_auto_proves(record.found, setting.inference):
        _warn(record.found, _name_of(setting))
    elif not np.any(record.coef) and record.found.fun > 0:
        warn_caller(
            "Training ended with all weights zero, since hardly any have a lower objective: where no label is likelier "
            "than all others together, margins prefer none. Take TRWCRF or DRFClassifier, which learn probabilities.",
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
    with ordered_map(thread_count(run.n_jobs)) as map_in_threads:
        oracle = _oracle_of(risk, setting, run, map_in_threads)
        record = MarginRecord(risk.path if setting.problem == "dual" else oracle.path)

        def callback(point):
            record.visit(point, oracle.n_inference_calls)
            show(record.summary)
            return run.on_iteration(oracle.weights_of(point.x))

        if setting.problem == "dual":
            found = maximize_dual(risk, oracle.value_grad, setting, run, callback)
        else:
            limits = {"max_iter": run.max_iter, "tol": run.tol, "callback": callback}
            found = setting.solver._solve(oracle, start, setting, run, limits)
        record.coef = oracle.weights_of(found.x)
    record.found, record.gap = found, found.gap
    record.n_inference_calls = oracle.n_inference_calls
    record.calls_curve = np.array(record.calls)[found.get("checks", np.arange(1, found.nit + 1)) - 1]
    return record


def _oracle_of(risk, setting, run, map_in_threads):
    """Return what asks for the planes of the losses."""
    if setting.problem == "dual":
        # The relaxed quadratic programme is the dual of the relaxed hinge.
        hinge = risk.having(objective=RelaxedHinge(setting.inference, risk.objective.cost))
        return PlaneOracle(hinge, run.C, setting.scale, make_blocks(hinge.batches))
    if isinstance(risk, ShardedRisk):
        return ShardPlanes(risk, run.C, setting.scale)
    asks = {"by_blocks": setting.solver.by_blocks, "by_dual": setting.solver.by_dual}
    return plane_oracle(risk, run.C, setting.scale, map_in_threads, **asks)


def _is_all_that_auto_proves(found, inference):
    """Whether a small gap is left that the inference chosen here does not prove: nothing that a user did."""
    return found.message == UNPROVEN and isinstance(inference, AutoMap) and _share_of(found) <= _MOST_UNPROVEN


# Share of the objective. Images of several classes have 2 to 10 percent; better proofs hardly change their accuracy.
_MOST_UNPROVEN = 0.25


def _share_of(found):
    return found.gap / max(abs(found.fun), np.finfo(np.float64).tiny)


def _warn(found, name):
    remedy = "increase max_iter or tol, decrease C, or scale the features"
    if found.message == UNPROVEN:
        better = "an inference that proves more of its labelings, such as TRWS(max_iter=200)"
        remedy = f"increase tol, decrease C, or take {better}"
    warn_caller(
        f"{name} ended with {found.message!r} at a duality gap of {_share_of(found):.2g} of the objective: {remedy}.",
        ConvergenceWarning,
    )


# Partly labelled examples -------------------------------------------------------------------------------------------

STILL_FALLING = "STOP: max_rounds reached while completed labels still lowered the objective"


def train_by_turns(
    risk,
    first: np.ndarray,
    train: Callable[[EmpiricalRisk, np.ndarray | None], MarginRecord],
    inference: Inference,
    max_rounds: int,
    tol: float,
) -> MarginRecord:
    r"""Minimise margins of partly labelled examples, whose missing labels h are completed by turns.

    .. math::
        \ell_i(w) = \max_{y} \bigl[ \Delta(y, y_i) + \mathrm{score}(y) \bigr] - \max_h \mathrm{score}(y_i, h)

    The cost counts labelled nodes alone. The loss is a difference of convex functions: with h fixed it is a convex
    bound that touches it at the weights for which h is best. So the objective falls from round to round, to a point
    that is stationary and may be no global minimum (Yu and Joachims 2009).
    """
    # first: (n_coef,), weights that complete the labels of the first round
    # train(risk, start): learns with complete labels, from the weights of the round before
    # tol: share of the objective that a round must gain for another one to follow
    risk = risk.derived(of_labelled_components)

    def learned(coef, start):
        return train(risk.derived(partial(with_completed_labels, coef=coef, inference=inference)), start)

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
    """Warn where the last round still gained."""
    if record.rough_end == STILL_FALLING:
        warn_caller(
            f"Margins of partly labelled examples stopped after {record.n_rounds} rounds of completing labels, the "
            "last of which still lowered the objective: increase max_rounds of the learning, or decrease C.",
            ConvergenceWarning,
        )


def with_completed_labels(risk: EmpiricalRisk, coef: np.ndarray, inference: Inference) -> EmpiricalRisk:
    """Return the risk whose missing labels are the best ones under weights, and cost nothing."""

    def completed(i, n_threads):
        batch = risk.batches[i]
        model = risk.potentials.model(coef, batch.example)
        with convergence_left_to_caller(), batch.named_in_errors():
            labels, weight = completed_labels(model, batch.labels, batch.node_weight, inference, n_threads)
        return replace(batch, labels=labels, node_weight=np.ones(len(labels)) if weight is None else weight)

    return risk.having(batches=map_tasks(completed, range(len(risk.batches)), risk.n_jobs))
