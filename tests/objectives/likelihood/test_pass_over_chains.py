"""The pass over labelled chains: wide ranges of scores, blocks, and equal bits for any number of threads."""

import pickle
import time
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from interrupting import interrupted_after, may_drop_interrupts
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import MeanField, TreeInference
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood
from sklearn_crf.objectives.likelihood import _pass_over_chains
from sklearn_crf.objectives.likelihood._pass_over_chains import PassOverChains
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SparsePotentials,
    build_feature_columns,
    convert_to_feature_columns,
    make_pairwise_form,
)

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
    prepare = lambda example: convert_to_feature_columns(example, 1)  # noqa: E731
    return make_batches(encoded, labels, weight, max_nodes=12, prepare=prepare)


def potentials_of(n_states, **options):
    pairs = FeaturePairs.all(N_FEATURES, n_states)
    return SparsePotentials(pairs, N_FEATURES, n_states, make_pairwise_form("full", n_states), **options)


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
    # One call of the kernel processes a batch completely, so no models of batches are built.
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, coef) is not None
    assert_equal_risks(found, expected, tol=1e-9)
    assert not potentials.unpack(found.gradient).edge_coef[..., [0, 4, 8]].any()
    free = FastRisk(Likelihood(TreeInference()), potentials_of(3), batches).value_grad(coef)
    assert found.value < free.value


def with_missing(batches, share=0.4):
    rng = np.random.default_rng(5)
    return [
        replace(batch, labels=np.where(rng.random(len(batch.labels)) < share, np.int32(-1), batch.labels))
        for batch in batches
    ]


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_missing_labels_are_summed_over(is_sparse, dtype, share):
    batches, potentials = chains(40, is_sparse, dtype)
    batches = with_missing(batches, share)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    found, expected = both_ways(potentials, batches, coef)
    assert_equal_risks(found, expected, tol=1e-12 if dtype == np.float64 else 2e-5)
    risks = [FastRisk(Likelihood(TreeInference()), potentials, batches, n_jobs=n) for n in (1, 3)]
    first, other = (risk.value_grad(coef) for risk in risks)
    assert first.value == other.value
    assert_array_equal(first.gradient, other.gradient)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
@pytest.mark.parametrize("weighted", [False, True])
def test_missing_labels_go_with_forbidden_pairs(weighted, scale):
    batches = with_missing(batches_of(3, weighted=weighted, repeats=False))
    potentials = potentials_of(3, forbidden=NOT_TWICE)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    potentials.unpack(coef).coef[...] *= scale
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, coef) is not None
    assert_equal_risks(*both_ways(potentials, batches, coef), tol=1e-9)


def test_missing_labels_go_with_a_column_of_two_classes():
    batches = with_missing(batches_of(2))
    potentials = SparsePotentials(FeaturePairs.all(N_FEATURES, 1), N_FEATURES, 2, make_pairwise_form("full", 2))
    assert_equal_risks(*both_ways(potentials, batches, np.random.default_rng(0).normal(size=potentials.n_coef)))


def test_missing_labels_have_the_slope_of_the_risk():
    batches, potentials = chains(12, False)
    risk = FastRisk(Likelihood(TreeInference()), potentials, with_missing(batches))
    rng = np.random.default_rng(0)
    coef, direction = rng.normal(size=(2, potentials.n_coef))
    up, down = (risk.value_grad(coef + step * direction).value for step in (1e-5, -1e-5))
    assert_allclose((up - down) / 2e-5, risk.value_grad(coef).gradient @ direction, rtol=1e-7)


def test_labels_that_are_forbidden_are_left_to_models():
    batches = batches_of(3)
    potentials = potentials_of(3, forbidden=NOT_TWICE)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    assert by_path_alone(risk, np.zeros(potentials.n_coef)) is None


