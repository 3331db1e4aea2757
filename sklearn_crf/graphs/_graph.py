"""Topology of graphs and lattices, without scores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations, product
from math import comb, prod
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklearn_crf._numbers import MAX_INT32, as_integer, as_integers, as_reals, convert_to_csr, offsets_from_lengths
from sklearn_crf._own_methods import restoring
from sklearn_crf._threads import cached_property
from sklearn_crf.graphs import _tuning
from sklearn_crf.kernels.graphs.graphs import forest_order, greedy_colouring, list_incidence

# Half-edges, two per edge, are numbered with int32, which limits the number of edges.
_MAX_EDGES = MAX_INT32 // 2

# Maximum number of axes of a NumPy array.
_MAX_AXES = 64


class Incidence(NamedTuple):
    """The edges of each node, in compressed rows: node s has the slots ptr[s] to ptr[s + 1].

    A slot is an edge seen from one of its ends, so a graph with E edges has 2E slots. A message is stored at the slot
    of the node that receives it, so that the messages to a node are contiguous.
    """

    ptr: np.ndarray  # (N + 1,) int64
    neighbor: np.ndarray  # (2E,) int32: the node at the other end of the edge
    half_edge: np.ndarray  # (2E,) int32: 2 * edge + side, where side is 0 if the slot's node is edges[edge, 0], else 1
    reverse: np.ndarray  # (2E,) int32: the slot of the same edge at the other end


class Forest(NamedTuple):
    """Breadth-first order of the nodes, in which every node comes after its parent."""

    order: np.ndarray  # (N,) int32
    parent_slot: np.ndarray  # (N,) int32: slot of the node that leads to its parent, -1 for roots
    rank: np.ndarray  # (N,) int32: position of each node in ``order``


class Colouring(NamedTuple):
    """Partition of the nodes into colours such that no edge joins two nodes of the same colour.

    All nodes of a colour can therefore be updated at once.
    """

    nodes: np.ndarray  # (N,) int32, grouped by colour, ascending within a colour
    ptr: np.ndarray  # (n_colours + 1,) int64: colour c is nodes[ptr[c]:ptr[c + 1]]


class Graph:
    """An undirected graph whose edges also have a direction, so that tables of scores can be asymmetric.

    Entry (a, b) of the table of edge e is the score of state a at node ``edges[e, 0]`` and state b at node
    ``edges[e, 1]``.

    Parameters
    ----------
    n_nodes : int
        Number of nodes N.
    edges : array-like of shape (E, 2) or (2, E) of int, sparse matrix of shape (N, N), or networkx graph
        Each undirected edge once, in either direction. In an array of shape (2, 2), each row is an edge. A sparse
        adjacency matrix joins the nodes of its non-zero entries, as :func:`from_adjacency` does. Nodes of a networkx
        graph (such as a region adjacency graph of scikit-image) are numbered in increasing order if their names are
        integers, otherwise in the order of ``graph.nodes``.
    shape : tuple of int, optional
        Shape of the lattice, if the nodes are the points of a lattice in C order.
    offsets : array-like of shape (n_offsets, ndim), optional
        The offsets of a lattice's edges; set by :func:`lattice`.

    Raises
    ------
    ValueError
        If an end of an edge is not a node of the graph, or an edge joins a node to itself or is listed twice.

    Examples
    --------
    >>> from sklearn_crf import Graph
    >>> triangle = Graph(3, [[0, 1], [1, 2], [2, 0]])
    >>> triangle
    Graph(n_nodes=3, n_edges=3)
    >>> triangle.degree, triangle.is_forest
    (array([2, 2, 2]), False)
    """

    n_nodes: int
    shape: tuple[int, ...] | None
    offsets: np.ndarray | None

    def __init__(
        self, n_nodes: int, edges: Any, shape: Sequence[int] | None = None, offsets: ArrayLike | None = None
    ) -> None:
        n_nodes = as_integer(n_nodes, "n_nodes")
        # Check numbers of nodes before conversion to int32, so that the error can name the first edge out of range.
        wide = as_integers(_convert_edges(edges, n_nodes), "edges", dtype=np.int64)
        _check_edges(n_nodes, wide)
        edges = as_integers(wide, "edges")
        self._set(n_nodes, edges, None if shape is None else _as_shape(shape), offsets)
        if offsets is not None and not np.array_equal(self._from_offsets().edges, edges):
            raise ValueError(
                "edges must equal the edges of lattice(shape, offsets) if offsets are given: call lattice instead."
            )

    def _from_offsets(self):
        """Return the lattice with the given shape and offsets; raise ValueError if they do not describe a lattice."""
        if self.shape is None or self.offsets is None:
            raise ValueError("offsets need shape, the shape of a lattice.")
        found = lattice(self.shape, self.offsets if self.shape else 1)
        assert found.offsets is not None
        if not np.array_equal(found.offsets, self.offsets):
            raise ValueError(f"offsets must equal the offsets of lattice(shape, offsets), {found.offsets.tolist()}.")
        return found

    def _set(self, n_nodes, edges, shape, offsets):
        self.n_nodes = n_nodes
        self._kept = {}
        self._parts = None
        self.shape = shape
        self.offsets = None if offsets is None else np.array(offsets, dtype=np.int64)
        if edges is None and self.offsets is not None:
            # The offsets determine the edges of a lattice, so edges are only listed when they are first read.
            self._n_edges = sum(_count_lattice_edges(shape, offset) for offset in self.offsets)
        else:
            edges = edges.view()
            edges.flags.writeable = False
            self.__dict__["edges"] = edges
            self._n_edges = len(edges)
        if shape is not None and prod(shape) != n_nodes:
            raise ValueError(f"shape {shape} has {prod(shape)} nodes, but n_nodes is {n_nodes}.")

    def __repr__(self):
        lattice = "" if self.shape is None else f", shape={self.shape}"
        return f"Graph(n_nodes={self.n_nodes}, n_edges={self.n_edges}{lattice})"

    def __getstate__(self):
        # Omit derived results, which are cheap to recompute and would enlarge pickles.
        # The edges of a lattice and of a union of graphs are derived results, too.
        if self._parts is not None:
            return {"_parts": self._parts}
        edges = self.edges if self.offsets is None else None
        return {"n_nodes": self.n_nodes, "edges": edges, "shape": self.shape, "offsets": self.offsets}

    def __setstate__(self, state):
        with restoring(self):
            if "_parts" in state:
                parts = state["_parts"]
                if not isinstance(parts, tuple) or not all(isinstance(part, Graph) for part in parts):
                    raise TypeError("the parts of a union must be a tuple of graphs")
                self.__dict__.update(build_disjoint_union(parts).__dict__)
            elif state["edges"] is None:
                shape = _as_shape(state["shape"])
                self._set(as_integer(state["n_nodes"], "n_nodes"), None, shape, state["offsets"])
                self._from_offsets()
            else:
                Graph.__init__(self, **state)

    def keep(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, cached for the lifetime of the graph.

        Parameters
        ----------
        key : hashable
            Key of the cached result. At most eight results are cached; the oldest result is dropped first.
        make : callable
            Called without arguments if no result is cached under ``key``. The result must not reference the graph.

        Returns
        -------
        object
        """
        kept = self._kept.get(key)
        if kept is None:
            # If several threads compute the result, all of them return the object that was stored first.
            # A lock is not safe here: if another thread forks, the child process would inherit it in locked state.
            kept = self._kept.setdefault(key, make())
            for oldest in list(self._kept)[: -_tuning.MAX_KEPT]:
                self._kept.pop(oldest, None)
        return kept

    @property
    def n_edges(self) -> int:
        """Number of edges E."""
        return self._n_edges

    @property
    def parts(self) -> tuple[Graph, ...]:
        """The graphs that :func:`build_disjoint_union` joined to form this graph, or a tuple of only this graph."""
        return self._parts or (self,)

    @cached_property
    def copied_part(self) -> Graph | None:
        """Graph whose copies make up this graph, or None if this graph is not a union of several copies."""
        first, *others = self.parts
        return first if others and all(part is first for part in others) else None

    @cached_property
    def edges(self) -> np.ndarray:
        """Edges, (E, 2) int32, read-only."""
        # Only lattices reach this line; all other graphs have an instance attribute ``edges``.
        assert self.shape is not None
        assert self.offsets is not None
        edges = _build_lattice_edges(self.shape, self.offsets)
        edges.flags.writeable = False
        return edges

    @cached_property
    def incidence(self) -> Incidence:
        """Edges of each node, as an :class:`Incidence`."""
        ptr = np.empty(self.n_nodes + 1, dtype=np.int64)
        neighbor, half_edge, reverse = (np.empty(2 * self.n_edges, dtype=np.int32) for _ in range(3))
        list_incidence(self.edges, ptr, neighbor, half_edge, reverse)
        return Incidence(ptr, neighbor, half_edge, reverse)

    @property
    def degree(self) -> np.ndarray:
        """Number of edges of each node, (N,) int64."""
        return np.diff(self.incidence.ptr)

    @cached_property
    def largest_degree(self) -> int:
        """Maximum number of edges at a node, or 0 if the graph has no nodes."""
        return int(np.diff(self.incidence.ptr).max(initial=0))

    @cached_property
    def _traversal(self) -> tuple:
        order, parent_slot, component, rank = (np.empty(self.n_nodes, dtype=np.int32) for _ in range(4))
        ptr, neighbor, _, reverse = self.incidence
        acyclic, n_components = forest_order(ptr, neighbor, reverse, order, parent_slot, component)
        rank[order] = np.arange(self.n_nodes, dtype=np.int32)
        return Forest(order, parent_slot, rank), component, bool(acyclic), int(n_components)

    @cached_property
    def is_forest(self) -> bool:
        """Whether the graph has no cycle."""
        if self.n_edges >= max(self.n_nodes, 1):
            return False
        # Fast test that suffices for chains and for trees numbered from the root: no node has two earlier neighbours.
        later = np.maximum(self.edges[:, 0], self.edges[:, 1])
        return bool(np.bincount(later, minlength=1).max() <= 1) or self._traversal[2]

    @property
    def forest(self) -> Forest:
        """Breadth-first spanning forest, as a :class:`Forest`; it contains all edges if the graph has no cycles."""
        return self._traversal[0]

    @property
    def parents(self) -> tuple[np.ndarray, np.ndarray]:
        """Each node's parent in :attr:`forest` and its half-edge to the parent: two arrays (N,) int32, -1 for roots."""
        slot, (_, neighbor, half_edge, _) = self.forest.parent_slot, self.incidence
        parent, to_parent = np.full((2, self.n_nodes), -1, dtype=np.int32)
        has_parent = slot >= 0
        parent[has_parent], to_parent[has_parent] = neighbor[slot[has_parent]], half_edge[slot[has_parent]]
        return parent, to_parent

    @cached_property
    def chain_ptr(self) -> np.ndarray | None:
        """First node of each chain, followed by the number of nodes; None unless all edges join consecutive nodes."""
        first, second = self.edges[:, 0], self.edges[:, 1]
        if not self.n_nodes or np.any(second != first + 1) or np.any(first[1:] <= first[:-1]):
            return None
        is_start = np.ones(self.n_nodes + 1, dtype=bool)
        is_start[second] = False
        return np.flatnonzero(is_start)

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes without incoming edges and nodes without outgoing edges: the first and last nodes of chains."""
        heads, tails = (np.bincount(self.edges[:, i], minlength=self.n_nodes) for i in (1, 0))
        return np.flatnonzero(heads == 0), np.flatnonzero(tails == 0)

    @property
    def component(self) -> np.ndarray:
        """Index of each node's connected component, (N,) int32. Components are ordered by their first nodes."""
        return self._traversal[1]

    @property
    def n_components(self) -> int:
        """Number of connected components."""
        return self._traversal[3]

    @cached_property
    def colouring(self) -> Colouring:
        """Colouring of the nodes, as a :class:`Colouring`; axis-connected lattices have two colours."""
        ptr, neighbor, _, _ = self.incidence
        colour = np.empty(self.n_nodes, dtype=np.int32)
        last_seen = np.full(self.largest_degree + 2, -1, dtype=np.int32)
        n_colours = greedy_colouring(ptr, neighbor, colour, last_seen)
        counts = np.bincount(colour, minlength=n_colours)
        return Colouring(
            nodes=np.argsort(colour, kind="stable").astype(np.int32),
            ptr=offsets_from_lengths(counts),
        )

    @cached_property
    def lattice_edge_type(self) -> np.ndarray:
        """Index of the offset of each edge of a lattice, (E,) int32."""
        if self.offsets is None:
            raise ValueError("lattice_edge_type needs a graph made by lattice(), whose edges have offsets.")
        counts = np.array([_count_lattice_edges(self.shape, offset) for offset in self.offsets], dtype=np.int64)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def build_trusted_graph(
    n_nodes: int,
    edges: np.ndarray | None,
    shape: tuple[int, ...] | None = None,
    offsets: ArrayLike | None = None,
) -> Graph:
    """Build a graph without checks, from edges that this package made itself."""
    graph = Graph.__new__(Graph)
    graph._set(n_nodes, edges, shape, offsets)
    return graph


