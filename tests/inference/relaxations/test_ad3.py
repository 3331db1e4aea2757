"""AD3: quadratic problems against a general solver, factors of all kinds, and the fractional solution."""

from itertools import product

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import given, settings
from model_strategies import cycle, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment, minimize

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AD3, BruteForce, LinearProgram, convergence_left_to_caller
from sklearn_crf.inference.exact._local_polytope import LocalPolytope
from sklearn_crf.inference.relaxations._factor_problems import COUNTED, build_polytope_pieces
from sklearn_crf.kernels.relaxations.relaxations import solve_factors
from sklearn_crf.models import (
    CountTable,
    FactorGraph,
    PairwiseModel,
    SparseTable,
    at_most_one,
    exactly_one,
    factor_graph_of,
    score,
)


def solve(model, **options):
    with convergence_left_to_caller():
        return AD3(**options).map(model)


class OneFactor:
    """A model of one factor, and a starting point in the space of marginals."""

    def __init__(self, table, n_states, rng, scale=1.0):
        nodes = np.arange(len(n_states))
        self.model = FactorGraph.from_factors(n_states, [(nodes, table)])
        self.pieces = build_polytope_pieces(LocalPolytope(self.model))
        shape = len(n_states), max(n_states)
        exists = np.arange(shape[1]) < np.array(n_states)[:, None]
        self.share = np.where(exists, scale * rng.normal(size=shape), -np.inf)
        self.target = np.where(exists, rng.uniform(size=shape), 0.0)
        self.penalty = rng.uniform(0.3, 3)
        self.n_active = np.zeros(1, dtype=np.int32)
        ends = self.pieces.active_place_ptr[-1], self.pieces.active_ptr[-1]
        self.active = np.zeros(ends[0], dtype=np.int32), np.zeros(ends[1]), np.zeros(ends[1])

    def solve(self):
        marginals, best = np.zeros(self.share.shape), np.zeros(1)
        n_numbers, n_integers = self.pieces.work_size
        nothing = np.zeros(self.share.shape)
        work = np.empty(n_numbers), np.empty(n_integers, dtype=np.int32)
        solve_factors(
            self.pieces, self.share, self.target, nothing, self.penalty, marginals, best, self.n_active, *self.active,
            0, 1, *work,
        )  # fmt: skip
        return marginals, best[0]

    def joint_states(self):
        states = np.array(list(product(*map(range, self.model.n_states))))
        scores = self.model.factor_scores(np.zeros(len(states), dtype=np.int64), states)
        return states[scores > -np.inf], scores[scores > -np.inf]

    def reference(self):
        """Return marginals by sequential quadratic programming, and the best score."""
        states, scores = self.joint_states()
        nodes = np.arange(states.shape[1])
        counts = np.zeros((len(states), *self.share.shape))
        counts[np.arange(len(states))[:, None], nodes, states] = 1
        counts = counts.reshape(len(states), -1)
        share = np.where(np.isneginf(self.share), 0, self.share).ravel()
        a, c = self.target.ravel() + share / self.penalty, scores / self.penalty

        def value_grad(u):
            apart = u @ counts - a
            return 0.5 * apart @ apart - c @ u, counts @ apart - c

        start = np.full(len(states), 1 / len(states))
        one = {"type": "eq", "fun": lambda u: u.sum() - 1, "jac": lambda u: np.ones(len(u))}
        options = {"ftol": 1e-14, "maxiter": 1000}
        bounds = [(0, 1)] * len(states)
        found = minimize(value_grad, start, jac=True, bounds=bounds, constraints=one, method="SLSQP", options=options)
        return (found.x @ counts).reshape(self.share.shape), (scores + counts @ share).max()


def a_table(kind, rng):
    if kind == "binary":
        return 2 * rng.normal(size=(2, 2)), (2, 2)
    if kind == "pair":
        return rng.normal(size=(4, 3)), (4, 3)
    if kind == "triple":
        return rng.normal(size=(2, 3, 2)), (2, 3, 2)
    if kind == "forbidden":
        table = rng.normal(size=(3, 3))
        table[rng.random((3, 3)) < 0.4] = -np.inf
        table[1, 2] = 0.0
        return table, (3, 3)
    if kind == "sparse":
        states = np.unique(rng.integers(3, size=(6, 4)), axis=0)
        return SparseTable(states, rng.normal(size=len(states))), (3, 3, 3, 3)
    values = rng.choice([0.0, 0.7, -1.0, -np.inf], size=5)
    values[1] = 0.5
    return CountTable(values, rng.choice([0.0, -np.inf]), 1), (2, 3, 2, 2, 3)


