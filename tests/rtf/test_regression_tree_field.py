"""RegressionTreeField: scikit-learn's checks, input of all layouts, training that descends, predictions."""

import pickle
import re
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import plain_field
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklearn_crf import Example, RegressionTreeField, RegressionTreeFieldClassifier, Shards
from sklearn_crf.encoding import make_object_array
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import FieldSolver, Splits, Window
from sklearn_crf.rtf.losses import mse

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_depth": 1, "max_iter": 8, "split": Splits(min_samples_leaf=20), "random_state": 0}


def denoising(n=6, shape=(16, 20), n_channels=0, seed=0):
    """Return blocks of constant grey with noise as one channel, and without."""
    rng = np.random.default_rng(seed)
    blocks = rng.random((n, shape[0] // 4, shape[1] // 4, max(n_channels, 1)))
    clean = np.kron(blocks, np.ones((1, 4, 4, 1)))
    noisy = clean + 0.2 * rng.normal(size=clean.shape)
    return noisy, clean if n_channels else clean[..., 0]


def squared_error(field, X, y):
    return np.mean([np.mean((p - t) ** 2) for p, t in zip(field.predict(X), y, strict=True)])


def test_a_leaf_without_neighbours_is_a_linear_regression():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 4))
    y = X @ rng.normal(size=(4, 2)) + 3 + 0.3 * rng.normal(size=(200, 2))
    expected = LinearRegression().fit(X, y).predict(X)
    for loss in ("pseudolikelihood", "mse"):
        field = plain_field(loss, max_depth=0, max_iter=200, tol=1e-5, random_state=0).fit(X, y)
        assert_allclose(field.predict(X), expected, atol=1e-3)
    # The precision is the precision of the residual of the regression.
    field = plain_field(max_depth=0, max_iter=2000, tol=1e-7).fit(X, y)
    left_over = np.cov((y - expected).T, bias=True) / field.target_scale_**2
    assert_allclose(field.precisions_[0][0], np.linalg.inv(left_over), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "mse", "psnr", "mae", "ssim", "iw_ssim", mse])
def test_every_loss_learns_to_denoise(loss):
    X, y = denoising()
    field = plain_field(loss, **QUICK).fit(X[:4], y[:4])
    assert squared_error(field, X[4:], y[4:]) < 0.75 * np.mean((X[4:, ..., 0] - y[4:]) ** 2)
    assert field.score(X[4:], y[4:]) > 0.6
    assert field.loss_curve_[-1] < field.loss_curve_[0]


@pytest.mark.parametrize("loss", ["pseudolikelihood", "psnr"])
@pytest.mark.parametrize("solver", ["spg", "pqn"])
def test_the_loss_falls_from_round_to_round(loss, solver):
    X, y = denoising()
    field = plain_field(loss, solver=solver, **{**QUICK, "max_depth": 3, "max_iter": 5}).fit(X, y)
    ends = field.loss_curve_[field.round_ends_]
    assert len(ends) == 4
    assert np.all(np.diff(ends) <= 1e-6)
    # Three rounds of splits; some leaves are too small for another split.
    assert all(10 < len(tree["threshold"]) <= 15 for tree in field.trees_)
    assert all(part.shape[1:] == (2, 3) for part in field.weights_[1:])


def test_trees_help():
    # Two textures that require opposite outputs: no linear model can distinguish them.
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 16, 16, 2))
    y = np.where(x[..., 1] > 0, x[..., 0], -x[..., 0])
    errors = []
    for depth in (0, 1):
        options = {**QUICK, "max_depth": depth, "max_iter": 40}
        options["split"] = Splits(min_samples_leaf=20, n_feature_tests=200, feature_radius=0)
        errors.append(squared_error(plain_field("mse", **options).fit(x, y), x, y))
    assert errors[0] > 0.8
    assert errors[1] < 0.05


@pytest.mark.parametrize("solver", ["spg", "pqn"])
@pytest.mark.parametrize("bounds", [(0.5, 2.0), (1e-2, 1e2), (1.0, 1.0)])
def test_eigenvalues_stay_between_their_bounds(solver, bounds):
    X, y = denoising()
    field = plain_field("mse", solver=FieldSolver(solver, eigenvalue_bounds=bounds), **QUICK).fit(X, y)
    for precision in field.precisions_:
        values = np.linalg.eigvalsh(precision)
        assert values.min() >= bounds[0] * (1 - 1e-9)
        assert values.max() <= bounds[1] * (1 + 1e-9)


