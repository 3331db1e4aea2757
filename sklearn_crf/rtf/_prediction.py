"""Prediction of trained regression tree fields, for planes or in tiles for images larger than memory."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integer
from sklearn_crf._own_methods import require_classes, require_numbers, require_optional_numbers
from sklearn_crf._threads import limit_blas_threads, make_range_runner, map_coarse
from sklearn_crf.encoding import convert_to_label_array, count_examples, scale_sample_weight, validate_sample_weight
from sklearn_crf.inference import ConjugateGradient, GaussianDirect, GaussianGibbs
from sklearn_crf.inference.gaussian._tiles import solve_mean_in_tiles
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._objectives import make_solver
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates
from sklearn_crf.rtf.images._channels import ChannelUnits, InputSample, count_masks, filtered, require_range
from sklearn_crf.rtf.images._degradation import KnownValues, solve_from_image
from sklearn_crf.rtf.images._input import Planes, build_plane_graph, check_multipliers, choose_channels, put_back

# _TYPES: data type of each array of a tree.
# _OFFSETS: columns of tests that hold offsets, if tests have 7 columns (images) or 9 columns (volumes).
_TYPES = {"children": np.int32, "test": np.int32, "threshold": np.float64, "leaf": np.int32}
_OFFSETS = {7: [1, 2, 4, 5], 9: [1, 2, 4, 5, 7, 8]}


def check_saved_trees(estimator):
    """Raise ValueError unless the fitted trees, offsets and weights of an estimator are valid."""
    trees, held_out = estimator.trees_, getattr(estimator, "held_out_errors_", None)
    _check_offsets(estimator.offsets_, len(trees) - 1)
    _check_numbers(estimator)
    for tree in trees if held_out is None else [*trees, held_out["tree"]]:
        _check_tree(tree, estimator.weights_[0].shape[2] - 1)


def _check_numbers(estimator: Any) -> None:
    """Raise ValueError unless weights of leaves, units of channels and the range of targets are finite numbers."""
    as_integer(estimator.lattice_ndim_, "lattice_ndim_", highest=3)
    np.dtype(getattr(estimator, "target_dtype_", None))
    if hasattr(estimator, "classes_"):
        require_classes(estimator.classes_)
    for name, ndim in ("weights_", 3), ("precisions_", 3), ("slopes_", 4):
        for number, values in enumerate(getattr(estimator, name)):
            require_numbers(f"{name}[{number}]", values, (None,) * ndim)
    # The later stages of a cascade have more channels than n_features_in_.
    n_channels = np.size(getattr(estimator, "channel_centre_", estimator.n_features_in_ * [0]))
    bank, n_features = estimator.filter_bank_, estimator.weights_[0].shape[2] - 1
    n_found = n_channels if bank is None else len(bank.get_feature_names_out())
    n_found += getattr(estimator, "n_node_types_", 1) > 1
    if n_found + count_masks(getattr(estimator, "missing_channels_", ())) != n_features:
        raise ValueError(f"filter_bank_ must compute {n_features} channels, but computes {n_found}.")
    for name in ("precision_channels_", "missing_channels_"):
        for channel in getattr(estimator, name, np.zeros(0)).tolist():
            as_integer(channel, name, highest=n_features - 1)
    # Fields for labels have no ``target_range_``. Fields in the units of the images have no units of channels.
    shapes = {
        "target_range_": (2,),
        "target_mean_": (estimator.precisions_[0].shape[1],),
        "channel_centre_": (n_channels,),
        "channel_scale_": (n_channels,),
        "channel_range_": (n_channels, 2),
    }
    require_optional_numbers(estimator, shapes)
    require_numbers("target_scale_", np.asarray(estimator.target_scale_), ())


def _check_offsets(offsets, n_pairs):
    """Raise ValueError unless offsets of pairwise types are nonzero, and no two are equal or opposite."""
    if offsets.dtype.kind != "i" or offsets.ndim != 2 or len(offsets) != n_pairs:
        raise ValueError(f"offsets_ must be {n_pairs} rows of integers, got {offsets.dtype} of shape {offsets.shape}.")
    if np.abs(offsets).max(initial=0) > tuned.LARGEST_OFFSET:
        raise ValueError(f"offsets_ must be at most {tuned.LARGEST_OFFSET}.")
    if len({tuple(own) for own in [*offsets.tolist(), *(-offsets).tolist()]}) < 2 * n_pairs:
        raise ValueError("offsets_ must not contain 0, two equal offsets or two opposite offsets.")


def _check_tree(arrays, n_channels):
    """Raise ValueError unless arrays form a valid tree, because kernels use the arrays without checks."""
    # arrays: dict of the fields of RegressionTree; n_channels: number of channels available to tests
    if not isinstance(arrays, dict) or arrays.keys() != _TYPES.keys():
        raise ValueError(f"a tree must be a dict of {', '.join(_TYPES)}, got {type(arrays).__name__}.")
    for name, dtype in _TYPES.items():
        if getattr(arrays[name], "dtype", None) != dtype:
            raise ValueError(f"{name} of a tree must be an array of {np.dtype(dtype)}.")
    tree = RegressionTree(**arrays)
    n_nodes, shapes = tree.leaf.size, [values.shape for values in tree]
    if not n_nodes or shapes not in [[(n_nodes, 2), (n_nodes, width), (n_nodes,), (n_nodes,)] for width in _OFFSETS]:
        raise ValueError(f"the arrays of a tree must have one row for each node, got shapes {shapes}.")
    inner, nodes = tree.children[:, 0] >= 0, np.arange(n_nodes)
    # If parents precede their children and each child has one parent, there are no cycles, and all paths end at leaves.
    children, numbers = np.sort(tree.children[inner], axis=None), np.sort(tree.leaf[~inner])
    is_tree = (
        np.array_equal(children, nodes[1:])
        and np.all(tree.children[inner] > nodes[inner, np.newaxis])
        and np.all(tree.children[~inner] == -1)
        and np.array_equal(numbers, np.arange(len(numbers)))
        and np.all(tree.leaf[inner] == -1)
    )
    if not is_tree:
        raise ValueError("the children and leaves of a tree are inconsistent: its nodes do not form a tree.")
    test = tree.test[inner]
    channels, offsets = test[:, [0, 3]], test[:, _OFFSETS[test.shape[1]]].astype(np.int64)
    if not (np.all(channels >= [0, -1]) and np.all(channels < n_channels)):
        raise ValueError(
            f"the tests of a tree must compare channels from 0 to {n_channels - 1}, but other channels were found."
        )
    if np.abs(offsets).max(initial=0) > tuned.LARGEST_OFFSET:
        raise ValueError(
            f"the tests of a tree use pixels up to {np.abs(offsets).max()} away, but the limit is "
            f"{tuned.LARGEST_OFFSET}."
        )


class FittedField:
    """Trained field, restored from the fitted attributes of an estimator."""

    # n_axes: number of axes of the lattices, 1 to 3
    # filter_bank: computes the channels of a plane for trees and leaves
    # known: KnownValues if predictions keep the known pixels of images with gaps, else None

    def __init__(self, fitted: Mapping):
        weights, precisions = fitted["weights_"], fitted["precisions_"]
        n_channels = weights[0].shape[2] - 1
        channels = choose_channels(fitted["pairwise_channels_"], n_channels)
        self.types = build_factor_templates(fitted["offsets_"], channels, tuple(fitted["precision_channels_"].tolist()))
        self.trees = [RegressionTree(**tree) for tree in fitted["trees_"]]
        inputs = [np.eye(kind.n_inputs(n_channels)) for kind in self.types]
        n_leaves = [tree.n_leaves for tree in self.trees]
        self.potentials = RegressionTreePotentials(self.types, n_leaves, inputs, precisions[0].shape[1])
        self.coef = self.potentials.pack(precisions, weights, fitted["slopes_"])
        self.n_axes = max(fitted["lattice_ndim_"], 1)
        planar = max(self.n_axes, 2)
        offsets = [kind.offset[3 - planar :] for kind in self.types if kind.paired]
        self.offsets = np.array(offsets, dtype=np.int64).reshape(-1, planar)
        self.filter_bank, self.known = fitted["filter_bank_"], build_known_terms(fitted)
        self._graphs: dict = {}

    @property
    def reach(self):
        """Maximum distance, in rows or columns, from the pixels of a factor to pixels on which the factor depends."""
        of_tests = max(int(np.abs(tree.test[:, [1, 2, 4, 5]]).max(initial=0)) for tree in self.trees)
        of_pairs = int(np.abs(self.offsets).max(initial=0))
        return of_tests + of_pairs + (0 if self.filter_bank is None else self.filter_bank.reach_)

    @property
    def period(self):
        """Grid spacing: a window that begins at a multiple of this spacing has the same field as in the whole plane."""
        return 1 if self.filter_bank is None else self.filter_bank.period_

    def model(self, plane, n_threads, observation=None):
        """Return the Gaussian field of a plane or of a window."""
        # plane: (H, W, F) or (D, H, W, F)
        return self.potentials.model(self.coef, self._image(plane, n_threads, observation), n_threads)

    def _image(self, plane, n_threads, observation=None):
        features = np.ascontiguousarray(plane)
        if observation is None and self.known is not None:
            observation = self.known.observation(features)
        if self.filter_bank is not None:
            features = filtered(self.filter_bank, [features], n_threads)[0]
        check_multipliers([features], self.types[0].multipliers)
        shape = features.shape[:-1]
        if shape not in self._graphs:
            self._graphs[shape] = build_plane_graph(shape, self.offsets, self.n_axes)
        return FieldImage.of(features, self._graphs[shape], self.types, self.trees, n_threads, observation)

    def build_model_and_eigenvalues(self, plane, n_threads):
        r"""Return the field, and for each pixel s the sum :math:`\sum_{F \ni s} \lambda_{\min}(J_F)`.

        The smallest sum is a lower bound on the eigenvalues of J.
        """
        # plane: (H, W, F); eigenvalues: (H, W)
        image = self._image(plane, n_threads)
        total = np.zeros(image.features.shape[:2])
        for kind, part, leaf in zip(self.types, self.potentials.unpack(self.coef), image.leaves, strict=True):
            # The terms of slopes only increase J: slopes are positive semidefinite, and their channels non-negative.
            least = np.linalg.eigvalsh(part.precision)[:, 0]
            for pixels in kind.ends(total.shape):
                total[pixels] += least[leaf].reshape(total[pixels].shape)
        return self.potentials.model(self.coef, image, n_threads), total

    def deviation(self, plane, held_out, n_threads):
        """Return the expected error of each value, predicted by the tree of held-out errors; 0 for known values."""
        # plane: (H, W, F); held_out: dict; returns (N, D)
        tree, deviations = RegressionTree(**held_out["tree"]), held_out["deviations"]
        height, width = plane.shape[0], prod(plane.shape[1:-1])
        rows, reach, found = max(1, tuned.PIXELS_OF_TILES // width), self.reach + tuned.RADIUS_OF_ERRORS, []
        for top in range(0, height, rows):
            first, last = max(0, top - reach), min(height, top + rows + reach)
            first -= first % self.period
            features = np.ascontiguousarray(plane[first:last])
            if self.filter_bank is not None:
                features = filtered(self.filter_bank, [features], n_threads)[0]
            leaves = tree.leaves(features, self.types[0], make_range_runner(n_threads)).reshape(-1, width)
            found.append(leaves[top - first : min(top + rows, height) - first])
        values = deviations[np.concatenate(found).ravel()]
        return values if self.known is None else np.where(self.known.observation(plane).diagonal > 0, 0.0, values)

    def means(self, planes, solver, n_jobs, and_also=None, observations=None):
        """Return the mean of each plane's field in standardised units, and the results of ``and_also(model)``."""

        def one(task, n_threads):
            plane, observation = task
            return self.mean(plane, solver, n_threads, and_also, observation)

        observations = [None] * len(planes.features) if observations is None else observations
        with limit_blas_threads():
            found = map_coarse(one, zip(planes.features, observations, strict=True), n_jobs)
        return [mean for mean, _ in found], [other for _, other in found]

    def mean(self, plane, solver, n_threads, and_also=None, observation=None):
        """Return the mean of a plane's field, and the result of ``and_also(model)``, if given."""
        # plane: (H, W, F) or (D, H, W, F); returns the mean (N, D), and the result of ``and_also`` (N, D)
        shape = plane.shape[:-1]
        # Images with observation terms are not cut into tiles, because blur couples distant pixels.
        # Images with known pixels are not cut, because such pixels would dominate the norm that compares tiles.
        # Volumes, and solvers other than conjugate gradients, do not support tiles.
        is_whole = prod(shape) <= tuned.PIXELS_OF_TILES or len(shape) == 3 or not isinstance(solver, ConjugateGradient)
        if is_whole or observation is not None or self.known is not None:
            if observation is None and self.known is not None:
                observation = self.known.observation(plane)
            model = self.model(plane, n_threads, observation)
            start = None if observation is None else observation.start
            mean = solve_from_image(solver, model, start, n_threads=n_threads).x
            return mean, None if and_also is None else and_also(model, n_threads)

        found = solve_mean_in_tiles(
            lambda window, n_threads: self.model(plane[window.slices], n_threads),
            shape,
            solver,
            n_jobs=n_threads,
            reach=self.reach,
            period=self.period,
            and_also=and_also,
        )
        others = None if found.others is None else found.others.reshape(-1, found.others.shape[2])
        return found.mean.reshape(-1, found.mean.shape[2]), others


