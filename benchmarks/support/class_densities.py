"""Classifiers with a density of scikit-learn for each class, and samples with such densities."""

import numpy as np
from sklearn.decomposition import FactorAnalysis
from sklearn.mixture import GaussianMixture


def low_rank_clusters(n_samples, n_features, n_classes, n_clusters, n_factors, seed, separation):
    """Return samples of classes, each a mixture of factor analysers, with the same diagonal noise for all classes."""
    rng = np.random.default_rng(seed)
    means = separation * rng.normal(size=(n_classes, n_clusters, n_features))
    loadings = rng.normal(size=(n_classes, n_clusters, n_features, n_factors)) / np.sqrt(n_factors)
    noise = rng.uniform(0.5, 1.5, n_features)
    y, s = rng.integers(0, n_classes, n_samples), rng.integers(0, n_clusters, n_samples)
    X = means[y, s] + noise * rng.normal(size=(n_samples, n_features))
    for c in range(n_classes):
        for k in range(n_clusters):
            rows = (y == c) & (s == k)
            X[rows] += rng.normal(size=(rows.sum(), n_factors)) @ loadings[c, k].T
    return X, y


class MixturePerClass:
    """Generative classifier with a full-covariance Gaussian mixture for each class."""

    def __init__(self, n_components, tol, max_iter):
        self.n_components, self.tol, self.max_iter = n_components, tol, max_iter

    def fit(self, X, y):
        self.mixtures = [
            GaussianMixture(self.n_components, tol=self.tol, max_iter=self.max_iter, random_state=0).fit(X[y == c])
            for c in np.unique(y)
        ]
        self.log_prior = np.log(np.bincount(y) / len(y))
        self.n_iter_ = max(mixture.n_iter_ for mixture in self.mixtures)
        self.converged_ = all(mixture.converged_ for mixture in self.mixtures)
        return self

    def joint_log_likelihood(self, X):
        return np.column_stack([mixture.score_samples(X) for mixture in self.mixtures]) + self.log_prior


class AnalyserPerClass(MixturePerClass):
    """Generative classifier with a factor analyser for each class."""

    def __init__(self, n_factors):
        self.n_factors = n_factors

    def fit(self, X, y):
        self.mixtures = [FactorAnalysis(self.n_factors, random_state=0).fit(X[y == c]) for c in np.unique(y)]
        self.log_prior = np.log(np.bincount(y) / len(y))
        self.n_iter_ = max(mixture.n_iter_ for mixture in self.mixtures)
        self.converged_ = all(mixture.n_iter_ < mixture.max_iter for mixture in self.mixtures)
        return self
