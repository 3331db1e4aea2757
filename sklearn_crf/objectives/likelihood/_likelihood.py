"""Likelihoods with exact, approximate or relaxed marginals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._options import options
from sklearn_crf._threads import count_threads, limit_blas_threads
from sklearn_crf.inference import AutoMarginals, Inference, MeanField
from sklearn_crf.models import (
    FactorGraph,
    PairwiseModel,
    SegmentModel,
    Statistics,
    check_labels,
    compute_label_excess,
    compute_score_terms,
    require_states,
    subtract_labeling,
)
from sklearn_crf.objectives._base import Loss, Objective, clamp_known_labels

# Types of models that users may pass to ``loss_and_gradient``.
_MODELS = PairwiseModel, FactorGraph, SegmentModel

# The tolerance of messages is this number times the largest gradient entry of the risk.
# This number may exceed 1, because errors of messages mostly cancel in the gradient, which is a sum over many nodes.
_TOL_OF_GRADIENT = 10.0


@options(kw_only=False)
class Likelihood(Objective):
    r"""Negative log-likelihood, with marginals from an inference algorithm.

    .. math::
        \ell(\theta) = \log Z(\theta) - \log Z(\theta \mid y_{\mathrm{observed}}), \qquad
        \nabla \ell = \mu(\theta) - \mu(\theta \mid y_{\mathrm{observed}})

    If all nodes are labelled, the second term is the score of the labeling. Learning is maximum likelihood with exact
    inference (Kumar et al. 2005, Eq. 2 to 4), the pseudo-marginal approximation with loopy belief propagation (section
    4.1), and a variational bound with mean field. Unlabelled nodes are summed out.

    Parameters
    ----------
    inference : Inference, optional
        Inference with the task ``"marginals"``; None means the inference of prediction.

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

    inference: Inference | None = None

    @property
    def exact_on(self) -> str | None:  # type: ignore[override]
        """Graphs on which the inference is exact: ``"any"``, ``"forest"`` or None."""
        return None if self.inference is None else self.inference.exact_on

    def is_exact_for(self, model: Any) -> bool:
        return self.inference is not None and self.inference.is_exact_for(model)

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: Any = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        # Approximate inference has no warm start: loopy belief propagation may have several fixed points.
        # With warm starts, messages could follow a branch of fixed points that prediction never finds.
        # The value of the loss at a point could then depend on the points that a line search visited before.
        # The result of exact inference does not depend on the start. Its state only contains the order of computations.
        exact = self.is_exact_for(model)
        found = _compute_loss_by_marginals(self.inference, model, labels, state if exact else None, n_threads)
        return found if exact else found._replace(state=None)


@options(kw_only=False)
class RelaxedLikelihood(Objective):
    r"""Negative log-likelihood in which a convex relaxation replaces the exact log-partition.

    .. math:: \ell(\theta) = \tilde A(\theta) - \mathrm{score}(y; \theta), \qquad
        \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau)

    If the entropy is concave, the maximiser is unique and is the derivative of the maximum. The loss is then a convex
    function of the scores that does not depend on the start of the inner problem. Therefore, each call starts from the
    previous result for the same batch. If the relaxation bounds the log-partition from above, the loss is an upper
    bound too. Unlabelled nodes are summed out by the same relaxation; the loss is then a difference of convex
    functions. Source: Jancsary 2012, CRF recipes 1 and 3.
    """

    # inference: Inference that solves the relaxation, and accepts the ``state`` of a result as ``init``
    # final_tol: final tolerance of the inference, which is tightened as the gradient of the risk decreases
    # With ``final_tol=None``, the tolerance of the inference does not change.

    needs = frozenset({"marginals"})

    inference: Any
    final_tol: float | None = None

    @property
    def is_settled(self):
        return self.final_tol is None or self.inference.tol <= self.final_tol

    @property
    def noise(self):
        return self.final_tol or 0.0

    def settle(self, gradient=None):
        if self.is_settled:
            return False
        before = self.inference.tol
        deserved = before / 10 if gradient is None else _TOL_OF_GRADIENT * gradient
        tol = min(before, max(self.final_tol, deserved))
        self.inference.tol = tol
        return tol < before

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        return _compute_loss_by_marginals(self.inference, model, labels, state, n_threads)


