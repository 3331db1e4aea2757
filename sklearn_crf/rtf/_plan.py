"""Preparation of training: targets, the loss, and a plan in which every parameter has its final value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf.encoding import (
    EncodedLabels,
    collect_distinct_labels,
    compute_class_weights,
    encode_y,
    sort_classes,
    validate_sample_weight,
)
from sklearn_crf.optimize._limits import FitLimits
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf import losses
from sklearn_crf.rtf._codes import SCORES, ClassCodes, sort_decision_cost
from sklearn_crf.rtf._deviations import compute_class_scores
from sklearn_crf.rtf._objectives import GaussianLikelihood, GaussianPseudolikelihood, PredictionLoss, make_solver
from sklearn_crf.rtf._options import FieldSolver, Splits, Window
from sklearn_crf.rtf._rounds import ImagesHere
from sklearn_crf.rtf._trees import build_factor_templates
from sklearn_crf.rtf.images import _degradation
from sklearn_crf.rtf.images._channels import ChannelUnits, are_kept
from sklearn_crf.rtf.images._corruption import make_corrupter, prepare_draws
from sklearn_crf.rtf.images._input import (
    Planes,
    Reading,
    TargetMoments,
    read_targets,
    require_one_reading,
    require_size,
)

# Likelihood losses, which need no prediction. For tables, they are sums over rows, so each row may have a weight.
LIKELIHOODS = {"pseudolikelihood": GaussianPseudolikelihood, "likelihood": GaussianLikelihood}

# Losses for regression: all losses except the two for labels.
LOSSES_OF_VALUES = tuple(name for name in losses.LOSSES if name not in ("logistic", "multinomial"))


def is_likelihood(loss: Any) -> bool:
    """Return whether a loss is a likelihood of the model rather than a loss of its predictions."""
    return isinstance(loss, str) and loss in LIKELIHOODS


class ReadImages(NamedTuple):
    """Training images, or the images of one shard, read as planes, with their targets."""

    planes: Planes
    targets: list  # targets (N, D) of each image, in the units of the user
    weights: list | None  # pixel weights (N,) of each image
    layout: dict  # fitted attributes that describe y
    corrupted: Callable | None = None
    missing: tuple = ()  # channels of X that may be NaN
    degradations: _degradation.Degradations | None = None
    keeps_known: bool = False  # whether known values in the first channels of X equal the target


class Common(NamedTuple):
    """Mean, scale and description that the targets of all images share."""

    mean: np.ndarray  # (D,)
    scale: float  # targets in training are (y - mean) / scale
    attributes: dict  # fitted attributes that describe y


class TreeData(NamedTuple):
    """Training data: images in memory or in shards, and the properties that they share."""

    images: Any  # ImagesHere or ShardedImages, with targets of mean 0 and variance 1
    encoded: Any  # Encoded or Outline of X
    offsets: np.ndarray
    units: ChannelUnits  # units of the channels of X
    missing: tuple  # channels of X that may be NaN
    common: Common

    @classmethod
    def of(cls, targets: "ValueTargets | LabelTargets", read: ReadImages) -> "TreeData":
        """Return the training data for images in memory."""
        planes, common = read.planes, targets.common([targets.found(read)])
        return cls(targets.images(read, common), planes.encoded, planes.offsets, planes.units, read.missing, common)


@dataclass(frozen=True)
class _Targets:
    """Base class of training targets, which are values or labels."""

    # former: fitted attributes of the last call of fit, from which a warm start continues

    name: str  # name of the estimator, for messages
    loss: str | Callable
    inference: Any
    former: Any = None  # Mapping or None

    takes_examples: ClassVar[bool] = False
    kind: ClassVar[str] = "values"  # what y holds, for messages
    losses_with_weights: ClassVar[dict] = losses.WEIGHTED

    @property
    def are_predicted(self) -> bool:
        """Whether the loss compares predictions with targets; likelihoods do not."""
        return not is_likelihood(self.loss)

    def check(self) -> None:
        """Raise InvalidParameterError for parameters that are not valid."""

    def weights(self, planes: Planes, sample_weight: Any) -> list | None:
        """Return the weights of the pixels of each example, or None if all are 1."""
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

    def exclude_missing_terms(self, planes: Planes, gaps: list, weights: list | None) -> list:
        """Return pixel weights for the pseudolikelihood; pixels whose terms need a missing target get weight 0."""
        if self.loss == "likelihood":
            raise ValueError(
                "loss='likelihood' does not support missing values or labels in y: use 'pseudolikelihood' or 'mse'."
            )
        found = []
        for i, (gap, plane) in enumerate(zip(gaps, planes.features, strict=True)):
            gap = gap.reshape(plane.shape[:-1])
            touched = gap.copy()
            for kind in build_factor_templates(planes.offsets)[1:]:
                first, second = kind.ends(gap.shape)
                touched[first] |= gap[second]
                touched[second] |= gap[first]
            found.append(np.where(touched.ravel(), 0.0, 1.0 if weights is None else weights[i]))
        return found

    def join_moments(self, moments: Sequence[TargetMoments]) -> TargetMoments:
        """Return the moments of all targets; raise ValueError if no pixel contributes to the loss."""
        joined = reduce(TargetMoments.joined, moments)
        if not joined.weight.any():
            of_neighbours = (
                "; loss='pseudolikelihood' also needs pixels of y whose neighbours are also known: use loss='mse'"
            )
            raise ValueError(
                f"y has no {self.kind}: all its {self.kind} are missing or have weight 0"
                f"{of_neighbours if self.loss == 'pseudolikelihood' else ''}."
            )
        return joined

    def choose_mean_and_scale(self, moments: TargetMoments) -> tuple[np.ndarray, float]:
        """Return the mean (D,) and the scale of the targets; a warm start reuses the mean and scale of the last fit."""
        if self.former is not None:
            return self.former["target_mean_"], self.former["target_scale_"]
        return moments.compute_mean_and_scale()

    def images(self, read: ReadImages, common: Common) -> ImagesHere:
        """Return the images with targets of mean 0 and variance 1."""
        mean, scale, attributes = common
        scaled = [((t - mean) / scale).astype(np.float32) for t in read.targets]
        if not self.are_predicted:
            # Pixels without a target have weight 0.
            scaled = [np.nan_to_num(t, copy=False) for t in scaled]
        observe, choices, units = None, None, read.planes.units
        if read.degradations is not None:
            observe = partial(_degradation.Observation.of, mean=mean, scale=scale, units=units)
            choices = read.degradations.choices
        elif attributes.get("keeps_known_", False):
            observe = _degradation.KnownValues(read.missing, mean, scale, units).observation
        given = read.planes.features, scaled, read.weights, read.planes.graph_of
        return ImagesHere(*given, choices, read.corrupted, observe)

    def objective(self, common: Common) -> Any:
        """Return the objective that training minimises."""
        if not self.are_predicted:
            return LIKELIHOODS[str(self.loss)]()
        weighted = self.losses_with_weights.get(self.loss) if isinstance(self.loss, str) else None
        return PredictionLoss(weighted_loss=weighted, **self.build_loss_options(common))

    def build_loss_options(self, common: Common) -> dict[str, Any]:
        """Return the options of a :class:`PredictionLoss`."""
        raise NotImplementedError(type(self).__name__)

    def learned(self, objective: Any, field: Any, data: Callable, attributes: dict, n_jobs: int | None) -> dict:
        """Return fitted attributes that are computed from a trained field's predictions for the training images."""
        # data: function without arguments that returns the training data; attributes: fitted attributes found so far
        return {}


