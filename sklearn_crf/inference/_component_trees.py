"""Trees of a graph of several components from those of each component."""

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.spanning_trees import SpanningTrees, covering_trees

# Shares of trees that differ by less are the same but for rounding.
_DIGITS = 12


def connected_parts(graph):
    """The components of a graph that have edges, each as a graph.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    list of (ndarray of int, Graph)
        The numbers of a component's edges in the whole graph, and the component: nodes and edges in the same order.
    """
    of_node = graph.component
    by_node = np.argsort(of_node, kind="stable")
    n_nodes = np.bincount(of_node, minlength=graph.n_components)
    place = np.empty(graph.n_nodes, dtype=np.int32)
    place[by_node] = np.arange(graph.n_nodes) - np.repeat(np.cumsum(n_nodes) - n_nodes, n_nodes)
    of_edge = of_node[graph.edges[:, 0]]
    by_edge = np.argsort(of_edge, kind="stable")
    numbers = np.split(by_edge, np.cumsum(np.bincount(of_edge, minlength=graph.n_components))[:-1])
    return [
        (edges, Graph._trusted(int(n), place[graph.edges[edges]]))
        for edges, n in zip(numbers, n_nodes, strict=True)
        if len(edges)
    ]


def trees_of_components(graph, rule, random_state):
    """Covering trees of each component that has edges, as if it were alone.

    Parameters
    ----------
    graph : Graph
    rule : str or int
    random_state : int

    Returns
    -------
    list of (ndarray of int, SpanningTrees)
        The numbers of a component's edges in the whole graph, and its trees, each once.
    """
    return [
        (edges, covering_trees(part, rule, random_state=random_state).merged())
        for edges, part in connected_parts(graph)
    ]


def side_by_side(graph, parts):
    """Distributions over the spanning trees of all components as one over the spanning forests of their graph.

    Every edge keeps its probability. A forest takes from each component the tree at one and the same quantile, so that
    there are few: where all components have two equally likely trees, two.

    Parameters
    ----------
    graph : Graph
    parts : list of (ndarray of int, SpanningTrees)
        Of each component with edges, the numbers of its edges in the graph, and its trees.

    Returns
    -------
    SpanningTrees
    """
    ends = [np.cumsum(trees.weights)[:-1] for _, trees in parts]
    cuts = np.concatenate([[0.0, 1.0], *ends])
    cuts = cuts[np.unique(np.round(cuts, _DIGITS), return_index=True)[1]]
    middles = (cuts[:-1] + cuts[1:]) / 2
    chosen = np.zeros((len(middles), graph.n_edges), dtype=bool)
    for (edges, trees), end in zip(parts, ends, strict=True):
        chosen[:, edges] = trees.trees[np.searchsorted(end, middles)]
    return SpanningTrees._trusted(graph, chosen, np.diff(cuts))
