"""Predictions of tree fields for one image larger than memory, and how far they can be from those of the whole."""

from collections.abc import Callable, Mapping
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.inference.gaussian._tiles import mean_in_tiles
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._prediction import FittedField, unscaled
from sklearn_crf.rtf.images._units import ChannelUnits, InputSample, require_range


class TiledField(NamedTuple):
    """Values that were predicted tile by tile, next to those of the whole image."""

    # Norm of the residual of the linear system as a share of that of its right-hand side
    residual: float
    # Bound on the root mean square difference from the mean of the whole, in units of y, before clipping
    difference: float
    # Most pixels whose label can differ; 0 for values
    n_open: int
    margins: np.ndarray


class TiledTask(NamedTuple):
    """What the tiles of an image are predicted with."""

    name: str  # of the estimator, in messages
    fitted: Mapping  # attributes of the estimator
    solver: Any
    inference: Any  # the parameter
    finished: Callable  # from values (N, D) in units of y or of codes to predictions and distances to other labels
    n_jobs: int | None
    dtype: np.dtype  # of predictions
    shape: tuple = ()  # of the prediction of a pixel
    is_degraded: bool = False

    def check(self, image: np.ndarray) -> None:
        """Raise if a prediction needs all of an image at once."""
        for what, has in (("cascade", "stages_" in self.fitted), ("degradation", self.is_degraded)):
            if has:
                raise ValueError(f"{self.name} with {what} looks at all of an image: call predict.")
        if not isinstance(self.solver, ConjugateGradient):
            raise ValueError(f"inference={self.inference!r} solves all of an image at once: call predict.")
        if self.fitted.get("n_node_types_", 1) > 1:
            raise ValueError(f"{self.name} was fitted to types of nodes, which an image does not have.")
        if len(self.fitted["missing_channels_"]):
            raise ValueError(f"{self.name} for images with missing pixels looks at all of one: call predict.")
        if self.fitted["lattice_ndim_"] == 3:
            raise ValueError(f"{self.name} was fitted on volumes: call predict.")
        if image.shape[2] != (expected := self.fitted["n_features_in_"]):
            raise ValueError(f"image has {image.shape[2]} channels, but the field was fitted to {expected}.")
        require_range(self.fitted, InputSample.of([image]))


def predict_field_in_tiles(task: TiledTask, image, out, tiles, margin, max_margin) -> TiledField:
    r"""Predict a large image into ``out``.

    With u the mean that was found, :math:`u^*` the exact one, and :math:`J_F` the precisions of factors,

    .. math::
        \|u - u^*\| \le \|h - J u\| / \lambda, \qquad
        \lambda = \min_s \sum_{F \ni s} \lambda_{\min}(J_F) \le \lambda_{\min}(J).

    Labels of so many pixels can differ as have, together, no larger squared distances to another label.
    """
    # out: (H, W) or (H, W, D), sliced; tiles: list of Rectangle
    task.check(image)
    shape = out.shape[:2]
    with TemporaryFile() as file:
        plane = _Planes(task, image, shape, file)
        found = mean_in_tiles(
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
    """An image and the mean of its field, of which only windows are in memory."""

    def __init__(self, task, image, shape, file):
        self.task, self.image, self.shape, self.file = task, image, shape, file
        self.field, self.units = FittedField.of(task.fitted), ChannelUnits.of(task.fitted, image.shape[2])
        # Bounds on the least eigenvalue, one of each window
        self.least = []

    def storage(self, n_values, dtype):
        """An array for the mean, in a file where it is large."""
        shape = (*self.shape, n_values)
        if np.prod(shape) <= tuned.VALUES_IN_MEMORY:
            return np.zeros(shape, dtype=dtype)
        return np.memmap(self.file, dtype=dtype, mode="w+", shape=shape)

    def model(self, window, n_threads):
        """Field of a window."""
        features = np.ascontiguousarray(self.units.seen(self.image[window.slices]))
        if not np.isfinite(features).all():
            raise ValueError(
                f"image contains NaN or infinity in rows {window.top} to {window.bottom - 1} and columns "
                f"{window.left} to {window.right - 1}."
            )
        model, certain = self.field.model_and_eigenvalues(features, n_threads)
        # Pixels next to where the window was cut off lack factors that the plane has.
        near = self.field.reach
        inner = certain[
            near * (window.top > 0) : window.shape[0] - near * (window.bottom < self.shape[0]),
            near * (window.left > 0) : window.shape[1] - near * (window.right < self.shape[1]),
        ]
        self.least.append(float(inner.min()))
        return model

    def write(self, mean, out, tiles, error):
        """Write what is predicted, and count the pixels whose label can differ by an error of the values."""
        near = []
        for tile in tiles:
            values = np.asarray(mean[tile.slices], dtype=np.float64).reshape(-1, mean.shape[2])
            predicted, distance = self.task.finished(*unscaled(self.task.fitted, [values]))
            out[tile.slices] = predicted.reshape(*tile.shape, *out.shape[2:])
            if distance is not None:
                near.append(distance[distance <= error])
        # How many distances there can be whose squares sum up to no more than that of an error.
        squares = np.cumsum(np.sort(np.concatenate(near)) ** 2) if near else np.zeros(0)
        return int(np.searchsorted(squares, error**2, side="right"))
