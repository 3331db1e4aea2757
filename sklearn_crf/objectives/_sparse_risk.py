"""The empirical risk of examples with sparse features, pulled back for many batches together."""

from dataclasses import replace
from functools import partial

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.objectives._base import EmpiricalRisk, total_of
from sklearn_crf.objectives._example_weights import weight_of_nodes
from sklearn_crf.potentials import SparsePotentials

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

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.objectives import Pseudolikelihood, SparseRisk
    >>> from sklearn_crf.potentials import (
    ...     FeaturePairs,
    ...     SparsePotentials,
    ...     pairwise_form,
    ...     with_feature_columns,
    ... )
    >>> encoded = encode_X(
    ...     [sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]])], edge_features="constant"
    ... )
    >>> labels = encode_y([[0, 1]], encoded).labels
    >>> batches = make_batches(
    ...     encoded, labels, prepare=lambda example: with_feature_columns(example, 1)
    ... )
    >>> potentials = SparsePotentials(
    ...     FeaturePairs.all(2, 1), 2, 2, pairwise_form("potts", 2)
    ... )
    >>> risk = SparseRisk(Pseudolikelihood(), potentials, batches)
    >>> round(risk.value_grad(np.zeros(potentials.n_coef)).value, 3)
    1.386
    """

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        batches = [replace(batch, example=potentials.prepared(batch.example)) for batch in batches]
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        self._ranges = potentials.shared_ranges([batch.example for batch in batches])

    @property
    def curvature(self):
        if not isinstance(self.potentials, SparsePotentials):
            return None
        node_weights = [weight_of_nodes(batch) for batch in self.batches]
        return self.potentials.curvature([batch.example for batch in self.batches], node_weights)

    def _sum_of_batches(self, coef, members):
        members = list(members)
        gradient = np.zeros(self.potentials.n_coef)
        parts = []
        for first in range(0, len(members), _N_TOGETHER):
            together = members[first : first + _N_TOGETHER]
            weighted = map_tasks(partial(self.oracle, coef=coef, pulls_back=False), together, self.n_jobs)
            examples = [self.batches[i].example for i in together]
            statistics = [part.statistics for part in weighted]
            self.potentials.add_pullbacks(gradient, examples, statistics, self._ranges, n_jobs=self.n_jobs)
            parts.extend(part._replace(statistics=None) for part in weighted)
        return total_of(parts, gradient)
