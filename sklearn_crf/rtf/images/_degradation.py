"""Known linear degradations whose likelihood becomes part of a field: blur, downsampling, missing pixels."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.fft
import scipy.ndimage
from scipy.sparse.linalg import LinearOperator
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, InvalidParameterError

from sklearn_crf._numbers import as_array
from sklearn_crf._reports import warn_caller
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._options import Options
from sklearn_crf.rtf.images._channels import (
    ChannelUnits,
    InputSample,
    append_channel_axis,
    find_known_values,
    match_layout,
    read_clean_images,
)
from sklearn_crf.rtf.images._corruption import GaussianNoise, require_noise_within
from sklearn_crf.rtf.images._input import are_grey_images


class Degradation(Options):
    """Base class of known linear degradations, :math:`x = K y + n` with noise n."""

    _parameter_constraints: ClassVar[dict] = {"noise": [Interval(Real, 0, None, closed="neither")]}

    @property
    def step(self) -> int:
        """Number that must divide the sides of images and of their parts."""
        return 1

    @property
    def gain(self) -> float:
        """Number by which the degradation multiplies constant images, away from the border."""
        return 1.0

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Degrade an image and add noise.

        Parameters
        ----------
        image : ndarray of shape (H, W) or (H, W, C)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray, float32
        """
        self.check()
        image = np.asarray(image, dtype=np.float32)
        found = self._degrade(image[..., None] if image.ndim == 2 else image)
        found = GaussianNoise(self.noise)(found, rng)
        return found[..., 0] if image.ndim == 2 else found

    def lifted(self, observed: np.ndarray) -> np.ndarray:
        """Interpolate an observation to the lattice of the image.

        Parameters
        ----------
        observed : ndarray of shape (h, w, C)

        Returns
        -------
        ndarray of shape (H, W, C)
        """
        return observed

    def observed(self, plane: np.ndarray) -> np.ndarray:
        """Recover the observation from which a plane was interpolated; this is the inverse of :meth:`lifted`.

        Parameters
        ----------
        plane : ndarray of shape (H, W, C)

        Returns
        -------
        ndarray of shape (h, w, C)
        """
        return plane

    def transform(self, shape: tuple[int, int]) -> Any:
        """Return the linear map K for images of a given shape.

        Parameters
        ----------
        shape : (int, int)
            Height and width.

        Returns
        -------
        callable
            Function of an image that returns its observation, with methods ``masked``, ``adjoint`` and ``squares``.
        """
        raise NotImplementedError(type(self).__name__)


