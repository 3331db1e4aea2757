"""Structured hinge whose slack is multiplied by the cost."""

import numpy as np

from sklearn_crf.inference import Labeling, n_labelings, scored_labelings
from sklearn_crf.models import labeling_statistics, score, score_terms
from sklearn_crf.objectives._base import Loss
from sklearn_crf.objectives._cost_profile import best_by_cost
from sklearn_crf.objectives._cost_search import Priced, largest_product
from sklearn_crf.objectives._margin import StructuredHinge


class SlackRescaledHinge(StructuredHinge):
    r"""Structured hinge loss of max-margin Markov networks, with slack rescaling.

    .. math::
        \ell(\theta) = \max_y \; \Delta(y, y^*) \, \bigl[ 1 + \mathrm{score}(y) - \mathrm{score}(y^*) \bigr]

    Every wrong labeling is to lose by a margin of one, and failing to counts as much as the labeling costs: labelings
    that cost much need not lose by more than others. The maximum is over a product in which the cost is a sum over
    nodes, so that no inference has it at once. Up to 4,096 labelings are enumerated. Elsewhere labelings of the highest
    score plus a multiple of the cost are searched, for multiple after multiple: what is found is the maximum up to
    ``Loss.gap``, which is zero where that is proven, and infinite if the inference has no bound. Where it is not, on
    forests with costs that are whole numbers, dynamic programming gives the best score at every total cost and with it
    the maximum. That and enumeration are exact, whatever the inference.

    Source: Tsochantaridis et al. 2005; Sarawagi and Gupta 2008.

    Parameters
    ----------
    inference : Inference
        One that can do ``"map"``.
    cost : array-like of shape (K, K)
        ``cost[a, b]`` of state a where b is true: not negative, zero on the diagonal.
    single_nodes : bool, default=False
        Whether every node is an example, without edges; else a model is one example.
    """

    def __init__(self, inference, cost, single_nodes=False):
        super().__init__(inference, cost)
        # Largest products are exact only as far as their bound says.
        self.exact_on = None
        self.single_nodes = single_nodes

    def slope_factor(self, cost):
        """What differences of statistics are multiplied by, given the cost of each example.

        Parameters
        ----------
        cost : ndarray of shape (m,)

        Returns
        -------
        ndarray of shape (m,)
        """
        return cost

    def most_violated(self, model, labels, *, node_weight=None, n_threads=1):
        """Labeling of the highest product of cost and one plus score less that of the truth.

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
            Its score is the product, and so is its bound.
        """
        # What every state of every node costs.
        cost = self.cost.T[labels] if node_weight is None else node_weight[:, None] * self.cost.T[labels]
        if self.single_nodes:
            return _of_single_nodes(model, labels, cost)
        if n_labelings(len(labels), model.n_columns) <= ENUMERABLE:
            return _enumerated(model, labels, cost)
        found = self._searched(model, labels, cost, node_weight, n_threads)
        work = cost.max(axis=1).sum() * model.graph.n_nodes * model.n_columns**2
        is_whole = np.all(cost == np.round(cost))
        if not found.certified and model.graph.is_forest and is_whole and work <= PROFILED:
            return _profiled(model, labels, cost)
        return found

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        self._require_labels(labels)
        found = self.most_violated(model, labels, node_weight=node_weight, n_threads=n_threads)
        cost = self.node_cost(found.labels, labels, node_weight)
        factor = cost if self.single_nodes else np.full(len(cost), cost.sum())
        difference = labeling_statistics(model, found.labels).minus(labeling_statistics(model, labels))
        return Loss(
            # Without edges there are no tables to weigh.
            statistics=difference.scaled(factor[:, None], factor[:1].sum()),
            terms=cost + factor * (score_terms(model, found.labels) - score_terms(model, labels)),
            predicted=found.labels,
            converged=found.converged,
            gap=found.gap,
        )

    def _searched(self, model, labels, cost, node_weight, n_threads):
        truth = score(model, labels)
        weight = np.ones(len(labels)) if node_weight is None else node_weight
        converged = True

        def priced(found, price):
            own = float(self.node_cost(found, labels, weight).sum())
            slack = 1.0 + score(model, found) - truth
            return Priced(found, own, slack, slack + price * own)

        def best_at(price):
            nonlocal converged
            augmented = self.augmented(model, labels, price * weight)
            found = self.inference.map(augmented, n_threads=n_threads)
            converged = converged and found.converged
            best = priced(found.labels, price)
            return best._replace(bound=best.bound + found.gap)

        costliest = np.argmax(np.where(np.isneginf(model.unary), -1.0, cost), axis=1).astype(np.int32)
        found = largest_product(best_at, priced(costliest, 0.0), bool(np.all(cost == np.round(cost))))
        chosen = labels if found.labels is None else found.labels
        return Labeling(chosen, found.value, found.bound, converged=converged)


#: Most labelings of an example that are gone through one by one.
ENUMERABLE = 4096

#: Most costs times nodes times pairs of states of a forest whose scores are worked out for every cost.
PROFILED = 20_000_000


def _of_single_nodes(model, labels, cost):
    nodes = np.arange(len(labels))
    slack = 1.0 + model.unary - model.unary[nodes, labels][:, None]
    product = np.where(cost > 0, cost, 0.0) * np.where(cost > 0, slack, 0.0)
    product[nodes, labels] = 0.0
    best = np.argmax(product, axis=1).astype(np.int32)
    total = float(product[nodes, best].sum())
    return Labeling(best, total, total)


def _enumerated(model, labels, cost):
    labelings, scores = scored_labelings(model)
    costs = cost[np.arange(len(labels)), labelings].sum(axis=1)
    product = np.where(costs > 0, costs, 0.0) * np.where(costs > 0, 1.0 + scores - score(model, labels), 0.0)
    best = int(np.argmax(product))
    # The truth, whose product is zero, is among them; others that cost nothing teach nothing.
    chosen = labelings[best] if product[best] > 0 else labels
    return Labeling(chosen, float(product[best]), float(product[best]))


def _profiled(model, labels, cost):
    profile, labels_at = best_by_cost(model, cost.astype(np.int64))
    product = np.arange(len(profile)) * np.maximum(1.0 + profile - score(model, labels), 0.0)
    best = int(np.argmax(product))
    chosen = labels_at(best) if product[best] > 0 else labels
    return Labeling(chosen, float(product[best]), float(product[best]))
