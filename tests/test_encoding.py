"""How X, y and sample_weight become batches, and how results go back."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from sklearn_crf.encoding import decode, encode_X, encode_y, make_batches, validate_sample_weight


class PlainClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression behind the encoding: what scikit-learn's checks see of it is the encoding's doing."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y, sample_weight=None):
        encoded = encode_X(X, estimator=self)
        y = encode_y(y, encoded)
        sample_weight = validate_sample_weight(sample_weight, encoded.n_examples)
        batches = make_batches(encoded, y.labels, sample_weight, max_nodes=7)
        rows = [batch.example.node_features for batch in batches]
        rows = sp.vstack(rows, format="csr") if sp.issparse(rows[0]) else np.concatenate(rows)
        labels = np.concatenate([batch.labels for batch in batches])
        weight = None if sample_weight is None else np.concatenate([batch.weight for batch in batches])
        self.model_ = LogisticRegression().fit(rows, labels, weight)
        self.classes_ = y.classes_
        encoded.record(self)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return self._apply("predict", X, classes=self.classes_)

    def predict_proba(self, X):
        check_is_fitted(self)
        return self._apply("predict_proba", X)

    def _apply(self, method, X, classes=None):
        encoded = encode_X(X, estimator=self, reset=False)
        batches = make_batches(encoded, max_nodes=7)
        values = [getattr(self.model_, method)(batch.example.node_features) for batch in batches]
        return decode(encoded, values, batches, classes=classes)


def test_plain_rows_pass_the_checks_of_scikit_learn():
    results = check_estimator(PlainClassifier(), on_fail=None, on_skip=None)
    failed = [r["check_name"] + str(r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not failed
    assert len(results) > 50