@dataclass(eq=False, repr=False)
class Blur(Degradation):
    r"""Convolution with a known kernel, plus white noise.

    .. math::
        x_i = \sum_a k_a \, y_{i - a + c} + \sigma \epsilon_i, \qquad \epsilon_i \sim N(0, 1)

    with the centre c of the kernel, as in :func:`scipy.ndimage.convolve`. Calling the object on an image repeats the
    pixels at its border. Fields only use observations for which the kernel lies inside the image.

    Parameters
    ----------
    kernel : array-like of shape (h, w)
        Kernel, usually with sum 1.
    noise : float
        Standard deviation :math:`\sigma`, in units of the image.

    References
    ----------
    U. Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind deblurring. CVPR 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf import Blur
    >>> image = np.zeros((5, 5))
    >>> image[2, 2] = 9
    >>> Blur(np.full((3, 3), 1 / 9), noise=1e-6)(image, np.random.default_rng(0)).round(2)[
    ...     1:4, 1:4
    ... ].tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    _parameter_constraints: ClassVar[dict] = {**Degradation._parameter_constraints, "kernel": ["array-like"]}

    kernel: Any = None
    noise: Any = None

    @property
    def gain(self) -> float:
        """Sum of the kernel, by which constant images are multiplied."""
        return float(np.sum(self.kernel))

    def check(self) -> None:
        """Raise InvalidParameterError for the first invalid parameter."""
        super().check()
        kernel = as_array(self.kernel, "kernel")
        if kernel.ndim != 2 or kernel.dtype.kind not in "iuf" or not np.isfinite(kernel).all() or not kernel.any():
            raise InvalidParameterError(
                "The 'kernel' parameter of Blur must be a matrix of finite numbers that are not all 0, got an array of "
                f"shape {kernel.shape} and type {kernel.dtype}."
            )

    def _degrade(self, image):
        kernel = np.asarray(self.kernel, dtype=np.float64)
        return np.stack(
            [scipy.ndimage.convolve(image[..., c], kernel, mode="nearest") for c in range(image.shape[2])], axis=2
        )

    def transform(self, shape: tuple[int, int]) -> Any:
        return _Convolution(np.asarray(self.kernel, dtype=np.float64), shape)


@dataclass(eq=False, repr=False)
class Downsampling(Degradation):
    r"""Averages over squares of pixels, plus white noise; the inverse task is super-resolution.

    .. math::
        x_{ij} = \frac{1}{f^2} \sum_{a, b < f} y_{f i + a, \, f j + b} + \sigma \epsilon_{ij}

    Parameters
    ----------
    factor : int
        Side f of a square. Height and width are divided by it.
    noise : float
        Standard deviation :math:`\sigma`, in units of the image.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf import Downsampling
    >>> image = np.arange(16.0).reshape(4, 4)
    >>> Downsampling(2, noise=1e-6)(image, np.random.default_rng(0)).round(2).tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """

    _parameter_constraints: ClassVar[dict] = {
        **Degradation._parameter_constraints,
        "factor": [Interval(Integral, 2, None, closed="left")],
    }

    factor: Any = None
    noise: Any = None

    @property
    def step(self) -> int:
        """Number that must divide the sides of images: the factor."""
        return self.factor

    def _degrade(self, image):
        return _average_blocks(image, self.factor)

    def lifted(self, observed: np.ndarray) -> np.ndarray:
        smooth = scipy.ndimage.zoom(
            observed, (self.factor, self.factor, 1), order=3, mode="nearest", grid_mode=True
        ).astype(np.float32)
        return smooth + _repeat(observed - _average_blocks(smooth, self.factor), self.factor)

    def observed(self, plane: np.ndarray) -> np.ndarray:
        return _average_blocks(plane, self.factor)

    def transform(self, shape: tuple[int, int]) -> Any:
        return _Averaging(self.factor, shape)


def _average_blocks(image, factor):
    # image: (f * h, f * w, D); returns (h, w, D)
    height, width = (side // factor for side in image.shape[:2])
    return image.reshape(height, factor, width, factor, -1).mean(axis=(1, 3), dtype=np.float64).astype(image.dtype)


def _repeat(image, factor):
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


class _Convolution:
    """Convolution for images of one shape, and its adjoint, at pixels where the kernel lies inside the image."""

    def __init__(self, kernel, shape):
        self.shape = shape
        # Circular convolution equals convolution wherever the kernel lies inside the plane.
        self.padded = [scipy.fft.next_fast_len(side, real=True) for side in shape]
        self.spectrum, self.of_squares = (self._transform(k) for k in (kernel, kernel**2))
        self.is_inside = np.zeros((*shape, 1), dtype=bool)
        low = [size - 1 - size // 2 for size in kernel.shape]
        high = [side - size // 2 for side, size in zip(shape, kernel.shape, strict=True)]
        self.is_inside[low[0] : max(high[0], 0), low[1] : max(high[1], 0)] = True

    def _transform(self, kernel):
        # If the kernel is larger than the image, it never lies inside, so cropping the kernel does not change results.
        height, width = (min(size, side) for size, side in zip(kernel.shape, self.padded, strict=True))
        plane = np.zeros(self.padded)
        plane[:height, :width] = kernel[:height, :width]
        plane = np.roll(plane, [-(size // 2) for size in kernel.shape], axis=(0, 1))
        return scipy.fft.rfft2(plane)[..., None].astype(np.complex64)

    def _filter(self, image, spectrum):
        spectra = scipy.fft.rfft2(image, self.padded, axes=(0, 1))
        spectra *= spectrum
        return scipy.fft.irfft2(spectra, self.padded, axes=(0, 1))[: self.shape[0], : self.shape[1]]

    def __call__(self, image):
        """Return K times an image, 0 where the kernel extends beyond the image."""
        return self.masked(self._filter(image, self.spectrum))

    def masked(self, observed):
        """Return the observation with unused pixels set to 0."""
        return np.where(self.is_inside, observed, observed.dtype.type(0))

    def adjoint(self, observed):
        """Return K transposed times an observation whose unused pixels are 0."""
        return self._filter(observed, self.spectrum.conj())

    def squares(self):
        """Return the diagonal of K'K."""
        # returns (H, W, 1)
        found = self._filter(self.is_inside.astype(np.float32), self.of_squares.conj())
        return np.maximum(found, 0)


