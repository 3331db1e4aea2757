"""Mean field on factor graphs against a plain reference, and derivatives through its sweeps."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from factor_examples import factor_examples
from factor_strategies import random_factor_graph
from finite_differences import five_point
from model_strategies import random_model
from numpy.testing import assert_allclose
from scipy.special import softmax

from sklearn_crf import TRWCRF
from sklearn_crf.inference import BruteForce, MeanField, convergence_left_to_caller
from sklearn_crf.inference.messages._fixed_sweeps import SWEEP_LOSSES, FixedSweeps
from sklearn_crf.learning import TruncatedInference
from sklearn_crf.models import CountTable, FactorGraph, factor_graph_of
from sklearn_crf.objectives import TruncatedLoss

GRAPHS = [random_factor_graph(n_nodes=5, n_factors=7, max_arity=4, seed=seed) for seed in range(6)]
TIGHT = {"max_iter": 20000, "tol": 1e-13}


def expected_score(graph, q):
    """Return the expected score under independent nodes by enumeration; linear in each row of q."""
    total = 0.0
    for f in range(graph.n_factors):
        scope = graph.scope[graph.scope_ptr[f] : graph.scope_ptr[f + 1]]
        for states in product(*(range(graph.n_states[s]) for s in scope)):
            p = np.prod([q[s, a] for s, a in zip(scope, states, strict=True)])
            total += p * graph.dense_table(f)[states] if p else 0.0
    return total


@pytest.mark.parametrize("graph", GRAPHS)
def test_sweeps_and_bound_are_the_reference(graph):
    unary = np.where(np.arange(graph.n_columns) < graph.n_states[:, None], 0.0, -np.inf)
    for f in np.flatnonzero(graph.arity == 1):
        s = graph.scope[graph.scope_ptr[f]]
        unary[s, : graph.n_states[s]] += graph.dense_table(f)
    q = softmax(unary, axis=1)
    for _ in range(2):
        for s in range(graph.n_nodes):
            scores = np.full(graph.n_columns, -np.inf)
            for k in range(graph.n_states[s]):
                alone = q.copy()
                alone[s] = np.eye(graph.n_columns)[k]
                scores[k] = expected_score(graph, alone)
            q[s] = softmax(scores)
    with convergence_left_to_caller():
        found = MeanField(max_iter=2, tol=0).marginals(graph)
    assert_allclose(found.unary, q, atol=1e-12)
    assert_allclose(found.log_z, expected_score(graph, q) - (q * np.log(np.where(q > 0, q, 1))).sum(), atol=1e-10)
    assert_allclose(FixedSweeps(method="mean_field", n_sweeps=2).marginals(graph).unary, q, atol=1e-12)
    assert found.log_z <= BruteForce().marginals(graph).log_z + 1e-10


@pytest.mark.parametrize("graph", GRAPHS)
def test_marginals_are_derivatives_of_the_bound(graph):
    rng, step = np.random.default_rng(0), 1e-5
    move = {name: rng.normal(size=getattr(graph, name).shape) for name in ("log_table", "table_default")}
    move["table_default"][np.isneginf(graph.table_default)] = 0.0
    found = MeanField(**TIGHT).marginals(graph)

    def log_z(size):
        moved = {name: getattr(graph, name) + size * values for name, values in move.items()}
        return MeanField(**TIGHT).marginals(replace(graph, **moved), init=found.state).log_z

    slope = sum(float(getattr(found.statistics, name) @ values) for name, values in move.items())
    assert_allclose((log_z(step) - log_z(-step)) / (2 * step), slope, rtol=1e-6, atol=1e-8)


def test_pairwise_models_have_the_same_mean_field():
    model = random_model("grid", 3, "typed", seed=1)
    for inference in (MeanField(), FixedSweeps(method="mean_field", n_sweeps=3)):
        pairwise, factors = inference.marginals(model), inference.marginals(factor_graph_of(model))
        assert_allclose(factors.unary, pairwise.unary, atol=1e-10)


@pytest.mark.parametrize("loss", SWEEP_LOSSES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_losses_are_differentiated_through_sweeps(graph, loss):
    rng = np.random.default_rng(0)
    labels = rng.integers(graph.n_states).astype(np.int32)
    labels[2] = -1
    objective = TruncatedLoss(FixedSweeps(method="mean_field", n_sweeps=3), loss)
    weight = rng.random(5) if objective.weighs_nodes else None
    found = objective.loss_statistics(graph, labels, node_weight=weight)
    has_default = np.isfinite(graph.table_default)

    def value(x):
        default = graph.table_default.copy()
        default[has_default] = x[graph.log_table.size :]
        moved = replace(graph, log_table=x[: graph.log_table.size], table_default=default)
        return objective.loss_statistics(moved, labels, node_weight=weight).terms.sum()

    gradient = np.append(found.statistics.log_table, found.statistics.table_default[has_default])
    expected = five_point(value, np.append(graph.log_table, graph.table_default[has_default]))
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def test_clique_loss_is_the_log_probability_of_factors():
    graph, labels = GRAPHS[0], np.zeros(5, dtype=np.int32)
    sweeps = FixedSweeps(method="mean_field", n_sweeps=3)
    found = TruncatedLoss(sweeps, "clique").loss_statistics(graph, labels)
    log_q = np.log(sweeps.marginals(graph).unary[:, 0])
    scopes = [graph.scope[a:b] for a, b in zip(graph.scope_ptr[:-1], graph.scope_ptr[1:], strict=True) if b - a > 1]
    alone = np.setdiff1d(np.arange(5), np.concatenate(scopes))
    assert_allclose(found.terms.sum(), -sum(log_q[scope].sum() for scope in scopes) - log_q[alone].sum(), rtol=1e-12)


def test_marginals_add_up_where_all_states_are_partly_forbidden():
    # At the start, each state of the first node has a forbidden joint state of positive probability.
    allowed = np.array([[-np.inf, 0.0], [0.0, -np.inf], [-np.inf, 0.0]])
    graph = FactorGraph.from_factors([3, 2], [((1, 0), 0.01 * np.ones((2, 3))), ((0, 1), allowed)])
    with convergence_left_to_caller():
        found = MeanField(max_iter=1).marginals(graph)
    assert_allclose(found.unary.sum(axis=1), 1.0)
    assert found.log_z <= BruteForce().marginals(graph).log_z


def test_forbidden_joint_states():
    graph = FactorGraph.from_factors(
        [2, 2, 2], [((0,), [0.0, 3.0]), ((1,), [0.0, 3.0]), ((0, 1, 2), CountTable([-np.inf, 0.0]))]
    )
    found = MeanField().marginals(graph)
    assert found.bound == "lower"
    assert found.log_z <= BruteForce().marginals(graph).log_z
    with pytest.raises(ValueError, match="does not support forbidden joint states"):
        FixedSweeps(method="mean_field").marginals(graph)
    # A table that lists the scores of all counts forbids nothing.
    every = FactorGraph.from_factors([2, 2], [((0, 1), CountTable([0.0, 1.0, 0.5]))])
    assert np.isfinite(TruncatedLoss(FixedSweeps(method="mean_field")).loss_statistics(every, [0, 1]).terms).all()


@pytest.mark.parametrize("learning", ["mean_field", TruncatedInference(inference="mean_field", n_sweeps=3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_and_prediction(learning, dtype):
    X, y = factor_examples(8)
    X = [x._with(node_features=x.node_features.astype(dtype)) for x in X]
    field = TRWCRF(learning=learning, C=0.1, edge_features="constant").fit(X, y)
    assert field.converged_
    assert field.score(X, y) > 0.6
    assert np.abs(field.factor_coef_["triple"]).max() > 0.01
