"""MultiConditionalMFA: closed forms and estimators that it must equal, its interface, and its errors."""

import pickle
import warnings

import numpy as np
import pytest
from callback_recorder import Recorder
from mfa_problems import brute_force_joint, labelled_clusters, mixture, with_gaps
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import check_estimator

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.mfa import Priors, _tuning
from sklearn_crf.mfa._plan import plan_family
from sklearn_crf.mfa._samples import StandardisedSamples, measure
from sklearn_crf.mfa._training import find_starts

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def clusters():
    return labelled_clusters(300, 4, 3, seed=1)


def run_checks(estimator, expected=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_estimator(estimator, expected_failed_checks=expected, on_skip=None)


def test_check_estimator_in_full():
    # Ten iterations: with the fifteen samples of one check, longer runs amplify rounding beyond the tolerance of 1e-7.
    results = run_checks(MultiConditionalMFA(n_components=1, n_init=1, max_iter=10))
    assert sum(r["status"] == "passed" for r in results) >= 50
    assert {r["status"] for r in results} <= {"passed", "skipped"}


def test_check_estimator_with_random_starts():
    reason = "k-means draws its random starts from repeated samples and weighted ones differently"
    expected = {"check_sample_weight_equivalence_on_dense_data": reason}
    results = run_checks(MultiConditionalMFA(2, objective="joint", n_init=2, max_iter=10), expected)
    assert sum(r["status"] == "passed" for r in results) >= 50
    assert sum(r["status"] == "xfail" for r in results) == 1


@pytest.mark.parametrize("objective", ["joint", "multi_conditional"])
def test_weights_equal_repetition_with_array_starts(clusters, objective):
    X, y = clusters
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    model = mixture(2, 1, objective=objective, alpha=0.1, init=X[:6].reshape(3, 2, 4), max_iter=30)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert_allclose(weighted.predict_log_proba(X), repeated.predict_log_proba(X), rtol=1e-5, atol=1e-6)
    assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-7)


def test_no_factor_joint_with_class_noise_is_gaussian_naive_bayes():
    X, y = load_iris(return_X_y=True)
    X, y = X[:130], y[:130]
    model = mixture(1, 0, objective="joint", noise="class", priors=Priors(noise_floor=0)).fit(X, y)
    other = GaussianNB(var_smoothing=0).fit(X, y)
    assert_allclose(model.means_[:, 0], other.theta_)
    assert_allclose(model.noise_variance_, other.var_)
    assert_allclose(model.class_prior_, other.class_prior_)
    assert_allclose(model.predict_log_proba(X), other.predict_log_proba(X), atol=1e-8)


def test_no_factor_joint_with_tied_noise_is_pooled_diagonal_lda():
    X, y = load_iris(return_X_y=True)
    model = mixture(1, 0, objective="joint", priors=Priors(noise_floor=0)).fit(X, y)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    variance = np.mean((X - means[y]) ** 2, axis=0)
    assert_allclose(model.means_[:, 0], means)
    assert_allclose(model.noise_variance_, variance)
    scores = X @ (means / variance).T - 0.5 * (means**2 / variance).sum(axis=1)
    assert_array_equal(model.predict(X), scores.argmax(axis=1))


def test_no_factor_conditional_is_unpenalised_logistic_regression():
    X, y = labelled_clusters(400, 3, 3, n_clusters=1, seed=2, separation=0.7)
    model = mixture(1, 0, alpha=0, tol=1e-9, max_iter=5000).fit(X, y)
    other = LogisticRegression(C=np.inf, tol=1e-9, max_iter=5000).fit(X, y)
    assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)
    best = -other.predict_log_proba(X)[np.arange(400), y].mean()
    assert_allclose(model.loss_curve_[-1], best, rtol=1e-7)


