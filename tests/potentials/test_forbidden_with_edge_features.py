"""Forbidden pairs with edge features that may be zero or negative: -inf is never multiplied by a feature."""

from dataclasses import replace

import numpy as np
import pytest
from model_strategies import TOPOLOGIES
from numpy.testing import assert_allclose

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf import inference as algorithms
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import JunctionTree, TreeInference
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.objectives import EmpiricalRisk, Likelihood, Pseudolikelihood, StructuredHinge
from sklearn_crf.potentials import LinearPotentials, PairwiseTables, make_pairwise_form

EXACT = ["BruteForce", "JunctionTree", "LinearProgram", "AutoMap", "AutoMarginals", "AD3", "IncMP"]
OTHERS = ["TreeInference", "TreeBestLabelings", "LoopyBP", "TRWMessagePassing", "NormProductBP", "TRWS", "MPLP", "ICM"]
OTHERS += ["TightenBound", "DualDecomposition", "ClusterTightening", "LargeNeighborhoodSearch"]


def forbidding(graph, seed):
    """Return a model whose last feature is 1 on every edge and forbids pairs, and its copy with a table per edge."""
    rng = np.random.default_rng(seed)
    graph = TOPOLOGIES[graph](rng)
    n_nodes, n_edges = graph.n_nodes, graph.n_edges
    tables, labels, edge_type = (
        rng.normal(size=(2, 3, 3, 3)),
        rng.integers(3, size=n_nodes),
        rng.integers(2, size=n_edges),
    )
    tables[:, 2] = np.where(rng.random((2, 3, 3)) < 0.4, -np.inf, 0.0)
    tables[edge_type, 2, labels[graph.edges[:, 0]], labels[graph.edges[:, 1]]] = 0.0
    weight = rng.normal(size=(n_edges, 3)) * (rng.random((n_edges, 3)) < 0.6)
    weight[:, 2] = 1.0
    model = PairwiseModel(graph, rng.normal(size=(n_nodes, 3)), tables, edge_type, weight)
    return model, PairwiseModel(graph, model.unary, model.edge_tables(), np.arange(n_edges))


@pytest.mark.parametrize("name", EXACT + OTHERS)
@pytest.mark.parametrize("graph", ["chain", "tree", "cycle", "bridges"])
def test_algorithms_read_a_forbidding_feature(name, graph):
    inference = getattr(algorithms, name)()
    model, untied = forbidding(graph, 1)
    if not model.graph.is_forest and name.startswith("Tree"):
        pytest.skip("is for forests")
    if "map" in inference.tasks:
        found, expected = inference.map(model), inference.map(untied)
        assert found.score == pytest.approx(expected.score)
        assert score(untied, found.labels) == pytest.approx(found.score)
    if "marginals" in inference.tasks:
        found, expected = inference.marginals(model), inference.marginals(untied)
        assert_allclose(found.unary, expected.unary, atol=1e-4)
        assert np.isfinite(found.tables).all()


def test_minus_infinity_needs_features_that_are_positive_where_it_is():
    model, _ = forbidding("chain", 0)
    for wrong in (0.0, -1.0):
        weight = model.edge_weight.copy()
        weight[2, 2] = wrong
        with pytest.raises(ValueError, match="tables with -inf need a positive edge_weight"):
            replace(model, edge_weight=weight)


FORBIDDEN = np.zeros((3, 3), dtype=bool)
FORBIDDEN[[0, 1, 2], [2, 0, 1]] = True


def sequences(rng, n=20):
    Y = []
    for _ in range(n):
        y = [rng.integers(3)]
        for _ in range(rng.integers(1, 5)):
            y.append((y[-1] + (rng.random() < 0.4)) % 3)
        Y.append(np.array(y))
    # The first feature is sometimes equal at both ends, so its difference is 0.
    X = [np.column_stack([np.round(rng.normal(size=len(y))), np.eye(3)[y] + rng.normal(size=(len(y), 3))]) for y in Y]
    return X, Y


@pytest.mark.parametrize("edge_features", ["difference", "negative"])
@pytest.mark.parametrize(
    "objective", [Likelihood(TreeInference()), Pseudolikelihood(), StructuredHinge(JunctionTree(), 1.0 - np.eye(3))]
)
def test_gradients(objective, edge_features):
    rng = np.random.default_rng(0)
    X, Y = sequences(rng)
    if edge_features == "negative":
        chains = [np.stack([np.arange(len(y) - 1), np.arange(1, len(y))], axis=1) for y in Y]
        X = [Example(x, e, edge_features=rng.normal(size=(len(e), 1))) for x, e in zip(X, chains, strict=True)]
        encoded = encode_X(X)
    else:
        encoded = encode_X(X, edge_features="difference", edge_types="tied")
    batches = make_batches(encoded, encode_y(Y, encoded).labels)
    form, n_edge_features = make_pairwise_form("full", 3), encoded.n_edge_features
    potentials = LinearPotentials(4, 3, form, n_edge_features=n_edge_features, forbidden=FORBIDDEN)
    risk = EmpiricalRisk(objective, potentials, batches)
    coef = rng.normal(size=potentials.n_coef)
    found = risk.value_grad(coef)
    assert np.isfinite(found.value)
    step = 1e-5
    for i in range(len(coef)):
        ends = [risk.value_grad(coef + s * step * np.eye(len(coef))[i]).value for s in (1, -1)]
        assert found.gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=2e-4)


def images(rng):
    Y = [(np.add.outer(np.arange(4), np.arange(3)) // 3 + rng.integers(3)) % 3 for _ in range(8)]
    return [np.eye(3)[y] + rng.normal(scale=0.8, size=(*y.shape, 3)) for y in Y], Y


def graphs(rng):
    X, Y = [], []
    for i in range(16):
        edges = [[0, 1], [1, 2], [1, 3], [3, 4], *([[2, 4]] if i % 2 else [])]
        y = (np.array([0, 0, 1, 1, 1]) + rng.integers(3)) % 3
        features = rng.normal(size=(len(edges), 2))
        X.append(Example(np.eye(3)[y] + rng.normal(scale=0.8, size=(5, 3)), edges, edge_features=features))
        Y.append(y)
    return X, Y


@pytest.mark.parametrize("field", [DRFClassifier(), TRWCRF(), M3NClassifier(), ContrastiveCRF()])
@pytest.mark.parametrize("edge_features", ["auto", "difference"])
@pytest.mark.parametrize("make", [sequences, images, graphs])
def test_all_classifiers_and_layouts(field, edge_features, make):
    X, Y = make(np.random.default_rng(0))
    pairs = np.argwhere(FORBIDDEN).tolist()
    field = field.set_params(edge_features=edge_features, pairwise=PairwiseTables("full", forbidden=pairs)).fit(X, Y)
    assert np.isfinite(field.edge_coef_).all()
    if make is graphs or edge_features == "difference":
        assert field.edge_coef_.shape[1] == 2 if make is graphs else field.edge_coef_.shape[1] > 1
    for inference in (None, "map"):
        for labels, model in zip(field.predict(X, inference=inference), field.models(X), strict=True):
            assert score(model, labels.ravel()) > -np.inf
    plain = clone_without_pairs(field).fit(X, Y)
    assert plain.edge_coef_.shape == field.edge_coef_.shape


def clone_without_pairs(field):
    return type(field)(**field.get_params(deep=False)).set_params(pairwise="full")
