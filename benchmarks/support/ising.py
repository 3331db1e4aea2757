"""Random Ising models."""

import numpy as np

from sklearn_crf.models import PairwiseModel


def ising(graph, rng):
    """Return an Ising model with states -1 and 1, and fields and couplings drawn uniformly from (-1, 1)."""
    spin = np.array([-1.0, 1.0])
    unary = rng.uniform(-1, 1, graph.n_nodes)[:, None] * spin
    return PairwiseModel(graph, unary, np.outer(spin, spin)[None], edge_weight=rng.uniform(-1, 1, graph.n_edges))