def test_depths_of_pairs_and_pixels_are_apart():
    X, y = denoising()
    field = plain_field(**{**QUICK, "max_depth": 2}, window=Window(max_depth=0)).fit(X, y)
    assert [len(precision) for precision in field.precisions_] == [4, 1, 1, 1, 1]
    field = plain_field(**{**QUICK, "max_depth": 0}, window=Window([[0, 1]], max_depth=1)).fit(X, y)
    assert [len(precision) for precision in field.precisions_] == [1, 2]
    assert field.offsets_.tolist() == [[0, 1]]


def test_a_warm_start_deepens_the_trees():
    X, y = denoising()
    options = {**QUICK, "split": Splits(min_samples_leaf=20, max_samples=None)}
    field = plain_field("mse", warm_start=True, **{**options, "max_depth": 0}).fit(X, y)
    shallow = field.loss_curve_[-1]
    field.set_params(max_depth=2).fit(X, y)
    assert [len(precision) for precision in field.precisions_] == [4] * 5
    assert len(field.round_ends_) == 2
    # Training starts where the last call ended, up to the rounding of float32.
    assert field.loss_curve_[0] == pytest.approx(shallow, rel=1e-4)
    assert field.loss_curve_[-1] < shallow
    deep = field.loss_curve_[-1]
    # No leaf can be split further, so the leaves are only fitted.
    assert field.fit(X, y).loss_curve_[-1] < deep
    with pytest.raises(ValueError, match="the same window as the previous fit"):
        field.set_params(window=5).fit(X, y)
    with pytest.raises(ValueError, match="the same number of target channels"):
        field.set_params(window=3).fit(X, np.stack([y, y], axis=-1))


def test_linear_models_of_pairs_may_see_some_channels():
    X, y = denoising()
    X = np.concatenate([X, np.roll(X, 1, axis=1), np.roll(X, 1, axis=2)], axis=-1)
    options = {**QUICK, "loss": "mse", "warm_start": True}
    field = plain_field(window=Window(pairwise_channels=[2, 0]), **options).fit(X, y)
    assert_array_equal(field.pairwise_channels_, [2, 0])
    assert [part.shape[2] for part in field.weights_] == [4, 5, 5, 5, 5]
    # Trees also use the other channels.
    assert any(1 in tree["test"][0, [0, 3]] for tree in field.trees_[1:])
    with pytest.raises(ValueError, match="the same pairwise_channels and precision_channels as the previous fit"):
        field.set_params(window__pairwise_channels=None).fit(X, y)
    whole = plain_field(window=Window(pairwise_channels=np.arange(3)), **options).fit(X, y)
    assert_array_equal(whole.predict(X), plain_field(**options).fit(X, y).predict(X))


def test_early_stopping_gives_back_the_best_round():
    rng = np.random.default_rng(0)
    # X and y are independent, so nothing can be learned beyond the mean, and no split helps.
    X, y = rng.normal(size=(12, 6, 6, 4)), rng.normal(size=(12, 6, 6))
    options = {**QUICK, "max_depth": 6, "split": Splits(min_samples_leaf=5), "max_iter": 30}
    solver = FieldSolver(early_stopping=True, validation_fraction=0.25)
    field = plain_field("mse", solver=solver, **options).fit(X, y)
    curve = field.validation_curve_
    assert 3 <= len(curve) == len(field.round_ends_) < 7
    # Training ends after two rounds without improvement, and keeps the field of the best round.
    best = int(np.argmin(curve))
    assert len(curve) == best + 3
    assert len(field.precisions_[0]) <= 2**best
    shallow = plain_field("mse", solver=solver, **{**options, "max_depth": best}).fit(X, y)
    assert_array_equal(field.predict(X), shallow.predict(X))
    table = plain_field(solver=FieldSolver(early_stopping=True), **options).fit(X[:, 0, 0], y[:, 0, 0])
    assert len(table.validation_curve_) >= 1
    with pytest.raises(ValueError, match="early_stopping needs examples to hold out and others to train on, got 1"):
        plain_field(solver=solver).fit(X[:1], y[:1])


