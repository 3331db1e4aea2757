"""Splitting and cross-validated prediction of structured labels."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from lattice_inputs import NodewiseClassifier, labelled_images
from sklearn.base import is_classifier
from sklearn.datasets import load_iris
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, HalvingGridSearchCV, KFold, ShuffleSplit, StratifiedKFold
from sklearn.model_selection import cross_val_predict as flat_cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, MultiLabelField, RegressionTreeFieldClassifier
from sklearn_crf.encoding import make_object_array
from sklearn_crf.model_selection import StratifiedLatticeKFold, cross_val_predict
from sklearn_crf.preprocessing import NodeTransformer


def counts_per_fold(splitter, y, classes):
    return np.array(
        [
            [sum(np.count_nonzero(np.asarray(y[i]) == c) for i in test) for c in classes]
            for _, test in splitter.split(np.zeros(len(y)), y)
        ]
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(5, 30), st.integers(0, 999), st.booleans())
def test_folds_partition_the_examples(n_splits, n_examples, seed, shuffle):
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=rng.integers(1, 6)) for _ in range(n_examples)]
    splitter = StratifiedLatticeKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    assert splitter.get_n_splits(y, y) == n_splits
    sizes, seen = [], []
    for train, test in splitter.split(y, y):
        assert np.array_equal(np.sort(np.concatenate((train, test))), np.arange(n_examples))
        sizes.append(len(test))
        seen.extend(test)
    assert sorted(seen) == list(range(n_examples))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("where", [[0], [3, 3, 10], [11] * 7])
def test_examples_without_labels_do_not_change_the_folds_of_others(where, shuffle):
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=rng.integers(1, 6)) for _ in range(11)]
    splitter = StratifiedLatticeKFold(3, shuffle=shuffle, random_state=0, missing_label=-1)
    expected = [test.tolist() for _, test in splitter.split(y, y)]
    numbers = np.insert(np.arange(11), where, -1).tolist()
    for extra in (np.empty(0, dtype=int), np.full(2, -1)):
        more = [extra if i < 0 else y[i] for i in numbers]
        found = [test for _, test in splitter.split(more, more)]
        assert [[numbers[i] for i in test if numbers[i] >= 0] for test in found] == expected
        assert np.ptp([len(test) for test in found]) <= 1


def test_labels_are_balanced_where_plain_folds_are_not():
    rng = np.random.default_rng(0)
    # Sorted by class, like many files on a disk.
    y = [np.where(rng.random((4, 5)) < 0.9, i // 10, 3) for i in range(30)]
    ours = counts_per_fold(StratifiedLatticeKFold(5), y, range(4))
    plain = counts_per_fold(KFold(5), y, range(4))
    assert np.all(np.ptp(ours, axis=0) <= 20)
    assert np.ptp(plain, axis=0).max() >= 80


def test_a_rare_class_is_spread():
    y = [np.array([0, 0, 0, int(i in (0, 1, 2))]) for i in range(12)]
    assert counts_per_fold(StratifiedLatticeKFold(3), y, [1]).ravel().tolist() == [1, 1, 1]


def test_plain_labels_are_stratified_as_by_scikit_learn():
    y = load_iris().target
    ours = counts_per_fold(StratifiedLatticeKFold(5), y, range(3))
    assert np.array_equal(ours, counts_per_fold(StratifiedKFold(5), y, range(3)))


def test_missing_labels_and_strings():
    y = [np.array(["a", "?", "?"]), np.array(["b", "a", "?"])] * 3
    objects_y = [np.where(part == "?", None, part) for part in y]
    expected = list(StratifiedLatticeKFold(3, missing_label="?").split(y, y))
    for (_, a), (_, b) in zip(expected, StratifiedLatticeKFold(3).split(y, objects_y), strict=True):
        assert np.array_equal(a, b)


def test_shuffle_is_seeded():
    y = [np.arange(3) for _ in range(20)]

    def folds(seed):
        splitter = StratifiedLatticeKFold(4, shuffle=True, random_state=seed)
        return [test.tolist() for _, test in splitter.split(y, y)]

    assert folds(0) == folds(0)
    assert folds(0) != folds(1)


@pytest.mark.parametrize("layout", [list, make_object_array])
def test_in_a_grid_search(layout):
    X, y = labelled_images()
    search = GridSearchCV(NodewiseClassifier(), {"C": [1e-4, 1.0]}, cv=StratifiedLatticeKFold(3))
    assert search.fit(layout(X), layout(y)).best_params_ == {"C": 1.0}


def test_bad_splitters():
    with pytest.raises(ValueError, match="n_splits must be"):
        StratifiedLatticeKFold(1)
    with pytest.raises(ValueError, match="needs y"):
        list(StratifiedLatticeKFold(2).split([1, 2]))
    with pytest.raises(ValueError, match="as many examples as folds, got 2"):
        list(StratifiedLatticeKFold(3).split([1, 2], [1, 2]))


# -- cross_val_predict ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
@pytest.mark.parametrize("layout", [list, make_object_array])
def test_ragged_examples(method, layout):
    X, y = labelled_images()
    n_jobs = 2 if layout is list else None
    with parallel_config("threading"):
        found = cross_val_predict(NodewiseClassifier(), layout(X), layout(y), cv=3, method=method, n_jobs=n_jobs)
    assert (found.shape, found.dtype) == ((len(X),), object)
    for train, test in StratifiedLatticeKFold(3).split(X, y):
        model = NodewiseClassifier().fit([X[i] for i in train], [y[i] for i in train])
        for i, expected in zip(test, getattr(model, method)([X[i] for i in test]), strict=True):
            assert np.array_equal(found[i], expected)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_arrays_of_lattices(method):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(6, 2, 3))
    X = y[..., None] + rng.normal(size=(6, 2, 3, 2))
    cv = [(np.arange(3, 6), np.arange(3)), (np.arange(3), np.arange(3, 6))]
    found = cross_val_predict(NodewiseClassifier(), X, y, cv=cv[::-1], method=method)
    expected = np.concatenate([getattr(NodewiseClassifier().fit(X[a], y[a]), method)(X[b]) for a, b in cv])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("method", "sparse"),
    [("predict", True), ("predict_proba", False), ("predict_log_proba", False), ("decision_function", True)],
)
def test_plain_rows_as_in_scikit_learn(method, sparse):
    X, y = load_iris(return_X_y=True)
    X = sp.coo_matrix(X) if sparse else X
    cv = StratifiedKFold(3)
    model = LogisticRegression(C=0.01)
    expected = flat_cross_val_predict(model, X, y, cv=cv, method=method)
    assert np.array_equal(cross_val_predict(model, X, y, cv=cv, method=method), expected)


def test_regressors_get_plain_folds():
    X, y = load_iris().data[:, :3], load_iris().data[:, 3]
    expected = flat_cross_val_predict(LinearRegression(), X, y, cv=4)
    assert np.allclose(cross_val_predict(LinearRegression(), X, y, cv=4), expected)


def test_a_fold_without_a_class_gets_zeros():
    X, y = labelled_images(4)
    y = [np.minimum(part, 1) for part in y]
    y[3] = np.full(y[3].shape, 2)
    cv = [([0, 1, 2], [3]), ([1, 2, 3], [0]), ([0, 2, 3], [1]), ([0, 1, 3], [2])]
    proba = cross_val_predict(NodewiseClassifier(), X, y, cv=cv, method="predict_proba")
    assert [part.shape[-1] for part in proba] == [3] * 4
    assert not proba[3][..., 2].any()
    assert np.allclose(proba[3].sum(axis=-1), 1)
    rows, labels = load_iris(return_X_y=True)
    cv = [
        (np.arange(100), np.arange(100, 150)),
        (np.arange(50, 150), np.arange(50)),
        (np.arange(120), np.arange(50, 100)),
    ]
    proba = cross_val_predict(LogisticRegression(C=0.01), rows, labels, cv=cv, method="predict_proba")
    assert not proba[100:, 2].any()
    assert not proba[:50, 0].any()
    with pytest.raises(ValueError, match="lacks a class"):
        cross_val_predict(LogisticRegression(C=0.01), rows, labels, cv=cv, method="decision_function")


def test_parameters_of_fit_are_cut():
    X, y = labelled_images()
    weight = np.arange(1.0, len(y) + 1)
    cv = KFold(2)
    found = cross_val_predict(
        NodewiseClassifier(), X, y, cv=cv, method="predict_proba", params={"sample_weight": weight}
    )
    train, test = next(iter(cv.split(X)))
    model = NodewiseClassifier().fit([X[i] for i in train], [y[i] for i in train], weight[train])
    assert np.array_equal(found[test[0]], model.predict_proba([X[test[0]]])[0])


def test_groups_are_passed_on():
    X, y = labelled_images()
    groups = np.arange(len(y)) % 2
    found = cross_val_predict(NodewiseClassifier(), X, y, cv=GroupKFold(2), groups=groups)
    model = NodewiseClassifier().fit(X[1::2], y[1::2])
    assert np.array_equal(found[0], model.predict(X[:1])[0])


def test_bad_calls():
    X, y = labelled_images()
    with pytest.raises(ValueError, match="exactly one test set"):
        cross_val_predict(NodewiseClassifier(), X, y, cv=ShuffleSplit(2, random_state=0))
    with pytest.raises(ValueError, match="y has 7 examples, but X has 8"):
        cross_val_predict(NodewiseClassifier(), X, y[:7])


HALVED = {
    "array": lambda X, y: (X, y),
    "lists": lambda X, y: (list(X), make_object_array(list(y))),
    "lists of lists": lambda X, y: (list(X), y.tolist()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", HALVED)
@pytest.mark.parametrize("is_last", [False, True])
def test_halving_search_chooses_its_resources(form, is_last):
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(3, size=(60, 2)), 3, axis=1)
    X, y = HALVED[form](np.eye(3)[y] + rng.normal(size=(*y.shape, 3)), y)
    field, name = TRWCRF(max_iter=10), "C"
    if is_last:
        field, name = make_pipeline(NodeTransformer(StandardScaler()), field), "trwcrf__C"
    search = HalvingGridSearchCV(field, {name: [0.01, 1, 10]}, cv=StratifiedLatticeKFold(3), random_state=0)
    assert search.fit(X, y).n_resources_[-1] > search.n_resources_[0] >= 6
    assert search.best_params_[name] in (0.01, 1, 10)
    assert is_classifier(field)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("field", "grid"),
    [(RegressionTreeFieldClassifier(max_iter=2), {"max_depth": [0, 1]}), (MultiLabelField(), {"structure": ["full"]})],
    ids=["tree field", "labels"],
)
def test_halving_search_of_other_fields(field, grid):
    rng = np.random.default_rng(0)
    y = np.kron(rng.integers(2, size=(24, 2, 2)), np.ones((2, 2), dtype=int))
    X, labels = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1)), y
    if isinstance(field, MultiLabelField):
        X, labels = X.reshape(24, -1), y[:, 0]
    search = HalvingGridSearchCV(field, grid, cv=KFold(2), random_state=0).fit(X, labels)
    assert search.score(X, labels) > 0.5
    assert is_classifier(field)


@pytest.mark.filterwarnings("ignore")
def test_halving_search_counts_the_classes_of_rows():
    X, y = load_iris(return_X_y=True)
    search = HalvingGridSearchCV(TRWCRF(max_iter=10), {"C": [0.01, 1]}, min_resources="smallest", cv=3, random_state=0)
    assert search.fit(X, y).min_resources_ == 2 * 3 * 3
