"""Exact inference on forests, beyond the contract of all algorithms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import FORESTS, TABLE_KINDS, models, random_model, random_tree
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce, TreeInference, _field
from sklearn_crf.inference.exact import _chains
from sklearn_crf.models import PairwiseModel, score


def same_marginals(found, exact, tol):
    assert_allclose(found.unary, exact.unary, atol=tol)
    assert_allclose(found.tables, exact.tables, atol=10 * tol)
    assert found.log_z == pytest.approx(exact.log_z, abs=tol, rel=tol)


@settings(max_examples=60, deadline=None)
@given(models(topologies=tuple(FORESTS), max_states=4))
def test_any_small_forest(model):
    same_marginals(TreeInference().marginals(model), BruteForce().marginals(model), 1e-9)
    assert TreeInference().map(model).score == pytest.approx(BruteForce().map(model).score, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1, 20, 100, 1000, 1e5])
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("kind", ["tied", "weighted"])
def test_scores_of_any_size(dtype, scale, structure, kind):
    # Messages are stored in all three ways: as probabilities, as probabilities in double precision, as scores.
    for seed in range(3):
        model = random_model("tree", 3, kind, structure=structure, dtype=dtype, scale=scale, seed=seed)
        exact = BruteForce().marginals(replace(model, unary=model.unary.astype(np.float64)))
        # Differences of scores below single precision are lost to every algorithm.
        tol = 1e-9 if dtype == np.float64 else 1e-5 + 2e-6 * scale
        found = TreeInference().marginals(model)
        assert found.unary.dtype == dtype
        assert found.log_z == pytest.approx(exact.log_z, abs=tol * (1 + scale))
        assert_allclose(found.unary, exact.unary, atol=tol)
        assert_allclose(found.tables, exact.tables, atol=20 * tol)


@pytest.mark.parametrize("maximum", [False, True])
def test_edges_of_one_type_and_weight_share_a_factor(maximum):
    rng = np.random.default_rng(0)
    graph = lattice((21,))
    edge_type, weight = np.arange(20, dtype=np.int32) % 3, rng.choice([0.5, 1.0, 2.0], size=(20, 1))
    model = PairwiseModel(graph, rng.normal(size=(21, 3)), rng.normal(size=(3, 3, 3)), edge_type, weight)
    kinds = set(zip(edge_type.tolist(), weight[:, 0].tolist(), strict=True))
    shared, _ = _field.make_field(model, maximum)
    assert len(shared.place) == len(kinds) < 20
    alone = replace(model, tables=model.edge_tables(), edge_type=np.arange(20), edge_weight=None)
    each, _ = _field.make_field(alone, maximum)
    assert_allclose(shared.factors[shared.place[shared.factor]], each.factors[each.place], rtol=1e-15)
    assert_array_equal(shared.shift[shared.factor], each.shift)
    different, _ = _field.make_field(replace(model, edge_weight=rng.random((20, 1))), maximum)
    assert_array_equal(different.factor, np.arange(20))
    one, other = TreeInference().marginals(model), TreeInference().marginals(alone)
    assert_allclose(one.unary, other.unary, rtol=1e-13)
    assert one.log_z == pytest.approx(other.log_z, rel=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_how_messages_are_kept(dtype):
    chain = lattice((4,))
    kinds = {}
    for scale in (1, 30, 1e4):
        model = random_model(chain, 3, scale=scale, dtype=dtype)
        field, _ = _field.make_field(model, maximum=False)
        kinds[scale] = field.semiring, field.unary.dtype
    assert kinds[1] == (_field.SUM_PROBABILITY, dtype)
    assert kinds[30] == (_field.SUM_PROBABILITY, np.float64)
    assert kinds[1e4] == (_field.SUM_SCORE, dtype)


def test_long_chain_of_forbidden_pairs():
    # The state never changes, so a message sums the scores of all earlier nodes, far more than exp can represent.
    n_nodes = 400
    unary = np.random.default_rng(0).normal(scale=20, size=(n_nodes, 2))
    same = np.where(np.eye(2), 0.0, -np.inf)[None]
    total = unary.sum(axis=0)
    assert np.ptp(total) > 100
    for direction in (1, -1):
        unary[:, 0] += direction * 3
        total = unary.sum(axis=0)
        found = TreeInference().marginals(PairwiseModel(lattice((n_nodes,)), unary, same))
        assert found.log_z == pytest.approx(np.logaddexp(*total), rel=1e-12)
        expected = np.exp(total - np.logaddexp(*total))
        assert_allclose(found.unary, np.broadcast_to(expected, unary.shape), atol=1e-9)


def test_forbidden_transitions_with_one_way_out():
    # A state that was left cannot be entered again, so the best path is known.
    order = np.where(np.triu(np.ones((4, 4), dtype=bool)), 0.0, -np.inf)[None]
    model = PairwiseModel(lattice((8,)), np.random.default_rng(3).normal(scale=30, size=(8, 4)), order)
    same_marginals(TreeInference().marginals(model), BruteForce().marginals(model), 1e-9)
    labels = TreeInference().map(model).labels
    assert np.all(np.diff(labels) >= 0)
    assert TreeInference().map(model).score == pytest.approx(BruteForce().map(model).score)


@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1, 500])
def test_a_node_of_many_edges(structure, forbidden, scale):
    # The hub is neither first nor last, so it also has a parent.
    hub, n_nodes = 4, 13
    leaves = np.setdiff1d(np.arange(n_nodes), hub)
    star = Graph(n_nodes, np.stack((leaves, np.full(n_nodes - 1, hub)), axis=1))
    # Memory is reused: fill it with NaN where messages will be stored.
    del_me = [np.full((24 + 13, 2), np.nan) for _ in range(20)]
    del del_me
    for kind in TABLE_KINDS:
        model = random_model(star, 2, kind, structure=structure, forbidden=forbidden, scale=scale, seed=4)
        same_marginals(TreeInference().marginals(model), BruteForce().marginals(model), 1e-9)
        assert TreeInference().map(model).score == pytest.approx(BruteForce().map(model).score)


def test_tables_that_do_not_fit_the_budget(monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference._tuning.FACTOR_BUDGET", 0)
    for kind in TABLE_KINDS:
        for scale, forbidden in ((1, 0), (300, 0), (1, 0.2)):
            model = random_model("tree", 3, kind, scale=scale, forbidden=forbidden, seed=5)
            same_marginals(TreeInference().marginals(model), BruteForce().marginals(model), 1e-9)
            assert TreeInference().map(model).score == pytest.approx(BruteForce().map(model).score)


def test_a_table_that_forbids_everything():
    tables = np.stack([np.zeros((2, 2)), np.full((2, 2), -np.inf)])
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), tables, edge_type=[0, 1])
    for task in (TreeInference().map, TreeInference().marginals):
        with pytest.raises(ValueError, match="every labeling of nodes 1, 2 is forbidden"):
            task(model)
    unused = replace(model, edge_type=[0, 0])
    assert TreeInference().marginals(unused).log_z == pytest.approx(3 * np.log(2))


def test_results_of_a_component_do_not_depend_on_the_others():
    parts = [random_model(lattice((n,)), 4, scale=2, seed=n) for n in (5, 9, 2)]
    parts = [replace(part, tables=parts[0].tables) for part in parts]
    joint = PairwiseModel(
        build_disjoint_union([part.graph for part in parts]),
        np.concatenate([part.unary for part in parts]),
        parts[0].tables,
    )
    found = TreeInference().marginals(joint)
    start = 0
    for part in parts:
        alone = TreeInference().marginals(part)
        stop = start + len(part.unary)
        assert_array_equal(found.unary[start:stop], alone.unary)
        assert_array_equal(found.log_z_terms[start:stop], alone.log_z_terms)
        start = stop


def test_ties_are_broken_into_one_labeling():
    # Every alternating labeling scores 5; choosing each node's best state separately could mix two of them.
    chain = lattice((6,))
    differ = np.where(np.eye(2), 0.0, 1.0)[None]
    found = TreeInference().map(PairwiseModel(chain, np.zeros((6, 2)), differ))
    assert found.score == found.bound == 5
    assert found.certified


def test_a_cycle_is_named():
    with pytest.raises(ValueError, match=r"without cycles, but edge \d+ closes a cycle"):
        TreeInference().marginals(random_model("grid", 2))
    with pytest.raises(ValueError, match="without cycles"):
        TreeInference().sample(random_model("cycle", 2))


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_edge_marginals(kind):
    model = random_model("tree", 3, kind, seed=6)
    pairs = TreeInference().edge_marginals(model)
    unary = TreeInference().marginals(model).unary
    assert pairs.shape == (6, 3, 3)
    assert_allclose(pairs.sum(axis=2), unary[model.graph.edges[:, 0]], atol=1e-12)
    assert_allclose(pairs.sum(axis=1), unary[model.graph.edges[:, 1]], atol=1e-12)
    # The marginals of one edge are the derivative of log_z by this edge's own table.
    alone = replace(model, tables=model.edge_tables(), edge_type=np.arange(6), edge_weight=None)
    assert_allclose(pairs, BruteForce().marginals(alone).tables[:, 0], atol=1e-10)
    assert_array_equal(TreeInference().edge_marginals(model, [4, 1]), pairs[[4, 1]])


def test_edge_marginals_of_edges_that_are_not_there():
    model = random_model("chain", 2)
    assert TreeInference().edge_marginals(model, []).shape == (0, 2, 2)
    for edges in ([5], [-1], [0.5]):
        with pytest.raises(ValueError, match="edges must be edge indices from 0 to 4"):
            TreeInference().edge_marginals(model, edges)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(TABLE_KINDS), st.booleans())
def test_pairs_of_states_are_sampled_as_often_as_they_should(seed, kind, wide):
    model = random_model("disconnected_forest", 3, kind, forbidden=0.2, scale=400 if wide else 1, seed=seed)
    drawn = TreeInference().sample(model, 2000, random_state=seed)
    tails, heads = model.graph.edges.T
    pairs = TreeInference().edge_marginals(model)
    for e in range(model.graph.n_edges):
        counts = np.bincount(drawn[:, tails[e]] * 3 + drawn[:, heads[e]], minlength=9) / 2000
        assert_allclose(counts, pairs[e].ravel(), atol=6 * 0.5 / np.sqrt(2000))


def test_samples_do_not_depend_on_threads_or_blocks(monkeypatch):
    model = random_model(lattice((50,)), 3, seed=7)
    drawn = TreeInference().sample(model, 40, random_state=0)
    assert_array_equal(TreeInference().sample(model, 40, random_state=0, n_threads=2), drawn)
    monkeypatch.setattr("sklearn_crf.inference.exact._tuning.UNIFORM_BUDGET", 500)
    assert_array_equal(TreeInference().sample(model, 40, random_state=0), drawn)


def test_deep_and_wide_trees():
    rng = np.random.default_rng(8)
    for graph in (lattice((5000,)), random_tree(5000, rng)):
        model = random_model(graph, 3, "typed", structure="potts", seed=9)
        found = TreeInference().marginals(model)
        assert_allclose(found.unary.sum(axis=1), 1)
        best = TreeInference().map(model)
        assert best.score <= found.log_z <= best.score + 5000 * np.log(3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [7, 10, 13, 17, 22, 31])
def test_many_states(n_columns, dtype):
    # Rows of many lengths use vectors of several widths; the reference is enumeration of three nodes.
    chain = lattice((3,))
    for kind, extra in (("tied", {}), ("weighted", {}), ("typed", {"vary_states": True}), ("tied", {"forbidden": 0.3})):
        model = random_model(chain, n_columns, kind, dtype=dtype, seed=n_columns, **extra)
        same_marginals(
            TreeInference().marginals(model), BruteForce().marginals(model), 1e-9 if dtype == np.float64 else 2e-5
        )
        assert TreeInference().map(model).score == pytest.approx(BruteForce().map(model).score, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.sampled_from([0.1, 3.0, 40.0, 400.0]),
    st.sampled_from([0.0, 0.3, 0.8]),
)
def test_joined_chains_of_one_table_are_those_of_messages(n_states, lengths, scale, forbidden):
    rng = np.random.default_rng(0)
    graph = build_disjoint_union([lattice((n,)) for n in lengths])
    unary, table = scale * rng.normal(size=(graph.n_nodes, n_states)), rng.normal(size=(1, n_states, n_states))
    table[(rng.uniform(size=table.shape) < forbidden) & ~np.eye(n_states, dtype=bool)] = -np.inf
    chains = PairwiseModel(graph, unary, table)
    # Edge weights rule out the chain kernel.
    other = PairwiseModel(graph, unary, table, edge_weight=np.ones(graph.n_edges))
    found, expected = TreeInference().marginals(chains), TreeInference().marginals(other)
    same_marginals(found, expected, 1e-9 * (1 + scale))
    starts = np.cumsum([0, *lengths[:-1]])
    terms = [np.add.reduceat(each.log_z_terms, starts) for each in (found, expected)]
    assert_allclose(*terms, rtol=1e-9, atol=1e-9)
    # Each chain has the same bits as alone.
    alone = TreeInference().marginals(PairwiseModel(lattice((lengths[0],)), unary[: lengths[0]], table))
    if scale < 100:
        assert_array_equal(alone.unary, found.unary[: lengths[0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_forbidden_pairs_let_underflow_is_not_lost(dtype):
    """A state that no other state leads to underflows in the first half of a chain, but has the best score overall."""
    table = np.array([[0.0, 0.0], [-np.inf, 0.0]])
    unary = np.zeros((400, 2), dtype=dtype)
    unary[:200, 1], unary[200:, 0] = 5.0, 10.0
    for scores, towards in ((unary, table), (unary[::-1].copy(), table.T)):
        model = PairwiseModel(lattice((400,)), scores, towards[None])
        for found in (_chains.compute_chain_marginals(model), TreeInference().marginals(_with_ones(model))):
            assert found.log_z == pytest.approx(2000.0)
            assert_allclose(found.unary[:, 0], 1.0, atol=1e-4)


def _with_ones(model):
    """Return the model with edge weights of 1, which rule out the chain kernel."""
    return replace(model, edge_weight=np.ones(model.graph.n_edges))


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e3, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("graph", ["chain", "tree", "disconnected_forest", "no_edges"])
def test_forbidden_states_and_pairs_at_any_scale(graph, dtype, scale):
    tol = 1e-9 * (1 + scale) if dtype == np.float64 else 1e-4 + 4e-6 * scale
    for seed in range(24):
        kind, share = ("tied", "weighted", "untied")[seed % 3], (0.3, 0.7)[seed % 2]
        model = random_model(graph, 3, kind, dtype=dtype, scale=scale, forbidden=share, seed=seed)
        if seed % 4 < 3:
            # Messages are then first stored as probabilities.
            model = replace(model, tables=model.tables / scale)
        exact = BruteForce().marginals(replace(model, unary=model.unary.astype(np.float64)))
        inference = TreeInference()
        found = inference.marginals(model)
        assert found.log_z == pytest.approx(exact.log_z, abs=tol * (1 + scale))
        assert_allclose(found.unary, exact.unary, atol=tol)
        assert_allclose(found.tables, exact.tables, atol=20 * tol)
        assert_allclose(inference.node_marginals(model), exact.unary, atol=tol)
        pairs, edges = inference.edge_marginals(model), model.graph.edges
        assert_allclose(pairs.sum(axis=2), exact.unary[edges[:, 0]], atol=20 * tol)
        assert_allclose(pairs.sum(axis=1), exact.unary[edges[:, 1]], atol=20 * tol)
        for labels in inference.sample(model, 5, random_state=0):
            assert score(model, labels) > -np.inf


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e4])
def test_only_models_without_labelings_are_infeasible(scale):
    rng = np.random.default_rng(0)
    n_infeasible = 0
    for seed in range(60):
        graph = lattice((4,)) if seed % 2 else random_tree(4, rng)
        unary, tables = scale * rng.normal(size=(4, 3)), scale * rng.normal(size=(1, 3, 3))
        unary[rng.random(unary.shape) < 0.3] = tables[rng.random(tables.shape) < 0.5] = -np.inf
        model = PairwiseModel(graph, unary, tables)
        try:
            BruteForce().marginals(model)
        except ValueError:
            n_infeasible += 1
            for ask in (TreeInference().marginals, TreeInference().node_marginals, TreeInference().map):
                with pytest.raises(ValueError, match="infeasible"):
                    ask(model)
        else:
            TreeInference().marginals(model)
            TreeInference().map(model)
    assert 10 < n_infeasible < 50


def test_two_nodes_whose_likely_states_exclude_each_other():
    model = PairwiseModel(lattice((2,)), [[0, 0], [0, 800]], [[[0, -np.inf], [0, -np.inf]]])
    for same in (model, _with_ones(model)):
        found = TreeInference().marginals(same)
        assert found.log_z == pytest.approx(np.log(2))
        assert_allclose(found.unary, [[0.5, 0.5], [1, 0]])
    # Both likely states are 600 above the other states, and only the pair of the other states is allowed.
    apart = PairwiseModel(lattice((2,)), [[600, 0], [600, 0]], [[[-np.inf, -np.inf], [-np.inf, 0]]])
    assert TreeInference().marginals(_with_ones(apart)).log_z == pytest.approx(0.0)


def test_a_chain_that_underflows_leaves_others_their_bits():
    rng = np.random.default_rng(0)
    table = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    unary = rng.normal(size=(5, 2))
    alone = TreeInference().marginals(PairwiseModel(lattice((3,)), unary[:3], table[None]))
    unary[4] = 0, 800
    both = PairwiseModel(build_disjoint_union([lattice((3,)), lattice((2,))]), unary, table[None])
    assert_array_equal(TreeInference().marginals(both).unary[:3], alone.unary)


def test_chains_without_any_labeling_are_an_error():
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), np.array([[[-np.inf, 0.0], [-np.inf, -np.inf]]]))
    assert _chains.compute_chain_marginals(model) is None
    with pytest.raises(ValueError, match="infeasible"):
        TreeInference().marginals(model)


def test_labels_that_are_given_leave_chains_to_messages():
    unary = np.random.default_rng(0).normal(size=(5, 3))
    unary[2, :2] = -np.inf
    model = PairwiseModel(lattice((5,)), unary, np.eye(3)[None])
    same_marginals(TreeInference().marginals(model), BruteForce().marginals(model), 1e-12)
