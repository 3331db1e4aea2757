"""Formulations of TRWCRF: what stands for log Z in training, and which marginals go with it at prediction."""

from functools import partial
from numbers import Integral, Real
from typing import ClassVar

from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_crf.inference import AutoMarginals, JunctionTree, LoopyBP, MeanField, TreeInference
from sklearn_crf.learning._formulation import Formulation
from sklearn_crf.learning._relaxations import (
    DualRelaxation,
    JointRelaxation,
    OptimalEdgeProbabilities,
    Relaxation,
    Reparameterization,
)
from sklearn_crf.learning._solvers import LBFGS, SGD, Solver
from sklearn_crf.learning._training import PenalisedRisk
from sklearn_crf.objectives import Likelihood, Objective, Piecewise, Pseudolikelihood, SharedPieces, at_best_shares

_MAX_ITER = [Interval(Integral, 1, None, closed="left")]
_TOL = [Interval(Real, 0, None, closed="neither")]


class Exact(Formulation):
    """The exact log-partition: on forests by messages, elsewhere by a junction tree.

    Parameters
    ----------
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss (softmax-margin): the number of wrong nodes, or ``cost[a, b]`` of a node of class b
        that is labelled a, in the order of ``classes_``. None is the likelihood.
    temperature : float, default=1.0
        T of the distribution, exp(score / T) up to its normaliser, and of the loss, T times its negative
        log-likelihood; towards zero, with costs, the loss becomes that of max-margin training.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Exact
    >>> TRWCRF(formulation=Exact(cost="hamming")).get_params()["formulation__cost"]
    'hamming'
    """

    name = "exact"
    takes_factors = True

    def likelihood(self, has_cycles, has_factors):
        return Likelihood(JunctionTree() if has_cycles or has_factors else TreeInference())

    def inference(self, has_cycles, has_factors):
        return JunctionTree() if has_cycles or has_factors else AutoMarginals(budget="fast")


class PiecewiseTraining(Formulation):
    """The log-partitions of nodes and edges, each by itself: quick, loose.

    Parameters
    ----------
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import PiecewiseTraining
    >>> import numpy as np
    >>> X, y = np.array([[[0.0], [0.1], [0.9], [1.0]]] * 3), np.array([[0, 0, 1, 1]] * 3)
    >>> TRWCRF(formulation=PiecewiseTraining()).fit(X, y).predict(X).tolist()[0]
    [0, 0, 1, 1]
    """

    name = "piecewise"
    takes_factors = True
    needs_labels = True

    def likelihood(self, has_cycles, has_factors):
        return Piecewise()

    def cyclic_nodes(self):
        return 4096

    def factor_nodes(self):
        return 512


class SharedPiecesTraining(PiecewiseTraining):
    """The log-partitions of edges, each by itself with a share of the scores of its nodes: quick, less loose.

    Parameters
    ----------
    shares : {"even", "optimized"}, default="even"
        Whether a node gives all its edges as much, or training goes on from there with the shares that make the bound
        least at the weights found, computed once: closer to :class:`Relaxation` by the trivial entropy, which computes
        them at every step, and two to four times as long as "even".
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    See Also
    --------
    sklearn_crf.objectives.SharedPieces : The loss.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import SharedPiecesTraining
    >>> import numpy as np
    >>> X, y = np.array([[[0.0], [0.1], [0.9], [1.0]]] * 3), np.array([[0, 0, 1, 1]] * 3)
    >>> TRWCRF(formulation=SharedPiecesTraining()).fit(X, y).predict(X).tolist()[0]
    [0, 0, 1, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "shares": [StrOptions({"even", "optimized"})],
        **PiecewiseTraining._parameter_constraints,
    }
    name = "shared_pieces"
    takes_factors = False

    def __init__(self, shares: str = "even", cost=None, temperature: float = 1.0):
        super().__init__(cost, temperature)
        self.shares = shares

    def likelihood(self, has_cycles, has_factors):
        return SharedPieces()

    def train(self, problem, start, run, solver):
        record = super().train(problem, start, run, solver)
        # What was stopped, interrupted or has no iterations left ends here.
        if self.shares == "even" or not record.converged or record.n_iter > run.max_iter:
            return record
        risk = problem.risk.derived(partial(at_best_shares, coef=record.coef))
        again = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        again.record = record
        return super().train(again, record.coef, run, solver)


class PseudolikelihoodTraining(PiecewiseTraining):
    """Each node given its true neighbours.

    Parameters
    ----------
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import PseudolikelihoodTraining
    >>> import numpy as np
    >>> X, y = np.array([[[0.0], [0.1], [0.9], [1.0]]] * 3), np.array([[0, 0, 1, 1]] * 3)
    >>> TRWCRF(formulation=PseudolikelihoodTraining()).fit(X, y).predict(X).tolist()[0]
    [0, 0, 1, 1]
    """

    name = "pseudolikelihood"

    def likelihood(self, has_cycles, has_factors):
        return Pseudolikelihood()


class LoopyTraining(Formulation):
    """The Bethe approximation by loopy belief propagation, exact on forests, not convex.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations of the inference of one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Formulation`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Formulation`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import LoopyTraining
    >>> TRWCRF(formulation=LoopyTraining(tol=1e-4)).get_params()["formulation__tol"]
    0.0001
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_iter": _MAX_ITER,
        "tol": _TOL,
        **Formulation._parameter_constraints,
    }
    name = "loopy"
    takes_factors = True
    remedy = "increase the max_iter of the formulation, decrease C, or take formulation='relaxation', which is convex"

    def __init__(self, max_iter: int = 500, tol: float = 1e-6, cost=None, temperature: float = 1.0):
        super().__init__(cost, temperature)
        self.max_iter = max_iter
        self.tol = tol

    def inference(self, has_cycles, has_factors):
        return LoopyBP(max_iter=self.max_iter, tol=self.tol)

    def likelihood(self, has_cycles, has_factors):
        return Likelihood(self.inference(has_cycles, has_factors))