def check_graph(graph: Any) -> None:
    """Raise TypeError unless the graph of a model is a Graph."""
    if not isinstance(graph, Graph):
        raise TypeError(
            f"graph must be a Graph, got {type(graph).__name__}: use Graph(n_nodes, edges), or lattice(shape)."
        )


def lists_edges(graph: Graph) -> bool:
    """Return whether the edges are stored as an array. If not, the graph is a lattice with edges in lattice order."""
    return "edges" in graph.__dict__


def _convert_edges(edges, n_nodes):
    """Convert edges in any form that :class:`Graph` accepts to an array of shape (E, 2); values are not checked."""
    if sp.issparse(edges):
        if edges.shape != (n_nodes, n_nodes):
            raise ValueError(
                f"edges is a sparse adjacency matrix of shape {edges.shape}, but {n_nodes} nodes need "
                f"({n_nodes}, {n_nodes})."
            )
        return _find_adjacent_pairs(edges)
    if hasattr(edges, "adj") and hasattr(edges, "nodes"):
        return _convert_networkx_edges(edges, n_nodes)
    try:
        edges = np.asanyarray(edges)  # keeps masks
    except ValueError as error:
        raise ValueError(f"edges must have shape (E, 2), got rows of different lengths: {error}") from error
    if edges.size == 0:
        return edges.reshape(0, 2)
    if edges.ndim != 2 or 2 not in edges.shape:
        raise ValueError(f"edges must have shape (E, 2), got {edges.shape}.{_hint_form(edges, n_nodes)}")
    return edges if edges.shape[1] == 2 else edges.T


