"""Layouts of X: an array of rows, an array of lattices, or a list of examples."""

from itertools import pairwise
from numbers import Integral, Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.utils.validation import validate_data

from sklearn_crf._numbers import convert_to_csr, is_sparse_matrix, replace_masked_values, require_numbers, with_nan
from sklearn_crf._threads import count_threads, map_tasks, split_into_ranges
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._array_lists import are_finite, copy_parts, one_of_each_type
from sklearn_crf.encoding._examples import Example

# Maximum number of lattice axes without ``lattice_ndim``, because an array with more axes is probably a mistake.
_MOST_LATTICE_AXES = 3


def read_layout(X, lattice_ndim=None):
    """Determine the layout of X; return the name of the layout, and X converted to this layout."""
    # lattice_ndim: number of lattice axes of an example; None infers it from X
    # returns for the layout "nodes": X as given, because scikit-learn validates it later
    # returns for the layout "array": ndarray
    # returns for the layout "list": list of Example, or list of arrays and CSR matrices with equal numbers of axes
    if lattice_ndim is not None and (not isinstance(lattice_ndim, Integral) or lattice_ndim < 0):
        raise ValueError(f"lattice_ndim must be None or a non-negative integer, got {lattice_ndim!r}.")
    if isinstance(X, Example):
        raise ValueError("X is one Example: pass a list of examples, [X].")
    X = _replace_masks(X)
    if sp.issparse(X) or hasattr(X, "columns"):
        _require_axes(X.shape, lattice_ndim)
        return "nodes", convert_to_csr(X, "X") if sp.issparse(X) else X
    X = _to_array_or_list(X, lattice_ndim)
    if isinstance(X, list):
        return "list", _read_list(X, lattice_ndim)
    _require_axes(X.shape, lattice_ndim)
    return "nodes" if X.ndim <= 2 else "array", X


def _replace_masks(X):
    """Replace masked entries by NaN, in an array or in a list of arrays."""
    if is_listed(X) and any(isinstance(x, np.ma.MaskedArray) for x in one_of_each_type(X).values()):
        return [replace_masked_values(x) for x in X]
    return replace_masked_values(X)


def is_listed(X):
    """Return whether X is a list of examples, rather than a single array of numbers."""
    return isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)


def has_nodes(X: Any) -> bool:
    """Return whether any example of X has a node: a row, or an element of a lattice."""
    return any(map(_has_nodes, X)) if is_listed(X) else _has_nodes(X)


def _has_nodes(x: Any) -> bool:
    if isinstance(x, Example):
        return x.n_nodes > 0
    shape = x.shape if hasattr(x, "shape") else (len(x), 1) if hasattr(x, "__len__") else ()
    return 0 not in (shape[:-1] or shape)


def align_frames(X, expected=None):
    """Convert a list of data frames to arrays whose columns have the same order."""
    # X: only lists, tuples and 1-D object arrays of data frames are converted; any other X is returned unchanged
    # expected: names of the columns in the order of the result; None for the order of the first frame
    # returns two values: X, or a list of ndarray; names of the columns, or None without frames or without string names
    frames, names = order_frames(X, expected)
    if frames is None:
        return X, None
    return [np.asarray(x) if names is None else _numbers_of(x, i) for i, x in enumerate(frames)], names


def order_frames(X, expected=None):
    """Bring the columns of all data frames into the same order; return the frames and the names of the columns."""
    # returns two values: the frames, or None if X is not a list of frames; the names, as in align_frames
    # Only one item of each type is checked, because a check takes a microsecond and there may be many items.
    if not is_listed(X) or not len(X) or not any(hasattr(x, "columns") for x in one_of_each_type(X).values()):
        return None, None
    for i, x in enumerate(X):
        if hasattr(x, "columns") != hasattr(X[0], "columns"):
            raise ValueError(
                f"X[{i}] is a {type(x).__name__}, but X[0] is a {type(X[0]).__name__}: all examples must have the "
                "same type."
            )
    names = list(X[0].columns if expected is None else expected)
    if not all(isinstance(name, str) for name in names):
        return list(X), None
    return [_in_order(x, names, i) for i, x in enumerate(X)], np.array(names, dtype=object)


