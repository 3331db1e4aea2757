"""``loss_and_gradient``: against enumeration of labelings, and by differences of one score."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from numpy.testing import assert_allclose

from sklearn_crf import TRWCRF
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel, clamped
from sklearn_crf.objectives import MaximumMarginal, Pseudolikelihood, loss_and_gradient

GRAPHS = {
    "cycle": Graph(5, [[0, 1], [1, 2], [2, 3], [3, 0], [3, 4]]),
    "two components": Graph(5, [[0, 1], [3, 4]]),
    "no edges": Graph(4, []),
    "lattice": lattice((2, 3)),
}


def make_model(graph, scale, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    unary, tables = (scale * rng.normal(size=shape) for shape in ((graph.n_nodes, 3), (1, 3, 3)))
    unary[0, 2] = -np.inf
    for values in (unary, tables):
        values.flags.writeable = False
    return PairwiseModel(graph, unary.astype(dtype), tables.astype(dtype))


def enumerate_loss(model, labels):
    """Return the negative log-likelihood of the known labels, by a sum over all labelings."""
    free, fixed = (BruteForce().marginals(m).log_z for m in (model, clamped(model, labels)))
    return free - fixed


@pytest.mark.parametrize("labels", ["all", "some", "none"])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("graph", GRAPHS)
def test_loss_by_enumeration_and_gradient_by_differences(graph, scale, labels):
    model = make_model(GRAPHS[graph], scale)
    y = np.random.default_rng(1).integers(2, size=model.n_nodes)
    y[{"all": model.n_nodes, "some": 1, "none": 0}[labels] :: 2] = -1
    if labels == "none":
        y[:] = -1
    loss, gradient = loss_and_gradient(model, y)
    assert isinstance(loss, float)
    assert loss == pytest.approx(enumerate_loss(model, y), rel=1e-10, abs=1e-9 * scale)
    for node, state in ((0, 0), (1, 2), (model.n_nodes - 1, 1)):
        losses = []
        for step in (-1e-4, 1e-4):
            unary = model.unary.copy()
            unary[node, state] += step
            losses.append(enumerate_loss(replace(model, unary=unary), y))
        assert gradient.unary[node, state] == pytest.approx(np.diff(losses)[0] / 2e-4, abs=1e-6 * scale)
    assert gradient.unary[0, 2] == 0
    assert gradient.tables.reshape(model.tables.shape).sum() == pytest.approx(0, abs=1e-9)


def test_factors_and_single_precision():
    factors = random_factor_graph(3)
    y = np.random.default_rng(3).integers(factors.n_states)
    loss, gradient = loss_and_gradient(factors, y)
    assert gradient.log_table.shape == factors.log_table.shape
    assert loss_and_gradient(factors, np.full(len(y), -1))[0] == pytest.approx(0, abs=1e-12)
    assert loss == pytest.approx(enumerate_loss(factors, y), abs=1e-10)

    model, single = (make_model(GRAPHS["cycle"], 1.0, dtype=kind) for kind in (np.float64, np.float32))
    expected, found = (loss_and_gradient(m, [0, 1, 0, 2, 1]) for m in (model, single))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert_allclose(found[1].unary, expected[1].unary, atol=1e-5)


def test_models_of_a_fitted_field_and_labels_of_images():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 4, 5, 2))
    y = (X[..., 0] > 0).astype(int)
    field = TRWCRF().fit(X, y)
    losses = [loss_and_gradient(model, own)[0] for model, own in zip(field.models(X), y, strict=True)]
    assert_allclose(losses, -field.log_likelihood(X, y).values)
    assert_allclose(losses, [loss_and_gradient(m, own.ravel())[0] for m, own in zip(field.models(X), y, strict=True)])


def test_objectives_and_threads():
    model = make_model(lattice((6, 7)), 1.0)
    y = np.random.default_rng(2).integers(2, size=(6, 7))
    loss, gradient = loss_and_gradient(model, y, objective=Pseudolikelihood())
    expected = Pseudolikelihood().loss_statistics(model, y.ravel().astype(np.int32))
    assert loss == pytest.approx(expected.terms.sum())
    assert_allclose(gradient.unary, expected.statistics.unary)
    assert loss_and_gradient(model, y, n_jobs=2)[0] == loss_and_gradient(model, y)[0]


def test_wrong_arguments_are_named():
    model = make_model(GRAPHS["cycle"], 1.0)
    y = [0, 1, 0, 1, 0]
    with pytest.raises(TypeError, match="model must be a PairwiseModel"):
        loss_and_gradient(model.unary, y)
    with pytest.raises(TypeError, match="objective must be an Objective"):
        loss_and_gradient(model, y, objective="likelihood")
    with pytest.raises(ValueError, match="objective must have a value"):
        loss_and_gradient(model, y, objective=MaximumMarginal())
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\)"):
        loss_and_gradient(model, y[:4])
    with pytest.raises(ValueError, match="labels must be between 0 and 2"):
        loss_and_gradient(model, [0, 1, 3, 0, 0])
    with pytest.raises(ValueError, match="labels a score of -inf"):
        loss_and_gradient(model, [2, 1, 0, 1, 0])
