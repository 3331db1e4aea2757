"""Maximum flow on a lattice whose arcs are not stored."""

from itertools import product

import numpy as np

from sklearn_crf._threads import checkpoint, map_tasks
from sklearn_crf.kernels.fusion_moves import lattice_terms
from sklearn_crf.kernels.max_flow import flow_along_offset, lattice_flow, spread_excess

# Node visits between two looks at Ctrl-C: a fraction of a second.
WORK_PER_CALL = 1 << 21
# A direction is numbered by one byte, two values of which mean something else.
_MOST_DIRECTIONS = 254
_NO_PARENT = 254
# Parts of a lattice solved first, each by itself: small enough for the cache, and one for each thread.
_NODES_PER_BLOCK = 1 << 16


class LatticeFlow:
    """Buffers of the flow on a lattice: residual capacities by node and direction, no lists of arcs.

    Parameters
    ----------
    graph : Graph
        Made by ``lattice``; see :meth:`fits`.
    dtype : dtype
        int32 or int64, of capacities.
    """

    def __init__(self, graph, dtype):
        self.shape = np.array(graph.shape, dtype=np.int64)
        steps, self.offsets, self.counts = _used_offsets(graph)
        # Direction k leads along offset k, direction -1 - k back.
        self.delta = np.ascontiguousarray(np.concatenate((steps, -steps[::-1])))
        self.guard = int(steps.max())
        n_nodes, n_stored = graph.n_nodes, graph.n_nodes + 2 * self.guard
        self.residual = np.zeros((n_stored, len(self.delta)), dtype=dtype)
        self.excess = np.empty(n_nodes, dtype=dtype)
        self._label = np.zeros(n_stored, dtype=np.int32)
        self._parent = np.zeros(n_stored, dtype=np.uint8)
        self._flag = np.empty(n_nodes, dtype=np.uint8)
        self._lists = np.empty((5, n_nodes), dtype=np.int32)
        self._whole = np.stack((np.zeros_like(self.shape), self.shape))

    @staticmethod
    def fits(graph):
        """Is this graph a lattice with its edges in the order of ``lattice``?"""
        if graph.offsets is None or not graph.n_edges:
            return False
        steps, _, counts = _used_offsets(graph)
        if sum(counts) != graph.n_edges or 2 * len(steps) > _MOST_DIRECTIONS:
            return False
        strides = np.repeat(steps.astype(np.int32), counts)
        return np.array_equal(graph.edges[:, 1] - graph.edges[:, 0], strides)

    def set_capacities(self, values, keep, take, scale, endless, precision, mode, cost):
        """Capacities of all edges, and what they add to the cost of nodes; see ``kernels.fusion_moves``."""
        start, lacking = 0, 0.0
        for direction, count in enumerate(self.counts):
            stop = start + count
            stopped, lacked = lattice_terms(
                *values, keep, take, start, stop, direction, scale, endless, precision, mode, cost, self.residual
            )
            if stopped >= 0:
                return stopped, lacking
            start, lacking = stop, lacking + lacked
        return -1, lacking

    def solve(self, n_threads=1):
        """Nodes on the demand side of the minimum cut, of the smallest such set."""
        # Seeds among nodes without scores had better stay where they are.
        if 2 * np.count_nonzero(self.excess) > len(self.excess):
            spread_excess(self.residual, self.excess, self.delta, True)
            spread_excess(self.residual, self.excess, self.delta, False)
        arriving = np.empty_like(self.excess)
        for direction in range(len(self.counts)):
            step = int(self.delta[direction])
            used = np.empty(step, dtype=arriving.dtype)
            flow_along_offset(self.residual, self.excess, step, direction, arriving, used)
        del arriving
        boxes = self._boxes()
        if len(boxes) > 1:
            closed = self._close_borders()
            # A box looks over its border for children; those of the cut before must not be taken for such.
            self._parent.fill(_NO_PARENT)
            starts = np.cumsum([0] + [_volume(box) for box in boxes])
            map_tasks(lambda task, n_threads: self._solve_box(*task), list(zip(boxes, starts, strict=False)), n_threads)
            # The last closed is opened first: diagonals cross two borders, and lie in two copies.
            for arcs, capacities in reversed(closed):
                arcs[...] = capacities
        self._solve_box(self._whole, 0)
        return self._label[self.guard : self.guard + len(self.excess)] < 0

    def _solve_box(self, box, start):
        bucket = np.empty(_volume(box) + 4, dtype=np.int32)
        progress = np.zeros(8, dtype=np.int64)
        arrays = (self.residual, self.excess, self.delta, self.shape, box, start)
        work_space = (self._label, self._parent, self._flag, self._lists, bucket)
        while not lattice_flow(*arrays, *work_space, progress, WORK_PER_CALL):
            checkpoint()

    @property
    def _side(self):
        return round(_NODES_PER_BLOCK ** (1 / len(self.shape)))

    def _boxes(self):
        if len(self.excess) <= _NODES_PER_BLOCK:
            return [self._whole]
        low = product(*(range(0, length, self._side) for length in self.shape.tolist()))
        return [np.stack((corner, np.minimum(np.add(corner, self._side), self.shape))) for corner in low]

    def _close_borders(self):
        """Take the capacity from arcs between boxes; what they had, in order."""
        nodes = self.residual[self.guard : self.guard + len(self.excess)].reshape(*self.shape, -1)
        closed = []
        for axis, length in enumerate(self.shape.tolist()):
            steps = np.concatenate((self.offsets[:, axis], -self.offsets[::-1, axis])).tolist()
            for border in range(self._side, length, self._side):
                for direction, step in enumerate(steps):
                    low, high = (border - step, border) if step > 0 else (border, border - step)
                    layer = (slice(None),) * axis + (slice(max(low, 0), min(high, length)), ..., direction)
                    arcs = nodes[layer]
                    closed.append((arcs, arcs.copy()))
                    arcs[...] = 0
        return closed


def _volume(box):
    return int(np.prod(box[1] - box[0]))


def _used_offsets(graph):
    """Steps in the numbering of nodes, offsets and numbers of edges, of the offsets that have edges."""
    strides = np.concatenate((np.cumprod(graph.shape[:0:-1])[::-1], [1])).astype(np.int64)
    counts = [int(np.prod(np.maximum(np.subtract(graph.shape, np.abs(offset)), 0))) for offset in graph.offsets]
    used = np.flatnonzero(counts)
    return graph.offsets[used] @ strides, graph.offsets[used], [counts[k] for k in used]