def chains(n_chains, is_sparse, dtype=np.float64):
    """Return batches of weighted chains of five classes with up to sixty nodes, and their potentials."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, n_chains)
    X = [rng.normal(size=(n, N_FEATURES)).astype(dtype) for n in lengths]
    X = [sp.csr_matrix(np.where(x > 1, x, 0)) for x in X] if is_sparse else X
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    labels = encode_y([rng.integers(5, size=n) for n in lengths], encoded).labels
    prepare = (lambda example: convert_to_feature_columns(example, 1)) if is_sparse else None
    batches = make_batches(encoded, labels, rng.choice([0.5, 2.0], n_chains), max_nodes=1000, prepare=prepare)
    if is_sparse:
        return batches, potentials_of(5)
    return batches, LinearPotentials(N_FEATURES, 5, make_pairwise_form("full", 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_threads_do_not_change_a_bit(is_sparse, dtype, monkeypatch):
    monkeypatch.setattr(_pass_over_chains, "_MOST_KEPT", 2**14)
    batches, potentials = chains(300, is_sparse, dtype)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    objective = Likelihood(TreeInference())
    risks = [FastRisk(objective, potentials, batches, n_jobs=n) for n in (1, 2, 3, 16)]
    assert {risk.path for risk in risks} == {PassOverChains.name}
    for members in (None, [3, 1]):
        first, *others = [risk.value_grad(coef, members) for risk in risks]
        for other in others:
            assert first.value == other.value
            assert first.n_errors == other.n_errors
            assert_array_equal(first.gradient, other.gradient)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_calls_do_not_share_what_they_return(n_jobs):
    batches, potentials = chains(100, True)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches, n_jobs=n_jobs)
    kept = risk.value_grad(coef).gradient
    before = kept.copy()
    risk.value_grad(2 * coef)
    assert_array_equal(kept, before)
    assert_array_equal(risk.value_grad(coef).gradient, before)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("copied", [deepcopy, lambda path: pickle.loads(pickle.dumps(path))])
def test_copies_read_their_own_features(is_sparse, copied):
    batches, potentials = chains(60, is_sparse)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    for n_jobs in (1, 2):
        risk = FastRisk(Likelihood(TreeInference()), potentials, batches, n_jobs=n_jobs)
        path = PassOverChains(risk)
        expected = path.value_grad(risk, coef, None)
        copy = copied(path)
        assert not set(np.ravel(copy._features.shared(n_jobs)[0][0][:, 3])) & set(
            path._features.shared(n_jobs)[0][0][:, 3]
        )
        assert_array_equal(copy.value_grad(risk, coef, None).gradient, expected.gradient)


def test_many_chains_are_cut_into_blocks_for_many_threads():
    batches, potentials = chains(4000, False)
    n_blocks = len(PassOverChains(FastRisk(Likelihood(TreeInference()), potentials, batches))._blocks)
    assert n_blocks >= 8 * 16
    batches, potentials = chains(3, False)
    assert len(PassOverChains(FastRisk(Likelihood(TreeInference()), potentials, batches))._blocks) == 1


@may_drop_interrupts
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_an_evaluation(n_jobs):
    rng, shape = np.random.default_rng(0), (3000, 200)
    encoded = encode_X(rng.normal(size=(*shape, 1)), edge_features="constant", edge_types="tied", lattice_ndim=1)
    labels = encode_y(rng.integers(40, size=shape), encoded).labels
    potentials = LinearPotentials(1, 40, make_pairwise_form("full", 40))
    risk = FastRisk(Likelihood(TreeInference()), potentials, make_batches(encoded, labels), n_jobs=n_jobs)
    path, coef = PassOverChains(risk), np.zeros(potentials.n_coef)
    with interrupted_after(0.1) as sent, pytest.raises(KeyboardInterrupt):
        path.value_grad(risk, coef, None)
    assert time.monotonic() - sent[-1] < 1.0
    assert path.value_grad(risk, coef, [0]).n_errors > 0


def test_blocks_of_many_classes_hold_many_nodes():
    cuts = _pass_over_chains.compute_block_starts([np.arange(0, 20_001, 10)], n_classes=100)
    n_nodes = 10 * np.diff(cuts[0])
    assert n_nodes.sum() == 20_000
    assert len(n_nodes) > 40
    assert n_nodes.min() > 300


def test_features_that_never_occur_have_no_gradient():
    batches, potentials = chains(20, True)
    nothing = [replace(b, example=b.example._with(node_features=empty(b.example.node_features))) for b in batches]
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    found, expected = both_ways(potentials, nothing, coef)
    assert_equal_risks(found, expected)
    assert not potentials.unpack(found.gradient).coef.any()


def empty(features):
    """Return nodes without features, as many as the given features have rows."""
    return build_feature_columns(sp.csr_matrix(features.shape, dtype=features.dtype))


def test_two_classes_may_share_a_column():
    batches = batches_of(2)
    potentials = SparsePotentials(FeaturePairs.all(N_FEATURES, 1), N_FEATURES, 2, make_pairwise_form("full", 2))
    assert_equal_risks(*both_ways(potentials, batches, np.random.default_rng(0).normal(size=potentials.n_coef)))


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
    graph = batches[0].example.graph
    featured = batches[0].example._with(edge_features=np.full((graph.n_edges, 1), 0.5))
    cases = {
        "edge features": (potentials_of(3), [replace(batches[0], example=featured)]),
        "node types": (
            SparsePotentials(FeaturePairs.all(60, 3), 30, 3, make_pairwise_form("full", 3), n_node_types=2),
            batches,
        ),
    }
    for potentials, others in cases.values():
        assert not PassOverChains.applies(Likelihood(TreeInference()), potentials, others)
    assert not PassOverChains.applies(Likelihood(MeanField()), potentials_of(3), batches)
