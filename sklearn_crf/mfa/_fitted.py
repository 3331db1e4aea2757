"""Prediction, densities, imputation and sampling with fitted mixtures of factor analysers."""

from __future__ import annotations

from functools import wraps
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_crf._numbers import replace_masked_values
from sklearn_crf._own_methods import require_classes, require_numbers, require_optional_numbers
from sklearn_crf._reports import FitReprMixin
from sklearn_crf._threads import count_threads, make_range_runner
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.distributed import Shards, call_on_each_shard, compute_correct_share, score_parts
from sklearn_crf.encoding import require_rows, scale_sample_weight
from sklearn_crf.mfa._densities import compute_factor_means, compute_joint_log_density, impute_conditional_means
from sklearn_crf.mfa._input import ARRAYS, require_complete
from sklearn_crf.mfa._parameters import MixtureParameters, count_noise_groups
from sklearn_crf.mfa._plan import Choice


def _maximises_the_joint_likelihood(estimator):
    if estimator.objective == "joint":
        return True
    raise AttributeError(
        f"bic needs the maximum of the joint likelihood, which objective={estimator.objective!r} does not compute: "
        "use objective='joint', or compare models by cross-validation (GridSearchCV)."
    )


def get_auto_parameters(estimator: Any) -> Choice:
    """Return the parameters of an estimator that may be "auto"; the joint likelihood does not use ``alpha``."""
    alpha = Choice().alpha if estimator.objective == "joint" else estimator.alpha
    return Choice(estimator.n_components, estimator.noise, alpha)


def get_previous_choice(estimator: Any) -> Choice:
    """Return the values that the previous fit chose for "auto", and the current values of all other parameters."""
    shape, noise = estimator.means_.shape, np.ndim(estimator.noise_variance_)
    # Models fitted by older versions lack these attributes.
    former = Choice(
        getattr(estimator, "n_components_", shape[1]),
        getattr(estimator, "noise_", {1: "tied", 2: "class", 3: "component"}[noise]),
        getattr(estimator, "alpha_", Choice().alpha),
        getattr(estimator, "temperature_", 1.0),
    )
    return get_auto_parameters(estimator).completed(former)


def build_fitted_attributes(params, data, family, choice):
    """Build the fitted attributes from the standardised parameters of the classes that have samples."""
    units, present = data.samples.units, data.present
    params = units.to_original(params).canonical()
    n_classes, n_components, n_features = len(present), family.n_components, len(units.mean)
    inner = (n_components, n_features) if family.noise == "component" else (n_features,)
    noise = np.exp(params.log_noise)

    def of_all(values, shape, missing):
        """Expand values of the classes with samples to all classes, with ``missing`` for the remaining classes."""
        found = np.empty((n_classes, *shape))
        found[:] = missing
        found[present] = values.reshape(np.count_nonzero(present), *shape)
        return found

    return data.attributes | {
        "n_features_in_": n_features,
        "classes_": data.classes,
        "class_prior_": data.class_count / data.class_count.sum(),
        "discriminative_prior_": of_all(np.exp(params.log_prior), (), 0.0),
        "class_count_": data.class_count,
        **{f"{name}_": value for name, value in choice._asdict().items()},
        "weights_": of_all(np.exp(params.log_weights), (n_components,), 1.0 / n_components),
        "means_": of_all(params.means, (n_components, n_features), units.mean),
        "loadings_": of_all(params.loadings, (n_components, n_features, family.n_factors), 0.0),
        "noise_variance_": noise[0] if family.noise == "tied" else of_all(noise, inner, units.scale**2),
    }


def _on_each_shard(method: Any) -> Any:
    """Let a method of X accept Shards: call it for each shard and return a list of the results."""

    @wraps(method)
    def call(self: Any, X: Any) -> Any:
        return call_on_each_shard(self, method.__name__, X) if isinstance(X, Shards) else method(self, X)

    return call


