"""Losses: values against plain formulas and scikit-image, gradients against five-point differences."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.rtf.losses import LOSSES, iw_ssim, logistic, loss_function, mae, mse, multinomial, psnr, ssim


def problem(name, seed, shape=(10, 9), scale=1.0):
    rng = np.random.default_rng(seed)
    prediction = scale * rng.normal(0.5, 0.3, size=shape)
    if name == "logistic":
        return prediction, rng.choice([-1.0, 1.0], size=shape)
    if name == "multinomial":
        return prediction, rng.integers(shape[-1], size=shape[:-1])
    return prediction, prediction + scale * rng.normal(0, 0.2, size=shape)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("shape", "scale"), [((10, 9), 1.0), ((9, 8, 3), 255.0)])
def test_gradient_is_the_five_point_difference(name, shape, scale):
    scale = 1.0 if name in ("logistic", "multinomial") else scale
    prediction, target = problem(name, 0, shape, scale)
    loss = loss_function(name, data_range=scale)
    value, gradient = loss(prediction, target)
    assert gradient.shape == shape
    direction = np.random.default_rng(1).normal(size=shape)
    step = 1e-3 * scale

    def along(k):
        return loss(prediction + k * step * direction, target)[0]

    slope = (along(-2) - 8 * along(-1) + 8 * along(1) - along(2)) / (12 * step)
    # The smoothed corner of the absolute error is as wide as the step.
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=2e-2 if name == "mae" else 1e-6)
    assert isinstance(value, float)


def test_mae_gradient_with_a_wide_corner():
    prediction, target = problem("mae", 2)
    step = 1e-3 * np.random.default_rng(3).normal(size=prediction.shape)
    f = {k: mae(prediction + k * step, target, smoothing=0.1)[0] for k in (-2, -1, 1, 2)}
    slope = (f[-2] - 8 * f[-1] + 8 * f[1] - f[2]) / 12
    assert np.sum(mae(prediction, target, smoothing=0.1)[1] * step) == pytest.approx(slope, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999))
def test_values_are_their_formulas(seed):
    prediction, target = problem("mse", seed)
    error = np.mean((prediction - target) ** 2)
    assert mse(prediction, target)[0] == pytest.approx(error)
    assert mae(prediction, target, smoothing=0)[0] == pytest.approx(np.mean(np.abs(prediction - target)))
    assert mae(prediction, target)[0] == pytest.approx(np.mean(np.abs(prediction - target)), abs=1e-3)
    assert psnr(prediction, target, data_range=2.0)[0] == pytest.approx(-10 * np.log10(4 / error))
    prediction, target = problem("logistic", seed)
    assert logistic(prediction, target)[0] == pytest.approx(np.mean(np.log(1 + np.exp(-prediction * target))))
    prediction, target = problem("multinomial", seed)
    probability = np.exp(prediction) / np.exp(prediction).sum(axis=1, keepdims=True)
    expected = -np.mean(np.log(probability[np.arange(len(target)), target]))
    assert multinomial(prediction, target)[0] == pytest.approx(expected)


@pytest.mark.parametrize("window", [3, 7, 11])
@pytest.mark.parametrize("data_range", [1.0, 255.0])
def test_ssim_is_that_of_scikit_image(window, data_range):
    skimage = pytest.importorskip("skimage.metrics")
    prediction, target = problem("ssim", 4, (40, 33), data_range)
    expected = skimage.structural_similarity(
        prediction, target, win_size=window, data_range=data_range, use_sample_covariance=False
    )
    assert 1 - ssim(prediction, target, data_range, window)[0] == pytest.approx(expected, rel=1e-10)


def window_by_window(prediction, target, window, data_range):
    """Similarity and variances of each window, by a loop."""
    rows, columns = (length - window + 1 for length in prediction.shape)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    similarity, variances = [], []
    for i in range(rows):
        for j in range(columns):
            p, t = (image[i : i + window, j : j + window].ravel() for image in (prediction, target))
            covariance = np.cov(p, t, bias=True)
            luminance = (2 * p.mean() * t.mean() + c1) / (p.mean() ** 2 + t.mean() ** 2 + c1)
            similarity.append(luminance * (2 * covariance[0, 1] + c2) / (np.trace(covariance) + c2))
            variances.append(np.diag(covariance))
    return np.array(similarity), np.array(variances)


@pytest.mark.parametrize("window", [4, 8])
def test_windows_against_a_loop(window):
    prediction, target = problem("ssim", 5, (12, 11))
    similarity, variances = window_by_window(prediction, target, window, 1.0)
    assert ssim(prediction, target, window=window)[0] == pytest.approx(1 - similarity.mean(), rel=1e-10)
    weight = np.log1p(variances / (0.4 / 255**2)).sum(axis=1)
    expected = 1 - np.average(similarity, weights=weight)
    assert iw_ssim(prediction, target, window=window)[0] == pytest.approx(expected, rel=1e-10)


def test_channels_are_averaged():
    prediction, target = problem("ssim", 6, (12, 11, 3))
    channels = [ssim(prediction[..., c], target[..., c])[0] for c in range(3)]
    assert ssim(prediction, target)[0] == pytest.approx(np.mean(channels))


@pytest.mark.parametrize("name", ["mse", "mae", "ssim", "iw_ssim"])
def test_nothing_differs(name):
    image = np.random.default_rng(7).random((9, 9))
    for same in (image, np.full((9, 9), 0.3)):
        value, gradient = LOSSES[name](same, same)
        assert value == pytest.approx(0, abs=1e-12)
        assert_allclose(gradient, 0, atol=1e-10)
    value, gradient = psnr(image, image)
    assert value == -np.inf
    assert_array_equal(gradient, 0)


def test_float32_and_read_only():
    prediction, target = (x.astype(np.float32) for x in problem("ssim", 8))
    prediction.flags.writeable = target.flags.writeable = False
    for name in ("mse", "mae", "psnr", "ssim", "iw_ssim"):
        value, gradient = LOSSES[name](prediction, target)
        assert gradient.dtype == np.float64
        assert value == pytest.approx(LOSSES[name](prediction.astype(float), target.astype(float))[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mse(np.ones(3), np.ones(4)), "target must have the shape of prediction, (3,), got (4,)."),
        (lambda: mae(np.ones(3), np.ones(3), -1.0), "smoothing must not be negative, got -1.0."),
        (lambda: psnr(np.ones(3), np.ones(3), 0.0), "data_range must be positive, got 0.0."),
        (lambda: ssim(np.ones((7, 9)), np.ones((7, 9))), "at least 8 x 8 pixels, the window, got shape (7, 9)."),
        (lambda: logistic(np.ones(2), np.zeros(2)), "target must hold -1 and 1 only."),
        (lambda: multinomial(np.ones((2, 3)), np.array([0, 3])), "target must hold labels from 0 to 2"),
        (lambda: multinomial(np.ones((2, 3)), np.zeros(3, int)), "target must have shape (2,), got (3,)."),
        (lambda: loss_function("l1"), "loss must be one of 'mse', 'psnr'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_a_function_of_ones_own():
    assert loss_function(mse) is mse
