"""Training data of each round: whole images or random parts of them, with a new corruption if requested."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._numbers import first_of_equal
from sklearn_crf._threads import map_tasks
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.preprocessing._default_bank import DEFAULT_BANKS, MOST_CHANNELS, build_default_bank, rescale_bank
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf.images._channels import filtered, split_slices
from sklearn_crf.rtf.images._input import TrainingData, cut_values, joined


class ImagesHere(NamedTuple):
    """Training images in memory: inputs before filtering, and targets."""

    inputs: list  # input (H, W, C) or (D, H, W, C) of each image, before corruption
    targets: list  # scaled targets (N, D) float32 of each image
    weights: list | None  # pixel weights (N,) of each image
    graph_of: Callable  # returns the lattice for the shape of a plane
    choices: list | None = None  # degradations to draw from, for each image
    corrupted: Callable | None = None  # ``corrupted(image, degradation, rng)`` returns a corrupted input
    # ``observe(degradation, image)``, or ``observe(image)`` without degradation, returns terms of a corrupted input
    observe: Callable | None = None

    @property
    def shapes(self):
        """Shape of each image, without the axis of channels."""
        return [plane.shape[:-1] for plane in self.inputs]

    @property
    def step(self):
        """Number that must divide the sides of all image parts."""
        return 1 if not self.choices else self.choices[0][0].step

    def has_targets(self, choice):
        """Return whether any pixel of the chosen images has a target of positive weight."""
        weights = self.chosen(choice).weights
        return weights is None or any(bool(weight.any()) for weight in weights)

    def copies(self, is_table: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each image (or table row), the index of the first equal image, the weight and pixel count."""
        # returns three arrays of shape (n,)
        keys, weight, n_pixels = self._compute_row_keys() if is_table else self.compute_image_keys()
        return first_of_equal(keys), weight, n_pixels

    def compute_image_keys(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each image, a hash of image and targets, the image's weight, and the number of pixels."""
        keys = np.array(list(map(_hash_plane, self.inputs, self.targets)), dtype="V16")
        # Pixels without a target have weight 0.
        largest = [1.0] * len(keys) if self.weights is None else [own.max(initial=0.0) for own in self.weights]
        return keys, np.array(largest, dtype=np.float64), np.array([len(target) for target in self.targets])

    def _compute_row_keys(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each table row, the bytes of its inputs and targets, the row's weight, and a pixel count of 1."""
        n = len(self.targets[0])
        values = self.inputs[0].reshape(n, -1), self.targets[0]
        rows = np.concatenate([np.ascontiguousarray(each).view(np.uint8) for each in values], axis=1)
        weight = np.ones(n) if self.weights is None else np.asarray(self.weights[0], dtype=np.float64)
        return rows.view(f"V{rows.shape[1]}").ravel(), weight, np.ones(n, dtype=np.int64)

    def sum_square_differences(self, kind):
        """Return the sum and the number of the squared target differences over the pixel pairs of a factor type."""
        total, count = 0.0, 0
        if not kind.paired:
            return total, count
        for plane, target in zip(self.inputs, self.targets, strict=True):
            target = target.reshape(*plane.shape[:-1], -1)
            first, second = kind.ends(plane.shape[:-1])
            squares = (target[first] - target[second]) ** 2
            known = ~np.isnan(squares)
            total += float(squares[known].sum(dtype=np.float64))
            count += int(known.sum())
        return total, count

    def chosen(self, choice):
        """Return the images of a choice, which is a method name and its arguments, or None for all images."""
        return self if choice is None else getattr(self, choice[0])(*choice[1:])

    def taken(self, members):
        """Return the images with the given indices."""
        lists = self.inputs, self.targets, self.weights, self.choices
        found: list[Any] = [None if own is None else [own[i] for i in members] for own in lists]
        return self._replace(inputs=found[0], targets=found[1], weights=found[2], choices=found[3])

    def rows(self, members):
        """Return the samples with the given indices from a table that is stored as a plane with one row."""
        weights = None if self.weights is None else [self.weights[0][members]]
        inputs = [np.ascontiguousarray(self.inputs[0][:, members])]
        return self._replace(inputs=inputs, targets=[self.targets[0][members]], weights=weights)

    def columns(self, start, stop):
        """Return a range of columns of all images; ``start`` and ``stop`` are fractions of the width."""
        ends = convert_column_fractions(self.shapes, self.step, start, stop)
        places = [
            (slice(None),) * (len(own) - 1) + (slice(*columns),) for own, columns in zip(self.shapes, ends, strict=True)
        ]

        def cut(values):
            return [cut_values(*own) for own in zip(values, self.shapes, places, strict=True)]

        inputs = [np.ascontiguousarray(plane[place]) for plane, place in zip(self.inputs, places, strict=True)]
        weights = None if self.weights is None else cut(self.weights)
        return self._replace(inputs=inputs, targets=cut(self.targets), weights=weights)

    def rounds(self, choice, max_samples, sampled, seed, n_jobs):
        """Return a factory that makes the data of each round from the chosen images."""
        return Rounds(self.chosen(choice), max_samples, sampled, seed, n_jobs)


def _hash_plane(plane: np.ndarray, target: np.ndarray) -> bytes:
    """Return a hash of the values of an image and its targets."""
    found = blake2b(repr(plane.shape).encode(), digest_size=16)
    for values in (plane, target):
        found.update(np.ascontiguousarray(values).data)
    return found.digest()


def convert_column_fractions(shapes, step, start, stop):
    """Convert fractions of the width to a range of columns for each shape; round to multiples of ``step``."""
    return [[step * (int(share * shape[-1]) // step) for share in (start, stop)] for shape in shapes]


def split_off(images: Any, fraction: float, rng: Any, is_table: bool = False) -> tuple[tuple, tuple]:
    """Choose images or table rows for training and for validation.

    If there are few images, a strip of each image is held out.

    Equal images are held out together, and their weights are added. A weight then has the same effect as copies.
    """
    # images: images in memory or in shards
    # returns two choices; a choice is a tuple of a method name of ImagesHere and the arguments of this method
    first, weight, n_pixels = images.copies(is_table)
    counted = np.unique(first[weight > 0])
    n = len(counted)
    if not is_table and n < 5 and min(shape[-1] for shape in images.shapes) >= tuned.NARROW:
        return ("columns", 0, 1 - tuned.STRIP_HELD_OUT), ("columns", 1 - tuned.STRIP_HELD_OUT, 1)
    if n < 2:
        raise ValueError(f"early_stopping needs examples to hold out and others to train on, got {n}.")
    order = counted[rng.permutation(n)]
    weight, n_pixels = np.bincount(first, weight)[order], n_pixels[order]
    total, before = np.cumsum(weight), np.cumsum(n_pixels) - n_pixels
    is_out = (total - weight / 2 < fraction * total[-1]) & (before < tuned.PIXELS_HELD_OUT)
    n_out = int(np.clip(np.count_nonzero(is_out), 1, n - 1))
    held_out = np.isin(first, order[:n_out])
    name = "rows" if is_table else "taken"
    return (name, np.flatnonzero(~held_out)), (name, np.flatnonzero(held_out))


def draw_rectangles(shapes, max_samples, step, rng):
    """Choose images at random, and draw one rectangle (image, rows, columns) from each; for volumes, draw boxes."""
    sizes = np.array([prod(shape) for shape in shapes])
    # Small rectangles would take too much time, because filters must also process their surroundings.
    least = tuned.SHORTEST_SIDE**2 if len(shapes[0]) == 2 else tuned.SHORTEST_EDGE**3
    n = min(len(sizes), max(max_samples // least, int(max_samples / sizes.mean()) + 1))
    members = np.sort(rng.permutation(len(sizes))[:n])
    share = min(1.0, max_samples / sizes[members].sum())
    return [(int(i), *_draw_rectangle(shapes[i], share, step, rng)) for i in members]


def _draw_rectangle(shape, share, step, rng):
    n_axes = max(1, sum(length > 1 for length in shape)) if len(shape) == 3 else 1 if shape[0] == 1 else 2
    sides = []
    for length in shape:
        kept = max(1, int(share ** (1 / n_axes) * length) // step)
        start = rng.randint(length // step - kept + 1)
        sides.append(slice(step * start, step * (start + kept)))
    return sides


def make_round_generator(level, seed):
    """Return the random number generator of a round."""
    return np.random.RandomState((seed + 7919 * level) % 2**32)


@dataclass(eq=False)
class Rounds:
    """Factory that makes the training data of each round."""

    images: ImagesHere
    max_samples: int | None  # maximum number of pixels in a round
    # Function that samples pixels, given TrainingData and a RandomState; None samples rectangles of images
    sampled: Callable | None
    seed: int
    n_jobs: int | None
    first: int = 0  # index of the first image among the images of all shards
    bank: Any = None  # filter bank that computes the channels for trees and leaves
    _whole: TrainingData | None = None
    _last: Any = None

    def take_bank(self, bank):
        """Set the filter bank that computes the channels for trees and leaves in later rounds."""
        self.bank = bank

    def sum_square_differences(self, types):
        """Return, for each factor type, the sum and the number of the squared target differences over pixel pairs."""
        return [self.images.sum_square_differences(kind) for kind in types]

    def get_first_pairs(self, n):
        """Return the inputs, targets and weights of the first ``n`` images, and the noise of their degradations."""
        images, n = self.images, max(0, n - self.first)
        members = range(min(len(images.inputs), n))
        noise = None if images.choices is None else [images.choices[i][0].noise for i in members]
        # Pixels without a target have weight 0, so the weight of an image is the largest weight of its pixels.
        weight = None if images.weights is None else [float(own.max(initial=0.0)) for own in images.weights[:n]]
        return [self.corrupt_input(i, 0) for i in members], images.targets[:n], weight, noise

    def __call__(self, level):
        """Return the data of a round; rounds with the same data share one object."""
        if self._last is None or self._last[0] != level:
            self._last = level, self._make(level)
        return self._last[1]

    def _make(self, level):
        shapes = self.images.shapes
        is_part = self.max_samples is not None and sum(map(prod, shapes)) > self.max_samples
        if not is_part:
            return self.prepare_whole_images(level)
        rng = make_round_generator(level, self.seed)
        if self.sampled is None:
            return self.rectangles(self._draw(shapes, rng), level)
        return self.sampled(self.prepare_whole_images(level), rng=rng)

    def _draw(self, shapes, rng):
        """Draw random rectangles for a round; draw again if no rectangle contains a target of positive weight."""
        for _ in range(tuned.MOST_DRAWS):
            cuts = draw_rectangles(shapes, self.max_samples, self.images.step, rng)
            weights, shapes = self.images.weights, self.images.shapes
            if weights is None or any(cut_values(weights[i], shapes[i], sides).any() for i, *sides in cuts):
                break
        return cuts

    def prepare_whole_images(self, level):
        """Return all images, corrupted and filtered for a round."""
        if self._whole is None or self.images.corrupted is not None:
            members = range(len(self.images.inputs))
            inputs = [self.corrupt_input(i, level) for i in members]
            features = inputs if self.bank is None else filtered(self.bank, inputs, self.n_jobs)
            graphs = [self.images.graph_of(plane.shape[:-1]) for plane in features]
            observations = self._build_observations(members, inputs, level)
            self._whole = TrainingData(features, graphs, self.images.targets, self.images.weights, observations)
        return self._whole

    def _build_observations(self, members, inputs, level):
        if self.images.observe is None:
            return None
        if self.images.choices is None:
            return [self.images.observe(plane) for plane in inputs]
        return [
            self.images.observe(self._get_degradation(i, level), plane)
            for i, plane in zip(members, inputs, strict=True)
        ]

    def _get_degradation(self, i, level):
        if self.images.choices is None:
            return None
        own = self.images.choices[i]
        if len(own) == 1:
            return own[0]
        return own[np.random.default_rng([self.seed, level, self.first + i, 1]).integers(len(own))]

    def corrupt_input(self, i, level):
        """Return an input, corrupted for a round, before filtering."""
        # returns (H, W, C) or (D, H, W, C)
        plane = self.images.inputs[i]
        if self.images.corrupted is None:
            return plane
        rng = np.random.default_rng([self.seed, level, self.first + i])
        return self.images.corrupted(plane, self._get_degradation(i, level), rng)

    def rectangles(self, cuts, level):
        """Return rectangles of images, with the filter responses that these rectangles have in the whole images."""

        def one(cut, n_threads):
            i, *sides = cut
            return self._cut(i, sides, level, n_threads)

        return joined(map_tasks(one, cuts, self.n_jobs))

    def _cut(self, i, sides, level, n_threads):
        plane = self.corrupt_input(i, level)
        shape = plane.shape[:-1]
        reach = 0 if self.bank is None else self.bank.reach_
        # Volumes are filtered slice by slice, so no margin is needed across slices.
        reaches = [0] * (len(shape) - 2) + [reach, reach]
        around, inner = _widen(sides, shape, reaches)
        features = np.ascontiguousarray(plane[around])
        if self.bank is not None:
            features = filtered(self.bank, [features], n_threads)[0]
        features = np.ascontiguousarray(features[inner])
        weights = None if self.images.weights is None else [cut_values(self.images.weights[i], shape, sides)]
        targets = [cut_values(self.images.targets[i], shape, sides)]
        graph = self.images.graph_of(features.shape[:-1])
        observations = self._build_observations([i], [plane[tuple(sides)]], level)
        return TrainingData([features], [graph], targets, weights, observations)


def _widen(sides, shape, margins):
    """Widen slices by margins within the image; return the widened slices, and the original slices within them."""
    around = tuple(
        slice(max(0, own.start - beyond), min(length, own.stop + beyond))
        for own, length, beyond in zip(sides, shape, margins, strict=True)
    )
    inner = (slice(own.start - outer.start, own.stop - outer.start) for own, outer in zip(sides, around, strict=True))
    return around, tuple(inner)


def sample_rows(data, max_samples, rng):
    """Return at most ``max_samples`` random rows of a table."""
    return data.cut(0, slice(None), np.sort(rng.choice(data.n_pixels, max_samples, replace=False)))


def sample_variables(data, max_samples, margin, rng):
    """Return at most ``max_samples`` pixels, in random squares with margins of weight 0.

    The margins give each pixel the same loss term as in the whole image. The mean over the sample is therefore an
    unbiased estimate of the mean over all pixels.
    """
    side = max(isqrt(max_samples // (tuned.SQUARES_OF_IMAGE * len(data.features))), tuned.LEAST_SQUARE)
    squares = cover_with_squares(data, min(side, tuned.LARGEST_SQUARE))
    kept, n_kept = list[int](), 0
    for number in rng.permutation(len(squares)):
        n_own = prod(own.stop - own.start for own in squares[number][1:])
        if not kept or n_kept + n_own <= max_samples:
            kept.append(number)
            n_kept += n_own
    return cut_with_surroundings(data, [squares[number] for number in sorted(kept)], margin)


def cover_with_squares(data, side):
    """Return squares (image, rows, columns) that cover the images; intervals for chains, cubes for volumes."""
    found = []
    for number, plane in enumerate(data.features):
        shape = plane.shape[:-1]
        edge = side if len(shape) == 2 else max(2, round(side ** (2 / 3)))
        edges = [edge] * len(shape) if len(shape) == 3 or shape[0] > 1 else [1, side**2]
        starts = product(*(range(0, length, own) for length, own in zip(shape, edges, strict=True)))
        for corner in starts:
            ends = zip(corner, edges, shape, strict=True)
            found.append((number, *(slice(start, min(start + own, length)) for start, own, length in ends)))
    return found


def cut_with_surroundings(data, squares, margin):
    """Cut out squares of images with a margin whose pixels have weight 0."""
    cuts = []
    for number, *sides in squares:
        shape = data.features[number].shape[:-1]
        around, inside = _widen(sides, shape, [margin] * len(shape))
        cut = data.cut(number, *around)
        weight = np.zeros(cut.features[0].shape[:-1])
        # The loss of a cut is a mean over the pixels of the cut. Weights convert this loss to a mean over the image.
        weight[inside] = weight.size / np.prod(shape)
        own = np.ones(1) if data.weights is None else cut.weights[0]
        cuts.append(cut._replace(weights=[weight.ravel() * own]))
    found = joined(cuts)
    # The average weight of a pixel in the squares must be 1, because the sizes of leaves are sums of weights.
    used = [np.count_nonzero(weight) for weight in found.weights]
    scale = sum(used) / sum(weight.sum() for weight in found.weights)
    if data.weights is not None:
        scale *= np.mean(np.concatenate(data.weights))
    return found._replace(weights=[scale * weight for weight in found.weights])


def fit_bank(plan, inputs, targets, weight, noise):
    """Return the filter bank, fitted to the first images, or None if the input is used without filters."""
    # inputs: list of (H, W, C) or (D, H, W, C); targets: list of (N, D)
    # weight: weight of each image, None for equal weights; noise: noise level of each image, None if unknown
    if plan.former is not None:
        return plan.former["filter_bank_"]
    inputs = [plane[..., : plan.n_filtered] for plane in inputs]
    bank, is_image, units = plan.filter_bank, plan.lattice_ndim >= 2, plan.units
    if isinstance(bank, str) and bank in DEFAULT_BANKS:
        if bank == "auto" and (not is_image or inputs[0].shape[-1] > MOST_CHANNELS):
            return None
        mean, scale = units.of_targets(plan.common.mean, plan.common.scale)
        targets = [mean + scale * y for y in targets]
        unit = float(units.scale[0])
        noise = noise if noise is None else [unit * level for level in noise]
        bank = build_default_bank(inputs, targets, weight, noise, bank == "groups", unit)
    if bank is None:
        return None
    if not is_image:
        raise ValueError(f"filter_bank needs images, but X holds lattices of {plan.lattice_ndim} axes.")
    if bank is plan.filter_bank:
        bank = FilterBank(bank) if isinstance(bank, str) else rescale_bank(clone(bank), float(units.scale[0]))
    return bank.fit([own for plane in inputs for own in split_slices(plane)])
