"""The edge appearance probabilities that a user asked for, made or checked once for a graph."""

from weakref import WeakKeyDictionary

import numpy as np

from sklearn_crf.inference._component_trees import trees_of_components
from sklearn_crf.inference._tree_choice import spanning_trees_of
from sklearn_crf.spanning_trees import (
    SpanningTrees,
    chain_probabilities,
    check_edge_probabilities,
    effective_resistances,
    uniform_edge_probabilities,
)


def _covering(graph):
    """Those of the trees that :class:`TightenBound` chooses by itself."""
    if graph.n_components == 1:
        return spanning_trees_of(graph, "minimal", 0).edge_probabilities
    # The same to the last bit as for each component alone.
    probabilities = np.empty(graph.n_edges)
    for edges, trees in trees_of_components(graph, "minimal", 0):
        probabilities[edges] = trees.edge_probabilities
    return probabilities


_MAKERS = {
    "auto": effective_resistances,
    "uniform": uniform_edge_probabilities,
    "chains": chain_probabilities,
    "covering": _covering,
}

# Training runs inference on the same graphs hundreds of times, and a factorisation takes longer than a sweep.
_made = {name: WeakKeyDictionary() for name in _MAKERS}


def edge_probabilities_of(graph, choice):
    """Valid edge probabilities, all positive.

    Parameters
    ----------
    graph : Graph
    choice : {"auto", "uniform", "chains", "covering"}, SpanningTrees or array-like of shape (E,)

    Returns
    -------
    ndarray of shape (E,), float64

    Raises
    ------
    ValueError
        If the choice is unknown, or the probabilities belong to no distribution over spanning trees or leave an edge
        out.
    """
    if isinstance(choice, str):
        if choice not in _MAKERS:
            raise ValueError(
                f'edge_probabilities must be "auto", "uniform", "chains", "covering" or an array, got {choice!r}.'
            )
        if graph not in _made[choice]:
            _made[choice][graph] = _MAKERS[choice](graph)
        return _made[choice][graph]
    if isinstance(choice, SpanningTrees):
        if not np.array_equal(choice.graph.edges, graph.edges):
            raise ValueError("edge_probabilities must be of spanning trees of the model's graph.")
        probabilities = choice.edge_probabilities
    else:
        probabilities = np.asarray(choice, dtype=np.float64)
        check_edge_probabilities(graph, probabilities)
    if not np.all(probabilities > 0):
        e = int(np.argmin(probabilities))
        raise ValueError(f"edge_probabilities[{e}] is {probabilities[e]:g}: every edge must be in a tree.")
    return probabilities
