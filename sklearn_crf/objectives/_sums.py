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

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Piecewise, Pseudolikelihood, SumOfObjectives
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = SumOfObjectives([Piecewise(), Pseudolikelihood()]).loss_statistics(
    ...     model, labels
    ... )
    >>> round(float(loss.terms.sum()), 3)
    4.533
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

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import BatchObjectives, EmpiricalRisk, Piecewise
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(BatchObjectives([Piecewise()]), potentials, batches)
    >>> found = risk.value_grad(np.zeros(potentials.n_coef))
    >>> round(found.value, 3)
    7.625
    """

    of_examples = True

    def __init__(self, objectives):
        self.objectives = list(objectives)
        _take_over(self, self.objectives)

    def of_batch(self, i):
        return self.objectives[i]


def _take_over(whole, parts):
    """Declare for a sum what its parts declare together."""
    whole.needs = frozenset().union(*(part.needs for part in parts))
    whole.has_value = all(part.has_value for part in parts)
    whole.smooth = all(part.smooth for part in parts)
    whole.draws = any(part.draws for part in parts)
    treatments = {part.missing for part in parts}
    whole.missing = "rejected" if len(treatments) > 1 else next(iter(treatments), "marginalised")
    worst = [part.exact_on for part in parts if part.exact_on != "any"]
    whole.exact_on = "any" if not worst else "forest" if set(worst) == {"forest"} else None


def _plus(a, b):
    return Loss(
        statistics=a.statistics.plus(b.statistics),
        terms=a.terms + b.terms,
        converged=a.converged and b.converged,
    )
