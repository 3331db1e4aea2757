"""Missing values in the forms of several libraries: masks, NA of pandas, and -1."""

import warnings

import numpy as np
import pytest

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DenseExample,
    DRFClassifier,
    Example,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeFieldClassifier,
    refine,
    solve,
)
from sklearn_crf.encoding import convert_to_label_array, mask_missing_nodes
from sklearn_crf.graphs import Graph, lattice_offsets
from sklearn_crf.inference import GibbsSampler
from sklearn_crf.metrics import node_accuracy_score
from sklearn_crf.model_selection import StratifiedLatticeKFold
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.preprocessing import group_rows, ungroup_rows

SHAPE = (20, 6)


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.integers(3, size=(20, 2)), 3, axis=1)
    X = np.eye(3)[y] + rng.normal(size=(*SHAPE, 3))
    return X, y, rng.random(SHAPE) < 0.2


def masked(y, hidden):
    """Return masked labels whose values under the mask are not classes."""
    return np.ma.masked_array(np.where(hidden, 99, y), mask=hidden)


FITS = {
    "array of chains": lambda X, y: (X, y),
    "list of chains": lambda X, y: (list(X), list(y)),
    "rows": lambda X, y: (X[:, 0], y[:, 0]),
    "list of rows": lambda X, y: (X[:, 0], list(y[:, 0])),
    "lists of lists": lambda X, y: (list(X), [list(part) for part in y]),
    "examples": lambda X, y: ([Example(x, [[0, 1], [1, 2]]) for x in X], list(y)),
}


@pytest.mark.parametrize("form", FITS)
def test_masked_labels_are_missing_labels(form):
    X, y, hidden = data()
    field = DRFClassifier(edge_features="constant", missing_label=-1)
    expected = field.fit(*FITS[form](X, np.where(hidden, -1, y)))
    found = DRFClassifier(edge_features="constant").fit(*FITS[form](X, masked(y, hidden)))
    assert found.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    inputs, labels = FITS[form](X, masked(y, hidden))
    assert found.score(inputs, labels) == expected.score(*FITS[form](X, np.where(hidden, -1, y)))
    # Known labels are returned unchanged.
    known = FITS[form](X, masked(y, ~hidden))[1]
    predicted = np.concatenate([np.ravel(part) for part in found.predict(inputs, evidence=known)])
    of_rows = form in ("rows", "list of rows")
    which, truth = (hidden[:, 0], y[:, 0]) if of_rows else (hidden.ravel(), y.ravel())
    np.testing.assert_array_equal(predicted[which], truth[which])
    # A mask that hides no value changes nothing.
    whole = DRFClassifier(edge_features="constant").fit(*FITS[form](X, np.ma.masked_array(y)))
    plain = DRFClassifier(edge_features="constant").fit(*FITS[form](X, y))
    np.testing.assert_array_equal(whole.coef_, plain.coef_)


def test_masked_labels_meet_the_rules_of_each_estimator():
    X, y, hidden = data()
    labels = masked(y, hidden)
    for estimator in (
        TRWCRF(),
        TRWCRF(learning="edge_probabilities"),
        TRWCRF(learning="piecewise"),
        M3NClassifier(),
        ContrastiveCRF(),
    ):
        assert estimator.fit(X, labels).classes_.tolist() == [0, 1, 2]
    images, columns = np.repeat(X[:, :, np.newaxis], 3, axis=2), np.repeat(y[:, :, np.newaxis], 3, axis=2)
    gaps = np.ma.masked_array(columns, mask=np.repeat(hidden[:, :, np.newaxis], 3, axis=2))
    forest = RegressionTreeFieldClassifier(random_state=0).fit(images, gaps)
    assert forest.classes_.tolist() == [0, 1, 2]
    assert forest.score(images, gaps) == np.mean((forest.predict(images) == columns)[~gaps.mask])
    scores = [DenseExample(x, x[..., 0]) for x in images]
    assert DenseCRF(max_iter=2, learning="fixed").fit(scores, gaps).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"missing|NaN"):
        MultiConditionalMFA().fit(X[:, 0], labels[:, 0])
    table = np.eye(3)[y[:, 0]]
    holes = np.repeat(hidden[:, :1], 3, axis=1) & (table > 0)
    field = MultiLabelField().fit(X[:, 0], np.ma.masked_array(table, mask=holes))
    given = MultiLabelField().fit(X[:, 0], np.where(holes, np.nan, table))
    np.testing.assert_array_equal(field.predict_proba(X[:, 0]), given.predict_proba(X[:, 0]))


