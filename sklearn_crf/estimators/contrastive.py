"""ContrastiveCRF: contrastive objectives and constraint generation."""

from copy import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.estimators._held_out import right_nodes
from sklearn_crf.inference import (
    AutoMap,
    AutoMarginals,
    NamedInference,
    TRWMessagePassing,
    convergence_left_to_caller,
    resolve_inference,
)
from sklearn_crf.learning import (
    INITS,
    LBFGS,
    SGD,
    GrowingSets,
    HeldOutScores,
    PlannedSets,
    are_narrow,
    choose_edge_penalty,
    joined_labelings,
    observed_labelings,
    resolve_sets,
    resolve_solver,
    train_by_rounds,
)

# Rounds that may pass without a better labeling of training examples, and how many of their nodes are labelled for it.
_PATIENCE, _NODES_TO_LABEL = 5, 100_000

# Up to so many nodes a second training, whose edges have the penalty of the nodes, takes little time.
_NODES_TO_TRAIN_TWICE = 20_000


class ContrastiveCRF(FieldClassifier):
    r"""Conditional random field trained to tell the truth from sets of other labelings.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 - C \sum_i \sum_{j: y_i \in S_j} w_j(x_i)
            \log \frac{\exp(\mathrm{score}_w(x_i, y_i))}{\sum_{y \in S_j} \exp(\mathrm{score}_w(x_i, y))}

    The score is that of :class:`DRFClassifier`. The truth is to be probable among the labelings of each set
    :math:`S_j`, which needs their scores alone and no partition function. A set of all labelings is the likelihood,
    sets of the states of one node are the pseudolikelihood. Sets of labelings far from the truth compare what local
    methods cannot; contrastive constraint generation finds them: it optimises, looks for labelings that the model
    likes, adds them to the set of their example, and repeats until none is new. Unlike a margin this calibrates
    probabilities. Where rounds end before that, the weights of the round are kept that labels the training examples
    best, by the inference that predicts. With :class:`~sklearn_crf.Shards` in place of X and y each shard generates the
    labelings of its own examples, and keeps them.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty; intercepts are free.
    sets : {"pl", "gpl", "observed", "empty"} or GrowingSets, default="pl"
        Sets of labelings to begin with: those of the pseudolikelihood; of the generalised one, over blocks; and one set
        of all labelings seen in training; or none. Or a :class:`~sklearn_crf.learning.GrowingSets`, which says what
        finds further labelings (``generator``: max-product by default; iterated conditional modes, Gibbs sampling,
        labelings of most violated constraints, or nothing), how many and when; its options are reachable as
        ``sets__generator``, ``sets__max_rounds`` and so on.
    solver : {"lbfgs", "sgd"} or Solver, default="lbfgs"
        Rounds of L-BFGS, each from where the last one ended; or stochastic gradient descent over mini-batches of
        examples, which generates for those of a step before it makes the step. Or an
        :class:`~sklearn_crf.learning.SGD`. It needs X and y in memory, not :class:`~sklearn_crf.Shards`.
    inference : str or Inference, default="auto"
        What predicts, as in :class:`DRFClassifier`: "auto" chooses each node's best state under its marginals, exact
        ones or those of tree-reweighted belief propagation; with more than 20,000 nodes to learn from and a penalty of
        edges that training chose, the best labeling where that is right on more of these nodes. The paper found "icm"
        better than max-product.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, "balanced" in inverse proportion to the weighted numbers of their nodes. With the generator
        :class:`~sklearn_crf.objectives.MostViolated` they are factors of the costs of nodes, as is the ``node_weight``
        of ``fit``. Otherwise an example weighs by the mean over its nodes, and ``predict`` weighs marginals: see
        :ref:`weights`.
    pairwise : str or PairwiseTables, default="auto"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction. Without
        one, where labelings are generated for examples with cycles by rounds, edges have a thousandth of ``C`` to a
        millionth, whichever makes the sets to begin with, which overrate edges, label training examples best. Up to
        20,000 nodes a training with ``C`` itself comes after it, and the better of the two is kept.
    edge_features : str or callable, default="auto"
        As in :class:`DRFClassifier`.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    max_iter : int, default=200
        Most iterations of the last round, and of those before it with ``sets__max_round_iter=None``; epochs of "sgd".
    tol : float, default=1e-4
        Largest entry of the gradient per node at which a round stops.
    missing_label : object, default=None
        Value in y of nodes that ``score`` leaves out. Training needs all labels.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted. Sets are built anew.
    random_state : int, RandomState instance or None, default=None
        For random starts, Gibbs sampling and mini-batches.
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
    decision_weight_ : ndarray of shape (n_classes,) or None
        Factors of the marginals by which ``predict`` decides, where ``class_weight`` weighs whole examples.
    n_rounds_ : int
        Rounds of generation.
    n_generated_ : ndarray of shape (n_rounds_,)
        Labelings that were new in each.
    n_assignments_ : int
        Labelings in all sets at the end, true ones and those of families not counted.
    converged_ : bool
        Whether the last round found nothing new, and its weights converged. With random starts that can take long, and
        more rounds may not change the weights much.
    loss_curve_ : ndarray of shape (n_iter_,)
        The objective at every iteration, on the sets of its round.
    round_starts_ : ndarray of int
        Where in ``loss_curve_`` the sets have grown.
    gradient_norm_curve_ : ndarray of shape (n_iter_,)
        Euclidean norm of the gradient per node.
    error_curve_ : ndarray of shape (n_iter_,)
        NaN: no inference runs that could err.
    n_iter_ : int
        Iterations of all rounds.
    stop_reason_ : str
        Why the last round ended.
    best_iter_ : int
        The iteration whose weights are kept, from 0: the last of its round.
    inference_ : str
        The inference that predicts with ``inference="auto"``: "mpm", "trw" or "map". Otherwise the parameter, or the
        class of an object.
    n_features_in_ : int
        Features of a node.
    lattice_ndim_ : int or None
        Lattice axes of the training examples, which prediction requires; None for a list of ``Example``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only for data frames.

    References
    ----------
    D. Vickrey, C. Lin, D. Koller. Non-Local Contrastive Objectives. ICML 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import ContrastiveCRF
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> ContrastiveCRF(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.9
    True

    Pseudolikelihood alone overrates the neighbours here, so that one label takes all nodes:

    >>> from sklearn_crf.learning import GrowingSets
    >>> alone = ContrastiveCRF(sets=GrowingSets(generator=None))
    >>> alone.fit(X[:10], y[:10]).score(X[10:], y[10:]) < 0.3
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldClassifier._parameter_constraints,
        "sets": [StrOptions(set(INITS)), GrowingSets],
        "solver": [StrOptions({"lbfgs", "sgd"}), LBFGS, SGD],
    }
    _keeps_encoded = True
    _objects: ClassVar[dict] = FieldClassifier._objects | {"sets": "GrowingSets()", "solver": "SGD()"}

    def __init__(
        self,
        C=1.0,
        *,
        sets="pl",
        solver="lbfgs",
        inference="auto",
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
        self.sets = sets
        self.solver = solver
        self.inference = inference
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

    def _check_shards(self):
        if resolve_solver(self.solver).is_stochastic:
            raise ValueError("solver='sgd' goes from example to example, which Shards do not allow: take 'lbfgs'.")
        resolve_sets(self.sets).check_shards()

    def _weighs_nodes(self):
        return resolve_sets(self.sets).has_costs

    def _check_labels(self, labels):
        # Bad parameters are named before any work is done.
        resolve_sets(self.sets, self.classes).check(labels)

    def _objective(self, examples, potentials):
        sets, encoded = resolve_sets(self.sets, self.classes), examples.encoded
        if not examples.are_sharded:
            return sets.objective(encoded, examples.batches, examples.labels, potentials)
        observed = joined_labelings(examples.of_each(observed_labelings)) if sets.init == "observed" else None
        return PlannedSets(sets, encoded.n_examples, examples.labels, examples.first_examples, observed)

    def _n_iterations(self):
        by_epochs = resolve_solver(self.solver).is_stochastic
        return self.max_iter if by_epochs else resolve_sets(self.sets).max_rounds + 1

    def _packing(self, encoded):
        # The objective looks labelings up, whatever their graphs; generators run on members.
        n_nodes = 1 if resolve_solver(self.solver).is_stochastic else 4096
        return {"max_nodes": n_nodes, "max_cyclic_nodes": n_nodes}

    def _train(self, risk, examples, make_start, run):
        record = self._train_under_penalty(risk, examples, make_start, run)
        record.warn()
        return record

    def _train_under_penalty(self, risk, examples, make_start, run):
        """The record of a training, or the better one of two under different penalties of edges."""
        sets, solver = resolve_sets(self.sets), resolve_solver(self.solver)
        start, score = make_start("zeros"), self._score_of_training(risk, examples)
        overrates_edges = examples.graphs.have_cycles and sets.init != "empty" and not solver.is_stochastic

        def train(risk, start, run, score):
            held_out = HeldOutScores(score, _PATIENCE)
            record = train_by_rounds(risk, start, sets, solver, run._replace(held_out=held_out))
            return record, held_out.latest if record.converged else held_out.best

        if not (overrates_edges and risk.objective.generators and run.edge_C is None):
            return train(risk, start, run, score)[0]
        edge_C, penalised, right = choose_edge_penalty(risk, start, run, score)
        is_large, inference = examples.encoded.n_nodes > _NODES_TO_TRAIN_TWICE, None
        if is_large and self.inference == "auto" and not examples.graphs.are_narrow:
            score_of_best_labeling = self._score_of_training(risk, examples, "map")
            if score_of_best_labeling(penalised) > right:
                score, inference = score_of_best_labeling, "map"
        first, right = train(risk, penalised, run._replace(edge_C=edge_C), score)
        first.inference = inference
        if is_large or first.stopped or first.interrupted is not None:
            return first
        # What is generated can correct the edges of weak penalties, which the sets to begin with do not show.
        again = examples.risk(self, self._objective(examples, risk.potentials), risk.potentials, risk.seed)
        run = run._replace(on_iteration=lambda coef: False, verbose=0)
        second, right_second = train(again, start, run, self._score_of_training(again, examples))
        return second if second.interrupted is not None or right_second > right else first

    def _score_of_training(self, risk, examples, inference=None):
        """Function of flat weights: the share of the first training nodes that is labelled right."""
        # inference: what labels, the value of ``inference_``; None is the one chosen by the graphs
        # Callbacks and labelings given stay in this process: the copy has none.
        fitted = type(self)(**self.get_params(deep=False) | {"sets": "pl"})
        examples.encoded.record(fitted)
        vars(fitted).update(classes_=examples.labels.classes_, **self._chosen(examples.graphs))
        if inference is not None:
            fitted.inference_ = inference

        def score(coef):
            right, total = risk.summed(_right_nodes, fitted, coef, risk.n_nodes)
            return right / total if total else 1.0

        return score

    def _are_narrow(self, batches, potentials):
        return are_narrow(batches, potentials)

    def _chosen(self, graphs):
        if not isinstance(self.inference, str):
            return {"inference_": type(self.inference).__name__}
        if self.inference != "auto":
            return {"inference_": self.inference}
        return {"inference_": "mpm" if graphs.are_narrow else "trw"}

    def _decoding(self):
        # Models of earlier versions predict as they did then.
        chosen = getattr(self, "inference_", None) if self.inference == "auto" else None
        if chosen == "map":
            return NamedInference(AutoMap(bounded=True), "map")
        return self._by_marginals() if chosen == "trw" else resolve_inference(self.inference)

    def _by_marginals(self):
        trees = "auto" if self.lattice_ndim_ is None else "chains"
        return NamedInference(TRWMessagePassing(trees, max_iter=500, tol=1e-2), "mpm")

    def _able(self, task, inference=None):
        able = super()._able(task, inference)
        if inference is None and isinstance(able, AutoMarginals) and getattr(self, "inference_", None) == "map":
            of_marginals = self._by_marginals().inference
            return of_marginals if task in of_marginals.tasks else able
        return able

    def _store(self, record):
        super()._store(record)
        self.n_rounds_ = len(record.n_generated)
        self.n_generated_ = np.array(record.n_generated, dtype=np.int64)
        self.n_assignments_ = record.n_assignments
        self.converged_ = record.converged
        if record.inference is not None:
            self.inference_ = record.inference
        self.round_starts_ = np.array(record.round_starts, dtype=np.int64)

    def log_likelihood_ratio(self, X, Y1, Y2):
        r"""Logarithm of how much likelier one labeling is than another.

        .. math:: \log p(Y_1 \mid x) - \log p(Y_2 \mid x) = \mathrm{score}(x, Y_1) - \mathrm{score}(x, Y_2)

        Exact whatever the graph: the partition function cancels.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        Y1, Y2 : array-like
            A label for every node.

        Returns
        -------
        ndarray of shape (n_examples,)
        """
        return self.energy(X, Y2) - self.energy(X, Y1)


def _right_nodes(risk, fitted, coef, n_nodes):
    """Weights of the nodes that weights of a field label right, and of all, among the first nodes of a risk."""
    # n_nodes: of all shards; each labels an equal share of its own
    most, before = max(n_nodes, _NODES_TO_LABEL), np.cumsum([0] + [batch.example.n_nodes for batch in risk.batches])
    taken = before[:-1] * most < risk.n_nodes * _NODES_TO_LABEL
    truth = [batch for batch, is_taken in zip(risk.batches, taken, strict=True) if is_taken]
    weight = np.ones(risk.n_examples)
    for batch in truth:
        if batch.weight is not None:
            weight[batch.members] = batch.weight
    fitted = copy(fitted)
    fitted.n_jobs = risk.n_jobs
    with convergence_left_to_caller():
        columns = fitted._columns([replace(batch, labels=None) for batch in truth], risk.potentials, [coef])
    return np.array(right_nodes(columns, truth, weight))