def build_known_terms(fitted: Mapping) -> KnownValues | None:
    """Return the terms that known pixels add to a field, or None if predictions do not keep known pixels."""
    if not fitted.get("keeps_known_", False):
        return None
    mean, missing = fitted["target_mean_"], tuple(fitted["missing_channels_"].tolist())
    return KnownValues(missing, mean, fitted["target_scale_"], ChannelUnits.of(fitted, len(mean)))


def unscaled(fitted: Mapping, means: list) -> list:
    """Convert means from standardised units to the units of y or of codes."""
    return [fitted["target_mean_"] + fitted["target_scale_"] * mean.astype(np.float64) for mean in means]


def restore_known_values(fitted: Mapping, clip, planes: Planes, means: list):
    """Convert means of fields to clipped values in the layout of X, with known pixels restored."""
    values = []
    for own in means:
        starts = range(0, max(len(own), 1), tuned.PIXELS_IN_DOUBLES)
        parts = [unscaled(fitted, [own[start : start + tuned.PIXELS_IN_DOUBLES]])[0] for start in starts]
        values.append(np.concatenate([clipped(fitted, clip, part) for part in parts]))
    return arrange_in_layout(fitted, planes, values)


def arrange_in_layout(fitted: Mapping, planes: Planes, values: list):
    """Return values in the layout of X, with known pixels restored."""
    known = build_known_terms(fitted)
    if known is not None and values[0].dtype.kind == "f":
        values = [known.put_back(plane, value) for plane, value in zip(planes.features, values, strict=True)]
    return put_back(planes, values, fitted["_has_channels"])