class MeanFieldTraining(LoopyTraining):
    """The lower bound of mean field.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations of the inference of one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import MeanFieldTraining
    >>> TRWCRF(formulation=MeanFieldTraining(max_iter=100)).get_params()[
    ...     "formulation__max_iter"
    ... ]
    100
    """

    name = "mean_field"
    takes_factors = False

    def inference(self, has_cycles, has_factors):
        return MeanField(max_iter=self.max_iter, tol=self.tol)


class OwnFormulation(Formulation):
    """The formulation of an objective of the user's own."""

    # own: with ``inference=None`` among its parameters it is given the automatic choice

    name = "own"
    takes_factors = True

    def __init__(self, own: Objective):
        super().__init__()
        self.own = own

    def likelihood(self, has_cycles, has_factors):
        return self.own.coupled(AutoMarginals(budget="fast"))

    def inference(self, has_cycles, has_factors):
        asked = getattr(self.likelihood(has_cycles, has_factors), "inference", None)
        return asked if asked is not None and "marginals" in asked.tasks else AutoMarginals(budget="fast")


#: Formulations by name.
FORMULATIONS: dict[str, type[Formulation]] = {
    kind.name: kind
    for kind in (
        Exact,
        Relaxation,
        Reparameterization,
        JointRelaxation,
        DualRelaxation,
        OptimalEdgeProbabilities,
        PiecewiseTraining,
        SharedPiecesTraining,
        PseudolikelihoodTraining,
        LoopyTraining,
        MeanFieldTraining,
    )
}

#: What validation takes for ``formulation``.
FORMULATION_CONSTRAINTS = [StrOptions({"auto", *FORMULATIONS}), Formulation, HasMethods(["loss_statistics", "coupled"])]


def resolve_formulation(formulation: str | Formulation | Objective, is_narrow: bool, tol: float = 1e-4) -> Formulation:
    """The formulation of a constructor parameter."""
    # formulation: ``"auto"`` is exact where that is affordable and relaxed elsewhere
    # is_narrow: whether exact inference is affordable on all training examples, :func:`are_narrow`
    # tol: tolerance of the estimator, on which that of an inner problem depends
    if isinstance(formulation, Objective):
        return OwnFormulation(formulation)
    if isinstance(formulation, Formulation):
        found = clone(formulation)
        found._validate_params()
    elif formulation == "auto":
        found = Exact() if is_narrow else Relaxation()
    else:
        found = FORMULATIONS[formulation]()
    return found.for_tolerance(tol)


def resolve_solver(solver: str | Solver) -> Solver:
    """The solver of a constructor parameter."""
    if isinstance(solver, Solver):
        found = clone(solver)
        found._validate_params()
        return found
    return {"lbfgs": LBFGS, "sgd": SGD}[solver]()
