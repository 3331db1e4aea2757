"""Checks and conversions of numbers that users pass (integers, real arrays, scores); functions for sums in float64."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from numbers import Integral, Real
from operator import index
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils._param_validation import Interval

MAX_INT32 = int(np.iinfo(np.int32).max)


class _WideInterval(Interval):
    """Interval that converts NumPy numbers before comparisons, so that its bounds may exceed single precision."""

    def is_satisfied_by(self, val):
        return super().is_satisfied_by(val.item() if isinstance(val, np.generic) else val)


# Range of C, the inverse penalty strength. In this range, 1 / C and products of C with losses are finite.
C_INTERVAL = _WideInterval(Real, 1e-100, 1e100, closed="both")

# Maximum magnitude of scores. Squares and sums (over nodes and edges) of such scores are far from overflow.
SCORE_LIMITS = {np.dtype(np.float32): 1e18, np.dtype(np.float64): 1e100}


def n_joint_states(n_states: ArrayLike, axis: int | None = None) -> Any:
    """Return the number of joint states, which is the product of state counts, in float64 (inf if it overflows)."""
    with np.errstate(over="ignore"):
        return np.prod(np.asarray(n_states), axis=axis, dtype=np.float64)


def offsets_from_lengths(lengths: ArrayLike) -> np.ndarray:
    """Return the start of each of several consecutive parts, followed by the end of the last part, as int64."""
    return np.concatenate(([0], np.cumsum(np.asarray(lengths, dtype=np.int64)))).astype(np.int64)


def first_of_equal(keys: np.ndarray) -> np.ndarray:
    """Return, for each key, the index of the first equal key."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse.ravel()]


def as_integer(value: Any, name: str, *, lowest: int = 0, highest: int = MAX_INT32) -> int:
    """Convert an integer of any type to int; raise ValueError if the value is not an integer within the bounds."""
    # name: name of the argument in error messages
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be an integer, got {value!r}.")
    if not lowest <= number <= highest:
        raise ValueError(f"{name} must be between {lowest} and {highest}, got {number}.")
    return number


def check_option(value: Any, name: str, holds: Callable[[Any], bool], needed: str, *, kind: type = Real) -> None:
    """Raise ValueError unless an option is a number that satisfies a condition."""
    # name: name of the argument in error messages; needed: the condition in words, after "must"
    # kind: Real, or Integral for integers
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {'an integer' if kind is Integral else 'a number'}, got {value!r}.")
    if not holds(value):
        raise ValueError(f"{name} must {needed}, got {value!r}.")


def check_switch(value: Any, name: str) -> None:
    """Raise ValueError unless an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def check_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless an option is one of the given names."""
    choices = tuple(choices)
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def as_integers(
    values: ArrayLike,
    name: str,
    *,
    shape: tuple[int, ...] | None = None,
    lowest: int | None = None,
    highest: int | None = None,
    dtype: DTypeLike = np.int32,
    kinds: str = "iu",
) -> np.ndarray:
    """Convert values to a contiguous array of integers, or raise ValueError if a value is outside of the bounds."""
    # name: name of the argument in error messages
    # lowest, highest: bounds of the values; if None, the limits of dtype
    # kinds: kind codes of the NumPy types that are accepted as integers
    values = as_array(values, name)
    if shape is not None and values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}.")
    if not values.size:
        return np.zeros(values.shape, dtype=dtype)
    if values.dtype.kind not in kinds:
        lacks = values.dtype.kind == "f" and np.isnan(values).any()
        raise ValueError(f"{name} must be integers, {'found missing values' if lacks else f'got {values.dtype}'}.")
    if values.dtype == dtype and lowest is None and highest is None:
        return np.ascontiguousarray(values)
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    lowest = limits.min if lowest is None else lowest
    highest = limits.max if highest is None else min(highest, limits.max)
    # Compare Python integers, which is exact; NumPy compares int64 with uint64 as floats.
    smallest, largest = int(values.min()), int(values.max())
    if smallest < lowest or largest > highest:
        raise ValueError(f"{name} must be between {lowest} and {highest}, found values from {smallest} to {largest}.")
    return np.ascontiguousarray(values, dtype=dtype)


def as_reals(values: Any, name: str, dtype: DTypeLike | None = None) -> Any:
    """Convert values to an array or CSR matrix of ``dtype``.

    By default, float32 and float64 do not change, and any other type becomes float64. NaN and infinity are allowed.
    """
    # name: name of the argument in error messages
    values = convert_to_csr(values, name) if is_sparse_matrix(values) else as_array(values, name)
    require_numbers(values, name)
    if dtype is None:
        dtype = values.dtype if values.dtype in SCORE_LIMITS else np.float64
    if values.dtype == dtype:
        return values
    try:
        # A number that is too large for the type becomes infinite; callers that need finite numbers reject infinity.
        with np.errstate(over="ignore"):
            return values.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold numbers, got {values.dtype}: {error}") from error


