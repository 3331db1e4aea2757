"""Results of a fitted field for whole examples, compared with enumeration."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import trw_crf
from factor_examples import factor_examples
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import TRWCRF, DRFClassifier, Example
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.inference import MPLP, AutoMarginals, BruteForce
from sklearn_crf.models import at_most_one, score
from sklearn_crf.potentials import PairwiseTables, Segments


def chains(n=12, seed=0, n_classes=3, longest=5):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = rng.integers(n_classes, size=int(rng.integers(1, longest)))
        X.append(sp.csr_matrix(np.eye(n_classes)[labels] + rng.normal(size=(len(labels), n_classes))))
        y.append(labels)
    return X, y


def model_of(fitted, x):
    potentials = FittedField.of(fitted).potentials()
    edges = x.graph if isinstance(x, Example) else [[t, t + 1] for t in range(x.shape[0] - 1)]
    features = x.node_features if isinstance(x, Example) else x.toarray()
    return potentials.model(FittedField.of(fitted).weights(potentials), Example(features, edges))


def cycles(n=6):
    rng = np.random.default_rng(0)
    X = [Example(rng.normal(size=(3, 2)), [[0, 1], [1, 2], [0, 2]]) for _ in range(n)]
    return X, [rng.integers(2, size=3) for _ in X]


def test_log_likelihood_of_chains_is_exact():
    X, y = chains()
    fitted = trw_crf().fit(X, y)
    found = fitted.log_likelihood(X, y)
    expected = []
    for x, labels in zip(X, y, strict=True):
        model = model_of(fitted, x)
        expected.append(score(model, labels) - BruteForce().marginals(model).log_z)
    assert found.bound == "exact"
    assert_allclose(found.values, expected)
    assert_allclose(fitted.loss_curve_[-1], -found.values.sum() + 0.5 * _squares(fitted), rtol=1e-6)


def _squares(fitted):
    return (fitted.coef_**2).sum() + (fitted.edge_coef_**2).sum()


def test_missing_labels_are_summed_out():
    X, y = chains()
    fitted = trw_crf(missing_label=-1).fit(X, y)
    partial = [np.where(np.arange(len(labels)) == 0, -1, labels) for labels in y]
    found = fitted.log_likelihood(X, partial)
    completed = [np.logaddexp.reduce(_over_first(fitted, x, labels)) for x, labels in zip(X, y, strict=True)]
    assert_allclose(found.values, completed, atol=1e-9)


def _over_first(fitted, x, labels):
    return [fitted.log_likelihood([x], [np.r_[k, labels[1:]]]).values[0] for k in range(3)]


def test_relaxations_bound_the_likelihood_from_below():
    X, y = cycles()
    fitted = trw_crf(entropy="trivial", inner_tol=1e-9).fit(X, y)
    found = fitted.log_likelihood(X, y)
    exact = []
    for x, labels in zip(X, y, strict=True):
        model = model_of(fitted, x)
        exact.append(score(model, labels) - BruteForce().marginals(model).log_z)
    assert found.bound == "lower"
    assert np.all(found.values <= np.array(exact) + 1e-9)


def test_probabilities_of_edges():
    ways = ("likelihood", "loopy", "exact", "relaxation", "mean_field", "pseudolikelihood")
    for learning, data in (("likelihood", chains()), *((way, cycles()) for way in ways)):
        fitted = trw_crf(learning=learning).fit(*data)
        edges, nodes = fitted.predict_edge_proba(data[0]), fitted.predict_proba(data[0])
        for x, pairs, single in zip(data[0], edges, nodes, strict=True):
            ends = (
                x.edges
                if isinstance(x, Example)
                else np.stack((np.arange(x.shape[0] - 1), 1 + np.arange(x.shape[0] - 1)), 1)
            )
            assert pairs.shape == (len(ends), *[len(fitted.classes_)] * 2)
            assert_allclose(pairs.sum(axis=2), single[ends[:, 0]], atol=1e-3)
            assert_allclose(pairs.sum(axis=1), single[ends[:, 1]], atol=1e-3)


def test_probabilities_of_edges_are_the_exact_ones_by_default():
    X, y = cycles()
    fitted = trw_crf().fit(X, y)
    for x, pairs in zip(X, fitted.predict_edge_proba(X), strict=True):
        model = model_of(fitted, x)
        labelings = np.array(list(product(range(len(fitted.classes_)), repeat=model.n_nodes)))
        probability = np.exp([score(model, labels) - BruteForce().marginals(model).log_z for labels in labelings])
        for (a, b), found in zip(x.edges, pairs, strict=True):
            expected = np.zeros(found.shape)
            np.add.at(expected, (labelings[:, a], labelings[:, b]), probability)
            assert_allclose(found, expected, atol=1e-6)


def test_decisions_of_fields_with_factors():
    X, y = factor_examples(n=4, fixed=True)
    fitted = trw_crf(edge_features="constant").fit(X, y)
    labelings, decisions = fitted.predict(X, inference="map"), fitted.decision_function(X, inference="map")
    for model, labels, found in zip(fitted.models(X), labelings, decisions, strict=True):
        changed = [[np.r_[labels[:s], k, labels[s + 1 :]] for k in range(3)] for s in range(len(labels))]
        expected = np.array([[score(model, each) for each in row] for row in changed])
        assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-9)
        assert_array_equal(found.argmax(axis=1), labels)


def test_topk_are_the_best_labelings():
    X, y = chains()
    names = np.array(["a", "b", "c"])
    fitted = trw_crf(inference="map").fit(X, [names[labels] for labels in y])
    labels, scores = fitted.predict_topk(X, k=4)
    best = fitted.predict(X)
    for x, found, values, first in zip(X, labels, scores, best, strict=True):
        model = model_of(fitted, x)
        every = sorted((score(model, np.array(t)) for t in product(range(3), repeat=x.shape[0])), reverse=True)
        assert_allclose(values, every[:4])
        assert_array_equal(found[0], first)
        assert found.shape == (len(values), x.shape[0])
    with pytest.raises(ValueError, match="without cycles"):
        trw_crf(learning="exact").fit(*cycles()).predict_topk(cycles()[0])


@pytest.mark.parametrize("estimator", [TRWCRF, DRFClassifier])
@pytest.mark.parametrize("inference", ["mpm", "map"])
def test_evidence_is_kept_and_conditions_the_rest(estimator, inference):
    X, y = chains(n=30)
    X = [x.toarray() for x in X]
    fitted = estimator(inference=inference, missing_label=-1, pairwise="full", edge_features="constant").fit(X, y)
    known = [np.where(np.arange(len(labels)) % 2 == 0, (labels + 1) % 3, -1) for labels in y]
    predicted, proba = fitted.predict(X, evidence=known), fitted.predict_proba(X, evidence=known)
    for labels, table, given in zip(predicted, proba, known, strict=True):
        assert_array_equal(labels[given >= 0], given[given >= 0])
        assert_allclose(table[given >= 0], np.eye(3)[given[given >= 0]], atol=1e-12)
    nothing = [np.full(len(labels), -1) for labels in y]
    for a, b in zip(fitted.predict(X, evidence=nothing), fitted.predict(X), strict=True):
        assert_array_equal(a, b)
    changed = [(a != b)[given < 0].any() for a, b, given in zip(predicted, fitted.predict(X), known, strict=True)]
    assert any(changed)


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_forbidden_pairs_have_no_probability(weights):
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(20):
        labels = np.sort(rng.integers(3, size=4))
        X.append(sp.csr_matrix(np.eye(3)[labels] + rng.normal(size=(4, 3))))
        y.append(np.array(["a", "b", "c"])[labels])
    forbidden = [["b", "a"], ["c", "a"], ["c", "b"]]
    options = {"weights": weights, "tol": 1e-7}
    fitted = trw_crf(forbidden=forbidden, **options).fit(X, y)
    free = trw_crf(**options).fit(X, y)
    assert np.concatenate(fitted.predict_edge_proba(X))[:, [1, 2, 2], [0, 0, 1]].max() == 0
    assert np.concatenate(free.predict_edge_proba(X))[:, [1, 2, 2], [0, 0, 1]].max() > 0
    # Pairs that never occur need not be learned.
    assert fitted.loss_curve_[-1] < free.loss_curve_[-1]
    best = trw_crf(forbidden=forbidden, inference="map", **options).fit(X, y).predict(X)
    assert all(np.all(labels[:-1] <= labels[1:]) for labels in best)
    with pytest.raises(ValueError, match=r"^Sequence 3 contains b followed by a, which forbidden rules out"):
        trw_crf(forbidden=forbidden, **options).fit(X, [*y[:3], np.array(["b", "a", "c", "c"]), *y[4:]])
    with pytest.raises(ValueError, match="forbidden contains 'z'"):
        trw_crf(forbidden=[["a", "z"]]).fit(X, y)
    with pytest.raises(ValueError, match="shape"):
        trw_crf(forbidden=["a", "b"]).fit(X, y)


@pytest.mark.parametrize("rule", ["map", "mpm"])
def test_certificates_enclose_the_best_scores(rule):
    rng = np.random.default_rng(0)
    X = [Example(rng.normal(size=(4, 2)), [[0, 1], [1, 2], [2, 3], [0, 3]][: 3 + i % 2]) for i in range(8)]
    y = [rng.integers(2, size=4) for _ in X]
    model = trw_crf(C=5.0, inference=rule, learning="pseudolikelihood").fit(X, y)
    found, mplp = model.certify(X), model.certify(X, inference=MPLP())
    assert_allclose(found.gaps, found.bounds - found.scores)
    assert_allclose(found.scores, -model.energy(X, model.predict(X)))
    potentials = FittedField.of(model).potentials()
    for x, bound, reached, other in zip(X, found.bounds, found.scores, mplp.bounds, strict=True):
        best = BruteForce().map(potentials.model(FittedField.of(model).weights(potentials), x)).score
        assert reached - 1e-9 <= best <= min(bound, other) + 1e-9
    # Such small models are solved exactly: a gap remains only if predictions are not the best labels.
    if rule == "map":
        assert_allclose(found.gaps[::2], 0, atol=1e-9)
        assert found.optimal[::2].all()
    assert np.all(found.bounds <= model.certify(X, budget=0).bounds + 1e-9)
    with pytest.raises(ValueError, match=r"budget must be .* got -1"):
        model.certify(X, budget=-1)
    with pytest.raises(ValueError, match="best labelings"):
        model.certify(X, inference=AutoMarginals())


@pytest.mark.parametrize("shape", [(12,), (4, 5), (3, 3, 4)])
def test_certificates_of_rows_chains_and_images(shape):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=shape)
    X = y[..., None] + rng.normal(size=(*shape, 1))
    model = trw_crf(inference="map").fit(X, y)
    found = model.certify(X)
    assert found.gaps.shape == (len(X),)
    assert_allclose(found.scores, -model.energy(X, model.predict(X)))
    assert np.all(found.gaps >= 0)
    if len(shape) < 3:
        assert_allclose(found.gaps, 0, atol=1e-9)


def _increasing_sequences():
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(3, size=(12, 4)), axis=1)
    return rng.normal(size=(12, 4, 2)), y


def _cycles_of_two_labels():
    X, _ = cycles(12)
    return X, [np.repeat(k % 2, 3) for k in range(12)]


def _constrained_factors():
    X, y = factor_examples(12)
    X = [Example(x.node_features, x.graph, fixed_factors=[(range(x.n_nodes), at_most_one(1))]) for x in X]
    return X, [np.where(labels == 1, 0, labels) for labels in y]


DOWNWARDS = [(1, 0), (2, 0), (2, 1)]
CONSTRAINED = {
    "sequences": (_increasing_sequences, {"pairwise": PairwiseTables("full", forbidden=DOWNWARDS)}),
    "segments": (
        _increasing_sequences,
        {"pairwise": PairwiseTables("full", forbidden=DOWNWARDS, segments=Segments(3, features=["mean", "ends"]))},
    ),
    "cycles": (_cycles_of_two_labels, {"pairwise": PairwiseTables("full", forbidden=[(1, 0), (0, 1)])}),
    "factors": (_constrained_factors, {"learning": "pseudolikelihood", "classes": [0, 1, 2]}),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("inference", [None, "mpm", "trw", "bp"])
@pytest.mark.parametrize("form", CONSTRAINED)
def test_known_labels_are_as_probable_as_their_completions(form, inference):
    if form == "factors" and inference == "trw":
        pytest.skip("tree-reweighted message passing does not support factors")
    make, options = CONSTRAINED[form]
    X, y = make()
    field = TRWCRF(missing_label=-1, max_iter=5, tol=10.0, **options).fit(X, y)
    rng = np.random.default_rng(1)
    n_classes = len(field.classes_)
    partial = [np.where(rng.random(len(labels)) < 0.7, rng.integers(n_classes, size=len(labels)), -1) for labels in y]
    found = field.log_likelihood(X, partial, inference=inference)
    expected = [
        np.logaddexp.reduce([field.log_likelihood(x, [full]).values[0] for full in _completions(known, n_classes)])
        for x, known in zip(([x] if isinstance(X, list) else x[np.newaxis] for x in X), partial, strict=True)
    ]
    assert 0 < np.count_nonzero(np.isneginf(expected)) < len(y)
    # Approximate inference finds which labels are impossible, too.
    if form in ("cycles", "factors") and inference in ("trw", "bp"):
        assert_array_equal(np.isneginf(found.values), np.isneginf(expected))
    else:
        assert found.bound == "exact"
        assert_allclose(found.values, expected, atol=1e-9)


def _completions(known, n_classes):
    """Return all labelings that have the known labels."""
    return [np.array(full) for full in product(*(range(n_classes) if k < 0 else [k] for k in known))]
