"""Predictions of many small graphs with cycles, made in joint calls."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import TRWCRF, Example
from sklearn_crf.potentials import PairwiseTables


def small_graphs(n_graphs=30, n_classes=3, n_features=20, seed=0):
    """Return random graphs, most of them with cycles, and labels that depend on the features."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(1).normal(size=(n_classes, n_features))
    X, y = [], []
    for i in range(n_graphs):
        n_nodes = int(rng.integers(5, 40))
        pairs = np.stack(np.triu_indices(n_nodes, 1), axis=1)
        path = np.stack((np.arange(n_nodes - 1), np.arange(1, n_nodes)), axis=1)
        more = pairs[np.sort(rng.permutation(len(pairs))[: 2 * n_nodes])]
        edges = path if i in (7, 8) else np.unique(np.concatenate((path, more)), axis=0)
        y.append(rng.integers(0, n_classes, n_nodes))
        X.append(Example(centres[y[-1]] + 3 * rng.normal(size=(n_nodes, n_features)), edges))
    return X, y


@pytest.mark.parametrize("options", [{}, {"pairwise": "potts"}, {"edge_features": "difference"}])
def test_small_graphs_are_predicted_together_with_the_bits_of_each_alone(options):
    X, y = small_graphs()
    crf = TRWCRF(max_iter=5, learning="relaxation", n_jobs=2, **options).fit(X[:20], y[:20])
    evidence = [np.where(np.arange(len(labels)) % 9 == 0, labels, -1) for labels in y]
    crf.set_params(missing_label=-1)
    for name in ("predict", "predict_proba"):
        for inference in (None, "bp"):
            method = getattr(crf, name)
            found = method(X, evidence, inference=inference)
            for i in range(len(X)):
                assert_array_equal(found[i], method(X[i : i + 1], evidence[i : i + 1], inference=inference)[0])
    right = sum(np.sum(crf.predict([x])[0] == labels) for x, labels in zip(X, y, strict=True))
    assert crf.score(X, y) == right / sum(map(len, y))


def test_errors_of_small_graphs_name_the_example():
    X, y = small_graphs(20)
    tables = PairwiseTables(forbidden=[(0, 1), (1, 0)])
    y = [np.where(labels == 1, 2, labels) for labels in y]
    crf = TRWCRF(max_iter=2, learning="relaxation", pairwise=tables, classes=[0, 1, 2], missing_label=-1).fit(X, y)
    evidence = [np.full(len(labels), -1) for labels in y]
    evidence[11][[0, 1]] = 0, 1
    with pytest.raises(ValueError, match=r"^X\[11\]: .*infeasible"):
        crf.predict(X, evidence)
    evidence[11][[0, 1]] = 0, 2
    assert crf.predict(X, evidence)[11][1] == 2
