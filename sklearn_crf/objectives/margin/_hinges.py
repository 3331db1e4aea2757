"""Structured hinge losses with margin rescaling: over labelings, and over the local polytope."""

import numpy as np

from sklearn_crf.inference import best_coupling_statistics
from sklearn_crf.models import check_labels, compute_labeling_statistics, compute_score_terms
from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives.likelihood._discrete import SaddlePoint
from sklearn_crf.objectives.margin._costs import complete_labels, loss_augmented


class StructuredHinge(Objective):
    r"""Structured hinge loss of max-margin Markov networks, with margin rescaling.

    .. math::
        \ell(\theta) = \max_y \bigl[ \Delta(y, y^*) + \mathrm{score}(y) \bigr] - \mathrm{score}(y^*), \qquad
        \Delta(y, y^*) = \sum_s \omega_s \, c_{y_s y^*_s}

    The cost is a sum over nodes. The maximisation is therefore MAP inference on a model with costs added to the unary
    scores, and the loss is the :class:`SaddlePoint` loss of this model. Without costs it is the loss of the perceptron.
    Unlabelled nodes have no costs, and are completed by the best labels given the labelled nodes. The loss is then not
    convex.

    Source: Taskar, Guestrin, Koller 2003; Tsochantaridis et al. 2005; Jancsary 2012, section 5.3.

    Parameters
    ----------
    inference : Inference
        Inference with the task ``"map"``.
    cost : array-like of shape (K, K)
        Cost ``cost[a, b]`` of state a if b is the true state: not negative, zero on the diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import StructuredHinge
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> cost = 1.0 - np.eye(2)
    >>> loss = StructuredHinge(TreeInference(), cost).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    1.2
    """

    needs = frozenset({"map"})
    smooth = False
    missing = "completed"
    weighs_nodes = True

    def __init__(self, inference, cost):
        self.inference = inference
        self.exact_on = inference.exact_on
        self.cost = np.asarray(cost, dtype=np.float64)
        self._saddle_point = SaddlePoint(inference)

    def augmented(self, model, labels, node_weight=None):
        return loss_augmented(model, labels, self.cost, node_weight)

    def compute_node_cost(self, found, labels, node_weight=None):
        """Return the cost of each node in a labeling.

        Parameters
        ----------
        found : ndarray of shape (N,), int32
        labels : ndarray of shape (N,), int32
            True state of each node.
        node_weight : ndarray of shape (N,), optional

        Returns
        -------
        ndarray of shape (N,)
        """
        cost = self.cost[found, labels]
        return cost if node_weight is None else cost * node_weight

    def compute_slope_factor(self, cost):
        """Return the number by which each example's difference in statistics is multiplied in the gradient.

        Parameters
        ----------
        cost : ndarray of shape (m,)

        Returns
        -------
        ndarray of shape (m,)
        """
        return np.ones(len(cost))

    def most_violated(self, model, labels, *, node_weight=None, state=None, n_threads=1):
        """Find the labeling with the highest sum of score and cost.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            True state of each node.
        node_weight : ndarray of shape (N,), optional
        state : object, optional
            ``Labeling.state`` of the previous call for the same example.
        n_threads : int, default=1

        Returns
        -------
        Labeling
        """
        return self.inference.map(self.augmented(model, labels, node_weight), init=state, n_threads=n_threads)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels, node_weight = self._complete(model, labels, node_weight, n_threads)
        return self._saddle_point.loss_statistics(
            self.augmented(model, labels, node_weight), labels, n_threads=n_threads
        )

    def _complete(self, model, labels, node_weight, n_threads):
        """Return the labels and node weights that :func:`complete_labels` returns."""
        labels = check_labels(model, labels, may_miss=True)
        return complete_labels(model, labels, node_weight, self.inference, n_threads)


class RelaxedHinge(StructuredHinge):
    r"""Structured hinge loss over the local polytope, in which fractional labelings may violate the margin, too.

    .. math::
        \ell(\theta) = \max_{\tau \in L} \langle \theta + \Delta_{y^*}, \tau \rangle - \mathrm{score}(y^*; \theta)
        \;\ge\; \text{the structured hinge}

    The loss is convex, and equals :class:`StructuredHinge` on forests. Training also separates the labels from
    fractional labelings (overgenerating training), so the relaxation tends to be tight on the training examples. Any
    feasible :math:`\tau` that inference returns gives a cutting plane below the loss; ``Loss.gap`` is the difference
    between the bound of the inference and this plane. The labelings of the inference must have the attribute
    ``fractional`` (AD3, LinearProgram). Source: Jancsary 2012, M3N recipe 2.
    """

    def worst_statistics(self, model, labels, *, node_weight=None, state=None, n_threads=1):
        """Find the point of the local polytope with the highest cost plus score, and return its statistics."""
        # state: ``state`` of the inference's previous result
        # returns: statistics; cost of each node, (N,); score of each node without costs, (N,); Labeling
        # The score of an edge is added to the score of its first node.
        labels = check_labels(model, labels)
        augmented = self.augmented(model, labels, node_weight)
        found = self.inference.map(augmented, init=state, n_threads=n_threads)
        if is_whole(found):
            statistics, scores = (
                compute_labeling_statistics(model, found.labels),
                compute_score_terms(model, found.labels),
            )
            cost = self.cost[found.labels, labels]
        else:
            share = np.maximum(found.fractional, 0.0)
            share /= share.sum(axis=1, keepdims=True)
            statistics, scores = best_coupling_statistics(model, share)
            cost = np.sum(share * self.cost.T[labels][:, : share.shape[1]], axis=1)
        return statistics, cost if node_weight is None else cost * node_weight, scores, found

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels, node_weight = self._complete(model, labels, node_weight, n_threads)
        statistics, cost, scores, found = self.worst_statistics(
            model, labels, node_weight=node_weight, state=state, n_threads=n_threads
        )
        return Loss(
            statistics=statistics.minus(compute_labeling_statistics(model, labels)),
            terms=cost + scores - compute_score_terms(model, labels),
            predicted=found.labels,
            state=found.state,
            converged=found.converged,
            gap=max(found.bound - float(np.sum(cost + scores)), 0.0),
        )


def is_whole(found):
    """Return whether the solution of the relaxation is a labeling, without fractional values."""
    if found.fractional is None:  # exact inference has no relaxation
        return True
    return bool(found.fractional.max(axis=1).min(initial=1.0) > 1 - _WHOLE)


# Probabilities of the solver count as 1 if they are within this tolerance of 1.
_WHOLE = 1e-9
