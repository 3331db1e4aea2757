"""Exact MAP of binary submodular models, and roof duality for the others."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, map_tasks
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference, Labeling
from sklearn_crf.inference.cuts._cut_network import (
    CROSS,
    STOP,
    TRUNCATE,
    CutNetwork,
    LatticeFlow,
    Rounding,
    largest_capacity,
    pairwise_values,
    precision,
    require_choice,
)
from sklearn_crf.kernels.cuts.fusion_moves import (
    complete_sweep,
    find_not_submodular,
    half_integral_score,
    integer_excess,
    node_terms,
    truncation_slack,
    unary_spread,
)
from sklearn_crf.models import PairwiseModel

# Types of edges that are looked at one by one: for so few that takes less than arrays do.
_FEW_TYPES = 16


class CutState(NamedTuple):
    """Edges and nodes that a minimum cut could not decide.

    Attributes
    ----------
    n_nonsubmodular : int
        Edges with a + d < b + c.
    n_unlabelled : int
        Nodes that roof duality left open.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import GraphCut
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> GraphCut().map(model).state
    CutState(n_nonsubmodular=0, n_unlabelled=0)
    """

    n_nonsubmodular: int
    n_unlabelled: int


class GraphCut(Inference):
    r"""Labeling of the highest score of a model with two states, by a minimum cut.

    An edge with table :math:`\begin{pmatrix} a & b \\ c & d \end{pmatrix}` (its weights applied) is submodular if

    .. math::
        a + d \ge b + c .

    If all edges are, the labeling of the highest score is a minimum cut of a network with one node per variable, and it
    is found exactly: ``bound`` equals ``score``. Ties go to state 0.

    Parameters
    ----------
    nonsubmodular : {"error", "truncate", "qpbo"}, default="error"
        What to do about edges that are not submodular. ``"error"`` raises and names the first. ``"truncate"`` makes
        their mixed labelings worse by :math:`(b + c - a - d) / 2` each, which leaves a modular term. ``"qpbo"`` is
        roof duality: it labels a part of the nodes as some labeling of the highest score does (persistency) and bounds
        the best score from above; the other nodes are filled in by iterated conditional modes from their unary scores.

    Notes
    -----
    States forbidden by -inf in ``unary`` are hard seeds. -inf in ``tables`` is allowed where a network can express
    it: (0, 1), (1, 0), whole rows and whole columns; with ``"qpbo"`` anywhere. Scores are rounded to integers of 60
    bits (float32 models: 30 bits where that is fine enough) before the cut, which is then exact.

    ``Labeling.state`` is a :class:`CutState`: the numbers of edges that are not submodular and of nodes that roof
    duality left open. ``Labeling.bound`` is an upper bound of the best score for all three options.

    References
    ----------
    V. Kolmogorov, R. Zabih. What energy functions can be minimized via graph cuts? TPAMI 2004.
    V. Kolmogorov, C. Rother. Minimizing nonsubmodular functions with graph cuts: a review. TPAMI 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import GraphCut
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> model = PairwiseModel(lattice((3,)), unary, tables=[[[0.5, 0.0], [0.0, 0.5]]])
    >>> GraphCut().map(model).labels
    array([1, 1, 1], dtype=int32)
    """

    tasks = frozenset({"map"})
    exact_on = "submodular"
    _choices: ClassVar[dict] = {"nonsubmodular": ("error", "truncate", "qpbo")}
    # A model whose edges were looked at before.
    _submodular = None

    def __init__(self, nonsubmodular="error"):
        self.nonsubmodular = nonsubmodular

    def _check_model(self, model):
        super()._check_model(model)
        if model.n_columns > 2:
            raise ValueError(
                f"GraphCut needs a model of two states, got {model.n_columns}: use AlphaExpansion or AlphaBetaSwap."
            )

    def _map(self, model, *, init=None, n_threads=1):
        n_nodes = model.graph.n_nodes
        if model.n_columns == 1 or n_nodes == 0:
            return self._exact(model, np.zeros(n_nodes, dtype=np.int32))
        edge, lacking, n_nonsubmodular = (-1, 0.0, 0) if model is self._submodular else _not_submodular(model)
        if n_nonsubmodular and self.nonsubmodular == "qpbo":
            return self._roof_dual(model, n_nonsubmodular)
        if n_nonsubmodular and (self.nonsubmodular == "error" or np.isinf(lacking)):
            raise ValueError(_explain(model, edge, lacking, self.nonsubmodular))
        keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
        taken = CutNetwork(model).cut(keep, take, TRUNCATE, n_threads)
        labels = taken.astype(np.int32)
        if not n_nonsubmodular:
            return self._exact(model, labels)
        slack = truncation_slack(*pairwise_values(model), model.graph.edges, labels, precision(model))
        labeling = self._feasible(model, labels)
        return labeling._replace(bound=labeling.score + slack, state=CutState(n_nonsubmodular, 0))

    def _exact(self, model, labels):
        labeling = self._feasible(model, labels)
        return labeling._replace(bound=labeling.score, state=CutState(0, 0))

    def _feasible(self, model, labels):
        score = _relaxed_score(model, labels) if model.n_columns == 2 else self._labeling(model, labels).score
        if np.isneginf(score):
            raise ValueError("model is infeasible: -inf in unary and tables forbids every labeling.")
        return Labeling(labels, score)

    def _roof_dual(self, model, n_nonsubmodular):
        n_nodes = model.graph.n_nodes
        keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
        taken = CutNetwork(model, mirrored=True).cut(keep, take, CROSS)
        labels = np.full(n_nodes, -1, dtype=np.int32)
        labels[taken[:n_nodes]] = 1
        labels[taken[n_nodes:]] = 0
        bound = _relaxed_score(model, labels)
        n_unlabelled = int(np.count_nonzero(labels < 0))
        _complete(model, labels)
        labeling = self._feasible(model, labels)
        bound = max(bound, labeling.score) if n_unlabelled else labeling.score
        return labeling._replace(bound=bound, state=CutState(n_nonsubmodular, n_unlabelled))


def _relaxed_score(model, labels):
    """Score in the local polytope of a labeling in which -1 is half of each state; the plain score without any."""
    return half_integral_score(model.unary, *pairwise_values(model), model.graph.edges, labels)


def cut_if_exact(model):
    """A minimum cut that need not look at the edges of this model again; None if it cannot represent some of them."""
    if model.n_columns > 2 or n_not_submodular(model):
        return None
    cut = GraphCut()
    cut._submodular = model
    return cut


def n_not_submodular(model):
    """Number of edges that a minimum cut cannot represent; 0 for models that are not of two states."""
    return _not_submodular(model)[2] if isinstance(model, PairwiseModel) and model.n_columns == 2 else 0


def _not_submodular(model):
    """First edge that is not submodular or -1, by how much it is not, and the number of such edges."""
    tables, weight = model.tables, model.edge_weight
    # Types that are submodular, times weights that are not negative, make edges that are: no need to look at each.
    if len(tables) <= min(_FEW_TYPES, model.graph.n_edges - 1) and (weight is None or weight.min() >= 0):
        slack = (a + d - b - c for a, b, c, d in tables.reshape(-1, 4).tolist())
        if all(value >= 0 for value in slack):
            return -1, 0.0, 0
    return find_not_submodular(*pairwise_values(model), precision(model))


def _explain(model, edge, lacking, nonsubmodular):
    tail, head = model.graph.edges[edge]
    table = model.edge_tables(slice(edge, edge + 1))[0].tolist()
    sentence = (
        f"model is not submodular: edge {edge} (nodes {tail} and {head}) has the table {table}, which violates "
        f"a + d >= b + c by {lacking:.6g}"
    )
    if nonsubmodular == "truncate":
        return f"{sentence}; an infinite violation cannot be truncated, use nonsubmodular='qpbo'."
    return f"{sentence}; use nonsubmodular='qpbo' or 'truncate', or another inference."


def _complete(model, labels):
    """Fill in nodes labelled -1 by iterated conditional modes, in place."""
    nodes = np.flatnonzero(labels < 0).astype(np.int32)
    if not len(nodes):
        return
    labels[nodes] = model.unary[nodes].argmax(axis=1)
    ptr, neighbor, half_edge, _ = model.graph.incidence
    values = (model.unary, *pairwise_values(model), ptr, neighbor, half_edge)
    # Every change raises the score, so that this ends; only rounding could make it repeat itself.
    for _ in range(len(nodes) + 1):
        checkpoint()
        if not complete_sweep(*values, nodes, labels):
            break


# Nodes whose scores are in memory at once where a large lattice is labelled by its rows.
_NODES_OF_ROWS = 1 << 16


class LatticeRows(NamedTuple):
    """A large lattice with two states, whose scores are made some rows at a time and never stored.

    Beside what is read, a minimum cut then keeps its residual capacities and its forests: 26 bytes a node with four
    neighbours, and up to 8 for its queues. Scores are made twice, once to find the scale of the integers. These have 30
    bits, for float64 too, where a unit is less than 2**-20 of a typical difference of unary scores, and else 60: the
    score of the labels is less than that of the best labeling by a unit a node and edge at most.

    Parameters
    ----------
    graph : Graph
        From :func:`~sklearn_crf.graphs.lattice`.
    model : callable(start, stop) -> PairwiseModel
        The model of the rows from one index of the first axis to another, on the lattice of their shape.
    """

    graph: Graph
    model: Callable[[int, int], PairwiseModel]

    @staticmethod
    def pays(graph):
        """Whether a lattice is so large that its rows are better looked at in turn."""
        return graph.n_nodes > 2 * _NODES_OF_ROWS and graph.shape is not None and LatticeFlow.fits(graph)

    def labels(self, n_threads=1):
        """Best labels, (N,) int32; None where a minimum cut does not represent every edge."""
        length = self.graph.shape[0]
        n_rows = max(1, _NODES_OF_ROWS * length // self.graph.n_nodes)
        parts = [(start, min(start + n_rows, length)) for start in range(0, length, n_rows)]
        found = map_tasks(lambda part, n_threads: self._survey(*part), parts, n_threads)
        if any(each is None for each in found):
            return None
        carried, total, n_unlike = np.array(found).T
        rounding = Rounding.of(self.graph, carried.max(), (total.sum(), n_unlike.sum()), may_be_coarse=True)
        return self._taken(rounding, parts, n_threads).astype(np.int32)

    def _taken(self, rounding, parts, n_threads):
        flow = LatticeFlow(self.graph, rounding.dtype)
        map_tasks(lambda part, n_threads: self._write(flow, rounding, *part), parts, n_threads)
        return flow.solve(n_threads)

    @property
    def _reach(self):
        return int(self.graph.offsets[:, 0].max())

    def _survey(self, start, stop):
        """Bound of the capacities of some rows, sum of the spreads of their unary scores, and number of these."""
        checkpoint()
        model = self.model(start, min(stop + self._reach, self.graph.shape[0]))
        carried, endless = largest_capacity(model)
        if endless or n_not_submodular(model):
            return None
        return carried, *unary_spread(model.unary[: (stop - start) * (self.graph.n_nodes // self.graph.shape[0])])

    def _write(self, flow, rounding, start, stop):
        """Capacities of some rows, from them and their neighbours."""
        checkpoint()
        length = self.graph.shape[0]
        width = self.graph.n_nodes // length
        low, high = max(start - self._reach, 0), min(stop + self._reach, length)
        model = self.model(low, high)
        n_nodes = model.graph.n_nodes
        keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
        cost = np.empty(n_nodes)
        node_terms(model.unary, keep, take, cost)
        part = LatticeFlow(model.graph, rounding.dtype)
        assert len(part.counts) == len(flow.counts)
        part.set_capacities(
            (*pairwise_values(model), model.graph.edges),
            *(keep, take, rounding.scale, rounding.most, precision(model), STOP, cost),
        )
        own = slice((start - low) * width, (stop - low) * width)
        node = integer_excess(cost[own], rounding.scale, rounding.most, flow.excess[start * width : stop * width])
        require_choice(node + start * width if node >= 0 else node)
        flow.residual[flow.guard + start * width : flow.guard + stop * width] = part.residual[part.guard :][own]
