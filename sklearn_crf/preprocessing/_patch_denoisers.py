"""Patch-based image denoisers: thresholding, averages over similar patches, and groups of similar patches."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, InvalidParameterError

from sklearn_crf._numbers import as_array
from sklearn_crf._options import options
from sklearn_crf._threads import make_range_runner
from sklearn_crf.kernels.preprocessing.images import (
    BEHIND,
    PATCH_SIDE,
    average_patches,
    average_stride,
    patch_stride,
    shrink_groups,
    shrink_patches,
)
from sklearn_crf.preprocessing._image_transformer import (
    ChannelTransformer,
    compute_channels,
    continued,
    iterate_centred_planes,
)
from sklearn_crf.preprocessing._tuning import (
    AVERAGED_BANDWIDTH,
    FILTERED_ROWS,
    GROUPED_ROWS,
    GUIDE_THRESHOLD,
    SHRUNK_BY,
    SHRUNK_ROWS,
    SMALLEST_BANDWIDTH,
    SMALLEST_NOISE,
)

_MARGIN = PATCH_SIDE - 1


class PatchDenoiser(ChannelTransformer, auto_wrap_output_keys=None):
    """Base class of denoisers that process each channel separately, and that compare patches in a guide image."""

    _least_rows: ClassVar[int]  # minimum number of rows per thread

    @property
    def reach_(self) -> int:
        """Largest row or column distance between a pixel and the input pixels on which its features depend."""
        return _MARGIN

    def _check_parameters(self) -> None:
        super()._check_parameters()
        # The names of features contain numeric parameters. Building the names therefore checks these parameters.
        self._name_channel_features()

    def _compute_guides(self, image, n_threads, before):
        """Return the guide image (H, W, C), in which patches are compared."""
        return image

    @abstractmethod
    def _make_writer(self, plane, guide, level, out):
        """Return a function ``write(start, stop)`` that writes the features of a centred channel in the given rows."""

    def _write(self, image, out, n_threads, before=()):
        guides, n_outputs = self._compute_guides(image, n_threads, before), out.shape[2] // image.shape[2]
        run = make_range_runner(n_threads)
        for channel, (plane, level) in enumerate(iterate_centred_planes(image)):
            guide = guides[..., channel].astype(np.float32) - level
            own = out[..., channel * n_outputs : (channel + 1) * n_outputs]
            run(self._make_writer(plane, guide, level, own), len(image), smallest_range=self._least_rows)


@options(kw_only=False)
class PatchShrinkage(PatchDenoiser, auto_wrap_output_keys=None):
    r"""Denoise every channel by hard thresholding of the cosine transform of all 8 x 8 patches, in float32.

    .. math::
        \hat x_s = \frac{\sum_{P \ni s} w_P \, (T^\top \eta_\tau(T x_P))_s}{\sum_{P \ni s} w_P}, \qquad
        w_P = \frac{1}{\| \eta_\tau(T x_P) \|_0}

    with the orthonormal cosine transform T. :math:`\eta_\tau` sets coefficients of magnitude up to :math:`\tau` to
    zero, except for the mean of the patch. Patches with few remaining coefficients have the largest weight. Images are
    extended by reflection. For white noise with standard deviation :math:`\sigma` a threshold of :math:`2.7 \, \sigma`
    is a good denoiser by itself; several thresholds are features from which a model can choose.

    Parameters
    ----------
    thresholds : array-like of shape (n_thresholds,) or (n_thresholds, 8, 8), default=(20.0,)
        :math:`\tau`, in units of the image, not negative. Each threshold is a number for all coefficients, or a table
        of one number per coefficient for noise that is not white. For JPEG images use multiples of the quantization
        table.
    n_jobs : int or None, default=None
        Number of threads over images and rows; results do not depend on it.

    Attributes
    ----------
    n_channels_ : int
        Number of channels of the images seen in ``fit``.
    reach_ : int
        Largest row or column distance between a pixel and the input pixels on which its features depend.

    References
    ----------
    R. Coifman and D. Donoho. Translation-Invariant De-Noising. Wavelets and Statistics, 1995,
    :doi:`10.1007/978-1-4612-2544-7_9`. O. Guleryuz. Weighted Averaging for Denoising With Overcomplete Dictionaries.
    IEEE Transactions on Image Processing 16, 2007 (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchShrinkage
    >>> clean = np.kron(np.eye(4), np.ones((8, 8)))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> denoised = PatchShrinkage([0.54]).fit_transform(noisy[np.newaxis])[0, ..., 0]
    >>> print(
    ...     f"{np.mean((denoised - clean) ** 2):.4f}, {np.mean((noisy - clean) ** 2):.4f}"
    ... )
    0.0047, 0.0379
    """

    _parameter_constraints: ClassVar[dict] = {"thresholds": ["array-like"]}
    thresholds: ArrayLike = (20.0,)
    _: KW_ONLY
    n_jobs: int | None = None

    _least_rows = SHRUNK_ROWS

    def _name_channel_features(self) -> list[str]:
        thresholds = self._check_thresholds()
        values = range(len(thresholds)) if thresholds.ndim == 3 else [f"{value:g}" for value in thresholds]
        return [f"shrunk_{value}" for value in values]

    def _check_thresholds(self):
        thresholds = as_array(self.thresholds, "thresholds")
        is_list = thresholds.shape[1:] in ((), (PATCH_SIDE, PATCH_SIDE)) and thresholds.ndim and thresholds.size
        if not is_list or thresholds.dtype.kind not in "fiu" or not np.all((thresholds >= 0) & (thresholds < np.inf)):
            raise InvalidParameterError(
                f"thresholds must be a list of non-negative numbers, or of tables of 8 x 8, got {self.thresholds!r}."
            )
        return np.ascontiguousarray(thresholds, dtype=np.float32)

    def _make_writer(self, plane, guide, level, out):
        thresholds = self._check_thresholds()
        if thresholds.ndim == 1:
            thresholds = np.tile(thresholds[:, None, None], (1, PATCH_SIDE, PATCH_SIDE))
        given = continued(plane, _MARGIN, patch_stride(plane.shape[1]))
        return lambda start, stop: shrink_patches(given, thresholds, level, start, stop, out)


def _shrink_copy(image, threshold, n_threads, before):
    """Return an image (H, W, C) denoised with one threshold, reusing channels of earlier transformers if possible."""
    for part, channels in before:
        known = np.asarray(part.thresholds) if isinstance(part, PatchShrinkage) else np.zeros(0)
        if known.ndim == 1 and threshold in known:
            return channels[..., int(np.argmax(known == threshold)) :: len(known)]
    return compute_channels(PatchShrinkage([threshold]), image, n_threads)


@options(kw_only=False)
class PatchAverages(PatchDenoiser, auto_wrap_output_keys=None):
    r"""Average every channel over nearby pixels with similar surroundings, and return the remaining variance.

    .. math::
        \hat x_s = \frac{\sum_{t \in W(s)} w_{st} x_t}{\sum_{t \in W(s)} w_{st}}, \qquad
        w_{st} = \Big( 1 - \frac{\| g_{P(s)} - g_{P(t)} \|^2}{|P| \, b^2} \Big)_+^2, \qquad
        v_s = \frac{\sum_t w_{st}^2}{( \sum_t w_{st} )^2}

    over a window W(s), where P(s) is the patch around s and b a bandwidth. Patches are compared in a guide g, which is
    the image denoised by :class:`PatchShrinkage`, so that noise hardly affects the comparison. :math:`v_s` is the
    fraction of the variance of white noise that is left; this fraction is small where the image repeats itself. For
    noise with standard deviation :math:`\sigma` a guide threshold of :math:`2.7 \, \sigma` and a bandwidth of
    :math:`0.9 \, \sigma` form a good denoiser by themselves. Images are extended by reflection.

    Parameters
    ----------
    bandwidths : array-like of shape (n_bandwidths,), default=(7.0,)
        b, in units of the image, positive. Pixels whose patches differ by more than b (root mean square) have no
        weight.
    guide_threshold : float or None, default=20.0
        Threshold of the guide; None compares patches in the image itself.
    search_radius : int, default=8
        Number of rows and columns from a pixel to the border of its window W.
    patch_radius : int, default=1
        Number of rows and columns from a pixel to the border of its patch P.
    n_jobs : int or None, default=None
        Number of threads over images and rows; results do not depend on it.

    Attributes
    ----------
    n_channels_ : int
        Number of channels of the images seen in ``fit``.
    reach_ : int
        Largest row or column distance between a pixel and the input pixels on which its features depend.

    References
    ----------
    A. Buades, B. Coll and J.-M. Morel. A Non-Local Algorithm for Image Denoising. CVPR 2005,
    :doi:`10.1109/CVPR.2005.38`. B. Goossens, H. Luong, A. Pizurica and W. Philips. An Improved Non-Local Denoising
    Algorithm. LNLA 2008 (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchAverages
    >>> clean = np.tile(np.kron(np.eye(4), np.ones((2, 2))), (6, 6))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> averages = PatchAverages([0.2], guide_threshold=0.54).fit_transform(
    ...     noisy[np.newaxis]
    ... )[0]
    >>> print(
    ...     f"{np.mean((averages[..., 0] - clean) ** 2):.4f}, {np.mean((noisy - clean) ** 2):.4f}"
    ... )
    0.0071, 0.0402
    """

    _parameter_constraints: ClassVar[dict] = {
        "bandwidths": ["array-like"],
        "guide_threshold": [Interval(Real, 0, None, closed="left"), None],
        "search_radius": [Interval(Integral, 0, None, closed="left")],
        "patch_radius": [Interval(Integral, 0, None, closed="left")],
    }
    bandwidths: ArrayLike = (7.0,)
    _: KW_ONLY
    guide_threshold: float | None = 20.0
    search_radius: int = 8
    patch_radius: int = 1
    n_jobs: int | None = None

    _least_rows = FILTERED_ROWS

    @property
    def reach_(self) -> int:
        return self.search_radius + self.patch_radius + (0 if self.guide_threshold is None else _MARGIN)

    def _name_channel_features(self) -> list[str]:
        values = self._check_bandwidths()
        return [f"{kind}_{value:g}" for kind in ("average", "variance") for value in values]

    def _check_bandwidths(self):
        bandwidths = as_array(self.bandwidths, "bandwidths")
        is_list = bandwidths.ndim == 1 and bandwidths.size and bandwidths.dtype.kind in "fiu"
        if not is_list or not np.all((bandwidths >= SMALLEST_BANDWIDTH) & (bandwidths < np.inf)):
            raise InvalidParameterError(
                f"bandwidths must be a list of numbers of at least {SMALLEST_BANDWIDTH:g}, got {self.bandwidths!r}."
            )
        return bandwidths.astype(np.float64)

    def _compute_guides(self, image, n_threads, before):
        return image if self.guide_threshold is None else _shrink_copy(image, self.guide_threshold, n_threads, before)

    def _make_writer(self, plane, guide, level, out):
        n_pixels = (2 * self.patch_radius + 1) ** 2
        inverse = (1 / (n_pixels * self._check_bandwidths() ** 2)).astype(np.float32)
        radii = self.search_radius, self.patch_radius
        stride = average_stride(plane.shape[1], *radii)
        both = [continued(part, sum(radii), stride) for part in (plane, guide)]
        return lambda start, stop: average_patches(*both, *radii, inverse, level, start, stop, out)


def make_noise_averages(noise):
    """Make a transformer that averages similar patches, for noise of a given standard deviation."""
    return PatchAverages([AVERAGED_BANDWIDTH * noise], guide_threshold=GUIDE_THRESHOLD * noise)


@options(kw_only=False)
class PatchGroups(PatchDenoiser, auto_wrap_output_keys=None):
    r"""Denoise every channel by jointly shrinking groups of similar 8 x 8 patches.

    .. math::
        \hat Z_G = T^{-1} \Big( \frac{|T g_G|^2}{|T g_G|^2 + (0.8 \, \sigma)^2} \, T x_G \Big)

    where G is the group of the 16 patches most similar to a reference patch in a pilot image g. T is the cosine
    transform of each patch and the Hadamard transform over the patches. The pilot is the mean of
    :class:`PatchShrinkage` and :class:`PatchAverages`. Each pixel is a weighted mean over the groups that contain it,
    in which groups that keep little noise have the largest weight. Images are extended by reflection.

    Parameters
    ----------
    noise : float, default=7.5
        Standard deviation :math:`\sigma` of the noise, in units of the image.
    search_radius : int, default=18
        Largest number of rows or columns from a reference patch to the patches in its group.
    step : int, default=4
        Number of rows and columns between reference patches, at most 8.
    n_jobs : int or None, default=None
        Number of threads over images and rows; results do not depend on it.

    Attributes
    ----------
    n_channels_ : int
        Number of channels of the images seen in ``fit``.
    reach_ : int
        Largest row or column distance between a pixel and the input pixels on which its features depend.

    References
    ----------
    K. Dabov, A. Foi, V. Katkovnik and K. Egiazarian. Image Denoising by Sparse 3-D Transform-Domain Collaborative
    Filtering. IEEE Transactions on Image Processing 16, 2007, :doi:`10.1109/TIP.2007.901238` (the second step, with
    another pilot).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchGroups
    >>> clean = np.kron(np.eye(4), np.ones((8, 8)))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> denoised = PatchGroups(0.2).fit_transform(noisy[np.newaxis])[0, ..., 0]
    >>> print(
    ...     f"{np.mean((denoised - clean) ** 2):.4f}, {np.mean((noisy - clean) ** 2):.4f}"
    ... )
    0.0022, 0.0379
    """

    _parameter_constraints: ClassVar[dict] = {
        "noise": [Interval(Real, SMALLEST_NOISE, None, closed="left")],
        "search_radius": [Interval(Integral, 0, None, closed="left")],
        "step": [Interval(Integral, 1, PATCH_SIDE, closed="both")],
    }
    noise: float = 7.5
    _: KW_ONLY
    search_radius: int = 18
    step: int = 4
    n_jobs: int | None = None

    _least_rows = GROUPED_ROWS

    @property
    def reach_(self) -> int:
        return make_noise_averages(self.noise).reach_ + 2 * (self.search_radius + _MARGIN)

    @property
    def period_(self) -> int:
        return self.step

    def _name_channel_features(self) -> list[str]:
        return [f"groups_{self.noise:g}"]

    def _compute_guides(self, image, n_threads, before):
        averages = make_noise_averages(self.noise)
        shrunk = _shrink_copy(image, averages.guide_threshold, n_threads, before)
        averaged = next((channels for part, channels in before if _are_alike(part, averages)), None)
        if averaged is None:
            averaged = compute_channels(
                averages, image, n_threads, [(PatchShrinkage([averages.guide_threshold]), shrunk)]
            )
        # Take every second channel: the average of each input channel is followed by its remaining variance.
        return 0.5 * (shrunk + averaged[..., ::2])

    def _make_writer(self, plane, guide, level, out):
        basis = np.ascontiguousarray(scipy.fft.dct(np.eye(PATCH_SIDE), axis=0, norm="ortho"), dtype=np.float32)
        turned, margin = np.ascontiguousarray(basis.T), self.search_radius + _MARGIN
        both = [
            np.pad(part, ((margin, margin), (margin, margin + BEHIND)), mode="symmetric") for part in (plane, guide)
        ]
        given = *both, self.search_radius, self.step, basis, turned, SHRUNK_BY * self.noise

        def write(start, stop):
            shrink_groups(*given, start, stop, out[..., 0])
            out[start:stop] += level

        return write


def _are_alike(part, averages):
    """Return whether a transformer computes exactly the same channels as ``averages``."""
    if not isinstance(part, PatchAverages) or not np.array_equal(part.bandwidths, averages.bandwidths):
        return False
    names = "guide_threshold", "search_radius", "patch_radius"
    return all(getattr(part, name) == getattr(averages, name) for name in names)