@options(kw_only=False)
class ObservedLogPartition(Objective):
    r"""Log-partition of a relaxation given the known labels; a likelihood subtracts it from the full log-partition.

    .. math:: \tilde A(\theta \mid y_{\mathrm{observed}})

    This log-partition is convex in the scores. If all labels are known, it is the score of the labels.
    """

    needs = frozenset({"marginals"})

    inference: Inference

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: Any = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        fixed = self.inference.marginals_for_learning(
            clamp_known_labels(model, labels), init=state, n_threads=n_threads
        )
        return Loss(statistics=fixed.statistics, terms=fixed.log_z_terms, state=fixed.state, converged=fixed.converged)


class FreeLikelihood(RelaxedLikelihood):
    """Relaxed likelihood that, if labels are missing, does not subtract the log-partition given the known labels."""

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: Any = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        of_free, of_observed = (None, None) if state is None else state
        free = self.inference.marginals_for_learning(model, init=of_free, n_threads=n_threads)
        return compute_bound_loss(model, labels, free)._replace(state=(free.state, of_observed))


def _compute_loss_by_marginals(inference, model, labels, state, n_threads):
    """Compute the loss from marginals; if labels are missing, also from marginals given the known labels."""
    labels = check_labels(model, labels, may_miss=True)
    of_free, of_fixed = (None, None) if state is None else state
    free = inference.marginals_for_learning(model, init=of_free, n_threads=n_threads)
    observed = clamp_known_labels(model, labels)
    if observed is None:
        free = _ascend_from(labels, inference, model, free, n_threads)
        return (_compute_loss_by_kernel(model, labels, free) or compute_marginal_loss(model, labels, free))._replace(
            state=(free.state, of_fixed)
        )
    fixed = inference.marginals_for_learning(observed, init=of_fixed, n_threads=n_threads)
    free = _ascend_from(fixed.state, inference, model, free, n_threads)
    return compute_marginal_loss(model, labels, free, fixed)._replace(state=(free.state, fixed.state))


def _ascend_from(start: np.ndarray, inference: Any, model: Any, found: Any, n_threads: int) -> Any:
    """Return the marginals of mean field that have the largest bound: those found, or those reached from a start.

    Without this start, the bound could be below the score of the labels, and the loss negative.
    """
    # start: labels (N,), or marginals given the known labels (N, K)
    if not isinstance(inference, MeanField):
        return found
    other = inference.marginals_for_learning(model, init=start, n_threads=n_threads)
    component = model.component if isinstance(model, FactorGraph) else model.graph.component
    before, after = (np.bincount(component, marginals.log_z_terms) for marginals in (found, other))
    # Starts that reach the same marginals differ by the tolerance, and the choice would be arbitrary.
    is_better = after > before + inference.tol
    if is_better.all() or not is_better.any():
        return other if is_better.all() else found
    best = np.where(is_better[component, np.newaxis], other.state, found.state)
    return inference.marginals_for_learning(model, init=best, n_threads=n_threads)


def compute_marginal_loss(model: Any, labels: np.ndarray, free: Any, fixed: Any = None) -> Loss:
    """Compute the loss from the marginals of a model and its marginals given the known labels."""
    # free: Marginals of the model; fixed: Marginals given the known labels, or None if all labels are known
    if fixed is None:
        statistics, converged = subtract_labeling(model, free.statistics, labels), free.converged
        truth_terms = None if free.log_z_terms is None else compute_score_terms(model, labels)
    else:
        statistics, truth_terms = free.statistics.minus(fixed.statistics), fixed.log_z_terms
        converged = free.converged and fixed.converged
    return Loss(
        statistics=statistics,
        terms=None if free.log_z_terms is None else free.log_z_terms - truth_terms,
        predicted=np.argmax(free.unary, axis=1).astype(np.int32),
        converged=converged,
    )


