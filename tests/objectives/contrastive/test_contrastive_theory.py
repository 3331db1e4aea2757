"""Results of Vickrey et al. 2010: Lemma 3, Theorem 1 and its limits, Lemma 4."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from contrastive_reference import all_labelings, single_node_sets, tangent_sets
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import models, random_model
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel, compute_labeling_statistics, score
from sklearn_crf.objectives import AssignmentSets, ContrastiveSets, Likelihood

CHAIN = lattice((3,))
STATES = all_labelings(3, 2)


def chain_model(theta):
    """Return a model of three binary nodes with a weight for state 1 and a weight for equal neighbours."""
    unary = np.tile([0.0, theta[0]], (3, 1))
    return PairwiseModel(CHAIN, unary, theta[1] * np.eye(2)[None])


def slope(statistics):
    """Return the derivative with respect to theta."""
    return np.array([statistics.unary[:, 1].sum(), np.trace(statistics.tables[0, 0])])


def probabilities(model):
    scores = np.array([score(model, state) for state in STATES])
    return np.exp(scores - np.logaddexp.reduce(scores))


# Lemma 3 ---------------------------------------------------------------------------------------------------------


@given(model=models(max_states=3, topologies=("chain", "cycle", "one_node", "no_edges")), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_pairs_weighted_by_the_model_are_tangent_to_the_likelihood(model, seed):
    labels = BruteForce().sample(model, 1, random_state=seed)[0]
    contrastive = ContrastiveSets(tangent_sets(model, labels)).loss_statistics(model, labels).statistics
    exact = Likelihood(BruteForce()).loss_statistics(model, labels).statistics
    assert_allclose(contrastive.unary, exact.unary, rtol=0, atol=1e-9)
    assert_allclose(contrastive.tables, exact.tables, rtol=0, atol=1e-9)


def test_they_touch_there_alone():
    model = random_model("chain", 2, seed=1)
    labels = BruteForce().sample(model, 1, random_state=0)[0]
    elsewhere = replace(model, unary=model.unary + np.linspace(-1, 1, 12).reshape(6, 2))
    contrastive = ContrastiveSets(tangent_sets(model, labels)).loss_statistics(elsewhere, labels).statistics
    exact = Likelihood(BruteForce()).loss_statistics(elsewhere, labels).statistics
    assert np.abs(contrastive.unary - exact.unary).max() > 1e-2


def test_steps_along_tangents_reach_maximum_likelihood():
    counts = np.array([9, 3, 1, 4, 2, 2, 5, 8.0])
    theta, losses = np.zeros(2), []
    for _ in range(25):
        model = chain_model(theta)
        gradient = np.zeros(2)
        for count, labels in zip(counts, STATES, strict=True):
            # Expectation: weights by the current model. Maximisation: a step along their gradient.
            loss = ContrastiveSets(tangent_sets(model, labels)).loss_statistics(model, labels)
            gradient += count * slope(loss.statistics)
        losses.append(-counts @ np.log(probabilities(model)))
        theta = theta - gradient / counts.sum()
    exact = minimize(lambda theta: -counts @ np.log(probabilities(chain_model(theta))), np.zeros(2), tol=1e-12).x
    assert np.all(np.diff(losses) <= 1e-9)
    assert_allclose(theta, exact, atol=1e-5)


def test_tangent_weights_are_those_of_sets_chosen_at_random():
    model = chain_model([0.3, 0.7])
    labels = STATES[5]
    p = probabilities(model)
    pairs = [(j, k) for j in range(8) for k in range(j, 8)]
    choice = np.array([[(y in pair) / 8 for y in range(8)] for pair in pairs])
    weight = dict(zip(pairs, 8 * (choice @ p), strict=True))
    assert sum(weight.values()) == pytest.approx(8)
    expected = [weight[tuple(sorted((5, k)))] for k in range(8) if k != 5]
    assert_allclose(tangent_sets(model, labels).set_weight, expected)


# Theorem 1 -------------------------------------------------------------------------------------------------------


def optimum(counts, sets, model_of, n_weights, slope_of):
    """Return weights that minimise the contrastive objective of counted states, and their probabilities."""
    zero = model_of(np.zeros(n_weights))
    active = []
    for count, labels in zip(counts, STATES, strict=True):
        if count:
            of_state = AssignmentSets(zero, labels)
            for rows in sets(labels):
                of_state.add_set(zero, rows)
            active.append((count, ContrastiveSets(of_state)))

    def objective(theta):
        model = model_of(theta)
        losses = [(count, part.loss_statistics(model, part.sets.labels)) for count, part in active]
        value = sum(count * loss.terms.sum() for count, loss in losses)
        return value, sum(count * slope_of(loss.statistics) for count, loss in losses)

    found = minimize(objective, np.zeros(n_weights), jac=True, method="BFGS", options={"gtol": 1e-10})
    return probabilities(model_of(found.x))


def pseudolikelihood_sets(labels):
    return single_node_sets(labels, 2)


def spread_sets(labels):
    """Return the four even states, the four odd states, and a linking set of one even and one odd state."""
    return STATES[::2], STATES[1::2], STATES[[0, 1]]


@pytest.mark.parametrize("sets", [pseudolikelihood_sets, spread_sets])
def test_probabilities_are_recovered_where_sets_span(sets):
    p = probabilities(chain_model([0.4, 0.9]))
    found = optimum(1000 * p, sets, chain_model, 2, slope)
    assert_allclose(found, p, atol=1e-6)


# A saturated model: a weight for every pair of states of the two edges, and for every state of the nodes.


def saturated_model(theta):
    return PairwiseModel(CHAIN, theta[:6].reshape(3, 2), theta[6:].reshape(2, 2, 2), edge_type=[0, 1])


def saturated_slope(statistics):
    return np.concatenate((statistics.unary.ravel(), statistics.tables.ravel()))


def test_a_saturated_model_is_not_recovered_where_sets_do_not_span():
    # Two modes that no single change connects: the ratio of their probabilities is not determined.
    p = np.zeros(8)
    p[[0, 1]] = 0.6, 0.2
    p[[6, 7]] = 0.05, 0.15
    model, further = (saturated_model, 14, saturated_slope), STATES[[0, 7]]
    alone = optimum(1000 * p, pseudolikelihood_sets, *model)
    joined = optimum(1000 * p, lambda labels: [*pseudolikelihood_sets(labels), further], *model)
    # Within each mode, the probabilities of both estimates are correct.
    assert_allclose(alone[0] / alone[1], p[0] / p[1], rtol=1e-3)
    assert_allclose(alone[7] / alone[6], p[7] / p[6], rtol=1e-3)
    assert abs(np.log(alone[0] / alone[7]) - np.log(p[0] / p[7])) > 0.5
    assert_allclose(joined, p, atol=1e-3)


def test_few_weights_can_be_recovered_even_so():
    # Theorem 1 is only sufficient: either mode alone determines two weights that the modes share.
    p = probabilities(chain_model([0.4, 0.9]))
    pairs = [STATES[[0, 1]], STATES[[2, 3]], STATES[[0, 2]]]
    found = optimum(1000 * p, lambda labels: pairs, chain_model, 2, slope)
    assert_allclose(found, p, atol=1e-6)


# Lemma 4 ---------------------------------------------------------------------------------------------------------


@cache
def gradient_of_state(state, theta, sets, seen):
    model, labels = chain_model(theta), STATES[state]
    of_state = AssignmentSets(model, labels)
    for rows in sets(labels, np.array(seen)):
        of_state.add_set(model, rows)
    return slope(ContrastiveSets(of_state).loss_statistics(model, labels).statistics)


def gradient_of(counts, theta, sets):
    seen = tuple(counts > 0) if sets is observed_set else ()
    parts = [gradient_of_state(state, tuple(theta), sets, seen) for state in np.flatnonzero(counts)]
    return counts[counts > 0] @ np.array(parts) / counts.sum()


def static_sets(labels, seen):
    return [*single_node_sets(labels, 2), STATES[[0, 7]]]


def observed_set(labels, seen):
    return [STATES[seen]]


def gradients_of_data_sets(sets, theta, n_samples, n_sets=400):
    p = probabilities(chain_model([0.4, 0.2]))
    rng = np.random.default_rng(0)
    drawn = [gradient_of(rng.multinomial(n_samples, p), theta, sets) for _ in range(n_sets)]
    return np.mean(drawn, axis=0), np.std(drawn, axis=0) / np.sqrt(n_sets), gradient_of(p, theta, sets)


@pytest.mark.parametrize("theta", [[0.4, 0.2], [-0.5, 1.0]])
def test_static_sets_give_unbiased_gradients(theta):
    mean, error, expected = gradients_of_data_sets(static_sets, theta, 12)
    assert np.all(np.abs(mean - expected) < 4 * error)
    if theta == [0.4, 0.2]:
        assert_allclose(expected, 0, atol=1e-12)


def test_sets_of_what_was_seen_give_biased_gradients():
    mean, error, expected = gradients_of_data_sets(observed_set, [0.4, 0.2], 12)
    assert_allclose(expected, 0, atol=1e-12)
    assert np.max(np.abs(mean - expected) / error) > 10


def test_counted_states_are_statistics():
    # The derivative by theta equals the result of the function ``slope``, which the tests above use.
    counts = compute_labeling_statistics(chain_model([0.0, 0.0]), STATES[3])
    assert_allclose(slope(counts), [2, 1])
