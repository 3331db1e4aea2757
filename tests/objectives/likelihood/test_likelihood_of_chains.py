"""The likelihood of labelled chains, which has a kernel of its own, beside that of any inference."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, TreeInference
from sklearn_crf.models import PairwiseModel, clamped, labeling_statistics, score_terms
from sklearn_crf.objectives import Likelihood
from sklearn_crf.objectives.likelihood._likelihood import loss_of_chains

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
    expected = free.statistics.minus(labeling_statistics(model, labels))
    assert_allclose(found.statistics.unary, expected.unary, atol=tol)
    assert_allclose(found.statistics.tables, expected.tables, atol=10 * tol)
    assert_allclose(found.terms.sum(), (free.log_z_terms - score_terms(model, labels)).sum(), rtol=10 * tol)
    assert found.statistics.unary.dtype == model.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_states", [1, 2, 3, 5, 8, 13])
def test_loss_and_statistics_are_those_of_messages(n_states, dtype):
    model, labels = problem(n_states, dtype)
    found = loss_of_chains(model, labels)
    assert_is_loss(found, model, labels, TreeInference(), 1e-6 if dtype == np.float32 else 1e-12)
    assert_array_equal(found.predicted, TreeInference().marginals(model).unary.argmax(axis=1))


def test_loss_and_statistics_are_those_of_enumeration():
    model, labels = problem(3, graph=lattice((6,)))
    assert_is_loss(Likelihood(TreeInference()).loss_statistics(model, labels), model, labels, BruteForce(), 1e-12)


@pytest.mark.parametrize("scale", [40.0, 150.0, 1e4])
def test_wide_ranges_of_scores_lose_nothing(scale):
    model, labels = problem(4, scale=scale)
    found = Likelihood(TreeInference()).loss_statistics(model, labels)
    assert_is_loss(found, model, labels, TreeInference(), 1e-9)
    assert (loss_of_chains(model, labels) is None) == (scale > 100)


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
        if not missing and table.max() - table[table > -np.inf].min() < 200:
            # The kernel does it alone, whatever the scores of nodes.
            assert loss_of_chains(model, labels) is not None


def others():
    model, labels = problem(3)
    some = labels.copy()
    some[2] = -1
    forbidden = model.unary.copy()
    forbidden[3, (labels[3] + 1) % 3] = -np.inf
    edges = CHAINS.edges
    yield "unlabelled", model, some
    yield "forbidden", replace(model, unary=forbidden), labels
    yield "weighted", replace(model, edge_weight=np.full(len(edges), 0.5)), labels
    yield "reversed", replace(model, graph=Graph(18, edges[:, ::-1])), labels
    yield "tree", replace(model, graph=Graph(18, [(0, 1), (0, 2), (2, 3)]), edge_type=None), labels
    yield "states", replace(model, n_states=np.array([3] * 17 + [2])), np.minimum(labels, 1)


@pytest.mark.parametrize(("model", "labels"), [pytest.param(*rest, id=name) for name, *rest in others()])
def test_anything_else_is_left_to_inference(model, labels):
    assert loss_of_chains(model, labels) is None
    assert np.isfinite(Likelihood(TreeInference()).loss_statistics(model, labels).terms.sum())


def test_labels_are_checked():
    model, labels = problem(3)
    labels[5] = 3
    with pytest.raises(ValueError, match="labels must lie in 0 to 2"):
        Likelihood(TreeInference()).loss_statistics(model, labels)
