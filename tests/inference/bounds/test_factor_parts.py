"""Scores of factor graphs split among parts without cycles: bounds, derivatives and consistent marginals."""

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from finite_differences import five_point
from numpy.testing import assert_allclose

from sklearn_crf.inference import (
    BruteForce,
    NormProductBP,
    TightenBound,
    compute_consistent_statistics,
    convergence_left_to_caller,
)
from sklearn_crf.inference._factor_forests import choose_factor_forests
from sklearn_crf.inference.bounds._factor_parts import (
    FactorForests,
    FactorParts,
    FactorShares,
    lay_out_forests,
    list_large_factors,
)
from sklearn_crf.models import FactorGraph, replace_scores

SEEDS = [0, 1, 5, 11]


def random_graph(seed, **options):
    return random_factor_graph(6, 8, 4, 3, seed=seed, **options)


def random_parts(model, entropy, rng):
    """Return parts, and a random point; the sets of the tree-reweighted entropy have different weights."""
    if entropy == "trw":
        forests = choose_factor_forests(model, list_large_factors(model), "covering")
        layout = lay_out_forests(model, forests, rng.dirichlet(np.ones(len(forests))))
        parts = FactorParts(model, layout)
    else:
        parts = FactorParts.of(model, entropy)
    return parts, parts.project(rng.normal(size=parts.size))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("entropy", ["trw", "trivial", "factors"])
