"""Kernels that read many short arrays in one call."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf.encoding._array_lists import are_finite, copy_parts, joined_arrays, lengths_of_matrices


def matrices(dtype=np.float64, n_columns=3):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, n_columns)).astype(dtype) for n in (1, 4, 2, 30)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_joined_arrays_are_concatenated(dtype):
    for arrays in (matrices(dtype), [x[:, 0].copy() for x in matrices(dtype)], [np.zeros((0, 2), dtype)] * 2):
        joined = joined_arrays(arrays)
        assert_array_equal(joined, np.concatenate(arrays))
        assert joined.dtype == dtype


def test_what_cannot_be_copied_as_it_is_is_not_joined():
    arrays = matrices()
    assert joined_arrays([*arrays, np.zeros((2, 3), np.float32)]) is None
    assert joined_arrays([*arrays, np.zeros((2, 6))[:, ::2]]) is None
    assert joined_arrays([*arrays, np.zeros((2, 3), ">f8")]) is None
    with pytest.raises(ValueError, match="same shape"):
        joined_arrays([*arrays, np.zeros((2, 4))])
    with pytest.raises(TypeError):
        joined_arrays([*arrays, [[0.0, 1.0, 2.0]]])


def test_read_only_arrays_are_read():
    arrays = matrices()
    for x in arrays:
        x.flags.writeable = False
    assert_array_equal(joined_arrays(arrays), np.concatenate(arrays))
    assert are_all_finite(arrays)


def test_lengths_of_matrices_of_one_kind():
    arrays, kind = matrices(), np.dtype(np.float64)
    lengths, places = lengths_of_matrices(arrays, kind)
    assert lengths.tolist() == [1, 4, 2, 30]
    assert places[:, 0].tolist() == [x.ctypes.data for x in arrays]
    others = np.zeros((2, 4)), np.zeros((2, 3), np.float32), np.zeros(3), np.zeros((0, 3)), np.zeros((2, 6))[:, ::2]
    for other in others:
        assert lengths_of_matrices([*arrays, other], kind) is None


def are_all_finite(arrays):
    places = np.array([[x.ctypes.data] for x in arrays])
    return are_finite(places, np.array([x.size for x in arrays]), arrays[0].dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_anywhere(dtype, value):
    extreme = np.finfo(dtype)
    arrays = [*matrices(dtype), np.full((2, 3), extreme.max), np.full((2, 3), extreme.smallest_subnormal)]
    assert are_all_finite(arrays)
    for i, x in enumerate(arrays):
        for k in range(x.size):
            damaged = x.copy()
            damaged.reshape(-1)[k] = value
            assert not are_all_finite([*arrays[:i], damaged, *arrays[i + 1 :]])


@pytest.mark.parametrize("values", [np.arange(7), np.array(list("abcdefg")), np.arange(7.0)[::-1].copy()])
def test_copied_parts_are_slices_of_their_own(values):
    ptr = np.array([0, 3, 3, 4, 7])
    parts = np.empty(4, dtype=object)
    copy_parts(values, ptr, parts)
    for part, (start, stop) in zip(parts, pairwise(ptr), strict=True):
        assert_array_equal(part, values[start:stop])
        assert part.dtype == values.dtype
        assert part.base is None
        assert part.flags.writeable


def test_parts_lie_inside():
    for ptr in ([0, 8], [-1, 3], [0, 5, 3]):
        with pytest.raises(ValueError, match="ptr"):
            copy_parts(np.arange(7), np.array(ptr), np.empty(len(ptr) - 1, dtype=object))
    with pytest.raises(ValueError, match="one entry more than parts"):
        copy_parts(np.arange(7), np.array([0, 3, 7]), np.empty(3, dtype=object))
    for values in (np.zeros((2, 2)), np.arange(6)[::2], np.array([None, 1])):
        with pytest.raises(ValueError, match="values"):
            copy_parts(values, np.array([0, 1]), np.empty(1, dtype=object))
