"""M3NClassifier: learning by margins over any inference of best labelings."""

from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from sklearn_crf._threads import map_coarse, single_threaded_blas
from sklearn_crf.encoding import decode, in_class_order, require_complete
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.inference import AutoMap, Inference, NamedInference, conditional_scores
from sklearn_crf.learning import (
    LBFGS,
    MARGIN_CONSTRAINTS,
    MARGIN_SOLVERS,
    BundleMethod,
    CuttingPlane,
    FrankWolfe,
    MarginSetting,
    OneSlack,
    PlaneSolver,
    cost_matrix,
    penalty_factors,
    require_associative,
    resolve_margin_formulation,
    resolve_margin_solver,
    train_by_margins,
)
from sklearn_crf.potentials import PAIRWISE_FORMS, PairwiseTables

# Duality gaps, as shares of the objective, at which training ends: of Frank-Wolfe, and of others, whose first
# weights are poor. On training parts of letters, squares and street scenes Frank-Wolfe has 77.1, 98.1 and 81.2 % of
# nodes right at half, 76.6, 98.2 and 81.9 % at three tenths, in twice the epochs; one slack has 78.5 % of the last.
_ROUGH_TOL, _TOL = 0.5, 1e-2
_ROUGH_END = f"STOP: duality gap within {_ROUGH_TOL:.0%} of the objective"

# Least penalty of a weight per node and C, for a feature whose bulk has a spread of one. Planes of the losses whose
# penalty is a hundredth of that are no longer told apart by their scalar products.
_LEAST_PENALTY = 1e-10

# Solvers that move the weights after each mini-batch, and would gain nothing from whole shards.
_SEQUENTIAL = (CuttingPlane.name, FrankWolfe.name)

# Up to so many weights the planes kept take little time next to inference.
_MOST_WEIGHTS_FOR_PLANES = 1000