def test_the_bound_is_differentiated_and_above_the_log_partition(entropy, seed):
    rng, model = np.random.default_rng(seed), random_graph(seed, forbidden=0.1)
    parts, x = random_parts(model, entropy, rng)
    value, gradient = parts.value_grad(model, x)
    assert value >= BruteForce().marginals(model).log_z - 1e-9
    numeric = five_point(lambda moved: parts.value_grad(model, parts.project(moved))[0], x)
    assert_allclose(gradient, numeric, atol=1e-7)
    found = parts.shared_bound(model, x)
    assert_allclose(found.marginals.log_z, value)
    assert_allclose(found.gradient, gradient, atol=1e-12)
    finite = np.isfinite(model.log_table)

    def bound(scores):
        log_table = model.log_table.copy()
        log_table[finite] = scores[: finite.sum()]
        default = np.where(np.isfinite(model.table_default), scores[finite.sum() :], -np.inf)
        return parts.value_grad(replace_scores(model, log_table, default), x)[0]

    default = np.where(np.isfinite(model.table_default), model.table_default, 0.0)
    numeric = five_point(bound, np.concatenate((model.log_table[finite], default)))
    statistics = found.marginals.statistics
    expected = np.concatenate((statistics.log_table[finite], statistics.table_default))
    assert_allclose(expected, numeric, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("entropy", ["trw", "trivial"])
def test_maxima_of_parts_bound_the_best_score(entropy, seed):
    rng, model = np.random.default_rng(seed), random_graph(seed)
    parts, x = random_parts(model, entropy, rng)
    terms, statistics, slope, _ = parts.best_value(model, x)
    value = terms.sum()
    assert value >= BruteForce().map(model).score - 1e-9
    # The bound is convex: at any other scores and shares, it is above the plane that a subgradient defines.
    other = parts.project(x + rng.normal(size=parts.size))
    moved = replace_scores(model, model.log_table + rng.normal(size=model.log_table.size), model.table_default + 0.3)
    plane = value + slope @ (other - x) + statistics.log_table @ (moved.log_table - model.log_table)
    plane += np.where(np.isfinite(model.table_default), 0.3, 0.0) @ statistics.table_default
    assert plane <= parts.best_value(moved, other)[0].sum() + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_bound_is_the_bound_of_norm_product_messages(seed):
    model = random_graph(seed)
    found = TightenBound(tol=1e-7, max_iter=3000).marginals(model)
    messages = NormProductBP("trw", edge_probabilities="covering", tol=1e-10, max_iter=5000).marginals(model)
    assert found.converged
    assert_allclose(found.log_z, messages.log_z, atol=1e-6)
    assert_allclose(found.unary, messages.unary, atol=1e-5)
    assert_allclose(found.statistics.log_table, messages.statistics.log_table, atol=1e-5)


def test_the_bound_falls_by_the_information_of_a_factor():
    model = random_graph(1)
    forests = choose_factor_forests(model, list_large_factors(model), "uniform")
    weights = np.random.default_rng(0).dirichlet(np.full(len(forests), 5.0))
    direction = np.zeros(len(forests))
    direction[:2] = 1.0, -1.0

    def least(step):
        trees = FactorForests(None, forests, weights + step * direction)
        return TightenBound(trees, tol=1e-9, max_iter=5000).marginals(model)

    found = least(0.0)
    information = FactorShares(model, found.state.trees).average(found.state.scores).information()
    numeric = (least(1e-4).log_z - least(-1e-4).log_z) / 2e-4
    assert_allclose(-information @ (direction @ forests), numeric, atol=1e-5)


def test_optimal_sets_are_never_looser():
    model = random_graph(0)
    one, best = (TightenBound(trees, tol=1e-5, max_iter=2000, outer_iter=4) for trees in ("covering", "optimal"))
    with convergence_left_to_caller():
        found = best.marginals(model)
    assert BruteForce().marginals(model).log_z <= found.log_z < one.marginals(model).log_z


@pytest.mark.parametrize("seed", SEEDS)
def test_consistent_statistics_are_those_of_a_point_of_the_local_polytope(seed):
    dense = random_graph(seed)
    factors = [
        (dense.scope[a:b], dense.dense_table(f))
        for f, (a, b) in enumerate(zip(dense.scope_ptr[:-1], dense.scope_ptr[1:], strict=True))
    ]
    # Every factor has its own dense table, so that statistics are the marginals of factors.
    model = FactorGraph.from_factors(dense.n_states, [(scope, table.copy()) for scope, table in factors])
    parts, x = random_parts(model, "trw", np.random.default_rng(seed))
    statistics, nodes = parts.feasible(model, x)
    assert statistics.log_table.min() >= -1e-12
    for f, (scope, table) in enumerate(factors):
        joint = statistics.log_table[slice(*model.table_ptr[f : f + 2])].reshape(table.shape)
        for axis, node in enumerate(scope):
            others = tuple(a for a in range(table.ndim) if a != axis)
            assert_allclose(joint.sum(axis=others), nodes[node, : table.shape[axis]], atol=1e-10)
    # If factors share tables, statistics are sums of the marginals of these factors.
    parts = FactorParts(dense, parts.layout)
    shared, _ = parts.feasible(dense, x)
    score = dense.log_table @ shared.log_table + np.where(
        np.isfinite(dense.table_default), dense.table_default, 0.0
    ) @ (shared.table_default)
    assert_allclose(score, model.log_table @ statistics.log_table, atol=1e-8)


def test_products_on_forbidden_joint_states_are_given_up():
    table = np.array([[0.0, -np.inf], [-np.inf, 0.5]])
    model = FactorGraph.from_factors([2] * 3, [((a, b), table) for a, b in ((0, 1), (1, 2), (0, 2))])
    found, state = compute_consistent_statistics(model)
    assert state.trees.n_trees == 2
    assert found is None or found.log_table[np.isneginf(model.log_table)].max() == 0


def test_given_sets_of_factors():
    model = FactorGraph.from_factors(
        [2] * 4, [((0, 1, 2), np.zeros((2, 2, 2))), ((2, 3), np.eye(2)), ((3, 0), np.eye(2)), ((0,), [0.0, 1.0])]
    )
    found = TightenBound([[0, 1], [0, 2], [1, 2]], tol=1e-8).marginals(model)
    assert_allclose(found.state.trees.edge_probabilities, 2 / 3)
    assert found.log_z >= BruteForce().marginals(model).log_z
    for sets, message in (
        ([[0, 1, 2]], r"trees\[0\] has a cycle through factor 2"),
        ([[0, 1]], "trees leave 1 factors uncovered, of which the first is factor 2"),
        ([[0, 3]], "which is not a factor of at least two nodes"),
        (1, "1 sets of factors without cycles leave 1 of 3 factors uncovered"),
        ("snakes", "trees of a factor graph must be"),
    ):
        with pytest.raises(ValueError, match=message):
            TightenBound(sets).marginals(model)


@pytest.mark.parametrize("trees", ["covering", "uniform", "optimal"])
def test_converged_messages_leave_nothing_to_minimise(trees):
    model = random_factor_graph(max_arity=4, seed=3)
    limits = {"tol": 1e-6, "max_iter": 2000, "outer_iter": 0}
    slow = TightenBound(trees, **limits).marginals(model)
    fast = TightenBound(trees, start_sweeps=2000, **limits).marginals(model)
    assert fast.converged
    assert fast.n_iter <= 2 < slow.n_iter
    assert fast.log_z == pytest.approx(slow.log_z, abs=1e-6)
    assert_allclose(fast.unary, slow.unary, atol=1e-4)
