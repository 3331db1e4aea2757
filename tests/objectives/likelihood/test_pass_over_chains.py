"""The pass over sparse labelled chains: the range of its scores, parts and groups of batches."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import MeanField, TreeInference
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood
from sklearn_crf.objectives.likelihood import _pass_over_chains
from sklearn_crf.objectives.likelihood._pass_over_chains import PassOverChains
from sklearn_crf.potentials import FeaturePairs, SparsePotentials, pairwise_form, with_feature_columns

N_FEATURES = 30

NOT_TWICE = np.eye(3, dtype=bool)


def batches_of(n_states, *, weighted=False, n_sentences=14, repeats=True):
    rng = np.random.default_rng(n_states)
    lengths = rng.integers(1, 7, n_sentences)
    X = [sp.random(n, N_FEATURES, 0.2, format="csr", random_state=rng) for n in lengths]
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    y = [rng.integers(n_states, size=n) for n in lengths]
    if not repeats:
        y = [np.cumsum(rng.integers(1, n_states, size=n)) % n_states for n in lengths]
    labels = encode_y(y, encoded, classes=np.arange(n_states)).labels
    weight = rng.choice([0.5, 2.0], n_sentences) if weighted else None
    prepare = lambda example: with_feature_columns(example, 1)  # noqa: E731
    return make_batches(encoded, labels, weight, max_nodes=12, prepare=prepare)


def potentials_of(n_states, **options):
    pairs = FeaturePairs.all(N_FEATURES, n_states)
    return SparsePotentials(pairs, N_FEATURES, n_states, pairwise_form("full", n_states), **options)


def both_ways(potentials, batches, coef):
    quick, general = (kind(Likelihood(TreeInference()), potentials, batches) for kind in (FastRisk, EmpiricalRisk))
    assert quick.path == PassOverChains.name
    return quick.value_grad(coef), general.value_grad(coef)


def by_path_alone(risk, coef):
    return PassOverChains(risk).value_grad(risk, coef, None)


def assert_equal_risks(found, expected, tol=1e-12):
    assert_allclose(found.value, expected.value, rtol=tol)
    assert_allclose(found.gradient, expected.gradient, rtol=tol, atol=10 * tol)
    assert found.n_errors == pytest.approx(expected.n_errors)
    assert found.converged


@pytest.mark.parametrize("scale", [30.0, 1e3])
def test_forbidden_pairs_leave_scores_their_range(scale):
    batches = batches_of(3, repeats=False)
    potentials = potentials_of(3, forbidden=NOT_TWICE)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    potentials.unpack(coef).coef[...] *= scale
    found, expected = both_ways(potentials, batches, coef)
    # One call of the kernel for each batch has them all: nothing is left to models of batches.
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, coef) is not None
    assert_equal_risks(found, expected, tol=1e-9)
    assert not potentials.unpack(found.gradient).edge_coef[..., [0, 4, 8]].any()
    free = FastRisk(Likelihood(TreeInference()), potentials_of(3), batches).value_grad(coef)
    assert found.value < free.value


def test_labels_that_are_forbidden_are_left_to_models():
    batches = batches_of(3)
    potentials = potentials_of(3, forbidden=NOT_TWICE)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, np.zeros(potentials.n_coef)) is None


@pytest.mark.parametrize("n_parts", [2, 4])
def test_parts_with_a_gradient_each(n_parts, monkeypatch):
    batches = batches_of(3, n_sentences=40, weighted=True)
    potentials = potentials_of(3)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    whole = FastRisk(Likelihood(TreeInference()), potentials, batches).value_grad(coef)
    monkeypatch.setattr(_pass_over_chains, "_n_parts", lambda *sizes: n_parts)
    assert_equal_risks(*both_ways(potentials, batches, coef))
    first, *others = (
        FastRisk(Likelihood(TreeInference()), potentials, batches, n_jobs=n).value_grad(coef) for n in (1, 2, 3)
    )
    assert_allclose(first.gradient, whole.gradient, rtol=1e-12, atol=1e-11)
    for other in others:
        assert first.value == other.value
        assert_array_equal(first.gradient, other.gradient)
    # Calls do not share what they return.
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches, n_jobs=2)
    kept = risk.value_grad(coef).gradient
    risk.value_grad(2 * coef)
    assert_array_equal(kept, first.gradient)


def test_parts_are_for_many_entries_of_each_weight():
    assert _pass_over_chains._n_parts(1000, 1000, 50) == 1
    assert _pass_over_chains._n_parts(6000, 1000, 50) == 2
    assert _pass_over_chains._n_parts(9000, 1000, 50) == 4
    assert _pass_over_chains._n_parts(10**6, 1000, 50) == 8
    assert _pass_over_chains._n_parts(10**6, 1000, 3) == 2


@pytest.mark.parametrize("part", ["nodes", "edges"])
def test_wide_ranges_of_scores_are_left_to_messages(part):
    batches = batches_of(3)
    potentials = potentials_of(3)
    coef = np.zeros(potentials.n_coef)
    parts = potentials.unpack(coef)
    (parts.coef if part == "nodes" else parts.edge_coef)[...].flat[:9] = np.linspace(-900, 900, 9)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, coef) is None
    assert_equal_risks(*both_ways(potentials, batches, coef))


def test_anything_else_has_no_pass():
    batches = batches_of(3)
    some_unlabelled = [
        replace(batch, labels=np.where(np.arange(len(batch.labels)), batch.labels, -1)) for batch in batches
    ]
    graph = batches[0].example.graph
    featured = batches[0].example._with(edge_features=np.full((graph.n_edges, 1), 0.5))
    cases = {
        "labels": (potentials_of(3), some_unlabelled),
        "edge features": (potentials_of(3), [replace(batches[0], example=featured)]),
        "node types": (
            SparsePotentials(FeaturePairs.all(60, 3), 30, 3, pairwise_form("full", 3), n_node_types=2),
            batches,
        ),
        "two classes": (SparsePotentials(FeaturePairs.all(30, 1), 30, 2, pairwise_form("full", 2)), batches_of(2)),
    }
    for potentials, others in cases.values():
        assert not PassOverChains.applies(Likelihood(TreeInference()), potentials, others)
    assert not PassOverChains.applies(Likelihood(MeanField()), potentials_of(3), batches)


def test_groups_have_enough_batches_for_threads(monkeypatch):
    monkeypatch.setattr(_pass_over_chains, "_KEPT_TOGETHER", 10)
    assert _pass_over_chains._groups([10] * 9) == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]
    assert _pass_over_chains._groups([10] * 3) == [[0, 1, 2]]
    monkeypatch.setattr(_pass_over_chains, "_KEPT_TOGETHER", 1000)
    assert _pass_over_chains._groups([10] * 9) == [list(range(9))]