def test_one_component_joint_is_factor_analysis_per_class():
    X, y = labelled_clusters(400, 8, 2, n_clusters=1, n_factors=2, seed=4)
    model = mixture(1, 2, objective="joint", noise="class", tol=1e-9, max_iter=500).fit(X, y)
    for c in range(2):
        other = FactorAnalysis(2, tol=1e-9, max_iter=5000, svd_method="lapack").fit(X[y == c])
        assert_allclose(model.means_[c, 0], other.mean_)
        assert_allclose(model.noise_variance_[c], other.noise_variance_, rtol=1e-2)
        ours = model.loadings_[c, 0] @ model.loadings_[c, 0].T + np.diag(model.noise_variance_[c])
        assert_allclose(ours, other.get_covariance(), rtol=1e-3, atol=1e-3)
        log_likelihood = model.joint_log_likelihood(X[y == c])[:, c] - np.log(model.class_prior_[c])
        assert_allclose(log_likelihood.mean(), other.score(X[y == c]), rtol=1e-6)


@pytest.mark.parametrize("noise", ["tied", "class", "component"])
def test_fitted_attributes_say_what_the_densities_are(clusters, noise):
    X, y = clusters
    model = mixture(2, 1, noise=noise, n_init=1, max_iter=20, random_state=0).fit(1e3 * X + 7, y)
    X = 1e3 * X[:20] + 7
    scores = brute_force_joint(model._parameters, X)
    assert_allclose(model.predict_log_proba(X), scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), atol=1e-12)
    joint = scores - np.log(model.discriminative_prior_) + np.log(np.bincount(y) / len(y))
    assert_allclose(model.joint_log_likelihood(X), joint, rtol=1e-9)
    assert_allclose(model.score_samples(X), np.logaddexp.reduce(joint, axis=1), rtol=1e-9)
    shape = {"tied": (4,), "class": (3, 4), "component": (3, 2, 4)}[noise]
    assert model.noise_variance_.shape == shape
    assert model.loadings_.shape == (3, 2, 4, 1)
    assert_allclose(model.weights_.sum(axis=1), 1)


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_loss_curve_ends_at_the_criterion(clusters, solver, alpha):
    X, y = clusters
    model = mixture(2, 1, alpha=alpha, solver=solver, n_init=2, max_iter=15, random_state=0)
    model.fit(X * [1, 10, 100, 1e-3], y)
    own = model.joint_log_likelihood(X * [1, 10, 100, 1e-3])[np.arange(300), y]
    conditional = model.predict_log_proba(X * [1, 10, 100, 1e-3])[np.arange(300), y]
    loss = -(conditional + alpha * (own - np.log(model.class_prior_[y]))).mean()
    assert_allclose(model.loss_curve_.min(), loss, rtol=1e-6)
    assert_allclose(model.restart_losses_.min(), loss, rtol=1e-6)
    assert loss < model.loss_curve_[0]


def test_joint_solvers_agree(clusters):
    X, y = clusters
    common = {"objective": "joint", "n_init": 1, "random_state": 0, "max_iter": 2000}
    em = mixture(1, 2, solver="em", tol=1e-9, **common).fit(X, y)
    lbfgs = mixture(1, 2, solver="lbfgs", tol=1e-6, **common).fit(X, y)
    assert (np.diff(em.loss_curve_) <= 1e-10).all()
    assert_allclose(em.loss_curve_[0], lbfgs.loss_curve_[0], rtol=1e-12)
    assert_allclose(em.loss_curve_[-1], lbfgs.loss_curve_[-1], rtol=1e-5)
    assert_allclose(em.bic(X, y), 2 * 300 * em.loss_curve_[-1] + em.n_parameters() * np.log(300), rtol=1e-9)


def test_large_alpha_approaches_the_generative_fit(clusters):
    X, y = clusters
    joint = mixture(2, 1, objective="joint", tol=1e-10, max_iter=3000, n_init=1, random_state=0).fit(X, y)
    start = {
        "means": joint.means_,
        "loadings": joint.loadings_,
        "noise_variance": joint.noise_variance_,
        "weights": joint.weights_,
        "class_prior": joint.class_prior_,
    }
    gaps = []
    for alpha in (1.0, 1e2, 1e4):
        model = mixture(2, 1, alpha=alpha, init=start, tol=1e-7, max_iter=2000).fit(X, y)
        gaps.append(abs(model.means_ - joint.means_).max())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-3


