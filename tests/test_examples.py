"""Input that Example accepts, stores and rejects."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf import Example
from sklearn_crf.graphs import Graph, lattice

X = np.arange(6.0).reshape(3, 2)
EDGES = [[0, 1], [1, 2]]


def test_parts():
    example = Example(X, EDGES, edge_features=[[1.0], [2.0]], node_type=[0, 1, 0], edge_type=[0, 2], n_states=[2, 3, 1])
    assert example.n_nodes == 3
    assert example.shape == (3, 2)
    assert example.edges.tolist() == EDGES
    assert example.edge_features.tolist() == [[1], [2]]
    for part in (example.node_type, example.edge_type, example.n_states):
        assert part.dtype == np.int32
    assert repr(example) == "Example(n_nodes=3, n_features=2, n_edges=2)"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csr_array, sp.coo_matrix])
def test_precision_and_sparsity_stay(dtype, make):
    example = Example(make(X.astype(dtype)), EDGES)
    assert example.node_features.dtype == dtype
    assert sp.issparse(example.node_features) == sp.issparse(make(X))
    assert not sp.issparse(example.node_features) or example.node_features.format == "csr"


def test_other_numbers_become_float64():
    assert Example(X.astype(np.uint8), EDGES, edge_features=[1, 2]).node_features.dtype == np.float64
    assert Example(X, EDGES, edge_features=[1, 2]).edge_features.dtype == np.float64


def test_one_number_per_edge_is_one_feature():
    assert Example(X, EDGES, edge_features=[1.0, 2.0]).edge_features.shape == (2, 1)


def test_takes_a_graph_as_it_is():
    graph = lattice((3,))
    assert Example(X, graph).graph is graph


@pytest.mark.parametrize("edges", [[], np.zeros((0, 2), dtype=int), Graph(3, [])])
def test_without_edges(edges):
    example = Example(X, edges, edge_features=np.zeros((0, 4)))
    assert example.graph.n_edges == 0
    assert example.edge_features.shape == (0, 4)


def test_read_only_arrays_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(Example(mapped, EDGES).node_features, mapped)


def test_pickle():
    again = pickle.loads(pickle.dumps(Example(X, lattice((3,)), node_type=[0, 0, 1])))
    assert np.array_equal(again.node_features, X)
    assert again.edges.tolist() == EDGES
    assert again.node_type.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"node_features": np.zeros(3)}, "node_features must have shape"),
        ({"node_features": np.zeros((3, 2, 2))}, "node_features must have shape"),
        ({"node_features": [["a", "b"]] * 3}, "node_features must hold numbers"),
        ({"node_features": [[1, 2], [3]]}, "node_features"),
        ({"node_features": np.zeros((3, 2), dtype=complex)}, "node_features must hold numbers"),
        ({"edges": None}, "pass an empty list"),
        ({"edges": [[0, 3]]}, r"edges\[0\]"),
        ({"edges": lattice((4,))}, "edges is a graph of 4 nodes"),
        ({"edge_features": np.zeros((3, 1))}, r"edge_features must have shape \(2, n_edge_features\)"),
        ({"edge_features": [["a"], ["b"]]}, "edge_features must hold numbers"),
        ({"node_type": [0, 1]}, r"node_type must have shape \(3,\)"),
        ({"node_type": [0, -1, 0]}, "node_type must be between 0 and 2147483647, found values from -1 to 0"),
        ({"edge_type": [0.0, 1.0]}, "edge_type must be integers"),
        ({"n_states": [0, 1, 1]}, "n_states must be between 1 and 2147483647, found values from 0 to 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_parts(fields, message):
    with pytest.raises(ValueError, match=message):
        Example(**({"node_features": X, "edges": EDGES} | fields))
