"""Base class of estimators whose scores are linear in features: parameters, ``fit`` and ``partial_fit``."""

from dataclasses import field
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._fits import fits
from sklearn_crf._numbers import C_INTERVAL
from sklearn_crf._options import options
from sklearn_crf._parameters import hide_type_in_halving, require_objects
from sklearn_crf._reports import CallbackSupportMixin, FitReprMixin, fit_callbacks
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.encoding import record_input
from sklearn_crf.estimators._fitted_field import FieldParameters
from sklearn_crf.estimators._training import build_fitted_attributes, partial_fit, split_held_out_examples, train
from sklearn_crf.inference import Inference, choose_labeling_rule
from sklearn_crf.learning import (
    LEARNING_CONSTRAINTS,
    MARGIN_SOLVERS,
    SOLVERS,
    ErrorCost,
    PlaneSolver,
    Solver,
    find_learning_class,
)
from sklearn_crf.potentials import PAIRWISE_FORMS, PairwiseTables, check_fitted_weights


@options
class TrainableField(FitReprMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    r"""Base class of trainable fields whose scores are linear in the features of nodes and edges.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty in :math:`\tfrac12 \lVert w \rVert^2 + C \sum_i \ell_i`. Intercepts are not
        penalised, except by margins, which penalise the intercepts of centred features. Learning by "spa", "mma" and
        "cd" has no penalty, except with ``solver="bundle"``, which penalises the distance to the initial weights.
        Compared with CRFsuite, ``C = 1 / (2 c2)``.
    learning : str, Learning or Objective, default="likelihood"
        Loss that determines the weights. Likelihoods:

        - "likelihood": maximum likelihood, exact if exact inference is affordable on all examples, as on chains and
          narrow graphs, otherwise "relaxation"; "exact": exact on all graphs, by junction trees.
        - "coupled": matched to the inference that predicts (Kumar et al. 2005): "pma" if it gives marginals, "spa" if
          it gives best labelings.
        - "pma": gradient from the marginals of the inference that predicts (pseudo-marginal approximation); "spa": from
          its best labeling (saddle point approximation); "mma": from each node's most probable state (maximum marginal
          approximation); "cd": from Gibbs sweeps that begin at the true labels (contrastive divergence).
        - "relaxation": a convex upper bound on the log-partition, by messages with warm starts between steps (recipe 1
          of Jancsary 2012); "edge_probabilities": the minimum of this bound over distributions of spanning trees
          (recipe 2); "reparameterization": the bound as a minimum over all ways to divide scores among trees (recipe
          3); "joint_relaxation": minimises this bound jointly over weights and divisions (recipe 4);
          "dual_relaxation": its dual in the marginals, one example at a time (recipe 5, with
          ``fit_intercept=False``); "spanning_trees": trees that divide scores evenly.
        - Without inference: "piecewise", which normalises each node and each edge by itself; "shared_pieces", which
          normalises each edge with a share of the scores of its nodes; "pseudolikelihood" or "pl", which normalises
          each node given its true neighbours.
        - "loopy": the Bethe free energy of belief propagation; "mean_field": the lower bound of mean field.
        - "truncated": a loss of the marginals after ten sweeps of inference, which prediction also uses (Domke 2013).

        Margins, whose scores are not log-probabilities:

        - "max_margin": the maximum over labelings, by MAP inference.
        - "relaxed_margin": the maximum over the local polytope, including fractional solutions (M3N recipe 2).
        - "smoothed_margin": the relaxed margin plus a temperature times an entropy, which is smooth (recipe 1);
          "reparameterized_margin" and "joint_margin": the smoothed margin over divisions of scores (recipes 3 and 4);
          "dual_margin": the dual of the relaxed margin in the marginals, one example at a time (recipe 5).

        "contrastive" makes the true labels probable among sets of labelings, which grow in rounds (Vickrey 2010).
        ``learning`` can also be an object of :mod:`sklearn_crf.learning`, with nested parameters such as
        ``learning__cost``, or a user-defined :class:`~sklearn_crf.objectives.Objective`.
    solver : str, Solver or PlaneSolver, default="auto"
        Optimisation method. Smooth losses: "lbfgs"; "gradient", gradient descent; "sgd", stochastic gradient descent
        over mini-batches of examples. "auto" is L-BFGS if the loss has a value, otherwise gradient descent. With
        "spa", "mma" and "cd", "auto" uses the steps that the options of the learning method describe. "spa" also has
        "bundle", which bounds the distance to the optimum.

        Margins: "cutting_plane", which stores the most violating labelings of each example (n-slack); "frank_wolfe",
        which stores one combination of labelings, needs less memory, and is faster to a rough solution but slower to an
        accurate one; "bmrm", the bundle method, deterministic, with one cutting plane for each pass over all examples
        (1-slack); "one_slack", the bundle method with cutting planes from known labelings as long as they suffice;
        "subgradient", the steps of Pegasos. "auto" is a bundle method for at most 1,000 weights, for data without
        edges, for :class:`~sklearn_crf.Shards` and for most sparse features, otherwise Frank-Wolfe. Margins with a
        temperature only have "lbfgs".

        ``solver`` can also be an object of :mod:`sklearn_crf.learning`, with nested parameters such as
        ``solver__l1_ratio``.
    inference : str or Inference, default="auto"
        Inference for prediction, and for learning if the loss needs marginals or labelings. "auto" depends on
        ``learning``: it predicts each node's most probable state, by exact marginals if they are affordable, otherwise
        by the marginals of training. With margins it predicts the best labeling. "mpm" predicts each node's most
        probable state, and "map" the best labeling (Viterbi on chains, minimum cuts for two classes). The user guide
        lists further names (:ref:`choosing_inference`). ``inference`` can also be an
        :class:`~sklearn_crf.inference.Inference`, which is cloned, with nested parameters such as
        ``inference__max_iter``.
    cost : array-like of shape (n_classes, n_classes) or ErrorCost, optional
        ``cost[a, b]`` is the cost of predicting class a if b is true, in the order of ``classes`` or, by default,
        ``classes_``. It is non-negative, and zero if a equals b. A frame is read by the names of its rows and
        columns. Predictions minimise the expected cost under the marginals (Jancsary 2012, Eq. 42 to 47). Margins and
        the expected cost of truncated learning use these costs in training. An
        :class:`~sklearn_crf.learning.ErrorCost` also has costs of edges and factors. None means a cost
        of 1 for every error.
    weights : {"auto", "all", "seen"}, default="all"
        Pairs of a feature and a label that have weights: all pairs, or only pairs seen in training. With "seen", pairs
        of labels that no edge joins in training have no weight either. "seen" needs sparse features. With "auto", only
        seen pairs have weights for sparse edge features, and for sparse node features if all pairs would have more than
        100,000 weights. However, all pairs of node features have weights for two classes, for plain rows and if nodes
        are unlabelled. With :class:`~sklearn_crf.Shards` or ``partial_fit``, all pairs have weights.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes. "balanced" weights are inversely proportional to the weighted numbers of nodes. If the loss
        is a sum over nodes ("pseudolikelihood", "piecewise") or has costs of errors, the weights multiply the loss or
        the cost of each node. Every other learning method weights an example by the mean weight of its nodes, and
        ``predict`` multiplies marginals by the weights: see :ref:`weights`.
    pairwise : str or PairwiseTables, default="auto"
        Form of the pairwise tables: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.make_pairwise_form`. A :class:`~sklearn_crf.potentials.PairwiseTables` can also
        set a separate ``C`` for edges, forbid pairs of labels, and let tables of a lattice differ by direction. "auto"
        is "full" on chains, and "symmetric" on images and volumes of two classes. On other graphs of two classes it is
        "ising", and for more classes it is "potts". "directed" is "full" on chains and graphs, and "auto" on images and
        volumes. "associative" is "ising" or "potts" with nonnegative weights, for margins: equal labels are never
        penalised, and minimum cuts are exact throughout training. Edge features must then be nonnegative, too.
    edge_features : str or callable, default="auto"
        Features of an edge: "constant" is :math:`[1]`, "difference" is :math:`[1, |x_i - x_j|]`. Other values are a
        registered name, or a callable ``f(x_tail, x_head)``, which may return a CSR matrix of many features. "auto" is
        "constant" on chains, for sparse features and for linear operators, and elsewhere "difference". With
        ``pairwise="full"`` it is "difference" only on images and volumes with two classes and several features. The
        penalty counts the weight of each difference in units of its root mean square over the training edges, so it
        does not depend on the units of X. With "symmetric" and "full" this unit is at least 1.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins neighbours along the axes, 2 adds diagonals; or an array of offsets.
    fit_intercept : bool, default=True
        Whether unary scores have a constant term.
    max_iter : int, default=200
        Maximum number of iterations: epochs of solvers with mini-batches, cutting planes of the bundle method,
        iterations of the last round of "contrastive".
    tol : float or "auto", default="auto"
        Training stops if the largest entry of the gradient per labelled node is at most this tolerance, 1e-4 with
        "auto". With a loose tolerance, training continues until the last quarter of the iterations lowered the
        objective by at most 1 %. Margins stop at a duality gap of this fraction of the objective. With "auto" the
        fraction is 0.01, or 0.5 with Frank-Wolfe, whose bound improves slowly: its weights then predict about as well
        as later weights, but ``converged_`` is False unless the gap is at most 0.01.
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN; None if all nodes are labelled. Likelihoods sum over missing
        labels. "spa", "mma" and "cd" complete missing labels; margins complete missing labels in rounds of training.
        "pseudolikelihood" and "contrastive" leave out unlabelled nodes and their neighbours.
    classes : array-like, optional
        All classes; needed if some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None infers it from X.
    warm_start : bool, default=False
        Start from the weights of the last fit, even if it was interrupted. Of the solvers of margins, only the bundle
        method supports a warm start. "contrastive" does not reuse the sets of labelings of the last fit.
    random_state : int, RandomState instance or None, default=None
        Determines random initial weights, the order of mini-batches, and the labelings that learning draws. With None
        these labelings are the same in every fit, so fits with default parameters are reproducible.
    n_jobs : int, default=None
        Number of threads, over examples and within large examples. Results do not depend on it.
    verbose : int, default=0
        Whether progress is shown.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features), or CSR matrix
        Weights of node features. If examples have several node types, a leading axis holds them. If only seen pairs of
        features and labels have weights, it is a CSR matrix of shape (n_classes, n_features) with the nonzero weights,
        the columns of node types side by side.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    edge_coef_ : ndarray of shape (n_edge_types, n_edge_features, n_table_weights)
        Weights of edge features. For ``pairwise="full"`` a table is stored row by row; rows are labels of an edge's
        first node, columns of its second. For sparse edge features, a CSR matrix of shape
        (n_table_weights, n_edge_types * n_edge_features) with the nonzero weights, the columns of edge types side by
        side.
    loss_curve_ : ndarray of shape (n_iter_,)
        Regularised objective at every iteration; NaN for learning without an objective (MMA, CD). For margins, the
        objective at every cutting plane of the bundle method, or the best value found up to each epoch in ``checks_``.
    error_curve_ : ndarray of shape (n_iter_,)
        Weighted number of wrong training labels by the inference that learns; NaN for learning without inference. Not
        for margins.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node, with respect to the weights of unscaled features. Not for
        margins.
    coef_path_, gradient_path_ : ndarray of shape (n_iter_, n_coef)
        Flat weights and gradients at every iteration, for models with few weights; else empty. Not for margins.
    n_iter_ : int
        Number of iterations, over all rounds of "contrastive".
    converged_ : bool
        Whether training met its tolerance, with an inference that converged; for margins, at a proven duality gap.
        For "contrastive", whether no further labelings were generated. False if held-out examples stopped training,
        and usually for "spa", "mma", "cd" and "contrastive", whose methods do not promise to converge. They
        only warn if other parameters would help.
    stop_reason_ : str
        Reason why training stopped.
    best_iter_ : int or None
        Iteration whose weights are used, counted from 0; None if the weights are a mean, or if several weights vote.
    training_path_ : str
        Fast path that evaluated the objective, such as "chains", or "general" if the data have no fast path. The
        general method is also used where a fast path is not available: if scores range too widely, and for the
        mini-batches of some solvers.
    duality_gap_ : float
        Upper bound on the suboptimality of the objective, for margins and for "spa" with ``solver="bundle"``; NaN
        otherwise. The convergence of Frank-Wolfe depends on the smallest penalty. Frank-Wolfe therefore penalises
        weights of features with large values by at least 1e-3 C times the number of nodes of an example, for features
        scaled to unit spread. The gap and ``loss_curve_`` then refer to the objective with this penalty.
    validation_scores_ : ndarray of shape (n_iter_,)
        Fraction of correct labels of the held-out examples at every iteration; empty if there are none.
    voters_ : ndarray of shape (n_voters, n_coef) or None
        Weight vectors that vote at prediction, for ``select="voted"``. ``coef_`` and the other weights are their mean.
    dual_curve_, checks_, inference_calls_curve_ : ndarray
        For margins, at each entry of ``loss_curve_``: the dual value; the number of cutting planes, epochs or
        iterations; the number of inferences for single examples.
    n_inference_calls_ : int
        For margins: total number of inferences.
    n_rounds_, n_assignments_ : int
        For "contrastive": number of rounds of generation, and number of labelings in all sets at the end. For margins
        with missing labels, ``n_rounds_`` is the number of rounds that complete labels. The curves and
        ``duality_gap_`` are then of the best round, whose problem with completed labels is convex. The weights of this
        round are a stationary point of the problem with missing labels.
    n_generated_, round_starts_ : ndarray of int
        For "contrastive": number of new labelings of each round, and the indices of ``loss_curve_`` at which the sets
        grew.
    learning_ : str
        Learning that was used: "exact" or "relaxation" for "likelihood", "pma" or "spa" for "coupled".
    inference_ : str
        Inference that predicts. With ``inference="auto"`` it is "mpm", "trw", "map" or the name of a class. Otherwise
        it is the parameter, or the name of the class of an object.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Factors by which ``predict`` multiplies the marginals, if ``class_weight`` weights whole examples.
    has_cycles_, has_factors_ : bool
        Whether any training example has cycles, and whether any has factors besides nodes and edges.
    exact_is_affordable_ : bool
        Whether exact inference is affordable on all training examples, if an automatic choice depends on it.
    boundary_coef_ : ndarray of shape (2, n_columns) or (2, n_node_types, n_columns), or None
        Weights of the first and of the last nodes of sequences, each in the form of ``intercept_``, with
        ``boundary_weights=True`` of :class:`~sklearn_crf.potentials.PairwiseTables`.
    duration_coef_ : ndarray of shape (n_classes, max_duration) or None
        Scores of the durations of runs of each label, with ``segments`` of
        :class:`~sklearn_crf.potentials.PairwiseTables`; the last score also applies to all longer runs.
    segment_coef_ : ndarray of shape (n_classes, n_run_features) or None
        Weights of the features of runs of each label, with ``features`` of
        :class:`~sklearn_crf.potentials.Segments`.
    fill_values_ : ndarray of shape (n_features_in_,) or None
        Means of the features of training nodes, which replace NaN; None if no feature was missing, unless the learning
        method has ``missing_features="mean"``.
    indicator_features_ : ndarray of int or None
        Features with NaN in training. The last columns of ``coef_`` are weights of indicators of their missing values.
    edge_fill_values_, edge_indicator_features_ : ndarray or None
        The same results for the ``edge_features`` of examples; None without ``edge_features``, or if no feature was
        missing.
    n_edge_types_ : int
        Number of edge types that have weights. Only for sparse edge features.
    factor_coef_ : dict of str to ndarray of shape (n_factor_features, n_listed + 1)
        For each type of factors: weights of its listed joint states, then the weight of all other joint states.
    factor_states_ : dict of str to ndarray of shape (n_listed, arity)
        For each type of factors: the joint states seen in training, as indices into ``classes_``.
    factor_shapes_ : dict of str to ndarray of shape (arity,)
        For each type of factors: number of states of each of its nodes.
    partial_fit_state_ : dict
        State for the next ``partial_fit``, if the last training was by ``partial_fit``.
    n_features_in_ : int
        Number of features of a node.
    lattice_ndim_ : int or None
        Number of lattice axes of the training examples, which X must have at prediction; None for a list of
        ``Example``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; only for data frames.
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state
    _check_fitted = check_fitted_weights

    _parameter_constraints: ClassVar[dict] = {
        "C": [C_INTERVAL],
        "learning": LEARNING_CONSTRAINTS,
        "solver": [StrOptions({"auto", "bundle", *SOLVERS, *MARGIN_SOLVERS}), Solver, PlaneSolver],
        "inference": [str, Inference],
        "cost": ["array-like", ErrorCost, None],
        "weights": [StrOptions({"auto", "all", "seen"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "pairwise": [StrOptions({"auto", "directed", "associative", *PAIRWISE_FORMS}), PairwiseTables],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "missing_label": "no_validation",
        "classes": ["array-like", None],
        "lattice_ndim": [Interval(Integral, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }
    # For each parameter that accepts an object instead of a name: an example of an object, for error messages.
    _objects: ClassVar[dict[str, str]] = {
        "learning": "Relaxation()",
        "solver": "LBFGS()",
        "inference": "LoopyBP()",
        "pairwise": "PairwiseTables()",
    }

    C: float = field(default=1.0, kw_only=False)
    learning: Any = "likelihood"
    solver: Any = "auto"
    inference: Any = "auto"
    cost: Any = None
    weights: str = "all"
    class_weight: Any = None
    pairwise: Any = "auto"
    edge_features: Any = "auto"
    connectivity: Any = 1
    fit_intercept: bool = True
    max_iter: int = 200
    tol: Any = "auto"
    missing_label: Any = None
    classes: Any = None
    lattice_ndim: int | None = None
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return hide_type_in_halving(tags)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also nested parameters of objects, such as ``learning__step_size=0.2``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        estimator
            self
        """
        require_objects(self, params, self._objects)
        return super().set_params(**params)

    def _validate_params(self):
        super()._validate_params()
        choose_labeling_rule(self.inference)
        find_learning_class(self.learning, self.inference)

    # Fits ----------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        node_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Any:
        """Learn the weights.

        Parameters
        ----------
        X : array-like, sparse matrix, list of examples, or Shards
            Plain rows ``(n, F)``, chains ``(n, T, F)``, images ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, a list
            of such examples of any sizes, or a list of :class:`~sklearn_crf.Example`. :class:`~sklearn_crf.Shards`
            hold X, y and weights. A single sequence ``(T, F)`` is read as plain rows.
        y : array-like
            Labels of the nodes, in the shape of X without its last axis, or a list of arrays. None for Shards.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.
        node_weight : sequence of array-like, optional
            For each example, an array in the shape of its labels, which multiplies the loss or the cost of each node.
            Node weights need a loss that is a sum over nodes (such as "pseudolikelihood"), or that has costs of nodes.
        X_val : array-like, sparse matrix, or list of examples, optional
            Validation examples, with which training chooses the weights of one iteration, see ``early_stopping`` of
            :class:`~sklearn_crf.learning.PseudoMarginalTraining`.
        y_val : array-like, optional
            Labels of the validation examples.

        Returns
        -------
        estimator
            self
        """
        interruption = self._fit(X, y, sample_weight, node_weight, X_val, y_val)
        if interruption is not None:
            raise interruption
        return self

    @fits
    def _fit(self, X, y=None, *given):
        """Fit the estimator.

        Return None or, if an interrupt ended training and the weights are kept, the exception.
        """
        parameters = FieldParameters.of(self)
        given, held_out = split_held_out_examples(parameters, X, y, *given)
        data = parameters.read(*given)
        try:
            plan = data.pack(parameters.plan(data))
            record = train(parameters, data, plan, held_out, partial(fit_callbacks, self, X, y))
            self._store(data.encoded, build_fitted_attributes(data, plan, record.coef) | record.fitted())
        finally:
            data.finish()
        return record.interrupted

    @fits
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Continue training with more examples, by one pass of stochastic steps over these examples.

        Each step is an adaptive gradient step for a mini-batch of 8 examples. The objective contains all examples
        passed so far; an example passed twice counts twice. The weights are averages over all steps. These averages
        approximate the weights of ``fit`` on all examples.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels of the nodes.
        classes : array-like of shape (n_classes,), optional
            All classes; required at the first call, unless the parameter ``classes`` is set.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        estimator
            self
        """
        self._store(*partial_fit(FieldParameters.of(self), X, y, classes, sample_weight))
        return self

    def _store(self, encoded, attributes):
        """Set the fitted attributes. This is the last step of a fit, after all steps that can fail."""
        # encoded: the encoded X if this is the first fit, otherwise None
        if encoded is not None:
            record_input(encoded, self)
        self.__dict__.pop("partial_fit_state_", None)
        self.__dict__.update(attributes)