@dataclass(eq=False)
class _Averaging:
    """Averaging over squares of pixels, for images of one shape, and its adjoint."""

    factor: int
    shape: tuple

    def __call__(self, image):
        """Return K times an image."""
        return _average_blocks(image, self.factor)

    def masked(self, observed):
        """Return the observation unchanged, because all its pixels are used."""
        return observed

    def adjoint(self, observed):
        """Return K transposed times an observation."""
        return _repeat(observed, self.factor) / observed.dtype.type(self.factor**2)

    def squares(self):
        """Return the diagonal of K'K."""
        # returns (H, W, 1)
        return np.full((*self.shape, 1), self.factor**-4.0)


class ObservationPrecision(LinearOperator):
    r"""Precision :math:`\lambda K^\top K` that an observation adds to the field of an image with D values per pixel."""

    def __init__(self, transform, n_values, strength):
        self.transform = transform
        self.n_values = n_values
        self.strength = strength
        n = int(np.prod(transform.shape)) * n_values
        super().__init__(np.float32, (n, n))
        # (N * D,)
        self.diagonal = np.repeat(strength * transform.squares().ravel(), n_values)

    def scaled(self, factor):
        """Return the precision times ``factor``."""
        return ObservationPrecision(self.transform, self.n_values, factor * self.strength)

    def _matvec(self, vector):
        image = np.reshape(vector, (*self.transform.shape, self.n_values))
        return vector.dtype.type(self.strength) * self.transform.adjoint(self.transform(image)).ravel()


class Observation(NamedTuple):
    """Terms that a degraded image adds to the Gaussian field of the restored image."""

    linear: np.ndarray  # (N, D), linear terms of the field
    start: np.ndarray  # (N, D), an image consistent with the observation, in the field's units
    precision: ObservationPrecision | None = None
    diagonal: np.ndarray | None = None  # (N, D), precision of values that are observed directly

    @classmethod
    def of(cls, degradation, plane, mean, scale, units):
        r"""Return the terms, as a function of u, of the log-likelihood of ``m + s u`` given a degraded image.

        .. math::
            -\frac{1}{2 \sigma^2} \| K (m + s u) - x \|^2
        """
        # plane: (H, W, C) with the interpolated observation in its first D channels; mean: (D,); units: plane's units
        transform = degradation.transform(plane.shape[:2])
        strength = (scale / degradation.noise) ** 2
        mean, scale = units.of_targets(mean, scale)
        observed = degradation.observed(plane[..., : len(mean)])
        if units.centre.any():
            # Subtract the level before the conversion to float32, which would otherwise lose digits.
            mean = degradation.gain * mean + units.shift(degradation.gain)[: len(mean)]
            expected = transform.masked(np.broadcast_to(mean.astype(np.float32), observed.shape))
        else:
            expected = transform(np.broadcast_to(mean.astype(np.float32), (*plane.shape[:2], len(mean))))
        rest = transform.masked((observed - expected) / np.float32(scale))
        linear = np.float32(strength) * transform.adjoint(rest.astype(np.float32))
        start = ((plane[..., : len(mean)] - mean) / scale).astype(np.float32)
        precision = ObservationPrecision(transform, len(mean), strength)
        return cls(linear.reshape(-1, len(mean)), start.reshape(-1, len(mean)), precision)


