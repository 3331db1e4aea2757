"""Plans for elimination on factor graphs, made once for each structure."""

from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from sklearn_crf._numbers import as_array, offsets_from_lengths
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.kernels.exact import junction_trees
from sklearn_crf.kernels.exact.junction_trees import ROWS_PADDED_TO


class Structure(NamedTuple):
    """Graph of the nodes to eliminate."""

    ptr: np.ndarray  # (n_nodes + 1,) int64
    neighbors: np.ndarray  # int32, ascending for each node
    log_states: np.ndarray  # (n_nodes,), logarithms of the numbers of states

    @classmethod
    def of(cls, scope_ptr, scope, n_states):
        """Build the graph that joins all nodes of each scope."""
        ptr, neighbors = junction_trees.neighbors_of_scopes(scope_ptr, scope, len(n_states))
        return cls(ptr, neighbors, np.log(n_states))

    def compute_log_cells(self, order: np.ndarray) -> float:
        """Return the logarithm of the total number of joint states of the cliques of an elimination order."""
        ptr, separators = junction_trees.separators_of(self.ptr, self.neighbors, order)
        rows = np.repeat(np.arange(len(order)), np.diff(ptr))
        of_separators = np.bincount(rows, self.log_states[separators], len(order))
        return np.logaddexp.reduce(self.log_states[order] + of_separators)

    def renamed(self, new_name):
        """Return the graph with its nodes renumbered."""
        # new_name: (n_nodes,), a permutation
        old_name = np.argsort(new_name)
        rows = np.repeat(new_name, np.diff(self.ptr))
        columns = new_name[self.neighbors]
        sorted_by_both = np.lexsort((columns, rows))
        ptr = offsets_from_lengths(np.diff(self.ptr)[old_name])
        return Structure(ptr, columns[sorted_by_both].astype(np.int32), self.log_states[old_name])

    def components(self, nodes: np.ndarray) -> tuple:
        """Return nodes sorted by component, starts of components, and a function that maps components to structures."""
        # nodes: the nodes to include, ascending
        n_nodes = len(self.log_states)
        ones = np.ones(len(self.neighbors), dtype=np.int8)
        joined = sp.csr_matrix((ones, self.neighbors, self.ptr), (n_nodes, n_nodes))
        label = connected_components(joined, directed=False)[1][nodes]
        # Components are in the order of their first nodes; nodes are in ascending order in each component.
        first = np.unique(label, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first[1]))[first[2]]
        listed = nodes[np.argsort(rank, kind="stable")]
        starts = offsets_from_lengths(np.bincount(rank))
        new_name = np.full(len(self.log_states), -1, dtype=np.int64)
        new_name[listed] = np.arange(len(listed))

        def part(k):
            own = listed[starts[k] : starts[k + 1]]
            length = self.ptr[own + 1] - self.ptr[own]
            ptr = offsets_from_lengths(length)
            entries = np.arange(ptr[-1]) + np.repeat(self.ptr[own] - ptr[:-1], length)
            neighbors = (new_name[self.neighbors[entries]] - starts[k]).astype(np.int32)
            return Structure(ptr, neighbors, self.log_states[own])

        return listed, starts, part


def find_best_order(structure: Structure, most_cells: float = np.inf, most_steps: float = np.inf) -> tuple:
    """Return the cheapest of several elimination orders of a connected graph, and its number of table cells.

    Candidates are the min-fill order, min-fill orders with ties broken at random (from a fixed seed, so that the result
    is deterministic), and the order of smallest bandwidth, which is better on some lattices. If the first candidate has
    more than ``most_cells`` cells or takes more than ``most_steps`` steps to find, the order is None.
    """
    most_log_cells = np.log(most_cells)
    if (junction_trees.least_width(structure.ptr, structure.neighbors) + 1) * np.log(2) > most_log_cells:
        return None, np.inf
    order = junction_trees.min_fill_order(*structure, most_log_cells, most_steps)
    best = np.inf if order is None else structure.compute_log_cells(order)
    if best > most_log_cells:
        return None, np.inf
    if best > np.log(_tuning.FEW_CELLS):
        n_others = (_tuning.NODES_OF_ORDERS + np.exp(min(best, _ENDLESS)) / _tuning.CELLS_OF_A_NODE) // len(order)
        for other in islice(_propose_other_orders(structure), int(min(n_others, 1 + _tuning.N_RESTARTS))):
            found = structure.compute_log_cells(other)
            if found < best:
                best, order = found, other
    return order, np.exp(min(best, _ENDLESS))


