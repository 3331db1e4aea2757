"""Displays that summarise a fitted field or its predictions."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", reason="displays draw with matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from sklearn_crf import TRWCRF, DRFClassifier  # noqa: E402
from sklearn_crf.display import (  # noqa: E402
    MarginalEntropyDisplay,
    PairwiseTablesDisplay,
    ReliabilityDisplay,
    TopWeightsDisplay,
)
from sklearn_crf.potentials import PairwiseTables  # noqa: E402

RNG = np.random.default_rng(0)
Y = np.repeat(RNG.integers(3, size=(8, 4, 1)), 6, axis=2)
X = np.eye(3)[Y] + RNG.normal(size=(*Y.shape, 3))


@pytest.fixture(scope="module")
def field():
    tables = PairwiseTables("full", edge_types="offset")
    return DRFClassifier(learning="pl", edge_features="constant", pairwise=tables).fit(X, Y)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_tables_are_those_of_the_field(field):
    display = PairwiseTablesDisplay.from_estimator(field)
    assert len(display.axes_) == 2
    assert np.array_equal(display.tables, field.edge_coef_[:, 0].reshape(2, 3, 3))
    drawn = display.axes_[1].images[0].get_array()
    assert np.array_equal(drawn, display.tables[1])
    axes = plt.subplots(1, 2)[1]
    assert PairwiseTablesDisplay.from_estimator(field, axes=axes).axes_[0] is axes[0]
    with pytest.raises(ValueError, match="edge_feature must be between 0 and 0"):
        PairwiseTablesDisplay.from_estimator(field, edge_feature=1)
    with pytest.raises(ValueError, match="axes must hold 2 axes, got 1"):
        display.plot(axes=axes[:1])


def test_weights_are_those_of_the_field(field):
    names = ["red", "green", "blue"]
    display = TopWeightsDisplay.from_estimator(field, k=4, label=1, feature_names=names)
    expected = dict(zip(names, field.coef_[1], strict=True)) | {"intercept": field.intercept_[1]}
    drawn = dict(zip(display.names, display.weights, strict=True))
    assert drawn == {f"{name}: 1": weight for name, weight in expected.items()}
    assert np.all(np.diff(display.weights) <= 0)
    bars = display.ax_.patches
    assert [bar.get_width() for bar in bars] == display.weights.tolist()
    assert len(TopWeightsDisplay.from_estimator(field, k=2).names) == 2
    with pytest.raises(ValueError, match="label=7 is not among the classes"):
        TopWeightsDisplay.from_estimator(field, label=7)


def test_reliability(field):
    display = ReliabilityDisplay.from_estimator(field, X, Y, pos_label=1, n_bins=4)
    assert display.label == 1
    assert np.all(np.diff(display.predicted) > 0)
    line = display.ax_.lines[1].get_xydata()
    assert np.array_equal(line[:, 1], display.observed)
    perfect = ReliabilityDisplay.from_predictions([0, 1], [[1, 0], [0, 1]], classes=[0, 1])
    assert perfect.observed.tolist() == [0, 1]
    rare = np.r_[np.full(39, 0.1), 0.9]  # the last of forty probabilities is far from the others
    even = ReliabilityDisplay.from_predictions(
        np.arange(40) % 2, np.stack([1 - rare, rare], axis=1), classes=[0, 1], n_bins=4
    )
    assert np.all(even.predicted < 0.2)  # no bin contains only the last node
    with pytest.raises(ValueError, match="pos_label=7 is not among the classes"):
        ReliabilityDisplay.from_estimator(field, X, Y, pos_label=7)


def test_entropy(field):
    proba = np.array([[[1.0, 0], [0.5, 0.5]]])
    assert MarginalEntropyDisplay.from_predictions(proba).entropy.tolist() == [[0, 1]]
    assert MarginalEntropyDisplay.from_predictions(field.predict_proba(X)[0]).entropy.shape == (4, 6)
    by_estimator = MarginalEntropyDisplay.from_estimator(field, X[0])
    assert np.array_equal(
        by_estimator.entropy, MarginalEntropyDisplay.from_predictions(field.predict_proba(X)[0]).entropy
    )
    with pytest.raises(ValueError, match=r"x must be one example, \(H, W, F\) or \(T, F\), got shape"):
        MarginalEntropyDisplay.from_estimator(field, X)
    with pytest.raises(ValueError, match="proba must be one example"):
        MarginalEntropyDisplay.from_predictions(field.predict_proba(X))


def test_entropy_of_a_chain():
    chains, tags = np.eye(2)[[[0, 1, 1], [1, 0, 0]]], [[0, 1, 1], [1, 0, 0]]
    chain = TRWCRF().fit(chains, tags)
    shown = MarginalEntropyDisplay.from_estimator(chain, chains[0])
    proba = chain.predict_proba(chains)[0]
    np.testing.assert_allclose(shown.entropy, -(proba * np.log2(proba)).sum(axis=1))
    np.testing.assert_array_equal(shown.ax_.lines[0].get_ydata(), shown.entropy)


def test_pairs_of_labels_predicted_too_often():
    y_true = [np.array([["a", "a"], ["a", "b"]])]
    y_pred = [np.array([["a", "b"], ["a", "b"]])]
    shown = PairwiseTablesDisplay.from_predictions(y_true, y_pred)
    # The four edges have the true labels a-a twice and a-b twice, and the predicted labels a-a, b-b, and a-b twice.
    np.testing.assert_array_equal(shown.tables, [[[-25, 0], [0, 25]]])
    assert shown.classes.tolist() == ["a", "b"]
    one = PairwiseTablesDisplay.from_predictions([y_true[0].ravel()], [y_pred[0].ravel()], edges=[[[1, 3]]])
    np.testing.assert_array_equal(one.tables, [[[0, -100], [0, 100]]])
    with pytest.raises(ValueError, match="labels of equal shapes"):
        PairwiseTablesDisplay.from_predictions(y_true, [np.array(["a"])])
    with pytest.raises(ValueError, match="edges must hold an array of edges for each example"):
        PairwiseTablesDisplay.from_predictions([np.array(["a"])], [np.array(["a"])])
