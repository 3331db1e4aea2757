"""Entities: runs of tokens that IOB2 or IOBES labels mark, counted as a whole."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_PREFIXES = {"IOB2": "IOB", "IOBES": "IOBES"}
_ENDS = "ES"  # of the token before: the entity ends
_BEGINS = "BS"  # of a token: a new entity begins after any token


class Entity(NamedTuple):
    """A run of tokens.

    Attributes
    ----------
    kind : str
        What follows the prefix in its labels: "PER" of "B-PER".
    start : int
        First token.
    stop : int
        The one after the last.

    Examples
    --------
    >>> from sklearn_crf.metrics import entities
    >>> entities(["B-PER", "I-PER", "O"])[0].kind
    'PER'
    """

    kind: str
    start: int
    stop: int


class EntityScore(NamedTuple):
    """Precision, recall and F1 of the entities of one kind.

    Attributes
    ----------
    precision : float
        Share of the predicted entities that are true ones; 0 if none was predicted.
    recall : float
        Share of the true entities that were predicted; 0 if there is none.
    f1 : float
        Harmonic mean of both.
    support : int
        Number of true entities.

    Examples
    --------
    >>> from sklearn_crf.metrics import entity_scores
    >>> entity_scores([["B-PER", "O"]], [["B-PER", "B-PER"]])["PER"]
    EntityScore(precision=0.5, recall=1.0, f1=0.6666666666666666, support=1)
    """

    precision: float
    recall: float
    f1: float
    support: int


def entities(labels: Sequence[str], scheme: str = "IOB2") -> list[Entity]:
    """Entities that the labels of one sequence mark.

    Labels that break the scheme are read as the CoNLL evaluation does: an inside label that continues nothing begins an
    entity.

    Parameters
    ----------
    labels : sequence of str
        "O", or a prefix and a kind: "B-PER".
    scheme : {"IOB2", "IOBES"}, default="IOB2"
        Prefixes: B begins and I continues an entity; in IOBES E ends one and S is one by itself.

    Returns
    -------
    list of Entity

    Raises
    ------
    ValueError
        If a label has another prefix.

    Examples
    --------
    >>> from sklearn_crf.metrics import entities
    >>> entities(["B-PER", "I-PER", "O", "B-LOC"])
    [Entity(kind='PER', start=0, stop=2), Entity(kind='LOC', start=3, stop=4)]
    """
    if scheme not in _PREFIXES:
        raise ValueError(f"scheme must be one of {sorted(_PREFIXES)}, got {scheme!r}.")
    found: list[Entity] = []
    start, before, kind_before = 0, "O", ""
    for t, label in enumerate([*labels, "O"]):
        prefix, _, kind = str(label).partition("-")
        if prefix not in _PREFIXES[scheme] or len(prefix) != 1:
            raise ValueError(
                f"labels[{t}] is {label!r}, which is no {scheme} label: these begin with {_PREFIXES[scheme]}."
            )
        goes_on = prefix not in "O" + _BEGINS and before not in "O" + _ENDS and kind == kind_before
        if before != "O" and not goes_on:
            found.append(Entity(kind_before, start, t))
        if prefix != "O" and not goes_on:
            start = t
        before, kind_before = prefix, kind
    return found


def entity_scores(
    y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]], *, scheme: str = "IOB2"
) -> dict[str, EntityScore]:
    """Precision, recall and F1 of entities: one counts as found only if its kind, start and end are all right.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB2", "IOBES"}, default="IOB2"
        As in :func:`entities`.

    Returns
    -------
    dict of str to EntityScore
        By kind, sorted, then "micro avg" (all entities together), "macro avg" and "weighted avg" (over kinds).

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
            first, second = set(entities(a, scheme)), set(entities(b, scheme))
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
    means = (
        sum(w * score[column] for w, score in zip(weights, scores, strict=True)) / total if total else 0.0
        for column in range(3)
    )
    return EntityScore(*means, sum(score.support for score in scores))


def entity_f1_score(
    y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]], *, scheme: str = "IOB2", average: str = "micro"
) -> float:
    """F1 of entities, ``2 right / (true + predicted)``, or a mean over their kinds.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB2", "IOBES"}, default="IOB2"
        As in :func:`entities`.
    average : {"micro", "macro", "weighted"}, default="micro"
        All entities together, the mean over kinds, or that weighted by the number of true ones.

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
    return entity_scores(y_true, y_pred, scheme=scheme)[f"{average} avg"].f1


def sequence_classification_report(
    y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]], *, scheme: str = "IOB2", digits: int = 3
) -> str:
    """Table of the scores of entities, as text: the numbers are those of :func:`entity_scores`.

    Parameters
    ----------
    y_true, y_pred : list or array of sequences of str
        Labels of each sequence.
    scheme : {"IOB2", "IOBES"}, default="IOB2"
        As in :func:`entities`.
    digits : int, default=3
        Decimals.

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
    scores = entity_scores(y_true, y_pred, scheme=scheme)
    width = max(map(len, scores))
    lines = [f"{'':>{width}}  precision   recall       f1  support"]
    lines += [
        f"{name:>{width}}{score.precision:>11.{digits}f}{score.recall:>9.{digits}f}{score.f1:>9.{digits}f}"
        f"{score.support:>9d}"
        for name, score in scores.items()
    ]
    return "\n".join(lines)
