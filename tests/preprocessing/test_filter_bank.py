"""The filter bank, compared with scipy's correlation; tiles and threads do not change results."""

import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import correlate
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_crf.preprocessing import FilterBank, NodeTransformer, _tuning

IMAGE = np.random.default_rng(0).normal(100, 30, size=(31, 44))


def reference(image, kernels):
    """Compute each response by scipy, whose origin is also entry length // 2."""
    return np.stack([correlate(image, kernel, mode="reflect") for kernel in kernels], axis=-1)


@pytest.mark.parametrize("bank", ["rfs", "gaussian_derivatives", "haar", ("haar", "rfs")])
def test_responses_are_correlations(bank):
    bank = FilterBank(bank).fit(IMAGE[None])
    found = bank.transform(IMAGE[None])[0]
    assert found.dtype == np.float32
    assert found.shape == (31, 44, 1 + len(bank.kernels_))
    assert_array_equal(found[..., 0], IMAGE.astype(np.float32))
    assert_allclose(found[..., 1:], reference(IMAGE, bank.kernels_), atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 5), (7, 2)])
def test_own_kernels(shape):
    kernels = np.random.default_rng(1).normal(size=(3, *shape))
    found = FilterBank(kernels, include_input=False).fit_transform(IMAGE[None])[0]
    assert_allclose(found, reference(IMAGE, kernels), rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("tile", [5, 16, 40])
def test_tiles_change_rounding_only(tile, monkeypatch):
    whole = FilterBank().fit_transform(IMAGE[None])
    monkeypatch.setattr(_tuning, "TILE_SIDE", tile)
    assert_allclose(FilterBank().fit_transform(IMAGE[None]), whole, atol=1e-3)


def test_threads_change_nothing():
    images = [IMAGE, IMAGE[:20], IMAGE[:, :7]]
    one, three = (FilterBank(("rfs", "haar"), n_jobs=n).fit_transform(images) for n in (1, 3))
    alone = FilterBank(("rfs", "haar"), n_jobs=2).fit_transform(IMAGE[None])
    for a, b in zip(one, three, strict=True):
        assert_array_equal(a, b)
    assert_array_equal(alone[0], one[0])


def test_rfs_bank_is_what_it_says():
    bank = FilterBank("rfs").fit(IMAGE[None])
    kernels = np.array(bank.kernels_)
    assert kernels.shape == (38, 49, 49)
    names = bank.get_feature_names_out().tolist()
    assert names[:3] == ["intensity", "edge_1_0", "edge_1_30"]
    assert names[-2:] == ["gaussian_10", "laplacian_10"]
    assert_allclose(kernels.sum(axis=(1, 2)), np.arange(38) == 36, atol=1e-12)
    assert_allclose(np.abs(kernels).sum(axis=(1, 2)), 1, rtol=1e-12)
    # A quarter turn maps each orientation to the orientation 90 degrees on, edges up to their sign.
    by_name = dict(zip(names[1:], kernels, strict=True))
    for scale in (1, 2, 4):
        for angle in (0, 30, 60):
            turned = np.rot90(by_name[f"bar_{scale}_{angle}"])
            assert_allclose(turned, by_name[f"bar_{scale}_{angle + 90}"], atol=1e-12)
            turned = np.rot90(by_name[f"edge_{scale}_{angle}"])
            other = by_name[f"edge_{scale}_{angle + 90}"]
            assert min(np.abs(turned - other).max(), np.abs(turned + other).max()) < 1e-12


def test_channels_and_names():
    colours = np.stack([IMAGE, 2 * IMAGE, -IMAGE], axis=-1)
    bank = FilterBank("haar").fit(colours[None])
    found = bank.transform(colours[None])[0]
    names = bank.get_feature_names_out()
    assert found.shape[-1] == len(names) == 3 + 3 * 16
    assert names[2] == "channel2"
    single = FilterBank("haar", include_input=False).fit_transform(2 * IMAGE[None])[0]
    at = names.tolist().index("channel1_haar_mean_2")
    assert_allclose(found[..., at : at + 16], single, atol=1e-3)
    assert bank.get_feature_names_out(["r", "g", "b"])[3] == "r_haar_mean_2"


def test_pipeline_clone_pickle_and_input():
    images = [IMAGE.astype(np.uint8), IMAGE[:5, :4].astype(np.uint8)]
    pipeline = make_pipeline(FilterBank("haar"), NodeTransformer(StandardScaler()))
    found = clone(pipeline).fit(images).transform(images)
    assert [x.shape for x in found] == [(31, 44, 17), (5, 4, 17)]
    bank = FilterBank().fit(images)
    frozen = IMAGE[None].copy()
    frozen.flags.writeable = False
    assert_array_equal(pickle.loads(pickle.dumps(bank)).transform(frozen), bank.transform(IMAGE[None]))


@pytest.mark.parametrize(
    ("bank", "message"),
    [
        ("lm", "The 'bank' parameter of FilterBank must be a str among"),
        (
            ("haar", "lm"),
            "'gaussian_derivatives', 'haar', 'dct', 'pca' or an array of kernels, got 'lm'.",
        ),
        ([["a"]], "if bank is an array of kernels, it must be numeric"),
        (
            np.ones((3, 3)),
            "numbers up to 1e+15 of shape (n_filters, height, width), got numbers up to 1 of shape (3, 3).",
        ),
    ],
)
def test_bad_banks_are_named(bank, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        FilterBank(bank).fit(IMAGE[None])


def test_another_number_of_channels_is_refused():
    with pytest.raises(ValueError, match="3 channels, but images in fit had 1"):
        FilterBank().fit(IMAGE[None]).transform(np.ones((1, 4, 4, 3)))


def test_one_image_in_colours_is_not_many_grey_images():
    with pytest.raises(ValueError, match=r"X has shape \(20, 24, 3\), which may be one image in colours"):
        FilterBank().fit(np.ones((20, 24, 3)))


def test_transformers_that_drop_rows_are_named():
    transformer = NodeTransformer(FunctionTransformer(lambda rows: rows[1:]))
    with pytest.raises(ValueError, match="got 39 rows for 40 nodes: keep one row for each node"):
        transformer.fit_transform(np.ones((4, 10, 2)))
