"""Predictions for one image that is larger than memory: tile by tile, until what lies outside no longer matters."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import single_threaded_blas, thread_count
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import Rectangle, lattice_offsets, tiles_of
from sklearn_crf.inference import TRWS, Inference, LoopyBP
from sklearn_crf.inference.cuts._graph_cut import n_not_submodular
from sklearn_crf.inference.messages._message_errors import bounds_messages, labels_between, labels_with_errors
from sklearn_crf.models import PairwiseModel, clamped, score
from sklearn_crf.rtf._base import FieldEstimator
from sklearn_crf.rtf._classifier import RegressionTreeFieldClassifier, tiles_of_labels
from sklearn_crf.rtf._prediction import predict_field_in_tiles
from sklearn_crf.rtf._regressor import tiles_of_values

__all__ = ["predict_in_tiles"]


class TiledLabels(NamedTuple):
    """Labels of an image that were found tile by tile."""

    labels: Any  # (H, W)
    certified: bool
    n_open: int
    gap: float
    margins: np.ndarray


class TiledValues(NamedTuple):
    """Values of an image that were found tile by tile."""

    values: Any  # (H, W) or (H, W, D)
    difference: float
    residual: float
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
) -> TiledLabels | TiledValues:
    r"""Labels or values of one large image, which is read and predicted tile by tile.

    Each tile is labelled within a window, the tile and a margin around it, as if that were the whole image. A margin is
    doubled wherever it was too small:

    - Best labelings of two classes whose edges prefer equal labels are a minimum cut. The more pixels of one class
      there are outside a window, the more there are in it: what has one label inside with all pixels around the window
      in the first class, and the same with all in the second class, has that label in the best labeling of the whole
      image. Tiles are solved for both until no pixel is open, and the labels are then proven to be those of the whole.
    - Labels by belief propagation are certain, at every fixed point of the messages of the whole image, where beliefs
      lead by more than any messages into the window can change; of two classes whose edges prefer equal labels, where
      the messages that start from both extremes agree. The same holds of tree-reweighted messages with
      ``edge_probabilities="chains"``. Where half of the first tile is not certain, tiles only have to agree.
    - The mean u of the Gaussian field of a tree field solves J u = h. Tiles are solved until what is left of the system
      of the whole image is within the tolerance of the solver; and since J is no less than the least eigenvalues of the
      factors' precisions, summed over those of a pixel, that bounds the distance to the exact mean. For labels it
      bounds how many can differ.
    - Elsewhere a tile and its neighbours have to agree about the pixels at their seams. If labels at a seam are a
      forbidden pair, the whole image is predicted at once.

    With ``bound`` the difference in score to the best labeling y* of the whole image is bounded by that of tiles P and
    of the edges between them,

    .. math::
        \mathrm{score}(y^*) - \mathrm{score}(y) \le \sum_P \bigl[ b_P - \mathrm{score}_P(y) \bigr]
            + \sum_{e \text{ between tiles}} \bigl[ \max_{k, l} \theta_e(k, l) - \theta_e(y) \bigr]

    with :math:`b_P` the bound that the inference has on the best score of a tile by itself.

    Parameters
    ----------
    estimator : classifier or RegressionTreeField
        Fitted to images, with features for each pixel: a field, a tree field or a dense one.
    image : array-like of shape (H, W, F)
        Anything with a ``shape`` that is sliced in its first two axes: an array, a memory map, one of zarr or HDF5.
    out : array-like of shape (H, W), or (H, W, D) for D values of a pixel, optional
        Labels or values are written into it by slices; None makes an array in memory.
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
    TiledLabels or TiledValues
        The latter for :class:`~sklearn_crf.RegressionTreeField`. Means of more than 16 million values are in a
        temporary file until all tiles agree.

    Raises
    ------
    ValueError
        If the image has no three axes, ``out`` has another shape, the sizes are no positive numbers, or a bound is
        asked of an estimator whose models of images are not pairwise; if a tree field
        has a cascade, a degradation or missing pixels, which look at all of an image.

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
    tiles = tiles_of(shape[:2], tile, tile)
    if isinstance(estimator, FieldEstimator):
        return _of_tree_field(estimator, image, out, tiles, margin, max(max_margin, margin), inference, bound)
    out = _checked_out(out, shape[:2], estimator.classes_.dtype)
    task = _TiledPrediction(estimator, image, out, inference, shape[:2], max(max_margin, margin))
    margins = dict.fromkeys(tiles, max(margin, task.reach + 1))
    with single_threaded_blas():
        found = _certified(task, margins) if task.labels_of else None
        if found is None:
            n_open, certified = _agreeing(task, margins), False
        else:
            n_open, certified = found, found == 0
        certified = certified or len(margins) == 1
        if task.breaks_pairs():
            # Tiles do not know the labels beyond their windows: only the whole image keeps to forbidden pairs.
            out[:] = task.predict(Rectangle(0, shape[0], 0, shape[1]))
            n_open, certified = 0, False
        gap = 0.0 if certified else task.gap(margins) if bound else np.nan
    return TiledLabels(out, certified, n_open, gap, np.array(list(margins.values())))


