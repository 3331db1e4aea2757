"""Forbidden labels are never predicted, and allowed labels maximise the expected number of correct nodes."""

import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from model_strategies import random_model
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.estimators._fitted_field import FieldParameters, FittedField
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import JunctionTree
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.learning import Exact
from sklearn_crf.learning._labeler import labels_of_most_gain
from sklearn_crf.models import PairwiseModel, factor_graph_of, score
from sklearn_crf.objectives.fast_paths import general_path_only
from sklearn_crf.potentials import PairwiseTables

CLASSES = np.array(["a", "b", "c"])
FORBIDDEN = [("a", "c"), ("b", "a"), ("c", "b")]
IS_FORBIDDEN = np.zeros((3, 3), dtype=bool)
IS_FORBIDDEN[[0, 1, 2], [2, 0, 1]] = True

FIELDS = {
    "drf": DRFClassifier(edge_features="constant"),
    "trw": TRWCRF(edge_features="constant"),
    "m3n": M3NClassifier(edge_features="constant", max_iter=30),
    "contrastive": ContrastiveCRF(edge_features="constant"),
}


def most_gain(model, gain):
    """Return the largest sum of gains over all labelings that a pairwise model allows, by enumeration."""
    labels = np.array(list(product(range(gain.shape[1]), repeat=len(gain))))
    is_allowed = (model.unary[np.arange(len(gain)), labels] > -np.inf).all(axis=1)
    for (i, j), table in zip(model.graph.edges, model.edge_tables(), strict=True):
        is_allowed &= table[labels[:, i], labels[:, j]] > -np.inf
    return gain[np.arange(len(gain)), labels[is_allowed]].sum(axis=1).max()


def gain_of(gain, labels):
    return gain[np.arange(len(gain)), labels].sum()


@pytest.mark.parametrize("graph", ["chain", "tree", "disconnected_forest", "cycle", "bridges"])
@pytest.mark.parametrize("as_factors", [False, True])
def test_labels_have_the_most_gain_of_all_that_are_allowed(graph, as_factors):
    n_broken = 0
    for seed in range(8):
        kind = ("tied", "weighted", "untied")[seed % 3]
        model = random_model(graph, 3, kind, forbidden=0.4, seed=seed)
        gain = np.random.default_rng(seed).normal(size=model.unary.shape)
        given = factor_graph_of(model) if as_factors else model
        labels = labels_of_most_gain(given, gain)
        assert labels.dtype == np.int32
        assert score(given, labels) > -np.inf
        assert gain_of(gain, labels) == pytest.approx(most_gain(model, gain), abs=1e-12)
        best = np.where(np.isneginf(model.unary), -np.inf, gain).argmax(axis=1)
        n_broken += score(given, best) == -np.inf
    # In several cases, the best labels of the nodes by themselves contain a forbidden pair.
    assert n_broken > 1


def test_components_that_break_nothing_keep_their_best_labels():
    edges = [[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3]]
    model = PairwiseModel(Graph(6, edges), np.zeros((6, 2)), [[[0, -np.inf], [0, 0]]])
    # In the first triangle all gains are equal, so state 0 is chosen. In the second triangle, the best labels of the
    # single nodes contain the forbidden pair.
    gain = np.zeros((6, 2))
    gain[3, 0] = gain[4, 1] = 1.0
    gain[3, 1] = 0.5
    assert labels_of_most_gain(model, gain).tolist() == [0, 0, 0, 1, 1, 1]


def sequences(rng, n, noise=1.2):
    """Return chains of labels without the pairs in FORBIDDEN, and noisy features."""
    Y = []
    for _ in range(n):
        y = [rng.integers(3)]
        for _ in range(rng.integers(0, 5)):
            y.append((y[-1] + (rng.random() < 0.4)) % 3)
        Y.append(np.array(y))
    return [np.eye(3)[y] + rng.normal(scale=noise, size=(len(y), 3)) for y in Y], Y


