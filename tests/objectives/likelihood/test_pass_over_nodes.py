"""Losses of logistic regression, of nodes given their neighbours or without edges, on moderate and extreme scores."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import GibbsSampler, MeanField, TreeInference
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood, Pseudolikelihood
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def batches_of(n_classes, *, edges=True, n_features=3):
    rng = np.random.default_rng(n_classes)
    if edges:
        X = [rng.normal(size=(*shape, n_features)) for shape in ((4, 5), (1, 1), (6, 3), (2, 2))]
    else:
        X = [Example(rng.normal(size=(n, n_features)), np.empty((0, 2))) for n in (7, 1, 4)]
    encoded = encode_X(X, edge_features="difference", edge_types="offset")
    y = [rng.integers(n_classes, size=x.shape[:-1]) for x in X]
    labels = encode_y(y, encoded, classes=np.arange(n_classes)).labels
    return encoded, make_batches(encoded, labels)


def potentials_of(encoded, n_classes, form="potts", **options):
    n_features = encoded.examples[0].node_features.shape[1]
    return LinearPotentials(
        n_features, n_classes, make_pairwise_form(form, n_classes), n_edge_features=max(encoded.n_edge_features, 1),
        n_edge_types=max(encoded.n_edge_types, 1), **options,
    )  # fmt: skip


def assert_equal_risks(found, expected, tol=1e-12):
    assert_allclose(found.value, expected.value, rtol=tol)
    assert_allclose(found.gradient, expected.gradient, rtol=tol, atol=20 * tol)
    assert found.n_errors == expected.n_errors
    assert found.converged


@pytest.mark.parametrize("n_features", [3, 20], ids=["short rows", "long rows"])
def test_scores_far_apart(n_features):
    """Losses are margins if exponentials overflow."""
    encoded, batches = batches_of(2, edges=False, n_features=n_features)
    potentials = potentials_of(encoded, 2)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    coef = 1e6 * np.random.default_rng(0).normal(size=potentials.n_coef)
    general = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    assert_equal_risks(risk.value_grad(coef), general.value_grad(coef))


def test_what_needs_models():
    encoded, batches = batches_of(3)
    potentials = potentials_of(encoded, 3)
    assert FastRisk(Likelihood(MeanField()), potentials, batches).path == "general"
    forbidding = potentials_of(encoded, 3, forbidden=np.eye(3, dtype=bool))
    assert FastRisk(Pseudolikelihood(), forbidding, batches).path == "general"
    some = [replace(batch, labels=np.where(np.arange(len(batch.labels)), batch.labels, -1)) for batch in batches]
    assert FastRisk(Pseudolikelihood(), potentials, some).path == "general"
    encoded, batches = batches_of(3, edges=False)
    assert FastRisk(Likelihood(GibbsSampler()), potentials_of(encoded, 3), batches).path == "general"
