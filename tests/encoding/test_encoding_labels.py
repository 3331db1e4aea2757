"""Valid and invalid forms of y and sample_weight."""

import warnings

import numpy as np
import pytest
from lattice_inputs import RNG
from sklearn.exceptions import DataConversionWarning

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, encode_y, make_object_array, validate_sample_weight

# -- Labels ---------------------------------------------------------------------------------------


def columns(y, X, **options):
    found = encode_y(y, encode_X(X), **options)
    return [part.tolist() for part in found.labels], found.classes_.tolist()


TWO_CHAINS = [np.zeros((2, 1)), np.zeros((3, 1))]


@pytest.mark.parametrize(
    ("y", "options", "expected", "classes"),
    [
        ([[5, -1], [5, 9, -1]], {}, [[1, 0], [1, 2, 0]], [-1, 5, 9]),
        ([[5, -1], [5, 9, -1]], {"missing_label": -1}, [[0, -1], [0, 1, -1]], [5, 9]),
        ([["b", "a"], ["c", "a", "a"]], {}, [[1, 0], [2, 0, 0]], ["a", "b", "c"]),
        ([["b", "?"], ["c", "a", "?"]], {"missing_label": "?"}, [[1, -1], [2, 0, -1]], ["a", "b", "c"]),
        ([[1.0, 2.0], [1.0, np.nan, 3.0]], {"missing_label": np.nan}, [[0, 1], [0, -1, 2]], [1, 2, 3]),
        ([[True, False], [True, True, False]], {}, [[1, 0], [1, 1, 0]], [False, True]),
        ([[0, 1], [0, 1, 1]], {"classes": [2, 1, 0]}, [[0, 1], [0, 1, 1]], [0, 1, 2]),
        ([[0, 0], [0, 0, 0]], {"classes": [0, 1]}, [[0, 0], [0, 0, 0]], [0, 1]),
        ([[0, 1], [1, 1, 1]], {"missing_label": "?"}, [[0, 1], [1, 1, 1]], [0, 1]),
        ([["a", "b"], ["a", "b", "b"]], {"missing_label": -1}, [[0, 1], [0, 1, 1]], ["a", "b"]),
    ],
    ids=str,
)
def test_labels(y, options, expected, classes):
    assert columns([np.array(part) for part in y], TWO_CHAINS, **options) == (expected, classes)
    assert columns(make_object_array([np.array(part) for part in y]), TWO_CHAINS, **options) == (expected, classes)
    as_objects = [np.array(part, dtype=object) for part in y]
    assert columns(as_objects, TWO_CHAINS, **options) == (expected, classes)
    assert columns(y, TWO_CHAINS, **options) == (expected, classes)
    assert columns([tuple(part) for part in y], TWO_CHAINS, **options) == (expected, classes)


@pytest.mark.parametrize("missing_label", [None, -1, 3, "?"])
@pytest.mark.parametrize("layout", ["list", "array"])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.bool_, np.str_])
def test_labels_read_together_are_as_one_by_one(kind, layout, missing_label):
    lengths = [4] * 6 if layout == "array" else RNG.integers(1, 6, size=6)
    X = [np.zeros((n, 1)) for n in lengths]
    y = [np.append(RNG.integers(5, size=n - 1), 1).astype(kind) for n in lengths]
    y[0][:1] = kind(0)
    encoded = encode_X(np.stack(X) if layout == "array" else X)
    together = encode_y(np.stack(y) if layout == "array" else y, encoded, missing_label=missing_label)
    alone = encode_y([part.astype(object) for part in y], encoded, missing_label=missing_label)
    assert [part.tolist() for part in together.labels] == [part.tolist() for part in alone.labels]
    assert together.classes_.tolist() == alone.classes_.tolist()


def test_errors_of_labels_read_together_name_the_example():
    encoded = encode_X(TWO_CHAINS)
    with pytest.raises(ValueError, match=r"y\[1\] holds the unknown label 7"):
        encode_y([[0, 1], [0, 7, 1]], encoded, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y\[1\] has shape \(2,\), but the lattice of X\[1\] has shape \(3,\)"):
        encode_y([[0, 1], [0, 1]], encoded)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        ([["b", None], ["a", None, "b"]], {}),
        ([["b", np.nan], ["a", np.nan, "b"]], {"missing_label": np.nan}),
        ([[1, None], [0, None, 1]], {}),
    ],
    ids=str,
)
def test_missing_in_object_arrays(y, options):
    labels, _ = columns([np.array(part, dtype=object) for part in y], TWO_CHAINS, **options)
    assert labels == [[1, -1], [0, -1, 1]]


