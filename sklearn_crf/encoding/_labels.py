"""Labels: reading y, conversion of labels to class indices, and determination of classes and class weights."""

import reprlib
from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from itertools import chain, pairwise
from math import prod
from numbers import Number, Real
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array

from sklearn_crf._numbers import as_array, as_reals, different, get_pandas_na
from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding._array_lists import one_of_each_type
from sklearn_crf.encoding._layouts import is_listed

# While a pipeline is fitted: ``missing_label`` of its last step, which earlier steps also use.
missing_label_of_field: ContextVar = ContextVar("missing_label_of_field", default=None)


class EncodedLabels(NamedTuple):
    """Labels as indices into the classes, with -1 for unlabelled nodes."""

    labels: list | np.ndarray  # list of (n_nodes,), or (n,), int32
    classes_: np.ndarray  # (n_classes,)
    weights: list | None = None  # list of (n_nodes,), or None

    @property
    def by_example(self) -> list:
        """List with an array of labels for each example; all rows of a table form a single example."""
        return self.labels if isinstance(self.labels, list) else [self.labels]


def encode_y(y, encoded, *, missing_label=None, classes=None, name="y", allow_unknown=False):
    """Convert the labels of all nodes to indices into the sorted classes."""
    # classes: (n_classes,)
    if hasattr(y, "iloc") and np.ndim(y) == 2 and encoded.layout != "nodes":
        raise ValueError(f"{name} is a data frame: pass {name}.to_numpy().")
    y = _replace_masks(y)
    found = _encode_together(y, encoded, missing_label, classes, name, allow_unknown)
    if found is None:
        parts, names = _read_labels(y, encoded, missing_label, name)
        distinct = [different(present) for present, _ in parts] if classes is None else []
        classes_ = sort_classes(distinct, classes)
        labels = [
            _columns(present, where, classes_, part_name, allow_unknown)
            for (present, where), part_name in zip(parts, names, strict=True)
        ]
        found = EncodedLabels(labels[0] if encoded.layout == "nodes" else labels, classes_)
    if encoded.layout == "list" and any(example.n_states is not None for example in encoded.representatives):
        _require_states(found.labels, encoded.items, found.classes_, name)
    return found


def _encode_together(y, encoded, missing_label, classes, name, allow_unknown):
    """Encode the labels of all examples together; return None if labels are of several kinds or invalid."""
    joined = None if encoded.layout == "nodes" else _join_labels(y, encoded)
    if joined is None:
        return None
    flat, sizes = joined
    try:
        present, where = split_labels(flat, missing_label, name)
        classes_ = sort_classes([different(present)] if classes is None else [], classes)
        columns = _columns(present, where, classes_, name, allow_unknown)
    except ValueError:
        return None
    ends = np.cumsum([0, *sizes]).tolist()
    return EncodedLabels([columns[start:stop] for start, stop in pairwise(ends)], classes_)


def _join_labels(y, encoded):
    """Return the joined labels, and their number in each example, or None for mixed types or wrong shapes."""
    shapes, parts = _split_shapes_and_labels(y)
    kinds = {"U" if part.dtype.kind == "U" else part.dtype.str for part in parts}
    if len(kinds) != 1 or parts[0].dtype.kind not in "iubU" or len(shapes) != encoded.n_examples:
        return None
    if encoded.layout == "array":
        is_other = set(shapes) != {encoded.label_shape(0)}
    else:
        is_other = any(shape != encoded.label_shape(i) for i, shape in enumerate(shapes))
    return None if is_other else (np.concatenate(parts), [prod(shape) for shape in shapes])


def _split_shapes_and_labels(y):
    """Return the label shape of each example, and a list of flat arrays of labels; both are empty for mixed types."""
    if isinstance(y, np.ndarray) and y.ndim and y.dtype != object:
        return [y.shape[1:]] * len(y), [y.reshape(-1)]
    has_parts = isinstance(y, list | tuple) or (isinstance(y, np.ndarray) and y.ndim)
    containers = {type(part) for part in y} if has_parts else None
    if containers == {np.ndarray}:
        return [part.shape for part in y], [part.reshape(-1) for part in y]
    if containers in ({list}, {tuple}):
        labels = list(chain.from_iterable(y))
        # Lists with elements of other types are nested, or mix numbers and strings.
        if {type(label) for label in labels} in ({str}, {int}):
            return [(len(part),) for part in y], [np.array(labels)]
    return [], []


