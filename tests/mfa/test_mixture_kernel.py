"""The passes of mixtures over samples, against plain NumPy."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from sklearn_crf.kernels.mfa.mixtures import class_moments, class_scores, k_means, second_moments, weighted_moments


def plain_scores(samples, linear, inverse_noise, group):
    """Return projections ``(z, l)`` and scores of all components."""
    projected = linear @ samples
    quadratic = inverse_noise @ np.square(samples[:-1])
    return projected, 0.5 * (np.square(projected[:, :-1]).sum(axis=1) - quadratic[group]) + projected[:, -1]


def plain_moments(samples, weight, linear, inverse_noise, group, first, last, joint, features):
    """Compute the documented results of the kernel: value, moments, and squares by group."""
    projected, scores = plain_scores(samples, linear, inverse_noise, group)
    log_own, log_all = logsumexp(scores[first:last], axis=0), logsumexp(scores, axis=0)
    weights = -features * np.exp(scores - log_all)
    weights[first:last] += joint * np.exp(scores[first:last] - log_own)
    weights *= weight
    rows = np.concatenate([projected[:, :-1], np.ones_like(projected[:, -1:])], axis=1) * weights[:, None]
    squares = np.zeros_like(inverse_noise)
    np.add.at(squares, group, weights @ np.square(samples[:-1]).T)
    return weight @ (joint * log_own - features * log_all), rows @ samples.T, squares


def random_problem(n_classes, n_components, n_factors, n_samples, n_groups, spread, seed, n_features=3):
    """Return samples, their weights, and the forms of all components."""
    rng = np.random.default_rng(seed)
    n_all = n_classes * n_components
    n_groups = {"tied": 1, "class": n_classes, "component": n_all}[n_groups]
    linear = rng.normal(size=(n_all, n_factors + 1, n_features + 1))
    linear[:, -1] *= spread
    samples, weight = rng.normal(size=(n_features + 1, n_samples)), rng.random(n_samples)
    samples[-1] = 1
    weight[::5] = 0
    inverse_noise = rng.random((n_groups, n_features))
    group = np.arange(n_all, dtype=np.int64) * n_groups // n_all
    problem = samples, weight, linear, inverse_noise, group
    for array in problem:
        array.flags.writeable = False
    return problem


def blocks_of(samples, weight, label=0, size=50):
    """Return samples of one class in blocks of the given size, in the kernels' format."""
    n_samples = len(weight)
    ptr = np.append(np.arange(0, n_samples, size), n_samples)
    parts = [samples[:, start:stop].ravel() for start, stop in pairwise(ptr)]
    return np.concatenate(parts), weight, ptr, np.full(len(parts), label)


def moments_of(problem, first, last, joint, features, n_threads=1):
    """Compute the value, moments and squares by the kernel."""
    samples, weight, *forms = problem
    moments, squares = np.zeros_like(forms[0]), np.zeros_like(forms[1])
    n_own = last - first
    blocks = blocks_of(samples, weight, first // n_own)
    value = weighted_moments(blocks, *forms, n_own, joint, features, moments, squares, n_threads)
    return value, moments, squares


def assert_kernel_is_plain(problem, first, last, joint, features):
    found = moments_of(problem, first, last, joint, features)
    expected = plain_moments(*problem, first, last, joint, features)
    # The exponential of a large score amplifies its rounding error, so the tolerance grows with the scores.
    size = len(problem[1]) * (1 + np.abs(plain_scores(problem[0], *problem[2:])[1]).max() ** 2)
    for ours, plain in zip(found, expected, strict=True):
        assert_allclose(ours, plain, rtol=1e-13, atol=1e-13 * size)


@settings(max_examples=60, deadline=None)
@given(
    n_classes=st.integers(1, 3),
    n_components=st.integers(1, 4),
    n_factors=st.integers(0, 3),
    n_samples=st.sampled_from([1, 2, 3, 5, 127, 128, 129, 300, 1100]),
    n_groups=st.sampled_from(["tied", "class", "component"]),
    spread=st.sampled_from([1.0, 30.0]),
    features=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 1000),
)
@example(2, 5, 3, 300, "tied", 1.0, 1.0, 0)
def test_weights_are_posteriors(n_classes, n_components, n_factors, n_samples, n_groups, spread, features, seed):
    problem = random_problem(n_classes, n_components, n_factors, n_samples, n_groups, spread, seed)
    own = seed % n_classes * n_components
    if features == 0:  # components of other classes have no effect without ``features``, so callers omit them
        own, n_components = 0, n_classes * n_components
    assert_kernel_is_plain(problem, own, own + n_components, 1.0, features)


@pytest.mark.parametrize("gap", [1e3, -1e3])
def test_classes_far_apart_do_not_underflow(gap):
    samples, weight, linear, *noise = random_problem(2, 3, 1, 140, "tied", 1.0, 0)
    linear = linear.copy()
    linear[:3, -1, -1] += gap
    problem = samples, weight, linear, *noise
    found, expected = moments_of(problem, 0, 3, 1.0, 1.0), plain_moments(*problem, 0, 3, 1.0, 1.0)
    for ours, plain in zip(found, expected, strict=True):
        assert_allclose(ours, plain, rtol=1e-12, atol=1e-9)


