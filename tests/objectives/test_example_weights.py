"""Weights of examples in a batch: examples of different weights share a batch, and sums add up over parts."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import JunctionTree, TreeInference, TRWMessagePassing
from sklearn_crf.learning import Exact, PiecewiseTraining, PseudolikelihoodTraining
from sklearn_crf.objectives import (
    EdgeProbabilityRisk,
    EmpiricalRisk,
    JointRisk,
    Likelihood,
    Piecewise,
    Pseudolikelihood,
    RelaxedLikelihood,
    SaddlePoint,
    StructuredHinge,
)
from sklearn_crf.potentials import FactorPotentials, LinearPotentials, collect_factor_types, make_pairwise_form

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


def typed_cycles(rng, n=5):
    X, y = [], [rng.integers(N_CLASSES, size=4) for _ in range(n)]
    for _ in range(n):
        edges = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [0, 2]])
        X.append(Example(rng.normal(size=(4, 2)), edges, rng.normal(size=(5, 2)), edge_type=rng.integers(2, size=5)))
    return X, y


def factors(rng, n=6):
    """Return graphs with fixed factors and factors of two types, one of them with features."""
    X = [
        Example(
            rng.normal(size=(5, 2)),
            [[0, 1], [1, 2]],
            factors={
                "triple": [[0, 1, 2], [2, 3, 4]],
                "pair": ([[3, 4], [0, 4]], rng.normal(size=(2, 2))),
            },
            fixed_factors=[((1, 3), rng.normal(size=(2, 2)))],
        )
        for _ in range(n)
    ]
    return X, [rng.integers(2, size=5) for _ in range(n)]


DATA = {"chains": chains, "typed trees": typed_trees, "trees of different states": trees_of_states}


def risk_of(objective, encoded, labels, weight, **packing):
    batches = make_batches(encoded, labels, weight, **packing)
    n_features = encoded.n_edge_features
    potentials = LinearPotentials(
        2,
        N_CLASSES,
        make_pairwise_form("full", N_CLASSES),
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
    # Two examples of one weight, and one example without weight.
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


@pytest.mark.parametrize("entropy", ["trw", "trivial", "factors"])
def test_shares_of_a_batch_of_different_weights_are_those_of_its_examples(entropy):
    rng = np.random.default_rng(5)
    X, y = typed_cycles(rng)
    encoded = encode_X(X, edge_features="constant")
    labels = encode_y(y, encoded, classes=np.arange(N_CLASSES)).labels
    weight = rng.random(len(X)) + 0.5
    weight[1] = 0.0
    objective = RelaxedLikelihood(TRWMessagePassing())
    together, apart = (
        JointRisk(risk_of(objective, encoded, labels, weight, max_nodes=n, max_cyclic_nodes=n), entropy)
        for n in (1000, 1)
    )
    assert len(together.batches) == 1
    weights = rng.normal(size=together.potentials.pairwise.n_coef)
    coef = [np.concatenate((weights, np.zeros(risk.potentials.n_coef - len(weights)))) for risk in (together, apart)]
    # Some steps along the gradient, in which the shares belong to the same nodes.
    for _ in range(3):
        found, expected = together.value_grad(coef[0]), apart.value_grad(coef[1])
        assert_allclose(found.value, expected.value, rtol=1e-10)
        assert_allclose(found.gradient[: len(weights)], expected.gradient[: len(weights)], atol=1e-9)
        assert_allclose(np.sum(found.gradient**2), np.sum(expected.gradient**2), rtol=1e-9)
        coef = [coef[0] - 0.1 * found.gradient, coef[1] - 0.1 * expected.gradient]


def test_risks_over_trees_are_linear_in_the_weights_of_examples():
    rng = np.random.default_rng(6)
    X, y = typed_cycles(rng)
    encoded = encode_X(X, edge_features="constant")
    labels = encode_y(y, encoded, classes=np.arange(N_CLASSES)).labels
    objective = RelaxedLikelihood(TRWMessagePassing())
    weights = None

    def solved(weight):
        nonlocal weights
        risk = EdgeProbabilityRisk(
            risk_of(objective, encoded, labels, weight, max_nodes=99, max_cyclic_nodes=99), tol=1e-11
        )
        assert len(risk.batches) == 1
        weights = 0.3 * np.random.default_rng(7).normal(size=risk._weights.n_coef) if weights is None else weights
        coef = risk.start(weights)
        found = risk.value_grad(coef)
        return found.value, found.gradient, risk.grown(coef)[2]

    values, gradients, gaps = zip(*(solved(own) for own in np.eye(len(X))), strict=True)
    plain = solved(None)
    assert_allclose(sum(values), plain[0], rtol=1e-9)
    assert_allclose(sum(gradients), plain[1], atol=1e-6)
    assert_allclose(max(gaps), plain[2], atol=1e-6)
    weight = rng.random(len(X)) + 0.5
    weighted = solved(weight)
    assert_allclose(weight @ values, weighted[0], rtol=1e-9)
    assert_allclose(weight @ np.stack(gradients), weighted[1], atol=1e-6)
    assert_allclose(np.max(weight * gaps), weighted[2], atol=1e-6)


@pytest.mark.parametrize("name", ["likelihood", "pseudolikelihood", "piecewise", "hinge"])
def test_factors_of_a_batch_of_different_weights_are_those_of_its_examples(name):
    rng = np.random.default_rng(8)
    X, y = factors(rng)
    encoded = encode_X(X, edge_features="constant", allow_factors=True)
    labels = encode_y(y, encoded, classes=np.arange(2)).labels
    weight = rng.random(len(X)) + 0.5
    weight[2] = 0.0
    objective = {
        "likelihood": Likelihood(JunctionTree()),
        "hinge": StructuredHinge(JunctionTree(), 1 - np.eye(2)),
    }.get(name, OBJECTIVES[name])
    risks = []
    for n in (1000, 1):
        batches = make_batches(encoded, labels, weight, max_factor_nodes=n)
        pairwise = LinearPotentials(2, 2, make_pairwise_form("full", 2))
        potentials = FactorPotentials(pairwise, collect_factor_types(encoded.items, batches, 2))
        risks.append(EmpiricalRisk(objective, potentials, batches))
    together, apart = risks
    assert len(together.batches) == 1
    assert len(apart.batches) == len(X)
    coef = rng.normal(size=together.potentials.n_coef)
    assert apart.potentials.n_coef == len(coef)
    found, expected = together.value_grad(coef), apart.value_grad(coef)
    assert_allclose(found.value, expected.value, rtol=1e-10)
    assert_allclose(found.gradient, expected.gradient, atol=1e-10)


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
