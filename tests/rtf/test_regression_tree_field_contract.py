"""What both estimators of regression tree fields owe: scikit-learn's checks, weights, clear errors, threads."""

import pickle
import re

import numpy as np
import pytest
from estimator_contract import missing_checks, passed_checks
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.preprocessing import FilterBank

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

BOTH = [RegressionTreeField, RegressionTreeFieldClassifier]
QUICK = {"max_depth": 1, "max_iter": 8, "min_samples_leaf": 20, "random_state": 0}
CHECKED = {"max_depth": 1, "min_samples_leaf": 3, "max_iter": 30, "random_state": 0}
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"


def images(n=4, shape=(12, 16), n_channels=1, seed=0):
    """Blocks of 0 and 1, and the same with noise."""
    rng = np.random.default_rng(seed)
    y = np.kron(rng.integers(2, size=(n, shape[0] // 4, shape[1] // 4)), np.ones((4, 4), dtype=int))
    return y[..., None] + 0.5 * rng.normal(size=(*y.shape, n_channels)), y


def test_the_regressor_passes_the_checks_of_scikit_learn():
    because = "feature tests are random, and drawn differently for repeated samples; without chance see below"
    passed = passed_checks(RegressionTreeField(**CHECKED), {WEIGHTS: because})
    assert WEIGHTS not in passed
    assert len(passed) >= 50


def test_the_classifier_passes_the_checks_of_scikit_learn():
    passed = passed_checks(RegressionTreeFieldClassifier(**CHECKED))
    assert len(passed) >= 54
    # It has no weights of classes, takes no sparse data, and its coefficients are no matrix to make sparse.
    assert missing_checks(passed) <= {
        "check_class_weight_balanced_linear_classifier",
        "check_class_weight_classifiers",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_sparsify_coefficients",
    }


@pytest.mark.parametrize("split", ["gradient", "residual"])
@pytest.mark.parametrize("Field", BOTH)
def test_weights_equal_repetition(Field, split):
    # Every test at every offset, and all factors: then nothing is random.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = rng.normal(size=60) + np.where(X[:, 1] > 0, 2 * X[:, 0], 0)
    y = y if Field is RegressionTreeField else (y > 0).astype(int)
    # Unit vectors sum to one, which lets precisions grow to their bound, and that takes long.
    options = {} if Field is RegressionTreeField else {"encoding": "ordinal"}
    options |= {"tol": 1e-7, "max_iter": 500, "random_state": 0}
    weight = rng.integers(0, 4, size=60)
    options |= {"split": split, "n_feature_tests": None, "split_samples": None, "min_samples_leaf": 5, "max_depth": 1}
    weighted = Field(**options).fit(X, y, sample_weight=weight)
    repeated = Field(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    for key in ("test", "threshold"):
        assert_array_equal(weighted.trees_[0][key], repeated.trees_[0][key])
    assert len(weighted.precisions_[0]) == 2
    # Pixels are float32: the seven digits of scikit-learn's own check are more than they have.
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"filter_bank": FilterBank("haar")}, {"window": 5}])
@pytest.mark.parametrize("Field", BOTH)
def test_a_pickle_predicts_the_same_on_other_threads(Field, options):
    X, y = images()
    large = images(3, (60, 80), seed=1)[0]
    field = Field(n_jobs=1, **options, **QUICK).fit(X, y)
    predicted = field.predict(large)
    for n_jobs in (2, 3):
        again = pickle.loads(pickle.dumps(field)).set_params(n_jobs=n_jobs)
        assert_array_equal(again.predict(large), predicted)
        assert_array_equal(again.predict(large[:1]), predicted[:1])
    assert_array_equal(Field(n_jobs=2, **options, **QUICK).fit(X, y).predict(large[:1]), predicted[:1])


def changed(X, index, value):
    X = X.copy()
    X[index] = value
    return X


X, Y = images()
BAD = {
    "targets of another size": (X, Y[:, :, :15], "y[0] has shape (12, 15), but "),
    "another number of images": (X, Y[:3], "3"),
    "NaN in X": (changed(X, (1, 2, 3, 0), np.nan), Y, "X[1] contains NaN"),
    "infinity in X": (changed(X, (2, 2, 3, 0), np.inf), Y, "X[2] contains infinity"),
    "NaN in a list": (list(changed(X, (1, 2, 3, 0), np.nan)), list(Y), "X[1] contains NaN"),
    "channels that differ": (
        [X[0], np.dstack([X[1], X[1]])],
        list(Y[:2]),
        "X[1] has 2 features, but X[0] has 1: the last axis holds features",
    ),
    "smaller than the window": (
        X[:, :, :1],
        Y[:, :, :1],
        "window joins pixels 1 rows and 1 columns apart, but images of X have at most 12 rows and 1 columns",
    ),
    "volumes": (np.zeros((2, 3, 3, 3, 1)), np.zeros((2, 3, 3, 3)), "got lattices of 3 axes"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("Field", BOTH)
def test_bad_input_is_named(Field, name):
    bad_X, bad_y, message = BAD[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        Field(**QUICK).fit(bad_X, bad_y)


@pytest.mark.parametrize("Field", BOTH)
def test_bad_bounds_are_named(Field):
    for bounds in [(1.0, 0.1), (0.0, 1.0), (-1.0, 1.0), (1.0, np.inf), (1.0, 2.0, 3.0), 1.0, (np.nan, 1.0)]:
        with pytest.raises(ValueError, match="eigenvalue_bounds must be two positive numbers in ascending order, got"):
            Field(eigenvalue_bounds=bounds).fit(X, Y)


@pytest.mark.parametrize("Field", BOTH)
def test_bad_input_of_predict_is_named(Field):
    field = Field(**QUICK).fit(X, Y)
    name = Field.__name__
    with pytest.raises(ValueError, match=f"X has 2 features, but {name} is expecting 1"):
        field.predict(np.concatenate([X, X], axis=-1))
    with pytest.raises(ValueError, match=re.escape("X[1] contains NaN")):
        field.predict(changed(X, (1, 2, 3, 0), np.nan))
    with pytest.raises(ValueError, match="is one example where lattice_ndim=2: add a leading axis"):
        field.predict(X[0])
    # To predict, the pairs that there are will do.
    assert field.predict(X[:, :1, :1]).shape == (4, 1, 1)
    assert field.predict(X[:, :1]).shape == (4, 1, 16)
