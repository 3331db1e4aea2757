"""Training objectives of Gaussian fields: pseudolikelihood, exact likelihood, and prediction losses."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from sklearn_crf._own_methods import errors_of
from sklearn_crf._threads import map_tasks, split_into_ranges
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect, convergence_left_to_caller
from sklearn_crf.inference._results import as_finite
from sklearn_crf.inference.gaussian._base import invert_diagonal_blocks, make_not_definite_error
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._potentials import FieldImage, GaussianStatistics, GradientSums
from sklearn_crf.rtf.images._degradation import solve_from_image

# For each name of a solver, a function that builds the solver for a tolerance on the residual.
SOLVERS: dict[str, Callable] = {
    "auto": ConjugateGradient,
    "conjugate_gradient": ConjugateGradient,
    "direct": lambda tol: GaussianDirect(covariance=False),
    "bp": lambda tol: GaussianBP(),
}


def make_solver(inference: Any, tol: float = 1e-5) -> Any:
    """Return the solver for means of fields: ``inference`` itself or, if ``inference`` is a name, a new solver."""
    return SOLVERS[inference](tol=tol) if isinstance(inference, str) else inference


class GaussianLoss(NamedTuple):
    """Loss of one Gaussian field, and the derivative of the loss with respect to the field's parameters."""

    value: float
    statistics: GaussianStatistics
    state: object = None  # warm start for the next inference on this image
    converged: bool = True  # whether inference has converged


class GaussianPseudolikelihood:
    r"""Negative log-pseudolikelihood of the values of an image, averaged over its pixels.

    .. math::
        -\frac1N \sum_s \log p(y_s \mid y_{\setminus s}) = \frac1N \sum_s \Big[
            \tfrac12 (y_s - m_s)^\top A_s (y_s - m_s) - \tfrac12 \log \det A_s + \tfrac{D}{2} \log 2 \pi \Big], \qquad
        m_s = A_s^{-1} (h_s - \sum_{t \ne s} J_{st} y_t)

    Convex in the values of the field.
    """

    unit = reported = 1.0

    def is_mean(self, graph):
        """Return whether the loss of an image is a mean over its pixels."""
        return True

    def loss(self, model, y, *, weight=None, state=None, n_threads=1, start=None):
        """Return the loss of a field for target values."""
        # y: (N, D); weight: (N,), or one number for all pixels
        n_nodes, n_values = y.shape
        weight = np.broadcast_to(1.0 if weight is None else weight, n_nodes) / n_nodes
        diagonal = np.asarray(model.diagonal, dtype=np.float64)
        covariance = invert_diagonal_blocks(diagonal)
        y = np.asarray(y, dtype=model.dtype)
        # h - J y is the precision times the difference between the conditional mean and y.
        off = np.asarray(model.h, dtype=np.float64) - model.product(y)
        shift = np.einsum("sab,sb->sa", covariance, off)
        log_det = np.log(diagonal[:, 0, 0]) if n_values == 1 else np.linalg.slogdet(diagonal)[1]
        terms = 0.5 * (np.sum(off * shift, axis=1) - log_det + n_values * np.log(2 * np.pi))
        mean = y + shift
        square = y[:, :, None] * y[:, None, :] - mean[:, :, None] * mean[:, None, :] - covariance
        statistics = GaussianStatistics(
            weight[:, None] * shift, np.asarray(y, dtype=np.float64), 0.5 * weight[:, None, None] * square
        )
        return GaussianLoss(float(weight @ terms), statistics)


def compute_mean_statistics(mean, linear):
    """Convert ``linear``, a derivative with respect to h, to the derivative with respect to all blocks of h and J."""
    # mean: (N, D); linear: (N, D) float64, derivative with respect to h
    values = mean.astype(np.float64)
    outer = linear[:, :, None] * values[:, None, :]
    return GaussianStatistics(linear, values, -0.5 * (outer + outer.transpose(0, 2, 1)))


