"""Stochastic gradient training: Adam on mini-batches with a step that falls as 1 / sqrt(epoch)."""

import numpy as np

from sklearn_crf.mixtures.solvers import Run
from sklearn_crf.mixtures.training_data import TrainingData


def run_sgd(loss, start, X, labels, weight, *, max_iter, tol, batch_size, learning_rate, seed):
    """Epochs over shuffled samples until the full loss has gained less than ``tol`` for five epochs.

    Parameters
    ----------
    loss : Loss
    start : MixtureParameters
    X, labels, weight : ndarray
        The samples that ``loss`` holds.
    max_iter : int
        Number of epochs.
    tol : float
    batch_size : int
    learning_rate : float
        Adam's step in the first epoch; in units of standardised features.
    seed : int

    Returns
    -------
    Run
        With the best parameters found at the end of an epoch.
    """
    rng = np.random.default_rng(seed)
    lower, upper = loss.bounds()
    x = np.clip(loss.packing.pack(start), lower, upper)
    moments, n_steps = np.zeros((2, x.size)), 0
    losses, best, stale = [loss(x)[0]], x, 0
    n_batches = -(-len(X) // batch_size)
    n_classes = loss.packing.shapes[0][0]
    mean_weight = weight.mean()
    for epoch in range(max_iter):
        step = learning_rate / np.sqrt(1 + epoch)
        for rows in np.array_split(rng.permutation(len(X)), n_batches):
            batch = TrainingData(X[rows], labels[rows], weight[rows], n_classes, 1)
            # Normalised by the expected weight of a batch: weights then count in proportion, whoever shares the batch.
            batch.total_weight = mean_weight * len(rows)
            _, gradient = loss(x, batch)
            n_steps += 1
            x = np.clip(x - step * _adam(moments, gradient, n_steps), lower, upper)
        value, _ = loss(x)
        if not np.isfinite(value):  # steps too long; what comes after is no better
            break
        losses.append(value)
        stale = 0 if losses[-1] < min(losses[:-1]) - tol else stale + 1
        if losses[-1] <= min(losses):
            best = x
        if stale == 5:
            break
    return Run(loss.packing.unpack(best), np.array(losses), stale == 5)


def _adam(moments, gradient, n_steps, decay=(0.9, 0.999)):
    moments[0] += (1 - decay[0]) * (gradient - moments[0])
    moments[1] += (1 - decay[1]) * (gradient**2 - moments[1])
    mean, square = moments[0] / (1 - decay[0] ** n_steps), moments[1] / (1 - decay[1] ** n_steps)
    return mean / (np.sqrt(square) + 1e-8)
