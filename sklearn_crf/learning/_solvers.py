"""Solvers that optimise the weights of a field: L-BFGS, gradient steps and stochastic gradient steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf._reports import open_progress_reporter
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.distributed import ClusterGoneError
from sklearn_crf.learning._convergence import check_remaining_slope, minimize_in_bulk, warn_of_lbfgs, warn_unconverged
from sklearn_crf.learning._training import PenalisedRisk, Selection, TrainingRecord, choose_scaling
from sklearn_crf.optimize import (
    SHARE_LEFT,
    CycleDetector,
    bmrm,
    gradient_ascent,
    minimize_lbfgs,
    minimize_owlqn,
    minimize_sgd,
)

SELECTIONS = ("best", "last", "averaged", "voted")

# From this number of weights on, L-BFGS-B would need as much memory for bounds and copies as for its corrections.
_MANY_WEIGHTS = 100_000

# From this number of weights on, scaling by the frequency of sparse features saves passes over the examples.
_SOME_WEIGHTS = 2000

# Maximum number of weights for the long history of L-BFGS; length of the long history; length of the short history.
# The long history halves the number of passes needed for correlated edge features.
_FEW_WEIGHTS, _LONG_HISTORY, _SHORT_HISTORY = 1000, 60, 10

#: Default advice in the warning that an approximate inference gives no consistent gradient.
REMEDY = (
    "pass an inference with a larger max_iter or damping, such as inference=LoopyBP(damping=0.5), decrease C, or use "
    "inference='map'"
)


class Solver(HoldsOptions):
    """Base of the solvers, which have options and the method ``train``.

    A subclass defines ``train``, which minimises inside the context manager ``open_training``.

    Examples
    --------
    >>> from sklearn_crf.learning import LBFGS, SGD, Solver
    >>> [isinstance(solver, Solver) for solver in (LBFGS(), SGD())]
    [True, True]
    """

    _parameter_constraints: ClassVar[dict] = {}
    is_stochastic = False
    l1_ratio: float = 0.0

    def train(self, problem: PenalisedRisk, start: np.ndarray, run: Any, remedy: str = REMEDY) -> TrainingRecord:
        """Minimise a penalised risk, or make steps along its approximate gradient.

        Parameters
        ----------
        problem : PenalisedRisk
        start : ndarray of shape (n_coef,)
        run : FitPlan
        remedy : str
            Advice in the warning that training failed with an approximate inference.

        Returns
        -------
        TrainingRecord
            After Ctrl-C with ``run.keeps_interrupted`` it contains the exception, which must be raised after the
            weights are stored.
        """
        raise NotImplementedError(type(self).__name__)


@contextmanager
def open_training(problem, run, remedy, name, l1_ratio=0.0) -> Iterator[Callable[[np.ndarray], bool]]:
    """Yield a function that reports an iterate; after Ctrl-C, the context ends and the latest weights are kept."""
    # name: name of the solver for the progress bar
    record = problem.record
    problem.remedy = remedy
    problem.l1_ratio = l1_ratio
    problem.held_out = run.held_out
    with open_progress_reporter(run.verbose, run.max_iter, name) as show:

        def report(coef):
            show(record.summary)
            record.stopped = run.on_iteration(coef) or (run.held_out is not None and run.held_out.is_over)
            return record.stopped

        try:
            yield report
        except (KeyboardInterrupt, ClusterGoneError) as interruption:
            if not run.keeps_interrupted or record.latest is None:
                raise
            record.coef, record.interrupted = record.latest, interruption
        else:
            if run.held_out is not None:
                run.held_out.choose(record)


@options(kw_only=False)
class LBFGS(Solver):
    """Limited-memory BFGS over all examples, for smooth losses; OWL-QN with an L1 penalty.

    Parameters
    ----------
    l1_ratio : float, default=0.0
        Fraction of the penalty that is L1, in [0, 1], as in scikit-learn's LogisticRegression.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Choice of the final weights if L-BFGS does not converge because the marginals of an approximate inference break
        down: "best" is the iterate with the fewest training errors, "last" the last, "averaged" the mean, and "voted"
        several that vote.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import LBFGS
    >>> TRWCRF(solver=LBFGS(l1_ratio=0.5)).get_params()["solver__l1_ratio"]
    0.5
    """

    _parameter_constraints: ClassVar[dict] = {
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "select": [StrOptions(set(SELECTIONS))],
    }

    l1_ratio: float = 0.0
    select: str = "best"

    def train(self, problem: PenalisedRisk, start: np.ndarray, run: Any, remedy: str = REMEDY) -> TrainingRecord:
        with open_training(problem, run, remedy, "LBFGS", self.l1_ratio) as report:
            if not problem.has_value(start):
                raise ValueError(
                    "solver='lbfgs' needs a smooth loss, but this combination of learning and inference has none: "
                    "use solver=GradientSteps()."
                )
            selection = Selection(self.select)
            record, exact = problem.record, problem.risk.is_exact
            objective = problem.risk.objective

            def visit(coef):
                problem.visit(coef)
                if not exact:
                    selection.visit(record.latest, record.errors[-1])

            def callback(point):
                visit(point.x)
                return report(point.x) or (not exact and _diverges(record.errors))

            visit(start)
            curvature = problem.curvature if len(start) > _SOME_WEIGHTS else None
            if self.l1_ratio or len(start) > _MANY_WEIGHTS or curvature is not None:
                minimize, options = minimize_owlqn, {"l1": problem.l1, "curvature": curvature}
            else:
                history_size = _LONG_HISTORY if len(start) <= _FEW_WEIGHTS else _SHORT_HISTORY
                minimize, options = minimize_lbfgs, {"history_size": history_size, "noise": objective.noise}
                if objective.gains_from_scaling:
                    options["scaling"] = choose_scaling(problem, start)
            options.update(tol=run.tol, most_left=SHARE_LEFT, callback=callback)
            result = minimize(problem.evaluate, start, max_iter=run.max_iter + 1 - record.n_iter, **options)
            while (
                not record.stopped
                and record.n_iter <= run.max_iter
                and objective.settle(0.0 if result.success else None)
            ):
                # Training has only converged if the inner problem has its final accuracy.
                # A line search that failed also needs a more accurate inner problem.
                result = minimize(problem.evaluate, result.x, max_iter=run.max_iter + 1 - record.n_iter, **options)
            options.pop("scaling", None)
            left = lambda: -1 if record.stopped else run.max_iter + 1 - record.n_iter  # noqa: E731
            result = minimize_in_bulk(minimize, problem, result, left, **options)
            settled = exact or not _diverges(record.errors)
            record.coef, record.best_iter, record.stop_reason = result.x, record.n_iter - 1, result.message
            record.converged = bool(result.success and record.inference_converged and settled and not record.stopped)
            if exact and not record.inference_converged:
                warn_of_inner_problem(problem)
            elif exact and not result.success:
                warn_of_lbfgs(result, problem, run.max_iter)
            elif not (exact or record.converged or record.stopped):
                self._keep_selected(problem, selection)
        return problem.record

    def _keep_selected(self, problem, selection):
        # Once the inference has no unique result, its free energy continues to decrease, but its labels get worse.
        # The number of errors is a better criterion than the free energy (Kumar et al. 2005, section 7.2).
        chosen = "with the fewest errors" if self.select == "best" else f"chosen by select={self.select!r}"
        warn_unconverged(
            "The approximate inference has no consistent gradient near the last weights, so training kept the "
            f"weights {chosen} among all weights visited: {problem.remedy}",
            problem,
        )
        problem.record.choose(selection)


@options(kw_only=False)
class GradientSteps(Solver):
    """Steps of constant or decreasing length along the negative gradient over all examples.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size. The gradient is divided by the number of labelled nodes. On lattices with four neighbours, pairwise
        weights have four times this step size, as in Kumar et al.; on denser graphs, their step size is smaller.
    step_schedule : {"constant", "annealed", "adaptive"}, default="constant"
        Whether steps shrink. With "annealed" steps, learning methods without a smooth loss converge, but are biased.
        With "adaptive" steps each weight has its own step size, as in AdaGrad, and training ends after ``5 n_cycles``
        steps without fewer errors.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Choice of the final weights if the steps do not converge: the weights with the fewest training errors of the
        training inference (Kumar et al. 2005, section 7.2), the last, the mean of all, or several that vote.
    n_cycles : int, default=3
        Learning methods without a smooth loss stop after this number of cycles of their errors.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import GradientSteps
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> steps = GradientSteps(step_size=0.5)
    >>> DRFClassifier(learning="pl", solver=steps, max_iter=500, tol=0.01).fit(
    ...     X, y
    ... ).predict(X).shape
    (3, 5)
    """

    _parameter_constraints: ClassVar[dict] = {
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed", "adaptive"})],
        "select": [StrOptions(set(SELECTIONS))],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
    }

    step_size: float = 0.1
    step_schedule: str = "constant"
    select: str = "best"
    n_cycles: int = 3

    def train(self, problem, start, run, remedy=REMEDY):
        with open_training(problem, run, remedy, "GradientSteps") as report:
            smooth, record = problem.risk.objective.smooth, problem.record
            # With an approximate inference, labels may get worse while the loss decreases (see LBFGS._keep_selected).
            selection = Selection("last" if smooth and problem.risk.is_exact else self.select)
            # Adaptive steps shrink and never leave a region with few errors, so no departure from it is awaited.
            patience: dict[str, Any] = {"departure": np.inf, "patience": 5, "min_iter": 5 * self.n_cycles}
            cycles = CycleDetector(self.n_cycles, **(patience if self.step_schedule == "adaptive" else {}))
            n_constant_errors = problem.risk.n_constant_errors

            def has_cycled(n_errors):
                # From a bad start, the steps may give all nodes the same label, and alternate between two such labels.
                # The number of errors then recurs, although training is not stuck in a cycle.
                # Contrastive divergence counts no errors and has no cycles: sampling noise dominates its gradient.
                return n_errors is not None and n_errors < n_constant_errors and cycles.update(n_errors)

            def callback(point):
                problem.visit(point.x)
                selection.visit(record.latest, record.errors[-1])
                cycled = not smooth and has_cycled(record.errors[-1])
                return report(point.x) or cycled

            result = gradient_ascent(
                problem.direction,
                start,
                step_size=self.step_size,
                schedule=self.step_schedule,
                # The start of training counts as an iterate.
                max_iter=run.max_iter - 1,
                tol=run.tol if smooth else 0.0,
                callback=callback,
            )
            if record.latest is None or not np.array_equal(record.latest, result.x):
                # If the gradient is zero, the ascent ends without calling ``callback`` for its last point.
                callback(result)
            # Without a smooth loss, training ends in cycles or at a fixed point.
            # If labelings are drawn at random, a zero gradient does not mean a fixed point.
            is_fixed, draws = not np.any(result.jac), problem.risk.objective.draws
            record.stop_reason = result.message
            if result.success and not record.stopped:
                left = check_remaining_slope(problem, result.x, run.tol, record.n_iter)
                record.converged, record.stop_reason = left is None, left or result.message
            if is_fixed and draws:
                record.stop_reason = "STOP: the gradient for the labelings drawn is zero"
            if not smooth and cycles.n_completed >= self.n_cycles:
                n_steps = cycles.n_iter - 1 - cycles.best_iter
                told = f"no fewer errors in the last {n_steps} steps"
                is_adaptive = self.step_schedule == "adaptive"
                record.stop_reason = f"STOP: {told if is_adaptive else f'{cycles.n_completed} cycles of the errors'}"
            if smooth and not result.success:
                warn_unconverged("Gradient steps did not converge: increase max_iter or change step_size", problem)
            elif not smooth and not result.success and record.n_iter >= run.max_iter and None not in record.errors:
                if min(record.errors) >= n_constant_errors:
                    told = (
                        "No step gave better labels than one class for all nodes: use init='independent', or "
                        "increase max_iter"
                    )
                    warn_unconverged(told, problem)
                elif _gets_better(record.errors):
                    told = "The number of errors was still decreasing in the last steps: increase max_iter or step_size"
                    warn_unconverged(told, problem)
            if record.converged:
                record.coef, record.best_iter = result.x, record.n_iter - 1
            else:
                record.choose(selection)
        return problem.record


@options(kw_only=False)
class SGD(Solver):
    """Stochastic gradient steps over mini-batches of examples.

    Parameters
    ----------
    step_size : float, default=0.1
        First step size. The gradient is the mean over labelled nodes.
    step_schedule : {"annealed", "constant", "sqrt"}, default="annealed"
        Schedule by which steps shrink.
    batch_size : int, default=8
        Number of examples in a mini-batch.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Choice of the final weights, as in :class:`GradientSteps`, if the learning method has no smooth loss. With a
        smooth loss the last weights are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import SGD
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> crf = TRWCRF(
    ...     C=10,
    ...     solver=SGD(step_size=1.0, batch_size=1),
    ...     edge_features="constant",
    ...     random_state=0,
    ... ).fit(X, y)
    >>> float(crf.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"annealed", "constant", "sqrt"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "select": [StrOptions(set(SELECTIONS))],
    }
    is_stochastic = True

    step_size: float = 0.1
    step_schedule: str = "annealed"
    batch_size: int = 8
    select: str = "best"

    def train(self, problem, start, run, remedy=REMEDY):
        with open_training(problem, run, remedy, "SGD") as report:
            record = problem.record
            selection = Selection("last" if problem.risk.objective.smooth else self.select)

            def callback(point):
                problem.visit(point.x)
                selection.visit(record.latest, record.errors[-1])
                return report(point.x)

            result = self.minimize_by_epochs(
                problem, start, run, lambda members, coef: problem.evaluate(coef, members), callback
            )
            record.stop_reason = result.message
            record.converged = bool(result.success and record.inference_converged)
            if problem.risk.is_exact and not record.inference_converged:
                warn_of_inner_problem(problem)
            record.choose(selection)
        return problem.record

    def minimize_by_epochs(self, problem, start, run, gradient, callback):
        """Make stochastic steps along gradients of mini-batches, and warn if the steps do not converge.

        The steps have converged if the loss decreased by at most ``run.tol`` per node in the last tenth of the epochs,
        and can hardly decrease further.
        """
        # gradient: callable(members, coef) -> (value, gradient)
        # callback: called with the iterate after every epoch; if it returns True, training stops
        result = minimize_sgd(
            gradient,
            start,
            len(problem.risk.batches),
            step_size=self.step_size,
            schedule=self.step_schedule,
            n_epochs=run.max_iter,
            batch_size=self.batch_size,
            random_state=run.rng,
            callback=callback,
        )
        record = problem.record
        if not result.success:
            warn_unconverged(f"Stochastic gradient descent ended with {result.message!r}: decrease step_size", problem)
        elif record.stopped or not record.inference_converged:
            result.success = False
        elif _falls(record.loss, run.tol * problem.scale):
            result.success = False
            warn_unconverged(
                "The loss was still decreasing in the last epochs: increase max_iter or step_size, or decrease "
                "batch_size",
                problem,
            )
        else:
            left = check_remaining_slope(problem, result.x, run.tol, record.n_iter)
            result.success, result.message = (
                left is None,
                left or ("CONVERGENCE: the objective can hardly decrease further"),
            )
        return result


