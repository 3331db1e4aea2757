"""Weights of the first and the last nodes of sequences, compared with weights of two indicator features."""

import pickle
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier, Shards
from sklearn_crf.inspection import top_features
from sklearn_crf.learning import LBFGS
from sklearn_crf.potentials import PairwiseTables


def edges_of(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def with_ends(x):
    """Return features with two additional features, which are 1 at the first and at the last node."""
    ends = np.zeros((len(x), 2), dtype=x.dtype)
    ends[0, 0] = ends[-1, 1] = 1
    return np.concatenate([x, ends], axis=1)


KINDS = {
    "arrays": lambda x: x,
    "CSR matrices": sp.csr_matrix,
    "CSR arrays": sp.csr_array,
    "examples": lambda x: Example(x, edges_of(len(x))),
    "sparse examples": lambda x: Example(sp.csr_matrix(x), edges_of(len(x))),
    "nodes of two types": lambda x: Example(x, edges_of(len(x)), node_type=np.arange(len(x), dtype=np.int32) % 2),
    "sparse nodes of two types": lambda x: Example(
        sp.csr_matrix(x), edges_of(len(x)), node_type=np.arange(len(x), dtype=np.int32) % 2
    ),
}


def sequences(kind="arrays", n_classes=3, dtype=np.float64, n=25, seed=0):
    """Return sequences that begin with one label and end with another, with and without indicator features."""
    rng = np.random.default_rng(seed)
    rows, y = [], []
    for _ in range(n):
        labels = rng.integers(n_classes, size=rng.integers(1, 6))
        labels[-1] = n_classes - 1
        labels[0] = rng.choice([0, 0, 1])
        rows.append((np.eye(n_classes)[labels] * 0.5 + rng.normal(size=(len(labels), n_classes))).astype(dtype))
        y.append(labels)
    return [KINDS[kind](x) for x in rows], [KINDS[kind](with_ends(x)) for x in rows], y


def weights_of(field):
    """Return the weights of nodes of a field as a dense array."""
    coef = field.coef_.toarray() if sp.issparse(field.coef_) else field.coef_
    return coef


def assert_same_field(field, explicit, X, wide, n_classes):
    """Check that a field on X has the results of a field on X with explicit features for the ends of chains."""
    n_types = 1 if field.intercept_.ndim == 1 else len(field.intercept_)
    found, expected = (weights_of(each) for each in (field, explicit))
    if sp.issparse(field.coef_):
        shape = len(found), n_types, -1
        found, expected = (np.moveaxis(each.reshape(shape), 1, 0) for each in (found, expected))
    ends = np.moveaxis(expected[..., -2:], -1, 0)
    np.testing.assert_array_equal(found.reshape(expected[..., :-2].shape), expected[..., :-2])
    np.testing.assert_array_equal(field.boundary_coef_.reshape(ends.shape), ends)
    assert field.boundary_coef_.shape[1:] == field.intercept_.shape
    assert field.n_features_in_ == explicit.n_features_in_ - 2
    for a, b in zip(field.predict(X), explicit.predict(wide), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(field.energy(X, field.predict(X)), explicit.energy(wide, field.predict(X)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
def test_equals_explicit_features(estimator, kind, n_classes):
    X, wide, y = sequences(kind, n_classes)
    shared = {"max_iter": 4, "edge_features": "constant"}
    field = estimator(pairwise=PairwiseTables("full", boundary_weights=True), **shared).fit(X, y)
    explicit = estimator(pairwise="full", **shared).fit(wide, y)
    assert np.abs(field.boundary_coef_).max() > 0
    assert_same_field(field, explicit, X, wide, n_classes)
    assert getattr(field, "training_path_", None) == getattr(explicit, "training_path_", None)
    if hasattr(field, "predict_proba"):
        for a, b in zip(field.predict_proba(X), explicit.predict_proba(wide), strict=True):
            np.testing.assert_array_equal(a, b)
    copy = pickle.loads(pickle.dumps(field))
    np.testing.assert_array_equal(copy.boundary_coef_, field.boundary_coef_)
    assert_same_field(copy, explicit, X, wide, n_classes)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learning", ["pseudolikelihood", "piecewise", "pma", "smoothed_margin", "contrastive"])
def test_equals_explicit_features_in_every_learning(learning):
    X, wide, y = sequences()
    field = TRWCRF(learning=learning, max_iter=5, pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    assert_same_field(field, TRWCRF(learning=learning, max_iter=5).fit(wide, y), X, wide, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_array_of_sequences_and_weights_that_are_seen(dtype):
    X, wide, y = sequences(dtype=dtype, n=200)
    chosen = [i for i, labels in enumerate(y) if len(labels) == 4]
    X, wide, y = (np.array([part[i] for i in chosen]) for part in (X, wide, y))
    tables = PairwiseTables(boundary_weights=True)
    assert_same_field(TRWCRF(pairwise=tables).fit(X, y), TRWCRF().fit(wide, y), X, wide, 3)
    X, wide = ([sp.csr_matrix(x * (x > 0.5)) for x in part] for part in (X, wide))
    field, explicit = TRWCRF(pairwise=tables, weights="seen"), TRWCRF(weights="seen")
    assert_same_field(field.fit(X, list(y)), explicit.fit(wide, list(y)), X, wide, 3)
    # No sequence begins with label 2, or ends with label 0 or 1.
    assert (field.boundary_coef_ == 0).tolist() == [[False, False, True], [True, True, False]]


def test_log_likelihood_by_enumeration():
    X, _, y = sequences(n=12)
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    first, last = field.boundary_coef_
    table = field.edge_coef_.reshape(3, 3)
    found = field.log_likelihood(X, y).values
    best = field.predict(X, inference="map")
    for x, labels, value, decoded in zip(X, y, found, best, strict=True):
        unary = x @ field.coef_.T + field.intercept_
        scores = {
            states: sum(unary[t, a] for t, a in enumerate(states))
            + sum(table[a, b] for a, b in pairwise(states))
            + first[states[0]]
            + last[states[-1]]
            for states in product(range(3), repeat=len(x))
        }
        log_z = np.logaddexp.reduce(list(scores.values()))
        assert value == pytest.approx(scores[tuple(labels.tolist())] - log_z, abs=1e-10)
        assert tuple(decoded.tolist()) == max(scores, key=scores.__getitem__)


def test_edges_depend_on_the_features_of_x_alone():
    X, _, y = sequences()
    field = TRWCRF(edge_features="difference", pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    assert field.edge_coef_.shape[1] == 4
    seen = set()

    def features(x_tail, x_head):
        seen.update((x_tail.shape[1], x_head.shape[1]))
        return np.ones((len(x_tail), 1))

    field.set_params(edge_features=features).fit(X, y).predict(X)
    assert seen == {3}


@pytest.mark.parametrize("kind", ["arrays", "CSR matrices"])
def test_shards_and_warm_starts(kind):
    X, _, y = sequences(kind, n=30)
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True), solver=LBFGS(), tol=1e-10, max_iter=500)
    whole = clone(field).fit(X, y)
    sharded = clone(field).fit(Shards.from_arrays([(X[:15], y[:15]), (X[15:], y[15:])]))
    np.testing.assert_allclose(sharded.boundary_coef_, whole.boundary_coef_, atol=1e-5)
    warm = clone(field).set_params(warm_start=True).fit(X, y).set_params(max_iter=1).fit(X, y)
    np.testing.assert_allclose(warm.boundary_coef_, whole.boundary_coef_, atol=1e-5)
    np.testing.assert_allclose(warm.coef_, whole.coef_, atol=1e-5)


def test_partial_fit():
    X, wide, y = sequences()
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True), random_state=0)
    explicit = TRWCRF(random_state=0)
    for _ in range(2):
        field.partial_fit(X, y, classes=[0, 1, 2])
        explicit.partial_fit(wide, y, classes=[0, 1, 2])
    assert_same_field(field, explicit, X, wide, 3)


def test_empty_sequences_and_a_later_fit_without():
    X, _, y = sequences()
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    assert [len(labels) for labels in field.predict([X[0], np.zeros((0, 3))])] == [len(X[0]), 0]
    former = field.boundary_coef_.copy()
    # Prediction depends on what was fitted, not on a parameter that was changed since.
    expected = field.predict_proba(X[:1])[0]
    np.testing.assert_array_equal(field.set_params(pairwise="full").predict_proba(X[:1])[0], expected)
    np.testing.assert_array_equal(field.boundary_coef_, former)
    assert field.fit(X, y).boundary_coef_ is None


def test_rows_are_first_and_last():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.integers(3, size=50)
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    np.testing.assert_allclose(field.boundary_coef_[0], field.boundary_coef_[1])
    np.testing.assert_allclose(field.predict_proba(X), TRWCRF().fit(X, y).predict_proba(X), atol=1e-3)


def test_names_of_weights():
    X, _, y = sequences()
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True)).fit(X, y)
    found = {(each.label, each.feature): each.weight for each in top_features(field, None)}
    for k, label in product(range(2), range(3)):
        assert found[label, ("first node", "last node")[k]] == field.boundary_coef_[k, label]


def test_lattices_without_ends():
    X, y = np.zeros((2, 3, 3, 1)), np.tile([0, 1, 1], (2, 3, 1))
    field = TRWCRF(pairwise=PairwiseTables(boundary_weights=True))
    with pytest.raises(ValueError, match="boundary_weights=True needs sequences, but X holds lattices of 2 axes"):
        field.fit(X, y)
    operators = [Example(sp.linalg.aslinearoperator(np.eye(3)), edges_of(3))] * 2
    with pytest.raises(ValueError, match="node_features in X is a linear operator"):
        field.fit(operators, [np.arange(3)] * 2)