def test_masked_labels_elsewhere():
    _, y, hidden = data()
    labels = masked(y, hidden)
    wrong = np.where(hidden, (y + 1) % 3, y)
    assert node_accuracy_score(labels, wrong) == 1.0
    assert node_accuracy_score(list(labels), list(wrong)) == 1.0
    expected = StratifiedLatticeKFold(4, missing_label=-1).split(y, np.where(hidden, -1, y))
    for (_, found), (_, test) in zip(StratifiedLatticeKFold(4).split(y, labels), expected, strict=True):
        np.testing.assert_array_equal(found, test)
    parts = group_rows(labels[0], [0, 0, 1, 1, 1, 2])
    assert [part.tolist() for part in parts] == [
        labels[0, rows].tolist() for rows in (slice(0, 2), slice(2, 5), slice(5, 6))
    ]


@pytest.mark.parametrize(
    "whole", [np.ma.masked_array, lambda X, mask: [np.ma.masked_array(*p) for p in zip(X, mask, strict=True)]]
)
def test_masked_features_are_nan(whole):
    X, y, _ = data()
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[3, 2, 1] = True
    masked = TRWCRF().fit(whole(X, mask=hidden) if whole is np.ma.masked_array else whole(X, hidden), y)
    np.testing.assert_array_equal(masked.coef_, TRWCRF().fit(np.where(hidden, np.nan, X), y).coef_)


def test_masked_features_of_rows_examples_and_images():
    X, y, _ = data()
    rows = np.ma.masked_array(X[:, 0], mask=X[:, 0] > 2)
    assert (
        TRWCRF().fit(rows, y[:, 0]).indicator_features_.tolist() == np.flatnonzero((X[:, 0] > 2).any(axis=0)).tolist()
    )
    with pytest.raises(ValueError, match="X contains NaN"):
        MultiConditionalMFA().fit(rows, y[:, 0])
    several = np.eye(3, dtype=int)[y[:, 0]]
    given, found = (MultiLabelField().fit(each, several).predict_proba(each) for each in (rows.filled(np.nan), rows))
    np.testing.assert_array_equal(found, given)
    given = MultiConditionalMFA(allow_nan=True, random_state=0).fit(rows.filled(np.nan), y[:, 0])
    found = MultiConditionalMFA(allow_nan=True, random_state=0).fit(rows, y[:, 0])
    np.testing.assert_array_equal(found.predict_proba(rows), given.predict_proba(rows.filled(np.nan)))
    example = Example(np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 0], [1, 0]]), [[0, 1]])
    np.testing.assert_array_equal(example.node_features, [[1, 2], [np.nan, 4]])
    with pytest.raises(ValueError, match="image must be finite"):
        refine(np.full((2, 2, 2), 0.5), np.ma.masked_array(np.arange(4.0).reshape(2, 2), mask=np.eye(2)))


@pytest.mark.parametrize("missing_label", [None, np.nan, "NA", "?"])
@pytest.mark.parametrize("dtype", ["string", "boolean", "Int64", "category", "Float64"])
def test_what_is_missing_to_pandas_has_no_label(dtype, missing_label):
    pd = pytest.importorskip("pandas")
    missing_label = pd.NA if missing_label == "NA" else missing_label
    X, y, hidden = data()
    y = y % 2
    values = {"string": np.array(["a", "b"]), "boolean": np.array([False, True]), "category": np.array(["a", "b"])}
    names = values.get(dtype, np.array([0, 1]))[y].astype(object)
    names[hidden] = None
    expected = TRWCRF(max_iter=5, tol=1e-9, edge_features="constant").fit(X, names)
    for make in (pd.Series, pd.array):
        if make is pd.Series or dtype != "category":
            labels = [make(part, dtype=dtype) for part in names]
            found = TRWCRF(max_iter=5, tol=1e-9, edge_features="constant", missing_label=missing_label).fit(X, labels)
            assert found.classes_.tolist() == sorted(set(values.get(dtype, [0, 1])))
            np.testing.assert_array_equal(found.coef_, expected.coef_)
            assert found.score(X, labels) == expected.score(X, names)
            rows = TRWCRF(missing_label=missing_label).fit(X[0], make(names[:, 0][:6], dtype=dtype))
            assert rows.classes_.tolist() == found.classes_.tolist()


