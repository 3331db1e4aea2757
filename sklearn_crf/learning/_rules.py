"""Learning rules of DRFClassifier: the coupling of learning to inference of Kumar et al. 2005, section 3.2."""

from functools import partial
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_crf.inference import (
    AutoMap,
    AutoMarginals,
    Inference,
    NamedInference,
    TreeInference,
    TRWMessagePassing,
    resolve_inference,
)
from sklearn_crf.learning._few_labels import coarse_risk, risk_near_labels
from sklearn_crf.learning._learning_rule import LearningRule
from sklearn_crf.learning._solvers import LBFGS, SELECTIONS, SGD, AnchoredBundle, GradientSteps, Solver
from sklearn_crf.objectives import (
    ContrastiveDivergence,
    Likelihood,
    MaximumMarginal,
    Objective,
    Pseudolikelihood,
    RelaxedLikelihood,
    SaddlePoint,
)

_INIT = [StrOptions({"auto", "zeros", "random", "independent"}), np.ndarray]


def map_inference(inference: str | Inference, name: str) -> Inference:
    """The inference of a constructor parameter for best labelings alone, cloned.

    Parameters
    ----------
    inference : str or Inference
        ``"auto"`` is :class:`~sklearn_crf.inference.AutoMap`.
    name : str
        Of the estimator, for the error.

    Returns
    -------
    Inference

    Raises
    ------
    ValueError
        If it cannot do ``"map"``.
    """
    if isinstance(inference, str) and inference == "auto":
        return AutoMap()
    found = resolve_inference(inference)
    if "map" not in found.inference.tasks or (isinstance(inference, str) and inference == "mpm"):
        raise ValueError(
            f"inference={inference!r} finds no best labelings (MAP), which {name} needs: use 'auto', 'max_product', "
            "'icm' or another that does."
        )
    return found.inference


