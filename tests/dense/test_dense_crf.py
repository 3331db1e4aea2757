"""DenseCRF: what it learns, and the input that it accepts and rejects."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import BandwidthSearch, LogLoss
from sklearn_crf.inference import DenseMeanField

KERNELS = (Spatial(1.5, weight=1.0), Bilateral(6.0, 30.0, weight=1.0))
SIZES = [(9, 12), (12, 9), (11, 11), (10, 13), (9, 9), (12, 12)]
FEW_UPDATES = DenseMeanField(max_iter=3)


def coloured_regions(n_classes=3, dtype=np.float64, sizes=SIZES, seed=0):
    """Return DenseExamples of images whose colours tell their regions, with noisy scores, and labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for shape in sizes:
        lines = sum(np.indices(shape)) + rng.integers(4)
        labels = (lines * n_classes // (lines.max() + 1)).astype(int)
        image = 80.0 * labels[..., np.newaxis] + rng.normal(scale=15, size=(*shape, 2))
        scores = np.eye(n_classes)[labels] + rng.normal(size=(*shape, n_classes))
        X.append(DenseExample(scores.astype(dtype), image.astype(dtype)))
        y.append(labels)
    return X, y


def as_arrays(X):
    return [np.concatenate([example.scores, example.image], axis=-1) for example in X]


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return coloured_regions()


@pytest.mark.parametrize("compatibility", ["potts", "diagonal", "full"])
@pytest.mark.parametrize("learning", ["log_loss", "expected_iou"])
def test_learned_weights_beat_fixed_ones(data, compatibility, learning):
    X, y = data
    options = {"compatibility": compatibility, "inference": DenseMeanField(max_iter=5)}
    fixed = DenseCRF(KERNELS, learning="fixed", **options).fit(X[:4], y[:4])
    learned = DenseCRF(KERNELS, learning=learning, **options).fit(X[:4], y[:4])
    assert learned.loss_curve_[-1] < 0.9 * learned.loss_curve_[0]
    assert np.all(np.diff(learned.loss_curve_) <= 1e-9)
    assert len(learned.loss_curve_) == learned.n_iter_ + 1
    alone = np.mean([np.mean(x.scores.argmax(axis=-1) == labels) for x, labels in zip(X[4:], y[4:], strict=True)])
    assert learned.score(X[4:], y[4:]) > max(fixed.score(X[4:], y[4:]), alone + 0.1)
    assert fixed.unary_scale_ == 1.0
    assert fixed.n_iter_ == 0


@pytest.mark.parametrize("weight", [0.0, 1.0, 1e3])
def test_training_loss_is_below_that_of_the_given_weights_and_of_no_field(data, weight):
    X, y = data
    kernels = [Spatial(3.0, weight=weight)]
    learned = DenseCRF(kernels, max_iter=1, inference=FEW_UPDATES).fit(X, y)
    for given in (weight, 0.0):
        fixed = DenseCRF([Spatial(3.0, weight=given)], learning="fixed", inference=FEW_UPDATES).fit(X, y)
        loss = -sum(
            np.log(1e-300 + np.take_along_axis(q, part[..., np.newaxis], axis=-1)).sum()
            for q, part in zip(fixed.predict_proba(X), y, strict=True)
        )
        assert learned.loss_curve_[-1] <= loss + 0.5 * given**2


def test_linear_unaries_are_learned_too(data):
    X, y = data
    # Permuted scores are useless as features without learned weights.
    turned = [DenseExample(x.scores @ np.array([[0, 1, 0], [0, 0, 1], [1.0, 0, 0]]), x.image) for x in X]
    field = DenseCRF(KERNELS, unaries="linear").fit(turned[:4], y[:4])
    assert field.coef_.shape == (3, 3)
    assert field.score(turned[4:], y[4:]) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linear_features_of_a_tiny_range_cause_a_warning(data, dtype):
    X, y = data
    tiny = [DenseExample((x.scores * [1, 1e-5, 1]).astype(dtype), x.image) for x in X]
    field = DenseCRF([], unaries="linear", max_iter=5)
    with pytest.warns(
        UserWarning, match=r"Features \[1\] range over less than 0.1.*scale the features of each example"
    ):
        clone(field).fit(tiny, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        field.fit(X, y)
        field.set_params(C=1e13).fit(tiny, y)


def test_linear_unaries_without_kernels_are_logistic_regression(data):
    from sklearn.linear_model import LogisticRegression

    X, y = data
    field = DenseCRF([], unaries="linear", C=0.1, tol=1e-9, max_iter=1000).fit(X, y)
    rows = np.concatenate([x.rows for x in X])
    reference = LogisticRegression(C=0.1, tol=1e-9, max_iter=1000).fit(
        rows, np.concatenate([part.ravel() for part in y])
    )
    assert_allclose(field.coef_, reference.coef_, atol=1e-5)
    assert_allclose(field.intercept_ - field.intercept_.mean(), reference.intercept_, atol=1e-5)


def test_search_goes_down_each_bandwidth_by_factors_of_two():
    def loss(kernels):
        spatial, bilateral = kernels
        found = np.log2([spatial.bandwidth, bilateral.bandwidth, bilateral.channel_bandwidth])
        return float(np.sum(np.square(found - [1, 5, 3])))

    start = [Spatial(2.0), Bilateral(16.0, 64.0)]
    best, trace = BandwidthSearch().choose(start, loss)
    assert repr(best) == repr([Spatial(2.0), Bilateral(32.0, 8.0)])
    assert min(value for _, value in trace) == 0.0
    assert trace[0] == (repr(start), loss(start))


def test_bandwidths_are_chosen_on_held_out_examples(data):
    X, y = data
    start = [Bilateral(6.0, 1000.0, weight=1.0)]
    options = {"max_iter": 10, "inference": DenseMeanField(max_iter=3)}
    given = DenseCRF(start, **options).fit(X[:4], y[:4])
    chosen = DenseCRF(start, bandwidths=BandwidthSearch(random_state=0), **options).fit(X[:4], y[:4])
    assert given.bandwidth_trace_ == []
    losses = [loss for _, loss in chosen.bandwidth_trace_]
    assert min(losses) < 0.8 * losses[0]
    assert repr(chosen.kernels_) == chosen.bandwidth_trace_[int(np.argmin(losses))][0]
    assert repr(start) == "[Bilateral(bandwidth=6.0, channel_bandwidth=1000.0, weight=1.0)]"
    with pytest.raises(ValueError, match="BandwidthSearch needs labelled examples"):
        DenseCRF(start, bandwidths="held_out").fit(X[:1], y[:1])


def test_arrays_and_examples_are_the_same(data):
    X, y = data
    field = DenseCRF(KERNELS, image_channels=2, max_iter=3)
    by_example = field.fit(X, y).predict_proba(X)
    by_array = clone(field).fit(as_arrays(X), y).predict_proba(as_arrays(X))
    for one, other in zip(by_example, by_array, strict=True):
        assert_array_equal(one, other)
    assert field.n_features_in_ == 5


def test_one_array_gives_one_array():
    X, y = coloured_regions(sizes=[(8, 9)] * 4)
    stacked, y = np.stack(as_arrays(X)), np.stack(y)
    field = DenseCRF(KERNELS, image_channels=2, max_iter=3).fit(stacked, y)
    assert field.predict(stacked).shape == y.shape
    assert field.predict_proba(stacked).shape == (*y.shape, 3)
    assert_allclose(field.predict_proba(stacked).sum(axis=-1), 1.0)
    assert_allclose(np.exp(field.predict_log_proba(stacked)), field.predict_proba(stacked))
    assert field.predict(list(stacked)).dtype == object


def test_volumes_with_spacing():
    rng = np.random.default_rng(0)
    y = (np.indices((4, 8, 8)).sum(axis=0) > 9).astype(int)
    volume = DenseExample(np.eye(2)[y] + rng.normal(size=(4, 8, 8, 2)), 50.0 * y + rng.normal(size=y.shape), (3, 1, 1))
    kernels = [Spatial(2.0, weight=3.0), Bilateral(8.0, 10.0, weight=10.0)]
    field = DenseCRF(kernels, learning="fixed").fit([volume], [y])
    assert field.score([volume], [y]) > 0.95
    # slices that lie far apart do not influence each other
    apart = DenseExample(volume.scores, volume.image, (1e3, 1, 1))
    flat = [DenseExample(volume.scores[k], volume.image[k]) for k in range(4)]
    alone = clone(field).fit(flat, list(y)).predict_proba(flat)
    assert_allclose(np.stack(list(alone)), field.predict_proba([apart])[0], atol=0.05)


def test_strings_missing_labels_and_classes(data):
    X, y = data
    names = np.array(["sky", "grass", "water"])
    labels = [names[part].astype(object) for part in y]
    for part in labels:
        part[::3] = None
    field = DenseCRF(KERNELS, classes=sorted(names), max_iter=5)
    # scores are in the order of the sorted classes
    order = np.argsort(names)
    sorted_X = [DenseExample(x.scores[..., order], x.image) for x in X]
    field.fit(sorted_X, labels)
    assert_array_equal(field.classes_, sorted(names))
    assert np.mean(field.predict(sorted_X)[0] == names[y[0]]) > 0.9
    filled = [np.where(part == None, "sky", part) for part in labels]  # noqa: E711
    assert field.score(sorted_X, labels) > clone(field).fit(sorted_X, filled).score(sorted_X, filled)


def test_evidence_is_kept_and_spreads(data):
    X, y = data
    field = DenseCRF(KERNELS, missing_label=-1, max_iter=10).fit(X, y)
    blank = [DenseExample(np.zeros_like(X[0].scores), X[0].image)]
    evidence = np.where(np.indices(y[0].shape)[1] % 4 == 0, y[0], -1)
    predicted = field.predict(blank, evidence=[evidence])[0]
    assert_array_equal(predicted[evidence >= 0], evidence[evidence >= 0])
    assert np.mean(predicted == y[0]) > np.mean(field.predict(blank)[0] == y[0]) + 0.2


def test_weights_of_classes_and_examples(data):
    X, y = data
    field = DenseCRF(KERNELS, inference=FEW_UPDATES, tol=1e-6)
    twice = clone(field).fit([*X, X[0]], [*y, y[0]])
    weighted = clone(field).fit(X, y, sample_weight=[2, 1, 1, 1, 1, 1])
    assert_allclose(weighted.compatibility_, twice.compatibility_, rtol=1e-3)
    alone = clone(field).fit(X[:1], y[:1])
    assert_allclose(
        clone(field).fit(X, y, sample_weight=[1, 0, 0, 0, 0, 0]).compatibility_, alone.compatibility_, rtol=1e-3
    )
    light = DenseCRF([], unaries="linear", class_weight={0: 0.01}).fit(X, y)
    even = DenseCRF([], unaries="linear").fit(X, y)
    count = [np.mean([np.mean(part == 0) for part in one.predict(X)]) for one in (light, even)]
    assert count[0] < count[1]
    balanced = DenseCRF([], unaries="linear", class_weight="balanced").fit(X, y)
    assert np.isfinite(balanced.coef_).all()


def test_warning_says_what_to_change(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="increase max_iter=1 or tol"):
        DenseCRF(KERNELS, max_iter=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DenseCRF(KERNELS, learning="fixed").fit(X, y)
        DenseCRF(KERNELS, inference=FEW_UPDATES, tol=1e-2).fit(X, y)


def test_fixed_weights_take_labels_that_scores_forbid(data):
    X, y = data
    forbidden = [DenseExample(np.where(np.eye(3, dtype=bool)[y[0]], -np.inf, 0.0), X[0].image)]
    field = DenseCRF(KERNELS, learning="fixed", classes=[0, 1, 2]).fit(forbidden, y[:1])
    assert field.score(forbidden, y[:1]) == 0.0


def test_grid_search_and_pickle(data):
    X, y = data
    field = DenseCRF(KERNELS, inference=FEW_UPDATES, max_iter=3)
    parameters = {"C": [1e-6, 1.0], "inference__max_iter": [1, 3]}
    search = GridSearchCV(field, parameters, cv=2).fit(X, y)
    assert search.best_params_["C"] == 1.0
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    fitted = search.best_estimator_
    for one, other in zip(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X), strict=True):
        assert_array_equal(one, other)


def test_failed_fit_leaves_the_estimator_unchanged(data):
    X, y = data
    field = DenseCRF(KERNELS, inference=FEW_UPDATES, max_iter=3).fit(X, y)
    before = {name: value for name, value in vars(field).items() if name.endswith("_")}
    with pytest.raises(ValueError, match="has shape"):
        field.fit(X, [part.T for part in y])
    with pytest.raises(MemoryError):
        field.set_params(max_memory=1000).fit(X, y)
    assert {name: value for name, value in vars(field).items() if name.endswith("_")} == before


def test_warm_start_goes_on(data):
    X, y = data
    field = DenseCRF(KERNELS, warm_start=True, max_iter=3).fit(X, y)
    first = field.loss_curve_
    field.fit(X, y)
    assert field.loss_curve_[0] == pytest.approx(first[-1], rel=1e-9)
    assert field.loss_curve_[-1] < first[-1]
    with pytest.raises(ValueError, match="warm_start=True needs"):
        field.set_params(compatibility="full").fit(X, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_any_number_of_jobs(dtype):
    X, y = coloured_regions(dtype=dtype)
    expected = DenseCRF(KERNELS, max_iter=3).fit(X, y)
    assert expected.predict_proba(X)[0].dtype == dtype
    for n_jobs in (2, 8):
        found = DenseCRF(KERNELS, max_iter=3, n_jobs=n_jobs).fit(X, y)
        assert_array_equal(found.compatibility_, expected.compatibility_)
        for one, other in zip(found.predict_proba(X), expected.predict_proba(X), strict=True):
            assert_array_equal(one, other)


def test_convergent_inference_learns_weights_that_are_not_negative(data):
    X, y = data
    inference = DenseMeanField(max_iter=5, updates="convergent")
    field = DenseCRF([Spatial(2.0), Bilateral(0.5, 1e4)], inference=inference, max_iter=30).fit(X, y)
    assert field.compatibility_.min() >= 0
    assert field.score(X, y) > 0.85
    with pytest.raises(ValueError, match="compatibility='full' cannot be learned"):
        DenseCRF(KERNELS, compatibility="full", inference=inference).fit(X, y)


def test_custom_loss(data):
    class Doubled(LogLoss):
        def value(self, totals):
            return 2 * super().value(totals)

        def gradient(self, totals, q, labels, weight):
            return 2 * super().gradient(totals, q, labels, weight)

    X, y = data
    plain = DenseCRF(KERNELS, C=2.0, inference=FEW_UPDATES).fit(X, y)
    assert_allclose(
        DenseCRF(KERNELS, learning=Doubled(), inference=FEW_UPDATES).fit(X, y).compatibility_,
        plain.compatibility_,
        rtol=1e-2,
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernels": (Spatial(0.0),)}, r"kernels\[0\].bandwidth must be positive"),
        ({"kernels": (Spatial(), Bilateral(3.0, np.nan))}, r"kernels\[1\].channel_bandwidth must be positive"),
        ({"kernels": (Spatial(3.0, weight=np.inf),)}, r"kernels\[0\].weight must be a finite number"),
        ({"kernels": (Spatial((1.0, 2.0, 3.0)),)}, r"kernels\[0\].bandwidth has 3 values"),
        ({"kernels": (Bilateral(3.0, (1.0, 2.0, 3.0)),)}, r"kernels\[0\].channel_bandwidth has 3 values"),
        ({"kernels": (Spatial(1e-25),)}, r"X\[0\], kernels\[0\]: .*2\*\*63"),
        ({"kernels": (3.0,)}, "kernels must be a tuple of kernels"),
        ({"compatibility": "linear"}, "'compatibility' parameter"),
        ({"learning": "hinge"}, "'learning' parameter"),
        ({"inference": "mean_field"}, "'inference' parameter"),
        ({"C": -1.0}, "'C' parameter"),
        ({"bandwidths": "gradient"}, "'bandwidths' parameter"),
        (
            {"bandwidths": BandwidthSearch(validation_fraction=1.0)},
            r"'validation_fraction' .* a float in the range \(0.0, 1.0\)",
        ),
        ({"bandwidths": BandwidthSearch(factor=1.0)}, r"'factor' .* a float in the range \(1.0, inf\)"),
        ({"bandwidths": BandwidthSearch(max_rounds=0)}, r"'max_rounds' .* an int in the range \[1, inf\)"),
        ({"max_memory": 1000}, r"X\[0\], kernels\[0\]: .*max_memory"),
        ({"unaries": "linear", "learning": "fixed"}, "unaries='linear' needs training"),
        ({"classes": [0, 1, 2, 3]}, "3 scores per pixel, but there are 4 classes"),
        ({"class_weight": {0: -1.0}}, "class_weight must be finite and not negative"),
    ],
)
def test_invalid_parameters(data, params, message):
    X, y = data
    with pytest.raises((ValueError, TypeError, MemoryError), match=message):
        DenseCRF(**{"kernels": KERNELS, **params}).fit(X, y)


def test_invalid_input(data):
    X, y = data
    field = DenseCRF(KERNELS, max_iter=2)
    with pytest.raises(ValueError, match=r"pass a list of examples, \[X\]"):
        field.fit(X[0], y[0])
    with pytest.raises(ValueError, match="X is empty"):
        field.fit([], [])
    with pytest.raises(ValueError, match="X must be an array, or a list of one array per example, got None"):
        field.fit(None, y)
    with pytest.raises(ValueError, match="image has shape"):
        DenseExample(np.zeros((4, 5, 2)), np.zeros((5, 4, 3)))
    with pytest.raises(ValueError, match="image must be finite"):
        DenseExample(np.zeros((4, 5, 2)), np.full((4, 5), np.nan))
    with pytest.raises(ValueError, match="scores must be finite or -inf, found NaN"):
        DenseExample(np.full((4, 5, 2), np.nan))
    with pytest.raises(ValueError, match="spacing must be 2 positive numbers"):
        DenseExample(np.zeros((4, 5, 2)), spacing=(1.0, 0.0))
    with pytest.raises(ValueError, match=r"channels: X\[1\] has 2, 3, 0, but X\[0\] has 2, 3, 2"):
        field.fit([X[0], DenseExample(X[1].scores)], y[:2])
    with pytest.raises(ValueError, match=r"X\[0\] has no image, but kernels\[1\]"):
        field.fit([DenseExample(x.scores) for x in X], y)
    with pytest.raises(ValueError, match=r"y\[1\] has shape"):
        field.fit(X, [y[0], y[1].T, *y[2:]])
    with pytest.raises(ValueError, match=r"X\[0\] of shape \(9, 12, 3\) is not an example"):
        field.fit([x.scores for x in X], y)
    forbidden = [
        DenseExample(np.where(np.eye(3, dtype=bool)[part], -np.inf, 0.0), x.image) for x, part in zip(X, y, strict=True)
    ]
    with pytest.raises(ValueError, match=r"X\[0\] has a score of -inf for the true label"):
        field.fit(forbidden, y)
    field.fit(X, y)
    with pytest.raises(ValueError, match="expecting 5 features"):
        field.predict([DenseExample(X[0].scores)])
    with pytest.raises(ValueError, match=r"X\[0\]: model is infeasible: every state of node 0"):
        field.predict([DenseExample(np.full((3, 3, 3), -np.inf), np.zeros((3, 3, 2)))])


def test_forbidden_classes_stay_forbidden(data):
    X, y = data
    scores = X[0].scores.copy()
    wrong = (y[0] + 1) % 3
    np.put_along_axis(scores, wrong[..., np.newaxis], -np.inf, axis=-1)
    example = DenseExample(scores, X[0].image)
    field = DenseCRF(KERNELS, max_iter=10).fit([example, *X[1:]], y)
    assert np.isfinite(field.compatibility_).all()
    assert np.all(np.take_along_axis(field.predict_proba([example])[0], wrong[..., np.newaxis], axis=-1) == 0)


def test_models_are_those_that_predict():
    X, y = coloured_regions()
    field = DenseCRF(kernels=KERNELS, inference=FEW_UPDATES, max_iter=2).fit(X, y)
    evidence = [np.where(np.arange(labels.size).reshape(labels.shape) < 5, labels, -1) for labels in y]
    field.set_params(missing_label=-1)
    for known in (None, evidence):
        for proba, model in zip(field.predict_proba(X, known), field.models(X, known), strict=True):
            assert_array_equal(FEW_UPDATES.node_marginals(model).reshape(proba.shape), proba)


def test_another_inference_predicts():
    X, y = coloured_regions()
    field = DenseCRF(kernels=KERNELS, inference=FEW_UPDATES, max_iter=2).fit(X, y)
    longer = DenseMeanField(max_iter=20)
    of_longer = field.predict_proba(X, inference=longer)[0]
    assert_array_equal(of_longer, field.set_params(inference=longer).predict_proba(X)[0])
    field.set_params(inference=FEW_UPDATES)
    assert np.abs(of_longer - field.predict_proba(X)[0]).max() > 1e-6
    with pytest.raises(ValueError, match="inference must be a DenseMeanField"):
        field.predict(X, inference="trw")


def in_form(X, form):
    return [DenseExample(x.scores, form(x.image)) for x in X]


@pytest.mark.parametrize(
    "form",
    [
        lambda image: image / 255,
        lambda image: image * 257,
        lambda image: np.uint16(257) * image.astype(np.uint16),
        lambda image: image.astype(np.uint8),
    ],
    ids=["0 to 1", "0 to 65535", "uint16", "uint8"],
)
def test_the_form_of_images_does_not_matter(data, form):
    X, y = data
    X = in_form(X, lambda image: np.round(image).clip(0, 255))
    for x in X:
        x.image[0, 0], x.image[0, 1] = 0, 255
    field = DenseCRF(KERNELS).fit(X[:4], y[:4])
    other = in_form(X, form)
    found = DenseCRF(KERNELS).fit(other[:4], y[:4])
    assert_allclose(found.compatibility_, field.compatibility_, rtol=1e-3)
    for a, b in zip(found.predict(other[4:]), field.predict(X[4:]), strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_standardised_images_are_refused_after_a_fit_to_whole_numbers(data, dtype):
    X, y = data
    field = DenseCRF(KERNELS).fit(in_form(X[:4], lambda image: image.clip(0, 255).astype(dtype)), y[:4])
    with pytest.raises(ValueError, match=r"X\[0\] has colours from -.* fit have the range 0 to .*: pass images in"):
        field.predict(in_form(X[4:], lambda image: (image - image.mean()) / image.std()))


@pytest.mark.parametrize("top", [1.2, 4.0])
def test_images_of_small_fractions_are_refused_after_a_fit_to_bytes(data, top):
    X, y = data
    X = in_form(X, lambda image: 255 * (image - image.min()) / np.ptp(image))
    field = DenseCRF(KERNELS).fit(X[:4], y[:4])
    with pytest.raises(ValueError, match=r"X\[0\] has colours from .* fit have the range 0 to 255: pass images in"):
        field.predict(in_form(X[4:], lambda image: top * image / 255))
    field.predict(in_form(X[4:], lambda image: np.round(top * image / 255)))
    DenseCRF(KERNELS, color_range=(0, 255)).fit(X[:4], y[:4]).predict(in_form(X[4:], lambda image: top * image / 255))


def test_types_whose_range_is_hardly_used_are_warned_of(data):
    X, y = data
    X = in_form(X[:4], lambda image: (16 * image.clip(0, 255)).astype(np.uint16))
    with pytest.warns(UserWarning, match=r"small part of the assumed range 0 to 65535.* as color_range"):
        DenseCRF(KERNELS).fit(X, y[:4])
    with warnings.catch_warnings(action="error"):
        DenseCRF(KERNELS, color_range=(0, 4095)).fit(X, y[:4])


def test_the_range_of_colours_is_that_of_fit(data):
    X, y = data
    X = in_form(X, lambda image: (image - 100) / 40)
    field = DenseCRF(KERNELS).fit(X[:4], y[:4])
    low, high = min(x.image.min() for x in X[:4]), max(x.image.max() for x in X[:4])
    assert field.color_range_ == (low, high)
    # A part of an image uses the range found in fit, not its own range.
    part = [DenseExample(X[4].scores, np.minimum(X[4].image, 0.0))]
    as_bytes = in_form(part, lambda image: (image - low) * 255 / (high - low))
    given = DenseCRF(KERNELS, color_range=(0, 255)).fit(in_form(X[:4], lambda x: (x - low) * 255 / (high - low)), y[:4])
    assert given.color_range_ == (0.0, 255.0)
    assert_allclose(field.predict_proba(part)[0], given.predict_proba(as_bytes)[0], atol=1e-6)
    # Integer types imply their range after fit too.
    integers = in_form(as_bytes, lambda image: np.round(image).clip(0, 255).astype(np.uint8))
    assert_array_equal(field.predict(integers)[0], given.predict(integers)[0])
    with pytest.raises(
        ValueError, match=r"X\[0\] has colours from .* images passed to fit have the range .*: pass images in"
    ):
        field.predict(in_form(X[4:], lambda image: image * 40 + 100))
    # After a fit to bytes, fractions are still read as values from 0 to 1.
    given.set_params(color_range=None)
    as_bytes = in_form(as_bytes, lambda image: image.clip(0, 255))
    expected = given.predict_proba(as_bytes)[0]
    assert_allclose(given.predict_proba(in_form(as_bytes, lambda image: image / 255))[0], expected, atol=1e-6)
    assert_allclose(given.predict_proba(in_form(as_bytes, lambda image: image * 2 / 255 - 1))[0], expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"channel_bandwidth=0\.2 is less than one colour step"):
        DenseCRF([Bilateral(6.0, 0.2)]).fit(X[:4], y[:4])
    with pytest.raises(ValueError, match="color_range must be two finite numbers"):
        DenseCRF(KERNELS, color_range=(3, 1)).fit(X[:4], y[:4])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_may_have_any_unit(dtype):
    rng = np.random.default_rng(0)
    y = np.zeros((4, 16, 16), dtype=int)
    y[:, 4:12, 5:14] = 1
    colours = 60 + 120 * y[..., np.newaxis] + 10 * rng.normal(size=(4, 16, 16, 1))
    scores = np.eye(2)[y] + rng.normal(size=(4, 16, 16, 2))
    scores[0, 0, 0, 1 - y[0, 0, 0]] = -np.inf
    expected = DenseCRF(image_channels=1).fit(np.concatenate([scores, colours], axis=-1), y)
    for unit in (1e-12, 1e-6, 1e-2, 1e4, 1e6, 1e12):
        X = np.concatenate([scores * unit, colours], axis=-1).astype(dtype)
        field = DenseCRF(image_channels=1).fit(X, y)
        assert field.score(X, y) > 0.98
        assert field.unary_scale_ * unit == pytest.approx(expected.unary_scale_, rel=0.05)
        again = field.set_params(warm_start=True).fit(X, y)
        assert again.unary_scale_ * unit == pytest.approx(expected.unary_scale_, rel=0.05)
