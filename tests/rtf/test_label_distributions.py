"""Distributions over labelings of tree fields: pairs, log-likelihoods, best labelings, samples."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.rtf import FieldSolver

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

# Scores stay so small that no labeling is certain.
QUICK = {"max_depth": 0, "max_iter": 5, "random_state": 0, "solver": FieldSolver(ridge=100.0)}


def trained(loss="multinomial", n_classes=3, **options):
    rng = np.random.default_rng(1)
    y = np.kron(rng.integers(n_classes, size=(4, 3, 3)), np.ones((3, 3), dtype=int))
    X = y[..., None] + 0.8 * rng.normal(size=(*y.shape, 1))
    options = (QUICK if loss in ("multinomial", "logistic") else {"max_depth": 0, "max_iter": 5}) | options
    return RegressionTreeFieldClassifier(loss, **options).fit(X, y), X[:, :2, :2], y[:, :2, :2]


@pytest.mark.parametrize(("loss", "n_classes"), [("multinomial", 3), ("logistic", 2)])
def test_probabilities_of_all_labelings_sum_to_one(loss, n_classes):
    field, X, _ = trained(loss, n_classes)
    labelings = np.array(list(product(range(n_classes), repeat=4))).reshape(-1, 2, 2)
    found = field.log_likelihood(np.repeat(X[:1], len(labelings), axis=0), labelings)
    assert found.bound == "exact"
    assert_allclose(np.exp(found.values).sum(), 1.0, rtol=1e-6)
    order = np.argsort(-found.values, kind="stable")[:7]
    labels, scores = field.predict_topk(X[:1], 7)
    assert_allclose(scores[0], found.values[order], rtol=1e-6)
    assert_array_equal(labels[0], labelings[order])
    assert_array_equal(labels[0][0], field.predict(X[:1])[0])


def test_labels_that_are_missing_are_summed_out_and_unknown_ones_impossible():
    field, X, y = trained(missing_label=-1)
    part = y.copy()
    part[:, 0, 1] = -1
    proba = field.predict_proba(X)
    own = np.take_along_axis(np.log(proba), y[..., None], axis=3)[..., 0]
    assert_allclose(field.log_likelihood(X, y).values, own.sum(axis=(1, 2)), rtol=1e-6)
    assert_allclose(field.log_likelihood(X, part).values, own.sum(axis=(1, 2)) - own[:, 0, 1], rtol=1e-6)
    part[1, 1, 1] = 7
    assert np.isneginf(field.log_likelihood(X, part).values).tolist() == [False, True, False, False]


def test_pairs_have_the_probabilities_of_their_pixels():
    field, X, y = trained(missing_label=-1)
    evidence = np.full(y.shape, -1)
    evidence[:, 1, 0] = 2
    for known in (None, evidence):
        pairs, proba = field.predict_edge_proba(X, known), field.predict_proba(X, known)
        edges = field.models(X)[1].graph.edges
        assert pairs[1].shape == (len(edges), 3, 3)
        of_pixels = proba[1].reshape(4, 3)
        assert_allclose(pairs[1].sum(axis=2), of_pixels[edges[:, 0]], rtol=1e-6)
        assert_allclose(pairs[1].sum(axis=1), of_pixels[edges[:, 1]], rtol=1e-6)
    assert np.all(field.predict_topk(X, 3, evidence)[0][2][:, 1, 0] == 2)


def test_samples_have_the_probabilities_of_pixels():
    field, X, y = trained(missing_label=-1)
    drawn = field.sample(X, 4000, random_state=0)
    assert drawn.shape == (4000, *y.shape)
    share = np.mean(drawn[..., None] == np.arange(3), axis=0)
    # Tolerance: five standard deviations of a sampled frequency.
    assert_allclose(share, field.predict_proba(X), atol=5 * np.sqrt(0.25 / 4000))
    assert_array_equal(field.sample(list(X), 3, random_state=1)[2], field.sample(X, 3, random_state=1)[:, 2])
    evidence = np.where(np.arange(2) == 0, y, -1)
    assert np.all(field.sample(X, 20, random_state=0, evidence=evidence)[..., 0] == y[..., 0])


@pytest.mark.parametrize("encoding", ["orthonormal", "ordinal"])
def test_samples_of_likelihoods_are_labels_of_values_that_are_drawn(encoding):
    field, X, y = trained("pseudolikelihood", encoding=encoding, missing_label=-1)
    drawn = field.sample(X, 500, random_state=0)
    assert drawn.shape == (500, *y.shape)
    assert set(np.unique(drawn)) == {0, 1, 2}
    # Neighbours are equal more often than X alone explains.
    off = drawn - drawn.mean(axis=0)
    assert np.mean(off[:, :, 0, 0] * off[:, :, 0, 1]) > 0.02
    evidence = np.where(np.arange(2) == 0, y, -1)
    assert np.all(field.sample(X, 20, random_state=0, evidence=evidence)[..., 0] == y[..., 0])


def test_rows_are_examples_of_one_pixel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    field = RegressionTreeFieldClassifier(**QUICK).fit(X, y)
    log_proba = field.predict_log_proba(X)
    assert_allclose(field.log_likelihood(X, y).values, log_proba[np.arange(60), y])
    labels, scores = field.predict_topk(X, 5)
    assert_allclose(np.array(list(scores)), -np.sort(-log_proba, axis=1), rtol=1e-6)
    assert_array_equal([own[0] for own in labels], field.predict(X))
    assert field.sample(X, 3, random_state=0).shape == (3, 60)
    assert [own.shape for own in field.predict_edge_proba(X)] == [(0, 2, 2)] * 60


def test_what_has_no_distribution_has_no_such_method():
    field, _, _ = trained("mse")
    for name in ("sample", "log_likelihood", "predict_topk", "predict_edge_proba"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(field, name)
    assert hasattr(trained("pseudolikelihood")[0], "sample")
