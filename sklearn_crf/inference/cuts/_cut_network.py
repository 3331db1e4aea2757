"""Minimum cuts between two labelings of a model, with integer capacities."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import cached_property, checkpoint, map_tasks
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._results import Infeasible
from sklearn_crf.inference.cuts import _tuning
from sklearn_crf.kernels.cuts.flows import (
    flow_along_offset,
    flow_by_heights,
    lattice_cut,
    lattice_flow,
    slot_flow,
    spread_excess,
)
from sklearn_crf.kernels.cuts.fusion_moves import (
    capacity_bound,
    integer_excess,
    lattice_terms,
    node_terms,
    slot_terms,
    unary_spread,
)
from sklearn_crf.models._row_models import find_ordered_offsets

# Directions are stored in one byte. This value means that there is no direction.
_NO_PARENT = 254


# Fractions of nodes with excess. Above the first fraction, kernels send flow along lines before they search for paths.
# Kernels then spread excess if the fraction of nodes that still have excess is between the second and the third.
HEAD_START = _tuning.LEAST_FOR_LINES, _tuning.LEAST_TO_SPREAD, _tuning.MOST_IN_BOXES


def lattice_arrays(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return, for a lattice, the edge counts of offsets, the node steps of directions, the shape and the bounds."""
    return graph.keep("lattice arrays", lambda: _lattice_arrays(graph))


def _lattice_arrays(graph):
    steps, _, counts = find_ordered_offsets(graph)
    # Direction k runs along offset k, and direction -1 - k runs back.
    delta = np.ascontiguousarray(np.concatenate((steps, -steps[::-1])))
    shape = np.array(graph.shape, dtype=np.int64)
    return np.array(counts, dtype=np.int64), delta, shape, np.stack((np.zeros_like(shape), shape))


