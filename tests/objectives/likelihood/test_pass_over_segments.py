"""The pass over labelled chains whose runs have scores of durations."""

from itertools import groupby, pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood
from sklearn_crf.objectives.likelihood._pass_over_chains import PassOverChains
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SegmentPotentials,
    Segments,
    SparsePotentials,
    convert_to_feature_columns,
    make_pairwise_form,
)

N_FEATURES = 4
OBJECTIVE = Likelihood(SegmentInference())


def problem(
    lengths, n_classes, n_durations, *, dtype=np.float64, is_sparse=False, least=1, forbids=False, missing=0.0, seed=0
):
    """Return batches of weighted chains, and their potentials."""
    rng = np.random.default_rng(seed)
    forbidden = np.zeros((n_classes, n_classes), dtype=bool)
    forbidden[0, -1] = forbids
    X = [rng.normal(size=(n, N_FEATURES)).astype(dtype) for n in lengths]
    X = [sp.csr_matrix(np.where(x > 0.5, x, 0)) for x in X] if is_sparse else X
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    y = [labels_of(rng, n, n_classes, least, forbidden) for n in lengths]
    y = [np.where(rng.random(len(labels)) < missing, -1, labels) for labels in y]
    labels = encode_y(y, encoded, missing_label=-1, classes=range(n_classes)).labels
    prepare = (lambda example: convert_to_feature_columns(example, 1)) if is_sparse else None
    batches = make_batches(encoded, labels, rng.choice([0.5, 2.0], len(X)), max_nodes=40, prepare=prepare)
    options = {"forbidden": forbidden if forbids else None}
    form = make_pairwise_form("full", n_classes)
    if is_sparse:
        pairs = SparsePotentials(FeaturePairs.all(N_FEATURES, n_classes), N_FEATURES, n_classes, form, **options)
    else:
        pairs = LinearPotentials(N_FEATURES, n_classes, form, **options)
    return batches, SegmentPotentials(pairs, Segments(n_durations, min_duration=least))


def labels_of(rng, n_nodes, n_classes, least, forbidden):
    """Return allowed labels in runs of at least some nodes."""
    labels = [0] * int(rng.integers(1, least + 3))
    while len(labels) < n_nodes:
        after = [k for k in range(n_classes) if k != labels[-1] and not forbidden[labels[-1], k]]
        labels += [int(rng.choice(after))] * int(rng.integers(least, least + 4))
    return np.array(labels[:n_nodes])


def assert_equal_risks(found, expected, tol):
    assert_allclose(found.value, expected.value, rtol=tol)
    assert_allclose(found.gradient, expected.gradient, atol=tol * max(1.0, np.abs(expected.gradient).max()))
    assert found.n_errors == pytest.approx(expected.n_errors)
    assert found.converged


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("n_durations", [1, 2, 7])
@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("dtype", "is_sparse"), [(np.float64, False), (np.float32, False), (np.float64, True)])
def test_the_pass_equals_the_general_path(n_classes, n_durations, missing, dtype, is_sparse):
    forbids, least = n_classes > 2 and n_durations != 2, min(n_durations, 1 + n_classes % 3)
    options = {"least": least, "forbids": forbids, "missing": missing, "dtype": dtype, "is_sparse": is_sparse}
    batches, potentials = problem([1, 2, 30, 5, 70, 9, 1, 24], n_classes, n_durations, **options)
    coef = np.random.default_rng(1).normal(size=potentials.n_coef)
    risks = [FastRisk(OBJECTIVE, potentials, batches, n_jobs=n_jobs) for n_jobs in (1, 3)]
    assert {risk.path for risk in risks} == {PassOverChains.name}
    general = EmpiricalRisk(OBJECTIVE, potentials, batches)
    for members in (None, [len(batches) - 1, 0]):
        found, same = (PassOverChains(risk).value_grad(risk, coef, members) for risk in risks)
        assert_equal_risks(found, general.value_grad(coef, members), 1e-10 if dtype == np.float64 else 2e-5)
        assert found.value == same.value
        assert_array_equal(found.gradient, same.gradient)


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_loss_equals_enumeration(missing, least):
    batches, potentials = problem([5, 1, 4, 6], 3, 3, least=least, missing=missing, forbids=True, seed=least)
    coef = np.random.default_rng(2).normal(size=potentials.n_coef)
    expected = 0.0
    for batch in batches:
        for member, (start, stop) in enumerate(zip(batch.node_ptr[:-1], batch.node_ptr[1:], strict=True)):
            expected += batch.weight[member] * enumerated_loss(potentials, coef, batch, start, stop)
    risk = FastRisk(OBJECTIVE, potentials, batches)
    found = PassOverChains(risk).value_grad(risk, coef, None)
    assert found.value == pytest.approx(expected, rel=1e-12)
    numeric = five_point(lambda w: PassOverChains(risk).value_grad(risk, w, None).value, coef)
    assert_allclose(found.gradient, numeric, atol=1e-7)


