"""Tree-reweighted message passing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, build_disjoint_union, covering_trees, effective_resistances, lattice
from sklearn_crf.inference import (
    BruteForce,
    EdgeEntropyBP,
    LoopyBP,
    NormProductBP,
    TreeInference,
    TRWMessagePassing,
    _field,
    convergence_left_to_caller,
)
from sklearn_crf.inference._field import build_initial_messages, make_field
from sklearn_crf.inference._relaxed_problem import convert_to_double
from sklearn_crf.inference.messages import _belief_propagation
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.kernels.messages.edge_messages import send
from sklearn_crf.models import PairwiseModel, score

PENDANT = Graph(6, [[0, 1], [2, 1], [2, 0], [2, 3], [4, 3], [5, 4]])
TIGHT = {"max_iter": 5000, "tol": 1e-12}


def free_energy(model, tau, pairs, probabilities):
    """Compute Eq. 135 of Jancsary 2012 at given pseudo-marginals, entry by entry."""

    def negative_entropy(p):
        return np.sum(p * np.log(np.where(p > 0, p, 1)))

    value = np.sum(tau * np.where(tau > 0, model.unary, 0)) - sum(negative_entropy(p) for p in tau)
    for (i, j), table, pair, nu in zip(model.graph.edges, model.edge_tables(), pairs, probabilities, strict=True):
        information = negative_entropy(pair) - negative_entropy(tau[i]) - negative_entropy(tau[j])
        value += np.sum(pair * np.where(pair > 0, table, 0)) - nu * information
    return value


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("topology", ["grid", "cycle", "disconnected"])
def test_fixed_point_is_that_of_the_tree_reweighted_free_energy(topology, structure, kind):
    model = random_model(topology, 3, kind, structure=structure, seed=2)
    algorithm = TRWMessagePassing(**TIGHT)
    found = algorithm.marginals(model)
    pairs = algorithm.edge_marginals(model)
    nu = effective_resistances(model.graph)
    assert found.converged
    assert found.bound == "upper"
    assert_allclose(pairs.sum(axis=2), found.unary[model.graph.edges[:, 0]], atol=1e-9)
    assert_allclose(pairs.sum(axis=1), found.unary[model.graph.edges[:, 1]], atol=1e-9)
    assert found.log_z == pytest.approx(free_energy(model, found.unary, pairs, nu), abs=1e-8)
    # The problem is concave: no feasible point nearby is better.
    uniform, flat = np.full_like(found.unary, 1 / 3), np.full_like(pairs, 1 / 9)
    for step in (1e-3, 0.1, 0.7):
        moved = [(1 - step) * a + step * b for a, b in ((found.unary, uniform), (pairs, flat))]
        assert free_energy(model, *moved, nu) <= found.log_z + 1e-9


@given(models(topologies=("grid", "cycle", "disconnected"), max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=40, deadline=None)
def test_bounds_are_bounds(model):
    with convergence_left_to_caller():
        for algorithm in (TRWMessagePassing(max_iter=300, damping=0.3), TRWMessagePassing(max_iter=2, tol=0)):
            tol = 1e-3 if model.dtype == np.float32 else 1e-6
            found, best = algorithm.marginals(model), algorithm.map(model)
            exact = BruteForce().marginals(model).log_z
            assert found.bound == "upper"
            assert found.log_z >= exact - tol * (1 + abs(exact))
            assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
            highest = BruteForce().map(model).score
            assert best.bound >= highest - tol * (1 + abs(highest))
            assert best.bound >= best.score
            assert best.score == pytest.approx(score(model, best.labels))


@pytest.mark.parametrize("probabilities", ["auto", "covering"])
def test_bridges_and_pendant_nodes(probabilities):
    # Here (nodes - 1) / edges = 5/6 gives no bound: the bridges need probability 1.
    if probabilities == "covering":
        probabilities = covering_trees(PENDANT).edge_probabilities
    for seed in range(20):
        model = random_model(PENDANT, 2, "untied", scale=2.0, seed=seed)
        found = TRWMessagePassing(probabilities, **TIGHT).marginals(model)
        assert found.log_z >= BruteForce().marginals(model).log_z - 1e-9
    with pytest.raises(ValueError, match="Equal edge probabilities are not valid"):
        TRWMessagePassing("uniform").marginals(model)
    with pytest.raises(ValueError, match="do not come from a distribution"):
        TRWMessagePassing(np.full(6, 5 / 6)).marginals(model)


@pytest.mark.parametrize("maximum", [False, True])
def test_forests_are_exact(maximum):
    model = random_model("tree", 3, "typed", seed=3)
    task = "map" if maximum else "marginals"
    found, exact = getattr(TRWMessagePassing(), task)(model), getattr(TreeInference(), task)(model)
    if maximum:
        assert found.bound == found.score == exact.score
    else:
        assert found.bound == "exact"
        assert_allclose(found.unary, exact.unary, atol=1e-12)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-12)


def test_bound_on_the_best_score_is_tight_where_the_relaxation_is():
    for seed in range(5):
        model = random_model("grid", 2, "untied", structure="submodular", seed=seed)
        found = TRWMessagePassing("uniform", damping=0.3, **TIGHT).map(model)
        assert found.bound == pytest.approx(BruteForce().map(model).score, abs=1e-6)
        assert found.score == pytest.approx(found.bound, abs=1e-6)


def test_bound_never_misses_forbidden_states():
    for seed in range(20):
        model = random_model("grid", 3, "untied", forbidden=0.3, seed=seed)
        with convergence_left_to_caller():
            found = TRWMessagePassing(max_iter=20).map(model)
        assert found.bound >= BruteForce().map(model).score - 1e-9
        assert np.isfinite(found.bound)


def test_components_do_not_mix():
    model = random_model("disconnected", 2, "untied", seed=4)
    found = TRWMessagePassing(**TIGHT).marginals(model)
    exact = BruteForce().marginals(model)
    component = model.graph.component
    for c in np.flatnonzero(np.bincount(component) == 2):
        inside = component == c
        assert found.log_z_terms[inside].sum() == pytest.approx(exact.log_z_terms[inside].sum(), abs=1e-9)


@pytest.mark.parametrize("n_states", [2, 3])
def test_threads_share_components(monkeypatch, n_states):
    """Converged components are not updated any more, and each component has the result that it has as a model alone."""
    monkeypatch.setattr("sklearn_crf.inference.messages._tuning.SMALLEST_SHARE", 1)
    models = [random_model("grid", n_states, "untied", scale=1 + i % 3, seed=i) for i in range(7)]
    ends = np.cumsum([0, *(model.graph.n_nodes for model in models)])
    joined = PairwiseModel(
        build_disjoint_union([model.graph for model in models]),
        np.concatenate([model.unary for model in models]),
        np.concatenate([model.tables for model in models]),
        edge_type=np.arange(sum(model.graph.n_edges for model in models), dtype=np.int32),
    )
    found = [TRWMessagePassing("uniform").marginals(joined, n_threads=n) for n in (1, 2, 3)]
    for other in found[1:]:
        assert_array_equal(other.unary, found[0].unary)
        assert_array_equal(other.log_z_terms, found[0].log_z_terms)
    for model, start, stop in zip(models, ends, ends[1:], strict=False):
        assert_allclose(found[0].unary[start:stop], TRWMessagePassing("uniform").marginals(model).unary, rtol=1e-12)


def test_attractive_pair_of_cycles_against_a_closed_form():
    # No field and equal couplings on a cycle: marginals are uniform, and by symmetry every edge has one parameter.
    n, coupling = 5, 0.7
    graph = Graph(n, [[s, (s + 1) % n] for s in range(n)])
    model = PairwiseModel(graph, np.zeros((n, 2)), coupling * np.eye(2)[None])
    nu = (n - 1) / n
    expected = n * np.log(2) + n * nu * (logsumexp([coupling / nu, 0]) - np.log(2))
    assert TRWMessagePassing(**TIGHT).marginals(model).log_z == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 5, 7, 8, 9, 17])
def test_edges_in_every_second_tree_need_no_powers(n_states, structure, dtype):
    # Roots and quotients give the same messages as logarithms and exponentials, also with forbidden states and unequal
    # n_states.
    for extra in ({}, {"vary_states": True}, {"forbidden": 0.2}):
        model = random_model("grid", n_states, "untied", structure=structure, seed=7, dtype=dtype, **extra)
        sent = []
        for probability in (0.5, np.nextafter(dtype(0.5), dtype(1))):
            field, _ = make_field(model, False, np.full(model.graph.n_edges, probability, dtype))
            messages = build_initial_messages(field)
            order = np.arange(model.graph.n_nodes, dtype=np.int32)
            changes = [send(field, messages, order, order, 0, 0.0, 0, len(order), field.workspace()) for _ in range(4)]
            sent.append((messages, changes))
        assert_allclose(sent[0][0], sent[1][0], atol=20 * np.finfo(dtype).eps)
        assert_allclose(sent[0][1], sent[1][1], atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("schedule", ["sequential", "blocks", "checkerboard", "residual"])
def test_schedules_agree(schedule):
    model = random_model(lattice((6, 6)), 3, "weighted", seed=5)
    found = TRWMessagePassing(schedule=schedule, damping=0.2, **TIGHT).marginals(model)
    other = TRWMessagePassing(damping=0.5, **TIGHT).marginals(model)
    assert_allclose(found.unary, other.unary, atol=1e-9)
    assert found.log_z == pytest.approx(other.log_z, abs=1e-9)


def test_errors():
    model = random_model("cycle", 2, seed=6)
    with pytest.warns(ConvergenceWarning, match="TRWMessagePassing stopped after max_iter=1"):
        TRWMessagePassing(max_iter=1, tol=0).marginals(model)
    with pytest.raises(
        ValueError, match='edge_probabilities must be "auto", "uniform", "chains", "covering", "snakes" or an array'
    ):
        TRWMessagePassing("even").marginals(model)
    with pytest.raises(ValueError, match=r"edge_probabilities\[1\] is 0: every edge"):
        TRWMessagePassing([1, 0, 1, 1, 1]).marginals(model)
    with pytest.raises(ValueError, match="shape"):
        TRWMessagePassing([1.0]).marginals(model)


@given(st.integers(0, 2**16))
@settings(max_examples=10, deadline=None)
def test_warm_start_ends_where_it_began(seed):
    model = random_model("grid", 2, "untied", seed=seed)
    algorithm = TRWMessagePassing(max_iter=2000, tol=1e-9, damping=0.2)
    first = algorithm.marginals(model)
    again = algorithm.marginals(model, init=first.state)
    assert again.n_iter <= 2
    assert_allclose(again.unary, first.unary, atol=1e-7)


CLIQUE = Graph(4, [[s, t] for s in range(4) for t in range(s)])


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0, 1000.0])
@pytest.mark.parametrize("inference", [TRWMessagePassing(), NormProductBP(), EdgeEntropyBP(), LoopyBP()])
def test_converged_messages_are_near_a_fixed_point_at_any_scale(inference, scale):
    n_converged = 0
    for seed in range(12):
        for graph in (CLIQUE, "grid"):
            model = random_model(graph, 2 + seed % 2, "untied", scale=scale, seed=seed)
            with convergence_left_to_caller():
                found = inference.marginals(model)
            if not found.converged:
                continue
            n_converged += 1
            onwards = clone(inference).set_params(tol=1e-12, max_iter=50)
            with convergence_left_to_caller():
                end = onwards.marginals(model, init=found.state)
            assert_allclose(found.unary, end.unary, atol=0.01)
            assert found.log_z == pytest.approx(end.log_z, abs=0.05)
            if found.bound == "upper":
                exact = BruteForce().marginals(model).log_z
                assert found.log_z >= exact - 1e-9 * abs(exact)
    assert n_converged > 10


@pytest.mark.parametrize("edge_probabilities", ["auto", "chains", "covering"])
@pytest.mark.parametrize("max_iter", [1, 3, 200])
def test_log_z_is_the_value_of_a_dual_at_any_messages(max_iter, edge_probabilities):
    # The reference sums over all pairs of states.
    for seed in range(10):
        for dtype, n_columns, scale in ((np.float64, 3, 1.0), (np.float64, 2, 100.0), (np.float32, 3, 3.0)):
            model = random_model("grid", n_columns, "untied", scale=scale, dtype=dtype, seed=seed)
            inference = TRWMessagePassing(edge_probabilities, max_iter=max_iter)
            with convergence_left_to_caller():
                found = inference.marginals(model)
            with np.errstate(divide="ignore"):
                messages = found.state.values if found.state.as_scores else np.log(found.state.values)
            expected = dual_value(model, messages, choose_edge_probabilities(model.graph, edge_probabilities))
            tol = 1e-5 if dtype == np.float32 else 1e-9
            assert found.bound == "upper"
            assert found.log_z == pytest.approx(expected, abs=tol * (1 + scale) * 10, rel=tol)
            exact = BruteForce().marginals(model).log_z
            assert found.log_z >= exact - tol * abs(exact)


def dual_value(model, messages, probabilities):
    """Compute the reference bound from log-partitions of nodes, and of edges given each end; the worse end counts."""
    incidence = model.graph.incidence
    slot = np.argsort(incidence.half_edge)
    nodes = model.unary.astype(np.float64)
    np.add.at(nodes, np.repeat(np.arange(model.graph.n_nodes), model.graph.degree), messages.astype(np.float64))
    total = logsumexp(nodes, axis=1).sum()
    nodes = nodes - logsumexp(nodes, axis=1, keepdims=True)
    for e, (i, j) in enumerate(model.graph.edges):
        first, second = messages[slot[2 * e]].astype(float), messages[slot[2 * e + 1]].astype(float)
        pair = (model.edge_tables([e])[0] - first[:, None] - second[None]) / probabilities[e]
        given_first = logsumexp(pair + nodes[j][None], axis=1).max()
        given_second = logsumexp(pair + nodes[i][:, None], axis=0).max()
        total += probabilities[e] * max(given_first, given_second)
    return total


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1.0), (np.float64, 1.0), (np.float64, 2.0)])
def test_messages_of_dense_graphs_are_probabilities(scale, dtype, monkeypatch):
    # Edges of dense graphs appear in few trees, so that divided scores are large, but messages are not.
    rng = np.random.default_rng(0)
    edges = np.argwhere(np.triu(rng.random((60, 60)) < 0.7, 1))
    unary, tables = rng.normal(size=(60, 3)), scale * rng.normal(size=(1, 2, 3, 3)) / 8
    model = PairwiseModel(
        Graph(60, edges), unary.astype(dtype), tables.astype(dtype), None, rng.random((len(edges), 2))
    )
    inference = TRWMessagePassing(tol=1e-9, max_iter=2000)
    made, kinds = _field.make_field, []

    def recorded(*arguments, **options):
        field, shift = made(*arguments, **options)
        kinds.append(field.semiring)
        return field, shift

    monkeypatch.setattr(_belief_propagation, "make_field", recorded)
    found = inference.marginals(model)
    monkeypatch.setattr(_field, "LARGEST_RANGE", dict.fromkeys(_field.LARGEST_RANGE, 0.0))
    expected = inference.marginals(convert_to_double(model))
    assert kinds == [_field.SUM_PROBABILITY, _field.SUM_SCORE]
    assert found.converged
    assert expected.converged
    assert_allclose(found.unary, expected.unary, atol=1e-3)
    assert found.log_z == pytest.approx(expected.log_z, rel=1e-4)
