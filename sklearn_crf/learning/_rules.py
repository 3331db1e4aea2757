"""Learning rules of DRFClassifier: the coupling of learning to inference of Kumar et al. 2005, section 3.2."""

from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_crf.inference import (
    LABELING_RULES,
    AutoMap,
    AutoMarginals,
    Inference,
    TreeInference,
    TRWMessagePassing,
    resolve_inference,
)
from sklearn_crf.learning._few_labels import MAX_NODES, risk_of_few_labels
from sklearn_crf.learning._learning_rule import INIT, LearningRule
from sklearn_crf.learning._solvers import LBFGS, SGD, GradientSteps, Solver
from sklearn_crf.learning._stepped_rules import CD, MMA, SPA
from sklearn_crf.objectives import (
    Likelihood,
    Objective,
    Pseudolikelihood,
    RelaxedLikelihood,
)


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
        "init": INIT,
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
    reach : int or None, default=None
        Where few nodes are labelled, only those are learned from that are at most this many edges away from one, if
        that excludes half of them. None takes all that are joined to one, in graphs of more than ``max_nodes`` nodes as
        far as these. Near strokes alone neighbours have the same label, so that a short reach overrates edges.
    max_nodes : int or None, default=20000
        Images and volumes of more nodes, fewer than half of them labelled, are learned from at a coarser scale: blocks
        of pixels, at most this many, with the means of their features and their commonest label, among which ``reach``
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
        reach: int | None = None,
        max_nodes: int | None = MAX_NODES,
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
        return risk_of_few_labels(risk, self.reach, self.max_nodes)

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
        exact = decoding.inference if "marginals" in decoding.inference.tasks else AutoMarginals(budget="fast")
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


def resolve_learning(learning: str | LearningRule | Objective, inference: str | Inference) -> LearningRule:
    """The rule of a constructor parameter.

    Parameters
    ----------
    learning : str, LearningRule or Objective
        ``"auto"`` matches the inference: saddle point for MAP, pseudo-marginals for MPM.
    inference : str or Inference
        What predicts, as the parameter of an estimator.

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
        by_name = isinstance(inference, str)
        rule = LABELING_RULES[inference] if by_name else resolve_inference(inference).rule
        learning = "pma" if rule == "mpm" else "spa"
    return RULES[learning]()
