"""What estimators on regression tree fields share: from images and encoded targets to a field, and back."""

import warnings
from math import isqrt
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding._layout import validate_sample_weight
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.models import GaussianModel
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf._growth import GrowthOptions
from sklearn_crf.rtf._input import (
    TrainingData,
    at_most,
    check_multipliers,
    chosen_channels,
    held_out,
    joined,
    multiplier_channels,
)
from sklearn_crf.rtf._objectives import GaussianLikelihood, GaussianPseudolikelihood, PredictionLoss
from sklearn_crf.rtf._options import OPTION_CLASSES, FieldSolver, Splits, Window, as_options
from sklearn_crf.rtf._prediction import FittedField, conditioned, filtered, fitted_filter_bank, in_units
from sklearn_crf.rtf._training import Field, TrainingOptions, train
from sklearn_crf.rtf._trees import RegressionTree, factor_types

# Squares of an image that are wanted at least, and sides of squares. Small ones are spread better, large ones need
# less around them.
_SQUARES = 4
_LEAST_SIDE, _LARGEST_SIDE = 4, 32


def sampled_variables(data, max_samples, margin, rng):
    """At most so many variables, the pixels of squares chosen at random, with weight 0 for what is around them.

    The terms of these variables are those that they have in the whole images, so that the mean over the sample has the
    mean over all pixels as its expectation.

    Parameters
    ----------
    data : TrainingData
    max_samples : int or None
    margin : int
        Rows and columns around a square that the terms of its pixels depend on.
    rng : RandomState

    Returns
    -------
    TrainingData
    """
    if data.is_within(max_samples):
        return data
    side = min(max(isqrt(max_samples // (_SQUARES * len(data.features))), _LEAST_SIDE), _LARGEST_SIDE)
    squares = squares_of(data, side)
    kept, n_kept = [], 0
    for number in rng.permutation(len(squares)):
        _, rows, columns = squares[number]
        n_own = (rows.stop - rows.start) * (columns.stop - columns.start)
        if not kept or n_kept + n_own <= max_samples:
            kept.append(number)
            n_kept += n_own
    return with_surroundings(data, [squares[number] for number in sorted(kept)], margin)


def squares_of(data, side):
    """Squares that cover the images, as (image, rows, columns), cut off at the borders; of chains as many pixels each.

    Parameters
    ----------
    data : TrainingData
    side : int

    Returns
    -------
    list of (int, slice, slice)
    """
    found = []
    for number, plane in enumerate(data.features):
        height, width = plane.shape[:2]
        across = side if height > 1 else side**2
        for top in range(0, height, side):
            for left in range(0, width, across):
                rows, columns = slice(top, min(top + side, height)), slice(left, min(left + across, width))
                found.append((number, rows, columns))
    return found


def with_surroundings(data, squares, margin):
    """Cuts of the images around squares; pixels outside the squares have weight 0.

    Parameters
    ----------
    data : TrainingData
    squares : list of (int, slice, slice)
    margin : int

    Returns
    -------
    TrainingData
    """
    cuts = []
    for number, rows, columns in squares:
        shape = data.features[number].shape[:2]
        around = [
            slice(max(part.start - margin, 0), min(part.stop + margin, length))
            for part, length in zip((rows, columns), shape, strict=True)
        ]
        cut = data.cut(number, *around)
        weight = np.zeros(cut.features[0].shape[:2])
        inside = tuple(
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip((rows, columns), around, strict=True)
        )
        # A loss is a mean over the pixels of a cut, and is to be one over those of the image.
        weight[inside] = weight.size / np.prod(shape)
        own = np.ones(1) if data.weights is None else cut.weights[0]
        cuts.append(cut._replace(weights=[weight.ravel() * own]))
    found = joined(cuts)
    # Leaves are measured in factors: a pixel of a square counts as one, on average.
    used = [np.count_nonzero(weight) for weight in found.weights]
    scale = sum(used) / sum(weight.sum() for weight in found.weights)
    if data.weights is not None:
        scale *= np.mean(np.concatenate(data.weights))
    return found._replace(weights=[scale * weight for weight in found.weights])


# Pixels that inputs are whitened by.
_WHITENING_SAMPLES = 50_000

# Directions of less variance than this share of the largest are not magnified to one.
_LEAST_VARIANCE = 1e-6


def whitening_of_types(data, types, rng, n_jobs):
    """The matrix of each type.

    Parameters
    ----------
    data : TrainingData
    types : list of FactorType
    rng : RandomState
    n_jobs : int or None

    Returns
    -------
    list of ndarray of shape (B, n_inputs)
    """
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(types))

    def one(number, n_threads):
        return whitening_of(data.features, types[number], np.random.RandomState(seeds[number]), data.weights)

    return map_tasks(one, range(len(types)), n_jobs)


def whitening_of(features, kind, rng, weights=None):
    """A matrix that makes what linear models see uncorrelated and of variance one, but for the constant.

    Parameters
    ----------
    features : list of ndarray of shape (H, W, F)
    kind : FactorType
    rng : RandomState
    weights : list of ndarray of shape (N,), optional
        Of each pixel.

    Returns
    -------
    ndarray of shape (B, n_inputs)
        B is at most n_inputs: channels that are constant, or sums of others, add nothing.
    """
    samples, weight = [], []
    for k, plane in enumerate(features):
        top, left, rows, columns = kind.rectangle(plane.shape)
        n = min(rows * columns, max(1, _WHITENING_SAMPLES // len(features)))
        own = np.arange(n) if n == rows * columns else rng.randint(rows * columns, size=n)
        if n:
            pixels = np.stack([top + own // columns, left + own % columns], axis=1)
            samples.append(kind.inputs(kind.seen(plane), pixels)[:, 1:])
            own_weight = 1.0 if weights is None else weights[k].reshape(plane.shape[:2])[tuple(pixels.T)]
            weight.append(np.broadcast_to(own_weight, n))
    size = kind.n_inputs(features[0].shape[2])
    inputs = np.concatenate(samples).astype(np.float64) if samples else np.zeros((1, size - 1))
    weight = np.concatenate(weight)[:, None] if weight else np.ones((1, 1))
    weight = weight / weight.sum()
    mean = np.sum(weight * inputs, axis=0)
    deviation = np.sqrt(np.sum(weight * (inputs - mean) ** 2, axis=0))
    used = deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30)
    scaled = (inputs - mean)[:, used] / deviation[used]
    variance, directions = np.linalg.eigh(scaled.T @ (weight * scaled))
    top = variance.max(initial=0.0)
    kept = variance > 1e-10 * top
    rows = directions[:, kept].T / np.sqrt(np.maximum(variance[kept], _LEAST_VARIANCE * top))[:, None]
    white = np.zeros((1 + len(rows), size))
    white[0, 0] = 1.0
    white[1:, 1:][:, used] = rows / deviation[used]
    white[1:, 0] = -white[1:, 1:] @ mean
    return white


# Losses of the model, not of its prediction. They tell pixels apart, and so take a weight for each sample of a table.
LIKELIHOODS = {"pseudolikelihood": GaussianPseudolikelihood, "likelihood": GaussianLikelihood}


# What to pass where a nested parameter is set of something that was given by name.
_NESTED = {name: kind.__name__ for name, kind in OPTION_CLASSES.items()}
_NESTED |= {"inference": "ConjugateGradient", "filter_bank": "FilterBank"}


class FieldEstimator(BaseEstimator):
    """Base of estimators whose prediction is read off the mean of a regression tree field."""

    _parameter_constraints: ClassVar[dict] = {
        "window": [Integral, "array-like", Window],
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "filter_bank": [FilterBank, None],
        "split": [StrOptions({"gradient", "residual"}), Splits],
        "solver": [StrOptions({"pqn", "spg"}), FieldSolver],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "inference": [StrOptions({"auto"}), ConjugateGradient],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def set_params(self, **params):
        """Set parameters, those of option objects by nested names such as ``split__n_thresholds``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a nested name is given for a parameter that holds no object.
        """
        for key in params:
            name, nested, _ = key.partition("__")
            if not nested or name not in _NESTED:
                continue
            value = params.get(name, getattr(self, name))
            if not hasattr(value, "set_params"):
                raise ValueError(f"{key} needs an object: pass {name}={_NESTED[name]}() first, got {name}={value!r}.")
        return super().set_params(**params)

    def models(self, X, evidence=None) -> list[GaussianModel]:
        r"""Gaussian field of every example under the fitted weights, in the units of the target.

        .. math::
            p(y \mid x) \propto \exp(-\tfrac12 y^\top J(x) \, y + h(x)^\top y)

        Any inference for :class:`~sklearn_crf.models.GaussianModel` can be run on them; the means are what ``predict``
        is read off.

        Parameters
        ----------
        X : array-like or list of array-like
            Examples, as in ``predict``.
        evidence : array-like or list of array-like, optional
            Known values or labels, in the layout of y; NaN (or the missing label) where they are not known. Known nodes
            keep their place in the graph without edges, with the known value as mean, and their neighbours are
            conditioned on them.

        Returns
        -------
        list of GaussianModel
            In float64. Plain samples are one model.
        """
        check_is_fitted(self)
        planes = self._planes_to_predict(X)
        known = None if evidence is None else self._known_values(planes, evidence)
        field = self._fitted_field()
        found = []
        for i, plane in enumerate(planes.features):
            model = in_units(field.model(plane, 1), self.target_mean_, self.target_scale_)
            found.append(model if known is None else conditioned(model, known[i]))
        return found

    def _continues(self):
        """Whether ``fit`` goes on from the field that it finds."""
        return self.warm_start and hasattr(self, "trees_")

    def _weights(self, planes, sample_weight):
        weight = validate_sample_weight(sample_weight, planes.encoded.n_examples)
        if weight is None:
            return None
        if planes.encoded.layout != "nodes":
            return [np.full(plane[..., 0].size, w) for plane, w in zip(planes.features, weight, strict=True)]
        if self._is_prediction_loss() and np.ptp(weight):
            raise ValueError("sample_weight of plain samples needs loss='pseudolikelihood': they are one image.")
        return [weight]

    def _fit_field(self, planes, targets, weights, objective):
        """Train on targets of mean 0 and variance 1, and keep what was found."""
        rng = check_random_state(self.random_state)
        window, solver = as_options(self.window, "window"), as_options(self.solver, "solver")
        split = as_options(self.split, "split")
        bounds = tuple(solver.eigenvalue_bounds)
        is_table = planes.encoded.layout == "nodes"
        bank = fitted_filter_bank(self.filter_bank, planes.features, planes.encoded.lattice_ndim)
        features = planes.features if bank is None else filtered(bank, planes.features, self.n_jobs)
        data, validation = TrainingData(features, planes.graphs(), targets, weights), None
        if solver.early_stopping:
            data, validation = held_out(data, solver.validation_fraction, is_table, rng)
        if isinstance(objective, GaussianPseudolikelihood) and not is_table:
            reach = int(np.abs(planes.offsets).max(initial=0)) + split.feature_radius
            data = sampled_variables(data, solver.max_samples, reach, rng)
        else:
            data = at_most(data, solver.max_samples, is_table, rng)
        channels = chosen_channels(window.pairwise_channels, features[0].shape[2])
        multipliers = multiplier_channels(window.precision_channels, features[0].shape[2])
        check_multipliers(features, multipliers)
        types = factor_types(planes.offsets, channels, multipliers)
        with single_threaded_blas():
            whitening = whitening_of_types(data, types, rng, self.n_jobs)
        n_values = targets[0].shape[1]
        if self._continues():
            self._check_same_channels(channels, multipliers)
            trees = [RegressionTree(**tree) for tree in self.trees_]
            start = Field.restored(types, whitening, n_values, trees, self.precisions_, self.weights_, self.slopes_)
        else:
            start = Field.stumps(types, whitening, n_values, bounds)
        of_pairs = self.max_depth if window.max_depth is None else window.max_depth
        options = TrainingOptions(
            solver.method,
            [self.max_depth] + [of_pairs] * len(planes.offsets),
            self.max_iter,
            self.tol,
            GrowthOptions(
                split.n_feature_tests,
                split.n_thresholds,
                split.feature_radius,
                split.max_samples,
                split.min_samples_leaf,
                bounds,
                split.criterion,
            ),
            self._report if self.verbose else _silent,
            solver.shrinkage,
        )
        with single_threaded_blas():
            found = train(objective, start, data, options, rng, self.n_jobs, validation, self._continues())
        self._store(found, whitening, planes, bank)
        self.pairwise_channels_ = np.arange(features[0].shape[2]) if channels is None else np.array(channels)
        self.precision_channels_ = np.array(multipliers, dtype=np.int64)
        self._warn(found)

    def _fitted_field(self):
        return FittedField(
            factor_types(self.offsets_, self._known_channels(), tuple(self.precision_channels_.tolist())),
            self.trees_,
            self.precisions_,
            self.weights_,
            self.slopes_,
            max(self.lattice_ndim_, 1),
            self.filter_bank_,
        )

    def _field_means(self, planes, and_also=None):
        """Mean of the field of each plane, of mean 0 and variance 1, and what a function makes of the model."""
        field = self._fitted_field()
        solver = self._solver(1e-5)
        with single_threaded_blas():
            found = map_tasks(
                lambda plane, n_threads: field.mean(plane, solver, n_threads, and_also), planes.features, self.n_jobs
            )
        return [mean for mean, _ in found], [other for _, other in found]

    def _known_channels(self):
        return chosen_channels(self.pairwise_channels_, self.weights_[0].shape[2] - 1)

    def _check_same_channels(self, channels, multipliers):
        if channels != self._known_channels() or list(multipliers) != self.precision_channels_.tolist():
            raise ValueError("warm_start needs the pairwise_channels and precision_channels of the last call of fit.")

    def _is_prediction_loss(self):
        return not (isinstance(self.loss, str) and self.loss in LIKELIHOODS)

    def _objective(self, losses, mean, scale):
        """What training minimises: a likelihood, or a loss of the prediction out of a dictionary of them."""
        if not self._is_prediction_loss():
            return LIKELIHOODS[self.loss]()
        loss = self.loss if callable(self.loss) else losses[self.loss]
        return PredictionLoss(loss, self._solver(1e-4), mean, scale)

    def _solver(self, tol):
        return ConjugateGradient(tol=tol) if self.inference == "auto" else self.inference

    def _report(self, rounds, value, n_leaves):
        progress = f"round {len(rounds)}: {rounds[-1]} iterations, loss {value:.6g}"
        print(f"[{type(self).__name__}] {progress}, leaves {n_leaves}")

    def _store(self, found, whitening, planes, bank):
        parameters = found.potentials.unpack(found.coef)
        self.trees_ = [tree._asdict() for tree in found.trees]
        self.precisions_ = [part.precision.copy() for part in parameters]
        self.slopes_ = [part.slopes.copy() for part in parameters]
        self.weights_ = [part.weight @ white for part, white in zip(parameters, whitening, strict=True)]
        self.offsets_, self.filter_bank_ = planes.offsets, bank
        self.loss_curve_, self.round_ends_ = found.loss_curve, found.rounds
        self.validation_curve_ = found.validation_curve
        self.n_iter_ = int(found.rounds[-1])
        planes.encoded.record(self)

    def _warn(self, found):
        if not found.solved:
            warnings.warn(
                "conjugate gradients did not reach their tolerance for some image; raise max_iter of inference, or the "
                "least of FieldSolver's eigenvalue_bounds.",
                ConvergenceWarning,
                stacklevel=5,
            )
        if not found.success:
            warnings.warn(
                f"the last round stopped after max_iter={self.max_iter} iterations; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=5,
            )


def flattened(y, predicted, sample_weight):
    """Values of all pixels, those predicted, and their weights, as scores take them."""
    weight = None
    if sample_weight is not None:
        weight = np.concatenate([np.full(np.size(v), w) for v, w in zip(predicted, sample_weight, strict=True)])
    truth, found = (np.concatenate([np.ravel(part) for part in values]) for values in (y, predicted))
    return truth, found, weight


def _silent(rounds, value, n_leaves):
    pass
