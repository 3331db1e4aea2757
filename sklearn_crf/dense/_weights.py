"""Weights of a dense field, and their layout in a flat vector."""

from typing import NamedTuple

import numpy as np


class Weights(NamedTuple):
    """Weights of a dense field."""

    compatibility: np.ndarray  # (M,), (M, K) or (M, K, K), weights of the M kernels
    unary_scale: float = 1.0  # number by which given scores are multiplied; 1 if unary scores are linear in features
    coef: np.ndarray | None = None  # (K, F), weights of features, or None
    intercept: np.ndarray | None = None  # (K,), intercepts, or None

    def unary(self, rows):
        """Return the unary scores for the scores or features of an example."""
        if self.coef is None:
            factor = rows.dtype.type(self.unary_scale)
            # Do not multiply -inf by a factor that is not positive, which would allow forbidden states.
            return rows * factor if factor > 0 else np.multiply(rows, factor, where=np.isfinite(rows), out=rows.copy())
        return rows @ self.coef.T.astype(rows.dtype) + np.asarray(self.intercept, rows.dtype)


class Layout:
    """Conversion between the weights of a field and one flat vector."""

    # n_features: number of features of linear unary scores; None if scores are given

    def __init__(self, n_kernels, n_classes, compatibility, n_features=None):
        self.n_kernels, self.n_classes, self.n_features = n_kernels, n_classes, n_features
        self.compatibility = compatibility
        self._upper = np.triu_indices(n_classes)
        equal = {"potts": [True], "diagonal": [True] * n_classes, "full": self._upper[0] == self._upper[1]}
        self._joins_equal_states = np.array(equal[compatibility], dtype=np.float64)
        self.n_pairwise = n_kernels * len(self._joins_equal_states)
        n_unary = 1 if n_features is None else n_classes * (n_features + 1)
        self.n_coef = self.n_pairwise + n_unary

    @property
    def penalised(self):
        """Mask of penalised weights: all except the scale of given scores and intercepts."""
        flags = np.ones(self.n_coef, dtype=bool)
        flags[self.n_coef - (1 if self.n_features is None else self.n_classes) :] = False
        return flags

    def pack(self, weights):
        """Return the flat vector of weights."""
        compatibility = weights.compatibility
        if self.compatibility == "full":
            compatibility = compatibility[:, *self._upper]
        unary = [[weights.unary_scale]] if weights.coef is None else [weights.coef.ravel(), weights.intercept]
        return np.concatenate([compatibility.ravel(), *unary])

    def unpack(self, flat):
        """Return the weights in a flat vector."""
        pairwise, unary = np.split(flat, [self.n_pairwise])
        # A copy, so that weights do not change with the flat vector
        pairwise = pairwise.reshape(self.n_kernels, len(self._joins_equal_states)).copy()
        compatibility = pairwise[:, 0].copy() if self.compatibility == "potts" else pairwise
        if self.compatibility == "full":
            tables = np.zeros((self.n_kernels, self.n_classes, self.n_classes))
            tables[:, *self._upper] = pairwise
            compatibility = tables + np.triu(tables, 1).transpose(0, 2, 1)
        if self.n_features is None:
            return Weights(compatibility, float(unary[0]))
        coef, intercept = np.split(unary, [self.n_classes * self.n_features])
        return Weights(compatibility, 1.0, coef.reshape(self.n_classes, -1).copy(), intercept.copy())

    def start(self, kernels):
        """Return initial weights: the weight of each kernel for pairs of equal states, 0 for other pairs."""
        weight = np.array([float(kernel.weight) for kernel in kernels])
        pairwise = np.multiply.outer(weight, self._joins_equal_states)
        unary = np.ones(1) if self.n_features is None else np.zeros(self.n_coef - self.n_pairwise)
        return self.unpack(np.concatenate([pairwise.ravel(), unary]))

    def gradient(self, by_tables, by_unary, rows):
        """Convert derivatives for tables and unary scores of one example to the derivative for the flat vector."""
        pairwise = np.diagonal(by_tables, axis1=1, axis2=2)
        if self.compatibility == "potts":
            pairwise = pairwise.sum(axis=1)
        elif self.compatibility == "full":
            both = by_tables + by_tables.transpose(0, 2, 1)
            both[:, np.arange(self.n_classes), np.arange(self.n_classes)] /= 2
            pairwise = both[:, *self._upper]
        if self.n_features is None:
            # Scores of -inf have derivative 0, and 0 * inf would be NaN.
            moved = np.multiply(by_unary, rows, where=by_unary != 0, out=np.zeros_like(rows))
            unary = [[moved.sum(dtype=np.float64)]]
        else:
            unary = [(by_unary.T @ rows).ravel(), by_unary.sum(axis=0, dtype=np.float64)]
        return np.concatenate([np.ravel(pairwise), *unary])
