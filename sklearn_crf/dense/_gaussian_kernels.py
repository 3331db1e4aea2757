"""Gaussian kernels of dense fields: the features by which pixels are compared, and bandwidths of the features."""

from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np

from sklearn_crf._numbers import as_array
from sklearn_crf.dense._examples import DenseExample
from sklearn_crf.models import PermutohedralFilter


class GaussianKernel:
    """Base class of kernels. The parameters of a kernel are bandwidths and a weight."""

    bandwidth: float | tuple[float, ...]
    weight: float

    def _check(self, name):
        """Raise ValueError if a parameter is invalid.

        ``name`` is the name of the kernel in error messages.
        """
        for parameter in list_bandwidth_names(self):
            values = as_array(getattr(self, parameter), f"{name}.{parameter}")
            if values.dtype.kind not in "iuf" or values.ndim > 1 or not np.all(np.isfinite(values) & (values > 0)):
                raise ValueError(
                    f"{name}.{parameter} must be positive and finite, a number or one per axis, got "
                    f"{getattr(self, parameter)!r}."
                )
        if not isinstance(self.weight, Real) or not np.isfinite(self.weight):
            raise ValueError(f"{name}.weight must be a finite number, got {self.weight!r}.")

    def features(self, example: DenseExample, name: str) -> np.ndarray:
        """Return the positions, and for bilateral kernels also the colours, of pixels, divided by the bandwidths.

        Parameters
        ----------
        example : DenseExample
        name : str
            Name of the kernel in errors.

        Returns
        -------
        ndarray of shape (n_nodes, n_axes) or (n_nodes, n_axes + n_channels)
        """
        n_axes = len(example.shape)
        n_channels = example.n_channels if isinstance(self, Bilateral) else 0
        bandwidth = _expand_per_axis(self.bandwidth, n_axes, f"{name}.bandwidth", "axes of the lattice")
        step = np.ones(n_axes) if example.spacing is None else np.asarray(example.spacing, dtype=np.float64)
        features = np.empty((*example.shape, n_axes + n_channels), example.kind)
        for axis, column in enumerate(_assign_axis_columns(n_axes)):
            coordinate = np.arange(example.shape[axis]) * (step[axis] / bandwidth[axis])
            features[..., column] = coordinate.reshape(-1, *[1] * (n_axes - 1 - axis))
        if isinstance(self, Bilateral):
            own = _expand_per_axis(self.channel_bandwidth, n_channels, f"{name}.channel_bandwidth", "channels")
            features[..., -n_channels:] = example.image / own.astype(features.dtype)
        return features.reshape(-1, features.shape[-1])


@dataclass(frozen=True)
class Spatial(GaussianKernel):
    r"""Kernel of positions: nearby pixels tend to have the same label.

    .. math::
        k(i, j) = \exp\Big(-\frac{\lVert p_i - p_j \rVert^2}{2 \theta^2}\Big)

    Parameters
    ----------
    bandwidth : float or tuple of shape (n_axes,), default=3.0
        :math:`\theta` in pixels, or in the units of the ``spacing`` of examples. A single number for all axes of the
        lattice, or one number for each axis.
    weight : float, default=2.0
        Weight of the kernel, or its initial value if weights are learned. The kernel is normalised, so that it adds at
        most its weight to a score.

    Examples
    --------
    >>> from sklearn_crf import Spatial
    >>> Spatial(2.0)
    Spatial(bandwidth=2.0, weight=2.0)
    """

    bandwidth: float | tuple[float, ...] = 3.0
    weight: float = 2.0


@dataclass(frozen=True)
class Bilateral(GaussianKernel):
    r"""Kernel of positions and colours: similar pixels tend to have the same label, even at some distance.

    .. math::
        k(i, j) = \exp\Big(-\frac{\lVert p_i - p_j \rVert^2}{2 \theta_p^2}
            - \frac{\lVert c_i - c_j \rVert^2}{2 \theta_c^2}\Big)

    Parameters
    ----------
    bandwidth : float or tuple of shape (n_axes,), default=80.0
        :math:`\theta_p` for positions, as in :class:`Spatial`.
    channel_bandwidth : float or tuple of shape (n_channels,), default=13.0
        :math:`\theta_c` for colours of 0 to 255, to which images of other types and ranges are rescaled. A single
        number for all channels, or one number for each channel.
    weight : float, default=1.0
        As in :class:`Spatial`.

    Examples
    --------
    >>> from sklearn_crf import Bilateral
    >>> Bilateral(60.0, 20.0)
    Bilateral(bandwidth=60.0, channel_bandwidth=20.0, weight=1.0)
    """

    bandwidth: float | tuple[float, ...] = 80.0
    channel_bandwidth: float | tuple[float, ...] = 13.0
    weight: float = 1.0