def compute_bound_loss(model: Any, labels: np.ndarray, free: Any, temperature: float = 1.0) -> Loss:
    """Return the loss: a bound on the log-partition, minus the score of the labels if no label is missing."""
    # free: Marginals whose log-partition is the bound
    if np.all(labels >= 0):
        loss = compute_marginal_loss(model, labels, free)
    else:
        predicted = np.argmax(free.unary, axis=1)
        loss = Loss(free.statistics, free.log_z_terms, predicted=predicted, converged=free.converged)
    assert loss.terms is not None, "a bound is a log-partition"
    return loss._replace(terms=temperature * loss.terms)


def _compute_loss_by_kernel(model, labels, free):
    """Compute the loss of a pairwise model by one kernel call; return None if the kernel does not apply."""
    if not isinstance(model, PairwiseModel) or free.log_z_terms is None:
        return None
    found = compute_label_excess(model, labels, free.statistics, free.log_z_terms)
    if found is None:
        return None
    terms, statistics, predicted = found
    return Loss(statistics=statistics, terms=terms, predicted=predicted, converged=free.converged)


def loss_and_gradient(
    model: Any, labels: ArrayLike, *, objective: Objective | None = None, n_jobs: int | None = None
) -> tuple[float, Statistics]:
    r"""Return the loss of a model's scores against labels, and its gradient with respect to the scores.

    .. math::
        \ell(\theta) = \log Z(\theta) - \log Z(\theta \mid y_{\mathrm{observed}}), \qquad
        \nabla \ell = \mu(\theta) - \mu(\theta \mid y_{\mathrm{observed}})

    A field can therefore be the last layer of a network. The gradient is passed to the layers that compute the scores.

    Parameters
    ----------
    model : PairwiseModel, FactorGraph or SegmentModel
        Scores on a graph, for instance ``field.models(X)[0]`` of a fitted classifier. Several sequences may be the
        components of one graph.
    labels : array-like of int, shape (N,) or the shape of the lattice
        Index of the true state of each node; -1 marks a node without a label.
    objective : Objective, optional
        Loss, such as ``Pseudolikelihood()``. None means ``Likelihood(AutoMarginals())``, which is exact if exact
        inference is affordable. An objective whose ``inference`` is None uses AutoMarginals or AutoMap.
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Returns
    -------
    loss : float
    gradient : Statistics
        Derivative of the loss with respect to each score: ``gradient.unary`` and ``gradient.tables`` have the shapes of
        ``model.unary`` and ``model.tables``. For a FactorGraph, ``log_table`` and ``table_default`` replace ``tables``.

    Raises
    ------
    TypeError
        If the model or the objective has another type.
    ValueError
        If a label is not a state of its node, the model forbids the labels, or the objective has no value.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import loss_and_gradient
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> loss, gradient = loss_and_gradient(model, [1, 1, 1])
    >>> round(loss, 3)
    0.977
    >>> gradient.unary.round(2)
    array([[ 0.27, -0.27],
           [ 0.44, -0.44],
           [ 0.27, -0.27]])
    """
    if not isinstance(model, _MODELS):
        raise TypeError(f"model must be a {', '.join(kind.__name__ for kind in _MODELS)}, got {type(model).__name__}.")
    if not (objective is None or isinstance(objective, Objective)):
        raise TypeError(f"objective must be an Objective, such as Pseudolikelihood(), got {objective!r}.")
    chosen = Likelihood(AutoMarginals()) if objective is None else objective.coupled(AutoMarginals())
    if isinstance(model, SegmentModel) and not chosen.needs:
        raise ValueError(
            f"objective={objective!r} does not support a SegmentModel, because it avoids exact inference, which takes "
            "little time on the sequences that segments need: use Likelihood()."
        )
    labels = np.asarray(labels)
    if isinstance(model, PairwiseModel) and labels.shape == model.graph.shape:
        labels = labels.ravel()
    if isinstance(model, PairwiseModel) and model.n_states is not None:
        require_states(check_labels(model, labels, may_miss=True), model.n_states, True, "labels")
    with limit_blas_threads():
        found = chosen.loss_statistics(model, labels, n_threads=count_threads(n_jobs))
    if found.terms is None:
        raise ValueError(f"objective must have a value, but {objective!r} only has a direction.")
    loss = math.fsum(found.terms)
    if not np.isfinite(loss):
        raise ValueError("model gives the labels a score of -inf: its scores forbid a label or a pair of labels.")
    return loss, found.statistics
