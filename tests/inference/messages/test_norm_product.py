"""Norm-product belief propagation."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model
from norm_product_reference import Reference
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import (
    BruteForce,
    CountingNumbers,
    FactorMessages,
    JunctionTree,
    LinearProgram,
    LoopyBP,
    NormProductBP,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.inference.messages._counting_numbers import Split, choose_counting_numbers, split_counting_numbers
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import MessageRun
from sklearn_crf.models import FactorGraph, PairwiseModel, SparseTable, at_most_one, factor_graph_of, score

TIGHT = {"max_iter": 5000, "tol": 1e-11}

# A forest of factors of up to four nodes with 2, 3, 2, 3, 2, 2, 2 states.
TREE_SCOPES = ((5, 0, 2), (2, 1), (4, 3, 6, 1), (5,), (3,))
TREE_STATES = [2, 3, 2, 3, 2, 2, 2]


def factor_tree(seed):
    rng = np.random.default_rng(seed)
    factors = [(scope, rng.normal(size=[TREE_STATES[s] for s in scope])) for scope in TREE_SCOPES]
    return FactorGraph.from_factors(TREE_STATES, factors)


def dense_graph(seed):
    """Return a factor graph with cycles, whose factors have up to three nodes."""
    rng = np.random.default_rng(seed)
    n_states = rng.integers(1, 4, size=5)
    scopes = [(2, 0), (0, 1, 3), (3, 2), (4, 1, 2), (1,), (4,)]
    return FactorGraph.from_factors(n_states, [(s, rng.normal(size=n_states[list(s)])) for s in scopes])


@pytest.mark.parametrize("temperature", [0, 0.7, 2.0])
@pytest.mark.parametrize("with_conditional", [False, True])
def test_sweeps_are_those_of_the_reference(with_conditional, temperature):
    for seed in range(5):
        model, rng = dense_graph(seed), np.random.default_rng(seed)
        layered = LayeredModel(model)
        layers = layered.layers
        node, own = rng.uniform(0, 1, size=5), rng.uniform(0.2, 1, size=4)
        conditional = with_conditional * rng.uniform(0, 1, size=len(layers.slot_node))
        conditional[layers.slot_factor == 1] = 0
        run = MessageRun(layered, Split(node, own, conditional), temperature, None)
        # Factors are reordered internally: factors of two nodes come first.
        place = [0, 2, 1, 3]
        of_factor = np.split(conditional, layers.slot_ptr[1:-1])
        reference = Reference(model, node, own[place], [of_factor[k] for k in place], temperature)
        for _ in range(3):
            reference.sweep(range(5))
            values = reference.sweep(range(4, -1, -1))[::-1]
            run.iterate()
            assert_allclose(run.values, values, atol=1e-10)


@given(factor_graphs(max_arity=4), st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_bounds_of_factor_graphs(model, temperature):
    exact, best = BruteForce().marginals(model).log_z, BruteForce().map(model).score
    with convergence_left_to_caller():
        for max_iter in (1, 300):
            found = NormProductBP("trivial", max_iter=max_iter, temperature=temperature).marginals(model)
            assert found.bound == ("upper" if temperature >= 1 else None)
            if temperature >= 1:
                assert found.log_z >= exact - 1e-9 * (1 + abs(exact))
            assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
            assert_allclose(found.unary.sum(axis=1), 1, atol=1e-9)
            for map_temperature in (0.0, temperature):
                labeling = NormProductBP("trivial", map_temperature=map_temperature, max_iter=max_iter).map(model)
                assert labeling.bound >= best - 1e-9 * (1 + abs(best))
                assert labeling.score <= best + 1e-9
                assert labeling.score == pytest.approx(score(model, labeling.labels))


@pytest.mark.parametrize("counting_numbers", ["trivial", "trw"])
@pytest.mark.parametrize("maximum", [False, True])
def test_the_bound_never_rises(counting_numbers, maximum):
    for seed in range(10):
        model = random_model("grid", 3, "untied", scale=3.0, forbidden=0.2 * (seed % 2), seed=seed)
        layered = LayeredModel(model)
        node, factor, _ = choose_counting_numbers(counting_numbers, layered, "auto")
        run = MessageRun(layered, split_counting_numbers(layered, node, factor), 0 if maximum else 1, None)
        bounds = []
        for _ in range(40):
            run.iterate()
            bounds.append(run.bound)
        assert np.all(np.diff(bounds) <= 1e-10)


def trivial_free_energy(model, unary, pairs, temperature):
    """Compute Eq. 127 of Jancsary 2012 for a pairwise model, entry by entry."""
    value = np.sum(unary * model.unary) + np.sum(pairs * model.edge_tables())
    return value - temperature * np.sum(pairs * np.log(pairs))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("topology", ["grid", "cycle", "chain"])
def test_trivial_entropy_at_its_maximum(topology, temperature):
    model = random_model(topology, 3, "untied", seed=3)
    found = NormProductBP("trivial", temperature=temperature, **TIGHT).marginals(model)
    pairs = found.tables[:, 0]
    assert_allclose(pairs.sum(axis=2), found.unary[model.graph.edges[:, 0]], atol=1e-9)
    assert_allclose(pairs.sum(axis=1), found.unary[model.graph.edges[:, 1]], atol=1e-9)
    assert found.log_z == pytest.approx(trivial_free_energy(model, found.unary, pairs, temperature), abs=1e-8)
    # The problem is concave: no feasible point nearby is better.
    for step in (1e-3, 0.1, 0.7):
        moved = [(1 - step) * a + step * b for a, b in ((found.unary, 1 / 3), (pairs, 1 / 9))]
        assert trivial_free_energy(model, *moved, temperature) <= found.log_z + 1e-9


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("topology", ["grid", "cycle", "disconnected", "tree"])
def test_tree_reweighted_numbers_are_tree_reweighted_message_passing(topology, kind):
    model = random_model(topology, 3, kind, vary_states=kind == "untied", seed=1)
    found = NormProductBP("trw", **TIGHT).marginals(model)
    other = TRWMessagePassing(max_iter=5000, tol=1e-12, damping=0.2).marginals(model)
    assert found.bound == other.bound
    assert found.log_z == pytest.approx(other.log_z, abs=1e-8)
    assert_allclose(found.unary, other.unary, atol=1e-6)
    assert_allclose(found.tables, other.tables, atol=1e-5)
    assert_allclose(NormProductBP("trw", **TIGHT).marginals(factor_graph_of(model)).log_z, found.log_z, atol=1e-8)


def test_bethe_numbers_are_exact_on_forests():
    for seed in range(5):
        model = factor_tree(seed)
        exact, found = BruteForce().marginals(model), NormProductBP("bethe", **TIGHT).marginals(model)
        assert found.bound == "exact"
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-8)
        assert_allclose(found.unary, exact.unary, atol=1e-7)
        assert_allclose(found.statistics.log_table, exact.statistics.log_table, atol=1e-7)


def test_bound_on_labels_comes_to_the_relaxation_at_a_small_temperature():
    for seed in range(5):
        model = random_model("grid", 3, "untied", seed=seed)
        relaxed = LinearProgram().map(model).bound
        found = NormProductBP("trivial", map_temperature=1e-3, max_iter=3000, tol=1e-9).map(model)
        assert relaxed - 1e-9 <= found.bound <= relaxed + 12 * np.log(9) * 1e-3
        # Maxima continue from there without an increase of the bound.
        sharp = NormProductBP("trivial", tol=1e-9).map(model, init=found.state)
        assert relaxed - 1e-9 <= sharp.bound <= found.bound


def test_tight_relaxations_are_certified():
    for seed in range(5):
        model = random_model("grid", 2, "untied", structure="submodular", seed=seed)
        found = NormProductBP("trivial", max_iter=2000, tol=1e-12).map(model)
        assert found.score == pytest.approx(BruteForce().map(model).score, abs=1e-9)
        assert found.bound == pytest.approx(found.score, abs=1e-6)


@given(models(max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=30, deadline=None)
def test_pairwise_models_are_as_their_factor_graphs(model):
    algorithm = NormProductBP("trivial", max_iter=30)
    with convergence_left_to_caller():
        found, other = algorithm.marginals(model), algorithm.marginals(factor_graph_of(model))
        labeling = algorithm.map(model)
        assert_array_equal(labeling.labels, algorithm.map(factor_graph_of(model)).labels)
    assert found.unary.dtype == model.dtype
    assert_allclose(found.unary[:, : other.unary.shape[1]], other.unary, atol=1e-6)
    assert found.log_z == other.log_z


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_constraints_over_many_nodes(constraint):
    rng = np.random.default_rng(0)
    n = 400
    factors = [((s,), rng.normal(size=2)) for s in range(n)] + [(rng.permutation(n), constraint())]
    model = FactorGraph.from_factors(np.full(n, 2), factors)
    found, labeling = NormProductBP("bethe", **TIGHT).marginals(model), NormProductBP("trivial").map(model)
    gains = np.array([table[1] - table[0] for _, table in factors[:n]])
    off = sum(table[0] for _, table in factors[:n])
    one = np.logaddexp.reduce(gains)
    everything = np.logaddexp(0, gains).sum()
    expected = {"at_most_one": np.logaddexp(0, one), "exactly_one": one}.get(constraint.__name__)
    if expected is None:
        expected = everything + np.log1p(-np.exp(-everything))
    assert found.log_z == pytest.approx(off + expected, abs=1e-8)
    assert labeling.certified
    assert (labeling.labels.sum() == 1) == (constraint.__name__ != "at_least_one")


def test_sparse_tables_over_many_nodes():
    # 2**60 joint states, of which three are listed.
    rng = np.random.default_rng(1)
    states, values = rng.integers(2, size=(3, 60)), np.array([1.0, 2.0, 0.5])
    nodes = rng.permutation(60)
    for default in (-np.inf, -3.0):
        model = FactorGraph.from_factors(np.full(60, 2), [(nodes, SparseTable(states, values, default))])
        found = NormProductBP("bethe", **TIGHT).marginals(model)
        expected = np.logaddexp.reduce(np.append(values, default + 60 * np.log(2)))
        assert found.log_z == pytest.approx(expected, abs=1e-8)
        listed, others = found.statistics
        assert listed.sum() + others.sum() == pytest.approx(1)
        assert_allclose(listed, np.exp(np.sort(values)[np.argsort(np.argsort(model.log_table))] - expected))


def test_marginals_are_derivatives_of_log_z():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = random_factor_graph(5, 5, 3, 3, seed=seed)
        algorithm = NormProductBP("trivial", temperature=[1.0, 0.8][seed % 2], max_iter=5000, tol=1e-13)
        found = algorithm.marginals(model)
        direction = rng.normal(size=model.log_table.shape), rng.normal(size=model.n_tables)

        def log_z(step, model=model, direction=direction, algorithm=algorithm):
            moved = replace(
                model,
                log_table=model.log_table + step * direction[0],
                table_default=model.table_default + step * direction[1],
            )
            return algorithm.marginals(moved).log_z

        h = 1e-3
        numerical = (8 * (log_z(h) - log_z(-h)) - (log_z(2 * h) - log_z(-2 * h))) / (12 * h)
        cells, defaults = found.statistics
        analytic = cells @ direction[0] + defaults @ np.where(np.isfinite(model.table_default), direction[1], 0)
        assert numerical == pytest.approx(analytic, abs=1e-8)


def test_which_numbers_give_bounds():
    model = random_model("cycle", 2, "untied", seed=0)
    for node, factor, bound in ((0.0, 0.5, "upper"), (0.5, 0.25, "upper"), (0.0, 0.4, None), (-0.5, 0.8, None)):
        numbers = CountingNumbers(np.full(5, node), np.full(5, factor))
        found = NormProductBP(numbers, **TIGHT).marginals(model)
        assert found.bound == bound
        if bound:
            assert found.log_z >= BruteForce().marginals(model).log_z
    # A node's own factor counts as part of the node.
    graph = factor_graph_of(model)
    numbers = CountingNumbers(np.zeros(5), np.concatenate((np.full(5, 0.5), np.full(5, 0.25))))
    same = NormProductBP(CountingNumbers(np.full(5, 0.5), np.full(5, 0.25)), **TIGHT).marginals(model)
    assert NormProductBP(numbers, **TIGHT).marginals(graph).log_z == pytest.approx(same.log_z, abs=1e-9)


def test_terms_add_up_to_the_numbers():
    for topology in TOPOLOGIES:
        layered = LayeredModel(random_model(topology, 2, seed=0))
        layers = layered.layers
        node, factor, _ = choose_counting_numbers("trw", layered, "auto")
        split = split_counting_numbers(layered, node, factor)
        assert all(np.all(term >= 0) for term in split)
        assert split.own.min(initial=1) > 1e-3
        at_factors = np.bincount(layers.slot_factor, weights=split.conditional, minlength=len(factor))
        at_nodes = np.bincount(layers.slot_node, weights=split.conditional, minlength=len(node))
        assert_allclose(split.own + at_factors, factor, atol=1e-8)
        assert_allclose(split.node - at_nodes, node, atol=1e-8)


def test_numbers_that_are_not_convex_are_refused():
    grid = random_model("grid", 2, seed=0)
    with pytest.raises(ValueError, match=r"not convex: node \d has -[123], and its factors, which have [234] in total"):
        NormProductBP("bethe").marginals(grid)
    numbers = CountingNumbers(np.where(np.arange(9) == 5, -1.6, 0.0), np.full(12, 0.5))
    with pytest.raises(ValueError, match=r"not convex: node 5 has -1.6, and its factors, which have 1.5 in total"):
        NormProductBP(numbers).map(grid)
    no_edges = random_model("no_edges", 2, seed=0)
    with pytest.raises(ValueError, match=r"not convex: node 2 has -1, and its factors, which have 0 in total"):
        NormProductBP(CountingNumbers([0, 0, -1, 0], [])).marginals(no_edges)


def test_errors():
    model = random_model("cycle", 2, "untied", scale=3.0, seed=6)
    with pytest.warns(
        ConvergenceWarning,
        match=r"NormProductBP stopped after max_iter=1 iterations while messages were still changing",
    ) as record:
        NormProductBP("trivial", max_iter=1, tol=0).marginals(model)
    assert [warning.filename for warning in record] == [__file__]
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations, which is too few to tell"):
        NormProductBP("trivial", max_iter=1, tol=0).map(model)
    for params, message in (
        ({"counting_numbers": "tree"}, 'counting_numbers must be "trivial", "factors", "trw", "bethe" or'),
        ({"counting_numbers": CountingNumbers(np.ones(5), np.zeros(5))}, "factor 0 has 0"),
        ({"counting_numbers": CountingNumbers(np.ones(4), np.ones(5))}, r"node must be 5 finite numbers"),
        ({"counting_numbers": CountingNumbers(np.ones(5), np.full(5, np.nan))}, "factor must be 5 finite"),
        ({"temperature": 0}, "temperature must be positive and finite for marginals"),
        ({"map_temperature": -1}, "map_temperature must be finite and not negative"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": np.nan}, "tol must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            NormProductBP(**params).marginals(model)
    with pytest.raises(ValueError, match="to add up factors of the same pair, use pairwise_model_of"):
        NormProductBP("trw", "chains").marginals(
            FactorGraph.from_factors([2] * 2, [((0, 1), np.eye(2)), ((1, 0), np.zeros((2, 2)))])
        )


def test_states_that_do_not_fit():
    model = random_model("cycle", 2, "untied", seed=6)
    state = NormProductBP("trivial").marginals(model).state
    with pytest.raises(ValueError, match="state of an earlier result"):
        NormProductBP("trivial").marginals(model, init=3)
    with pytest.raises(ValueError, match="must hold messages of shapes"):
        NormProductBP("trivial").marginals(random_model("grid", 2, seed=0), init=state)
    with pytest.raises(ValueError, match="must hold messages of shapes"):
        NormProductBP("trw").marginals(model, init=state)
    with pytest.raises(ValueError, match="finite"):
        NormProductBP("trivial").marginals(model, init=FactorMessages(state.values * np.nan, state.cross))


def test_warm_start():
    rng = np.random.default_rng(0)
    model = random_model(lattice((8, 8)), 3, "untied", seed=2)
    for algorithm in (NormProductBP("trivial", tol=1e-8), NormProductBP("trivial", temperature=0.3, tol=1e-8)):
        first = algorithm.marginals(model)
        before = np.array(first.state.values)
        moved = replace(model, unary=model.unary + 1e-4 * rng.normal(size=model.unary.shape))
        again, cold = algorithm.marginals(moved, init=first.state), algorithm.marginals(moved)
        assert again.n_iter < cold.n_iter
        assert again.log_z == pytest.approx(cold.log_z, abs=1e-6)
        assert_array_equal(first.state.values, before)
    # A state that was forbidden may be allowed now.
    unary = np.array(model.unary)
    unary[np.arange(0, 64, 3), rng.integers(3, size=22)] = -np.inf
    forbidden = replace(model, unary=unary)
    state = NormProductBP("trivial", tol=1e-8).marginals(forbidden).state
    assert NormProductBP("trivial", tol=1e-10).marginals(model, init=state).log_z == pytest.approx(
        NormProductBP("trivial", tol=1e-10).marginals(model).log_z, abs=1e-8
    )


def test_neighbours_change_nothing():
    """Components rest as soon as their own messages have converged, wherever their nodes are."""
    parts = [random_factor_graph(5, 6, 4, 3, seed=seed) for seed in range(4)]
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.repeat(np.arange(4), 5))
    nodes = [np.flatnonzero(owner == k) for k in range(4)]
    n_states, factors = np.empty(20, dtype=np.int64), []
    for part, own in zip(parts, nodes, strict=True):
        n_states[own] = part.n_states
        for f in range(part.n_factors):
            factors.append((own[part.scope[part.scope_ptr[f] : part.scope_ptr[f + 1]]], part.dense_table(f)))
    for algorithm in (NormProductBP("trivial", tol=1e-3), LoopyBP(tol=1e-3)):
        together = algorithm.marginals(FactorGraph.from_factors(n_states, factors))
        n_iter = []
        for part, own in zip(parts, nodes, strict=True):
            tables = [
                (part.scope[part.scope_ptr[f] : part.scope_ptr[f + 1]], part.dense_table(f))
                for f in range(part.n_factors)
            ]
            alone = algorithm.marginals(FactorGraph.from_factors(part.n_states, tables))
            n_iter.append(alone.n_iter)
            assert_array_equal(together.unary[own][:, : alone.unary.shape[1]], alone.unary)
        assert together.n_iter == max(n_iter) > min(n_iter)


def test_infeasible_models():
    alike = np.where(np.eye(2), 0.0, -np.inf)[None]
    unary = np.zeros((6, 2))
    unary[0, 0] = unary[5, 1] = -np.inf
    chain = PairwiseModel(lattice((6,)), unary, alike)
    factors = [((s,), np.array([-np.inf, 0.0])) for s in (0, 3)] + [(range(5), at_most_one())]
    for model in (chain, FactorGraph.from_factors(np.full(5, 2), factors)):
        for algorithm in (NormProductBP("trivial"), NormProductBP("bethe")):
            with pytest.raises(ValueError, match="infeasible: every labeling of nodes 0, 1, 2"):
                algorithm.map(model)
            with pytest.raises(ValueError, match="infeasible: every labeling of nodes 0, 1, 2"):
                algorithm.marginals(model)


def test_empty_and_constant_factor_graphs():
    model = FactorGraph.from_factors([2, 3], [((), np.array(3.0)), ((), np.array(-1.0))])
    found, labeling = NormProductBP("trivial").marginals(model), NormProductBP("trivial").map(model)
    assert found.log_z == pytest.approx(2 + np.log(6))
    assert_array_equal(found.statistics.log_table, [1, 1])
    assert labeling.score == labeling.bound == 2
    assert labeling.converged


def test_tree_reweighted_numbers_for_factors_of_any_arity():
    rng = np.random.default_rng(0)
    for _ in range(5):
        factors = [((s,), rng.normal(size=2)) for s in range(8)]
        factors += [(tuple(rng.choice(8, 3, replace=False).tolist()), rng.normal(size=(2, 2, 2))) for _ in range(6)]
        model = FactorGraph.from_factors([2] * 8, factors)
        exact = BruteForce().marginals(model).log_z
        trivial, trw = (NormProductBP(name, max_iter=2000).marginals(model) for name in ("trivial", "trw"))
        assert trw.bound == "upper"
        assert exact - 1e-6 <= trw.log_z < exact + 0.5 * (trivial.log_z - exact)
        assert trw.log_z <= BruteForce().map(model).score + 8 * np.log(2) + 1e-6


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_the_default_bound_is_below_the_best_score_with_every_labeling_counted(scale):
    grid = random_model(lattice((4, 4)), 3, "untied", seed=2, scale=scale)
    for model in (grid, random_triples(scale)):
        with convergence_left_to_caller():
            found, trivial = NormProductBP().marginals(model), NormProductBP("trivial").marginals(model)
        best, log_z = JunctionTree().map(model).score, JunctionTree().marginals(model).log_z
        entropy = 16 * np.log(3) if model is grid else 8 * np.log(3)
        assert found.bound == "upper"
        assert log_z <= found.log_z <= best + entropy
        assert found.log_z < trivial.log_z
    assert NormProductBP("trivial").marginals(grid).log_z > JunctionTree().map(grid).score + 16 * np.log(3)


def random_triples(scale):
    rng = np.random.default_rng(0)
    factors = [((s,), scale * rng.normal(size=3)) for s in range(8)]
    factors += [(tuple(rng.choice(8, 3, replace=False).tolist()), scale * rng.normal(size=(3,) * 3)) for _ in range(8)]
    return FactorGraph.from_factors([3] * 8, factors)


@pytest.mark.parametrize("counting_numbers", ["trw", "trivial", "factors"])
def test_factors_of_mixed_arities_have_their_own_numbers(counting_numbers):
    for seed in range(40):
        # The largest factors come first.
        rng = np.random.default_rng(seed)
        n_states = rng.integers(2, 4, size=5)
        scopes = [(0, 1, 2), (1, 2), (2, 3, 4), (0, 3), (3, 4), (4,), (1, 4)]
        factors = [(scope, 3 * rng.normal(size=n_states[list(scope)])) for scope in scopes]
        model = FactorGraph.from_factors(n_states, factors)
        exact = BruteForce().marginals(model).log_z
        with convergence_left_to_caller():
            found = NormProductBP(counting_numbers).marginals(model)
        assert found.bound == "upper"
        assert found.log_z >= exact - 1e-9 * abs(exact)
    numbers = 1.0 + np.arange(7.0)
    layered = LayeredModel(model)
    _, factor, _ = choose_counting_numbers(CountingNumbers(0.0, numbers), layered, "auto")
    arity = layered.layers.arity
    assert_array_equal(arity, model.arity[layered.factors])
    assert_array_equal(factor, numbers[layered.factors])


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0, 1000.0])
@pytest.mark.parametrize("make", [lambda seed: random_model("chain", 3, "untied", seed=seed), factor_tree])
def test_forests_are_exact_at_any_scale(make, scale):
    for seed in range(10):
        model = make(seed)
        model = (
            replace(model, log_table=scale * model.log_table)
            if isinstance(model, FactorGraph)
            else replace(model, unary=scale * model.unary, tables=scale * model.tables)
        )
        exact = BruteForce().marginals(model)
        for counting_numbers in ("trw", "bethe"):
            found = NormProductBP(counting_numbers).marginals(model)
            assert found.bound == "exact"
            assert found.converged
            assert found.log_z == pytest.approx(exact.log_z, rel=1e-12)
            assert_allclose(found.unary, exact.unary, atol=1e-9)
