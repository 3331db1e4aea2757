"""Plans of elimination on factor graphs, made once for each structure."""

from heapq import heapify, heappop, heappush
from math import prod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from sklearn_crf.kernels.exact.elimination import ROWS_PADDED_TO


class Elimination(NamedTuple):
    """Nodes in the order of their elimination, and what is joined to each when its turn comes."""

    order: list  # of nodes
    separators: list  # per node of the order: the neighbours it has left, in the order of their own elimination
    log_size: np.ndarray  # per node of the order: logarithm of the number of joint states of it and its neighbours

    @property
    def width(self):
        """Size of the largest clique less one: the tree width, if the order is the best."""
        return max((len(separator) for separator in self.separators), default=0)


def degeneracy(adjacency):
    """Largest smallest degree of a subgraph: a lower bound on the width of every elimination order."""
    # adjacency: neighbours of each node
    degree = [len(neighbors) for neighbors in adjacency]
    heap = [(d, s) for s, d in enumerate(degree)]
    heapify(heap)
    bound = 0
    while heap:
        d, node = heappop(heap)
        if d != degree[node]:
            continue
        bound = max(bound, d)
        degree[node] = -1
        for other in adjacency[node]:
            if degree[other] > 0:
                degree[other] -= 1
                heappush(heap, (degree[other], other))
    return bound


def min_fill_order(adjacency, log_states):
    """Eliminate the node whose neighbours lack the fewest edges; of equals, the one with the smallest clique."""
    # adjacency: neighbours of each node
    # log_states: logarithm of the number of states of each node
    # returns the nodes in the order of their elimination
    fill = _initial_fill(adjacency)
    log_size = [sum(log_states[t] for t in neighbors) + log_states[s] for s, neighbors in enumerate(adjacency)]
    heap = [(fill[s], log_size[s], s) for s in range(len(adjacency))]
    heapify(heap)
    order, done = [], [False] * len(adjacency)
    while heap:
        lacking, size, node = heappop(heap)
        if done[node] or lacking != fill[node] or size != log_size[node]:
            continue
        done[node] = True
        order.append(node)
        neighbors = adjacency[node]
        touched = set(neighbors)
        if lacking:
            _join(neighbors, adjacency, fill, log_size, log_states, touched)
        for other in neighbors:
            # The neighbours are a clique now: what the node lacked to `other` is all outside of it.
            fill[other] -= len(adjacency[other]) - len(neighbors)
            adjacency[other].discard(node)
            log_size[other] -= log_states[node]
        touched.discard(node)
        for other in touched:
            heappush(heap, (fill[other], log_size[other], other))
    return order


def _initial_fill(adjacency):
    """Number of pairs of neighbours of each node that are not joined."""
    fill = []
    for neighbors in adjacency:
        joined = sum(len(neighbors & adjacency[other]) for other in neighbors)
        fill.append((len(neighbors) * (len(neighbors) - 1) - joined) // 2)
    return fill


def _join(nodes, adjacency, fill, log_size, log_states, touched):
    """Join all nodes to each other; every node whose fill changes is put into `touched`."""
    for a in sorted(nodes):
        for b in sorted(nodes - adjacency[a]):
            if b <= a:
                continue
            common = adjacency[a] & adjacency[b]
            for node in common:
                fill[node] -= 1
            touched |= common
            fill[a] += len(adjacency[a]) - len(common)
            fill[b] += len(adjacency[b]) - len(common)
            adjacency[a].add(b)
            adjacency[b].add(a)
            log_size[a] += log_states[b]
            log_size[b] += log_states[a]


def eliminate(adjacency, order, log_states):
    """Separators of an elimination order."""
    # adjacency: neighbours of each node
    position = {node: k for k, node in enumerate(order)}
    separators, log_size = [], np.zeros(len(order))
    for k, node in enumerate(order):
        separator = sorted(adjacency[node], key=position.__getitem__)
        separators.append(separator)
        log_size[k] = log_states[node] + sum(log_states[other] for other in separator)
        if separator:
            # Enough for later separators: the next one of these to go passes the rest on.
            heir = adjacency[separator[0]]
            heir.update(separator[1:])
            for other in separator:
                adjacency[other].discard(node)
    return Elimination(list(order), separators, log_size)


# Below this many table cells the search for a better order takes longer than it saves.
_FEW_CELLS = 2.0**14
_N_RESTARTS = 8


def best_order(adjacency, log_states):
    """Cheapest of several elimination orders of a connected graph, by the number of table cells.

    Candidates are the min-fill order, the same with its ties broken at random (from a fixed seed, so that the result is
    deterministic), and the order of smallest bandwidth, which is the better one on some lattices.
    """
    # adjacency: neighbours of each node
    best = _planned(adjacency, min_fill_order(list(map(set, adjacency)), log_states), log_states)
    if _cost(best) <= np.log(_FEW_CELLS):
        return best
    rng = np.random.default_rng(0)
    candidates = [_band_order(adjacency)]
    for _ in range(_N_RESTARTS):
        new_name = rng.permutation(len(adjacency)).tolist()
        old_name = np.argsort(new_name).tolist()
        renamed = [{new_name[t] for t in adjacency[s]} for s in old_name]
        order = min_fill_order(renamed, [log_states[s] for s in old_name])
        candidates.append([old_name[s] for s in order])
    plans = [best, *(_planned(adjacency, order, log_states) for order in candidates)]
    return min(plans, key=_cost)


def _planned(adjacency, order, log_states):
    return eliminate(list(map(set, adjacency)), order, log_states)


def _cost(elimination):
    return np.logaddexp.reduce(elimination.log_size)


def _band_order(adjacency):
    rows = np.repeat(np.arange(len(adjacency)), [len(neighbors) for neighbors in adjacency])
    columns = np.array([t for neighbors in adjacency for t in sorted(neighbors)], dtype=np.int64)
    matrix = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(adjacency),) * 2)
    return reverse_cuthill_mckee(matrix, symmetric_mode=True).tolist()


