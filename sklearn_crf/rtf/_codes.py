"""Codes of classes: the values that a tree field predicts in place of labels, and the labels of values."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._numbers import as_array
from sklearn_crf.encoding import in_class_order
from sklearn_crf.rtf import _tuning as tuned

# Losses whose predictions are scores of classes rather than codes.
SCORES = ("logistic", "multinomial")


class ClassCodes(NamedTuple):
    """How values stand for classes."""

    n_classes: int
    loss: str
    encoding: str
    cost: np.ndarray | None = None  # (n_classes, n_classes), of predicting the class of a row where that of a column is
    weight: np.ndarray | None = None  # (n_classes,), of classes in decisions

    @property
    def are_scores(self) -> bool:
        """Whether values are scores of classes."""
        return self.loss in SCORES

    @property
    def are_binary(self) -> bool:
        """Whether a pixel has one value, whose sign is that of the second of two classes."""
        return self.loss == "logistic"

    @property
    def are_ordinal(self) -> bool:
        """Whether a pixel has one value, the number of the class."""
        return not self.are_scores and self.encoding == "ordinal"

    @property
    def table(self) -> np.ndarray:
        """The code of each class, (n_classes, D)."""
        if self.are_binary:
            return np.array([[-1.0], [1.0]])[: self.n_classes]
        return np.arange(self.n_classes, dtype=np.float64)[:, None] if self.are_ordinal else np.eye(self.n_classes)

    def labels(self, value: np.ndarray, is_weighed: bool = True) -> np.ndarray:
        """Numbers of the classes that values (N, D) stand for."""
        if self.cost is not None:
            return np.argmin(self.probability(value) @ self.cost.T, axis=1)
        if self.weight is not None and is_weighed:
            return np.argmax(self._factors * self._shares(value), axis=1)
        if self.are_binary:
            return (value[:, 0] > 0).astype(np.intp)
        if self.are_ordinal:
            return np.clip(np.rint(value[:, 0]), 0, self.n_classes - 1).astype(np.intp)
        return value.argmax(axis=1)

    @property
    def _factors(self):
        """Positive weights of classes in decisions."""
        weight = np.asarray(self.weight)
        return np.maximum(weight, tuned.LEAST_WEIGHT * weight.max())

    def _shares(self, value):
        """Shares of the codes whose mean a value is, (N, n_classes): of the two nearest of ordinal codes."""
        if not self.are_ordinal:
            return value
        return np.maximum(1 - np.abs(np.clip(value, 0, self.n_classes - 1) - np.arange(self.n_classes)), 0)

    def probability(self, value: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, (N, n_classes), of scores."""
        return expit(np.concatenate([-value, value], axis=1)) if self.are_binary else softmax(value, axis=1)

    def log_probability(self, value: np.ndarray) -> np.ndarray:
        """Logarithms of the probabilities of the classes, (N, n_classes), of scores."""
        return log_expit(np.concatenate([-value, value], axis=1)) if self.are_binary else log_softmax(value, axis=1)

    def distances(self, value: np.ndarray) -> np.ndarray:
        """Least distance of each pixel's values to some that stand for another class, (N,)."""
        if self.n_classes == 1:
            return np.full(len(value), np.inf)
        if self.cost is not None:
            # The derivative of a softmax has no eigenvalue above one, nor has that of the two probabilities of a value.
            steepest = np.linalg.norm(self.cost[:, None] - self.cost[None], axis=2).max()
            expected = np.partition(self.probability(value) @ self.cost.T, 1, axis=1)
            gap = expected[:, 1] - expected[:, 0]
            return gap / steepest if steepest else np.full(len(value), np.inf)
        if self.are_binary:
            return np.abs(value[:, 0])
        if self.are_ordinal:
            return self._distances_of_ordinal(value[:, 0])
        if self.weight is not None:
            return self._distances_of_weighed(value)
        highest = np.partition(value, self.n_classes - 2, axis=1)
        return (highest[:, -1] - highest[:, -2]) / np.sqrt(2)

    def _distances_of_ordinal(self, value):
        if self.weight is None:
            # Another one is nearest past the middle between two codes.
            return np.abs(value - np.clip(np.floor(value), 0, self.n_classes - 2) - 0.5)
        low, high = self._factors[:-1], self._factors[1:]
        ends = np.arange(self.n_classes - 1) + low / (low + high)
        return np.abs(value[:, None] - ends).min(axis=1)

    def _distances_of_weighed(self, value):
        weight, rows = self._factors, np.arange(len(value))
        scores = weight * value
        best = scores.argmax(axis=1)
        gap = (scores[rows, best][:, None] - scores) / np.hypot(weight[best][:, None], weight)
        gap[rows, best] = np.inf
        return gap.min(axis=1)


def checked_cost(cost, n_classes: int, classes, loss: str) -> np.ndarray | None:
    """Costs of labels in the order of the sorted classes."""
    if cost is None:
        return None
    if loss not in SCORES:
        raise InvalidParameterError(f"cost needs probabilities: use loss='multinomial' or 'logistic', got {loss!r}.")
    table = as_array(in_class_order(cost, classes), "cost")
    is_table = table.shape == (n_classes, n_classes) and table.dtype.kind in "iuf" and np.all(np.isfinite(table))
    if not is_table:
        raise InvalidParameterError(
            f"The 'cost' parameter must be finite numbers of shape ({n_classes}, {n_classes}). Got {cost!r} instead."
        )
    return table
