"""JunctionTree against enumeration, and on competition models with known answers."""

import csv
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model, read_only

from sklearn_crf.datasets import read_evidence, read_marginals, read_uai
from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce, JunctionTree, TreeInference
from sklearn_crf.inference.exact import _elimination
from sklearn_crf.inference.exact._elimination import EliminationPlan, Limits, Structure, find_best_order
from sklearn_crf.inference.exact._junction_tree import Buckets
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.kernels.exact.junction_trees import least_width, min_fill_order, separators_of
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, clamped, factor_graph_of, score

few = settings(max_examples=80, deadline=None)


def assert_agrees(model, atol=1e-10):
    brute, exact = BruteForce(), JunctionTree()
    expected, found = brute.marginals(model), exact.marginals(model)
    assert type(found) is type(expected)
    assert found.bound == "exact"
    assert found.unary.dtype == model.dtype
    for name in ("unary", "log_z", "log_z_terms"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=atol, atol=atol, err_msg=name)
    for name, values in expected.statistics._asdict().items():
        own = getattr(found.statistics, name)
        np.testing.assert_allclose(own, values, rtol=atol, atol=atol, err_msg=name)
    best = exact.map(model)
    np.testing.assert_allclose(best.score, brute.map(model).score, rtol=atol, atol=atol)
    assert best.score == score(model, best.labels)
    assert best.gap == 0
    assert best.labels.dtype == np.int32


@few
@given(models())
def test_pairwise_models_against_enumeration(model):
    assert_agrees(model)


@few
@given(models())
def test_edge_marginals_against_enumeration(model):
    graph = model.graph
    pairs = JunctionTree().edge_marginals(model)
    assert pairs.shape == (graph.n_edges, model.n_columns, model.n_columns)
    assert pairs.dtype == model.dtype
    if graph.n_edges:
        alone = replace(model, tables=model.edge_tables(), edge_type=np.arange(graph.n_edges), edge_weight=None)
        np.testing.assert_allclose(pairs, BruteForce().marginals(alone).tables[:, 0], atol=1e-10)
        last = graph.n_edges - 1
        np.testing.assert_array_equal(JunctionTree().edge_marginals(model, [last, 0]), pairs[[last, 0]])
        with pytest.raises(ValueError, match="edges must be edge indices from 0 to"):
            JunctionTree().edge_marginals(model, [graph.n_edges])


@few
@given(factor_graphs(max_arity=5))
def test_factor_graphs_against_enumeration(model):
    assert_agrees(model)


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_float32_and_read_only(topology, kind, tmp_path):
    model = random_model(topology, 3, kind, dtype=np.float32, forbidden=0.2, seed=1)
    assert_agrees(read_only(model, tmp_path), atol=1e-5)


