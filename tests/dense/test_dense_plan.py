"""The plan of a dense field's fit is resolved once, can be sent to other processes, and is immutable."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import BandwidthSearch, LogLoss
from sklearn_crf.dense._examples import read_training_data
from sklearn_crf.dense._training import Weights, train

KERNELS = [Spatial(2.0), Bilateral(4.0, 20.0)]


@pytest.fixture
def examples():
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(8) // 4, (4, 8, 1))
    return [DenseExample(np.eye(2)[t] + rng.normal(size=(8, 8, 2)), 90.0 * t) for t in y], y


def read(field, X, y):
    return read_training_data(
        X,
        y,
        None,
        image_channels=3,
        color_range=None,
        missing_label=field.missing_label,
        classes=field.classes,
        class_weight=field.class_weight,
    )


@pytest.mark.parametrize("options", [{}, {"bandwidths": "learned", "max_iter": 5}, {"learning": "fixed"}], ids=str)
def test_a_plan_trains_without_the_estimator(examples, options):
    X, y = examples
    field = DenseCRF(KERNELS, **options)
    data = read(field, X, y)
    plan = pickle.loads(pickle.dumps(field._plan(data)))
    with pytest.raises(FrozenInstanceError):
        plan.C = 2.0
    seen = []
    found = train(data, plan, lambda weights, kernels: seen.append((weights, kernels)))
    assert not hasattr(field, "classes_")
    field.fit(X, y)
    assert_array_equal(found.weights.compatibility, field.compatibility_)
    assert found.weights.unary_scale == field.unary_scale_
    assert found.kernels == field.kernels_
    assert len(seen) == field.n_iter_


def test_names_become_objects_in_the_plan(examples):
    field = DenseCRF(bandwidths="held_out")
    plan = field._plan(read(field, *examples))
    assert isinstance(plan.loss, LogLoss)
    assert isinstance(plan.bandwidths, BandwidthSearch)
    assert [type(kernel) for kernel in plan.kernels] == [Spatial, Bilateral]
    assert not plan.continues


def test_scores_of_minus_infinity_matter_where_labels_count(examples):
    X, y = examples
    scores = X[0].scores.copy()
    scores[0, 0, y[0, 0, 0]] = -np.inf
    X = [DenseExample(scores, X[0].image), *X[1:]]
    with pytest.raises(ValueError, match=r"X\[0\] has a score of -inf for the true label of a pixel"):
        DenseCRF(KERNELS).fit(X, y)
    assert np.isfinite(DenseCRF(KERNELS).fit(X, y, sample_weight=[0, 1, 1, 1]).loss_curve_).all()


def test_forbidden_states_stay_so_under_any_factor():
    rows = np.array([[0.5, -np.inf], [-1.0, 2.0]])
    for factor in (2.0, 0.0, -3.0):
        with np.errstate(all="raise"):
            found = Weights(np.zeros(1), factor).unary(rows)
        assert found[0, 1] == -np.inf
        assert_array_equal(np.delete(found.ravel(), 1), factor * np.array([0.5, -1.0, 2.0]))
