"""Loopy belief propagation: properties that the common contract of inference does not test."""

import warnings
from dataclasses import replace

import message_reference as reference
import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import FORESTS, LOOPY, TABLE_KINDS, models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._threads import make_range_runner
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, LoopyBP, TRWMessagePassing, _field, convergence_left_to_caller
from sklearn_crf.inference._field import Messages, build_initial_messages, make_field, marginals_of
from sklearn_crf.inference.messages._schedules import SCHEDULES, choose_schedule
from sklearn_crf.kernels.messages.edge_messages import send
from sklearn_crf.models import PairwiseModel

TIGHT = {"max_iter": 3000, "tol": 1e-13}


def one_sweep(model, schedule, *, maximum=False, damping=0.0):
    """Return the messages as scores after one sweep of a schedule."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        algorithm = LoopyBP(max_iter=1, tol=0, damping=damping, schedule=schedule)
        state = (algorithm.map if maximum else algorithm.marginals)(model).state
    with np.errstate(divide="ignore"):
        return state.values if state.as_scores else np.log(state.values)


@pytest.mark.parametrize("maximum", [False, True], ids=["sum", "max"])
@pytest.mark.parametrize("scale", [1, 500])
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
def test_a_sweep_is_that_of_the_reference(structure, kind, scale, maximum):
    for n_columns in (2, 3, 9):
        model = random_model("grid", n_columns, kind, structure=structure, scale=scale, seed=1)
        order = range(model.graph.n_nodes)
        messages = reference.uniform(model)
        reference.sweep(model, messages, order, maximum=maximum, only=lambda s, t: t > s)
        reference.sweep(model, messages, reversed(order), maximum=maximum, only=lambda s, t: t < s)
        expected = reference.by_slot(model, messages)
        found = one_sweep(model, "sequential", maximum=maximum)
        assert_allclose(
            found - found.max(axis=1, keepdims=True), expected - expected.max(axis=1, keepdims=True), atol=1e-9
        )

        # Blocks are as long as the rows of the grid here: the first and the third, then the second.
        messages = reference.uniform(model)
        for first in (0, 6, 3):
            order = range(first, first + 3)
            reference.sweep(model, messages, order, maximum=maximum, only=lambda s, t: t > s)
            reference.sweep(model, messages, reversed(order), maximum=maximum, only=lambda s, t: t < s)
        expected = reference.by_slot(model, messages)
        found = one_sweep(model, "blocks", maximum=maximum)
        assert_allclose(
            found - found.max(axis=1, keepdims=True), expected - expected.max(axis=1, keepdims=True), atol=1e-9
        )

        messages = reference.uniform(model)
        colouring = model.graph.colouring
        for start, stop in zip(colouring.ptr, colouring.ptr[1:], strict=False):
            reference.sweep(model, messages, colouring.nodes[start:stop].tolist(), maximum=maximum)
        expected = reference.by_slot(model, messages)
        found = one_sweep(model, "checkerboard", maximum=maximum)
        assert_allclose(
            found - found.max(axis=1, keepdims=True), expected - expected.max(axis=1, keepdims=True), atol=1e-9
        )


def test_the_schedule_of_large_graphs():
    small, large, chain, numbered = lattice((100, 200)), lattice((150, 200)), lattice((30_000,)), lattice((150, 200))
    # If the numbers of neighbours differ much, there are too few blocks without common edges.
    numbered = Graph(numbered.n_nodes, np.random.default_rng(0).permutation(numbered.n_nodes)[numbered.edges])
    chosen = [choose_schedule("auto", graph) for graph in (small, large, chain, numbered)]
    assert chosen == [SCHEDULES[name] for name in ("sequential", "blocks", "sequential", "checkerboard")]


def test_blocks_take_hardly_more_sweeps_than_one_sequence():
    # Attraction over long distances: a checkerboard moves information by two nodes a sweep.
    model = random_model(lattice((60, 60)), 3, structure="potts", scale=0.3, seed=0)
    model = replace(model, tables=1.2 * np.eye(3)[None])
    n_sweeps = {
        name: LoopyBP(schedule=name, max_iter=2000).marginals(model).n_iter
        for name in ("sequential", "blocks", "checkerboard")
    }
    assert n_sweeps["blocks"] < 1.5 * n_sweeps["sequential"]
    assert n_sweeps["blocks"] < 0.5 * n_sweeps["checkerboard"]


def test_damping_keeps_a_share_of_the_old_probabilities():
    model = random_model("cycle", 3, seed=2)
    messages = reference.uniform(model)
    colouring = model.graph.colouring
    for start, stop in zip(colouring.ptr, colouring.ptr[1:], strict=False):
        reference.sweep(model, messages, colouring.nodes[start:stop].tolist(), damping=0.3)
    found = one_sweep(model, "checkerboard", damping=0.3)
    assert_allclose(found, reference.by_slot(model, messages), atol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=25, deadline=None)
@given(model=models(topologies=tuple(FORESTS), max_states=4))
def test_exact_on_forests(model, schedule):
    exact = BruteForce().marginals(model)
    found = LoopyBP(schedule=schedule, **TIGHT).marginals(model)
    assert found.bound == "exact"
    assert_allclose(found.unary, exact.unary, atol=1e-9)
    assert_allclose(found.tables, exact.tables, atol=1e-8)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    best = LoopyBP(schedule=schedule, **TIGHT).map(model)
    assert best.score == pytest.approx(BruteForce().map(model).score, abs=1e-9)
    assert best.bound == best.score


@pytest.mark.parametrize("topology", LOOPY)
@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_all_schedules_find_the_same_fixed_point(topology, kind):
    for extra in ({}, {"forbidden": 0.2}, {"vary_states": True}, {"structure": "potts"}):
        model = random_model(topology, 3, kind, scale=0.5, seed=3, **extra)
        first = LoopyBP(schedule="sequential", **TIGHT).marginals(model)
        assert first.converged
        assert first.bound == ("exact" if model.graph.is_forest else None)
        others = [(name, damping) for name in ("blocks", "checkerboard", "residual") for damping in (0, 0.4)]
        for schedule, damping in others:
            other = LoopyBP(schedule=schedule, damping=damping, **TIGHT).marginals(model)
            assert_allclose(other.unary, first.unary, atol=1e-10)
            assert other.log_z == pytest.approx(first.log_z, abs=1e-10)


def test_a_fixed_point_makes_edges_and_nodes_agree():
    model = random_model("grid", 3, "untied", scale=0.7, seed=4)
    algorithm = LoopyBP(**TIGHT)
    unary, pairs = algorithm.marginals(model).unary, algorithm.edge_marginals(model)
    assert_allclose(pairs.sum(axis=2), unary[model.graph.edges[:, 0]], atol=1e-10)
    assert_allclose(pairs.sum(axis=1), unary[model.graph.edges[:, 1]], atol=1e-10)


def test_bethe_free_energy_of_a_fixed_point():
    model = random_model("grid", 3, "untied", scale=0.7, seed=5)
    algorithm = LoopyBP(**TIGHT)
    found, pairs = algorithm.marginals(model), algorithm.edge_marginals(model)
    energy = np.sum(found.unary * model.unary) + np.sum(pairs * model.edge_tables())
    node_entropy = -np.sum(found.unary * np.log(found.unary), axis=1)
    edge_entropy = -np.sum(pairs * np.log(pairs), axis=(1, 2))
    bethe = energy + edge_entropy.sum() + np.sum((1 - model.graph.degree) * node_entropy)
    assert found.log_z == pytest.approx(bethe, abs=1e-10)


def test_forests_need_one_sweep_and_one_to_see_it():
    model = random_model("tree", 3, seed=6)
    found = LoopyBP(tol=1e-12).marginals(model)
    assert found.converged
    assert found.n_iter == 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_forests_are_exact_whatever_the_tolerance(schedule):
    for seed in range(5):
        model = random_model("tree", 3, seed=seed)
        loose = LoopyBP(tol=0.3, damping=0.5, schedule=schedule)
        found, exact = loose.marginals(model), BruteForce().marginals(model)
        assert found.bound == "exact"
        assert_allclose(found.unary, exact.unary, atol=1e-10)
        assert loose.map(model).score == pytest.approx(BruteForce().map(model).score, abs=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision_is_as_good_as_its_scores(dtype):
    model = random_model("grid", 3, "weighted", scale=0.5, dtype=dtype, seed=7)
    wide = replace(model, unary=model.unary.astype(np.float64))
    expected = LoopyBP(**TIGHT).marginals(wide)
    found = LoopyBP(max_iter=500, tol=1e-6).marginals(model)
    assert found.unary.dtype == dtype
    assert_allclose(found.unary, expected.unary, atol=1e-5)
    assert found.log_z == pytest.approx(expected.log_z, abs=1e-4)


def test_scores_too_large_for_probabilities():
    for kind in TABLE_KINDS:
        for structure in ("full", "potts"):
            model = random_model("grid", 3, kind, structure=structure, scale=0.5, seed=8)
            # An irrelevant edge widens the range, so messages are kept as scores.
            graph = Graph(11, np.concatenate((model.graph.edges, [[9, 10]])))
            strong = np.where(np.eye(3), 1e4, 0.0)[None, None].repeat(model.tables.shape[1], axis=1)
            weight = None
            if model.edge_weight is not None:
                weight = np.concatenate((model.edge_weight, np.ones((1, 2))))
            wider = PairwiseModel(
                graph,
                np.concatenate((model.unary, [[0, 0, 0], [1, 2, 3]])),
                np.concatenate((model.tables, strong)),
                np.append(model.edge_type, len(model.tables)),
                weight,
            )
            assert make_field(wider, maximum=False)[0].semiring == _field.SUM_SCORE
            expected, found = (LoopyBP(**TIGHT).marginals(m) for m in (model, wider))
            assert_allclose(found.unary[:9], expected.unary, atol=1e-9)
            assert_allclose(found.tables[:-1], expected.tables, atol=1e-9)
            assert found.log_z_terms[:9].sum() == pytest.approx(expected.log_z, abs=1e-9)


def test_warm_start_between_ways_to_keep_messages():
    model = random_model("grid", 3, scale=0.5, seed=9)
    cold = LoopyBP(**TIGHT).marginals(model)
    assert not cold.state.as_scores
    for values in (cold.state.values, cold.state.values.astype(np.float32)):
        warm = LoopyBP(**TIGHT).marginals(model, init=Messages(np.log(values), as_scores=True))
        assert_allclose(warm.unary, cold.unary, atol=1e-10)
    assert LoopyBP(tol=1e-12).marginals(model, init=cold.state).n_iter == 1


def test_a_warm_start_may_have_known_states_that_were_forbidden():
    model = random_model("grid", 3, scale=0.5, seed=10)
    only_one = np.where(np.arange(3) == 0, model.unary, -np.inf)
    tables = model.tables.copy()
    tables[0, 0, 1:, :] = -np.inf
    before = LoopyBP(**TIGHT).marginals(replace(model, unary=only_one, tables=tables))
    warm = LoopyBP(**TIGHT).marginals(model, init=before.state)
    assert_allclose(warm.unary, LoopyBP(**TIGHT).marginals(model).unary, atol=1e-9)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (np.zeros((24, 3)), "init must be the state of an earlier result"),
        (Messages(np.zeros((24, 2)), True), r"init must hold messages of shape \(24, 3\)"),
        (Messages(np.zeros((22, 3)), True), r"init must hold messages of shape \(24, 3\)"),
        (Messages(np.zeros((24, 3), dtype=int), True), "int64"),
        (Messages(np.full((24, 3), np.nan), True), "init must not hold NaN"),
    ],
)
def test_a_wrong_warm_start(init, message):
    with pytest.raises(ValueError, match=message):
        LoopyBP().marginals(random_model("grid", 3), init=init)


@pytest.mark.parametrize(
    "params",
    [{"max_iter": 0}, {"tol": -1}, {"tol": np.nan}, {"damping": 1.0}, {"damping": -0.1}, {"schedule": "random"}],
)
def test_a_wrong_parameter_is_named(params):
    (name,) = params
    with pytest.raises(ValueError, match=name):
        LoopyBP(**params).marginals(random_model("grid", 2))


def test_no_convergence_is_warned_of_once():
    model = random_model("grid", 3, scale=3, seed=11)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 .* increase max_iter, or damping") as record:
        found = LoopyBP(max_iter=2).marginals(model)
    assert len(record) == 1
    assert record[0].filename == __file__
    assert not found.converged
    assert found.bound is None
    with pytest.warns(ConvergenceWarning, match="scores of messages") as record:
        LoopyBP(max_iter=1, tol=0).map(model)
    assert record[0].filename == __file__
    with convergence_left_to_caller(), warnings.catch_warnings():
        warnings.simplefilter("error")
        LoopyBP(max_iter=2).marginals(model)


def test_max_product_finds_good_labelings():
    gaps = []
    for seed in range(20):
        model = random_model("grid", 3, "untied", scale=1, seed=seed)
        with convergence_left_to_caller():
            found = LoopyBP(damping=0.3).map(model)
        gaps.append(BruteForce().map(model).score - found.score)
        assert found.bound == np.inf
    assert np.median(gaps) == pytest.approx(0, abs=1e-9)


def test_contradictions_on_cycles():
    # An odd cycle of two alternating states has no labeling, which messages cannot detect, but a search can.
    differ = np.where(np.eye(2), -np.inf, 0.0)[None]
    ring = Graph(5, np.stack((np.arange(5), (np.arange(5) + 1) % 5), axis=1))
    model = PairwiseModel(ring, np.zeros((5, 2)), differ)
    with pytest.raises(ValueError, match="infeasible"):
        LoopyBP().map(model)
    assert np.all(np.isfinite(LoopyBP().marginals(model).unary))
    fixed = np.zeros((5, 2))
    fixed[0, 0] = -np.inf
    for task in (LoopyBP().map, LoopyBP().marginals):
        with pytest.raises(ValueError, match="infeasible"):
            task(replace(model, unary=fixed))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_hard_problem_bits_do_not_depend_on_threads(schedule, damping):
    model = random_model(lattice((30, 40)), 3, "typed", scale=1.5, dtype=np.float32, seed=12)
    algorithm = LoopyBP(max_iter=7, schedule=schedule, damping=damping)
    with convergence_left_to_caller():
        one, three = (algorithm.marginals(model, n_threads=n) for n in (1, 3))
    assert_array_equal(one.unary, three.unary)
    assert_array_equal(one.tables, three.tables)
    assert_array_equal(one.log_z_terms, three.log_z_terms)
    assert_array_equal(one.state.values, three.state.values)


def test_residual_schedule_reaches_what_sweeps_do_not():
    # On a strongly coupled grid with mixed signs the residual schedule converges more often than sweeps.
    converged = {}
    for schedule in ("checkerboard", "residual"):
        converged[schedule] = 0
        for seed in range(8):
            model = random_model(lattice((8, 8)), 2, "untied", structure="potts", scale=1.5, seed=seed)
            with convergence_left_to_caller():
                converged[schedule] += LoopyBP(max_iter=300, schedule=schedule).marginals(model).converged
    assert converged["residual"] >= converged["checkerboard"]
    assert converged["residual"] > 0


def test_the_residual_schedule_ends_where_sweeps_do():
    # Scores differ so much that a change below the tolerance at one node decides the labels of other nodes.
    n_converged = 0
    for seed in range(10):
        model = random_model(lattice((4, 4)), 2, "untied", scale=30, seed=seed)
        with convergence_left_to_caller():
            found = LoopyBP(tol=1e-6, max_iter=300, schedule="residual").marginals(model)
            swept = LoopyBP(tol=1e-6, max_iter=300, schedule="sequential").marginals(model)
        if found.converged and swept.converged:
            n_converged += 1
            assert_allclose(found.log_z, swept.log_z, atol=1e-5)
    assert n_converged > 5


@pytest.mark.parametrize("n_columns", [2, 3])
@pytest.mark.parametrize("maximum", [False, True])
def test_appearance_probabilities_of_one_are_belief_propagation(n_columns, maximum):
    model = random_model("grid", n_columns, "untied", seed=13)
    results = []
    for appearance in (None, np.ones(model.graph.n_edges)):
        field, _ = make_field(model, maximum, appearance)
        messages = build_initial_messages(field)
        order = np.arange(9, dtype=np.int32)
        for _ in range(3):
            send(field, messages, order, order, 0, 0.0, 0, 9, field.workspace())
        results.append(messages)
    assert_allclose(results[0], results[1], atol=1e-12)


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("scale", [0.5, 300])
@pytest.mark.parametrize("structure", ["full", "potts"])
def test_appearance_probabilities_of_spanning_trees_bound_log_z(structure, scale, kind):
    # Every edge of a cycle is in all spanning trees except one; the marginals are the derivative of the bound.
    model = random_model("cycle", 3, kind, structure=structure, scale=scale, seed=14)
    appearance = np.full(5, 4 / 5)
    weight = np.ones((5, 1)) if model.edge_weight is None else model.edge_weight
    divided = replace(model, edge_weight=weight / appearance[:, None])

    def bound(step):
        moved = replace(divided, tables=divided.tables + step * direction)
        field, unary_shift = make_field(moved, maximum=False, appearance=appearance)
        messages = build_initial_messages(field)
        order = np.arange(5, dtype=np.int32)
        for _ in range(400):
            send(field, messages, order, order, 0, 0.0, 0, 5, field.workspace())
        return marginals_of(field, model.dtype, unary_shift, messages, make_range_runner(1), bound="upper")

    direction = np.random.default_rng(0).normal(size=model.tables.shape)
    found = bound(0)
    h = 1e-4 * scale
    assert found.log_z >= BruteForce().marginals(model).log_z - 1e-9
    numerical = (bound(h).log_z - bound(-h).log_z) / (2 * h)
    assert numerical == pytest.approx(np.sum(found.tables * direction), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("algorithm", [LoopyBP(max_iter=1), TRWMessagePassing(max_iter=1)], ids=["loopy", "trw"])
def test_stopping_where_messages_rule_out_states(algorithm):
    # The change from a finite score to -inf is infinite, so the warning states no number.
    model = random_model("grid", 3, "untied", forbidden=0.3, seed=2)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 sweeps, and in the last sweep messages still excluded"):
        algorithm.map(model)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strength", [0.8, -0.8])
@pytest.mark.parametrize("n_states", range(1, 10))
def test_potts_messages_are_those_of_the_table_whatever_the_padding(n_states, strength, dtype):
    graph = lattice((3, 4))
    rng = np.random.default_rng(n_states)
    unary = rng.normal(size=(graph.n_nodes, n_states)).astype(dtype)
    unary[0, 1:] = -np.inf
    potts = strength * np.eye(n_states, dtype=dtype)
    # A change in the last bits destroys the Potts form of a table.
    table = potts + np.finfo(dtype).eps * rng.normal(size=potts.shape).astype(dtype)
    for task in ("marginals", "map"):
        with convergence_left_to_caller():
            of_potts, of_table = (
                getattr(LoopyBP(max_iter=5, tol=0), task)(PairwiseModel(graph, unary, tables[None]))
                for tables in (potts, table)
            )
        if task == "map":
            assert_array_equal(of_potts.labels, of_table.labels)
        else:
            assert_allclose(of_potts.unary, of_table.unary, atol=2e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_states", [2, 5, 16, 33, 70])
@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_tables_of_single_edges_send_what_a_tied_one_sends(schedule, n_states, dtype, maximum):
    rng = np.random.default_rng(n_states)
    nodes = rng.permutation(12)
    edges = np.column_stack([nodes, np.roll(nodes, 5)])  # some edges lead to nodes with lower indices
    graph = Graph(13, edges.astype(np.int32))
    unary, table = rng.normal(size=(13, n_states)).astype(dtype), rng.normal(size=(1, n_states, n_states)).astype(dtype)
    found = []
    for tables, edge_type in ((table, None), (np.repeat(table, 12, axis=0), rng.permutation(12).astype(np.int32))):
        model = PairwiseModel(graph, unary, tables, edge_type)
        field, _ = make_field(model, maximum)
        messages = build_initial_messages(field)
        sweep = SCHEDULES[schedule](graph, field, messages, 0.0, 0.0, make_range_runner(1))
        found.append([sweep(), sweep(), messages])
    if maximum:  # to the bit
        assert found[0][:2] == found[1][:2]
        assert_array_equal(found[0][2], found[1][2])
    else:  # a table that is read by columns adds products in another order
        assert_allclose(found[0][:2], found[1][:2], rtol=0, atol=4 * np.finfo(dtype).eps)
        assert_allclose(found[0][2], found[1][2], rtol=0, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("inference", [LoopyBP(), TRWMessagePassing()], ids=["bp", "trw"])
@pytest.mark.parametrize(("scale", "forbids"), [(1, False), (500, False), (1, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_marginals_of_nodes_alone_have_the_same_bits(inference, scale, forbids, dtype):
    rng, graph = np.random.default_rng(0), lattice((5, 4))
    tables = scale * rng.normal(size=(1, 3, 3))
    if forbids:
        tables[0, 0, 1] = -np.inf
    model = PairwiseModel(graph, scale * rng.normal(size=(20, 3)).astype(dtype), tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found, expected = inference.node_marginals(model), inference.marginals(model).unary
    assert found.dtype == expected.dtype
    assert_array_equal(found, expected)
