"""ContrastiveCRF: contrastive objectives and constraint generation."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf.estimators._contrastive_training import (
    INITS,
    ContrastiveOptions,
    add_sets,
    checked_sets,
    initial_objective,
    train_by_rounds,
)
from sklearn_crf.estimators._coupling import (
    INFERENCES,
    map_inference,
    marginal_inference,
    resolve_decoding,
    sampling_inference,
)
from sklearn_crf.estimators._field import TrainedField
from sklearn_crf.estimators._margin_cost import cost_matrix, is_per_node, with_node_weights
from sklearn_crf.estimators._marginal_predictions import MarginalPredictions
from sklearn_crf.inference import ICM, Inference, LoopyBP
from sklearn_crf.objectives import GibbsGenerator, MapGenerator, MostViolated

#: What generates assignments; the others look for violated constraints.
GENERATORS = ("icm", "map", "gibbs", "icm_mv", "map_mv", "gibbs_mv")


class ContrastiveCRF(MarginalPredictions, TrainedField):
    r"""Conditional random field trained to tell the truth from sets of other labelings.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 - C \sum_i \sum_{j: y_i \in S_j} w_j(x_i)
            \log \frac{\exp(\mathrm{score}_w(x_i, y_i))}{\sum_{y \in S_j} \exp(\mathrm{score}_w(x_i, y))}

    The score is that of :class:`DRFClassifier`. The truth is to be probable among the labelings of each set
    :math:`S_j`, which needs their scores alone and no partition function. A set of all labelings is the likelihood,
    sets of the states of one node are the pseudolikelihood. Sets of labelings far from the truth compare what local
    methods cannot; contrastive constraint generation finds them: it optimises, looks for labelings that the model
    likes, adds them to the set of their example, and repeats until none is new. Unlike a margin this calibrates
    probabilities.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty; intercepts are free.
    generator : {"icm", "map", "gibbs", "icm_mv", "map_mv", "gibbs_mv"}, list or None, default="map"
        What finds labelings: ``generator_inference``, from random messages if it passes messages; iterated conditional
        modes from random labels, quicker and weaker; or ``gibbs_sweeps`` sweeps from the truth. With "_mv" the cost is
        added to the scores (most violated constraints). A list takes all that it names, None generates nothing.
    init : {"pl", "gpl", "observed", "empty"}, default="pl"
        Sub-objectives to begin with: the pseudolikelihood; the generalised one of ``blocks``; the pseudolikelihood and
        one set of all labelings seen in training, for examples of one lattice ("Contrastive" of the paper); or none.
    blocks : {"rows", "columns"}, int or list, default=2
        Blocks of ``init="gpl"``: lines of a lattice, windows of so many nodes a side, or for each example a list of
        arrays of nodes. Nodes are numbered in the order of the labels.
    sets : list of array-like of shape (m, \*lattice), optional
        Labelings of further sets ("Simple Contrastive"); each is for the examples of its lattice whose labels it holds.
    set_weight : array-like of shape (n_sets,) or (n_sets, n_examples), optional
        :math:`w_j(x_i)` of ``sets``; None is one. See :func:`~sklearn_crf.objectives.decomposed_weights`.
    n_new : int, default=1
        Labelings of each example, generator and round.
    generated_weight : float or "n_nodes", default=1.0
        :math:`w_j` of the set of an example that gathers what is generated: one in the paper. Pseudolikelihood has a
        term for each node; "n_nodes" weighs the set as much.
    max_rounds : int, default=20
        Most rounds of generation; for ``solver="sgd"``, epochs with generation.
    gibbs_sweeps : int, default=10
        Sweeps of "gibbs".
    generator_inference : str or Inference, default="auto"
        What "map" runs: any that finds best labelings. "auto" is max-product with residual scheduling, as in the paper.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or list of ndarray, default="hamming"
        Cost for "_mv", as of :class:`M3NClassifier`.
    inference : str or Inference, default="auto"
        What predicts, as in :class:`DRFClassifier`. The paper found "icm" better than max-product.
    pairwise : {"auto", "ising", "potts", "symmetric", "full"}, default="auto"
        Weights of a pairwise table: see :func:`~sklearn_crf.potentials.pairwise_form`.
    edge_features : str or callable, default="difference"
        As in :class:`DRFClassifier`.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on a lattice.
    edge_types : {"tied", "offset"}, default="tied"
        Whether all edges of a lattice share their weights, or those of one offset.
    fit_intercept : bool, default=True
        Whether nodes have a constant term.
    solver : {"lbfgs", "sgd"}, default="lbfgs"
        Rounds of L-BFGS, each from where the last one ended; or stochastic gradient descent over mini-batches of
        examples, which generates for those of a step before it makes the step.
    step_size : float, default=0.1
        First step of "sgd"; the gradient is the mean over nodes.
    step_schedule : {"annealed", "sqrt", "constant"}, default="annealed"
        How steps of "sgd" shrink.
    batch_size : int, default=8
        Examples of a mini-batch.
    max_iter : int, default=200
        Most iterations of a round; epochs of "sgd".
    tol : float, default=1e-4
        Largest entry of the gradient per node at which a round stops.
    missing_label : object, default=None
        Value in y of nodes that ``score`` leaves out. Training needs all labels.
    classes : array-like, optional
        All classes, where some may be missing from the training labels.
    lattice_ndim : int, optional
        Number of lattice axes of an example; None reads it from X.
    warm_start : bool, default=False
        Start from the last fit's weights, also from those of a fit that was interrupted. Sets begin anew.
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
    n_rounds_ : int
        Rounds of generation.
    n_generated_ : ndarray of shape (n_rounds_,)
        Labelings that were new in each.
    n_assignments_ : int
        Labelings in all sets at the end, true ones and those of families not counted.
    converged_ : bool
        Whether the last round found nothing new. With random starts that can take long, and more rounds may not
        change the weights much.
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
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(scale=0.5, size=(20, 8, 8, 1))
    >>> ContrastiveCRF(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.9
    True

    Pseudolikelihood alone overrates the neighbours here, so that one label takes all nodes:

    >>> ContrastiveCRF(generator=None).fit(X[:10], y[:10]).score(X[10:], y[10:]) < 0.3
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **TrainedField._parameter_constraints,
        "generator": [StrOptions(set(GENERATORS)), list, None],
        "init": [StrOptions(set(INITS))],
        "blocks": [StrOptions({"rows", "columns"}), Interval(Integral, 1, None, closed="left"), list],
        "sets": [list, None],
        "set_weight": ["array-like", None],
        "n_new": [Interval(Integral, 1, None, closed="left")],
        "generated_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"n_nodes"})],
        "max_rounds": [Interval(Integral, 0, None, closed="left")],
        "gibbs_sweeps": [Interval(Integral, 1, None, closed="left")],
        "generator_inference": [StrOptions(set(INFERENCES)), Inference],
        "cost": [StrOptions({"hamming"}), "array-like"],
        "solver": [StrOptions({"lbfgs", "sgd"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"annealed", "sqrt", "constant"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        C=1.0,
        *,
        generator="map",
        init="pl",
        blocks=2,
        sets=None,
        set_weight=None,
        n_new=1,
        generated_weight=1.0,
        max_rounds=20,
        gibbs_sweeps=10,
        generator_inference="auto",
        cost="hamming",
        inference="auto",
        pairwise="auto",
        edge_features="difference",
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
        self.generator = generator
        self.init = init
        self.blocks = blocks
        self.sets = sets
        self.set_weight = set_weight
        self.n_new = n_new
        self.generated_weight = generated_weight
        self.max_rounds = max_rounds
        self.gibbs_sweeps = gibbs_sweeps
        self.generator_inference = generator_inference
        self.cost = cost
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
            Plain rows ``(n, F)``, chains ``(n, T, F)``, images ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists
            of such examples of any sizes, or a list of :class:`~sklearn_crf.Example`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        ContrastiveCRF
            self
        """
        return self._fit(X, y, sample_weight)

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

    # Inference -----------------------------------------------------------------------------------------------------

    def _decoding(self):
        return resolve_decoding(self.inference)

    def _marginal_inference(self):
        return marginal_inference(self._decoding())

    def _sampling_inference(self):
        return sampling_inference(self._decoding())

    # Training ------------------------------------------------------------------------------------------------------

    def _check_labels(self, labels):
        # Bad parameters are named before any work is done.
        self._generators(labels)
        if self.set_weight is not None and not self.sets:
            raise ValueError("set_weight weighs the sets that sets names, but there are none.")

    def _generators(self, labels):
        names = [self.generator] if isinstance(self.generator, str) else self.generator or []
        cost = cost_matrix(self.cost, None, labels)
        return [self._generator(name, cost) for name in names]

    def _generator(self, name, cost):
        if name not in GENERATORS:
            raise ValueError(f"generator must hold names among {', '.join(GENERATORS)}, got {name!r}.")
        kind, _, violated = name.partition("_")
        if kind == "gibbs":
            generator = GibbsGenerator(self.gibbs_sweeps)
        elif kind == "icm":
            generator = MapGenerator(ICM())
        elif isinstance(self.generator_inference, str) and self.generator_inference == "auto":
            generator = MapGenerator(LoopyBP(schedule="residual"))
        else:
            generator = MapGenerator(map_inference(self.generator_inference, "generator_inference"))
        return MostViolated(generator, cost) if violated else generator

    def _objective_of_batches(self, encoded, batches, labels, potentials):
        if isinstance(self.blocks, list) and self.init == "gpl" and len(self.blocks) != encoded.n_examples:
            raise ValueError(f"blocks holds lists for {len(self.blocks)} examples, but X has {encoded.n_examples}.")
        objective = initial_objective(self.init, self.blocks, self.generated_weight, encoded, batches, potentials)
        if self.sets:
            given = checked_sets(self.sets, self.set_weight, labels.classes_, encoded.n_examples)
            add_sets(*given, encoded, batches, potentials, objective)
        # Costs stay with the generators: other losses than those of margins have no weights of nodes.
        costed = with_node_weights(self.cost, encoded, batches) if is_per_node(self.cost) else batches
        objective.generate_by(self._generators(labels), [batch.node_weight for batch in costed])
        return objective

    def _n_iterations(self):
        return self.max_iter if self.solver == "sgd" else self.max_rounds + 1

    def _cyclic_batch_nodes(self, encoded):
        # The objective looks labelings up, whatever their graphs; generators run on members.
        return self._batch_nodes(encoded)

    def _training_options(self, objective, encoded, potentials):
        return ContrastiveOptions(
            solver=self.solver,
            C=self.C,
            n_new=self.n_new,
            max_rounds=self.max_rounds,
            step_size=self.step_size,
            step_schedule=self.step_schedule,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            tol=self.tol,
            keeps_interrupted=self.warm_start,
            verbose=self.verbose,
        )

    def _train(self, risk, start, options, rng, on_iteration):
        return train_by_rounds(risk, start, options, rng, on_iteration)

    def _store_trace(self, outcome, record):
        self.n_rounds_ = len(outcome.n_generated)
        self.n_generated_ = np.array(outcome.n_generated, dtype=np.int64)
        self.n_assignments_ = outcome.n_assignments
        self.round_starts_ = np.array(outcome.round_starts, dtype=np.int64)
        self.converged_ = outcome.converged
