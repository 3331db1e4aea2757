"""Losses of logistic regression, of nodes given their neighbours or without edges, beside the way by models."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import GibbsSampler, LoopyBP, TreeInference
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood, Pseudolikelihood
from sklearn_crf.objectives.likelihood import _pass_over_nodes
from sklearn_crf.potentials import LinearPotentials, pairwise_form


def batches_of(n_classes, *, dtype=np.float64, weighted=False, edges=True, node_weight=False, edge_types="offset"):
    rng = np.random.default_rng(n_classes)
    if edges:
        X = [rng.normal(size=(*shape, 3)).astype(dtype) for shape in ((4, 5), (1, 1), (6, 3), (2, 2))]
    else:
        X = [Example(rng.normal(size=(n, 3)).astype(dtype), np.empty((0, 2))) for n in (7, 1, 4)]
    encoded = encode_X(X, edge_features="difference", edge_types=edge_types)
    y = [rng.integers(n_classes, size=x.shape[:-1]) for x in X]
    labels = encode_y(y, encoded, classes=np.arange(n_classes)).labels
    batches = make_batches(encoded, labels, rng.choice([0.5, 2.0], len(X)) if weighted else None)
    for batch in batches:
        batch.example.node_features.flags.writeable = False
    if node_weight:
        batches = [replace(batch, node_weight=rng.choice([0.0, 1.5], len(batch.labels))) for batch in batches]
    return encoded, batches


def potentials_of(encoded, n_classes, form="potts", **options):
    return LinearPotentials(
        3, n_classes, pairwise_form(form, n_classes), n_edge_features=max(encoded.n_edge_features, 1),
        n_edge_types=max(encoded.n_edge_types, 1), **options,
    )  # fmt: skip


def both_ways(objective, potentials, batches, n_jobs=None):
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    quick, general = (kind(objective, potentials, batches, n_jobs=n_jobs) for kind in (FastRisk, EmpiricalRisk))
    assert quick.path.startswith("nodes")
    return quick.value_grad(coef), general.value_grad(coef)


def assert_equal_risks(found, expected, tol=1e-12):
    assert_allclose(found.value, expected.value, rtol=tol)
    assert_allclose(found.gradient, expected.gradient, rtol=tol, atol=20 * tol)
    assert found.n_errors == expected.n_errors
    assert found.converged


@pytest.mark.parametrize(("n_classes", "form"), [(2, "ising"), (2, "potts"), (2, "symmetric"), (2, "full")])
@pytest.mark.parametrize("node_weight", [False, True])
@pytest.mark.parametrize("longest", [0, 1000], ids=["products", "one kernel"])
def test_two_classes(n_classes, form, node_weight, longest, monkeypatch):
    monkeypatch.setattr(_pass_over_nodes, "_LONGEST_ROW", longest)
    encoded, batches = batches_of(n_classes, node_weight=node_weight)
    assert_equal_risks(*both_ways(Pseudolikelihood(), potentials_of(encoded, n_classes, form), batches))


@pytest.mark.parametrize(("n_classes", "form"), [(3, "potts"), (3, "symmetric"), (5, "full"), (9, "potts")])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("edge_types", ["offset", "tied"])
def test_more_classes(n_classes, form, weighted, edge_types):
    encoded, batches = batches_of(n_classes, weighted=weighted, node_weight=weighted, edge_types=edge_types)
    assert_equal_risks(*both_ways(Pseudolikelihood(), potentials_of(encoded, n_classes, form), batches))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_single_precision_and_no_intercept(n_classes):
    encoded, batches = batches_of(n_classes, dtype=np.float32)
    potentials = potentials_of(encoded, n_classes, fit_intercept=False)
    assert_equal_risks(*both_ways(Pseudolikelihood(), potentials, batches), tol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("inference", [TreeInference(), LoopyBP()])
def test_likelihood_without_edges(n_classes, weighted, inference):
    encoded, batches = batches_of(n_classes, edges=False, weighted=weighted)
    assert_equal_risks(*both_ways(Likelihood(inference), potentials_of(encoded, n_classes), batches))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_cut_into_pieces_and_threads(n_classes, monkeypatch):
    """Pieces of some nodes have the sums of all, and threads do not matter."""
    encoded, batches = batches_of(n_classes)
    potentials = potentials_of(encoded, n_classes)
    monkeypatch.setattr(_pass_over_nodes, "_MOST_NODES", 7)
    risks = [both_ways(Pseudolikelihood(), potentials, batches, n_jobs=n_jobs) for n_jobs in (1, 2, 3)]
    assert_equal_risks(*risks[0])
    for quick, _ in risks[1:]:
        assert quick.value == risks[0][0].value
        assert_array_equal(quick.gradient, risks[0][0].gradient)


@pytest.mark.parametrize("longest", [0, 1000], ids=["products", "one kernel"])
def test_scores_far_apart(longest, monkeypatch):
    """Losses are those of margins where exponentials are no numbers."""
    monkeypatch.setattr(_pass_over_nodes, "_LONGEST_ROW", longest)
    encoded, batches = batches_of(2, edges=False)
    potentials = potentials_of(encoded, 2)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    coef = 1e6 * np.random.default_rng(0).normal(size=potentials.n_coef)
    general = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    assert_equal_risks(risk.value_grad(coef), general.value_grad(coef))


def test_what_needs_models():
    encoded, batches = batches_of(3)
    potentials = potentials_of(encoded, 3)
    assert FastRisk(Likelihood(LoopyBP()), potentials, batches).path == "general"
    forbidding = potentials_of(encoded, 3, forbidden=np.eye(3, dtype=bool))
    assert FastRisk(Pseudolikelihood(), forbidding, batches).path == "general"
    some = [replace(batch, labels=np.where(np.arange(len(batch.labels)), batch.labels, -1)) for batch in batches]
    risk = FastRisk(Pseudolikelihood(), potentials, some)
    with pytest.raises(ValueError, match="needs a label for every node"):
        risk.value_grad(np.zeros(potentials.n_coef))
    encoded, batches = batches_of(3, edges=False)
    assert FastRisk(Likelihood(GibbsSampler()), potentials_of(encoded, 3), batches).path == "general"


def test_some_batches():
    encoded, batches = batches_of(2)
    potentials = potentials_of(encoded, 2)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    risk = FastRisk(Pseudolikelihood(), potentials, batches)
    parts = [risk.value_grad(coef, [i]) for i in range(len(batches))]
    assert_allclose(sum(part.value for part in parts), risk.value_grad(coef).value)
