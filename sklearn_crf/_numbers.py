"""Numbers that users pass: integers narrowed without wrapping, real arrays, scores within one limit; float64 sums."""

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
    """Interval whose ends a number of single precision cannot hold."""

    def is_satisfied_by(self, val):
        return super().is_satisfied_by(val.item() if isinstance(val, np.generic) else val)


# Strengths of a penalty, C, whose products with losses and whose inverse are finite.
C_INTERVAL = _WideInterval(Real, 1e-100, 1e100, closed="both")

# Squares of scores stay far from the largest number of their type, and so do sums over nodes and edges.
SCORE_LIMITS = {np.dtype(np.float32): 1e18, np.dtype(np.float64): 1e100}


def n_joint_states(n_states: ArrayLike, axis: int | None = None) -> Any:
    """Product of numbers of states in float64, inf where it is too large."""
    with np.errstate(over="ignore"):
        return np.prod(np.asarray(n_states), axis=axis, dtype=np.float64)


def as_integer(value: Any, name: str, *, lowest: int = 0, highest: int = MAX_INT32) -> int:
    """A number as int, if it is an integer within the two bounds."""
    # name: what errors call it
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be an integer, got {value!r}.")
    if not lowest <= number <= highest:
        raise ValueError(f"{name} must lie in {lowest} to {highest}, got {number}.")
    return number


def check_option(value: Any, name: str, holds: Callable[[Any], bool], needed: str, *, kind: type = Real) -> None:
    """Raise ValueError unless an option is a number for which a condition holds."""
    # name: what errors call it; needed: the condition, after "must"; kind: Real, or Integral for whole numbers
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {'an integer' if kind is Integral else 'a number'}, got {value!r}.")
    if not holds(value):
        raise ValueError(f"{name} must {needed}, got {value!r}.")