def require_numbers(values: Any, name: str) -> None:
    """Raise ValueError for complex numbers, and for dates, strings and other entries that NumPy silently converts."""
    # values: array or sparse matrix; name: name of the argument in error messages
    kind = values.dtype.kind
    if kind in "biuf":
        return
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold numbers, got {values.dtype}.")
    if kind in "US" and values.ndim == 0:
        raise ValueError(f"{name} must hold numbers, got the string {values.item()!r}: pass the values.")
    kinds = {type(value) for value in values.ravel()} if kind == "O" else {values.dtype.type}
    for found, (needed, *types) in _NO_NUMBERS.items():
        if any(issubclass(each, tuple(types)) for each in kinds):
            raise ValueError(f"{name} must hold numbers, got {found} ({values.dtype}): {needed}.")


# For each kind of entry that NumPy would silently convert to numbers: advice on conversion, and the NumPy types.
_NO_NUMBERS: dict[str, Any] = {
    "strings": ("convert digits by astype(float), categories by OneHotEncoder", str, bytes),
    "durations": ("divide them by a unit, as in X / np.timedelta64(1, 's')", np.timedelta64, timedelta),
    "dates": (
        "divide their distance from a date by a unit, as in (X - X.min()) / np.timedelta64(1, 's')",
        np.datetime64,
        date,
    ),
    "records": ("make columns of their fields by numpy.lib.recfunctions.structured_to_unstructured", np.void),
}


def as_pixels(values: Any, name: str) -> np.ndarray:
    """Convert an array of objects to float64.

    Numeric types do not change, because the type may determine the range of pixel values.
    """
    # name: name of the argument in error messages
    values = as_array(values, name)
    if values.dtype.kind not in "biuf":
        return as_reals(values, name)
    return values


def is_sparse_matrix(values: Any) -> bool:
    """Return ``scipy.sparse.issparse(values)``; for NumPy arrays, this function is a microsecond faster."""
    return values is not None and type(values) is not np.ndarray and bool(sp.issparse(values))


def convert_to_csr(matrix: Any, name: str) -> Any:
    """Convert a sparse matrix to CSR format, or raise ValueError if an index is out of bounds.

    The check is needed because SciPy and compiled code read memory at these indices without checks.
    """
    # name: name of the argument in error messages
    if matrix.format in ("csr", "csc", "bsr"):
        n_major, n_minor = matrix.shape[:: -1 if matrix.format == "csc" else 1]
        if matrix.format == "bsr":
            n_major, n_minor = n_major // matrix.blocksize[0], n_minor // matrix.blocksize[1]
        pointers, indices = matrix.indptr, matrix.indices
        ascend = len(pointers) == n_major + 1 and pointers[0] == 0 and (pointers[1:] >= pointers[:-1]).all()
        if not ascend or pointers[-1] > min(len(indices), len(matrix.data)):
            raise ValueError(f"{name} is a damaged sparse matrix: indptr must ascend from 0 to the number of entries.")
        _check_indices(indices[: pointers[-1]], n_minor, name)
    elif matrix.format == "coo":
        for indices, length in zip((matrix.row, matrix.col), matrix.shape, strict=True):
            _check_indices(indices, length, name)
    return matrix.tocsr()


def _check_indices(indices, length, name):
    # Interpreted as unsigned integers, negative indices are too large, so a single pass finds all invalid indices.
    # With thousands of sequences, a second pass would take noticeable time.
    if indices.size and int(indices.view(f"u{indices.itemsize}").max()) >= length:
        raise ValueError(
            f"{name} is a damaged sparse matrix: it has indices {indices.min()} to {indices.max()} along an axis of "
            f"length {length}."
        )


def as_scores(values: ArrayLike, name: str, dtype: DTypeLike | None = None, *, may_forbid: bool = True) -> np.ndarray:
    """Convert scores to ``dtype``; by default, float32 and float64 do not change, and other types become float64."""
    # name: name of the argument in error messages; may_forbid: whether -inf is allowed
    given = as_reals(values, name)
    if not isinstance(given, np.ndarray):
        raise TypeError(f"{name} must be dense, got a sparse matrix: use its toarray().")
    dtype = given.dtype if dtype is None else np.dtype(dtype)
    limit = SCORE_LIMITS[dtype]
    if given.dtype == dtype and sum_squares(given) <= limit**2:
        return given
    # The minimum and the maximum need no temporary array. If any score is NaN, both are NaN.
    smallest, largest = float(given.min(initial=0.0)), float(given.max(initial=0.0))
    if smallest == -np.inf and may_forbid:
        smallest = float(given.min(initial=0.0, where=given > -np.inf))
    if not -limit <= smallest <= largest <= limit:
        found = "NaN" if np.isnan(smallest) else f"{largest if largest > limit else smallest:g}"
        allowed = "finite or -inf" if may_forbid else "finite"
        raise ValueError(f"{name} must be {allowed}, in magnitude at most {limit:g} in {dtype}, found {found}.")
    return given.astype(dtype, copy=False)


def sum_squares(values: np.ndarray) -> float:
    """Return the sum of squares of contiguous values, or NaN if values are not contiguous.

    The sum is computed in the data type of the values, which is faster than finding the maximum. The sum is infinite if
    a value is -inf.
    """
    if not values.flags.c_contiguous:
        return np.nan
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(flat.dot(flat) if len(flat) <= _MOST_BY_BLAS else np.einsum("i,i->", flat, flat))


