"""Fields on features with outliers: a converged fit is near the optimum, for any solver and values."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Shards
from sklearn_crf.encoding import encode_X, make_batches
from sklearn_crf.learning import (
    LBFGS,
    SGD,
    ContrastiveTraining,
    GradientSteps,
)
from sklearn_crf.potentials import FeatureBulk

SHAPES = {"rows": (400,), "chains": (50, 8), "images": (6, 8, 8)}


def noisy(layout, seed=0):
    """Return features, and labels that the first feature determines except for noise."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[layout]
    X = rng.normal(size=(*shape, 3))
    return X, (X[..., 0] + 0.3 * rng.normal(size=shape) > 0).astype(int)


def with_outliers(X, y, size, side, n_outliers=1):
    """Return X with outliers of the first feature at nodes of label 1, on the side of this label or the other."""
    X = X.copy()
    rows = X.reshape(-1, X.shape[-1])
    rows[np.flatnonzero(y.ravel() == 1)[:n_outliers], 0] = size if side == "right" else -size
    return X


def fitted(field, X, y):
    """Return the fitted field, and whether its fit warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        field.fit(X, y)
    assert not any(issubclass(each.category, RuntimeWarning) for each in caught)
    return field, any(issubclass(each.category, ConvergenceWarning) for each in caught)


def least_loss(field, X, y, side):
    """Return the least objective.

    Outliers of 30 on the right side stand for larger outliers, which do not change the objective further.
    """
    reference = field.set_params(tol=1e-6, max_iter=2000)
    found = fitted(reference, with_outliers(X, y, 30.0, side) if side == "right" else X, y)[0]
    return found.loss_curve_[-1]


FIELDS = {
    "exact": lambda: TRWCRF(),
    "relaxation": lambda: TRWCRF(learning="relaxation"),
    "l1": lambda: TRWCRF(solver=LBFGS(l1_ratio=0.5)),
    "pseudolikelihood": lambda: TRWCRF(learning="pseudolikelihood"),
    "drf": lambda: DRFClassifier(),
    "pl": lambda: DRFClassifier(learning="pl"),
    "contrastive": lambda: ContrastiveCRF(learning=ContrastiveTraining(generator=None)),
}


@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("name", FIELDS)
def test_converged_fields_are_near_the_optimum(name, layout):
    X, y = noisy(layout)
    best = least_loss(FIELDS[name](), X, y, "right")
    n_converged = 0
    for size in (1e3, 1e6, 1e9, 1e12):
        field, has_warned = fitted(FIELDS[name](), with_outliers(X, y, size, "right"), y)
        assert field.converged_ or has_warned
        assert field.converged_ == field.stop_reason_.startswith("CONVERGENCE")
        if field.converged_:
            n_converged += 1
            assert field.loss_curve_[-1] < 1.01 * best
    # On graphs with cycles scores of 1e12 have too few digits, and OWL-QN takes more than 200 iterations.
    assert n_converged >= (1 if layout == "images" else 4)


def test_edge_probabilities_see_through_outliers():
    X, y = (part[:16] for part in noisy("chains"))
    losses = []
    for size in (30.0, 1e6, 1e9):
        field, has_warned = fitted(TRWCRF(learning="edge_probabilities"), with_outliers(X, y, size, "right"), y)
        assert field.converged_ != has_warned
        if field.converged_:
            losses.append(field.loss_curve_[-1])
    assert len(losses) >= 2
    np.testing.assert_allclose(losses, losses[0], rtol=0.01)


def objective(field, X, y):
    """Compute the objective of LogisticRegression(C=1)."""
    scores = np.ravel(X @ field.coef_.T + field.intercept_)
    return np.logaddexp(0, -(2 * y - 1) * scores).sum() + 0.5 * (field.coef_**2).sum()


@pytest.mark.parametrize("make", [TRWCRF, DRFClassifier])
@pytest.mark.parametrize("n_outliers", [1, 10, 60])
@pytest.mark.parametrize("side", ["right", "wrong"])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e12])
def test_rows_reach_the_optimum_of_logistic_regression(size, side, n_outliers, make):
    X, y = noisy("rows")
    X = with_outliers(X, y, size, side, n_outliers)
    field, has_warned = fitted(make(), X, y)
    assert field.converged_
    assert not has_warned
    # Clipping keeps scikit-learn's solver stable. It has no effect on correct labels, whose scores are far above 40.
    reference = LogisticRegression(tol=1e-10, max_iter=10000).fit(X.clip(-100, 100), y)
    if side == "right":
        assert objective(field, X, y) < 1.001 * objective(reference, X, y)
        Xt, yt = noisy("rows", seed=1)
        assert field.score(Xt, yt) > reference.score(Xt, yt) - 0.01
        return
    # No weight of the feature is better than a weight near zero.
    without = LogisticRegression(tol=1e-10, max_iter=10000).fit(X[:, 1:], y)
    scores = np.ravel(X[:, 1:] @ without.coef_.T + without.intercept_)
    least = np.logaddexp(0, -(2 * y - 1) * scores).sum() + 0.5 * (without.coef_**2).sum()
    assert objective(field, X, y) < 1.001 * least


def test_a_column_of_outlying_values_is_a_unit():
    X, y = noisy("rows")
    expected = TRWCRF().fit(X, y)
    for unit in (1e3, 1e6, 1e12):
        field, has_warned = fitted(TRWCRF(), X * [1.0, unit, 1.0], y)
        assert field.converged_
        assert not has_warned
        assert np.mean(field.predict(X * [1.0, unit, 1.0]) == expected.predict(X)) > 0.99


def test_an_offset_behind_outliers_is_centred():
    X, y = noisy("rows")
    best = TRWCRF().fit(X, y)
    field, has_warned = fitted(TRWCRF(), with_outliers(X + 1e5, y, 1e9, "right"), y)
    assert field.converged_
    assert not has_warned
    assert np.mean(field.predict(X + 1e5) == best.predict(X)) > 0.98


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_outliers_are_never_a_false_claim(seed):
    # All features of some rows are outliers, and their labels are wrong, so the weights of the features compensate each
    # other.
    rng = np.random.default_rng(seed)
    X, y = noisy("rows", seed)
    for size in (1e3, 1e6, 1e9):
        for n_outliers in (1, 10):
            Z = X.copy()
            Z[np.flatnonzero(y == 0)[:n_outliers]] = size * np.abs(rng.normal(size=(n_outliers, 3)))
            field, has_warned = fitted(TRWCRF(), Z, y)
            assert field.converged_ != has_warned
            if field.converged_:
                tight = [fitted(TRWCRF(tol=tol, max_iter=5000), Z, y)[0] for tol in (1e-6, 1e-8)]
                assert objective(field, Z, y) < 1.01 * min(objective(each, Z, y) for each in tight)


@pytest.mark.parametrize(
    "field",
    [
        TRWCRF(solver="sgd", random_state=0, max_iter=40),
        DRFClassifier(learning="pma", solver=GradientSteps(step_size=1.0), tol=2e-3, max_iter=1000),
        DRFClassifier(learning="pl", solver=GradientSteps(step_size=1.0), tol=2e-3, max_iter=1000),
    ],
    ids=["sgd", "pma", "pl"],
)
def test_steps_do_not_claim_what_they_do_not_see(field):
    X, y = noisy("chains")
    field, has_warned = fitted(field, with_outliers(X, y, 1e6, "right"), y)
    assert has_warned
    assert not field.converged_
    assert not field.stop_reason_.startswith("CONVERGENCE")


SLOW_STEPS = [(0.1, 5), (1e-3, 30), (0.1, 30), (1.0, 30)]


@pytest.mark.parametrize("layout", ["chains", "images"])
@pytest.mark.parametrize("unit", [0.05, 1.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda **options: TRWCRF(learning="pseudolikelihood", **options),
        lambda **options: ContrastiveCRF(learning=ContrastiveTraining(generator=None), **options),
        lambda solver, **options: DRFClassifier(learning="pl", solver=solver, **options),
    ],
    ids=["trw", "contrastive", "drf"],
)
def test_stochastic_steps_claim_to_converge_only_near_the_optimum(make, layout, unit):
    X, y = noisy(layout)
    X = unit * X[:24]
    y = y[:24]
    best = fitted(make(solver=LBFGS(), tol=1e-6, max_iter=2000), X, y)[0].loss_curve_[-1]
    for step_size, max_iter in SLOW_STEPS:
        solver = SGD(step_size=step_size, step_schedule="sqrt", batch_size=1)
        field, has_warned = fitted(make(solver=solver, max_iter=max_iter, random_state=0), X, y)
        assert field.converged_ != has_warned
        assert field.converged_ == field.stop_reason_.startswith("CONVERGENCE")
        if field.converged_:
            assert field.loss_curve_[-1] < 1.01 * best


def test_slow_steps_and_outliers_are_told_apart():
    X, y = noisy("chains")
    slow = DRFClassifier(learning="pl", solver=SGD(step_size=1e-4), random_state=0)
    with pytest.warns(ConvergenceWarning, match="increase max_iter or step_size"):
        slow.fit(X, y)
    assert slow.stop_reason_ == "STOP: steps are too short, but the objective can still decrease"
    X, y = noisy("rows")
    steps = DRFClassifier(learning="pl", solver=GradientSteps(step_size=1.0), tol=2e-3, max_iter=1000)
    with pytest.warns(ConvergenceWarning, match="outlying values"):
        steps.fit(with_outliers(X, y, 1e6, "right"), y)


def test_starts_without_edges_see_through_outliers():
    X, y = noisy("images")
    expected = DRFClassifier(learning="spa", solver="bundle").fit(X, y).score(X, y)
    found = DRFClassifier(learning="spa", solver="bundle").fit(with_outliers(X, y, 1e9, "right"), y)
    assert found.score(X, y) > expected - 0.03


def test_shards_see_through_outliers():
    X, y = noisy("chains")
    X = with_outliers(X, y, 1e9, "right")
    whole, _ = fitted(TRWCRF(), X, y)
    field, has_warned = fitted(TRWCRF(), Shards.from_arrays([(X[:20], y[:20]), (X[20:], y[20:])]), None)
    assert field.converged_
    assert not has_warned
    np.testing.assert_allclose(field.loss_curve_[-1], whole.loss_curve_[-1], rtol=1e-3)


def test_rounds_that_never_end_are_no_convergence():
    X, y = noisy("chains")
    field, _ = fitted(ContrastiveCRF(learning=ContrastiveTraining(max_rounds=1), random_state=0), X, y)
    assert not field.converged_
    assert field.stop_reason_ == "STOP: max_rounds reached while the sets were still growing"


def test_bulk_is_that_of_most_values():
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(50, 2, 3000), rng.integers(2, size=3000), np.zeros(3000)], axis=1)
    X[::7] = 1e15
    wanted = np.array([True, True, True])
    bulk = FeatureBulk.of_nodes(make_batches(encode_X(X)), 1, wanted)
    np.testing.assert_allclose(bulk.center, [[50, 1, 0]], atol=1)
    assert 1 < bulk.spread[0, 0] < 4
    assert 1 <= bulk.spread[0, 1] < 4
    # The feature is constant except for outliers, which are therefore its bulk.
    assert bulk.spread[0, 2] > 1e14
    parts = [FeatureBulk.of_nodes(make_batches(encode_X(part)), 1, wanted) for part in np.array_split(X, 3)]
    joined = FeatureBulk.joined([*parts, FeatureBulk(np.ones(1), np.full((1, 3), 1e9), np.full((1, 3), 1e9))])
    np.testing.assert_allclose(joined.center[0, :2], [50, 1], atol=1)
    assert 1 < joined.spread[0, 0] < 4


def test_bulk_of_types_and_edges():
    rng = np.random.default_rng(0)
    X = 1e4 * rng.normal(size=(2, 30, 30, 1))
    X[0, 3, 3] = 1e14
    batches = make_batches(encode_X(X))
    bulk = FeatureBulk.of_edges(batches, 2, np.array([False, True]))
    assert np.all(bulk.spread[:, 0] == np.inf)
    assert np.all((bulk.spread[:, 1] > 3e3) & (bulk.spread[:, 1] < 1e5))
