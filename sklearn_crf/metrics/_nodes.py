"""Metrics, reports and scorers in which every labelled node counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, classification_report, f1_score, jaccard_score

from sklearn_crf import encoding
from sklearn_crf._numbers import as_reals
from sklearn_crf._parameters import get_missing_label


def flatten_nodes(y_true, y_pred, *, missing_label=None, sample_weight=None):
    """Flatten the true and the predicted labels of all labelled nodes, for metrics that need flat arrays."""
    # returns: y_true: (n_nodes,), y_pred: (n_nodes,) or (n_nodes, n_columns), sample_weight: (n_nodes,) or None
    true = _separate_examples(y_true, "y_true")
    # Treat plain labels as one array, because an array per example would take longer than the metric.
    plain = len(true) == 1 and np.ndim(y_true[0]) == 0
    pred = [np.asarray(y_pred)] if plain else _separate_examples(y_pred, "y_pred")
    if len(true) != len(pred):
        raise ValueError(f"y_true has {len(true)} examples, but y_pred has {len(pred)}.")
    n_trailing = pred[0].ndim - true[0].ndim if true else 0
    for i, (a, b) in enumerate(zip(true, pred, strict=True)):
        if n_trailing not in (0, 1) or b.shape[: b.ndim - n_trailing] != a.shape:
            raise ValueError(f"y_pred[{i}] has shape {b.shape}, but y_true[{i}] has shape {a.shape}.")
    keep = [~encoding.mask_missing_nodes(a, missing_label) for a in true]
    if not any(mask.any() for mask in keep):
        raise ValueError("y_true holds no label at all: there is nothing to score.")
    weight = None if sample_weight is None else _spread_node_weight(sample_weight, true)
    true, pred = _concatenate(true, keep, "y_true"), _concatenate(pred, keep, "y_pred")
    if not n_trailing:
        encoding.require_same_kind(true, pred, "y_true", "the labels of y_pred")
        for name, labels in (("y_true", true), ("y_pred", pred)):
            if labels.dtype.kind == "f" and np.isnan(labels).any():
                raise ValueError(f"Input {name} contains NaN: mark nodes without a label by missing_label.")
    return true, pred, None if weight is None else _concatenate(weight, keep, "sample_weight")


def _separate_examples(y, name, read=encoding.convert_to_label_array):
    """Return a list with one array for each example, or with a single array if y is flat."""
    # read: callable(values) -> array
    y = y if isinstance(y, list | tuple) else encoding.convert_to_label_array(y)
    if encoding.count_examples(y, name) and np.ndim(y[0]) == 0:
        return [read(y)]
    return [read(part) for part in y]


def _spread_node_weight(sample_weight, true):
    weight = _separate_examples(sample_weight, "sample_weight", lambda values: as_reals(values, "sample_weight"))
    if len(true) > 1 and len(weight) == 1 and weight[0].ndim == 1:
        weight = list(weight[0])
    if len(weight) != len(true):
        raise ValueError(f"sample_weight has {len(weight)} examples, but y_true has {len(true)}.")
    try:
        return [np.broadcast_to(w, a.shape) for w, a in zip(weight, true, strict=True)]
    except ValueError as error:
        raise ValueError(f"sample_weight must be one number per example or per node: {error}") from error


def _concatenate(parts, keep, name):
    values = np.concatenate([part[mask] for part, mask in zip(parts, keep, strict=True)])
    values = encoding.convert_object_labels(values, name) if values.dtype == object else values
    if values.dtype.kind not in "biufUS":
        raise ValueError(f"{name} must hold numbers or strings, got {values.dtype}.")
    return values


def node_accuracy_score(y_true: Any, y_pred: Any, *, missing_label: Any = None, sample_weight: Any = None) -> float:
    """Compute the fraction of labelled nodes whose predicted label is correct.

    Parameters
    ----------
    y_true, y_pred : array-like or list of array-like
        True and predicted labels: one label for each node or example, or a list with an array of node labels for each
        example.
    missing_label : object, optional
        Nodes with this true label are ignored.
    sample_weight : array-like, optional
        One weight per example, or one per node.

    Returns
    -------
    float

    Examples
    --------
    >>> from sklearn_crf.metrics import node_accuracy_score
    >>> y_true, y_pred = [[0, 1, 1], [1, 0]], [[0, 1, 0], [1, 0]]
    >>> round(float(node_accuracy_score(y_true, y_pred)), 3)
    0.8
    """
    return _score_flat_nodes(accuracy_score, y_true, y_pred, missing_label, sample_weight)


def node_f1_score(
    y_true: Any,
    y_pred: Any,
    *,
    missing_label: Any = None,
    sample_weight: Any = None,
    average: str | None = "macro",
    **options: Any,
) -> Any:
    """Compute the F1 score over labelled nodes, ``2 tp / (2 tp + fp + fn)``, of each class or averaged over classes.

    Parameters
    ----------
    y_true, y_pred, missing_label, sample_weight
        See :func:`node_accuracy_score`.
    average : {"macro", "micro", "weighted", "binary"} or None, default="macro"
        See :func:`sklearn.metrics.f1_score`; None returns one number per class.
    **options
        Further arguments of the scikit-learn function, such as ``labels``, ``pos_label``, ``zero_division``.

    Returns
    -------
    float, or ndarray of shape (n_classes,)

    Examples
    --------
    >>> from sklearn_crf.metrics import node_f1_score
    >>> y_true, y_pred = [[0, 1, 1], [1, 0]], [[0, 1, 0], [1, 0]]
    >>> round(float(node_f1_score(y_true, y_pred)), 3)
    0.8
    """
    return _score_flat_nodes(f1_score, y_true, y_pred, missing_label, sample_weight, average=average, **options)


def node_jaccard_score(
    y_true: Any,
    y_pred: Any,
    *,
    missing_label: Any = None,
    sample_weight: Any = None,
    average: str | None = "macro",
    **options: Any,
) -> Any:
    """Compute the intersection over union, ``tp / (tp + fp + fn)``, of each class or averaged over classes.

    The labelled nodes of all examples are pooled, as is usual for segmentations.

    Parameters
    ----------
    y_true, y_pred, missing_label, sample_weight
        See :func:`node_accuracy_score`.
    average : {"macro", "micro", "weighted", "binary"} or None, default="macro"
        See :func:`sklearn.metrics.jaccard_score`; None returns one number per class.
    **options
        Further arguments of the scikit-learn function, such as ``labels``, ``pos_label``, ``zero_division``.

    Returns
    -------
    float, or ndarray of shape (n_classes,)

    Examples
    --------
    >>> from sklearn_crf.metrics import node_jaccard_score
    >>> y_true, y_pred = [[0, 1, 1], [1, 0]], [[0, 1, 0], [1, 0]]
    >>> round(float(node_jaccard_score(y_true, y_pred)), 3)
    0.667
    """
    return _score_flat_nodes(jaccard_score, y_true, y_pred, missing_label, sample_weight, average=average, **options)


def _score_flat_nodes(metric, y_true, y_pred, missing_label, sample_weight, **options):
    true, pred, weight = flatten_nodes(y_true, y_pred, missing_label=missing_label, sample_weight=sample_weight)
    return metric(true, pred, sample_weight=_check_weights(weight), **options)


def _check_weights(weight):
    """Check the weights of nodes, and rescale them if their sum would overflow."""
    if weight is None:
        return None
    if not np.all(np.isfinite(weight)):
        raise ValueError("sample_weight must be finite, found NaN or infinity.")
    if np.any(weight < 0) or not np.any(weight):
        found = "a negative weight" if np.any(weight < 0) else "zero for every labelled node"
        raise ValueError(f"sample_weight must be at least 0, and positive for some labelled node, found {found}.")
    return encoding.scale_sample_weight(weight)


def node_classification_report(
    y_true: Any, y_pred: Any, *, missing_label: Any = None, digits: int = 3, sample_weight: Any = None, **options: Any
) -> str:
    """Return a text table of precision, recall and F1 of each class over labelled nodes.

    Parameters
    ----------
    y_true, y_pred : array-like or list of array-like
        See :func:`node_accuracy_score`.
    missing_label : object, optional
        Nodes with this true label are ignored.
    digits : int, default=3
        Number of decimals.
    sample_weight : array-like, optional
        See :func:`node_accuracy_score`.
    **options
        Further arguments of :func:`sklearn.metrics.classification_report`, such as ``target_names``.

    Returns
    -------
    str

    Examples
    --------
    >>> from sklearn_crf.metrics import node_classification_report
    >>> print(
    ...     node_classification_report([[0, 1, 1], [0, 0]], [[0, 1, 0], [0, 0]], digits=2)
    ... )
                  precision    recall  f1-score   support
    <BLANKLINE>
               0       0.75      1.00      0.86         3
               1       1.00      0.50      0.67         2
    <BLANKLINE>
        accuracy                           0.80         5
       macro avg       0.88      0.75      0.76         5
    weighted avg       0.85      0.80      0.78         5
    <BLANKLINE>
    """
    return _score_flat_nodes(
        classification_report, y_true, y_pred, missing_label, sample_weight, digits=digits, **options
    )


def node_log_likelihood_score(
    y_true: Any, y_proba: Any, *, labels: Any, missing_label: Any = None, sample_weight: Any = None
) -> float:
    """Compute the mean log-probability of the true labels over labelled nodes; larger is better, and 0 is best.

    The marginals of nodes are scored, not labelings. The score therefore differs from the log-likelihood that training
    maximises.

    Parameters
    ----------
    y_true : array-like or list of array-like
        See :func:`node_accuracy_score`.
    y_proba : array-like or list of array-like
        Probabilities, whose last axis has length ``len(labels)``.
    labels : array-like of shape (n_classes,)
        The class of each column, without repetitions.
    missing_label : object, optional
        Nodes with this true label are ignored.
    sample_weight : array-like, optional
        One weight per example or per node.

    Returns
    -------
    float
        Always finite: each probability is at least the smallest positive number of its precision. True labels that are
        not among ``labels`` have this smallest probability.

    Raises
    ------
    ValueError
        If ``y_proba`` contains NaN or a number outside the range 0 to 1, or if ``labels`` contains a class twice.

    Examples
    --------
    >>> from sklearn_crf.metrics import node_log_likelihood_score
    >>> y_true, y_proba = [[0, 1]], [[[0.9, 0.1], [0.2, 0.8]]]
    >>> round(float(node_log_likelihood_score(y_true, y_proba, labels=[0, 1])), 3)
    -0.164
    """
    true, proba, weight = flatten_nodes(y_true, y_proba, missing_label=missing_label, sample_weight=sample_weight)
    labels = np.asarray(labels)
    encoding.require_same_kind(true, labels, "y_true", "labels")
    if proba.ndim != 2 or proba.shape[1] != len(labels):
        raise ValueError(f"y_proba must have a last axis of {len(labels)} classes, got {proba.shape[1:]}.")
    if len(set(labels.tolist())) < len(labels):
        raise ValueError(f"labels must be distinct, got {labels.tolist()}: give one label for each column of y_proba.")
    if proba.dtype.kind not in "biuf":
        raise ValueError(f"y_proba must hold numbers, got {proba.dtype}.")
    proba = proba if proba.dtype.kind == "f" else proba.astype(np.float64)
    # Probabilities may have been computed in lower precision than the precision of the array.
    wrong = proba[~((proba >= 0) & (proba <= 1 + np.sqrt(np.finfo(np.float32).eps)))]
    if wrong.size:
        raise ValueError(f"y_proba must hold probabilities from 0 to 1, found {wrong[0]:g}: pass predict_proba(X).")
    order = np.argsort(labels)
    column = order[np.minimum(np.searchsorted(labels, true, sorter=order), len(labels) - 1)]
    chosen = np.where(labels[column] == true, proba[np.arange(len(true)), column], 0)
    chosen = np.clip(chosen, np.finfo(chosen.dtype).tiny, 1).astype(np.float64)
    return float(np.average(np.log(chosen), weights=_check_weights(weight)))


class NodeScorer:
    """Scorer ``(estimator, X, y) -> float`` for the parameter ``scoring`` of searches and cross-validation.

    scikit-learn's own scorers expect flat y; for ragged y they return NaN.
    """

    # metric: callable(y_true, y_pred, **options) -> float

    def __init__(self, metric, response_method="predict", missing_label=None, sign=1, **options):
        if response_method not in ("predict", "predict_proba"):
            raise ValueError(f"response_method must be 'predict' or 'predict_proba', got {response_method!r}.")
        self.metric = metric
        self.response_method = response_method
        self.missing_label = missing_label
        self.sign = sign
        self.options = options

    def __call__(self, estimator, X, y, sample_weight=None):
        """Return the score of an estimator's predictions for X against y."""
        values = getattr(estimator, self.response_method)(X)
        missing = get_missing_label(estimator) if self.missing_label is None else self.missing_label
        true, pred, weight = flatten_nodes(y, values, missing_label=missing, sample_weight=sample_weight)
        options = dict(self.options)
        if self.response_method == "predict_proba":
            options.setdefault("labels", estimator.classes_)
        if weight is not None:
            options["sample_weight"] = _check_weights(weight)
        return self.sign * float(self.metric(true, pred, **options))

    def __repr__(self):
        """Return a string with the name of the metric and the name of the response method."""
        sign = "" if self.sign > 0 else "-"
        return f"NodeScorer({sign}{getattr(self.metric, '__name__', self.metric)}, {self.response_method})"


