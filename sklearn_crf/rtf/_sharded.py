"""Images in shards: training of a tree field on them, by sums over the images of each shard."""

from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.distributed import KeptObjects, Shards, on_worker, refuse_labels, require_one_vector_level
from sklearn_crf.encoding import Outline
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.rtf._objectives import FieldRisk, Whole
from sklearn_crf.rtf._plan import Common, FieldOptions, Targets, TreeData
from sklearn_crf.rtf._rounds import ends_of_columns, random_rectangles, round_of
from sklearn_crf.rtf.images._channels import ChannelUnits, InputSample
from sklearn_crf.rtf.images._input import Reading, TrainingData


def read_shards(options: FieldOptions, shards: Shards, y, sample_weight) -> TreeData:
    """The data of a fit on shards."""
    refuse_labels(y, sample_weight)
    request = _Request(uuid4().hex, options.reading, options.targets, options.n_jobs)
    found = shards.map(_survey, request)
    require_one_vector_level(found)
    outline = Outline.joined([part.outline for part in found], [part.name for part in found])
    request = request._replace(reading=_knowing(request.reading, outline, found))
    gaps = tuple(sorted({c for part in found for c in part.gaps}))
    labels = [labels for part in found for labels in part.labels]

    def counted(targets):
        return np.sum(shards.map(_count_classes, request._replace(targets=targets)), axis=0)

    request = request._replace(targets=options.targets.of_shards(gaps, labels, counted))
    described = shards.map(_describe, request)
    common = request.targets.common([part.targets for part in described])
    known = request.reading.known or {}
    images = ShardedImages(shards, request._replace(common=common), described)
    units = ChannelUnits.of(known, found[0].sample.values.shape[1])
    return TreeData(images, outline, described[0].offsets, units, gaps or tuple(known["missing_channels_"]), common)


def _knowing(reading, outline, found):
    """How images are read once those of all shards have been seen."""
    if reading.known is not None:
        return reading
    names = {} if outline.feature_names is None else {"feature_names_in_": outline.feature_names}
    sample = InputSample.joined([part.sample for part in found])
    known = {
        **reading.described_channels(sample, outline.lattice_ndim)[0],
        **names,
        "n_features_in_": outline.n_features,
        "lattice_ndim_": outline.lattice_ndim,
        "missing_channels_": np.array(sorted({c for part in found for c in part.missing}), dtype=np.int64),
        "n_node_types_": outline.n_node_types,
    }
    return reading.knowing(known)


class _Survey(NamedTuple):
    """Result of the first pass over a shard."""

    name: str
    outline: Outline
    missing: tuple  # channels of X with gaps
    gaps: tuple  # channels that a corruption leaves gaps in
    labels: list
    vector_level: str
    sample: InputSample  # of X


class _Request(NamedTuple):
    """What shards are asked for: how to read their images, which of them to take, and what a round sees of these."""

    key: str  # of the images as they are read
    reading: Reading
    targets: Targets
    n_jobs: int | None
    common: Common | None = None  # of the targets of all shards
    key_of_rounds: str = ""
    choices: Any = None  # list, of each shard
    firsts: Any = None  # list, number of the first image of each shard
    seed: int = 0
    bank: Any = None
    key_of_data: str = ""
    level: int = 0
    cuts: Any = None  # list of rectangles (image, rows, columns); None for whole images

    @property
    def is_table(self):
        """Whether the one plane of a shard is a table of rows."""
        return self.reading.known["lattice_ndim_"] == 0

    def threads_on(self, shard):
        """Threads for the images of a shard: one where workers have a thread for each of their tasks."""
        return self.n_jobs if shard.is_local else 1

    def reading_on(self, shard):
        """How a shard reads X."""
        return replace(self.reading, door=on_worker(self.reading.door, shard))


class _Description(NamedTuple):
    """Result of the second pass over a shard."""

    targets: tuple
    shapes: list
    offsets: np.ndarray
    step: int  # sides of parts of images are multiples of this


def _survey(shard, request):
    shard.cache.clear()
    shard.memory.clear()
    with shard.named_in_errors():
        planes, gaps, labels = request.targets.survey(request.reading_on(shard), *shard.load())
    outline = Outline.of(planes.encoded)
    return _Survey(shard.name, outline, planes.missing, gaps, labels, VECTOR_LEVEL, planes.sample)


def _count_classes(shard, request):
    X, y, weight = shard.load()
    with shard.named_in_errors():
        return request.targets.counts(request.reading_on(shard), X, y, weight)


def _read(shard, request):
    """Images of a shard, which are read once as long as memory allows it."""
    key, read = shard.cache.get("read", (None, None))
    if key != request.key:
        X, y, weight = shard.load()
        with shard.named_in_errors():
            read = request.targets.read_given(request.reading_on(shard), X, y, weight)
        shard.cache["read"] = request.key, read
    return read