# A lower bound is enough to refuse a graph whose order would take long to find.
_HOPELESS_WIDTH = 200

# Sizes beyond are as good as infinite, and fit into a float.
_MOST_CELLS = 10**300


class Limits(NamedTuple):
    """Bounds of what is tried."""

    max_width: float
    max_memory: float

    def require(self, width, memory, *, at_least=False, because=""):
        """Raise ValueError if a model takes more."""
        if width > self.max_width or memory > self.max_memory:
            least = "at least " if at_least else ""
            raise ValueError(
                f"model is too wide for JunctionTree: it takes {least}width {width} and {memory:.2g} bytes{because}, "
                f"the bounds are max_width={self.max_width} and max_memory={self.max_memory:.2g}."
            )


def planned_order(problem, order, limits):
    """Order of elimination of the free nodes, and the separator of each."""
    # order: order of all nodes; None looks for a good one
    # returns separators: in the order of their own elimination
    log_states = np.log(problem.n_states).tolist()
    _refuse_wide_factors(problem, limits)
    adjacency = [set() for _ in log_states]
    for scope in problem.scopes:
        for node in scope:
            adjacency[node].update(scope)
    for node in problem.free_nodes:
        adjacency[node].discard(node)
    bound = degeneracy(adjacency)
    if bound > _HOPELESS_WIDTH:
        limits.require(bound, 8 * 2.0 ** (bound + 1), at_least=True)
    if order is not None:
        plan = eliminate(adjacency, _checked_order(order, problem), log_states)
        return plan.order, plan.separators
    order, separators, plans = [], [], {}
    for nodes in _connected(adjacency, problem.free_nodes):
        # Every component has names of its own: its order does not depend on the others, and is that of all components
        # of its structure, such as images of one shape side by side.
        name = {node: k for k, node in enumerate(nodes)}
        neighbors = [frozenset(name[t] for t in adjacency[s]) for s in nodes]
        structure = tuple(neighbors), tuple(log_states[s] for s in nodes)
        if structure not in plans:
            plans[structure] = best_order(neighbors, structure[1])
        plan = plans[structure]
        order += [nodes[k] for k in plan.order]
        separators += [[nodes[k] for k in separator] for separator in plan.separators]
    return order, separators


def _refuse_wide_factors(problem, limits):
    for f, scope in enumerate(problem.scopes):
        if len(scope) > _HOPELESS_WIDTH:
            size = 8 * np.exp2(min(len(scope), 1000))
            limits.require(len(scope) - 1, size, at_least=True, because=f" (factor {f} alone)")


def _connected(adjacency, nodes):
    """Nodes of each connected component, ascending, components in the order of their first nodes."""
    seen = set()
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        found, stack = [], [root]
        while stack:
            node = stack.pop()
            found.append(node)
            fresh = adjacency[node] - seen
            seen |= fresh
            stack.extend(fresh)
        yield sorted(found)


def _checked_order(order, problem):
    order = np.asarray(order)
    n_nodes = len(problem.states)
    if order.shape != (n_nodes,) or not np.array_equal(np.sort(order), np.arange(n_nodes)):
        raise ValueError(f"init must be the state of a former result: a permutation of {n_nodes} nodes.")
    return [node for node in order.tolist() if problem.is_free[node]]


