"""Standard deviations of predictions after training for a loss, from errors on held-out data."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.ndimage import gaussian_filter

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import FieldSolver, GaussianNoise, MissingPixels
from sklearn_crf.rtf._deviations import _grow_tree
from sklearn_crf.rtf._trees import draw_tests, run_alone

SIGMA = 0.2


def half_textured(n, seed=0, shape=(48, 56)):
    """Return images with a flat left half, and a right half with a fine texture hidden by noise."""
    rng = np.random.default_rng(seed)
    images = np.kron(rng.random((n, shape[0] // 8, shape[1] // 8)), np.ones((1, 8, 8)))
    images[:, :, shape[1] // 2 :] += 0.4 * rng.normal(size=(n, shape[0], shape[1] // 2))
    return images


@pytest.fixture(scope="module")
def field():
    solver = FieldSolver(early_stopping=True, shrinkage=0.0)
    options = {"max_depth": 2, "max_iter": 8, "solver": solver, "random_state": 0}
    return RegressionTreeField(corruption=GaussianNoise(SIGMA), clip=None, **options).fit(half_textured(20))


def test_deviations_cover_new_images(field):
    clean = half_textured(6, seed=1)
    noisy = clean + SIGMA * np.random.default_rng(2).normal(size=clean.shape)
    predicted, deviation = field.predict(noisy, return_std=True)
    assert_array_equal(predicted, field.predict(noisy))
    error = np.abs(predicted - clean)
    covered = [np.mean(error < k * deviation) for k in (1, 2)]
    # Normally distributed errors would give 68 and 95 per cent.
    assert 0.6 < covered[0] < 0.8
    assert 0.92 < covered[1] < 0.98
    assert 0.9 < np.sqrt(np.mean((error / deviation) ** 2)) < 1.1
    # Deviations are large where errors are large.
    flat, textured = slice(4, 24), slice(32, 52)
    for part in (flat, textured):
        actual = np.sqrt(np.mean(error[:, 4:-4, part] ** 2))
        assert 0.7 * actual < np.sqrt(np.mean(deviation[:, 4:-4, part] ** 2)) < 1.5 * actual
    assert deviation[:, 4:-4, textured].mean() > 1.3 * deviation[:, 4:-4, flat].mean()


def test_deviations_do_not_depend_on_threads_or_layout(field):
    noisy = half_textured(2, seed=3)
    deviation = field.predict(noisy, return_std=True)[1]
    of_list = field.set_params(n_jobs=2).predict([noisy[0], noisy[1][:40]], return_std=True)[1]
    field.set_params(n_jobs=None)
    assert_array_equal(of_list[0], deviation[0])
    assert of_list[1].shape == (40, 56)
    colours = field.predict(np.stack([noisy, noisy], axis=-1), return_std=True)[1]
    assert_array_equal(colours[..., 1], deviation)


def test_known_pixels_have_no_deviation():
    options = {"max_depth": 1, "max_iter": 4, "solver": FieldSolver(early_stopping=True), "random_state": 0}
    clean = half_textured(6)
    field = RegressionTreeField(corruption=MissingPixels(0.5), **options).fit(clean)
    given = MissingPixels(0.5)(half_textured(1, seed=1)[0], np.random.default_rng(0))
    deviation = field.predict(given[np.newaxis], return_std=True)[1][0]
    assert_array_equal(deviation > 0, np.isnan(given))


def test_without_held_out_images_there_are_no_deviations(field):
    clean = half_textured(3)
    options = {"max_depth": 0, "max_iter": 2, "filter_bank": None}
    small = RegressionTreeField(corruption=GaussianNoise(SIGMA), **options).fit(clean)
    assert small.held_out_errors_ is None
    with pytest.raises(ValueError, match=re.escape("pass solver=FieldSolver(early_stopping=True), or train a second")):
        small.predict(clean, return_std=True)
    with pytest.raises(ValueError, match="return_std with evidence needs"):
        field.predict(clean, return_std=True, evidence=clean)


def smooth(n, noise, seed=0):
    """Return very smooth images, without and with noise."""
    rng = np.random.default_rng(seed)
    clean = gaussian_filter(rng.normal(size=(n, 40, 40)), (0, 3, 3)) * 10
    return (clean + noise * rng.normal(size=clean.shape))[..., np.newaxis], clean


@pytest.mark.parametrize(
    ("loss", "bounds", "warns"),
    [
        ("pseudolikelihood", (1e-4, 1e4), True),
        ("pseudolikelihood", (1, 10), False),
        ("mse", (1e-4, 1e4), False),
    ],
)
def test_a_pseudolikelihood_whose_neighbours_count_for_too_much_is_told(loss, bounds, warns):
    X, y = smooth(6, 1.0)
    field = RegressionTreeField(loss, max_depth=2, solver=FieldSolver(eigenvalue_bounds=bounds), random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        field.fit(X, y)
    told = [str(each.message) for each in caught if "farther from y than the mean" in str(each.message)]
    assert len(told) == warns
    assert (np.mean((field.predict(X) - y) ** 2) > np.var(y)) == warns


def test_nothing_is_told_where_X_says_nothing_of_y():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 30, 30, 1)), rng.normal(size=(6, 30, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RegressionTreeField("pseudolikelihood", max_depth=1, random_state=0).fit(X, y)


def test_errors_of_weights_are_errors_of_copies():
    rng = np.random.default_rng(0)
    responses, errors, times = rng.normal(size=(6, 200)), rng.exponential(size=(200, 2)), rng.integers(1, 5, size=200)
    tests = draw_tests(6, 2, (2, 2), np.random.RandomState(0))
    weighted, leaf = _grow_tree(tests, responses, errors, times.astype(float), run_alone)
    copies = np.repeat(np.arange(200), times)
    copied, leaf_of_copies = _grow_tree(tests, responses[:, copies], errors[copies], np.ones(len(copies)), run_alone)
    assert_array_equal(weighted.threshold, copied.threshold)
    assert_array_equal(weighted.test, copied.test)
    assert_array_equal(leaf[copies], leaf_of_copies)
    assert weighted.n_leaves > 3