def enumerated_loss(potentials, coef, batch, start, stop):
    """Return the loss of one chain of a batch by all its labelings."""
    weights = potentials.unpack(coef)
    unary = potentials.pairwise.model(weights.pairwise, batch.example).unary[start:stop]
    table = weights.pairwise[-9:].reshape(3, 3).copy()
    table[potentials.pairwise.forbidden] = -np.inf
    labels, scores, agrees = batch.labels[start:stop], [], []
    for labeling in product(range(3), repeat=stop - start):
        runs = [(label, len(list(run))) for label, run in groupby(labeling)]
        score = sum(unary[s, label] for s, label in enumerate(labeling))
        score += sum(table[pair] for pair in pairwise(labeling))
        score += sum(weights.durations[label, min(d, 3) - 1] for label, d in runs)
        is_short = any(d < potentials.segments.min_duration for _, d in runs[1:-1])
        scores.append(-np.inf if is_short else score)
        agrees.append(np.all((labels < 0) | (labels == labeling)))
    return logsumexp(scores) - logsumexp(np.array(scores)[agrees])


@pytest.mark.parametrize("scale", [3.0, 100.0, 1e4])
@pytest.mark.parametrize("part", ["nodes", "pairs", "durations"])
@pytest.mark.parametrize("is_restricted", [False, True])
def test_large_scores_are_exact_or_left_to_logarithms(part, scale, is_restricted):
    options = {"least": 2, "forbids": True} if is_restricted else {}
    batches, potentials = problem([60, 45, 3, 1], 3, 6, **options)
    coef = np.random.default_rng(3).normal(size=potentials.n_coef)
    parts = potentials.unpack(coef)
    {"nodes": parts.pairwise[:15], "pairs": parts.pairwise[15:], "durations": parts.durations}[part][...] *= scale
    quick, general = (kind(OBJECTIVE, potentials, batches) for kind in (FastRisk, EmpiricalRisk))
    assert_equal_risks(quick.value_grad(coef), general.value_grad(coef), 1e-9)
    # Scores of the size that training finds need no logarithms.
    if scale == 3 or (part == "nodes" and scale == 100 and not is_restricted):
        assert PassOverChains(quick).value_grad(quick, coef, None) is not None


@pytest.mark.parametrize("least", [1, 3])
def test_a_labeling_that_first_loses_and_then_wins_counts(least):
    # No label may follow another, and two labelings of the whole chain have equal scores.
    rows = np.repeat([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]], [20, 40, 20], axis=0)
    encoded = encode_X([np.pad(rows, ((0, 0), (0, 2)))], edge_features="constant", edge_types="tied")
    labels = encode_y([np.zeros(80, dtype=int)], encoded, classes=range(2)).labels
    pairs = LinearPotentials(4, 2, make_pairwise_form("full", 2), forbidden=~np.eye(2, dtype=bool))
    potentials = SegmentPotentials(pairs, Segments(5, min_duration=least))
    batches = make_batches(encoded, labels)
    for scale in (1.0, 50.0):
        coef = np.zeros(potentials.n_coef)
        coef[0] = -scale
        for kind in (FastRisk, EmpiricalRisk):
            assert kind(OBJECTIVE, potentials, batches).value_grad(coef).value == pytest.approx(np.log(2))


def test_forbidden_labels_are_left_to_models():
    batches, potentials = problem([30, 20], 3, 4)
    restricted = SegmentPotentials(potentials.pairwise, Segments(4, min_duration=4))
    risk = FastRisk(OBJECTIVE, restricted, batches)
    assert PassOverChains(risk).value_grad(risk, np.zeros(restricted.n_coef), None) is None


def test_features_of_runs_have_no_pass():
    batches, potentials = problem([30, 20], 3, 4)
    featured = SegmentPotentials(potentials.pairwise, Segments(4, features="ends"), 2 * N_FEATURES)
    assert PassOverChains.applies(OBJECTIVE, potentials, batches)
    assert not PassOverChains.applies(OBJECTIVE, featured, batches)
    assert PassOverChains.applies(OBJECTIVE, potentials.without_durations(), batches) is False
