"""Pairs of labels that a table forbids, listed or by the name of a tagging scheme."""

import re
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.metrics import entities
from sklearn_crf.potentials import PairwiseTables

PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOE1": "IE", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}


def marked(labels, scheme):
    """Return the labels that encode the entities of the given labels."""
    tags, found = ["O"] * len(labels), entities(labels, scheme)
    for kind, start, stop in found:
        tags[start:stop] = [f"I-{kind}"] * (stop - start)
        if scheme in ("IOB2", "IOBES", "BILOU") or (scheme == "IOB1" and any(e[::2] == (kind, start) for e in found)):
            tags[start] = f"B-{kind}"
        if scheme in ("IOE2", "IOBES") or (scheme == "IOE1" and any(e[:2] == (kind, stop) for e in found)):
            tags[stop - 1] = f"E-{kind}"
        if scheme == "BILOU":
            tags[stop - 1] = f"L-{kind}"
        if stop - start == 1 and scheme in ("IOBES", "BILOU"):
            tags[start] = f"{'S' if scheme == 'IOBES' else 'U'}-{kind}"
    return tags


@pytest.mark.parametrize("scheme", PREFIXES)
def test_schemes_of_entities_forbid_what_breaks_them(scheme):
    classes = np.array(sorted([f"{prefix}-{kind}" for prefix in PREFIXES[scheme] for kind in "XY"] + ["O"]))
    tables = PairwiseTables(forbidden=scheme)
    mask, ends = tables.forbidden_pairs(classes), tables.forbidden_ends(classes)
    ends = np.zeros((2, len(classes)), dtype=bool) if ends is None else ends
    for states in product(range(len(classes)), repeat=3):
        labels = classes[list(states)].tolist()
        broken = any(mask[a, b] for a, b in pairwise(states)) or ends[0, states[0]] or ends[1, states[-1]]
        assert broken == (marked(labels, scheme) != labels)


def test_labels_of_ends():
    classes = np.array(["a", "b", "c"])
    tables = PairwiseTables(forbidden_first=["a"], forbidden_last=["b", "c"])
    assert tables.forbidden_ends(classes).tolist() == [[True, False, False], [False, True, True]]
    assert PairwiseTables().forbidden_ends(classes) is None
    both = PairwiseTables(forbidden="IOB2", forbidden_last=["B-X"]).forbidden_ends(np.array(["B-X", "I-X", "O"]))
    assert both.tolist() == [[False, True, False], [True, False, False]]
    with pytest.raises(ValueError, match="forbidden_last contains 'd', which is not among the classes"):
        PairwiseTables(forbidden_last=["d"]).forbidden_ends(classes)


def test_images_have_no_ends():
    X, y = np.zeros((2, 3, 3, 1)), np.tile(np.array(["B-X", "O", "O"]), (2, 3, 1))
    with pytest.raises(ValueError, match="forbidden_first needs sequences, but X holds lattices of 2 axes"):
        TRWCRF(pairwise=PairwiseTables(forbidden_first=["O"])).fit(X, y)
    assert PairwiseTables(forbidden="IOB2").forbidden_ends(np.array(["B-X", "I-X", "O"]), 2) is None


@pytest.mark.parametrize("estimator", [TRWCRF, M3NClassifier, DRFClassifier])
def test_schemes_of_entities_in_a_tagger(estimator):
    labels = np.array(["B-X", "I-X", "O", "O", "B-X", "O"])
    classes, states = np.unique(labels, return_inverse=True)
    X, y = [np.eye(3)[states]] * 4, [labels] * 4
    broken = [np.eye(3)[np.searchsorted(classes, ["O", "I-X", "O", "I-X"])]]

    free = estimator(edge_features="constant").fit(X, y).predict(broken)[0]
    held = estimator(pairwise=PairwiseTables(forbidden="IOB2"), edge_features="constant").fit(X, y).predict(broken)[0]
    assert ("O", "I-X") in pairwise(free)
    assert ("O", "I-X") not in pairwise(held)


