"""Max-margin learning methods: counterparts of the likelihoods with an error cost in place of the entropy."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf._own_methods import must_be
from sklearn_crf.encoding import Outline
from sklearn_crf.inference import AD3, AutoMap, CountingNumbers, Inference, NamedInference, choose_able_inference
from sklearn_crf.learning._costs import ErrorCost
from sklearn_crf.learning._learning import Learning
from sklearn_crf.learning._margin_training import (
    MARGIN_SOLVERS,
    BundleMethod,
    CuttingPlane,
    FrankWolfe,
    MarginRecord,
    MarginSetting,
    OneSlack,
    PlaneSolver,
    train_by_alternation,
    train_by_margins,
    warn_of_margins,
    warn_of_rounds,
)
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._relaxations import ALL_TREES, ENTROPIES, Relaxation, check_trees
from sklearn_crf.learning._solvers import LBFGS
from sklearn_crf.learning._training import compute_penalty_factors, require_associative
from sklearn_crf.objectives import (
    Objective,
    RelaxedHinge,
    SlackRescaledHinge,
    SoftmaxMargin,
    StructuredHinge,
    chooses_trees,
)

# Tree-reweighted max-product in training: maximum number of iterations; tolerance of the bound.
# Each pass of training starts with the messages of the previous pass, so few iterations are sufficient.
# More iterations, or a smaller tolerance, give no better weights.
_ITERATIONS, _STEP_OF_BOUND = 10, 1e-5

# Relative duality gaps at which training ends: the first for Frank-Wolfe, the second for all other solvers.
# The second gap is smaller because the early weights of the other solvers are poor.
# Accuracy of Frank-Wolfe at a gap of 0.5: 77.1 % on letters, 98.1 % on squares, 81.2 % on street scenes.
# Accuracy of Frank-Wolfe at a gap of 0.3, after twice the epochs: 76.6 % (letters), 98.2 % (squares), 81.9 % (scenes).
# Accuracy of the 1-slack method on street scenes: 78.5 %.
_ROUGH_TOL, _TOL = 0.5, 1e-2

# Minimum penalty of a weight, divided by C and the number of nodes, for a feature whose bulk has a spread of one.
# At a hundredth of this penalty, rounding errors in scalar products make cutting planes indistinguishable.
_LEAST_PENALTY = 1e-10

# Minimum penalty, divided by C and the number of nodes per example, for solvers that process single examples.
# The smallest penalty of a weight determines how slowly these solvers converge.
# The minimum penalty is never larger than the penalty of a feature with a spread of one.
# Frank-Wolfe was tested on images of 256 nodes with features in units of 1e6 and in units of one.
# With units of 1e6, Frank-Wolfe takes 1.2 to 1.5 times as many epochs as with units of one.
# With a minimum penalty of 1e-4, units of 1e6 take over 6 times as many epochs as units of one.
_LEAST_PENALTY_OF_EXAMPLES = 1e-3

# Solvers that change the weights after each mini-batch, which Shards do not support.
_SEQUENTIAL = (CuttingPlane.name, FrankWolfe.name)

# Maximum number of weights for which operations on stored planes take little time compared with inference.
_MOST_WEIGHTS_FOR_PLANES = 1000


@options
class MarginLearning(Learning):
    """Base of max-margin learning: the true labeling should outscore any other labeling by the cost of its errors.

    Parameters
    ----------
    cost : {"hamming", "weighted"}, array-like of shape (n_classes, n_classes) or ErrorCost, default="hamming"
        Cost of errors. "hamming" counts wrong nodes. "weighted" divides the cost of a wrong node by the frequency of
        its true class. A matrix has the cost ``cost[a, b]`` of labelling a node of class b as a, in the order of
        ``classes_``; it is non-negative, and zero on the diagonal. An :class:`ErrorCost` also has costs of edges and
        factors. Weights of single nodes, such as the areas of superpixels, are the ``node_weight`` of ``fit``. If the
        estimator has a ``cost``, it replaces "hamming".
    intercept_scaling : float, default=1.0
        Value of a constant feature whose weights are the intercepts, as in LinearSVC. Intercepts are penalised, because
        without this penalty the dual would have no block structure. The larger the value, the weaker the penalty.
    max_rounds : int, default=10
        Maximum number of rounds of training if labels are missing. Each round learns from the labels completed by the
        weights of the previous round. Training ends when a round lowers the objective by less than ``tol`` relative to
        its value.

    Attributes
    ----------
    is_smooth : bool
        Whether training is a smooth problem with a temperature, which only L-BFGS solves.
    by_planes : bool
        Whether the loss is a maximum of planes, which any :class:`PlaneSolver` minimises.
    visits_examples : bool
        Whether training visits examples one by one.
    problem : {"smoothed", "joint", "dual"}
        Problem that is solved if the loss is not a maximum of planes.

    Examples
    --------
    >>> from sklearn_crf.learning import MaxMargin, SmoothedMargin
    >>> [(each.name, each.is_smooth) for each in (MaxMargin(), SmoothedMargin())]
    [('max_margin', False), ('smoothed_margin', True)]
    """

    _parameter_constraints: ClassVar[dict] = {
        "cost": [StrOptions({"hamming", "weighted"}), "array-like", ErrorCost],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "max_rounds": [Interval(Integral, 1, None, closed="left")],
    }
    _returns: ClassVar[dict] = {**Learning._returns, "hinge": must_be(Objective)}
    name = "margin"
    takes_factors = True
    takes_bounds = True
    early_stopping = False
    has_distribution = False
    has_penalty = True
    penalises_intercept = True
    class_costs = True
    is_smooth = False
    by_planes = True
    by_slack = False
    visits_examples = False
    problem = "smoothed"
    needs_fractional = True
    entropy = "trw"
    trees = "covering"
    share_penalty = 0.0
    _asked_tol = None
    cost: Any = "hamming"
    intercept_scaling: float = 1.0
    max_rounds: int = 10

    # Choices -------------------------------------------------------------------------------------------------------

    def own_inference(self) -> Inference:
        """Return the inference that ``inference="auto"`` stands for in training.

        Returns
        -------
        Inference
        """
        return AD3() if self._asked_tol is None else AD3(10 * AD3.max_iter, min(AD3.tol, 0.01 * self._asked_tol))

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        super().for_fit(inference, classes, tol)
        # The duality gap includes the gaps of AD3, which may be much larger than the residuals of AD3.
        self._asked_tol = None if isinstance(tol, str) else tol
        return self

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        # In training, bounds are computed repeatedly for nearly identical models.
        # In prediction, the best labels are computed once.
        return NamedInference(self.own_inference() if in_training else AutoMap(budget="fast"), "map")

    def decoding(self, inference: str | Inference, facts: Facts, in_training: bool = False) -> NamedInference:
        if inference == "auto" or not in_training:
            found = super().decoding(inference, facts, in_training)
            # An inference without the MAP task predicts by its marginals.
            return found._replace(rule="map") if "map" in found.inference.tasks else found
        found = choose_able_inference(inference, "map", f"learning={self.name!r}").for_learning()
        if self.needs_fractional and not found.has_fractional:
            raise ValueError(
                f"learning={self.name!r} needs an inference with fractional solutions, AD3(), IncMP() or "
                f"LinearProgram(), got {type(found).__name__}."
            )
        return NamedInference(found, "map")

    def solver(self, solver: Any, plan: FitPlan, encoded: Any, potentials: Any = None) -> Any:
        if solver == "auto":
            return self._choose_solver(plan, encoded, potentials)
        if isinstance(solver, str) and solver not in MARGIN_SOLVERS:
            raise ValueError(
                f"solver={solver!r} is not supported with learning={self.name!r}: use one of "
                f"{', '.join(map(repr, ('auto', *MARGIN_SOLVERS)))}, or a PlaneSolver."
            )
        found = MARGIN_SOLVERS[solver]() if isinstance(solver, str) else clone(solver)
        if not (self.by_planes or self.is_smooth) or not isinstance(found, LBFGS if self.is_smooth else PlaneSolver):
            raise ValueError(
                f"solver={solver!r} is not supported with learning={self.name!r}: use solver='auto'. Margins with a "
                "temperature accept only 'lbfgs', other margins do not accept 'lbfgs', and 'dual_margin' has no choice "
                "of solver."
            )
        return found

    def _choose_solver(self, plan, encoded, potentials):
        """Return the solver for ``solver="auto"``, or None for a learning method with its own kind of steps."""
        if not self.by_planes:
            return LBFGS() if self.is_smooth else None
        if not encoded.n_edges or encoded.has_operators:
            return BundleMethod()
        if potentials is not None and isinstance(encoded, Outline):
            # Shards only compute sums over all examples.
            return BundleMethod()
        by_chains = encoded.lattice_ndim == 1
        if encoded.is_sparse and not (by_chains and self._goes_through_forests(plan, encoded, FrankWolfe())):
            return BundleMethod()
        if potentials is None or potentials.n_coef > _MOST_WEIGHTS_FOR_PLANES:
            return FrankWolfe()
        # On chains, finding best labelings takes less time than evaluating the planes of earlier labelings.
        return BundleMethod() if by_chains else OneSlack()

    def _goes_through_forests(self, plan, encoded, solver):
        """Return whether a kernel computes the worst labeling of each forest separately, also in joined batches."""
        if self.by_slack or encoded.has_operators or encoded.has_sparse_edges or isinstance(self.cost, ErrorCost):
            return False
        is_read = not encoded.is_sparse or isinstance(solver, FrankWolfe)
        return is_read and plan.training_inference.inference.exact_on in ("any", "forest")

    def tolerance(self, solver: Any = None) -> float:
        return _ROUGH_TOL if isinstance(solver, FrankWolfe) else _TOL

    def packing(self, plan: FitPlan, encoded: Any) -> dict[str, int]:
        # Slack rescaling multiplies the cost of each example by its score. Examples therefore cannot share a batch.
        if self.by_slack and encoded.layout != "nodes":
            return {"max_nodes": 1}
        by_blocks = self.by_planes and plan.solver.by_blocks
        if not by_blocks or self._goes_through_forests(plan, encoded, plan.solver):
            return {"max_nodes": 4096}
        # If every edge has its own table, a batch cannot sum the derivatives of each example separately.
        if encoded.has_sparse_edges:
            return {"max_nodes": 1}
        # The weights change after every mini-batch, so smaller batches allow more steps.
        return {"max_nodes": int(np.clip(encoded.n_nodes // 64, 1, 1024))}

    # Checks --------------------------------------------------------------------------------------------------------

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if self.by_slack and isinstance(self.cost, ErrorCost):
            raise ValueError(
                "rescaling='slack' supports only costs of nodes, because its search multiplies the costs of nodes by "
                "several numbers: pass a matrix, or use rescaling='margin'."
            )
        # Reading the property raises errors about the inference before training starts.
        plan.training_inference  # noqa: B018

    def check_shards(self, solver: Any) -> None:
        of_nodes = self.cost.nodes if isinstance(self.cost, ErrorCost) else self.cost
        if isinstance(of_nodes, str) and of_nodes == "weighted":
            raise ValueError(
                "cost='weighted' is only supported for X and y in memory: with Shards, pass the matrix of costs."
            )
        if (solver if isinstance(solver, str) else getattr(solver, "name", "")) in _SEQUENTIAL:
            raise ValueError(
                f"solver={solver!r} processes examples one by one, which Shards do not support: use 'bmrm', "
                "'one_slack', 'subgradient' or 'auto'."
            )
        if self.visits_examples:
            raise ValueError(
                f"learning={self.name!r} processes examples one by one, which Shards do not support: use "
                "'max_margin', 'relaxed_margin', 'smoothed_margin' or 'reparameterized_margin'."
            )

    def check_batches(self, batches: Sequence, plan: FitPlan) -> None:
        super().check_batches(batches, plan)
        if plan.is_associative:
            require_associative(batches)

    # Training ------------------------------------------------------------------------------------------------------

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        """Return the hinge loss that training minimises.

        Parameters
        ----------
        inference : Inference
        cost : ndarray of shape (K, K)
        facts : Facts
        single_nodes : bool
            Whether every example is one node.

        Returns
        -------
        Objective
        """
        return RelaxedHinge(inference, cost)

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        cost, encoded = self.cost_matrix(data.class_weight, data.labels), data.encoded
        assert cost is not None, "margins always have costs"
        single_nodes = encoded.n_nodes == encoded.n_filled
        return self.hinge(plan.training_inference.inference, cost, plan.facts, single_nodes)

    def train(self, risk: Any, plan: FitPlan, data: Any, make_start: Any, run: Any) -> MarginRecord:
        # Without edges, there are no node scores to share among edges.
        has_parts = data.encoded.n_edges or plan.facts.have_factors
        setting = MarginSetting(
            problem=self._choose_problem(bool(has_parts)),
            entropy=self.entropy,
            trees=self.trees,
            inference=plan.training_inference.inference,
            solver=plan.solver,
            scale=self._scale(risk, run, isinstance(plan.solver, FrankWolfe)),
            lower_bounded=plan.bounded(risk.potentials),
            share_penalty=self.share_penalty,
        )
        start = make_start("zeros")
        if risk.has_unlabelled:
            tol = _TOL if isinstance(plan.asked_tol, str) else run.tol

            def train(completed, coef):
                return train_by_margins(completed, start if coef is None else coef, setting, run)

            # Completing labels needs weights that prefer some labels, such as the weights without edges.
            first = make_start("independent")
            record = train_by_alternation(risk, first, train, plan.decoding.inference, self.max_rounds, tol)
            warn_of_rounds(record)
        else:
            record = train_by_margins(risk, start, setting, run)
        warn_of_margins(record, setting)
        # At the automatic tolerance, predicted labels are good although the weights may be far from the optimum.
        is_rough = isinstance(plan.asked_tol, str) and record.is_over
        if is_rough and record.gap > _TOL * abs(np.min(record.found.loss_curve)):
            record.rough_end = f"STOP: duality gap within {_ROUGH_TOL:.0%} of the objective"
        return record

    def _choose_problem(self, has_parts: bool) -> str:
        """Return the name of the problem to solve, which depends on whether examples have edges or factors."""
        return "planes" if self.by_planes else self.problem

    def _scale(self, risk, run, by_examples):
        """Return the scale of each weight, with which the solver's uniform penalty equals the penalty of the weight."""
        # by_examples: whether the solver processes examples one by one
        potentials, penalty = risk.potentials, risk.potentials.penalty
        is_penalised = penalty > 0
        factors = np.where(is_penalised, compute_penalty_factors(potentials, run.C, run.edge_C), 1.0)
        if by_examples:
            least = min(1.0, _LEAST_PENALTY_OF_EXAMPLES * run.C * risk.n_labelled / risk.n_examples)
            units = np.where(is_penalised, penalty, 1.0)
            factors *= np.maximum(1.0, least / (units * potentials.tails**2))
        scale = np.where(is_penalised, 1.0 / np.sqrt(factors), self.intercept_scaling)
        # Rounding errors of the losses would hide penalties below the minimum.
        return np.minimum(scale, potentials.tails / np.sqrt(_LEAST_PENALTY * run.C * max(risk.n_labelled, 1.0)))