def test_every_criterion_starts_from_the_same_values(clusters):
    X, y = clusters
    options = [{"objective": "joint"}, {"alpha": 0.0}, {"alpha": 1.0}]
    starts = [mixture(2, 1, init="kmeans", n_init=1, max_iter=1, random_state=3, solver="lbfgs", **o) for o in options]
    units, _ = measure(X, np.ones(300))
    samples = StandardisedSamples(units.standardise(X), y, np.ones(300), units)
    families = [plan_family(2, 1, "tied", objective=m.objective, alpha=m.alpha, priors=None)[0] for m in starts]
    found = [find_starts(samples, family, "kmeans", [11])[0] for family in families]
    for other in found[1:]:
        assert_array_equal(other.means, found[0].means)
        assert_array_equal(other.loadings, found[0].loadings)


def test_random_starts_and_starts_from_arrays(clusters):
    X, y = clusters
    common = {"n_components": 2, "n_factors": 1, "objective": "joint", "random_state": 0}
    assert mixture(init="random", **common).fit(X, y).score(X, y) > 0.8
    first = mixture(n_init=1, **common).fit(X, y)
    given = {"means": first.means_, "weights": first.weights_, "loadings": first.loadings_}
    again = mixture(init=given | {"noise_variance": first.noise_variance_}, **common).fit(X, y)
    assert_allclose(again.loss_curve_[0], first.loss_curve_[-1], rtol=1e-9)
    assert len(again.restart_losses_) == 1


