"""Loose tolerances: a fit that reports convergence is near the optimum, even if gradients are small long before."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, ContrastiveCRF, DenseCRF, DRFClassifier
from sklearn_crf.learning import LBFGS, SGD, ContrastiveTraining, GradientSteps
from sklearn_crf.optimize import SHARE_LEFT, minimize_lbfgs, minimize_owlqn, minimize_pqn

SHAPES = {"rows": (400,), "chains": (50, 8), "images": (4, 8, 8)}

# Number of features and classes, and noise of the labels.
KINDS = {"easy": (3, 2, 0.3), "noisy": (3, 2, 2.0), "many": (30, 4, 1.0), "separable": (3, 3, 0.0)}


def drawn(layout, kind, *, correlated=False):
    """Return features, and labels that follow a linear rule except for noise."""
    rng = np.random.default_rng(0)
    n_features, n_classes, noise = KINDS[kind]
    X = rng.normal(size=(*SHAPES[layout], n_features))
    if correlated:
        X = X @ (rng.normal(size=(n_features, n_features)) * 0.1 ** np.arange(n_features)[:, np.newaxis])
    scores = X @ rng.normal(size=(n_features, n_classes)) / X.std()
    return X, (scores + noise * rng.normal(size=scores.shape)).argmax(-1)


def last_loss(field, X, y):
    """Return the objective at the end of a fit, and check that the fit converged."""
    field.fit(X, y)
    assert field.converged_
    return field.loss_curve_[-1]


SETS = ContrastiveTraining(generator=None)
FIELDS = {
    "exact": TRWCRF(),
    "weak penalty": TRWCRF(C=100),
    "strong penalty": TRWCRF(C=0.01),
    "relaxation": TRWCRF(learning="relaxation"),
    "pl": DRFClassifier(learning="pl", C=100),
    "drf": DRFClassifier(),
    "contrastive": ContrastiveCRF(C=100, learning=SETS),
    "pieces": TRWCRF(learning="shared_pieces"),
}


@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_converge_at_a_loose_tolerance_are_near_the_optimum(name, layout):
    for kind in KINDS:
        for correlated in (False, True) if kind == "noisy" else (False,):
            X, y = drawn(layout, kind, correlated=correlated)
            field = FIELDS[name]
            best = last_loss(field.set_params(tol=1e-7, max_iter=3000), X, y)
            for tol in (0.1, 0.01, 0.001):
                assert last_loss(field.set_params(tol=tol, max_iter=200), X, y) < (1 + SHARE_LEFT) * best


def test_l1_at_a_loose_tolerance_is_near_the_optimum():
    X, y = drawn("images", "easy")
    field = TRWCRF(solver=LBFGS(l1_ratio=0.5), tol=1e-7, max_iter=3000)
    best = last_loss(field, X, y)
    for tol in (0.1, 0.01):
        assert last_loss(field.set_params(tol=tol), X, y) < (1 + SHARE_LEFT) * best


@pytest.mark.parametrize("learning", ["joint_relaxation", "edge_probabilities"])
def test_unknowns_beside_the_weights_are_trained_as_tightly_as_by_default(learning):
    X, y = (part[:2] for part in drawn("images", "separable"))
    field = TRWCRF(learning=learning, tol=1e-5, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = field.fit(X, y).loss_curve_[-1]
    assert last_loss(field.set_params(tol=0.1, max_iter=1000), X, y) < (1 + SHARE_LEFT) * best


def test_dense_fields_at_a_loose_tolerance_are_near_the_optimum():
    rng = np.random.default_rng(0)
    y = np.kron(rng.integers(0, 3, size=(4, 3, 3)), np.ones((1, 4, 4), dtype=int))
    X = np.concatenate((np.eye(3)[y] + rng.normal(size=(*y.shape, 3)), 0.2 * y[..., np.newaxis] * np.ones(3)), axis=-1)
    losses = [DenseCRF(tol=tol).fit(X, y).loss_curve_[-1] for tol in (1e-6, 0.1)]
    assert losses[1] < (1 + SHARE_LEFT) * losses[0]


@pytest.mark.parametrize("solver", [SGD(step_size=0.01), GradientSteps(step_size=0.01)], ids=["sgd", "steps"])
def test_short_steps_do_not_pass_for_convergence_at_a_loose_tolerance(solver):
    X, y = drawn("chains", "easy")
    field = DRFClassifier(learning="pl", solver=solver, tol=0.5, max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning):
        field.fit(X, y)
    assert not field.converged_


@pytest.mark.parametrize(
    "minimize",
    [minimize_lbfgs, minimize_owlqn, lambda *args, **options: minimize_pqn(*args, project=np.array, **options)],
    ids=["lbfgs", "owlqn", "pqn"],
)
def test_optimizers_go_on_while_the_value_falls(minimize):
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.linspace(-1.5, 0, 20)
    start = rng.normal(size=20) / scales

    def fun(x):
        return 1e-3 + 0.5 * float(scales**2 @ x**2), scales**2 * x

    tol = 2 * float(np.abs(fun(start)[1]).max())
    early = minimize(fun, start, tol=tol, max_iter=500)
    assert early.nit == 0
    assert early.success
    found = minimize(fun, start, tol=tol, most_left=0.01, max_iter=500)
    assert found.success
    assert found.fun < early.fun / 5
    stopped = minimize(fun, start, tol=tol, most_left=0.01, max_iter=2)
    assert not stopped.success
    assert minimize(fun, np.zeros(20), tol=tol, most_left=0.01).nit == 0
