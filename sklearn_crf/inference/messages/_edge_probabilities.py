"""Probabilities of edges to be in a spanning tree: by name, from trees, or from an array."""

from functools import partial

import numpy as np

from sklearn_crf.graphs import (
    SpanningTrees,
    check_edge_probabilities,
    compute_chain_probabilities,
    compute_covering_probabilities,
    compute_uniform_edge_probabilities,
    effective_resistances,
    snakes,
)

_EDGE_PROBABILITIES = {
    "auto": effective_resistances,
    "uniform": compute_uniform_edge_probabilities,
    "chains": compute_chain_probabilities,
    "covering": compute_covering_probabilities,
    "snakes": lambda graph: snakes(graph).edge_probabilities,
}


def choose_edge_probabilities(graph, choice):
    """Return valid and positive edge probabilities, (E,) float64, for a name, trees or an array."""
    if isinstance(choice, str):
        if choice not in _EDGE_PROBABILITIES:
            raise ValueError(
                'edge_probabilities must be "auto", "uniform", "chains", "covering", "snakes" or an array, got '
                f"{choice!r}."
            )
        # Cache the result, because training runs inference on a graph hundreds of times.
        # A factorisation takes longer than a sweep of messages.
        return graph.keep(("edge probabilities", choice), partial(_EDGE_PROBABILITIES[choice], graph))
    if isinstance(choice, SpanningTrees):
        if not np.array_equal(choice.graph.edges, graph.edges):
            raise ValueError("edge_probabilities must be spanning trees of the model's graph.")
        probabilities = choice.edge_probabilities
    else:
        probabilities = np.asarray(choice, dtype=np.float64)
        check_edge_probabilities(graph, probabilities)
    if not np.all(probabilities > 0):
        e = int(np.argmin(probabilities))
        raise ValueError(f"edge_probabilities[{e}] is {probabilities[e]:g}: every edge needs a positive probability.")
    return probabilities
