"""RegressionTreeField in image restoration: defaults, corruption, missing pixels, types, ranges, samples."""

import pickle
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import plain_field
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.inference import GaussianDirect
from sklearn_crf.rtf import JPEG, FieldSolver, GaussianNoise, MissingPixels, Splits, Window
from sklearn_crf.rtf._training import TreeField, compute_round_share
from sklearn_crf.rtf.images._corruption import compute_table_factor, estimate_table_factor

# Few iterations on few pixels.
QUICK = {"max_depth": 1, "max_iter": 4, "random_state": 0}
SIGMA = 0.2


def clean_images(n=6, shape=(32, 32), n_channels=0, seed=0):
    """Return blocks of constant grey or colour."""
    rng = np.random.default_rng(seed)
    blocks = rng.random((n, shape[0] // 8, shape[1] // 8, max(n_channels, 1)))
    clean = np.kron(blocks, np.ones((1, 8, 8, 1)))
    return clean if n_channels else clean[..., 0]


def with_noise(clean, seed=1):
    return clean + SIGMA * np.random.default_rng(seed).normal(size=clean.shape)


def mean_square(a, b):
    return np.mean((np.asarray(a, dtype=float) - b) ** 2)


def test_defaults_denoise_without_a_warning():
    clean = clean_images(15, (40, 48))
    noisy = with_noise(clean)[..., None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = RegressionTreeField(random_state=0).fit(noisy[:12], clean[:12])
    assert mean_square(field.predict(noisy[12:]), clean[12:]) < 0.2 * SIGMA**2
    # Some images were held out, and trees stop growing when the held-out loss no longer improves.
    assert len(field.validation_curve_) == len(field.round_ends_) >= 1


def test_filters_are_learned_from_the_images():
    clean = clean_images()
    noisy = with_noise(clean)[..., None]
    errors = {}
    for bank in (None, "auto", "pca", "dct"):
        field = RegressionTreeField(filter_bank=bank, **QUICK).fit(noisy[:4], clean[:4])
        errors[bank] = mean_square(field.predict(noisy[4:]), clean[4:])
    assert errors["auto"] < 0.7 * errors[None]
    assert max(errors["pca"], errors["dct"]) < errors[None]
    # Thresholds depend on the errors of the inputs.
    field = RegressionTreeField(**QUICK).fit(100 * noisy[:4], 100 * clean[:4])
    shrinkage = field.filter_bank_.transformers_[1]
    thresholds = np.array(shrinkage.thresholds) / field.channel_scale_
    assert_allclose(thresholds, 100 * SIGMA * np.array([1.8, 2.7, 3.5]), rtol=0.1)


def test_filters_go_by_weights_of_images_as_by_copies():
    clean = clean_images(5, (16, 16))
    levels = np.array([5.0, 8.0, 12.0, 20.0, 40.0])
    noisy = clean + np.random.default_rng(0).normal(size=clean.shape) * levels[:, None, None]
    times = np.array([1, 4, 2, 1, 3])
    copies = np.repeat(np.arange(5), times)
    options = {"max_depth": 0, "max_iter": 2, "random_state": 0, "solver": FieldSolver("pqn", early_stopping=False)}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        fields = [
            RegressionTreeField(**options).fit(noisy[..., None], clean, sample_weight=times),
            RegressionTreeField(**options).fit(noisy[copies][..., None], clean[copies]),
            RegressionTreeField(**options).fit(noisy[..., None], clean),
        ]
    weighted, repeated, plain = (field.filter_bank_.transformers_[1].thresholds for field in fields)
    assert_allclose(weighted, repeated, rtol=1e-3)
    assert not np.allclose(weighted, plain, rtol=0.02)


@pytest.mark.parametrize(("n", "shape"), [(4, (16, 240)), (12, (16, 16))], ids=["strips", "whole images"])
def test_filters_are_learned_from_what_is_not_held_out(n, shape):
    clean = clean_images(n, shape)
    options = {**QUICK, "corruption": GaussianNoise(SIGMA), "solver": FieldSolver(early_stopping=True)}
    field = RegressionTreeField(**options).fit(clean)
    assert field.validation_curve_.size
    thresholds = np.array(field.filter_bank_.transformers_[1].thresholds) / field.channel_scale_
    assert_allclose(thresholds, SIGMA * np.array([1.8, 2.7, 3.5]), rtol=0.1)


@pytest.mark.parametrize("layout", ["array", "list", "colours"])
def test_clean_images_are_enough(layout):
    clean = clean_images(5, (32, 40), n_channels=3 if layout == "colours" else 0)
    noisy = with_noise(clean)
    clean, noisy = (list(clean), list(noisy)) if layout == "list" else (clean, noisy)
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), **QUICK).fit(clean)
    predicted = field.predict(noisy)
    assert np.shape(predicted[0]) == np.shape(clean[0])
    error = np.mean([mean_square(p, y) for p, y in zip(predicted, clean, strict=True)])
    assert error < 0.35 * SIGMA**2
    again = pickle.loads(pickle.dumps(field)).set_params(n_jobs=2)
    for a, b in zip(again.predict(noisy), predicted, strict=True):
        assert_array_equal(a, b)
    assert_array_equal(RegressionTreeField(corruption=GaussianNoise(SIGMA), **QUICK, n_jobs=3).fit(clean).loss_curve_,
                       field.loss_curve_)  # fmt: skip


def test_every_round_sees_another_corruption():
    seen = []

    def corruption(image, rng):
        seen.append(rng.normal())
        return image + SIGMA * rng.normal(size=image.shape)

    solver = FieldSolver(early_stopping=False)
    RegressionTreeField(corruption=corruption, solver=solver, **QUICK).fit(clean_images(3))
    # The corruption is applied to three images in a trial, for the filters, and in each of two rounds. The filters and
    # the first round use equal random numbers.
    assert len(seen) == 12
    assert seen[3:6] == seen[6:9]
    assert len(set(seen)) == 9


def test_a_corrupted_input_may_have_a_target_of_its_own():
    clean = clean_images(4, n_channels=1)
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), **QUICK).fit(clean, 1 - clean[..., 0])
    assert mean_square(field.predict(with_noise(clean)), 1 - clean[..., 0]) < 0.5 * SIGMA**2