def _in_order(frame, names, i):
    found = list(frame.columns)
    if len(set(found)) < len(found):
        raise ValueError(f"X[{i}] has a column twice: {[name for name in set(found) if found.count(name) > 1]}.")
    if set(found) != set(names):
        missing = [name for name in names if name not in found]
        unknown = [name for name in found if name not in names]
        raise ValueError(f"X[{i}] must have the columns {names}, but it lacks {missing} and has {unknown}.")
    return frame if found == names else frame[names]


def _numbers_of(frame, i):
    values = np.asarray(frame)
    if values.dtype.kind in "biuf":
        return values
    _require_numeric_columns(frame, f"X[{i}]", "SequenceVectorizer converts dicts of words to features.")
    return with_nan(values)


def _require_numeric_columns(frame, name, hint):
    for column in frame.columns:
        try:
            require_numbers(np.asarray(frame[column]), f"column {column!r} of {name}")
        except ValueError as error:
            raise ValueError(f"{error} {hint.format(column)}") from error


def _to_array_or_list(X, lattice_ndim):
    if isinstance(X, tuple) and 1 < len(X) < 5 and _are_features_and_edges(*X[:2]):
        raise ValueError("X is a tuple of features and edges: pass a list of examples, [Example(features, edges)].")
    if isinstance(X, list | tuple):
        return _read_sequence(list(X), lattice_ndim)
    array = np.asarray(X)
    if array.dtype.kind in "US" and array.ndim == 0:
        require_numbers(array, "X")
    if array.dtype == object and array.ndim == 0:
        use = ": pass list(X)" if hasattr(X, "__next__") else ""
        raise TypeError(f"X must be an array, a data frame or a list of examples, got {type(X).__name__}{use}.")
    if array.dtype == object and array.ndim == 1 and len(array) and _is_example(array[0]):
        return list(array)
    return array


def _read_sequence(X, lattice_ndim):
    """Convert nested lists of numbers to an array, and return a list of examples unchanged."""
    if not X:
        raise ValueError("Found array with 0 sample(s) (X is an empty list) while a minimum of 1 is required.")
    if any(_is_example(x) for x in X):
        return X
    if isinstance(X[0], list | tuple) and 1 < len(X[0]) < 5 and _are_features_and_edges(*X[0][:2]):
        raise ValueError(
            f"X[0] is a {type(X[0]).__name__} of features and edges: convert it to an example, "
            "Example(node_features, edges)."
        )
    if lattice_ndim and all(isinstance(x, list | tuple | np.ndarray) and not len(x) for x in X):
        return X
    for i, x in enumerate(X):
        if isinstance(x, list | tuple) and len(x) and isinstance(x[0], dict | str):
            held = "dicts" if isinstance(x[0], dict) else "strings"
            raise ValueError(f"X[{i}] is a list of {held}: convert them to features with SequenceVectorizer.")
    try:
        return np.asarray(X)
    except ValueError:
        pass
    try:
        X = [np.asarray(x) for x in X]
    except ValueError as error:
        raise ValueError(f"X is a list whose examples are not rectangular arrays: {error}.") from error
    widths = {x.shape[-1] if x.ndim else 0 for x in X}
    if all(x.ndim == 1 for x in X):
        raise ValueError(f"X is a list of rows with different numbers of features, {min(widths)} to {max(widths)}.")
    return X


def _are_features_and_edges(features, edges):
    """Return whether two arrays are node features and edges, rather than two rows of a lattice."""
    try:
        features, edges = np.asarray(features), np.asarray(edges)
    except ValueError:
        return False
    are_pairs = edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype.kind in "iu"
    return features.ndim == 2 and are_pairs and (features.shape != edges.shape or features.dtype.kind == "f")


def _is_example(x):
    return isinstance(x, Example) or is_sparse_matrix(x) or getattr(x, "ndim", 0) >= 2


