"""What a distribution over labelings says of whole examples: likelihoods, pairs of labels, the best labelings."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import object_array
from sklearn_crf.inference import TreeBestLabelings, TreeInference
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


class WholeExamples:
    """Mixin of field classifiers with marginals."""

    def log_likelihood(self, X, y):
        """Log-probability of labelings, of what is labelled where labels are missing.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels; nodes that carry ``missing_label`` are summed out.

        Returns
        -------
        LogLikelihood
            By the inference that gives marginals: with an upper bound on the log-partition it is a lower bound.
        """
        encoded, batches, potentials = self._prepare(X, y, name="y")
        weights, inference = self._flat_weights(potentials), self._marginal_inference()

        def run(batch, n_threads):
            model = self._scores(potentials, weights, batch)
            with batch.named_in_errors():
                free = inference.marginals(model, n_threads=n_threads)
                bounds = [_OPPOSITE.get(free.bound)]
                if np.all(batch.labels >= 0):
                    truth = score_terms(model, batch.labels)
                else:
                    fixed = inference.marginals(clamped(model, batch.labels), n_threads=n_threads)
                    truth = fixed.log_z_terms
                    bounds.append(fixed.bound)
            return np.add.reduceat(truth - free.log_z_terms, batch.node_ptr[:-1]), bounds

        with single_threaded_blas():
            parts = map_tasks(run, batches, self.n_jobs)
        values = np.zeros(encoded.n_examples)
        for batch, (part, _) in zip(batches, parts, strict=True):
            values[batch.members] = part
        return LogLikelihood(values, _common({bound for _, bounds in parts for bound in bounds}))

    def predict_edge_proba(self, X):
        """Joint probability of the labels of the two ends of every edge.

        Parameters
        ----------
        X : list of examples or array-like
            As in ``fit``, with edges.

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
        _, batches, potentials = self._prepare(X)
        weights, inference = self._flat_weights(potentials), self._marginal_inference()

        def run(batch, n_threads):
            _require_no_factors(batch, "predict_edge_proba")
            model = self._scores(potentials, weights, batch)
            chosen = TreeInference() if model.graph.is_forest else inference
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
        encoded, batches, potentials = self._prepare(X, max_nodes=1)
        weights, inference = self._flat_weights(potentials), TreeBestLabelings(k)

        def run(batch, n_threads):
            _require_no_factors(batch, "predict_topk")
            with batch.named_in_errors():
                return inference.best(potentials.model(weights, batch.example))

        with single_threaded_blas():
            found = map_tasks(run, batches, self.n_jobs)
        shapes = [() if encoded.layout == "nodes" else encoded.label_shape(i) for i in range(encoded.n_examples)]
        labels = [self.classes_[best.labels].reshape(-1, *shape) for best, shape in zip(found, shapes, strict=True)]
        return object_array(labels), object_array([best.scores for best in found])


def _require_no_factors(batch, method):
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not take.")


_OPPOSITE = {"exact": "exact", "upper": "lower", "lower": "upper"}


def _common(bounds):
    """What the sum of numbers with these bounds is."""
    if None in bounds or {"upper", "lower"} <= bounds:
        return None
    return next(iter(bounds - {"exact"}), "exact")
