"""Branch and bound against enumeration, and its claims when the budget ends."""

from itertools import combinations

import numpy as np
import pytest
from factor_strategies import factor_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, models, random_model

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, LinearProgram
from sklearn_crf.inference.relaxations._branch_and_bound import run_branch_and_bound
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, score


def assert_solves(model):
    best = BruteForce(2**20).map(model)
    for start in (None, best.labels, np.zeros(model.n_nodes, dtype=np.int32)):
        given_labels = start is not None and np.isfinite(score(model, start))
        labels, bound, is_complete = run_branch_and_bound(model, start if given_labels else None, 1e7)
        assert is_complete
        assert score(model, labels) == pytest.approx(best.score, abs=1e-9, rel=1e-12)
        assert best.score - 1e-9 <= bound


@settings(max_examples=60, deadline=None)
@given(models())
def test_pairwise_models_against_enumeration(model):
    assert_solves(model)


@settings(max_examples=60, deadline=None)
@given(factor_graphs(max_arity=4))
def test_factor_graphs_against_enumeration(model):
    assert_solves(model)


def test_several_factors_of_one_pair_are_one():
    # Costs used to move back and forth between the two nodes until the budget was spent.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scopes = [(0, 1) if rng.random() < 0.5 else (1, 0) for _ in range(5)] + [(0,), (0, 1, 2)]
        tables = [rng.normal(size=[(3, 2, 2)[node] for node in scope]) for scope in scopes]
        model = FactorGraph.from_factors([3, 2, 2], list(zip(scopes, tables, strict=True)))
        assert_solves(model)
        assert run_branch_and_bound(model, None, 1e4)[2]


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_grids_against_enumeration(kind, forbidden):
    for seed in range(3):
        assert_solves(random_model(lattice((3, 4)), 3, kind, seed=seed, scale=2.0, forbidden=forbidden))


@settings(max_examples=20, deadline=None)
@given(factor_graphs(max_arity=3), st.integers(0, 500))
def test_bounds_hold_wherever_the_budget_ends(model, work):
    best = BruteForce(2**20).map(model)
    labels, bound, is_complete = run_branch_and_bound(model, None, float(work))
    assert bound >= best.score - 1e-9
    if labels is not None:
        assert score(model, labels) <= best.score + 1e-9
    if is_complete:
        assert score(model, labels) == pytest.approx(best.score)


@pytest.mark.parametrize("work", [1e5, 1e6, 3e7])
@pytest.mark.parametrize("seed", [0, 1])
def test_searches_around_labelings_against_enumeration(work, seed):
    # All pairs of nodes disagree about signs, so that the search is restarted many times.
    graph, rng = Graph(18, list(combinations(range(18), 2))), np.random.default_rng(seed)
    spin = np.array([[1.0, -1.0], [-1.0, 1.0]])
    for weight in (rng.normal(size=graph.n_edges), rng.integers(-2, 3, graph.n_edges).astype(float)):
        model = PairwiseModel(graph, 0.1 * rng.normal(size=(18, 2)), [spin], edge_weight=weight)
        best, start = BruteForce(2**20).map(model).score, np.zeros(18, dtype=np.int32)
        labels, bound, is_complete = run_branch_and_bound(model, start, work, seed)
        assert score(model, start) <= score(model, labels) <= best + 1e-9 <= bound + 2e-9
        again, _, _ = run_branch_and_bound(model, start, work, seed)
        np.testing.assert_array_equal(labels, again)
        if is_complete or work == 3e7:
            assert score(model, labels) == pytest.approx(best)


def test_the_bound_is_that_of_the_linear_relaxation_at_least():
    model = random_model(lattice((8, 8)), 4, "untied", seed=0, scale=1.0)
    _, bound, is_complete = run_branch_and_bound(model, None, 2e6)
    assert is_complete or bound <= LinearProgram().map(model).bound + 0.5


def test_models_without_labels_are_refuted():
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    # Four nodes with three states that must all differ.
    complete = PairwiseModel(Graph(4, list(combinations(range(4), 2))), np.zeros((4, 3)), [differ])
    assert run_branch_and_bound(complete, None, 1e7) == (None, -np.inf, True)


def test_a_labeling_is_never_made_worse():
    model = random_model(lattice((6, 6)), 5, "untied", seed=2)
    start = np.arange(36, dtype=np.int32) % 5
    labels, bound, _ = run_branch_and_bound(model, start, 2e4)
    assert score(model, start) <= score(model, labels) <= bound


def test_what_is_too_large_is_left_alone():
    wide = FactorGraph.from_factors([2] * 40, [(tuple(range(40)), at_most_one())])
    assert run_branch_and_bound(wide, None, 1e7) == (None, np.inf, False)


def test_many_small_costs_around_a_node_are_not_asked_for_without_end():
    colouring = np.where(np.eye(3, dtype=bool), -100.0, 0.0)
    n_proven = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        hidden, pairs = rng.integers(3, size=60), set()
        while len(pairs) < 140:
            a, b = np.sort(rng.choice(60, 2, replace=False)).tolist()
            pairs |= {(a, b)} if hidden[a] != hidden[b] else set()
        model = PairwiseModel(Graph(60, sorted(pairs)), 0.3 * rng.normal(size=(60, 3)), [colouring])
        labels, _, is_complete = run_branch_and_bound(model, hidden.astype(np.int32), 1e8)
        n_proven += is_complete
        assert score(model, labels) >= score(model, hidden)
    assert n_proven == 12
