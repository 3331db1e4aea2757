"""Forms in which users give edges, and errors for edges that cannot be read."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from skimage.graph import RAG

from sklearn_crf import Example, Graph
from sklearn_crf.graphs import from_adjacency

EDGES = np.array([[0, 1], [1, 2], [1, 3], [2, 3]])


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.coo_array, sp.csc_matrix])
@pytest.mark.parametrize("symmetric", [False, True])
def test_sparse_adjacency(make, symmetric):
    adjacency = sp.coo_matrix((np.ones(4), EDGES.T), shape=(4, 4))
    graph = Graph(4, make(adjacency + adjacency.T if symmetric else adjacency))
    assert graph.edges.tolist() == EDGES.tolist()


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "adjacency must not hold NaN"), (1j, "adjacency must hold numbers, got complex128")]
)
def test_adjacency_that_says_nothing(value, message):
    for adjacency in (np.full((3, 3), value), sp.csr_array(np.full((3, 3), value))):
        with pytest.raises(ValueError, match=message):
            from_adjacency(adjacency)
    with pytest.raises(ValueError, match=message):
        Graph(3, sp.csr_array(np.full((3, 3), value)))


def test_columns_of_pairs():
    assert Graph(4, EDGES.T).edges.tolist() == EDGES.tolist()
    assert Graph(4, EDGES[:1].T.tolist()).edges.tolist() == EDGES[:1].tolist()


def test_two_rows_of_two_nodes_are_two_edges():
    assert Graph(4, [[0, 1], [2, 3]]).edges.tolist() == [[0, 1], [2, 3]]


def test_networkx_nodes_by_number_or_in_order():
    by_number = nx.Graph([(3, 2), (2, 1), (1, 0)])
    assert sorted(map(sorted, Graph(4, by_number).edges.tolist())) == [[0, 1], [1, 2], [2, 3]]
    by_name = nx.Graph([("b", "a"), ("a", "c")])
    assert Graph(3, by_name).edges.tolist() == [[0, 1], [1, 2]]
    lonely = nx.empty_graph(3)
    assert Graph(3, lonely).n_edges == 0


def test_region_adjacency_graph():
    regions = np.array([[1, 1, 3], [2, 2, 3]])
    graph = Graph(3, RAG(regions))
    assert {tuple(sorted(edge)) for edge in graph.edges.tolist()} >= {(0, 1), (0, 2), (1, 2)}
    assert Example(np.zeros((3, 2)), RAG(regions)).n_nodes == 3


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (np.zeros((4, 4), dtype=int), r"scipy.sparse.csr_array\(edges\)"),
        (np.zeros((5, 3), dtype=int), "Sparse adjacency matrices and networkx graphs are accepted too"),
        ([[0, 1], [2]], "rows of different lengths"),
        (sp.eye(5).tocsr(), r"shape \(5, 5\), but 4 nodes need \(4, 4\)"),
        (nx.path_graph(3), "a networkx graph of 3 nodes, but n_nodes is 4"),
        (nx.MultiGraph([(0, 1), (0, 1), (2, 3)]), "joins 0 and 1 more than once"),
    ],
)
def test_other_edges(edges, message):
    with pytest.raises(ValueError, match=message):
        Graph(4, edges)
