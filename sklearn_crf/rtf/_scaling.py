"""Scaling of a tree field's parameters in training: whitened inputs, scaled leaves, shrinkage towards parents."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._objectives import FieldRisk
from sklearn_crf.rtf._trees import locate_by_leaf


def compute_type_whitening(data, types, rng, n_jobs):
    """Return the whitening matrix of each factor type."""
    # returns list of (B, n_inputs)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(types))
    parts = data.parts(_compute_input_moments, types, seeds, data.n_images, n_jobs)
    return [compute_whitening(InputMoments.joined(of_type)) for of_type in zip(*parts, strict=True)]


class InputMoments(NamedTuple):
    """Total weight, mean and scatter matrix of the inputs of one factor type's linear models, except the constant."""

    weight: float
    mean: np.ndarray  # (n_inputs - 1,), mean of each input
    scatter: np.ndarray  # (n_inputs - 1, n_inputs - 1), weighted scatter matrix

    @classmethod
    def of(cls, features, kind, rng, weights=None, n_images=None):
        """Sample pixels of the given images, and return their moments."""
        # features: list of (H, W, F), not empty; weights: list of (N,); n_images: number of images in all shards
        inputs, weight = _sample_inputs(features, kind, rng, weights, n_images or len(features))
        weight, inputs = weight[:, None], inputs[:, 1:]
        total = float(weight.sum())
        mean = np.sum(weight * inputs, axis=0) / (total or 1.0)
        inputs -= mean
        return cls(total, mean, inputs.T @ (weight * inputs))

    @classmethod
    def joined(cls, parts):
        """Return the joint moments of several parts, some of which may be None."""
        parts = [part for part in parts if part is not None]
        total = parts[0]
        for part in parts[1:]:
            weight = total.weight + part.weight
            share, gap = part.weight / (weight or 1.0), part.mean - total.mean
            scatter = total.scatter + part.scatter + total.weight * share * np.outer(gap, gap)
            total = cls(weight, total.mean + share * gap, scatter)
        return total


def _compute_input_moments(data, part, types, seeds, n_images, n_jobs):
    """Return the input moments of each factor type, or None for each type if there are no images."""

    def one(number, n_threads):
        seed = seeds[number] if part is None else [seeds[number], part]
        rng = np.random.RandomState(seed)
        return InputMoments.of(data.features, types[number], rng, data.weights, n_images)

    return map_tasks(one if data.features else lambda number, n_threads: None, range(len(types)), n_jobs)


