"""Minimum cuts between two labelings of a model, with capacities in integers."""

import numpy as np

from sklearn_crf.inference._flow_on_lattice import LatticeFlow
from sklearn_crf.inference._flow_on_slots import SlotFlow
from sklearn_crf.kernels.fusion_moves import integer_excess, node_terms, unary_spread

# What becomes of edges that are not submodular; as in kernels/fusion_moves.pyx.
STOP, TRUNCATE, CROSS = 0, 1, 2

# Four times as much still fits: an excess grows by all that can arrive, and by a message before it is cut off.
_MOST = {np.dtype(np.int32): 2**29 - 1, np.dtype(np.int64): 2**60}
# In float32 models a rounding to 2**-20 of a typical unary score is no loss, and int32 takes half the memory.
_COARSEST = 2.0**-20
# Keeps products with denormal scores finite.
_LARGEST_EXPONENT = 900


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
    """Minimum cuts between pairs of labelings of one model, as many as wanted, on one set of buffers.

    Capacities are integers, ``scale`` units to a unit of score: every step of the flow is exact. The scale is as
    large as int64 (where a float32 model loses nothing by it: int32) allows for the capacities around a node, so that
    each term is rounded by at most 2**-60 of them. An excess beyond all capacities of its node is cut off.

    Parameters
    ----------
    model : PairwiseModel
    mirrored : bool, default=False
        Join the graph to its mirror image, for edges that are not submodular (roof duality).
    """

    def __init__(self, model, mirrored=False):
        self.model = model
        on_lattice = not mirrored and LatticeFlow.fits(model.graph)
        dtype = self._choose_scale()
        if on_lattice:
            self._flow = LatticeFlow(model.graph, dtype)
        else:
            self._flow = SlotFlow(model.graph, dtype, mirrored)

    def _choose_scale(self):
        model = self.model
        carried, endless = _largest_capacity(model)
        total = typical = 0.0
        if model.dtype == np.float32 or endless or not carried:
            total, n_unlike = unary_spread(model.unary)
            typical = total / max(n_unlike, 1)
        # One more than the edges of a node: an excess cut off at ``most`` still beats all of them together.
        around = carried * (_largest_degree(model.graph) + 1)
        most = _MOST[np.dtype(np.int32)]
        coarse = model.dtype == np.float32 and not endless and around <= most * _COARSEST * typical
        dtype = np.dtype(np.int32 if coarse else np.int64)
        self._most = _MOST[dtype]
        largest = around if carried > 0 else typical
        if endless:
            # All that is finite together must weigh less than one infinite capacity.
            largest = 16 * (total + carried * model.graph.n_edges)
        if not np.isfinite(largest):
            raise ValueError("tables, times edge_weight, are too large: their sums overflow.")
        # A power of two: what is equal in binary fractions, such as small integers, stays so.
        self._scale = 2.0 ** min(np.floor(np.log2(self._most / largest)), _LARGEST_EXPONENT) if largest > 0 else 1.0
        return dtype

    def cut(self, keep, take, mode=STOP, n_threads=1):
        """Nodes that had better take the state on offer; all others had better, or may as well, keep theirs.

        Parameters
        ----------
        keep, take : ndarray of shape (N,), int32
        mode : int, default=STOP
            What becomes of edges that are not submodular: STOP, TRUNCATE or CROSS.
        n_threads : int, default=1

        Returns
        -------
        taken : ndarray of shape (N,), bool
            (2N,) if mirrored: nodes 0 to N, then their mirror images.

        Raises
        ------
        NotSubmodular
        """
        model, flow = self.model, self._flow
        cost = np.empty(model.graph.n_nodes)
        node_terms(model.unary, keep, take, cost)
        values = (*pairwise_values(model), model.graph.edges)
        rounding = (self._scale, self._most, precision(model), mode)
        stopped, _ = flow.set_capacities(values, keep, take, *rounding, cost)
        if stopped >= 0:
            raise NotSubmodular(stopped)
        node = integer_excess(cost, self._scale, self._most, flow.excess)
        if node >= 0:
            raise ValueError(f"model is infeasible: -inf in unary and tables leaves no state to node {node}.")
        del cost
        return flow.solve(n_threads) if model.graph.n_edges else flow.excess < 0


def _largest_degree(graph):
    # Twice the offsets of a lattice, known without listing its incidence.
    if graph.offsets is not None:
        return 2 * len(graph.offsets)
    return int(graph.degree.max(initial=0))


def _largest_capacity(model):
    """Bound of the finite capacity of an arc, over all pairs of labelings; and is any infinite?"""
    if not model.graph.n_edges:
        return 0.0, False
    tables = model.tables.astype(np.float64)
    finite = np.isfinite(tables)
    highest = np.where(finite, tables, -np.inf).max(axis=(2, 3))
    lowest = np.where(finite, tables, np.inf).min(axis=(2, 3))
    spread = np.where(finite.any(axis=(2, 3)), highest - lowest, 0.0)
    if model.edge_weight is not None:
        spread = spread * np.abs(model.edge_weight).max(axis=0)
    # A capacity is half of a difference of two differences.
    return float(spread.sum(axis=1).max()), not finite.all()