def collect_distinct_labels(y, encoded, *, missing_label=None):
    """Find the distinct labels of each example."""
    parts, _ = _read_labels(_replace_masks(y), encoded, missing_label, "y")
    return [different(present) for present, _ in parts]


def convert_to_label_array(labels):
    """Convert labels to an array; masked labels and missing labels of pandas become None in an object array."""
    labels = _replace_masks(labels)
    if isinstance(labels, list | tuple):
        return _read_list(labels)
    if not _is_of_extension_type(labels) or not np.any(labels.isna()):
        return np.asarray(labels)
    found = np.array(labels, dtype=object)
    found[np.asarray(labels.isna())] = None
    return found


def _is_of_extension_type(labels):
    """Return whether labels are a pandas series or array whose type does not exist in NumPy."""
    return hasattr(labels, "isna") and not isinstance(getattr(labels, "dtype", None), np.dtype | None)


def _replace_masks(y):
    """Replace masked labels by None, in an array or in a list of arrays."""
    if isinstance(y, np.ma.MaskedArray):
        return _replace_masked_labels(y)
    if not is_listed(y) or not any(isinstance(part, np.ma.MaskedArray) for part in one_of_each_type(y).values()):
        return y
    return [_replace_masked_labels(part) if isinstance(part, np.ma.MaskedArray) else part for part in y]


def _replace_masked_labels(labels):
    if not labels.ndim:
        return None if np.ma.is_masked(labels) else labels.item()
    if not np.ma.is_masked(labels):
        return labels.data
    found = labels.data.astype(object)
    found[labels.mask] = None
    return found


def _read_labels(y, encoded, missing_label, name):
    """Return the labels and their positions for each example, and the name of each example for error messages."""
    if y is None:
        raise ValueError(f"This estimator requires {name} to be passed, but the target {name} is None.")
    if encoded.layout == "nodes":
        parts, names = [_read_rows(y, encoded, missing_label, name)], [name]
    else:
        parts = _read_lattices(y, encoded, name)
        names = [f"{name}[{i}]" for i in range(len(parts))]
    return [split_labels(part, missing_label, part_name) for part, part_name in zip(parts, names, strict=True)], names


def _read_rows(y, encoded, missing_label, name):
    if name == "y":
        require_one_label_each(
            y, "X holds plain rows with one label each: use MultiLabelField for several labels per row."
        )
    if _is_of_extension_type(y):
        y = convert_to_label_array(y)
    if missing_label is None:
        array = np.asarray(y)
        if array.dtype.kind in "fc":
            check_array(y, ensure_2d=False, allow_nd=True, dtype=None, input_name=name)
    if isinstance(y, list | tuple):
        y = _read_list(y)
    if getattr(y, "ndim", 1) >= 2 and y.shape[1] > 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {y.shape} instead: X holds plain rows with one label "
            "each. Use MultiLabelField for several labels per row; images and chains need an axis of features, "
            f"X[..., np.newaxis].{' Are X and y swapped?' if y.ndim > 2 else ''}"
        )
    y = column_or_1d(y, warn=True)
    check_consistent_length(encoded.array, y)
    return y


def require_one_label_each(y, use):
    """Raise ValueError if a row has a set or list of several labels instead of a single label."""
    if not is_listed(y):
        return
    kinds = one_of_each_type(y)
    are_sets = any(issubclass(kind, set | frozenset) for kind in kinds)
    if any(issubclass(kind, list | tuple | np.ndarray) for kind in kinds):
        rows = [row.tolist() if isinstance(row, np.ndarray) else row for row in y]
        lists = [row for row in rows if isinstance(row, list | tuple)]
        lengths = {len(row) for row in lists}
        # Lists of equal length are read as a table, unless ``y`` is an array of lists, or a list begins with a string.
        are_apart = isinstance(y, np.ndarray) or any(isinstance(row[0], str) for row in lists if row)
        is_table = len(lists) == len(rows) and len(lengths) == 1 and (lengths == {1} or not are_apart)
        are_sets = are_sets or (bool(lists) and not is_table)
    if are_sets:
        raise ValueError(f"y[0] is the {type(y[0]).__name__} {reprlib.repr(y[0])}. {use}")


