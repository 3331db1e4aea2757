"""Features of pixels, as linear operators: masks of learned patches, placed where a patch matches the image best."""

from __future__ import annotations

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike
from scipy.ndimage import binary_dilation, binary_erosion
from scipy.sparse.linalg import LinearOperator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_integers, check_option
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_numbers
from sklearn_crf._threads import map_coarse
from sklearn_crf.encoding import make_object_array
from sklearn_crf.kernels.preprocessing.images import add_steps, sum_under_masks
from sklearn_crf.preprocessing._image_transformer import ImageTransformer, as_images, read_grey_planes
from sklearn_crf.preprocessing._tuning import LEAST_CONTRAST, MOST_DRAWN, SPECTRA_AT_ONCE


@options(kw_only=False)
class PatchOverlays(ImageTransformer, auto_wrap_output_keys=None):
    r"""Compute features of pixels by placing the mask of each learned patch where the patch matches the image best.

    .. math::
        x_{s, p} = \rho_p \, m_p(s - o_p), \qquad
        o_p = \arg\max_o \, |\mathrm{ncc}(a_p, I_o)|, \qquad \rho_p = |\mathrm{ncc}(a_p, I_{o_p})|

    with the normalised cross-correlation of the patch :math:`a_p` and the window :math:`I_o` of the image, and the mask
    :math:`m_p`, which is 1 on the object, -1 beside it, and 0 outside of the patch. Patches are drawn at random near
    the boundaries of the masks in the training images. Patches that are too similar to an earlier patch are rejected. A
    field learns which patches indicate the location of the object.

    The features of an image are a :class:`scipy.sparse.linalg.LinearOperator` for :class:`~sklearn_crf.Example`. The
    operator stores only the position and the correlation of each patch, 16 bytes. A sparse matrix for 1,000 patches,
    with 2,500 entries of each mask, would take about 20 MB per image.

    Parameters
    ----------
    patch_size : int or list of int, default=50
        Height and width of a patch, in pixels. With several sizes, patches show parts of an object and the whole
        object.
    n_patches : int, default=1000
        Number of patches of each size; fewer if the images do not have that many.
    max_correlation : float, default=0.8
        Largest absolute correlation of two patches of equal size, above 0 and at most 1.
    max_distance : int, list of int or None, default=None
        Largest distance from the boundary of a mask to the centre of a patch, in steps between neighbouring pixels. A
        list has one number for each size. 1 centres patches on boundaries. None is half of ``patch_size``, so that
        patches also show what is beside the boundary.
    random_state : int, RandomState instance or None, default=None
        Determines the patches. An int is used as seed for every size.
    n_jobs : int or None, default=None
        Number of threads over images; results do not depend on it.

    Attributes
    ----------
    patches_ : list of ndarray of shape (n, patch_size, patch_size), float32
        Patches with mean 0 and norm 1, one array for each size.
    masks_ : list of ndarray of shape (n, patch_size, patch_size), int8
        Masks of the patches: 1 on the object and -1 beside it.
    sources_ : list of ndarray of shape (n,), int64
        Index of the training image of each patch.
    n_patches_ : int
        Number of patches of all sizes; features are ordered by size.
    n_channels_ : int
        Number of channels of an image, which is one.

    References
    ----------
    J. Jancsary. Approximate Discriminative Training of Graphical Models. 2012, "Segmentation of Horse Images". M.
    Tappen, K. Samuel, C. Dean and D. Lyle. The Logistic Random Field. CVPR 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Example, TRWCRF
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.preprocessing import PatchOverlays
    >>> rng = np.random.default_rng(0)
    >>> masks = np.zeros((8, 20, 24), dtype=int)
    >>> for mask, (i, j) in zip(masks, rng.integers(12, size=(8, 2))):
    ...     mask[i : i + 7, j : j + 7] = 1
    >>> images = masks + 0.3 * rng.normal(size=masks.shape)
    >>> overlays = PatchOverlays(patch_size=9, n_patches=20, random_state=0)
    >>> features = overlays.fit_transform(images, masks)
    >>> features[0].shape
    (480, 20)
    >>> X = [Example(x, lattice((20, 24))) for x in features]
    >>> field = TRWCRF(edge_features="constant").fit(X, masks.reshape(8, -1))
    >>> bool(field.score(X, masks.reshape(8, -1)) > 1 - masks.mean())
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "patch_size": [Interval(Integral, 2, None, closed="left"), list, tuple],
        "n_patches": [Interval(Integral, 1, None, closed="left")],
        "max_correlation": [Interval(Real, 0, 1, closed="right")],
        "max_distance": [Interval(Integral, 1, None, closed="left"), list, tuple, None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }
    patch_size: int | list[int] = 50
    n_patches: int = 1000
    _: KW_ONLY
    max_correlation: float = 0.8
    max_distance: int | list[int] | None = None
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: ArrayLike) -> PatchOverlays:  # type: ignore[override]
        """Draw patches near the boundaries of masks.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, 1), or list of ndarray of shape (H, W) or (H, W, 1)
            Grey images.
        y : array-like of shape (n, H, W), or list of array-like of shape (H, W)
            Masks, which are 1 on the object and 0 beside it.

        Returns
        -------
        PatchOverlays
            self

        Raises
        ------
        ValueError
            If ``max_distance`` differs in length from ``patch_size``, or a number in these lists is too small; if
            images have more than one channel, or masks differ in shape from their images; or if, for some size, no
            window with contrast has its centre near the boundary of a mask.
        """
        self._fit(read_grey_planes(as_images(X), "X", self), y)
        return self

    @fits
    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Fit the patches, and compute the features of each training image without the patches drawn from it.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, 1), or list of ndarray of shape (H, W) or (H, W, 1)
            Grey images.
        y : array-like of shape (n, H, W), or list of array-like of shape (H, W)
            Masks, which are 1 on the object and 0 beside it.

        Returns
        -------
        ndarray of shape (n,) of LinearOperator of shape (H * W, n_patches)
            Features of the pixels of each image, row by row.

        Raises
        ------
        ValueError
            As in ``fit``.
        """
        planes = read_grey_planes(as_images(X), "X", self)
        self._fit(planes, y)
        return make_object_array(self._compute_overlays(planes, range(len(planes))))

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Compute the features of images.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, 1), or list of ndarray of shape (H, W) or (H, W, 1)
            Grey images.

        Returns
        -------
        ndarray of shape (n,) of LinearOperator of shape (H * W, n_patches)
            Features of the pixels of each image, row by row. Features of patches that are larger than an image are 0.
        """
        return super().transform(X)

    def _transform_images(self, images):
        return self._compute_overlays(read_grey_planes(images, "X", self), [None] * len(images))

    def _fit(self, planes, y):
        sizes = self._list_sizes()
        masks, deviation = _as_masks(y, planes), np.concatenate([plane.ravel() for plane in planes]).std()
        # Minimum standard deviation of windows and patches with sufficient contrast
        least_deviation = max(LEAST_CONTRAST * deviation, np.finfo(np.float32).tiny)
        found = [self._draw_patches(planes, masks, least_deviation, *size) for size in sizes]
        self.patches_, self.masks_, self.sources_ = map(list, zip(*found, strict=True))
        self._least_deviation, self.n_channels_ = least_deviation, 1

    @property
    def n_patches_(self) -> int:
        """Total number of patches. Features are ordered by patch size."""
        return sum(map(len, self.patches_))

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_option(self._least_deviation, "_least_deviation", lambda value: 0 < value < np.inf, "be positive")
        for patches, masks, sources in zip(self.patches_, self.masks_, self.sources_, strict=True):
            require_numbers("patches_", patches, (len(sources), patches.shape[1], patches.shape[1]))
            require_numbers("masks_", masks, patches.shape)
            require_numbers("sources_", sources, (None,))
            if masks.dtype != np.int8 or not np.all(np.abs(masks) == 1):
                raise ValueError("masks_ must be 1 or -1, of type int8.")

    def _list_sizes(self):
        """Return, for each patch size, the size and the maximum distance from boundaries to patch centres."""
        sizes = _check_numbers("patch_size", self.patch_size, lowest=2)
        if self.max_distance is None:
            return [(size, size // 2) for size in sizes]
        distances = _check_numbers("max_distance", self.max_distance, lowest=1)
        if np.ndim(self.max_distance) == 0:
            distances *= len(sizes)
        if len(distances) != len(sizes):
            raise ValueError(
                f"max_distance has {len(distances)} numbers, but patch_size has {len(sizes)}: give one number for each."
            )
        return list(zip(sizes, distances, strict=True))

    def _draw_patches(self, planes, masks, least_deviation, size, steps):
        """Draw patches of one size; return the patches, their masks, and the index of each patch's image."""
        rng = check_random_state(self.random_state)
        corners = [_list_corners(mask, size, steps) for mask in masks]
        usable = [i for i, places in enumerate(corners) if len(places)]
        known = np.zeros((self.n_patches, size * size))
        found: list[tuple] = []
        for _ in range(MOST_DRAWN * self.n_patches if usable else 0):
            i = usable[rng.randint(len(usable))]
            top, left = corners[i][rng.randint(len(corners[i]))]
            place = slice(top, top + size), slice(left, left + size)
            patch = planes[i][place] - planes[i][place].mean()
            if patch.std() < least_deviation:
                continue
            patch /= np.linalg.norm(patch)
            if np.abs(known[: len(found)] @ patch.ravel()).max(initial=0) > self.max_correlation:
                continue
            known[len(found)] = patch.ravel()
            found.append((patch, np.where(masks[i][place], 1, -1).astype(np.int8), i))
            if len(found) == self.n_patches:
                break
        if not found:
            raise ValueError(
                f"X has no window of {size} x {size} pixels with some contrast and a centre near the boundary of a "
                "mask in y: decrease patch_size, increase max_distance, or check y."
            )
        patches, signs, sources = zip(*found, strict=True)
        return np.array(patches, dtype=np.float32), np.array(signs), np.array(sources)

    def _compute_overlays(self, planes, left_out):
        # left_out: for each image, the index of the training image whose patches get strength 0, or None for no image
        steps_of_sizes = [_find_mask_changes(masks) for masks in self.masks_]

        def overlay(item, n_threads):
            plane, source = item
            parts = []
            for patches, steps, sources in zip(self.patches_, steps_of_sizes, self.sources_, strict=True):
                corners, strengths = _find_best_places(plane, patches, self._least_deviation)
                parts.append((*steps, corners, np.where(sources == source, 0.0, strengths)))
            return _Overlay(parts, plane.shape)

        return map_coarse(overlay, list(zip(planes, left_out, strict=True)), self.n_jobs)

    def _build_feature_names(self, input_features):
        return [f"patch{p}" for p in range(self.n_patches_)]


