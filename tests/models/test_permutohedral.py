"""Gaussian filtering on the permutohedral lattice, against sums over all pairs of points."""

import numpy as np
import pytest

from sklearn_crf.models import PermutohedralFilter

# Keys: number of dimensions, and side of a cube in bandwidths, over which 800 points are spread evenly. Values: largest
# mean error of the filter, in per cent of the mean of the exact sums, without and with normalisation. In a wide cube of
# many dimensions a vertex has few neighbours, and values that missing neighbours would have passed on are lost.
# Normalisation compensates for most of this loss.
ERRORS = {
    (1, 1): (7.5, 2.5),
    (1, 10): (0.7, 0.5),
    (2, 3): (3.0, 1.2),
    (2, 10): (1.7, 1.0),
    (3, 3): (4.5, 1.5),
    (3, 10): (8.5, 3.0),
    (5, 3): (10.0, 2.5),
    (5, 10): (55.0, 13.0),
}


def points(rng, n_axes, width, n_points=800):
    return rng.uniform(0, width, size=(n_points, n_axes))


def brute_force(features, normalization):
    differences = features[:, np.newaxis] - features
    matrix = np.exp(-0.5 * np.einsum("ijk,ijk->ij", differences, differences))
    if normalization is None:
        return matrix
    scale = 1 / np.sqrt(matrix.sum(axis=1))
    return scale[:, np.newaxis] * matrix * scale


def matrix_of(lattice):
    return lattice.apply(np.eye(lattice.n_points))


@pytest.mark.parametrize(("n_axes", "width"), ERRORS)
@pytest.mark.parametrize("blur", ["single", "symmetric"])
def test_error_against_sums_over_all_pairs(n_axes, width, blur):
    rng = np.random.default_rng(0)
    features, values = points(rng, n_axes, width), rng.random((800, 3))
    for normalization, most in zip([None, "symmetric"], ERRORS[n_axes, width], strict=True):
        exact = brute_force(features, normalization) @ values
        found = PermutohedralFilter(features, normalization=normalization, blur=blur).apply(values)
        assert 100 * np.abs(found - exact).mean() <= most * exact.mean()


def test_error_falls_with_the_density_of_points():
    rng = np.random.default_rng(0)
    errors = []
    for width in (16.0, 8.0, 4.0):
        features = points(rng, 3, width)
        exact = brute_force(features, "symmetric").sum(axis=1)
        errors.append(np.abs(PermutohedralFilter(features).apply(np.ones((800, 1)))[:, 0] - exact).mean())
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("n_axes", [1, 2, 3, 4, 5, 6, 9])
def test_points_far_apart_do_not_meet(n_axes):
    features = np.arange(8)[:, np.newaxis] * np.full(n_axes, 15.0)
    matrix = matrix_of(PermutohedralFilter(features))
    np.testing.assert_allclose(matrix, np.eye(8), atol=1e-12)


@pytest.mark.parametrize("blur", ["single", "symmetric"])
@pytest.mark.parametrize("normalization", ["symmetric", None])
def test_adjoint_is_the_transposed_matrix(blur, normalization):
    rng = np.random.default_rng(1)
    lattice = PermutohedralFilter(points(rng, 3, 6.0, 120), normalization=normalization, blur=blur)
    np.testing.assert_allclose(lattice.apply(np.eye(120), adjoint=True), matrix_of(lattice).T, atol=1e-13)


def test_symmetric_blur_is_symmetric_and_positive_semidefinite():
    rng = np.random.default_rng(1)
    features = points(rng, 3, 6.0, 120)
    matrix = matrix_of(PermutohedralFilter(features, blur="symmetric"))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > -1e-12
    assert values[-1] == pytest.approx(1.0, abs=1e-12)
    single = matrix_of(PermutohedralFilter(features))
    assert np.abs(single - single.T).max() > 1e-4  # otherwise one of the two options would be superfluous


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 5, 8, 9, 21, 33, 70])
def test_channels_are_filtered_each_by_itself(dtype, n_channels):
    rng = np.random.default_rng(2)
    lattice = PermutohedralFilter(points(rng, 2, 5.0, 300).astype(dtype))
    values = rng.normal(size=(300, n_channels)).astype(dtype)
    together = lattice.apply(values)
    assert together.dtype == dtype
    alone = np.hstack([lattice.apply(values[:, [k]]) for k in range(n_channels)])
    np.testing.assert_allclose(together, alone, atol=2e-6 if dtype == np.float32 else 1e-14)