@dataclass(eq=False)
class PredictionLoss:
    r"""Prediction loss of a field, :math:`\ell(J^{-1} h, y)`.

    The derivative requires one more solve, :math:`c = J^{-1} \nabla \ell`. The derivative with respect to ``h`` is c.
    The derivative with respect to a block (s, t) of J is :math:`-c_s u_t^\top`, with the prediction u.
    """

    # ``loss_function(prediction, target)`` for arrays ``(*lattice, D)``; returns the value and the derivative
    loss_function: Callable
    solver: Any
    # (D,); the field predicts ``(value - offset) / scale``
    offset: Any = 0.0
    scale: Any = 1.0
    # ``weighted_loss(prediction, target, weight)`` for pixel weights ``(*lattice, 1)``, or None
    weighted_loss: Any = None
    # Unit of the loss: if the user's values are multiplied by a constant, the unit and the loss grow by the same factor
    unit: float = 1.0
    # Factor that converts the loss to the units of the user
    reported: float = 1.0
    # Factor of a penalty on predictions, which is half the squared prediction at each pixel
    ridge: float = 0.0

    def is_mean(self, graph):
        """Return whether the loss of an image is a mean over its pixels."""
        return self.weighted_loss is not None

    def loss(self, model, y, *, weight=None, state=None, n_threads=1, start=None):
        """Return the loss of a field for target values."""
        # y: (N, D); weight: (N,), or one number for all pixels; start: (N, D), start of the solve for an observed image
        first, second = (None, None) if state is None else state
        found = solve_from_image(self.solver, model, start, first, n_threads)
        value, slope = self._evaluate(model, found.x, y, weight)
        linear, adjoint = self.adjoint(model, slope, second, n_threads)
        converged = found.converged and adjoint.converged
        return GaussianLoss(value, compute_mean_statistics(found.x, linear), (found.x, adjoint.x), converged)

    def _evaluate(self, model, x, y, weight):
        """Return the value of the loss, and its derivative with respect to the field's mean."""
        shape = *model.graph.shape, model.n_values
        prediction, target = ((self.offset + self.scale * z.astype(np.float64)).reshape(shape) for z in (x, y))
        missing = np.isnan(target)
        if missing.all():
            return 0.0, np.zeros(y.shape)
        if missing.any():
            # A missing target must not contribute to the loss.
            target = np.where(missing, prediction, target)
        value, slope = self._compute_weighted_loss(prediction, target, weight)
        return value, (np.where(missing, 0.0, slope) * self.scale).reshape(y.shape)

    def adjoint(self, model, slope, init=None, n_threads=1):
        r"""Return :math:`J^{-1}` times ``slope`` (the derivative with respect to the mean), and the solver's result."""
        # slope: (N, D)
        # Derivatives are divided by their largest magnitude, so that they stay within the range of float32.
        unit = float(np.abs(slope).max(initial=0.0)) or 1.0
        found = self.solver.solve(model, slope / unit, init=init, n_threads=n_threads)
        return np.multiply(found.x, unit, dtype=np.float64), found

    def _compute_weighted_loss(self, prediction, target, weight):
        if np.ndim(weight) == 0:
            value, slope = self._check_loss(prediction, target)
            share = 1.0 if weight is None else weight
            value, slope = share * value, share * slope
        else:
            share = weight.reshape(*prediction.shape[:-1], 1)
            value, slope = self.weighted_loss(prediction, target, share)
        if not self.ridge:
            return value, slope
        pull = self.ridge / max(prediction[..., 0].size, 1) * share * prediction
        return value + 0.5 * float(np.sum(pull * prediction)), slope + pull

    def _check_loss(self, prediction, target):
        """Compute the loss, and check its value and derivative, because users can pass their own loss functions."""
        found = self.loss_function(prediction, target)
        with errors_of(getattr(self.loss_function, "__name__", type(self.loss_function).__name__)):
            if not (isinstance(found, tuple | list) and len(found) == 2):
                raise TypeError(
                    "a loss must return its value and the derivative with respect to the prediction, got "
                    f"{type(found).__name__}."
                )
            value, slope = found
            if np.ndim(value) or np.isnan(value):
                raise ValueError(f"the value of the loss must be a number, got {value!r}.")
            return value, as_finite(
                slope, ("the derivative of the loss with respect to the prediction"), prediction.shape
            )