class EliminationPlan:
    """One bucket for each free node, in the order of elimination, as arrays that kernels walk along.

    A bucket takes its node out of a table over that and its separator. The parts of the table are factors and messages
    of earlier buckets. Parts that have nodes of the separator in common are summed in the same one of two tables, which
    kernels join to a message without ever making the whole. A message has the nodes of the left table first, then
    those of the right one.
    """

    # order: order of elimination of all nodes; None looks for a good one
    # keep: what is kept of the tables, for ``limits``

    def __init__(self, problem, order, limits, keep):
        self.structure = problem.structure
        self.nodes, self.separators = planned_order(problem, order, limits)
        # Nodes of the largest clique, less one.
        self.width = max(map(len, self.separators), default=0)
        fixed = np.flatnonzero(~problem.is_free)
        self.order = np.concatenate([np.array(self.nodes, dtype=np.int32), fixed.astype(np.int32)])
        self.n_states = problem.n_states.tolist()
        self._share_out(problem)
        self._measure()
        self.require(limits, keep)
        self.value_start, self.cells = problem.storage()
        self._lay_out(problem)
        self._find_ends(problem)

    def require(self, limits, keep):
        """Raise ValueError if the plan takes more than the limits."""
        limits.require(self.width, self.memory[keep])

    def _share_out(self, problem):
        """Factors and earlier buckets of each bucket, and which nodes of its separator each of its tables has."""
        position = {node: k for k, node in enumerate(self.nodes)}
        self.factors = [[] for _ in self.nodes]
        self.fixed_factors = []
        for f, scope in enumerate(problem.scopes):
            if scope:
                self.factors[min(position[s] for s in scope)].append(f)
            else:
                self.fixed_factors.append(f)
        self.children = [[] for _ in self.nodes]
        for k, separator in enumerate(self.separators):
            if separator:
                self.children[position[separator[0]]].append(k)
        self.sides = []
        for k, separator in enumerate(self.separators):
            scopes = [problem.scopes[f] for f in self.factors[k]]
            scopes += [self.separators[child] for child in self.children[k]]
            self.sides.append(_two_sides(self.nodes[k], separator, scopes, self.n_states))

    def _measure(self):
        """Sizes of tables and messages, and the bytes that they take together."""
        own = np.array([self.n_states[node] for node in self.nodes], dtype=float)
        left, right = (
            np.array([min(_n_joint_states(sides[j], self.n_states), _MOST_CELLS) for sides in self.sides], dtype=float)
            for j in (0, 1)
        )
        tables, messages = left * _padded(own) + own * _padded(right), left * _padded(right)
        turned = np.maximum(right * _padded(own), own * left)
        self.workspace = {"best": tables.max(initial=0), "conditional": (tables + turned).max(initial=0)}
        state_size = index_type(own.max(initial=1)).itemsize
        self.memory = {
            "best": float(8 * self.workspace["best"] + (8 + state_size) * messages.sum()),
            "conditional": float(8 * self.workspace["conditional"] + 8 * tables.sum() + 16 * messages.sum()),
        }
        self.n_cells = tables + messages
        self._sizes = own, left, right, tables, messages

    def _lay_out(self, problem):
        """Arrays of buckets, parts and axes, as the kernels have them."""
        own, left, right, tables, messages = (sizes.astype(np.int64) for sizes in self._sizes)
        del self._sizes
        shifts = left + _padded(right)
        starts = [_starts(sizes) for sizes in (tables, messages, shifts, own)]
        self.n_tables, self.n_messages, self.n_shifts, self.n_own = (int(ends[-1]) for ends in starts)
        self.buckets = np.zeros((len(self.nodes), 9), dtype=np.int64)
        self.buckets[:, :7] = np.stack([own, left, right, *(ends[:-1] for ends in starts)], axis=1)
        parts, axes = [], []
        for k, node in enumerate(self.nodes):
            self.buckets[k, 7] = len(parts)
            sides = [_strides_of_left, _strides_of_right]
            table = [strides(node, nodes, self.n_states) for strides, nodes in zip(sides, self.sides[k], strict=True)]
            in_right = set(self.sides[k][1])
            sources = [
                (0, self.value_start[f], _strides_of_factor(problem.scopes[f], self.n_states)) for f in self.factors[k]
            ]
            sources += [(1, int(self.buckets[c, 4]), self._strides_of_message(c)) for c in self.children[k]]
            for is_message, start, of_part in sources:
                side = int(not in_right.isdisjoint(of_part))
                own_axes = _joined_axes(table[side], of_part, self.n_states)
                parts.append((side, is_message, start, len(axes), len(axes) + len(own_axes)))
                axes += own_axes
            self.buckets[k, 8] = len(parts)
        self.parts = np.array(parts, dtype=np.int64).reshape(-1, 5)
        self.axes = np.array(axes, dtype=np.int64).reshape(-1, 3)
        # Plain integers: a labeling is read off message by message.
        self.message_starts, self.message_widths = self.buckets[:, 4].tolist(), _padded(self.buckets[:, 2]).tolist()

    def _find_ends(self, problem):
        """Places of last messages and fixed factors, by the first node of a component, and of marginals."""
        component = problem.model.component
        first = np.unique(component, return_index=True)[1]
        roots = [k for k, separator in enumerate(self.separators) if not separator]
        self.root_message = self.buckets[roots, 4]
        self.root_node = first[component[[self.nodes[k] for k in roots]]]
        self.fixed_start = np.array([self.value_start[f] for f in self.fixed_factors], dtype=np.int64)
        fixed_nodes = [problem.nodes(f)[:1] for f in self.fixed_factors]
        self.fixed_node = np.array(
            [first[component[nodes[0]]] if nodes else 0 for nodes in fixed_nodes], dtype=np.int64
        )
        fixed = np.flatnonzero(~problem.is_free)
        self.fixed_states = fixed, np.array([problem.states[node][0] for node in fixed], dtype=np.int64)
        states = [problem.states[node] for node in self.nodes]
        self.free_states = (
            np.repeat(np.array(self.nodes, dtype=np.int64), [len(known) for known in states]),
            np.concatenate([*states, np.zeros(0, dtype=np.int64)]),
        )

    def values(self, model):
        """Scores of the factors of a model of this structure, one behind the other, float64."""
        if self.cells is None:
            return model.log_table.astype(np.float64)
        return np.concatenate((model.log_table, model.table_default)).astype(np.float64, copy=False)[self.cells]

    def stored(self, model, values):
        """Sums of numbers that belong to :meth:`values`, by the stored scores and by the defaults of tables."""
        if self.cells is None:
            return values, np.zeros(model.n_tables)
        n_cells = model.log_table.size
        sums = np.bincount(self.cells, weights=values, minlength=n_cells + model.n_tables)
        return sums[:n_cells], sums[n_cells:]

    def tables(self, k, tables):
        """Both tables of bucket k, (left, own) and (own, right), out of those of all."""
        own, left, right, start = self.buckets[k, :4].tolist()
        middle = start + left * _padded(own)
        of_left = tables[start:middle].reshape(left, -1)[:, :own]
        return of_left, tables[middle : middle + own * _padded(right)].reshape(own, -1)

    def _strides_of_message(self, k):
        left, right = self.sides[k]
        strides = _strides(right, self.n_states, 1)
        return _strides(left, self.n_states, int(_padded(self.buckets[k, 2]))) | strides


