"""Local optima of single-node changes, for whole models and for some rows at a time."""

import numpy as np
import pytest

from sklearn_crf import Graph
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, AlphaExpansion
from sklearn_crf.inference._local_search import Climber, RowsClimber, choose_climber
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.models._row_models import stored_rows


def lattice_model(rng, shape, connectivity, n_types, n_features, dtype=np.float64, n_states=4):
    graph = lattice(shape, connectivity)
    unary = rng.normal(size=(graph.n_nodes, n_states))
    unary[rng.random(unary.shape) < 0.1] = -np.inf
    unary[np.arange(graph.n_nodes), rng.integers(0, n_states, graph.n_nodes)] = 0.5
    return PairwiseModel(
        graph,
        unary.astype(dtype),
        rng.normal(size=(n_types, n_features, n_states, n_states)).astype(dtype),
        rng.integers(0, n_types, graph.n_edges).astype(np.int32),
        None if n_features == 1 else rng.normal(size=(graph.n_edges, n_features)).astype(dtype),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_types", "n_features"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize(
    ("shape", "connectivity"),
    [((17,), 1), ((13, 5), 1), ((13, 5), 2), ((1, 9), 2), ((9, 1), 1), ((7, 3, 4), 3), ((6, 6), [[0, 2], [3, -1]])],
)
def test_rows_climb_as_the_whole_does(monkeypatch, shape, connectivity, n_types, n_features, dtype):
    rng = np.random.default_rng(0)
    model = lattice_model(rng, shape, connectivity, n_types, n_features, dtype)
    start = model.unary.argmax(axis=1).astype(np.int32)
    whole = Climber(model).climb(start.copy())
    expected = ICM().map(model)
    assert np.array_equal(whole, expected.labels)
    for n_nodes in (1, 11, 30, 1000):
        monkeypatch.setattr("sklearn_crf.inference._tuning.NODES_AT_ONCE", n_nodes)
        assert np.array_equal(RowsClimber(stored_rows(model)).climb(start.copy()), whole)
        found = ICM().map(model)
        assert np.array_equal(found.labels, whole)
        assert (found.n_iter, found.converged) == (expected.n_iter, True)


def test_models_of_rows_have_their_scores():
    rng = np.random.default_rng(0)
    model = lattice_model(rng, (6, 4), 2, 2, 2)
    labels = rng.integers(0, 4, 24)
    part, low, high = stored_rows(model).around(2, 4)
    assert (low, high) == (1, 5)
    rows = slice(4 * low, 4 * high)
    inside = np.all((model.graph.edges >= rows.start) & (model.graph.edges < rows.stop), axis=1)
    own = PairwiseModel(
        Graph(16, model.graph.edges[inside] - rows.start),
        model.unary[rows],
        model.tables,
        model.edge_type[inside],
        model.edge_weight[inside],
    )
    assert score(part, labels[rows]) == pytest.approx(score(own, labels[rows]))


def test_only_large_lattices_are_climbed_by_rows(monkeypatch):
    rng = np.random.default_rng(0)
    model = lattice_model(rng, (6, 4), 1, 2, 1)
    assert isinstance(choose_climber(model), Climber)
    monkeypatch.setattr("sklearn_crf.inference._tuning.NODES_AT_ONCE", 10)
    assert isinstance(choose_climber(model), RowsClimber)
    no_lattice = Graph(24, model.graph.edges)
    assert isinstance(choose_climber(PairwiseModel(no_lattice, model.unary, model.tables, model.edge_type)), Climber)


def test_expansions_of_large_lattices_are_the_same_by_rows(monkeypatch):
    rng = np.random.default_rng(0)
    model = lattice_model(rng, (12, 9), 1, 1, 1, n_states=3)
    expected = AlphaExpansion(nonsubmodular="truncate").map(model)
    monkeypatch.setattr("sklearn_crf.inference._tuning.NODES_AT_ONCE", 20)
    found = AlphaExpansion(nonsubmodular="truncate").map(model)
    assert np.array_equal(found.labels, expected.labels)
    assert found.score == expected.score


def test_large_models_of_more_than_two_states_have_coarse_capacities(monkeypatch):
    rng = np.random.default_rng(0)
    from sklearn_crf.inference.cuts import _cut_network

    model = lattice_model(rng, (12, 9), 1, 1, 1, n_states=3)
    assert _cut_network.CutNetwork(model)._choose_scale() == np.int64
    expected = AlphaExpansion(nonsubmodular="truncate").map(model)
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.NODES_FOR_HALF", 100)
    assert _cut_network.CutNetwork(model)._choose_scale() == np.int32
    found = AlphaExpansion(nonsubmodular="truncate").map(model)
    assert found.score == pytest.approx(expected.score, rel=1e-5)
    # With two states a cut is exact to 60 bits, so it is the reference.
    assert _cut_network.CutNetwork(lattice_model(rng, (12, 9), 1, 1, 1, n_states=2))._choose_scale() == np.int64