def images(rng, n):
    """Return stripes of labels along both axes, in an order that FORBIDDEN allows."""
    Y = [(np.add.outer(np.arange(4), np.arange(3)) // 3 + rng.integers(3)) % 3 for _ in range(n)]
    return [np.eye(3)[y] + rng.normal(scale=1.0, size=(*y.shape, 3)) for y in Y], Y


def graphs(rng, n):
    """Return trees and graphs with a cycle, alternately, and their labels."""
    X, Y = [], []
    for i in range(n):
        edges = [[0, 1], [1, 2], [1, 3], [3, 4], *([[2, 4]] if i % 2 else [])]
        y = (np.array([0, 0, 1, 1, 1]) + rng.integers(3)) % 3
        X.append(Example(np.eye(3)[y] + rng.normal(scale=1.0, size=(5, 3)), edges))
        Y.append(y)
    return X, Y


def factors(rng, n):
    """Return chains with a factor of given scores that rules out three equal labels in a row."""
    hard = np.zeros((3, 3, 3))
    hard[np.arange(3), np.arange(3), np.arange(3)] = -np.inf
    X, Y = [], []
    for _ in range(n):
        y = (np.array([0, 0, 1, 1, 2]) + rng.integers(3)) % 3
        fixed = [(np.arange(s, s + 3), hard) for s in range(3)]
        X.append(
            Example(
                np.eye(3)[y] + rng.normal(size=(5, 3)), Graph(5, [[i, i + 1] for i in range(4)]), fixed_factors=fixed
            )
        )
        Y.append(y)
    return X, Y


LAYOUTS = {"chains": sequences, "images": images, "graphs": graphs, "factors": factors}


def count_broken(models, predicted):
    columns = [np.searchsorted(CLASSES, np.ravel(labels)) for labels in predicted]
    return sum(score(model, labels) == -np.inf for model, labels in zip(models, columns, strict=True))


@pytest.mark.parametrize(("name", "layout"), [*product(FIELDS, ("chains", "images", "graphs")), ("trw", "factors")])
def test_no_layout_and_no_classifier_predicts_what_is_forbidden(name, layout):
    make = LAYOUTS[layout]
    n = 8 if layout == "factors" else 24
    X, Y = make(np.random.default_rng(0), n)
    pairwise = PairwiseTables("full", forbidden=FORBIDDEN)
    field = FIELDS[name].set_params(pairwise=pairwise).fit(X, [CLASSES[y] for y in Y])
    Z, _ = make(np.random.default_rng(1), n)
    for options in ({}, {"inference": "mpm"}, {"inference": "map"}):
        if (
            "inference" not in options
            or FieldParameters.of(field).learning.has_distribution
            or options["inference"] == "map"
        ):
            assert count_broken(field.models(Z), field.predict(Z, **options)) == 0


@pytest.mark.parametrize("cost", [None, np.array([[0, 1, 5], [2, 0, 1], [1, 3, 0.0]])])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("with_evidence", [False, True])
def test_chains_are_decoded_by_viterbi_on_marginals(kind, cost, with_evidence):
    X, Y = sequences(np.random.default_rng(0), 60)
    X = [kind(x) for x in X]
    field = DRFClassifier(edge_features="constant", pairwise=PairwiseTables("full", forbidden=FORBIDDEN), cost=cost)
    field.fit(X, [CLASSES[y] for y in Y])
    evidence = [np.array([CLASSES[y[0]], *[None] * (len(y) - 1)], dtype=object) for y in Y] if with_evidence else None
    predicted, models = field.predict(X, evidence=evidence), field.models(X, evidence=evidence)
    assert count_broken(models, predicted) == 0
    n_changed = 0
    for labels, marginals, model in zip(predicted, field.predict_proba(X, evidence=evidence), models, strict=True):
        gain = marginals if cost is None else -(marginals @ cost.T)
        columns = np.searchsorted(CLASSES, labels)
        assert gain_of(gain, columns) == pytest.approx(most_gain(model, gain), abs=1e-9)
        n_changed += np.any(columns != gain.argmax(axis=1))
    assert n_changed
    # The kernel of chains and the models of batches label alike.
    with general_path_only():
        for found, expected in zip(field.predict(X, evidence=evidence), predicted, strict=True):
            assert_array_equal(found, expected)


def test_voters_of_a_margin_agree_on_what_is_allowed():
    X, Y = sequences(np.random.default_rng(0), 30)
    pairwise = PairwiseTables("full", forbidden=FORBIDDEN)
    field = M3NClassifier(edge_features="constant", pairwise=pairwise).fit(X, [CLASSES[y] for y in Y])
    potentials = FittedField.of(field).potentials()
    rng = np.random.default_rng(0)
    field.voters_ = rng.normal(scale=2.0, size=(5, potentials.n_coef))
    assert count_broken(field.models(X), field.predict(X)) == 0


def test_fields_without_forbidden_pairs_decide_by_the_largest_marginal():
    X, Y = sequences(np.random.default_rng(0), 30)
    field = TRWCRF(pairwise="full").fit(X, [CLASSES[y] for y in Y])
    for labels, marginals in zip(field.predict(X), field.predict_proba(X, inference=JunctionTree()), strict=True):
        assert_array_equal(labels, CLASSES[marginals.argmax(axis=1)])


@pytest.mark.parametrize("inference", [None, "map"])
@pytest.mark.parametrize("connectivity", [1, 2])
def test_tiles_of_a_large_image_keep_to_forbidden_pairs(inference, connectivity):
    rng = np.random.default_rng(0)
    X, Y = images(rng, 8)
    if connectivity == 2:
        Y = [np.full(y.shape, y[0, 0]) for y in Y]
    pairwise = PairwiseTables("full", forbidden=FORBIDDEN)
    field = TRWCRF(edge_features="constant", connectivity=connectivity, pairwise=pairwise)
    field.fit(X, [CLASSES[y] for y in Y])
    image = rng.normal(scale=3.0, size=(20, 16, 3))
    found = predict_in_tiles(field, image, tile=5, margin=2, max_margin=2, inference=inference)
    assert count_broken(field.models([image]), [found.labels]) == 0


@pytest.mark.parametrize("name", ["drf", "trw", "contrastive"])
def test_evidence_that_is_forbidden_is_named_by_its_nodes(name):
    rng = np.random.default_rng(0)
    allowed = np.array([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 0, 1], [0, 0, 1, 1]])
    X = list(np.eye(3)[allowed] + rng.normal(size=(4, 4, 3)))
    field = clone(FIELDS[name]).set_params(pairwise=PairwiseTables(forbidden=FORBIDDEN))
    field.fit(X, list(CLASSES[allowed]))
    evidence = [[None] * 4, [None, "a", "c", None]]
    for method in (field.predict, field.predict_proba):
        with pytest.raises(ValueError, match=r"X\[1\]: model is infeasible: every labeling of nodes 1, 2 is forbidden"):
            method(X[:2], evidence)


LEARNING = [
    "spa",
    "mma",
    "cd",
    "truncated",
    "mean_field",
    "loopy",
    "relaxation",
    "pl",
    "piecewise",
    "pma",
    "likelihood",
]


def tagged(rng, n_sentences, n_tokens):
    """Return sentences of one or more tokens with valid IOB2 tags, and noisy features."""
    tags, allowed = np.array(["B-A", "I-A", "O"]), np.array([[1, 1, 1], [1, 1, 1], [1, 0, 1]])
    X, Y = [], []
    for length in rng.integers(1, n_tokens, size=n_sentences):
        y = [2]
        for _ in range(length):
            y.append(rng.choice(3, p=allowed[y[-1]] / allowed[y[-1]].sum()))
        X.append(np.eye(3)[y[1:]] + 0.5 * rng.normal(size=(length, 3)))
        Y.append(tags[y[1:]].astype(object))
    return X, Y


@pytest.mark.parametrize("learning", LEARNING)
def test_every_learning_takes_tags_that_must_not_come_first(learning):
    X, Y = tagged(np.random.default_rng(0), 20, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field = DRFClassifier(learning=learning, pairwise=PairwiseTables(forbidden="IOB2"), max_iter=20, random_state=0)
        predicted = field.fit(X, Y).predict(X)
    # Independent nodes exclude a forbidden pair only by giving up one of its states, so mean field fits badly.
    assert field.score(X, Y) > (0.5 if learning == "mean_field" else 0.8)
    for labels in predicted:
        assert not any(b == "I-A" and a == "O" for a, b in zip(["O", *labels], labels, strict=False))


def test_margins_take_missing_tags_and_tags_that_must_not_come_first():
    rng = np.random.default_rng(0)
    X, Y = tagged(rng, 20, 8)
    known = [y.copy() for y in Y]
    for y in known:
        y[rng.random(len(y)) < 0.3] = None
    field = M3NClassifier(pairwise=PairwiseTables(forbidden="IOB2")).fit(X, known)
    assert field.score(X, Y) > 0.8


def test_parts_near_labels_are_not_ends_of_a_chain():
    # Labels are so far apart that the parts around them are separate. Some parts begin with I-A, which no sentence may.
    rng = np.random.default_rng(0)
    tags = np.tile(["O", "B-A", "I-A", "I-A", "O", "O"], 100).astype(object)
    X = np.eye(3)[np.searchsorted(["B-A", "I-A", "O"], tags.astype(str))] + 0.5 * rng.normal(size=(600, 3))
    known = np.full(600, None, dtype=object)
    known[2::7] = tags[2::7]
    tables = PairwiseTables(forbidden="IOB2")
    whole, parts = (
        DRFClassifier(learning=Exact(reach=reach), pairwise=tables).fit([X], [known]) for reach in (None, 1)
    )
    assert whole.score([X], [tags]) > 0.9
    assert parts.score([X], [tags]) > 0.9
    alone = DRFClassifier(learning=Exact(reach=0), pairwise=tables).fit([X], [known])
    assert alone.score([X], [tags]) > 0.8


@pytest.mark.parametrize("learning", ["likelihood", "pseudolikelihood", "piecewise", "truncated", "max_margin", "cd"])
@pytest.mark.parametrize("labels", [[0, -1, 1], [0, -1, -1, 1], [-1, 3]])
def test_labels_that_cannot_be_completed_are_refused(learning, labels):
    # Label 0 is followed only by 0, and 3 is never preceded by any label.
    forbidden = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 3)]
    field = TRWCRF(learning=learning, missing_label=-1, pairwise=PairwiseTables("full", forbidden=forbidden))
    y = [np.array([1, 2, -1, 0]), np.array([3, 1]), np.array(labels)]
    with pytest.raises(ValueError, match="Sequence 2 has no allowed labels for its unlabelled nodes, which forbidden"):
        field.fit([np.ones((len(own), 1)) for own in y], y)