class LatticeFlow:
    """Buffers for the flow on a lattice: residual capacities by node and direction, without lists of arcs."""

    # graph: a lattice for which ``fits`` returns True; dtype: type of capacities, int32 or int64

    def __init__(self, graph, dtype):
        self.offsets = find_ordered_offsets(graph)[1]
        self.counts, self.delta, self.shape, self._whole = lattice_arrays(graph)
        self.guard = int(self.delta.max())
        n_nodes, n_stored = graph.n_nodes, graph.n_nodes + 2 * self.guard
        self.residual = np.zeros((n_stored, len(self.delta)), dtype=dtype)
        self.excess = np.empty(n_nodes, dtype=dtype)
        self._label = np.zeros(n_stored, dtype=np.int32)
        self._parent = np.zeros(n_stored, dtype=np.uint8)
        self._flag = np.empty(n_nodes, dtype=np.uint8)
        self._next = np.empty(n_nodes, dtype=np.int32)

    @staticmethod
    def fits(graph):
        """Return whether a graph is a lattice with its edges in the order of ``lattice``."""
        return bool(find_ordered_offsets(graph))

    def set_capacities(self, values, keep, take, exponent, endless, precision, mode, cost):
        """Set capacities and add to costs of nodes; return the first unsuitable edge, or -1 if there is none."""
        rounding, workspace = (exponent, endless, precision, mode), (self._flag, self._next)
        return lattice_terms(*values, keep, take, self.counts, *rounding, cost, *workspace, self.residual)

    @staticmethod
    def can_solve_at_once(graph):
        """Return whether a lattice is small enough to be solved in one call."""
        return graph.n_nodes <= _tuning.NODES_PER_BLOCK

    @cached_property
    def _of_one_call(self) -> tuple:
        """Buffers that all cuts of a network pass to the kernel that computes a whole cut."""
        n_nodes, kind = len(self.excess), self.excess.dtype
        *search, progress = self._search_workspace(self._whole)
        step = int(self.delta[: len(self.counts)].max())
        head_start = np.empty(n_nodes, dtype=kind), np.empty(step, dtype=kind)
        return np.empty(n_nodes), self.residual, self.excess, *search, *head_start, progress

    def cut(self, unary, values, choice, rounding, precision, mode):
        """Return the nodes on the demand side of the minimum cut of a small lattice, after setting its capacities."""
        stopped, node, done = lattice_cut(
            *(unary, *values, *choice, self.counts, self.delta, self.shape, self._whole),
            *(rounding.exponent, rounding.most, precision, mode, *HEAD_START),
            *(*self._of_one_call, _tuning.WORK_PER_CALL),
        )
        if stopped >= 0:
            raise NotSubmodular(stopped)
        require_choice(node)
        if not done:
            arrays = self._of_one_call
            self._search(self._whole, (*arrays[3:9], arrays[-1]))
        return self._find_demand_side()

    def solve(self, n_threads=1):
        """Return the smallest set of nodes that is the demand side of a minimum cut."""
        share_left = self._share_with_excess
        if share_left > _tuning.LEAST_FOR_LINES:
            arriving = np.empty_like(self.excess)
            for direction in range(len(self.counts)):
                step = int(self.delta[direction])
                used = np.empty(step, dtype=arriving.dtype)
                flow_along_offset(self.residual, self.excess, step, direction, arriving, used)
            share_left = self._share_with_excess
            if _tuning.LEAST_TO_SPREAD < share_left <= _tuning.MOST_IN_BOXES:
                spread_excess(self.residual, self.excess, self.delta, True)
                spread_excess(self.residual, self.excess, self.delta, False)
        boxes = self._list_boxes()
        if len(boxes) > 1 and (n_threads > 1 or share_left <= _tuning.MOST_IN_BOXES):
            closed = self._close_borders()
            # The search in a box also visits children beyond its border, so remove children of the previous cut.
            self._parent.fill(_NO_PARENT)
            map_tasks(lambda box, n_threads: self._solve_box(box), boxes, n_threads)
            # Reopen borders in reverse order, because diagonal arcs cross two borders and are stored twice.
            for arcs, capacities in reversed(closed):
                arcs[...] = capacities
        self._solve_box(self._whole)
        return self._find_demand_side()

    @property
    def _share_with_excess(self):
        return np.count_nonzero(self.excess) / len(self.excess)

    @property
    def neighbors(self) -> tuple:
        """Neighbours of nodes, as :attr:`CutNetwork.neighbors` describes them."""
        return self.delta, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)

    def _find_demand_side(self) -> np.ndarray:
        return self._label[self.guard : self.guard + len(self.excess)] < 0

    def _solve_box(self, box):
        self._search(box, self._search_workspace(box))

    def _search(self, box, workspace):
        *buffers, progress = workspace
        arrays = (self.residual, self.excess, self.delta)
        n_visits, handed_over = 0, box is not self._whole
        while not lattice_flow(*arrays, self.shape, box, *buffers, progress, _tuning.WORK_PER_CALL):
            checkpoint()
            n_visits += _tuning.WORK_PER_CALL
            if not handed_over and n_visits > _tuning.LONG_SEARCH * len(self.excess):
                while not flow_by_heights(*arrays, *buffers):
                    checkpoint()
                progress[:] = 0
                handed_over = True

    def _search_workspace(self, box: np.ndarray) -> tuple:
        """Return the workspace for the search in a box, including the progress of the search."""
        # Buffers are filled from their start, so the system only provides the memory that is actually used.
        lists = np.empty((4, _compute_volume(box)), dtype=np.int32)
        bucket = np.empty(_compute_volume(box) + 4, dtype=np.int32)
        return self._label, self._parent, self._flag, self._next, lists, bucket, np.zeros(8, dtype=np.int64)

    @property
    def _side(self):
        return round(_tuning.NODES_PER_BLOCK ** (1 / len(self.shape)))

    def _list_boxes(self):
        if len(self.excess) <= _tuning.NODES_PER_BLOCK:
            return [self._whole]
        low = product(*(range(0, length, self._side) for length in self.shape.tolist()))
        return [np.stack((corner, np.minimum(np.add(corner, self._side), self.shape))) for corner in low]

    def _close_borders(self):
        """Set the capacities of arcs between boxes to zero, and return the arcs with their capacities in order."""
        nodes = self.residual[self.guard : self.guard + len(self.excess)].reshape(*self.shape, -1)
        closed = []
        for axis, length in enumerate(self.shape.tolist()):
            steps = np.concatenate((self.offsets[:, axis], -self.offsets[::-1, axis])).tolist()
            for border in range(self._side, length, self._side):
                for direction, step in enumerate(steps):
                    low, high = (border - step, border) if step > 0 else (border, border - step)
                    layer: Any = (slice(None),) * axis + (slice(max(low, 0), min(high, length)), ..., direction)
                    arcs = nodes[layer]
                    closed.append((arcs, arcs.copy()))
                    arcs[...] = 0
        return closed


def _compute_volume(box):
    return int(np.prod(box[1] - box[0]))


