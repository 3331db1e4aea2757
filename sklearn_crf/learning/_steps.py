"""Learning methods without a smooth loss: saddle point, maximum marginals and contrastive divergence."""

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
    """Base of the learning methods without a smooth loss. Gradient steps of these methods may end in cycles.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size. The gradient is divided by the number of labelled nodes. See :class:`GradientSteps`. This option and
        the next four options configure the steps of ``solver="auto"``.
    step_schedule : {"constant", "annealed", "adaptive"}, default="constant"
        Whether steps shrink. With "annealed" steps the weights converge, but are biased. With "adaptive" steps each
        weight has its own step size, and training ends after ``5 n_cycles`` steps without fewer errors; mini-batches
        use constant steps instead.
    batch_size : int or None, default=None
        Number of examples in a mini-batch. None uses all examples for each step.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Choice of the final weights: the weights with the fewest training errors of the training inference (Kumar et al.
        2005, section 7.2), the last, the mean of all, or several that vote at prediction.
    n_cycles : int, default=3
        Training stops after this number of cycles of the errors.
    """

    _parameter_constraints: ClassVar[dict] = {
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
        # Best labelings do not depend on the scale of the weights.
        # The initial weights have the scale of the field without edges, unless ``init`` is "zeros" or "random".
        if isinstance(self.init, str) and self.init in ("zeros", "random"):
            warn_caller(
                f"With learning={self.name!r} and init={self.init!r}, the scale of the weights depends on step_size,"
                " and so does the confidence of probabilities: use init='auto', or fit the scale with "
                "TemperatureScaling."
            )


@options
class SaddlePointTraining(SteppedLearning):
    r"""Saddle point approximation (SPA): the best labeling replaces the expectations.

    .. math:: \partial \ell \ni \phi(\hat y) - \phi(y^*), \qquad \hat y = \arg\max_y \mathrm{score}(y)

    This is the perceptron rule. Source: Kumar et al. 2005, section 4.2. The loss of the perceptron is convex, and
    ``solver="bundle"`` minimises it with a duality gap by :class:`AnchoredBundle`, which uses ``C`` and ``max_iter``.
    The gradient steps of the paper do not converge. Weights are chosen by the number of errors, whose minimum need not
    be the minimum of the loss. A step only needs a direction: if :class:`~sklearn_crf.inference.AutoMap` is
    approximate, each step performs one iteration of messages, starting from the messages of the previous step.

    Parameters
    ----------
    step_schedule : {"constant", "annealed", "adaptive"}, default="adaptive"
        As in :class:`MaximumMarginalTraining`. The constant steps of the paper end in cycles, which rarely contain good
        weights for three or more classes.

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
    takes_segments = True
    principle = SaddlePoint
    step_schedule: str = "adaptive"

    def objective(self, plan: FitPlan, data: Any) -> SaddlePoint:
        found = super().objective(plan, data)
        is_default = isinstance(found.inference, AutoMap) and found.inference.budget in ("fast", "default")
        if is_default and not isinstance(plan.solver, AnchoredBundle):
            found.set_params(warm_start=True, inference__budget="step")
        return found

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        if plan.asked_solver == "bundle" and not start.any():
            # The bundle method keeps the scale of the initial weights, so training from zero needs gradient steps.
            return self._steps().train(problem, start, run)
        return super().minimize(problem, start, plan, run)


@options
class MaximumMarginalTraining(SteppedLearning):
    r"""Maximum marginal approximation (MMA): the most probable state of each node replaces its marginals.

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
    takes_segments = True
    principle = MaximumMarginal


@options
class ContrastiveDivergenceTraining(SteppedLearning):
    r"""Contrastive divergence (CD): labels after Gibbs sweeps from the true labels replace the expectations.

    .. math:: J(\theta) = \phi(y^*) - \phi(y^{(k)})

    Errors are not counted, and ``select="best"`` keeps the last iterate.

    Parameters
    ----------
    n_sweeps : int, default=1
        Number k of Gibbs sweeps.

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
    takes_factors = True
    _parameter_constraints: ClassVar[dict] = {"n_sweeps": [Interval(Integral, 1, None, closed="left")]}
    n_sweeps: int = 1

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        return ContrastiveDivergence(self.n_sweeps)

    def warn_of_scale(self) -> None:
        """Give no warning, because the gradient approximates the likelihood, which determines the scale."""
