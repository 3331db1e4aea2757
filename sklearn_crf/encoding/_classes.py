"""Classes: those of labels, those that are named, their weights, and which may follow one another."""

from collections.abc import Mapping
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._numbers import as_array
from sklearn_crf._reports import warn_caller


def labels_from_objects(values, name):
    """Labels out of an object array, in the one type they share."""
    # values: (n,), object; returns: (n,)
    n_strings = sum(isinstance(value, str) for value in values)
    if n_strings not in (0, len(values)):
        other = next(value for value in values if not isinstance(value, str))
        raise ValueError(
            f"{name} mixes strings with other labels, such as {other!r}: make all of them strings or all of them "
            "numbers, with None where a node has no label."
        )
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    return np.array(values.tolist())


def sorted_classes(found, classes=None):
    """The classes of labels that were found, or those that are named."""
    # classes: (n_classes,); returns: (n_classes,)
    if classes is not None:
        return named_classes(classes)
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
    _warn_of_sentinel(classes)
    return classes


def _warn_of_sentinel(classes):
    """Warn where -1, which many tables have for a missing label, is a class beside others from 0 on."""
    if classes.dtype.kind not in "if" or classes[0] != -1 or classes.tolist() == [-1, 1]:
        return
    warn_caller(
        "y holds the label -1 beside labels of 0 or more, and -1 is read as a class: pass missing_label=-1 if it marks "
        "nodes without a label, or all class labels with the classes parameter."
    )


def named_classes(classes, least=2):
    """Classes that a user names, sorted."""
    # classes: (n_classes,); returns: (n_classes,)
    classes = as_array(classes, "classes")
    if classes.ndim == 1 and classes.dtype == object:
        classes = labels_from_objects(classes, "classes")
    if classes.ndim != 1 or len(classes) < least:
        noun = "class" if least == 1 else "classes"
        raise ValueError(f"classes must name at least {least} {noun} in one axis, got shape {classes.shape}.")
    if classes.dtype.kind not in "biufUS":
        raise ValueError(f"classes must be numbers or strings, got {classes.dtype}: {classes}.")
    return np.unique(classes)


def in_class_order(cost, classes):
    """Costs of classes in the order in which a user names them, in the sorted order."""
    # cost: (n_classes, n_classes), str or None; classes: (n_classes,) or None
    if isinstance(cost, Mapping):
        raise InvalidParameterError(
            "cost must be a matrix, cost[a][b] of predicting class a where b is true, got a dict: list its rows in the "
            "order of the parameter classes; weights of true classes are the parameter class_weight."
        )
    if classes is None or cost is None or isinstance(cost, str):
        return cost
    first = np.unique(np.asarray(classes), return_index=True)[1]
    # Place of each sorted class among those that are named, a class that is named twice counted once.
    place = np.argsort(np.argsort(first))
    try:
        table = np.asarray(cost)
    except ValueError:
        return cost
    return table[np.ix_(place, place)] if table.shape == (len(place), len(place)) else cost


def class_weights(class_weight, labels, weights=None):
    """The weight of each class."""
    # weights: list of (n_nodes,); returns: (n_classes,), float64
    classes = labels.classes_.tolist()
    found = np.ones(len(classes))
    if isinstance(class_weight, str):
        parts = labels.labels if isinstance(labels.labels, list) else [labels.labels]
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
            raise InvalidParameterError(f"class_weight names the class {name!r}, but the classes are {classes}.")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise InvalidParameterError(
                f"class_weight must be finite and not negative, got {weight!r} for the class {name!r}."
            )
        found[classes.index(name)] = weight
    if not found.any():
        raise InvalidParameterError("class_weight is 0 for every class: at least one needs a positive weight.")
    return found


def counts_of_nodes(labels, weight, node_weight=None):
    """How much each node counts among those of its class, for balanced weights of classes."""
    # labels: list of (n_nodes,), or (n,); weight: (n_examples,) or None; node_weight: list of (n_nodes,); returns: list
    # of (n_nodes,), or None
    if weight is None and node_weight is None:
        return None
    if isinstance(labels, np.ndarray):
        counts = np.ones(len(labels)) if node_weight is None else np.concatenate(node_weight)
        return [counts if weight is None else weight * counts]
    counts = [np.ones(len(own)) for own in labels] if node_weight is None else node_weight
    return counts if weight is None else [one * own for one, own in zip(weight, counts, strict=True)]


class _EntityScheme(NamedTuple):
    """What prefixes of labels ask of the labels before and after them."""

    prefixes: str
    after: dict  # prefixes that follow only a label of the same kind with one of these prefixes
    before: dict  # prefixes that only a label of the same kind with one of these prefixes follows


#: The schemes of entities by name.
ENTITY_SCHEMES = {
    "IOB1": _EntityScheme("BI", {"B": "BI"}, {}),
    "IOB2": _EntityScheme("BI", {"I": "BI"}, {}),
    "IOE1": _EntityScheme("IE", {}, {"E": "IE"}),
    "IOE2": _EntityScheme("IE", {}, {"I": "IE"}),
    "IOBES": _EntityScheme("BIES", {"I": "BI", "E": "BI"}, {"B": "IE", "I": "IE"}),
    "BILOU": _EntityScheme("BILU", {"I": "BI", "L": "BI"}, {"B": "IL", "I": "IL"}),
}


def invalid_transitions(scheme, classes):
    """Pairs of labels that a scheme of entities forbids one after the other, and labels that it forbids at ends."""
    # classes: (K,) of str; returns: pairs : (K, K), bool, ends : (2, K), bool
    rules = ENTITY_SCHEMES[scheme]
    parts = [_prefix_and_kind(label, scheme) for label in classes.tolist()]
    # The ends of a sequence are like labels outside of entities.
    outside = ("O", "")
    pairs = np.array([[not _may_follow(before, after, rules) for after in parts] for before in parts])
    first = [not _may_follow(outside, label, rules) for label in parts]
    last = [not _may_follow(label, outside, rules) for label in parts]
    return pairs, np.array([first, last])


def _prefix_and_kind(label, scheme):
    prefix, _, kind = str(label).partition("-")
    prefixes = ENTITY_SCHEMES[scheme].prefixes
    if len(prefix) != 1 or prefix not in "O" + prefixes:
        raise ValueError(
            f"forbidden={scheme!r} needs labels that begin with one of {[*prefixes, 'O']}, such as "
            f"'{prefixes[0]}-PER', got the class {label!r}; list the forbidden pairs of labels instead."
        )
    return prefix, kind


def _may_follow(before, after, rules):
    is_same = before[1] == after[1]
    if after[0] in rules.after and not (is_same and before[0] in rules.after[after[0]]):
        return False
    return before[0] not in rules.before or (is_same and after[0] in rules.before[before[0]])


def partial_fit_classes(estimator, classes, least=2):
    """Classes of a call to ``partial_fit``: the first one names them, those after it may name the same."""
    # classes: (n_classes,) or None; returns: (n_classes,)
    fitted = getattr(estimator, "classes_", None)
    given = estimator.classes if classes is None else classes
    if given is None:
        if fitted is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return fitted
    named = named_classes(given, least)
    if fitted is not None and not np.array_equal(named, fitted):
        given = np.asarray(given).tolist()
        raise ValueError(f"`classes={given}` is not the same as on last call to partial_fit, was: {fitted.tolist()}")
    return named
