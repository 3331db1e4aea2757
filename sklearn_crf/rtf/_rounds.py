"""What each round of training looks at: whole images, or parts of them chosen anew, corrupted anew."""

from math import isqrt
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.preprocessing import ChannelUnion, FilterBank, PatchShrinkage
from sklearn_crf.rtf._input import TrainingData, joined
from sklearn_crf.rtf._prediction import filtered

# Sides of rectangles are not chosen smaller than this where fewer images can be looked at instead.
_SMALLEST_SIDE = 64

# Pixels that early stopping looks at.
_VALIDATION_PIXELS = 100_000

# Columns of an image that are held out where there are too few images to hold out whole ones.
_STRIP = 0.15
_NARROW = 32


class Pairs(NamedTuple):
    """Inputs without channels of filters, and targets, image by image.

    Attributes
    ----------
    inputs : list of ndarray of shape (H, W, C)
        Before corruption, if there is one.
    targets : list of ndarray of shape (N, D)
        Scaled, float32.
    weights : list of ndarray of shape (N,), or None
    """

    inputs: list
    targets: list
    weights: list | None

    @property
    def n_pixels(self):
        """Pixels of all images."""
        return sum(len(target) for target in self.targets)

    def taken(self, members):
        """Some of the images."""
        return Pairs(*(None if part is None else [part[i] for i in members] for part in self))

    def rows(self, members):
        """Some rows of a table, which is a plane of one row."""
        own = [None if part is None else [part[0][members]] for part in (self.targets, self.weights)]
        return Pairs([np.ascontiguousarray(self.inputs[0][:, members])], *own)

    def columns(self, start, stop):
        """Columns of all images, from start to stop as shares of their width."""
        parts = []
        for i, plane in enumerate(self.inputs):
            height, width = plane.shape[:2]
            own = slice(int(start * width), int(stop * width))
            rest = [None if part is None else part[i] for part in (self.targets, self.weights)]
            cut = [None if p is None else p.reshape(height, width, *p.shape[1:])[:, own] for p in rest]
            flat = [None if c is None else c.reshape(-1, *c.shape[2:]) for c in cut]
            parts.append((plane[:, own], *flat))
        inputs, targets, weights = (list(column) for column in zip(*parts, strict=True))
        return Pairs(inputs, targets, None if self.weights is None else weights)


def split_off(pairs, fraction, rng):
    """Images, or strips of few images, to validate on, at most so many pixels of them; and the others.

    Parameters
    ----------
    pairs : Pairs
    fraction : float
    rng : RandomState

    Returns
    -------
    training, validation : Pairs
    """
    n = len(pairs.inputs)
    width = min(plane.shape[1] for plane in pairs.inputs)
    if n == 1 and width < _NARROW:
        raise ValueError(f"early_stopping needs examples to hold out and others to train on, got {n}.")
    if n < 5 and width >= _NARROW:
        return pairs.columns(0, 1 - _STRIP), pairs.columns(1 - _STRIP, 1)
    order = rng.permutation(n)
    n_out, n_pixels = 0, 0
    while n_out < max(1, round(fraction * n)) and n_pixels < _VALIDATION_PIXELS:
        n_pixels += len(pairs.targets[order[n_out]])
        n_out += 1
    return pairs.taken(np.sort(order[n_out:])), pairs.taken(np.sort(order[:n_out]))


