"""Images whose patches are shrunk in a sliding cosine transform."""

from dataclasses import KW_ONLY
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_array
from sklearn_crf._options import options
from sklearn_crf._threads import range_runner
from sklearn_crf.kernels.preprocessing.images import PATCH_SIDE, patch_stride, shrink_patches
from sklearn_crf.preprocessing._image_transformer import ChannelTransformer, centred_planes, channels_of, continued
from sklearn_crf.preprocessing._tuning import SHRUNK_ROWS

_MARGIN = PATCH_SIDE - 1


@options(kw_only=False)
class PatchShrinkage(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Every channel denoised by hard thresholds of the cosine transform of all 8 x 8 patches, in float32.

    .. math::
        \hat x_s = \frac{\sum_{P \ni s} w_P \, (T^\top \eta_\tau(T x_P))_s}{\sum_{P \ni s} w_P}, \qquad
        w_P = \frac{1}{\| \eta_\tau(T x_P) \|_0}

    with the orthonormal cosine transform T and :math:`\eta_\tau`, which sets coefficients of magnitude up to
    :math:`\tau` to zero, all but the mean of the patch. Patches that few coefficients describe count most. Images are
    continued by reflection. For white noise of standard deviation :math:`\sigma` a threshold of
    :math:`2.7 \, \sigma` is a good denoiser by itself; several thresholds are features to choose from.

    Parameters
    ----------
    thresholds : array-like of shape (n_thresholds,) or (n_thresholds, 8, 8), default=(20.0,)
        :math:`\tau`, in units of the image, not negative: one for all coefficients, or one for each, where noise is not
        white. Multiples of the table of quantization shrink what JPEG has left of an image.
    n_jobs : int or None, default=None
        Threads over images and rows; results do not depend on it.

    Attributes
    ----------
    n_channels_ : int
        Channels of the images seen in ``fit``.
    reach_ : int
        Rows or columns between a pixel and the farthest that its features depend on.

    References
    ----------
    R. Coifman and D. Donoho. Translation-Invariant De-Noising. Wavelets and Statistics, 1995. O. Guleryuz. Weighted
    Averaging for Denoising With Overcomplete Dictionaries. IEEE Transactions on Image Processing 16, 2007 (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchShrinkage
    >>> clean = np.kron(np.eye(4), np.ones((8, 8)))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> denoised = PatchShrinkage([0.54]).fit_transform(noisy[np.newaxis])[0, ..., 0]
    >>> bool(np.mean((denoised - clean) ** 2) < 0.3 * np.mean((noisy - clean) ** 2))
    True
    """

    _parameter_constraints: ClassVar[dict] = {"thresholds": ["array-like"], "n_jobs": [Integral, None]}
    thresholds: ArrayLike = (20.0,)
    _: KW_ONLY
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> "PatchShrinkage":
        self._checked_thresholds()
        super().fit(X)
        self.reach_ = _MARGIN
        return self

    def _feature_names(self, input_features):
        thresholds = self._checked_thresholds()
        names = range(len(thresholds)) if thresholds.ndim == 3 else [f"{value:g}" for value in thresholds]
        return [f"{prefix}shrunk_{name}" for prefix in self._prefixes(input_features) for name in names]

    def _checked_thresholds(self):
        thresholds = as_array(self.thresholds, "thresholds")
        is_list = thresholds.shape[1:] in ((), (PATCH_SIDE, PATCH_SIDE)) and thresholds.ndim and thresholds.size
        if not is_list or thresholds.dtype.kind not in "fiu" or not np.all((thresholds >= 0) & (thresholds < np.inf)):
            raise InvalidParameterError(
                f"thresholds must be a list of non-negative numbers, or of tables of 8 x 8, got {self.thresholds!r}."
            )
        return np.ascontiguousarray(thresholds, dtype=np.float32)

    def _n_outputs(self, n_channels):
        return n_channels * len(self._checked_thresholds())

    def _write(self, image, out, n_threads, before=()):
        thresholds = self._checked_thresholds()
        if thresholds.ndim == 1:
            thresholds = np.tile(thresholds[:, None, None], (1, PATCH_SIDE, PATCH_SIDE))
        height, width = image.shape[:2]
        with range_runner(n_threads) as run:
            for channel, (plane, level) in enumerate(centred_planes(image)):
                given = continued(plane, _MARGIN, patch_stride(width))
                own = out[..., channel * len(thresholds) : (channel + 1) * len(thresholds)]

                def rows(start, stop, given=given, own=own, level=level):
                    shrink_patches(given, thresholds, level, start, stop, own)

                run(rows, height, smallest_range=SHRUNK_ROWS)


def shrunk_copy(image, threshold, n_threads, before):
    """Return an image (H, W, C) shrunk by one threshold, out of what other transformers have written if possible."""
    for part, channels in before:
        known = np.asarray(part.thresholds) if isinstance(part, PatchShrinkage) else np.zeros(0)
        if known.ndim == 1 and threshold in known:
            return channels[..., int(np.argmax(known == threshold)) :: len(known)]
    return channels_of(PatchShrinkage([threshold]), image, n_threads)
