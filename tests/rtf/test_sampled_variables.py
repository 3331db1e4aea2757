"""Sampled variables of a pseudolikelihood: their terms equal the terms in whole images."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import OFFSETS, plain_field, random_tree

from sklearn_crf.graphs import lattice
from sklearn_crf.rtf import FieldSolver, Splits, Window
from sklearn_crf.rtf._objectives import FieldRisk, GaussianPseudolikelihood
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._rounds import ImagesHere, Rounds, cover_with_squares, cut_with_surroundings, sample_variables
from sklearn_crf.rtf._trees import build_factor_templates
from sklearn_crf.rtf.images._input import TrainingData

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

# Pairs and tests of trees reach two pixels.
MARGIN = 4


def random_data(shapes, weighted, seed=0):
    rng = np.random.RandomState(seed)
    n_pixels = [int(np.prod(shape)) for shape in shapes]
    weights = [np.full(n, w) for n, w in zip(n_pixels, rng.uniform(1, 3, size=len(shapes)), strict=True)]
    return TrainingData(
        [rng.normal(size=(*shape, 3)) for shape in shapes],
        [lattice(shape, OFFSETS) for shape in shapes],
        [rng.normal(size=(n, 2)) for n in n_pixels],
        weights if weighted else None,
    )


def risk_of(data, seed=1):
    """Return the risk of a random field, and its parameters."""
    rng = np.random.RandomState(seed)
    types = build_factor_templates(OFFSETS)
    trees = [random_tree(3, 3, rng) for _ in types]
    whitening = [np.eye(kind.n_inputs(3)) for kind in types]
    potentials = RegressionTreePotentials(types, [tree.n_leaves for tree in trees], whitening, 2)
    coef = potentials.project(potentials.start() + 0.2 * rng.normal(size=potentials.n_coef), (0.5, 2.0))
    images = [FieldImage.of(*pair, types, trees) for pair in zip(data.features, data.graphs, strict=True)]
    return FieldRisk(GaussianPseudolikelihood(), potentials, images, data.targets, data.weights), coef


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("side", [3, 5, 50])
def test_all_squares_together_are_the_images(side, weighted):
    data = random_data([(17, 12), (9, 21)], weighted)
    squares = cover_with_squares(data, side)
    assert sum((r.stop - r.start) * (c.stop - c.start) for _, r, c in squares) == 17 * 12 + 9 * 21
    risk, coef = risk_of(data)
    value, gradient = risk.value_grad(coef)
    risk, _ = risk_of(cut_with_surroundings(data, squares, MARGIN))
    found, found_gradient = risk.value_grad(coef)
    assert found == pytest.approx(value, rel=1e-10)
    assert_allclose(found_gradient, gradient, atol=1e-10)
    # A square of pixels has the weight of its pixels.
    total = sum(weight.sum() for weight in cut_with_surroundings(data, squares, MARGIN).weights)
    mean = np.mean(np.concatenate(data.weights)) if weighted else 1.0
    assert total == pytest.approx(mean * (17 * 12 + 9 * 21))


def test_margins_are_needed():
    data = random_data([(17, 12)], False)
    risk, coef = risk_of(data)
    cut, _ = risk_of(cut_with_surroundings(data, cover_with_squares(data, 5), 0))
    assert abs(cut.value(coef) - risk.value(coef)) > 1e-3


@pytest.mark.parametrize("n", [1, 40, 200, 390])
def test_at_most_so_many(n):
    data = random_data([(17, 12), (9, 21)], False)
    found = sample_variables(data, n, MARGIN, np.random.RandomState(0))
    used = sum(np.count_nonzero(weight) for weight in found.weights)
    # A square of four is the smallest.
    assert used <= max(n, 16)
    assert used >= 0.6 * n or n == 1
    other = sample_variables(data, n, MARGIN, np.random.RandomState(1))
    assert len(found.features) != len(other.features) or any(
        a.shape != b.shape or np.any(a != b) for a, b in zip(found.features, other.features, strict=True)
    )


def test_the_mean_over_samples_is_the_whole():
    data = random_data([(16, 16)] * 2, False)
    risk, coef = risk_of(data)
    rng = np.random.RandomState(0)
    values = [risk_of(sample_variables(data, 128, MARGIN, rng))[0].value(coef) for _ in range(60)]
    error = np.std(values) / np.sqrt(len(values))
    assert np.mean(values) == pytest.approx(risk.value(coef), abs=4 * error)
    assert np.std(values) > 0


def test_all_pixels_are_no_sample():
    data = random_data([(17, 12)], False)
    images = ImagesHere(data.features, data.targets, data.weights, lambda shape: data.graphs[0])
    for most, are_all in ((None, True), (17 * 12, True), (17 * 12 - 1, False)):
        sampled = partial(sample_variables, max_samples=most, margin=MARGIN)
        rounds = Rounds(images, most, sampled, 0, 1)
        assert (rounds(0).targets is data.targets) == are_all


@pytest.mark.parametrize("layout", ["images", "chains"])
def test_fields_learn_from_some_variables(layout):
    rng = np.random.default_rng(0)
    y = np.kron(rng.random((8, 6, 8)), np.ones((4, 4)))
    X = (y + 0.2 * rng.normal(size=y.shape))[..., None]
    X, y = (X, y) if layout == "images" else (X.reshape(8, -1, 1), y.reshape(8, -1))
    window = Window(lattice_ndim=1 if layout == "chains" else None)
    options = {
        "max_depth": 1,
        "max_iter": 10,
        "window": window,
        "split": Splits(min_samples_leaf=20),
        "random_state": 0,
    }
    whole = plain_field(**options).fit(X, y)
    some, again = (plain_field(solver=FieldSolver(max_samples=1500), n_jobs=n, **options).fit(X, y) for n in (1, 3))
    assert_array_equal(some.loss_curve_, again.loss_curve_)
    errors = [np.mean((field.predict(X) - y) ** 2) for field in (whole, some)]
    assert errors[0] != errors[1]
    # The noise has a variance of 0.04.
    assert max(errors) < 0.026
