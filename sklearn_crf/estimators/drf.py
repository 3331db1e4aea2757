"""DRFClassifier: learning coupled to inference."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array

from sklearn_crf.estimators._coupling import (
    LEARNING,
    marginal_inference,
    resolve_decoding,
    resolve_objective,
    sampling_inference,
)
from sklearn_crf.estimators._field import TrainedField
from sklearn_crf.estimators._marginal_predictions import MarginalPredictions
from sklearn_crf.estimators._training import TrainingOptions, train_without_edges


class DRFClassifier(MarginalPredictions, TrainedField):
    r"""Discriminative random field whose learning is coupled to its inference.

    .. math::
        p(y \mid x) \propto \exp \Bigl( \sum_s w_{y_s}^\top x_s + b_{y_s}
            + \sum_{(i, j)} v_{y_i y_j}^\top \mu_{ij}(x) \Bigr)

    Parameters are learned by replacing the expectations of the likelihood's gradient with what an inference
    algorithm yields, and predicted with by the same algorithm: pseudo-marginals for marginal decoding (PMA), the
    best labeling for MAP decoding (SPA). A field without edges is exactly logistic regression.

    Each edge is counted once. Kumar et al. count it from both its ends, so their :math:`v` is half of
    ``edge_coef_``. For two classes the unary score is :math:`\pm (w^\top x + b) / 2`, as in their Eq. (3).

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty in :math:`\tfrac12 \lVert w \rVert^2 + C \sum_i \ell_i`; intercepts are
        free. It applies to ``learning`` "pma", "pl" and "likelihood"; SPA, MMA and CD have no penalty.
    learning : {"auto", "pma", "spa", "mma", "pl", "cd", "likelihood"}, default="auto"
        What replaces the expectations: pseudo-marginals ("pma"), the best labeling ("spa", saddle point
        approximation), the labeling of largest marginals ("mma", maximum marginal approximation), each node given
        its true neighbours ("pl", pseudolikelihood), ``cd_steps`` Gibbs sweeps from the truth ("cd"), or exact
        expectations ("likelihood": forests, or an inference that is exact anywhere). "auto" matches ``inference``:
        "pma" for marginal decoding, "spa" for MAP.
    inference : str or Inference, default="auto"
        What predicts, and learns where the rule can use it. "auto" and "mpm" choose each node's best state
        under its marginals, exact on forests and by loopy belief propagation otherwise; "map" the best labeling
        (max-product on forests, min-cut for two classes, alpha-expansion or max-product for more); "icm"; or
        another name of the user guide (:ref:`choosing_inference`); or an :class:`~sklearn_crf.inference.Inference`,
        cloned, whose options are reachable as ``inference__max_iter`` and so on.
    pairwise : {"auto", "ising", "potts", "symmetric", "full"}, default="auto"
        Weights of a pairwise table: see :func:`~sklearn_crf.potentials.pairwise_form`.
    edge_features : str or callable, default="difference"
        Features of an edge: "difference" is :math:`[1, |x_i - x_j|]`, "constant" is :math:`[1]` (a conventional
        Markov random field), or a registered name or a callable ``f(x_tail, x_head)``.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    edge_types : {"tied", "offset"}, default="tied"
        Whether all edges of a lattice share their weights, or those of one offset.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    solver : {"auto", "lbfgs", "gradient", "sgd"}, default="auto"
        L-BFGS, gradient steps over all examples, or over mini-batches of them. "auto" is L-BFGS where there is a
        smooth loss ("pma", "pl", "likelihood"), gradient steps elsewhere.
    step_size : float, default=0.1
        Length of gradient steps; the gradient is the mean over labelled nodes. Pairwise weights take steps four times
        as long on lattices of four neighbours, as those of Kumar et al. are, and shorter ones on denser graphs.
    step_schedule : {"constant", "annealed"}, default="constant"
        Whether steps shrink. Annealing makes SPA and MMA settle, at the price of a bias.
    batch_size : int, default=8
        Examples of a mini-batch (``solver="sgd"``).
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="auto"
        Where training starts: zero, normal random numbers times ``init_scale``, or the weights of the field without
        edges, fitted first by logistic regression. "auto" is zero for convex problems, which forget their start, and
        "independent" for gradient steps and for approximate marginals, which may be led astray from zero.
    init_scale : float, default=1.0
        Standard deviation of a random start.
    select : {"best", "last", "averaged", "voted"}, default="best"
        Which weights of a trajectory that does not converge (SPA, MMA, CD, and PMA where the approximate marginals
        break down) are kept: those with the fewest training errors by the
        rule's own inference (Kumar et al., section 7.2), the last, the mean of all, or a vote of several of the
        trajectory's weights at prediction. Where training converges its result is kept.
    n_cycles : int, default=3
        SPA and MMA stop after this many cycles of their errors. CD counts no errors and takes ``max_iter`` steps.
    cd_steps : int, default=1
        Gibbs sweeps of contrastive divergence.
    cost : array-like of shape (n_classes, n_classes), optional
        ``cost[a, b]`` of predicting class a where b is true, in the order of ``classes_``; labels of least expected
        cost under the marginals are predicted (Jancsary 2012, Eq. 42 to 47). None is one for every error.
    max_iter : int, default=200
        Most iterations; epochs for ``solver="sgd"``.
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
        Euclidean norm of the gradient per labelled node.
    nonsubmodular_curve_ : ndarray of shape (n_iter_,)
        Number of edges on which min-cut was not exact, for binary MAP learning.
    coef_path_, gradient_path_ : ndarray of shape (n_iter_, n_coef)
        All weights and gradients, flat, for models of few weights; else empty.
    voters_ : ndarray of shape (n_voters, n_coef) or None
        Weights that vote at prediction, for ``select="voted"``; ``coef_`` and the others are then their mean.
    n_iter_ : int
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
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(scale=0.5, size=(20, 8, 8, 1))
    >>> DRFClassifier(inference="map").fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **TrainedField._parameter_constraints,
        "learning": [StrOptions(set(LEARNING))],
        "solver": [StrOptions({"auto", "lbfgs", "gradient", "sgd"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"constant", "annealed"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"auto", "zeros", "random", "independent"}), np.ndarray],
        "init_scale": [Interval(Real, 0, None, closed="left")],
        "select": [StrOptions({"best", "last", "averaged", "voted"})],
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
        "cd_steps": [Interval(Integral, 1, None, closed="left")],
        "cost": ["array-like", None],
    }

    def __init__(
        self,
        C=1.0,
        *,
        learning="auto",
        inference="auto",
        pairwise="auto",
        edge_features="difference",
        connectivity=1,
        edge_types="tied",
        fit_intercept=True,
        solver="auto",
        step_size=0.1,
        step_schedule="constant",
        batch_size=8,
        init="auto",
        init_scale=1.0,
        select="best",
        n_cycles=3,
        cd_steps=1,
        cost=None,
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
        self.pairwise = pairwise
        self.edge_features = edge_features
        self.connectivity = connectivity
        self.edge_types = edge_types
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.batch_size = batch_size
        self.init = init
        self.init_scale = init_scale
        self.select = select
        self.n_cycles = n_cycles
        self.cd_steps = cd_steps
        self.cost = cost
        self.max_iter = max_iter
        self.tol = tol
        self.missing_label = missing_label
        self.classes = classes
        self.lattice_ndim = lattice_ndim
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # Inference -----------------------------------------------------------------------------------------------------

    def _decoding(self):
        return resolve_decoding(self.inference)

    def _marginal_inference(self):
        return marginal_inference(self._decoding())

    def _sampling_inference(self):
        return sampling_inference(self._decoding())

    def _voters(self, potentials):
        if getattr(self, "voters_", None) is not None:
            return list(self.voters_)
        return super()._voters(potentials)

    def _decide(self, probability):
        if self.cost is None:
            return super()._decide(probability)
        return np.argmin(probability @ self._checked_cost(len(self.classes_)).T, axis=1)

    def _checked_cost(self, n_classes):
        if self._decoding().rule == "map":
            raise ValueError(
                "cost needs marginals to take expectations, but inference predicts by MAP: use inference='mpm'."
            )
        cost = check_array(self.cost, dtype=np.float64, input_name="cost")
        if cost.shape != (n_classes, n_classes):
            raise ValueError(f"cost must have shape ({n_classes}, {n_classes}), got {cost.shape}.")
        return cost

    # Training ------------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Learn the weights.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            Plain rows ``(n, F)``, chains ``(n, T, F)``, images ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists
            of such examples of any sizes, or a list of :class:`~sklearn_crf.Example`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        DRFClassifier
            self
        """
        return self._fit(X, y, sample_weight)

    def _check_labels(self, labels):
        if self.cost is not None:
            self._checked_cost(len(labels.classes_))

    def _objective(self, batches, labels):
        return resolve_objective(self.learning, self._decoding(), self.cd_steps)

    def _training_options(self, objective, encoded, potentials):
        return TrainingOptions(
            solver=self.solver,
            # Rules without a smooth loss are homogeneous in the weights or follow no loss: no penalty suits them.
            C=self.C if objective.smooth else None,
            step_size=self.step_size,
            step_schedule=self.step_schedule,
            batch_size=self.batch_size,
            select=self.select,
            n_cycles=self.n_cycles,
            max_iter=self.max_iter,
            tol=self.tol,
            keeps_interrupted=self.warm_start,
            verbose=self.verbose,
        )

    def _fitted_now(self, encoded, labels, risk, coef):
        return super()._fitted_now(encoded, labels, risk, coef) | {"voters_": None}

    def _cold_start(self, risk, options, rng):
        potentials = risk.potentials
        if isinstance(self.init, np.ndarray):
            if self.init.shape != (potentials.n_coef,) or not np.all(np.isfinite(self.init)):
                raise ValueError(f"init must be {potentials.n_coef} finite numbers, got shape {self.init.shape}.")
            return np.array(self.init, dtype=np.float64)
        if self.init == "random":
            return self.init_scale * rng.normal(size=potentials.n_coef)
        if self.init == "independent" or (self.init == "auto" and not (risk.objective.smooth and risk.is_exact)):
            return train_without_edges(risk, options)
        return super()._cold_start(risk, options, rng)

    def _store_trace(self, outcome, record):
        self.voters_ = outcome.voters
        self.nonsubmodular_curve_ = record["n_nonsubmodular"]
        self.coef_path_ = record["coef"]
        self.gradient_path_ = record["gradient"]
