"""Cross-validation for structured X and y."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import BaseCrossValidator, KFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.parallel import Parallel, delayed

from sklearn_crf._numbers import check_option
from sklearn_crf._parameters import get_missing_label
from sklearn_crf._versions import defaults_of
from sklearn_crf.encoding import (
    convert_object_labels,
    convert_to_label_array,
    make_object_array,
    mask_missing_nodes,
    require_same_kind,
    take_examples,
)
from sklearn_crf.inference import NAMES, resolve_inference

__all__ = ["StratifiedLatticeKFold", "coupling_audit", "cross_val_predict"]


class StratifiedLatticeKFold(BaseCrossValidator):
    r"""Cross-validator whose folds contain nearly equal fractions of the nodes of each class.

    scikit-learn's ``StratifiedKFold`` needs one label per example. Here example i has a histogram :math:`h_{ic}`: its
    number of nodes of class c, divided by the number in all examples. Examples are assigned to folds in descending
    order of :math:`\|h_i\|`. An example is assigned to the fold, among folds that are not full, that minimises
    :math:`\sum_f \sum_c (\sum_{i \in f} h_{ic})^2`. The sizes of folds differ by at most one example. Examples without
    labelled nodes do not change the folds of other examples.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=False
        Whether to break ties at random instead of by the order of examples.
    random_state : int, RandomState instance or None, default=None
        Random state for ``shuffle``.
    missing_label : object, optional
        Label of nodes whose class is unknown; these nodes are not counted.

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

    def __init__(
        self,
        n_splits: int = 5,
        *,
        shuffle: bool = False,
        random_state: int | np.random.RandomState | None = None,
        missing_label: Any = None,
    ) -> None:
        if not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(f"n_splits must be an integer of at least 2, got {n_splits!r}.")
        self.n_splits: int = n_splits
        self.shuffle: bool = shuffle
        self.random_state: Any = random_state
        self.missing_label: Any = missing_label

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(defaults_of(type(self).__init__) | state)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

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
            raise ValueError("StratifiedLatticeKFold needs y, to balance the labels of the folds.")
        if len(y) < int(self.n_splits):
            raise ValueError(f"n_splits={self.n_splits} needs at least as many examples as folds, got {len(y)}.")
        fold = self._assign_folds(_compute_histograms(y, self.missing_label))
        for k in range(self.n_splits):
            yield np.flatnonzero(fold == k)

    def _assign_folds(self, histograms):
        """Assign each example to a fold; return the index of the fold of each example."""
        norm = (histograms**2).sum(axis=1)
        total = np.zeros((self.n_splits, histograms.shape[1]))
        room, fold = np.zeros(self.n_splits, dtype=np.int64), np.empty(len(histograms), dtype=np.int64)
        rng, places = check_random_state(self.random_state), np.arange(len(histograms)) % self.n_splits
        # Examples without labels, such as empty ones, come last, so that they do not change the folds of the others.
        for order in (np.flatnonzero(norm > 0), np.flatnonzero(norm == 0)):
            own, places = np.split(places, [len(order)])
            room += np.bincount(own, minlength=self.n_splits)
            order = rng.permutation(order) if self.shuffle else order
            for i in order[np.argsort(-norm[order], kind="stable")]:
                # Half the increase of the sum of squares, up to a constant. Ties go to the fold with most free places.
                growth = np.where(room > 0, total @ histograms[i], np.inf)
                ties = np.flatnonzero(growth <= growth.min() + 1e-12)
                chosen = ties[np.argmax(room[ties])]
                fold[i] = chosen
                total[chosen] += histograms[i]
                room[chosen] -= 1
        return fold


def _compute_histograms(y, missing_label):
    """Return, for each example and class, the fraction of the class's nodes in the example, (n_examples, n_classes)."""
    parts = []
    for i, labels in enumerate(y):
        flat = convert_to_label_array(labels).ravel()
        flat = flat[~mask_missing_nodes(flat, missing_label)]
        parts.append(convert_object_labels(flat, f"y[{i}]") if flat.dtype == object else flat)
    found = [np.unique(part, return_counts=True) for part in parts]
    classes = np.unique(np.concatenate([values for values, _ in found if len(values)] or [np.zeros(0)]))
    counts = np.zeros((len(parts), len(classes)))
    for i, (values, number) in enumerate(found):
        if len(values):
            counts[i, np.searchsorted(classes, values)] = number
    return counts / np.maximum(counts.sum(axis=0), 1)


