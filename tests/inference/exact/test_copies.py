"""Marginals of copies of forests and of dense graphs, compared with messages, elimination and enumeration."""

import numpy as np
import pytest
from model_strategies import TOPOLOGIES
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, build_disjoint_union
from sklearn_crf.inference import BruteForce, JunctionTree, TreeInference
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.inference.exact._copies import (
    compute_forest_marginals,
    compute_forest_node_marginals,
    enumerate_copy_marginals,
)
from sklearn_crf.models import PairwiseModel, models_of_parts

FORESTS = ("chain", "tree", "disconnected_forest")


def model_of_copies(name, n_copies, tied=False, dtype=np.float64, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    part = TOPOLOGIES[name](rng)
    kind = rng.integers(2, size=part.n_edges) if tied else np.arange(part.n_edges)
    tables = spread * rng.normal(size=(kind.max() + 1, 2, 2))
    unary = spread * rng.normal(size=(n_copies * part.n_nodes, 2))
    graph = build_disjoint_union([part] * n_copies)
    kinds = np.tile(kind, n_copies).astype(np.int32)
    return PairwiseModel(graph, unary.astype(dtype), tables.astype(dtype), kinds)


def without_parts(model):
    """Return the model on a graph that does not record its parts."""
    graph = Graph(model.graph.n_nodes, model.graph.edges)
    return PairwiseModel(graph, model.unary, model.tables, model.edge_type)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n_copies", [2, 31, 32, 33, 70])
@pytest.mark.parametrize("name", FORESTS)
def test_marginals_are_those_of_messages(name, n_copies, tied, dtype):
    model = model_of_copies(name, n_copies, tied, dtype)
    found, expected = compute_forest_marginals(model), TreeInference().marginals(without_parts(model))
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert found.unary.dtype == dtype
    assert_allclose(found.unary, expected.unary, atol=tolerance)
    assert_allclose(found.tables, expected.tables, atol=tolerance * n_copies)
    assert_allclose(found.log_z, expected.log_z, rtol=tolerance)
    component = model.graph.component
    assert_allclose(
        np.bincount(component, found.log_z_terms), np.bincount(component, expected.log_z_terms), atol=10 * tolerance
    )
    assert_array_equal(compute_forest_node_marginals(model), found.unary)
    assert_array_equal(TreeInference().node_marginals(model), found.unary)


@pytest.mark.parametrize("name", FORESTS)
def test_marginals_are_those_of_all_labelings(name):
    model = model_of_copies(name, 3, spread=2.0)
    found = compute_forest_marginals(model)
    parts = [BruteForce(2**20).marginals(part) for part in models_of_parts(model)]
    assert_allclose(found.unary, np.concatenate([part.unary for part in parts]), atol=1e-12)
    assert_allclose(found.tables, sum(part.tables for part in parts), atol=1e-12)
    assert_allclose(found.log_z, sum(part.log_z for part in parts), rtol=1e-12)


def test_a_copy_has_the_same_bits_wherever_it_is():
    model = model_of_copies("tree", 71)
    n_nodes = model.graph.parts[0].n_nodes
    turned = np.roll(model.unary, 5 * n_nodes, axis=0)
    moved = PairwiseModel(model.graph, turned, model.tables, model.edge_type)
    found = compute_forest_node_marginals(model)
    assert_array_equal(np.roll(found, 5 * n_nodes, axis=0), compute_forest_node_marginals(moved))


@pytest.mark.parametrize("change", ["far", "forbidden", "pairs_far", "pairs_forbidden"])
def test_scores_that_range_widely_are_left_to_messages(change):
    model = model_of_copies("tree", 40)
    unary, tables = model.unary.copy(), model.tables.copy()
    if change.startswith("pairs"):
        tables[0, 0, 0, 1] = -np.inf if change == "pairs_forbidden" else -700.0
    else:
        unary[77, 1] = -np.inf if change == "forbidden" else 5000.0
    model = PairwiseModel(model.graph, unary, tables, model.edge_type)
    assert compute_forest_node_marginals(model) is None
    assert compute_forest_marginals(model) is None
    found, expected = TreeInference().marginals(model), TreeInference().marginals(without_parts(model))
    assert_array_equal(found.unary, expected.unary)
    assert found.log_z == expected.log_z


def test_odds_near_the_limit_stay_in_range():
    model = model_of_copies("chain", 2, spread=40.0)
    unary = model.unary.copy()
    unary[:, 0] = np.where(np.arange(len(unary)) % 2, 60.0, -60.0)
    model = PairwiseModel(model.graph, unary, model.tables, model.edge_type)
    found, expected = TreeInference().marginals(model), TreeInference().marginals(without_parts(model))
    assert_allclose(found.unary, expected.unary, atol=1e-12)
    assert_allclose(found.log_z, expected.log_z, rtol=1e-12)


def test_other_models_are_not_taken():
    model = model_of_copies("tree", 3)
    rng = np.random.default_rng(0)
    other = TOPOLOGIES["chain"](rng)
    mixed = build_disjoint_union([model.graph.parts[0], other])
    assert mixed.copied_part is None
    assert model.graph.copied_part is model.graph.parts[0]
    assert model.graph.parts[0].copied_part is None
    kinds = model.edge_type.copy()
    kinds[0], kinds[1] = kinds[1], kinds[0]
    assert compute_forest_node_marginals(PairwiseModel(model.graph, model.unary, model.tables, kinds)) is None
    weighted = PairwiseModel(model.graph, model.unary, model.tables, model.edge_type, np.ones(model.graph.n_edges))
    assert compute_forest_node_marginals(weighted) is None
    single = build_disjoint_union([Graph(1, np.zeros((0, 2), dtype=np.int32))] * 3)
    assert compute_forest_node_marginals(PairwiseModel(single, np.zeros((3, 2)), np.zeros((1, 2, 2)))) is None


def model_of_dense_copies(n_nodes, n_states, n_copies, dtype=np.float64, seed=0):
    """Return a model of copies of a graph; edges of three types and of either direction join most pairs of nodes."""
    rng = np.random.default_rng(seed)
    pairs = [[i, j] for i in range(n_nodes) for j in range(i) if rng.random() < 0.8] + [[n_nodes - 1, n_nodes]]
    part = Graph(n_nodes + 1, [pair[:: rng.choice([-1, 1])] for pair in pairs])
    kind = rng.integers(3, size=part.n_edges).astype(np.int32)
    unary = 2 * rng.normal(size=(n_copies * part.n_nodes, n_states))
    unary[1, 0] = -np.inf
    tables = rng.normal(size=(3, n_states, n_states))
    graph = build_disjoint_union([part] * n_copies)
    return PairwiseModel(graph, unary.astype(dtype), tables.astype(dtype), np.tile(kind, n_copies))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_nodes", "n_states", "n_copies"), [(5, 2, 40), (3, 4, 7), (8, 2, 3)])
def test_copies_of_dense_graphs_are_enumerated(n_nodes, n_states, n_copies, dtype, monkeypatch):
    model = model_of_dense_copies(n_nodes, n_states, n_copies, dtype)
    monkeypatch.setattr(_tuning, "MOST_ENUMERATED", 2**10)  # in several parts
    found = enumerate_copy_marginals(model, lambda graph, n_states: np.inf)
    parts = [BruteForce(2**20).marginals(part) for part in models_of_parts(model)]
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert found.unary.dtype == dtype
    assert_allclose(found.unary, np.concatenate([part.unary for part in parts]), atol=tolerance)
    assert_allclose(found.tables, sum(part.tables for part in parts), atol=tolerance * n_copies)
    terms = np.bincount(model.graph.component, found.log_z_terms)
    assert_allclose(terms, [part.log_z for part in parts], rtol=tolerance)


def test_elimination_of_dense_copies_enumerates_them_where_that_takes_less():
    model = model_of_dense_copies(9, 2, 30)
    found, expected = JunctionTree().marginals(model), JunctionTree().marginals(without_parts(model))
    assert (found.n_iter, expected.n_iter) == (1, 0)  # elimination has no iterations
    assert_allclose(found.unary, expected.unary, atol=1e-12)
    assert_allclose(found.tables, expected.tables, atol=1e-8)
    assert enumerate_copy_marginals(model, lambda graph, n_states: 1.0) is None


def test_what_follows_from_the_graph_is_worked_out_once(monkeypatch):
    model, planned = model_of_dense_copies(9, 2, 30), []
    buckets = JunctionTree._build_buckets
    monkeypatch.setattr(JunctionTree, "_build_buckets", lambda *how: planned.append(how) or buckets(*how))
    first, second = JunctionTree().marginals(model), JunctionTree().marginals(model)
    assert len(planned) == 1
    assert_array_equal(first.unary, second.unary)


@pytest.mark.parametrize("spread", [-np.inf, 1e3])
def test_dense_copies_whose_tables_range_widely_are_eliminated(spread):
    model = model_of_dense_copies(6, 2, 5)
    tables = model.tables.copy()
    tables[1, 0, 0, 1] = spread
    model = PairwiseModel(model.graph, model.unary, tables, model.edge_type)
    assert enumerate_copy_marginals(model, lambda graph, n_states: np.inf) is None
    found, expected = JunctionTree().marginals(model), JunctionTree().marginals(without_parts(model))
    assert_allclose(found.unary, expected.unary, atol=1e-12)
