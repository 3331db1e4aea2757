"""Learning rules: an objective coupled to an inference, a solver, a start, and a rule for stopping."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._own_methods import ChecksOwnMethods, must_be
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import NamedInference
from sklearn_crf.learning._solvers import Solver
from sklearn_crf.learning._training import PenalisedRisk
from sklearn_crf.objectives import EmpiricalRisk, Objective

#: What validation takes for ``init``.
INIT = [StrOptions({"auto", "zeros", "random", "independent"}), np.ndarray]


class LearningRule(ChecksOwnMethods, HoldsOptions):
    """Base of the learning rules: what stands for the likelihood's expectations, and how weights follow it.

    A subclass writes ``objective(decoding)`` and ``solver_for(problem, start)``; ``init`` says where training starts,
    ``name`` how the parameter ``learning`` calls it. Whether examples are held out, which choose the iterate that is
    kept, is said by ``early_stopping``, ``validation_fraction`` and ``n_iter_no_change``, as of :class:`PMA`.

    Examples
    --------
    >>> from sklearn_crf.learning import PL, SPA, LearningRule
    >>> [isinstance(rule, LearningRule) for rule in (PL(), SPA())]
    [True, True]
    """

    _parameter_constraints: ClassVar[dict] = {
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }
    _returns: ClassVar[dict] = {"objective": must_be(Objective), "solver_for": must_be(Solver)}
    name = "own"
    init: str | np.ndarray = "auto"
    #: Whether the weights of nodes stay where training starts.
    fixed_nodes: bool = False
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10

    @property
    def is_stochastic(self) -> bool:
        """Whether steps are made for mini-batches."""
        return False

    def objective(self, decoding: NamedInference) -> Objective:
        """The objective, coupled to the inference that predicts.

        Parameters
        ----------
        decoding : NamedInference

        Returns
        -------
        Objective
        """
        raise NotImplementedError(type(self).__name__)

    def restricted(self, risk: EmpiricalRisk) -> EmpiricalRisk:
        """The risk of the part of the examples that weights are learned from.

        Parameters
        ----------
        risk : EmpiricalRisk

        Returns
        -------
        EmpiricalRisk
        """
        return risk

    def solver_for(self, problem: PenalisedRisk, start: np.ndarray) -> Solver:
        """The solver for a problem.

        Parameters
        ----------
        problem : PenalisedRisk
        start : ndarray of shape (n_coef,)

        Returns
        -------
        Solver
        """
        raise NotImplementedError(type(self).__name__)
