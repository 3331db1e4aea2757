"""class_weight: the same as a weight of each node, or of each row, by its class."""

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier
from sklearn_crf.learning import GrowingSets, PiecewiseTraining, Relaxation
from sklearn_crf.objectives import MapGenerator

TIGHT = {"tol": 1e-9, "max_iter": 2000}
WEIGHT = np.array([0.3, 2.0])
# Losses that are sums over nodes, or have a cost of nodes.
OF_NODES = {
    "drf": DRFClassifier(learning="pl"),
    "trw_pl": TRWCRF(formulation="pseudolikelihood"),
    "trw_costs": TRWCRF(formulation=Relaxation(cost="hamming"), max_iter=30),
    "contrastive": ContrastiveCRF(sets=GrowingSets(generator="icm_mv"), random_state=0, max_iter=30),
}


@pytest.mark.parametrize("field", [DRFClassifier(), TRWCRF(), TRWCRF(formulation="piecewise")], ids=str)
@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.3, 2: 4.0}], ids=str)
def test_of_plain_rows_is_that_of_logistic_regression(field, class_weight):
    X, y = make_classification(200, 5, n_informative=4, n_redundant=0, n_classes=3, weights=[0.7, 0.2], random_state=0)
    sample_weight = np.random.default_rng(0).uniform(0.2, 2, size=200)
    field.set_params(class_weight=class_weight, **TIGHT)
    theirs = LogisticRegression(class_weight=class_weight, **TIGHT).fit(X, y).predict_proba(X)
    assert_allclose(field.fit(X, y).predict_proba(X), theirs, atol=1e-5)
    assert np.abs(field.fit(X, y, sample_weight).predict_proba(X) - theirs).max() > 1e-3


def test_of_plain_rows_weighs_contrastive_losses():
    X, y = make_classification(60, 4, weights=[0.7], random_state=0)
    field = ContrastiveCRF(class_weight={0: 0.3, 1: 2.0}, random_state=0, **TIGHT)
    by_class = field.fit(X, y).coef_
    assert_array_equal(by_class, field.set_params(class_weight=None).fit(X, y, sample_weight=WEIGHT[y]).coef_)


@pytest.mark.parametrize("field", OF_NODES.values(), ids=OF_NODES)
@pytest.mark.parametrize("form", [lambda images: images, list], ids=["array", "list"])
def test_of_images_is_node_weight(field, form):
    X, y = noisy_blobs(4, 6)
    node_weight = np.random.default_rng(0).uniform(0.5, 2, size=y.shape)
    field.set_params(class_weight=dict(enumerate(WEIGHT)))
    by_class = field.fit(form(X), form(y)).coef_.copy()
    both = field.fit(form(X), form(y), node_weight=form(node_weight)).coef_.copy()
    field.set_params(class_weight=None)
    assert_array_equal(by_class, field.fit(form(X), form(y), node_weight=form(WEIGHT[y])).coef_)
    assert_array_equal(both, field.fit(form(X), form(y), node_weight=form(WEIGHT[y] * node_weight)).coef_)
    assert np.abs(by_class - field.fit(form(X), form(y)).coef_).max() > 1e-3


@pytest.mark.parametrize("field", OF_NODES.values(), ids=OF_NODES)
def test_balanced_is_inversely_proportional_to_the_nodes_of_a_class(field):
    X, y = noisy_blobs(4, 6)
    by_hand = dict(enumerate(y.size / (2 * np.bincount(y.ravel()))))
    balanced = field.set_params(class_weight="balanced").fit(X, y).coef_.copy()
    assert_allclose(balanced, field.set_params(class_weight=by_hand).fit(X, y).coef_, rtol=1e-6)


def test_rows_without_a_label_count_for_nothing():
    X, y = make_classification(60, 4, random_state=0)
    known = np.arange(60) % 3 > 0
    partly = DRFClassifier(class_weight="balanced", missing_label=-1, **TIGHT).fit(X, np.where(known, y, -1))
    only = DRFClassifier(class_weight="balanced", **TIGHT).fit(X[known], y[known])
    assert_allclose(partly.coef_, only.coef_, atol=1e-5)


@pytest.mark.parametrize(
    "field",
    [
        DRFClassifier(learning="pma"),
        TRWCRF(),
        TRWCRF(formulation=PiecewiseTraining()),
        ContrastiveCRF(sets=GrowingSets(generator=MapGenerator())),
    ],
    ids=str,
)
def test_a_loss_that_is_no_sum_over_nodes_refuses_it(field):
    X, y = noisy_blobs(2, 4)
    name = type(field).__name__
    with pytest.raises(ValueError, match=f"class_weight weighs nodes, but the loss of {name} is not a sum over nodes"):
        field.set_params(class_weight="balanced").fit(X, y)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({5: 1.0}, "class_weight names the class 5, but the classes are"),
        ({0: -1.0}, "class_weight must be finite and not negative"),
        ({0: np.nan}, "class_weight must be finite and not negative"),
        ("half", "'class_weight' parameter of"),
    ],
)
@pytest.mark.parametrize("field", OF_NODES.values(), ids=OF_NODES)
def test_bad_values_are_named(field, class_weight, message):
    X, y = noisy_blobs(2, 4)
    with pytest.raises(ValueError, match=message):
        field.set_params(class_weight=class_weight).fit(X, y)
