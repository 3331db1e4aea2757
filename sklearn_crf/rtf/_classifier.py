"""Regression tree fields for labels: encoded as vectors, predicted as values, decoded."""

from functools import partial, reduce
from typing import ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks
from sklearn_crf.distributed import Shard, Shards, of_each_shard, on_worker, scored_shards
from sklearn_crf.encoding import (
    EncodedLabels,
    class_weights,
    encode_y,
    found_labels,
    missing_nodes,
    require_same_kind,
    sorted_classes,
)
from sklearn_crf.rtf._base import LIKELIHOODS, WEIGHTED, FieldEstimator, FieldProblem, ReadImages
from sklearn_crf.rtf._codes import SCORES, ClassCodes, checked_cost
from sklearn_crf.rtf._options import as_options
from sklearn_crf.rtf._prediction import known_pixels
from sklearn_crf.rtf._sharded import gather
from sklearn_crf.rtf.images._input import TargetMoments, put_back, read_planes, read_to_predict
from sklearn_crf.rtf.losses import logistic, mse, multinomial, multinomial_of_codes


def _multinomial_of_codes(prediction, target, weight=1.0):
    return multinomial(prediction, target.argmax(axis=-1), np.squeeze(weight, axis=-1) if np.ndim(weight) else weight)


# Losses of predictions for codes, and those that also take a weight for each pixel.
_LOSSES = {"mse": mse, "logistic": logistic, "multinomial": _multinomial_of_codes}
_WEIGHTED = WEIGHTED | {"logistic": logistic, "multinomial": _multinomial_of_codes}


def _gives_probabilities(estimator):
    if estimator.loss not in SCORES:
        raise AttributeError(f"predict_proba needs loss='logistic' or 'multinomial', got {estimator.loss!r}.")
    return True


