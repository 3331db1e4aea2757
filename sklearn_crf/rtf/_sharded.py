"""Training of tree fields on images in shards, by summing results over shards."""

from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from operator import methodcaller
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from sklearn_crf._numbers import first_of_equal
from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.distributed import (
    KeptObjects,
    Shards,
    copy_for_worker,
    refuse_labels,
    require_one_vector_level,
    take_shards,
)
from sklearn_crf.encoding import Outline, has_nodes, read_sample_weight, require_weight
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.rtf._objectives import FieldRisk, Whole
from sklearn_crf.rtf._plan import Common, FieldOptions, Targets, TreeData
from sklearn_crf.rtf._rounds import convert_column_fractions, draw_rectangles, make_round_generator
from sklearn_crf.rtf.images._channels import ChannelUnits, InputSample
from sklearn_crf.rtf.images._input import Reading, TrainingData


def read_shards(options: FieldOptions, shards: Shards, y, sample_weight) -> TreeData:
    """Return the training data of a fit on shards."""
    refuse_labels(y, sample_weight)
    request = _Request(uuid4().hex, options.reading, options.targets, options.n_jobs)
    found = shards.map(_survey, request)
    # Leave out shards without nodes. Shards whose weights are all 0 only contribute their layout and their classes.
    filled = [number for number, part in enumerate(found) if part is not None]
    if not filled:
        raise ValueError("Shards have no nodes, because all of their examples are empty: pass at least one node.")
    weighted = [number for number in filled if found[number].has_weight]
    require_weight(weighted)
    shards, found = take_shards(shards, weighted), [found[number] for number in filled]
    require_one_vector_level(found)
    outline = Outline.joined([part.outline for part in found], [part.name for part in found])
    request = request._replace(reading=_make_surveyed_reading(request.reading, outline, found))
    gaps = tuple(sorted({c for part in found for c in part.gaps}))
    labels = [labels for part in found for labels in part.labels]

    def counted(targets):
        return np.sum(shards.map(_count_classes, request._replace(targets=targets)), axis=0)

    request = request._replace(targets=options.targets.of_shards(gaps, labels, counted))
    moments, shapes, offsets, steps = zip(*shards.map(_describe, request), strict=True)
    common = request.targets.common(moments)
    known = request.reading.known or {}
    images = ShardedImages(shards, request._replace(common=common), shapes, steps[0])
    units = ChannelUnits.of(known, found[0].sample.values.shape[1])
    return TreeData(images, outline, offsets[0], units, gaps or tuple(known["missing_channels_"]), common)


def _make_surveyed_reading(reading, outline, found):
    """Return the reader of images, after a survey of all shards."""
    if reading.known is not None:
        return reading
    names = {} if outline.feature_names is None else {"feature_names_in_": outline.feature_names}
    sample = InputSample.joined([part.sample for part in found])
    known = {
        **reading.describe_channels(sample, outline.lattice_ndim)[0],
        **names,
        "n_features_in_": outline.n_features,
        "lattice_ndim_": outline.lattice_ndim,
        "missing_channels_": np.array(sorted({c for part in found for c in part.missing}), dtype=np.int64),
        "n_node_types_": outline.n_node_types,
    }
    return reading.match_fitted_attributes(known)


class _Survey(NamedTuple):
    """Result of the first pass over a shard: layout, channels and labels."""

    name: str
    outline: Outline
    missing: tuple  # channels of X with gaps
    gaps: tuple  # channels in which a corruption leaves gaps
    labels: list
    vector_level: str
    sample: InputSample  # sample of X
    has_weight: bool


class _Request(NamedTuple):
    """Request to shards: how to read images, which images to use, and which parts of images in a round."""

    key: str  # key of the images in the cache of a shard
    reading: Reading
    targets: Targets
    n_jobs: int | None
    common: Common | None = None  # mean, scale and description of the targets of all shards
    key_of_rounds: str = ""
    choices: Any = None  # list, choice of images for each shard
    firsts: Any = None  # list, index of the first image of each shard
    seed: int = 0
    bank: Any = None
    key_of_data: str = ""
    level: int = 0
    cuts: Any = None  # list of rectangles (image, rows, columns); None for whole images

    @property
    def is_table(self):
        """Whether shards hold tables of samples, stored as a single plane."""
        return self.reading.known["lattice_ndim_"] == 0

    def choose_shard_threads(self, shard):
        """Return the number of threads for a shard, which is 1 on workers, because workers run several tasks."""
        return self.n_jobs if shard.is_local else 1

    def make_shard_reading(self, shard):
        """Return the reader of X for a shard."""
        return replace(self.reading, door=copy_for_worker(self.reading.door, shard))