def test_a_chain_may_be_unlabelled_as_a_whole():
    y = [np.array([-1, -1]), np.array([0, 1, 1])]
    assert columns(y, TWO_CHAINS, missing_label=-1) == ([[-1, -1], [0, 1, 1]], [0, 1])


def test_labels_of_arrays_of_lattices_and_rows():
    y = RNG.integers(2, size=(2, 3, 4))
    labels, classes, _ = encode_y(y, encode_X(np.zeros((2, 3, 4, 1))))
    assert np.array_equal(np.reshape(labels, y.shape), y)
    assert {part.dtype.type for part in labels} == {np.int32}
    assert classes.tolist() == [0, 1]
    rows = encode_y(["x", "y", "?"], encode_X(np.zeros((3, 1))), missing_label="?")
    assert rows.labels.tolist() == [0, 1, -1]
    assert rows.labels.dtype == np.int32
    with_nan = encode_y([0.0, 1.0, np.nan], encode_X(np.zeros((3, 1))), missing_label=np.nan)
    assert with_nan.labels.tolist() == [0, 1, -1]


def test_column_of_labels_warns_for_rows():
    with pytest.warns(DataConversionWarning):
        labels = encode_y(np.array([[0], [1]]), encode_X(np.zeros((2, 1)))).labels
    assert labels.tolist() == [0, 1]


GRID = np.zeros((2, 2, 3, 1))


@pytest.mark.parametrize(
    ("y", "X", "options", "message"),
    [
        (None, TWO_CHAINS, {}, "requires y to be passed, but the target y is None"),
        ([np.zeros(2)], TWO_CHAINS, {}, "y has 1 examples, but X has 2"),
        ([np.zeros(2), np.zeros(2)], TWO_CHAINS, {}, r"y\[1\] has shape \(2,\).*X\[1\] has shape \(3,\)"),
        (np.zeros((2, 3, 2)), GRID, {}, r"y\[0\] has shape \(3, 2\).*\(2, 3\)"),
        (3, GRID, {}, "y must be an array, or a list of one array per example, got 3"),
        (len, GRID, {}, "y must be an array, or a list of one array per example, got <built-in"),
        (
            [np.zeros(2), np.zeros(3)],
            TWO_CHAINS,
            {"classes": {0, 1}},
            r"a 1-D array of at least 2 classes, got shape \(\)",
        ),
        (
            [np.zeros(2), np.zeros(3)],
            TWO_CHAINS,
            {"classes": [None, 1]},
            "classes holds None, but labels must be strings or integers",
        ),
        (np.zeros((2, 6)), GRID, {}, r"y\[0\] has shape \(6,\)"),
        ([np.zeros((2, 3)), np.zeros((3, 2))], list(GRID), {}, r"y\[1\] has shape \(3, 2\)"),
        ([np.zeros((4, 5))], [np.zeros((4, 5))], {}, r"add it: x\[..., np.newaxis\]"),
        (np.zeros(15), np.zeros((3, 5, 1)), {}, "add a leading axis"),
        ([np.zeros(2), np.zeros(3)], TWO_CHAINS, {}, "at least 2 classes, got 1 class: 0.0"),
        ([np.full(2, -1), np.full(3, -1)], TWO_CHAINS, {"missing_label": -1}, "no label at all"),
        ([np.array([0, 1]), np.array([0, 1, 7])], TWO_CHAINS, {"classes": [0, 1]}, r"y\[1\].*unknown label 7.*0, 1"),
        ([np.array(["a", "b"]), np.zeros(3, int)], TWO_CHAINS, {}, "mixes strings"),
        ([np.array(["a", 1], dtype=object), np.array(["a"] * 3)], TWO_CHAINS, {}, r"y\[0\] mixes strings"),
        (
            [np.array(["a", "b"]), np.array(["a"] * 3)],
            TWO_CHAINS,
            {"classes": [0, 1]},
            r"y\[0\] holds strings, such as 'a'",
        ),
        ([np.array([0.5, 1]), np.zeros(3)], TWO_CHAINS, {}, "Unknown label type: continuous"),
        ([np.array([np.nan, 1]), np.zeros(3)], TWO_CHAINS, {}, r"y\[0\] contains NaN.*missing_label"),
        ([np.array([np.inf, 1]), np.zeros(3)], TWO_CHAINS, {}, r"y\[0\] contains infinity"),
        ([np.zeros(2, dtype="M8[s]"), np.zeros(3)], TWO_CHAINS, {}, "Unknown label type"),
        (
            [np.array([0, 1]), np.zeros(3, int)],
            TWO_CHAINS,
            {"classes": [1]},
            "a 1-D array of at least 2",
        ),
        ([0.5, 1.5], np.zeros((2, 1)), {}, "Unknown label type: continuous"),
        ([0, np.nan], np.zeros((2, 1)), {}, "NaN"),
        ([0, 1, 1], np.zeros((2, 1)), {}, "inconsistent numbers of samples"),
        ([[0, 1], [1, 1]], np.zeros((2, 1)), {}, "1d array"),
    ],
    ids=str,
)
def test_bad_y(y, X, options, message):
    with pytest.raises(ValueError, match=message):
        encode_y(y, encode_X(X), **options)


