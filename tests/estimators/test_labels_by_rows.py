"""Large lattices of two classes are labelled a few rows at a time, with the labels of the whole lattice."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_crf import DRFClassifier
from sklearn_crf.encoding._edge_features import difference, sum_weighted_edges, weighted_differences
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AlphaBetaSwap, AlphaExpansion, GraphCut, JunctionTree
from sklearn_crf.inference.cuts._lattice_rows import LatticeRows
from sklearn_crf.learning import PseudolikelihoodTraining
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.models._row_models import RowModels
from sklearn_crf.objectives.fast_paths import general_path_only
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
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.NODES_OF_ROWS", 40)
    monkeypatch.setattr("sklearn_crf.inference._tuning.NODES_AT_ONCE", 30)


def fitted(X, y, **options):
    """Return a field whose edges favour equal labels."""
    options["pairwise"] = clone(options.get("pairwise", PairwiseTables())).set_params(form="ising")
    field = DRFClassifier(learning=PseudolikelihoodTraining(fixed_nodes=True), **options).fit(X, y)
    field.edge_coef_ = np.abs(field.edge_coef_)
    return field


def all_may_be_truncated(monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.MOST_TRUNCATED", 1.0)
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.MOST_OPEN_ROWS", 1.0)


def rows_of(whole, connectivity):
    """Return models of ranges of rows of a model with an edge weight."""
    graph = whole.graph
    width = graph.n_nodes // graph.shape[0]
    number = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}

    def rows(start, stop):
        part = lattice((stop - start, *graph.shape[1:]), connectivity)
        edges = [number[tuple(edge)] for edge in (part.edges + start * width).tolist()]
        unary = whole.unary[start * width : stop * width]
        return PairwiseModel(part, unary, whole.tables, edge_weight=whole.edge_weight[edges])

    return rows


# Shapes, and options of the fields on them.
LATTICES = [
    ((16, 13), {}),
    ((16, 13), {"connectivity": 2, "pairwise": PairwiseTables(edge_types="offset")}),
    ((16, 13), {"connectivity": [[3, -1], [0, 2], [1, 0]], "edge_features": "constant"}),
    ((2, 200), {}),
    ((8, 7, 6), {"edge_features": "constant"}),
]


def by_rows(monkeypatch):
    """Record for each call whether it was answered by rows."""
    answered = []
    labels = LatticeRows.labels

    def counted(self, n_threads=1, **options):
        found = labels(self, n_threads, **options)
        answered.append(found is not None)
        return found

    monkeypatch.setattr(LatticeRows, "labels", counted)
    return answered


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "options"), LATTICES)
def test_labels_of_rows_are_those_of_the_whole(rng, monkeypatch, small_parts, shape, options, dtype):
    X, y = pictures(rng, 4, shape, dtype)
    field = fitted(X[:2], y[:2], inference="graph_cut", **options)
    answered = by_rows(monkeypatch)
    expected = [GraphCut().map(model).labels.reshape(shape) for model in field.models(X)]
    with general_path_only():
        assert np.array_equal(field.predict(X), expected)
        assert answered == [True] * 4
        for n_jobs in (1, 2):
            field.set_params(n_jobs=n_jobs)
            assert all(np.array_equal(a, b) for a, b in zip(field.predict(list(X)), expected, strict=True))
    assert all(answered)
    assert np.array_equal(field.predict(X), expected)
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "connectivity"), [((40, 8), 1), ((40, 6), 2), ((24, 3, 3), 1), ((3, 100), 1)])
def test_a_few_edges_that_are_not_submodular(small_parts, monkeypatch, shape, connectivity, dtype):
    all_may_be_truncated(monkeypatch)
    asked = []
    roof_dual = LatticeRows._solve_roof_dual
    monkeypatch.setattr(LatticeRows, "_solve_roof_dual", lambda *args: asked.append(args) or roof_dual(*args))
    graph = lattice(shape, connectivity)
    n_found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        unary = rng.normal(scale=0.8, size=(graph.n_nodes, 2)).astype(dtype)
        weight = rng.uniform(0.1, 0.8, size=graph.n_edges)
        weight[rng.choice(graph.n_edges, 4, replace=False)] = -rng.uniform(0.1, 1.0, size=4)
        whole = PairwiseModel(graph, unary, np.eye(2, dtype=dtype)[None], edge_weight=weight.astype(dtype))
        labels = LatticeRows(RowModels(graph, rows_of(whole, connectivity))).labels()
        if labels is None:
            continue
        n_found += 1
        assert score(whole, labels) == pytest.approx(JunctionTree().map(whole).score, rel=1e-6)
        assert np.array_equal(labels, LatticeRows(RowModels(graph, rows_of(whole, connectivity))).labels(n_threads=2))
        assert LatticeRows(RowModels(graph, rows_of(whole, connectivity))).labels(may_truncate=False) is None
    assert n_found >= 15
    assert len(asked) > 5


def test_rows_with_scores_next_to_zero(small_parts, monkeypatch):
    all_may_be_truncated(monkeypatch)
    graph, rng = lattice((40, 8)), np.random.default_rng(0)
    unary, weight = rng.normal(scale=0.8, size=(graph.n_nodes, 2)), rng.uniform(0.1, 0.8, size=graph.n_edges)
    weight[rng.choice(graph.n_edges, 4, replace=False)] *= -1
    expected, found = (
        LatticeRows(RowModels(graph, rows_of(model, 1))).labels()
        for model in (
            PairwiseModel(graph, scale * unary, scale * np.eye(2)[None], edge_weight=weight)
            for scale in (1, 2.0**-1010)
        )
    )
    assert 0 < expected.sum() < graph.n_nodes
    assert np.array_equal(found, expected)


def test_what_roof_duality_leaves_open_is_left_to_others(small_parts, monkeypatch):
    all_may_be_truncated(monkeypatch)
    graph = lattice((30, 12))
    # A cycle of four nodes without scores; one edge prefers unlike labels.
    unary, weight = np.ones((360, 2)) * [0, 3], np.full(graph.n_edges, 0.5)
    cycle = [5 * 12 + 5, 5 * 12 + 6, 6 * 12 + 5, 6 * 12 + 6]
    inside = np.isin(graph.edges, cycle)
    unary[cycle] = 0.0
    weight[inside.sum(axis=1) == 1] = 0.0
    inner = np.flatnonzero(inside.all(axis=1))
    weight[inner[0]] = -0.5
    whole = PairwiseModel(graph, unary, [np.eye(2)], edge_weight=weight)
    assert GraphCut("qpbo").map(whole).state.n_unlabelled == 4
    assert LatticeRows(RowModels(graph, rows_of(whole, 1))).labels() is None


@pytest.mark.parametrize("inference", ["map", "graph_cut", "alpha_expansion"])
def test_estimators_label_by_rows_with_edges_that_are_not_submodular(rng, monkeypatch, small_parts, inference):
    X, y = pictures(rng, 4, (40, 8))
    field = fitted(X, y, inference=inference)
    # A few neighbours differ so much that these weights are negative.
    field.edge_coef_ = np.array([1.0, -0.26, 0.0]).reshape(field.edge_coef_.shape)
    models = field.models(X)
    n_negative = [np.count_nonzero(model.edge_weight < 0) for model in models]
    assert 0 < max(n_negative) <= 5
    all_may_be_truncated(monkeypatch)
    answered = by_rows(monkeypatch)
    with general_path_only():
        labels = field.predict(X)
    assert all(answered)
    assert len(answered) == 4
    for model, found in zip(models, labels, strict=True):
        assert score(model, found.ravel()) == pytest.approx(JunctionTree().map(model).score)
    with pytest.raises(ValueError, match=r"X\[\d\].*model is not submodular"):
        field.predict(X, inference=GraphCut("error"))


def test_scores_beyond_30_bits_take_60(rng, small_parts):
    graph = lattice((20, 10))
    unary = rng.normal(size=(200, 2))
    whole = PairwiseModel(graph, unary, [np.eye(2)], edge_weight=rng.uniform(0, 1e-3, size=graph.n_edges))
    strong = np.array(whole.edge_weight)
    strong[7] = 1e9
    whole = PairwiseModel(graph, unary, [np.eye(2)], edge_weight=strong)

    labels = LatticeRows(RowModels(graph, rows_of(whole, 1))).labels()
    assert np.isclose(score(whole, labels), GraphCut().map(whole).score, rtol=1e-12)


def of_three(y):
    """Return labels of three classes: the second half of the ones become twos."""
    y[..., y.shape[-1] // 2 :] *= 2
    return y


@pytest.mark.parametrize("move_making", [AlphaExpansion, AlphaBetaSwap])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "options"), LATTICES)
def test_moves_by_rows_end_where_those_of_the_whole_do(
    monkeypatch, small_parts, rng, shape, options, dtype, move_making
):
    X, _ = pictures(rng, 3, shape, dtype)
    y = of_three(pictures(rng, 3, shape)[1])
    chosen = move_making(nonsubmodular="truncate")
    field = DRFClassifier(learning="pl", inference=chosen, **options).fit(X + y[..., None], y)
    models = field.models(X)
    expected = [chosen.map(model).labels for model in models]
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.NODES_FOR_ROWS", 100)
    assert all(
        np.array_equal(chosen.map(model).labels, of_whole) for model, of_whole in zip(models, expected, strict=True)
    )
    answered = []
    labels_by_rows = move_making._labels_by_rows
    monkeypatch.setattr(
        move_making, "_labels_by_rows", lambda *args: answered.append(labels_by_rows(*args)) or answered[-1]
    )
    for n_jobs in (1, 2):
        field.set_params(n_jobs=n_jobs)
        found = field.predict(X).reshape(3, -1)
        assert np.array_equal(found, expected)
    assert len(answered) == 6
    assert all(labels is not None for labels in answered)


def test_moves_by_rows_leave_what_is_wrong_to_the_whole(rng, small_parts):
    X, y = pictures(rng, 2, (16, 13))
    field = DRFClassifier(learning="pl", inference="alpha_expansion", edge_features="constant").fit(X, of_three(y))
    field.edge_coef_ = -np.abs(field.edge_coef_) - 1.0
    with pytest.raises(ValueError, match="AlphaExpansion: edge 0 "):
        field.predict(X, inference=AlphaExpansion(nonsubmodular="error"))
    assert field.predict(X).shape == y.shape


def test_edge_features_that_take_long_are_made_once(rng, small_parts):
    calls = []

    def slow(tail, head):
        calls.append(len(tail))
        return difference(tail, head)

    X, y = pictures(rng, 2, (16, 13))
    of_three(y)
    fields = [
        DRFClassifier(learning="pl", inference="alpha_expansion", edge_features=features).fit(X, y)
        for features in (slow, "difference")
    ]
    calls.clear()
    assert np.array_equal(fields[0].predict(X), fields[1].predict(X))
    assert sum(calls) <= 3 * 2 * lattice((16, 13)).n_edges


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_types", [1, 3])
def test_sums_of_differences(rng, dtype, n_types):
    graph = lattice((5, 6), 2)
    features = rng.normal(size=(30, 4)).astype(dtype)
    features.flags.writeable = False
    weights = rng.normal(size=(n_types, 5))
    kind = rng.integers(0, n_types, graph.n_edges).astype(np.int32)
    tail, head = features[graph.edges.T].astype(np.float64)
    expected = (np.hstack([np.ones((graph.n_edges, 1)), np.abs(tail - head)]) * weights[kind]).sum(axis=1)
    edge_type = kind if n_types > 1 else None
    for given in (features, np.asfortranarray(features)):
        found = weighted_differences(given, graph.edges, edge_type, weights)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)
    plain = sum_weighted_edges(difference(features[graph.edges[:, 0]], features[graph.edges[:, 1]]), edge_type, weights)
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5)


def test_sums_of_differences_that_overflow_are_an_error():
    features = np.array([[3e38], [-3e38]], dtype=np.float32)
    with pytest.raises(ValueError, match="NaN or infinity"):
        weighted_differences(features, np.array([[0, 1]], dtype=np.int32), None, np.ones((1, 2)))


def test_edges_of_a_lattice_are_listed_when_they_are_read():
    graph = lattice((3, 4), 2)
    assert "edges" not in vars(graph)
    assert graph.n_edges == 29
    same = Graph(12, graph.edges)
    assert np.array_equal(graph.edges, same.edges)
    assert not graph.edges.flags.writeable
