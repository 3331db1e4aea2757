"""Structured hinge loss with slack rescaling, in which the slack is multiplied by the cost."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference import Labeling, n_labelings, score_all_labelings
from sklearn_crf.models import (
    FactorGraph,
    PairwiseModel,
    SegmentModel,
    check_labels,
    compute_labeling_statistics,
    compute_score_terms,
    score,
)
from sklearn_crf.objectives._base import Loss
from sklearn_crf.objectives.margin._hinges import StructuredHinge


def find_best_by_cost(model, cost):
    r"""Return, for each total cost, the best score among the labelings of a forest with this cost.

    .. math::
        m(c) = \max \{ \mathrm{score}(y) : \textstyle\sum_s c_s(y_s) = c \}

    The function uses dynamic programming from the leaves. The table of a node contains the best score of the node's
    subtree for each state of the node and each total cost of the subtree.
    """
    # cost: (N, K), cost of each state of each node, not negative
    # returns profile: (most + 1,) float64, best score for each total cost, or -inf if no labeling has this total cost
    # returns labels_at: function that returns the best labeling, (N,) int32, for a total cost
    graph, (order, slot, _) = model.graph, model.graph.forest
    _, neighbor, half_edge, _ = graph.incidence
    has_parent = slot >= 0
    parent = np.full(graph.n_nodes, graph.n_nodes)
    parent[has_parent] = neighbor[slot[has_parent]]
    tables = model.edge_tables().astype(np.float64)
    # An added node is the parent of all roots. It has one state and no cost.
    best = [
        _arrange_scores_by_cost(unary, own) for unary, own in zip(model.unary.astype(np.float64), cost, strict=True)
    ]
    best.append(np.zeros((1, 1)))
    child_state, child_cost = [None] * graph.n_nodes, [None] * graph.n_nodes
    for s in order[::-1].tolist():
        if slot[s] < 0:
            table = np.zeros((model.n_columns, 1))
        else:
            # Half-edge 2e leads from the first to the second node of edge e.
            edge, turned = divmod(int(half_edge[slot[s]]), 2)
            table = tables[edge].T if turned else tables[edge]
        joint = best[s][:, :, None] + table
        message, child_state[s] = joint.max(axis=1), joint.argmax(axis=1)
        best[parent[s]], child_cost[s] = _join_child(best[parent[s]], message)

    def labels_at(total):
        labels = np.zeros(graph.n_nodes + 1, dtype=np.int32)
        left = np.zeros(graph.n_nodes + 1, dtype=np.int64)
        left[-1] = total
        # Subtract the costs of children in reverse order: first the cost of the child that was joined last.
        for s in order.tolist():
            own = child_cost[s][left[parent[s]], labels[parent[s]]]
            left[parent[s]] -= own
            left[s], labels[s] = own, child_state[s][own, labels[parent[s]]]
        return labels[:-1]

    return best[-1][:, 0], labels_at


def _arrange_scores_by_cost(unary, cost):
    """Return an array (most + 1, K) that has each state's score in the row given by its cost, and -inf elsewhere."""
    own = np.full((int(cost.max()) + 1, len(unary)), -np.inf)
    own[cost, np.arange(len(unary))] = unary
    return own


def _join_child(own, message):
    """Join another child to a node; return, for each total cost, the best score and the child's share of the cost."""
    longer, shorter = (own, message) if len(own) >= len(message) else (message, own)
    joined = np.full((len(own) + len(message) - 1, own.shape[1]), -np.inf)
    taken = np.zeros(joined.shape, dtype=np.int64)
    for k, row in enumerate(shorter):
        part = slice(k, k + len(longer))
        found = longer + row
        better = found > joined[part]
        joined[part][better] = found[better]
        in_message = np.arange(len(longer))[:, None] if longer is message else np.full((len(longer), 1), k)
        taken[part][better] = np.broadcast_to(in_message, better.shape)[better]
    return joined, taken


class Priced(NamedTuple):
    """Labeling with the highest slack plus price times cost, for a given price."""

    labels: np.ndarray  # (N,) int32, states of the labeling
    cost: float
    slack: float  # one plus the score of the labeling minus the score of the true labeling
    bound: float  # upper bound on slack plus price times cost, valid for every labeling


