from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import given, settings
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import MPLP, TRWS, BruteForce, LoopyBP, NormProductBP, convergence_left_to_caller
from sklearn_crf.inference import _allowed_labels as module
from sklearn_crf.inference._allowed_labels import allowed_labels
from sklearn_crf.models import FactorGraph, PairwiseModel, SparseTable, exactly_one, score


def random_constraints(seed, n_nodes=7, n_factors=9, share=0.4):
    """Factors of three nodes, of which random joint states are forbidden: there may be no labeling at all."""
    rng = np.random.default_rng(seed)
    n_states = rng.integers(2, 4, size=n_nodes)
    factors = [((s,), rng.normal(size=n_states[s])) for s in range(n_nodes)]
    for number in range(n_factors):
        scope = rng.permutation(n_nodes)[:3]
        shape = tuple(n_states[scope].tolist())
        table = np.where(rng.random(shape) < share, -np.inf, rng.normal(size=shape))
        if number % 3 == 0 and np.isfinite(table).any():
            states = np.argwhere(np.isfinite(table))
            table = SparseTable(states, table[np.isfinite(table)], -np.inf)
        factors.append((scope, table))
    factors.append((rng.permutation(n_nodes)[:4], exactly_one()))
    return FactorGraph.from_factors(n_states, factors)


def is_feasible(model):
    try:
        return np.isfinite(BruteForce().map(model).score)
    except ValueError:
        return False


def test_found_if_there_are_any_and_refuted_if_not():
    n_feasible = 0
    for seed in range(60):
        model = random_constraints(seed)
        guide = np.zeros(model.n_nodes, dtype=np.int32)
        if is_feasible(model):
            n_feasible += 1
            assert np.isfinite(score(model, allowed_labels(model, guide)))
        else:
            with pytest.raises(ValueError, match="model is infeasible"):
                allowed_labels(model, guide)
    assert 10 < n_feasible < 50


@given(model=factor_graphs())
@settings(max_examples=40, deadline=None)
def test_allowed_labels_are_kept_or_bettered(model):
    rng = np.random.default_rng(0)
    guide = (rng.random(model.n_nodes) * model.n_states).astype(np.int32)
    found = allowed_labels(model, guide)
    assert found.dtype == np.int32
    assert np.isfinite(score(model, found))
    assert score(model, found) >= score(model, guide)


def test_counts_support_what_some_allowed_count_needs():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n_nodes = int(rng.integers(1, 5))
        place = rng.integers(3, size=n_nodes).tolist()
        runs = [(int(c), int(c), 0.0) for c in np.flatnonzero(rng.random(n_nodes + 1) < 0.4)]
        possible = rng.random((n_nodes, 3)) < 0.6
        possible[np.arange(n_nodes), rng.integers(3, size=n_nodes)] = True
        needed = np.zeros_like(possible)
        for states in product(*(np.flatnonzero(row) for row in possible)):
            if any(first <= sum(a == b for a, b in zip(states, place, strict=True)) <= last for first, last, _ in runs):
                needed[np.arange(n_nodes), states] = True
        piece = SimpleNamespace(nodes=list(range(n_nodes)), place=place, runs=runs)
        assert_array_equal(possible & module._supported_by_count(piece, possible), needed)


@pytest.mark.parametrize("algorithm", [MPLP(max_iter=2), NormProductBP(max_iter=2), LoopyBP(max_iter=2)], ids=str)
def test_dead_ends_of_factor_graphs_are_left(algorithm):
    n_dead = 0
    for seed in range(60):
        model = random_constraints(seed)
        if not is_feasible(model):
            continue
        with convergence_left_to_caller():
            n_dead += np.isneginf(algorithm._map(model).score)
            found = algorithm.map(model)
        best = BruteForce().map(model).score
        assert -np.inf < found.score <= best + 1e-9
        assert found.score == pytest.approx(score(model, found.labels))
        assert found.bound >= best - 1e-9 * (1 + abs(best))
    assert n_dead > 0


def test_pairs_of_states():
    # Neighbours on a cycle of five nodes must differ: three states are enough, two are not.
    graph = Graph(5, [[s, (s + 1) % 5] for s in range(5)])
    for seed in range(10):
        unary = np.random.default_rng(seed).normal(size=(5, 3))
        three = PairwiseModel(graph, unary, np.where(np.eye(3), -np.inf, 0.0)[None])
        with convergence_left_to_caller():
            assert np.isfinite(TRWS(max_iter=1).map(three).score)
    two = PairwiseModel(graph, unary[:, :2], np.where(np.eye(2), -np.inf, 0.0)[None])
    with pytest.raises(ValueError, match="model is infeasible"):
        allowed_labels(two, np.zeros(5, dtype=np.int32))


def test_giving_up_is_a_warning(monkeypatch):
    monkeypatch.setattr(module, "_MOST_LOOKS", 0)
    for seed in range(60):
        model = random_constraints(seed)
        if is_feasible(model) and allowed_labels(model, np.zeros(model.n_nodes, dtype=np.int32)) is None:
            break
    with convergence_left_to_caller():
        assert np.isneginf(MPLP(max_iter=1)._map(model).score)
    with pytest.warns(ConvergenceWarning, match="MPLP found no labeling with a score above -inf"):
        found = MPLP(max_iter=1000).map(model)
    assert np.isneginf(found.score)
    assert not found.certified


def test_many_nodes():
    model = random_factor_graph(300, 500, 3, 3, forbidden=0.5, seed=3)
    assert np.isfinite(score(model, allowed_labels(model, np.zeros(300, dtype=np.int32))))
