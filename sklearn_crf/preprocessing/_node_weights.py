"""Weights for nodes near label changes, and weights with which training maximises the F1 score of a class."""

from typing import Any

import numpy as np

from sklearn_crf.encoding import Example, convert_to_label_array, mask_missing_nodes
from sklearn_crf.graphs import lattice


def node_weights(
    y: Any,
    X: Any = None,
    *,
    boundary: float = 0.0,
    distance: int = 1,
    f1: float | None = None,
    positive: Any = None,
    missing_label: Any = None,
) -> Any:
    r"""Return weights of nodes for ``fit(X, y, node_weight=...)``, from the labels of the nodes.

    .. math:: \omega_s = (1 + \beta \, [s \text{ is near a boundary}])
        \cdot \begin{cases} 1 - f / 2 & y_s = \text{positive} \\ f / 2 & \text{otherwise} \end{cases}

    A node is near a boundary if a path of at most ``distance`` edges from the node crosses an edge with unequal labels.
    The second factor is 1 without ``f1``. It is based on the fact that the highest F1 score :math:`f` is reached by
    minimising the cost of errors with these weights (Parambath, Usunier, Grandvalet 2014).

    Parameters
    ----------
    y : array-like or list of array-like
        Labels, in the form of ``fit``.
    X : list of Example, optional
        Examples whose edges define the neighbours. By default, labels are on lattices, and neighbours are adjacent
        along one axis.
    boundary : float, default=0.0
        Additional weight :math:`\beta` of nodes near a boundary.
    distance : int, default=1
        Maximum distance of nodes near a boundary; 1 selects the two ends of each edge with different labels.
    f1 : float, optional
        F1 score of the class ``positive`` that you expect, between 0 and 1. Repeat with the score reached on held-out
        examples if it differs.
    positive : label, optional
        Class whose F1 score counts.
    missing_label : label, optional
        Label of unlabelled nodes, which belong to no boundary.

    Returns
    -------
    ndarray or list of ndarray
        Weights of each node, float64, in the form of ``y``.

    Raises
    ------
    ValueError
        If an argument is out of range, or only one of ``f1`` and ``positive`` is given.

    Examples
    --------
    >>> from sklearn_crf.preprocessing import node_weights
    >>> y = [["sky", "sky", "sky", "sea", "sea"]]
    >>> node_weights(y, boundary=2.0)[0].tolist()
    [1.0, 1.0, 3.0, 3.0, 1.0]
    >>> node_weights(y, f1=0.8, positive="sea")[0].tolist()
    [0.4, 0.4, 0.4, 0.6, 0.6]
    """
    if not (boundary >= 0 and np.isfinite(boundary)):
        raise ValueError(f"boundary must be a finite number, not negative, got {boundary!r}.")
    if not (isinstance(distance, int | np.integer) and distance >= 1):
        raise ValueError(f"distance must be an integer of at least 1, got {distance!r}.")
    if (f1 is None) != (positive is None):
        raise ValueError("f1 and positive must be passed together.")
    if f1 is not None and not 0 <= f1 <= 1:
        raise ValueError(f"f1 must be a number from 0 to 1, got {f1!r}.")
    if X is not None and len(X) != len(y):
        raise ValueError(f"X has {len(X)} examples, but y has labels of {len(y)}.")
    found = []
    for i, own in enumerate(y):
        labels = convert_to_label_array(own)
        edges = _get_edges(labels, None if X is None else X[i], i)
        weight = np.ones(labels.size)
        if boundary:
            is_known = ~mask_missing_nodes(labels.ravel(), missing_label)
            weight[_is_near_boundary(labels.ravel(), edges, int(distance), is_known)] += boundary
        if f1 is not None:
            weight *= np.where(labels.ravel() == positive, 1 - f1 / 2, f1 / 2)
        found.append(weight.reshape(labels.shape))
    return np.stack(found) if isinstance(y, np.ndarray) and y.dtype != object and len(found) else found


def _get_edges(labels, x, i):
    """Return the edges between the nodes of an example, (E, 2)."""
    if x is None:
        return lattice(labels.shape).edges if labels.ndim else np.zeros((0, 2), dtype=np.int32)
    if not isinstance(x, Example):
        raise ValueError(f"X[{i}] must be an Example, got {type(x).__name__}: pass no X for labels on lattices.")
    if labels.size != x.n_nodes:
        raise ValueError(f"y[{i}] has {labels.size} labels, but X[{i}] has {x.n_nodes} nodes.")
    return x.edges


def _is_near_boundary(labels, edges, distance, is_known):
    """Return a mask (N,) of labelled nodes at or near edges whose ends have different labels."""
    # is_known: (N,), whether a node has a label
    tail, head = edges.T
    near = np.zeros(len(labels), dtype=bool)
    near[edges[(labels[tail] != labels[head]) & is_known[tail] & is_known[head]]] = True
    for _ in range(distance - 1):
        reached = near[tail] | near[head]
        near[edges[reached]] = True
    return near & is_known