@pytest.mark.parametrize("loss", ["mse", "pseudolikelihood"])
@pytest.mark.parametrize("layout", ["rows", "images", "few images"])
def test_early_stopping_holds_out_weights_as_copies(layout, loss):
    X, y = denoising(9 if layout == "images" else 3, (4, 40) if layout == "few images" else (8, 8))
    if layout == "rows":
        X, y = X.reshape(-1, 4)[:40], y.reshape(-1, 4)[:40, 0]
    times = np.random.default_rng(1).integers(0 if layout == "rows" else 1, 4, size=len(X))
    solver = FieldSolver(early_stopping=True, validation_fraction=0.3)
    make = partial(plain_field, loss, max_depth=0, max_iter=5, random_state=0, solver=solver)
    weighted = make().fit(X, y, sample_weight=times)
    order = np.random.default_rng(2).permutation(np.repeat(np.arange(len(X)), times))
    for copies in (np.repeat(np.arange(len(X)), times), np.append(np.flatnonzero(times), order)):
        # The second set has one more copy of each image, and its first copies are in the original order.
        if len(copies) > len(order):
            weighted = make().fit(X, y, sample_weight=times + (times > 0))
        copied = make().fit(X[copies], y[copies])
        assert_allclose(copied.validation_curve_, weighted.validation_curve_, rtol=1e-4)
        assert_allclose(copied.predict(X), weighted.predict(X), atol=1e-2)
    assert not np.allclose(make().fit(X, y).validation_curve_, weighted.validation_curve_, rtol=1e-3)


def test_copies_in_shards_are_held_out_together():
    X, y = denoising(6, (8, 8))
    solver = FieldSolver(early_stopping=True, validation_fraction=0.3)
    field = plain_field("mse", max_depth=0, max_iter=5, random_state=0, solver=solver)
    parts = [(X[[0, 1, 2, 0]], y[[0, 1, 2, 0]]), (X[[3, 4, 5, 4]], y[[3, 4, 5, 4]])]
    expected = clone(field).fit(X, y, sample_weight=[2, 1, 1, 1, 2, 1])
    found = clone(field).fit(Shards.from_arrays(parts))
    assert_allclose(found.validation_curve_, expected.validation_curve_, rtol=1e-4)
    assert_allclose(found.predict(X), expected.predict(X), atol=1e-2)


@pytest.mark.parametrize("max_samples", [500, 100_000])
@pytest.mark.parametrize("loss", ["mse", "pseudolikelihood"])
def test_early_stopping_holds_out_strips_of_few_images(loss, max_samples):
    X, y = (part.repeat(2, axis=2) for part in denoising(3))
    solver = FieldSolver(early_stopping=True, max_samples=max_samples)
    field = plain_field(loss, solver=solver, **QUICK).fit(X, y)
    assert len(field.validation_curve_) >= 1
    labels = np.where(y > y.mean(), "light", "dark")
    classifier = RegressionTreeFieldClassifier(solver=solver, **QUICK).fit(X, labels)
    assert len(classifier.validation_curve_) >= 1
    assert classifier.score(X, labels) > 0.6


@pytest.mark.parametrize("layout", ["images", "chains", "samples"])
def test_training_looks_at_some_pixels(layout):
    X, y = denoising(20)
    X, y = {"images": (X, y), "chains": (X[:, 0], y[:, 0]), "samples": (X[:, 0, 0], y[:, 0, 0])}[layout]
    n = {"images": 2000, "chains": 150, "samples": 12}[layout]
    seen = []

    def watched(prediction, target):
        seen.append(prediction.size)
        return mse(prediction, target)

    solver, window = FieldSolver(max_samples=n), Window(lattice_ndim=1 if layout == "chains" else None)
    options = {**QUICK, "max_depth": 0, "max_iter": 1}
    plain_field(watched, solver=solver, window=window, **options).fit(X, y)
    # Not all images are used, so that rectangles are not too small.
    n_images = {"images": 7, "chains": 8, "samples": 1}[layout]
    assert 0.8 * n <= sum(seen[:n_images]) <= n