def test_a_label_that_a_node_cannot_have():
    X = [Example(np.zeros((2, 1)), [[0, 1]], n_states=[1, 2])]
    assert encode_y([np.array([3, 4])], encode_X(X)).labels[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"y\[0\] gives node 0 the label 4"):
        encode_y([np.array([4, 3])], encode_X(X))
    with pytest.raises(ValueError, match=r"X\[0\].n_states goes up to 3"):
        encode_y([np.array([3, 4])], encode_X([Example(np.zeros((2, 1)), [], n_states=[3, 1])]))


# -- Weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [[1, 2, 0], (1.0, 2.0, 0.0), np.array([1, 2, 0], dtype=np.float32)])
def test_sample_weight(weight):
    checked = validate_sample_weight(weight, 3)
    assert checked.dtype == np.float64
    assert checked.tolist() == [1, 2, 0]


def test_sample_weight_of_all():
    assert validate_sample_weight(None, 3) is None
    assert validate_sample_weight(2, 3).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 2], r"\(2,\), expected \(3,\)"),
        (np.ones((3, 1)), "one weight per example.*weights per node have no meaning"),
        (np.ones((3, 4, 5)), "weights per node"),
        ([np.ones(2), np.ones(3), np.ones(1)], "weights per node"),
        ([[1, 2], [1], [1]], "weights per node"),
        (make_object_array([np.ones(2), np.ones(3), np.ones(1)]), "weights per node"),
        ([1, -1, 1], r"sample_weight\[1\] is -1"),
        ([1, np.nan, 1], "NaN"),
        ([1, np.inf, 1], "infinity"),
        ([0, 0, 0], "non-zero"),
        (-1, "Negative"),
        (np.nan, "NaN"),
        (["a", "b", "c"], "convert|numeric|string"),
    ],
    ids=str,
)
def test_bad_sample_weight(weight, message):
    with pytest.raises(ValueError, match=message):
        validate_sample_weight(weight, 3)


# -- Lists, and labels that are not known ---------------------------------------------------------


def test_lists_of_lists_as_taggers_have_them():
    X = [np.zeros((2, 1)), np.zeros((3, 1))]
    encoded = encode_X(X, edge_features="constant")
    labels = encode_y([["B", "O"], ["O", None, "B"]], encoded)
    assert labels.classes_.tolist() == ["B", "O"]
    assert [part.tolist() for part in labels.labels] == [[0, 1], [1, -1, 0]]
    grid = encode_X([np.zeros((2, 2, 1))], edge_features="constant")
    assert encode_y([[[0, 1], [1, 0]]], grid).labels[0].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["B", "O"], ["O", 1, "B"]], r"y\[1\] mixes strings with other labels, such as 1"),
        ([["B", "O"], [0, 1, 1]], r"y mixes strings with other labels, such as 'B' and 0"),
        ([["B", "O"], ["O", "B"]], r"y\[1\] has shape \(2,\), but the lattice of X\[1\] has shape \(3,\)"),
        ([["B", ["O"]], ["O", "B", "B"]], "mixes|shape|Unknown"),
    ],
)
def test_lists_that_do_not_fit(y, message):
    encoded = encode_X([np.zeros((2, 1)), np.zeros((3, 1))], edge_features="constant")
    with pytest.raises(ValueError, match=message):
        encode_y(y, encoded)


