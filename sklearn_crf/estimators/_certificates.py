"""How far labelings can be from the best ones."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import MPLP, TRWS, ClusterTightening, Labeling, convergence_left_to_caller
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

    @property
    def optimal(self) -> np.ndarray:
        """True where the gap is zero up to rounding: no labeling scores higher, (n_examples,) of bool."""
        return self.gaps <= 1e-9 * np.maximum(1.0, np.abs(self.scores))


def certify(models, labels, inference, max_work, named, n_jobs):
    """Certificates of one labeling of each model; ``named[i]()`` is a context that names the example in errors."""
    tightening = ClusterTightening(max_work) if inference is None and max_work else None
    if inference is None:
        inference = MPLP() if any(isinstance(model, FactorGraph) for model in models) else TRWS()

    def run(i, n_threads):
        model, reached = models[i], score(models[i], labels[i])
        with named[i]():
            best = inference.map(model, n_threads=n_threads)
            found = Labeling(labels[i], reached, max(best.bound, reached))
            if tightening is None or found.certified or not tightening.fits(model):
                return reached, found.bound
            # The budget is the user's choice: a gap that remains is the answer.
            with convergence_left_to_caller():
                tightened = tightening.map(model, init=labels[i], n_threads=n_threads)
        return reached, max(min(found.bound, tightened.bound), reached)

    found = map_tasks(run, range(len(models)), n_jobs)
    scores, bounds = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return Certificates(scores, bounds, bounds - scores)
