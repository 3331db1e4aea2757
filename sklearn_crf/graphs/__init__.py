"""Graphs: topology, lattices, and distributions over spanning trees."""

from sklearn_crf.graphs._covering import ComponentTrees, compute_covering_probabilities, covering_trees, snakes
from sklearn_crf.graphs._graph import (
    Graph,
    build_disjoint_union,
    build_trusted_graph,
    check_graph,
    from_adjacency,
    lattice,
    lattice_offsets,
    lists_edges,
)
from sklearn_crf.graphs._probabilities import (
    check_edge_probabilities,
    compute_chain_probabilities,
    compute_uniform_edge_probabilities,
    effective_resistances,
    follows_chains,
)
from sklearn_crf.graphs._rectangles import Rectangle, cut_tiles
from sklearn_crf.graphs._trees import SpanningTrees, minimum_spanning_tree

__all__ = [
    "Graph",
    "from_adjacency",
    "lattice",
]
