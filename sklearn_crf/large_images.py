"""Tile-by-tile prediction of images larger than memory, with margins that grow until predictions are certain."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import count_threads, limit_blas_threads
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import Rectangle, cut_tiles, lattice_offsets
from sklearn_crf.inference import TRWS, Inference, LoopyBP
from sklearn_crf.inference.cuts._graph_cut import count_not_submodular
from sklearn_crf.inference.messages._message_errors import (
    can_bound_messages,
    label_between_extremes,
    label_with_error_bounds,
)
from sklearn_crf.models import PairwiseModel, clamped, score
from sklearn_crf.rtf._base import FieldEstimator
from sklearn_crf.rtf._classifier import RegressionTreeFieldClassifier, build_label_task
from sklearn_crf.rtf._prediction import predict_field_in_tiles
from sklearn_crf.rtf._regressor import build_value_task

__all__ = ["predict_in_tiles"]


class TiledLabels(NamedTuple):
    """Labels of an image, predicted tile by tile."""

    labels: Any  # (H, W)
    certified: bool
    n_open: int
    gap: float
    margins: np.ndarray


class TiledValues(NamedTuple):
    """Values of an image, predicted tile by tile."""

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
    r"""Predict the labels or values of one large image, reading and predicting it tile by tile.

    Each tile is labelled within a window: the tile and a margin around it, treated as the whole image. If a margin is
    too small, it is doubled. The check of margins depends on the estimator:

    - Minimum cuts: two classes, edges that prefer equal labels, and best labelings. If more pixels outside of a window
      have one class, no pixel inside changes from this class to the other. Each tile is therefore solved twice, with
      all pixels around it in the first class, then in the second class. A pixel with equal labels in both solutions
      has this label in the best labeling of the whole image. If all pixels have equal labels in both solutions, the
      labels are proven to be the best labeling of the whole image.
    - Belief propagation: a label is certain if its belief leads by more than any messages into the window can change.
      The label then has the largest belief at every fixed point of the messages of the whole image. For two classes
      whose edges prefer equal labels, a label is certain if messages that start from both extremes agree. Both rules
      also apply to tree-reweighted messages with ``edge_probabilities="chains"``. If less than half of the first tile
      is certain, neighbouring tiles only have to agree at their seams.
    - Tree fields: the mean u of the Gaussian field solves J u = h. Tiles are solved until the residual of the system of
      the whole image is within the tolerance of the solver. For each pixel, the smallest eigenvalues of the
      precisions of its factors are summed. The minimum of these sums is a lower bound on the smallest eigenvalue of J.
      The residual thus bounds the distance to the exact mean. For classifiers, it bounds how many labels can differ.
    - Otherwise: a tile and its neighbours must agree about the pixels at their seams. If the labels at a seam form a
      forbidden pair, the whole image is predicted at once.

    With ``bound``, the difference in score to the best labeling y* of the whole image is bounded by a sum over tiles P
    and over edges between tiles,

    .. math::
        \mathrm{score}(y^*) - \mathrm{score}(y) \le \sum_P \bigl[ b_P - \mathrm{score}_P(y) \bigr]
            + \sum_{e \text{ between tiles}} \bigl[ \max_{k, l} \theta_e(k, l) - \theta_e(y) \bigr]

    where :math:`b_P` is the bound of the inference on the best score of tile P alone.

    Parameters
    ----------
    estimator : classifier or RegressionTreeField
        Field, tree field or dense field that is fitted to images with features for each pixel.
    image : array-like of shape (H, W, F)
        Any object with a ``shape`` that can be sliced along its first two axes: an array, a memory map, or an array of
        zarr or HDF5.
    out : array-like of shape (H, W), or (H, W, D) for D values of a pixel, optional
        Object into whose slices labels or values are written; None makes an array in memory.
    tile : int, default=512
        Side length of a tile in pixels.
    margin, max_margin : int, default=32, 256
        Initial and largest number of pixels around a tile.
    inference : str or Inference, optional
        Inference that predicts; None uses the inference of the estimator.
    bound : bool, default=False
        Whether to bound the gap, which takes one more call of the inference for each tile.

    Returns
    -------
    TiledLabels or TiledValues
        A TiledValues object for :class:`~sklearn_crf.RegressionTreeField`. Means of more than 16 million values are
        stored in a temporary file until all tiles agree.

    Raises
    ------
    ValueError
        If the image does not have three axes, ``out`` has another shape, a size is not a positive integer, or a bound
        is requested but the estimator's models of images are not pairwise. Also if a tree field has a cascade, a
        degradation or missing pixels, which depend on the whole image.

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
    tiles = cut_tiles(shape[:2], tile, tile)
    if isinstance(estimator, FieldEstimator):
        return _predict_tree_field(estimator, image, out, tiles, margin, max(max_margin, margin), inference, bound)
    out = _check_out(out, shape[:2], estimator.classes_.dtype)
    task = _TiledPrediction(estimator, image, out, inference, shape[:2], max(max_margin, margin))
    margins = dict.fromkeys(tiles, max(margin, task.reach + 1))
    with limit_blas_threads():
        found = _certify_tiles(task, margins) if task.labels_of else None
        if found is None:
            n_open, certified = _agree_at_seams(task, margins), False
        else:
            n_open, certified = found, found == 0
        certified = certified or len(margins) == 1
        if task.breaks_pairs():
            # The prediction of a tile ignores labels outside of its window, and may therefore cause forbidden pairs.
            # Only a prediction of the whole image avoids all forbidden pairs.
            out[:] = task.predict(Rectangle(0, shape[0], 0, shape[1]))
            n_open, certified = 0, False
        gap = 0.0 if certified else task.gap(margins) if bound else np.nan
    return TiledLabels(out, certified, n_open, gap, np.array(list(margins.values())))


