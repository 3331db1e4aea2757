"""Margins of partly labelled examples: training alternates between completing labels and learning weights."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example, M3NClassifier, Shards
from sklearn_crf.learning import MaxMargin, RelaxedMargin

LEARNINGS = ["max_margin", "relaxed_margin", "smoothed_margin", "reparameterized_margin", "joint_margin"]
N_CLASSES = 3


def chains(n=20, length=6, seed=0, noise=0.7):
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.integers(N_CLASSES, size=(n, length // 2)), 2, axis=1)
    return np.eye(N_CLASSES)[y] + noise * rng.normal(size=(*y.shape, N_CLASSES)), y


def with_missing(y, share, seed=0):
    return np.where(np.random.default_rng(seed).random(y.shape) < share, -1, y)


def m3n(**options):
    given = {"missing_label": -1, "edge_features": "constant", "random_state": 0, "tol": 1e-4, "max_iter": 2000}
    return M3NClassifier(**given | options)


@pytest.mark.parametrize("learning", [*LEARNINGS, "dual_margin"])
def test_isolated_nodes_without_labels_are_not_there(learning):
    X, y = chains(n=6)
    edges = np.array([[0, 1], [1, 2], [3, 4]])
    rng = np.random.default_rng(1)
    # Node 5 is isolated, nodes 3 and 4 form a component, and the last example has no label.
    part = [Example(x[:3], edges[:2]) for x in X]
    whole = [Example(x, edges) for x in X] + [Example(rng.normal(size=(4, N_CLASSES)), [[0, 1]])]
    labels = [np.append(own[:3], [-1, -1, -1]) for own in y] + [np.full(4, -1)]
    tol = 0.05 if learning == "dual_margin" else 1e-4
    one = m3n(learning=learning, tol=tol).fit(part, [own[:3] for own in y])
    other = m3n(learning=learning, tol=tol, classes=[0, 1, 2]).fit(whole, labels)
    assert_allclose(other.coef_, one.coef_, atol=1e-10)
    assert_allclose(other.edge_coef_, one.edge_coef_, atol=1e-10)
    assert not hasattr(one, "n_rounds_")
    assert other.n_rounds_ == 1


def test_sentences_without_labels_are_not_there():
    X, y = chains()
    X = [sp.csr_matrix(np.maximum(x, 0)) for x in X]
    labels = [np.full(6, -1) if i % 4 == 0 else own for i, own in enumerate(y)]
    kept = [i for i in range(len(X)) if i % 4]
    one = m3n(solver="bmrm").fit([X[i] for i in kept], [y[i] for i in kept])
    other = m3n(solver="bmrm").fit(X, labels)
    # Features of sentences that are left out have zero weights.
    assert_allclose(other.loss_curve_.min(), one.loss_curve_.min(), rtol=1e-3)
    assert_allclose(other.coef_, one.coef_, atol=2e-2)


def latent_objective(field, X, y):
    """Compute half the squared weights plus the sum of latent hinges, by enumeration."""
    pairs = field.edge_coef_.ravel()
    value = 0.5 * (np.sum(field.coef_**2) + np.sum(field.intercept_**2) + np.sum(pairs**2))
    for model, own in zip(field.models(X), y, strict=True):
        labelings = np.array(list(product(range(N_CLASSES), repeat=len(own))))
        nodes = np.arange(len(own))
        scores = model.unary[nodes, labelings].sum(axis=1)
        tables = model.edge_tables()
        for e, (i, j) in enumerate(model.graph.edges):
            scores = scores + tables[e][labelings[:, i], labelings[:, j]]
        known = own >= 0
        errors = (labelings != own)[:, known].sum(axis=1)
        value += np.max(scores + errors) - np.max(scores[errors == 0])
    return value


@pytest.mark.parametrize("learning", [MaxMargin, RelaxedMargin])
@pytest.mark.parametrize("solver", ["bmrm", "cutting_plane", "one_slack"])
def test_the_objective_is_that_of_latent_margins(learning, solver):
    X, y = chains(n=8, length=4)
    y = with_missing(y, 0.4)
    y[0, :2] = 0, 1
    options = {"solver": solver, "classes": [0, 1, 2], "fit_intercept": False, "pairwise": "full"}
    field = m3n(learning=learning(), **options).fit(X, y)
    assert field.converged_
    value = latent_objective(field, X, y)
    # The completed problem is an upper bound, and equal where the completed labels are best.
    assert value <= field.loss_curve_.min() + 1e-6
    assert_allclose(value, field.loss_curve_.min(), rtol=1e-3)
    # Every round lowers the objective.
    with pytest.warns(ConvergenceWarning, match="increase max_rounds"):
        first = m3n(learning=learning(max_rounds=1), **options).fit(X, y)
    assert (first.n_rounds_, first.converged_) == (1, False)
    assert value <= latent_objective(first, X, y) + 1e-3


def test_labels_are_learned_as_well_as_from_all_of_them():
    X, y = chains(n=60, seed=2)
    X_test, y_test = chains(n=100, seed=3)
    field = m3n(tol=1e-2).fit(X, with_missing(y, 0.3))
    alone = m3n(tol=1e-2).fit(X[:, ::2], with_missing(y, 0.3)[:, ::2])
    assert field.converged_
    assert field.score(X_test, y_test) > m3n(tol=1e-2).fit(X, y).score(X_test, y_test) - 0.02
    assert field.score(X_test, y_test) > alone.score(X_test, y_test)


@pytest.mark.parametrize(
    "options", [{"learning": MaxMargin(rescaling="slack")}, {"learning": MaxMargin(cost="weighted")}]
)
def test_other_costs(options):
    X, y = chains(n=10, length=4)
    field = m3n(tol=1e-2, solver="bmrm", **options).fit(X, with_missing(y, 0.3))
    assert field.n_rounds_ >= 2
    assert field.score(X, y) > 0.7


def test_weights_of_nodes_and_examples_count_labelled_nodes():
    X, y = chains(n=8, length=4)
    y = with_missing(y, 0.3)
    times = np.array([1, 2, 1, 3, 1, 1, 2, 1])
    options = {"solver": "bmrm", "tol": 1e-6, "pairwise": "full"}
    weighted = m3n(**options).fit(X, y, sample_weight=times)
    copied = m3n(**options).fit(np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
    assert_allclose(weighted.coef_, copied.coef_, atol=2e-3)
    node_weight = np.where(y < 0, 7.0, 1.0)
    assert_allclose(m3n(**options).fit(X, y, node_weight=node_weight).coef_, m3n(**options).fit(X, y).coef_, atol=1e-10)


def test_shards_and_threads():
    X, y = chains(n=12)
    y = with_missing(y, 0.3)
    here = m3n(solver="bmrm").fit(X, y)
    shards = Shards.from_arrays([(X[:5], y[:5]), (X[5:], y[5:])])
    there = m3n(solver="bmrm", classes=[0, 1, 2]).fit(shards)
    assert_allclose(there.loss_curve_.min(), here.loss_curve_.min(), rtol=1e-3)
    assert there.n_rounds_ == here.n_rounds_
    assert_array_equal(m3n(solver="bmrm", n_jobs=2).fit(X, y).coef_, here.coef_)


def test_one_pass_over_parts():
    X, y = chains(n=40)
    field = m3n()
    for part in np.array_split(np.arange(40), 4):
        field.partial_fit(X[part], with_missing(y, 0.3)[part], classes=[0, 1, 2])
    assert field.score(X, y) > 0.6