class Whole(NamedTuple):
    """Summary of all training images, for risks that hold only a part of the images."""

    n_images: int
    weight: float  # sum of the mean weights of all images
    part: int | None = None  # index of the part; None if the risk holds all images

    def random_state(self, seed):
        """Return the random number generator of this part."""
        return np.random.RandomState(seed if self.part is None else [seed, self.part])


def group_stacks(images, objective):
    """Group small images of equal shape that can be evaluated together; return the image indices of each group."""
    # returns list of list of int
    stacks, of_shape = list[list](), dict[tuple, list]()
    for i, image in enumerate(images):
        n_pixels, n_axes = prod(image.features.shape[:-1]), len(image.graph.shape)
        is_alone = image.observation is not None or n_axes > 2 or 2 * n_pixels > tuned.PIXELS_OF_STACK
        if is_alone or not objective.is_mean(image.graph):
            stacks.append([i])
        else:
            of_shape.setdefault(image.features.shape, []).append(i)
    for shape, members in of_shape.items():
        # Stacks have about equal sizes, because a larger stack would keep the other threads waiting.
        n_stacks = -(-len(members) // (tuned.PIXELS_OF_STACK // prod(shape[:-1])))
        stacks += [own.tolist() for own in np.array_split(members, n_stacks)]
    return sorted(stacks)


def stack_images(images):
    """Stack images into one image: planes become slices of a volume, and chains become rows of a plane.

    No factors connect the stacked images.
    """
    if len(images) == 1:
        return images[0]
    graph = images[0].graph
    join = np.concatenate if len(graph.shape) == 1 else np.stack
    whole = lattice((len(images), *graph.shape), np.pad(graph.offsets, ((0, 0), (1, 0))))
    leaves = [np.concatenate(of_type) for of_type in zip(*(image.leaves for image in images), strict=True)]
    chosen = {key: join([image.chosen[key] for image in images]) for key in images[0].chosen}
    return FieldImage(join([image.features for image in images]), whole, leaves, chosen)


class FieldRisk:
    r"""Mean loss over images as a function of the parameters of a field, with its derivative.

    .. math:: R(w) = \frac{1}{\sum_i \omega_i} \sum_i \omega_i \, \ell_i (B(x_i) w)

    Images are summed in a fixed order for any number of threads. Each image has its own warm start.
    """

    # targets: list of (N, D)
    # weights: list of (N,) or None, pixel weights of each image; the weights are divided by their mean
    # whole: summary of all training images if the risk holds only a part of them
    # stacks: list of list of int, images that are evaluated together; None evaluates each separately

    def __init__(self, objective, potentials, images, targets, weights=None, n_jobs=None, whole=None, stacks=None):
        self.objective = objective
        self.targets = targets
        self.n_jobs = n_jobs
        self.converged = True
        self.stacks = [[i] for i in range(len(images))] if stacks is None else stacks
        self.states = [None] * len(self.stacks)
        if weights is None:
            weights = [np.ones(len(y)) for y in targets]
        if whole is None:
            whole = Whole(len(images), sum(float(np.mean(weight)) for weight in weights))
        if not whole.weight:
            raise ValueError(
                "y has no known values among the pixels sampled for a round of training: use "
                "FieldSolver(max_samples=None), or leave out images and regions without known values."
            )
        self.whole = whole
        self._weights = [np.asarray(weight, dtype=np.float64) / whole.weight for weight in weights]
        self._take(potentials, images)
        self._of_stacks = []
        for first, *others in self.stacks:
            target, weight = (
                np.concatenate([parts[first], *(parts[i] for i in others)]) if others else parts[first]
                for parts in (targets, self._weights)
            )
            # The loss of a stack is a mean over the pixels of all its images.
            weight = (1 + len(others)) * weight
            self._of_stacks.append((target, weight[0] if np.all(weight == weight[0]) else weight))

    def replaced(self, potentials, images):
        """Return the risk of a field whose trees have grown; the new risk has the same warm starts."""
        other = copy(self)
        other._take(potentials, images)
        return other

    def _take(self, potentials, images):
        self.potentials, self.images, self._leaf_weights = potentials, images, None
        self._stacked = [stack_images([images[i] for i in members]) for members in self.stacks]

    def parts(self, function, *arguments):
        """Return a list with the result of ``function`` for each shard; images in memory count as one shard."""
        return [function(self, *arguments)]

    def total(self, function, *arguments):
        """Return the sum over all shards of the results of ``function``."""
        return function(self, *arguments)

    def value_grad(self, coef):
        """Return the mean loss over images and its derivative with respect to the parameters."""
        parameters = self._parameters(coef)

        def group(members, n_threads):
            value, gradient = 0.0, GradientSums(self.potentials)
            for k in range(*members):
                loss = self._loss(parameters, k, n_threads)
                value += loss.value
                gradient.add(self._stacked[k], loss.statistics)
            return value, gradient.total()

        # Groups do not depend on n_jobs, so that sums are reproducible.
        # A separate gradient for each image could take gigabytes.
        n_groups = min(tuned.MOST_GROUPS, max(tuned.LEAST_GROUPS, tuned.NUMBERS_OF_GROUPS // self.potentials.n_coef))
        parts = map_tasks(group, split_into_ranges(len(self.stacks), n_groups), self.n_jobs)
        total = np.zeros(self.potentials.n_coef)
        for _, gradient in parts:
            total += gradient
        return sum(value for value, _ in parts), total

    def value(self, coef):
        """Return the mean loss over images."""
        parameters, stacks = self._parameters(coef), range(len(self.stacks))
        return sum(map_tasks(lambda k, n_threads: self._loss(parameters, k, n_threads).value, stacks, self.n_jobs))

    def _parameters(self, coef):
        """Return the parameters in the floating point type of the images."""
        return self.potentials.at(coef, self._stacked[0].features.dtype) if self._stacked else None

    def leaf_weights(self):
        """Return the total weight of the factors in each leaf, for each type."""
        # returns list of (n_leaves,)
        if self._leaf_weights is None:
            types = range(len(self.potentials.types))
            self._leaf_weights = map_tasks(self._sum_type_leaf_weights, types, self.n_jobs)
        return self._leaf_weights

    def _sum_type_leaf_weights(self, number, n_threads):
        kind, size = self.potentials.types[number], self.potentials.n_leaves[number]
        total = np.zeros(size)
        for k, image in enumerate(self.images):
            total += np.bincount(image.leaves[number], self.gather_factor_weights(k, kind), minlength=size)
        return total

    def shares(self):
        """Return, for each type, the weighted fraction of factors in each leaf; 1 / n_leaves for empty leaves."""
        # returns list of (n_leaves,)
        return [
            np.where(total > 0, total / (total.sum() or 1.0), 1 / len(total))
            for total in self.total(FieldRisk.leaf_weights)
        ]

    def gather_factor_weights(self, i, kind):
        """Return factor weights on image i for one type; the weight of a factor is the weight of its first pixel."""
        # returns (n_factors,)
        plane = self.images[i].features.shape[:-1]
        return self._weights[i].reshape(plane)[kind.ends(plane)[0]].ravel() * self.whole.weight

    def statistics(self, coef):
        """Return the derivatives of the mean loss with respect to the field of each image."""
        found, parameters = [None] * len(self.images), self._parameters(coef)
        of_stacks = map_tasks(
            lambda k, n_threads: self._loss(parameters, k, n_threads).statistics, range(len(self.stacks)), self.n_jobs
        )
        for members, whole in zip(self.stacks, of_stacks, strict=True):
            parts = [whole] if len(members) == 1 else whole.split(len(members))
            for i, own in zip(members, parts, strict=True):
                found[i] = own
        return found

    def _loss(self, parameters, k, n_threads):
        return self.loss_of(parameters, self._stacked[k], k, n_threads)

    def loss_of(self, parameters, image, k, n_threads):
        """Return the loss for stack k, which is a group of images that are evaluated together.

        ``image`` may have other channels than the images of this risk.
        """
        model = parameters.model(image, n_threads)
        target, weight = self._of_stacks[k]
        options = {"weight": weight, "state": self.states[k], "n_threads": n_threads, "start": image.start}
        with convergence_left_to_caller():
            loss = self.objective.loss(model, target, **options)
        self.states[k] = loss.state
        self.converged = self.converged and loss.converged
        return loss


class GaussianLikelihood:
    r"""Negative log-likelihood of the values of an image, divided by its number of pixels.

    .. math::
        -\frac1N \log p(y) = \frac{1}{2 N} (y - u)^\top J (y - u) - \frac{1}{2 N} \log \det J + \frac{D}{2} \log 2 \pi,
        \qquad u = J^{-1} h

    Convex in the values of the field. The loss computes the whole inverse of J, so fields are limited to 4096 values.
    """

    unit = reported = 1.0

    def is_mean(self, graph):
        """Return whether the loss is a mean over pixels, which requires a graph without edges."""
        return graph.n_edges == 0

    def loss(self, model, y, *, weight=None, state=None, n_threads=1, start=None):
        """Return the loss of a field for target values."""
        # y: (N, D); weight: (N,)
        if model.graph.n_edges == 0:
            return GaussianPseudolikelihood().loss(model, y, weight=weight)
        n_nodes, n_values = y.shape
        if y.size > tuned.MOST_DENSE_VALUES:
            raise ValueError(
                "loss='likelihood' inverts the precision matrix of each image, so an image can have at most "
                f"{tuned.MOST_DENSE_VALUES} values, got {y.size}."
            )
        precision = model.precision_matrix().toarray()
        try:
            factor = scipy.linalg.cho_factor(precision, lower=True)
        except np.linalg.LinAlgError as error:
            raise make_not_definite_error("its Cholesky factorisation fails") from error
        covariance = scipy.linalg.cho_solve(factor, np.eye(y.size))
        y = np.asarray(y, dtype=np.float64)
        mean = (covariance @ model.h.ravel().astype(np.float64)).reshape(y.shape)
        off = (y - mean).ravel()
        log_det = 2 * np.log(np.diagonal(factor[0])).sum()
        value = 0.5 * (off @ precision @ off - log_det) / n_nodes + 0.5 * n_values * np.log(2 * np.pi)
        blocks = covariance.reshape(n_nodes, n_values, n_nodes, n_values)
        tails, heads = model.graph.edges.T
        scale = (1.0 if weight is None else weight if np.ndim(weight) == 0 else weight[0]) / n_nodes
        own = blocks[np.arange(n_nodes), :, np.arange(n_nodes)]
        square = y[:, :, None] * y[:, None, :] - mean[:, :, None] * mean[:, None, :] - own
        # y y' - u u' is a product of ``linear`` and ``values``.
        # The covariance is not such a product, and therefore needs ``square`` and ``cross``.
        statistics = GaussianStatistics(
            scale * (mean - y), (mean + y) / 2, 0.5 * scale * square, -scale * blocks[tails, :, heads]
        )
        return GaussianLoss(float(scale * n_nodes * value), statistics)