@options
class MaxMargin(MarginLearning):
    r"""Max-margin learning with the maximum over whole labelings, computed by any method of MAP inference.

    .. math:: \max_y \bigl[ \Delta(y, y_i) + \mathrm{score}(y) \bigr] - \mathrm{score}(y_i)

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        "margin" adds the cost to the score. "slack" multiplies the cost by one plus the difference in score. See
        :doc:`/user_guide/m3n`.

    Examples
    --------
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import MaxMargin
    >>> m3n = M3NClassifier(learning=MaxMargin(cost="weighted"))
    >>> m3n.set_params(learning__rescaling="slack").learning
    MaxMargin(cost='weighted', rescaling='slack')
    """

    _parameter_constraints: ClassVar[dict] = {"rescaling": [StrOptions({"margin", "slack"})]}
    name = "max_margin"
    takes_segments = True
    needs_fractional = False
    rescaling: str = "margin"

    @property
    def by_slack(self) -> bool:  # type: ignore[override]
        return self.rescaling == "slack"

    def own_inference(self) -> Inference:
        return AutoMap(max_iter=_ITERATIONS, tol=_STEP_OF_BOUND, bounded=True)

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        if self.by_slack:
            return SlackRescaledHinge(inference, cost, single_nodes)
        return StructuredHinge(inference, cost)