@dataclass(frozen=True)
class ValueTargets(_Targets):
    """Real-valued targets, for images that may be corrupted or degraded in training."""

    corruption: Any = None
    degradation: Any = None
    gaps: tuple | None = None  # channels in which the corruption leaves gaps; None if not yet known

    are_scores: ClassVar[bool] = False

    @property
    def is_degraded(self) -> bool:
        """Whether fields include observation terms of a known degradation."""
        return self.degradation is not None

    @property
    def are_drawn(self) -> bool:
        """Whether X is corrupted or degraded anew in every training round."""
        return self.corruption is not None or self.is_degraded

    def check(self) -> None:
        if hasattr(self.corruption, "check"):
            self.corruption.check()
        if self.degradation is not None:
            _degradation.check_degradation(self.degradation)
            if self.corruption is not None:
                raise ValueError("corruption cannot be combined with degradation, which adds its own noise.")
            if not self.are_predicted:
                raise ValueError(f"degradation needs a prediction loss such as 'mse', got loss={self.loss!r}.")

    def read_given(self, reading: Reading, X: Any, y: Any, sample_weight: Any) -> ReadImages:
        """Read images and their target values, and prepare clean images for corruption or degradation."""
        of_lattice = reading.window.lattice_ndim
        X, y, is_grey, degradations = _degradation.read_images(X, y, self.corruption, self.degradation, of_lattice)
        return self.read(reading, X, y, sample_weight, is_grey, degradations)

    def survey(self, reading: Reading, X: Any, y: Any, sample_weight: Any) -> tuple[Planes, tuple, list]:
        """Return the planes of a shard, the channels in which a corruption leaves gaps, and an empty list of labels."""
        if y is not None and isinstance(self.degradation, list | tuple):
            raise ValueError(
                "degradation holds one degradation for each image, which Shards do not support: pass one degradation "
                "for all images."
            )
        read = self.read_given(reading, X, y, None)
        return read.planes, read.missing if self.corruption is not None else (), []

    def of_shards(self, gaps: tuple, labels: list, counted: Callable) -> "ValueTargets":
        """Return targets for all shards, which record in which channels a corruption leaves gaps."""
        return replace(self, gaps=gaps)

    def read(
        self, reading: Reading, X: Any, y: Any, sample_weight: Any, is_grey: bool = False, degradations: Any = None
    ) -> ReadImages:
        """Read images on the lattice of y, and their target values."""
        if reading.window.lattice_ndim is None:
            require_one_reading(X, y)
        is_clean = self.corruption is not None or (degradations is not None and degradations.of_clean)
        planes = reading.planes(X, is_clean=is_clean)
        ndim = planes.encoded.lattice_ndim
        # draw: ``draw(plane, degradation, rng)`` returns an input; None if X is used unchanged
        # tried: inputs in which known values are compared with targets
        draw, missing, tried = None, planes.missing, planes.features
        describe = partial(reading.describe_channels, ndim=ndim)
        if self.corruption is not None:
            corrupt = make_corrupter(self.corruption, planes, is_grey)
            draw, planes, missing, tried = prepare_draws(planes, corrupt, describe, missing=self.gaps)
        targets, has_channels = read_targets(planes, y, missing=ndim > 0)
        if degradations is not None:
            _degradation.check_degraded(planes, degradations, targets)
        if degradations is not None and is_clean:
            of_images = _degradation.degrade_image, describe, degradations.choices
            draw, planes, missing, tried = prepare_draws(planes, *of_images)
        dtype = np.asarray(y[0] if planes.encoded.layout == "list" else y).dtype.str
        layout = {"target_dtype_": dtype, "_has_channels": has_channels, "_is_grey": is_grey} | planes.channels
        weights = self.weights(planes, sample_weight)
        gaps = [np.isnan(t).any(axis=1) for t in targets]
        if not self.are_predicted and any(gap.any() for gap in gaps):
            weights = self.exclude_missing_terms(planes, gaps, weights)
        kept = are_kept(tried, targets, missing, planes.units)
        return ReadImages(planes, targets, weights, layout, draw, missing, degradations, kept)

    def found(self, read: ReadImages) -> tuple:
        """Return statistics of the images in memory or of one shard; :meth:`common` joins statistics of all shards."""
        # ``fmin`` and ``fmax`` ignore NaN, and return NaN if a shard has no known value.
        values = np.concatenate(read.targets)
        extremes = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        moments = TargetMoments.of(read.targets, read.weights)
        return moments, extremes, read.layout, read.planes.offsets, read.keeps_known

    def common(self, found: Sequence) -> Common:
        """Return the mean and scale of the targets of all shards, and the fitted attributes that describe y."""
        moments, extremes, layouts, offsets, kept = zip(*found, strict=True)
        if self.former is not None:
            same = len(moments[0].mean) == len(self.former["target_mean_"])
            same &= layouts[0]["_has_channels"] == self.former["_has_channels"]
            if not same or not np.array_equal(offsets[0], self.former["offsets_"]):
                raise ValueError(
                    "warm_start needs the same number of target channels and the same window as the previous fit."
                )
        mean, scale = self.choose_mean_and_scale(self.join_moments(moments))
        ends = np.array((np.nanmin(extremes), np.nanmax(extremes)))
        require_size(ends)
        return Common(mean, scale, {"target_range_": ends, "keeps_known_": all(kept), **layouts[0]})

    def build_loss_options(self, common: Common) -> dict[str, Any]:
        low, high = common.attributes["target_range_"].tolist()
        if self.loss == "psnr" and low == high:
            raise ValueError(
                f"y has the value {low:g} everywhere, so the error can be zero, but loss='psnr' takes the logarithm "
                "of the error: use loss='mse'."
            )
        unit = losses.choose_loss_unit(self.loss, common.scale)
        mean, scale, data_range = unit * common.mean, unit * common.scale, unit * ((high - low) or 1.0)
        return {
            "loss_function": losses.loss_function(self.loss, data_range),
            # Residuals are divided by a norm, which is large for degraded images because of their observation terms.
            "solver": make_solver(self.inference, 1e-5 if self.is_degraded else 1e-4),
            "offset": mean,
            "scale": scale,
            "unit": losses.compute_loss_unit(self.loss, scale, data_range),
            # The loss is proportional to this power of the unit of y.
            "reported": unit ** -({"mse": 2, "mae": 1}.get(self.loss, 0) if isinstance(self.loss, str) else 0),
        }


