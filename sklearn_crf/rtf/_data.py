"""Data of a fit: images with values or with codes of labels, and the loss that a field is trained for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf.encoding import (
    EncodedLabels,
    class_weights,
    encode_y,
    found_labels,
    sorted_classes,
    validate_sample_weight,
)
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect
from sklearn_crf.rtf._codes import SCORES, ClassCodes, checked_cost
from sklearn_crf.rtf._deviations import scores_of_classes
from sklearn_crf.rtf._objectives import GaussianLikelihood, GaussianPseudolikelihood, PredictionLoss
from sklearn_crf.rtf._rounds import ImagesHere, Pairs
from sklearn_crf.rtf._trees import factor_templates
from sklearn_crf.rtf.images._channels import ChannelUnits, are_kept
from sklearn_crf.rtf.images._corruption import corrupting
from sklearn_crf.rtf.images._degradation import (
    Degradations,
    KnownValues,
    Observation,
    check_degraded_fit,
    degrading,
    read_clean,
)
from sklearn_crf.rtf.images._input import (
    Planes,
    Reading,
    TargetMoments,
    read_targets,
    require_one_reading,
    require_size,
)
from sklearn_crf.rtf.losses import (
    LOSSES,
    degree_of_loss,
    logistic,
    loss_function,
    mse,
    multinomial,
    multinomial_of_codes,
    of_mean_square,
    unit_for_loss,
    unit_of_loss,
)


def weighted_mse(prediction, target, weight):
    """The mean squared error with a weight for each pixel."""
    root = np.sqrt(weight)
    value, slope = mse(root * prediction, root * target)
    return value, root * slope


def multinomial_of_unit_vectors(prediction, target, weight=1.0):
    """The multinomial loss of targets that are unit vectors."""
    return multinomial(prediction, target.argmax(axis=-1), np.squeeze(weight, axis=-1) if np.ndim(weight) else weight)


# Losses of the model, not of its prediction. They are sums over pixels, so each row of a table may have a weight.
LIKELIHOODS = {"pseudolikelihood": GaussianPseudolikelihood, "likelihood": GaussianLikelihood}

# Losses of values: all but those of labels.
LOSSES_OF_VALUES = tuple(name for name in LOSSES if name not in ("logistic", "multinomial"))

# Losses of predictions for codes, and losses that are sums over pixels, as functions that take a weight for each pixel.
LOSSES_OF_CODES = {"mse": mse, "logistic": logistic, "multinomial": multinomial_of_unit_vectors}
WEIGHTED = {"mse": weighted_mse}
WEIGHTED_OF_CODES = WEIGHTED | {"logistic": logistic, "multinomial": multinomial_of_unit_vectors}

# Losses that compare windows of an image.
OF_IMAGES = "ssim", "iw_ssim"

# Solvers by name, as functions of the residual to stop at.
SOLVERS: dict[str, Callable] = {
    "auto": ConjugateGradient,
    "conjugate_gradient": ConjugateGradient,
    "direct": lambda tol: GaussianDirect(covariance=False),
    "bp": lambda tol: GaussianBP(),
}


def solver_of(inference, tol):
    """What finds means of fields: by the name of the parameter ``inference``, with a residual to stop at, or itself."""
    return SOLVERS[inference](tol=tol) if isinstance(inference, str) else inference


def is_likelihood(loss) -> bool:
    """Whether a loss is of the model, not of its prediction."""
    return isinstance(loss, str) and loss in LIKELIHOODS


class ReadImages(NamedTuple):
    """Images and targets of a fit, or of a part of them, as planes."""

    planes: Planes
    targets: list  # (N, D) each, in the units of the user
    weights: list | None  # (N,) each
    layout: dict  # attributes that describe y
    corrupted: Callable | None = None
    missing: tuple = ()  # channels of X that may be NaN
    degradations: Degradations | None = None
    keeps_known: bool = False  # whether what is known of the first channels of X is the target itself

    def images(self, targets, weights, mean, scale, known=None):
        """The images with targets of mean 0 and variance 1."""
        # known: KnownValues, if known pixels are kept
        observe, choices = None if known is None else known.observation, None
        if self.degradations is not None:
            observe = partial(Observation.of, mean=mean, scale=scale, units=self.planes.units)
            choices = self.degradations.choices
        pairs = Pairs(self.planes.features, targets, weights, choices)
        return ImagesHere(pairs, self.planes.graph_of, self.corrupted, observe)


class Common(NamedTuple):
    """What the targets of all images share."""

    mean: np.ndarray  # (D,)
    scale: float  # targets times scale plus mean are those of the user
    attributes: dict  # fitted attributes that describe y


class TreeData(NamedTuple):
    """The data of a fit: images here or in shards, and what they have in common."""

    images: Any  # ImagesHere or ShardedImages, with targets of mean 0 and variance 1
    encoded: Any  # Encoded or Outline of X
    offsets: np.ndarray
    units: ChannelUnits  # of the channels of X
    missing: tuple  # channels of X that may be NaN
    common: Common

    @classmethod
    def of(cls, targets: "ValueTargets | LabelTargets", read: ReadImages) -> "TreeData":
        """The data of images in memory."""
        planes, common = read.planes, targets.common([targets.found(read)])
        return cls(targets.images(read, common), planes.encoded, planes.offsets, planes.units, read.missing, common)


@dataclass(frozen=True)
class _Targets:
    """Base of the kinds of targets."""

    # former: fitted attributes of the last call of fit, which training goes on from

    name: str  # of the estimator, in messages
    loss: str | Callable
    inference: Any
    former: Any = None  # Mapping

    takes_examples: ClassVar[bool] = False
    losses_with_weights: ClassVar[dict] = WEIGHTED

    @property
    def are_predicted(self) -> bool:
        """Whether the loss is of predictions, not of the model."""
        return not is_likelihood(self.loss)

    def check(self) -> None:
        """Raise InvalidParameterError for parameters that are not valid."""

    def weights(self, planes, sample_weight):
        """Weights of pixels by example."""
        weight = validate_sample_weight(sample_weight, planes.encoded.n_examples)
        if weight is None:
            return None
        if planes.encoded.layout != "nodes":
            return [np.full(plane[..., 0].size, w) for plane, w in zip(planes.features, weight, strict=True)]
        takes_weights = isinstance(self.loss, str) and self.loss in self.losses_with_weights
        if self.are_predicted and np.ptp(weight) and not takes_weights:
            raise ValueError(
                f"sample_weight of plain samples needs a loss that is a sum over samples, such as 'mse' or "
                f"'pseudolikelihood', got {self.loss!r}."
            )
        return [weight]

    def without_missing(self, planes, gaps, weights):
        """Weights that are 0 where the term of a pixel in the pseudolikelihood needs a missing target."""
        if self.loss == "likelihood":
            raise ValueError(
                "loss='likelihood' needs all of y: use 'pseudolikelihood' or 'mse' where values or labels are missing."
            )
        found = []
        for i, (gap, plane) in enumerate(zip(gaps, planes.features, strict=True)):
            gap = gap.reshape(plane.shape[:-1])
            touched = gap.copy()
            for kind in factor_templates(planes.offsets)[1:]:
                first, second = kind.ends(gap.shape)
                touched[first] |= gap[second]
                touched[second] |= gap[first]
            found.append(np.where(touched.ravel(), 0.0, 1.0 if weights is None else weights[i]))
        if not any(own.any() for own in found):
            raise ValueError(
                "loss='pseudolikelihood' needs pixels of y whose neighbours are known too, and there are none: use "
                "loss='mse'."
            )
        return found

    def prediction_loss(self, loss, tol, mean, scale, data_range=1.0, of_mean=None, reported=1.0):
        """The objective of a loss of predictions."""
        weighted = self.losses_with_weights.get(self.loss) if isinstance(self.loss, str) else None
        of_errors = of_mean_square(self.loss, data_range), unit_of_loss(self.loss, scale, data_range)
        solver = solver_of(self.inference, tol)
        return PredictionLoss(loss, solver, mean, scale, weighted, *of_errors, of_mean, reported)

    def images(self, read: ReadImages, common: Common) -> ImagesHere:
        """The images with targets of mean 0 and variance 1."""
        scaled = [((target - common.mean) / common.scale).astype(np.float32) for target in read.targets]
        return read.images(scaled, read.weights, common.mean, common.scale)

    def learned(self, objective, field, data, attributes, n_jobs) -> dict:
        """Attributes that are learned from the predictions of a trained field for training images."""
        # data: function without arguments; attributes: those that are known
        return {}


@dataclass(frozen=True)
class ValueTargets(_Targets):
    """Values, of images that may be made worse."""

    corruption: Any = None
    degradation: Any = None
    gaps: tuple | None = None  # channels that a corruption leaves gaps in, where they are known

    are_scores: ClassVar[bool] = False

    @property
    def is_degraded(self) -> bool:
        """Whether fields have the terms of observations."""
        return self.degradation is not None

    @property
    def are_drawn(self) -> bool:
        """Whether X is made worse anew in every round."""
        return self.corruption is not None or self.is_degraded

    def check(self) -> None:
        if hasattr(self.corruption, "check"):
            self.corruption.check()
        if self.degradation is not None:
            check_degraded_fit(self.degradation, self.corruption, None if self.are_predicted else self.loss)

    def read_given(self, reading: Reading, X, y, sample_weight) -> ReadImages:
        """Read images as they are given, and their values."""
        X, y, is_grey, degradations = read_clean(X, y, self.corruption, self.degradation)
        return self.read(reading, X, y, sample_weight, is_grey, degradations)

    def survey(self, reading: Reading, X, y, sample_weight):
        """Planes of the images of a shard, the channels that a corruption leaves gaps in, and labels."""
        if y is not None and isinstance(self.degradation, list | tuple):
            raise ValueError("degradation holds one for each image, which Shards do not allow: pass one for all.")
        read = self.read_given(reading, X, y, sample_weight)
        return read.planes, read.missing if self.corruption is not None else (), []

    def of_shards(self, gaps: tuple, labels: list, counted: Callable) -> "ValueTargets":
        """The targets with what is known of all shards."""
        return replace(self, gaps=gaps)

    def read(self, reading: Reading, X, y, sample_weight, is_grey=False, degradations=None) -> ReadImages:
        """Read images on the lattice of y, and their values."""
        if reading.window.lattice_ndim is None:
            require_one_reading(X, y)
        is_clean = self.corruption is not None or (degradations is not None and degradations.of_clean)
        planes = reading.planes(X, is_clean=is_clean)
        ndim, found = planes.encoded.lattice_ndim, planes.missing
        corrupted = tried = None
        describe = partial(reading.described_channels, ndim=ndim)
        if self.corruption is not None:
            corrupted, found, tried, planes = corrupting(self.corruption, planes, is_grey, describe, self.gaps)
        targets, has_channels = read_targets(planes, y, missing=ndim > 0)
        if degradations is not None:
            corrupted, planes = degrading(planes, degradations, targets[0].shape[1], describe)
        dtype = np.asarray(y[0] if planes.encoded.layout == "list" else y).dtype.str
        layout = {"target_dtype_": dtype, "_has_channels": has_channels, "_is_grey": is_grey} | planes.channels
        weights = self.weights(planes, sample_weight)
        kept = are_kept(tried or planes.features, targets, found, planes.units)
        return ReadImages(planes, targets, weights, layout, corrupted, found, degradations, kept)

    def found(self, read: ReadImages):
        """Description of the images of one part, which :meth:`common` joins with those of the others."""
        values = np.concatenate(read.targets)
        moments, extremes = TargetMoments.of(read.targets, read.weights), (np.nanmin(values), np.nanmax(values))
        return moments, extremes, read.layout, read.planes.offsets, read.keeps_known

    def common(self, found: Sequence) -> Common:
        """Mean and scale of the targets of all parts, and the fitted attributes that describe them."""
        moments, extremes, layouts, offsets, kept = zip(*found, strict=True)
        if self.former is not None:
            mean, scale = self._known_scale(len(moments[0].mean), layouts[0]["_has_channels"], offsets[0])
        else:
            mean, scale = reduce(TargetMoments.joined, moments).centre_and_scale()
        ends = np.array((np.min(extremes), np.max(extremes)))
        require_size(ends)
        return Common(mean, scale, {"target_range_": ends, "keeps_known_": all(kept), **layouts[0]})

    def _known_scale(self, n_values, has_channels, offsets):
        """Mean and scale of the targets of the last fit, for a warm start."""
        former = self.former
        same = n_values == len(former["target_mean_"]) and has_channels == former["_has_channels"]
        if not same or not np.array_equal(offsets, former["offsets_"]):
            raise ValueError("warm_start needs targets of as many channels and the window of the last call of fit.")
        return former["target_mean_"], former["target_scale_"]

    def images(self, read: ReadImages, common: Common) -> ImagesHere:
        mean, scale, attributes = common
        scaled, weights = [((t - mean) / scale).astype(np.float32) for t in read.targets], read.weights
        if not self.are_predicted and any(np.isnan(t).any() for t in scaled):
            gaps = [np.isnan(t).any(axis=1) for t in scaled]
            weights = self.without_missing(read.planes, gaps, weights)
            scaled = [np.nan_to_num(t) for t in scaled]
        known = KnownValues(read.missing, mean, scale, read.planes.units) if attributes["keeps_known_"] else None
        return read.images(scaled, weights, mean, scale, known)

    def objective(self, common: Common):
        """What is minimised."""
        if not self.are_predicted:
            return LIKELIHOODS[str(self.loss)]()
        low, high = common.attributes["target_range_"].tolist()
        unit = unit_for_loss(self.loss, common.scale)
        data_range = unit * ((high - low) or 1.0)
        # What is observed of degraded images takes most of the norm that residuals are compared with.
        tol = 1e-5 if self.is_degraded else 1e-4
        reported = unit ** -degree_of_loss(self.loss)
        loss, mean, scale = loss_function(self.loss, data_range), unit * common.mean, unit * common.scale
        return self.prediction_loss(loss, tol, mean, scale, data_range=data_range, reported=reported)


@dataclass(frozen=True)
class LabelTargets(_Targets):
    """Codes of labels."""

    encoding: str = "orthonormal"
    cost: Any = None
    classes: Any = None
    class_weight: Any = None
    missing_label: Any = None

    takes_examples: ClassVar[bool] = True
    is_degraded: ClassVar[bool] = False
    are_drawn: ClassVar[bool] = False
    losses_with_weights: ClassVar[dict] = WEIGHTED_OF_CODES

    @property
    def are_scores(self) -> bool:
        """Whether the field predicts scores of classes, so that nothing but a penalty keeps them finite."""
        return self.loss in SCORES

    def coding(self, n_classes: int, weight=None) -> ClassCodes:
        """How values stand for classes."""
        cost = checked_cost(self.cost, n_classes, self.classes, str(self.loss))
        return ClassCodes(n_classes, str(self.loss), self.encoding, cost, weight)

    def labels(self, planes: Planes, y) -> EncodedLabels:
        """Numbers of the classes of pixels."""
        return encode_y(y, planes.encoded, missing_label=self.missing_label, classes=self.classes)

    def read_given(self, reading: Reading, X, y, sample_weight) -> ReadImages:
        """Read images, and the codes of their labels."""
        planes = reading.planes(X)
        labels = self.labels(planes, y)
        n_classes = len(labels.classes_)
        if self.loss == "logistic" and n_classes > 2:
            raise ValueError(f"loss='logistic' takes two classes, got {n_classes}: use 'multinomial'.")
        if self.former is not None and not np.array_equal(labels.classes_, self.former["classes_"]):
            raise ValueError(f"warm_start needs the classes of the last call of fit, got {labels.classes_.tolist()}.")
        columns, codes = _by_example(labels), self.coding(n_classes).table
        # A missing label has the code of the first class, and no weight.
        targets = [codes[np.maximum(own, 0)] for own in columns]
        weights = self.weights(planes, sample_weight)
        of_class = None if self.class_weight is None else class_weights(self.class_weight, labels, weights)
        is_joint = self.loss == "likelihood" and len(planes.offsets) > 0
        weights = self._pixel_weights(planes, columns, of_class, is_joint, weights)
        decision = {"decision_weight_": of_class if is_joint else None}
        layout = {"classes_": labels.classes_, "n_node_types_": planes.n_node_types} | decision | planes.channels
        return ReadImages(planes, targets, weights, layout, missing=planes.missing)

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
        if not is_complete and not self.are_predicted:
            return self.without_missing(planes, gaps, weights)
        weights = [np.where(gap, 0.0, w) for gap, w in zip(gaps, weights, strict=True)]
        if not any(own.any() for own in weights):
            raise ValueError("sample_weight times class_weight is 0 for all pixels that have a label.")
        return weights

    def counts(self, reading: Reading, X, y, sample_weight):
        """Weight of the labelled pixels of each of the classes, (n_classes,)."""
        planes = reading.planes(X)
        labels, weights = self.labels(planes, y), self.weights(planes, sample_weight)
        found = np.zeros(len(labels.classes_))
        for i, own in enumerate(_by_example(labels)):
            known = own >= 0
            found += np.bincount(own[known], None if weights is None else weights[i][known], len(found))
        return found

    def survey(self, reading: Reading, X, y, sample_weight):
        """Planes of the images of a shard, channels with gaps, and labels, none if all classes are named."""
        planes = reading.planes(X)
        labels = found_labels(y, planes.encoded, missing_label=self.missing_label) if self.classes is None else []
        return planes, (), labels

    def of_shards(self, gaps: tuple, labels: list, counted: Callable) -> "LabelTargets":
        """The targets with the classes of all shards and their weights."""
        # counted: function of targets that returns the counts of all shards
        targets = replace(self, classes=sorted_classes(labels, self.classes))
        if self.class_weight is None:
            return targets
        counts = [counted(targets)] if isinstance(self.class_weight, str) else None
        of_classes = EncodedLabels([np.arange(len(targets.classes))], targets.classes, counts)
        weights = class_weights(self.class_weight, of_classes)
        return replace(targets, class_weight=dict(zip(targets.classes.tolist(), weights.tolist(), strict=True)))

    def found(self, read: ReadImages):
        """Description of the images of one part, which :meth:`common` joins with those of the others."""
        return TargetMoments.of(read.targets, read.weights), read.layout

    def common(self, found: Sequence) -> Common:
        """Mean and scale of the targets of all parts, and the fitted attributes that describe them."""
        moments, layouts = zip(*found, strict=True)
        if self.are_scores:
            mean, scale = np.zeros(len(moments[0].mean)), 1.0
        elif self.former is not None:
            mean, scale = self.former["target_mean_"], self.former["target_scale_"]
        else:
            mean, scale = reduce(TargetMoments.joined, moments).centre_and_scale()
        return Common(mean, scale, layouts[0])

    def objective(self, common: Common):
        """What is minimised."""
        if not self.are_predicted:
            return LIKELIHOODS[str(self.loss)]()
        of_mean = multinomial_of_codes if self.loss == "multinomial" else None
        return self.prediction_loss(LOSSES_OF_CODES[str(self.loss)], 1e-4, common.mean, common.scale, of_mean=of_mean)

    def learned(self, objective, field, data, attributes, n_jobs) -> dict:
        if not self.are_scores:
            return {}
        n_classes = len(attributes["classes_"])
        return {"evidence_scores_": scores_of_classes(objective, field, data(), n_classes, n_jobs)}


def _by_example(labels):
    """Numbers of the classes of each example, of plain rows together."""
    return labels.labels if isinstance(labels.labels, list) else [labels.labels]


Targets = ValueTargets | LabelTargets
