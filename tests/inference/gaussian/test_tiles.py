"""Means solved tile by tile equal the mean of the whole plane, for all sizes of tiles, windows and threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import plain_field, random_tree

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.inference.gaussian._tiles import solve_mean_in_tiles
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import Splits, Window, _prediction
from sklearn_crf.rtf._prediction import FittedField
from sklearn_crf.rtf.images._input import compute_window_offsets

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_depth": 1, "max_iter": 8, "split": Splits(min_samples_leaf=20), "tol": 1e-3, "random_state": 0}


def fitted_field(window=3, n_values=1, n_axes=2, bounds=(0.1, 2.0), seed=0):
    """Return a field of random trees, whose precision matrices have eigenvalues between the bounds."""
    rng = np.random.RandomState(seed)
    offsets = np.zeros((0, 2), dtype=np.int64)
    if window != 1:
        own = compute_window_offsets(window, n_axes)
        offsets = np.pad(own, ((0, 0), (2 - n_axes, 0)))
    trees = [random_tree(3, 3, rng) for _ in range(1 + len(offsets))]
    precisions, weights = [], []
    for number, tree in enumerate(trees):
        m = n_values * (2 if number else 1)
        vectors = np.linalg.qr(rng.normal(size=(tree.n_leaves, m, m)))[0]
        values = rng.uniform(*bounds, size=(tree.n_leaves, m))
        precisions.append(np.einsum("lia,la,lja->lij", vectors, values, vectors))
        weights.append(rng.normal(size=(tree.n_leaves, m, 1 + 3 * (2 if number else 1))))
    weights[0] = weights[0][:, :, :4]
    slopes = [np.zeros((len(precision), 0, *precision.shape[1:])) for precision in precisions]
    return FittedField(
        {
            "weights_": weights,
            "precisions_": precisions,
            "slopes_": slopes,
            "offsets_": offsets,
            "trees_": [tree._asdict() for tree in trees],
            "pairwise_channels_": None,
            "precision_channels_": np.array([], dtype=np.int64),
            "lattice_ndim_": n_axes,
            "filter_bank_": None,
        }
    )


def in_tiles(field, plane, solver, **options):
    return solve_mean_in_tiles(
        lambda window, n_threads: field.model(plane[window.slices], n_threads),
        plane.shape[:2],
        solver,
        reach=field.reach,
        **options,
    )


def share_missing(field, plane, mean):
    """Return the norm of h - J u on the whole plane, relative to the norm of h."""
    model = field.model(plane, 1)
    missing = model.h.astype(float) - model.product(mean.reshape(model.h.shape).astype(model.dtype))
    return np.linalg.norm(missing) / np.linalg.norm(model.h)


@pytest.mark.parametrize("window", [1, 3, 5, [[0, 3], [2, -1]]])
@pytest.mark.parametrize("shape", [(40, 37), (17, 71), (9, 120), (61, 5), (400, 1)])
@pytest.mark.parametrize("n_values", [1, 2])
def test_tiles_equal_the_whole_solve(window, shape, n_values):
    field = fitted_field(window, n_values)
    plane = np.random.default_rng(1).normal(size=(*shape, 3))
    for tol in (1e-3, 1e-8):
        found = in_tiles(field, plane, ConjugateGradient(tol=tol), n_pixels=150, margin=1)
        assert len(found.margins) >= plane[..., 0].size / 150
        # The solve of the whole would also have stopped here.
        assert share_missing(field, plane, found.mean) <= tol
        whole = ConjugateGradient(tol=tol / 10).marginals(field.model(plane, 1)).mean
        assert np.linalg.norm(found.mean.reshape(whole.shape) - whole) <= 3 * tol * np.linalg.norm(whole)


def test_single_precision():
    field, plane = fitted_field(), np.random.default_rng(1).normal(size=(50, 61, 3)).astype(np.float32)
    found = in_tiles(field, plane, ConjugateGradient(tol=1e-5), n_pixels=200)
    assert found.mean.dtype == np.float32
    assert share_missing(field, plane, found.mean) <= 1e-5


def test_what_is_missing_is_measured():
    # With exact solves of tiles, errors remain only at the seams.
    field, plane = fitted_field(), np.random.default_rng(2).normal(size=(30, 31, 3))
    model = field.model(plane, 1)
    for tol in (0.5, 1e-2):
        found = in_tiles(field, plane, _Exact(tol=tol), n_pixels=100, margin=1)
        assert 1e-7 < found.residual <= 0.4 * tol
        missing = model.h - model.product(found.mean.reshape(model.h.shape))
        assert found.residual == pytest.approx(np.linalg.norm(missing) / np.linalg.norm(model.h), rel=1e-6)


class _Exact(ConjugateGradient):
    """A solver that solves tiles to rounding error, whatever its tolerance."""

    def _solve(self, model, right_hand_side, init, n_threads):
        return ConjugateGradient(tol=1e-14)._solve(model, right_hand_side, init, n_threads)


def test_margins_grow_where_correlations_are_long():
    plane = np.random.default_rng(3).normal(size=(60, 60, 3))
    solver = ConjugateGradient(tol=1e-4)
    short = in_tiles(fitted_field(bounds=(0.9, 1.1)), plane, solver, n_pixels=100, margin=4)
    long = in_tiles(fitted_field(bounds=(1e-3, 10.0)), plane, solver, n_pixels=100, margin=4)
    assert max(short.margins) < max(long.margins)
    assert set(long.margins) <= {4 * 2**k for k in range(8)}
    assert share_missing(fitted_field(bounds=(1e-3, 10.0)), plane, long.mean) <= 1e-4


def test_threads_change_nothing():
    field, plane = fitted_field(5), np.random.default_rng(1).normal(size=(50, 61, 3)).astype(np.float32)

    def largest(model, n_threads):
        return model.diagonal[:, 0]

    one, three = (in_tiles(field, plane, ConjugateGradient(), n_pixels=200, n_jobs=n, and_also=largest) for n in (1, 3))
    assert_array_equal(one.mean, three.mean)
    assert_array_equal(one.others, three.others)
    assert one.margins == three.margins
    assert_array_equal(one.others.ravel(), field.model(plane, 1).diagonal.ravel())


def blocks(n=4, shape=(24, 28), seed=0):
    rng = np.random.default_rng(seed)
    clean = np.kron(rng.random((n, shape[0] // 4, shape[1] // 4)), np.ones((4, 4)))
    return (clean + 0.2 * rng.normal(size=clean.shape))[..., None].astype(np.float32), clean


@pytest.fixture
def small_tiles(monkeypatch):
    """Return a function that makes tiles small, so that tests need no gigabytes."""

    def mean_in_small_tiles(*args, **options):
        return solve_mean_in_tiles(*args, **options, n_pixels=400)

    def switch():
        monkeypatch.setattr("sklearn_crf.rtf._tuning.PIXELS_OF_TILES", 1000)
        monkeypatch.setattr(_prediction, "solve_mean_in_tiles", mean_in_small_tiles)

    return switch


@pytest.mark.parametrize("layout", ["array", "list", "cascade", "chains"])
def test_predictions_in_tiles(layout, small_tiles):
    X, y = blocks()
    # In this image, a difference of 1e-5 in the first field does not change the leaf of any pixel in the second field.
    large = blocks(1, (80, 72), seed=3)[0]
    if layout == "chains":
        X, y, large = X.reshape(4, -1, 1), y.reshape(4, -1), large.reshape(1, -1, 1)
    if layout == "list":
        large = [large[0], X[0], large[0, :60, :61]]
    window = Window(lattice_ndim=1 if layout == "chains" else None)
    field = plain_field("mse", cascade=2 if layout == "cascade" else 1, window=window, **QUICK).fit(X, y)
    whole = field.predict(large)
    small_tiles()
    for found, expected in zip(field.predict(large), whole, strict=True):
        assert found.shape == expected.shape
        assert_allclose(found, expected, atol=1e-4)
        # Nothing for the whole image was computed twice.
        assert np.array_equal(found, expected) == (found.size < 1000)
    for found, expected in zip(field.set_params(n_jobs=3).predict(large), field.predict(large), strict=True):
        assert_array_equal(found, expected)


def test_filter_banks_in_tiles(small_tiles):
    X, y = blocks()
    field = plain_field("pseudolikelihood", filter_bank=FilterBank("gaussian_derivatives"), **QUICK).fit(X, y)
    assert field.n_features_in_ == 1
    assert field.weights_[0].shape[2] == 1 + 19
    # A filter bank in the field or before the field gives the same result.
    responses = FilterBank("gaussian_derivatives").fit_transform(X)
    piped = plain_field("pseudolikelihood", **QUICK).fit(responses, y)
    assert_array_equal(field.predict(X), piped.predict(responses))
    large = blocks(1, (80, 72), seed=1)[0]
    small = large[:, :44, :40]
    whole, (_, deviation) = field.predict(large), field.predict(small, return_std=True)
    small_tiles()
    # Responses are the same up to the rounding of single precision.
    assert_allclose(field.predict(large), whole, atol=1e-4)
    assert_allclose(field.predict(small, return_std=True)[1], deviation, rtol=1e-3)


def test_labels_in_tiles(small_tiles):
    X, y = blocks()
    field = RegressionTreeFieldClassifier(filter_bank=FilterBank("haar"), **QUICK).fit(X, y > 0.5)
    large = blocks(1, (80, 72), seed=1)[0]
    whole = field.predict(large)
    small_tiles()
    assert np.mean(field.predict(large) == whole) > 0.999


def test_bad_filter_banks_are_named():
    X, y = blocks()
    with pytest.raises(ValueError, match="The 'filter_bank' parameter of RegressionTreeField must be"):
        plain_field(filter_bank="nonsense").fit(X, y)
    with pytest.raises(ValueError, match=r"filter_bank needs images, but X holds lattices of 1 axes\."):
        plain_field(filter_bank=FilterBank(), window=Window(lattice_ndim=1)).fit(X[:, 0], y[:, 0])
