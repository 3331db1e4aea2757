"""What every field that is trained by minimising over its weights shares: from X and y to a risk, a start, a result."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
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
    require_complete,
    tie_constant_edges,
    validate_sample_weight,
)
from sklearn_crf.estimators._coupling import INFERENCES
from sklearn_crf.estimators._training import train
from sklearn_crf.estimators._weights import LinearWeights
from sklearn_crf.inference import Inference
from sklearn_crf.models import clamped, score_terms
from sklearn_crf.objectives import EmpiricalRisk, SparseRisk
from sklearn_crf.potentials import PAIRWISE_FORMS, SparseEdgePotentials


class FieldClassifier(LinearWeights, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the classifiers whose scores are linear in features on a graph.

    A subclass has the constructor parameters ``pairwise``, ``edge_features``, ``connectivity``, ``edge_types``,
    ``fit_intercept``, ``missing_label``, ``classes``, ``lattice_ndim``, ``n_jobs``; its ``fit`` sets what
    ``_weight_attributes`` returns; and it says which inference predicts in ``_decoding()``.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags

    # Encoding ------------------------------------------------------------------------------------------------------

    _takes_factors = False

    def _encode(self, X, *, reset):
        return encode_X(
            X,
            lattice_ndim=self.lattice_ndim,
            connectivity=self.connectivity,
            edge_features=self.edge_features,
            edge_types=self.edge_types,
            estimator=self,
            reset=reset,
            allow_factors=self._takes_factors,
        )

    def _encode_y(self, y, encoded, *, classes, name="y"):
        return encode_y(y, encoded, missing_label=self.missing_label, classes=classes, name=name)

    # Inference over examples ---------------------------------------------------------------------------------------

    def _voters(self, potentials):
        """Flat weight vectors that predict together; one unless a subclass lets several vote."""
        return [self._flat_weights(potentials)]

    def _prepare(self, X, labels=None, *, name="evidence", **options):
        """Encoded X, its batches, with labels if some are given by an argument of that name, and fitted potentials."""
        check_is_fitted(self)
        encoded = self._encode(X, reset=False)
        potentials = self._fitted_potentials(encoded)
        self._check_examples(encoded, potentials)
        known = None
        if labels is not None:
            known = self._encode_y(labels, encoded, classes=self.classes_, name=name).labels
        prepare = potentials.prepared if potentials.by_columns else tie_constant_edges
        return encoded, make_batches(encoded, known, prepare=prepare, **options), potentials

    def _check_examples(self, encoded, potentials):
        """Raise ValueError where X has what the examples of training had not."""
        n_types, n_classes = potentials.n_node_types, potentials.n_classes
        for i, example in enumerate(encoded.items or ()):
            # Their weights would be looked up beyond the last.
            if example.node_type is not None and example.node_type.max() >= n_types:
                raise ValueError(
                    f"X[{i}] has nodes of type {example.node_type.max()}, but {type(self).__name__} was fitted with "
                    f"{n_types} types of nodes, numbered from 0."
                )
            if example.n_states is not None and example.n_states.max() > n_classes:
                raise ValueError(
                    f"X[{i}].n_states goes up to {example.n_states.max()}, but there are {n_classes} classes."
                )
        if encoded.n_edge_types:
            self._check_edges(encoded, potentials)

    def _check_edges(self, encoded, potentials):
        if encoded.n_edge_types > potentials.n_edge_types:
            raise ValueError(
                f"X has {encoded.n_edge_types} types of edges, but {type(self).__name__} was fitted with "
                f"{potentials.n_edge_types}."
            )
        if encoded.has_sparse_edges and not isinstance(potentials, SparseEdgePotentials):
            raise ValueError(f"X has sparse edge features, but {type(self).__name__} was fitted with dense ones.")
        if encoded.n_edge_features != potentials.n_edge_features:
            raise ValueError(
                f"X has {encoded.n_edge_features} edge features, but {type(self).__name__} was fitted with "
                f"{potentials.n_edge_features}."
            )

    def _scores(self, potentials, weights, batch):
        """Model of a batch whose distribution predicts."""
        return potentials.model(weights, batch.example)

    def _model(self, potentials, weights, batch):
        """That model, clamped to the labels that are known."""
        model = self._scores(potentials, weights, batch)
        return model if batch.labels is None else clamped(model, batch.labels)

    def _voted_labels(self, X, evidence):
        """Labels of every batch by the best labeling of each voter and the majority of these."""
        encoded, batches, potentials = self._prepare(X, evidence)
        inference = self._decoding().inference
        voters = self._voters(potentials)
        n_classes = len(self.classes_)

        def run(batch, n_threads):
            votes = np.zeros((batch.example.n_nodes, n_classes), dtype=np.int32)
            for weights in voters:
                model = self._model(potentials, weights, batch)
                with batch.named_in_errors():
                    labels = inference.map(model, n_threads=n_threads).labels
                votes[np.arange(len(labels)), labels] += 1
            return np.argmax(votes, axis=1).astype(np.int32)

        with single_threaded_blas():
            return encoded, batches, map_tasks(run, batches, self.n_jobs)

    # The public methods --------------------------------------------------------------------------------------------

    def predict(self, X, evidence=None):
        """Labels of every node.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: these are predicted given
            the former.

        Returns
        -------
        ndarray
            Of the shape of X without its last axis; for a list, a 1-D object array of arrays.
        """
        encoded, batches, columns = self._predict_columns(X, evidence)
        return decode(encoded, columns, batches, classes=self.classes_)

    def _predict_columns(self, X, evidence=None):
        """Encoded X, its batches, and the column of each node's label for every batch."""
        return self._voted_labels(X, evidence)

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
        truth = self._encode_y(y, encoded, classes=self.classes_).labels
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
        check_is_fitted(self)
        encoded = self._encode(X, reset=False)
        labels = self._encode_y(y, encoded, classes=self.classes_)
        potentials = self._fitted_potentials(encoded)
        self._check_examples(encoded, potentials)
        weights = self._flat_weights(potentials)
        energies = np.zeros(encoded.n_examples)
        for batch in make_batches(encoded, labels.labels):
            terms = score_terms(potentials.model(weights, batch.example), require_complete(batch, "energy"))
            energies[batch.members] = -np.add.reduceat(terms, batch.node_ptr[:-1])
        return energies


