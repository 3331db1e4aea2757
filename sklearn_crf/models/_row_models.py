"""Models of ranges of rows of a lattice, for lattices whose edges are ordered as in ``lattice``."""

import numpy as np

from sklearn_crf.graphs import build_trusted_graph, lists_edges
from sklearn_crf.models import PairwiseModel, _tuning

# A direction is stored in one byte; two of its 256 values have other meanings.
_MOST_DIRECTIONS = 254


def find_ordered_offsets(graph):
    """Return the index steps, offsets and edge counts of all offsets with edges, or () if edges are not ordered."""
    # Cache the result, because a prediction calls this function hundreds of times for one graph.
    return graph.keep("lattice offsets", lambda: _find_ordered_offsets(graph))


def _find_ordered_offsets(graph):
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


def split_row_ranges(graph, n_nodes):
    """Split the rows of a lattice into ranges (start, stop) of about ``n_nodes`` nodes, each with at least one row."""
    length = graph.shape[0]
    height = max(1, n_nodes * length // graph.n_nodes)
    return [(start, min(start + height, length)) for start in range(0, length, height)]


class RowModels:
    """Model on a lattice that is built for only a few rows at a time, to save memory."""

    # between: callable(low, high) -> PairwiseModel of the rows low to high - 1, with all edges between these rows

    def __init__(self, graph, between):
        self.graph, self.length, self.between = graph, graph.shape[0], between
        self.width = graph.n_nodes // self.length
        self.reach = int(graph.offsets[:, 0].max())

    def around(self, start, stop):
        """Extend a range of rows by all rows that its edges reach; return the extended range's model and limits."""
        low, high = max(start - self.reach, 0), min(stop + self.reach, self.length)
        return self.between(low, high), low, high

    def nodes(self, low, high):
        """Return the slice of the nodes in a range of rows."""
        return slice(low * self.width, high * self.width)

    def find_rows_around(self, rows):
        """Return disjoint ranges that contain the given rows and all rows that edges from these rows reach."""
        ranges: list[tuple[int, int]] = []
        for row in rows.tolist():
            low, high = max(row - self.reach, 0), min(row + self.reach + 1, self.length)
            if ranges and low < ranges[-1][1]:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
        return ranges


def stored_rows(model):
    """Return the RowModels of a model in memory, or None if its edges are not ordered or have too many types."""
    if not find_ordered_offsets(model.graph) or len(model.tables) > _tuning.FEW_TYPES:
        return None
    _, offsets, counts = find_ordered_offsets(model.graph)
    length, *sides = model.graph.shape
    # Edges are sorted by offset, then by row; all rows have the same number of edges of an offset.
    first, per_row = np.cumsum([0, *counts[:-1]]), counts // (length - offsets[:, 0])
    graphs = {}  # lattices by number of rows, cached because building neighbour lists takes longer than a sweep

    def between(low, high):
        if high - low not in graphs:
            graphs[high - low] = build_trusted_graph((high - low) * rows.width, None, (high - low, *sides), offsets)
        # If an offset spans more rows than this range has, the range contains no edges of this offset.
        edges = [
            slice(start + low * count, start + max(high - step, low) * count)
            for start, count, step in zip(first, per_row, offsets[:, 0], strict=True)
        ]
        edge_type, weight = np.concatenate([model.edge_type[part] for part in edges]), model.edge_weight
        if weight is not None:
            weight = np.concatenate([weight[part] for part in edges])
        return PairwiseModel(graphs[high - low], model.unary[rows.nodes(low, high)], model.tables, edge_type, weight)

    rows = RowModels(model.graph, between)
    return rows
