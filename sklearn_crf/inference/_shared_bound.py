"""The tree-reweighted bound at one way of sharing the scores out among trees, for training that chooses it."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference._base import Marginals
from sklearn_crf.inference._node_shares import NodeShares
from sklearn_crf.inference._tree_choice import spanning_trees_of


class SharedBound(NamedTuple):
    """A bound on the log-partition and its derivatives.

    Attributes
    ----------
    marginals : Marginals
        Means over the trees, which are the derivatives by the model; ``log_z`` is the bound.
    gradient : ndarray of shape (size,)
        Derivative by the shares.
    """

    marginals: Marginals
    gradient: np.ndarray


def shares_of(model):
    """Number of unknowns of :func:`shared_bound` for a model.

    Parameters
    ----------
    model : PairwiseModel

    Returns
    -------
    int
    """
    return spanning_trees_of(model.graph, "minimal", 0).n_trees * model.unary.size


def shared_bound(model, shares, mapped=map):
    r"""The bound :math:`\sum_T \rho(T) \log Z(\theta(T))` for given scores of trees.

    The trees are those of :class:`TightenBound`. For any shares it is an upper bound, convex in model and shares
    together, whose minimum over the shares is that of :class:`TightenBound`.

    Parameters
    ----------
    model : PairwiseModel
    shares : ndarray of shape (size,)
        What nodes have in each tree beyond an even share, times the square root of the tree's probability; what does
        not average to zero over trees is taken out.
    mapped : callable, default=map
        As :func:`~sklearn_crf._threads.ordered_map` gives it.

    Returns
    -------
    SharedBound

    Notes
    -----
    Source: Jancsary 2012, CRF recipe 4.
    """
    scores = NodeShares(model, spanning_trees_of(model.graph, "minimal", 0), mapped)
    at = scores.marginals(scores.project(shares))
    pairs = scores.means.over_edges(at.tables)
    weight = np.ones((len(pairs), 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    tables = np.zeros(model.tables.shape)
    np.add.at(tables, model.edge_type, weight[:, :, None, None] * pairs[:, None])
    log_z_terms = scores.weights @ at.log_z_terms
    unary = scores.means.over_nodes(at.unary).astype(model.dtype)
    marginals = Marginals(unary, tables, float(log_z_terms.sum()), log_z_terms, "upper")
    # A projection is its own adjoint.
    return SharedBound(marginals, scores.project((at.unary * scores.scale[:, None, None]).ravel()))
