"""Belief propagation on graphs with cycles."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._beliefs import infeasible_at_node
from sklearn_crf.inference._field import make_field
from sklearn_crf.inference.messages._counting_numbers import Split
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import MessageRun
from sklearn_crf.inference.messages._message_passing import MessagePassing
from sklearn_crf.models import FactorGraph, PairwiseModel


class LoopyBP(MessagePassing):
    r"""Loopy belief propagation: sum-product for marginals, max-product for labels.

    Messages are renewed until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp(u_s(a) + \theta_{st}(a, b)) \prod_{q \ne t} m_{q \to s}(a),

    with a maximum in place of the sum for labels. Marginals are the normalised products of what a node or an edge
    receives, and ``log_z`` is the Bethe approximation that a fixed point makes stationary,

    .. math::
        \log Z_B = \sum_s \log Z_s + \sum_{st} \log \frac{Z_{st}}{Z_s Z_t}.

    On a :class:`~sklearn_crf.models.FactorGraph` factors send messages,

    .. math::
        m_{F \to t}(b) \propto \sum_{y_F: y_t = b} \exp(\theta_F(y_F))
            \prod_{s \in F, s \ne t} \prod_{G \ni s, G \ne F} m_{G \to s}(y_s),

    at a cost in proportion to the entries of the factor's table, whether dense, sparse, or given by counts.

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
        Share of the old message that is kept, in [0, 1); on factor graphs, of its scores.
    schedule : {"auto", "sequential", "checkerboard", "residual"}, default="auto"
        Order of the messages. ``"sequential"``: forwards, then backwards through the nodes, which needs the
        fewest sweeps on lattices (one, on forests). ``"checkerboard"``: all nodes of a colour at once, which is what
        threads can share. ``"residual"``: always the node whose input changed most, for hard problems.
        ``"auto"`` is sequential up to 20,000 nodes and on forests, else checkerboard. Factor graphs know the
        sequential one only.
    climb : bool, default=True
        Whether labels are changed one node at a time in the end, as long as that gains.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss. Constructing free-energy approximations and generalized belief
    propagation algorithms. IEEE Trans. Information Theory 51, 2005. G. Elidan, I. McGraw, D. Koller. Residual belief
    propagation. UAI 2006.
    """

    takes = (PairwiseModel, FactorGraph)
    _sweep_depth = 3

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0, schedule="auto", climb=True):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.schedule = schedule
        self.climb = climb

    def _make_field(self, model, maximum):
        return make_field(model, maximum)

    def _check_model(self, model):
        super()._check_model(model)
        if isinstance(model, FactorGraph) and self.schedule not in ("auto", "sequential"):
            raise ValueError(f'schedule must be "auto" or "sequential" for a FactorGraph, got {self.schedule!r}.')

    def _marginals(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel):
            return super()._marginals(model, init=init, n_threads=n_threads)
        run, n_iter, converged = self._run_on_factors(LayeredModel(model), 1, init)
        bound = "exact" if run.layered.is_forest else None
        return run.marginals(bound=bound, n_iter=n_iter, converged=converged)

    def _map(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel):
            return super()._map(model, init=init, n_threads=n_threads)
        run, n_iter, converged = self._run_on_factors(LayeredModel(model), 0, init)
        labels, dead_end = run.labels_and_dead_end()
        is_forest = run.layered.is_forest
        if dead_end >= 0 and is_forest:
            raise infeasible_at_node(dead_end)
        found = self._labeling(model, labels, n_iter=n_iter, converged=converged, state=run.state)
        return found._replace(bound=found.score) if is_forest else found

    def _run_on_factors(self, layered, temperature, init):
        """Messages, number of iterations, converged?"""
        layers = layered.layers
        split = Split(1.0 - np.diff(layers.node_ptr), np.ones(layers.n_factors), np.zeros(len(layers.slot_node)))
        settling = () if layered.is_forest else (self.damping, self.tol)
        run = MessageRun(layered, split, temperature, init, *settling)
        if layered.is_forest:
            # From the leaves to the roots and back, and each node once more.
            run.iterate()
            run.iterate()
            return run, 2, True
        for n_iter in range(1, self.max_iter + 1):
            checkpoint()
            change = run.iterate()
            if change <= self.tol:
                return run, n_iter, True
        self._warn_unconverged(self._unsteady(temperature == 0, change), depth=2)
        return run, self.max_iter, False
