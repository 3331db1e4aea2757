"""Which pairs of labels a table forbids, listed or by the name of a scheme of entities."""

from itertools import pairwise, product

import numpy as np
import pytest

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier
from sklearn_crf.metrics import entities
from sklearn_crf.potentials import PairwiseTables


def marked(labels, scheme):
    """The labels that mark the entities which the given ones are read as."""
    tags = ["O"] * len(labels)
    for kind, start, stop in entities(labels, scheme):
        tags[start:stop] = [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 1)]
        if scheme == "IOBES":
            tags[stop - 1] = f"S-{kind}" if stop - start == 1 else f"E-{kind}"
    return tags


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES"])
def test_schemes_of_entities_forbid_what_breaks_them(scheme):
    prefixes = {"IOB2": "BI", "IOBES": "BIES"}[scheme]
    classes = np.array(sorted([f"{prefix}-{kind}" for prefix in prefixes for kind in "XY"] + ["O"]))
    mask = PairwiseTables(forbidden=scheme).forbidden_pairs(classes)
    for states in product(range(len(classes)), repeat=3):
        labels = classes[list(states)].tolist()
        whole = labels[0][0] in "BSO" and (scheme == "IOB2" or labels[-1][0] in "ESO")
        allowed = not any(mask[a, b] for a, b in pairwise(states))
        assert (whole and allowed) == (marked(labels, scheme) == labels)


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
    with pytest.raises(ValueError, match=r"y\[0\] has the labels O and I-X on an edge, a pair that forbidden names"):
        TRWCRF(pairwise=PairwiseTables(forbidden="IOB2")).fit(X, y)


@pytest.mark.parametrize("classes", [[0, 1], ["B-X", "NOUN"], ["E-X", "O"]])
def test_schemes_of_entities_need_their_labels(classes):
    with pytest.raises(ValueError, match="forbidden='IOB2' needs labels that begin with one of"):
        PairwiseTables(forbidden="IOB2").forbidden_pairs(np.array(classes))
