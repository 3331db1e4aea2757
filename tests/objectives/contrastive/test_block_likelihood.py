"""Generalised pseudolikelihood against sets of assignments, exact likelihood and finite differences."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import models, random_model, read_only
from numpy.testing import assert_allclose

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import AssignmentSets, BlockLikelihood, Likelihood


def by_sets(model, labels, blocks):
    """Compute the loss from stored sets of all labelings of each block."""
    sets = AssignmentSets(model, labels)
    for block in blocks:
        states = [np.flatnonzero(model.unary[node] > -np.inf) for node in block]
        rows = np.tile(labels, (int(np.prod([len(s) for s in states])), 1))
        rows[:, block] = list(product(*states))
        sets.add_set(model, rows)
    return sets.terms_and_statistics(model)


def random_blocks(n_nodes, rng):
    return [rng.permutation(n_nodes)[: rng.integers(0, min(n_nodes, 4) + 1)] for _ in range(4)]


@given(model=models(max_states=3), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_blocks_are_sets_of_all_their_labelings(model, seed):
    labels = BruteForce().sample(model, 1, random_state=seed)[0]
    blocks = random_blocks(len(labels), np.random.default_rng(seed))
    loss = BlockLikelihood(model.graph, blocks).loss_statistics(model, labels)
    terms, statistics = by_sets(model, labels, blocks)
    assert_allclose(loss.terms.sum(), terms.sum(), rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.unary, statistics.unary, rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.tables, statistics.tables, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
def test_windows_of_a_grid(kind):
    model = random_model("grid", 3, kind, seed=2)
    labels = BruteForce().sample(model, 1, random_state=1)[0]
    index = np.arange(9).reshape(3, 3)
    blocks = [index[i : i + 2, j : j + 2].ravel() for i in range(2) for j in range(2)]
    loss = BlockLikelihood(model.graph, blocks).loss_statistics(model, labels)
    terms, statistics = by_sets(model, labels, blocks)
    assert_allclose(loss.terms.sum(), terms.sum(), rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.unary, statistics.unary, rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.tables, statistics.tables, rtol=0, atol=1e-9)


@pytest.mark.parametrize("topology", ["chain", "tree", "grid", "disconnected"])
def test_one_block_of_all_nodes_is_the_likelihood(topology):
    model = random_model(topology, 2, "weighted", seed=1)
    labels = BruteForce().sample(model, 1, random_state=1)[0]
    loss = BlockLikelihood(model.graph, [np.arange(len(labels))]).loss_statistics(model, labels)
    exact = Likelihood(BruteForce()).loss_statistics(model, labels)
    assert_allclose(loss.terms.sum(), exact.terms.sum(), rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.unary, exact.statistics.unary, rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.tables, exact.statistics.tables, rtol=0, atol=1e-9)


def test_precision_and_read_only_input(tmp_path):
    model = random_model("grid", 3, "weighted", dtype=np.float32)
    labels = BruteForce().sample(model, 1, random_state=1)[0]
    double = replace(model, **{k: np.float64(getattr(model, k)) for k in ("unary", "tables", "edge_weight")})
    blocks = [[0, 1, 3, 4], [5]]
    loss = BlockLikelihood(model.graph, blocks).loss_statistics(read_only(model, tmp_path), labels)
    expected = BlockLikelihood(model.graph, blocks).loss_statistics(double, labels)
    assert loss.statistics.unary.dtype == np.float32
    assert_allclose(loss.terms, expected.terms, atol=1e-10)
    assert_allclose(loss.statistics.unary, expected.statistics.unary, atol=1e-6)


@pytest.mark.parametrize(
    ("block", "message"),
    [([0, 9], "must hold nodes from 0 to 8"), ([1, 1], "holds a node twice"), ([[1]], "must be a vector of integers")],
)
def test_bad_blocks_are_named(block, message):
    with pytest.raises(ValueError, match=rf"blocks\[1\] {message}"):
        BlockLikelihood(lattice((3, 3)), [[0], block])


def test_other_graphs_and_forbidden_labels_are_named():
    model = random_model("grid", 2)
    with pytest.raises(ValueError, match="blocks belong to a different graph"):
        BlockLikelihood(lattice((9,)), [[0]]).loss_statistics(model, np.zeros(9, dtype=int))
    unary = np.zeros((3, 2))
    unary[1, 1] = -np.inf
    chain = PairwiseModel(lattice((3,)), unary, np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="labels are forbidden"):
        BlockLikelihood(chain.graph, [[0, 1]]).loss_statistics(chain, [0, 1, 0])
