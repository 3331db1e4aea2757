"""Factor graphs: tables of all kinds, scores, statistics, conversions, and what is refused."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph
from hypothesis import given, settings
from model_strategies import models, random_model

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import BruteForce, GraphCut
from sklearn_crf.models import (
    CountTable,
    FactorGraph,
    PairwiseModel,
    SparseTable,
    at_least_one,
    at_most_one,
    clamped,
    compute_labeling_statistics,
    compute_score_terms,
    exactly_one,
    extract_components,
    factor_graph_of,
    pairwise_model_of,
    score,
)

few = settings(max_examples=40, deadline=None)


def random_labels(model, rng):
    n_states = model.n_states if isinstance(model, FactorGraph) else np.full(model.graph.n_nodes, model.n_columns)
    return rng.integers(n_states)


def plain_score(model, labels):
    """Compute the score by looking up every factor in its dense table."""
    total = 0.0
    for f in range(model.n_factors):
        scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
        total += float(model.dense_table(f)[tuple(labels[scope])])
    return total


@few
@given(factor_graphs())
def test_score_is_the_sum_of_written_out_tables(model):
    rng = np.random.default_rng(0)
    for _ in range(5):
        labels = random_labels(model, rng)
        np.testing.assert_allclose(score(model, labels), plain_score(model, labels), rtol=1e-12, atol=1e-12)


@few
@given(factor_graphs())
def test_statistics_are_the_derivative_of_the_score(model):
    labels = random_labels(model, np.random.default_rng(1))
    statistics = compute_labeling_statistics(model, labels)
    used = statistics.log_table > 0
    default = statistics.table_default > 0
    value = np.sum(statistics.log_table[used] * model.log_table[used])
    value += np.sum(statistics.table_default[default] * model.table_default[default])
    np.testing.assert_allclose(score(model, labels), value, rtol=1e-12, atol=1e-12)
    assert statistics.log_table.sum() + statistics.table_default.sum() == model.n_factors


@few
@given(factor_graphs())
def test_brute_force_marginals_are_gradients(model):
    exact = BruteForce().marginals(model)
    np.testing.assert_allclose(exact.unary.sum(axis=1), 1)
    rng = np.random.default_rng(2)
    up = rng.normal(size=model.log_table.size)
    up_default = rng.normal(size=model.n_tables)
    h = 1e-5

    def log_z(step):
        moved = replace(
            model, log_table=model.log_table + step * up, table_default=model.table_default + step * up_default
        )
        return BruteForce().marginals(moved).log_z

    slope = (log_z(h) - log_z(-h)) / (2 * h)
    cells, defaults = exact.statistics
    np.testing.assert_allclose(cells @ up + defaults @ up_default, slope, rtol=1e-6, atol=1e-7)


@few
@given(models(max_states=3))
def test_a_pairwise_model_and_its_factor_graph_agree(model):
    graph = factor_graph_of(model)
    pairwise, factors = BruteForce().marginals(model), BruteForce().marginals(graph)
    np.testing.assert_allclose(factors.unary, pairwise.unary[:, : graph.n_columns], atol=1e-12)
    np.testing.assert_allclose(factors.log_z, pairwise.log_z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(factors.log_z_terms, pairwise.log_z_terms, rtol=1e-12, atol=1e-12)
    labels = BruteForce().map(graph).labels
    np.testing.assert_allclose(
        compute_score_terms(graph, labels), compute_score_terms(model, labels), rtol=1e-12, atol=1e-12
    )
    checked = replace(graph)
    for field in fields(graph):
        name = field.name
        own, fresh = getattr(graph, name), getattr(checked, name)
        assert own is fresh is None or (own.dtype == fresh.dtype and np.array_equal(own, fresh)), name
    back = pairwise_model_of(graph)
    assert np.array_equal(back.graph.edges, model.graph.edges)
    np.testing.assert_allclose(
        compute_score_terms(back, labels), compute_score_terms(model, labels), rtol=1e-12, atol=1e-12
    )


def test_edges_of_one_type_share_a_table():
    model = random_model("grid", kind="typed", seed=3)
    graph = factor_graph_of(model)
    assert graph.n_tables == 9 + 2
    assert len(pairwise_model_of(graph).tables) == 2


@few
@given(factor_graphs(max_arity=2))
def test_a_factor_graph_of_small_arity_is_a_pairwise_model(model):
    if model.arity.max(initial=0) > 2:
        with pytest.raises(ValueError, match="at most two"):
            pairwise_model_of(model)
        return
    pairwise = pairwise_model_of(model)
    assert np.array_equal(BruteForce().map(pairwise).labels, BruteForce().map(model).labels)
    np.testing.assert_allclose(BruteForce().marginals(pairwise).log_z, BruteForce().marginals(model).log_z)


def test_factors_on_the_same_nodes_are_added_whatever_their_direction():
    a, b = np.arange(6.0).reshape(2, 3), 10 * np.arange(6.0).reshape(3, 2)
    model = pairwise_model_of(FactorGraph.from_factors([2, 3], [((0, 1), a), ((1, 0), b)]))
    assert model.graph.edges.tolist() == [[0, 1]]
    assert np.array_equal(model.edge_tables()[0, :2, :3], a + b.T)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("state", [0, 1, 2])
def test_constraints_allow_what_they_say(constraint, state):
    model = FactorGraph.from_factors([3, 3, 3, 3], [((2, 0, 3), constraint(state))])
    rule = {at_most_one: lambda n: n <= 1, exactly_one: lambda n: n == 1, at_least_one: lambda n: n >= 1}[constraint]
    for labels in product(range(3), repeat=4):
        n = sum(labels[s] == state for s in (2, 0, 3))
        assert score(model, np.array(labels)) == (0 if rule(n) else -np.inf)


def test_a_count_table_is_small_and_shared_by_factors_of_any_arity():
    table = at_most_one()
    model = FactorGraph.from_factors(np.full(1000, 2), [(range(1000), table), ((0, 1), table), ((5,), table)])
    assert model.log_table.size == 2
    labels = np.zeros(1000, dtype=int)
    labels[7] = 1
    assert score(model, labels) == 0
    labels[8] = 1
    assert score(model, labels) == -np.inf


def test_the_same_table_object_is_stored_once():
    table = np.zeros((2, 2))
    model = FactorGraph.from_factors([2, 2, 2], [((0, 1), table), ((1, 2), table), ((0, 2), table.copy())])
    assert model.n_tables == 2
    assert model.table_id.tolist() == [0, 0, 1]
    np.testing.assert_allclose(BruteForce().marginals(model).statistics.log_table, [0.5] * 4 + [0.25] * 4)


def test_float32_stays_float32():
    model = FactorGraph.from_factors([2, 2], [((0, 1), np.eye(2, dtype=np.float32))])
    assert model.dtype == np.float32
    assert BruteForce().marginals(model).unary.dtype == np.float32


def test_clamped_forbids_the_other_states():
    model = random_factor_graph(seed=5)
    labels = BruteForce().map(model).labels
    observed = np.where(np.arange(model.n_nodes) % 2, labels, -1)
    few_left = BruteForce().sample(clamped(model, observed), 20, random_state=0)
    assert np.all(few_left[:, 1::2] == labels[1::2])
    assert score(clamped(model, observed), labels) == score(model, labels)
    with pytest.raises(ValueError, match="labels"):
        clamped(model, np.full(model.n_nodes, 3))


def test_constants_belong_to_the_first_node():
    model = FactorGraph.from_factors([2, 2], [((), np.array(3.0)), ((), at_most_one())])
    assert compute_score_terms(model, [0, 1]).tolist() == [3.0, 0.0]
    np.testing.assert_allclose(BruteForce().marginals(model).log_z_terms, [3 + np.log(2), np.log(2)])


def test_components_are_numbered_by_their_first_nodes():
    model = FactorGraph.from_factors([2] * 5, [((4, 1), np.eye(2)), ((3, 2), np.eye(2))])
    assert model.component.tolist() == [0, 1, 2, 2, 1]
    assert model.n_components == 3


def test_no_factors():
    model = FactorGraph.from_factors([2, 3], [])
    np.testing.assert_allclose(BruteForce().marginals(model).log_z, np.log(6))
    assert score(model, [1, 2]) == 0


@pytest.mark.parametrize(
    ("n_states", "factors", "message"),
    [
        ([2, 2], [((0, 2), np.eye(2))], r"the scope of factors\[0\] must be between 0 and 1, found values from 0 to 2"),
        ([2, 2], [((0, 1), np.eye(3))], r"factors\[0\] needs a table of shape \(2, 2\)"),
        ([2, 2], [((0, 0), np.eye(2))], "a node twice"),
        ([2, 0], [((0,), np.zeros(2))], "n_states must be between 1 and"),
        ([2, 2], [((0, 1), np.array([[0, np.nan], [0, 0]]))], "log_table must be finite or -inf"),
        ([2, 2], [((0, 1), np.array([[0, np.inf], [0, 0]]))], "log_table must be finite or -inf"),
        ([2, 2], [((0, 1), SparseTable([[0, 2]], [1.0]))], r"lists the states \[0, 2\]"),
        ([2, 2], [((0, 1), SparseTable([[0, 1, 1]], [1.0]))], "SparseTable needs states of shape"),
        ([2, 2], [((0, 1), SparseTable([[0, 1], [0, 1]], [1.0, 2.0]))], "strictly increasing"),
        ([2, 2], [((0, 1), SparseTable([[0, 1]], [1.0], np.nan))], "table_default must be finite or -inf"),
        ([2], [((0,), CountTable([0.0], 0.0, -1))], r"state of factors\[0\] must be between 0 and"),
        ([], [((), np.array(1.0))], "needs at least one node"),
        ([2.0, 2.0], [((0, 1), np.eye(2))], "n_states must be integers"),
        ([[2, 2]], [], "n_states must be a 1-D array"),
        ([2, 2], [((0.0, 1.0), np.eye(2))], r"scope of factors\[0\] must be integers"),
        ([2, 2], [((0, 2**32 + 1), np.eye(2))], r"scope of factors\[0\] must be between 0 and 1"),
        ([2, 2], [((0, 1), 1j * np.eye(2))], "Complex data not supported"),
        ([2, 2], [((0, 1), np.full((2, 2), 1e101))], "in magnitude at most 1e"),
        ([2, 2], [((0, 1), SparseTable([[0.5, 1.0]], [1.0]))], r"states of factors\[0\] must be integers"),
        ([2, 2], [((0, 1), SparseTable([[0, 2**32]], [1.0]))], "lists the states"),
        ([2], [((0,), CountTable([0.0], 0.0, 1.5))], r"state of factors\[0\] must be an integer"),
    ],
)
def test_what_does_not_fit_is_refused(n_states, factors, message):
    with pytest.raises(ValueError, match=message):
        FactorGraph.from_factors(n_states, factors)


def test_fields_that_do_not_fit_are_refused():
    model = FactorGraph.from_factors([2, 2, 3], [((0, 1), np.eye(2)), ((1, 2), np.zeros((2, 3)))])
    for name, value, message in [
        ("scope_ptr", [0, 2, 5], "scope_ptr must ascend"),
        ("table_ptr", [0, 5, 4, 10], "table_ptr must ascend"),
        ("table_id", [0, 7], "table_id must be between 0 and 1"),
        ("table_id", [0], "table_id must have one entry"),
        ("table_id", [0, 0], "its table 0"),
        ("scope", [0, 1, 1, 9], "scope must be between 0 and 2"),
        ("scope", [0.0, 1.0, 1.0, 2.0], "scope must be integers, got float64"),
        ("table_kind", [1, 0], "table_cell must be given"),
        ("table_kind", [3, 0], "table_kind must be"),
        ("table_default", [0.0], "table_default must have shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(model, **{name: np.asarray(value)})


def test_tables_shared_by_unlike_scopes_are_refused():
    table = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"factors\[1\] needs a table of shape \(3, 2\)"):
        FactorGraph.from_factors([2, 3], [((0, 1), table), ((1, 0), table)])
    with pytest.raises(ValueError, match="share table 0"):
        FactorGraph([2, 3], [0, 1, 1, 0], [0, 2, 4], [0, 0], np.zeros(6), [0, 6])


def test_infeasible_models_are_an_error():
    with pytest.raises(ValueError, match="factor 0 forbids every joint state"):
        BruteForce().map(FactorGraph.from_factors([2], [((0,), np.full(2, -np.inf))]))
    one = ((0,), np.array([0.0, -np.inf]))
    other = ((0,), np.array([-np.inf, 0.0]))
    with pytest.raises(ValueError, match="infeasible"):
        BruteForce().marginals(FactorGraph.from_factors([2], [one, other]))


def test_an_algorithm_for_pairwise_models_says_so():
    with pytest.raises(TypeError, match="must be a PairwiseModel for GraphCut, got FactorGraph"):
        GraphCut().map(random_factor_graph())


def test_labels_that_are_no_states_are_refused():
    model = FactorGraph.from_factors([2, 3], [])
    for labels, message in [
        ([0, 3], r"labels\[1\] is 3"),
        ([0], r"labels must have shape \(2,\)"),
        ([-1, 0], r"labels\[0\] is -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            score(model, np.array(labels))


def test_pairwise_models_without_edges_convert():
    model = PairwiseModel(Graph(2, []), np.zeros((2, 3)), np.zeros((0, 3, 3)))
    assert factor_graph_of(model).n_factors == 2
    np.testing.assert_allclose(BruteForce().marginals(pairwise_model_of(factor_graph_of(model))).log_z, 2 * np.log(3))


@pytest.mark.parametrize("kind", ["pairwise", "factors"])
def test_components_have_their_part_of_the_score(kind):
    rng = np.random.default_rng(4)
    # Components of one, two and three nodes, with mixed node numbers.
    graph = Graph(6, [[0, 4], [4, 2], [5, 1]])
    model = PairwiseModel(
        graph, rng.normal(size=(6, 3)), rng.normal(size=(3, 3, 3)), np.array([2, 0, 1]), rng.random(3)
    )
    model = replace(model, n_states=np.array([3, 2, 3, 1, 3, 2], dtype=np.int32))
    model = model if kind == "pairwise" else factor_graph_of(model)
    labels = np.array([rng.integers(n) for n in [3, 2, 3, 1, 3, 2]], dtype=np.int32)
    parts = [extract_components(model, np.arange(3) == k) for k in range(3)]
    assert sorted(len(nodes) for _, nodes in parts) == [1, 2, 3]
    assert sorted(np.concatenate([nodes for _, nodes in parts])) == list(range(6))
    assert sum(score(part, labels[nodes]) for part, nodes in parts) == pytest.approx(score(model, labels))
    whole, nodes = extract_components(model, np.ones(3, dtype=bool))
    assert np.array_equal(nodes, np.arange(6))
    assert score(whole, labels) == pytest.approx(score(model, labels))