def make_node_scorer(
    metric: Callable[..., float],
    *,
    response_method: str = "predict",
    missing_label: Any = None,
    greater_is_better: bool = True,
    **options: Any,
) -> Any:
    """Make a scorer from a metric for flat labels; the scorer flattens structured y and predictions.

    Parameters
    ----------
    metric : callable(y_true, y_pred, **options) -> float
        For instance :func:`sklearn.metrics.balanced_accuracy_score`.
    response_method : {"predict", "predict_proba"}, default="predict"
        Method whose result is scored. If it returns probabilities, ``labels=estimator.classes_`` is passed to the
        metric.
    missing_label : object, optional
        Nodes with this true label are ignored. None uses the ``missing_label`` of the estimator that is scored, also in
        pipelines.
    greater_is_better : bool, default=True
        False negates the metric, so that larger is better.
    **options
        Further arguments of the metric.

    Returns
    -------
    NodeScorer

    Examples
    --------
    >>> from sklearn.metrics import f1_score
    >>> from sklearn_crf.metrics import make_node_scorer
    >>> make_node_scorer(f1_score, average="macro", missing_label=-1)
    NodeScorer(f1_score, predict)
    """
    return NodeScorer(metric, response_method, missing_label, 1 if greater_is_better else -1, **options)


#: Scorers by name; ``scoring=NODE_SCORERS`` computes all scores.
NODE_SCORERS = {
    "node_accuracy": make_node_scorer(node_accuracy_score),
    "node_f1_macro": make_node_scorer(node_f1_score),
    "node_jaccard_macro": make_node_scorer(node_jaccard_score),
    "node_log_likelihood": make_node_scorer(node_log_likelihood_score, response_method="predict_proba"),
}
