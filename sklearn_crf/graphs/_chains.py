"""Edge probabilities of chains that follow the order of the nodes."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf.graphs._graph import Graph


def chain_probabilities(graph: Graph) -> np.ndarray:
    r"""Even probabilities of the edges under a covering by chains that ascend through the nodes.

    .. math::
        \nu_{st} = 1 / \max(n^+_s, n^-_t), \qquad s < t,

    :math:`n^+_s` being the number of neighbours after node s and :math:`n^-_t` that of neighbours before node t, so
    that no node passes on or receives more than one. On forests they are one, those of the forest itself.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    ndarray of shape (E,), float64

    References
    ----------
    T. Meltzer, A. Globerson, Y. Weiss. Convergent message passing algorithms: a unifying view. UAI 2009.

    Examples
    --------
    >>> from sklearn_crf.graphs import chain_probabilities, lattice
    >>> chain_probabilities(lattice((3, 3)))
    array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    if graph.is_forest:
        return np.ones(graph.n_edges)
    earlier, later = np.sort(graph.edges, axis=1).T
    n_after = np.bincount(earlier, minlength=graph.n_nodes)
    n_before = np.bincount(later, minlength=graph.n_nodes)
    return 1.0 / np.maximum(n_after[earlier], n_before[later])


def follows_chains(graph: Graph, edge_probabilities: ArrayLike, *, tol: float = 1e-9) -> bool:
    r"""Whether edge probabilities belong to chains that ascend through the nodes, with every node in one on average.

    .. math::
        \sum_{t > s} \nu_{st} \le 1, \qquad \sum_{t < s} \nu_{st} \le 1 \qquad \text{for all nodes } s.

    Parameters
    ----------
    graph : Graph
    edge_probabilities : array-like of shape (E,)
        Not negative.
    tol : float, default=1e-9
        By how much a sum may pass one.

    Returns
    -------
    bool

    Examples
    --------
    >>> from sklearn_crf.graphs import chain_probabilities, follows_chains, lattice
    >>> grid = lattice((3, 3))
    >>> follows_chains(grid, chain_probabilities(grid))
    True
    """
    ends = np.sort(graph.edges, axis=1).T
    sums = [np.bincount(nodes, weights=edge_probabilities, minlength=graph.n_nodes) for nodes in ends]
    return bool(np.max(sums, initial=0) <= 1 + tol)