def check_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless an option is one of these names."""
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
    """Contiguous integers in a type into which all of them fit."""
    # name: what errors call it
    # lowest, highest: bounds; None is what the type holds
    # kinds: kinds of NumPy types that are taken as integers
    values = as_array(values, name)
    if shape is not None and values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}.")
    if not values.size:
        return np.zeros(values.shape, dtype=dtype)
    if values.dtype.kind not in kinds:
        raise ValueError(f"{name} must be integers, got {values.dtype}.")
    if values.dtype == dtype and lowest is None and highest is None:
        return np.ascontiguousarray(values)
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    lowest = limits.min if lowest is None else lowest
    highest = limits.max if highest is None else min(highest, limits.max)
    # Python's integers compare exactly, where int64 and uint64 would be compared as floats.
    smallest, largest = int(values.min()), int(values.max())
    if smallest < lowest or largest > highest:
        raise ValueError(f"{name} must lie in {lowest} to {highest}, found {smallest} to {largest}.")
    return np.ascontiguousarray(values, dtype=dtype)


def as_reals(values: Any, name: str, dtype: DTypeLike | None = None) -> Any:
    """An array or CSR matrix in ``dtype``, or in float32 or float64 as it is; anything else becomes float64.

    Values are not checked: NaN and infinity pass.
    """
    # name: what errors call it
    values = sound_csr(values, name) if is_sparse_matrix(values) else as_array(values, name)
    require_numbers(values, name)
    if dtype is None:
        dtype = values.dtype if values.dtype in SCORE_LIMITS else np.float64
    if values.dtype == dtype:
        return values
    try:
        # A number beyond the smaller type becomes infinite, which whoever needs finite numbers refuses.
        with np.errstate(over="ignore"):
            return values.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold numbers, got {values.dtype}: {error}") from error


def require_numbers(values: Any, name: str) -> None:
    """Raise ValueError for arrays of what NumPy would turn into numbers without a word: dates, strings, records."""
    # values: array or sparse matrix; name: what errors call it
    kind = values.dtype.kind
    if kind in "biuf":
        return
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold numbers, got {values.dtype}.")
    kinds = {type(value) for value in values.ravel()} if kind == "O" else {values.dtype.type}
    for found, (needed, *types) in _NO_NUMBERS.items():
        if any(issubclass(each, tuple(types)) for each in kinds):
            raise ValueError(f"{name} must hold numbers, got {found} ({values.dtype}): {needed}.")


# What an array may hold that looks like numbers: how to make numbers of it, and its types.
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
    """An array of numbers, whose type may say what range they have; objects become float64."""
    # name: what errors call it
    values = as_array(values, name)
    if values.dtype.kind not in "biuf":
        return as_reals(values, name)
    return values


def is_sparse_matrix(values: Any) -> bool:
    """As ``scipy.sparse.issparse``, which takes a microsecond for its answer: too long for thousands of arrays."""
    return values is not None and type(values) is not np.ndarray and bool(sp.issparse(values))


def sound_csr(matrix: Any, name: str) -> Any:
    """A sparse matrix in CSR format, all of whose indices lie inside of its shape.

    SciPy and compiled code read at these indices without looking.
    """
    # name: what errors call it
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
    # As unsigned numbers, negative ones are too large as well: one pass tells, which counts for thousands of sequences.
    if indices.size and int(indices.view(f"u{indices.itemsize}").max()) >= length:
        raise ValueError(
            f"{name} is a damaged sparse matrix: it has indices {indices.min()} to {indices.max()} along an axis of "
            f"length {length}."
        )


def as_scores(values: ArrayLike, name: str, dtype: DTypeLike | None = None, *, may_forbid: bool = True) -> np.ndarray:
    """Scores in ``dtype``, or in float32 or float64 as they are; anything else becomes float64."""
    # name: what errors call them; may_forbid: whether -inf is allowed
    given = as_reals(values, name)
    if not isinstance(given, np.ndarray):
        raise TypeError(f"{name} must be dense, got a sparse matrix: use its toarray().")
    dtype = given.dtype if dtype is None else np.dtype(dtype)
    limit = SCORE_LIMITS[dtype]
    if given.dtype == dtype and sum_of_squares(given) <= limit**2:
        return given
    # Two passes without a temporary; NaN comes out of both.
    smallest, largest = float(given.min(initial=0.0)), float(given.max(initial=0.0))
    if smallest == -np.inf and may_forbid:
        smallest = float(given.min(initial=0.0, where=given > -np.inf))
    if not -limit <= smallest <= largest <= limit:
        found = "NaN" if np.isnan(smallest) else f"{largest if largest > limit else smallest:g}"
        allowed = "finite or -inf" if may_forbid else "finite"
        raise ValueError(f"{name} must be {allowed}, in magnitude at most {limit:g} in {dtype}, found {found}.")
    return given.astype(dtype, copy=False)


def sum_of_squares(values: np.ndarray) -> float:
    """In the type of contiguous values, in less time than their maximum takes; NaN of others, and of -inf infinity."""
    if not values.flags.c_contiguous:
        return np.nan
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(flat.dot(flat) if len(flat) <= _MOST_BY_BLAS else np.einsum("i,i->", flat, flat))


# Longer products wake the threads of BLAS, which wait for more at the processor's expense for milliseconds.
_MOST_BY_BLAS = 8192


def highest_of_rows(scores: np.ndarray) -> np.ndarray:
    """``scores.max(axis=1, keepdims=True)``, in a tenth of the time where rows are short."""
    # scores: (N, K), K > 0; returns (N, 1)
    if scores.shape[1] > _LONG_ROW:
        return scores.max(axis=1, keepdims=True)
    highest = scores[:, 0].copy()
    for column in scores.T[1:]:
        np.maximum(highest, column, out=highest)
    return highest[:, np.newaxis]


# Columns from which on NumPy's maxima of rows take less time than those of columns.
_LONG_ROW = 16


def check_product(weight: np.ndarray, values: np.ndarray, name: str, squares: float | None = None) -> None:
    """Raise ValueError if products of weights and scores, summed over features, may pass the limit on scores."""
    # weight: (E, R), finite; values: (T, R, ...), finite or -inf; name: what the error calls the product
    # squares: the sum of the squared weights, where that is known
    limit = SCORE_LIMITS[values.dtype]
    squares = sum_of_squares(weight) if squares is None else squares
    # By the inequality of Cauchy and Schwarz.
    if squares * sum_of_squares(values) <= limit**2:
        return
    size = np.where(np.isneginf(values), 0.0, np.abs(values)).astype(np.float64)
    largest = size.max(axis=(0, *range(2, values.ndim)), initial=0.0)
    with np.errstate(over="ignore"):
        # NumPy's maxima over all entries take a fraction of the time of maxima of columns, and mostly they suffice.
        if float(max(weight.max(initial=0.0), -weight.min(initial=0.0))) * float(largest.sum()) <= limit:
            return
        largest_weight = np.abs(weight).max(axis=0, initial=0.0).astype(np.float64)
        product = float(largest_weight @ largest)
    if not product <= limit:
        raise ValueError(
            f"{name} must be finite, in magnitude at most {limit:g} in {values.dtype}, found up to {product:g}."
        )


def as_array(values: Any, name: str) -> np.ndarray:
    """An array of values that may be masked or in lists; those that no array can hold are an error."""
    # name: what errors call it
    try:
        array = np.asarray(without_mask(values))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must be a rectangular array: {error}") from error
    return with_nan(array) if array.dtype == object else array


def without_mask(values: Any) -> Any:
    """Values as they are, but those of a masked array with NaN where they are masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return values.data
    return np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.nan)