@pytest.mark.parametrize("loss", ["pseudolikelihood", "psnr"])
def test_shrinkage_keeps_leaves_near_their_parents(loss):
    X, y = denoising(4)
    distances = []
    for shrinkage in (0.0, 500.0, 1e9):
        field = plain_field(loss, solver=FieldSolver(shrinkage=shrinkage), **QUICK).fit(X, y)
        distances.append(sum(np.linalg.norm(w[0] - w[1]) for w in field.weights_))
        ends = field.loss_curve_[field.round_ends_]
        assert ends[1] < ends[0]
    assert distances[1] < 0.8 * distances[0]
    assert distances[2] < 1e-3 * distances[0]


@pytest.mark.parametrize("split", ["gradient", "residual"])
def test_by_default_leaves_without_trained_parents_are_not_drawn_anywhere(split):
    X, y = denoising(4)
    automatic, free = (
        plain_field(
            "mse", max_depth=1, max_iter=4, split=split, solver=FieldSolver(shrinkage=shrinkage), random_state=0
        )
        .fit(X, y)
        .predict(X)
        for shrinkage in ("auto", 0.0)
    )
    assert np.array_equal(automatic, free) == (split == "residual")


def test_shrinkage_is_a_ridge_towards_the_parent():
    # Without neighbours and with a precision of one, the field is a linear model of (x, 1) in each leaf. Inputs are
    # white, so the curvature along a weight that all factors share is the curvature of the squared error, 2.
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    x = (x - x.mean()) / x.std()
    y = np.where(x > 0, 1.0, -1.0)
    y /= y.std()
    options = {"window": 1, "split": Splits(n_feature_tests=None, max_samples=None, n_thresholds=1), "max_iter": 300}
    options |= {"solver": FieldSolver(eigenvalue_bounds=(1.0, 1.0)), "tol": 1e-7, "random_state": 0}
    X, Y = x.reshape(1, 40, 50, 1), y.reshape(1, 40, 50)
    root = plain_field("mse", max_depth=0, **options).fit(X, Y).predict(X).ravel()
    pulled = plain_field("mse", max_depth=1, **options).set_params(solver__shrinkage=1000).fit(X, Y).predict(X).ravel()
    expected, inputs = np.empty(2000), np.column_stack([x, np.ones(2000)])
    start = np.linalg.lstsq(inputs, root, rcond=None)[0]
    for leaf in (x > np.median(x), x <= np.median(x)):
        b = inputs[leaf]
        expected[leaf] = b @ np.linalg.solve(b.T @ b + 1000 * np.eye(2), b.T @ y[leaf] + 1000 * start)
    assert np.linalg.norm(pulled - expected) < 0.1 * np.linalg.norm(expected - root)


@pytest.mark.parametrize("layout", ["array", "list", "colours", "samples"])
def test_a_cascade_sees_the_prediction_before(layout):
    X, y = denoising(6, (16, 20), n_channels=3 if layout == "colours" else 0)
    X, y = {"list": (list(X), list(y)), "samples": (X[:, 0, 0], y[:, 0, 0])}.get(layout, (X, y))
    options = {**QUICK, "split": Splits(min_samples_leaf=2), "max_depth": 0}
    first = plain_field("mse", **options).fit(X, y)
    field = plain_field("mse", cascade=2, **options).fit(X, y)
    assert field.n_features_in_ == first.n_features_in_ == np.shape(X[0])[-1]
    n_more = 3 if layout == "colours" else 1
    assert field.weights_[0].shape[2] == 1 + field.n_features_in_ + n_more
    predicted, before = field.predict(X), first.predict(X)
    seen = [
        np.concatenate([x, np.reshape(p, (*np.shape(x)[:-1], n_more))], axis=-1) for x, p in zip(X, before, strict=True)
    ]
    seen = seen if layout == "list" else np.stack(seen)
    expected = plain_field("mse", **options).fit(seen, y).predict(seen)
    for a, b in zip(predicted, expected, strict=True):
        assert_allclose(a, b, atol=1e-6)
    assert_array_equal(clone_fitted(field, n_jobs=2).predict(X)[0], predicted[0])
    assert squared_error(field, X, y) < squared_error(first, X, y) + 1e-4
    with pytest.raises(ValueError, match="warm_start can only continue training of a single field, got cascade=2"):
        field.set_params(warm_start=True).fit(X, y)