class Product(NamedTuple):
    """Result of a search for the largest product of cost and slack."""

    labels: np.ndarray | None  # (N,) int32, states of the labeling, or None if no labeling found has a positive product
    value: float  # cost times slack of the labeling, or 0 without a labeling
    bound: float  # upper bound on the product of cost and slack, valid for every labeling


def find_largest_product(best_at, costliest, integral, *, max_calls=30, tol=1e-9):
    r"""Find the labeling with the largest product of cost and slack; an oracle finds the best labeling for a price.

    .. math::
        \max_y \; c(y) \, g(y) \;\le\; \max_c \; c \min_\lambda \Bigl( \max_y \bigl[ g(y) + \lambda c(y) \bigr]
            - \lambda c \Bigr), \qquad c \ge 0

    Labelings are points (c, g) in a plane. Labelings that are best at some price are the corners of the upper hull of
    these points. Each step of the search chooses the interval between two corners with the highest bound. The oracle
    then returns the best labeling at the price given by the line between these corners. The search ends if the hull is
    known in this interval, or if the value found equals the bound. The largest product may belong to a labeling below
    the hull, which is not best at any price. The value found is then less than the bound. If costs are integers, the
    bound only considers integer costs.

    Source: Sarawagi and Gupta 2008; Choi, Meshi and Srebro 2016.
    """
    # best_at: function from a price to a :class:`Priced`; integral: whether all costs are integers
    # costliest: the labeling with the highest cost, as a :class:`Priced`
    # tol: difference between bound and product at which to stop, relative to the larger of the product and 1
    hull = _Hull(costliest, integral)
    cheapest = hull.add(0.0, best_at(0.0))
    # A negative slack is replaced by zero: its product with a cost is not positive, so it is never the maximum.
    high, low = max(cheapest.slack, 0.0), max(costliest.slack, 0.0)
    rest = _Span(cheapest.cost, high, max(cheapest.cost, costliest.cost), low, False)
    spans = [_Span(0.0, 0.0, cheapest.cost, high, False), rest._replace(is_open=rest.falls)]
    for _ in range(max_calls - 1):
        bounds = [hull.bound(span.left, span.right) for span in spans]
        goal = hull.value + tol * max(1.0, hull.value)
        usable = [k for k, span in enumerate(spans) if span.is_open and bounds[k] > goal]
        if not usable:
            break
        span = spans.pop(max(usable, key=lambda k: bounds[k]))
        found = hull.add(span.price, best_at(span.price))
        above = found.slack + span.price * found.cost - span.level
        if above <= 1e-10 * (1.0 + abs(span.level)) or not span.left <= found.cost <= span.right:
            spans.append(span._replace(is_open=False))
        else:
            spans += span.split(found.cost, max(found.slack, 0.0))
    bound = max(hull.value, *(hull.bound(span.left, span.right) for span in spans))
    return Product(hull.labels, hull.value, bound)


class _Span(NamedTuple):
    """Interval of costs between two corners. It is open if the hull may rise above the line between the corners."""

    left: float
    left_slack: float
    right: float
    right_slack: float
    is_open: bool

    @property
    def falls(self):
        """Whether the right end has a higher cost and a lower slack than the left end."""
        return self.right > self.left and self.right_slack < self.left_slack

    @property
    def price(self):
        """Price at which both corners have equal sums of slack and price times cost."""
        return (self.left_slack - self.right_slack) / (self.right - self.left)

    @property
    def level(self):
        """Slack plus price times cost, which is equal for both corners."""
        return self.left_slack + self.price * self.left

    def split(self, cost, slack):
        """Divide the interval at a new corner, and return the left and the right interval."""
        left = self._replace(right=cost, right_slack=slack)
        right = self._replace(left=cost, left_slack=slack)
        return left._replace(is_open=left.falls), right._replace(is_open=right.falls)


