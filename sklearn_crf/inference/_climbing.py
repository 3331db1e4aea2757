"""Single changes: no labeling is returned that one node could improve alone."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._local_polytope import LocalPolytope
from sklearn_crf.inference._local_updates import local_arguments, visits
from sklearn_crf.kernels.local.icm import icm_update
from sklearn_crf.models import FactorGraph, score

# Climbing mostly ends after some ten sweeps.
_MAX_SWEEPS = 100

# Joint states of all factors together up to which sweeps over a factor graph take less than a second.
_MOST_CELLS = 1_000_000


class Climber:
    """Changes labelings of a pairwise model one node at a time as long as that gains."""

    def __init__(self, model):
        self.arguments = local_arguments(model)
        self.nodes = visits(model.graph, "sequential")[0]
        self.work = np.empty(model.n_columns)

    def climb(self, labels):
        """Change labels in place."""
        for _ in range(_MAX_SWEEPS):
            checkpoint()
            if not icm_update(self.nodes, 0, len(self.nodes), *self.arguments, labels, self.work):
                break
        return labels


def climbed(model, labels):
    """Labels of no lower score that no change of one node improves.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    labels : ndarray of shape (N,), int32
        With a finite score.

    Returns
    -------
    ndarray of shape (N,), int32
    """
    if not isinstance(model, FactorGraph):
        return Climber(model).climb(labels.copy())
    if model.log_table.size > _MOST_CELLS or model.n_factors * 100 > _MOST_CELLS:
        return labels
    found = LocalPolytope(model).improved(labels)
    # Sums in another order: a tie may look like a gain.
    return found if score(model, found) > score(model, labels) else labels
