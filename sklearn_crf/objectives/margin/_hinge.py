"""Structured hinge: the true labeling should win by a margin of the cost."""

import numpy as np

from sklearn_crf.models import check_labels
from sklearn_crf.objectives._base import Objective
from sklearn_crf.objectives.likelihood._discrete import SaddlePoint
from sklearn_crf.objectives.margin._loss_augmented import completed_labels, loss_augmented


class StructuredHinge(Objective):
    r"""Structured hinge loss of max-margin Markov networks, with margin rescaling.

    .. math::
        \ell(\theta) = \max_y \bigl[ \Delta(y, y^*) + \mathrm{score}(y) \bigr] - \mathrm{score}(y^*), \qquad
        \Delta(y, y^*) = \sum_s \omega_s \, c_{y_s y^*_s}

    The cost is a sum over nodes, so that the maximisation is the inference's own on a model with the cost added to its
    unary scores, and the loss is that of :class:`SaddlePoint` there. Without cost it is the perceptron's. Unlabelled
    nodes cost nothing, and have the best labels given the labelled ones: with them the loss is not convex.

    Source: Taskar, Guestrin, Koller 2003; Tsochantaridis et al. 2005; Jancsary 2012, section 5.3.

    Parameters
    ----------
    inference : Inference
        One that can do ``"map"``.
    cost : array-like of shape (K, K)
        ``cost[a, b]`` of state a where b is true: not negative, zero on the diagonal.

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

    def node_cost(self, found, labels, node_weight=None):
        """Cost of each node under a labeling.

        Parameters
        ----------
        found : ndarray of shape (N,), int32
        labels : ndarray of shape (N,), int32
            The true state of each node.
        node_weight : ndarray of shape (N,), optional

        Returns
        -------
        ndarray of shape (N,)
        """
        cost = self.cost[found, labels]
        return cost if node_weight is None else cost * node_weight

    def slope_factor(self, cost):
        """Factor of differences of statistics, given the cost of each example.

        Parameters
        ----------
        cost : ndarray of shape (m,)

        Returns
        -------
        ndarray of shape (m,)
        """
        return np.ones(len(cost))

    def most_violated(self, model, labels, *, node_weight=None, n_threads=1):
        """Labeling of the highest cost plus score.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            The true state of each node.
        node_weight : ndarray of shape (N,), optional
        n_threads : int, default=1

        Returns
        -------
        Labeling
        """
        return self.inference.map(self.augmented(model, labels, node_weight), n_threads=n_threads)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels, node_weight = self._completed(model, labels, node_weight, n_threads)
        return self._saddle_point.loss_statistics(
            self.augmented(model, labels, node_weight), labels, n_threads=n_threads
        )

    def _completed(self, model, labels, node_weight, n_threads):
        """Return labels and weights of costs, by :func:`completed_labels`."""
        labels = check_labels(model, labels, may_miss=True)
        return completed_labels(model, labels, node_weight, self.inference, n_threads)