class M3NClassifier(FieldClassifier):
    r"""Max-margin Markov network: a structured support vector machine on the scores of a field.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \max_y \bigl[ \Delta(y, y_i)
            + \mathrm{score}_w(x_i, y) - \mathrm{score}_w(x_i, y_i) \bigr]

    The score is that of :class:`DRFClassifier`. The true labeling is to win by a margin of the cost :math:`\Delta` of
    every other, which needs best labelings alone, and no marginals or partition function: minimum cuts will do. Without
    edges it is the multi-class support vector machine of Crammer and Singer, for two classes the usual one.

    Training stops at a duality gap. Inference that undergenerates (iterated conditional modes, max-product, expansion
    moves) may miss the worst labeling, so that the loss is too small: ``duality_gap_`` then counts what the inference
    cannot prove, and is infinite if it has no bound. Training ends where the labelings found no longer move the
    weights; with the inference that is chosen by default a gap of up to a quarter of the objective brings no warning.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, as in scikit-learn's LinearSVC. Rounding hides penalties that are too weak:
        each weight, for a feature of a spread of one, has at least the penalty of ``C=1e10 / n_nodes``. Intercepts are
        penalised as those of centred features, where features have a spread above ten.
    formulation : str, MarginFormulation or Objective, default="max_margin"
        What stands for the maximum:

        - "max_margin": itself, over whatever finds best labelings.
        - "lp": that over the local polytope, whose fractional solutions take part in training (recipe 2 of the
          reference).
        - "smoothed": the same plus ``temperature`` times an entropy, a smooth problem (recipe 1).
        - "reparameterization": the same as the least bound over all ways to share the scores out among trees
          (recipe 3), or at ``temperature=0``, where it is "lp" again, among edges, by ``IncMP``.
        - "joint": the same in one problem over weights and shares, without inner problem (recipe 4).
        - "dual": "lp" in the dual, by exponentiated gradient steps in the marginals of an example each (recipe 5).

        Or one of :mod:`sklearn_crf.learning`, such as :class:`~sklearn_crf.learning.MaxMargin`, whose options (cost of
        errors, rescaling of the margin, freedom of intercepts, temperature, accuracy of inner problems) are
        reachable as ``formulation__cost`` and so on; or a :class:`~sklearn_crf.objectives.StructuredHinge` of your own.
    solver : str or PlaneSolver, default="auto"
        "cutting_plane", "one_slack", "frank_wolfe", "bmrm", "subgradient", "lbfgs", or "auto"; or an object of
        :mod:`sklearn_crf.learning`.
        "cutting_plane" goes through the examples in mini-batches and keeps the worst labelings found of each (the
        n-slack method); "frank_wolfe" does so with one combination of them, in less memory, and is quicker to a rough
        solution and slower to an accurate one; "bmrm" is the bundle method, one plane for each pass over all examples
        (1-slack), deterministic; "one_slack" is the same, but makes planes of the last labelings of each example as
        long as those will do; "subgradient" makes steps of Pegasos. "auto" is the bundle method without edges and for
        sparse features that are not those of chains; up to 1,000 weights it is the same on chains, and one slack
        elsewhere; otherwise it is Frank-Wolfe. Formulations with a temperature have "lbfgs" alone, and "dual" has steps
        of its own.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the cost of nodes of each true class.
    inference : str or Inference, default="auto"
        What finds best labelings, in training and at prediction: "icm", "max_product", "graph_cut", "alpha_expansion"
        and other names of the user guide (:ref:`choosing_inference`); or an
        :class:`~sklearn_crf.inference.Inference`, cloned, whose options are reachable as ``inference__max_iter`` and so
        on. "auto" predicts by ``AutoMap()`` and trains by inference with a bound: max-product on forests, minimum cuts
        for two classes, 20 iterations of ``TRWS`` for more; ``AD3()`` for "lp" and "dual".
    pairwise : str or PairwiseTables, default="auto"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction.
        "auto" is "full" on chains. "associative" is that of other graphs with weights that are not negative, so that
        equal labels are never worse and min-cut stays exact throughout training; edge features must not be negative
        either.
    edge_features : str or callable, default="auto"
        Features of an edge: "difference" is :math:`[1, |x_i - x_j|]`, "constant" is :math:`[1]`, or a registered name
        or a callable ``f(x_tail, x_head)``. "auto" is "constant" on chains, for sparse features and linear operators,
        and "difference" elsewhere.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice: 1 joins axis neighbours, 2 adds diagonals; or offsets.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    max_iter : int, default=1000
        Most epochs, or planes of the bundle method.
        At each temperature, of formulations that have one.
    tol : float or "auto", default="auto"
        Training stops at a duality gap of this share of the objective, at the last temperature. "auto" is 0.01, and
        0.5 for Frank-Wolfe, whose bound is the last to get better: by then its weights label about as well as later
        ones, but ``converged_`` is False unless the gap is 0.01.
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
        Upper bound on the suboptimality of the objective at these weights: of the exact problem, whatever the
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
    converged_ : bool
        Whether training came to its own end, at a duality gap that is proven.
    stop_reason_ : str
        Why it ended.
    best_iter_ : int
        The plane, epoch or iteration whose objective is the least of those worked out, from 0.
    learning_ : str
        The formulation.
    inference_ : str
        Class of the inference that finds best labelings.
    n_inference_calls_ : int
        Of these in all.
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
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> M3NClassifier(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldClassifier._parameter_constraints,
        "formulation": MARGIN_CONSTRAINTS,
        "solver": [StrOptions({"auto", *MARGIN_SOLVERS}), PlaneSolver, LBFGS],
        "pairwise": [StrOptions({"auto", "associative", *PAIRWISE_FORMS}), PairwiseTables],
        "tol": [StrOptions({"auto"}), *FieldClassifier._parameter_constraints["tol"]],
    }
    _objects: ClassVar[dict] = FieldClassifier._objects | {"formulation": "MaxMargin()", "solver": "FrankWolfe()"}
    _has_distribution = False
    _has_costs_of_classes = True
    _takes_parts = True
    _penalises_intercept = True

    def __init__(
        self,
        C=1.0,
        *,
        formulation="max_margin",
        solver="auto",
        class_weight=None,
        inference="auto",
        pairwise="auto",
        edge_features="auto",
        connectivity=1,
        fit_intercept=True,
        max_iter=1000,
        tol="auto",
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
        self.class_weight = class_weight
        self.inference = inference
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

    def _automatic_edge_features(self, encoded, n_classes):
        return "constant" if encoded.lattice_ndim == 1 else super()._automatic_edge_features(encoded, n_classes)

    def _formulation(self):
        return resolve_margin_formulation(self.formulation)

    def _training_inference(self):
        return self._formulation().inference(self.inference, type(self).__name__)

    def _decoding(self):
        # Training calls for bounds many times on nearly the same models, a prediction once for the best labels.
        is_auto = isinstance(self.inference, str) and self.inference == "auto"
        return NamedInference(AutoMap() if is_auto else self._training_inference(), "map")

    def _is_associative(self):
        return self._tables().form == "associative"

    def _weight_layout(self, classes, lattice_ndim):
        tables = self._tables()
        if self._is_associative():
            tables.set_params(form="auto")
        elif tables.form == "auto" and lattice_ndim == 1:
            # Of labels in sequence it matters which comes first.
            tables.set_params(form="full")
        return super()._weight_layout(classes, lattice_ndim, tables)

    def _check_parameters(self):
        formulation = self._formulation()
        if self.solver != "auto":
            is_lbfgs = isinstance(resolve_margin_solver(self.solver), LBFGS)
            if formulation.name == "dual" or is_lbfgs != formulation.is_smooth:
                raise ValueError(
                    f"solver={self.solver!r} does not go with formulation={formulation.name!r}: those at a temperature "
                    "have solver='lbfgs', and only they, 'dual' has none; or leave it at 'auto'."
                )
        if formulation.name == "dual" and self._is_associative():
            raise ValueError("formulation='dual' has no bounds on weights: pairwise='associative' needs another.")

    def _check_labels(self, labels):
        # Bad parameters are named before any work is done.
        self._training_inference()
        cost_matrix(in_class_order(self._formulation().cost, self.classes), None, labels)

    def _solver(self, encoded, potentials=None):
        """The solver; None for formulations with steps of their own."""
        formulation = self._formulation()
        if self.solver != "auto":
            return resolve_margin_solver(self.solver)
        if not formulation.by_planes:
            return LBFGS() if formulation.is_smooth else None
        if not encoded.n_edges or encoded.has_operators:
            return BundleMethod()
        if encoded.is_sparse and not (encoded.lattice_ndim == 1 and self._goes_through_forests(encoded, FrankWolfe())):
            return BundleMethod()
        if potentials is None or potentials.n_coef > _MOST_WEIGHTS_FOR_PLANES:
            return FrankWolfe()
        # Best labelings of chains take less time than planes of those of the passes before.
        return BundleMethod() if encoded.lattice_ndim == 1 else OneSlack()

    def _goes_through_forests(self, encoded, solver):
        """Whether a kernel looks for the worst labelings of forests one by one, whatever batch they are in."""
        by_slack = getattr(self._formulation(), "rescaling", "margin") == "slack"
        if by_slack or encoded.has_operators or encoded.has_sparse_edges:
            return False
        is_read = not encoded.is_sparse or isinstance(solver, FrankWolfe)
        return is_read and self._training_inference().exact_on in ("any", "forest")

    def _packing(self, encoded):
        return {"max_nodes": self._batch_nodes(encoded)}

    def _batch_nodes(self, encoded):
        formulation = self._formulation()
        # A product with the cost is one of each example, whatever it is joined with.
        by_slack = getattr(formulation, "rescaling", "margin") == "slack"
        if formulation.name == "dual" or (by_slack and encoded.layout != "nodes"):
            return 1
        solver = self._solver(encoded)
        by_blocks = formulation.by_planes and solver.by_blocks
        if not by_blocks or self._goes_through_forests(encoded, solver):
            return 4096
        # Steps are made for one mini-batch after the other: of small ones there are more.
        return int(np.clip(encoded.n_nodes // 64, 1, 1024))

    def _check_shards(self):
        formulation = self._formulation()
        if isinstance(formulation.cost, str) and formulation.cost == "weighted":
            raise ValueError("cost='weighted' counts labels in memory, not in Shards: pass the matrix of costs.")
        if formulation.name in ("joint", "dual"):
            raise ValueError(
                f"formulation={formulation.name!r} goes from example to example, which Shards do not allow: take "
                "'max_margin', 'lp', 'smoothed' or 'reparameterization'."
            )
        if self.solver != "auto" and getattr(resolve_margin_solver(self.solver), "name", "") in _SEQUENTIAL:
            raise ValueError(
                f"solver={self.solver!r} goes from example to example, which Shards do not allow: take 'bmrm', "
                "'one_slack', 'subgradient' or 'auto'."
            )

    def _check_batches(self, batches, graphs):
        for batch in batches:
            require_complete(batch, "training by margins")
        if self._is_associative():
            require_associative(batches)

    def _objective(self, examples, potentials):
        formulation = self._formulation()
        cost = cost_matrix(in_class_order(formulation.cost, self.classes), examples.class_weight, examples.labels)
        single_nodes = examples.encoded.n_nodes == examples.encoded.n_examples
        return formulation.objective(
            self._training_inference(), cost, have_cycles=examples.graphs.have_cycles, single_nodes=single_nodes
        )

    def _has_penalty(self, objective):
        return True

    def _projection(self, potentials):
        if not self._is_associative():
            return None
        bounded = self._bounded(potentials)
        return lambda coef: np.where(bounded, np.maximum(coef, 0.0), coef)

    def _bounded(self, potentials):
        """Which weights must not be negative."""
        bounded = np.zeros(potentials.n_coef, dtype=bool)
        potentials.unpack(bounded).edge_coef[...] = self._is_associative()
        return bounded

    def _train(self, risk, examples, make_start, run):
        encoded = examples.encoded
        formulation, potentials = self._formulation(), risk.potentials
        # Without edges there is nothing to share.
        name = formulation.name if encoded.n_edges or formulation.name != "joint" else "smoothed"
        if examples.are_sharded and formulation.by_planes and self.solver == "auto":
            solver = BundleMethod()
        else:
            solver = self._solver(encoded, potentials)
        setting = MarginSetting(
            problem="planes" if formulation.by_planes else name,
            entropy=formulation.entropy,
            inference=self._training_inference(),
            solver=solver,
            scale=self._scale(risk, formulation, run),
            lower_bounded=self._bounded(potentials),
        )
        return train_by_margins(risk, make_start("zeros"), setting, run._replace(tol=self._tolerance(setting.solver)))

    def _tolerance(self, solver):
        if self.tol != "auto":
            return self.tol
        return _ROUGH_TOL if isinstance(solver, FrankWolfe) else _TOL

    def _scale(self, risk, formulation, run):
        """Factors by which the plain penalty of the solvers becomes that of each weight."""
        potentials = risk.potentials
        factors = np.where(potentials.penalised, penalty_factors(potentials, run.C, run.edge_C), 1.0)
        scale = np.where(potentials.penalised, 1.0 / np.sqrt(factors), formulation.intercept_scaling)
        # Weaker penalties would be lost in the rounding of the losses.
        return np.minimum(scale, potentials.tails / np.sqrt(_LEAST_PENALTY * run.C * max(risk.n_labelled, 1.0)))

    def _chosen(self, graphs):
        return {"learning_": self._formulation().name, "inference_": type(self._training_inference()).__name__}

    def _store(self, record):
        found = record.found
        self.duality_gap_ = record.gap
        self.loss_curve_ = found.loss_curve
        self.dual_curve_ = found.dual_curve
        self.checks_ = found.get("checks", np.arange(1, found.nit + 1))
        self.n_iter_ = found.nit
        # What is near enough to label well may be far from the optimum.
        is_rough = self.tol == "auto" and record.gap > _TOL * abs(np.min(found.loss_curve))
        is_over = found.success and found.message.startswith("CONVERGENCE")
        self.converged_ = bool(is_over and not is_rough)
        self.stop_reason_ = _ROUGH_END if is_over and is_rough else found.message
        self.best_iter_ = int(self.checks_[np.argmin(found.loss_curve)]) - 1
        self.inference_calls_curve_ = record.calls_curve
        self.n_inference_calls_ = record.n_inference_calls

    # Prediction ----------------------------------------------------------------------------------------------------

    def decision_function(
        self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Scores of the states of every node, its neighbours labelled as ``predict`` labels them.

        A best labeling has the state of the highest of these scores at each node: any other loses at least the
        difference.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: the other states of these
            nodes have a score of -inf.
        inference : str or Inference, optional
            The inference that labels the neighbours; None is the one of ``predict``.

        Returns
        -------
        ndarray
            As ``predict`` gives, with a last axis of ``n_classes``; for two classes, without it, the score of the
            second less that of the first.
        """
        encoded, batches, potentials, weights = self._prepare(X, evidence)
        chosen = self._asked(inference).inference

        def run(batch, n_threads):
            model = self._model(potentials, weights, batch)
            scores = conditional_scores(model, chosen.map(model, n_threads=n_threads).labels)
            return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

        with single_threaded_blas():
            found = map_coarse(run, batches, self.n_jobs)
        n_columns = None if len(self.classes_) == 2 else len(self.classes_)
        return decode(encoded, found, batches, n_columns=n_columns)
