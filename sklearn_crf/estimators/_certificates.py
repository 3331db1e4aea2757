"""Log-likelihoods of labelings, and certificates that bound how far labelings are from the best score."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_coarse
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.models import clamped, score, score_terms


class Certificates(NamedTuple):
    """Scores of predicted labelings, with upper bounds on the best possible scores.

    Attributes
    ----------
    scores : ndarray of shape (n_examples,)
        Scores of the predicted labelings.
    bounds : ndarray of shape (n_examples,)
        Upper bounds on the score of any labeling.
    gaps : ndarray of shape (n_examples,)
        Differences between bounds and scores. 0 proves that no labeling has a higher score.
    """

    scores: np.ndarray
    bounds: np.ndarray
    gaps: np.ndarray

    @property
    def optimal(self) -> np.ndarray:
        """Whether each gap is zero, so that no labeling has a higher score up to rounding, (n_examples,) of bool."""
        return self.gaps <= 0


def certificates_of(models, labels, inference, named, n_jobs):
    """Return the certificates of one labeling of each model.

    ``named[i]()`` is a context manager that adds the name of example i to errors.
    """

    def run(task, n_threads):
        model, labeling, name = task
        reached = score(model, labeling)
        with name():
            bound = max(inference.map(model, n_threads=n_threads).bound, reached)
            return reached, Proof(model).bound(reached, bound)

    found = map_coarse(run, zip(models, labels, named, strict=True), n_jobs)
    scores, bounds = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return Certificates(scores, bounds, bounds - scores)


_OPPOSITE = {"exact": "exact", "upper": "lower", "lower": "upper"}


def log_likelihood_terms(model, labels, n_classes, inference, n_threads):
    """Return the log-likelihood of labels as a term for each node, and the kinds of bounds it is computed from."""
    # labels: (N,), -1 for missing labels, which are summed out, n_classes for unknown labels, which have probability 0
    # returns terms: (N,), which sum to the log-likelihood in each connected component; bounds: list
    is_unknown = labels == n_classes
    labels = np.where(is_unknown, -1, labels)
    free = inference.marginals(model, n_threads=n_threads)
    if free.log_z_terms is None:
        raise ValueError(f"{type(inference).__name__} does not compute a log-partition: use inference='bp' or 'trw'.")
    bounds = [_OPPOSITE.get(free.bound)]
    if np.all(labels >= 0):
        truth = score_terms(model, labels)
    else:
        fixed = inference.marginals(clamped(model, labels), n_threads=n_threads)
        truth = fixed.log_z_terms
        bounds.append(fixed.bound)
    return np.where(is_unknown, -np.inf, truth - free.log_z_terms), bounds


def common_bound(bounds):
    """Return the kind of bound of a sum, given the kinds of bounds of its terms; None if the sum is not a bound."""
    # bounds: set with "exact", "upper", "lower" or None for the results of all batches
    if None in bounds or {"upper", "lower"} <= bounds:
        return None
    return next(iter(bounds - {"exact"}), "exact")