def _read_lattices(y, encoded, name):
    if not hasattr(y, "shape") and hasattr(y, "__array__"):
        y = np.asarray(y)
    if count_examples(y, name) != encoded.n_examples:
        hint = ""
        if encoded.layout == "array" and np.size(y) == int(np.prod(encoded.array.shape[:-1])):
            shape = encoded.array.shape
            hint = f" X of shape {shape} is one example? Then add a leading axis: X[np.newaxis]."
            if shape[0] == 1:
                hint = f" Pass y of shape {shape[:-1]}: y.reshape({shape[:-1]})."
        raise ValueError(f"{name} has {len(y)} examples, but X has {encoded.n_examples}.{hint}")
    parts = []
    for i, part in enumerate(y):
        part = convert_to_label_array(part)
        if part.shape != encoded.label_shape(i) and (part.size or prod(encoded.label_shape(i))):
            raise ValueError(
                f"{name}[{i}] has shape {part.shape}, but the lattice of X[{i}] has shape {encoded.label_shape(i)}."
                f"{_hint_features(part, encoded, i)}"
            )
        parts.append(part.ravel())
    return parts


def count_examples(values, name):
    """Return the number of examples in X or y."""
    try:
        return len(values)
    except TypeError:
        raise ValueError(f"{name} must be an array, or a list of one array per example, got {values!r}.") from None


def _read_list(labels):
    """Convert nested lists of labels to an array; the type is object if NumPy would turn numbers into strings."""
    try:
        array = np.asarray(labels)
    except ValueError:  # inner lists differ in length, so only the outer list becomes an array
        return np.array(labels, dtype=object)
    return np.array(labels, dtype=object) if array.dtype.kind in "US" else array


def _hint_features(part, encoded, i):
    lattice, width = encoded.label_shape(i), encoded.n_features
    if len(lattice) > 1 and part.shape == (*lattice[1:], width):
        return " If X has its features on the first axis, move them to the last: np.moveaxis(x, 0, -1)."
    if not encoded.lattice_ndim or part.shape != (*lattice, width):
        return ""
    if width == 1:
        return " Labels have no axis of features: pass y[..., 0]."
    images = f"lattices of shape {part.shape} without a feature axis (add it: x[..., np.newaxis])"
    others = f"lattices of shape {lattice} with {width} features (then remove the last axis of y)"
    return f" Equal shapes of X and y are ambiguous: {images}, or {others}."


def mask_missing_nodes(labels, missing_label):
    """Mask the nodes without a label."""
    # returns: ndarray of the shape of ``labels``, bool
    if isinstance(missing_label, list | tuple) or np.ndim(missing_label):
        raise InvalidParameterError(f"missing_label must be one value, got {missing_label!r}.")
    na = get_pandas_na()
    missing_label = None if missing_label is na else missing_label
    if labels.dtype == object:
        # pandas returns columns of strings as object arrays, in which NaN marks missing values.
        # Values that cannot be labels, such as lists and arrays with axes, are not hashable and must not be compared.
        missing = [
            value is None
            or value is na
            or _is_nan(value)
            or ((isinstance(value, Hashable) or getattr(value, "ndim", 1) == 0) and bool(value == missing_label))
            for value in labels.flat
        ]
        return np.array(missing, dtype=bool).reshape(labels.shape)
    if missing_label is None:
        return np.zeros(labels.shape, dtype=bool)
    if _is_nan(missing_label):
        return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, dtype=bool)
    # A string cannot occur among numbers, and a number cannot occur among strings.
    if isinstance(missing_label, str) != (labels.dtype.kind == "U"):
        return np.zeros(labels.shape, dtype=bool)
    return labels == missing_label


