"""Log-likelihoods and scores of labelings, and whether they are exact, bounds, or proven to be the best."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_coarse
from sklearn_crf.inference import AutoMap, able_inference
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference.automatic._cost import Budget
from sklearn_crf.models import clamped, score, score_terms


class Certificates(NamedTuple):
    """Bounds on the scores of the best labelings.

    Attributes
    ----------
    scores : ndarray of shape (n_examples,)
        Of the labels that were predicted.
    bounds : ndarray of shape (n_examples,)
        That no labeling exceeds.
    gaps : ndarray of shape (n_examples,)
        Bounds less scores: 0 proves that no labeling scores higher.
    """

    scores: np.ndarray
    bounds: np.ndarray
    gaps: np.ndarray

    @property
    def optimal(self) -> np.ndarray:
        """True where the gap is zero: no labeling scores higher up to rounding, (n_examples,) of bool."""
        return self.gaps <= 0


def bounding_inference(inference, budget):
    """The inference that bounds best scores, of the parameters of ``certify``."""
    Budget.of(budget)
    return able_inference("auto" if inference is None else inference, "map", "certify()", AutoMap(budget=budget))


def certificates_of(models, labels, inference, named, n_jobs):
    """Certificates of one labeling of each model; ``named[i]()`` is a context that names the example in errors."""

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
    """Return terms of the log-likelihood of labels by node, and the bounds that they are made of."""
    # labels: (N,), -1 for those summed out, n_classes for those of no class, which have probability 0
    # returns terms: (N,), which sum to the log-likelihood of each connected component; bounds: list
    is_unknown = labels == n_classes
    labels = np.where(is_unknown, -1, labels)
    free = inference.marginals(model, n_threads=n_threads)
    if free.log_z_terms is None:
        raise ValueError(f"{type(inference).__name__} has no log-partition: use inference='bp' or 'trw'.")
    bounds = [_OPPOSITE.get(free.bound)]
    if np.all(labels >= 0):
        truth = score_terms(model, labels)
    else:
        fixed = inference.marginals(clamped(model, labels), n_threads=n_threads)
        truth = fixed.log_z_terms
        bounds.append(fixed.bound)
    return np.where(is_unknown, -np.inf, truth - free.log_z_terms), bounds


def common_bound(bounds):
    """Bound of the sum of numbers that have these bounds."""
    # bounds: set of what the results of all batches say of their values
    if None in bounds or {"upper", "lower"} <= bounds:
        return None
    return next(iter(bounds - {"exact"}), "exact")
