"""How far predicted labelings can be from the best ones."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding import make_batches
from sklearn_crf.estimators._coupling import resolve_decoding
from sklearn_crf.inference import MPLP, TRWS
from sklearn_crf.models import score


class Certificates(NamedTuple):
    """What is known of the best labelings.

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


class CertifiedPredictions:
    """Mixin of field classifiers."""

    def certify(self, X, inference=None):
        """Duality gaps of predictions: by what the best labelings can score higher at most.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        inference : str or Inference, optional
            One that bounds the best score from above, or its name. None is :class:`~sklearn_crf.inference.TRWS`,
            which is exact on examples without cycles, and :class:`~sklearn_crf.inference.MPLP` where examples have
            factors.

        Returns
        -------
        Certificates

        Raises
        ------
        ValueError
            If ``inference`` finds no best labelings.

        Notes
        -----
        Where each node has its likeliest label (``inference="auto"`` and ``"mpm"``) the labeling need not be the best
        one, and a gap says how far it is from that.
        """
        if isinstance(inference, str):
            inference = resolve_decoding(inference).inference
        if inference is not None and "map" not in inference.tasks:
            raise ValueError(f"certify needs an inference for best labelings, {type(inference).__name__} is none.")
        encoded, batches, columns = self._predict_columns(X)
        if inference is None:
            inference = MPLP() if encoded.has_factors else TRWS()
        labels = [None] * encoded.n_examples
        for batch, predicted in zip(batches, columns, strict=True):
            for member, part in zip(batch.members, np.split(predicted, batch.node_ptr[1:-1]), strict=True):
                labels[member] = part
        potentials = self._fitted_potentials(encoded)
        weights = self._flat_weights(potentials)

        def run(batch, n_threads):
            model = potentials.model(weights, batch.example)
            with batch.named_in_errors():
                best = inference.map(model, n_threads=n_threads)
            reached = score(model, np.concatenate([labels[member] for member in batch.members]))
            return reached, max(best.bound, reached)

        # One example each: bounds are of whole models.
        single = make_batches(encoded, max_nodes=1)
        with single_threaded_blas():
            found = map_tasks(run, single, self.n_jobs)
        scores, bounds = np.empty((2, encoded.n_examples))
        for batch, (reached, bound) in zip(single, found, strict=True):
            scores[batch.members], bounds[batch.members] = reached, bound
        return Certificates(scores, bounds, bounds - scores)