def _describe(shard, request):
    read = _read(shard, request)
    shapes = [plane.shape[:-1] for plane in read.planes.features]
    step = 1 if read.degradations is None else read.degradations.step
    return _Description(request.targets.found(read), shapes, read.planes.offsets, step)


class ShardedImages:
    """The training images of a fit, in shards."""

    def __init__(self, shards, request, described):
        self.shards, self._request = shards, request
        self._shapes, self._step = [part.shapes for part in described], described[0].step

    @property
    def shapes(self):
        """Shape of each image, without channels."""
        return [shape for part in self._shapes for shape in part]

    def rounds(self, choice, max_samples, sampled, seed, n_jobs):
        """Data of each round of some of the images; a choice of None is all."""
        if sampled is not None and max_samples is not None:
            raise ValueError(
                "max_samples of Shards is for losses of predictions of images: take FieldSolver(max_samples=None), and "
                "fewer images in each shard."
            )
        shapes, firsts, choices = self._chosen(choice)
        request = self._request._replace(key_of_rounds=uuid4().hex, choices=choices, firsts=firsts, seed=seed)
        return ShardedRounds(self.shards, request, shapes, self._step, max_samples)

    def has_targets(self, choice):
        """Whether the target of a pixel of the chosen images counts."""
        choices = self._chosen(choice)[2]
        return any(self.shards.map(_has_targets, self._request._replace(choices=choices)))

    def _chosen(self, choice):
        """Shapes of chosen images, the number of the first of each shard, and the choice of each shard."""
        if choice is not None and choice[0] == "rows":
            raise ValueError("early_stopping holds out rows in memory, not in Shards: take early_stopping=False.")
        ends = np.cumsum([len(part) for part in self._shapes])
        if choice is None or choice[0] == "columns":
            shapes = self.shapes
            if choice is not None:
                ends = ends_of_columns(shapes, self._step, *choice[1:])
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


def _has_targets(shard, request):
    return _images(shard, request).has_targets(request.choices[shard.number])


def _rounds(shard, request):
    key = "rounds", request.key_of_rounds
    if key not in shard.cache:
        images, n_jobs = _images(shard, request), request.threads_on(shard)
        rounds = images.rounds(request.choices[shard.number], None, None, request.seed, n_jobs)
        rounds.first, rounds.bank = request.firsts[shard.number], request.bank
        shard.cache[key] = rounds
    return shard.cache[key]


class ShardedRounds:
    """Data of each round, as of Rounds, of images in shards."""

    def __init__(self, shards, request, shapes, step, max_samples):
        self.shards, self.request, self.shapes = shards, request, shapes
        self.step, self.max_samples = step, max_samples
        self._last = None

    def take_bank(self, bank):
        """Compute the channels for trees and leaves by a filter bank from now on."""
        self.request = self.request._replace(bank=bank, key_of_rounds=uuid4().hex)

    def first_pairs(self, n):
        """Inputs, targets and weights of the first images, and the noise of their degradations."""
        found = self.shards.map(_first_pairs, (self.request, n))
        return tuple(None if part[0] is None else list(chain.from_iterable(part)) for part in zip(*found, strict=True))

    def mean_square_differences(self, types):
        """Of the targets at the two pixels of the factors of each type."""
        found = self.shards.sum(_square_differences, (self.request, types))
        return [total / max(count, 1) for total, count in found]

    def __call__(self, level):
        """Data of a round; rounds that do not differ share one object."""
        is_part = self.max_samples is not None and sum(map(prod, self.shapes)) > self.max_samples
        number = level if is_part or self.request.targets.are_drawn else 0
        if self._last is None or self._last.level != number:
            if self._last is not None:
                self._last.drop()
            cuts = None
            if is_part:
                rng = round_of(level, self.request.seed)
                cuts = random_rectangles(self.shapes, self.max_samples, self.step, rng)
            n_images = len(self.shapes) if cuts is None else len(cuts)
            request = self.request._replace(key_of_data=uuid4().hex, level=number, cuts=cuts)
            self._last = ShardedData(self.shards, request, n_images)
        return self._last


def _first_pairs(shard, asked):
    request, n = asked
    first = request.firsts[shard.number]
    return _rounds(shard, request).first_pairs(max(0, n - first))


def _square_differences(shard, asked):
    request, types = asked
    return [_rounds(shard, request).images.square_differences(kind) for kind in types]


_NO_IMAGES = TrainingData([], [], [], None)


def _data(shard, request):
    """The images of a shard in a round."""
    kept = shard.memory if request.cuts is not None else shard.cache
    key, data = kept.get(("data", request.key_of_rounds), (None, None))
    if key != request.key_of_data:
        rounds = _rounds(shard, request)
        first, last = request.firsts[shard.number : shard.number + 2]
        with shard.named_in_errors(), single_threaded_blas():
            if request.cuts is None:
                data = rounds.whole_images(request.level) if last > first else _NO_IMAGES
            else:
                own = [(i - first, *sides) for i, *sides in request.cuts if first <= i < last]
                data = rounds.rectangles(own, request.level) if own else _NO_IMAGES
        # Rectangles are few: reading the images of a shard for each evaluation would take longer than that.
        kept["data", request.key_of_rounds] = request.key_of_data, data
    return data


