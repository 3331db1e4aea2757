"""Spanning trees of a graph, chosen by the options of an algorithm."""

import numpy as np

from sklearn_crf.graphs import SpanningTrees, build_trusted_graph, covering_trees, snakes

# Cumulative weights of trees that are equal to this number of digits count as equal.
_DIGITS = 12


def list_connected_parts(graph):
    """Return each component that has edges, as the indices of its edges and as a graph."""
    # returns pairs: the indices of a component's edges in the whole graph, and the component as a graph
    # Nodes and edges of the component keep their order.
    if not graph.n_edges:
        return []
    of_node = graph.component
    by_node = np.argsort(of_node, kind="stable")
    n_nodes = np.bincount(of_node, minlength=graph.n_components)
    place = np.empty(graph.n_nodes, dtype=np.int32)
    place[by_node] = np.arange(graph.n_nodes) - np.repeat(np.cumsum(n_nodes) - n_nodes, n_nodes)
    of_edge = of_node[graph.edges[:, 0]]
    by_edge = np.argsort(of_edge, kind="stable")
    numbers = np.split(by_edge, np.cumsum(np.bincount(of_edge, minlength=graph.n_components))[:-1])
    return [
        (edges, build_trusted_graph(int(n), place[graph.edges[edges]]))
        for edges, n in zip(numbers, n_nodes, strict=True)
        if len(edges)
    ]


def choose_component_trees(graph, rule, random_state):
    """Return covering trees for each component with edges, computed separately for each component."""
    # returns: pairs of the indices of a component's edges in the whole graph, and its distinct trees
    return [
        (edges, covering_trees(part, rule, random_state=random_state).merged())
        for edges, part in list_connected_parts(graph)
    ]


def combine_component_trees(graph, parts):
    """Combine distributions over the spanning trees of each component into one distribution over spanning forests.

    Every edge keeps its probability. A forest combines, from each component, the tree at a common quantile. This gives
    few forests: two if all components have two equally likely trees.
    """
    # parts: for each component with edges, the indices of its edges in the graph, and its trees
    ends = [np.cumsum(trees.weights)[:-1] for _, trees in parts]
    cuts = np.concatenate([[0.0, 1.0], *ends])
    cuts = cuts[np.unique(np.round(cuts, _DIGITS), return_index=True)[1]]
    middles = (cuts[:-1] + cuts[1:]) / 2
    chosen = np.zeros((len(middles), graph.n_edges), dtype=bool)
    for (edges, trees), end in zip(parts, ends, strict=True):
        chosen[:, edges] = trees.trees[np.searchsorted(end, middles)]
    return SpanningTrees.trusted(graph, chosen, np.diff(cuts))


def choose_spanning_trees(graph, trees, random_state):
    """Return a distribution over distinct trees that cover every edge."""
    # trees: name of a rule, number of trees, SpanningTrees, or a list with the edge indices of each tree
    # random_state: determines the choice among trees that cover the edges equally well
    if isinstance(trees, SpanningTrees):
        if not np.array_equal(trees.graph.edges, graph.edges):
            raise ValueError("trees must be spanning trees of the model's graph.")
    elif isinstance(trees, (list, tuple)):
        trees = SpanningTrees.from_edge_lists(graph, trees)
    else:
        return _build_trees_by_rule(graph, trees, random_state)
    return _check_covering(trees.merged())


def _build_trees_by_rule(graph, rule, random_state):
    if isinstance(rule, bool) or not isinstance(rule, (str, int, np.integer)):
        raise ValueError(
            'trees must be "covering", "uniform", "snakes", a number of trees, a SpanningTrees object, or a list '
            f"with the edge indices of each tree, got {rule!r}."
        )
    if rule == "snakes":
        return snakes(graph)
    rule = rule if isinstance(rule, str) else int(rule)
    if not isinstance(random_state, int):
        return covering_trees(graph, rule, random_state=random_state).merged()

    def make():
        if isinstance(rule, str) and graph.n_components > 1:
            # Training packs small examples together, so a component's trees must not depend on the rest of the graph.
            found = combine_component_trees(graph, choose_component_trees(graph, rule, random_state)).merged()
        else:
            found = covering_trees(graph, rule, random_state=random_state).merged()
        # Cache arrays only, because results cached with the graph must not refer to the graph.
        return found.trees, found.weights

    # Cached, because training requests the trees of each graph hundreds of times.
    return SpanningTrees.trusted(graph, *graph.keep(("spanning trees", rule, random_state), make))


def _check_covering(trees):
    missing = np.flatnonzero(~trees.trees.any(axis=0))
    if len(missing):
        raise ValueError(f"trees leave {len(missing)} edges uncovered, of which the first is edge {missing[0]}.")
    return trees
