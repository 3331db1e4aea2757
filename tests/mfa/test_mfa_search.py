"""Paths over alpha, and the choice of alpha, components and factors by cross-validation."""

import numpy as np
import pytest
from callback_recorder import Recorder
from mfa_problems import labelled_clusters
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.mfa import MultiConditionalMFA, MultiConditionalMFACV, ScaledLBFGS, alpha_path

pytestmark = pytest.mark.filterwarnings("ignore")
ALPHAS = [0.01, 1.0, 0.1]


@pytest.fixture(scope="module")
def clusters():
    return labelled_clusters(150, 4, 3, seed=1, separation=0.8)


def quick(**kwargs):
    return MultiConditionalMFA(**{"n_components": 2, "n_factors": 1, "n_init": 2, "random_state": 0} | kwargs)


def test_the_path_descends_from_the_largest_alpha(clusters):
    path = alpha_path(quick(tol=1e-6, max_iter=2000), *clusters, ALPHAS)
    assert [model.alpha for model in path] == ALPHAS
    first = quick(tol=1e-6, max_iter=2000, alpha=1.0).fit(*clusters)
    assert_array_equal(path[1].means_, first.means_)
    # A model starts where its neighbour ended, whose criterion can be worked out from its densities.
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


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_scores_are_those_of_paths_on_folds(clusters, scoring):
    X, y = clusters
    search = MultiConditionalMFACV(
        ALPHAS, [1, 2], 1, cv=3, scoring=scoring, n_init=1, max_iter=15, random_state=0, n_jobs=2
    )
    search.fit(X, y)
    assert search.scores_.shape == (2, 1, 3, 3)
    for f, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        path = alpha_path(quick(n_init=1, max_iter=15), X[train], y[train], ALPHAS)
        for a, model in enumerate(path):
            expected = model.score(X[test], y[test])
            if scoring:
                expected = model.predict_log_proba(X[test])[np.arange(len(test)), y[test]].mean()
            assert_allclose(search.scores_[1, 0, a, f], expected, rtol=1e-6)
    means = search.scores_.mean(axis=3)
    k, _, a = np.unravel_index(means.argmax(), means.shape)
    assert (search.n_components_, search.n_factors_, search.alpha_) == (k + 1, 1, ALPHAS[a])
    assert search.means_.shape == (3, k + 1, 4)
    again = clone(search).set_params(n_jobs=1).fit(X, y)
    assert_array_equal(again.scores_, search.scores_)
    assert_array_equal(again.predict_proba(X), search.predict_proba(X))


def test_the_chosen_model_predicts(clusters):
    X, y = clusters
    names = np.array(["a", "b", "c"])[y]
    search = MultiConditionalMFACV([0.1], 1, 1, cv=2, n_init=1, max_iter=10, random_state=0).fit(X, names)
    assert search.score(X, names) > 0.5
    assert search.transform(X).shape == (150, 1)
    assert np.isfinite(search.impute(X)).all()
    assert not hasattr(search, "bic")
    ours = [base for base in type(search).__mro__ if base.__module__.startswith("sklearn_crf")]
    assert len(ours) <= 3
    assert len(search.get_params(deep=False)) <= 18


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("alphas", ["small", 1.0, np.nan, [], [-1.0], [np.inf], ["a"], [[0.1]]]),
        ("n_components", [0, 1.5, "two", [0], [1.5], [], np.nan, None]),
        ("n_factors", [-1, "two", [-1], [0.5], None]),
        ("cv", ["five", 1.5]),
        ("scoring", ["best", 3]),
        ("init", [np.zeros((3, 2, 4)), "best"]),
        ("solver", ["em", "newton", None]),
        ("n_jobs", [0, "2"]),
    ],
)
def test_bad_values_are_named(clusters, name, values):
    for value in values:
        with pytest.raises(InvalidParameterError, match=name):
            MultiConditionalMFACV([0.1], max_iter=2, n_init=1).set_params(**{name: value}).fit(*clusters)


def test_options_of_a_name_ask_for_an_object():
    with pytest.raises(ValueError, match="pass an object first"):
        MultiConditionalMFACV().set_params(solver__step_size=0.1)
    search = MultiConditionalMFACV(solver=ScaledLBFGS()).set_params(solver__history_size=5)
    assert search.solver.history_size == 5


def test_callbacks_hear_of_every_fold_and_of_the_last_fit(clusters):
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    recorder = Recorder()
    search = MultiConditionalMFACV([0.1, 1.0], [1, 2], 1, cv=3, n_init=1, max_iter=5, random_state=0, n_jobs=2)
    search.set_callbacks(recorder).fit(*clusters)
    assert len(recorder.fitted) == 2 * 3 + 1
    assert recorder.fitted[:-1] == [None] * 6
    assert_array_equal(recorder.fitted[-1].predict_proba(clusters[0]), search.predict_proba(clusters[0]))
