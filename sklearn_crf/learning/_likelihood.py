"""Learning by exact or approximate likelihoods, with the matching marginals for prediction."""

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.inference import (
    AutoMarginals,
    Inference,
    JunctionTree,
    LoopyBP,
    MeanField,
    NamedInference,
    TreeInference,
    TRWMessagePassing,
)
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.inference.messages._fixed_sweeps import SWEEP_LOSSES, FixedSweeps
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning._costs import ErrorCost, set_joint_costs
from sklearn_crf.learning._few_labels import MAX_NODES
from sklearn_crf.learning._learning import DescentLearning, Learning, SmoothLearning
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._relaxations import Relaxation
from sklearn_crf.learning._solvers import REMEDY
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.objectives import (
    Likelihood,
    Objective,
    Piecewise,
    RelaxedLikelihood,
    SharedPieces,
    TruncatedLoss,
    set_best_edge_shares,
)

# Changes of messages at which tree-reweighted inference stops: the first in training, the second in prediction.
# Training needs the smaller tolerance for its line search.
# Prediction with the larger tolerance needs a third of the sweeps on photographs, and changes 1 label in 1000.
_TRAINING_TOL, _PREDICTION_TOL = 1e-3, 1e-2

# Tolerance of training with the loss of pairs after some sweeps. This loss and its gradient are four to six times as
# large as the likelihood's loss and gradient, because a node of an image belongs to four pairs.
# With the tolerance 1e-4, training takes up to a third longer and ends at the same weights to four digits of the loss
# and 0.1 points of accuracy (streets, regions, horses and squares of ``benchmarks/quality/truncated_learning.py``).
_TOL_OF_PAIRS = 1e-3


def choose_layout_trees(facts, in_training=False):
    """Return tree-reweighted inference with trees that suit the layout."""
    relaxation = Relaxation(max_iter=500, tol=_TRAINING_TOL if in_training else _PREDICTION_TOL)
    return relaxation.automatic_inference(facts, in_training)


@options
class Exact(SmoothLearning):
    """Maximum likelihood with the exact log-partition, by messages on forests and by a junction tree on other graphs.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Exact
    >>> TRWCRF(learning=Exact(cost="hamming")).get_params()["learning__cost"]
    'hamming'
    """

    name = "exact"
    takes_factors = True
    takes_segments = True
    start_with_cycles = "zeros"

    def likelihood(self, plan: FitPlan) -> Objective:
        if plan.layout.segments is not None:
            return Likelihood(SegmentInference())
        if not (plan.facts.have_cycles or plan.facts.have_factors):
            return Likelihood(TreeInference())
        own = plan.training_inference.inference
        is_exact = "marginals" in own.tasks and own.exact_on == "any"
        return Likelihood(own if is_exact else JunctionTree())

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        has_trees_alone = not (facts.have_cycles or facts.have_factors)
        return NamedInference(AutoMarginals(budget="fast") if has_trees_alone else JunctionTree(), "mpm")


@options
class MaximumLikelihood(SmoothLearning):
    """Maximum likelihood, exact if affordable on all examples and otherwise by a convex relaxation.

    Exact inference is affordable on forests and narrow graphs (:func:`~sklearn_crf.inference.exact_inference` with
    ``budget="step"``). If all examples have such graphs, training uses :class:`Exact`, otherwise :class:`Relaxation`.

    Parameters
    ----------
    max_nodes : int or None, default=10000
        As in :class:`PseudoMarginalTraining`, but only for the relaxation, whose inner problem takes longer.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import MaximumLikelihood
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> TRWCRF(C=10, learning=MaximumLikelihood()).fit(X, y).learning_
    'exact'
    """

    name = "likelihood"
    takes_factors = True
    takes_segments = True
    max_nodes: int | None = MAX_NODES

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        super().for_fit(inference, classes, tol)
        shared = self.get_params(deep=False)
        self._relaxed = Relaxation(**shared).for_fit(inference, None, tol)
        self._exact = Exact(**shared | {"max_nodes": None})
        return self

    def depends_on_width(self, inference: str | Inference) -> bool:
        return True

    def on(self, facts):
        return self._exact if facts.exact_is_affordable else self._relaxed

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        if facts.exact_is_affordable and not in_training:
            # Exact inference may be affordable for the training examples but not for the examples to predict.
            return NamedInference(AutoMarginals(budget="fast"), "mpm")
        return self.on(facts).automatic_inference(facts, in_training)