def clipped(fitted: Mapping, clip, values: np.ndarray) -> np.ndarray:
    """Clip values; for images whose y has a floating or unsigned type, the default is the range and data type of y."""
    if not isinstance(clip, str):
        return values if clip is None else np.clip(values, *clip)
    dtype = np.dtype(fitted["target_dtype_"])
    if fitted["lattice_ndim_"] < 2 or dtype.kind not in "uf":
        return values
    if dtype.kind == "f":
        return np.clip(values, *fitted["target_range_"]).astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def in_units(model, mean, scale):
    r"""Return the field of :math:`m + s u`, given the field of u with parameters J and h.

    The returned field has the parameters :math:`J / s^2` and :math:`J m / s^2 + h / s`.
    """
    doubled = GaussianModel(
        model.graph,
        model.h.astype(np.float64) / scale,
        model.diagonal.astype(np.float64) / scale**2,
        model.blocks.astype(np.float64) / scale**2,
        model.edge_type,
        None if model.precision_operator is None else model.precision_operator.scaled(1 / scale**2),
    )
    shift = doubled.product(np.broadcast_to(mean, doubled.h.shape))
    return replace(doubled, h=doubled.h + shift)


def build_plane_models(fitted: Mapping, planes: Planes, known=None, observations=None) -> list[GaussianModel]:
    """Return the fields of planes in the units of the target, conditioned on known values."""
    # known: list of (N, D), NaN where not known; observations: list of Observation
    field, found = FittedField(fitted), []
    for i, plane in enumerate(planes.features):
        observation = None if observations is None else observations[i]
        model = in_units(field.model(plane, 1, observation), fitted["target_mean_"], fitted["target_scale_"])
        found.append(model if known is None else conditioned(model, known[i]))
    return found