@options(kw_only=False)
class AnchoredBundle(Solver):
    r"""Bundle method for the convex loss of the saddle point approximation, with a duality gap.

    .. math::
        \min_w \; \tfrac12 \lVert w - w_0 \rVert^2 + C \sum_i \bigl( \max_y \mathrm{score}_w(y) -
            \mathrm{score}_w(y_i) \bigr)
        \quad \text{subject to} \quad w_0^\top (w - w_0) = 0

    The loss is proportional to the scale of the weights, and would be smallest if all weights were zero. The scale is
    therefore fixed by the start :math:`w_0`, the weights of the field without edges. If the inference is exact, the gap
    is an upper bound on the suboptimality of the objective.

    Parameters
    ----------
    tol : float, default=1e-3
        Duality gap at which to stop, relative to the objective.

    See Also
    --------
    sklearn_crf.optimize.bmrm : The bundle method.

    Examples
    --------
    >>> from sklearn_crf.learning import AnchoredBundle
    >>> AnchoredBundle(tol=1e-4).get_params()
    {'tol': 0.0001}
    """

    _parameter_constraints: ClassVar[dict] = {"tol": [Interval(Real, 0, None, closed="left")]}

    tol: float = 1e-3

    def train(self, problem, start, run, remedy=REMEDY):
        with open_training(problem, run, remedy, "AnchoredBundle") as report:
            record, scale = problem.record, run.C * problem.n_nodes
            norm = float(np.linalg.norm(start))
            if not problem.has_value(start) or not norm:
                raise ValueError(
                    "solver='bundle' needs a loss and non-zero initial weights, because training keeps the scale of"
                    " the weights: use learning='spa' with init='independent', or solver='steps'."
                )
            anchor = start / norm

            def along(x):
                return x - anchor * (anchor @ x)

            def loss(x):
                coef = start + along(x)
                value, gradient = problem.evaluate(coef)
                problem.visit(coef)
                return scale * value, scale * along(gradient)

            found = bmrm(
                loss,
                np.zeros(len(start)),
                floor=0.0,
                max_iter=run.max_iter,
                tol=self.tol,
                callback=lambda point: report(record.latest),
            )
            record.coef = start + along(found.x)
            record.best_iter = int(np.argmin(found.loss_curve))
            record.gap = found.gap + run.C * problem.compute_inference_gap(record.coef)
            record.stop_reason = found.message
            record.converged = bool(found.success and record.gap <= 2 * self.tol * abs(found.fun))
            if not found.success:
                warn_unconverged(
                    f"The bundle method ended with {found.message!r} at a duality gap of {record.gap:.3g} for an "
                    f"objective of {found.fun:.3g}: increase max_iter, or use an exact inference",
                    problem,
                )
        return record