def test_noise_of_many_levels_with_the_level_as_a_channel():
    clean = clean_images(5)
    levels = GaussianNoise(0.05, 0.4, level_channel=True)
    field = RegressionTreeField(corruption=levels, **QUICK).fit(clean)
    assert field.n_features_in_ == 2
    assert len(field.filter_bank_.transformers_[1].thresholds) == 6
    given = np.stack([with_noise(clean), np.full(clean.shape, SIGMA)], axis=-1)
    assert mean_square(field.predict(given), clean) < 0.5 * SIGMA**2
    with pytest.raises(ValueError, match="X has 1 features, but RegressionTreeField is expecting 2"):
        field.predict(with_noise(clean))


def test_jpeg_is_idempotent_and_removes_detail():
    rng = np.random.default_rng(0)
    image = 255 * clean_images(1)[0]
    for quality in (10, 50, 95):
        once = JPEG(quality)(image, rng)
        assert_allclose(JPEG(quality)(once, rng), once, atol=12)
    errors = [mean_square(JPEG(quality)(image, rng), image) for quality in (5, 20, 60, 100)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1
    colours = 255 * clean_images(1, n_channels=3)[0]
    assert JPEG(50)(colours, rng).shape == colours.shape
    assert mean_square(JPEG(100)(colours, rng), colours) < 2
    assert JPEG(50)(image[:13, :5], rng).shape == (13, 5)


@pytest.mark.parametrize("quality", [4, 10, 30, 60])
@pytest.mark.parametrize("is_colour", [False, True])
def test_factor_of_jpeg_tables_is_estimated(quality, is_colour):
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:160, :200]
    image = 128 + 60 * np.sin(rows / 9) * np.cos(columns / 13) + 10 * rng.normal(size=rows.shape)
    image = np.stack([image, 0.8 * image + 20, 230 - 0.7 * image], axis=-1) if is_colour else image
    compressed = JPEG(quality)(image, rng).astype(float)
    for part in (compressed, compressed[3:, 6:]):
        assert_allclose(estimate_table_factor(part), compute_table_factor(quality), rtol=0.1)
    assert estimate_table_factor(np.clip(np.rint(image), 0, 255)) < 0.4