def _survey(shard, request):
    shard.cache.clear()
    shard.memory.clear()
    X, y, weight = shard.load()
    with shard.named_in_errors():
        if not has_nodes(X):
            return None
        planes, gaps, labels = request.targets.survey(request.make_shard_reading(shard), X, y, weight)
        weight = read_sample_weight(weight, planes.encoded.n_examples)
    outline, has_weight = Outline.of(planes.encoded), weight is None or bool(weight.any())
    return _Survey(shard.name, outline, planes.missing, gaps, labels, VECTOR_LEVEL, planes.sample, has_weight)


def _count_classes(shard, request):
    X, y, weight = shard.load()
    with shard.named_in_errors():
        return request.targets.counts(request.make_shard_reading(shard), X, y, weight)


def _read(shard, request):
    """Return the images of a shard, from the shard's cache if possible."""
    key, read = shard.cache.get("read", (None, None))
    if key != request.key:
        X, y, weight = shard.load()
        with shard.named_in_errors():
            read = request.targets.read_given(request.make_shard_reading(shard), X, y, weight)
        shard.cache["read"] = request.key, read
    return read


def _describe(shard, request):
    """Return statistics of targets, shapes of images, offsets, and the number that must divide sides of image parts."""
    read = _read(shard, request)
    shapes = [plane.shape[:-1] for plane in read.planes.features]
    step = 1 if read.degradations is None else read.degradations.step
    return request.targets.found(read), shapes, read.planes.offsets, step


class ShardedImages:
    """Training images in shards."""

    # shapes: shapes of the images of each shard; step: number that must divide the sides of all image parts

    def __init__(self, shards, request, shapes, step):
        self.shards, self._request, self._shapes, self._step = shards, request, shapes, step

    @property
    def shapes(self):
        """Shape of each image, without the axis of channels."""
        return [shape for part in self._shapes for shape in part]

    def rounds(self, choice, max_samples, sampled, seed, n_jobs):
        """Return a factory that makes each round's data from the chosen images; a choice of None means all images."""
        if sampled is not None and max_samples is not None:
            raise ValueError(
                "max_samples is not supported with Shards for prediction losses on images: use "
                "FieldSolver(max_samples=None) and fewer images in each shard."
            )
        shapes, firsts, choices = self._select_images(choice)
        request = self._request._replace(key_of_rounds=uuid4().hex, choices=choices, firsts=firsts, seed=seed)
        return ShardedRounds(self.shards, request, shapes, self._step, max_samples)

    def has_targets(self, choice):
        """Return whether any pixel of the chosen images has a target of positive weight."""
        choices = self._select_images(choice)[2]
        return any(self.shards.map(_has_targets, self._request._replace(choices=choices)))

    def copies(self, is_table: bool) -> tuple:
        """Return, for each image, the index of the first equal image, the image's weight and the number of pixels."""
        if is_table:
            raise ValueError("early_stopping cannot hold out rows of tables in Shards: set early_stopping=False.")
        keys, *rest = map(np.concatenate, zip(*self.shards.map(_compute_image_keys, self._request), strict=True))
        return first_of_equal(keys), *rest

    def _select_images(self, choice):
        """Return the shapes of the chosen images; also return each shard's first image index and choice of images."""
        ends = np.cumsum([len(part) for part in self._shapes])
        if choice is None or choice[0] == "columns":
            shapes = self.shapes
            if choice is not None:
                ends = convert_column_fractions(shapes, self._step, *choice[1:])
                shapes = [(*own[:-1], last - first) for own, (first, last) in zip(shapes, ends, strict=True)]
            return shapes, [0, *ends.tolist()], [choice] * len(ends)
        members = choice[1]
        bounds = np.searchsorted(members, [0, *ends])
        starts = [0, *ends]
        choices = [("taken", members[bounds[k] : bounds[k + 1]] - starts[k]) for k in range(len(ends))]
        return [self.shapes[i] for i in members], bounds.tolist(), choices


def _images(shard, request):
    read = _read(shard, request)
    with shard.named_in_errors():
        return request.targets.images(read, request.common)


