"""Optimal labels of spins without fields on a grid, by linear programs over cycle inequalities.

A labeling cuts the edges whose ends differ. On a planar graph the convex hull of all cuts is what the inequalities of
its cycles describe (Barahona and Mahjoub, "On the cut polytope", 1986): of every cycle, a cut has an even number of
edges. There are too many to write down, but shortest paths find the ones that a solution violates. Where none is
violated and the solution is integral, its labels are optimal, and their score is the bound that proves it.
"""

from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, dijkstra

# A path this much shorter than 1 is a violated inequality, and a value this near to 0 or 1 is taken as integral.
TOLERANCE = 1e-7
SPIN_TABLE = ((1.0, -1.0), (-1.0, 1.0))
# Sources of one call of Dijkstra's algorithm: a row of distances to all nodes each.
N_SOURCES = 200


def is_planar_grid(model):
    """Whether a model is what :func:`ground_state` takes: spins without fields on a grid of four neighbours."""
    graph = model.graph
    on_grid = graph.offsets is not None and len(graph.shape) == 2 and len(graph.offsets) == 2
    return on_grid and not np.any(model.unary) and np.array_equal(model.tables, [[SPIN_TABLE]])


def ground_state(model, max_rounds=600):
    """Optimal labels of a model that :func:`is_planar_grid`."""
    graph, weight = model.graph, np.asarray(model.edge_weight, dtype=float)
    copies, rows = TwoCopies(graph), set(squares(graph))
    for _ in range(max_rounds):
        matrix, limit = inequalities(rows, graph.n_edges)
        cut = np.clip(linprog(weight, A_ub=matrix, b_ub=limit, bounds=(0.0, 1.0), method="highs").x, 0.0, 1.0)
        fractional = np.abs(cut - np.rint(cut)) > TOLERANCE
        added = copies.violated(cut, np.unique(graph.edges[fractional])) - rows
        added = added or copies.violated(cut, np.arange(graph.n_nodes)) - rows
        if not added and not fractional.any():
            return labels_of(graph, np.rint(cut))
        if not added:
            break
        # Slack inequalities are found again if they are needed again; those of squares nearly always are.
        tight = limit - matrix @ cut < 0.5
        rows = {row for row, keep in zip(rows, tight, strict=True) if keep or len(row) <= 4} | added
    raise RuntimeError("The linear programs did not come to labels.")


def squares(graph):
    """Inequalities of the smallest cycles, by any odd number of their edges: sets as :class:`TwoCopies` gives them."""
    number = np.arange(graph.n_nodes).reshape(graph.shape)
    edge = {frozenset(ends): e for e, ends in enumerate(graph.edges.tolist())}
    corners_of = (number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1])
    for corners in zip(*(corner.flat for corner in corners_of), strict=True):
        sides = [edge[frozenset((int(corners[k - 1]), int(corners[k])))] for k in range(4)]
        for k, sign in product(range(4), (1, -1)):
            yield frozenset((e, sign if e == sides[k] else -sign) for e in sides)


def inequalities(rows, n_edges):
    """sum of cut[e] over the odd part of a cycle - sum over its rest <= size of the odd part - 1, for each row."""
    number, edge, sign = zip(*((k, e, s) for k, row in enumerate(rows) for e, s in row), strict=True)
    matrix = csr_matrix((np.array(sign, dtype=float), (number, edge)), shape=(len(rows), n_edges))
    return matrix, np.array([sum(s > 0 for _, s in row) - 1.0 for row in rows])


class TwoCopies:
    """Two copies of a graph, in which an edge stays in its copy at the price cut[e], or crosses at 1 - cut[e].

    A path from a node to its own copy crosses an odd number of times: it is a cycle, the edges that cross are its odd
    part, and its inequality is violated where it costs less than 1.
    """

    def __init__(self, graph):
        n, (tail, head) = graph.n_nodes, graph.edges.T
        start, end = np.concatenate((tail, tail + n, tail, tail + n)), np.concatenate((head, head + n, head + n, head))
        slot = csr_matrix((np.arange(1, len(start) + 1), (start, end)), shape=(2 * n, 2 * n))
        self.graph, self.slot = graph, slot + slot.T
        self.slot_of = dict(self.slot.todok().items())

    def violated(self, cut, sources):
        """Cheapest cycles through each source that cost less than 1: sets of (edge, 1 in the odd part or else -1)."""
        # Explicit zeros would be no edges to Dijkstra's algorithm.
        price = np.concatenate((cut, cut, 1.0 - cut, 1.0 - cut)) + 1e-9
        copies = csr_matrix((price[self.slot.data - 1], self.slot.indices, self.slot.indptr), shape=self.slot.shape)
        n, found = self.graph.n_nodes, set()
        for first in range(0, len(sources), N_SOURCES):
            chosen = sources[first : first + N_SOURCES]
            distance, before = dijkstra(copies, indices=chosen, return_predecessors=True, limit=1.0)
            for k in np.flatnonzero(distance[np.arange(len(chosen)), chosen + n] < 1.0 - TOLERANCE):
                cycle = self._cycle(before[k], int(chosen[k]))
                if len({edge for edge, _ in cycle}) == len(cycle):
                    found.add(frozenset(cycle))
        return found

    def _cycle(self, before, source):
        """Edges, with the sign of each, of the path from a node to its copy."""
        cycle, node, n_edges = [], source + self.graph.n_nodes, self.graph.n_edges
        while node != source:
            slot = self.slot_of[int(before[node]), node] - 1
            cycle.append((int(slot) % n_edges, 1 if slot >= 2 * n_edges else -1))
            node = int(before[node])
        return cycle


def labels_of(graph, cut):
    """Labels that cut these edges, the first node of every component 0."""
    tail, head = graph.edges.T
    labels = np.full(graph.n_nodes, -1, dtype=np.int32)
    adjacency = csr_matrix((np.ones(len(tail)), (tail, head)), shape=(graph.n_nodes, graph.n_nodes))
    crossed = {(int(i), int(j)): bool(c) for i, j, c in zip(tail, head, cut, strict=True)}
    for root in range(graph.n_nodes):
        if labels[root] < 0:
            order, before = breadth_first_order(adjacency, root, directed=False)
            labels[root] = 0
            for node in order[1:].tolist():
                parent = int(before[node])
                different = crossed[(parent, node)] if (parent, node) in crossed else crossed[(node, parent)]
                labels[node] = labels[parent] ^ different
    return labels
