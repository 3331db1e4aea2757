"""Losses: values against plain formulas and scikit-image, gradients against five-point differences."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import correlate1d, gaussian_filter

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
    if name == "iw_ssim":  # two scales, and one
        shape = (24, 23) if len(shape) == 2 else (13, 12, 3)
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
    """Compute the similarity of each window, by a loop."""
    rows, columns = (length - window + 1 for length in prediction.shape)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    similarity = []
    for i in range(rows):
        for j in range(columns):
            p, t = (image[i : i + window, j : j + window].ravel() for image in (prediction, target))
            covariance = np.cov(p, t, bias=True)
            luminance = (2 * p.mean() * t.mean() + c1) / (p.mean() ** 2 + t.mean() ** 2 + c1)
            similarity.append(luminance * (2 * covariance[0, 1] + c2) / (np.trace(covariance) + c2))
    return np.array(similarity)


@pytest.mark.parametrize("window", [4, 8])
def test_windows_against_a_loop(window):
    prediction, target = problem("ssim", 5, (12, 11))
    similarity = window_by_window(prediction, target, window, 1.0)
    assert ssim(prediction, target, window=window)[0] == pytest.approx(1 - similarity.mean(), rel=1e-10)


def reference_pyramid(image, n_scales):
    """Return the bands of the Laplacian pyramid with the binomial filter of five taps."""
    taps = np.sqrt(2) * np.array([1, 4, 6, 4, 1]) / 16

    def filtered(x):
        return correlate1d(correlate1d(x, taps, axis=0, mode="mirror"), taps, axis=1, mode="mirror")

    bands = []
    for _ in range(n_scales - 1):
        low = filtered(image)[::2, ::2]
        spread = np.zeros_like(image)
        spread[::2, ::2] = low
        bands.append(image - filtered(spread))
        image = low
    return [*bands, image]


def reference_enlarged(parent, shape):
    """Return the image at twice the size, interpolated as by MATLAB's imresize."""
    for _ in range(2):
        n = len(parent)
        places = (np.arange(4 * n - 3) + 0.5) * n / (4 * n - 3) - 0.5
        inner = np.array([np.interp(places, np.arange(n), column) for column in parent.T]).T
        parent = np.vstack([2 * inner[0] - inner[1], inner, 2 * inner[-1] - inner[-2]])[::2].T
    return parent[: shape[0], : shape[1]]


def reference_information(t, p, parent):
    """Return the weights of the pixels of a band, one by one."""
    variance, noise = 0.4, np.zeros(t.shape)
    gain, mixture = np.zeros(t.shape), []
    for i in range(1, t.shape[0] - 1):
        for j in range(1, t.shape[1] - 1):
            own = (slice(i - 1, i + 2), slice(j - 1, j + 2))
            covariance = np.cov(t[own].ravel(), p[own].ravel(), bias=True)
            gain[i, j] = covariance[0, 1] / covariance[0, 0]
            noise[i, j] = covariance[1, 1] - gain[i, j] * covariance[0, 1]
            mixture.append([*t[own].ravel()] + ([] if parent is None else [parent[i, j]]))
    samples = np.array(mixture)
    moments = samples.T @ samples / len(samples)
    multiplier = np.sum(samples @ np.linalg.inv(moments) * samples, axis=1) / samples.shape[1]
    multiplier = multiplier.reshape(t.shape[0] - 2, t.shape[1] - 2)
    inner = (slice(1, -1), slice(1, -1))
    g, v = gain[inner], noise[inner]
    total = np.zeros(g.shape)
    for value in np.linalg.eigvalsh(moments):
        signal = multiplier * value
        total += np.log2(1 + ((v + (1 + g**2) * variance) * signal + variance * v) / variance**2)
    return total[4:-4, 4:-4]