def _propose_other_orders(structure):
    n_nodes = len(structure.log_states)
    matrix = sp.csr_matrix((np.ones(len(structure.neighbors)), structure.neighbors, structure.ptr), (n_nodes, n_nodes))
    yield np.ascontiguousarray(reverse_cuthill_mckee(matrix, symmetric_mode=True))
    rng = np.random.default_rng(0)
    for _ in range(_tuning.N_RESTARTS):
        new_name = rng.permutation(n_nodes)
        order = junction_trees.min_fill_order(*structure.renamed(new_name), np.inf, np.inf)
        yield np.argsort(new_name)[order].astype(np.int32)


# Larger sizes are replaced by this size, which fits in a float; the second number is its logarithm.
_MOST_CELLS, _ENDLESS = 1e300, 600.0


class Limits(NamedTuple):
    """Limits on the width and the memory of elimination."""

    max_width: float
    max_memory: float

    def require(self, width, memory, *, at_least=False, because=""):
        """Raise ValueError if a width or a memory size exceeds the limits."""
        if width > self.max_width or memory > self.max_memory:
            least = "at least " if at_least else ""
            raise ValueError(
                f"model is too wide for JunctionTree: it needs {least}width {width} and {memory:.2g} bytes{because}, "
                f"but the limits are max_width={self.max_width} and max_memory={self.max_memory:.2g}."
            )


def plan_order(problem, order, limits):
    """Return the elimination order of the free nodes, (n_free,) int32, and the graph of these nodes."""
    # order: elimination order of all nodes; None searches for a good order
    sizes = np.diff(problem.free_scopes[0])
    for f in np.flatnonzero(sizes > _tuning.HOPELESS_WIDTH).tolist():
        size = 8 * np.exp2(min(sizes[f], 1000))
        limits.require(int(sizes[f]) - 1, size, at_least=True, because=f" (factor {f} alone)")
    scope_ptr, scope = problem.free_scopes
    structure = Structure.of(scope_ptr, scope, problem.n_states)
    bound = junction_trees.least_width(structure.ptr, structure.neighbors)
    if bound > _tuning.HOPELESS_WIDTH:
        limits.require(bound, 8 * 2.0 ** (bound + 1), at_least=True)
    if order is not None:
        order = as_array(order, "init")
        n_nodes = len(problem.states)
        if order.shape != (n_nodes,) or not np.array_equal(np.sort(order), np.arange(n_nodes)):
            raise ValueError(f"init must be the state of an earlier result, or a permutation of {n_nodes} nodes.")
        return order[problem.is_free[order]].astype(np.int32), structure
    orders = [found for _, found in iterate_component_orders(structure, np.flatnonzero(problem.is_free))]
    return np.concatenate([np.zeros(0, dtype=np.int32), *orders]), structure


def iterate_component_orders(structure, nodes, most_cells=None, most_steps=None):
    """Yield, for each connected component, its nodes and its best order; the order is None if it exceeds the limits."""
    # nodes: the nodes to include, ascending
    # most_cells, most_steps: (N,), limits for the component of each node
    # Nodes are renumbered in each component, so that its order does not depend on other components.
    # Components of equal structure, for example images of one shape in one graph, share an elimination order.
    listed, starts, part = structure.components(nodes)
    known = {}
    for k, (start, stop) in enumerate(pairwise(starts.tolist())):
        own = listed[start:stop].astype(np.int32)
        if stop == start + 1:
            yield own, own
            continue
        limits = () if most_cells is None else (float(most_cells[own[0]]), float(most_steps[own[0]]))
        graph = part(k)
        key = (*(array.tobytes() for array in graph), limits)
        if key not in known:
            known[key] = find_best_order(graph, *limits)[0]
        yield own, None if known[key] is None else own[known[key]]


