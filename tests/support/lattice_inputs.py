"""Input of every form that the encoding of lattices supports, and a simple classifier that accepts all forms."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from sklearn_crf import Example
from sklearn_crf.encoding import (
    decode,
    encode_X,
    encode_y,
    make_batches,
    make_object_array,
    record_input,
    validate_sample_weight,
)
from sklearn_crf.metrics import node_accuracy_score

RNG = np.random.default_rng(0)


def chains(lengths=(4, 1, 6), n_features=3):
    return [RNG.normal(size=(length, n_features)) for length in lengths]


def images(shapes=((3, 4), (2, 2), (1, 5)), n_features=2):
    return [RNG.normal(size=(*shape, n_features)) for shape in shapes]


def triangle_and_more(n_features=2):
    return [
        Example(RNG.normal(size=(3, n_features)), [[0, 1], [1, 2], [2, 0]]),
        Example(RNG.normal(size=(4, n_features)), [[0, 1], [1, 2]]),
        Example(RNG.normal(size=(2, n_features)), []),
        Example(RNG.normal(size=(2, n_features)), [[1, 0]]),
    ]


ROWS_OF_THE_TABLE = {
    "rows": (RNG.normal(size=(9, 3)), "nodes", 0, 9),
    "sparse rows": (sp.random(9, 3, 0.5, format="coo", random_state=0), "nodes", 0, 9),
    "nested lists": ([[1, 2], [3, 4]], "nodes", 0, 2),
    "chains": (RNG.normal(size=(2, 5, 3)), "array", 1, 10),
    "nested chains": ([[[1.0], [2]], [[3], [4]]], "array", 1, 4),
    "images": (RNG.normal(size=(2, 3, 4, 3)), "array", 2, 24),
    "volumes": (RNG.normal(size=(2, 2, 3, 2, 1)), "array", 3, 24),
    "list of chains": (chains(), "list", 1, 11),
    "tuple of chains": (tuple(chains()), "list", 1, 11),
    "object array of chains": (make_object_array(chains()), "list", 1, 11),
    "equal chains in a list": (chains((3, 3)), "list", 1, 6),
    "sparse chains": ([sp.csr_matrix(x) for x in chains()], "list", 1, 11),
    "ragged nested chains": ([[[1.0], [2]], [[3]]], "list", 1, 3),
    "list of images": (images(), "list", 2, 21),
    "list of volumes": ([np.zeros((2, 2, 2, 1)), np.zeros((1, 2, 3, 1))], "list", 3, 14),
    "examples": (triangle_and_more(), "list", None, 11),
    "object array of examples": (make_object_array(triangle_and_more()), "list", None, 11),
}


def as_dense(x):
    return x.toarray() if sp.issparse(x) else np.asarray(x)


class NodewiseClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression of single nodes, with input and output of the encoding, for tests of the encoding."""

    def __init__(self, C=1.0, missing_label=None, max_nodes=4096):
        self.C = C
        self.missing_label = missing_label
        self.max_nodes = max_nodes

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y, sample_weight=None):
        encoded = encode_X(X, edge_features="constant", estimator=self)
        y = encode_y(y, encoded, missing_label=self.missing_label)
        sample_weight = validate_sample_weight(sample_weight, encoded.n_examples)
        batches = make_batches(encoded, y.labels, sample_weight, max_nodes=self.max_nodes)
        rows = [batch.example.node_features for batch in batches]
        rows = sp.vstack(rows, format="csr") if sp.issparse(rows[0]) else np.concatenate(rows)
        labels = np.concatenate([batch.labels for batch in batches])
        weight = np.ones(len(labels))
        if sample_weight is not None:
            weight = np.concatenate([np.repeat(batch.weight, np.diff(batch.node_ptr)) for batch in batches])
        known = labels >= 0
        self.model_ = LogisticRegression(C=self.C).fit(rows[known], labels[known], weight[known])
        self.classes_ = y.classes_
        record_input(encoded, self)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return self._apply("predict", X, classes=self.classes_)

    def predict_proba(self, X):
        check_is_fitted(self)
        return self._apply("predict_proba", X)

    def score(self, X, y, sample_weight=None):
        return node_accuracy_score(y, self.predict(X), missing_label=self.missing_label, sample_weight=sample_weight)

    def _apply(self, method, X, classes=None):
        encoded = encode_X(X, edge_features="constant", estimator=self, reset=False)
        batches = make_batches(encoded, max_nodes=self.max_nodes)
        values = [getattr(self.model_, method)(batch.example.node_features) for batch in batches]
        return decode(encoded, values, batches, classes=classes)


def labelled_images(n_examples=8, seed=0):
    """Return images of different sizes, with features that depend on the label, and their labels."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=(rng.integers(2, 5), rng.integers(2, 5))) for _ in range(n_examples)]
    X = [np.stack((labels, labels**2), axis=-1) + rng.normal(size=(*labels.shape, 2)) for labels in y]
    return X, y