@pytest.mark.parametrize(
    ("corruption", "name"),
    [
        (GaussianNoise(-1), "low"),
        (GaussianNoise(2, 1), "low"),
        (GaussianNoise(np.nan), "low"),
        (GaussianNoise(1, np.inf), "high"),
        (GaussianNoise("much"), "low"),
        (GaussianNoise(1, level_channel="yes"), "level_channel"),
        (JPEG(0), "low"),
        (JPEG(10, 101), "high"),
        (MissingPixels(1.5), "low"),
        ("noise", "corruption"),
    ],
)
def test_bad_corruption_is_named(corruption, name):
    with pytest.raises(InvalidParameterError, match=f"'{name}' parameter"):
        RegressionTreeField(corruption=corruption, **QUICK).fit(clean_images(2))


def test_corruption_that_makes_no_image_is_an_error():
    for bad in (lambda image, rng: image[1:], lambda image, rng: image + np.inf):
        with pytest.raises(ValueError, match="corruption must return finite images of 32 x 32 pixels, got shape"):
            RegressionTreeField(corruption=bad, **QUICK).fit(clean_images(2))
    with pytest.raises(ValueError, match="requires y to be passed"):
        RegressionTreeField(**QUICK).fit(clean_images(2)[..., None])
    with pytest.raises(ValueError, match=re.escape("one colour image (pass X[np.newaxis])")):
        RegressionTreeField(corruption=GaussianNoise(1), **QUICK).fit(clean_images(1, n_channels=3)[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_predictions_are_of_the_type_and_range_of_y(dtype):
    clean = clean_images(4)
    limit = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1.0
    y = (limit * (clean > 0.5)).astype(dtype)
    X = (y / limit + SIGMA * np.random.default_rng(0).normal(size=y.shape))[..., None]
    field = RegressionTreeField(**QUICK).fit(X, y)
    predicted = field.predict(X)
    assert predicted.dtype == dtype
    assert predicted.min() >= 0
    assert predicted.max() <= limit
    # Only predictions are clipped, so the parameter can be set on a fitted field.
    free = field.set_params(clip=None).predict(X)
    assert free.dtype == np.float64
    assert free.max() > limit
    assert_allclose(np.clip(free, 0, limit), predicted, atol=0.51 if limit > 1 else 1e-6)
    bounded = field.set_params(clip=(0.25 * limit, 0.5 * limit)).predict(X)
    assert (bounded.min(), bounded.max()) == (0.25 * limit, 0.5 * limit)
    for bad in ((1, 0), (np.nan, 1.0), "yes", (1,), 3):
        with pytest.raises(InvalidParameterError, match="'clip' parameter"):
            RegressionTreeField(clip=bad, **QUICK).fit(X, y)


def test_missing_pixels_are_filled():
    clean = clean_images(6)
    field = RegressionTreeField(corruption=MissingPixels(0.4, 0.6), **QUICK).fit(clean)
    assert field.missing_channels_.tolist() == [0]
    assert field.n_features_in_ == 1
    given = MissingPixels(0.5)(clean_images(2, seed=7).reshape(-1, 32), np.random.default_rng(0)).reshape(2, 32, 32)
    truth = clean_images(2, seed=7)
    filled = field.predict(given)
    gaps = np.isnan(given)
    assert mean_square(filled[gaps], truth[gaps]) < 0.1 * np.var(truth)
    # The field also accepts complete images. A field trained without gaps raises an error for images with gaps.
    assert np.isfinite(field.predict(truth)).all()
    complete = RegressionTreeField(**QUICK).fit(truth[..., None], truth)
    with pytest.raises(ValueError, match=re.escape("X[0] contains NaN in channel 0, which was complete in fit")):
        complete.predict(given[..., None])


def test_pairs_of_images_may_have_gaps():
    clean = clean_images(5, n_channels=2)
    X = with_noise(clean)
    X[np.random.default_rng(0).random(X.shape[:3]) < 0.3, 1] = np.nan
    y = clean[..., 0].copy()
    y[:, 10:30, 10:30] = np.nan
    for loss in ("mse", "mae", "pseudolikelihood"):
        field = RegressionTreeField(loss, **QUICK).fit(X[:4], y[:4])
        assert field.missing_channels_.tolist() == [1]
        predicted = field.predict(X[4:])
        assert mean_square(predicted, clean[4:, ..., 0]) < SIGMA**2
        assert np.isfinite(field.score(X, y))
    with pytest.raises(ValueError, match="loss='likelihood' does not support missing values or labels in y"):
        RegressionTreeField("likelihood", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="y has no values: all its values are missing"):
        RegressionTreeField(**QUICK).fit(X, np.full_like(y, np.nan))
    sparse = np.full_like(y, np.nan)
    sparse[:, ::4, ::4] = 1.0
    with pytest.raises(ValueError, match="pixels of y whose neighbours are also known"):
        RegressionTreeField("pseudolikelihood", **QUICK).fit(X, sparse)


def test_missing_targets_do_not_matter():
    # Unknown values are arbitrary: their gradient is zero.
    clean = clean_images(3)
    X = with_noise(clean)[..., None]
    y = clean.copy()
    y[:, :, 16:] = np.nan
    fields = [plain_field("mse", **QUICK, window=1).fit(X[:, :, :16], clean[:, :, :16])]
    fields.append(plain_field("mse", **QUICK, window=1).fit(X, y))
    # Half of the pixels are known, so the mean over all pixels is half.
    assert fields[1].loss_curve_[0] == pytest.approx(fields[0].loss_curve_[0] / 2)


def test_evidence_is_kept_and_spreads():
    clean = clean_images(4)
    X = with_noise(clean)[..., None]
    field = plain_field("pseudolikelihood", **QUICK).fit(X, clean)
    evidence = np.full(clean.shape, np.nan)
    evidence[:, 4:12, 4:12] = 3.0
    predicted, deviation = field.predict(X, return_std=True, evidence=evidence)
    assert_allclose(predicted[:, 4:12, 4:12], 3.0, atol=1e-4)
    plain = field.predict(X)
    assert np.all(predicted[:, 3, 5:11] > plain[:, 3, 5:11])
    assert_allclose(predicted[:, 30:], plain[:, 30:], atol=0.05)
    assert predicted.shape == deviation.shape


@pytest.mark.parametrize("layout", ["array", "list"])
def test_samples_have_the_moments_of_the_field(layout):
    clean = clean_images(3, (16, 16))
    X = with_noise(clean)[..., None]
    X, clean = (list(X), list(clean)) if layout == "list" else (X, clean)
    field = plain_field("pseudolikelihood", **QUICK).fit(X, clean)
    mean, deviation = field.predict(X, return_std=True)
    samples = field.sample(X, 300, random_state=0)
    own = samples[1] if layout == "list" else samples[:, 1]
    assert own.shape == (300, 16, 16)
    assert_allclose(own.mean(axis=0), mean[1], atol=5 * deviation[1].max() / np.sqrt(300))
    assert_allclose(own.std(axis=0).mean(), deviation[1].mean(), rtol=0.05)
    assert_array_equal(field.sample(X, 2, random_state=1)[0], field.sample(X, 2, random_state=1)[0])


def test_what_is_no_distribution_has_no_deviations():
    clean = clean_images(3, (16, 16))
    X = with_noise(clean)[..., None]
    field = plain_field("psnr", **QUICK).fit(X, clean)
    with pytest.raises(ValueError, match="return_std after training for 'psnr' needs errors on held-out images"):
        field.predict(X, return_std=True)
    assert not hasattr(field, "sample")


def test_a_cascade_of_clean_images():
    clean = clean_images(4)
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), cascade=2, **QUICK).fit(clean)
    noisy = with_noise(clean)
    assert mean_square(field.predict(noisy), clean) < 0.35 * SIGMA**2
    assert field.predict(noisy).shape == clean.shape
    mean = GaussianDirect().marginals(field.models(noisy)[0]).mean
    assert_allclose(np.clip(mean.reshape(32, 32), *field.target_range_), field.predict(noisy)[0], atol=1e-3)


