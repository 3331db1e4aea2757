"""Loopy belief propagation on factor graphs."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph, random_table
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import BruteForce, JunctionTree, LoopyBP, convergence_left_to_caller
from sklearn_crf.models import CountTable, FactorGraph, SparseTable, at_most_one, factor_graph_of, score


def random_forest(seed, max_states=3, constraint=None):
    """Return factors of one to four nodes, each with at most one node of the factors before it."""
    rng = np.random.default_rng(seed)
    n_nodes = int(rng.integers(1, 9))
    n_states = rng.integers(2 if constraint else 1, max_states + 1, size=n_nodes)
    order, factors, first = rng.permutation(n_nodes), [], 1
    while first < n_nodes:
        n_new = min(int(rng.integers(1, 4)), n_nodes - first)
        scope = order[first : first + n_new]
        if rng.random() < 0.8:
            scope = np.append(scope, order[rng.integers(first)])
        scope = rng.permutation(scope)
        table = random_table(tuple(n_states[scope].tolist()), rng)
        factors.append((scope, constraint() if constraint and len(scope) > 1 else table))
        first += n_new
    factors += [((s,), rng.normal(size=n_states[s])) for s in range(n_nodes)] + [((), np.array(0.3))]
    return FactorGraph.from_factors(n_states, [factors[k] for k in rng.permutation(len(factors))])


@given(st.integers(0, 2**16), st.sampled_from([None, *CONSTRAINTS]))
@settings(max_examples=80, deadline=None)
def test_forests_are_exact(seed, constraint):
    model = random_forest(seed, constraint=constraint)
    exact, best = BruteForce().marginals(model), BruteForce().map(model)
    found, labeling = LoopyBP(damping=0.5).marginals(model), LoopyBP(damping=0.5).map(model)
    assert found.bound == "exact"
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-10)
    assert_allclose(found.unary, exact.unary, atol=1e-10)
    assert_allclose(found.statistics.log_table, exact.statistics.log_table, atol=1e-10)
    assert_allclose(found.statistics.table_default, exact.statistics.table_default, atol=1e-10)
    assert labeling.score == labeling.bound == pytest.approx(best.score, abs=1e-10)


@given(factor_graphs(max_arity=4))
@settings(max_examples=60, deadline=None)
def test_results_are_distributions_and_labelings(model):
    with convergence_left_to_caller():
        found, labeling = LoopyBP(damping=0.3).marginals(model), LoopyBP().map(model)
    assert_allclose(found.unary.sum(axis=1), 1, atol=1e-9)
    assert np.all(found.statistics.log_table >= 0)
    assert found.statistics.log_table.sum() + found.statistics.table_default.sum() == pytest.approx(model.n_factors)
    assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
    assert labeling.score == pytest.approx(score(model, labeling.labels))
    assert labeling.score <= BruteForce().map(model).score + 1e-9


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
def test_pairwise_models_as_factor_graphs(kind):
    for seed in range(4):
        model = random_model("grid", 3, kind, scale=0.7, forbidden=0.15 * (seed % 2), seed=seed)
        algorithm = LoopyBP(max_iter=1000, tol=1e-12)
        found, pairwise = algorithm.marginals(factor_graph_of(model)), algorithm.marginals(model)
        assert found.converged
        assert found.bound is None
        assert_allclose(found.unary, pairwise.unary, atol=1e-9)
        assert found.log_z == pytest.approx(pairwise.log_z, abs=1e-9)


def test_kinds_of_tables_give_the_same_messages():
    for seed in range(20):
        model = random_factor_graph(6, 7, 4, 3, forbidden=0.1 * (seed % 2), seed=seed)
        scopes = np.split(model.scope, model.scope_ptr[1:-1])
        dense = FactorGraph.from_factors(
            model.n_states, [(scope, np.array(model.dense_table(f))) for f, scope in enumerate(scopes)]
        )
        with convergence_left_to_caller():
            found, same = LoopyBP(max_iter=30).marginals(model), LoopyBP(max_iter=30).marginals(dense)
            labels = [LoopyBP(max_iter=30).map(m).score for m in (model, dense)]
        assert_allclose(found.unary, same.unary, atol=1e-9)
        assert found.log_z == pytest.approx(same.log_z, abs=1e-8)
        assert labels[0] == pytest.approx(labels[1], abs=1e-9)


def test_marginals_are_derivatives_of_log_z():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = random_factor_graph(5, 6, 3, 3, seed=seed)
        model = replace(model, log_table=0.3 * model.log_table, table_default=0.3 * model.table_default)
        algorithm = LoopyBP(max_iter=5000, tol=1e-13, damping=0.2)
        found = algorithm.marginals(model)
        direction = rng.normal(size=model.log_table.shape)

        def log_z(step, model=model, direction=direction, algorithm=algorithm):
            return algorithm.marginals(replace(model, log_table=model.log_table + step * direction)).log_z

        h = 1e-3
        numerical = (8 * (log_z(h) - log_z(-h)) - (log_z(2 * h) - log_z(-2 * h))) / (12 * h)
        assert numerical == pytest.approx(found.statistics.log_table @ direction, abs=1e-8)


def test_ties_do_not_mix_two_good_labelings():
    # Two labelings are best, and they differ at every node.
    apart = np.where(np.eye(2), -5.0, 0.0)
    chain = FactorGraph.from_factors([2] * 6, [((s, s + 1), apart) for s in (3, 0, 4, 1, 2)])
    assert LoopyBP().map(chain).score == 0
    odd = CountTable(np.array([0.0, 1.0, 0.0, 1.0]))
    star = FactorGraph.from_factors([2] * 7, [((0, 1, 2), odd), ((6, 2, 3), odd), ((4, 5, 6), odd)])
    assert LoopyBP().map(star).score == 3


def test_sparse_table_over_many_nodes():
    rng = np.random.default_rng(0)
    n, n_listed = 38, 50
    states, values, unary = rng.integers(3, size=(n_listed, n)), rng.normal(size=n_listed), rng.normal(size=(n, 3))
    nodes = rng.permutation(n)
    factors = [((s,), unary[s]) for s in range(n)]
    totals = values + unary[nodes, states].sum(axis=1)
    for default in (-np.inf, -30.0):
        model = FactorGraph.from_factors([3] * n, [*factors, (nodes, SparseTable(states, values, default))])
        rest = (
            default
            + logsumexp(unary, axis=1).sum()
            + np.log1p(-np.exp(logsumexp(unary[nodes, states].sum(axis=1)) - logsumexp(unary, axis=1).sum()))
        )
        found, labeling = LoopyBP().marginals(model), LoopyBP().map(model)
        assert found.log_z == pytest.approx(logsumexp(np.append(totals, rest)), abs=1e-9)
        assert found.statistics.table_default[-1] == pytest.approx(np.exp(rest - found.log_z), abs=1e-12)
        assert labeling.score == pytest.approx(totals.max())


def test_count_table_over_many_nodes():
    n = 3000
    model = FactorGraph.from_factors([2] * n, [(range(n), CountTable([0.0, 1.0, -2.0], 0.5))])
    found = LoopyBP().marginals(model)
    pairs = n * (n - 1) / 2
    logs = np.array([0.0, 1 + np.log(n), -2 + np.log(pairs), 0.5 + n * np.log(2)])
    assert found.log_z == pytest.approx(logsumexp(logs), abs=1e-9)
    assert_allclose(np.concatenate(found.statistics), np.exp(logs - logsumexp(logs)), atol=1e-12)
    assert_allclose(found.unary, 0.5, atol=1e-9)


def test_float32_and_warm_start():
    model = random_factor_graph(6, 8, 3, 3, seed=1)
    single = replace(model, log_table=model.log_table.astype(np.float32), table_default=None)
    model = replace(single, log_table=single.log_table.astype(np.float64), table_default=None)
    algorithm = LoopyBP(max_iter=500, damping=0.2, tol=1e-8)
    found, other = algorithm.marginals(single), algorithm.marginals(model)
    assert found.unary.dtype == np.float32
    assert_allclose(found.unary, other.unary, atol=1e-6)
    again = algorithm.marginals(model, init=other.state)
    assert again.n_iter <= 2
    assert_allclose(again.unary, other.unary, atol=1e-7)
    assert_array_equal(algorithm.marginals(model).unary, other.unary)


def test_errors():
    model = random_factor_graph(6, 8, 3, 3, seed=3)
    with pytest.warns(ConvergenceWarning, match="LoopyBP stopped after max_iter=1 sweeps while prob") as record:
        LoopyBP(max_iter=1, tol=0).marginals(model)
    assert [warning.filename for warning in record] == [__file__]
    with pytest.warns(ConvergenceWarning, match="LoopyBP stopped after max_iter=1 sweeps while scores"):
        LoopyBP(max_iter=1, tol=0).map(model)
    with pytest.raises(ValueError, match='schedule must be "auto" or "sequential" for a FactorGraph'):
        LoopyBP(schedule="residual").marginals(model)
    for algorithm in (LoopyBP(), JunctionTree()):
        with pytest.raises(TypeError, match="edge_marginals needs a PairwiseModel"):
            algorithm.edge_marginals(model)
    infeasible = FactorGraph.from_factors(
        [2] * 5, [((s,), np.array([-np.inf, 0.0])) for s in (1, 3)] + [(range(5), at_most_one())]
    )
    with pytest.raises(ValueError, match="infeasible: every labeling of nodes 0, 1, 2, 3, 4 is forbidden"):
        LoopyBP().map(infeasible)
    with pytest.raises(ValueError, match="infeasible: every labeling of nodes 0, 1, 2, 3, 4 is forbidden"):
        LoopyBP().marginals(infeasible)
