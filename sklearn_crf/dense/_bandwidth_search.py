"""Choice of the bandwidths of kernels by the loss on held-out examples."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state


class BandwidthSearch(BaseEstimator):
    r"""Coordinate search over bandwidths, by the loss on examples held out of training.

    .. math::
        \theta_p \leftarrow \theta_p \, \rho^{\pm 1} \quad \text{as long as } R_{\text{held out}} \text{ falls}

    Bandwidths are changed one after another, each by as many as ``max_steps`` factors in the direction in which the
    loss falls. Weights are trained for each choice, from those of the choice before.

    Parameters
    ----------
    validation_fraction : float, default=0.25
        Fraction of the labelled examples that is held out.
    factor : float, default=2.0
        :math:`\rho`, greater than 1.
    max_rounds : int, default=2
        Most passes over all bandwidths; the search ends earlier after a pass without improvement.
    max_steps : int, default=4
        Most steps of one bandwidth in a pass.
    random_state : int, RandomState instance or None, default=None
        Draws the held-out examples.

    Raises
    ------
    ValueError
        If an option is out of its range, or there are too few labelled examples.

    Examples
    --------
    >>> from sklearn_crf import DenseCRF
    >>> from sklearn_crf.dense import BandwidthSearch
    >>> DenseCRF(bandwidths=BandwidthSearch(random_state=0))
    DenseCRF(bandwidths=BandwidthSearch(random_state=0))
    """

    def __init__(
        self,
        validation_fraction: float = 0.25,
        factor: float = 2.0,
        max_rounds: int = 2,
        max_steps: int = 4,
        random_state=None,
    ):
        self.validation_fraction = validation_fraction
        self.factor = factor
        self.max_rounds = max_rounds
        self.max_steps = max_steps
        self.random_state = random_state

    def split(self, n_examples: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the examples held out and of those to train on.

        Parameters
        ----------
        n_examples : int
            Number of labelled examples.

        Returns
        -------
        held_out, kept : ndarray of int
            Both sorted.
        """
        self._check_options()
        n_held_out = max(1, round(self.validation_fraction * n_examples))
        if n_held_out >= n_examples:
            raise ValueError(
                f"BandwidthSearch needs labelled examples for training besides the {n_held_out} held out, got "
                f"{n_examples} in total: pass more examples or use bandwidths='given'."
            )
        order = check_random_state(self.random_state).permutation(n_examples)
        return np.sort(order[:n_held_out]), np.sort(order[n_held_out:])

    def choose(self, kernels, evaluate) -> tuple[list, list]:
        """Kernels with the bandwidths of least loss among those tried.

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
            Every choice tried and its loss.
        """
        self._check_options()
        best = list(kernels)
        least = evaluate(best)
        trace = [(repr(best), least)]
        coordinates = [(m, parameter) for m, kernel in enumerate(kernels) for parameter in kernel._bandwidths]
        for _ in range(self.max_rounds):
            before = least
            for m, parameter in coordinates:
                for factor in (self.factor, 1 / self.factor):
                    start = least
                    for _ in range(self.max_steps):
                        tried = [*best[:m], best[m]._scaled(parameter, factor), *best[m + 1 :]]
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

    def _check_options(self):
        if not isinstance(self.validation_fraction, Real) or not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}.")
        if not isinstance(self.factor, Real) or not 1 < self.factor < np.inf:
            raise ValueError(f"factor must be finite and greater than 1, got {self.factor!r}.")
        for name in ("max_rounds", "max_steps"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}.")
