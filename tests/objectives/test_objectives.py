"""Objectives against brute force, gradients against 5-point differences, and missing labels."""

from dataclasses import replace

import numpy as np
import pytest
from finite_differences import five_point
from model_strategies import random_model
from numpy.testing import assert_allclose

from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.inference import TRWS, BruteForce
from sklearn_crf.inference._base import convergence_left_to_caller
from sklearn_crf.models import PairwiseModel, clamped, score
from sklearn_crf.objectives import (
    ContrastiveDivergence,
    EmpiricalRisk,
    Likelihood,
    MaximumMarginal,
    Pseudolikelihood,
    SaddlePoint,
)
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

SMOOTH = [Likelihood(BruteForce()), Pseudolikelihood()]
ALL = [*SMOOTH, SaddlePoint(BruteForce()), MaximumMarginal(BruteForce()), ContrastiveDivergence(2)]


def name(objective):
    return type(objective).__name__


def make_labels(model, *, missing=0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(model.n_columns, size=model.graph.n_nodes).astype(np.int32)
    labels[rng.permutation(len(labels))[:missing]] = -1
    return labels


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
@pytest.mark.parametrize("objective", SMOOTH, ids=name)
def test_statistics_are_derivatives(objective, kind):
    model = random_model("cycle", 3, kind, seed=3)
    labels = make_labels(model)
    loss = objective.loss_statistics(model, labels)

    def value(unary=model.unary, tables=model.tables):
        return objective.loss_statistics(replace(model, unary=unary, tables=tables), labels).terms.sum()

    assert_allclose(loss.statistics.unary, five_point(lambda u: value(unary=u), model.unary), atol=1e-9)
    assert_allclose(loss.statistics.tables, five_point(lambda t: value(tables=t), model.tables), atol=1e-9)


def test_likelihood_sums_over_missing_labels():
    model = random_model("grid", 2, seed=1)
    labels = make_labels(model, missing=4)
    loss = Likelihood(BruteForce()).loss_statistics(model, labels)
    brute = BruteForce()
    assert_allclose(
        loss.terms.sum(), brute.marginals(model).log_z - brute.marginals(clamped(model, labels)).log_z, rtol=1e-12
    )

    def value(tables):
        return Likelihood(brute).loss_statistics(replace(model, tables=tables), labels).terms.sum()

    assert_allclose(loss.statistics.tables, five_point(value, model.tables), atol=1e-9)


def test_saddle_point_is_the_gap_to_the_best_labeling():
    model = random_model("grid", 3, seed=2)
    labels = make_labels(model)
    loss = SaddlePoint(BruteForce()).loss_statistics(model, labels)
    best = BruteForce().map(model)
    assert_allclose(loss.terms.sum(), best.score - score(model, labels), rtol=1e-12)
    np.testing.assert_array_equal(loss.predicted, best.labels)
    # The loss is linear in the model as long as the best labeling stays: <statistics, theta> is the loss itself.
    total = (loss.statistics.unary * model.unary).sum() + (loss.statistics.tables * model.tables).sum()
    assert_allclose(total, loss.terms.sum(), rtol=1e-12)


@pytest.mark.parametrize("objective", [SaddlePoint(BruteForce()), MaximumMarginal(BruteForce())], ids=name)
def test_discrete_rules_complete_missing_labels(objective):
    model = random_model("grid", 2, seed=5)
    labels = make_labels(model, missing=9)
    # No node is labelled: the completion is the prediction itself, and the loss is zero.
    loss = objective.loss_statistics(model, labels)
    assert_allclose(loss.statistics.unary, 0)
    assert_allclose(loss.statistics.tables, 0)
    assert loss.predicted.min() >= 0


def test_maximum_marginal_predicts_largest_marginals():
    model = random_model("grid", 3, seed=4)
    loss = MaximumMarginal(BruteForce()).loss_statistics(model, make_labels(model))
    np.testing.assert_array_equal(loss.predicted, BruteForce().marginals(model).unary.argmax(axis=1))
    assert loss.terms is None


def test_contrastive_divergence_is_unbiased_for_its_chain_at_independence():
    # Without pairwise terms one sweep forgets the start, so the mean direction is the likelihood's gradient.
    model = random_model("no_edges", 3, seed=0)
    labels = make_labels(model)
    draws = [
        ContrastiveDivergence(1).loss_statistics(model, labels, seed=seed).statistics.unary for seed in range(4000)
    ]
    expected = Likelihood(BruteForce()).loss_statistics(model, labels).statistics.unary
    assert_allclose(np.mean(draws, axis=0), expected, atol=4 * 0.5 / np.sqrt(4000))


def test_contrastive_divergence_completes_missing_labels_and_repeats_by_seed():
    model = random_model("grid", 2, seed=5)
    labels = make_labels(model, missing=5)
    first = ContrastiveDivergence(1).loss_statistics(model, labels, seed=7)
    again = ContrastiveDivergence(1).loss_statistics(model, labels, seed=7)
    np.testing.assert_array_equal(first.statistics.tables, again.statistics.tables)
    observed = labels >= 0
    np.testing.assert_array_equal(first.state[observed], labels[observed])
    assert first.state.min() >= 0


def test_pseudolikelihood_leaves_out_what_depends_on_missing_labels():
    model = random_model("grid", 2, seed=5)
    labels = make_labels(model, missing=1)
    unknown = int(np.flatnonzero(labels < 0)[0])
    ends = model.graph.edges
    near = np.unique(ends[(ends == unknown).any(axis=1)])
    weight = np.where(np.isin(np.arange(len(labels)), np.append(near, unknown)), 0.0, 1.0)
    found = Pseudolikelihood().loss_statistics(model, labels)
    for state in range(2):
        full = np.where(labels < 0, state, labels).astype(np.int32)
        expected = Pseudolikelihood().loss_statistics(model, full, node_weight=weight)
        np.testing.assert_allclose(found.terms, expected.terms)
        np.testing.assert_allclose(found.statistics.unary, expected.statistics.unary)
        np.testing.assert_allclose(found.statistics.tables, expected.statistics.tables)


def make_batches(n_batches=3, *, weights=None, n_features=3, shape=(2, 3), seed=0):
    """Return batches of two lattices each, with random features and labels of three classes."""
    rng = np.random.default_rng(seed)
    graph = build_disjoint_union([lattice(shape), lattice(shape)])
    half = graph.n_nodes // 2
    batches = []
    for k in range(n_batches):
        example = Example(
            rng.normal(size=(graph.n_nodes, n_features)), graph, edge_features=rng.normal(size=(graph.n_edges, 2))
        )
        batches.append(
            Batch(
                example,
                members=np.array([2 * k, 2 * k + 1]),
                node_ptr=np.array([0, half, 2 * half]),
                labels=rng.integers(3, size=graph.n_nodes).astype(np.int32),
                weight=None if weights is None else np.full(2, float(weights[k])),
            )
        )
    return batches


def make_potentials():
    return LinearPotentials(3, 3, make_pairwise_form("symmetric", 3), n_edge_features=2)


@pytest.mark.parametrize("objective", SMOOTH, ids=name)
@pytest.mark.parametrize("weights", [None, (1.0, 2.5, 0.0)])
def test_gradient_of_the_risk(objective, weights):
    potentials = make_potentials()
    risk = EmpiricalRisk(objective, potentials, make_batches(weights=weights))
    coef = 0.3 * np.random.default_rng(1).normal(size=potentials.n_coef)
    expected = five_point(lambda w: risk.value_grad(w).value, coef)
    assert_allclose(risk.value_grad(coef).gradient, expected, atol=1e-8)


@pytest.mark.parametrize("objective", ALL, ids=name)
def test_weight_two_is_seen_twice(objective):
    if isinstance(objective, ContrastiveDivergence):
        pytest.skip("draws samples: equal in distribution only")
    potentials = make_potentials()
    coef = np.random.default_rng(1).normal(size=potentials.n_coef)
    batches = make_batches(2)
    weighted = EmpiricalRisk(objective, potentials, make_batches(2, weights=(2, 1))).value_grad(coef)
    repeated = EmpiricalRisk(objective, potentials, [batches[0], batches[0], batches[1]]).value_grad(coef)
    assert_allclose(weighted.gradient, repeated.gradient, rtol=1e-10, atol=1e-10)
    assert weighted.n_errors == repeated.n_errors


@pytest.mark.parametrize("objective", ALL, ids=name)
def test_risk_is_bit_identical_for_any_n_jobs(objective):
    potentials = make_potentials()
    coef = np.random.default_rng(1).normal(size=potentials.n_coef)
    one, two = (EmpiricalRisk(objective, potentials, make_batches(), n_jobs=n).value_grad(coef) for n in (1, 2))
    np.testing.assert_array_equal(one.gradient, two.gradient)
    assert one.value == two.value


def test_unlabelled_nodes_count_neither_as_errors_nor_as_nodes():
    batches = make_batches(1)
    labels = batches[0].labels.copy()
    labels[:5] = -1
    risk = EmpiricalRisk(Likelihood(BruteForce()), make_potentials(), [replace(batches[0], labels=labels)])
    assert risk.n_labelled == len(labels) - 5
    assert risk.value_grad(np.zeros(risk.potentials.n_coef)).n_errors <= risk.n_labelled


def test_warm_saddle_point_goes_on_from_the_messages_before():
    rng, graph = np.random.default_rng(0), lattice((12, 12))
    model = PairwiseModel(graph, rng.normal(size=(144, 4)), [0.7 * np.eye(4)])
    labels = make_labels(model)
    objective, state = SaddlePoint(TRWS(max_iter=1), warm_start=True), None
    with convergence_left_to_caller():
        gaps = []
        for _ in range(60):
            loss = objective.loss_statistics(model, labels, state=state)
            state = loss.state
            gaps.append(loss.gap)
    best = TRWS().map(model)
    assert best.certified
    assert_allclose(loss.terms.sum(), best.score - score(model, labels), rtol=1e-9)
    assert gaps[0] > 0.01
    assert gaps[-1] < 1e-6
    assert SaddlePoint(TRWS()).loss_statistics(model, labels).state is None