def test_large_classes_start_from_subsamples_of_them(monkeypatch):
    monkeypatch.setattr(_tuning, "START_SAMPLES", 60)
    X, y = labelled_clusters(600, 4, 2, seed=2, separation=4)
    model = mixture(2, 1, objective="joint", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("kwargs", [{"objective": "joint"}, {"alpha": 0.1}, {"solver": "sgd", "max_iter": 3}])
def test_bit_identical_for_any_number_of_jobs(kwargs):
    X, y = labelled_clusters(6000, 6, 2, seed=0)
    kwargs = {"max_iter": 10, "n_init": 2, "random_state": 0, **kwargs}
    fits = [mixture(2, 2, n_jobs=n_jobs, **kwargs).fit(X, y) for n_jobs in (1, 2, 4)]
    for other in fits[1:]:
        assert_array_equal(other.means_, fits[0].means_)
        assert_array_equal(other.loss_curve_, fits[0].loss_curve_)


def test_units_of_features_do_not_matter(clusters):
    X, y = clusters
    scale, shift = np.array([1e-6, 1, 1e3, 1e6]), np.array([0, 5, -1e4, 1e6])
    model = mixture(2, 1, n_init=1, max_iter=20, random_state=0)
    assert_allclose(
        clone(model).fit(X * scale + shift, y).predict_proba(X * scale + shift),
        clone(model).fit(X, y).predict_proba(X),
        atol=1e-5,
    )


def test_missing_values_are_integrated_out(clusters):
    X, y = clusters
    gappy = with_gaps(X, 0.2)
    model = mixture(1, 1, allow_nan=True, n_init=1, random_state=0).fit(gappy, y)
    scores = brute_force_joint(model._parameters, gappy[:20])
    scores += np.log(model.class_prior_) - np.log(model.discriminative_prior_)
    assert_allclose(model.joint_log_likelihood(gappy[:20]), scores, rtol=1e-9)
    assert model.score(X, y) > 0.8
    empty = np.full((1, 4), np.nan)
    assert_allclose(model.predict_proba(empty)[0], model.discriminative_prior_)
    assert_allclose(model.impute(empty)[0], np.einsum("c,ckj->j", model.class_prior_, model.means_))
    joint = mixture(2, 1, objective="joint", allow_nan=True, random_state=0).fit(gappy, y)
    assert joint.score(gappy, y) > 0.8
    with pytest.raises(ValueError, match="NaN"):
        mixture().fit(gappy, y)
    with pytest.raises(ValueError, match="solver='em' needs complete"):
        mixture(objective="joint", solver="em", allow_nan=True).fit(gappy, y)


def test_impute_fills_gaps_alone(clusters):
    X, y = clusters
    gappy = with_gaps(X, 0.2)
    model = mixture(2, 1, objective="joint", n_init=1, random_state=0).fit(X, y)
    filled = model.impute(gappy)
    missing = np.isnan(gappy)
    assert_array_equal(filled[~missing], X[~missing])
    mean = X.mean(axis=0)
    assert np.mean((filled - X)[missing] ** 2) < 0.6 * np.mean((mean - X)[missing] ** 2)
    assert_array_equal(model.impute(X), X)
    gappy[0] = np.nan
    assert_allclose(model.impute(gappy)[0], np.einsum("c,ck,ckj->j", model.class_prior_, model.weights_, model.means_))


def test_bic_is_of_joint_likelihoods(clusters):
    model = mixture(1, 1, n_init=1, max_iter=5).fit(*clusters)
    assert not hasattr(model, "bic")
    with pytest.raises(AttributeError, match="no attribute 'bic'") as error:
        model.bic(*clusters)
    assert "use objective='joint', or compare models by cross-validation" in str(error.value.__cause__)
    assert hasattr(mixture(objective="joint"), "bic")


def test_samples_follow_the_model(clusters):
    X, y = clusters
    for noise in ("tied", "class", "component"):
        model = mixture(2, 1, objective="joint", noise=noise, n_init=1, random_state=0).fit(X, y)
        X_new, y_new = model.sample(20000, random_state=1)
        assert_allclose(np.bincount(y_new) / 20000, model.class_prior_, atol=0.02)
        mixed = np.einsum("ck,ckj->cj", model.weights_, model.means_)
        for c in range(3):
            assert_allclose(X_new[y_new == c].mean(axis=0), mixed[c], atol=0.15)
        # The mean log-density of samples is minus the entropy, whoever draws them.
        other = model.sample(20000, random_state=2)[0]
        assert_allclose(model.score_samples(X_new).mean(), model.score_samples(other).mean(), atol=0.1)
    X_same, y_same = model.sample(5, random_state=7)
    assert_array_equal(X_same, model.sample(5, random_state=7)[0])
    assert X_same.shape == (5, 4)
    assert y_same.shape == (5,)


def test_transform_recovers_a_factor():
    rng = np.random.default_rng(0)
    z, direction = rng.normal(size=500), np.array([1.0, -2.0, 0.5])
    X = z[:, None] * direction + 0.1 * rng.normal(size=(500, 3))
    y = np.repeat([0, 1], 250)
    model = mixture(1, 1, objective="joint").fit(X, y)
    assert abs(np.corrcoef(model.transform(X)[:, 0], z)[0, 1]) > 0.99
    assert list(model.get_feature_names_out()) == ["multiconditionalmfa0"]


def test_priors_shrink(clusters):
    X, y = clusters
    free = mixture(1, 1, objective="joint").fit(X, y)
    tight = mixture(1, 1, objective="joint", priors=Priors(0.02, 0.02)).fit(X, y)
    overall = X.mean(axis=0)
    assert np.linalg.norm(tight.means_ - overall) < 0.5 * np.linalg.norm(free.means_ - overall)
    assert np.linalg.norm(tight.loadings_) < 0.5 * np.linalg.norm(free.loadings_)
    loose = mixture(1, 1, objective="joint", priors=Priors(1e4, 1e4)).fit(X, y)
    assert_allclose(loose.means_, free.means_, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_densities_and_draws_take_the_shares_of_the_classes(alpha):
    rng = np.random.default_rng(2)
    y = (rng.random(600) < 0.37).astype(int)
    X = rng.normal(size=(600, 2)) * np.where(y, 3.0, 1.0)[:, None]
    weight = rng.integers(1, 3, 600)
    model = mixture(1, 1, alpha=alpha, n_init=1, random_state=0).fit(X, y, sample_weight=weight)
    share = np.bincount(y, weight) / weight.sum()
    assert_allclose(model.class_prior_, share)
    assert_allclose(model.class_count_, np.bincount(y, weight))
    assert abs(model.discriminative_prior_ - share).max() > 1e-3
    assert_allclose(np.bincount(model.sample(20000, random_state=0)[1]) / 20000, share, atol=0.02)
    own = brute_force_joint(model._replace_prior(share), X)
    assert_allclose(model.score_samples(X), np.logaddexp.reduce(own, axis=1), rtol=1e-6)
    scores = brute_force_joint(model._replace_prior(model.discriminative_prior_), X)
    assert_array_equal(model.predict(X), scores.argmax(axis=1))


def test_joint_training_has_one_prior(clusters):
    X, y = clusters
    model = mixture(1, 1, objective="joint").fit(X, y)
    assert_allclose(model.discriminative_prior_, model.class_prior_)
    # As after loading from a version with a single prior.
    joint = model.predict_proba(X)
    del model.discriminative_prior_, model.class_count_
    assert_allclose(model.predict_proba(X), joint)


def test_class_weight_multiplies_sample_weight(clusters):
    X, y = clusters
    model = mixture(1, 1, max_iter=20)
    by_class = clone(model).set_params(class_weight={0: 1, 1: 2, 2: 3}).fit(X, y)
    by_sample = clone(model).fit(X, y, sample_weight=y + 1)
    assert_array_equal(by_class.means_, by_sample.means_)
    balanced = clone(model).set_params(class_weight="balanced", objective="joint").fit(X[20:], y[20:])
    assert_allclose(balanced.class_prior_, 1 / 3)


def test_warm_start_goes_on(clusters):
    X, y = clusters
    model = mixture(2, 1, max_iter=5, warm_start=True, random_state=0).fit(X, y)
    before = model.loss_curve_[-1]
    model.fit(X, y)
    assert_allclose(model.loss_curve_[0], before, rtol=1e-9)
    assert model.loss_curve_[-1] < before
    with pytest.raises(ValueError, match="warm_start"):
        model.set_params(n_components=3).fit(X, y)


def test_float32_read_only_strings_and_pickle(clusters):
    X, y = clusters
    names = np.array(["no", "yes", "perhaps"])[y]
    X32 = X.astype(np.float32)
    X32.flags.writeable = False
    model = mixture(2, 1, n_init=1, max_iter=30, random_state=0).fit(X32, names)
    assert set(model.predict(X32)) <= set(names)
    other = clone(model).fit(X32.astype(float), names)
    assert_array_equal(model.means_, other.means_)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X32), model.predict_proba(X32))


