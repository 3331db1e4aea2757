"""TRWCRF: conditional random fields trained by maximum likelihood or convex relaxations of it."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf.estimators._certificates import CertifiedPredictions
from sklearn_crf.estimators._coupling import (
    Decoding,
    marginal_inference,
    resolve_decoding,
    sampling_inference,
)
from sklearn_crf.estimators._dual_training import train_dual
from sklearn_crf.estimators._field import TrainedField
from sklearn_crf.estimators._formulations import (
    ENTROPIES,
    FORMULATIONS,
    check_labels,
    check_solver,
    check_tree_reweighting,
    choose_formulation,
    cyclic_nodes_together,
    have_cycles,
    have_factors,
    resolve_factor_formulation,
    resolve_formulation,
)
from sklearn_crf.estimators._margin_cost import cost_matrix, is_per_node, with_node_weights
from sklearn_crf.estimators._marginal_predictions import MarginalPredictions
from sklearn_crf.estimators._training import TrainingOptions, train_without_edges
from sklearn_crf.estimators._weights import FactorWeights, forbidden_pairs
from sklearn_crf.estimators._whole_examples import WholeExamples
from sklearn_crf.objectives import JointRisk, SoftmaxMargin, at_temperature


class TRWCRF(CertifiedPredictions, WholeExamples, MarginalPredictions, FactorWeights, TrainedField):
    r"""Conditional random field trained by maximum likelihood, exact or by a convex relaxation.

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
    l1_ratio : float, default=0.0
        Share of the L1 penalty in
        :math:`\tfrac12 (1 - \alpha) \lVert w \rVert^2 + \alpha \lVert w \rVert_1`, which makes weights zero
        (``solver="lbfgs"``, orthant-wise).
    formulation : str, default="auto"
        What stands for :math:`\log Z` in training (with factors besides edges, one of "exact", "relaxation",
        "piecewise", "pseudolikelihood", "loopy"):

        - "exact": itself, on forests, and by junction trees where they fit in memory.
        - "relaxation": the bound of ``entropy``, by message passing that goes on from step to step (recipe 1 of the
          reference).
        - "reparameterization": the same bound as the least over all ways to share the scores out among pieces,
          trees or edges (recipe 3).
        - "joint": the same in one problem over weights and shares, without inner problem (recipe 4; L-BFGS only).
        - "dual": the same in the marginals of every example, by exponentiated gradient steps for one example after the
          other (recipe 5; ``fit_intercept=False``, as a weight without penalty ties the marginals of all together).
        - "edge_probabilities": the bound that is also least over distributions over spanning trees (recipe 2).
        - "piecewise": each node and each edge by itself, without inference.
        - "pseudolikelihood": each node given its true neighbours.
        - "loopy", "mean_field": the Bethe free energy of loopy belief propagation; the lower bound of mean field.
        - "auto": "exact" where all graphs are forests, "relaxation" elsewhere.
    entropy : {"trw", "trivial"}, default="trw"
        Entropy of a relaxation: tree-reweighted, with the probabilities of a few spanning trees that cover every
        edge, exact on forests; or the sum of the entropies of all edges.
    cost : {"hamming"}, list of ndarray, or array-like of shape (n_classes, n_classes), optional
        What a wrong label costs, added to the scores in training (softmax-margin), as in
        :class:`~sklearn_crf.M3NClassifier`. None is the likelihood.
    temperature : float, default=1.0
        T of the distribution :math:`\exp(\mathrm{score}(y) / T) / Z` and of the loss, T times its negative
        log-likelihood; towards zero, with costs, the loss becomes that of max-margin training.
    weights : {"auto", "all", "seen"}, default="auto"
        Whether every feature has a weight for every label, or for those only that occur with it in training; with
        "seen", pairs of labels that no edge joins in training have no weight either. Sparse features only. "auto" is
        "all" for nodes and "seen" for sparse features of edges, which could have a weight for every pair of labels.
    inference : str or Inference, default="auto"
        What predicts. "auto" chooses each node's best state under the marginals of training, "mpm" under those of
        exact or loopy belief propagation, "map" the best labeling (Viterbi on chains); or another name of
        the user guide (:ref:`choosing_inference`), or an :class:`~sklearn_crf.inference.Inference`.
    pairwise : {"auto", "ising", "potts", "symmetric", "full"}, default="full"
        Weights of a pairwise table: see :func:`~sklearn_crf.potentials.pairwise_form`.
    forbidden : array-like of shape (n_pairs, 2), optional
        Pairs of labels that no edge may join, from its first node to its second (on a chain, a label and the next):
        they have probability zero. Edge features must then be one positive number each, as "constant" is.
    edge_features : str or callable, default="constant"
        Features of an edge: "constant" is :math:`[1]`, "difference" is :math:`[1, |x_i - x_j|]`, or a registered
        name or a callable ``f(x_tail, x_head)``, which may return a CSR matrix of many features.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    edge_types : {"tied", "offset"}, default="tied"
        Whether all edges of a lattice share their weights, or those of one offset.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    solver : {"lbfgs", "sgd"}, default="lbfgs"
        L-BFGS, or stochastic gradient steps over mini-batches of examples.
    step_size : float, default=0.1
        Length of the steps of ``solver="sgd"``; the gradient is the mean over labelled nodes.
    step_schedule : {"constant", "annealed"}, default="annealed"
        Whether these steps shrink.
    batch_size : int, default=8
        Examples of a mini-batch.
    max_iter : int, default=200
        Most iterations; epochs for ``solver="sgd"``.
    tol : float, default=1e-4
        Largest entry of the gradient per labelled node at which training stops.
    inner_max_iter : int, default=500
        Most iterations of the inner problem of a relaxation, for one example, in training and where
        ``inference="auto"`` predicts (whose warnings call it ``max_iter``).
    inner_tol : float, default=1e-6
        Its tolerance: change of messages, difference between trees' marginals; take 1e-3 for "edge_probabilities".
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN, which are summed out; None if all nodes are labelled.
        "piecewise", "pseudolikelihood", "joint" and "dual" reject them.
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
        With a leading axis of node types where examples have several. With ``weights="seen"`` a CSR matrix of shape
        (n_classes, n_features), columns of node types side by side, that holds what is not zero.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    edge_coef_ : ndarray of shape (n_edge_types, n_edge_features, n_table_weights)
        Row by row of the table for ``pairwise="full"``: of the label of an edge's first node, then its second's. For
        sparse edge features a CSR matrix of shape (n_table_weights, n_edge_types * n_edge_features), columns of edge
        types side by side, that holds what is not zero.
    loss_curve_ : ndarray of shape (n_iter_,)
        The regularised objective at every iteration.
    error_curve_ : ndarray of shape (n_iter_,)
        Wrong training labels by the marginals of training, weighted; NaN for those without.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node.
    n_iter_ : int
    formulation_ : str
        The one that was used.
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
    >>> X = vectorizer.fit_transform([[{"word": w} for w in sentence] for sentence in sentences])
    >>> tagger = TRWCRF(C=10, weights="seen", inference="map").fit(X, [np.array(t) for t in tags])
    >>> tagger.predict(vectorizer.transform([[{"word": "man"}, {"word": "the"}, {"word": "man"}]]))[0]
    array(['V', 'D', 'N'], dtype='<U1')
    """

    _parameter_constraints: ClassVar[dict] = {
        **TrainedField._parameter_constraints,
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "formulation": [StrOptions(set(FORMULATIONS))],
        "entropy": [StrOptions(set(ENTROPIES))],
        "cost": [StrOptions({"hamming"}), "array-like", None],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "weights": [StrOptions({"auto", "all", "seen"})],
        "forbidden": ["array-like", None],
        "solver": [StrOptions({"lbfgs", "sgd"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "inner_max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        C=1.0,
        *,
        l1_ratio=0.0,
        formulation="auto",
        entropy="trw",
        cost=None,
        temperature=1.0,
        weights="auto",
        inference="auto",
        pairwise="full",
        forbidden=None,
        edge_features="constant",
        connectivity=1,
        edge_types="tied",
        fit_intercept=True,
        solver="lbfgs",
        step_size=0.1,
        step_schedule="annealed",
        batch_size=8,
        max_iter=200,
        tol=1e-4,
        inner_max_iter=500,
        inner_tol=1e-6,
        missing_label=None,
        classes=None,
        lattice_ndim=None,
        warm_start=False,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.C = C
        self.l1_ratio = l1_ratio
        self.formulation = formulation
        self.entropy = entropy
        self.cost = cost
        self.temperature = temperature
        self.weights = weights
        self.inference = inference
        self.pairwise = pairwise
        self.forbidden = forbidden
        self.edge_features = edge_features
        self.connectivity = connectivity
        self.edge_types = edge_types
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.missing_label = missing_label
        self.classes = classes
        self.lattice_ndim = lattice_ndim
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Learn the weights.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            Chains ``(n, T, F)`` or lists of chains ``(T, F)``, dense or CSR; plain rows ``(n, F)``, images
            ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists of such examples of any sizes, or a list of
            :class:`~sklearn_crf.Example`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        TRWCRF
            self
        """
        check_solver(self.formulation, self.solver, self.fit_intercept, self.l1_ratio)
        return self._fit(X, y, sample_weight)

    def _check_labels(self, labels):
        # A bad parameter is named before any work is done.
        self._cost_matrix(labels)

    def _cost_matrix(self, labels):
        return None if self.cost is None else cost_matrix(self.cost, None, labels)

    def _with_node_weights(self, encoded, batches):
        return with_node_weights(self.cost, encoded, batches) if is_per_node(self.cost) else batches

    def _scores(self, potentials, weights, batch):
        return at_temperature(super()._scores(potentials, weights, batch), self.temperature)

    def _batch_nodes(self, encoded):
        # Steps in the dual are for one example each.
        return 1 if self.formulation == "dual" else super()._batch_nodes(encoded)

    def _cyclic_batch_nodes(self, encoded):
        return min(self._batch_nodes(encoded), cyclic_nodes_together(self.formulation, self.entropy))

    def _seen_only(self):
        return self.weights == "seen"

    def _seen_only_on_edges(self):
        return self.weights != "all"

    def _forbidden(self, classes):
        return None if self.forbidden is None else forbidden_pairs(self.forbidden, classes)

    def _resolved(self, name, has_cycles, has_factors):
        resolve = resolve_factor_formulation if has_factors else resolve_formulation
        return resolve(name, self.entropy, has_cycles, max_iter=self.inner_max_iter, tol=self.inner_tol)

    def _decoding(self):
        if self.inference == "auto":
            found = self._resolved(self.formulation_, self.has_cycles_, self.has_factors_)
            return Decoding(found.inference, "mpm")
        return resolve_decoding(self.inference)

    def _marginal_inference(self):
        return marginal_inference(self._decoding())

    def _sampling_inference(self):
        return sampling_inference(self._decoding())

    def _objective(self, batches, labels):
        has_cycles = have_cycles(batches)
        formulation = choose_formulation(self.formulation, has_cycles)
        check_labels(formulation, batches)
        if has_cycles:
            check_tree_reweighting(formulation, self.entropy, batches)
        likelihood = self._resolved(formulation, has_cycles, have_factors(batches)).objective
        if self.cost is None and self.temperature == 1:
            return likelihood
        return SoftmaxMargin(likelihood, self._cost_matrix(labels), self.temperature)

    def _chosen(self, risk):
        has_cycles = have_cycles(risk.batches)
        return {
            "formulation_": choose_formulation(self.formulation, has_cycles),
            "has_cycles_": has_cycles,
            "has_factors_": have_factors(risk.batches),
        }

    def _cold_start(self, risk, options, rng):
        # Loopy belief propagation may have several fixed points, and those near zero lead astray.
        return super()._cold_start(risk, options, rng) if risk.is_exact else train_without_edges(risk, options)

    def _train(self, risk, start, options, rng, on_iteration):
        if self.formulation == "dual":
            return train_dual(risk, start, options, rng, on_iteration)
        if self.formulation != "joint":
            return super()._train(risk, start, options, rng, on_iteration)
        joint, n_weights = JointRisk(risk, self.entropy), len(start)
        start = np.concatenate((start, np.zeros(joint.potentials.n_coef - n_weights)))
        outcome = super()._train(joint, start, options, rng, lambda coef: on_iteration(coef[:n_weights]))
        outcome.coef = outcome.coef[:n_weights]
        return outcome

    def _training_options(self, objective, encoded, potentials):
        return TrainingOptions(
            solver=self.solver,
            C=self.C,
            step_size=self.step_size,
            step_schedule=self.step_schedule,
            batch_size=self.batch_size,
            select="best",
            n_cycles=1,
            max_iter=self.max_iter,
            tol=self.tol,
            keeps_interrupted=self.warm_start,
            verbose=self.verbose,
            l1_ratio=self.l1_ratio,
            remedy="increase inner_max_iter, decrease C, or take formulation='relaxation', which is convex",
        )
