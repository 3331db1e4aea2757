"""Cascades: out-of-fold predictions, and joint training with its derivatives through the earlier fields."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import random_field
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import RegressionTreeField, Shards
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.rtf import Blur, Cascade, FieldSolver, GaussianNoise, MissingPixels
from sklearn_crf.rtf._cascade import CascadeRisk, Stage, compute_channel_gradient
from sklearn_crf.rtf._objectives import FieldRisk, PredictionLoss
from sklearn_crf.rtf._potentials import FieldImage, GaussianStatistics
from sklearn_crf.rtf._training import TreeField
from sklearn_crf.rtf.images._degradation import Observation
from sklearn_crf.rtf.losses import loss_function

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"filter_bank": None, "max_depth": 1, "max_iter": 2, "random_state": 0}
CLEAN = np.kron(np.random.default_rng(0).random((6, 4, 4)), np.ones((4, 4)))
NOISY = CLEAN + 0.3 * np.random.default_rng(1).normal(size=CLEAN.shape)
X = NOISY[..., None]


def error(found, truth=CLEAN):
    return np.mean((found - truth) ** 2)


def random_cascade(shape=(5, 4), n_values=2, n_fields=3, channels=None, known=False):
    """Return a risk of random fields, and their parameters, in float64."""
    solver, stages, coefs = ConjugateGradient(tol=1e-13, max_iter=2000), [], []
    targets, mean, scale = None, np.linspace(0.1, 0.3, n_values), 1.7
    for k in range(n_fields):
        n_channels = 3 if k == 0 else 3 + n_values
        _, potentials, coef, images, own = random_field(shape, n_values, n_channels, seed=10 + k, channels=channels)
        coef = potentials.project(coef, (0.2, 20.0))
        targets = own if targets is None else targets
        if known:
            observed = []
            for i, image in enumerate(images):
                rng = np.random.default_rng(i)
                sure = 50.0 * (rng.random(targets[i].shape) < 0.3)
                values = rng.normal(size=sure.shape)
                observation = Observation(sure * values, values, diagonal=sure)
                observed.append(FieldImage(image.features, image.graph, image.leaves, image.chosen, observation))
            images = observed
        seen = None if k == 0 else list(range(3, 3 + n_values))
        stages.append(Stage(TreeField([], potentials, coef), images, seen, mean, scale))
        coefs.append(coef)
    objective = PredictionLoss(loss_function("mse"), solver, mean, scale)
    weights = [np.full(len(y), w) for y, w in zip(targets, (1.0, 2.5), strict=True)]
    return CascadeRisk(objective, stages, targets, weights), np.concatenate(coefs)


@pytest.mark.parametrize("channels", [None, (4, 0)])
@pytest.mark.parametrize("shape", [(5, 4), (1, 6), (2, 3, 3)])
@pytest.mark.parametrize("known", [False, True])
def test_derivatives_through_earlier_fields_are_finite_differences(shape, channels, known):
    # A first field of three channels cannot see the fifth.
    risk, coef = random_cascade(shape, channels=None if channels is None else (0, 2), known=known)
    gradient, rng, step = risk.value_grad(coef)[1], np.random.RandomState(0), 1e-5
    for part in range(len(risk.stages)):
        along = np.zeros(len(coef))
        own = risk.parts(along)[part]
        own[:] = rng.normal(size=len(own))
        for parameters in risk.stages[part].potentials.unpack(own):
            parameters.precision[:] += np.swapaxes(parameters.precision, -1, -2).copy()
        ends = [risk.value(coef + side * step * along) for side in (1, -1)]
        assert gradient @ along == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-7)
        assert np.abs(risk.parts(gradient)[part]).max() > 0


@pytest.mark.parametrize("channels", [None, (3, 0)])
def test_the_derivative_by_channels_is_that_of_the_linear_values(channels):
    _, potentials, coef, images, _ = random_field((4, 5), 2, 4, seed=3, channels=channels)
    image, rng = images[0], np.random.default_rng(0)
    linear = rng.normal(size=(20, 2))
    found = compute_channel_gradient(potentials, coef, image, linear, [3, 1])
    for k, channel in enumerate((3, 1)):
        for place in np.ndindex(4, 5):
            moved = []
            for side in (1, -1):
                features = image.features.copy()
                features[(*place, channel)] += side * 1e-5
                chosen = {kind.channels: kind.seen(features) for kind in potentials.types if kind.channels is not None}
                other = FieldImage(features, image.graph, image.leaves, chosen)
                moved.append(np.sum(linear * potentials.model(coef, other).h))
            assert found[(*place, k)] == pytest.approx((moved[0] - moved[1]) / 2e-5, abs=1e-8)


def test_a_cascade_of_one_is_a_field():
    risk, coef = random_cascade(n_fields=1)
    alone = FieldRisk(
        risk.objective,
        risk.stages[0].potentials,
        risk.stages[0].images,
        risk.last.targets,
        [np.ones(20), np.full(20, 2.5)],
    )
    value, gradient = alone.value_grad(coef)
    assert risk.value_grad(coef)[0] == pytest.approx(value)
    assert_allclose(risk.value_grad(coef)[1], gradient, rtol=1e-6, atol=1e-10)
    statistics = GaussianStatistics(np.zeros((20, 2)), np.zeros((20, 2)), np.zeros((20, 2, 2)))
    assert not risk.stages[0].potentials.pullback(risk.stages[0].images[0], statistics).any()


def test_folds_are_predicted_by_fields_of_other_images():
    field = RegressionTreeField(cascade=Cascade(2, n_folds=3), **QUICK).fit(X, CLEAN)
    plain = RegressionTreeField(cascade=2, **QUICK).fit(X, CLEAN)
    # The first field is trained on all images; the second one learned from worse predictions.
    assert_array_equal(field.stages_[0].predict(X), plain.stages_[0].predict(X))
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    order = np.random.default_rng(seed).permutation(len(X))
    seen = np.empty_like(CLEAN)
    for k in range(3):
        own = np.sort(order[k::3])
        others = np.setdiff1d(np.arange(len(X)), own)
        first = RegressionTreeField(**QUICK | {"clip": None}).fit(X[others], CLEAN[others])
        seen[own] = first.predict(X[own])
    second = RegressionTreeField(**QUICK).fit(np.stack([NOISY, seen], axis=-1).astype(np.float32), CLEAN)
    for own, expected in zip(field.stages_[1].weights_, second.weights_, strict=True):
        assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(plain.stages_[1].weights_[0] - second.weights_[0]).max() > 1e-3


@pytest.mark.parametrize(
    "options", [{"n_folds": 3}, {"joint": 2}, {"n_folds": 2, "joint": 1}, {"n_fields": 3, "joint": 1}]
)
def test_the_same_whatever_the_threads_and_better_than_nothing(options):
    options = {"cascade": Cascade(**options), **QUICK, "solver": FieldSolver(early_stopping=True)}
    field = RegressionTreeField(**options).fit(X, CLEAN)
    predicted = field.predict(X)
    assert error(predicted) < 0.5 * error(NOISY)
    assert_array_equal(RegressionTreeField(**options, n_jobs=3).fit(X, CLEAN).predict(X), predicted)
    assert_array_equal(pickle.loads(pickle.dumps(field)).predict(X), predicted)
    assert_array_equal(
        np.stack(list(RegressionTreeField(**options).fit(list(X), list(CLEAN)).predict(list(X)))), predicted
    )


def test_joint_training_keeps_the_best_round():
    solver = FieldSolver(early_stopping=False)
    field = RegressionTreeField(cascade=Cascade(2, joint=3), **QUICK, solver=solver).fit(X, CLEAN)
    assert field.joint_curve_.shape == (4,)
    assert field.joint_curve_.min() < field.joint_curve_[0]
    # The curve is the loss of the last field of the cascade, with all images in one part.
    assert error(field.set_params(clip=None).predict(X)) == pytest.approx(field.joint_curve_.min(), rel=1e-3)
    held_out = RegressionTreeField(cascade=Cascade(2, joint=2), **QUICK, solver=FieldSolver(early_stopping=True))
    assert held_out.fit(X, CLEAN).joint_curve_.shape == (3,)


@pytest.mark.parametrize(
    "options",
    [
        {"corruption": GaussianNoise(0.3)},
        {"corruption": MissingPixels(0.4)},
        {"degradation": Blur(np.ones((3, 3)) / 9, 0.05)},
        {"filter_bank": "auto"},
        {"filter_bank": "gaussian_derivatives"},
        {"loss": "psnr", "solver": FieldSolver(max_samples=1000, early_stopping=True)},
    ],
    ids=["noise", "gaps", "blur", "default filters", "filters", "parts of images"],
)
def test_what_fields_are_trained_for_cascades_are(options):
    field = RegressionTreeField(cascade=Cascade(2, n_folds=2, joint=1), **QUICK | options)
    is_clean = "corruption" in options or "degradation" in options
    field = field.fit(CLEAN[..., None]) if is_clean else field.fit(X, CLEAN)
    given = np.where(np.random.default_rng(3).random(X.shape) < 0.4, np.nan, CLEAN[..., None])
    given = given if isinstance(options.get("corruption"), MissingPixels) else X
    found = np.reshape(field.predict(given), CLEAN.shape)
    assert error(found) < (0.7 if "degradation" not in options else 5) * error(NOISY)
    assert field.joint_curve_.shape == (2,)


def test_a_field_after_a_cascade_is_one_field():
    field = RegressionTreeField(cascade=2, **QUICK).fit(X, CLEAN).set_params(cascade=1)
    assert not hasattr(field.fit(X, CLEAN), "stages_")
    assert_array_equal(field.predict(X), RegressionTreeField(**QUICK).fit(X, CLEAN).predict(X))


def test_bad_options_are_named():
    with pytest.raises(InvalidParameterError, match="'n_folds' parameter of Cascade"):
        RegressionTreeField(cascade=Cascade(2, n_folds=1)).fit(X, CLEAN)
    with pytest.raises(ValueError, match="cascade with n_folds=7 needs at least as many images as folds, got 6"):
        RegressionTreeField(cascade=Cascade(2, n_folds=7), **QUICK).fit(X, CLEAN)
    with pytest.raises(ValueError, match="joint training of a cascade needs a prediction loss"):
        RegressionTreeField("pseudolikelihood", cascade=Cascade(joint=1), **QUICK).fit(X, CLEAN)
    with pytest.raises(ValueError, match="got plain samples"):
        RegressionTreeField(cascade=Cascade(joint=1), **QUICK).fit(X[:, 0, 0], CLEAN[:, 0, 0])
    with pytest.raises(ValueError, match="cascade is not supported with Shards"):
        RegressionTreeField(cascade=Cascade(2)).fit(Shards.from_arrays([(X, CLEAN)]))
    with pytest.raises(ValueError, match=r"cascade__joint sets .* cascade=2 is not an object: .* cascade=Cascade\(\)"):
        RegressionTreeField(cascade=2).set_params(cascade__joint=1)