@options
class RelaxedMargin(MarginLearning):
    """Max-margin learning with the maximum over the local polytope, which includes fractional solutions.

    Source: Jancsary 2012, M3N recipe 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import RelaxedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     learning=RelaxedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "relaxed_margin"
    takes_segments = True


@options
class SoftMargin(MarginLearning):
    """Base of the max-margin methods that share the inner problem of a relaxed likelihood.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of iterations of the inner problem of one example.
    tol : float, default=1e-6
        Tolerance of the inner problem.
    trees : str, SpanningTrees, list or ndarray, default="covering"
        Trees of the tree-reweighted entropy, as in :class:`Relaxation`.
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "trees": ALL_TREES,
    }
    by_planes = False
    likelihood: ClassVar[type[Relaxation]] = Relaxation
    max_iter: int = 500
    tol: float = 1e-6
    trees: Any = "covering"  # type: ignore[assignment]

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        check_trees(self.trees, type(self).trees, self.entropy)
        if chooses_trees(self.trees) and not self.is_smooth:
            raise ValueError(
                f"learning={self.name!r} needs a temperature above zero for trees='optimal', because the relaxation "
                "without an entropy is the same for all trees: leave trees at its default."
            )

    def _make_softmax_margin(self, cost, facts, temperature):
        relaxation = self.likelihood(entropy=self.entropy, trees=self.trees, max_iter=self.max_iter, tol=self.tol)
        return SoftmaxMargin(relaxation.bound(facts), cost, temperature)


