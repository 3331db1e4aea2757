"""Minimum cuts of large lattices, whose capacities are computed for a few rows at a time."""

from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, map_tasks
from sklearn_crf.inference.cuts import _tuning
from sklearn_crf.inference.cuts._cut_network import (
    TRUNCATE,
    LatticeFlow,
    Rounding,
    bound_capacities,
    gather_pairwise_values,
    precision,
    require_choice,
)
from sklearn_crf.inference.cuts._graph_cut import GraphCut, count_not_submodular
from sklearn_crf.kernels.cuts.fusion_moves import integer_excess, node_terms, score_gain, unary_spread
from sklearn_crf.models import clamped
from sklearn_crf.models._row_models import RowModels, split_row_ranges


class LatticeRows(NamedTuple):
    r"""Large lattice with two states, whose scores are computed for a few rows at a time and never stored.

    In addition to its input, a minimum cut then stores its residual capacities and its forests, which take 26 bytes per
    node with four neighbours, and up to 8 bytes for its queues. Scores are computed twice, the first time to find the
    scale of the integers. Integers have 30 bits, also for float64, if a unit is then less than 2**-20 of a typical
    difference of unary scores; otherwise they have 60 bits. The score of the labels is below the best by at most one
    unit per node and edge.

    If edges are not submodular, by :math:`l_e = b + c - a - d > 0`, the cut solves the truncated model, in which the
    mixed labelings of these edges score less by :math:`l_e / 2`. A second flow then rewards each node i for leaving its
    label :math:`\hat y_i`, by

    .. math::
        m_i = \sum_{e \ni i, \, l_e > 0, \, \hat y_{e_1} = \hat y_{e_2}} l_e / 2 .

    These rewards are upper bounds for the model itself, in which an edge gains only if one end leaves its label and the
    other end keeps its label. Hence some best labeling keeps the labels of all nodes that do not leave in the second
    flow. Few nodes leave their label. In the rows of these nodes, roof duality must decide the labels, given the labels
    of all nodes that stay.
    """

    rows: RowModels

    @staticmethod
    def pays(graph):
        """Return whether a lattice is so large that it should be processed a few rows at a time."""
        return graph.n_nodes > 2 * _tuning.NODES_OF_ROWS and graph.shape is not None and LatticeFlow.fits(graph)

    def labels(self, n_threads=1, may_truncate=True):
        """Return the best labels, (N,) int32, or None if they cannot be found row by row."""
        # may_truncate: whether to accept edges that are not submodular
        graph = self.rows.graph
        parts = parts_of(graph)
        found = map_tasks(lambda part, n_threads: self._survey(*part), parts, n_threads)
        if any(each is None for each in found):
            return None
        carried, total, n_unlike, n_truncated = np.array(found).T
        if n_truncated.sum() > may_truncate * _tuning.MOST_TRUNCATED * graph.n_edges:
            return None
        rounding = Rounding.of(graph, carried.max(), (total.sum(), n_unlike.sum()), may_be_coarse=True)
        flow = LatticeFlow(graph, rounding.dtype)
        map_tasks(
            lambda part, n_threads: _write(flow, rounding, self.rows, _build_zeros_and_ones, *part), parts, n_threads
        )
        labels = flow.solve(n_threads).astype(np.int32)
        truncated = [part for part, n in zip(parts, n_truncated, strict=True) if n]
        return self._undo_truncation(flow, rounding, labels, truncated, n_threads) if truncated else labels

    def _survey(self, start, stop):
        """Return the largest capacity, sum of unary spreads, number of spread nodes, and number of truncated edges."""
        checkpoint()
        model, of_rows = select_reached_rows(self.rows, start, stop), self.rows.nodes(0, stop - start)
        carried, endless = bound_capacities(model)
        return None if endless else (carried, *unary_spread(model.unary[of_rows]), count_not_submodular(model))

    def _undo_truncation(self, flow, rounding, labels, parts, n_threads):
        """Convert labels of the truncated model to labels of the model, or return None if the conversion fails."""
        found = map_tasks(lambda part, n_threads: self._find_truncated(labels, *part), parts, n_threads)
        nodes, amounts = (np.concatenate(column) for column in zip(*found, strict=True))
        if not len(nodes):
            return labels
        paid, place = np.unique(nodes, return_inverse=True)
        amounts = np.ceil(np.ldexp(np.bincount(place, amounts), rounding.exponent))
        amounts = np.minimum(amounts, rounding.most).astype(flow.excess.dtype)
        flow.excess[paid] += np.where(labels[paid] == 1, amounts, -amounts)
        stays = flow.solve(n_threads) == labels
        ranges = self.rows.find_rows_around(np.unique(np.flatnonzero(~stays) // self.rows.width))
        if sum(stop - start for start, stop in ranges) > _tuning.MOST_OPEN_ROWS * self.rows.length:
            return None
        settled = map_tasks(lambda ends, n_threads: self._solve_roof_dual(labels, stays, *ends), ranges, n_threads)
        if any(each is None for each in settled):
            return None
        for (start, stop), own in zip(ranges, settled, strict=True):
            labels[self.rows.nodes(start, stop)] = own
        return labels

    def _find_truncated(self, labels, start, stop):
        """Return, for some rows, the ends of truncated edges with equal labels, and half of each edge's violation."""
        checkpoint()
        model, nodes = select_reached_rows(self.rows, start, stop), self.rows.nodes(start, stop)
        lacking = (model.tables.astype(np.float64) * [[-1, 1], [1, -1]]).sum(axis=(2, 3))[model.edge_type]
        lacking = lacking[:, 0] if model.edge_weight is None else (lacking * model.edge_weight).sum(axis=1)
        edges = np.flatnonzero(lacking > 0)
        tail, head = model.graph.edges[edges].T + nodes.start
        alike = (labels[tail] == labels[head]) & (tail < nodes.stop)
        return np.concatenate((tail[alike], head[alike])), np.tile(lacking[edges[alike]] / 2, 2)

    def _solve_roof_dual(self, labels, stays, start, stop):
        """Return labels of some rows given the nodes that stay, or None if roof duality does not label all nodes."""
        checkpoint()
        own = self.rows.nodes(start, stop)
        known = np.where(stays[own], labels[own], -1)
        found = GraphCut(nonsubmodular="qpbo").map(clamped(self.rows.between(start, stop), known))
        state: Any = found.state
        return None if state.n_unlabelled else found.labels


class RowMoves:
    """Best moves between labelings of a large lattice, whose capacities are computed for a few rows at a time.

    Each move computes scores twice, for capacities and for the gain. Between moves, a flow with 26 bytes per node with
    four neighbours stays in memory.
    """

    # rows: RowModels

    def __init__(self, rows, n_threads=1):
        self.rows = rows
        self._parts = parts_of(rows.graph)
        found = map_tasks(lambda part, n_threads: self._survey(*part), self._parts, n_threads)
        carried, total, n_unlike = np.array(found).T
        self._rounding = Rounding.of(rows.graph, carried.max(), (total.sum(), n_unlike.sum()), may_be_coarse=True)
        self._flow = LatticeFlow(rows.graph, self._rounding.dtype)

    def move(self, labels, choice, n_threads=1, since=-1):
        """Change labels in place by the best move if this raises the score, and return the gain."""
        # labels: (N,) int32; since: ignored, because each move considers all nodes again
        # choice: callable(labels) -> states that nodes may keep, and states that they may take in place of their labels
        arguments = self._flow, self._rounding, self.rows

        def write(part, n_threads):
            _write(*arguments, lambda nodes: choice(labels[nodes]), *part)

        map_tasks(write, self._parts, n_threads)
        taken = self._flow.solve(n_threads)
        gain = sum(map_tasks(lambda part, n_threads: self._gain(labels, choice, taken, *part), self._parts, n_threads))
        if gain > 0:
            for part in self._parts:
                nodes = self.rows.nodes(*part)
                labels[nodes] = _apply_moves(labels[nodes], choice, taken[nodes])
        return gain

    def _survey(self, start, stop):
        """Return, for some rows, the largest capacity, the sum of unary spreads, and the count of nodes with spread."""
        checkpoint()
        model = select_reached_rows(self.rows, start, stop)
        return bound_capacities(model)[0], *unary_spread(model.unary[self.rows.nodes(0, stop - start)])

    def _gain(self, labels, choice, taken, start, stop):
        """Return the gain of the moves in some rows, given that earlier rows have already changed."""
        checkpoint()
        own = self.rows.nodes(start, stop)
        if np.array_equal(_apply_moves(labels[own], choice, taken[own]), labels[own]):
            return 0.0
        model, low, high = self.rows.around(start, stop)
        nodes = self.rows.nodes(low, high)
        old = labels[nodes]
        new = _apply_moves(old, choice, taken[nodes])
        before, after = own.start - nodes.start, own.stop - nodes.start
        old[:before], new[after:] = new[:before], old[after:]
        return score_gain(model.unary, *gather_pairwise_values(model), model.graph.edges, old, new)


def parts_of(graph):
    """Return ranges of rows, each small enough to hold its scores in memory."""
    return split_row_ranges(graph, _tuning.NODES_OF_ROWS)


def _apply_moves(labels, choice, taken):
    keep, take = choice(labels)
    return np.where(taken, take, keep)


def _build_zeros_and_ones(nodes):
    """Return an array of zeros and an array of ones, as states of the nodes of a slice."""
    n_nodes = nodes.stop - nodes.start
    return np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)


def select_reached_rows(rows, start, stop):
    """Return the model of some rows and of the later rows that their edges reach."""
    return rows.between(start, min(stop + rows.reach, rows.length))


def _write(flow, rounding, rows, choice, start, stop):
    """Write the capacities of some rows into the flow, computed from the rows and their neighbours."""
    # choice: callable(nodes) -> states that the nodes may keep and take
    checkpoint()
    model, low, high = rows.around(start, stop)
    keep, take = choice(rows.nodes(low, high))
    cost = np.empty(model.graph.n_nodes)
    node_terms(model.unary, keep, take, cost)
    part = LatticeFlow(model.graph, rounding.dtype)
    assert len(part.counts) == len(flow.counts)
    part.set_capacities(
        (*gather_pairwise_values(model), model.graph.edges),
        *(keep, take, rounding.exponent, rounding.most, precision(model), TRUNCATE, cost),
    )
    nodes, own = rows.nodes(start, stop), rows.nodes(start - low, stop - low)
    node = integer_excess(cost[own], rounding.exponent, rounding.most, flow.excess[nodes])
    require_choice(node + nodes.start if node >= 0 else node)
    flow.residual[flow.guard + nodes.start : flow.guard + nodes.stop] = part.residual[part.guard :][own]
