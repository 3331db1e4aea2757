"""Refinement of probabilities in one call."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial, refine


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


def test_invalid_input():
    probabilities, image, _ = picture()
    with pytest.raises(ValueError, match=r"those of pixel \(0, 0\) add up"):
        refine(probabilities.transpose(2, 0, 1), image)
    with pytest.raises(ValueError, match=r"those of pixel \(0, 3\) add up to nan"):
        refine(np.where(np.arange(24)[:, np.newaxis] == 3, np.nan, probabilities), image)
    with pytest.raises(ValueError, match="must not be negative"):
        refine(np.stack([np.full((3, 3), -0.5), np.full((3, 3), 1.5)], axis=-1), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"image has shape \(24, 20, 3\), but probabilities are of a lattice"):
        refine(probabilities, image.transpose(1, 0, 2))
    with pytest.raises(ValueError, match=r"kernels\[0\].bandwidth must be positive"):
        refine(probabilities, image, kernels=(Spatial(0),))
    with pytest.raises(ValueError, match="has no image, which"):
        refine(probabilities, kernels=(Bilateral(),))
    with pytest.raises(ValueError, match=r"2\*\*63"):
        refine(probabilities, image, kernels=(Bilateral(1e-9, 1e-9),))
    with pytest.raises(MemoryError, match="max_memory"):
        refine(probabilities, image, max_memory=1000)
    with pytest.raises(ValueError, match="clip must lie"):
        refine(probabilities, image, clip=0)


@pytest.mark.parametrize("bandwidth", [1e-3, 1e-2, 0.1, 1.0, 1e3, 1e8])
def test_any_bandwidth_gives_probabilities(bandwidth):
    probabilities, image, _ = picture()
    for kernels in ([Spatial(bandwidth)], [Bilateral(bandwidth, 1.0)], [Bilateral(10.0, max(bandwidth, 0.1))]):
        refined = refine(probabilities, image, kernels=kernels)
        assert np.isfinite(refined).all()
        assert_allclose(refined.sum(axis=-1), 1.0)
