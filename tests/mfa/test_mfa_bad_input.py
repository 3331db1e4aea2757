"""What MultiConditionalMFA says to input and parameters that it cannot use, and that it loses nothing by it."""

import warnings

import numpy as np
import pytest
from mfa_problems import labelled_clusters
from numpy.testing import assert_array_equal

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.mfa import _training as training

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def clusters():
    return labelled_clusters(60, 4, 3, seed=1)


def quick(**kwargs):
    return MultiConditionalMFA(**{"n_init": 1, "max_iter": 3, "random_state": 0} | kwargs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_components": True}, "n_components must be an integer, got True"),
        ({"n_factors": 1.5}, "n_factors must be an instance of int"),
        ({"n_jobs": "2"}, "n_jobs must be an instance of int"),
        ({"verbose": "much"}, "verbose must be an instance of int"),
        ({"allow_nan": "no"}, "allow_nan must be an instance of"),
        ({"warm_start": 3}, "warm_start must be an instance of"),
        ({"alpha": np.nan}, "alpha must be finite, got nan"),
        ({"tol": np.nan}, "tol must be finite, got nan"),
        ({"tol": np.inf}, "tol must be finite, got inf"),
        ({"reg_covar": np.nan}, "reg_covar must be finite"),
        ({"learning_rate": np.inf}, "learning_rate must be finite"),
        ({"mean_prior_scale": np.nan}, "mean_prior_scale=nan: must be None or at least"),
        ({"loading_prior_scale": 1e-300}, "loading_prior_scale=1e-300: must be None or at least"),
        ({"init": None}, "init=None: must be"),
        ({"init": [[1, 2], [3]]}, r"init: means must be numbers of shape \(3, 2, 4\)"),
        ({"init": np.full((3, 2, 4), "a")}, "init: means must be numbers"),
        ({"init": {"means": np.zeros((3, 2, 4)), 1: 2}}, "init has the keys"),
        ({"init": {"means": np.zeros((3, 2, 4)), "weights": np.ones((3, 2))}}, "weights must sum to 1"),
        ({"init": {"means": np.zeros((3, 2, 4)), "class_prior": np.ones(3)}}, "class_prior must sum to 1, found 3"),
        ({"class_weight": {0: -1.0}}, r"class_weight gives the class 0 the weight -1\.0"),
        ({"class_weight": {1: np.nan}}, "class_weight gives the class 1 the weight nan"),
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, "is 0 throughout"),
        ({"classes": []}, "classes must be a list of at least one label"),
        ({"classes": [[0, 1, 2]]}, "classes must be a list of at least one label"),
        ({"classes": ["a"]}, "y has the label 0, which is not among classes="),
    ],
)
def test_parameters_that_cannot_be_meant(clusters, kwargs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(**kwargs).fit(*clusters)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_starts_without_a_likelihood(clusters):
    with pytest.raises(ValueError, match="the criterion is not finite at the initial values"):
        quick(init=np.full((3, 2, 4), 1e200)).fit(*clusters)


def test_features_too_large_to_be_squared(clusters):
    X, y = clusters
    X = X.copy()
    X[3, 2] = -1e200
    with pytest.raises(ValueError, match=r"feature\(s\) 2 of X have values beyond 1e\+150"):
        quick().fit(X, y)


def test_singular_covariances_are_said(clusters, monkeypatch):
    def singular(*args, **kwargs):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(training, "run_em", singular)
    with pytest.raises(ValueError, match="covariance of a component became singular; raise reg_covar"):
        quick(objective="joint").fit(*clusters)


def test_more_parameters_than_samples_without_a_floor(clusters):
    # How far noise falls before a matrix cannot be inverted is a matter of rounding: an error or a warning, no silence.
    X, y = clusters[0][:12], np.repeat([0, 1, 2], 4)
    model = quick(n_factors=4, reg_covar=0, noise="component", objective="joint", max_iter=300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except ValueError as error:
            caught.append(error)
    assert any("raise reg_covar" in str(getattr(found, "message", found)) for found in caught)
    assert np.isfinite(getattr(model, "loss_curve_", 0)).all()


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "transform"])
def test_samples_out_of_reach(clusters, method):
    model = quick().fit(*clusters)
    X = clusters[0][:3].copy()
    X[1] = 1e300
    with pytest.raises(ValueError, match=r"X\[1\] is so far from the samples of fit"):
        getattr(model, method)(X)


def test_number_of_samples_to_draw(clusters):
    model = quick().fit(*clusters)
    for n_samples in (-1, 1.5):
        with pytest.raises((ValueError, TypeError), match="n_samples"):
            model.sample(n_samples)


def test_steps_that_are_far_too_long_leave_the_best_parameters(clusters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = quick(solver="sgd", learning_rate=1e200).fit(*clusters)
    assert np.isfinite(model.loss_curve_).all()
    assert np.isfinite(model.restart_losses_).all()
    assert np.isfinite(model.predict_proba(clusters[0])).all()
    assert not model.converged_


def test_a_class_of_weight_0_is_one_without_samples(clusters):
    X, y = clusters
    with pytest.warns(UserWarning, match=r"classes \[0\] have no sample"):
        model = quick(class_weight={0: 0}).fit(X, y)
    assert_array_equal(model.classes_, [0, 1, 2])
    with pytest.warns(UserWarning, match="have no sample"):
        other = quick(classes=[0, 1, 2]).fit(X[y > 0], y[y > 0])
    assert_array_equal(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("missing", [False, True])
def test_what_a_fit_found_is_where_another_can_start(clusters, missing):
    X, y = clusters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = quick(classes=[0, 1, 2, 7][: 3 + missing]).fit(X, y)
        given = {name: getattr(first, f"{name}_") for name in ("means", "loadings", "weights", "class_prior")}
        again = quick(classes=first.classes, init=given | {"noise_variance": first.noise_variance_}).fit(X, y)
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
        quick(classes=[0, 1, 2, 3]).fit(X, y)
    assert len(caught) == 3  # a constant feature, a class without samples, no convergence
    assert {warning.filename for warning in caught} == {__file__}
