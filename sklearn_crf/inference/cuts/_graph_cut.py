"""Exact MAP of binary submodular models, and roof duality for other binary models."""

from typing import ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Labeling, score_labeling
from sklearn_crf.inference.cuts import _cut_network
from sklearn_crf.kernels.cuts.fusion_moves import (
    complete_sweep,
    find_not_submodular,
    half_integral_score,
    truncation_slack,
)
from sklearn_crf.models import PairwiseModel


class CutState(NamedTuple):
    """Number of edges that are not submodular, and number of nodes that roof duality did not label."""

    n_nonsubmodular: int
    n_unlabelled: int


@options(kw_only=False)
class GraphCut(Inference):
    r"""Labeling with the highest score for models with two states, by a minimum cut.

    An edge with table :math:`\begin{pmatrix} a & b \\ c & d \end{pmatrix}` (its weights applied) is submodular if

    .. math::
        a + d \ge b + c .

    If all edges are submodular, the labeling with the highest score is a minimum cut of a network with one node per
    variable. This labeling is found exactly: ``bound`` equals ``score``. Ties are resolved in favour of state 0.

    Parameters
    ----------
    nonsubmodular : {"error", "truncate", "qpbo"}, default="error"
        What to do with edges that are not submodular. ``"error"`` raises ValueError and names the first edge.
        ``"truncate"`` lowers the scores of their mixed labelings by :math:`(b + c - a - d) / 2` each, which leaves a
        modular term. ``"qpbo"`` is roof duality. It labels some of the nodes as in some labeling with the highest score
        (persistency), and gives an upper bound on the best score. The other nodes are labelled by iterated conditional
        modes that start from their unary scores.

    Notes
    -----
    States forbidden by -inf in ``unary`` are hard seeds. In ``tables``, -inf is allowed where a network can represent
    it: at (0, 1) and (1, 0), in whole rows and in whole columns. With ``"qpbo"`` it is allowed anywhere. Scores are
    rounded to integers of 60 bits (for float32 models to 30 bits, if these are fine enough). The cut is exact for the
    rounded scores.

    ``Labeling.state`` is a :class:`CutState`: the number of edges that are not submodular, and the number of nodes that
    roof duality did not label. ``Labeling.bound`` is an upper bound on the best score for all three options.

    References
    ----------
    V. Kolmogorov, R. Zabih. What energy functions can be minimized via graph cuts? TPAMI 2004,
    :doi:`10.1109/TPAMI.2004.1262177`. V. Kolmogorov, C. Rother. Minimizing nonsubmodular functions with graph cuts: a
    review. TPAMI 2007, :doi:`10.1109/TPAMI.2007.1031`.

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
    _starts_from: ClassVar[tuple[type, ...]] = (CutState,)
    exact_on = "submodular"
    _choices: ClassVar[dict] = {"nonsubmodular": ("error", "truncate", "qpbo")}
    nonsubmodular: str = "error"

    def _check_model(self, model: PairwiseModel) -> None:
        super()._check_model(model)
        if model.n_columns > 2:
            raise ValueError(
                f"GraphCut needs nodes with two states, got {model.n_columns}: use AlphaExpansion or AlphaBetaSwap."
            )

    def _map(self, model, *, init=None, n_threads=1):
        n_nodes = model.graph.n_nodes
        if model.n_columns == 1 or n_nodes == 0:
            return self._exact(model, np.zeros(n_nodes, dtype=np.int32))
        try:
            return self._exact(model, _label_by_cut(model, _cut_network.STOP, n_threads))
        except _cut_network.NotSubmodular:
            edge, lacking, n_nonsubmodular = _find_not_submodular(model)
        if n_nonsubmodular and self.nonsubmodular == "qpbo":
            return self._solve_roof_dual(model, n_nonsubmodular)
        if n_nonsubmodular and (self.nonsubmodular == "error" or np.isinf(lacking)):
            raise ValueError(_explain(model, edge, lacking, self.nonsubmodular))
        try:
            labels = _label_by_cut(model, _cut_network.TRUNCATE, n_threads)
        except _cut_network.NotSubmodular as stopped:
            # The first edge can be truncated, but the edge of this error cannot.
            raise ValueError(_explain(model, stopped.args[0], np.inf, self.nonsubmodular)) from None
        if not n_nonsubmodular:
            return self._exact(model, labels)
        slack = truncation_slack(
            *_cut_network.gather_pairwise_values(model), model.graph.edges, labels, _cut_network.precision(model)
        )
        labeling = self._score(model, labels)
        return labeling._replace(bound=labeling.score + slack, state=CutState(n_nonsubmodular, 0))

    def _exact(self, model: PairwiseModel, labels: np.ndarray) -> Labeling:
        labeling = self._score(model, labels)
        return labeling._replace(bound=labeling.score, state=CutState(0, 0))

    def _score(self, model: PairwiseModel, labels: np.ndarray) -> Labeling:
        if model.n_columns == 2:
            return Labeling(labels, _compute_relaxed_score(model, labels))
        return score_labeling(model, labels)

    def _solve_roof_dual(self, model, n_nonsubmodular):
        n_nodes = model.graph.n_nodes
        keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
        taken = _cut_network.CutNetwork(model, mirrored=True).cut(keep, take, _cut_network.CROSS)
        labels = np.full(n_nodes, -1, dtype=np.int32)
        labels[taken[:n_nodes]] = 1
        labels[taken[n_nodes:]] = 0
        bound = _compute_relaxed_score(model, labels)
        n_unlabelled = int(np.count_nonzero(labels < 0))
        _complete(model, labels)
        labeling = self._score(model, labels)
        bound = max(bound, labeling.score) if n_unlabelled else labeling.score
        return labeling._replace(bound=bound, state=CutState(n_nonsubmodular, n_unlabelled))


def _label_by_cut(model, mode, n_threads):
    keep, take = np.zeros(model.graph.n_nodes, dtype=np.int32), np.ones(model.graph.n_nodes, dtype=np.int32)
    return _cut_network.CutNetwork(model).cut(keep, take, mode, n_threads).astype(np.int32)


def _compute_relaxed_score(model: PairwiseModel, labels: np.ndarray) -> float:
    """Return the relaxed score of a labeling, in which -1 stands for half of each state."""
    return half_integral_score(model.unary, *_cut_network.gather_pairwise_values(model), model.graph.edges, labels)


def solve_exact_cut(model: PairwiseModel, n_threads: int = 1) -> Labeling | None:
    """Return the result of a minimum cut, or None if no cut can represent some edges."""
    if model.n_columns > 2:
        return None
    # If a cut cannot represent the model, this is mostly detected while capacities are set, without a check in advance.
    found = GraphCut(nonsubmodular="truncate")
    try:
        return found._exact(model, _label_by_cut(model, _cut_network.STOP, n_threads))
    except _cut_network.NotSubmodular:
        return None if count_not_submodular(model) else found._map(model, n_threads=n_threads)


def count_not_submodular(model: PairwiseModel) -> int:
    """Return the number of edges that a minimum cut cannot represent, or 0 unless the model has two states."""
    return _find_not_submodular(model)[2] if isinstance(model, PairwiseModel) and model.n_columns == 2 else 0


def _find_not_submodular(model: PairwiseModel) -> tuple:
    """Return the first edge that is not submodular (or -1), its violation, and the number of such edges."""
    return find_not_submodular(*_cut_network.gather_pairwise_values(model), _cut_network.precision(model))


def _explain(model, edge, lacking, nonsubmodular):
    tail, head = model.graph.edges[edge]
    table = model.edge_tables(slice(edge, edge + 1))[0].tolist()
    sentence = (
        f"model is not submodular: edge {edge} (nodes {tail} and {head}) has the table {table}, which violates "
        f"a + d >= b + c by {lacking:.6g}"
    )
    if nonsubmodular == "truncate":
        return f"{sentence}. An infinite violation cannot be truncated: use nonsubmodular='qpbo'."
    return f"{sentence}: use nonsubmodular='qpbo' or 'truncate', or another inference."


def _complete(model, labels):
    """Label nodes that are labelled -1 by iterated conditional modes, in place."""
    nodes = np.flatnonzero(labels < 0).astype(np.int32)
    if not len(nodes):
        return
    labels[nodes] = model.unary[nodes].argmax(axis=1)
    ptr, neighbor, half_edge, _ = model.graph.incidence
    values = (model.unary, *_cut_network.gather_pairwise_values(model), ptr, neighbor, half_edge)
    # Every change increases the score, so the loop ends. The limit prevents endless changes due to rounding errors.
    for _ in range(len(nodes) + 1):
        checkpoint()
        if not complete_sweep(*values, nodes, labels):
            break
