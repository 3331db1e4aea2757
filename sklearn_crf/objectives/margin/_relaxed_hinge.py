"""Structured hinge with the linear relaxation in place of the best labeling."""

import numpy as np

from sklearn_crf.inference import best_couplings
from sklearn_crf.models import Statistics, check_labels, labeling_statistics, score_terms
from sklearn_crf.objectives._base import Loss
from sklearn_crf.objectives.margin._hinge import StructuredHinge


class RelaxedHinge(StructuredHinge):
    r"""Structured hinge of the local polytope: fractional labelings may violate the margin too.

    .. math::
        \ell(\theta) = \max_{\tau \in L} \langle \theta + \Delta_{y^*}, \tau \rangle - \mathrm{score}(y^*; \theta)
        \;\ge\; \text{the structured hinge}

    Convex, and on forests the same as :class:`StructuredHinge`. Training overgenerates: weights are learnt under which
    the relaxation is tight on the training examples. Whatever feasible :math:`\tau` the inference returns makes a
    plane below the loss; its distance to the bound of the inference is in ``Loss.gap``.

    Source: Jancsary 2012, M3N recipe 2.

    Parameters
    ----------
    inference : Inference
        One whose labelings have ``fractional``: AD3, LinearProgram.
    cost : array-like of shape (K, K)
        ``cost[a, b]`` of state a where b is true: not negative, zero on the diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import LinearProgram
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import RelaxedHinge
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> cost = 1.0 - np.eye(2)
    >>> loss = RelaxedHinge(LinearProgram(), cost).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    1.2
    """

    def worst_statistics(self, model, labels, *, node_weight=None, state=None, n_threads=1):
        """Statistics of the highest cost plus score in the local polytope.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            The true state of each node.
        node_weight : ndarray of shape (N,), optional
        state : object, optional
            Of the inference's last result.
        n_threads : int, default=1

        Returns
        -------
        statistics : Statistics
        cost_terms, score_terms : ndarray of shape (N,), float64
            What each node adds to the cost, and to the score without it; an edge counts for its first node.
        found : Labeling
        """
        labels = check_labels(model, labels)
        augmented = self.augmented(model, labels, node_weight)
        found = self.inference.map(augmented, init=state, n_threads=n_threads)
        if is_whole(found):
            statistics, scores = labeling_statistics(model, found.labels), score_terms(model, found.labels)
            cost = self.cost[found.labels, labels]
        else:
            share = np.maximum(found.fractional, 0.0)
            share /= share.sum(axis=1, keepdims=True)
            joint = best_couplings(model, share)
            statistics = Statistics(share, _table_sums(model, joint))
            scores = np.sum(share * np.where(share > 0, model.unary, 0.0), axis=1)
            edges = np.einsum("eab,eab->e", joint, model.edge_tables())
            scores += np.bincount(model.graph.edges[:, 0], edges, minlength=len(scores))
            cost = np.sum(share * self.cost.T[labels], axis=1)
        return statistics, cost if node_weight is None else cost * node_weight, scores, found

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels, node_weight = self._completed(model, labels, node_weight, n_threads)
        statistics, cost, scores, found = self.worst_statistics(
            model, labels, node_weight=node_weight, state=state, n_threads=n_threads
        )
        return Loss(
            statistics=statistics.minus(labeling_statistics(model, labels)),
            terms=cost + scores - score_terms(model, labels),
            predicted=found.labels,
            state=found.state,
            converged=found.converged,
            gap=max(found.bound - float(np.sum(cost + scores)), 0.0),
        )


def is_whole(found):
    """Whether the labels are a solution of the relaxation itself."""
    return bool(found.fractional.max(axis=1).min(initial=1.0) > 1 - _WHOLE)


# Probabilities of the solver are that near to 1.
_WHOLE = 1e-9


def _table_sums(model, joint):
    """(T, R, K, K): joint marginals of edges, by their weights, summed over edges of one type."""
    sums = np.zeros(model.tables.shape)
    weight = np.ones((len(joint), 1)) if model.edge_weight is None else model.edge_weight
    for kind in range(len(sums)):
        own = model.edge_type == kind
        sums[kind] = np.einsum("er,eab->rab", weight[own], joint[own])
    return sums
