"""Costs of elimination, and budgets for it."""

from itertools import combinations

import numpy as np
import pytest
from model_strategies import random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import AutoMap, AutoMarginals, JunctionTree, TreeInference, exact_inference
from sklearn_crf.inference.automatic._cost import BUDGETS, Budget, group_components, most_states
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, factor_graph_of

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def spin_glass(shape, seed, coupling=1.0):
    rng, grid = np.random.default_rng(seed), lattice(shape)
    weight = coupling * rng.normal(size=grid.n_edges)
    return PairwiseModel(grid, 0.5 * rng.normal(size=(grid.n_nodes, 2)), SPIN[None], edge_weight=weight)


def clique(n_nodes):
    return Graph(n_nodes, list(combinations(range(n_nodes), 2)))


def skip_chain(n_nodes):
    chain = [(s, s + 1) for s in range(n_nodes - 1)]
    return Graph(n_nodes, chain + [(s, s + 2) for s in range(0, n_nodes - 2, 3)])


@pytest.mark.parametrize(
    ("graph", "n_states", "kind"),
    [
        (lattice((500,)), 50, TreeInference),
        (lattice((2, 30_000)), 2, JunctionTree),
        (lattice((40_000, 4)), 2, JunctionTree),
        (lattice((12, 100)), 2, JunctionTree),
        (lattice((11, 11)), 3, JunctionTree),
        (skip_chain(30_000), 9, JunctionTree),
        (clique(3000), 2, type(None)),
        (lattice((9, 9)), 2, JunctionTree),
        (lattice((3, 100)), 3, JunctionTree),
        (lattice((2, 50)), 64, JunctionTree),
        (clique(16), 2, JunctionTree),
        (lattice((16, 16)), 8, type(None)),
        (lattice((40, 40)), 2, type(None)),
        (lattice((1000, 1000)), 2, type(None)),
        (clique(30), 2, type(None)),
    ],
)
def test_one_rule_says_what_is_affordable(graph, n_states, kind):
    assert isinstance(exact_inference(graph, n_states), kind)


def test_observed_nodes_cost_nothing():
    model = spin_glass((30, 30), 0)
    unary = model.unary.copy()
    assert exact_inference(model) is None
    unary.reshape(30, 30, 2)[::2, ::2, 0] = -np.inf
    unary.reshape(30, 30, 2)[1::2, ::2, 0] = -np.inf
    assert isinstance(exact_inference(PairwiseModel(model.graph, unary, model.tables)), JunctionTree)


def test_a_graph_needs_its_number_of_states():
    with pytest.raises(ValueError, match="n_states, the number of states of each node, must be given"):
        exact_inference(lattice((3, 3)))


@pytest.mark.parametrize(("shape", "is_exact"), [((3,), True), ((4, 4), True), ((40, 40), False)])
def test_copies_of_a_graph_are_affordable_if_one_is(shape, is_exact):
    copies = build_disjoint_union([lattice(shape)] * 3)
    apart = Graph(copies.n_nodes, copies.edges)
    for graph in (lattice(shape), copies, apart):
        assert (exact_inference(graph, 2, budget="step") is not None) == is_exact
    assert type(exact_inference(copies, 2)) is type(exact_inference(apart, 2))


def test_long_narrow_graphs_are_exact_at_any_length():
    n = 3000
    ladder = spin_glass((2, n), 0)
    found = AutoMarginals().marginals(ladder)
    assert (found.method, found.bound) == ("JunctionTree", "exact")
    # Equivalent to a chain of pairs of nodes.
    weight, unary = ladder.edge_weight.ravel(), ladder.unary
    along = {tuple(edge): w for edge, w in zip(ladder.graph.edges.tolist(), weight, strict=True)}
    pairs = unary[:n, :, None] + unary[n:, None] + np.array([along[s, s + n] for s in range(n)])[:, None, None] * SPIN
    tables = np.array([along[s, s + 1] for s in range(n - 1)])[:, None, None, None, None] * SPIN[:, None, :, None]
    tables = (
        tables + np.array([along[n + s, n + s + 1] for s in range(n - 1)])[:, None, None, None, None] * SPIN[:, None]
    )
    chain = PairwiseModel(lattice((n,)), pairs.reshape(n, 4), tables.reshape(-1, 4, 4), np.arange(n - 1))
    expected = TreeInference().marginals(chain)
    assert found.log_z == pytest.approx(expected.log_z, rel=1e-12)
    assert_allclose(found.unary[:n], expected.unary.reshape(n, 2, 2).sum(axis=2), atol=1e-9)
    best = AutoMap().map(ladder)
    assert best.certified
    assert best.score == pytest.approx(TreeInference().map(chain).score, rel=1e-12)


