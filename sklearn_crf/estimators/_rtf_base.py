"""What estimators on regression tree fields share: from images and encoded targets to a field, and back."""

import warnings

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sklearn_crf._threads import map_tasks, single_threaded_blas
from sklearn_crf.encoding._weights import validate_sample_weight
from sklearn_crf.estimators._rtf_data import TrainingData, at_most, held_out
from sklearn_crf.estimators._rtf_growth import GrowthOptions
from sklearn_crf.estimators._rtf_input import check_multipliers, chosen_channels, multiplier_channels
from sklearn_crf.estimators._rtf_prediction import FittedField, filtered, fitted_filter_bank
from sklearn_crf.estimators._rtf_training import Field, TrainingOptions, train
from sklearn_crf.estimators._rtf_variables import sampled_variables
from sklearn_crf.estimators._rtf_whitening import whitening_of_types
from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.objectives._gaussian_field import GaussianPseudolikelihood, PredictionLoss
from sklearn_crf.objectives._gaussian_likelihood import GaussianLikelihood
from sklearn_crf.regression_trees._factors import factor_types
from sklearn_crf.regression_trees._tree import RegressionTree

# Losses of the model, not of its prediction. They tell pixels apart, and so take a weight for each sample of a table.
LIKELIHOODS = {"pseudolikelihood": GaussianPseudolikelihood, "likelihood": GaussianLikelihood}


class FieldEstimator(BaseEstimator):
    """Base of estimators whose prediction is read off the mean of a regression tree field."""

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
        is_table = planes.encoded.layout == "nodes"
        bank = fitted_filter_bank(self.filter_bank, planes.features, planes.encoded.lattice_ndim)
        features = planes.features if bank is None else filtered(bank, planes.features, self.n_jobs)
        data, validation = TrainingData(features, planes.graphs(), targets, weights), None
        if self.early_stopping:
            data, validation = held_out(data, self.validation_fraction, is_table, rng)
        if isinstance(objective, GaussianPseudolikelihood) and not is_table:
            reach = int(np.abs(planes.offsets).max(initial=0)) + self.feature_radius
            data = sampled_variables(data, self.max_samples, reach, rng)
        else:
            data = at_most(data, self.max_samples, is_table, rng)
        channels = chosen_channels(self.pairwise_channels, features[0].shape[2])
        multipliers = multiplier_channels(self.precision_channels, features[0].shape[2])
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
            start = Field.stumps(types, whitening, n_values, tuple(self.eigenvalue_bounds))
        of_pairs = self.max_depth if self.max_depth_pairwise is None else self.max_depth_pairwise
        options = TrainingOptions(
            self.solver,
            [self.max_depth] + [of_pairs] * len(planes.offsets),
            self.max_iter,
            self.tol,
            self._growth(),
            self._report if self.verbose else _silent,
            self.shrinkage,
        )
        with single_threaded_blas():
            found = train(objective, start, data, options, rng, self.n_jobs, validation, self._continues())
        self._store(found, whitening, planes, bank)
        self.pairwise_channels_ = np.arange(features[0].shape[2]) if channels is None else np.array(channels)
        self.precision_channels_ = np.array(multipliers, dtype=np.int64)
        self._warn(found)

    def _field_means(self, planes, and_also=None):
        """Mean of the field of each plane, of mean 0 and variance 1, and what a function makes of the model."""
        field = FittedField(
            factor_types(self.offsets_, self._known_channels(), tuple(self.precision_channels_.tolist())),
            self.trees_,
            self.precisions_,
            self.weights_,
            self.slopes_,
            max(self.lattice_ndim_, 1),
            self.filter_bank_,
        )
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

    def _growth(self):
        return GrowthOptions(
            self.n_feature_tests,
            self.n_thresholds,
            self.feature_radius,
            self.split_samples,
            self.min_samples_leaf,
            tuple(self.eigenvalue_bounds),
            self.split,
        )

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
                "least eigenvalue in eigenvalue_bounds.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if not found.success:
            warnings.warn(
                f"the last round stopped after max_iter={self.max_iter} iterations; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=4,
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