def _check_out(out, shape, dtype):
    """Check the shape of the array to which predictions are written, and return the array."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if tuple(getattr(out, "shape", ())) != shape:
        raise ValueError(f"out must have the shape {shape} of the image, got {getattr(out, 'shape', None)}.")
    return out


def _predict_tree_field(estimator, image, out, tiles, margin, max_margin, inference, bound):
    """Predict an image with a tree field; all tiles are solved together."""
    if inference is not None or bound:
        raise ValueError(
            f"inference and bound are not supported by {type(estimator).__name__}, whose prediction solves a linear "
            "system and comes with a bound: leave them out."
        )
    is_classifier = isinstance(estimator, RegressionTreeFieldClassifier)
    task = build_label_task(estimator) if is_classifier else build_value_task(estimator)
    out = _check_out(out, (*image.shape[:2], *task.shape), task.dtype)
    if is_classifier and len(tiles) == 1:
        out[:] = estimator.predict(np.asarray(image[tiles[0].slices])[np.newaxis])[0]
        return TiledLabels(out, True, 0, 0.0, np.array([margin]))
    with limit_blas_threads():
        found = predict_field_in_tiles(task, image, out, tiles, margin, max_margin)
    if is_classifier:
        return TiledLabels(out, found.n_open == 0, found.n_open, np.nan, found.margins)
    return TiledValues(out, found.difference, found.residual, found.margins)


class _TiledPrediction:
    """Labels and models of windows of an image, computed by an estimator."""

    def __init__(self, estimator, image, out, inference, shape, max_margin):
        self.estimator, self.image, self.out = estimator, image, out
        self.inference, self.shape, self.max_margin = inference, shape, max_margin
        offsets = np.atleast_1d(getattr(estimator, "connectivity", 1))
        # Largest offset between neighbours; not used for tree fields and dense fields, whose offsets may be larger.
        self.reach = 1 if offsets.ndim == 1 else int(np.abs(offsets).max())
        field = FittedField.of(estimator) if isinstance(estimator, FieldClassifier) else None
        asked = None if field is None else field.labeler(inference).decoding
        self.best: Any = None if asked is None or asked.rule != "map" else asked.inference
        self.asked: Any = asked
        self.forbidden = None if field is None else field.layout.forbidden
        # labels_of: function that returns the labels of a window and a mask of certain labels; None without a proof
        # closes: whether a sufficiently large margin makes all labels certain
        self.labels_of = self._choose_proof()
        self.closes = self.labels_of == self._label_by_cuts

    def _choose_proof(self):
        estimator, asked = self.estimator, self.asked
        has_rule = getattr(estimator, "voters_", None) is not None or getattr(estimator, "cost", None) is not None
        if asked is None or has_rule or self.forbidden is not None:
            return None
        if can_bound_messages(asked.inference):
            return self._label_by_messages
        return self._label_by_cuts if self.best is not None and len(estimator.classes_) == 2 else None

    def _label_by_cuts(self, model, window):
        """Label a window by two minimum cuts; return labels and a mask of proven labels, or None without a proof."""
        if count_not_submodular(model):
            return None
        ring = self.ring(window)
        if not ring.any():
            found = self.best.map(model)
            return (found.labels, np.ones(len(ring), dtype=bool)) if found.certified else None
        both = [self.best.map(clamped(model, np.where(ring, label, -1).astype(np.int32))) for label in (0, 1)]
        low, high = both
        return (low.labels, low.labels == high.labels) if low.certified and high.certified else None

    def _label_by_messages(self, model, window):
        """Label a window by messages; return the labels, and a mask of labels that outside messages cannot change."""
        inference, maximum = self.asked.inference, self.best is not None
        is_monotone = isinstance(inference, LoopyBP) and len(self.estimator.classes_) == 2
        find = label_between_extremes if is_monotone and not count_not_submodular(model) else label_with_error_bounds
        n_threads = count_threads(self.estimator.n_jobs)
        return find(inference, model, self.ring(window), maximum=maximum, n_threads=n_threads)

    def pixels(self, window):
        """Return the pixels of a window in the form of X, as a single example."""
        return np.asarray(self.image[window.slices])[np.newaxis]

    def is_whole(self, window):
        return window == Rectangle(0, self.shape[0], 0, self.shape[1])

    def predict(self, window):
        """Predict the labels of a window as if it were the whole image."""
        options = {} if self.inference is None else {"inference": self.inference}
        return self.estimator.predict(self.pixels(window), **options)[0]

    def model(self, window):
        return self.estimator.models(self.pixels(window))[0]

    def ring(self, window):
        """Return a mask of the pixels of a window that may have neighbours outside of the window."""
        inner = np.zeros(window.shape, dtype=bool)
        low = [self.reach * (start > 0) for start in (window.top, window.left)]
        ends = zip((window.bottom, window.right), self.shape, window.shape, strict=True)
        high = [size - self.reach * (stop < whole) for stop, whole, size in ends]
        inner[low[0] : high[0], low[1] : high[1]] = True
        return ~inner.ravel()

    def breaks_pairs(self):
        """Return whether the labels of two neighbours in ``out`` form a forbidden pair."""
        if self.forbidden is None:
            return False
        columns = np.searchsorted(self.estimator.classes_, np.asarray(self.out))
        offsets = lattice_offsets(2, self.estimator.connectivity)
        return any(
            self.forbidden[columns[_slice_by_offset(-y, -x)], columns[_slice_by_offset(y, x)]].any()
            for y, x in offsets.tolist()
        )

    def write(self, tile, columns):
        self.out[tile.slices] = self.estimator.classes_[columns]

    def gap(self, margins):
        """Return an upper bound on the best score of the whole image minus the score of ``out``."""
        if self.best is None or not hasattr(self.estimator, "models"):
            raise ValueError(
                f"bound=True needs the MAP inference of a field, but {type(self.estimator).__name__} does "
                "not use MAP inference: pass inference, such as TRWS(), or bound=False."
            )
        gap = 0.0
        for tile in margins:
            window = tile.grown(self.reach, self.shape)
            columns = np.searchsorted(self.estimator.classes_, np.asarray(self.out[window.slices])).ravel()
            own = self.model(tile)
            if not isinstance(own, PairwiseModel):
                raise ValueError("bound=True needs pairwise models of images, got a factor graph: pass bound=False.")
            bound = self.best.map(own).bound
            # Belief propagation and local searches have no bound, so use the bound of TRWS.
            bound = bound if np.isfinite(bound) else TRWS().map(own).bound
            inside = columns.reshape(window.shape)[tile.inside(window)].ravel()
            gap += bound - score(own, inside) + 0.5 * self._compute_loss_between(tile, window, columns)
        return float(max(gap, 0.0))

    def _compute_loss_between(self, tile, window, columns):
        """Return the largest possible score minus the actual score, summed over edges from a tile to other tiles."""
        model = self.model(window)
        is_own = np.zeros(window.shape, dtype=bool)
        is_own[tile.inside(window)] = True
        ends = is_own.ravel()[model.graph.edges]
        edges = np.flatnonzero(ends[:, 0] != ends[:, 1])
        tables = model.edge_tables(edges).astype(np.float64)
        tails, heads = columns[model.graph.edges[edges]].T
        return float(np.sum(tables.max(axis=(1, 2)) - tables[np.arange(len(edges)), tails, heads]))


def _slice_by_offset(y, x):
    """Return slices that select the second pixels of all pairs of neighbours with the offset (y, x)."""
    return tuple(slice(max(d, 0), min(d, 0) or None) for d in (y, x))


def _certify_tiles(task, margins):
    """Label all tiles; return the number of uncertain pixels, or None if too few pixels are certain."""
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
            # Stop if a wider margin hardly helps, because beliefs may depend on each other over any distance.
            if not task.closes and n_differing > _LEAST_CLOSED * n_before:
                break
            n_before = n_differing
            margins[tile] *= 2
        if tile == next(iter(margins)) and not task.closes and n_differing > _MOST_OPEN * labels.size:
            return None
        task.write(tile, labels)
        n_open += n_differing
    return n_open


# _LEAST_CLOSED: margins are doubled again if the last doubling reduced the uncertain pixels to at most this fraction.
# _MOST_OPEN: if more than this fraction of the first tile's pixels is uncertain, tiles only need to agree at seams.
_LEAST_CLOSED, _MOST_OPEN = 0.5, 0.5


def _agree_at_seams(task, margins):
    """Label tiles until they agree at their seams; return the number of pixels on which tiles still disagree."""
    thought: dict = {}
    again = list(margins)
    while again:
        for tile in again:
            window = tile.grown(margins[tile], task.shape)
            labels = task.predict(window)
            seam = tile.grown(min(_SEAM, margins[tile]), task.shape)
            thought[tile] = [(strip, labels[strip.inside(window)].copy()) for strip in _split_into_strips(tile, seam)]
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


# Labels of a tile's window must agree with neighbouring tiles within this number of rows or columns beyond the tile.
_SEAM = 2


def _split_into_strips(tile, seam) -> Iterator[Rectangle]:
    """Divide the pixels of ``seam`` outside of ``tile`` into strips."""
    strips = (
        Rectangle(seam.top, tile.top, seam.left, seam.right),
        Rectangle(tile.bottom, seam.bottom, seam.left, seam.right),
        Rectangle(tile.top, tile.bottom, seam.left, tile.left),
        Rectangle(tile.top, tile.bottom, tile.right, seam.right),
    )
    return (strip for strip in strips if min(strip.shape) > 0)