class _Overlay(LinearOperator):
    """Features of the pixels of one image: each patch's mask, at the best match, times the correlation."""

    def __init__(self, parts, shape):
        # parts: for each size, changes in masks (n_steps, 3), starts of masks (P + 1,), corners (P, 2), strengths (P,)
        self._parts, self._image_shape = parts, shape
        self._ends = np.cumsum([len(part[-1]) for part in parts])
        super().__init__(np.float64, (shape[0] * shape[1], int(self._ends[-1])))

    def _matmat(self, weights):
        weights = np.asarray(weights, dtype=np.float64)
        height, width = self._image_shape
        planes = np.zeros((weights.shape[1], height, width + 1))
        for (*masks, strengths), own in zip(self._parts, np.split(weights, self._ends[:-1]), strict=True):
            add_steps(*masks, np.ascontiguousarray(own.T * strengths), planes)
        return planes[..., :-1].cumsum(axis=2).reshape(len(planes), -1).T

    def _rmatvec(self, numbers):
        # Older versions of SciPy call _rmatvec to multiply single columns.
        return self._rmatmat(np.reshape(numbers, (-1, 1)))[:, 0]

    def _rmatmat(self, numbers):
        numbers = np.asarray(numbers, dtype=np.float64)
        height, width = self._image_shape
        sums_before = np.zeros((numbers.shape[1], height, width + 1))
        np.cumsum(numbers.T.reshape(-1, height, width), axis=2, out=sums_before[..., 1:])
        sums = np.zeros((self.shape[1], len(sums_before)))
        for (*masks, strengths), own in zip(self._parts, np.split(sums, self._ends[:-1]), strict=True):
            sum_under_masks(*masks, strengths, sums_before, own)
        return sums


