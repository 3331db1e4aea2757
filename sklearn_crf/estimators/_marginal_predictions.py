"""What classifiers with a distribution over labelings add to a field: marginals, decisions from them, samples."""

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import decode


class MarginalPredictions:
    """Mixin before :class:`FieldClassifier`: each node's best state under its marginals, and the marginals.

    A subclass says which inferences give marginals and samples in ``_marginal_inference()`` and
    ``_sampling_inference()``.
    """

    def _mean_marginals(self, X, evidence=None):
        """Node marginals of every batch, averaged over the voters."""
        encoded, batches, potentials = self._prepare(X, evidence)
        inference = self._marginal_inference()
        voters = self._voters(potentials)

        def run(batch, n_threads):
            total = 0.0
            for weights in voters:
                model = self._model(potentials, weights, batch)
                with batch.named_in_errors():
                    marginals = inference.marginals(model, n_threads=n_threads)
                total = total + self._of_all_classes(marginals.unary)
            return total / len(voters)

        with single_threaded_blas():
            return encoded, batches, map_tasks(run, batches, self.n_jobs)

    def _of_all_classes(self, unary):
        """Marginals with a column for each class, float64; factor graphs have as many as some node of theirs."""
        missing = len(self.classes_) - unary.shape[1]
        return np.pad(unary.astype(np.float64), ((0, 0), (0, missing)))

    def _predict_columns(self, X, evidence=None):
        """Encoded X, its batches, and the column of each node's label for every batch."""
        check_is_fitted(self)
        if self._decoding().rule == "map":
            return super()._predict_columns(X, evidence)
        encoded, batches, marginals = self._mean_marginals(X, evidence)
        return encoded, batches, [self._decide(probability) for probability in marginals]

    def _decide(self, probability):
        """Columns chosen from marginals; the largest unless a subclass weighs costs."""
        return np.argmax(probability, axis=1)

    def predict_proba(self, X, evidence=None):
        """Marginal probability of each class at every node.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.

        Returns
        -------
        ndarray
            As ``predict`` gives, with a last axis of ``n_classes``.
        """
        encoded, batches, marginals = self._mean_marginals(X, evidence)
        return decode(encoded, marginals, batches)

    def predict_log_proba(self, X):
        """Logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.

        Returns
        -------
        ndarray
            As ``predict_proba`` gives.
        """
        encoded, batches, marginals = self._mean_marginals(X)
        with np.errstate(divide="ignore"):
            return decode(encoded, [np.log(probability) for probability in marginals], batches)

    def sample(self, X, n_samples=1, random_state=None):
        """Labelings drawn from the conditional distribution: exact on forests, Gibbs samples otherwise.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray
            As ``predict`` gives, with a leading axis of ``n_samples``; for a list of examples, a 1-D object array
            of arrays with that leading axis.
        """
        encoded, batches, potentials = self._prepare(X)
        weights = self._flat_weights(potentials)
        inference = self._sampling_inference()
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(batches))

        def run(task, n_threads):
            batch, seed = task
            model = self._scores(potentials, weights, batch)
            with batch.named_in_errors():
                return inference.sample(model, n_samples, random_state=int(seed), n_threads=n_threads)

        with single_threaded_blas():
            drawn = map_tasks(run, list(zip(batches, seeds, strict=True)), self.n_jobs)
        # Batches are decoded node by node, so the axis of samples travels last and comes back first.
        decoded = decode(encoded, [labels.T for labels in drawn], batches, classes=self.classes_)
        if encoded.layout == "list":
            for i, labels in enumerate(decoded):
                decoded[i] = np.moveaxis(labels, -1, 0)
            return decoded
        return np.moveaxis(decoded, -1, 0)
