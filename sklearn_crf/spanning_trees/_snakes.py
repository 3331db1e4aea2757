"""Spanning trees of lattices that run to and fro along the axes."""

import numpy as np

from sklearn_crf.spanning_trees._trees import SpanningTrees


def snakes(graph):
    """The snakes of a lattice: paths through all nodes that run to and fro, one pair for each axis.

    A snake follows every line along its axis and passes from a line to the next at an end of it; the second of a pair
    is the mirror image. In two dimensions these are the four snakes of 4SNAKES: edges inside have probability 1/2,
    those on the boundary 3/4. In d dimensions there are 2 d, and edges inside have probability 1/d.

    Parameters
    ----------
    graph : Graph
        Made by :func:`~sklearn_crf.graphs.lattice` with ``connectivity=1``, of any shape.

    Returns
    -------
    SpanningTrees
        With equal weights. One tree if the lattice is a chain.

    Raises
    ------
    ValueError
        If the graph is no lattice, or has edges between other than axis neighbours.

    References
    ----------
    J. Jancsary, "Approximate discriminative training of graphical models", 2012, Figure 21.
    """
    if graph.shape is None:
        raise ValueError("graph must be a lattice for snakes; covering_trees takes any graph.")
    index = np.arange(graph.n_nodes).reshape(graph.shape)
    axes = [axis for axis, length in enumerate(graph.shape) if length > 1]
    number = _edge_numbers(graph)
    trees = []
    for k, axis in enumerate(axes):
        # The last axis runs fastest.
        order = [*axes[k + 1 :], *axes[:k], axis]
        for mirrored in (False, True) if len(axes) > 1 else (False,):
            nodes = np.flip(index, axis) if mirrored else index
            trees.append(_path_edges(_to_and_fro(nodes.squeeze().transpose(_places(order, axes))), number, graph))
    trees = np.array(trees) if trees else np.zeros((1, graph.n_edges), dtype=bool)
    if not trees.any(axis=0).all():
        e = int(np.argmin(trees.any(axis=0)))
        raise ValueError(
            f"edges[{e}] joins nodes {graph.edges[e].tolist()}, which are no axis neighbours: snakes need a lattice of "
            f"connectivity=1; covering_trees takes any graph."
        )
    return SpanningTrees._trusted(graph, trees)


def _places(order, axes):
    return [axes.index(axis) for axis in order]


def _to_and_fro(nodes):
    """All nodes in one path in which neighbours differ by one step along one axis (a reflected Gray code)."""
    if nodes.ndim == 0:
        return nodes.reshape(1)
    if nodes.ndim == 1:
        return nodes
    parts = [_to_and_fro(part) for part in nodes]
    return np.concatenate([part[::-1] if k % 2 else part for k, part in enumerate(parts)])


def _edge_numbers(graph):
    """Keys of the edges, ascending, and the edge of each."""
    low, high = np.sort(graph.edges, axis=1).T.astype(np.int64)
    key = low * graph.n_nodes + high
    order = np.argsort(key)
    return key[order], order


def _path_edges(path, number, graph):
    keys, edges = number
    ends = np.sort(np.stack((path[:-1], path[1:]), axis=1), axis=1).astype(np.int64)
    wanted = ends[:, 0] * graph.n_nodes + ends[:, 1]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    missing = keys[place] != wanted if len(keys) else np.ones(len(wanted), dtype=bool)
    if missing.any():
        a, b = ends[np.argmax(missing)].tolist()
        raise ValueError(f"graph has no edge between the axis neighbours {a} and {b}: snakes need connectivity=1.")
    tree = np.zeros(graph.n_edges, dtype=bool)
    tree[edges[place]] = True
    return tree