def _read_list(X, lattice_ndim):
    if isinstance(X[0], Example):
        for i, x in enumerate(X):
            if not isinstance(x, Example):
                raise ValueError(
                    f"X[{i}] is a {type(x).__name__}, but X[0] is an Example: all examples must have the same type."
                )
        return X
    if lattice_ndim in (None, 1) and one_of_each_type(X).keys() == {sp.csr_matrix}:
        return X
    # Many short arrays are checked together.
    is_plain = lattice_ndim != 0 and one_of_each_type(X).keys() == {np.ndarray}
    if is_plain and {x.ndim for x in X} == {1 + (lattice_ndim or 1)}:
        return X
    items: list[Any] = []
    for i, x in enumerate(X):
        if isinstance(x, Example):
            raise ValueError(
                f"X[{i}] is an Example, but X[0] is a {type(X[0]).__name__}: all examples must have the same type."
            )
        if is_sparse_matrix(x):
            x = convert_to_csr(x, f"X[{i}]")
        else:
            try:
                x = np.asarray(x)
            except ValueError as error:
                raise ValueError(f"X[{i}] is not a rectangular array: {error}.") from error
        items.append(x)
    # An empty list stands for an example without nodes.
    first = next((i for i, x in enumerate(items) if x.shape != (0,)), 0)
    ndim = items[first].ndim if lattice_ndim is None else 1 + lattice_ndim
    items = [x.reshape((0,) * ndim) if x.shape == (0,) else x for x in items]
    for i, x in enumerate(items):
        if x.ndim != ndim:
            wanted = f"X[{first}] has {ndim}" if lattice_ndim is None else f"lattice_ndim={lattice_ndim} needs {ndim}"
            raise ValueError(f"X[{i}] of shape {x.shape} has {x.ndim} axes, but {wanted}: {_RULE}")
    if items[0].ndim < 2 or (lattice_ndim is None and items[0].ndim > _MOST_LATTICE_AXES + 1):
        raise ValueError(f"X[0] of shape {items[0].shape} is not an example: {_RULE}")
    return items


_RULE = "an example has its lattice axes first and its features last."


def _require_axes(shape, lattice_ndim):
    """Raise ValueError unless an array has as many axes as ``lattice_ndim`` requires."""
    if not lattice_ndim and len(shape) <= 2:
        return  # plain rows, which scikit-learn validates later
    if lattice_ndim is None:
        if len(shape) - 2 > _MOST_LATTICE_AXES:
            raise ValueError(
                f"X of shape {shape} has {len(shape) - 2} lattice axes: pass lattice_ndim if this is intended."
            )
    elif len(shape) == lattice_ndim + 1:
        raise ValueError(
            f"X of shape {tuple(shape)} is one example if lattice_ndim={lattice_ndim}: add a leading axis, "
            "X[np.newaxis] and y[np.newaxis], or pass lists of one example."
        )
    elif len(shape) != lattice_ndim + 2:
        lattice = f", {lattice_ndim} lattice axes" if lattice_ndim else ""
        raise ValueError(
            f"X of shape {tuple(shape)} does not fit lattice_ndim={lattice_ndim}: its axes must be "
            f"(n_examples{lattice}, n_features)."
        )


def validate_rows(estimator, X, **options):
    """Validate rows as scikit-learn does, but use several threads to check that all numbers are finite."""
    # estimator: passed to validate_data, which by default sets its attributes
    n_threads = count_threads(getattr(estimator, "n_jobs", 1))
    if type(X) is not np.ndarray or X.dtype.kind != "f" or X.nbytes < _tuning.FEW_BYTES or n_threads == 1:
        return validate_data(estimator, X, **options)
    with config_context(assume_finite=True):
        found = validate_data(estimator, X, **options)
    row, n_features = found.strides[0], found.shape[1]

    def is_sound(ends, n_threads):
        places = np.array([[found.ctypes.data + ends[0] * row]])
        return are_finite(places, np.array([(ends[1] - ends[0]) * n_features]), found.dtype)

    if not all(map_tasks(is_sound, split_into_ranges(len(found), _tuning.PARTS_OF_A_TABLE), n_threads)):
        # Let scikit-learn raise the error, which says what kind of value was found.
        validate_data(estimator, X, **options)
    return found


