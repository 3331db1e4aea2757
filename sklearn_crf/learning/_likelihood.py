"""Likelihoods that training maximises, exact or approximate, and the marginals that go with each at prediction."""

from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf._reports import warn_caller
from sklearn_crf.inference import (
    AutoMarginals,
    Inference,
    JunctionTree,
    LoopyBP,
    MeanField,
    NamedInference,
    TreeInference,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.learning._few_labels import MAX_NODES
from sklearn_crf.learning._learning import Learning, SmoothLearning
from sklearn_crf.learning._margin_training import MarginRecord
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._relaxations import Relaxation
from sklearn_crf.learning._solvers import REMEDY
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.objectives import (
    EmpiricalRisk,
    Likelihood,
    Objective,
    Piecewise,
    Pseudolikelihood,
    RelaxedLikelihood,
    SharedPieces,
    at_best_shares,
    with_known_surroundings,
)

# Changes of messages at which tree-reweighted inference stops. A line search needs them small. In prediction a tenth of
# the accuracy leaves all labels but one in a thousand as they are, on photographs in a third of the sweeps.
_TRAINING_TOL, _PREDICTION_TOL = 1e-3, 1e-2


def trees_of_layout(facts, in_training=False):
    """Return tree-reweighted messages for examples of a layout."""
    tol = _TRAINING_TOL if in_training else _PREDICTION_TOL
    # On lattices the probabilities of uniform trees are nearly those of chains, and slow to work out on large ones.
    trees = "auto" if facts.lattice_ndim is None else "chains"
    return NamedInference(TRWMessagePassing(trees, max_iter=500, tol=tol), "mpm")


@options
class Exact(SmoothLearning):
    """Maximum likelihood by the exact log-partition: on forests by messages, elsewhere by a junction tree.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Exact
    >>> TRWCRF(learning=Exact(cost="hamming")).get_params()["learning__cost"]
    'hamming'
    """

    name = "exact"
    takes_factors = True
    start_with_cycles = "zeros"

    def likelihood(self, plan: FitPlan) -> Objective:
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
    """Maximum likelihood: exact where that is affordable on all examples, by a convex relaxation elsewhere.

    Exact inference is affordable on forests and narrow graphs (:func:`~sklearn_crf.inference.exact_inference` with
    ``budget="step"``). It is :class:`Exact` there, and :class:`Relaxation` elsewhere.

    Parameters
    ----------
    max_nodes : int or None, default=10000
        As of :class:`PseudoMarginalTraining`, for the relaxation, whose inner problem takes longer.

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
            # Examples to predict may be wider than those of training.
            return NamedInference(AutoMarginals(budget="fast"), "mpm")
        return self.on(facts).automatic_inference(facts, in_training)


@options
class PseudoMarginalTraining(SmoothLearning):
    r"""Pseudo-marginal approximation (PMA): the marginals of the inference that predicts.

    .. math:: \nabla \ell = \mu(\theta) - \phi(y^*)

    With exact inference it is maximum likelihood. Inference by a convex bound (``"trw"``) makes it a convex problem
    where all nodes are labelled: messages then go on from step to step, and are as accurate as the gradient is small.
    Belief propagation starts again at every step, since it may have several fixed points. ``inference="auto"`` is exact
    where that is affordable on all examples, and such a bound elsewhere. Source: Kumar et al. 2005, section 4.1.

    Parameters
    ----------
    max_nodes : int or None, default=10000
        Images and volumes of more nodes, fewer than half of them labelled, are learned from at a coarser scale: blocks
        of pixels, at most this many, with the means of their features and their commonest label, among which ``reach``
        counts; the curves of training are of these. Prediction is at full size. None learns at full size too.

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
    remedy = REMEDY
    max_nodes: int | None = MAX_NODES

    def depends_on_width(self, inference: str | Inference) -> bool:
        return inference == "auto"

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        if facts.exact_is_affordable or facts.have_factors:
            return NamedInference(AutoMarginals(budget="fast"), "mpm")
        return trees_of_layout(facts, in_training)

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        if self.depends_on_width(inference):
            self.cyclic_nodes = 1024
        return super().for_fit(inference, classes, tol)

    def likelihood(self, plan: FitPlan) -> Objective:
        inference, final_tol = plan.training_inference.inference, None
        if not inference.convex:
            return Likelihood().coupled(inference)
        inference = clone(inference)
        if isinstance(inference, TRWMessagePassing):
            final_tol = inference.tol
            inference.set_params(tol=max(_FIRST_TOL, final_tol))
        return RelaxedLikelihood(inference, final_tol=final_tol)


# Largest change of a message at which the marginals of the first iterates are good enough.
_FIRST_TOL = 3e-2


@options
class PiecewiseTraining(SmoothLearning):
    """The log-partitions of nodes and edges, each by itself: quick, loose.

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
    """The log-partitions of edges, each by itself with a share of the scores of its nodes: quick, less loose.

    Parameters
    ----------
    shares : {"even", "optimized"}, default="even"
        Whether a node gives all its edges as much, or training goes on from there with the shares that make the bound
        least at the weights found, computed once: closer to :class:`Relaxation` by the trivial entropy, which computes
        them at every step, and two to four times as long as "even".

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

    _parameter_constraints: ClassVar[dict] = {
        "shares": [StrOptions({"even", "optimized"})],
        **PiecewiseTraining._parameter_constraints,
    }
    name = "shared_pieces"
    takes_factors = False
    why_not: ClassVar[dict[str, str]] = {"factors": "it shares scores of nodes out among edges"}
    sums_over_nodes = False
    shares: str = "even"

    def likelihood(self, plan: FitPlan) -> Objective:
        return SharedPieces()

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        record = super().minimize(problem, start, plan, run)
        # What was stopped, interrupted or has no iterations left ends here.
        if self.shares == "even" or not record.converged or record.n_iter > run.max_iter:
            return record
        assert record.coef is not None, "training has ended"
        risk = problem.risk.derived(partial(at_best_shares, coef=record.coef))
        again = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        again.record = record
        return super().minimize(again, record.coef, plan, run)


@options
class PseudolikelihoodTraining(PiecewiseTraining):
    r"""Pseudolikelihood: each node given its true neighbours, without any inference.

    .. math:: \ell(\theta) = -\sum_s \log p(y_s \mid y_{N(s)}; \theta)

    Given its true neighbours a node hardly needs its own features, so that their weights suffer where neighbours are
    alike. ``fixed_nodes=True`` learns edges alone.

    Parameters
    ----------
    fixed_nodes : bool, default=False
        Whether the weights of nodes stay where training starts, with ``init="auto"`` those of the field without edges.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import PseudolikelihoodTraining
    >>> y = np.array([[0, 0, 1, 1], [1, 1, 0, 0]])
    >>> X = y[..., np.newaxis] + 0.1 * np.sin(np.arange(8)).reshape(2, 4, 1)
    >>> TRWCRF(learning=PseudolikelihoodTraining(), C=10).fit(X, y).predict(X)[0].tolist()
    [0, 0, 1, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "fixed_nodes": ["boolean"],
        **PiecewiseTraining._parameter_constraints,
    }
    name = "pseudolikelihood"
    start_with_cycles = "independent"
    fixed_nodes: bool = False

    def check_batches(self, batches: Sequence, plan: FitPlan) -> None:
        super().check_batches(batches, plan)
        require_known_surroundings(batches, self.name)

    def likelihood(self, plan: FitPlan) -> Objective:
        return Pseudolikelihood()

    def train(self, risk: Any, plan: FitPlan, data: Any, make_start: Any, run: Any) -> TrainingRecord | MarginRecord:
        record = super().train(risk, plan, data, make_start, run)
        if isinstance(risk, EmpiricalRisk) and _is_worse_than_constant(risk, record.coef, plan.decoding):
            warn_caller(
                "With the weights of pseudolikelihood, which overrates edges, training examples are labelled worse "
                "than by one class for all nodes: learn edges alone, "
                "learning=PseudolikelihoodTraining(fixed_nodes=True), penalise the edges, "
                "pairwise=PairwiseTables(C=0.001), or use a learning that asks the inference that predicts, 'pma'."
            )
        return record


def require_known_surroundings(batches, name):
    """Raise ValueError if no labelled node has labels all around it."""
    if all(np.min(batch.labels, initial=0) >= 0 for batch in batches):
        return
    # Factors are seen by the objective, which needs their model.
    kept = (with_known_surroundings(batch.example, batch.labels).any() for batch in batches)
    if not any(kept):
        raise ValueError(
            f"y has no labelled node all of whose neighbours are labelled, which learning={name!r} needs: take "
            "'relaxation', which sums over missing labels."
        )


# Up to so many nodes are labelled to see whether weights that were learned without inference can predict by it.
_NODES_TO_CHECK = 10_000


def _is_worse_than_constant(risk, coef, decoding):
    """Whether the first examples have more wrong labels than if all nodes had the commonest one."""
    wrong, weight_of_label, n_nodes = 0.0, np.zeros(risk.potentials.n_classes), 0
    for batch in risk.batches:
        if n_nodes >= _NODES_TO_CHECK or not len(batch.example.graph.edges):
            break
        model = risk.potentials.model(coef, batch.example)
        try:
            with convergence_left_to_caller():
                if decoding.rule == "mpm":
                    predicted = np.argmax(decoding.inference.marginals(model).unary, axis=1)
                else:
                    predicted = decoding.inference.map(model).labels
        except ValueError:
            # An inference that refuses the model says so when it is asked to predict.
            return False
        weight = np.ones(len(predicted)) if batch.node_weight is None else batch.node_weight
        labelled = batch.labels >= 0
        weight_of_label += np.bincount(batch.labels[labelled], weight[labelled], minlength=len(weight_of_label))
        wrong += float(weight[labelled & (predicted != batch.labels)].sum())
        n_nodes += len(predicted)
    return wrong > weight_of_label.sum() - weight_of_label.max()


@options
class LoopyTraining(SmoothLearning):
    """The Bethe approximation by loopy belief propagation, exact on forests, not convex.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations of the inference of one example.
    tol : float, default=1e-6
        Its tolerance.

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
        **SmoothLearning._parameter_constraints,
    }
    name = "loopy"
    takes_factors = True
    start_with_cycles = "auto"
    remedy = "increase the max_iter of the learning, decrease C, or take learning='relaxation', which is convex"
    max_iter: int = 500
    tol: float = 1e-6

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(LoopyBP(max_iter=self.max_iter, tol=self.tol), "mpm")

    def likelihood(self, plan: FitPlan) -> Objective:
        return Likelihood(self.automatic_inference(plan.facts).inference)


@options
class MeanFieldTraining(LoopyTraining):
    """The lower bound of mean field.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import MeanFieldTraining
    >>> TRWCRF(learning=MeanFieldTraining(max_iter=100)).get_params()["learning__max_iter"]
    100
    """

    name = "mean_field"
    takes_factors = False
    why_not: ClassVar[dict[str, str]] = {"factors": "its inference goes from node to node along edges"}

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(MeanField(max_iter=self.max_iter, tol=self.tol), "mpm")


class OwnLearning(SmoothLearning):
    """The learning of an objective of the user's own."""

    # own: with ``inference=None`` among its parameters it is given the inference that predicts

    takes_factors = True
    remedy = REMEDY

    def __init__(self, own: Any):
        self.own = own

    def _validate_params(self):
        """Accept the options of the objective as they are."""

    @property
    def sums_over_nodes(self):  # type: ignore[override]
        return self.own.weighs_nodes

    @property
    def has_penalty(self):  # type: ignore[override]
        return self.own.smooth

    def likelihood(self, plan: FitPlan) -> Objective:
        return self.own.coupled(plan.training_inference.inference)
