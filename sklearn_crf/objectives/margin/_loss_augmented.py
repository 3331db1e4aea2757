"""Models with what wrong labels cost added to their scores, and models at a temperature."""

from dataclasses import replace

import numpy as np

from sklearn_crf.models import FactorGraph, check_labels, clamped, union_of_factors, with_unary


def loss_augmented(model, labels, cost, node_weight=None):
    r"""The model with the cost of every state added to its unary score.

    .. math:: u_s(a) + \omega_s \, c_{a y_s}

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    labels : ndarray of shape (N,), int32
        The true state of each node; -1 where it is unlabelled, and costs nothing.
    cost : ndarray of shape (K, K)
        ``cost[a, b]`` of state a where b is true.
    node_weight : ndarray of shape (N,), optional
        :math:`\omega`; None is one.

    Returns
    -------
    PairwiseModel or FactorGraph
        Of the type of ``model``; factors with costs come after all others.

    Raises
    ------
    ValueError
        If labels, costs or weights do not fit the model, or a cost or weight is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import loss_augmented
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> loss_augmented(
    ...     model, np.array([1, 1, 1], dtype=np.int32), 1.0 - np.eye(2)
    ... ).unary.tolist()
    [[1.0, 1.0], [1.2, 0.0], [1.0, 1.0]]
    """
    labels = check_labels(model, labels, may_miss=True)
    # Nodes of factor graphs may all have fewer states than there are costs.
    least, shape = model.n_columns, np.shape(cost)
    if shape != (len(cost),) * 2 or len(cost) < least or (len(cost) > least and not isinstance(model, FactorGraph)):
        raise ValueError(f"cost must have shape {(least, least)}, got {shape}.")
    if not np.isfinite(cost).all():
        raise ValueError("cost must be finite, found NaN or infinity.")
    if node_weight is not None and not (np.shape(node_weight) == labels.shape and np.isfinite(node_weight).all()):
        raise ValueError(f"node_weight must be finite, of shape {labels.shape}, got shape {np.shape(node_weight)}.")
    # The last row is that of nodes without a label, and -1 its number.
    rows = np.concatenate((cost.T, np.zeros((1, len(cost)))))
    if node_weight is None and not isinstance(model, FactorGraph):
        rows = rows.astype(model.dtype, copy=False)
    added = rows.take(labels, axis=0, mode="wrap")
    if node_weight is not None:
        added *= node_weight[:, None]
    if isinstance(model, FactorGraph):
        return union_of_factors(model, _factors_of_nodes(model.n_states, added))
    return with_unary(model, model.unary + added.astype(model.dtype, copy=False))


def completed_labels(model, labels, node_weight, inference, n_threads=1):
    """Labels with the best ones given the known where they are missing, and weights of costs: none of those."""
    # labels: (N,) int32, -1 where missing; node_weight: (N,) or None
    # returns labels: (N,) int32; node_weight: (N,), or as given where no label is missing
    known = labels >= 0
    if known.all():
        return labels, node_weight
    found = inference.map(clamped(model, labels), n_threads=n_threads).labels
    return np.where(known, labels, found), known * (1.0 if node_weight is None else node_weight)


def at_temperature(model, temperature):
    """The model with all scores divided by a temperature: its distribution is sharper below one, flatter above.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    temperature : float

    Returns
    -------
    PairwiseModel or FactorGraph
        Of the type of ``model``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import at_temperature
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> at_temperature(model, 0.5).unary.tolist()
    [[0.0, 2.0], [0.4, 0.0], [0.0, 2.0]]
    """
    if temperature == 1:
        return model
    scale = model.dtype.type(1 / temperature)
    if isinstance(model, FactorGraph):
        return replace(model, log_table=model.log_table * scale, table_default=model.table_default * scale)
    return replace(model, unary=model.unary * scale, tables=model.tables * scale)


def _factors_of_nodes(n_states, scores):
    """A factor for each node, of rows of scores."""
    n_nodes = len(n_states)
    return FactorGraph(
        n_states=n_states,
        scope=np.arange(n_nodes),
        scope_ptr=np.arange(n_nodes + 1),
        table_id=np.arange(n_nodes),
        log_table=scores[np.arange(scores.shape[1]) < n_states[:, None]],
        table_ptr=np.concatenate(([0], np.cumsum(n_states))),
    )