@pytest.mark.parametrize("kind", ["binary", "pair", "triple", "forbidden", "sparse", "count"])
def test_quadratic_problems_against_a_general_solver(kind):
    for seed in range(6 if kind in ("sparse", "count") else 25):
        rng = np.random.default_rng(seed)
        table, n_states = a_table(kind, rng)
        one = OneFactor(table, n_states, rng, scale=[0.2, 1.0][seed % 2])
        marginals, best = one.solve()
        expected, expected_best = one.reference()
        assert best == pytest.approx(expected_best, abs=1e-12)
        assert_allclose(marginals, expected, atol=2e-5)
        assert_allclose(marginals.sum(axis=1), 1, atol=1e-12)
        # The active set of one problem is the start of the next.
        one.target = rng.uniform(size=one.target.shape) * np.isfinite(one.share)
        assert_allclose(one.solve()[0], one.reference()[0], atol=2e-5)


def test_counts_are_as_listed_joint_states():
    rng = np.random.default_rng(3)
    n_states = (3, 2, 4, 3)
    for table in (at_most_one(), exactly_one(), CountTable([0.0, 1.0, -np.inf, 0.3], -1.0, 1)):
        compact = OneFactor(table, n_states, np.random.default_rng(0))
        states = np.array(list(product(*map(range, n_states))))
        scores = compact.model.factor_scores(np.zeros(len(states), dtype=np.int64), states)
        written = OneFactor(scores.reshape(n_states), n_states, np.random.default_rng(0))
        assert compact.pieces.kind[0] == COUNTED
        for _ in range(5):
            compact.target[:] = written.target[:] = rng.uniform(size=compact.target.shape)
            assert_allclose(compact.solve()[0], written.solve()[0], atol=1e-8)


@given(factor_graphs(max_arity=4))
@settings(max_examples=40, deadline=None)
def test_factor_graphs_are_bounded_as_by_the_linear_program(model):
    best, relaxed = BruteForce().map(model).score, LinearProgram().map(model).bound
    found = solve(model, tol=1e-7, max_iter=20_000)
    assert found.bound >= best - 1e-9 * (1 + abs(best))
    assert found.score <= best + 1e-9 * (1 + abs(best))
    assert found.score == pytest.approx(score(model, found.labels))
    assert found.bound == pytest.approx(relaxed, rel=1e-6, abs=1e-6)
    assert_allclose(found.fractional.sum(axis=1), 1, atol=1e-9)
    assert found.fractional.min() >= -1e-9


def test_a_pairwise_model_and_its_factors_have_one_solution():
    for kind, extra in (("untied", {}), ("weighted", {"vary_states": True}), ("typed", {"forbidden": 0.2})):
        model = random_model("grid", 3, kind, seed=1, **extra)
        found, factors = solve(model, tol=1e-6), solve(factor_graph_of(model), tol=1e-6)
        assert found.bound == pytest.approx(factors.bound, abs=1e-4)
        assert_allclose(found.fractional, factors.fractional, atol=1e-3)


def test_the_fractional_solution_of_a_tight_relaxation_is_the_best_labeling():
    n_tight = 0
    for seed in range(6):
        model = random_model("grid", 3, "untied", seed=seed)
        relaxed = LinearProgram().map(model)
        if relaxed.certified:
            n_tight += 1
            assert_allclose(solve(model, tol=1e-6).fractional, relaxed.fractional, atol=1e-2)
    assert n_tight > 2
    tree = random_model("tree", 3, seed=0)
    found = AD3().map(tree)
    assert_array_equal(found.fractional.argmax(axis=1), found.labels)
    assert_array_equal(found.fractional.sum(axis=1), 1)


def test_a_frustrated_cycle_is_half_of_each():
    model = PairwiseModel(cycle(3), [[0.1, 0], [0, 0], [0, 0]], (1 - np.eye(2))[None])
    found = solve(model, tol=1e-7)
    assert_allclose(found.fractional, LinearProgram().map(model).fractional, atol=1e-3)
    # The optimum of the relaxation is 3.05, and labelings differ by tenths.
    assert found.bound == pytest.approx(3.0, abs=1e-9)


def test_multipliers_move_scores_and_add_none():
    model = random_model(lattice((4, 5)), 3, "weighted", scale=2.0, seed=4)
    found = solve(model, max_iter=20)
    slots = np.zeros(model.unary.shape)
    np.add.at(slots, model.graph.edges.ravel(), found.state.multipliers)
    assert_allclose(slots, 0, atol=1e-10)
    shares = (model.unary / model.graph.degree[:, None])[model.graph.edges]
    shares = shares + found.state.multipliers.reshape(shares.shape)
    total = np.zeros(model.unary.shape)
    np.add.at(total, model.graph.edges, shares)
    assert_allclose(total, model.unary, atol=1e-10)
    pairs = shares[:, 0, :, None] + shares[:, 1, None, :] + model.edge_tables()
    assert pairs.max(axis=(1, 2)).sum() >= LinearProgram().map(model).bound - 1e-9


def test_an_assignment_is_solved_through_its_constraints():
    n = 6
    gain = np.random.default_rng(0).normal(size=(n, n))
    node = np.arange(n * n).reshape(n, n)
    factors = [((node[i, j],), np.array([0, gain[i, j]])) for i in range(n) for j in range(n)]
    factors += [(nodes, exactly_one()) for nodes in (*node, *node.T)]
    found = solve(FactorGraph.from_factors(np.full(n * n, 2), factors))
    rows, columns = linear_sum_assignment(gain, maximize=True)
    assert found.score == pytest.approx(gain[rows, columns].sum())
    assert found.bound == pytest.approx(found.score, abs=1e-2)


