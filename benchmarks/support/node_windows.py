"""Classifiers of single nodes with the interface of fields, on features of nodes or of windows around nodes."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin

from sklearn_crf import Example


class NodesAlone(ClassifierMixin, BaseEstimator):
    """Field that applies a classifier of rows to single nodes. It is trained on labelled nodes."""

    def __init__(self, estimator, windows=False, missing_label=None):
        self.estimator = estimator
        self.windows = windows
        self.missing_label = missing_label

    def fit(self, X, y):
        labels = np.concatenate([np.ravel(part) for part in y])
        rows = self._rows(X)
        known = np.ones(len(labels), bool) if self.missing_label is None else labels != self.missing_label
        self.estimator.fit(rows[known], labels[known])
        self.classes_ = self.estimator.classes_
        return self

    def predict(self, X):
        return self.estimator.predict(self._rows(X))

    def predict_proba(self, X):
        return self.estimator.predict_proba(self._rows(X))

    def _rows(self, X):
        # returns: (n_nodes, n_columns), dense or CSR
        if isinstance(X, np.ndarray) and X.dtype != object and X.ndim == 2:
            return X
        parts = [_window(x) if self.windows else _features(x) for x in X]
        return sp.vstack(parts).tocsr() if sp.issparse(parts[0]) else np.concatenate(parts)


def _features(x):
    x = x.node_features if isinstance(x, Example) else x
    return x if sp.issparse(x) else x.reshape(-1, x.shape[-1])


def _window(x):
    """Return features of each node and its neighbours: zeros beyond borders of lattices, and means in graphs."""
    if isinstance(x, Example):
        n_nodes, pairs = len(x.node_features), np.concatenate([x.edges, x.edges[:, ::-1]])
        joins = sp.csr_array((np.ones(len(pairs)), pairs.T), shape=(n_nodes, n_nodes))
        degree = np.maximum(joins.sum(axis=1), 1)
        return np.hstack([x.node_features, joins @ x.node_features / degree[:, None]])
    if sp.issparse(x):
        nothing = sp.csr_matrix((1, x.shape[1]))
        return sp.hstack([x, sp.vstack([nothing, x[:-1]]), sp.vstack([x[1:], nothing])]).tocsr()
    lattice = x.shape[:-1]
    padded = np.pad(x, [(1, 1)] * len(lattice) + [(0, 0)])
    places = np.ndindex(*[3] * len(lattice))
    parts = [padded[tuple(slice(i, i + n) for i, n in zip(place, lattice, strict=True))] for place in places]
    return np.concatenate(parts, axis=-1).reshape(-1, 3 ** len(lattice) * x.shape[-1])
