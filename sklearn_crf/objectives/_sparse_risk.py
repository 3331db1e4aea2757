"""An objective over training examples with sparse features."""

from sklearn_crf._threads import map_tasks
from sklearn_crf.objectives._risk import EmpiricalRisk, total_of


class SparseRisk(EmpiricalRisk):
    """An :class:`EmpiricalRisk` whose pullback is one pass over the features of all batches.

    A gradient for every batch would take more memory and time than all else where there are many more weights than
    nodes in a batch.

    Parameters
    ----------
    objective : Objective
    potentials : SparsePotentials
    batches : list of Batch
        With labels, their examples as :meth:`SparsePotentials.prepared` returns.
    n_jobs : int or None, default=None
        Threads over batches, then over features.
    seed : int, default=0
        As of :class:`EmpiricalRisk`.
    """

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        self._ranges = potentials.shared_ranges([batch.example for batch in batches])

    def value_grad(self, coef, members=None):
        members = range(len(self.batches)) if members is None else members
        parts = map_tasks(lambda i, n_threads: self._weighted_loss(i, coef, n_threads), members, self.n_jobs)
        self._n_passes += 1
        examples = [self.batches[i].example for i in members]
        statistics = [part.statistics for part in parts]
        gradient = self.potentials.pullback_sum(examples, statistics, self._ranges, n_jobs=self.n_jobs)
        return total_of(parts, gradient)
