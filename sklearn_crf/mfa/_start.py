"""Initial values: k-means within each class, then principal components of each cluster.

Initial values do not depend on the criterion: joint, conditional and multi-conditional training start from equal
values.
"""

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import kmeans_plusplus
from sklearn.utils.extmath import randomized_svd

from sklearn_crf.kernels.mfa.mixtures import k_means
from sklearn_crf.mfa import _tuning
from sklearn_crf.mfa._parameters import MixtureParameters, count_noise_groups


def find_class_start(c, X, labels, weight, assign, *, n_components, n_factors, seed):
    """Return, for each cluster of a class, its weight, mean, loadings and residual variances."""
    # X: (n, d); labels: (n,); weight: (n,)
    # assign: function of c, samples and weights that returns the cluster of each sample
    rows = np.flatnonzero(labels == c)
    # ``take`` and ``compress`` release the interpreter's lock, but indexing does not.
    X_c, w_c = filled(X.take(rows, axis=0), weight[rows]), weight[rows]
    part = assign(c, X_c, w_c)
    return [_fit_cluster(X_c, w_c, part == k, n_factors, seed) for k in range(n_components)]


def _fit_cluster(X, weight, own, n_factors, seed):
    """Return the weight, mean, loadings and residual variances of one cluster of a class."""
    # For a cluster with at most n_factors samples, use the principal directions of its class.
    n_own = own.sum()
    of_class = X, weight
    of_cluster = of_class if own.all() else (X.compress(own, axis=0), weight[own])
    mean = _compute_weighted_mean(*(of_cluster if n_own else of_class))
    some, of_some = of_cluster if n_own > n_factors else of_class
    return of_cluster[1].sum(), mean, *compute_principal_loadings(some, of_some, n_factors, seed)


def _compute_weighted_mean(X, weight):
    # np.average would make a weighted copy of all samples, and ``@`` would hold the interpreter's lock.
    return weight.dot(X) / weight.sum()


