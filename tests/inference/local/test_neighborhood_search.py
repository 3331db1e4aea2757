"""Search in large neighbourhoods: steps compared with enumeration, results compared with exact results."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, random_factor_graph
from model_strategies import TABLE_KINDS, TOPOLOGIES, random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import ICM, BruteForce, JunctionTree, LargeNeighborhoodSearch
from sklearn_crf.inference._local_search import search_problem
from sklearn_crf.inference.local._neighborhood_search import Region
from sklearn_crf.kernels.local.local import (
    SearchWorkspace,
    annealing_sweep,
    cells_of_labels,
    change_costs,
    keep_better,
    subgraph_move,
)
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, exactly_one, score


def spin_glass(shape, seed=0):
    graph, rng, spin = lattice(shape), np.random.default_rng(seed), np.array([-1.0, 1.0])
    weight = rng.normal(size=graph.n_edges)
    return PairwiseModel(graph, np.zeros((graph.n_nodes, 2)), np.outer(spin, spin)[None], edge_weight=weight)


def small_models():
    for seed, topology in enumerate(TOPOLOGIES):
        for kind in TABLE_KINDS:
            yield random_model(topology, 1 + seed % 4, kind, forbidden=0.2 * (seed % 2), seed=seed)
    for seed in range(16):
        constraint = (None, None, *CONSTRAINTS)[seed % 5]
        yield random_factor_graph(1 + seed % 6, seed % 9, 4, 1 + seed % 3, constraint=constraint, seed=seed)


class Steps:
    """One labeling and the kernels that change it."""

    def __init__(self, model, seed=0):
        self.model = model
        self.arrays, self.unary = search_problem(model)
        n_nodes, n_columns = self.unary.shape
        self.workspace = SearchWorkspace(n_nodes, len(self.arrays.table), n_columns)
        self.labels = self.random_labels(seed)
        self.cells = np.empty(len(self.arrays.table), dtype=np.int64)
        cells_of_labels(self.arrays, self.unary, self.labels, self.cells)

    def random_labels(self, seed):
        drawn = np.random.default_rng(seed).random(self.unary.shape)
        states = np.arange(self.unary.shape[1]) < self.arrays.n_states[:, None]
        return np.where(states, drawn, -1).argmax(axis=1).astype(np.int32)

    def sweep(self, temperature, key):
        return annealing_sweep(self.arrays, self.unary, temperature, key, self.labels, self.cells, self.workspace)

    def move(self, cells, key, most_options=100, most_nodes=1000, noise=0.0):
        region = Region(np.log2(cells), 2.0**20, min(most_nodes, len(self.labels)), True)
        return subgraph_move(
            self.arrays, self.unary, region, most_options, 1.0, noise, key, key + 1, self.labels, self.cells,
            self.workspace,
        )  # fmt: skip

    def keep(self, old):
        return keep_better(self.arrays, self.unary, old, self.labels, self.cells, self.workspace)

    def check(self):
        cells = np.empty_like(self.cells)
        cells_of_labels(self.arrays, self.unary, self.labels, cells)
        assert_array_equal(cells, self.cells)
        return score(self.model, self.labels)


def finite_models():
    return [model for model in small_models() if np.isfinite(Steps(model).arrays.values).all()]


def test_gains_are_differences_of_scores():
    for number, model in enumerate(finite_models()):
        steps = Steps(model)
        if np.isneginf(score(model, steps.labels)) or np.isneginf(steps.arrays.fallback[steps.arrays.kind > 0]).any():
            continue  # no difference for comparison
        before = steps.check()
        for key, (step, options) in enumerate(
            [
                (steps.sweep, {"temperature": 1.0}),
                (steps.move, {"cells": 4}),
                (steps.move, {"cells": 64, "most_options": 2}),
                (steps.move, {"cells": 16, "noise": 1.0}),
                (steps.sweep, {"temperature": 0.0}),
            ]
        ):
            gain, work, _ = step(key=100 * number + key, **options)
            after = steps.check()
            assert after - before == pytest.approx(gain, abs=1e-9)
            assert work >= 0
            before = after


def test_change_costs():
    for model in finite_models():
        steps = Steps(model)
        here = score(model, steps.labels)
        cost = np.empty(len(steps.labels))
        change_costs(steps.arrays, steps.unary, steps.labels, steps.cells, cost, steps.workspace)
        for node, n_states in enumerate(steps.arrays.n_states):
            others = []
            for state in set(range(n_states)) - {int(steps.labels[node])}:
                changed = steps.labels.copy()
                changed[node] = state
                others.append(score(model, changed))
            if others and np.isfinite(here) and np.isfinite(max(others)):
                assert cost[node] == pytest.approx(here - max(others), abs=1e-9)


def test_sweeps_draw_from_the_distribution():
    model = random_model("grid", 3, "weighted", seed=2)
    steps, counts, n = Steps(model), np.zeros((9, 3)), 4000
    for key in range(n):
        # Keys are far apart, because the streams of successive keys would overlap.
        steps.sweep(2.0, (key + 1) * 0x9E3779B97F4A7C1 % 2**64)
        counts[np.arange(9), steps.labels] += 1
    cooler = replace(model, unary=model.unary / 2, tables=model.tables / 2)
    assert_allclose(counts / n, BruteForce().marginals(cooler).unary, atol=0.05)


def test_moves_are_best_given_the_rest():
    # The tables of regions of at most four nodes always fit, so a move is the best change of all nodes in the region.
    for seed in range(20):
        model = random_model("grid", 2 + seed % 2, TABLE_KINDS[seed % 4], seed=seed)
        steps = Steps(model, seed)
        before = steps.labels.copy()
        steps.move(3**4, seed, most_nodes=4)
        assert steps.workspace.n_kept == 0
        changed = np.flatnonzero(steps.labels != before)
        assert len(changed) <= 4
        clamped = np.array(model.unary)
        for node in np.setdiff1d(np.arange(9), changed):
            clamped[node, np.arange(clamped.shape[1]) != before[node]] = -np.inf
        best = BruteForce().map(replace(model, unary=clamped))
        assert score(model, steps.labels) == pytest.approx(best.score, abs=1e-9)


def test_moves_never_lose_and_need_not_hold_all_nodes():
    steps = Steps(spin_glass((12, 12)))
    for key in range(60):
        gain, _, _ = steps.move(2 ** (2 + key % 6), key, most_nodes=(144, 40)[key % 2])
        assert gain >= -1e-9
        assert key % 2 or steps.workspace.n_kept > 0


def test_better_parts_are_kept():
    for number, model in enumerate(finite_models()):
        steps = Steps(model)
        old, new = steps.labels.copy(), steps.random_labels(number + 1)
        if np.isneginf([score(model, old), score(model, new)]).any():
            continue
        steps.labels[:] = new
        cells_of_labels(steps.arrays, steps.unary, steps.labels, steps.cells)
        gain, _, _ = steps.keep(old)
        assert np.all((steps.labels == old) | (steps.labels == new))
        found = steps.check()
        assert found - score(model, old) == pytest.approx(gain, abs=1e-9)
        assert found >= max(score(model, old), score(model, new)) - 1e-9


def test_parts_are_judged_alone():
    # The nodes of each of three pairs must agree. New labels are better for the first and for the last pair.
    pairs = Graph(6, [[0, 1], [2, 3], [4, 5]])
    unary = np.array([[0, 1], [0, 0], [0, -1], [0, 0], [0, 2], [0, 0]], dtype=float)
    steps = Steps(PairwiseModel(pairs, unary, np.where(np.eye(2), 0.0, -np.inf)[None]))
    steps.labels[:] = 1
    cells_of_labels(steps.arrays, steps.unary, steps.labels, steps.cells)
    assert steps.keep(np.zeros(6, dtype=np.int32))[0] == 3
    assert_array_equal(steps.labels, [1, 1, 0, 0, 1, 1])


@pytest.mark.parametrize("max_cells", [4, 2**13])
def test_small_models_are_solved(max_cells):
    for model in small_models():
        best = BruteForce().map(model).score
        found = LargeNeighborhoodSearch(max_work=2e5, max_cells=max_cells, max_options=2, random_state=0).map(model)
        assert found.score == score(model, found.labels)
        assert found.score == pytest.approx(best, abs=1e-9)
        assert found.bound >= best - 1e-9


def test_exact_where_one_subgraph_holds_all():
    for seed in range(4):
        model = random_model(lattice((6, 12)), 2, TABLE_KINDS[seed], seed=seed)
        found = LargeNeighborhoodSearch(random_state=seed).map(model)
        assert found.certified
        assert found.n_iter == 1
        assert found.score == pytest.approx(JunctionTree().map(model).score, abs=1e-9)
    assert not LargeNeighborhoodSearch(max_work=1e5, random_state=0).map(spin_glass((30, 30))).certified


def test_planted_optimum_is_found():
    # One labeling satisfies all couplings, but changes of single nodes cannot remove the walls between domains.
    rng, graph, spin = np.random.default_rng(0), lattice((25, 25)), np.array([-1.0, 1.0])
    planted = rng.integers(2, size=graph.n_nodes)
    weight = np.abs(rng.normal(size=graph.n_edges)) * np.prod(spin[planted[graph.edges]], axis=1)
    model = PairwiseModel(graph, np.zeros((625, 2)), np.outer(spin, spin)[None], edge_weight=weight)
    found = LargeNeighborhoodSearch(max_work=1e7, random_state=0).map(model)
    assert found.score == pytest.approx(np.abs(weight).sum())
    assert ICM(n_restarts=5, random_state=0).map(model).score < 0.95 * found.score


def test_more_work_is_no_worse_and_threads_do_not_matter():
    model = spin_glass((30, 30))
    scores, moves = [], []
    for max_work in (0, 1e6, 1e7):
        search = LargeNeighborhoodSearch(max_work=max_work, random_state=3)
        found = search.map(model)
        assert_array_equal(found.labels, search.map(model, n_threads=3).labels)
        scores.append(found.score)
        moves.append(found.n_iter)
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]
    assert moves == sorted(moves)
    single = replace(model, unary=model.unary.astype(np.float32), tables=model.tables, edge_weight=model.edge_weight)
    found = LargeNeighborhoodSearch(max_work=1e7, random_state=3).map(single)
    assert found.score == pytest.approx(scores[-1], rel=0.01)


def test_never_below_init():
    model = spin_glass((20, 20))
    start = LargeNeighborhoodSearch(max_work=1e7, random_state=0).map(model)
    for max_work in (0, 1e4, 1e6):
        again = LargeNeighborhoodSearch(max_work=max_work, random_state=1).map(model, init=start.state)
        assert again.score >= start.score


def test_start_must_be_a_labeling():
    model = spin_glass((3, 3))
    wrong = (np.zeros(4, int), "9 integer"), (np.zeros(9), "9 integer"), (np.full(9, 2), r"init\[0\] is 2")
    for init, words in wrong:
        with pytest.raises(ValueError, match=words):
            LargeNeighborhoodSearch().map(model, init=init)


@pytest.mark.parametrize("option", [{"n_restarts": 0}, {"max_cells": 2}, {"max_options": 1}, {"max_work": -1}])
def test_options_have_ranges(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} must be at least"):
        LargeNeighborhoodSearch(**option).map(spin_glass((2, 2)))


def test_forbidden_pairs_and_large_constraints():
    # Colouring of a map with three colours; too wide for one subgraph.
    rng, graph = np.random.default_rng(0), lattice((14, 14))
    model = PairwiseModel(graph, rng.normal(size=(196, 3)), np.where(np.eye(3), -np.inf, 0.0)[None])
    found = LargeNeighborhoodSearch(max_work=1e7, max_cells=81, random_state=0).map(model)
    assert np.all(found.labels[graph.edges[:, 0]] != found.labels[graph.edges[:, 1]])
    # The model is a 12 x 12 assignment problem, with a constraint for each row and each column.
    worth = rng.normal(size=(12, 12))
    numbers = np.arange(144).reshape(12, 12)
    factors = [((s,), np.array([0.0, w])) for s, w in enumerate(worth.ravel())]
    factors += [(line, exactly_one()) for line in numbers] + [(line, at_most_one()) for line in numbers.T]
    assignment = FactorGraph.from_factors([2] * 144, factors)
    found = LargeNeighborhoodSearch(max_work=1e7, random_state=0).map(assignment)
    assert np.isfinite(found.score)
    assert_array_equal(found.labels.reshape(12, 12).sum(axis=1), 1)


def test_dense_models_and_many_states():
    pairs = Graph(100, np.stack(np.triu_indices(100, 1), axis=1))
    model = random_model(pairs, 2, "untied", seed=0)
    climbed = ICM(n_restarts=5, random_state=0).map(model).score
    assert LargeNeighborhoodSearch(max_work=3e7, random_state=0).map(model).score > climbed
    model = random_model(lattice((12, 12)), 24, "untied", seed=0)
    climbed = ICM(n_restarts=5, random_state=0).map(model).score
    assert LargeNeighborhoodSearch(max_work=1e7, random_state=0).map(model).score > climbed


def test_no_nodes():
    found = LargeNeighborhoodSearch().map(PairwiseModel(lattice((0,)), np.zeros((0, 2)), np.zeros((1, 2, 2))))
    assert found.score == 0
    assert found.certified