def _sample_inputs(features, kind, rng, weights, n_images):
    """Draw factors of each image; return their inputs and weights."""
    # returns (n, n_inputs), (n,)
    chosen, weight = [], []
    for k, plane in enumerate(features):
        rows = kind.rows(plane.shape[:-1])
        n = min(rows.n_factors, max(1, tuned.SAMPLES_OF_WHITENING // n_images))
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


def compute_whitening(moments):
    """Return a matrix that whitens the inputs of linear models and keeps the constant input."""
    # returns (B, n_inputs)
    mean, size = moments.mean, len(moments.mean) + 1
    covariance = moments.scatter / (moments.weight or 1.0)
    deviation = np.sqrt(np.diagonal(covariance))
    used = deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30)
    scale = deviation[used]
    variance, directions = np.linalg.eigh(covariance[np.ix_(used, used)] / np.outer(scale, scale))
    top = variance.max(initial=0.0)
    kept = variance > 1e-10 * top
    rows = directions[:, kept].T / np.sqrt(np.maximum(variance[kept], tuned.LEAST_VARIANCE * top))[:, None]
    white = np.zeros((1 + len(rows), size))
    white[0, 0] = 1.0
    white[1:, 1:][:, used] = rows / deviation[used]
    white[1:, 0] = -white[1:, 1:] @ mean
    return white


class LeafScaling:
    r"""Scaling of parameters so that the loss has about the same curvature along all parameters.

    .. math::
        \tilde J_l = \sqrt{p_l} \, J_l, \qquad \tilde W_l = \sqrt{p_l} \, W_l C_l, \qquad
        C_l C_l^\top = \mathrm{E}[b b^\top \mid l]

    where :math:`p_l` is the fraction of the type's factors that are in leaf l, and b are the inputs of linear models.
    The curvature is proportional to :math:`p_l`. In a leaf of smooth regions, the filter responses are small. Without
    scaling, a step along their weights would change little. Each precision is scaled by a single number, so that
    projections do not change.
    """

    # rng: draws the factors for estimates of second moments

    def __init__(self, risk, rng):
        self.potentials = risk.potentials
        self.root = np.sqrt(risk.potentials.spread(risk.shares()))
        n_types = len(risk.potentials.types)
        seeds = rng.randint(np.iinfo(np.int32).max, size=n_types)

        self.factor = []
        sums = risk.total(_sum_squares, seeds)
        for white, (squares, weight) in zip(risk.potentials.whitening, sums, strict=True):
            try:
                self.factor.append(np.linalg.cholesky(_compute_leaf_moments(squares, weight, white)))
            except np.linalg.LinAlgError as error:
                raise ValueError(
                    "X has a channel that is so far from 0, relative to its spread, that sums lose precision: "
                    "subtract its mean."
                ) from error
        self.inverse = [np.linalg.inv(factor) for factor in self.factor]

    def scaled(self, coef):
        """Return the scaled parameters ``x``."""
        # coef: (n_coef,); returns (n_coef,)
        return self.root * self._multiply(coef, self.factor)

    def unscaled(self, x):
        """Return the parameters for scaled parameters ``x``; this is the inverse of :meth:`scaled`."""
        return self._multiply(x, self.inverse) / self.root

    def gradient(self, gradient):
        """Convert a derivative with respect to the parameters to a derivative with respect to ``x``."""
        return self._multiply(gradient, [inverse.transpose(0, 2, 1) for inverse in self.inverse]) / self.root

    def project(self, x, bounds):
        """Return the nearest ``x`` for which all precisions have eigenvalues between bounds."""
        return self.root * self.potentials.project(x / self.root, bounds)

    def _multiply(self, coef, matrices):
        """Multiply the linear model of each leaf by the leaf's matrix."""
        out = coef.copy()
        for part, matrix in zip(self.potentials.unpack(out), matrices, strict=True):
            part.weight[:] = part.weight @ matrix
        return out


def _compute_leaf_moments(squares, weight, white):
    """Return the second moments (L, B, B) of the whitened inputs in each leaf, from sums over its factors."""
    # squares: (L, n_inputs, n_inputs); weight: (L,)
    empty = weight == 0
    moments = white @ (squares / np.where(empty, 1.0, weight)[:, None, None]) @ white.T
    moments[empty] = np.eye(len(white))
    return (1 - tuned.COMMON_SHARE) * moments + tuned.COMMON_SHARE * np.eye(len(white))


def _sum_squares(risk, seeds):
    """Return, for each type, the summed outer products of sampled inputs in each leaf, and the summed weights."""

    def of_type(number, n_threads):
        return _sum_type_squares(risk, number, risk.whole.random_state(seeds[number]), n_threads)

    # Run in parallel over types, because calls for single images and leaves are too short for threads.
    return map_tasks(of_type, range(len(seeds)), risk.n_jobs)


def _draw_factors(risk, number, rng):
    """Draw factors of a type on each image; return factors, their ranks by leaf, sorted leaves and sorted weights."""
    limit, chosen, kind = max(1, tuned.SAMPLES_OF_MOMENTS // risk.whole.n_images), [], risk.potentials.types[number]
    for image in risk.images:
        n = len(image.leaves[number])
        chosen.append(np.arange(n) if n <= limit else rng.randint(n, size=limit))
    leaf = np.concatenate([image.leaves[number][own] for image, own in zip(risk.images, chosen, strict=True)])
    weight = np.concatenate([risk.gather_factor_weights(k, kind)[own] for k, own in enumerate(chosen)])
    order, place = locate_by_leaf(leaf)
    return chosen, np.split(place, np.cumsum([len(own) for own in chosen[:-1]])), leaf[order], weight[order]


def _sum_type_squares(risk, number, rng, n_jobs):
    n_leaves, size = risk.potentials.n_leaves[number], risk.potentials.whitening[number].shape[1]
    if not risk.images:
        return np.zeros((n_leaves, size, size)), np.zeros(n_leaves)
    kind, (chosen, places, leaf, weight) = risk.potentials.types[number], _draw_factors(risk, number, rng)
    root, inputs = np.sqrt(weight), np.empty((len(leaf), size))

    def write(k, n_threads):
        kind.write_inputs(risk.images[k].seen(kind), chosen[k], places[k], inputs, root[places[k]])

    map_tasks(write, range(len(risk.images)), n_jobs)
    bounds = np.searchsorted(leaf, np.arange(n_leaves + 1))
    pieces = [
        (k, slice(start, min(start + tuned.FACTORS_OF_PIECE, bounds[k + 1])))
        for k in range(n_leaves)
        for start in range(bounds[k], bounds[k + 1], tuned.FACTORS_OF_PIECE)
    ]

    def moment(piece, n_threads):
        seen = inputs[piece[1]]
        # ``dot``, unlike ``@``, releases the interpreter's lock for the product of a matrix with itself.
        return seen.T.dot(seen)

    sums = np.zeros((n_leaves, size, size))
    for (k, _), part in zip(pieces, map_tasks(moment, pieces, n_jobs), strict=True):
        sums[k] += part
    return sums, np.bincount(leaf, weight, minlength=n_leaves)


class Shrinkage:
    r"""Penalty on changes of the linear models during a round.

    .. math::
        \frac{s}{2} \sum_t \frac{\kappa_t}{N_t} \sum_l \| W_l - W_l^{(0)} \|^2

    with the :math:`N_t` factors of type t, the strength s, and the mean curvature :math:`\kappa_t` of the loss along a
    weight that all factors of the type share. For example, if a leaf has s factors and white inputs, its weights change
    half as much as without the penalty. The penalty is 0 at the start of a round. Therefore, the loss without the
    penalty also decreases from round to round.
    """

    # coef: (n_coef,), parameters at the start of the round
    # strength: strength s of the penalty
    # rng: draws the directions along which curvature is measured

    def __init__(self, risk, coef, strength, rng):
        self.start = coef.copy()
        self.weight = np.zeros(len(coef))
        n_weights = min(part.weight.size for part in risk.potentials.unpack(coef))
        n_directions = max(1, -(-tuned.SIGNS_OF_CURVATURE // n_weights))
        curvatures = np.mean([_estimate_curvatures(risk, coef, rng) for _ in range(n_directions)], axis=0)
        n_factors_of_types = [float(weights.sum()) for weights in risk.total(FieldRisk.leaf_weights)]
        parts = risk.potentials.unpack(self.weight)
        for curvature, n_factors, own in zip(curvatures, n_factors_of_types, parts, strict=True):
            if n_factors > 0:
                own.weight[:] = strength * max(curvature, 0.0) / n_factors

    def value_grad(self, coef):
        """Return the penalty and its derivative."""
        pull = self.weight * (coef - self.start)
        return 0.5 * float(pull @ (coef - self.start)), pull


def _estimate_curvatures(risk, coef, rng):
    """Estimate the curvature of the loss, for each factor type, along a weight that all factors of the type share.

    The estimate uses directions of random signs.
    """
    potentials = risk.potentials
    signs = np.zeros(len(coef))
    for part in potentials.unpack(signs):
        part.weight[:] = rng.choice(np.array([-1.0, 1.0]), size=part.weight.shape)
    signs /= np.sqrt(len(coef))
    turned = [risk.value_grad(coef + side * tuned.STEP_OF_CURVATURE * signs)[1] for side in (1, -1)]
    curved = (turned[0] - turned[1]) / (2 * tuned.STEP_OF_CURVATURE)
    found = []
    for share, sign, curve in zip(risk.shares(), potentials.unpack(signs), potentials.unpack(curved), strict=True):
        shared = np.sum(share[:, None, None] * sign.weight**2)
        found.append(float(np.sum(sign.weight * curve.weight)) / shared if shared > 0 else 0.0)
    return found


class ScaledLoss:
    """Loss of one or more fields as a function of scaled parameters, with shrinkage of leaves towards their parents."""

    # value_grad: function of the concatenated parameters of all fields
    # risks: risk of each field; coefs: parameters of each field
    # strengths: strength of the shrinkage of each field; 0 for no shrinkage

    def __init__(self, value_grad, risks, coefs, strengths, rng):
        self.value_grad, self.start = value_grad, np.concatenate(coefs)
        self.ends = np.cumsum([len(coef) for coef in coefs])[:-1]
        self.scalings, self.pulls = [], []
        for risk, coef, strength in zip(risks, coefs, strengths, strict=True):
            self.scalings.append(LeafScaling(risk, rng))
            self.pulls.append(Shrinkage(risk, coef, strength, rng) if strength else None)

    def _call_each_scaling(self, name, x, *arguments):
        parts = zip(self.scalings, np.split(x, self.ends), strict=True)
        return np.concatenate([getattr(scaling, name)(part, *arguments) for scaling, part in parts])

    def coefs(self, x, bounds):
        """Return the parameters of each field, with eigenvalues between bounds."""
        parts = zip(self.scalings, np.split(self._call_each_scaling("unscaled", x), self.ends), strict=True)
        return [scaling.potentials.project(part, bounds) for scaling, part in parts]

    def minimised(self, plan, unit, callback=None):
        """Minimise the loss divided by ``unit``, so that tolerances do not depend on the scale of the loss."""

        def value_grad(x):
            coef = self._call_each_scaling("unscaled", x)
            value, gradient = self.value_grad(coef)
            parts = [np.split(values, self.ends) for values in (coef, gradient)]
            for pull, own, slope in zip(self.pulls, *parts, strict=True):
                if pull is not None:
                    more, of_pull = pull.value_grad(own)
                    value, slope[:] = value + more, slope + of_pull
            return value / unit, self._call_each_scaling("gradient", gradient) / unit

        minimize: Callable = minimize_spg if plan.solver.method == "spg" else minimize_pqn
        return minimize(
            value_grad,
            self._call_each_scaling("scaled", self.start),
            project=lambda x: self._call_each_scaling("project", x, plan.bounds),
            max_iter=plan.max_iter,
            tol=plan.tol,
            # Values are computed in float32, so they have rounding errors of this size.
            precision=4 * float(np.finfo(np.float32).eps),
            callback=callback,
        )
