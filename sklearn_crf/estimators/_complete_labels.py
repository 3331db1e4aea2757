"""Labels of every node, where something cannot do with fewer."""

import numpy as np


def require_complete(batch, what):
    """The labels of a batch.

    Parameters
    ----------
    batch : Batch
    what : str
        What needs them, for the error.

    Returns
    -------
    ndarray of shape (N,), int32

    Raises
    ------
    ValueError
        If a node is unlabelled.
    """
    unlabelled = np.flatnonzero(batch.labels < 0)
    if len(unlabelled):
        member = batch.members[np.searchsorted(batch.node_ptr, unlabelled[0], side="right") - 1]
        raise ValueError(f"y[{member}] has unlabelled nodes, but {what} needs a label for every node.")
    return batch.labels