def require_numeric_table(X):
    """Raise ValueError if features are strings, dates or records."""
    if hasattr(X, "columns"):
        _require_numeric_columns(
            X,
            "X",
            "group_rows(X, {!r}) cuts the table into examples if the column says which sequence a row belongs to.",
        )
    elif not sp.issparse(X):
        try:
            X = np.asarray(X)
        except ValueError:
            # Lists of different lengths cause an error later, in scikit-learn's validation.
            return
        if X.ndim == 1 and X.dtype == object and len(X) and not isinstance(X[0], Number | str | None):
            raise ValueError(f"X[0] is of type {type(X[0]).__name__}: examples must be arrays of numbers, or Example.")
        require_numbers(X, "X")


def require_rows(X):
    """Raise ValueError unless X is a table with one row for each example."""
    listed = is_listed(X)
    first = X[0] if listed and len(X) else X
    if listed and isinstance(first, dict):
        raise ValueError("X[0] is a dict: convert dicts to features with sklearn.feature_extraction.DictVectorizer.")
    n_axes = getattr(first, "ndim", 1) + (first is not X)
    if isinstance(first, Example):
        found = "X[0] is an Example"
    elif n_axes > 2:
        found = f"each has {n_axes - 1} axes"
    else:
        require_numeric_table(X)
        return
    raise ValueError(
        f"X must have one row of features per example, shape (n_samples, n_features), but {found}: fit DRFClassifier "
        "or TRWCRF, which accept sequences, images and graphs, or stack the rows of all nodes and their labels."
    )


def _look_up_classes(columns, classes, n_jobs):
    """Convert the class indices of all batches to one array of classes, without intermediate arrays."""
    bounds = np.cumsum([0, *map(len, columns)])
    labels = np.empty((bounds[-1], *columns[0].shape[1:]), dtype=classes.dtype)
    # Threads share the look-up, because most of its time is spent on the first access to the memory of the result.
    groups = np.unique(bounds[:-1] // _tuning.LABELS_TOGETHER, return_index=True)[1].tolist()

    def look_up(ends, n_threads):
        for i in range(*ends):
            # The mode "clip" has no effect on valid class indices, but avoids a slow check.
            np.take(classes, columns[i], out=labels[bounds[i] : bounds[i + 1]], mode="clip")

    map_tasks(look_up, list(pairwise([*groups, len(columns)])), n_jobs)
    return labels


def decode(encoded, values, batches=None, *, classes=None, n_columns=None, n_jobs=None):
    """Convert results with one entry or row per node to the layout of X."""
    # values: sequence of (N,) or (N, K); classes: (n_classes,)
    kind = values[0].dtype if values else np.float64
    kind = kind if classes is None else np.asarray(classes).dtype
    inner = () if n_columns is None else (n_columns,)
    if encoded.layout == "array" and not values:
        return np.empty((*encoded.array.shape[:-1], *inner), kind)
    if encoded.layout in ("nodes", "array"):
        stacked = np.concatenate(values) if classes is None else _look_up_classes(values, np.asarray(classes), n_jobs)
        return stacked if encoded.layout == "nodes" else stacked.reshape(*encoded.array.shape[:-1], *stacked.shape[1:])
    if classes is not None:
        values = [np.asarray(classes)[part] for part in values]
    results = np.empty(encoded.n_examples, dtype=object)
    if sum(len(batch.members) for batch in batches) < encoded.n_examples:
        for i, shape in enumerate(encoded.shapes):
            results[i] = np.empty((*shape, *inner), kind)
    for batch, part in zip(batches, values, strict=True):
        if part.ndim == 1 and encoded.lattice_ndim == 1 and not part.dtype.hasobject:
            own = results[batch.members]
            copy_parts(np.ascontiguousarray(part), batch.node_ptr, own)
            results[batch.members] = own
            continue
        for i, bounds in zip(batch.members.tolist(), pairwise(batch.node_ptr.tolist()), strict=True):
            member, shape = part[slice(*bounds)], encoded.shapes[i]
            # The part is copied, because a view would keep the memory of the whole batch alive.
            results[i] = (member if len(shape) == 1 else member.reshape(*shape, *part.shape[1:])).copy()
    return results
