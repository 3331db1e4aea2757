"""The spanning trees of a graph that an algorithm is told to use."""

from weakref import WeakKeyDictionary

import numpy as np

from sklearn_crf.inference._component_trees import connected_parts, side_by_side
from sklearn_crf.spanning_trees import SpanningTrees, covering_trees, snakes

# Training asks for the trees of the same graphs hundreds of times.
_chosen = WeakKeyDictionary()


def spanning_trees_of(graph, trees, random_state):
    """The distribution over trees, each of them once, that covers every edge.

    Parameters
    ----------
    graph : Graph
    trees : {"minimal", "uniform", "snakes"}, int, SpanningTrees or list of array-like of int
        A rule, a number of trees, or trees themselves; a list holds the numbers of the edges of each.
    random_state : int, RandomState instance or None
        Picks among trees that cover equally well.

    Returns
    -------
    SpanningTrees

    Raises
    ------
    ValueError
        If trees are of another graph or leave an edge uncovered.
    """
    if isinstance(trees, SpanningTrees):
        if not np.array_equal(trees.graph.edges, graph.edges):
            raise ValueError("trees must be spanning trees of the model's graph.")
    elif isinstance(trees, (list, tuple)):
        trees = SpanningTrees.from_edge_lists(graph, trees)
    else:
        return _by_rule(graph, trees, random_state)
    return _covering(trees.merged())


def _by_rule(graph, rule, random_state):
    if isinstance(rule, bool) or not isinstance(rule, (str, int, np.integer)):
        raise ValueError(f'trees must be "minimal", "uniform", "snakes", a number or trees, got {rule!r}.')
    if rule == "snakes":
        return snakes(graph)
    key = rule, random_state
    if not isinstance(random_state, int):
        return covering_trees(graph, rule, random_state=random_state).merged()
    known = _chosen.setdefault(graph, {})
    if key not in known:
        choose = _by_component if rule == "minimal" and graph.n_components > 1 else covering_trees
        known[key] = choose(graph, rule, random_state=random_state).merged()
    return known[key]


def _by_component(graph, rule, random_state):
    """Trees that do not depend on what else is in the graph: training packs small examples together."""
    return side_by_side(
        graph,
        [
            (edges, covering_trees(part, rule, random_state=random_state).merged())
            for edges, part in connected_parts(graph)
        ],
    )


def _covering(trees):
    missing = np.flatnonzero(~trees.trees.any(axis=0))
    if len(missing):
        raise ValueError(f"trees leave {len(missing)} edges uncovered, the first is edge {missing[0]}.")
    return trees
