"""Contrastive objective over sets of assignments."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_crf.models import check_labels
from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives.contrastive._assignment_sets import AssignmentSets


class ContrastiveSets(Objective):
    r"""Negative log-probability of the true labeling among the labelings of each set, not among all labelings.

    .. math::
        \ell(\theta) = -\sum_j w_j \log \frac{\exp(\mathrm{score}(y^*))}{\sum_{y \in S_j} \exp(\mathrm{score}(y))},
        \qquad y^* \in S_j

    The loss is convex and smooth, and needs no partition function. With one set of all labelings it is the likelihood.
    If each node has a set of the labelings that differ from the truth at most at that node, the loss is the
    pseudolikelihood. Ratios of probabilities are only learned for assignments that are connected by overlapping sets.
    Labels must be the labels for which the sets were made.

    Sets of draws from a proposal q (``log_proposal`` of :meth:`AssignmentSets.add_set`) use :math:`\mathrm{score}(y) -
    \log q(y)` in place of the score. With one set of the truth and k draws, the loss is the ranking loss of
    noise-contrastive estimation. With k sets of the truth and one draw each, the loss is conditional noise-contrastive
    estimation.

    Source: Vickrey, Lin, Koller 2010, Definition 2; for proposals Ma and Collins, *Noise Contrastive Estimation and
    Negative Sampling for Conditional Models*, EMNLP 2018; Ceylan and Gutmann, *Conditional Noise-Contrastive Estimation
    of Unnormalised Models*, ICML 2018.

    Parameters
    ----------
    sets : AssignmentSets
        Sets of one batch, which may grow from call to call.
    others : sequence of Objective, default=()
        Objectives without inference whose losses are added, such as the pseudolikelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import AssignmentSets, ContrastiveSets
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> sets = AssignmentSets(model, [1, 1, 1])
    >>> sets.add_set(model, [[1, 1, 1], [1, 0, 1], [0, 0, 0]])
    True
    >>> round(
    ...     float(ContrastiveSets(sets).loss_statistics(model, sets.labels).terms.sum()), 3
    ... )
    0.479
    """

    missing = "left out"

    def __init__(self, sets: AssignmentSets, others: Sequence[Objective] = ()):
        self.sets = sets
        self.others = list(others)

    def loss_statistics(self, model: Any, labels: np.ndarray, *, n_threads: int = 1, **unused: Any) -> Loss:
        # Usually, ``labels`` is the array stored in the sets. A check is then not needed.
        labels = labels if labels is self.sets.labels else check_labels(model, labels, may_miss=True)
        if np.any((labels != self.sets.labels) & (labels >= 0)):
            raise ValueError("labels differ from the labels for which the sets of assignments were made.")
        terms, statistics = self.sets.terms_and_statistics(model)
        for other in self.others:
            loss = other.loss_statistics(model, labels, n_threads=n_threads)
            terms, statistics = terms + loss.terms, statistics.plus(loss.statistics)
        return Loss(statistics=statistics, terms=terms)


class SetsOfBatches(Objective):
    """Objective that has separate contrastive sets for each batch of an :class:`EmpiricalRisk`."""

    # objectives: list of ContrastiveSets, in the order of the batches

    missing = "left out"
    of_examples = True

    def __init__(self, objectives: Sequence[ContrastiveSets]):
        self.objectives = list(objectives)

    def of_batch(self, i: int) -> ContrastiveSets:
        return self.objectives[i]
