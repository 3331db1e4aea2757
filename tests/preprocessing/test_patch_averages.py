"""PatchAverages: compared with loops over pixels; repeated structures, layouts and threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.preprocessing import PatchAverages, PatchShrinkage

RNG = np.random.default_rng(0)
IMAGE = np.kron(RNG.random((5, 7)), np.ones((6, 5))) + 0.2 * RNG.normal(size=(30, 35))


def averaged_by_loops(image, guide, bandwidth, search, patch):
    """Compute averages pixel by pixel."""
    margin = search + patch
    image, guide = (np.pad(part, margin, mode="symmetric") for part in (image, guide))
    average, variance = np.zeros((2, *(length - 2 * margin for length in image.shape)))

    def around(i, j):
        return guide[i - patch : i + patch + 1, j - patch : j + patch + 1]

    for i, j in np.ndindex(*average.shape):
        i, j = i + margin, j + margin
        total = weight = square = 0.0
        for a, b in np.ndindex(2 * search + 1, 2 * search + 1):
            s, t = i + a - search, j + b - search
            w = max(0.0, 1 - np.mean((around(i, j) - around(s, t)) ** 2) / bandwidth**2) ** 2
            total, weight, square = total + w * image[s, t], weight + w, square + w**2
        average[i - margin, j - margin], variance[i - margin, j - margin] = total / weight, square / weight**2
    return average, variance


# More and fewer rows and columns than are averaged at once.
@pytest.mark.parametrize("shape", [(30, 35), (1, 1), (3, 20), (17, 2), (3, 150), (2, 64)])
@pytest.mark.parametrize(("search", "patch"), [(3, 1), (2, 2), (0, 0)])
def test_averages_are_those_of_loops(shape, search, patch):
    image = IMAGE[: shape[0], : shape[1]] if shape[1] <= 35 else np.resize(IMAGE, shape)
    averages = PatchAverages([0.3, 0.6], guide_threshold=None, search_radius=search, patch_radius=patch)
    found = averages.fit_transform(image[None])[0]
    assert found.dtype == np.float32
    for k, bandwidth in enumerate((0.3, 0.6)):
        average, variance = averaged_by_loops(image, image, bandwidth, search, patch)
        assert_allclose(found[..., k], average, atol=1e-4)
        assert_allclose(found[..., 2 + k], variance, rtol=1e-3)


def test_patches_are_compared_in_the_guide():
    guide = PatchShrinkage([0.5]).fit_transform(IMAGE[None])[0, ..., 0]
    found = PatchAverages([0.3], guide_threshold=0.5, search_radius=3).fit_transform(IMAGE[None])[0]
    average, _ = averaged_by_loops(IMAGE, guide, 0.3, 3, 1)
    assert_allclose(found[..., 0], average, atol=1e-4)


def test_what_repeats_itself_loses_its_noise():
    clean = np.tile(np.kron(RNG.random((2, 2)), np.ones((4, 4))), (6, 6))
    noisy = clean + 0.1 * RNG.normal(size=clean.shape)
    shrunk = PatchShrinkage([0.27]).fit_transform(noisy[None])[0, ..., 0]
    averages = PatchAverages([0.09], guide_threshold=0.27).fit_transform(noisy[None])[0]
    errors = [np.mean((part - clean) ** 2) for part in (noisy, shrunk, averages[..., 0])]
    assert errors[2] < 0.8 * min(errors[:2])
    # A random image does not repeat itself.
    other = PatchAverages([0.09], guide_threshold=0.27).fit_transform(RNG.random((1, 48, 48)))[0]
    assert np.median(averages[..., 1]) < 0.5 * np.median(other[..., 1])


def test_threads_layouts_and_read_only_input():
    images = np.stack([IMAGE, IMAGE[::-1]])
    images.setflags(write=False)
    one, three = (PatchAverages([0.3, 0.5], n_jobs=n).fit_transform(images) for n in (1, 3))
    assert_array_equal(one, three)
    # Blocks of rows begin at other rows if there are several threads.
    tall = np.tile(IMAGE, (4, 1))[None]
    one, three = (PatchAverages([0.3], n_jobs=n).fit_transform(tall) for n in (1, 3))
    assert_array_equal(one, three)
    ragged = PatchAverages([0.3]).fit_transform([IMAGE, IMAGE[:9]])
    assert ragged.dtype == object
    colours = PatchAverages([0.3]).fit(np.dstack([IMAGE, 2 * IMAGE])[None])
    assert colours.get_feature_names_out().tolist() == [
        "channel0_average_0.3", "channel0_variance_0.3", "channel1_average_0.3", "channel1_variance_0.3"
    ]  # fmt: skip
    assert PatchAverages([0.3]).fit(IMAGE[None]).get_feature_names_out().tolist() == ["average_0.3", "variance_0.3"]


def test_pixels_depend_on_no_more_than_reach():
    averages = PatchAverages([0.5], guide_threshold=0.3, search_radius=2).fit(IMAGE[None])
    other = IMAGE.copy()
    other[15, 17] += 1.0
    # The mean of the whole image is subtracted internally, so rounding differs.
    changed = np.abs(np.diff([averages.transform(x[None])[0] for x in (IMAGE, other)], axis=0))[0].max(axis=2) > 1e-3
    rows, columns = np.nonzero(changed)
    assert np.abs(rows - 15).max() <= averages.reach_
    assert np.abs(columns - 17).max() <= averages.reach_


@pytest.mark.parametrize("bandwidths", [[0.0], [-1.0], [[1.0]], [np.nan], [], "wide", 3.0])
def test_bad_bandwidths_are_named(bandwidths):
    with pytest.raises((ValueError, TypeError), match="bandwidths"):
        PatchAverages(bandwidths).fit(IMAGE[None])