def _weigh_correct_samples(mixture: Any, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
    """Return the total weight of the correctly classified samples, and the total weight of all samples."""
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    total = float(weight.sum())
    return (total * mixture.score(X, y, weight) if total else 0.0), total


class FittedMixture(FitReprMixin, ClassifierMixin, BaseEstimator):
    """Base class of `MultiConditionalMFA`, with the methods that only need fitted attributes."""

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless the fitted attributes are arrays of numbers with consistent shapes."""
        require_classes(self.classes_)
        n_classes, n_features = len(self.classes_), self.n_features_in_
        require_numbers("means_", self.means_, (n_classes, None, n_features))
        of_components = self.means_.shape[:2]
        require_numbers("weights_", self.weights_, of_components)
        require_numbers("loadings_", self.loadings_, (*of_components, n_features, None))
        of_noise = (n_features,), (n_classes, n_features), (*of_components, n_features)
        require_numbers("noise_variance_", self.noise_variance_, *of_noise)
        # Models fitted by older versions lack some of these attributes.
        optional = {"class_prior_": (n_classes,), "discriminative_prior_": (n_classes,), "temperature_": ()}
        require_optional_numbers(self, optional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = isinstance(self.allow_nan, (bool, np.bool_)) and bool(self.allow_nan)
        return tags

    @property
    def _n_features_out(self):
        return self.loadings_.shape[-1]

    @property
    def _parameters(self):
        """Parameters of the classes that have samples, with the class probabilities that training found."""
        # Models fitted by older versions only have class_prior_.
        return self._replace_prior(getattr(self, "discriminative_prior_", self.class_prior_))

    def _replace_prior(self, prior):
        """Return the parameters of the classes that have samples, with given class probabilities."""
        present = self.class_prior_ > 0
        if present.shape != (len(self.classes_),) or not present.any():
            raise ValueError(
                f"class_prior_ must hold a probability for each of {len(self.classes_)} classes, got "
                f"{self.class_prior_!r}. The fitted attributes have been changed: fit the estimator again."
            )
        means, loadings = self.means_[present], self.loadings_[present]
        noise = self.noise_variance_
        noise = noise[None] if noise.ndim == 1 else noise[present].reshape(-1, means.shape[2])
        with np.errstate(divide="ignore"):
            log_weights = np.maximum(np.log(self.weights_[present]), -700.0)
        return MixtureParameters(
            np.log(prior[present]),
            log_weights,
            means.reshape(-1, means.shape[2]),
            loadings.reshape(loadings.shape[0] * loadings.shape[1], *loadings.shape[2:]),
            np.log(noise),
        )

    def _check_samples(self, X, allow_nan=False):
        check_is_fitted(self)
        require_rows(X)
        X = validate_data(self, replace_masked_values(X), reset=False, **ARRAYS)
        if not (allow_nan or self.allow_nan):
            require_complete(X)
        return np.asarray(X, dtype=np.float64)

    def _evaluate(self, function, X, params):
        """Evaluate a function of parameters and samples; raise ValueError if squares of distant samples overflow."""
        found = function(params, X, self.n_jobs)
        missing = np.isnan(found)
        # Reducing all entries at once is much faster than reducing each short row.
        if missing.any():
            row = np.flatnonzero(missing.any(axis=1))[0]
            raise ValueError(
                f"X[{row}] is so far from the training samples that its density underflows: remove it, or scale X as"
                " in training."
            )
        return found

    def _compute_log_joint(self, X, params):
        """Return, for each class, log prior plus log density, (n, n_classes); -inf for classes without samples."""
        samples = self._check_samples(X)
        found, present = self._evaluate(compute_joint_log_density, samples, params), self.class_prior_ > 0
        if present.all():
            return found
        out = np.full((len(samples), len(self.classes_)), -np.inf)
        out[:, present] = found
        return out

    @_on_each_shard
    def joint_log_likelihood(self, X: ArrayLike) -> np.ndarray:
        """Compute ``log P(x, c)``, where ``P(c)`` is ``class_prior_``.

        After conditional training, the class with the largest value can differ from the result of ``predict``, which
        uses ``discriminative_prior_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Joint log-likelihoods, -inf for classes that had no samples.
        """
        check_is_fitted(self)
        return self._compute_log_joint(X, self._replace_prior(self.class_prior_))

    def score(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the fraction of samples classified correctly; labels that are not in ``classes_`` count as errors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Shards
        y : array-like of shape (n_samples,), optional
            Labels, if X is in memory. :class:`~sklearn_crf.Shards` contain y and ``sample_weight``.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If X is in memory and y is not given, or if y is given in addition to Shards.
        """
        check_is_fitted(self)
        if isinstance(X, Shards):
            parts = score_parts(self, _weigh_correct_samples, X, y, sample_weight)
            return compute_correct_share(parts, "X has no sample")
        if y is None:
            raise ValueError("score needs y, the class of each sample, got None.")
        return super().score(X, y, scale_sample_weight(sample_weight))

    @_on_each_shard
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Compute ``log p(x)``, the log-density of each sample over all classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return logsumexp(self.joint_log_likelihood(X), axis=1)

    @_on_each_shard
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict ``log P(c | x)``, the log-probability of each class, with scores divided by ``temperature_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        joint = self._compute_log_joint(X, self._parameters) / getattr(self, "temperature_", 1.0)
        return joint - logsumexp(joint, axis=1, keepdims=True)

    @_on_each_shard
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict ``P(c | x)``, the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    @_on_each_shard
    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        joint = self._compute_log_joint(X, self._parameters)
        best = np.empty(len(joint), dtype=np.intp)
        run = make_range_runner(count_threads(self.n_jobs))
        run(lambda start, stop: joint[start:stop].argmax(axis=1, out=best[start:stop]), len(joint))
        return self.classes_[best]

    def transform(self, X: ArrayLike | Shards) -> np.ndarray | Shards:
        """Transform samples to the posterior means of the factors, ``E[z | x] = sum_s P(s | x) E[z | x, s]``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Shards

        Returns
        -------
        ndarray of shape (n_samples, n_factors)
            If X is Shards, new Shards are returned. Each shard is transformed whenever it is loaded.
        """
        if isinstance(X, Shards):
            check_is_fitted(self)
            return X.transformed(self)
        samples = self._check_samples(X)
        return self._evaluate(compute_factor_means, samples, self._parameters)

    def impute(self, X: ArrayLike) -> np.ndarray:
        """Replace missing values by conditional means over all classes.

        The means are ``E[x_m | x_o] = sum_s P(s | x_o) (mu_s + L_s E[z | x_o, s])_m`` for the missing features m and
        the observed features o. These means minimise the expected squared error under the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing values, even if ``allow_nan=False``.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Samples without NaN; observed values are unchanged.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_crf import MultiConditionalMFA
        >>> x = np.random.default_rng(0).normal(size=400)
        >>> X = np.column_stack([x, 2 * x])
        >>> model = MultiConditionalMFA(1, 1, objective="joint").fit(X, np.arange(400) % 2)
        >>> model.impute([[1.0, np.nan]]).round(1)
        array([[1., 2.]])
        """
        samples = self._check_samples(X, allow_nan=True)
        return self._evaluate(impute_conditional_means, samples, self._replace_prior(self.class_prior_))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw samples and their classes from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
            None uses the ``random_state`` of the estimator.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        y : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        check_scalar(n_samples, "n_samples", Integral, min_val=0)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        c = rng.choice(len(self.classes_), n_samples, p=self.class_prior_)
        below = rng.random_sample(n_samples)[:, None] > np.cumsum(self.weights_[c], axis=1)
        s = np.minimum(below.sum(axis=1), self.weights_.shape[1] - 1)
        factors = rng.standard_normal((n_samples, self.loadings_.shape[-1]))
        noise = np.broadcast_to(
            self.noise_variance_[:, None] if self.noise_variance_.ndim == 2 else self.noise_variance_, self.means_.shape
        )
        X = self.means_[c, s] + np.sqrt(noise[c, s]) * rng.standard_normal((n_samples, self.means_.shape[2]))
        for index in np.unique(np.column_stack([c, s]), axis=0):
            rows = (c == index[0]) & (s == index[1])
            X[rows] += factors[rows] @ self.loadings_[tuple(index)].T
        return X, self.classes_[c]

    def n_parameters(self) -> int:
        """Return the number of free parameters, not counting rotations of the loadings.

        Returns
        -------
        int
        """
        check_is_fitted(self)
        n_classes, n_components, n_features, n_factors = self.loadings_[self.class_prior_ > 0].shape
        loadings = n_features * n_factors - n_factors * (n_factors - 1) // 2
        noise = n_features * count_noise_groups(get_previous_choice(self).noise, n_classes, n_components)
        return n_classes * n_components * (1 + n_features + loadings) - 1 + noise

    @available_if(_maximises_the_joint_likelihood)
    def bic(self, X: ArrayLike, y: ArrayLike) -> float:
        """Compute the Bayesian information criterion ``-2 log P(X, y) + n_parameters log n_samples``; lower is better.

        The criterion is not available for ``objective="multi_conditional"``, because it approximates the evidence only
        at the maximum of the joint likelihood. Compare such models by :class:`~sklearn.model_selection.GridSearchCV`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        float
        """
        joint = self.joint_log_likelihood(X)
        names = check_array(y, ensure_2d=False, dtype=None)
        labels = np.searchsorted(self.classes_, names).clip(max=len(self.classes_) - 1)
        if len(names) != len(joint) or (self.classes_[labels] != names).any():
            raise ValueError("y must have one label of classes_ for every sample of X.")
        return float(-2 * joint[np.arange(len(names)), labels].sum() + self.n_parameters() * np.log(len(names)))
