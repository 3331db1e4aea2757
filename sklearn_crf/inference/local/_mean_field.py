"""Naive mean field: the best approximating distribution with independent nodes."""

from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner, run_fixed_ranges
from sklearn_crf.inference._allowed_labels import search_allowed_labels
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._factor_mean_field import FactorMeanField
from sklearn_crf.inference._local_search import (
    SCHEDULES,
    allocate_table_buffers,
    build_local_arguments,
    get_unary,
    group_updates,
    sweep,
)
from sklearn_crf.inference._results import Marginals, score_labeling
from sklearn_crf.kernels.local.local import mean_field_bound, mean_field_update
from sklearn_crf.models import FactorGraph, PairwiseModel, Statistics, check_labels


@options(kw_only=False)
class MeanField(Inference):
    r"""Naive mean field: marginals of the closest distribution with independent nodes, and a lower bound.

    .. math::
        \log Z \ge \max_q \; \sum_{s, k} q_s(k) \big(u_{s k} - \log q_s(k)\big)
            + \sum_{e = (i, j)} \sum_{k, l} q_i(k) \, q_j(l) \, \theta_e(k, l)

    In a factor graph, the second sum is over factors of two and more nodes, and the joint states of each.

    Each update sets the marginals of one node to their optimum given its neighbours' marginals,
    :math:`q_s(k) \propto \exp(u_{s k} + \sum_{e \ni s} \mathrm{E}_q[\theta_e(k, \cdot)])`, so the bound never
    decreases. ``log_z`` is the bound at the returned marginals, whether or not they have converged. At convergence, the
    bound is stationary with respect to the marginals, and the marginals are its derivatives with respect to the scores.
    Mean field underestimates uncertainty: with strong attraction, it selects one of several modes, depending on the
    start.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of sweeps over the nodes.
    tol : float, default=1e-6
        Sweeps stop when no probability changes by more than this in a sweep.
    damping : float, default=0
        Weight of the old marginals in an update, in [0, 1). Damping is not needed for convergence, because updates are
        made node by node or colour by colour.
    schedule : {"sequential", "checkerboard"}, default="sequential"
        Order of the nodes: by index, or by colours of ``graph.colouring``. Nodes of a colour have no edges among them
        and are processed by ``n_threads`` in parallel. Nodes of a factor graph are processed by index.

    Raises
    ------
    ValueError
        If an option is out of its range or ``init`` does not fit the model.

    Notes
    -----
    The start is the distribution without edges, or ``init``: marginals of shape (N, K), such as the ``state`` of an
    earlier result, or labels of shape (N,), which are treated as certain. If pairs of states are forbidden, the bound
    is -inf as long as ``q`` gives a forbidden pair a positive probability. If the bound is still -inf at the end,
    updates restart from an allowed labeling. If a search finds no allowed labeling, a warning is issued and ``bound``
    is None.

    The labels of ``map`` are the most probable state of each node under the marginals. In ``log_z_terms``, edges and
    factors contribute to the term of their first node.

    References
    ----------
    M. J. Wainwright and M. I. Jordan. Graphical Models, Exponential Families, and Variational Inference. Foundations
    and Trends in Machine Learning 1, 2008, :doi:`10.1561/2200000001`, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import MeanField
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = MeanField().marginals(model)
    >>> round(found.log_z, 3), found.bound
    (4.254, 'lower')
    """

    tasks = frozenset({"map", "marginals"})
    takes = (PairwiseModel, FactorGraph)
    _choices: ClassVar[dict] = {"schedule": SCHEDULES}
    max_iter: int = 1000
    tol: float = 1e-6
    damping: float = 0.0
    schedule: str = "sequential"

    def _map(self, model, *, init=None, n_threads=1):
        q, n_iter, converged = self._ascend(model, init, self._open(model, n_threads))
        labels = np.argmax(q, axis=1).astype(np.int32)
        return score_labeling(model, labels, n_iter=n_iter, converged=converged, state=q)

    def _marginals(self, model, *, init=None, n_threads=1):
        field = self._open(model, n_threads)
        q, n_iter, converged = self._ascend(model, init, field)
        terms, statistics = field.bound(q)
        if np.isneginf(terms.sum()):
            # Updates from an allowed labeling never reach a forbidden pair.
            # An error is raised if no labeling is allowed.
            labels = search_allowed_labels(model, np.argmax(q, axis=1).astype(np.int32))
            if labels is not None:
                q, n_more, converged = self._ascend(model, labels, field)
                terms, statistics = field.bound(q)
                n_iter += n_more
        log_z = float(terms.sum())
        is_bound = not np.isneginf(log_z)
        if not is_bound:
            warn_unconverged(
                "The bound of MeanField is -inf, because its marginals give a forbidden pair of states a positive "
                "probability and no feasible labeling was found: pass a feasible labeling as init.",
            )
        return Marginals(
            q.astype(model.dtype),
            statistics,
            log_z,
            terms,
            bound="lower" if is_bound else None,
            n_iter=n_iter,
            converged=converged and is_bound,
            state=q,
        )

    def _open(self, model: Any, n_threads: int) -> Any:
        if isinstance(model, FactorGraph):
            return FactorMeanField(model)
        return _PairwiseMeanField(model, self.schedule, n_threads if self.schedule == "checkerboard" else 1)

    def _ascend(self, model, init, field):
        """Sweep until the marginals converge; return marginals, the number of sweeps, and whether they converged."""
        q = build_starting_marginals(model, init)
        for n_iter in range(1, self.max_iter + 1):
            checkpoint()
            change, _ = field.sweep(self.damping, q)
            if change <= self.tol:
                return q, n_iter, True
        warn_unconverged(
            f"MeanField stopped after max_iter={self.max_iter} sweeps with a change of {change:.2g}, more than "
            f"tol={self.tol:.2g}: increase max_iter or tol."
        )
        return q, n_iter, False


