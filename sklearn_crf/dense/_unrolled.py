"""Derivatives through the updates of mean field."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.dense import _tuning
from sklearn_crf.dense._losses import through_softmax
from sklearn_crf.inference.local._dense_mean_field import DenseUpdates, product_over_nodes
from sklearn_crf.kernels.dense.small_fields import pull_back_small_field, update_small_field
from sklearn_crf.models import padded_rows


class Gradient(NamedTuple):
    """Derivative of a loss by the values of a dense model."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (M, K, K), all entries as independent variables
    columns: list  # per kernel (d,): by the logarithm of the scale of each column of its features


def marginals_of_updates(model, inference, n_threads=1):
    """Marginals at the start and after each update."""
    # returns list of (N, K)
    # inference: its updates must not average with old scores
    with range_runner(n_threads) as run:
        updates = DenseUpdates(model, run)
        trajectory = [updates.marginals.copy()]
        for _ in range(inference.max_iter):
            checkpoint()
            change = updates.step()
            trajectory.append(updates.marginals.copy())
            if change <= inference.tol:
                break
    return trajectory


class _ScaleSlopes:
    r"""Derivative of :math:`h' \hat K q` by the logarithm of the scale :math:`\theta_a` of each column of features.

    The derivative of the Gaussian kernel, :math:`k(i, j) (f_{ia} - f_{ja})^2`, is filtered by the lattice; the lattice
    itself is not differentiated, as points move over its cells.
    """

    def __init__(self, smooth, features, n_threads):
        self._smooth, self._n_threads = smooth, n_threads
        # Only differences count, and moments about the centre lose fewer digits.
        self._features = features - features.mean(axis=0)
        squares = self._features**2
        # Barycentric weights sum to one, so that rows of the filter's weights sum to the factors n_i of normalisation.
        norm = smooth.weight.sum(axis=1, keepdims=True)
        own, first, second = (self._filtered(values / norm) for values in (1, self._features, squares))
        # Derivative of the logarithm of n_i^-2, the sum of row i.
        by_sums = norm * (squares * own - 2 * self._features * first + second)
        self._moments = (squares - by_sums / 2).astype(np.float64)

    def of(self, left, right, adjoint):
        """Return derivatives (d,); ``adjoint`` is the transposed filter applied to ``left``, all (N, K)."""
        pairs = _row_products(left, self._filtered(right)) + _row_products(adjoint, right)
        found = pairs @ self._moments
        for a, column in enumerate(self._features.T):
            found[a] -= 2 * (column @ _row_products(left, self._filtered(column[:, np.newaxis] * right)))
        return found

    def _filtered(self, values):
        return self._smooth.apply(values, n_threads=self._n_threads)


def _row_products(a, b):
    return np.einsum("ik,ik->i", a, b, dtype=np.float64)


def pull_back(model, trajectory, slope, n_threads=1, features=()):
    r"""Return derivatives by unary scores and compatibilities, given that by the last logits.

    Logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`, so that with g the derivative by s_t, that by
    :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)` and that by :math:`q_{t-1}` is
    :math:`\sum_m (\hat K_m' g) \mu_m'`: one adjoint filtering per kernel and update.
    """
    # trajectory: list of (N, K), as returned by :func:`marginals_of_updates`
    # slope: (N, K), derivative of the loss by the logits of the last marginals
    # features: (N, d), those of each filter, where the derivative by their scales is wanted
    tables = model.tables
    scales = [_ScaleSlopes(*pair, n_threads) for pair in zip(model.filters, features, strict=bool(features))]
    by_columns = [np.zeros(own.shape[1]) for own in features]
    by_tables = np.zeros(tables.shape)
    by_unary = slope.copy()
    for q in reversed(trajectory[:-1]):
        checkpoint()
        by_q = np.zeros_like(slope)
        for m, smooth in enumerate(model.filters):
            adjoint = smooth.apply(slope, adjoint=True, n_threads=n_threads)
            by_tables[m] += product_over_nodes(q, adjoint)
            table = tables[m].T.astype(slope.dtype)
            by_neighbors = adjoint @ table
            by_q += by_neighbors
            if features:
                by_columns[m] += scales[m].of(slope @ table, q, by_neighbors)
        slope = through_softmax(q, by_q)
        by_unary += slope
    return Gradient(by_unary, by_tables, by_columns)


class SmallField:
    """A field of few nodes, whose compatibilities join equal states alone: the updates of its mean field.

    Marginals have the bits that single updates give them. Whether a field is small does not depend on threads.
    """

    def __init__(self, model, unary, lattices):
        self._n_columns, self._unary, self._lattices = model.n_columns, unary, lattices
        self._factors = np.zeros((len(lattices), unary.shape[1]), unary.dtype)
        self._factors[:, : model.n_columns] = model.compatibility.reshape(len(lattices), -1) if lattices else 0

    @classmethod
    def of(cls, model):
        """Return the small field of a model, or None if it is larger or has other compatibilities."""
        if model.n_nodes > _tuning.MOST_SMALL_NODES or model.compatibility.ndim == 3:
            return None
        unary = padded_rows(model.unary, model.dtype, -np.inf)
        lattices = [smooth.small_lattice(smooth.workspace(unary.shape[1])) for smooth in model.filters]
        return None if any(lattice is None for lattice in lattices) else cls(model, unary, lattices)

    def trajectory(self, max_iter, tol):
        """Marginals at the start and after each update, rows padded, (n_updates + 1, N, width)."""
        checkpoint()
        trajectory = np.empty((max_iter + 1, *self._unary.shape), self._unary.dtype)
        n_updates = update_small_field(self._lattices, self._factors, self._unary, tol, trajectory)
        return trajectory[: n_updates + 1]

    def last_of(self, trajectory):
        """Marginals (N, K) at the end."""
        return np.ascontiguousarray(trajectory[-1, :, : self._n_columns])

    def pull_back(self, trajectory, slope):
        """Return derivatives by unary scores and compatibilities, given that by the last logits, (N, K)."""
        checkpoint()
        slope = padded_rows(slope, self._unary.dtype)
        by_unary = slope.copy()
        width, states = slope.shape[1], slice(self._n_columns)
        by_tables = np.zeros((len(self._lattices), width, width))
        pull_back_small_field(self._lattices, self._factors, trajectory, slope, by_unary, by_tables)
        return Gradient(np.ascontiguousarray(by_unary[:, states]), by_tables[:, states, states], [])
