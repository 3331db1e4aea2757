"""Loss of mean field, whose inner problem has several optima."""

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from model_strategies import random_model
from numpy.testing import assert_allclose

from sklearn_crf import TRWCRF, Example
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import BruteForce, MeanField
from sklearn_crf.models import CountTable, PairwiseModel, score
from sklearn_crf.objectives import Likelihood, loss_and_gradient

MEAN_FIELD = Likelihood(MeanField(tol=1e-12, max_iter=20_000))


@pytest.mark.parametrize("as_factors", [False, True])
def test_the_loss_lies_between_zero_and_the_exact_loss(as_factors):
    rng = np.random.default_rng(0)
    for seed in range(12):
        model = random_factor_graph(seed=seed) if as_factors else random_model("grid", 2, "untied", scale=4, seed=seed)
        exact, best = BruteForce().marginals(model).log_z, BruteForce().map(model).labels
        for labels in (best, rng.integers(model.n_states) if as_factors else rng.integers(2, size=len(best))):
            value, _ = loss_and_gradient(model, labels, objective=MEAN_FIELD)
            assert -1e-9 <= value <= exact - score(model, labels) + 1e-9


def test_missing_labels_keep_the_loss_at_least_zero():
    rng = np.random.default_rng(0)
    for seed in range(12):
        model = random_model("grid", 3, "untied", scale=4, seed=seed)
        labels = np.where(rng.random(model.graph.n_nodes) < 0.5, -1, BruteForce().map(model).labels)
        assert loss_and_gradient(model, labels, objective=MEAN_FIELD)[0] >= -1e-9


def test_components_have_their_own_best_start():
    # The first component needs the start at the labels; the second one does not.
    models = [random_model("grid", 2, "untied", scale=4, seed=seed) for seed in (3, 4, 5, 6)]
    truths = [BruteForce().map(models[0]).labels, *(np.zeros(m.graph.n_nodes, dtype=int) for m in models[1:])]
    joined = _join(models)
    value, gradient = loss_and_gradient(joined, np.concatenate(truths), objective=MEAN_FIELD)
    parts = [loss_and_gradient(m, y, objective=MEAN_FIELD) for m, y in zip(models, truths, strict=True)]
    assert value == pytest.approx(sum(part[0] for part in parts), abs=1e-7)
    assert_allclose(gradient.unary, np.concatenate([part[1].unary for part in parts]), atol=1e-5)


def _join(models):
    """Return one pairwise model with the given models as its components."""
    sizes = np.cumsum([0] + [m.graph.n_nodes for m in models])
    edges = np.concatenate([m.graph.edges + start for m, start in zip(models, sizes[:-1], strict=True)])
    tables = np.concatenate([m.edge_tables() for m in models])
    unary = np.concatenate([m.unary for m in models])
    return PairwiseModel(Graph(int(sizes[-1]), edges), unary, tables, np.arange(len(edges)))


def test_training_with_a_constraint_converges():
    rng = np.random.default_rng(0)
    only_first = CountTable([-np.inf, 0.0, -np.inf, -np.inf], 0.0, 1)
    X, y = [], []
    for _ in range(4):
        labels = rng.integers(3, size=6)
        labels[[1, 3, 5]] = [0, 1, 0]
        x = Example(np.eye(3)[labels] + rng.normal(size=(6, 3)), [[0, 2], [2, 4]], factors={"triple": [[0, 1, 2]]})
        X.append(x.with_fixed_factors([([1, 3, 5], only_first)]))
        y.append(labels)
    field = TRWCRF(learning="mean_field", C=2.0, fit_intercept=False, edge_features="constant").fit(X, y)
    assert field.converged_
    assert min(field.loss_curve_) >= 0
