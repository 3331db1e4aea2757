"""Sparse edge features: compared with dense ones for every learning method, and weights for observed pairs only."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import trw_crf
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF, Example
from sklearn_crf.learning import LEARNINGS
from sklearn_crf.models import compute_labeling_statistics, score
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SparseEdgePotentials,
    SparsePotentials,
    convert_to_edge_columns,
    make_pairwise_form,
)
from sklearn_crf.preprocessing import SequenceVectorizer

TIGHT = {"tol": 1e-7, "max_iter": 500}


def some_features(rng, n, n_features, density=0.4):
    return sp.random(n, n_features, density, format="csr", random_state=rng) + sp.csr_matrix(
        (np.ones(n), (np.arange(n), np.zeros(n, int))), shape=(n, n_features)
    )


def fields(n=12, *, n_classes=3, cyclic=False, typed=False, n_edge_features=6, ones=False, seed=0):
    """Return chains or rings whose neighbouring labels depend on edge features."""
    rng = np.random.RandomState(seed)
    X, y = [], []
    for _ in range(n):
        length = rng.randint(3, 6)
        edges = [[i, i + 1] for i in range(length - 1)] + ([[0, length - 1]] if cyclic else [])
        edge_features = some_features(rng, len(edges), n_edge_features)
        if ones:
            edge_features.data[:] = 1
        nodes = some_features(rng, length, 5)
        edge_type = rng.randint(2, size=len(edges)) if typed else None
        X.append(Example(nodes, edges, edge_features, edge_type=edge_type))
        y.append((nodes.toarray()[:, 1:3] @ [2, 3] + rng.rand(length)).astype(int) % n_classes)
    return X, y


def dense_edges(X):
    return [
        Example(x.node_features, x.graph, x.edge_features.toarray(), x.node_type, x.edge_type, x.n_states) for x in X
    ]


def both(form, n_edge_types):
    options = {"n_edge_features": 6, "n_edge_types": n_edge_types}
    n_classes = len(form.index)
    pairs = FeaturePairs.all(5, 1 if n_classes == 2 else n_classes)
    edge_pairs = FeaturePairs.all(6 * n_edge_types, form.n_weights)
    return (
        LinearPotentials(5, n_classes, form, **options),
        SparseEdgePotentials(pairs, edge_pairs, 5, n_classes, form, **options),
    )


def test_curvature_is_that_of_dense_edge_features():
    rng = np.random.RandomState(1)
    example = Example(some_features(rng, 4, 5), [[0, 1], [1, 2], [2, 3]], some_features(rng, 3, 6))
    form, weight = make_pairwise_form("full", 3), rng.rand(4)
    pairs, edge_pairs = FeaturePairs.all(5, 3), FeaturePairs.all(6, form.n_weights)
    options = {"n_edge_features": 6, "n_edge_types": 1}
    of_sparse = SparseEdgePotentials(pairs, edge_pairs, 5, 3, form, **options)
    of_dense = SparsePotentials(pairs, 5, 3, form, **options)
    found = of_sparse.curvature([of_sparse.prepared(example)], [weight])
    dense = example._with(edge_features=example.edge_features.toarray())
    assert_allclose(found, of_dense.curvature([of_dense.prepared(dense)], [weight]), rtol=1e-12)


@pytest.mark.parametrize("name", ["potts", "symmetric", "full"])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("ones", [False, True])
def test_all_pairs_are_linear_potentials(name, typed, ones):
    X, y = fields(3, cyclic=True, typed=typed, ones=ones)
    dense, sparse = both(make_pairwise_form(name, 3), 2 if typed else 1)
    coef = np.random.default_rng(0).normal(size=dense.n_coef)
    parts = dense.unpack(coef)
    flat = sparse.pack(parts.coef[0].T, parts.intercept, parts.edge_coef)
    for x, other, labels in zip(X, dense_edges(X), y, strict=True):
        expected = dense.model(coef, other)
        gradient = dense.unpack(dense.pullback(other, compute_labeling_statistics(expected, labels)))
        for example in (x, convert_to_edge_columns(x, 1, 2 if typed else 1)):
            model = sparse.model(flat, example)
            assert_allclose(model.edge_tables(), expected.edge_tables(), atol=1e-12)
            found = sparse.unpack(sparse.pullback(example, compute_labeling_statistics(model, labels)))
            assert_allclose(found.edge_coef, gradient.edge_coef.ravel(), atol=1e-12)
            assert_allclose(found.coef, gradient.coef[0].T.ravel(), atol=1e-12)
            assert_allclose(
                found.coef @ flat[:15]
                + found.intercept[0] @ parts.intercept[0]
                + found.edge_coef @ parts.edge_coef.ravel(),
                score(model, labels),
                rtol=1e-12,
            )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "learning",
    [
        "exact",
        "pma",
        "relaxation",
        "joint_relaxation",
        "dual_relaxation",
        "piecewise",
        "pseudolikelihood",
        "loopy",
        "mean_field",
    ],
)
def test_sparse_and_dense_edge_features_train_the_same_field(n_classes, learning):
    X, y = fields(8, n_classes=n_classes, cyclic=learning != "mean_field", typed=True)
    approximate = learning in ("loopy", "mean_field")
    options = {"learning": learning, "weights": "all", "fit_intercept": False, "C": 0.3, "max_iter": 300}
    options |= {"tol": 1e-4 if approximate else 1e-6, "inner_tol": 1e-9}
    sparse, dense = trw_crf(**options).fit(X, y), trw_crf(**options).fit(dense_edges(X), y)
    assert sparse.edge_coef_.shape == (n_classes**2, 12)
    assert sparse.n_edge_types_ == 2
    atol = 1e-3 if approximate else 1e-4
    assert_allclose(sparse.coef_, dense.coef_, atol=atol)
    assert_allclose(sparse.edge_coef_.T.toarray(), dense.edge_coef_.reshape(12, -1), atol=atol)
    for one, other in zip(sparse.predict_proba(X), dense.predict_proba(dense_edges(X)), strict=True):
        assert_allclose(one, other, atol=10 * atol)


def test_seen_weights_are_those_of_labels_that_occur_with_a_feature():
    X, y = fields(6, n_edge_features=40, ones=True)
    weight = np.array([1, 1, 0, 2, 1, 1.0])
    model = trw_crf(**TIGHT).fit(X, y, sample_weight=weight)
    assert model.coef_.shape == (3, 5)
    assert not sp.issparse(model.coef_)
    occurs = np.zeros((9, 40), dtype=bool)
    for x, labels, counts in zip(X, y, weight, strict=True):
        for e, (i, j) in enumerate(x.edges if counts else []):
            occurs[3 * labels[i] + labels[j], x.edge_features[e].indices] = True
    assert_array_equal(model.edge_coef_.toarray() != 0, occurs)
    assert model.loss_curve_[-1] > trw_crf(weights="all", **TIGHT).fit(X, y, sample_weight=weight).loss_curve_[-1]
    assert sp.issparse(trw_crf(weights="seen").fit(X, y).coef_)


def test_repetition_threads_warm_starts_and_pickles():
    X, y = fields(20, n_edge_features=60, typed=True)
    weight = np.arange(len(X)) % 3
    weighted = trw_crf(warm_start=True, **TIGHT).fit(X, y, sample_weight=weight)
    repeated = trw_crf(**TIGHT).fit(
        [x for x, n in zip(X, weight, strict=True) for _ in range(n)],
        [labels for labels, n in zip(y, weight, strict=True) for _ in range(n)],
    )
    assert_allclose(weighted.edge_coef_.toarray(), repeated.edge_coef_.toarray(), atol=1e-5)
    assert_array_equal(clone(weighted).set_params(n_jobs=2).fit(X, y, weight).edge_coef_.data, weighted.edge_coef_.data)
    best = weighted.loss_curve_[-1]
    copy = pickle.loads(pickle.dumps(weighted))
    assert_allclose(copy.fit(X, y, sample_weight=weight).loss_curve_, best, rtol=1e-9)
    n_bytes = weighted.edge_coef_.nnz * (8 + 4) + weighted.coef_.nbytes + weighted.intercept_.nbytes
    rest = len(pickle.dumps(clone(weighted))) + 8 * 3 * weighted.n_iter_
    assert len(pickle.dumps(weighted)) <= 1.1 * n_bytes + rest + 2500
    with pytest.raises(ValueError, match="warm_start"):
        weighted.fit(dense_edges(X), y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_computed_features_of_edges(dtype):
    X, y = fields(10)
    chains = [x.node_features.astype(dtype) for x in X]
    options = {"edge_features": second_end, "weights": "all", "tol": 1e-4}
    given = [Example(x, [[t, t + 1] for t in range(x.shape[0] - 1)], x[1:]) for x in chains]
    model = trw_crf(**options).fit(chains, y)
    assert_array_equal(model.edge_coef_.toarray(), trw_crf(**options).fit(given, y).edge_coef_.toarray())
    dense = trw_crf(**options).fit([x.toarray() for x in chains], y)
    assert_allclose(dense.edge_coef_[0], model.edge_coef_.T.toarray(), atol=1e-3)
    assert model.predict_edge_proba(chains)[0].shape[1:] == (3, 3)
    alone = chains[0][:1]
    assert_array_equal(model.predict_proba([alone, chains[1]])[1], model.predict_proba(chains)[1])


def second_end(x_tail, x_head):
    return x_head


def test_dense_nodes_with_sparse_edges():
    X, y = fields(10)
    dense = [Example(x.node_features.toarray(), x.graph, x.edge_features) for x in X]
    one, other = trw_crf(**TIGHT).fit(X, y), trw_crf(**TIGHT).fit(dense, y)
    assert_allclose(other.edge_coef_.toarray(), one.edge_coef_.toarray(), atol=1e-5)
    assert_allclose(other.coef_, one.coef_, atol=1e-5)


def test_forbidden_pairs_and_evidence():
    X, y = fields(12)
    y = [np.where(labels == 2, 0, labels) for labels in y]
    y[0][:] = 2
    model = trw_crf(forbidden=[[0, 2], [1, 2]], inference="map").fit(X, y)
    for labels in model.predict(X):
        assert not np.any((labels[:-1] != 2) & (labels[1:] == 2))
    evidence = [np.full(len(labels), -1) for labels in y]
    evidence[3][1] = 1
    assert clone(model).set_params(missing_label=-1).fit(X, y).predict(X, evidence=evidence)[3][1] == 1


def test_dense_and_sparse_features_are_not_mistaken_for_each_other():
    X, y = fields(6)
    model = trw_crf().fit(dense_edges(X), y)
    with pytest.raises(ValueError, match="X has sparse edge features, but TRWCRF was fitted with dense edge features"):
        model.predict(X)
    model = trw_crf().fit(X, y)
    assert_array_equal(model.predict_proba(dense_edges(X))[2], model.predict_proba(X)[2])
    with pytest.raises(ValueError, match="X has 5 edge features, but TRWCRF was fitted with 6"):
        model.predict([Example(x.node_features, x.graph, x.edge_features[:, :5]) for x in X])
    with pytest.raises(ValueError, match=r"X\[1\] has 5 edge features, but X\[0\] has 6"):
        model.fit([X[0], Example(X[1].node_features, X[1].graph, X[1].edge_features[:, :5])], y[:2])


def pair_of_words(token, following):
    return {"bias": True, "words": f"{token['word']} {following['word']}"}


def test_tagger_with_words_on_edges():
    sentences = [["a", "b", "a"], ["b", "a"], ["b"], ["a", "a", "b"]]
    X = [[{"word": word} for word in words] for words in sentences]
    # The label of a word depends on the previous word in a way that weights of single words cannot express.
    y = [np.array([0] + [int(one != other) for one, other in pairwise(words)]) for words in sentences]
    tagger = make_pipeline(SequenceVectorizer(edge_features=pair_of_words), trw_crf(C=100, inference="map"))
    for labels, expected in zip(tagger.fit(X, y).predict(X), y, strict=True):
        assert_array_equal(labels, expected)
    vectorizer = tagger[0]
    assert vectorizer.edge_vocabulary_ == {"bias": 0, "words=a b": 1, "words=b a": 2, "words=a a": 3}
    found = vectorizer.transform([X[0] + [{"word": "c"}], X[2]])
    assert_array_equal(found[0].edge_features.toarray(), [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]])
    assert found[1].edge_features.shape == (0, 4)
    assert len(tagger.predict([iter(X[0])])[0]) == 3


@pytest.mark.parametrize("learning", [name for name in LEARNINGS if name not in ("likelihood", "edge_probabilities")])
def test_all_learnings_take_sparse_features_of_edges(learning):
    """On trees, where results equal the results for dense features."""
    rng = np.random.default_rng(0)
    y = [np.sort(rng.integers(3, size=4)) for _ in range(8)]
    nodes = [np.eye(3)[own] + 0.5 * rng.normal(size=(4, 3)) for own in y]
    between = [(rng.random((3, 5)) < 0.5).astype(float) for _ in y]
    path = [[0, 1], [1, 2], [2, 3]]
    dense, sparse = (
        [Example(sp.csr_matrix(x), path, edge_features=make(part)) for x, part in zip(nodes, between, strict=True)]
        for make in (np.asarray, sp.csr_matrix)
    )
    options = {"max_iter": 30, "random_state": 0, "weights": "all", "fit_intercept": False, "learning": learning}
    one, other = (TRWCRF(**options).fit(X, y) for X in (dense, sparse))
    assert_allclose(other.coef_, one.coef_, atol=1e-9)
    assert_allclose(other.edge_coef_.toarray(), one.edge_coef_[0].T, atol=1e-9)
