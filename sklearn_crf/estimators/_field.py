"""The classifiers whose scores are linear in features on a graph: fit, labels, scores, best labelings."""

from functools import partial
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._callbacks import CallbackSupportMixin, fit_callbacks
from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import (
    decode,
    encode_X,
    encode_y,
    make_batches,
    object_array,
    require_complete,
    tie_constant_edges,
    validate_sample_weight,
)
from sklearn_crf.estimators._certificates import Certificates, certify
from sklearn_crf.estimators._weights import WeightLayout, check_examples
from sklearn_crf.inference import NAMES, Inference, NamedInference, TreeBestLabelings, resolve_inference
from sklearn_crf.learning import TrainingRun, initial_weights, with_node_weights
from sklearn_crf.models import FactorGraph, PairwiseModel, clamped, score_terms
from sklearn_crf.objectives import EmpiricalRisk, SparseRisk
from sklearn_crf.potentials import PAIRWISE_FORMS, PairwiseTables, pairwise_form


class FieldClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the classifiers whose scores are linear in features on a graph.

    A subclass has the constructor parameters of ``_parameter_constraints``; it says what predicts (``_decoding``), what
    is minimised (``_objective``), how (``_train``), and what is kept (``_store``).
    """

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "edge_C": [Interval(Real, 0, None, closed="neither"), None],
        "inference": [StrOptions(set(NAMES)), Inference],
        "pairwise": [StrOptions({"auto", *PAIRWISE_FORMS}), PairwiseTables],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "fit_intercept": ["boolean"],
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
    _takes_factors = False
    _takes_sparse_edges = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags

    def set_params(self, **params):
        """Set parameters, also those of an object that is one: ``learning__step_size=0.2``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        estimator
            self
        """
        for name in params:
            owner, nested, _ = name.partition("__")
            value = params.get(owner, getattr(self, owner, None))
            if nested and isinstance(value, str):
                raise ValueError(
                    f"{name} cannot be set, since {owner}={value!r} is a name, which has no parameters: pass an object "
                    f"first, as in {owner}={self._example_of(owner)}."
                )
        return super().set_params(**params)

    def _example_of(self, owner):
        """An object that a parameter takes in place of a name, for errors."""
        return {"inference": "LoopyBP()", "pairwise": "PairwiseTables()"}.get(owner, "...")

    # What a subclass says ------------------------------------------------------------------------------------------

    def _decoding(self) -> NamedInference:
        """The inference that predicts, and the rule by which it labels."""
        raise NotImplementedError(type(self).__name__)

    def _check_parameters(self):
        """Raise ValueError where parameters do not go together, before any work is done."""

    def _check_labels(self, labels):
        """Raise ValueError where a parameter does not fit the classes."""

    def _packing(self, encoded):
        """Nodes up to which examples are packed: of forests, of graphs with cycles, with factors."""
        return {"max_nodes": 4096, "max_cyclic_nodes": 1, "max_factor_nodes": 1}

    def _objective(self, encoded, batches, labels, potentials):
        """What is minimised."""
        raise NotImplementedError(type(self).__name__)

    def _train(self, risk, encoded, make_start, run):
        """The record of a training; ``make_start(init)`` gives the weights it starts from."""
        raise NotImplementedError(type(self).__name__)

    def _n_iterations(self):
        """Most iterations that callbacks will hear of."""
        return self.max_iter

    def _chosen(self, batches, potentials):
        """Attributes that say what was chosen by the training examples, and that prediction needs."""
        return {}

    def _store(self, record):
        """Set what is kept of the training besides weights."""
        self.loss_curve_ = record.curve("loss")
        self.gradient_norm_curve_ = record.curve("gradient_norm")
        self.error_curve_ = record.curve("errors")
        self.n_iter_ = record.n_iter
        self.converged_ = record.converged
        self.stop_reason_ = record.stop_reason
        self.best_iter_ = record.best_iter

    # Training ------------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, node_weight=None):
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
        node_weight : sequence of array-like, optional
            For each example an array of the shape of its labels: factors of what errors cost at each node. Only where
            the loss has a cost of nodes.

        Returns
        -------
        estimator
            self
        """
        self._check_parameters()
        encoded = self._encode(X, reset=True)
        labels = encode_y(y, encoded, missing_label=self.missing_label, classes=self.classes)
        self._check_labels(labels)
        layout = self._weight_layout(labels.classes_)
        weight = validate_sample_weight(sample_weight, encoded.n_examples)
        rng = check_random_state(self.random_state)
        batches = make_batches(
            encoded, labels.labels, weight, prepare=layout.prepare(encoded), **self._packing(encoded)
        )
        batches = with_node_weights(node_weight, encoded, batches)
        potentials = layout.potentials(encoded, labels.classes_, batches)
        objective = self._objective(encoded, batches, labels, potentials)
        if node_weight is not None and not objective.weighs_nodes:
            raise ValueError(
                f"node_weight weighs what errors cost at each node, but the loss of {type(self).__name__} has no cost "
                "here: use sample_weight, or a loss with a cost, such as M3NClassifier() or "
                "TRWCRF(formulation=Relaxation(cost='hamming'))."
            )
        make_risk = SparseRisk if potentials.by_columns else EmpiricalRisk
        seed = int(rng.randint(np.iinfo(np.int32).max))
        risk = make_risk(objective, potentials, batches, n_jobs=self.n_jobs, seed=seed)
        with single_threaded_blas(), fit_callbacks(self, X, y, self._n_iterations()) as iteration:

            def fitted_now(coef):
                return {
                    "n_features_in_": encoded.n_features,
                    "lattice_ndim_": encoded.lattice_ndim,
                    "classes_": labels.classes_,
                    **layout.attributes(potentials, coef),
                    **self._chosen(batches, potentials),
                }

            run = TrainingRun(
                C=self.C,
                edge_C=self.edge_C,
                max_iter=self.max_iter,
                tol=self.tol,
                rng=rng,
                n_jobs=self.n_jobs,
                verbose=self.verbose,
                keeps_interrupted=self.warm_start,
                on_iteration=lambda coef: iteration(lambda: fitted_now(coef)),
            )
            former = self._former_weights(encoded, labels, potentials)
            make_start = partial(initial_weights, risk=risk, run=run) if former is None else lambda init: former
            record = self._train(risk, encoded, make_start, run)
        # Everything that can fail has happened: only now does the estimator change.
        encoded.record(self)
        self.classes_ = labels.classes_
        for name, value in {**layout.attributes(potentials, record.coef), **self._chosen(batches, potentials)}.items():
            setattr(self, name, value)
        self._store(record)
        if record.interrupted is not None:
            raise record.interrupted
        return self

    def _former_weights(self, encoded, labels, potentials):
        """Flat weights of the last fit for a warm start; None for a cold one."""
        if not (self.warm_start and hasattr(self, "coef_")):
            return None
        if not np.array_equal(self.classes_, labels.classes_):
            raise ValueError(
                f"warm_start=True needs the classes of the former fit, {self.classes_.tolist()}, got "
                f"{labels.classes_.tolist()}: name those that y misses by classes."
            )
        found = self._fitted_potentials(encoded)
        for name, what in _COUNTS.items():
            before, now = getattr(found, name), getattr(potentials, name)
            if before != now:
                raise ValueError(f"warm_start=True needs as many {what} as the former fit had, {before}, got {now}.")
        if type(found) is not type(potentials):
            raise ValueError(
                "warm_start=True needs features of nodes and edges as in the former fit, sparse or dense, and factors "
                "if that had some."
            )
        return self._flat_weights(potentials)

    # Encoding ------------------------------------------------------------------------------------------------------

    def _tables(self):
        """The parameter ``pairwise`` as an object."""
        if isinstance(self.pairwise, str):
            return PairwiseTables(self.pairwise)
        tables = clone(self.pairwise)
        tables._validate_params()
        return tables

    def _weight_layout(self, classes):
        return self._layout_of(self._tables(), classes)

    def _layout_of(self, tables, classes):
        return WeightLayout(
            form=pairwise_form(tables.form, len(classes)),
            fit_intercept=self.fit_intercept,
            forbidden=tables.forbidden_pairs(classes),
            takes_factors=self._takes_factors,
        )

    def _fitted_potentials(self, encoded=None):
        """Potentials of the fitted weights, for the features of some encoded X."""
        return self._weight_layout(self.classes_).fitted_potentials(self, encoded)

    def _flat_weights(self, potentials):
        """The fitted weights as a flat vector of potentials."""
        return self._weight_layout(self.classes_).flat(self, potentials)

    def _encode(self, X, *, reset):
        encoded = encode_X(
            X,
            lattice_ndim=self.lattice_ndim,
            connectivity=self.connectivity,
            edge_features=self.edge_features,
            edge_types=self._tables().edge_types,
            estimator=self,
            reset=reset,
            allow_factors=self._takes_factors,
        )
        if encoded.has_sparse_edges and not self._takes_sparse_edges:
            raise ValueError(f"{type(self).__name__} takes dense edge features only, got sparse ones: TRWCRF has both.")
        return encoded

    def _prepare(self, X, labels=None, *, name="evidence", **options):
        """Encoded X, its batches, with labels if some are given by an argument of that name, potentials, weights."""
        check_is_fitted(self)
        encoded = self._encode(X, reset=False)
        potentials = self._fitted_potentials(encoded)
        check_examples(encoded, potentials, type(self).__name__)
        known = None
        if labels is not None:
            missing = self.missing_label
            known = encode_y(labels, encoded, missing_label=missing, classes=self.classes_, name=name).labels
        prepare = potentials.prepared if potentials.by_columns else tie_constant_edges
        batches = make_batches(encoded, known, prepare=prepare, **options)
        return encoded, batches, potentials, self._flat_weights(potentials)

    # Prediction ----------------------------------------------------------------------------------------------------

    def _voters(self, weights):
        """Flat weight vectors that predict together; one unless a subclass lets several vote."""
        return [weights]

    def _scores(self, potentials, weights, batch):
        """Model of a batch whose distribution predicts."""
        return potentials.model(weights, batch.example)

    def _model(self, potentials, weights, batch):
        """That model, clamped to the labels that are known."""
        model = self._scores(potentials, weights, batch)
        return model if batch.labels is None else clamped(model, batch.labels)

    def _predict_columns(self, X, evidence=None, inference=None):
        """Encoded X, its batches, and the column of each node's label for every batch."""
        encoded, batches, potentials, weights = self._prepare(X, evidence)
        chosen = self._decoding() if inference is None else resolve_inference(inference)
        voters = self._voters(weights)
        n_classes = len(self.classes_)

        def run(batch, n_threads):
            votes = np.zeros((batch.example.n_nodes, n_classes), dtype=np.int32)
            for voter in voters:
                model = self._model(potentials, voter, batch)
                with batch.named_in_errors():
                    labels = self._labels(chosen, model, n_threads)
                votes[np.arange(len(labels)), labels] += 1
            return np.argmax(votes, axis=1).astype(np.int32)

        with single_threaded_blas():
            return encoded, batches, map_tasks(run, batches, self.n_jobs)

    def _labels(self, chosen, model, n_threads):
        """Columns of the labels of one model by an inference."""
        return chosen.inference.map(model, n_threads=n_threads).labels

    def predict(self, X, evidence=None, *, inference=None):
        """Labels of every node.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: these are predicted given
            the former.
        inference : str or Inference, optional
            What predicts; None is the estimator's own.

        Returns
        -------
        ndarray
            Of the shape of X without its last axis; for a list, a 1-D object array of arrays.
        """
        encoded, batches, columns = self._predict_columns(X, evidence, inference)
        return decode(encoded, columns, batches, classes=self.classes_)

    def score(self, X, y, sample_weight=None):
        """Accuracy over labelled nodes.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            True labels; nodes that carry ``missing_label`` are left out.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If y holds a label that is not in ``classes_``: name all classes by ``classes`` where a fold may miss some.
        """
        encoded, _, columns = self._predict_columns(X)
        truth = encode_y(y, encoded, missing_label=self.missing_label, classes=self.classes_).labels
        weight = validate_sample_weight(sample_weight, encoded.n_examples)
        weight = np.ones(encoded.n_examples) if weight is None else weight
        right = total = 0.0
        for batch, predicted in zip(make_batches(encoded, truth), columns, strict=True):
            labelled = batch.labels >= 0
            share = np.repeat(weight[batch.members], np.diff(batch.node_ptr))[labelled]
            right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
            total += float(share.sum())
        if not total:
            raise ValueError("y has no labelled node of positive weight: there is nothing to score.")
        return right / total

    def models(self, X, evidence=None) -> list[PairwiseModel | FactorGraph]:
        """The model of every example under the fitted weights.

        Any inference, writer of files or display works on these.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: all other states of these
            nodes are forbidden.

        Returns
        -------
        list of PairwiseModel or FactorGraph
            One for each example; states are in the order of ``classes_``.
        """
        _, batches, potentials, weights = self._prepare(X, evidence, max_nodes=1)
        return [self._model(potentials, weights, batch) for batch in batches]

    def energy(self, X, y):
        """Energy of labelings, the negative of their scores: smaller is likelier.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            A label for every node.

        Returns
        -------
        ndarray of shape (n_examples,)
        """
        encoded, batches, potentials, weights = self._prepare(X, y, name="y")
        energies = np.zeros(encoded.n_examples)
        for batch in batches:
            terms = score_terms(potentials.model(weights, batch.example), require_complete(batch, "energy"))
            energies[batch.members] = -np.add.reduceat(terms, batch.node_ptr[:-1])
        return energies

    def certify(self, X, inference=None, *, max_work: float = 1e8) -> Certificates:
        """Duality gaps of predictions: by what the best labelings can score higher at most.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        inference : str or Inference, optional
            One that bounds the best score from above, or its name. None is :class:`~sklearn_crf.inference.TRWS`,
            which is exact on examples without cycles, and :class:`~sklearn_crf.inference.MPLP` where examples have
            factors, followed by :class:`~sklearn_crf.inference.ClusterTightening` where a gap remains.
        max_work : float, default=1e8
            Budget of that for each example, in table entries that are read: a second or so. 0 leaves it out, and it
            leaves out examples whose tables are too large for it.

        Returns
        -------
        Certificates

        Raises
        ------
        ValueError
            If ``inference`` finds no best labelings, or ``max_work`` is negative.

        Notes
        -----
        Where each node has its likeliest label (marginal decoding) the labeling need not be the best one, and a gap
        says how far it is from that.
        """
        if isinstance(inference, str):
            inference = resolve_inference(inference).inference
        if inference is not None and "map" not in inference.tasks:
            raise ValueError(f"certify needs an inference for best labelings, {type(inference).__name__} is none.")
        if not max_work >= 0:
            raise ValueError(f"max_work must not be negative, got {max_work!r}.")
        encoded, batches, columns = self._predict_columns(X)
        labels = [None] * encoded.n_examples
        for batch, predicted in zip(batches, columns, strict=True):
            for member, part in zip(batch.members, np.split(predicted, batch.node_ptr[1:-1]), strict=True):
                labels[member] = part
        # One example each: bounds are of whole models.
        _, single, potentials, weights = self._prepare(X, max_nodes=1)
        models = [potentials.model(weights, batch.example) for batch in single]
        with single_threaded_blas():
            named = [batch.named_in_errors for batch in single]
            return certify(models, labels, inference, max_work, named, self.n_jobs)

    def predict_topk(self, X, k=5):
        """The k best labelings of every example, exactly: examples without cycles.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        k : int, default=5
            Fewer come back where an example has fewer labelings.

        Returns
        -------
        labels : ndarray of shape (n_examples,), of object
            An array ``(k, *lattice)`` of labels each, the best first.
        scores : ndarray of shape (n_examples,), of object
            An array ``(k,)`` of their scores each.

        Raises
        ------
        ValueError
            If an example has cycles or factors.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k!r}.")
        encoded, batches, potentials, weights = self._prepare(X, max_nodes=1)
        inference = TreeBestLabelings(k)

        def run(batch, n_threads):
            require_no_factors(batch, "predict_topk")
            with batch.named_in_errors():
                return inference.best(potentials.model(weights, batch.example))

        with single_threaded_blas():
            found = map_tasks(run, batches, self.n_jobs)
        shapes = [() if encoded.layout == "nodes" else encoded.label_shape(i) for i in range(encoded.n_examples)]
        labels = [self.classes_[best.labels].reshape(-1, *shape) for best, shape in zip(found, shapes, strict=True)]
        return object_array(labels), object_array([best.scores for best in found])


# What weights of two fits have in common: attributes of their potentials.
_COUNTS = {
    "n_features": "features",
    "n_node_types": "types of nodes",
    "n_edge_types": "types of edges",
    "n_edge_features": "edge features",
}


def require_no_factors(batch, method):
    """Raise ValueError where an example has factors besides nodes and edges."""
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not take.")
