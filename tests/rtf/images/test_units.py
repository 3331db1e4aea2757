"""Units, levels and ranges of X and y: equal restoration throughout the range of float64, or clear errors."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier, Shards
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.preprocessing import ChannelUnion, FilterBank, PatchAverages, PatchGroups, PatchShrinkage
from sklearn_crf.rtf import (
    JPEG,
    Blur,
    Cascade,
    Downsampling,
    FieldSolver,
    GaussianNoise,
    MissingPixels,
    Splits,
    Window,
)
from sklearn_crf.rtf.images._channels import ChannelUnits, InputSample

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "error:overflow", "error:invalid value", "error:divide by zero"
)

RNG = np.random.default_rng(0)
CLEAN = 200 * np.kron(RNG.random((8, 5, 5)), np.ones((4, 4)))
NOISY = CLEAN + 20 * RNG.normal(size=CLEAN.shape)
GAPPY = np.where(RNG.random(CLEAN.shape) < 0.3, np.nan, CLEAN)
KERNEL = np.array([[0.1, 0.2, 0.1], [0.05, 0.3, 0.05], [0.0, 0.1, 0.1]])
QUICK = {"max_depth": 1, "max_iter": 5, "random_state": 0}
BLURRED, SMALL = (
    np.stack([made(image, np.random.default_rng(i)) for i, image in enumerate(CLEAN)]).astype(np.float64)
    for made in (Blur(KERNEL, 5.0), Downsampling(2, 5.0))
)


def pairs(unit, level, X=NOISY, y=CLEAN, **options):
    """Return predictions of a field in units of ``CLEAN``."""
    field = RegressionTreeField(**QUICK | options).fit(X[:6, ..., None] * unit + level, y[:6] * unit + level)
    return (field.predict(X[6:, ..., None] * unit + level) - level) / unit


def clean(unit, level, X=NOISY, **options):
    field = RegressionTreeField(**QUICK | options).fit(CLEAN[:6] * unit + level)
    return (field.predict(X[6:] * unit + level) - level) / unit


def classes(unit, level):
    field = RegressionTreeFieldClassifier(**QUICK).fit(NOISY[:6, ..., None] * unit + level, CLEAN[:6] > 100)
    return field.predict_proba(NOISY[6:, ..., None] * unit + level)


def shards(unit, level):
    X, y = NOISY[..., None] * unit + level, CLEAN * unit + level
    field = RegressionTreeField(**QUICK).fit(Shards.from_arrays([(X[:2], y[:2]), (X[2:6], y[2:6])]))
    return (field.predict(X[6:]) - level) / unit


def chains(unit, level):
    X, y = [x[:, :3] * unit + level for x in NOISY], [x[:, 0] * unit + level for x in CLEAN]
    return (RegressionTreeField(**QUICK).fit(X[:6], y[:6]).predict(X[6:])[0] - level) / unit


def rows(unit, level):
    X = np.random.default_rng(1).normal(size=(300, 3))
    y = X[:, 0] + np.abs(X[:, 1])
    return (
        RegressionTreeField(**QUICK).fit(X * unit + level, y * unit + level).predict(X * unit + level) - level
    ) / unit


def distributions(unit, level):
    """Return predictions, deviations, and predictions given some known values, by pseudolikelihood."""
    X, y = NOISY[..., None] * unit + level, CLEAN * unit + level
    field = RegressionTreeField("pseudolikelihood", filter_bank=None, **QUICK).fit(X[:6], y[:6])
    known = np.where(np.arange(20)[:, None] % 4, np.nan, y[6:])
    mean, deviation = field.predict(X[6:], return_std=True)
    return np.stack([(mean - level) / unit, deviation / unit, (field.predict(X[6:], evidence=known) - level) / unit])


def held_out(unit, level):
    X, y = NOISY[..., None] * unit + level, CLEAN * unit + level
    options = {"filter_bank": None, "solver": FieldSolver(early_stopping=True)}
    mean, deviation = RegressionTreeField(**QUICK | options).fit(X[:6], y[:6]).predict(X[6:], return_std=True)
    return np.stack([(mean - level) / unit, deviation / unit])


def tiles(unit, level):
    X, y = NOISY[..., None] * unit + level, CLEAN * unit + level
    field = RegressionTreeField(filter_bank=None, **QUICK).fit(X[:6], y[:6])
    return (predict_in_tiles(field, X[6], tile=8).values - level) / unit


def filters(unit, level):
    bank = [
        FilterBank("gaussian_derivatives"),
        PatchShrinkage([54 * unit]),
        PatchAverages([18 * unit], guide_threshold=54 * unit),
        PatchGroups(20 * unit),
    ]
    return pairs(unit, level, filter_bank=ChannelUnion(bank))


def blurred(unit, level, gain=1.0, is_clean=False):
    X, degradation = BLURRED * (gain * unit) + gain * level, Blur(gain * KERNEL, 5.0 * gain * unit)
    field = RegressionTreeField(degradation=degradation, **QUICK)
    if is_clean:
        return (field.fit(CLEAN[:6] * unit + level).predict(X[6:]) - level) / unit
    return (field.fit(X[:6, ..., None], CLEAN[:6] * unit + level).predict(X[6:, ..., None]) - level) / unit


def enlarged(unit, level, is_clean=False):
    X, field = SMALL * unit + level, RegressionTreeField(degradation=Downsampling(2, 5.0 * unit), **QUICK)
    if is_clean:
        return (field.fit(CLEAN[:6] * unit + level).predict(X[6:]) - level) / unit
    return (field.fit(X[:6, ..., None], CLEAN[:6] * unit + level).predict(X[6:, ..., None]) - level) / unit


PLAIN = {"filter_bank": None}
TASKS = {
    "filters by name": pairs,
    "no filters": lambda u, c: pairs(u, c, **PLAIN),
    "given filters": filters,
    "mae": lambda u, c: pairs(u, c, loss="mae", **PLAIN),
    "psnr": lambda u, c: pairs(u, c, loss="psnr", **PLAIN),
    "ssim": lambda u, c: pairs(u, c, loss="ssim", **PLAIN),
    "residual": lambda u, c: pairs(u, c, split=Splits("residual"), **PLAIN),
    "missing pixels": lambda u, c: pairs(u, c, GAPPY, **PLAIN),
    "noise": lambda u, c: clean(u, c, corruption=GaussianNoise(10 * u, 30 * u)),
    "noise by a function": lambda u, c: clean(
        u, c, corruption=lambda x, rng: x + 20 * u * rng.normal(size=x.shape), **PLAIN
    ),
    "drawn gaps": lambda u, c: clean(u, c, GAPPY, corruption=MissingPixels(0.3), **PLAIN),
    "cascade": lambda u, c: clean(u, c, corruption=GaussianNoise(20 * u), cascade=Cascade(2, n_folds=2), **PLAIN),
    "joint cascade": lambda u, c: pairs(u, c, cascade=Cascade(2, joint=1), **PLAIN),
    "joint cascade of gaps": lambda u, c: pairs(u, c, GAPPY, cascade=Cascade(2, joint=1), **PLAIN),
    "blur": blurred,
    "blur that brightens": lambda u, c: blurred(u, c, 1.5),
    "blur of clean images": lambda u, c: blurred(u, c, 1.5, is_clean=True),
    "downsampling": enlarged,
    "downsampling of clean images": lambda u, c: enlarged(u, c, is_clean=True),
    "distributions": distributions,
    "held out": held_out,
    "classes": classes,
    "shards": shards,
    "chains": chains,
    "rows": rows,
    "tiles": tiles,
}


# Noise and blurred images are float32 in any unit, and are rounded at other digits.
ROUNDED = {"noise", "noise by a function", "cascade", "blur that brightens", "blur of clean images"}


def deviation(found, expected):
    """Return the mean absolute difference relative to the standard deviation."""
    return np.nanmean(np.abs(found - expected)) / np.nanstd(expected)


@pytest.mark.parametrize("name", TASKS)
def test_units_and_levels_do_not_matter(name):
    task = TASKS[name]
    expected = task(1.0, 0.0)
    # Tests of magnitudes depend on the level.
    assert deviation(task(1.0, 1.7e9), expected) < 0.15
    for unit in (1e-17, 1e12, 1e-30) if name in ("filters by name", "classes") else (1e-22,):
        assert deviation(task(unit, 0.0), expected) < (0.06 if name in ROUNDED else 1e-4)


@pytest.mark.parametrize("form", ["bytes", "uint16", "unit", "float32", "standardised", "bool"])
def test_images_of_any_range_are_restored_alike(form):
    is_bool = form == "bool"
    truth = np.where(CLEAN > 100, 255, 0) if is_bool else np.rint(CLEAN)
    seen = np.where(RNG.random(truth.shape) < 0.1, 255 - truth, truth) if is_bool else np.rint(NOISY).clip(0, 255)
    forms = {
        "bytes": (lambda x: x.astype(np.uint8), 1.0, 0.0),
        "uint16": (lambda x: (257 * x).astype(np.uint16), 257.0, 0.0),
        "unit": (lambda x: x / 255, 1 / 255, 0.0),
        "float32": (lambda x: (x / 255).astype(np.float32), 1 / 255, 0.0),
        "standardised": (lambda x: (x - 100) / 60, 1 / 60, -100 / 60),
        "bool": (lambda x: x > 128, 1 / 255, 0.0),
    }
    made, unit, level = forms[form]
    field = RegressionTreeField(**QUICK).fit(made(seen[:6])[..., None], made(truth[:6]))
    found = (np.asarray(field.predict(made(seen[6:])[..., None]), dtype=float) - level) / unit
    other = RegressionTreeField(**QUICK, clip=None).fit(seen[:6, ..., None], truth[:6])
    expected = other.predict(seen[6:, ..., None])
    error, error_in_form = (np.mean((values - truth[6:]) ** 2) for values in (expected, found))
    assert abs(error_in_form / error - 1) < 0.1


def test_values_of_many_magnitudes():
    X = np.stack([NOISY * 1e-30, NOISY * 1e20 + 1e24], axis=-1)
    field = RegressionTreeField(**QUICK, filter_bank=None).fit(X[:6], CLEAN[:6])
    expected = RegressionTreeField(**QUICK, filter_bank=None).fit(np.stack([NOISY, NOISY], axis=-1)[:6], CLEAN[:6])
    found = np.mean((field.predict(X[6:]) - CLEAN[6:]) ** 2)
    assert found < 1.1 * np.mean((expected.predict(np.stack([NOISY, NOISY], axis=-1)[6:]) - CLEAN[6:]) ** 2)
    assert field.channel_scale_.shape == field.channel_centre_.shape == (2,)


def test_what_cannot_be_held_is_said():
    X = NOISY[..., None].copy()
    X[3, 2, 2] = 1e30
    with pytest.raises(ValueError, match=r"^X\[3\] contains values in channel 0 that are so far from typical values"):
        RegressionTreeField(**QUICK).fit(X, CLEAN)
    with pytest.raises(ValueError, match=r"the largest magnitude in y is 1.99e-118, but it must be at least 1e-100"):
        RegressionTreeField(**QUICK).fit(NOISY[..., None], CLEAN * 1e-120)

    def own(prediction, target):
        return float(np.mean((prediction - target) ** 2)), 2 * (prediction - target) / target.size

    with pytest.raises(ValueError, match="loss is a function, and y has a standard deviation of"):
        RegressionTreeField(own, **QUICK).fit(NOISY[..., None], CLEAN * 1e-20)


def test_losses_are_reported_in_the_units_of_y():
    for loss, degree in (("mse", 2), ("mae", 1), ("psnr", 0)):
        curves = [
            RegressionTreeField(loss, **QUICK, filter_bank=None, solver=FieldSolver(early_stopping=True)).fit(
                unit * NOISY[..., None], unit * CLEAN
            )
            for unit in (1.0, 1e15)
        ]
        for name in ("loss_curve_", "validation_curve_"):
            values = [getattr(field, name) for field in curves]
            assert_allclose(values[1], 1e15**degree * values[0], rtol=1e-4)


def test_units_of_channels():
    rng = np.random.default_rng(3)
    images = [rng.normal(size=(9, 8, 2)) * [1e-20, 3e-19] + [0, 1e-10] for _ in range(3)]
    found = InputSample.of(images).attributes()
    units = ChannelUnits.of(found, 2)
    assert found["channel_centre_"][0] == 0
    assert abs(found["channel_centre_"][1] - 1e-10) < 1e-18
    seen = units.seen(images[0])
    assert seen.dtype == np.float32
    assert 1e-2 < np.abs(seen).mean() < 1e3
    assert_allclose(units.given(seen), images[0], rtol=1e-6, atol=1e-25)
    assert ChannelUnits.of({}, 2).seen(images[0].astype(np.float32)).dtype == np.float32
    # Values that float32 can represent are not changed, except for images, whose range is made similar to bytes.
    table = InputSample.of([rng.normal(size=(50, 3)) * 1e5 + 3e4]).attributes()
    assert (table["channel_centre_"] == 0).all()
    assert (table["channel_scale_"] == 1).all()
    scales = [
        InputSample.of([u * CLEAN[..., None]]).attributes(is_image=True)["channel_scale_"][0] for u in (1, 1 / 255)
    ]
    assert scales == [1, 256]


BYTES = np.rint(CLEAN).astype(np.uint8)


def test_noise_and_compression_have_the_units_of_images():
    unit = CLEAN / 255
    for options in ({"corruption": GaussianNoise(25)}, {"corruption": GaussianNoise(0, 25)}):
        with pytest.raises(ValueError, match=r"^corruption=GaussianNoise\(.* noise is in the units of X"):
            RegressionTreeField(**QUICK, **options).fit(unit)
    with pytest.raises(
        ValueError, match=r"^degradation=Blur\(noise=25\) has noise of standard deviation 25, but X has"
    ):
        RegressionTreeField(degradation=Blur(KERNEL, 25), **QUICK).fit(unit)
    for images in (unit, 257 * BYTES.astype(np.uint16), unit - 0.5):
        with pytest.raises(ValueError, match=r"JPEG\(low=50\) is for images with values from 0 to 255"):
            RegressionTreeField(corruption=JPEG(50), **QUICK).fit(256 * images if images is not unit else unit)
    for images, noise in ((unit, 0.1), (BYTES, 25), (np.zeros((4, 9, 9)), 25)):
        RegressionTreeField(corruption=GaussianNoise(noise), filter_bank=None, **QUICK).fit(images)


def test_predicted_images_have_the_range_of_fit():
    rng = np.random.default_rng(0)
    field = RegressionTreeField(corruption=GaussianNoise(25), filter_bank=None, **QUICK).fit(BYTES)
    classifier = RegressionTreeFieldClassifier(filter_bank=None, **QUICK).fit(NOISY[..., None], CLEAN > 100)
    of_unit = RegressionTreeField(filter_bank=None, **QUICK).fit(NOISY[..., None] / 255, CLEAN / 255)
    cascade = RegressionTreeField(corruption=GaussianNoise(25), filter_bank=None, cascade=2, **QUICK).fit(BYTES)
    message = "^X has values from .* but had values from .* in fit: pass images in the units of fit"
    for wrong in (NOISY / 255, BYTES > 100, 257 * BYTES.astype(np.uint16), (NOISY - 100) / 60):
        for model in (field, cascade):
            with pytest.raises(ValueError, match=message):
                model.predict(wrong)
        with pytest.raises(ValueError, match=message):
            classifier.predict_proba(wrong[..., None])
    with pytest.raises(ValueError, match=message):
        of_unit.score(NOISY[..., None], CLEAN)
    with pytest.raises(ValueError, match=message):
        field.predict(NOISY + 1000)
    flat = np.ones((1, 20, 20))
    dark = 2.5 * flat + 25 * rng.normal(size=flat.shape)
    hot = np.where(np.arange(400).reshape(flat.shape) == 40, 1e6, dark)
    for right in (0 * flat, 128 * flat, 200 + rng.random((1, 20, 20)), dark, hot, BYTES // 64, BYTES * 0.05, NOISY[:1]):
        field.predict(right)
    of_unit.predict(0.02 * CLEAN[..., None] / 255)
    # Very dark images have the values of images in another unit, unless their type has no fractions.
    of_bytes = RegressionTreeField(filter_bank=None, **QUICK).fit(BYTES[..., None], CLEAN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in (BYTES // 64, BYTES * 0.1, 0 * flat, 4 * flat, NOISY[:1]):
            of_bytes.predict(right[..., None])
    for scaled in (4 / 255 * NOISY, (NOISY - 100) / 60 + 3, np.float32(10 / 255) * NOISY):
        for predict in (field.predict, cascade.predict, lambda X: classifier.predict(X[..., None])):
            with pytest.warns(UserWarning, match="X has values from .* in fit: if its images are not very dark, pass"):
                predict(scaled)
    # The stages of a cascade accept grey images, as the cascade does.
    assert cascade.stages_[0].predict(NOISY).shape == NOISY.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruption": GaussianNoise}, r"got the class GaussianNoise: call it, as in corruption=GaussianNoise\(...\)"),
        ({"degradation": Blur}, r"got the class Blur: call it, as in degradation=Blur\(...\)"),
        ({"degradation": [Blur]}, "got the class Blur"),
        ({"solver": FieldSolver}, "got the class FieldSolver"),
        ({"window": Window}, "got the class Window"),
        ({"inference": ConjugateGradient}, "got the class ConjugateGradient"),
        ({"corruption": MissingPixels()}, r"'low' parameter of MissingPixels must be .* as in MissingPixels\(0.5\)"),
        ({"corruption": GaussianNoise()}, r"'low' parameter of GaussianNoise must be .* as in GaussianNoise\(25\)"),
        ({"corruption": JPEG()}, r"'low' parameter of JPEG must be .* as in JPEG\(50\)"),
        ({"degradation": Blur(KERNEL)}, "'noise' parameter of Blur"),
        ({"degradation": Downsampling()}, "'factor' parameter of Downsampling"),
    ],
)
def test_classes_and_objects_without_their_numbers(options, message):
    with pytest.raises(InvalidParameterError, match=message):
        RegressionTreeField(**QUICK | options).fit(CLEAN)


def test_names_as_values():
    for y in (np.full(CLEAN.shape, "a"), [[["a"] * 20] * 20] * 8):
        with pytest.raises(
            ValueError, match=r"^y\[0\] must hold numbers.* Use RegressionTreeFieldClassifier for labels"
        ):
            RegressionTreeField(**QUICK).fit(NOISY[..., None], y)


def test_fields_of_older_versions_see_channels_as_they_are():
    field = RegressionTreeField(filter_bank=None, **QUICK).fit(NOISY[:6, ..., None], CLEAN[:6])
    expected = field.predict(NOISY[6:, ..., None])
    for name in ("channel_centre_", "channel_scale_", "channel_range_", "input_dtype_"):
        delattr(field, name)
    assert_allclose(field.predict(NOISY[6:, ..., None]), expected)


def test_no_warning_of_numpy():
    labels = np.zeros((6, 8, 8), dtype=int)
    labels[:, 2:6, 2:6] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        field = RegressionTreeFieldClassifier(max_depth=1).fit((labels[..., None] * 1e20).astype(np.float32), labels)
        assert field.score((labels[..., None] * 1e20).astype(np.float32), labels) == 1
