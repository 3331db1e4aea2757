"""Colour and texture features of pixels."""

import builtins

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf.preprocessing import PixelFeatures

pytest.importorskip("skimage", reason="scikit-image is an optional extra")


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (2, 9, 11, 3)).astype(np.uint8)


def test_colours_of_black_white_and_red():
    image = np.zeros((1, 1, 3, 3), dtype=np.uint8)
    image[0, 0, 1], image[0, 0, 2] = 255, (255, 0, 0)
    lab = PixelFeatures().fit_transform(image)[0, 0, :, :3]
    assert_allclose(lab[0], 0, atol=1e-6)
    assert_allclose(lab[1], [100, 0, 0], atol=1e-2)
    assert_allclose(lab[2], [53.24, 80.09, 67.20], atol=0.05)


def test_texture_equals_scikit_image(images):
    from skimage.feature import structure_tensor
    from skimage.feature import structure_tensor_eigenvalues as reference

    features = PixelFeatures(sigma=1.5).fit_transform(images)[0]
    for plane in range(3):
        tensor = structure_tensor(features[..., plane], sigma=1.5, mode="nearest", order="rc")
        expected = reference(tensor) / 64  # the Sobel filters of that implementation are not divided by 8
        assert_allclose(features[..., 3 + 2 * plane], expected[0], rtol=1e-9)
        assert_allclose(features[..., 4 + 2 * plane], expected[1], rtol=1e-6, atol=1e-9)


def test_an_edge_has_one_large_eigenvalue_and_a_flat_region_none():
    image = np.zeros((1, 20, 20, 3))
    image[0, :, 10:] = 1.0
    features = PixelFeatures().fit_transform(image)[0]
    assert features[10, 10, 3] > 100
    assert_allclose(features[..., 4::2], 0, atol=1e-8)
    assert_allclose(features[:, 2, 3:], 0, atol=1e-8)


@pytest.mark.parametrize(("scale", "function"), [("sqrt", np.sqrt), ("log", np.log1p)])
def test_scales_of_texture(images, scale, function):
    linear = PixelFeatures().fit_transform(images)
    scaled = PixelFeatures(texture_scale=scale).fit_transform(images)
    assert_allclose(scaled[..., 3:], function(linear[..., 3:]))
    assert_array_equal(scaled[..., :3], linear[..., :3])


def test_layouts_dtypes_and_names(images):
    model = clone(PixelFeatures())
    whole = model.fit_transform(images)
    ragged = model.transform([images[0], images[1, :5]])
    assert ragged.dtype == object
    assert [part.shape for part in ragged] == [(9, 11, 9), (5, 11, 9)]
    assert_array_equal(ragged[0], whole[0])
    same_size = model.transform(list(images))
    assert same_size.shape == (2,)
    floats = model.transform((images / 255).astype(np.float32))
    assert floats.dtype == np.float32
    assert_allclose(floats, whole, rtol=1e-3, atol=1e-2)
    assert len(model.get_feature_names_out()) == whole.shape[-1]


def test_read_only_images(images):
    images.flags.writeable = False
    assert np.isfinite(PixelFeatures().fit_transform(images)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[0], r"shape \(9, 11, 3\), expected \(n_images, H, W, 3\)"),
        (lambda x: [x[0], x[1, ..., :2]], r"image 1 has shape \(9, 11, 2\)"),
        (lambda x: x.astype(int), "image 0 has dtype int64"),
        (lambda x: x.astype(float), "values from 0.0 to 255.0"),
        (lambda x: x * np.nan, "values from nan"),
    ],
)
def test_wrong_images(images, change, message):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(PixelFeatures(), method)(change(images))


def test_wrong_parameters(images):
    with pytest.raises(ValueError, match="sigma"):
        PixelFeatures(sigma=0).fit(images)
    with pytest.raises(ValueError, match="'texture_scale' parameter of PixelFeatures must be a str among"):
        PixelFeatures(texture_scale="cube").fit(images)


def test_without_scikit_image(images, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("skimage"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install sklearn_crf\[images\]"):
        PixelFeatures().fit(images).transform(images)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_masked_pixels_are_refused(dtype):
    image = np.ma.masked_array(np.ones((8, 8, 3), dtype=dtype), np.zeros((8, 8, 3), dtype=bool))
    image[2, 3] = np.ma.masked
    with pytest.raises(ValueError, match="image 0 has values from nan to nan; they must be 0 to 1, not NaN"):
        PixelFeatures().fit([image])
