"""Errors of MultiConditionalMFA for invalid parameters and input, and its state after them."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from mfa_problems import labelled_clusters
from numpy.testing import assert_array_equal
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.mfa import EM, Priors, ScaledLBFGS, ScaledSGD

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def clusters():
    return labelled_clusters(60, 4, 3, seed=1)


def quick(**kwargs):
    given = {"n_components": 2, "noise": "tied", "alpha": 0.01}
    return MultiConditionalMFA(**given | {"n_init": 1, "max_iter": 3, "random_state": 0} | kwargs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"init": [[1, 2], [3]]}, r"init\['means'\] must be numbers of shape \(3, 2, 4\)"),
        ({"init": np.full((3, 2, 4), "a")}, r"init\['means'\] must be numbers"),
        ({"init": {"means": np.zeros((3, 2, 4)), 1: 2}}, "init must have the key 'means' and no other keys"),
        ({"init": {"means": np.zeros((3, 2, 4)), "weights": np.ones((3, 2))}}, r"weights'\] must sum to 1"),
        (
            {"init": {"means": np.zeros((3, 2, 4)), "class_prior": np.ones(3)}},
            r"class_prior'\] must sum to 1, got sums 3",
        ),
        ({"class_weight": {0: -1.0}}, r"class_weight gives the class 0 the weight -1\.0"),
        ({"class_weight": {1: np.nan}}, "class_weight gives the class 1 the weight nan"),
        ({"classes": []}, "classes must be a 1-D array of at least 1 class"),
        ({"classes": [[0, 1, 2]]}, "classes must be a 1-D array of at least 1 class"),
    ],
)
def test_parameters_that_cannot_be_meant(clusters, kwargs, message):
    with pytest.raises(InvalidParameterError, match=message):
        quick(**kwargs).fit(*clusters)


@pytest.mark.parametrize("objective", ["joint", "multi_conditional"])
def test_missing_values_without_allow_nan(clusters, objective):
    X, y = clusters
    holes = X.copy()
    holes[3, 1] = np.nan
    message = (
        "^X contains NaN in feature 1 of sample 3: pass allow_nan=True to MultiConditionalMFA, .* or impute them.$"
    )
    model = quick(objective=objective)
    with pytest.raises(ValueError, match=message):
        model.fit(holes, y)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(holes, y, classes=[0, 1, 2])
    model.fit(X, y)
    for method in ("predict", "predict_proba", "transform", "score_samples", "joint_log_likelihood"):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(holes)
    with pytest.raises(ValueError, match="infinity"):
        quick(allow_nan=True).fit(np.where(np.isnan(holes), np.inf, holes), y)


@pytest.mark.parametrize("y", [sp.csc_matrix((3, 3)), sp.csr_array((60, 1))])
def test_sparse_labels(clusters, y):
    with pytest.raises(TypeError, match="Sparse data was passed for y"):
        quick().fit(clusters[0], y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a", "b"], ["a"]] * 30, r"is the list \['a', 'b'\]. y must"),
        (
            np.array([["a", "b"], ["a"]] * 30, dtype=object),
            r"y\[0\] is the list \['a', 'b'\]. y must hold",
        ),
        ([["a"], "a"] * 30, r"y\[0\] is the list \['a'\]. y must hold one label"),
        ([np.arange(2), np.arange(3)] * 30, r"y\[0\] is the ndarray"),
        (np.zeros((60, 2)), "y has 2 columns. y must hold one label for each sample"),
        (np.array(["a", None] * 30, dtype=object), r"y\[1\] is missing: leave out samples without a label"),
        (np.array(["a", np.nan] * 30, dtype=object), r"y\[1\] is missing: leave out samples without a label"),
    ],
)
def test_labels_that_cannot_be_meant(clusters, y, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(clusters[0], y)


NO_NUMBER = ["much", np.nan, np.inf, -1, np.zeros(3), [1], object()]
NO_SCALE = [*NO_NUMBER, 0, 1e-300]
NO_COUNT = [*NO_NUMBER, 1.5, True, None]
NO_NAME = ["other", None, 3, np.nan, np.inf, np.array(["joint"])]
BAD_PARAMETERS = {
    "n_components": [*NO_COUNT, 0],
    "n_factors": NO_COUNT,
    "objective": NO_NAME,
    "alpha": [*NO_NUMBER, True, None],
    "noise": NO_NAME,
    "priors": ["flat", 1.0, np.nan, {}, EM(), Priors],
    "init": ["best", None, np.nan, np.inf, 1, object()],
    "n_init": [*NO_COUNT, 0],
    "solver": [*NO_NAME, Priors(), EM],
    "max_iter": [*NO_COUNT, 0],
    "tol": [*NO_NUMBER, True, None],
    "class_weight": ["other", 1.0, np.nan, np.ones(3), [1, 2, 3], {0: "a"}, {0: None}],
    "classes": ["abc", 1, np.nan, np.inf, object()],
    "allow_nan": ["no", 3, None, np.nan, np.array([True, False])],
    "warm_start": ["no", 3, None, np.nan, np.array([True])],
    "random_state": ["seed", -1, 1.5, np.nan, np.inf, np.zeros(3)],
    "n_jobs": ["2", 0, 1.5, np.nan, np.inf, np.array([1, 2]), True],
    "verbose": ["much", -1, 1.5, np.nan, None, np.array([1, 2])],
}
BAD_OPTIONS = [
    *(("priors", Priors(mean_scale=value), "mean_scale") for value in NO_SCALE),
    *(("priors", Priors(loading_scale=value), "loading_scale") for value in NO_SCALE),
    *(("priors", Priors(noise_floor=value), "noise_floor") for value in [*NO_NUMBER, None]),
    *(("solver", ScaledLBFGS(history_size=value), "history_size") for value in [*NO_NUMBER, 0, None]),
    *(("solver", ScaledSGD(step_size=value), "step_size") for value in [*NO_NUMBER, 0, None]),
    *(("solver", ScaledSGD(step_schedule=value), "step_schedule") for value in NO_NAME),
    *(("solver", ScaledSGD(batch_size=value), "batch_size") for value in [*NO_NUMBER, 0, 1.5, None]),
]


def test_every_parameter_is_walked():
    assert BAD_PARAMETERS.keys() == MultiConditionalMFA().get_params(deep=False).keys()
    assert len(BAD_PARAMETERS) <= 18


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_values_are_named(clusters, name):
    model = quick().fit(*clusters)
    before = model.means_
    for value in BAD_PARAMETERS[name]:
        with pytest.raises(InvalidParameterError, match=name):
            model.set_params(**{name: value}).fit(*clusters)
        assert model.means_ is before


@pytest.mark.parametrize(("name", "value", "option"), BAD_OPTIONS)
def test_bad_options_are_named(clusters, name, value, option):
    with pytest.raises(InvalidParameterError, match=f"'{option}' parameter of {type(value).__name__}"):
        quick(**{name: value}).fit(*clusters)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, "is 0 for every sample"),
        ({"classes": ["a"]}, "y contains the label 0, which is not one of classes="),
    ],
)
def test_parameters_that_do_not_fit_the_labels(clusters, kwargs, message):
    with pytest.raises(ValueError, match=message):
        quick(**kwargs).fit(*clusters)


def test_options_of_solver_and_priors_are_nested():
    model = MultiConditionalMFA(solver=ScaledSGD(), priors=Priors())
    model.set_params(solver__step_size=0.5, priors__noise_floor=0.1)
    assert model.solver.step_size == 0.5
    assert model.priors.noise_floor == 0.1
    assert {"solver__batch_size", "priors__mean_scale"} <= model.get_params().keys()
    model = MultiConditionalMFA().set_params(solver=ScaledSGD(), solver__step_size=0.3)
    assert model.solver.step_size == 0.3


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "solver__step_size",
            r"solver='auto' is not an object: .* for example solver=ScaledSGD\(\)",
        ),
        ("priors__mean_scale", r"priors=None is not an object: pass an object first, for example priors=Priors\(\)"),
    ],
)
def test_options_of_a_name_ask_for_an_object(key, message):
    with pytest.raises(ValueError, match=message):
        MultiConditionalMFA().set_params(**{key: 0.1})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_starts_without_a_likelihood(clusters):
    with pytest.raises(ValueError, match="the training criterion is not finite at the initial values"):
        quick(init=np.full((3, 2, 4), 1e200)).fit(*clusters)


def test_features_too_large_to_be_squared(clusters):
    X, y = clusters
    X = X.copy()
    X[3, 2] = -1e200
    with pytest.raises(ValueError, match=r"feature\(s\) 2 of X have values above 1e\+150"):
        quick().fit(X, y)


def test_singular_covariances_are_said(clusters, monkeypatch):
    def singular(*args, **kwargs):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(EM, "minimize", singular)
    with pytest.raises(ValueError, match="covariance of a component became singular: increase Priors"):
        quick(objective="joint").fit(*clusters)


def test_more_parameters_than_samples_without_a_floor(clusters):
    # Rounding decides how far noise decreases before a matrix cannot be inverted: an error or a warning, but no
    # silence.
    X, y = clusters[0][:12], np.repeat([0, 1, 2], 4)
    model = quick(n_factors=4, priors=Priors(noise_floor=0), noise="component", objective="joint", max_iter=300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except ValueError as error:
            caught.append(error)
    assert any("noise_floor=" in str(getattr(found, "message", found)) for found in caught)
    assert np.isfinite(getattr(model, "loss_curve_", 0)).all()


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "transform"])
def test_samples_out_of_reach(clusters, method):
    model = quick().fit(*clusters)
    X = clusters[0][:3].copy()
    X[1] = 1e300
    with pytest.raises(ValueError, match=r"X\[1\] is so far from the training samples"):
        getattr(model, method)(X)


def test_number_of_samples_to_draw(clusters):
    model = quick().fit(*clusters)
    for n_samples in (-1, 1.5):
        with pytest.raises((ValueError, TypeError), match="n_samples"):
            model.sample(n_samples)


def test_steps_that_are_far_too_long_leave_the_best_parameters(clusters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = quick(solver=ScaledSGD(step_size=1e200)).fit(*clusters)
    assert np.isfinite(model.loss_curve_).all()
    assert np.isfinite(model.restart_losses_).all()
    assert np.isfinite(model.predict_proba(clusters[0])).all()
    assert not model.converged_


def test_a_class_of_weight_0_is_one_without_samples(clusters):
    X, y = clusters
    with pytest.warns(UserWarning, match=r"y has no samples of the classes \[0\]"):
        model = quick(class_weight={0: 0}).fit(X, y)
    assert_array_equal(model.classes_, [0, 1, 2])
    with pytest.warns(UserWarning, match="has no samples of the classes"):
        other = quick(classes=[0, 1, 2]).fit(X[y > 0], y[y > 0])
    assert_array_equal(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("missing", [False, True])
def test_what_a_fit_found_is_where_another_can_start(clusters, missing):
    X, y = clusters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = quick(classes=[0, 1, 2, 7][: 3 + missing]).fit(X, y)
        given = {name: getattr(first, f"{name}_") for name in ("means", "loadings", "weights", "noise_variance")}
        again = quick(classes=first.classes, init=given | {"class_prior": first.discriminative_prior_}).fit(X, y)
    np.testing.assert_allclose(again.loss_curve_[0], first.loss_curve_[-1], rtol=1e-9)


def test_a_failed_fit_leaves_the_last_one_as_it_was(clusters):
    X, y = clusters
    model = quick().fit(X, y)
    before = model.predict_proba(X)
    names = np.array(["a", "b", "c"])[y]
    for bad_X, weight in ((X[:, :3], np.zeros(60)), (X, -np.ones(60))):
        with pytest.raises(ValueError, match="weight"):
            model.fit(bad_X, names, sample_weight=weight)
        assert_array_equal(model.classes_, [0, 1, 2])
        assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(ValueError, match="n_components"):
        model.set_params(n_components=40).fit(X, names)
    assert_array_equal(model.predict(X), before.argmax(axis=1))


def test_warnings_point_to_the_call_of_fit(clusters):
    X, y = clusters
    X = np.column_stack([X, np.ones(60)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(classes=[0, 1, 2, 3], objective="joint", max_iter=1).fit(X, y)
    assert len(caught) == 3  # a constant feature, a class without samples, no convergence
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    ("X", "n_axes"),
    [
        (np.zeros((2, 5, 6, 3)), 3),
        (np.zeros((4, 5, 3)), 2),
        ([np.zeros((5, 3)), np.zeros((4, 3))], 2),
        (np.array([np.zeros((5, 3)), np.zeros((4, 3))], dtype=object), 2),
    ],
)
def test_sequences_and_images_are_refused_with_who_takes_them(clusters, X, n_axes):
    mixture = quick().fit(*clusters)
    message = f"but each has {n_axes} axes: fit DRFClassifier or TRWCRF"
    with pytest.raises(ValueError, match=message):
        quick().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match=message):
        mixture.predict(X)