def _assign_axis_columns(n_axes):
    # The order of columns determines the orientation of the permutohedral lattice, and thus the error of the filter.
    # For images, x comes before y, so that results agree with pydensecrf. For volumes, axes keep their order.
    return [1, 0] if n_axes == 2 else list(range(n_axes))


def _expand_per_axis(bandwidth, n, name, what):
    bandwidth = np.asarray(bandwidth, dtype=np.float64)
    if bandwidth.ndim and bandwidth.shape != (n,):
        raise ValueError(f"{name} has {len(bandwidth)} values, but the example has {n} {what}.")
    return np.broadcast_to(bandwidth, (n,))


def check_kernels(kernels):
    """Raise TypeError or ValueError if the kernels of a field are invalid."""
    if not isinstance(kernels, list | tuple) or not all(isinstance(kernel, GaussianKernel) for kernel in kernels):
        raise TypeError(f"kernels must be a tuple of kernels such as Spatial() and Bilateral(), got {kernels!r}.")
    for m, kernel in enumerate(kernels):
        kernel._check(f"kernels[{m}]")


def list_bandwidth_names(kernel: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a kernel that are bandwidths."""
    return tuple(field.name for field in fields(kernel) if field.name != "weight")


def scaled(kernel, parameter, factor):
    """Return a copy of the kernel in which one bandwidth is multiplied by a factor."""
    value = np.multiply(getattr(kernel, parameter), factor).tolist()
    return replace(kernel, **{parameter: tuple(value) if isinstance(value, list) else value})


def scale_kernels(kernels, factors):
    """Return copies of the kernels in which each bandwidth is multiplied by its factor."""
    # factors: (n_bandwidths,), in the order of the kernels; a bandwidth given per axis has one factor per axis
    found = []
    for kernel in kernels:
        for name in list_bandwidth_names(kernel):
            size = np.size(getattr(kernel, name))
            own, factors = factors[:size], factors[size:]
            kernel = scaled(kernel, name, own if np.ndim(getattr(kernel, name)) else own[0])
        found.append(kernel)
    return found


def compute_bandwidth_slopes(kernel, by_columns, n_axes):
    """Sum derivatives for logarithms of the scales of feature columns to derivatives for logarithms of bandwidths."""
    # by_columns: (n_axes + n_channels,); returns: (n_bandwidths,)
    positions, channels = np.split(by_columns, [n_axes])
    parts = {"bandwidth": positions[_assign_axis_columns(n_axes)], "channel_bandwidth": channels}
    names = list_bandwidth_names(kernel)
    return np.concatenate(
        [parts[name] if np.ndim(getattr(kernel, name)) else parts[name].sum(keepdims=True) for name in names]
    )


def build_filters(kernels, example, name, *, blur="single", max_memory=2**33, n_threads=1):
    """Return the filters of an example, one for each kernel."""
    # name: name of the example in errors
    filters, left = [], max_memory
    for m, kernel in enumerate(kernels):
        where = f"kernels[{m}]"
        if isinstance(kernel, Bilateral) and example.image is None:
            raise ValueError(f"{name} has no image, but {where} ({kernel!r}) needs an image.")
        try:
            smooth = PermutohedralFilter(
                kernel.features(example, where), blur=blur, max_memory=left, n_threads=n_threads
            )
        except (ValueError, MemoryError) as error:
            # The class of the error is not reused, because NumPy's subclass of MemoryError takes no message.
            kind = MemoryError if isinstance(error, MemoryError) else ValueError
            raise kind(f"{name}, {where}: {error}") from error
        filters.append(smooth)
        left -= smooth.memory
    return tuple(filters)