def test_a_class_missing_from_the_fold(clusters):
    X, y = clusters
    model = mixture(1, 1, classes=[0, 1, 2, 5], noise="class")
    with pytest.warns(UserWarning, match=r"y has no samples of the classes \[5\]"):
        model.fit(X, y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (300, 4)
    assert_array_equal(probabilities[:, 3], 0)
    assert np.isfinite(model.means_).all()
    assert set(model.sample(100, random_state=0)[1]) <= {0, 1, 2}
    plain = mixture(1, 1, noise="class").fit(X, y)
    assert_array_equal(plain.predict_proba(X), probabilities[:, :3])
    with pytest.raises(ValueError, match="not one of classes"):
        mixture(classes=[0, 1]).fit(X, y)


def test_one_class_is_a_density():
    X, _ = labelled_clusters(100, 3, 1)
    model = mixture(2, 1, objective="joint", random_state=0).fit(X, np.zeros(100))
    assert np.isfinite(model.score_samples(X)).all()
    assert_array_equal(model.predict_proba(X), 1)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_factors": 5}, "n_factors=5 is larger than n_features=4"),
        ({"n_components": 150}, "fewer than n_components=150"),
        ({"objective": "conditional"}, "'objective' parameter .* Got 'conditional'"),
        ({"noise": "spherical"}, "'noise' parameter .* Got 'spherical'"),
        ({"solver": "newton"}, "'solver' parameter .* Got 'newton'"),
        ({"solver": "em"}, "objective='joint'"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": np.inf}, "'alpha' parameter .* Got inf"),
        ({"n_components": 0}, "n_components"),
        ({"priors": Priors(mean_scale=0.0)}, "'mean_scale' parameter of Priors"),
        ({"init": "best"}, "'init' parameter .* Got 'best'"),
        ({"init": np.zeros((3, 2, 3))}, r"means.\] must have shape \(3, 2, 4\), got \(3, 2, 3\)"),
        ({"init": {"weights": np.ones((3, 2))}}, "init must have the key 'means'"),
        (
            {"init": {"means": np.zeros((3, 2, 4)), "weights": np.zeros((3, 2))}},
            r"weights'\] must be finite and positive",
        ),
    ],
)
def test_parameters_that_cannot_be_meant(clusters, kwargs, message):
    with pytest.raises(ValueError, match=message):
        mixture(**kwargs).fit(*clusters)


