"""Graphs restricted to their labelled nodes, for learners that do not support missing labels."""

import numpy as np

from sklearn_crf import Example


def labelled_part(x, labels):
    """Return the subgraph of nodes whose label is not negative, and their labels."""
    keep = labels >= 0
    inside = keep[x.edges].all(axis=1)
    edges = (np.cumsum(keep) - 1)[x.edges[inside]]
    edge_features = None if x.edge_features is None else x.edge_features[inside]
    return Example(x.node_features[keep], edges, edge_features), labels[keep]