class KnownValues(NamedTuple):
    """Terms that known pixels add to the field of an image, so that the mean of the field agrees with these pixels."""

    missing: tuple  # channels of X in which pixels may be missing
    mean: np.ndarray  # (D,), mean of the targets
    scale: float
    units: ChannelUnits  # units of the channels of X

    def observation(self, plane):
        """Return the terms of the known pixels of a plane."""
        # plane: (H, W, C + 2 n)
        n_values = len(self.mean)
        known = find_known_values(plane, self.missing, n_values).reshape(-1, n_values)
        sure = tuned.PRECISION_OF_KNOWN * known.astype(np.float32)
        mean, scale = self.units.of_targets(self.mean, self.scale)
        values = ((plane[..., :n_values].reshape(-1, n_values) - mean) / scale).astype(np.float32)
        return Observation(sure * values, values, diagonal=sure)

    def put_back(self, plane, values):
        """Return predicted values, with known values restored."""
        # values: (N, D)
        n_values = len(self.mean)
        known = find_known_values(plane, self.missing, n_values).reshape(values.shape)
        given = self.units.given(plane[..., :n_values]).reshape(values.shape)
        return np.where(known, given, values).astype(values.dtype)


def solve_from_image(solver, model, start, init=None, n_threads=1):
    r"""Return the mean of a field, :math:`u_0 + J^{-1} (h - J u_0)`, for an observed image :math:`u_0`.

    The tolerance is relative to the norm of the right-hand side. The observation dominates the norm of h, but not the
    norm of :math:`h - J u_0`.
    """
    # start: (N, D); None solves for the mean directly
    if start is None:
        return solver.solve(model, model.h, init=init, n_threads=n_threads)
    rest = model.h - model.product(start)
    found = solver.solve(model, rest, init=None if init is None else init - start, n_threads=n_threads)
    return found._replace(x=start + found.x)


class Degradations(NamedTuple):
    """Degradations of the images of a data set."""

    choices: list  # for each image, a tuple with the degradation, or with several degradations to draw from
    of_clean: bool  # whether images are clean and degraded anew in every round

    @classmethod
    def of(cls, given, n_images, of_clean):
        """Read the parameter ``degradation`` of the estimator or of ``predict``."""
        several = isinstance(given, list | tuple)
        if of_clean or not several:
            return cls([tuple(given) if several else (given,)] * n_images, of_clean)
        if len(given) != n_images:
            raise ValueError(
                f"degradation holds {len(given)} degradations for {n_images} degraded images: pass one for all "
                "images, or one for each image."
            )
        return cls([(own,) for own in given], of_clean)

    @classmethod
    def to_predict(cls, trained, given, X):
        """Return the degradations for ``predict``, or None; ``trained`` is the parameter of the estimator."""
        if trained is None:
            if given is not None:
                raise ValueError("the degradation argument needs a field that was trained with a degradation.")
            return None
        if given is None and isinstance(trained, list | tuple):
            raise ValueError(
                "predict needs the argument degradation, one for all images or a list with one for each image, "
                "because the field was trained for several degradations."
            )
        if given is not None:
            check_degradation(given)
        return cls.of(trained if given is None else given, len(X), of_clean=False)

    @property
    def step(self) -> int:
        """Number that must divide the sides of images."""
        return self.choices[0][0].step


def check_degradation(given):
    """Raise InvalidParameterError unless ``given`` is a valid degradation or a list of valid degradations."""
    members = list(given) if isinstance(given, list | tuple) else [given]
    if not members or not all(isinstance(own, Degradation) for own in members):
        raise InvalidParameterError(
            f"degradation must be Blur, Downsampling, or a list of them, one for each image, got {given!r}."
        )
    for own in members:
        own.check()
    if len({own.step for own in members}) > 1:
        raise InvalidParameterError(f"all degradations must reduce images by the same factor, got {given!r}.")


def read_images(X, y, corruption, degradation, lattice_ndim):
    """Return images on the lattice of y, targets, whether a channel axis was added, and degradations."""
    # lattice_ndim: number of axes of the lattice if the user has given it, else None
    is_grey, degradations, is_clean = False, None, y is None
    if is_clean and (corruption is not None or degradation is not None):
        X, y, is_grey = read_clean_images(X)
    elif not is_clean and lattice_ndim is None and are_grey_images(X, y):
        X, is_grey = append_channel_axis(X), True
    if degradation is not None:
        degradations = Degradations.of(degradation, len(X), is_clean)
        X = X if is_clean else lifted(X, degradations)
    return X, y, is_grey, degradations