def _compute_image_keys(shard: Any, request: "_Request") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _images(shard, request).compute_image_keys()


def _has_targets(shard, request):
    return _images(shard, request).has_targets(request.choices[shard.number])


def _rounds(shard, request):
    key = "rounds", request.key_of_rounds
    if key not in shard.cache:
        images, n_jobs = _images(shard, request), request.choose_shard_threads(shard)
        rounds = images.rounds(request.choices[shard.number], None, None, request.seed, n_jobs)
        rounds.first, rounds.bank = request.firsts[shard.number], request.bank
        shard.cache[key] = rounds
    return shard.cache[key]


class ShardedRounds:
    """Factory that makes the training data of each round for images in shards, with the interface of Rounds."""

    def __init__(self, shards, request, shapes, step, max_samples):
        self.shards, self.request, self.shapes = shards, request, shapes
        self.step, self.max_samples = step, max_samples
        self._last = None

    def take_bank(self, bank):
        """Set the filter bank that computes the channels for trees and leaves in later rounds."""
        self.request = self.request._replace(bank=bank, key_of_rounds=uuid4().hex)

    def get_first_pairs(self, n):
        """Return the inputs, targets and weights of the first ``n`` images, and the noise of their degradations."""
        found = self.shards.map(_with_rounds, (self.request, methodcaller("get_first_pairs", n)))
        return tuple(None if part[0] is None else list(chain.from_iterable(part)) for part in zip(*found, strict=True))

    def sum_square_differences(self, types):
        """Return, for each factor type, the sum and the number of the squared target differences over pixel pairs."""
        return self.shards.sum(_with_rounds, (self.request, methodcaller("sum_square_differences", types)))

    def __call__(self, level):
        """Return the data of a round; rounds with the same data share one object."""
        is_part = self.max_samples is not None and sum(map(prod, self.shapes)) > self.max_samples
        number = level if is_part or self.request.targets.are_drawn else 0
        if self._last is None or self._last.level != number:
            if self._last is not None:
                self._last.drop()
            cuts = None
            if is_part:
                rng = make_round_generator(level, self.request.seed)
                cuts = draw_rectangles(self.shapes, self.max_samples, self.step, rng)
            n_images = len(self.shapes) if cuts is None else len(cuts)
            request = self.request._replace(key_of_data=uuid4().hex, level=number, cuts=cuts)
            self._last = ShardedData(self.shards, request, n_images)
        return self._last


def _with_rounds(shard, asked):
    request, function = asked
    return function(_rounds(shard, request))


_NO_IMAGES = TrainingData([], [], [], None)


def _load(shard, request):
    """Return the images of a shard for a round."""
    kept = shard.memory if request.cuts is not None else shard.cache
    key, data = kept.get(("data", request.key_of_rounds), (None, None))
    if key != request.key_of_data:
        rounds = _rounds(shard, request)
        first, last = request.firsts[shard.number : shard.number + 2]
        with shard.named_in_errors(), limit_blas_threads():
            if request.cuts is None:
                data = rounds.prepare_whole_images(request.level) if last > first else _NO_IMAGES
            else:
                own = [(i - first, *sides) for i, *sides in request.cuts if first <= i < last]
                data = rounds.rectangles(own, request.level) if own else _NO_IMAGES
        # Rectangles are small enough to stay in memory. Reading images again for each evaluation would be slow.
        kept["data", request.key_of_rounds] = request.key_of_data, data
    return data


class ShardedData:
    """Training data of one or all rounds for images in shards, with the interface of TrainingData."""

    def __init__(self, shards, request, n_images):
        self.shards, self.request, self.n_images = shards, request, n_images
        self.level = request.level
        self._weight = None
        self._risks = []

    def parts(self, function, *arguments):
        """Return a list with the result of ``function(images, number of the shard, *arguments)`` for each shard."""
        return self.shards.map(_apply_to_data, (self.request, function, arguments))

    def total(self, function, *arguments):
        """Return the sum of ``function(images, number of the shard, *arguments)`` over shards."""
        return self.shards.sum(_apply_to_data, (self.request, function, arguments))

    def risk(self, objective, field):
        """Return the mean loss of a field as a function of its parameters."""
        if self._weight is None:
            self._weight = self.total(_sum_mean_weights, self.request.is_table)
        whole = Whole(self.n_images, self._weight)
        make = partial(_FieldOfShard, self.request, objective, whole)
        self._risks.append(KeptObjects(self.shards, make, stays=self.request.cuts is not None))
        return ShardedFieldRisk(self._risks[-1], field, whole, self.request.n_jobs)

    def drop(self):
        """Release the data of the round in all shards."""
        for kept in self._risks:
            kept.drop()
        self.shards.map(_drop_data, self.request.key_of_rounds)


