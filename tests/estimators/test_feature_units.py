"""Estimators with features in any units: the same field, or a warning that says what to change."""

import warnings

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier, Shards
from sklearn_crf.learning import LBFGS, ContrastiveTraining, GradientSteps, PseudolikelihoodTraining
from sklearn_crf.potentials import PairwiseTables

RNG = np.random.default_rng(0)
Y = np.kron(RNG.integers(2, size=(6, 3, 3)), np.ones((1, 3, 3), dtype=int))
X = Y[..., np.newaxis] + 0.6 * RNG.normal(size=(*Y.shape, 2))

FIELDS = {
    "exact": TRWCRF(C=0.1, learning="exact", tol=1e-7),
    "pseudolikelihood": TRWCRF(C=0.1, learning="pseudolikelihood", tol=1e-7),
    "l1": TRWCRF(C=0.1, learning="pseudolikelihood", solver=LBFGS(l1_ratio=0.5), tol=1e-7, max_iter=1000),
    "pma": DRFClassifier(C=0.1, tol=1e-7),
    "pl": DRFClassifier(C=0.1, learning="pl", tol=1e-7),
    "contrastive": ContrastiveCRF(C=0.1, learning=ContrastiveTraining(generator=None), tol=1e-7),
    "margin": M3NClassifier(C=0.1),
}


@pytest.mark.parametrize("shift", [100.0, -1e6])
@pytest.mark.parametrize("name", FIELDS)
def test_shifted_features_give_the_same_field(name, shift):
    reference, field = (clone(FIELDS[name]) for _ in range(2))
    reference.fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.fit(X + shift, Y)
    if name != "margin":
        # The margin penalises the intercept of centred features, so the objectives differ a little.
        np.testing.assert_allclose(field.loss_curve_[-1], reference.loss_curve_[-1], rtol=1e-4)
        np.testing.assert_allclose(field.coef_, reference.coef_, atol=2e-3)
        np.testing.assert_allclose(
            np.ravel(field.intercept_ + shift * field.coef_.sum(axis=1)), np.ravel(reference.intercept_), atol=2e-3
        )
    assert np.mean(field.predict(X + shift) == reference.predict(X)) > 0.99


@pytest.mark.parametrize("unit", [1e4, 1e8])
@pytest.mark.parametrize("name", ["pseudolikelihood", "l1", "pma", "pl", "contrastive"])
def test_large_units_reach_the_optimum(name, unit):
    field = clone(FIELDS[name]).set_params(edge_features="constant", pairwise=PairwiseTables(C=0.1))
    reference = clone(field)
    if name == "l1":
        for one in (field, reference):
            one.set_params(solver=LBFGS(l1_ratio=0.999999))
    # The same objective in the units of X: the penalty applies to squared or absolute weights.
    reference.set_params(C=field.C * (unit if name == "l1" else unit**2)).fit(X, Y)
    field.fit(unit * X, Y)
    np.testing.assert_allclose(unit * field.coef_, reference.coef_, rtol=0.02)
    assert np.mean(field.predict(unit * X) == reference.predict(X)) > 0.99