def split_labels(flat, missing_label, name):
    """Return the labels that are not missing, and a mask of their positions (None if no label is missing)."""
    missing = mask_missing_nodes(flat, missing_label)
    if name.startswith("evidence") and flat.dtype.kind == "f":
        # In evidence, NaN marks a missing label, just as ``missing_label`` does.
        missing = missing | np.isnan(flat)
    present = flat[~missing] if missing.any() else flat
    if present.dtype == object:
        present = convert_object_labels(present, name)
    if present.dtype.kind == "f":
        _require_discrete(present, name)
    elif present.dtype.kind not in "iubUS":
        raise ValueError(
            f"Unknown label type: {name} holds {present.dtype}, but labels must be strings or integers: convert them "
            "to strings, for example with y.astype(str)."
        )
    return present, (~missing if missing.any() else None)


def _is_nan(value):
    return isinstance(value, float | np.floating) and np.isnan(value)


def _require_discrete(present, name):
    with np.errstate(invalid="ignore", over="ignore"):
        total = present.sum()
    if not np.isfinite(total) and not np.all(np.isfinite(present)):
        found = "NaN" if np.isnan(present).any() else "infinity"
        raise ValueError(f"Input {name} contains {found}: mark unlabelled nodes by missing_label.")
    if np.any(present != np.floor(present)):
        # scikit-learn raises its own error here, which users know and which scikit-learn's estimator checks expect.
        check_classification_targets(present)


def _columns(present, where, classes, name, allow_unknown=False):
    if not len(present):
        return np.full(0 if where is None else len(where), -1, dtype=np.int32)
    require_same_kind(present, classes, name, "the classes")
    if _are_among_consecutive(present, classes):
        columns = np.subtract(present, classes[0], dtype=np.int64).astype(np.int32)
    else:
        columns = np.minimum(np.searchsorted(classes, present), len(classes) - 1).astype(np.int32)
        unknown = classes[columns] != present
        if allow_unknown:
            columns[unknown] = len(classes)
            # An unknown label of -1 is an error, because it usually marks a missing label rather than a new class.
            unknown &= (present == -1) if present.dtype.kind in "if" else False
        if np.any(unknown):
            listed = ", ".join([*map(str, classes[:10]), *["..."] * (len(classes) > 10)])
            hint = "If it marks nodes without a label, pass it as missing_label."
            if name.startswith("evidence"):
                hint = "None and NaN mark nodes whose label is not known."
            raise ValueError(
                f"{name} holds the unknown label {present[np.argmax(unknown)]}: the classes are {listed}. {hint}"
            )
    if where is None:
        return columns
    labels = np.full(len(where), -1, dtype=np.int32)
    labels[where] = columns
    return labels


def require_same_kind(labels, others, name, other_name):
    """Raise ValueError if one of two arrays contains strings and the other contains numbers."""
    if not (len(labels) and len(others)):
        return
    are_strings = labels.dtype.kind in "US"
    if are_strings != (others.dtype.kind in "US"):
        kinds = ("strings", "numbers") if are_strings else ("numbers", "strings")
        raise ValueError(
            f"{name} holds {kinds[0]}, such as {labels.flat[0].item()!r}, but {other_name} are {kinds[1]}, such as "
            f"{others.flat[0].item()!r}: convert both to the same type."
        )


def _are_among_consecutive(present, classes):
    """Return whether classes are consecutive integers and include all labels, which makes a search unnecessary."""
    if not len(present) or present.dtype.kind != "i" or classes.dtype.kind != "i":
        return False
    first, last = int(classes[0]), int(classes[-1])
    return last - first == len(classes) - 1 and first <= int(present.min()) and int(present.max()) <= last


def _require_states(labels, items, classes, name):
    for i, (columns, example) in enumerate(zip(labels, items, strict=True)):
        if example.n_states is None:
            continue
        if example.n_states.max() > len(classes):
            raise ValueError(
                f"X[{i}].n_states goes up to {example.n_states.max()}, but there are {len(classes)} classes."
            )
        beyond = (columns >= example.n_states) & (columns < len(classes))
        if np.any(beyond):
            node = int(np.argmax(beyond))
            raise ValueError(
                f"{name}[{i}] gives node {node} the label {classes[columns[node]]}, but the node has only the first "
                f"{example.n_states[node]} of the {len(classes)} classes."
            )


