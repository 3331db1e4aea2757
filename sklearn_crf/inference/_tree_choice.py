"""The spanning trees of a graph that an algorithm is told to use."""

from weakref import WeakKeyDictionary

import numpy as np

from sklearn_crf.inference._component_trees import side_by_side, trees_of_components
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
        if rule == "minimal" and graph.n_components > 1:
            # They must not depend on what else is in the graph: training packs small examples together.
            found = side_by_side(graph, trees_of_components(graph, rule, random_state))
        else:
            found = covering_trees(graph, rule, random_state=random_state)
        known[key] = found.merged()
    return known[key]


def _covering(trees):
    missing = np.flatnonzero(~trees.trees.any(axis=0))
    if len(missing):
        raise ValueError(f"trees leave {len(missing)} edges uncovered, the first is edge {missing[0]}.")
    return trees
