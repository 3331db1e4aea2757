"""Pseudolikelihood: every node given the true labels of its neighbours."""

import numpy as np

from sklearn_crf.factor_graphs import FactorGraph
from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives._factor_conditionals import factor_conditionals
from sklearn_crf.objectives._pseudolikelihood_terms import pseudolikelihood_terms


class Pseudolikelihood(Objective):
    r"""Negative log-pseudolikelihood.

    .. math:: \ell(\theta) = -\sum_s \log p(y_s \mid y_{N(s)}; \theta)

    Convex and smooth, no inference, consistent; it overrates the pairwise weights on strongly coupled data.
    Unlabelled nodes are rejected: their neighbours' conditionals are not defined.

    Source: Besag 1975; Kumar et al. 2005, section 6.
    """

    missing = "rejected"

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        if np.any(labels < 0):
            raise ValueError("learning='pl' needs a label for every node: pseudolikelihood has no missing labels.")
        if isinstance(model, FactorGraph):
            terms, statistics = factor_conditionals(model, labels)
        else:
            terms, statistics = pseudolikelihood_terms(model, labels, n_threads=n_threads)
        return Loss(statistics=statistics, terms=terms)