class BucketSizes(NamedTuple):
    """Numbers of joint states of each bucket's tables, as arrays (n_buckets,) float64."""

    own: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, n_states, nodes, side_ptr, side_nodes):
        """Compute the sizes from the nodes of buckets and the nodes on both sides of their separators."""
        side = np.repeat(np.arange(len(side_ptr) - 1), np.diff(side_ptr))
        sizes = np.ones(len(side_ptr) - 1)
        with np.errstate(over="ignore"):
            np.multiply.at(sizes, side, n_states[side_nodes])
        sizes = np.minimum(sizes, _MOST_CELLS)
        return cls(n_states[nodes].astype(float), sizes[::2], sizes[1::2])

    @property
    def tables(self) -> np.ndarray:
        """Number of cells in the left and the right table of each bucket."""
        return self.left * _pad_sizes(self.own) + self.own * _pad_sizes(self.right)

    @property
    def messages(self) -> np.ndarray:
        """Number of cells in the message of each bucket."""
        return self.left * _pad_sizes(self.right)

    @property
    def workspace(self) -> np.ndarray:
        """Number of cells in both tables of each bucket and in the products of the backward pass."""
        return self.tables + np.maximum(self.right * _pad_sizes(self.own), self.own * self.left)

    @property
    def work(self) -> np.ndarray:
        """Number of cells, plus the number of cells that take as long as the multiplications in products of tables."""
        return self.tables + self.messages + self.left * self.own * self.right / _tuning.PRODUCTS_OF_A_CELL


