"""Expectation-maximisation of the joint likelihood, in which no step decreases the likelihood.

An iteration computes the posteriors of the components. It then maximises the expected log-likelihood over weights, over
means, and over loadings and noise, one after the other. Factors are hidden variables only in the step over loadings and
noise. If there are few features, all second moments are cheap, and this step is repeated without another pass over the
data. With one component per class, the posteriors never change, so one pass collects all moments that the iterations
need. Before each step, the most likely loadings for the given noise are then computed in a subspace: the span of the
current loadings and of their image under the scatter matrix.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from sklearn_crf.kernels.mfa.mixtures import class_moments, second_moments
from sklearn_crf.mfa._criteria import JOINT_LIKELIHOOD, compute_pattern_moments, sum_noise_groups
from sklearn_crf.mfa._densities import LOG_2PI, compute_score_forms, precisions
from sklearn_crf.mfa._tuning import MAX_CLASS_MOMENTS, MAX_FEATURES_FOR_SECOND_MOMENTS, N_FACTOR_STEPS


def choose_em_step(params, data, prior, n_threads=1):
    """Return a function that makes one EM step on complete data.

    The function returns the log-likelihood of given parameters, and the next parameters.
    """
    n_classes, n_components = params.log_weights.shape
    n_features = data.n_features
    is_fixed = n_components == 1 and prior.loading_precision == 0 and params.loadings.shape[2] > 0
    is_small = n_classes * n_features**2 <= MAX_CLASS_MOMENTS
    are_many = data.total_weight >= n_classes * n_features
    if is_fixed and is_small and are_many and n_features > MAX_FEATURES_FOR_SECOND_MOMENTS:
        return partial(_make_class_step, moments=compute_class_moments(data, n_threads), data=data, prior=prior)
    return partial(make_em_step, data=data, prior=prior, n_threads=n_threads)


def compute_class_moments(data, n_threads=1):
    """Compute the moments of the complete samples of every class in one pass."""
    # returns weights: (C,); means: (C, d); scatter matrices about the means: (C, d, d)
    sums = data.total_of(_sum_class_squares, None, n_threads=n_threads)
    counts, first = sums[:, -1, -1], sums[:, -1, :-1]
    safe = np.where(counts > 0, counts, 1.0)
    means = first / safe[:, None]
    scatter = sums[:, :-1, :-1] / safe[:, None, None]
    scatter -= _multiply_outer(means, means)
    return counts, means, scatter


def _sum_class_squares(params, data, n_threads):
    """Return the weighted sums of ``(x, 1)(x, 1)'`` over the samples of every class."""
    sums = np.zeros((len(data.class_weight), data.n_features + 1, data.n_features + 1))
    ((_, blocks),) = data.patterns
    class_moments(blocks, sums, n_threads)
    return sums


def _make_class_step(params, moments, data, prior):
    """Make one EM step from the moments of the classes; return the log-likelihood and the next parameters."""
    counts, averages, scatter = moments
    precision = precisions(params)
    D, V = precision.inverse_noise, precision.projections
    TV, gap = scatter @ V, averages - params.means
    trace = np.einsum("sj,sjj->s", D, scatter) - np.einsum("sjp,sjp->s", V, TV)
    trace += np.einsum("sj,sj->s", D, np.square(gap)) - np.square(np.einsum("sjp,sj->sp", V, gap)).sum(axis=1)
    density = params.log_prior - 0.5 * (params.means.shape[1] * LOG_2PI + precision.log_det + trace)
    value = float(counts @ density) + prior.log_density(params)
    alive = counts > 1e-10 * data.total_weight / len(counts)
    safe = np.where(alive, counts, 1.0)
    means = np.where(alive[:, None], _compute_means(params, safe, averages, prior), params.means)
    if prior.mean_precision:
        scatter = scatter + _multiply_outer(averages - means, averages - means)
        TV = scatter @ V
    loadings = np.where(alive[:, None, None], _fit_subspace_loadings(params, scatter, TV), params.loadings)
    kept = replace(params, **_probabilities(counts, params, data), means=means, loadings=loadings)
    return value, _make_factor_step(kept, counts, alive, prior, scatter)