def lifted(X, degradations):
    """Interpolate degraded images to the lattices of the clean images."""
    # X: (n, h, w, C), or list of (h, w, C)
    if degradations.step == 1:
        return X
    units = ChannelUnits.of(InputSample.of(X).attributes(), np.shape(X[0])[-1])
    found = [
        units.given(own[0].lifted(units.seen(np.asarray(x)))) for x, own in zip(X, degradations.choices, strict=True)
    ]
    return match_layout(X, found)


def degrade_image(image, degradation, rng, kind=None):
    """Degrade a clean image and interpolate the result to its lattice, in the units of the user."""
    # image: (H, W, D); kind: data type of the result; float64 if float32 cannot represent it
    # ``kind=None`` stands for the data type of the image.
    kind = image.dtype if kind is None else kind
    if kind == np.float32:
        return degradation.lifted(degradation(image, rng))
    units = ChannelUnits.of(InputSample.of([image]).attributes(), image.shape[-1])
    scaled = clone(degradation).set_params(noise=degradation.noise * float(units.scale[0]))
    found = scaled.lifted(scaled(units.seen(image), rng))
    return units.given(found + units.shift(degradation.gain))


def check_degraded(planes, degradations, targets):
    """Raise ValueError if planes do not fit their degradations, as degraded images or as images to degrade.

    Warn if degraded images differ from the degraded targets by much more than the noise.
    """
    # targets: list of (N, D)
    n_values = targets[0].shape[1]
    if planes.encoded.lattice_ndim != 2 or planes.missing:
        raise ValueError("degradation needs images without missing pixels as X.")
    for i, plane in enumerate(planes.features):
        height, width, n_channels = plane.shape
        if n_channels < n_values:
            raise ValueError(f"degradation needs as many channels in X as in y, got {n_channels} and {n_values}.")
        step = degradations.step
        if height % step or width % step:
            raise ValueError(
                f"X[{i}] has {height} x {width} pixels, but Downsampling needs sides that are multiples of "
                f"factor={step}: crop the image."
            )
        for own in degradations.choices[i]:
            sides = np.shape(getattr(own, "kernel", np.ones((1, 1))))
            if sides[0] > height or sides[1] > width:
                raise ValueError(
                    f"X[{i}] has {height} x {width} pixels and is smaller than the kernel of Blur, which has {sides}."
                )
            require_noise_within(
                f"degradation={type(own).__name__}(noise={own.noise!r})", own.noise, None, planes.sample
            )
    for i, (plane, target) in enumerate(zip(planes.features, targets, strict=True)):
        own = degradations.choices[i][0]
        error = 0.0 if degradations.of_clean else _compute_error(own, planes.units.given(plane[..., :n_values]), target)
        if error > tuned.MOST_TIMES_NOISE * own.noise:
            warn_caller(
                f"X[{i}] differs from the degraded y[{i}] by {error:.3g} (root mean square), but {type(own).__name__} "
                f"has noise={own.noise:g} and multiplies constant images by {own.gain:.3g}: check its kernel or "
                "factor and its noise, and pass X and y in the same unit."
            )
            return


def _compute_error(degradation: Degradation, image: np.ndarray, target: np.ndarray) -> float:
    """Return the root mean square difference of a degraded image and the degraded target; 0 if values are missing."""
    # image: (H, W, D), interpolated observation; target: (H * W, D)
    if np.isnan(target).any():
        return 0.0
    transform, level = degradation.transform(image.shape[:2]), target.mean()
    rest = (degradation.observed(image) - degradation.gain * level).astype(np.float64)
    n_used = np.count_nonzero(transform.masked(np.ones_like(rest)))
    rest = transform.masked(rest) - transform(target.reshape(image.shape) - level)
    return float(np.sqrt(np.sum(rest**2) / max(n_used, 1)))
