"""Small graphs with cycles, sparse chains, and TRWCRF models trained to convergence."""

import warnings

import numpy as np
import scipy.sparse as sp
from built_fields import trw_crf
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example

TIGHT = {"C": 0.3, "tol": 1e-7, "max_iter": 200, "inner_tol": 1e-8, "inner_max_iter": 5000}
CYCLE = [[0, 1], [1, 2], [2, 3], [0, 3]]


def graphs(edges=CYCLE, n=5, n_classes=2, seed=0):
    """Return examples on one graph, whose neighbours tend to have equal labels, and their labels."""
    rng = np.random.default_rng(seed)
    n_nodes = 1 + max(map(max, edges))
    X, y = [], []
    for _ in range(n):
        labels = np.where(rng.random(n_nodes) < 0.8, rng.integers(n_classes), rng.integers(n_classes, size=n_nodes))
        features = np.eye(n_classes)[labels] + rng.normal(size=(n_nodes, n_classes))
        X.append(Example(features, edges))
        y.append(labels)
    return X, y


def fitted(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return trw_crf(**TIGHT | options).fit(X, y)


def sparse_chains(n=15, n_features=40, n_classes=3, seed=0, longest=6):
    """Return chains with CSR features that depend on the labels, and labels that often stay equal."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(1, longest))
        labels = np.cumsum(rng.random(length) < 0.4) % n_classes
        features = (rng.random((length, n_features)) < 0.1).astype(float)
        features[np.arange(length), labels + n_classes * rng.integers(2, size=length)] = 1
        X.append(sp.csr_matrix(features))
        y.append(labels)
    return X, y
