"""Few spanning trees that cover all edges, evenly if asked to."""

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf.spanning_trees._trees import SpanningTrees, cheapest_tree


def covering_trees(graph, rule="minimal", *, min_ratio=0.9, tol=0.1, max_trees=1000, random_state=0):
    r"""Spanning trees that cover all edges, by the greedy algorithm COVERINGTREES.

    Each further tree is the spanning tree whose edges were in the fewest trees so far. That is the conditional
    gradient (Frank-Wolfe) method with steps 1 / (k + 1) for

    .. math::
        \min_\nu \; \| \nu - u \|^2 \quad \text{over the spanning tree polytope},

    where :math:`u` has equal entries. On uniformly dense graphs (grids, complete and most regular graphs) :math:`\nu`
    becomes uniform. Others have edges whose probability cannot be lowered, a bridge's being one: there it approaches
    the distribution that is as even as possible.

    Parameters
    ----------
    graph : Graph
        Disconnected graphs get spanning forests.
    rule : {"minimal", "uniform"} or int, default="minimal"
        When to stop: as soon as every edge is covered; when the edge probabilities are even; or at this number of
        trees.
    min_ratio : float, default=0.9
        For ``"uniform"``: stop when the smallest edge probability is at least this share of the largest.
    tol : float, default=0.1
        For ``"uniform"``: stop also when the edge probabilities are within this share of their mean (root mean square
        over edges) of the most even ones possible, as certified by the Frank-Wolfe gap. This ends the search where
        the ratio cannot be reached.
    max_trees : int, default=1000
        For ``"uniform"``: stop at this number of trees at the latest.
    random_state : int, RandomState instance or None, default=0
        Picks among trees that cover equally well.

    Returns
    -------
    SpanningTrees
        With equal weights; a tree may come several times.

    Raises
    ------
    ValueError
        If the given number of trees leaves an edge uncovered.

    References
    ----------
    J. Jancsary, "Approximate discriminative training of graphical models", 2012, Figure 20.
    """
    is_number = isinstance(rule, (int, np.integer)) and not isinstance(rule, bool)
    if not (is_number and rule >= 1) and rule not in ("minimal", "uniform"):
        raise ValueError(f'rule must be "minimal", "uniform" or a number of trees, got {rule!r}.')
    rng = check_random_state(random_state)
    trees, counts = [], np.zeros(graph.n_edges, dtype=np.int64)
    while True:
        tree = cheapest_tree(graph, counts, rng.random_sample(graph.n_edges))
        if rule == "uniform" and trees and _is_even(counts, tree, len(trees), min_ratio, tol, max_trees):
            break
        trees.append(tree)
        counts += tree
        if len(trees) == rule or (rule == "minimal" and counts.all()):
            break
    if not counts.all():
        raise ValueError(
            f"{len(trees)} trees leave {np.sum(counts == 0)} of {graph.n_edges} edges uncovered: "
            f'rule="minimal" covers all with few.'
        )
    return SpanningTrees._trusted(graph, np.array(trees))


def _is_even(counts, next_tree, n_trees, min_ratio, tol, max_trees):
    """Whether counts / n_trees are even enough, or as even as they can be; every edge must be covered."""
    if not counts.all():
        return False
    if not len(counts) or n_trees >= max_trees or counts.min() >= min_ratio * counts.max():
        return True
    # gap = <gradient, v - next tree> bounds |v - v*|^2 from above, since the objective is |v - u|^2 and the sums
    # of v and of a tree are the same.
    gap = 2 * np.dot(counts, counts / n_trees - next_tree) / n_trees
    return gap <= (tol * counts.mean() / n_trees) ** 2 * len(counts)
