"""Base classes of the learning methods of a field."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf._own_methods import ChecksOwnMethods, must_be
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import require_complete
from sklearn_crf.inference import AutoMap, AutoMarginals, Inference, NamedInference, resolve_inference
from sklearn_crf.learning._costs import ErrorCost, add_joint_costs, cost_matrix, sort_costs
from sklearn_crf.learning._few_labels import reduce_risk_to_labels
from sklearn_crf.learning._margin_training import MarginRecord, PlaneSolver
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._solvers import REMEDY, SOLVERS, AutoSolver, Solver
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.models import SegmentModel
from sklearn_crf.objectives import EmpiricalRisk, Objective, SoftmaxMargin


@options
class _FeatureOptions(HoldsOptions):
    """Options of all learning methods.

    Parameters
    ----------
    missing_features : {"mark", "mean", "error"}, default="mark"
        Treatment of NaN in node and edge features. "mean" replaces NaN by the mean of the feature over the training
        nodes or edges, also if a feature lacks values only in later calls of ``partial_fit`` or in prediction. "mark"
        also adds a feature for each feature that lacks values in training, which marks these values; all other features
        must then stay complete. "error" raises ValueError.
    """

    _parameter_constraints: ClassVar[dict] = {"missing_features": [StrOptions({"mark", "mean", "error"})]}
    missing_features: str = "mark"


class Learning(ChecksOwnMethods, _FeatureOptions):
    """Base of the learning methods of a field, which define an objective, its inference and its minimisation.

    Your own subclass has to define ``objective``. It may also choose the inference, the sizes of batches and the
    training. An :class:`~sklearn_crf.objectives.Objective` can be used in place of a learning method.

    Parameters
    ----------
    missing_features : {"mark", "mean", "error"}, default="mark"
        Treatment of NaN in features, see :class:`Exact`.

    Attributes
    ----------
    name : str
        Name for the parameter ``learning`` of estimators.
    needs_labels : bool
        Whether every node needs a label. If not, missing labels are summed out or completed.
    takes_factors : bool
        Whether examples may have factors besides nodes and edges.
    takes_segments : bool
        Whether durations of runs may have scores.
    why_not : dict of str to str
        Reasons for error messages: why every node needs a label ("missing labels"), or why durations cannot have scores
        ("segments").
    takes_bounds : bool
        Whether weights can be constrained to be non-negative.
    has_distribution : bool
        Whether the weights define a distribution over labelings.
    has_penalty : bool or None
        Whether weights are penalised. None means that they are if the objective is smooth.
    penalises_intercept : bool
        Whether intercepts are penalised.
    class_costs : bool
        Whether ``class_weight`` is used in the cost matrix and nowhere else.
    of_examples : bool
        Whether the objective of shards needs the encoded examples, besides the batches built from them.

    Examples
    --------
    >>> from sklearn_crf.learning import Learning, MaxMargin, Relaxation
    >>> [
    ...     (way.name, way.has_distribution, isinstance(way, Learning))
    ...     for way in (Relaxation(), MaxMargin())
    ... ]
    [('relaxation', True, True), ('max_margin', False, True)]
    """

    _returns: ClassVar[dict] = {
        "objective": must_be(Objective),
        "automatic_inference": must_be(NamedInference),
        "solver": must_be(Solver, PlaneSolver),
    }
    name: ClassVar[str] = "own"
    needs_labels: ClassVar[bool] = False
    takes_factors: ClassVar[bool] = False
    takes_segments: ClassVar[bool] = False
    why_not: ClassVar[dict[str, str]] = {
        "segments": "it avoids exact inference, which takes little time on sequences, and segments need sequences"
    }
    takes_bounds: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = True
    has_penalty: ClassVar[bool | None] = None
    penalises_intercept: ClassVar[bool] = False
    class_costs: ClassVar[bool] = False
    of_examples: ClassVar[bool] = False
    #: Advice in the warning that training failed.
    remedy: ClassVar[str] = REMEDY
    #: Initial weights of training on examples with cycles if ``init`` is "auto".
    #: "independent" stands for the weights of the field without edges.
    start_with_cycles: ClassVar[str] = "independent"
    init: Any = "auto"
    early_stopping: Any = "auto"
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    fixed_nodes: bool = False
    cost: Any = None
    #: Temperature of the learned distribution, by which scores are divided.
    learned_temperature: float = 1.0
    #: Function that includes ``cost`` in potentials and batches.
    charged: ClassVar[Any] = staticmethod(add_joint_costs)
    # Maximum number of nodes of a batch of examples with cycles.
    # Only tree-reweighted messages are faster in larger batches, because they skip examples that have converged.
    # A disadvantage of larger batches: if one example does not converge, the whole batch is solved again.
    # In a larger batch, all junction trees, or all edge tables of the joint problem, would be in memory at once.
    cyclic_nodes = 1
    # Maximum number of nodes of a batch of examples with factors.
    # Large batches would save time: preparing tables of many listed states takes longer than solving one small example.
    # However, junction trees would keep the tables of all examples of a batch in memory.
    # Another reason for small batches is that covering trees are chosen for each graph separately.
    factor_nodes = 1

    # Choices -------------------------------------------------------------------------------------------------------

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        """Adapt this copy of a learning method to the parameters of an estimator, and return the copy.

        Parameters
        ----------
        inference : str or Inference
        classes : array-like or None
            Classes in the order of the estimator's parameter, which is also the order of the costs.
        tol : float or "auto"

        Returns
        -------
        Learning
        """
        self.cost = sort_costs(self.cost, classes)
        return self

    def depends_on_width(self, inference: str | Inference) -> bool:
        """Return whether an automatic choice depends on whether exact inference is affordable on all examples.

        Parameters
        ----------
        inference : str or Inference

        Returns
        -------
        bool
        """
        return False

    def on(self, facts: Facts) -> "Learning":
        """Return the learning method for training examples with the given properties.

        Parameters
        ----------
        facts : Facts

        Returns
        -------
        Learning
        """
        return self

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        """Return the inference that ``inference="auto"`` stands for.

        Parameters
        ----------
        facts : Facts
            Properties of the training examples.
        in_training : bool, default=False
            Whether the inference is for training rather than for prediction.

        Returns
        -------
        NamedInference
        """
        return NamedInference(AutoMarginals(budget="fast"), "mpm")

    def decoding(self, inference: str | Inference, facts: Facts, in_training: bool = False) -> NamedInference:
        """Return the inference that an estimator's parameter ``inference`` stands for.

        Parameters
        ----------
        inference : str or Inference
        facts : Facts
        in_training : bool, default=False

        Returns
        -------
        NamedInference
        """
        if inference != "auto":
            return resolve_inference(inference)
        found = self.automatic_inference(facts, in_training)
        if facts.have_segments and SegmentModel not in found.inference.takes:
            return found._replace(inference=AutoMap() if found.rule == "map" else AutoMarginals(budget="fast"))
        return found

    def fallback(self, facts: Facts) -> Inference | None:
        """Return the inference for tasks that the automatic inference does not support, or None for the default.

        Parameters
        ----------
        facts : Facts

        Returns
        -------
        Inference or None
        """
        return None

    def solver(self, solver: Any, plan: FitPlan, encoded: Any, potentials: Any = None) -> Any:
        """Return the solver that an estimator's parameter ``solver`` stands for.

        Parameters
        ----------
        solver : str or Solver
        plan : FitPlan
        encoded : Encoded or Outline
        potentials : LinearPotentials or FactorPotentials, optional
            None if the examples are not in batches yet.

        Returns
        -------
        Solver
        """
        if isinstance(solver, str):
            if solver == "auto":
                return AutoSolver()
            if solver not in SOLVERS:
                raise ValueError(
                    f"solver={solver!r} is not supported with learning={self.name!r}: use one of "
                    f"{', '.join(map(repr, ('auto', *SOLVERS)))}, or a Solver."
                )
            return SOLVERS[solver]()
        if not isinstance(solver, Solver):
            raise ValueError(
                f"solver={solver!r} needs cutting planes, which learning={self.name!r} does not have: use 'lbfgs'."
            )
        found = clone(solver)
        found._validate_params()
        return found

    def tolerance(self, solver: Any = None) -> float:
        """Return the tolerance of training that ``tol="auto"`` stands for.

        Parameters
        ----------
        solver : Solver, optional

        Returns
        -------
        float
        """
        return 1e-4

    # Checks --------------------------------------------------------------------------------------------------------

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError if parameters are incompatible, before any work is done.

        Parameters
        ----------
        plan : FitPlan
        """
        if plan.is_associative and not self.takes_bounds:
            raise ValueError(
                "pairwise='associative' needs a learning method that can keep weights non-negative, which "
                f"learning={self.name!r} cannot do: use a max-margin method, such as learning='max_margin'."
            )
        if plan.layout.segments is not None and not plan.asked.takes_segments:
            raise ValueError(
                f"learning={self.name!r} with these options does not support segments, because "
                f"{self.why_not['segments']}: use 'likelihood', 'exact', 'relaxation', 'loopy', 'pma', 'spa', 'mma', "
                "'max_margin', 'relaxed_margin' or 'smoothed_margin'."
            )

    def check_labels(self, labels: Any) -> None:
        """Raise ValueError if a parameter does not fit the classes.

        Parameters
        ----------
        labels : EncodedLabels
        """
        self.cost_matrix(None, labels)

    def check_shards(self, solver: Any) -> None:
        """Before any shard is loaded, raise ValueError if training needs single examples in memory.

        Parameters
        ----------
        solver : str or Solver
            Parameter of the estimator.
        """

    def check_batches(self, batches: Sequence, plan: FitPlan) -> None:
        """Raise ValueError if this learning method does not support the training examples.

        Parameters
        ----------
        batches : sequence of Batch
        plan : FitPlan
        """
        if not self.takes_factors and any(batch.example.has_factors for batch in batches):
            raise ValueError(
                f"learning={self.name!r} supports only nodes and edges, but examples have other factors: use 'exact', "
                "'relaxation', 'loopy', 'piecewise', 'pseudolikelihood' or 'max_margin'."
            )
        if self.needs_labels:
            for batch in batches:
                reason = f" ({self.why_not['missing labels']})" if "missing labels" in self.why_not else ""
                require_complete(batch, f"learning={self.name!r}{reason}")

    def finds_terms(self, batches: Sequence) -> bool:
        """Return whether the loss of training examples, or of some shards of them, has terms to learn from.

        Parameters
        ----------
        batches : sequence of Batch

        Returns
        -------
        bool
        """
        return True

    # Training ------------------------------------------------------------------------------------------------------

    @property
    def weighs_nodes(self) -> bool:
        """Whether ``class_weight`` applies to each node, as in losses that are sums over nodes or have node costs.

        A joint likelihood is neither of these. With a joint likelihood, examples are weighted by the mean class weight
        of their nodes, and the marginals by which nodes are labelled are multiplied by the class weights.
        """
        return False

    @property
    def takes_decision_cost(self) -> bool:
        """Whether training uses the estimator's costs of predictions, if the estimator has such costs."""
        return not self.has_distribution

    def cost_matrix(self, class_weight: np.ndarray | None, labels: Any) -> np.ndarray | None:
        """Return the costs (K, K) of every state of a node for every true class, or None without costs.

        Parameters
        ----------
        class_weight : ndarray of shape (K,) or None
        labels : EncodedLabels

        Returns
        -------
        ndarray of shape (K, K) or None
        """
        return None if self.cost is None else cost_matrix(self.cost, class_weight, labels)

    def packing(self, plan: FitPlan, encoded: Any) -> dict[str, int]:
        """Return the maximum number of nodes per batch, for forests, graphs with cycles and examples with factors.

        Parameters
        ----------
        plan : FitPlan
        encoded : Encoded

        Returns
        -------
        dict of str to int
        """
        if plan.solver.is_stochastic:
            # Mini-batches consist of single examples, so examples must not be packed into one batch.
            return {"max_nodes": 1}
        return {
            "max_nodes": 8192 if encoded.is_sparse else 4096,
            "max_cyclic_nodes": self.cyclic_nodes,
            "max_factor_nodes": self.factor_nodes,
        }

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        """Return the objective that training minimises.

        Parameters
        ----------
        plan : FitPlan
            ``plan.training_inference`` computes the expectations or labelings that the objective needs.
        data : TrainingExamples or ShardedExamples

        Returns
        -------
        Objective
        """
        raise NotImplementedError(type(self).__name__)

    def n_iterations(self, plan: FitPlan) -> int:
        """Return the maximum number of iterations, for callbacks.

        Parameters
        ----------
        plan : FitPlan

        Returns
        -------
        int
        """
        return plan.max_iter

    def restricted(self, risk: EmpiricalRisk) -> EmpiricalRisk:
        """Return the risk of the examples that are used for learning.

        Parameters
        ----------
        risk : EmpiricalRisk

        Returns
        -------
        EmpiricalRisk
        """
        return risk

    def train(self, risk: Any, plan: FitPlan, data: Any, make_start: Any, run: Any) -> TrainingRecord | MarginRecord:
        """Train the weights and return the record of the training.

        Parameters
        ----------
        risk : EmpiricalRisk or ShardedRisk
        plan : FitPlan
        data : TrainingExamples or ShardedExamples
        make_start : callable(init) -> ndarray of shape (n_coef,)
        run : FitPlan

        Returns
        -------
        TrainingRecord
        """
        risk = self.restricted(risk)
        # Training without edges is quick, and reduces the passes with inference in the training with edges.
        nodes_first = isinstance(self.init, str) and self.init == "auto" and not plan.facts.have_factors
        is_hard = self.fixed_nodes or not (risk.is_forest and risk.objective.smooth)
        start = make_start(self.start_with_cycles if nodes_first and is_hard else self.init)
        problem = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        problem.free = risk.potentials.on_edges if self.fixed_nodes else None
        return self.minimize(problem, start, plan, run)

    def before_step(self, risk: EmpiricalRisk, coef: np.ndarray, members: Sequence[int]) -> None:
        """Prepare the batches of a stochastic step, for example by generating labelings under the given weights.

        Parameters
        ----------
        risk : EmpiricalRisk
        coef : ndarray of shape (n_coef,)
        members : sequence of int
            Numbers of the batches.
        """

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        """Minimise a penalised risk from the given start.

        Parameters
        ----------
        problem : PenalisedRisk
        start : ndarray of shape (n_coef,)
        plan : FitPlan
        run : FitPlan

        Returns
        -------
        TrainingRecord
        """
        return plan.solver.train(problem, start, run, self.remedy)

    def warn_of_scale(self) -> None:
        """Warn if the weights have an arbitrary scale, which makes probabilities meaningless."""