def test_separate_training_grows_its_trees_first():
    X, y = denoising()
    field = plain_field("mse", **{**QUICK, "max_depth": 3, "split": Splits("residual", min_samples_leaf=20)}).fit(X, y)
    assert len(field.round_ends_) == 1
    assert all(len(precision) > 4 for precision in field.precisions_)
    assert squared_error(field, X, y) < 0.75 * np.mean((X[..., 0] - y) ** 2)


def test_likelihood_and_pseudolikelihood_agree_without_edges():
    X, y = denoising(3, (4, 4))
    likelihood, pseudo = (
        plain_field(loss, window=1, **QUICK).fit(X, y).predict(X) for loss in ("likelihood", "pseudolikelihood")
    )
    assert_array_equal(likelihood, pseudo)


def test_the_likelihood_finds_the_precision_of_a_chain():
    rng = np.random.default_rng(0)
    y = np.zeros((1, 400))
    for t in range(1, 400):
        y[0, t] = 0.8 * y[0, t - 1] + rng.normal()
    field = plain_field("likelihood", max_depth=0, max_iter=40).fit(np.zeros((1, 400, 1)), y)
    # In the true model, the coupling of neighbours is -0.8 divided by the variance of the innovations.
    assert field.precisions_[1][0, 0, 1] / field.target_scale_**2 == pytest.approx(-0.8, abs=0.15)


def layouts():
    X, y = denoising()
    yield "array", X, y
    yield "list", list(X), list(y)
    yield "ragged", make_object_array([X[0], X[1][:9], X[2][:, :7]]), make_object_array([y[0], y[1][:9], y[2][:, :7]])
    colours, clean = denoising(2, (8, 8), n_channels=3)
    yield "colours", colours, clean
    yield "chains", X[:, 0].repeat(2, axis=-1), y[:, 0]
    yield "ragged chains", [X[0, 0], X[1, 0, :9]], [y[0, 0], y[1, 0, :9]]
    yield "samples", X[:, 0, 0], y[:, 0, 0]


@pytest.mark.parametrize(("name", "X", "y"), list(layouts()))
def test_predictions_have_the_layout_of_the_target(name, X, y):
    field = plain_field(**{**QUICK, "split": Splits(min_samples_leaf=2)}).fit(X, y)
    predicted, deviation = field.predict(X, return_std=True)
    for found in (predicted, deviation):
        assert isinstance(found, np.ndarray)
        assert len(found) == len(y)
        assert all(np.shape(a) == np.shape(b) for a, b in zip(found, y, strict=True))
    assert all(np.all(np.asarray(part) > 0) for part in deviation)


def test_one_image_of_a_ragged_list_is_predicted_alone():
    X, y = denoising()
    field = plain_field(**QUICK).fit(X, y)
    alone = field.predict([X[2]])[0]
    assert_array_equal(alone, field.predict(X)[2])
    larger = np.concatenate([X[0], X[1]], axis=1)
    assert field.predict([larger])[0].shape == (16, 40)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "psnr"])
def test_threads_change_nothing(loss):
    X, y = denoising()
    one, three = (plain_field(loss, n_jobs=n, **QUICK).fit(X, y) for n in (1, 3))
    assert_array_equal(one.loss_curve_, three.loss_curve_)
    for a, b in zip(one.weights_, three.weights_, strict=True):
        assert_array_equal(a, b)
    large = denoising(1, (96, 120))[0]
    assert_array_equal(one.predict(large), clone_fitted(one, n_jobs=3).predict(large))


def clone_fitted(field, **params):
    return pickle.loads(pickle.dumps(field)).set_params(**params)


def test_pickle_clone_and_read_only(tmp_path):
    X, y = denoising()
    np.save(tmp_path / "X.npy", X)
    frozen = np.load(tmp_path / "X.npy", mmap_mode="r")
    field = plain_field(**QUICK)
    again = clone(field).fit(frozen, y)
    field.fit(X, y)
    assert_array_equal(again.predict(frozen), field.predict(X))
    assert_array_equal(clone_fitted(field).predict(X), field.predict(X))