def test_scores_beyond_the_range_of_exp():
    model = random_model("grid", 2, scale=1.0, seed=4)
    shifted = replace(model, unary=model.unary * 1e4 + 1e6, tables=model.tables * 1e4)
    found = JunctionTree().marginals(shifted)
    assert np.isfinite(found.log_z)
    np.testing.assert_allclose(found.log_z, BruteForce().marginals(shifted).log_z, rtol=1e-12)
    np.testing.assert_allclose(found.unary, BruteForce().marginals(shifted).unary, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(factor_graphs(max_arity=4), st.integers(0, 2**16))
def test_scores_too_far_apart_for_products(model, seed):
    # Scores differ by multiples of 400, with ties, so the terms of many sums are far below the maxima of both tables.
    steps = 400.0 * np.random.default_rng(seed).integers(-4, 3, size=model.log_table.size)
    assert_agrees(replace(model, log_table=model.log_table + steps), atol=1e-9)
    assert_agrees(replace(model, log_table=np.where(steps < -1000, -1e5, model.log_table)), atol=1e-9)


@pytest.mark.parametrize(("scale", "is_log"), [(1.0, False), (500.0, True)])
def test_joined_chains_are_one_chain_of_pairs(scale, is_log):
    rng, n, states = np.random.default_rng(0), 6, (5, 3)
    unary = [scale * rng.normal(size=(n, k)) for k in states]
    along = [scale * rng.normal(size=(k, k)) for k in states]
    between = scale * rng.normal(size=states)
    # With forbidden states, only the shifts of both tables together show that sums are safe.
    along[0][0, 1:], between[2, 1] = -np.inf, -np.inf
    factors = [((2 * t + side,), unary[side][t]) for t in range(n) for side in (0, 1)]
    factors += [((2 * t + side, 2 * t + 2 + side), along[side]) for t in range(n - 1) for side in (0, 1)]
    factors += [((2 * t, 2 * t + 1), between) for t in range(n)]
    ladder = FactorGraph.from_factors(np.tile(states, n), factors)
    of_pair = (unary[0][:, :, None] + unary[1][:, None] + between).reshape(n, 15)
    of_edge = (along[0][:, None, :, None] + along[1][:, None, :]).reshape(1, 15, 15)
    pairs = PairwiseModel(lattice((n,)), of_pair, of_edge)
    found, expected = JunctionTree().marginals(ladder), TreeInference().marginals(pairs)
    plan = found.state
    assert sum(len(left) == len(right) == 1 for left, right in map(plan.sides, range(2 * n))) >= 2 * n - 4
    buckets = Buckets(Reduction(ladder), plan)
    buckets.sum_out()
    assert buckets.is_log.any() == is_log
    np.testing.assert_allclose(found.log_z, expected.log_z, rtol=1e-12)
    joint = expected.unary.reshape(n, *states)
    np.testing.assert_allclose(found.unary[::2], joint.sum(axis=2), atol=1e-9)
    np.testing.assert_allclose(found.unary[1::2, :3], joint.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found.statistics.log_table[-15:].reshape(states), joint.sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(JunctionTree().map(ladder).score, TreeInference().map(pairs).score, rtol=1e-12)


@few
@given(factor_graphs(max_arity=4))
def test_samples_are_allowed_and_follow_the_marginals(model):
    samples = JunctionTree().sample(model, 400, random_state=0)
    assert samples.shape == (400, model.n_nodes)
    assert samples.dtype == np.int32
    assert all(np.isfinite(score(model, labels)) for labels in samples[:20])
    expected = np.clip(BruteForce().marginals(model).unary, 0, 1)
    shares = np.stack([(samples == k).mean(axis=0) for k in range(expected.shape[1])], axis=1)
    # Five standard deviations, plus ten draws for rare states, whose counts are not normally distributed.
    assert np.all(np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / 400) + 10 / 400)
    assert not np.any(shares[expected == 0])


def test_joint_samples_follow_the_joint_distribution():
    model = random_model("cycle", 2, scale=1.0, seed=2)
    samples = JunctionTree().sample(model, 40000, random_state=1)
    counts = np.bincount(samples @ (2 ** np.arange(5)), minlength=32)
    labelings = np.arange(32)[:, None] >> np.arange(5) & 1
    scores = np.array([score(model, labels) for labels in labelings])
    expected = np.exp(scores - BruteForce().marginals(model).log_z) * len(samples)
    assert np.sum((counts - expected) ** 2 / expected) < 70  # chi-squared of 31 degrees: 1e-4 above 68


def test_samples_are_seeded():
    model = random_model("grid", seed=0)
    one, two = (JunctionTree().sample(model, 5, random_state=3) for _ in range(2))
    assert np.array_equal(one, two)


def test_no_nodes():
    empty = PairwiseModel(Graph(0, []), np.zeros((0, 2)), np.zeros((1, 2, 2)))
    assert JunctionTree().marginals(empty).log_z == 0
    assert JunctionTree().map(empty).score == 0
    assert JunctionTree().sample(empty, 3, random_state=0).shape == (3, 0)


def test_components_of_one_structure_are_planned_once(monkeypatch):
    counted = []
    monkeypatch.setattr(
        _elimination, "find_best_order", lambda *graph: counted.append(graph) or find_best_order(*graph)
    )
    plane, rng = lattice((3, 4)), np.random.default_rng(0)
    edges = np.concatenate([plane.edges + 12 * k for k in range(4)])
    n_states = np.repeat([3, 3, 2, 3], 12)
    graph = Graph(48, edges)
    model = PairwiseModel(graph, rng.normal(size=(48, 3)), rng.normal(size=(1, 3, 3)), n_states=n_states)
    EliminationPlan(Reduction(factor_graph_of(model)), None, Limits(30, 2**31), "best")
    # One search finds the order of all planes of three states, another search the order of the plane of two states.
    assert len(counted) == 2


def test_components_do_not_depend_on_each_other():
    left, right = random_model("grid", 3, seed=1), random_model("cycle", 3, seed=2)
    joint = PairwiseModel(
        build_disjoint_union([left.graph, right.graph]),
        np.concatenate((left.unary, right.unary)),
        np.concatenate((left.tables, right.tables)),
        np.repeat([0, 1], [left.graph.n_edges, right.graph.n_edges]),
    )
    together, alone = JunctionTree().marginals(joint), JunctionTree().marginals(right)
    assert np.array_equal(together.unary[9:], alone.unary)
    assert np.array_equal(together.log_z_terms[9:], alone.log_z_terms)


def test_a_warm_start_takes_over_the_order():
    model = random_model("grid", seed=1)
    first = JunctionTree().marginals(model)
    again = JunctionTree().marginals(random_model("grid", seed=7), init=first.state)
    assert np.array_equal(again.state, first.state)
    np.testing.assert_allclose(again.log_z, BruteForce().marginals(random_model("grid", seed=7)).log_z)
    with pytest.raises(ValueError, match="init must be the state of an earlier result"):
        JunctionTree().marginals(model, init=np.zeros(9, dtype=int))


def test_plans_are_shared_by_structure():
    one, other = (random_model("grid", seed=seed, forbidden=0.3) for seed in (1, 2))
    first = JunctionTree().marginals(one).state
    assert JunctionTree().marginals(replace(one, unary=one.unary * 2)).state is first
    # Other states are forbidden: only the order is reused.
    again = JunctionTree().marginals(other, init=first)
    assert again.state is not first
    assert np.array_equal(again.state.nodes, [node for node in first.order if node in again.state.nodes])
    np.testing.assert_allclose(again.log_z, BruteForce().marginals(other).log_z)


def test_wide_models_are_refused_with_their_width_and_memory():
    model = random_model(lattice((12, 12)), 2)
    with pytest.raises(ValueError, match=r"width 1\d and .* bytes, but the limits are max_width=5"):
        JunctionTree(max_width=5).map(model)
    with pytest.raises(ValueError, match=r"max_memory=1e\+03"):
        JunctionTree(max_memory=1000).marginals(model)
    with pytest.raises(ValueError, match=r"at least width 249 .*factor 0 alone"):
        JunctionTree().map(FactorGraph.from_factors(np.full(250, 2), [(range(250), at_most_one())]))
    complete = Graph(300, np.stack(np.triu_indices(300, 1), axis=1))
    with pytest.raises(ValueError, match="at least width 299"):
        JunctionTree().map(PairwiseModel(complete, np.zeros((300, 2)), np.zeros((1, 2, 2))))


def test_observed_nodes_cost_nothing():
    model = random_model(lattice((30, 30)), 2, seed=3)
    labels = np.where((np.indices((30, 30)).sum(axis=0) % 2).ravel(), 1, -1)
    found = JunctionTree(max_width=0).marginals(clamped(model, labels))
    assert np.all(found.unary[labels == 1, 1] == 1)


def test_infeasible_models_are_an_error():
    different = np.array([[-np.inf, 0], [0, -np.inf]])
    odd_cycle = PairwiseModel(Graph(3, [[0, 1], [1, 2], [2, 0]]), np.zeros((3, 2)), different[None])
    for task in (JunctionTree().map, JunctionTree().marginals, JunctionTree().sample):
        with pytest.raises(ValueError, match="model is infeasible: every labeling of nodes 0, 1, 2 is forbidden"):
            task(odd_cycle)
    one, other = np.array([0, -np.inf]), np.array([-np.inf, 0])
    with pytest.raises(ValueError, match="every state of node 0 is forbidden"):
        JunctionTree().map(FactorGraph.from_factors([2], [((0,), one), ((0,), other)]))


def test_marginals_are_gradients():
    model = random_factor_graph(8, 12, 4, 3, seed=11)
    found = JunctionTree().marginals(model)
    direction, h = np.random.default_rng(0).normal(size=model.log_table.size), 1e-5
    up, down = (
        JunctionTree().marginals(replace(model, log_table=model.log_table + step * direction)).log_z for step in (h, -h)
    )
    np.testing.assert_allclose(found.statistics.log_table @ direction, (up - down) / (2 * h), rtol=1e-7)


def adjacency_of(graph):
    adjacency = [set() for _ in range(graph.n_nodes)]
    for i, j in graph.edges.tolist():
        adjacency[i].add(j)
        adjacency[j].add(i)
    return adjacency


def scopes(edges):
    return np.arange(0, 2 * len(edges) + 1, 2), np.ascontiguousarray(edges, dtype=np.int32).ravel()


def structure_of(adjacency, log_states):
    ptr = np.cumsum([0, *map(len, adjacency)])
    neighbors = np.array([t for around in adjacency for t in sorted(around)], dtype=np.int32)
    return Structure(ptr, neighbors, np.full(len(adjacency), log_states))


def separators(structure, order):
    ptr, nodes = separators_of(structure.ptr, structure.neighbors, np.array(order, dtype=np.int32))
    return [nodes[start:stop].tolist() for start, stop in pairwise(ptr)]


def plain_min_fill(adjacency):
    """Return the fill of each elimination, by counting all missing edges at every step."""
    left, fills = set(range(len(adjacency))), []
    while left:
        missing = {
            s: sum(b not in adjacency[a] for a in adjacency[s] for b in adjacency[s] if a < b) for s in sorted(left)
        }
        node = min(missing, key=lambda s: (missing[s], len(adjacency[s]), s))
        fills.append((node, missing[node]))
        for a in adjacency[node]:
            adjacency[a] |= adjacency[node] - {a}
            adjacency[a].discard(node)
        left.discard(node)
    return fills


@pytest.mark.parametrize("seed", range(10))
def test_min_fill_counts_are_kept_up_to_date(seed):
    rng = np.random.default_rng(seed)
    adjacency = adjacency_of(Graph(14, np.argwhere(np.triu(rng.random((14, 14)) < 0.3, 1))))
    expected = [node for node, _ in plain_min_fill(list(map(set, adjacency)))]
    # one per node, so that sums of logarithms are exact
    structure = structure_of(adjacency, 1.0)
    assert min_fill_order(*structure, np.inf, np.inf).tolist() == expected
    width = max(map(len, separators(structure, expected)))
    assert min_fill_order(*structure, width + 1.0, np.inf).tolist() == expected
    assert min_fill_order(*structure, width + 0.9, np.inf) is None
    assert min_fill_order(*structure, np.inf, 3) is None


def test_separators_are_the_neighbours_left_over():
    rng = np.random.default_rng(0)
    adjacency = adjacency_of(Graph(12, np.argwhere(np.triu(rng.random((12, 12)) < 0.3, 1))))
    order = rng.permutation(12).tolist()
    for node, separator in zip(order, separators(structure_of(adjacency, 1.0), order), strict=True):
        assert set(separator) == adjacency[node]
        assert separator == sorted(separator, key=order.index)
        for a in adjacency[node]:
            adjacency[a] |= adjacency[node] - {a}
            adjacency[a].discard(node)


@pytest.mark.parametrize(
    ("graph", "width"),
    [
        (lattice((50,)), 1),
        (lattice((4, 4)), 4),
        (lattice((3, 40)), 3),
        (Graph(5, np.argwhere(np.triu(np.ones((5, 5)), 1))), 4),
    ],
)
def test_known_tree_widths_are_found(graph, width):
    structure = structure_of(adjacency_of(graph), np.log(2))
    order, cells = find_best_order(structure)
    found = separators(structure, order)
    assert max(map(len, found)) == width
    assert cells == pytest.approx(sum(2.0 ** (len(separator) + 1) for separator in found))
    assert find_best_order(structure, most_cells=0.99 * cells)[0] is None
    assert least_width(structure.ptr, structure.neighbors) <= width


@pytest.mark.parametrize("seed", range(5))
def test_degeneracy_is_the_largest_smallest_degree_of_a_subgraph(seed):
    rng = np.random.default_rng(seed)
    adjacency = adjacency_of(Graph(15, np.argwhere(np.triu(rng.random((15, 15)) < 0.4, 1))))
    structure, expected, left = structure_of(adjacency, 1.0), 0, set(range(15))
    while left:
        node = min(left, key=lambda s: len(adjacency[s] & left))
        expected = max(expected, len(adjacency[node] & left))
        left.discard(node)
    assert least_width(structure.ptr, structure.neighbors) == expected


def test_a_node_that_all_others_have_is_planned_fast():
    n = 20_000
    chain = np.stack((np.arange(1, n), np.arange(2, n + 1)), axis=1)
    spokes = np.stack((np.zeros(n, dtype=int), np.arange(1, n + 1)), axis=1)
    structure = Structure.of(*scopes(np.concatenate((chain, spokes))), np.full(n + 1, 2))
    order = min_fill_order(*structure, np.inf, np.inf)
    assert np.diff(separators_of(structure.ptr, structure.neighbors, order)[0]).max() == 2


UAI = Path(os.environ.get("SKLEARN_CRF_DATA", "")) / "uai2014"
# Models that take a second at most.
NAMES = ("Grids_12", "Segmentation_12", "Alchemy_11", "CSP_12", "Pedigree_11", "Pedigree_12")


@pytest.mark.skipif(not os.environ.get("SKLEARN_CRF_DATA"), reason="SKLEARN_CRF_DATA is not set")
@pytest.mark.parametrize("name", NAMES)
def test_competition_models_have_their_known_answers(name):
    with open(UAI / "solutions.tsv") as file:
        rows = {(row["folder"], row["model"]): row for row in csv.DictReader(file, delimiter="\t")}
    known = rows["pr_mar", name]
    model = read_uai(UAI / "pr_mar" / f"{name}.uai.gz")
    if int(known["n_evidence"]):
        model = clamped(model, read_evidence(UAI / "pr_mar" / f"{name}.uai.evid", model.n_nodes))
    found = JunctionTree().marginals(model)
    np.testing.assert_allclose(found.log_z / np.log(10), float(known["log10Z"]), atol=2e-9)
    np.testing.assert_allclose(found.unary, read_marginals(UAI / "pr_mar" / f"{name}.uai.MAR.gz"), atol=1e-6)
    np.testing.assert_allclose(JunctionTree().map(model).score, float(known["map_ln_score"]), atol=2e-9)
