"""What a wrong label costs in training, and what training by margins requires of labels and edges."""

from dataclasses import replace

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import check_array


def with_node_weights(node_weight, encoded, batches):
    """Batches with the weight of each node.

    Parameters
    ----------
    node_weight : sequence of array-like, or None
        One for each example, of the shape of its labels: a factor of its cost. None is one.
    encoded : Encoded
    batches : list of Batch

    Returns
    -------
    list of Batch

    Raises
    ------
    ValueError
        If an array is missing, has another shape, is negative or not finite.
    """
    if node_weight is None:
        return batches
    if len(node_weight) != encoded.n_examples:
        raise ValueError(f"node_weight holds arrays for {len(node_weight)} examples, but X has {encoded.n_examples}.")
    weights = [np.asarray(part, dtype=np.float64) for part in node_weight]
    for i, part in enumerate(weights):
        shape = () if encoded.layout == "nodes" else encoded.label_shape(i)
        if part.shape != shape:
            raise ValueError(f"node_weight[{i}] has shape {part.shape}, but the lattice of X[{i}] has shape {shape}.")
        if not np.all(np.isfinite(part) & (part >= 0)):
            raise ValueError(f"node_weight[{i}] must be finite and not negative.")
    return [
        replace(batch, node_weight=np.concatenate([np.ravel(weights[i]) for i in batch.members])) for batch in batches
    ]


def cost_matrix(cost, class_weight, labels):
    """Cost of every state of a node given its true class.

    Parameters
    ----------
    cost : {"hamming", "weighted"} or array-like of shape (K, K)
        ``cost[a, b]`` of class a where b is true. "weighted" is one over the frequency of b, with a mean of one over
        all nodes.
    class_weight : dict, "balanced" or None
        Factors of the true classes.
    labels : EncodedLabels

    Returns
    -------
    ndarray of shape (K, K), float64

    Raises
    ------
    ValueError
        If it has another shape, negative entries, or costs for being right.
    """
    n_classes = len(labels.classes_)
    matrix = 1.0 - np.eye(n_classes) if isinstance(cost, str) else _checked(cost, n_classes)
    if isinstance(cost, str) and cost == "weighted":
        matrix = matrix * _class_weights("balanced", labels)
    return matrix if class_weight is None else matrix * _class_weights(class_weight, labels)


def _class_weights(class_weight, labels):
    n_classes = len(labels.classes_)
    parts = labels.labels if isinstance(labels.labels, list) else [np.ravel(labels.labels)]
    columns = np.concatenate(parts)
    present = np.unique(columns)
    if isinstance(class_weight, dict):
        weight = np.array([class_weight.get(name, 1.0) for name in labels.classes_], dtype=np.float64)
    else:
        weight = np.ones(n_classes)
        weight[present] = compute_class_weight(class_weight, classes=present, y=columns)
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise ValueError(f"class_weight must be finite and not negative, got {class_weight!r}.")
    return weight


def _checked(cost, n_classes):
    if isinstance(cost, list) and len({np.size(row) for row in cost}) > 1:
        raise ValueError(
            f"cost must be a matrix of shape ({n_classes}, {n_classes}), got a list of rows of different lengths: what "
            "nodes cost apart is the node_weight of fit."
        )
    cost = check_array(cost, dtype=np.float64, input_name="cost")
    if cost.shape != (n_classes, n_classes):
        raise ValueError(
            f"cost must have shape ({n_classes}, {n_classes}), one row and column a class, got {cost.shape}."
        )
    if np.any(cost < 0):
        a, b = np.argwhere(cost < 0)[0]
        raise ValueError(f"cost must not be negative, found cost[{a}, {b}] = {cost[a, b]:g}.")
    if np.any(cost.diagonal()):
        a = int(np.flatnonzero(cost.diagonal())[0])
        raise ValueError(f"cost must be zero on its diagonal, found cost[{a}, {a}] = {cost[a, a]:g}.")
    return cost


def require_associative(batches):
    """Raise ValueError unless weights that are not negative make every edge prefer equal states.

    Parameters
    ----------
    batches : list of Batch
    """
    for batch in batches:
        edge_features = batch.example.edge_features
        if edge_features is not None and np.any(edge_features < 0):
            edge, feature = np.argwhere(edge_features < 0)[0]
            i = batch.members[np.searchsorted(batch.node_ptr, batch.example.edges[edge, 0], side="right") - 1]
            raise ValueError(
                "pairwise='associative' needs edge features that are not negative, found "
                f"{edge_features[edge, feature]:g} in feature {feature} of an edge of X[{i}]."
            )
