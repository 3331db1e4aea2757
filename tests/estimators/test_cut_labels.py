"""Prediction of small lattices with two states by minimum cuts in one kernel call."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import DRFClassifier, M3NClassifier
from sklearn_crf.learning._prediction_paths import CutLabels
from sklearn_crf.objectives.fast_paths import general_path_only


@pytest.fixture
def cut(monkeypatch):
    """Record how many batches each call predicts, and how many of them it declines."""
    seen, found = [], CutLabels.found

    def recorded(self, n_jobs):
        parts = found(self, n_jobs)
        seen.append((len(parts), sum(part is None for part in parts)))
        return parts

    monkeypatch.setattr(CutLabels, "found", recorded)
    return seen


def images(shapes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    labels = [np.add.outer(np.arange(h), np.arange(w)) // 5 % 2 for h, w in shapes]
    features = [np.stack([y, 1 - y, y], axis=-1) + rng.normal(size=(*y.shape, 3)) for y in labels]
    return [x.astype(dtype) for x in features], labels


def labels_by_model(estimator, X):
    with general_path_only():
        return estimator.predict(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge_features", ["difference", "constant"])
def test_images_of_several_shapes_have_the_labels_of_their_models(cut, dtype, edge_features):
    X, y = images([(12, 14)] * 4, dtype)
    estimator = M3NClassifier(edge_features=edge_features, max_iter=30).fit(X, y)
    Z, _ = images([(12, 14), (9, 21), (1, 30), (25, 25), (2, 2)], dtype, seed=1)
    expected = labels_by_model(estimator, Z)
    for n_jobs in (1, 2, 3):
        found = estimator.set_params(n_jobs=n_jobs).predict(Z)
        for own, of_model in zip(found, expected, strict=True):
            assert_array_equal(own, of_model)
    assert len(cut) == 3
    # The kernel of cuts does not label the chain and the image of four pixels.
    assert cut[0] == (5, 2)


def test_edges_that_are_not_submodular_are_left_to_the_model(cut):
    X, y = images([(10, 11)] * 3)
    estimator = DRFClassifier(learning="spa", inference="map", max_iter=20).fit(X, y)
    estimator.edge_coef_ = -np.abs(estimator.edge_coef_) - 0.1
    expected = labels_by_model(estimator, X)
    for own, of_model in zip(estimator.predict(X), expected, strict=True):
        assert_array_equal(own, of_model)
    assert cut == [(3, 3)]


def test_no_more_than_some_images_are_in_memory_at_a_time(cut, monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference.messages._tuning.MOST_SWEPT", 200)
    X, y = images([(10, 11)] * 5)
    estimator = M3NClassifier(max_iter=20).fit(X, y)
    for own, of_model in zip(estimator.predict(X), labels_by_model(estimator, X), strict=True):
        assert_array_equal(own, of_model)
    assert cut == [(5, 0)]