def _checked_out(out, shape, dtype):
    """Where predictions go."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if tuple(getattr(out, "shape", ())) != shape:
        raise ValueError(f"out must have the shape {shape} of the image, got {getattr(out, 'shape', None)}.")
    return out


def _of_tree_field(estimator, image, out, tiles, margin, max_margin, inference, bound):
    """Predictions of a tree field, whose tiles are solved together."""
    if inference is not None or bound:
        raise ValueError(
            f"inference and bound are for fields with scores: the mean of {type(estimator).__name__} is a linear "
            "system, which comes with a bound."
        )
    is_classifier = isinstance(estimator, RegressionTreeFieldClassifier)
    task = tiles_of_labels(estimator) if is_classifier else tiles_of_values(estimator)
    out = _checked_out(out, (*image.shape[:2], *task.shape), task.dtype)
    if is_classifier and len(tiles) == 1:
        out[:] = estimator.predict(np.asarray(image[tiles[0].slices])[np.newaxis])[0]
        return TiledLabels(out, True, 0, 0.0, np.array([margin]))
    with single_threaded_blas():
        found = predict_field_in_tiles(task, image, out, tiles, margin, max_margin)
    if is_classifier:
        return TiledLabels(out, found.n_open == 0, found.n_open, np.nan, found.margins)
    return TiledValues(out, found.difference, found.residual, found.margins)


class _TiledPrediction:
    """An estimator and one image: labels and models of windows."""

    def __init__(self, estimator, image, out, inference, shape, max_margin):
        self.estimator, self.image, self.out = estimator, image, out
        self.inference, self.shape, self.max_margin = inference, shape, max_margin
        offsets = np.atleast_1d(getattr(estimator, "connectivity", 1))
        # How far neighbours are apart; trees and kernels reach farther, and have no models that are looked at here.
        self.reach = 1 if offsets.ndim == 1 else int(np.abs(offsets).max())
        field = FittedField.of(estimator) if isinstance(estimator, FieldClassifier) else None
        asked = None if field is None else field.labeler(inference).decoding
        self.best: Any = None if asked is None or asked.rule != "map" else asked.inference
        self.asked: Any = asked
        self.forbidden = None if field is None else field.layout.forbidden
        # What gives the labels of a window and says which of them are certain, None for no such proof; and whether all
        # are with some margin.
        self.labels_of = self._proof()
        self.closes = self.labels_of == self._by_cuts

    def _proof(self):
        estimator, asked = self.estimator, self.asked
        has_rule = getattr(estimator, "voters_", None) is not None or getattr(estimator, "cost", None) is not None
        if asked is None or has_rule or self.forbidden is not None:
            return None
        if bounds_messages(asked.inference):
            return self._by_messages
        return self._by_cuts if self.best is not None and len(estimator.classes_) == 2 else None

    def _by_cuts(self, model, window):
        """Best labelings with all pixels around in the first class, and in the second; None without a proof."""
        if n_not_submodular(model):
            return None
        ring = self.ring(window)
        if not ring.any():
            found = self.best.map(model)
            return (found.labels, np.ones(len(ring), dtype=bool)) if found.certified else None
        both = [self.best.map(clamped(model, np.where(ring, label, -1).astype(np.int32))) for label in (0, 1)]
        low, high = both
        return (low.labels, low.labels == high.labels) if low.certified and high.certified else None

    def _by_messages(self, model, window):
        """Labels by messages, and which are certain whatever is sent into the window."""
        inference, maximum = self.asked.inference, self.best is not None
        is_monotone = isinstance(inference, LoopyBP) and len(self.estimator.classes_) == 2
        find = labels_between if is_monotone and not n_not_submodular(model) else labels_with_errors
        n_threads = thread_count(self.estimator.n_jobs)
        return find(inference, model, self.ring(window), maximum=maximum, n_threads=n_threads)

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

    def breaks_pairs(self):
        """Whether the labels of two neighbours, which tiles found apart, are a pair that is forbidden."""
        if self.forbidden is None:
            return False
        columns = np.searchsorted(self.estimator.classes_, np.asarray(self.out))
        offsets = lattice_offsets(2, self.estimator.connectivity)
        return any(self.forbidden[columns[_moved(-y, -x)], columns[_moved(y, x)]].any() for y, x in offsets.tolist())

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
            # Belief propagation and local searches have none.
            bound = bound if np.isfinite(bound) else TRWS().map(own).bound
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


def _moved(y, x):
    """Slices of the pixels from which, or to which, an offset leads inside of an image."""
    return tuple(slice(max(d, 0), min(d, 0) or None) for d in (y, x))


def _certified(task, margins):
    """Pixels whose label depends on what is outside; None where there is no proof for enough of them."""
    n_open = 0
    for tile in margins:
        n_before = np.inf
        while True:
            window = tile.grown(margins[tile], task.shape)
            if task.is_whole(window):
                columns = np.searchsorted(task.estimator.classes_, task.predict(window))
                found = columns, np.ones(columns.shape, dtype=bool)
            else:
                model = task.model(window)
                found = task.labels_of(model, window) if isinstance(model, PairwiseModel) else None
            if found is None:
                return None
            labels, certain = (values.reshape(window.shape)[tile.inside(window)] for values in found)
            n_differing = int(np.count_nonzero(~certain))
            if not n_differing or task.is_whole(window) or 2 * margins[tile] > task.max_margin:
                break
            # Beliefs may hang on each other over any distance, and no margin is wide enough then.
            if not task.closes and n_differing > _LEAST_CLOSED * n_before:
                break
            n_before = n_differing
            margins[tile] *= 2
        if tile == next(iter(margins)) and not task.closes and n_differing > _MOST_OPEN * labels.size:
            return None
        task.write(tile, labels)
        n_open += n_differing
    return n_open


# Share of the open pixels that the double margin has to leave at most, and share of those of the first tile, else tiles
# only have to agree.
_LEAST_CLOSED, _MOST_OPEN = 0.5, 0.5


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
