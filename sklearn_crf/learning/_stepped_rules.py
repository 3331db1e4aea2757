"""Learning rules that follow no smooth loss: by the best labeling, by largest marginals, by Gibbs sweeps."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf.learning._learning_rule import INIT, LearningRule
from sklearn_crf.learning._solvers import SELECTIONS, SGD, AnchoredBundle, GradientSteps, Solver
from sklearn_crf.objectives import ContrastiveDivergence, MaximumMarginal, SaddlePoint


class SteppedRule(LearningRule):
    """Base of the rules that follow no smooth loss, by steps that may end in cycles."""

    _parameter_constraints: ClassVar[dict] = {
        **LearningRule._parameter_constraints,
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "select": [StrOptions(set(SELECTIONS))],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
        "init": INIT,
    }

    def __init__(
        self,
        step_size: float = 0.1,
        step_schedule: str = "constant",
        batch_size: int | None = None,
        select: str = "best",
        n_cycles: int = 3,
        init: str | np.ndarray = "auto",
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.batch_size = batch_size
        self.select = select
        self.n_cycles = n_cycles
        self.init = init
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    @property
    def is_stochastic(self) -> bool:
        """Whether steps are made for mini-batches."""
        return self.batch_size is not None

    def solver_for(self, problem, start):
        steps = {"step_size": self.step_size, "step_schedule": self.step_schedule, "select": self.select}
        if self.batch_size is not None:
            return SGD(batch_size=self.batch_size, **steps)
        return GradientSteps(n_cycles=self.n_cycles, **steps)


class SPA(SteppedRule):
    r"""Saddle point approximation: the best labeling stands for the expectations.

    .. math:: \partial \ell \ni \phi(\hat y) - \phi(y^*), \qquad \hat y = \arg\max_y \mathrm{score}(y)

    The perceptron's rule. Source: Kumar et al. 2005, section 4.2. Its loss is convex, so that ``solver="bundle"`` can
    minimise it with a proof; the steps of the paper do not converge. The least loss need not have the fewest errors, by
    which steps are chosen.

    Parameters
    ----------
    step_size : float, default=0.1
        Length of a step; the gradient is the mean over labelled nodes. See :class:`GradientSteps`.
    step_schedule : {"constant", "annealed"}, default="constant"
        Whether steps shrink. Annealing makes the rule settle, at the price of a bias.
    batch_size : int or None, default=None
        Examples of a mini-batch; None makes steps for all examples.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Weights of the trajectory that are kept: those with the fewest training errors by the rule's own inference
        (Kumar et al. 2005, section 7.2), the last, the mean of all, or a vote of several at prediction.
    n_cycles : int, default=3
        Training stops after this many cycles of the errors.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        Where training starts: "auto" and "independent" are the weights of the field without edges.
    solver : {"steps", "bundle"} or Solver, default="steps"
        "steps" is :class:`GradientSteps`, or :class:`SGD` with a ``batch_size``. "bundle" is :class:`AnchoredBundle`,
        to which the estimator's ``C`` and ``max_iter`` apply, and none of the options of steps.
    early_stopping : bool or "auto", default="auto"
        As of :class:`PMA`.
    validation_fraction : float, default=0.1
        As of :class:`PMA`.
    n_iter_no_change : int, default=10
        As of :class:`PMA`.

    Examples
    --------
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import SPA
    >>> drf = DRFClassifier(learning=SPA(step_size=0.41), inference="map")
    >>> drf.set_params(learning__step_size=0.2).learning
    SPA(step_size=0.2)
    """

    name = "spa"
    _parameter_constraints: ClassVar[dict] = {
        **SteppedRule._parameter_constraints,
        "solver": [StrOptions({"steps", "bundle"}), Solver],
    }

    def __init__(
        self,
        step_size: float = 0.1,
        step_schedule: str = "constant",
        batch_size: int | None = None,
        select: str = "best",
        n_cycles: int = 3,
        init: str | np.ndarray = "auto",
        solver: str | Solver = "steps",
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        super().__init__(
            step_size,
            step_schedule,
            batch_size,
            select,
            n_cycles,
            init,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
        )
        self.solver = solver

    def solver_for(self, problem, start):
        if isinstance(self.solver, Solver):
            return clone(self.solver)
        # Without a scale to keep there is nothing but steps.
        return AnchoredBundle() if self.solver == "bundle" and start.any() else super().solver_for(problem, start)

    def objective(self, decoding):
        return SaddlePoint().coupled(decoding.inference)


class MMA(SteppedRule):
    r"""Maximum marginal approximation: each node's likeliest state stands for its marginals.

    .. math:: J(\theta) = \phi(y^*) - \phi(\tilde y), \qquad \tilde y_s = \arg\max_k \mu_s(k)

    Source: Kumar et al. 2005, section 4.3.

    Parameters
    ----------
    step_size : float, default=0.1
        As of :class:`SPA`.
    step_schedule : {"constant", "annealed"}, default="constant"
        As of :class:`SPA`.
    batch_size : int or None, default=None
        As of :class:`SPA`.
    select : {"best", "last", "averaged", "voted"}, default="best"
        As of :class:`SPA`.
    n_cycles : int, default=3
        As of :class:`SPA`.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        As of :class:`SPA`.
    early_stopping : bool or "auto", default="auto"
        As of :class:`PMA`.
    validation_fraction : float, default=0.1
        As of :class:`PMA`.
    n_iter_no_change : int, default=10
        As of :class:`PMA`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import MMA
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> drf = DRFClassifier(learning=MMA(), C=10, edge_features="constant").fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "mma"

    def objective(self, decoding):
        return MaximumMarginal().coupled(decoding.inference)


class CD(SteppedRule):
    r"""Contrastive divergence: some Gibbs sweeps from the truth stand for the expectations.

    .. math:: J(\theta) = \phi(y^*) - \phi(y^{(k)})

    Parameters
    ----------
    n_sweeps : int, default=1
        Gibbs sweeps k.
    step_size : float, default=0.1
        As of :class:`SPA`.
    step_schedule : {"constant", "annealed"}, default="constant"
        As of :class:`SPA`.
    batch_size : int or None, default=None
        As of :class:`SPA`.
    select : {"best", "last", "averaged", "voted"}, default="best"
        As of :class:`SPA`; the rule counts no errors, so that "best" is the last.
    n_cycles : int, default=3
        As of :class:`SPA`.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        As of :class:`SPA`.
    early_stopping : bool or "auto", default="auto"
        As of :class:`PMA`.
    validation_fraction : float, default=0.1
        As of :class:`PMA`.
    n_iter_no_change : int, default=10
        As of :class:`PMA`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import CD
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> drf = DRFClassifier(
    ...     learning=CD(n_sweeps=2), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> drf.predict(X).shape
    (3, 5)
    """

    name = "cd"
    _parameter_constraints: ClassVar[dict] = {
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        **SteppedRule._parameter_constraints,
    }

    def __init__(
        self,
        n_sweeps: int = 1,
        step_size: float = 0.1,
        step_schedule: str = "constant",
        batch_size: int | None = None,
        select: str = "best",
        n_cycles: int = 3,
        init: str | np.ndarray = "auto",
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        super().__init__(
            step_size,
            step_schedule,
            batch_size,
            select,
            n_cycles,
            init,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
        )
        self.n_sweeps = n_sweeps

    def objective(self, decoding):
        return ContrastiveDivergence(self.n_sweeps)
