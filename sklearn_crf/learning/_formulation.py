"""The base of formulations: what each of them says of itself, for training and for prediction."""

from numbers import Real
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._own_methods import ChecksOwnMethods, must_be
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import require_complete
from sklearn_crf.inference import AutoMarginals, Inference, exact_inference
from sklearn_crf.learning._solvers import Solver
from sklearn_crf.learning._training import have_factors
from sklearn_crf.objectives import Objective

#: Names of the formulations that take factors of any arity.
FACTOR_FORMULATIONS = ("exact", "relaxation", "piecewise", "pseudolikelihood", "loopy")


class Formulation(ChecksOwnMethods, HoldsOptions):
    r"""Base of the formulations: a likelihood, exact or approximate, with costs and at a temperature.

    Parameters
    ----------
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss (softmax-margin): the number of wrong nodes, or ``cost[a, b]`` of a node of class b
        that is labelled a, in the order of ``classes_``. None is the likelihood.
    temperature : float, default=1.0
        T of the distribution :math:`\exp(\mathrm{score}(y) / T) / Z` and of the loss, T times its negative
        log-likelihood; towards zero, with costs, the loss becomes that of max-margin training.

    Attributes
    ----------
    name : str
        By which ``formulation=`` knows it.
    takes_factors : bool
        Whether examples may have factors besides nodes and edges.
    needs_labels : bool
        Whether every node needs a label; otherwise those without one are summed out.
    init_with_cycles : {"auto", "zeros", "independent"}
        Where training starts on examples with cycles: "independent" are the weights of the nodes alone.

    Examples
    --------
    >>> from sklearn_crf.learning import Exact, Formulation, Relaxation
    >>> [(each.name, isinstance(each, Formulation)) for each in (Exact(), Relaxation())]
    [('exact', True), ('relaxation', True)]
    """

    _parameter_constraints: ClassVar[dict] = {
        "cost": [StrOptions({"hamming"}), "array-like", None],
        "temperature": [Interval(Real, 0, None, closed="neither")],
    }
    _returns: ClassVar[dict] = {"likelihood": must_be(Objective), "inference": must_be(Inference)}
    name: ClassVar[str] = ""
    takes_factors: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    init_with_cycles: ClassVar[str] = "auto"
    remedy: ClassVar[str] = "decrease C, or take formulation='relaxation', which is convex"

    def __init__(self, cost=None, temperature: float = 1.0):
        self.cost = cost
        self.temperature = temperature

    def for_tolerance(self, tol: float) -> "Formulation":
        """The formulation with an inner problem as accurate as the outer one needs.

        Parameters
        ----------
        tol : float
            Of the estimator.

        Returns
        -------
        Formulation
        """
        return self

    def likelihood(self, has_cycles: bool, has_factors: bool) -> Objective:
        """The objective without costs at temperature one.

        Parameters
        ----------
        has_cycles : bool
            Whether a training example has a cycle.
        has_factors : bool
            Whether one has factors besides nodes and edges.

        Returns
        -------
        Objective
        """
        raise NotImplementedError(type(self).__name__)

    def inference(self, has_cycles: bool, has_factors: bool) -> Inference:
        """Marginals that go with it at prediction.

        Parameters
        ----------
        has_cycles : bool
            Whether a training example has a cycle.
        has_factors : bool
            Whether one has factors besides nodes and edges.

        Returns
        -------
        Inference
        """
        return AutoMarginals(budget="fast")

    def cyclic_nodes(self) -> int:
        """Nodes up to which small training examples with cycles are worked on together.

        Larger batches pay only for tree-reweighted messages, which skip examples that have converged; if one example of
        a batch does not converge, all of the batch are solved again. Junction trees of a batch would all be in memory,
        and so would the tables of all edges in the joint problem.

        Returns
        -------
        int
        """
        return 1

    def factor_nodes(self) -> int:
        """Nodes of training examples with factors that are worked on together.

        Preparing tables of many listed states takes longer than solving one small example. Junction trees, however,
        keep the tables of all examples of a batch in memory, and covering trees are chosen for each graph separately.

        Returns
        -------
        int
        """
        return 1

    def check(self, solver: Solver, fit_intercept: bool) -> None:
        """Raise ValueError where it cannot be solved in the way that is asked for.

        Parameters
        ----------
        solver : Solver
        fit_intercept : bool
        """

    def check_batches(self, batches) -> None:
        """Raise ValueError where training examples do not suit it.

        Parameters
        ----------
        batches : sequence of Batch
        """
        if not self.takes_factors and have_factors(batches):
            names = ", ".join(FACTOR_FORMULATIONS)
            raise ValueError(
                f"formulation={self.name!r} is for nodes and edges alone, but examples have other factors: take one of "
                f"{names}."
            )
        if self.needs_labels:
            for batch in batches:
                require_complete(batch, f"formulation={self.name!r}")

    def train(self, problem, start, run, solver: Solver):
        """Weights of a penalised risk.

        Parameters
        ----------
        problem : PenalisedRisk
        start : ndarray of shape (n_coef,)
        run : TrainingRun
        solver : Solver

        Returns
        -------
        TrainingRecord
        """
        return solver.train(problem, start, run, self.remedy)


def are_narrow(batches, potentials) -> bool:
    """Whether exact inference is affordable on all examples, by :func:`~sklearn_crf.inference.exact_inference`."""
    return all(batch.example.is_forest or _is_narrow(batch.example, potentials) for batch in batches)


def _is_narrow(example, potentials):
    if not example.has_factors:
        return exact_inference(example.graph, potentials.n_classes, budget="step") is not None
    return exact_inference(potentials.model(np.zeros(potentials.n_coef), example), budget="step") is not None
