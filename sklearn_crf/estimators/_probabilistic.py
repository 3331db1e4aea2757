"""The field classifiers with a distribution over labelings: marginals, likelihoods, samples."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import decode, object_array
from sklearn_crf.estimators._field import FieldClassifier, require_no_factors
from sklearn_crf.inference import TreeInference, able, resolve_inference
from sklearn_crf.models import clamped, score_terms


class LogLikelihood(NamedTuple):
    """Log-probabilities of labelings.

    Attributes
    ----------
    values : ndarray of shape (n_examples,)
    bound : {"exact", "upper", "lower"} or None
        What all values are of the true ones; None if that is not known.
    """

    values: np.ndarray
    bound: str | None


class ProbabilisticField(FieldClassifier):
    """Base of the field classifiers with a distribution: each node's best state under its marginals, the marginals."""

    def _asked(self, inference=None):
        """The inference that a method asks, and the rule by which it labels."""
        return self._decoding() if inference is None else resolve_inference(inference)

    def _mean_marginals(self, X, evidence=None, inference=None):
        """Node marginals of every batch, averaged over the voters."""
        encoded, batches, potentials, weights = self._prepare(X, evidence)
        chosen = able("marginals", self._asked(inference).inference)
        voters = self._voters(weights)

        def run(batch, n_threads):
            total = 0.0
            for voter in voters:
                model = self._model(potentials, voter, batch)
                with batch.named_in_errors():
                    marginals = chosen.marginals(model, n_threads=n_threads)
                # Factor graphs have as many columns as some node of theirs has states.
                missing = len(self.classes_) - marginals.unary.shape[1]
                total = total + np.pad(marginals.unary.astype(np.float64), ((0, 0), (0, missing)))
            return total / len(voters)

        with single_threaded_blas():
            return encoded, batches, map_tasks(run, batches, self.n_jobs)

    def _predict_columns(self, X, evidence=None, inference=None):
        check_is_fitted(self)
        if self._asked(inference).rule == "map":
            return super()._predict_columns(X, evidence, inference)
        encoded, batches, marginals = self._mean_marginals(X, evidence, inference)
        return encoded, batches, [self._decide(probability) for probability in marginals]

    def _decide(self, probability):
        """Columns chosen from marginals; the largest unless a subclass weighs costs."""
        return np.argmax(probability, axis=1)

    def predict_proba(self, X, evidence=None, *, inference=None):
        """Marginal probability of each class at every node.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.
        inference : str or Inference, optional
            What gives the marginals; None is the one that predicts if it can, else the automatic choice.

        Returns
        -------
        ndarray
            As ``predict`` gives, with a last axis of ``n_classes``.
        """
        encoded, batches, marginals = self._mean_marginals(X, evidence, inference)
        return decode(encoded, marginals, batches)

    def predict_log_proba(self, X, evidence=None, *, inference=None):
        """Logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.
        inference : str or Inference, optional
            As of ``predict_proba``.

        Returns
        -------
        ndarray
            As ``predict_proba`` gives.
        """
        encoded, batches, marginals = self._mean_marginals(X, evidence, inference)
        with np.errstate(divide="ignore"):
            return decode(encoded, [np.log(probability) for probability in marginals], batches)

    def predict_edge_proba(self, X, evidence=None, *, inference=None):
        """Joint probability of the labels of the two ends of every edge.

        Parameters
        ----------
        X : list of examples or array-like
            As in ``fit``, with edges.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.
        inference : str or Inference, optional
            As of ``predict_proba``.

        Returns
        -------
        ndarray of shape (n_examples,), of object
            An array ``(n_edges, n_classes, n_classes)`` each, edges in the order of its graph (of a chain, from the
            first node on). Entry (a, b) belongs to class a at the first node of the edge.

        Raises
        ------
        ValueError
            If a graph has cycles and the inference gives no marginals of edges there, or an example has factors.
        """
        _, batches, potentials, weights = self._prepare(X, evidence)
        asked = able("marginals", self._asked(inference).inference)

        def run(batch, n_threads):
            require_no_factors(batch, "predict_edge_proba")
            model = self._model(potentials, weights, batch)
            chosen = TreeInference() if model.graph.is_forest else asked
            if not hasattr(chosen, "edge_marginals"):
                raise ValueError(f"{type(chosen).__name__} gives no marginals of edges: use inference='bp'.")
            with batch.named_in_errors():
                return chosen.edge_marginals(model, n_threads=n_threads)

        with single_threaded_blas():
            parts = map_tasks(run, batches, self.n_jobs)
        marginals = []
        for batch, part in zip(batches, parts, strict=True):
            # The edges of one member follow those of the member before.
            first_nodes = batch.example.graph.edges[:, 0]
            member = np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1
            ends = np.searchsorted(member, np.arange(len(batch.members) + 1))
            marginals.extend(part[a:b].copy() for a, b in pairwise(ends))
        return object_array(marginals)

    def log_likelihood(self, X, y, *, inference=None) -> LogLikelihood:
        """Log-probability of labelings, of what is labelled where labels are missing.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels; nodes that carry ``missing_label`` are summed out.
        inference : str or Inference, optional
            As of ``predict_proba``.

        Returns
        -------
        LogLikelihood
            By the inference that gives marginals: with an upper bound on the log-partition it is a lower bound.

        Raises
        ------
        ValueError
            If the inference has no log-partition.
        """
        encoded, batches, potentials, weights = self._prepare(X, y, name="y")
        chosen = able("marginals", self._asked(inference).inference)

        def run(batch, n_threads):
            model = self._scores(potentials, weights, batch)
            with batch.named_in_errors():
                free = chosen.marginals(model, n_threads=n_threads)
                if free.log_z_terms is None:
                    raise ValueError(f"{type(chosen).__name__} has no log-partition: use inference='bp' or 'trw'.")
                bounds = [_OPPOSITE.get(free.bound)]
                if np.all(batch.labels >= 0):
                    truth = score_terms(model, batch.labels)
                else:
                    fixed = chosen.marginals(clamped(model, batch.labels), n_threads=n_threads)
                    truth = fixed.log_z_terms
                    bounds.append(fixed.bound)
            return np.add.reduceat(truth - free.log_z_terms, batch.node_ptr[:-1]), bounds

        with single_threaded_blas():
            parts = map_tasks(run, batches, self.n_jobs)
        values = np.zeros(encoded.n_examples)
        for batch, (part, _) in zip(batches, parts, strict=True):
            values[batch.members] = part
        return LogLikelihood(values, _common({bound for _, bounds in parts for bound in bounds}))

    def sample(self, X, n_samples=1, random_state=None, evidence=None, *, inference=None):
        """Labelings drawn from the conditional distribution: exact on forests, Gibbs samples otherwise.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.
        inference : str or Inference, optional
            What draws; None is the one that predicts if it can, else the automatic choice.

        Returns
        -------
        ndarray
            As ``predict`` gives, with a leading axis of ``n_samples``; for a list of examples, a 1-D object array
            of arrays with that leading axis.
        """
        encoded, batches, potentials, weights = self._prepare(X, evidence)
        chosen = able("sample", self._asked(inference).inference)
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(batches))

        def run(task, n_threads):
            batch, seed = task
            model = self._model(potentials, weights, batch)
            with batch.named_in_errors():
                return chosen.sample(model, n_samples, random_state=int(seed), n_threads=n_threads)

        with single_threaded_blas():
            drawn = map_tasks(run, list(zip(batches, seeds, strict=True)), self.n_jobs)
        # Batches are decoded node by node, so the axis of samples travels last and comes back first.
        decoded = decode(encoded, [labels.T for labels in drawn], batches, classes=self.classes_)
        if encoded.layout == "list":
            for i, labels in enumerate(decoded):
                decoded[i] = np.moveaxis(labels, -1, 0)
            return decoded
        return np.moveaxis(decoded, -1, 0)


_OPPOSITE = {"exact": "exact", "upper": "lower", "lower": "upper"}


def _common(bounds):
    """Bound of the sum of numbers that have these bounds."""
    if None in bounds or {"upper", "lower"} <= bounds:
        return None
    return next(iter(bounds - {"exact"}), "exact")
