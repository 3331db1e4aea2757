"""Base classes of image transformers, with checks of the input and the layout of the output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_integer, as_pixels
from sklearn_crf._threads import map_coarse
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import make_object_array
from sklearn_crf.preprocessing._tuning import LARGEST_PIXEL


def is_stack(X):
    """Return whether X is an array of images of equal size."""
    return isinstance(X, np.ndarray) and X.dtype != object


def as_images(X):
    """Return a list of (H, W, C) arrays, float32 or float64, after checking the images."""
    if is_stack(X) and X.ndim not in (3, 4):
        raise ValueError(
            f"X must be images of shape (n, H, W) or (n, H, W, C), got {X.shape}: pass one image as X[np.newaxis]."
        )
    if is_stack(X) and X.ndim == 3 and X.shape[2] in (3, 4) and min(X.shape[:2]) > 4:
        raise ValueError(f"X has shape {X.shape}, which may be one image in colours: pass it as X[np.newaxis].")
    if not len(X):
        raise ValueError("X holds no image.")
    images: list[np.ndarray] = []
    for i, image in enumerate(X):
        image = as_pixels(image, f"X[{i}]")
        if image.ndim not in (2, 3) or 0 in image.shape:
            raise ValueError(f"X[{i}] must be an image of shape (H, W) or (H, W, C), got {image.shape}.")
        image = image if image.ndim == 3 else image[..., None]
        if images and image.shape[2] != images[0].shape[2]:
            raise ValueError(f"X[{i}] has {image.shape[2]} channels, but X[0] has {images[0].shape[2]}.")
        if not np.isfinite(image).all():
            raise ValueError(f"X[{i}] contains NaN or infinity.")
        largest = max(float(image.max()), -float(image.min()))
        if largest > LARGEST_PIXEL:
            raise ValueError(
                f"X[{i}] has values of magnitude {largest:g}, but float32 allows at most {LARGEST_PIXEL:g}: rescale X."
            )
        images.append(image if image.dtype in (np.float32, np.float64) else image.astype(np.float32))
    return images


def match_layout(X, results):
    """Return the results for images as one array if X is one array, otherwise as an object array."""
    return np.stack(results) if is_stack(X) and isinstance(results[0], np.ndarray) else make_object_array(results)


def read_grey_planes(images, name, transformer):
    """Return single-channel images as float64 arrays (H, W)."""
    n_channels = images[0].shape[2]
    if n_channels != 1:
        raise ValueError(
            f"{name}[0] has {n_channels} channels, but {type(transformer).__name__} needs grey images: average the "
            "channels."
        )
    return [image[..., 0].astype(np.float64) for image in images]


def iterate_centred_planes(image):
    """Yield, for each channel, the centred channel in float32, and the mean; centring keeps more digits."""
    for channel in np.moveaxis(image, 2, 0):
        level = np.float32(channel.mean(dtype=np.float64))
        yield channel.astype(np.float32) - level, level


def continued(plane, margin, stride):
    """Extend a plane by reflection, and pad its rows to ``stride`` values, a multiple of the SIMD vector length."""
    height, width = plane.shape
    found = np.zeros((height + 2 * margin, stride), dtype=np.float32)
    found[:, : width + 2 * margin] = np.pad(plane, margin, mode="symmetric")
    return found


class ImageTransformer(TransformerMixin, HoldsOptions, auto_wrap_output_keys=None):
    """Base class of transformers that compute features of every pixel of images."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    def _check_fitted(self) -> None:
        as_integer(self.n_channels_, "n_channels_", lowest=1)

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> ImageTransformer:
        """Check the parameters and store the number of channels; nothing is learned.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, C), or list of ndarray of shape (H, W) or (H, W, C)
            Images.
        y : object, optional
            Not used.

        Returns
        -------
        self
        """
        self._check_parameters()
        self.n_channels_ = as_images(X)[0].shape[2]
        return self

    def _check_parameters(self) -> None:
        """Raise InvalidParameterError for invalid parameters, which users may also set after ``fit``."""
        self._validate_params()

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Compute the features of every pixel.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, C), or list of ndarray of shape (H, W) or (H, W, C)
            Images with as many channels as in ``fit``. Integers are converted to float32, without rescaling. Magnitudes
            of pixels must be at most 1e15.

        Returns
        -------
        ndarray of shape (n, H, W, F), or of shape (n,) of ndarray of shape (H, W, F)
            An array if X is an array, a 1-D object array if X is a list.
        """
        check_is_fitted(self)
        self._check_parameters()
        images = as_images(X)
        if images[0].shape[2] != self.n_channels_:
            raise ValueError(f"X[0] has {images[0].shape[2]} channels, but images in fit had {self.n_channels_}.")
        return match_layout(X, self._transform_images(images))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Return feature names such as ``"mean_2"``, or ``"channel0_mean_2"`` if there are several channels.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the channels.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.array(self._build_feature_names(input_features), dtype=object)

    @abstractmethod
    def _build_feature_names(self, input_features):
        """Return the names of the features as a list, given names of the channels or None."""

    @abstractmethod
    def _transform_images(self, images):
        """Return a list with the features (H, W, F), float32 or float64, of each (H, W, C) array."""

    def _build_prefixes(self, input_features):
        """Return the prefix of each channel's feature names, empty for a single unnamed channel."""
        if input_features is None:
            return [f"channel{c}_" for c in range(self.n_channels_)] if self.n_channels_ != 1 else [""]
        return [f"{channel}_" for channel in input_features]


class ChannelTransformer(ImageTransformer, auto_wrap_output_keys=None):
    """Base class of transformers that write float32 channels of each image, on ``n_jobs`` threads."""

    _parameter_constraints: ClassVar[dict] = {"n_jobs": [Integral, None]}

    @property
    def period_(self) -> int:
        """Grid spacing: a window that starts at a multiple of this spacing has the same channels as the whole image."""
        return 1

    def _transform_images(self, images):
        return map_coarse(partial(compute_channels, self), images, self.n_jobs)

    @abstractmethod
    def _name_channel_features(self) -> list[str]:
        """Return the names of the features that are computed from each input channel."""

    def _build_feature_names(self, input_features):
        return [
            prefix + name for prefix in self._build_prefixes(input_features) for name in self._name_channel_features()
        ]

    def _count_outputs(self, n_channels):
        """Return the number of output channels F for an image with ``n_channels``."""
        return n_channels * len(self._name_channel_features())

    @abstractmethod
    def _write(self, image, out, n_threads, before=()):
        """Write the output channels of an image to ``out``.

        ``before`` lists earlier transformers, each paired with the channels that it wrote for this image.
        """


def compute_channels(transformer, image, n_threads, before=()):
    """Return the channels (H, W, F) that a transformer computes for an image (H, W, C)."""
    out = np.empty((*image.shape[:2], transformer._count_outputs(image.shape[2])), dtype=np.float32)
    transformer._write(image, out, n_threads, before)
    return out
