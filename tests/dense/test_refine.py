"""Refinement of probabilities in one call."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial, refine

# Weights that were published for weak scores
PUBLISHED = [Spatial(3.0, weight=3.0), Bilateral(80.0, 13.0, weight=10.0)]


def picture(shape=(20, 24), n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.indices(shape)[1] * n_classes // shape[1]
    image = 90.0 * labels[..., np.newaxis] + rng.normal(scale=8, size=(*shape, 3))
    scores = np.eye(n_classes)[labels] + rng.normal(scale=1.5, size=(*shape, n_classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return probabilities, image, labels


def test_refined_probabilities_are_better_and_add_up():
    probabilities, image, labels = picture()
    refined = refine(probabilities, image)
    assert refined.shape == probabilities.shape
    assert_allclose(refined.sum(axis=-1), 1.0)
    assert np.mean(refined.argmax(axis=-1) == labels) > np.mean(probabilities.argmax(axis=-1) == labels) + 0.2


def test_default_weights_keep_good_scores_that_published_weights_harm():
    rng = np.random.default_rng(0)
    labels = (gaussian_filter(rng.normal(size=(64, 64)), 5) > 0).astype(int)
    image = 128 + 60 * (labels - 0.5) + 40 * rng.normal(size=labels.shape)
    p = 1 / (1 + np.exp(-gaussian_filter(image - 128, 1.5) / 4))
    good = np.stack([1 - p, p], axis=-1)
    errors = [
        np.mean(q.argmax(axis=-1) != labels)
        for q in (good, refine(good, image), refine(good, image, kernels=PUBLISHED))
    ]
    assert errors[0] < 0.05
    assert errors[1] < 1.1 * errors[0]
    assert errors[2] > 1.5 * errors[0]


def test_it_is_the_fixed_field():
    probabilities, image, labels = picture()
    example = DenseExample(np.log(np.maximum(probabilities, 1e-5)), image)
    field = DenseCRF(learning="fixed").fit([example], [labels])
    assert_array_equal(refine(probabilities, image), field.predict_proba([example])[0])


def test_published_update_written_out():
    probabilities, image, _ = picture((6, 7))
    kernels = [Spatial(2.0, weight=1.5), Bilateral((4.0, 5.0), 20.0, weight=2.0)]
    position = np.indices((6, 7)).reshape(2, -1).T
    features = [position / 2.0, np.hstack([position / [4.0, 5.0], image.reshape(-1, 3) / 20.0])]
    message = 0.0
    for kernel, feature in zip(kernels, features, strict=True):
        matrix = np.exp(-0.5 * np.square(feature[:, np.newaxis] - feature).sum(axis=-1))
        scale = 1 / np.sqrt(matrix.sum(axis=1))
        message = message + kernel.weight * (scale[:, np.newaxis] * matrix * scale) @ probabilities.reshape(-1, 3)
    expected = probabilities.reshape(-1, 3) * np.exp(message)
    expected /= expected.sum(axis=1, keepdims=True)
    found = refine(probabilities, image, kernels=kernels, max_iter=1).reshape(-1, 3)
    assert np.abs(found - expected).mean() < 0.02
    assert np.abs(probabilities.reshape(-1, 3) - expected).mean() > 0.05


@pytest.mark.parametrize(("dtype", "result"), [(np.float16, np.float32), (np.float32, np.float32), (float, float)])
def test_precisions(dtype, result):
    probabilities, image, _ = picture()
    refined = refine(probabilities.astype(dtype), image.astype(np.uint8))
    assert refined.dtype == result
    assert_allclose(refined, refine(probabilities, image.astype(np.uint8)), atol=0.02)


def test_certain_and_read_only_probabilities_without_an_image():
    probabilities = np.eye(2)[np.indices((8, 9))[0] // 4]
    probabilities.flags.writeable = False
    refined = refine(probabilities)
    assert np.isfinite(refined).all()
    assert_array_equal(refined.argmax(axis=-1), probabilities.argmax(axis=-1))


def test_same_bits_for_any_number_of_jobs():
    probabilities, image, _ = picture((40, 50))
    expected = refine(probabilities, image)
    for n_jobs in (2, 8):
        assert_array_equal(refine(probabilities, image, n_jobs=n_jobs), expected)


# One image in the forms that libraries return, and whether its colours are recovered exactly.
FORMS = {
    "uint8": lambda image: image,
    "bytes in int64": lambda image: image.astype(np.int64),
    "bytes in floats": lambda image: image.astype(float),
    "floats of 0 to 1": lambda image: image / 255,
    "float32 of 0 to 1": lambda image: (image / 255).astype(np.float32),
    "floats of -1 to 1": lambda image: image / 127.5 - 1,
    "uint16": lambda image: image.astype(np.uint16) * 257,
    "uint16 in floats": lambda image: image.astype(float) * 257,
    "0 to 10": lambda image: image / 25.5,
    "0 to 1023": lambda image: image * (1023 / 255),
    "standardised": lambda image: (image - image.mean()) / image.std(),
}


def photograph(seed=0):
    """Return an image of two regions whose colours reach 0 and 255, and weak probabilities."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((24, 32), dtype=int)
    labels[6:18, 8:24] = 1
    colours = np.array([[60.0, 90.0, 180.0], [200.0, 60.0, 40.0]])[labels]
    image = (colours + rng.normal(scale=15, size=(24, 32, 3))).clip(0, 255).astype(np.uint8)
    image[0, 0], image[0, 1] = 0, 255
    p = np.clip(0.5 + 0.2 * (2 * labels - 1) + 0.25 * rng.normal(size=labels.shape), 0.02, 0.98)
    return np.stack([1 - p, p], axis=-1), image, labels