def _apply_to_data(shard, asked):
    request, function, arguments = asked
    data = _load(shard, request)
    with shard.named_in_errors(), limit_blas_threads():
        return function(data, shard.number, *arguments)


def _sum_mean_weights(data, part, is_table):
    """Return the sum over images of the mean pixel weight; for a table, return the sum of the row weights."""
    sizes = [len(target) if is_table else 1 for target in data.targets]
    if data.weights is None:
        return float(sum(sizes))
    return sum(size * float(np.mean(weight)) for size, weight in zip(sizes, data.weights, strict=True))


def _drop_data(shard, key):
    shard.memory.pop(("data", key), None)
    shard.cache.pop(("data", key), None)


class _FieldOfShard:
    """Mean loss, over the images of one shard, of a field whose trees may grow."""

    def __init__(self, request, objective, whole, shard):
        self.data, self.objective, self.n_jobs = _load(shard, request), objective, request.choose_shard_threads(shard)
        # The loss of a table in one shard is a mean over the rows of the shard.
        # The total is a mean over the rows of all shards.
        n_rows = len(self.data.targets[0]) if request.is_table else 1
        self.whole = Whole(whole.n_images, whole.weight / n_rows, shard.number)
        self.field, self.risk = None, None  # type: Any, Any

    def grow(self, field):
        """Replace the field, keeping the solutions for the previous field as warm starts."""
        self.field = field
        if self.risk is None:
            self.risk = field.risk(self.objective, self.data, self.n_jobs, self.whole)
        else:
            self.risk = field.rebuild_risk(self.risk, self.data, self.n_jobs)

    def value_grad(self, coef):
        """Return the loss of the shard, the derivative of the loss, and whether every solve reached its tolerance."""
        self.risk.converged = True
        return *self.risk.value_grad(coef), self.risk.converged

    def value(self, coef):
        """Return the loss of the shard."""
        return self.risk.value(coef)

    def part(self, function, *arguments):
        """Call a function with the risk, and return its result; convert an iterator to a list."""
        found = function(self.risk, *arguments)
        return found if isinstance(found, list | tuple | None) else list(found)

    @property
    def carried(self):
        """State to move between workers: the field, and the warm starts of solves."""
        return self.field, self.risk.states

    @carried.setter
    def carried(self, carried):
        field, states = carried
        self.grow(field)
        self.risk.states = states


class ShardedFieldRisk:
    """Mean loss over images in shards, with the interface of FieldRisk."""

    def __init__(self, kept, field, whole, n_jobs):
        self._kept, self.whole, self.n_jobs = kept, whole, n_jobs
        self.converged = True
        self._grow(field)

    shares = FieldRisk.shares

    def _grow(self, field):
        self.potentials = field.potentials
        self._leaf_weights = None
        self._kept.each(_FieldOfShard.grow, field)

    def replaced(self, field):
        """Replace the field by a field whose trees have grown, keeping warm starts; return the risk."""
        self._grow(field)
        return self

    def parts(self, function, *arguments):
        """Return the result of ``function(risk, *arguments)`` for each shard; iterators become lists."""
        # Each shard keeps its risk, which starts every solve from the last solution.
        return self._kept.each(_FieldOfShard.part, function, *arguments)

    def total(self, function, *arguments):
        """Return the sum of ``function(risk, *arguments)`` over shards."""
        if function is not FieldRisk.leaf_weights:
            return self._kept.total(_FieldOfShard.part, function, *arguments)
        if self._leaf_weights is None:
            self._leaf_weights = self._kept.total(_FieldOfShard.part, function)
        return self._leaf_weights

    def value_grad(self, coef):
        """Return the mean loss over images and its derivative with respect to the parameters."""
        value, gradient, converged = self._kept.total(_FieldOfShard.value_grad, coef)
        self.converged = self.converged and converged
        return value, gradient

    def value(self, coef):
        """Return the mean loss over images."""
        return self._kept.total(_FieldOfShard.value, coef)
