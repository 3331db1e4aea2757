"""Messages of sparse tables equal messages of dense tables, for any scores."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.inference import MPLP, BruteForce, LoopyBP, NormProductBP
from sklearn_crf.models import FactorGraph, SparseTable, score


def pair_of_graphs(seed, *, n_listed=12, default=0.0, spread=1.0, unary_spread=None, forbidden=0.0):
    """Return two factor graphs with the same scores: one with sparse tables of few states, one with dense tables."""
    rng = np.random.default_rng(seed)
    n_states = rng.integers(2, 5, size=6)
    sparse, dense = [], []
    for scope in ([0, 1, 2, 3], [2, 5, 1], [4, 3], [5, 0, 4]):
        shape = tuple(n_states[scope].tolist())
        listed = rng.permutation(int(np.prod(shape)))[:n_listed]
        values = spread * rng.normal(size=len(listed))
        table = np.full(shape, default)
        table.ravel()[listed] = values
        sparse.append((scope, SparseTable(np.stack(np.unravel_index(listed, shape), axis=1), values, default)))
        dense.append((scope, table))
    for s, n in enumerate(n_states):
        unary = (spread if unary_spread is None else unary_spread) * rng.normal(size=n)
        unary[1:][rng.random(n - 1) < forbidden] = -np.inf
        sparse.append(([s], unary))
        dense.append(([s], unary))
    return FactorGraph.from_factors(n_states, sparse), FactorGraph.from_factors(n_states, dense)


CASES = {
    "few listed": {"n_listed": 2},
    "many listed": {"n_listed": 40},
    "none listed": {"n_listed": 0},
    "others below": {"default": -60.0},
    "others above": {"default": 60.0, "n_listed": 30},
    "others far below": {"default": -1000.0},
    "others far above": {"default": 1000.0},
    "others forbidden": {"n_listed": 60, "default": -np.inf},
    "large scores": {"spread": 500.0},
    "large unary scores": {"unary_spread": 500.0},
    "large unary scores, others above": {"unary_spread": 500.0, "default": 60.0, "n_listed": 30},
    "forbidden states": {"forbidden": 0.4},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_marginals_are_those_of_dense_tables(case, seed):
    sparse, dense = pair_of_graphs(seed, **CASES[case])
    for inference in (LoopyBP(max_iter=5), NormProductBP(max_iter=5), NormProductBP(temperature=0.01, max_iter=5)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = inference.marginals(sparse), inference.marginals(dense)
        assert_allclose(found.log_z, expected.log_z, rtol=1e-9, atol=1e-9)
        assert_allclose(found.unary, expected.unary, atol=1e-8)
        # The probabilities of listed and unlisted joint states of every factor sum to one.
        listed, others = found.statistics
        tables = np.add.reduceat(np.append(listed, 0), sparse.table_ptr[:-1]) * (np.diff(sparse.table_ptr) > 0)
        assert_allclose(tables + others, 1, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_labels_are_those_of_dense_tables(case, seed):
    sparse, dense = pair_of_graphs(seed, **CASES[case])
    for inference in (MPLP(max_iter=20), NormProductBP(max_iter=20)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = inference.map(sparse), inference.map(dense)
        assert_array_equal(found.labels, expected.labels)
        assert_allclose(found.bound, expected.bound, rtol=1e-12)
        assert found.bound >= BruteForce().map(sparse).score - 1e-9
        assert_allclose(found.score, score(dense, found.labels), rtol=1e-12)
