"""From labelled samples to the best of several restarts, in standardised units."""

from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import even_map, map_tasks, single_threaded_blas
from sklearn_crf.mixtures.criteria import Criterion
from sklearn_crf.mixtures.parameters import MixtureParameters, ParameterVector
from sklearn_crf.mixtures.priors import Prior
from sklearn_crf.mixtures.sgd import run_sgd
from sklearn_crf.mixtures.solvers import Loss, run_em, run_lbfgs
from sklearn_crf.mixtures.standardise import Units
from sklearn_crf.mixtures.start import (
    kmeans_partition,
    nearest_partition,
    random_partition,
    start_parameters,
)
from sklearn_crf.mixtures.training_data import TrainingData


class Samples(NamedTuple):
    """Labelled samples in standardised units; every label from 0 on occurs."""

    X: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    units: Units


class Model(NamedTuple):
    """The family of densities, the criterion and the prior."""

    n_components: int
    n_factors: int
    noise: str
    criterion: Criterion
    prior: Prior


class Search(NamedTuple):
    """How the criterion is maximised."""

    solver: str
    max_iter: int
    tol: float
    batch_size: int
    learning_rate: float


def training_data(samples, model):
    """Samples in blocks of one class and one pattern of missing features."""
    n_classes = int(samples.labels.max()) + 1
    n_all = n_classes * model.n_components
    width = n_all * (model.n_factors + 2) + samples.X.shape[1]
    return TrainingData(samples.X, samples.labels, samples.weight, n_classes, width)


def find_start(samples, model, init, seed):
    """Initial values of one restart; the criterion plays no part in them.

    Parameters
    ----------
    samples : Samples
    model : Model
    init : {"kmeans", "random"}, dict of ndarray, or MixtureParameters
        A dict holds ``means`` and may hold the other parameters, in the units of the user.
    seed : int

    Returns
    -------
    MixtureParameters
    """
    if isinstance(init, MixtureParameters):
        return samples.units.to_standard(init)
    if isinstance(init, dict):
        means = (init["means"] - samples.units.mean) / samples.units.scale
        assign = nearest_partition(means)
    else:
        partition = {"kmeans": kmeans_partition, "random": random_partition}[init]
        assign = partition(model.n_components, seed)
    start = start_parameters(
        samples.X,
        samples.labels,
        samples.weight,
        assign,
        n_components=model.n_components,
        n_factors=model.n_factors,
        noise=model.noise,
        floor=model.prior.noise_floor,
        seed=seed,
    )
    return _with_given(start, init, samples.units) if isinstance(init, dict) else start


def _with_given(start, given, units):
    params = units.to_original(start)
    shapes = {"means": params.means.shape, "loadings": params.loadings.shape}
    parts = {name: given[name].reshape(shape) for name, shape in shapes.items() if name in given}
    if "noise_variance" in given:
        parts["log_noise"] = np.log(given["noise_variance"].reshape(params.log_noise.shape))
    if "weights" in given:
        parts["log_weights"] = np.log(given["weights"])
    if "class_prior" in given:
        parts["log_prior"] = np.log(given["class_prior"])
    return units.to_standard(replace(params, **parts))


def train(samples, model, search, init, seeds, *, n_jobs=None, verbose=0):
    """Restarts in parallel; the one that ends with the smallest loss, and the losses of all.

    Parameters
    ----------
    samples : Samples
    model : Model
    search : Search
    init : {"kmeans", "random"}, dict of ndarray, or MixtureParameters
    seeds : sequence of int
        One a restart.
    n_jobs : int or None
        Threads over restarts, what is left of them over blocks of samples.
    verbose : int

    Returns
    -------
    best : Run
    losses : ndarray of shape (n_restarts,)
    """
    data = training_data(samples, model)
    n_classes = len(data.class_weight)
    packing = ParameterVector(n_classes, model.n_components, data.n_features, model.n_factors, model.noise)

    def restart(seed, n_threads):
        start = find_start(samples, model, init, seed)
        with _singular_is_said(), even_map(n_threads) as run:
            if search.solver == "em":
                end = run_em(data, start, model.prior, max_iter=search.max_iter, tol=search.tol, run=run)
            else:
                loss = Loss(data, model.criterion, model.prior, packing, run)
                end = _by_gradient(loss, start, samples, search, seed)
        if verbose:
            state = "converged" if end.converged else "not converged"
            print(f"restart {seed}: loss {end.losses.min():.6f} after {len(end.losses) - 1} iterations, {state}")
        return end

    with single_threaded_blas():
        runs = map_tasks(restart, seeds, n_jobs)
    losses = np.array([run.losses.min() for run in runs])
    if not np.isfinite(losses).any():
        raise ValueError(
            "the criterion is not finite at the initial values; give others, nearer to the samples, by init."
        )
    return runs[int(np.nanargmin(losses))], losses


@contextmanager
def _singular_is_said():
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance of a component became singular; raise reg_covar, lower n_factors or n_components, or share "
            "noise."
        ) from error


def _by_gradient(loss, start, samples, search, seed):
    if search.solver == "lbfgs":
        return run_lbfgs(loss, start, max_iter=search.max_iter, tol=search.tol)
    return run_sgd(
        loss,
        start,
        samples.X,
        samples.labels,
        samples.weight,
        max_iter=search.max_iter,
        tol=search.tol,
        batch_size=search.batch_size,
        learning_rate=search.learning_rate,
        seed=seed,
    )
