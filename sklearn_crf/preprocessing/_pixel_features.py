"""Colour and texture features of every pixel of RGB images."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter, sobel
from sklearn.base import TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_array
from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.preprocessing._image_transformer import is_stack, match_layout

SCALES: dict[str, Callable] = {"linear": lambda values: values, "sqrt": np.sqrt, "log": np.log1p}


@options(kw_only=False)
class PixelFeatures(TransformerMixin, HoldsOptions):
    """Compute nine features per pixel: CIE Lab, and both eigenvalues of the structure tensor of each Lab plane.

    The structure tensor of a plane ``f`` is ``G_sigma * (grad f grad f')``, a Gaussian average of products of first
    derivatives (Sobel, in units of ``f`` per pixel). The tensor's larger eigenvalue measures edges, and its smaller
    eigenvalue measures corners and fine texture. These features are from Kelm, Pal & McCallum 2006, section 3.
    Computing features requires scikit-image (``pip install sklearn_crf[images]``).

    Parameters
    ----------
    sigma : float, default=1.0
        Standard deviation of the Gaussian, in pixels.
    texture_scale : {"linear", "sqrt", "log"}, default="linear"
        Transformation of the eigenvalues ``e``: none, ``sqrt(e)``, or ``log(1 + e)``. The distribution of ``e`` has
        heavy tails, which Gaussians fit badly without compression. The paper does not compress them.

    Attributes
    ----------
    n_features_in_ : int
        Number of input channels, 3.

    Raises
    ------
    ImportError
        If scikit-image is not installed.
    ValueError
        If images do not have shape (H, W, 3), or values are out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PixelFeatures
    >>> images = np.zeros((2, 10, 12, 3), dtype=np.uint8)
    >>> PixelFeatures().fit_transform(images).shape
    (2, 10, 12, 9)
    """

    _parameter_constraints: ClassVar[dict] = {
        "sigma": [Interval(Real, 0, None, closed="neither")],
        "texture_scale": [StrOptions(set(SCALES))],
    }
    sigma: float = 1.0
    texture_scale: str = "linear"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        return tags

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> PixelFeatures:
        """Check the parameters and the images; nothing is learned.

        Parameters
        ----------
        X : array of shape (n, H, W, 3) or list of arrays of shape (H, W, 3)
            RGB images, as integers from 0 to 255 (uint8) or floats from 0 to 1.
        y : ignored

        Returns
        -------
        self
        """
        for i, image in enumerate(_images(X)):
            _check_image(image, i)
        self.n_features_in_ = 3
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Compute the features of every pixel.

        Parameters
        ----------
        X : array of shape (n, H, W, 3) or list of arrays of shape (H, W, 3)
            RGB images, as integers from 0 to 255 (uint8) or floats from 0 to 1.

        Returns
        -------
        ndarray of shape (n, H, W, 9), or object array of n arrays of shape (H, W, 9)
            An array if X is an array, an object array if X is a list. float32 for float32 images, otherwise float64.
        """
        self._validate_params()
        features = [self._features(_check_image(image, i)) for i, image in enumerate(_images(X))]
        return match_layout(X, features)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the nine features.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        texture = [f"{plane}_{which}" for plane in "Lab" for which in ("edge", "corner")]
        return np.array(["L", "a", "b", *texture], dtype=object)

    def _features(self, image):
        try:
            from skimage import color
        except ImportError as error:
            raise ImportError("PixelFeatures needs scikit-image: pip install sklearn_crf[images]") from error
        lab = color.rgb2lab(image)
        out = np.empty((*image.shape[:2], 9), dtype=lab.dtype)
        out[..., :3] = lab
        for plane in range(3):
            eigenvalues = structure_tensor_eigenvalues(lab[..., plane], self.sigma)
            out[..., 3 + 2 * plane : 5 + 2 * plane] = SCALES[self.texture_scale](eigenvalues)
        return out


def structure_tensor_eigenvalues(plane, sigma):
    """Return the eigenvalues of a plane's structure tensor, the larger eigenvalue first."""
    # plane: (H, W); returns: (H, W, 2)
    down, right = (sobel(plane, axis=axis, mode="nearest") / 8 for axis in (0, 1))
    rr, rc, cc = (gaussian_filter(p, sigma, mode="nearest") for p in (down * down, down * right, right * right))
    centre, radius = (rr + cc) / 2, np.hypot((rr - cc) / 2, rc)
    # At clean edges the smaller eigenvalue is zero in theory, but rounding errors may make it about -1e-17.
    return np.stack([centre + radius, np.maximum(centre - radius, 0)], axis=-1)


def _images(X):
    if is_stack(X) and X.ndim != 4:
        raise ValueError(
            f"X has shape {X.shape}, expected (n_images, H, W, 3); give one image with a leading axis, X[None]."
        )
    return X


def _check_image(image, index):
    image = as_array(image, f"image {index}")
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(f"image {index} has shape {image.shape}, expected (H, W, 3).")
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f":
        raise ValueError(f"image {index} has dtype {image.dtype}, expected uint8 (0 to 255) or floats (0 to 1).")
    if not (image.min() >= 0 and image.max() <= 1):
        raise ValueError(f"image {index} has values from {image.min()} to {image.max()}; they must be 0 to 1, not NaN.")
    return image
