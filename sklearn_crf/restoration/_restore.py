"""Restoration of photographs: noise, JPEG blocks, missing pixels, blur and low resolution."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

import sklearn_crf.preprocessing
from sklearn_crf import _ranges
from sklearn_crf._numbers import as_array, as_integer, as_pixels, as_reals
from sklearn_crf.encoding._batches import make_object_array
from sklearn_crf.restoration import _tuning as tuned
from sklearn_crf.restoration._filter_training import estimate_table_unit
from sklearn_crf.restoration._learned_filters import LearnedFilters, restore_planes
from sklearn_crf.restoration._noise import PhotoNoise
from sklearn_crf.rtf import JPEG, Blur, Downsampling, GaussianNoise, MissingPixels, RegressionTreeField
from sklearn_crf.rtf._tuning import LEAST_NOISE
from sklearn_crf.rtf.images._corruption import choose_noise_levels, estimate_noise, find_least_step

# Folder of the models that were trained on sample photographs; each kind of damage has a JSON file.
FOLDER = Path(__file__).with_name("fields")

# For each quality preset, the options of the learned filters that remove noise and JPEG blocks.
PRESETS: dict[str, dict] = {
    "fast": {"n_stages": 3, "n_filters": 12},
    "default": {},
    "high": {"filter_size": 7},
}

# Class and parameters of the estimator for each kind of damage. Noise and JPEG have an estimator for each preset.
# Predictions are not rounded, because planes of opponent colours are not bytes.
FIELDS: dict[str, tuple] = {
    f"{name}_{preset}": (LearnedFilters, {"corruption": corruption, "validation_fraction": 0, **filters})
    for name, corruption in (("noise", GaussianNoise(5, 50)), ("jpeg", JPEG(5, 40)))
    for preset, filters in PRESETS.items()
} | {
    "missing": (RegressionTreeField, {"corruption": MissingPixels(0.2, 0.8)}),
    "blur": (RegressionTreeField, {"degradation": Blur(np.full((9, 9), 1 / 81), noise=2.0)}),
    "zoom": (RegressionTreeField, {"degradation": Downsampling(2, noise=2.0)}),
}

# Attributes that only record training, and are not needed for predictions.
_RECORDS = {
    "loss_curve_",
    "round_ends_",
    "n_iter_",
    "validation_curve_",
    "held_out_errors_",
}

# Advice for images with isolated values.
_ADVICE = "These pixels are returned unchanged: mark missing pixels by NaN or with mask."

# Matrix from red, green and blue to brightness and two opponent colours.
# The rows of the matrix are orthogonal, so white noise remains independent between brightness and colours.
_OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.array([[3], [2], [4]])
_GREY = np.array([0, 127.5, 127.5])
# The mean variance of red, green and blue is the weighted sum of the variances of the planes, with these weights.
_WEIGHTS = np.square(np.linalg.inv(_OPPONENT)).mean(axis=0)


def restore(
    image: Any,
    *,
    noise: str | float = "auto",
    jpeg: bool | str = "auto",
    mask: Any = None,
    kernel: ArrayLike | None = None,
    scale: int = 1,
    quality: str = "default",
    n_jobs: int | None = None,
) -> Any:
    r"""Restore a photograph: remove noise or JPEG blocks, fill in missing pixels, undo a known blur, or enlarge.

    .. math::
        u = \Big( J(x) + \tfrac{1}{\sigma^2} K^\top K \Big)^{-1} \Big( h(x) + \tfrac{1}{\sigma^2} K^\top x \Big)

    J and h belong to a :class:`~sklearn_crf.RegressionTreeField` that comes with the package. This field was trained on
    the sample photographs of scikit-learn and scikit-image. K is the blur or the loss of resolution. Noise and JPEG
    blocks are removed by :class:`~sklearn_crf.LearnedFilters`, trained on the same photographs. Colour images are
    restored as brightness and two opponent colours.

    Parameters
    ----------
    image : array-like of shape (H, W), (H, W, 3) or (H, W, 4), or list of such images
        Grey image, red-green-blue image, or colour image with an alpha channel, which is only enlarged. Types are
        bytes, 16-bit integers, booleans and floats. The range of floats is 0 to 1 or -1 to 1 if all values lie in it,
        and otherwise 0 to 255 or the range of the values. If the values only use a small part of such a range, the
        range of the values replaces it, except in bytes. Isolated values, such as -9999, are returned unchanged. NaN
        marks missing pixels.
    noise : "auto" or float, default="auto"
        Standard deviation of the noise, in units of the image. "auto" estimates it separately for brightness and for
        each opponent colour, from the finest detail in smooth regions, also if it grows with brightness. With
        ``kernel``, the frequencies that the blur reduces most are another estimate, and the lower one is used. With
        ``scale``, "auto" assumes an image without noise. A given level may describe noise that channels share.
    jpeg : bool or "auto", default="auto"
        Whether to remove the blocks and ripples of JPEG compression instead of noise. The quality is estimated. "auto"
        removes blocks and ripples if the image was compressed at a quality of at most about 85, and if its noise is
        weaker than the smallest quantisation step. If ``noise``, ``mask``, ``kernel`` or ``scale`` is given, "auto" is
        False.
    mask : array-like of bool of shape (H, W), or list of them, optional
        True for missing pixels. All other pixels are returned unchanged, also if no pixel is missing.
    kernel : array-like of shape (h, w), optional
        Kernel that blurred the image, with its centre at ``kernel[h // 2, w // 2]``. The kernel is divided by its sum.
    scale : int, default=1
        How many times larger the result is along each axis: 2, 3 or 4.
    quality : {"fast", "default", "high"}, default="default"
        Size of the model for noise and JPEG blocks. "fast" takes about a quarter of the time of "default", and "high"
        takes three times as long as "default". Other damage has a single model.
    n_jobs : int, optional
        Number of threads; results do not depend on it.

    Returns
    -------
    ndarray, or list of ndarray
        Restored images of the type of ``image``, enlarged by ``scale`` along each axis.

    Raises
    ------
    ValueError
        If an image has another shape or infinite values, no pixel is known, ``noise`` is more than the range of an
        image, or more than one of ``jpeg``, ``mask``, ``kernel`` and ``scale`` is given.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, PhD thesis, TU Wien 2012, Part III. U.
    Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind deblurring. CVPR 2013. Y. Chen and
    T. Pock. Trainable nonlinear reaction diffusion. IEEE Transactions on Pattern Analysis and Machine Intelligence
    39(6), 2017, :doi:`10.1109/TPAMI.2016.2596743`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import restore
    >>> clean = np.kron(np.random.default_rng(0).random((8, 8)), np.ones((12, 12)))
    >>> noisy = clean + 0.1 * np.random.default_rng(1).normal(size=clean.shape)
    >>> (
    ...     float(np.std(noisy - clean).round(2)),
    ...     float(np.std(restore(noisy) - clean).round(2)),
    ... )
    (0.1, 0.02)
    """
    task = _Task.of(noise, jpeg, kernel, scale, quality, n_jobs)
    if not isinstance(image, list | tuple):
        return _restore_image(image, mask, task, "image")
    masks = mask if isinstance(mask, list | tuple) else [mask] * len(image)
    if len(masks) != len(image):
        raise ValueError(f"mask holds {len(masks)} masks, but image holds {len(image)} images.")
    return [
        _restore_image(own, gaps, task, f"image[{i}]") for i, (own, gaps) in enumerate(zip(image, masks, strict=True))
    ]


class _Task(NamedTuple):
    """Damage to undo in all images."""

    noise: Any
    jpeg: bool | str
    kernel: np.ndarray | None
    scale: int
    quality: str
    n_jobs: int | None

    @classmethod
    def of(cls, noise: Any, jpeg: Any, kernel: Any, scale: Any, quality: Any, n_jobs: Any) -> _Task:
        """Check the parameters, and return the task."""
        choose_noise_levels(noise, [np.zeros((2, 2))], 1.0)
        if np.ndim(noise):
            raise ValueError(f"noise must be 'auto' or a positive number, got {noise!r}.")
        scale = as_integer(scale, "scale", lowest=1, highest=4)
        if kernel is not None:
            kernel = as_reals(kernel, "kernel")
            if kernel.ndim != 2 or not np.isfinite(kernel).all() or not kernel.sum() > 0:
                raise ValueError(
                    f"kernel must be a matrix of finite numbers of positive sum, got shape {kernel.shape}."
                )
            kernel = kernel / kernel.sum()
            if scale > 1:
                raise ValueError("kernel and scale cannot be given together: undo the blur first, then enlarge.")
        is_automatic = isinstance(jpeg, str) and jpeg == "auto"
        if not (is_automatic or isinstance(jpeg, bool | np.bool_)):
            raise ValueError(f"jpeg must be True, False or 'auto', got {jpeg!r}.")
        has_other_damage = kernel is not None or scale > 1 or not isinstance(noise, str)
        if has_other_damage and not is_automatic and jpeg:
            raise ValueError("jpeg=True cannot be combined with noise, kernel or scale: remove the blocks first.")
        if not isinstance(quality, str) or quality not in PRESETS:
            raise ValueError(f"quality must be 'fast', 'default' or 'high', got {quality!r}.")
        chosen = "auto" if is_automatic and not has_other_damage else not is_automatic and bool(jpeg)
        return cls(noise, chosen, kernel, scale, quality, n_jobs)

    def on(self, photo: _Photo) -> _Task:
        """Return the task for one photo; in this task, ``jpeg`` is True or False."""
        return self if self.jpeg != "auto" else self._replace(jpeg=photo.gaps is None and photo.is_compressed)

    def planes(self, planes: list, levels: Any) -> list:
        """Restore planes (H, W) in the range of bytes; ``levels`` is "auto", or holds each plane's level or unit."""
        if self.jpeg:
            return restore_planes(load_trained_field(f"jpeg_{self.quality}", self.n_jobs), planes, levels)
        if self.kernel is None and self.scale == 1:
            field = load_trained_field(f"noise_{self.quality}", self.n_jobs)
            return restore_planes(field, planes, [max(level, LEAST_NOISE * field.unit_) for level in levels])
        field = load_trained_field("zoom" if self.kernel is None else "blur", self.n_jobs)
        images = _convert_planes(planes)
        made_by, what = (Downsampling, self.scale) if self.kernel is None else (Blur, self.kernel)
        if isinstance(levels, str):
            levels = [self._estimate_noise(plane) for plane in planes]
        made = [made_by(what, noise=max(level, tuned.LEAST_NOISE)) for level in levels]
        return list(field.predict(images, degradation=made))

    def _estimate_noise(self, plane: np.ndarray) -> float:
        """Estimate the noise of a blurred plane.

        The smaller of two estimates is returned: from the frequencies that the blur reduces most, and from smooth
        regions. Detail of the image, for example if the kernel does not blur, can only increase either estimate.
        """
        if self.kernel is None:  # enlargement: the detail of a small image cannot be distinguished from noise
            return tuned.LEAST_NOISE
        # The Hann window of two values is 0.
        window = np.outer(*(np.hanning(side) if side > 2 else np.ones(side) for side in plane.shape))
        power = np.abs(np.fft.rfft2((plane - plane.mean()) * window)) ** 2 / np.sum(window**2)
        gain = np.abs(np.fft.rfft2(self.kernel, plane.shape))
        # The power of white noise has an exponential distribution, whose median is log(2) times its mean.
        lost = np.sqrt(np.median(power[gain <= np.quantile(gain, tuned.BLURRED_AWAY)]) / np.log(2))
        return min(float(lost), estimate_noise(plane))


def _restore_image(image: Any, mask: Any, task: _Task, name: str) -> np.ndarray:
    """Restore one image."""
    photo = _Photo.of(image, mask, name)
    gaps, task = photo.gaps, task.on(photo)
    if not isinstance(task.noise, str) and task.noise * photo.unit > _ranges.BYTES[1]:
        raise ValueError(
            f"noise={task.noise:g} is more than the range of all values of {name}: give noise in the units of {name}."
        )
    if gaps is None:
        if not task.jpeg and task.kernel is None and task.scale == 1:
            return _remove_noise(photo, task)
        levels = photo.divide_noise(task.noise, photo.planes)
        if task.jpeg:
            levels = [estimate_table_unit(photo.bytes)] * len(photo.planes)
        return photo.made(photo.join(task.planes(photo.planes, levels)), task.scale)
    if task.jpeg or task.kernel is not None or task.scale > 1 or not isinstance(task.noise, str):
        raise ValueError(
            f"{name} has missing pixels or a mask, and filling pixels cannot be combined with other restoration: omit "
            "noise, jpeg, kernel and scale."
        )
    if not gaps.any():
        return photo.image.copy()
    planes = [np.where(gaps, np.nan, plane) for plane in photo.planes]
    filled = load_trained_field("missing", task.n_jobs).predict(_convert_planes(planes))
    return photo.made(photo.join(filled))


def _remove_noise(photo: _Photo, task: _Task) -> np.ndarray:
    """Remove noise that may grow with brightness and that may be clipped to the range of the photo."""
    values = photo.bytes
    noise = PhotoNoise.of(values, is_white=not isinstance(task.noise, str), bounded=photo.bounded)
    planes, clipped = photo.divide(noise.stabilise(values)), noise.fraction
    levels = photo.divide_noise(task.noise, planes, clipped)
    if isinstance(levels, str):
        # The minimum of 1e-6 is positive, but lower than the lowest noise level of any model.
        levels = [max(estimate_noise(plane, clipped), 1e-6) for plane in planes]
    restored = photo.join(task.planes(planes, levels))
    return photo.made(noise.invert(restored, np.sqrt(_WEIGHTS[: len(levels)] @ np.square(levels))))


class _Photo(NamedTuple):
    """Image that can be converted to planes of brightness and opponent colours, in the range of bytes, and back."""

    image: np.ndarray
    colours: np.ndarray  # (H, W) or (H, W, 3), as floats
    alpha: np.ndarray | None  # (H, W)
    ends: tuple[float, float]  # ends of the range of colours
    gaps: np.ndarray | None  # mask (H, W) of missing pixels, whose colours are arbitrary; None without mask and NaN
    is_isolated: np.ndarray  # mask (H, W) of pixels with isolated values, which are kept

    @classmethod
    def of(cls, image: Any, mask: Any, name: str) -> _Photo:
        """Check an array (H, W), (H, W, 3) or (H, W, 4), and convert it to a photo."""
        image = as_pixels(image, name)
        if image.ndim == 3 and image.shape[2] == 1:
            raise ValueError(f"{name} has shape {image.shape}: pass a grey image as {name}[..., 0].")
        if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)) or min(image.shape[:2]) < 2:
            raise ValueError(
                f"{name} must have shape (H, W), (H, W, 3) or (H, W, 4) with at least two rows and columns, got "
                f"{image.shape}: pass several images as a list, and grey images without an alpha channel."
            )
        if np.isinf(image).any():
            raise ValueError(f"{name} holds infinity: mark missing pixels by NaN or with mask.")
        given = np.array(image[..., :3] if image.ndim == 3 else image, order="C")
        gaps = _find_gaps(given, mask, name)
        given[gaps] = np.median(given[~gaps]).astype(given.dtype)
        (clipped,) = _ranges.clip_isolated_values([given], [name], _ADVICE)
        alpha = image[..., 3] if image.ndim == 3 and image.shape[2] == 4 else None
        ends = _ranges.get_type_range(image) or _ranges.estimate_color_range([clipped])
        # Values that use only a small part of their range replace it, except in dark photographs of bytes.
        if ends != _ranges.BYTES and _ranges.uses_hardly_any_of(ends, [clipped]):
            ends = _ranges.find_ends([clipped])
        is_isolated = (clipped != given).reshape(*gaps.shape, -1).any(axis=2)
        gaps = None if mask is None and not gaps.any() else gaps
        return cls(image, clipped.astype(np.float64), alpha, ends, gaps, is_isolated)

    @property
    def bounded(self) -> tuple[bool, bool]:
        """Whether each of ``ends`` is the end of a usual range or 0, not just an extreme value of this image."""
        is_usual = self.ends in ((0.0, 1.0), (-1.0, 1.0), _ranges.get_type_range(self.image) or _ranges.BYTES)
        return is_usual or self.ends[0] == 0, is_usual

    @property
    def unit(self) -> float:
        """Number by which values of the image are multiplied to lie in the range of bytes."""
        return _ranges.BYTES[1] / (self.ends[1] - self.ends[0])

    @property
    def bytes(self) -> np.ndarray:
        """Colours in the range of bytes."""
        return (self.colours - self.ends[0]) * self.unit

    @property
    def is_compressed(self) -> bool:
        """Whether the photo was compressed by JPEG, with noise weaker than the smallest quantisation step."""
        values = self.bytes
        step = find_least_step(values)
        return step > 0 and estimate_noise(self.divide(values)[0]) < step

    @property
    def planes(self) -> list:
        """Planes (H, W) of brightness and opponent colours, or of grey."""
        return self.divide(self.bytes)

    @staticmethod
    def divide(values: np.ndarray) -> list:
        """Return the planes of colours in the range of bytes."""
        return [values] if values.ndim == 2 else list(np.moveaxis(values @ _OPPONENT.T + _GREY, 2, 0))

    def divide_noise(self, noise: Any, planes: list, clipped: np.ndarray | None = None) -> Any:
        """Return the noise level of each plane, given the noise level of the image; return "auto" unchanged.

        If the noise of the channels is independent, the rows of ``_OPPONENT`` determine the levels. If channels share
        noise, as in a grey photo that is stored in colour, opponent colours have less noise and brightness has more.
        Levels are estimated to detect shared noise. Detail of the image can only increase an estimate, so an estimate
        below the level of independent noise is used.
        """
        # clipped: (H, W) fraction of clipped colour values at each pixel, or None
        if isinstance(noise, str) or len(planes) == 1:
            return noise if isinstance(noise, str) else [noise * self.unit]
        level, rows = noise * self.unit, np.linalg.norm(_OPPONENT[1:], axis=1)
        found = np.minimum(level * rows, [estimate_noise(plane, clipped) for plane in planes[1:]])
        return [np.sqrt(level**2 - _WEIGHTS[1:] @ found**2), *found]

    def join(self, planes: Sequence) -> np.ndarray:
        """Return the colours of restored planes, in the range of bytes."""
        if len(planes) == 1:
            return np.asarray(planes[0])
        return (np.stack(list(planes), axis=2) - _GREY) @ np.linalg.inv(_OPPONENT).T

    def made(self, values: np.ndarray, scale: int = 1) -> np.ndarray:
        """Convert restored colours to an image of the original type, and copy the original values of kept pixels."""
        values = values / self.unit + self.ends[0]
        # Noise may go beyond 0 and 255. Values of bytes are clipped after rounding.
        if self.ends != _ranges.BYTES:
            low, high = np.where(self.bounded, self.ends, (-np.inf, np.inf))
            values = np.clip(values, low, high)
        if self.image.dtype.kind in "iu":
            values = np.clip(np.rint(values), np.iinfo(self.image.dtype).min, np.iinfo(self.image.dtype).max)
        values = (values >= 0.5) if self.image.dtype == bool else values.astype(self.image.dtype)
        kept = self.is_isolated if self.gaps is None else ~self.gaps
        if scale == 1:
            values[kept] = self.image[kept][..., :3] if values.ndim == 3 else self.image[kept]
        if self.alpha is None:
            return values
        alpha = self.alpha.repeat(scale, axis=0).repeat(scale, axis=1)
        return np.concatenate([values, alpha[..., np.newaxis]], axis=2)