def _find_mask_changes(masks):
    """Return the row, column and size of each change along mask rows, (n, 3), and where each mask starts, (P + 1,)."""
    changes = np.diff(masks, axis=2, prepend=np.int8(0), append=np.int8(0))
    mask, row, column = np.nonzero(changes)
    steps = np.stack((row, column, changes[mask, row, column]), axis=1).astype(np.int32)
    return steps, np.searchsorted(mask, np.arange(len(masks) + 1)).astype(np.int32)


def _check_numbers(name, given, lowest):
    """Check a number or a list of numbers, and return a list."""
    numbers = list(given) if isinstance(given, (list, tuple)) else [given]
    if not numbers or not all(isinstance(number, Integral) and number >= lowest for number in numbers):
        raise InvalidParameterError(
            f"{name} must be an int of at least {lowest} or a non-empty list of such integers, got {given!r}."
        )
    return numbers


def _find_best_places(plane, all_patches, least_deviation):
    """Return, for each patch (P, size, size), the corner (P, 2) of the best match, and the correlation (P,) there."""
    corners, strengths = np.zeros((len(all_patches), 2), dtype=np.int32), np.zeros(len(all_patches))
    size = all_patches.shape[1]
    if min(plane.shape) < size:
        return corners, strengths
    shape = [scipy.fft.next_fast_len(n, real=True) for n in plane.shape]
    spectrum = scipy.fft.rfft2((plane - plane.mean()).astype(np.float32), shape)
    centred = plane - plane.mean()  # keeps more digits in the difference of squares
    sums, squares = (_sum_windows(values, size) for values in (centred, centred**2))
    variance = squares - sums**2 / size**2
    deviations = np.sqrt(np.maximum(variance, (size * least_deviation) ** 2)).astype(np.float32)
    height, width = deviations.shape
    for start in range(0, len(all_patches), SPECTRA_AT_ONCE):
        part = slice(start, start + SPECTRA_AT_ONCE)
        patches = scipy.fft.rfft2(all_patches[part], shape)
        products = scipy.fft.irfft2(spectrum * np.conj(patches), shape)[:, :height, :width]
        fits = (np.abs(products) / deviations).reshape(len(products), -1)
        best = fits.argmax(axis=1)
        corners[part] = np.stack(np.unravel_index(best, (height, width)), axis=1)
        strengths[part] = fits[np.arange(len(fits)), best]
    return corners, np.minimum(strengths, 1.0)


def _as_masks(y, planes):
    if len(y) != len(planes):
        raise ValueError(f"y has {len(y)} masks, but X has {len(planes)} images.")
    masks = []
    for i, (mask, plane) in enumerate(zip(y, planes, strict=True)):
        mask = as_integers(mask, f"y[{i}]", shape=plane.shape, lowest=0, highest=1, kinds="iub")
        masks.append(mask.astype(bool))
    return masks


def _list_corners(mask, size, steps):
    """Return the corners (n, 2) of windows whose centre is at most ``steps`` from the boundary of a mask."""
    near = binary_dilation(mask, iterations=steps) & ~binary_erosion(mask, iterations=steps, border_value=1)
    corners = np.argwhere(near) - size // 2
    inside = (corners >= 0).all(axis=1) & (corners + size <= mask.shape).all(axis=1)
    return corners[inside]


def _sum_windows(values, size):
    total = np.pad(values, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    return total[size:, size:] - total[:-size, size:] - total[size:, :-size] + total[:-size, :-size]
