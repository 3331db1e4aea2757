"""Pickled graphs, models and examples with altered fields: constructors check them again when they are loaded."""

import copy
import pickle
from collections.abc import Mapping

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from saved_objects import FACTORS, OBJECTS, PAIRWISE, TRIANGLE

from sklearn_crf import Graph
from sklearn_crf.graphs import SpanningTrees, lattice
from sklearn_crf.inference import ICM, ConjugateGradient, DenseMeanField, JunctionTree
from sklearn_crf.models import exactly_one


def same(first, second):
    """Return whether two objects are equal, array by array."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if sp.issparse(first):
        return (first != second).nnz == 0
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if type(first).__module__.startswith("sklearn_crf"):
        states = first.__getstate__(), second.__getstate__()
        return all(not name.startswith("__") and same(states[0][name], states[1][name]) for name in states[0])
    return first == second


@pytest.mark.parametrize("name", OBJECTS)
def test_whole_objects_are_loaded(name):
    whole = OBJECTS[name]
    for loaded in (pickle.loads(pickle.dumps(whole)), copy.copy(whole), copy.deepcopy(whole)):
        assert type(loaded) is type(whole)
        assert same(whole, loaded)


def test_edges_of_lattices_are_not_saved():
    graph = lattice((200, 200))
    assert graph.edges.shape == (79600, 2)
    saved = pickle.dumps(graph)
    assert len(saved) < 1000
    assert_array_equal(pickle.loads(saved).edges, graph.edges)


def test_saved_models_give_the_same_results():
    models = (JunctionTree(), PAIRWISE), (ICM(), PAIRWISE), (JunctionTree(), FACTORS)
    for algorithm, model in models:
        again = pickle.loads(pickle.dumps(model))
        assert_array_equal(algorithm.map(again).labels, algorithm.map(model).labels)
    gaussian, dense = OBJECTS["Gaussian"], OBJECTS["dense"]
    solved = [ConjugateGradient().solve(model, model.h).x for model in (gaussian, pickle.loads(pickle.dumps(gaussian)))]
    assert_array_equal(*solved)
    marginals = [DenseMeanField(3).marginals(model).unary for model in (dense, pickle.loads(pickle.dumps(dense)))]
    assert_array_equal(*marginals)


# These values belong to the object's own attributes.
DAMAGED = {
    "an edge beyond": ("graph", {"edges": np.array([[0, 9]], np.int32)}),
    "a negative edge": ("graph", {"edges": np.array([[0, -1]], np.int32)}),
    "a loop": ("graph", {"edges": np.array([[1, 1]], np.int32)}),
    "a repeated edge": ("graph", {"edges": np.array([[0, 1], [1, 0]], np.int32)}),
    "edges of reals": ("graph", {"edges": np.array([[0.5, 1]])}),
    "edges of three": ("graph", {"edges": np.zeros((4, 3), np.int32)}),
    "fewer nodes": ("graph", {"n_nodes": 2}),
    "negative nodes": ("graph", {"n_nodes": -1}),
    "no number of nodes": ("graph", {"n_nodes": None}),
    "another shape": ("graph", {"shape": (3, 3)}),
    "offsets without a shape": ("graph", {"offsets": np.array([[0, 1]])}),
    "a lattice of more nodes": ("lattice", {"n_nodes": 7}),
    "a lattice of another shape": ("lattice", {"shape": (2, 3, 1)}),
    "no shape": ("lattice", {"shape": None}),
    "zero offsets": ("lattice", {"offsets": np.zeros((4, 2), int)}),
    "the same offset twice": ("lattice", {"offsets": np.ones((4, 2), int)}),
    "an offset and its opposite": ("lattice", {"offsets": np.array([[0, 1], [0, -1], [1, 0], [1, 1]])}),
    "an offset of reals": ("lattice", {"offsets": np.full((4, 2), 0.5)}),
    "a tree with a cycle": ("trees", {"trees": np.ones((1, 3), bool), "weights": np.ones(1)}),
    "no tree": ("trees", {"trees": np.ones((0, 3), bool)}),
    "negative weights of trees": ("trees", {"weights": np.array([2.0, -1.0])}),
    "an edge type beyond": ("pairwise", {"edge_type": np.full(11, 4, np.int32)}),
    "a negative edge type": ("pairwise", {"edge_type": np.full(11, -1, np.int32)}),
    "fewer edge types": ("pairwise", {"edge_type": np.zeros(3, np.int32)}),
    "fewer unary scores": ("pairwise", {"unary": np.zeros((5, 3))}),
    "NaN in unary": ("pairwise", {"unary": np.full((6, 3), np.nan)}),
    "unary of text": ("pairwise", {"unary": np.full((6, 3), "x")}),
    "smaller tables": ("pairwise", {"tables": np.zeros((4, 2, 2, 2))}),
    "infinite tables": ("pairwise", {"tables": np.full((4, 2, 3, 3), np.inf)}),
    "fewer weights": ("pairwise", {"edge_weight": np.ones((10, 2))}),
    "no weights": ("pairwise", {"edge_weight": None}),
    "more states": ("pairwise", {"n_states": np.full(6, 9)}),
    "another graph": ("pairwise", {"graph": TRIANGLE}),
    "no graph": ("pairwise", {"graph": None}),
    "a node beyond": ("factors", {"scope": np.full(FACTORS.scope.shape, 99, np.int32)}),
    "a table beyond": ("factors", {"table_id": np.full(3, 9, np.int32)}),
    "descending pointers": ("factors", {"scope_ptr": FACTORS.scope_ptr[::-1].copy()}),
    "fewer scores": ("factors", {"log_table": FACTORS.log_table[:-1]}),
    "another kind": ("factors", {"table_kind": np.full(3, 7, np.int8)}),
    "a cell beyond": ("factors", {"table_cell": np.full(FACTORS.log_table.shape, 10**6)}),
    "no cells": ("factors", {"table_cell": None}),
    "a negative state": ("factors", {"table_state": np.full(3, -1, np.int32)}),
    "no states": ("factors", {"n_states": np.zeros(3, np.int32)}),
    "fewer values": ("Gaussian", {"h": np.zeros((5, 1))}),
    "NaN in h": ("Gaussian", {"h": np.full((6, 1), np.nan)}),
    "fewer blocks": ("Gaussian", {"blocks": np.zeros((3, 1, 1))}),
    "blocks of two": ("Gaussian", {"blocks": np.zeros((4, 2, 2))}),
    "a diagonal of two": ("Gaussian", {"diagonal": np.zeros((6, 2, 2))}),
    "another operator": ("Gaussian", {"precision_operator": np.eye(3)}),
    "fewer nodes of a dense field": ("dense", {"unary": np.zeros((4, 2))}),
    "no filter": ("dense", {"filters": (None,)}),
    "another compatibility": ("dense", {"compatibility": np.zeros((2, 2))}),
    "a vertex beyond": ("filter", {"vertex": np.full((7, 4), 10**6, np.int32)}),
    "a negative vertex": ("filter", {"vertex": np.full((7, 4), -1, np.int32)}),
    "fewer vertices": ("filter", {"n_vertices": 1}),
    "a neighbour beyond": ("filter", {"_neighbors": np.full((4, 28, 2), 10**6, np.int32)}),
    "NaN in weights": ("filter", {"weight": np.full((7, 4), np.nan)}),
    "more points": ("filter", {"n_points": 100}),
    "more axes": ("filter", {"n_axes": 5}),
    "fewer node features": ("example", {"node_features": np.zeros((3, 2))}),
    "features of text": ("example", {"node_features": np.full((4, 2), "x")}),
    "fewer edge features": ("example", {"edge_features": np.ones((2, 1))}),
    "fewer node types": ("example", {"node_type": np.zeros(2, np.int32)}),
    "a negative node type": ("example", {"node_type": np.full(4, -1, np.int32)}),
    "fewer types of edges": ("example", {"_edge_type": np.zeros(2, np.int32)}),
    "types of a lattice": ("example", {"_edge_type": "offset"}),
    "zero states": ("example", {"n_states": np.zeros(4, np.int32)}),
    "a factor beyond": ("example", {"factors": {"triple": np.array([[0, 1, 9]])}}),
    "a factor with a node twice": ("example", {"factors": {"triple": np.array([[0, 1, 1]])}}),
    "a list of factors": ("example", {"factors": [1]}),
    "a fixed factor beyond": ("example", {"fixed_factors": [((0, 9), exactly_one())]}),
    "graph of an example": ("example", {"graph": lattice((3,))}),
}


def damaged(name, changes):
    found = pickle.loads(pickle.dumps(OBJECTS[name]))
    if isinstance(found, Graph) and "edges" not in changes:
        found.edges  # noqa: B018
    vars(found).update(changes)
    return found


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_objects_are_not_loaded(kind):
    found = damaged(*DAMAGED[kind])
    with pytest.raises(ValueError, match=f"the saved {type(found).__name__} is damaged: "):
        pickle.loads(pickle.dumps(found))


@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in ("node", "sparse", "float32")])
def test_objects_that_lack_a_field_are_not_loaded(name):
    whole = OBJECTS[name]
    lacking = type(whole).__new__(type(whole))
    with pytest.raises(ValueError, match="is damaged"):
        lacking.__setstate__({})


@pytest.mark.parametrize("state", [{"n_nodes": 3, "edges": [[0, 2]], "shape": (3,), "offsets": [[1]]}])
def test_edges_that_contradict_offsets_are_not_loaded(state):
    with pytest.raises(ValueError, match=r"the saved Graph is damaged: edges must equal the edges of lattice"):
        Graph.__new__(Graph).__setstate__(state)


def test_skops_does_not_load_damaged_objects():
    io = pytest.importorskip("skops.io")
    for name in ("graph", "pairwise", "factors", "Gaussian", "example"):
        whole = io.dumps(OBJECTS[name])
        trusted = io.get_untrusted_types(data=whole)
        assert same(OBJECTS[name], io.loads(whole, trusted=trusted))
    for kind in ("an edge beyond", "an edge type beyond", "a node beyond", "fewer blocks", "a negative node type"):
        found = damaged(*DAMAGED[kind])
        saved = io.dumps(found)
        with pytest.raises(ValueError, match="is damaged"):
            io.loads(saved, trusted=io.get_untrusted_types(data=saved))


def test_types_of_saved_trees():
    trees = OBJECTS["trees"]
    assert isinstance(pickle.loads(pickle.dumps(trees)), SpanningTrees)
