"""Base class of the estimators on regression tree fields: training on encoded targets, and prediction."""

from collections.abc import Callable
from functools import partial
from math import prod
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks, warn_caller
from sklearn_crf._threads import kept_threads, map_coarse, single_threaded_blas
from sklearn_crf._versions import restore_versioned_state, versioned_state
from sklearn_crf.encoding import validate_sample_weight
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect
from sklearn_crf.models import GaussianModel
from sklearn_crf.preprocessing import ChannelUnion, FilterBank, PatchAverages, PatchGroups, PatchShrinkage
from sklearn_crf.preprocessing._filter_bank import BANKS
from sklearn_crf.rtf._deviations import held_out_errors, is_worse_than_mean
from sklearn_crf.rtf._objectives import GaussianLikelihood, GaussianPseudolikelihood, PredictionLoss
from sklearn_crf.rtf._options import OPTION_CLASSES, ChosenOptions, FieldSolver, Splits, Window, as_options
from sklearn_crf.rtf._prediction import FittedField, check_saved_trees, conditioned, in_units, slices_of
from sklearn_crf.rtf._rounds import (
    DEFAULT_BANKS,
    MOST_CHANNELS,
    ImagesHere,
    Pairs,
    bank_in_units,
    default_bank,
    image_channels,
    sampled_rows,
    sampled_variables,
    split_off,
)
from sklearn_crf.rtf._scaling import whitening_of_types
from sklearn_crf.rtf._tiled import predict_in_tiles
from sklearn_crf.rtf._training import TrainingOptions, TreeField, train, weight_of_known_pixels
from sklearn_crf.rtf._trees import GrowthOptions, RegressionTree, factor_templates
from sklearn_crf.rtf.images._degradation import Degradations, KnownValues, Observation, solved_from
from sklearn_crf.rtf.images._gaps import n_masks
from sklearn_crf.rtf.images._input import Planes, check_multipliers, chosen_channels, multiplier_channels
from sklearn_crf.rtf.images._units import ChannelUnits
from sklearn_crf.rtf.losses import mse, of_mean_square, unit_of_loss


def _weighted_mse(prediction, target, weight):
    root = np.sqrt(weight)
    value, slope = mse(root * prediction, root * target)
    return value, root * slope


# Losses of predictions that are sums over pixels, as functions that take a weight for each pixel.
WEIGHTED = {"mse": _weighted_mse}

# Losses that compare windows of an image.
_OF_IMAGES = "ssim", "iw_ssim"

# Losses of the model, not of its prediction. They are sums over pixels, so each row of a table may have a weight.
LIKELIHOODS = {"pseudolikelihood": GaussianPseudolikelihood, "likelihood": GaussianLikelihood}

# Solvers by name, as functions of the residual to stop at.
_SOLVERS = {
    "auto": ConjugateGradient,
    "conjugate_gradient": ConjugateGradient,
    "direct": lambda tol: GaussianDirect(covariance=False),
    "bp": lambda tol: GaussianBP(),
}

# Images that filters are learned from.
_IMAGES_OF_BANK = 20


class ReadImages(NamedTuple):
    """Images and targets of a fit, or of a part of them, as planes."""

    planes: Planes
    targets: list  # (N, D) each, in the units of the user
    weights: list | None  # (N,) each
    layout: dict  # attributes that describe y
    corrupted: Callable | None = None
    missing: tuple = ()  # channels of X that may be NaN
    degradations: Degradations | None = None
    keeps_known: bool = False  # whether what is known of the first channels of X is the target itself

    def images(self, targets, weights, mean, scale, known=None):
        """The images with targets of mean 0 and variance 1."""
        # known: KnownValues, if known pixels are kept
        observe, choices = None if known is None else known.observation, None
        if self.degradations is not None:
            observe = partial(Observation.of, mean=mean, scale=scale, units=self.planes.units)
            choices = self.degradations.choices
        pairs = Pairs(self.planes.features, targets, weights, choices)
        return ImagesHere(pairs, self.planes.graph_of, self.corrupted, observe)


