"""Node features without a stored row for each node: linear operators, and rows that several nodes share."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import gram, sum_columns
from sklearn_crf.kernels.core.blas import score_rows


def multiply_rows(features, weights):
    """Compute ``features @ weights.T`` in the precision of the features; no row affects the last digits of another."""
    # features: (n, F), array, sparse or operator; weights: (C, F); returns: (n, C)
    weights = np.ascontiguousarray(weights, dtype=features.dtype)
    if not isinstance(features, np.ndarray):
        return np.ascontiguousarray(features @ weights.T)
    products = np.empty((len(features), len(weights)), dtype=features.dtype)
    score_rows(np.ascontiguousarray(features), weights, products)
    return products


class OperatorFeatures:
    r"""Node features given as a linear operator A, of which only the products for scores and gradients are used.

    .. math:: u = A w, \qquad g = A^\top s
    """

    # operators: sequence of objects with ``shape``, ``@`` and ``.T @``

    ndim = 2

    def __init__(self, operators, dtype=None, rows=None):
        self.operators = tuple(operators)
        self._rows = rows
        self.dtype = _get_operator_dtype(self.operators[0]) if dtype is None else np.dtype(dtype)
        # First row of each operator, followed by the total number of rows.
        self._ptr = np.cumsum([0, *(operator.shape[0] for operator in self.operators)])
        self.shape = int(self._ptr[-1]) if rows is None else len(rows), self.operators[0].shape[1]

    @classmethod
    def checked(cls, operator, name):
        """Make features from a single operator, after testing its products."""
        # operator: object with ``shape``, ``@`` and ``.T @``
        shape = tuple(operator.shape)
        if len(shape) != 2:
            raise ValueError(f"{name} must have shape (n_nodes, n_features), got {shape}.")
        kind = _get_operator_dtype(operator)
        if kind.kind == "c":
            raise ValueError(f"Complex data not supported: {name} must be a real operator, got {kind}.")
        features = cls([operator], np.float32 if kind == np.float32 else np.float64)
        features.check(name)
        return features

    def check(self, name):
        """Compute both products, and raise ValueError if one fails or is invalid."""
        n_nodes, n_features = self.shape
        for product, transposed, (n_in, n_out) in (("@", self, (n_features, n_nodes)), (".T @", self.T, self.shape)):
            try:
                found = transposed @ np.ones((n_in, 1))
            except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
                raise ValueError(
                    f"{name} is a linear operator of shape {self.shape}, whose product `{product}` with an array of "
                    f"shape {(n_in, 1)} failed: {error}"
                ) from error
            if found.shape != (n_out, 1) or not np.all(np.isfinite(found)):
                what = "is not finite" if found.shape == (n_out, 1) else f"has shape {found.shape}"
                raise ValueError(
                    f"{name} is a linear operator of shape {self.shape}, whose product `{product}` with an array of "
                    f"shape {(n_in, 1)} {what}; it must be finite and have shape {(n_out, 1)}."
                )

    def __len__(self):
        return self.shape[0]

    def __matmul__(self, weights):
        weights = np.asarray(weights)
        found = [np.asarray(operator @ weights) for operator in self.operators]
        products = (found[0] if len(found) == 1 else np.concatenate(found)).astype(self.dtype, copy=False)
        return products if self._rows is None else products[self._rows]

    @property
    def T(self):
        """Transposed operator, which supports products with an array on its right."""
        return _Transposed(self)

    def _multiply_statistics(self, statistics):
        """Compute ``A.T @ statistics``, (F, n), in float64."""
        statistics = np.asarray(statistics, dtype=np.float64)
        if self._rows is not None:
            everywhere = np.zeros((self._ptr[-1], *statistics.shape[1:]))
            np.add.at(everywhere, self._rows, statistics)
            statistics = everywhere
        parts = np.split(statistics, self._ptr[1:-1])
        total = np.zeros((self.shape[1], *statistics.shape[1:]))
        for operator, part in zip(self.operators, parts, strict=True):
            total += operator.T @ part
        return total

    def __getitem__(self, rows):
        if isinstance(rows, slice) and rows == slice(None):
            return self
        if isinstance(rows, slice) and self._rows is None and rows.step is None:
            first, stop, _ = rows.indices(self.shape[0])
            bounds = np.searchsorted(self._ptr, (first, stop))
            if first < stop and np.array_equal(self._ptr[bounds], (first, stop)):
                return OperatorFeatures(self.operators[slice(*bounds)], self.dtype)
        return OperatorFeatures(self.operators, self.dtype, self._get_known_rows()[rows])

    def _get_known_rows(self):
        return np.arange(self.shape[0]) if self._rows is None else self._rows

    def astype(self, dtype):
        """Return a copy whose products have the given precision."""
        return OperatorFeatures(self.operators, dtype, self._rows)

    @classmethod
    def stacked(cls, parts):
        """Return the concatenated features of several examples."""
        operators = [operator for part in parts for operator in part.operators]
        if all(part._rows is None for part in parts):
            return cls(operators, parts[0].dtype)
        first = np.cumsum([0, *(part._ptr[-1] for part in parts[:-1])])
        rows = [start + part._get_known_rows() for start, part in zip(first, parts, strict=True)]
        return cls(operators, parts[0].dtype, np.concatenate(rows))


@dataclass(frozen=True, eq=False)
class _Transposed:
    """Transpose of operator features, which only supports products with an array on its right."""

    _features: "OperatorFeatures"

    def __matmul__(self, statistics):
        return self._features._multiply_statistics(statistics)


def _get_operator_dtype(operator):
    """Return the precision of an operator, or float64 if it does not state one."""
    return np.dtype(getattr(operator, "dtype", None) or np.float64)


def is_operator(values):
    """Return whether values are a linear operator, that is, an object with products but without stored entries."""
    if sp.issparse(values) or hasattr(values, "__array__"):
        return False
    return all(hasattr(values, name) for name in ("shape", "__matmul__", "T"))


class SharedRows:
    """Node features in which consecutive nodes share a row; the nodes that share a row differ in their weights.

    Scores and gradients of all nodes of a row are columns of one product with the rows, which are not copied.
    """

    # rows: (n_rows, n_features)

    ndim = 2

    def __init__(self, rows, n_sharing):
        self.rows = rows
        self.n_sharing = n_sharing
        self.shape = len(rows) * n_sharing, rows.shape[1]
        self.dtype = rows.dtype

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        return np.repeat(self.rows, self.n_sharing, axis=0).astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, nodes):
        if isinstance(nodes, slice):
            start, stop, step = nodes.indices(len(self))
            bounds = divmod(start, self.n_sharing), divmod(max(start, stop), self.n_sharing)
            if step == 1 and not bounds[0][1] and not bounds[1][1]:
                return self.replace_rows(self.rows[bounds[0][0] : bounds[1][0]])
        return self.rows[np.arange(len(self))[nodes] // self.n_sharing]

    def replace_rows(self, rows):
        """Return a copy of the features with new rows, for the same nodes."""
        # rows: (n_rows, n_features)
        return SharedRows(rows, self.n_sharing)

    def scores(self, coef):
        """Compute, for each node, the product of its row with the weights of its type."""
        # coef: (n_sharing, n_columns, n_features); returns: (n_nodes, n_columns)
        _, n_columns, n_features = coef.shape
        return multiply_rows(self.rows, coef.reshape(-1, n_features)).reshape(-1, n_columns)

    def gradient(self, columns):
        """Convert the gradient of scores to the gradient of the weights and the gradient of the intercepts."""
        # columns: (n_nodes, n_columns), gradient with respect to scores
        # returns: coef, (n_sharing, n_columns, n_features) float64; intercept, (n_sharing, n_columns) float64
        shape = self.n_sharing, columns.shape[1]
        of_rows = columns.reshape(len(self.rows), -1)
        return gram(self.rows, of_rows).reshape(*shape, -1), sum_columns(of_rows).reshape(shape)

    @classmethod
    def stacked(cls, parts):
        """Return the concatenated features of several examples."""
        return parts[0].replace_rows(np.concatenate([part.rows for part in parts]))
