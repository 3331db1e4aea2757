"""Regression tree fields for labels, which are encoded as vectors and decoded from predicted values."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_integer
from sklearn_crf._own_methods import require_numbers
from sklearn_crf._parameters import hide_type_in_halving
from sklearn_crf.distributed import Shards, call_on_each_shard, compute_correct_share, score_parts
from sklearn_crf.encoding import encode_y, make_object_array, mask_missing_nodes, require_same_kind
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import TreeBestLabelings
from sklearn_crf.inference._results import LogLikelihood
from sklearn_crf.models import GaussianModel, PairwiseModel
from sklearn_crf.rtf._base import FieldEstimator
from sklearn_crf.rtf._codes import SCORES, ClassCodes
from sklearn_crf.rtf._objectives import make_solver
from sklearn_crf.rtf._plan import LIKELIHOODS, LabelTargets
from sklearn_crf.rtf._prediction import (
    FittedField,
    TiledTask,
    build_plane_models,
    draw_field_samples,
    gather_scored_pixels,
    unscaled,
)
from sklearn_crf.rtf.images._input import put_back, put_samples_back
from sklearn_crf.rtf.losses import LOSSES_OF_CODES


def _gives_probabilities(estimator):
    if estimator.loss not in SCORES:
        raise AttributeError(f"predict_proba needs loss='logistic' or 'multinomial', got {estimator.loss!r}.")
    return True


def _has_distribution(estimator):
    if estimator.loss not in (*SCORES, *LIKELIHOODS):
        raise AttributeError(
            f"sample needs a distribution: use loss='multinomial', 'logistic' or a likelihood, got {estimator.loss!r}."
        )
    return True


@dataclass(eq=False, repr=False)
class RegressionTreeFieldClassifier(ClassifierMixin, FieldEstimator):
    r"""Label pixels by a Gaussian field over codes of the labels, with factors selected by regression trees.

    X of shape ``(T, F)`` with y of shape ``(T,)`` are plain rows. Pass one sequence as ``X[np.newaxis]``,
    ``y[np.newaxis]``.

    .. math::
        \hat{y}_s = \arg\min_k \|u_s - e_k\|, \qquad u = \mathrm{E}[y \mid x]

    where :math:`e_k` is the code of class k and u is the mean of the field, see :class:`RegressionTreeField`. The
    prediction needs only one solve, for any dependencies between labels.

    Losses of scores (``"logistic"`` and ``"multinomial"``) interpret the K values of a pixel as unnormalised
    log-probabilities of its label, and define a distribution over labelings,

    .. math::
        P(y \mid x) = \prod_s \frac{\exp u_{s y_s}}{\sum_k \exp u_{s k}}

    in which the labels of pixels are independent given x. Dependencies between labels enter through u.

    Parameters
    ----------
    loss : {"pseudolikelihood", "likelihood", "mse", "logistic", "multinomial"}, default="multinomial"
        ``"multinomial"`` uses the K values of a pixel as scores of the classes, and ``"logistic"`` a single value as
        the score of the second of two classes; both provide probabilities. The other losses compare codes.
    window : int, array-like of shape (n_offsets, lattice_ndim) or Window, default=3
        Pairs of pixels with a factor, as in :class:`RegressionTreeField`.
    max_depth : int or "auto", default="auto"
        Maximum depth of the trees, as in :class:`RegressionTreeField`.
    filter_bank : str, image transformer or None, default=None
        Computes channels from X, as in :class:`RegressionTreeField`.
    split : {"gradient", "residual"} or Splits, default="gradient"
        Criterion of splits, as in :class:`RegressionTreeField`.
    solver : {"pqn", "spg"} or FieldSolver, default="pqn"
        Optimizer, as in :class:`RegressionTreeField`.
    max_iter : int or "auto", default="auto"
        Maximum number of iterations in each round, as in :class:`RegressionTreeField`.
    tol : float, default=1e-4
        A round ends when no entry of the projected gradient is larger than this.
    inference : str, ConjugateGradient, GaussianDirect or GaussianBP, default="auto"
        Solver for the mean of the field, ``"auto"``, ``"conjugate_gradient"``, ``"direct"`` or ``"bp"``, as in
        :class:`RegressionTreeField`.
    warm_start : bool, default=False
        Whether ``fit`` continues from the field of the last call.
    random_state : int, RandomState instance or None, default=None
        Determines the random tests and samples. With a fixed seed, they still depend on the order of the examples.
    n_jobs : int or None, default=None
        Number of threads over images, types and rows; results do not depend on it.
    verbose : int, default=0
        1 prints a line for each round.
    encoding : {"orthonormal", "ordinal"}, default="orthonormal"
        Code of a class: a unit vector, so that all classes are equally far apart, or a single value, the class index.
        Losses of scores ignore it.
    class_weight : dict, "balanced" or None, default=None
        Weight of the pixels of each class. ``"balanced"`` weights are inversely proportional to the pixel counts.
        With the exact likelihood and pairs, the loss is not a sum over pixels. Each image is then weighted by the mean
        weight of its pixels, and ``predict`` multiplies the components of the mean by the weights.
    cost : array-like of shape (n_classes, n_classes), default=None
        ``cost[a, b]`` is the cost of predicting class a if b is true, in the order of ``classes`` or, by default,
        ``classes_``. It is non-negative, and zero if a equals b. The label with the smallest expected cost is
        predicted. Costs need probabilities, which only losses of scores provide. With None, every error costs 1.
    classes : array-like, default=None
        All classes, if some may be missing from the training labels.
    missing_label : object, default=None
        Value that marks unknown labels in y and ``evidence``, such as -1 or NaN. Unknown labels have no weight in
        training. The pseudolikelihood also excludes their neighbours.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    trees_ : list of dict
        Arrays of each type's tree, as in :class:`RegressionTreeField`.
    precisions_ : list of ndarray of shape (L, m, m)
        Precision J of each leaf for each type.
    weights_ : list of ndarray of shape (L, m, 1 + n_channels)
        Linear model H of each leaf for each type, for channels ``(X - channel_centre_) * channel_scale_``.
    channel_centre_, channel_scale_, channel_range_, input_dtype_
        As in :class:`RegressionTreeField`.
    offsets_ : ndarray of shape (n_offsets, 2), or (n_offsets, 3) of volumes
        Slices, rows and columns from the first pixel of a pair to its second.
    pairwise_channels_ : ndarray
        Channels used by the linear models of pairs.
    slopes_ : list of ndarray of shape (L, I, m, m)
        Increase of each leaf's precision per unit of the channels in ``precision_channels_``, for each type.
    precision_channels_ : ndarray of shape (I,)
        Channels that increase the precisions.
    decision_weight_ : ndarray of shape (n_classes,) or None
        Class weights by which ``predict`` multiplies the components of the mean. Only after training by the exact
        likelihood with ``class_weight``, else None.
    evidence_scores_ : ndarray of shape (n_classes, D)
        Values of the field that represent a known label, after training with a loss of scores. These values are means
        over correctly labelled training pixels.
    target_mean_ : ndarray of shape (D,)
        Mean of the codes. The values of the field are scaled to mean 0 and variance 1.
    target_scale_ : float
        Standard deviation of the codes.
    loss_curve_ : ndarray
        Loss at the start and after every iteration of all rounds.
    round_ends_ : ndarray
        Total number of iterations at the end of each round.
    validation_curve_ : ndarray
        Loss on held-out data at the end of each round; empty without early stopping.
    n_iter_ : int
        Total number of iterations over all rounds.
    filter_bank_ : image transformer or None
        Fitted filter bank, which computes the channels.
    n_node_types_ : int
        Number of node types in the examples, 1 for arrays.
    missing_channels_ : ndarray of int
        Channels of X that had missing pixels in ``fit``. Only these channels may have missing pixels in ``predict``.
    n_features_in_ : int
        Number of channels of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame.
    lattice_ndim_ : int
        Number of axes of the lattices in ``fit``, from 0 to 3.

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
    >>> print(f"{field.score(X[8:], y[8:]):.2f}")
    0.88
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldEstimator._parameter_constraints,
        "loss": [StrOptions({*LIKELIHOODS, *LOSSES_OF_CODES})],
        "encoding": [StrOptions({"orthonormal", "ordinal"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "cost": ["array-like", None],
        "classes": ["array-like", None],
        "missing_label": "no_validation",
    }

    loss: str = "multinomial"
    _: KW_ONLY
    encoding: str = "orthonormal"
    filter_bank: Any = None
    class_weight: dict | str | None = None
    cost: Any = None
    classes: Any = None
    missing_label: Any = None

    def __sklearn_tags__(self):
        return hide_type_in_halving(super().__sklearn_tags__())

    @fits
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "RegressionTreeFieldClassifier":
        """Grow the trees and fit their leaves.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images with F channels, in any unit. Volumes (n, D, H, W, F), chains (n, T, F) and samples (n, F) are
            possible too. For data larger than memory, or on a cluster, pass :class:`~sklearn_crf.Shards`, which include
            y. A list of :class:`~sklearn_crf.Example` on lattices (:func:`~sklearn_crf.graphs.lattice`) may have a
            ``node_type``. Each node type, and each pair of node types, then has its own tree of depth ``max_depth``.
            Pairs are defined by ``window``; other properties of examples raise an error.
        y : array-like of shape (n, H, W), or list of array-like of shape (H, W)
            Labels; the labels of an Example have shape (n_nodes,).
        sample_weight : array-like of shape (n,), optional
            Weight of each image's loss. The weights have no influence on the choice of held-out images, on the depth of
            trees, or on which images the default filter bank and each round use. (Early stopping in scikit-learn's
            HistGradientBoosting also ignores weights.)

        Returns
        -------
        RegressionTreeFieldClassifier

        Raises
        ------
        InvalidParameterError
            If a parameter is invalid.
        ValueError
            If X and y do not match. If an Example is not on a lattice, or has more than features and node types.
        """
        if self.classes is not None and np.ndim(self.classes) != 1:
            raise InvalidParameterError(
                f"The 'classes' parameter must be None or a list of classes. Got {self.classes!r} instead."
            )
        return self._fit(self._options(build_label_targets(self, self._former)), X, y, sample_weight)

    def predict(self, X: Any, evidence: Any = None) -> Any:
        """Predict the class with the nearest code, the highest score, or the smallest expected cost.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images, as in ``fit``.
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. The mean of the field is
            conditioned on the codes of known labels, or on ``evidence_scores_``.

        Returns
        -------
        ndarray of shape (n, H, W), or of shape (n,) of such images
            An array if X is an array, an object array if X is a list, and a list for Shards.
        """
        if isinstance(X, Shards):
            return call_on_each_shard(self, "predict", X, evidence)
        planes, values, known = self._values(X, evidence)
        # For an example of one node, training has already included the class weight in the mean.
        codes = get_class_codes(self)
        columns = [codes.labels(value, is_weighed=len(value) > 1) for value in values]
        if known is not None:
            columns = [np.where(own < 0, found, own) for own, found in zip(known, columns, strict=True)]
        return put_back(planes, [self.classes_[own][:, None] for own in columns], False)

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any, evidence: Any = None) -> Any:
        """Return the probability of each class, for losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. Known labels have probability 1.

        Returns
        -------
        ndarray of shape (n, H, W, n_classes), or of shape (n,) of such images
        """
        if isinstance(X, Shards):
            return call_on_each_shard(self, "predict_proba", X, evidence)
        planes, values, known = self._values(X, evidence)
        found = [get_class_codes(self).probability(value) for value in values]
        return put_back(planes, _insert_known_rows(found, known, np.eye(len(self.classes_))), True)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any, evidence: Any = None) -> Any:
        """Return the logarithm of the probability of each class, for losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.

        Returns
        -------
        ndarray
            Array with the shape of ``predict_proba``.
        """
        if isinstance(X, Shards):
            return call_on_each_shard(self, "predict_log_proba", X, evidence)
        planes, found = self._compute_log_probabilities(X, evidence)
        return put_back(planes, found, True)

    @available_if(_gives_probabilities)
    def predict_edge_proba(self, X: Any, evidence: Any = None) -> np.ndarray:
        """Return the joint label probabilities of every pair of pixels in the window.

        Only fields that are trained with losses of scores have this method.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.

        Returns
        -------
        ndarray of shape (n_images,), of object
            An array ``(n_edges, n_classes, n_classes)`` for each image, with edges in the order of the graphs returned
            by ``models``. Entry (a, b) is the probability of class a at the first pixel times the probability of class
            b at the second pixel.
        """
        planes, found = self._compute_log_probabilities(X, evidence)
        pairs = []
        for plane, values in zip(planes.features, found, strict=True):
            tails, heads = planes.graph_of(plane.shape[:-1]).edges.T
            probability = np.exp(values)
            pairs.append(probability[tails, :, None] * probability[heads, None, :])
        if planes.encoded.layout == "nodes":
            pairs = [np.zeros((0, len(self.classes_), len(self.classes_)))] * len(found[0])
        return make_object_array(pairs)

    @available_if(_gives_probabilities)
    def log_likelihood(self, X: Any, y: Any = None) -> LogLikelihood:
        """Return the log-probability of labelings, marginalised over missing labels, for losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        y : array-like or list of array-like
            Labels; pixels with ``missing_label`` are marginalised out.

        Returns
        -------
        LogLikelihood
            Exact values; -inf for images with a label that is not in ``classes_``.
        """
        planes, found = self._compute_log_probabilities(X, None)
        terms = []
        for own, values in zip(self._read_known_columns(planes, y, "y"), found, strict=True):
            # A missing label contributes probability 1, and a label of an unknown class probability 0.
            table = np.column_stack([values, np.full(len(values), -np.inf), np.zeros(len(values))])
            terms.append(table[np.arange(len(own)), own])
        is_table = planes.encoded.layout == "nodes"
        return LogLikelihood(terms[0] if is_table else np.array([own.sum() for own in terms]), "exact")

    @available_if(_gives_probabilities)
    def predict_topk(self, X: Any, k: int = 5, evidence: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable labelings of every image, exactly, for losses of scores.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        k : int, default=5
            Number of labelings; fewer are returned if an image has fewer.
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. All labelings agree with known
            labels.

        Returns
        -------
        labels : ndarray of shape (n_images,), of object
            An array ``(k, *lattice)`` of labels for each image, most probable first.
        scores : ndarray of shape (n_images,), of object
            An array ``(k,)`` of log-probabilities for each image.
        """
        inference = TreeBestLabelings(as_integer(k, "k", lowest=1))
        planes, found = self._compute_log_probabilities(X, evidence)
        is_table = planes.encoded.layout == "nodes"
        parts = np.split(found[0], len(found[0])) if is_table else found
        n_classes, labels, scores = len(self.classes_), [], []
        for i, values in enumerate(parts):
            no_edges = Graph(len(values), np.zeros((0, 2), dtype=np.int32))
            best = inference.best(PairwiseModel(no_edges, values, np.zeros((1, n_classes, n_classes))))
            shape = () if is_table else planes.encoded.label_shape(i)
            labels.append(self.classes_[best.labels].reshape(len(best.labels), *shape))
            scores.append(best.scores)
        return make_object_array(labels), make_object_array(scores)

    @available_if(_has_distribution)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None, evidence: Any = None) -> np.ndarray:
        """Draw labelings from the distribution given X.

        After training by a likelihood, values are drawn from the field and decoded to labels. For losses of scores,
        labels are drawn independently for each pixel.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
        evidence : array-like or list of array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.

        Returns
        -------
        ndarray
            As returned by ``predict``, with a leading axis of ``n_samples``; for a list, an object array of arrays with
            this axis.
        """
        n_samples, rng = as_integer(n_samples, "n_samples", lowest=1), check_random_state(random_state)
        if self.loss in SCORES:
            planes, found = self._compute_log_probabilities(X, evidence)
            ends = [np.cumsum(np.exp(values), axis=1)[:, :-1] for values in found]
            drawn = [(rng.random_sample((n_samples, len(own), 1)) > own).sum(axis=2) for own in ends]
        else:
            check_is_fitted(self)
            planes = self._reading.read_planes_to_predict(X)
            seeds = rng.randint(np.iinfo(np.int32).max, size=len(planes.features))
            values = draw_field_samples(self._build_plane_models(planes, evidence), n_samples, seeds)
            drawn = [np.array([get_class_codes(self).labels(own, is_weighed=False) for own in part]) for part in values]
            if evidence is not None:
                known = self._read_known_columns(planes, evidence)
                drawn = [np.where(own < 0, part, own) for own, part in zip(known, drawn, strict=True)]
        return put_samples_back(planes, [self.classes_[part][..., None] for part in drawn], False)

    def _compute_log_probabilities(self, X, evidence):
        """Return the planes of X, and the logarithms of class probabilities at each pixel, (N, n_classes)."""
        planes, values, known = self._values(X, evidence)
        found = [get_class_codes(self).log_probability(value) for value in values]
        return planes, _insert_known_rows(found, known, np.where(np.eye(len(self.classes_)) > 0, 0.0, -np.inf))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the fraction of correctly labelled pixels among the pixels with a known label.

        Parameters
        ----------
        X, y : array-like or list of array-like
            Images and their labels; or Shards, without y.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
            Accuracy. A label that is not in ``classes_`` is never predicted, so its pixels count as errors.
        """
        parts = score_parts(self, type(self)._compute_scored_nodes, X, y, sample_weight)
        return compute_correct_share(parts, "y has no labelled pixel")

    def _compute_scored_nodes(self, X, y, sample_weight):
        """Return the total weight of correctly labelled pixels, and the total weight of pixels with a known label."""
        is_missing = partial(mask_missing_nodes, missing_label=self.missing_label)
        truth, found, weight = gather_scored_pixels(y, self.predict(X), sample_weight, is_missing)
        truth = np.array(truth.tolist())  # converts object arrays to the type of the labels
        require_same_kind(truth, found, "y", "the predicted labels")
        weight = np.ones(len(truth)) if weight is None else weight
        return float(weight @ (truth == found)), float(weight.sum())

    def models(self, X: Any, evidence: Any = None) -> list[GaussianModel]:
        r"""Return the Gaussian field of every example under the fitted weights, in the units of the target.

        .. math::
            p(y \mid x) \propto \exp(-\tfrac12 y^\top J(x) \, y + h(x)^\top y)

        Any inference for :class:`~sklearn_crf.models.GaussianModel` can be run on these models; ``predict`` uses their
        means.

        Parameters
        ----------
        X : array-like or list of array-like
            Examples, as in ``predict``.
        evidence : array-like or list of array-like, optional
            Known labels, in the layout of y, with the missing label elsewhere. A known node loses its edges and has the
            code of its label as mean; its neighbours are conditioned on the label.

        Returns
        -------
        list of GaussianModel
            Models in float64. Plain samples form a single model.
        """
        check_is_fitted(self)
        return self._build_plane_models(self._reading.read_planes_to_predict(X), evidence)

    def _read_known_columns(self, planes, y, name="evidence"):
        """Return class indices of given labels: -1 for a missing label, ``n_classes`` for an unknown class."""
        options = {"missing_label": self.missing_label, "classes": self.classes_, "name": name}
        labels = encode_y(y, planes.encoded, allow_unknown=name == "y", **options).labels
        return [labels] if planes.encoded.layout == "nodes" else labels

    def _build_plane_models(self, planes, evidence):
        if evidence is None:
            return build_plane_models(vars(self), planes)
        codes = self.evidence_scores_ if self.loss in SCORES else get_class_codes(self).table
        codes = np.concatenate([codes, np.full((1, len(self.target_mean_)), np.nan)])
        return build_plane_models(
            vars(self), planes, [codes[own] for own in self._read_known_columns(planes, evidence)]
        )

    def _values(self, X, evidence=None):
        check_is_fitted(self)
        planes = self._reading.read_planes_to_predict(X)
        if evidence is None:
            means = FittedField(vars(self)).means(planes, make_solver(self.inference), self.n_jobs)[0]
            return planes, unscaled(vars(self), means), None
        values = [
            make_solver(self.inference).solve(model, model.h).x for model in self._build_plane_models(planes, evidence)
        ]
        return planes, values, self._read_known_columns(planes, evidence)

    def _check_trees(self) -> None:
        """Raise ValueError if fitted attributes are invalid or do not fit the number of classes."""
        super()._check_trees()
        if getattr(self, "decision_weight_", None) is not None:
            require_numbers("decision_weight_", self.decision_weight_, (len(self.classes_),))
        require_numbers("target_mean_", self.target_mean_, get_class_codes(self).table.shape[1:])


def build_label_targets(classifier: RegressionTreeFieldClassifier, former: Mapping | None = None) -> LabelTargets:
    """Return the targets of a field that predicts labels.

    ``former`` holds the fitted attributes from which a warm start continues.
    """
    of_labels = ("encoding", "cost", "classes", "class_weight", "missing_label")
    given = {name: getattr(classifier, name) for name in of_labels}
    return LabelTargets(type(classifier).__name__, classifier.loss, classifier.inference, former, **given)


def get_class_codes(classifier: RegressionTreeFieldClassifier) -> ClassCodes:
    """Return the codes of the classes of a fitted field."""
    weight = getattr(classifier, "decision_weight_", None)
    return build_label_targets(classifier).coding(len(classifier.classes_), weight)


def build_label_task(classifier: RegressionTreeFieldClassifier) -> TiledTask:
    """Return the task that predicts the labels of an image tile by tile."""
    codes, classes = get_class_codes(classifier), classifier.classes_

    def finished(values):
        return classes[codes.labels(values)], codes.distances(values)

    return TiledTask.of(classifier, finished, classes.dtype)


def _insert_known_rows(found, known, certain):
    """Return arrays (N, n_classes) in which ``certain`` replaces the rows of pixels with a known class."""
    if known is None:
        return found
    return [np.where(own[:, None] < 0, part, certain[own]) for own, part in zip(known, found, strict=True)]
