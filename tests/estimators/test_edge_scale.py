"""The scale of edges after pseudolikelihood training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array

from sklearn_crf import TRWCRF, DRFClassifier, Example, Shards
from sklearn_crf.graphs import lattice
from sklearn_crf.learning import PseudolikelihoodTraining, _pseudolikelihood


def smooth_images(n_classes, noise, seed=0, n_images=6, side=24, first_class=0.0):
    rng = np.random.default_rng(seed)
    fields = np.stack(
        [[gaussian_filter(rng.normal(size=(side, side)), 3) for _ in range(n_images)] for _ in range(n_classes)], -1
    )
    y = (fields / fields.std() + first_class * np.eye(n_classes)[0]).argmax(axis=-1)
    return np.eye(n_classes)[y] + noise * rng.normal(size=(*y.shape, n_classes)), y


@pytest.mark.parametrize("inference", ["auto", "map"])
@pytest.mark.parametrize(("n_classes", "noise", "first_class"), [(4, 1.5, 0.0), (2, 1.0, 1.5)])
def test_smooth_images_are_predicted_better_than_nodes_alone(n_classes, noise, first_class, inference):
    X, y = smooth_images(n_classes, noise, first_class=first_class)
    X_new, y_new = smooth_images(n_classes, noise, seed=1, first_class=first_class)

    def score(edge_scale):
        rule = PseudolikelihoodTraining(edge_scale=edge_scale)
        field = DRFClassifier(learning=rule, inference=inference, class_weight="balanced").fit(X, y)
        return np.mean([np.mean((field.predict(X_new) == y_new)[y_new == k]) for k in range(n_classes)])

    assert score("auto") > max(score(0.0), score(1.0)) + 0.05


def test_fixed_scales_are_points_on_a_line():
    X, y = smooth_images(2, 1.0, n_images=2, side=12)
    fields = {
        scale: TRWCRF(learning=PseudolikelihoodTraining(edge_scale=scale), tol=1e-8, max_iter=2000).fit(X, y)
        for scale in (0.0, 0.25, 1.0)
    }
    assert not fields[0.0].edge_coef_.any()
    for name in ("coef_", "intercept_", "edge_coef_"):
        ends = [getattr(fields[scale], name) for scale in (0.0, 1.0)]
        assert_allclose(getattr(fields[0.25], name), 0.75 * ends[0] + 0.25 * ends[1], atol=1e-6)


def test_chains_of_the_model_keep_the_optimum():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((100, 20)) < 0.3, axis=1) % 2
    X = y[..., np.newaxis] + rng.normal(size=(100, 20, 1))
    for name in ("coef_", "edge_coef_"):
        found = [
            getattr(TRWCRF(learning=rule).fit(X, y), name) for rule in ("pl", PseudolikelihoodTraining(edge_scale=1))
        ]
        assert_array_equal(*found)


def test_shards_and_weights_choose_the_same_scale():
    X, y = smooth_images(3, 1.5, side=16)
    weight = np.array([2.0, 1.0, 0.0, 1.0, 3.0, 1.0])
    copied = np.repeat(np.arange(len(X)), weight.astype(int))
    field = DRFClassifier(learning="pl", tol=1e-7, max_iter=2000)
    weighted = field.fit(X, y, weight).edge_coef_
    copies = field.fit(X[copied], y[copied]).edge_coef_
    shards = Shards.from_arrays([(X[k : k + 2], y[k : k + 2], weight[k : k + 2]) for k in (0, 2, 4)])
    sharded = field.fit(shards).edge_coef_
    plain = DRFClassifier(learning=PseudolikelihoodTraining(edge_scale=1), tol=1e-7, max_iter=2000).fit(X, y, weight)
    assert np.abs(weighted).max() < 0.75 * np.abs(plain.edge_coef_).max()
    assert_allclose(copies, weighted, atol=1e-5)
    assert_allclose(sharded, weighted, atol=1e-5)


def test_bad_scales_are_named():
    X, y = smooth_images(2, 1.0, n_images=2, side=6)
    for scale in (-0.1, 1.5, "large"):
        with pytest.raises(ValueError, match="edge_scale"):
            TRWCRF(learning=PseudolikelihoodTraining(edge_scale=scale)).fit(X, y)


def test_a_large_image_chooses_the_scale_of_its_middle(monkeypatch):
    X, y = smooth_images(3, 1.5, n_images=1, side=40)
    plain = DRFClassifier(learning=PseudolikelihoodTraining(edge_scale=1)).fit(X, y)
    monkeypatch.setattr(_pseudolikelihood, "_NODES_TO_PREDICT", 400)
    field = DRFClassifier(learning="pl").fit(X, y)
    ratio = field.edge_coef_ / plain.edge_coef_
    assert_allclose(ratio, ratio.flat[0])
    assert ratio.flat[0] in (0.5, 0.25)
    X_new, y_new = smooth_images(3, 1.5, seed=1, side=40)
    assert field.score(X_new, y_new) > plain.score(X_new, y_new)


@pytest.mark.parametrize("kind", ["images", "sparse graphs", "chains"])
def test_the_scale_is_chosen_by_the_same_nodes_in_any_order_and_shards(monkeypatch, kind):
    X, y = smooth_images(3, 1.5, n_images=12, side=8)
    if kind != "images":
        X, y = list(X.reshape(12, 64, -1)), list(y.reshape(12, 64))
        edges = lattice((8, 8)).edges if kind == "sparse graphs" else [[k, k + 1] for k in range(63)]
        X = [Example(csr_array(x) if kind == "sparse graphs" else x, edges) for x in X]
    weight = np.arange(12) % 3 + 1.0
    copied = np.repeat(np.arange(12), weight.astype(int))
    losses = []
    monkeypatch.setattr(_pseudolikelihood, "_NODES_TO_PREDICT", 200)
    monkeypatch.setattr(_pseudolikelihood, "_halve_while_lower", lambda loss: losses.append(loss(0.5)) or 1.0)
    field = DRFClassifier(learning="pl", tol=1e-7, max_iter=2000)
    field.fit(X, y, weight)
    field.fit(X[::-1], y[::-1], weight[::-1])
    field.fit([X[i] for i in copied], [y[i] for i in copied])
    field.fit(Shards.from_arrays([(X[k : k + 4], y[k : k + 4], weight[k : k + 4]) for k in (0, 4, 8)]))
    assert_allclose(losses, losses[0], rtol=1e-6)
    monkeypatch.setattr(_pseudolikelihood, "_NODES_TO_PREDICT", 10_000)
    field.fit(X, y, weight)
    assert losses[-1] > 2 * losses[0]


@pytest.mark.parametrize("edge_scale", ["auto", 0.5])
def test_warm_starts_keep_the_weights(edge_scale):
    X, y = smooth_images(2, 1.0)
    rule = PseudolikelihoodTraining(edge_scale=edge_scale)
    field = DRFClassifier(learning=rule, warm_start=True, tol=1e-7, max_iter=2000).fit(X, y)
    once = field.edge_coef_
    assert_allclose(field.fit(X, y).fit(X, y).edge_coef_, once, rtol=1e-4)