class _PairwiseMeanField:
    """Sweeps over the nodes of a pairwise model, with the interface of :class:`FactorMeanField`."""

    def __init__(self, model: PairwiseModel, schedule: str, n_threads: int) -> None:
        self.model, self.run = model, make_range_runner(n_threads)
        self.arguments, self.groups = build_local_arguments(model), group_updates(model.graph, schedule)

    def sweep(self, damping: float, q: np.ndarray) -> tuple[float, None]:
        changes = sweep(self.run, self.groups, mean_field_update, *self.arguments, damping, q)
        return max(changes, default=0.0), None

    def bound(self, q: np.ndarray) -> tuple[np.ndarray, Statistics]:
        n_nodes = self.model.graph.n_nodes
        terms, buffers = np.empty(n_nodes), allocate_table_buffers(self.model, n_nodes)

        def kernel(k, start, stop):
            mean_field_bound(start, stop, *self.arguments, q, terms, buffers[k])

        run_fixed_ranges(self.run, kernel, n_nodes, len(buffers))
        return terms, Statistics(q.astype(self.model.dtype), buffers.sum(axis=0))


def build_starting_marginals(model, init):
    """Return marginals to start from, (N, K) float64, which are zero for states forbidden by ``unary``."""
    unary = get_unary(model)
    alone = softmax(unary.astype(np.float64), axis=1)
    if init is None:
        return alone
    q = (
        np.array(init, dtype=np.float64)
        if np.ndim(init) == 2
        else np.eye(model.n_columns)[check_labels(model, init, name="init")]
    )
    if q.shape != unary.shape:
        raise ValueError(f"init must be marginals of shape {unary.shape} or labels, got shape {q.shape}.")
    if not np.all((q >= 0) & (q <= 1 + 1e-6)):
        raise ValueError("init must hold probabilities, found values outside 0 to 1.")
    q[np.isneginf(unary)] = 0
    total = q.sum(axis=1, keepdims=True)
    return np.where(total > 0, q / np.where(total > 0, total, 1), alone)
