"""A fixed number of sweeps: marginals, losses and gradients through the sweeps, compared with plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal
from sweep_reference import swept_loss

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import LoopyBP, MeanField, TreeInference, TRWMessagePassing
from sklearn_crf.inference.messages import _fixed_sweeps
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.inference.messages._fixed_sweeps import SWEEP_LOSSES, FixedSweeps
from sklearn_crf.models import PairwiseModel, expand_edge_tables

METHODS = ("trw", "loopy", "mean_field")
GRAPHS = {
    "lattice": lattice((3, 4)),
    # A triangle, a chain with unordered nodes, and an isolated node.
    "parts": Graph(8, [[0, 1], [1, 2], [0, 2], [7, 3], [3, 5], [5, 4]]),
    "star": Graph(11, [[0, i] for i in range(1, 11)] + [[1, 2]]),
    "tree": Graph(7, [[3, 0], [3, 1], [1, 2], [4, 3], [6, 4]]),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_model(graph, n_states, rng, *, n_features=1, potts=False, scale=1.0):
    n_types = 2
    tables = scale * rng.normal(size=(n_types, n_features, n_states, n_states))
    if potts:
        tables = np.eye(n_states) * tables[..., :1, :1]
    return PairwiseModel(
        graph,
        scale * rng.normal(size=(graph.n_nodes, n_states)),
        tables,
        rng.integers(n_types, size=graph.n_edges),
        rng.uniform(0.5, 1.5, size=(graph.n_edges, n_features)),
    )


def order_of(graph):
    return graph.forest.order[::-1] if graph.is_forest else np.arange(graph.n_nodes)


def reference(model, labels, method, n_sweeps, loss, weight=None):
    appearance = choose_edge_probabilities(model.graph, "auto")
    order = order_of(model.graph)
    return swept_loss(model, labels, method, n_sweeps, loss, order=order, appearance=appearance, weight=weight)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("loss", SWEEP_LOSSES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("n_states", "n_features", "potts"), [(2, 1, False), (2, 3, True), (3, 2, False), (4, 1, True)]
)
def test_kernel_is_the_reference(method, loss, graph, n_states, n_features, potts, rng):
    model = random_model(GRAPHS[graph], n_states, rng, n_features=n_features, potts=potts)
    labels = rng.integers(-1, n_states, size=model.n_nodes).astype(np.int32)
    weight = None if loss == "clique" else rng.uniform(0.5, 2, size=model.n_nodes)
    found = FixedSweeps(method=method, n_sweeps=3).loss_through_sweeps(model, labels, loss, node_weight=weight)
    value, q, statistics = reference(model, labels, method, 3, loss, weight)
    assert_allclose(found.beliefs, q, atol=1e-12)
    assert_allclose(found.terms.sum(), value, rtol=1e-11)
    assert_allclose(found.unary, statistics.unary, atol=1e-11)
    assert_allclose(found.tables.sum(axis=0), statistics.tables, atol=1e-11)


@pytest.mark.parametrize("loss", SWEEP_LOSSES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_gradient_is_that_of_finite_differences(method, loss, scale, rng):
    # At the large scale, messages are stored as scores, while the scores of the labels are moderate.
    model = random_model(lattice((3, 3)), 3, rng)
    if scale > 1:
        model = replace(model, tables=np.concatenate([model.tables, scale * rng.normal(size=(1, 1, 3, 3))]))
        model = replace(model, edge_type=np.where(np.arange(model.graph.n_edges) < 2, 2, model.edge_type))
    labels = rng.integers(-1, 3, size=9).astype(np.int32)
    sweeps = FixedSweeps(method=method, n_sweeps=4)

    def loss_of(**values):
        return sweeps.loss_through_sweeps(replace(model, **values), labels, loss).terms.sum()

    found = sweeps.loss_through_sweeps(model, labels, loss)
    by_unary = five_point(lambda x: loss_of(unary=x), model.unary)
    by_tables = five_point(lambda x: loss_of(tables=x), model.tables)
    assert_allclose(found.unary, by_unary, atol=1e-6, rtol=1e-6)
    assert_allclose(found.tables.sum(axis=0), by_tables, atol=1e-6, rtol=1e-6)
    assert np.abs(by_tables).max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_sweeps", [10, 40])
def test_many_sweeps_keep_their_accuracy(method, n_sweeps, rng):
    model = random_model(lattice((9, 8)), 3, rng)
    labels = rng.integers(3, size=72).astype(np.int32)
    sweeps = FixedSweeps(method=method, n_sweeps=n_sweeps)
    found = sweeps.loss_through_sweeps(model, labels, "clique").tables.sum(axis=0)

    def loss(tables):
        return sweeps.loss_through_sweeps(replace(model, tables=tables), labels, "clique").terms.sum()

    by_tables = five_point(loss, model.tables, step=2e-4)
    assert_allclose(found, by_tables, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["trw", "loopy"])
def test_forbidden_pairs(method, rng):
    model = random_model(lattice((3, 3)), 3, rng)
    tables = model.tables.copy()
    tables[0, 0, 0, 2] = -np.inf
    model = replace(model, tables=tables)
    labels = np.ones(9, dtype=np.int32)
    sweeps = FixedSweeps(method=method, n_sweeps=3)
    found = sweeps.loss_through_sweeps(model, labels, "clique")
    with np.errstate(invalid="ignore"):
        by_tables = five_point(
            lambda x: sweeps.loss_through_sweeps(replace(model, tables=x), labels, "clique").terms.sum(), tables
        )
    allowed = np.isfinite(tables)
    assert_allclose(found.tables.sum(axis=0)[allowed], by_tables[allowed], atol=1e-6)
    assert_array_equal(found.tables.sum(axis=0)[~allowed], 0)


def test_mean_field_refuses_forbidden_pairs(rng):
    model = random_model(lattice((2, 2)), 2, rng)
    model = replace(model, tables=np.where(np.eye(2), model.tables, -np.inf))
    with pytest.raises(ValueError, match="forbidden joint states"):
        FixedSweeps(method="mean_field").marginals(model)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_states", [2, 3])
def test_many_sweeps_come_to_the_converged_marginals(method, n_states, rng):
    model = random_model(lattice((3, 4)), n_states, rng, scale=0.5)
    usual = {
        "trw": TRWMessagePassing(tol=1e-13, max_iter=2000),
        "loopy": LoopyBP(tol=1e-13, max_iter=2000),
        "mean_field": MeanField(tol=1e-14),
    }[method].marginals(model)
    found = FixedSweeps(method=method, n_sweeps=300).marginals(model)
    assert_allclose(found.unary, usual.unary, atol=1e-8)
    assert_allclose(found.tables, usual.tables, atol=1e-7)
    assert not found.converged
    assert found.n_iter == 300


@pytest.mark.parametrize("method", ["trw", "loopy"])
def test_one_sweep_is_exact_on_a_tree(method, rng):
    model = random_model(GRAPHS["tree"], 3, rng)
    exact = TreeInference().marginals(model)
    found = FixedSweeps(method=method, n_sweeps=1).marginals(model)
    assert_allclose(found.unary, exact.unary, atol=1e-12)
    assert_allclose(found.tables, exact.tables, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_statistics_sum_marginals_of_edges(method, rng):
    model = random_model(lattice((3, 3)), 2, rng, n_features=2)
    sweeps = FixedSweeps(method=method, n_sweeps=2)
    pairs = sweeps.marginals(expand_edge_tables(model)).tables[:, 0]
    summed = np.zeros_like(model.tables)
    for e, pair in enumerate(pairs):
        summed[model.edge_type[e]] += model.edge_weight[e][:, None, None] * pair
    assert_allclose(sweeps.marginals(model).tables, summed, atol=1e-12)
    assert_allclose(pairs.sum(axis=(1, 2)), 1)


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_threads(method, dtype, n_states, rng):
    graph = Graph(6000, [[3 * i + a, 3 * i + b] for i in range(2000) for a, b in ((0, 1), (1, 2), (0, 2))])
    model = random_model(graph, n_states, rng)
    model = replace(
        model,
        unary=model.unary.astype(dtype),
        tables=model.tables.astype(dtype),
        edge_weight=model.edge_weight.astype(dtype),
    )
    labels = rng.integers(n_states, size=graph.n_nodes).astype(np.int32)
    sweeps = FixedSweeps(method=method, n_sweeps=3)
    one, *others = (sweeps.loss_through_sweeps(model, labels, "clique", n_threads=n) for n in (1, 2, 7))
    assert len(one.tables) > 1
    for other in others:
        for name in ("terms", "unary", "tables", "beliefs"):
            assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_apart(method, rng):
    # Edge probabilities and sweeps of a component are the same as for the component alone.
    model = random_model(lattice((3, 3)), 3, rng)
    edges = np.concatenate([model.graph.edges, model.graph.edges + 9])
    both = PairwiseModel(
        Graph(18, edges),
        np.concatenate([model.unary, model.unary[::-1]]),
        model.tables,
        np.tile(model.edge_type, 2),
        np.tile(model.edge_weight, (2, 1)),
    )
    sweeps = FixedSweeps(method=method, n_sweeps=2)
    assert_allclose(sweeps.marginals(both).unary[:9], sweeps.marginals(model).unary, atol=1e-13)


@pytest.mark.parametrize("loss", SWEEP_LOSSES)
@pytest.mark.parametrize("method", ["trw", "loopy"])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("graph", GRAPHS)
def test_log_odds_equal_messages_of_both_states(graph, scale, method, loss, rng, monkeypatch):
    model = random_model(GRAPHS[graph], 2, rng, n_features=2, scale=scale)
    for array in (model.unary, model.tables, model.edge_weight):
        array.setflags(write=False)
    labels = rng.integers(-1, 2, size=model.n_nodes).astype(np.int32)
    sweeps = FixedSweeps(method=method, n_sweeps=6)
    single, marginals = sweeps.loss_through_sweeps(model, labels, loss), sweeps.marginals(model)
    monkeypatch.setattr(_fixed_sweeps, "_can_use_log_odds", lambda model: False)
    double, usual = sweeps.loss_through_sweeps(model, labels, loss), sweeps.marginals(model)
    assert_allclose(single.beliefs, double.beliefs, atol=1e-10)
    assert_allclose(single.terms, double.terms, rtol=1e-11, atol=1e-10)
    assert_allclose(single.unary, double.unary, atol=1e-9)
    assert_allclose(single.tables.sum(axis=0), double.tables.sum(axis=0), atol=1e-9)
    assert_allclose(marginals.unary, usual.unary, atol=1e-10)
    assert_allclose(marginals.tables, usual.tables, atol=1e-9)


@pytest.mark.parametrize("value", [-np.inf, 1e90])
@pytest.mark.parametrize("method", ["trw", "loopy"])
def test_two_states_of_extreme_scores(method, value, rng):
    model = random_model(lattice((3, 3)), 2, rng)
    unary = model.unary.copy()
    unary[4, 1] = value
    found = FixedSweeps(method=method).loss_through_sweeps(
        replace(model, unary=unary), np.zeros(9, np.int32), "univariate"
    )
    assert_allclose(found.beliefs[4], [value < 0, value > 0])
    assert np.all(np.isfinite(found.unary))


def test_single_precision_is_close(rng):
    model = random_model(lattice((8, 9)), 3, rng)
    single = PairwiseModel(
        model.graph, *(each.astype(np.float32) for each in (model.unary, model.tables)), model.edge_type,
        model.edge_weight.astype(np.float32),
    )  # fmt: skip
    labels = rng.integers(3, size=72).astype(np.int32)
    for method in METHODS:
        sweeps = FixedSweeps(method=method)
        wide, narrow = (sweeps.loss_through_sweeps(each, labels, "clique") for each in (model, single))
        assert_allclose(narrow.tables, wide.tables, rtol=1e-4, atol=1e-4)
        assert_allclose(narrow.unary, wide.unary, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("option", "value"), [("n_sweeps", 0), ("n_sweeps", 1.5), ("method", "trws")])
def test_wrong_options(option, value, rng):
    with pytest.raises(ValueError, match=option):
        FixedSweeps(**{option: value}).marginals(random_model(lattice((2, 2)), 2, rng))
