"""Paths of fits from generative to discriminative, and the choice among them by cross-validation."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context, clone
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils._param_validation import InvalidParameterError, StrOptions
from sklearn.utils.validation import _check_sample_weight

from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks
from sklearn_crf._threads import map_coarse
from sklearn_crf.mfa._estimator import MultiConditionalMFA
from sklearn_crf.mfa._fitted import FittedMixture
from sklearn_crf.mfa._input import PARAMETER_CONSTRAINTS, require_complete, require_labels, require_objects
from sklearn_crf.mfa._parameters import Priors
from sklearn_crf.mfa._solvers import ScaledLBFGS, ScaledSGD


def alpha_path(
    estimator: MultiConditionalMFA,
    X: ArrayLike,
    y: ArrayLike,
    alphas: Sequence[float],
    *,
    sample_weight: ArrayLike | None = None,
) -> list[MultiConditionalMFA]:
    r"""Fit a model for each of several ``alpha``, each from where the next larger one ended.

    .. math::
        \theta(\alpha) = \operatorname{argmax}_\theta \sum_i w_i
        \left[ \log P(c_i \mid x_i) + \alpha \log P(x_i \mid c_i) \right]

    All restarts of the largest ``alpha`` begin with one set of initial values (k-means), and every restart is followed
    down to the smallest. That is quicker than as many fits, and neighbours on the path do not differ by the local
    maximum that they happened to find.

    Parameters
    ----------
    estimator : MultiConditionalMFA
        With ``objective="multi_conditional"``; its ``alpha`` is not used, and it is not changed.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    alphas : sequence of float
        Not negative, in any order.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    list of MultiConditionalMFA
        One fitted model for each ``alpha``, in the order of ``alphas``.

    Raises
    ------
    ValueError
        For ``objective="joint"``, which has no ``alpha``, or no ``alphas``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import MultiConditionalMFA, alpha_path
    >>> X, y = load_wine(return_X_y=True)
    >>> path = alpha_path(MultiConditionalMFA(1, random_state=0), X, y, [0.1, 1.0])
    >>> [model.alpha for model in path]
    [0.1, 1.0]
    """
    return [model for _, model in sorted(_descend(estimator, X, y, alphas, sample_weight), key=lambda pair: pair[0])]


def _descend(estimator, X, y, alphas, sample_weight):
    """Pairs of a position in ``alphas`` and its model, from the largest alpha on."""
    if estimator.objective != "multi_conditional":
        raise ValueError(f"alpha_path needs objective='multi_conditional', got {estimator.objective!r}.")
    if not len(alphas):
        raise ValueError("alphas is empty; it needs at least one value.")
    found, starts = [], None
    for position in np.argsort(alphas, kind="stable")[::-1].tolist():
        model = clone(estimator).set_params(alpha=alphas[position])
        model._validate_params()
        ends = model._fit(X, y, sample_weight, starts)
        starts = [(end.params, seed) for seed, end in enumerate(ends)]
        found.append((position, model))
    return found


class MultiConditionalMFACV(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, FittedMixture):
    r"""Mixtures of factor analysers with ``alpha``, components and factors chosen by cross-validation.

    .. math::
        (\hat\alpha, \hat K, \hat p) = \operatorname{argmax}_{\alpha, K, p} \; \frac{1}{F} \sum_{f=1}^F
        \mathrm{score}\bigl( \hat\theta_{\alpha, K, p}(\text{all folds but } f), \; \text{fold } f \bigr)

    For every fold and every pair of ``n_components`` and ``n_factors``, one :func:`alpha_path` fits all ``alphas``. The
    model of the best mean score is fitted again to all samples.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), default=(0.001, 0.01, 0.1, 1.0)
        Weights of ``log P(x | c)``.
    n_components : int or array-like of int, default=2
        Components per class to choose from.
    n_factors : int or array-like of int, default=2
        Columns of the loadings to choose from.
    cv : int, cross-validation generator or iterable, default=None
        As for :class:`~sklearn.linear_model.LogisticRegressionCV`; None is five stratified folds.
    scoring : str, callable or None, default=None
        None is accuracy; ``"neg_log_loss"`` also judges probabilities, and notices overfitting earlier.
    noise, priors, init, n_init, solver, max_iter, tol, class_weight, classes, allow_nan, random_state
        As for `MultiConditionalMFA`; ``init`` is the name of a strategy.
    n_jobs : int or None, default=None
        Threads, over folds and pairs, and over rows of samples in predictions. Results do not depend on it.
    verbose : int, default=0
        Show progress of the last fit.

    Attributes
    ----------
    alpha_ : float
    n_components_ : int
    n_factors_ : int
    scores_ : ndarray of shape (n_pairs_components, n_pairs_factors, n_alphas, n_folds)
        Score of every candidate on every fold.
    classes_, class_prior_, discriminative_prior_, class_count_, weights_, means_, loadings_, noise_variance_
        Those of `MultiConditionalMFA`, of the chosen model.
    loss_curve_, restart_losses_, converged_, n_iter_
        Likewise.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    MultiConditionalMFA : One fit.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import MultiConditionalMFACV
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFACV(
    ...     [0.01, 1.0], n_components=1, n_init=1, random_state=0
    ... ).fit(X, y)
    >>> model.scores_.shape
    (1, 1, 2, 5)
    """

    objective = "multi_conditional"
    _shared = ("noise", "priors", "init", "n_init", "solver", "max_iter", "tol", "class_weight", "allow_nan")
    _parameter_constraints: ClassVar[dict] = {
        **{name: PARAMETER_CONSTRAINTS[name] for name in (*_shared, "classes", "random_state", "n_jobs", "verbose")},
        "init": [StrOptions({"kmeans", "random"})],
        "solver": [StrOptions({"auto", "lbfgs", "sgd"}), ScaledLBFGS, ScaledSGD],
        "alphas": ["array-like"],
        "n_components": [*PARAMETER_CONSTRAINTS["n_components"], "array-like"],
        "n_factors": [*PARAMETER_CONSTRAINTS["n_factors"], "array-like"],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(get_scorer_names())), callable, None],
    }

    def __init__(
        self,
        alphas: ArrayLike = (0.001, 0.01, 0.1, 1.0),
        n_components: int | ArrayLike = 2,
        n_factors: int | ArrayLike = 2,
        *,
        cv: int | Iterable | None = None,
        scoring: str | Callable | None = None,
        noise: str = "tied",
        priors: Priors | None = None,
        init: str = "kmeans",
        n_init: int = 5,
        solver: str | ScaledLBFGS | ScaledSGD = "auto",
        max_iter: int = 500,
        tol: float = 1e-3,
        class_weight: dict | str | None = None,
        classes: ArrayLike | None = None,
        allow_nan: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.alphas = alphas
        self.n_components = n_components
        self.n_factors = n_factors
        self.cv = cv
        self.scoring = scoring
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
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def set_params(self, **params) -> "MultiConditionalMFACV":
        """Set parameters; ``solver__step_size`` and the like are those of an object that was passed.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self
        """
        require_objects(self, params, {"solver": "ScaledSGD()", "priors": "Priors()"})
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "MultiConditionalMFACV":
        """Choose and fit a model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Used in fitting, not in scoring.

        Returns
        -------
        self
        """
        alphas = _candidates("alphas", self.alphas, float, 0)
        n_components = _candidates("n_components", self.n_components, int, 1)
        n_factors = _candidates("n_factors", self.n_factors, int, 0)
        table = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        require_complete(self, table)
        require_labels(y)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(table, labels)
        weight = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        folds = list(check_cv(self.cv, labels, classifier=True).split(table, labels))
        classes = np.unique(labels) if self.classes is None else self.classes
        base = MultiConditionalMFA(
            classes=classes, random_state=self.random_state, **{name: getattr(self, name) for name in self._shared}
        )
        scorer = check_scoring(base, scoring=self.scoring)
        pairs = list(product(n_components, n_factors))
        tasks = [(fold, k, p) for k, p in pairs for fold in folds]
        # Callbacks hear of the path of every fold, and of the last fit. The choice needs all scores: none can stop it.
        with fit_callbacks(self, X, y, len(tasks) + 1) as task_ended:

            def fold_scores(task, n_threads):
                (train, test), k, p = task
                model = clone(base).set_params(n_components=k, n_factors=p, n_jobs=n_threads)
                path = alpha_path(model, table[train], labels[train], alphas, sample_weight=weight[train])
                return [scorer(fitted, table[test], labels[test]) for fitted in path]

            scores = np.array(map_coarse(fold_scores, tasks, self.n_jobs, ended=lambda: task_ended(lambda: None)))
            scores = scores.reshape(len(n_components), len(n_factors), len(folds), len(alphas)).swapaxes(2, 3)
            i, j, best = np.unravel_index(scores.mean(axis=3).argmax(), scores.shape[:3])
            chosen = clone(base).set_params(n_components=n_components[i], n_factors=n_factors[j], verbose=self.verbose)
            chosen.set_params(n_jobs=self.n_jobs)
            above = [alpha for alpha in alphas if alpha >= alphas[best]]
            model = alpha_path(chosen, X, y, above, sample_weight=sample_weight)[above.index(alphas[best])]
            fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
            task_ended(lambda: fitted)
        self.__dict__.update(fitted)
        self.alpha_, self.n_components_, self.n_factors_ = model.alpha, model.n_components, model.n_factors
        self.scores_ = scores
        return self


def _candidates(name, values, kind, least):
    """Values to choose from as a list of numbers; InvalidParameterError unless all are in their range."""
    try:
        numbers = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"{name} must hold numbers, got {values!r}.") from error
    whole = kind is float or (numbers == np.floor(numbers)).all()
    if numbers.ndim != 1 or not numbers.size or not (np.isfinite(numbers) & (numbers >= least)).all() or not whole:
        what = "finite numbers" if kind is float else "integers"
        raise InvalidParameterError(f"{name} must hold one or more {what} of at least {least}, got {values!r}.")
    return [kind(number) for number in numbers]