def _find_gaps(colours: np.ndarray, mask: Any, name: str) -> np.ndarray:
    """Return a mask (H, W) of the missing pixels."""
    found = np.isnan(colours)
    found = found.any(axis=2) if found.ndim == 3 else found
    if mask is not None:
        mask = as_array(mask, "mask")
        if mask.shape != found.shape or mask.dtype != bool:
            raise ValueError(
                f"mask of {name} must be booleans of shape {found.shape}, True where a pixel is missing, got "
                f"{mask.dtype} of shape {mask.shape}."
            )
        found = found | mask
    if found.all():
        raise ValueError(f"{name} has no known pixel.")
    return found


def _convert_planes(planes: Sequence) -> np.ndarray:
    """Convert planes to images with one channel."""
    return make_object_array([plane[..., np.newaxis].astype(np.float32) for plane in planes])


def make_damage_estimator(name: str) -> Any:
    """Return an unfitted estimator for a kind of damage."""
    kind, options = FIELDS[name]
    return kind(random_state=0, clip=None, **options)


def load_trained_field(name: str, n_jobs: int | None = None) -> Any:
    """Return the trained estimator for a kind of damage."""
    field = copy(_load(name))
    field.n_jobs = n_jobs
    return field


@cache
def _load(name: str) -> Any:
    field = make_damage_estimator(name)
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    for attribute, value in json.loads(text, object_hook=_unpack).items():
        setattr(field, attribute, value)
    return field