def combine_class_starts(classes, noise, floor):
    """Combine the results of :func:`find_class_start` for all classes into parameters."""
    n_classes = len(classes)
    clusters = (cluster for clusters in classes for cluster in clusters)
    counts, means, loadings, residual = map(np.array, zip(*clusters, strict=True))
    n_all = len(counts)
    counts = np.maximum(counts.reshape(n_classes, -1), 1e-3 * counts.sum() / n_all)
    per_class = counts.sum(axis=1)
    group = np.arange(n_all) * count_noise_groups(noise, n_classes, n_all // n_classes) // n_all
    pooled = np.zeros((group[-1] + 1, means.shape[1]))
    np.add.at(pooled, group, counts.reshape(-1, 1) * residual)
    pooled /= np.bincount(group, weights=counts.ravel())[:, None]
    # Start above the floor, because noise that starts at the floor would stay there in the first iterations.
    log_noise = np.log(np.maximum(pooled, max(floor, 1e-4)))
    log_prior = np.log(per_class / per_class.sum())
    return MixtureParameters(log_prior, np.log(counts / per_class[:, None]), means, loadings, log_noise)


def filled(X, weight):
    """Return ``X`` with missing values replaced by the weighted mean of the feature (0 if no value is observed)."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    total = (~missing * weight[:, None]).sum(axis=0)
    sums = (np.where(missing, 0.0, X) * weight[:, None]).sum(axis=0)
    return np.where(missing, sums / np.where(total > 0, total, 1.0), X)


def compute_principal_loadings(X, weight, n_factors, seed):
    """Compute probabilistic principal components: loadings, and the residual variance of each feature.

    The loadings are ``u sqrt(e - r)``, where ``u`` are the leading eigenvectors of the weighted covariance, ``e`` their
    eigenvalues, and ``r`` is the mean of all other eigenvalues. Loadings are never exactly 0, because zero loadings are
    a stationary point of every criterion.
    """
    total = weight.sum()
    centred = X - _compute_weighted_mean(X, weight)
    centred *= np.sqrt(weight / total)[:, None]
    variances = np.einsum("ij,ij->j", centred, centred)
    n_features = X.shape[1]
    if n_factors == 0:
        return np.zeros((n_features, 0)), variances
    if n_features <= _tuning.MAX_FEATURES_FOR_EIGH:
        values, vectors = eigh(centred.T.dot(centred))
        values, vectors = values[::-1][:n_factors], vectors[:, ::-1][:, :n_factors]
    else:
        _, singular, rows = randomized_svd(centred, n_factors, n_iter=2, random_state=seed)
        found = len(singular)
        values, vectors = np.zeros(n_factors), np.zeros((n_features, n_factors))
        values[:found], vectors[:, :found] = singular**2, rows.T
    # Without variance, rounding errors would determine the directions. Use the axes of features as directions instead.
    # The threshold is absolute, because the variance in a class of equal samples is only a rounding error.
    empty = np.flatnonzero(values <= 1e-10 * max(variances.sum(), 1.0))
    vectors[:, empty] = np.eye(n_features)[:, empty]
    values = np.maximum(values, 0)
    rest = max(variances.sum() - values.sum(), 0) / max(n_features - n_factors, 1)
    loadings = vectors * np.sqrt(np.maximum(values - rest, 1e-3 * rest + 1e-8))
    return loadings, np.maximum(variances - np.square(loadings).sum(axis=1), 0)


def make_kmeans_partition(n_components, seed):
    """Return a function that partitions the samples of a class by one run of k-means.

    In a large class, the run starts from the best of three runs on a subset of samples. This is faster than a run on
    all samples from random centres, and seldom merges two clusters.
    """

    def assign(c, X, weight):
        if n_components == 1:
            return np.zeros(len(X), dtype=int)
        n_distinct = len(np.unique(X[: 50 * n_components], axis=0))
        if n_distinct < n_components and len(np.unique(X, axis=0)) < n_components:
            return np.arange(len(X)) % n_components
        rng = np.random.RandomState((seed + c) % 2**32)
        if len(X) <= _tuning.START_SAMPLES:
            return _run_kmeans(X, weight, _seeds(X, weight, n_components, rng))[1]
        rows = rng.choice(len(X), _tuning.START_SAMPLES, replace=False)
        some = X[rows], weight[rows]
        runs = [_run_kmeans(*some, _seeds(*some, n_components, rng)) for _ in range(3)]
        # If several runs found equal clusters, choose the first run; the tolerance allows for rounding errors of sums.
        least = min(inertia for inertia, _, _ in runs) * (1 + 1e-9)
        return _run_kmeans(X, weight, next(centres for inertia, _, centres in runs if inertia <= least))[1]

    return assign


def _seeds(X, weight, n_components, rng):
    return kmeans_plusplus(X, n_components, sample_weight=weight, random_state=rng)[0]


def _run_kmeans(X, weight, centres):
    """Run k-means and return the weighted sum of squared distances, the partition and the centres."""
    mean = np.full(len(X), 1 / len(X)).dot(X)
    spread = np.einsum("ij,ij->", X, X) / len(X) - mean @ mean
    labels, centres = np.empty(len(X), dtype=np.int64), centres.copy()
    # As in scikit-learn, stop when centres move by a squared distance below 1e-4 times the mean variance of features.
    inertia = k_means(X, weight, centres, labels, 300, 1e-4 * spread / X.shape[1])
    return inertia, labels, centres


def nearest_centres(c, X, weight, *, centres=None, n_components=None, seed=None):
    """Return the index of the nearest centre to each sample of a class.

    By default, the centres are ``n_components`` randomly drawn samples.
    """
    if centres is None:
        centres = X[np.random.default_rng(seed).choice(len(X), n_components, replace=False)]
    square = np.square(centres).sum(axis=1)
    return (square - 2 * (X @ centres.T)).argmin(axis=1)
