"""What every field classifier shares: arrays to batches, inference over batches, and results back."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import decode, encode_X, encode_y, make_batches, tie_constant_edges, validate_sample_weight
from sklearn_crf.estimators._callbacks import CallbackSupportMixin
from sklearn_crf.estimators._complete_labels import require_complete
from sklearn_crf.estimators._weights import LinearWeights
from sklearn_crf.models import clamped, score_terms
from sklearn_crf.potentials import SparseEdgePotentials


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
