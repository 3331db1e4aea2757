"""Graphs cut down to their labelled nodes, for learners that take no others."""

import numpy as np

from sklearn_crf import Example


def labelled_part(x, labels):
    """The graph of the nodes whose label is not negative, with the edges between them, and their labels."""
    keep = labels >= 0
    inside = keep[x.edges].all(axis=1)
    edges = (np.cumsum(keep) - 1)[x.edges[inside]]
    edge_features = None if x.edge_features is None else x.edge_features[inside]
    return Example(x.node_features[keep], edges, edge_features), labels[keep]
