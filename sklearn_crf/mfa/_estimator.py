"""Multi-conditional mixtures of factor analysers."""

import warnings

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from sklearn_crf.mfa._criteria import Criterion
from sklearn_crf.mfa._fitted import FittedMixture
from sklearn_crf.mfa._input import (
    check_classes,
    check_counts,
    check_features,
    check_init,
    check_magnitudes,
    check_parameters,
    choose_solver,
    class_weights,
)
from sklearn_crf.mfa._parameters import Prior
from sklearn_crf.mfa._standardise import measure
from sklearn_crf.mfa._training import Model, Samples, Search, train


class MultiConditionalMFA(
    FittedMixture, ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Classifier from one mixture of factor analysers per class, trained between generative and discriminative.

    The model is ``P(x, c) = P(c) sum_s P(s | c) N(x; mu_cs, L_cs L_cs' + Psi)`` with ``n_components`` components ``s``
    for every class, loadings ``L`` of ``n_factors`` columns and diagonal ``Psi``. Training maximises

        sum_i w_i [ log P(c_i | x_i) + alpha log P(x_i | c_i) ]  +  log prior             (multi_conditional)
        sum_i w_i   log P(c_i, x_i)                              +  log prior             (joint)

    of Kelm, Pal & McCallum 2006, Eq. (5) and (2). ``alpha=0`` is the conditional likelihood, ``alpha=1`` a
    pseudo-likelihood; small values (0.001 to 0.01) use the density of the features as a regulariser. A pass over
    ``n`` samples costs ``O(n C K d p)``: covariances are never formed.

    Parameters
    ----------
    n_components : int, default=2
        Components (factor analysers) per class.
    n_factors : int, default=2
        Columns of the loadings, at most the number of features; 0 gives diagonal covariances.
    objective : {"multi_conditional", "joint"}, default="multi_conditional"
        The criterion.
    alpha : float, default=0.01
        Weight of ``log P(x | c)`` in the multi-conditional likelihood. Not used by ``"joint"``.
    noise : {"tied", "class", "component"}, default="tied"
        Which components share ``Psi``: all (the paper's model), those of a class, none.
    init : {"kmeans", "random"}, array-like of shape (n_classes, n_components, n_features) or dict, default="kmeans"
        Initial values: k-means within each class (or nearest of random samples, or of given means), then principal
        components of the clusters. A dict holds ``means`` and may hold ``loadings``, ``noise_variance``, ``weights``
        and ``class_prior``, in the shapes of the attributes. They do not depend on the criterion.
    n_init : int, default=5
        Restarts; the one with the best criterion is kept. One if ``init`` is given as arrays.
    solver : {"auto", "em", "lbfgs", "sgd"}, default="auto"
        Expectation-maximisation (joint likelihood of complete samples), L-BFGS, or Adam on mini-batches. ``"auto"`` is
        ``"em"`` where it applies and ``"lbfgs"`` elsewhere.
    max_iter : int, default=500
        Iterations of a restart; epochs for ``"sgd"``.
    tol : float, default=1e-4
        ``"em"`` stops when an iteration gains less per sample, ``"lbfgs"`` when no entry of the gradient of the mean
        criterion is larger (divided by ``1 + alpha``, per standard error of the parameter), ``"sgd"`` after five epochs
        that gain less.
    reg_covar : float, default=1e-4
        Least noise variance, as a fraction of the variance of the feature.
    mean_prior_scale : float or None, default=None
        Standard deviation of a Gaussian prior on means around the overall mean, in standard deviations of the
        feature. None is a flat prior.
    loading_prior_scale : float or None, default=None
        Standard deviation of a Gaussian prior on loadings around 0, in standard deviations of the feature.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, multiplied into ``sample_weight``.
    classes : array-like or None, default=None
        Names of all classes, where a training set may miss some. A class without samples gets probability 0, with a
        warning. None takes those of ``y``.
    allow_nan : bool, default=False
        Integrate missing values (NaN) out exactly, in training and prediction. Missing at random is assumed.
    batch_size : int, default=256
        For ``"sgd"``.
    learning_rate : float, default=0.01
        Step of ``"sgd"`` in the first epoch, on standardised features.
    warm_start : bool, default=False
        Start from the previous fit instead of ``init``.
    random_state : int, RandomState instance or None, default=None
        Seeds of the restarts.
    n_jobs : int or None, default=None
        Threads, over restarts first. Results do not depend on it.
    verbose : int, default=0
        Print a line a restart.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
        ``P(c)``.
    weights_ : ndarray of shape (n_classes, n_components)
        ``P(s | c)``.
    means_ : ndarray of shape (n_classes, n_components, n_features)
    loadings_ : ndarray of shape (n_classes, n_components, n_features, n_factors)
        Rotated so that ``L' Psi^-1 L`` is diagonal and falls.
    noise_variance_ : ndarray of shape (n_features,), (n_classes, n_features) or (n_classes, n_components, n_features)
        Diagonal of ``Psi``, for tied, class and component noise.
    loss_curve_ : ndarray of shape (n_iter_ + 1,)
        Negative criterion and log prior per unit of sample weight, from the start on, of the chosen restart.
    restart_losses_ : ndarray of shape (n_restarts,)
        Last value of every restart.
    converged_ : bool
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Raises
    ------
    ValueError
        For more factors than features, a class with fewer samples than components, NaN without ``allow_nan``, or
        features that are constant or never observed.

    References
    ----------
    B. M. Kelm, C. Pal, A. McCallum. Combining Generative and Discriminative Methods for Pixel Classification with
    Multi-Conditional Learning. ICPR 2006.

    Zoubin Ghahramani, Geoffrey E. Hinton. The EM Algorithm for Mixtures of Factor Analyzers. Technical report, 1997.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf import MultiConditionalMFA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFA(n_components=1, n_factors=2, random_state=0).fit(X, y)
    >>> model.predict(X[:2])
    array([0, 0])
    """

    def __init__(
        self,
        n_components=2,
        n_factors=2,
        *,
        objective="multi_conditional",
        alpha=0.01,
        noise="tied",
        init="kmeans",
        n_init=5,
        solver="auto",
        max_iter=500,
        tol=1e-4,
        reg_covar=1e-4,
        mean_prior_scale=None,
        loading_prior_scale=None,
        class_weight=None,
        classes=None,
        allow_nan=False,
        batch_size=256,
        learning_rate=0.01,
        warm_start=False,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.n_factors = n_factors
        self.objective = objective
        self.alpha = alpha
        self.noise = noise
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.mean_prior_scale = mean_prior_scale
        self.loading_prior_scale = loading_prior_scale
        self.class_weight = class_weight
        self.classes = classes
        self.allow_nan = allow_nan
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.allow_nan)
        return tags

    def fit(self, X, y, sample_weight=None):
        """Maximise the criterion.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), float32 or float64
            Computed with in float64.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 0 is as good as absent.

        Returns
        -------
        self
        """
        before = dict(vars(self))
        try:
            return self._fit(X, y, sample_weight)
        except BaseException:
            # What was fitted before is as good as it was.
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit(self, X, y, sample_weight):
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_all_finite=self._finite())
        check_classification_targets(y)
        check_parameters(self, X.shape[1])
        labels, weight, X = self._encode(X, y, sample_weight)
        present = np.bincount(labels, minlength=len(self.classes_)) > 0
        labels = (np.cumsum(present) - 1)[labels]
        check_counts(labels, self.classes_[present].tolist(), self.n_components)
        check_magnitudes(X)
        units, constant = measure(X, weight)
        check_features(X, units, constant, self.reg_covar)
        solver = choose_solver(self, np.isnan(X).any())

        samples = Samples(units.standardise(X), labels, weight, units)
        model, factor = self._model()
        init, seeds = self._starts(present, X.shape[1])
        search = Search(solver, self.max_iter, self.tol, self.batch_size, self.learning_rate)
        best, losses = train(samples, model, search, init, seeds, n_jobs=self.n_jobs, verbose=self.verbose)

        offset = (model.criterion.joint - model.criterion.features) * _mean_log_volume(X, weight, units)
        self.loss_curve_ = factor * (best.losses + offset)
        self.restart_losses_ = factor * (losses + offset)
        self.n_iter_ = len(best.losses) - 1
        self.converged_ = best.converged
        self._store(units.to_original(best.params).canonical(), present, units)
        self._warn(best.params.log_noise[:, ~constant], model.prior, solver)
        return self

    def _encode(self, X, y, sample_weight):
        """Labels as numbers; samples of weight 0 are left out, so that they cannot name a class either."""
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, y, weight = _of_positive_weight(weight, X, y, weight)
        X = np.asarray(X, dtype=np.float64)
        self.classes_ = np.unique(y) if self.classes is None else check_classes(self.classes)
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[labels] != y
        if unknown.any():
            label = y[unknown].tolist()[0]
            raise ValueError(f"y has the label {label!r}, which is not among classes={self.classes_.tolist()}.")
        if self.class_weight is not None:
            weight = weight * class_weights(self.class_weight, y)
            labels, X, weight = _of_positive_weight(weight, labels, X, weight)
        return labels, weight, X

    def _model(self):
        """Model in the solver's units, and the factor that the criterion was divided by."""
        joint = self.objective == "joint"
        factor = 1.0 if joint else 1.0 + self.alpha
        criterion = Criterion.joint_likelihood() if joint else Criterion.multi_conditional(self.alpha)
        precisions = [
            0.0 if scale is None else float(scale) ** -2 / factor
            for scale in (self.mean_prior_scale, self.loading_prior_scale)
        ]
        prior = Prior(*precisions, self.reg_covar)
        return Model(self.n_components, self.n_factors, self.noise, criterion, prior), factor

    def _starts(self, present, n_features):
        shape = (len(present), self.n_components, n_features, self.n_factors)
        noise_shape = {"tied": shape[2:3], "class": (shape[0], shape[2]), "component": shape[:3]}[self.noise]
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init).tolist()
        if self.warm_start and hasattr(self, "means_") and self._fits_into(shape, noise_shape, present):
            return self._parameters, seeds[:1]
        init = check_init(self.init, present, shape, noise_shape)
        return init, seeds if isinstance(init, str) else seeds[:1]

    def _fits_into(self, shape, noise_shape, present):
        if self.loadings_.shape != shape or self.noise_variance_.shape != noise_shape:
            raise ValueError("warm_start: the previous fit has other shapes; set warm_start=False to start anew.")
        return np.array_equal(self.class_prior_ > 0, present)

    def _store(self, params, present, units):
        n_classes, n_components, n_factors = len(present), self.n_components, self.n_factors
        n_present, n_features = int(present.sum()), len(units.mean)
        self.class_prior_ = np.zeros(n_classes)
        self.class_prior_[present] = np.exp(params.log_prior)
        self.weights_ = np.full((n_classes, n_components), 1.0 / n_components)
        self.weights_[present] = np.exp(params.log_weights)
        self.means_ = np.tile(units.mean, (n_classes, n_components, 1))
        self.means_[present] = params.means.reshape(n_present, n_components, n_features)
        self.loadings_ = np.zeros((n_classes, n_components, n_features, n_factors))
        self.loadings_[present] = params.loadings.reshape(n_present, n_components, n_features, n_factors)
        noise = np.exp(params.log_noise)
        if self.noise == "tied":
            self.noise_variance_ = noise[0]
            return
        inner = (n_features,) if self.noise == "class" else (n_components, n_features)
        self.noise_variance_ = np.empty((n_classes, *inner))
        self.noise_variance_[:] = units.scale**2
        self.noise_variance_[present] = noise.reshape(n_present, *inner)

    def _warn(self, log_noise, prior, solver):
        missing = self.classes_[self.class_prior_ == 0]
        if len(missing):
            warnings.warn(
                f"classes {missing.tolist()} have no sample; their probability is set to 0.", UserWarning, stacklevel=4
            )
        low, _ = prior.log_noise_bounds
        at_floor = log_noise <= low + 1e-9
        if at_floor.any():
            warnings.warn(
                f"{at_floor.sum()} of {at_floor.size} noise variances ended at their least value, reg_covar="
                f"{self.reg_covar} of the variance of the feature; raise reg_covar, lower n_factors, or share noise.",
                UserWarning,
                stacklevel=4,
            )
        if not self.converged_:
            warnings.warn(
                f"solver '{solver}' did not converge in max_iter={self.max_iter} iterations; raise max_iter or tol"
                f"{', or lower learning_rate' if solver == 'sgd' else ''}.",
                ConvergenceWarning,
                stacklevel=4,
            )


def _of_positive_weight(weight, *arrays):
    kept = weight > 0
    if not kept.any():
        raise ValueError("sample_weight times class_weight is 0 throughout; at least one sample needs a weight.")
    return [array[kept] for array in arrays]


def _mean_log_volume(X, weight, units):
    """What densities of standardised samples exceed those of samples by, averaged over samples."""
    log_scale = np.log(units.scale)
    observed = np.isnan(X)
    per_row = (~observed) @ log_scale if observed.any() else np.full(len(X), log_scale.sum())
    return float(weight @ per_row / weight.sum())
