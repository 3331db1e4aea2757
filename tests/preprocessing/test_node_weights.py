"""Weights of nodes near boundaries, and weights that maximise the F1 score."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import f1_score

from sklearn_crf import TRWCRF, Example
from sklearn_crf.learning import TruncatedInference
from sklearn_crf.preprocessing import node_weights


def distances_to_change(labels):
    """Return the number of steps from each pixel across the nearest change of the label, by enumeration of paths."""
    places = list(product(*map(range, labels.shape)))
    changes = [
        place
        for place in places
        if any(labels[place] != labels[other] for other in places if np.abs(np.subtract(place, other)).sum() == 1)
    ]
    return np.array(
        [min((np.abs(np.subtract(p, q)).sum() + 1 for q in changes), default=np.inf) for p in places]
    ).reshape(labels.shape)


@pytest.mark.parametrize("distance", [1, 2, 3])
def test_boundaries_of_images(distance):
    y = np.zeros((2, 7, 8), dtype=int)
    y[0, 2:4, 3:6] = 1
    found = node_weights(y, boundary=0.5, distance=distance)
    expected = [np.where(distances_to_change(labels) <= distance, 1.5, 1.0) for labels in y]
    assert_array_equal(found, expected)
    assert_array_equal(node_weights(list(y), boundary=0.5, distance=distance)[0], expected[0])


def test_boundaries_of_graphs_with_missing_labels():
    X = [Example(np.zeros((5, 1)), [[0, 1], [1, 2], [2, 3], [0, 4]])]
    y = [np.array(["a", "a", "b", "?", "a"])]
    assert_array_equal(node_weights(y, X, boundary=1.0, missing_label="?")[0], [1, 2, 2, 1, 1])
    assert_array_equal(node_weights(y, X, boundary=1.0, distance=2, missing_label="?")[0], [2, 2, 2, 1, 1])


@pytest.mark.parametrize("missing", [None, np.nan, -1, "?", "masked", "pandas"])
def test_missing_labels_of_any_kind_belong_to_no_boundary(missing):
    known = np.array([True, True, True, False, True, True])
    names = np.array(["a", "a", "b", "?", "b", "b"])
    options = {}
    if missing == "masked":
        y = np.ma.masked_array(names, ~known)
    elif missing == "pandas":
        pandas = pytest.importorskip("pandas")
        y = pandas.array(np.where(known, names, None), dtype="string")
    elif missing == -1:
        y, options = np.where(known, (names == "b").astype(int), -1), {"missing_label": -1}
    elif missing == "?":
        y, options = names, {"missing_label": "?"}
    else:
        y = np.where(known, names.astype(object), missing)
    found = node_weights([y], boundary=1.0, distance=2, **options)[0]
    assert_array_equal(found, [2, 2, 2, 1, 1, 1])


def test_rows_have_no_boundaries():
    assert_array_equal(node_weights(np.array([0, 1, 1]), boundary=3.0), np.ones(3))


def test_f1_weights_raise_the_f1_score_of_a_rare_class():
    rng = np.random.default_rng(0)
    y = np.zeros((30, 12, 12), dtype=int)
    for image in y:
        row, column = rng.integers(9, size=2)
        image[row : row + 3, column : column + 3] = 1
    X = (y + 1.2 * rng.normal(size=y.shape))[..., np.newaxis]
    field = TRWCRF(learning=TruncatedInference(loss="univariate", n_sweeps=5))
    plain = f1_score(y[10:].ravel(), field.fit(X[:10], y[:10]).predict(X[10:]).ravel())
    weights = node_weights(y[:10], f1=plain, positive=1)
    assert_allclose(np.unique(weights), sorted({plain / 2, 1 - plain / 2}))
    weighted = field.fit(X[:10], y[:10], node_weight=weights).predict(X[10:])
    assert f1_score(y[10:].ravel(), weighted.ravel()) > plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundary": -1.0}, "boundary must be"),
        ({"boundary": 1.0, "distance": 0}, "distance must be"),
        ({"f1": 0.5}, "passed together"),
        ({"f1": 1.5, "positive": 1}, "f1 must be"),
        ({"X": []}, "X has 0 examples"),
        ({"X": [1], "boundary": 1.0}, "must be an Example"),
        ({"X": [Example(np.zeros((2, 1)), [])], "boundary": 1.0}, "3 labels, but"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        node_weights([np.array([0, 1, 1])], **options)


@pytest.mark.parametrize("missing_label", [None, -1])
def test_masked_labels_have_no_boundary(missing_label):
    labels = np.array([0, 0, 9, 1, 1, 2])
    masked = np.ma.masked_array(labels, labels == 9)
    found = node_weights([masked], boundary=2.0, missing_label=missing_label)[0]
    assert_array_equal(found, node_weights([np.where(labels == 9, -1, labels)], boundary=2.0, missing_label=-1)[0])
