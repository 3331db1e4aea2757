"""The cycle relaxation of models of two states: bounds, proofs, and its use by the automatic choice."""

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, random_factor_graph
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    TRWS,
    AutoMap,
    BruteForce,
    ClusterTightening,
    CycleRelaxation,
    JunctionTree,
    LinearProgram,
    convergence_left_to_caller,
)
from sklearn_crf.models import PairwiseModel, factor_graph_of, score

SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])


def spins(graph, seed, field=0.0, strength=1.0):
    rng = np.random.default_rng(seed)
    unary = field * rng.normal(size=(graph.n_nodes, 2))
    return PairwiseModel(graph, unary, SPINS[None], edge_weight=strength * rng.normal(size=graph.n_edges))


def small_model(seed):
    """Return a random model of up to 8 nodes, with tables of any scale, some forbidden states, and either precision."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(1, 9))
    pairs = np.stack(np.triu_indices(n_nodes, 1), axis=1)
    graph = Graph(n_nodes, pairs[rng.random(len(pairs)) < rng.random()])
    unary = rng.choice([0.0, 1.0]) * rng.normal(size=(n_nodes, 2))
    tables = rng.choice([0.1, 1.0, 10.0]) * rng.normal(size=(graph.n_edges, 2, 2))
    if seed % 3 == 0:
        tables[rng.random(tables.shape) < 0.1] = -np.inf
    if seed % 5 == 0:
        unary[np.arange(n_nodes), rng.integers(2, size=n_nodes)] = np.where(rng.random(n_nodes) < 0.2, -np.inf, 0.0)
    dtype = rng.choice([np.float32, np.float64])
    return PairwiseModel(graph, unary.astype(dtype), tables.astype(dtype), np.arange(graph.n_edges))


@pytest.mark.parametrize("seed", range(60))
def test_bounds_and_proofs_hold_against_enumeration(seed):
    model = small_model(seed)
    try:
        best = BruteForce().map(model).score
    except ValueError:
        with pytest.raises(ValueError, match="infeasible"):
            CycleRelaxation().map(model)
        return
    found = CycleRelaxation().map(model)
    rounding = 1e-6 * max(1.0, abs(best))
    assert found.score == pytest.approx(score(model, found.labels))
    assert found.score <= best + rounding
    assert found.bound >= best - rounding
    if found.certified:
        assert found.score == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_planar_spins_without_fields_are_solved(seed):
    model = spins(lattice((9, 11)), seed)
    found = CycleRelaxation().map(model)
    assert found.certified
    assert found.converged
    assert found.score == pytest.approx(JunctionTree().map(model).score)
    assert TRWS().map(model).bound > found.bound + 1.0


def test_a_proof_does_not_depend_on_names_of_states_or_nodes():
    model = spins(lattice((6, 6)), 3, field=0.3)
    found = CycleRelaxation().map(model)
    renamed = PairwiseModel(model.graph, model.unary[:, ::-1], model.tables, edge_weight=model.edge_weight)
    np.testing.assert_array_equal(CycleRelaxation().map(renamed).labels, 1 - found.labels)
    order = np.random.default_rng(0).permutation(36)
    place = np.argsort(order)
    moved = PairwiseModel(
        Graph(36, place[model.graph.edges]), model.unary[order], model.tables, edge_weight=model.edge_weight
    )
    np.testing.assert_array_equal(CycleRelaxation().map(moved).labels, found.labels[order])


def test_models_without_choice_and_of_one_state():
    nothing = PairwiseModel(Graph(3, []), np.zeros((3, 2)), np.zeros((0, 2, 2)), np.zeros(0, dtype=np.int32))
    assert CycleRelaxation().map(nothing).certified
    one = PairwiseModel(lattice((4,)), np.ones((4, 1)), np.ones((1, 1, 1)))
    assert CycleRelaxation().map(one).score == 7.0


def test_what_it_does_not_take_is_an_error():
    with pytest.raises(ValueError, match="needs nodes with two states, got 3: use ClusterTightening"):
        CycleRelaxation().map(PairwiseModel(lattice((4,)), np.zeros((4, 3)), np.eye(3)[None]))
    large = PairwiseModel(lattice((300, 300)), np.zeros((90_000, 2)), SPINS[None])
    assert not CycleRelaxation.fits(large)
    with pytest.raises(ValueError, match=r"269400 nodes, edges and .* supports at most 100000"):
        CycleRelaxation().map(large)


def test_too_few_programs_warn_and_still_bound():
    model = spins(lattice((20, 20)), 1)
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        first = CycleRelaxation(max_iter=1).map(model)
    whole = CycleRelaxation().map(model)
    assert not first.converged
    assert first.score <= whole.score == pytest.approx(whole.bound)
    assert whole.bound < first.bound


@pytest.mark.parametrize("field", [0.0, 0.5])
def test_automatic_choices_prove_grids_of_spins(field):
    model = spins(lattice((25, 25)), 2, field=field)
    found = AutoMap().map(model)
    assert found.certified
    assert "CycleRelaxation" in found.method
    for same in (model, factor_graph_of(model)):
        proven = ClusterTightening(max_work=1e8).map(same)
        assert proven.certified
        assert proven.n_iter < 30  # linear programs, not sweeps
        assert proven.score == pytest.approx(found.score)


@pytest.mark.parametrize("graph", [Graph(3, [[0, 1]]), Graph(5, [[1, 2], [2, 3], [1, 3]]), Graph(4, [[0, 1], [2, 3]])])
def test_nodes_without_edges(graph):
    for field in (0.0, 1.0):
        unary = np.tile([0.0, field], (graph.n_nodes, 1))
        model = PairwiseModel(graph, unary, -np.eye(2)[None])
        best = BruteForce().map(model).score
        for algorithm in (CycleRelaxation(), ClusterTightening()):
            found = algorithm.map(model)
            assert found.certified
            assert found.score == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
def test_factor_graphs_reach_the_optimum(seed):
    constraint = (None, None, *CONSTRAINTS)[seed % 5]
    model = random_factor_graph(7, 10, 4, 2, forbidden=0.2 * (seed % 2), constraint=constraint, seed=seed)
    best, start = BruteForce().map(model).score, LinearProgram().map(model).bound
    with convergence_left_to_caller():
        bounds = [CycleRelaxation(max_iter=n).map(model).bound for n in (1, 2, 200)]
    assert best - 1e-7 <= bounds[2] <= bounds[1] + 1e-9 <= bounds[0] + 2e-9 <= start + 1e-6
    assert CycleRelaxation().map(model).score == pytest.approx(best, abs=1e-9)


def test_work_ends_after_the_program_that_exceeds_it():
    model = spins(lattice((20, 20)), 1)
    with convergence_left_to_caller():
        first, one, all_programs = (
            CycleRelaxation(**given).map(model) for given in ({"max_work": 0}, {"max_iter": 1}, {})
        )
    assert first.n_iter == 1 < all_programs.n_iter
    assert first.bound == one.bound > all_programs.bound


def test_triples_need_more_than_the_local_polytope():
    model = random_factor_graph(7, 10, 4, 2, constraint=CONSTRAINTS[0], seed=12)
    start, found = LinearProgram().map(model), CycleRelaxation().map(model)
    assert start.bound - found.bound > 0.5
    assert found.certified