def convert_object_labels(values, name):
    """Convert labels in an object array to their common type, or raise ValueError if their types differ."""
    # values: (n,), object; returns: (n,)
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    values = values.tolist()
    one_of_each = list({type(value): value for value in reversed(values)}.values())
    others = [value for value in one_of_each if not isinstance(value, str | bytes)]
    if len(others) not in (0, len(one_of_each)):
        raise ValueError(
            f"{name} mixes strings with other labels, such as {others[0]!r}: make all of them strings or all of them "
            "numbers, with None where a node has no label."
        )
    for value in others:
        if not isinstance(value, Number | np.bool_):
            raise ValueError(
                f"Unknown label type: {name} holds {value!r}, but labels must be strings or integers: convert them to "
                "strings, for example with str(label)."
            )
    labels = np.array(values)
    # The conversion to a common NumPy type may round large integers, turn bytes into strings, or drop null characters.
    changed = [before for before, after in zip(values, labels.tolist(), strict=True) if before != after]
    if changed:
        raise ValueError(f"{name} holds labels that have no common NumPy type, such as {changed[0]!r}.")
    return labels


def sort_classes(found, classes=None):
    """Return the given classes, or if none are given the distinct labels that were found, in sorted order."""
    # found: list of arrays of labels; classes: (n_classes,) or None; returns: (n_classes,)
    if classes is not None:
        return check_named_classes(classes)
    labelled = [values for values in found if len(values)]
    if not labelled:
        raise ValueError("y holds no label at all: every node is marked as missing.")
    strings = [values.dtype.kind in "US" for values in labelled]
    if any(strings) and not all(strings):
        i, j = strings.index(True), strings.index(False)
        raise ValueError(
            f"y mixes strings with other labels, such as {str(labelled[i][0])!r} and {labelled[j][0]}: make all of "
            "them strings or all of them numbers."
        )
    classes = np.unique(np.concatenate(labelled))
    if len(classes) < 2:
        raise ValueError(
            f"A classifier needs labels of at least 2 classes, got 1 class: {classes[0]}. Pass all class labels with "
            "the classes parameter."
        )
    if classes.dtype.kind in "if" and classes[0] == -1 and classes.tolist() != [-1, 1]:
        warn_caller(
            "y holds the label -1 along with labels of 0 or more, so -1 is treated as a class: pass missing_label=-1 "
            "if it marks nodes without a label, or pass all class labels with the classes parameter."
        )
    return classes


def check_named_classes(classes, least=2):
    """Check the classes that a user has passed, and return them sorted."""
    # classes: (n_classes,); returns: (n_classes,)
    classes = as_array(classes, "classes")
    if classes.ndim == 1 and classes.dtype == object:
        classes = convert_object_labels(classes, "classes")
    if classes.ndim != 1 or len(classes) < least:
        noun = "class" if least == 1 else "classes"
        raise ValueError(f"classes must be a 1-D array of at least {least} {noun}, got shape {classes.shape}.")
    if classes.dtype.kind not in "biufUS" or (classes.dtype.kind == "f" and np.isnan(classes).any()):
        raise ValueError(f"classes must be numbers or strings, none missing, got {classes.dtype}: {classes}.")
    return np.unique(classes)


def sort_cost_by_class(cost, classes):
    """Reorder costs from the order of the user's classes to the sorted order."""
    # cost: array whose axes all have n_classes entries, str or None; classes: (n_classes,) or None
    if isinstance(cost, Mapping):
        raise InvalidParameterError(
            "cost must be a matrix, where cost[a][b] is the cost of predicting class a when b is true, got a dict: "
            "list its rows in the order of the classes parameter. To weight true classes, use class_weight."
        )
    if hasattr(cost, "columns") and (names := cost.columns.tolist()) + cost.index.tolist() != 2 * [*range(len(names))]:
        order = np.unique(names if classes is None else classes).tolist()
        if len(set(names)) < len(names) or not set(names) == set(cost.index) == set(order):
            raise InvalidParameterError(
                "cost is a frame, so its rows and columns must both be named by the classes, got rows "
                f"{cost.index.tolist()} and columns {names}: rename them, or pass cost.to_numpy()."
            )
        return cost.loc[order, order].to_numpy()
    if classes is None or cost is None or isinstance(cost, str):
        return cost
    first = np.unique(np.asarray(classes), return_index=True)[1]
    # Position of each sorted class in the user's list, after duplicates have been dropped from the list.
    place = np.argsort(np.argsort(first))
    try:
        table = np.asarray(cost)
    except ValueError:
        return cost
    return table[np.ix_(*[place] * table.ndim)] if table.shape == (len(place),) * table.ndim else cost