class _Hull:
    """Upper hull: lines that bound the slacks of all labelings, and the best labeling found."""

    def __init__(self, costliest, integral):
        self.labels, self.value = None, 0.0
        self._integral = integral
        self._prices, self._levels = np.zeros(0), np.zeros(0)
        self._offer(costliest)

    def add(self, price, found):
        """Add the labeling ``found``, and its line, which bounds the slacks of all labelings; return ``found``."""
        self._offer(found)
        self._prices, self._levels = np.append(self._prices, price), np.append(self._levels, found.bound)
        return found

    def bound(self, left, right):
        """Return the upper bound that all lines imply on the product of cost and slack for costs in an interval."""
        prices, levels = self._prices, self._levels
        first, second = np.triu_indices(len(prices), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The maximum is at a crossing of two lines, at the maximum of cost times a line, or at an interval end.
            kinks = (levels[first] - levels[second]) / (prices[first] - prices[second])
            costs = np.concatenate((kinks, levels / (2.0 * prices), [left, right]))
        costs = np.clip(costs[np.isfinite(costs)], left, right)
        if self._integral:
            costs = np.clip(np.concatenate((np.floor(costs), np.ceil(costs))), left, right)
        slack = (levels[:, None] - prices[:, None] * costs).min(axis=0)
        return float(np.max(np.where(costs > 0, costs * np.where(costs > 0, slack, 0.0), 0.0)))

    def _offer(self, found):
        value = found.cost * found.slack if found.cost > 0 else 0.0
        if value > self.value:
            self.labels, self.value = found.labels, value


class SlackRescaledHinge(StructuredHinge):
    r"""Structured hinge loss of max-margin Markov networks, with slack rescaling.

    .. math::
        \ell(\theta) = \max_y \; \Delta(y, y^*) \, \bigl[ 1 + \mathrm{score}(y) - \mathrm{score}(y^*) \bigr]

    The score of the true labeling must exceed all other scores by a margin of one, and violations are multiplied by the
    cost of the labeling. The margin therefore does not grow with the cost. The maximum is over a product in which the
    cost is a sum over nodes, so MAP inference does not find the maximum directly. Up to 4,096 labelings are enumerated.
    Otherwise, inference finds the labelings with the highest score plus a multiple of the cost, for several multiples.
    This search finds the maximum up to ``Loss.gap``, which is zero if the maximum is proven, and infinite if the
    inference has no bound. If the maximum is not proven, graphs are forests and costs are integers, dynamic programming
    finds the best score for each total cost, and therefore the maximum. Dynamic programming and enumeration are exact
    for any inference.
    Source: Tsochantaridis et al. 2005; Sarawagi and Gupta 2008.
    """

    # cost: (K, K), cost[a, b] of state a if b is the true state, not negative, zero on the diagonal
    # single_nodes: whether each node of a model is an example; otherwise the model is one example

    def __init__(self, inference, cost, single_nodes=False):
        super().__init__(inference, cost)
        # The search may find the largest product only up to a gap.
        self.exact_on = None
        self.single_nodes = single_nodes

    def compute_slope_factor(self, cost):
        """Return the cost of each example, which multiplies the example's difference in statistics in the gradient."""
        return cost

    def most_violated(self, model, labels, *, node_weight=None, state=None, n_threads=1):
        """Find the labeling with the highest product of cost and slack, where ``slack = 1 + score - true score``."""
        # returns: Labeling, whose score is the product and whose bound is an upper bound on the product
        labels = check_labels(model, labels)
        # (N, K), cost of each state of each node
        # In a factor graph, the cost matrix may have more rows than the largest number of states of a node.
        cost = self.cost.T[labels, : model.n_columns]
        cost = cost if node_weight is None else node_weight[:, None] * cost
        is_pairwise = isinstance(model, PairwiseModel)
        if self.single_nodes and is_pairwise:
            return _maximise_single_nodes(model, labels, cost)
        if not isinstance(model, SegmentModel) and n_labelings(len(labels), model.n_columns) <= ENUMERABLE:
            return _maximise_by_enumeration(model, labels, cost)
        found = self._search(model, labels, cost, node_weight, state, n_threads)
        work = cost.max(axis=1).sum() * model.n_nodes * model.n_columns**2
        is_whole = np.all(cost == np.round(cost))
        is_found = found.gap <= _ROUNDING * max(1.0, abs(found.score))
        if not is_found and is_pairwise and model.graph.is_forest and is_whole and work <= PROFILED:
            return _maximise_by_profile(model, labels, cost)
        return found

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        labels, node_weight = self._complete(model, labels, node_weight, n_threads)
        found = self.most_violated(model, labels, node_weight=node_weight, n_threads=n_threads)
        cost = self.compute_node_cost(found.labels, labels, node_weight)
        factor = cost if self.single_nodes else np.full(len(cost), cost.sum())
        difference = compute_labeling_statistics(model, found.labels).minus(compute_labeling_statistics(model, labels))
        return Loss(
            # If every example is a single node, there are no edges, so the factor of the tables has no effect.
            statistics=difference.scaled(factor[:, None], factor[:1].sum()),
            terms=cost + factor * (compute_score_terms(model, found.labels) - compute_score_terms(model, labels)),
            predicted=found.labels,
            converged=found.converged,
            gap=found.gap,
        )

    def _search(self, model, labels, cost, node_weight, state, n_threads):
        truth = score(model, labels)
        weight = np.ones(len(labels)) if node_weight is None else node_weight
        converged = True

        def priced(found, price):
            own = float(self.compute_node_cost(found, labels, weight).sum())
            slack = 1.0 + score(model, found) - truth
            return Priced(found, own, slack, slack + price * own)

        def best_at(price):
            nonlocal converged, state
            augmented = self.augmented(model, labels, price * weight)
            found = self.inference.map(augmented, init=state, n_threads=n_threads)
            converged, state = converged and found.converged, found.state
            best = priced(found.labels, price)
            return best._replace(bound=best.bound + found.gap)

        is_state = _mask_states(model)
        costliest = np.argmax(np.where(is_state, cost, -1.0), axis=1).astype(np.int32)
        found = find_largest_product(best_at, priced(costliest, 0.0), bool(np.all(cost == np.round(cost))))
        chosen = labels if found.labels is None else found.labels
        return Labeling(chosen, found.value, found.bound, converged=converged, state=state)


# Relative rounding error of the product of cost and slack.
_ROUNDING = 1e-9

#: Largest number of labelings of an example that are enumerated.
ENUMERABLE = 4096

#: Maximum product of total cost, number of nodes and number of state pairs for dynamic programming.
PROFILED = 20_000_000


def _mask_states(model):
    """Return a mask, (N, K), of the states of each node that its own score allows."""
    if isinstance(model, FactorGraph):
        return np.arange(model.n_columns) < model.n_states[:, None]
    return ~np.isneginf(model.unary)


def _maximise_single_nodes(model, labels, cost):
    nodes = np.arange(len(labels))
    slack = 1.0 + model.unary - model.unary[nodes, labels][:, None]
    product = np.where(cost > 0, cost, 0.0) * np.where(cost > 0, slack, 0.0)
    product[nodes, labels] = 0.0
    best = np.argmax(product, axis=1).astype(np.int32)
    total = float(product[nodes, best].sum())
    return Labeling(best, total, total)


def _maximise_by_enumeration(model, labels, cost):
    labelings, scores = score_all_labelings(model)
    costs = cost[np.arange(len(labels)), labelings].sum(axis=1)
    product = np.where(costs > 0, costs, 0.0) * np.where(costs > 0, 1.0 + scores - score(model, labels), 0.0)
    best = int(np.argmax(product))
    # The true labeling is chosen if no product is positive, because labelings with zero cost have no gradient.
    chosen = labelings[best] if product[best] > 0 else labels
    return Labeling(chosen, float(product[best]), float(product[best]))


def _maximise_by_profile(model, labels, cost):
    profile, labels_at = find_best_by_cost(model, cost.astype(np.int64))
    product = np.arange(len(profile)) * np.maximum(1.0 + profile - score(model, labels), 0.0)
    best = int(np.argmax(product))
    chosen = labels_at(best) if product[best] > 0 else labels
    return Labeling(chosen, float(product[best]), float(product[best]))
