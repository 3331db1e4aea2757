"""Likelihood by marginals: exact, approximate as the inference is, or by a convex upper bound on the log-partition."""

import numpy as np

from sklearn_crf.models import labeling_statistics, score_terms
from sklearn_crf.objectives._base import Loss, Objective, observed_model
from sklearn_crf.objectives.likelihood._chains import PassOverChains, loss_of_chains

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
    def exact_on(self):
        """Graphs on which the inference is exact."""
        return None if self.inference is None else self.inference.exact_on

    def is_exact_for(self, model):
        return self.inference is not None and self.inference.is_exact_for(model)

    def whole_pass(self, potentials, batches):
        return None if self.exact_on is None else PassOverChains.of(potentials, batches)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        if self.exact_on is not None:
            loss = loss_of_chains(model, labels)
            if loss is not None:
                return loss._replace(state=state)
        # Every call starts cold, as prediction will. Loopy belief propagation may have several fixed points: messages
        # that remember another model would follow a branch that prediction never finds, and a line search that
        # comes back to a point would find another value there. What is exact remembers how it went about the graph, and
        # gives the same at any start.
        exact = self.is_exact_for(model)
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

    def __init__(self, inference, fallback=None, final_tol=None):
        self.inference = inference
        self.fallback = fallback
        self.final_tol = final_tol

    @property
    def is_settled(self):
        return self.final_tol is None or self.inference.tol <= self.final_tol

    def settle(self, gradient=None):
        if self.is_settled:
            return False
        before = self.inference.tol
        deserved = before / 10 if gradient is None else _TOL_OF_GRADIENT * gradient
        tol = min(before, max(self.final_tol, deserved))
        for inference in (self.inference, self.fallback):
            if inference is not None:
                inference.tol = tol
        return tol < before

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
            Second result of the last call for a model of the same topology.
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
            # Messages that diverged are not a useful start.
            found = self.fallback.marginals(model, init=second, n_threads=n_threads)
            return found, (None, found.state)
        return found, (found.state, second)
