"""From labelled samples to the best of several restarts, in standardised units."""

from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from sklearn_crf._threads import checkpoint, even_map, map_tasks, single_threaded_blas
from sklearn_crf.mfa._criteria import Criterion, group_sums, value_gradient
from sklearn_crf.mfa._densities import blocks_of_columns, missing_patterns, precisions, with_ones
from sklearn_crf.mfa._em import em_step
from sklearn_crf.mfa._parameters import MixtureParameters, ParameterVector, Prior
from sklearn_crf.mfa._standardise import Units
from sklearn_crf.mfa._start import (
    kmeans_partition,
    nearest_partition,
    random_partition,
    start_parameters,
)


class Block(NamedTuple):
    """Samples of one class."""

    label: int
    samples: np.ndarray  # (d + 1, n), the last row is 1
    weight: np.ndarray  # (n,)


class Pattern(NamedTuple):
    """Blocks that have the same features observed."""

    features: object  # the full slice or an index array
    blocks: list


class TrainingData:
    """Samples in the layout that every pass over them uses.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        May hold NaN: a missing value.
    labels : ndarray of shape (n,), int
    weight : ndarray of shape (n,)
    n_classes : int
    width : int
        Numbers that a pass writes for one sample; decides how long blocks are.
    """

    def __init__(self, X, labels, weight, n_classes, width):
        self.n_features = X.shape[1]
        self.class_weight = np.bincount(labels, weights=weight, minlength=n_classes)
        self.total_weight = float(self.class_weight.sum())
        self.patterns = []
        for features, rows in missing_patterns(X):
            blocks = []
            for c in range(n_classes):
                own = rows[labels[rows] == c]
                for part in blocks_of_columns(len(own), width) if len(own) else []:
                    samples = with_ones(X[own[part]][:, features])
                    blocks.append(Block(c, samples, weight[own[part]]))
            self.patterns.append(Pattern(features, blocks))

    @property
    def complete(self):
        """Whether no value is missing."""
        return len(self.patterns) == 1 and isinstance(self.patterns[0].features, slice)


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


def run_sgd(loss, start, X, labels, weight, *, max_iter, tol, batch_size, learning_rate, seed):
    """Epochs over shuffled samples until the full loss has gained less than ``tol`` for five epochs.

    Parameters
    ----------
    loss : Loss
    start : MixtureParameters
    X, labels, weight : ndarray
        The samples that ``loss`` holds.
    max_iter : int
        Number of epochs.
    tol : float
    batch_size : int
    learning_rate : float
        Adam's step in the first epoch; in units of standardised features.
    seed : int

    Returns
    -------
    Run
        With the best parameters found at the end of an epoch.
    """
    rng = np.random.default_rng(seed)
    lower, upper = loss.bounds()
    x = np.clip(loss.packing.pack(start), lower, upper)
    moments, n_steps = np.zeros((2, x.size)), 0
    losses, best, stale = [loss(x)[0]], x, 0
    n_batches = -(-len(X) // batch_size)
    n_classes = loss.packing.shapes[0][0]
    mean_weight = weight.mean()
    for epoch in range(max_iter):
        step = learning_rate / np.sqrt(1 + epoch)
        for rows in np.array_split(rng.permutation(len(X)), n_batches):
            batch = TrainingData(X[rows], labels[rows], weight[rows], n_classes, 1)
            # Normalised by the expected weight of a batch: weights then count in proportion, whoever shares the batch.
            batch.total_weight = mean_weight * len(rows)
            _, gradient = loss(x, batch)
            n_steps += 1
            x = np.clip(x - step * _adam(moments, gradient, n_steps), lower, upper)
        value, _ = loss(x)
        if not np.isfinite(value):  # steps too long; what comes after is no better
            break
        losses.append(value)
        stale = 0 if losses[-1] < min(losses[:-1]) - tol else stale + 1
        if losses[-1] <= min(losses):
            best = x
        if stale == 5:
            break
    return Run(loss.packing.unpack(best), np.array(losses), stale == 5)


def _adam(moments, gradient, n_steps, decay=(0.9, 0.999)):
    moments[0] += (1 - decay[0]) * (gradient - moments[0])
    moments[1] += (1 - decay[1]) * (gradient**2 - moments[1])
    mean, square = moments[0] / (1 - decay[0] ** n_steps), moments[1] / (1 - decay[1] ** n_steps)
    return mean / (np.sqrt(square) + 1e-8)


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