# Maximum length of dot products by BLAS. For longer products, BLAS starts threads that use the CPU while they wait.
_MOST_BY_BLAS = 8192


def compute_row_maxima(scores: np.ndarray) -> np.ndarray:
    """Return ``scores.max(axis=1, keepdims=True)``; for short rows, this function is ten times faster than NumPy."""
    # scores: (N, K), K > 0; returns (N, 1)
    if scores.shape[1] > _LONG_ROW:
        return scores.max(axis=1, keepdims=True)
    highest = scores[:, 0].copy()
    for column in scores.T[1:]:
        np.maximum(highest, column, out=highest)
    return highest[:, np.newaxis]


# Number of columns above which NumPy's row maxima are faster than a loop over columns.
_LONG_ROW = 16


def check_product(weight: np.ndarray, values: np.ndarray, name: str, squares: float | None = None) -> None:
    """Raise ValueError if products of weights and scores, summed over features, may exceed the limit on scores."""
    # weight: (E, R), finite; values: (T, R, ...), finite or -inf; name: name of the product in the error message
    # squares: the sum of the squared weights, if it is known
    limit = SCORE_LIMITS[values.dtype]
    squares = sum_squares(weight) if squares is None else squares
    # By the Cauchy-Schwarz inequality, no product then exceeds the limit.
    if squares * sum_squares(values) <= limit**2:
        return
    size = np.where(np.isneginf(values), 0.0, np.abs(values)).astype(np.float64)
    largest = size.max(axis=(0, *range(2, values.ndim)), initial=0.0)
    with np.errstate(over="ignore"):
        # Use the maximum over all weights first. It is much faster than the maxima of columns, and usually suffices.
        if float(max(weight.max(initial=0.0), -weight.min(initial=0.0))) * float(largest.sum()) <= limit:
            return
        largest_weight = np.abs(weight).max(axis=0, initial=0.0).astype(np.float64)
        product = float(largest_weight @ largest)
    if not product <= limit:
        raise ValueError(
            f"{name} must be finite, in magnitude at most {limit:g} in {values.dtype}, found up to {product:g}."
        )


def as_array(values: Any, name: str) -> np.ndarray:
    """Convert lists or a masked array to an array; raise ValueError if rows differ in length or values are sparse."""
    # name: name of the argument in error messages
    if sp.issparse(values):
        raise ValueError(f"{name} must be dense, got a sparse matrix: use its toarray().")
    try:
        array = np.asarray(replace_masked_values(values))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must be a rectangular array: {error}") from error
    return with_nan(array) if array.dtype == object else array


def replace_masked_values(values: Any) -> Any:
    """Replace the masked entries of a masked array by NaN; return any other values unchanged."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return values.data
    return np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.nan)


def get_pandas_na() -> Any:
    """Return the missing value of pandas, or None if pandas is not imported."""
    return getattr(sys.modules.get("pandas"), "NA", None)


def with_nan(array: np.ndarray) -> np.ndarray:
    """Replace the missing value of pandas by NaN in an array of objects."""
    missing = get_pandas_na()
    if missing is None:
        return array
    flat = [np.nan if value is missing else value for value in array.ravel().tolist()]
    found = np.empty(len(flat), dtype=object)
    found[:] = flat
    return found.reshape(array.shape)


# Number of rows that are converted to float64 at a time, so that the temporary array fits in the cache.
_ROWS = 8192


def gram(features, columns):
    """Compute ``columns.T @ features`` in float64, without a float64 copy of all features."""
    if not isinstance(features, np.ndarray):
        return np.asarray((features.T @ columns.astype(np.float64)).T)
    if features.dtype == np.float64:
        return columns.T.astype(np.float64, copy=False) @ features
    total = np.zeros((columns.shape[1], features.shape[1]))
    for start in range(0, len(features), _ROWS):
        rows = slice(start, start + _ROWS)
        total += columns[rows].T.astype(np.float64) @ features[rows].astype(np.float64)
    return total


def sum_columns(columns):
    """Sum each column in float64; this function is ten times faster than NumPy's sum over the first axis."""
    total = np.zeros(columns.shape[1])
    for start in range(0, len(columns), _ROWS):
        rows = columns[start : start + _ROWS]
        # Use ``dot``: unlike ``@``, it releases the interpreter's lock if one factor is a vector.
        total += np.ones(len(rows)).dot(rows.astype(np.float64, copy=False))
    return total


# Labels are counted instead of sorted if there are at least _MANY, and their range is less than _SMALL_RANGE.
_MANY, _SMALL_RANGE = 1024, 64


def different(labels):
    """Return the sorted distinct labels, as ``np.unique`` does."""
    if labels.dtype.kind == "i" and len(labels) >= _MANY:
        lowest, highest = int(labels.min()), int(labels.max())
        if highest - lowest < _SMALL_RANGE:
            return (np.flatnonzero(np.bincount(labels - lowest)) + lowest).astype(labels.dtype)
    return np.unique(labels)
