"""LearnedFilters: restoration of noise and blocks, layouts, levels of noise, the contract of scikit-learn."""

import pickle
from copy import copy

import numpy as np
import pytest
from estimator_contract import passed_checks
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import LearnedFilters
from sklearn_crf.rtf import JPEG, GaussianNoise, MissingPixels

QUICK = {"n_stages": 2, "filter_size": 3, "max_iter": 60, "random_state": 0}


def blocks(n=8, side=32, seed=0):
    """Return squares of random grey in the range of bytes."""
    return np.kron(np.random.default_rng(seed).integers(40, 216, (n, side // 8, side // 8)), np.ones((8, 8)))


def noisy(clean, level, seed=1):
    return clean + level * np.random.default_rng(seed).normal(size=np.shape(clean))


def error(found, clean):
    return float(np.sqrt(np.mean((np.asarray(found, dtype=float) - clean) ** 2)))


@pytest.fixture(scope="module")
def model():
    return LearnedFilters(GaussianNoise(20), **QUICK).fit(blocks(12))


def test_noise_of_images_not_seen_is_removed(model):
    clean = blocks(6, 48, seed=7)
    assert error(model.predict(noisy(clean, 20)), clean) < 8
    assert model.loss_curve_[-10:].mean() < 0.5 * model.loss_curve_[0]
    assert model.validation_curve_.min() < 0.7 * model.validation_curve_[0]
    assert model.n_iter_ == len(model.loss_curve_) == 60
    assert_allclose(np.linalg.norm(model.filters_, axis=(2, 3)), 1)
    assert_allclose(model.filters_.sum(axis=(2, 3)), 0, atol=1e-12)


def test_pairs_of_images_are_enough():
    clean = blocks(12)
    model = LearnedFilters(**QUICK).fit(noisy(clean, 20), clean)
    test = blocks(4, seed=7)
    assert model.unit_ == pytest.approx(20, rel=0.1)
    assert error(model.predict(noisy(test, 20, 3)), test) < 10
    assert model.score(noisy(test, 20, 3), test) > 0.9
    assert model.score(noisy(test, 20, 3), test, sample_weight=[1, 0, 2, 1]) > 0.9


def test_blocks_of_compressed_images_are_removed():
    rng = np.random.default_rng(0)
    smooth = np.add.outer(np.linspace(0, 90, 64), np.linspace(0, 60, 64))
    clean = np.stack([50 + smooth * rng.uniform(0.3, 1) for _ in range(8)])
    damage = JPEG(5)
    model = LearnedFilters(damage, **QUICK).fit(clean)
    damaged = np.stack([damage(image, rng) for image in clean])
    assert error(model.predict(damaged), clean) < 0.8 * error(damaged, clean)


def test_one_model_is_trained_for_several_qualities_of_compressed_images():
    rng = np.random.default_rng(0)
    smooth = np.add.outer(np.linspace(0, 90, 96), np.linspace(0, 60, 96))
    clean = np.stack([50 + smooth * rng.uniform(0.3, 1) for _ in range(8)])
    model = LearnedFilters(JPEG(3, 40), **QUICK).fit(clean)
    for quality in (3, 10, 30):
        damaged = np.stack([JPEG(quality)(image, rng) for image in clean])
        assert error(model.predict(damaged), clean) < 0.8 * error(damaged, clean)
    colour = np.stack([damaged] * 3, axis=-1)
    assert_allclose(model.predict(colour)[..., 0], model.predict(damaged), atol=1)


def test_images_in_other_units_are_restored_alike(model):
    clean, test = blocks(12), noisy(blocks(2, seed=7), 20)
    small = LearnedFilters(GaussianNoise(20e-6), **QUICK).fit(1e-6 * clean + 3)
    assert_allclose((small.predict(1e-6 * test + 3) - 3) * 1e6, model.predict(test), atol=0.5)


@pytest.mark.parametrize("level", [8, 20, 45])
def test_other_levels_of_noise_are_restored_in_their_units(model, level):
    model = copy(model).set_params(clip=None)
    clean = 128 + level / 20 * (blocks(3, 96, seed=7) - 128)
    test = noisy(clean, level)
    found = model.predict(test, noise=level)
    assert_allclose(found, 128 + level / 20 * (model.predict(128 + 20 / level * (test - 128)) - 128), atol=1e-3 * level)
    assert error(found, clean) < 0.5 * level
    assert error(model.predict(list(test), noise="auto")[0], found[0]) < 0.2 * level
    assert_array_equal(model.predict(test, noise=[level] * 3), found)


@pytest.mark.parametrize("low", [0, 5])
def test_one_model_is_trained_for_several_levels_of_noise(low):
    model = LearnedFilters(GaussianNoise(low, 40), **QUICK | {"clip": None}).fit(blocks(12))
    assert model.unit_ > 0
    clean = blocks(3, 96, seed=7)
    for level in (5, 20, 40):
        test = noisy(clean, level)
        found = model.predict(test)
        assert error(found, clean) < 0.65 * level
        assert_array_equal(model.predict(test, noise="auto"), found)
        assert error(model.predict(test, noise=level), clean) < 0.65 * level
    assert error(model.predict(clean), clean) < 1


@pytest.mark.parametrize("noise", [300, 1e30, np.inf, [5, 5, 5, 1000]])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_levels_of_noise_are_within_the_range_of_images(model, noise, dtype):
    message = "noise must be 'auto', a positive number" if noise == np.inf else "noise is in the units of X"
    with pytest.raises(ValueError, match=message):
        model.predict(blocks(4).astype(dtype), noise=noise)


def test_noise_needs_training_for_gaussian_noise():
    clean = blocks(4)
    model = LearnedFilters(JPEG(20), **QUICK | {"max_iter": 2}).fit(clean)
    with pytest.raises(ValueError, match=r"noise requires training with corruption=GaussianNoise"):
        model.predict(clean, noise=5)


def test_other_noise_is_warned_of(model):
    with pytest.warns(UserWarning, match="pass noise='auto' to predict"):
        model.predict(noisy(blocks(1, 128), 90))


@pytest.mark.parametrize("make", [np.asarray, list])
def test_colours_are_restored_one_by_one(model, make):
    grey = noisy(blocks(3), 20)
    colour = np.stack([grey, grey[::-1], grey + 5], axis=-1)
    found = model.predict(make(colour))
    expected = [model.predict(colour[..., c]) for c in range(3)]
    assert isinstance(found, np.ndarray)
    assert_array_equal(np.stack(list(found)), np.stack(expected, axis=-1))
    assert model.predict(grey[..., np.newaxis]).shape == (3, 32, 32, 1)


@pytest.mark.filterwarnings("ignore:X has an image with noise")
def test_lists_of_images_of_any_sizes_are_taken():
    rng = np.random.default_rng(0)
    clean = [
        rng.integers(256, size=shape, dtype=np.uint8) for shape in [(9, 70), (12, 10, 3), (1, 5), (70, 66), (6, 6)]
    ]
    model = LearnedFilters(GaussianNoise(20), **QUICK | {"max_iter": 3}).fit(clean)
    found = model.predict(clean)
    assert found.dtype == object
    assert [image.shape for image in found] == [image.shape for image in clean]
    assert {image.dtype for image in found} == {np.dtype(np.uint8)}
    assert_array_equal(found[1], model.predict(clean[1:2])[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_predictions_have_the_type_and_range_of_targets(dtype):
    clean = blocks(5).astype(dtype)
    model = LearnedFilters(GaussianNoise(20), **QUICK | {"max_iter": 3}).fit(clean)
    found = model.predict(noisy(clean, 20))
    assert found.dtype == dtype
    assert found.min() >= (0 if np.dtype(dtype).kind == "u" else clean.min())
    assert model.set_params(clip=None).predict(noisy(clean, 20)).dtype == np.float64


def test_equal_images_are_learned_from():
    # There is no noise, and nothing to learn.
    model = LearnedFilters(**QUICK | {"max_iter": 3}).fit(blocks(3), blocks(3))
    assert np.isfinite(model.predict(blocks(3))).all()
    flat = LearnedFilters(**QUICK | {"max_iter": 3}).fit(np.ones((2, 9, 9)), np.ones((2, 9, 9)))
    assert_array_equal(flat.predict(np.ones((1, 9, 9))), 1)


def test_no_image_is_held_out_of_few():
    assert not len(LearnedFilters(GaussianNoise(20), **QUICK | {"max_iter": 2}).fit(blocks(4)).validation_curve_)
    none = LearnedFilters(GaussianNoise(20), validation_fraction=0, **QUICK | {"max_iter": 2}).fit(blocks(9))
    assert not len(none.validation_curve_)


@pytest.mark.parametrize("n_jobs", [2, 5])
def test_threads_do_not_change_results(model, n_jobs):
    other = clone(model).set_params(n_jobs=n_jobs).fit(blocks(12))
    assert_array_equal(other.filters_, model.filters_)
    large = noisy(blocks(1, 160), 20)
    assert_array_equal(other.predict(large), model.predict(large))


def test_models_are_cloned_pickled_and_searched(model):
    test = noisy(blocks(2, seed=7), 20)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(test), model.predict(test))
    search = GridSearchCV(LearnedFilters(**QUICK), {"max_iter": [1, 40]}, cv=2)
    clean = blocks(8)
    assert search.fit(noisy(clean, 20), clean).best_params_ == {"max_iter": 40}


def test_training_is_reproducible():
    fits = [LearnedFilters(GaussianNoise(20), **QUICK | {"max_iter": 4}).fit(blocks()) for _ in range(2)]
    assert_array_equal(fits[0].filters_, fits[1].filters_)
    other = LearnedFilters(GaussianNoise(20), **QUICK | {"max_iter": 4, "random_state": 1}).fit(blocks())
    assert not np.array_equal(other.filters_, fits[0].filters_)


def test_scikit_learns_checks_pass():
    # The other checks fit tables of rows, although the tags of the estimator require images.
    assert list(passed_checks(LearnedFilters(GaussianNoise(0.1), **QUICK))) == ["check_estimator_cloneable"]


WRONG = {
    "filter_size must be an odd number": ({"filter_size": 4}, blocks(2), None),
    "n_filters must be at most filter_size .* 8, got 9": ({"n_filters": 9}, blocks(2), None),
    "max_iter": ({"max_iter": 0}, blocks(2), None),
    "the target y is None": ({"corruption": None}, blocks(2), None),
    r"X\[1\] has NaN or infinity": ({}, [np.ones((4, 4)), np.full((4, 4), np.nan)], None),
    r"y\[0\] has NaN": ({}, np.ones((1, 9, 9)), np.full((1, 9, 9), np.inf)),
    r"X\[0\] must have shape": ({}, [np.ones(5)], None),
    "X of shape .* is one image": ({}, np.ones((5, 5)), None),
    "is ambiguous": ({}, np.ones((5, 5, 3)), None),
    "X must hold images": ({}, [], None),
    "X has 2 images, but y has 1": ({}, blocks(2), blocks(1)),
    r"X\[0\] has shape \(4, 4, 1\), but y\[0\] has \(8, 8, 1\)": ({}, [np.ones((4, 4))], [np.ones((8, 8))]),
    "noise is in the units of X": ({"corruption": GaussianNoise(25)}, blocks(2) / 255, None),
    "corruption must return finite images": ({"corruption": MissingPixels(0.5)}, blocks(2), None),
    "corruption must return finite": ({"corruption": GaussianNoise(5, level_channel=True)}, blocks(2), None),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_calls_are_refused(message):
    options, X, y = WRONG[message]
    model = LearnedFilters(**{"corruption": GaussianNoise(0.1), **QUICK, **options})
    with pytest.raises((ValueError, InvalidParameterError), match=message):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_fit_comes_first():
    with pytest.raises(NotFittedError):
        LearnedFilters().predict(blocks(1))


@pytest.mark.parametrize("levels", [(20,), (5, 50), None])
def test_images_in_another_unit_than_in_fit_are_refused(levels):
    clean = blocks(5)
    damage = noisy(clean, 20)
    if levels is None:
        model = LearnedFilters(**QUICK | {"max_iter": 2}).fit(damage, clean)
    else:
        model = LearnedFilters(GaussianNoise(*levels), **QUICK | {"max_iter": 2}).fit(clean)
    for wrong in (damage / 255, damage > 100, 257 * damage, (damage - 128) / 128):
        with pytest.raises(ValueError, match=r"^X has values from .* in fit: pass images in the units of fit"):
            model.predict(wrong)
    with pytest.warns(UserWarning, match="if its images are not very dark, pass them in the units of fit"):
        model.predict(damage / 64)
    model.predict(damage[:1])


def test_a_class_in_place_of_an_object_is_refused():
    with pytest.raises(ValueError, match="got the class GaussianNoise: call it, as in corruption=GaussianNoise"):
        LearnedFilters(GaussianNoise).fit(blocks(2))


@pytest.mark.parametrize(("unit", "offset"), [(1 / 255, 0), (1000, 0), (1, 1000), (-1, 255), (1e-20, 5)])
def test_targets_in_another_unit_are_refused(unit, offset):
    clean = blocks(8)
    given = noisy(clean, 20).clip(0, 255).astype(np.uint8)
    with pytest.raises(ValueError, match=r"y has another unit than X, whose values are about .* the same unit"):
        LearnedFilters(**QUICK).fit(given, unit * clean + offset)
    with pytest.raises(ValueError, match="another unit"):
        LearnedFilters(GaussianNoise(20), **QUICK).fit(clean, unit * clean + offset)


@pytest.mark.parametrize(
    "damage", [lambda x: noisy(x, 100), lambda x: gaussian_filter(x, (0, 6, 6)), lambda x: 0.7 * x]
)
def test_damage_is_not_mistaken_for_another_unit(damage):
    clean = blocks(8)
    LearnedFilters(**QUICK | {"max_iter": 1}).fit(damage(clean), clean)


@pytest.mark.parametrize("n_colours", [0, 3])
def test_images_of_any_layout_in_memory_are_restored_alike(model, n_colours):
    images = noisy(blocks(2), 20)
    images = np.stack([images] * n_colours, axis=3) if n_colours else images
    expected = model.predict(images)
    turned = [np.asfortranarray(image) for image in images]
    for found, own in zip(model.predict(turned), expected, strict=True):
        assert_array_equal(found, own)