def pandas_na() -> Any:
    """The missing value of pandas, None as long as nobody has imported pandas."""
    return getattr(sys.modules.get("pandas"), "NA", None)


def with_nan(array: np.ndarray) -> np.ndarray:
    """An array of objects with NaN in the place of the missing value of pandas."""
    missing = pandas_na()
    if missing is None:
        return array
    flat = [np.nan if value is missing else value for value in array.ravel().tolist()]
    found = np.empty(len(flat), dtype=object)
    found[:] = flat
    return found.reshape(array.shape)


# Rows per step when float32 features meet float64 statistics: the temporary stays in the cache.
_ROWS = 8192


def gram(features, columns):
    """columns' features in float64, without a float64 copy of all features."""
    if not isinstance(features, np.ndarray):
        return np.asarray((features.T @ columns.astype(np.float64)).T)
    if features.dtype == np.float64:
        return columns.T.astype(np.float64, copy=False) @ features
    total = np.zeros((columns.shape[1], features.shape[1]))
    for start in range(0, len(features), _ROWS):
        rows = slice(start, start + _ROWS)
        total += columns[rows].T.astype(np.float64) @ features[rows].astype(np.float64)
    return total


def column_sums(columns):
    """Sums in float64: a product with ones takes a tenth of the time of NumPy's sum over the first axis."""
    total = np.zeros(columns.shape[1])
    for start in range(0, len(columns), _ROWS):
        rows = columns[start : start + _ROWS]
        # Unlike ``@``, this gives the lock of the interpreter away where one factor is a row.
        total += np.ones(len(rows)).dot(rows.astype(np.float64, copy=False))
    return total


# Integers from which counting small ones is quicker than sorting, and the largest range that is counted.
_MANY, _SMALL_RANGE = 1024, 64


def different(labels):
    """As ``np.unique``."""
    if labels.dtype.kind == "i" and len(labels) >= _MANY:
        lowest, highest = int(labels.min()), int(labels.max())
        if highest - lowest < _SMALL_RANGE:
            return (np.flatnonzero(np.bincount(labels - lowest)) + lowest).astype(labels.dtype)
    return np.unique(labels)