class EliminationPlan:
    """Buckets of all free nodes in elimination order, as arrays for the kernels.

    A bucket eliminates its node from a table over the node and its separator. The table is a sum of factors and of
    messages from earlier buckets. These terms are distributed over two tables so that terms that share nodes of the
    separator are in the same table. Kernels compute the message from the two tables without forming the whole table.
    The nodes of a message are the nodes of the left table, followed by the nodes of the right table.
    """

    # order: elimination order of all nodes; None searches for a good order
    # keep: which tables stay in memory, for the memory limit in ``limits``

    def __init__(self, problem, order, limits, keep):
        self.structure = problem.structure
        self.nodes, graph = plan_order(problem, order, limits)
        self.n_states = problem.n_states.astype(np.int64)
        separators = junction_trees.separators_of(graph.ptr, graph.neighbors, self.nodes)
        # The width is the number of nodes of the largest clique minus one.
        self.width = int(np.diff(separators[0]).max(initial=0))
        fixed = np.flatnonzero(~problem.is_free)
        self.order = np.concatenate([self.nodes, fixed.astype(np.int32)])
        elimination = junction_trees.Elimination(*problem.free_scopes, self.n_states, self.nodes, *separators)
        # Nodes of the left and the right table of each bucket, alternating.
        self.side_ptr, self.side_nodes = elimination.sides()
        self._measure()
        self.require(limits, keep)
        self.value_start, self.cells = problem.storage()
        self._lay_out(elimination)
        self._find_ends(problem, np.flatnonzero(np.diff(separators[0]) == 0))

    def require(self, limits, keep):
        """Raise ValueError if the plan exceeds the limits."""
        limits.require(self.width, self.memory[keep])

    def _measure(self) -> None:
        """Compute the sizes of tables and messages, and their total memory."""
        sizes = BucketSizes.of(self.n_states, self.nodes, self.side_ptr, self.side_nodes)
        tables, messages = sizes.tables, sizes.messages
        self.workspace = {"best": tables.max(initial=0), "conditional": sizes.workspace.max(initial=0)}
        state_size = index_type(sizes.own.max(initial=1)).itemsize
        self.memory = {
            "best": float(8 * self.workspace["best"] + (8 + state_size) * messages.sum()),
            "conditional": float(8 * self.workspace["conditional"] + 8 * tables.sum() + 16 * messages.sum()),
        }
        self.n_cells = tables + messages
        self._sizes = *sizes, tables, messages

    def _lay_out(self, elimination: junction_trees.Elimination) -> None:
        """Build the arrays of buckets, parts and axes for the kernels."""
        own, left, right, tables, messages = (sizes.astype(np.int64) for sizes in self._sizes)
        del self._sizes
        shifts = left + _pad_sizes(right)
        starts = list(map(offsets_from_lengths, (tables, messages, shifts, own)))
        self.n_tables, self.n_messages, self.n_shifts, self.n_own = (int(ends[-1]) for ends in starts)
        self.buckets = np.zeros((len(self.nodes), 9), dtype=np.int64)
        self.buckets[:, :7] = np.stack([own, left, right, *(ends[:-1] for ends in starts)], axis=1)
        self.parts, self.axes = elimination.parts(self.side_ptr, self.side_nodes, self.value_start, self.buckets)

    def _find_ends(self, problem, roots):
        """Find the positions of root messages, fixed factors and marginals, and the first node of each component."""
        component = problem.model.component
        first = np.unique(component, return_index=True)[1]
        self.root_message = self.buckets[roots, 4]
        self.root_node = first[component[self.nodes[roots]]]
        fixed_factors = np.flatnonzero(np.diff(problem.free_scopes[0]) == 0)
        self.fixed_start = self.value_start[fixed_factors]
        fixed_nodes = [problem.nodes(f)[:1] for f in fixed_factors.tolist()]
        self.fixed_node = np.array(
            [first[component[nodes[0]]] if nodes else 0 for nodes in fixed_nodes], dtype=np.int64
        )
        fixed = np.flatnonzero(~problem.is_free)
        self.fixed_states = fixed, np.array([problem.states[node][0] for node in fixed], dtype=np.int64)
        states = [problem.states[node] for node in self.nodes.tolist()]
        self.free_states = (
            np.repeat(self.nodes.astype(np.int64), self.n_states[self.nodes]),
            np.concatenate([*states, np.zeros(0, dtype=np.int64)]),
        )

    def values(self, model):
        """Return the factor scores of a model with this structure as a flat float64 array."""
        if self.cells is None:
            return model.log_table.astype(np.float64)
        return np.concatenate((model.log_table, model.table_default)).astype(np.float64, copy=False)[self.cells]

    def stored(self, model, values):
        """For each stored score and default score, sum given values (as in :meth:`values`) over its uses."""
        if self.cells is None:
            return values, np.zeros(model.n_tables)
        n_cells = model.log_table.size
        sums = np.bincount(self.cells, weights=values, minlength=n_cells + model.n_tables)
        return sums[:n_cells], sums[n_cells:]

    def tables(self, k, tables):
        """Return both tables of bucket k, (left, own) and (own, right), from the array of all tables."""
        own, left, right, start = self.buckets[k, :4].tolist()
        middle = start + left * _pad_sizes(own)
        of_left = tables[start:middle].reshape(left, -1)[:, :own]
        return of_left, tables[middle : middle + own * _pad_sizes(right)].reshape(own, -1)

    def sides(self, k):
        """Return the nodes of the left and of the right table of bucket k, as lists."""
        a, b, c = self.side_ptr[2 * k : 2 * k + 3].tolist()
        return self.side_nodes[a:b].tolist(), self.side_nodes[b:c].tolist()


def index_type(n_states: float) -> np.dtype:
    """Return the smallest integer type for state indices."""
    return np.dtype(np.uint8 if n_states <= 256 else np.int32)


def _pad_sizes(sizes: np.ndarray) -> np.ndarray:
    return -(-sizes // ROWS_PADDED_TO) * ROWS_PADDED_TO
