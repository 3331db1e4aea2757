"""Listings of weights by feature name, for every form in which fields store weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF, DRFClassifier, Example
from sklearn_crf.inspection import top_features, top_transitions
from sklearn_crf.preprocessing import SequenceVectorizer

RNG = np.random.default_rng(0)
WORDS = [["the", "cat", "sat"], ["a", "cat"], ["the", "dog", "sat", "down"]]
TAGS = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "P"]]
TOKENS = [[{"w": word} for word in sentence] for sentence in WORDS]


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_taggers(weights):
    field = TRWCRF(weights=weights, pairwise="full", edge_features="constant")
    tagger = make_pipeline(SequenceVectorizer(), field).fit(TOKENS, TAGS)
    best = top_features(tagger, 1, label="D")[0]
    assert (best.label, best.feature) == ("D", "w=the")
    assert best.weight > 0
    assert {(found.label, found.next_label) for found in top_transitions(tagger, None) if found.weight > 0.1} >= {
        ("D", "N"),
        ("N", "V"),
    }
    assert all(found.feature == "constant" for found in top_transitions(tagger))


def test_every_weight_is_where_the_score_finds_it():
    X = [RNG.normal(size=(6, 2)) for _ in range(5)]
    y = [RNG.integers(3, size=6) for _ in X]
    field = TRWCRF(pairwise="full", edge_features="difference").fit(X, y)
    nodes, edges = top_features(field, None), top_transitions(field, None)
    x, labels = X[0], y[0]
    features = {f"x{i}": x[:, i] for i in range(2)} | {"intercept": np.ones(6)}
    jumps = {"constant": np.ones(5)} | {f"|difference of x{i}|": np.abs(np.diff(x[:, i])) for i in range(2)}
    score = sum(w.weight * features[w.feature][labels == w.label].sum() for w in nodes)
    for w in edges:
        at = (labels[:-1] == w.label) & (labels[1:] == w.next_label)
        score += w.weight * jumps[w.feature][at].sum()
    assert -score == pytest.approx(field.energy(X[:1], y[:1])[0])


def test_two_classes_have_the_weights_of_the_second():
    X, y = RNG.normal(size=(50, 2)), RNG.integers(2, size=50)
    y = (X[:, 0] > 0).astype(int)
    found = top_features(DRFClassifier().fit(X, y), 1)[0]
    assert (found.label, found.feature) == (1, "x0")
    assert found.weight == pytest.approx(np.abs(LogisticRegression().fit(X, y).coef_).max(), rel=1e-2)


def test_types_of_nodes_and_edges():
    X = [Example(RNG.normal(size=(3, 2)), [[0, 1], [1, 2]], node_type=[0, 1, 0], edge_type=[0, 1]) for _ in range(8)]
    field = TRWCRF(edge_features="constant").fit(X, [RNG.integers(2, size=3) for _ in X])
    assert {found.node_type for found in top_features(field, None)} == {0, 1}
    assert {found.edge_type for found in top_transitions(field, None)} == {0, 1}
    by_hand = {w.feature: w.weight for w in top_features(field, None) if w.node_type == 1}
    assert by_hand["x1"] == field.coef_[1, 0, 1]


def test_sparse_features_of_edges():
    vectorizer = SequenceVectorizer(edge_features=lambda a, b: ["bias", f"{a['w']}>{b['w']}"])
    X = vectorizer.fit_transform(TOKENS)
    field = TRWCRF(pairwise="full").fit(X, TAGS)
    assert sp.issparse(field.edge_coef_)
    names = list(vectorizer.edge_vocabulary_)
    found = top_transitions(field, None, edge_feature_names=names)
    assert ("N", "V") in {(w.label, w.next_label) for w in found if w.feature == "cat>sat" and w.weight > 0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda field: top_features(field, label="Z"), "label='Z' is not among the classes"),
        (lambda field: top_features(field, feature_names=["a"]), "feature_names has 1 names, but the field has 2"),
        (lambda field: top_transitions(field, edge_feature_names=["a", "b"]), "edge_feature_names has 2 names"),
    ],
)
def test_bad_arguments(call, message):
    field = TRWCRF(max_iter=5).fit([np.eye(2)] * 3, [[0, 1], [1, 0], [0, 1]])
    with pytest.raises(ValueError, match=message):
        call(field)


def test_other_estimators():
    with pytest.raises(TypeError, match="LogisticRegression has no edge_coef_"):
        top_features(LogisticRegression().fit(np.eye(2), [0, 1]))


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", np.array([1, 2])])
def test_numbers_of_weights_that_mean_nothing_are_named(k):
    X = [np.eye(2), np.eye(2)[::-1]]
    field = TRWCRF().fit(X, [[0, 1], [1, 0]])
    for function in (top_features, top_transitions):
        with pytest.raises(ValueError, match="k must be an int of at least 1, or None"):
            function(field, k)
