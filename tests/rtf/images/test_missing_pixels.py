"""Missing pixels: filling, and known pixels that are part of the field."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import RegressionTreeField
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianDirect
from sklearn_crf.rtf import FieldSolver, MissingPixels
from sklearn_crf.rtf._objectives import PredictionLoss
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates
from sklearn_crf.rtf.images._channels import ChannelUnits, append_masks, fill_gaps
from sklearn_crf.rtf.images._degradation import KnownValues, solve_from_image
from sklearn_crf.rtf.losses import mse

QUICK = {"max_depth": 1, "max_iter": 6, "filter_bank": None, "random_state": 0, "solver": FieldSolver(shrinkage=0.0)}


def waves(n, shape=(24, 28), seed=0):
    """Return smooth images."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    slopes, phases = rng.uniform(-0.5, 0.5, size=(n, 2, 1, 1)), rng.uniform(0, 6, size=(n, 1, 1))
    return np.sin(slopes[:, 0] * rows + slopes[:, 1] * columns + phases)


def blocks(n, shape=(24, 28), seed=0):
    """Return images of flat squares."""
    rng = np.random.default_rng(seed)
    return np.kron(rng.random((n, shape[0] // 4, shape[1] // 4)), np.ones((1, 4, 4)))


def with_gaps(images, share=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([MissingPixels(share)(image, rng) for image in images])


def test_gaps_are_filled_by_a_thin_plate():
    rng = np.random.default_rng(0)
    shape = 7, 9
    given = rng.normal(size=shape)
    gaps = rng.random(shape) < 0.5
    # The bending energy as a matrix: rows of second differences; mixed differences count twice.
    unit = np.eye(63).reshape(63, *shape)
    down, across = np.diff(unit, n=2, axis=1), np.diff(unit, n=2, axis=2)
    corners = np.sqrt(2) * np.diff(np.diff(unit, axis=1), axis=2)
    bends = np.concatenate([part.reshape(63, -1) for part in (down, across, corners)], axis=1)
    energy = bends @ bends.T
    free, known = gaps.ravel(), ~gaps.ravel()
    expected = given.ravel().copy()
    expected[free] = -np.linalg.solve(energy[np.ix_(free, free)], energy[np.ix_(free, known)] @ expected[known])
    filled = fill_gaps(np.where(gaps, np.nan, given)[..., None])
    assert filled.dtype == np.float32
    assert_allclose(filled.ravel(), expected, atol=0.01)
    # Filling works for values far from zero, and does not change known values.
    far = fill_gaps(np.where(gaps, np.nan, 1e4 + given)[..., None])[..., 0]
    assert_allclose(far.ravel(), 1e4 + expected, atol=0.05)
    assert_array_equal(far[~gaps], (1e4 + given)[~gaps].astype(np.float32))


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (2, 2), (1, 1)])
def test_small_images_are_filled(shape):
    image = np.full((*shape, 2), 2.0)
    image[-1, -1, 0] = np.nan
    image[..., 1] = np.nan
    filled = fill_gaps(image)
    assert_allclose(filled[..., 0], 0.0 if shape == (1, 1) else 2.0, atol=1e-5)
    assert_array_equal(filled[..., 1], np.zeros(shape))


def small_problem(rng):
    shape, offsets = (5, 6), np.array([[0, 1], [1, 0]])
    image = rng.normal(size=(*shape, 1)).astype(np.float32)
    gaps = rng.random((*shape, 1)) < 0.5
    plane = append_masks(np.where(gaps, 0, image).astype(np.float32), gaps, (0,))
    known = KnownValues((0,), np.array([0.3]), 1.7, ChannelUnits.of({}, 1))
    types = build_factor_templates(offsets)
    potentials = RegressionTreePotentials(types, [1] * 3, [np.eye(kind.n_inputs(3)) for kind in types], 1)
    field_image = FieldImage.of(
        plane, lattice(shape, offsets), types, [RegressionTree.stump()] * 3, 1, known.observation(plane)
    )
    coef = potentials.start() + 0.05 * rng.normal(size=potentials.n_coef)
    for part in potentials.unpack(coef):
        part.precision[:] = (part.precision + part.precision.transpose(0, 2, 1)) / 2
    return potentials, field_image, coef, (image.ravel() - 0.3) / 1.7, ~gaps.ravel(), known, plane


def test_the_mean_is_that_of_the_field_given_the_known_pixels():
    potentials, image, coef, values, known, _, _ = small_problem(np.random.default_rng(0))
    observed = potentials.model(coef, image)
    free = potentials.model(coef, FieldImage(image.features, image.graph, image.leaves))
    precision = free.precision_matrix().toarray()
    expected = values.copy()
    shift = free.h.ravel()[~known] - precision[np.ix_(~known, known)] @ values[known]
    expected[~known] = np.linalg.solve(precision[np.ix_(~known, ~known)], shift)
    found = solve_from_image(ConjugateGradient(tol=1e-6), observed, image.observation.start)
    assert_allclose(found.x.ravel(), expected, atol=5e-3)
    # Even with a large tolerance, known values do not hide the residual of the other values.
    rough = solve_from_image(ConjugateGradient(tol=1e-2), observed, image.observation.start)
    assert_allclose(rough.x.ravel(), expected, atol=0.05)


def test_gradient_with_known_pixels():
    rng = np.random.default_rng(1)
    potentials, image, coef, values, _, _, _ = small_problem(rng)
    objective = PredictionLoss(mse, ConjugateGradient(tol=1e-8))
    target = values[:, None] + rng.normal(size=(30, 1))

    def value(w):
        return objective.loss(potentials.model(w, image), target, start=image.observation.start).value

    found = objective.loss(potentials.model(coef, image), target, start=image.observation.start)
    gradient = potentials.pullback(image, found.statistics)
    direction = rng.normal(size=len(coef))
    for part in potentials.unpack(direction):
        part.precision[:] = (part.precision + part.precision.transpose(0, 2, 1)) / 2
    step = 0.01
    slope = (value(coef + step * direction) - value(coef - step * direction)) / (2 * step)
    assert_allclose(gradient @ direction, slope, rtol=1e-2)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_known_pixels_stay_and_others_are_better_than_filled(share):
    clean = blocks(14)
    field = RegressionTreeField(corruption=MissingPixels(share), **QUICK).fit(clean[:12])
    assert field.keeps_known_
    given = with_gaps(clean[12:], share, seed=1)
    predicted, gaps = field.predict(given), np.isnan(given)
    assert_array_equal(predicted[~gaps], given[~gaps])
    filled = np.stack([fill_gaps(image[..., None])[..., 0] for image in given])
    truth = clean[12:][gaps]
    assert np.mean((predicted[gaps] - truth) ** 2) < 0.95 * np.mean((filled[gaps] - truth) ** 2)
    # ``models`` has the same mean, for any inference.
    mean = GaussianDirect().marginals(field.models(given)[0]).mean.reshape(24, 28)
    assert_allclose(np.clip(mean, *field.target_range_), predicted[0], atol=0.01)


def test_colours_of_a_mosaic():
    # One of three colours is observed at every pixel.
    clean = np.stack([waves(8, seed=s) for s in range(3)], axis=-1) + waves(8, seed=7)[..., None]
    mosaic = np.add.outer(np.arange(24), np.arange(28)) % 3

    def seen(image, rng):
        return np.where(mosaic[..., None] == np.arange(3), image, np.nan)

    field = RegressionTreeField(corruption=seen, **QUICK).fit(clean[:6])
    assert field.missing_channels_.tolist() == [0, 1, 2]
    given = np.stack([seen(image, None) for image in clean[6:]]).astype(np.float32)
    predicted, gaps = field.predict(given), np.isnan(given)
    assert_array_equal(predicted[~gaps].astype(np.float32), given[~gaps])
    assert np.mean((predicted - clean[6:])[gaps] ** 2) < 0.02 * np.var(clean[6:])


def test_noisy_pixels_are_not_kept():
    clean = waves(6)
    noisy = with_gaps(clean) + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    field = RegressionTreeField(**QUICK).fit(noisy[:5, ..., None], clean[:5])
    assert not field.keeps_known_
    known = ~np.isnan(noisy[5:])
    error = np.mean((field.predict(noisy[5:, ..., None]) - clean[5:])[known] ** 2)
    assert error < 0.7 * np.mean((noisy[5:] - clean[5:])[known] ** 2)
    # Pairs in which pixels were only removed are equivalent to clean images with a corruption.
    given = with_gaps(clean)
    assert RegressionTreeField(**QUICK).fit(given[:5, ..., None], clean[:5]).keeps_known_


@pytest.mark.parametrize("loss", ["pseudolikelihood", "likelihood", "mae"])
def test_other_losses_keep_known_pixels(loss):
    clean = waves(5, (12, 14))
    field = RegressionTreeField(loss, corruption=MissingPixels(0.5), **QUICK | {"max_depth": 0}).fit(clean[:4])
    given = with_gaps(clean[4:])
    gaps = np.isnan(given)
    if loss == "mae":
        predicted = field.predict(given)
    else:
        predicted, deviation = field.predict(given, return_std=True)
        assert deviation[~gaps].max() < 0.2 * deviation[gaps].mean()
    assert_array_equal(predicted[~gaps].astype(np.float32), given[~gaps])
    assert np.mean((predicted - clean[4:])[gaps] ** 2) < 0.2 * np.var(clean[4:])


def test_cascades_keep_known_pixels():
    clean = waves(6)
    field = RegressionTreeField(corruption=MissingPixels(0.5), cascade=2, **QUICK).fit(clean[:5])
    given = with_gaps(clean[5:])
    known = ~np.isnan(given)
    assert field.keeps_known_
    assert_array_equal(field.predict(given)[known], given[known])
