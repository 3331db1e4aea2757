"""DRFClassifier: learning coupled to inference."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils.validation import check_array

from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import in_class_order
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.estimators._held_out import HeldOutExamples, split_examples
from sklearn_crf.inference import (
    NamedInference,
    TRWMessagePassing,
    convergence_left_to_caller,
    resolve_inference,
)
from sklearn_crf.learning import (
    LEARNING_CONSTRAINTS,
    PL,
    PMA,
    MaximumLikelihood,
    PenalisedRisk,
    are_narrow,
    resolve_learning,
)
from sklearn_crf.objectives import EmpiricalRisk

# Changes of messages at which tree-reweighted inference stops. A line search needs them small. In prediction a tenth of
# the accuracy leaves all labels but one in a thousand as they are, on photographs in a third of the sweeps.
_TRAINING_TOL, _PREDICTION_TOL = 1e-3, 1e-2


class DRFClassifier(FieldClassifier):
    r"""Discriminative random field whose learning is coupled to its inference.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        p(y \mid x) \propto \exp \Bigl( \sum_s w_{y_s}^\top x_s + b_{y_s}
            + \sum_{(i, j)} v_{y_i y_j}^\top \mu_{ij}(x) \Bigr)

    Parameters are learned by replacing the expectations of the likelihood's gradient with the results of an inference
    algorithm, which predicts as well: pseudo-marginals for marginal decoding (PMA), the
    best labeling for MAP decoding (SPA). A field without edges is exactly logistic regression.

    Each edge is counted once. Kumar et al. count it from both its ends, so their :math:`v` is half of
    ``edge_coef_``. For two classes the unary score is :math:`\pm (w^\top x + b) / 2`, as in their Eq. (3).

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty in :math:`\tfrac12 \lVert w \rVert^2 + C \sum_i \ell_i`; intercepts are
        free. It applies to ``learning`` "pma", "pl" and "likelihood"; steps of SPA, MMA and CD have no penalty, and the
        bundle method of SPA has one on the distance to the start.
    learning : str, LearningRule or Objective, default="auto"
        What replaces the expectations: pseudo-marginals ("pma"), the best labeling ("spa", saddle point
        approximation), the labeling of largest marginals ("mma", maximum marginal approximation), each node given
        its true neighbours ("pl", pseudolikelihood), Gibbs sweeps from the truth ("cd"), or exact
        expectations ("likelihood": forests, or an inference that is exact anywhere). "auto" matches ``inference``:
        "pma" for marginal decoding, "spa" for MAP. Or a rule of :mod:`sklearn_crf.learning`, whose options are
        reachable as ``learning__step_size`` and so on, such as :class:`~sklearn_crf.learning.SPA`; or an
        :class:`~sklearn_crf.objectives.Objective` of your own.
    inference : str or Inference, default="auto"
        What predicts, and learns where the rule can use it. "auto" chooses each node's best state under its
        marginals: exact on forests and where elimination is affordable, otherwise, as PMA learns, of tree-reweighted
        belief propagation, whose training is a convex problem. "mpm" is the same by loopy belief propagation, "map"
        the best labeling
        (max-product on forests, min-cut for two classes, alpha-expansion or max-product for more); "icm"; or
        another name of the user guide (:ref:`choosing_inference`); or an :class:`~sklearn_crf.inference.Inference`,
        cloned, whose options are reachable as ``inference__max_iter`` and so on.
    cost : array-like of shape (n_classes, n_classes), optional
        ``cost[a, b]`` of predicting class a where b is true, in the order of ``classes`` if that is given, else of
        ``classes_``; labels of least expected
        cost under the marginals are predicted (Jancsary 2012, Eq. 42 to 47). None is one for every error.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, "balanced" in inverse proportion to the weighted numbers of their nodes. With
        ``learning="pl"`` they are factors of the losses of nodes, as is the ``node_weight`` of ``fit``. Every other
        rule weighs an example by the mean over its nodes, and ``predict`` weighs marginals: see :ref:`weights`.
    pairwise : str or PairwiseTables, default="auto"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction.
    edge_features : str or callable, default="auto"
        Features of an edge: "difference" is :math:`[1, |x_i - x_j|]`, "constant" is :math:`[1]` (a conventional
        Markov random field), or a registered name or a callable ``f(x_tail, x_head)``. "auto" is "difference", and
        "constant" for sparse features and linear operators.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    max_iter : int, default=200
        Most iterations; epochs where steps are made for mini-batches.
    tol : float, default=1e-4
        Largest entry of the gradient per labelled node at which smooth training stops.
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN; None if all nodes are labelled. "pma", "likelihood" sum
        over them, "spa", "mma", "cd" complete them, "pl" rejects them.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted.
    random_state : int, RandomState instance or None, default=None
        For random starts, contrastive divergence and mini-batches.
    n_jobs : int, default=None
        Threads over examples, then inside large ones. Results do not depend on it.
    verbose : int, default=0
        Whether progress is shown.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        With a leading axis of node types where examples have several.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    edge_coef_ : ndarray of shape (n_edge_types, n_edge_features, n_table_weights)
    loss_curve_ : ndarray of shape (n_iter_,)
        The regularised objective at every iteration; NaN for rules without one (MMA, CD).
    error_curve_ : ndarray of shape (n_iter_,)
        Wrong training labels by the rule's own inference, weighted; NaN for PL and CD.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node, by weights for features as X has them.
    nonsubmodular_curve_ : ndarray of shape (n_iter_,)
        Number of edges on which min-cut was not exact, for binary MAP learning.
    coef_path_, gradient_path_ : ndarray of shape (n_iter_, n_coef)
        All weights and gradients, flat, for models of few weights; else empty.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Factors of the marginals by which ``predict`` decides, where ``class_weight`` weighs whole examples.
    voters_ : ndarray of shape (n_voters, n_coef) or None
        Weights that vote at prediction, for ``select="voted"``; ``coef_`` and the others are then their mean.
    n_iter_ : int
    converged_ : bool
        Whether training came to its own end, with an inference that did; False where examples held out ended it.
    stop_reason_ : str
        Why it ended.
    best_iter_ : int or None
        The iteration whose weights are kept, from 0; None where they are a mean or several vote.
    validation_scores_ : ndarray of shape (n_iter_,)
        Share of right labels among the examples held out, at every iteration; empty where none were.
    duality_gap_ : float
        Upper bound on the suboptimality of the objective of ``SPA(solver="bundle")``; NaN for other rules.
    learning_ : str
        The rule that was used.
    inference_ : str
        The inference that predicts with ``inference="auto"``: "mpm" or "trw". Otherwise the parameter, or the class of
        an object.
    partial_fit_state_ : dict
        State for the next ``partial_fit``, if that was the last call.
    n_features_in_ : int
        Features of a node.
    lattice_ndim_ : int or None
        Lattice axes of the training examples, which prediction requires; None for a list of ``Example``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only for data frames.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative
    Fields: An Empirical Study. EMMCVPR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> DRFClassifier(inference="map").fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldClassifier._parameter_constraints,
        "learning": LEARNING_CONSTRAINTS,
        "cost": ["array-like", None],
    }
    _objects: ClassVar[dict] = FieldClassifier._objects | {"learning": "SPA()"}
    _takes_parts = True

    def __init__(
        self,
        C=1.0,
        *,
        learning="auto",
        inference="auto",
        cost=None,
        class_weight=None,
        pairwise="auto",
        edge_features="auto",
        connectivity=1,
        fit_intercept=True,
        max_iter=200,
        tol=1e-4,
        missing_label=None,
        classes=None,
        lattice_ndim=None,
        warm_start=False,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.C = C
        self.learning = learning
        self.inference = inference
        self.cost = cost
        self.class_weight = class_weight
        self.pairwise = pairwise
        self.edge_features = edge_features
        self.connectivity = connectivity
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.missing_label = missing_label
        self.classes = classes
        self.lattice_ndim = lattice_ndim
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _rule(self):
        return resolve_learning(self.learning, self.inference)

    # Training ------------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        node_weight: Sequence | None = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> "DRFClassifier":
        """Learn the weights.

        Parameters
        ----------
        X : array-like, sparse matrix, list of examples, or Shards
            Plain rows ``(n, F)``, chains ``(n, T, F)``, images ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists
            of such examples of any sizes, or a list of :class:`~sklearn_crf.Example`. Or all of the training data as
            :class:`~sklearn_crf.Shards`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays. None for Shards.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.
        node_weight : sequence of array-like, optional
            For each example an array of the shape of its labels: factors of the loss of each node. Only with
            ``learning="pl"``, whose loss is a sum over nodes.
        X_val : array-like, sparse matrix, or list of examples, optional
            Examples that choose among the iterates of training, see ``early_stopping`` of
            :class:`~sklearn_crf.learning.PMA`.
        y_val : array-like, optional
            Their labels.

        Returns
        -------
        DRFClassifier
            self
        """
        rule, held_out = self._rule(), None
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be passed together.")
        if X_val is not None:
            if rule.early_stopping is False:
                raise ValueError(
                    "X_val and y_val choose among the iterates of training, which early_stopping=False of the learning "
                    "rule forbids: use early_stopping='auto'."
                )
            held_out = HeldOutExamples(X_val, y_val, None, rule.n_iter_no_change)
        elif rule.early_stopping is True:
            weights = sample_weight, node_weight
            X, y, (sample_weight, node_weight), held_out = split_examples(X, y, weights, rule, self.random_state)
        return self._fit(X, y, sample_weight, node_weight, held_out)

    def _check_batches(self, batches, graphs):
        if graphs.have_cycles and isinstance(self._rule(), MaximumLikelihood):
            decoding = self._decoding_by(self._chosen_inference(graphs), None).inference
            if decoding.exact_on != "any" or "marginals" not in decoding.tasks:
                raise ValueError(
                    "learning='likelihood' needs exact marginals, and X has graphs with cycles: pass "
                    "inference='junction_tree' where they are narrow, or learn by learning='pma' or 'pl'."
                )

    def _check_labels(self, labels):
        if self.cost is not None:
            self._checked_cost(len(labels.classes_))

    def _weighs_nodes(self):
        return self._rule().objective(self._decoding()).weighs_nodes

    def _packing(self, encoded):
        rule = self._rule()
        if rule.is_stochastic:
            # Mini-batches are of examples, so none may be packed with others.
            return {"max_nodes": 1}
        return {"max_nodes": 4096, "max_cyclic_nodes": 1024 if self._chooses_inference(rule) else 1}

    def _objective(self, examples, potentials):
        inference = self._chosen_inference(examples.graphs)
        return self._rule().objective(self._decoding_by(inference, examples.encoded.lattice_ndim, _TRAINING_TOL))

    def _train(self, risk, examples, make_start, run):
        rule = self._rule()
        risk, init = rule.restricted(risk), rule.init
        if isinstance(init, str) and init == "auto":
            # Nodes alone are quick to learn, and leave less to the passes that need inference.
            from_zero = risk.objective.smooth and risk.is_forest and not rule.fixed_nodes
            init = "zeros" if from_zero else "independent"
        start = make_start(init)
        problem = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        problem.free = risk.potentials.on_edges if rule.fixed_nodes else None
        record = rule.solver_for(problem, start).train(problem, start, run)
        if isinstance(rule, PL) and isinstance(risk, EmpiricalRisk):
            chosen = self._decoding_by(self._chosen_inference(examples.graphs), examples.encoded.lattice_ndim)
            if _is_worse_than_constant(risk, record.coef, chosen):
                warn_caller(
                    "With the weights of pseudolikelihood, which overrates edges, training examples are labelled worse "
                    "than by one class for all nodes: learn edges alone, learning=PL(fixed_nodes=True), penalise the "
                    "edges, pairwise=PairwiseTables(C=0.001), or use learning='auto', which learns by the inference "
                    "that predicts."
                )
        return record

    def _chooses_inference(self, rule):
        """Whether the training examples decide what predicts."""
        return isinstance(self.inference, str) and self.inference == "auto" and isinstance(rule, PMA)

    def _are_narrow(self, batches, potentials):
        return self._chooses_inference(self._rule()) and are_narrow(batches, potentials)

    def _chosen_inference(self, graphs):
        """Name of what predicts, by the training examples; that of the class of an object."""
        if not isinstance(self.inference, str):
            return type(self.inference).__name__
        if not self._chooses_inference(self._rule()):
            return self.inference
        return "mpm" if graphs.are_narrow else "trw"

    def _chosen(self, graphs):
        return {"inference_": self._chosen_inference(graphs), "learning_": self._rule().name}

    def _store(self, record):
        super()._store(record)
        self.voters_ = record.voters
        self.validation_scores_ = np.array(record.validation_scores)
        self.duality_gap_ = record.gap
        self.nonsubmodular_curve_ = record.curve("n_nonsubmodular")
        self.coef_path_ = np.array(record.coef_path)
        self.gradient_path_ = np.array(record.gradient_path)

    # Prediction ----------------------------------------------------------------------------------------------------

    def _decoding(self):
        return self._decoding_by(getattr(self, "inference_", None), getattr(self, "lattice_ndim_", None))

    def _decoding_by(self, chosen, lattice_ndim, tol=_PREDICTION_TOL):
        """The inference of prediction, given the name that the training examples chose for ``inference="auto"``."""
        if not (isinstance(self.inference, str) and self.inference == "auto" and chosen == "trw"):
            return resolve_inference(self.inference)
        # On lattices the probabilities of uniform trees are nearly those of chains, and slow to work out on large ones.
        trees = "auto" if lattice_ndim is None else "chains"
        return NamedInference(TRWMessagePassing(trees, max_iter=500, tol=tol), "mpm")

    def _warn_of_scale(self):
        rule = self._rule()
        # Best labelings do not see the scale; that of the weights of single pixels is right for those.
        if self.learning_ in ("spa", "mma") and isinstance(rule.init, str) and rule.init in ("zeros", "random"):
            warn_caller(
                f"Steps of {self.learning_.upper()} from init={rule.init!r} give the weights a scale that depends on "
                "step_size, and probabilities are as sure as that: use init='auto', or fit the scale with "
                "TemperatureScaling."
            )

    def _checked_cost(self, n_classes):
        if self._decoding().rule == "map":
            raise ValueError(
                "cost needs marginals to take expectations, but inference predicts by MAP: use inference='mpm'."
            )
        cost = in_class_order(self.cost, self.classes)
        cost = check_array(cost, dtype=np.float64, ensure_2d=False, input_name="cost")
        if cost.shape != (n_classes, n_classes):
            raise ValueError(f"cost must have shape ({n_classes}, {n_classes}), got {cost.shape}.")
        return cost


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
        weight_of_label += np.bincount(batch.labels, weight, minlength=len(weight_of_label))
        wrong += float(weight[predicted != batch.labels].sum())
        n_nodes += len(predicted)
    return wrong > weight_of_label.sum() - weight_of_label.max()