def test_weights_of_samples_in_the_squared_error():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=50)
    weight = rng.integers(0, 3, size=50)
    options = {"max_depth": 0, "max_iter": 300, "tol": 1e-7}
    weighted = RegressionTreeField(**options).fit(X, y, sample_weight=weight)
    repeated = RegressionTreeField(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-4)
    with pytest.raises(ValueError, match="needs a loss that is a sum over samples"):
        RegressionTreeField("psnr", **options).fit(X, y, sample_weight=weight)


def test_labels_of_images_with_gaps():
    clean = clean_images(4)
    X = with_noise(clean)[..., None]
    X[np.random.default_rng(0).random(clean.shape) < 0.3] = np.nan
    field = RegressionTreeFieldClassifier(max_depth=0, max_iter=8).fit(X, clean > 0.5)
    assert field.score(X, clean > 0.5) > 0.8
    chains = Window(lattice_ndim=1)
    with pytest.raises(ValueError, match="contains NaN"):
        RegressionTreeFieldClassifier(window=chains).fit(X[:, 0].repeat(2, axis=-1), clean[:, 0] > 0.5)


@pytest.mark.parametrize("layout", ["array", "list"])
def test_a_field_of_grey_images_restores_colours(layout):
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), **QUICK).fit(clean_images(4))
    photographs = with_noise(clean_images(2, n_channels=3, seed=3))
    single = np.stack([field.predict(photographs[..., c]) for c in range(3)], axis=-1)
    given = photographs if layout == "array" else [photographs[0], photographs[1][:20]]
    predicted = field.predict(given)
    assert_array_equal(predicted[0], single[0])
    assert [own.shape for own in predicted] == [own.shape for own in given]
    # Grey images may be among the colour images.
    mixed = field.predict([photographs[0], photographs[1][..., 0]])
    assert_array_equal(mixed[0], single[0])
    assert_array_equal(mixed[1], single[1, ..., 0])
    assert 0 < field.score(given, [own for own in given]) <= 1
    evidence = np.full(photographs.shape, np.nan)
    evidence[0, 3, 4, 2] = 0.5
    kept = field.predict(photographs, evidence=evidence)
    assert kept[0, 3, 4, 2] == pytest.approx(0.5, abs=1e-4)
    assert_allclose(kept[0, ..., 0], single[0, ..., 0], atol=1e-4)


