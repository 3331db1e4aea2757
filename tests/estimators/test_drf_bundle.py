"""SPA by the bundle method, as a convex problem at a fixed scale of the node weights, and messages about its end."""

import warnings

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier
from sklearn_crf.learning import (
    ContrastiveDivergenceTraining,
    ContrastiveTraining,
    SaddlePointTraining,
)

WEIGHTS = ("coef_", "intercept_", "edge_coef_")


def flat(field):
    """Return all weights of a field as one array."""
    return np.concatenate([getattr(field, name).ravel() for name in WEIGHTS])


def penalised(field, weights, start, X, y):
    """Compute the objective of the bundle method from the field's own predictions."""
    n_features = field.coef_.size
    field.coef_ = weights[:n_features].reshape(field.coef_.shape)
    field.intercept_ = weights[n_features : n_features + 1]
    field.edge_coef_ = weights[n_features + 1 :].reshape(field.edge_coef_.shape)
    losses = field.energy(X, y) - field.energy(X, field.predict(X))
    return 0.5 * np.sum((weights - start) ** 2) + field.C * losses.sum()


def test_the_bundle_minimises_the_convex_objective():
    X, y = noisy_blobs(3, 5)
    field = DRFClassifier(C=0.05, learning="spa", solver="bundle", inference="map", max_iter=500).fit(X, y)
    start, found, gap = field.coef_path_[0], flat(field), field.duality_gap_
    # The weights keep the scale of the start.
    assert_allclose(start @ (found - start), 0, atol=1e-9 * (start @ start))
    value = penalised(field, found, start, X, y)
    _, _, basis = np.linalg.svd(start[None])

    def along(z):
        return penalised(field, start + basis[1:].T @ z, start, X, y)

    least = minimize(along, basis[1:] @ (found - start), method="Nelder-Mead", options={"maxfev": 400}).fun
    assert value <= least + 2e-3 * abs(least)
    assert value - least <= gap + 1e-9 * abs(value)


def test_it_ends_with_a_proof_below_the_steps():
    X, y = noisy_blobs(8)
    bundle = DRFClassifier(learning="spa", solver="bundle", inference="map", pairwise="ising").fit(X, y)
    assert bundle.converged_
    assert bundle.stop_reason_.startswith("CONVERGENCE")
    assert 0 <= bundle.duality_gap_ <= 2e-3 * bundle.loss_curve_.min() + 1e-3
    steps = DRFClassifier(learning=SaddlePointTraining(), inference="map", pairwise="ising").fit(X, y)
    assert not steps.converged_
    assert np.isnan(steps.duality_gap_)
    assert bundle.score(X, y) >= steps.score(X, y) - 0.01


def test_too_few_planes_are_a_warning_with_the_gap():
    X, y = noisy_blobs(8)
    field = DRFClassifier(learning="spa", solver="bundle", inference="map", max_iter=3)
    with pytest.warns(ConvergenceWarning, match=r"duality gap of .* increase max_iter") as caught:
        field.fit(X, y)
    assert caught[0].filename == __file__
    assert not field.converged_


def test_labels_that_the_nodes_alone_get_right_need_no_plane():
    y = np.zeros((4, 6, 6), dtype=int)
    y[:, 2:4, 2:4] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = DRFClassifier(learning="spa", solver="bundle", inference="map").fit(y[..., np.newaxis].astype(float), y)
    assert field.converged_
    assert field.duality_gap_ == 0


def test_without_a_scale_there_are_steps():
    X, y = noisy_blobs(3, 6)
    field = DRFClassifier(
        learning=SaddlePointTraining(init="zeros"), solver="bundle", inference="map", max_iter=20
    ).fit(X, y)
    assert np.isnan(field.duality_gap_)


# How training ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        DRFClassifier(learning="pl"),
        DRFClassifier(learning="pma", solver="gradient", inference="junction_tree", max_iter=5),
        DRFClassifier(learning=SaddlePointTraining(), inference="map", max_iter=30),
        DRFClassifier(learning=ContrastiveDivergenceTraining(), max_iter=5, random_state=0),
        DRFClassifier(learning=SaddlePointTraining(batch_size=2), inference="map", max_iter=5, random_state=0),
        DRFClassifier(learning=SaddlePointTraining(select="voted"), inference="map", max_iter=30),
        TRWCRF(),
        TRWCRF(learning="dual_relaxation", fit_intercept=False),
        ContrastiveCRF(learning=ContrastiveTraining(generator=None)),
    ],
    ids=str,
)
def test_fits_say_how_they_ended(field):
    X, y = noisy_blobs(4, 6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        field.fit(X, y)
    assert isinstance(field.stop_reason_, str)
    assert field.stop_reason_
    assert isinstance(field.converged_, bool)
    assert not (field.converged_ and caught)
    if field.best_iter_ is not None:
        assert 0 <= field.best_iter_ < field.n_iter_


def test_the_best_iteration_is_the_one_whose_weights_are_kept():
    X, y = noisy_blobs(6)
    field = DRFClassifier(learning=SaddlePointTraining(step_size=0.41), inference="map", max_iter=40).fit(X, y)
    assert_allclose(field.coef_path_[field.best_iter_], flat(field))
    assert field.error_curve_[field.best_iter_] == field.error_curve_.min()
