"""Likelihoods of graphs with cycles by messages, in one call of a kernel."""

import pickle
import warnings

import numpy as np
import pytest
from cyclic_graphs import draw_cyclic_graphs
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import TRWCRF
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import LoopyBP, TightenBound, TRWMessagePassing
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood, RelaxedLikelihood
from sklearn_crf.objectives.fast_paths import PassOverGraphs, general_path_only
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def risk_of(kind, n_classes, form="full", seed=0, n_jobs=1, algorithm=None, joined=100, objective=None):
    """Return the risk of twelve graphs with different weights."""
    X, y = draw_cyclic_graphs(n_classes, 12, seed)
    encoded = encode_X(X)
    weight = np.random.default_rng(seed).choice([0.5, 2.0], len(X))
    labels = encode_y(y, encoded, classes=np.arange(n_classes)).labels
    batches = make_batches(encoded, labels, weight, max_cyclic_nodes=joined)
    potentials = LinearPotentials(3, n_classes, make_pairwise_form(form, n_classes), n_edge_features=2)
    algorithm = TRWMessagePassing("covering", tol=1e-6) if algorithm is None else algorithm
    if objective is None:
        objective = RelaxedLikelihood(MarginalsWithFallback(algorithm, TightenBound(max_iter=20)))
    return kind(objective, potentials, batches, n_jobs=n_jobs)


def weights(risk, size=0.5):
    return size * np.random.default_rng(1).normal(size=risk.potentials.n_coef)


@pytest.mark.parametrize("joined", [1, 100])
@pytest.mark.parametrize(
    ("n_classes", "form"), [(2, "full"), (2, "potts"), (3, "potts"), (4, "full"), (9, "symmetric")]
)
def test_it_equals_the_general_way_from_warm_starts_too(n_classes, form, joined):
    quick, general = (risk_of(kind, n_classes, form, joined=joined) for kind in (FastRisk, EmpiricalRisk))
    assert quick.path == "graphs"
    for size in (0.5, 0.52, 0.4):
        coef = weights(quick, size)
        found, expected = quick.value_grad(coef), general.value_grad(coef)
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        assert_allclose(found.gradient, expected.gradient, rtol=1e-9, atol=1e-9)
        assert found.n_errors == pytest.approx(expected.n_errors)
        for own, other in zip(quick.carried, general.carried, strict=True):
            assert_allclose(own[0][0].values, other[0][0].values, atol=1e-10)
            assert own[0][1:] == other[0][1:]