def cross_val_predict(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: Any = None,
    method: str = "predict",
) -> np.ndarray:
    """Predict each example with an estimator that was fitted without it; return predictions in the layout of X.

    scikit-learn's function of the same name fails on ragged labels and on all structured probabilities.

    Parameters
    ----------
    estimator : estimator
        Estimator that is cloned and fitted for each fold.
    X : array-like, sparse matrix or list
        Examples.
    y : array-like or list of array-like, optional
        Labels of the examples.
    groups : array-like of shape (n_examples,), optional
        Groups of the examples, for splitters that use them.
    cv : int, splitter or iterable of (train, test), optional
        Folds of examples. An int, or None for 5, is the number of folds of :class:`StratifiedLatticeKFold` for
        classifiers, and of ``KFold`` otherwise. Every example must be in exactly one test set.
    n_jobs : int, optional
        Number of folds that run at the same time.
    verbose : int, default=0
        Verbosity of joblib.
    params : dict, optional
        Parameters of ``fit``. A parameter with one value per example is restricted to the training examples.
    method : {"predict", "predict_proba", "predict_log_proba", "decision_function"}, default="predict"
        Method that is called on the held-out examples.

    Returns
    -------
    ndarray
        Predictions for all of X, in the form that the method returns: an array, or a 1-D object array of arrays.
        Columns correspond to the sorted classes of all folds. Classes missing from a training set have probability 0.

    Raises
    ------
    ValueError
        If an example is not in exactly one test set.

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
    splits = make_example_splits(cv, estimator, y, n_examples, groups)
    test = np.concatenate([part for _, part in splits])
    if len(test) != n_examples or not np.array_equal(np.sort(test), np.arange(n_examples)):
        raise ValueError("cross_val_predict needs every example in exactly one test set of cv.")
    jobs = Parallel(n_jobs=n_jobs, verbose=verbose)
    results = jobs(
        delayed(_fit_and_predict)(clone(estimator), X, y, train, part, params or {}, method) for train, part in splits
    )
    values = [value for value, _ in results]
    if method != "predict" and all(classes is not None for _, classes in results):
        # Add columns to the results of each fold, for classes that only occur in other folds.
        classes = np.unique(np.concatenate([found for _, found in results]))
        values = [_spread(value, np.searchsorted(classes, found), len(classes), method) for value, found in results]
    return np.concatenate(values)[np.argsort(test, kind="stable")]


def make_example_splits(cv, estimator, y, n_examples: int | None = None, groups=None) -> list[tuple]:
    """Return the train and test indices of each fold.

    By default, classifiers use :class:`StratifiedLatticeKFold`.
    """
    # groups: (n_examples,)
    if cv is None or isinstance(cv, Integral):
        n_splits = 5 if cv is None else int(cv)
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
    return make_object_array(value) if isinstance(value, list) else value, getattr(estimator, "classes_", None)


def _cut(value, train, n_examples):
    has_one_each = hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n_examples
    return take_examples(value, train) if has_one_each else value


# For each method, the output for a class that is missing from the training examples of a fold.
_UNSEEN = {"predict_proba": 0.0, "predict_log_proba": -np.inf, "decision_function": -np.inf}


def _spread(value, columns, n_classes, method):
    if len(columns) == n_classes:
        return value
    if value.dtype == object:
        return make_object_array([_spread(part, columns, n_classes, method) for part in value])
    if value.shape[-1] != len(columns):
        raise ValueError(
            f"cross_val_predict: the training set of a fold lacks a class, and {method} does not return one column "
            "for each of the remaining classes."
        )
    spread = np.full((*value.shape[:-1], n_classes), _UNSEEN[method], dtype=value.dtype)
    spread[..., columns] = value
    return spread


# _N_DRAWS: number of random draws. _COVERAGE: probability that an audit of equally good pairs finds no difference.
_N_DRAWS, _COVERAGE = 2000, 0.95


def coupling_audit(
    estimators: Mapping,
    X: Any,
    y: Any,
    *,
    inference: Mapping,
    groups: Any = None,
    cv: Any = None,
    scoring: str | Callable | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    r"""Compare all combinations of the given learning methods and inference methods on a data set.

    The comparison extends Table 1 of Kumar et al. (2005) to any task. Every estimator is fitted once for each fold, and
    predicts the held-out examples with every inference. For each pair of an estimator and an inference, the result
    contains a score for each example, the log-loss of the marginals, the durations of fit and prediction, and a
    comparison with the best pair. The best pair is chosen by the same scores. To account for this choice, all
    differences between two of the m pairs are compared simultaneously,

    .. math::
        t_{jk} = \frac{\bar d_{jk}}{\mathrm{se}(d_{jk})}, \qquad
        p_k = P \Bigl( \max_{i < j} |t^*_{ij}| \ge |t_{\mathrm{best}, k}| \Bigr),

    where :math:`d_{jk}` are the differences of the scores of pairs j and k on the same examples. The distribution of
    :math:`t^*` is computed under random signs of the examples: if two pairs are equally good, a difference is as likely
    as its negative. If all pairs are equally good, the probability that any pair is found worse is therefore at most
    5 %.

    Parameters
    ----------
    estimators : mapping of str to field classifier
        Learning methods: field classifiers, or pipelines that end in a field classifier. They are cloned for each fold.
    X : array-like or list
        Examples.
    y : array-like or list of array-like
        Labels of the examples.
    inference : mapping of str to str or Inference
        Inference methods for prediction, with values as for the parameter ``inference`` of an estimator.
    groups : array-like of shape (n_examples,), optional
        Groups of the examples, for splitters that use them. Examples of a group depend on each other, so they have a
        common random sign in the comparison.
    cv : int, splitter or iterable of (train, test), optional
        Folds of examples; None is 5 folds. Every example must be held out at least once. If an example is held out
        several times, its scores are averaged.
    scoring : str or callable, optional
        Score of the labels of one example; greater is better. None is the fraction of correct labels. Possible values
        are the name of a scikit-learn scorer of labels, a scorer of :data:`~sklearn_crf.metrics.NODE_SCORERS`, and a
        function ``(y_true, y_pred) -> float``. The arguments are one-dimensional and only contain labelled nodes.
    n_jobs : int, optional
        Number of folds that run at the same time.
    random_state : int, RandomState instance or None, default=None
        Random state for the signs.

    Returns
    -------
    Bunch
        ``results`` is a dict of arrays with an entry for each pair, ordered by estimator: the names ``learning`` and
        ``inference``; ``matched``, whether the inference is the default of the estimator; ``mean_test_score`` and
        ``std_test_score`` over examples; ``mean_log_loss``, NaN if an estimator has no marginals; ``mean_fit_time`` and
        ``mean_predict_time``, means over folds in seconds; ``rank_test_score``; ``difference`` from the best pair;
        ``difference_low`` and ``difference_high``, the ends of its simultaneous 95 % interval (infinite if there are
        too few examples); and ``p_value``. ``scores`` has shape (n_pairs, n_examples), NaN for examples without labels.

    Raises
    ------
    ValueError
        If a mapping is empty, no fold holds out an example, or ``scoring`` needs more than labels.

    Notes
    -----
    The comparison is only valid for the fitted weights: other training examples may lead to other weights, and folds
    that share training examples are more similar than the test assumes. An example is one observation of the test, even
    if it is held out several times.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative Fields: An
    Empirical Study. EMMCVPR 2005. P. H. Westfall, S. S. Young. Resampling-Based Multiple Testing. Wiley 1993. J. C.
    Hsu. Multiple Comparisons. Chapman and Hall 1996.

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
            raise ValueError(f"{name} must be a nonempty dict that maps names to objects, got {mapping!r}.")
    for name, estimator in estimators.items():
        last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        if not hasattr(last, "certify"):
            raise ValueError(
                f"estimators[{name!r}] must be a field classifier, or a pipeline that ends in one, got {estimator!r}."
            )
    score = _make_label_scorer(scoring)
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    folds = make_example_splits(cv, next(iter(estimators.values())), y, n_examples, groups)
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=n_examples)
    if not times.all():
        raise ValueError(f"cv needs every example in a test set, but example {np.argmin(times)} is in no test set.")
    tasks = [(name, fold) for name in estimators for fold in range(len(folds))]
    found = Parallel(n_jobs=n_jobs)(
        delayed(_audit_fold)(clone(estimators[name]), X, y, *folds[fold], inference, score) for name, fold in tasks
    )
    pairs = [(learning, decoding) for learning in estimators for decoding in inference]
    scores, log_loss = np.zeros((len(pairs), n_examples)), np.zeros((len(pairs), n_examples))
    seconds, matched = np.zeros((len(pairs), len(folds), 2)), np.zeros(len(pairs), dtype=bool)
    for (learning, fold), parts in zip(tasks, found, strict=True):
        test = folds[fold][1]
        for decoding, part in parts.items():
            k = pairs.index((learning, decoding))
            scores[k, test] += part.scores / times[test]
            log_loss[k, test] += part.log_loss / times[test]
            seconds[k, fold], matched[k] = part.seconds, part.matched
    results = {
        "learning": np.array([learning for learning, _ in pairs]),
        "inference": np.array([decoding for _, decoding in pairs]),
        "matched": matched,
        **compare_with_best(scores, check_random_state(random_state), groups),
        "mean_log_loss": np.array([np.nanmean(row) if np.isfinite(row).any() else np.nan for row in log_loss]),
        "mean_fit_time": seconds[:, :, 0].mean(axis=1),
        "mean_predict_time": seconds[:, :, 1].mean(axis=1),
    }
    return Bunch(results=results, scores=scores)


