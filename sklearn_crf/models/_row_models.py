"""Models of some rows of a lattice whose edges are ordered as in ``lattice``."""

from abc import ABC, abstractmethod

import numpy as np

from sklearn_crf.graphs import lists_edges, trusted_graph
from sklearn_crf.models import PairwiseModel, _tuning

# A direction is stored in one byte, and two of the 256 values have other meanings.
_MOST_DIRECTIONS = 254


def ordered_offsets(graph):
    """Return node steps, offsets and edge counts of the offsets that have edges, or () if edges are not ordered."""
    # Cached, because predictions request it hundreds of times for one graph.
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
    """Split the rows of a lattice into ranges (start, stop) of about ``n_nodes`` nodes, at least one row each."""
    length = graph.shape[0]
    height = max(1, n_nodes * length // graph.n_nodes)
    return [(start, min(start + height, length)) for start in range(0, length, height)]


class RowModels(ABC):
    """A model on a lattice, accessible as models of ranges of rows."""

    def __init__(self, graph):
        self.graph, self.length = graph, graph.shape[0]
        self.width = graph.n_nodes // self.length
        self.reach = int(graph.offsets[:, 0].max())

    @abstractmethod
    def between(self, low, high):
        """Return the model of the rows from ``low`` to before ``high``, with the edges among them."""

    def around(self, start, stop):
        """Return the model of some rows and of the rows in reach of their edges, and the range of all these rows."""
        low, high = max(start - self.reach, 0), min(stop + self.reach, self.length)
        return self.between(low, high), low, high

    def nodes(self, low, high):
        """Return the slice of the nodes in some rows."""
        return slice(low * self.width, high * self.width)

    def rows_around(self, rows):
        """Return disjoint ranges of rows that contain the given rows and all rows in reach of their edges."""
        ranges: list[tuple[int, int]] = []
        for row in rows.tolist():
            low, high = max(row - self.reach, 0), min(row + self.reach + 1, self.length)
            if ranges and low < ranges[-1][1]:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
        return ranges


class MadeRows(RowModels):
    """Models of rows that are built on request, so that the whole model is never in memory."""

    # make: callable(low, high) -> PairwiseModel on the lattice of the rows from low to before high

    def __init__(self, graph, make):
        super().__init__(graph)
        self._make = make

    def between(self, low, high):
        return self._make(low, high)


class StoredRows(RowModels):
    """Models of the rows of a model that is in memory."""

    # model: PairwiseModel for which ``fit`` returns True

    def __init__(self, model):
        super().__init__(model.graph)
        self._model = model
        _, self._offsets, counts = ordered_offsets(self.graph)
        # Edges are sorted by offset and then by row; each row has equally many edges of an offset.
        self._first = np.cumsum([0, *counts[:-1]])
        self._per_row = counts // (self.length - self._offsets[:, 0])
        self._graphs = {}

    @staticmethod
    def fit(model):
        """Return whether a model is on a lattice with ordered edges and has few edge types."""
        return bool(ordered_offsets(model.graph)) and len(model.tables) <= _tuning.FEW_TYPES

    def between(self, low, high):
        # An offset that reaches beyond these rows has no edge among them.
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
        """Return the lattice with ``height`` rows; kept, because building neighbour lists takes longer than a sweep."""
        if height not in self._graphs:
            shape = (height, *self.graph.shape[1:])
            self._graphs[height] = trusted_graph(height * self.width, None, shape, self._offsets)
        return self._graphs[height]