@options
class PseudoMarginalTraining(SmoothLearning):
    r"""Pseudo-marginal approximation (PMA): training with the marginals of the inference for prediction.

    .. math:: \nabla \ell = \mu(\theta) - \phi(y^*)

    With exact inference this is maximum likelihood. With inference by a convex bound (``"trw"``) the problem is convex
    if all nodes are labelled. Messages then continue from the previous step, and become more accurate as the
    gradient decreases. Belief propagation restarts at every step, because it may have several fixed points.
    ``inference="auto"`` is exact if this is affordable on all examples, and otherwise such a convex bound. Source:
    Kumar et al. 2005, section 4.1.

    Parameters
    ----------
    max_nodes : int or None, default=10000
        Images and volumes with more nodes than this, of which fewer than half are labelled, are reduced to a coarser
        scale for training. Each reduced lattice has at most this many blocks of pixels, with the mean features and the
        most common label of each block. ``reach`` then counts edges between blocks, and the training curves refer to
        blocks. Prediction uses the full size. With None, training also uses the full size.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.learning import PseudoMarginalTraining
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> learning = PseudoMarginalTraining()
    >>> drf = DRFClassifier(learning=learning, C=10, edge_features="constant").fit(X, y)
    >>> float(drf.score(X, y))
    1.0
    """

    name = "pma"
    takes_factors = True
    takes_segments = True
    remedy = REMEDY
    max_nodes: int | None = MAX_NODES

    def depends_on_width(self, inference: str | Inference) -> bool:
        return inference == "auto"

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        if facts.exact_is_affordable:
            return NamedInference(AutoMarginals(budget="fast"), "mpm")
        return choose_layout_trees(facts, in_training)

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        if self.depends_on_width(inference):
            self.cyclic_nodes = 1024
        return super().for_fit(inference, classes, tol)

    def likelihood(self, plan: FitPlan) -> Objective:
        inference, final_tol = plan.training_inference.inference, None
        if not inference.convex:
            return Likelihood().coupled(inference)
        inference = clone(inference)
        if isinstance(inference, TRWMessagePassing | MarginalsWithFallback):
            final_tol = inference.tol
            inference.tol = max(_FIRST_TOL, final_tol)
        return RelaxedLikelihood(inference, final_tol=final_tol)


# Tolerance of the messages in the first training iterations, for which rough marginals are sufficient.
_FIRST_TOL = 3e-2


@options
class PiecewiseTraining(SmoothLearning):
    """Piecewise training, whose quick but loose bound is the sum of the log-partitions of single nodes and edges.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import PiecewiseTraining
    >>> y = np.array([[0, 0, 1, 1], [1, 1, 0, 0]])
    >>> X = y[..., np.newaxis] + 0.1 * np.sin(np.arange(8)).reshape(2, 4, 1)
    >>> TRWCRF(learning=PiecewiseTraining(), C=10).fit(X, y).predict(X)[0].tolist()
    [0, 0, 1, 1]
    """

    name = "piecewise"
    takes_factors = True
    start_with_cycles = "zeros"
    sums_over_nodes = True
    cyclic_nodes = 4096
    factor_nodes = 512

    def likelihood(self, plan: FitPlan) -> Objective:
        return Piecewise()