def test_channels_of_pairs_are_not_taken_for_colours():
    clean = clean_images(4)
    field = RegressionTreeField(**QUICK).fit(with_noise(clean)[..., None], clean)
    with pytest.raises(ValueError, match=re.escape("is expecting 1 features as input. To restore colours, predict")):
        field.predict(clean_images(1, n_channels=3))


def test_pixels_are_brought_into_the_units_of_y_some_at_a_time(monkeypatch):
    clean = clean_images(4)
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), **QUICK).fit(clean)
    at_once = field.predict(with_noise(clean)[..., None])
    monkeypatch.setattr("sklearn_crf.rtf._tuning.PIXELS_IN_DOUBLES", 7)
    assert_array_equal(field.predict(with_noise(clean)[..., None]), at_once)


def test_parameters_are_means_over_rounds_of_other_pixels(monkeypatch):
    shares, moved = [], TreeField.moved

    def seen(field, coef, share):
        shares.append(share)
        found = moved(field, coef, share)
        expected = coef if share == 1 else field.coef + share * (coef - field.coef)
        assert_allclose(found.coef, expected, rtol=1e-12, atol=1e-12)
        return found

    monkeypatch.setattr(TreeField, "moved", seen)
    options = {**QUICK, "max_depth": 5, "split": Splits(min_samples_leaf=5), "loss": "mse"}
    clean = clean_images(3)
    means = [1.0, 1.0, 1 / 2, 1 / 3, 0.3, 0.3]
    solver = FieldSolver(early_stopping=False)
    RegressionTreeField(corruption=GaussianNoise(SIGMA), solver=solver, **options).fit(clean)
    assert shares == pytest.approx(means)
    noisy = with_noise(clean)[..., None]
    for max_samples, expected in ((None, [1.0] * 6), (1500, means)):
        shares.clear()
        solver = FieldSolver(max_samples=max_samples, early_stopping=False)
        RegressionTreeField(solver=solver, **options).fit(noisy, clean)
        assert shares == pytest.approx(expected)