def conditioned(model, known):
    r"""Return the field conditioned on known values k; unknown values get :math:`J_{uu}` and :math:`h_u - J_{uk} y_k`.

    Known values remain in the field, without edges. Their means are the known values. Their deviations are the machine
    epsilon times their conditional deviations in the original field.
    """
    # known: (N, D)
    is_known = ~np.isnan(known)
    if not is_known.any():
        return model
    free = ~is_known
    value = np.where(is_known, known, 0.0).astype(model.dtype)
    own = np.diagonal(model.diagonal, axis1=1, axis2=2) / np.finfo(model.dtype).eps ** 2
    h = np.where(is_known, own * value, model.h - model.product(value))
    diagonal = model.diagonal * (free[:, :, None] & free[:, None, :])
    diagonal += np.where(is_known, own, 0.0)[:, :, None] * np.eye(model.n_values)
    tails, heads = model.graph.edges.T
    cut = np.flatnonzero(is_known.any(axis=1)[tails] | is_known.any(axis=1)[heads])
    edge_type = model.edge_type.copy()
    masked = model.blocks[edge_type[cut]] * (free[tails[cut], :, None] & free[heads[cut], None, :])
    # Edges without any pair of unknown values share one block of zeros.
    partly = masked.any(axis=(1, 2))
    blocks = np.concatenate([model.blocks, np.zeros_like(masked[:1]), masked[partly]])
    edge_type[cut] = len(model.blocks)
    edge_type[cut[partly]] = len(model.blocks) + 1 + np.arange(np.count_nonzero(partly))
    return GaussianModel(model.graph, h, diagonal, blocks, edge_type)


