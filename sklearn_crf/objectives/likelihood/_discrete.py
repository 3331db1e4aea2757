"""Learning rules that replace expectations by one labeling: saddle point, maximum marginal, contrastive divergence."""

from typing import Any

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.inference import gibbs_sweeps
from sklearn_crf.models import check_labels, compute_labeling_difference, compute_labeling_statistics
from sklearn_crf.objectives._base import Loss, Objective, clamp_known_labels


@options(kw_only=False)
class SaddlePoint(Objective):
    r"""Saddle point approximation (SPA), which replaces log Z by the best score.

    .. math::
        \ell(\theta) = \max_y \mathrm{score}(y) - \mathrm{score}(y^*), \qquad
        \partial \ell \ni \phi(\hat y) - \phi(y^*)

    This is the loss of the perceptron. The loss is positively homogeneous in the weights, so it determines no step
    length or penalty strength, and gradient ascent ends in limit cycles. Unlabelled nodes are completed by the best
    labeling given the labelled nodes.

    Source: Kumar et al. 2005, section 4.2.

    Parameters
    ----------
    inference : Inference, optional
        Inference with the task ``"map"``; None means the inference of prediction.
    warm_start : bool, default=False
        Whether each call starts from the previous result for the same example. The labelings and errors of a local
        search then differ from those of prediction, which has no warm start. Message passing with a bound is hardly
        affected.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import SaddlePoint
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = SaddlePoint(TreeInference()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.0
    """

    needs = frozenset({"map"})
    smooth = False
    missing = "completed"

    inference: Any = None
    warm_start: bool = False

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: object = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        free, fixed = state if isinstance(state, tuple) else (None, None)
        best = self.inference.map(model, init=free, n_threads=n_threads)
        observed = clamp_known_labels(model, labels)
        if observed is not None:
            completed = self.inference.map(observed, init=fixed, n_threads=n_threads)
            labels, fixed = completed.labels, completed.state
        terms, statistics = compute_labeling_difference(model, best.labels, labels)
        return Loss(
            statistics=statistics,
            terms=terms,
            predicted=best.labels,
            state=(best.state, fixed) if self.warm_start else None,
            converged=best.converged,
            # If inference is by minimum cuts, its state contains the number of edges that are not submodular.
            n_nonsubmodular=int(getattr(best.state, "n_nonsubmodular", 0)),
            gap=best.gap,
        )


@options(kw_only=False)
class MaximumMarginal(Objective):
    r"""Maximum marginal approximation (MMA), in which the most probable label of each node has probability one.

    .. math:: J(\theta) = \phi(y^*) - \phi(\tilde y), \qquad \tilde y_s = \arg\max_k \mu_s(k)

    This is not the gradient of any loss, so ``Loss.terms`` is None. Unlabelled nodes are completed by the largest
    marginals given the labelled nodes. Source: Kumar et al. 2005, section 4.3.
    """

    needs = frozenset({"marginals"})
    has_value = False
    smooth = False
    missing = "completed"

    inference: Any = None

    def loss_statistics(self, model: Any, labels: np.ndarray, *, n_threads: int = 1, **unused: Any) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        free = self.inference.marginals_for_learning(model, n_threads=n_threads)
        observed = clamp_known_labels(model, labels)
        if observed is not None:
            labels = _largest(self.inference.marginals_for_learning(observed, n_threads=n_threads).unary)
        predicted = _largest(free.unary)
        return Loss(
            statistics=compute_labeling_difference(model, predicted, labels)[1],
            predicted=predicted,
            converged=free.converged,
        )


@options(kw_only=False)
class ContrastiveDivergence(Objective):
    r"""Contrastive divergence (CD-k), which replaces expectations by labels after k Gibbs sweeps.

    .. math:: J(\theta) = \phi(y^*) - \phi(y^{(k)}), \qquad y^{(k)} \text{ after } k \text{ Gibbs sweeps from } y^*

    This is not the gradient of any loss, so ``Loss.terms`` is None. Unlabelled nodes are completed by a Gibbs chain in
    which the labelled nodes stay fixed. The chain continues from call to call. Source: Hinton 2002; Kumar et al. 2005,
    section 3.1.
    """

    has_value = False
    smooth = False
    draws = True
    missing = "completed"

    n_sweeps: int = 1

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        observed = clamp_known_labels(model, labels)
        if observed is not None:
            labels = gibbs_sweeps(observed, state, self.n_sweeps, seed + 1, n_threads=n_threads)
        drawn = gibbs_sweeps(model, labels, self.n_sweeps, seed, n_threads=n_threads)
        return Loss(
            statistics=compute_labeling_statistics(model, drawn).minus(compute_labeling_statistics(model, labels)),
            state=labels,
        )


def _largest(marginals):
    return np.argmax(marginals, axis=1).astype(np.int32)
