"""Cross-validation for structured X and y."""

from numbers import Integral

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.model_selection import BaseCrossValidator, KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from sklearn_crf.encoding import object_array
from sklearn_crf.encoding._labels import from_objects, missing_nodes

__all__ = ["StratifiedLatticeKFold", "cross_val_predict"]


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
        flat = np.asarray(labels).ravel()
        flat = flat[~missing_nodes(flat, missing_label)]
        parts.append(from_objects(flat, f"y[{i}]") if flat.dtype == object else flat)
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
    """
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    if y is not None and len(y) != n_examples:
        raise ValueError(f"y has {len(y)} examples, but X has {n_examples}.")
    splits = list(_splitter(cv, estimator, y).split(np.zeros(n_examples), y, groups))
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


def _splitter(cv, estimator, y):
    if cv is None or isinstance(cv, Integral):
        n_splits = 5 if cv is None else cv
        classify = is_classifier(estimator) and y is not None
        return StratifiedLatticeKFold(n_splits) if classify else KFold(n_splits)
    return check_cv(cv)


def _fit_and_predict(estimator, X, y, train, test, params, method):
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    params = {name: _cut(value, train, n_examples) for name, value in params.items()}
    if y is None:
        estimator.fit(_take(X, train), **params)
    else:
        estimator.fit(_take(X, train), _take(y, train), **params)
    value = getattr(estimator, method)(_take(X, test))
    return object_array(value) if isinstance(value, list) else value, getattr(estimator, "classes_", None)


def _cut(value, train, n_examples):
    has_one_each = hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n_examples
    return _take(value, train) if has_one_each else value


def _take(values, indices):
    """Some of the examples, in the container they came in."""
    if hasattr(values, "iloc"):
        return values.iloc[indices]
    if sp.issparse(values):
        return values.tocsr()[indices]
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
