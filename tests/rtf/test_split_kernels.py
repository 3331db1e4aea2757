"""Kernels of the search for splits, compared with NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from regression_tree_problems import random_field

from sklearn_crf.kernels.rtf.leaf_models import factor_inputs, split_terms
from sklearn_crf.kernels.rtf.trees import add_to_bins
from sklearn_crf.rtf._potentials import GaussianStatistics, as_plane, compute_factor_terms, cross_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("of_terms", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 63, 200])
def test_sums_of_bins(dtype, of_terms, n):
    rng = np.random.RandomState(n)
    terms = rng.normal(size=(n, 3)).astype(of_terms)
    # Some columns of a larger array, with ties, infinities and NaN, which is greater than no threshold.
    whole = rng.randint(-3, 4, size=(5, n + 7)).astype(dtype)
    whole[0, -8:-4] = np.inf, -np.inf, np.nan, 0
    responses, thresholds = whole[:, 4 : n + 4], np.sort(rng.randint(-3, 4, size=(5, 4)), axis=1).astype(dtype)
    for array in (terms, whole, thresholds):
        array.flags.writeable = False
    sums = np.zeros((5, 5, 3))
    add_to_bins(terms, responses, thresholds, sums)
    expected = np.zeros((5, 5, 3))
    for t in range(5):
        np.add.at(expected[t], np.sum(responses[t] > thresholds[t][:, None], axis=0), terms)
    assert_array_equal(sums, expected)


def test_sums_of_bins_need_contiguous_rows():
    with pytest.raises(ValueError, match="contiguous rows"):
        add_to_bins(np.ones((3, 1)), np.ones((2, 6))[:, ::2], np.ones((2, 1)), np.zeros((2, 2, 1)))


def frozen(*arrays):
    """Return read-only arrays."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


@pytest.mark.parametrize("shape", [(6, 5), (3, 4, 5)])
@pytest.mark.parametrize(("dtype", "written"), [(np.float32,) * 2, (np.float32, np.float64), (np.float64,) * 2])
def test_inputs_of_factors(shape, dtype, written):
    _, potentials, _, images, _ = random_field(shape, n_images=1)
    features, rng = images[0].features.astype(dtype), np.random.RandomState(0)
    for kind in potentials.types:
        n_factors = kind.rows(shape).n_factors
        own, place = rng.randint(n_factors, size=9), rng.permutation(11)[:9]
        out = np.full((11, kind.n_inputs(3)), -7, dtype=written)
        plane, own, place = frozen(as_plane(features), own, place)
        factor_inputs(plane, kind.paired, *kind.rows(shape), own, place, np.empty(0), out)
        ends = [features[end].reshape(n_factors, 3)[own] for end in kind.ends(shape)]
        expected = np.full_like(out, -7)
        expected[place] = np.concatenate([np.ones((9, 1)), *ends], axis=1)
        assert_array_equal(out, expected)
        factor_inputs(plane[..., :0], kind.paired, *kind.rows(shape), own, place, np.empty(0), out)
        assert_array_equal(out, expected)
        (scale,) = frozen(rng.random_sample(9))
        factor_inputs(plane, kind.paired, *kind.rows(shape), own, place, scale, out)
        expected[place] = scale[:, None] * np.concatenate([np.ones((9, 1)), *ends], axis=1)
        assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(6, 5), (3, 4, 5)])
@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("n_multipliers", [0, 2])
@pytest.mark.parametrize("has_cross", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_of_splits(shape, n_values, n_multipliers, has_cross, dtype):
    _, potentials, _, (image,), _ = random_field(shape, n_values, n_images=1)
    rng, types, n_nodes = np.random.RandomState(1), potentials.types, np.prod(shape)
    cross = rng.normal(size=(image.graph.n_edges, n_values, n_values)) if has_cross else None
    linear, values = rng.normal(size=(2, n_nodes, n_values))
    square = rng.normal(size=(n_nodes, n_values, n_values))
    statistics = GaussianStatistics(*frozen(linear, values, square), cross)
    for number, kind in enumerate(types):
        own, place = rng.randint(kind.rows(shape).n_factors, size=9), rng.permutation(11)[:9]
        weight, inputs = rng.random_sample(9), rng.normal(size=(9, 4)).astype(dtype)
        multipliers = rng.random_sample((9, n_multipliers)).astype(dtype)
        slope, whole = (part[own] for part in compute_factor_terms(statistics, image, types, number))
        of_slopes = multipliers[:, :, None, None] * whole[:, None]
        parts = whole, of_slopes, slope[:, :, None] * inputs[:, None]
        terms = np.concatenate([part.reshape(9, -1) for part in parts], axis=1) / 0.3
        out = np.full((11, 1 + terms.shape[1]), -7, dtype=dtype)
        expected = out.copy()
        expected[place] = np.column_stack([weight, terms])
        where = shape[-1], kind.paired, *kind.rows(shape), *frozen(own)
        given = frozen(weight, inputs, multipliers, place)
        weight, inputs, multipliers, place = given
        cross_given = cross_of(statistics, image, types, number)
        split_terms(linear, values, square, cross_given, *where, weight, 0.3, inputs, multipliers, place, out)
        assert_array_equal(out, expected)