def deviation(model, n_threads):
    """Return the standard deviations of the values of a field."""
    if model.h.size <= tuned.MOST_DENSE_VALUES:
        found = GaussianDirect().marginals(model)
    else:
        found = GaussianGibbs(random_state=0).marginals(model, n_threads=n_threads)
    return np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))


def draw_field_samples(models, n_samples, seeds):
    """Draw values from each field."""
    # returns list of (n_samples, N, D)
    drawn = []
    for model, seed in zip(models, seeds, strict=True):
        algorithm = GaussianDirect() if model.h.size <= tuned.MOST_DENSE_VALUES else GaussianGibbs()
        drawn.append(algorithm.sample(model, n_samples, random_state=int(seed)))
    return drawn


def gather_scored_pixels(y, predicted, sample_weight, is_missing):
    """Return true values, predicted values and weights of the pixels with a target, as flat arrays."""
    if count_examples(y, "y") != len(predicted):
        raise ValueError(f"y has {len(y)} examples, but X has {len(predicted)}.")
    # Iterating over a data frame yields its columns, so convert it to an array.
    parts = [convert_to_label_array(part) for part in (np.asarray(y) if hasattr(y, "columns") else y)]
    for i, (part, found) in enumerate(zip(parts, predicted, strict=True)):
        if part.size != np.size(found):
            raise ValueError(f"y[{i}] has shape {part.shape}, but the prediction for X[{i}] has {np.shape(found)}.")
    weight = scale_sample_weight(validate_sample_weight(sample_weight, len(predicted)))
    if weight is not None:
        weight = np.repeat(weight, [part.size for part in parts])
    truth, found = (np.concatenate([np.ravel(part) for part in values]) for values in (parts, predicted))
    known = ~is_missing(truth)
    truth = np.array(truth[known].tolist()) if truth.dtype == object else truth[known]
    return truth, found[known], None if weight is None else weight[known]


