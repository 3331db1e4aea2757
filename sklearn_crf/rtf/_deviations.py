"""Statistics of a trained field's predictions: expected errors by region, and scores of known labels."""

import numpy as np

from sklearn_crf._threads import make_range_runner, map_tasks, split_threads
from sklearn_crf.kernels.rtf.trees import find_responses
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._potentials import as_plane
from sklearn_crf.rtf._trees import RegressionTree, compute_explained_variance, draw_tests, find_best_split
from sklearn_crf.rtf.images._degradation import solve_from_image


def fit_held_out_errors(objective, field, data, rng, n_jobs):
    r"""Return a regression tree for squared errors on held-out images, and the root mean square error in each leaf.

    .. math::
        \sigma_l = \sqrt{\frac{1}{\sum_{s : l(s) = l} w_s} \sum_{s : l(s) = l} w_s (u_s - y_s)^2}
    """
    # data: images, in memory or in shards; returns a dict with deviations (L, D) in the field's units, or None
    shapes = np.array([shape for part in data.parts(_shapes) for shape in part])
    radius = np.minimum(tuned.RADIUS_OF_ERRORS, shapes[:, :-1].min(axis=0) - 1)
    tests = draw_tests(tuned.TESTS_OF_ERRORS, shapes[0, -1], radius, rng)
    parts = [found for part in data.parts(_sample_squared_errors, objective, field, tests, n_jobs) for found in part]
    responses, errors, weight = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
    if not errors.size:
        return None
    tree, leaf = _grow_tree(tests, responses, errors.T, weight, make_range_runner(split_threads(n_jobs, 1)[1]))
    means = [np.average(errors[:, leaf == k], axis=1, weights=weight[leaf == k]) for k in range(tree.n_leaves)]
    return {"tree": tree._asdict(), "deviations": np.sqrt(means)}


def _grow_tree(tests, responses, errors, weight, run):
    """Grow a tree that separates large from small errors, best split first; return the tree and each pixel's leaf."""
    # responses: (T, n); errors: (n, D); weight: (n,); leaf: (n,)
    tree, leaf = RegressionTree.stump(), np.zeros(len(errors), dtype=np.int64)
    terms = weight[:, None] * np.concatenate([np.ones((len(errors), 1)), errors], axis=1)
    least = tuned.LEAST_SHARE_OF_ERRORS * weight.sum()
    options = {"n_thresholds": tuned.THRESHOLDS_OF_ERRORS, "min_samples": least, "run": run}

    def splits_of(*leaves):
        members = ((k, np.flatnonzero(leaf == k)) for k in leaves)
        found = (
            (k, find_best_split(terms[own], responses, compute_explained_variance, members=own, **options))
            for k, own in members
        )
        return {k: split for k, split in found if split is not None}

    splits = splits_of(0)
    while splits and tree.n_leaves < tuned.LEAVES_OF_ERRORS:
        k = max(splits, key=lambda k: splits[k].gain)
        best, new = splits.pop(k), tree.n_leaves
        tree, _ = tree.split({k: (tests[best.test], best.threshold)})
        leaf[(leaf == k) & (responses[best.test] > best.threshold)] = new
        splits |= splits_of(k, new)
    return tree, leaf


def _map_predictions(finish, solver, field, data, n_jobs):
    """Return a list with the result of ``finish(image, prediction, target, weights)`` for each image."""

    def of_image(task, n_threads):
        image, target, weight = task
        model = field.potentials.model(field.coef, image, n_threads)
        return finish(image, solve_from_image(solver, model, image.start, n_threads=n_threads).x, target, weight)

    weights = [None] * data.n_images if data.weights is None else data.weights
    return map_tasks(of_image, zip(field.images(data, n_jobs), data.targets, weights, strict=True), n_jobs)


def _shapes(data, part):
    return [plane.shape for plane in data.features]