class SlotFlow:
    """Buffers for the flow on any graph: residual capacities by slot of ``graph.incidence``."""

    # dtype: type of capacities, int32 or int64
    # mirrored: add a mirror image of every node, with the opposite excess
    # Edges may then lead from a node to the mirror image of another node.

    def __init__(self, graph, dtype, mirrored=False):
        copies = 2 if mirrored else 1
        n_nodes, n_slots = copies * graph.n_nodes, 2 * graph.n_edges
        self.incidence = graph.incidence
        self.residual = np.zeros(copies * n_slots, dtype=dtype)
        self.excess = np.empty(n_nodes, dtype=dtype)
        self._cross = np.zeros(n_slots if mirrored else 0, dtype=np.uint8)
        self._label = np.zeros(n_nodes, dtype=np.int32)
        self._parent = np.empty(n_nodes, dtype=np.int32)
        self._flag = np.empty(n_nodes, dtype=np.uint8)
        self._next = np.empty(n_nodes, dtype=np.int32)
        self._lists = np.empty((4, n_nodes), dtype=np.int32)
        self._bucket = np.empty(n_nodes + 4, dtype=np.int32)

    @property
    def neighbors(self) -> tuple:
        """Neighbours of nodes, as :attr:`CutNetwork.neighbors` describes them."""
        return np.empty(0, dtype=np.int64), *self.incidence[:2]

    def set_capacities(self, values, keep, take, exponent, endless, precision, mode, cost):
        """Set capacities and add to costs of nodes; return the first unsuitable edge, or -1 if there is none."""
        _, _, half_edge, reverse = self.incidence
        rounding = (exponent, endless, precision, mode)
        return slot_terms(*values, keep, take, half_edge, reverse, *rounding, cost, self.residual, self._cross)

    def solve(self, n_threads: int = 1) -> np.ndarray:
        """Return the smallest set of nodes that is the demand side of a minimum cut."""
        ptr, neighbor, _, reverse = self.incidence
        topology = (self.residual, self.excess, ptr, neighbor, reverse, self._cross)
        workspace = (self._label, self._parent, self._flag, self._next, self._lists, self._bucket)
        progress = np.zeros(8, dtype=np.int64)
        while not slot_flow(*topology, *workspace, progress, _tuning.WORK_PER_CALL):
            checkpoint()
        return self._label < 0


# Treatment of edges that are not submodular, numbered as in kernels/cuts/fusion_moves.pyx.
STOP, TRUNCATE, CROSS = 0, 1, 2

# Largest capacity, which represents infinity. Four times this capacity fits into the type.
# The reason is that an excess may grow by arriving flow and by a message before it is clipped.
_MOST = {np.dtype(np.int32): 2**29 - 1, np.dtype(np.int64): 2**60}


def gather_pairwise_values(model):
    """Return tables, edge types and edge weights for the kernels, with an empty array if there are no weights."""
    weight = model.edge_weight
    if weight is None:
        weight = np.zeros((0, model.tables.shape[1]), dtype=model.dtype)
    return model.tables, model.edge_type, weight


def precision(model):
    """Return the relative error within which an edge counts as modular, because sums of scores have rounding errors."""
    return _PRECISION[model.dtype]


_PRECISION = {np.dtype(kind): 4 * float(np.finfo(kind).eps) for kind in (np.float32, np.float64)}


class NotSubmodular(Exception):
    """Exception with the index of the first edge that is not submodular."""


class Rounding(NamedTuple):
    """Conversion of scores to integers, with ``2**exponent`` units per unit of score, clipped at ``most``."""

    dtype: np.dtype
    exponent: int
    most: int

    @classmethod
    def of(cls, graph, carried, spread, may_be_coarse, endless=False):
        """Return the finest units that the capacities around a node allow, with int32 if allowed and fine enough."""
        # carried: bound on the finite capacity of an arc; endless: whether some capacity is infinite
        # spread: sum over nodes of (best score - worst score), and the number of nodes where these scores differ
        total, n_unlike = spread
        typical = total / max(n_unlike, 1)
        # The number of edges plus one, so that an excess clipped at ``most`` outweighs all edges of the node.
        around = carried * (_find_largest_degree(graph) + 1)
        coarse = may_be_coarse and not endless and around <= _MOST[np.dtype(np.int32)] * _tuning.COARSEST * typical
        dtype = np.dtype(np.int32 if coarse else np.int64)
        most = largest_capacity_of(dtype)
        largest = around if carried > 0 else typical
        if endless:
            # All finite capacities together must be smaller than one infinite capacity.
            largest = 16 * (total + carried * graph.n_edges)
        if not np.isfinite(largest):
            raise ValueError(
                "products of tables and edge_weight are so large that their sums overflow: scale the scores down."
            )
        return cls(dtype, int(find_exponent(largest, dtype)), most)


