"""Images whose similar patches are shrunk together."""

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from sklearn_crf._fits import fits
from sklearn_crf._options import options
from sklearn_crf._threads import range_runner
from sklearn_crf.kernels.preprocessing.images import BEHIND, PATCH_SIDE, shrink_groups
from sklearn_crf.preprocessing._image_transformer import ChannelTransformer, centred_planes, channels_of
from sklearn_crf.preprocessing._patch_averages import PatchAverages, averages_of_noise
from sklearn_crf.preprocessing._patch_shrinkage import PatchShrinkage, shrunk_copy
from sklearn_crf.preprocessing._tuning import GROUPED_ROWS, SHRUNK_BY


@options(kw_only=False)
class PatchGroups(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Every channel denoised by shrinking groups of similar 8 x 8 patches together.

    .. math::
        \hat Z_G = T^{-1} \Big( \frac{|T g_G|^2}{|T g_G|^2 + (0.8 \, \sigma)^2} \, T x_G \Big)

    where G are the 16 patches most like one in a pilot image g, and T is the cosine transform of each patch and the
    Hadamard transform over the patches. The pilot is the mean of :class:`PatchShrinkage` and :class:`PatchAverages`.
    Each pixel is the mean of all that groups say of it, groups that keep little noise counting most. Images are
    continued by reflection.

    Parameters
    ----------
    noise : float, default=7.5
        Standard deviation :math:`\sigma` of the noise, in units of the image.
    search_radius : int, default=18
        Rows and columns from a patch to the farthest that may be in its group.
    step : int, default=4
        Rows and columns from one group to the next, at most 8.
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
    K. Dabov, A. Foi, V. Katkovnik and K. Egiazarian. Image Denoising by Sparse 3-D Transform-Domain Collaborative
    Filtering. IEEE Transactions on Image Processing 16, 2007 (the second step; the pilot is another).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import PatchGroups
    >>> clean = np.kron(np.eye(4), np.ones((8, 8)))
    >>> noisy = clean + 0.2 * np.random.default_rng(0).normal(size=clean.shape)
    >>> denoised = PatchGroups(0.2).fit_transform(noisy[np.newaxis])[0, ..., 0]
    >>> bool(np.mean((denoised - clean) ** 2) < 0.25 * np.mean((noisy - clean) ** 2))
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "noise": [Interval(Real, 0, None, closed="neither")],
        "search_radius": [Interval(Integral, 0, None, closed="left")],
        "step": [Interval(Integral, 1, PATCH_SIDE, closed="both")],
        "n_jobs": [Integral, None],
    }
    noise: float = 7.5
    _: KW_ONLY
    search_radius: int = 18
    step: int = 4
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: Any = None) -> "PatchGroups":
        super().fit(X)
        of_pilot = averages_of_noise(self.noise).fit(X).reach_
        self.reach_ = of_pilot + 2 * (self.search_radius + PATCH_SIDE - 1)
        return self

    @property
    def period_(self) -> int:
        return self.step

    def _feature_names(self, input_features):
        return [f"{prefix}groups_{self.noise:g}" for prefix in self._prefixes(input_features)]

    def _n_outputs(self, n_channels):
        return n_channels

    def _write(self, image, out, n_threads, before=()):
        basis = np.ascontiguousarray(scipy.fft.dct(np.eye(PATCH_SIDE), axis=0, norm="ortho"), dtype=np.float32)
        turned, margin = np.ascontiguousarray(basis.T), self.search_radius + PATCH_SIDE - 1
        averages = averages_of_noise(self.noise)
        shrunk = shrunk_copy(image, averages.guide_threshold, n_threads, before)
        averaged = next((channels for part, channels in before if _are_alike(part, averages)), None)
        if averaged is None:
            averaged = channels_of(averages, image, n_threads, [(PatchShrinkage([averages.guide_threshold]), shrunk)])
        with range_runner(n_threads) as run:
            for channel, (plane, level) in enumerate(centred_planes(image)):
                own = out[..., channel]
                # The first half of the pilot is the shrunk image. Averages of a channel are followed by their variance.
                pilot = 0.5 * (shrunk[..., channel] + averaged[..., 2 * channel]) - level
                sides = (margin, margin), (margin, margin + BEHIND)
                both = [np.pad(part, sides, mode="symmetric") for part in (plane, pilot)]

                def rows(start, stop, both=both, own=own):
                    places = self.search_radius, self.step
                    noise = SHRUNK_BY * self.noise
                    shrink_groups(*both, *places, basis, turned, noise, start, stop, own)

                run(rows, len(image), smallest_range=GROUPED_ROWS)
                own += level


def _are_alike(part, averages):
    """Whether a transformer writes the same channels as averages over similar patches."""
    if not isinstance(part, PatchAverages) or not np.array_equal(part.bandwidths, averages.bandwidths):
        return False
    names = "guide_threshold", "search_radius", "patch_radius"
    return all(getattr(part, name) == getattr(averages, name) for name in names)
