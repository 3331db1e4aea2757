"""Image restoration by learned linear filters, one for each position in a block and each kind of structure."""

from __future__ import annotations

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter
from sklearn.utils._param_validation import Interval

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_integer
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_numbers
from sklearn_crf._threads import map_coarse
from sklearn_crf.preprocessing._image_transformer import ChannelTransformer, as_images, match_layout, read_grey_planes
from sklearn_crf.preprocessing._tuning import BAND_ROWS, PULL_OF_PLACE, QUANTILE_PIXELS, SMOOTHED, SMOOTHED_REACH


@options(kw_only=False)
class AdaptiveFilters(ChannelTransformer, auto_wrap_output_keys=None):
    r"""Restore grey images with learned linear filters, one for each position in a block and each kind of structure.

    .. math::
        \hat y_s = m_s + w_{k(s)}^\top (x_{P(s)} - m_s), \qquad
        w_k = \arg\min_w \sum_{s : k(s) = k} (y_s - m_s - w^\top (x_{P(s)} - m_s))^2 + \lambda \| w - w_{p(k)} \|^2

    with the window P(s) around a pixel and its mean :math:`m_s`. The kind k(s) combines two properties. One is the
    position p of the pixel in blocks of ``period`` rows and columns. The other is the angle, strength and coherence of
    the gradients around the pixel. Gradients are computed on the image that is restored by the filters :math:`w_p` for
    positions alone. This image is the first output channel; :math:`\hat y` is the second. Mirrored positions in a block
    share filters. Images are extended by reflection.

    In ``fit_transform`` the second channel of an image uses filters that were learned from the other half of the
    images. A model trained on this channel then relies on the filters no more than it should on new images.

    Parameters
    ----------
    period : int, default=1
        Number of rows and columns of a block, counted from the first row and column: 8 for JPEG-compressed images.
    radius : int, default=4
        Number of rows and columns from a pixel to the border of its window P.
    n_angles : int, default=8
        Number of intervals of gradient angles, from 0 to 180 degrees.
    n_strengths : int, default=4
        Number of intervals of gradient strength, with equally many pixels each.
    n_coherences : int, default=3
        Number of intervals of gradient coherence (how well directions agree), with equally many pixels each.
    shrinkage : float, default=100.0
        Weight, in units of pixels, with which the filter of a kind is pulled towards the filter of its position.
    n_jobs : int or None, default=None
        Number of threads over images; results do not depend on it.

    Attributes
    ----------
    filters_ : ndarray of shape (n_kinds, (2 * radius + 1) ** 2 + 1)
        Filters of all kinds, each followed by its constant.
    place_filters_ : ndarray of shape (n_places, (2 * radius + 1) ** 2 + 1)
        Filters of the positions alone, each followed by its constant.
    thresholds_ : list of ndarray
        Limits of the intervals of strength, and of coherence.
    n_channels_ : int
        Number of channels of the images seen in ``fit``, which is one.
    reach_ : int
        Largest row or column distance between a pixel and the input pixels on which its channels depend.

    References
    ----------
    Y. Romano, J. Isidoro and P. Milanfar. RAISR: Rapid and Accurate Image Super Resolution. IEEE Transactions on
    Computational Imaging 3, 2017, :arxiv:`1606.01299`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import AdaptiveFilters
    >>> rng = np.random.default_rng(0)
    >>> clean = np.cumsum(rng.normal(size=(6, 40, 40)), axis=2)
    >>> noisy = clean + rng.normal(size=clean.shape)
    >>> filters = AdaptiveFilters(radius=2).fit(noisy[:5], clean[:5])
    >>> restored = filters.transform(noisy[5:])[0, ..., 1]
    >>> bool(
    ...     np.mean((restored - clean[5]) ** 2) < 0.5 * np.mean((noisy[5] - clean[5]) ** 2)
    ... )
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "period": [Interval(Integral, 1, None, closed="left")],
        "radius": [Interval(Integral, 0, None, closed="left")],
        "n_angles": [Interval(Integral, 1, None, closed="left")],
        "n_strengths": [Interval(Integral, 1, None, closed="left")],
        "n_coherences": [Interval(Integral, 1, None, closed="left")],
        "shrinkage": [Interval(Real, 0, None, closed="neither")],
    }
    period: int = 1
    _: KW_ONLY
    radius: int = 4
    n_angles: int = 8
    n_strengths: int = 4
    n_coherences: int = 3
    shrinkage: float = 100.0
    n_jobs: int | None = None

    @fits
    def fit(self, X: ArrayLike, y: ArrayLike) -> AdaptiveFilters:  # type: ignore[override]
        """Learn the filters.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, 1), or list of ndarray of shape (H, W) or (H, W, 1)
            Degraded images.
        y : array-like of the same shape as X, or list
            Clean images, in the order of X.

        Returns
        -------
        AdaptiveFilters
            self

        Raises
        ------
        ValueError
            If images have more than one channel, or an image in y differs in shape from its image in X.
        """
        self._fit(X, y)
        return self

    @fits
    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Learn the filters, and restore each training image with filters learned from images without it.

        Parameters
        ----------
        X : ndarray of shape (n, H, W) or (n, H, W, 1), or list of ndarray of shape (H, W) or (H, W, 1)
            Degraded images. A single image is restored by filters learned from itself.
        y : array-like of the same shape as X, or list
            Clean images, in the order of X.

        Returns
        -------
        ndarray of shape (n, H, W, 2), or of shape (n,) of ndarray of shape (H, W, 2)

        Raises
        ------
        ValueError
            As in ``fit``.
        """
        planes, moments = self._fit(X, y)
        halves = [self.filters_] if len(planes) < 2 else [self._solve_filters(moments[1 - half]) for half in (0, 1)]

        def one(item, n_threads):
            i, plane = item
            return self._restore(plane, halves[i % len(halves)])

        found = map_coarse(one, list(enumerate(planes)), self.n_jobs)
        return match_layout(X, found)

    def _fit(self, X, y):
        """Fit thresholds and the filters of positions; return planes of X, and moments of each half of the images."""
        planes, targets = (read_grey_planes(as_images(own), name, self) for own, name in ((X, "X"), (y, "y")))
        if len(planes) != len(targets):
            raise ValueError(f"y has {len(targets)} images, but X has {len(planes)}.")
        for i, (plane, target) in enumerate(zip(planes, targets, strict=True)):
            if plane.shape != target.shape:
                raise ValueError(f"y[{i}] must have the shape of X[{i}], {plane.shape}, got {target.shape}.")
        self.n_channels_ = 1
        self._shape = _FilterShape(self.period, self.radius, self.n_angles, self.n_strengths, self.n_coherences)
        pairs = list(zip(planes, targets, strict=True))
        start = _Moments.zeros(self._shape.n_places, self._shape.size)
        of_places = sum(map_coarse(self._sum_place_moments, pairs, self.n_jobs), start)
        variance = np.trace(of_places.squares.sum(axis=0)) / sum(plane.size for plane in planes) / self._shape.size
        ridge = PULL_OF_PLACE * max(variance, np.finfo(float).tiny) * np.eye(self._shape.size)
        self.place_filters_ = np.linalg.solve(of_places.squares + ridge, of_places.products[..., None])[..., 0]
        self._pull = self.shrinkage * max(variance, np.finfo(float).tiny)
        self.thresholds_ = self._quantiles(planes)
        moments = [_Moments.zeros(self._shape.n_kinds, self._shape.size) for _ in range(2)]
        for i, (plane, target) in enumerate(pairs):
            self._add_moments(plane, target, moments[i % 2], self._compute_structure(self._filtered(plane)))
        self.filters_ = self._solve_filters(moments[0] + moments[1])
        return planes, moments

    @property
    def period_(self) -> int:
        return self._shape.period

    @property
    def reach_(self) -> int:
        """Largest row or column distance between a pixel and the input pixels on which its channels depend."""
        return 2 * self._shape.radius + SMOOTHED_REACH + 1

    def _check_fitted(self) -> None:
        super()._check_fitted()
        shape, radius = self._shape, self._shape.radius
        for name, value in shape._asdict().items():
            as_integer(value, name, lowest=0 if value is radius else 1)
        require_numbers("place_filters_", self.place_filters_, (shape.n_places, shape.size))
        require_numbers("filters_", self.filters_, (shape.n_kinds, shape.size))
        for limits, n in zip(self.thresholds_, (shape.n_strengths, shape.n_coherences), strict=True):
            require_numbers("thresholds_", limits, (n - 1,))

    def _sum_place_moments(self, pair, n_threads):
        found = _Moments.zeros(self._shape.n_places, self._shape.size)
        self._add_moments(*pair, found)
        return found

    def _add_moments(self, plane, target, moments, structure=None):
        for rows, means, inputs, kinds in self._iterate_bands(plane, structure):
            moments.add(inputs, (target[rows] - means).ravel(), kinds)

    def _solve_filters(self, moments):
        """Return the filters of all kinds: a ridge solution, shrunk towards the filters of positions."""
        start = np.repeat(self.place_filters_, self._shape.n_kinds // len(self.place_filters_), axis=0)
        off = moments.products - np.einsum("kij,kj->ki", moments.squares, start)
        return start + np.linalg.solve(moments.squares + self._pull * np.eye(self._shape.size), off[..., None])[..., 0]

    def _iterate_bands(self, plane, structure=None):
        """Yield, for each band of rows, the rows, means (h, W), inputs (h * W, size) and pixel kinds (h * W,)."""
        # plane: (H, W); structure: angle, strength and coherence at each pixel; None if kinds are positions
        shape, period, radius = plane.shape, self._shape.period, self._shape.radius
        side = 2 * radius + 1
        padded = np.pad(plane, radius, mode="symmetric")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
        down, right = (np.arange(n) % period for n in shape)
        turned = [own > period - 1 - own for own in (down, right)]
        down, right = (np.minimum(own, period - 1 - own) for own in (down, right))
        places = down[:, None] * -(-period // 2) + right
        mirrored = turned[0][:, None] ^ turned[1]
        for start in range(0, shape[0], BAND_ROWS):
            rows = slice(start, start + BAND_ROWS)
            own = windows[rows].astype(np.float32)
            own[turned[0][rows]] = own[turned[0][rows], :, ::-1]
            own[:, turned[1]] = own[:, turned[1], :, ::-1]
            means = own.mean(axis=(2, 3), dtype=np.float64)
            own = own.reshape(*means.shape, -1) - means.astype(np.float32)[..., None]
            inputs = np.concatenate([own, np.ones((*means.shape, 1), dtype=np.float32)], axis=2)
            kinds = places[rows]
            if structure is not None:
                kinds = self._kinds([of_pixels[rows] for of_pixels in structure], kinds, mirrored[rows])
            yield rows, means, inputs.reshape(-1, self._shape.size), kinds.ravel()

    def _filtered(self, plane, structure=None, filters=None):
        """Restore an image (H, W) by the filters of kinds or, if no structure is given, by the filters of positions."""
        filters = self.place_filters_ if structure is None else filters
        found = np.empty(plane.shape)
        for rows, means, inputs, kinds in self._iterate_bands(plane, structure):
            found[rows] = means + _filter(inputs, kinds, filters).reshape(means.shape)
        return found

    def _compute_structure(self, plane):
        """Return the angle, strength and coherence of the gradients around every pixel."""
        down, right = (_slopes(plane, axis) for axis in (0, 1))
        moments = (
            gaussian_filter(own, SMOOTHED, truncate=SMOOTHED_REACH / SMOOTHED)
            for own in (down**2, right**2, down * right)
        )
        of_down, of_right, both = moments
        root = np.hypot(of_right - of_down, 2 * both)
        larger, smaller = (np.sqrt(np.maximum((of_down + of_right + sign * root) / 2, 0)) for sign in (1, -1))
        angle = 0.5 * np.arctan2(2 * both, of_right - of_down)
        return angle, larger, (larger - smaller) / np.maximum(larger + smaller, np.finfo(np.float32).tiny)

    def _quantiles(self, planes):
        step = max(1, sum(plane.size for plane in planes) // QUANTILE_PIXELS)
        sampled = []
        for plane in planes:
            _, strength, coherence = self._compute_structure(self._filtered(plane))
            sampled.append(np.stack([strength.ravel()[::step], coherence.ravel()[::step]]))
        strength, coherence = np.concatenate(sampled, axis=1)
        parts = (strength, self._shape.n_strengths), (coherence, self._shape.n_coherences)
        return [np.quantile(own, np.arange(1, n) / n) for own, n in parts]

    def _kinds(self, structure, places, mirrored):
        angle, strength, coherence = structure
        angle = np.where(mirrored, -angle, angle)
        turn = np.floor((angle / np.pi + 0.5) * self._shape.n_angles + 0.5).astype(int) % self._shape.n_angles
        kinds = places * self._shape.n_angles + turn
        kinds = kinds * self._shape.n_strengths + np.searchsorted(self.thresholds_[0], strength)
        return kinds * self._shape.n_coherences + np.searchsorted(self.thresholds_[1], coherence)

    def _restore(self, plane, filters):
        """Return an image (H, W, 2), restored by linear filters in channel 0 and by adaptive filters in channel 1."""
        first = self._filtered(plane)
        second = self._filtered(plane, self._compute_structure(first), filters)
        return np.stack([first, second], axis=2).astype(np.float32)

    def _write(self, image, out, n_threads, before=()):
        out[...] = self._restore(image[..., 0].astype(np.float64), self.filters_)

    def _name_channel_features(self) -> list[str]:
        return ["linear", "adaptive"]


class _FilterShape(NamedTuple):
    """Parameters with which the filters were fitted. Users may set other parameters after ``fit``."""

    period: int
    radius: int
    n_angles: int
    n_strengths: int
    n_coherences: int

    @property
    def size(self) -> int:
        return (2 * self.radius + 1) ** 2 + 1

    @property
    def n_places(self) -> int:
        return (-(-self.period // 2)) ** 2

    @property
    def n_kinds(self) -> int:
        return self.n_places * self.n_angles * self.n_strengths * self.n_coherences


class _Moments(NamedTuple):
    """Sums over pixels from which least squares are solved, with separate sums for each kind of pixel."""

    squares: np.ndarray  # (n_kinds, size, size), sums of outer products of the inputs
    products: np.ndarray  # (n_kinds, size), sums of inputs times targets

    @classmethod
    def zeros(cls, n_kinds, size):
        return cls(np.zeros((n_kinds, size, size)), np.zeros((n_kinds, size)))

    def __add__(self, other):
        return _Moments(*(a + b for a, b in zip(self, other, strict=True)))

    def add(self, inputs, targets, kinds):
        """Add the pixels of a band to the sums in place."""
        for kind, own in _group_pixels_by_kind(kinds):
            chosen = inputs[own]
            self.squares[kind] += chosen.T @ chosen
            self.products[kind] += chosen.T @ targets[own]


def _group_pixels_by_kind(kinds):
    """Return a list of pairs: each kind that occurs, and the indices of its pixels."""
    order = np.argsort(kinds, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)
    return [(kinds[own[0]], own) for own in parts]


def _filter(inputs, kinds, filters):
    found = np.empty(len(inputs))
    for kind, own in _group_pixels_by_kind(kinds):
        found[own] = inputs[own] @ filters[kind]
    return found


def _slopes(plane, axis):
    return np.gradient(plane, axis=axis) if plane.shape[axis] > 1 else np.zeros(plane.shape)
