"""Log-likelihoods and scores of labelings, and whether they are exact, bounds, or proven to be the best."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_coarse
from sklearn_crf.inference import (
    MPLP,
    TRWS,
    ClusterTightening,
    able_inference,
    convergence_left_to_caller,
)
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.models import FactorGraph, clamped, score, score_terms


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


def bounding_inference(inference, max_work):
    """The inference that bounds best scores, of the parameters of ``certify``; None where its models choose it."""
    if not max_work >= 0:
        raise ValueError(f"max_work must not be negative, got {max_work!r}.")
    return None if inference is None else able_inference(inference, "map", "certify()")


def certificates_of(models, labels, inference, max_work, named, n_jobs):
    """Certificates of one labeling of each model; ``named[i]()`` is a context that names the example in errors."""
    tightening = ClusterTightening(max_work) if inference is None and max_work else None
    if inference is None:
        inference = MPLP() if any(isinstance(model, FactorGraph) for model in models) else TRWS()

    def run(task, n_threads):
        model, labeling, name = task
        reached = score(model, labeling)
        with name():
            proof = Proof(model)
            bound = proof.bound(reached, max(inference.map(model, n_threads=n_threads).bound, reached))
            if tightening is None or bound <= reached or not tightening.fits(model):
                return reached, bound
            # The budget is the user's choice: a gap that remains is the answer.
            with convergence_left_to_caller():
                tightened = tightening.map(model, init=labeling, n_threads=n_threads)
        return reached, proof.bound(reached, max(min(bound, tightened.bound), reached))

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
