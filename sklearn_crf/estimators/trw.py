"""TRWCRF: conditional random fields trained by maximum likelihood or convex relaxations of it."""

from typing import ClassVar

from sklearn.utils._param_validation import StrOptions

from sklearn_crf.encoding import in_class_order
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.inference import AutoMarginals, NamedInference, resolve_inference
from sklearn_crf.learning import (
    FORMULATION_CONSTRAINTS,
    Formulation,
    PenalisedRisk,
    Solver,
    are_narrow,
    cost_matrix,
    resolve_formulation,
    resolve_solver,
)
from sklearn_crf.learning._few_labels import risk_of_few_labels
from sklearn_crf.objectives import SoftmaxMargin

# Nodes that training looks at by default, of an example with few labels: an inner problem takes longer than for PMA.
_MAX_NODES = 10_000


class TRWCRF(FieldClassifier):
    r"""Conditional random field trained by maximum likelihood, exact or by a convex relaxation.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \bigl( \log Z(\theta_i) - \mathrm{score}(y_i; \theta_i) \bigr),
        \qquad \theta_i = B(x_i) w,

    with the exact :math:`\log Z` on chains, trees and graphs of low tree width, which makes the linear-chain
    conditional random field of sequence taggers, and elsewhere with a convex upper bound on it,

    .. math:: \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau),

    or another approximation. Node features may be sparse, with millions of columns, and weights may be restricted to
    pairs of a feature and a label seen in training.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty on weights; intercepts are free. ``C = 1 / (2 c2)`` in terms of CRFsuite.
    formulation : str, Formulation or Objective, default="auto"
        Replacement of :math:`\log Z` in training (with factors besides edges, one of "exact", "relaxation",
        "piecewise", "pseudolikelihood", "loopy"):

        - "exact": itself, on forests, and by junction trees where they fit in memory.
        - "relaxation": a convex upper bound, by message passing that goes on from step to step (recipe 1 of the
          reference).
        - "reparameterization": the same bound as the least over all ways to share the scores out among pieces,
          trees or edges (recipe 3).
        - "joint": the same in one problem over weights and shares, without inner problem (recipe 4; L-BFGS only).
        - "dual": the same in the marginals of every example, by exponentiated gradient steps for one example after the
          other (recipe 5; ``fit_intercept=False``, as a weight without penalty ties the marginals of all together).
        - "edge_probabilities": the bound that is also least over distributions over spanning trees (recipe 2).
        - "piecewise": each node and each edge by itself, without inference.
        - "shared_pieces": each edge by itself, with an even share of the scores of its nodes, without inference.
        - "pseudolikelihood": each node given its true neighbours.
        - "loopy", "mean_field": the Bethe free energy of loopy belief propagation; the lower bound of mean field.
        - "auto": "exact" where that is affordable on all examples, as on forests and narrow graphs
          (:func:`~sklearn_crf.inference.exact_inference`, ``budget="step"``), "relaxation" elsewhere. Images
          of more than 10,000 pixels of which few are labelled are then learned from at a coarser scale, and other such
          graphs near labels, as by :class:`~sklearn_crf.learning.PMA`.

        Or one of :mod:`sklearn_crf.learning`, such as :class:`~sklearn_crf.learning.Relaxation`, whose options
        (entropy, accuracy of the inner problem, costs of errors, temperature) are reachable as
        ``formulation__entropy`` and so on; or an :class:`~sklearn_crf.objectives.Objective` of your own.
    solver : {"lbfgs", "sgd"} or Solver, default="lbfgs"
        L-BFGS, or stochastic gradient steps over mini-batches of examples; or
        :class:`~sklearn_crf.learning.LBFGS`, which can have an L1 penalty (``solver__l1_ratio``), or
        :class:`~sklearn_crf.learning.SGD`.
    inference : str or Inference, default="auto"
        What predicts. "auto" chooses each node's best state under the marginals of training, "mpm" under those of
        exact or loopy belief propagation, "map" the best labeling (Viterbi on chains); or another name of
        the user guide (:ref:`choosing_inference`), or an :class:`~sklearn_crf.inference.Inference`.
    weights : {"auto", "all", "seen"}, default="auto"
        Whether every feature has a weight for every label, or for those only that occur with it in training; with
        "seen", pairs of labels that no edge joins in training have no weight either. Sparse features only. "auto" has
        those that occur for sparse features of edges, and for features of nodes where all were more than 100,000
        weights; not with two classes, plain rows, unlabelled nodes, :class:`~sklearn_crf.Shards` or ``partial_fit``.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, "balanced" in inverse proportion to the weighted numbers of their nodes. With
        ``formulation="pseudolikelihood"`` or ``"piecewise"`` they are factors of the losses of nodes, with a ``cost``
        of its errors. Every other formulation weighs an example by the mean over its nodes, and ``predict`` weighs
        marginals: see :ref:`weights`.
    pairwise : str or PairwiseTables, default="full"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction.
    edge_features : str or callable, default="auto"
        Features of an edge: "constant" is :math:`[1]`, "difference" is :math:`[1, |x_i - x_j|]`, or a registered
        name or a callable ``f(x_tail, x_head)``, which may return a CSR matrix of many features. "auto" is
        "difference" on images and volumes of two classes and several features, and "constant" elsewhere: tables of
        more classes would have too many weights, and differences of a single feature repeat the noise of the nodes.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    max_iter : int, default=200
        Most iterations; epochs for ``solver="sgd"``.
    tol : float, default=1e-4
        Largest entry of the gradient per labelled node at which training stops.
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN, which are summed out; None if all nodes are labelled.
        "piecewise", "shared_pieces", "pseudolikelihood", "joint" and "dual" reject them.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted.
    random_state : int, RandomState instance or None, default=None
        For the order of mini-batches, and of the steps of "dual".
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
        The regularised objective at every iteration.
    error_curve_ : ndarray of shape (n_iter_,)
        Wrong training labels by the marginals of training, weighted; NaN for those without.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node, by weights for features as X has them.
    n_iter_ : int
    converged_ : bool
        Whether training came to its own end, with an inference that did.
    stop_reason_ : str
        Why it ended.
    best_iter_ : int or None
        The iteration whose weights are kept, from 0; None where they are a mean or several vote.
    formulation_ : str
        The one that was used.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Factors of the marginals by which ``predict`` decides, where ``class_weight`` weighs whole examples.
    has_cycles_ : bool
        Whether a training example has a cycle.
    n_edge_types_ : int
        Edge types that have weights. Only for sparse edge features.
    has_factors_ : bool
        Whether one has factors besides nodes and edges.
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

    References
    ----------
    J. Lafferty, A. McCallum, F. Pereira. Conditional Random Fields: Probabilistic Models for Segmenting and Labeling
    Sequence Data. ICML 2001.

    J. Jancsary. Approximate Discriminative Training of Graphical Models. PhD thesis, TU Wien, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.preprocessing import SequenceVectorizer
    >>> sentences = [["the", "old", "man"], ["old", "boats"], ["man", "the", "boats"]]
    >>> tags = [["D", "A", "N"], ["A", "N"], ["V", "D", "N"]]
    >>> vectorizer = SequenceVectorizer()
    >>> X = vectorizer.fit_transform(
    ...     [[{"word": w} for w in sentence] for sentence in sentences]
    ... )
    >>> tagger = TRWCRF(C=10, weights="seen", inference="map").fit(
    ...     X, [np.array(t) for t in tags]
    ... )
    >>> tagger.predict(
    ...     vectorizer.transform([[{"word": "man"}, {"word": "the"}, {"word": "man"}]])
    ... )[0]
    array(['V', 'D', 'N'], dtype='<U1')
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldClassifier._parameter_constraints,
        "formulation": FORMULATION_CONSTRAINTS,
        "solver": [StrOptions({"lbfgs", "sgd"}), Solver],
        "weights": [StrOptions({"auto", "all", "seen"})],
    }
    _objects: ClassVar[dict] = FieldClassifier._objects | {"formulation": "Relaxation()", "solver": "LBFGS()"}
    _takes_factors = True
    _takes_sparse_edges = True
    _takes_parts = True

    def __init__(
        self,
        C=1.0,
        *,
        formulation="auto",
        solver="lbfgs",
        inference="auto",
        weights="auto",
        class_weight=None,
        pairwise="full",
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
        self.formulation = formulation
        self.solver = solver
        self.inference = inference
        self.weights = weights
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

    # Training ------------------------------------------------------------------------------------------------------

    def _formulation(self, is_narrow):
        return resolve_formulation(self.formulation, is_narrow, self.tol)

    def _automatic_edge_features(self, encoded, n_classes):
        suits = (encoded.lattice_ndim or 0) > 1 and encoded.n_features > 1 and n_classes == 2
        return "difference" if suits else "constant"

    def _check_parameters(self):
        formulation = self._formulation(False)
        formulation.check(resolve_solver(self.solver), self.fit_intercept)

    def _weighs_nodes(self):
        formulation = self._formulation(False)
        return formulation.cost is not None or formulation.likelihood(False, False).weighs_nodes

    def _check_labels(self, labels):
        # A bad parameter is named before any work is done.
        self._cost_matrix(self._formulation(False), labels)

    def _cost_matrix(self, formulation, labels):
        cost = in_class_order(formulation.cost, self.classes)
        return None if cost is None else cost_matrix(cost, None, labels)

    def _packing(self, encoded):
        formulation = self._formulation(False)
        if formulation.name == "dual" or resolve_solver(self.solver).is_stochastic:
            # Steps are for mini-batches of examples, or for one example each.
            return {"max_nodes": 1}
        return {
            "max_nodes": 8192 if encoded.is_sparse else 4096,
            "max_cyclic_nodes": formulation.cyclic_nodes(),
            "max_factor_nodes": formulation.factor_nodes(),
        }

    def _weight_layout(self, classes, lattice_ndim):
        layout = super()._weight_layout(classes, lattice_ndim)
        return layout._replace(
            seen_only={"all": False, "seen": True, "auto": None}[self.weights],
            seen_tables=self.weights == "seen",
            seen_only_on_edges=self.weights != "all",
        )

    @property
    def _is_automatic(self):
        return isinstance(self.formulation, str) and self.formulation == "auto"

    def _are_narrow(self, batches, potentials):
        return self._is_automatic and are_narrow(batches, potentials)

    def _check_batches(self, batches, graphs):
        self._formulation(graphs.are_narrow).check_batches(batches)

    def _objective(self, examples, potentials):
        graphs = examples.graphs
        formulation = self._formulation(graphs.are_narrow)
        likelihood = formulation.likelihood(graphs.have_cycles, graphs.have_factors)
        if formulation.cost is None and formulation.temperature == 1:
            return likelihood
        return SoftmaxMargin(likelihood, self._cost_matrix(formulation, examples.labels), formulation.temperature)

    def _train(self, risk, examples, make_start, run):
        formulation = self._formulation(examples.graphs.are_narrow)
        if self._is_automatic and formulation.name != "exact":
            risk = risk_of_few_labels(risk, max_nodes=_MAX_NODES)
        problem = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
        # Nodes alone are quick to learn, and leave less to the passes that need inference.
        nodes_first = examples.graphs.have_cycles and not examples.graphs.have_factors
        start = make_start(formulation.init_with_cycles if nodes_first else "auto")
        return formulation.train(problem, start, run, resolve_solver(self.solver))

    def _chosen(self, graphs):
        return {
            "formulation_": self._formulation(graphs.are_narrow).name,
            "has_cycles_": graphs.have_cycles,
            "has_factors_": graphs.have_factors,
        }

    # Prediction ----------------------------------------------------------------------------------------------------

    def _decoding(self):
        if not isinstance(self.inference, str) or self.inference != "auto":
            return resolve_inference(self.inference)
        if self._is_automatic and self.formulation_ == "exact":
            # Examples to predict may be wider than those of training.
            return NamedInference(AutoMarginals(budget="fast"), "mpm")
        formulation = self._formulation(self.formulation_ == "exact")
        return NamedInference(formulation.inference(self.has_cycles_, self.has_factors_), "mpm")

    @property
    def _learned_temperature(self):
        # Not of a resolved copy, which takes as long as a small example: named ones have temperature one.
        return self.formulation.temperature if isinstance(self.formulation, Formulation) else 1.0
