"""The kernel that weights projections by posteriors, against plain NumPy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from sklearn_crf.kernels.mfa.mixtures import weigh_components


def plain_weigh_components(projected, quadratic, group, weight, first, last, joint, features):
    """What the kernel says that it does: value, weighted projections, sums by group."""
    scores = 0.5 * (np.square(projected[:, :-1]).sum(axis=1) - quadratic[group]) + projected[:, -1]
    log_own, log_all = logsumexp(scores[first:last], axis=0), logsumexp(scores, axis=0)
    weights = -features * np.exp(scores - log_all)
    weights[first:last] += joint * np.exp(scores[first:last] - log_own)
    weights *= weight
    sums = np.zeros_like(quadratic)
    np.add.at(sums, group, weights)
    rows = np.concatenate([projected[:, :-1], np.ones_like(projected[:, -1:])], axis=1) * weights[:, None]
    return weight @ (joint * log_own - features * log_all), rows, sums


def random_problem(n_classes, n_components, n_factors, n_samples, n_groups, spread, seed):
    rng = np.random.default_rng(seed)
    n_all = n_classes * n_components
    n_groups = {"tied": 1, "class": n_classes, "component": n_all}[n_groups]
    projected = rng.normal(size=(n_all, n_factors + 1, n_samples))
    projected[:, -1] *= spread
    quadratic, weight = rng.random((n_groups, n_samples)), rng.random(n_samples)
    weight[::5] = 0
    group = np.arange(n_all, dtype=np.int64) * n_groups // n_all
    for array in (quadratic, weight, group):
        array.flags.writeable = False
    return projected, quadratic, group, weight


def assert_kernel_is_plain(problem, first, last, joint, features):
    expected, rows, sums = plain_weigh_components(*problem, first, last, joint, features)
    projected, quadratic, group, weight = problem
    projected, out = projected.copy(), np.zeros_like(quadratic)
    value = weigh_components(projected, quadratic, group, weight, first, last, joint, features, out)
    # Scores of 1e4 have lost that much of their last digits before they are exponentiated.
    size = 1 + np.abs(problem[0]).max() ** 2
    assert_allclose(value, expected, rtol=1e-13, atol=1e-13 * size)
    assert_allclose(projected, rows, atol=1e-14 * size)
    assert_allclose(out, sums, atol=1e-14 * size)


@settings(max_examples=60, deadline=None)
@given(
    n_classes=st.integers(1, 3),
    n_components=st.integers(1, 4),
    n_factors=st.integers(0, 3),
    n_samples=st.sampled_from([1, 2, 3, 5, 127, 128, 129, 300]),
    n_groups=st.sampled_from(["tied", "class", "component"]),
    spread=st.sampled_from([1.0, 30.0]),
    features=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 1000),
)
@example(2, 5, 3, 300, "tied", 1.0, 1.0, 0)
def test_weights_are_posteriors(n_classes, n_components, n_factors, n_samples, n_groups, spread, features, seed):
    problem = random_problem(n_classes, n_components, n_factors, n_samples, n_groups, spread, seed)
    own = seed % n_classes * n_components
    if features == 0:  # then components of other classes have no part in it, and callers leave them out
        own, n_components = 0, n_classes * n_components
    assert_kernel_is_plain(problem, own, own + n_components, 1.0, features)


@pytest.mark.parametrize("gap", [1e3, -1e3])
def test_classes_far_apart_do_not_underflow(gap):
    problem = random_problem(2, 3, 1, 140, "tied", 1.0, 0)
    problem[0][:3, -1] += gap
    value, rows, _ = plain_weigh_components(*problem, 0, 3, 1.0, 1.0)
    projected, out = problem[0].copy(), np.zeros((1, 140))
    found = weigh_components(projected, *problem[1:], 0, 3, 1.0, 1.0, out)
    assert_allclose(found, value, rtol=1e-12, atol=1e-9)
    assert_allclose(projected, rows, atol=1e-12)
    assert_allclose(out, 0, atol=1e-14)


def test_an_impossible_component_has_no_weight():
    projected, quadratic, group, weight = random_problem(1, 3, 2, 130, "class", 1.0, 1)
    projected[1, -1] = -np.inf
    expected, rows, _ = plain_weigh_components(projected, quadratic, group, weight, 0, 3, 1.0, 0.0)
    found = weigh_components(projected, quadratic, group, weight, 0, 3, 1.0, 0.0, np.zeros_like(quadratic))
    assert_allclose(found, expected, rtol=1e-13)
    assert_allclose(projected, rows, atol=1e-14)


def test_unequal_weights_of_a_sample_add_up():
    # a P(s | c, x) - b P(s | x) sums to a - b over the components.
    projected, quadratic, group, weight = random_problem(3, 2, 2, 200, "tied", 5.0, 2)
    sums = np.zeros_like(quadratic)
    weigh_components(projected, quadratic, group, weight, 2, 4, 1.0, 0.25, sums)
    assert_allclose(sums[0], 0.75 * weight, rtol=1e-12)