@options
class DualMargin(SoftMargin):
    """Max-margin learning by the relaxed dual, with exponentiated gradient steps on the marginals of each example.

    Once these steps become slow, cutting planes close the rest of the duality gap. Source: Jancsary 2012, M3N recipe 5.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import DualMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     learning=DualMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "dual_margin"
    takes_bounds = False
    visits_examples = True
    problem = "dual"

    def packing(self, plan: FitPlan, encoded: Any) -> dict[str, int]:
        return {"max_nodes": 1}

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        # The dual problem has no temperature. The temperature 1 is only used to compute marginals as in a likelihood.
        return self._make_softmax_margin(cost, facts, 1.0)


@options
class SmoothedMargin(SoftMargin):
    r"""Smoothed max-margin learning, in which the loss is the relaxed maximum of the score plus an entropy.

    .. math:: \max_{\tau \in L} \langle \theta + \mathrm{cost}, \tau \rangle + T \, \tilde H(\tau)

    The temperature starts at one and is lowered to its final value during training. Source: Jancsary 2012, M3N recipe
    1.

    Parameters
    ----------
    temperature : float, default=0.1
        Final temperature, in units of the cost.
    entropy : {"trw", "trivial", "factors"} or CountingNumbers, default="trw"
        Entropy, as in :class:`Relaxation`. A looser entropy needs a lower temperature for the same gap. Counting
        numbers must not be negative.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import SmoothedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     learning=SmoothedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "entropy": [StrOptions(set(ENTROPIES)), CountingNumbers],
    }
    name = "smoothed_margin"
    needs_fractional = False
    temperature: float = 0.1
    entropy: str | CountingNumbers = "trw"  # type: ignore[assignment]

    @property
    def is_smooth(self) -> bool:  # type: ignore[override]
        return self.temperature > 0

    @property
    def takes_segments(self) -> bool:  # type: ignore[override]
        return self.likelihood(entropy=self.entropy, trees=self.trees).takes_segments

    def own_inference(self) -> Inference:
        return AutoMap()

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        numbers = self.entropy if isinstance(self.entropy, CountingNumbers) else (0.0, 0.0)
        if any(np.ndim(each) or not 0 <= each < np.inf for each in numbers):
            raise ValueError(
                "entropy=CountingNumbers(...) must have one number for all nodes and one for all factors, neither of "
                f"them negative, got {self.entropy!r}."
            )
        return self._make_softmax_margin(cost, facts, self.temperature)


class OwnMargin(MaxMargin):
    """Learning method for a user-defined hinge loss."""

    # own: object of a subclass of :class:`~sklearn_crf.objectives.StructuredHinge`

    name = "own"

    def __init__(self, own: Any):
        self.own = own

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        return clone(self.own)
