"""Contrastive objective over sets of assignments."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from sklearn_crf.models import PairwiseModel, check_labels, score
from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives.contrastive._assignment_sets import AssignmentSets

# Maximum number of labelings for which separate sets, one for each labeling, are affordable.
_MOST_LABELINGS = 2**16


def tangent_sets(model: PairwiseModel, labels: np.ndarray) -> AssignmentSets:
    r"""Return sets tangent to the likelihood at a model, one for each wrong labeling (Lemma 3).

    .. math::
        w_{jk} = |Y| \sum_{y \in \{y_j, y_k\}} \tfrac1{|Y|} \, p(y; \theta_0), \qquad
        \left. \frac{\partial \ell}{\partial \theta} \right|_{\theta_0} =
        \left. -\frac{\partial \log p(y^*; \theta)}{\partial \theta} \right|_{\theta_0}

    An algorithm that alternates gradient steps with new tangent sets resembles expectation-maximisation for the
    likelihood. The algorithm is only feasible for a handful of nodes, because there is a set for each labeling.

    Parameters
    ----------
    model : PairwiseModel
        Model with the scores :math:`\theta_0`.
    labels : array-like of shape (N,) of int
        True labels.

    Returns
    -------
    AssignmentSets

    Raises
    ------
    ValueError
        If there are more than 65,536 labelings.

    References
    ----------
    D. Vickrey, C. Lin, D. Koller. Non-Local Contrastive Objectives. ICML 2010, Lemma 3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import ContrastiveSets, tangent_sets
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> sets = tangent_sets(model, [1, 1, 1])
    >>> round(
    ...     float(ContrastiveSets(sets).loss_statistics(model, sets.labels).terms.sum()), 3
    ... )
    0.705
    """
    n_nodes, n_columns = model.unary.shape
    if n_columns**n_nodes > _MOST_LABELINGS:
        raise ValueError(
            f"tangent sets support at most {_MOST_LABELINGS} labelings, but this model has {n_columns}**{n_nodes}."
        )
    labelings = np.array(list(product(range(n_columns), repeat=n_nodes)), dtype=np.int32).reshape(-1, n_nodes)
    scores = np.array([score(model, labeling) for labeling in labelings])
    probability = np.exp(scores - scores.max())
    probability /= probability.sum()
    sets = AssignmentSets(model, labels)
    true_row = np.flatnonzero((labelings == sets.labels).all(axis=1))[0]
    for row, labeling in enumerate(labelings):
        if row != true_row:
            weight = probability[row] + probability[true_row]
            sets.add_set(model, np.stack((sets.labels, labeling)), weight=weight)
    return sets


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
