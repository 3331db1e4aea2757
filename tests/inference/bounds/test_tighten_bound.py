"""Direct minimisation of the tree-reweighted bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import TABLE_KINDS, models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, SpanningTrees, covering_trees, lattice
from sklearn_crf.inference import BruteForce, TightenBound, TRWMessagePassing, convergence_left_to_caller
from sklearn_crf.inference.bounds._shared_bound import NodeShares, mutual_information
from sklearn_crf.inference.bounds._tighten_bound import SOLVERS
from sklearn_crf.models import PairwiseModel, score

PENDANT = Graph(6, [[0, 1], [2, 1], [2, 0], [2, 3], [4, 3], [5, 4]])


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize(("trees", "solver"), [("covering", "pqn"), ("uniform", "spg"), ("snakes", "spg"), (7, "pqn")])
def test_agrees_with_message_passing_at_the_same_edge_probabilities(trees, solver, kind):
    model = random_model("grid", 3, kind, seed=7)
    found = TightenBound(trees, solver, max_iter=3000, tol=1e-8).marginals(model)
    probabilities = found.state.trees.edge_probabilities
    other = TRWMessagePassing(probabilities, damping=0.3, max_iter=5000, tol=1e-12).marginals(model)
    assert found.converged
    assert found.bound == "upper"
    assert found.state.disagreement <= 1e-8
    assert found.log_z == pytest.approx(other.log_z, abs=1e-6)
    assert_allclose(found.unary, other.unary, atol=1e-6)
    assert_allclose(found.tables, other.tables, atol=1e-5)


@given(models(topologies=("grid", "cycle", "disconnected"), max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=25, deadline=None)
def test_bound_holds_after_any_number_of_iterations(model):
    exact = BruteForce().marginals(model).log_z
    tol = 1e-4 if model.dtype == np.float32 else 1e-9
    with convergence_left_to_caller():
        for max_iter in (1, 3, 30):
            found = TightenBound(max_iter=max_iter).marginals(model)
            assert found.bound == "upper"
            assert found.log_z >= exact - tol * (1 + abs(exact))
            assert_allclose(found.unary.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("solver", ["spg", "pqn"])
def test_bounds_hold_if_trees_only_forbid_states_together(solver):
    # The deviations of the trees reach 1e10, so that their sum loses six digits.
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = lattice((2, 3))
        unary, tables = 300 * rng.normal(size=(6, 2)), 300 * rng.normal(size=(7, 2, 2))
        labels = rng.integers(2, size=6)
        forbidden = rng.random(tables.shape) < 0.5
        forbidden[(np.arange(7), *labels[graph.edges].T)] = False
        tables[forbidden] = -np.inf
        model = PairwiseModel(graph, unary, tables, np.arange(7))
        with convergence_left_to_caller():
            result = TightenBound(solver=solver).marginals(model)
        found.append(np.abs(result.state.scores).max())
        assert result.log_z >= BruteForce().marginals(model).log_z - 1e-9
    assert max(found) > 1e9


def test_bridges():
    for seed in range(10):
        model = random_model(PENDANT, 2, "untied", scale=2.0, seed=seed)
        found = TightenBound().marginals(model)
        assert found.log_z >= BruteForce().marginals(model).log_z - 1e-9


def test_trees_of_different_probability():
    model = random_model("cycle", 3, "untied", seed=8)
    lists = [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3]]
    trees = SpanningTrees.from_edge_lists(model.graph, lists, [0.4, 0.3, 0.15, 0.1, 0.05])
    found = TightenBound(trees, max_iter=2000, tol=1e-9).marginals(model)
    other = TRWMessagePassing(trees.edge_probabilities, max_iter=3000, tol=1e-12).marginals(model)
    assert found.converged
    assert found.log_z == pytest.approx(other.log_z, abs=1e-9)
    assert_allclose(found.unary, other.unary, atol=1e-8)
    equal = TightenBound(lists, tol=1e-9).marginals(model)
    assert_allclose(equal.state.trees.weights, 0.2)


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
def test_shared_out_scores_add_up(structure, kind):
    model = random_model("grid", 2, kind, structure=structure, seed=9)
    trees = covering_trees(model.graph, 5).merged()
    scores = NodeShares(model, trees, map)
    rng = np.random.default_rng(0)
    x = scores.project(rng.normal(size=scores.size))
    assert_allclose(scores.project(x), x, atol=1e-12)
    # A projection is the nearest feasible vector, so its difference is orthogonal to all feasible directions.
    y = rng.normal(size=scores.size)
    assert (y - scores.project(y)) @ (x - scores.project(y)) == pytest.approx(0, abs=1e-9)
    of_nodes = model.unary + x.reshape(scores.shape) / scores.scale[:, None, None]
    labels = rng.integers(2, size=model.graph.n_nodes)
    tails, heads = labels[model.graph.edges].T
    of_edges = model.edge_tables()[np.arange(model.graph.n_edges), tails, heads] / trees.edge_probabilities
    shared = of_nodes[:, np.arange(len(labels)), labels].sum(axis=1) + trees.trees @ of_edges
    assert trees.weights @ shared == pytest.approx(score(model, labels), abs=1e-12)
    for group in scores.groups:
        number = np.flatnonzero(trees.trees[group.first])
        expected = model.edge_tables()[number] / trees.edge_probabilities[number, None, None]
        assert_allclose(group.model.edge_tables()[: len(number)], expected, atol=1e-12)


def test_gradient_is_the_derivative():
    model = random_model("grid", 2, "untied", seed=10)
    scores = NodeShares(model, covering_trees(model.graph, 4).merged(), map)
    rng = np.random.default_rng(1)
    x, direction = (scores.project(y) for y in rng.normal(size=(2, scores.size)))
    h = 1e-5
    numerical = (scores.value_grad(x + h * direction)[0] - scores.value_grad(x - h * direction)[0]) / (2 * h)
    assert numerical == pytest.approx(scores.value_grad(x)[1] @ direction, rel=1e-7)


def test_threads_and_groups_of_trees_give_the_same(monkeypatch):
    model = random_model(lattice((12, 12)), 2, "untied", seed=11)
    algorithm = TightenBound("snakes", max_iter=20)
    with convergence_left_to_caller():
        together = algorithm.marginals(model)
        monkeypatch.setattr("sklearn_crf.inference.bounds._tuning.NODES_AT_ONCE", 200)
        one, two = (algorithm.marginals(model, n_threads=n) for n in (1, 2))
    assert_array_equal(one.unary, two.unary)
    assert_array_equal(one.log_z_terms, two.log_z_terms)
    assert_allclose(one.unary, together.unary, atol=1e-9)


def test_warm_start():
    model = random_model("grid", 3, "untied", seed=12)
    algorithm = TightenBound(tol=1e-4)
    first = algorithm.marginals(model)
    again = algorithm.marginals(model, init=first.state)
    assert first.n_iter > 5
    assert again.n_iter == 0
    assert again.log_z == pytest.approx(first.log_z, abs=1e-12)
    with pytest.raises(ValueError, match="init must be the state"):
        algorithm.marginals(model, init=3)
    with pytest.raises(ValueError, match="init must be the state of a result for the same graph"):
        algorithm.marginals(random_model("cycle", 3, seed=0), init=first.state)


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_start_from_messages(kind):
    model = random_model("grid", 3, kind, seed=14)
    trees = covering_trees(model.graph, 5).merged()
    scores = NodeShares(model, trees, map)
    exact = BruteForce().marginals(model).log_z
    for max_iter in (1, 2, 2000):
        with convergence_left_to_caller():
            found = TRWMessagePassing(trees, max_iter=max_iter, tol=1e-13).marginals(model)
        x = scores.from_messages(found.state)
        assert_allclose(scores.project(x), x, atol=1e-12)
        assert scores.value_grad(x)[0] >= exact - 1e-9
    assert scores.value_grad(x)[0] == pytest.approx(found.log_z, abs=1e-9)
    assert np.abs(scores.value_grad(x)[1]).max() < 1e-9
    started = TightenBound(trees, start_sweeps=2000, tol=1e-6).marginals(model)
    assert started.n_iter < TightenBound(trees, tol=1e-6).marginals(model).n_iter / 2


@given(models(topologies=("grid", "cycle", "disconnected"), max_states=3))
@settings(max_examples=10, deadline=None)
def test_optimal_trees_never_rise(model):
    exact = BruteForce().marginals(model).log_z
    options = {"outer_iter": 6, "max_iter": 300, "tol": 1e-6}
    with convergence_left_to_caller():
        minimal = TightenBound(max_iter=300, tol=1e-6).marginals(model)
        harmonic = TightenBound("optimal", **options).marginals(model)
        armijo = TightenBound("optimal", outer_step="armijo", **options).marginals(model)
    for found in (harmonic, armijo):
        assert exact - 1e-9 * (1 + abs(exact)) <= found.log_z <= minimal.log_z + 1e-9 * (1 + abs(exact))
        assert found.bound == "upper"
    if not model.graph.is_forest:
        assert harmonic.log_z == harmonic.state.bounds.min()
        assert np.all(np.diff(armijo.state.bounds) <= 0)


def test_optimal_trees_close_the_gap_of_conditional_gradients():
    model = random_model("cycle", 2, "untied", seed=15)
    found = TightenBound("optimal", outer_iter=200, outer_step="armijo", tol=1e-3).marginals(model)
    assert found.converged
    # The bound is as low as the bound of the best distribution over the trees of a cycle, found by a general solver.
    rng = np.random.default_rng(0)
    lists = [np.delete(np.arange(5), e) for e in range(5)]
    for _ in range(20):
        weights = rng.dirichlet(np.ones(5))
        trees = SpanningTrees.from_edge_lists(model.graph, lists, weights)
        other = TightenBound(trees, max_iter=3000, tol=1e-4).marginals(model)
        assert found.log_z <= other.log_z + 1e-3 * abs(found.log_z)
    again = TightenBound("optimal", tol=1e-3).marginals(model, init=found.state)
    assert again.log_z <= found.log_z + 1e-9
    assert len(again.state.bounds) == 1


def test_bound_falls_by_the_mutual_information_of_an_edge():
    model = random_model("cycle", 3, "untied", seed=16)
    lists = [np.delete(np.arange(5), e) for e in range(5)]
    options = {"max_iter": 5000, "tol": 1e-9}

    def bound(weights):
        return TightenBound(SpanningTrees.from_edge_lists(model.graph, lists, weights), **options).marginals(model)

    h, direction = 1e-4, np.array([1, -1, 0, 0, 0])
    ahead, behind = (bound(0.2 + sign * h * direction).log_z for sign in (1, -1))
    at = bound(np.full(5, 0.2))
    pairs = TRWMessagePassing(at.state.trees, tol=1e-13, max_iter=3000).edge_marginals(model)
    # Moving weight from the tree without edge 1 to the tree without edge 0 lowers edge 0 and raises edge 1.
    expected = mutual_information(pairs) @ direction
    assert (ahead - behind) / (2 * h) == pytest.approx(expected, abs=1e-6)


def test_errors():
    model = random_model("cycle", 2, seed=13)
    with pytest.warns(ConvergenceWarning, match=r"stopped after 1 of outer_iter=1 added trees, .* by \d"):
        TightenBound("optimal", outer_iter=1, tol=1e-7).marginals(random_model("grid", 2, seed=13))
    for name, value in (("solver", "newton"), ("outer_step", "golden"), ("start_sweeps", -1), ("outer_iter", -1)):
        with pytest.raises(ValueError, match=name):
            TightenBound(**{name: value}).marginals(model)
    with pytest.warns(ConvergenceWarning, match="TightenBound stopped after 1"):
        TightenBound(max_iter=1, tol=0).marginals(model)
    with pytest.raises(ValueError, match="uncovered"):
        TightenBound([[0, 1, 2, 3]]).marginals(model)
    with pytest.raises(ValueError, match="rule"):
        TightenBound("few").marginals(model)
    with pytest.raises(ValueError, match="trees must be"):
        TightenBound(1.5).marginals(model)
    with pytest.raises(ValueError, match="lattice"):
        TightenBound("snakes").marginals(model)
    with pytest.raises(ValueError, match="model's graph"):
        TightenBound(covering_trees(lattice((2, 2)))).marginals(model)
    unary = np.zeros((5, 2))
    unary[0, 0] = unary[2, 1] = -np.inf
    alike = np.where(np.eye(2, dtype=bool), 0, -np.inf)[None]
    with pytest.raises(ValueError, match="model is infeasible: a spanning tree"):
        TightenBound().marginals(type(model)(model.graph, unary, alike))


def test_a_start_by_messages_that_diverge():
    # Strong couplings of both signs on a graph with many cycles: plain sweeps oscillate forever, far above the bound.
    spin = np.array([-1.0, 1.0])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pairs = np.stack(np.triu_indices(20, 1), axis=1)
        graph = Graph(20, np.sort(rng.permutation(pairs)[:100], axis=1))
        unary, weight = rng.normal(size=(20, 1)) * spin, 3 * rng.normal(size=100)
        model = PairwiseModel(graph, unary, np.outer(spin, spin)[None], edge_weight=weight)
        with convergence_left_to_caller():
            even = TightenBound(max_iter=1).marginals(model)
            found = TightenBound(start_sweeps=1000, max_iter=1).marginals(model)
            plain = TRWMessagePassing("covering", max_iter=1000, schedule="sequential").marginals(model)
            damped = TRWMessagePassing("covering", max_iter=1000, damping=0.5).marginals(model)
        assert not plain.converged
        assert plain.log_z > 1.1 * even.log_z
        assert found.log_z <= damped.log_z * (1 + 1e-4) < even.log_z


@pytest.mark.parametrize("solver", ["spg", "pqn"])
@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_bounds_of_strong_scores_are_bounds(scale, solver):
    for seed in range(12):
        model = random_model(
            Graph(4, [[s, t] for s in range(4) for t in range(s)]), 2, "untied", scale=scale, seed=seed
        )
        exact = BruteForce().marginals(model).log_z
        with convergence_left_to_caller():
            for trees in ("covering", "uniform"):
                found = TightenBound(trees, solver, max_iter=60).marginals(model)
                assert found.bound == "upper"
                assert found.log_z >= exact - 1e-9 * (1 + abs(exact))


@pytest.mark.parametrize("solver", ["spg", "pqn"])
def test_no_tolerance_ends_after_max_iter(solver):
    for seed in range(6):
        model = random_model(lattice((2, 3)), 2, "untied", scale=10.0, seed=seed)
        with convergence_left_to_caller():
            found = TightenBound(solver=solver, tol=0, max_iter=40).marginals(model)
        assert found.n_iter <= 40
        assert found.log_z >= BruteForce().marginals(model).log_z - 1e-9


def test_a_bound_is_that_of_scores_that_add_up_wherever_the_solver_ends(monkeypatch):
    model = random_model("grid", 2, "untied", seed=0)
    monkeypatch.setitem(
        SOLVERS,
        "spg",
        lambda fun, x, **_: OptimizeResult(x=x - 7.0, nit=1, success=False, residual=1.0, loss_curve=np.zeros(2)),
    )
    with convergence_left_to_caller():
        found = TightenBound().marginals(model)
    assert found.log_z >= BruteForce().marginals(model).log_z
