"""Random small mixtures and reference computations for tests of mixtures and of MultiConditionalMFA."""

import numpy as np
from scipy.stats import multivariate_normal

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.mfa._parameters import ParameterVector


def mixture(n_components=2, n_factors=2, *, alpha=0.01, noise="tied", **options):
    """Return an estimator whose parameters are all given, so that none is chosen by held-out samples."""
    return MultiConditionalMFA(n_components, n_factors, alpha=alpha, noise=noise, **options)


def random_parameters(n_classes, n_components, n_features, n_factors, noise, seed=0, spread=0.5):
    packing = ParameterVector(n_classes, n_components, n_features, n_factors, noise)
    rng = np.random.default_rng(seed)
    return packing, packing.unpack(spread * rng.normal(size=packing.size))


def covariance(params, s):
    return params.loadings[s] @ params.loadings[s].T + np.diag(np.exp(params.log_noise[params.noise_group[s]]))


def brute_force_joint(params, X):
    """Return log P(c, x), computed from full covariance matrices. NaN entries of x are marginalised out."""
    n_classes, n_components = params.log_weights.shape
    out = np.full((len(X), n_classes), -np.inf)
    for i, x in enumerate(X):
        seen = ~np.isnan(x)
        for c in range(n_classes):
            for k in range(n_components):
                s = c * n_components + k
                score = params.log_prior[c] + params.log_weights[c, k]
                if seen.any():
                    normal = multivariate_normal(params.means[s, seen], covariance(params, s)[np.ix_(seen, seen)])
                    score += normal.logpdf(x[seen])
                out[i, c] = np.logaddexp(out[i, c], score)
    return out


def labelled_clusters(n_samples, n_features, n_classes, n_clusters=2, n_factors=1, seed=0, separation=1.5):
    """Return samples and labels from overlapping classes, each of which is a mixture of factor analysers."""
    rng = np.random.default_rng(seed)
    y, s = rng.integers(0, n_classes, n_samples), rng.integers(0, n_clusters, n_samples)
    y[: n_classes * n_clusters] = np.repeat(np.arange(n_classes), n_clusters)
    means = separation * rng.normal(size=(n_classes, n_clusters, n_features))
    loadings = rng.normal(size=(n_classes, n_clusters, n_features, n_factors))
    factors = rng.normal(size=(n_samples, n_factors))
    X = means[y, s] + np.einsum("njp,np->nj", loadings[y, s], factors) + 0.5 * rng.normal(size=(n_samples, n_features))
    return X, y


def with_gaps(X, fraction, seed=0):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < fraction] = np.nan
    return X
