"""Mean field of fully connected fields, with parallel updates of all nodes by Gaussian filters."""

from typing import Any, ClassVar

import numpy as np
from scipy.special import entr

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Marginals, score_labeling
from sklearn_crf.inference.local import _tuning
from sklearn_crf.inference.local._mean_field import build_starting_marginals
from sklearn_crf.kernels.dense.fields import update_fields
from sklearn_crf.models import DenseModel, Statistics, pad_rows


@options(kw_only=False)
class DenseMeanField(Inference):
    r"""Mean field of a fully connected field by parallel updates.

    .. math::
        q_i(k) \propto \exp\Big(u_{i k} + \sum_m \sum_j \hat K_m(i, j) \sum_l \mu_m(k, l) \, q_j(l)\Big)

    The sums over all nodes are filters, so an update takes time linear in the number of nodes. Updates maximise

    .. math::
        F(q) = \sum_i \sum_k q_i(k) \big(u_{i k} - \log q_i(k)\big)
            + \frac12 \sum_m \sum_{i, j} \hat K_m(i, j) \sum_{k, l} \mu_m(k, l) \, q_i(k) \, q_j(l),

    the negative free energy.

    Parameters
    ----------
    max_iter : int, default=10
        Maximum number of updates.
    tol : float, default=0
        Updates stop when no probability changes by more than this. By default, the number of updates is fixed, as
        published.
    updates : {"parallel", "convergent"}, default="parallel"
        With "parallel", updates are as published by [1]_, and may oscillate. With "convergent", F never decreases. If
        the compatibilities are positive semi-definite (their energies negative), F is a convex quadratic function plus
        the concave entropy, and linearising the convex part gives the update above [2]_. For other compatibilities, new
        scores are averaged with old scores, with the smallest weight of old scores that guarantees this. The filters
        need ``blur="symmetric"``.

    Raises
    ------
    ValueError
        If an option is out of its range, ``init`` does not fit the model, or a filter is not positive semi-definite
        for ``updates="convergent"``.

    Notes
    -----
    The start is the softmax of the unary scores, or ``init``: marginals of shape (N, K) or labels of shape (N,). The
    labels of ``map`` are the most probable state of each node.

    ``log_z`` is F minus the largest possible contribution of the pairs of a node with itself, which is zero for
    positive semi-definite compatibilities. ``log_z`` is a lower bound on the log-partition after any number of updates.

    References
    ----------
    .. [1] P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
       Advances in Neural Information Processing Systems 24, 109-117. :arxiv:`1210.5644`.
    .. [2] P. Krähenbühl & V. Koltun (2013). Parameter learning and convergent inference for dense random fields. ICML,
       513-521.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.inference import DenseMeanField
    >>> from sklearn_crf.models import DenseModel, PermutohedralFilter
    >>> smooth = PermutohedralFilter(np.arange(5.0)[:, np.newaxis] / 2.0)
    >>> unary = np.array([[1.0, 0], [1, 0], [0, 0.5], [1, 0], [1, 0]])
    >>> DenseMeanField().map(DenseModel(unary, [smooth], [2.0])).labels
    array([0, 0, 0, 0, 0], dtype=int32)
    """

    tasks = frozenset({"map", "marginals"})
    takes = (DenseModel,)
    _choices: ClassVar[dict] = {"updates": ("parallel", "convergent")}
    max_iter: int = 10
    tol: float = 0.0
    updates: str = "parallel"

    def node_marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> np.ndarray:
        """Compute ``marginals(model).unary``, without the filtering that the bound would need.

        Parameters
        ----------
        model : DenseModel
        init : ndarray of shape (N, K) or (N,), optional
            Start, as for ``marginals``.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (N, K)
        """
        self._require("marginals", model)
        return self._ascend(model, init, n_threads)[0]

    def _check_model(self, model):
        super()._check_model(model)
        if self.updates == "convergent" and any(smooth.blur != "symmetric" for smooth in model.filters):
            raise ValueError(
                "updates='convergent' needs filters with blur='symmetric': use updates='parallel' with these filters."
            )

    def _map(self, model, *, init, n_threads):
        q, n_iter, converged = self._ascend(model, init, n_threads)
        return score_labeling(model, q.argmax(axis=1).astype(np.int32), n_iter=n_iter, converged=converged, state=q)

    def _marginals(self, model, *, init, n_threads):
        q, n_iter, converged = self._ascend(model, init, n_threads)
        pairs = pair_statistics(model, q, n_threads=n_threads)
        log_z = compute_negative_free_energy(model, q, pairs) - _bound_own_pairs(model, q)
        statistics = Statistics(q, pairs)
        return Marginals(q, statistics, log_z, None, "lower", n_iter=n_iter, converged=converged, state=q)

    def _ascend(self, model, init, n_threads):
        """Return the marginals (N, K), the number of updates, and whether they have converged."""
        field = DenseField(model)
        q, n_iter, change = field.updated(self, init, n_threads=n_threads)
        converged = bool(change <= self.tol)
        if self.tol > 0 and not converged:
            warn_unconverged(
                f"DenseMeanField stopped after max_iter={self.max_iter} updates with a change of {change:.2g}, more "
                f"than tol={self.tol:.2g}: increase max_iter or tol, or use updates='convergent'."
            )
        return field.states_of(q[0]), n_iter, converged