def test_an_impossible_component_has_no_weight():
    samples, weight, linear, *noise = random_problem(1, 3, 2, 130, "class", 1.0, 1)
    linear = linear.copy()
    linear[1, -1, -1] = -np.inf
    problem = samples, weight, linear, *noise
    assert_kernel_is_plain_but_for(problem, 1)


def assert_kernel_is_plain_but_for(problem, component):
    """Check that results equal those of the model without a component, which gets zero moments."""
    samples, weight, linear, inverse_noise, group = problem
    value, moments, squares = moments_of(problem, 0, len(linear), 1.0, 0.0)
    rest = np.delete(np.arange(len(linear)), component)
    expected = plain_moments(samples, weight, linear[rest], inverse_noise, group[rest], 0, len(rest), 1.0, 0.0)
    assert_allclose(value, expected[0], rtol=1e-13)
    assert_allclose(moments[rest], expected[1], atol=1e-12)
    assert_allclose(moments[component], 0, atol=1e-12)
    assert_allclose(squares, expected[2], atol=1e-12)


def test_unequal_weights_of_a_sample_add_up():
    # a P(s | c, x) - b P(s | x) sums to a - b over the components.
    problem = random_problem(3, 2, 2, 200, "tied", 5.0, 2)
    _, _, squares = moments_of(problem, 2, 4, 1.0, 0.25)
    assert_allclose(squares[0], 0.75 * np.square(problem[0][:-1]) @ problem[1], rtol=1e-12)


@pytest.mark.parametrize("n_samples", [1, 128, 700])
@pytest.mark.parametrize("n_features", [0, 5])
def test_second_moments_and_scores_of_classes(n_samples, n_features):
    problem = random_problem(2, 3, 2, n_samples, "class", 1.0, 3, n_features)
    samples, weight, *forms = problem
    _, scores = plain_scores(samples, *forms)
    posteriors = np.exp(scores - logsumexp(scores, axis=0)) * weight
    moments = np.zeros((6, n_features + 1, n_features + 1))
    value = second_moments(blocks_of(samples, weight), *forms, 6, moments, 2)
    assert_allclose(value, weight @ logsumexp(scores, axis=0), rtol=1e-12, atol=1e-12)
    assert_allclose(moments, np.einsum("sn,jn,kn->sjk", posteriors, samples, samples), atol=1e-11)
    shift, found = np.arange(n_features, dtype=float), np.empty((n_samples, 2))
    X = np.asfortranarray(samples[:-1].T + shift)
    class_scores(X, None, None, shift, *forms, found, 2)
    expected = logsumexp(scores.reshape(2, 3, -1), axis=1).T
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    rows, more = np.arange(0, n_samples, 2), np.full((n_samples, 2), -1.0)
    wide = np.repeat(X, 2, axis=1)
    class_scores(wide, rows, 2 * np.arange(n_features), shift, *forms, more, 1)
    assert_allclose(more[rows], expected[rows], rtol=1e-12, atol=1e-12)
    assert np.all(more[1::2] == -1)


def test_moments_of_classes():
    samples, weight, *_ = random_problem(1, 1, 1, 230, "tied", 1.0, 4)
    label = np.array([0, 0, 1, 1, 1])
    found = np.zeros((3, 4, 4))
    class_moments((*blocks_of(samples, weight)[:3], label), found, 1)
    for c, own in enumerate((slice(100), slice(100, None))):
        assert_allclose(found[c], samples[:, own] * weight[own] @ samples[:, own].T, rtol=1e-12)
    assert not found[2].any()


@pytest.mark.parametrize("features", [0.0, 0.4])
def test_threads_do_not_matter(features):
    problem = random_problem(2, 3, 2, 7000, "component", 1.0, 5)
    first, last = (0, 6) if features == 0 else (3, 6)
    expected = moments_of(problem, first, last, 1.0, features)
    for n_threads in (2, 3, 16):
        for ours, alone in zip(moments_of(problem, first, last, 1.0, features, n_threads), expected, strict=True):
            np.testing.assert_array_equal(ours, alone)


@pytest.mark.parametrize("n_samples", [10, 511, 1300])
@pytest.mark.parametrize("n_clusters", [1, 4])
def test_k_means_is_that_of_scikit_learn(n_samples, n_clusters):
    rng = np.random.default_rng(n_samples)
    X, weight, centres = rng.normal(size=(n_samples, 3)), rng.random(n_samples), rng.normal(size=(n_clusters, 3))
    expected = KMeans(n_clusters, init=centres, n_init=1).fit(X, sample_weight=weight)
    labels = np.empty(n_samples, dtype=np.int64)
    inertia = k_means(X, weight, centres, labels, 300, 1e-4 * X.var(axis=0).mean())
    assert labels.tolist() == expected.labels_.tolist()
    assert_allclose(centres, expected.cluster_centers_, atol=1e-12)
    assert_allclose(inertia, expected.inertia_)


def test_an_empty_cluster_gets_the_farthest_sample():
    X, weight = np.array([[0.0], [1.0], [2.0], [9.0]]), np.ones(4)
    centres, labels = np.array([[1.0], [100.0]]), np.empty(4, dtype=np.int64)
    assert_allclose(k_means(X, weight, centres, labels, 300, 0.0), 2.0)
    assert labels.tolist() == [0, 0, 0, 1]
    assert_allclose(centres[:, 0], [1.0, 9.0])
