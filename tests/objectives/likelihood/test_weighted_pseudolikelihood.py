"""Node weights in the pseudolikelihood: in the objective for both kinds of models, and in the estimators."""

import numpy as np
import pytest
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from sklearn_crf import TRWCRF, DRFClassifier
from sklearn_crf.graphs import lattice
from sklearn_crf.models import PairwiseModel, factor_graph_of
from sklearn_crf.objectives import Piecewise, Pseudolikelihood


def grid_model(seed=0):
    rng = np.random.default_rng(seed)
    graph = lattice((3, 4))
    return PairwiseModel(graph, rng.normal(size=(12, 3)), rng.normal(size=(1, 3, 3))), rng


def test_pairwise_models_and_factor_graphs_agree():
    model, rng = grid_model()
    labels, weight = rng.integers(3, size=12).astype(np.int32), rng.integers(3, size=12).astype(float)
    first = Pseudolikelihood().loss_statistics(model, labels, node_weight=weight)
    second = Pseudolikelihood().loss_statistics(factor_graph_of(model), labels, node_weight=weight)
    plain = Pseudolikelihood().loss_statistics(model, labels)
    assert_allclose(first.terms, second.terms, atol=1e-12)
    assert_allclose(first.terms, weight * plain.terms)
    assert_allclose(second.statistics.log_table[:36].reshape(12, 3), first.statistics.unary, atol=1e-12)


def test_gradient_of_weighted_sums():
    model, rng = grid_model(1)
    labels, weight = rng.integers(3, size=12).astype(np.int32), rng.random(12)
    found = Pseudolikelihood().loss_statistics(model, labels, node_weight=weight)
    direction = rng.normal(size=(1, 3, 3))
    moved = [PairwiseModel(model.graph, model.unary, model.tables[:, 0] + h * direction) for h in (1e-6, -1e-6)]
    high, low = (Pseudolikelihood().loss_statistics(m, labels, node_weight=weight).terms.sum() for m in moved)
    assert_allclose((high - low) / 2e-6, np.sum(found.statistics.tables[:, 0] * direction), rtol=1e-6)


@pytest.mark.parametrize(
    "field", [DRFClassifier(learning="pl", tol=1e-8), TRWCRF(learning="pseudolikelihood", tol=1e-8)]
)
def test_equal_weights_are_a_larger_C(field):
    X, y = noisy_blobs(3, side=5)
    twice = [np.full(labels.shape, 2.0) for labels in y]
    weighted = field.set_params(C=1.0).fit(X, y, node_weight=twice).coef_
    assert_allclose(weighted, field.set_params(C=2.0).fit(X, y).coef_, atol=1e-5)


def test_weights_make_nodes_count():
    X, y = chains(6, 5)
    weight = [np.where(np.asarray(labels) == np.asarray(labels).max(), 20.0, 1.0) for labels in y]
    plain = DRFClassifier(learning="pl").fit(X, y)
    weighted = DRFClassifier(learning="pl").fit(X, y, node_weight=weight)
    heavy = np.concatenate([part > 1 for part in weight])
    right = [np.concatenate(list(field.predict(X))) == np.concatenate(list(y)) for field in (plain, weighted)]
    assert right[1][heavy].mean() >= right[0][heavy].mean()
    with pytest.raises(ValueError, match="use sample_weight or class_weight, or learning='pl'"):
        DRFClassifier().fit(X, y, node_weight=weight)


@pytest.mark.parametrize("as_factors", [False, True])
def test_pieces_weigh_single_nodes_alone(as_factors):
    rng = np.random.default_rng(0)
    model = PairwiseModel(lattice((2, 3)), rng.normal(size=(6, 3)), rng.normal(size=(1, 3, 3)))
    labels, weight = rng.integers(3, size=6).astype(np.int32), rng.uniform(0.2, 3, size=6)
    found = Piecewise().loss_statistics(model, labels, node_weight=weight)
    nodes = logsumexp(model.unary, axis=1) - model.unary[np.arange(6), labels]
    table = model.tables[0, 0]
    edges = sum(logsumexp(table) - table[labels[a], labels[b]] for a, b in model.graph.edges)
    assert_allclose(found.terms.sum(), weight @ nodes + edges)
    expected = weight[:, None] * (
        np.exp(model.unary - logsumexp(model.unary, axis=1, keepdims=True)) - np.eye(3)[labels]
    )
    assert_allclose(found.statistics.unary, expected)
    if as_factors:
        factors = factor_graph_of(model)
        whole = Piecewise().loss_statistics(factors, labels, node_weight=weight)
        assert_allclose(whole.terms, found.terms)
        assert_allclose(whole.statistics.log_table[:18].reshape(6, 3), expected)
        assert_allclose(
            Piecewise().loss_statistics(factors, labels, node_weight=np.ones(6)).statistics.log_table,
            Piecewise().loss_statistics(factors, labels).statistics.log_table,
        )
