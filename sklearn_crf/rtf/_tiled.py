"""Predictions of tree fields for one image larger than memory, and how far they can be from those of the whole."""

from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np

from sklearn_crf.inference import ConjugateGradient
from sklearn_crf.inference.gaussian._tiles import mean_in_tiles
from sklearn_crf.rtf.images._units import ChannelUnits, InputSample, require_range

# Most values that are kept in memory; more of them go to a temporary file.
_IN_MEMORY = 2**24


class TiledField(NamedTuple):
    """Values that were predicted tile by tile, next to those of the whole image."""

    # Norm of the residual of the linear system as a share of that of its right-hand side
    residual: float
    # Bound on the root mean square difference from the mean of the whole, in units of y, before clipping
    difference: float
    # Most pixels whose label can differ; 0 for values
    n_open: int
    margins: np.ndarray


def _require_tiles(est, image):
    """Raise if a prediction needs all of an image at once."""
    for name, has in (("cascade", hasattr(est, "stages_")), ("degradation", est._is_degraded())):
        if has:
            raise ValueError(f"{type(est).__name__} with {name} looks at all of an image: call predict.")
    if not isinstance(est._solver(1e-5), ConjugateGradient):
        raise ValueError(f"inference={est.inference!r} solves all of an image at once: call predict.")
    if getattr(est, "n_node_types_", 1) > 1:
        raise ValueError(f"{type(est).__name__} was fitted to types of nodes, which an image does not have.")
    if len(est.missing_channels_):
        raise ValueError(f"{type(est).__name__} for images with missing pixels looks at all of one: call predict.")
    if est.lattice_ndim_ == 3:
        raise ValueError(f"{type(est).__name__} was fitted on volumes: call predict.")
    if image.shape[2] != est.n_features_in_:
        raise ValueError(f"image has {image.shape[2]} channels, but the field was fitted to {est.n_features_in_}.")
    require_range(vars(est), InputSample.of([image]))


def predict_in_tiles(est, image, out, tiles, margin, max_margin):
    r"""Predict a large image into ``out``.

    With u the mean that was found, :math:`u^*` the exact one, and :math:`J_F` the precisions of factors,

    .. math::
        \|u - u^*\| \le \|h - J u\| / \lambda, \qquad
        \lambda = \min_s \sum_{F \ni s} \lambda_{\min}(J_F) \le \lambda_{\min}(J).

    Labels of so many pixels can differ as have, together, no larger squared distances to another label.
    """
    # out: (H, W) or (H, W, D), sliced; tiles: list of Rectangle
    _require_tiles(est, image)
    shape = out.shape[:2]
    with TemporaryFile() as file:
        plane = _Planes(est, image, shape, file)
        found = mean_in_tiles(
            plane.model,
            shape,
            est._solver(1e-5),
            n_jobs=est.n_jobs,
            reach=plane.field.reach,
            period=plane.field.period,
            margin=margin,
            max_margin=max_margin,
            tiles=tiles,
            mean=plane.storage,
        )
        error = est.target_scale_ * found.residual * found.norm / min(plane.least)
        n_open = plane.write(found.mean, out, tiles, error)
    size = shape[0] * shape[1] * found.mean.shape[2]
    return TiledField(found.residual, float(error / np.sqrt(size)), n_open, np.array(found.margins))


class _Planes:
    """An image and the mean of its field, of which only windows are in memory."""

    def __init__(self, est, image, shape, file):
        self.est, self.image, self.shape, self.file = est, image, shape, file
        self.field, self.units = est._fitted_field(), ChannelUnits.of(vars(est), est.n_features_in_)
        # Bounds on the least eigenvalue, one of each window
        self.least = []

    def storage(self, n_values, dtype):
        """An array for the mean, in a file where it is large."""
        shape = (*self.shape, n_values)
        if np.prod(shape) <= _IN_MEMORY:
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
            (values,) = self.est._unscaled([values])
            predicted, distance = self.est._tiled_values(values)
            out[tile.slices] = predicted.reshape(*tile.shape, *out.shape[2:])
            if distance is not None:
                near.append(distance[distance <= error])
        return _n_within(np.concatenate(near), error) if near else 0


def _n_within(distances, error):
    """How many distances there can be whose squares sum up to no more than that of an error."""
    return int(np.searchsorted(np.cumsum(np.sort(distances) ** 2), error**2, side="right"))
