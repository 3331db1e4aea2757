"""Conversion of long tables to examples and back."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf.preprocessing import group_rows, ungroup_rows


@pytest.mark.parametrize("rows", [np.arange(10).reshape(5, 2), np.arange(5), np.array(list("abcde"))])
def test_there_and_back(rows):
    groups = [3, 1, 3, 2, 1]
    with pytest.warns(UserWarning, match="2 of 3 groups are not consecutive, such as the rows of .*3.*: "):
        parts = group_rows(rows, groups)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert np.array_equal(parts[0], rows[[0, 2]])
    assert np.array_equal(ungroup_rows(parts, groups), rows)


def test_sparse_rows():
    rows = sp.random(6, 4, 0.5, random_state=0, format="coo")
    with pytest.warns(UserWarning, match="1 of 2 groups are not consecutive"):
        parts = group_rows(rows, list("aabbba"))
    assert np.array_equal(parts[0].toarray(), rows.toarray()[[0, 1, 5]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_rows(np.zeros((3, 2)), [1, 2]), r"groups must have shape \(3,\)"),
        (lambda: group_rows(np.zeros((3, 2)), "sentence"), "is no column of the table rows: rows is a ndarray"),
        (lambda: group_rows(np.zeros((0, 2)), []), "at least one entry"),
        (lambda: group_rows(np.zeros(2), [1.0, np.nan]), r"groups\[1\] is nan: every row needs a group"),
        (lambda: group_rows(np.zeros(2), np.array(["a", None])), r"groups\[1\] is None"),
        (lambda: group_rows(np.zeros(2), np.array(["a", 1], dtype=object)), "groups must have .* found int and str"),
        (lambda: ungroup_rows(None, [1, 2]), "parts must be an array, or a list of one array per example, got None"),
        (lambda: ungroup_rows([[1]], None), "groups must have shape"),
        (lambda: ungroup_rows([[1]], [1, 2]), "holds 1 examples, but groups has entries for 2"),
        (lambda: ungroup_rows([[1], [2]], [1, 2, 2]), r"parts\[1\] has 1 rows, but its group has 2"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_groups_that_follow_each_other_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(part) for part in group_rows(np.arange(5), list("aabbb"))] == [2, 3]
        assert [len(part) for part in group_rows(np.arange(5), list("babab"), [1, 1, 2, 2, 3])] == [3, 2]


@pytest.mark.parametrize("as_names", [False, True])
def test_time_orders_the_rows_of_each_group(as_names):
    rng = np.random.default_rng(0)
    groups, time = rng.integers(4, size=30), rng.permutation(30).astype(float)
    time[5], time[17] = time[3], time[3]  # rows with equal times keep their order
    if as_names:
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame({"row": np.arange(30), "sentence": groups, "when": time})
        parts = group_rows(table, "sentence", "when")
        assert all(part.columns.tolist() == ["row"] for part in parts)
        parts = [part["row"].to_numpy() for part in parts]
    else:
        parts = group_rows(np.arange(30), groups, time)
    names = list(dict.fromkeys(groups.tolist()))
    expected = [sorted(np.flatnonzero(groups == name), key=lambda i: (time[i], i)) for name in names]
    assert [part.tolist() for part in parts] == expected
    assert ungroup_rows(parts, groups, time).tolist() == list(range(30))


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ([1, 2], r"time must have shape \(3,\)"),
        ([1.0, np.nan, 2.0], r"time\[1\] is nan: every row needs a time"),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="M8[D]"), r"time\[1\] is NaT"),
        (np.array([1, "b", 2], dtype=object), "time must have entries of one type, found int and str"),
        ("when", "time='when' is no column of the table rows"),
    ],
)
def test_bad_times(time, message):
    with pytest.raises(ValueError, match=message):
        group_rows(np.zeros(3), [1, 1, 2], time)


@pytest.mark.parametrize("form", ["names", "frame", "array"])
def test_several_group_columns(form):
    rng = np.random.default_rng(0)
    documents, sentences, time = rng.integers(3, size=40), rng.integers(3, size=40), rng.permutation(40)
    kinds = np.array(list("xyz"))[documents]
    joined = [f"{a} {b}" for a, b in zip(kinds, sentences, strict=True)]
    expected = [part.tolist() for part in group_rows(np.arange(40), joined, time)]
    if form == "array":
        groups = np.stack([documents, sentences], axis=1)
        parts = group_rows(np.arange(40), groups, time)
    else:
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame({"row": np.arange(40), "document": kinds, "sentence": sentences, "when": time})
        groups = table[["document", "sentence"]]
        if form == "names":
            parts = group_rows(table, ["document", "sentence"], "when")
            assert all(part.columns.tolist() == ["row"] for part in parts)
            parts = [part["row"].to_numpy() for part in parts]
        else:
            parts = group_rows(table["row"], groups, table["when"])
    assert [part.tolist() for part in parts] == expected
    assert ungroup_rows(parts, groups, time).tolist() == list(range(40))


def test_bad_group_columns():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(5), "b": list("uuvvv"), "c": [1, 2, 1, 2, 1]})
    with pytest.raises(ValueError, match="groups='d' is no column of the table rows"):
        group_rows(table, ["b", "d"])
    with pytest.warns(UserWarning, match="such as the rows of 'v', 1: they are joined"):
        assert [len(part) for part in group_rows(table, ["b", "c"])] == [1, 1, 2, 1]
    with pytest.raises(ValueError, match=r"groups\[3\] is nan: every row needs a group"):
        group_rows(table, pd.DataFrame({"b": [1, 1, 1, np.nan, 2], "c": 0}))
    with pytest.raises(ValueError, match="groups must have shape"):
        group_rows(table, np.zeros((5, 0)))


@pytest.mark.parametrize("form", ["categorical", "series", "column"])
def test_ordered_categories_are_sorted_in_their_order(form):
    pd = pytest.importorskip("pandas")
    time = pd.Categorical(["Feb", "Jan", "Mar", "Apr"], categories=["Jan", "Feb", "Mar", "Apr"], ordered=True)
    rows = pd.DataFrame({"x": [2, 1, 3, 4], "g": 1, "t": time})
    given = {"categorical": time, "series": rows["t"], "column": "t"}[form]
    parts = group_rows(rows, "g", given)
    assert parts[0]["x"].tolist() == [1, 2, 3, 4]
    assert ungroup_rows([parts[0]["x"]], rows["g"], time).tolist() == [2, 1, 3, 4]
    with pytest.raises(ValueError, match=r"time\[1\] is .*: every row needs a time"):
        group_rows(rows, "g", time.set_categories(["Feb", "Mar", "Apr"]))


def test_numbers_as_strings_are_not_sorted_as_text():
    with pytest.raises(ValueError, match="time holds numbers as strings, such as '10', which are sorted as text"):
        group_rows(np.arange(3), [1, 1, 1], ["10", "9", "1"])
    assert group_rows(np.arange(3), [1, 1, 1], ["09", "10", "02"])[0].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "times",
    [["2.0", "10.0", "1.0"], ["-1", "-2", "-10"], ["1e3", "9", "10"], ["+5", "10", "3"]],
)
def test_numbers_as_strings_are_sorted_as_text_only_in_the_same_order(times):
    with pytest.raises(ValueError, match="time holds numbers as strings"):
        group_rows(np.arange(len(times)), np.ones(len(times)), times)
    in_order = sorted(times, key=float)
    numbers = [float(time) for time in times]
    assert group_rows(np.array(times), np.ones(len(times)), numbers)[0].tolist() == in_order


@pytest.mark.parametrize("times", [["2020-10-01", "2020-09-01"], ["b", "a"], ["nan", "inf"], ["1", "x"], ["", "1"]])
def test_other_strings_are_sorted_as_text(times):
    assert group_rows(np.array(times), [1, 1], times)[0].tolist() == sorted(times)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4])
def test_lists_of_column_names_are_names_for_any_number_of_rows(n_rows):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"doc": [0, 0, 1, 1], "sent": [0, 1, 1, 1], "x": range(4)}).iloc[:n_rows]
    for names in (["doc"], ["doc", "sent"], ["sent", "doc"]):
        parts = group_rows(table, names)
        assert all(set(part.columns) == {"doc", "sent", "x"} - set(names) for part in parts)
        assert len(parts) == len(table[names].drop_duplicates())


def test_groups_of_rows_may_have_the_names_of_columns():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    for groups in (["a", "a"], ["a", "c"], np.array(["a", "b"])):
        parts = group_rows(table, groups)
        assert [list(part.columns) for part in parts] == [["a", "b"]] * len(set(groups))


def test_columns_of_equal_names_are_an_error_only_if_columns_are_given_by_name():
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame([["s", 2, 3], ["s", 4, 5]], columns=["g", "x", "x"])
    for options in ({"groups": "g"}, {"groups": ["g"]}, {"groups": [0, 0], "time": "g"}, {"groups": "x"}):
        with pytest.raises(ValueError, match=r"rows has a column twice: \['x'\]. Rename the columns, or pass"):
            group_rows(rows, **options)
    (part,) = group_rows(rows, rows["g"])
    assert part.to_numpy().tolist() == rows.to_numpy().tolist()
