"""Potentials of factors, and objectives on factor graphs: against enumeration, and by finite differences."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from factor_examples import factor_examples
from factor_strategies import CONSTRAINTS, factor_graphs, random_factor_graph
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import BruteForce, JunctionTree, LoopyBP, MeanField, NormProductBP
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
from sklearn_crf.models import FactorGraph, clamped, compute_labeling_statistics, score, unite_factors
from sklearn_crf.objectives import (
    FastRisk,
    Likelihood,
    Piecewise,
    PlaneOracle,
    Pseudolikelihood,
    RelaxedLikelihood,
    SharedPieces,
    SoftmaxMargin,
    StructuredHinge,
    TruncatedLoss,
    make_blocks,
)
from sklearn_crf.potentials import (
    FactorPotentials,
    FactorType,
    FeaturePairs,
    LinearPotentials,
    SparsePotentials,
    collect_factor_types,
    make_pairwise_form,
)

OBJECTIVES = {
    "exact": Likelihood(JunctionTree()),
    "relaxation": RelaxedLikelihood(NormProductBP("trivial", tol=1e-12, max_iter=5000)),
    "tree-reweighted": RelaxedLikelihood(NormProductBP("trw", tol=1e-12, max_iter=5000)),
    "loopy": Likelihood(LoopyBP(tol=1e-13, max_iter=2000)),
    "mean field": Likelihood(MeanField(tol=1e-14, max_iter=20000)),
    "truncated mean field": TruncatedLoss(FixedSweeps(method="mean_field", n_sweeps=3), "quadratic"),
    "piecewise": Piecewise(),
    "shared pieces": SharedPieces(),
    "pseudolikelihood": Pseudolikelihood(),
    "softmax margin": SoftmaxMargin(Likelihood(JunctionTree()), 1 - np.eye(3), 0.7),
}


def make_risk(objective, X, y, sparse=False, weight=None, max_factor_nodes=1):
    limit = {"max_factor_nodes": max_factor_nodes}
    encoded = encode_X(X, edge_features="constant", allow_factors=True)
    labels = encode_y(y, encoded, missing_label=-1, classes=range(3))
    form, n_features = make_pairwise_form("full", 3), encoded.n_features
    if sparse:
        nodes = SparsePotentials(FeaturePairs.all(n_features, 3), n_features, 3, form)
        batches = make_batches(encoded, labels.labels, weight, prepare=nodes.prepared, **limit)
    else:
        nodes = LinearPotentials(n_features, 3, form)
        batches = make_batches(encoded, labels.labels, weight, **limit)
    potentials = FactorPotentials(nodes, collect_factor_types(encoded.items, batches, 3))
    return FastRisk(objective, potentials, batches)


def five_points(value, coef, k, step=1e-3):
    def at(t):
        moved = coef.copy()
        moved[k] += t * step
        return value(moved)

    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * step)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_by_the_weights(name, sparse):
    X, y = factor_examples(3, sparse=sparse, fixed=True)
    risk = make_risk(OBJECTIVES[name], X, y, sparse, weight=np.array([1.0, 0.5, 2.0]))
    rng = np.random.default_rng(1)
    coef = 0.5 * rng.normal(size=risk.potentials.n_coef)
    gradient = risk.value_grad(coef).gradient
    for k in rng.choice(len(coef), size=12, replace=False):
        assert_allclose(gradient[k], five_points(lambda w: risk.value_grad(w).value, coef, k), atol=1e-7)
    moved = rng.normal(size=len(coef))
    along = five_points(lambda t: risk.value_grad(coef + t[0] * moved).value, np.zeros(1), 0)
    assert_allclose(gradient @ moved, along, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_examples_packed_together(name):
    X, y = factor_examples(6, fixed=True)
    X[3] = X[3]._with(factors={"ends": X[3].factors["ends"]})
    weight = np.array([1.0, 1, 1, 1, 2, 2])
    alone, packed = (make_risk(OBJECTIVES[name], X, y, weight=weight, max_factor_nodes=n) for n in (1, 100))
    assert [len(risk.batches) for risk in (alone, packed)] == [6, 1]
    coef = np.random.default_rng(0).normal(size=alone.potentials.n_coef)
    one, other = alone.value_grad(coef), packed.value_grad(coef)
    assert_allclose(other.value, one.value, rtol=1e-9)
    assert_allclose(other.gradient, one.gradient, atol=1e-7)


def test_planes_are_the_highest_over_all_labelings():
    rng = np.random.default_rng(0)
    X, y = factor_examples(4, longest=4, fixed=True)
    risk = make_risk(StructuredHinge(BruteForce(), 1 - np.eye(3)), X, y)
    potentials, C = risk.potentials, 0.7
    oracle = PlaneOracle(risk, C, np.ones(potentials.n_coef), make_blocks(risk.batches))
    coef, other = rng.normal(size=(2, potentials.n_coef))
    found = [oracle(block, coef) for block in range(len(oracle.blocks))]
    slopes, offsets = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for batch, slope, offset in zip(risk.batches, slopes, offsets, strict=True):
        model, truth = potentials.model(coef, batch.example), batch.labels
        all_labels = [np.array(each) for each in itertools.product(range(3), repeat=len(truth))]
        heights = [np.sum(each != truth) + score(model, each) for each in all_labels]
        highest = all_labels[int(np.argmax(heights))]
        assert_allclose(slope @ coef + offset, C * (max(heights) - score(model, truth)), rtol=1e-10)
        model = potentials.model(other, batch.example)
        excess = np.sum(highest != truth) + score(model, highest) - score(model, truth)
        assert_allclose(slope @ other + offset, C * excess, rtol=1e-10)


def test_the_exact_objective_is_the_likelihood():
    X, y = factor_examples(4, fixed=True)
    risk = make_risk(OBJECTIVES["exact"], X, y)
    coef = np.random.default_rng(0).normal(size=risk.potentials.n_coef)
    expected = 0.0
    for x, labels in zip(X, y, strict=True):
        model = risk.potentials.model(coef, x)
        expected += BruteForce().marginals(model).log_z - score(model, labels)
    assert_allclose(risk.value_grad(coef).value, expected, rtol=1e-12)


def test_scores_are_those_of_the_weights():
    X, y = factor_examples(1, fixed=True)
    risk = make_risk(OBJECTIVES["piecewise"], X, y)
    potentials, x = risk.potentials, X[0]
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    weights, kinds = potentials.unpack(coef).factors, {kind.name: kind for kind in potentials.types}
    without = Example(x.node_features, x.graph)
    for seed in range(8):
        labels = np.random.default_rng(seed).integers(3, size=x.n_nodes)
        expected = score(potentials.model(coef, without), labels)
        for name, factors in x.factors.items():
            listed = [tuple(row) for row in kinds[name].states]
            for scope, features in zip(factors.scope, _features(factors), strict=True):
                state = tuple(labels[scope])
                place = listed.index(state) if state in listed else len(listed)
                expected += features @ weights[name][:, place]
        expected += {0: 0.3, 1: -0.2}.get(int((labels == 1).sum()), 0.5)
        assert_allclose(score(potentials.model(coef, x), labels), expected, rtol=1e-12)


def _features(factors):
    return np.ones((len(factors.scope), 1)) if factors.features is None else factors.features


def test_pullback_is_the_adjoint():
    X, y = factor_examples(1)
    potentials = make_risk(OBJECTIVES["piecewise"], X, y).potentials
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    counted = compute_labeling_statistics(potentials.model(coef, X[0]), y[0])
    assert_allclose(coef @ potentials.pullback(X[0], counted), score(potentials.model(coef, X[0]), y[0]), rtol=1e-12)


def test_listed_states_are_sorted_and_found():
    kind = FactorType("pair", [3, 4], 1, [[2, 1], [0, 3], [2, 1]])
    assert_array_equal(kind.states, [[0, 3], [2, 1]])
    assert_array_equal(kind.cells, [3, 9])


def test_a_table_of_all_states_is_dense():
    states = np.stack(np.unravel_index(np.arange(9), (3, 3)), axis=1)
    x = Example(np.ones((3, 1)), [], factors={"pair": [[0, 1], [2, 1]]})
    for listed, kinds in ((states, {0}), (states[:-1], {0, 1})):
        potentials = FactorPotentials(
            LinearPotentials(1, 3, make_pairwise_form("full", 3)), [FactorType("pair", [3, 3], 1, listed)]
        )
        coef = np.random.default_rng(0).normal(size=potentials.n_coef)
        assert set(potentials.model(coef, x).table_kind.tolist()) == kinds


@given(model=factor_graphs())
def test_piecewise_is_a_sum_over_factors(model):
    labels = BruteForce().map(model).labels
    loss = Piecewise().loss_statistics(model, labels)
    expected = sum(logsumexp(model.dense_table(f)) for f in range(model.n_factors)) - score(model, labels)
    assert_allclose(loss.terms.sum(), expected, atol=1e-10)


@given(model=factor_graphs())
def test_pseudolikelihood_is_a_sum_over_nodes(model):
    labels = BruteForce().map(model).labels
    loss = Pseudolikelihood().loss_statistics(model, labels)
    for s in range(model.n_nodes):
        changed = np.tile(labels, (model.n_states[s], 1))
        changed[:, s] = np.arange(model.n_states[s])
        scores = np.array([score(model, row) for row in changed])
        assert_allclose(loss.terms[s], logsumexp(scores) - scores[labels[s]], atol=1e-10)


@pytest.mark.parametrize("objective", [Piecewise(), Pseudolikelihood()], ids=["piecewise", "pseudolikelihood"])
@pytest.mark.parametrize("seed", range(6))
def test_derivatives_by_tables(objective, seed):
    model = random_factor_graph(forbidden=0.2 * (seed % 2), constraint=(None, *CONSTRAINTS)[seed % 4], seed=seed)
    labels = BruteForce().map(model).labels
    statistics = objective.loss_statistics(model, labels).statistics
    for field in ("log_table", "table_default"):
        values = getattr(model, field)

        def value(moved, field=field):
            return objective.loss_statistics(replace(model, **{field: moved}), labels).terms.sum()

        for k in np.flatnonzero(np.isfinite(values)):
            assert_allclose(getattr(statistics, field)[k], five_points(value, values, k), atol=1e-8)


def test_pseudolikelihood_names_a_forbidden_label():
    model = FactorGraph.from_factors([2, 2], [((0, 1), np.array([[0.0, -np.inf], [0.0, 0.0]]))])
    with pytest.raises(ValueError, match=r"labels\[0\] is 0, which the node's scores or the labels of other nodes"):
        Pseudolikelihood().loss_statistics(model, np.array([0, 1]))


def test_unlabelled_nodes_are_summed_out():
    X, y = factor_examples(2)
    risk = make_risk(OBJECTIVES["exact"], X, y)
    y[0][1] = -1
    hidden = make_risk(OBJECTIVES["exact"], X, y)
    hidden.potentials = risk.potentials
    coef = 0.5 * np.random.default_rng(0).normal(size=risk.potentials.n_coef)
    expected = 0.0
    for x, labels in zip(X, y, strict=True):
        model = risk.potentials.model(coef, x)
        expected += BruteForce().marginals(model).log_z - BruteForce().marginals(clamped(model, labels)).log_z
    found = hidden.value_grad(coef)
    assert_allclose(found.value, expected, rtol=1e-10)
    for k in range(0, len(coef), 5):
        assert_allclose(found.gradient[k], five_points(lambda w: hidden.value_grad(w).value, coef, k), atol=1e-7)


@given(model=factor_graphs())
def test_scores_of_a_union_add_up(model):
    labels = BruteForce().map(model).labels
    other = FactorGraph.from_factors(model.n_states, [((0,), np.arange(model.n_states[0], dtype=float))])
    assert_allclose(score(unite_factors(model, other), labels), score(model, labels) + labels[0], atol=1e-12)


def test_unions_have_the_same_nodes():
    with pytest.raises(ValueError, match="same numbers of states"):
        unite_factors(FactorGraph.from_factors([2], []), FactorGraph.from_factors([3], []))
