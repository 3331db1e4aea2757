"""Solvers of sums of maxima with an inexact oracle: bounds hold, and gaps above the tolerance cause warnings."""

import numpy as np
import pytest

from sklearn_crf.optimize import UNPROVEN, bmrm, cutting_plane, frank_wolfe, one_slack, subgradient

N, N_TERMS, N_PLANES, TOL = 3, 4, 5, 1e-2


class Sum:
    """A sum of maxima of planes, with an oracle that sometimes returns a plane that is not the highest."""

    def __init__(self, seed, bounded):
        self.rng = np.random.default_rng(seed)
        self.slopes = self.rng.normal(size=(N_TERMS, N_PLANES, N))
        self.offsets = self.rng.normal(size=(N_TERMS, N_PLANES))
        self.slopes[:, 0], self.offsets[:, 0] = 0.0, 0.0
        self.misses, self.bounded = self.rng.choice([0.0, 0.1, 0.5]), bounded

    def heights(self, x):
        return self.offsets + self.slopes @ x

    def primal(self, x):
        return 0.5 * x @ x + self.heights(x).max(axis=1).sum()

    def found(self, x):
        """Return the planes that the oracle takes for the highest planes."""
        order = np.argsort(self.heights(x), axis=1)
        return order[np.arange(N_TERMS), np.where(self.rng.random(N_TERMS) < self.misses, -2, -1)]

    def __call__(self, block, x):
        best = self.found(x)[block]
        return self.slopes[block, best][None], self.offsets[block, best][None]

    def risk(self, x):
        value = self.heights(x)[np.arange(N_TERMS), self.found(x)].sum()
        proven = self.heights(x).max(axis=1).sum()
        upper = max(proven, value) + self.rng.choice([0.0, 0.3]) * (self.misses > 0)
        return float(value), float(upper if self.bounded else np.inf)

    def value_grad(self, x):
        best = self.found(x)
        terms = np.arange(N_TERMS)
        value = float(self.heights(x)[terms, best].sum())
        _, upper = self.risk(x)
        return (value, upper), self.slopes[terms, best].sum(axis=0)


def minimized(solver, problem):
    if solver is bmrm:
        return bmrm(problem.value_grad, np.zeros(N), floor=0.0, tol=TOL, max_iter=100)
    return solver(problem, [1] * N_TERMS, problem.risk, N, tol=TOL, max_iter=60, random_state=0)


@pytest.mark.parametrize("solver", [bmrm, cutting_plane, frank_wolfe, one_slack, subgradient])
def test_bounds_are_true_and_gaps_are_named(solver):
    n_unproven = 0
    for seed in range(200):
        problem = Sum(seed, bounded=True)
        found = minimized(solver, problem)
        assert problem.primal(found.x) <= found.fun + 1e-9
        assert found.dual <= problem.primal(found.x) + 1e-9
        assert np.all(found.loss_curve >= found.dual - 1e-9)
        assert found.gap == pytest.approx(found.fun - found.dual)
        assert found.success == (found.gap <= TOL * abs(found.fun) + 1e-12)
        n_unproven += found.message == UNPROVEN
    assert n_unproven


@pytest.mark.parametrize("solver", [bmrm, cutting_plane])
def test_nothing_is_proven_without_bounds(solver):
    for seed in range(20):
        problem = Sum(seed, bounded=False)
        found = minimized(solver, problem)
        assert not found.success
        assert found.gap == np.inf
        assert found.dual <= found.fun
        assert np.all(found.loss_curve >= found.dual)


class Blind(Sum):
    """A sum whose oracle never finds the highest plane, nor proves the second highest to be lower."""

    def found(self, x):
        return np.argsort(self.heights(x), axis=1)[:, -2]


@pytest.mark.parametrize("solver", [bmrm, one_slack])
def test_planes_that_cut_off_nothing_end_it(solver):
    ends = {"gap": 0, "stuck": 0}
    for seed in range(50):
        found = minimized(solver, Blind(seed, bounded=True))
        assert found.nit < 40
        ends["gap" if found.success else "stuck"] += 1
        assert found.success or found.message == UNPROVEN
    assert ends["stuck"] > 10


class NearlyProvenSum(Sum):
    """A sum whose oracle finds all maxima, but proves them only up to a part of the tolerance."""

    def __init__(self, seed):
        super().__init__(seed, bounded=True)
        self.misses = 0.0

    def risk(self, x):
        value = float(self.heights(x).max(axis=1).sum())
        return value, (1 + 0.8 * TOL) * value


@pytest.mark.parametrize("solver", [bmrm, cutting_plane, one_slack])
def test_planes_are_added_while_that_closes_the_gap(solver):
    for seed in range(50):
        found = minimized(solver, NearlyProvenSum(seed))
        assert found.success, found.message
        assert found.gap <= TOL * found.fun + 1e-12
