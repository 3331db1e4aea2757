"""PatchOverlays: places and correlations against loops, products against stored entries, input, a field on them."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, Example
from sklearn_crf.graphs import lattice
from sklearn_crf.preprocessing import PatchOverlays

SIZE = 6


def squares(n, shape=(17, 21), noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    masks = np.zeros((n, *shape), dtype=int)
    for mask in masks:
        i, j = rng.integers(shape[0] - 7), rng.integers(shape[1] - 7)
        mask[i : i + 7, j : j + 7] = 1
    return masks + noise * rng.normal(size=masks.shape), masks


IMAGES, MASKS = squares(7)


def fitted(**options):
    return PatchOverlays(**{"patch_size": SIZE, "n_patches": 9, "random_state": 0, **options}).fit(IMAGES, MASKS)


def entries_by_loops(overlays, image, used):
    """Compute the stored features (H * W, P): a loop over all windows finds the best window of each patch."""
    entries = np.zeros((*image.shape, overlays.n_patches_))
    patches = [patch.astype(float) for part in overlays.patches_ for patch in part]
    masks = [mask for part in overlays.masks_ for mask in part]
    for p, (patch, mask) in enumerate(zip(patches, masks, strict=True)):
        size, best, place = len(patch), -1.0, None
        for i in range(image.shape[0] - size + 1):
            for j in range(image.shape[1] - size + 1):
                window = image[i : i + size, j : j + size]
                window = window - window.mean()
                fit = abs((window * patch).sum()) / np.linalg.norm(window)
                if fit > best:
                    best, place = fit, (slice(i, i + size), slice(j, j + size))
        if used[p]:
            entries[(*place, p)] = best * mask
    return entries.reshape(-1, overlays.n_patches_)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sizes", [{}, {"patch_size": [4, SIZE, 9], "n_patches": 3}], ids=["one size", "three sizes"])
def test_masks_lie_where_patches_fit_best(dtype, sizes):
    overlays = fitted(**sizes)
    image = squares(1, shape=(13, 24), seed=3)[0].astype(dtype)
    features = overlays.transform(image)[0]
    expected = entries_by_loops(overlays, image[0].astype(float), np.ones(9, dtype=bool))
    assert features.shape == expected.shape
    assert_allclose(features @ np.eye(9), expected, atol=1e-5)


def test_a_patch_is_not_laid_over_the_image_that_it_was_taken_from():
    overlays = PatchOverlays(patch_size=SIZE, n_patches=9, random_state=0)
    features = overlays.fit_transform(IMAGES, MASKS)
    for i, x in enumerate(features):
        expected = entries_by_loops(overlays, IMAGES[i], overlays.sources_[0] != i)
        assert_allclose(x @ np.eye(9), expected, atol=1e-5)
    own = overlays.transform(IMAGES)[overlays.sources_[0][0]]
    # In this window the image equals the patch.
    assert np.abs(own @ np.eye(9)[:, :1]).max() == pytest.approx(1.0, abs=1e-5)


def test_the_middle_of_a_patch_is_near_the_boundary():
    def by_steps(masks, middle, steps):
        """Return whether both labels are within so many steps of the masks' centres."""
        rows, columns = np.indices(masks.shape[1:]) - middle
        near = masks[:, np.abs(rows) + np.abs(columns) <= steps]
        return (near.min(axis=1) < 0) & (near.max(axis=1) > 0)

    images, masks = squares(30, shape=(30, 34))
    at = PatchOverlays(patch_size=10, n_patches=60, max_distance=1, random_state=0).fit(images, masks)
    by_default = PatchOverlays(patch_size=10, n_patches=60, random_state=0).fit(images, masks)
    half = PatchOverlays(patch_size=10, n_patches=60, max_distance=5, random_state=0).fit(images, masks)
    assert by_steps(at.masks_[0], 5, 1).all()
    assert not by_steps(half.masks_[0], 5, 1).all()
    # The window ends four steps beyond its middle.
    assert by_steps(half.masks_[0], 5, 5).mean() > 0.8
    assert_array_equal(by_default.patches_[0], half.patches_[0])


def test_sizes_are_those_of_overlays_of_one_size_side_by_side():
    options = {"n_patches": 4, "random_state": 0}
    together = PatchOverlays([5, 8], max_distance=[1, 3], **options)
    features = together.fit_transform(IMAGES, MASKS)
    apart = [PatchOverlays(5, max_distance=1, **options), PatchOverlays(8, max_distance=3, **options)]
    expected = [part.fit_transform(IMAGES, MASKS) for part in apart]
    for x, *parts in zip(features, *expected, strict=True):
        assert_array_equal(x @ np.eye(8), np.hstack([part @ np.eye(4) for part in parts]))
    assert together.n_patches_ == len(together.get_feature_names_out()) == 8
    # An image that is too small for one of the two sizes has features of the other size.
    small = together.transform(IMAGES[:1, :6])[0] @ np.eye(8)
    assert np.abs(small).max(axis=0)[:4].all()
    assert not small[:, 4:].any()
    assert_array_equal(
        PatchOverlays([5, 8], max_distance=2, **options).fit(IMAGES, MASKS).patches_[0],
        PatchOverlays(5, max_distance=2, **options).fit(IMAGES, MASKS).patches_[0],
    )


