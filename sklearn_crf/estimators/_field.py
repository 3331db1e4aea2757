"""Fields whose scores are linear in features: reading, planning, training and storing of a fit."""

from dataclasses import field
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._fits import fits
from sklearn_crf._numbers import C_INTERVAL
from sklearn_crf._options import options
from sklearn_crf._parameters import is_asked_to_count_classes, require_objects
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks
from sklearn_crf._versions import restore_versioned_state, versioned_state
from sklearn_crf.encoding import record_input
from sklearn_crf.estimators._fitted_field import FieldParameters
from sklearn_crf.estimators._training import fitted_attributes, held_out_examples, partial_fit, train
from sklearn_crf.inference import Inference, labeling_rule
from sklearn_crf.learning import (
    LEARNING_CONSTRAINTS,
    MARGIN_SOLVERS,
    SOLVERS,
    PlaneSolver,
    Solver,
    kind_of_learning,
)
from sklearn_crf.potentials import PAIRWISE_FORMS, PairwiseTables


@options
class TrainableField(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    r"""Fits of a field whose scores are linear in features on a graph.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty in :math:`\tfrac12 \lVert w \rVert^2 + C \sum_i \ell_i`; intercepts are free,
        but for margins, which penalise them as those of centred features. Learning by "spa", "mma" and "cd" has no
        penalty, or with ``solver="bundle"`` one on the distance to the start. ``C = 1 / (2 c2)`` in terms of CRFsuite.
    learning : str, Learning or Objective, default="likelihood"
        How the weights are found. Likelihoods:

        - "likelihood": maximum likelihood, exact where that is affordable on all examples, as on chains and narrow
          graphs, and by "relaxation" elsewhere; "exact" is exact everywhere, by junction trees.
        - "coupled": by the inference that predicts (Kumar et al. 2005): "pma" where that gives marginals, "spa" where
          it gives best labelings.
        - "pma": the marginals of the inference that predicts (pseudo-marginal approximation); "spa": its best labeling
          (saddle point approximation); "mma": each node's likeliest state (maximum marginal approximation); "cd":
          Gibbs sweeps from the truth (contrastive divergence).
        - "relaxation": a convex upper bound on the log-partition, by messages that go on from step to step (recipe 1
          of Jancsary 2012); "edge_probabilities": the least such bound over distributions of spanning trees (recipe
          2); "reparameterization": the bound as the least over all ways to share scores out among trees (recipe 3);
          "joint_relaxation": the same in one problem over weights and shares (recipe 4); "dual_relaxation": the same in
          the marginals of one example after the other (recipe 5, with ``fit_intercept=False``).
        - "piecewise": each node and each edge by itself; "shared_pieces": each edge by itself with a share of the
          scores of its nodes; "pseudolikelihood" or "pl": each node given its true neighbours: without inference.
        - "loopy", "mean_field": the Bethe free energy of belief propagation; the lower bound of mean field.
        - "truncated": the loss of the marginals after ten sweeps, which also predict (Domke 2013).

        Margins, whose scores are no log-probabilities:

        - "max_margin": the maximum itself, by whatever finds best labelings.
        - "relaxed_margin": the maximum over the local polytope, whose fractional solutions take part (M3N recipe 2).
        - "smoothed_margin": the same plus a temperature times an entropy, a smooth problem (recipe 1);
          "reparameterized_margin" and "joint_margin": the same over shares of scores (recipes 3 and 4); "dual_margin":
          the relaxed margin in the marginals of one example after the other (recipe 5).

        And "contrastive": the truth is to be probable among sets of labelings, which grow (Vickrey 2010). Or an object
        of :mod:`sklearn_crf.learning`, whose options are reachable as ``learning__cost`` and so on; or an
        :class:`~sklearn_crf.objectives.Objective` of your own.
    solver : str, Solver or PlaneSolver, default="auto"
        What moves the weights. Smooth losses: "lbfgs"; "gradient", steps along the gradient; "sgd", stochastic gradient
        steps over mini-batches of examples. "auto" is L-BFGS where the loss has a value, else gradient steps; with
        "spa", "mma" and "cd" the steps that their options describe, and "spa" has "bundle", which proves how far it is
        from the optimum. Margins: "cutting_plane", which keeps the worst labelings of each example (n-slack);
        "frank_wolfe", which keeps one combination of them, in less memory, quicker to a rough solution and slower to an
        accurate one; "bmrm", the bundle method, one plane for each pass over all examples (1-slack), deterministic;
        "one_slack", the same with planes of known labelings as long as those will do; "subgradient", the steps of
        Pegasos; "auto" is one of the bundle methods up to 1,000 weights and without edges, otherwise Frank-Wolfe.
        Margins at a temperature have "lbfgs" alone. Or an object of :mod:`sklearn_crf.learning`, whose options are
        reachable as ``solver__l1_ratio`` and so on.
    inference : str or Inference, default="auto"
        What predicts, and learns where the loss asks for marginals or labelings. "auto" goes with ``learning``: each
        node's best state under its marginals, exact ones where they are affordable and otherwise those of training;
        with margins the best labeling. "mpm" is each node's best state, "map" the best labeling (Viterbi on chains,
        minimum cuts for two classes); or another name of the user guide (:ref:`choosing_inference`); or an
        :class:`~sklearn_crf.inference.Inference`, cloned, whose options are reachable as ``inference__max_iter``.
    cost : array-like of shape (n_classes, n_classes), optional
        ``cost[a, b]`` of predicting class a where b is true, in the order of ``classes`` if that is given, else of
        ``classes_``. Labels of least expected cost under the marginals are predicted (Jancsary 2012, Eq. 42 to 47);
        margins are learned under it. None is one for every error.
    weights : {"auto", "all", "seen"}, default="all"
        Whether every feature has a weight for every label, or for those only that occur with it in training; with
        "seen", pairs of labels that no edge joins in training have no weight either. Sparse features only. "auto" has
        those that occur for sparse features of edges, and for features of nodes where all were more than 100,000
        weights; not with two classes, plain rows, unlabelled nodes, :class:`~sklearn_crf.Shards` or ``partial_fit``.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, "balanced" in inverse proportion to the weighted numbers of their nodes. Where the loss is a
        sum over nodes ("pseudolikelihood", "piecewise") or has a cost of errors they are factors of its nodes, in
        margins of their costs. Every other learning weighs an example by the mean over its nodes, and ``predict``
        weighs marginals: see :ref:`weights`.
    pairwise : str or PairwiseTables, default="auto"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction. "auto"
        is "full" on chains, and elsewhere "ising" for two classes and "potts" for more.
        "associative" is "auto" with weights that are not negative, for margins: equal labels are never worse and
        minimum cuts stay exact throughout training; edge features must not be negative either.
    edge_features : str or callable, default="auto"
        Features of an edge: "constant" is :math:`[1]`, "difference" is :math:`[1, |x_i - x_j|]`, or a registered
        name or a callable ``f(x_tail, x_head)``, which may return a CSR matrix of many features. "auto" is
        "constant" on chains, for sparse features and for linear operators, and elsewhere "difference". With
        ``pairwise="full"`` it is "difference" only on images and volumes of two classes and several features. The
        penalty counts the weights of differences in units of the root mean square of each over the training edges, so
        that it means the same for any units of X; with "symmetric" and "full" of at least 1, as for nodes.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    max_iter : int, default=200
        Most iterations; epochs where steps are made for mini-batches, planes of the bundle method, iterations of the
        last round of "contrastive".
    tol : float or "auto", default="auto"
        Largest entry of the gradient per labelled node at which training stops, 1e-4 with "auto". Where it is loose,
        training goes on until the last quarter of the iterations lowered the objective by at most 1 %. Margins stop at
        a duality gap of this share of the objective, 0.01 with "auto", and 0.5 with Frank-Wolfe, whose bound is the
        last to get better: by then its weights label about as well as later ones, but ``converged_`` is False unless
        the gap is 0.01.
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN; None if all nodes are labelled. Likelihoods sum over them,
        "spa", "mma" and "cd" complete them, and so do margins, in rounds of training; "pseudolikelihood" and
        "contrastive" leave out unlabelled nodes and their neighbours.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted. Of the solvers of margins
        only the bundle method can; the sets of "contrastive" are built anew.
    random_state : int, RandomState instance or None, default=None
        For random starts, the order of mini-batches, and the labelings that learning draws. With None those labelings
        are the same in every fit: defaults give the same result twice.
    n_jobs : int, default=None
        Threads over examples, then inside large ones. Results do not depend on it.
    verbose : int, default=0
        Whether progress is shown.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features), or CSR matrix
        With a leading axis of node types where examples have several. Where features have weights for labels that
        occur with them alone, a CSR matrix of shape (n_classes, n_features), columns of node types side by side, of
        the nonzero weights.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    edge_coef_ : ndarray of shape (n_edge_types, n_edge_features, n_table_weights)
        Row by row of the table for ``pairwise="full"``: of the label of an edge's first node, then its second's. For
        sparse edge features a CSR matrix of shape (n_table_weights, n_edge_types * n_edge_features), columns of edge
        types side by side, of the nonzero weights.
    loss_curve_ : ndarray of shape (n_iter_,)
        The regularised objective at every iteration; NaN for learning without one (MMA, CD). Of margins, at every plane
        of the bundle method, or the best of those worked out at the epochs ``checks_``.
    error_curve_ : ndarray of shape (n_iter_,)
        Wrong training labels by the inference that learns, weighted; NaN where none runs. Not for margins.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node, by weights for features as X has them. Not for margins.
    coef_path_, gradient_path_ : ndarray of shape (n_iter_, n_coef)
        All weights and gradients, flat, for models of few weights; else empty. Not for margins.
    n_iter_ : int
        Iterations, of all rounds of "contrastive".
    converged_ : bool
        Whether training came to its own end, with an inference that did; of margins, at a duality gap that is proven;
        False where examples held out ended it.
    stop_reason_ : str
        Why it ended.
    best_iter_ : int or None
        The iteration whose weights are kept, from 0; None where they are a mean or several vote.
    training_path_ : str
        The fast path that evaluated the objective, such as "chains"; "general" where none is for the data. The general
        way evaluates where a path declines: at scores that range too widely, and for the mini-batches of some solvers.
    duality_gap_ : float
        Upper bound on the suboptimality of the objective, of margins and of "spa" with ``solver="bundle"``; NaN
        elsewhere. Frank-Wolfe, whose bound falls at the speed of the least penalty, gives weights of features in large
        units at least 1e-3 C times the nodes of an example, counted in units of spread one: the gap and ``loss_curve_``
        are then of the objective with that penalty.
    validation_scores_ : ndarray of shape (n_iter_,)
        Share of right labels among the examples held out, at every iteration; empty where none were.
    voters_ : ndarray of shape (n_voters, n_coef) or None
        Weights that vote at prediction, for ``select="voted"``; ``coef_`` and the others are then their mean.
    dual_curve_, checks_, inference_calls_curve_ : ndarray
        Of margins: the dual value, the planes, epochs or iterations made, and the inferences for one example asked for,
        at the moments of ``loss_curve_``.
    n_inference_calls_ : int
        Of margins: inferences in all.
    n_rounds_, n_assignments_ : int
        Of "contrastive": rounds of generation, and labelings in all sets at the end. Of margins with missing labels
        ``n_rounds_`` is the number of rounds of completing these; curves and ``duality_gap_`` are then of the best
        round, whose completed problem is convex, while the whole one has a stationary point there.
    n_generated_, round_starts_ : ndarray of int
        Of "contrastive": labelings that were new in each round, and where in ``loss_curve_`` the sets have grown.
    learning_ : str
        The learning that was used: "exact" or "relaxation" for "likelihood", "pma" or "spa" for "coupled".
    inference_ : str
        The inference that predicts with ``inference="auto"``: "mpm", "trw", "map" or the class of another. Otherwise
        the parameter, or the class of an object.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Factors of the marginals by which ``predict`` decides, where ``class_weight`` weighs whole examples.
    has_cycles_, has_factors_ : bool
        Whether a training example has a cycle, and factors besides nodes and edges.
    exact_is_affordable_ : bool
        Whether exact inference is affordable on all training examples, where a choice depends on it.
    boundary_coef_ : ndarray of shape (2, n_columns) or (2, n_node_types, n_columns), or None
        Weights of the first and of the last nodes of sequences, ``boundary_weights=True`` of
        :class:`~sklearn_crf.potentials.PairwiseTables`, in the form of ``intercept_``.
    n_edge_types_ : int
        Edge types that have weights. Only for sparse edge features.
    factor_coef_ : dict of str to ndarray of shape (n_factor_features, n_listed + 1)
        Weights of each type of factors, of its listed joint states and, last, of all others.
    factor_states_ : dict of str to ndarray of shape (n_listed, arity)
        The listed joint states of each type, those seen in training, as columns of ``classes_``.
    factor_shapes_ : dict of str to ndarray of shape (arity,)
        Numbers of states of the nodes of each type.
    partial_fit_state_ : dict
        State for the next ``partial_fit``, if that was the last call.
    n_features_in_ : int
        Features of a node.
    lattice_ndim_ : int or None
        Lattice axes of the training examples, which prediction requires; None for a list of ``Example``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only for data frames.
    """

    __getstate__, __setstate__ = versioned_state, restore_versioned_state

    _parameter_constraints: ClassVar[dict] = {
        "C": [C_INTERVAL],
        "learning": LEARNING_CONSTRAINTS,
        "solver": [StrOptions({"auto", "bundle", *SOLVERS, *MARGIN_SOLVERS}), Solver, PlaneSolver],
        "inference": [str, Inference],
        "cost": ["array-like", None],
        "weights": [StrOptions({"auto", "all", "seen"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "pairwise": [StrOptions({"auto", "associative", *PAIRWISE_FORMS}), PairwiseTables],
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
    # Objects that parameters take in place of a name, for errors.
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
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        if is_asked_to_count_classes():
            tags.estimator_type = None
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of an object that is one: ``learning__step_size=0.2``.

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
        labeling_rule(self.inference)
        kind_of_learning(self.learning, self.inference)

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
            Plain rows ``(n, F)``, as which one sequence ``(T, F)`` is read too; chains ``(n, T, F)``, images
            ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists of such examples of any sizes, or a list of
            :class:`~sklearn_crf.Example`. Or all of the training data as :class:`~sklearn_crf.Shards`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays. None for Shards.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.
        node_weight : sequence of array-like, optional
            For each example an array of the shape of its labels: factors of the loss of each node, or of its cost. Only
            where the loss is a sum over nodes (pseudolikelihood, pieces of nodes) or has a cost of nodes.
        X_val : array-like, sparse matrix, or list of examples, optional
            Examples that choose among the iterates of training, see ``early_stopping`` of
            :class:`~sklearn_crf.learning.PseudoMarginalTraining`.
        y_val : array-like, optional
            Their labels.

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
    def _fit(self, X, y, *given):
        """Read, plan, train and store; return what interrupted training if the weights so far are kept, else None."""
        parameters = FieldParameters.of(self)
        given, held_out = held_out_examples(parameters, X, y, *given)
        data = parameters.read(*given)
        try:
            plan = data.pack(parameters.plan(data))
            record = train(parameters, data, plan, held_out, partial(fit_callbacks, self, X, y))
            self._store(data.encoded, fitted_attributes(data, plan, record.coef) | record.fitted())
        finally:
            data.finish()
        return record.interrupted

    @fits
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Continue training with more examples, by one pass of stochastic steps over them.

        The weights are averages over all steps so far of adaptive gradient steps for mini-batches of 8 examples, down
        the objective of all examples so far: an example passed twice counts twice. They approximate those of ``fit``.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels of the nodes.
        classes : array-like of shape (n_classes,), optional
            All classes, at the first call, unless the parameter of that name has them.
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
        """Set the fitted attributes, once everything that can fail has happened."""
        # encoded: the input that a first fit has seen
        if encoded is not None:
            record_input(encoded, self)
        self.__dict__.pop("partial_fit_state_", None)
        self.__dict__.update(attributes)