class FieldProblem(NamedTuple):
    """Images with targets of mean 0 and variance 1, and the objective that is minimised on them."""

    images: ImagesHere  # or ShardedImages
    encoded: object  # Encoded or Outline of X
    offsets: np.ndarray
    objective: object
    mean: np.ndarray  # (D,)
    scale: float  # targets times scale plus mean are those of the user
    units: ChannelUnits  # of the channels of X
    missing: tuple = ()  # channels of X that may be NaN
    is_observed: bool = False  # whether fields have the terms of observations
    keeps_known: bool = False


# Class to name in the error where a nested parameter is set but the parameter holds a name.
_NESTED = {name: kind.__name__ for name, kind in OPTION_CLASSES.items()}
_NESTED |= {"inference": "ConjugateGradient", "filter_bank": "FilterBank"}


def _split_rows(shapes, fraction, rng):
    """Choices of rows of a table to train on, and of those held out."""
    n_rows = sum(map(prod, shapes))
    n_out = max(1, round(fraction * n_rows))
    if n_out >= n_rows:
        raise ValueError(f"early_stopping needs examples to hold out and others to train on, got {n_rows}.")
    order = rng.permutation(n_rows)
    return ("rows", np.sort(order[n_out:])), ("rows", np.sort(order[:n_out]))


class FieldEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of the estimators that predict by the mean of a regression tree field."""

    __getstate__, __setstate__ = versioned_state, restore_versioned_state
    _check_state = check_saved_trees

    # Whether X may be a list of Example on lattices, whose nodes have types.
    _takes_examples = False

    # Last channels of X that filters do not see; fields of cascades that are trained together have some.
    _n_unfiltered = 0

    _parameter_constraints: ClassVar[dict] = {
        "window": [Integral, "array-like", Window],
        "max_depth": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "filter_bank": [
            StrOptions({*DEFAULT_BANKS, "pca", *BANKS}),
            FilterBank,
            PatchShrinkage,
            PatchAverages,
            PatchGroups,
            ChannelUnion,
            None,
        ],
        "split": [StrOptions({"gradient", "residual"}), Splits],
        "solver": [StrOptions({"pqn", "spg"}), FieldSolver],
        "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "inference": [StrOptions({*_SOLVERS}), ConjugateGradient, GaussianDirect, GaussianBP],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def _validate_params(self):
        for name, value in self.get_params(deep=False).items():
            for own in value if isinstance(value, list | tuple) else [value]:
                if isinstance(own, type):
                    raise InvalidParameterError(
                        f"The {name!r} parameter of {type(self).__name__} must be an object, got the class "
                        f"{own.__name__}: call it, as in {name}={own.__name__}(...)."
                    )
        super()._validate_params()

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
            if not nested or name not in _NESTED or not hasattr(self, name):
                continue
            value = params.get(name, getattr(self, name))
            if not hasattr(value, "set_params"):
                raise ValueError(f"{key} needs an object: pass {name}={_NESTED[name]}() first, got {name}={value!r}.")
        return super().set_params(**params)

    def models(self, X, evidence=None) -> list[GaussianModel]:
        r"""Gaussian field of every example under the fitted weights, in the units of the target.

        .. math::
            p(y \mid x) \propto \exp(-\tfrac12 y^\top J(x) \, y + h(x)^\top y)

        Any inference for :class:`~sklearn_crf.models.GaussianModel` can be run on them; ``predict`` uses
        their means.

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
        return self._models_of(self._planes_to_predict(X), evidence)

    def _models_of(self, planes, evidence, observations=None):
        if evidence is not None and observations is not None:
            raise ValueError("evidence cannot be combined with degradation.")
        known = None if evidence is None else self._known_values(planes, evidence)
        field = self._fitted_field()
        found = []
        for i, plane in enumerate(planes.features):
            observation = None if observations is None else observations[i]
            model = in_units(field.model(plane, 1, observation), self.target_mean_, self.target_scale_)
            found.append(model if known is None else conditioned(model, known[i]))
        return found

    def _continues(self):
        """Whether ``fit`` is a warm start."""
        return self.warm_start and hasattr(self, "trees_")

    def _weights(self, planes, sample_weight):
        weight = validate_sample_weight(sample_weight, planes.encoded.n_examples)
        if weight is None:
            return None
        if planes.encoded.layout != "nodes":
            return [np.full(plane[..., 0].size, w) for plane, w in zip(planes.features, weight, strict=True)]
        if self._is_prediction_loss() and np.ptp(weight) and not self._takes_pixel_weights():
            raise ValueError(
                f"sample_weight of plain samples needs a loss that is a sum over samples, such as 'mse' or "
                f"'pseudolikelihood', got {self.loss!r}."
            )
        return [weight]

    def _without_missing(self, planes, gaps, weights):
        """Weights that are 0 where the term of a pixel in the pseudolikelihood needs a missing target."""
        if self.loss == "likelihood":
            raise ValueError(
                "loss='likelihood' needs all of y: use 'pseudolikelihood' or 'mse' where values or labels are missing."
            )
        found = []
        for i, (gap, plane) in enumerate(zip(gaps, planes.features, strict=True)):
            gap = gap.reshape(plane.shape[:-1])
            touched = gap.copy()
            for kind in factor_templates(planes.offsets)[1:]:
                first, second = kind.ends(gap.shape)
                touched[first] |= gap[second]
                touched[second] |= gap[first]
            found.append(np.where(touched.ravel(), 0.0, 1.0 if weights is None else weights[i]))
        if not any(own.any() for own in found):
            raise ValueError(
                "loss='pseudolikelihood' needs pixels of y whose neighbours are known too, and there are none: use "
                "loss='mse'."
            )
        return found

    def _fit_field(self, X, y, problem, attributes):
        """Train, and keep the field together with attributes of the subclass."""
        rng = check_random_state(self.random_state)
        window, solver, split = (as_options(getattr(self, name), name) for name in ("window", "solver", "split"))
        if solver.ridge != "auto" and not self._is_of_scores():
            raise ValueError(
                f"ridge of FieldSolver needs a loss of scores, 'multinomial' or 'logistic', got loss={self.loss!r}."
            )
        images, encoded, offsets = problem.images, problem.encoded, problem.offsets
        if encoded.lattice_ndim == 3 and isinstance(self.loss, str) and self.loss in _OF_IMAGES:
            raise ValueError(f"loss={self.loss!r} is of images, but X holds volumes: use 'mse' or 'psnr'.")
        is_table = encoded.lattice_ndim == 0
        chosen = self._chosen(encoded.lattice_ndim, sum(map(prod, images.shapes)), solver)
        kept, held_out = self._held_out(images, is_table, solver, chosen, rng)
        sampled = None
        if is_table:
            sampled = partial(sampled_rows, max_samples=chosen.max_samples)
        elif isinstance(problem.objective, GaussianPseudolikelihood):
            margin = int(np.abs(offsets).max(initial=0)) + split.feature_radius
            sampled = partial(sampled_variables, max_samples=chosen.max_samples, margin=margin)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        rounds = images.rounds(kept, chosen.max_samples, sampled, seed, self.n_jobs)
        # What is held out has no part in choosing filters.
        inputs, targets, noise = rounds.first_pairs(_IMAGES_OF_BANK)
        rounds.bank = bank = self._fitted_bank(problem, inputs, targets, noise)
        validation = None
        if held_out is not None:
            of_held_out = images.rounds(held_out, None, None, seed + 1, self.n_jobs)
            of_held_out.bank = bank
            validation = of_held_out(0)
        # A warm start draws other parts and another corruption than the rounds of the last call.
        first = max(int(RegressionTree(**tree).depth) for tree in self.trees_) + 1 if self._continues() else 0
        data = rounds(first)
        types, channels = self._templates(window, bank, offsets, data)
        with single_threaded_blas():
            whitening = whitening_of_types(data, types, rng, self.n_jobs)
        differences = rounds.mean_square_differences(types) if problem.is_observed else None
        n_node_types = attributes.get("n_node_types_", 1)
        start = self._start(types, whitening, len(problem.mean), solver, differences, n_node_types)
        if problem.is_observed and not self._continues():
            start = start.drawn_to_regression(data, tuple(solver.eigenvalue_bounds), rng)
        n_numbers = sum(map(prod, images.shapes)) * len(problem.mean)
        chosen = chosen.with_depth(n_numbers, start.potentials.n_coef_of_leaves)
        options = self._training_options(chosen, window, solver, split, len(offsets), n_node_types)
        attributes = attributes | {
            "offsets_": offsets,
            "filter_bank_": bank,
            "missing_channels_": np.array(problem.missing, dtype=np.int64),
            "pairwise_channels_": np.array(channels, dtype=np.int64),
            "precision_channels_": np.array(types[0].multipliers, dtype=np.int64),
            "target_mean_": problem.mean,
            "target_scale_": problem.scale,
        }
        n_features = inputs[0].shape[-1] - n_masks(problem.missing) - (n_node_types > 1)
        callbacks = fit_callbacks(self, X, y, options.n_iterations)
        with single_threaded_blas(), kept_threads(self.n_jobs), callbacks as iteration:

            def fitted_now(field, coef):
                seen = {"n_features_in_": n_features, "lattice_ndim_": encoded.lattice_ndim}
                return attributes | seen | field._replace(coef=coef).attributes(whitening)

            objective = self._with_ridge(problem.objective, solver, n_node_types * chosen.n_leaves, data)
            found = train(
                objective,
                start,
                rounds,
                first,
                options._replace(on_iteration=lambda field, coef: iteration(lambda: fitted_now(field, coef()))),
                rng,
                self.n_jobs,
                None if validation is None else partial(_held_out_loss, problem.objective, validation, self.n_jobs),
                self._continues(),
            )
            held_out = None
            if validation is not None and isinstance(problem.objective, PredictionLoss):
                held_out = held_out_errors(problem.objective, found.field, validation, rng, self.n_jobs)
            is_vain = isinstance(problem.objective, GaussianPseudolikelihood) and not problem.is_observed
            is_vain = is_vain and is_worse_than_mean(images, bank, found.field, self._solver(1e-4), self.n_jobs)
            # The data of the last round are those at hand.
            last = partial(rounds, first + len(found.rounds) - 1)
            attributes = attributes | self._found_on(problem.objective, found.field, last, attributes)
        # Everything that can fail has happened: only now does the estimator change.
        encoded.record(self)
        self.__dict__.update(attributes | found.field.attributes(whitening))
        self.n_features_in_ = n_features
        self.loss_curve_, self.round_ends_ = found.loss_curve, found.rounds
        self.validation_curve_, self.held_out_errors_ = found.validation_curve, held_out
        self.n_iter_ = int(found.rounds[-1])
        self._warn(found, is_vain)

    def _found_on(self, objective, field, data, attributes):
        """Attributes that are learned from the predictions of a trained field for training images."""
        # data: function without arguments; attributes: those that are known
        return {}

    def _templates(self, window, bank, offsets, data):
        """Types of factors, and the channels that linear models of pairs see."""
        n_channels = next(n for n in data.parts(_n_channels) if n is not None)
        channels = chosen_channels(self._pairwise_channels(window, bank, n_channels), n_channels)
        multipliers = multiplier_channels(window.precision_channels, n_channels)
        data.parts(_check_multipliers, multipliers)
        if self._continues():
            self._check_same_channels(channels, multipliers)
        types = factor_templates(offsets, channels, multipliers)
        return types, range(n_channels) if channels is None else channels

    def _start(self, types, whitening, n_values, solver, differences, n_node_types):
        """The field of the last fit for a warm start, else trees of one leaf for each type of nodes."""
        if not self._continues():
            bounds = tuple(solver.eigenvalue_bounds)
            if differences is None:
                field = TreeField.stumps(types, whitening, n_values, bounds)
            else:
                field = TreeField.smooth(types, whitening, n_values, bounds, differences)
            # The type of a node is the last channel.
            return field.split_by_node_type(whitening[0].shape[1] - 2, n_node_types)
        trees = [RegressionTree(**tree) for tree in self.trees_]
        return TreeField.restored(types, whitening, n_values, trees, self.precisions_, self.weights_, self.slopes_)

    def _training_options(self, chosen, window, solver, split, n_pairs, n_node_types):
        of_pairs = chosen.max_depth if window.max_depth is None else window.max_depth
        of_types = (n_node_types - 1).bit_length()
        growth = GrowthOptions(
            split.n_feature_tests,
            split.n_thresholds,
            split.feature_radius,
            split.max_samples,
            split.min_samples_leaf,
            tuple(solver.eigenvalue_bounds),
            split.criterion,
        )
        return TrainingOptions(
            solver.method,
            [of_types + chosen.max_depth] + [2 * of_types + of_pairs] * n_pairs,
            chosen.max_iter,
            self.tol,
            growth,
            self._report,
            chosen.shrinkage,
        )

    def _chosen(self, lattice_ndim, n_pixels, solver):
        """Values of the parameters that are "auto", chosen by the amount of data."""
        by_prediction = self._is_prediction_loss()
        has_parents = as_options(self.split, "split").criterion != "residual"
        chosen = ChosenOptions.by_amount(lattice_ndim, n_pixels, by_prediction, has_parents, solver)
        own = {"max_depth": self.max_depth, "max_iter": self.max_iter}
        return chosen._replace(**{name: value for name, value in own.items() if value != "auto"})

    def _held_out(self, images, is_table, solver, chosen, rng):
        """Choices of images to train on, and of those held out, None without early stopping."""
        if not chosen.early_stopping:
            return None, None
        split = _split_rows if is_table else split_off
        choices = split(images.shapes, solver.validation_fraction, rng)
        if all(map(images.has_targets, choices)):
            return choices
        if solver.early_stopping != "auto":
            raise ValueError(
                "early_stopping=True needs known values of y in what it holds out and in the rest, and one of them "
                "has none: take FieldSolver(early_stopping=False)."
            )
        return None, None

    def _fitted_bank(self, problem, inputs, targets, noise):
        """The filter bank, fitted to the channels of X, or None."""
        if self._continues():
            return self.filter_bank_
        encoded = problem.encoded
        inputs = [plane[..., : encoded.n_features - self._n_unfiltered] for plane in inputs]
        bank, is_image, units = self.filter_bank, encoded.lattice_ndim >= 2, problem.units
        if isinstance(bank, str) and bank in DEFAULT_BANKS:
            if bank == "auto" and (not is_image or inputs[0].shape[-1] > MOST_CHANNELS):
                return None
            mean, scale = units.of_targets(problem.mean, problem.scale)
            targets = [mean + scale * y for y in targets]
            unit = float(units.scale[0])
            noise = noise if noise is None else [unit * level for level in noise]
            bank = default_bank(inputs, targets, noise, bank == "groups", unit)
        if bank is None:
            return None
        if not is_image:
            raise ValueError(f"filter_bank needs images, but X holds lattices of {encoded.lattice_ndim} axes.")
        if bank is self.filter_bank:
            bank = FilterBank(bank) if isinstance(bank, str) else bank_in_units(clone(bank), float(units.scale[0]))
        return bank.fit([own for plane in inputs for own in slices_of(plane)])

    def _pairwise_channels(self, window, bank, n_channels):
        is_default = isinstance(self.filter_bank, str) and self.filter_bank in DEFAULT_BANKS
        if window.pairwise_channels is None and is_default and bank is not None:
            return image_channels(bank, n_channels)
        return window.pairwise_channels

    def _fitted_field(self):
        return FittedField(
            factor_templates(self.offsets_, self._known_channels(), tuple(self.precision_channels_.tolist())),
            self.trees_,
            self.precisions_,
            self.weights_,
            self.slopes_,
            max(self.lattice_ndim_, 1),
            self.filter_bank_,
            self._known_pixels(),
        )

    def _known_pixels(self):
        """Terms that known pixels add to the field; None if it does not keep them."""
        if not getattr(self, "keeps_known_", False):
            return None
        units = ChannelUnits.of(vars(self), len(self.target_mean_))
        return KnownValues(tuple(self.missing_channels_.tolist()), self.target_mean_, self.target_scale_, units)

    def _field_means(self, planes, and_also=None, observations=None):
        """Means of the fields of planes in standardised units, and the results of a function of their models."""
        field = self._fitted_field()
        solver = self._solver(1e-5)

        def one(task, n_threads):
            plane, observation = task
            return field.mean(plane, solver, n_threads, and_also, observation)

        observations = [None] * len(planes.features) if observations is None else observations
        with single_threaded_blas():
            found = map_coarse(one, zip(planes.features, observations, strict=True), self.n_jobs)
        return [mean for mean, _ in found], [other for _, other in found]

    def _known_scale(self, n_values, has_channels, offsets):
        """Mean and scale of the targets of the last fit, for a warm start."""
        same = n_values == len(self.target_mean_) and has_channels == self._has_channels
        if not same or not np.array_equal(offsets, self.offsets_):
            raise ValueError("warm_start needs targets of as many channels and the window of the last call of fit.")
        return self.target_mean_, self.target_scale_

    def _mean_of(self, model):
        """Mean of a field in the units of y; residuals are compared with what differs from the mean of y."""
        return solved_from(self._solver(1e-5), model, np.broadcast_to(self.target_mean_, model.h.shape)).x

    def _unscaled(self, means):
        """Means in standardised units as values of y or of codes."""
        return [self.target_mean_ + self.target_scale_ * mean.astype(np.float64) for mean in means]

    def _predict_tiles(self, image, out, tiles, margin, max_margin):
        """Prediction for one large image, written into ``out`` tile by tile."""
        return predict_in_tiles(self, image, out, tiles, margin, max_margin)

    def _is_degraded(self):
        return getattr(self, "degradation", None) is not None

    def _known_channels(self):
        return chosen_channels(self.pairwise_channels_, self.weights_[0].shape[2] - 1)

    def _check_same_channels(self, channels, multipliers):
        if channels != self._known_channels() or list(multipliers) != self.precision_channels_.tolist():
            raise ValueError("warm_start needs the pairwise_channels and precision_channels of the last call of fit.")

    def _is_prediction_loss(self):
        return not (isinstance(self.loss, str) and self.loss in LIKELIHOODS)

    def _objective(self, losses, mean, scale, weighted_losses=WEIGHTED, data_range=1.0, of_mean=None, reported=1.0):
        """Objective of the training: a likelihood, or a loss of the prediction out of a dictionary of losses."""
        if not self._is_prediction_loss():
            return LIKELIHOODS[self.loss]()
        loss = self.loss if callable(self.loss) else losses[self.loss]
        weighted = weighted_losses.get(self.loss) if isinstance(self.loss, str) else None
        # What is observed of degraded images takes most of the norm that residuals are compared with.
        tol = 1e-5 if getattr(self, "degradation", None) is not None else 1e-4
        of_errors = of_mean_square(self.loss, data_range), unit_of_loss(self.loss, scale, data_range)
        return PredictionLoss(loss, self._solver(tol), mean, scale, weighted, *of_errors, of_mean, reported)

    def _is_of_scores(self):
        """Whether the field predicts scores of classes, so that nothing but a penalty keeps them finite."""
        return False

    def _with_ridge(self, objective, solver, n_leaves, data):
        """The objective with the penalty on scores, divided by the weight of the pixels whose label is known."""
        if not self._is_of_scores():
            return objective
        ridge = n_leaves if solver.ridge == "auto" else solver.ridge
        return objective.with_ridge(ridge / (data.total(weight_of_known_pixels) or 1.0))

    def _takes_pixel_weights(self):
        return isinstance(self.loss, str) and self.loss in WEIGHTED

    def _solver(self, tol):
        return _SOLVERS[self.inference](tol=tol) if isinstance(self.inference, str) else self.inference

    def _report(self, rounds, value, n_leaves):
        if self.verbose:
            progress = f"round {len(rounds)}: {rounds[-1]} iterations, loss {value:.6g}"
            print(f"[{type(self).__name__}] {progress}, leaves {n_leaves}")

    def _warn(self, found, is_vain):
        if is_vain:
            warn_caller(
                "predictions for training images are further from y than its mean is: the pseudolikelihood lets "
                "neighbours count for too much where y is smooth. Use loss='mse', a smaller max_depth, or a larger "
                "least eigenvalue, FieldSolver(eigenvalue_bounds=(1, 10))."
            )
        if not found.solved:
            warn_caller(
                "conjugate gradients did not reach their tolerance for some image; raise max_iter of inference, or the "
                "least of FieldSolver's eigenvalue_bounds.",
                ConvergenceWarning,
            )
        if not found.success and self.max_iter != "auto":
            reason = f"the last round stopped after max_iter={self.max_iter} iterations; raise max_iter or tol."
            if found.is_stuck:
                reason = f"the last round stopped at the rounding of float32, above tol={self.tol}; raise tol."
            warn_caller(reason, ConvergenceWarning)


def _n_channels(data, part):
    return data.features[0].shape[-1] if data.features else None


def _held_out_loss(objective, validation, n_jobs, field):
    return field.risk(objective, validation, n_jobs).value(field.coef)


def _check_multipliers(data, part, multipliers):
    if data.features:
        check_multipliers(data.features, multipliers)