def is_unknown(values):
    """Return a mask of missing values."""
    return np.isnan(values.astype(float))


class TiledField(NamedTuple):
    """Accuracy of a prediction in tiles, relative to a solve for the whole image."""

    # Norm of the residual of the linear system, relative to the norm of the right-hand side
    residual: float
    # Upper bound on the root mean square difference from a solve for the whole image, in units of y, before clipping
    difference: float
    # Upper bound on the number of labels that differ from a solve for the whole image; 0 if values are predicted
    n_open: int
    margins: np.ndarray


class TiledTask(NamedTuple):
    """Solver, fitted attributes and functions with which the tiles of an image are predicted."""

    name: str  # name of the estimator, for messages
    fitted: Mapping  # fitted attributes of the estimator
    solver: Any
    inference: Any  # the estimator's parameter ``inference``, for messages
    finished: Callable  # converts values (N, D) in units of y or codes to predictions and distances to other labels
    n_jobs: int | None
    dtype: np.dtype  # data type of predictions
    shape: tuple = ()  # shape of the prediction of one pixel
    is_degraded: bool = False

    @classmethod
    def of(cls, estimator: Any, finished: Callable, *of_predictions: Any) -> "TiledTask":
        """Return the task of a fitted estimator; ``of_predictions`` gives ``dtype`` and all later attributes."""
        fitted, inference, name = vars(estimator), estimator.inference, type(estimator).__name__
        return cls(name, fitted, make_solver(inference), inference, finished, estimator.n_jobs, *of_predictions)

    def check(self, image: np.ndarray) -> None:
        """Raise ValueError if the prediction requires the whole image at once."""
        for what, has in (("cascade", "stages_" in self.fitted), ("degradation", self.is_degraded)):
            if has:
                raise ValueError(f"{self.name} with {what} needs the whole image at once: call predict.")
        if not isinstance(self.solver, ConjugateGradient):
            raise ValueError(f"inference={self.inference!r} solves the whole image at once: call predict.")
        if self.fitted.get("n_node_types_", 1) > 1:
            raise ValueError(
                f"{self.name} was fitted to several node types, which an image does not have: call predict with "
                "Examples."
            )
        if len(self.fitted["missing_channels_"]):
            raise ValueError(f"{self.name} for images with missing pixels needs the whole image at once: call predict.")
        if self.fitted["lattice_ndim_"] == 3:
            raise ValueError(f"{self.name} was fitted on volumes: call predict.")
        if image.shape[2] != (expected := self.fitted["n_features_in_"]):
            raise ValueError(f"image has {image.shape[2]} channels, but the field was fitted to {expected}.")
        require_range(self.fitted, InputSample.of([image]))