@pytest.mark.parametrize(
    "objective",
    [
        lambda: RelaxedLikelihood(TRWMessagePassing("covering", tol=1e-6)),
        lambda: Likelihood(TRWMessagePassing("covering", tol=1e-6)),
        lambda: Likelihood(LoopyBP(tol=1e-6, max_iter=400)),
    ],
    ids=["relaxed", "reweighted", "belief propagation"],
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_messages_without_a_fallback(objective, n_classes):
    quick, general = (risk_of(kind, n_classes, objective=objective()) for kind in (FastRisk, EmpiricalRisk))
    assert quick.path == "graphs"
    for size in (0.3, 0.32):
        found, expected = (risk.value_grad(weights(risk, size)) for risk in (quick, general))
        assert found.value == pytest.approx(expected.value, rel=1e-9)
        assert_allclose(found.gradient, expected.gradient, rtol=1e-6, atol=1e-6)
        assert found.n_errors == pytest.approx(expected.n_errors)
    is_warm = isinstance(quick.objective, RelaxedLikelihood)
    assert all((state is not None) == is_warm for state in quick.carried)


def test_propagation_that_did_not_settle_is_left_alone():
    hopeless = Likelihood(LoopyBP(tol=1e-12, max_iter=8))
    quick, general = (risk_of(kind, 3, objective=hopeless, joined=1) for kind in (FastRisk, EmpiricalRisk))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            found, expected = quick.value_grad(weights(quick)), general.value_grad(weights(quick))
            assert found.value == expected.value
            assert found.converged == expected.converged
            assert all(state[0].is_damped for state in quick.carried)


def test_a_convergent_schedule_is_not_for_it():
    objective = RelaxedLikelihood(TRWMessagePassing("chains", schedule="convergent"))
    assert risk_of(FastRisk, 2, objective=objective).path == "general"


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gradient_is_that_of_the_value(n_classes):
    risk = risk_of(FastRisk, n_classes, algorithm=TRWMessagePassing("covering", tol=1e-12, max_iter=4000))
    coef = weights(risk)
    gradient, step = risk.value_grad(coef).gradient, 1e-5
    for k in range(0, len(coef), 3):
        move = step * (np.arange(len(coef)) == k)
        slope = (risk.value_grad(coef + move).value - risk.value_grad(coef - move).value) / (2 * step)
        assert gradient[k] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_any_number_of_threads_gives_the_same_bits(n_classes):
    first = None
    for n_jobs in (1, 2, 3, 16):
        risk = risk_of(FastRisk, n_classes, n_jobs=n_jobs)
        found = [risk.value_grad(weights(risk, size)) for size in (0.5, 0.6)]
        first = found if first is None else first
        for own, other in zip(found, first, strict=True):
            assert own.value == other.value
            assert_array_equal(own.gradient, other.gradient)


@pytest.mark.parametrize(("n_classes", "dtype"), [(2, np.float64), (3, np.float64), (2, np.float32)])
def test_sweeps_over_large_images_are_extrapolated_as_elsewhere(n_classes, dtype):
    rng = np.random.default_rng(0)
    y = np.kron(rng.integers(n_classes, size=(1, 10, 10)), np.ones((7, 7), dtype=int))
    encoded = encode_X((y[..., None] + rng.normal(size=(*y.shape, 2))).astype(dtype))
    batches = make_batches(encoded, encode_y(y, encoded).labels)
    potentials = LinearPotentials(
        2, n_classes, make_pairwise_form("potts", n_classes), n_edge_features=encoded.n_edge_features,
        n_edge_types=encoded.n_edge_types,
    )  # fmt: skip
    found, expected = (
        kind(
            RelaxedLikelihood(MarginalsWithFallback(TRWMessagePassing("covering"), TightenBound())), potentials, batches
        ).value_grad(np.full(potentials.n_coef, 0.3))
        for kind in (FastRisk, EmpiricalRisk)
    )
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    assert found.value == pytest.approx(expected.value, rel=tolerance)
    assert_allclose(found.gradient, expected.gradient, rtol=tolerance, atol=1e3 * tolerance)


def test_batches_whose_messages_do_not_settle_are_left_to_the_general_way():
    hopeless = TRWMessagePassing("covering", tol=1e-12, max_iter=8)
    quick, general = (risk_of(kind, 3, algorithm=hopeless, joined=1) for kind in (FastRisk, EmpiricalRisk))
    for _ in range(2):
        found, expected = quick.value_grad(weights(quick)), general.value_grad(weights(quick))
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert_allclose(found.gradient, expected.gradient, rtol=1e-9, atol=1e-11)
        assert found.converged == expected.converged
    assert all(state[0][2] for state in quick.carried)


def test_it_forgets_and_travels():
    risk = risk_of(FastRisk, 3)
    coef = weights(risk)
    first = risk.value_grad(coef)
    copy = pickle.loads(pickle.dumps(risk))
    assert_array_equal(copy.value_grad(coef).gradient, risk.value_grad(coef).gradient)
    risk.forget()
    assert_array_equal(risk.value_grad(coef).gradient, first.gradient)


def test_some_batches_sum_to_all():
    risk = risk_of(FastRisk, 2, joined=1)
    coef = weights(risk)
    parts = [risk.value_grad(coef, [i]) for i in range(len(risk.batches))]
    risk.forget()
    assert sum(part.value for part in parts) == pytest.approx(risk.value_grad(coef).value, rel=1e-12)


def test_missing_labels_and_forests_are_not_for_it():
    risk = risk_of(FastRisk, 2)
    assert PassOverGraphs.applies(risk.objective, risk.potentials, risk.batches)
    for batch in risk.batches:
        batch.labels[0] = -1
    assert not PassOverGraphs.applies(risk.objective, risk.potentials, risk.batches)


def test_fits_are_those_of_the_general_way():
    X, y = draw_cyclic_graphs(3, 10, 2)
    quick = TRWCRF(learning="relaxation", tol=1e-6).fit(X, y)
    with general_path_only():
        general = TRWCRF(learning="relaxation", tol=1e-6).fit(X, y)
    assert (quick.training_path_, general.training_path_) == ("graphs", "general")
    assert_allclose(quick.coef_, general.coef_, atol=1e-4)
    assert_allclose(quick.edge_coef_, general.edge_coef_, atol=1e-4)
