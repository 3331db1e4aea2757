"""Norm-product belief propagation."""

from typing import Any, ClassVar

from sklearn_crf._options import options
from sklearn_crf.inference._base import FINITE, POSITIVE, Inference
from sklearn_crf.inference._relaxed_problem import descend_to_labeling, descend_to_marginals
from sklearn_crf.inference.messages._counting_numbers import choose_counting_numbers, split_counting_numbers
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import MessageRun, run_over_forest
from sklearn_crf.models import FactorGraph, PairwiseModel


@options(kw_only=False)
class NormProductBP(Inference):
    r"""Norm-product belief propagation: convergent messages for any convex approximation of the entropy.

    .. math::
        \max_{\tau \in L} \; \langle \theta, \tau \rangle
            + T \Big( \sum_s c_s H(\tau_s) + \sum_F c_F H(\tau_F) \Big)

    over locally consistent marginals of nodes and factors. Counting numbers :math:`c` are convex if they can be
    written as

    .. math::
        c_F = c_{FF} + \sum_{s \in F} c_{sF}, \qquad c_s = c_{ss} - \sum_{F \ni s} c_{sF}

    with no negative term; for other numbers, an error is raised that names a node. The dual is minimised over the
    messages of one node after the other, forwards and backwards through the nodes. The dual never increases. ``log_z``
    is its value, which is at least the maximum above after any number of iterations. ``log_z`` is an upper bound on the
    log-partition
    (``bound="upper"``) if :math:`T \ge 1` and the entropy is trivial or tree-reweighted, or the counting numbers are
    non-negative and cover every node, :math:`c_s + \sum_{F \ni s} c_F \ge 1`.

    Labels come from messages with maxima in place of sums (:math:`T = 0`), which lower the dual of the linear
    relaxation of the MAP problem. This dual is an upper bound on the best score at every iteration. After each
    iteration nodes are labelled one by one, each given the labels of earlier nodes; the best labels are kept.

    Parameters
    ----------
    counting_numbers : {"trw", "trivial", "factors", "bethe"} or CountingNumbers, default="trw"
        ``"trw"``: tree-reweighted, for factors of any arity. The number of a factor is its share in a distribution over
        sets of factors without cycles, which for edges are spanning forests. The entropy is at most the entropy of the
        uniform distribution over labelings. The bound therefore exceeds the bound of the linear relaxation by at most
        the entropy of this distribution. ``"trivial"``: one for every factor with at least two nodes (edges of a
        pairwise model), and one for nodes without such factors. This entropy counts a node once for each of its
        factors. Messages converge faster, but the bound can be far above the log-partition. ``"factors"``: additionally
        one for every node, the trivial entropy of a graph with a factor at each node (Jancsary 2012, Eq. 127 and 158);
        its bound is even looser. ``"bethe"``: convex on forests only, where it is exact.
    edge_probabilities : {"auto", "uniform", "covering"} or array-like of shape (E,), default="auto"
        Edge probabilities of ``"trw"``, as in :class:`TRWMessagePassing`. If a factor has more than two nodes, they are
        the fractions of sets of factors without cycles that contain the factor: of few sets ("covering") or of many.
    temperature : float, default=1.0
        T of :meth:`marginals`, positive. Marginals are computed for the scores divided by T, and ``log_z`` is T times
        the value for these scores.
    map_temperature : float, default=0.0
        T of :meth:`map`. If it is positive, the bound is smooth, and messages do not get stuck where messages with
        maxima would. At the end, the bound is at most T times the largest entropy above the bound of the relaxation.
    max_iter : int, default=500
        Maximum number of iterations, each with a forward and a backward sweep. On forests, marginals of ``"trw"`` and
        ``"bethe"`` take two.
    tol : float, default=1e-6
        Tolerance. For marginals, iterations stop when no message changes by more than this, in probabilities or a
        hundredth of log-probabilities. For labels, they stop when the bound decreases by less than this in ten
        iterations, relative to its size (at least one).

    See Also
    --------
    TRWMessagePassing : Handles the tree-reweighted case, much faster if it converges.
    MPLP : Finds labels by messages of one factor at a time.

    Notes
    -----
    Messages are stored as scores in double precision, whatever the model's precision. On pairwise models with edge
    weights the tables of all edges are written out.

    If some :math:`c_s` is negative, the terms are found by a linear program that makes the smallest :math:`c_{FF}` as
    large as possible. The terms of a tree-reweighted entropy sum to the number of components. On large graphs, the
    terms are therefore small, and convergence is slow.

    References
    ----------
    T. Hazan, A. Shashua. Norm-product belief propagation: primal-dual message-passing for approximate inference. IEEE
    Trans. Information Theory 56, 2010, :arxiv:`0903.3127`. J. Jancsary. Approximate discriminative training of
    graphical models, 2012, Eq. 123 to 127.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import NormProductBP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = NormProductBP().marginals(model)
    >>> round(found.log_z, 2), found.bound
    (4.34, 'upper')
    """

    tasks = frozenset({"map", "marginals"})
    takes = (PairwiseModel, FactorGraph)
    _ranges: ClassVar[dict] = {
        "temperature": POSITIVE._replace(needed="be positive and finite for marginals"),
        "map_temperature": FINITE,
    }
    counting_numbers: Any = "trw"
    edge_probabilities: Any = "auto"
    temperature: float = 1.0
    map_temperature: float = 0.0
    max_iter: int = 500
    tol: float = 1e-6

    def _marginals(self, model, *, init=None, n_threads=1):
        layered, node, factor, bound = self._build_layers_and_numbers(model)
        if bound == "exact":
            # The entropy equals the Bethe entropy, for which two sweeps find the maximum.
            run = run_over_forest(layered, self.temperature, init)
            bound = bound if self.temperature == 1 else "upper" if self.temperature > 1 else None
            return run.marginals(bound=bound, n_iter=2, converged=True)
        if self.temperature != 1:
            bound = "upper" if bound and self.temperature > 1 else None
        run = start_messages(layered, node, factor, self.temperature, init, self.tol)
        return descend_to_marginals(self, run, bound)

    def _map(self, model, *, init=None, n_threads=1):
        layered, node, factor, _ = self._build_layers_and_numbers(model)
        return descend_to_labeling(self, model, start_messages(layered, node, factor, self.map_temperature, init))

    def _build_layers_and_numbers(self, model):
        layered = LayeredModel(model)
        return layered, *choose_counting_numbers(self.counting_numbers, layered, self.edge_probabilities)


def start_messages(layered, node, factor, temperature, init, tol=-1.0):
    """Start a message run for counting numbers of nodes and factors; components converged to ``tol`` are skipped."""
    return MessageRun(layered, split_counting_numbers(layered, node, factor), temperature, init, tol=tol)
