"""Means of Gaussian fields on large planes, solved tile by tile until the tiles agree at their seams."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._threads import map_tasks
from sklearn_crf.graphs import Rectangle, cut_tiles
from sklearn_crf.inference.gaussian import _tuning


class TiledMean(NamedTuple):
    """Mean of a Gaussian field on a plane."""

    mean: np.ndarray  # (H, W, D)
    others: np.ndarray | None  # (H, W, ...), further values that ``and_also`` returned, or None
    # Bound on the norm of ``h - J mean``, relative to the norm of ``h``.
    # The bound is the sum of the disagreement of tiles at their seams and of the residuals of their solutions.
    residual: float
    norm: float  # norm of h
    margins: list  # final margin of each tile


def solve_mean_in_tiles(
    model_of,
    shape,
    solver,
    *,
    n_jobs=None,
    reach=0,
    period=1,
    and_also=None,
    n_pixels=_tuning.TILE,
    margin=_tuning.MARGIN,
    max_margin=np.inf,
    tiles=None,
    mean=None,
):
    r"""Compute the mean of a Gaussian field on a plane, tile by tile.

    .. math:: J u = h, \qquad \|h - J u\| \le \mathrm{tol} \, \|h\|

    Each tile is solved as a separate field with a margin around it, and returns the mean of its own pixels. The result
    then violates the equations only at pixels with neighbours in other tiles, because the tile used its own solution
    for these neighbours. Tiles whose violations are too large are solved again with twice the margin, if necessary up
    to the whole plane.
    """
    # shape: rows and columns of the plane; solver: its ``tol`` is for the plane; n_pixels: maximum size of a tile
    # model_of: ``model_of(window, n_threads)`` returns the :class:`~sklearn_crf.models.GaussianModel` of a window
    # The model of a window contains the factors inside the window.
    # n_jobs: number of threads, which share the tiles; results do not depend on it
    # reach: distance from the border of a window within which its model may differ from the model of the plane
    # period: windows begin at rows and columns that are multiples of this number
    # and_also: ``and_also(model, n_threads)`` returns further values (N, ...)
    # Each tile stores the further values of its pixels.
    # margin, max_margin: initial and maximum number of rows and columns around a tile
    # tiles: tiles to use instead of tiles of n_pixels
    # mean: ``mean(n_values, dtype)`` returns an array (H, W, D) for the means, which may be on disk
    margins = {tile: max(margin, reach) for tile in tiles or _divide_plane(shape, n_pixels)}
    means: Any = None
    others: Any = None
    seams: dict[Any, Any] = {}
    norms, own = {}, {}
    again = list(margins)
    while again:
        former = means

        def solve(tile, n_threads, former=former):
            window = tile.grown(margins[tile], shape)
            window = window._replace(top=window.top - window.top % period, left=window.left - window.left % period)
            return _solve_tile(model_of, shape, solver, tile, window, former, and_also, n_threads)

        # Solve tiles in batches, so that not all models of a large plane are in memory together.
        for batch in (again[k : k + _tuning.TILES_AT_ONCE] for k in range(0, len(again), _tuning.TILES_AT_ONCE)):
            for tile, (part, other, *found) in zip(batch, map_tasks(solve, batch, n_jobs), strict=True):
                if means is None:
                    of_pixel = part.shape[2], part.dtype
                    means = np.zeros((*shape, of_pixel[0]), of_pixel[1]) if mean is None else mean(*of_pixel)
                    others = None if other is None else np.zeros((*shape, *other.shape[2:]))
                means[tile.slices], (seams[tile], norms[tile], own[tile]) = part, found
                if others is not None:
                    others[tile.slices] = other
        missing = {tile: seams[tile].missing(means) for tile in margins}
        limit = max(_tuning.SHARE_OF_SEAMS * solver.tol, np.finfo(means.dtype).eps) ** 2 * sum(norms.values())
        worst = [tile for tile in margins if missing[tile] > limit / len(margins)]
        whole = Rectangle(0, shape[0], 0, shape[1])
        again = [t for t in worst if 2 * margins[t] <= max_margin and t.grown(margins[t], shape) != whole]
        if sum(missing.values()) <= limit:
            break
        margins.update({tile: 2 * margins[tile] for tile in again})
    norm = float(np.sqrt(sum(norms.values())))
    residual = np.sqrt(sum(missing.values())) + np.sqrt(sum(own.values()))
    return TiledMean(means, others, float(residual) / norm if norm else 0.0, norm, list(margins.values()))


def _divide_plane(shape, n_pixels):
    """Return tiles that cover a plane, about square unless the plane is narrow."""
    side = max(1, int(np.sqrt(n_pixels)))
    rows = min(shape[0], max(side, n_pixels // max(shape[1], 1)))
    columns = min(shape[1], max(side, n_pixels // max(shape[0], 1)))
    return cut_tiles(shape, rows, columns)


class _Seam(NamedTuple):
    """Edges that leave a tile, and the values that the tile assumed at their outer ends."""

    around: Rectangle  # rectangle that contains the tile and all ends of the edges
    inner: np.ndarray  # (n,) int32: inner ends, as pixel numbers in the rectangle
    outer: np.ndarray  # (n,) int32: outer ends, as pixel numbers in the rectangle
    blocks: np.ndarray  # (n, D, D): blocks of J, with rows of the inner ends
    thought: np.ndarray  # (n, D): mean values that the tile assumed for the outer ends

    def missing(self, mean):
        """Return the squared norm by which the mean of the plane violates the equations of the tile."""
        if not len(self.inner):
            return 0.0
        seen = np.asarray(mean[self.around.slices]).reshape(-1, mean.shape[2])[self.outer]
        off = np.einsum("nab,nb->na", self.blocks.astype(np.float64), seen - self.thought)
        pixels, place = np.unique(self.inner, return_inverse=True)
        sums = [np.bincount(place, column, minlength=len(pixels)) for column in off.T]
        return float(sum(np.sum(column**2) for column in sums))


def _solve_tile(model_of, shape, solver, tile, window, former, and_also, n_threads):
    """Return the mean, the further values, the seam, and the squared norms of h and of the residual."""
    model = model_of(window, n_threads)
    # The residual of a solve also covers the margin, whose values are discarded.
    tol = _tuning.SHARE_OF_SOLVES * np.sqrt(np.prod(tile.shape) / np.prod(window.shape)) * solver.tol
    own = clone(solver).set_params(tol=tol)
    mean = None if former is None else np.asarray(former[window.slices]).reshape(model.h.shape)
    # Tighten the tolerance until it also holds for the residual of the plane. This residual is not divided by the
    # diagonal blocks, whereas the residual of the solver is.
    while True:
        found = own.marginals(model, init=mean, n_threads=n_threads)
        mean, left = found.mean, model.h - model.product(found.mean)
        excess = np.linalg.norm(left) / (tol * np.linalg.norm(model.h) or np.inf)
        # End if the solver cannot become more accurate, or if a value is NaN.
        if not (excess > 1.0 and found.residual <= own.tol):
            break
        own.tol /= 2 * excess
    rows, columns = tile.inside(window)

    def plane(values):
        return values.reshape(*window.shape, *values.shape[1:])[rows, columns]

    def squares(values):
        return float(np.sum(plane(values).astype(np.float64) ** 2))

    other = None if and_also is None else plane(and_also(model, n_threads)).copy()
    # Copy the values, because slices would keep the whole window in memory.
    return plane(mean).copy(), other, _build_seam(model, mean, tile, window, shape), squares(model.h), squares(left)


def _build_seam(model, mean, tile, window, shape):
    is_own = np.zeros(window.shape, dtype=bool)
    is_own[tile.inside(window)] = True
    # Compute edges from offsets, because a list of all edges would take more memory than the field.
    (height, width), edges, tails, heads, n_edges = window.shape, [], [], [], 0
    for offset in model.graph.offsets.tolist():
        down, right = (0, *offset)[-2:]
        n_rows, n_columns = max(height - abs(down), 0), max(width - abs(right), 0)
        top, left = max(-down, 0), max(-right, 0)
        first = is_own[top : top + n_rows, left : left + n_columns]
        second = is_own[top + down : top + down + n_rows, left + right : left + right + n_columns]
        row, column = np.nonzero(first != second)
        edges.append(n_edges + row * n_columns + column)
        tails.append((top + row) * width + left + column)
        heads.append(tails[-1] + down * width + right)
        n_edges += n_rows * n_columns
    edges, tails, heads = (np.concatenate([np.zeros(0, dtype=np.int64), *part]) for part in (edges, tails, heads))
    first = is_own.ravel()[tails]
    blocks = model.blocks[model.edge_type[edges]]
    blocks = np.where(first[:, None, None], blocks, blocks.transpose(0, 2, 1))
    inner, outer = np.where(first, tails, heads), np.where(first, heads, tails)
    row, column = np.divmod(outer, window.shape[1])
    low, high = tile.inside(window)
    farthest = (low.start - row, row - low.stop + 1, high.start - column, column - high.stop + 1)
    around = tile.grown(max(int(part.max(initial=0)) for part in farthest), shape)

    def numbered(pixels):
        row, column = np.divmod(pixels, window.shape[1])
        row, column = row + window.top - around.top, column + window.left - around.left
        return (row * (around.right - around.left) + column).astype(np.int32)

    return _Seam(around, numbered(inner), numbered(outer), blocks, mean[outer])
