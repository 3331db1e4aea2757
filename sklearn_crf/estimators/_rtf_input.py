"""What RegressionTreeField is given: parameters, images, targets; and the scaling of both."""

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_scalar

from sklearn_crf.encoding import encode_X, object_array
from sklearn_crf.encoding._layout import read_layout
from sklearn_crf.estimators._rtf_data import plane_graph
from sklearn_crf.examples import Example
from sklearn_crf.inference import ConjugateGradient


class Planes(NamedTuple):
    """Images of an estimator's X as planes, chains being planes of one row and a table one plane of one row.

    Attributes
    ----------
    features : list of ndarray of shape (H, W, F)
    offsets : ndarray of shape (n_offsets, 2)
        Rows and columns.
    encoded : Encoded
    """

    features: list
    offsets: np.ndarray
    encoded: object

    @property
    def n_axes(self):
        """Axes of the lattices, a table being a chain without edges."""
        return max(self.encoded.lattice_ndim, 1)

    def graphs(self):
        """The lattice of each plane; planes of one shape share theirs."""
        shapes = [plane.shape[:2] for plane in self.features]
        made = {shape: plane_graph(shape, self.offsets, self.n_axes) for shape in set(shapes)}
        return [made[shape] for shape in shapes]


def check_parameters(est):
    """Raise for the first constructor parameter that cannot be meant.

    Raises
    ------
    ValueError, TypeError
        Naming the parameter, what was found, and what is needed.
    """
    least = {"max_depth": 0, "feature_radius": 0, "max_iter": 1}
    for name, value in least.items():
        check_scalar(getattr(est, name), name, Integral, min_val=value)
    check_scalar(est.n_thresholds, "n_thresholds", Integral, min_val=1, max_val=255)
    check_scalar(est.tol, "tol", Real, min_val=0)
    check_scalar(est.shrinkage, "shrinkage", Real, min_val=0)
    check_scalar(
        est.validation_fraction, "validation_fraction", Real, min_val=0, max_val=1, include_boundaries="neither"
    )
    optional = {
        "max_depth_pairwise": 0, "min_samples_leaf": 1, "split_samples": 2, "n_feature_tests": 1, "max_samples": 1
    }  # fmt: skip
    for name, value in optional.items():
        if getattr(est, name) is not None:
            check_scalar(getattr(est, name), name, Integral, min_val=value)
    check_scalar(getattr(est, "cascade", 1), "cascade", Integral, min_val=1)
    if getattr(est, "data_range", None) is not None:
        check_scalar(est.data_range, "data_range", Real, min_val=0, include_boundaries="neither")
    bounds = est.eigenvalue_bounds
    if np.shape(bounds) != (2,) or not 0 < bounds[0] <= bounds[1] < np.inf:
        raise ValueError(f"eigenvalue_bounds must be two positive numbers in ascending order, got {bounds!r}.")
    if est.solver not in ("spg", "pqn"):
        raise ValueError(f"solver must be 'spg' or 'pqn', got {est.solver!r}.")
    if est.split not in ("gradient", "residual"):
        raise ValueError(f"split must be 'gradient' or 'residual', got {est.split!r}.")
    if est.inference != "auto" and not isinstance(est.inference, ConjugateGradient):
        raise ValueError(f"inference must be 'auto' or a ConjugateGradient, got {est.inference!r}.")


def chosen_channels(channels, n_channels, name="pairwise_channels"):
    """Channels that a parameter names.

    Parameters
    ----------
    channels : array-like of int, or None
    n_channels : int
    name : str
        Of the parameter.

    Returns
    -------
    tuple of int, or None for all of them

    Raises
    ------
    ValueError
        If they are not different channels of X.
    """
    if channels is None:
        return None
    read = np.asarray(channels)
    fits = read.ndim == 1 and read.dtype.kind in "iu" and len(np.unique(read)) == len(read) > 0
    if not fits or read.min() < 0 or read.max() >= n_channels:
        raise ValueError(f"{name} must be different channels of X, from 0 to {n_channels - 1}, got {channels!r}.")
    found = tuple(read.tolist())
    return None if found == tuple(range(n_channels)) else found


def multiplier_channels(channels, n_channels):
    """Channels that precisions grow with: none by default."""
    chosen = None if channels is None else chosen_channels(channels, n_channels, "precision_channels")
    return () if channels is None else chosen or tuple(range(n_channels))


def check_multipliers(features, multipliers):
    """Raise if a channel that precisions grow with is negative somewhere: they would not stay positive definite.

    Parameters
    ----------
    features : list of ndarray of shape (H, W, F)
    multipliers : tuple of int

    Raises
    ------
    ValueError
    """
    for channel in multipliers:
        least = min(float(plane[..., channel].min()) for plane in features)
        if least < 0:
            raise ValueError(f"precision_channels must never be negative, but channel {channel} of X has {least:g}.")


def read_planes(est, X, reset):
    """Images of X.

    Parameters
    ----------
    est : RegressionTreeField
    X : array-like or list of array-like
    reset : bool
        True in ``fit``.

    Returns
    -------
    Planes
    """
    layout, read = read_layout(X, None if reset else est.lattice_ndim_)
    if layout == "nodes" and sp.issparse(read):
        raise TypeError("Sparse data was passed for X, but dense data is required: use '.toarray()'.")
    ndim = 0 if layout == "nodes" else read.ndim - 2 if layout == "array" else _list_ndim(read)
    if ndim > 2:
        raise ValueError(f"X must hold images, chains or plain samples, got lattices of {ndim} axes.")
    offsets = window_offsets(est.window, ndim)
    # Without edges: those of a plane that is predicted in tiles would not fit into memory.
    none = np.zeros((0, ndim), dtype=np.int64)
    encoded = encode_X(
        read, lattice_ndim=ndim, connectivity=none, dtype=(np.float32,), estimator=est, reset=reset
    )  # fmt: skip
    planar = np.zeros((len(offsets), 2), dtype=np.int64)
    planar[:, 2 - offsets.shape[1] :] = offsets
    if layout == "nodes":
        return Planes([np.ascontiguousarray(encoded.array[None])], planar, encoded)
    features = []
    for example in encoded.examples:
        shape = example.graph.shape
        shape = (1, *shape) if len(shape) == 1 else shape
        features.append(np.ascontiguousarray(example.node_features.reshape(*shape, -1)))
    if reset:
        _check_reach(planar, features)
    return Planes(features, planar, encoded)


