"""Estimator DenseCRF, which classifies pixels with a fully connected field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import C_INTERVAL
from sklearn_crf._own_methods import require_classes, require_numbers
from sklearn_crf._parameters import hide_type_in_halving, require_objects
from sklearn_crf._ranges import BYTES
from sklearn_crf._reports import CallbackSupportMixin, FitReprMixin, fit_callbacks, warn_caller
from sklearn_crf._threads import limit_blas_threads, map_coarse
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.dense._bandwidth_search import BandwidthGradient, BandwidthSearch
from sklearn_crf.dense._examples import check_channel_bandwidths, read_fitting_examples, read_training_data
from sklearn_crf.dense._gaussian_kernels import Bilateral, GaussianKernel, Spatial, build_filters, check_kernels
from sklearn_crf.dense._losses import ExpectedIoU, LogLoss
from sklearn_crf.dense._training import DensePlan, Layout, Weights, choose_blur, find_unit_of_scores, train
from sklearn_crf.encoding import encode_y, scale_sample_weight, validate_sample_weight
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.models import DenseModel, clamped
from sklearn_crf.potentials import FeatureMoments, warn_of_small_features

LOSSES = {"auto": LogLoss, "log_loss": LogLoss, "expected_iou": ExpectedIoU, "fixed": None}
BANDWIDTHS = {"given": None, "held_out": BandwidthSearch, "learned": BandwidthGradient}


@dataclass(eq=False, repr=False)
class DenseCRF(FitReprMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    r"""Classify pixels or voxels with a conditional random field that has an edge between every pair of them.

    .. math::
        \mathrm{score}(y) = \sum_i u_{i, y_i} + \frac12 \sum_m \sum_{i, j} \hat k_m(i, j) \, \mu_m(y_i, y_j)

    Edge weights are Gaussian kernels of positions and colours, normalised symmetrically. Predictions are mean-field
    marginals; each mean-field update is a filtering operation [1]_. The weights :math:`\mu_m` are learned by
    minimising a loss of the final marginals. The derivatives of the loss are propagated through all updates [2]_.

    Parameters
    ----------
    kernels : tuple of Spatial and Bilateral, default=None
        None is ``(Spatial(3.0), Bilateral(80.0, 13.0))``. Learning starts from the weights of the kernels, times the
        factor among 1, 0.3, 0.1 and 0 with the smallest loss.
    compatibility : {"potts", "diagonal", "full"}, default="potts"
        Form of the scores of pairs of states for each kernel: one number for equal states, one number for each state,
        or a symmetric matrix.
    unaries : {"scores", "linear"}, default="scores"
        With ``"scores"``, X holds a score for each class, in the order of the sorted classes, and a common factor is
        learned. With ``"linear"``, X holds features, and unary scores linear in the features are learned too.
    learning : {"auto", "log_loss", "expected_iou", "fixed"} or object, default="auto"
        Loss of the marginals: :class:`~sklearn_crf.dense.LogLoss` (``"auto"``),
        :class:`~sklearn_crf.dense.ExpectedIoU`, or an object with the same methods. ``"fixed"`` uses the weights of the
        kernels without learning.
    inference : DenseMeanField, default=None
        None is ``DenseMeanField(max_iter=10)``. With ``updates="convergent"``, learned weights are non-negative.
        For a subclass, training only uses its options, while prediction calls its methods.
    bandwidths : {"given", "held_out", "learned"}, BandwidthSearch or BandwidthGradient, default="given"
        Choice of the bandwidths. ``"given"`` uses the bandwidths of ``kernels``. ``"held_out"`` selects them by the
        loss on held-out examples, see :class:`~sklearn_crf.dense.BandwidthSearch`. ``"learned"`` trains them together
        with the weights, starting from the given bandwidths, see :class:`~sklearn_crf.dense.BandwidthGradient`.
    image_channels : int, default=3
        If X holds arrays: number of channels at the end of the last axis that belong to the image.
    color_range : (float, float), default=None
        Range of the colours of all images. Colours are rescaled from it to 0 to 255, the units of bandwidths. None uses
        the range of the data type for uint8, uint16 and bool images; for other types, ``fit`` determines the range as
        :func:`refine` does.
    C : float, default=1.0
        Inverse strength of the penalty :math:`\tfrac12 \lVert w \rVert^2`, as in scikit-learn. Intercepts and the
        factor of given scores are not penalised.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes in the loss, by label. ``"balanced"`` is inversely proportional to their numbers of pixels.
    max_iter : int, default=100
        Maximum number of iterations of L-BFGS.
    tol : float, default=1e-4
        Training stops when no entry of the gradient, per labelled pixel, exceeds this tolerance, and the last quarter
        of the iterations lowered the objective by at most 1 %.
    max_memory : float, default=2**33
        Maximum memory, in bytes, for the lattices of one example. In training, lattices are kept up to this total; the
        lattices of further examples are rebuilt in each iteration.
    missing_label : object, default=None
        Label of unlabelled pixels.
    classes : array-like of shape (n_classes,), optional
        All classes, if some may be missing from the training labels.
    warm_start : bool, default=False
        Whether to start from the weights of the last fit.
    n_jobs : int, optional
        Number of threads, over examples and within an example. Results do not depend on it.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    compatibility_ : ndarray of shape (n_kernels,), (n_kernels, n_classes) or (n_kernels, n_classes, n_classes)
        Weights :math:`\mu_m`.
    unary_scale_ : float
        Number by which given scores are multiplied; 1 for linear unary scores.
    coef_, intercept_ : ndarray of shape (n_classes, n_features), (n_classes,)
        Weights of linear unary scores; None for given scores.
    kernels_ : list
        Kernels with the chosen bandwidths.
    bandwidth_trace_ : list of (str, float)
        Kernels that were tried, and their loss per labelled pixel on held-out examples or on training examples. Empty
        if bandwidths are given.
    loss_curve_ : ndarray of shape (n_iter_ + 1,)
        Objective at the start and after each iteration.
    n_iter_ : int
        Number of iterations of L-BFGS.
    n_features_in_ : int
        Number of scores or features, plus number of channels of the image.
    color_range_ : (float, float)
        Range of the colours of all images if ``color_range`` is given, else of images whose data type does not
        determine it.

    Raises
    ------
    ValueError
        If a parameter or X is invalid.
    MemoryError
        If lattices would need more than ``max_memory``. The check precedes their allocation.

    Notes
    -----
    For a kernel of d positions and channels, a pixel lies in a simplex with d + 1 corners. The lattice of an image
    needs 16 bytes (float32) or 24 bytes (float64) per pixel and corner, and half of this for up to 4 classes. Mean
    field needs about 3 more arrays of the size of the scores, and training one more for each update.

    Images may differ in size, in training and in prediction.

    References
    ----------
    .. [1] P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
       Advances in Neural Information Processing Systems 24, 109-117. :arxiv:`1210.5644`.
    .. [2] P. Krähenbühl & V. Koltun (2013). Parameter learning and convergent inference for dense random fields. ICML,
       513-521.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Bilateral, DenseCRF, DenseExample
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile(np.indices((12, 12)).sum(axis=0) > 11, (4, 1, 1))
    >>> image = np.where(y, 200, 50) + rng.normal(scale=5, size=y.shape)
    >>> scores = np.eye(2)[y.astype(int)] + rng.normal(size=(*y.shape, 2))
    >>> X = [DenseExample(*both) for both in zip(scores, image)]
    >>> field = DenseCRF([Bilateral(5.0, 20.0)]).fit(X[:3], y[:3])
    >>> print(f"{field.score(X[3:], y[3:]):.2f}")
    1.00
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless the fitted attributes are finite numbers of consistent shapes."""
        require_classes(self.classes_)
        n_classes, n_kernels = len(self.classes_), len(self.kernels_)
        require_numbers("compatibility_", self.compatibility_, *((n_kernels, *(n_classes,) * k) for k in range(3)))
        require_numbers("unary_scale_", np.asarray(self.unary_scale_), ())
        if self.coef_ is None and n_classes != self.n_features_in_ - self.n_channels_:
            raise ValueError("classes_ must have one label for each channel of scores.")
        if not all(isinstance(kernel, GaussianKernel) for kernel in self.kernels_):
            raise ValueError(f"kernels_ must be a list of GaussianKernel, got {self.kernels_!r}.")
        require_numbers("color_range_", np.asarray(getattr(self, "color_range_", BYTES)), (2,))
        if self.coef_ is not None:
            require_numbers("coef_", self.coef_, (n_classes, self.n_features_in_ - self.n_channels_))
            require_numbers("intercept_", self.intercept_, (n_classes,))

    _parameter_constraints: ClassVar[dict] = {
        "kernels": [list, tuple, None],
        "compatibility": [StrOptions({"potts", "diagonal", "full"})],
        "unaries": [StrOptions({"scores", "linear"})],
        "learning": [StrOptions(set(LOSSES)), HasMethods(["totals", "value", "gradient"])],
        "inference": [DenseMeanField, None],
        "bandwidths": [
            StrOptions(set(BANDWIDTHS)),
            HasMethods(["split", "choose"]),
            HasMethods(["descend"]),
        ],
        "image_channels": [Interval(Integral, 0, None, closed="left")],
        "color_range": ["array-like", None],
        "C": [C_INTERVAL],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_memory": [Interval(Real, 0, None, closed="neither")],
        "missing_label": "no_validation",
        "classes": ["array-like", None],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    kernels: Sequence[GaussianKernel] | None = None
    _: KW_ONLY
    compatibility: str = "potts"
    unaries: str = "scores"
    learning: Any = "auto"
    inference: DenseMeanField | None = None
    bandwidths: Any = "given"
    image_channels: int = 3
    color_range: Sequence[float] | None = None
    C: float = 1.0
    class_weight: dict | str | None = None
    max_iter: int = 100
    tol: float = 1e-4
    max_memory: float = 2**33
    missing_label: Any = None
    classes: ArrayLike | None = None
    warm_start: bool = False
    n_jobs: int | None = None
    verbose: int = 0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return hide_type_in_halving(tags)

    def set_params(self, **params: Any) -> DenseCRF:
        """Set parameters, including nested parameters such as ``inference__max_iter=5``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        DenseCRF
            self
        """
        require_objects(self, params, {"inference": "DenseMeanField()", "bandwidths": "BandwidthSearch()"})
        return super().set_params(**params)

    # Training ------------------------------------------------------------------------------------------------------

    # Objects that are passed as parameters check their own options.
    @fits
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> DenseCRF:
        """Learn the weights.

        Parameters
        ----------
        X : list of DenseExample, array-like of shape (n_examples, *lattice, n_scores + image_channels), or list of such
            Scores of the classes (or features), and images.
        y : array-like of shape (n_examples, *lattice), or list of arrays
            Labels of the pixels.
        sample_weight : array-like of shape (n_examples,), optional
            Weight of each example.

        Returns
        -------
        DenseCRF
            self
        """
        data = read_training_data(
            X,
            y,
            sample_weight,
            image_channels=self.image_channels,
            color_range=self.color_range,
            missing_label=self.missing_label,
            classes=self.classes,
            class_weight=self.class_weight,
        )
        plan = self._plan(data)
        with fit_callbacks(self, X, y, plan.max_iter) as iteration:
            model = train(data, plan, lambda *found: iteration(lambda: _attributes(data, *found)))
        return self._store(data, plan, model)

    def _plan(self, data):
        """Return the plan of training, with all parameters resolved."""
        kernels = (Spatial(3.0), Bilateral(80.0, 13.0)) if self.kernels is None else self.kernels
        check_kernels(kernels)
        check_channel_bandwidths(self.kernels or (), data.color_range)
        n_features = data.input.n_scores if self.unaries == "linear" else None
        is_learned = n_features is None and self.learning != "fixed"
        unit = find_unit_of_scores(data.tasks) if is_learned else 1.0
        layout = Layout(len(kernels), len(data.classes), self.compatibility, n_features, unit)
        former = self._get_former_weights(layout.start(kernels), data) if self.warm_start else None
        plan = DensePlan(
            kernels=tuple(kernels),
            layout=layout,
            start=layout.start(kernels) if former is None else former,
            continues=former is not None,
            loss=_make_object(self.learning, LOSSES),
            bandwidths=_make_object(self.bandwidths, BANDWIDTHS),
            inference=self._inference,
            C=float(self.C),
            tol=self.tol,
            max_memory=self.max_memory,
            **DensePlan.limits(self),
        )
        _check_data(data, plan)
        return plan

    def _get_former_weights(self, start, data):
        """Return the weights of the last fit, or None before the first fit."""
        if not hasattr(self, "compatibility_"):
            return None
        former = self._weights
        fits = start.compatibility.shape == former.compatibility.shape
        fits &= (former.coef is None) == (start.coef is None)
        if not fits or not np.array_equal(data.classes, self.classes_) or data.input.n_features != self.n_features_in_:
            raise ValueError(
                "warm_start=True needs the same classes, features, kernels and compatibility as the last fit: to "
                "change them, fit a clone."
            )
        return former

    def _store(self, data, plan, model):
        """Set all fitted attributes, as the last step of fit, so that a failed fit leaves the estimator unchanged."""
        self.__dict__.update(_attributes(data, model.weights, model.kernels))
        self.bandwidth_trace_, self.color_range_ = model.trace, data.color_range
        course = model.course
        self.loss_curve_ = np.array([] if course is None else course.loss_curve) * (plan.C * data.total_weight)
        self.n_iter_ = 0 if course is None else int(course.nit)
        if course is not None and not course.success:
            warn_caller(
                f"DenseCRF stopped before its gradient fell to tol={plan.tol:.2g} ({course.message}): increase "
                f"max_iter={plan.max_iter} or tol.",
                ConvergenceWarning,
            )
        return self

    @property
    def _inference(self):
        return DenseMeanField(max_iter=10) if self.inference is None else self.inference

    @property
    def _weights(self):
        return Weights(self.compatibility_, self.unary_scale_, self.coef_, self.intercept_)

    # Predictions ---------------------------------------------------------------------------------------------------

    def _marginals(self, X, evidence=None, inference=None):
        """Return the examples of X, and the marginals of each example."""
        inference = self._inference if inference is None else inference
        if not isinstance(inference, DenseMeanField):
            raise ValueError(f"inference must be a DenseMeanField or None, got {inference!r}.")
        return self._map_models(lambda model, threads: inference.node_marginals(model, n_threads=threads), X, evidence)

    def _map_models(self, run, X, evidence):
        """Return the examples of X, and for the model of each example the result of ``run(model, n_threads)``.

        Each model is discarded after the call of ``run``.
        """
        check_is_fitted(self)
        data = read_fitting_examples(
            X,
            self.image_channels,
            (self.n_features_in_, self.n_channels_, self.lattice_ndim_),
            # Models that were saved before ``color_range_`` existed do not rescale colours.
            getattr(self, "color_range_", BYTES),
            is_fixed=self.color_range is not None or not hasattr(self, "color_range_"),
        )
        known = [None] * data.n_examples
        if evidence is not None:
            of_labels = {"missing_label": self.missing_label, "classes": self.classes_, "name": "evidence"}
            known = encode_y(evidence, data, **of_labels).labels
        weights, options = self._weights, {"blur": choose_blur(self._inference), "max_memory": self.max_memory}

        def run_example(task, n_threads):
            i, example, observed = task
            filters = build_filters(self.kernels_, example, f"X[{i}]", n_threads=n_threads, **options)
            model = DenseModel(weights.unary(example.rows), filters, weights.compatibility)
            if observed is not None:
                model = clamped(model, observed)
            try:
                return run(model, n_threads)
            except ValueError as error:
                raise ValueError(f"X[{i}]: {error}") from error

        tasks = list(zip(range(data.n_examples), data.examples, known, strict=True))
        with limit_blas_threads():
            return data, map_coarse(run_example, tasks, self.n_jobs)

    def predict(self, X: Any, evidence: Any = None, *, inference: DenseMeanField | None = None) -> np.ndarray:
        """Predict the label with the largest marginal probability at every pixel.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels, which are predicted given the
            known labels.
        inference : DenseMeanField, optional
            Inference for prediction; None uses ``inference`` of the estimator.

        Returns
        -------
        ndarray
            Labels of shape ``(n_examples, *lattice)``; if X is a list, a 1-D object array of arrays.
        """
        data, marginals = self._marginals(X, evidence, inference)
        return data.decode([self.classes_[q.argmax(axis=1)] for q in marginals])

    def predict_proba(self, X: Any, evidence: Any = None, *, inference: DenseMeanField | None = None) -> np.ndarray:
        """Return the marginal probability of each class at every pixel.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        evidence : array-like, optional
            As in ``predict``.
        inference : DenseMeanField, optional
            As in ``predict``.

        Returns
        -------
        ndarray
            As returned by ``predict``, with a last axis of ``n_classes``.
        """
        data, marginals = self._marginals(X, evidence, inference)
        return data.decode(marginals)

    def predict_log_proba(self, X: Any, evidence: Any = None, *, inference: DenseMeanField | None = None) -> np.ndarray:
        """Return the logarithm of the marginal probability of each class at every pixel.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        evidence : array-like, optional
            As in ``predict``.
        inference : DenseMeanField, optional
            As in ``predict``.

        Returns
        -------
        ndarray
            As returned by ``predict_proba``; -inf for a class of probability 0.
        """
        data, marginals = self._marginals(X, evidence, inference)
        with np.errstate(divide="ignore"):
            return data.decode([np.log(q) for q in marginals])

    def models(self, X: Any, evidence: Any = None) -> list[DenseModel]:
        """Return the model of every example under the fitted weights.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``. The filters of all examples are in memory at once.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. All other states of known pixels
            are forbidden.

        Returns
        -------
        list of DenseModel
            Model of each example, with states in the order of ``classes_``.
        """
        return self._map_models(lambda model, n_threads: model, X, evidence)[1]

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy over labelled pixels.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        y : array-like
            True labels; pixels with ``missing_label`` are ignored.
        sample_weight : array-like of shape (n_examples,), optional
            Weight of each example.

        Returns
        -------
        float

        Notes
        -----
        A label that is not in ``classes_`` is never predicted, so its pixels count as errors.
        """
        data, marginals = self._marginals(X)
        missing, classes = self.missing_label, self.classes_
        labels = encode_y(y, data, missing_label=missing, classes=classes, allow_unknown=True).labels
        weight = scale_sample_weight(validate_sample_weight(sample_weight, data.n_examples))
        weight = np.ones(data.n_examples) if weight is None else weight
        known = np.array([np.count_nonzero(own >= 0) for own in labels])
        right = np.array([np.count_nonzero(q.argmax(axis=1) == own) for q, own in zip(marginals, labels, strict=True)])
        if not weight @ known:
            raise ValueError("y has no labelled pixel of positive weight: there is nothing to score.")
        return float(weight @ right / (weight @ known))