def _hint_form(edges, n_nodes):
    if edges.shape == (n_nodes, n_nodes):
        return " If it is a dense adjacency matrix, pass scipy.sparse.csr_array(edges)."
    return " Sparse adjacency matrices and networkx graphs are accepted too."


def _find_adjacent_pairs(adjacency):
    """Return the pairs of nodes that a sparse adjacency matrix joins, sorted, each pair once, smaller node first."""
    if sp.issparse(adjacency):
        adjacency = convert_to_csr(adjacency, "adjacency")
    adjacency = sp.coo_matrix(adjacency)
    if np.isnan(as_reals(adjacency.data, "adjacency")).any():
        raise ValueError("adjacency must not hold NaN: leave out the entries of pairs that are not joined.")
    n_nodes = adjacency.shape[0]
    used = (adjacency.data != 0) & (adjacency.row != adjacency.col)
    low = np.minimum(adjacency.row, adjacency.col)[used].astype(np.int64)
    high = np.maximum(adjacency.row, adjacency.col)[used].astype(np.int64)
    key = np.unique(low * n_nodes + high)
    return np.stack((key // max(n_nodes, 1), key % max(n_nodes, 1)), axis=1).astype(np.int32)


def _convert_networkx_edges(graph, n_nodes):
    names = list(graph.nodes)
    if len(names) != n_nodes:
        raise ValueError(f"edges is a networkx graph of {len(names)} nodes, but n_nodes is {n_nodes}.")
    # The nodes of region adjacency graphs are integers, but need not be listed in ascending order.
    if all(isinstance(name, int | np.integer) for name in names):
        names.sort()
    row = {name: s for s, name in enumerate(names)}
    pairs = np.array([(row[i], row[j]) for i, j, *_ in graph.edges], dtype=np.int32).reshape(-1, 2)
    _, first, count = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True, return_counts=True)
    if len(first) < len(pairs):
        i, j = (names[s] for s in pairs[first[np.argmax(count)]])
        undirected = ".to_undirected()" if graph.is_directed() else ""
        raise ValueError(
            f"edges is a networkx graph that joins {i!r} and {j!r} more than once: pass "
            f"networkx.Graph(graph{undirected}), which joins them once."
        )
    return pairs


def _as_shape(shape):
    if not np.iterable(shape):
        raise ValueError(f"shape must be a sequence of lengths, got {shape!r}.")
    return tuple(as_integer(length, "each length of shape") for length in shape)


def _check_edges(n_nodes: int, edges: np.ndarray) -> None:
    _check_n_edges(len(edges))
    outside = ((edges < 0) | (edges >= n_nodes)).any(axis=1)
    if outside.any():
        e = int(np.argmax(outside))
        raise ValueError(f"edges[{e}] is {edges[e].tolist()}, but the nodes are numbered 0 to {n_nodes - 1}.")
    loops = edges[:, 0] == edges[:, 1]
    if loops.any():
        e = int(np.argmax(loops))
        raise ValueError(f"edges[{e}] joins node {edges[e, 0]} to itself.")
    low, high = np.sort(edges, axis=1).T
    key = low * n_nodes + high
    first = np.unique(key, return_index=True)[1]
    if len(first) < len(key):
        e = int(np.setdiff1d(np.arange(len(key)), first)[0])
        raise ValueError(f"edges[{e}] joins nodes {edges[e].tolist()} a second time: list each undirected edge once.")


def _check_n_edges(n_edges: int) -> None:
    if n_edges > _MAX_EDGES:
        raise ValueError(f"edges must hold at most {_MAX_EDGES} edges, got {n_edges}.")


def lattice_offsets(ndim: int, connectivity: int | ArrayLike = 1) -> np.ndarray:
    """Return the offsets of the neighbours of a node on a lattice, one offset of each opposite pair.

    Parameters
    ----------
    ndim : int
        Number of axes of the lattice.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Largest number of coordinates that may differ by one: 1 joins axis neighbours (4 in 2-D, 6 in 3-D), 2 adds
        diagonals (8 in 2-D, 18 in 3-D), 3 adds the corners of a cube (26 in 3-D). An array lists the offsets.

    Returns
    -------
    ndarray of shape (n_offsets, ndim)
        Offsets along the last axis come first. The first non-zero coordinate of each offset is positive.

    Examples
    --------
    >>> from sklearn_crf.graphs import lattice_offsets
    >>> lattice_offsets(2).tolist()
    [[0, 1], [1, 0]]
    >>> lattice_offsets(2, connectivity=2).tolist()
    [[0, 1], [1, 0], [1, 1], [1, -1]]
    """
    ndim = as_integer(ndim, "ndim", highest=_MAX_AXES)
    if not isinstance(connectivity, list | tuple) and np.ndim(connectivity) == 0:
        if not isinstance(connectivity, Integral) or not 1 <= int(connectivity) <= max(ndim, 2):
            kinds = "1 (neighbours along the axes), 2 (diagonal neighbours too)" + ", 3 (corners too)" * (ndim > 2)
            raise ValueError(f"connectivity must be {kinds}, or an array of offsets, got {connectivity!r}.")
        return _drop_opposites(_list_offsets(ndim, min(int(connectivity), ndim)))
    try:
        offsets = np.asanyarray(connectivity)
    except ValueError as error:
        raise ValueError(f"connectivity given as offsets needs rows of equal length, got {connectivity!r}.") from error
    if offsets.ndim != 2 or offsets.shape[1] != ndim:
        raise ValueError(f"connectivity given as offsets must have shape (n_offsets, {ndim}), got {offsets.shape}.")
    offsets = as_integers(offsets, "connectivity given as offsets", lowest=-MAX_INT32, dtype=np.int64)
    if not np.all(np.any(offsets != 0, axis=1)):
        raise ValueError("connectivity given as offsets must have no row that is all zero.")
    return _drop_opposites(offsets)


def _list_offsets(ndim, connectivity):
    """Return all offsets with at most ``connectivity`` non-zero entries, 1 or -1, sorted by the number of such entries.

    Among offsets with equally many non-zero entries, 0 comes before 1, and 1 before -1.
    """
    n_offsets = sum(comb(ndim, n_moves) * 2**n_moves for n_moves in range(1, connectivity + 1))
    if n_offsets > _tuning.MAX_OFFSETS:
        raise ValueError(
            f"connectivity={connectivity} on a lattice of {ndim} axes has {n_offsets} offsets, more than "
            f"{_tuning.MAX_OFFSETS}: give the offsets that are needed."
        )
    steps = []
    for n_moves in range(1, connectivity + 1):
        moves = product(combinations(range(ndim), n_moves), product((1, -1), repeat=n_moves))
        rows = np.zeros((comb(ndim, n_moves) * 2**n_moves, ndim), dtype=np.int64)
        for row, (axes, signs) in zip(rows, moves, strict=True):
            row[list(axes)] = signs
        steps += sorted(rows.tolist(), key=lambda step: [move % 3 for move in step])
    return np.array(steps, dtype=np.int64).reshape(len(steps), ndim)


def _drop_opposites(offsets: np.ndarray) -> np.ndarray:
    kept: dict[tuple[int, ...], None] = {}
    for offset in offsets.tolist():
        leading = next(step for step in offset if step)
        kept.setdefault(tuple(offset) if leading > 0 else tuple(-step for step in offset))
    return np.array(list(kept), dtype=np.int64).reshape(len(kept), offsets.shape[1])


def _count_lattice_edges(shape, offset):
    return prod(max(length - abs(int(step)), 0) for length, step in zip(shape, offset, strict=True))


def lattice(shape: Sequence[int], connectivity: int | ArrayLike = 1) -> Graph:
    """Build a regular lattice: a chain (T,), an image (H, W) or a volume (D, H, W).

    Nodes are numbered in C order. Edges go from x to x + offset. Edges are grouped by offset, and within a group in C
    order of their first node.

    Parameters
    ----------
    shape : tuple of int
        Lengths of the axes; ``()`` is one isolated node.
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        As in :func:`lattice_offsets`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> from sklearn_crf.graphs import lattice
    >>> lattice((3, 4))
    Graph(n_nodes=12, n_edges=17, shape=(3, 4))
    >>> lattice((3, 4), connectivity=2).n_edges
    29
    >>> lattice((3,)).edges.tolist()
    [[0, 1], [1, 2]]
    """
    shape = _as_shape(shape)
    n_nodes = as_integer(prod(shape), "the number of nodes of shape")
    offsets = lattice_offsets(len(shape), connectivity) if shape else np.zeros((0, 0), dtype=np.int64)
    _check_n_edges(sum(_count_lattice_edges(shape, offset) for offset in offsets))
    return build_trusted_graph(n_nodes, None, shape, offsets)


def _build_lattice_edges(shape, offsets):
    """Return the edges of a lattice, grouped by offset."""
    counts = [_count_lattice_edges(shape, offset) for offset in offsets]
    index = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    edges = np.empty((sum(counts), 2), dtype=np.int32)
    start = 0
    for offset, count in zip(offsets, counts, strict=True):
        if count:
            tail = tuple(
                slice(max(-step, 0), length - max(step, 0)) for step, length in zip(offset, shape, strict=True)
            )
            head = tuple(slice(max(step, 0), length + min(step, 0)) for step, length in zip(offset, shape, strict=True))
            edges[start : start + count, 0] = index[tail].ravel()
            edges[start : start + count, 1] = index[head].ravel()
        start += count
    return edges


def from_adjacency(adjacency: Any) -> Graph:
    """Build a graph from the non-zero entries of a sparse adjacency matrix, ignoring its diagonal.

    Parameters
    ----------
    adjacency : sparse matrix or array of shape (N, N)
        For instance the result of ``sklearn.feature_extraction.image.grid_to_graph`` or ``kneighbors_graph``. Nodes i
        and j are joined by one edge if entry (i, j), entry (j, i) or both are non-zero.

    Returns
    -------
    Graph
        The edges go from the smaller to the larger node and are sorted.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sklearn_crf.graphs import from_adjacency
    >>> from_adjacency(sp.csr_matrix([[0, 1, 1], [1, 0, 0], [1, 0, 0]]))
    Graph(n_nodes=3, n_edges=2)
    """
    adjacency = adjacency if sp.issparse(adjacency) else sp.coo_matrix(as_reals(adjacency, "adjacency"))
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"adjacency must be square, got shape {adjacency.shape}.")
    n_nodes = as_integer(adjacency.shape[0], "the number of rows of adjacency")
    return build_trusted_graph(n_nodes, _find_adjacent_pairs(adjacency))


def build_disjoint_union(graphs: Iterable[Graph]) -> Graph:
    """Join graphs into one graph, which contains the nodes and edges of all given graphs, one graph after the other."""
    graphs = list(graphs)
    if len(graphs) == 1:
        return graphs[0]
    sizes = np.array([graph.n_nodes for graph in graphs], dtype=np.int64)
    starts = offsets_from_lengths(sizes)
    as_integer(starts[-1], "the number of nodes of all graphs")
    _check_n_edges(sum(graph.n_edges for graph in graphs))
    if any(graph.n_edges for graph in graphs):
        edges = np.concatenate([g.edges + np.int32(s) for g, s in zip(graphs, starts[:-1], strict=True)])
    else:
        edges = np.zeros((0, 2), dtype=np.int32)
    union = build_trusted_graph(int(starts[-1]), edges)
    union._parts = tuple(graphs)
    return union
