"""Tree-reweighted messages between nodes of two states as log-odds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

from sklearn_crf.graphs import Graph, effective_resistances, lattice
from sklearn_crf.inference import TRWMessagePassing, convergence_left_to_caller
from sklearn_crf.inference._field import OddsField, can_use_log_odds, make_field

# A hub with more edges than any vector is long.
WHEEL = Graph(14, [[0, s] for s in range(1, 14)] + [[s, s + 1] for s in range(1, 13)])


def reweighted_sweep(model, nu, odds, senders, damping):
    """Update the log-odds {(s, t): m} in place, by the recursion on whole tables of scores."""
    tables = {}
    for (i, j), table, rho in zip(model.graph.edges.tolist(), model.edge_tables().astype(float), nu, strict=True):
        tables[i, j], tables[j, i] = (table / rho, rho), (table.T / rho, rho)
    for s, t in senders:
        table, rho = tables[s, t]
        cavity = sum(odds[edge] for edge in odds if edge[1] == s) - odds[t, s] / rho
        joint = model.unary[s].astype(float)[:, None] + np.array([[0.0], [cavity]]) + table
        fresh = rho * np.subtract(*logsumexp(joint, axis=0)[::-1])
        odds[s, t] = (1 - damping) * fresh + damping * odds[s, t]


def both_ways(graph):
    """Return directed edges in the order of a sequential sweep."""
    pairs = [(int(s), int(t)) for s, t in np.concatenate((graph.edges, graph.edges[:, ::-1]))]
    forwards = sorted(pair for pair in pairs if pair[0] < pair[1])
    return forwards + sorted((pair for pair in pairs if pair[0] > pair[1]), reverse=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("topology", ["grid", "disconnected", WHEEL])
def test_sweeps_against_the_recursion_on_tables(topology, kind, damping, dtype):
    model = random_model(topology, 2, kind, dtype=dtype, scale=2.0, seed=3)
    unary = model.unary.copy()
    unary[1, 0] = -np.inf
    model = replace(model, unary=unary)
    nu = effective_resistances(model.graph)
    odds = dict.fromkeys(both_ways(model.graph), 0.0)
    algorithm = TRWMessagePassing(max_iter=1, tol=0, damping=damping, schedule="sequential")
    state = None
    for _ in range(3):
        if not model.graph.is_forest:
            reweighted_sweep(model, nu, odds, both_ways(model.graph), damping)
        with convergence_left_to_caller():
            state = algorithm.marginals(model, init=state).state
    incidence = model.graph.incidence
    receiver = np.repeat(np.arange(model.graph.n_nodes), np.diff(incidence.ptr))
    expected = [odds[int(s), int(t)] for s, t in zip(incidence.neighbor, receiver, strict=True)]
    assert_allclose(state.values[:, 1], expit(expected), atol=1e-12 if dtype == np.float64 else 1e-5)


@given(st.integers(0, 2**16), st.sampled_from([0.1, 1.0, 4.0]))
@settings(max_examples=30, deadline=None)
def test_fixed_point_is_that_of_probabilities(seed, scale):
    model = random_model("grid", 2, "untied", scale=scale, seed=seed)
    options = {"max_iter": 3000, "tol": 1e-13, "damping": 0.5}
    with convergence_left_to_caller():
        odds = TRWMessagePassing(schedule="sequential", **options).marginals(model)
        other = TRWMessagePassing(schedule="residual", **options).marginals(model)
    if odds.converged and other.converged:
        assert_allclose(odds.unary, other.unary, atol=1e-9)
        assert odds.log_z == pytest.approx(other.log_z, abs=1e-9)


def test_what_is_taken_as_odds():
    model = random_model("grid", 2, "untied", seed=0)
    nu = effective_resistances(model.graph)
    assert can_use_log_odds(make_field(model, False, nu)[0])
    assert not can_use_log_odds(make_field(model, False)[0])
    assert not can_use_log_odds(make_field(model, True, nu)[0])
    assert not can_use_log_odds(make_field(random_model("grid", 3, "untied", seed=0), False, nu)[0])
    assert not can_use_log_odds(make_field(random_model("grid", 2, "untied", scale=500.0, seed=0), False, nu)[0])


def test_messages_there_and_back():
    model = random_model("grid", 2, "weighted", seed=1)
    field, _ = make_field(model, False, effective_resistances(model.graph))
    messages = np.random.default_rng(0).dirichlet([1, 1], size=2 * model.graph.n_edges)
    of, again = OddsField.of(field), np.empty_like(messages)
    of.write_messages(of.compute_log_odds(messages), again)
    assert_allclose(again, messages, rtol=1e-12)


def odds_arrays_of(field):
    """Compute unary log-odds, coupling and power by slot, and the terms of edges in the log-odds of their ends."""
    tables = field.tables.astype(np.float64)
    parts = (
        (tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]) / 2,
        (tables[..., 1, 0] + tables[..., 1, 1] - tables[..., 0, 0] - tables[..., 0, 1]) / 2,
        (tables[..., 0, 1] + tables[..., 1, 1] - tables[..., 0, 0] - tables[..., 1, 0]) / 2,
    )
    weight = field.edge_weight if len(field.edge_weight) else np.ones((len(field.edge_type), 1))
    coupling, first, second = (np.einsum("er,er->e", weight, part[field.edge_type]) for part in parts)
    edge = field.half_edge >> 1
    offset = np.where(field.half_edge & 1, second[edge], first[edge]) * field.appearance[edge]
    unary = np.log(field.unary[:, 1].astype(np.float64) / field.unary[:, 0])
    node = np.repeat(np.arange(len(unary)), np.diff(field.ptr))
    unary += np.bincount(node, weights=offset, minlength=len(unary))
    return unary, (np.copysign(np.exp(-np.abs(coupling)), coupling))[edge], field.appearance[edge], offset


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_odds_and_messages_are_those_of_numpy(kind, dtype):
    model = random_model("grid", 2, kind, dtype=dtype, seed=3)
    field, _ = make_field(model, False, effective_resistances(model.graph))
    of = OddsField.of(field)
    unary, strength, power, offset = odds_arrays_of(field)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-13}
    assert_allclose(of.unary, unary, **tolerance)
    n_slots = len(strength)
    for found, expected in ((of.coupling, strength), (of.power, power)):
        assert found.dtype == dtype
        assert_allclose(found[:n_slots], expected, **tolerance)
        assert (found[n_slots:] == 1).all()
    assert_allclose(of.offset, offset, **tolerance)
    odds, messages = (
        np.resize([0.3, -700.0, 40.0, np.inf, -np.inf], n_slots + 8),
        np.empty((n_slots, field.width), dtype),
    )
    of.write_messages(odds.astype(dtype), messages)
    expected = odds[:n_slots].astype(dtype) + of.offset
    assert_allclose(messages[:, 0], expit(-expected), **tolerance)
    assert_allclose(messages[:, 1], expit(expected), **tolerance)


def test_threads_give_the_same():
    model = random_model(lattice((40, 40)), 2, "typed", seed=2)
    algorithm = TRWMessagePassing(schedule="checkerboard", max_iter=20, tol=0)
    with convergence_left_to_caller():
        one, two = (algorithm.marginals(model, n_threads=n) for n in (1, 2))
    assert_array_equal(one.unary, two.unary)
    assert one.log_z == two.log_z
