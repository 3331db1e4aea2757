"""Integers are narrowed without overflow, and real arrays have the stated type."""

import warnings
from datetime import date

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_crf import (
    TRWCRF,
    DenseExample,
    Example,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    refine,
    restore,
    solve,
)
from sklearn_crf._numbers import as_integer, as_integers, as_pixels, as_reals, as_scores, convert_to_csr
from sklearn_crf.encoding import multiply_rows
from sklearn_crf.model_selection import cross_val_predict
from sklearn_crf.preprocessing import ClassifierScores, NodeTransformer, PatchAverages, group_rows


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_integers_that_fit_are_narrowed(dtype):
    narrowed = as_integers(np.array([0, 1, 100], dtype=dtype), "values")
    assert narrowed.dtype == np.int32
    assert narrowed.tolist() == [0, 1, 100]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([2**31], "must be between -2147483648 and 2147483647, found values from 2147483648"),
        ([-(2**31) - 1], "must be between"),
        (np.array([2**64 - 1], dtype=np.uint64), "must be between .* found values from 18446744073709551615"),
        ([2**70], "must be integers, got object"),
        ([1.0], "must be integers, got float64"),
        (["1"], "must be integers"),
        ([True], "must be integers, got bool"),
        ([[1], [1, 2]], "must be a rectangular array"),
    ],
)
def test_integers_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=f"values {message}"):
        as_integers(values, "values")


def test_empty_integers_of_any_type():
    assert as_integers([], "values").dtype == np.int32
    assert as_integers(np.zeros((0, 2)), "values").shape == (0, 2)


@pytest.mark.parametrize("value", [2.0, "2", None, [1, 2], np.float64(2)])
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(ValueError, match="n must be an integer"):
        as_integer(value, "n")


@pytest.mark.parametrize("value", [[1j], np.array([1 + 0j]), ["a"], [{}], [[1], [1, 2]], [10**400]])
def test_what_is_no_real_array_is_refused(value):
    with pytest.raises(ValueError, match="X must"):
        as_reals(value, "X")


def damaged(form, field, value, shape=(5, 4)):
    matrix = sp.random(*shape, density=0.7, random_state=0, format=form)
    array = getattr(matrix, field).copy()
    array[3] = value
    setattr(matrix, field, array)
    return matrix


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(("field", "value"), [("indices", 10**8), ("indices", -1), ("indptr", 10**8), ("indptr", -1)])
def test_damaged_sparse_matrices_are_refused(form, field, value):
    with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
        convert_to_csr(damaged(form, field, value), "X")


X, Y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
LABELS = np.eye(3, dtype=int)[np.arange(20) % 3]
FIELD = MultiLabelField(TRWCRF(pairwise="ising", max_iter=1))
CHAIN = np.stack((np.arange(20), np.arange(1, 21)), axis=1)

