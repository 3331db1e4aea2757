"""Training of regression tree fields: parameters and trees in turn."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.rtf._objectives import FieldRisk, stacks_of
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._trees import GrowthOptions, RegressionTree, by_leaf, find_splits

# Pixels that the whitening is estimated from.
_WHITENING_SAMPLES = 50_000

# Variance, as a share of the largest, below which directions are not scaled up to variance one.
_LEAST_VARIANCE = 1e-6


def whitening_of_types(data, types, rng, n_jobs):
    """Whitening matrix of each type."""
    # returns list of (B, n_inputs)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(types))
    parts = data.parts(_input_moments, types, seeds, data.n_images, n_jobs)
    return [whitening_of(InputMoments.joined(of_type)) for of_type in zip(*parts, strict=True)]


class InputMoments(NamedTuple):
    """Weight, mean and scatter about it of the inputs of linear models of one type, the constant apart."""

    weight: float
    mean: np.ndarray  # (n_inputs - 1,)
    scatter: np.ndarray  # (n_inputs - 1, n_inputs - 1)

    @classmethod
    def of(cls, features, kind, rng, weights=None, n_images=None):
        """Those of some pixels of images, of which there may be more elsewhere."""
        # features: list of (H, W, F), not empty; weights: list of (N,)
        inputs, weight = _samples_of_inputs(features, kind, rng, weights, n_images or len(features))
        weight, inputs = weight[:, None], inputs[:, 1:]
        total = float(weight.sum())
        mean = np.sum(weight * inputs, axis=0) / (total or 1.0)
        inputs -= mean
        return cls(total, mean, inputs.T @ (weight * inputs))

    @classmethod
    def joined(cls, parts):
        """Those of several parts together."""
        parts = [part for part in parts if part is not None]
        total = parts[0]
        for part in parts[1:]:
            weight = total.weight + part.weight
            share, gap = part.weight / (weight or 1.0), part.mean - total.mean
            scatter = total.scatter + part.scatter + total.weight * share * np.outer(gap, gap)
            total = cls(weight, total.mean + share * gap, scatter)
        return total


def _input_moments(data, part, types, seeds, n_images, n_jobs):
    """Moments of the inputs of each type, None where there are no images."""

    def one(number, n_threads):
        seed = seeds[number] if part is None else [seeds[number], part]
        rng = np.random.RandomState(seed)
        return InputMoments.of(data.features, types[number], rng, data.weights, n_images)

    return map_tasks(one if data.features else lambda number, n_threads: None, range(len(types)), n_jobs)


def _samples_of_inputs(features, kind, rng, weights, n_images):
    """Inputs of some factors of each image, and their weights."""
    # returns (n, n_inputs), (n,)
    chosen, weight = [], []
    for k, plane in enumerate(features):
        rows = kind.rows(plane.shape[:-1])
        n = min(rows.n_factors, max(1, _WHITENING_SAMPLES // n_images))
        own = np.arange(n) if n == rows.n_factors else rng.randint(rows.n_factors, size=n)
        chosen.append(own)
        if n and weights is not None:
            own_weight = weights[k].reshape(-1, plane.shape[-2])[tuple(rows.pixels(own).T)]
            weight.append(np.asarray(own_weight, dtype=np.float64))
    stops = np.cumsum([len(own) for own in chosen])
    inputs = np.empty((stops[-1], kind.n_inputs(features[0].shape[-1])))
    for plane, own, stop in zip(features, chosen, stops, strict=True):
        kind.write_inputs(kind.seen(plane), own, np.arange(stop - len(own), stop), inputs)
    return inputs, np.concatenate(weight) if weight else np.ones(len(inputs))


def whitening_of(moments):
    """A matrix that makes the inputs of linear models uncorrelated and of variance one, except the constant."""
    # returns (B, n_inputs)
    mean, size = moments.mean, len(moments.mean) + 1
    covariance = moments.scatter / (moments.weight or 1.0)
    deviation = np.sqrt(np.diagonal(covariance))
    used = deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30)
    scale = deviation[used]
    variance, directions = np.linalg.eigh(covariance[np.ix_(used, used)] / np.outer(scale, scale))
    top = variance.max(initial=0.0)
    kept = variance > 1e-10 * top
    rows = directions[:, kept].T / np.sqrt(np.maximum(variance[kept], _LEAST_VARIANCE * top))[:, None]
    white = np.zeros((1 + len(rows), size))
    white[0, 0] = 1.0
    white[1:, 1:][:, used] = rows / deviation[used]
    white[1:, 0] = -white[1:, 1:] @ mean
    return white


# Factors of a type that the moments of its leaves are estimated from.
_SAMPLES = 100_000

# Factors that are summed over at once.
_PIECE = 8192

# Share of the moments of all leaves in those of one leaf, so that no direction is flat.
_COMMON_SHARE = 0.05


class LeafScaling:
    r"""Parameters in units in which the curvature of the loss is about the same.

    .. math::
        \tilde J_l = \sqrt{p_l} \, J_l, \qquad \tilde W_l = \sqrt{p_l} \, W_l C_l, \qquad
        C_l C_l^\top = \mathrm{E}[b b^\top \mid l]

    with the share :math:`p_l` of a leaf in the factors of its type, which the curvature is in proportion to, and the
    inputs b of its linear models: in a leaf of smooth regions the responses of filters are small, and a step along
    their weights would matter little. One number for all of a precision keeps projections what they are.
    """

    # rng: of the factors that are looked at

    def __init__(self, risk, rng):
        self.potentials = risk.potentials
        self.root = np.sqrt(risk.potentials.spread(risk.shares()))
        n_types = len(risk.potentials.types)
        seeds = rng.randint(np.iinfo(np.int32).max, size=n_types)

        self.factor = []
        sums = risk.total(_sums_of_squares, seeds)
        for white, (squares, weight) in zip(risk.potentials.whitening, sums, strict=True):
            try:
                self.factor.append(np.linalg.cholesky(_moments(squares, weight, white)))
            except np.linalg.LinAlgError as error:
                raise ValueError(
                    "X has a channel that is so far from 0, beside its spread, that sums lose it: subtract its mean."
                ) from error
        self.inverse = [np.linalg.inv(factor) for factor in self.factor]

    def scaled(self, coef):
        """Scaled parameters x of given parameters."""
        # coef: (n_coef,); returns (n_coef,)
        return self.root * self._turned(coef, self.factor)

    def unscaled(self, x):
        """Parameters of ``x``, the inverse of :meth:`scaled`."""
        return self._turned(x, self.inverse) / self.root

    def gradient(self, gradient):
        """Derivative by ``x`` from the derivative by the parameters."""
        return self._turned(gradient, [inverse.transpose(0, 2, 1) for inverse in self.inverse]) / self.root

    def project(self, x, bounds):
        """The nearest ``x`` whose precisions have eigenvalues between bounds."""
        return self.root * self.potentials.project(x / self.root, bounds)

    def _turned(self, coef, matrices):
        """Every linear model times the matrix of its leaf."""
        out = coef.copy()
        for part, matrix in zip(self.potentials.unpack(out), matrices, strict=True):
            part.weight[:] = part.weight @ matrix
        return out


def _moments(squares, weight, white):
    """Weighted second moments (L, B, B) of the whitened inputs in each leaf, from sums over its factors."""
    # squares: (L, n_inputs, n_inputs); weight: (L,)
    empty = weight == 0
    moments = white @ (squares / np.where(empty, 1.0, weight)[:, None, None]) @ white.T
    moments[empty] = np.eye(len(white))
    return (1 - _COMMON_SHARE) * moments + _COMMON_SHARE * np.eye(len(white))


def _sums_of_squares(risk, seeds):
    """Weighted sums of the squared inputs of some factors in each leaf, and their weights, type by type."""

    def of_type(number, n_threads):
        own = _drawn_factors(risk, number, risk.whole.random_state(seeds[number])) if risk.images else None
        return _sums_of_type(risk, number, own, n_threads)

    # Calls for single images and leaves are so short that threads would wait for each other.
    return map_tasks(of_type, range(len(seeds)), risk.n_jobs)


class DrawnFactors(NamedTuple):
    """Some factors of a type, and their order leaf by leaf."""

    chosen: list  # of each image, numbers of factors
    place: list  # of each image, their places in that order
    leaf: np.ndarray  # in that order
    weight: np.ndarray


def _drawn_factors(risk, number, rng):
    limit, chosen, kind = max(1, _SAMPLES // risk.whole.n_images), [], risk.potentials.types[number]
    for image in risk.images:
        n = len(image.leaves[number])
        chosen.append(np.arange(n) if n <= limit else rng.randint(n, size=limit))
    leaf = np.concatenate([image.leaves[number][own] for image, own in zip(risk.images, chosen, strict=True)])
    weight = np.concatenate([risk.factor_weights(k, kind)[own] for k, own in enumerate(chosen)])
    order = by_leaf(leaf)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return DrawnFactors(
        chosen, np.split(place, np.cumsum([len(own) for own in chosen[:-1]])), leaf[order], weight[order]
    )


def _sums_of_type(risk, number, factors, n_jobs):
    n_leaves, size = risk.potentials.n_leaves[number], risk.potentials.whitening[number].shape[1]
    if not risk.images:
        return np.zeros((n_leaves, size, size)), np.zeros(n_leaves)
    kind, leaf, weight = risk.potentials.types[number], factors.leaf, factors.weight
    root, inputs = np.sqrt(weight), np.empty((len(leaf), size))

    def write(k, n_threads):
        own, place = factors.chosen[k], factors.place[k]
        kind.write_inputs(risk.images[k].seen(kind), own, place, inputs, root[place])

    map_tasks(write, range(len(risk.images)), n_jobs)
    bounds = np.searchsorted(leaf, np.arange(n_leaves + 1))
    pieces = [
        (k, slice(start, min(start + _PIECE, bounds[k + 1])))
        for k in range(n_leaves)
        for start in range(bounds[k], bounds[k + 1], _PIECE)
    ]

    def moment(piece, n_threads):
        seen = inputs[piece[1]]
        # Unlike ``@``, this gives the lock of the interpreter away where both factors are one matrix.
        return seen.T.dot(seen)

    sums = np.zeros((n_leaves, size, size))
    for (k, _), part in zip(pieces, map_tasks(moment, pieces, n_jobs), strict=True):
        sums[k] += part
    return sums, np.bincount(leaf, weight, minlength=n_leaves)


# Length of the finite difference that measures curvature, in units of whitened weights.
_STEP = 0.05

# Fewest random signs in the estimate of the mean curvature of a type.
_SIGNS = 64


class Shrinkage:
    r"""Penalty on the change of linear models in a round.

    .. math::
        \frac{s}{2} \sum_t \frac{\kappa_t}{N_t} \sum_l \| W_l - W_l^{(0)} \|^2

    with the :math:`N_t` factors of type t, the strength s, and the mean curvature :math:`\kappa_t` of the loss by a
    weight that all factors of the type share. So a leaf with s factors whose inputs are as white as those of all
    factors moves half as far as without it. The penalty is 0 where a round begins, so that the loss still falls from
    round to round.
    """

    # coef: (n_coef,), where the round begins
    # strength: s
    # rng: of the directions that curvature is measured along

    def __init__(self, risk, coef, strength, rng):
        self.start = coef.copy()
        self.weight = np.zeros(len(coef))
        n_weights = min(part.weight.size for part in risk.potentials.unpack(coef))
        n_directions = max(1, -(-_SIGNS // n_weights))
        curvatures = np.mean([_curvatures(risk, coef, rng) for _ in range(n_directions)], axis=0)
        n_factors_of_types = [float(weights.sum()) for weights in risk.total(FieldRisk.leaf_weights)]
        parts = risk.potentials.unpack(self.weight)
        for curvature, n_factors, own in zip(curvatures, n_factors_of_types, parts, strict=True):
            if n_factors > 0:
                own.weight[:] = strength * max(curvature, 0.0) / n_factors

    def value_grad(self, coef):
        """The penalty, and its derivative."""
        pull = self.weight * (coef - self.start)
        return 0.5 * float(pull @ (coef - self.start)), pull


def _curvatures(risk, coef, rng):
    """Curvatures of the loss along random signs, for each type by a weight that all its factors share."""
    potentials = risk.potentials
    signs = np.zeros(len(coef))
    for part in potentials.unpack(signs):
        part.weight[:] = rng.choice(np.array([-1.0, 1.0]), size=part.weight.shape)
    signs /= np.sqrt(len(coef))
    turned = [risk.value_grad(coef + side * _STEP * signs)[1] for side in (1, -1)]
    curved = (turned[0] - turned[1]) / (2 * _STEP)
    found = []
    for share, sign, curve in zip(risk.shares(), potentials.unpack(signs), potentials.unpack(curved), strict=True):
        shared = np.sum(share[:, None, None] * sign.weight**2)
        found.append(float(np.sum(sign.weight * curve.weight)) / shared if shared > 0 else 0.0)
    return found


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
        n = min(len(free), max(1, _WHITENING_SAMPLES // n_images))
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
        linear = np.linalg.solve(inner + n * _LEAST_VARIANCE * np.eye(len(white)), cross)
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
