"""The classifier of pixels by a fully connected field."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._numbers import C_INTERVAL
from sklearn_crf._parameters import is_asked_to_count_classes, require_objects
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks, progress_reporter, warn_caller
from sklearn_crf._threads import kept_threads, map_coarse, single_threaded_blas
from sklearn_crf._versions import restore_versioned_state, versioned_state
from sklearn_crf.dense._bandwidth_search import BandwidthGradient, BandwidthSearch
from sklearn_crf.dense._examples import read_fitting_examples, read_training_examples
from sklearn_crf.dense._gaussian_kernels import Bilateral, Spatial, build_filters, check_kernels
from sklearn_crf.dense._losses import ExpectedIoU, LogLoss
from sklearn_crf.dense._training import Lattices, Layout, Losses, Task, UnrolledRisk, Weights
from sklearn_crf.encoding import class_weights, counts_of_nodes, encode_y, summable_weight, validate_sample_weight
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.models import DenseModel, clamped
from sklearn_crf.optimize import minimize_lbfgs

LEARNING = {"auto": LogLoss, "log_loss": LogLoss, "expected_iou": ExpectedIoU}
BANDWIDTHS = {"held_out": BandwidthSearch, "learned": BandwidthGradient}
# Weights follow a change of bandwidths in a few iterations: they start from those found before.
_ITERATIONS_PER_CHOICE = 10


class DenseCRF(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    r"""Classifier of pixels or voxels by a field with an edge between every pair of them.

    .. math::
        \mathrm{score}(y) = \sum_i u_{i, y_i} + \frac12 \sum_m \sum_{i, j} \hat k_m(i, j) \, \mu_m(y_i, y_j)

    Edges have the weights of Gaussian kernels of positions and colours, normalised symmetrically. Predictions are the
    marginals of mean field, whose updates are filters [1]_. The weights :math:`\mu_m` are learned through those
    updates: the loss is that of the marginals with which they end, and its derivatives run through all of them [2]_.

    Parameters
    ----------
    kernels : tuple of Spatial and Bilateral, default=None
        None is ``(Spatial(3.0), Bilateral(80.0, 13.0))``. Learning starts from their weights times 1, 0.3, 0.1 or 0,
        whichever gives the smallest loss.
    compatibility : {"potts", "diagonal", "full"}, default="potts"
        Scores of pairs of states, for each kernel: one number for equal states, one for each state, or a symmetric
        matrix.
    unaries : {"scores", "linear"}, default="scores"
        Scores: X holds a score for each class, in the order of the sorted classes; one common factor of them is
        learned. Linear: X holds features, and unary scores linear in them are learned together with the rest.
    learning : {"auto", "log_loss", "expected_iou", "fixed"} or object, default="auto"
        The loss of the marginals: :class:`~sklearn_crf.dense.LogLoss` (auto),
        :class:`~sklearn_crf.dense.ExpectedIoU`, or an object with the methods of these. Fixed: the weights of the
        kernels are used as they are.
    inference : DenseMeanField, default=None
        None is ``DenseMeanField(max_iter=10)``. With ``updates="convergent"`` learned weights are kept non-negative.
    bandwidths : {"given", "held_out", "learned"}, BandwidthSearch or BandwidthGradient, default="given"
        Held out: bandwidths are chosen by :class:`~sklearn_crf.dense.BandwidthSearch`, by the loss on examples held out
        of training. Learned: they are trained with the weights, from the given ones, by
        :class:`~sklearn_crf.dense.BandwidthGradient`.
    image_channels : int, default=3
        Where X holds arrays: number of channels at the end of their last axis that are the image.
    color_range : (float, float), default=None
        Range of the colours of all images, which are read as colours of 0 to 255, the units of bandwidths. None takes
        that of the type of uint8, uint16 and bool images; ``fit`` finds that of others as :func:`refine` does.
    C : float, default=1.0
        Inverse strength of the penalty :math:`\tfrac12 \lVert w \rVert^2`, as in scikit-learn. Intercepts and the
        factor of given scores are free.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes in the loss, by labels; balanced is inversely proportional to their numbers of pixels.
    max_iter : int, default=100
        Most iterations of L-BFGS.
    tol : float, default=1e-4
        Stop when no entry of the gradient, per labelled pixel, exceeds this.
    max_memory : float, default=2**33
        Bytes that the lattices of one example may take. In training, lattices are kept up to this total, and those of
        the other examples are rebuilt in each iteration.
    missing_label : object, default=None
        Pixels that carry it are unlabelled.
    classes : array-like of shape (n_classes,), optional
        All classes, where training may miss some.
    warm_start : bool, default=False
        Start from the weights of the last fit.
    n_jobs : int, optional
        Threads over examples, and inside an example. Results do not depend on it.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    compatibility_ : ndarray of shape (n_kernels,), (n_kernels, n_classes) or (n_kernels, n_classes, n_classes)
        Weights :math:`\mu_m`.
    unary_scale_ : float
        Factor of given scores; 1 for linear unaries.
    coef_, intercept_ : ndarray of shape (n_classes, n_features), (n_classes,)
        Weights of linear unaries; None otherwise.
    kernels_ : list
        The kernels, with the chosen bandwidths.
    bandwidth_trace_ : list of (str, float)
        Kernels tried and their loss per labelled pixel, on held-out examples or of training; empty if bandwidths are
        given.
    loss_curve_ : ndarray of shape (n_iter_ + 1,)
        The objective at the start and after each iteration.
    n_iter_ : int
        Iterations of L-BFGS.
    n_features_in_ : int
        Number of scores or features plus channels of the image.
    color_range_ : (float, float)
        Range of the colours of images whose type does not say it, or of all images if ``color_range`` is given.

    Raises
    ------
    ValueError
        If a parameter or X is invalid; the message names it, and the example.
    MemoryError
        If lattices would take more than ``max_memory``, before they are allocated.

    Notes
    -----
    The lattice of an image takes 16 bytes (float32) or 24 (float64) per pixel and corner of its simplex (half of that
    for up to 4 classes), with d + 1 corners for a kernel of d positions and channels. Mean field takes about 3 more
    arrays of the size of the scores, and training one more for each update.

    Images may differ in size, in training and in prediction.

    References
    ----------
    .. [1] P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
       Advances in Neural Information Processing Systems 24, 109-117.
    .. [2] P. Krähenbühl & V. Koltun (2013). Parameter learning and convergent inference for dense random fields.
       ICML, 513-521.

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
    >>> field.score(X[3:], y[3:]) > 0.95
    True
    """

    __getstate__, __setstate__ = versioned_state, restore_versioned_state

    _parameter_constraints: ClassVar[dict] = {
        "kernels": [list, tuple, None],
        "compatibility": [StrOptions({"potts", "diagonal", "full"})],
        "unaries": [StrOptions({"scores", "linear"})],
        "learning": [StrOptions({*LEARNING, "fixed"}), HasMethods(["totals", "value", "gradient"])],
        "inference": [DenseMeanField, None],
        "bandwidths": [
            StrOptions({"given", *BANDWIDTHS}),
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

    def __init__(
        self,
        kernels=None,
        *,
        compatibility="potts",
        unaries="scores",
        learning="auto",
        inference=None,
        bandwidths="given",
        image_channels=3,
        color_range=None,
        C=1.0,
        class_weight=None,
        max_iter=100,
        tol=1e-4,
        max_memory=2**33,
        missing_label=None,
        classes=None,
        warm_start=False,
        n_jobs=None,
        verbose=0,
    ):
        self.kernels = kernels
        self.compatibility = compatibility
        self.unaries = unaries
        self.learning = learning
        self.inference = inference
        self.bandwidths = bandwidths
        self.image_channels = image_channels
        self.color_range = color_range
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.missing_label = missing_label
        self.classes = classes
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        if is_asked_to_count_classes():
            tags.estimator_type = None
        return tags

    def set_params(self, **params):
        """Set parameters, also those of an object that is one: ``inference__max_iter=5``.

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

    # Learning rules, searches and inference check their own options.
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None) -> "DenseCRF":
        """Learn the weights.

        Parameters
        ----------
        X : list of DenseExample, array-like of shape (n_examples, *lattice, n_scores + image_channels), or list of such
            Scores of the classes, or features, and images.
        y : array-like of shape (n_examples, *lattice), or list of arrays
            Labels of the pixels.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        DenseCRF
            self
        """
        kernels = list(self._checked_kernels())
        data, color_range = read_training_examples(X, self.image_channels, self.color_range, self.kernels)
        labels = encode_y(y, data, missing_label=self.missing_label, classes=self.classes)
        self._check_scores(data, labels.classes_)
        weight = validate_sample_weight(sample_weight, data.n_examples)
        tasks = self._tasks(data, labels, weight)
        layout = Layout(
            len(kernels),
            len(labels.classes_),
            self.compatibility,
            data.n_scores if self.unaries == "linear" else None,
        )
        start = self._start(layout, kernels, labels.classes_, data)
        trace, result, weights = [], None, start
        callbacks = fit_callbacks(self, X, y, self.max_iter)
        with single_threaded_blas(), kept_threads(self.n_jobs), callbacks as iteration:

            def on_iteration(found):
                return iteration(lambda: self._attributes(data, labels.classes_, layout.unpack(found.x), kernels))

            rule = self._bandwidth_rule()
            if hasattr(rule, "descend"):
                kernels, trace, start = self._descend_bandwidths(rule, tasks, layout, kernels, start)
            elif rule is not None:
                kernels, trace = self._choose_bandwidths(rule, tasks, layout, kernels, start)
            if self._loss() is None:
                # Lattices that cannot be built are an error of fit, not only of predict.
                self._lattices(kernels, tasks)
            else:
                risk = self._risk(tasks, layout, kernels)
                start = start if self._continues() else risk.best_scaled(start)
                result = self._train(risk, start, self.max_iter, on_iteration)
                weights = layout.unpack(result.x)
        # Assigned last: a failed fit leaves the estimator unchanged.
        for name, value in self._attributes(data, labels.classes_, weights, kernels).items():
            setattr(self, name, value)
        self.bandwidth_trace_, self.color_range_ = trace, color_range
        self._store_course(result, self.C * sum(float(task.weight.sum()) for task in tasks))
        return self

    def _store_course(self, result, scale):
        """Loss and number of iterations, and a warning if these were too few."""
        self.loss_curve_ = np.array([] if result is None else result.loss_curve) * scale
        self.n_iter_ = 0 if result is None else int(result.nit)
        if result is not None and not result.success:
            warn_caller(
                f"DenseCRF stopped before its gradient came down to tol={self.tol:.2g} ({result.message}): increase "
                f"max_iter={self.max_iter} or tol.",
                ConvergenceWarning,
            )

    def _checked_kernels(self):
        kernels = (Spatial(3.0), Bilateral(80.0, 13.0)) if self.kernels is None else self.kernels
        check_kernels(kernels)
        return kernels

    def _inference(self):
        return DenseMeanField(max_iter=10) if self.inference is None else self.inference

    def _blur(self):
        return "symmetric" if self._inference().updates == "convergent" else "single"

    def _loss(self):
        """The loss that learning minimises, None if there is no learning."""
        if not isinstance(self.learning, str):
            return self.learning
        return None if self.learning == "fixed" else LEARNING[self.learning]()

    def _bandwidth_rule(self):
        """How bandwidths are chosen, None if they are given."""
        if not isinstance(self.bandwidths, str):
            return self.bandwidths
        return None if self.bandwidths == "given" else BANDWIDTHS[self.bandwidths]()

    def _check_scores(self, data, classes):
        if self.unaries == "scores" and data.n_scores != len(classes):
            raise ValueError(
                f"X has {data.n_scores} scores per pixel, but there are {len(classes)} classes: give a score for each, "
                "name all classes by the parameter classes, or learn scores from features by unaries='linear'."
            )
        if self.unaries == "linear":
            if self._loss() is None:
                raise ValueError(
                    "unaries='linear' are learned, but learning='fixed' learns nothing: use another learning rule, or "
                    "unaries='scores'."
                )
            for i, example in enumerate(data.examples):
                if np.isneginf(example.scores).any():
                    raise ValueError(f"X[{i}] has features of -inf, which unaries='linear' cannot take.")
        convergent = self._inference().updates == "convergent"
        if convergent and self.compatibility == "full" and self._loss() is not None:
            raise ValueError(
                "compatibility='full' is not learned with updates='convergent': use 'diagonal', or updates='parallel'."
            )

    def _tasks(self, data, labels, sample_weight):
        class_weight = np.ones(len(labels.classes_))
        if self.class_weight is not None:
            counts = counts_of_nodes(labels.labels, summable_weight(sample_weight))
            class_weight = class_weights(self.class_weight, labels, counts)
        tasks = []
        for i, (example, own) in enumerate(zip(data.examples, labels.labels, strict=True)):
            known = own >= 0
            own = np.maximum(own, 0)
            weight = np.where(known, class_weight[own], 0.0)
            given = self.unaries == "scores" and self._loss() is not None
            if given and np.isneginf(example.rows[known, own[known]]).any():
                raise ValueError(
                    f"X[{i}] has a score of -inf for the label of a pixel, whose loss is infinite for any weights: use "
                    "finite scores."
                )
            tasks.append(Task(i, example, own, weight if sample_weight is None else weight * sample_weight[i]))
        if not any(task.weight.any() for task in tasks):
            raise ValueError("y has no labelled pixel of positive weight: there is nothing to learn from.")
        return tasks

    def _continues(self):
        return self.warm_start and hasattr(self, "compatibility_")

    def _start(self, layout, kernels, classes, data):
        if not self._continues():
            return layout.start(kernels)
        start = Weights(self.compatibility_, self.unary_scale_, self.coef_, self.intercept_)
        fits = layout.start(kernels).compatibility.shape == start.compatibility.shape
        fits &= (start.coef is None) == (layout.n_features is None)
        if not fits or not np.array_equal(classes, self.classes_) or data.n_features != self.n_features_in_:
            raise ValueError(
                "warm_start=True needs the classes, features, kernels and compatibility of the last fit: fit a clone "
                "instead."
            )
        return start

    def _lattices(self, kernels, tasks):
        return Lattices(kernels, tasks, blur=self._blur(), max_memory=self.max_memory, n_jobs=self.n_jobs)

    def _risk(self, tasks, layout, kernels):
        loss = self._loss() or LogLoss()
        lattices = self._lattices(kernels, tasks)
        return UnrolledRisk(tasks, lattices, layout, loss, self._inference(), float(self.C), self.n_jobs)

    def _train(self, risk, start, max_iter, on_iteration=None):
        bounded = np.zeros(risk.layout.n_coef, dtype=bool)
        if self._inference().updates == "convergent":
            bounded[: risk.layout.n_pairwise] = True
        with progress_reporter(self.verbose, max_iter, "lbfgs") as show:
            trace = Losses()

            def callback(found):
                trace.loss.append(found.fun)
                show(trace)
                return on_iteration is not None and on_iteration(found)

            return minimize_lbfgs(
                risk.value_grad,
                risk.layout.pack(start),
                lower_bounded=bounded,
                max_iter=max_iter,
                tol=self.tol,
                callback=callback,
            )

    def _choose_bandwidths(self, search, tasks, layout, kernels, start):
        labelled = [task for task in tasks if task.weight.any()]
        held_out, kept = ([labelled[i] for i in part] for part in search.split(len(labelled)))
        weights = start

        def evaluate(kernels):
            nonlocal weights
            if self._loss() is not None:
                risk = self._risk(kept, layout, kernels)
                found = self._train(risk, risk.best_scaled(weights), min(self.max_iter, _ITERATIONS_PER_CHOICE))
                weights = layout.unpack(found.x)
            return self._risk(held_out, layout, kernels).value(weights)

        return search.choose(kernels, evaluate)

    def _descend_bandwidths(self, rule, tasks, layout, kernels, start):
        weights, least = start, np.inf

        def value_grad(kernels):
            nonlocal weights, least
            risk = self._risk(tasks, layout, kernels)
            if self._loss() is None:
                return risk.value(start), risk.bandwidth_slopes(start)
            begin = risk.best_scaled(weights) if np.isinf(least) else weights
            result = self._train(risk, begin, min(self.max_iter, _ITERATIONS_PER_CHOICE))
            found, loss = layout.unpack(result.x), float(result.fun)
            if loss < least:
                weights, least = found, loss
            return loss, risk.bandwidth_slopes(found)

        return *rule.descend(kernels, value_grad), weights

    def _attributes(self, data, classes, weights, kernels):
        return {
            "n_features_in_": data.n_features,
            "lattice_ndim_": data.lattice_ndim,
            "n_channels_": data.n_channels,
            "classes_": classes,
            "compatibility_": weights.compatibility,
            "unary_scale_": weights.unary_scale,
            "coef_": weights.coef,
            "intercept_": weights.intercept,
            "kernels_": kernels,
        }

    # Predictions ---------------------------------------------------------------------------------------------------

    def _marginals(self, X, evidence=None, inference=None):
        """The examples of X and the marginals of each."""
        inference = self._inference() if inference is None else inference
        if not isinstance(inference, DenseMeanField):
            raise ValueError(f"inference must be a DenseMeanField or None, got {inference!r}.")
        return self._map_models(lambda model, threads: inference.node_marginals(model, n_threads=threads), X, evidence)

    def _map_models(self, run, X, evidence):
        """The examples of X, and ``run(model, n_threads)`` of the model of each; filters are dropped after it."""
        check_is_fitted(self)
        data = read_fitting_examples(X, self)
        known = [None] * data.n_examples
        if evidence is not None:
            known = encode_y(
                evidence, data, missing_label=self.missing_label, classes=self.classes_, name="evidence"
            ).labels
        weights = Weights(self.compatibility_, self.unary_scale_, self.coef_, self.intercept_)

        def run_example(task, n_threads):
            i, example, observed = task
            filters = build_filters(
                self.kernels_,
                example,
                name=f"X[{i}]",
                blur=self._blur(),
                max_memory=self.max_memory,
                n_threads=n_threads,
            )
            model = DenseModel(weights.unary(example.rows), filters, weights.compatibility)
            if observed is not None:
                model = clamped(model, observed)
            try:
                return run(model, n_threads)
            except ValueError as error:
                raise ValueError(f"X[{i}]: {error}") from error

        tasks = list(zip(range(data.n_examples), data.examples, known, strict=True))
        with single_threaded_blas():
            return data, map_coarse(run_example, tasks, self.n_jobs)

    def predict(self, X, evidence=None, *, inference=None) -> np.ndarray:
        """Labels of every pixel, each the likeliest under its marginals.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: these are predicted given
            the former.
        inference : DenseMeanField, optional
            What predicts; None is the estimator's own.

        Returns
        -------
        ndarray
            Of shape ``(n_examples, *lattice)``; for a list, a 1-D object array of arrays.
        """
        data, marginals = self._marginals(X, evidence, inference)
        return data.decode([self.classes_[q.argmax(axis=1)] for q in marginals])

    def predict_proba(self, X, evidence=None, *, inference=None) -> np.ndarray:
        """Marginal probability of each class at every pixel.

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
            As ``predict`` gives, with a last axis of ``n_classes``.
        """
        data, marginals = self._marginals(X, evidence, inference)
        return data.decode(marginals)

    def models(self, X, evidence=None) -> list[DenseModel]:
        """The model of every example under the fitted weights.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``. The filters of all examples are in memory together.
        evidence : array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: all other states of these
            pixels are forbidden.

        Returns
        -------
        list of DenseModel
            One for each example; states are in the order of ``classes_``.
        """
        return self._map_models(lambda model, n_threads: model, X, evidence)[1]

    def score(self, X, y, sample_weight=None) -> float:
        """Accuracy over labelled pixels.

        Parameters
        ----------
        X : list of DenseExample or array-like
            As in ``fit``.
        y : array-like
            True labels; pixels that carry ``missing_label`` are left out.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        float

        Notes
        -----
        A label that is not in ``classes_`` is never predicted, so its pixels are errors.
        """
        data, marginals = self._marginals(X)
        missing, classes = self.missing_label, self.classes_
        labels = encode_y(y, data, missing_label=missing, classes=classes, allow_unknown=True).labels
        weight = summable_weight(validate_sample_weight(sample_weight, data.n_examples))
        weight = np.ones(data.n_examples) if weight is None else weight
        known = np.array([np.count_nonzero(own >= 0) for own in labels])
        right = np.array([np.count_nonzero(q.argmax(axis=1) == own) for q, own in zip(marginals, labels, strict=True)])
        if not weight @ known:
            raise ValueError("y has no labelled pixel of positive weight: there is nothing to score.")
        return float(weight @ right / (weight @ known))
