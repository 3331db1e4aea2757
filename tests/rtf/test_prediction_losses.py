"""Losses of the means of Gaussian fields, compared with dense solves, and kernels of their solvers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import random_field

from sklearn_crf._numbers import SCORE_LIMITS
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.inference.gaussian._base import invert_diagonal_blocks
from sklearn_crf.kernels.gaussian.gaussian import copy_values, find_largest_magnitude, invert, invert_blocks
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf._objectives import PredictionLoss
from sklearn_crf.rtf._potentials import FieldImage
from sklearn_crf.rtf.losses import loss_function

OFFSET, SCALE = 0.2, 1.5


def squared(name, **options):
    solver = ConjugateGradient(**{"tol": 1e-12} | options)
    return PredictionLoss(loss_function(name, 3.0), solver, OFFSET, SCALE)


def model_and_target(shape, n_values=1, dtype=np.float64, missing=False, seed=3):
    trees, potentials, coef, images, targets = random_field(shape, n_values, n_images=1, seed=seed)
    image = FieldImage.of(images[0].features.astype(dtype), images[0].graph, potentials.types, trees)
    target = targets[0].astype(dtype)
    if missing:
        target[::3] = np.nan
    target.flags.writeable = False
    return potentials.model(coef, image), target


def reference(name, model, target, weight):
    """Compute the value and the derivatives by dense solves."""
    matrix = model.precision_matrix().toarray()
    mean = np.linalg.solve(matrix, model.h.ravel().astype(float)).reshape(model.h.shape)
    y = np.where(np.isnan(target), mean, target).astype(float)
    value, slope = loss_function(name, 3.0)(OFFSET + SCALE * mean, OFFSET + SCALE * y)
    adjoint = weight * SCALE * np.linalg.solve(matrix, slope.ravel()).reshape(model.h.shape)
    outer = adjoint[:, :, None] * mean[:, None, :]
    return weight * value, adjoint, mean, -0.5 * (outer + outer.transpose(0, 2, 1))


@pytest.mark.parametrize("name", ["mse", "psnr"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "n_values"), [((6, 5), 1), ((1, 7), 1), ((3, 4, 5), 1), ((1, 1), 1), ((6, 5), 2)])
def test_squared_errors_are_those_of_dense_solves(name, missing, dtype, shape, n_values):
    model, target = model_and_target(shape, n_values, dtype, missing)
    value, *expected = reference(name, model, target, 0.7)
    if shape == (1, 1) and missing:
        # Without targets, the error is 0, and the negative PSNR of an error of 0 would be -inf.
        assert squared(name).loss(model, target, weight=0.7).value == 0
        return
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    found = squared(name, tol=1e-12 if dtype == np.float64 else 1e-6).loss(model, target, weight=0.7)
    assert found.converged
    assert found.value == pytest.approx(value, rel=tolerance)
    for part, own in zip(found.statistics[:3], expected, strict=True):
        assert_allclose(part, own, rtol=0, atol=tolerance * max(1.0, np.abs(own).max()))


def test_what_starts_a_solve_is_not_changed():
    model, target = model_and_target((6, 5))
    state = [np.ones_like(target), np.ones_like(target)]
    squared("mse").loss(model, target, state=state)
    assert all(np.all(part == 1) for part in state)


def test_one_iteration_has_not_converged():
    model, target = model_and_target((6, 5))
    assert not squared("mse", max_iter=1).loss(model, target).converged


@pytest.mark.parametrize(("diagonal", "block"), [(-1.0, 0.0), (0.0, 0.1), (1.0, 2.0)])
def test_a_precision_that_is_not_positive_definite_is_an_error(diagonal, block):
    model = GaussianModel(lattice((3, 3)), np.arange(9.0), np.full(9, diagonal), [block])
    with pytest.raises(ValueError, match="precision is not positive definite"):
        squared("mse").loss(model, np.zeros((9, 1)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [10.0, np.inf, np.nan])
def test_scores_beyond_the_limits_are_an_error(dtype, factor):
    trees, potentials, coef, images, _ = random_field((6, 5), 1, n_images=1, seed=3)
    image = FieldImage.of(images[0].features.astype(dtype), images[0].graph, potentials.types, trees)
    for name in ("weight", "precision"):
        other = coef.copy()
        getattr(potentials.unpack(other)[0], name)[:] = factor * SCORE_LIMITS[np.dtype(dtype)]
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"(h|diagonal) must"):
            potentials.model(other, image)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 500, 70_000])
def test_short_and_long_vectors(dtype, n):
    values = np.random.default_rng(0).uniform(0.5, 2.0, n).astype(dtype)
    values.flags.writeable = False
    out = np.empty(n, dtype)
    copy_values(values, out)
    assert_array_equal(out, values)
    assert invert(values, out) == values.min()
    assert_array_equal(out, 1 / values)
    assert find_largest_magnitude(-values) == find_largest_magnitude(values) == values.max()
    for wrong in (np.nan, np.inf, -np.inf):
        other = values.copy()
        other[n // 2] = wrong
        assert find_largest_magnitude(other) == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "n_values"), [(1, 1), (5, 2), (3, 9), (9000, 2)])
def test_inverses_of_blocks(dtype, n, n_values):
    roots = np.random.default_rng(0).normal(size=(n, n_values, n_values))
    blocks = (roots @ roots.transpose(0, 2, 1) + np.eye(n_values)).astype(dtype)
    blocks.flags.writeable = False
    workspace, out = np.empty((n_values, n_values)), np.empty_like(blocks)
    assert invert_blocks(blocks, workspace, out) == n
    rounding = 100 * np.finfo(dtype).eps
    assert_allclose(out, np.linalg.inv(blocks.astype(np.float64)), rtol=rounding, atol=rounding)
    wrong = blocks.copy()
    wrong[n // 2, -1, -1] = -1.0
    assert invert_blocks(wrong, workspace, out) == n // 2
    with pytest.raises(ValueError, match=f"the diagonal block of node {n // 2} is not"):
        invert_diagonal_blocks(wrong, dtype)


def test_no_values_have_no_magnitude_and_are_copied():
    copy_values(np.empty(0), np.empty(0))
    assert find_largest_magnitude(np.empty(0)) == 0
