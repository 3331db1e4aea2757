"""Largest product of what a labeling costs and what it scores, by best labelings at many prices of cost."""

from typing import NamedTuple

import numpy as np


class Priced(NamedTuple):
    """A labeling of the highest score plus price times cost.

    Attributes
    ----------
    labels : ndarray of shape (N,), int32
    cost : float
    slack : float
        One plus its score, less that of the truth.
    bound : float
        No labeling has a higher slack plus price times cost.
    """

    labels: np.ndarray
    cost: float
    slack: float
    bound: float


class Product(NamedTuple):
    """What a search found.

    Attributes
    ----------
    labels : ndarray of shape (N,), int32, or None
        None where no labeling has a positive product.
    value : float
        Its cost times its slack, 0 for none.
    bound : float
        No labeling has a higher product.
    """

    labels: np.ndarray | None
    value: float
    bound: float


def largest_product(best_at, costliest, integral, *, max_calls=30, tol=1e-9):
    r"""Largest product of cost and slack over all labelings, from labelings that are best at a price.

    .. math::
        \max_y \; c(y) \, g(y) \;\le\; \max_c \; c \min_\lambda \Bigl( \max_y \bigl[ g(y) + \lambda c(y) \bigr]
            - \lambda c \Bigr), \qquad c \ge 0

    Labelings are points (c, g) in a plane, and those best at some price are the corners of their upper hull. The
    search goes where the bound is highest, at the price of the line between the two corners there, until the hull is
    known there or the bound is met. The largest product may be below the hull, at a labeling which is best at no
    price: then what was found is less than the bound. Whole costs are looked at one by one in the bound.

    Source: Sarawagi and Gupta 2008; Choi, Meshi and Srebro 2016.

    Parameters
    ----------
    best_at : callable
        Price, a float, to a :class:`Priced`.
    costliest : Priced
        A labeling of the highest cost of all.
    integral : bool
        Whether all costs are whole numbers.
    max_calls : int, default=30
        Most prices.
    tol : float, default=1e-9
        Difference of bound and product, relative to the larger of it and 1, at which to stop.

    Returns
    -------
    Product
    """
    hull = _Hull(costliest, integral)
    cheapest = hull.add(0.0, best_at(0.0))
    # What is below zero has no positive product: there is no need to know how far below.
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
    """Costs between two corners, and the slack at both; whether the hull between them may be higher than a line."""

    left: float
    left_slack: float
    right: float
    right_slack: float
    is_open: bool

    @property
    def falls(self):
        """Whether more cost goes with less slack."""
        return self.right > self.left and self.right_slack < self.left_slack

    @property
    def price(self):
        """At which both corners are as good."""
        return (self.left_slack - self.right_slack) / (self.right - self.left)

    @property
    def level(self):
        """Slack plus price times cost of both."""
        return self.left_slack + self.price * self.left

    def split(self, cost, slack):
        """What is to the left and to the right of a corner within."""
        left = self._replace(right=cost, right_slack=slack)
        right = self._replace(left=cost, left_slack=slack)
        return left._replace(is_open=left.falls), right._replace(is_open=right.falls)


class _Hull:
    """Lines above all labelings, and the best of those found."""

    def __init__(self, costliest, integral):
        self.labels, self.value = None, 0.0
        self._integral = integral
        self._prices, self._levels = np.zeros(0), np.zeros(0)
        self._offer(costliest)

    def add(self, price, found):
        """Take note of a labeling and of the line above all that comes with it."""
        self._offer(found)
        self._prices, self._levels = np.append(self._prices, price), np.append(self._levels, found.bound)
        return found

    def bound(self, left, right):
        """The highest product of a cost between two and the slack that all lines allow there."""
        prices, levels = self._prices, self._levels
        first, second = np.triu_indices(len(prices), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Between two lines, or where a line's own product is highest.
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
