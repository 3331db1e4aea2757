"""Bandwidths of dense fields, learned with the derivatives of the kernels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import BandwidthGradient, ExpectedIoU, LogLoss
from sklearn_crf.dense._examples import Task
from sklearn_crf.dense._gaussian_kernels import list_bandwidth_names, scale_kernels
from sklearn_crf.dense._training import Lattices, Layout, UnrolledRisk, Weights, _ScaleSlopes
from sklearn_crf.inference import DenseMeanField

SHAPE = (24, 30)
FIVE_UPDATES = DenseMeanField(max_iter=5)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class ExactFilter:
    """Normalised Gaussian sums over all pairs, as a matrix."""

    def __init__(self, features):
        distances = np.square(features[:, np.newaxis] - features).sum(axis=-1)
        kernel = np.exp(-distances / 2)
        self.weight = 1 / np.sqrt(kernel.sum(axis=1, keepdims=True))
        self.matrix = self.weight * kernel * self.weight.T

    def apply(self, values, n_threads=1):
        return self.matrix @ values


def example_and_labels(dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    labels = gaussian_filter(rng.normal(size=(3, *SHAPE)), (0, 4, 4)).argmax(axis=0)
    image = 30.0 * labels[..., np.newaxis] + rng.normal(scale=9, size=(*SHAPE, 2))
    scores = np.eye(3)[labels] + rng.normal(size=(*SHAPE, 3))
    return DenseExample(scores.astype(dtype), image.astype(dtype)), labels.ravel()


def risk_of(kernels, example, labels, loss=None, inference=FIVE_UPDATES, blur="single"):
    tasks = [Task(0, example, labels, np.ones(len(labels)))]
    lattices = Lattices(kernels, tasks, blur=blur, max_memory=2**30, n_jobs=None)
    return UnrolledRisk(tasks, lattices, Layout(len(kernels), 3, "potts"), loss or LogLoss(), inference, 1e9, None)


def exact_loss(kernels, example, labels, compatibility):
    matrices = [ExactFilter(kernel.features(example, "kernel")).matrix for kernel in kernels]
    logits = example.rows
    for _ in range(FIVE_UPDATES.max_iter + 1):
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        logits = example.rows + sum(c * matrix @ q for c, matrix in zip(compatibility, matrices, strict=True))
    return -np.mean(np.log(q[np.arange(len(labels)), labels]))


def exact_slopes(kernels, example, labels, compatibility, n_bandwidths, step=1e-3):
    def loss(a, moved):
        factors = np.exp(moved * (np.arange(n_bandwidths) == a))
        return exact_loss(scale_kernels(kernels, factors), example, labels, compatibility)

    return np.array([(loss(a, step) - loss(a, -step)) / (2 * step) for a in range(n_bandwidths)])


def drawn(true, n_images, seed=0):
    """Return images, and labels drawn from the marginals of a field with known kernels."""
    rng = np.random.default_rng(seed)
    X = [example_and_labels(seed=i)[0] for i in range(n_images)]
    any_labels = [np.arange(np.prod(SHAPE)).reshape(SHAPE) % 3] * n_images
    q = DenseCRF(true, learning="fixed", inference=FIVE_UPDATES).fit(X, any_labels).predict_proba(X)
    return X, [(own.cumsum(axis=-1) < rng.random((*SHAPE, 1))).sum(axis=-1) for own in q]


def test_derivative_of_exact_sums_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    features, left, right = rng.normal(scale=2, size=(40, 3)) + 50, rng.normal(size=(40, 4)), rng.random((40, 4))
    exact = ExactFilter(features)
    found = _ScaleSlopes(exact, features, 1).of(left, right, exact.apply(left))

    def total(a, moved):
        return np.sum(left * ExactFilter(features * np.exp(-moved * (np.arange(3) == a))).apply(right))

    expected = [(total(a, 1e-5) - total(a, -1e-5)) / 2e-5 for a in range(3)]
    assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("kernels", "compatibility", "error"),
    [
        # In two dimensions, bandwidths of a pixel and a half are the least accurate.
        ([Spatial((1.5, 4.0))], [3.0], 0.25),
        ([Spatial(5.0)], [3.0], 0.1),
        ([Spatial(4.0), Bilateral(6.0, 60.0)], [1.0, 2.0], 0.2),
        ([Bilateral((8.0, 12.0), (40.0, 60.0))], [3.0], 0.25),
    ],
)
def test_estimate_is_near_the_derivative_of_exact_sums(kernels, compatibility, error):
    example, labels = example_and_labels()
    weights = Weights(np.array(compatibility))
    found = risk_of(kernels, example, labels).estimate_bandwidth_slopes(weights)
    expected = exact_slopes(kernels, example, labels, weights.compatibility, len(found))
    assert np.abs(found - expected).max() <= error * np.abs(expected).max()


def test_axes_have_their_own_bandwidths():
    example, labels = example_and_labels()
    one, each = (
        risk_of([kernel], example, labels).estimate_bandwidth_slopes(Weights(np.array([3.0])))
        for kernel in (Bilateral(6.0, 30.0), Bilateral((6.0, 6.0), (30.0, 30.0)))
    )
    assert_allclose(one, each.reshape(2, 2).sum(axis=1), rtol=1e-9)
    scaled = scale_kernels([Spatial(2.0), Bilateral((1.0, 2.0), 4.0)], np.array([2.0, 3.0, 4.0, 5.0]))
    assert scaled == [Spatial(4.0), Bilateral((3.0, 8.0), 20.0)]


@pytest.mark.parametrize("loss", [LogLoss(), ExpectedIoU()], ids=["log_loss", "expected_iou"])
def test_estimate_is_near_the_slope_of_the_loss_on_the_lattice(loss):
    example, labels = example_and_labels()
    kernels, weights = [Spatial(3.0), Bilateral(8.0, 40.0)], Weights(np.array([1.0, 2.0]))

    def slope(a):
        # The loss on the lattice is rough, so its slope comes from a line fitted to losses over a wider range.
        at = np.linspace(-0.3, 0.3, 9)
        factors = np.exp(at[:, np.newaxis] * (np.arange(3) == a))
        losses = [risk_of(scale_kernels(kernels, own), example, labels, loss).value(weights) for own in factors]
        return np.polyfit(at, losses, 1)[0]

    found = risk_of(kernels, example, labels, loss).estimate_bandwidth_slopes(weights)
    expected = np.array([slope(a) for a in range(3)])
    assert np.abs(found - expected).max() <= 0.25 * np.abs(expected).max()


def test_single_precision_and_forbidden_classes():
    kernels, weights = [Spatial(3.0), Bilateral(8.0, 40.0)], Weights(np.array([1.0, 2.0]))
    double, labels = example_and_labels()
    single, _ = example_and_labels(np.float32)
    expected = risk_of(kernels, double, labels).estimate_bandwidth_slopes(weights)
    assert_allclose(risk_of(kernels, single, labels).estimate_bandwidth_slopes(weights), expected, atol=1e-4)
    scores = np.where(np.arange(3) == (labels.reshape(SHAPE)[..., np.newaxis] + 1) % 3, -np.inf, double.scores)
    found = risk_of(kernels, DenseExample(scores, double.image), labels).estimate_bandwidth_slopes(weights)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("true", "start"),
    [
        ([Spatial(2.5, weight=4.0)], [Spatial(8.0)]),
        ([Spatial(2.5, weight=4.0)], [Spatial(0.7)]),
        ([Bilateral(6.0, 20.0, weight=4.0)], [Bilateral(20.0, 60.0)]),
        ([Spatial((2.0, 6.0), weight=4.0)], [Spatial((6.0, 6.0))]),
    ],
)
def test_bandwidths_that_labels_were_drawn_with_are_found(true, start):
    X, y = drawn(true, 6)
    given = DenseCRF(start, inference=FIVE_UPDATES).fit(X, y)
    learned = DenseCRF(start, bandwidths="learned", inference=FIVE_UPDATES).fit(X, y)
    best = DenseCRF(true, inference=FIVE_UPDATES).fit(X, y)
    for name in list_bandwidth_names(start[0]):
        assert_allclose(getattr(learned.kernels_[0], name), getattr(true[0], name), rtol=0.2)
    assert learned.loss_curve_[-1] < min(given.loss_curve_[-1], 1.01 * best.loss_curve_[-1])
    losses = [loss for _, loss in learned.bandwidth_trace_]
    assert repr(learned.kernels_) == learned.bandwidth_trace_[int(np.argmin(losses))][0]
    n_pixels = 6 * np.prod(SHAPE)
    assert learned.loss_curve_[0] == pytest.approx(min(losses) * n_pixels, rel=1e-9)


def test_results_do_not_depend_on_threads():
    X, y = drawn([Bilateral(6.0, 20.0, weight=4.0)], 3)
    fields = [
        DenseCRF([Bilateral(20.0, 60.0)], bandwidths=BandwidthGradient(max_iter=2), inference=FIVE_UPDATES, n_jobs=n)
        for n in (1, 4)
    ]
    one, several = [field.fit(X, y) for field in fields]
    assert several.bandwidth_trace_ == one.bandwidth_trace_
    assert_array_equal(several.compatibility_, one.compatibility_)


@pytest.mark.parametrize("options", [{"learning": "fixed"}, {"inference": DenseMeanField(3, updates="convergent")}])
def test_loss_falls_with_fixed_weights_and_convergent_updates(options):
    X, y = drawn([Spatial(2.5, weight=3.0)], 3)
    y[0][:, ::2] = -1
    learned = DenseCRF([Spatial(8.0, weight=3.0)], bandwidths="learned", missing_label=-1, **options).fit(X, y)
    losses = [loss for _, loss in learned.bandwidth_trace_]
    assert min(losses) < 0.95 * losses[0]
    if options.get("learning") == "fixed":
        assert_array_equal(learned.compatibility_, [3.0])


def test_a_field_without_kernels_has_no_bandwidths():
    X, y = drawn([Spatial(2.5)], 2)
    assert DenseCRF([], bandwidths="learned").fit(X, y).kernels_ == []


def quadratic(kernels):
    """Return a loss that is least at bandwidths 2, 32 and 8, and its slopes in the logarithms of bandwidths."""
    spatial, bilateral = kernels
    at = np.log([spatial.bandwidth, bilateral.bandwidth, bilateral.channel_bandwidth])
    scale = np.array([[2.0, 0.5, 0], [0.5, 1.0, 0], [0, 0, 10.0]])
    off = at - np.log([2.0, 32.0, 8.0])
    return float(off @ scale @ off) / 2, scale @ off


def test_descent_goes_down_a_quadratic_function():
    start = [Spatial(1.0), Bilateral(80.0, 13.0)]
    (spatial, bilateral), trace = BandwidthGradient(tol=1e-4, max_iter=30).descend(start, quadratic)
    assert_allclose([spatial.bandwidth, bilateral.bandwidth, bilateral.channel_bandwidth], [2.0, 32.0, 8.0], rtol=1e-3)
    assert len(trace) < 25
    assert trace[0] == (repr(start), quadratic(start)[0])


def test_descent_stays_within_its_bounds_and_stands_wrong_slopes():
    start = [Spatial(1.0), Bilateral(80.0, 13.0)]
    (spatial, bilateral), _ = BandwidthGradient(max_factor=1.5).descend(start, quadratic)
    assert spatial.bandwidth == pytest.approx(1.5)
    assert bilateral.bandwidth == pytest.approx(80 / 1.5)

    best, trace = BandwidthGradient().descend(start, lambda kernels: (quadratic(kernels)[0], -quadratic(kernels)[1]))
    assert best == start
    assert len(trace) <= 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": 0}, r"'max_iter' parameter of BandwidthGradient must be an int in the range \[1, inf\)"),
        ({"max_step": 0.0}, r"'max_step' parameter of BandwidthGradient must be a float in the range \(0.0, inf\)"),
        ({"tol": np.nan}, r"'tol' parameter of BandwidthGradient must be a float in the range \(0.0, inf\)"),
        ({"max_factor": 1.0}, r"'max_factor' parameter of BandwidthGradient must be a float in the range \(1.0, inf\)"),
    ],
)
def test_wrong_options_are_named(options, message):
    X, y = drawn([Spatial(2.5)], 2)
    field = DenseCRF([Spatial(2.5)], bandwidths=BandwidthGradient(**options))
    with pytest.raises(ValueError, match=message):
        field.fit(X, y)
    assert not hasattr(field, "classes_")
