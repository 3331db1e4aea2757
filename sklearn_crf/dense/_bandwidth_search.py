"""Choice of kernel bandwidths, by a search with held-out examples, or by a descent of the training loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from sklearn_crf._versions import HoldsOptions
from sklearn_crf.dense._gaussian_kernels import GaussianKernel, list_bandwidth_names, scale_kernels, scaled

_COUNT = [Interval(Integral, 1, None, closed="left")]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_ABOVE_ONE = [Interval(Real, 1, None, closed="neither")]


@dataclass(eq=False, repr=False)
class BandwidthSearch(HoldsOptions):
    r"""Coordinate search over bandwidths that minimises the loss on held-out examples.

    .. math::
        \theta_p \leftarrow \theta_p \, \rho^{\pm 1} \quad \text{as long as } R_{\text{held out}} \text{ falls}

    Bandwidths are changed one after another. Each is multiplied by up to ``max_steps`` factors in the direction in
    which the loss decreases. Weights are trained for each choice, starting from the weights of the previous choice.

    Parameters
    ----------
    validation_fraction : float, default=0.25
        Fraction of the labelled examples to hold out.
    factor : float, default=2.0
        Factor :math:`\rho` of a step, greater than 1.
    max_rounds : int, default=2
        Maximum number of passes over all bandwidths. The search stops after a pass without improvement.
    max_steps : int, default=4
        Maximum number of steps for one bandwidth in a pass.
    random_state : int, RandomState instance or None, default=None
        Determines the held-out examples.

    Raises
    ------
    InvalidParameterError
        If an option is out of its range.
    ValueError
        If there are too few labelled examples.

    Examples
    --------
    >>> from sklearn_crf import DenseCRF
    >>> from sklearn_crf.dense import BandwidthSearch
    >>> DenseCRF(bandwidths=BandwidthSearch(random_state=0))
    DenseCRF(bandwidths=BandwidthSearch(random_state=0))
    """

    _parameter_constraints: ClassVar[dict] = {
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "factor": _ABOVE_ONE,
        "max_rounds": _COUNT,
        "max_steps": _COUNT,
        "random_state": ["random_state"],
    }

    validation_fraction: float = 0.25
    factor: float = 2.0
    max_rounds: int = 2
    max_steps: int = 4
    random_state: int | np.random.RandomState | None = None

    def split(self, n_examples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the held-out examples and of the training examples.

        Parameters
        ----------
        n_examples : int
            Number of labelled examples.

        Returns
        -------
        held_out, kept : ndarray of int
            Sorted indices.
        """
        self._validate_params()
        n_held_out = max(1, round(self.validation_fraction * n_examples))
        if n_held_out >= n_examples:
            raise ValueError(
                f"BandwidthSearch needs labelled examples for training besides the {n_held_out} held out, got "
                f"{n_examples} in total: pass more examples or use bandwidths='given'."
            )
        order = check_random_state(self.random_state).permutation(n_examples)
        return np.sort(order[:n_held_out]), np.sort(order[n_held_out:])

    def choose(self, kernels: Sequence[GaussianKernel], evaluate: Callable[[list], float]) -> tuple[list, list]:
        """Return the kernels with the smallest loss among all kernels tried.

        Parameters
        ----------
        kernels : sequence of Spatial and Bilateral
            Start of the search.
        evaluate : callable(kernels) -> float
            Held-out loss after training with these kernels.

        Returns
        -------
        kernels : list of Spatial and Bilateral
        trace : list of (str, float)
            All kernels tried, with their loss.
        """
        self._validate_params()
        best = list(kernels)
        least = evaluate(best)
        trace = [(repr(best), least)]
        coordinates = [(m, parameter) for m, kernel in enumerate(kernels) for parameter in list_bandwidth_names(kernel)]
        for _ in range(self.max_rounds):
            before = least
            for m, parameter in coordinates:
                for factor in (self.factor, 1 / self.factor):
                    start = least
                    for _ in range(self.max_steps):
                        tried = [*best[:m], scaled(best[m], parameter, factor), *best[m + 1 :]]
                        loss = evaluate(tried)
                        trace.append((repr(tried), loss))
                        if not loss < least:
                            break
                        best, least = tried, loss
                    if least < start:
                        break
            if not least < before:
                break
        return best, trace


