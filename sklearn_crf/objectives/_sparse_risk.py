"""An objective over training examples with sparse features."""

from dataclasses import replace

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.objectives._risk import EmpiricalRisk, total_of

# Batches whose statistics are kept until they are pulled back.
_N_TOGETHER = 8


class SparseRisk(EmpiricalRisk):
    """An :class:`EmpiricalRisk` whose pullback is one pass over the features of many batches.

    A gradient for every batch would take more memory and time than all else where there are many more weights than
    nodes in a batch.

    Parameters
    ----------
    objective : Objective
    potentials : SparsePotentials
    batches : list of Batch
        With labels.
    n_jobs : int or None, default=None
        Threads over batches, then over features.
    seed : int, default=0
        As of :class:`EmpiricalRisk`.
    """

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        batches = [replace(batch, example=potentials.prepared(batch.example)) for batch in batches]
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        self._ranges = potentials.shared_ranges([batch.example for batch in batches])

    def value_grad(self, coef, members=None):
        members = list(range(len(self.batches)) if members is None else members)
        gradient = np.zeros(self.potentials.n_coef)
        parts = []
        for first in range(0, len(members), _N_TOGETHER):
            together = members[first : first + _N_TOGETHER]
            losses = map_tasks(lambda i, n_threads: self._weighted_loss(i, coef, n_threads), together, self.n_jobs)
            examples = [self.batches[i].example for i in together]
            statistics = [part.statistics for part in losses]
            self.potentials.add_pullbacks(gradient, examples, statistics, self._ranges, n_jobs=self.n_jobs)
            parts.extend(part._replace(statistics=None) for part in losses)
        self._n_passes += 1
        return total_of(parts, gradient)