def get_field_and_input(estimator, X):
    """Return the last step of a fitted pipeline, and its input; return other estimators and X unchanged."""
    if not isinstance(estimator, Pipeline):
        return estimator, X
    return estimator[-1], (estimator[:-1].transform(X) if len(estimator) > 1 else X)


def _audit_fold(estimator, X, y, train, test, inference, score):
    """Fit an estimator; for every inference, return scores, losses and seconds on the held-out examples."""
    start = time.perf_counter()
    estimator.fit(take_examples(X, train), take_examples(y, train))
    fit_seconds = time.perf_counter() - start
    truth = take_examples(y, test)
    start = time.perf_counter()
    field, X_test = get_field_and_input(estimator, take_examples(X, test))
    transform_seconds = time.perf_counter() - start
    parts = {}
    for name, decoding in inference.items():
        start = time.perf_counter()
        predicted = field.predict(X_test, inference=decoding)
        seconds = fit_seconds, transform_seconds + time.perf_counter() - start
        parts[name] = Bunch(
            scores=_scores(field, truth, predicted, score),
            log_loss=_compute_log_losses(field, X_test, truth, decoding),
            seconds=seconds,
            matched=_is_own(field, decoding),
        )
    return parts


def _is_own(field, decoding):
    """Return whether ``decoding`` is the default inference of a fitted field."""
    own = field.inference_ if isinstance(field.inference, str) and field.inference == "auto" else field.inference
    is_known = not isinstance(own, str) or own in NAMES
    asked, *known = (resolve_inference(each) for each in ((decoding, own) if is_known else (decoding,)))
    return repr(asked) == repr(known[0]) if is_known else own == type(asked.inference).__name__


