"""TRWCRF: conditional random fields trained by maximum likelihood."""

from numbers import Integral, Real
from typing import ClassVar

from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf.estimators._coupling import INFERENCES, marginal_inference, resolve_decoding, sampling_inference
from sklearn_crf.estimators._formulations import FORMULATIONS, resolve_formulation
from sklearn_crf.estimators._marginal_predictions import MarginalPredictions
from sklearn_crf.estimators._trained_field import TrainedField
from sklearn_crf.estimators._training import TrainingOptions
from sklearn_crf.inference import Inference
from sklearn_crf.potentials import PAIRWISE_FORMS


class TRWCRF(MarginalPredictions, TrainedField):
    r"""Conditional random field trained by maximum likelihood.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \bigl( \log Z(\theta_i) - \mathrm{score}(y_i; \theta_i) \bigr),
        \qquad \theta_i = B(x_i) w,

    with the exact :math:`\log Z` on chains, trees and graphs of low tree width, which makes the linear-chain
    conditional random field of sequence taggers, and with approximations of it elsewhere. Node features may be sparse,
    with millions of columns, and weights may be restricted to pairs of a feature and a label seen in training.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty on weights; intercepts are free. ``C = 1 / (2 c2)`` in terms of CRFsuite.
    formulation : {"auto", "exact", "loopy", "mean_field", "pseudolikelihood"}, default="auto"
        What stands for :math:`\log Z` in training: itself ("exact": forests, and by junction trees where they fit in
        memory), the Bethe free energy of loopy belief propagation, the lower bound of mean field, or each node given
        its true neighbours. "auto" is "exact" where all graphs are forests and "loopy" otherwise.
    weights : {"all", "seen"}, default="all"
        Whether every feature has a weight for every label, or for those only that occur with it in training; with
        "seen", pairs of labels that no edge joins in training have no weight either. Sparse features only.
    inference : str or Inference, default="auto"
        What predicts. "auto" and "mpm" choose each node's best state under its marginals, "map" the best labeling
        (Viterbi on chains); or another name of ``INFERENCES``, or an :class:`~sklearn_crf.inference.Inference`.
    pairwise : {"auto", "ising", "potts", "symmetric", "full"}, default="full"
        Weights of a pairwise table: see :func:`~sklearn_crf.potentials.pairwise_form`.
    edge_features : str or callable, default="constant"
        Features of an edge: "constant" is :math:`[1]`, "difference" is :math:`[1, |x_i - x_j|]`, or a registered
        name or a callable ``f(x_tail, x_head)``.
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
    missing_label : object, default=None
        Value in y of unlabelled nodes, such as -1 or NaN, which are summed out; None if all nodes are labelled.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted.
    random_state : int, RandomState instance or None, default=None
        For the order of mini-batches.
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
        Row by row of the table for ``pairwise="full"``: of the label of an edge's first node, then its second's.
    loss_curve_ : ndarray of shape (n_iter_,)
        The regularised objective at every iteration.
    error_curve_ : ndarray of shape (n_iter_,)
        Wrong training labels by the marginals of training, weighted; NaN for "pseudolikelihood".
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per labelled node.
    n_iter_ : int
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
        "C": [Interval(Real, 0, None, closed="neither")],
        "formulation": [StrOptions(set(FORMULATIONS))],
        "weights": [StrOptions({"all", "seen"})],
        "inference": [StrOptions(set(INFERENCES)), Inference],
        "pairwise": [StrOptions({"auto", *PAIRWISE_FORMS})],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "edge_types": [StrOptions({"tied", "offset"})],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"lbfgs", "sgd"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "missing_label": "no_validation",
        "classes": ["array-like", None],
        "lattice_ndim": [Interval(Integral, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        C=1.0,
        *,
        formulation="auto",
        weights="all",
        inference="auto",
        pairwise="full",
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
        self.weights = weights
        self.inference = inference
        self.pairwise = pairwise
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
        return self._fit(X, y, sample_weight)

    def _seen_only(self):
        return self.weights == "seen"

    def _decoding(self):
        return resolve_decoding(self.inference)

    def _marginal_inference(self):
        return marginal_inference(self._decoding())

    def _sampling_inference(self):
        return sampling_inference(self._decoding())

    def _objective(self, batches, labels):
        return resolve_formulation(self.formulation, [batch.example.graph for batch in batches])

    def _training_options(self, objective, encoded, potentials):
        return TrainingOptions(
            solver=self.solver,
            C=self.C,
            step_size=self.step_size,
            step_schedule=self.step_schedule,
            batch_size=self.batch_size,
            select="last",
            n_cycles=1,
            max_iter=self.max_iter,
            tol=self.tol,
            keeps_interrupted=self.warm_start,
            verbose=self.verbose,
        )
