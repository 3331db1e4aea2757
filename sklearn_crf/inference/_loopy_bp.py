"""Belief propagation on graphs with cycles."""

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._beliefs import beliefs_of, edge_marginals_of, infeasible_at_node, marginals_of
from sklearn_crf.inference._field import MAX_SCORE, SUM_PROBABILITY, Messages, initial_messages, make_field
from sklearn_crf.inference._schedules import SCHEDULES, choose_schedule
from sklearn_crf.kernels.forests import decode


class LoopyBP(Inference):
    r"""Loopy belief propagation: sum-product for marginals, max-product for labels.

    Messages are renewed until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp(u_s(a) + \theta_{st}(a, b)) \prod_{q \ne t} m_{q \to s}(a),

    with a maximum in place of the sum for labels. Marginals are the normalised products of what a node or an edge
    receives, and ``log_z`` is the Bethe approximation that a fixed point makes stationary,

    .. math::
        \log Z_B = \sum_s \log Z_s + \sum_{st} \log \frac{Z_{st}}{Z_s Z_t}.

    On a forest the fixed point is exact. On graphs with cycles convergence is not certain, and ``log_z`` bounds
    nothing; strong or mixed-sign interactions are where damping helps.

    Parameters
    ----------
    max_iter : int, default=100
        Most sweeps; a sweep renews every message once (``"residual"``: as many messages as that on average).
    tol : float, default=1e-4
        Largest change of a message that counts as none: of its probabilities for marginals, of its scores for
        labels, before damping.
    damping : float, default=0.0
        Share of the old message that is kept, in [0, 1).
    schedule : {"auto", "sequential", "checkerboard", "residual"}, default="auto"
        Order of the messages. ``"sequential"``: forwards, then backwards through the nodes, which needs the
        fewest sweeps on lattices (one, on forests). ``"checkerboard"``: all nodes of a colour at once, which is what
        threads can share. ``"residual"``: always the node whose input changed most, for hard problems.
        ``"auto"`` is sequential up to 20,000 nodes and on forests, else checkerboard.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss. Constructing free-energy approximations and generalized belief
    propagation algorithms. IEEE Trans. Information Theory 51, 2005. G. Elidan, I. McGraw, D. Koller. Residual belief
    propagation. UAI 2006.
    """

    tasks = frozenset({"map", "marginals"})
    exact_on = "forest"

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0, schedule="auto"):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.schedule = schedule

    def edge_marginals(self, model, edges=None, *, init=None, n_threads=1):
        """Joint beliefs of the two ends of edges.

        Parameters
        ----------
        model : PairwiseModel
        edges : array-like of int, optional
            Numbers of the edges wanted; all by default, which takes E x K x K numbers.
        init : Messages, optional
            ``state`` of a former result.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (n_edges, K, K)
            Entry (a, b) belongs to state a at ``graph.edges[e, 0]`` and b at ``graph.edges[e, 1]``.
        """
        self._require("marginals", model)
        field, _ = make_field(model, maximum=False)
        with range_runner(n_threads) as run:
            messages, _, _ = self._iterate(model.graph, field, init, run)
            return edge_marginals_of(field, model, messages, edges, run)

    def _marginals(self, model, *, init=None, n_threads=1):
        field, unary_shift = make_field(model, maximum=False)
        with range_runner(n_threads) as run:
            messages, n_iter, converged = self._iterate(model.graph, field, init, run)
            return marginals_of(
                field,
                model.dtype,
                unary_shift,
                messages,
                run,
                bound="exact" if converged and model.graph.is_forest else None,
                n_iter=n_iter,
                converged=converged,
                state=_state(field, messages),
            )

    def _map(self, model, *, init=None, n_threads=1):
        graph = model.graph
        field, _ = make_field(model, maximum=True)
        with range_runner(n_threads) as run:
            messages, n_iter, converged = self._iterate(graph, field, init, run)
            labels, failed = _decode(graph, field, messages)
            if failed >= 0:
                # On a forest a dead end proves that there is no labeling, elsewhere only a node without belief does.
                beliefs_of(field, messages, run)
                if graph.is_forest and converged:
                    raise infeasible_at_node(failed)
        result = self._labeling(model, labels, n_iter=n_iter, converged=converged, state=_state(field, messages))
        return result._replace(bound=result.score) if converged and graph.is_forest else result

    def _check_model(self, model):
        super()._check_model(model)
        if not self.max_iter >= 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter!r}.")
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative, got {self.tol!r}.")
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping must lie in [0, 1), got {self.damping!r}.")
        if self.schedule not in ("auto", *SCHEDULES):
            names = ", ".join(("auto", *SCHEDULES))
            raise ValueError(f"schedule must be one of {names}, got {self.schedule!r}.")

    def _iterate(self, graph, field, init, run):
        """Messages, number of sweeps, converged?"""
        messages = initial_messages(field, init)
        if graph.n_edges == 0:
            return messages, 0, True
        sweep = choose_schedule(self.schedule, graph)(graph, field, messages, self.damping, self.tol, run)
        for n_iter in range(1, self.max_iter + 1):
            checkpoint()
            change = sweep()
            if change < 0:
                raise infeasible_at_node(int(-1 - change))
            if change <= self.tol:
                return messages, n_iter, True
        what = "scores" if field.semiring == MAX_SCORE else "probabilities"
        self._warn_unconverged(
            f"LoopyBP stopped after max_iter={self.max_iter} sweeps with {what} of messages still changing by "
            f"{change:.2g}, more than tol={self.tol:g}: raise max_iter, or damping if they oscillate.",
            depth=2,
        )
        return messages, self.max_iter, False


def _decode(graph, field, messages):
    """Labels node after node along a spanning forest, so that ties are broken alike; a node at a dead end, or -1."""
    order = graph.forest.order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    labels = np.empty_like(order)
    return labels, decode(field, messages, order, rank, labels, field.work_space())


def _state(field, messages):
    n_columns = field.tables.shape[3]
    return Messages(np.ascontiguousarray(messages[:, :n_columns]), field.semiring != SUM_PROBABILITY)