def find_exponent(largest: Any, dtype: Any) -> Any:
    """Return the largest exponent for which integers of a type hold the capacities at ``2**exponent`` units."""
    # With powers of two, binary fractions with few digits, such as small integers, are exact.
    # The power itself and its ratio to the smallest scores may overflow, so only exponents are computed.
    most, places = np.frexp(float(largest_capacity_of(dtype)))
    share, own = np.frexp(np.maximum(largest, np.finfo(np.float64).smallest_subnormal))
    return places - own.astype(np.int64) - (share > most)


def largest_capacity_of(dtype: Any) -> int:
    """Return the largest capacity that integers of a type represent, which stands for infinity."""
    return _MOST[np.dtype(dtype)]


def require_choice(node: int) -> None:
    """Raise Infeasible unless ``node``, which ``integer_excess`` returns for a node without an allowed state, is -1."""
    if node >= 0:
        raise Infeasible(f"model is infeasible: -inf in unary and tables forbids every state of node {node}.")


class CutNetwork:
    """Network for any number of minimum cuts between pairs of labelings of one model, with shared buffers.

    Capacities are integers, with ``2**exponent`` units per unit of score, so that every step of the flow is exact. The
    exponent is the largest for which int64 holds the capacities around a node; int32 is used if a float32 model loses
    nothing. Each term is then rounded by at most 2**-60 of these capacities. An excess larger than all capacities of
    its node is clipped.
    """

    # mirrored: join the graph to its mirror image, for edges that are not submodular (roof duality)

    def __init__(self, model, mirrored=False):
        self.model = model
        on_lattice = not mirrored and LatticeFlow.fits(model.graph)
        dtype = self._choose_scale()
        self._flow: LatticeFlow | SlotFlow = (
            LatticeFlow(model.graph, dtype) if on_lattice else SlotFlow(model.graph, dtype, mirrored)
        )

    def _choose_scale(self) -> np.dtype:
        model = self.model
        carried, endless = bound_capacities(model)
        # On large models with more than two states, moves are approximate in any case, so capacities may be int32.
        is_large = model.n_columns > 2 and model.graph.n_nodes > _tuning.NODES_FOR_HALF
        may_be_coarse = model.dtype == np.float32 or is_large
        spread = 0.0, 0
        if may_be_coarse or endless or not carried:
            spread = unary_spread(model.unary)
        rounding = Rounding.of(model.graph, carried, spread, may_be_coarse, endless)
        self._rounding = rounding
        return rounding.dtype

    @property
    def neighbors(self) -> tuple:
        """Neighbours of nodes for the kernels: steps on a lattice, otherwise lists from the incidence."""
        return self._flow.neighbors

    @property
    def rounding_error(self) -> float:
        """Maximum difference between the best score and the score of a cut with integer capacities."""
        # For both labelings, rounding changes each term of a node or an edge by at most half a unit.
        return float(np.ldexp(self.model.graph.n_nodes + self.model.graph.n_edges, -self._rounding.exponent))

    def cut(self, keep, take, mode=STOP, n_threads=1):
        """Return a mask of the nodes that take the offered state in the best move; all others keep their state."""
        # keep, take: (N,) int32
        # mode: treatment of edges that are not submodular: STOP, TRUNCATE or CROSS
        # returns: (N,) bool; (2N,) if mirrored, with the mirror images after the nodes
        model, flow = self.model, self._flow
        rounding = self._rounding
        exponent, most = rounding.exponent, rounding.most
        values = (*gather_pairwise_values(model), model.graph.edges)
        if isinstance(flow, LatticeFlow) and flow.can_solve_at_once(model.graph):
            return flow.cut(model.unary, values, (keep, take), rounding, precision(model), mode)
        cost = np.empty(model.graph.n_nodes)
        node_terms(model.unary, keep, take, cost)
        stopped = flow.set_capacities(values, keep, take, exponent, most, precision(model), mode, cost)
        if stopped >= 0:
            raise NotSubmodular(stopped)
        require_choice(integer_excess(cost, exponent, most, flow.excess))
        del cost
        return flow.solve(n_threads) if model.graph.n_edges else flow.excess < 0


def _find_largest_degree(graph):
    # For lattices, this upper bound avoids a list of the neighbours of nodes.
    if graph.offsets is not None:
        return 2 * len(graph.offsets)
    return graph.largest_degree


def bound_capacities(model):
    """Return a bound on the finite capacities of arcs over all pairs of labelings, and whether some are infinite."""
    if not model.graph.n_edges:
        return 0.0, False
    tables, _, edge_weight = gather_pairwise_values(model)
    return capacity_bound(tables, edge_weight, np.empty(tables.shape[1]))