@dataclass(frozen=True)
class LabelTargets(_Targets):
    """Labels as targets, represented by the codes of their classes."""

    encoding: str = "orthonormal"
    cost: Any = None
    classes: Any = None
    class_weight: Any = None
    missing_label: Any = None

    takes_examples: ClassVar[bool] = True
    kind: ClassVar[str] = "labels"
    is_degraded: ClassVar[bool] = False
    are_drawn: ClassVar[bool] = False
    losses_with_weights: ClassVar[dict] = losses.WEIGHTED_OF_CODES

    @property
    def are_scores(self) -> bool:
        """Whether the field predicts scores of classes, which would grow without bound if there were no penalty."""
        return self.loss in SCORES

    def coding(self, n_classes: int, weight: np.ndarray | None = None) -> ClassCodes:
        """Return the :class:`ClassCodes` for a number of classes."""
        cost = sort_decision_cost(self.cost, n_classes, self.classes, str(self.loss))
        return ClassCodes(n_classes, str(self.loss), self.encoding, cost, weight)

    def labels(self, planes: Planes, y: Any) -> EncodedLabels:
        """Return the class indices of the pixels."""
        return encode_y(y, planes.encoded, missing_label=self.missing_label, classes=self.classes)

    def read_given(self, reading: Reading, X: Any, y: Any, sample_weight: Any) -> ReadImages:
        """Read images and convert their labels to codes."""
        planes = reading.planes(X)
        labels = self.labels(planes, y)
        n_classes = len(labels.classes_)
        if self.loss == "logistic" and n_classes > 2:
            raise ValueError(f"loss='logistic' needs two classes, got {n_classes}: use 'multinomial'.")
        if self.former is not None and not np.array_equal(labels.classes_, self.former["classes_"]):
            raise ValueError(f"warm_start needs the same classes as the previous fit, got {labels.classes_.tolist()}.")
        columns, codes = labels.by_example, self.coding(n_classes).table
        weights = self.weights(planes, sample_weight)
        of_class = None if self.class_weight is None else compute_class_weights(self.class_weight, labels, weights)
        # Examples without nodes are left out.
        filled = [i for i, own in enumerate(columns) if len(own)]
        columns, weights = [columns[i] for i in filled], weights and [weights[i] for i in filled]
        planes = planes._replace(features=[planes.features[i] for i in filled])
        # A missing label gets the code of the first class, and weight 0.
        targets = [codes[np.maximum(own, 0)] for own in columns]
        is_joint = self.loss == "likelihood" and len(planes.offsets) > 0
        weights = self._compute_pixel_weights(planes, columns, of_class, is_joint, weights)
        decision = {"decision_weight_": of_class if is_joint else None}
        layout = {"classes_": labels.classes_, "n_node_types_": planes.n_node_types} | decision | planes.channels
        return ReadImages(planes, targets, weights, layout, missing=planes.missing)

    def _compute_pixel_weights(
        self, planes: Planes, columns: list, of_class: np.ndarray | None, is_joint: bool, weights: list | None
    ) -> list | None:
        """Compute pixel weights from the weights of examples and classes; pixels with a missing label get weight 0."""
        # of_class: (n_classes,), class weights, or None; is_joint: whether an example's loss is not a sum over pixels
        gaps = [own < 0 for own in columns]
        is_complete = not any(gap.any() for gap in gaps)
        if is_complete and of_class is None:
            return weights
        if weights is None:
            weights = [np.ones(len(own)) for own in columns]
        if of_class is not None:
            of_nodes = [of_class[np.maximum(own, 0)] for own in columns]
            of_nodes = [np.full(len(own), own.mean()) for own in of_nodes] if is_joint else of_nodes
            weights = [weight * own for weight, own in zip(weights, of_nodes, strict=True)]
        if not is_complete and not self.are_predicted:
            return self.exclude_missing_terms(planes, gaps, weights)
        return [np.where(gap, 0.0, w) for gap, w in zip(gaps, weights, strict=True)]

    def counts(self, reading: Reading, X: Any, y: Any, sample_weight: Any) -> np.ndarray:
        """Return the total weight of the labelled pixels of each class, (n_classes,)."""
        planes = reading.planes(X)
        labels, weights = self.labels(planes, y), self.weights(planes, sample_weight)
        found = np.zeros(len(labels.classes_))
        for i, own in enumerate(labels.by_example):
            known = own >= 0
            found += np.bincount(own[known], None if weights is None else weights[i][known], len(found))
        return found

    def survey(self, reading: Reading, X: Any, y: Any, sample_weight: Any) -> tuple[Planes, tuple, list]:
        """Return planes of a shard, the channels with gaps, and the shard's labels (empty if ``classes`` is given)."""
        planes = reading.planes(X)
        labels = (
            collect_distinct_labels(y, planes.encoded, missing_label=self.missing_label) if self.classes is None else []
        )
        return planes, (), labels

    def of_shards(self, gaps: tuple, labels: list, counted: Callable) -> "LabelTargets":
        """Return targets with the classes of all shards and the class weights."""
        # counted: function of targets that returns the total weight of each class over all shards
        targets = replace(self, classes=sort_classes(labels, self.classes))
        if self.class_weight is None:
            return targets
        counts = [counted(targets)] if isinstance(self.class_weight, str) else None
        of_classes = EncodedLabels([np.arange(len(targets.classes))], targets.classes, counts)
        weights = compute_class_weights(self.class_weight, of_classes)
        return replace(targets, class_weight=dict(zip(targets.classes.tolist(), weights.tolist(), strict=True)))

    def found(self, read: ReadImages) -> tuple:
        """Return statistics of the images in memory or of one shard; :meth:`common` joins statistics of all shards."""
        return TargetMoments.of(read.targets, read.weights), read.layout

    def common(self, found: Sequence) -> Common:
        """Return the mean and scale of the targets of all shards, and the fitted attributes that describe y."""
        moments, layouts = zip(*found, strict=True)
        joined = self.join_moments(moments)
        mean, scale = (np.zeros(len(joined.mean)), 1.0) if self.are_scores else self.choose_mean_and_scale(joined)
        return Common(mean, scale, layouts[0])

    def build_loss_options(self, common: Common) -> dict[str, Any]:
        return {
            "loss_function": losses.LOSSES_OF_CODES[str(self.loss)],
            "solver": make_solver(self.inference, 1e-4),
            "offset": common.mean,
            "scale": common.scale,
            "unit": losses.compute_loss_unit(self.loss, common.scale, 1.0),
        }

    def learned(self, objective: Any, field: Any, data: Callable, attributes: dict, n_jobs: int | None) -> dict:
        if not self.are_scores:
            return {}
        n_classes = len(attributes["classes_"])
        return {"evidence_scores_": compute_class_scores(objective, field, data(), n_classes, n_jobs)}


