"""Growing the trees of a regression tree field: every leaf split where the gradient grows most."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, range_runner, split_threads
from sklearn_crf.kernels.leaf_models import find_responses
from sklearn_crf.potentials._precision_slopes import slope_terms
from sklearn_crf.potentials._regression_tree_field import factor_terms
from sklearn_crf.regression_trees._split_search import (
    GradientNorm,
    all_tests,
    best_split,
    explained_variance,
    random_tests,
)

# Fewest factors of a leaf for each weight that it adds to a value's linear model.
_SAMPLES_PER_WEIGHT = 10


class GrowthOptions(NamedTuple):
    """Constructor parameters that govern the search for splits."""

    n_feature_tests: int | None
    n_thresholds: int
    feature_radius: int
    split_samples: int | None
    min_samples_leaf: int | None
    bounds: tuple
    criterion: str = "gradient"


def find_splits(risk, trees, coef, max_depths, options, rng):
    """The best split of each leaf, for each type.

    Parameters
    ----------
    risk : FieldRisk
    trees : list of RegressionTree
    coef : ndarray of shape (n_coef,)
    max_depths : list of int
        Trees of this depth stay as they are.
    options : GrowthOptions
    rng : RandomState

    Returns
    -------
    list of dict
        As :meth:`RegressionTree.split` takes them, one for each type.
    """
    statistics = risk.statistics(coef) if options.criterion == "gradient" else None
    parameters = risk.potentials.unpack(coef)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(trees))

    def search(number, run):
        if trees[number].depth >= max_depths[number]:
            return {}
        own = np.random.RandomState(seeds[number])
        return _splits_of_type(risk, statistics, number, parameters[number], options, own, run)

    # One type after the other, on all threads: there are few types, and the terms of one take some ten megabytes.
    with range_runner(split_threads(risk.n_jobs, 1)[1]) as run:
        return [search(number, run) for number in range(len(trees))]


def _splits_of_type(risk, statistics, number, parameters, options, rng, run):
    counts = np.array([len(image.leaves[number]) for image in risk.images])
    n_factors = int(counts.sum())
    if n_factors == 0:
        return {}
    limit = n_factors if options.split_samples is None else min(options.split_samples, n_factors)
    chosen = np.arange(n_factors) if limit == n_factors else np.sort(rng.choice(n_factors, limit, replace=False))
    share = limit / n_factors
    n_channels = risk.images[0].features.shape[2]
    radius = _radius(risk.images, options.feature_radius)
    if options.n_feature_tests is None:
        tests = all_tests(n_channels, radius)
    else:
        tests = random_tests(options.n_feature_tests, n_channels, radius, rng)
    terms, responses, leaf = _gather(risk, statistics, number, chosen, counts, tests, share)
    precision, slopes = parameters.precision, parameters.slopes
    bounds = np.searchsorted(leaf, np.arange(len(precision) + 1))
    least = options.min_samples_leaf
    if least is None:
        least = _SAMPLES_PER_WEIGHT * parameters.weight.shape[2]
    splits = {}
    for k, (first, last) in enumerate(pairwise(bounds)):
        if last - first < 2:
            continue
        joint = options.criterion == "gradient"
        found = best_split(
            terms[first:last],
            responses[:, first:last],
            GradientNorm(precision[k], options.bounds, slopes[k]) if joint else explained_variance,
            n_thresholds=options.n_thresholds,
            min_samples=least * share,
            run=run,
        )
        if found is not None:
            splits[k] = tests[found.test], found.threshold
    return splits


def _radius(images, radius):
    """No farther than images reach: a chain has one row, a table no neighbours at all."""
    if images[0].graph.n_edges == 0 and images[0].features.shape[0] == 1:
        return 0, 0
    return tuple(min(radius, max(image.features.shape[axis] for image in images) - 1) for axis in (0, 1))


def _gather(risk, statistics, number, chosen, counts, tests, share):
    """Terms of the criterion, responses and leaves of chosen factors of a type, in the order of their leaves."""
    kind = risk.potentials.types[number]
    dtype = risk.images[0].features.dtype
    starts = np.concatenate(([0], np.cumsum(counts)))
    bounds = np.searchsorted(chosen, starts)
    members = [chosen[bounds[k] : bounds[k + 1]] - starts[k] for k in range(len(counts))]
    leaf = np.concatenate([image.leaves[number][own] for image, own in zip(risk.images, members, strict=True)])
    order = np.argsort(leaf, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    terms = np.empty((len(chosen), _n_terms(risk, statistics, number)), dtype=dtype)
    responses = np.empty((len(tests), len(chosen)), dtype=dtype)

    def of_image(k, n_threads):
        image, own, target = risk.images[k], members[k], place[bounds[k] : bounds[k + 1]]
        top, left, _, columns = kind.rectangle(image.features.shape)
        pixels = np.stack([top + own // columns, left + own % columns], axis=1).astype(np.int32)
        weight = risk.factor_weights(k, kind)[own]
        if statistics is None:
            parts = weight[:, None] * _factor_values(risk, k, kind)[own]
        else:
            parts = _gradient_terms(risk, statistics[k], image, number, own, pixels) / share
        terms[target] = np.concatenate([weight[:, None], parts], axis=1)
        find_responses(image.features, pixels, tests, target, responses)

    map_tasks(of_image, np.flatnonzero(np.diff(bounds)).tolist(), risk.n_jobs)
    return terms, responses, leaf[order]


def _n_terms(risk, statistics, number):
    """One for the weight, and the others that the criterion is a function of."""
    kind, n_values = risk.potentials.types[number], risk.potentials.n_values
    size = n_values * (2 if kind.paired else 1)
    if statistics is None:
        return 1 + size
    return 1 + size * (size * (1 + len(kind.multipliers)) + len(risk.potentials.whitening[number]))


def _gradient_terms(risk, statistics, image, number, own, pixels):
    """What each factor adds to the gradient: the derivatives by precision, slopes and linear model."""
    kind, white = risk.potentials.types[number], risk.potentials.whitening[number]
    slope, square = (part[own] for part in factor_terms(statistics, image, risk.potentials.types, number))
    inputs = kind.inputs(image.seen(kind), pixels) @ white.T.astype(image.features.dtype)
    linear = slope[:, :, None] * inputs[:, None, :]
    multipliers = kind.multiplied_by(image.features)[own]
    parts = square, slope_terms(multipliers, square), linear
    return np.concatenate([part.reshape(len(own), -1) for part in parts], axis=1)


def _factor_values(risk, k, kind):
    """Targets of the factors of a type on image k."""
    plane = risk.images[k].features.shape[:2]
    target = risk.targets[k].reshape(*plane, -1)
    return np.concatenate([target[end].reshape(-1, target.shape[2]) for end in kind.ends(plane)], axis=1)