# Everything that accepts a sparse matrix of 20 rows and 3 columns.
TAKERS = {
    "rows": lambda table: TRWCRF(max_iter=1).fit(table, Y),
    "lists": lambda table: TRWCRF(max_iter=1).fit([table, table], [Y, Y]),
    "prediction": lambda table: TRWCRF(max_iter=1).fit(X, Y).predict(table),
    "Example": lambda table: Example(table, [[0, 1]]),
    "features of edges": lambda table: Example(np.zeros((21, 1)), CHAIN, table),
    "labels": lambda table: FIELD.fit(X, table),
    "rows of labels": lambda table: FIELD.fit(table, LABELS),
    "score of labels": lambda table: FIELD.fit(X, LABELS).score(X, table),
    "NodeTransformer": lambda table: NodeTransformer(StandardScaler(with_mean=False)).fit([table, table]),
    "NodeTransformer, rows": lambda table: NodeTransformer(StandardScaler(with_mean=False)).fit(table),
    "ClassifierScores": lambda table: ClassifierScores(LogisticRegression()).fit([table, table], [Y, Y]),
    "group_rows": lambda table: group_rows(table, Y),
    "cross_val_predict": lambda table: cross_val_predict(TRWCRF(max_iter=1), table, Y, cv=2),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(("field", "value"), [("indices", 10**8), ("indices", -5), ("indptr", 10**8), ("indptr", -5)])
def test_damaged_sparse_matrices_are_refused_wherever_they_come_in(take, form, field, value):
    with pytest.raises(ValueError, match="damaged sparse matrix"):
        take(damaged(form, field, value, X.shape))


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
def test_sound_sparse_matrices_stay(form):
    matrix = sp.random(6, 4, density=0.5, random_state=0, format=form)
    assert np.array_equal(convert_to_csr(matrix, "X").toarray(), matrix.toarray())


@pytest.mark.filterwarnings("error")
def test_scores_beyond_float32_are_refused_without_a_warning():
    with pytest.raises(ValueError, match="in magnitude at most 1e"):
        as_scores([1e60, -np.inf], "scores", np.float32)


TABLE, TWO_CLASSES = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0])
NO_NUMBERS = {
    "strings": (TABLE.astype(str), TABLE.astype("S"), TABLE.astype(str).astype(object)),
    "dates": (TABLE.astype("datetime64[s]"), np.full(TABLE.shape, date(2020, 1, 1))),
    "durations": (TABLE.astype("timedelta64[s]"), TABLE.astype("timedelta64[D]").astype(object)),
    "records": (np.zeros(TABLE.shape, dtype=[("a", float)]),),
}
WHO_READS = {
    "rows": lambda X: TRWCRF().fit(X, TWO_CLASSES),
    "chains": lambda X: TRWCRF().fit(X[np.newaxis], TWO_CLASSES[np.newaxis]),
    "lists of chains": lambda X: TRWCRF().fit([X], [TWO_CLASSES]),
    "mixtures": lambda X: MultiConditionalMFA().fit(X, TWO_CLASSES),
    "several labels": lambda X: MultiLabelField().fit(X, np.eye(6, 2, dtype=int)),
    "trees": lambda X: RegressionTreeField().fit(X, TWO_CLASSES.astype(float)),
    "tree targets": lambda X: RegressionTreeField().fit(TABLE, X[:, 0]),
    "graphs": lambda X: Example(X, [[0, 1]]),
    "weights": lambda X: TRWCRF().fit(TABLE, TWO_CLASSES, sample_weight=X[:, 0]),
    "patches": lambda X: PatchAverages().fit([X]),
    "dense fields": lambda X: DenseExample(np.zeros((6, 2, 2)), X),
    "probabilities": lambda X: refine(X, TWO_CLASSES),
    "photographs": lambda X: restore(X, noise=5),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("reader", WHO_READS)
def test_what_only_looks_like_numbers_is_refused(reader, kind):
    for values in NO_NUMBERS[kind]:
        with pytest.raises(ValueError, match=f"must hold numbers, got {kind}"):
            WHO_READS[reader](values)


def test_objects_that_are_numbers_are_read():
    objects = TABLE.astype(object)
    np.testing.assert_array_equal(TRWCRF().fit(objects, TWO_CLASSES).coef_, TRWCRF().fit(TABLE, TWO_CLASSES).coef_)
    np.testing.assert_array_equal(as_pixels(objects, "X"), TABLE)
    assert as_pixels(TABLE.astype(np.uint8), "X").dtype == np.uint8


def test_a_column_of_dates_is_named():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": TABLE[:, 0], "day": pd.date_range("2020-01-01", periods=6)})
    for X, y in ((frame, TWO_CLASSES), ([frame], [TWO_CLASSES])):
        with pytest.raises(ValueError, match=r"column 'day' of X(\[0\])? must hold numbers, got dates"):
            TRWCRF().fit(X, y)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, int])
def test_strengths_of_any_type_of_number_warn_of_nothing(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TRWCRF(C=kind(1)).fit(TABLE, TWO_CLASSES).score(TABLE, TWO_CLASSES) >= 0.5


def test_costs_that_are_objects_are_read():
    unary = np.array([[0.0, 1.0], [2.0, 0.0]])
    assert solve(unary.astype(object), 0.5).labels.tolist() == solve(unary, 0.5).labels.tolist()


@pytest.mark.parametrize("field", [RegressionTreeField, RegressionTreeFieldClassifier])
def test_tree_fields_score_a_frame_of_labels(field):
    frame = pytest.importorskip("pandas").DataFrame({"y": TWO_CLASSES})
    fitted = field(max_depth=0, max_iter=3, random_state=0, filter_bank=None).fit(TABLE, TWO_CLASSES)
    assert fitted.score(TABLE, frame) == fitted.score(TABLE, TWO_CLASSES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [0, 1, 3, 8, 41, 700])
@pytest.mark.parametrize("n_columns", [1, 2, 5, 8, 13, 30])
def test_products_of_rows_do_not_depend_on_the_rows_beside_them(n_columns, n_features, dtype):
    rng = np.random.default_rng(n_features)
    rows = rng.normal(size=(21, n_features)).astype(dtype)
    weights = rng.normal(size=(n_columns, n_features)).astype(dtype)
    found = multiply_rows(rows, weights)
    assert found.dtype == dtype
    exact = rows.astype(np.float64) @ weights.astype(np.float64).T
    assert_allclose(found, exact, rtol=0, atol=4 * np.finfo(dtype).eps * n_features)
    for start, stop in ((0, 1), (3, 4), (5, 12), (13, 21)):
        assert_array_equal(multiply_rows(rows[start:stop], weights), found[start:stop])
    assert_array_equal(multiply_rows(np.asfortranarray(rows), weights[:, ::1]), found)