def _check_reach(offsets, features):
    """Raise if there is nothing to learn the pairs of some offset from."""
    largest = np.max([plane.shape[:2] for plane in features], axis=0)
    for offset in np.abs(offsets):
        if np.any(offset >= largest):
            rows, columns = largest
            raise ValueError(
                f"window joins pixels {offset[0]} rows and {offset[1]} columns apart, but images of X have at most "
                f"{rows} rows and {columns} columns: take a smaller window, or give its offsets."
            )


def _list_ndim(X):
    if isinstance(X[0], Example):
        raise ValueError("X must hold images, chains or plain samples, got Example: a window needs a lattice.")
    if any(sp.issparse(x) for x in X):
        raise TypeError("Sparse data was passed for X, but images must be dense: use '.toarray()'.")
    return X[0].ndim - 1


def window_offsets(window, ndim):
    """Offsets of the pairwise factors.

    Parameters
    ----------
    window : int or array-like of shape (n_offsets, ndim)
        An odd number joins each pixel with all others of the square of that side around it; 1 with none.
    ndim : int
        Axes of the lattices, 0 to 2.

    Returns
    -------
    ndarray of shape (n_offsets, ndim)
        One of each opposite pair.
    """
    if isinstance(window, Integral):
        if window < 1 or window % 2 == 0:
            raise ValueError(f"window must be an odd number of at least 1, or offsets, got {window!r}.")
        if ndim == 0:
            return np.zeros((0, 0), dtype=np.int64)
        reach = np.arange(-(window // 2), window // 2 + 1)
        offsets = np.stack(np.meshgrid(*[reach] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)
    else:
        offsets = np.asarray(window)
        if ndim == 0:
            return np.zeros((0, 0), dtype=np.int64)
        if offsets.ndim != 2 or offsets.shape[1] != ndim or offsets.dtype.kind not in "iu":
            raise ValueError(f"window given as offsets must be integers of shape (n_offsets, {ndim}), got {window!r}.")
    kept = {}
    for offset in offsets.tolist():
        leading = next((step for step in offset if step), 0)
        if leading:
            kept.setdefault(tuple(offset) if leading > 0 else tuple(-step for step in offset))
    return np.array(list(kept), dtype=np.int64).reshape(len(kept), ndim)


def read_targets(planes, y):
    """Targets of each plane as (N, D), and whether D was written out.

    Parameters
    ----------
    planes : Planes
    y : array-like or list of array-like

    Returns
    -------
    targets : list of ndarray of shape (N, D), float64
    has_channels : bool
    """
    if y is None:
        raise ValueError("RegressionTreeField requires y to be passed, but the target y is None.")
    encoded = planes.encoded
    if encoded.layout == "nodes":
        shapes, values = [(encoded.n_examples,)], [_finite(y, "y")]
    else:
        if len(y) != encoded.n_examples:
            raise ValueError(f"y has {len(y)} examples, but X has {encoded.n_examples}.")
        shapes = [encoded.label_shape(i) for i in range(encoded.n_examples)]
        values = [_finite(part, f"y[{i}]") for i, part in enumerate(y)]
    targets = []
    for i, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        if value.shape not in (shape, (*shape, *value.shape[len(shape) :][:1])) or value.size == 0:
            if encoded.layout == "nodes":
                raise ValueError(f"y has shape {value.shape}, but X has {shape[0]} samples: inconsistent numbers.")
            raise ValueError(f"y[{i}] has shape {value.shape}, but X[{i}] has pixels of shape {shape}.")
        if value.ndim != values[0].ndim or value.shape[len(shape) :] != values[0].shape[len(shape) :]:
            raise ValueError(f"y[{i}] has shape {value.shape}, but y[0] has shape {values[0].shape}.")
        targets.append(value.reshape(int(np.prod(shape)), -1))
    return targets, values[0].ndim > len(shapes[0])


def centre_and_scale(targets, weights):
    """Mean of each of the D values, and the standard deviation over all of them; 1 if nothing varies.

    Parameters
    ----------
    targets : list of ndarray of shape (N, D)
    weights : list of ndarray of shape (N,), or None

    Returns
    -------
    mean : ndarray of shape (D,)
    scale : float
    """
    stacked = np.concatenate(targets)
    weight = None if weights is None else np.concatenate(weights)
    mean = np.average(stacked, axis=0, weights=weight)
    variance = np.average(np.mean((stacked - mean) ** 2, axis=1), weights=weight)
    return mean, float(np.sqrt(variance)) or 1.0


def _finite(values, name):
    values = np.asarray(values)
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold real numbers, got {values.dtype}.")
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name} contains NaN or infinity.")
    return values


def put_back(planes, values, has_channels):
    """Values (N, D) of each plane in the layout of X."""
    encoded = planes.encoded
    values = [value if has_channels else value[:, 0] for value in values]
    if encoded.layout == "nodes":
        return values[0]
    values = [value.reshape(*encoded.label_shape(i), *value.shape[1:]) for i, value in enumerate(values)]
    return np.stack(values) if encoded.layout == "array" else object_array(values)
