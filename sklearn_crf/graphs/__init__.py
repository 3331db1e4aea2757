"""Graphs: topology, lattices, and distributions over spanning trees."""

from sklearn_crf.graphs._covering import ComponentTrees, covering_probabilities, covering_trees, snakes
from sklearn_crf.graphs._graph import (
    Graph,
    check_graph,
    disjoint_union,
    from_adjacency,
    lattice,
    lattice_offsets,
    lists_edges,
    trusted_graph,
)
from sklearn_crf.graphs._probabilities import (
    chain_probabilities,
    check_edge_probabilities,
    effective_resistances,
    follows_chains,
    uniform_edge_probabilities,
)
from sklearn_crf.graphs._rectangles import Rectangle, tiles_of
from sklearn_crf.graphs._trees import SpanningTrees, minimum_spanning_tree

__all__ = [
    "Graph",
    "from_adjacency",
    "lattice",
    "lattice_offsets",
]