class ShardedData:
    """Images of one round, or of all of them, as of TrainingData."""

    def __init__(self, shards, request, n_images):
        self.shards, self.request, self.n_images = shards, request, n_images
        self.level = request.level
        self._weight = None
        self._risks = []

    def parts(self, function, *arguments):
        """Results of a function of the images of each shard, and the number of the shard."""
        return self.shards.map(_of_data, (self.request, function, arguments))

    def total(self, function, *arguments):
        """Sum over the shards of what a function of their images gives."""
        return self.shards.sum(_of_data, (self.request, function, arguments))

    def risk(self, objective, field):
        """Mean loss of a field."""
        if self._weight is None:
            self._weight = self.total(_weight_of, self.request.is_table)
        whole = Whole(self.n_images, self._weight)
        make = partial(_FieldOfShard, self.request, objective, whole)
        self._risks.append(KeptObjects(self.shards, make, stays=self.request.cuts is not None))
        return ShardedFieldRisk(self._risks[-1], field, whole, self.request.n_jobs)

    def drop(self):
        """Release what shards keep of the round."""
        for kept in self._risks:
            kept.drop()
        self.shards.map(_drop_data, self.request.key_of_rounds)


def _of_data(shard, asked):
    request, function, arguments = asked
    data = _data(shard, request)
    with shard.named_in_errors(), single_threaded_blas():
        return function(data, shard.number, *arguments)


def _weight_of(data, part, is_table):
    """Sum of the mean weights of images, or of the weights of rows."""
    sizes = [len(target) if is_table else 1 for target in data.targets]
    if data.weights is None:
        return float(sum(sizes))
    return sum(size * float(np.mean(weight)) for size, weight in zip(sizes, data.weights, strict=True))


def _drop_data(shard, key):
    shard.memory.pop(("data", key), None)
    shard.cache.pop(("data", key), None)


class _FieldOfShard:
    """The mean loss of a field over the images of a shard, whose trees may grow."""

    def __init__(self, request, objective, whole, shard):
        self.data, self.objective, self.n_jobs = _data(shard, request), objective, request.threads_on(shard)
        # The loss of a plane is a mean over its rows, that of all a mean over the rows of all.
        n_rows = len(self.data.targets[0]) if request.is_table else 1
        self.whole = Whole(whole.n_images, whole.weight / n_rows, shard.number)
        self.field, self.risk = None, None  # type: Any, Any

    def grow(self, field):
        """Take over a field, and go on from the solutions of the one before."""
        self.field = field
        if self.risk is None:
            self.risk = field.risk(self.objective, self.data, self.n_jobs, self.whole)
        else:
            self.risk = field.regrown(self.risk, self.data, self.n_jobs)

    def value_grad(self, coef):
        """Loss, its derivative, and whether every solve has reached its tolerance."""
        self.risk.converged = True
        return *self.risk.value_grad(coef), self.risk.converged

    def value(self, coef):
        """Loss alone."""
        return self.risk.value(coef)

    def part(self, function, *arguments):
        """The result of a function of the risk."""
        found = function(self.risk, *arguments)
        return found if isinstance(found, list | tuple | None) else list(found)

    @property
    def carried(self):
        """The field, and the solutions that solves start from."""
        return self.field, self.risk.states

    @carried.setter
    def carried(self, carried):
        field, states = carried
        self.grow(field)
        self.risk.states = states


class ShardedFieldRisk:
    """Mean loss over images, as of FieldRisk, which are in shards."""

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
        """The risk of a field whose trees have grown, with the same warm starts."""
        self._grow(field)
        return self

    def parts(self, function, *arguments):
        """Results of a function of the risk of each shard; iterators come as lists."""
        # Solves go on from where the last ones ended.
        return self._kept.each(_FieldOfShard.part, function, *arguments)

    def total(self, function, *arguments):
        """Sum over the shards of what a function of their risks gives."""
        if function is not FieldRisk.leaf_weights:
            return self._kept.total(_FieldOfShard.part, function, *arguments)
        if self._leaf_weights is None:
            self._leaf_weights = self._kept.total(_FieldOfShard.part, function)
        return self._leaf_weights

    def value_grad(self, coef):
        """Mean loss, and its derivative."""
        value, gradient, converged = self._kept.total(_FieldOfShard.value_grad, coef)
        self.converged = self.converged and converged
        return value, gradient

    def value(self, coef):
        """Mean loss."""
        return self._kept.total(_FieldOfShard.value, coef)