def reference_iw_ssim(prediction, target):
    """Compute the measure of Wang and Li for values from 0 to 255."""
    exponents = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])
    n = min(5, int(np.log2(min(target.shape) / 11)) + 1)
    exponents = exponents[:n] / exponents[:n].sum()
    bands = list(zip(reference_pyramid(prediction, n), reference_pyramid(target, n), strict=True))
    taps = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    taps /= taps.sum()

    def mean(x):
        return correlate1d(correlate1d(x, taps, axis=0), taps, axis=1)[5:-5, 5:-5]

    score = 1.0
    for s, (p, t) in enumerate(bands):
        mp, mt = mean(p), mean(t)
        c1, c2 = 2.55**2, 7.65**2
        quality = (2 * (mean(p * t) - mp * mt) + c2) / (mean(p * p) - mp**2 + mean(t * t) - mt**2 + c2)
        if s == n - 1:
            value = np.mean(quality * (2 * mp * mt + c1) / (mp**2 + mt**2 + c1))
        else:
            parent = reference_enlarged(bands[s + 1][1], t.shape) if s < n - 2 else None
            value = np.average(quality, weights=reference_information(t, p, parent))
        score *= value ** exponents[s]
    return 1 - score


@pytest.mark.parametrize("shape", [(12, 15), (24, 30), (51, 44), (95, 90), (176, 181)])
def test_iw_ssim_is_that_of_wang_and_li(shape):
    rng = np.random.default_rng(0)
    target = 255 * gaussian_filter(rng.random(shape), 1.0)
    for prediction in (target + 8 * rng.normal(size=shape), gaussian_filter(target, 1.0)):
        expected = reference_iw_ssim(prediction, target)
        assert iw_ssim(prediction, target, 255.0)[0] == pytest.approx(expected, rel=1e-6)
        assert iw_ssim(prediction / 255, target / 255)[0] == pytest.approx(expected, rel=1e-6)


def test_errors_where_there_is_information_count_more():
    rng = np.random.default_rng(0)
    target = np.full((96, 96), 100.0)
    target[:, 48:] += 40 * rng.normal(size=(96, 48))
    # Two patches, one of them in the flat half, lose the same fraction of similarity.
    values = []
    for column in (14, 62):
        prediction = target.copy()
        prediction[40:56, column : column + 16] += np.where(column < 48, 8, 26) * rng.normal(size=(16, 16))
        values.append((iw_ssim(prediction, target, 255.0)[0], ssim(prediction, target, 255.0)[0]))
    (flat, plain_flat), (textured, plain_textured) = values
    assert textured / flat > 1.5 * plain_textured / plain_flat


def test_channels_are_averaged():
    prediction, target = problem("ssim", 6, (12, 11, 3))
    channels = [ssim(prediction[..., c], target[..., c])[0] for c in range(3)]
    assert ssim(prediction, target)[0] == pytest.approx(np.mean(channels))


@pytest.mark.parametrize("name", ["mse", "mae", "ssim", "iw_ssim"])
def test_nothing_differs(name):
    image = np.random.default_rng(7).random((24, 24))
    for same in (image, np.full((24, 24), 0.3)):
        value, gradient = LOSSES[name](same, same)
        assert value == pytest.approx(0, abs=1e-12)
        assert_allclose(gradient, 0, atol=1e-10)
    value, gradient = psnr(image, image)
    assert value == -np.inf
    assert_array_equal(gradient, 0)


def test_float32_and_read_only():
    prediction, target = (x.astype(np.float32) for x in problem("ssim", 8, (24, 23)))
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
        (
            lambda: ssim(np.ones((7, 9)), np.ones((7, 9))),
            "at least as large as the window, 8 x 8 pixels, got shape (7, 9).",
        ),
        (
            lambda: iw_ssim(np.ones((10, 19)), np.ones((10, 19))),
            "at least as large as the window, 11 x 11 pixels, got",
        ),
        (lambda: logistic(np.ones(2), np.zeros(2)), "target must contain only -1 and 1."),
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
