"""Training on standardised features: the best of several restarts, or a single pass for partial_fit."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from sklearn_crf._threads import count_threads, limit_blas_threads, make_even_map, map_coarse, map_tasks, split_threads
from sklearn_crf.mfa import _start, _tuning
from sklearn_crf.mfa._densities import compute_joint_log_density
from sklearn_crf.mfa._parameters import MixtureParameters
from sklearn_crf.mfa._plan import Choice, MixturePlan
from sklearn_crf.mfa._samples import SampleBlocks, StandardisedSamples, TrainingData
from sklearn_crf.mfa._solvers import NegativeCriterion, ScaledCriterion, ignore_iterations
from sklearn_crf.mfa._tuning import BATCH_SIZE, STEP_SIZE
from sklearn_crf.optimize import AdaGradState, adagrad_steps


def find_starts(samples, family, init, seeds, n_jobs=None):
    """Find the initial values of each restart; they depend on the seed of the restart, but not on the criterion."""
    if isinstance(init, MixtureParameters):
        return [samples.units.to_standard(init) for _ in seeds]
    n_classes = int(samples.labels.max()) + 1

    def of_class(task):
        seed, c = task
        if isinstance(init, dict):
            means = (init["means"] - samples.units.mean) / samples.units.scale
            assign = partial(_start.nearest_centres, centres=means[c])
        elif init == "random":
            assign = partial(_start.nearest_centres, n_components=family.n_components, seed=(seed, c))
        else:
            assign = _start.make_kmeans_partition(family.n_components, seed)
        shape = {"n_components": family.n_components, "n_factors": family.n_factors}
        return _start.find_class_start(c, samples.X, samples.labels, samples.weight, assign, **shape, seed=seed)

    mapped = make_even_map(count_threads(n_jobs))
    with limit_blas_threads(), _explain_singular_covariances():
        found = list(mapped(of_class, [(seed, c) for seed in seeds for c in range(n_classes)]))
    of_seeds = [found[first : first + n_classes] for first in range(0, len(found), n_classes)]
    starts = [_start.combine_class_starts(classes, family.noise, family.prior.noise_floor) for classes in of_seeds]
    return (
        [_replace_given_parameters(start, init, samples.units) for start in starts]
        if isinstance(init, dict)
        else starts
    )


def _replace_given_parameters(start, given, units):
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


def train(data, plan, on_iteration=ignore_iterations, starts=None):
    """Run all restarts in parallel, and return the result of each restart."""
    # starts: list of pairs of initial parameters and a seed; if None, found from the plan
    family = plan.family
    if starts is None:
        found = find_starts(data.samples, family, plan.init, plan.seeds, plan.n_jobs)
        starts = list(zip(found, plan.seeds, strict=True))
    # Restarts on shards run one after the other, because each restart needs sums over all shards.
    n_jobs = plan.n_jobs if data.is_in_memory else 1
    # Use threads if there is a callback, because other processes could not report iterations.
    map_restarts = map_coarse if data.is_in_memory and on_iteration is ignore_iterations else map_tasks
    shape = int(data.present.sum()), len(data.constant)
    packing = family.packing(*shape)
    with data.blocks() as blocks:

        def restart(task, n_threads):
            start, seed = task
            with _explain_singular_covariances():
                objective = NegativeCriterion(data.samples, blocks, family.criterion, family.prior, packing, n_threads)
                limits = {"max_iter": plan.max_iter, "tol": plan.tol, "seed": seed}
                return plan.solver.minimize(objective, start, **limits, on_iteration=on_iteration)

        # If there are fewer remaining restarts than threads, give each restart several threads.
        n_together = len(starts) - len(starts) % split_threads(n_jobs, len(starts))[0]
        lots = starts[:n_together], starts[n_together:]
        with limit_blas_threads():
            return [end for lot in lots for end in map_restarts(restart, lot, n_jobs)]


def choose(data: TrainingData, asked: Choice, plan_of: Callable[[Choice], MixturePlan], n_jobs: int | None) -> Choice:
    """Choose the parameters that are "auto", and a temperature, by the log-loss of held-out samples.

    The noise and ``alpha`` are chosen with the smallest number of components. Components are then added as long as the
    log-loss decreases.
    """
    # asked: Choice; plan_of: function of a Choice that returns a plan of one restart
    # returns: Choice
    # Copies of a sample are held out together, so that copies have the same effect as a larger weight.
    samples, least = data.samples, asked.without_auto.n_components
    ranks, counts = _ranks(samples)
    if not asked.is_open or counts.min() < _tuning.FOLDS * (least + 1):
        return asked.without_auto
    chosen = ranks < _tuning.CHOICE_SAMPLES // len(counts)
    samples, fold_of = samples.batch(chosen), ranks[chosen] % _tuning.FOLDS

    def scores(task: tuple[Choice, int], n_threads: int) -> np.ndarray:
        """Return, for the samples in a fold, log joint probabilities (n, n_classes), or NaN if training fails."""
        candidate, fold = task
        own = samples.batch(fold_of != fold)
        part = TrainingData.of({}, np.arange(len(counts)), own.labels, own.weight, own.X)
        # A feature that is constant in the training samples gives no information about the held-out samples.
        held_out = np.where(part.constant, 0.0, part.samples.units.standardise(samples.X[fold_of == fold]))
        # Start as the final fit does, because the result of short discriminative training depends on the start.
        plan = replace(plan_of(candidate), n_jobs=1)
        try:
            return compute_joint_log_density(train(part, plan)[0].params, held_out, 1)
        except ValueError:  # a covariance is singular
            return np.full((len(held_out), len(counts)), np.nan)

    by_fold = np.argsort(fold_of, kind="stable")
    truth, weight = samples.labels[by_fold], samples.weight[by_fold]

    def best_of_candidates(candidates: list[Choice]) -> tuple[float, Choice]:
        """Return the smallest log-loss of the candidates, and the choice and temperature that attain this log-loss."""
        found = map_coarse(scores, [(each, fold) for each in candidates for fold in range(_tuning.FOLDS)], n_jobs)
        losses = []
        for i, each in enumerate(candidates):
            of_folds = np.concatenate(found[i * _tuning.FOLDS : (i + 1) * _tuning.FOLDS])
            loss, temperature = _fit_temperature(of_folds, truth, weight)
            losses.append((loss, each._replace(temperature=temperature)))
        return min(losses, key=itemgetter(0))

    noises = ("class", "tied") if asked.noise == "auto" else (asked.noise,)
    alphas = _tuning.ALPHAS if asked.alpha == "auto" else (asked.alpha,)
    loss, best = best_of_candidates([Choice(least, noise, alpha) for noise in noises for alpha in alphas])
    while asked.n_components == "auto" and counts.min() >= _tuning.FOLDS * (best.n_components + 2):
        following_loss, following = best_of_candidates([best._replace(n_components=best.n_components + 1)])
        if not following_loss < loss:
            break
        loss, best = following_loss, following
    return best if np.isfinite(loss) else asked.without_auto


def _ranks(samples: StandardisedSamples) -> tuple[np.ndarray, np.ndarray]:
    """Rank the distinct samples of each class; return the rank of each sample, and the number of ranks per class."""
    rows = np.column_stack([samples.labels, np.where(np.isnan(samples.X), np.inf, samples.X)])
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    counts = np.bincount(distinct[:, 0].astype(int))
    # Samples with successive ranks have similar features, so folds that take ranks in turn are similar to each other.
    return place.ravel() - (np.cumsum(counts) - counts)[samples.labels], counts


def _fit_temperature(log_joint: np.ndarray, truth: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Find the temperature, at least 1, that minimises the log-loss; return the log-loss and the temperature."""

    def loss(log_temperature: float) -> float:
        scores = log_joint / np.exp(log_temperature)
        own = scores[np.arange(len(truth)), truth]
        return float(weight @ np.minimum(logsumexp(scores, axis=1) - own, _tuning.LARGEST_LOSS) / weight.sum())

    if not np.isfinite(log_joint).all():
        return np.inf, 1.0
    found = minimize_scalar(loss, bounds=(0.0, 5.0), method="bounded")
    return min((loss(0.0), 1.0), (float(found.fun), float(np.exp(found.x))))


