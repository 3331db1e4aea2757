"""Paths over alpha."""

import numpy as np
import pytest
from mfa_problems import labelled_clusters, mixture
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.mfa import alpha_path

pytestmark = pytest.mark.filterwarnings("ignore")
ALPHAS = [0.01, 1.0, 0.1]


@pytest.fixture(scope="module")
def clusters():
    return labelled_clusters(150, 4, 3, seed=1, separation=0.8)


def quick(**kwargs):
    return mixture(**{"n_components": 2, "n_factors": 1, "n_init": 2, "random_state": 0} | kwargs)


def test_the_path_descends_from_the_largest_alpha(clusters):
    path = alpha_path(quick(tol=1e-6, max_iter=2000), *clusters, ALPHAS)
    assert [model.alpha for model in path] == ALPHAS
    first = quick(tol=1e-6, max_iter=2000, alpha=1.0).fit(*clusters)
    assert_array_equal(path[1].means_, first.means_)
    # A model starts at the result for the neighbouring alpha, whose criterion follows from its densities.
    for i, j in ((2, 1), (0, 2)):
        assert_allclose(path[i].loss_curve_[0], criterion(path[j], *clusters, ALPHAS[i]), rtol=1e-6)
        assert path[i].loss_curve_[-1] < path[i].loss_curve_[0]


def criterion(model, X, y, alpha):
    own, conditional = (
        found[np.arange(len(y)), y] for found in (model.joint_log_likelihood(X), model.predict_log_proba(X))
    )
    return -(conditional + alpha * (own - np.log(model.class_prior_[y]))).mean()


def test_the_path_of_one_alpha_is_a_fit(clusters):
    weight = np.random.default_rng(0).random(150)
    (model,) = alpha_path(quick(max_iter=20), *clusters, [0.3], sample_weight=weight)
    assert_array_equal(model.means_, quick(max_iter=20, alpha=0.3).fit(*clusters, weight).means_)


def test_paths_that_do_not_exist(clusters):
    with pytest.raises(ValueError, match="needs objective='multi_conditional'"):
        alpha_path(quick(objective="joint"), *clusters, ALPHAS)
    with pytest.raises(ValueError, match="alphas is empty"):
        alpha_path(quick(), *clusters, [])
    with pytest.raises(InvalidParameterError, match="alpha"):
        alpha_path(quick(), *clusters, [0.1, np.nan])
