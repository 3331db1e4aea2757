"""AD3: the linear relaxation solved by the alternating direction method of multipliers."""

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner
from sklearn_crf.inference._base import POSITIVE, Inference
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._relaxed_problem import check_not_below
from sklearn_crf.inference._results import Labeling
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.relaxations import _tuning
from sklearn_crf.inference.relaxations._factor_problems import EdgesProblem, FactorsProblem, one_hot
from sklearn_crf.kernels.relaxations.relaxations import solve_factors
from sklearn_crf.models import FactorGraph, PairwiseModel, score


class AD3State(NamedTuple):
    """Final variables of :class:`AD3`, stored for a warm start."""

    multipliers: np.ndarray  # (n_slots, K), float64
    fractional: np.ndarray  # (n_nodes, K), float64
    penalty: float
    labels: np.ndarray  # (N,), int32


@options(kw_only=False)
class AD3(Inference):
    r"""Linear relaxation by alternating directions of an augmented Lagrangian, with its fractional solution.

    Every factor f has its own marginals :math:`q_f`, which must agree with the marginals of the nodes, :math:`z_s`:

    .. math::
        \max_{q, z} \; \sum_f \Big( \langle \theta_f, \mu_f \rangle
            + \sum_{s \in f} \big\langle \tfrac{1}{n_s} u_s + \lambda_{fs}, q_{fs} \big\rangle
            - \tfrac{\rho}{2} \| q_{fs} - z_s \|^2 \Big),

    where :math:`n_s` is the number of factors of a node. Each iteration has three steps. Each factor solves a quadratic
    problem, all factors in parallel threads. Then :math:`z_s` becomes the mean of the :math:`q_{fs}` of its factors,
    and :math:`\lambda_{fs}` changes by :math:`- \rho (q_{fs} - z_s)`. Pairs of nodes with two states have a closed-form
    solution. Tables of any size and arity, sparse tables and count tables (such as "at most one") are solved by an
    active-set method, which only asks each factor for its best joint state.

    The bound is the sum of the best scores of all factors at :math:`\lambda`. This bound converges to the bound of
    :class:`LinearProgram`, and ``fractional`` converges to a solution. Labels are rounded from ``fractional``. If their
    score equals the bound, they are optimal (``certified``). Pairwise models without cycles are solved exactly without
    iterations.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-3
        Iterations stop when two residuals are below this. Both residuals are root mean squares over factors and their
        nodes. The first is of the difference between marginals of factors and of nodes, the second of the change of the
        marginals of nodes.
    penalty : float, default=0.3
        Initial :math:`\rho`, relative to the standard deviation of the scores. The penalty is adapted to keep the two
        residuals similar.
    climb : bool, default=True
        Whether to improve labels by changing one node at a time while the score increases.

    See Also
    --------
    LinearProgram : Finds the same solution by a solver for linear programs, up to rounding.
    DualDecomposition, IncMP : Compute the same bound by subgradient steps.

    Notes
    -----
    If the relaxation has no solution, the bound decreases without end. An error is raised once the bound falls below
    the score of every labeling.

    References
    ----------
    A. F. T. Martins, M. A. T. Figueiredo, P. M. Q. Aguiar, N. A. Smith, E. P. Xing. An augmented Lagrangian approach to
    constrained MAP inference. ICML 2011; AD3: alternating directions dual decomposition for MAP inference in graphical
    models. J. Machine Learning Research 16, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import AD3
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = AD3().map(model)
    >>> found.labels.tolist(), round(found.score, 3), round(found.bound, 3)
    ([1, 1, 1], 3.5, 3.5)
    """

    tasks = frozenset({"map"})
    _starts_from: ClassVar[tuple[type, ...]] = (AD3State,)
    exact_on = "forest"
    has_fractional = True
    takes = (PairwiseModel, FactorGraph)
    _ranges: ClassVar[dict] = {"penalty": POSITIVE}
    max_iter: int = 1000
    tol: float = 1e-3
    penalty: float = 0.3
    climb: bool = True

    def _map(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel) and model.graph.is_forest:
            found = TreeInference()._map(model)
            return found._replace(fractional=one_hot(found.labels, model.n_columns))
        problem = (EdgesProblem if isinstance(model, PairwiseModel) else FactorsProblem)(model, self.climb)
        run = _AugmentedLagrangian(problem, Proof(model), self.penalty, init, make_range_runner(n_threads))
        n_iter, certain, converged = 0, False, not len(problem.pieces.kind)
        while n_iter < self.max_iter and not converged:
            checkpoint()
            residual = run.iterate()
            certain = run.is_certain()
            n_iter, converged = n_iter + 1, bool(residual <= self.tol or certain)
        if not converged:
            warn_unconverged(
                f"AD3 stopped after max_iter={self.max_iter} iterations with a residual of {residual:.2g}: increase "
                f"max_iter or tol (now {self.tol:g})."
            )
        labels = problem.finished(run.messages(), run.fractional)
        found = score(model, labels)
        return Labeling(
            labels,
            found,
            bound=max(run.bound, found),
            n_iter=n_iter,
            converged=converged,
            state=AD3State(run.multipliers, run.fractional, run.penalty, labels),
            # Labels whose score equals the bound are themselves a solution, while the marginals may not have converged.
            fractional=one_hot(labels, model.n_columns) if certain else problem.fractional(run.fractional),
        )