def _fit_subspace_loadings(params, scatter, TV):
    """Return the most likely loadings for the given noise in the span of the current loadings and ``TV``.

    ``TV`` is the product of the scatter matrix T and the V of the posteriors. Let ``T~ = Psi^-1/2 T Psi^-1/2`` have the
    Ritz pairs ``(l_k, u_k)`` in this span. The loadings are ``Psi^1/2 u_k (l_k - 1)^1/2`` (Tipping & Bishop 1999, for
    whitened samples). The result is at least as likely as the current loadings, because they are in the span.
    """
    root = np.exp(0.5 * params.log_noise)[params.noise_group][:, :, None]
    present, image = params.loadings / root, TV / root
    n_factors = present.shape[2]
    basis, _ = np.linalg.qr(np.concatenate([_normalise_columns(present), _normalise_columns(image)], axis=2))
    values, vectors = np.linalg.eigh(np.swapaxes(basis, 1, 2) @ ((scatter @ (basis / root)) / root))
    values, vectors = values[:, -n_factors:], vectors[:, :, -n_factors:]
    # Avoid loadings of exactly 0, which are a stationary point: no later step would change them.
    found = basis @ (vectors * np.sqrt(np.maximum(values - 1, 1e-12))[:, None])
    # Rotate the new loadings towards the current loadings, because extrapolation compares loadings entry by entry.
    left, _, right = np.linalg.svd(np.swapaxes(found, 1, 2) @ present)
    return root * (found @ (left @ right))


def _normalise_columns(columns):
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    return columns / np.where(lengths > 0, lengths, 1.0)


def make_em_step(params, data, prior, n_threads=1):
    """Make one step of expectation-maximisation on complete data; return the log-likelihood and the next parameters."""
    if data.n_features <= MAX_FEATURES_FOR_SECOND_MOMENTS:
        value, counts, first, second = data.total_of(_compute_second_moments, params, n_threads=n_threads)
    else:
        value, projected, squares = data.total_of(_compute_joint_moments, params, n_threads=n_threads)
        counts, first, second = projected[:, -1, -1], projected[:, -1, :-1], None
    value += prior.log_density(params)
    alive = counts > 1e-10 * data.total_weight / len(counts)
    safe = np.where(alive, counts, 1.0)
    means = np.where(alive[:, None], _compute_means(params, safe, first / safe[:, None], prior), params.means)
    # The density of a component without samples does not change, but its weight becomes 0.
    kept = replace(params, **_probabilities(counts, params, data), means=means)
    if second is not None:
        full = second / safe[:, None, None] - _multiply_outer(first / safe[:, None], means)
        full = full - _multiply_outer(means, first / safe[:, None]) + _multiply_outer(means, means)
        scatter, n_steps = {"full": full}, N_FACTOR_STEPS
    else:
        diagonal = squares + sum_noise_groups((counts[:, None] * means - 2 * first) * means, params.noise_group)
        of_factors = _project_scatter(params, projected[:, :-1], first, counts, safe, means)
        scatter, n_steps = {"full": None, "diagonal": diagonal, "projected": of_factors}, 1
    for _ in range(n_steps):
        kept = _make_factor_step(kept, counts, alive, prior, **scatter)
    return value, kept


def _probabilities(counts, params, data):
    counts = np.maximum(counts.reshape(params.log_weights.shape), 1e-300)
    weights = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
    return {"log_prior": np.log(data.class_weight / data.total_weight), "log_weights": weights}


def _multiply_outer(a, b):
    return a[:, :, None] * b[:, None, :]


def _compute_joint_moments(params, data, n_threads):
    """Compute the log-likelihood and the moments of complete samples."""
    ((_, blocks),) = data.patterns
    value, _, *moments = compute_pattern_moments(params, blocks, JOINT_LIKELIHOOD, n_threads)
    return value, *moments


def _compute_second_moments(params, data, n_threads):
    """Return the log-likelihood and, for each component, the posterior-weighted count, sum and second moments."""
    size = data.n_features + 1
    moments = np.zeros((len(params.means), size, size))
    ((_, blocks),) = data.patterns
    forms, n_own = compute_score_forms(params)[:3], params.log_weights.shape[1]
    value = second_moments(blocks, *forms, n_own, moments, n_threads)
    return value, moments[:, -1, -1], moments[:, -1, :-1], moments[:, :-1, :-1]


