"""PatchShrinkage, ChannelUnion, and banks of filters that are learned: against plain NumPy, layouts, threads."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.testing import assert_allclose, assert_array_equal
from scipy.fft import dctn, idctn
from sklearn.base import clone

from sklearn_crf.preprocessing import ChannelUnion, FilterBank, PatchAverages, PatchGroups, PatchShrinkage

RNG = np.random.default_rng(0)
IMAGE = np.kron(RNG.random((5, 7)), np.ones((6, 5))) + 0.2 * RNG.normal(size=(30, 35))


def shrunk_by_loops(image, threshold):
    """Transform, threshold and transform back each patch."""
    padded = np.pad(image, 7, mode="symmetric")
    total, weight = np.zeros_like(padded), np.zeros_like(padded)
    for i, j in np.ndindex(*sliding_window_view(padded, (8, 8)).shape[:2]):
        coefficients = dctn(padded[i : i + 8, j : j + 8], norm="ortho")
        kept = np.abs(coefficients) > threshold
        kept[0, 0] = True
        total[i : i + 8, j : j + 8] += idctn(coefficients * kept, norm="ortho") / kept.sum()
        weight[i : i + 8, j : j + 8] += 1 / kept.sum()
    return (total / weight)[7:-7, 7:-7]


# More and fewer columns than are shrunk at once.
@pytest.mark.parametrize("shape", [(30, 35), (1, 1), (3, 40), (17, 2), (8, 16), (4, 137), (2, 64)])
def test_patches_are_thresholded(shape):
    image = IMAGE[: shape[0], : shape[1]] if shape[1] <= 35 else np.resize(IMAGE, shape)
    found = PatchShrinkage([0.0, 0.3, 0.7]).fit_transform(image[None])[0]
    assert found.shape == (*shape, 3)
    assert found.dtype == np.float32
    # No coefficient is below a threshold of zero.
    assert_allclose(found[..., 0], image, atol=1e-5)
    for k, threshold in enumerate((0.3, 0.7), start=1):
        assert_allclose(found[..., k], shrunk_by_loops(image, threshold), atol=1e-4)


def test_every_coefficient_may_have_a_threshold_of_its_own():
    table = RNG.random((8, 8))
    shrinkage = PatchShrinkage([table, 0.0 * table]).fit(IMAGE[None])
    found = shrinkage.transform(IMAGE[None])[0]
    assert_allclose(found[..., 0], shrunk_by_loops(IMAGE, table), atol=1e-4)
    assert_allclose(found[..., 1], IMAGE, atol=1e-5)
    assert shrinkage.get_feature_names_out().tolist() == ["shrunk_0", "shrunk_1"]
    # A single number and a table of this number give equal bits.
    one, tables = (PatchShrinkage(t).fit_transform(IMAGE[None]) for t in ([0.3], [np.full((8, 8), 0.3)]))
    assert_array_equal(one, tables)


def test_a_shift_is_no_detail():
    found, shifted = (PatchShrinkage([0.5]).fit_transform((IMAGE + shift)[None]) for shift in (0.0, 1000.0))
    assert np.quantile(np.abs(shifted - found - 1000), 0.9) < 1e-3


def test_threads_layouts_and_read_only_input():
    images = np.stack([IMAGE, IMAGE[::-1]])
    images.setflags(write=False)
    one, three = (PatchShrinkage([0.3, 0.5], n_jobs=n).fit_transform(images) for n in (1, 3))
    assert_array_equal(one, three)
    tall = np.tile(IMAGE, (8, 1))[None]
    one, three = (PatchShrinkage([0.3], n_jobs=n).fit_transform(tall) for n in (1, 3))
    assert_array_equal(one, three)
    ragged = PatchShrinkage([0.3]).fit_transform([IMAGE, IMAGE[:9]])
    assert ragged.dtype == object
    colours = PatchShrinkage([0.3, 0.5]).fit(np.dstack([IMAGE, 2 * IMAGE])[None])
    assert colours.get_feature_names_out().tolist() == [
        "channel0_shrunk_0.3", "channel0_shrunk_0.5", "channel1_shrunk_0.3", "channel1_shrunk_0.5"
    ]  # fmt: skip
    assert PatchShrinkage([0.3]).fit(IMAGE[None]).get_feature_names_out().tolist() == ["shrunk_0.3"]


@pytest.mark.parametrize(
    "thresholds", [[-1.0], [[1.0]], [np.nan], [], "soft", 3.0, np.ones((2, 8)), -np.ones((2, 8, 8))]
)
def test_bad_thresholds_are_named(thresholds):
    with pytest.raises((ValueError, TypeError), match="thresholds"):
        PatchShrinkage(thresholds).fit(IMAGE[None])


def test_a_union_is_its_parts_side_by_side():
    # Patches are averaged and grouped on the result of one threshold, which is computed once.
    averages = PatchAverages([0.1], guide_threshold=0.3)
    parts = [FilterBank("haar"), PatchShrinkage([0.3, 2.7 * 0.1]), averages, PatchGroups(0.1, search_radius=4)]
    # The pilot of groups may be averages that were computed before.
    parts += [PatchAverages(np.array([0.9 * 0.1]), guide_threshold=2.7 * 0.1), PatchGroups(0.1, search_radius=5)]
    union = ChannelUnion(parts).fit(IMAGE[None])
    expected = np.concatenate([part.fit_transform(IMAGE[None]) for part in parts], axis=-1)
    assert_array_equal(union.transform(IMAGE[None]), expected)
    assert_array_equal(clone(union).set_params(n_jobs=2).fit_transform(IMAGE[None]), expected)
    assert len(union.get_feature_names_out()) == expected.shape[-1]
    assert union.reach_ == max(part.reach_ for part in parts)
    for bad in ([], "haar", [1]):
        with pytest.raises(ValueError, match="transformers"):
            ChannelUnion(bad).fit(IMAGE[None])


def test_channels_depend_on_nothing_beyond_their_reach():
    for part in (FilterBank("dct"), FilterBank("gaussian_derivatives"), PatchShrinkage([0.3])):
        large = np.tile(IMAGE, (3, 3))
        part.fit(large[None])
        assert part.reach_ < 20
        whole = part.transform(large[None])[0]
        cut = part.transform(large[None, 25:70, 30:80])[0]
        reach = part.reach_
        assert_allclose(
            cut[reach:-reach, reach:-reach], whole[25 + reach : 70 - reach, 30 + reach : 80 - reach], atol=1e-5
        )


def test_principal_components_are_learned():
    stripes = np.tile(np.sin(np.arange(40)), (30, 1)) + 0.01 * RNG.normal(size=(30, 40))
    bank = FilterBank("pca").fit(stripes[None])
    assert len(bank.kernels_) == 25
    assert bank.get_feature_names_out()[:3].tolist() == ["intensity", "mean", "pca_0"]
    # Two waves across describe the whole image.
    for kernel in bank.kernels_[1:3]:
        assert np.ptp(kernel, axis=0).max() < 0.05 * np.ptp(kernel)
    gram = np.array([[np.sum(a * b) for a in bank.kernels_[1:]] for b in bank.kernels_[1:]])
    assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)
    again = FilterBank("pca").fit(stripes[None])
    assert_array_equal(bank.transform(IMAGE[None]), again.transform(IMAGE[None]))
    assert FilterBank("pca").fit_transform(IMAGE[None, :5, :4]).shape == (1, 5, 4, 26)
