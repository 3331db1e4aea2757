"""Node marginals of many small graphs in one call, each with its own convergence and the bits that it has alone."""

from itertools import pairwise

import numpy as np

from sklearn_crf.models import PairwiseModel, models_of_parts

# Nodes of graphs that are taken together: calls are long enough for threads, and all arrays fit a core's second cache.
MOST_JOINED = 2048


def has_parts(model):
    """Whether a model is that of several graphs with cycles side by side."""
    if not isinstance(model, PairwiseModel) or len(model.graph.parts) == 1:
        return False
    return not any(part.is_forest for part in model.graph.parts)


def node_marginals_of_parts(inference, settled_nodes, model, n_threads):
    """Return ``inference.node_marginals`` of each part of a model, one below the other."""
    # settled_nodes: callable(model, n_threads), node marginals of all parts, and which nodes have to be looked at alone
    try:
        unary, unsettled = settled_nodes(model, n_threads)
    except ValueError:
        # The parts by themselves tell which of them it is.
        unary, unsettled = np.empty_like(model.unary), np.ones(len(model.unary), dtype=bool)
    if not unsettled.any():
        return unary
    bounds = pairwise(np.cumsum([0, *(part.n_nodes for part in model.graph.parts)]).tolist())
    for number, (part, ends) in enumerate(zip(models_of_parts(model), bounds, strict=True)):
        nodes = slice(*ends)
        if unsettled[nodes].any():
            try:
                unary[nodes] = inference.node_marginals(part, n_threads=n_threads)
            except ValueError as error:
                error.part = number  # type: ignore[attr-defined]  # read by whoever names the example
                raise
    return unary