def test_pipeline_in_a_grid_search():
    X, y = denoising(8)
    pipeline = make_pipeline(FilterBank("haar"), plain_field("mse", **QUICK))
    search = GridSearchCV(pipeline, {"regressiontreefield__max_depth": [0, 1]}, cv=2, n_jobs=2).fit(X[..., 0], y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.predict(X[..., 0]).shape == y.shape


def test_standard_deviations_cover_the_errors():
    X, y = denoising(12)
    field = plain_field(**{**QUICK, "max_iter": 60}).fit(X[:8], y[:8])
    predicted, deviation = field.predict(X[8:], return_std=True)
    share = np.mean(np.abs(predicted - y[8:]) < 2 * deviation)
    assert 0.85 < share <= 1
    # More values than the limit of the factorisation: they are sampled, and agree on average.
    large = field.predict(np.tile(X[8:9], (1, 5, 4, 1)), return_std=True)[1]
    assert large.mean() == pytest.approx(deviation.mean(), rel=0.1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"window": 4}, "window must be an odd number of at least 1, or an array of offsets, got 4."),
        ({"window": [[1, 2, 3]]}, "window given as offsets must be integers of shape (n_offsets, 2)"),
        ({"window": Window(pairwise_channels=[0, 0])}, "pairwise_channels must be different channels of X, from 0 to"),
        ({"window": Window(pairwise_channels=[99])}, "pairwise_channels must be different channels of X, from 0 to"),
        ({"window": Window(pairwise_channels=[])}, "pairwise_channels must be different channels of X, from 0 to"),
    ],
)
def test_parameters_that_do_not_fit_X_are_named(params, message):
    X, y = denoising()
    with pytest.raises(ValueError, match=re.escape(message)):
        plain_field(**params).fit(X, y)


def test_bad_input_is_named():
    X, y = denoising()
    field = plain_field(**QUICK)
    with pytest.raises(ValueError, match=re.escape("y[0] has shape (16, 19), but X[0] has pixels of shape (16, 20).")):
        field.fit(X, y[:, :, :19])
    with pytest.raises(ValueError, match="y has 5 examples, but X has 6"):
        field.fit(X, y[:5])
    with pytest.raises(ValueError, match="y contains NaN or infinity"):
        field.fit(X[:, 0, 0], np.where(np.arange(6) == 1, np.nan, y[:, 0, 0]))
    with pytest.raises(ValueError, match=re.escape("y[1] contains infinity")):
        field.fit(X, np.where(np.arange(6)[:, None, None] == 1, np.inf, y))
    with pytest.raises(ValueError, match="contains only NaN"):
        field.fit(np.full_like(X, np.nan), y)
    with pytest.raises(ValueError, match="has 4 lattice axes"):
        field.fit(np.zeros((2, 3, 3, 3, 3, 1)), np.zeros((2, 3, 3, 3, 3)))
    with pytest.raises(ValueError, match="a window needs a lattice"):
        field.fit([Example(np.zeros((2, 1)), [[0, 1]])], [np.zeros(2)])
    message = (
        "window joins pixels at a distance of 2 rows and 2 columns, but images of X have at most 16 rows and 2 columns"
    )
    with pytest.raises(ValueError, match=message):
        plain_field(window=5).fit(X[:, :, :2], y[:, :, :2])
    field.fit(X, y)
    # Prediction uses the existing pairs.
    assert field.predict(X[:, :1, :1]).shape == (6, 1, 1)
    with pytest.raises(ValueError, match="X has 2 features, but RegressionTreeField is expecting 1"):
        field.predict(np.zeros((1, 5, 5, 2)))
    with pytest.raises(ValueError, match="as large as the window, 8 x 8 pixels"):
        plain_field("ssim", **QUICK).fit(X[:, :5], y[:, :5])


def test_unfinished_training_is_told():
    X, y = denoising()
    with pytest.warns(ConvergenceWarning, match="the last round stopped after max_iter=1 iterations"):
        plain_field("mse", max_depth=0, max_iter=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="conjugate gradients did not reach"):
        plain_field("mse", max_depth=0, inference=ConjugateGradient(max_iter=1, tol=1e-9)).fit(X, y)


def test_verbose_prints_a_line_a_round(capsys):
    X, y = denoising()
    plain_field(verbose=1, **QUICK).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("[RegressionTreeField] round 1: 8 iterations, loss ")


def test_constant_targets_have_no_decibels():
    X = np.random.default_rng(0).normal(size=(3, 6, 6, 1))
    with pytest.raises(ValueError, match=r"y has the value 3 everywhere.*use loss='mse'"):
        RegressionTreeField(loss="psnr", max_depth=1, random_state=0).fit(X, np.full((3, 6, 6), 3.0))
