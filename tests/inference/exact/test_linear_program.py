"""LinearProgram: bounds, cases that are tight in theory, and compact constraints compared with dense tables."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph
from hypothesis import given, settings
from model_strategies import cycle, models, random_model
from scipy.optimize import linear_sum_assignment

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, JunctionTree, LinearProgram
from sklearn_crf.inference.exact import _linear_program as module
from sklearn_crf.inference.exact._linear_program import _count_variables, _Program
from sklearn_crf.inference.exact._local_polytope import LocalPolytope
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

few = settings(max_examples=40, deadline=None)


def solve(model):
    found = LinearProgram().map(model)
    best = BruteForce().map(model).score
    assert found.bound >= best - 1e-9 * max(1, abs(best))
    assert found.score <= best + 1e-9 * max(1, abs(best))
    assert found.score == score(model, found.labels)
    np.testing.assert_allclose(found.fractional.sum(axis=1), 1, atol=1e-9)
    assert found.fractional.min() >= 0
    if found.certified:
        np.testing.assert_allclose(found.score, best, rtol=1e-8, atol=1e-8)
    return found


@few
@given(models())
def test_pairwise_models_are_bounded(model):
    found = solve(model)
    if model.graph.is_forest:
        assert found.certified


@few
@given(factor_graphs(max_arity=4))
def test_factor_graphs_are_bounded(model):
    solve(model)


@pytest.mark.parametrize("seed", range(5))
def test_submodular_models_are_solved(seed):
    model = random_model(lattice((6, 7)), 2, "weighted", structure="submodular", seed=seed)
    found = LinearProgram().map(model)
    assert found.certified
    np.testing.assert_allclose(found.score, JunctionTree().map(model).score, rtol=1e-10)
    assert set(np.unique(found.fractional.round(9))) <= {0, 1}


def test_a_frustrated_cycle_has_the_known_fractional_solution():
    different = np.array([[0.0, 1.0], [1.0, 0.0]])
    model = PairwiseModel(cycle(3), np.zeros((3, 2)), different[None])
    found = LinearProgram().map(model)
    np.testing.assert_allclose(found.bound, 3)
    np.testing.assert_allclose(found.fractional, 0.5)
    assert found.score == 2
    assert not found.certified
    assert found.gap == pytest.approx(1)


def written_out(model):
    """Return a factor graph of the same scores, with every table dense."""
    factors = [
        (model.scope[a:b], model.dense_table(f))
        for f, (a, b) in enumerate(zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True))
    ]
    return FactorGraph.from_factors(model.n_states, factors)


@pytest.mark.parametrize("seed", range(20))
def test_compact_tables_have_the_relaxation_of_written_out_ones(seed):
    rng = np.random.default_rng(seed)
    n = 6
    factors = [((s,), rng.normal(size=3)) for s in range(n)]
    factors += [((s, t), rng.normal(size=(3, 3))) for s in range(n) for t in range(s)]
    values = rng.choice([0.0, 0.5, 2.0, -np.inf], size=4)
    values[2] = 1.0
    factors.append((np.arange(n), CountTable(values, rng.choice([0.0, -np.inf]), int(rng.integers(3)))))
    factors.append((rng.permutation(n)[:4], CONSTRAINTS[seed % 3]()))
    model = FactorGraph.from_factors(np.full(n, 3), factors)
    compact, full = LinearProgram().map(model), LinearProgram().map(written_out(model))
    np.testing.assert_allclose(compact.bound, full.bound, rtol=1e-9)


def test_sparse_tables_have_the_relaxation_of_written_out_ones():
    for seed in range(10):
        model = random_factor_graph(6, 12, 4, 3, seed=seed)
        np.testing.assert_allclose(
            LinearProgram().map(model).bound, LinearProgram().map(written_out(model)).bound, rtol=1e-9
        )


def test_an_assignment_is_solved_through_its_constraints():
    """Each row and each column has exactly one node: the relaxation is the assignment polytope, which is integral."""
    n = 7
    gain = np.random.default_rng(0).normal(size=(n, n))
    node = np.arange(n * n).reshape(n, n)
    one = exactly_one()
    factors = [((node[i, j],), np.array([0, gain[i, j]])) for i in range(n) for j in range(n)]
    factors += [(row, one) for row in node] + [(column, one) for column in node.T]
    found = LinearProgram().map(FactorGraph.from_factors(np.full(n * n, 2), factors))
    rows, columns = linear_sum_assignment(gain, maximize=True)
    np.testing.assert_allclose(found.score, gain[rows, columns].sum())
    assert found.certified
    assert np.array_equal(np.flatnonzero(found.labels), node[rows, columns])


def test_large_constraints_are_not_written_out():
    gain = np.random.default_rng(1).normal(size=2000)
    factors = [((s,), np.array([0, gain[s]])) for s in range(2000)] + [(range(2000), at_most_one())]
    found = LinearProgram().map(FactorGraph.from_factors(np.full(2000, 2), factors))
    assert found.certified
    assert np.flatnonzero(found.labels).tolist() == [int(np.argmax(gain))]


def test_large_sparse_tables_are_not_written_out():
    states = np.random.default_rng(2).integers(4, size=(6, 30))
    table = SparseTable(states, np.arange(6.0))
    found = LinearProgram().map(FactorGraph.from_factors(np.full(30, 4), [(range(30), table)]))
    assert found.certified
    assert found.labels.tolist() == states[5].tolist()


def test_rounding_respects_forbidden_pairs():
    # Neighbours must differ: all values of the relaxation are one half, and plain rounding would give forbidden labels.
    different = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    model = PairwiseModel(lattice((4, 4)), np.zeros((16, 2)), different[None])
    found = LinearProgram().map(model)
    assert found.score == 0
    assert found.certified


def test_deciding_nodes_one_by_one_finds_allowed_labels():
    """Eight queens: nearly all labelings are forbidden, including the results of plain rounding."""
    n = 8
    queens = Graph(n, np.stack(np.triu_indices(n, 1), axis=1))
    a, b = np.indices((n, n))
    tables = [np.where((a == b) | (np.abs(a - b) == j - i), -np.inf, 0.0) for i, j in queens.edges]
    unary = np.random.default_rng(2).normal(size=(n, n))
    model = PairwiseModel(queens, unary, np.array(tables), np.arange(len(tables)))
    found = LinearProgram().map(model)
    assert np.isfinite(found.score)
    assert sorted(found.labels) == list(range(n))


def test_float32_and_other_methods():
    model = random_model("grid", 3, dtype=np.float32, seed=2)
    bounds = [LinearProgram(method=method).map(model).bound for method in ("highs", "highs-ds", "highs-ipm")]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-7)


def test_no_nodes_and_no_choice():
    empty = PairwiseModel(Graph(0, []), np.zeros((0, 2)), np.zeros((1, 2, 2)))
    assert LinearProgram().map(empty).score == 0
    decided = PairwiseModel(Graph(2, [[0, 1]]), [[1.0, -np.inf], [-np.inf, 2.0]], np.full((1, 2, 2), 0.5))
    found = LinearProgram().map(decided)
    assert found.labels.tolist() == [0, 1]
    assert found.certified
    assert found.score == 3.5


def test_size_is_known_before_the_program_is_built():
    for structure in ("full", "potts"):
        for seed in range(10):
            model = random_model("grid", 3, "untied", structure=structure, vary_states=seed % 2 == 0, seed=seed)
            rng = np.random.default_rng(seed)
            unary = np.where(rng.random(model.unary.shape) < 0.2, -np.inf, model.unary)
            unary[:, 0] = 0
            tables = np.where(rng.random(model.tables.shape) < 0.2, -np.inf, model.tables)
            tables[:, :, 0, 0] = 0
            model = replace(model, unary=unary, tables=tables)
            built = _Program(LocalPolytope(factor_graph_of(model))).n_variables
            assert _count_variables(model) == built
            with pytest.raises(ValueError, match=f"model needs {built} variables"):
                LinearProgram(max_variables=built - 1).map(model)


def test_errors():
    model = random_model("grid", 3, seed=0)
    with pytest.raises(ValueError, match="more than max_variables=10"):
        LinearProgram(max_variables=10).map(model)
    with pytest.raises(ValueError, match="does not support task 'marginals'"):
        LinearProgram().marginals(model)
    one, other = np.array([0, -np.inf]), np.array([-np.inf, 0])
    equal = np.where(np.eye(2) > 0, 0, -np.inf)
    for factors in (
        [((0,), one), ((0,), other)],
        [((0,), one), ((1,), other), ((0, 1), equal)],
        [((0,), one), ((0, 1), equal), ((1, 2), equal), ((2,), other)],
        [((0, 1, 2), CountTable([0.0, -np.inf], 0.0)), ((0,), other), ((1,), one), ((2,), one)],
        [((0, 1, 2), SparseTable([[1, 1, 1]], [0.0])), ((0,), one)],
    ):
        with pytest.raises(ValueError, match="model is infeasible"):
            LinearProgram().map(FactorGraph.from_factors([2, 2, 2], factors))


def test_a_labeling_of_forbidden_score_is_not_certified():
    found = LinearProgram().map(random_model("grid", seed=0))
    assert not found._replace(score=-np.inf).certified


def test_costs_are_scaled_down_where_the_solver_fails(monkeypatch):
    largest, linprog = [], module.linprog

    def failing(cost, **problem):
        largest.append(np.abs(cost).max())
        found = linprog(cost, **problem)
        if len(largest) == 1:
            found.status = 4
        return found

    monkeypatch.setattr(module, "linprog", failing)
    model = random_model("grid", 3, seed=0, scale=1e9)
    assert LinearProgram().map(model).score == pytest.approx(JunctionTree().map(model).score)
    assert largest[0] > 2**20 > 2**10 >= largest[1]