class Rounds:
    """Data of each round.

    Parameters
    ----------
    pairs : Pairs
    graph_of : callable
        From the shape of a plane to its lattice.
    bank : transformer of images, or None
        Makes the channels that trees and leaves see.
    corrupted : callable, or None
        ``corrupted(image, i, rng)`` of an input.
    max_samples : int or None
        Pixels of a round.
    sampled : callable, or None
        How a round's pixels are chosen where they are not rectangles of images: from TrainingData and a RandomState.
    seed : int
    n_jobs : int or None
    """

    def __init__(self, pairs, graph_of, corrupted, max_samples, sampled, seed, n_jobs):
        self.pairs = pairs
        self.graph_of = graph_of
        self.bank = None
        self.corrupted = corrupted
        self.max_samples = max_samples
        self.sampled = sampled
        self.seed = seed
        self.n_jobs = n_jobs
        self._whole = self._last = None

    def __call__(self, level):
        """What the round looks at; the same object wherever rounds do not differ.

        Parameters
        ----------
        level : int

        Returns
        -------
        TrainingData
        """
        if self._last is None or self._last[0] != level:
            self._last = level, self._made(level)
        return self._last[1]

    def _made(self, level):
        is_part = self.max_samples is not None and self.pairs.n_pixels > self.max_samples
        if not is_part and self.corrupted is None:
            return self._whole_images(level)
        rng = np.random.RandomState((self.seed + 7919 * level) % 2**32)
        if is_part and self.sampled is None:
            return self._rectangles(level, rng)
        whole = self._whole_images(level)
        return self.sampled(whole, rng=rng) if is_part else whole

    def _whole_images(self, level):
        if self._whole is None or self.corrupted is not None:
            members = range(len(self.pairs.inputs))
            inputs = [self.input_of(i, level) for i in members]
            features = inputs if self.bank is None else filtered(self.bank, inputs, self.n_jobs)
            graphs = [self.graph_of(plane.shape[:2]) for plane in features]
            self._whole = TrainingData(features, graphs, self.pairs.targets, self.pairs.weights)
        return self._whole

    def input_of(self, i, level):
        """An input as the round sees it, before filters.

        Parameters
        ----------
        i, level : int

        Returns
        -------
        ndarray of shape (H, W, C)
        """
        plane = self.pairs.inputs[i]
        if self.corrupted is None:
            return plane
        return self.corrupted(plane, i, np.random.default_rng([self.seed, level, i]))

    def _rectangles(self, level, rng):
        """One rectangle of each image, or of some images: its channels are those that it has in the whole."""
        sizes = np.array([len(target) for target in self.pairs.targets])
        # Small rectangles spend most of the filters on what is around them.
        n = min(len(sizes), max(self.max_samples // _SMALLEST_SIDE**2, int(self.max_samples / sizes.mean()) + 1))
        members = np.sort(rng.permutation(len(sizes))[:n])
        share = min(1.0, self.max_samples / sizes[members].sum())
        cuts = [self._random_rectangle(i, share, rng) for i in members]

        def one(cut, n_threads):
            i, rows, columns = cut
            return self._cut(i, rows, columns, self.input_of(i, level), n_threads)

        return joined(map_tasks(one, cuts, self.n_jobs))

    def _random_rectangle(self, i, share, rng):
        shape = self.pairs.inputs[i].shape[:2]
        n_axes = 1 if shape[0] == 1 else 2
        sides = []
        for length in shape:
            kept = max(1, int(share ** (1 / n_axes) * length))
            start = rng.randint(length - kept + 1)
            sides.append(slice(start, start + kept))
        return i, *sides

    def _cut(self, i, rows, columns, plane, n_threads):
        height, width = plane.shape[:2]
        reach = 0 if self.bank is None else self.bank.reach_
        around = [
            slice(max(0, own.start - reach), min(length, own.stop + reach))
            for own, length in zip((rows, columns), (height, width), strict=True)
        ]
        features = np.ascontiguousarray(plane[tuple(around)])
        if self.bank is not None:
            features = filtered(self.bank, [features], n_threads)[0]
        inner = tuple(
            slice(own.start - outer.start, own.stop - outer.start)
            for own, outer in zip((rows, columns), around, strict=True)
        )
        features = np.ascontiguousarray(features[inner])

        def of(values):
            return values.reshape(height, width, *values.shape[1:])[rows, columns].reshape(-1, *values.shape[1:])

        weights = None if self.pairs.weights is None else [of(self.pairs.weights[i])]
        graph = self.graph_of(features.shape[:2])
        return TrainingData([features], [graph], [of(self.pairs.targets[i])], weights)


# Squares of an image that are wanted at least, and sides of squares. Small ones are spread better, large ones need
# less around them.
_SQUARES = 4
_LEAST_SIDE, _LARGEST_SIDE = 4, 32


def sampled_rows(data, max_samples, rng):
    """At most so many rows of a table."""
    if data.is_within(max_samples):
        return data
    return data.cut(0, slice(None), np.sort(rng.choice(data.n_pixels, max_samples, replace=False)))


def sampled_variables(data, max_samples, margin, rng):
    """At most so many variables, the pixels of squares chosen at random, with weight 0 for what is around them.

    The terms of these variables are those that they have in the whole images, so that the mean over the sample has the
    mean over all pixels as its expectation.

    Parameters
    ----------
    data : TrainingData
    max_samples : int or None
    margin : int
        Rows and columns around a square that the terms of its pixels depend on.
    rng : RandomState

    Returns
    -------
    TrainingData
    """
    if data.is_within(max_samples):
        return data
    side = min(max(isqrt(max_samples // (_SQUARES * len(data.features))), _LEAST_SIDE), _LARGEST_SIDE)
    squares = squares_of(data, side)
    kept, n_kept = [], 0
    for number in rng.permutation(len(squares)):
        _, rows, columns = squares[number]
        n_own = (rows.stop - rows.start) * (columns.stop - columns.start)
        if not kept or n_kept + n_own <= max_samples:
            kept.append(number)
            n_kept += n_own
    return with_surroundings(data, [squares[number] for number in sorted(kept)], margin)


def squares_of(data, side):
    """Squares that cover the images, as (image, rows, columns), cut off at the borders; of chains as many pixels each.

    Parameters
    ----------
    data : TrainingData
    side : int

    Returns
    -------
    list of (int, slice, slice)
    """
    found = []
    for number, plane in enumerate(data.features):
        height, width = plane.shape[:2]
        across = side if height > 1 else side**2
        for top in range(0, height, side):
            for left in range(0, width, across):
                rows, columns = slice(top, min(top + side, height)), slice(left, min(left + across, width))
                found.append((number, rows, columns))
    return found


def with_surroundings(data, squares, margin):
    """Cuts of the images around squares; pixels outside the squares have weight 0.

    Parameters
    ----------
    data : TrainingData
    squares : list of (int, slice, slice)
    margin : int

    Returns
    -------
    TrainingData
    """
    cuts = []
    for number, rows, columns in squares:
        shape = data.features[number].shape[:2]
        around = [
            slice(max(part.start - margin, 0), min(part.stop + margin, length))
            for part, length in zip((rows, columns), shape, strict=True)
        ]
        cut = data.cut(number, *around)
        weight = np.zeros(cut.features[0].shape[:2])
        inside = tuple(
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip((rows, columns), around, strict=True)
        )
        # A loss is a mean over the pixels of a cut, and is to be one over those of the image.
        weight[inside] = weight.size / np.prod(shape)
        own = np.ones(1) if data.weights is None else cut.weights[0]
        cuts.append(cut._replace(weights=[weight.ravel() * own]))
    found = joined(cuts)
    # Leaves are measured in factors: a pixel of a square counts as one, on average.
    used = [np.count_nonzero(weight) for weight in found.weights]
    scale = sum(used) / sum(weight.sum() for weight in found.weights)
    if data.weights is not None:
        scale *= np.mean(np.concatenate(data.weights))
    return found._replace(weights=[scale * weight for weight in found.weights])


# Thresholds as multiples of the strength of what an input is off by: for each image more or less alike, or not.
_MULTIPLES = (1.8, 2.7, 3.5)
_SPREAD, _N_LEVELS = 1.5, 6

# Images of more channels have features already.
MOST_CHANNELS = 4


def default_bank(inputs, targets):
    """Derivatives of Gaussians, and copies of the image that are shrunk by as much as inputs are off.

    Parameters
    ----------
    inputs : list of ndarray of shape (H, W, C)
        As trained on, corrupted.
    targets : list of ndarray of shape (N, D)
        In their own units.

    Returns
    -------
    ChannelUnion
    """
    levels = [_deviation(x, y) for x, y in zip(inputs, targets, strict=True)]
    low, middle, high = np.quantile(levels, (0.1, 0.5, 0.9))
    if high <= _SPREAD * low or low == 0:
        thresholds = middle * np.array(_MULTIPLES)
    else:
        thresholds = np.geomspace(_MULTIPLES[0] * low, _MULTIPLES[-1] * high, _N_LEVELS)
    return ChannelUnion([FilterBank("gaussian_derivatives"), PatchShrinkage([float(f"{t:.4g}") for t in thresholds])])


def _deviation(plane, target):
    """Root mean square of what an input is off its target, or of its finest detail where they cannot be compared."""
    if plane.shape[2] == target.shape[1]:
        squares = (plane.reshape(target.shape) - target) ** 2
        known = squares[~np.isnan(squares)]
        return float(np.sqrt(known.mean(dtype=np.float64))) if known.size else 0.0
    detail = np.diff(np.diff(plane, axis=0), axis=1) / 2
    return float(np.median(np.abs(detail)) / 0.6745) if detail.size else 0.0


def image_channels(bank, n_channels):
    """Numbers of the channels, of n in all, that are the image and its shrunk copies, or unknown to a default bank."""
    n_filters = len(bank.transformers_[0].get_feature_names_out())
    return [*range(bank.n_channels_), *range(n_filters, n_channels)]
