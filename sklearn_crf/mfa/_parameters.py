"""Parameters of one mixture of factor analysers per class, and their layout in a flat vector."""

from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import log_softmax
from sklearn.utils._param_validation import Interval

from sklearn_crf._versions import HoldsOptions


@dataclass(eq=False, repr=False)
class Priors(HoldsOptions):
    r"""Gaussian priors on means and loadings, and the smallest noise variance, for `MultiConditionalMFA`.

    .. math::
        \log P(\theta) = -\sum_{s, j} \frac{(\mu_{sj} - m_j)^2}{2 a^2 v_j}
        - \sum_{s, j, k} \frac{\Lambda_{sjk}^2}{2 b^2 v_j} + \text{const}, \qquad \Psi_{jj} \ge r v_j

    with the mean :math:`m_j` and the variance :math:`v_j` of feature j.

    Parameters
    ----------
    mean_scale : float or None, default=None
        :math:`a`, the standard deviation of means, in units of the standard deviation of the feature; at least 1e-6.
        None is a flat prior.
    loading_scale : float or None, default=None
        :math:`b`, the standard deviation of loadings, in units of the standard deviation of the feature.
    noise_floor : float, default=1e-4
        :math:`r`, the smallest noise variance as a fraction of the variance of the feature.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import MultiConditionalMFA, Priors
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFA(1, priors=Priors(noise_floor=0.1), random_state=0)
    >>> model.set_params(priors__noise_floor=0.2).priors
    Priors(noise_floor=0.2)
    """

    # With a narrower prior, gradients would not be accurate enough.
    _scale: ClassVar = Interval(Real, 1e-6, None, closed="left")
    _parameter_constraints: ClassVar[dict] = {
        "mean_scale": [_scale, None],
        "loading_scale": [_scale, None],
        "noise_floor": [Interval(Real, 0, None, closed="left")],
    }

    mean_scale: float | None = None
    loading_scale: float | None = None
    noise_floor: float = 1e-4


class PriorPrecisions(NamedTuple):
    """Precisions of the Gaussian priors on means and on loadings, and a noise floor.

    The values are in units in which every feature has mean 0 and variance 1. A precision of 0 means a flat prior.
    """

    mean_precision: float
    loading_precision: float
    noise_floor: float

    @classmethod
    def of(cls, priors, factor):
        """Return prior precisions divided by ``factor``, for a criterion that was also divided by ``factor``."""
        scales = priors.mean_scale, priors.loading_scale
        means, loadings = (0.0 if scale is None else float(scale) ** -2 / factor for scale in scales)
        return cls(means, loadings, priors.noise_floor)

    def log_density(self, params):
        """Return the log-density of the priors, up to a constant."""
        return -0.5 * float(
            self.mean_precision * np.square(params.means).sum()
            + self.loading_precision * np.square(params.loadings).sum()
        )

    @property
    def log_noise_bounds(self):
        """Bounds on log noise, within which ``exp`` neither overflows nor underflows."""
        return float(np.log(max(self.noise_floor, 1e-30))), float(np.log(1e30))


NOISE_KINDS = ("tied", "class", "component")


@dataclass(frozen=True, eq=False)
class MixtureParameters:
    """Parameters of one mixture of factor analysers per class.

    The model is ``P(c) = exp(log_prior_c)``, ``P(s | c) = exp(log_weights_cs)`` and
    ``P(x | s) = N(mean_s, L_s L_s' + Psi_s)``.

    The components of all classes share one axis of length ``S = n_classes * n_components``, ordered by class
    (Kelm, Pal & McCallum 2006, Eq. (8)-(10)).
    """

    log_prior: np.ndarray  # (C,)
    log_weights: np.ndarray  # (C, K): log of the probabilities of the components within each class
    means: np.ndarray  # (S, d)
    loadings: np.ndarray  # (S, d, p)
    # (G, d): log of the diagonals of ``Psi``; ``G`` is 1 for tied, ``C`` for class, and ``S`` for component noise
    log_noise: np.ndarray

    @property
    def noise_group(self):
        """Row of ``log_noise`` that belongs to each component, (S,)."""
        n_groups = len(self.log_noise)
        return np.arange(len(self.means), dtype=np.int64) * n_groups // len(self.means)

    def restrict(self, features):
        """Return the parameters of the marginal distribution of the given features."""
        return replace(
            self,
            means=self.means[:, features],
            loadings=self.loadings[:, features],
            log_noise=self.log_noise[:, features],
        )

    def rescale(self, shift, scale):
        """Convert the parameters for samples ``x`` to the parameters for samples ``scale * x + shift``."""
        return replace(
            self,
            means=self.means * scale + shift,
            loadings=self.loadings * scale[:, None],
            log_noise=self.log_noise + 2 * np.log(scale),
        )

    def canonical(self):
        """Rotate the loadings so that ``L' Psi^-1 L`` is diagonal with decreasing entries, without changing densities.

        Loadings are defined up to a rotation of the factors; this choice makes them comparable between fits. The entry
        of largest magnitude in each column is positive.
        """
        if self.loadings.shape[2] == 0:
            return self
        scaled = self.loadings * np.exp(-0.5 * self.log_noise)[self.noise_group][:, :, None]
        _, rotation = np.linalg.eigh(np.swapaxes(scaled, 1, 2) @ scaled)
        loadings = self.loadings @ rotation[:, :, ::-1]
        largest = np.abs(loadings).argmax(axis=1)
        signs = np.sign(np.take_along_axis(loadings, largest[:, None, :], axis=1))
        return replace(self, loadings=loadings * np.where(signs == 0, 1.0, signs))


def count_noise_groups(noise, n_classes, n_components):
    """Return the number of distinct noise matrices ``Psi``."""
    return {"tied": 1, "class": n_classes, "component": n_classes * n_components}[noise]


class ParameterVector:
    """Conversion between parameters and flat vectors, which contain logits of probabilities and the log of ``Psi``."""

    def __init__(self, n_classes, n_components, n_features, n_factors, noise):
        n_all = n_classes * n_components
        self.shapes = (
            (n_classes,),
            (n_classes, n_components),
            (n_all, n_features),
            (n_all, n_features, n_factors),
            (count_noise_groups(noise, n_classes, n_components), n_features),
        )
        ends = np.cumsum([0] + [int(np.prod(shape)) for shape in self.shapes]).tolist()
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        self.size = ends[-1]

    def pack(self, params):
        parts = params.log_prior, params.log_weights, params.means, params.loadings, params.log_noise
        return np.concatenate([part.ravel() for part in parts])

    def split(self, vector):
        """Return views of the five parts of a flat vector."""
        return [vector[part].reshape(shape) for part, shape in zip(self._parts, self.shapes, strict=True)]

    def unpack(self, vector):
        prior, weights, means, loadings, log_noise = self.split(vector)
        return MixtureParameters(log_softmax(prior), log_softmax(weights, axis=1), means, loadings, log_noise)

    def pack_gradient(self, params, gradient):
        """Convert the gradient with respect to all parameters to the gradient with respect to the flat vector.

        With ``l = log_softmax(u)`` the chain rule gives ``g_u = g_l - softmax(u) sum(g_l)``.
        """
        prior, weights = gradient.log_prior, gradient.log_weights
        prior = prior - np.exp(params.log_prior) * prior.sum()
        weights = weights - np.exp(params.log_weights) * weights.sum(axis=1, keepdims=True)
        return self.pack(replace(gradient, log_prior=prior, log_weights=weights))
