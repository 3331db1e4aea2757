"""Codes of classes: the values that a tree field predicts in place of labels, and their conversion to labels."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.encoding import check_cost, sort_cost_by_class
from sklearn_crf.rtf import _tuning as tuned

# Losses whose predictions are scores of classes rather than codes.
SCORES = ("logistic", "multinomial")


class ClassCodes(NamedTuple):
    """Representation of classes by numeric codes, with the costs and class weights of decisions."""

    n_classes: int
    loss: str
    encoding: str
    cost: np.ndarray | None = None  # (n_classes, n_classes), cost of a predicted class (row) for a true class (column)
    weight: np.ndarray | None = None  # (n_classes,), weight of each class in decisions

    @property
    def are_scores(self) -> bool:
        """Whether values are scores of classes."""
        return self.loss in SCORES

    @property
    def are_binary(self) -> bool:
        """Whether a pixel has one value, positive for the second of two classes."""
        return self.loss == "logistic"

    @property
    def are_ordinal(self) -> bool:
        """Whether a pixel has one value, the class index."""
        return not self.are_scores and self.encoding == "ordinal"

    @property
    def table(self) -> np.ndarray:
        """Code of each class, (n_classes, D)."""
        if self.are_binary:
            return np.array([[-1.0], [1.0]])[: self.n_classes]
        return np.arange(self.n_classes, dtype=np.float64)[:, None] if self.are_ordinal else np.eye(self.n_classes)

    def labels(self, value: np.ndarray, is_weighed: bool = True) -> np.ndarray:
        """Return the class indices (N,) for values (N, D)."""
        if self.cost is not None:
            return np.argmin(self.probability(value) @ self.cost.T, axis=1)
        if self.weight is not None and is_weighed:
            shares = value
            if self.are_ordinal:
                # An ordinal value lies between two codes.
                shares = np.maximum(1 - np.abs(np.clip(value, 0, self.n_classes - 1) - np.arange(self.n_classes)), 0)
            return np.argmax(self._factors * shares, axis=1)
        if self.are_binary:
            return (value[:, 0] > 0).astype(np.intp)
        if self.are_ordinal:
            return np.clip(np.rint(value[:, 0]), 0, self.n_classes - 1).astype(np.intp)
        return value.argmax(axis=1)

    @property
    def _factors(self):
        """Class weights for decisions, with a small positive weight in place of 0."""
        weight = np.asarray(self.weight)
        return np.maximum(weight, tuned.LEAST_WEIGHT * weight.max())

    def probability(self, value: np.ndarray) -> np.ndarray:
        """Return the class probabilities, (N, n_classes), for scores (N, D)."""
        return expit(np.concatenate([-value, value], axis=1)) if self.are_binary else softmax(value, axis=1)

    def log_probability(self, value: np.ndarray) -> np.ndarray:
        """Return the logarithms of the class probabilities, (N, n_classes), for scores (N, D)."""
        return log_expit(np.concatenate([-value, value], axis=1)) if self.are_binary else log_softmax(value, axis=1)

    def distances(self, value: np.ndarray) -> np.ndarray:
        """Return a lower bound (N,) on the distance from each pixel's values to values that decode to another class."""
        if self.n_classes == 1:
            return np.full(len(value), np.inf)
        if self.cost is not None:
            # Lipschitz bound: the derivatives of softmax and of the two-class probabilities have eigenvalues up to 1.
            steepest = np.linalg.norm(self.cost[:, None] - self.cost[None], axis=2).max()
            expected = np.partition(self.probability(value) @ self.cost.T, 1, axis=1)
            gap = expected[:, 1] - expected[:, 0]
            return gap / steepest if steepest else np.full(len(value), np.inf)
        if self.are_binary:
            return np.abs(value[:, 0])
        if self.are_ordinal:
            # Without weights, the decision changes halfway between two codes.
            factors = np.ones(self.n_classes) if self.weight is None else self._factors
            ends = np.arange(self.n_classes - 1) + factors[:-1] / (factors[:-1] + factors[1:])
            return np.abs(value - ends).min(axis=1)
        if self.weight is not None:
            weight, rows = self._factors, np.arange(len(value))
            scores = weight * value
            best = scores.argmax(axis=1)
            gap = (scores[rows, best][:, None] - scores) / np.hypot(weight[best][:, None], weight)
            gap[rows, best] = np.inf
            return gap.min(axis=1)
        highest = np.partition(value, self.n_classes - 2, axis=1)
        return (highest[:, -1] - highest[:, -2]) / np.sqrt(2)


def sort_decision_cost(cost, n_classes: int, classes, loss: str) -> np.ndarray | None:
    """Return the validated cost matrix in the order of the sorted classes, or None if ``cost`` is None."""
    if cost is None:
        return None
    if loss not in SCORES:
        raise InvalidParameterError(f"cost needs probabilities: use loss='multinomial' or 'logistic', got {loss!r}.")
    return check_cost(sort_cost_by_class(cost, classes), n_classes)