class RegressionTreeFieldClassifier(ClassifierMixin, FieldEstimator):
    r"""Label pixels by a Gaussian field over codes of the labels, its factors chosen by regression trees.

    One sequence is ``X[np.newaxis]``, ``y[np.newaxis]``: X of shape ``(T, F)`` with y of ``(T,)`` are plain rows.

    .. math::
        \hat{y}_s = \arg\min_k \|u_s - e_k\|, \qquad u = \mathrm{E}[y \mid x]

    where :math:`e_k` is the code of class k and u the mean of the field of :class:`RegressionTreeField`. So the
    prediction is one solve, however the labels depend on each other.

    Parameters
    ----------
    loss : {"pseudolikelihood", "likelihood", "mse", "logistic", "multinomial"}, default="multinomial"
        ``"multinomial"`` takes the K values of a pixel as scores of the classes, and ``"logistic"`` its one value as
        that of the second of two classes: these have probabilities. The others are of codes.
    encoding : {"orthonormal", "ordinal"}, default="orthonormal"
        A unit vector for each class, all equally far apart; or one value, the number of the class. Losses of scores do
        not read it.
    window : int, array-like of shape (n_offsets, lattice_ndim) or Window, default=3
        Pairs of pixels with a factor, as in :class:`RegressionTreeField`.
    max_depth : int or "auto", default="auto"
        Most splits between the root of a tree and a leaf, as in :class:`RegressionTreeField`.
    filter_bank : str, image transformer or None, default=None
        Makes the channels out of X, as in :class:`RegressionTreeField`.
    split : {"gradient", "residual"} or Splits, default="gradient"
        Criterion of splits, as in :class:`RegressionTreeField`.
    solver : {"pqn", "spg"} or FieldSolver, default="pqn"
        As in :class:`RegressionTreeField`.
    max_iter : int or "auto", default="auto"
        Most iterations of each round, as in :class:`RegressionTreeField`.
    tol : float, default=1e-4
        Largest entry of the projected gradient at which a round ends.
    class_weight : dict, "balanced" or None, default=None
        Weight of the pixels of each class; ``"balanced"`` is in inverse proportion to how many there are. The exact
        likelihood of an image with pairs is one number: the image counts by the mean weight of its pixels, and
        ``predict`` weighs the components of the mean.
    cost : array-like of shape (n_classes, n_classes), default=None
        ``cost[a, b]`` of predicting class a where b is true, in the order of ``classes`` if that is given, else of
        ``classes_``: the label of least expected
        cost is predicted. For losses of scores, which have probabilities. None is one for every error.
    classes : array-like, default=None
        All classes, where some may be missing from the training labels.
    missing_label : object, default=None
        Value of labels that are not known, such as -1 or NaN, in y and ``evidence``. They have no weight in training;
        the pseudolikelihood leaves out their neighbours too.
    inference : str, ConjugateGradient, GaussianDirect or GaussianBP, default="auto"
        What finds the mean of the field, ``"auto"``, ``"conjugate_gradient"``, ``"direct"`` or ``"bp"``, as in
        :class:`RegressionTreeField`.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the field of the last call.
    random_state : int, RandomState instance or None, default=None
        Of tests and samples.
    n_jobs : int or None, default=None
        Threads over images, types, and rows; results do not depend on it.
    verbose : int, default=0
        1 prints a line a round.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    trees_ : list of dict
        Arrays of each type's tree, as in :class:`RegressionTreeField`.
    precisions_ : list of ndarray of shape (L, m, m)
        J of each leaf of each type.
    weights_ : list of ndarray of shape (L, m, 1 + n_channels)
        H of each leaf of each type, of channels ``(X - channel_centre_) * channel_scale_``.
    channel_centre_, channel_scale_, channel_range_, input_dtype_
        As of :class:`RegressionTreeField`.
    offsets_ : ndarray of shape (n_offsets, 2), or (n_offsets, 3) of volumes
        Slices, rows and columns from the first pixel of a pair to its second.
    pairwise_channels_ : ndarray
        Channels that linear models of pairs see.
    slopes_ : list of ndarray of shape (L, I, m, m)
        By which J of each leaf of each type grows with I channels.
    precision_channels_ : ndarray of shape (I,)
        These channels.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Weights of classes that ``predict`` multiplies the components of the mean with, after training by the exact
        likelihood with ``class_weight``.
    evidence_scores_ : ndarray of shape (n_classes, D)
        Values of the field that stand for a known label, after training for scores: their means over training pixels
        that are labelled right.
    target_mean_ : ndarray of shape (D,)
        Mean of the codes; the field's values are of mean 0 and variance 1.
    target_scale_ : float
        Standard deviation of the codes.
    loss_curve_ : ndarray
        The loss at the start, and after every iteration of all rounds.
    round_ends_ : ndarray
        Iterations made by the end of each round.
    validation_curve_ : ndarray
        Loss of what was held out at the end of each round; empty without early stopping.
    n_iter_ : int
        Iterations of all rounds.
    filter_bank_ : image transformer or None
        What makes the channels, fitted.
    n_node_types_ : int
        Types of nodes of examples, 1 for arrays.
    missing_channels_ : ndarray of int
        Channels of X that had missing pixels in ``fit``, and may have them.
    n_features_in_ : int
        Channels of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame.
    lattice_ndim_ : int
        Axes of the lattices seen in ``fit``, from 0 to 3.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, PhD thesis, TU Wien 2012, Part III.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import RegressionTreeFieldClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.kron(rng.integers(3, size=(10, 4, 4)), np.ones((4, 4), dtype=int))
    >>> X = y[..., None] + 0.7 * rng.normal(size=(*y.shape, 1))
    >>> field = RegressionTreeFieldClassifier(max_depth=2, random_state=0, tol=1e-2).fit(
    ...     X[:8], y[:8]
    ... )
    >>> bool(field.score(X[8:], y[8:]) > 0.75)
    True
    """

    _takes_examples = True

    _parameter_constraints: ClassVar[dict] = {
        **FieldEstimator._parameter_constraints,
        "loss": [StrOptions({*LIKELIHOODS, *_LOSSES})],
        "encoding": [StrOptions({"orthonormal", "ordinal"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "cost": ["array-like", None],
        "classes": ["array-like", None],
        "missing_label": "no_validation",
    }

    def __init__(
        self,
        loss="multinomial",
        *,
        encoding="orthonormal",
        window=3,
        max_depth="auto",
        filter_bank=None,
        split="gradient",
        solver="pqn",
        max_iter="auto",
        tol=1e-4,
        class_weight=None,
        cost=None,
        classes=None,
        missing_label=None,
        inference="auto",
        warm_start=False,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.loss = loss
        self.encoding = encoding
        self.window = window
        self.max_depth = max_depth
        self.filter_bank = filter_bank
        self.split = split
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.cost = cost
        self.classes = classes
        self.missing_label = missing_label
        self.inference = inference
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Grow the trees and fit their leaves.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images of F channels; volumes (n, D, H, W, F), chains (n, T, F) and samples (n, F) too, in any unit. All
            that is larger than memory, or on a cluster: :class:`~sklearn_crf.Shards`, which bring y along. A list of
            :class:`~sklearn_crf.Example` on lattices (:func:`~sklearn_crf.graphs.lattice`) may have a ``node_type``:
            nodes of every type, and pairs of every two types, then have trees of their own, each as deep as
            ``max_depth``. Pairs are those of ``window``; other properties of examples are an error.
        y : array-like of shape (n, H, W), or list of array-like of shape (H, W)
            Labels; of shape (n_nodes,) for an Example.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        RegressionTreeFieldClassifier

        Raises
        ------
        InvalidParameterError
            If a parameter is not valid.
        ValueError
            If X and y do not fit, or an Example is not on a lattice or has more than features and types of nodes.
        """
        as_options(self.window, "window")
        self._check_classes_parameter()
        if isinstance(X, Shards):
            problem, attributes = gather(self, X, y, sample_weight, partial(self._classes_of, X))
            self._fit_field(X, None, problem, attributes)
            return self
        read = self._read(X, y, sample_weight, self.classes, self.class_weight, reset=not self._continues())
        problem, attributes = self._problem(read, self._common([self._found(read)]))
        self._fit_field(X, y, problem, attributes)
        return self

    def _check_classes_parameter(self):
        if self.classes is not None and np.ndim(self.classes) != 1:
            raise InvalidParameterError(
                f"The 'classes' parameter must be None or a list of classes. Got {self.classes!r} instead."
            )

    def _survey_part(self, X, y, sample_weight):
        """Planes of the images of a shard, and their labels."""
        planes = read_planes(self, X, reset=True)
        labels = found_labels(y, planes.encoded, missing_label=self.missing_label) if self.classes is None else []
        return planes, (), labels

    def _classes_of(self, shards, plain, found) -> dict:
        """The classes of all shards, and their weights."""
        # plain: the estimator that reads images of shards
        classes = sorted_classes([labels for part in found for labels in part.labels], self.classes)
        if self.class_weight is None:
            return {"classes": classes, "class_weight": None}
        counts = None
        if isinstance(self.class_weight, str):
            counts = [np.sum(shards.map(_class_counts, (plain, classes)), axis=0)]
        labels = EncodedLabels([np.arange(len(classes))], classes, counts)
        weights = class_weights(self.class_weight, labels)
        return {"classes": classes, "class_weight": dict(zip(classes.tolist(), weights.tolist(), strict=True))}

    def _class_counts(self, X, y, sample_weight, classes) -> np.ndarray:
        """Weight of the labelled pixels of each class in a shard, (n_classes,)."""
        planes = read_planes(self, X, reset=False)
        labels = encode_y(y, planes.encoded, missing_label=self.missing_label, classes=classes)
        weights, counts = self._weights(planes, sample_weight), np.zeros(len(classes))
        for i, own in enumerate([labels.labels] if planes.encoded.layout == "nodes" else labels.labels):
            known = own >= 0
            counts += np.bincount(own[known], None if weights is None else weights[i][known], len(classes))
        return counts

    def _read_part(self, X, y, sample_weight, corrupted, *, classes, class_weight):
        """Images of a shard, and the codes of their labels."""
        return self._read(X, y, sample_weight, classes, class_weight, reset=False)

    def _read(self, X, y, sample_weight, classes, class_weight, *, reset):
        """Images, and the codes of their labels."""
        planes = read_planes(self, X, reset=reset)
        labels = encode_y(y, planes.encoded, missing_label=self.missing_label, classes=classes)
        n_classes = len(labels.classes_)
        if self.loss == "logistic" and n_classes > 2:
            raise ValueError(f"loss='logistic' takes two classes, got {n_classes}: use 'multinomial'.")
        if self._continues() and not np.array_equal(labels.classes_, self.classes_):
            raise ValueError(f"warm_start needs the classes of the last call of fit, got {labels.classes_.tolist()}.")
        columns = [labels.labels] if planes.encoded.layout == "nodes" else labels.labels
        codes = self._coding(n_classes).table
        # A missing label has the code of the first class, and no weight.
        targets = [codes[np.maximum(own, 0)] for own in columns]
        weights = self._weights(planes, sample_weight)
        of_class = None if class_weight is None else class_weights(class_weight, labels, weights)
        is_joint = self.loss == "likelihood" and len(planes.offsets) > 0
        weights = self._pixel_weights(planes, columns, of_class, is_joint, weights)
        decision = {"decision_weight_": of_class if is_joint else None}
        layout = {"classes_": labels.classes_, "n_node_types_": planes.n_node_types} | decision | planes.channels
        return ReadImages(planes, targets, weights, layout, missing=planes.missing)

    def _found(self, read):
        """Description of the images of one part, which :meth:`_common` joins with those of the others."""
        return TargetMoments.of(read.targets, read.weights), read.layout

    def _common(self, found):
        """Mean and scale of the targets of all parts, and the fitted attributes that describe them."""
        moments, layouts = zip(*found, strict=True)
        if self.loss in SCORES:
            mean, scale = np.zeros(len(moments[0].mean)), 1.0
        elif self._continues():
            mean, scale = self.target_mean_, self.target_scale_
        else:
            mean, scale = reduce(TargetMoments.joined, moments).centre_and_scale()
        return mean, scale, layouts[0]

    def _problem(self, read, common):
        """The minimisation over some images, and the fitted attributes that describe their targets."""
        mean, scale, attributes = common
        scaled = [((target - mean) / scale).astype(np.float32) for target in read.targets]
        images = read.images(scaled, read.weights, mean, scale)
        return self._problem_of(images, read.planes, read.missing, common), attributes

    def _problem_of(self, images, planes, missing, common):
        mean, scale, _ = common
        of_mean = multinomial_of_codes if self.loss == "multinomial" else None
        objective = self._objective(_LOSSES, mean, scale, _WEIGHTED, of_mean=of_mean)
        return FieldProblem(images, planes.encoded, planes.offsets, objective, mean, scale, planes.units, missing)

    def _takes_pixel_weights(self):
        return self.loss in _WEIGHTED

    def _is_of_scores(self):
        return self.loss in SCORES

    def _pixel_weights(self, planes, columns, of_class, is_joint, weights):
        """Weights of pixels by example and class, 0 where the label is missing."""
        # of_class: (n_classes,) or None; is_joint: whether the loss of an example is no sum over its pixels
        gaps = [own < 0 for own in columns]
        is_complete = not any(gap.any() for gap in gaps)
        if is_complete and of_class is None:
            return weights
        if all(gap.all() for gap in gaps):
            raise ValueError("y has no label that is not missing.")
        if weights is None:
            weights = [np.ones(len(own)) for own in columns]
        if of_class is not None:
            of_nodes = [of_class[np.maximum(own, 0)] for own in columns]
            of_nodes = [np.full(len(own), own.mean()) for own in of_nodes] if is_joint else of_nodes
            weights = [weight * own for weight, own in zip(weights, of_nodes, strict=True)]
        if not is_complete and not self._is_prediction_loss():
            return self._without_missing(planes, gaps, weights)
        weights = [np.where(gap, 0.0, w) for gap, w in zip(gaps, weights, strict=True)]
        if not any(own.any() for own in weights):
            raise ValueError("sample_weight times class_weight is 0 for all pixels that have a label.")
        return weights

    def _coding(self, n_classes: int | None = None) -> ClassCodes:
        """How values stand for classes: those of the fitted field, or of so many in training."""
        of_fit = len(self.classes_) if n_classes is None else n_classes
        cost = checked_cost(self.cost, of_fit, self.classes, self.loss)
        weight = getattr(self, "decision_weight_", None) if n_classes is None else None
        return ClassCodes(of_fit, self.loss, self.encoding, cost, weight)

    def predict(self, X, evidence=None):
        """The class whose code is nearest to the mean of the field, whose score is highest, or that costs least.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images, as in ``fit``.
        evidence : array-like or list of array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: these are predicted given
            the former. The mean of the field is conditioned on their codes, or on ``evidence_scores_``.

        Returns
        -------
        ndarray of shape (n, H, W), or of shape (n,) of such images
            An array for an array, an object array for a list; for Shards a list.
        """
        if isinstance(X, Shards):
            return of_each_shard(self, "predict", X, evidence)
        planes, values, known = self._values(X, evidence)
        # Training has shifted the mean of an example of one node by the weight of its class.
        codes = self._coding()
        columns = [codes.labels(value, is_weighed=len(value) > 1) for value in values]
        if known is not None:
            columns = [np.where(own < 0, found, own) for own, found in zip(known, columns, strict=True)]
        return put_back(planes, [self.classes_[own][:, None] for own in columns], False)

    def _tiled_values(self, values):
        """Labels of the pixels of a tile, and how far values would have to move for another one."""
        codes = self._coding()
        return self.classes_[codes.labels(values)], codes.distances(values)

    @available_if(_gives_probabilities)
    def predict_proba(self, X, evidence=None):
        """Probability of each class, for the losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        evidence : array-like or list of array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others: they have probability one.

        Returns
        -------
        ndarray of shape (n, H, W, n_classes), or of shape (n,) of such images
        """
        if isinstance(X, Shards):
            return of_each_shard(self, "predict_proba", X, evidence)
        planes, values, known = self._values(X, evidence)
        found = [self._coding().probability(value) for value in values]
        return put_back(planes, _with_known(found, known, np.eye(len(self.classes_))), True)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X, evidence=None):
        """Logarithm of the probability of each class, for the losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
        evidence : array-like or list of array-like, optional
            Labels that are known, in the form of y, with ``missing_label`` for the others.

        Returns
        -------
        ndarray
            In the shape of ``predict_proba``.
        """
        if isinstance(X, Shards):
            return of_each_shard(self, "predict_log_proba", X, evidence)
        planes, values, known = self._values(X, evidence)
        found = [self._coding().log_probability(value) for value in values]
        certain = np.where(np.eye(len(self.classes_)) > 0, 0.0, -np.inf)
        return put_back(planes, _with_known(found, known, certain), True)

    def score(self, X, y=None, sample_weight=None):
        """Share of pixels that are labelled right, of those whose label is not missing.

        Parameters
        ----------
        X, y : array-like or list of array-like
            Images and their labels; or Shards, and no y.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
            A label that is not in ``classes_`` is never predicted, so its pixels are errors.
        """
        if isinstance(X, Shards):
            right, total = map(
                sum, zip(*scored_shards(self, type(self)._scored_nodes, X, y, sample_weight), strict=True)
            )
        else:
            right, total = self._scored_nodes(X, y, sample_weight)
        if not total:
            raise ValueError("y has no labelled pixel of positive weight: there is nothing to score.")
        return right / total

    def _scored_nodes(self, X, y, sample_weight):
        """Weight of the pixels that are labelled right, and of all whose label is known."""
        is_missing = partial(missing_nodes, missing_label=self.missing_label)
        truth, found, weight = known_pixels(y, self.predict(X), sample_weight, is_missing)
        truth = np.array(truth.tolist())  # an array of objects, as a missing label needs, takes the type of its labels
        require_same_kind(truth, found, "y", "the predicted labels")
        weight = np.ones(len(truth)) if weight is None else weight
        return float(weight @ (truth == found)), float(weight.sum())

    def _planes_to_predict(self, X):
        return read_to_predict(self, X)

    def _known_columns(self, planes, evidence):
        """Numbers of the classes that are known, -1 elsewhere."""
        labels = encode_y(
            evidence, planes.encoded, missing_label=self.missing_label, classes=self.classes_, name="evidence"
        ).labels
        return [labels] if planes.encoded.layout == "nodes" else labels

    def _known_values(self, planes, evidence):
        codes = self.evidence_scores_ if self.loss in SCORES else self._coding().table
        codes = np.concatenate([codes, np.full((1, len(self.target_mean_)), np.nan)])
        return [codes[own] for own in self._known_columns(planes, evidence)]

    def _found_on(self, objective, field, data, attributes):
        if self.loss not in SCORES:
            return {}
        n_classes = len(attributes["classes_"])
        found = data().parts(_sums_of_classes, objective, field, n_classes, self.loss == "logistic", self.n_jobs)
        parts = [sums for part in found for sums in part]
        return {"evidence_scores_": _scores_of_classes(np.sum(parts, axis=0))}

    def _values(self, X, evidence=None):
        check_is_fitted(self)
        planes = self._planes_to_predict(X)
        if evidence is None:
            return planes, self._unscaled(self._field_means(planes)[0]), None
        solver = self._solver(1e-5)
        values = [solver.solve(model, model.h).x for model in self._models_of(planes, evidence)]
        return planes, values, self._known_columns(planes, evidence)


def _class_counts(shard: Shard, request: tuple) -> np.ndarray:
    """Weight of the labelled pixels of each class in a shard."""
    # request: the estimator that reads, and the classes of all shards
    estimator, classes = request
    X, y, weight = shard.load()
    with shard.named_in_errors():
        return on_worker(estimator, shard)._class_counts(X, y, weight, classes)


def _with_known(found, known, certain):
    """Values of classes (N, n_classes), with rows of ``certain`` where the class is known."""
    if known is None:
        return found
    return [np.where(own[:, None] < 0, part, certain[own]) for own, part in zip(known, found, strict=True)]


def _sums_of_classes(data, part, objective, field, n_classes, is_binary, n_jobs):
    """Sums of the scores of each class's pixels, and their number: of those that are labelled right, and of all."""
    # returns list of (2, n_classes, D + 1), one for each image

    def of_image(task, n_threads):
        image, target, weight = task
        model = field.potentials.model(field.coef, image, n_threads)
        scores = objective.solved(model, n_threads=n_threads).x.astype(np.float64)
        label, own = (np.where(v[:, 0] > 0, 1, 0) if is_binary else v.argmax(axis=1) for v in (target, scores))
        weight = np.ones(len(target)) if weight is None else weight > 0
        summed = np.concatenate([scores, np.ones((len(scores), 1))], axis=1)
        of_all = [
            (label == np.arange(n_classes)[:, None]).astype(float) @ (w[:, None] * summed)
            for w in (weight * (label == own), weight)
        ]
        return np.array(of_all)

    weights = [None] * data.n_images if data.weights is None else data.weights
    return map_tasks(of_image, zip(field.images(data, n_jobs), data.targets, weights, strict=True), n_jobs)


def _scores_of_classes(sums):
    """Mean scores of the pixels of each class that are labelled right; of all of its pixels where none is."""
    # sums: (2, n_classes, D + 1); returns (n_classes, D)
    number, total = sums[..., -1:], sums[..., :-1]
    right, every = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    found = np.where(number[0] > 0, right, every)
    largest = np.abs(found).max(initial=0.0) or 1.0
    for k in range(len(found)):
        # The class has the highest score, whatever its pixels were taken for.
        if found.shape[1] == 1:
            found[k] = np.abs(found[k]) * (1 if k else -1) or largest * (1 if k else -1)
        elif found[k].argmax() != k or not number[1, k]:
            found[k, k] = found[k].max() + largest
    return found
