"""class_weight of DRFClassifier: the same as a weight of each node, or of each row, by its class."""

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from sklearn_crf import DRFClassifier

TIGHT = {"tol": 1e-9, "max_iter": 2000}
WEIGHT = np.array([0.3, 2.0])


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.3, 2: 4.0}], ids=str)
def test_of_plain_rows_is_that_of_logistic_regression(class_weight):
    X, y = make_classification(200, 5, n_informative=4, n_redundant=0, n_classes=3, weights=[0.7, 0.2], random_state=0)
    sample_weight = np.random.default_rng(0).uniform(0.2, 2, size=200)
    ours = DRFClassifier(class_weight=class_weight, **TIGHT).fit(X, y, sample_weight)
    theirs = LogisticRegression(class_weight=class_weight, **TIGHT).fit(X, y)
    alone = DRFClassifier(class_weight=class_weight, **TIGHT).fit(X, y)
    assert_allclose(alone.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() > 1e-3


@pytest.mark.parametrize("form", [lambda images: images, list], ids=["array", "list"])
def test_of_images_is_node_weight(form):
    X, y = noisy_blobs(4, 6)
    node_weight = np.random.default_rng(0).uniform(0.5, 2, size=y.shape)
    field = DRFClassifier(learning="pl", class_weight=dict(enumerate(WEIGHT)))
    by_class = field.fit(form(X), form(y)).coef_.copy()
    both = field.fit(form(X), form(y), node_weight=form(node_weight)).coef_.copy()
    field.set_params(class_weight=None)
    assert_array_equal(by_class, field.fit(form(X), form(y), node_weight=form(WEIGHT[y])).coef_)
    assert_array_equal(both, field.fit(form(X), form(y), node_weight=form(WEIGHT[y] * node_weight)).coef_)
    assert np.abs(by_class - field.fit(form(X), form(y)).coef_).max() > 1e-3


def test_balanced_is_inversely_proportional_to_the_nodes_of_a_class():
    X, y = noisy_blobs(4, 6)
    counts = np.bincount(y.ravel())
    by_hand = dict(enumerate(y.size / (2 * counts)))
    balanced = DRFClassifier(learning="pl", class_weight="balanced").fit(X, y)
    assert_allclose(balanced.coef_, DRFClassifier(learning="pl", class_weight=by_hand).fit(X, y).coef_, rtol=1e-6)


def test_rows_without_a_label_count_for_nothing():
    X, y = make_classification(60, 4, random_state=0)
    known = np.arange(60) % 3 > 0
    partly = DRFClassifier(class_weight="balanced", missing_label=-1, **TIGHT).fit(X, np.where(known, y, -1))
    only = DRFClassifier(class_weight="balanced", **TIGHT).fit(X[known], y[known])
    assert_allclose(partly.coef_, only.coef_, atol=1e-5)


@pytest.mark.parametrize(
    ("learning", "class_weight", "message"),
    [
        ("pma", "balanced", "class_weight weighs nodes, but the loss of DRFClassifier is no sum over nodes"),
        ("pl", {5: 1.0}, "class_weight names the class 5, but the classes are"),
        ("pl", {0: -1.0}, "class_weight must be finite and not negative"),
        ("pl", {0: np.nan}, "class_weight must be finite and not negative"),
        ("pl", "half", "'class_weight' parameter of DRFClassifier"),
    ],
)
def test_what_has_no_meaning_is_an_error(learning, class_weight, message):
    X, y = noisy_blobs(2, 4)
    with pytest.raises(ValueError, match=message):
        DRFClassifier(learning=learning, class_weight=class_weight).fit(X, y)
