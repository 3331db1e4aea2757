"""Likelihood by marginals: exact, approximate as the inference is, or by a convex upper bound on the log-partition."""

import numpy as np

from sklearn_crf.models import (
    PairwiseModel,
    check_labels,
    excess_over_labels,
    labeling_statistics,
    score_terms,
)
from sklearn_crf.objectives._base import Loss, Objective, observed_model

# Messages are far more numerous than weights: their errors cancel in a gradient that is a sum over nodes.
_TOL_OF_GRADIENT = 10.0


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
    inference : Inference, optional
        One that can do ``"marginals"``; None is the one that predicts.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Likelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = Likelihood(TreeInference()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.977
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference=None):
        self.inference = inference

    @property
    def exact_on(self):  # type: ignore[override]
        """Graphs on which the inference is exact."""
        return None if self.inference is None else self.inference.exact_on

    @property
    def takes_turns(self):  # type: ignore[override]
        return self.inference is not None and self.inference.takes_turns

    def is_exact_for(self, model):
        return self.inference is not None and self.inference.is_exact_for(model)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        # Every call starts cold, as prediction will. Loopy belief propagation may have several fixed points: messages
        # that remember another model would follow a branch that prediction never finds, and a line search that
        # comes back to a point would find another value there. What is exact remembers how it went about the graph, and
        # gives the same at any start.
        exact = self.is_exact_for(model)
        first, second = state if exact and state is not None else (None, None)
        free = self.inference.marginals_for_learning(model, init=first, n_threads=n_threads)
        loss = loss_of_marginals(model, labels, free)
        if loss is not None:
            return loss._replace(state=(free.state, None) if exact else None)
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms, converged, second = labeling_statistics(model, labels), None, free.converged, None
            if free.log_z_terms is not None:
                truth_terms = score_terms(model, labels)
        else:
            fixed = self.inference.marginals_for_learning(observed, init=second, n_threads=n_threads)
            truth, truth_terms, second = fixed.statistics, fixed.log_z_terms, fixed.state
            converged = free.converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=None if free.log_z_terms is None else free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free.state, second) if exact else None,
            converged=converged,
        )


class RelaxedLikelihood(Objective):
    r"""Negative log-likelihood with the log-partition of a convex relaxation in place of the exact one.

    .. math:: \ell(\theta) = \tilde A(\theta) - \mathrm{score}(y; \theta), \qquad
        \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau)

    With a concave entropy the maximum is unique and its derivative is the maximiser, so that the loss is a convex
    function of the scores with one value wherever the inner problem starts: each call goes on where the last for the
    same batch stopped. Where the entropy gives an upper bound, so is the loss. Unlabelled nodes are summed out by the
    same relaxation, which is a difference of convex functions.

    Source: Jancsary 2012, CRF recipes 1 and 3.

    Parameters
    ----------
    inference : Inference
        That solves the relaxation; one that can do ``"marginals"`` and takes its own ``state`` as ``init``.
    final_tol : float, optional
        Tolerance to which that of the inference falls with the gradient of the risk; None leaves it as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import RelaxedLikelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = RelaxedLikelihood(TRWMessagePassing()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.977
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference, final_tol=None):
        self.inference = inference
        self.final_tol = final_tol

    @property
    def is_settled(self):
        return self.final_tol is None or self.inference.tol <= self.final_tol

    @property
    def noise(self):
        return self.final_tol or 0.0

    @property
    def takes_turns(self):  # type: ignore[override]
        return self.inference.takes_turns

    def settle(self, gradient=None):
        if self.is_settled:
            return False
        before = self.inference.tol
        deserved = before / 10 if gradient is None else _TOL_OF_GRADIENT * gradient
        tol = min(before, max(self.final_tol, deserved))
        self.inference.tol = tol
        return tol < before

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        free_state, fixed_state = (None, None) if state is None else state
        free = self.inference.marginals_for_learning(model, init=free_state, n_threads=n_threads)
        loss = loss_of_marginals(model, labels, free)
        if loss is not None:
            return loss._replace(state=(free.state, fixed_state))
        converged = free.converged
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms = labeling_statistics(model, labels), score_terms(model, labels)
        else:
            fixed = self.inference.marginals_for_learning(observed, init=fixed_state, n_threads=n_threads)
            fixed_state = fixed.state
            truth, truth_terms, converged = fixed.statistics, fixed.log_z_terms, converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free.state, fixed_state),
            converged=converged,
        )


def loss_of_marginals(model, labels, free):
    """Loss of a pairwise model with its marginals, or None of another, without a log-partition, or without a label."""
    if not isinstance(model, PairwiseModel) or free.log_z_terms is None:
        return None
    found = excess_over_labels(model, labels, free.statistics, free.log_z_terms)
    if found is None:
        return None
    terms, statistics, predicted = found
    return Loss(statistics=statistics, terms=terms, predicted=predicted, converged=free.converged)