def test_training_labels_that_break_the_scheme():
    X, y = [np.eye(3)], [["B-X", "O", "I-X"]]
    with pytest.raises(ValueError, match=r"Sequence 0 contains O followed by I-X, which forbidden='IOB2' rules out\."):
        TRWCRF(pairwise=PairwiseTables(forbidden="IOB2")).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forbidden": "IOB2"}, "Sequence 1 begins with I-X, which forbidden='IOB2' rules out."),
        ({"forbidden_first": ["I-X"]}, "Sequence 1 begins with I-X, which forbidden_first rules out."),
        ({"forbidden_last": ["O"]}, "Sequence 0 ends with O, which forbidden_last rules out."),
        ({"forbidden": [["B-X", "I-X"]]}, "Sequence 0 contains B-X followed by I-X, which forbidden rules out."),
    ],
)
def test_training_labels_that_are_forbidden(options, message):
    X, y = [np.eye(3), np.eye(3)[:2]], [["B-X", "I-X", "O"], ["I-X", "I-X"]]
    with pytest.raises(ValueError, match=re.escape(message)):
        DRFClassifier(pairwise=PairwiseTables(**options)).fit(X, y)


def sentences(rng, n=30):
    """Return sequences of tags that follow IOB2, and noisy features."""
    classes, X, Y = np.array(["B-X", "I-X", "O"]), [], []
    for _ in range(n):
        y = [rng.choice([0, 2])]
        while len(y) < rng.integers(1, 7):
            y.append(rng.choice([0, 2] if y[-1] == 2 else [0, 1, 2]))
        X.append(np.eye(3)[y] + rng.normal(scale=1.2, size=(len(y), 3)))
        Y.append(classes[y])
    return X, Y


@pytest.mark.parametrize("edge_features", ["auto", "constant"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, lambda x: Example(x, chain_edges(len(x)))])
@pytest.mark.parametrize("estimator", [TRWCRF, M3NClassifier, DRFClassifier, ContrastiveCRF])
def test_no_prediction_begins_with_what_is_forbidden(estimator, kind, edge_features):
    X, y = sentences(np.random.default_rng(0))
    X = [kind(x) for x in X]
    tables = PairwiseTables("full", forbidden="IOB2", forbidden_last=["B-X"])
    y = [np.where(labels == "B-X", "O", labels) if labels[-1] == "B-X" else labels for labels in y]
    y = [labels if labels[0] != "I-X" and not follows(labels) else np.full(len(labels), "O") for labels in y]
    field = estimator(pairwise=tables, edge_features=edge_features).fit(X, y)
    for inference in (None, "map"):
        for labels in field.predict(X, inference=inference):
            assert labels[0] != "I-X"
            assert labels[-1] != "B-X"
            assert not follows(labels)


def follows(labels):
    return ("O", "I-X") in pairwise(labels)


def chain_edges(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_likelihood_sums_over_what_is_allowed_alone(kind):
    X, y = sentences(np.random.default_rng(0))
    field = TRWCRF(pairwise=PairwiseTables("full", forbidden="IOB2")).fit([kind(x) for x in X], y)
    total = 0.0
    for x, labels in zip(X, y, strict=True):
        z = x @ field.coef_.T + field.intercept_
        table = field.edge_coef_.reshape(3, 3)
        scores = {}
        for states in product(range(3), repeat=len(x)):
            if states[0] != 1 and (2, 1) not in pairwise(states):
                scores[states] = z[np.arange(len(x)), states].sum() + sum(table[a, b] for a, b in pairwise(states))
        truth = scores[tuple(np.searchsorted(field.classes_, labels))]
        log_p = truth - np.logaddexp.reduce(list(scores.values()))
        assert field.log_likelihood([kind(x)], [labels]).values[0] == pytest.approx(log_p)
        total -= log_p
    penalty = 0.5 * (np.sum(field.coef_**2) + np.sum(field.edge_coef_**2))
    assert field.loss_curve_[-1] == pytest.approx(penalty + total, rel=1e-6)


@pytest.mark.parametrize("estimator", [TRWCRF, M3NClassifier])
def test_rows_are_first_and_last(estimator):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.random.default_rng(1).choice(["a", "b"], size=60)
    field = estimator(classes=["a", "b", "c"], pairwise=PairwiseTables("full", forbidden_first=["c"])).fit(X, y)
    assert set(field.predict(10 * X)) == {"a", "b"}
    with pytest.raises(ValueError, match=r"Sequence .* begins with a, which forbidden_first rules out"):
        estimator(pairwise=PairwiseTables(forbidden_first=["a"])).fit(X, y)


@pytest.mark.parametrize("classes", [[0, 1], ["B-X", "NOUN"], ["E-X", "O"]])
def test_schemes_of_entities_need_their_labels(classes):
    with pytest.raises(ValueError, match="forbidden='IOB2' needs labels that begin with one of"):
        PairwiseTables(forbidden="IOB2").forbidden_pairs(np.array(classes))
