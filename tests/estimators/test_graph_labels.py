"""Prediction of graphs with cycles by one kernel call for many batches."""

import numpy as np
import pytest
from cyclic_graphs import draw_cyclic_graphs
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier
from sklearn_crf.inference import LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.learning._prediction_paths import GraphLabels
from sklearn_crf.objectives.fast_paths import general_path_only

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def completed(monkeypatch):
    """Record the failures of the examples of every batch that the kernel was given."""
    seen, complete = [], GraphLabels._completed

    def recorded(self, part, n_threads):
        seen.append(part[2].copy())
        return complete(self, part, n_threads)

    monkeypatch.setattr(GraphLabels, "_completed", recorded)
    return seen


def images(n_classes, n=6, side=12, dtype=np.float64):
    rng = np.random.default_rng(n_classes)
    y = np.repeat(np.repeat(rng.integers(n_classes, size=(n, side // 4, side // 4)), 4, 1), 4, 2)
    return (np.eye(n_classes)[y] + 0.8 * rng.normal(size=(*y.shape, n_classes))).astype(dtype), y


def trained(X, y, inference=None, **options):
    inference = TRWMessagePassing("covering", max_iter=2000) if inference is None else inference
    return DRFClassifier(learning="pl", inference=inference, max_iter=10, tol=10.0, **options).fit(X, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pairwise", ["potts", "full"])
@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("inference", [TRWMessagePassing("covering"), LoopyBP(max_iter=400)])
@pytest.mark.parametrize("make", [draw_cyclic_graphs, images])
def test_marginals_and_labels_equal_those_of_models(make, inference, n_classes, pairwise, dtype, completed):
    X, y = make(n_classes, dtype=dtype)
    field = trained(X, y, inference=inference, pairwise=pairwise)
    completed.clear()
    labels, found = field.predict(X), field.predict_proba(X)
    assert completed
    with general_path_only():
        expected = field.predict_proba(X)
    for one, other, own in zip(found, expected, labels, strict=True):
        assert_allclose(one, other, atol=2e-4 if dtype == np.float32 else 1e-9)
        assert_array_equal(own, np.asarray(one).argmax(axis=-1))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_same_bits_for_any_threads_and_lots_and_companions(n_classes, monkeypatch, completed):
    X, y = draw_cyclic_graphs(n_classes)
    field = trained(X, y)
    found = field.predict_proba(X)
    single = [field.predict_proba([x])[0] for x in X]
    many = [field.set_params(n_jobs=n_jobs).predict_proba(X) for n_jobs in (2, 3, 16)]
    monkeypatch.setattr(_tuning, "MOST_SWEPT", 1)
    for other in (single, *many, field.predict_proba(X)):
        for one, own in zip(found, other, strict=True):
            assert_array_equal(one, own)
    assert completed


@pytest.mark.parametrize("n_classes", [2, 3])
def test_examples_that_the_kernel_declines_are_predicted_from_their_models(n_classes, completed):
    X, y = draw_cyclic_graphs(n_classes)
    wide, _ = draw_cyclic_graphs(n_classes, n=2, seed=1, scale=1e3)
    field = trained(X, y)
    mixed = [X[0], wide[0], X[1], wide[1]]
    completed.clear()
    found = field.predict_proba(mixed)
    failed = np.concatenate(completed)
    assert 0 < failed.sum() < len(mixed)
    with general_path_only():
        expected = field.predict_proba(mixed)
    for one, other, alone in zip(found, expected, [field.predict_proba([x])[0] for x in mixed], strict=True):
        assert_allclose(one, other, atol=1e-6)
        assert_array_equal(one, alone)


def test_costs_and_weights_of_classes_decide_on_the_marginals(completed):
    X, y = images(3)
    for options in ({"cost": [[0, 1, 9], [1, 0, 9], [1, 1, 0]]}, {"class_weight": {0: 5.0, 1: 1.0, 2: 1.0}}):
        field = trained(X, y, **options)
        completed.clear()
        found = field.predict(X)
        assert completed
        with general_path_only():
            assert_array_equal(found, field.predict(X))


def test_known_labels_leave_it_to_models(completed):
    X, y = images(2)
    field = trained(X, y)
    completed.clear()
    evidence = np.full(y.shape, -1)
    evidence[:, 0] = y[:, 0]
    field.set_params(missing_label=-1).predict(X, evidence=evidence)
    assert not completed


def test_read_only_features_and_one_image_of_forests(completed):
    X, y = images(2)
    field = trained(X, y)
    X.setflags(write=False)
    completed.clear()
    mixed = [X[0], X[1, :1], X[2, :, :1]]
    found = field.predict_proba(mixed)
    assert len(completed) == 1
    with general_path_only():
        for one, other in zip(found, field.predict_proba(mixed), strict=True):
            assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_workers_of_another_backend_find_the_same_bits(n_classes, completed):
    X, y = images(n_classes, n=40)
    field = trained(X, y)
    found = field.predict_proba(X)
    assert completed
    completed.clear()
    with parallel_config("loky", n_jobs=2):
        assert_array_equal(found, field.predict_proba(X))
    assert not completed