class _Labelled(ClassifierMixin, BaseEstimator):
    """Estimator that returns X as predictions, for use with scorers of scikit-learn."""

    def predict(self, X):
        return X


def _make_label_scorer(scoring):
    """Make a function that scores the predicted labels of one example, given its true labels."""
    if scoring is None:
        return _accuracy
    if isinstance(scoring, str):
        scoring = get_scorer(scoring)
    elif not callable(scoring):
        raise ValueError(f"scoring must be None, the name of a scorer or callable, got {scoring!r}.")
    taken = signature(scoring)
    if next(iter(taken.parameters), "") != "estimator":
        try:
            taken.bind(None, None)
        except TypeError:
            message = f"scoring must be a scorer or a function (y_true, y_pred) -> float, got a function of {taken}."
            raise ValueError(message) from None
        return scoring
    return partial(_apply_scorer, scoring)


def _apply_scorer(scorer, truth, predicted):
    try:
        seen = _Labelled()
        seen.classes_ = np.union1d(truth, predicted)
        return float(scorer(seen, predicted, truth))
    except AttributeError as error:
        raise ValueError(f"scoring={scorer!r} needs more than predicted labels: use for example 'accuracy'.") from error


def _accuracy(truth, predicted):
    return float(np.mean(truth == predicted))


def _labelled(estimator, labels):
    flat = np.asarray(labels).ravel()
    return flat, ~mask_missing_nodes(flat, get_missing_label(estimator))


def _scores(estimator, truth, predicted, scoring):
    scores = []
    for labels, found in zip(truth, predicted, strict=True):
        flat, known = _labelled(estimator, labels)
        true, own = flat[known], np.ravel(found)[known]
        true = convert_object_labels(true, "y") if true.dtype == object else true
        require_same_kind(true, own, "y", "the predicted labels")
        scores.append(scoring(true, own) if known.any() else np.nan)
        if known.any():
            check_option(scores[-1], f"the result of scoring={scoring!r} for each example", np.isfinite, "be finite")
    return np.array(scores)