def test_rounds_of_more_pixels_count_more():
    # The first rounds have equal weights, later rounds weights by their pixels.
    expected = {100_000: [1, 1 / 2, 1 / 3, 1 / 3], 400_000: [1, 2 / 3, 2 / 3, 2 / 3], 1000: [1, 1 / 2, 1 / 3, 0.3]}
    for n_pixels, shares in expected.items():
        assert [compute_round_share(number, n_pixels) for number in range(1, 5)] == pytest.approx(shares)


# The pseudolikelihood needs known neighbours too.
@pytest.mark.parametrize(("loss", "n_known"), [("mse", 2432), ("pseudolikelihood", 2400)])
def test_pixels_of_a_round_are_those_that_it_looks_at(monkeypatch, loss, n_known):
    shares, moved = [], TreeField.moved

    def seen(field, coef, share):
        shares.append(share)
        return moved(field, coef, share)

    monkeypatch.setattr(TreeField, "moved", seen)
    monkeypatch.setattr("sklearn_crf.rtf._tuning.PIXELS_OF_HALF", 100)
    options = {**QUICK, "max_depth": 2, "split": Splits(min_samples_leaf=5), "loss": loss, "filter_bank": None}
    clean = clean_images(3)
    unknown = clean.copy()
    unknown[0, :, :20] = np.nan
    # Neither a limit beyond the number of pixels nor pixels without a target have an effect.
    of_rounds = [(10**6, clean, (3072, 3072)), (10**6, unknown, (n_known, n_known)), (600, clean, (400, 600))]
    for max_samples, target, (least, most) in of_rounds:
        shares.clear()
        solver = FieldSolver(max_samples=max_samples, early_stopping=False)
        RegressionTreeField(corruption=GaussianNoise(SIGMA), solver=solver, **options).fit(clean[..., None], target)
        assert len(shares) == 3
        assert least - 1e-6 < 100 * shares[-1] / (1 - shares[-1]) < most + 1e-6


def test_held_out_images_let_trees_grow_on_small_rounds(monkeypatch):
    clean = clean_images(16, (48, 48))
    noisy = with_noise(clean)[..., None]
    errors, leaves = {}, {}
    for least in (0.3, 1.0):
        monkeypatch.setattr("sklearn_crf.rtf._tuning.LEAST_SHARE_OF_ROUND", least)
        errors[least], leaves[least] = [], []
        for seed in range(2):
            solver = FieldSolver(max_samples=6000, early_stopping=True)
            field = RegressionTreeField(max_depth=5, solver=solver, random_state=seed).fit(noisy[:12], clean[:12])
            errors[least].append(mean_square(field.predict(noisy[12:]), clean[12:]))
            leaves[least].append(len(field.precisions_[1]))
    # Without averages over rounds, held-out losses increase by chance.
    assert max(errors[0.3]) < min(errors[1.0])
    assert min(leaves[0.3]) >= 8
    assert 2 * max(leaves[1.0]) <= min(leaves[0.3])


@pytest.fixture(scope="module")
def denoiser():
    """Return a field for one noise level, whose predictions are not clipped."""
    return RegressionTreeField(corruption=GaussianNoise(SIGMA), clip=None, **QUICK).fit(clean_images(8, seed=3))


def test_other_levels_of_noise_are_brought_to_that_of_training(denoiser):
    clean = clean_images(3, seed=5)
    noisy = clean + 0.5 * SIGMA * np.random.default_rng(2).normal(size=clean.shape)
    found = denoiser.predict(noisy, noise=[0.5 * SIGMA, SIGMA, 2 * SIGMA])
    for own, x, factor in zip(found, noisy, (2.0, 1.0, 0.5), strict=True):
        mean = x.mean()
        in_units = denoiser.predict(mean + factor * (x[np.newaxis] - mean))[0]
        assert_allclose(own, mean + (in_units - mean) / factor, atol=1e-4)
    assert_array_equal(denoiser.predict(noisy, noise=SIGMA), denoiser.predict(noisy))


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_the_level_of_noise_is_estimated(denoiser, share):
    clean = clean_images(4, (40, 48), seed=6)
    noisy = clean + share * SIGMA * np.random.default_rng(7).normal(size=clean.shape)
    found = denoiser.predict(noisy, noise="auto")
    assert mean_square(found, denoiser.predict(noisy, noise=share * SIGMA)) < 0.02 * (share * SIGMA) ** 2
    assert mean_square(found, clean) < 0.6 * mean_square(denoiser.predict(noisy), clean)
    assert mean_square(denoiser.predict(clean, noise="auto"), clean) < mean_square(denoiser.predict(clean), clean)