@options
class SharedPiecesTraining(PiecewiseTraining):
    """Piecewise training in which edges share the scores of their nodes, for a tighter bound than without sharing.

    Parameters
    ----------
    shares : {"even", "optimized"}, default="even"
        Shares of a node's scores. "even" gives equal shares to all its edges. "optimized" first trains with even
        shares, computes once the shares that minimise the bound at these weights, and continues training with them.
        The result is closer to :class:`Relaxation` with the trivial entropy, which computes shares at every step.
        Training takes two to four times as long as with "even", and examples must not have factors.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import SharedPiecesTraining
    >>> y = np.array([[0, 0, 1, 1], [1, 1, 0, 0]])
    >>> X = y[..., np.newaxis] + 0.1 * np.sin(np.arange(8)).reshape(2, 4, 1)
    >>> TRWCRF(learning=SharedPiecesTraining(), C=10).fit(X, y).predict(X)[0].tolist()
    [0, 0, 1, 1]
    """

    _parameter_constraints: ClassVar[dict] = {"shares": [StrOptions({"even", "optimized"})]}
    name = "shared_pieces"
    sums_over_nodes = False
    shares: str = "even"

    def likelihood(self, plan: FitPlan) -> Objective:
        return SharedPieces()

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        record = super().minimize(problem, start, plan, run)
        # If training was stopped or interrupted, or has no iterations left, it is not continued.
        if self.shares == "even" or not record.converged or record.n_iter > run.max_iter:
            return record
        assert record.coef is not None, "training has ended"
        risk = problem.risk.derived(partial(set_best_edge_shares, coef=record.coef))
        again = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        again.record = record
        return super().minimize(again, record.coef, plan, run)


