"""Models with what wrong labels cost added to their scores, and models at a temperature."""

from dataclasses import replace

import numpy as np


def loss_augmented(model, labels, cost, node_weight=None):
    r"""The model with the cost of every state added to its unary score.

    .. math:: u_s(a) + \omega_s \, c_{a y_s}

    Parameters
    ----------
    model : PairwiseModel
    labels : ndarray of shape (N,), int32
        The true state of each node; -1 where it is unlabelled, and costs nothing.
    cost : ndarray of shape (K, K)
        ``cost[a, b]`` of state a where b is true.
    node_weight : ndarray of shape (N,), optional
        :math:`\omega`; None is one.

    Returns
    -------
    PairwiseModel
    """
    added = np.where((labels >= 0)[:, None], cost.T[labels], 0.0)
    if node_weight is not None:
        added *= node_weight[:, None]
    return replace(model, unary=model.unary + added.astype(model.dtype, copy=False))


def at_temperature(model, temperature):
    """The model with all scores divided by a temperature: its distribution is sharper below one, flatter above.

    Parameters
    ----------
    model : PairwiseModel
    temperature : float

    Returns
    -------
    PairwiseModel
    """
    if temperature == 1:
        return model
    scale = model.dtype.type(1 / temperature)
    return replace(model, unary=model.unary * scale, tables=model.tables * scale)
