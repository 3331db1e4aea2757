"""Learning through a fixed number of sweeps: the objective, and prediction with the same sweeps."""

import pickle

import numpy as np
import pytest
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference.messages._fixed_sweeps import SWEEP_LOSSES, FixedSweeps
from sklearn_crf.learning import TruncatedInference
from sklearn_crf.objectives import EmpiricalRisk, TruncatedLoss
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

METHODS = ("trw", "loopy", "mean_field")


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    y = np.zeros((6, 8, 9), dtype=int)
    for image in y:
        row, column = rng.integers(5, size=2)
        image[row : row + 4, column : column + 4] = 1
    X = np.stack([y + rng.normal(size=y.shape), rng.normal(size=y.shape)], axis=-1)
    return X, y


@pytest.mark.parametrize("loss", SWEEP_LOSSES)
@pytest.mark.parametrize("method", METHODS)
def test_gradient_by_weights(method, loss):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=(2, 3, 4))
    X = rng.normal(size=(2, 3, 4, 2)) + y[..., None]
    encoded = encode_X(X, edge_features="difference", edge_types="tied")
    batches = make_batches(encoded, encode_y(y, encoded).labels)
    potentials = LinearPotentials(2, 3, make_pairwise_form("symmetric", 3), n_edge_features=3)
    risk = EmpiricalRisk(TruncatedLoss(FixedSweeps(method=method, n_sweeps=4), loss), potentials, batches)
    coef = 0.5 * rng.normal(size=potentials.n_coef)
    by_weights = five_point(lambda w: risk.value_grad(w).value, coef)
    assert_allclose(risk.value_grad(coef).gradient, by_weights, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
def test_every_classifier_learns_and_predicts_by_its_sweeps(kind, method, images):
    X, y = images
    learning = TruncatedInference(inference=method, n_sweeps=3)
    field = kind(learning=learning, edge_features="constant", random_state=0).fit(X, y)
    assert field.learning_ == "truncated"
    assert field.converged_
    assert np.abs(field.edge_coef_).max() > 0.1
    assert field.loss_curve_[-1] < field.loss_curve_[0]
    sweeps = FixedSweeps(method=method, n_sweeps=3, edge_probabilities="chains")
    for model, labels in zip(field.models(X), field.predict(X), strict=True):
        assert_array_equal(sweeps.marginals(model).unary.argmax(axis=1), labels.ravel())


def test_default_starts_from_nodes_alone(images):
    X, y = images
    options = {"edge_features": "constant", "pairwise": "ising"}
    alone = TRWCRF(learning="truncated", **options).fit(X, y)
    rows = LogisticRegression(tol=1e-8).fit(X.reshape(-1, 2), y.ravel())
    start = np.r_[rows.coef_[0], rows.intercept_, 0.0]
    found = TRWCRF(learning=TruncatedInference(init=start), **options).fit(X, y)
    assert_allclose(alone.loss_curve_[0], found.loss_curve_[0], rtol=1e-3)


def test_rows_are_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + rng.normal(size=80) > 0).astype(int)
    for loss in ("clique", "univariate"):
        field = TRWCRF(learning=TruncatedInference(loss=loss), tol=1e-8).fit(X, y)
        rows = LogisticRegression(tol=1e-10).fit(X, y)
        assert_allclose(field.predict_proba(X), rows.predict_proba(X), atol=1e-5)


def test_class_weight_is_a_factor_of_each_node(images):
    X, y = images
    options = {"learning": TruncatedInference(loss="univariate", n_sweeps=3), "edge_features": "constant"}
    weighted = TRWCRF(class_weight={0: 1.0, 1: 3.0}, **options).fit(X, y)
    by_node = TRWCRF(**options).fit(X, y, node_weight=np.where(y == 1, 3.0, 1.0))
    plain = TRWCRF(**options).fit(X, y)
    assert_allclose(weighted.coef_, by_node.coef_, rtol=1e-3, atol=1e-3)
    assert np.mean(weighted.predict(X) == 1) > np.mean(plain.predict(X) == 1)


def test_clique_loss_has_no_weights_of_nodes(images):
    X, y = images
    with pytest.raises(ValueError, match="node_weight"):
        TRWCRF(learning="truncated").fit(X, y, node_weight=np.ones(y.shape))


def test_example_weights_are_copies(images):
    X, y = images
    options = {"learning": TruncatedInference(n_sweeps=3), "edge_features": "constant", "tol": 1e-7}
    weighted = TRWCRF(**options).fit(X[:3], y[:3], sample_weight=[2, 1, 1])
    repeated = TRWCRF(**options).fit(X[[0, 0, 1, 2]], y[[0, 0, 1, 2]])
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-3, atol=1e-3)


def test_unlabelled_nodes_have_no_loss(images):
    X, y = images
    y = y.copy()
    y[:, :, 4:] = -1
    field = TRWCRF(learning=TruncatedInference(n_sweeps=3), missing_label=-1, edge_features="constant")
    assert field.fit(X, y).score(X, y) > 0.8


def test_irregular_graphs_of_several_states():
    rng = np.random.default_rng(0)
    examples, labels = [], []
    for n in (5, 7, 9, 4, 6):
        edges = [[i, (i + 1) % n] for i in range(n)] + [[0, 2]]
        labels.append(np.sort(rng.integers(3, size=n)))
        examples.append(Example(np.eye(3)[labels[-1]] + rng.normal(size=(n, 3)), edges))
    for method in METHODS:
        field = TRWCRF(learning=TruncatedInference(inference=method)).fit(examples, labels)
        assert field.score(examples, labels) > 0.7
        again = pickle.loads(pickle.dumps(field))
        for one, other in zip(field.predict_proba(examples), again.predict_proba(examples), strict=True):
            assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bits_do_not_depend_on_threads(images):
    X, y = images
    one, two = (TRWCRF(learning="truncated", max_iter=5, n_jobs=n).fit(X, y) for n in (1, 2))
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)


def test_single_precision(images):
    X, y = images
    wide, narrow = (TRWCRF(learning="truncated").fit(X.astype(dtype), y) for dtype in (float, np.float32))
    assert narrow.score(X.astype(np.float32), y) == pytest.approx(wide.score(X, y), abs=0.02)
