"""Learned precisions that increase with channels of the input."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import plain_field

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.rtf import Splits, Window

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_depth": 0, "max_iter": 40, "random_state": 0}


def of_known_noise(n=8, shape=(16, 20), seed=0):
    """Return smooth images, noise whose strength differs by pixel, and a channel with each pixel's certainty."""
    rng = np.random.default_rng(seed)
    rows, columns = np.meshgrid(*(np.arange(length) / 4 for length in shape), indexing="ij")
    phase = rng.uniform(0, 6, size=(n, 2, 1, 1))
    y = np.sin(rows + phase[:, 0]) + np.cos(columns + phase[:, 1])
    deviation = rng.choice([0.2, 3.0], size=y.shape)
    sure = 0.04 / deviation**2
    noisy = y + deviation * rng.normal(size=y.shape)
    return np.stack([noisy, sure, sure * noisy], axis=-1), y


@pytest.mark.parametrize("loss", ["pseudolikelihood", "mse"])
def test_they_tell_which_pixels_to_believe(loss):
    X, y = of_known_noise()
    errors = {}
    for channels in (None, [1]):
        field = plain_field(loss, window=Window(precision_channels=channels), **QUICK).fit(X[:6], y[:6])
        errors[channels is None] = np.mean((field.predict(X[6:]) - y[6:]) ** 2)
        assert field.loss_curve_[-1] < field.loss_curve_[0]
    # A single leaf: without the precision channel, all pixels have one precision, even if the linear model uses it.
    assert errors[False] < 0.75 * errors[True]
    assert field.precision_channels_.tolist() == [1]
    assert [part.shape for part in field.slopes_] == [(1, 1, 1, 1)] + [(1, 1, 2, 2)] * 4
    for part in field.slopes_:
        values = np.linalg.eigvalsh(part)
        assert values.min() >= -1e-9
        assert values.max() <= 100 * (1 + 1e-9)
    assert field.slopes_[0].max() > 0.1


def test_deviations_are_those_of_the_noise():
    # Values of variance one, observed with noise of variance v: their precision 1 + 1 / v is linear in the channel.
    rng = np.random.default_rng(1)
    y = rng.normal(size=(10, 20, 30))
    sure = np.where(rng.random(y.shape) < 0.5, 1.0, 0.01)
    noisy = y + 0.2 / np.sqrt(sure) * rng.normal(size=y.shape)
    X = np.stack([noisy, sure, sure * noisy], axis=-1)
    field = plain_field(window=Window(1, precision_channels=[1]), **{**QUICK, "max_iter": 200, "tol": 1e-6}).fit(X, y)
    predicted, deviation = field.predict(X, return_std=True)
    assert_allclose(deviation, 1 / np.sqrt(1 + 25 * sure), rtol=0.05)
    assert_allclose(predicted, 25 * sure * noisy / (1 + 25 * sure), atol=0.15)


def test_trees_threads_warm_starts_and_cascades():
    X, y = of_known_noise()
    options = {**QUICK, "max_iter": 8, "split": Splits(min_samples_leaf=30), "window": Window(precision_channels=[1])}
    field = plain_field("mse", warm_start=True, **options).fit(X, y)
    shallow = field.loss_curve_[-1]
    field.set_params(max_depth=1).fit(X, y)
    assert field.loss_curve_[0] == pytest.approx(shallow, rel=1e-4)
    assert field.loss_curve_[-1] < shallow
    assert field.slopes_[1].shape == (2, 1, 2, 2)
    assert_array_equal(field.predict(X), field.set_params(n_jobs=3).predict(X))
    with pytest.raises(ValueError, match="the same pairwise_channels and precision_channels as the previous fit"):
        field.set_params(window__precision_channels=None).fit(X, y)
    stacked = plain_field("mse", cascade=2, **options).set_params(window__precision_channels=[1]).fit(X, y)
    assert stacked.slopes_[0].shape == (1, 1, 1, 1)
    assert stacked.predict(X).shape == y.shape


def test_labels():
    X, y = of_known_noise()
    labels = y > 0
    scores = []
    for channels in (None, [1]):
        options = QUICK | {"max_iter": 20, "window": Window(precision_channels=channels)}
        field = RegressionTreeFieldClassifier("mse", **options).fit(X[:6], labels[:6])
        scores.append(field.score(X[6:], labels[6:]))
    assert scores[1] > scores[0]


def test_bad_channels_are_named():
    X, y = of_known_noise(2)
    with pytest.raises(ValueError, match="precision_channels must never be negative, but channel 0 of X has -"):
        plain_field(window=Window(precision_channels=[0]), **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="precision_channels must be different channels of X, from 0 to 2, got"):
        plain_field(window=Window(precision_channels=[3]), **QUICK).fit(X, y)
    field = plain_field(window=Window(precision_channels=[1]), **{**QUICK, "max_iter": 2}).fit(X, y)
    with pytest.raises(ValueError, match="precision_channels must never be negative, but channel 1 of X has -"):
        field.predict(-X)
