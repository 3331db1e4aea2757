"""Cutting planes of bundle methods, stored as dense rows or by their nonzero entries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_crf.optimize import _bundle, bmrm


def sparse_hinges(n=60, n_terms=40, seed=0):
    """Return a sum of hinges, each of two entries of x, and counts of the nonzero entries of its slopes."""
    rng = np.random.default_rng(seed)
    place = np.stack([rng.choice(6 if k % 8 else n, 2, replace=False) for k in range(n_terms)])
    rows = rng.normal(size=(n_terms, 2))
    counts = []

    def fun(x):
        margin = 1 - (rows * x[place]).sum(axis=1)
        slope = np.zeros(n)
        np.add.at(slope, place[margin > 0], -rows[margin > 0])
        counts.append(np.count_nonzero(slope))
        return float(np.maximum(margin, 0.0).sum()), slope

    return fun, counts


@pytest.mark.parametrize("max_planes", [500, 15])
@pytest.mark.parametrize("bounded", [False, True])
def test_planes_by_their_entries_give_what_whole_planes_give(monkeypatch, max_planes, bounded):
    fun, counts = sparse_hinges()
    options = {"lower_bounded": np.arange(60) < 3} if bounded else {}
    found = {}
    for share in (1.0, 0.0):
        monkeypatch.setattr(_bundle, "_MOST_ENTRIES", share)
        found[share] = bmrm(fun, np.zeros(60), floor=0.0, tol=1e-6, max_iter=3000, max_planes=max_planes, **options)
        assert found[share].success
    assert max(counts) < 20
    assert_allclose(found[1.0].x, found[0.0].x, atol=1e-2)
    assert_allclose(found[1.0].fun, found[0.0].fun, rtol=2e-6)
    assert np.all(np.diff(found[1.0].dual_curve) >= -1e-9)


def test_slopes_say_how_planes_are_stored():
    for n_entries, kind in ((2, _bundle._SparseRows), (30, _bundle._DenseRows)):
        bundle = _bundle.Bundle(np.zeros(60, dtype=bool), 60, 10)
        bundle.add(np.zeros(60), 0.0)
        bundle.add(-1.0 * (np.arange(60) < n_entries), 1.0)
        assert isinstance(bundle._rows, kind)
        x, dual = bundle.solve()
        assert_allclose(x[:n_entries], 1 / n_entries)
        assert_allclose(dual, 0.5 / n_entries)


@pytest.mark.parametrize("unit", [1.0, 300.0, 5e3])
def test_weights_of_planes_are_found_however_small(unit):
    # The weights of planes sum to one, but nearly all of it belongs to the floor: planes have weights near unit**-2.
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], 200)
    rows = sign[:, np.newaxis] * rng.normal(size=(200, 3)) + [1.0, 0.0, 0.5]

    def fun(x):
        margin = 1 - unit * (rows @ x)
        return float(np.maximum(margin, 0.0).sum()), -unit * rows[margin > 0].sum(axis=0)

    found = bmrm(fun, np.zeros(3), floor=0.0, tol=1e-4, max_iter=500)
    assert found.success
    assert found.gap <= 1.001e-4 * found.fun
    assert found.fun == pytest.approx(0.5 * float(found.x @ found.x) + fun(found.x)[0])
    # In large units the hinges are nearly all of the objective, so they are near their own minimum.
    hinges = [fun(x / unit)[0] for x in unit * found.x + 0.1 * rng.normal(size=(50, 3))]
    assert fun(found.x)[0] < min(hinges)
