"""Probabilities of entities, compared with sums over all labelings that contain them."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf import TRWCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.metrics import entities
from sklearn_crf.models import score
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables, Segments

SCHEMES = {"IOB1": "IB", "IOB2": "IB", "IOE1": "IE", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}


def chain_edges(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def fitted(scheme, pairwise="full", kind=np.asarray, scale=1.0):
    rng = np.random.default_rng(0)
    classes = np.array(["O", *(f"{prefix}-{name}" for prefix in SCHEMES[scheme] for name in "XY")])
    X = [rng.normal(size=(n, 3)) * scale for n in (4, 1, 3, 2, 4, 3)]
    y = [rng.choice(classes, size=len(x)) for x in X]
    if pairwise != "full":
        y = [np.full(len(x), "O", dtype=classes.dtype) for x in X]
        y[0][:2] = ["B-X", "I-X"]
        y[2][1:] = ["B-Y", "I-Y"]
    X = [kind(x) for x in X]
    return TRWCRF(C=5.0, pairwise=pairwise).fit(X, y), X


def enumerated(field, x, scheme):
    """Return the probabilities of all entities of one sequence, by enumeration of labelings."""
    model = field.models([x])[0]
    labelings = list(product(range(len(field.classes_)), repeat=len(model.unary)))
    scores = np.array([score(model, states) for states in labelings])
    probabilities = np.exp(scores - np.logaddexp.reduce(scores))
    found: dict = {}
    for states, probability in zip(labelings, probabilities, strict=True):
        for entity in entities(field.classes_[list(states)], scheme):
            found[entity] = found.get(entity, 0.0) + probability
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_span_by_enumeration(scheme):
    field, X = fitted(scheme)
    X = X[:4] if len(field.classes_) < 6 else X[1:4]
    spans = [[(kind, a, b) for kind in "XY" for a in range(len(x)) for b in range(a + 1, len(x) + 1)] for x in X]
    found = field.predict_entity_proba(X, scheme, spans=spans)
    for x, own, asked in zip(X, found, spans, strict=True):
        expected = enumerated(field, x, scheme)
        assert [each[:3] for each in own] == asked
        np.testing.assert_allclose([each[3] for each in own], [expected.get(span, 0.0) for span in asked], atol=1e-12)


@pytest.mark.parametrize("pairwise", ["full", PairwiseTables("full", segments=Segments(3, features="mean"))], ids=str)
def test_runs_of_labels_without_prefixes(pairwise):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (5, 1, 4, 3)]
    y = [np.repeat(rng.integers(3, size=len(x)), 2)[: len(x)] for x in X]
    field = TRWCRF(C=5.0, pairwise=pairwise, classes=[0, 1, 2], max_iter=20).fit(X, y)
    for x, found in zip(X, field.predict_entity_proba(X, scheme=None), strict=True):
        expected = enumerated(field, x, None)
        assert [each[:3] for each in found] == entities(field.predict([x])[0].tolist(), None)
        asked = field.predict_entity_proba([x], None, spans=[list(expected)])[0]
        np.testing.assert_allclose([each.probability for each in asked], list(expected.values()), atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, lambda x: Example(x, chain_edges(len(x)))])
def test_predicted_entities_where_pairs_are_forbidden(kind, scale):
    tables = PairwiseTables("full", forbidden="IOB2", boundary_weights=True)
    field, X = fitted("IOB2", tables, kind, scale)
    found, labels = field.predict_entity_proba(X), field.predict(X)
    assert any(found)
    for x, own, y in zip(X, found, labels, strict=True):
        assert [each[:3] for each in own] == entities(y)
        expected = enumerated(field, x, "IOB2")
        np.testing.assert_allclose([each.probability for each in own], [expected[each[:3]] for each in own], atol=1e-9)


def test_evidence_and_other_inputs():
    field, X = fitted("IOB2")
    field.set_params(missing_label="")
    evidence = [np.full(len(x), "", dtype=object) for x in X]
    evidence[0][:3] = ["B-X", "I-X", "O"]
    assert field.predict_entity_proba(X, evidence=evidence)[0][0] == pytest.approx(("X", 0, 2, 1.0))
    # One array of equal sequences, rows, a sequence without nodes, and no example with an entity.
    array = np.array([X[0], X[4]])
    listed = field.predict_entity_proba([X[0], X[4]])
    np.testing.assert_array_equal(np.concatenate(listed), np.concatenate(field.predict_entity_proba(array)))
    assert field.predict_entity_proba([X[0], np.zeros((0, 3))])[1] == []
    rows = TRWCRF().fit(np.eye(3)[[0, 1, 2, 0]], ["B-X", "O", "B-Y", "B-X"])
    proba = rows.predict_proba(np.eye(3))
    for own, p in zip(rows.predict_entity_proba(np.eye(3), spans=[[("X", 0, 1)]] * 3), proba, strict=True):
        assert own[0].probability == pytest.approx(p[rows.classes_.tolist().index("B-X")])


def test_threads_and_pipelines():
    field, X = fitted("BILOU")
    many = [x for x in X for _ in range(300)]
    one = field.predict_entity_proba(many, "BILOU")
    four = field.set_params(n_jobs=4).predict_entity_proba(many, "BILOU")
    assert list(one) == list(four)
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(3, 2)) for _ in range(9)], [["B-X", "I-X", "O"]] * 9
    tagger = make_pipeline(TRWCRF()).fit(X, y)
    assert tagger.predict_entity_proba(X)[0][0][:3] == ("X", 0, 2)


def test_wrong_arguments():
    field, X = fitted("IOB2")
    for spans, message in [
        ([[]], "spans must have a list of entities for each of 6 examples, got 1 lists"),
        ([[("X", 0, 5)], *[[]] * 5], r"an end of \('X', 0, 5\) in spans\[0\] must be between 0 and 4"),
        ([[("X", 1, 1)], *[[]] * 5], r"spans\[0\] has \('X', 1, 1\), which has no node"),
        ([["X"], *[[]] * 5], r"spans\[0\] must hold entities"),
    ]:
        with pytest.raises(ValueError, match=message):
            field.predict_entity_proba(X, spans=spans)
    with pytest.raises(ValueError, match=r"classes_\[0\] is 'B-X', not a label of IOE1"):
        field.predict_entity_proba(X, "IOE1")
    star = DRFClassifier(pairwise="full").fit([Example(np.eye(3), [[0, 1], [0, 2]])] * 2, [["O", "B-X", "O"]] * 2)
    with pytest.raises(ValueError, match="is not a chain"):
        star.predict_entity_proba([Example(np.eye(3), [[0, 1], [0, 2]])])
    assert not hasattr(M3NClassifier(), "predict_entity_proba")