# What weights of two fits have in common: attributes of their potentials.
_COUNTS = {
    "n_features": "features",
    "n_node_types": "types of nodes",
    "n_edge_types": "types of edges",
    "n_edge_features": "edge features",
}


class TrainedField(FieldClassifier):
    """Base of the fields whose weights minimise an objective over training examples.

    A subclass has the constructor parameters of ``_parameter_constraints``, ``solver`` and perhaps more, calls
    :meth:`_fit`, and says which objective it minimises, by what, from where.
    """

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "inference": [StrOptions(set(INFERENCES)), Inference],
        "pairwise": [StrOptions({"auto", *PAIRWISE_FORMS})],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "edge_types": [StrOptions({"tied", "offset"})],
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

    def _check_labels(self, labels):
        """Raise ValueError where a parameter does not fit the classes."""

    def _with_node_weights(self, encoded, batches):
        """The batches, with weights of nodes where the loss has them."""
        return batches

    def _objective(self, batches, labels):
        """Objective for the graphs of the batches and the classes of the labels."""
        raise NotImplementedError(type(self).__name__)

    def _objective_of_batches(self, encoded, batches, labels, potentials):
        """The same, for a subclass whose objective keeps something for each batch."""
        return self._objective(batches, labels)

    def _n_iterations(self):
        """Most iterations that callbacks will hear of."""
        return self.max_iter

    def _training_options(self, objective, encoded, potentials):
        """What :meth:`_train` needs of the constructor parameters."""
        raise NotImplementedError(type(self).__name__)

    def _cold_start(self, risk, options, rng):
        """Flat weights where training starts."""
        return np.zeros(risk.potentials.n_coef)

    def _batch_nodes(self, encoded):
        """Nodes up to which examples are packed."""
        # Mini-batches are of examples, so none may be packed with others.
        return 1 if self.solver == "sgd" else 4096

    def _cyclic_batch_nodes(self, encoded):
        """Nodes up to which examples are packed if one has a cycle."""
        return 1

    def _factor_batch_nodes(self):
        """Nodes up to which examples with factors are packed."""
        return 1

    def _train(self, risk, start, options, rng, on_iteration):
        return train(risk, start, options, rng, on_iteration)

    def _fit(self, X, y, sample_weight):
        encoded = self._encode(X, reset=True)
        labels = self._encode_y(y, encoded, classes=self.classes)
        self._check_labels(labels)
        weight = validate_sample_weight(sample_weight, encoded.n_examples)
        rng = check_random_state(self.random_state)
        packing = {
            "max_nodes": self._batch_nodes(encoded),
            "max_cyclic_nodes": self._cyclic_batch_nodes(encoded),
            "max_factor_nodes": self._factor_batch_nodes(),
        }
        batches = make_batches(encoded, labels.labels, weight, prepare=self._prepare_example(encoded), **packing)
        batches = self._with_node_weights(encoded, batches)
        potentials = self._make_potentials(encoded, labels.classes_, batches)
        objective = self._objective_of_batches(encoded, batches, labels, potentials)
        make_risk = SparseRisk if potentials.by_columns else EmpiricalRisk
        seed = int(rng.randint(np.iinfo(np.int32).max))
        risk = make_risk(objective, potentials, batches, n_jobs=self.n_jobs, seed=seed)
        options = self._training_options(objective, encoded, potentials)
        with single_threaded_blas(), fit_callbacks(self, X, y, self._n_iterations()) as iteration:
            start = self._start(encoded, labels, risk, options, rng)

            def on_iteration(coef):
                return iteration(lambda: self._fitted_now(encoded, labels, risk, coef))

            outcome = self._train(risk, start, options, rng, on_iteration)
        # Everything that can fail has happened: only now does the estimator change.
        encoded.record(self)
        self.classes_ = labels.classes_
        self._store(potentials, outcome)
        for name, value in self._chosen(risk).items():
            setattr(self, name, value)
        if outcome.interrupted is not None:
            raise outcome.interrupted
        return self

    def _fitted_now(self, encoded, labels, risk, coef):
        """What a callback needs to predict with the weights of now."""
        return {
            "n_features_in_": encoded.n_features,
            "lattice_ndim_": encoded.lattice_ndim,
            "classes_": labels.classes_,
            **self._weight_attributes(risk.potentials, coef),
            **self._chosen(risk),
        }

    def _start(self, encoded, labels, risk, options, rng):
        if not (self.warm_start and hasattr(self, "coef_")):
            return self._cold_start(risk, options, rng)
        if not np.array_equal(self.classes_, labels.classes_):
            raise ValueError(
                f"warm_start=True needs the classes of the former fit, {self.classes_.tolist()}, got "
                f"{labels.classes_.tolist()}: name those that y misses by classes."
            )
        found, needed = self._fitted_potentials(encoded), risk.potentials
        for name, what in _COUNTS.items():
            before, now = getattr(found, name), getattr(needed, name)
            if before != now:
                raise ValueError(f"warm_start=True needs as many {what} as the former fit had, {before}, got {now}.")
        if type(found) is not type(needed):
            raise ValueError(
                "warm_start=True needs features of nodes and edges as in the former fit, sparse or dense, and factors "
                "if that had some."
            )
        return self._flat_weights(needed)

    def _chosen(self, risk):
        """Attributes that say what was chosen by the training examples, and that prediction needs."""
        return {}

    def _store(self, potentials, outcome):
        for name, value in self._weight_attributes(potentials, outcome.coef).items():
            setattr(self, name, value)
        record = outcome.trace.arrays()
        self.loss_curve_ = record["loss"]
        self.gradient_norm_curve_ = record["gradient_norm"]
        self.error_curve_ = record["errors"]
        self.n_iter_ = outcome.n_iter
        self._store_trace(outcome, record)

    def _store_trace(self, outcome, record):
        """Set what else an estimator keeps of its training."""