def test_large_constraints_are_not_written_out():
    gain = np.random.default_rng(1).normal(size=300)
    factors = [((s,), np.array([0, gain[s]])) for s in range(300)] + [(range(300), at_most_one())]
    found = solve(FactorGraph.from_factors(np.full(300, 2), factors))
    assert found.certified
    assert np.flatnonzero(found.labels).tolist() == [int(np.argmax(gain))]


def test_warm_start_and_infeasible_factor_graphs():
    model = random_factor_graph(8, 14, 3, 3, seed=2)
    first = solve(model)
    again = AD3().map(model, init=first.state)
    assert again.n_iter <= max(1, first.n_iter / 2)
    assert again.score >= first.score
    one, other, alike = np.array([0, -np.inf]), np.array([-np.inf, 0]), np.where(np.eye(2) > 0, 0, -np.inf)
    factors = [((0,), one), ((0, 1), alike), ((1, 2), alike), ((2,), other)]
    with pytest.raises(ValueError, match="model is infeasible"):
        AD3().map(FactorGraph.from_factors([2, 2, 2], factors))


def test_wrong_penalty():
    with pytest.raises(ValueError, match="penalty must be positive"):
        AD3(penalty=0).map(random_model("grid", seed=0))


def test_a_count_of_a_state_that_no_node_has_is_a_constant():
    rng = np.random.default_rng(0)
    factors = [((s,), rng.normal(size=2)) for s in range(4)]
    factors += [((s, (s + 1) % 3), rng.normal(size=(2, 2))) for s in range(3)]
    model = FactorGraph.from_factors([2] * 4, [*factors, (range(4), CountTable([5.0, 1.0], default=3.0, state=7))])
    without = FactorGraph.from_factors([2] * 4, factors)
    for algorithm in (AD3(), LinearProgram()):
        found = algorithm.map(model)
        assert found.certified
        assert found.score == pytest.approx(BruteForce().map(without).score + 5.0)


def test_states_that_a_factor_forbids_given_fixed_nodes(recwarn):
    # Node 0 has one state left, so the factor forbids two states of node 1.
    table = np.zeros((2, 3, 2))
    table[1, :2] = -np.inf
    factors = [((0,), [-np.inf, 0.0]), ((1,), [2.0, 1.0, 0.0]), ((2,), [0.0, 1.0]), ((0, 1, 2), table)]
    factors += [((1, 2), np.random.default_rng(0).normal(size=(3, 2)))]
    model = FactorGraph.from_factors([2, 3, 2], factors)
    found = AD3(max_iter=20).map(model)
    assert found.score == pytest.approx(BruteForce().map(model).score)
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def planted_lattice(scale, dtype, seed):
    """Return a lattice whose tables forbid many pairs, but no pair of one labeling."""
    rng = np.random.default_rng(seed)
    graph, n_states = lattice((5, 6)), int(rng.integers(2, 5))
    labels = rng.integers(n_states, size=graph.n_nodes)
    tables = scale * rng.normal(size=(graph.n_edges, n_states, n_states))
    forbidden = rng.random(tables.shape) < rng.choice([0.0, 0.2, 0.4])
    forbidden[np.arange(graph.n_edges), labels[graph.edges[:, 0]], labels[graph.edges[:, 1]]] = False
    unary = scale * rng.normal(size=(graph.n_nodes, n_states))
    tables = np.where(forbidden, -np.inf, tables).astype(dtype)
    return PairwiseModel(graph, unary.astype(dtype), tables, np.arange(graph.n_edges)), labels


def constrained_chain(scale, dtype, seed):
    """Return a chain with constraints on blocks of nodes, and a labeling that meets them."""
    rng = np.random.default_rng(seed)
    blocks = [(tuple(range(first, first + 6)), exactly_one()) for first in range(0, 24, 6)]
    nodes = [((s,), (scale * rng.normal(size=2)).astype(dtype)) for s in range(24)]
    pairs = [((s, s + 1), (scale * rng.normal(size=(2, 2))).astype(dtype)) for s in range(23)]
    return FactorGraph.from_factors([2] * 24, nodes + pairs + blocks), np.arange(24) % 6 == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", range(9))
@pytest.mark.parametrize("make", [planted_lattice, constrained_chain])
def test_feasible_models_of_any_scale_are_never_called_infeasible(make, exponent, dtype):
    for seed in range(4):
        model, labels = make(10.0**exponent, dtype, seed)
        factors = factor_graph_of(model) if isinstance(model, PairwiseModel) else model
        for of, max_iter in ((model, 5), (factors, 100)):
            with convergence_left_to_caller():
                found = AD3(max_iter=max_iter).map(of)
            assert np.isfinite(found.score)
            assert found.bound >= score(of, labels) - 1e-5 * 10.0**exponent
            assert found.bound >= found.score - 1e-5 * 10.0**exponent
