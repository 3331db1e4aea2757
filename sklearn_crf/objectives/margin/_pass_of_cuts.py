"""Losses of MAP labelings of small lattices with two states, each by one kernel call that finds the minimum cut."""

from functools import partial
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import SCORE_LIMITS
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding._examples import ComputedEdges
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import AutoMap, GraphCut, n_labelings
from sklearn_crf.inference.cuts._cut_network import STOP, LatticeFlow, Rounding, precision
from sklearn_crf.kernels.cuts.fusion_moves import capacity_bound
from sklearn_crf.kernels.cuts.lattice_cut import lattice_cut_loss
from sklearn_crf.objectives._risk import RiskValue
from sklearn_crf.objectives.likelihood._discrete import SaddlePoint
from sklearn_crf.objectives.margin._hinges import StructuredHinge
from sklearn_crf.potentials import LinearPotentials


class _Lattice(NamedTuple):
    """One lattice with the data on which its minimum cut depends, except the weights."""

    graph: Graph
    features: np.ndarray  # (N, F)
    offset: np.ndarray  # (N,) float64, added to the score of state 1 minus the score of state 0, or empty
    labels: np.ndarray  # (N,) int32
    edge_type: np.ndarray  # (E,) int32
    edge_weight: np.ndarray  # (E, R), or no rows
    largest: np.ndarray  # (1, R) largest magnitudes of edge_weight, or ones
    weight: float


