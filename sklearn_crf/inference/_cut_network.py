"""Minimum cuts on the topology of a model: the buffers, their reuse from cut to cut, and the capacities in integers."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.kernels.fusion_moves import integer_excess, lattice_terms, node_terms, slot_terms
from sklearn_crf.kernels.max_flow import flow_along_offset, lattice_flow, slot_flow

# What becomes of edges that are not submodular; as in kernels/fusion_moves.pyx.
STOP, TRUNCATE, CROSS = 0, 1, 2

# Node visits between two looks at Ctrl-C: a fraction of a second.
_WORK_PER_CALL = 1 << 21
# A lattice numbers directions by one byte, two values of which mean something else.
_MOST_DIRECTIONS = 254
# Pair of capacities and excess plus a message of the same size stay inside int32 with the one, inside int64 with the
# other, also next to arcs that stand for infinite ones.
_MOST = {np.dtype(np.int32): 2**30 - 2, np.dtype(np.int64): 2**60}
# In float32 models a rounding to 2**-20 of a typical unary score is no loss, and int32 capacities are faster.
_COARSEST = 2.0**-20
# Keeps products with denormal scores finite.
_LARGEST_SCALE = 2.0**900


def pairwise_values(model):
    """Tables, edge types and edge weights as the kernels take them: no rows of weights where there are none."""
    weight = model.edge_weight
    if weight is None:
        weight = np.zeros((0, model.tables.shape[1]), dtype=model.dtype)
    return model.tables, model.edge_type, weight


def precision(model):
    """Relative rounding at which an edge still counts as modular: [[0.1, 0.2], [0.3, 0.4]] misses by a few units."""
    return 4 * float(np.finfo(model.dtype).eps)


class NotSubmodular(Exception):
    """Raised with the number of the first edge that is not submodular."""


class CutNetwork:
    """Minimum cuts between two labelings of a model, as often as wanted, on one set of buffers.

    Capacities are integers, ``scale`` units to a unit of score. They are chosen as large as int64 (or, where that
    is fine enough for a float32 model, int32) allows, so that rounding loses less than float64 sums do: at most half
    a unit a term, 2**-60 of what the edges of a node can carry.

    Parameters
    ----------
    model : PairwiseModel
    mirrored : bool, default=False
        Join the graph to its mirror image, for edges that are not submodular (roof duality).
    """

    def __init__(self, model, mirrored=False):
        self.model = model
        self.mirrored = mirrored
        graph = model.graph
        n_nodes = graph.n_nodes * (2 if mirrored else 1)
        self._lattice = None if mirrored else _lattice_steps(graph)
        self._set_scale()
        if self._lattice is None:
            self._guard = 0
            n_slots = 2 * graph.n_edges
            self._residual = np.zeros(n_slots * (2 if mirrored else 1), dtype=self.dtype)
            self._cross = np.zeros(n_slots if mirrored else 0, dtype=np.uint8)
            self._parent = np.empty(n_nodes, dtype=np.int32)
        else:
            delta = self._lattice[0]
            self._guard = int(delta.max(initial=0))
            self._residual = np.zeros((n_nodes + 2 * self._guard, len(delta)), dtype=self.dtype)
            self._parent = np.empty(n_nodes, dtype=np.uint8)
        self._excess = np.empty(n_nodes, dtype=self.dtype)
        self._label = np.zeros(n_nodes + 2 * self._guard, dtype=np.int32)
        self._flag = np.empty(n_nodes, dtype=np.uint8)
        self._lists = np.empty((5, n_nodes), dtype=np.int32)
        self._bucket = np.empty(n_nodes + 4, dtype=np.int32)

    def _set_scale(self):
        model = self.model
        carried, endless = _largest_capacities(model)
        typical = _typical_difference(model.unary)
        # One more than the edges of a node: an excess cut off at ``most`` still beats all of them together.
        degree = _largest_degree(model.graph, self._lattice) + 1
        most32 = _MOST[np.dtype(np.int32)]
        fine = carried * degree <= most32 * _COARSEST * typical
        self.dtype = np.dtype(np.int32 if model.dtype == np.float32 and fine and not endless else np.int64)
        self.most = _MOST[self.dtype]
        if endless:
            # All that is finite together must weigh less than one infinite capacity.
            total = carried * model.graph.n_edges + _total_difference(model.unary)
            largest = 16 * total
        else:
            largest = carried * degree if carried > 0 else typical
        if not np.isfinite(largest):
            raise ValueError("tables, times edge_weight, are too large: their sums overflow.")
        self.scale = min(self.most / largest, _LARGEST_SCALE) if largest > 0 else 1.0

    def cut(self, keep, take, mode=STOP):
        """Nodes that had better take the state on offer; all others had better, or may as well, keep theirs.

        Parameters
        ----------
        keep, take : ndarray of shape (N,), int32
        mode : int, default=STOP
            What becomes of edges that are not submodular.

        Returns
        -------
        taken : ndarray of shape (N,), bool
            (2N,) if mirrored: nodes 0 to N, then their mirror images.
        lacking : float
            Sum over edges that are not submodular of the amount.

        Raises
        ------
        NotSubmodular
        """
        lacking = self._fill(keep, take, mode)
        if not self.model.graph.n_edges:
            return self._excess < 0, lacking
        return self._solve(), lacking

    def _fill(self, keep, take, mode):
        model = self.model
        cost = np.empty(model.graph.n_nodes)
        node_terms(model.unary, keep, take, cost)
        values = (*pairwise_values(model), model.graph.edges, keep, take)
        rounding = (self.scale, self.most, precision(model), mode, cost, self._residual)
        lacking = 0.0
        if not model.graph.n_edges:
            pass
        elif self._lattice is None:
            _, _, half_edge, reverse = model.graph.incidence
            stopped, lacking = slot_terms(*values, half_edge, reverse, *rounding, self._cross)
            if stopped >= 0:
                raise NotSubmodular(stopped)
        else:
            start = 0
            for direction, count in enumerate(self._lattice[1]):
                stopped, lacked = lattice_terms(*values, start, start + count, direction, *rounding)
                if stopped >= 0:
                    raise NotSubmodular(stopped)
                lacking += lacked
                start += count
        node = integer_excess(cost, self.scale, self.most, self._excess)
        if node >= 0:
            raise ValueError(f"model is infeasible: -inf in unary and tables leaves no state to node {node}.")
        return lacking

    def _solve(self):
        graph = self.model.graph
        work_space = (self._label, self._parent, self._flag, self._lists, self._bucket)
        progress = np.zeros(8, dtype=np.int64)
        if self._lattice is None:
            ptr, neighbor, _, reverse = graph.incidence
            topology = (self._residual, self._excess, ptr, neighbor, reverse, self._cross)
            while not slot_flow(*topology, *work_space, progress, _WORK_PER_CALL):
                checkpoint()
            return self._label < 0
        delta, _ = self._lattice
        self._flow_along_offsets()
        shape = np.array(graph.shape, dtype=np.int64)
        box = np.stack((np.zeros_like(shape), shape))
        topology = (self._residual, self._excess, delta, shape, box, 0)
        while not lattice_flow(*topology, *work_space, progress, _WORK_PER_CALL):
            checkpoint()
        return self._label[self._guard : self._guard + graph.n_nodes] < 0

    def _flow_along_offsets(self):
        delta, counts = self._lattice
        arriving = np.empty(len(self._excess), dtype=self.dtype)
        for direction in range(len(counts)):
            step = int(delta[direction])
            flow_along_offset(self._residual, self._excess, step, direction, arriving, np.empty(step, dtype=self.dtype))


def _lattice_steps(graph):
    """Steps in the numbering of nodes to all neighbours, and edges by offset; None if the graph is no lattice."""
    if graph.offsets is None or not graph.n_edges:
        return None
    types = graph.lattice_edge_type
    if len(types) != graph.n_edges:
        return None
    strides = np.cumprod((1, *graph.shape[:0:-1]))[::-1]
    steps = graph.offsets @ strides
    if not np.array_equal(graph.edges[:, 1] - graph.edges[:, 0], steps[types]):
        return None
    counts = np.bincount(types, minlength=len(steps))
    steps, counts = steps[counts > 0], counts[counts > 0]
    if 2 * len(steps) > _MOST_DIRECTIONS:
        return None
    return np.ascontiguousarray(np.concatenate((steps, -steps[::-1]))), counts.tolist()


def _largest_degree(graph, lattice):
    if lattice is not None:
        return len(lattice[0])
    return int(graph.degree.max(initial=0))


def _largest_capacities(model):
    """Bound of the capacity of an arc that is finite, over all pairs of labelings; and is any infinite?"""
    tables = model.tables.astype(np.float64)
    if not model.graph.n_edges:
        return 0.0, False
    finite = np.isfinite(tables)
    highest = np.where(finite, tables, -np.inf).max(axis=(2, 3))
    lowest = np.where(finite, tables, np.inf).min(axis=(2, 3))
    spread = np.where(finite.any(axis=(2, 3)), highest - lowest, 0.0)
    if model.edge_weight is not None:
        spread = spread * np.abs(model.edge_weight).max(axis=0)
    # A capacity is half of a difference of two differences.
    return float(spread.sum(axis=1).max()), not finite.all()


def _difference(unary):
    """How much the states of each node differ."""
    highest = unary.max(axis=1)
    lowest = np.where(np.isneginf(unary), np.inf, unary).min(axis=1)
    return (highest - lowest).astype(np.float64)


def _typical_difference(unary):
    difference = _difference(unary)
    used = difference > 0
    return float(difference[used].mean()) if used.any() else 0.0


def _total_difference(unary):
    return float(_difference(unary).sum())
