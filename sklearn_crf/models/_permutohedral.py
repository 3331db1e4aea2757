"""Gaussian filtering in any number of dimensions, using a permutohedral lattice."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import as_integer, as_integers, as_scores
from sklearn_crf._own_methods import restoring
from sklearn_crf._threads import cached_property
from sklearn_crf.kernels.dense.fields import filter_rows, number_corners, points_of_vertices
from sklearn_crf.models import _tuning

MAX_AXES = 31
_VECTOR_BYTES = 32


class PermutohedralFilter:
    r"""Filter that sums values over all points, weighted by a Gaussian of the distance between features.

    .. math::
        (\hat K v)_i = n_i \sum_j \exp\big(-\tfrac12 \lVert f_i - f_j \rVert^2\big) \, n_j \, v_j, \qquad
        n_i = \Big(\sum_j \exp\big(-\tfrac12 \lVert f_i - f_j \rVert^2\big)\Big)^{-1/2}

    The sums are approximate and take time linear in the number of points. Values are splatted to the vertices of the
    simplices that contain the points, blurred along the axes of the lattice, and sliced at the points. The lattice is
    built once and can be applied any number of times. The order of all sums is fixed, so results are bit-identical for
    any number of threads.

    Parameters
    ----------
    features : array-like of shape (n_points, n_axes), float32 or float64
        Positions and other features of each point, divided by their bandwidths.
    normalization : {"symmetric"} or None, default="symmetric"
        With "symmetric", the filter is normalised as above, and no eigenvalue of the matrix exceeds one. With None,
        :math:`n_i = 1`.
    blur : {"single", "symmetric"}, default="single"
        With "single", the blur makes one pass along each axis with weights 1/4, 1/2, 1/4. The matrix is then symmetric
        except at the few vertices that lack neighbours. With "symmetric", the blur makes passes with weights 1/8, 3/4,
        1/8 along all axes and back again. The matrix is then symmetric and positive semi-definite, but there are twice
        as many passes.
    max_memory : float, default=2**33
        Maximum number of bytes of the lattice.
    n_threads : int, default=1
        Number of threads that build the lattice.

    Attributes
    ----------
    n_points, n_axes : int
    n_vertices : int
        Number of lattice vertices to which a point contributes.
    largest_eigenvalue : float
        Upper bound on the eigenvalues of the matrix: 1 if it is normalised, otherwise its largest row sum.
    blur : str
        The ``blur`` parameter.
    vertex : ndarray of shape (n_points, n_axes + 1), int32
        Corners of the simplex around each point.
    weight : ndarray of shape (n_points, n_axes + 1)
        Barycentric weights of the corners, times :math:`n_i`.

    Raises
    ------
    ValueError
        If a feature is not finite, there are more than 31 axes, or features are so large (bandwidths so small) that
        the lattice has more than 2**63 cells.
    MemoryError
        If the lattice would need more than ``max_memory``. The error is raised before the allocation.

    References
    ----------
    A. Adams, J. Baek & M. A. Davis (2010). Fast high-dimensional filtering using the permutohedral lattice. Computer
    Graphics Forum 29, 753-762. :doi:`10.1111/j.1467-8659.2009.01645.x`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.models import PermutohedralFilter
    >>> positions = np.arange(5.0)[:, np.newaxis]
    >>> smooth = PermutohedralFilter(positions / 2.0, normalization=None)
    >>> smooth.apply(np.eye(5)[:, [2]]).ravel().round(2)
    array([0.64, 0.86, 0.99, 0.85, 0.62])
    """

    n_vertices: int
    vertex: np.ndarray
    weight: np.ndarray
    _neighbors: np.ndarray

    def __init__(
        self,
        features: ArrayLike,
        *,
        normalization: str | None = "symmetric",
        blur: str = "single",
        max_memory: float = 2**33,
        n_threads: int = 1,
    ) -> None:
        features = _check_features(features)
        if normalization not in ("symmetric", None):
            raise ValueError(f"normalization must be 'symmetric' or None, got {normalization!r}.")
        if blur not in ("single", "symmetric"):
            raise ValueError(f"blur must be 'single' or 'symmetric', got {blur!r}.")
        self.n_points, self.n_axes = features.shape
        self.dtype = features.dtype
        self.blur = blur
        self.max_memory = max_memory
        self._set_passes()
        self._build(features, normalization, n_threads)
        self.largest_eigenvalue = 1.0
        if normalization is None:
            self.largest_eigenvalue = float(self.apply(np.ones((self.n_points, 1))).max())

    def _set_passes(self) -> None:
        """Set the order of the axes along which values are blurred, and the weights of the blur."""
        self._axes, self._stencil = np.arange(self.n_axes + 1), (1 / 2, 1 / 4)
        if self.blur == "symmetric":
            self._axes, self._stencil = np.concatenate([self._axes, self._axes[::-1]]), (3 / 4, 1 / 8)

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_points_of_vertices"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        with restoring(self):
            self._check_lattice()

    def _check_lattice(self) -> None:
        """Raise ValueError unless the arrays of the lattice are safe for the kernels."""
        self.n_points, self.n_axes = as_integer(self.n_points, "n_points"), as_integer(self.n_axes, "n_axes")
        self.n_vertices = as_integer(self.n_vertices, "n_vertices", lowest=1)
        if self.dtype not in (np.float32, np.float64) or not 1 <= self.n_axes <= MAX_AXES:
            raise ValueError(f"a filter must have 1 to {MAX_AXES} axes, and weights in float32 or float64.")
        corners = (self.n_points, self.n_axes + 1)
        self.vertex = as_integers(self.vertex, "vertex", shape=corners, lowest=0, highest=self.n_vertices - 1)
        self._neighbors = as_integers(
            self._neighbors,
            "_neighbors",
            shape=(self.n_axes + 1, self.n_vertices, 2),
            lowest=0,
            highest=self.n_vertices,
        )
        self.weight = np.ascontiguousarray(as_scores(self.weight, "weight", self.dtype, may_forbid=False))
        if self.weight.shape != corners:
            raise ValueError(f"weight must have shape {corners}, got {self.weight.shape}.")
        self._set_passes()

    def apply(self, values: ArrayLike, *, adjoint: bool = False, n_threads: int = 1) -> np.ndarray:
        """Return the filtered values of all points.

        Parameters
        ----------
        values : array-like of shape (n_points, n_channels)
            Converted to the precision of the features.
        adjoint : bool, default=False
            Apply the transposed matrix: the blur runs along the axes in the opposite order.
        n_threads : int, default=1
            Number of threads. Results do not depend on it.

        Returns
        -------
        ndarray of shape (n_points, n_channels)
        """
        values = np.asarray(values)
        if values.ndim != 2 or len(values) != self.n_points:
            raise ValueError(f"values must have shape ({self.n_points}, n_channels), got {values.shape}.")
        padded = pad_rows(values, self.dtype)
        filter_rows(self.lattice(padded.shape[1]), padded, adjoint, padded, n_threads)
        return np.ascontiguousarray(padded[:, : values.shape[1]])

    @property
    def memory(self) -> int:
        """Upper bound on the number of bytes of the lattice.

        The lattice needs 16 bytes (float32) or 24 bytes (float64) for each corner of each point, where a point has
        ``n_axes + 1`` corners, and 8 bytes for each vertex and axis. Half of the bytes for corners are only allocated
        if more than 4 channels are filtered.
        """
        return 2 * self._corner_bytes + 8 * (self.n_axes + 2) * self.n_vertices

    @property
    def _corner_bytes(self):
        return self.n_points * (self.n_axes + 1) * (4 + self.dtype.itemsize)

    def lattice(self, width: int) -> tuple:
        """Return the arrays that the kernels need to filter rows.

        Parameters
        ----------
        width : int
            Length of the rows, as returned by :func:`pad_rows`.

        Returns
        -------
        tuple

        Raises
        ------
        MemoryError
            If the lattice and the values of its vertices would need more than ``max_memory``.
        """
        # The number of parts does not depend on the number of threads, so that sums have the same rounding errors.
        n_parts = min(8, max(1, self.n_points // (4 * self.n_vertices))) if width <= _tuning.LONGEST_SCATTERED else 0
        row_bytes = width * (2 * self.dtype.itemsize + 8 * n_parts)
        lattice_bytes = self.memory - (self._corner_bytes if n_parts else 0)
        self._require_memory(lattice_bytes + (self.n_vertices + 1) * row_bytes)
        nothing = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, self.dtype)
        points = nothing if n_parts else self._points_of_vertices
        return self.vertex, self.weight, self._neighbors, self._axes, *self._stencil, n_parts, *points

    @cached_property
    def _points_of_vertices(self):
        """Points of each vertex in ascending order: starts (M + 1,), points (N (d + 1),) and weights (N (d + 1),)."""
        ptr = np.zeros(self.n_vertices + 2, np.int64)
        point_of, weight_of = np.empty(self.vertex.size, np.int32), np.empty(self.vertex.size, self.dtype)
        points_of_vertices(self.vertex, self.weight, ptr, point_of, weight_of)
        return ptr[:-1], point_of, weight_of

    def _build(self, features, normalization, n_threads):
        self.n_vertices = 0
        self._require_memory(self.memory)
        n, d = features.shape
        self.vertex, self.weight = np.empty((n, d + 1), np.int32), np.empty((n, d + 1), features.dtype)
        vertices = number_corners(features, *_choose_digits(features), self.vertex, self.weight, n_threads)
        self.n_vertices = vertices.n_vertices
        self._require_memory(self.memory)
        self._neighbors = np.empty((d + 1, self.n_vertices, 2), np.int32)
        vertices.find_neighbors(self._neighbors, n_threads)
        self.weight *= self._compute_point_scale(normalization, n_threads)

    def _compute_point_scale(self, normalization, n_threads):
        """Return the factors n_i by which rows and columns of the matrix are scaled: an array (N, 1), or one number."""
        d = self.n_axes
        # In units of the bandwidths, a cell has the volume (3/2)^(d/2) / sqrt(d+1).
        # The integral of the Gaussian is (2 pi)^(d/2). The weights of splatting, blurring and slicing sum to one.
        gain = (4 * np.pi / 3) ** (d / 2) * np.sqrt(d + 1)
        if normalization is None:
            return self.dtype.type(np.sqrt(gain))
        return 1 / np.sqrt(self.apply(np.ones((self.n_points, 1)), n_threads=n_threads))

    def _require_memory(self, n_bytes: int) -> None:
        if n_bytes > self.max_memory:
            raise MemoryError(
                f"The lattice of {self.n_points} points with {self.n_axes} features takes at least "
                f"{n_bytes / 2**30:.3g} GB, more than max_memory={self.max_memory:.3g} bytes: increase max_memory, "
                "use larger bandwidths or split the image."
            )


def _check_features(features):
    features = np.asarray(features)
    if features.dtype != np.float32:
        features = features.astype(np.float64)
    if features.ndim != 2 or not 1 <= features.shape[1] <= MAX_AXES or not len(features):
        raise ValueError(
            f"features must have shape (n_points, n_axes) with 1 to {MAX_AXES} axes and at least one point, got shape "
            f"{features.shape}."
        )
    if len(features) >= 2**31:
        raise ValueError(f"features must have fewer than 2**31 points, got {len(features)}.")
    if not np.isfinite(features).all():
        raise ValueError("features must be finite, found NaN or infinity.")
    return np.ascontiguousarray(features)


def pad_rows(values: np.ndarray, dtype, fill: float = 0) -> np.ndarray:
    """Pad rows of values to a multiple of the vector length; pad rows shorter than a vector to a power of two."""
    # values: (n_rows, n_channels); returns: (n_rows, width)
    lanes = _VECTOR_BYTES // np.dtype(dtype).itemsize
    n_channels = values.shape[1]
    width = -(-n_channels // lanes) * lanes if n_channels > lanes else 1 << max(n_channels - 1, 0).bit_length()
    padded = np.full((len(values), width), fill, dtype)
    padded[:, :n_channels] = values
    return padded


def _choose_digits(features: np.ndarray) -> tuple:
    """Return the scales of the features, and the offset and stride of each digit in the keys of vertices."""
    d = features.shape[1]
    i = np.arange(1, d + 1)
    # The variance of the blur is (d+1)^2 / 2. The variance of splatting and slicing together is (d+1)^2 / 6.
    scale = np.sqrt(2 / 3) * (d + 1) / np.sqrt(i * (i + 1))
    embedding = np.vstack([np.ones(d), np.triu(np.ones((d, d)), k=1) - np.diag(i)])[:d] * scale / (d + 1)
    sizes, low = _compute_digit_ranges(_find_bounding_box(features), embedding)
    if not _compute_log2_cells(sizes) < 63:
        sizes, low = _compute_digit_ranges(features, embedding)
    if not _compute_log2_cells(sizes) < 63 or np.abs(low).max() > 2**52:
        raise ValueError(
            f"The lattice has 2**{_compute_log2_cells(sizes):.0f} cells, more than the maximum of 2**63, because the"
            f" ranges of the {d} features are too large for their bandwidths: use larger bandwidths."
        )
    stride = np.concatenate([[1], np.cumprod(sizes[:-1].astype(np.int64), dtype=np.int64)]) * (d + 1)
    return scale, low.astype(np.int64), stride


def _find_bounding_box(features: np.ndarray) -> np.ndarray:
    """Return the corners of the points' bounding box at which a coordinate in the hyperplane is extreme."""
    low, high = (_reduce_columns(features, *each) for each in ((np.minimum, np.inf), (np.maximum, -np.inf)))
    # A coordinate decreases in one feature, increases in later features, and does not depend on earlier ones.
    turned = np.eye(len(low), dtype=bool)
    return np.vstack([low, high, np.where(turned, high, low), np.where(turned, low, high)])


def _reduce_columns(features, function, initial):
    # Reduce in rows of 64 points, because NumPy reduces arrays with few columns slowly.
    n, d = features.shape
    long_rows = features[: n // 64 * 64].reshape(-1, 64 * d)
    reduced = function.reduce(long_rows, axis=0, initial=initial).reshape(64, d)
    return function.reduce(np.vstack([reduced, features[n // 64 * 64 :]]), axis=0).astype(np.float64)


def _compute_digit_ranges(points: np.ndarray, embedding: np.ndarray) -> tuple:
    """Return the number of values of each digit of a key, and the smallest value of each digit."""
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = np.array_split(points, -(-len(points) // 65536))
        ends = [(at.min(axis=0), at.max(axis=0)) for at in (block @ embedding.T for block in blocks)]
    # The margin has 3 cells: one for rounding, one for the projection to the hyperplane, and one for neighbours.
    low = np.floor(np.min([least for least, _ in ends], axis=0)) - 3
    high = np.ceil(np.max([most for _, most in ends], axis=0)) + 3
    return high - low + 1, low


def _compute_log2_cells(sizes: np.ndarray) -> float:
    return np.log2(sizes).sum() + np.log2(len(sizes) + 1)
