"""Every solver warns exactly if its training has not converged."""

import warnings

import numpy as np
import pytest
from callback_recorder import Recorder
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf.learning import (
    LBFGS,
    SGD,
    ContrastiveTraining,
    GradientSteps,
    SaddlePointTraining,
)

RNG = np.random.default_rng(0)
Y = np.kron(RNG.integers(2, size=(4, 2, 2)), np.ones((1, 3, 3), dtype=int))
X = Y[..., np.newaxis] + 0.5 * RNG.normal(size=(*Y.shape, 2))
SMALL_STEPS = SGD(step_size=1.0, step_schedule="sqrt", batch_size=1)

# For each case, the estimator and a sufficient number of iterations.
FIELDS = {
    "exact": (TRWCRF(), 200),
    "relaxation": (TRWCRF(learning="relaxation"), 200),
    "joint": (TRWCRF(learning="joint_relaxation", tol=0.01), 200),
    "reparameterization": (TRWCRF(learning="reparameterization", tol=0.01), 200),
    "dual": (TRWCRF(learning="dual_relaxation", fit_intercept=False, tol=0.05), 200),
    "piecewise": (TRWCRF(learning="piecewise"), 200),
    "pseudolikelihood": (TRWCRF(learning="pseudolikelihood"), 200),
    "l1": (TRWCRF(learning="pseudolikelihood", solver=LBFGS(l1_ratio=0.5)), 1000),
    "sgd": (TRWCRF(learning="piecewise", solver=SMALL_STEPS, random_state=0, tol=0.01), 100),
    "pma": (DRFClassifier(), 200),
    "pl by steps": (DRFClassifier(learning="pl", solver=GradientSteps(step_size=1.0), tol=2e-4), 5000),
    "spa by bundle": (DRFClassifier(learning="spa", solver="bundle", inference="map"), 400),
    "sets": (ContrastiveCRF(learning=ContrastiveTraining(generator=None)), 200),
    "rounds": (ContrastiveCRF(random_state=0), 500),
    "sets by sgd": (
        ContrastiveCRF(
            learning=ContrastiveTraining(generator=None), solver=SMALL_STEPS, C=0.1, random_state=0, tol=0.01
        ),
        300,
    ),
    "bundle": (M3NClassifier(solver="bmrm", edge_features="constant"), 1000),
    "one slack": (M3NClassifier(solver="one_slack"), 1000),
    "cutting planes": (M3NClassifier(solver="cutting_plane", tol=0.05, random_state=0), 1000),
    "frank-wolfe": (M3NClassifier(solver="frank_wolfe", tol=0.3, random_state=0), 2000),
}


def caught_in_fit(field, data=(X, Y)):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        field.fit(*data)
    return [str(each.message) for each in caught if issubclass(each.category, ConvergenceWarning)]


@pytest.mark.parametrize("name", FIELDS)
def test_too_few_iterations_are_warned_of(name):
    field = clone(FIELDS[name][0]).set_params(max_iter=2)
    messages = caught_in_fit(field)
    assert not field.converged_
    assert len(messages) == 1


@pytest.mark.parametrize("name", FIELDS)
def test_no_warning_where_training_has_converged(name):
    field, max_iter = FIELDS[name]
    field = clone(field).set_params(max_iter=max_iter)
    messages = caught_in_fit(field)
    assert field.converged_ == (not messages)
    assert field.converged_, messages
    assert field.stop_reason_.startswith("CONVERGENCE")


@pytest.mark.parametrize("name", FIELDS)
def test_a_stop_by_a_callback_is_no_convergence(name):
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    field, max_iter = FIELDS[name]
    recorder = Recorder(1)
    caught_in_fit(field := clone(field).set_params(max_iter=max_iter).set_callbacks(recorder))
    assert len(recorder.fitted) == 1
    assert not field.converged_
    assert field.stop_reason_.startswith("STOP")


@pytest.mark.parametrize("solver", ["bmrm", "one_slack", "cutting_plane", "frank_wolfe", "subgradient"])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_margins_that_converge_by_default_are_within_a_hundredth(solver, C):
    best = M3NClassifier(C=C, solver="one_slack", tol=1e-3).fit(X, Y)
    field = M3NClassifier(C=C, solver=solver, random_state=0)
    assert len(caught_in_fit(field)) <= (not field.converged_)
    if field.converged_:
        assert field.loss_curve_.min() < 1.01 * best.loss_curve_.min()
    assert field.converged_ == field.stop_reason_.startswith("CONVERGENCE")


@pytest.mark.parametrize("learning", ["spa", "mma", "cd"])
@pytest.mark.parametrize("max_iter", [2, 3, 10, 60])
def test_rules_without_a_loss_warn_where_errors_still_fall(learning, max_iter):
    field = DRFClassifier(learning=learning, inference="map", max_iter=max_iter, random_state=0)
    messages = caught_in_fit(field)
    errors = field.error_curve_
    if np.isnan(errors).any():
        # Learning from samples does not count errors.
        assert not messages
        return
    if errors.min() >= min(np.sum(Y == 0), np.sum(Y == 1)):
        assert "one class" in messages[0]
        return
    n_last = max(1, max_iter // 10)
    falls = len(errors) == max_iter and errors[-n_last:].min() < 0.99 * errors[:-n_last].min()
    assert bool(messages) == (falls and not field.converged_)


def test_steps_that_never_beat_one_class_for_all_nodes_are_warned_of():
    y = np.zeros((2, 12, 12), dtype=int)
    y[:, 4:8, 4:8] = 1
    x = y[..., np.newaxis] + np.random.default_rng(0).normal(scale=3.0, size=(*y.shape, 1))
    field = DRFClassifier(learning=SaddlePointTraining(init="zeros", step_size=1e-3), inference="map", max_iter=8)
    messages = caught_in_fit(field, (x, y))
    assert field.error_curve_.min() >= y.sum()
    assert len(messages) == 1
    assert "one class for all nodes" in messages[0]


def test_a_fixed_point_is_convergence():
    separable = np.where(Y[..., np.newaxis] == 1, 5.0, -5.0)
    field = DRFClassifier(learning="spa", inference="map")
    assert not caught_in_fit(field, (separable, Y))
    assert field.error_curve_[-1] == 0
    assert field.converged_


@pytest.mark.parametrize(
    ("schedule", "end"), [("constant", "3 cycles of the errors"), ("adaptive", "no fewer errors in the last 15 steps")]
)
def test_steps_keep_the_weights_with_the_fewest_errors(schedule, end):
    rng = np.random.default_rng(1)
    noisy = Y[..., np.newaxis] + rng.normal(size=(*Y.shape, 1))
    field = DRFClassifier(learning=SaddlePointTraining(step_schedule=schedule), inference="map", max_iter=400)
    assert not caught_in_fit(field, (noisy, Y))
    assert field.stop_reason_ == f"STOP: {end}"
    assert not field.converged_
    assert field.best_iter_ == np.flatnonzero(field.error_curve_ == field.error_curve_.min())[-1]
    assert np.sum(field.predict(noisy) != Y) == field.error_curve_.min()
    assert field.error_curve_[-1] > field.error_curve_.min()
