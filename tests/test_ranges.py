"""Ranges of images, and isolated values, which must not determine the range or the mean of an image."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import DenseCRF, LearnedFilters, RegressionTreeField, refine, restore
from sklearn_crf._ranges import clip_isolated_values, convert_to_bytes

RNG = np.random.default_rng(0)
CLEAN = 200 * np.kron(RNG.random((12, 8, 8)), np.ones((4, 4)))
NOISY = CLEAN + RNG.normal(scale=20, size=CLEAN.shape)


def clipped(*images):
    return clip_isolated_values(images, [f"X[{i}]" for i in range(len(images))], "Remove them.")


def with_value(images, value):
    found = np.array(images)
    found[0, 5, 5] = value
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [-9999.0, 1e6, 1e20, -3.4e38])
def test_isolated_values_are_clipped_and_named(value, dtype):
    images = with_value(NOISY, value).astype(dtype)
    images[1, 0, 0] = np.nan
    images.flags.writeable = False
    with pytest.warns(UserWarning, match=r"^1 value\(s\), such as X\[0\]\[5, 5\] = .*are clipped.*Remove them"):
        found = clipped(*images)
    others = np.array(images)
    others[0, 5, 5] = np.nan
    expected = np.nanmin(others) if value < 0 else np.nanmax(others)
    assert found[0].dtype == dtype
    assert found[0][5, 5] == expected
    others[0, 5, 5] = expected
    assert_array_equal(found, others)


def test_many_equal_sentinels_are_isolated():
    images = np.where(RNG.random(NOISY.shape) < 0.6, -9999, NOISY)
    with pytest.warns(UserWarning, match="-9999"):
        assert min(own.min() for own in clipped(*images)) == images[images > -9999].min()


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((5, 5)),
        np.full((5, 5), 1e9),
        np.eye(9),
        1e6 * np.eye(9),
        np.exp(4 * RNG.normal(size=(50, 50))),
        np.where(np.hypot(*np.ogrid[-40:40, -40:40]) < 9, RNG.normal(1000, 50, (80, 80)), RNG.normal(size=(80, 80))),
        np.pad([[255]], 20, constant_values=RNG.integers(4)).astype(np.uint8),
        with_value(NOISY, np.inf),
        np.full((3, 3), np.nan),
        with_value(NOISY, 600),
    ],
    ids=["0", "constant", "line", "long", "heavy tail", "object", "bytes", "inf", "nan", "hot pixel"],
)
def test_tails_objects_and_bytes_are_not_isolated(image):
    with warnings.catch_warnings(action="error"):
        assert clipped(image)[0] is image


@pytest.mark.parametrize("value", [-9999.0, 1e6, 1e20, -3.4e38])
@pytest.mark.parametrize("is_colour", [False, True])
def test_photographs_with_an_isolated_pixel_are_restored_as_without_it(value, is_colour):
    noisy = np.tile(NOISY[0], (2, 2))
    noisy = np.stack([noisy, noisy[::-1], noisy.T], axis=-1) if is_colour else noisy
    cell = (5, 5, 1) if is_colour else (5, 5)
    expected, image = restore(noisy), noisy.astype(np.float32)
    image[cell] = value
    with pytest.warns(UserWarning, match=r"image\[5, 5.*These pixels are returned unchanged"):
        found = restore(image)
    assert found[cell] == np.float32(value)
    assert np.abs(found - expected)[20:, 20:].max() < 1
    mask = np.zeros(noisy.shape[:2], dtype=bool)
    mask[5, 5] = True
    with warnings.catch_warnings(action="error"):
        filled = restore(image, mask=mask)
    assert np.all((filled[5, 5] > -100) & (filled[5, 5] < 400))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
def test_photon_counts_of_any_type_are_restored_alike(dtype):
    clean = np.kron(CLEAN[0, ::4, ::4], np.ones((12, 12)))
    counts = np.random.default_rng(0).poisson(clean / 8)
    found = restore(counts.astype(dtype))
    assert np.sqrt(np.mean((found - clean / 8) ** 2)) < 0.6 * np.sqrt(np.mean((counts - clean / 8) ** 2))
    expected = restore(counts.astype(float))
    assert np.abs(found - expected).mean() < 0.5


def test_a_hot_pixel_does_not_change_the_unit_of_photon_counts():
    counts = np.random.default_rng(0).poisson(np.tile(CLEAN[0], (3, 3)) / 8).astype(np.uint16)
    expected, image = restore(counts), counts.copy()
    image[5, 5] = 65535
    with pytest.warns(UserWarning, match="65535"):
        found = restore(image)
    assert np.abs(found.astype(float) - expected)[20:, 20:].max() <= 2


@pytest.mark.parametrize("role", ["X", "y"])
@pytest.mark.parametrize("value", [-9999.0, 1e6, 1e30])
def test_an_isolated_value_does_not_spoil_the_training_of_filters(value, role):
    model = LearnedFilters(n_stages=2, filter_size=3, max_iter=60, random_state=0)
    error = np.std(model.fit(NOISY[:8], CLEAN[:8]).predict(NOISY[8:]) - CLEAN[8:])
    given = {"X": NOISY[:8], "y": CLEAN[:8]} | {role: with_value((NOISY if role == "X" else CLEAN)[:8], value)}
    with pytest.warns(UserWarning, match=rf"{role}\[0\]\[5, 5\]"):
        model.fit(**given)
    assert np.std(model.predict(NOISY[8:]) - CLEAN[8:]) < 1.05 * error
    with pytest.warns(UserWarning, match=r"X\[0\]\[5, 5\]"):
        found = model.predict(with_value(NOISY[8:], value))
    assert np.abs(found - model.predict(NOISY[8:]))[0, 20:, 20:].max() < 1


@pytest.mark.parametrize("value", [-9999.0, 1e6])
def test_an_isolated_target_does_not_spoil_the_training_of_tree_fields(value):
    X = NOISY[..., np.newaxis]
    model = RegressionTreeField(max_depth=2, max_iter=20, random_state=0)
    error = np.std(model.fit(X[:8], CLEAN[:8]).predict(X[8:]) - CLEAN[8:])
    with pytest.warns(UserWarning, match=r"y\[0\]\[5, 5\].*replace them by NaN"):
        model.fit(X[:8], with_value(CLEAN[:8], value))
    assert np.std(model.predict(X[8:]) - CLEAN[8:]) < 1.05 * error


def scene(n):
    """Return scores with errors, colours and labels."""
    labels = np.zeros((n, 24, 32), dtype=int)
    labels[:, 6:18, 8:24] = 1
    colors = np.where(labels[..., np.newaxis], [200, 60, 40], [40, 90, 180]) + RNG.normal(scale=10, size=(n, 24, 32, 3))
    share = np.clip(0.2 + 0.6 * labels + 0.25 * RNG.normal(size=labels.shape), 0.02, 0.98)
    return np.stack([1 - share, share], axis=-1), colors, labels


@pytest.mark.parametrize("unit", [1, 1 / 300])
@pytest.mark.parametrize("value", [-9999.0, 1e6, 1e30])
def test_an_isolated_colour_does_not_change_dense_fields(value, unit):
    probabilities, colors, labels = scene(3)
    colors *= unit
    expected = refine(probabilities[0], colors[0])
    with pytest.warns(UserWarning, match=r"image\[5, 5, 1\].*or pass color_range"):
        found = refine(probabilities[0], np.where(np.arange(3) == 1, with_value(colors[:1], value)[0], colors[0]))
    far = np.ones(labels[0].shape, dtype=bool)
    far[5, 5] = False
    assert np.abs(found - expected)[far].max() < 0.05
    X = np.concatenate([np.log(probabilities), colors], axis=-1)
    model = DenseCRF(image_channels=3, max_iter=10)
    score, spoilt = model.fit(X, labels).score(X, labels), X.copy()
    spoilt[1, 5, 5, 3] = value
    with pytest.warns(UserWarning, match=r"X\[1\].image\[5, 5, 1\]"):
        model.fit(spoilt, labels)
    assert model.score(X, labels) > score - 0.01


def test_bytes_that_use_few_grey_values_are_warned_of():
    probabilities, colors, _ = scene(1)
    dark = (colors.clip(0, 255) / 13).astype(np.uint8)
    with pytest.warns(UserWarning, match="span only a small part of the assumed range 0 to 255"):
        refine(probabilities[0], dark[0])
    with warnings.catch_warnings(action="error"):
        refine(probabilities[0], dark[0], color_range=(0, 20))


@pytest.mark.parametrize(
    ("dtype", "factor"), [(np.uint8, 1), (np.uint16, 257), (np.float32, 1), (np.float64, 1), (np.float64, 1 / 255)]
)
def test_images_in_bytes_have_equal_values_in_any_type(dtype, factor):
    bytes_ = np.arange(256)
    found = convert_to_bytes((bytes_ * factor).astype(dtype))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, bytes_, rtol=1e-6 if factor < 1 else 0)
