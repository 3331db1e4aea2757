"""Max-product linear programming."""

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._field import make_infeasible_error
from sklearn_crf.inference._relaxed_problem import descend_to_labeling
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import FactorMessages, Reader, build_initial_messages
from sklearn_crf.kernels.messages.mplp import mplp_sweep
from sklearn_crf.models import FactorGraph, PairwiseModel


@options(kw_only=False)
class MPLP(Inference):
    r"""Max-product linear programming: labels and an upper bound on the best score that never increases.

    .. math::
        \max_y \mathrm{score}(y) \le \min_\delta \;
            \sum_s \max_{y_s} \Big( \theta_s(y_s) + \sum_{F \ni s} \delta_{Fs}(y_s) \Big)
            + \sum_F \max_{y_F} \Big( \theta_F(y_F) - \sum_{s \in F} \delta_{Fs}(y_s) \Big),

    which is the dual of the linear relaxation of the MAP problem. The dual is minimised over the messages from one
    factor after the other to all its :math:`n_F` nodes at once,

    .. math::
        \delta_{Fs}(a) = \frac{1}{n_F} \max_{y_F: y_s = a} \Big( \theta_F(y_F) + \sum_{t \in F} c_t(y_t) \Big) - c_s(a),
        \qquad c_s = \theta_s + \sum_{G \ni s, G \ne F} \delta_{Gs}.

    After each iteration, nodes are labelled one by one, each given the labels of earlier nodes; the best labels are
    kept. If their score equals the bound, they are optimal (``certified``). On pairwise models with two states, the
    bound converges to the bound of :class:`LinearProgram`; on other models it may stop above it.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of iterations, each with a forward and a backward sweep through the factors.
    tol : float, default=1e-7
        Iterations stop when the bound decreases by at most this in ten iterations, relative to its size (at least one).
        The bound can stay the same for one iteration and then decrease again.
    climb : bool, default=True
        Whether to improve the final labels by changing one node at a time while the score increases.

    See Also
    --------
    NormProductBP : Minimises the same dual by messages of one node at a time, also with a temperature.
    TRWS : Needs fewer iterations on pairwise models, because it updates whole chains.

    References
    ----------
    A. Globerson, T. Jaakkola. Fixing max-product: convergent message passing algorithms for MAP LP-relaxations. NIPS
    2007. D. Sontag, A. Globerson, T. Jaakkola. Introduction to dual decomposition for inference. In Optimization for
    Machine Learning, 2011, Figure 1.4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import MPLP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = MPLP().map(model)
    >>> found.labels.tolist(), round(found.score, 3), round(found.bound, 3)
    ([1, 1, 1], 3.5, 3.5)
    """

    tasks = frozenset({"map"})
    takes = (PairwiseModel, FactorGraph)
    max_iter: int = 500
    tol: float = 1e-7
    climb: bool = True

    def _map(self, model, *, init=None, n_threads=1):
        return descend_to_labeling(self, model, _MPLPMessages(LayeredModel(model), init))


class _MPLPMessages:
    """Current messages of MPLP, and the bound that they give."""

    def __init__(self, layered, init):
        layers = layered.layers._replace(maximum=True)
        self.layered, self.layers = layered, layers
        self.messages, _ = build_initial_messages((len(layers.slot_node), layers.n_columns), 0, init)
        self.totals = np.array(layered.node_scores)
        np.add.at(self.totals, layers.slot_node, self.messages)
        ones = np.ones(layers.n_factors)
        self.reader = Reader(layered, layers, 1.0, ones, np.zeros(len(layers.slot_node)))
        self.work = np.empty((2 + 2 * int(layers.arity.max(initial=0))) * layers.n_columns)
        self.bound = np.inf

    @property
    def state(self):
        return FactorMessages(self.messages, np.zeros(0))

    def lower(self) -> float:
        for direction in (1, -1):
            failed = mplp_sweep(
                self.layers, self.messages, self.totals, self.reader.left, self.reader.right, direction, self.work
            )
            if failed >= 0:
                place = np.flatnonzero(np.isneginf(self.totals).all(axis=1))[0]
                raise make_infeasible_error(int(self.layered.order[place]))
        before, self.bound = self.bound, float(self.totals.max(axis=1).sum()) + self.layered.constant
        return before - self.bound

    def labels(self) -> np.ndarray:
        self.reader.read(self.messages, self.reader.no_cross, self.totals)
        return self.reader.labels(self.totals)[0]