@pytest.mark.parametrize("graph", [lattice((6, 7)), clique(9), skip_chain(40), lattice((2, 30))])
@pytest.mark.parametrize("n_states", [2, 5])
def test_the_budget_is_the_work_of_the_plan(graph, n_states):
    model = random_model(graph, n_states, seed=0)
    plan = JunctionTree().marginals(model).state
    own, left, right = plan.buckets[:, :3].T.astype(float)
    work = plan.n_cells.sum() + (own * left * right).sum() / 20
    for kind in (model, factor_graph_of(model)):
        assert isinstance(exact_inference(kind, budget=work * (1 + 1e-12)), JunctionTree)
        assert exact_inference(kind, budget=work * (1 - 1e-12)) is None


def test_budgets_by_name_grow():
    graphs = [lattice((k, k)) for k in range(8, 24)]
    affords = {name: [exact_inference(graph, 2, name) is not None for graph in graphs] for name in BUDGETS}
    counts = [sum(affords[name]) for name in ("step", "fast", "default", "long")]
    assert counts == sorted(set(counts))
    # With messages for comparison, many states may take more cells.
    assert exact_inference(lattice((2, 200)), 40, "fast") is not None
    for wrong in ("slow", -1, np.inf, True, None):
        with pytest.raises(ValueError, match="budget must be 'step', 'fast', 'default', 'long' or a number"):
            AutoMarginals(budget=wrong).marginals(spin_glass((3, 3), 0))
        with pytest.raises(ValueError, match="budget must be"):
            AutoMap(budget=wrong).map(spin_glass((3, 3), 0))


def test_factors_that_are_too_large_are_refused_before_any_work():
    wide = [(tuple(range(5000)), at_most_one())]
    narrow = [((5000 + s, 5001 + s), np.eye(2)) for s in range(8)] + [((5000, 5008), np.eye(2))]
    model = FactorGraph.from_factors([2] * 5009, wide + narrow)
    assert_array_equal(group_components(model, BUDGETS["default"]), [-1, 0])


def test_components_that_memory_does_not_hold_together_are_eliminated_in_turn(monkeypatch):
    parts = [spin_glass((6, 6), seed) for seed in range(4)]
    joined = PairwiseModel(
        build_disjoint_union([part.graph for part in parts]),
        np.concatenate([part.unary for part in parts]),
        parts[0].tables,
        edge_weight=np.concatenate([part.edge_weight for part in parts]),
    )
    together, best = AutoMarginals().marginals(joined), AutoMap().map(joined)
    memory = JunctionTree().marginals(parts[0]).state.memory["conditional"]
    monkeypatch.setattr("sklearn_crf.inference.automatic._tuning.LEAST_BYTES", 2.5 * memory)
    joined.graph._kept.clear()
    budget = Budget(1e5, 100)
    monkeypatch.setitem(BUDGETS, "default", budget)
    monkeypatch.setattr("sklearn_crf.inference.automatic._tuning.BYTES_OF_A_CELL", 0)
    shares = group_components(joined, budget)
    assert shares.min() == 0 < shares.max()
    assert_array_equal(shares, np.sort(shares))
    apart = AutoMarginals().marginals(joined)
    assert (apart.bound, apart.method) == ("exact", "JunctionTree")
    assert_array_equal(apart.unary, together.unary)
    assert apart.log_z == pytest.approx(together.log_z, rel=1e-14)
    assert_allclose(apart.tables, together.tables, rtol=1e-12)
    assert_allclose(AutoMarginals().marginals(joined, init=apart.state).unary, apart.unary)
    assert AutoMap().map(joined).score == pytest.approx(best.score, rel=1e-14)
    assert AutoMap().map(joined).certified


def test_states_that_elimination_affords():
    for graph in (lattice((4, 5)), clique(6), build_disjoint_union([lattice((3, 3)), lattice((4,))]), lattice((5,))):
        for n_states in (2, 5):
            model = PairwiseModel(graph, np.zeros((graph.n_nodes, n_states)), np.zeros((1, n_states, n_states)))
            plan = JunctionTree().map(model).state
            width = [sum(map(len, plan.sides(k))) for k in range(graph.n_nodes)]
            cells = float(sum(n_states ** (w + 1) for w in width))
            assert most_states(graph, cells * (1 + 1e-9)) >= n_states
