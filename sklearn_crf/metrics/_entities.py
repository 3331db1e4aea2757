"""Entities (runs of tokens that label prefixes mark, as in IOB2), and metrics that count whole entities."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import MAX_INT32, as_integer
from sklearn_crf.potentials import ENTITY_SCHEMES

_ENDS = "ELSU"  # prefixes of tokens that end an entity
_BEGINS = "BSU"  # prefixes of tokens that begin a new entity after any previous token
_MODES = ("lenient", "strict")


class Entity(NamedTuple):
    """A run of tokens, from start to stop - 1, and the kind of this entity."""

    kind: str
    start: int
    stop: int


class EntityScore(NamedTuple):
    """Precision, recall and F1 of the entities of one kind."""

    precision: float
    recall: float
    f1: float
    support: int


def entities(labels: Sequence[str], scheme: str | None = "IOB2", mode: str = "lenient") -> list[Entity]:
    """Return the entities that the labels of a sequence mark.

    Parameters
    ----------
    labels : sequence of str
        "O" outside of entities, otherwise a prefix and a kind, such as "B-PER".
    scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"} or None, default="IOB2"
        Prefixes of the tokens of an entity. In IOB2, B begins an entity and I continues it. IOBES also marks the end: E
        is the last of several tokens, and S the only token of an entity. BILOU calls these two prefixes L and U. In
        IOE2, I marks all tokens but the last, which has E. In IOB1 and IOE1, all tokens have I. The only exception are
        two neighbouring entities of the same kind: B begins the second entity (IOB1), or E ends the first entity
        (IOE1). None is for labels of any type that have no prefixes: each run of equal labels is an entity, and its
        kind is the label.
    mode : {"lenient", "strict"}, default="lenient"
        How to treat labels that break the scheme. Lenient reads them as the CoNLL evaluation does: an inside label that
        does not continue an entity begins a new entity. Strict ignores each entity whose labels break the scheme.

    Returns
    -------
    list of Entity

    Raises
    ------
    ValueError
        If a label has a prefix that is not in the scheme.

    Examples
    --------
    >>> from sklearn_crf.metrics import entities
    >>> entities(["B-PER", "I-PER", "O", "B-LOC"])
    [Entity(kind='PER', start=0, stop=2), Entity(kind='LOC', start=3, stop=4)]
    >>> entities(["I-PER", "I-PER", "O", "B-LOC"], mode="strict")
    [Entity(kind='LOC', start=3, stop=4)]
    >>> entities(["sit", "sit", "walk"], scheme=None)
    [Entity(kind='sit', start=0, stop=2), Entity(kind='walk', start=2, stop=3)]
    """
    if scheme is not None:
        _require_scheme(scheme)
    if not (isinstance(mode, str) and mode in _MODES):
        raise ValueError(f"mode must be one of {list(_MODES)}, got {mode!r}.")
    if isinstance(labels, str) or np.ndim(labels) != 1:
        raise ValueError(f"labels must be a sequence of labels such as ['B-PER', 'O'], got {labels!r}.")
    found: list[Entity] = []
    if scheme is None:
        for kind, run in groupby(labels):
            start = found[-1].stop if found else 0
            found.append(Entity(kind, start, start + len(list(run))))
        return found
    prefixes: list[str] = []
    start, before = 0, ("O", "")
    for t, label in enumerate([*labels, "O"]):
        here = _split_entity_label(label, f"labels[{t}]", scheme)
        goes_on = _continues_entity(before, here)
        if before[0] != "O" and not goes_on:
            found.append(Entity(before[1], start, t))
        if here[0] != "O" and not goes_on:
            start = t
        before = here
        prefixes.append(here[0])
    if mode == "lenient":
        return found
    wanted = ENTITY_SCHEMES[scheme].list_prefixes(found)
    return [each for each, own in zip(found, wanted, strict=True) if prefixes[each.start : each.stop] == own]


def _split_entity_label(label, name, scheme):
    """Split a label into prefix and kind; error messages call the label ``name``."""
    parts = ENTITY_SCHEMES[scheme].parts_of(label)
    if parts is None:
        known = ENTITY_SCHEMES[scheme].prefixes
        raise ValueError(f"{name} is {label!r}, not a label of {scheme}: labels must begin with {known}.")
    return parts


def _continues_entity(before, here):
    """Return whether two successive labels, given as (prefix, kind), belong to the same entity."""
    return here[0] not in "O" + _BEGINS and before[0] not in "O" + _ENDS and here[1] == before[1]


def find_continuations(classes, scheme):
    """Return the entity kind of each class (None for "O"), and a mask of the class pairs that continue an entity."""
    # classes: sequence of K labels; returns (K,) of object and (K, K) of bool
    if scheme is None:
        kinds = np.empty(len(classes), dtype=object)
        kinds[:] = classes
        return kinds, np.eye(len(classes), dtype=bool)
    _require_scheme(scheme)
    parts = [_split_entity_label(label, f"classes_[{k}]", scheme) for k, label in enumerate(classes)]
    kinds = np.array([None if prefix == "O" else kind for prefix, kind in parts], dtype=object)
    return kinds, np.array([[_continues_entity(before, here) for here in parts] for before in parts], dtype=bool)


def entity_labels(found: Iterable[tuple[str, int, int]], n_tokens: int, scheme: str = "IOB2") -> list[str]:
    """Return labels that mark the given entities in a scheme; this is the inverse of :func:`entities`.

    Parameters
    ----------
    found : iterable of (kind, start, stop)
        Entities in any order, such as the result of :func:`entities`; each has the tokens from start to stop - 1.
    n_tokens : int
        Number of tokens of the sequence.
    scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"}, default="IOB2"
        See :func:`entities`.

    Returns
    -------
    list of str
        The label of each token, "O" outside of all entities.

    Raises
    ------
    ValueError
        If an entity is empty, reaches outside the sequence, or overlaps another entity.

    Examples
    --------
    >>> from sklearn_crf.metrics import entities, entity_labels
    >>> labels = ["B-PER", "I-PER", "O", "B-LOC"]
    >>> entity_labels(entities(labels, "IOB2"), len(labels), "BILOU")
    ['B-PER', 'L-PER', 'O', 'U-LOC']
    """
    _require_scheme(scheme)
    labels = ["O"] * as_integer(n_tokens, "n_tokens", lowest=0)
    ordered = sorted(map(_as_entity, found), key=lambda entity: entity.start)
    stop = 0
    for entity in ordered:
        if not 0 <= entity.start < entity.stop <= n_tokens:
            raise ValueError(f"{entity} in found is empty or outside of the n_tokens={n_tokens} tokens.")
        if entity.start < stop:
            raise ValueError(
                f"entities in found must not overlap, but {entity} starts before the stop={stop} of another one."
            )
        stop = entity.stop
    for entity, prefixes in zip(ordered, ENTITY_SCHEMES[scheme].list_prefixes(ordered), strict=True):
        ending = f"-{entity.kind}" if entity.kind else ""
        labels[entity.start : entity.stop] = [prefix + ending for prefix in prefixes]
    return labels


def _as_entity(given):
    """Convert an argument to an entity; raise ValueError if the argument is not an entity."""
    if not (isinstance(given, Sequence) and len(given) == 3 and isinstance(given[0], str)):
        raise ValueError(f"found must hold entities, (kind, start, stop) such as ('PER', 0, 2), got {given!r}.")
    return Entity(given[0], as_integer(given[1], "start", lowest=-MAX_INT32), as_integer(given[2], "stop"))


def _require_scheme(scheme):
    """Raise ValueError unless ``scheme`` is the name of a scheme."""
    if not (isinstance(scheme, str) and scheme in ENTITY_SCHEMES):
        raise ValueError(f"scheme must be one of {sorted(ENTITY_SCHEMES)}, got {scheme!r}.")


def entity_scores(
    y_true: Sequence[Sequence[str]],
    y_pred: Sequence[Sequence[str]],
    *,
    scheme: str = "IOB2",
    mode: str = "lenient",
) -> dict[str, EntityScore]:
    """Compute precision, recall and F1 of entities; an entity is correct if its kind, start and end are correct.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"}, default="IOB2"
        See :func:`entities`.
    mode : {"lenient", "strict"}, default="lenient"
        See :func:`entities`; applies to both arguments.

    Returns
    -------
    dict of str to EntityScore
        Scores by kind, sorted, then "micro avg" (over all entities), "macro avg" and "weighted avg" (over kinds).

    Raises
    ------
    ValueError
        If the sequences of a pair differ in length, or a label does not fit the scheme.

    Examples
    --------
    >>> from sklearn_crf.metrics import entity_scores
    >>> found = entity_scores(
    ...     [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]]
    ... )
    >>> found["PER"].f1, found["LOC"].f1, found["micro avg"].f1
    (0.0, 1.0, 0.5)
    """
    for name, labels in (("y_true", y_true), ("y_pred", y_pred)):
        if isinstance(labels, str) or not hasattr(labels, "__len__") or getattr(labels, "ndim", 1) == 0:
            raise ValueError(f"{name} must be a list of sequences of labels, got {labels!r}.")
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} sequences, but y_pred has {len(y_pred)}.")
    true: Counter = Counter()
    predicted: Counter = Counter()
    right: Counter = Counter()
    for i, (a, b) in enumerate(zip(y_true, y_pred, strict=True)):
        if isinstance(a, str) or len(a) != len(b):
            found = "is a single label" if isinstance(a, str) else f"has {len(a)} labels, but y_pred[{i}] has {len(b)}"
            raise ValueError(f"y_true[{i}] {found}: entities are counted in sequences of labels.")
        try:
            first, second = set(entities(a, scheme, mode)), set(entities(b, scheme, mode))
        except ValueError as error:
            raise ValueError(f"Sequence {i}: {error}") from error
        true.update(entity.kind for entity in first)
        predicted.update(entity.kind for entity in second)
        right.update(entity.kind for entity in first & second)
    kinds = sorted(true | predicted)
    scores = {kind: _score(true[kind], predicted[kind], right[kind]) for kind in kinds}
    by_kind = list(scores.values())
    scores["micro avg"] = _score(true.total(), predicted.total(), right.total())
    scores["macro avg"] = _average(by_kind, [1] * len(by_kind))
    scores["weighted avg"] = _average(by_kind, [score.support for score in by_kind])
    return scores


def _score(n_true, n_predicted, n_right):
    precision = n_right / n_predicted if n_predicted else 0.0
    recall = n_right / n_true if n_true else 0.0
    f1 = 2 * n_right / (n_true + n_predicted) if n_true + n_predicted else 0.0
    return EntityScore(precision, recall, f1, n_true)


def _average(scores, weights):
    total = sum(weights)
    precision, recall, f1 = (
        sum(w * score[column] for w, score in zip(weights, scores, strict=True)) / total if total else 0.0
        for column in range(3)
    )
    return EntityScore(precision, recall, f1, sum(score.support for score in scores))


def entity_f1_score(
    y_true: Sequence[Sequence[str]],
    y_pred: Sequence[Sequence[str]],
    *,
    scheme: str = "IOB2",
    average: str = "micro",
    mode: str = "lenient",
) -> float:
    """Compute the F1 score of entities, ``2 correct / (true + predicted)``, or the mean of the F1 scores of kinds.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"}, default="IOB2"
        See :func:`entities`.
    average : {"micro", "macro", "weighted"}, default="micro"
        Micro: F1 of all entities together. Macro: mean over kinds. Weighted: mean weighted by numbers of true entities.
    mode : {"lenient", "strict"}, default="lenient"
        See :func:`entities`; applies to both arguments.

    Returns
    -------
    float

    Examples
    --------
    >>> from sklearn_crf.metrics import entity_f1_score
    >>> entity_f1_score([["B-PER", "O"], ["B-LOC"]], [["B-PER", "O"], ["O"]]).__round__(2)
    0.67
    """
    if average not in ("micro", "macro", "weighted"):
        raise ValueError(f"average must be 'micro', 'macro' or 'weighted', got {average!r}.")
    return entity_scores(y_true, y_pred, scheme=scheme, mode=mode)[f"{average} avg"].f1


def sequence_classification_report(
    y_true: Sequence[Sequence[str]],
    y_pred: Sequence[Sequence[str]],
    *,
    scheme: str = "IOB2",
    digits: int = 3,
    mode: str = "lenient",
) -> str:
    """Return a text table of the scores of entities that :func:`entity_scores` computes.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"}, default="IOB2"
        See :func:`entities`.
    digits : int, default=3
        Number of decimals.
    mode : {"lenient", "strict"}, default="lenient"
        See :func:`entities`; applies to both arguments.

    Returns
    -------
    str

    Examples
    --------
    >>> from sklearn_crf.metrics import sequence_classification_report
    >>> print(
    ...     sequence_classification_report([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "O"]])
    ... )
                  precision   recall       f1  support
             LOC      0.000    0.000    0.000        1
             PER      1.000    1.000    1.000        1
       micro avg      1.000    0.500    0.667        2
       macro avg      0.500    0.500    0.500        2
    weighted avg      0.500    0.500    0.500        2
    """
    scores = entity_scores(y_true, y_pred, scheme=scheme, mode=mode)
    width = max(map(len, scores))
    lines = [f"{'':>{width}}  precision   recall       f1  support"]
    lines += [
        f"{name:>{width}}{score.precision:>11.{digits}f}{score.recall:>9.{digits}f}{score.f1:>9.{digits}f}"
        f"{score.support:>9d}"
        for name, score in scores.items()
    ]
    return "\n".join(lines)
