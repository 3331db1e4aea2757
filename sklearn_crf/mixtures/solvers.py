"""Runs of one solver from one start: expectation-maximisation, L-BFGS, or stochastic gradients."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from sklearn_crf._threads import checkpoint
from sklearn_crf.mixtures.criteria import value_gradient
from sklearn_crf.mixtures.em import em_step
from sklearn_crf.mixtures.parameters import MixtureParameters
from sklearn_crf.mixtures.scaling import scales


class Run(NamedTuple):
    """Where a solver ended."""

    params: MixtureParameters
    losses: np.ndarray  # after every iteration: -(criterion + log prior) / total weight, from the start on
    converged: bool


class Loss:
    """Mean negative criterion minus log prior, over flat vectors; a non-finite value is a wall, not a NaN.

    Parameters
    ----------
    data : TrainingData
    criterion : Criterion
    prior : Prior
    packing : ParameterVector
    run : callable
        Maps a function over blocks.
    """

    def __init__(self, data, criterion, prior, packing, run=map):
        self.data, self.criterion, self.prior = data, criterion, prior
        self.packing, self.run = packing, run

    def __call__(self, vector, data=None):
        checkpoint()
        data = self.data if data is None else data
        params = self.packing.unpack(vector)
        value, gradient = value_gradient(params, data, self.criterion, self.run)
        flat = self.packing.pack_gradient(params, gradient) / data.total_weight
        # The prior belongs to all samples, so that a batch carries its share of it.
        share = 1.0 / self.data.total_weight
        _, _, means, loadings, _ = self.packing.split(flat)
        means -= self.prior.mean_precision * params.means * share
        loadings -= self.prior.loading_precision * params.loadings * share
        return -(value / data.total_weight + self.prior.log_density(params) * share), -flat

    def bounds(self):
        lower = np.full(self.packing.size, -np.inf)
        upper = np.full(self.packing.size, np.inf)
        low, high = self.prior.log_noise_bounds
        self.packing.split(lower)[4][...] = low
        self.packing.split(upper)[4][...] = high
        return lower, upper


def run_em(data, start, prior, *, max_iter, tol, run=map):
    """Expectation-maximisation of the joint likelihood until an iteration gains less than ``tol`` per sample."""
    # Noise below its floor would be lifted by the first step, and the likelihood would fall.
    params, losses = replace(start, log_noise=np.clip(start.log_noise, *prior.log_noise_bounds)), []
    for _ in range(max_iter):
        checkpoint()
        value, following = em_step(params, data, prior, run)
        losses.append(-value / data.total_weight)
        if len(losses) > 1 and losses[-2] - losses[-1] < tol:
            return Run(params, np.array(losses), True)
        params = following
    value, _ = em_step(params, data, prior, run)
    losses.append(-value / data.total_weight)
    return Run(params, np.array(losses), bool(losses[-2] - losses[-1] < tol))


def run_lbfgs(loss, start, *, max_iter, tol):
    """L-BFGS on the flat vector until no entry of the projected gradient exceeds ``tol``.

    Entries are divided by their standard errors at the start, see `scaling`; the gradient is that in these units.
    """
    lower, upper = loss.bounds()
    x0 = np.clip(loss.packing.pack(start), lower, upper)
    scale = scales(loss.packing, start, loss.data.class_weight / loss.data.total_weight)
    losses = [loss(x0)[0]]

    def scaled(z):
        value, gradient = loss(z * scale)
        return value, gradient * scale

    result = minimize(
        scaled,
        x0 / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([lower / scale, upper / scale]),
        callback=lambda intermediate_result: losses.append(intermediate_result.fun),
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol, "ftol": 1e-12, "maxcor": 20},
    )
    return Run(loss.packing.unpack(result.x * scale), np.array(losses), bool(result.status == 0))
