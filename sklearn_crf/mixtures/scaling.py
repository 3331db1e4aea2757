"""Scales of the parameters for L-BFGS, from the Fisher information of the start.

A mean moves by little where its cluster is narrow and by much where it is wide, and a loading likewise. In units of
one standard error every direction counts about the same, and L-BFGS needs a half to a quarter of the iterations.
"""

from dataclasses import replace

import numpy as np

from sklearn_crf.mixtures.criteria import group_sums
from sklearn_crf.mixtures.densities import precisions


def fisher_information(params, class_weight):
    """Diagonal of the Fisher information per sample of labelled samples whose components are known.

    For a Gaussian it is ``Sigma^-1_jj`` in a mean, ``Sigma^-1_jj (L' Sigma^-1 L)_kk`` in a loading (without the term
    that is of second order in the inverse) and ``(Psi_jj Sigma^-1_jj)^2 / 2`` in the logarithm of the noise.

    Parameters
    ----------
    params : MixtureParameters
    class_weight : ndarray of shape (C,)
        Share of every class, summing to 1.

    Returns
    -------
    MixtureParameters
        With information in place of parameters.
    """
    precision = precisions(params)
    share = class_weight[:, None] * np.exp(params.log_weights)
    n = share.ravel()[:, None]
    inverse = precision.inverse_noise - np.einsum("sjp,sjp->sj", precision.projections, precision.projections)
    explained = np.einsum("sjp,sjp->sp", precision.projections @ precision.rotations, params.loadings)
    noise = np.exp(params.log_noise)[params.noise_group]
    return replace(
        params,
        log_prior=class_weight * (1 - class_weight),
        log_weights=share,
        means=n * inverse,
        loadings=n[:, :, None] * inverse[:, :, None] * explained[:, None, :],
        log_noise=group_sums(0.5 * n * np.square(noise * inverse), params.noise_group),
    )


def scales(packing, params, class_weight):
    """Standard errors of one sample for every entry of the flat vector; those of next to no information are bounded.

    Parameters
    ----------
    packing : ParameterVector
    params : MixtureParameters
    class_weight : ndarray of shape (C,)

    Returns
    -------
    ndarray of shape (packing.size,)
    """
    information = packing.pack(fisher_information(params, class_weight))
    return 1 / np.sqrt(np.maximum(information, 1e-6 * information.max()))
