"""IncMP: incremental subgradient steps, edge after edge."""

from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf.inference._field import make_field
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.relaxations._best_labels import RecentStates
from sklearn_crf.inference.relaxations._subgradient import Run, SubgradientMap, relative_first_step
from sklearn_crf.kernels.relaxations.incremental import (
    decode_shares,
    dual_value,
    incremental_sweep,
    pick_labels,
    shuffle,
)


class IncMPState(NamedTuple):
    """State of a result of :class:`IncMP`, for a warm start."""

    moved: np.ndarray  # (2E, K), float64
    labels: np.ndarray  # (N,), int32
    gap: float

    def shares(self, model):
        r"""Scores :math:`\lambda_s^F` that the edges hold of their ends.

        Over the edges of a node they sum to its unary scores.
        """
        # returns: (E, 2, K), float64
        edges, degree = model.graph.edges, np.maximum(model.graph.degree, 1)
        left = model.unary.astype(np.float64)
        np.subtract.at(left, edges.ravel(), self.moved)
        return self.moved.reshape(*edges.shape, -1) + (left / degree[:, None])[edges]


@options
class IncMP(SubgradientMap):
    r"""Incremental subgradient steps on the dual of the linear relaxation over single edges.

    .. math::
        \max_y \mathrm{score}(y) \le \min_\lambda \sum_{F = (s, t)} \max_{y_s, y_t}
            \lambda_s^F(y_s) + \lambda_t^F(y_t) + \theta_{st}(y_s, y_t)
        \quad \text{subject to} \quad \sum_{F \ni s} \lambda_s^F = u_s

    Every edge is a problem of its own that holds a share of the scores of its ends. Edge after edge, in random order,
    lowers the states of its best pair by a step, and what it gave up is shared out among all edges of the node. The
    minimum is that of :class:`LinearProgram`. After each sweep every node takes the state that one of its edges, drawn
    at random, had for it: a candidate. The best so far are kept. If their score meets the bound they are optimal
    (``certified``), which happens if all edges agree on them. A moving average of the states that edges had for a node
    is nearly a solution of the linear relaxation: ``fractional``. Forests are solved exactly at once.

    Parameters
    ----------
    max_iter : int, default=1000
        Most sweeps over the edges.
    tol : float, default=1e-5
        Step, relative to the standard deviation of the scores, at which it ends.
    least_step : float, default=1e-3
        Step, relative to the standard deviation of the scores, from which on steps are ``least_step / k``.
    climb : bool, default=True
        Change each candidate one node at a time as long as that gains, before looking at its score, and try two more
        candidates: the states that edges had most often in the last sweeps; and node after node, the best state given
        earlier ones and the best that later ones can do. False leaves the candidates of the reference.
    random_state : int, RandomState instance or None, default=0
        Order of the edges, and labels of candidates.

    See Also
    --------
    DualDecomposition : The same dual over spanning trees, which share the work among threads.
    TRWS : The same dual by messages that never let it rise, but may stop short of its minimum.

    Notes
    -----
    The first step is the standard deviation of all scores. The reference proposes ``decay=0.95, backoff=0.5``: these
    end after some thirty sweeps on small grids, a few per cent above the minimum, the defaults here after two or three
    hundred and within 1e-3, mostly 1e-5. With ``decay=0.999, backoff=0.98, least_step=1e-5, tol=1e-7`` it comes within
    1e-6 on small models, in some twelve hundred sweeps. A warm start begins with a step as small as the change of the
    gap lets it.

    Forbidden states and pairs are ruled out beforehand as far as single edges show them. Where the relaxation has no
    solution nevertheless, the bound falls without end, and it is an error once it is below the score of any labeling.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 26. A. Nedic, D. P. Bertsekas.
    Incremental subgradient methods for nondifferentiable optimization. SIAM J. Optimization 12, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import IncMP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = IncMP().map(model)
    >>> found.labels.tolist(), round(found.score, 3), round(found.bound, 3)
    ([1, 1, 1], 3.5, 3.5)
    """

    has_fractional = True
    _starts_from: ClassVar[tuple[type, ...]] = (IncMPState,)

    def _map(self, model, *, init=None, n_threads=1):
        if model.graph.is_forest:
            return TreeInference()._map(model)
        run = _IncMPMessages(model, init, self.climb, check_random_state(self.random_state))
        found = self._minimised(model, run)
        # What solves the problem itself solves its relaxation.
        certain = RecentStates(found.labels, model.n_columns) if found.certified else run.recent
        return found._replace(fractional=certain.average)


class _IncMPMessages(Run):
    """Shares of the edges."""

    def __init__(self, model, init, climb, rng):
        if init is not None:
            _check_start(init, model)
        super().__init__(model, climb, init)
        graph = self.model.graph
        self.field, _ = make_field(self.model, maximum=True)
        self.share = 1 / np.maximum(graph.degree, 1)
        self.moved = np.zeros((2 * graph.n_edges, self.field.width))
        if init is not None:
            self.moved[:, : model.n_columns] = init.moved
        self.base = np.empty((graph.n_nodes, self.field.width))
        self.picked = np.empty(2 * graph.n_edges, dtype=np.int32)
        self.order = np.arange(graph.n_edges, dtype=np.int32)
        self.random = np.array([rng.randint(1, 2**31 - 1)], dtype=np.uint64)
        self.direction = 1
        self.work = self.field.workspace()
        self.candidate = self.best.labels.copy()
        self.recent = RecentStates(self.best.labels, model.n_columns)
        self.ends = graph.edges.ravel()
        self.incident = graph.incidence.ptr, graph.incidence.half_edge
        self._evaluate()

    def first_step(self, least: float) -> float:
        return relative_first_step(self, self.spread * self.model.graph.n_edges, least)

    def iterate(self, step: float) -> None:
        edges = self.model.graph.edges
        step = step * self.spread
        shuffle(self.order, self.random)
        incremental_sweep(
            self.field, edges, self.order, self.share, step, self.moved, self.base, self.picked, self.work
        )
        pick_labels(*self.incident, self.picked, self.random, self.candidate)
        self.best.offer(self.candidate)
        frequent = self.recent.add(self.ends, self.picked, self.share[self.ends])
        if self.best.climb:
            self.best.offer(frequent)
        self._evaluate()
        if self.best.climb:
            decode_shares(self.field, self.moved, self.base, self.direction, self.candidate, self.work)
            self.best.offer(self.candidate)
            self.direction = -self.direction

    def state(self):
        return IncMPState(self.moved[:, : self.model.n_columns].copy(), self.best.labels, self.gap)

    def _evaluate(self) -> None:
        edges = self.model.graph.edges
        self.note(dual_value(self.field, edges, self.share, self.moved, self.base, self.picked, self.work))


def _check_start(init, model):
    shape = 2 * model.graph.n_edges, model.n_columns
    if init.moved.shape != shape or not np.isfinite(init.moved).all():
        raise ValueError(f"init must hold finite shares of shape {shape} for this model, got {init.moved.shape}.")
