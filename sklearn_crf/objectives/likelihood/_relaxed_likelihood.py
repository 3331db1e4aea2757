"""Likelihood by a convex upper bound on the log-partition."""

import numpy as np

from sklearn_crf.models import labeling_statistics, score_terms
from sklearn_crf.objectives._base import Loss, Objective, observed_model

# Messages are far more numerous than weights: their errors cancel in a gradient that is a sum over nodes.
_TOL_OF_GRADIENT = 30.0


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
    fallback : Inference, optional
        Of the same relaxation, for where the first does not converge.
    final_tol : float, optional
        Tolerance to which that of the inference falls with the gradient of the risk; None leaves it as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import RelaxedLikelihood
    >>> model = PairwiseModel(lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)])
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = RelaxedLikelihood(TRWMessagePassing()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.977
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference, fallback=None, final_tol=None):
        self.inference = inference
        self.fallback = fallback
        self.final_tol = final_tol

    def settle(self, gradient):
        if self.final_tol is None:
            return False
        before = self.inference.tol
        self.inference.tol = min(before, max(self.final_tol, _TOL_OF_GRADIENT * gradient))
        return self.inference.tol < before

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        free_state, fixed_state = (None, None) if state is None else state
        free, free_state = self.solve(model, free_state, n_threads)
        converged = free.converged
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms = labeling_statistics(model, labels), score_terms(model, labels)
        else:
            fixed, fixed_state = self.solve(observed, fixed_state, n_threads)
            truth, truth_terms, converged = fixed.statistics, fixed.log_z_terms, converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free_state, fixed_state),
            converged=converged,
        )

    def solve(self, model, state, n_threads):
        """Marginals by the relaxation.

        Parameters
        ----------
        model : PairwiseModel
        state : tuple or None
            What the last call for a like model returned beside its marginals.
        n_threads : int

        Returns
        -------
        marginals : Marginals
        state : tuple
            Of both algorithms.
        """
        first, second = (None, None) if state is None else state
        found = self.inference.marginals(model, init=first, n_threads=n_threads)
        if not found.converged and self.fallback is not None:
            # Messages that ran away are no place to start from.
            found = self.fallback.marginals(model, init=second, n_threads=n_threads)
            return found, (None, found.state)
        return found, (found.state, second)