def choose_best_restart(ends):
    """Return the restart with the smallest loss, or raise ValueError if no loss is finite."""
    losses = np.array([end.losses.min() for end in ends])
    if not np.isfinite(losses).any():
        raise ValueError(
            "the training criterion is not finite at the initial values: use init to pass initial values closer to "
            "the samples."
        )
    return ends[int(np.nanargmin(losses))]


def make_online_pass(samples, family, n_classes, find_start, former, rng):
    """Make one step for each mini-batch of samples, in random order; return averaged parameters and the next state."""
    # find_start: function without arguments that returns the parameters before the first step
    # former: state after the previous pass, None in the first pass; rng: RandomState that determines the order
    # returns: parameters, and the state for the next pass as a dict of arrays and numbers
    shape = n_classes, samples.X.shape[1]
    packing = family.packing(*shape)
    data = SampleBlocks(samples.X, samples.labels, samples.weight, n_classes)
    objective = NegativeCriterion(samples, data, family.criterion, family.prior, packing)
    if former is None:
        problem = ScaledCriterion(objective, find_start())
        state, weight = AdaGradState.at(problem.start), 0.0
    else:
        problem = ScaledCriterion(objective, packing.unpack(former["x"]), former["lengths"])
        x, average = (problem.coordinates(former[name]) for name in ("x", "average"))
        state, weight = AdaGradState(x, average, former["squares"], former["n_steps"]), former["weight"]
    weight += data.total_weight
    objective.prior_share = 1.0 / weight
    order = rng.permutation(len(samples.X))
    batches = [order[first : first + BATCH_SIZE] for first in range(0, len(order), BATCH_SIZE)]
    with limit_blas_threads(), _explain_singular_covariances():
        options: dict[str, Any] = {"step_size": STEP_SIZE, "project": problem.project}
        state = adagrad_steps(lambda rows, z: problem.of_rows(rows, z)[1], state, batches, **options)
    following = {
        "x": problem.vector(state.x),
        "average": problem.vector(state.average),
        "squares": state.squares,
        "n_steps": state.n_steps,
        "lengths": problem.lengths,
        "weight": float(weight),
    }
    return problem.params(state.average), following


@contextmanager
def _explain_singular_covariances():
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance of a component became singular: increase Priors(noise_floor=...), decrease n_factors or"
            " n_components, or share noise between components."
        ) from error
