"""Best labels of large lattices with two states, whose scores are made some rows at a time."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, map_tasks
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._row_models import row_ranges
from sklearn_crf.inference.cuts._cut_network import (
    TRUNCATE,
    LatticeFlow,
    Rounding,
    largest_capacity,
    pairwise_values,
    precision,
    require_choice,
)
from sklearn_crf.inference.cuts._graph_cut import GraphCut, n_not_submodular
from sklearn_crf.kernels.cuts.fusion_moves import integer_excess, node_terms, unary_spread
from sklearn_crf.models import PairwiseModel, clamped

# Nodes whose scores are in memory at once.
_NODES_OF_ROWS = 1 << 16

# Share of edges that are not submodular, and of rows that these leave to roof duality, above which that had better have
# the whole lattice.
_MOST_TRUNCATED, _MOST_OPEN_ROWS = 0.01, 0.25


class LatticeRows(NamedTuple):
    r"""A large lattice with two states, whose scores are made some rows at a time and never stored.

    Beside what is read, a minimum cut then keeps its residual capacities and its forests: 26 bytes a node with four
    neighbours, and up to 8 for its queues. Scores are made twice, once to find the scale of the integers. These have 30
    bits, for float64 too, where a unit is less than 2**-20 of a typical difference of unary scores, and else 60: the
    score of the labels is less than that of the best labeling by a unit a node and edge at most.

    Where edges are not submodular, by :math:`l_e = b + c - a - d > 0`, the cut is that of the truncated model, in which
    their mixed labelings are worse by :math:`l_e / 2`. Then the flow goes on with a payment to each node i that leaves
    its label :math:`\hat y_i`,

    .. math::
        m_i = \sum_{e \ni i, \, l_e > 0, \, \hat y_{e_1} = \hat y_{e_2}} l_e / 2 .

    The model itself pays no labeling more, as an edge gains only if one of its ends leaves and the other does not. So
    some best labeling keeps the labels of all nodes that stay. Those that leave are few; roof duality on their rows,
    given the labels of the others, has to settle them.

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

    def labels(self, n_threads=1, may_truncate=True):
        """Best labels, (N,) int32; None where they are not found so."""
        # may_truncate: whether edges may be other than submodular
        parts = row_ranges(self.graph, _NODES_OF_ROWS)
        found = map_tasks(lambda part, n_threads: self._survey(*part), parts, n_threads)
        if any(each is None for each in found):
            return None
        carried, total, n_unlike, n_truncated = np.array(found).T
        if n_truncated.sum() > may_truncate * _MOST_TRUNCATED * self.graph.n_edges:
            return None
        rounding = Rounding.of(self.graph, carried.max(), (total.sum(), n_unlike.sum()), may_be_coarse=True)
        flow = LatticeFlow(self.graph, rounding.dtype)
        map_tasks(lambda part, n_threads: self._write(flow, rounding, *part), parts, n_threads)
        labels = flow.solve(n_threads).astype(np.int32)
        truncated = [part for part, n in zip(parts, n_truncated, strict=True) if n]
        return self._settled(flow, rounding, labels, truncated, n_threads) if truncated else labels

    @property
    def _length(self):
        return self.graph.shape[0]

    @property
    def _width(self):
        return self.graph.n_nodes // self._length

    @property
    def _reach(self):
        return int(self.graph.offsets[:, 0].max())

    def _survey(self, start, stop):
        """Largest capacity of some rows, sum of the spreads of their unary scores, how many, and truncated edges."""
        checkpoint()
        model = self.model(start, min(stop + self._reach, self._length))
        carried, endless = largest_capacity(model)
        if endless:
            return None
        return carried, *unary_spread(model.unary[: (stop - start) * self._width]), n_not_submodular(model)

    def _write(self, flow, rounding, start, stop):
        """Capacities of some rows, from them and their neighbours."""
        checkpoint()
        low, high = max(start - self._reach, 0), min(stop + self._reach, self._length)
        model = self.model(low, high)
        n_nodes = model.graph.n_nodes
        keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
        cost = np.empty(n_nodes)
        node_terms(model.unary, keep, take, cost)
        part = LatticeFlow(model.graph, rounding.dtype)
        assert len(part.counts) == len(flow.counts)
        part.set_capacities(
            (*pairwise_values(model), model.graph.edges),
            *(keep, take, rounding.scale, rounding.most, precision(model), TRUNCATE, cost),
        )
        own = slice((start - low) * self._width, (stop - low) * self._width)
        nodes = slice(start * self._width, stop * self._width)
        node = integer_excess(cost[own], rounding.scale, rounding.most, flow.excess[nodes])
        require_choice(node + nodes.start if node >= 0 else node)
        flow.residual[flow.guard + nodes.start : flow.guard + nodes.stop] = part.residual[part.guard :][own]

    def _settled(self, flow, rounding, labels, parts, n_threads):
        """Labels of the model itself from those of the truncated one, or None; parts have the truncated edges."""
        found = map_tasks(lambda part, n_threads: self._payments(labels, *part), parts, n_threads)
        nodes, amounts = (np.concatenate(column) for column in zip(*found, strict=True))
        if not len(nodes):
            return labels
        paid, place = np.unique(nodes, return_inverse=True)
        amounts = np.ceil(np.bincount(place, amounts) * rounding.scale)
        amounts = np.minimum(amounts, rounding.most).astype(flow.excess.dtype)
        flow.excess[paid] += np.where(labels[paid] == 1, amounts, -amounts)
        stays = flow.solve(n_threads) == labels
        ranges = self._rows_around(np.unique(np.flatnonzero(~stays) // self._width))
        if sum(stop - start for start, stop in ranges) > _MOST_OPEN_ROWS * self._length:
            return None
        settled = map_tasks(lambda ends, n_threads: self._roof_dual(labels, stays, *ends), ranges, n_threads)
        if any(each is None for each in settled):
            return None
        for (start, stop), own in zip(ranges, settled, strict=True):
            labels[start * self._width : stop * self._width] = own
        return labels

    def _payments(self, labels, start, stop):
        """Ends of the truncated edges from some rows that are labelled alike, and half of what the edges lack."""
        checkpoint()
        model = self.model(start, min(stop + self._reach, self._length))
        lacking = (model.tables.astype(np.float64) * [[-1, 1], [1, -1]]).sum(axis=(2, 3))[model.edge_type]
        lacking = lacking[:, 0] if model.edge_weight is None else (lacking * model.edge_weight).sum(axis=1)
        edges = np.flatnonzero(lacking > 0)
        tail, head = model.graph.edges[edges].T + start * self._width
        alike = (labels[tail] == labels[head]) & (tail < stop * self._width)
        return np.concatenate((tail[alike], head[alike])), np.tile(lacking[edges[alike]] / 2, 2)

    def _rows_around(self, rows):
        """Ranges of rows, apart from each other, that have some rows and all their neighbours."""
        ranges = []
        for row in rows.tolist():
            low, high = max(row - self._reach, 0), min(row + self._reach + 1, self._length)
            if ranges and low < ranges[-1][1]:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
        return ranges

    def _roof_dual(self, labels, stays, start, stop):
        """Labels of some rows, given those of the nodes that stay; None where roof duality leaves some open."""
        checkpoint()
        own = slice(start * self._width, stop * self._width)
        known = np.where(stays[own], labels[own], -1)
        found = GraphCut(nonsubmodular="qpbo").map(clamped(self.model(start, stop), known))
        return None if found.state.n_unlabelled else found.labels
