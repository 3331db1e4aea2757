"""Random labels and costs for tests of max-margin objectives."""

import numpy as np


def random_labels(model, rng):
    return rng.integers(model.n_columns, size=model.graph.n_nodes).astype(np.int32)


def random_cost(n_classes, rng):
    cost = rng.random((n_classes, n_classes))
    np.fill_diagonal(cost, 0)
    return cost
