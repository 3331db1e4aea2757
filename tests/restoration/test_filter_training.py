"""Training of learned filters: the kernel compared with NumPy, exact gradients, the mapping of parameters, crops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.kernels.restoration.diffusion import restore_image, squared_errors
from sklearn_crf.restoration import _tuning as tuned
from sklearn_crf.restoration._filter_training import (
    Crops,
    Parameters,
    cosines,
    gaussians,
    knots,
    mean_squared_error,
)
from sklearn_crf.rtf import JPEG, GaussianNoise

N_KNOTS, REACH = 33, 3.0
STEP = 2 * REACH / (N_KNOTS - 1)


def plain(sizes, params, image):
    """Compute the stages in NumPy, from the formula."""
    n_stages, n_filters, side, n_knots = sizes
    (height, width), u, reach = image.shape, image, side - 1
    seen = np.linspace(-REACH, REACH, n_knots)
    for own in np.split(params, n_stages):
        filters, influences, pull = np.split(own, np.cumsum([n_filters * side**2, n_filters * n_knots]))
        continued, total = np.pad(u, reach, mode="symmetric"), np.zeros_like(u)
        for taps, influence in zip(filters.reshape(-1, side, side), influences.reshape(-1, n_knots), strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(continued, (side, side))
            found = np.interp(np.einsum("ijab,ab->ij", windows, taps), seen, influence)
            spread = np.lib.stride_tricks.sliding_window_view(found, (side, side))
            total += np.einsum("ijab,ab->ij", spread, taps[::-1, ::-1])
        assert total.shape == (height, width)
        u = u - total - pull * (u - image)
    return u


def drawn(sizes, seed=0):
    n_stages, n_filters, side, n_knots = sizes
    rng = np.random.default_rng(seed)
    return 0.15 * rng.normal(size=n_stages * (n_filters * (side**2 + n_knots) + 1)), rng


def restored(sizes, params, image, n_threads=1):
    found = image.copy()
    restore_image(sizes, params.astype(image.dtype), -REACH, STEP, found, n_threads)
    return found


def losses(sizes, params, given, target, margin=0, n_threads=1, has_gradient=True):
    found, gradient = np.zeros(len(given)), np.zeros(len(params) if has_gradient else 0)
    params = params.astype(given.dtype)
    squared_errors(sizes, params, -REACH, STEP, given, target, margin, found, gradient, n_threads)
    return found, gradient


@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (13, 10), (64, 65), (70, 131)])
def test_restored_images_are_those_of_the_formula(shape, side):
    sizes = 2, 5, side, N_KNOTS
    params, rng = drawn(sizes)
    image = rng.normal(size=shape)
    expected = plain(sizes, params, image)
    assert_allclose(restored(sizes, params, image), expected, rtol=1e-10, atol=1e-10)
    single = restored(sizes, params, image.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, expected, atol=1e-4 * np.abs(expected).max())


def test_what_a_pixel_gets_depends_on_no_tile():
    sizes = 1, 4, 5, N_KNOTS
    params, rng = drawn(sizes)
    image = rng.normal(size=(150, 140)).astype(np.float32)
    for top, left in ((3, 5), (40, 21)):
        part = restored(sizes, params, np.ascontiguousarray(image[top : top + 90, left : left + 100]))
        inner = restored(sizes, params, image)[top : top + 90, left : left + 100]
        assert_array_equal(part[4:-4, 4:-4], inner[4:-4, 4:-4])


@pytest.mark.parametrize("margin", [0, 2])
@pytest.mark.parametrize("side", [3, 5])
def test_gradients_are_those_of_finite_differences(side, margin):
    sizes = 2, 3, side, N_KNOTS
    params, rng = drawn(sizes)
    given, target = rng.normal(size=(2, 2, 9, 12))
    found, gradient = losses(sizes, params, given, target, margin)
    inside = np.s_[margin : 9 - margin, margin : 12 - margin]
    expected = [np.sum((plain(sizes, params, x) - y)[inside] ** 2) for x, y in zip(given, target, strict=True)]
    assert_allclose(found, expected, rtol=1e-10)

    def total(moved):
        return losses(sizes, moved, given, target, margin, has_gradient=False)[0].sum()

    # Influences bend at their knots, and a small step hardly ever crosses a knot.
    moves = 1e-6 * np.eye(len(params))
    slopes = np.array([(total(params + move) - total(params - move)) / 2e-6 for move in moves])
    assert np.abs(gradient).max() > 1
    assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    sizes = 2, 6, 5, N_KNOTS
    params, rng = drawn(sizes)
    images = rng.normal(size=(2, 7, 40, 33)).astype(dtype)
    large = rng.normal(size=(150, 170)).astype(dtype)
    one = (*losses(sizes, params, *images), restored(sizes, params, large))
    for n_threads in (2, 8):
        other = (*losses(sizes, params, *images, n_threads=n_threads), restored(sizes, params, large, n_threads))
        for first, second in zip(one, other, strict=True):
            assert_array_equal(first, second)


def test_gradients_of_float32_are_near_those_of_float64():
    # With smooth influences it hardly matters on which side of a knot a value is rounded.
    sizes, rng = (3, 8, 5, N_KNOTS), np.random.default_rng(0)
    curve = np.tanh(np.linspace(-2, 2, N_KNOTS)) / 25
    parts = rng.normal(size=(3, 8 * 25)) / 5, np.tile(curve, (3, 8)), np.full((3, 1), 0.1)
    params, images = np.concatenate(parts, axis=1).ravel(), rng.normal(size=(2, 3, 32, 32))
    double, single = losses(sizes, params, *images)[1], losses(sizes, params, *images.astype(np.float32))[1]
    assert np.linalg.norm(single - double) < 1e-4 * np.linalg.norm(double)


def test_sizes_that_do_not_fit_are_refused():
    sizes = 1, 2, 3, N_KNOTS
    params, _ = drawn(sizes)
    with pytest.raises(ValueError, match="do not fit"):
        restored(sizes, params[1:], np.zeros((4, 4)))
    with pytest.raises(ValueError, match="do not fit"):
        losses(sizes, params[1:], *np.zeros((2, 1, 4, 4)))


def test_filters_start_as_the_cosine_basis_without_the_constant():
    basis = cosines(5)
    assert_allclose(basis @ basis.T, np.eye(24), atol=1e-12)
    assert_allclose(basis.sum(axis=1), 0, atol=1e-12)
    changes = [np.abs(np.diff(own.reshape(5, 5), axis=axis)).sum() for own in basis[[0, -1]] for axis in (0, 1)]
    assert max(changes[:2]) < max(changes[2:])


def test_influences_are_constant_beyond_their_reach():
    parameters = Parameters(1, 2, 3)
    stages = parameters.stages(parameters.start())
    influences = stages.weights @ gaussians()
    assert influences.shape == (1, 2, len(knots()))
    # Small responses are removed by the share of the first influence.
    middle = len(knots()) // 2
    slope = (influences[0, 0, middle + 1] - influences[0, 0, middle - 1]) / (knots()[middle + 1] - knots()[middle - 1])
    assert slope == pytest.approx(tuned.FIRST_SHARE / 9, rel=0.1)
    flat = np.full((1, 1), 0.0)
    assert_allclose(plain(stages.sizes, stages.packed(), flat), flat, atol=1e-15)


def test_the_gradient_by_the_parameters_is_exact():
    parameters, rng = Parameters(2, 5, 3), np.random.default_rng(0)
    theta = parameters.start()
    theta += 0.1 * rng.normal(size=theta.shape)
    groups = [tuple(rng.normal(size=(2, 2, 6, 7)).astype(np.float32))]
    _, gradient = mean_squared_error(parameters, theta, groups, 1, True)
    direction = rng.normal(size=theta.shape)
    direction /= np.linalg.norm(direction)

    def along(step):
        return mean_squared_error(parameters, theta + step * direction, groups, 1, False)[0]

    # Images are float32.
    assert gradient @ direction == pytest.approx((along(1e-3) - along(-1e-3)) / 2e-3, rel=1e-2)
    # The norm of coefficients does not matter.
    coefficients = parameters.parts(gradient)[0]
    assert_allclose(np.sum(coefficients * parameters.parts(theta)[0], axis=2), 0, atol=1e-12)


def test_crops_keep_to_the_blocks_of_a_corruption():
    seen = []

    def corruption(image, rng):
        seen.append(image)
        return image + 1

    ramp = 1000.0 * np.arange(100)[:, np.newaxis] + np.arange(90)
    crops = Crops([ramp], [ramp], corruption, 2.0)
    for given, target in crops.drawn(12, np.random.default_rng(0)):
        assert given.shape == target.shape == (len(given), 64, 64)
        assert given.dtype == target.dtype == np.float32
        assert_allclose(given.mean(axis=(1, 2)), 0, atol=1e-2)
        # In units of two, the example is above the target by one.
        assert_allclose(target - given, -0.5, atol=1e-2)
    corners = {(image.min() // 1000 % 8, image.min() % 1000 % 8) for image in seen}
    assert len(seen) == 12
    assert corners == {(0.0, 0.0)}
    assert len({image[0, 0] < image[-1, -1] for image in seen}) == 2


def test_crops_of_pairs_are_not_turned():
    ramp = np.arange(80.0 * 70).reshape(80, 70)
    for given, target in Crops([ramp], [ramp + 3], None, 1.0).drawn(5, np.random.default_rng(0)):
        assert (given[:, 0, 0] < given[:, -1, -1]).all()
        assert_allclose(target - given, 3, atol=1e-3)


def test_images_of_several_sizes_are_drawn_in_groups():
    planes = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate([(20, 30), (70, 80), (9, 5)])]
    groups = Crops(planes, planes, GaussianNoise(0.1), 1.0).drawn(40, np.random.default_rng(0))
    assert sum(len(given) for given, _ in groups) == 40
    # Filters turned by a right angle form their own groups.
    assert {tuple(sorted(given.shape[1:])) for given, _ in groups} == {(20, 30), (64, 64), (5, 9)}


@pytest.mark.parametrize("corruption", [lambda image, rng: image[:-1], lambda image, rng: image * np.nan, JPEG(50)])
def test_corruptions_must_return_images_of_the_same_shape(corruption):
    crops = Crops([np.full((16, 16), 9.0)], [np.full((16, 16), 9.0)], corruption, 1.0)
    if isinstance(corruption, JPEG):
        assert crops.drawn(1, np.random.default_rng(0))[0][0].shape == (1, 16, 16)
        return
    with pytest.raises(ValueError, match="corruption must return finite images of 16 x 16 pixels"):
        crops.drawn(1, np.random.default_rng(0))
