"""Contrastive objective over sets of whole assignments."""

import numpy as np

from sklearn_crf.objectives._base import Loss, Objective


class ContrastiveSets(Objective):
    r"""Negative log-probability of the truth within each of its sets, in place of among all labelings.

    .. math::
        \ell(\theta) = -\sum_j w_j \log \frac{\exp(\mathrm{score}(y^*))}{\sum_{y \in S_j} \exp(\mathrm{score}(y))},
        \qquad y^* \in S_j

    Convex and smooth, and no partition function: with all labelings in one set it is the likelihood, with the states of
    one node in each it is the pseudolikelihood. Probabilities are calibrated among assignments that a chain of sets
    joins. Labels are those that the sets were made for.

    Source: Vickrey, Lin, Koller 2010, Definition 2.

    Parameters
    ----------
    sets : AssignmentSets
        Of one batch. They may grow from call to call.
    """

    missing = "rejected"

    def __init__(self, sets):
        self.sets = sets

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        # Mostly they are the same array, which needs no look at its numbers.
        if labels is not self.sets.labels and not np.array_equal(labels, self.sets.labels):
            raise ValueError("labels differ from those that the sets of assignments were made for.")
        terms, statistics = self.sets.terms_and_statistics(model)
        return Loss(statistics=statistics, terms=terms)
