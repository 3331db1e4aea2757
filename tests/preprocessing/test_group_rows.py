"""Long tables to examples and back."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf.preprocessing import group_rows, ungroup_rows


@pytest.mark.parametrize("rows", [np.arange(10).reshape(5, 2), np.arange(5), np.array(list("abcde"))])
def test_there_and_back(rows):
    groups = [3, 1, 3, 2, 1]
    parts = group_rows(rows, groups)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert np.array_equal(parts[0], rows[[0, 2]])
    assert np.array_equal(ungroup_rows(parts, groups), rows)


def test_sparse_rows():
    rows = sp.random(6, 4, 0.5, random_state=0, format="coo")
    parts = group_rows(rows, list("aabbba"))
    assert np.array_equal(parts[0].toarray(), rows.toarray()[[0, 1, 5]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_rows(np.zeros((3, 2)), [1, 2]), r"groups must have shape \(3,\)"),
        (lambda: group_rows(np.zeros((3, 2)), "sentence"), "names no column: rows is a ndarray"),
        (lambda: group_rows(np.zeros((0, 2)), []), "of which one is needed"),
        (lambda: group_rows(np.zeros(2), [1.0, np.nan]), r"groups\[1\] is nan: every row needs a group"),
        (lambda: group_rows(np.zeros(2), np.array(["a", None])), r"groups\[1\] is None"),
        (lambda: ungroup_rows([[1]], [1, 2]), "holds 1 examples, but groups names 2"),
        (lambda: ungroup_rows([[1], [2]], [1, 2, 2]), r"parts\[1\] has 1 rows, but its group has 2"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
