"""The contract of all estimators: equal copies, grid search, read-only input, and failed fits that change nothing."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from field_data import chains, noisy_blobs
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from sklearn_crf import (
    TRWCRF,
    Bilateral,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Spatial,
)
from sklearn_crf.inference import DenseMeanField, GraphCut, LoopyBP, TRWMessagePassing
from sklearn_crf.learning import ContrastiveTraining, Relaxation
from sklearn_crf.objectives import MapGenerator
from sklearn_crf.rtf import Cascade, FieldSolver, Splits

QUICK_TREES = {"max_depth": 1, "max_iter": 8, "split": Splits(min_samples_leaf=20), "random_state": 0}
QUICK_TREES |= {"filter_bank": None, "solver": FieldSolver(shrinkage=0.0)}


def iris():
    X, y = load_iris(return_X_y=True)
    return X[::5], y[::5]


def clean_blobs():
    X, y = noisy_blobs(6)
    return X, y.astype(float)


def scored_blobs():
    X, y = noisy_blobs(6)
    return np.concatenate([-np.square(X), -np.square(X - 1), X], axis=-1), y


def volumes(dtype):
    """Return volumes made of two slices of blobs."""
    X, y = noisy_blobs(12, side=6)
    return X.reshape(6, 2, *X.shape[1:]), y.reshape(6, 2, *y.shape[1:]).astype(dtype)


#: An estimator with an object among its parameters if it accepts objects, data, and two parameters to search over.
ESTIMATORS = {
    "DRFClassifier": (
        DRFClassifier(inference=LoopyBP(max_iter=30)),
        lambda: noisy_blobs(6),
        {"C": [0.01, 1.0], "learning": ["pma", "pl"]},
    ),
    "TRWCRF": (
        TRWCRF(learning=Relaxation(), inference=TRWMessagePassing(max_iter=30), max_iter=5),
        lambda: noisy_blobs(6, side=5),
        {"C": [0.01, 1.0], "learning__entropy": ["trw", "trivial"]},
    ),
    "TRWCRF on chains": (TRWCRF(classes=[0, 1, 2]), chains, {"C": [0.01, 1.0], "inference": ["auto", "map"]}),
    "M3NClassifier": (
        M3NClassifier(inference=GraphCut(nonsubmodular="qpbo"), random_state=0, tol=0.05),
        lambda: noisy_blobs(6),
        {"C": [0.01, 1.0], "solver": ["frank_wolfe", "bmrm"]},
    ),
    "DenseCRF": (
        DenseCRF((Spatial(1.5, weight=1.0),), image_channels=1, inference=DenseMeanField(max_iter=3), max_iter=20),
        scored_blobs,
        {"C": [0.01, 1.0], "kernels": [(Spatial(1.0),), (Spatial(1.5), Bilateral(3.0, 2.0))]},
    ),
    "ContrastiveCRF": (
        ContrastiveCRF(
            learning=ContrastiveTraining(generator=MapGenerator(LoopyBP(schedule="residual")), max_rounds=3),
            random_state=0,
        ),
        lambda: noisy_blobs(6),
        {"C": [0.01, 1.0], "learning__generator": ["map", None]},
    ),
    "MultiConditionalMFA": (MultiConditionalMFA(n_factors=1, random_state=0), iris, {"alpha": [0.1, 1.0]}),
    "RegressionTreeField": (RegressionTreeField("mse", **QUICK_TREES), clean_blobs, {"max_depth": [0, 1]}),
    "RegressionTreeFieldClassifier": (
        RegressionTreeFieldClassifier(**QUICK_TREES),
        lambda: noisy_blobs(6),
        {"max_depth": [0, 1]},
    ),
    "RegressionTreeField on volumes": (
        RegressionTreeField(cascade=Cascade(2, n_folds=2, joint=1), **QUICK_TREES | {"max_depth": 0}),
        lambda: volumes(float),
        {"window": [1, [[1, 0, 0], [0, 0, 1]]]},
    ),
    "RegressionTreeFieldClassifier on volumes": (
        RegressionTreeFieldClassifier(**QUICK_TREES),
        lambda: volumes(int),
        {"window": [1, 3]},
    ),
}

pytestmark = [
    pytest.mark.parametrize("name", ESTIMATORS),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def fitted():
    """Return a function that fits each estimator once; tests that change the estimator take a copy."""
    kept = {}

    def of(name):
        if name not in kept:
            estimator, data, _ = ESTIMATORS[name]
            X, y = data()
            kept[name] = clone(estimator).fit(X, y), X, y
        return kept[name]

    return of


def assert_same(one, other):
    """Check that predictions are equal, for one array or for ragged examples."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert_array_equal(a, b)


def test_copies_predict_the_same(name, fitted, tmp_path):
    model, X, _ = fitted(name)
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib"), copy.deepcopy(model)):
        assert_same(again.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < 40_000


def test_skops_loads_what_it_wrote(name, fitted):
    skops = pytest.importorskip("skops.io")
    model, X, _ = fitted(name)
    data = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=data)
    assert all(kind.startswith("sklearn_crf.") for kind in untrusted)
    assert_same(skops.loads(data, trusted=untrusted).predict(X), model.predict(X))


def test_clones_are_not_fitted_and_learn_the_same(name, fitted):
    model, X, y = fitted(name)
    again = clone(model)
    assert not [key for key in vars(again) if key.endswith("_") and not key.startswith("_")]
    plain = {key: value for key, value in model.get_params().items() if not hasattr(value, "get_params")}
    assert plain == {key: again.get_params()[key] for key in plain}
    assert_same(again.fit(X, y).predict(X), model.predict(X))


def test_searched_over_by_two_workers(name):
    estimator, data, grid = ESTIMATORS[name]
    X, y = data()
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=2, error_score="raise").fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.best_score_ > 0.4
    assert_same(search.predict(X), clone(estimator).set_params(**search.best_params_).fit(X, y).predict(X))


def test_read_only_examples(name, fitted):
    model, X, y = fitted(name)
    frozen = [[np.array(part) for part in parts] if isinstance(parts, list) else parts.copy() for parts in (X, y)]
    for part in (part for parts in frozen for part in (parts if isinstance(parts, list) else [parts])):
        part.setflags(write=False)
    again = clone(model).fit(*frozen)
    assert_same(again.predict(frozen[0]), model.predict(X))


def test_a_failed_fit_leaves_the_last_one_as_it_was(name, fitted):
    model, X, y = copy.deepcopy(fitted(name))
    before = pickle.dumps(model)
    bad = [part.copy() for part in X]
    # NaN marks missing features of some estimators.
    bad[1][(0,) * bad[1].ndim] = np.inf
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.fit(bad if isinstance(X, list) else np.array(bad), y)
    with pytest.raises(ValueError, match=r"\d"):
        model.fit(X, y[:-1])
    assert pickle.dumps(model) == before