def test_na_in_objects():
    pd = pytest.importorskip("pandas")
    labels = convert_to_label_array(["a", pd.NA, "b", None])
    assert mask_missing_nodes(labels, None).tolist() == [False, True, False, True]
    assert mask_missing_nodes(labels, pd.NA).tolist() == [False, True, False, True]
    assert mask_missing_nodes(np.array([0, 1]), pd.NA).tolist() == [False, False]
    # Columns of strings in the form that pandas passes to NumPy.
    column = pd.Series(["a", None, "b", "a"]).to_numpy()
    assert TRWCRF().fit(np.eye(4), column).classes_.tolist() == ["a", "b"]
    assert TRWCRF().fit([np.eye(4)], [np.array(["a", np.nan, "b", "a"], dtype=object)]).classes_.tolist() == ["a", "b"]
    assert TRWCRF().fit(np.eye(4), ["a", pd.NA, "b", "a"]).classes_.tolist() == ["a", "b"]
    gaps = [pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})]
    assert TRWCRF().fit(gaps, [["a", "b"]]).fill_values_.tolist() == [1]
    chains = [pd.DataFrame({"a": pd.array([1, 2], dtype="Int64")})]
    assert TRWCRF().fit(chains, [pd.Series(["a", "b"], dtype="string")]).predict(chains)[0].tolist() == ["a", "b"]
    for groups in (pd.array(["u", pd.NA], dtype="string"), ["u", pd.NA], pd.to_datetime(["2020-01-01", None])):
        with pytest.raises(ValueError, match=r"groups\[1\] is .*: every row needs a group"):
            group_rows([1, 2], groups)


MEANT = {
    "two classes": ([-1, 1], {}),
    "said to be missing": ([-1, 0, 1], {"missing_label": -1}),
    "named": ([-1, 0, 1], {"classes": [-1, 0, 1]}),
    "another class": ([-2, 0, 1], {}),
}


@pytest.mark.parametrize("case", MEANT)
def test_minus_one_that_is_meant(case):
    values, options = MEANT[case]
    X, y, _ = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        TRWCRF(**options).fit(X, np.array(values)[y % len(values)])


@pytest.mark.parametrize("form", FITS)
def test_minus_one_as_a_class_is_warned_of_once(form):
    X, y, hidden = data()
    with pytest.warns(UserWarning, match="holds the label -1 .* pass missing_label=-1") as caught:
        field = TRWCRF().fit(*FITS[form](X, np.where(hidden, -1, y)))
    assert len(caught) == 1
    assert field.classes_.tolist() == [-1, 0, 1, 2]


MASKED_EDGES = np.ma.masked_array([[0, 1], [1, 2]], mask=[[1, 1], [0, 0]])
BLANK = PairwiseModel(Graph(3, [[0, 1], [1, 2]]), np.zeros((3, 2)), np.zeros((1, 2, 2)))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Graph(3, MASKED_EDGES), "edges must be integers, found missing values"),
        (lambda: solve(np.zeros((3, 2)), 1, edges=MASKED_EDGES), "edges must be integers, found missing values"),
        (lambda: lattice_offsets(2, MASKED_EDGES), "offsets must be integers, found missing values"),
        (
            lambda: GibbsSampler().marginals(BLANK, init=np.ma.masked_equal([0, 0, 1], 1)),
            "init must be integers, found missing values",
        ),
        (lambda: score(BLANK, np.ma.masked_equal([0, 0, 1], 1)), "must be integers, found missing values"),
        (
            lambda: TRWCRF(classes=np.ma.masked_equal([0, 1, 2], 2)).fit(np.eye(2), [0, 1]),
            "classes must be numbers or strings, none missing",
        ),
        (
            lambda: TRWCRF(classes=[0.0, 1.0, np.nan]).fit(np.eye(2), [0, 1]),
            "classes must be numbers or strings, none missing",
        ),
    ],
)
def test_masked_arguments_are_never_read_without_their_mask(call, error):
    with pytest.raises(ValueError, match=error):
        call()


def test_masked_parts_keep_their_gaps():
    parts = [np.ma.masked_equal([1, 2], 1), [3]]
    np.testing.assert_array_equal(ungroup_rows(parts, [0, 0, 1]), [np.nan, 2, 3])
