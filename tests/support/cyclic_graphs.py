"""Random graphs with cycles, for tests of message passing."""

import numpy as np

from sklearn_crf import Example


def draw_cyclic_graphs(n_classes, n=12, seed=0, dtype=np.float64, scale=1.0):
    """Return graphs with cycles, some of several components, with a node of many edges, and labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        n_nodes = int(rng.integers(12, 30))
        labels = rng.integers(n_classes, size=n_nodes)
        pairs = np.argwhere(np.triu(rng.random((n_nodes, n_nodes)) < 2 / n_nodes, 1))
        star = np.column_stack((np.zeros(11, dtype=int), np.arange(1, 12)))
        edges = np.unique(np.concatenate((pairs, star, [[1, 2]])), axis=0)
        features = rng.normal(size=(n_nodes, 3)) + labels[:, None]
        edge_features = scale * rng.uniform(0.2, 2, (len(edges), 2))
        X.append(Example(features.astype(dtype), edges, edge_features.astype(dtype)))
        y.append(labels)
    return X, y