def test_rows_with_labels_of_two_types_or_several_labels():
    encoded = encode_X(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="mixes strings with other labels, such as 1"):
        encode_y(["a", 1, "b"], encoded)
    with pytest.raises(ValueError, match="Use MultiLabelField for several"):
        encode_y(np.zeros((3, 2), dtype=int), encoded)


@pytest.mark.parametrize(
    "evidence",
    [
        [np.array([0.0, np.nan])],
        [np.array([0, None], dtype=object)],
        [[0, None]],
        [[0, np.nan]],
        [np.array([0, float("nan")], dtype=object)],
    ],
)
def test_evidence_takes_none_and_nan(evidence):
    encoded = encode_X([np.zeros((2, 1))], edge_features="constant")
    found = encode_y(evidence, encoded, classes=[0, 1], name="evidence")
    assert found.labels[0].tolist() == [0, -1]


def test_evidence_takes_the_missing_label_too():
    encoded = encode_X([np.zeros((3, 1))], edge_features="constant")
    found = encode_y([np.array([0, -1, np.nan])], encoded, classes=[0, 1], missing_label=-1, name="evidence")
    assert found.labels[0].tolist() == [0, -1, -1]
    with pytest.raises(ValueError, match="None and NaN mark nodes whose label is not known"):
        encode_y([np.array([0, -1, 1])], encoded, classes=[0, 1], name="evidence")
    words = encode_y([["a", None, np.nan]], encoded, classes=["a", "b"], name="evidence")
    assert words.labels[0].tolist() == [0, -1, -1]


def test_nan_in_y_is_no_missing_label_unless_said():
    encoded = encode_X([np.zeros((2, 1))], edge_features="constant")
    with pytest.raises(ValueError, match="contains NaN: mark unlabelled nodes by missing_label"):
        encode_y([np.array([0, np.nan])], encoded, classes=[0, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-128, -126), (3, 60), (-100, 100)])
def test_classes_of_many_labels(dtype, low, high):
    values = np.random.default_rng(0).integers(low, high, size=(2, 50, 60)).astype(dtype)
    labels, classes, _ = encode_y(values, encode_X(np.zeros((2, 50, 60, 1))))
    expected, inverse = np.unique(values, return_inverse=True)
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(np.stack(labels), inverse.reshape(2, -1))
    assert classes.dtype == dtype


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([(0, 1), (1, 2)], r"y\[0\] holds \(0, 1\), but labels must be strings or integers: convert them to strings"),
        ([{}, {1: 2}], "but labels must be strings or integers"),
        ([np.datetime64("2020"), np.datetime64("2021")], "but labels must be strings or integers"),
        ([b"a", "b"], r"holds labels that have no common NumPy type, such as b'a'"),
        (["a\0", "b"], r"holds labels that have no common NumPy type"),
        ([2**53 + 1, 0.5], "holds labels that have no common NumPy type, such as 9007199254740993"),
        ([2**70, 1], "Unknown label type: .* holds object, but labels must be strings or integers"),
    ],
)
def test_objects_that_are_no_labels_are_refused(labels, message):
    y = np.empty(2, dtype=object)
    y[:] = labels
    with pytest.raises(ValueError, match=message):
        encode_y([y], encode_X([np.zeros((2, 1))]))


def test_dates_are_no_labels_and_infinity_warns_of_nothing():
    chains = encode_X([np.zeros((2, 1))])
    with pytest.raises(ValueError, match=r"datetime64\[D\], but labels must be strings or integers"):
        encode_y([np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")], chains)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="contains infinity"):
            encode_y([np.array([-np.inf, np.inf])], chains)
