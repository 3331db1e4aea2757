"""Large lattices of two classes are labelled by their rows, and get the labels of the whole."""

import numpy as np
import pytest

from sklearn_crf import DRFClassifier
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import GraphCut
from sklearn_crf.inference.cuts import _graph_cut
from sklearn_crf.inference.cuts._graph_cut import LatticeRows
from sklearn_crf.learning import PL
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.potentials import PairwiseTables


def pictures(rng, n, shape, dtype=np.float64):
    y = np.zeros((n, *shape), dtype=int)
    y[(..., slice(shape[-1] // 4, -(shape[-1] // 4)))] = 1
    return (y[..., None] + rng.normal(scale=0.8, size=(*y.shape, 2))).astype(dtype), y


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(_graph_cut, "_NODES_OF_ROWS", 40)


def fitted(X, y, **options):
    """A field whose edges prefer equal labels."""
    field = DRFClassifier(learning=PL(fixed_nodes=True), **options).fit(X, y)
    field.edge_coef_ = np.abs(field.edge_coef_)
    return field


def by_rows(monkeypatch):
    """Numbers of calls that were answered by rows, and that were not."""
    answered = []
    labels = LatticeRows.labels

    def counted(self, n_threads=1):
        found = labels(self, n_threads)
        answered.append(found is not None)
        return found

    monkeypatch.setattr(LatticeRows, "labels", counted)
    return answered


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((16, 13), {}),
        ((16, 13), {"connectivity": 2, "pairwise": PairwiseTables(edge_types="offset")}),
        ((16, 13), {"connectivity": [[3, -1], [0, 2], [1, 0]], "edge_features": "constant"}),
        ((2, 200), {}),
        ((8, 7, 6), {"edge_features": "constant"}),
    ],
)
def test_labels_of_rows_are_those_of_the_whole(rng, monkeypatch, small_parts, shape, options, dtype):
    X, y = pictures(rng, 4, shape, dtype)
    field = fitted(X[:2], y[:2], inference="graph_cut", **options)
    answered = by_rows(monkeypatch)
    expected = [GraphCut().map(model).labels.reshape(shape) for model in field.models(X)]
    assert np.array_equal(field.predict(X), expected)
    assert answered == [True] * 4
    for n_jobs in (1, 2):
        field.set_params(n_jobs=n_jobs)
        assert all(np.array_equal(a, b) for a, b in zip(field.predict(list(X)), expected, strict=True))
    assert all(answered)
    assert field.score(X, y) == np.mean(np.array(expected) == y)


def test_known_labels_are_kept(rng, monkeypatch, small_parts):
    X, y = pictures(rng, 4, (16, 13))
    field = fitted(X[:2], y[:2], inference="map", missing_label=-1)
    evidence = np.where(rng.uniform(size=y.shape) < 0.2, 1 - y, -1)
    answered = by_rows(monkeypatch)
    expected = [GraphCut().map(model).labels.reshape(16, 13) for model in field.models(X, evidence)]
    assert np.array_equal(field.predict(X, evidence), expected)
    assert answered == [True] * 4


def test_edges_that_prefer_unlike_labels_go_the_general_way(rng, monkeypatch, small_parts):
    X, y = pictures(rng, 2, (16, 13))
    field = fitted(X, y, inference="graph_cut", edge_features="constant")
    field.edge_coef_ = -field.edge_coef_
    answered = by_rows(monkeypatch)
    expected = [GraphCut("qpbo").map(model).labels.reshape(16, 13) for model in field.models(X)]
    assert np.array_equal(field.predict(X), expected)
    assert answered == [False] * 2


def test_scores_beyond_30_bits_take_60(rng, small_parts):
    graph = lattice((20, 10))
    unary = rng.normal(size=(200, 2))
    whole = PairwiseModel(graph, unary, [np.eye(2)], edge_weight=rng.uniform(0, 1e-3, size=graph.n_edges))
    strong = np.array(whole.edge_weight)
    strong[7] = 1e9
    whole = PairwiseModel(graph, unary, [np.eye(2)], edge_weight=strong)

    def rows(start, stop):
        nodes = np.arange(start * 10, stop * 10)
        part = lattice((stop - start, 10))
        number = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
        edges = [number[tuple(edge)] for edge in (part.edges + start * 10).tolist()]
        return PairwiseModel(part, unary[nodes], [np.eye(2)], edge_weight=strong[edges])

    labels = LatticeRows(graph, rows).labels()
    assert np.isclose(score(whole, labels), GraphCut().map(whole).score, rtol=1e-12)


def test_edges_of_a_lattice_are_listed_when_they_are_read():
    graph = lattice((3, 4), 2)
    assert "edges" not in vars(graph)
    assert graph.n_edges == 29
    same = Graph(12, graph.edges)
    assert np.array_equal(graph.edges, same.edges)
    assert not graph.edges.flags.writeable
