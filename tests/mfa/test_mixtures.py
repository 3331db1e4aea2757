"""Densities, criteria, gradients and expectation-maximisation of mixtures of factor analysers."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mfa_problems import brute_force_joint, covariance, labelled_clusters, random_parameters, with_gaps
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from sklearn_crf.mfa._criteria import JOINT_LIKELIHOOD, Criterion, compute_value_gradient
from sklearn_crf.mfa._densities import (
    compute_factor_means,
    compute_joint_log_density,
    impute_conditional_means,
    precisions,
)
from sklearn_crf.mfa._em import choose_em_step, make_em_step
from sklearn_crf.mfa._parameters import NOISE_KINDS, ParameterVector, PriorPrecisions
from sklearn_crf.mfa._samples import SampleBlocks, StandardisedSamples, measure
from sklearn_crf.mfa._solvers import (
    EM,
    NegativeCriterion,
    ScaledCriterion,
    ScaledLBFGS,
    ScaledSGD,
    compute_fisher_information,
)
from sklearn_crf.mfa._start import (
    combine_class_starts,
    compute_principal_loadings,
    find_class_start,
    make_kmeans_partition,
)

FLAT = PriorPrecisions(0.0, 0.0, 1e-6)
CRITERIA = {
    "joint": JOINT_LIKELIHOOD,
    "conditional": Criterion.multi_conditional(0.0),
    "multi-conditional": Criterion.multi_conditional(0.3),
    "pseudo": Criterion.multi_conditional(1.0),
}


def negative_criterion(X, y, weight, n_classes, criterion, prior, packing):
    data = SampleBlocks(X, y, weight, n_classes)
    return NegativeCriterion(StandardisedSamples(X, y, weight, None), data, criterion, prior, packing)


@settings(max_examples=30, deadline=None)
@given(
    n_classes=st.integers(1, 3),
    n_components=st.integers(1, 3),
    n_features=st.integers(1, 5),
    n_factors=st.integers(0, 3),
    noise=st.sampled_from(NOISE_KINDS),
    gaps=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 1000),
)
def test_densities_equal_full_covariances(n_classes, n_components, n_features, n_factors, noise, gaps, seed):
    _, params = random_parameters(n_classes, n_components, n_features, n_factors, noise, seed)
    X = with_gaps(3 * np.random.default_rng(seed).normal(size=(12, n_features)), gaps, seed)
    assert_allclose(compute_joint_log_density(params, X), brute_force_joint(params, X), rtol=1e-10, atol=1e-10)


def test_densities_far_from_the_origin_keep_their_digits():
    _, params = random_parameters(2, 2, 3, 1, "tied")
    X = np.random.default_rng(0).normal(size=(20, 3))
    far = params.rescale(np.full(3, 1e6), np.ones(3))
    assert_allclose(compute_joint_log_density(far, X + 1e6), compute_joint_log_density(params, X), atol=1e-6)


def test_precisions_are_inverse_covariances():
    _, params = random_parameters(2, 2, 5, 2, "component")
    prec = precisions(params)
    for s in range(4):
        V, sigma = prec.projections[s], covariance(params, s)
        assert_allclose(np.diag(prec.inverse_noise[s]) - V @ V.T, np.linalg.inv(sigma), atol=1e-10)
        assert_allclose(prec.log_det[s], np.linalg.slogdet(sigma)[1])
        assert_allclose(V @ prec.rotations[s], np.linalg.solve(sigma, params.loadings[s]), atol=1e-10)


def test_rows_in_many_blocks_equal_rows_alone():
    _, params = random_parameters(3, 4, 30, 5, "class")
    X = np.random.default_rng(1).normal(size=(3000, 30))
    whole = compute_joint_log_density(params, X)
    assert_allclose(whole[[5, 1500, 2999]], [compute_joint_log_density(params, X[[i]])[0] for i in (5, 1500, 2999)])


@pytest.mark.parametrize("function", [compute_joint_log_density, compute_factor_means, impute_conditional_means])
def test_threads_share_rows_without_a_trace(function):
    _, params = random_parameters(3, 4, 30, 5, "class")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(6000, 30))
    X[4000:, 3] = np.nan
    X[rng.random(6000) < 0.2, 7] = np.nan
    alone = function(params, X)
    for n_jobs in (2, 3):
        assert_array_equal(function(params, X, n_jobs), alone)


def test_factor_means_are_weighted_posterior_means():
    _, params = random_parameters(2, 2, 4, 2, "class")
    X = np.random.default_rng(0).normal(size=(6, 4))
    expected = np.zeros((6, 2))
    normal = [multivariate_normal(params.means[s], covariance(params, s)).logpdf(X) for s in range(4)]
    scores = np.transpose(normal) + (params.log_prior[:, None] + params.log_weights).ravel()
    posterior = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    for s in range(4):
        mean = (X - params.means[s]) @ np.linalg.solve(covariance(params, s), params.loadings[s])
        expected += posterior[:, [s]] * mean
    assert_allclose(compute_factor_means(params, X), expected, atol=1e-12)


@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_canonical_loadings_change_no_density(noise):
    _, params = random_parameters(2, 2, 4, 2, noise)
    canonical = params.canonical()
    X = np.random.default_rng(0).normal(size=(8, 4))
    assert_allclose(compute_joint_log_density(canonical, X), compute_joint_log_density(params, X))
    scaled = canonical.loadings * np.exp(-0.5 * canonical.log_noise)[canonical.noise_group][:, :, None]
    inner = np.swapaxes(scaled, 1, 2) @ scaled
    assert_allclose(inner[:, 0, 1], 0, atol=1e-10)
    assert (inner[:, 0, 0] >= inner[:, 1, 1]).all()


def test_packing_round_trip():
    packing, params = random_parameters(3, 2, 4, 2, "class")
    again = packing.unpack(packing.pack(params))
    for name in ("log_prior", "log_weights", "means", "loadings", "log_noise"):
        assert_allclose(getattr(again, name), getattr(params, name), atol=1e-14)
    assert_allclose(np.exp(params.log_weights).sum(axis=1), 1)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("n_factors", [0, 2])
def test_gradients_pass_five_point_differences(criterion, noise, gaps, n_factors):
    packing, params = random_parameters(3, 2, 3, n_factors, noise)
    rng = np.random.default_rng(1)
    X, y, weight = with_gaps(rng.normal(size=(25, 3)), gaps), rng.integers(0, 3, 25), rng.random(25) + 0.1
    loss = negative_criterion(X, y, weight, 3, CRITERIA[criterion], PriorPrecisions(0.7, 0.3, 1e-6), packing)
    x = packing.pack(params)
    _, gradient = loss(x)
    step, numeric = 1e-3, np.empty_like(x)
    for i in range(x.size):
        e = np.zeros_like(x)
        e[i] = step
        around = [loss(x + m * e)[0] for m in (-2, -1, 1, 2)]
        numeric[i] = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * step)
    assert_allclose(gradient, numeric, atol=1e-6 * max(1, abs(gradient).max()))


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_criteria_are_what_equations_2_4_5_say(gaps):
    _, params = random_parameters(3, 2, 4, 2, "class")
    rng = np.random.default_rng(2)
    X, y, weight = with_gaps(rng.normal(size=(40, 4)), gaps), rng.integers(0, 3, 40), rng.random(40)
    data = SampleBlocks(X, y, weight, 3)
    joint = brute_force_joint(params, X)
    own = joint[np.arange(40), y]
    conditional = own - logsumexp(joint, axis=1)
    features = own - params.log_prior[y]
    assert_allclose(compute_value_gradient(params, data, CRITERIA["joint"])[0], weight @ own)
    assert_allclose(compute_value_gradient(params, data, CRITERIA["conditional"])[0], weight @ conditional)
    value = compute_value_gradient(params, data, CRITERIA["multi-conditional"])[0]
    assert_allclose(1.3 * value, weight @ (conditional + 0.3 * features))


def test_a_sample_of_a_hopeless_component_gives_finite_values():
    packing, params = random_parameters(2, 2, 3, 1, "tied")
    X, y = np.array([[1e8, 0, 0], [0, -1e8, 3.0]]), np.array([0, 1])
    loss = negative_criterion(X, y, np.ones(2), 2, CRITERIA["multi-conditional"], FLAT, packing)
    value, gradient = loss(packing.pack(params))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def _start(X, y, n_components, n_factors, noise, seed=0):
    assign, shape = make_kmeans_partition(n_components, seed), {"n_components": n_components, "n_factors": n_factors}
    classes = [find_class_start(c, X, y, np.ones(len(X)), assign, **shape, seed=seed) for c in range(y.max() + 1)]
    return combine_class_starts(classes, noise, floor=1e-6)


def test_directions_without_variance_are_not_left_to_rounding():
    # One distinct sample: its variance is pure rounding, which differs between a weight and a repetition.
    X = np.random.default_rng(0).normal(size=(1, 10))
    weighted, _ = compute_principal_loadings(X, np.array([7.0]), 2, seed=0)
    repeated, _ = compute_principal_loadings(np.repeat(X, 7, axis=0), np.ones(7), 2, seed=0)
    assert_allclose(weighted, repeated, rtol=1e-12, atol=1e-15)


def expected_gain(objective, params):
    """Return half the squared gradient in standard errors: the possible gain of a step, to second order."""
    problem = ScaledCriterion(objective, params)
    _, gradient = problem(problem.start)
    free = ~problem.lower_bounded | (problem.start > 0) | (gradient < 0)
    return 0.5 * np.square(gradient[free]).sum()


@settings(max_examples=20, deadline=None)
@given(
    n_features=st.sampled_from([2, 5, 40]),
    n_factors=st.integers(0, 2),
    noise=st.sampled_from(NOISE_KINDS),
    precision=st.sampled_from([(0.0, 0.0), (3.0, 0.0), (0.0, 5.0), (2.0, 40.0)]),
    seed=st.integers(0, 100),
)
@example(n_features=2, n_factors=0, noise="component", precision=(0.0, 0.0), seed=98)  # starts below the floor
@example(n_features=40, n_factors=0, noise="class", precision=(0.0, 0.0), seed=67)  # starts at the maximum
def test_em_never_lowers_the_joint_likelihood(n_features, n_factors, noise, precision, seed):
    X, y = labelled_clusters(80, n_features, 2, seed=seed)
    units, _ = measure(X, np.ones(80))
    X = units.standardise(X)
    start = _start(X, y, 3, n_factors, noise, seed)
    data = SampleBlocks(X, y, np.ones(80), 2)
    packing = ParameterVector(2, 3, n_features, n_factors, noise)
    objective = NegativeCriterion(None, data, CRITERIA["joint"], PriorPrecisions(*precision, 1e-3), packing)
    losses = EM().minimize(objective, start, max_iter=15, tol=0.0).losses
    assert (np.diff(losses) <= 1e-9).all()
    # Clusters with 40 features can be so far apart that posteriors are 0 or 1 up to 1e-9, and k-means already ends
    # where expectation-maximisation would. The remaining gain is then lost in rounding. A sum of n terms is accurate to
    # (n - 1) eps times the sum of their magnitudes.
    rounding = (len(X) - 1) * np.finfo(float).eps * abs(losses[0])
    assert losses[-1] < losses[0] or (losses[-1] <= losses[0] + rounding and expected_gain(objective, start) < rounding)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_em_stops_when_less_than_the_tolerance_is_left(accelerate, tol):
    X, y = labelled_clusters(500, 6, 2, n_clusters=3, seed=4, separation=1.0)
    X = measure(X, np.ones(500))[0].standardise(X)
    data = SampleBlocks(X, y, np.ones(500), 2)
    objective = NegativeCriterion(None, data, CRITERIA["joint"], FLAT, ParameterVector(2, 3, 6, 2, "tied"))
    found = EM(accelerate=accelerate).minimize(objective, _start(X, y, 3, 2, "tied"), max_iter=5000, tol=tol)
    rest = EM(accelerate=False).minimize(objective, found.params, max_iter=5000, tol=1e-9)
    assert found.converged
    assert rest.converged
    assert found.losses[-1] - rest.losses[-1] < tol
    assert len(found.losses) < 1000


@pytest.mark.parametrize("solver", [EM(), ScaledLBFGS(), ScaledSGD()])
def test_a_callback_that_stops_shows_nothing(solver):
    objective, start = _problem_of_clusters()
    found = solver.minimize(objective, start, max_iter=100, tol=1e-4, seed=0, on_iteration=lambda *_: True)
    assert found.was_stopped
    assert not found.converged


def test_slow_steps_have_not_converged():
    objective, start = _problem_of_clusters()
    slow, quick = (
        ScaledSGD(step_size=size, batch_size=32).minimize(objective, start, max_iter=200, tol=1e-4, seed=0)
        for size in (1e-6, 0.2)
    )
    least = ScaledLBFGS().minimize(objective, start, max_iter=1000, tol=1e-6, seed=0).losses[-1]
    assert slow.losses.min() - least > 0.1 * (slow.losses[0] - least)
    assert not slow.converged
    assert quick.losses.min() - least < 0.05 * (quick.losses[0] - least)
    assert quick.converged


def _problem_of_clusters():
    X, y = labelled_clusters(300, 4, 2, n_clusters=2, seed=4, separation=1.0)
    units, _ = measure(X, np.ones(len(X)))
    samples = StandardisedSamples(units.standardise(X), y, np.ones(len(X)), units)
    data = SampleBlocks(samples.X, y, np.ones(len(X)), 2)
    objective = NegativeCriterion(samples, data, CRITERIA["joint"], FLAT, ParameterVector(2, 2, 4, 1, "tied"))
    return objective, _start(samples.X, y, 2, 1, "tied")


def test_acceleration_takes_fewer_iterations():
    X, y = labelled_clusters(500, 6, 2, n_clusters=3, seed=4, separation=1.0)
    X = measure(X, np.ones(500))[0].standardise(X)
    data = SampleBlocks(X, y, np.ones(500), 2)
    objective = NegativeCriterion(None, data, CRITERIA["joint"], FLAT, ParameterVector(2, 3, 6, 2, "tied"))
    start = _start(X, y, 3, 2, "tied")
    plain, quick = (EM(accelerate=a).minimize(objective, start, max_iter=5000, tol=1e-7) for a in (False, True))
    assert len(quick.losses) < 0.7 * len(plain.losses)
    assert (np.diff(quick.losses) <= 1e-12).all()


@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_imputed_values_are_conditional_means(noise):
    _, params = random_parameters(2, 2, 4, 2, noise, seed=3)
    params = params.rescale(np.full(4, 100.0), np.ones(4))
    X = with_gaps(np.random.default_rng(0).normal(size=(12, 4)) + 100, 0.4)
    X[0] = np.nan
    expected = X.copy()
    for i, x in enumerate(X):
        seen, gone = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        scores, means = [], []
        for s in range(4):
            sigma, mu = covariance(params, s), params.means[s]
            gain = sigma[np.ix_(gone, seen)] @ np.linalg.inv(sigma[np.ix_(seen, seen)])
            normal = multivariate_normal(mu[seen], sigma[np.ix_(seen, seen)]) if len(seen) else None
            scores.append((params.log_prior[:, None] + params.log_weights).ravel()[s])
            scores[-1] += normal.logpdf(x[seen]) if len(seen) else 0.0
            means.append(mu[gone] + gain @ (x[seen] - mu[seen]))
        expected[i, gone] = np.exp(scores - logsumexp(scores)) @ np.array(means)
    assert_allclose(impute_conditional_means(params, X), expected, rtol=1e-10)


@pytest.mark.parametrize("n_features", [6, 40])
@pytest.mark.parametrize("precision", [(0.0, 0.0), (3.0, 5.0)])
def test_em_ends_where_the_gradient_vanishes(n_features, precision):
    X, y = labelled_clusters(300, n_features, 2, seed=3)
    units, _ = measure(X, np.ones(300))
    X = units.standardise(X)
    data, prior = SampleBlocks(X, y, np.ones(300), 2), PriorPrecisions(*precision, 1e-6)
    params = _start(X, y, 2, 1, "tied")
    for _ in range(400):
        _, params = make_em_step(params, data, prior)
    packing = ParameterVector(2, 2, n_features, 1, "tied")
    _, gradient = NegativeCriterion(None, data, CRITERIA["joint"], prior, packing)(packing.pack(params))
    assert_allclose(gradient, 0, atol=1e-5)


def _one_component_per_class(noise, precision=(0.0, 0.0)):
    X, y = labelled_clusters(300, 40, 2, seed=3)
    X = measure(X, np.ones(300))[0].standardise(X)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    prior, packing = PriorPrecisions(*precision, 1e-3), ParameterVector(2, 1, 40, 3, noise)
    objective = negative_criterion(X, y, weight, 2, CRITERIA["joint"], prior, packing)
    return objective, _start(X, y, 1, 3, noise)


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("precision", [(0.0, 0.0), (3.0, 0.0)])
def test_steps_from_moments_of_classes_gain_more_than_em(noise, precision):
    objective, params = _one_component_per_class(noise, precision)
    following = choose_em_step(params, objective.data, objective.prior)
    values = []
    for _ in range(15):
        _, by_em = make_em_step(params, objective.data, objective.prior)
        value, params = following(params)
        values.append(value)
        assert objective(objective.packing.pack(params))[0] <= objective(objective.packing.pack(by_em))[0] + 1e-9
        expected, _ = make_em_step(params, objective.data, objective.prior)
        assert_allclose(following(params)[0], expected, rtol=1e-12)
    assert (np.diff(values) >= -1e-9).all()


@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_steps_from_moments_of_classes_end_where_the_gradient_vanishes(noise):
    objective, start = _one_component_per_class(noise)
    found = EM().minimize(objective, start, max_iter=2000, tol=1e-13)
    problem = ScaledCriterion(objective, found.params)
    _, gradient = problem(problem.start)
    free = ~problem.lower_bounded | (problem.start > 1e-9) | (gradient < 0)
    assert_allclose(gradient[free], 0, atol=1e-5)


@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_fisher_information_is_that_of_gaussians(noise):
    _, params = random_parameters(2, 2, 3, 2, noise, seed=2)
    share = np.array([0.3, 0.7])
    information = compute_fisher_information(params, share)
    weight = (share[:, None] * np.exp(params.log_weights)).ravel()
    log_noise = np.zeros_like(params.log_noise)
    for s in range(4):
        inverse = np.linalg.inv(covariance(params, s))
        assert_allclose(information.means[s], weight[s] * np.diag(inverse))
        for j in range(3):
            unit = np.eye(3)[j]
            for k in range(2):
                change = np.outer(unit, params.loadings[s, :, k])
                exact = 0.5 * weight[s] * np.trace(np.linalg.matrix_power(inverse @ (change + change.T), 2))
                neglected = weight[s] * (inverse[j] @ params.loadings[s, :, k]) ** 2
                assert_allclose(information.loadings[s, j, k], exact - neglected)
            change = np.exp(params.log_noise[params.noise_group[s], j]) * np.outer(unit, unit)
            exact = 0.5 * weight[s] * np.trace(np.linalg.matrix_power(inverse @ change, 2))
            log_noise[params.noise_group[s], j] += exact
    assert_allclose(information.log_noise, log_noise)


def test_start_with_a_tiny_cluster_borrows_directions():
    X = np.r_[np.zeros((1, 3)) + 50, np.random.default_rng(0).normal(size=(30, 3))]
    params = _start(X, np.zeros(31, dtype=int), 2, 2, "component")
    assert np.isfinite(params.loadings).all()
    assert (np.square(params.loadings).sum(axis=1) > 0).all()


def test_constant_features_are_found_and_units_ignore_gaps():
    X = np.column_stack([np.full(1000, 0.1), np.arange(1000.0), np.full(1000, 1e9)])
    units, constant = measure(X, np.random.default_rng(0).random(1000))
    assert_array_equal(constant, [True, False, True])
    assert_array_equal(units.scale[constant], 1)
    X[::2] = np.nan
    units, _ = measure(X, np.ones(1000))
    assert_allclose(units.mean[1], np.arange(1, 1000, 2).mean())
    assert_allclose(units.scale[1], np.arange(1, 1000, 2).std())