def _sample_squared_errors(data, part, objective, field, tests, n_jobs):
    """Return, for each image, test responses (T, n), squared errors (D, n) and weights (n,) of sampled pixels."""

    def finish(image, mean, target, weight):
        errors = (mean.astype(np.float64) - target) ** 2
        counted = ~np.isnan(target).any(axis=1)
        if weight is not None:
            counted &= weight > 0
        if image.known is not None:
            counted &= ~image.known.any(axis=1)
        own = np.flatnonzero(counted)
        own = own[:: len(own) // tuned.PIXELS_OF_ERRORS + 1]
        pixels = np.stack(np.divmod(own, image.features.shape[-2]), axis=1).astype(np.int32)
        responses = np.empty((len(tests), len(own)), dtype=image.features.dtype)
        plane, place = as_plane(image.features), np.arange(len(own))
        find_responses(plane, image.features.shape[-3], pixels, tests, place, responses)
        return responses, errors[own].T, np.ones(len(own)) if weight is None else weight[own].astype(np.float64)

    return _map_predictions(finish, objective.solver, field, data, n_jobs)


def is_worse_than_mean(images, bank, field, solver, n_jobs):
    """Return whether predictions for the first training images are clearly worse than predicting the mean of y."""
    # images: in memory or in shards; bank: the filter bank of the field
    n_images = 1 + int(np.searchsorted(np.cumsum([np.prod(shape) for shape in images.shapes]), tuned.PIXELS_TO_CHECK))
    rounds = images.rounds(("taken", np.arange(min(n_images, len(images.shapes)))), None, None, 0, n_jobs)
    rounds.take_bank(bank)
    parts = rounds(0).parts(_sum_squares, solver, field, n_jobs)
    n, total, squares, errors = np.sum([sums for part in parts for sums in part], axis=0)
    return bool(np.sum(errors) > tuned.CLEARLY_WORSE * np.sum(squares - total**2 / np.maximum(n, 1)))


def _sum_squares(data, part, solver, field, n_jobs):
    """Return, for each image, rows (4, D): count, sum and sum of squares of known targets; sum of squared errors."""

    def finish(image, mean, target, weight):
        known = ~np.isnan(target)
        columns = known, target, target**2, (mean - target) ** 2
        return np.array([np.where(known, each, 0.0).sum(axis=0, dtype=np.float64) for each in columns])

    return _map_predictions(finish, solver, field, data, n_jobs)


def compute_class_scores(objective, field, data, n_classes, n_jobs):
    """Return scores (n_classes, D) that represent known labels: mean scores of correctly labelled training pixels."""
    # data: images, in memory or in shards
    found = data.parts(_sum_class_scores, objective, field, n_classes, n_jobs)
    sums = np.sum([own for part in found for own in part], axis=0)
    # Mean scores of the correctly labelled pixels of each class, or of all its pixels if none is correctly labelled
    number, total = sums[..., -1:], sums[..., :-1]
    right, every = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    scores = np.where(number[0] > 0, right, every)
    largest = np.abs(scores).max(initial=0.0) or 1.0
    for k in range(len(scores)):
        # Evidence for a class must give the class the highest score, even if its pixels were misclassified.
        if scores.shape[1] == 1:
            scores[k] = np.abs(scores[k]) * (1 if k else -1) or largest * (1 if k else -1)
        elif scores[k].argmax() != k or not number[1, k]:
            scores[k, k] = scores[k].max() + largest
    return scores


def _sum_class_scores(data, part, objective, field, n_classes, n_jobs):
    """Sum the scores and count the pixels of each class: once over correctly labelled pixels, once over all pixels."""
    # returns a list of arrays (2, n_classes, D + 1), one for each image

    def finish(image, mean, target, weight):
        scores = mean.astype(np.float64)
        # A pixel is correct if its class has the highest score. A single score belongs to the second of two classes.
        label, own = (
            values.argmax(axis=1) if values.shape[1] > 1 else np.where(values[:, 0] > 0, 1, 0)
            for values in (target, scores)
        )
        weight = np.ones(len(target)) if weight is None else weight > 0
        summed = np.concatenate([scores, np.ones((len(scores), 1))], axis=1)
        members = (label == np.arange(n_classes)[:, None]).astype(float)
        return np.array([members @ (w[:, None] * summed) for w in (weight * (label == own), weight)])

    return _map_predictions(finish, objective.solver, field, data, n_jobs)
