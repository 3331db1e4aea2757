"""How far labelings can be from the best ones."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import MPLP, TRWS
from sklearn_crf.models import FactorGraph, score


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


def certify(models, labels, inference, named, n_jobs):
    """Certificates of one labeling of each model; ``named[i]()`` is a context that names the example in errors."""
    if inference is None:
        inference = MPLP() if any(isinstance(model, FactorGraph) for model in models) else TRWS()

    def run(i, n_threads):
        with named[i]():
            best = inference.map(models[i], n_threads=n_threads)
        reached = score(models[i], labels[i])
        return reached, max(best.bound, reached)

    found = map_tasks(run, range(len(models)), n_jobs)
    scores, bounds = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return Certificates(scores, bounds, bounds - scores)