def test_precisions_agree():
    rng = np.random.default_rng(3)
    features, values = points(rng, 4, 8.0, 5000), rng.random((5000, 6))
    wide = PermutohedralFilter(features).apply(values)
    narrow = PermutohedralFilter(features.astype(np.float32)).apply(values.astype(np.float32))
    np.testing.assert_allclose(narrow, wide, rtol=2e-4, atol=2e-5)


def test_long_sums_in_float32_keep_their_digits():
    # every point has the same corners, so one list has all points
    n_points = 400_000
    lattice = PermutohedralFilter(np.zeros((n_points, 2), np.float32))
    for n_channels in (1, 8):
        np.testing.assert_allclose(lattice.apply(np.ones((n_points, n_channels), np.float32)), 1.0, rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_axes", "n_channels", "n_parts"), [(5, 21, 0), (2, 3, 8), (5, 1, 1)])
@pytest.mark.parametrize("blur", ["single", "symmetric"])
def test_same_bits_for_any_number_of_threads(dtype, n_axes, n_channels, n_parts, blur):
    rng = np.random.default_rng(4)
    features = points(rng, n_axes, 6.0, 4000).astype(dtype)
    values = rng.random((4000, n_channels)).astype(dtype)
    single = PermutohedralFilter(features, blur=blur)
    # Long rows are gathered at vertices, short ones scattered to them in parts.
    assert single.lattice(n_channels)[6] == n_parts
    expected = [single.apply(values, adjoint=adjoint) for adjoint in (False, True)]
    for n_threads in (2, 3, 8):
        lattice = PermutohedralFilter(features, n_threads=n_threads, blur=blur)
        for adjoint in (False, True):
            found = lattice.apply(values, n_threads=n_threads, adjoint=adjoint)
            np.testing.assert_array_equal(found, expected[adjoint])


def test_table_of_vertices_grows():
    rng = np.random.default_rng(5)
    lattice = PermutohedralFilter(points(rng, 5, 1e3, 3000))
    assert lattice.n_vertices == 3000 * 6
    np.testing.assert_allclose(lattice.apply(np.ones((3000, 1))), 1.0, rtol=1e-12)


def test_read_only_input():
    features, values = np.zeros((5, 2)), np.ones((5, 1))
    features.flags.writeable = values.flags.writeable = False
    np.testing.assert_allclose(PermutohedralFilter(features).apply(values), 1.0)


def test_invalid_features():
    with pytest.raises(ValueError, match="features must be finite"):
        PermutohedralFilter(np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="features must have shape"):
        PermutohedralFilter(np.zeros(3))
    with pytest.raises(ValueError, match="features must have shape"):
        PermutohedralFilter(np.zeros((3, 32)))
    with pytest.raises(ValueError, match="normalization must be"):
        PermutohedralFilter(np.zeros((3, 2)), normalization="both")
    with pytest.raises(ValueError, match="blur must be"):
        PermutohedralFilter(np.zeros((3, 2)), blur="double")
    with pytest.raises(ValueError, match="values must have shape"):
        PermutohedralFilter(np.zeros((3, 2))).apply(np.ones((4, 1)))


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-30, 1e-8, 1e-3])
def test_bandwidths_that_are_too_small(bandwidth):
    rng = np.random.default_rng(6)
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=r"2\*\*63|finite"):
        PermutohedralFilter(rng.uniform(0, 1e4, size=(50, 5)) / bandwidth)


def test_memory_is_checked_before_it_is_taken():
    with pytest.raises(MemoryError, match="max_memory"):
        PermutohedralFilter(np.zeros((1000, 2)), max_memory=10_000)
    lattice = PermutohedralFilter(np.zeros((1000, 2)))
    assert lattice.memory >= 1000 * 3 * 24
    # a lattice with few vertices fits into the limit, a lattice with many vertices does not
    spread = np.arange(2000.0).reshape(1000, 2) * 50
    with pytest.raises(MemoryError, match="max_memory"):
        PermutohedralFilter(spread, max_memory=lattice.memory + 1000)
