"""Mean field run forward and its derivatives run back, by hand."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.dense.losses import through_softmax
from sklearn_crf.inference.local._dense_mean_field import DenseUpdates, product_over_nodes


class Gradient(NamedTuple):
    """Derivative of a loss by the values of a dense model."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (M, K, K), as if no entry were tied to its mirror image


def marginals_of_updates(model, inference, n_threads=1):
    """Marginals at the start and after each update.

    Parameters
    ----------
    model : DenseModel
    inference : DenseMeanField
        Compatibilities are such that its updates keep nothing of the old scores.
    n_threads : int, default=1

    Returns
    -------
    list of ndarray of shape (N, K)
    """
    with range_runner(n_threads) as run:
        updates = DenseUpdates(model, run)
        trajectory = [updates.marginals]
        for _ in range(inference.max_iter):
            checkpoint()
            change = updates.step()
            trajectory.append(updates.marginals)
            if change <= inference.tol:
                break
    return trajectory


def pull_back(model, trajectory, slope, n_threads=1):
    r"""From the derivative by the last logits to those by unary scores and compatibilities.

    Logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`, so that with g the derivative by s_t, that by
    :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)` and that by :math:`q_{t-1}` is
    :math:`\sum_m (\hat K_m' g) \mu_m'`: one adjoint filtering per kernel and update.

    Parameters
    ----------
    model : DenseModel
    trajectory : list of ndarray of shape (N, K)
        What :func:`marginals_of_updates` returned.
    slope : ndarray of shape (N, K)
        Derivative of the loss by the logits of the last marginals.
    n_threads : int, default=1

    Returns
    -------
    Gradient
    """
    tables = model.tables
    by_tables = np.zeros(tables.shape)
    by_unary = slope.copy()
    for q in reversed(trajectory[:-1]):
        checkpoint()
        by_q = np.zeros_like(slope)
        for m, smooth in enumerate(model.filters):
            adjoint = smooth.apply(slope, adjoint=True, n_threads=n_threads)
            by_tables[m] += product_over_nodes(q, adjoint)
            by_q += adjoint @ tables[m].T.astype(slope.dtype)
        slope = through_softmax(q, by_q)
        by_unary += slope
    return Gradient(by_unary, by_tables)
