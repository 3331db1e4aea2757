"""AdaptiveFilters: compared with least squares, on mirror images, in all layouts, with any number of threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from sklearn.pipeline import make_pipeline

from sklearn_crf import RegressionTreeField
from sklearn_crf.preprocessing import AdaptiveFilters
from sklearn_crf.rtf import JPEG

RNG = np.random.default_rng(0)
CLEAN = 60 * np.cumsum(RNG.normal(size=(6, 24, 33)), axis=1)
NOISY = CLEAN + 60 * RNG.normal(size=CLEAN.shape)


def test_filters_of_one_kind_are_those_of_least_squares():
    filters = AdaptiveFilters(radius=1, n_angles=1, n_strengths=1, n_coherences=1, shrinkage=1e-3)
    filters.fit(NOISY, CLEAN)
    padded = np.pad(NOISY, [(0, 0), (1, 1), (1, 1)], mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2)).reshape(*NOISY.shape, 9)
    means = windows.mean(axis=-1)
    inputs = np.concatenate([windows - means[..., None], np.ones((*NOISY.shape, 1))], axis=-1).reshape(-1, 10)
    found = np.linalg.lstsq(inputs, (CLEAN - means).ravel(), rcond=None)[0]
    expected = means + (inputs @ found).reshape(NOISY.shape)
    restored = filters.transform(NOISY)
    assert restored.dtype == np.float32
    for channel in (0, 1):
        assert_allclose(restored[..., channel], expected, atol=0.05)


@pytest.mark.parametrize("period", [1, 2, 5, 8])
def test_mirror_images_are_restored_alike(period):
    # Statistics of whole blocks; each training image also contributes all its mirror images.
    whole = slice(None), slice(None, 40 // period * period), slice(None, 40 // period * period)
    clean = np.cumsum(RNG.normal(size=(2, 40, 40)), axis=2)[whole]
    noisy = clean + RNG.normal(size=clean.shape)
    turned = [np.concatenate([part, part[:, ::-1], part[:, :, ::-1], part[:, ::-1, ::-1]]) for part in (noisy, clean)]
    filters = AdaptiveFilters(period, radius=2, n_angles=4, n_strengths=2, n_coherences=1).fit(*turned)
    assert len(filters.place_filters_) == ((period + 1) // 2) ** 2
    restored = filters.transform(noisy)
    # Gradients at the border between two angles may fall to either side.
    for axis in (1, 2):
        mirrored = np.flip(filters.transform(np.flip(noisy, axis)), axis)
        assert np.mean(np.abs(mirrored - restored) > 1e-3) < 0.01


def test_training_images_are_restored_by_the_other_half():
    filters = AdaptiveFilters(2, radius=2)
    found = filters.fit_transform(NOISY, CLEAN)
    own = filters.transform(NOISY)
    assert_array_equal(found[..., 0], own[..., 0])
    off = [np.mean((part[..., 1] - CLEAN) ** 2) for part in (found, own)]
    assert off[0] > 1.03 * off[1]


def test_places_of_jpeg_blocks_count():
    smooth = gaussian_filter(RNG.normal(size=(24, 64, 64)), (0, 3, 3))
    clean = np.clip(128 + 40 * smooth / smooth.std(), 0, 255)
    compressed = np.array([JPEG(5)(image, RNG) for image in clean])
    off = []
    for period in (1, 8):
        filters = AdaptiveFilters(period, radius=2, n_angles=1, n_strengths=1, n_coherences=1)
        restored = filters.fit(compressed[:18], clean[:18]).transform(compressed[18:])[..., 1]
        off.append(np.mean((restored - clean[18:]) ** 2))
    assert off[1] < 0.97 * off[0]


def test_threads_layouts_and_read_only_input():
    noisy = NOISY.astype(np.float32)
    noisy.setflags(write=False)
    expected = AdaptiveFilters(radius=1).fit_transform(noisy, CLEAN)
    assert_array_equal(AdaptiveFilters(radius=1, n_jobs=3).fit_transform(noisy, CLEAN), expected)
    filters = AdaptiveFilters(radius=1).fit(noisy[..., None], CLEAN)
    assert list(filters.get_feature_names_out()) == ["linear", "adaptive"]
    ragged = filters.transform([noisy[0], noisy[1, :1, :9], noisy[2, :3, :1]])
    assert [own.shape for own in ragged] == [(24, 33, 2), (1, 9, 2), (3, 1, 2)]
    assert all(np.isfinite(own).all() for own in ragged)
    flat = filters.transform(np.full((1, 9, 9), 7.0))
    assert np.isfinite(flat).all()


def test_pixels_depend_on_no_more_than_reach():
    filters = AdaptiveFilters(radius=2).fit(NOISY, CLEAN)
    image = np.pad(NOISY[0], 20, mode="symmetric")
    other = image.copy()
    other[30, 30] += 100.0
    changed = np.argwhere((filters.transform(image[None]) != filters.transform(other[None]))[0].any(axis=-1))
    assert np.abs(changed - 30).max() <= filters.reach_


def test_a_field_is_trained_on_them():
    field = make_pipeline(AdaptiveFilters(radius=2), RegressionTreeField(filter_bank=None, max_depth=0))
    field.fit(NOISY[:5], CLEAN[:5])
    assert np.mean((field.predict(NOISY[5:]) - CLEAN[5]) ** 2) < 0.6 * np.mean((NOISY[5] - CLEAN[5]) ** 2)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"y\[1\] must have the shape of X\[1\]"):
        AdaptiveFilters().fit([NOISY[0], NOISY[1]], [CLEAN[0], CLEAN[1, :5]])
    with pytest.raises(ValueError, match="y has 1 images, but X has 2"):
        AdaptiveFilters().fit(NOISY[:2], CLEAN[:1])
    with pytest.raises(ValueError, match=r"X\[0\] has 3 channels, but AdaptiveFilters needs grey images"):
        AdaptiveFilters().fit(np.zeros((2, 5, 5, 3)), CLEAN[:2, :5, :5])
    with pytest.raises(ValueError, match="'shrinkage' parameter of AdaptiveFilters"):
        AdaptiveFilters(shrinkage=0.0).fit(NOISY, CLEAN)