def _compute_log_losses(estimator, X, truth, decoding):
    """Compute, for each example, the mean negative log-probability of its labels, or NaN without marginals."""
    if not hasattr(estimator, "predict_proba"):
        return np.full(len(truth), np.nan)
    classes, losses = estimator.classes_, []
    for labels, probability in zip(truth, estimator.predict_proba(X, inference=decoding), strict=True):
        flat, known = _labelled(estimator, labels)
        known[known] = np.isin(flat[known], classes)
        columns = np.searchsorted(classes, flat[known])
        of_truth = np.reshape(probability, (-1, len(classes)))[np.flatnonzero(known), columns]
        losses.append(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean() if known.any() else np.nan)
    return np.array(losses)


def compare_with_best(scores, rng, groups=None):
    """Return the mean scores of all pairs, and comparisons with the best pair that account for its selection."""
    # scores: (n_pairs, n_examples), NaN for examples without a score; groups: (n_examples,) or None
    # returns: dict of arrays (n_pairs,)
    scored = ~np.isnan(scores).any(axis=0)
    if not scored.any():
        raise ValueError("y has no labelled node: there is nothing to score.")
    scores = scores[:, scored]
    group = np.arange(scores.shape[1])
    if groups is not None:
        group = np.unique(np.asarray(groups)[scored], return_inverse=True)[1]
    mean = scores.mean(axis=1)
    best = int(np.argmax(mean))
    first, second = np.triu_indices(len(scores), 1)
    # Sum over groups, because all examples of a group count as one observation.
    summed = np.array([np.bincount(group, row) for row in scores - scores.mean(axis=0)])
    share, critical = _simulate_extremes(summed, first, second, rng)
    difference = mean - mean[best]
    of_best = summed - summed[best]
    square, n_groups = (of_best**2).sum(axis=1), summed.shape[1]
    # ``error`` is the standard error of the mean over examples, not over groups, because groups may differ in size.
    error = np.sqrt(np.maximum(square - of_best.sum(axis=1) ** 2 / n_groups, 0) * n_groups / max(n_groups - 1, 1))
    error /= scores.shape[1]
    is_equal = square <= _ROUNDING * (scores**2).sum()
    half = np.where(is_equal, 0.0, np.inf if np.isinf(critical) else critical * error)
    own_ratio = np.abs(of_best.sum(axis=1)) / np.sqrt(np.where(is_equal, 1.0, n_groups * square))
    p_value = np.where(is_equal, 1.0, share(own_ratio))
    return {
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": 1 + (mean[:, None] < mean).sum(axis=1),
        "difference": difference,
        "difference_low": difference - half,
        "difference_high": difference + half,
        "p_value": p_value,
    }


# Sums of squared differences count as rounding errors if they are at most this fraction of the sum of squared scores.
_ROUNDING = 1e-24


def _simulate_extremes(summed, first, second, rng):
    """Simulate the distribution of the largest difference between two pairs under random signs of the groups.

    Random signs do not change the sum of squared differences. Therefore, the sum of differences divided by the root of
    the sum of squares is equivalent to Student's t.
    """
    # summed: (n_pairs, n_groups); first, second: indices of the two pairs of each difference
    # returns: function that converts a ratio to the fraction of draws with at least this ratio; critical value of t
    n_groups = summed.shape[1]
    squares = summed @ summed.T
    square = np.diag(squares)
    square = square[first] + square[second] - 2 * squares[first, second]
    differs = square > _ROUNDING * max(float(np.diag(squares).sum()), np.finfo(np.float64).tiny)
    largest = np.zeros(_N_DRAWS)
    if differs.any():
        signs = rng.choice([-1.0, 1.0], size=(_N_DRAWS, n_groups))
        sums = signs @ summed.T
        for start in range(0, _N_DRAWS, 100):
            part = sums[start : start + 100]
            ratio = np.abs(part[:, first] - part[:, second])[:, differs] / np.sqrt(n_groups * square[differs])
            largest[start : start + 100] = ratio.max(axis=1)
    largest.sort()

    def share(ratio):
        # Count the observed signs as one additional draw.
        at_least = _N_DRAWS - np.searchsorted(largest, ratio * (1 - 1e-9), side="left")
        return (1 + at_least) / (1 + _N_DRAWS)

    # ``ratio`` is the largest ratio that is not significant.
    ratio = largest[int(np.ceil(_COVERAGE * (_N_DRAWS + 1))) - 1]
    critical = np.inf if ratio >= 1 - 1e-9 else ratio * np.sqrt((n_groups - 1) / (1 - ratio**2))
    return share, critical