def test_constant_and_empty_features(clusters):
    X, y = clusters
    X = np.column_stack([X, np.full(300, 0.1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mixture(2, 1, random_state=0).fit(X, y)
    # A constant feature does not discriminate between classes.
    without = mixture(2, 1, random_state=0).fit(X[:, :4], y)
    assert_allclose(model.predict_proba(X), without.predict_proba(X[:, :4]), atol=0.05)
    with pytest.warns(UserWarning, match=r"feature\(s\) 4 of X are constant"):
        mixture(2, 1, objective="joint", random_state=0).fit(X, y)
    assert np.isfinite(model.loss_curve_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises(ValueError, match="singular"):
        mixture(priors=Priors(noise_floor=0)).fit(X, y)
    X[:, 4] = np.nan
    with pytest.raises(ValueError, match=r"feature\(s\) 4 of X have no observed value"):
        mixture(allow_nan=True).fit(X, y)


def test_a_feature_constant_in_one_class_is_said(clusters):
    X, y = clusters
    X = X.copy()
    X[y == 1, 2] = 0.5
    with pytest.warns(UserWarning, match="noise variances ended at their minimum"):
        model = mixture(1, 1, objective="joint", noise="class").fit(X, y)
    assert np.isfinite(model.joint_log_likelihood(X)).all()


def test_duplicate_samples_only():
    X, y = np.repeat([[0.0, 1.0], [2.0, 1.5]], 10, axis=0), np.repeat([0, 1], 10)
    for kwargs in ({"objective": "joint"}, {"alpha": 0.0}, {"noise": "component"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = mixture(2, 1, random_state=0, max_iter=20, **kwargs).fit(X, y)
        assert np.isfinite(model.loss_curve_).all()
        assert_array_equal(model.predict(X), y)


def test_callbacks_hear_of_every_iteration(clusters):
    callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")

    assert isinstance(Recorder(), callback.FitCallback)
    for solver in ("em", "lbfgs", "sgd"):
        recorder = Recorder(4)
        model = mixture(2, 1, objective="joint", solver=solver, n_init=1, random_state=0, tol=1e-9)
        model.set_callbacks(recorder).fit(*clusters)
        assert len(recorder.fitted) == model.n_iter_ == 4
        assert recorder.fitted[0].means_.shape == model.means_.shape
        assert not np.array_equal(recorder.fitted[0].means_, recorder.fitted[3].means_)


def test_progress_is_shown(clusters, capfd):
    mixture(1, 1, n_init=1, max_iter=3, verbose=1, random_state=0).fit(*clusters)
    assert "MultiConditionalMFA" in "".join(capfd.readouterr())


def test_at_most_three_classes_of_the_package():
    ours = [base for base in MultiConditionalMFA.__mro__ if base.__module__.startswith("sklearn_crf")]
    assert len(ours) <= 3


def test_no_convergence_is_said(clusters):
    with pytest.warns(ConvergenceWarning, match="increase max_iter or tol"):
        mixture(n_init=1, max_iter=1).fit(*clusters)


def test_wine_is_easy():
    X, y = load_wine(return_X_y=True)
    model = mixture(1, 2, random_state=0).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.93


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_defaults_are_silent(load):
    X, y = load(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mixture(random_state=0).fit(X[::2], y[::2])
    assert model.converged_
    assert model.score(X[1::2], y[1::2]) > 0.93
    assert log_loss(y[1::2], model.predict_proba(X[1::2])) < 0.5


@pytest.mark.parametrize("alpha", [0.0, 0.3, 3.0])
def test_the_prior_is_the_frequency_of_each_class(alpha):
    # Conditional training learns another prior, for decisions only. Densities and samples must not use it.
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [150, 80, 20])
    X = rng.normal(size=(250, 3)) + np.array([0, 2, -2])[y][:, np.newaxis]
    model = MultiConditionalMFA(n_components=1, alpha=alpha, random_state=0).fit(X, y)
    assert_allclose(model.class_prior_, [0.6, 0.32, 0.08])
    _, drawn = model.sample(20_000, random_state=0)
    assert_allclose(np.bincount(drawn) / 20_000, [0.6, 0.32, 0.08], atol=0.015)
    joint = model.joint_log_likelihood(X)
    assert_allclose(model.score_samples(X), np.logaddexp.reduce(joint, axis=1))
