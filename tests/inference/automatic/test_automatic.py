"""Choices of "auto": exact whenever affordable, and marked as such."""

import gc
import warnings
import weakref
from itertools import combinations

import numpy as np
import pytest
from model_strategies import LOOPY, TABLE_KINDS, TOPOLOGIES, random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import (
    AD3,
    ICM,
    MPLP,
    TRWS,
    AlphaBetaSwap,
    AlphaExpansion,
    AutoMap,
    AutoMarginals,
    BruteForce,
    DualDecomposition,
    GraphCut,
    IncMP,
    JunctionTree,
    LoopyBP,
    MeanField,
    NormProductBP,
    TightenBound,
    TreeInference,
    TRWMessagePassing,
    convergence_left_to_caller,
    exact_inference,
    fuse_labelings,
)
from sklearn_crf.inference._local_search import search_problem
from sklearn_crf.kernels.local.local import SearchWorkspace, change_costs
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of, score

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def spin_glass(shape, seed, coupling=1.0, connectivity=1):
    """Return a grid of two states with couplings of both signs."""
    rng = np.random.default_rng(seed)
    grid = lattice(shape, connectivity=connectivity)
    weight = coupling * rng.normal(size=grid.n_edges)
    return PairwiseModel(grid, 0.5 * rng.normal(size=(grid.n_nodes, 2)), SPIN[None], edge_weight=weight)