def save(name: str, field: Any, folder: Path = FOLDER) -> Path:
    """Write to a file those attributes of a fitted estimator that predictions need; return the path of the file."""
    state = {key: value for key, value in vars(field).items() if key not in {*field.get_params(deep=False), *_RECORDS}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(state, default=_pack, separators=(",", ":")) + "\n", encoding="utf-8")
    return path


def _pack(value: Any) -> Any:
    """Convert an array, a transformer or a NumPy scalar to an object that JSON can hold."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":  # kernels use float32; learned filters were rounded to float16
            value = value.astype("<f2" if np.array_equal(value.astype("<f2"), value) else "<f4")
        return {"bytes": b64encode(value.tobytes()).decode(), "shape": value.shape, "dtype": value.dtype.str}
    if isinstance(value, BaseEstimator):
        return {"transformer": type(value).__name__, "parameters": value.get_params(deep=False)}
    return value.item()


def _unpack(found: dict) -> Any:
    """Convert a JSON object back to the array or the fitted transformer that it stands for."""
    if "bytes" in found:
        array = np.frombuffer(b64decode(found["bytes"]), found["dtype"]).reshape(found["shape"])
        return array.astype(np.float64 if array.dtype.kind == "f" else array.dtype.newbyteorder("="))
    if "transformer" in found:
        made = getattr(sklearn_crf.preprocessing, found["transformer"])(**found["parameters"])
        # Filter banks with fixed parameters only learn the number of channels.
        return made.fit(np.zeros((1, 8, 8, 1)))
    return found