@dataclass(eq=False, repr=False)
class BandwidthGradient(HoldsOptions):
    r"""Quasi-Newton descent, which minimises the training loss over the logarithms of the bandwidths.

    .. math::
        \frac{\partial}{\partial \log \theta_a} \sum_{i,j} g_i \, k(i, j) \, q_j
            = \sum_{i,j} g_i \, k(i, j) \, (f_{ia} - f_{ja})^2 \, q_j, \qquad f_{ia} = x_{ia} / \theta_a

    The derivative is propagated through all mean-field updates and the normalisation of the kernel. Its sums over pairs
    are computed by filtering :math:`q`, :math:`f_a q` and :math:`f_a^2 q`. The result is the derivative of the exact
    kernel, up to the error of the filter. The lattice approximation is not differentiated, as it is not smooth. Weights
    are trained again for each choice of bandwidths, by at most ten iterations of L-BFGS from the best weights so far.
    BFGS steps within a trust region are accepted if the training loss with the new bandwidths has decreased; otherwise
    they are halved.

    Parameters
    ----------
    max_iter : int, default=20
        Maximum number of bandwidth choices that are tried after the first choice.
    max_step : float, default=0.5
        Maximum change of the logarithm of a bandwidth in the first step; each accepted step doubles this maximum.
    tol : float, default=0.02
        The descent stops when no logarithm would change by more than this tolerance.
    max_factor : float, default=100.0
        Bandwidths stay within this factor of the given bandwidths.

    Raises
    ------
    InvalidParameterError
        If an option is out of its range.

    References
    ----------
    P. Krähenbühl & V. Koltun (2013). Parameter learning and convergent inference for dense random fields. ICML,
    513-521: derivatives through the updates.

    Examples
    --------
    >>> from sklearn_crf import DenseCRF
    >>> from sklearn_crf.dense import BandwidthGradient
    >>> DenseCRF(bandwidths=BandwidthGradient(max_iter=10))
    DenseCRF(bandwidths=BandwidthGradient(max_iter=10))
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_iter": _COUNT,
        "max_step": _POSITIVE,
        "tol": _POSITIVE,
        "max_factor": _ABOVE_ONE,
    }

    max_iter: int = 20
    max_step: float = 0.5
    tol: float = 0.02
    max_factor: float = 100.0

    def descend(
        self, kernels: Sequence[GaussianKernel], value_grad: Callable[[list], tuple[float, np.ndarray]]
    ) -> tuple[list, list]:
        """Return the kernels with the smallest training loss among all kernels tried.

        Parameters
        ----------
        kernels : sequence of Spatial and Bilateral
            Start of the descent.
        value_grad : callable(kernels) -> (float, ndarray of shape (n_bandwidths,))
            Training loss with these kernels, and its derivative with respect to the logarithm of each bandwidth, in the
            order of the kernels. A bandwidth given per axis has one derivative per axis.

        Returns
        -------
        kernels : list of Spatial and Bilateral
        trace : list of (str, float)
            All kernels tried, with their loss.
        """
        self._validate_params()
        best = list(kernels)
        least, slope = value_grad(best)
        trace = [(repr(best), least)]
        at, radius, bound = np.zeros(len(slope)), self.max_step, np.log(self.max_factor)
        inverse_hessian = None
        for _ in range(self.max_iter):
            step = np.clip(at + _compute_quasi_newton_step(inverse_hessian, slope, radius), -bound, bound) - at
            if not np.abs(step).max(initial=0) > self.tol:
                break
            tried = scale_kernels(kernels, np.exp(at + step))
            loss, slope_there = value_grad(tried)
            trace.append((repr(tried), loss))
            # The gradient at a rejected point is also used, because it contains information about the curvature.
            inverse_hessian = _update_inverse_hessian(inverse_hessian, step, slope_there - slope)
            if loss < least:
                at, best, least, slope = at + step, tried, loss, slope_there
                radius *= 2
            else:
                radius = np.abs(step).max() / 2
        return best, trace


def _compute_quasi_newton_step(inverse_hessian, slope, radius):
    """Return the quasi-Newton step, shortened if an entry would exceed the radius."""
    if inverse_hessian is None:
        largest = np.abs(slope).max(initial=0)
        return -slope * (radius / largest if largest > 0 else 0)
    step = -inverse_hessian @ slope
    return step * min(1, radius / max(np.abs(step).max(), np.finfo(float).tiny))


def _update_inverse_hessian(inverse_hessian, step, change):
    """Return the updated inverse Hessian, or the unchanged one if the curvature along the step is not positive."""
    curvature = step @ change
    if not curvature > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
        return inverse_hessian
    if inverse_hessian is None:
        inverse_hessian = np.eye(len(step)) * curvature / (change @ change)
    turned = np.eye(len(step)) - np.outer(step, change) / curvature
    return turned @ inverse_hessian @ turned.T + np.outer(step, step) / curvature
