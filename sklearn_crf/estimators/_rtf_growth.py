"""Growing the trees of a regression tree field: every leaf split where the gradient grows most."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.kernels.leaf_models import find_responses
from sklearn_crf.potentials._regression_tree_field import factor_terms
from sklearn_crf.regression_trees._split_search import best_split, random_tests

# Fewest factors of a leaf for each weight that it adds to a value's linear model.
_SAMPLES_PER_WEIGHT = 10


class GrowthOptions(NamedTuple):
    """Constructor parameters that govern the search for splits."""

    n_feature_tests: int
    n_thresholds: int
    feature_radius: int
    split_samples: int | None
    min_samples_leaf: int | None
    bounds: tuple


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
    statistics = risk.statistics(coef)
    parameters = risk.potentials.unpack(coef)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(trees))

    def search(number, n_threads):
        if trees[number].depth >= max_depths[number]:
            return {}
        own = np.random.RandomState(seeds[number])
        return _splits_of_type(risk, statistics, number, parameters[number].precision, options, own)

    return map_tasks(search, range(len(trees)), risk.n_jobs)


def _splits_of_type(risk, statistics, number, precision, options, rng):
    counts = np.array([len(image.leaves[number]) for image in risk.images])
    n_factors = int(counts.sum())
    if n_factors == 0:
        return {}
    limit = n_factors if options.split_samples is None else min(options.split_samples, n_factors)
    chosen = np.arange(n_factors) if limit == n_factors else np.sort(rng.choice(n_factors, limit, replace=False))
    share = limit / n_factors
    n_channels = risk.images[0].features.shape[2]
    tests = random_tests(options.n_feature_tests, n_channels, _radius(risk.images, options.feature_radius), rng)
    n_weights = len(risk.potentials.whitening[number])
    terms, responses, leaf = _gather(risk, statistics, number, chosen, counts, tests)
    terms[:, 1:] /= share
    order = np.argsort(leaf, kind="stable")
    bounds = np.searchsorted(leaf[order], np.arange(len(precision) + 1))
    least = _SAMPLES_PER_WEIGHT * n_weights if options.min_samples_leaf is None else options.min_samples_leaf
    splits = {}
    for k in range(len(precision)):
        own = order[bounds[k] : bounds[k + 1]]
        if len(own) < 2:
            continue
        found = best_split(
            terms[own],
            responses[:, own],
            precision[k],
            options.bounds,
            n_thresholds=options.n_thresholds,
            min_samples=least * share,
        )
        if found is not None:
            splits[k] = tests[found.test], found.threshold
    return splits


def _radius(images, radius):
    """No farther than images reach: a chain has one row, a table no neighbours at all."""
    if images[0].graph.n_edges == 0 and images[0].features.shape[0] == 1:
        return 0, 0
    return tuple(min(radius, max(image.features.shape[axis] for image in images) - 1) for axis in (0, 1))


def _gather(risk, statistics, number, chosen, counts, tests):
    """Terms of the gradient, responses and leaves of chosen factors of a type."""
    kind, white = risk.potentials.types[number], risk.potentials.whitening[number]
    size = risk.potentials.n_values * (2 if kind.paired else 1)
    dtype = risk.images[0].features.dtype
    terms = np.empty((len(chosen), 1 + size * size + size * len(white)), dtype=dtype)
    responses = np.empty((len(tests), len(chosen)), dtype=dtype)
    leaf = np.empty(len(chosen), dtype=np.int32)
    starts = np.concatenate(([0], np.cumsum(counts)))
    bounds = np.searchsorted(chosen, starts)
    for image, found, start, first, last in zip(
        risk.images, statistics, starts[:-1], bounds[:-1], bounds[1:], strict=True
    ):
        if first == last:
            continue
        own = chosen[first:last] - start
        shape = image.features.shape[:2]
        planes = [array.reshape(*shape, *array.shape[1:]) for array in found]
        slope, square = (part[own] for part in factor_terms(planes, kind.ends(shape)))
        top, left, _, columns = kind.rectangle(shape)
        pixels = np.stack([top + own // columns, left + own % columns], axis=1).astype(np.int32)
        inputs = kind.inputs(image.features, pixels) @ white.T.astype(dtype)
        terms[first:last, 0] = 1
        terms[first:last, 1 : 1 + size * size] = square.reshape(len(own), -1)
        terms[first:last, 1 + size * size :] = (slope[:, :, None] * inputs[:, None, :]).reshape(len(own), -1)
        find_responses(image.features, pixels, tests, first, responses)
        leaf[first:last] = image.leaves[number][own]
    return terms, responses, leaf
