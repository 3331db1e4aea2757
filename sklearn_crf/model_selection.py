"""Cross-validation for structured X and y."""

import time
from collections.abc import Callable, Mapping
from numbers import Integral

import numpy as np
import scipy.sparse as sp
from scipy.stats import wilcoxon
from sklearn.base import clone, is_classifier
from sklearn.model_selection import BaseCrossValidator, KFold, check_cv
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.parallel import Parallel, delayed

from sklearn_crf._numbers import sound_csr
from sklearn_crf.encoding import label_array, labels_from_objects, missing_nodes, object_array
from sklearn_crf.inference import resolve_inference

__all__ = ["StratifiedLatticeKFold", "coupling_audit", "cross_val_predict"]


class StratifiedLatticeKFold(BaseCrossValidator):
    r"""Folds of examples with nearly the same share of nodes of each class.

    scikit-learn's ``StratifiedKFold`` needs one label per example. Here example i has a histogram
    :math:`h_{ic}`, its number of nodes of class c over that of all examples, and examples are dealt out, those of
    the largest :math:`\|h_i\|` first, each to the fold f that still has room and minimises
    :math:`\sum_f \sum_c (\sum_{i \in f} h_{ic})^2`. Folds differ by one example at most.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=False
        Whether ties are broken at random instead of by the order of examples.
    random_state : int, RandomState instance or None, default=None
        For ``shuffle``.
    missing_label : object, optional
        Nodes with this label count for no class.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.model_selection import StratifiedLatticeKFold
    >>> y = np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
    >>> [
    ...     sorted(y[test, 0].tolist())
    ...     for _, test in StratifiedLatticeKFold(2).split(y[..., np.newaxis], y)
    ... ]
    [[0, 1], [0, 1]]
    """

    def __init__(self, n_splits=5, *, shuffle=False, random_state=None, missing_label=None):
        if not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(f"n_splits must be an integer of at least 2, got {n_splits!r}.")
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.missing_label = missing_label

    def get_n_splits(self, X=None, y=None, groups=None):
        """Number of folds.

        Parameters
        ----------
        X, y, groups : object, optional
            Not used.

        Returns
        -------
        int
        """
        return self.n_splits

    def _iter_test_indices(self, X=None, y=None, groups=None):
        if y is None:
            raise ValueError("StratifiedLatticeKFold needs y: its labels are what folds are balanced by.")
        if len(y) < self.n_splits:
            raise ValueError(f"n_splits={self.n_splits} needs as many examples, got {len(y)}.")
        fold = self._deal(_histograms(y, self.missing_label))
        for k in range(self.n_splits):
            yield np.flatnonzero(fold == k)

    def _deal(self, histograms):
        """Fold of each example."""
        n_examples = len(histograms)
        order = np.arange(n_examples)
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(n_examples)
        norm = (histograms**2).sum(axis=1)
        order = order[np.argsort(-norm[order], kind="stable")]
        total = np.zeros((self.n_splits, histograms.shape[1]))
        room = np.full(self.n_splits, n_examples // self.n_splits)
        room[: n_examples % self.n_splits] += 1
        fold = np.empty(n_examples, dtype=np.int64)
        for i in order:
            # What the sum of squares grows by, less what is the same for all folds; a fuller fold breaks no tie.
            growth = np.where(room > 0, total @ histograms[i], np.inf)
            ties = np.flatnonzero(growth <= growth.min() + 1e-12)
            chosen = ties[np.argmax(room[ties])]
            fold[i] = chosen
            total[chosen] += histograms[i]
            room[chosen] -= 1
        return fold


def _histograms(y, missing_label):
    """Share of the nodes of each class that each example holds, (n_examples, n_classes)."""
    parts = []
    for i, labels in enumerate(y):
        flat = label_array(labels).ravel()
        flat = flat[~missing_nodes(flat, missing_label)]
        parts.append(labels_from_objects(flat, f"y[{i}]") if flat.dtype == object else flat)
    found = [np.unique(part, return_counts=True) for part in parts]
    classes = np.unique(np.concatenate([values for values, _ in found if len(values)] or [[]]))
    counts = np.zeros((len(parts), len(classes)))
    for i, (values, number) in enumerate(found):
        if len(values):
            counts[i, np.searchsorted(classes, values)] = number
    return counts / np.maximum(counts.sum(axis=0), 1)


def cross_val_predict(
    estimator, X, y=None, *, groups=None, cv=None, n_jobs=None, verbose=0, params=None, method="predict"
):
    """Predictions for each example by an estimator that was fitted without it, in the layout of X.

    scikit-learn's function of this name fails on ragged labels and on all structured probabilities.

    Parameters
    ----------
    estimator : estimator
        Cloned for each fold.
    X : array-like, sparse matrix or list
        Examples.
    y : array-like or list of array-like, optional
        Their labels.
    groups : array-like of shape (n_examples,), optional
        For splitters that use them.
    cv : int, splitter or iterable of (train, test), optional
        An int, or None for 5, is :class:`StratifiedLatticeKFold` for classifiers and ``KFold`` otherwise. Every
        example must be in exactly one test set.
    n_jobs : int, optional
        Folds at once.
    verbose : int, default=0
        As in joblib.
    params : dict, optional
        For ``fit``; entries with one value per example are cut to those of the fold.
    method : {"predict", "predict_proba", "predict_log_proba", "decision_function"}, default="predict"
        What is called on the examples left out.

    Returns
    -------
    ndarray
        As the method returns for all of X: an array, or a 1-D object array of arrays. Columns are those of
        the sorted classes of all folds; where a fold has not seen a class, its probability is 0.

    Raises
    ------
    ValueError
        If the test sets do not hold every example exactly once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.model_selection import cross_val_predict
    >>> X = [np.array([[0.0], [0.1], [0.9]]), np.array([[0.8], [1.0]])] * 3
    >>> y = [[0, 0, 1], [1, 1]] * 3
    >>> [
    ...     labels.tolist()
    ...     for labels in cross_val_predict(TRWCRF(edge_features="constant"), X, y, cv=3)
    ... ][:2]
    [[0, 0, 1], [1, 1]]
    """
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    if y is not None and len(y) != n_examples:
        raise ValueError(f"y has {len(y)} examples, but X has {n_examples}.")
    splits = example_splits(cv, estimator, y, n_examples, groups)
    test = np.concatenate([part for _, part in splits])
    if len(test) != n_examples or not np.array_equal(np.sort(test), np.arange(n_examples)):
        raise ValueError("cross_val_predict needs every example in exactly one test set of cv.")
    jobs = Parallel(n_jobs=n_jobs, verbose=verbose)
    results = jobs(
        delayed(_fit_and_predict)(clone(estimator), X, y, train, part, params or {}, method) for train, part in splits
    )
    values = [value for value, _ in results]
    if method != "predict" and all(classes is not None for _, classes in results):
        values = _with_all_columns(results, method)
    return np.concatenate(values)[np.argsort(test, kind="stable")]


def example_splits(cv, estimator, y, n_examples: int | None = None, groups=None) -> list[tuple]:
    """Folds of examples: those of :class:`StratifiedLatticeKFold` for classifiers, unless cv is a splitter.

    Parameters
    ----------
    cv : int, splitter, iterable of (train, test) or None
        None is 5.
    estimator : estimator
    y : sequence or None
        Labels of the examples.
    n_examples : int, optional
        None counts those of y.
    groups : array-like of shape (n_examples,), optional

    Returns
    -------
    list of tuple of ndarray
        Numbers of the training and test examples of each fold.
    """
    if cv is None or isinstance(cv, Integral):
        n_splits = 5 if cv is None else cv
        classify = is_classifier(estimator) and y is not None
        splitter = StratifiedLatticeKFold(n_splits) if classify else KFold(n_splits)
    else:
        splitter = check_cv(cv)
    return list(splitter.split(np.zeros(len(y) if n_examples is None else n_examples), y, groups))


def _fit_and_predict(estimator, X, y, train, test, params, method):
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    params = {name: _cut(value, train, n_examples) for name, value in params.items()}
    if y is None:
        estimator.fit(take_examples(X, train), **params)
    else:
        estimator.fit(take_examples(X, train), take_examples(y, train), **params)
    value = getattr(estimator, method)(take_examples(X, test))
    return object_array(value) if isinstance(value, list) else value, getattr(estimator, "classes_", None)


def _cut(value, train, n_examples):
    has_one_each = hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n_examples
    return take_examples(value, train) if has_one_each else value


def take_examples(values, indices):
    """Some of the examples, in the container they came in.

    Parameters
    ----------
    values : array-like, data frame, sparse matrix or list
    indices : ndarray of int

    Returns
    -------
    object
        Of the type of ``values``.
    """
    if hasattr(values, "iloc"):
        return values.iloc[indices]
    if sp.issparse(values):
        return sound_csr(values, "X")[indices]
    if hasattr(values, "shape"):
        return values[indices]
    return [values[i] for i in indices]


# Of a class that a fold has not seen.
_UNSEEN = {"predict_proba": 0.0, "predict_log_proba": -np.inf, "decision_function": -np.inf}


def _with_all_columns(results, method):
    """Columns of the classes of all folds."""
    classes = np.unique(np.concatenate([found for _, found in results]))
    return [_spread(value, np.searchsorted(classes, found), len(classes), method) for value, found in results]


def _spread(value, columns, n_classes, method):
    if len(columns) == n_classes:
        return value
    if value.dtype == object:
        return object_array([_spread(part, columns, n_classes, method) for part in value])
    if value.shape[-1] != len(columns):
        raise ValueError(f"cross_val_predict: a fold lacks a class, and {method} has no column for each of the others.")
    spread = np.full((*value.shape[:-1], n_classes), _UNSEEN[method], dtype=value.dtype)
    spread[..., columns] = value
    return spread


# Resamples of the differences of a pair, and the share of them that an interval holds.
_N_RESAMPLES, _COVERAGE = 2000, 0.95


def coupling_audit(
    estimators: Mapping,
    X,
    y,
    *,
    inference: Mapping,
    cv=None,
    scoring: Callable | None = None,
    n_jobs: int | None = None,
    random_state=None,
) -> Bunch:
    r"""Which way of learning goes with which inference on given data: Table 1 of Kumar et al. for any task.

    Every estimator is fitted once for each fold and predicts the examples left out by every inference. Of each pair
    there are a score for each example, the log-loss of its marginals, the seconds of both, and a comparison with the
    best pair over the same examples: a bootstrap interval of the mean difference and Wilcoxon's signed-rank test, its
    p-values corrected by Holm's method,

    .. math:: \tilde p_{(k)} = \max_{j \le k} \min \bigl( 1, (m - j + 1) \, p_{(j)} \bigr).

    Parameters
    ----------
    estimators : mapping of str to field classifier
        Each one way of learning; cloned for each fold.
    X : array-like or list
        Examples.
    y : array-like or list of array-like
        Their labels.
    inference : mapping of str to str or Inference
        What predicts: as the parameter ``inference`` of an estimator.
    cv : int or splitter, optional
        Folds of examples; None is 5. Every example is to be left out once.
    scoring : callable(y_true, y_pred) -> float, optional
        Score of the labels of one example, more is better; None is the share of right labels. Both arguments are flat
        and hold the labelled nodes only.
    n_jobs : int, optional
        Folds at once.
    random_state : int, RandomState instance or None, default=None
        Draws the resamples.

    Returns
    -------
    Bunch
        ``results``: a dict of arrays with an entry for each pair, learning by learning: ``learning`` and ``inference``,
        their names; ``matched``, whether the estimator predicts by that inference itself; ``mean_test_score`` and
        ``std_test_score`` over examples; ``mean_log_loss``, NaN where an estimator has no marginals;
        ``mean_fit_time`` and ``mean_predict_time``, in seconds over folds; ``rank_test_score``; ``difference`` to the
        best pair, ``difference_low`` and ``difference_high``, the ends of its interval of 95 %, ``p_value`` and
        ``p_holm``. ``scores``: (n_pairs, n_examples), NaN for examples without labels.

    Raises
    ------
    ValueError
        If a mapping is empty, or an example is left out by no fold or by several.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative
    Fields: An Empirical Study. EMMCVPR 2005. S. Holm. A Simple Sequentially Rejective Multiple Test Procedure.
    Scandinavian Journal of Statistics 6, 1979.

    Examples
    --------
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.datasets import make_noisy_digits
    >>> from sklearn_crf.model_selection import coupling_audit
    >>> X, y, _ = make_noisy_digits(12, random_state=0)
    >>> estimators = {
    ...     "pl": DRFClassifier(learning="pl"),
    ...     "spa": DRFClassifier(inference="map"),
    ... }
    >>> audit = coupling_audit(
    ...     estimators, X, y, inference={"MAP": "map", "MPM": "mpm"}, cv=3, random_state=0
    ... )
    >>> audit.results["learning"].tolist()
    ['pl', 'pl', 'spa', 'spa']
    """
    for name, mapping in (("estimators", estimators), ("inference", inference)):
        if not isinstance(mapping, Mapping) or not mapping:
            raise ValueError(f"{name} must map names to at least one object, got {mapping!r}.")
    first = next(iter(estimators.values()))
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    folds = example_splits(cv, first, y, n_examples)
    left_out = np.concatenate([test for _, test in folds])
    if not np.array_equal(np.sort(left_out), np.arange(n_examples)):
        raise ValueError("coupling_audit needs every example in exactly one test set of cv.")
    tasks = [(name, fold) for name in estimators for fold in range(len(folds))]
    found = Parallel(n_jobs=n_jobs)(
        delayed(_audit_fold)(clone(estimators[name]), X, y, *folds[fold], inference, scoring) for name, fold in tasks
    )
    pairs = [(learning, decoding) for learning in estimators for decoding in inference]
    scores = np.full((len(pairs), n_examples), np.nan)
    log_loss, seconds = np.full((len(pairs), n_examples), np.nan), np.zeros((len(pairs), len(folds), 2))
    matched = np.zeros(len(pairs), dtype=bool)
    for (learning, fold), parts in zip(tasks, found, strict=True):
        for decoding, part in parts.items():
            k, test = pairs.index((learning, decoding)), folds[fold][1]
            scores[k, test], log_loss[k, test] = part.scores, part.log_loss
            seconds[k, fold], matched[k] = part.seconds, part.matched
    results = {
        "learning": np.array([learning for learning, _ in pairs]),
        "inference": np.array([decoding for _, decoding in pairs]),
        "matched": matched,
        **_summary(scores, check_random_state(random_state)),
        "mean_log_loss": np.array([_mean(row) for row in log_loss]),
        "mean_fit_time": seconds[:, :, 0].mean(axis=1),
        "mean_predict_time": seconds[:, :, 1].mean(axis=1),
    }
    return Bunch(results=results, scores=scores)


def _audit_fold(estimator, X, y, train, test, inference, scoring):
    """Scores of the examples left out by every inference."""
    start = time.perf_counter()
    estimator.fit(take_examples(X, train), take_examples(y, train))
    fit_seconds = time.perf_counter() - start
    X_test, truth = take_examples(X, test), take_examples(y, test)
    own = repr(estimator._decoding())
    parts = {}
    for name, decoding in inference.items():
        start = time.perf_counter()
        predicted = estimator.predict(X_test, inference=decoding)
        seconds = fit_seconds, time.perf_counter() - start
        parts[name] = Bunch(
            scores=_scores(estimator, truth, predicted, scoring or _accuracy),
            log_loss=_log_losses(estimator, X_test, truth, decoding),
            seconds=seconds,
            matched=repr(resolve_inference(decoding)) == own,
        )
    return parts


def _accuracy(truth, predicted):
    return float(np.mean(truth == predicted))


def _labelled(estimator, labels):
    flat = label_array(labels).ravel()
    return flat, ~missing_nodes(flat, estimator.missing_label)


def _scores(estimator, truth, predicted, scoring):
    scores = []
    for labels, found in zip(truth, predicted, strict=True):
        flat, known = _labelled(estimator, labels)
        scores.append(scoring(flat[known], np.ravel(found)[known]) if known.any() else np.nan)
    return scores


def _log_losses(estimator, X, truth, decoding):
    """Mean negative log-probability of the labels of each example; NaN without marginals."""
    if not hasattr(estimator, "predict_proba"):
        return np.nan
    classes, losses = estimator.classes_, []
    for labels, probability in zip(truth, estimator.predict_proba(X, inference=decoding), strict=True):
        flat, known = _labelled(estimator, labels)
        known[known] = np.isin(flat[known], classes)
        columns = np.searchsorted(classes, flat[known])
        of_truth = np.reshape(probability, (-1, len(classes)))[np.flatnonzero(known), columns]
        losses.append(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean() if known.any() else np.nan)
    return losses


def _mean(values):
    return np.nanmean(values) if np.isfinite(values).any() else np.nan


def _summary(scores, rng):
    """Means, and comparisons with the best pair over the same examples."""
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    if not scores.size:
        raise ValueError("y has no labelled node: there is nothing to score.")
    mean = scores.mean(axis=1)
    best = int(np.argmax(mean))
    difference = scores - scores[best]
    drawn = rng.randint(scores.shape[1], size=(_N_RESAMPLES, scores.shape[1]))
    tails = 100 * (1 - _COVERAGE) / 2
    ends = np.array([np.percentile(row[drawn].mean(axis=1), [tails, 100 - tails]) for row in difference])
    p_value = np.array([wilcoxon(row).pvalue if row.any() else 1.0 for row in difference])
    return {
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": 1 + (mean[:, None] < mean).sum(axis=1),
        "difference": difference.mean(axis=1),
        "difference_low": ends[:, 0],
        "difference_high": ends[:, 1],
        "p_value": p_value,
        "p_holm": _holm(p_value, best),
    }


def _holm(p_value, best):
    """P-values corrected for as many comparisons as there are rivals of the best pair."""
    rivals = np.delete(np.arange(len(p_value)), best)
    order = rivals[np.argsort(p_value[rivals], kind="stable")]
    corrected = np.ones(len(p_value))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(order), 0, -1) * p_value[order]))
    return corrected
