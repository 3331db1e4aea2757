"""Features in other units: moments, conversion of weights in both directions, and the unchanged objective."""

import numpy as np
import pytest

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import TRWMessagePassing
from sklearn_crf.learning import PenalisedRisk
from sklearn_crf.objectives import EmpiricalRisk, JointRisk, Likelihood, Pseudolikelihood
from sklearn_crf.potentials import (
    FactorPotentials,
    FeatureMoments,
    FeatureScaling,
    LinearPotentials,
    collect_factor_types,
    make_pairwise_form,
)

RNG = np.random.default_rng(0)
FAR = np.array([1e4, 0.0, -3.0])
UNIT = np.array([1.0, 250.0, 1.0])


def examples(n_types=1, factors=False):
    """Return random graphs whose node and edge features have large means and another scale."""
    found = []
    for n_nodes in (5, 7, 4):
        edges = np.array([[i, j] for i in range(n_nodes) for j in range(i) if RNG.random() < 0.5] or [[0, 1]])
        found.append(
            Example(
                FAR + UNIT * RNG.normal(size=(n_nodes, 3)),
                edges,
                edge_features=np.array([1.0, 80.0]) * RNG.normal(size=(len(edges), 2)),
                node_type=RNG.integers(n_types, size=n_nodes),
                edge_type=RNG.integers(2, size=len(edges)),
                factors={"triple": [[0, 1, 2]]} if factors else None,
            )
        )
    return found


def problem(n_types=1, factors=False, fit_intercept=True):
    X = examples(n_types, factors)
    encoded = encode_X(X, allow_factors=factors)
    labels = encode_y([RNG.integers(3, size=x.n_nodes) for x in X], encoded, classes=[0, 1, 2]).labels
    batches = make_batches(encoded, labels)
    potentials = LinearPotentials(
        3,
        3,
        make_pairwise_form("full", 3),
        n_edge_features=2,
        n_node_types=n_types,
        n_edge_types=2,
        fit_intercept=fit_intercept,
    )
    if factors:
        potentials = FactorPotentials(potentials, collect_factor_types(X, batches, 3))
    return batches, potentials


