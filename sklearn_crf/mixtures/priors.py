"""Priors that a generative parameterisation makes meaningful: where means lie, how long loadings are, least noise."""

from typing import NamedTuple

import numpy as np


class Prior(NamedTuple):
    """Independent ``N(0, 1 / mean_precision)`` on means and ``N(0, 1 / loading_precision)`` on loadings; a noise floor.

    In units in which every feature has mean 0 and variance 1. A precision of 0 is a flat prior.
    """

    mean_precision: float
    loading_precision: float
    noise_floor: float

    def log_density(self, params):
        """Up to a constant."""
        return -0.5 * float(
            self.mean_precision * np.square(params.means).sum()
            + self.loading_precision * np.square(params.loadings).sum()
        )

    @property
    def log_noise_bounds(self):
        """Bounds that also keep ``exp`` from under- and overflow where a criterion lets noise run away."""
        return float(np.log(max(self.noise_floor, 1e-30))), float(np.log(1e30))
