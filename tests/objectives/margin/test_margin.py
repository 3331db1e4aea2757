"""The structured hinge against enumeration, its planes, and the optimizers that minimise it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from margin_problems import random_cost, random_labels
from model_strategies import TOPOLOGIES, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import build_disjoint_union
from sklearn_crf.inference import ICM, BruteForce, GraphCut, compute_conditional_scores
from sklearn_crf.models import score
from sklearn_crf.objectives import EmpiricalRisk, PlaneOracle, SlackRescaledHinge, StructuredHinge, make_blocks
from sklearn_crf.optimize import bmrm, cutting_plane, frank_wolfe, one_slack, subgradient
from sklearn_crf.optimize._bundle import maximize_on_simplex
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

SMALL = sorted(set(TOPOLOGIES) - {"grid", "disconnected", "disconnected_forest"})


# The loss -----------------------------------------------------------------------------------------------------------


@given(name=st.sampled_from(SMALL), n_columns=st.integers(1, 3), weighted=st.booleans(), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_hinge_is_the_largest_cost_plus_score(name, n_columns, weighted, seed):
    rng = np.random.default_rng(seed)
    model = random_model(name, n_columns, "typed", seed=seed)
    labels, cost = random_labels(model, rng), random_cost(n_columns, rng)
    node_weight = rng.random(len(labels)) if weighted else None
    loss = StructuredHinge(BruteForce(), cost).loss_statistics(model, labels, node_weight=node_weight)
    weight = np.ones(len(labels)) if node_weight is None else node_weight
    values = [
        weight @ cost[np.array(y), labels] + score(model, y) - score(model, labels)
        for y in product(range(n_columns), repeat=len(labels))
    ]
    assert_allclose(loss.terms.sum(), max(values), atol=1e-12)
    assert loss.terms.sum() >= -1e-12
    assert loss.gap <= 1e-12


def test_its_statistics_are_a_subgradient():
    rng = np.random.default_rng(0)
    hinge = StructuredHinge(BruteForce(), random_cost(3, rng))
    model = random_model("cycle", 3, "weighted", seed=1)
    labels = random_labels(model, rng)
    here = hinge.loss_statistics(model, labels)
    for _ in range(20):
        unary, tables = rng.normal(size=model.unary.shape), rng.normal(size=model.tables.shape)
        there = hinge.loss_statistics(replace(model, unary=unary, tables=tables), labels).terms.sum()
        line = np.sum((unary - model.unary) * here.statistics.unary)
        line += np.sum((tables - model.tables) * here.statistics.tables)
        assert there >= here.terms.sum() + line - 1e-9


def test_what_inference_cannot_prove_is_in_the_gap():
    model = random_model("cycle", 2, seed=0)
    labels = np.zeros(5, dtype=np.int32)
    cost = 1.0 - np.eye(2)
    exact = StructuredHinge(BruteForce(), cost).loss_statistics(model, labels).terms.sum()
    bounded = StructuredHinge(GraphCut(nonsubmodular="qpbo"), cost).loss_statistics(model, labels)
    assert bounded.terms.sum() <= exact + 1e-9
    assert bounded.terms.sum() + bounded.gap >= exact - 1e-9
    assert StructuredHinge(ICM(), cost).loss_statistics(model, labels).gap == np.inf


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [StructuredHinge, SlackRescaledHinge])
def test_unlabelled_nodes_are_completed_and_cost_nothing(kind, weighted):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        model, cost = random_model("cycle", 3, seed=seed), random_cost(3, rng)
        labels = random_labels(model, rng)
        labels[rng.permutation(5)[:2]] = -1
        known = labels >= 0
        node_weight = rng.random(5) if weighted else None
        weight = np.ones(5) if node_weight is None else node_weight
        loss = kind(BruteForce(), cost).loss_statistics(model, labels, node_weight=node_weight)
        labelings = list(product(range(3), repeat=5))
        scores = np.array([score(model, y) for y in labelings])
        costs = np.array([(weight * cost[np.array(y), labels])[known].sum() for y in labelings])
        agree = np.array([np.all(np.array(y)[known] == labels[known]) for y in labelings])
        truth = scores[agree].max()
        gains = scores - truth
        expected = np.max(costs + gains if kind is StructuredHinge else costs * (1 + gains))
        assert_allclose(loss.terms.sum(), expected, atol=1e-10)
        nothing = kind(BruteForce(), cost).loss_statistics(model, np.full(5, -1, dtype=np.int32))
        assert_allclose(nothing.terms.sum(), 0.0, atol=1e-10)


@given(name=st.sampled_from(SMALL), seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_conditional_scores_are_scores_of_changed_labels(name, seed):
    model = random_model(name, 3, "weighted", seed=seed)
    labels = random_labels(model, np.random.default_rng(seed))
    scores = compute_conditional_scores(model, labels)
    for s in range(len(labels)):
        changed = [score(model, np.where(np.arange(len(labels)) == s, k, labels)) for k in range(3)]
        assert_allclose(scores[s] - scores[s, 0], np.array(changed) - changed[0], atol=1e-9)


# Planes -------------------------------------------------------------------------------------------------------------


def small_risk(seed=0, n_examples=6, n_classes=3, weight=True, form="full"):
    """Return a risk of structured hinges over two batches of forests, with two features of nodes and one of edges."""
    rng = np.random.default_rng(seed)
    potentials = LinearPotentials(2, n_classes, make_pairwise_form(form, n_classes))
    batches = []
    for start in range(0, n_examples, 3):
        graphs = [TOPOLOGIES[name](rng) for name in ("chain", "one_node", "tree")]
        graph = build_disjoint_union(graphs)
        labels = rng.integers(n_classes, size=graph.n_nodes).astype(np.int32)
        features = rng.normal(size=(graph.n_nodes, 2)) + np.stack((labels, labels == 1), axis=1)
        ptr = np.concatenate(([0], np.cumsum([g.n_nodes for g in graphs])))
        weights = np.full(3, rng.uniform(0.5, 2)) if weight else None
        edge_features = rng.uniform(0.5, 1, size=(graph.n_edges, 1))
        batches.append(
            Batch(Example(features, graph, edge_features), np.arange(start, start + 3), ptr, labels, weights)
        )
    return EmpiricalRisk(StructuredHinge(BruteForce(2**20), 1.0 - np.eye(n_classes)), potentials, batches)


class Problem:
    """Functions that optimizers call."""

    def __init__(self, C=0.3, **options):
        self.risk = small_risk(**options)
        self.C, self.n = C, self.risk.potentials.n_coef
        self.oracle = PlaneOracle(self.risk, C, np.ones(self.n), make_blocks(self.risk.batches))

    def fun(self, x):
        result = self.risk.value_grad(x)
        return self.C * result.value, self.C * result.gradient

    def value(self, x):
        return self.fun(x)[0]

    def blocks(self, solve, **options):
        return solve(self.oracle, self.oracle.sizes, self.value, self.n, random_state=0, **options)


def test_planes_touch_the_risk_from_below():
    problem = Problem()
    rng = np.random.default_rng(0)
    assert problem.oracle.sizes == [3, 3]
    for _ in range(5):
        x, other = rng.normal(size=(2, problem.n))
        parts = [problem.oracle(block, x) for block in range(2)]
        assert_allclose(sum((offsets + slopes @ x).sum() for slopes, offsets in parts), problem.value(x), rtol=1e-12)
        assert sum((offsets + slopes @ other).sum() for slopes, offsets in parts) <= problem.value(other) + 1e-9
        assert_allclose(sum(slopes.sum(axis=0) for slopes, _ in parts), problem.fun(x)[1], atol=1e-12)
    assert problem.oracle.n_inference_calls == 30


@pytest.mark.parametrize(("n_batches", "expected"), [(3, [1, 1, 1]), (70, [1] * 70), (130, [2] * 65), (400, [4] * 100)])
def test_blocks_are_cut_by_the_number_of_batches(n_batches, expected):
    blocks = make_blocks([None] * n_batches)
    assert [len(block) for block in blocks] == expected
    assert sorted(i for block in blocks for i in block) == list(range(n_batches))


# Optimizers ---------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), n=st.integers(1, 8), bound=st.integers(0, 3), rank=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_quadratic_programme_on_a_simplex(seed, n, bound, rank):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + bound, rank))
    root = np.concatenate((root, np.eye(n + bound)[:, n:]), axis=1)
    gram, offset = root @ root.T, rng.normal(size=n + bound)
    start = np.zeros(n + bound)
    start[0] = 1.0
    found = maximize_on_simplex(gram, offset, start, n)
    assert found.min() >= 0
    assert_allclose(found[:n].sum(), 1.0, rtol=1e-9)
    gradient = offset - gram @ found
    level = gradient[:n].max()
    assert_allclose(gradient[:n][found[:n] > 1e-9], level, atol=1e-7)
    assert gradient[n:].max(initial=0.0) <= 1e-7
    assert_allclose(gradient[n:][found[n:] > 1e-9], 0.0, atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-160, 1.0, 1e100])
def test_quadratic_programme_on_planes_that_are_the_same_or_flat(scale):
    rows = scale * np.array([[1.0, 2.0], [1.0, 2.0], [0.5, 1.0], [0.0, 0.0]])
    found = maximize_on_simplex(rows @ rows.T, np.array([0.0, -1.0, -2.0, 1.0]), np.array([0.5, 0.5, 0.0, 0.0]), 4)
    assert_allclose(found, [0.0, 0.0, 0.0, 1.0], atol=1e-12)


def test_the_base_of_a_quadratic_programme_may_become_zero():
    # The first variable is the largest at the start, but zero in the result.
    rng = np.random.default_rng(0)
    for _ in range(50):
        root = rng.normal(size=(6, 4))
        offset = np.append(-5.0, rng.normal(size=5))
        start = np.array([0.4, 0.2, 0.2, 0.2, 0.0, 0.0])
        found = maximize_on_simplex(root @ root.T, offset, start, 6)
        gradient = offset - root @ (root.T @ found)
        assert found[0] == 0
        assert_allclose(found.sum(), 1.0, rtol=1e-12)
        assert_allclose(gradient[found > 0], gradient.max(), atol=1e-9)


def direct_optimum(problem, bounded=()):
    """Return the minimum of P by a quadratic program over all labelings, in x and a slack for every example."""
    planes = []
    for i, batch in enumerate(problem.risk.batches):
        planes += list(enumerated_planes(problem, i, batch))
    n, n_terms = problem.n, len(planes)
    rows = np.concatenate([slopes for slopes, _ in planes])
    offsets = np.concatenate([offsets for _, offsets in planes])
    term = np.repeat(np.arange(n_terms), [len(part) for _, part in planes])
    choose = np.zeros((len(term), n_terms))
    choose[np.arange(len(term)), term] = 1
    constraint = {
        "type": "ineq",
        "fun": lambda z: z[n:][term] - offsets - rows @ z[:n],
        "jac": lambda z: np.concatenate((-rows, choose), axis=1),
    }
    start = np.concatenate((np.zeros(n), np.maximum.reduceat(offsets, np.searchsorted(term, np.arange(n_terms)))))
    found = minimize(
        lambda z: 0.5 * z[:n] @ z[:n] + z[n:].sum(),
        start,
        jac=lambda z: np.concatenate((z[:n], np.ones(n_terms))),
        constraints=[constraint],
        bounds=[(0, None) if k in bounded else (None, None) for k in range(n)] + [(0, None)] * n_terms,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.fun, found.x[:n]


def enumerated_planes(problem, i, batch):
    """Yield all cutting planes of each member, from single nodes and pairs of states, without duplicates."""
    for k in range(len(batch.members)):
        nodes = np.arange(batch.node_ptr[k], batch.node_ptr[k + 1])
        labelings = np.tile(batch.labels, (problem.risk.potentials.n_classes ** len(nodes), 1))
        labelings[:, nodes] = list(product(range(problem.risk.potentials.n_classes), repeat=len(nodes)))
        rows, offsets = [], []
        for labels in labelings.astype(np.int32):
            zeros = np.zeros(problem.n)
            model = problem.risk.potentials.model(zeros, batch.example)
            slopes, costs = problem.oracle._compute_labeling_planes(i, model, labels, zeros)
            rows.append(slopes[k])
            offsets.append(costs[k])
        yield np.array(rows), np.array(offsets)


BLOCK_SOLVERS = {
    "cutting_plane": cutting_plane,
    "one_slack": one_slack,
    "frank_wolfe": frank_wolfe,
    "subgradient": subgradient,
}
TOL = {"bmrm": 1e-7, "cutting_plane": 1e-6, "one_slack": 1e-6, "frank_wolfe": 1e-2, "subgradient": 1e-2}


def tiny_problem(form="full"):
    return Problem(C=0.5, n_examples=3, n_classes=2, form=form)


@pytest.mark.parametrize("solve", TOL)
@pytest.mark.parametrize("bounded", [False, True])
def test_the_gap_is_a_true_gap(solve, bounded):
    problem = tiny_problem("symmetric")
    edge = np.arange(problem.n) >= problem.n - 3
    optimum, _ = direct_optimum(problem, np.flatnonzero(edge) if bounded else ())
    options = {"lower_bounded": edge if bounded else None, "tol": TOL[solve], "max_iter": 3000}
    if solve == "bmrm":
        found = bmrm(problem.fun, np.zeros(problem.n), **options)
    else:
        found = problem.blocks(BLOCK_SOLVERS[solve], **options)
    assert found.success
    assert found.dual <= optimum + 1e-7 * optimum
    assert found.fun >= optimum - 1e-7 * optimum
    assert_allclose(found.fun, 0.5 * found.x @ found.x + problem.value(found.x), rtol=1e-12)
    assert_allclose(found.gap, found.fun - found.dual, atol=1e-12)
    assert found.gap <= options["tol"] * found.fun
    assert np.all(np.diff(found.dual_curve) >= -1e-9)
    if bounded:
        assert found.x[edge].min() >= 0


@pytest.mark.parametrize("bound", [{"max_planes": 2}, {"cache_size": 1e-6}, {"max_planes": 4}], ids=str)
def test_cutting_planes_keep_their_bound(bound):
    problem = Problem(n_examples=3)
    optimum = bmrm(problem.fun, np.zeros(problem.n), tol=1e-8).fun
    found = problem.blocks(cutting_plane, tol=1e-2, max_iter=500, **bound)
    assert found.success
    assert found.dual <= optimum * (1 + 1e-9)
    assert optimum <= found.fun * (1 + 1e-9)
    assert np.all(np.diff(found.dual_curve) >= -1e-9)


@pytest.mark.parametrize("bound", [{"max_planes": 5}, {"cache_size": 0}, {"max_kept": 2}], ids=str)
def test_one_slack_keeps_its_bounds(bound):
    problem = Problem(n_examples=3)
    optimum = bmrm(problem.fun, np.zeros(problem.n), tol=1e-8).fun
    found = problem.blocks(one_slack, tol=1e-3, max_iter=3000, **bound)
    assert found.success
    assert found.dual <= optimum * (1 + 1e-9)
    assert optimum <= found.fun * (1 + 1e-9)
    assert np.all(np.diff(found.dual_curve) >= -1e-9)


def test_planes_kept_save_the_oracle():
    problem = Problem(C=0.05)
    cached, alone = (problem.blocks(one_slack, tol=1e-4, max_iter=3000, cache_size=size) for size in (256, 0))
    assert cached.success
    assert alone.success
    assert cached.nit <= 0.7 * alone.nit


def test_the_bundle_keeps_its_bound_on_planes():
    problem = Problem(n_examples=3)
    loose, tight = (bmrm(problem.fun, np.zeros(problem.n), max_planes=k, tol=1e-4, max_iter=3000) for k in (500, 5))
    assert loose.success
    assert tight.success
    assert tight.nit >= loose.nit
    assert_allclose(tight.fun, loose.fun, rtol=2e-4)
    assert np.all(np.diff(tight.dual_curve) >= -1e-9)


@pytest.mark.parametrize("solve", BLOCK_SOLVERS.values())
def test_block_solvers_reach_the_bundle_methods_optimum(solve):
    problem = Problem(C=0.05)
    optimum = bmrm(problem.fun, np.zeros(problem.n), tol=1e-8).fun
    found = problem.blocks(solve, tol=5e-3, max_iter=3000)
    assert found.success
    assert found.dual <= optimum <= found.fun * (1 + 1e-9)
    assert found.fun <= optimum * 1.005
    again = problem.blocks(solve, tol=5e-3, max_iter=3000)
    assert_array_equal(again.x, found.x)


@pytest.mark.parametrize("solve", BLOCK_SOLVERS.values())
def test_a_callback_stops_a_block_solver(solve):
    problem = Problem(n_examples=3)
    seen = []
    found = problem.blocks(solve, callback=lambda point: seen.append(point.nit) or point.nit == 3, tol=0.0)
    assert seen == [1, 2, 3]
    assert found.message == "STOP: by the callback"
    assert np.isfinite(found.fun)
    assert found.nit == 3


def test_bad_arguments_of_optimizers():
    with pytest.raises(ValueError, match="fun must be finite"):
        bmrm(lambda x: (np.nan, x), np.zeros(3))