@options
class LoopyTraining(SmoothLearning):
    """Maximum likelihood with the Bethe approximation, computed by loopy belief propagation.

    The approximation is exact on forests. On other graphs, the objective may not be convex.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of iterations of the inference of one example.
    tol : float, default=1e-6
        Tolerance of the inference.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import LoopyTraining
    >>> TRWCRF(learning=LoopyTraining(tol=1e-4)).get_params()["learning__tol"]
    0.0001
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    name = "loopy"
    takes_factors = True
    takes_segments = True
    start_with_cycles = "auto"
    remedy = "increase the max_iter of the learning method, decrease C, or use learning='relaxation', which is convex"
    max_iter: int = 500
    tol: float = 1e-6

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(LoopyBP(max_iter=self.max_iter, tol=self.tol), "mpm")

    def likelihood(self, plan: FitPlan) -> Objective:
        return Likelihood(self.decoding("auto", plan.facts).inference)


@options
class MeanFieldTraining(LoopyTraining):
    """Mean field approximation, which gives a lower bound on the log-partition.

    Mean field starts twice, from the field without edges and from the training labels, and the larger bound is used.
    The bound is therefore at least the score of the labels, and the loss is not negative.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import MeanFieldTraining
    >>> TRWCRF(learning=MeanFieldTraining(max_iter=100)).get_params()["learning__max_iter"]
    100
    """

    name = "mean_field"
    takes_segments = False

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(MeanField(max_iter=self.max_iter, tol=self.tol), "mpm")


class OwnLearning(SmoothLearning):
    """Learning method for a user-defined objective."""

    # own: Objective. If its parameter ``inference`` is None, it uses the inference for prediction.

    takes_factors = True
    remedy = REMEDY

    def __init__(self, own: Any):
        self.own = own

    @property
    def takes_segments(self) -> bool:  # type: ignore[override]
        return bool(self.own.needs)

    @property
    def sums_over_nodes(self):  # type: ignore[override]
        return self.own.weighs_nodes

    @property
    def has_penalty(self):  # type: ignore[override]
        return self.own.smooth

    def likelihood(self, plan: FitPlan) -> Objective:
        return self.own.coupled(plan.training_inference.inference)


@options
class TruncatedInference(DescentLearning):
    r"""Minimisation of a loss on the marginals after a fixed number of sweeps, with gradients through the sweeps.

    .. math:: \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i L\bigl(b^{(n)}(B(x_i) w), y_i\bigr)

    :math:`b^{(n)}` are the marginals after n sweeps, converged or not. Prediction uses the same sweeps, so that the
    weights are optimised for the marginals used in prediction. The problem is not convex.

    Parameters
    ----------
    inference : {"trw", "loopy", "mean_field"}, default="trw"
        Inference algorithm: tree-reweighted or plain belief propagation, with sweeps forwards and backwards through the
        nodes, or mean field, with sweeps forwards only. In belief propagation, a factor of more than two nodes becomes
        a node, whose states are the joint states of the factor.
    n_sweeps : int, default=10
        Number of sweeps. Memory grows with this number, because the messages after each sweep are kept, for one example
        at a time.
    loss : {"clique", "univariate", "quadratic", "expected_cost"}, default="clique"
        Loss of the marginals. "clique" is the negative log-probability of the labels of each edge (and of each node
        without edges). "univariate" is the negative log-probability of the label of each node. "quadratic" is the
        squared distance between the marginals of each node and its label. "expected_cost" is the expected cost of the
        labels, which leads to extreme probabilities. All losses except "clique" support weights of nodes
        and classes.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or ErrorCost, default="hamming"
        Costs for "expected_cost". "hamming" counts wrong nodes (the smooth Hamming loss). A matrix has the cost
        ``cost[a, b]`` of labelling a node of class b as a, in the order of ``classes_``. An :class:`ErrorCost` also has
        costs of edges and factors, whose expectations use the marginals of edges and factors. If the estimator has a
        ``cost``, it replaces "hamming".
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="independent"
        Start of training: the weights of the field without edges ("independent"), zero, or normal random numbers.
        "auto" is zero.

    References
    ----------
    J. Domke. Learning graphical model parameters with approximate marginal inference. IEEE Trans. Pattern Analysis and
    Machine Intelligence 35, 2013, :arxiv:`1301.3193`. V. Stoyanov, A. Ropson, J. Eisner. Empirical risk minimization of
    graphical model parameters given approximate inference, decoding, and model structure. AISTATS 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import TruncatedInference
    >>> y = np.zeros((4, 6, 6), dtype=int)
    >>> y[:, 2:4, 2:4] = 1
    >>> X = (y + 0.3 * np.random.default_rng(0).normal(size=y.shape))[..., np.newaxis]
    >>> field = TRWCRF(learning=TruncatedInference(n_sweeps=5, loss="univariate"), C=10)
    >>> print(f"{field.fit(X, y).score(X, y):.2f}")
    1.00
    """

    _parameter_constraints: ClassVar[dict] = {
        "inference": [StrOptions({"trw", "loopy", "mean_field"})],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions(set(SWEEP_LOSSES))],
        "cost": [StrOptions({"hamming"}), "array-like", ErrorCost],
    }
    name = "truncated"
    takes_factors = True
    charged = staticmethod(set_joint_costs)
    # Examples can be packed into batches, because sweeps of separate components are independent.
    cyclic_nodes = 1024
    inference: str = "trw"
    n_sweeps: int = 10
    loss: str = "clique"
    cost: Any = "hamming"
    init: Any = "independent"

    @property
    def weighs_nodes(self) -> bool:
        return self.loss != "clique"

    @property
    def takes_decision_cost(self) -> bool:
        """Whether the loss has costs of errors. By default, these are the estimator's costs of predictions."""
        return self.loss == "expected_cost"

    def tolerance(self, solver: Any = None) -> float:
        return _TOL_OF_PAIRS if self.loss == "clique" else super().tolerance(solver)

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if not self.takes_decision_cost and not (isinstance(self.cost, str) and self.cost == "hamming"):
            raise ValueError(f"cost needs loss='expected_cost', but TruncatedInference has loss={self.loss!r}.")

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(self._make_sweeps(facts), "mpm")

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        cost = self.cost_matrix(None, data.labels) if self.takes_decision_cost else None
        return TruncatedLoss(self._make_sweeps(plan.facts), self.loss, cost)

    def _make_sweeps(self, facts: Facts) -> FixedSweeps:
        return FixedSweeps(method=self.inference, n_sweeps=self.n_sweeps, edge_probabilities=facts.trees)