def check_cost(cost, n_classes):
    """Check the costs of nodes, and return them as an array (n_classes, n_classes) float64."""
    if isinstance(cost, list) and len({np.size(row) for row in cost}) > 1:
        raise ValueError(
            f"cost must be a matrix of shape ({n_classes}, {n_classes}), got a list of rows of different lengths: "
            "pass the weights of single nodes as node_weight to fit."
        )
    cost = as_reals(cost, "cost", np.float64)
    if not np.isfinite(cost).all():
        raise InvalidParameterError(f"cost must be finite, found {cost[~np.isfinite(cost)][0]:g}.")
    if cost.shape != (n_classes, n_classes):
        raise ValueError(
            f"cost must have shape ({n_classes}, {n_classes}), one row and column per class, got {cost.shape}."
        )
    if np.any(cost < 0):
        a, b = np.argwhere(cost < 0)[0]
        raise ValueError(f"cost must not be negative, found cost[{a}, {b}] = {cost[a, b]:g}.")
    if np.any(cost.diagonal()):
        a = int(np.flatnonzero(cost.diagonal())[0])
        raise ValueError(f"cost must be zero on its diagonal, found cost[{a}, {a}] = {cost[a, a]:g}.")
    return cost


def compute_class_weights(class_weight, labels, weights=None):
    """Return the weight of each class."""
    # weights: list of (n_nodes,); returns: (n_classes,), float64
    classes = labels.classes_.tolist()
    found = np.ones(len(classes))
    if isinstance(class_weight, str):
        parts = labels.by_example
        weights = labels.weights if weights is None else weights
        counts = np.zeros(len(classes))
        for i, columns in enumerate(parts):
            known = columns >= 0
            counts += np.bincount(columns[known], None if weights is None else weights[i][known], len(classes))
        occurs = counts > 0
        found[occurs] = counts.sum() / (np.count_nonzero(occurs) * counts[occurs])
        return found
    for name, weight in class_weight.items():
        if name not in classes:
            raise InvalidParameterError(f"class_weight contains the class {name!r}, but the classes are {classes}.")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise InvalidParameterError(
                f"class_weight must be finite and not negative, got {weight!r} for the class {name!r}."
            )
        found[classes.index(name)] = weight
    if not found.any():
        raise InvalidParameterError("class_weight is 0 for every class: at least one needs a positive weight.")
    return found


def compute_node_counts(labels, weight, node_weight=None):
    """Return the weight of each node in the counts for balanced class weights, or None if all nodes count equally."""
    # labels: list of (n_nodes,), or (n,); weight: (n_examples,) or None; node_weight: list of (n_nodes,) or None
    # returns: list of (n_nodes,), or None
    if weight is None and node_weight is None:
        return None
    if isinstance(labels, np.ndarray):
        counts = np.ones(len(labels)) if node_weight is None else np.concatenate(node_weight)
        return [counts if weight is None else weight * counts]
    counts = [np.ones(len(own)) for own in labels] if node_weight is None else node_weight
    return counts if weight is None else [one * own for one, own in zip(weight, counts, strict=True)]


def choose_partial_fit_classes(estimator, classes, least=2):
    """Return the classes for ``partial_fit``.

    The first call must pass the classes; later calls may pass equal classes.
    """
    # classes: (n_classes,) or None; returns: (n_classes,)
    fitted = getattr(estimator, "classes_", None)
    given = estimator.classes if classes is None else classes
    if given is None:
        if fitted is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return fitted
    named = check_named_classes(given, least)
    if fitted is not None and not np.array_equal(named, fitted):
        given = np.asarray(given).tolist()
        raise ValueError(f"`classes={given}` is not the same as on last call to partial_fit, was: {fitted.tolist()}")
    return named
