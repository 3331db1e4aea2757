"""Deblurring and super-resolution: the likelihood of a degraded image as part of a regression tree field."""

import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.ndimage
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import RegressionTreeField
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect, GaussianGibbs
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf import Blur, Downsampling, FieldSolver, GaussianNoise
from sklearn_crf.rtf._objectives import FieldRisk, PredictionLoss
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates
from sklearn_crf.rtf.images._channels import ChannelUnits
from sklearn_crf.rtf.images._degradation import Observation
from sklearn_crf.rtf.losses import loss_function

UNITS = ChannelUnits.of({}, 1)
QUICK = {
    "max_depth": 1,
    "max_iter": 6,
    "filter_bank": None,
    "solver": FieldSolver(shrinkage=0.0),
    "random_state": 0,
}
MOTION = np.full((1, 5), 0.2)
SIGMA = 0.02


def clean_images(n=6, shape=(24, 24), seed=0):
    """Return images of blocks of constant grey."""
    rng = np.random.default_rng(seed)
    return np.kron(rng.random((n, shape[0] // 8, shape[1] // 8)), np.ones((1, 8, 8)))


def matrix_of(transform):
    """Return K as a matrix, with a column for each pixel of a single-channel image."""
    n = int(np.prod(transform.shape))
    return np.array([transform(unit.reshape(*transform.shape, 1)).ravel() for unit in np.eye(n)]).T


def mean_square(a, b):
    return np.mean((np.asarray(a, dtype=float) - b) ** 2)


@pytest.mark.parametrize(("shape", "size"), [((9, 8), (3, 3)), ((10, 7), (4, 3)), ((6, 6), (5, 2)), ((3, 4), (5, 5))])
def test_blur_is_a_convolution_where_the_kernel_lies_within(shape, size):
    rng = np.random.default_rng(0)
    kernel, image = rng.normal(size=size), rng.normal(size=(*shape, 2))
    transform = Blur(kernel, 0.1).transform(shape)
    expected = np.stack([scipy.ndimage.convolve(image[..., c], kernel, mode="nearest") for c in range(2)], axis=2)
    assert_allclose(transform(image), transform.masked(expected), atol=1e-5)
    inside = [max(0, side - own + 1) for side, own in zip(shape, size, strict=True)]
    assert np.count_nonzero(transform.is_inside) == np.prod(inside)


@pytest.mark.parametrize("degradation", [Blur([[0.2, 0.5, 0.3]], 0.1), Downsampling(2, 0.1)], ids=["blur", "means"])
def test_adjoint_and_diagonal(degradation):
    rng = np.random.default_rng(0)
    transform = degradation.transform((6, 8))
    image = rng.normal(size=(6, 8, 2))
    observed = transform.masked(rng.normal(size=transform(image).shape))
    assert_allclose(np.vdot(observed, transform(image)), np.vdot(transform.adjoint(observed), image), rtol=1e-5)
    matrix = matrix_of(transform)
    assert_allclose(transform.squares().ravel(), np.diagonal(matrix.T @ matrix), atol=1e-6)


@pytest.mark.parametrize("degradation", [Blur(MOTION, 0.3), Downsampling(2, 0.3)], ids=["blur", "means"])
def test_mean_of_an_observed_field_is_that_of_the_dense_matrix(degradation):
    rng = np.random.default_rng(0)
    shape, mean, scale = (6, 8), np.array([0.4]), 1.7
    graph = lattice(shape)
    J, h = np.full(48, 5.0), rng.normal(size=48)
    image = rng.normal(size=(*shape, 1))
    observed = degradation(image, rng)
    observation = Observation.of(degradation, degradation.lifted(observed), mean, scale, UNITS)
    model = GaussianModel(graph, h[:, None] + observation.linear, J, [-1.0], None, observation.precision)
    found = ConjugateGradient(tol=1e-8).marginals(model)
    transform = degradation.transform(shape)
    matrix = matrix_of(transform)
    # The likelihood of mean + scale * u, in closed form.
    residual = transform.masked(observed).ravel() - matrix @ np.full(48, mean[0])
    precision = GaussianModel(graph, h, J, [-1.0]).precision_matrix() + (scale / 0.3) ** 2 * matrix.T @ matrix
    expected = np.linalg.solve(precision, h + scale / 0.3**2 * matrix.T @ residual)
    assert_allclose(found.mean.ravel(), expected, atol=1e-4)
    assert_allclose(
        model.product(image.reshape(48, 1)).ravel(), np.asarray(precision @ image.ravel()).ravel(), rtol=1e-4
    )


def test_other_algorithms_refuse_a_precision_operator():
    observation = Observation.of(Blur(MOTION, 1.0), np.zeros((4, 6, 1), np.float32), np.zeros(1), 1.0, UNITS)
    model = GaussianModel(lattice((4, 6)), np.zeros(24), np.ones(24), [0.0], None, observation.precision)
    for algorithm in (GaussianDirect(), GaussianGibbs(), GaussianBP()):
        with pytest.raises(ValueError, match=r"precision_operator, which .* does not support: use ConjugateGradient"):
            algorithm.marginals(model)
    with pytest.raises(ValueError, match="does not support a model with precision_operator"):
        model.precision_matrix()
    with pytest.raises(ValueError, match=r"precision_operator must have shape \(6, 6\), got \(24, 24\)"):
        GaussianModel(lattice((2, 3)), np.zeros(6), np.ones(6), [0.0], None, observation.precision)


@pytest.mark.parametrize("degradation", [Blur(MOTION, 0.5), Downsampling(2, 0.5)], ids=["blur", "means"])
def test_gradient_of_the_loss_of_predictions(degradation):
    rng = np.random.default_rng(0)
    shape = (6, 8)
    types = build_factor_templates(np.array([[0, 1], [1, 0]]))
    plane = rng.normal(size=(*shape, 1))
    observation = Observation.of(degradation, degradation.lifted(degradation(plane, rng)), np.zeros(1), 1.0, UNITS)
    potentials = RegressionTreePotentials(types, [1] * 3, [np.eye(kind.n_inputs(1)) for kind in types], 1)
    image = FieldImage.of(plane, lattice(shape, [[0, 1], [1, 0]]), types, [RegressionTree.stump()] * 3, 1, observation)
    objective = PredictionLoss(loss_function("mse"), ConjugateGradient(tol=1e-10))
    risk = FieldRisk(objective, potentials, [image], [rng.normal(size=(48, 1))])
    coef = potentials.start() + 0.05 * rng.normal(size=potentials.n_coef)
    # Precisions are read as symmetric, so the directions of the check are symmetric too.
    for part in potentials.unpack(coef):
        part.precision[:] = (part.precision + part.precision.transpose(0, 2, 1)) / 2
    direction = rng.normal(size=potentials.n_coef)
    for part in potentials.unpack(direction):
        part.precision[:] = (part.precision + part.precision.transpose(0, 2, 1)) / 2
    error = check_grad(
        lambda t: risk.value(coef + t[0] * direction),
        lambda t: [risk.value_grad(coef + t[0] * direction)[1] @ direction],
        [0.0],
        epsilon=1e-3,
    )
    assert error < 1e-2 * abs(risk.value_grad(coef)[1] @ direction)


def test_clean_images_are_enough_to_deblur():
    clean = clean_images(14)
    blur = Blur(MOTION, SIGMA)
    field = RegressionTreeField(degradation=blur, **QUICK).fit(clean[:12])
    rng = np.random.default_rng(1)
    blurred = np.stack([blur(image, rng) for image in clean[12:]])
    predicted = field.predict(blurred)
    assert predicted.shape == blurred.shape
    assert mean_square(predicted, clean[12:]) < 0.65 * mean_square(blurred, clean[12:])
    # The prediction is the mean of the model that ``models`` returns.
    mean = ConjugateGradient(tol=1e-7).marginals(field.models(blurred)[0]).mean.reshape(24, 24)
    assert_allclose(np.clip(mean, *field.target_range_), predicted[0], atol=1e-3)
    again = pickle.loads(pickle.dumps(field)).set_params(n_jobs=2)
    assert_array_equal(again.predict(blurred), predicted)
    assert_array_equal(clone(field).set_params(n_jobs=2).fit(clean[:12]).predict(blurred), predicted)
    # Examples blurred by the user train as well.
    pairs = RegressionTreeField(degradation=blur, **QUICK)
    pairs.fit(np.stack([blur(image, rng) for image in clean[:12]])[..., None], clean[:12])
    error = mean_square(pairs.predict(blurred[..., None]), clean[12:])
    assert error < 0.65 * mean_square(blurred, clean[12:])
    assert 0 < pairs.score(blurred[..., None], clean[12:]) <= 1


def test_one_field_for_several_kernels():
    clean = clean_images(14)
    blurs = [Blur(MOTION, SIGMA), Blur(MOTION.T, SIGMA)]
    rng = np.random.default_rng(1)
    blurred = [blur(image, rng) for blur, image in zip(blurs, clean[12:], strict=True)]
    for cascade in (1, 2):
        field = RegressionTreeField(degradation=blurs, cascade=cascade, **QUICK).fit(clean[:12])
        right = field.predict(blurred, degradation=blurs)
        wrong = field.predict(blurred, degradation=blurs[::-1])
        for i in range(2):
            before = mean_square(blurred[i], clean[12 + i])
            assert mean_square(right[i], clean[12 + i]) < 0.65 * before
            assert mean_square(wrong[i], clean[12 + i]) > before
        with pytest.raises(ValueError, match="predict needs the argument degradation"):
            field.predict(blurred)


def test_super_resolution():
    clean = clean_images(14)
    # Use images whose edges do not coincide with the borders of squares.
    clean = np.roll(clean, 3, axis=(1, 2))
    halved = Downsampling(2, 0.01)
    rng = np.random.default_rng(1)
    small = np.stack([halved(image, rng) for image in clean])
    lifted = np.stack([halved.lifted(image[..., None])[..., 0] for image in small])
    of_lifted = np.stack([halved.observed(image[..., None])[..., 0] for image in lifted])
    assert_allclose(of_lifted, small, atol=1e-6)
    bicubic = np.stack([scipy.ndimage.zoom(image, 2, order=3, mode="nearest", grid_mode=True) for image in small])
    from_clean = RegressionTreeField(degradation=halved, **QUICK).fit(clean[:12])
    from_pairs = RegressionTreeField(degradation=halved, **QUICK).fit(small[:12, ..., None], clean[:12])
    for predicted in (from_clean.predict(small[12:]), from_pairs.predict(small[12:, ..., None])):
        assert predicted.shape == clean[12:].shape
        assert mean_square(predicted, clean[12:]) < 0.6 * mean_square(bicubic[12:], clean[12:])


def test_parts_of_images_see_their_own_observations():
    clean = clean_images(4, (96, 128))
    for degradation in (Blur(MOTION, SIGMA), Downsampling(3, SIGMA)):
        clean_of = clean if degradation.step == 1 else clean[:, :, :126]
        field = RegressionTreeField(degradation=degradation, **QUICK)
        field.set_params(solver=FieldSolver(max_samples=9000, early_stopping=True, shrinkage=0.0)).fit(clean_of)
        observed = np.stack([degradation(image, np.random.default_rng(0)) for image in clean_of])
        assert mean_square(field.predict(observed), clean_of) < 0.01
        assert len(field.validation_curve_) >= 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"degradation": [1]}, "degradation must be Blur, Downsampling"),
        ({"degradation": []}, "degradation must be Blur, Downsampling"),
        ({"degradation": "blur"}, "The 'degradation' parameter"),
        ({"degradation": Blur(np.zeros((3, 3)), 1.0)}, "The 'kernel' parameter of Blur must be a matrix"),
        ({"degradation": Blur([1.0], 1.0)}, "The 'kernel' parameter of Blur must be a matrix"),
        ({"degradation": Blur(MOTION, 0.0)}, "The 'noise' parameter of Blur"),
        ({"degradation": Downsampling(1, 1.0)}, "The 'factor' parameter of Downsampling"),
        ({"degradation": [Blur(MOTION, 1.0), Downsampling(2, 1.0)]}, "reduce images by the same factor"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(InvalidParameterError, match=message):
        RegressionTreeField(**params).fit(clean_images(2))


def test_bad_input():
    clean, blur = clean_images(2), Blur(MOTION, SIGMA)
    with pytest.raises(ValueError, match="corruption cannot be combined with degradation"):
        RegressionTreeField(degradation=blur, corruption=GaussianNoise(1.0)).fit(clean)
    with pytest.raises(ValueError, match="degradation needs a prediction loss"):
        RegressionTreeField("pseudolikelihood", degradation=blur).fit(clean)
    with pytest.raises(ValueError, match="holds 1 degradations for 2 degraded images"):
        RegressionTreeField(degradation=[blur]).fit(clean[..., None], clean)
    with pytest.raises(
        ValueError, match=re.escape("X[0] has 24 x 24 pixels and is smaller than the kernel of Blur, which has (40, 1)")
    ):
        RegressionTreeField(degradation=Blur(np.ones((40, 1)), 1.0)).fit(clean)
    with pytest.raises(ValueError, match=re.escape("X[0] has 24 x 24 pixels, but Downsampling needs sides")):
        RegressionTreeField(degradation=Downsampling(5, 1.0)).fit(clean)
    with pytest.raises(ValueError, match="images without missing pixels"):
        RegressionTreeField(degradation=blur).fit(np.where(clean > 0.5, clean, np.nan)[..., None], clean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        field = RegressionTreeField(degradation=blur, **QUICK).fit(clean)
        plain = RegressionTreeField(**QUICK).fit(clean[..., None], clean)
    with pytest.raises(ValueError, match="evidence cannot be combined with degradation"):
        field.predict(clean, evidence=clean)
    with pytest.raises(ValueError, match="degradation argument needs a field that was trained with"):
        plain.predict(clean[..., None], degradation=blur)


def fit_quietly(X, y, degradation):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        return RegressionTreeField(degradation=degradation, **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("degradation", "unit_of_y"),
    [
        (Blur(9 * np.full((3, 3), 1 / 9), 2.0), 1),
        (Blur(np.full((5, 5), 1 / 25), 2.0), 1),
        (Blur(np.full((1, 9), 1 / 9), 2.0), 1),
        (Blur(np.full((3, 3), 1 / 9), 0.3), 1),
        (Blur(np.full((3, 3), 1 / 9), 2.0), 1 / 255),
    ],
    ids=["sum", "size", "shape", "noise", "unit"],
)
def test_a_degradation_that_did_not_make_the_images_is_warned_of(degradation, unit_of_y):
    y = 255 * clean_images()
    X = np.stack([Blur(np.full((3, 3), 1 / 9), 2.0)(own, np.random.default_rng(i)) for i, own in enumerate(y)])
    with pytest.warns(UserWarning, match=r"^X\[0\] differs from the degraded y\[0\] by .* check its kernel or factor"):
        fit_quietly(X[..., np.newaxis], unit_of_y * y, degradation)


@pytest.mark.parametrize("level", [0, 1e6])
@pytest.mark.parametrize("true", [Blur(np.full((3, 3), 1 / 9), 2.0), Blur(MOTION, 2.0), Downsampling(2, 2.0)])
def test_the_degradation_that_made_the_images_is_not_warned_of(true, level):
    y = 255 * clean_images()
    X = np.stack([true(own, np.random.default_rng(i)) for i, own in enumerate(y)])[..., np.newaxis].astype(float)
    with warnings.catch_warnings(action="error", category=UserWarning):
        fit_quietly(X + level, y + level, true)