#: Allowed values of ``init``.
INIT = [StrOptions({"auto", "zeros", "random", "independent"}), np.ndarray]


@options
class DescentLearning(Learning):
    """Base of the learning methods that change the weights iteratively from a start.

    Parameters
    ----------
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        Start of training: "zeros", normal random numbers ("random"), or the weights of the field without edges
        ("independent"). "auto" is zero on examples without cycles if the loss is smooth. Otherwise it depends on the
        loss and is mostly "independent", because training with approximate marginals may fail from zero.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out examples and keep the iterate that labels most of their nodes correctly (Kumar et al. 2005,
        footnote 3), by the inference for prediction. True and False override the choice of the solver. "auto" stops
        early if ``fit`` is given ``X_val``.
    validation_fraction : float, default=0.1
        Fraction of the examples to hold out at random if ``fit`` is given no ``X_val``.
    n_iter_no_change : int, default=10
        Training ends after this number of iterations without a better score on the held-out examples.
    """

    _parameter_constraints: ClassVar[dict] = {
        "init": INIT,
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }
    init: str | np.ndarray = "auto"
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10


@options
class SmoothLearning(DescentLearning):
    r"""Base of exact and approximate likelihoods, with optional costs and a temperature.

    Parameters
    ----------
    cost : {"hamming"}, array-like of shape (n_classes, n_classes), ErrorCost or None, default=None
        Cost of errors in the loss (softmax-margin). "hamming" counts wrong nodes. A matrix has the cost ``cost[a, b]``
        of labelling a node of class b as a, in the order of ``classes_``. An :class:`ErrorCost` also has costs of edges
        and factors. None is the likelihood.
    temperature : float, default=1.0
        Temperature T of the distribution :math:`\exp(\mathrm{score}(y) / T) / Z`. The loss is T times its negative
        log-likelihood. As T tends to zero, the loss with costs becomes the loss of max-margin training.
    reach : int or None, default=None
        If few nodes are labelled, learn only from nodes at most this many edges away from a labelled node, provided
        that this excludes at least half of the nodes. None uses all nodes that are connected to a labelled node, up to
        about ``max_nodes`` nodes of an example. A short reach gives edge weights that are too large, because close to
        strokes all neighbours have equal labels.
    max_nodes : int or None, default=None
        Images and volumes with more nodes than this, of which fewer than half are labelled, are reduced to a coarser
        scale for training. Each reduced lattice has at most this many blocks of pixels, with the mean features and the
        most common label of each block. ``reach`` then counts edges between blocks, and the training curves refer to
        blocks. Prediction uses the full size. With None, training also uses the full size.
    """

    _parameter_constraints: ClassVar[dict] = {
        "cost": [StrOptions({"hamming"}), "array-like", ErrorCost, None],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "reach": [Interval(Integral, 0, None, closed="left"), None],
        "max_nodes": [Interval(Integral, 1, None, closed="left"), None],
    }
    _returns: ClassVar[dict] = {**Learning._returns, "likelihood": must_be(Objective)}
    remedy = "decrease C, or use learning='relaxation', which is convex"
    cost: Any = None
    temperature: float = 1.0
    reach: int | None = None
    max_nodes: int | None = None
    sums_over_nodes: ClassVar[bool] = False

    @property
    def learned_temperature(self) -> float:  # type: ignore[override]
        """Temperature of the learned distribution, by which scores are divided."""
        return self.temperature

    @property
    def weighs_nodes(self) -> bool:
        return self.cost is not None or self.sums_over_nodes

    def likelihood(self, plan: FitPlan) -> Objective:
        """Return the objective without costs and at temperature one.

        Parameters
        ----------
        plan : FitPlan

        Returns
        -------
        Objective
        """
        raise NotImplementedError(type(self).__name__)

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        likelihood = self.likelihood(plan)
        if self.cost is None and self.temperature == 1:
            return likelihood
        return SoftmaxMargin(likelihood, self.cost_matrix(None, data.labels), self.temperature)

    def restricted(self, risk: EmpiricalRisk) -> EmpiricalRisk:
        if not risk.has_unlabelled or (self.reach is None and self.max_nodes is None):
            return risk
        return reduce_risk_to_labels(risk, self.reach, self.max_nodes)
