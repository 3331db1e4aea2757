"""Banks of linear filters for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import lru_cache
from itertools import product
from math import lcm
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError, StrOptions

from sklearn_crf._fits import fits
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_numbers
from sklearn_crf._threads import make_range_runner, map_tasks
from sklearn_crf.kernels.preprocessing.images import filter_stride, separable_responses
from sklearn_crf.preprocessing import _tuning
from sklearn_crf.preprocessing._image_transformer import (
    ChannelTransformer,
    as_images,
    continued,
    iterate_centred_planes,
)


class Separable(NamedTuple):
    """A kernel that is the outer product of a column and a row."""

    column: np.ndarray
    row: np.ndarray

    @property
    def image(self):
        """Kernel as a 2-D array."""
        return np.outer(self.column, self.row)


def build_rfs_kernels():
    """Return the 38 kernels of the RFS bank by name, each of size 49 x 49.

    There are edges and bars (first and second derivatives of Gaussians that are three times as long as wide) at three
    scales and six orientations, then a Gaussian and a Laplacian of a Gaussian with standard deviation 10. The Gaussian
    sums to one. All other kernels sum to zero, and their absolute values sum to one.
    """
    radius = 24
    down, right = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(float)
    kernels = {}
    for kind, order in (("edge", 1), ("bar", 2)):
        for scale in (1, 2, 4):
            for k in range(6):
                angle = np.pi * k / 6
                along = right * np.cos(angle) - down * np.sin(angle)
                across = right * np.sin(angle) + down * np.cos(angle)
                kernel = _evaluate_gaussian(along, 3 * scale, 0) * _evaluate_gaussian(across, scale, order)
                kernels[f"{kind}_{scale}_{30 * k}"] = _balance(kernel)
    flat = _evaluate_gaussian(down, 10, 0) * _evaluate_gaussian(right, 10, 0)
    kernels["gaussian_10"] = flat / flat.sum()
    kernels["laplacian_10"] = _balance(flat * (down**2 + right**2 - 2 * 10**2))
    return kernels


def build_gaussian_derivative_kernels(scales=(1.0, 2.0, 4.0)):
    """Return six kernels per scale, by name: a Gaussian and its first and second derivatives, times scale ** order."""
    kernels = {}
    for scale in scales:
        radius = int(4 * scale + 0.5)
        at = np.arange(-radius, radius + 1, dtype=float)
        smooth = _evaluate_gaussian(at, scale, 0)
        profiles = {order: _evaluate_gaussian(at, scale, order) / smooth.sum() * scale**order for order in (0, 1, 2)}
        for down, right in ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)):
            kernels[f"derivative_{down}{right}_{scale:g}"] = Separable(profiles[down], profiles[right])
    return kernels


def build_haar_kernels(sizes=(2, 4, 8, 16)):
    """Return four box kernels per size, by name: mean, difference of halves along each axis, product of differences."""
    kernels = {}
    for size in sizes:
        flat = np.full(size, 1 / size)
        step = np.where(np.arange(size) < size // 2, flat, -flat)
        for name, column, row in (
            ("mean", flat, flat),
            ("upper_lower", step, flat),
            ("left_right", flat, step),
            ("diagonal", step, step),
        ):
            kernels[f"haar_{name}_{size}"] = Separable(column, row)
    return kernels


def build_dct_kernels(side=8, n_waves=4):
    """Return products of the ``n_waves`` slowest cosines over a square, by name; the constant product is first."""
    waves = scipy.fft.dct(np.eye(side), axis=0, norm="ortho")[:n_waves] / np.sqrt(side)
    return {f"dct_{i}{j}": Separable(waves[i], waves[j]) for i in range(n_waves) for j in range(n_waves)}


BANKS = {
    "rfs": build_rfs_kernels,
    "gaussian_derivatives": build_gaussian_derivative_kernels,
    "haar": build_haar_kernels,
    "dct": build_dct_kernels,
}

# Side of patches in pixels; number of principal components to use as kernels; number of sampled patches.
_PCA_SIDE, _N_COMPONENTS, _N_PATCHES = 7, 24, 50_000


def compute_principal_kernels(images):
    """Return the mean and the leading principal components of the 7 x 7 patches of images, by name."""
    moments = np.zeros((_PCA_SIDE**2, _PCA_SIDE**2))
    rng = np.random.default_rng(0)
    for image in images:
        padded = np.pad(image, [(0, max(0, _PCA_SIDE - length)) for length in image.shape[:2]] + [(0, 0)], mode="edge")
        patches = sliding_window_view(padded, (_PCA_SIDE, _PCA_SIDE), axis=(0, 1))
        places = [rng.integers(length, size=_N_PATCHES // len(images) + 1) for length in patches.shape[:2]]
        seen = patches[tuple(places)].reshape(-1, _PCA_SIDE**2).astype(np.float64)
        seen -= seen.mean(axis=1, keepdims=True)
        moments += seen.T @ seen
    components = np.linalg.eigh(moments)[1][:, ::-1].T
    # The sign of an eigenvector is arbitrary, so make its largest entry positive.
    components *= np.sign(components[np.arange(len(components)), np.abs(components).argmax(axis=1)])[:, None]
    kernels = {"mean": Separable(*np.full((2, _PCA_SIDE), 1 / _PCA_SIDE))}
    for k, component in enumerate(components[:_N_COMPONENTS]):
        kernels[f"pca_{k}"] = component.reshape(_PCA_SIDE, _PCA_SIDE) / np.abs(component).sum()
    return kernels


def _evaluate_gaussian(x, scale, order):
    """Return an unnormalised Gaussian, or its first or second derivative, at x."""
    value = np.exp(-0.5 * (x / scale) ** 2)
    return value * {0: 1.0, 1: -x / scale**2, 2: (x**2 - scale**2) / scale**4}[order]


def _balance(kernel):
    """Shift and scale a kernel so that its entries sum to zero, and their absolute values sum to one."""
    kernel = kernel - kernel.mean()
    return kernel / np.abs(kernel).sum()


@options(kw_only=False)
class FilterBank(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Compute the responses of every pixel to a bank of linear filters, in float32.

    .. math::
        r_k(i, j) = \sum_{a, b} f_k(a, b) \, x(i + a, j + b)

    for each channel x. Images are extended by reflection. Kernels that are products of a column and a row are applied
    as two 1-D filters, all other kernels by the fast Fourier transform.

    Parameters
    ----------
    bank : str, tuple of str, or array-like of shape (n_filters, height, width), default="rfs"
        ``"rfs"``: 38 edges, bars and blobs (three scales, six orientations). ``"gaussian_derivatives"``: Gaussians with
        standard deviations 1, 2 and 4 and their derivatives up to second order. ``"haar"``: means of boxes of 2, 4, 8
        and 16 pixels, and differences of their halves. ``"dct"``: the 16 slowest cosines over squares of 8 x 8 pixels.
        ``"pca"``: the mean and the 24 leading principal components of the 7 x 7 patches of the images given to ``fit``.
        An array holds the kernels themselves. The origin of a side of length n is entry ``n // 2``.
    include_input : bool, default=True
        Whether the output begins with the channels of the input.
    n_jobs : int or None, default=None
        Number of threads over images and filters; results do not depend on it.

    Attributes
    ----------
    n_channels_ : int
        Number of channels of the images seen in ``fit``.
    kernels_ : list of ndarray of shape (height, width)
        The filters.
    reach_ : int
        Largest row or column distance between a pixel and the input pixels on which its responses depend.

    References
    ----------
    M. Varma and A. Zisserman. A Statistical Approach to Texture Classification from Single Images. International
    Journal of Computer Vision 62, 2005, :doi:`10.1007/s11263-005-4635-4` (the RFS bank).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import FilterBank
    >>> FilterBank("rfs").fit_transform(np.zeros((2, 20, 30))).shape
    (2, 20, 30, 39)
    """

    _parameter_constraints: ClassVar[dict] = {
        "bank": [StrOptions({*BANKS, "pca"}), "array-like"],
        "include_input": ["boolean"],
    }
    bank: str | Sequence[str] | ArrayLike = "rfs"
    include_input: bool = True
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> FilterBank:
        images = as_images(X)
        kernels = self._build_kernels(images)
        super().fit(images)
        self._names = list(kernels)
        self._fitted_kernels = list(kernels.values())
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        "".join(self._names)  # raises TypeError if a name is not a string
        for name, kernel in zip(self._names, self._fitted_kernels, strict=True):
            for part in kernel if isinstance(kernel, Separable) else [kernel]:
                require_numbers(name, part, (None,) * (1 if part is not kernel else 2))
                if part.dtype != np.float64 or not part.size:
                    raise ValueError(f"{name} must be float64, and not empty, got {part.dtype} of {part.shape}.")

    @property
    def kernels_(self) -> list[np.ndarray]:
        """Kernels of the filters."""
        return [kernel.image if isinstance(kernel, Separable) else kernel for kernel in self._fitted_kernels]

    @property
    def reach_(self) -> int:
        """Largest row or column distance between a pixel and the input pixels on which its responses depend."""
        return max(max(kernel.shape) // 2 for kernel in self.kernels_)

    def _name_channel_features(self) -> list[str]:
        return self._names

    def _build_feature_names(self, input_features):
        names = super()._build_feature_names(input_features)
        own = [prefix.removesuffix("_") or "intensity" for prefix in self._build_prefixes(input_features)]
        return own + names if self.include_input else names

    def _build_kernels(self, images):
        """Return the kernels by name, as arrays or as :class:`Separable`."""
        names = (self.bank,) if isinstance(self.bank, str) else self.bank
        if isinstance(names, tuple | list) and names and all(isinstance(name, str) for name in names):
            unknown = [name for name in names if name not in (*BANKS, "pca")]
            if unknown:
                known = ", ".join(map(repr, (*BANKS, "pca")))
                raise InvalidParameterError(
                    f"bank must be names from {known} or an array of kernels, got {unknown[0]!r}."
                )
            parts = [compute_principal_kernels(images) if bank == "pca" else BANKS[bank]() for bank in names]
            return {name: kernel for part in parts for name, kernel in part.items()}
        try:
            kernels = np.asarray(self.bank, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"if bank is an array of kernels, it must be numeric: {error}") from error
        if kernels.ndim != 3 or 0 in kernels.shape or not np.all(np.abs(kernels) <= _tuning.LARGEST_PIXEL):
            raise InvalidParameterError(
                f"bank given as kernels must be numbers up to {_tuning.LARGEST_PIXEL:g} of shape (n_filters, height, "
                f"width), got numbers up to {np.abs(kernels).max(initial=0):g} of shape {kernels.shape}."
            )
        return {f"filter{k}": kernel for k, kernel in enumerate(kernels)}

    def _count_outputs(self, n_channels):
        return super()._count_outputs(n_channels) + n_channels * self.include_input

    def _write(self, image, out, n_threads, before=()):
        kernels = self._fitted_kernels
        n_channels = image.shape[2]
        n_own = n_channels if self.include_input else 0
        separable = [k for k, kernel in enumerate(kernels) if isinstance(kernel, Separable)]
        whole = [k for k, kernel in enumerate(kernels) if not isinstance(kernel, Separable)]
        # Groups of kernels run on several threads. Each group transforms the tiles again, which costs little.
        groups = [np.array(whole[k : k + 19]) for k in range(0, len(whole), 19)]
        for channel, (plane, level) in enumerate(iterate_centred_planes(image)):
            own = out[..., n_own + channel * len(kernels) : n_own + (channel + 1) * len(kernels)]
            if separable:
                _write_separable(plane, [kernels[k] for k in separable], level, own, separable, n_threads)

            def run(at, n_threads, plane=plane, own=own, level=level):
                _filter_by_fourier(plane, [kernels[k] for k in at], level, own, at)

            map_tasks(run, groups, n_threads)
        # Write the input last, because writing it first would allocate all of the memory on one thread.
        out[..., :n_own] = image[..., :n_own]


@options(kw_only=False)
class ChannelUnion(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Concatenate the channels of several image transformers, :math:`[f_1(x), \ldots, f_k(x)]`."""

    _parameter_constraints: ClassVar[dict] = {"transformers": [list, tuple]}
    transformers: Sequence[ChannelTransformer]
    _: KW_ONLY
    n_jobs: int | None = None

    @fits(has_estimators=True)
    def fit(self, X: ArrayLike, y: Any = None) -> ChannelUnion:
        super().fit(X)
        self.transformers_ = [clone(part).fit(X) for part in self.transformers]
        return self

    @property
    def reach_(self) -> int:
        """Largest row or column distance between a pixel and the input pixels on which its channels depend."""
        return max(part.reach_ for part in self.transformers_)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if {part.n_channels_ for part in self.transformers_} != {self.n_channels_}:
            raise ValueError("transformers_ must have the n_channels_ of the union.")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.transformers or not all(isinstance(part, ChannelTransformer) for part in self.transformers):
            raise InvalidParameterError(
                f"transformers must be a list of image transformers, got {self.transformers!r}."
            )
        for part in getattr(self, "transformers_", ()):
            part._check_parameters()

    @property
    def period_(self) -> int:
        return lcm(*(part.period_ for part in self.transformers_))

    def _count_outputs(self, n_channels):
        return sum(part._count_outputs(n_channels) for part in self.transformers_)

    def _write(self, image, out, n_threads, before=()):
        first, before = 0, list(before)
        for part in self.transformers_:
            own = out[..., first : first + part._count_outputs(image.shape[2])]
            part._write(image, own, n_threads, before)
            before.append((part, own))
            first += own.shape[2]

    def _build_feature_names(self, input_features):
        return np.concatenate([part.get_feature_names_out(input_features) for part in self.transformers_])


def _write_separable(plane, kernels, level, out, channels, n_threads):
    """Write the responses to separable kernels, which are products of a column and a row."""
    height, width = plane.shape
    profiles: dict[bytes, int] = {}
    columns, rows = (
        np.array([profiles.setdefault(profile.tobytes(), len(profiles)) for profile in part], dtype=np.int64)
        for part in zip(*kernels, strict=True)
    )
    taps = [np.frombuffer(profile) for profile in profiles]
    before = np.array([len(own) // 2 for own in taps], dtype=np.int64)
    margin = int(before.max())
    padded = continued(plane, margin, filter_stride(width, margin))
    order = np.argsort(columns, kind="stable")
    constants = np.array([level * kernel.column.sum() * kernel.row.sum() for kernel in kernels], dtype=np.float32)
    given = (
        np.concatenate(taps).astype(np.float32),
        np.cumsum([0, *map(len, taps)], dtype=np.int64),
        before,
        columns[order],
        rows[order],
        np.array(channels, dtype=np.int64)[order],
        constants[order],
    )
    run = make_range_runner(n_threads)

    def filtered(start, stop):
        separable_responses(padded, margin, *given, start, stop, out)

    run(filtered, height, smallest_range=_tuning.FILTERED_ROWS)


def _filter_by_fourier(plane, kernels, level, out, channels):
    """Write the responses to kernels, tile by tile (overlap-save method)."""
    before = [max(kernel.shape[axis] // 2 for kernel in kernels) for axis in (0, 1)]
    after = [max((kernel.shape[axis] - 1) // 2 for kernel in kernels) for axis in (0, 1)]
    sides = [min(length, _tuning.TILE_SIDE) for length in plane.shape]
    padded = np.pad(plane, [(before[axis], after[axis]) for axis in (0, 1)], mode="symmetric")
    shape = tuple(scipy.fft.next_fast_len(sides[a] + before[a] + after[a], real=True) for a in (0, 1))
    spectra = _compute_spectra(tuple(kernel.tobytes() for kernel in kernels), tuple(k.shape for k in kernels), shape)
    constant = np.array([kernel.sum() * level for kernel in kernels], dtype=np.float32)
    starts = [range(0, length, side) for length, side in zip(plane.shape, sides, strict=True)]
    for top, left in product(*starts):
        tile = padded[top : top + sides[0] + before[0] + after[0], left : left + sides[1] + before[1] + after[1]]
        spectrum = scipy.fft.rfft2(tile, s=shape)
        bottom, right = min(top + sides[0], plane.shape[0]), min(left + sides[1], plane.shape[1])
        rows, columns = (slice(b, b + n) for b, n in zip(before, (bottom - top, right - left), strict=True))
        for k, channel in enumerate(channels):
            response = scipy.fft.irfft2(spectrum * spectra[k], s=shape)
            out[top:bottom, left:right, channel] = response[rows, columns] + constant[k]


@lru_cache(maxsize=8)
def _compute_spectra(kernels, kernel_shapes, shape):
    """Return the conjugate Fourier transforms of kernels on a grid, whose corner is the origin of each kernel."""
    spectra = []
    for data, kernel_shape in zip(kernels, kernel_shapes, strict=True):
        grid = np.zeros(shape, dtype=np.float32)
        grid[: kernel_shape[0], : kernel_shape[1]] = np.frombuffer(data).reshape(kernel_shape)
        grid = np.roll(grid, [-(length // 2) for length in kernel_shape], axis=(0, 1))
        spectra.append(np.conj(scipy.fft.rfft2(grid)))
    return np.stack(spectra)
