"""Likelihood by marginals: exact, or approximate as the inference is."""

import numpy as np

from sklearn_crf.models import labeling_statistics, score_terms
from sklearn_crf.objectives._base import Loss, Objective, observed_model


class Likelihood(Objective):
    r"""Negative log-likelihood, with marginals from an inference algorithm.

    .. math::
        \ell(\theta) = \log Z(\theta) - \log Z(\theta \mid y_{\mathrm{observed}}), \qquad
        \nabla \ell = \mu(\theta) - \mu(\theta \mid y_{\mathrm{observed}})

    With every node labelled the second term is the score of the labeling. Exact inference gives maximum
    likelihood (Kumar et al. 2005, Eq. 2 to 4), loopy belief propagation the pseudo-marginal approximation
    (section 4.1), mean-field its variational bound. Unlabelled nodes are summed out.

    Parameters
    ----------
    inference : Inference
        One that can do ``"marginals"``.
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference):
        self.inference = inference
        self.exact_on = inference.exact_on

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        # Every call starts cold, as prediction will. Loopy belief propagation may have several fixed points: messages
        # that remember another model would follow a branch that prediction never finds, and a line search that
        # comes back to a point would find another value there. What is exact everywhere remembers how it went about
        # the graph, and gives the same at any start.
        exact = self.exact_on == "any"
        first, second = state if exact and state is not None else (None, None)
        free = self.inference.marginals(model, init=first, n_threads=n_threads)
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms, converged, second = labeling_statistics(model, labels), None, free.converged, None
            if free.log_z_terms is not None:
                truth_terms = score_terms(model, labels)
        else:
            fixed = self.inference.marginals(observed, init=second, n_threads=n_threads)
            truth, truth_terms, second = fixed.statistics, fixed.log_z_terms, fixed.state
            converged = free.converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=None if free.log_z_terms is None else free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free.state, second) if exact else None,
            converged=converged,
        )
