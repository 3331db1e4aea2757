"""DRFClassifier on graphs that it or its inference rejects: errors name the example. Also graphs without edges."""

import pickle

import numpy as np
import pytest
from built_fields import drf_classifier
from numpy.testing import assert_allclose

from sklearn_crf import Example
from sklearn_crf.inference import GraphCut


def test_the_example_that_an_inference_refuses_is_named():
    """An example whose edges prefer different labels cannot be solved by a minimum cut: the error names the example."""
    triangle, chain = [[0, 1], [1, 2], [0, 2]], [[0, 1], [1, 2]]
    y = [np.array([0, 1, 0])] * 3
    X = [Example(np.zeros((3, 1)), edges) for edges in (chain, chain, triangle)]
    model = drf_classifier(learning="pl", inference=GraphCut(), edge_features="constant").fit(X, y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=r"^one of X\[0\] to X\[1\]: model is not submodular: edge 0"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"^X\[0\]: model is not submodular: edge 0 \(nodes 0 and 1\)"):
        model.predict(X[2:])
    assert pickle.dumps(model) == before


def test_bad_examples_are_named():
    edges = [[0, 1], [1, 2]]
    good, y = Example(np.ones((3, 2)), edges, edge_features=np.ones((2, 1))), [np.array([0, 1, 0])] * 2
    for fields, message in [
        ({"node_features": np.full((3, 2), np.inf)}, r"X\[1\].node_features contains infinity"),
        ({"edge_features": np.full((2, 1), np.inf)}, r"X\[1\].edge_features contains infinity"),
        ({"edge_features": np.ones((2, 3))}, r"X\[1\] has 3 edge features, but X\[0\] has 1"),
    ]:
        parts = {"node_features": np.ones((3, 2)), "edges": edges, "edge_features": np.ones((2, 1)), **fields}
        with pytest.raises(ValueError, match=message):
            drf_classifier().fit([good, Example(**parts)], y)
    for bad in ([[0, 1], [1, 3]], [[0, -1]]):
        with pytest.raises(ValueError, match=r"edges\[\d\] is .*, but the nodes are numbered 0 to 2"):
            Example(np.ones((3, 2)), bad)


def test_examples_without_edges():
    rng = np.random.default_rng(0)
    y = [np.arange(6) % 2 for _ in range(4)]
    X = [Example(labels[:, None] + 0.1 * rng.normal(size=(6, 1)), []) for labels in y]
    rows = np.concatenate([example.node_features for example in X])
    model = drf_classifier(tol=1e-9, max_iter=2000).fit(X, y)
    assert_allclose(model.coef_, drf_classifier(tol=1e-9, max_iter=2000).fit(rows, np.concatenate(y)).coef_, rtol=1e-5)
    for learning in ("spa", "pl", "cd"):
        assert drf_classifier(learning=learning).fit(X, y).score(X, y) == 1
