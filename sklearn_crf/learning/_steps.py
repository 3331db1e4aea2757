"""Learning that follows no smooth loss: by the best labeling, by largest marginals, by Gibbs sweeps."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf._reports import warn_caller
from sklearn_crf.inference import AutoMap
from sklearn_crf.learning._learning import DescentLearning
from sklearn_crf.learning._plan import FitPlan
from sklearn_crf.learning._solvers import SELECTIONS, SGD, AnchoredBundle, GradientSteps
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.objectives import ContrastiveDivergence, MaximumMarginal, Objective, SaddlePoint


@options
class SteppedLearning(DescentLearning):
    """Base of the ways that follow no smooth loss, by steps that may end in cycles.

    Parameters
    ----------
    step_size : float, default=0.1
        Length of a step; the gradient is the mean over labelled nodes. See :class:`GradientSteps`. This option and the
        next four are those of the steps of ``solver="auto"``.
    step_schedule : {"constant", "annealed", "adaptive"}, default="constant"
        Whether steps shrink. Annealing makes the weights settle, at the price of a bias. Adaptive steps, without
        mini-batches alone, are of a length of its own for each weight; training ends once ``5 n_cycles`` of them lead
        to no fewer errors.
    batch_size : int or None, default=None
        Examples of a mini-batch; None makes steps for all examples.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Weights of the trajectory that are kept: those with the fewest training errors by the inference that learns
        (Kumar et al. 2005, section 7.2), the last, the mean of all, or a vote of several at prediction.
    n_cycles : int, default=3
        Training stops after this many cycles of the errors.
    """

    _parameter_constraints: ClassVar[dict] = {
        **DescentLearning._parameter_constraints,
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed", "adaptive"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "select": [StrOptions(set(SELECTIONS))],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
    }
    step_size: float = 0.1
    step_schedule: str = "constant"
    batch_size: int | None = None
    select: str = "best"
    n_cycles: int = 3

    def solver(self, solver: Any, plan: FitPlan, encoded: Any, potentials: Any = None) -> Any:
        if solver == "auto":
            return self._steps()
        if solver == "bundle":
            return AnchoredBundle()
        return super().solver(solver, plan, encoded, potentials)

    def _steps(self):
        steps: dict[str, Any] = {
            "step_size": self.step_size,
            "step_schedule": self.step_schedule,
            "select": self.select,
        }
        if self.batch_size is None:
            return GradientSteps(n_cycles=self.n_cycles, **steps)
        if self.step_schedule == "adaptive":
            steps["step_schedule"] = "constant"
        return SGD(batch_size=self.batch_size, **steps)

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        return self.principle().coupled(plan.training_inference.inference)

    def warn_of_scale(self) -> None:
        # Best labelings do not see the scale; that of the weights of single pixels is right for those.
        if isinstance(self.init, str) and self.init in ("zeros", "random"):
            warn_caller(
                f"Steps of learning={self.name!r} from init={self.init!r} give the weights a scale that depends on "
                "step_size, and probabilities are as sure as that: use init='auto', or fit the scale with "
                "TemperatureScaling."
            )


@options
class SaddlePointTraining(SteppedLearning):
    r"""Saddle point approximation (SPA): the best labeling stands for the expectations.

    .. math:: \partial \ell \ni \phi(\hat y) - \phi(y^*), \qquad \hat y = \arg\max_y \mathrm{score}(y)

    The perceptron's rule. Source: Kumar et al. 2005, section 4.2. Its loss is convex, so that ``solver="bundle"`` can
    minimise it with a proof, by :class:`AnchoredBundle`, to which ``C`` and ``max_iter`` apply; the steps of the paper
    do not converge. The least loss need not have the fewest errors, by which steps are chosen. A step asks for a
    direction alone: where :class:`~sklearn_crf.inference.AutoMap` would be approximate, one iteration of its messages
    goes on from those of the step before.

    Parameters
    ----------
    step_schedule : {"constant", "annealed", "adaptive"}, default="adaptive"
        Steps of one length are those of the paper, and go round in cycles that few of three and more classes end well.

    Examples
    --------
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import SaddlePointTraining
    >>> drf = DRFClassifier(learning=SaddlePointTraining(step_size=0.41), inference="map")
    >>> drf.set_params(learning__step_size=0.2).learning
    SaddlePointTraining(step_size=0.2)
    """

    name = "spa"
    takes_factors = True
    principle = SaddlePoint
    step_schedule: str = "adaptive"

    def objective(self, plan: FitPlan, data: Any) -> SaddlePoint:
        found = super().objective(plan, data)
        is_default = isinstance(found.inference, AutoMap) and found.inference.budget == "default"
        if is_default and not isinstance(plan.solver, AnchoredBundle):
            found.set_params(warm_start=True, inference__budget="step")
        return found

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        if plan.asked_solver == "bundle" and not start.any():
            # Without a scale to keep there is nothing but steps.
            return self._steps().train(problem, start, run)
        return super().minimize(problem, start, plan, run)


@options
class MaximumMarginalTraining(SteppedLearning):
    r"""Maximum marginal approximation (MMA): each node's likeliest state stands for its marginals.

    .. math:: J(\theta) = \phi(y^*) - \phi(\tilde y), \qquad \tilde y_s = \arg\max_k \mu_s(k)

    Source: Kumar et al. 2005, section 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import MaximumMarginalTraining
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> learning = MaximumMarginalTraining()
    >>> drf = DRFClassifier(learning=learning, C=10, edge_features="constant").fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "mma"
    takes_factors = True
    principle = MaximumMarginal


@options
class ContrastiveDivergenceTraining(SteppedLearning):
    r"""Contrastive divergence (CD): some Gibbs sweeps from the truth stand for the expectations.

    .. math:: J(\theta) = \phi(y^*) - \phi(y^{(k)})

    No errors are counted, so that ``select="best"`` is the last iterate.

    Parameters
    ----------
    n_sweeps : int, default=1
        Gibbs sweeps k.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import ContrastiveDivergenceTraining
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> learning = ContrastiveDivergenceTraining(n_sweeps=2)
    >>> DRFClassifier(learning=learning, edge_features="constant", random_state=0).fit(
    ...     X, y
    ... ).predict(X).shape
    (3, 5)
    """

    name = "cd"
    why_not: ClassVar[dict[str, str]] = {"factors": "its sampler goes from node to node along edges"}
    _parameter_constraints: ClassVar[dict] = {
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        **SteppedLearning._parameter_constraints,
    }
    n_sweeps: int = 1

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        return ContrastiveDivergence(self.n_sweeps)

    def warn_of_scale(self) -> None:
        """Stay silent: its gradient is that of the likelihood, which has a scale."""