class PassOfCuts:
    r"""Risk of losses with MAP labelings that are minimum cuts of small lattices.

    .. math::
        \ell = \max_y \mathrm{score}(y) - \mathrm{score}(y^*), \qquad
        \partial \ell \ni \phi(\hat y) - \phi(y^*)

    Scores may be augmented by costs of nodes. No model is made: one kernel call computes the loss and the differences
    of statistics from scores of nodes and tables. This is much faster than separate inference and statistics.
    """

    name = "minimum cuts of lattices"
    objectives = SaddlePoint, StructuredHinge

    def __init__(self, risk):
        cost = risk.objective.cost if isinstance(risk.objective, StructuredHinge) else None
        self._potentials = risk.potentials
        self._lattices = [_lattice_of(batch, cost) for batch in risk.batches]
        # Unused buffers of recent lattices, at most one for each thread
        self._idle = []

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether examples are small lattices with two states that the inference labels by minimum cuts."""
        is_linear = type(potentials) is LinearPotentials and not potentials.forbids
        if not is_linear or potentials.n_classes != 2 or potentials.n_node_types > 1:
            return False
        return all(_is_cut(objective.inference, batch) for batch in batches)

    def value_grad(self, risk, coef, members):
        """Return the risk of all or some batches, or None if an edge is not submodular or a score is not finite."""
        chosen = self._lattices if members is None else [self._lattices[i] for i in members]
        weights = self._potentials.unpack(np.asarray(coef))
        tables = self._potentials.form.expand(weights.edge_coef)
        failed: list = []
        found = map_tasks(partial(self._loss, weights=weights, tables=tables, failed=failed), chosen, risk.n_jobs)
        if failed:
            return None
        value, n_errors, nodes, pairs = (sum(parts) for parts in zip(*found, strict=True))
        gradient = self._gradient(nodes, pairs)
        return RiskValue(value, gradient, n_errors, converged=True, n_nonsubmodular=0)

    def plane(self, i, coef):
        """Return slope (n_coef,) and cost of the weighted cutting plane of batch i, or None as in ``value_grad``."""
        lattice, weights = self._lattices[i], self._potentials.unpack(np.asarray(coef))
        found = self._cut(lattice, weights, self._potentials.form.expand(weights.edge_coef))
        if found is None:
            return None
        *_, cost, nodes, pairs = found
        return lattice.weight * self._gradient(nodes, pairs), lattice.weight * cost

    def _gradient(self, nodes, pairs):
        """Return the derivative by the weights from sums of statistics of nodes and pairs."""
        gradient = np.zeros(self._potentials.n_coef)
        own = self._potentials.unpack(gradient)
        own.coef[0, 0] = nodes[:-1]
        own.intercept[...] = nodes[-1]
        own.edge_coef[...] = self._potentials.form.adjoint(pairs)
        return gradient

    def _loss(self, lattice, weights, tables, failed, n_threads):
        """Return the weighted loss of a lattice, its number of errors, and statistics of nodes and pairs."""
        found = None if failed else self._cut(lattice, weights, tables)
        if found is None:
            failed.append(lattice)
            return None
        value, n_errors, _, nodes, pairs = found
        weight = lattice.weight
        return weight * value, weight * n_errors, weight * nodes, weight * pairs

    def _cut(self, lattice, weights, tables):
        """Return loss, number and cost of errors, and statistics of nodes and pairs, or None if a cut is not exact."""
        dtype, n_features = lattice.features.dtype, lattice.features.shape[1]
        tables = np.ascontiguousarray(tables, dtype=dtype)
        carried, endless = capacity_bound(tables, lattice.largest, np.empty(tables.shape[1]))
        largest_score = float((np.abs(tables) * lattice.largest[0, :, np.newaxis, np.newaxis]).sum())
        # Without a bound on capacities, the rounding scale would depend on the scores of all nodes.
        if endless or not carried > 0 or not largest_score <= SCORE_LIMITS[dtype]:
            return None
        rounding = Rounding.of(lattice.graph, carried, (0.0, 0), may_be_coarse=False)
        scores = lattice.features @ weights.coef[0, 0].astype(dtype)
        if weights.intercept.size:
            scores += weights.intercept[0, 0].astype(dtype)
        nodes, pairs = np.empty(n_features + 1), np.empty(tables.shape)
        flow, choice = buffers = self._buffers_for(lattice.graph)
        value, n_errors, cost = flow.in_one_call(
            lattice_cut_loss,
            (lattice.features, scores, lattice.offset, lattice.labels, SCORE_LIMITS[dtype]),
            (tables, lattice.edge_type, lattice.edge_weight, lattice.graph.edges),
            *(choice, rounding, precision(lattice.features), STOP, (nodes, pairs)),
        )
        self._idle.append(buffers)
        return None if np.isnan(value) else (value, n_errors, cost, nodes, pairs)

    def _buffers_for(self, graph):
        """Return buffers of the flow, and the labelings of all nodes in state 0 and in state 1."""
        try:
            flow, choice = self._idle.pop()
        except IndexError:
            flow = None
        if flow is None or flow.graph is not graph:
            flow = LatticeFlow(graph, np.dtype(np.int64))
            choice = np.zeros(graph.n_nodes, dtype=np.int32), np.ones(graph.n_nodes, dtype=np.int32)
        return flow, choice


def _is_cut(inference, batch):
    """Return whether a batch is a fully labelled small lattice that the inference labels by a minimum cut."""
    example, graph = batch.example, batch.example.graph
    if batch.labels is None or np.min(batch.labels, initial=0) < 0 or example.has_factors:
        return False
    if example.n_states is not None or not isinstance(example.node_features, np.ndarray):
        return False
    if isinstance(example, ComputedEdges) or not LatticeFlow.fits(graph) or not LatticeFlow.takes_one_call(graph):
        return False
    if type(inference) is AutoMap:
        return not graph.is_forest and n_labelings(graph.n_nodes, 2) > inference.enumerates
    return type(inference) is GraphCut


def _lattice_of(batch, cost):
    # cost: (2, 2), by state, then true state, or None
    example, labels = batch.example, np.ascontiguousarray(batch.labels, dtype=np.int32)
    n_edges, dtype = example.graph.n_edges, example.node_features.dtype
    offset = np.empty(0)
    if cost is not None:
        offset = (cost[1] - cost[0])[labels]
        if batch.node_weight is not None:
            offset = offset * batch.node_weight
    weight = np.empty((0, 1), dtype=dtype)
    if example.edge_features is not None:
        weight = np.ascontiguousarray(example.edge_features, dtype=dtype)
    return _Lattice(
        graph=example.graph,
        features=np.ascontiguousarray(example.node_features),
        offset=offset,
        labels=labels,
        edge_type=np.zeros(n_edges, dtype=np.int32) if example.edge_type is None else example.edge_type,
        edge_weight=weight,
        largest=np.abs(weight).max(axis=0, keepdims=True) if len(weight) else np.ones((1, 1), dtype=dtype),
        weight=1.0 if batch.weight is None else float(batch.weight[0]),
    )
