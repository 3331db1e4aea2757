"""The contract of both estimators of regression tree fields: scikit-learn's checks, weights, clear errors, threads."""

import pickle
import re

import numpy as np
import pytest
from callback_recorder import Recorder
from estimator_contract import missing_checks, passed_checks
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.inference import GaussianDirect, GaussianGibbs
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import FieldSolver, Splits, Window
from sklearn_crf.rtf._options import OPTION_CLASSES

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

BOTH = [RegressionTreeField, RegressionTreeFieldClassifier]
QUICK = {"max_depth": 1, "max_iter": 8, "split": Splits(min_samples_leaf=20), "filter_bank": None, "random_state": 0}
CHECKED = {"max_depth": 1, "split": Splits(min_samples_leaf=3), "max_iter": 12, "random_state": 0}
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
CHANCE = "feature tests are random, and drawn differently for repeated samples; without chance see below"


def images(n=4, shape=(12, 16), n_channels=1, seed=0):
    """Return blocks of 0 and 1, with and without noise."""
    rng = np.random.default_rng(seed)
    y = np.kron(rng.integers(2, size=(n, shape[0] // 4, shape[1] // 4)), np.ones((4, 4), dtype=int))
    return y[..., None] + 0.5 * rng.normal(size=(*y.shape, n_channels)), y


def test_the_regressor_passes_the_checks_of_scikit_learn():
    passed = passed_checks(RegressionTreeField(**CHECKED), {WEIGHTS: CHANCE})
    assert len(passed) >= 50


@pytest.mark.parametrize(("loss", "expected_failures"), [("pseudolikelihood", {}), ("multinomial", {WEIGHTS: CHANCE})])
def test_the_classifier_passes_the_checks_of_scikit_learn(loss, expected_failures):
    passed = passed_checks(RegressionTreeFieldClassifier(loss, **CHECKED), expected_failures)
    assert len(passed) >= 54 - len(expected_failures)
    # The estimator has no weights of classes, accepts no sparse data, and its coefficients are not a matrix.
    assert missing_checks(passed) <= {
        "check_class_weight_balanced_linear_classifier",
        "check_class_weight_classifiers",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_sparsify_coefficients",
        *expected_failures,
    }


@pytest.mark.parametrize("split", ["gradient", "residual"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("Field", BOTH)
def test_weights_equal_repetition(Field, class_weight, split):
    # Every test at every offset, and all factors: nothing is random.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = rng.normal(size=60) + np.where(X[:, 1] > 0, 2 * X[:, 0], 0)
    y = y if Field is RegressionTreeField else (y > 0).astype(int)
    # Unit vectors sum to one, so precisions grow to their bound, which takes long.
    options = {} if Field is RegressionTreeField else {"encoding": "ordinal"}
    options |= {"tol": 1e-7, "max_iter": 500, "random_state": 0}
    weight = rng.integers(0, 4, size=60)
    if class_weight is not None:
        if Field is RegressionTreeField:
            pytest.skip("a regressor has no classes")
        options["class_weight"] = class_weight
    options |= {"split": Splits(split, n_feature_tests=None, max_samples=None, min_samples_leaf=5), "max_depth": 1}
    weighted = Field(**options).fit(X, y, sample_weight=weight)
    repeated = Field(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    for key in ("test", "threshold"):
        assert_array_equal(weighted.trees_[0][key], repeated.trees_[0][key])
    assert len(weighted.precisions_[0]) == 2
    # Pixels are float32: scikit-learn's own check requires seven digits, more than they have.
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"filter_bank": FilterBank("haar")}, {"filter_bank": "auto", "window": 5}])
@pytest.mark.parametrize("Field", BOTH)
def test_a_pickle_predicts_the_same_on_other_threads(Field, options):
    X, y = images()
    large = images(3, (60, 80), seed=1)[0]
    options = QUICK | options
    field = Field(n_jobs=1, **options).fit(X, y)
    predicted = field.predict(large)
    for n_jobs in (2, 3):
        again = pickle.loads(pickle.dumps(field)).set_params(n_jobs=n_jobs)
        assert_array_equal(again.predict(large), predicted)
        assert_array_equal(again.predict(large[:1]), predicted[:1])
    assert_array_equal(Field(n_jobs=2, **options).fit(X, y).predict(large[:1]), predicted[:1])


def changed(X, index, value):
    X = X.copy()
    X[index] = value
    return X


X, Y = images()
BAD = {
    "targets of another size": (X, Y[:, :, :15], "y[0] has shape (12, 15), but "),
    "another number of images": (X, Y[:3], "3"),
    "NaN in chains": (changed(X, (1, 0, 3, 0), np.nan)[:, 0].repeat(2, axis=-1), Y[:, 0], "contains NaN"),
    "infinity in X": (changed(X, (2, 2, 3, 0), np.inf), Y, "X[2] contains infinity"),
    "channels that differ": (
        [X[0], np.dstack([X[1], X[1]])],
        list(Y[:2]),
        "X[1] has 2 features, but X[0] has 1: the last axis holds features",
    ),
    "smaller than the window": (
        X[:, :, :1],
        Y[:, :, :1],
        "window joins pixels at a distance of 1 rows and 1 columns, but images of X have at most 12 rows and 1 columns",
    ),
    "four axes": (np.zeros((2, 3, 3, 3, 3, 1)), np.zeros((2, 3, 3, 3, 3)), "has 4 lattice axes"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("Field", BOTH)
def test_bad_input_is_named(Field, name):
    bad_X, bad_y, message = BAD[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        Field(**QUICK).fit(bad_X, bad_y)


@pytest.mark.parametrize("Field", BOTH)
def test_bad_bounds_are_named(Field):
    for bounds in [(1.0, 0.1), (0.0, 1.0), (-1.0, 1.0), (1.0, np.inf), (1.0, 2.0, 3.0), (np.nan, 1.0)]:
        with pytest.raises(
            ValueError,
            match="'eigenvalue_bounds' parameter of FieldSolver must be two positive numbers in ascending order",
        ):
            Field(solver=FieldSolver(eigenvalue_bounds=bounds)).fit(X, Y)


@pytest.mark.parametrize("Field", BOTH)
def test_bad_input_of_predict_is_named(Field):
    field = Field(**QUICK).fit(X, Y)
    name = Field.__name__
    with pytest.raises(ValueError, match=f"X has 2 features, but {name} is expecting 1"):
        field.predict(np.concatenate([X, X], axis=-1))
    with pytest.raises(ValueError, match=re.escape("X[1] contains NaN")):
        field.predict(changed(X, (1, 2, 3, 0), np.nan))
    with pytest.raises(
        ValueError,
        match=r"is ambiguous: 12 images without an axis of channels \(pass X\[..., np.newaxis\]\), or one image",
    ):
        field.predict(X[0])
    # Prediction uses the existing pairs.
    assert field.predict(X[:, :1, :1]).shape == (4, 1, 1)
    assert field.predict(X[:, :1]).shape == (4, 1, 16)


# Values that no parameter of these estimators accepts, except those listed below.
WRONG = [np.nan, np.inf, "nonsense", np.array([0.5, np.nan]), object(), -3, 1j, {"a": 1}]
TAKEN = {"missing_label": WRONG, "n_jobs": [-3], "classes": [WRONG[3]]}


@pytest.mark.parametrize("Field", BOTH)
def test_every_wrong_parameter_is_named(Field):
    n_tried = 0
    for name in Field().get_params(deep=False):
        for value in WRONG:
            if any(value is taken for taken in TAKEN.get(name, [])):
                continue
            with pytest.raises(InvalidParameterError, match=name):
                Field(**QUICK | {name: value}).fit(X, Y)
            n_tried += 1
    assert n_tried > 100


@pytest.mark.parametrize(("parameter", "kind"), OPTION_CLASSES.items())
def test_every_wrong_option_is_named(parameter, kind):
    for name in kind().get_params():
        for value in WRONG:
            with pytest.raises(InvalidParameterError, match="window|size" if name == "size" else name):
                RegressionTreeField(**QUICK | {parameter: kind(**{name: value})}).fit(X, Y)


@pytest.mark.parametrize("Field", BOTH)
def test_constructors_are_short(Field):
    assert len(Field().get_params(deep=False)) <= 18


@pytest.mark.parametrize("Field", BOTH)
def test_nested_parameters_need_an_object(Field):
    field = Field(split=Splits(), solver=FieldSolver(), window=Window())
    field.set_params(split__n_thresholds=3, solver__shrinkage=2.0, window__size=5)
    assert (field.split.n_thresholds, field.solver.shrinkage, field.window.size) == (3, 2.0, 5)
    assert Field().set_params(split=Splits(), split__n_thresholds=4).split.n_thresholds == 4
    for key, message in {
        "split__n_thresholds": r"split__n_thresholds sets .* split='gradient' is not an object: .* split=Splits\(\)",
        "solver__shrinkage": r"solver='pqn' is not an object: .* solver=FieldSolver\(\)",
        "window__max_depth": r"window=3 is not an object: .* window=Window\(\)",
        "inference__tol": r"inference='auto' is not an object: .* inference=ConjugateGradient\(\)",
    }.items():
        with pytest.raises(ValueError, match=message):
            Field().set_params(**{key: 1})


@pytest.mark.parametrize("Field", BOTH)
def test_options_by_name_and_by_object_are_the_same(Field):
    named = Field(max_depth=1, max_iter=4, split="residual", solver="spg", window=3, random_state=0)
    given = clone(named).set_params(split=Splits("residual"), solver=FieldSolver("spg"), window=Window(3))
    assert_array_equal(named.fit(X, Y).loss_curve_, given.fit(X, Y).loss_curve_)


@pytest.mark.parametrize("Field", BOTH)
def test_models_have_the_mean_that_is_predicted(Field):
    field = Field("mse", **QUICK).fit(X, Y)
    models = field.models(X)
    assert len(models) == len(X)
    mean = GaussianDirect().marginals(models[1]).mean
    if Field is RegressionTreeField:
        assert_allclose(mean[:, 0], field.predict(X)[1].ravel(), atol=1e-4)
    else:
        assert_array_equal(mean.argmax(axis=1), field.predict(X)[1].ravel())
        assert_array_equal(GaussianDirect().marginals(field.models(list(X))[1]).mean, mean)


@pytest.mark.parametrize("n_values", [1, 2])
def test_evidence_conditions_the_model(n_values):
    y = Y[..., None] * np.ones(n_values)
    field = RegressionTreeField("mse", **QUICK).fit(X, y)
    evidence = np.full(y.shape, np.nan)
    evidence[:, 2:5, 3:6] = 0.7
    evidence[:, 8, 8, 0] = -0.2
    found = GaussianDirect().marginals(field.models(X, evidence)[0])
    # The reference: the distribution of all values, conditioned by the formula.
    whole = field.models(X)[0]
    precision, h = whole.precision_matrix().toarray(), whole.h.ravel()
    known = ~np.isnan(evidence[0].ravel())
    free = ~known
    value = evidence[0].ravel()[known]
    expected = np.linalg.solve(precision[np.ix_(free, free)], h[free] - precision[np.ix_(free, known)] @ value)
    assert_allclose(found.mean.ravel()[free], expected, rtol=1e-8, atol=1e-8)
    assert_allclose(found.mean.ravel()[known], value, rtol=1e-12)
    deviation = np.zeros(free.shape)
    deviation[free] = np.sqrt(np.diag(np.linalg.inv(precision[np.ix_(free, free)])))
    blocks = np.diagonal(found.covariance, axis1=1, axis2=2)
    assert_allclose(np.sqrt(blocks).ravel(), deviation, rtol=1e-8, atol=1e-12)
    for algorithm in (GaussianDirect(), GaussianGibbs(n_sweeps=5)):
        drawn = algorithm.sample(field.models(X, evidence)[0], 3, random_state=0).reshape(3, -1)
        assert_allclose(drawn[:, known], np.tile(value, (3, 1)), atol=1e-12)
        assert np.all(drawn[:, free].std(axis=0) > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
@pytest.mark.parametrize("loss", ["pseudolikelihood", "likelihood"])
def test_deviations_are_conditioned_on_evidence(loss, share, dtype):
    field = RegressionTreeField(loss, **QUICK | {"clip": None}).fit(X.astype(dtype), Y.astype(dtype))
    known = np.random.default_rng(0).random(Y.shape) < share
    evidence = np.where(known, Y, np.nan)
    mean, deviation = field.predict(X.astype(dtype), return_std=True, evidence=evidence)
    assert_allclose(mean[known], Y[known], atol=1e-4)
    assert_allclose(deviation[known], 0, atol=1e-12)
    for model, own, found in zip(field.models(X.astype(dtype)), known, deviation, strict=True):
        free = ~own.ravel()
        matrix = model.precision_matrix().toarray()[np.ix_(free, free)]
        assert_allclose(found.ravel()[free], np.sqrt(np.diag(np.linalg.inv(matrix))), rtol=1e-6)


@pytest.mark.parametrize("n_iterations", [3, 10])
@pytest.mark.parametrize("Field", BOTH)
def test_callbacks_hear_of_every_iteration(Field, n_iterations):
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    recorder = Recorder(n_iterations)
    field = Field("mse", **QUICK | {"tol": 0.0}).set_callbacks(recorder).fit(X, Y)
    assert len(recorder.fitted) == field.n_iter_ == n_iterations
    # Fields of both rounds predict; the last field predicts what the estimator that was stopped there predicts.
    assert {len(found.precisions_[0]) for found in recorder.fitted} == ({1} if n_iterations == 3 else {1, 2})
    assert_array_equal(recorder.fitted[-1].predict(X), field.predict(X))
    values = [found.models(X)[0].h for found in recorder.fitted]
    assert not np.array_equal(values[0], values[-1])


def test_callbacks_hear_of_every_stage_of_a_cascade():
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    recorder = Recorder()
    field = RegressionTreeField("mse", cascade=2, **QUICK | {"max_iter": 2, "tol": 0.0}).set_callbacks(recorder)
    field.fit(X, Y)
    assert len(recorder.fitted) == sum(stage.n_iter_ for stage in field.stages_) == 8
    assert not any(hasattr(stage, "_skl_callbacks") for stage in field.stages_)


CHAINS = Window(lattice_ndim=1)
TWO_READINGS = {
    "grey stacks": (
        np.zeros((4, 8, 9)),
        np.zeros((4, 8, 9)),
        "4 grey images of 8 x 9 pixels (pass X[..., np.newaxis])",
    ),
    "one image": (
        np.zeros((8, 9, 1)),
        np.zeros((8, 9)),
        "one image of 8 x 9 pixels (pass X[np.newaxis] and y[np.newaxis]), or 8 chains of 9 nodes (pass "
        "window=Window(lattice_ndim=1))",
    ),
}


@pytest.mark.parametrize("name", TWO_READINGS)
def test_what_has_two_readings_is_not_guessed(name):
    bad_X, bad_y, message = TWO_READINGS[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        RegressionTreeField(**QUICK).fit(bad_X, bad_y)
    # Read as chains, if the user says so.
    rng = np.random.default_rng(0)
    bad_y = [rng.normal(size=part.shape) for part in bad_y]
    bad_y = bad_y if name.startswith("lists") else np.stack(bad_y)
    field = RegressionTreeField(window=CHAINS, **QUICK).fit(bad_X, bad_y)
    assert field.lattice_ndim_ == 1
    assert np.shape(field.predict(bad_X)[0]) == np.shape(bad_y[0])


def test_what_has_one_reading_goes_on():
    rng = np.random.default_rng(0)
    colours = rng.random((2, 8, 9, 3))
    assert RegressionTreeField(**QUICK).fit(colours, colours).predict(colours).shape == colours.shape
    sequences, labels = rng.random((4, 9, 1)), rng.integers(2, size=(4, 9))
    assert RegressionTreeFieldClassifier(**QUICK).fit(sequences, labels).predict(sequences).shape == labels.shape
    with pytest.raises(ValueError, match="Equal shapes of X and y are ambiguous"):
        RegressionTreeFieldClassifier(**QUICK).fit(np.zeros((4, 8, 9)), rng.integers(2, size=(4, 8, 9)))


@pytest.mark.parametrize("Field", BOTH)
def test_bad_input_of_score_is_named(Field):
    field = Field(**QUICK).fit(X, Y)
    for y, message in [
        (Y[:3], f"y has 3 examples, but X has {len(X)}"),
        (Y[:, :, :1], "y[0] has shape (12, 1), but the prediction for X[0] has"),
        (None, "y must be an array, or a list of one array per example, got None"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            field.score(X, y)
    with pytest.raises(ValueError, match="expected"):
        field.score(X, Y, sample_weight=[1.0])


@pytest.mark.parametrize("Field", BOTH)
def test_what_holds_no_examples_is_named(Field):
    for bad_X, bad_y, message in [(X, 10**30, "y must be an array"), (object(), Y, "X must be an array|number")]:
        with pytest.raises((ValueError, TypeError), match=message):
            Field(**QUICK).fit(bad_X, bad_y)


@pytest.mark.parametrize("Field", BOTH)
def test_huge_values_are_an_error(Field):
    field = Field(**QUICK).fit(X, Y)
    before = field.predict(X)
    if Field is RegressionTreeField:
        with pytest.raises(ValueError, match="has values up to 1e\\+300"):
            field.fit(X, np.where(Y == 1, 1e300, 0.0))
    assert_array_equal(field.predict(X), before)
