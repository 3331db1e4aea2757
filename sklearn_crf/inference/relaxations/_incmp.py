"""IncMP: incremental subgradient steps, one edge at a time."""

from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf import models
from sklearn_crf._options import options
from sklearn_crf.inference._field import make_field
from sklearn_crf.inference._local_search import label_nodes_independently
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.relaxations._best_labels import RecentStates
from sklearn_crf.inference.relaxations._subgradient import Run, SubgradientMap
from sklearn_crf.kernels.relaxations.relaxations import (
    decode_shares,
    dual_value,
    incremental_sweep,
    pick_labels,
    shuffle,
)


class IncMPState(NamedTuple):
    """Final variables of :class:`IncMP`, stored for a warm start."""

    moved: np.ndarray  # (2E, K), float64
    labels: np.ndarray  # (N,), int32
    gap: float

    def shares(self, model):
        r"""Return :math:`\lambda_s^F`, the unary scores of nodes as IncMP has divided them among the edges.

        The scores that a node gives to its edges sum to the unary scores of the node.
        """
        # returns: (E, 2, K), float64
        edges, degree = model.graph.edges, np.maximum(model.graph.degree, 1)
        left = model.unary.astype(np.float64)
        np.subtract.at(left, edges.ravel(), self.moved)
        return self.moved.reshape(*edges.shape, -1) + (left / degree[:, None])[edges]


@options
class IncMP(SubgradientMap):
    r"""Incremental subgradient steps, one edge at a time, on the dual of the linear relaxation.

    .. math::
        \max_y \mathrm{score}(y) \le \min_\lambda \sum_{F = (s, t)} \max_{y_s, y_t}
            \lambda_s^F(y_s) + \lambda_t^F(y_t) + \theta_{st}(y_s, y_t)
        \quad \text{subject to} \quad \sum_{F \ni s} \lambda_s^F = u_s

    Every edge is a separate problem with a share of the scores of its ends. For one edge after the other, in random
    order, a step lowers the scores of the best pair of states of the edge, and distributes the difference over all
    edges of each node. The minimum is equal to the bound of :class:`LinearProgram`. After each sweep, a candidate gives
    every node the state that a randomly drawn edge of the node chose. The best candidate is kept. If its score equals
    the bound, it is optimal (``certified``), which happens if all edges agree on it. ``fractional`` is a moving average
    of the states that edges chose for a node, which approximates a solution of the linear relaxation. Forests are
    solved exactly without iterations. In a factor graph, a factor of more than two nodes becomes a node, whose states
    are the joint states of the factor.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of sweeps over the edges.
    tol : float, default=1e-5
        Iterations stop when the step, relative to the standard deviation of the scores, is at most this.
    least_step : float, default=1e-3
        Step, relative to the standard deviation of the scores, after which steps are ``least_step / k``.
    climb : bool, default=True
        Whether to improve each candidate by changing one node at a time while the score increases, before its score is
        compared, and to try two more candidates. The first has the states that edges chose most often in recent sweeps.
        The second labels nodes in order, each with the best state given earlier nodes and the best states of later
        nodes. False uses only the candidates of the reference.
    random_state : int, RandomState instance or None, default=0
        Determines the order of the edges, and the labels of candidates.

    See Also
    --------
    DualDecomposition : Minimises the same dual over spanning trees, which threads share.
    TRWS : Decreases the same dual by messages, which never raise it but may end above its minimum.

    Notes
    -----
    The first step is the standard deviation of all scores. The reference proposes ``decay=0.95, backoff=0.5``. On small
    grids, these options end after about thirty sweeps, a few per cent above the minimum. The defaults here end after
    two or three hundred sweeps, within 1e-3 and mostly within 1e-5 of the minimum. With ``decay=0.999, backoff=0.98,
    least_step=1e-5, tol=1e-7``, the bound comes within 1e-6 on small models, in about twelve hundred sweeps. The first
    step of a warm start is proportional to the change of the gap.

    Forbidden states and pairs are excluded in advance as far as this follows from single edges. If the relaxation still
    has no solution, the bound decreases without end. An error is raised once the bound falls below the score of every
    labeling.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 26. A. Nedic, D. P. Bertsekas.
    Incremental subgradient methods for nondifferentiable optimization. SIAM J. Optimization 12, 2001,
    :doi:`10.1137/S1052623499362111`.

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
    takes = (models.PairwiseModel, models.FactorGraph)
    _starts_from: ClassVar[tuple[type, ...]] = (IncMPState,)

    def _map(self, model, *, init=None, n_threads=1):
        source = model
        if isinstance(model, models.FactorGraph):
            expanded = models.expand_factors(model)
            model, place = expanded.model, expanded.place
        else:
            place = np.arange(model.n_nodes)
        if model.graph.is_forest:
            found = TreeInference()._map(model)
            return found._replace(labels=found.labels[place])
        run = _IncMPMessages(model, init, self.climb, check_random_state(self.random_state), source, place)
        found = self._minimise(source, run)
        # A solution of the problem itself is also a solution of its relaxation.
        if found.certified:
            return found._replace(fractional=RecentStates(found.labels, source.n_columns).average)
        return found._replace(fractional=run.recent.average[place, : source.n_columns])


class _IncMPMessages(Run):
    """Unary scores divided among the edges, and the incremental subgradient steps that change them."""

    # source: the model whose labels are sought; place: node of ``model`` that represents each node of ``source``

    def __init__(self, model, init, climb, rng, source, place):
        if init is not None:
            shape = 2 * model.graph.n_edges, model.n_columns
            if init.moved.shape != shape or not np.isfinite(init.moved).all():
                raise ValueError(
                    f"init must hold finite scores of shape {shape} for this model, got {init.moved.shape}."
                )
        super().__init__(model, climb, init, source)
        self.place = place
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
        self.candidate = label_nodes_independently(self.model)
        self.candidate[place] = self.best.labels
        self.recent = RecentStates(self.candidate, model.n_columns)
        self.ends = graph.edges.ravel()
        self.incident = graph.incidence.ptr, graph.incidence.half_edge
        self._evaluate()

    @property
    def unit(self) -> float:
        return self.spread * self.model.graph.n_edges

    def iterate(self, step: float) -> None:
        edges = self.model.graph.edges
        step = step * self.spread
        shuffle(self.order, self.random)
        incremental_sweep(
            self.field, edges, self.order, self.share, step, self.moved, self.base, self.picked, self.work
        )
        pick_labels(*self.incident, self.picked, self.random, self.candidate)
        self.best.offer(self.candidate[self.place])
        frequent = self.recent.add(self.ends, self.picked, self.share[self.ends])
        if self.best.climb:
            self.best.offer(frequent[self.place])
        self._evaluate()
        if self.best.climb:
            decode_shares(self.field, self.moved, self.base, self.direction, self.candidate, self.work)
            self.best.offer(self.candidate[self.place])
            self.direction = -self.direction

    def state(self):
        return IncMPState(self.moved[:, : self.model.n_columns].copy(), self.best.labels, self.gap)

    def _evaluate(self) -> None:
        edges = self.model.graph.edges
        self.note(dual_value(self.field, edges, self.share, self.moved, self.base, self.picked, self.work))
