"""Fast labels of chains that share a table, compared with labels of their models."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.learning import Relaxation, _prediction_paths
from sklearn_crf.learning._prediction_paths import ChainLabels
from sklearn_crf.objectives.fast_paths import general_path_only
from sklearn_crf.potentials import PairwiseTables


def chains(n_classes, seed, dtype=np.float64, n=40, scale=1.0):
    """Return sequences in which half of the values are zero, and labels that depend on the values."""
    rng = np.random.default_rng(seed)
    X = [np.maximum(rng.normal(scale=scale, size=(t, 4)), 0).astype(dtype) for t in rng.integers(1, 9, n)]
    weights = np.random.default_rng(0).normal(size=(4, n_classes))
    return X, [np.array(list("abcde"))[np.argmax(x @ weights + rng.normal(size=n_classes), axis=1)] for x in X]


@pytest.fixture
def without_models(monkeypatch):
    """Collect the kernel's results for each batch, None if the kernel declined the batch."""
    found = []

    def counted(path, n_jobs):
        found.extend(parts := find(path, n_jobs))
        return parts

    find = ChainLabels.found
    monkeypatch.setattr(ChainLabels, "found", counted)
    return found


def by_models(method, X):
    with general_path_only():
        return method(X)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize(
    "field",
    [
        TRWCRF(),
        TRWCRF(inference="map", fit_intercept=False, pairwise="potts"),
        TRWCRF(inference="viterbi"),
        M3NClassifier(max_iter=20),
    ],
    ids=["marginals", "map", "viterbi", "margin"],
)
def test_labels_are_those_of_models(field, kind, dtype, n_classes, without_models):
    X, y = chains(n_classes, 1, dtype)
    if kind is not np.asarray and isinstance(field, TRWCRF):
        field = clone(field).set_params(weights="seen")
    field.fit([kind(x) for x in X], y)
    Z = [kind(x) for x in chains(n_classes, 2, dtype)[0]]
    found = field.predict(Z)
    assert [len(labels) for labels in without_models] == [sum(len(z) for z in found)]
    for one, other in zip(found, by_models(field.predict, Z), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_marginals_and_decisions_of_least_cost(kind, dtype, without_models):
    X, y = chains(3, 1, dtype)
    X = [kind(x) for x in X]
    field = TRWCRF().fit(X, y)
    cost = [[0, 1, 9], [1, 0, 9], [1, 1, 0]]
    costly = DRFClassifier(cost=cost, edge_features="constant", inference="tree").fit(X, y)
    for method in (field.predict_proba, costly.predict):
        found = method(X)
        assert len(without_models) == 1
        for one, other in zip(found, by_models(method, X), strict=True):
            assert_array_equal(one, other)
            assert one.dtype == other.dtype
        without_models.clear()


def test_ties_are_broken_as_in_models(without_models):
    X, y = chains(5, 1)
    field = TRWCRF(inference="map", max_iter=1).fit(X, y)
    field.coef_[...], field.intercept_[...], field.edge_coef_[...] = 0, 0, 0
    field.edge_coef_[0, 0, 3] = 1.0
    for one, other in zip(field.predict(X), by_models(field.predict, X), strict=True):
        assert_array_equal(one, other)
    assert len(without_models) == 1


@pytest.mark.parametrize("inference", ["auto", "map"])
def test_batches_whose_scores_range_too_widely_have_models(inference, without_models):
    X, y = chains(3, 1)
    field = TRWCRF(inference=inference).fit(X, y)
    field.coef_ *= 1e4
    found = field.predict(X)
    assert [labels is None for labels in without_models] == [inference == "auto"]
    for one, other in zip(found, by_models(field.predict, X), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(
    "field",
    [
        TRWCRF(edge_features="difference"),
        TRWCRF(learning=Relaxation(temperature=0.5)),
        TRWCRF(inference="bp"),
    ],
    ids=["edge features", "temperature", "other inference"],
)
def test_what_is_not_one_table_has_models(field, without_models):
    X, y = chains(3, 1)
    field.fit(X, y).predict(X)
    assert not any(part is not None for part in without_models)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_forbidden_pairs(method, without_models):
    X, y = chains(3, 1)
    y = [np.where((labels == "b") & (np.roll(labels, 1) == "a"), "c", labels) for labels in y]
    predicted = getattr(TRWCRF(pairwise=PairwiseTables(forbidden=[["a", "b"]])).fit(X, y), method)
    found = predicted(X)
    assert len(without_models) == 1
    for one, other in zip(found, by_models(predicted, X), strict=True):
        assert_array_equal(one, other)


def test_labels_that_are_known_and_costs_are_minded(without_models):
    X, y = chains(3, 1)
    field = TRWCRF().fit(X, y)
    known = [np.array(["c", *[None] * (len(x) - 1)], dtype=object) for x in X]
    assert all(labels[0] == "c" for labels in field.predict(X, known))
    assert not any(part is not None for part in without_models)


def test_bad_scores_are_named():
    X, y = chains(3, 1)
    field = TRWCRF().fit(X, y)
    field.coef_ *= 1e200
    with pytest.raises(ValueError, match="in magnitude at most"):
        field.predict(X)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("field", [TRWCRF(), TRWCRF(inference="map"), DRFClassifier()])
def test_rows_are_chains_of_one_node(field, kind, without_models):
    X, y = (np.concatenate(part) for part in chains(3, 1))
    field.fit(kind(X), y)
    for method in (field.predict, field.predict_proba):
        found = method(kind(X))
        assert [len(labels) for labels in without_models] == [len(X)]
        assert_array_equal(found, by_models(method, kind(X)))
        without_models.clear()
        if field.inference == "map":
            return


def test_examples_without_edges_are_rows_where_they_have_one_node(without_models):
    X, y = chains(3, 1)
    graphs = [Example(x, np.empty((0, 2))) for x in X]
    field = TRWCRF().fit(graphs, y)
    for one, other in zip(field.predict(graphs), by_models(field.predict, graphs), strict=True):
        assert_array_equal(one, other)
    assert not any(part is not None for part in without_models)


@pytest.mark.parametrize("inference", [None, "map"])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "sample"])
def test_an_example_without_a_labeling_is_named(method, inference):
    X, y = chains(3, 0)
    changes = [(a, b) for a in "abc" for b in "abc" if a != b]
    y = [np.full(len(labels), labels[0]) for labels in y]
    field = TRWCRF(pairwise=PairwiseTables("full", forbidden=changes)).fit(X, y)
    contradictory = next(i for i, labels in enumerate(y) if i and len(labels) == 3)
    evidence = [[None] * len(labels) for labels in y]
    evidence[contradictory][0], evidence[contradictory][2] = "a", "b"
    evidence = [np.array(labels, dtype=object) for labels in evidence]
    where = r"(around node [012] forbid all of its states|every labeling of nodes 0, 1, 2 is forbidden)"
    with pytest.raises(ValueError, match=rf"^X\[{contradictory}\]: .*{where}"):
        getattr(field, method)(X, evidence=evidence, inference=inference)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_any_number_of_threads_gives_the_same_bits(kind, method):
    X, y = chains(5, 1, n=2000)
    field = TRWCRF(max_iter=5, tol=10.0).fit([kind(x) for x in X[:40]], y[:40])
    first = None
    for n_jobs in (1, 2, 3, 16):
        found = np.concatenate(getattr(field.set_params(n_jobs=n_jobs), method)([kind(x) for x in X]))
        first = found if first is None else first
        assert_array_equal(found, first)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_chains_are_read_where_they_are(dtype, without_models):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20, 4)).astype(dtype)
    y = (X[..., 0] > 0).astype(int) + (X[..., 1] > 1)
    field = TRWCRF(max_iter=20, tol=1.0).fit(X, y)
    found = field.predict(X)
    assert sum(map(len, without_models)) == y.size
    assert_array_equal(found, by_models(field.predict, X))
    assert_array_equal(found, np.stack(field.predict(list(X))))


def test_marginals_of_costly_decisions_are_made_in_lots(monkeypatch):
    X, y = chains(3, 1, n=3000)
    costly = TRWCRF(cost=[[0, 1, 9], [1, 0, 9], [1, 1, 0]], max_iter=5, tol=10.0).fit(X[:40], y[:40])
    found = costly.predict(X)
    monkeypatch.setattr(_prediction_paths, "_MOST_KEPT", 1)
    for one, other in zip(found, costly.predict(X), strict=True):
        assert_array_equal(one, other)