def scaling_of(batches, potentials, C=1.0, fit_intercept=True):
    return FeatureScaling.for_training(FeatureScaling.moments(batches, potentials), C, fit_intercept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_all_rows(dtype, monkeypatch):
    monkeypatch.setattr("sklearn_crf.potentials._feature_scaling._ROWS", 4)
    X = [(FAR + UNIT * RNG.normal(size=(n, 3))).astype(dtype) for n in (3, 9, 1)]
    found = FeatureMoments.of_nodes(make_batches(encode_X(X)), 1)
    rows = np.concatenate(X).astype(np.float64)
    assert found.number.tolist() == [len(rows)]
    np.testing.assert_allclose(found.mean[0], rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation[0], rows.std(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found.low[0], rows.min(axis=0))
    np.testing.assert_array_equal(found.high[0], rows.max(axis=0))


def test_moments_by_type_and_in_parts():
    batches, potentials = problem(n_types=2)
    nodes, edges = FeatureScaling.moments(batches, potentials)
    for found, values, kind in (
        (nodes, [b.example.node_features for b in batches], [b.example.node_type for b in batches]),
        (edges, [b.example.edge_features for b in batches], [b.example.edge_type for b in batches]),
    ):
        values, kind = np.concatenate(values), np.concatenate(kind)
        for t in (0, 1):
            np.testing.assert_allclose(found.mean[t], values[kind == t].mean(axis=0), rtol=1e-10)
            np.testing.assert_allclose(found.deviation[t], values[kind == t].std(axis=0), rtol=1e-8)
    parts = [FeatureScaling.moments([batch], potentials) for batch in batches]
    for whole, of_parts in zip((nodes, edges), zip(*parts, strict=True), strict=True):
        for expected, found in zip(whole, FeatureMoments.joined(of_parts), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_types_without_nodes_have_no_moments():
    batches, _ = problem()
    found = FeatureMoments.of_nodes(batches, n_types=2)
    assert found.number[1] == 0
    assert not found.varies[1].any()
    assert not found.deviation[1].any()


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("n_types", [1, 2])
def test_scores_are_the_same(n_types, factors):
    batches, potentials = problem(n_types, factors)
    scaling = scaling_of(batches, potentials)
    assert not scaling.is_identity
    coef = RNG.normal(size=potentials.n_coef)
    inner = scaling.inner(potentials, coef)
    np.testing.assert_allclose(scaling.outer(potentials, inner), coef, rtol=1e-9, atol=1e-9)
    for before, after in zip(batches, scaling.scaled(batches), strict=True):
        expected, found = potentials.model(coef, before.example), potentials.model(inner, after.example)
        if factors:
            np.testing.assert_allclose(found.log_table, expected.log_table, atol=1e-8)
            continue
        np.testing.assert_allclose(found.unary, expected.unary, atol=1e-8)
        weight, other = found.edge_weight, expected.edge_weight
        edges = [np.einsum("er,erab->eab", w, m.tables[m.edge_type]) for w, m in ((weight, found), (other, expected))]
        np.testing.assert_allclose(*edges, atol=1e-8)


@pytest.mark.parametrize("edge_C", [None, 0.3])
def test_objective_and_gradient_are_the_same(edge_C):
    batches, potentials = problem()
    plain = PenalisedRisk(EmpiricalRisk(Pseudolikelihood(), potentials, batches), 2.0, 10, edge_C)
    coef = 0.01 * RNG.normal(size=potentials.n_coef)
    value, gradient = plain.evaluate(coef)

    scaling = scaling_of(batches, potentials, C=2.0)
    scaling.rescale_penalty(potentials)
    scaled = PenalisedRisk(EmpiricalRisk(Pseudolikelihood(), potentials, scaling.scaled(batches)), 2.0, 10, edge_C)
    found, inner_gradient = scaled.evaluate(scaling.inner(potentials, coef))
    np.testing.assert_allclose(found, value, rtol=1e-10)
    np.testing.assert_allclose(scaling.outer_gradient(potentials, inner_gradient), gradient, rtol=1e-7, atol=1e-8)


def test_penalty_of_weights_before_shares_is_the_same():
    batches, potentials = problem()
    scaling = scaling_of(batches, potentials)
    scaling.rescale_penalty(potentials)
    joint = JointRisk(EmpiricalRisk(Likelihood(TRWMessagePassing()), potentials, scaling.scaled(batches)))
    found = joint.potentials.penalty
    np.testing.assert_array_equal(found[: potentials.n_coef], potentials.penalty)
    assert len(found) > potentials.n_coef
    assert not found[potentials.n_coef :].any()


def test_l1_penalty_is_the_same():
    batches, potentials = problem()
    coef = 0.01 * RNG.normal(size=potentials.n_coef)
    losses = []
    for scaling in (FeatureScaling(), scaling_of(batches, potentials)):
        potentials.feature_scale = potentials.edge_scale = None
        if not scaling.is_identity:
            scaling.rescale_penalty(potentials)
        one = PenalisedRisk(EmpiricalRisk(Pseudolikelihood(), potentials, scaling.scaled(batches)), 2.0, 10)
        one.l1_ratio = 0.7
        one.visit(scaling.inner(potentials, coef))
        losses.append(one.record.loss[0])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-10)


def test_only_features_in_need_change():
    batches, potentials = problem()
    scaling = scaling_of(batches, potentials)
    assert scaling.center[0, 1:].tolist() == [0.0, 0.0]
    assert scaling.scale[0, [0, 2]].tolist() == [1.0, 1.0]
    assert 100 < scaling.scale[0, 1] < 500
    assert scaling.edge_scale[:, 0].tolist() == [1.0, 1.0]
    assert np.all(scaling.edge_scale[:, 1] > 10)


def test_usual_features_stay_as_they_are():
    X = [RNG.normal(size=(20, 3)), RNG.random(size=(30, 3)), np.ones((4, 3))]
    batches = make_batches(encode_X(X))
    potentials = LinearPotentials(3, 2, make_pairwise_form("potts", 2), n_edge_features=4)
    scaling = scaling_of(batches, potentials)
    assert scaling.is_identity
    assert scaling.scaled(batches) is batches
    coef = np.arange(potentials.n_coef, dtype=float)
    assert scaling.inner(potentials, coef) is coef
    assert scaling.outer(potentials, coef) is coef


def test_without_intercepts_nothing_is_centred():
    batches, potentials = problem(fit_intercept=False)
    scaling = scaling_of(batches, potentials, fit_intercept=False)
    assert not scaling.center.any()


def test_computed_edges_see_features_as_they_were(monkeypatch):
    X = 1e5 + 50 * RNG.normal(size=(2, 4, 4, 2))
    potentials = LinearPotentials(2, 2, make_pairwise_form("potts", 2), n_edge_features=3, n_edge_types=2)
    found = []
    for most_kept in (2**26, 0):
        monkeypatch.setattr("sklearn_crf.encoding._tuning.MOST_KEPT", most_kept)
        batches = make_batches(encode_X(X))
        scaling = scaling_of(batches, potentials)
        edges = batches[0].example.edge_features
        scaled = scaling.scaled(batches)[0].example
        unit = scaling.edge_scale[scaled.edge_type]
        assert unit.max() > 10
        np.testing.assert_allclose(scaled.edge_features * unit, edges, rtol=1e-12)
        assert abs(scaled.node_features).max() < 20
        found.append(scaled.edge_features)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("least_size", [0.0, 1.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 255.0])
def test_the_penalty_counts_differences_in_their_root_mean_squares(unit, least_size):
    rng = np.random.default_rng(0)
    encoded = encode_X(unit * rng.normal(size=(2, 4, 5, 3)) * [1.0, 3.0, 0.0], edge_features="difference")
    batches = make_batches(encoded)
    potentials = LinearPotentials(3, 2, make_pairwise_form("symmetric", 2), n_edge_features=4, n_edge_types=2)
    moments = FeatureScaling.moments(batches, potentials)
    scaling = FeatureScaling.for_training(moments, 1.0, least_size=least_size)
    scaling.rescale_penalty(potentials)
    coef = rng.normal(size=potentials.n_coef)
    found = potentials.unpack(potentials.penalty * scaling.inner(potentials, coef) ** 2)
    parts = potentials.unpack(coef)
    for t in range(2):
        rows = np.concatenate([b.example.edge_features[b.example.edge_type == t] for b in batches])
        square = np.mean(rows**2, axis=0)
        square[square > 0] = np.maximum(square[square > 0], least_size)
        # A constant feature has no scale: its weights are penalised without scaling.
        square[square == 0] = 1.0
        expected = square[:, np.newaxis] * parts.edge_coef[t] ** 2
        np.testing.assert_allclose(found.edge_coef[t], expected, rtol=1e-9)
    np.testing.assert_allclose(found.coef, parts.coef**2, rtol=1e-9)
