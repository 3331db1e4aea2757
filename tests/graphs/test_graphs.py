"""Topologies, against networkx, scipy and plain enumeration."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TOPOLOGIES, cycle, random_tree
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.image import grid_to_graph
from sklearn.neighbors import kneighbors_graph

from sklearn_crf.graphs import Graph, build_disjoint_union, from_adjacency, lattice, lattice_offsets


@st.composite
def graphs(draw, max_nodes=12):
    n_nodes = draw(st.integers(1, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    low, high = np.triu_indices(n_nodes, 1)
    chosen = rng.random(len(low)) < draw(st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]))
    edges = np.stack((low, high), axis=1)[chosen]
    rng.shuffle(edges)
    return Graph(n_nodes, np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1]))


def to_networkx(graph):
    reference = nx.Graph()
    reference.add_nodes_from(range(graph.n_nodes))
    reference.add_edges_from(graph.edges.tolist())
    return reference


def pairs(edges):
    """Return undirected edges as a set that ignores order and direction."""
    return {frozenset(edge) for edge in np.asarray(edges).tolist()}


# -- Derived structure ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_incidence_is_the_edges_seen_from_their_ends(graph):
    ptr, neighbor, half_edge, reverse = graph.incidence
    assert (ptr[0], ptr[-1]) == (0, 2 * graph.n_edges)
    owner = np.repeat(np.arange(graph.n_nodes), np.diff(ptr))
    assert sorted(half_edge) == list(range(2 * graph.n_edges))
    assert np.array_equal(graph.edges.ravel()[half_edge], owner)
    assert np.array_equal(graph.edges.ravel()[half_edge ^ 1], neighbor)
    assert np.array_equal(reverse[reverse], np.arange(2 * graph.n_edges))
    assert np.array_equal(half_edge[reverse], half_edge ^ 1)
    degree = [to_networkx(graph).degree[s] for s in range(graph.n_nodes)]
    assert graph.degree.tolist() == degree


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_components_and_forest(graph):
    reference = to_networkx(graph)
    assert graph.is_forest == nx.is_forest(reference)
    assert graph.n_components == nx.number_connected_components(reference)
    numbered = sorted(nx.connected_components(reference), key=min)
    assert [set(np.flatnonzero(graph.component == c)) for c in range(graph.n_components)] == numbered


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_traversal_puts_parents_first_and_spans(graph):
    ptr, neighbor, _, _ = graph.incidence
    order, parent_slot, position = graph.forest
    assert sorted(order) == list(range(graph.n_nodes))
    np.testing.assert_array_equal(position, np.argsort(order))
    assert graph.largest_degree == max(graph.degree, default=0)
    children = np.flatnonzero(parent_slot >= 0)
    parent = neighbor[parent_slot[children]]
    assert np.all((ptr[children] <= parent_slot[children]) & (parent_slot[children] < ptr[children + 1]))
    assert np.all(position[parent] < position[children])
    assert len(children) == graph.n_nodes - graph.n_components


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_colouring_separates_neighbours(graph):
    nodes, ptr = graph.colouring
    assert sorted(nodes) == list(range(graph.n_nodes))
    colour = np.empty(graph.n_nodes, dtype=int)
    for c, (start, stop) in enumerate(pairwise(ptr)):
        assert start < stop
        assert np.all(np.diff(nodes[start:stop]) > 0)
        colour[nodes[start:stop]] = c
    assert np.all(colour[graph.edges[:, 0]] != colour[graph.edges[:, 1]])
    assert len(ptr) - 1 <= graph.degree.max() + 1


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 2, 4)])
def test_axis_connected_lattices_take_two_colours(shape):
    graph = lattice(shape)
    parity = np.indices(shape).sum(axis=0).ravel() % 2
    nodes, ptr = graph.colouring
    assert np.array_equal(nodes, np.concatenate([np.flatnonzero(parity == c) for c in (0, 1)]))
    assert len(ptr) == 3


def test_long_chain_is_traversed():
    graph = lattice((200_000,))
    assert graph.is_forest
    assert np.array_equal(graph.forest.order, np.arange(200_000))


def test_no_nodes():
    graph = Graph(0, [])
    assert (graph.n_edges, graph.n_components, graph.is_forest) == (0, 0, True)
    assert len(graph.colouring.nodes) == 0
    assert graph.incidence.ptr.tolist() == [0]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_dtypes_and_read_only_edges(name):
    graph = TOPOLOGIES[name](np.random.default_rng(0))
    assert graph.edges.dtype == np.int32
    assert graph.incidence.ptr.dtype == np.int64
    for array in (*graph.incidence[1:], *graph.forest, graph.component, graph.colouring.nodes):
        assert array.dtype == np.int32
    if graph.n_edges:
        with pytest.raises(ValueError, match="read-only"):
            graph.edges[0, 0] = 1


def test_accepts_read_only_edges():
    edges = np.array([[0, 1], [1, 2]], dtype=np.int32)
    edges.flags.writeable = False
    assert Graph(3, edges).is_forest


def test_pickled_unions_know_their_parts():
    part, other = Graph(3, [[0, 1], [1, 2]]), lattice((2, 2))
    union = pickle.loads(pickle.dumps(build_disjoint_union([part, part, other])))
    assert [graph.n_nodes for graph in union.parts] == [3, 3, 4]
    assert union.parts[0] is union.parts[1]
    assert union.parts[2].offsets is not None
    assert np.array_equal(union.edges, build_disjoint_union([part, part, other]).edges)
    assert pickle.loads(pickle.dumps(build_disjoint_union([part] * 5))).copied_part is not None
    with pytest.raises(ValueError, match="Graph is damaged: the parts of a union"):
        Graph(1, []).__setstate__({"_parts": [1]})


def test_pickle_leaves_out_what_is_derived():
    graph = lattice((20, 30), 2)
    plain = len(pickle.dumps(graph))
    assert graph.incidence is graph.incidence
    assert graph.colouring is graph.colouring
    assert not graph.is_forest
    again = pickle.loads(pickle.dumps(graph))
    assert len(pickle.dumps(graph)) == plain
    assert np.array_equal(again.edges, graph.edges)
    assert again.shape == graph.shape
    assert np.array_equal(again.lattice_edge_type, graph.lattice_edge_type)


# -- Lattices -------------------------------------------------------------------------------------


def neighbours_by_enumeration(shape, n_moves):
    """Return pairs of cells that differ by at most one in each coordinate and in at most `n_moves` coordinates."""
    cells = list(product(*(range(length) for length in shape)))
    number = {cell: s for s, cell in enumerate(cells)}
    found = set()
    for cell in cells:
        for step in product((-1, 0, 1), repeat=len(shape)):
            other = tuple(a + b for a, b in zip(cell, step, strict=True))
            if 1 <= np.abs(step).sum() <= n_moves and other in number:
                found.add(frozenset((number[cell], number[other])))
    return found


SHAPES = [(1,), (5,), (1, 4), (4, 1), (3, 4), (2, 3, 4), (1, 1, 1)]


@pytest.mark.parametrize(
    ("shape", "connectivity"), [(shape, c) for shape in SHAPES for c in (1, 2, 3) if c <= max(len(shape), 2)]
)
def test_lattice_joins_neighbours(shape, connectivity):
    graph = lattice(shape, connectivity)
    assert pairs(graph.edges) == neighbours_by_enumeration(shape, connectivity)
    assert len(pairs(graph.edges)) == graph.n_edges
    assert graph.shape == shape


@pytest.mark.parametrize("shape", [(4, 5, 1), (4, 5, 3)])
def test_lattice_equals_grid_to_graph(shape):
    reference = from_adjacency(grid_to_graph(*shape))
    ours = lattice(shape if shape[-1] > 1 else shape[:-1])
    assert pairs(ours.edges) == pairs(reference.edges)


@pytest.mark.parametrize(("ndim", "counts"), [(1, [1, 1]), (2, [2, 4]), (3, [3, 9, 13])])
def test_number_of_offsets(ndim, counts):
    assert [len(lattice_offsets(ndim, c + 1)) for c in range(len(counts))] == counts


def test_offsets_keep_one_of_each_pair_and_a_direction():
    offsets = lattice_offsets(2, [[0, -1], [0, 1], [2, 1], [-2, -1], [-1, 3]])
    assert offsets.tolist() == [[0, 1], [2, 1], [1, -3]]


def test_edges_lead_from_x_to_x_plus_offset_and_are_typed():
    shape = (4, 5)
    graph = lattice(shape, 2)
    cells = np.stack(np.unravel_index(graph.edges, shape), axis=-1)
    assert np.array_equal(cells[:, 1] - cells[:, 0], graph.offsets[graph.lattice_edge_type])
    for kind in range(len(graph.offsets)):
        tails = graph.edges[graph.lattice_edge_type == kind, 0]
        assert np.all(np.diff(tails) > 0)


def test_offsets_longer_than_the_lattice_give_no_edges():
    graph = lattice((3, 4), [[0, 4], [3, 0], [2, 3]])
    assert graph.edges.tolist() == [[0, 11]]
    assert graph.lattice_edge_type.tolist() == [2]


@pytest.mark.parametrize(
    "connectivity", [0, 3, 1.5, "4", None, [[0, 0]], [[0.5, 1]], [[1, 0, 0]], [1, 0], -1], ids=repr
)
def test_bad_connectivity(connectivity):
    with pytest.raises(ValueError, match="connectivity"):
        lattice((3, 4), connectivity)


def test_lattice_edge_type_needs_a_lattice():
    with pytest.raises(ValueError, match="lattice"):
        _ = cycle(4).lattice_edge_type


# -- Construction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 3]], r"edges\[0\] is \[0, 3\].*0 to 2"),
        ([[0, 1], [-1, 2]], r"edges\[1\]"),
        ([[0, 1], [2, 2]], r"edges\[1\] joins node 2 to itself"),
        ([[0, 1], [1, 2], [1, 0]], r"edges\[2\].*second time"),
        ([[0.0, 1.0]], "integers"),
        ([[0, 1, 2]], "shape"),
        ([0, 1], "shape"),
    ],
)
def test_bad_edges(edges, message):
    with pytest.raises(ValueError, match=message):
        Graph(3, edges)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2.7, []), "n_nodes must be an integer, got 2.7"),
        ((-1, []), "n_nodes must be between 0 and 2147483647"),
        ((2**33, [[0, 2**32 + 1]]), "n_nodes must be between 0 and 2147483647"),
        ((2, [[0, 2**32 + 1]]), r"edges\[0\] is \[0, 4294967297\]"),
        ((2, np.array([[0, 2**64 - 1]], dtype=np.uint64)), "edges must be between"),
        ((2, [[0, 1 + 0j]]), "edges must be integers"),
        ((4, [], (-2, -2)), "each length of shape must be between 0 and"),
        ((4, [], (2.5, 2)), "each length of shape must be an integer"),
        ((0, [], (2**32 // 2 - 1,) * 2), "has 4611686014132420609 nodes, but n_nodes is 0"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Graph(*arguments)


def test_lattices_too_large_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="number of nodes of shape must be between"):
        lattice((2**16, 2**16))
    with pytest.raises(ValueError, match="at most 1073741823 edges"):
        lattice((2**15, 2**15))
    with pytest.raises(ValueError, match=r"40 axes has .* offsets, more than"):
        lattice_offsets(40, connectivity=12)


def test_diagonals_of_many_axes_are_found_without_trying_all_steps():
    assert len(lattice_offsets(30, connectivity=2)) == 30 + 30 * 29
    assert lattice((1,) * 30, connectivity=2).n_edges == 0


def test_unions_too_large_are_refused():
    with pytest.raises(ValueError, match="number of nodes of all graphs must be between"):
        build_disjoint_union([Graph(2**30, []), Graph(2**30, [])])


@pytest.mark.parametrize("damage", ["indices", "indptr"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_damaged_adjacency_is_refused(form, damage):
    adjacency = sp.csr_matrix(np.ones((3, 3))).asformat(form)
    if form == "coo":
        adjacency.col[2] = 10**8
    else:
        getattr(adjacency, damage)[2] = 10**8
    with pytest.raises(ValueError, match="adjacency is a damaged sparse matrix"):
        from_adjacency(adjacency)


def test_bad_shape():
    with pytest.raises(ValueError, match="shape"):
        Graph(5, [], shape=(2, 3))
    with pytest.raises(ValueError, match="n_nodes"):
        Graph(-1, [])


@settings(max_examples=40, deadline=None)
@given(graphs(), st.sampled_from(["upper", "both", "lower"]))
def test_from_adjacency(graph, triangle):
    tails, heads = np.sort(graph.edges, axis=1).T
    adjacency = sp.csr_matrix((np.ones(graph.n_edges), (tails, heads)), shape=(graph.n_nodes,) * 2)
    adjacency = {"upper": adjacency, "lower": adjacency.T, "both": adjacency + adjacency.T}[triangle]
    found = from_adjacency(adjacency + sp.eye(graph.n_nodes))
    assert pairs(found.edges) == pairs(graph.edges)
    assert found.n_edges == graph.n_edges
    assert found.n_nodes == graph.n_nodes


def test_from_adjacency_drops_explicit_zeros_and_takes_any_format():
    matrix = sp.coo_matrix(([0.0, 1.0], ([0, 1], [1, 2])), shape=(3, 3))
    for given_matrix in (matrix, matrix.tocsc(), sp.csr_array(matrix), matrix.toarray()):
        assert from_adjacency(given_matrix).edges.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="square"):
        from_adjacency(np.zeros((2, 3)))


def test_from_kneighbors():
    adjacency = kneighbors_graph(np.random.default_rng(0).normal(size=(30, 2)), 3)
    graph = from_adjacency(adjacency)
    assert graph.n_components == connected_components(adjacency, directed=False)[0]
    assert pairs(graph.edges) == {frozenset(edge) for edge in zip(*adjacency.nonzero(), strict=True)}


@settings(max_examples=30, deadline=None)
@given(st.lists(graphs(max_nodes=5), min_size=1, max_size=4))
def test_disjoint_union(parts):
    union = build_disjoint_union(parts)
    reference = nx.disjoint_union_all([to_networkx(part) for part in parts])
    assert pairs(union.edges) == pairs(list(reference.edges))
    assert union.n_components == sum(part.n_components for part in parts)
    assert union.is_forest == all(part.is_forest for part in parts)


def test_random_trees_are_trees():
    graph = random_tree(9, np.random.default_rng(1))
    assert nx.is_tree(to_networkx(graph))


def test_forests_are_told_from_cycles_whatever_the_numbering():
    assert Graph(4, [(0, 1), (1, 2), (2, 3)]).is_forest
    assert Graph(4, [(3, 0), (3, 1), (3, 2)]).is_forest  # the last node has edges to three earlier ones
    assert Graph(0, []).is_forest
    assert not Graph(4, [(0, 3), (1, 3), (0, 1)]).is_forest
    assert not Graph(3, [(0, 1), (1, 2), (2, 0)]).is_forest


def test_what_is_kept_with_a_graph_is_bounded_and_made_once():
    graph, calls = Graph(3, [[0, 1]]), []

    def make(k):
        calls.append(k)
        return object()

    first = graph.keep("a", lambda: make(0))
    assert graph.keep("a", lambda: make(1)) is first
    assert calls == [0]
    for k in range(20):
        graph.keep(k, lambda k=k: make(k))
    assert len(graph._kept) == 8
    assert "_kept" not in pickle.loads(pickle.dumps(graph)).__getstate__()


def test_threads_keep_one_result():
    graph = Graph(3, [[0, 1]])
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda k: graph.keep(k % 2, object), range(200)))
    assert len({id(result) for result in results}) == 2


def test_no_axes_have_no_offsets():
    assert lattice_offsets(0, 1).shape == (0, 0)