@pytest.mark.parametrize("form", FORMS)
def test_labels_do_not_depend_on_the_form_of_the_image(form):
    probabilities, image, labels = photograph()
    expected = refine(probabilities, image, kernels=PUBLISHED)
    assert np.mean(expected.argmax(axis=-1) == labels) > 0.99 > np.mean(probabilities.argmax(axis=-1) == labels) + 0.1
    refined = refine(probabilities, FORMS[form](image), kernels=PUBLISHED)
    assert_allclose(refined, expected, atol=1e-3)
    assert_array_equal(refined.argmax(axis=-1), expected.argmax(axis=-1))


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1000.0, 1e9, -1e30])
def test_an_image_of_one_colour_says_nothing(value):
    probabilities, image, _ = photograph()
    expected = refine(probabilities, np.full(image.shape, 7, dtype=np.uint8), kernels=PUBLISHED)
    assert_allclose(refine(probabilities, np.full(image.shape, value), kernels=PUBLISHED), expected, atol=1e-3)


def test_colours_may_be_far_from_zero():
    probabilities, image, _ = photograph()
    found = refine(probabilities, image + 1e9)
    assert_array_equal(found.argmax(axis=-1), refine(probabilities, image).argmax(axis=-1))


def test_a_mask_is_an_image_of_two_colours():
    probabilities, _, labels = photograph()
    expected = refine(probabilities, np.uint8(255) * labels.astype(np.uint8))
    for mask in (labels.astype(bool), labels, labels.astype(float)):
        assert_array_equal(refine(probabilities, mask), expected)


def test_a_given_range_of_colours():
    probabilities, image, _ = photograph()
    dark = image.astype(np.uint16)  # values of a 12-bit camera would be too dark in the range of the type
    assert_array_equal(refine(probabilities, dark, color_range=(0, 255)), refine(probabilities, image))
    assert np.abs(refine(probabilities, dark) - refine(probabilities, image)).max() > 0.1
    kernels = [Bilateral(8.0, 0.05)]
    as_they_are = refine(probabilities, image / 255, kernels=kernels, color_range=(0, 255))
    assert_allclose(as_they_are, refine(probabilities, image, kernels=[Bilateral(8.0, 0.05 * 255)]), atol=1e-6)
    with pytest.raises(
        ValueError, match=r"channel_bandwidth=0.05 is less than one colour .* pass 12.75, or color_range"
    ):
        refine(probabilities, image / 255, kernels=kernels)
    for wrong in ((1, 0), (0, 1, 2), 255, "uint8", (0, np.inf)):
        with pytest.raises(ValueError, match="color_range must be two finite numbers"):
            refine(probabilities, image, color_range=wrong)


@pytest.mark.parametrize(
    ("form", "ends"),
    [(lambda image: (16 * image).astype(np.uint16), (0, 4095)), (lambda image: 1e-6 * image, (0, 255e-6))],
    ids=["12 bits in 16", "units of 1e-6"],
)
def test_an_image_of_a_small_part_of_its_range_is_warned_of(form, ends):
    probabilities, image, _ = picture()
    image = image.clip(0, 255)
    with pytest.warns(UserWarning, match="a small part of the assumed range .* pass the range of the colours"):
        refine(probabilities, form(image))
    with warnings.catch_warnings(action="error"):
        refined = refine(probabilities, form(image), color_range=ends)
        refine(probabilities, (image / 5).astype(np.uint8))
    assert np.mean(refined.argmax(axis=-1) == refine(probabilities, image).argmax(axis=-1)) > 0.99


