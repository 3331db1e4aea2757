"""Iterated conditional modes: fast ascent to a labeling that no change of a single node improves."""

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import make_range_runner
from sklearn_crf.inference import _local_search
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._results import score_labeling
from sklearn_crf.inference.local import _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel, SegmentModel, check_labels, compute_changed_scores


def compute_conditional_scores(model, labels):
    r"""Return the score of every state of every node, given the labels of the node's neighbours.

    .. math:: f_s(k) = u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)})

    These are the log-potentials of :math:`p(y_s \mid y_{n(s)})`. In a best labeling, the label of every node has the
    largest entry.
    """
    # labels: (N,) of int; returns: (N, K), float64
    if isinstance(model, SegmentModel):
        raise TypeError(
            "decision_function does not support segments, because these score whole runs: use predict_proba."
        )
    labels = check_labels(model, labels)
    if isinstance(model, FactorGraph):
        return compute_changed_scores(model, labels)[1]
    scores = model.unary.astype(np.float64)
    for start in range(0, model.graph.n_edges, _tuning.EDGES_AT_ONCE):
        edges = slice(start, start + _tuning.EDGES_AT_ONCE)
        tail, head = model.graph.edges[edges].T
        kind = model.edge_type[edges]
        weight = np.ones((len(kind), 1)) if model.edge_weight is None else model.edge_weight[edges]
        for node, rows in (
            (tail, model.tables[kind, :, :, labels[head]]),
            (head, model.tables[kind, :, labels[tail], :]),
        ):
            gather = sp.csr_matrix((np.ones(len(node)), (node, np.arange(len(node)))), (len(scores), len(node)))
            scores += gather @ np.einsum("er,erk->ek", weight, rows)
    return scores


@options(kw_only=False)
class ICM(Inference):
    r"""Iterated conditional modes: one node after another takes its best label given its neighbours.

    .. math::
        y_s \leftarrow \arg\max_k \Big( u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)}) \Big)

    The score never decreases, and the final labeling cannot be improved by changing a single node. This labeling is
    only a local maximum: a start near a good labeling is important, and restarts help a little. :class:`GraphCut` and
    :class:`LoopyBP` are better for the models that they support.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of sweeps over the nodes from one start.
    schedule : {"sequential", "checkerboard"}, default="sequential"
        Order of the nodes: by index, or by colours of ``graph.colouring``. Nodes of a colour have no edges among them
        and are processed by ``n_threads`` in parallel. Nodes of a factor graph are processed by index.
    n_restarts : int, default=0
        Number of additional starts from random labels; the best labeling is returned.
    random_state : int, RandomState instance or None, default=None
        Determines the labels of the restarts; without restarts nothing is random.

    Raises
    ------
    ValueError
        If an option is out of its range or ``init`` is not a labeling that ``unary`` allows.

    Notes
    -----
    The start is the state with the best unary score at each node, or ``init``: labels of shape (N,), such as the
    ``state`` of an earlier labeling. If the current label is one of several best labels, it is kept. Each sweep removes
    as many forbidden pairs of states as it can.

    References
    ----------
    J. Besag. On the Statistical Analysis of Dirty Pictures. Journal of the Royal Statistical Society B 48, 1986,
    :doi:`10.1111/j.2517-6161.1986.tb01412.x`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import ICM
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> ICM(n_restarts=5, random_state=0).map(model).labels
    array([1, 1, 1], dtype=int32)
    """

    tasks = frozenset({"map"})
    takes = (PairwiseModel, FactorGraph)
    _choices: ClassVar[dict] = {"schedule": _local_search.SCHEDULES}
    _ranges: ClassVar[dict] = {"n_restarts": at_least(0)}
    _climbs = False  # The sweeps of ICM are hill climbing already, limited by max_iter
    max_iter: int = 100
    schedule: str = "sequential"
    n_restarts: int = 0
    random_state: int | np.random.RandomState | None = None

    def _starts(self, model, init):
        yield (
            _local_search.label_nodes_independently(model)
            if init is None
            else _local_search.copy_initial_labels(model, init)
        )
        rng = check_random_state(self.random_state)
        for _ in range(self.n_restarts):
            yield _local_search.random_labels(model, rng)

    def _map(self, model, *, init=None, n_threads=1):
        best: Any = None
        run = make_range_runner(n_threads if self.schedule == "checkerboard" else 1)
        climber = _local_search.choose_climber(model)
        if self.schedule == "checkerboard" and not isinstance(model, FactorGraph):
            climber = _local_search.Climber(model, "checkerboard", run)
        for labels in self._starts(model, init):
            n_iter = n_changed = 0
            for n_iter, n_changed in enumerate(climber.sweeps(labels), 1):
                if not n_changed or n_iter >= self.max_iter:
                    break
            found = score_labeling(model, labels, n_iter=n_iter, converged=n_changed == 0, state=labels)
            if best is None or found.score > best.score:
                best, left = found, n_changed
        if not best.converged:
            warn_unconverged(
                f"ICM stopped after max_iter={self.max_iter} sweeps, the last of which still changed {left} of "
                f"{model.n_nodes} labels: increase max_iter.",
            )
        return best
