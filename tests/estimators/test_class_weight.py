"""class_weight acts like a weight of each node, or of each row, by its class."""

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example
from sklearn_crf.learning import ContrastiveTraining, Relaxation
from sklearn_crf.objectives import MapGenerator

TIGHT = {"tol": 1e-9, "max_iter": 2000}
WEIGHT = np.array([0.3, 2.0])
# Learning methods whose losses are sums over nodes, or have costs of nodes.
OF_NODES = {
    "drf": DRFClassifier(learning="pl"),
    "trw_pl": TRWCRF(learning="pseudolikelihood"),
    "trw_pieces": TRWCRF(learning="piecewise"),
    "trw_costs": TRWCRF(learning=Relaxation(cost="hamming"), max_iter=30),
    "contrastive": ContrastiveCRF(learning=ContrastiveTraining(generator="icm_mv"), random_state=0, max_iter=30),
}


@pytest.mark.parametrize("field", [DRFClassifier(), TRWCRF(), TRWCRF(learning="piecewise")], ids=str)
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


# Learning methods that maximise likelihoods of whole examples.
JOINT = {
    "drf": DRFClassifier(**TIGHT),
    "drf spa": DRFClassifier(learning="spa", inference="map", max_iter=20),
    "trw": TRWCRF(learning=Relaxation(tol=1e-10), **TIGHT),
    "trw loopy": TRWCRF(learning="loopy", **TIGHT),
    "shared pieces": TRWCRF(learning="shared_pieces", **TIGHT),
    "contrastive": ContrastiveCRF(learning=ContrastiveTraining(generator=MapGenerator()), random_state=0, **TIGHT),
}


def layouts():
    """Return labelled examples by layout."""
    X, y = noisy_blobs(4, 6)
    edges = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])
    graphs = [Example(part.reshape(-1, X.shape[-1])[:4], edges) for part in X]
    return {
        "images": (X, y),
        "list": (list(X), list(y)),
        "chains": (X[:, 2], y[:, 2]),
        "graphs": (graphs, [own.reshape(-1)[12:16] for own in y]),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("field", JOINT.values(), ids=JOINT)
def test_of_joint_likelihoods_weighs_examples_by_the_mean_of_their_nodes(field, layout):
    X, y = layouts()[layout]
    mean = np.array([WEIGHT[own].mean() for own in y])
    by_class = clone(field).set_params(class_weight=dict(enumerate(WEIGHT))).fit(X, y)
    by_example = clone(field).fit(X, y, sample_weight=mean)
    assert_array_equal(by_class.coef_, by_example.coef_)
    assert_array_equal(by_class.edge_coef_, by_example.edge_coef_)


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("name", ["drf", "trw", "trw loopy", "shared pieces"])
def test_of_joint_likelihoods_weighs_the_marginals_of_decisions(name, layout):
    X, y = layouts()[layout]
    field = clone(JOINT[name]).set_params(class_weight={0: 1.0, 1: 30.0}).fit(X, y)
    assert_array_equal(field.decision_weight_, [1.0, 30.0])
    changed = 0
    for found, probability in zip(field.predict(X), field.predict_proba(X), strict=True):
        assert_array_equal(found, np.argmax(probability * [1.0, 30.0], axis=-1))
        changed += np.count_nonzero(found != np.argmax(probability, axis=-1))
    assert changed
    # A best labeling is one decision about a whole example, with a weight known in training.
    best = np.concatenate([np.ravel(found) for found in field.predict(X, inference="map")])
    plain = field.set_params(class_weight=None)
    assert_array_equal(best, np.concatenate([np.ravel(found) for found in plain.predict(X, inference="map")]))


def test_decisions_weigh_costs_and_evidence_as_well():
    X, y = noisy_blobs(4, 6)
    cost = np.array([[0.0, 2.0], [1.0, 0.0]])
    field = DRFClassifier(class_weight={0: 0.0, 1: 5.0}, cost=cost, missing_label=-1).fit(X, y)
    expected = np.argmin((field.predict_proba(X) * [0.0, 5.0]) @ cost.T, axis=-1)
    assert_array_equal(field.predict(X), expected)
    # A known label is predicted, even if its class has no weight.
    known = np.where(np.arange(y.size).reshape(y.shape) % 5 == 0, 0, -1)
    assert np.all(field.predict(X, evidence=known)[known == 0] == 0)


def test_examples_of_one_node_are_rows():
    X, y = make_classification(80, 4, n_classes=3, n_informative=4, n_redundant=0, random_state=0)
    for field in (DRFClassifier(**TIGHT), TRWCRF(**TIGHT), ContrastiveCRF(random_state=0, **TIGHT)):
        field.set_params(class_weight="balanced")
        rows = clone(field).fit(X, y)
        chains = clone(field).fit(X[:, np.newaxis], y[:, np.newaxis])
        assert rows.decision_weight_ is None
        assert_allclose(chains.predict_proba(X[:, np.newaxis])[:, 0], rows.predict_proba(X), atol=1e-5)
        assert_array_equal(chains.predict(X[:, np.newaxis])[:, 0], rows.predict(X))


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 0.3, 1: 4.0}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_contrastive_rows_are_logistic_regression(class_weight, n_classes):
    # If training labels have errors, generated labelings are only in the set of the pseudolikelihood.
    X, y = make_classification(
        200, 5, n_informative=4, n_redundant=0, n_classes=n_classes, weights=[0.6, 0.2], flip_y=0.2, random_state=0
    )
    theirs = LogisticRegression(class_weight=class_weight, **TIGHT).fit(X, y)
    for rows in (X, csr_matrix(X)):
        ours = ContrastiveCRF(class_weight=class_weight, random_state=0, **TIGHT).fit(rows, y)
        assert_allclose(ours.predict_proba(rows), theirs.predict_proba(X), atol=1e-5)
        assert ours.converged_