def index_type(n_states):
    """Smallest type that numbers states."""
    return np.dtype(np.uint8 if n_states <= 256 else np.int32)


def _padded(sizes):
    return -(-sizes // ROWS_PADDED_TO) * ROWS_PADDED_TO


def _starts(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _two_sides(node, separator, scopes, n_states):
    """Nodes of the separator in each of two tables: parts have theirs in one of them. The second is the larger."""
    group = {other: {other} for other in separator}
    for scope in scopes:
        joined = set().union(*(group[other] for other in scope if other != node))
        for other in joined:
            group[other] = joined
    groups = {id(nodes): sorted(nodes) for nodes in group.values()}.values()
    # Largest first; of equals, that of the first node.
    sized = sorted((-_n_joint_states(nodes, n_states), nodes) for nodes in groups)
    sides = [(1, []), (1, [])]
    for size, nodes in sized:
        smaller = min(sides)
        sides.remove(smaller)
        sides.append((-size * smaller[0], smaller[1] + nodes))
    return [[other for other in separator if other in nodes] for _, nodes in sorted(sides)]


def _n_joint_states(nodes, n_states):
    return prod(n_states[node] for node in nodes)


def _strides(nodes, n_states, step):
    """Steps of the axes of a table, the last one changing fastest."""
    strides = {}
    for node in reversed(nodes):
        strides[node] = step
        step *= n_states[node]
    return dict(reversed(strides.items()))


def _strides_of_left(node, nodes, n_states):
    return _strides(nodes, n_states, _padded(n_states[node])) | {node: 1}


def _strides_of_right(node, nodes, n_states):
    return {node: _padded(_n_joint_states(nodes, n_states))} | _strides(nodes, n_states, 1)


def _strides_of_factor(scope, n_states):
    return _strides(scope, n_states, 1)


def _joined_axes(of_table, of_part, n_states):
    """Axes of a table as (extent, step in the table, step in the part), neighbours joined where both go on evenly."""
    axes = []
    for node, step in of_table.items():
        extent, part_step = n_states[node], of_part.get(node, 0)
        if axes and axes[-1][1] == step * extent and axes[-1][2] == part_step * extent:
            extent *= axes.pop()[0]
        axes.append((extent, step, part_step))
    return axes
