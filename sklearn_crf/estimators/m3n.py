"""M3NClassifier: learning by margins over any inference of best labelings."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import decode, require_complete
from sklearn_crf.estimators._coupling import Decoding
from sklearn_crf.estimators._field import TrainedField
from sklearn_crf.estimators._margin_cost import (
    cost_matrix,
    is_per_node,
    require_associative,
    with_node_weights,
)
from sklearn_crf.estimators._margin_formulations import (
    MARGIN_FORMULATIONS,
    RESCALINGS,
    is_by_planes,
    is_smoothed,
    resolve_margin_formulation,
)
from sklearn_crf.estimators._margin_training import SOLVERS, MarginOptions, train_by_margins
from sklearn_crf.inference import conditional_scores
from sklearn_crf.potentials import PAIRWISE_FORMS, pairwise_form

# Up to so many weights the planes kept take little time next to inference.
_MOST_WEIGHTS_FOR_PLANES = 1000


class MarginField(TrainedField):
    """Base of the classifiers trained by margins.

    A subclass has the constructor parameters of :class:`~sklearn_crf.M3NClassifier`.
    """

    def _check_combination(self):
        own = "lbfgs" if is_smoothed(self.formulation, self.temperature) else None
        own = "auto" if self.formulation == "dual" else own
        if self.solver != "auto" and (self.solver == "lbfgs" if own is None else self.solver != own):
            raise ValueError(
                f"solver={self.solver!r} does not go with formulation={self.formulation!r}: those at a temperature "
                "have solver='lbfgs', and only they, 'dual' has none; or leave it at 'auto'."
            )
        if self.formulation == "dual" and self.pairwise == "associative":
            raise ValueError("formulation='dual' has no bounds on weights: pairwise='associative' needs another.")

    def _decoding(self):
        return Decoding(self._resolved().inference, "map")

    def _resolved(self):
        limits = {"max_iter": self.inner_max_iter, "tol": self.inner_tol}
        name = type(self).__name__
        return resolve_margin_formulation(
            self.formulation, self.rescaling, self.inference, self.temperature, name, **limits
        )

    def _base_form(self, n_classes):
        return pairwise_form("auto" if self.pairwise == "associative" else self.pairwise, n_classes)

    def _goes_by_blocks(self, encoded):
        if not is_by_planes(self.formulation, self.temperature):
            return False
        if self.solver == "auto":
            return bool(encoded.n_edges) and not encoded.is_sparse
        return self.solver != "bmrm"

    def _chosen_solver(self, encoded, potentials):
        if self.solver != "auto":
            return self.solver
        if not is_by_planes(self.formulation, self.temperature):
            return "lbfgs"
        if not self._goes_by_blocks(encoded):
            return "bmrm"
        return "cutting_plane" if potentials.n_coef <= _MOST_WEIGHTS_FOR_PLANES else "frank_wolfe"

    def _batch_nodes(self, encoded):
        # A product with the cost is one of each example, whatever it is joined with.
        if self.formulation == "dual" or (self.rescaling == "slack" and encoded.layout != "nodes"):
            return 1
        # Kernels go through forests of dense features one by one, whatever batch they are in.
        by_kernel = not encoded.is_sparse and self._decoding().inference.exact_on in ("any", "forest")
        if by_kernel or not self._goes_by_blocks(encoded):
            return 4096
        # Steps are made for one mini-batch after the other: of small ones there are more.
        return int(np.clip(encoded.n_nodes // 64, 1, 1024))

    def _check_labels(self, labels):
        # Bad parameters are named before any work is done.
        self._decoding()
        cost_matrix(self.cost, self.class_weight, labels)

    def _with_node_weights(self, encoded, batches):
        return with_node_weights(self.cost, encoded, batches) if is_per_node(self.cost) else batches

    def _objective(self, batches, labels):
        for batch in batches:
            require_complete(batch, "training by margins")
        if self.pairwise == "associative":
            require_associative(batches)
        return self._resolved().make_objective(cost_matrix(self.cost, self.class_weight, labels), batches)

    def _training_options(self, objective, encoded, potentials):
        bounded = np.zeros(potentials.n_coef, dtype=bool)
        potentials.unpack(bounded).edge_coef[...] = self.pairwise == "associative"
        return MarginOptions(
            problem=self._problem(encoded),
            inference=self._decoding().inference,
            solver=self._chosen_solver(encoded, potentials),
            C=self.C,
            scale=np.where(potentials.penalised, 1.0, self.intercept_scaling),
            lower_bounded=bounded,
            max_iter=self.max_iter,
            tol=self.tol,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )

    def _problem(self, encoded):
        if is_by_planes(self.formulation, self.temperature):
            return "planes"
        # Without edges there is nothing to share.
        return self.formulation if encoded.n_edges or self.formulation != "joint" else "smoothed"

    def _train(self, risk, start, options, rng, on_iteration):
        return train_by_margins(risk, start, options, rng, on_iteration)

    def _store(self, potentials, outcome):
        for name, value in self._weight_attributes(potentials, outcome.coef).items():
            setattr(self, name, value)
        found = outcome.found
        self.duality_gap_ = outcome.gap
        self.loss_curve_ = found.loss_curve
        self.dual_curve_ = found.dual_curve
        self.checks_ = found.get("checks", np.arange(1, found.nit + 1))
        self.n_iter_ = found.nit
        self.inference_calls_curve_ = outcome.calls_curve
        self.n_inference_calls_ = outcome.n_inference_calls


class M3NClassifier(MarginField):
    r"""Max-margin Markov network: a structured support vector machine on the scores of a field.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \max_y \bigl[ \Delta(y, y_i)
            + \mathrm{score}_w(x_i, y) - \mathrm{score}_w(x_i, y_i) \bigr]

    The score is that of :class:`DRFClassifier`. The true labeling is to win by a margin of the cost :math:`\Delta` of
    every other, which needs best labelings alone, and no marginals or partition function: minimum cuts will do. Without
    edges it is the multi-class support vector machine of Crammer and Singer, for two classes the usual one.

    Training stops at a duality gap. Inference that undergenerates (iterated conditional modes, max-product, expansion
    moves) may miss the worst labeling, so that the loss is too small: ``duality_gap_`` then counts what the inference
    cannot prove, and is infinite if it has no bound.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, as in scikit-learn's LinearSVC.
    formulation : str, default="max_margin"
        What stands for the maximum:

        - "max_margin": itself, over whatever finds best labelings.
        - "lp": that over the local polytope, whose fractional solutions take part in training (recipe 2 of the
          reference).
        - "smoothed": the same plus ``temperature`` times the tree-reweighted entropy, a smooth problem (recipe 1).
        - "reparameterization": the same as the least bound over all ways to share the scores out among trees
          (recipe 3), or at ``temperature=0``, where it is "lp" again, among edges, by ``IncMP``.
        - "joint": the same in one problem over weights and shares, without inner problem (recipe 4).
        - "dual": "lp" in the dual, by exponentiated gradient steps in the marginals of an example each (recipe 5).
    solver : {"auto", "cutting_plane", "one_slack", "frank_wolfe", "bmrm", "subgradient", "lbfgs"}, default="auto"
        "cutting_plane" goes through the examples in mini-batches and keeps the worst labelings found of each (the
        n-slack method); "frank_wolfe" does so with one combination of them, in less memory, and is quicker to a rough
        solution and slower to an accurate one; "bmrm" is the bundle method, one plane for each pass over all examples
        (1-slack), deterministic; "one_slack" is the same, but makes planes of the last labelings of each example as
        long as those will do; "subgradient" makes steps of Pegasos. "auto" is the bundle method without edges and for
        sparse features, cutting planes where there are up to 1,000 weights, Frank-Wolfe otherwise. Formulations with
        a temperature have "lbfgs" alone, and "dual" has steps of its own.
    cost : {"hamming", "weighted"}, array-like of shape (n_classes, n_classes) or list of ndarray, default="hamming"
        Number of wrong nodes; "weighted" by one over the frequency of each true class; or ``cost[a, b]``
        of each node of class b that is labelled a, in the order of ``classes_``: not negative, zero on the diagonal;
        or, for each training example, an array of what every node costs if it is wrong, such as the areas of
        superpixels.
    rescaling : {"margin", "slack"}, default="margin"
        "margin" adds the cost to the score; "slack" multiplies it by one plus the difference in score, see
        :doc:`/user_guide/m3n`. Only for "max_margin".
    class_weight : dict, "balanced" or None, default=None
        Multiplies the cost of nodes of each true class.
    inference : str or Inference, default="auto"
        What finds best labelings, in training and at prediction: "auto" (max-product on forests, min-cut for two
        classes, 20 iterations of ``TRWS`` for more, all with a bound; ``AD3()`` for "lp" and "dual", and ``TRWS()``,
        at prediction alone, for those with a temperature), "icm", "max_product", "graph_cut", "alpha_expansion" and
        other names of the user guide (:ref:`choosing_inference`); or an :class:`~sklearn_crf.inference.Inference`,
        cloned, whose options are reachable as ``inference__max_iter`` and so on.
    pairwise : {"auto", "ising", "potts", "symmetric", "full", "associative"}, default="auto"
        Weights of a pairwise table: see :func:`~sklearn_crf.potentials.pairwise_form`. "associative" is "auto" with
        weights that are not negative, so that equal labels are never worse and min-cut stays exact throughout
        training; edge features must not be negative either.
    edge_features : str or callable, default="difference"
        Features of an edge: "difference" is :math:`[1, |x_i - x_j|]`, "constant" is :math:`[1]`, or a registered name
        or a callable ``f(x_tail, x_head)``.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    edge_types : {"tied", "offset"}, default="tied"
        Whether all edges of a lattice share their weights, or those of one offset.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    intercept_scaling : float, default=1.0
        As in LinearSVC, intercepts are weights of a constant feature of this value and penalised, for the dual of a
        free one has no block structure; the larger it is the freer they are.
    max_iter : int, default=1000
        Most epochs, or planes of the bundle method.
        At each temperature, of those that have one.
    tol : float, default=1e-3
        Training stops at a duality gap of this share of the objective, at the last temperature.
    temperature : float, default=0.1
        Of formulations at one, in units of the cost. Training begins at one and falls to it. Only
        "reparameterization" may have 0, and then takes any solver.
    inner_max_iter : int, default=500
        Most iterations of their inner problem, for one example.
    inner_tol : float, default=1e-6
        Its tolerance.
    missing_label : object, default=None
        Value in y of nodes that ``score`` leaves out. Training needs all labels.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights. Only the bundle method can: the others go on from dual variables, which are
        not kept.
    random_state : int, RandomState instance or None, default=None
        For the order of mini-batches.
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
    duality_gap_ : float
        What the objective at these weights may be above the least, at most: of the exact problem, whatever the
        inference; for other formulations of the relaxed problem at temperature zero.
    loss_curve_ : ndarray
        The objective at every plane of the bundle method; the best of those worked out so far, at the epochs
        ``checks_``, of the others.
    dual_curve_ : ndarray
        The dual value at the same moments.
    checks_ : ndarray of int
        Planes, epochs or iterations made at these moments.
    inference_calls_curve_ : ndarray of int
        Inferences for one example that training had asked for by then.
    n_iter_ : int
        Epochs, or planes of the bundle method.
    n_inference_calls_ : int
        Of these in all.
    n_features_in_ : int
        Features of a node.
    lattice_ndim_ : int or None
        Lattice axes of the training examples, which prediction requires; None for a list of ``Example``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only for data frames.

    References
    ----------
    B. Taskar, C. Guestrin, D. Koller. Max-Margin Markov Networks. NIPS 2003.

    J. Jancsary. Approximate Discriminative Training of Graphical Models. PhD thesis, TU Wien, 2012.

    S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher. Block-Coordinate Frank-Wolfe Optimization for Structural
    SVMs. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(scale=0.5, size=(20, 8, 8, 1))
    >>> M3NClassifier(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **MarginField._parameter_constraints,
        "formulation": [StrOptions(set(MARGIN_FORMULATIONS))],
        "solver": [StrOptions({"auto", *SOLVERS})],
        "cost": [StrOptions({"hamming", "weighted"}), "array-like"],
        "rescaling": [StrOptions(set(RESCALINGS))],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "pairwise": [StrOptions({"auto", "associative", *PAIRWISE_FORMS})],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "temperature": [Interval(Real, 0, None, closed="left")],
        "inner_max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        C=1.0,
        *,
        formulation="max_margin",
        solver="auto",
        cost="hamming",
        rescaling="margin",
        class_weight=None,
        inference="auto",
        pairwise="auto",
        edge_features="difference",
        connectivity=1,
        edge_types="tied",
        fit_intercept=True,
        intercept_scaling=1.0,
        max_iter=1000,
        tol=1e-3,
        temperature=0.1,
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
        self.formulation = formulation
        self.solver = solver
        self.cost = cost
        self.rescaling = rescaling
        self.class_weight = class_weight
        self.inference = inference
        self.pairwise = pairwise
        self.edge_features = edge_features
        self.connectivity = connectivity
        self.edge_types = edge_types
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.tol = tol
        self.temperature = temperature
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
            Plain rows ``(n, F)``, chains ``(n, T, F)``, images ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists
            of such examples of any sizes, or a list of :class:`~sklearn_crf.Example`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example, a factor of its C.

        Returns
        -------
        M3NClassifier
            self
        """
        self._check_combination()
        return self._fit(X, y, sample_weight)

    def decision_function(self, X):
        """Scores of the states of every node, its neighbours labelled as ``predict`` labels them.

        A best labeling has the state of the highest of these scores at each node: any other loses at least the
        difference.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.

        Returns
        -------
        ndarray
            As ``predict`` gives, with a last axis of ``n_classes``; for two classes, without it, the score of the
            second less that of the first.
        """
        encoded, batches, potentials = self._prepare(X)
        weights = self._flat_weights(potentials)
        inference = self._decoding().inference

        def run(batch, n_threads):
            model = potentials.model(weights, batch.example)
            scores = conditional_scores(model, inference.map(model, n_threads=n_threads).labels)
            return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

        with single_threaded_blas():
            return decode(encoded, map_tasks(run, batches, self.n_jobs), batches)
