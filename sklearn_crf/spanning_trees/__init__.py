"""Spanning trees of a graph, distributions over them, and the edge probabilities that these give."""

from sklearn_crf.spanning_trees._chains import chain_probabilities, follows_chains
from sklearn_crf.spanning_trees._covering import covering_trees
from sklearn_crf.spanning_trees._probabilities import (
    check_edge_probabilities,
    effective_resistances,
    uniform_edge_probabilities,
)
from sklearn_crf.spanning_trees._snakes import snakes
from sklearn_crf.spanning_trees._trees import SpanningTrees, minimum_spanning_tree

__all__ = [
    "SpanningTrees",
    "chain_probabilities",
    "check_edge_probabilities",
    "covering_trees",
    "effective_resistances",
    "follows_chains",
    "minimum_spanning_tree",
    "snakes",
    "uniform_edge_probabilities",
]
