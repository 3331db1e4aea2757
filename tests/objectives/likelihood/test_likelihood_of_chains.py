"""The likelihood of labelled chains, compared with enumeration."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import BruteForce, TreeInference
from sklearn_crf.models import PairwiseModel, clamped, compute_labeling_statistics, compute_score_terms
from sklearn_crf.objectives import Likelihood

# Chains of 4, 1, 12 and 1 nodes.
CHAINS = Graph(18, [(i, i + 1) for i in range(17) if i not in (3, 4, 16)])


def problem(n_states, dtype=np.float64, graph=CHAINS, scale=2.0):
    rng = np.random.default_rng(n_states)
    unary = scale * rng.normal(size=(graph.n_nodes, n_states)).astype(dtype)
    tables = scale * rng.normal(size=(1, n_states, n_states)).astype(dtype)
    unary.flags.writeable = tables.flags.writeable = False
    return PairwiseModel(graph, unary, tables), rng.integers(0, n_states, graph.n_nodes)


def assert_is_loss(found, model, labels, inference, tol):
    free = inference.marginals(model)
    expected = free.statistics.minus(compute_labeling_statistics(model, labels))
    assert_allclose(found.statistics.unary, expected.unary, atol=tol)
    assert_allclose(found.statistics.tables, expected.tables, atol=10 * tol)
    assert_allclose(
        found.terms.sum(), (free.log_z_terms - compute_score_terms(model, labels)).sum(), rtol=10 * tol, atol=tol
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_states", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [2.0, 150.0, 1e4])
def test_loss_and_statistics_are_those_of_enumeration(n_states, scale, dtype):
    model, labels = problem(n_states, dtype, graph=Graph(7, [(0, 1), (1, 2), (3, 4), (4, 5)]), scale=scale)
    found = Likelihood(TreeInference()).loss_statistics(model, labels)
    exact = replace(model, unary=model.unary.astype(np.float64), tables=model.tables.astype(np.float64))
    assert_is_loss(found, exact, labels, BruteForce(), 1e-9 if dtype == np.float64 else 3e-6 * scale)
    assert found.statistics.unary.dtype == dtype


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e3, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("missing", [False, True])
def test_forbidden_pairs_at_any_scale(scale, dtype, missing):
    rng = np.random.default_rng(0)
    tol = 1e-9 * (1 + scale) if dtype == np.float64 else 1e-4 + 4e-6 * scale
    for _ in range(20):
        labels, graph = rng.integers(3, size=7), Graph(7, [(0, 1), (1, 2), (2, 3), (4, 5)])
        unary, table = scale * rng.normal(size=(7, 3)), rng.normal(size=(3, 3)) * rng.choice([1.0, scale])
        unary[rng.random(unary.shape) < 0.2] = table[rng.random(table.shape) < 0.6] = -np.inf
        unary[np.arange(7), labels] = np.maximum(unary[np.arange(7), labels], -scale)
        used = labels[graph.edges[:, 0]], labels[graph.edges[:, 1]]
        table[used] = np.maximum(table[used], -scale)
        model = PairwiseModel(graph, unary.astype(dtype), table[None])
        exact = replace(model, unary=model.unary.astype(np.float64))
        if missing:
            labels[[1, 5]] = -1
        free, fixed = (BruteForce().marginals(each) for each in (exact, clamped(exact, labels)))
        found = Likelihood(TreeInference()).loss_statistics(model, labels)
        assert found.terms.sum() == pytest.approx(free.log_z - fixed.log_z, abs=tol * (1 + scale))
        assert_allclose(found.statistics.unary, free.unary - fixed.unary, atol=2 * tol)
        assert_allclose(found.statistics.tables, free.tables - fixed.tables, atol=20 * tol)


def test_labels_are_checked():
    model, labels = problem(3)
    labels[5] = 3
    with pytest.raises(ValueError, match="labels must be between 0 and 2"):
        Likelihood(TreeInference()).loss_statistics(model, labels)