class DenseField:
    """Arrays of a model for the kernels."""

    # Rows are padded to the width that kernels need. The method states_of removes the padding.

    def __init__(self, model):
        self.unary = pad_rows(model.unary, model.dtype, -np.inf)
        self.n_states, self.width = model.n_columns, self.unary.shape[1]
        # The kernels accept several concatenated models; here there is only one model.
        self.lattices = [tuple(smooth.lattice(self.width) for smooth in model.filters)]
        self.ptr = np.array([0, model.n_nodes])
        self._model = model
        n_filters, states, dtype = len(model.filters), slice(model.n_columns), model.dtype
        self.factors, self.tables = np.empty((0, 0), dtype), np.empty((0, 0, 0), dtype)
        if model.compatibility.ndim == 3:
            self.tables = np.zeros((n_filters, self.width, self.width), dtype)
            self.tables[:, states, states] = model.compatibility
        elif n_filters:
            self.factors = np.zeros((n_filters, self.width), dtype)
            self.factors[:, states] = model.compatibility.reshape(n_filters, -1)

    def states_of(self, rows):
        """Return rows without their padding."""
        return np.ascontiguousarray(rows[..., : self.n_states])

    def updated(self, inference, init=None, *, keeps_all=False, n_threads=1):
        """Return padded marginals, the number of updates, and the last change.

        The marginals (n, N, width) are the last ones or, with ``keeps_all``, those at the start and after each update.
        """
        # init: (N, K) or (N,) or None
        model, dtype = self._model, self.unary.dtype
        marginals = np.zeros((1 + keeps_all * inference.max_iter, *self.unary.shape), dtype)
        inertia = _compute_inertia(model) if inference.updates == "convergent" else 0.0
        logits = np.empty(self.unary.shape if inertia > 0 else (0, 0), dtype)
        if init is not None:
            marginals[0] = pad_rows(build_starting_marginals(model, init), dtype)
        n_updates, change = np.zeros(1, np.int64), np.zeros(1)
        update_fields(
            self.lattices, self.ptr, self.factors, self.tables, self.unary, logits, inertia, inference.max_iter,
            inference.tol, marginals, init is None, n_updates, change, n_threads,
        )  # fmt: skip
        return marginals, int(n_updates[0]), change[0]


def pair_statistics(model, q, *, n_threads=1):
    """Return the derivatives (M, K, K) of the pairwise free energy with respect to the compatibilities, float64."""
    pairs = np.zeros(model.tables.shape)
    with limit_blas_threads():
        for pair, smooth in zip(pairs, model.filters, strict=True):
            pair += multiply_over_nodes(q, smooth.apply(q, n_threads=n_threads))
    return (pairs + pairs.transpose(0, 2, 1)) / 4


def multiply_over_nodes(a, b):
    """Return ``a.T @ b`` of (N, K) arrays, summed in float64 over blocks."""
    total = np.zeros((a.shape[1], b.shape[1]))
    for block in _blocks(len(a)):
        total += a[block].T @ b[block]
    return total


def compute_negative_free_energy(model, q, pairs):
    """Return F(q), the sum of expected unary scores, entropies and expected pairwise scores."""
    total = float(np.sum(model.tables * pairs))
    for block in _blocks(len(q)):
        part = q[block].astype(np.float64)
        total += entr(part).sum() + np.multiply(part, model.unary[block], where=part > 0, out=np.zeros_like(part)).sum()
    return total


def _blocks(n_nodes):
    return [slice(start, start + _tuning.SUMMED_NODES) for start in range(0, n_nodes, _tuning.SUMMED_NODES)]


def _bound_own_pairs(model, q):
    """Bound from above how much F gains by treating a node paired with itself as two independent nodes."""
    excess = 0.0
    for smooth, table in zip(model.filters, model.tables, strict=True):
        if _compute_least_eigenvalue(table) >= 0:
            continue
        # The entries of rows are non-negative, so a diagonal entry is at most the bound on the sum of its row.
        for block in _blocks(len(q)):
            part = q[block].astype(np.float64)
            independent = np.einsum("ik,kl,il->i", part, table, part)
            excess += 0.5 * smooth.largest_eigenvalue * np.maximum(independent - part @ np.diag(table), 0).sum()
    return excess


def _compute_least_eigenvalue(table):
    """Return a compatibility's smallest eigenvalue on vectors that sum to zero, or 0 if none is negative."""
    n_states = len(table)
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    least = np.linalg.eigvalsh(centred)[0] if n_states > 1 else 0.0
    return float(min(least, 0.0)) if least < -1e-12 * max(1.0, np.abs(table).max()) else 0.0


def _compute_inertia(model):
    # Along a change d of the marginals, the curvature of F is at least the smallest eigenvalue.
    # The added divergence from the old marginals, with weight rho, is at least |d|^2, because d sums to 0 at each node.
    # Therefore, rho is half of the magnitude of the smallest eigenvalue.
    rho = -0.5 * sum(
        smooth.largest_eigenvalue * _compute_least_eigenvalue(table)
        for smooth, table in zip(model.filters, model.tables, strict=True)
    )
    return rho / (1 + rho)
