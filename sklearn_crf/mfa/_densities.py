"""Log-densities of mixtures of factor analysers, by Woodbury's identity and the matrix determinant lemma.

A component has a mean ``mu``, loadings ``L`` (d x p), a diagonal noise covariance ``Psi``, and the covariance
``Sigma = L L' + Psi``. Let ``D = Psi^-1``, let ``L' D L = Q diag(e) Q'`` be an eigendecomposition (p x p), and let
``V = D L Q diag(1 + e)^-1/2``. Then

    Sigma^-1 = D - V V',        log det Sigma = sum log Psi + sum log(1 + e),
    log N(x) = const + (D mu)' x - x' D x / 2 + |V'(x - mu)|^2 / 2

where const does not depend on ``x``. A single matrix product with the data computes the linear and the projected terms
of all components, without a d x d matrix. An eigendecomposition is used because rounding can make a Cholesky
factorisation of ``I + L' D L`` fail.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import count_threads, limit_blas_threads, map_tasks, split_into_ranges
from sklearn_crf.kernels.mfa.mixtures import class_scores
from sklearn_crf.mfa._tuning import BLOCK_NUMBERS, NUMBERS_OF_A_TASK

LOG_2PI = float(np.log(2 * np.pi))


class Precisions(NamedTuple):
    """Parts of the inverse covariances of S components: ``Sigma_s^-1 = diag(inverse_noise_s) - V_s V_s'``."""

    inverse_noise: np.ndarray  # (S, d)
    projections: np.ndarray  # (S, d, p), the matrix V of each component
    # (S, p, p), the matrix R = diag(1 + e)^-1/2 Q' of each component: Sigma^-1 L = V R, (I + L' D L)^-1 = R' R
    rotations: np.ndarray
    log_det: np.ndarray  # (S,), log det Sigma of each component


def precisions(params):
    """Compute the parts of each component's inverse covariance."""
    group = params.noise_group
    inverse_noise = np.exp(-params.log_noise)[group]
    scaled = inverse_noise[:, :, None] * params.loadings
    eigenvalues, basis = np.linalg.eigh(np.swapaxes(params.loadings, 1, 2) @ scaled)
    eigenvalues = np.maximum(eigenvalues, 0)
    rotations = np.swapaxes(basis, 1, 2) / np.sqrt(1 + eigenvalues)[:, :, None]
    projections = scaled @ np.swapaxes(rotations, 1, 2)
    log_det = params.log_noise.sum(axis=1)[group] + np.log1p(eigenvalues).sum(axis=1)
    return Precisions(inverse_noise, projections, rotations, log_det)


class ScoreForms(NamedTuple):
    """Coefficients of ``log P(c, s, x)``, the joint log-density of class, component and sample.

    ``linear[s]`` is multiplied by a sample to which a 1 is appended. The first p rows of the product are ``V_s'(x -
    mu_s)``. The last row is the linear term of the log-density plus the constant. The quadratic term is computed with
    ``inverse_noise``, which the components of a noise group share.
    """

    # The Cython functions use the first three arrays.
    linear: np.ndarray  # (S, p + 1, d + 1)
    inverse_noise: np.ndarray  # (G, d)
    noise_group: np.ndarray  # (S,)
    precisions: Precisions


def compute_score_forms(params):
    """Compute the coefficients of the joint log-densities of a model."""
    prec = precisions(params)
    n_all, n_features, n_factors = params.loadings.shape
    projections = np.swapaxes(prec.projections, 1, 2)
    weighted_mean = prec.inverse_noise * params.means
    linear = np.empty((n_all, n_factors + 1, n_features + 1))
    linear[:, :-1, :-1] = projections
    linear[:, :-1, -1] = -(projections @ params.means[:, :, None])[:, :, 0]
    linear[:, -1, :-1] = weighted_mean
    log_component = (params.log_prior[:, None] + params.log_weights).ravel()
    square = np.einsum("sj,sj->s", weighted_mean, params.means)
    linear[:, -1, -1] = log_component - 0.5 * (n_features * LOG_2PI + prec.log_det + square)
    return ScoreForms(linear, np.ascontiguousarray(np.exp(-params.log_noise)), params.noise_group, prec)


