"""Weights of examples are numbers of a batch: examples of different weights share it, and sums are those of parts."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import TreeInference
from sklearn_crf.learning import Exact, PiecewiseTraining, PseudolikelihoodTraining
from sklearn_crf.objectives import EmpiricalRisk, Likelihood, Piecewise, Pseudolikelihood, SaddlePoint, StructuredHinge
from sklearn_crf.potentials import LinearPotentials, pairwise_form

N_CLASSES = 3
OBJECTIVES = {
    "likelihood": Likelihood(TreeInference()),
    "pseudolikelihood": Pseudolikelihood(),
    "piecewise": Piecewise(),
    "saddle point": SaddlePoint(TreeInference()),
    "hinge": StructuredHinge(TreeInference(), 1 - np.eye(N_CLASSES)),
}


def chains(rng, n=12):
    X = [rng.normal(size=(length, 2)) for length in rng.integers(1, 6, size=n)]
    return X, [rng.integers(N_CLASSES, size=len(x)) for x in X]


def typed_trees(rng, n=12):
    X, y = chains(rng, n)
    edges = [np.stack([np.zeros(len(x) - 1, dtype=int), np.arange(1, len(x))], axis=1) for x in X]
    X = [
        Example(x, own, rng.normal(size=(len(own), 2)), edge_type=rng.integers(2, size=len(own)))
        for x, own in zip(X, edges, strict=True)
    ]
    return X, y


def trees_of_states(rng, n=12):
    X, y = typed_trees(rng, n)
    n_states = [np.maximum(own + 1, rng.integers(1, N_CLASSES + 1, size=len(own))) for own in y]
    X = [
        Example(x.node_features, x.edges, x.edge_features, edge_type=x.edge_type, n_states=own)
        for x, own in zip(X, n_states, strict=True)
    ]
    return X, y


DATA = {"chains": chains, "typed trees": typed_trees, "trees of different states": trees_of_states}


def risk_of(objective, encoded, labels, weight, **packing):
    batches = make_batches(encoded, labels, weight, **packing)
    n_features = encoded.n_edge_features
    potentials = LinearPotentials(
        2,
        N_CLASSES,
        pairwise_form("full", N_CLASSES),
        n_edge_types=encoded.n_edge_types,
        n_edge_features=n_features,
    )
    return EmpiricalRisk(objective, potentials, batches)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_of_different_weights_is_the_sum_of_its_examples(name, data):
    rng = np.random.default_rng(0)
    X, y = DATA[data](rng)
    encoded = encode_X(X, edge_features="constant")
    labels = encode_y(y, encoded, classes=np.arange(N_CLASSES)).labels
    # Two of one weight, and one of none.
    weight = rng.random(len(X)) + 0.5
    weight[3], weight[7] = weight[2], 0.0
    together = risk_of(OBJECTIVES[name], encoded, labels, weight)
    apart = risk_of(OBJECTIVES[name], encoded, labels, weight, max_nodes=1)
    assert len(together.batches) == 1
    assert len(apart.batches) == len(X)
    coef = rng.normal(size=together.potentials.n_coef)
    for _ in range(2):
        found, expected = together.value_grad(coef), apart.value_grad(coef)
        assert_allclose(found.value, expected.value, rtol=1e-12)
        assert_allclose(found.gradient, expected.gradient, atol=1e-12)
        assert found.n_errors == pytest.approx(expected.n_errors)


def test_equal_weights_are_a_factor():
    X, y = chains(np.random.default_rng(1))
    encoded = encode_X(X, edge_features="constant")
    labels = encode_y(y, encoded, classes=np.arange(N_CLASSES)).labels
    one, two = (risk_of(OBJECTIVES["likelihood"], encoded, labels, w) for w in (None, np.full(len(X), 2.0)))
    coef = np.random.default_rng(1).normal(size=one.potentials.n_coef)
    assert_array_equal(2 * one.value_grad(coef).gradient, two.value_grad(coef).gradient)


def dense(coef):
    return coef.toarray() if sp.issparse(coef) else coef


@pytest.mark.parametrize(
    "learning", [Exact(), PseudolikelihoodTraining(), PiecewiseTraining()], ids=["exact", "pl", "pieces"]
)
@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse edges"])
def test_weights_of_chains_are_copies(kind, learning):
    rng = np.random.default_rng(2)
    X, y = chains(rng, 30)
    if kind != "dense":
        X = [sp.csr_matrix(np.maximum(x, 0)) for x in X]
    if kind == "sparse edges":
        X = [
            Example(
                x,
                [[i, i + 1] for i in range(x.shape[0] - 1)],
                sp.csr_matrix(np.eye(3)[rng.integers(3, size=x.shape[0] - 1)]),
            )
            for x in X
        ]
    times = rng.integers(1, 4, size=30)
    field = TRWCRF(learning=learning, tol=1e-8, max_iter=2000, C=0.5)
    weighted = field.fit(X, y, sample_weight=times)
    loss, coef, tables = weighted.loss_curve_[-1], weighted.coef_, dense(weighted.edge_coef_)
    copied = field.fit([X[i] for i in np.repeat(np.arange(30), times)], [y[i] for i in np.repeat(np.arange(30), times)])
    assert_allclose(loss, copied.loss_curve_[-1], rtol=1e-8)
    assert_allclose(coef, copied.coef_, atol=1e-5)
    assert_allclose(tables, dense(copied.edge_coef_), atol=1e-5)


def test_weights_leave_batches_as_they_are():
    rng = np.random.default_rng(3)
    encoded = encode_X([rng.normal(size=(4, 2)) for _ in range(1000)])
    labels = [np.zeros(4, dtype=np.int32)] * 1000
    sizes = [len(batch.members) for batch in make_batches(encoded, labels)]
    assert sizes == [len(batch.members) for batch in make_batches(encoded, labels, rng.random(1000))]
    assert len(make_batches(encoded, labels, rng.random(1000), mixes_weights=False)) == 1000


def test_weights_give_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(4)
    X, y = chains(rng, 200)
    weight = rng.random(200)
    options = {"learning": PseudolikelihoodTraining(), "max_iter": 5}
    with pytest.warns(ConvergenceWarning):
        one = TRWCRF(**options, n_jobs=1).fit(X, y, weight)
    with pytest.warns(ConvergenceWarning):
        two = TRWCRF(**options, n_jobs=2).fit(X, y, weight)
    assert_array_equal(one.edge_coef_, two.edge_coef_)