def test_pieces_of_nodes_are_weighed():
    X, y = noisy_blobs(4, 6)
    field = TRWCRF(learning="piecewise", pairwise="potts", class_weight="balanced", **TIGHT).fit(X, y)
    # Nodes and edges are independent, so the nodes are a weighted logistic regression.
    rows = LogisticRegression(class_weight="balanced", **TIGHT).fit(X.reshape(-1, X.shape[-1]), y.ravel())
    assert_allclose(field.coef_, rows.coef_, atol=1e-4)
    assert_allclose(field.intercept_, rows.intercept_, atol=1e-4)
    plain = clone(field).set_params(class_weight=None).fit(X, y)
    assert_allclose(field.edge_coef_, plain.edge_coef_, atol=1e-4)


@pytest.mark.parametrize(
    "field", [DRFClassifier(), TRWCRF(), ContrastiveCRF(), TRWCRF(learning="shared_pieces")], ids=str
)
def test_joint_likelihoods_name_what_takes_weights_of_nodes(field):
    X, y = noisy_blobs(2, 4)
    message = "node_weight weighs nodes, but the loss of learning=.*use sample_weight or class_weight"
    with pytest.raises(ValueError, match=message):
        field.fit(X, y, node_weight=np.ones(y.shape))


@pytest.mark.parametrize("field", [DRFClassifier(), DRFClassifier(learning="pl"), TRWCRF(), ContrastiveCRF()], ids=str)
def test_weights_that_leave_nothing_are_an_error(field):
    X, y = noisy_blobs(2, 4)
    field.set_params(class_weight={0: 0.0}, classes=[0, 1])
    with pytest.raises(ValueError, match="class_weight times sample_weight and node_weight is 0"):
        field.fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match="class_weight is 0 for every class"):
        field.set_params(class_weight={0: 0.0, 1: 0.0}).fit(X, y)


def test_a_class_that_training_lacks_has_weight_1():
    X, y = noisy_blobs(4, 6)
    field = TRWCRF(class_weight="balanced", classes=[0, 1, 2]).fit(X, y)
    assert field.decision_weight_[2] == 1
    assert field.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({5: 1.0}, "class_weight contains the class 5, but the classes are"),
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
