"""Features of the neighbourhood of every pixel, such as averages and gradients."""

from collections.abc import Sequence
from itertools import product
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy.ndimage import gaussian_filter, gaussian_gradient_magnitude
from sklearn.utils._param_validation import Interval, InvalidParameterError

from sklearn_crf._options import options
from sklearn_crf.preprocessing._image_transformer import ImageTransformer

KINDS = ("intensity", "mean", "deviation", "gradient", "patch", "position")


@options(kw_only=False)
class LocalImageFeatures(ImageTransformer, auto_wrap_output_keys=None):
    r"""Compute local features of each pixel of grey or colour images: values, averages, contrast, edges, position.

    Let :math:`G_\sigma` be the Gaussian with standard deviation :math:`\sigma`, and :math:`x` one channel. Images are
    extended by reflection. The kinds of features are:

    - ``"intensity"``: :math:`x`
    - ``"mean"``: :math:`G_\sigma * x` for each scale
    - ``"deviation"``: :math:`\sqrt{G_\sigma * x^2 - (G_\sigma * x)^2}` for each scale
    - ``"gradient"``: :math:`|\nabla (G_\sigma * x)|` for each scale
    - ``"patch"``: x at the other pixels of a square of side ``2 * patch_radius + 1``
    - ``"position"``: row and column, scaled from 0 to 1 across the image

    Features are float64 for float64 images, otherwise float32.

    Parameters
    ----------
    kinds : tuple of str, default=("intensity", "mean", "deviation", "gradient", "position")
        Kinds of features to compute, in this order. All kinds but ``"position"`` are computed for each channel.
    scales : tuple of float, default=(1.0, 2.0, 4.0)
        Standard deviations :math:`\sigma` in pixels.
    patch_radius : int, default=1
        Radius of the square of ``"patch"`` in pixels.

    Attributes
    ----------
    n_channels_ : int
        Number of channels of the images seen in ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import LocalImageFeatures
    >>> images = [np.zeros((8, 9), dtype=np.uint8), np.zeros((5, 7), dtype=np.uint8)]
    >>> features = LocalImageFeatures(("intensity", "mean", "position"), scales=(2.0,))
    >>> [x.shape for x in features.fit_transform(images)]
    [(8, 9, 4), (5, 7, 4)]
    >>> features.get_feature_names_out().tolist()
    ['intensity', 'mean_2', 'row', 'column']
    """

    _parameter_constraints: ClassVar[dict] = {
        "kinds": [tuple, list],
        "scales": ["array-like"],
        "patch_radius": [Interval(Integral, 0, None, closed="left")],
    }
    kinds: Sequence[str] = ("intensity", "mean", "deviation", "gradient", "position")
    scales: Sequence[float] = (1.0, 2.0, 4.0)
    patch_radius: int = 1

    def _transform_images(self, images):
        return [self._features(image) for image in images]

    def _build_feature_names(self, input_features):
        prefixes, names = self._build_prefixes(input_features), []
        for kind in self.kinds:
            if kind == "position":
                names += ["row", "column"]
            else:
                names += [prefix + name for prefix in prefixes for name in self._names(kind)]
        return names

    def _names(self, kind):
        if kind == "intensity":
            return [kind]
        if kind == "patch":
            return [f"patch({i},{j})" for i, j in self._compute_patch_offsets()]
        return [f"{kind}_{scale:g}" for scale in self.scales]

    def _compute_patch_offsets(self):
        reach = range(-self.patch_radius, self.patch_radius + 1)
        return [offset for offset in product(reach, reach) if offset != (0, 0)]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.kinds or any(kind not in KINDS for kind in self.kinds):
            raise InvalidParameterError(f"kinds must be a tuple of names from {KINDS}, got {self.kinds!r}.")
        if not all(isinstance(scale, Real) and 0 < float(scale) < np.inf for scale in self.scales):
            raise InvalidParameterError(f"scales must be positive numbers, got {self.scales!r}.")

    def _features(self, image):
        planes: list[np.ndarray] = []
        for kind in self.kinds:
            if kind == "position":
                planes += np.meshgrid(*((np.arange(n) + 0.5) / n for n in image.shape[:2]), indexing="ij")
            else:
                for channel in np.moveaxis(image, 2, 0):
                    planes += self._compute_channel_features(kind, channel)
        return np.stack(planes, axis=-1).astype(image.dtype, copy=False)

    def _compute_channel_features(self, kind, channel):
        if kind == "intensity":
            return [channel]
        if kind in _OF_SCALES:
            return [_OF_SCALES[kind](channel, scale) for scale in self.scales]
        r = self.patch_radius
        padded = np.pad(channel, r, mode="symmetric")
        height, width = channel.shape
        return [padded[r + i : r + i + height, r + j : r + j + width] for i, j in self._compute_patch_offsets()]


def _compute_deviation(channel, scale):
    # Subtract the mean, so that the variance of a bright flat region is not a difference of two large squares.
    channel = channel - channel.mean(dtype=np.float64).astype(channel.dtype)
    variance = gaussian_filter(channel**2, scale) - gaussian_filter(channel, scale) ** 2
    return np.sqrt(np.maximum(variance, 0))


_OF_SCALES = {"mean": gaussian_filter, "deviation": _compute_deviation, "gradient": gaussian_gradient_magnitude}