def split_into_column_blocks(n_samples, n_rows_per_sample):
    """Split samples into blocks whose temporary arrays are small; return the slices of the blocks.

    The blocks do not depend on the number of threads, so sums over blocks are reproducible.
    """
    # n_rows_per_sample: number of entries that each sample needs in the temporary arrays
    size = int(np.clip(BLOCK_NUMBERS // max(n_rows_per_sample, 1), 128, 8192))
    n_blocks = max(1, -(-n_samples // size))
    edges = np.linspace(0, n_samples, n_blocks + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(edges)]


def group_missing_patterns(X, n_jobs=1):
    """Group the rows of ``X`` by their observed features.

    Return a list of pairs: the indices of the observed features, and the indices of the rows that observe them. If no
    value is missing, the features are a full slice.
    """
    # X: (n, d)
    ranges = split_into_ranges(len(X), max(1, X.size // NUMBERS_OF_A_TASK))
    found = map_tasks(lambda ends, n_threads: bool(np.isnan(X[slice(*ends)]).any()), ranges, n_jobs)
    if not any(found):
        return [(slice(None), np.arange(len(X)))]
    missing = np.isnan(X)
    patterns, of_row = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(of_row.ravel()))[:-1])
    return [(np.flatnonzero(~pattern), r) for pattern, r in zip(patterns, rows, strict=True)]


def compute_centred_forms(params, X, n_jobs=1):
    """Yield, for each group of rows with equal observed features, score forms, rows, observed features and a shift.

    The score forms apply to ``samples - shift``, where the shift is the weighted mean of the component means. Without
    the shift, data far from the origin would lose precision, because the scores expand ``(x - mu)^2``.
    """
    # rows: index array; observed features: index array, or a full slice if no value is missing
    shift = np.einsum("s,sj->j", np.exp(params.log_prior[:, None] + params.log_weights).ravel(), params.means)
    centred = params.rescale(-shift, np.ones_like(shift))
    for observed, rows in group_missing_patterns(X, n_jobs) if len(X) else ():
        yield compute_score_forms(centred.restrict(observed)), rows, observed, shift[observed]


def scan(params, X, visit, n_jobs, rows):
    """Call ``visit(rows, forms, samples, shift)`` for each block of rows with the same observed features.

    Threads process blocks concurrently, so ``visit`` may only write to the rows that it is given.
    """
    # rows: indices of the rows of X to scan; ``visit`` gets the row indices of one block
    # samples: (n_rows, n_observed), the observed features of the block
    n_all, n_features, n_factors = params.loadings.shape
    for forms, members, observed, shift in compute_centred_forms(params, X[rows], n_jobs):

        def visit_block(part, n_threads, forms=forms, members=rows[members], observed=observed, shift=shift):
            visit(members[part], forms, X[members[part]][:, observed], shift)

        with limit_blas_threads():
            map_tasks(visit_block, split_into_column_blocks(len(members), n_all * (n_factors + 2) + n_features), n_jobs)


def compute_joint_log_density(params, X, n_jobs=None):
    """Compute ``log P(c, x)``, with ``P(c, x) = sum_s P(c) P(s | c) N(x; mu_s, Sigma_s)`` over components s of c."""
    # X: (n, d); returns: (n, n_classes)
    out = np.empty((len(X), len(params.log_weights)))
    for forms, rows, observed, shift in compute_centred_forms(params, X, n_jobs):
        # The Cython function interprets None as all rows or all features.
        some = (None, None) if isinstance(observed, slice) else (rows, observed)
        with limit_blas_threads():
            class_scores(X, *some, shift, *forms[:3], out, count_threads(n_jobs))
    return out


def _compute_posteriors(forms, samples, shift):
    """Return the posterior ``P(c, s | x)`` of every component, (S, n), and the projected samples, (S, p + 1, n).

    The projected samples are ``V'(x - mu)`` in the first p rows, and the linear term of the log-density in the last.
    """
    linear = forms.linear
    # Squares of extremely distant samples overflow to infinity and lead to NaN; the caller checks for NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        block = np.ones((samples.shape[1] + 1, len(samples)))
        block[:-1] = (samples - shift).T
        projected = (linear.reshape(-1, linear.shape[2]) @ block).reshape(*linear.shape[:2], -1)
        factors = projected[:, :-1]
        scores = 0.5 * np.einsum("spn,spn->sn", factors, factors)
        scores += projected[:, -1]
        scores -= 0.5 * (forms.inverse_noise @ np.square(block[:-1]))[forms.noise_group]
        scores -= scores.max(axis=0)
        posteriors = np.exp(scores, out=scores)
        posteriors /= posteriors.sum(axis=0)
    return posteriors, projected


def compute_factor_means(params, X, n_jobs=None):
    """Compute the mean of the factors, ``E[z | x] = sum_s P(s | x) (I + L_s' D_s L_s)^-1 L_s' D_s (x - mu_s)``."""
    # X: (n, d); returns: (n, p)
    out = np.empty((len(X), params.loadings.shape[2]))

    def visit(rows, forms, samples, shift):
        posteriors, projected = _compute_posteriors(forms, samples, shift)
        means = np.swapaxes(forms.precisions.rotations, 1, 2) @ projected[:, :-1]
        out[rows] = np.einsum("sn,spn->np", posteriors, means)

    scan(params, X, visit, n_jobs, np.arange(len(X)))
    return out


def impute_conditional_means(params, X, n_jobs=None):
    """Replace missing values by ``E[x_missing | x_observed] = sum_s P(s | x_o) (mu_s + L_s E[z | x_o, s])_m``."""
    # X: (n, d); returns: (n, d)
    out = X.copy()

    def visit(rows, forms, samples, shift):
        posteriors, projected = _compute_posteriors(forms, samples, shift)
        factors = np.swapaxes(forms.precisions.rotations, 1, 2) @ projected[:, :-1]
        missing = np.flatnonzero(np.isnan(X[rows[0]]))
        means = params.means[:, missing, None] + params.loadings[:, missing] @ factors
        out[np.ix_(rows, missing)] = np.einsum("sn,sjn->nj", posteriors, means)

    incomplete = np.isnan(X).any(axis=1)
    scan(params, X, visit, n_jobs, np.flatnonzero(incomplete))
    return out
