"""Default options of tree fields, for labels, and for values on chains."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.rtf import FieldSolver, Window, _tuning


def squares(n, rng):
    y = np.zeros((n, 16, 16), dtype=int)
    for image in y:
        top, left = rng.integers(2, 8, size=2)
        image[top : top + 6, left : left + 6] = 1
    return y[..., np.newaxis] + 0.7 * rng.normal(size=(*y.shape, 1)), y


def blocks(n, rng):
    y = np.kron(rng.integers(3, size=(n, 4, 4)), np.ones((4, 4), dtype=int))
    return y[..., np.newaxis] + 0.7 * rng.normal(size=(*y.shape, 1)), y


@pytest.mark.parametrize("task", [squares, blocks])
def test_small_images_are_labelled_better_than_pixel_by_pixel_without_a_warning(task):
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = task(10, rng), task(10, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = RegressionTreeFieldClassifier(random_state=0).fit(X, y)
    pixels = LogisticRegression().fit(X.reshape(-1, 1), y.ravel())
    assert field.score(X_test, y_test) > pixels.score(X_test.reshape(-1, 1), y_test.ravel()) + 0.05
    np.testing.assert_allclose(field.predict_proba(X_test).sum(axis=-1), 1.0, rtol=1e-6)


def strokes():
    """Return a noisy rectangle, labels of two strokes, and the truth; the columns on the right have no labels."""
    truth = np.zeros((40, 60), dtype=int)
    truth[10:32, 15:45] = 1
    X = truth + 0.5 * np.random.default_rng(0).normal(size=truth.shape)
    y = np.full_like(truth, -1)
    y[2:6, 4:40], y[15:25, 20:24] = 0, 1
    return X[None, ..., None], y[None], truth


def test_strokes_are_learned_from_where_no_label_could_be_held_out():
    X, y, truth = strokes()
    field = RegressionTreeFieldClassifier(missing_label=-1).fit(X, y)
    assert field.validation_curve_.size == 0
    assert np.mean(field.predict(X)[0] == truth) > 0.9
    with pytest.raises(ValueError, match="early_stopping=True needs known values of y both in"):
        field.set_params(solver=FieldSolver(early_stopping=True)).fit(X, y)


def test_parts_of_an_image_are_drawn_until_one_has_a_label():
    X, y, _ = strokes()
    y[0, :, :20] = -1
    field = RegressionTreeFieldClassifier(missing_label=-1, solver=FieldSolver(max_samples=60)).fit(X, y)
    assert np.all(np.isfinite(field.predict_proba(X)))


def test_a_round_without_labels_says_so(monkeypatch):
    monkeypatch.setattr(_tuning, "MOST_DRAWS", 1)
    X, y, _ = strokes()
    y[:] = -1
    y[0, 0, :2] = 0, 1
    field = RegressionTreeFieldClassifier(missing_label=-1, solver=FieldSolver(max_samples=60), random_state=0)
    with pytest.raises(ValueError, match="y has no known values among the pixels sampled for a round"):
        field.fit(X, y)


def levels(n, rng):
    """Return sequences that jump between two levels, with and without noise."""
    y = np.where(np.cumsum(rng.random((n, 200)) < 0.02, axis=1) % 2, 1.0, -1.0) * rng.uniform(0.5, 1.5, size=(n, 1))
    return (y + 0.7 * rng.normal(size=y.shape))[..., np.newaxis], y


def test_trees_on_chains_stop_growing_by_what_is_held_out():
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = levels(30, rng), levels(20, rng)
    window = Window(5, lattice_ndim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = RegressionTreeField(window=window, random_state=0).fit(X, y)
    assert field.validation_curve_.size > 0
    options = {"max_iter": 50, "solver": FieldSolver(early_stopping=False, shrinkage=0.0)}
    grown = RegressionTreeField(window=window, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        grown.fit(X, y)
    assert mean_squared_error(y_test, field.predict(X_test)) < mean_squared_error(y_test, grown.predict(X_test))
    # With fewer nodes, none is held out.
    assert RegressionTreeField(window=window, random_state=0).fit(X[:9], y[:9]).validation_curve_.size == 0


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("unit", [2.0**-20, 2.0**-7, 2.0**10])
def test_no_default_depends_on_the_unit_of_values(loss, unit):
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=(6, 24, 24)), axis=1)
    X = (y + 2 * rng.normal(size=y.shape))[..., np.newaxis]
    found, in_units = (RegressionTreeField(loss, random_state=0).fit(u * X[:4], u * y[:4]) for u in (1.0, unit))
    error, error_in_units = (
        mean_squared_error(y[4:].ravel(), field.predict(u * X[4:]).ravel() / u)
        for field, u in ((found, 1.0), (in_units, unit))
    )
    assert error < 0.7 * np.mean((X[4:, ..., 0] - y[4:]) ** 2)
    # Errors much smaller than the smoothing of "mae" count squared.
    np.testing.assert_allclose(error_in_units, error, rtol=0.02 if loss == "mse" else 0.2)


def test_precision_channels_that_sums_lose_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 20, 20, 1))
    with pytest.raises(
        ValueError, match=r"channel 0 of X has values near 1e\+07 that differ by .*: subtract a constant"
    ):
        RegressionTreeField(window=Window(precision_channels=[0])).fit(1e7 + X, X[..., 0])


def regimes(n, rng):
    """Return sequences that stay long in one of three regimes, observed with noise."""
    y = np.cumsum(rng.random((n, 25)) < 0.1, axis=1) % 3
    X = np.stack([np.sin(2.1 * y), np.cos(2.1 * y)], axis=-1)
    return X + rng.normal(size=X.shape), y


def test_trees_on_few_nodes_of_chains_have_the_depth_that_these_can_bear():
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = regimes(40, rng), regimes(60, rng)

    def fitted(n, **options):
        # The penalty on scores would restrain trees that are too deep.
        field = RegressionTreeFieldClassifier(random_state=0, solver=FieldSolver(ridge=0.0), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return field.fit(X[:n], y[:n])

    def loss(field):
        return log_loss(y_test.ravel(), field.predict_proba(X_test).reshape(-1, 3))

    def depth(field):
        return len(field.round_ends_) - 1

    field = fitted(40)
    assert loss(field) < 0.8 * loss(fitted(40, max_depth=5))
    assert depth(fitted(5)) < depth(field) < 5
    assert depth(fitted(5, max_depth=2)) == 2


def test_small_tables_do_not_make_scores_too_certain():
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = RegressionTreeFieldClassifier(random_state=0).fit(X, y)
    assert log_loss(y_test, field.predict_proba(X_test)) < 0.2
    field.set_params(solver=FieldSolver(ridge=0.0)).fit(X, y)
    assert log_loss(y_test, field.predict_proba(X_test)) > 0.4


@pytest.mark.parametrize(("loss", "n_classes"), [("multinomial", 3), ("logistic", 2)])
def test_the_ridge_of_one_leaf_is_that_of_logistic_regression_on_white_features(loss, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    options = {"max_depth": 0, "max_iter": 2000, "tol": 1e-7, "solver": FieldSolver(ridge=2.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field = RegressionTreeFieldClassifier(loss, **options).fit(X, y)
    white = PCA(whiten=True).fit_transform(X) * np.sqrt(len(X) / (len(X) - 1))
    # An intercept, which LogisticRegression does not penalise, is the weight of a constant feature here.
    features = np.column_stack([white, np.ones(len(X))])
    linear = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-8, max_iter=1000).fit(features, y)
    np.testing.assert_allclose(field.predict_proba(X), linear.predict_proba(features), atol=2e-3)


def test_losses_without_scores_have_no_ridge():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"ridge of FieldSolver needs a loss of scores, .* got loss='mse'"):
        RegressionTreeFieldClassifier("mse", solver=FieldSolver(ridge=1.0)).fit(X, y)
