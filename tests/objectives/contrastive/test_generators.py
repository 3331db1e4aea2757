"""Assignments found by generators, compared with all labelings of small models."""

import numpy as np
import pytest
from contrastive_reference import all_labelings
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import models, random_model
from numpy.testing import assert_array_equal

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, BruteForce, LoopyBP
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.objectives import GibbsGenerator, MapGenerator, MostViolated


@given(model=models(max_states=3, topologies=("chain", "cycle", "grid", "no_edges")), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_most_violated_has_the_largest_score_with_its_cost(model, seed):
    rng = np.random.RandomState(seed)
    truth = BruteForce().sample(model, 1, random_state=seed)[0]
    n_nodes, n_columns = model.unary.shape
    cost, weight = rng.uniform(size=(n_columns, n_columns)) * (1 - np.eye(n_columns)), rng.uniform(1, 3, size=n_nodes)
    generator = MostViolated(MapGenerator(BruteForce()), cost)
    found = generator(model, truth, rng, node_weight=weight)

    def augmented(labels):
        return score(model, labels) + weight @ cost[labels, truth]

    assert augmented(found) >= max(map(augmented, all_labelings(n_nodes, n_columns))) - 1e-9


def test_iterated_conditional_modes_end_where_no_single_change_helps():
    model = random_model("grid", 3, seed=1)
    truth, found = np.zeros(model.graph.n_nodes, dtype=np.int32), set()
    for seed in range(20):
        labels = MapGenerator(ICM())(model, truth, np.random.RandomState(seed))
        for node in range(len(labels)):
            for state in range(3):
                changed = labels.copy()
                changed[node] = state
                assert score(model, changed) <= score(model, labels) + 1e-12
        found.add(tuple(labels.tolist()))
    # Starts are random, so successive calls find different assignments.
    assert len(found) > 1


@pytest.mark.parametrize("schedule", ["residual", "sequential"])
def test_max_product_from_random_messages_finds_the_best_of_a_chain(schedule):
    model = random_model("chain", 3, seed=2)
    best = BruteForce().map(model).labels
    for seed in range(5):
        generator = MapGenerator(LoopyBP(schedule=schedule))
        assert_array_equal(generator(model, best[::-1].copy(), np.random.RandomState(seed)), best)


def test_few_sweeps_stay_near_the_truth():
    # In a model of ten strongly coupled nodes, changes of single nodes hardly ever leave a mode.
    graph = lattice((10,))
    model = PairwiseModel(graph, np.zeros((10, 2)), 8 * np.eye(2)[None])
    for state in (0, 1):
        truth = np.full(10, state, dtype=np.int32)
        found = [GibbsGenerator(3)(model, truth, np.random.RandomState(seed)) for seed in range(20)]
        assert np.mean(np.array(found) == truth) > 0.95
    loose = PairwiseModel(graph, np.zeros((10, 2)), np.zeros((1, 2, 2)))
    found = [GibbsGenerator(1)(loose, truth, np.random.RandomState(seed)) for seed in range(40)]
    assert abs(np.mean(found) - 0.5) < 0.1
