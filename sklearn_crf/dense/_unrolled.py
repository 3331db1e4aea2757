"""Derivatives through mean-field updates."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf.inference.local._dense_mean_field import DenseFields
from sklearn_crf.kernels.dense.fields import pull_back_fields
from sklearn_crf.models import padded_rows


class Gradient(NamedTuple):
    """Derivative of a loss by the parameters of a dense model."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (M, K, K), entries as independent variables; only the diagonal if other entries are zero
    columns: list  # for each kernel (d,), derivative by the logarithm of the scale of each feature column


class _ScaleSlopes:
    r"""Derivative of :math:`h' \hat K q` by the logarithm of the scale :math:`\theta_a` of each column of features.

    The derivative of the Gaussian kernel, :math:`k(i, j) (f_{ia} - f_{ja})^2`, is applied by filtering on the lattice.
    The lattice approximation itself is not differentiated, since it is not smooth.
    """

    def __init__(self, smooth, features, n_threads):
        self._smooth, self._n_threads = smooth, n_threads
        # Only differences of features matter, and centred features lose fewer digits.
        self._features = features - features.mean(axis=0)
        squares = self._features**2
        # Barycentric weights sum to 1, so each row of the filter's weights sums to its normalisation factor n_i.
        norm = smooth.weight.sum(axis=1, keepdims=True)
        own, first, second = (self._filter(values / norm) for values in (1, self._features, squares))
        # Derivative of the logarithm of n_i^-2, which is the sum of row i of the kernel.
        by_sums = norm * (squares * own - 2 * self._features * first + second)
        self._moments = (squares - by_sums / 2).astype(np.float64)

    def of(self, left, right, adjoint):
        """Return the derivatives (d,). ``adjoint`` is the transposed filter applied to ``left``; all are (N, K)."""
        pairs = _row_products(left, self._filter(right)) + _row_products(adjoint, right)
        found = pairs @ self._moments
        for a, column in enumerate(self._features.T):
            found[a] -= 2 * (column @ _row_products(left, self._filter(column[:, np.newaxis] * right)))
        return found

    def _filter(self, values):
        return self._smooth.apply(values, n_threads=self._n_threads)


def _row_products(a, b):
    return np.einsum("ik,ik->i", a, b, dtype=np.float64)


class UnrolledUpdates:
    r"""Mean-field updates of several models, with the marginals of all updates, and derivatives through them.

    The logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`. Let g be the derivative by :math:`s_t`. Then the
    derivative by :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)`, and the derivative by :math:`q_{t-1}` is
    :math:`\sum_m (\hat K_m' g) \mu_m'`. This requires one adjoint filtering per kernel and update.
    """

    # inference: mean field without damping

    def __init__(self, models, inference, n_threads=1):
        self._models, self._n_threads = models, n_threads
        self._fields = DenseFields(models)
        self._marginals, self._n_updates, _ = self._fields.updated(inference, keeps_all=True, n_threads=n_threads)

    @property
    def last(self):
        """Marginals of each model after its last update, (N, K)."""
        bounds = zip(self._n_updates, pairwise(self._fields.ptr), strict=True)
        return [self._fields.states_of(self._marginals[n, start:stop]) for n, (start, stop) in bounds]

    def pull_back(self, slopes, features=None):
        """Return the derivatives by each model, given the derivatives by its last logits, (N, K)."""
        # features: (N, d) for each model and filter, to also compute derivatives by their scales; None otherwise
        fields, n_filters = self._fields, len(self._models[0].filters)
        slope = padded_rows(np.concatenate(slopes), fields.unary.dtype)
        by_unary = slope.copy()
        by_tables = np.zeros((len(self._models), n_filters, fields.width, fields.width))
        kept = np.empty((0, 0, 0) if features is None else (self._marginals.shape), slope.dtype)
        pull_back_fields(
            fields.lattices, fields.ptr, fields.factors, fields.tables, self._marginals, self._n_updates, slope,
            by_unary, by_tables, kept, self._n_threads,
        )  # fmt: skip
        states = slice(fields.n_states)
        found = []
        for i, (start, stop) in enumerate(pairwise(fields.ptr)):
            own = slice(start, stop)
            columns = (
                [] if features is None else self._slopes_of_columns(i, features[i], kept[: self._n_updates[i], own])
            )
            found.append(Gradient(fields.states_of(by_unary[own]), by_tables[i, :, states, states], columns))
        return found

    def _slopes_of_columns(self, i, features, slopes):
        """Return for each filter the derivatives by the logarithm of the scale of each feature column."""
        # slopes: (n_updates, N, width), derivatives by the logits of each update
        model, own = self._models[i], slice(*self._fields.ptr[i : i + 2])
        found = []
        for smooth, columns, table in zip(model.filters, features, model.tables, strict=True):
            scales, total = _ScaleSlopes(smooth, columns, self._n_threads), np.zeros(columns.shape[1])
            for q, slope in zip(self._marginals[:, own], slopes, strict=False):
                left = self._fields.states_of(slope) @ table.T.astype(slope.dtype)
                adjoint = smooth.apply(left, adjoint=True, n_threads=self._n_threads)
                total += scales.of(left, self._fields.states_of(q), adjoint)
            found.append(total)
        return found
