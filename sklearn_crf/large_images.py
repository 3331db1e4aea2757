"""Labels of one image that is larger than memory: tile by tile, until what lies outside a tile no longer matters."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.graphs import Rectangle, tiles_of
from sklearn_crf.inference import Inference
from sklearn_crf.inference.cuts._graph_cut import n_not_submodular
from sklearn_crf.models import PairwiseModel, clamped, score

__all__ = ["TiledLabels", "predict_in_tiles"]


class TiledLabels(NamedTuple):
    """Labels of an image that were found tile by tile.

    Attributes
    ----------
    labels : array-like of shape (H, W)
        ``out``, or a new array.
    certified : bool
        Whether it is proven that the labels are those of the whole image.
    n_open : int
        Pixels whose label still depended on what is outside the margin of their tile, or on which tiles disagreed.
    gap : float
        Upper bound on how much higher another labeling of the whole image can score: 0 where the labels are certified,
        NaN where no bound was asked for.
    margins : ndarray of int
        Margin that each tile ended with, tiles row by row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.large_images import predict_in_tiles
    >>> y = np.zeros((4, 16, 16), dtype=int)
    >>> y[:, 4:12, 4:12] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(4, 16, 16, 1)
    ... )
    >>> field = DRFClassifier(inference="graph_cut", edge_features="constant").fit(X, y)
    >>> found = predict_in_tiles(field, X[0], tile=8, margin=2)
    >>> found.certified, found.n_open, bool(np.all(found.labels == field.predict(X[:1])[0]))
    (True, 0, True)
    """

    labels: Any
    certified: bool
    n_open: int
    gap: float
    margins: np.ndarray


def predict_in_tiles(
    estimator: Any,
    image: Any,
    out: Any = None,
    *,
    tile: int = 512,
    margin: int = 32,
    max_margin: int = 256,
    inference: str | Inference | None = None,
    bound: bool = False,
) -> TiledLabels:
    r"""Labels of one large image, which is read and labelled tile by tile.

    Each tile is labelled within a window, the tile and a margin around it, as if that were the whole image. A margin is
    doubled wherever it was too small:

    - Best labelings of two classes whose edges prefer equal labels are a minimum cut. The more pixels of one class
      there are outside a window, the more there are in it: what has one label inside with all pixels around the window
      in the first class, and the same with all in the second class, has that label in the best labeling of the whole
      image. Tiles are solved for both until no pixel is open, and the labels are then proven to be those of the whole.
    - Elsewhere a tile and its neighbours have to agree about the pixels at their seams.

    With ``bound`` the difference in score to the best labeling y* of the whole image is bounded by that of tiles P and
    of the edges between them,

    .. math::
        \mathrm{score}(y^*) - \mathrm{score}(y) \le \sum_P \bigl[ b_P - \mathrm{score}_P(y) \bigr]
            + \sum_{e \text{ between tiles}} \bigl[ \max_{k, l} \theta_e(k, l) - \theta_e(y) \bigr]

    with :math:`b_P` the bound that the inference has on the best score of a tile by itself.

    Parameters
    ----------
    estimator : classifier
        Fitted to images, with features for each pixel: a field, a tree field or a dense one.
    image : array-like of shape (H, W, F)
        Anything with a ``shape`` that is sliced in its first two axes: an array, a memory map, one of zarr or HDF5.
    out : array-like of shape (H, W), optional
        Labels are written into it by slices; None makes an array in memory.
    tile : int, default=512
        Pixels of a side of a tile.
    margin, max_margin : int, default=32, 256
        Pixels around a tile at first, and at most.
    inference : str or Inference, optional
        What predicts; None is the estimator's own.
    bound : bool, default=False
        Whether the gap is bounded, which takes one more call of the inference for each tile.

    Returns
    -------
    TiledLabels

    Raises
    ------
    ValueError
        If the image has no three axes, ``out`` has another shape, the sizes are no positive numbers, or a bound is
        asked of an estimator whose models of images are not pairwise, or of an inference without one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.large_images import predict_in_tiles
    >>> y = np.zeros((4, 16, 16), dtype=int)
    >>> y[:, 4:12, 4:12] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(4, 16, 16, 1)
    ... )
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "image.npy"
    >>> np.save(path, np.tile(X[0], (3, 4, 1)))
    >>> out = np.zeros((48, 64), dtype=np.uint8)
    >>> found = predict_in_tiles(
    ...     TRWCRF().fit(X, y), np.load(path, mmap_mode="r"), out, tile=24, margin=8
    ... )
    >>> bool(np.mean(out == np.tile(y[0], (3, 4))) > 0.9)
    True
    >>> folder.cleanup()
    """
    check_is_fitted(estimator)
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) != 3:
        raise ValueError(f"image must have shape (H, W, F), got {shape or type(image).__name__}.")
    for name, value in (("tile", tile), ("margin", margin), ("max_margin", max_margin)):
        if int(value) != value or value < 1:
            raise ValueError(f"{name} must be a positive whole number, got {value!r}.")
    if out is None:
        out = np.empty(shape[:2], dtype=estimator.classes_.dtype)
    elif tuple(getattr(out, "shape", ())) != shape[:2]:
        raise ValueError(f"out must have the shape {shape[:2]} of the image, got {getattr(out, 'shape', None)}.")
    task = _TiledPrediction(estimator, image, out, inference, shape[:2], max(max_margin, margin))
    margins = dict.fromkeys(tiles_of(shape[:2], tile, tile), max(margin, task.reach + 1))
    with single_threaded_blas():
        found = _certified(task, margins) if task.has_cut else None
        if found is None:
            n_open, certified = _agreeing(task, margins), False
        else:
            n_open, certified = found, found == 0
        certified = certified or len(margins) == 1
        gap = 0.0 if certified else task.gap(margins) if bound else np.nan
    return TiledLabels(out, certified, n_open, gap, np.array(list(margins.values())))


class _TiledPrediction:
    """An estimator and one image: labels and models of windows."""

    def __init__(self, estimator, image, out, inference, shape, max_margin):
        self.estimator, self.image, self.out = estimator, image, out
        self.inference, self.shape, self.max_margin = inference, shape, max_margin
        offsets = np.atleast_1d(getattr(estimator, "connectivity", 1))
        # How far neighbours are apart; trees and kernels reach farther, and have no models that are looked at here.
        self.reach = 1 if offsets.ndim == 1 else int(np.abs(offsets).max())
        asked = estimator._asked(inference) if hasattr(estimator, "_asked") else None
        self.best = None if asked is None or asked.rule != "map" else asked.inference
        has_voters = getattr(estimator, "voters_", None) is not None
        self.has_cut = self.best is not None and len(estimator.classes_) == 2 and not has_voters

    def pixels(self, window):
        """The image in a window, as the only example of an X."""
        return np.asarray(self.image[window.slices])[np.newaxis]

    def is_whole(self, window):
        return window == Rectangle(0, self.shape[0], 0, self.shape[1])

    def predict(self, window):
        """Labels of a window as if it were the whole image."""
        options = {} if self.inference is None else {"inference": self.inference}
        return self.estimator.predict(self.pixels(window), **options)[0]

    def model(self, window):
        return self.estimator.models(self.pixels(window))[0]

    def ring(self, window):
        """Pixels of a window whose neighbours may be outside."""
        inner = np.zeros(window.shape, dtype=bool)
        low = [self.reach * (start > 0) for start in (window.top, window.left)]
        ends = zip((window.bottom, window.right), self.shape, window.shape, strict=True)
        high = [size - self.reach * (stop < whole) for stop, whole, size in ends]
        inner[low[0] : high[0], low[1] : high[1]] = True
        return ~inner.ravel()

    def write(self, tile, columns):
        self.out[tile.slices] = self.estimator.classes_[columns]

    def gap(self, margins):
        """Bound on what the best labeling of the whole image scores more than ``out``."""
        if self.best is None or not hasattr(self.estimator, "models"):
            raise ValueError(
                f"bound=True is for best labelings of fields, {type(self.estimator).__name__} has none here: pass "
                "inference, such as TRWS(), or bound=False."
            )
        gap = 0.0
        for tile in margins:
            window = tile.grown(self.reach, self.shape)
            columns = np.searchsorted(self.estimator.classes_, np.asarray(self.out[window.slices])).ravel()
            own = self.model(tile)
            if not isinstance(own, PairwiseModel):
                raise ValueError("bound=True needs examples without factors besides nodes and edges.")
            bound = self.best.map(own).bound
            if not np.isfinite(bound):
                raise ValueError(f"{type(self.best).__name__} has no bound on the best score: pass inference=TRWS().")
            inside = columns.reshape(window.shape)[tile.inside(window)].ravel()
            gap += bound - score(own, inside) + 0.5 * self._lost_between(tile, window, columns)
        return float(max(gap, 0.0))

    def _lost_between(self, tile, window, columns):
        """Sum over the edges from a tile to others of the largest score less the score of their labels."""
        model = self.model(window)
        is_own = np.zeros(window.shape, dtype=bool)
        is_own[tile.inside(window)] = True
        ends = is_own.ravel()[model.graph.edges]
        edges = np.flatnonzero(ends[:, 0] != ends[:, 1])
        tables = model.edge_tables(edges).astype(np.float64)
        tails, heads = columns[model.graph.edges[edges]].T
        return float(np.sum(tables.max(axis=(1, 2)) - tables[np.arange(len(edges)), tails, heads]))


def _certified(task, margins):
    """Pixels whose label depends on what is outside; None where edges do not prefer equal labels everywhere."""
    n_open = 0
    for tile in margins:
        while True:
            window = tile.grown(margins[tile], task.shape)
            model = task.model(window)
            if not isinstance(model, PairwiseModel) or n_not_submodular(model):
                return None
            found = _under_extremes(task, model, window)
            if found is None:
                return None
            low, high = (labels.reshape(window.shape)[tile.inside(window)] for labels in found)
            n_differing = int(np.count_nonzero(low != high))
            if not n_differing or task.is_whole(window) or 2 * margins[tile] > task.max_margin:
                break
            margins[tile] *= 2
        task.write(tile, low)
        n_open += n_differing
    return n_open


def _under_extremes(task, model, window):
    """Best labelings with all pixels around in the first class, and in the second; None without a proof."""
    ring = task.ring(window)
    if not ring.any():
        found = task.best.map(model)
        return (found.labels, found.labels) if found.certified else None
    both = [task.best.map(clamped(model, np.where(ring, label, -1).astype(np.int32))) for label in (0, 1)]
    return tuple(found.labels for found in both) if all(found.certified for found in both) else None


def _agreeing(task, margins):
    """Label tiles until they agree at their seams; the number of pixels about which some do not."""
    thought: dict = {}
    again = list(margins)
    while again:
        for tile in again:
            window = tile.grown(margins[tile], task.shape)
            labels = task.predict(window)
            seam = tile.grown(min(_SEAM, margins[tile]), task.shape)
            thought[tile] = [(strip, labels[strip.inside(window)].copy()) for strip in _around(tile, seam)]
            task.out[tile.slices] = labels[tile.inside(window)]
        n_wrong = {
            tile: sum(int(np.count_nonzero(np.asarray(task.out[strip.slices]) != known)) for strip, known in strips)
            for tile, strips in thought.items()
        }
        again = [
            tile
            for tile, n in n_wrong.items()
            if n and 2 * margins[tile] <= task.max_margin and not task.is_whole(tile.grown(margins[tile], task.shape))
        ]
        margins.update({tile: 2 * margins[tile] for tile in again})
    return sum(n_wrong.values())


# Rows and columns of their neighbours about which tiles have to agree.
_SEAM = 2


def _around(tile, seam) -> Iterator[Rectangle]:
    """Strips of the pixels in ``seam`` that are not in ``tile``."""
    strips = (
        Rectangle(seam.top, tile.top, seam.left, seam.right),
        Rectangle(tile.bottom, seam.bottom, seam.left, seam.right),
        Rectangle(tile.top, tile.bottom, seam.left, tile.left),
        Rectangle(tile.top, tile.bottom, tile.right, seam.right),
    )
    return (strip for strip in strips if min(strip.shape) > 0)
