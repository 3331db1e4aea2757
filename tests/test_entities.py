"""Entities of tagged sequences, and reports on them."""

from itertools import product

import numpy as np
import pytest

from sklearn_crf.metrics import (
    entities,
    entity_f1_score,
    entity_labels,
    entity_scores,
    node_classification_report,
    sequence_classification_report,
)


@pytest.mark.parametrize(
    ("labels", "scheme", "found"),
    [
        ("O O O", "IOB2", []),
        ("B-A I-A I-A", "IOB2", [("A", 0, 3)]),
        ("B-A B-A O", "IOB2", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A I-B O", "IOB2", [("A", 0, 1), ("B", 1, 2)]),
        ("I-A I-A O B-B", "IOB2", [("A", 0, 2), ("B", 3, 4)]),
        ("B-A-x I-A-x", "IOB2", [("A-x", 0, 2)]),
        ("B I O", "IOB2", [("", 0, 2)]),
        ("S-A S-A", "IOBES", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A I-A E-A O", "IOBES", [("A", 0, 3)]),
        ("B-A E-A I-A", "IOBES", [("A", 0, 2), ("A", 2, 3)]),
        ("E-A O", "IOBES", [("A", 0, 1)]),
        ("B-A L-A U-B", "BILOU", [("A", 0, 2), ("B", 2, 3)]),
        ("I-A B-A I-A", "IOB1", [("A", 0, 1), ("A", 1, 3)]),
        ("I-A E-A I-A", "IOE1", [("A", 0, 2), ("A", 2, 3)]),
        ("I-A E-A E-A", "IOE2", [("A", 0, 2), ("A", 2, 3)]),
    ],
)
def test_entities(labels, scheme, found):
    assert entities(labels.split(), scheme) == found
    assert entities(np.array(labels.split()), scheme) == found


def written(spans, n_tokens, scheme):
    """Return the labels that mark these spans (kind, start, stop), by the definition of each scheme."""
    labels = ["O"] * n_tokens
    for kind, start, stop in spans:
        after = any(other[0] == kind and other[2] == start for other in spans)
        before = any(other[0] == kind and other[1] == stop for other in spans)
        prefixes = ["I"] * (stop - start)
        if scheme == "IOB2" or (scheme == "IOB1" and after):
            prefixes[0] = "B"
        if scheme == "IOE2" or (scheme == "IOE1" and before):
            prefixes[-1] = "E"
        if scheme in ("IOBES", "BILOU"):
            prefixes[0], prefixes[-1] = "B", "E" if scheme == "IOBES" else "L"
            if stop - start == 1:
                prefixes = ["S" if scheme == "IOBES" else "U"]
        labels[start:stop] = [f"{prefix}-{kind}" for prefix in prefixes]
    return labels


SCHEMES = {"IOB1": "IOB", "IOB2": "IOB", "IOE1": "IOE", "IOE2": "IOE", "IOBES": "IOBES", "BILOU": "BILOU"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_are_those_that_were_written(scheme):
    rng = np.random.default_rng(0)
    for _ in range(200):
        spans, t = [], 0
        while t < 8:
            length = int(rng.integers(1, 4))
            if rng.random() < 0.7:
                spans.append((str(rng.choice(["A", "B"])), t, t + length))
            t += length
        labels = written(spans, t, scheme)
        assert entities(labels, scheme) == spans
        assert entities(labels, scheme, "strict") == spans
        assert entity_labels(spans[::-1], t, scheme) == labels
        for other in SCHEMES:
            assert entity_labels(entities(labels, scheme), t, other) == written(spans, t, other)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_entities_are_those_of_labels_that_the_scheme_writes(scheme):
    # For every labeling, strict and lenient mode find the same entities if and only if the scheme writes the entities
    # by this labeling.
    tags = ["O", *(f"{prefix}-{kind}" for prefix in SCHEMES[scheme] if prefix != "O" for kind in "AB")]
    for labels in product(tags, repeat=4 if len(tags) < 6 else 3):
        lenient, strict = entities(labels, scheme), entities(labels, scheme, "strict")
        assert set(strict) <= set(lenient)
        assert (strict == lenient) == (written(lenient, len(labels), scheme) == list(labels))


def conlleval_chunks(labels):
    """Return chunks as spans, by endOfChunk and startOfChunk of conlleval.pl."""
    found, start = [], None
    before, kind_before = "O", ""
    for t, label in enumerate([*labels, "O"]):
        tag, _, kind = label.partition("-")
        ends = before + tag in ("BB", "BO", "IB", "IO", "EE", "EI", "EO") or (before != "O" and kind_before != kind)
        begins = tag == "B" or before + tag in ("EE", "EI", "OE", "OI") or (tag != "O" and kind_before != kind)
        if start is not None and ends:
            found.append((kind_before, start, t))
            start = None
        if begins:
            start = t
        before, kind_before = tag, kind
    return found


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOE1", "IOE2"])
def test_lenient_entities_are_the_chunks_of_conlleval(scheme):
    tags = ["O", *(f"{prefix}-{kind}" for prefix in SCHEMES[scheme] if prefix != "O" for kind in "AB")]
    for labels in product(tags, repeat=4):
        assert entities(labels, scheme) == conlleval_chunks(labels)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([("A", 0, 2), ("B", 1, 3)], "must not overlap, but .* starts before the stop=2"),
        ([("A", 2, 5)], "is empty or outside of the n_tokens=4 tokens"),
        ([("A", 2, 2)], "is empty or outside of the n_tokens=4 tokens"),
    ],
)
def test_entities_that_no_labels_mark_are_named(found, message):
    with pytest.raises(ValueError, match=message):
        entity_labels(found, 4)
    with pytest.raises(ValueError, match="scheme must be one of"):
        entity_labels([], 4, "IOB")


def test_strict_scores_leave_out_what_breaks_the_scheme():
    true, predicted = [["B-A", "I-A", "O", "B-B"]], [["I-A", "I-A", "O", "B-B"]]
    assert entity_f1_score(true, predicted) == 1.0
    assert entity_f1_score(true, predicted, mode="strict") == pytest.approx(2 / 3)
    assert entity_scores(true, predicted, mode="strict")["A"] == (0.0, 0.0, 0.0, 1)
    report = sequence_classification_report(true, predicted, mode="strict").splitlines()
    assert report[1].split() == ["A", "0.000", "0.000", "0.000", "1"]


def test_scores():
    true = [["B-A", "I-A", "O", "B-B"], ["B-B", "O"]]
    predicted = [["B-A", "O", "O", "B-B"], ["B-B", "B-A"]]
    found = entity_scores(true, predicted)
    assert found["A"] == (0.0, 0.0, 0.0, 1)
    assert found["B"] == (1.0, 1.0, 1.0, 2)
    assert found["micro avg"] == (0.5, pytest.approx(2 / 3), pytest.approx(4 / 7), 3)
    assert found["macro avg"].f1 == 0.5
    assert found["weighted avg"].f1 == pytest.approx(2 / 3)
    assert entity_f1_score(true, predicted, average="macro") == 0.5
    assert list(found) == ["A", "B", "micro avg", "macro avg", "weighted avg"]


def test_no_entity_at_all():
    assert entity_f1_score([["O", "O"]], [["O", "O"]]) == 0.0
    assert "micro avg" in sequence_classification_report([["O"]], [["O"]])


def test_reports():
    report = sequence_classification_report([["B-A"]], [["B-A"]], digits=1).splitlines()
    assert report[1].split() == ["A", "1.0", "1.0", "1.0", "1"]
    y = [np.array([0, 1, -1]), np.array([1, 1])]
    assert "accuracy" in node_classification_report(y, y, missing_label=-1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entities(["B-A"], "BMES"), "scheme must be one of"),
        (lambda: entities(["B-A"], mode="harsh"), r"mode must be one of \['lenient', 'strict'\], got 'harsh'"),
        (lambda: entities(["X-A"]), r"labels\[0\] is 'X-A', not a label of IOB2"),
        (lambda: entity_scores([["O"]], []), "y_true has 1 sequences, but y_pred has 0"),
        (lambda: entity_scores([["O"]], [["O", "O"]]), r"y_true\[0\] has 1 labels, but y_pred\[0\] has 2"),
        (lambda: entity_scores(["O"], ["O"]), "is a single label: entities are counted in sequences"),
        (lambda: entity_scores([["O"], ["S-A"]], [["O"], ["O"]]), r"Sequence 1: labels\[0\] is 'S-A'"),
        (lambda: entity_f1_score([["O"]], [["O"]], average="all"), "average must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("wrong", [None, 3, "OBI", np.array("O")])
@pytest.mark.parametrize("function", [entity_scores, entity_f1_score])
def test_what_is_no_list_of_sequences_is_named(function, wrong):
    right = [["O", "B-PER"]]
    with pytest.raises(ValueError, match="y_true must be a list of sequences of labels"):
        function(wrong, right)
    with pytest.raises(ValueError, match="y_pred must be a list of sequences of labels"):
        function(right, wrong)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"])
def test_strict_entities_beside_seqeval(scheme):
    reference = pytest.importorskip("seqeval.scheme", reason="seqeval is not installed")
    prefixes = {"IOBES": "BIES", "BILOU": "BILU"}.get(scheme, "IE" if scheme.startswith("IOE") else "IB")
    tags = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in "AB")]
    others = []
    for labels in product(tags, repeat=3):
        theirs = reference.Entities([list(labels)], getattr(reference, scheme)).entities[0]
        if [tuple(own) for own in entities(labels, scheme, "strict")] != [(a.tag, a.start, a.end) for a in theirs]:
            others.append(labels)
    if scheme == "IOB1":
        # All differences have a B that follows no entity of its kind.
        assert ("O", "B-A", "I-A") in others
        assert all(written(entities(labels, scheme), 3, scheme) != list(labels) for labels in others)
    elif scheme == "IOE1":
        assert ("O", "E-A", "I-A") in others
        assert all(any(label.startswith("E") for label in labels) for labels in others)
    else:
        assert not others