@pytest.mark.parametrize("n_columns", [1, 3])
@pytest.mark.parametrize("sizes", [{}, {"patch_size": [4, SIZE, 9], "n_patches": 3}], ids=["one size", "three sizes"])
def test_products_are_those_of_stored_entries(n_columns, sizes):
    rng = np.random.default_rng(1)
    features = fitted(**sizes).transform(IMAGES)[2]
    entries = features @ np.eye(9)
    weights, numbers = rng.normal(size=(9, n_columns)), rng.normal(size=(len(entries), n_columns))
    assert_allclose(features @ weights, entries @ weights, atol=1e-12)
    assert_allclose(features.T @ numbers, entries.T @ numbers, atol=1e-12)
    assert_allclose(features @ weights[:, 0], entries @ weights[:, 0], atol=1e-12)


def test_patches_are_unlike_and_lie_on_boundaries():
    overlays = fitted(n_patches=40, max_correlation=0.5, max_distance=1)
    rows = overlays.patches_[0].reshape(overlays.n_patches_, -1).astype(float)
    alike = np.abs(rows @ rows.T) - np.eye(len(rows))
    assert 1 < overlays.n_patches_ < 40
    assert alike.max() <= 0.5 + 1e-6
    assert_allclose(rows.sum(axis=1), 0, atol=1e-5)
    assert all(0 < (mask == 1).sum() < mask.size for mask in overlays.masks_[0])
    assert overlays.get_feature_names_out()[0] == "patch0"


def test_images_smaller_than_a_patch_and_of_no_contrast_have_no_features():
    overlays = fitted()
    small, flat = overlays.transform([np.ones((3, 30)), np.ones((20, 20))])
    assert not (small @ np.ones((9, 1))).any()
    assert np.abs(flat @ np.eye(9)).max() < 1e-3


def test_threads_pickles_read_only_and_lists():
    one, two = (fitted(n_jobs=n).transform(IMAGES) for n in (1, 2))
    weights = np.random.default_rng(0).normal(size=(9, 2))
    read_only = IMAGES.copy()
    read_only.flags.writeable = False
    listed = fitted().transform(list(read_only[..., np.newaxis]))
    restored = pickle.loads(pickle.dumps(two))
    for i, x in enumerate(one):
        for other in (two, listed, restored):
            assert_array_equal(x @ weights, other[i] @ weights)
    assert_array_equal(clone(fitted()).fit(IMAGES, MASKS).patches_[0], fitted().patches_[0])


def test_a_field_learns_on_them():
    images, masks = squares(30, noise=0.4)
    overlays = PatchOverlays(patch_size=9, n_patches=40, random_state=0)
    features = [*overlays.fit_transform(images[:20], masks[:20]), *overlays.transform(images[20:])]
    X = [Example(x, lattice((17, 21))) for x in features]
    y = masks.reshape(30, -1)
    field = TRWCRF(edge_features="constant").fit(X[:20], y[:20])
    majority = (y[20:] == 0).mean()
    assert field.score(X[20:], y[20:]) > majority + 0.02


@pytest.mark.parametrize(
    ("options", "X", "y", "message"),
    [
        ({}, IMAGES[..., None] + np.zeros(2), MASKS, r"X\[0\] has 2 channels, but PatchOverlays needs grey images"),
        ({}, IMAGES, MASKS[:3], "y has 3 masks, but X has 7 images"),
        ({}, IMAGES, MASKS[:, 1:], r"y\[0\] must have shape \(17, 21\), got \(16, 21\)"),
        ({}, IMAGES, 2 * MASKS, r"y\[0\] must be between 0 and 1, found values from 0 to 2"),
        ({}, IMAGES, None, "requires y"),
        ({"patch_size": 30}, IMAGES, MASKS, "no window of 30 x 30 pixels with some contrast"),
        ({}, np.ones((7, 17, 21)), MASKS, "with some contrast"),
        ({}, IMAGES, np.zeros_like(MASKS), "the boundary of a mask"),
        ({}, np.where(IMAGES > 1, np.nan, IMAGES), MASKS, r"X\[0\] contains NaN"),
        ({"max_distance": 0}, IMAGES, MASKS, "'max_distance' parameter of PatchOverlays must be"),
        ({"max_correlation": 0.0}, IMAGES, MASKS, "'max_correlation' parameter of PatchOverlays must be"),
        ({"patch_size": 1}, IMAGES, MASKS, "'patch_size' parameter of PatchOverlays must be"),
        (
            {"patch_size": []},
            IMAGES,
            MASKS,
            "patch_size must be an int of at least 2 or a non-empty list of such integers",
        ),
        ({"patch_size": [6, 1]}, IMAGES, MASKS, r"patch_size must be an int of at least 2 .*, got \[6, 1\]"),
        ({"patch_size": [6, 30]}, IMAGES, MASKS, "no window of 30 x 30 pixels with some contrast"),
        ({"max_distance": [1, 2]}, IMAGES, MASKS, "max_distance has 2 numbers, but patch_size has 1"),
        ({"max_distance": [0]}, IMAGES, MASKS, "max_distance must be an int of at least 1 or a non-empty list"),
    ],
)
def test_bad_input(options, X, y, message):
    with pytest.raises(ValueError, match=message):
        PatchOverlays(**{"patch_size": SIZE, "n_patches": 3, **options}).fit(X, y)
