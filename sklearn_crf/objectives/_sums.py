"""Objectives made of objectives: their sum, and one for each batch."""

from functools import reduce

import numpy as np

from sklearn_crf.models import Statistics
from sklearn_crf.objectives._base import Loss, Objective


class SumOfObjectives(Objective):
    r"""Sum of losses of one model, :math:`\ell = \sum_j \ell_j`.

    Parameters
    ----------
    parts : sequence of Objective
        Such as pseudolikelihood and sets of assignments; none is a loss of zero. They have a value.
    """

    def __init__(self, parts):
        self.parts = list(parts)
        _take_over(self, self.parts)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        nothing = Loss(
            Statistics(np.zeros(model.unary.shape, dtype=model.dtype), np.zeros(model.tables.shape)),
            np.zeros(model.graph.n_nodes),
        )
        losses = [part.loss_statistics(model, labels, seed=seed, n_threads=n_threads) for part in self.parts]
        return reduce(_plus, losses, nothing)


class BatchObjectives(Objective):
    """An objective of its own for each batch of an :class:`EmpiricalRisk`.

    Parameters
    ----------
    objectives : sequence of Objective
        In the order of the batches.
    """

    def __init__(self, objectives):
        self.objectives = list(objectives)
        _take_over(self, self.objectives)

    def of_batch(self, i):
        return self.objectives[i]


def _take_over(whole, parts):
    """A sum is what all of its parts are."""
    whole.needs = frozenset().union(*(part.needs for part in parts))
    whole.has_value = all(part.has_value for part in parts)
    whole.smooth = all(part.smooth for part in parts)
    whole.draws = any(part.draws for part in parts)
    whole.missing = "rejected" if any(part.missing == "rejected" for part in parts) else "marginalised"
    worst = [part.exact_on for part in parts if part.exact_on != "any"]
    whole.exact_on = "any" if not worst else "forest" if set(worst) == {"forest"} else None


def _plus(a, b):
    return Loss(
        statistics=a.statistics.plus(b.statistics),
        terms=a.terms + b.terms,
        converged=a.converged and b.converged,
    )
