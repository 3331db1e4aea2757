"""Training of regression tree fields: parameters and trees in turn."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.rtf._objectives import FieldRisk, stacks_of
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._scaling import LEAST_VARIANCE, WHITENING_SAMPLES, LeafScaling, Shrinkage
from sklearn_crf.rtf._trees import GrowthOptions, RegressionTree, find_splits

# Share of its precision that the regression a field starts from counts with, as it sees the same pixels as the
# observation, and fewest samples for each of its inputs.
_TRUST = 0.5
_SAMPLES_FOR_INPUT = 10


def _values_to_find(data, k):
    """Pixels of an image that have a target and values that are not observed one by one."""
    missing = np.isnan(data.targets[k]).any(axis=1)
    observed = None if data.observations is None else data.observations[k].diagonal
    return np.flatnonzero(~missing if observed is None else ~missing & (observed == 0).any(axis=1))


def _sums_for_regression(data, part, kind, white, n_images, rng):
    """Number of some pixels, and sums of products of their whitened inputs and targets."""
    inputs, targets = [np.zeros((0, len(white)))], []
    for k, plane in enumerate(data.features):
        free = _values_to_find(data, k)
        n = min(len(free), max(1, WHITENING_SAMPLES // n_images))
        # Factors of single pixels have the numbers of these.
        own = free if n == len(free) else rng.choice(free, n, replace=False)
        inputs.append(kind.inputs(kind.seen(plane), own) @ white.T)
        targets.append(data.targets[k][own])
    if not targets:
        return 0, 0.0, 0.0, 0.0
    inputs, targets = (np.concatenate(part).astype(np.float64) for part in (inputs, targets))
    return len(inputs), inputs.T @ inputs, inputs.T @ targets, float(np.sum(targets**2))


class TrainingOptions(NamedTuple):
    """Constructor parameters that govern training."""

    solver: str
    max_depths: list
    max_iter: int
    tol: float
    growth: GrowthOptions
    report: Callable  # (iterations by round, loss, leaves by type), after each round
    shrinkage: float = 0.0
    on_iteration: Callable = lambda field, coef: False  # (field, function that gives its coef) -> whether to stop

    @property
    def n_iterations(self):
        """Most iterations of all rounds."""
        return self.max_iter * (max(self.max_depths) + 1)


def _halved(spans, channel, kind, end):
    """Splits of the leaves that several types of nodes fall into, by the type of the first or second node."""
    # spans: range of types of each leaf
    test = np.zeros(9, dtype=np.int32)
    test[0], test[3] = channel, -1
    if end:
        test[1], test[2], test[7] = kind.down, kind.right, kind.slices
    test = test if test[7] else test[:7]
    return {leaf: (test, own[len(own) // 2] - 0.5) for leaf, own in spans.items() if len(own) > 1}


class TreeField(NamedTuple):
    """Trees, and parameters of their leaves."""

    trees: list
    potentials: RegressionTreePotentials
    coef: np.ndarray

    @classmethod
    def stumps(cls, types, whitening, n_values, bounds):
        """Trees of one leaf, identity precisions, zero weights and slopes."""
        potentials = RegressionTreePotentials(types, [1] * len(types), whitening, n_values)
        return cls([RegressionTree.stump() for _ in types], potentials, potentials.project(potentials.start(), bounds))

    @classmethod
    def smooth(cls, types, whitening, n_values, bounds, differences):
        """Trees of one leaf, where pairs differ as much as in the targets and nothing else is known."""
        # differences: mean square difference of the targets at the two pixels of the factors of each type
        field = cls.stumps(types, whitening, n_values, bounds)
        n_pairs = max(1, len(types) - 1)
        parts = field.potentials.unpack(field.coef)
        for kind, part, difference in zip(types, parts, differences, strict=True):
            part.precision[:] = bounds[0] * np.eye(part.precision.shape[1])
            if kind.paired:
                weight = min(1 / (n_pairs * max(difference, 1e-6)), bounds[1] / 2)
                part.precision[:] += weight * np.kron([[1, -1], [-1, 1]], np.eye(n_values))
        return field._replace(coef=field.potentials.project(field.coef, bounds))

    def drawn_to_regression(self, data, bounds, rng):
        """The field, its pixels drawn to what their inputs predict best, as much as that is right."""
        white = self.potentials.whitening[0]
        kind = self.potentials.types[0]
        n, inner, cross, squares = data.total(_sums_for_regression, kind, white, data.n_images, rng)
        if n < _SAMPLES_FOR_INPUT * len(white):
            return self
        linear = np.linalg.solve(inner + n * LEAST_VARIANCE * np.eye(len(white)), cross)
        rest = squares - 2 * np.sum(linear * cross) + np.sum(linear * (inner @ linear))
        error = max(float(rest) / (n * linear.shape[1]), 1 / bounds[1])
        coef = self.coef.copy()
        part = self.potentials.unpack(coef)[0]
        part.precision[:] = _TRUST * np.eye(part.precision.shape[1]) / error
        part.weight[:] = _TRUST * linear.T / error
        return self._replace(coef=self.potentials.project(coef, bounds))

    @classmethod
    def restored(cls, types, whitening, n_values, trees, precisions, weights, slopes):
        """The field of fitted attributes, with linear models of whitened inputs."""
        potentials = RegressionTreePotentials(types, [tree.n_leaves for tree in trees], whitening, n_values)
        white = [weight @ np.linalg.pinv(v) for weight, v in zip(weights, whitening, strict=True)]
        return cls(trees, potentials, potentials.pack(precisions, white, slopes))

    def attributes(self, whitening):
        """Fitted attributes: trees, and parameters with linear models in the units of the channels."""
        parameters = self.potentials.unpack(self.coef)
        return {
            "trees_": [tree._asdict() for tree in self.trees],
            "precisions_": [part.precision.copy() for part in parameters],
            "slopes_": [part.slopes.copy() for part in parameters],
            "weights_": [part.weight @ white for part, white in zip(parameters, whitening, strict=True)],
        }

    def moved(self, coef, share):
        """The field with parameters between its own, for a share of 0, and others, for a share of 1."""
        return self._replace(coef=coef if share == 1 else (1 - share) * self.coef + share * coef)

    def split(self, splits):
        """The field with some leaves split, each new leaf with the parameters of its parent."""
        grown = [tree.split(own) for tree, own in zip(self.trees, splits, strict=True)]
        trees = [tree for tree, _ in grown]
        parents = [parent for _, parent in grown]
        return TreeField(trees, *self.potentials.grown(self.coef, parents, [tree.n_leaves for tree in trees]))

    def split_by_node_type(self, channel, n_types):
        """The field with leaves of their own for every type of nodes, and every two types of the nodes of a pair."""
        # channel: the one that holds types, from 0
        field = self
        for end in range(2):
            spans = [
                dict.fromkeys(range(tree.n_leaves), range(n_types)) if end == 0 or kind.paired else {}
                for tree, kind in zip(field.trees, self.potentials.types, strict=True)
            ]
            sides = list(zip(spans, self.potentials.types, strict=True))
            while any(splits := [_halved(own, channel, kind, end) for own, kind in sides]):
                for own, split, tree in zip(spans, splits, field.trees, strict=True):
                    for new, leaf in enumerate(sorted(split), tree.n_leaves):
                        middle = len(own[leaf]) // 2
                        own[leaf], own[new] = own[leaf][:middle], own[leaf][middle:]
                field = field.split(splits)
        return field

    def images(self, data, n_jobs):
        """Images of a set with the leaves of their factors."""
        observations = [None] * len(data.features) if data.observations is None else data.observations
        parts = list(zip(data.features, data.graphs, observations, strict=True))
        types = self.potentials.types

        def one(part, n_threads):
            features, graph, observation = part
            return FieldImage.of(features, graph, types, self.trees, n_threads, observation)

        return map_tasks(one, parts, n_jobs)

    def risk(self, objective, data, n_jobs, whole=None):
        """Mean loss over a set, or over its part in the whole of several."""
        if hasattr(data, "risk"):
            return data.risk(objective, self)
        images = self.images(data, n_jobs)
        of_data = data.targets, data.weights, n_jobs, whole
        return FieldRisk(objective, self.potentials, images, *of_data, stacks_of(images, objective))

    def regrown(self, risk, data, n_jobs):
        """The mean loss over the same set, after splits."""
        if hasattr(data, "risk"):
            return risk.replaced(self)
        return risk.replaced(self.potentials, self.images(data, n_jobs))


class Trained(NamedTuple):
    """A trained field and the record of its training."""

    field: TreeField
    loss_curve: np.ndarray  # at the start, and after every iteration of all rounds
    rounds: np.ndarray  # iterations made by the end of each round
    validation_curve: np.ndarray  # loss of the pixels held out at the end of each round
    success: bool  # the last round reached the tolerance
    is_stuck: bool  # the last round found no better point at the precision of float32
    solved: bool  # every solve did reach its tolerance


# Rounds in a row that do not lower the loss of what is held out, after which there are no more: one may be by chance.
_PATIENCE = 2

# Least share of the last round in the mean of rounds that look at other pixels each, or at another corruption, and
# pixels of a round that counts as one half at least. What a round of few pixels finds is also about these, so that
# held-out losses would go up and down more than trees lower them; rounds of many pixels agree by themselves.
_LEAST_SHARE = 0.3
_PIXELS_OF_HALF = 200_000


def share_of_round(number, n_pixels):
    """Share of a round in the mean over rounds, by its number after the first and the pixels that it looks at."""
    return max(_LEAST_SHARE, n_pixels / (n_pixels + _PIXELS_OF_HALF), 1 / number)


def n_known_pixels(data, part):
    """Pixels of images that the loss is about."""
    known = [~np.isnan(target).any(axis=1) for target in data.targets]
    weights = known if data.weights is None else data.weights
    return sum(int(np.count_nonzero(own & (weight > 0))) for own, weight in zip(known, weights, strict=True))


def weight_of_known_pixels(data, part) -> float:
    """Sum of the weights of the pixels that the loss is about."""
    if data.weights is None:
        return float(n_known_pixels(data, part))
    known = (~np.isnan(target).any(axis=1) for target in data.targets)
    return float(sum(np.sum(weight[own], dtype=np.float64) for own, weight in zip(known, data.weights, strict=True)))


def train(objective, field, rounds, first, options, rng, n_jobs, held_out_loss=None, is_trained=False):
    """Optimise and split all leaves in turn until the trees have reached their depth."""
    # held_out_loss: function of a field, if anything is held out
    data = rounds(first)
    risk = field.risk(objective, data, n_jobs)
    if is_trained:
        splits = find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)
        field = field.split(splits)
        risk = field.regrown(risk, data, n_jobs)
    if options.growth.criterion == "residual":
        while any(splits := find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)):
            field = field.split(splits)
            risk = field.regrown(risk, data, n_jobs)
    curve, rounds_made, held_out, best, is_new = [], [], [], None, False
    while True:
        has_parents = is_trained or bool(rounds_made) or options.growth.criterion == "residual"
        found = _optimise(risk, objective, field, options, rng, has_parents)
        share = share_of_round(len(rounds_made), data.total(n_known_pixels)) if is_new and not found.stopped else 1.0
        field = field.moved(found.x, share)
        curve += list(found.loss_curve if not curve else found.loss_curve[1:])
        rounds_made.append(len(curve) - 1)
        options.report(rounds_made, found.fun, risk.potentials.n_leaves)
        if found.stopped:
            break
        if held_out_loss is not None:
            held_out.append(objective.reported * held_out_loss(field))
            if held_out[-1] < min(held_out[:-1], default=np.inf):
                best = field
            elif len(held_out) - 1 - np.argmin(held_out) == _PATIENCE:
                break
        splits = find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)
        if not any(splits):
            break
        field = field.split(splits)
        former_data, data = data, rounds(first + len(rounds_made))
        is_new = data is not former_data
        risk = field.risk(objective, data, n_jobs) if is_new else field.regrown(risk, data, n_jobs)
    if best is not None and not found.stopped:
        field = best
    is_stuck = not found.success and found.nit < options.max_iter
    curves = np.array(curve), np.array(rounds_made), np.array(held_out)
    return Trained(field, *curves, found.success, is_stuck, risk.converged)


def _optimise(risk, objective, field, options, rng, has_parents):
    """Optimise the parameters of the present leaves; the result says whether the callback asked to stop."""
    risk.converged, coef, stopped, unit = True, field.coef, False, objective.unit
    minimize = {"spg": minimize_spg, "pqn": minimize_pqn}[options.solver]
    scaling = LeafScaling(risk, rng)

    # The leaves that training starts from have no parents to shrink to.
    is_split = has_parents and max(risk.potentials.n_leaves) > 1
    pull = Shrinkage(risk, coef, options.shrinkage, rng) if options.shrinkage and is_split else None

    def value_grad(x):
        own = scaling.unscaled(x)
        value, gradient = risk.value_grad(own)
        if pull is not None:
            more, slope = pull.value_grad(own)
            value, gradient = value + more, gradient + slope
        # So that what counts as small depends on no unit of the values.
        return value / unit, scaling.gradient(gradient) / unit

    def unscaled(x):
        return risk.potentials.project(scaling.unscaled(x), options.growth.bounds)

    def callback(point):
        nonlocal stopped
        stopped = bool(options.on_iteration(field, lambda: unscaled(point.x)))
        return stopped

    found = minimize(
        value_grad,
        scaling.scaled(coef),
        project=lambda x: scaling.project(x, options.growth.bounds),
        max_iter=options.max_iter,
        tol=options.tol,
        # Values are computed in float32.
        precision=4 * np.finfo(np.float32).eps,
        callback=callback,
    )
    found.x, found.stopped = unscaled(found.x), stopped
    unit *= objective.reported
    found.fun, found.loss_curve = unit * found.fun, unit * np.asarray(found.loss_curve)
    return found