def _compute_means(params, counts, averages, prior):
    """Return the means ``(n Sigma^-1 + t I)^-1 n Sigma^-1 average``, which equal the averages if the prior is flat."""
    if prior.mean_precision == 0:
        return averages
    precision = precisions(params)
    D, V = precision.inverse_noise, precision.projections
    V_t = np.swapaxes(V, 1, 2)
    target = D * averages - (V @ (V_t @ averages[:, :, None]))[:, :, 0]
    diagonal = D + prior.mean_precision / counts[:, None]
    scaled = V / diagonal[:, :, None]
    core = np.eye(V.shape[2]) - V_t @ scaled
    first = target / diagonal
    return first + (scaled @ np.linalg.solve(core, V_t @ first[:, :, None]))[:, :, 0]


def _project_scatter(params, z_moments, first, counts, safe, means):
    """Return ``T V``, with the scatter T about the new means, given moments of ``z = V'(x - old mean)``."""
    moved = np.einsum("sjp,sj->sp", precisions(params).projections, params.means - means)
    z_x = np.swapaxes(z_moments[:, :, :-1], 1, 2) + _multiply_outer(first, moved)
    z_sum = z_moments[:, :, -1] + counts[:, None] * moved
    return (z_x - _multiply_outer(means, z_sum)) / safe[:, None, None]


def _make_factor_step(params, counts, alive, prior, full, diagonal=None, projected=None):
    """Maximise the expected log-likelihood over loadings and noise, with fixed posteriors of the factors.

    With ``B = Sigma^-1 L`` the posterior of the factors has mean ``B'(x - mu)`` and covariance ``R'R``. Hence
    ``E[(x - mu) z'] = T B`` and ``E[z z'] = R'R + B'T B``. Loadings and noise are computed by a regression of x on z.
    """
    # full: (S, d, d), scatter matrices T_s = sum_i a_is (x_i - mu_s)(x_i - mu_s)' / sum_i a_is.
    # If ``full`` is None, two arrays are used in place of ``full``:
    # diagonal: (G, d), diagonals of T_s times counts, summed over the components that share noise
    # projected: (S, d, p), products T_s V_s, with the matrices V_s of the posteriors
    precision = precisions(params)
    V, R = precision.projections, precision.rotations
    R_t = np.swapaxes(R, 1, 2)
    TV = full @ V if full is not None else projected
    TB = TV @ R
    second = R_t @ R + R_t @ (np.swapaxes(V, 1, 2) @ TB)
    loadings = _solve_loadings(TB, second, counts, params, prior)
    loadings = np.where(alive[:, None, None], loadings, params.loadings)
    explained = np.einsum("sjp,sjp->sj", loadings @ second - 2 * TB, loadings) * counts[:, None]
    group = params.noise_group
    if full is not None:
        residual = sum_noise_groups(counts[:, None] * np.einsum("sjj->sj", full) + explained, group)
    else:
        residual = diagonal + sum_noise_groups(explained, group)
    total = sum_noise_groups(counts, group)[:, None]
    low, high = prior.log_noise_bounds
    noise = np.maximum(residual / np.maximum(total, 1e-300), np.exp(low))
    log_noise = np.where(total > 0, np.minimum(np.log(noise), high), params.log_noise)
    return replace(params, loadings=loadings, log_noise=log_noise)


def _solve_loadings(TB, second, counts, params, prior):
    """Return the loadings, whose rows solve ``l_j (E[zz'] + psi_j t / n I) = (T B)_j``."""
    if prior.loading_precision == 0:
        return TB @ np.linalg.inv(second)
    values, basis = np.linalg.eigh(second)
    noise = np.exp(params.log_noise)[params.noise_group]
    ridge = prior.loading_precision * noise[:, :, None] / np.maximum(counts, 1e-300)[:, None, None]
    return ((TB @ basis) / (values[:, None, :] + ridge)) @ np.swapaxes(basis, 1, 2)
