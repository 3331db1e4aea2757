"""Images whose pixels are averaged with those whose surroundings look alike."""

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, InvalidParameterError

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_array
from sklearn_crf._options import options
from sklearn_crf._threads import range_runner
from sklearn_crf.kernels.preprocessing.images import average_patches, average_stride
from sklearn_crf.preprocessing._image_transformer import ChannelTransformer, centred_planes, continued
from sklearn_crf.preprocessing._patch_shrinkage import PatchShrinkage, shrunk_copy
from sklearn_crf.preprocessing._tuning import AVERAGED_BANDWIDTH, FILTERED_ROWS, GUIDE_THRESHOLD


@options(kw_only=False)
class PatchAverages(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Every channel averaged over the pixels around whose surroundings look alike, and how many these are.

    .. math::
        \hat x_s = \frac{\sum_{t \in W(s)} w_{st} x_t}{\sum_{t \in W(s)} w_{st}}, \qquad
        w_{st} = \Big( 1 - \frac{\| g_{P(s)} - g_{P(t)} \|^2}{|P| \, b^2} \Big)_+^2, \qquad
        v_s = \frac{\sum_t w_{st}^2}{( \sum_t w_{st} )^2}

    over a window W(s), where P(s) is the patch around s and b a bandwidth. Patches are compared in a guide g, the image
    denoised by :class:`PatchShrinkage`, so that noise hardly counts. :math:`v_s` is the share of the variance of
    white noise that is left: small where the image repeats itself. For noise of standard deviation :math:`\sigma` a
    guide of threshold :math:`2.7 \, \sigma` and a bandwidth of :math:`0.9 \, \sigma` are a good denoiser by themselves.
    Images are continued by reflection.

    Parameters
    ----------
    bandwidths : array-like of shape (n_bandwidths,), default=(7.0,)
        b, in units of the image, positive: pixels whose patches differ by more (root mean square) have no weight.
    guide_threshold : float or None, default=20.0
        Threshold of the guide; None compares the image itself.
    search_radius : int, default=8
        Rows and columns from a pixel to the border of W.
    patch_radius : int, default=1
        Rows and columns from a pixel to the border of P.
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
    A. Buades, B. Coll and J.-M. Morel. A Non-Local Algorithm for Image Denoising. CVPR 2005. B. Goossens, H. Luong,
    A. Pizurica and W. Philips. An Improved Non-Local Denoising Algorithm. LNLA 2008 (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchAverages
    >>> clean = np.tile(np.kron(np.eye(4), np.ones((2, 2))), (6, 6))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> averages = PatchAverages([0.2], guide_threshold=0.54).fit_transform(
    ...     noisy[np.newaxis]
    ... )[0]
    >>> bool(np.mean((averages[..., 0] - clean) ** 2) < 0.2 * np.mean((noisy - clean) ** 2))
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "bandwidths": ["array-like"],
        "guide_threshold": [Interval(Real, 0, None, closed="left"), None],
        "search_radius": [Interval(Integral, 0, None, closed="left")],
        "patch_radius": [Interval(Integral, 0, None, closed="left")],
        "n_jobs": [Integral, None],
    }
    bandwidths: ArrayLike = (7.0,)
    _: KW_ONLY
    guide_threshold: float | None = 20.0
    search_radius: int = 8
    patch_radius: int = 1
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> "PatchAverages":
        self._checked_bandwidths()
        super().fit(X)
        self.reach_ = self.search_radius + self.patch_radius
        if self.guide_threshold is not None:
            self.reach_ += PatchShrinkage([self.guide_threshold]).fit(X).reach_
        return self

    def _feature_names(self, input_features):
        values = self._checked_bandwidths()
        names = [f"{kind}_{value:g}" for kind in ("average", "variance") for value in values]
        return [prefix + name for prefix in self._prefixes(input_features) for name in names]

    def _checked_bandwidths(self):
        bandwidths = as_array(self.bandwidths, "bandwidths")
        is_list = bandwidths.ndim == 1 and bandwidths.size and bandwidths.dtype.kind in "fiu"
        if not is_list or not np.all((bandwidths > 0) & (bandwidths < np.inf)):
            raise InvalidParameterError(f"bandwidths must be a list of positive numbers, got {self.bandwidths!r}.")
        return bandwidths.astype(np.float64)

    def _n_outputs(self, n_channels):
        return 2 * n_channels * len(self._checked_bandwidths())

    def _write(self, image, out, n_threads, before=()):
        n_pixels = (2 * self.patch_radius + 1) ** 2
        inverse = (1 / (n_pixels * self._checked_bandwidths() ** 2)).astype(np.float32)
        n, margin = 2 * len(inverse), self.search_radius + self.patch_radius
        height, width = image.shape[:2]
        stride = average_stride(width, self.search_radius, self.patch_radius)
        guides = image
        if self.guide_threshold is not None:
            guides = shrunk_copy(image, self.guide_threshold, n_threads, before)
        with range_runner(n_threads) as run:
            for channel, (plane, level) in enumerate(centred_planes(image)):
                own = out[..., channel * n : (channel + 1) * n]
                guide = guides[..., channel].astype(np.float32) - level
                both = [continued(part, margin, stride) for part in (plane, guide)]

                def rows(start, stop, both=both, own=own, level=level):
                    places = self.search_radius, self.patch_radius
                    average_patches(*both, *places, inverse, level, start, stop, own)

                run(rows, height, smallest_range=FILTERED_ROWS)


def averages_of_noise(noise):
    """Return averages in proportion to the standard deviation of the noise."""
    return PatchAverages([AVERAGED_BANDWIDTH * noise], guide_threshold=GUIDE_THRESHOLD * noise)