class SmoothRule(LearningRule):
    """Base of the rules that have a smooth loss."""

    _parameter_constraints: ClassVar[dict] = {
        **LearningRule._parameter_constraints,
        "solver": [StrOptions({"auto", "lbfgs", "gradient", "sgd"}), Solver],
        "init": _INIT,
    }

    def __init__(
        self,
        solver: str | Solver = "auto",
        init: str | np.ndarray = "auto",
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.solver = solver
        self.init = init
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    @property
    def is_stochastic(self) -> bool:
        """Whether steps are made for mini-batches."""
        return self.solver == "sgd" or isinstance(self.solver, SGD)

    def solver_for(self, problem, start):
        if isinstance(self.solver, Solver):
            return clone(self.solver)
        if self.solver == "auto":
            return LBFGS() if problem.has_value(start) else GradientSteps()
        return {"lbfgs": LBFGS(), "gradient": GradientSteps(), "sgd": SGD(step_schedule="constant")}[self.solver]


# Largest change of a message at which the marginals of the first iterates are good enough.
_FIRST_TOL = 3e-2


class PMA(SmoothRule):
    r"""Pseudo-marginal approximation: the marginals of the inference that predicts.

    .. math:: \nabla \ell = \mu(\theta) - \phi(y^*)

    With exact inference it is maximum likelihood. Inference by a convex bound (``"trw"``) makes it a convex problem
    where all nodes are labelled: messages then go on from step to step, and are as accurate as the gradient is small.
    Belief propagation starts again at every step, since it may have several fixed points. Source: Kumar et al. 2005,
    section 4.1.

    Parameters
    ----------
    solver : {"auto", "lbfgs", "gradient", "sgd"} or Solver, default="auto"
        "auto" is L-BFGS, or gradient steps where the inference has no log-partition.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        Where training starts: zero, normal random numbers, or the weights of the field without edges. "auto" is zero
        where the loss is convex, and "independent" for approximate marginals, whose training may go wrong from zero.
    reach : int or None, default=4
        Where few nodes are labelled, only those are learned from that are at most this many edges away from one, if
        that excludes half of them. None takes all.
    max_nodes : int or None, default=40000
        Images and volumes of more nodes, fewer than half of them labelled, are learned from at a coarser scale: blocks
        of pixels, about this many, with the means of their features and their commonest label, among which ``reach``
        counts; the curves of training are of these. Prediction is at full size. None learns at full size too.
    early_stopping : bool or "auto", default="auto"
        Whether examples are held out and the iterate is kept that labels most of their nodes right, by the inference
        that predicts (Kumar et al. 2005, footnote 3), whatever the solver would choose. "auto" is where ``fit`` is
        given ``X_val``.
    validation_fraction : float, default=0.1
        Share of the examples that are held out at random, where ``fit`` is given no ``X_val``.
    n_iter_no_change : int, default=10
        Training ends after so many iterations without a better score on the examples held out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import PMA
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> drf = DRFClassifier(learning=PMA(), C=10, edge_features="constant").fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "pma"
    _parameter_constraints: ClassVar[dict] = {
        "reach": [Interval(Integral, 0, None, closed="left"), None],
        "max_nodes": [Interval(Integral, 1, None, closed="left"), None],
        **SmoothRule._parameter_constraints,
    }

    def __init__(
        self,
        solver: str | Solver = "auto",
        init: str | np.ndarray = "auto",
        reach: int | None = 4,
        max_nodes: int | None = 40_000,
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        super().__init__(
            solver,
            init,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
        )
        self.reach = reach
        self.max_nodes = max_nodes

    def restricted(self, risk):
        if self.max_nodes is not None:
            risk = risk.derived(partial(coarse_risk, max_nodes=self.max_nodes))
        return risk if self.reach is None else risk.derived(partial(risk_near_labels, reach=self.reach))

    def objective(self, decoding):
        if not decoding.inference.convex:
            return Likelihood().coupled(decoding.inference)
        inference, final_tol = clone(decoding.inference), None
        if isinstance(inference, TRWMessagePassing):
            final_tol = inference.tol
            inference.set_params(tol=max(_FIRST_TOL, final_tol))
        return RelaxedLikelihood(inference, final_tol=final_tol)


class MaximumLikelihood(SmoothRule):
    """Maximum likelihood by exact expectations: forests, or an inference that is exact anywhere.

    Parameters
    ----------
    solver : {"auto", "lbfgs", "gradient", "sgd"} or Solver, default="auto"
        As of :class:`PMA`.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        As of :class:`PMA`.
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
    >>> from sklearn_crf.learning import MaximumLikelihood
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> drf = DRFClassifier(
    ...     learning=MaximumLikelihood(), C=10, edge_features="constant"
    ... ).fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "likelihood"

    def objective(self, decoding):
        exact = decoding.inference if "marginals" in decoding.inference.tasks else AutoMarginals()
        return Likelihood(exact if exact.exact_on == "any" else TreeInference())


class PL(SmoothRule):
    r"""Pseudolikelihood: each node given its true neighbours, without any inference.

    .. math:: \ell(\theta) = -\sum_s \log p(y_s \mid y_{N(s)}; \theta)

    Given its true neighbours a node hardly needs its own features, so that their weights suffer where neighbours are
    alike. ``fixed_nodes=True`` learns edges alone.

    Parameters
    ----------
    solver : {"auto", "lbfgs", "gradient", "sgd"} or Solver, default="auto"
        As of :class:`PMA`.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        As of :class:`PMA`.
    fixed_nodes : bool, default=False
        Whether the weights of nodes stay where training starts, with ``init="auto"`` those of the field without edges.
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
    >>> from sklearn_crf.learning import PL
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> drf = DRFClassifier(learning=PL(), C=10, edge_features="constant").fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "pl"
    _parameter_constraints: ClassVar[dict] = {"fixed_nodes": ["boolean"], **SmoothRule._parameter_constraints}

    def __init__(
        self,
        solver: str | Solver = "auto",
        init: str | np.ndarray = "auto",
        fixed_nodes: bool = False,
        *,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        super().__init__(
            solver,
            init,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
        )
        self.fixed_nodes = fixed_nodes

    def objective(self, decoding):
        return Pseudolikelihood()


class SteppedRule(LearningRule):
    """Base of the rules that follow no smooth loss, by steps that may end in cycles."""

    _parameter_constraints: ClassVar[dict] = {
        **LearningRule._parameter_constraints,
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "select": [StrOptions(set(SELECTIONS))],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
        "init": _INIT,
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


class OwnRule(LearningRule):
    """The rule of an objective of the user's own: L-BFGS where it is smooth and has a value, else gradient steps.

    Parameters
    ----------
    own : Objective
        With ``inference=None`` among its parameters it is given the inference that predicts.
    """

    def __init__(self, own: Objective):
        self.own = own

    def objective(self, decoding):
        return self.own.coupled(decoding.inference)

    def solver_for(self, problem, start):
        smooth = problem.risk.objective.smooth and problem.has_value(start)
        return LBFGS() if smooth else GradientSteps()


#: Learning rules by name.
RULES: dict[str, type[LearningRule]] = {rule.name: rule for rule in (PMA, SPA, MMA, PL, CD, MaximumLikelihood)}

#: What validation takes for ``learning``.
LEARNING_CONSTRAINTS = [StrOptions({"auto", *RULES}), LearningRule, HasMethods(["loss_statistics", "coupled"])]


def resolve_learning(learning: str | LearningRule | Objective, decoding: NamedInference) -> LearningRule:
    """The rule of a constructor parameter.

    Parameters
    ----------
    learning : str, LearningRule or Objective
        ``"auto"`` matches the decoding: saddle point for MAP, pseudo-marginals for MPM.
    decoding : NamedInference

    Returns
    -------
    LearningRule
    """
    if isinstance(learning, LearningRule):
        rule = clone(learning)
        rule._validate_params()
        return rule
    if isinstance(learning, Objective):
        return OwnRule(learning)
    if learning == "auto":
        learning = "pma" if decoding.rule == "mpm" else "spa"
    return RULES[learning]()
