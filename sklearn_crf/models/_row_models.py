"""Lattices whose edges are in the order of ``lattice``, and models of some of their rows."""

from abc import ABC, abstractmethod

import numpy as np

from sklearn_crf.graphs import lists_edges, trusted_graph
from sklearn_crf.models import PairwiseModel, _tuning

# A direction is numbered by one byte, two values of which mean something else.
_MOST_DIRECTIONS = 254


def ordered_offsets(graph):
    """Steps in the numbering of nodes, offsets and numbers of edges, of the offsets that have edges; () elsewhere."""
    # Predictions ask hundreds of times about one graph.
    return graph.keep("lattice offsets", lambda: _ordered_offsets(graph))


def _ordered_offsets(graph):
    if graph.offsets is None or not graph.n_edges:
        return ()
    strides = np.concatenate((np.cumprod(graph.shape[:0:-1])[::-1], [1])).astype(np.int64)
    counts = np.maximum(np.subtract(graph.shape, np.abs(graph.offsets)), 0).prod(axis=1)
    used = np.flatnonzero(counts)
    offsets, counts = graph.offsets[used], counts[used]
    steps = offsets @ strides
    if counts.sum() != graph.n_edges or 2 * len(steps) > _MOST_DIRECTIONS:
        return ()
    listed = lists_edges(graph)
    if listed and not np.array_equal(graph.edges[:, 1] - graph.edges[:, 0], np.repeat(steps.astype(np.int32), counts)):
        return ()
    return steps, offsets, counts.tolist()


def row_ranges(graph, n_nodes):
    """First row and the one after the last of parts of a lattice with so many nodes, of one row at least."""
    length = graph.shape[0]
    height = max(1, n_nodes * length // graph.n_nodes)
    return [(start, min(start + height, length)) for start in range(0, length, height)]


class RowModels(ABC):
    """A model on a lattice as models of some of its rows, with the rows around them that their edges lead to."""

    def __init__(self, graph):
        self.graph, self.length = graph, graph.shape[0]
        self.width = graph.n_nodes // self.length
        self.reach = int(graph.offsets[:, 0].max())

    @abstractmethod
    def between(self, low, high):
        """The model of the rows from one to before another, and of the edges between these."""

    def around(self, start, stop):
        """The model of rows and of those around them, and the first and last of these."""
        low, high = max(start - self.reach, 0), min(stop + self.reach, self.length)
        return self.between(low, high), low, high

    def nodes(self, low, high):
        """The nodes of some rows."""
        return slice(low * self.width, high * self.width)

    def rows_around(self, rows):
        """Ranges of rows, apart from each other, that have some rows and all their neighbours."""
        ranges: list[tuple[int, int]] = []
        for row in rows.tolist():
            low, high = max(row - self.reach, 0), min(row + self.reach + 1, self.length)
            if ranges and low < ranges[-1][1]:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
        return ranges


class MadeRows(RowModels):
    """Models of rows that are made whenever they are asked for, so that the whole is never in memory."""

    # make: callable(low, high) -> PairwiseModel on the lattice of these rows

    def __init__(self, graph, make):
        super().__init__(graph)
        self._make = make

    def between(self, low, high):
        return self._make(low, high)


class StoredRows(RowModels):
    """Rows of a model in memory."""

    # model: one for which ``fit`` is true

    def __init__(self, model):
        super().__init__(model.graph)
        self._model = model
        _, self._offsets, counts = ordered_offsets(self.graph)
        # Edges go by offset, and those of one offset by rows, as many in each.
        self._first = np.cumsum([0, *counts[:-1]])
        self._per_row = counts // (self.length - self._offsets[:, 0])
        self._graphs = {}

    @staticmethod
    def fit(model):
        """Whether this is a model on a lattice whose edges are in order, of few types."""
        return bool(ordered_offsets(model.graph)) and len(model.tables) <= _tuning.FEW_TYPES

    def between(self, low, high):
        # An offset that leads past these rows has no edge among them.
        edges = [
            slice(first + low * count, first + max(high - step, low) * count)
            for first, count, step in zip(self._first, self._per_row, self._offsets[:, 0], strict=True)
        ]
        model = self._model
        edge_type = np.concatenate([model.edge_type[part] for part in edges])
        weight = model.edge_weight
        if weight is not None:
            weight = np.concatenate([weight[part] for part in edges])
        return PairwiseModel(
            self._graph(high - low), model.unary[self.nodes(low, high)], model.tables, edge_type, weight
        )

    def _graph(self, height):
        """The lattice of so many rows: there are few heights, and lists of neighbours take longer than a sweep."""
        if height not in self._graphs:
            shape = (height, *self.graph.shape[1:])
            self._graphs[height] = trusted_graph(height * self.width, None, shape, self._offsets)
        return self._graphs[height]