def clique(n_nodes):
    return Graph(n_nodes, list(combinations(range(n_nodes), 2)))


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_exact_on_everything_small(topology, kind):
    for n_columns, extra in ((2, {}), (3, {"forbidden": 0.25}), (3, {"vary_states": True, "dtype": np.float32})):
        model = random_model(topology, n_columns, kind, scale=2.0, seed=5, **extra)
        tol = 1e-9 if model.dtype == np.float64 else 1e-3
        exact, best = BruteForce(2**19).marginals(model), BruteForce(2**19).map(model)
        for taken in (model, factor_graph_of(model)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found, labeling = AutoMarginals().marginals(taken), AutoMap().map(taken)
            assert found.bound == "exact"
            assert_allclose(found.unary[:, : exact.unary.shape[1]], exact.unary[:, : found.unary.shape[1]], atol=tol)
            assert found.log_z == pytest.approx(exact.log_z, abs=tol, rel=tol)
            assert labeling.score == pytest.approx(best.score, abs=tol, rel=tol)
            assert labeling.certified


def test_exact_where_messages_are_far_off():
    triangle = PairwiseModel(Graph(3, [[0, 1], [1, 2], [2, 0]]), [[0.0, 0.5], [0.0, 0.0], [0.1, 0.0]], [3 * SPIN])
    exact = BruteForce().marginals(triangle)
    assert np.abs(LoopyBP().marginals(triangle).unary - exact.unary).max() > 0.05
    assert_allclose(AutoMarginals().marginals(triangle).unary, exact.unary, atol=1e-12)
    for seed in range(10):
        model = random_model(clique(14), 2, "untied", seed=seed, scale=1.5)
        assert AutoMap().map(model).score == pytest.approx(BruteForce().map(model).score)


@pytest.mark.parametrize("as_factors", [False, True])
def test_components_are_judged_alone(as_factors):
    parts = [spin_glass((4, 4), 0), spin_glass((20, 20), 1, 0.3), spin_glass((5,), 2)]
    joined = PairwiseModel(
        build_disjoint_union([part.graph for part in parts]),
        np.concatenate([part.unary for part in parts]),
        parts[0].tables,
        edge_weight=np.concatenate([part.edge_weight for part in parts]),
    )
    if as_factors:
        parts, joined = [factor_graph_of(part) for part in parts], factor_graph_of(joined)
    auto = AutoMarginals(tol=1e-7)
    alone, together = [auto.marginals(part) for part in parts], auto.marginals(joined)
    assert together.method == "JunctionTree, LoopyBP"
    assert_allclose(together.unary, np.concatenate([found.unary for found in alone]), atol=1e-5)
    assert together.log_z == pytest.approx(sum(found.log_z for found in alone), rel=1e-6)
    assert together.log_z_terms.sum() == pytest.approx(together.log_z)
    again = auto.marginals(joined, init=together.state)
    assert again.n_iter <= 2
    best, bests = AutoMap().map(joined), [AutoMap().map(part) for part in parts]
    assert best.score >= sum(found.score for found in bests) - 1e-9
    assert best.bound >= best.score


def test_method_names_what_was_used():
    assert AutoMarginals().marginals(spin_glass((5,), 0)).method == "TreeInference"
    assert AutoMarginals().marginals(spin_glass((4, 4), 0)).method == "JunctionTree"
    assert AutoMarginals().marginals(spin_glass((20, 20), 0, 0.3)).method == "LoopyBP"
    assert AutoMap().map(spin_glass((3, 3), 0)).method == "BruteForce"
    assert AutoMap().map(spin_glass((4, 4), 0)).method == "JunctionTree"
    assert LoopyBP().map(spin_glass((5,), 0)).method == "LoopyBP"
    assert TreeInference().marginals(spin_glass((3,), 0)).method == "TreeInference"


def test_messages_that_do_not_settle_are_averaged():
    errors = {"auto": 0.0, "plain": 0.0, "damped": 0.0}
    for seed in range(6):
        model = spin_glass((10, 10), seed, 2.0)
        exact = JunctionTree().marginals(model).unary
        with convergence_left_to_caller():
            plain, damped = LoopyBP().marginals(model), LoopyBP(damping=0.5).marginals(model)
        with pytest.warns(UserWarning, match='did not converge in 200 sweeps.* inference="trw"'):
            found = AutoMarginals(budget=0.0)._run_belief_propagation(model, None, 1)
        assert found.method == "LoopyBP(damping=0.5), averaged"
        assert not found.converged
        assert_allclose(found.unary.sum(axis=1), 1)
        for name, result in (("auto", found), ("plain", plain), ("damped", damped)):
            errors[name] += np.abs(result.unary - exact).mean()
    assert errors["auto"] < 0.95 * min(errors["plain"], errors["damped"]), errors


def test_samples_are_exact_where_marginals_are():
    model = spin_glass((3, 3), 0)
    drawn = AutoMarginals().sample(model, 4000, random_state=0)
    assert_allclose((drawn == 1).mean(axis=0), BruteForce().marginals(model).unary[:, 1], atol=0.04)


@pytest.mark.parametrize("topology", LOOPY)
def test_identical_for_any_number_of_threads(topology):
    model = random_model(topology, 3, "untied", seed=3)
    one, two = (AutoMarginals().marginals(model, n_threads=k) for k in (1, 2))
    assert_array_equal(one.unary, two.unary)


def truncated_linear(shape, n_states, seed):
    rng = np.random.default_rng(seed)
    grid, states = lattice(shape), np.arange(n_states)
    table = -0.3 * np.minimum(np.abs(states[:, None] - states), 3.0)
    return PairwiseModel(grid, rng.normal(size=(grid.n_nodes, n_states)), table[None])


HARD = {
    "spin glass": lambda: spin_glass((20, 20), 0),
    "truncated linear": lambda: truncated_linear((15, 15), 6, 0),
    "any tables": lambda: random_model(lattice((10, 10)), 6, "untied", seed=0),
    "any tables, some forbidden": lambda: random_model(lattice((10, 10)), 6, "untied", forbidden=0.1, seed=0),
    "repelling": lambda: random_model(lattice((12, 12)), 6, "weighted", structure="potts", seed=0),
    "factors of three": lambda: factors_of_three(40, 30, 0),
}


def factors_of_three(n_nodes, n_factors, seed):
    rng = np.random.default_rng(seed)
    unary = [((s,), rng.normal(size=4)) for s in range(n_nodes)]
    scopes = [tuple(map(int, rng.choice(n_nodes, 3, replace=False))) for _ in range(4 * n_factors)]
    return FactorGraph.from_factors([4] * n_nodes, [*unary, *((scope, rng.normal(size=(4,) * 3)) for scope in scopes)])


def improves(model, labels):
    """Return whether a change of one node improves the score."""
    best = score(model, labels)
    n_states = np.full(len(labels), model.n_columns) if getattr(model, "n_states", None) is None else model.n_states
    for node, k in enumerate(n_states):
        for state in range(k):
            changed = labels.copy()
            changed[node] = state
            if score(model, changed) > best + 1e-9:
                return True
    return False


@pytest.mark.parametrize("name", HARD)
def test_the_best_labeling_is_no_worse_than_that_of_any_algorithm(name):
    model = HARD[name]()
    found = AutoMap().map(model)
    others = [LoopyBP(max_iter=30), LoopyBP(max_iter=30, damping=0.5), MPLP(max_iter=30), AD3(max_iter=30)]
    if isinstance(model, PairwiseModel):
        others += [ICM(n_restarts=5, random_state=0), TRWS(max_iter=30)]
    with convergence_left_to_caller():
        for other in others:
            assert found.score >= other.map(model).score - 1e-9, other
    assert found.bound >= found.score
    assert found.score == pytest.approx(score(model, found.labels))
    assert found.converged
    assert not improves(model, found.labels)


def test_frustrated_grids_are_searched():
    for seed in range(2):
        # Eight neighbours: too many edges for the relaxation over cycles.
        model, auto = spin_glass((13, 13), seed, connectivity=2), AutoMap(budget="fast")
        found, best = auto.map(model), JunctionTree().map(model).score
        assert "LargeNeighborhoodSearch" in found.method
        assert best - 0.003 * abs(best) <= found.score <= best + 1e-9
        shifted = auto.map(PairwiseModel(model.graph, model.unary + 100.0, model.tables, None, model.edge_weight))
        assert "LargeNeighborhoodSearch" in shifted.method
    threaded = auto.map(model, n_threads=3)
    assert_array_equal(threaded.labels, found.labels)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_many_states_of_few_nodes_are_eliminated_over_the_likeliest(forbidden, monkeypatch):
    # Branch and bound finds and proves the optimum of all models that elimination can solve.
    monkeypatch.setattr("sklearn_crf.inference.automatic._tuning.FIRST_BRANCHES", 0)
    monkeypatch.setattr("sklearn_crf.inference.automatic._tuning.BRANCHES", 0)
    rng, grid = np.random.default_rng(2), lattice((4, 4))
    tables = rng.normal(size=(grid.n_edges, 24, 24))
    tables[rng.random(tables.shape) < forbidden] = -np.inf
    unary = rng.normal(size=(16, 24))
    model = PairwiseModel(grid, unary, tables, np.arange(grid.n_edges))
    auto = AutoMap(budget="fast")
    assert exact_inference(model, budget="fast") is None
    before = unary.copy(), tables.copy()
    found, best = auto.map(model), JunctionTree().map(model).score
    assert "elimination over likely states" in found.method
    assert found.score == pytest.approx(best)
    assert found.bound >= best - 1e-9
    for array, kept in zip((unary, tables), before, strict=True):
        assert_array_equal(array, kept)
    assert_array_equal(auto.map(model, n_threads=3).labels, found.labels)


@pytest.mark.parametrize("as_factors", [False, True])
def test_labels_that_the_bound_nearly_proves_are_not_searched(as_factors):
    model = truncated_linear((15, 15), 6, 2)
    found = AutoMap().map(factor_graph_of(model) if as_factors else model)
    assert found.bound - found.score < 0.01
    assert "LargeNeighborhoodSearch" not in found.method
    assert "LargeNeighborhoodSearch" not in AutoMap(bounded=True).map(spin_glass((15, 15), 0)).method


def test_cuts_label_two_states_in_training_where_they_prove_nearly_all():
    rng, grid = np.random.default_rng(0), lattice((50, 50))
    weight = rng.normal(loc=1.0, scale=0.8, size=grid.n_edges)
    model = PairwiseModel(grid, 2.0 * rng.normal(size=(2500, 2)), [np.eye(2)], edge_weight=weight)
    found, cut = AutoMap(bounded=True).map(model), GraphCut("qpbo").map(model)
    assert set(found.method.split(" + ")) <= {"GraphCut", "fusion"}
    assert cut.score <= found.score == pytest.approx(score(model, found.labels))
    assert found.score <= found.bound <= cut.bound + 1e-9
    # With couplings of both signs, branch and bound proves little, and all other algorithms are used.
    assert "LoopyBP" in AutoMap(bounded=True).map(spin_glass((50, 50), 0)).method


@pytest.mark.parametrize("name", HARD)
def test_a_former_labeling_is_never_lost(name):
    model = HARD[name]()
    first = AutoMap().map(model)
    again = AutoMap().map(model, init=first.state)
    assert again.score >= first.score - 1e-9
    assert again.method.count("+") <= first.method.count("+")


@pytest.mark.parametrize(
    "algorithm",
    [
        TRWS(max_iter=3),
        MPLP(max_iter=3),
        LoopyBP(max_iter=3),
        TRWMessagePassing(max_iter=3),
        NormProductBP(max_iter=3),
        AlphaExpansion(1, nonsubmodular="truncate"),
        MeanField(max_iter=3),
        AD3(max_iter=3),
        DualDecomposition(max_iter=3),
        IncMP(max_iter=3),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_no_single_change_improves_a_labeling(algorithm):
    for seed in range(3):
        model = random_model(lattice((6, 6)), 3, "untied", seed=seed, scale=2.0)
        with convergence_left_to_caller():
            assert not improves(model, algorithm.map(model).labels)


def test_climbing_is_an_option():
    gained = 0
    for seed in range(5):
        model = random_model(lattice((6, 6)), 3, "untied", seed=seed, scale=2.0)
        with convergence_left_to_caller():
            for make in (TRWS, MPLP, LoopyBP):
                plain, climbed = make(max_iter=2, climb=False).map(model), make(max_iter=2).map(model)
                assert climbed.score >= plain.score
                gained += climbed.score > plain.score
    assert gained > 2


def test_fused_labelings_are_the_best_of_all_mixtures():
    rng = np.random.default_rng(0)
    for seed in range(20):
        model = random_model("grid", 4, "untied", seed=seed)
        labelings = rng.integers(4, size=(2, 9))
        fused = fuse_labelings(model, labelings)
        takes = np.stack(np.meshgrid(*[[0, 1]] * 9, indexing="ij"), axis=-1).reshape(-1, 9).astype(bool)
        mixtures = [score(model, np.where(take, labelings[1], labelings[0])) for take in takes]
        assert max(score(model, labels) for labels in labelings) - 1e-9 <= score(model, fused) <= max(mixtures) + 1e-9
    submodular = random_model("grid", 2, structure="submodular", seed=0)
    best = BruteForce().map(submodular)
    assert score(submodular, fuse_labelings(submodular, [np.zeros(9, int), np.ones(9, int)])) == pytest.approx(
        best.score
    )


def test_fusion_needs_labelings():
    with pytest.raises(ValueError, match="at least one labeling"):
        fuse_labelings(spin_glass((3, 3), 0), [])


def test_mplp_goes_on_after_an_iteration_in_which_the_bound_stands_still():
    for seed in range(3):
        model = factors_of_three(12, 4, seed)
        with convergence_left_to_caller():
            found, long = MPLP(max_iter=200).map(model), MPLP(max_iter=300, tol=0).map(model)
        assert found.bound <= long.bound + 1e-3 * abs(long.bound)


@pytest.mark.parametrize("make", [AlphaExpansion, AlphaBetaSwap])
def test_truncated_moves_of_two_states_never_end_below_their_start(make):
    for seed in range(5):
        model = spin_glass((12, 12), seed)
        with convergence_left_to_caller():
            start = LoopyBP(damping=0.5).map(model)
        found = make(nonsubmodular="truncate").map(model, init=start.labels)
        assert found.score >= start.score - 1e-9
        assert found.bound >= found.score
        assert make(nonsubmodular="truncate").map(model, init=found.state).score >= found.score - 1e-9


def test_what_is_kept_for_a_graph_dies_with_it():
    graph = lattice((6, 6))
    gone = weakref.ref(graph)
    model = PairwiseModel(graph, np.zeros((36, 2)), SPIN[None])
    with convergence_left_to_caller():
        TightenBound(max_iter=2).marginals(model)
        TRWMessagePassing(max_iter=2).marginals(model)
        AutoMarginals().marginals(model)
    del graph, model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("edge_probabilities", ["auto", "covering", "uniform"])
def test_no_nodes(edge_probabilities):
    empty = PairwiseModel(Graph(0, np.zeros((0, 2))), np.zeros((0, 2)), SPIN[None])
    assert TRWMessagePassing(edge_probabilities).marginals(empty).log_z == 0
    assert AutoMarginals().marginals(empty).log_z == 0
    assert AutoMap().map(empty).score == 0


def test_labelings_of_factor_graphs_are_fused_part_by_part():
    rng = np.random.default_rng(0)
    for seed in range(10):
        model = factors_of_three(6, 1, seed)
        labelings = rng.integers(4, size=(2, 6))
        fused = fuse_labelings(model, labelings)
        takes = np.stack(np.meshgrid(*[[0, 1]] * 6, indexing="ij"), axis=-1).reshape(-1, 6).astype(bool)
        mixtures = [score(model, np.where(take, labelings[1], labelings[0])) for take in takes]
        assert max(score(model, labels) for labels in labelings) - 1e-9 <= score(model, fused) <= max(mixtures) + 1e-9
    apart = FactorGraph.from_factors([2] * 6, [((0, 1, 2), rng.normal(size=(2,) * 3)), ((3, 4, 5), np.ones((2,) * 3))])
    joined = fuse_labelings(apart, [[0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 1]])
    assert score(apart, joined) == max(
        score(apart, labels) for labels in ([0] * 6, [1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 1])
    )
    with pytest.raises(ValueError, match="node 3 has 2 states"):
        fuse_labelings(apart, [[0, 0, 0, 2, 0, 0]])


def test_labelings_of_large_factor_graphs_are_climbed_too():
    model = factors_of_three(400, 1500, 0)
    with convergence_left_to_caller():
        found = MPLP(max_iter=2).map(model)
    arrays, unary = search_problem(model)
    cost = np.empty(400)
    workspace = SearchWorkspace(400, len(arrays.table), unary.shape[1])
    change_costs(arrays, unary, found.labels, arrays.cells(unary, found.labels), cost, workspace)
    assert cost.min() >= 0


@pytest.mark.parametrize("init", [[0] * 9, np.zeros(9, dtype=int), "labels", 3])
def test_only_a_state_can_be_the_start(init):
    model = PairwiseModel(lattice((3, 3)), np.zeros((9, 2)), np.eye(2)[np.newaxis])
    with pytest.raises(ValueError, match="init must be the state of an earlier result of AutoMap"):
        AutoMap().map(model, init=init)
