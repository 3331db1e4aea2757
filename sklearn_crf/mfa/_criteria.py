"""The joint, conditional and multi-conditional likelihoods of labelled samples, and their gradients.

Every criterion has the form ``a L_cx - b L_x - g L_c`` (Kelm, Pal & McCallum 2006, Eq. 6, 7). Its derivative with
respect to the log-density of component ``s`` at sample ``i`` is therefore ``a P(s | c_i, x_i) - b P(s | x_i)``.
Gradients and expectation-maximisation only need moments of the data that are weighted by these numbers.
"""

from typing import NamedTuple

import numpy as np

from sklearn_crf.kernels.mfa.mixtures import weighted_moments
from sklearn_crf.mfa._densities import compute_score_forms
from sklearn_crf.mfa._parameters import MixtureParameters


class Criterion(NamedTuple):
    """Weights of the log-likelihoods in ``joint * L_cx - features * L_x - classes * L_c``."""

    joint: float
    features: float
    classes: float

    @classmethod
    def multi_conditional(cls, alpha):
        """Return the weights of the multi-conditional likelihood, Eq. (7).

        All weights are divided by ``1 + alpha``, so that the magnitude of the criterion hardly depends on ``alpha``.
        """
        return cls(1.0, 1.0 / (1.0 + alpha), alpha / (1.0 + alpha))


JOINT_LIKELIHOOD = Criterion(1.0, 0.0, 0.0)


def sum_noise_groups(values, group):
    """Sum the rows of ``values`` within each noise group; equal numbers in ``group`` are consecutive."""
    if group[0] == group[-1]:
        return values.sum(axis=0, keepdims=True)
    return np.add.reduceat(values, np.searchsorted(group, np.arange(group[0], group[-1] + 1)), axis=0)


def compute_pattern_moments(params, blocks, criterion, n_threads=1):
    """Return the criterion value, score forms and moments for all samples that share a missing-value pattern.

    The moments are sums over samples i of ``a_is`` times powers of ``x_i``, for each component ``s``.
    """
    # projected: (S, p + 1, d + 1), sums of (z, 1)(x, 1)' with z = V'(x - mu)
    # squares: (G, d), sums of x^2 over all components of a noise group
    forms, n_own = compute_score_forms(params), params.log_weights.shape[1]
    projected, squares = np.zeros_like(forms.linear), np.zeros_like(forms.inverse_noise)
    weights = criterion.joint, criterion.features
    value = weighted_moments(blocks, *forms[:3], n_own, *weights, projected, squares, n_threads)
    return value, forms, projected, squares


def compute_density_gradients(params, forms, projected, squares):
    """Compute the gradients of Eq. (15) to (17) from moments that are sums over all samples.

    Comments in the code use ``n = sum a``, ``S = sum a (x - mu)(x - mu)'`` and ``Sigma^-1 = D - V V'``.
    All products are of size d x p.
    """
    # counts: (S,)
    inverse_noise, V, rotations, _ = forms.precisions
    counts = projected[:, -1, -1]
    # S V, to which the sum of a (x - mu) is appended as a column, because the next steps multiply both by one matrix.
    SV = np.swapaxes(projected[:, :, :-1] - projected[:, :, -1:] * params.means[:, None], 1, 2)
    scaled = inverse_noise[:, :, None] * SV
    solved = scaled - V @ (np.swapaxes(V, 1, 2) @ SV)
    means = solved[:, :, -1]
    # (Sigma^-1 S - n I) V
    excess = solved[:, :, :-1] - counts[:, None, None] * V
    loadings = excess @ rotations
    # the diagonal of V V' S V V' + n V V' - 2 D S V V'
    low_rank = -np.einsum("sjp,sjp->sj", excess + scaled[:, :, :-1], V)
    centring = (2 * SV[:, :, -1] + counts[:, None] * params.means) * params.means
    groups = params.noise_group
    scatter = squares - sum_noise_groups(centring, groups)
    noise = np.exp(params.log_noise)
    total = sum_noise_groups(counts, groups)[:, None]
    log_noise = 0.5 * (scatter / noise - total + noise * sum_noise_groups(low_rank, groups))
    return counts, means, loadings, log_noise


def compute_value_gradient(params, data, criterion, n_threads=1):
    """Return the value and the gradient of the criterion that training maximises."""
    value = -criterion.classes * float(data.class_weight @ params.log_prior)
    log_weights = np.zeros_like(params.log_weights)
    means, loadings = np.zeros_like(params.means), np.zeros_like(params.loadings)
    log_noise = np.zeros_like(params.log_noise)
    for features, blocks in data.patterns:
        restricted = params.restrict(features)
        part, *moments = compute_pattern_moments(restricted, blocks, criterion, n_threads)
        counts, d_means, d_loadings, d_noise = compute_density_gradients(restricted, *moments)
        value += part
        log_weights += counts.reshape(log_weights.shape)
        means[:, features] += d_means
        loadings[:, features] += d_loadings
        log_noise[:, features] += d_noise
    log_prior = log_weights.sum(axis=1) - criterion.classes * data.class_weight
    return value, MixtureParameters(log_prior, log_weights, means, loadings, log_noise)