def _make_object(option, kinds):
    """Return the object for an option that is an object or a name, or None for a name that stands for no object."""
    if not isinstance(option, str):
        return option
    kind = kinds[option]
    return None if kind is None else kind()


def _attributes(data, weights, kernels):
    return {
        "n_features_in_": data.input.n_features,
        "lattice_ndim_": data.input.lattice_ndim,
        "n_channels_": data.input.n_channels,
        "classes_": data.classes,
        "compatibility_": weights.compatibility,
        "unary_scale_": weights.unary_scale,
        "coef_": weights.coef,
        "intercept_": weights.intercept,
        "kernels_": kernels,
    }


def _check_data(data, plan):
    """Raise ValueError if the examples do not fit the plan."""
    if plan.layout.n_features is not None:
        if plan.loss is None:
            raise ValueError(
                "unaries='linear' needs training, but learning='fixed' trains nothing: use another learning, or "
                "unaries='scores'."
            )
        for i, example in enumerate(data.input.examples):
            if np.isneginf(example.scores).any():
                raise ValueError(f"X[{i}] has features of -inf, which unaries='linear' does not support.")
        moments = [FeatureMoments.of_rows(task.example.rows.astype(np.float64), task.weight) for task in data.tasks]
        warn_of_small_features(FeatureMoments.joined(moments), plan.C, "scale the features of each example")
    elif data.input.n_scores != len(data.classes):
        raise ValueError(
            f"X has {data.input.n_scores} scores per pixel, but there are {len(data.classes)} classes: pass one score "
            "per class, list all classes in the classes parameter, or learn scores from features with "
            "unaries='linear'."
        )
    elif plan.loss is not None:
        for task in data.tasks:
            counted = np.flatnonzero(task.weight)
            if np.isneginf(task.example.rows[counted, task.labels[counted]]).any():
                raise ValueError(
                    f"X[{task.index}] has a score of -inf for the true label of a pixel, so the loss is infinite for "
                    "any weights: use finite scores."
                )
    if plan.inference.updates == "convergent" and plan.layout.compatibility == "full" and plan.loss is not None:
        raise ValueError(
            "compatibility='full' cannot be learned with updates='convergent': use 'diagonal', or updates='parallel'."
        )
