"""Multi-conditional mixtures of factor analysers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from sklearn_crf._fits import fits
from sklearn_crf._numbers import replace_masked_values
from sklearn_crf._parameters import require_objects
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks, open_progress_reporter, warn_caller
from sklearn_crf.distributed import Shards, refuse_labels
from sklearn_crf.encoding import choose_partial_fit_classes
from sklearn_crf.mfa._fitted import FittedMixture, build_fitted_attributes, get_auto_parameters, get_previous_choice
from sklearn_crf.mfa._input import PARAMETER_CONSTRAINTS, SampleReading, check_counts, check_features
from sklearn_crf.mfa._parameters import Priors
from sklearn_crf.mfa._plan import Choice, MixturePlan, check_init, choose_solver, count_given_components, plan_family
from sklearn_crf.mfa._samples import TrainingData, Units
from sklearn_crf.mfa._sharded import survey
from sklearn_crf.mfa._solvers import EM, ScaledLBFGS, ScaledSGD, ignore_iterations
from sklearn_crf.mfa._training import choose, choose_best_restart, find_starts, make_online_pass, train


@dataclass(eq=False, repr=False)
class MultiConditionalMFA(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, FittedMixture):
    """Classifier with a mixture of factor analysers per class, trained generatively, discriminatively or in between.

    The model is ``P(x, c) = P(c) sum_s P(s | c) N(x; mu_cs, L_cs L_cs' + Psi)`` with ``n_components`` components ``s``
    for every class, loadings ``L`` with ``n_factors`` columns, and diagonal ``Psi``. Training maximises

        sum_i w_i [ log P(c_i | x_i) + alpha log P(x_i | c_i) ]  +  log prior             (multi_conditional)
        sum_i w_i   log P(c_i, x_i)                              +  log prior             (joint)

    of Kelm, Pal & McCallum 2006, Eq. (5) and (2). ``alpha=0`` is the conditional likelihood, ``alpha=1`` a
    pseudo-likelihood. Small values (0.001 to 0.01) use the density of the features as a regulariser. A pass over ``n``
    samples takes ``O(n C K d p)`` time, because covariance matrices are never computed.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of components (factor analysers) per class. "auto" chooses it by the log-loss of held-out samples, see
        Notes.
    n_factors : int, default=2
        Number of columns of the loadings, at most the number of features; with 0, covariances are diagonal.
    objective : {"multi_conditional", "joint"}, default="multi_conditional"
        Criterion that training maximises.
    alpha : float or "auto", default="auto"
        Weight of ``log P(x | c)`` in the multi-conditional likelihood. "auto" chooses among 1, 0.03 and 0.001.
        ``"joint"`` does not use it. For large ``alpha``, the means, loadings and noise of ``"multi_conditional"``
        approach the means, loadings and noise of ``"joint"``.
    noise : {"auto", "tied", "class", "component"}, default="auto"
        Which components share ``Psi``: all (as in the paper), the components of a class, or none. "auto" chooses
        "tied" or "class".
    priors : Priors or None, default=None
        Priors on means and loadings, and the smallest noise variance. None is ``Priors()``: flat priors, and noise
        variances of at least 1e-4 of the variance of the feature. If a parameter of conditional training is "auto",
        None is ``Priors(mean_scale=1, loading_scale=1, noise_floor=0.1)``, because a class may lack any variance of a
        feature.
    init : {"kmeans", "random"}, array-like of shape (n_classes, n_components, n_features) or dict, default="kmeans"
        Initial values. Within each class, samples are clustered by k-means, or by the nearest of random samples or of
        given means. Initial loadings and noise are computed from principal components of the clusters. A dict must
        contain ``means`` and may contain ``loadings``, ``noise_variance``, ``weights`` and ``class_prior``, in the
        shapes of the attributes. Initial values do not depend on the criterion.
    n_init : int, default=5
        Number of restarts, from which the restart with the best criterion is chosen. If ``init`` has arrays, there is a
        single start.
    solver : {"auto", "em", "lbfgs", "sgd"}, EM, ScaledLBFGS or ScaledSGD, default="auto"
        Expectation-maximisation (joint likelihood of complete samples), L-BFGS, or stochastic gradient descent. A name
        means the solver with default options. ``"auto"`` is ``"em"`` if it applies, otherwise ``"lbfgs"``.
    max_iter : int, default=500
        Maximum number of iterations of a restart, or of epochs for ``"sgd"``.
    tol : float, default=1e-3
        Tolerance. ``"em"`` stops when the estimated gain of all further iterations together is less than ``tol`` per
        sample. ``"lbfgs"`` scales the gradient of the mean criterion by the standard errors of the parameters and by
        ``1 / (1 + alpha)``. It stops when no entry of the scaled gradient is larger than ``tol``, or when 20 iterations
        together gain less than ``tol`` per sample. ``"sgd"`` stops after five epochs that gain less than ``tol``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which ``sample_weight`` is multiplied.
    classes : array-like or None, default=None
        Names of all classes, if the training set may lack some. A class without samples gets probability 0, with a
        warning. None uses the classes in ``y``.
    allow_nan : bool, default=False
        Integrate out missing values (NaN) exactly, in training and prediction, assuming they are missing at random.
    warm_start : bool, default=False
        Start from the previous fit instead of from ``init``.
    random_state : int, RandomState instance or None, default=None
        Determines the seeds of the restarts. With a fixed seed, starts still depend on the order of the samples.
    n_jobs : int or None, default=None
        Number of threads, over restarts in training and over samples in prediction. Results do not depend on it.
    verbose : int, default=0
        Show progress, as a bar if tqdm is installed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
        ``P(c)``, the weighted class frequencies in the samples, used for densities and random samples.
    discriminative_prior_ : ndarray of shape (n_classes,)
        Probabilities that replace ``P(c)`` in ``P(c | x)``. After joint training they equal ``class_prior_``.
        Conditional training learns them along with the densities, and they can be far from the class frequencies.
    class_count_ : ndarray of shape (n_classes,)
        Total weight of the samples of each class.
    n_components_, noise_, alpha_ : int, str, float
        Values of these parameters that training used.
    temperature_ : float
        Number that divides the logarithms of ``P(c, x)`` in ``predict_proba``; 1 if no parameter is "auto".
    weights_ : ndarray of shape (n_classes, n_components)
        ``P(s | c)``.
    means_ : ndarray of shape (n_classes, n_components, n_features)
    loadings_ : ndarray of shape (n_classes, n_components, n_features, n_factors)
        Rotated so that ``L' Psi^-1 L`` is diagonal, with decreasing entries.
    noise_variance_ : ndarray of shape (n_features,), (n_classes, n_features) or (n_classes, n_components, n_features)
        Diagonal of ``Psi``, for tied, class and component noise.
    loss_curve_ : ndarray of shape (n_iter_ + 1,)
        Loss of the chosen restart, at its start and after each iteration: minus the criterion and the log prior, per
        unit of sample weight.
    restart_losses_ : ndarray of shape (n_restarts,)
        Smallest loss of every restart.
    converged_ : bool
        Whether the stopping criterion was satisfied; False if a callback stopped the solver.
    n_iter_ : int
        Number of iterations; 1 if the start already satisfied the stopping criterion.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Raises
    ------
    InvalidParameterError
        If a parameter has a wrong type or is out of its range.
    ValueError
        If there are more factors than features, a class has fewer samples than components, X has NaN without
        ``allow_nan``, or a feature is constant or never observed.

    Notes
    -----
    Parameters that are "auto", and the temperature ``T``, minimise the log-loss of held-out samples,

        sum_i w_i min( -log softmax_c(log P(c, x_i) / T)[c_i], 36 ),    T >= 1,

    in three folds of at most 3,000 samples together. Without the limit of 36, which is the log-loss of a probability of
    2.2e-16, single samples could determine ``T``. ``noise`` and ``alpha`` are chosen with one component. Components are
    then added as long as the log-loss decreases. Equal samples are in the same fold. If a class has fewer than six
    different samples, and in ``partial_fit``, no parameter is chosen: "auto" means one component, ``noise="class"`` and
    ``alpha=0.1``. The joint likelihood has no ``alpha``.

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

    n_components: int | str = "auto"
    n_factors: int = 2
    _: KW_ONLY
    objective: str = "multi_conditional"
    alpha: float | str = "auto"
    noise: str = "auto"
    priors: Priors | None = None
    init: str | ArrayLike | dict = "kmeans"
    n_init: int = 5
    solver: str | EM | ScaledLBFGS | ScaledSGD = "auto"
    max_iter: int = 500
    tol: float = 1e-3
    class_weight: dict | str | None = None
    classes: ArrayLike | None = None
    allow_nan: bool = False
    warm_start: bool = False
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def set_params(self, **params: Any) -> MultiConditionalMFA:
        """Set parameters; names such as ``solver__step_size`` set options of a solver or of priors passed as objects.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an option of a solver is set but ``solver`` is a name, or an option of priors is set but ``priors`` is
            None.
        """
        require_objects(self, params, {"solver": "ScaledSGD()", "priors": "Priors()"})
        return super().set_params(**params)

    @fits
    def fit(
        self, X: ArrayLike | Shards, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> MultiConditionalMFA:
        """Train the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), float32 or float64, or Shards
            Samples; computations use float64. :class:`~sklearn_crf.Shards` of such arrays are processed where they are
            stored. Initial values then come from at most 3,000 samples of each class.
        y : array-like of shape (n_samples,)
            Class of each sample; None for Shards.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each sample. Samples of weight 0 are ignored.

        Returns
        -------
        self
        """
        self._train(self._read(X, y, sample_weight), X, y)
        return self

    def _train(self, data, X, y, starts=None):
        """Train from the starts of the plan or from given starts, and return the result of each restart."""
        prior = self._plan_family(get_auto_parameters(self).without_auto)[0].prior
        check_features(data.samples.X, data.constant, prior.noise_floor, self.objective == "joint")
        choice = self._choose_auto(data)
        plan = self._plan(data, choice)
        with self._report_iterations(X, y, data, plan, choice) as on_iteration:
            ends = train(data, plan, on_iteration, starts)
        self._store(data, plan, ends, choice)
        return ends

    def _choose_auto(self, data: Any) -> Choice:
        """Choose the parameters that are "auto"."""
        asked = get_auto_parameters(self)
        if not asked.is_open:
            return asked
        if self.warm_start and hasattr(self, "means_"):
            return get_previous_choice(self)
        if not isinstance(self.init, str):
            return asked.completed(Choice(count_given_components(self.init)))
        return choose(data, asked, lambda choice: self._plan(data, choice, n_restarts=1), self.n_jobs)

    @fits
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> MultiConditionalMFA:
        r"""Make one pass of stochastic steps over some samples, continuing from the previous call.

        .. math:: \theta_{t+1} = \theta_t - \eta \, h_t^{-1/2} S \tilde g_t, \qquad h_t = \sum_{u \le t} \tilde g_u^2

        with gradients :math:`\tilde g` of the criterion per sample. Each gradient is computed from a mini-batch of 64
        samples, drawn in random order, in units of S, the standard errors of the parameters for a single sample. The
        fitted parameters are an average over all steps, with more weight on later steps. The first call determines the
        scales of features and the initial values of a single restart. It should therefore have many samples, at least
        ``n_components`` of each class. ``solver``, ``n_init``, ``max_iter`` and ``tol`` are not used. After ``fit``,
        steps start from the fitted parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), float32 or float64
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All classes. Required at the first call unless the constructor parameter ``classes`` is set.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each sample. Samples of weight 0 are ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the first call has no classes, or a later call has different classes; if the first call has fewer than
            ``n_components`` samples of a class; or if ``class_weight="balanced"``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn_crf import MultiConditionalMFA
        >>> X, y = load_digits(return_X_y=True)
        >>> model = MultiConditionalMFA(n_components=1, random_state=0)
        >>> for part in (slice(0, None, 3), slice(1, None, 3)):
        ...     model = model.partial_fit(X[part], y[part], classes=range(10))
        >>> print(f"{model.score(X[2::3], y[2::3]):.2f}")
        0.96
        """
        is_first, former = not hasattr(self, "classes_"), getattr(self, "partial_fit_state_", None)
        classes = choose_partial_fit_classes(self, classes, least=1)
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight='balanced' is not supported by partial_fit, which receives only part of the samples "
                "in each call: pass a dict of weights."
            )
        if not is_first:
            validate_data(self, replace_masked_values(X), reset=False, skip_check_array=True)
        units = None if former is None else Units(former["mean"], former["scale"])
        read = self._reading(classes).read(X, y, sample_weight)
        data = TrainingData.of(*read, units=units, present=np.ones(len(classes), dtype=bool))
        choice = get_auto_parameters(self).without_auto if is_first else get_previous_choice(self)
        family, _ = self._plan_family(choice)
        if former is None:
            check_features(data.samples.X, data.constant, family.prior.noise_floor, self.objective == "joint")

        def start():
            if is_first:
                check_counts(data.samples.labels, classes.tolist(), choice.n_components)
                init = self._choose_init(data.present, len(data.constant), choice)
                return find_starts(data.samples, family, init, self._seeds()[:1], self.n_jobs)[0]
            missing = classes[self.class_prior_ == 0]
            if len(missing):
                name = missing.tolist()[0]
                raise ValueError(f"partial_fit cannot continue from a fit that had no samples of the class {name!r}.")
            return data.samples.units.to_standard(self._parameters)

        rng = check_random_state(self.random_state)
        params, state = make_online_pass(data.samples, family, len(classes), start, former, rng)
        if former is not None:
            count = getattr(self, "class_count_", former["weight"] * self.class_prior_)
            data = replace(data, class_count=data.class_count + count)
        self.__dict__.update(build_fitted_attributes(params, data, family, choice))
        self.partial_fit_state_ = {**state, **data.samples.units._asdict()}
        return self

    def _read(self, X, y, sample_weight):
        """Read and check the samples passed to ``fit``."""
        if isinstance(X, Shards):
            refuse_labels(y, sample_weight)
            if isinstance(choose_solver(self.solver, self.objective, False), ScaledSGD):
                raise ValueError(
                    "solver='sgd' processes single samples in memory, which Shards do not support: use 'em' or 'lbfgs'."
                )
            return survey(X, self._reading(self.classes))
        return TrainingData.of(*self._reading(self.classes).read(X, y, sample_weight))

    def _reading(self, classes):
        return SampleReading(
            get_auto_parameters(self).without_auto.n_components,
            self.n_factors,
            classes,
            self.class_weight,
            self.allow_nan,
        )

    def _plan(self, data, choice=None, n_restarts=None):
        """Resolve all training parameters into a plan; ``choice`` replaces parameters that are "auto"."""
        choice = get_auto_parameters(self).without_auto if choice is None else choice
        solver = choose_solver(self.solver, self.objective, data.has_missing)
        family, factor = self._plan_family(choice)
        check_counts(data.samples.labels, data.classes[data.present].tolist(), choice.n_components)
        init, seeds = self._choose_init(data.present, len(data.constant), choice), self._seeds()
        # With one component per class, all starts are equal.
        is_one = not isinstance(init, str) or (choice.n_components == 1 and not isinstance(solver, ScaledSGD))
        seeds = seeds[: 1 if is_one else n_restarts]
        limits = MixturePlan.limits(self)
        return MixturePlan(family=family, factor=factor, solver=solver, init=init, seeds=seeds, tol=self.tol, **limits)

    def _plan_family(self, choice):
        sizes = choice.n_components, self.n_factors, choice.noise
        priors = self.priors
        if priors is None and self.objective != "joint" and get_auto_parameters(self).is_open:
            priors = Priors(mean_scale=1.0, loading_scale=1.0, noise_floor=0.1)
        return plan_family(*sizes, objective=self.objective, alpha=choice.alpha, priors=priors)

    def _seeds(self):
        return check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init).tolist()

    def _choose_init(self, present, n_features, choice):
        """Return the name of a strategy, a dict of initial values, or the parameters of the previous fit."""
        shape = len(present), choice.n_components, n_features, self.n_factors
        noise_shape = {"tied": shape[2:3], "class": (shape[0], shape[2]), "component": shape[:3]}[choice.noise]
        if self.warm_start and hasattr(self, "means_"):
            if self.loadings_.shape != shape or self.noise_variance_.shape != noise_shape:
                raise ValueError(
                    "warm_start=True needs a previous fit whose parameters have the same shapes: set "
                    "warm_start=False to start from new initial values."
                )
            if np.array_equal(self.class_prior_ > 0, present):
                return self._parameters
        return check_init(self.init, present, shape, noise_shape)

    @contextmanager
    def _report_iterations(self, X, y, data, plan, choice):
        """Yield a thread-safe function that reports an iteration to callbacks and the progress bar."""
        if not plan.verbose and not hasattr(self, "_skl_callbacks"):
            yield ignore_iterations
            return
        n_iterations = len(plan.seeds) * plan.max_iter
        lock = threading.Lock()
        with (
            fit_callbacks(self, X, y, n_iterations) as iteration,
            open_progress_reporter(plan.verbose, n_iterations, type(self).__name__) as report,
        ):

            def on_iteration(loss, params):
                with lock:
                    report(lambda: f"loss {loss:.6g}")
                    return iteration(lambda: build_fitted_attributes(params(), data, plan.family, choice))

            yield on_iteration

    def _store(self, data, plan, ends, choice):
        """Set the fitted attributes, and warn of problems that users can solve."""
        best, criterion = choose_best_restart(ends), plan.family.criterion
        _warn(data, plan, best)
        offset = (criterion.joint - criterion.features) * data.log_volume
        for name in ("partial_fit_state_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.__dict__.update(build_fitted_attributes(best.params, data, plan.family, choice))
        self.loss_curve_ = plan.factor * (best.losses + offset)
        self.restart_losses_ = plan.factor * (np.array([end.losses.min() for end in ends]) + offset)
        self.n_iter_ = max(len(best.losses) - 1, 1)
        self.converged_ = best.converged
        return self


def _warn(data, plan, best):
    """Warn of classes without samples, of noise variances at the floor, and of a solver that has not converged."""
    missing = data.classes[~data.present]
    if len(missing):
        warn_caller(f"y has no samples of the classes {missing.tolist()}; their probability is set to 0.")
    prior, log_noise = plan.family.prior, best.params.log_noise[:, ~data.constant]
    # Covariances lose precision if noise is below 1e-10 of the variance, so warn at 1e-10 even if the floor is lower.
    at_floor = log_noise <= max(prior.log_noise_bounds[0], np.log(1e-10)) + 1e-9
    # The floor keeps the joint likelihood bounded.
    # In conditional training, the floor only regularises, so no warning is needed.
    if at_floor.any() and not plan.family.criterion.features:
        warn_caller(
            f"{at_floor.sum()} of {at_floor.size} noise variances ended at their minimum, "
            f"noise_floor={prior.noise_floor} times the variance of the feature: increase it with "
            "priors=Priors(noise_floor=...), decrease n_factors, or share noise between components."
        )
    if not best.converged and not best.was_stopped:
        steps = ", decrease step_size, or use solver='lbfgs'" if isinstance(plan.solver, ScaledSGD) else ""
        warn_caller(
            f"solver {type(plan.solver).__name__} did not converge in max_iter={plan.max_iter} iterations: increase "
            f"max_iter or tol{steps}.",
            ConvergenceWarning,
        )


def alpha_path(
    estimator: MultiConditionalMFA,
    X: ArrayLike,
    y: ArrayLike,
    alphas: Sequence[float],
    *,
    sample_weight: ArrayLike | None = None,
) -> list[MultiConditionalMFA]:
    r"""Fit a model for each value in ``alphas``, starting each fit from the fit with the next larger value.

    .. math::
        \theta(\alpha) = \operatorname{argmax}_\theta \sum_i w_i
        \left[ \log P(c_i \mid x_i) + \alpha \log P(x_i \mid c_i) \right]

    The restarts of the largest ``alpha`` begin with ordinary initial values (k-means), and each restart is continued
    down to the smallest ``alpha``. This method is faster than independent fits. Models with neighbouring values of
    ``alpha`` are also comparable, because they do not come from unrelated local maxima.

    Parameters
    ----------
    estimator : MultiConditionalMFA
        Estimator with ``objective="multi_conditional"``. The estimator is not changed, and its ``alpha`` is not used.
        If the number of components or the noise is "auto", it is chosen once, for the largest ``alpha``.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    alphas : sequence of float
        Values of ``alpha``, not negative, in any order.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    list of MultiConditionalMFA
        One fitted model for each ``alpha``, in the order of ``alphas``.

    Raises
    ------
    ValueError
        If ``objective="joint"``, which has no ``alpha``, or if ``alphas`` is empty.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import MultiConditionalMFA, alpha_path
    >>> X, y = load_wine(return_X_y=True)
    >>> path = alpha_path(MultiConditionalMFA(1, random_state=0), X, y, [0.1, 1.0])
    >>> [model.alpha for model in path]
    [0.1, 1.0]
    """
    if estimator.objective != "multi_conditional":
        raise ValueError(f"alpha_path needs objective='multi_conditional', got {estimator.objective!r}.")
    if not len(alphas):
        raise ValueError("alphas is empty: pass at least one value.")
    models, starts = [clone(estimator).set_params(alpha=alpha) for alpha in alphas], None
    for model in models:
        model._validate_params()
    data = models[0]._read(X, y, sample_weight)
    first = models[int(np.argmax(alphas))]
    choice = first._choose_auto(data)
    for model in models:
        model.set_params(n_components=choice.n_components, noise=choice.noise)
    for position in np.argsort(alphas, kind="stable")[::-1].tolist():
        ends = models[position]._train(data, X, y, starts)
        starts = [(end.params, seed) for seed, end in enumerate(ends)]
    return models