class _AugmentedLagrangian:
    """Current marginals, multipliers, penalty and bound of the augmented Lagrangian."""

    def __init__(self, problem, proof, penalty, init, run_ranges):
        self.problem, self.pieces, self.proof, self.run_ranges = problem, problem.pieces, proof, run_ranges
        pieces = self.pieces
        n_slots, (n_nodes, n_columns) = len(pieces.scope), pieces.unary.shape
        places = (pieces.scope, np.arange(n_slots))
        self.sum_of_slots = sp.csr_matrix((np.ones(n_slots), places), shape=(n_nodes, n_slots))
        self.degree = np.bincount(pieces.scope, minlength=n_nodes)
        self.share = pieces.unary / np.maximum(self.degree, 1)[:, None]
        alone = self.degree == 0
        self.constant = float(problem.constant + pieces.unary[alone].max(axis=1).sum())
        self.multipliers = np.zeros((n_slots, n_columns))
        possible = ~np.isneginf(pieces.unary)
        self.fractional = possible / possible.sum(axis=1, keepdims=True)
        self.fractional[alone] = one_hot(pieces.unary[alone].argmax(axis=1), n_columns)
        self.penalty = penalty * problem.spread
        if init is not None:
            for name in ("multipliers", "fractional"):
                given, needed = getattr(init, name).shape, getattr(self, name).shape
                if given != needed:
                    raise ValueError(f"init must hold {name} of shape {needed} for this model, got {given}.")
            self.multipliers, self.penalty = init.multipliers.copy(), init.penalty
            self.fractional[~alone] = init.fractional[~alone]
            problem.offer_labels(init.labels)
        self.marginals = np.zeros((n_slots, n_columns))
        self.best = np.zeros(len(pieces.kind))
        self.n_active = np.zeros(len(pieces.kind), dtype=np.int32)
        self.active = (
            np.zeros(pieces.active_place_ptr[-1], dtype=np.int32),
            np.zeros(pieces.active_ptr[-1]),
            np.zeros(pieces.active_ptr[-1]),
        )
        self.bound = np.inf if len(pieces.kind) else self.constant
        self.n_untouched, self.period = 0, float(_tuning.FIRST_REVIEW)
        problem.offer(self.fractional)

    def iterate(self) -> float:
        """Make one iteration and return the larger residual."""
        self.run_ranges(self._solve, len(self.best), smallest_range=_tuning.SMALLEST_RANGE)
        self.bound = min(self.bound, self.constant + float(self.best.sum()))
        check_not_below(self.bound, self.problem.least)
        before, scope = self.fractional, self.pieces.scope
        mean = (self.sum_of_slots @ self.marginals) / np.maximum(self.degree, 1)[:, None]
        self.fractional = np.where(self.degree[:, None] > 0, mean, before)
        apart = self.marginals - self.fractional[scope]
        self.multipliers -= self.penalty * apart
        # Remove accumulated rounding errors, because the bound requires that multipliers sum to zero.
        self.multipliers -= ((self.sum_of_slots @ self.multipliers) / np.maximum(self.degree, 1)[:, None])[scope]
        primal = np.sqrt(np.square(apart).sum() / len(scope))
        dual = np.sqrt((self.degree @ np.square(self.fractional - before)).sum() / len(scope))
        self._review_penalty(primal, dual)
        self.problem.offer(self.fractional)
        return max(primal, dual)

    def is_certain(self) -> bool:
        """Return whether the score equals the bound up to rounding errors."""
        return self.proof.meets(self.problem.score, self.bound)

    def messages(self) -> np.ndarray:
        """Return the scores that each node passes to its factors, by slot."""
        return self.multipliers + self.share[self.pieces.scope]

    def _solve(self, start: int, stop: int) -> None:
        n_numbers, n_integers = self.pieces.work_size
        solve_factors(
            self.pieces,
            self.share,
            self.fractional,
            self.multipliers,
            self.penalty,
            self.marginals,
            self.best,
            self.n_active,
            *self.active,
            start,
            stop,
            np.empty(n_numbers),
            np.empty(n_integers, dtype=np.int32),
        )

    def _review_penalty(self, primal: float, dual: float) -> None:
        self.n_untouched += 1
        if self.n_untouched < self.period or max(primal, dual) <= _tuning.IMBALANCE * min(primal, dual):
            return
        self.penalty *= _tuning.PENALTY_FACTOR if primal > dual else 1 / _tuning.PENALTY_FACTOR
        self.n_untouched, self.period = 0, self.period * _tuning.LONGER