def test_many_images_are_no_volume():
    first, second = photograph(0), photograph(1)
    probabilities, images = np.stack([first[0], second[0]]), np.stack([first[1], second[1]])
    with pytest.raises(
        ValueError,
        match="one lattice with 3 axes or 2 images: pass lattice_ndim=3 for one lattice, or lattice_ndim=2 to refine",
    ):
        refine(probabilities, images)
    together = refine(probabilities, images, lattice_ndim=2)
    assert_array_equal(together, [refine(*first[:2]), refine(*second[:2])])
    assert_array_equal(refine(probabilities, lattice_ndim=2), [refine(first[0]), refine(second[0])])
    volume = refine(probabilities, images, lattice_ndim=3)
    assert_array_equal(volume, refine(probabilities, images, spacing=(1.0, 1.0, 1.0)))
    assert np.abs(volume - together).max() > 0.01
    with pytest.raises(ValueError, match="do not fit lattice_ndim=1"):
        refine(probabilities, images, lattice_ndim=1)
    with pytest.raises(ValueError, match="image holds 1 images, but probabilities has 2"):
        refine(probabilities, images[:1], lattice_ndim=2)
    # All images of a batch share one range of colours, including the darker image.
    bright_and_dark = np.stack([images[0] / 255, images[0] / 2550])
    found = refine(probabilities[[0, 0]], bright_and_dark, lattice_ndim=2)
    assert_array_equal(found[1], refine(probabilities[0], bright_and_dark[1], color_range=(0, 1)))


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 5), (2, 3, 4, 5), (2, 2, 3, 2, 2)])
def test_several_lattices_are_not_one_lattice(shape):
    rng = np.random.default_rng(0)
    probabilities, ndim = rng.dirichlet([1, 1], size=shape), len(shape)
    kernels = [Spatial(1.0)]
    as_one = refine(probabilities, kernels=kernels, lattice_ndim=ndim)
    assert_array_equal(as_one, refine(probabilities, kernels=kernels, spacing=(1.0,) * ndim))
    if ndim > 1:
        each = [refine(part, kernels=kernels, lattice_ndim=ndim - 1) for part in probabilities]
        assert_array_equal(refine(probabilities, kernels=kernels, lattice_ndim=ndim - 1), each)
        assert np.abs(as_one - each).max() > 0.01
    if ndim < 3:
        assert_array_equal(as_one, refine(probabilities, kernels=kernels))
    else:
        message = f"lattice_ndim={ndim} for one lattice, or lattice_ndim={ndim - 1} to refine"
        with pytest.raises(ValueError, match=message):
            refine(probabilities, kernels=kernels)


def test_a_list_holds_images():
    probabilities, image, _ = picture((6, 8))
    other = probabilities[::-1].copy()
    found = refine([probabilities, other], [image, image])
    assert_array_equal(found, refine(np.stack([probabilities, other]), np.stack([image, image]), lattice_ndim=2))
    # Lists of lists, and lists of rows, are one image.
    assert_array_equal(refine(probabilities.tolist(), image), refine(probabilities, image))
    assert_array_equal(refine(list(probabilities), image), refine(probabilities, image))


def test_invalid_input():
    probabilities, image, _ = picture()
    for images in (image, image[np.newaxis], [image]):
        with pytest.raises(ValueError, match=r"classes before the pixels, .*moveaxis\(probabilities, 1, -1\)"):
            refine(probabilities.transpose(2, 0, 1)[np.newaxis], images)
    with pytest.raises(ValueError, match=r"classes first, but the classes must be the last axis"):
        refine(probabilities.transpose(2, 0, 1), image)
    with pytest.raises(ValueError, match=r"at pixel \(0, 0\) they add up"):
        refine(2 * probabilities, image)
    with pytest.raises(ValueError, match=r"at pixel \(0, 3\) they add up to nan"):
        refine(np.where(np.arange(24)[:, np.newaxis] == 3, np.nan, probabilities), image)
    with pytest.raises(ValueError, match="must not be negative"):
        refine(np.stack([np.full((3, 3), -0.5), np.full((3, 3), 1.5)], axis=-1), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"image has shape \(24, 20, 3\), but probabilities are for a lattice"):
        refine(probabilities, image.transpose(1, 0, 2))
    with pytest.raises(ValueError, match=r"kernels\[0\].bandwidth must be positive"):
        refine(probabilities, image, kernels=(Spatial(0),))
    with pytest.raises(ValueError, match="has no image, but"):
        refine(probabilities, kernels=(Bilateral(),))
    with pytest.raises(ValueError, match=r"2\*\*63"):
        refine(probabilities, image, kernels=(Bilateral(1e-9, 1e-9),))
    with pytest.raises(MemoryError, match="max_memory"):
        refine(probabilities, image, max_memory=1000)
    with pytest.raises(ValueError, match="clip must lie"):
        refine(probabilities, image, clip=0)
    with pytest.raises(ValueError, match="clip must be a number"):
        refine(probabilities, image, clip=None)
    with pytest.raises(ValueError, match="max_memory must be a number"):
        refine(probabilities, image, max_memory=None)
    with pytest.raises(ValueError, match="spacing must hold numbers"):
        refine(probabilities, image, spacing="x")


@pytest.mark.parametrize("bandwidth", [1e-3, 1e-2, 0.1, 1.0, 1e3, 1e8])
def test_any_bandwidth_gives_probabilities(bandwidth):
    probabilities, image, _ = picture()
    for kernels in ([Spatial(bandwidth)], [Bilateral(bandwidth, 1.0)], [Bilateral(10.0, max(bandwidth, 0.1))]):
        refined = refine(probabilities, image, kernels=kernels)
        assert np.isfinite(refined).all()
        assert_allclose(refined.sum(axis=-1), 1.0)


@pytest.mark.parametrize("image", [3.0, 10**30])
def test_a_number_is_no_image_of_many(image):
    with pytest.raises(ValueError, match="image holds 1 images, but probabilities has 3"):
        refine(np.full((3, 4, 2), 0.5), image, lattice_ndim=1)