@pytest.mark.parametrize(
    "learning", [{"learning": "spa"}, {"learning": "cd"}, {"learning": "pl", "solver": GradientSteps()}]
)
def test_steps_do_not_depend_on_a_shift(learning):
    field = DRFClassifier(**learning, inference="map", random_state=0, max_iter=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = field.fit(X, Y).score(X, Y)
        assert field.fit(X + 1e4, Y).score(X + 1e4, Y) > expected - 0.03


def test_minute_features_are_warned_of():
    field = TRWCRF(learning="exact")
    with pytest.warns(UserWarning, match=r"Features \[0, 1\] range over less than 0.1, .*increase C") as caught:
        field.fit(1e-6 * X, Y)
    with pytest.warns(UserWarning, match="range over less than 0.1"):
        field.fit(3e-3 * X, Y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.set_params(C=1e12).fit(1e-6 * X, Y)
    assert field.score(1e-6 * X, Y) > 0.9


def test_paths_and_starts_are_in_units_of_X():
    field = DRFClassifier(learning=PseudolikelihoodTraining(edge_scale=1)).fit(X + 1e3, Y)
    weights = np.concatenate([np.ravel(part) for part in (field.coef_, field.intercept_, field.edge_coef_)])
    np.testing.assert_allclose(field.coef_path_[-1], weights, rtol=1e-12)
    again = DRFClassifier(learning=PseudolikelihoodTraining(init=weights, edge_scale=1), max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again.fit(X + 1e3, Y)
    np.testing.assert_allclose(again.loss_curve_[0], field.loss_curve_[-1], rtol=1e-9)
    norms = np.linalg.norm(field.gradient_path_, axis=1)
    np.testing.assert_allclose(field.gradient_norm_curve_, norms, rtol=1e-12)
    # The gradient of the penalised risk per node with respect to weights for the original X vanishes in the direction
    # of a shift.
    g_coef, g_intercept = again.gradient_path_[0][:2], again.gradient_path_[0][2]
    assert np.all(np.abs(g_coef - 1e3 * g_intercept) < 0.01)


def test_warm_start_goes_on_where_it_was():
    field = TRWCRF(learning=PseudolikelihoodTraining(edge_scale=1), warm_start=True).fit(X + 1e4, Y)
    assert field.fit(X + 1e4, Y).n_iter_ <= 2


def test_all_weights_of_the_path_are_in_units_of_X():
    field = DRFClassifier(learning="pl").fit(X + 1e4, Y)
    for weights in field.coef_path_:
        # Scores of pixels are of order one.
        assert np.abs((X + 1e4) @ weights[:2] + weights[2]).max() < 50


def test_shards_choose_the_same_units():
    parts = [(X[:2] + 1e4, Y[:2]), (X[2:] + 1e4, Y[2:])]
    whole = TRWCRF(learning="pseudolikelihood", tol=1e-7).fit(X + 1e4, Y)
    field = TRWCRF(learning="pseudolikelihood", tol=1e-7).fit(Shards.from_arrays(parts))
    np.testing.assert_allclose(field.coef_, whole.coef_, atol=1e-4)
    np.testing.assert_allclose(field.loss_curve_[-1], whole.loss_curve_[-1], rtol=1e-8)


def test_partial_fit_says_what_to_do():
    with pytest.warns(ConvergenceWarning, match=r"far from 0.*StandardScaler.*or use fit") as caught:
        TRWCRF(learning="pseudolikelihood").partial_fit(X + 1e4, Y, classes=[0, 1])
    assert caught[0].filename == __file__


def test_correlated_scores_of_many_classes_converge_by_default():
    # Log-probabilities of eight classes are nearly redundant: without their curvature L-BFGS needs four times the
    # iterations.
    rng = np.random.default_rng(0)
    n_classes = 8
    y = np.kron(rng.integers(n_classes, size=(6, 5, 5)), np.ones((3, 3), dtype=int))
    noisy = 1.5 * np.eye(n_classes)[y] + rng.normal(size=(*y.shape, n_classes))
    X = log_softmax(3 * noisy, axis=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = TRWCRF().fit(X, y)
    assert field.converged_
    assert field.n_iter_ < 80
    assert field.score(X, y) > np.mean(X.argmax(axis=-1) == y)


def half_noisy(layout):
    rng = np.random.default_rng(0)
    shape = {"rows": (300,), "chains": (40, 8), "images": (8, 12, 12)}[layout]
    X = rng.normal(size=(*shape, 3))
    return X, (X[..., 0] + 0.3 * rng.normal(size=shape) > 0).astype(int)


UNITS = {
    "uint16": lambda X: ((X + 5) * 6500).clip(0, 65535).astype(np.uint16),
    "int64": lambda X: np.round(1e9 * X).astype(np.int64),
    "1e3": lambda X: 1e3 * X,
    "1e6": lambda X: 1e6 * X,
    "1e12": lambda X: 1e12 * X + 1e12,
    "float32": lambda X: (1e6 * X).astype(np.float32),
    "one column": lambda X: X * [1e6, 1.0, 1.0],
    "a column of noise": lambda X: X * [1.0, 1.0, 1e6],
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("layout", ["rows", "chains", "images"])
def test_margins_do_not_depend_on_large_units(layout, unit):
    X, y = half_noisy(layout)
    expected = M3NClassifier().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = M3NClassifier().fit(UNITS[unit](X), y)
    assert found.converged_
    assert found.score(UNITS[unit](X), y) > expected.score(X, y) - 0.02
    assert np.mean(found.predict(UNITS[unit](X)) == expected.predict(X)) > 0.96


@pytest.mark.parametrize("layout", ["rows", "chains", "images"])
def test_margins_are_the_same_in_all_large_units_and_offsets(layout):
    X, y = half_noisy(layout)
    reference = M3NClassifier().fit(1e7 * X, y)
    for unit, offset in ((1e7, 3e7), (1e9, -5e9), (1e15, 0)):
        found = M3NClassifier().fit(unit * X + offset, y)
        np.testing.assert_allclose(unit * found.coef_, 1e7 * reference.coef_, rtol=1e-3, atol=1e-3)
        assert np.mean(found.predict(unit * X + offset) == reference.predict(1e7 * X)) > 0.999


@pytest.mark.parametrize("C", [1e-12, 1e-6, 1e3, 1e6, 1e9, 1e12])
def test_margins_have_a_proven_end_for_any_C(C):
    X, y = half_noisy("chains")
    X_apart = X + 1.5 * np.sign(2 * y - 1)[..., np.newaxis] * [1.0, 0.0, 0.0]
    for data in (X, X_apart):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)
            field = M3NClassifier(C=C).fit(data, y)
        assert field.converged_
        assert field.duality_gap_ <= 0.0101 * field.loss_curve_.min()
        if C > 1:
            assert field.score(data, y) > (0.98 if data is X_apart else 0.9)


@pytest.mark.parametrize("solver", ["frank_wolfe", "cutting_plane", "subgradient"])
def test_solvers_by_blocks_say_what_large_units_leave(solver):
    X, y = half_noisy("chains")
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        field = M3NClassifier(solver=solver, max_iter=60, random_state=0).fit(1e6 * X, y)
    assert not field.converged_
    assert field.score(1e6 * X, y) > 0.85


@pytest.mark.parametrize("make", [TRWCRF, DRFClassifier, ContrastiveCRF, M3NClassifier])
def test_values_that_have_no_squares_are_named(make):
    X, y = half_noisy("chains")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        make().fit(1e140 * X, y)
        with pytest.raises(
            ValueError, match=r"Feature 2 has values up to 1e\+200, but training supports at most 1e\+150"
        ):
            make().fit(np.where(np.arange(3) == 2, 1e200, X), y)


@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_frank_wolfe_labels_images_alike_in_all_large_units(shift):
    rng = np.random.default_rng(0)
    y = np.kron(rng.integers(2, size=(12, 3, 3)), np.ones((1, 4, 4), dtype=int))
    x = shift + 0.8 * y[..., np.newaxis] + rng.normal(size=(*y.shape, 3))
    field = M3NClassifier(solver="frank_wolfe", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_ones, *in_large = (clone(field).fit(unit * x[:6], y[:6]) for unit in (1.0, 1e3, 1e6, 1e9))
    assert all(each.stop_reason_.startswith("STOP: duality gap") for each in in_large)
    found = [each.predict(unit * x) for each, unit in zip(in_large, (1e3, 1e6, 1e9), strict=True)]
    assert np.mean(found[0] == found[1]) > 0.999
    assert np.mean(found[0] == found[2]) > 0.999
    # The penalty depends on the unit, so scores on the training images differ; new images must be labelled as well.
    assert in_large[1].score(1e6 * x[6:], y[6:]) > in_ones.score(x[6:], y[6:]) - 0.01


@pytest.mark.parametrize("name", ["exact", "pseudolikelihood", "pma", "pl"])
def test_differences_on_edges_mean_the_same_in_any_unit(name):
    field, reference = clone(FIELDS[name]), clone(FIELDS[name])
    options = {"edge_features": "difference", "pairwise": PairwiseTables("ising", C=field.C)}
    reference.set_params(**options).fit(X, Y)
    # The penalty of nodes applies to weights for the original X: nodes get another C, and edges keep the former C.
    field.set_params(C=field.C / 255**2, **options).fit(255 * X, Y)
    np.testing.assert_allclose(255 * field.edge_coef_[:, 1:], reference.edge_coef_[:, 1:], atol=2e-3)
    np.testing.assert_allclose(field.edge_coef_[:, 0], reference.edge_coef_[:, 0], atol=2e-3)
    np.testing.assert_allclose(255 * field.coef_, reference.coef_, atol=2e-3)


def test_the_objective_has_differences_over_their_root_mean_squares():
    field = clone(FIELDS["exact"]).set_params(edge_features="difference", pairwise="ising").fit(X, Y)
    steps = [np.diff(X, axis=axis).reshape(-1, 2) for axis in (1, 2)]
    squares = np.append(1.0, np.mean(np.concatenate(steps) ** 2, axis=0))
    penalty = np.sum(field.coef_**2) + np.sum(squares[:, np.newaxis] * field.edge_coef_[0] ** 2)
    loss = -field.log_likelihood(X, Y).values.sum()
    np.testing.assert_allclose(field.loss_curve_[-1], penalty / 2 + field.C * loss, rtol=1e-6)