Targets = ValueTargets | LabelTargets


@dataclass(frozen=True)
class FieldOptions:
    """Validated parameters of a tree field, before "auto" values are resolved for the data."""

    reading: Reading
    targets: Targets
    solver: FieldSolver
    split: Splits
    filter_bank: Any
    max_depth: int | str
    max_iter: int | str
    tol: float
    seed: int
    n_jobs: int | None
    verbose: int
    # Number of trailing channels of X that the filters skip. Nonzero only for cascades that are trained jointly.
    n_unfiltered: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class FieldPlan(FitLimits):
    """Parameters of a fit with all "auto" values resolved."""

    targets: Targets
    objective: Any  # training objective without the penalty on scores, which depends on the number of leaves
    common: Common  # mean, scale and description of the targets
    offsets: np.ndarray  # (n_offsets, 2), or (n_offsets, 3) for volumes
    lattice_ndim: int
    units: ChannelUnits  # units of the channels of X
    missing: tuple[int, ...]  # channels of X that may be NaN
    n_filtered: int  # number of leading channels of X that are filtered
    n_node_types: int
    filter_bank: Any
    window: Window
    is_observed: bool  # whether fields include observation terms
    split: Splits
    solver: FieldSolver  # only ridge may still be "auto", because it depends on the number of leaves
    has_given_max_iter: bool  # whether max_iter was set by the user
    must_stop_early: bool  # whether to raise an error if nothing can be held out
    tol: float
    depth: int | None  # depth of the trees of pixels; None if the depth depends on the number of parameters
    n_values: int  # total number of values of y
    seed: int

    @classmethod
    def of(cls, options: FieldOptions, data: TreeData) -> "FieldPlan":
        """Return the plan for the training data."""
        targets, asked, common = options.targets, options.solver, data.common
        if asked.ridge != "auto" and not targets.are_scores:
            raise ValueError(
                f"ridge of FieldSolver needs a loss of scores, 'multinomial' or 'logistic', got loss={targets.loss!r}."
            )
        ndim, n_pixels = data.encoded.lattice_ndim, sum(map(prod, data.images.shapes))
        if ndim == 3 and isinstance(targets.loss, str) and targets.loss in ("ssim", "iw_ssim"):
            raise ValueError(f"loss={targets.loss!r} supports only images, but X holds volumes: use 'mse' or 'psnr'.")
        # For prediction losses, a few iterations on random crops of the images suffice in each round.
        in_parts = ndim >= 2 and targets.are_predicted
        is_enough = targets.are_predicted and n_pixels >= tuned.LEAST_TO_HOLD_OUT[ndim]
        iterations = 8 if in_parts else 20 if targets.are_predicted else 50
        of_options = ("targets", "filter_bank", "split", "tol", "seed", "n_jobs", "verbose")
        of_data = ("common", "offsets", "units", "missing")
        return cls(
            **{name: getattr(options, name) for name in of_options},
            **{name: getattr(data, name) for name in of_data},
            objective=targets.objective(common),
            lattice_ndim=ndim,
            window=options.reading.window,
            n_node_types=common.attributes.get("n_node_types_", 1),
            n_filtered=data.encoded.n_features - options.n_unfiltered,
            is_observed=common.attributes.get("keeps_known_", False) or targets.is_degraded,
            solver=_complete_solver(asked, options.split, n_pixels, in_parts, is_enough),
            max_iter=iterations if options.max_iter == "auto" else int(options.max_iter),
            has_given_max_iter=options.max_iter != "auto",
            must_stop_early=asked.early_stopping != "auto",
            depth=_choose_depth(options, n_pixels, in_parts, is_enough),
            n_values=n_pixels * len(common.mean),
        )

    @property
    def former(self) -> Mapping[str, Any] | None:
        """Fitted attributes of the field from which a warm start continues, or None for a cold start."""
        return self.targets.former

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the eigenvalues of the field's precision matrices."""
        return self.solver.eigenvalue_bounds

    @property
    def is_table(self) -> bool:
        """Whether X holds plain samples."""
        return self.lattice_ndim == 0

    def choose_depth(self, n_coef: int) -> int:
        """Return the depth of the trees for pixels; ``n_coef`` is the parameter count with single-leaf trees."""
        if self.depth is not None:
            return self.depth
        n_leaves = self.n_values / (tuned.VALUES_OF_PARAMETER * n_coef)
        return int(np.clip(np.log2(n_leaves), 0, tuned.DEEPEST))

    def choose_type_depths(self, depth: int) -> list[int]:
        """Return the largest depth of each factor type's tree, given the depth for pixels."""
        of_types = (self.n_node_types - 1).bit_length()
        of_pairs = depth if self.window.max_depth is None else self.window.max_depth
        return [of_types + depth] + [2 * of_types + of_pairs] * len(self.offsets)

    def choose_ridge(self, depth: int) -> float:
        """Return the penalty on scores; "auto" is the leaf count of a tree of this depth times the node type count."""
        ridge: Any = self.solver.ridge
        return self.n_node_types * 2 ** min(depth, tuned.DEEPEST) if ridge == "auto" else ridge

    def report(self, rounds: list, value: float, n_leaves: list) -> None:
        """Print the progress of training after a round."""
        if self.verbose:
            progress = f"round {len(rounds)}: {rounds[-1]} iterations, loss {value:.6g}"
            print(f"[{self.targets.name}] {progress}, leaves {n_leaves}")


