"""Multi-conditional mixtures of factor analysers."""

import threading
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from sklearn_crf._numbers import without_mask
from sklearn_crf._parameters import require_objects
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks, progress_reporter, warn_caller
from sklearn_crf.distributed import Shards
from sklearn_crf.encoding import partial_fit_classes, require_rows
from sklearn_crf.mfa._criteria import Criterion
from sklearn_crf.mfa._fitted import FittedMixture
from sklearn_crf.mfa._input import (
    PARAMETER_CONSTRAINTS,
    check_classes,
    check_counts,
    check_factors,
    check_features,
    check_init,
    check_magnitudes,
    class_weights,
    require_complete,
    require_labels,
    resolve_solver,
)
from sklearn_crf.mfa._parameters import PriorPrecisions, Priors
from sklearn_crf.mfa._samples import StandardisedSamples, Units, measure, without_isolated
from sklearn_crf.mfa._sharded import ShardedBlocks, SurveyedShards, survey
from sklearn_crf.mfa._solvers import EM, ScaledLBFGS, ScaledSGD, ignore_iterations
from sklearn_crf.mfa._training import MixtureFamily, best_of, find_starts, online_pass, pass_width, train


class MultiConditionalMFA(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, FittedMixture):
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
        Weight of ``log P(x | c)`` in the multi-conditional likelihood. Not used by ``"joint"``, whose means, loadings
        and noise are the limit of large values.
    noise : {"tied", "class", "component"}, default="tied"
        Which components share ``Psi``: all (the paper's model), those of a class, none.
    priors : Priors or None, default=None
        Priors on means and loadings, and the least noise variance. None is ``Priors()``: flat priors, and a least
        noise variance of 1e-4 of the variance of the feature.
    init : {"kmeans", "random"}, array-like of shape (n_classes, n_components, n_features) or dict, default="kmeans"
        Initial values: k-means within each class (or nearest of random samples, or of given means), then principal
        components of the clusters. A dict holds ``means`` and may hold ``loadings``, ``noise_variance``, ``weights``
        and ``class_prior``, in the shapes of the attributes. They do not depend on the criterion.
    n_init : int, default=5
        Restarts; the one with the best criterion is kept. One if ``init`` is given as arrays.
    solver : {"auto", "em", "lbfgs", "sgd"}, EM, ScaledLBFGS or ScaledSGD, default="auto"
        Expectation-maximisation (joint likelihood of complete samples), L-BFGS, or stochastic gradient descent; a name
        stands for the solver's defaults. ``"auto"`` is ``"em"`` where it applies and ``"lbfgs"`` elsewhere.
    max_iter : int, default=500
        Iterations of a restart; epochs for ``"sgd"``.
    tol : float, default=1e-3
        ``"em"`` stops when all further iterations together would gain less per sample, as far as the last ones tell,
        ``"lbfgs"`` when no entry of the gradient of the mean
        criterion is larger (divided by ``1 + alpha``, per standard error of the parameter) or 20 iterations gain less
        per sample, ``"sgd"`` after five epochs that gain less.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, multiplied into ``sample_weight``.
    classes : array-like or None, default=None
        Names of all classes, where a training set may miss some. A class without samples gets probability 0, with a
        warning. None takes those of ``y``.
    allow_nan : bool, default=False
        Integrate missing values (NaN) out exactly, in training and prediction. Missing at random is assumed.
    warm_start : bool, default=False
        Start from the previous fit instead of ``init``.
    random_state : int, RandomState instance or None, default=None
        Seeds of the restarts.
    n_jobs : int or None, default=None
        Threads, over restarts first, and over rows of samples in predictions. Results do not depend on it.
    verbose : int, default=0
        Show progress, as a bar if tqdm is installed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
        ``P(c)``, the weighted shares of the classes in the samples: for densities and draws.
    discriminative_prior_ : ndarray of shape (n_classes,)
        What ``P(c | x)`` has in the place of ``P(c)``. Joint training makes it ``class_prior_``; conditional training
        learns it with the densities, and it can be far from the shares of the classes.
    class_count_ : ndarray of shape (n_classes,)
        Weight of the samples of each class.
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
        Least value of every restart.
    converged_ : bool
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Raises
    ------
    InvalidParameterError
        For a parameter of the wrong type or out of its range.
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

    _parameter_constraints: ClassVar[dict] = PARAMETER_CONSTRAINTS

    def __init__(
        self,
        n_components: int = 2,
        n_factors: int = 2,
        *,
        objective: str = "multi_conditional",
        alpha: float = 0.01,
        noise: str = "tied",
        priors: Priors | None = None,
        init: str | ArrayLike | dict = "kmeans",
        n_init: int = 5,
        solver: str | EM | ScaledLBFGS | ScaledSGD = "auto",
        max_iter: int = 500,
        tol: float = 1e-3,
        class_weight: dict | str | None = None,
        classes: ArrayLike | None = None,
        allow_nan: bool = False,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.n_factors = n_factors
        self.objective = objective
        self.alpha = alpha
        self.noise = noise
        self.priors = priors
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.classes = classes
        self.allow_nan = allow_nan
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def set_params(self, **params) -> "MultiConditionalMFA":
        """Set parameters; ``solver__step_size`` and the like are those of an object that was passed.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an option is set of a solver given by name, or of no priors.
        """
        require_objects(self, params, {"solver": "ScaledSGD()", "priors": "Priors()"})
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike | Shards, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> "MultiConditionalMFA":
        """Maximise the criterion.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), float32 or float64, or Shards
            Computed with in float64. :class:`~sklearn_crf.Shards` of such arrays are trained on where they are, from
            initial values that at most 3,000 samples of each class give.
        y : array-like of shape (n_samples,)
            None for Shards.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 0 is ignored.

        Returns
        -------
        self
        """
        with self._unchanged_by_failure():
            self._fit(X, y, sample_weight)
            self.__dict__.pop("partial_fit_state_", None)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "MultiConditionalMFA":
        r"""One pass of stochastic steps over some samples, from where the last one ended.

        .. math:: \theta_{t+1} = \theta_t - \eta \, h_t^{-1/2} S \tilde g_t, \qquad h_t = \sum_{u \le t} \tilde g_u^2

        with gradients :math:`\tilde g` of the criterion per sample, of mini-batches of 64 samples in random order, in
        units of the standard errors S that one sample gives the parameters. The fitted parameters are an average of all
        steps, in which late ones weigh more. The first samples give the units of the features and the initial values,
        those of one restart: let them be many, at least ``n_components`` of each class. ``solver``, ``n_init``,
        ``max_iter`` and ``tol`` have no meaning here. After ``fit``, steps start from its parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), float32 or float64
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All classes, needed at the first call unless the constructor has them.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 0 is ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Without classes at the first call, with others than those of the last, where the first samples are fewer
            than ``n_components`` of a class, and for ``class_weight="balanced"``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn_crf import MultiConditionalMFA
        >>> X, y = load_digits(return_X_y=True)
        >>> model = MultiConditionalMFA(n_components=1, random_state=0)
        >>> for part in (slice(0, None, 3), slice(1, None, 3)):
        ...     model.partial_fit(X[part], y[part], classes=range(10))
        MultiConditionalMFA(n_components=1, random_state=0)
        MultiConditionalMFA(n_components=1, random_state=0)
        >>> bool(model.score(X[2::3], y[2::3]) > 0.9)
        True
        """
        with self._unchanged_by_failure():
            self._partial_fit(X, y, classes, sample_weight)
        return self

    def _partial_fit(self, X, y, classes, sample_weight):
        is_first = not hasattr(self, "classes_")
        classes = partial_fit_classes(self, classes, least=1)
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight='balanced' is not for partial_fit, which sees a part of the samples at a time: pass a "
                "dict of weights."
            )
        priors = Priors() if self.priors is None else self.priors
        priors._validate_params()
        _, labels, weight, X = self._checked_samples(X, y, sample_weight, classes, reset=is_first)
        former = getattr(self, "partial_fit_state_", None)
        family, _ = self._family(priors)
        if former is None:
            units, constant = measure(X, weight)
            check_features(X, constant, priors.noise_floor, self.objective == "joint")
        else:
            units = Units(former["mean"], former["scale"])
        samples = StandardisedSamples(units.standardise(X), labels, weight, units)

        def start():
            if not is_first:
                missing = classes[self.class_prior_ == 0]
                if len(missing):
                    name = missing.tolist()[0]
                    raise ValueError(f"partial_fit cannot go on from a fit without samples of the class {name!r}.")
                return units.to_standard(self._parameters)
            check_counts(labels, classes.tolist(), self.n_components)
            return self._starts(samples, family, np.ones(len(classes), dtype=bool), 1)[0][0]

        rng = check_random_state(self.random_state)
        params, state = online_pass(samples, family, len(classes), start, former, rng)
        self.classes_ = classes
        present = np.ones(len(classes), dtype=bool)
        count = np.bincount(labels, weights=weight, minlength=len(classes))
        if former is not None:
            count += getattr(self, "class_count_", former["weight"] * self.class_prior_)
        vars(self).update(self._attributes(units.to_original(params).canonical(), present, units, count))
        self.partial_fit_state_ = {**state, "mean": units.mean, "scale": units.scale}

    @contextmanager
    def _unchanged_by_failure(self):
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X, y, sample_weight, starts=None):
        """Fit, from given starts in standardised units if there are some, and return the ends of all restarts."""
        priors = Priors() if self.priors is None else self.priors
        priors._validate_params()
        shards = X if isinstance(X, Shards) else None
        if shards is None:
            found = self._of_samples(*self._checked_samples(X, y, sample_weight))
        else:
            self._check_shards(y, sample_weight)
            found = survey(self, shards)
            vars(self).update(found.input_attributes)
        classes, present, units = found.classes, found.present, found.units
        solver = resolve_solver(self.solver, self.objective, found.has_missing)
        X_start, labels, weight = found.samples
        labels = (np.cumsum(present) - 1)[labels]
        check_counts(labels, classes[present].tolist(), self.n_components)
        family, factor = self._family(priors)
        check_features(X_start, found.constant, priors.noise_floor, self.objective == "joint")

        samples = StandardisedSamples(units.standardise(X_start), labels, weight, units)
        shared = {"n_features_in_": X_start.shape[1], "classes_": classes}
        data = None
        if shards is not None:
            width = pass_width(int(present.sum()), X_start.shape[1], family)
            data = ShardedBlocks(self, shards, classes[present], units, width)

        def attributes(params):
            return shared | self._attributes(units.to_original(params).canonical(), present, units, found.class_weight)

        if starts is None:
            starts = self._starts(samples, family, present, self.n_init)
        # Restarts on shards take turns: each asks for sums over all of them.
        n_jobs = self.n_jobs if data is None else 1
        try:
            with self._reported(X, y, len(starts), attributes) as on_iteration:
                limits = {"max_iter": self.max_iter, "tol": self.tol, "n_jobs": n_jobs}
                ends = train(samples, family, solver, starts, **limits, data=data, on_iteration=on_iteration)
        finally:
            if data is not None:
                data.finish()
        best = best_of(ends)
        offset = (family.criterion.joint - family.criterion.features) * found.log_volume
        self.__dict__.update(attributes(best.params))
        self.loss_curve_ = factor * (best.losses + offset)
        self.restart_losses_ = factor * (np.array([end.losses.min() for end in ends]) + offset)
        self.n_iter_ = len(best.losses) - 1
        self.converged_ = best.converged
        self._warn(best.params.log_noise[:, ~found.constant], family.prior, solver)
        return ends

    def _check_shards(self, y, sample_weight):
        if y is not None or sample_weight is not None:
            raise ValueError("Shards bring y and sample_weight along, from load: pass none with them.")
        if self.class_weight is not None:
            raise ValueError("class_weight is for X and y in memory: let the load of Shards give a sample_weight.")
        if isinstance(resolve_solver(self.solver, self.objective, False), ScaledSGD):
            raise ValueError(
                "solver='sgd' goes through single samples in memory, which Shards do not allow: take 'em' or 'lbfgs'."
            )

    def _of_samples(self, classes, labels, weight, X):
        """Samples in memory, in the form of a survey of shards."""
        count = np.bincount(labels, weights=weight, minlength=len(classes))
        units, constant = measure(X, weight)
        log_volume = _mean_log_volume(X, weight, units)
        missing = np.isnan(X).any()
        return SurveyedShards(classes, count, units, constant, missing, (X, labels, weight), {}, log_volume)

    def _checked_samples(self, X, y, sample_weight=None, classes=None, *, reset=True):
        """Classes, labels as numbers, weights and features of checked samples, without those of weight 0."""
        # classes: names of all; None are those of the constructor, or of y
        options = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        require_rows(X)
        if y is not None:
            require_labels(y)
        X, y = validate_data(self, without_mask(X), without_mask(y), reset=reset, **options)
        require_complete(self, X)
        check_classification_targets(y)
        check_factors(self.n_factors, X.shape[1])
        classes, labels, weight, X = self._encode(X, y, sample_weight, self.classes if classes is None else classes)
        check_magnitudes(X)
        return classes, labels, weight, without_isolated(X, labels)

    def _encode(self, X, y, sample_weight, classes):
        """Classes, labels as numbers, weights and features, without the samples of weight 0."""
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, y, weight = _of_positive_weight(weight, X, y, weight)
        X = np.asarray(X, dtype=np.float64)
        classes = np.unique(y) if classes is None else check_classes(classes)
        labels = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        unknown = classes[labels] != y
        if unknown.any():
            label = y[unknown].tolist()[0]
            raise ValueError(f"y has the label {label!r}, which is not among classes={classes.tolist()}.")
        if self.class_weight is not None:
            weight = weight * class_weights(self.class_weight, y, weight)
            labels, X, weight = _of_positive_weight(weight, labels, X, weight)
        return classes, labels, weight, X

    def _family(self, priors):
        """Densities and criterion in the solver's units, and the factor that the criterion was divided by."""
        joint = self.objective == "joint"
        factor = 1.0 if joint else 1.0 + self.alpha
        criterion = Criterion.joint_likelihood() if joint else Criterion.multi_conditional(self.alpha)
        prior = PriorPrecisions.of(priors, factor)
        return MixtureFamily(self.n_components, self.n_factors, self.noise, criterion, prior), factor

    def _starts(self, samples, family, present, most):
        """Initial values and a seed for every restart."""
        n_features = samples.X.shape[1]
        shape = (len(present), self.n_components, n_features, self.n_factors)
        noise_shape = {"tied": shape[2:3], "class": (shape[0], shape[2]), "component": shape[:3]}[self.noise]
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init).tolist()[:most]
        if self.warm_start and hasattr(self, "means_") and self._fits_into(shape, noise_shape, present):
            init: object = self._parameters
        else:
            init = check_init(self.init, present, shape, noise_shape)
        if not isinstance(init, str):
            seeds = seeds[:1]
        return list(zip(find_starts(samples, family, init, seeds, self.n_jobs), seeds, strict=True))

    def _fits_into(self, shape, noise_shape, present):
        if self.loadings_.shape != shape or self.noise_variance_.shape != noise_shape:
            raise ValueError("warm_start: the previous fit has other shapes; set warm_start=False to start again.")
        return np.array_equal(self.class_prior_ > 0, present)

    @contextmanager
    def _reported(self, X, y, n_restarts, attributes):
        """Yield a function that tells callbacks and the progress bar of an iteration, from whichever thread."""
        if not self.verbose and not hasattr(self, "_skl_callbacks"):
            yield ignore_iterations
            return
        n_iterations = n_restarts * self.max_iter
        lock = threading.Lock()
        with (
            fit_callbacks(self, X, y, n_iterations) as iteration,
            progress_reporter(self.verbose, n_iterations, type(self).__name__) as report,
        ):

            def on_iteration(loss, params):
                with lock:
                    report(lambda: f"loss {loss:.6g}")
                    return iteration(lambda: attributes(params()))

            yield on_iteration

    def _attributes(self, params, present, units, count):
        """Fitted attributes of parameters in the units of the user."""
        # count: (n_classes,), weight of the samples of each class
        n_classes, n_components, n_factors = len(present), self.n_components, self.n_factors
        n_present, n_features = int(present.sum()), len(units.mean)
        prior = np.zeros(n_classes)
        prior[present] = np.exp(params.log_prior)
        weights = np.full((n_classes, n_components), 1.0 / n_components)
        weights[present] = np.exp(params.log_weights)
        means = np.tile(units.mean, (n_classes, n_components, 1))
        means[present] = params.means.reshape(n_present, n_components, n_features)
        loadings = np.zeros((n_classes, n_components, n_features, n_factors))
        loadings[present] = params.loadings.reshape(n_present, n_components, n_features, n_factors)
        noise = np.exp(params.log_noise)
        if self.noise == "tied":
            noise_variance = noise[0]
        else:
            inner = (n_features,) if self.noise == "class" else (n_components, n_features)
            noise_variance = np.empty((n_classes, *inner))
            noise_variance[:] = units.scale**2
            noise_variance[present] = noise.reshape(n_present, *inner)
        return {
            "class_prior_": count / count.sum(),
            "discriminative_prior_": prior,
            "class_count_": count,
            "weights_": weights,
            "means_": means,
            "loadings_": loadings,
            "noise_variance_": noise_variance,
        }

    def _warn(self, log_noise, prior, solver):
        missing = self.classes_[self.class_prior_ == 0]
        if len(missing):
            warn_caller(f"classes {missing.tolist()} have no sample; their probability is set to 0.")
        # Noise of a smaller share of the variance leaves covariances few digits, whatever floor is set.
        at_floor = log_noise <= max(prior.log_noise_bounds[0], np.log(1e-10)) + 1e-9
        # The joint likelihood would grow without bound there; for the conditional one the floor is a regulariser.
        if at_floor.any() and self.objective == "joint":
            warn_caller(
                f"{at_floor.sum()} of {at_floor.size} noise variances ended at their least value, noise_floor="
                f"{prior.noise_floor} of the variance of the feature; raise it by priors=Priors(noise_floor=...), "
                "lower n_factors, or share noise."
            )
        if not self.converged_:
            warn_caller(
                f"solver {type(solver).__name__} did not converge in max_iter={self.max_iter} iterations; raise "
                f"max_iter or tol{', or lower step_size' if isinstance(solver, ScaledSGD) else ''}.",
                ConvergenceWarning,
            )


def _of_positive_weight(weight, *arrays):
    kept = weight > 0
    if kept.all():
        return arrays
    if not kept.any():
        raise ValueError("sample_weight times class_weight is 0 throughout; at least one sample needs a weight.")
    return [array[kept] for array in arrays]


def _mean_log_volume(X, weight, units):
    """Mean logarithm of the ratio of the densities of standardised and original samples."""
    log_scale = np.log(units.scale)
    observed = np.isnan(X)
    per_row = (~observed) @ log_scale if observed.any() else np.full(len(X), log_scale.sum())
    return float(weight @ per_row / weight.sum())