def test_levels_of_noise_go_with_colours_lists_deviations_and_cascades():
    clean, options = clean_images(8, seed=3), {**QUICK, "max_iter": 2}
    solver = FieldSolver(early_stopping=True)
    field = RegressionTreeField(corruption=GaussianNoise(SIGMA), solver=solver, clip=None, **options).fit(clean)
    noisy = list(with_noise(clean[:2]))
    means = [x.mean() for x in noisy]
    found, deviations = field.predict(noisy, True, noise=2 * SIGMA)
    halved = field.predict([m + 0.5 * (x - m) for x, m in zip(noisy, means, strict=True)], True)
    for own, deviation, half, of_half, m in zip(found, deviations, *halved, means, strict=True):
        assert_allclose(own, m + 2 * (half - m), atol=1e-4)
        assert_allclose(deviation, 2 * of_half, atol=1e-4)
    colours = np.stack([noisy[0], noisy[1], noisy[0]], axis=-1)[np.newaxis]
    by_colour = field.predict([noisy[0], noisy[1]], noise=SIGMA / 2)
    assert_allclose(field.predict(colours, noise=SIGMA / 2)[0, ..., 1], by_colour[1], atol=1e-6)
    cascade = RegressionTreeField(corruption=GaussianNoise(SIGMA), cascade=2, clip=None, **options).fit(
        clean[..., np.newaxis], clean
    )
    seen = noisy[0][np.newaxis, ..., np.newaxis]
    m = seen.mean()
    assert_allclose(cascade.predict(seen, noise=2 * SIGMA), 2 * cascade.predict((seen + m) / 2) - m, atol=1e-4)


def test_little_noise_moves_no_image_of_one_colour(denoiser):
    for colour in (0.1, 0.5, 0.9):
        image = np.full((1, 40, 48), colour)
        assert_allclose(denoiser.predict(image, noise=0.05 * SIGMA), image, atol=0.05 * SIGMA)


def test_noise_that_is_given_is_not_doubted(denoiser):
    detail = np.random.default_rng(1).normal(size=(1, 40, 48))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        denoiser.predict(detail, noise=0.1 * SIGMA)


def test_noise_far_from_that_of_training_is_warned_of(denoiser):
    clean = clean_images(3, (40, 48), seed=8)
    for share in (0.2, 3.0):
        noisy = clean + share * SIGMA * np.random.default_rng(9).normal(size=clean.shape)
        with pytest.warns(UserWarning, match=f"noise of standard deviation near 0.{2 * share:.0f}.*trained for 0.2"):
            denoiser.predict(noisy)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            denoiser.predict(noisy, noise="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        denoiser.predict(with_noise(clean))
        denoiser.predict(np.full((1, 16, 16), 0.5))


@pytest.mark.parametrize("corruption", [None, GaussianNoise(0.1, 0.3), GaussianNoise(0.1, level_channel=True)], ids=str)
def test_levels_of_noise_need_a_field_for_one(corruption):
    clean = clean_images(3)
    field = RegressionTreeField(max_iter=1, max_depth=0, filter_bank=None, corruption=corruption)
    field.fit(clean[..., np.newaxis], clean)
    with pytest.raises(ValueError, match="noise needs a field that was trained for one level"):
        field.predict(clean[..., np.newaxis], noise="auto")


@pytest.mark.parametrize("noise", [0, -1.0, np.inf, np.nan, "known", [0.1, 0.2], [[0.1], [0.2], [0.3]]])
def test_levels_of_noise_are_positive_numbers(denoiser, noise):
    with pytest.raises(
        ValueError, match="noise must be 'auto', a positive number, or one positive number for each of 3 images"
    ):
        denoiser.predict(clean_images(3), noise=noise)


@pytest.mark.parametrize("noise", [2.0, 1e30, [0.1, 0.1, 3.0]])
def test_levels_of_noise_are_within_the_range_of_images(denoiser, noise):
    with pytest.raises(ValueError, match="noise is in the units of X"):
        denoiser.predict(clean_images(3), noise=noise)
