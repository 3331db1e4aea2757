"""The pseudolikelihood and its gradient against enumeration and finite differences."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import log_conditional
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model, read_only
from scipy.special import logsumexp

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel, compute_labeling_statistics, score
from sklearn_crf.objectives.likelihood._pseudolikelihood import compute_pseudolikelihood_terms


def random_case(*args, seed=0, **options):
    model = random_model(*args, seed=seed, **options)
    rng = np.random.default_rng(seed)
    return model, BruteForce().sample(model, 1, random_state=seed)[0], rng.uniform(0.1, 2, size=model.graph.n_nodes)


def five_point(function, values, direction, step=1e-3):
    f = [function(values + k * step * direction) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("n_columns", [1, 2, 4])
def test_terms_are_conditionals(topology, kind, structure, n_columns):
    model, labels, _ = random_case(topology, n_columns, kind, structure=structure)
    terms, _ = compute_pseudolikelihood_terms(model, labels)
    expected = [-log_conditional(model, labels, node)[labels[node]] for node in range(len(labels))]
    np.testing.assert_allclose(terms, expected, atol=1e-12)


def test_terms_are_ratios_of_the_joint():
    model, labels, _ = random_case("grid", 3, "weighted")
    terms, _ = compute_pseudolikelihood_terms(model, labels)
    for node in range(9):
        scores = [score(model, np.where(np.arange(9) == node, k, labels)) for k in range(3)]
        assert terms[node] == pytest.approx(logsumexp(scores) - scores[labels[node]], abs=1e-12)


@given(model=models(max_states=3), seed=st.integers(0, 1000), weighted=st.booleans())
@settings(max_examples=40, deadline=None)
def test_gradient_is_the_slope(model, seed, weighted):
    rng = np.random.default_rng(seed)
    labels = BruteForce().sample(model, 1, random_state=seed)[0]
    weight = rng.uniform(0, 2, size=len(labels)) if weighted else None

    def loss(**changed):
        terms, _ = compute_pseudolikelihood_terms(replace(model, **changed), labels, weight)
        return terms.sum() if weight is None else terms @ weight

    _, gradient = compute_pseudolikelihood_terms(model, labels, weight)
    for name, values in (("unary", model.unary), ("tables", model.tables)):
        direction = rng.normal(size=values.shape)
        slope = five_point(lambda changed, name=name: loss(**{name: changed}), values, direction)
        assert np.sum(getattr(gradient, name) * direction) == pytest.approx(slope, abs=1e-7)


def test_every_entry_of_the_gradient():
    model, labels, weight = random_case("cycle", 2, "weighted")
    _, gradient = compute_pseudolikelihood_terms(model, labels, weight)

    def loss(name, values):
        return compute_pseudolikelihood_terms(replace(model, **{name: values}), labels)[0] @ weight

    for name in ("unary", "tables"):
        values = getattr(model, name)
        for cell in np.ndindex(values.shape):
            direction = np.zeros(values.shape)
            direction[cell] = 1
            slope = five_point(partial(loss, name), values, direction)
            assert getattr(gradient, name)[cell] == pytest.approx(slope, abs=1e-9)


def test_gradient_has_mean_zero_under_the_model():
    model, _, weight = random_case("tree", 2, "typed", scale=0.5)
    total = np.zeros(model.tables.shape)
    z = 0.0
    for labels in np.indices((2,) * 7).reshape(7, -1).T:
        probability = np.exp(score(model, labels))
        total += probability * compute_pseudolikelihood_terms(model, labels, weight)[1].tables
        z += probability
    np.testing.assert_allclose(total / z, 0, atol=1e-12)


def test_without_edges_it_is_the_likelihood():
    model, labels, _ = random_case("no_edges", 4)
    terms, gradient = compute_pseudolikelihood_terms(model, labels)
    exact = BruteForce().marginals(model)
    assert terms.sum() == pytest.approx(exact.log_z - score(model, labels), abs=1e-12)
    expected = exact.statistics.minus(compute_labeling_statistics(model, labels))
    np.testing.assert_allclose(gradient.unary, expected.unary, atol=1e-12)
    np.testing.assert_array_equal(gradient.tables, 0)


def test_a_node_of_weight_zero_still_conditions_its_neighbours():
    model, labels, _ = random_case("chain", 3)
    weight = np.array([1.0, 1, 0, 1, 1, 1])
    _, gradient = compute_pseudolikelihood_terms(model, labels, weight)
    np.testing.assert_array_equal(gradient.unary[2], 0)
    other = labels.copy()
    other[2] = (labels[2] + 1) % 3
    terms, changed = (
        compute_pseudolikelihood_terms(model, labels, weight),
        compute_pseudolikelihood_terms(model, other, weight),
    )
    assert terms[0][1] != changed[0][1]
    assert np.any(gradient.tables != changed[1].tables)


def test_integer_weights_are_repetitions():
    model, labels, _ = random_case("grid", 3)
    weight = np.array([2.0, 0, 1, 3, 1, 0, 2, 1, 1])
    gradient = compute_pseudolikelihood_terms(model, labels, weight)[1].tables
    parts = [compute_pseudolikelihood_terms(model, labels, (np.arange(9) == s) * 1.0)[1].tables for s in range(9)]
    np.testing.assert_allclose(gradient, np.tensordot(weight, parts, axes=1), atol=1e-12)


def test_precision_and_read_only_input(tmp_path):
    model, labels, weight = random_case("grid", 3, "weighted", dtype=np.float32)
    labels.flags.writeable = weight.flags.writeable = False
    terms, gradient = compute_pseudolikelihood_terms(read_only(model, tmp_path), labels, weight)
    double = replace(model, **{k: np.float64(getattr(model, k)) for k in ("unary", "tables", "edge_weight")})
    expected_terms, expected = compute_pseudolikelihood_terms(double, labels, weight)
    assert gradient.unary.dtype == np.float32
    assert gradient.tables.dtype == np.float64
    # Sums are computed in float64 from the same numbers; only the unary gradient is rounded at the end.
    np.testing.assert_allclose(terms, expected_terms, atol=1e-12)
    np.testing.assert_allclose(gradient.tables, expected.tables, atol=1e-12)
    np.testing.assert_allclose(gradient.unary, expected.unary, atol=1e-6)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_anything(n_threads):
    rng = np.random.default_rng(2)
    model = PairwiseModel(lattice((80, 70)), rng.normal(size=(5600, 3)), rng.normal(size=(1, 3, 3)))
    labels = rng.integers(3, size=5600)
    alone, shared = (
        compute_pseudolikelihood_terms(model, labels),
        compute_pseudolikelihood_terms(model, labels, n_threads=n_threads),
    )
    np.testing.assert_array_equal(alone[0], shared[0])
    np.testing.assert_array_equal(alone[1].unary, shared[1].unary)
    np.testing.assert_array_equal(alone[1].tables, shared[1].tables)


def test_an_impossible_label_is_named():
    tables = np.array([[[0.0, -np.inf], [0.0, 1.0]]])
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), tables)
    with pytest.raises(ValueError, match=r"labels\[1\] is 0, which the node's scores or its neighbours"):
        compute_pseudolikelihood_terms(model, [0, 0, 1], [0, 1, 1])
    terms, gradient = compute_pseudolikelihood_terms(model, [0, 0, 1], [1, 0, 0])
    assert terms[1] == np.inf
    assert np.all(np.isfinite(gradient.tables))


@pytest.mark.parametrize("weight", [[1.0, 1.0], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0]])
def test_bad_weights_are_named(weight):
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="node_weight must"):
        compute_pseudolikelihood_terms(model, [0, 0, 1], weight)