def _complete_solver(asked: FieldSolver, split: Splits, n_pixels: int, in_parts: bool, is_enough: bool) -> FieldSolver:
    """Return a copy of the solver in which all "auto" values except ``ridge`` are resolved."""
    found, given = clone(asked), asked.max_samples
    found.max_samples = (tuned.PIXELS_OF_ROUND if in_parts else None) if given == "auto" else given
    found.early_stopping = is_enough if asked.early_stopping == "auto" else bool(asked.early_stopping)
    found.eigenvalue_bounds = tuple(asked.eigenvalue_bounds)
    if asked.shrinkage == "auto":
        seen = n_pixels if found.max_samples is None else min(n_pixels, found.max_samples)
        # If all trees are grown before training, leaves have no trained parents to be pulled towards.
        is_drawn = (in_parts or is_enough) and split.criterion != "residual"
        found.shrinkage = tuned.SHRINKAGE * seen if is_drawn else 0.0
    return found


def _choose_depth(options: FieldOptions, n_pixels: int, in_parts: bool, is_enough: bool) -> Any:
    """Return the depth of trees for a number of pixels, or None if the depth depends on the number of parameters."""
    if options.max_depth != "auto":
        return options.max_depth
    if not in_parts:
        return None
    share, deepest = (20_000, 6) if is_enough else (50_000, 4)
    return int(np.clip(np.log2(n_pixels / share), 0, deepest))