class AutoSolver(Solver):
    """L-BFGS for a smooth loss, and gradient steps for learning methods without a smooth loss."""

    def train(self, problem, start, run, remedy=REMEDY):
        is_smooth = problem.risk.objective.smooth and problem.has_value(start)
        return (LBFGS() if is_smooth else GradientSteps()).train(problem, start, run, remedy)


#: Solvers by name.
SOLVERS: dict[str, type[Solver]] = {"lbfgs": LBFGS, "gradient": GradientSteps, "sgd": SGD}

# L-BFGS diverges if, in _PATIENCE successive iterations, the errors exceed _MARGIN times their minimum.
_PATIENCE = 6
_MARGIN = 1.05


def _diverges(errors):
    """Return whether each of the last iterates made clearly more errors than the best iterate."""
    latest = errors[-_PATIENCE:]
    return len(latest) == _PATIENCE and None not in latest and min(latest) > _MARGIN * min(errors)


# Fraction of the iterations that count as the last iterations. Training is complete if they bring no improvement.
_LAST = 0.1

# Errors still decrease, and do not just fluctuate, if their number is below this fraction of the earlier minimum.
_CLEARLY = 0.99


def _gets_better(errors):
    """Return whether the minimum number of errors in the last iterations is clearly below the earlier minimum."""
    before, last = _find_recent_minima(errors)
    return last < _CLEARLY * before


def _falls(losses, most):
    """Return whether the minimum loss in the last iterations is more than ``most`` below the earlier minimum."""
    if None in losses:
        return False
    before, last = _find_recent_minima(losses)
    return before - last > most


def _find_recent_minima(values):
    n_last = max(1, int(_LAST * len(values)))
    return min(values[:-n_last], default=np.inf), min(values[-n_last:])


def warn_of_inner_problem(problem):
    warn_unconverged(
        f"The marginals of training did not converge, so the loss is not exactly convex: {problem.remedy}",
        problem,
    )
