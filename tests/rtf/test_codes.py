"""Codes of classes: labels of values, weighted decisions, and distances of values from other labels."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf.rtf._codes import ClassCodes

COST = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
WEIGHT = np.array([0.5, 1.0, 4.0])
CODES = {
    "orthonormal": ClassCodes(3, "mse", "orthonormal"),
    "ordinal": ClassCodes(3, "mse", "ordinal"),
    "multinomial": ClassCodes(3, "multinomial", "orthonormal"),
    "logistic": ClassCodes(2, "logistic", "orthonormal"),
    "costs": ClassCodes(3, "multinomial", "orthonormal", cost=COST),
    "weighed": ClassCodes(3, "likelihood", "orthonormal", weight=WEIGHT),
    "weighed ordinal": ClassCodes(3, "likelihood", "ordinal", weight=WEIGHT),
    "a class of weight 0": ClassCodes(3, "likelihood", "ordinal", weight=np.array([1.0, 0.0, 2.0])),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_have_the_labels_of_their_classes(name):
    codes = CODES[name]
    if name != "a class of weight 0":
        scores = 10 if codes.are_scores else 1
        assert codes.labels(scores * codes.table).tolist() == list(range(codes.n_classes))


@pytest.mark.parametrize("name", CODES)
def test_no_label_changes_within_its_distance(name):
    codes, rng = CODES[name], np.random.default_rng(0)
    value = rng.normal(size=(300, codes.table.shape[1])) + rng.integers(3, size=(300, 1)) * codes.are_ordinal
    label, distance = codes.labels(value), codes.distances(value)
    for _ in range(200):
        step = rng.normal(size=value.shape)
        step *= 0.999 * distance[:, None] / np.linalg.norm(step, axis=1, keepdims=True)
        assert_array_equal(codes.labels(value + step), label)


@pytest.mark.parametrize("name", ["ordinal", "weighed ordinal", "a class of weight 0", "logistic"])
def test_the_label_of_one_value_changes_past_its_distance(name):
    codes, rng = CODES[name], np.random.default_rng(1)
    value = rng.uniform(-0.5, 2.5, size=(200, 1))
    past = 1.001 * codes.distances(value)[:, None] + 1e-9
    changed = [codes.labels(value + side * past) != codes.labels(value) for side in (1, -1)]
    assert np.all(changed[0] | changed[1])


def test_weighed_labels_of_ordinal_codes_are_those_of_mixtures_of_the_nearest_two():
    codes = CODES["weighed ordinal"]
    # A fourth of class 1 and three fourths of class 0: 0.25 * 1 compared with 0.75 * 0.5.
    assert codes.labels(np.array([[0.25], [0.34], [1.19], [1.21], [-3.0], [7.0]])).tolist() == [0, 1, 1, 2, 0, 2]
    assert codes.labels(np.array([[0.34]]), is_weighed=False).tolist() == [0]
