"""Entities of tagged sequences, and reports on them."""

import numpy as np
import pytest

from sklearn_crf.metrics import (
    entities,
    entity_f1_score,
    entity_scores,
    iou_report,
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
    ],
)
def test_entities(labels, scheme, found):
    assert entities(labels.split(), scheme) == found
    assert entities(np.array(labels.split()), scheme) == found


def test_both_schemes_see_the_same_entities():
    rng = np.random.default_rng(0)
    for _ in range(20):
        iob2, iobes = [], []
        for _ in range(rng.integers(1, 6)):
            length, kind = rng.integers(1, 4), rng.choice(["A", "B"])
            if rng.random() < 0.4:
                iob2 += ["O"] * length
                iobes += ["O"] * length
                continue
            iob2 += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
            iobes += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
        assert entities(iob2, "IOB2") == entities(iobes, "IOBES")


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
    table = iou_report(y, [np.array([0, 0, 0]), np.array([1, 1])], missing_label=-1).splitlines()
    assert table[1].split() == ["0", "0.500", "1.000", "1"]
    assert table[2].split() == ["1", "0.667", "0.667", "3"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entities(["B-A"], "BILOU"), "scheme must be one of"),
        (lambda: entities(["X-A"]), r"labels\[0\] is 'X-A', which is no IOB2 label"),
        (lambda: entity_scores([["O"]], []), "y_true has 1 sequences, but y_pred has 0"),
        (lambda: entity_scores([["O"]], [["O", "O"]]), r"y_true\[0\] has 1 labels, but y_pred\[0\] has 2"),
        (lambda: entity_scores(["O"], ["O"]), "is a single label: entities are counted in sequences"),
        (lambda: entity_scores([["O"], ["S-A"]], [["O"], ["O"]]), r"Sequence 1: labels\[0\] is 'S-A'"),
        (lambda: entity_f1_score([["O"]], [["O"]], average="all"), "average must be"),
        (lambda: iou_report([0, 1], [0, 1], target_names=["a"]), "target_names has 1 names, but there are 2"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