def predict_field_in_tiles(task: TiledTask, image, out, tiles, margin, max_margin) -> TiledField:
    r"""Predict a large image into ``out``.

    With the computed mean u, the exact mean :math:`u^*`, and the precisions :math:`J_F` of factors,

    .. math::
        \|u - u^*\| \le \|h - J u\| / \lambda, \qquad
        \lambda = \min_s \sum_{F \ni s} \lambda_{\min}(J_F) \le \lambda_{\min}(J).

    A label can only differ if the error at the pixel is at least the distance to the nearest values with another label.
    Hence, the largest number of pixels whose squared distances sum to at most the squared bound limits the number of
    labels that differ.
    """
    # out: (H, W) or (H, W, D), array that supports slices; tiles: list of Rectangle
    task.check(image)
    shape = out.shape[:2]
    with TemporaryFile() as file:
        plane = _Planes(task, image, shape, file)
        found = solve_mean_in_tiles(
            plane.model,
            shape,
            task.solver,
            n_jobs=task.n_jobs,
            reach=plane.field.reach,
            period=plane.field.period,
            margin=margin,
            max_margin=max_margin,
            tiles=tiles,
            mean=plane.storage,
        )
        error = task.fitted["target_scale_"] * found.residual * found.norm / min(plane.least)
        n_open = plane.write(found.mean, out, tiles, error)
    size = shape[0] * shape[1] * found.mean.shape[2]
    return TiledField(found.residual, float(error / np.sqrt(size)), n_open, np.array(found.margins))


class _Planes:
    """Access to windows of an image, and to the mean of the image's field.

    The image and the mean may be larger than memory.
    """

    def __init__(self, task, image, shape, file):
        self.task, self.image, self.shape, self.file = task, image, shape, file
        self.field, self.units = FittedField(task.fitted), ChannelUnits.of(task.fitted, image.shape[2])
        # For each window, a lower bound on the smallest eigenvalue of J
        self.least = []

    def storage(self, n_values, dtype):
        """Return an array for the mean; a large array is stored in a file."""
        shape = (*self.shape, n_values)
        if np.prod(shape) <= tuned.VALUES_IN_MEMORY:
            return np.zeros(shape, dtype=dtype)
        return np.memmap(self.file, dtype=dtype, mode="w+", shape=shape)

    def model(self, window, n_threads):
        """Return the field of a window."""
        features = np.ascontiguousarray(self.units.seen(self.image[window.slices]))
        if not np.isfinite(features).all():
            raise ValueError(
                f"image contains NaN or infinity in rows {window.top} to {window.bottom - 1} and columns "
                f"{window.left} to {window.right - 1}."
            )
        model, certain = self.field.build_model_and_eigenvalues(features, n_threads)
        # If an edge of the window lies inside the plane, pixels near this edge lack factors and are excluded.
        near = self.field.reach
        inner = certain[
            near * (window.top > 0) : window.shape[0] - near * (window.bottom < self.shape[0]),
            near * (window.left > 0) : window.shape[1] - near * (window.right < self.shape[1]),
        ]
        self.least.append(float(inner.min()))
        return model

    def write(self, mean, out, tiles, error):
        """Write the predictions; return how many labels may change if values have the error ``error``."""
        near = []
        for tile in tiles:
            values = np.asarray(mean[tile.slices], dtype=np.float64).reshape(-1, mean.shape[2])
            predicted, distance = self.task.finished(*unscaled(self.task.fitted, [values]))
            out[tile.slices] = predicted.reshape(*tile.shape, *out.shape[2:])
            if distance is not None:
                near.append(distance[distance <= error])
        # Count the smallest distances, as long as the sum of their squares is at most the squared error.
        squares = np.cumsum(np.sort(np.concatenate(near)) ** 2) if near else np.zeros(0)
        return int(np.searchsorted(squares, error**2, side="right"))
