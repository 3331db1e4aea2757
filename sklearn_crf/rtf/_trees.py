"""Regression trees over feature tests: factor types, trees stored as arrays, and the search for splits."""

from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, make_range_runner, map_tasks, run_alone
from sklearn_crf.kernels.rtf.leaf_models import factor_inputs, split_terms
from sklearn_crf.kernels.rtf.trees import add_to_bins, find_leaves, find_responses
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._potentials import as_plane, clip_eigenvalues, contiguous, cross_of

# Empty array that kernels accept as the scale of factors if all weights are 1.
_UNSCALED = np.empty(0)


class FactorRows(NamedTuple):
    """Rows and columns of the factors of a type on a plane.

    The slices of a volume are stacked vertically into a plane.
    """

    first: np.ndarray  # (rows,) int32: for each row of factors, the row of their first pixels
    left: int  # column of the first factor in each row
    columns: int  # number of factors in each row
    down: int  # rows from the first pixel of a factor to the second
    right: int  # columns from the first pixel of a factor to the second

    @property
    def n_factors(self):
        """Number of factors."""
        return len(self.first) * self.columns

    def pixels(self, own):
        """Return the row and column of the first pixel of each given factor."""
        # own: (n,); returns (n, 2) int32
        columns = max(self.columns, 1)
        return np.stack([self.first[own // columns], self.left + own % columns], axis=1).astype(np.int32)


class FactorTemplate(NamedTuple):
    """Factor type: one factor for every pixel, or for every pair of pixels at a given offset."""

    down: int = 0
    right: int = 0
    paired: bool = False
    channels: tuple | None = None  # channels used by linear models, None for all
    multipliers: tuple = ()  # channels that increase precisions
    slices: int = 0  # offset in slices, for volumes

    @property
    def offset(self):
        """Offset from the first pixel to the second: slices, rows and columns."""
        return self.slices, self.down, self.right

    # The result is cached, because training calls this method a thousand times for each type and shape.
    @lru_cache(maxsize=1024)  # noqa: B019
    def rows(self, shape):
        """Return the location of the factors on a plane (H, W) or a volume (D, H, W)."""
        first, height = _select_pairs(self.offset, shape)[0], shape[-2]
        rows = np.arange(first[-2].start, first[-2].stop, dtype=np.int32)
        if len(shape) == 3:
            above = height * np.arange(first[0].start, first[0].stop, dtype=np.int32)
            rows = (above[:, None] + rows).ravel()
        rows.flags.writeable = False
        columns, down = first[-1].stop - first[-1].start, self.slices * height + self.down
        return FactorRows(rows, first[-1].start, columns, down, self.right)

    @lru_cache(maxsize=1024)  # noqa: B019
    def locate_plane_rows(self, shape):
        """Return, for each plane row, the row of factors with first (second) pixels in it, or -1 if there is none."""
        # returns (2, n_rows) int32
        rows = self.rows(shape)
        found = np.full((2, prod(shape[:-1])), -1, dtype=np.int32)
        number = np.arange(len(rows.first), dtype=np.int32)
        found[0, rows.first], found[1, rows.first + rows.down] = number, number
        found.flags.writeable = False
        return found

    def ends(self, shape):
        """Return slices that select the first pixels of the factors and, for pairs, the second pixels."""
        return _select_pairs(self.offset, shape)[: 1 + self.paired]

    def n_inputs(self, n_channels):
        """Return the number of inputs of a linear model: a constant, and the channels of each pixel of the factor."""
        n_seen = n_channels if self.channels is None else len(self.channels)
        return 1 + n_seen * (2 if self.paired else 1)

    def seen(self, features):
        """Return the channels used by linear models, as a contiguous array."""
        return features if self.channels is None else np.take(features, self.channels, axis=-1)

    def average_multiplier_channels(self, features):
        """Return the channels that increase precisions, averaged over the pixels of each factor, (n_factors, I)."""
        own = features[..., list(self.multipliers)]
        n_factors = self.rows(features.shape[:-1]).n_factors
        ends = [own[end].reshape(n_factors, own.shape[-1]) for end in self.ends(features.shape[:-1])]
        return sum(ends) / np.asarray(len(ends), dtype=features.dtype)

    def inputs(self, features, own):
        """Return the inputs of linear models for the given factors: 1, and the channels at their pixels."""
        # features: (H, W, F) or (D, H, W, F), contiguous; own: (n,); returns (n, n_inputs)
        out = np.empty((len(own), 1 + features.shape[-1] * (2 if self.paired else 1)), dtype=features.dtype)
        self.write_inputs(features, own, np.arange(len(own)), out)
        return out

    def write_inputs(self, features, own, place, out, scale=_UNSCALED):
        """Write the inputs of linear models, multiplied by ``scale``, to rows of an array."""
        # place: (n,), rows of out; scale: (n,) float64, or empty for 1
        own, place = (np.asarray(numbers, dtype=np.int64) for numbers in (own, place))
        factor_inputs(as_plane(features), self.paired, *self.rows(features.shape[:-1]), own, place, scale, out)


def _select_pairs(offset, shape):
    """Return slices along each axis that select the first pixels of pairs, and slices for the second pixels."""
    first, second = [], []
    for step, length in zip(offset[3 - len(shape) :], shape, strict=True):
        start, size = max(-step, 0), max(length - abs(step), 0)
        first.append(slice(start, start + size))
        second.append(slice(start + step, start + step + size))
    if any(own.stop == own.start for own in first):
        first = second = [slice(0, 0)] * len(shape)
    return tuple(first), tuple(second)


def build_factor_templates(offsets, channels=None, multipliers=()):
    """Return the factor types: one unary type, then a pairwise type for each offset."""
    # offsets: (n, 2), or (n, 3) for volumes
    steps = ((0, *own)[-3:] for own in np.asarray(offsets).tolist())
    of_pairs = (FactorTemplate(down, right, True, channels, multipliers, slices) for slices, down, right in steps)
    return [FactorTemplate(multipliers=multipliers), *of_pairs]


class RegressionTree(NamedTuple):
    """Binary tree whose inner nodes compare the response to a test with a threshold.

    The response at a pixel is the value of a channel at an offset, the difference of two such values, or the magnitude
    of such a value or difference.
    """

    # (n_nodes, 2) int32: child for responses up to the threshold, child for larger responses; -1 at leaves
    children: np.ndarray
    # (n_nodes, 7) int32: channel with row and column offset; subtracted channel (or -1) with offsets; use of magnitude
    # For volumes, two more columns hold the slice offsets of both channels.
    test: np.ndarray
    threshold: np.ndarray  # (n_nodes,) float64: threshold of the test at each inner node
    leaf: np.ndarray  # (n_nodes,) int32: number of each leaf, -1 at inner nodes

    @classmethod
    def stump(cls):
        """Return a tree with a single leaf."""
        return cls(
            np.full((1, 2), -1, dtype=np.int32),
            np.zeros((1, 7), dtype=np.int32),
            np.zeros(1),
            np.zeros(1, dtype=np.int32),
        )

    @property
    def n_leaves(self):
        """Number of leaves L."""
        return int(self.leaf.max()) + 1

    @property
    def depth(self):
        """Maximum number of tests on a path to a leaf."""
        depth = np.zeros(len(self.leaf), dtype=np.int64)
        for node, pair in enumerate(self.children):
            if pair[0] >= 0:
                depth[pair] = depth[node] + 1
        return int(depth.max())

    def leaves(self, features, factor_type, run):
        """Return the leaf of each factor of a type."""
        # features: (H, W, F) or (D, H, W, F); returns (n_factors,)
        rows = factor_type.rows(features.shape[:-1])
        out = np.zeros(rows.n_factors, dtype=np.int32)
        if out.size and self.n_leaves > 1:
            plane, where = as_plane(features), (features.shape[-3], rows.first, rows.left, rows.columns)
            run(
                lambda start, stop: find_leaves(plane, *where, *self, start, stop, out),
                len(rows.first),
                smallest_range=max(1, tuned.PIXELS_OF_THREAD // rows.columns),
            )
        return out

    def split(self, splits):
        """Split the given leaves in two; return the new tree, and for each new leaf the index of the old leaf."""
        # splits: dict from leaves to tests and thresholds; parent: (n_leaves,)
        children, leaf, threshold = self.children.copy(), self.leaf.copy(), self.threshold.copy()
        width = max([self.test.shape[1], *(len(new_test) for new_test, _ in splits.values())])
        test = np.zeros((len(leaf), width), dtype=np.int32)
        test[:, : self.test.shape[1]] = self.test
        n_nodes, n_leaves = len(leaf), self.n_leaves
        node_of_leaf = {int(number): node for node, number in enumerate(leaf) if number >= 0}
        parent, new_leaves = list(range(n_leaves)), list[int]()
        for number, (new_test, new_threshold) in sorted(splits.items()):
            node = node_of_leaf[number]
            children[node] = n_nodes + len(new_leaves), n_nodes + len(new_leaves) + 1
            test[node], threshold[node], leaf[node] = new_test, new_threshold, -1
            new_leaves += [number, len(parent)]
            parent.append(number)
        n_new = len(new_leaves)
        tree = RegressionTree(
            np.concatenate([children, np.full((n_new, 2), -1, dtype=np.int32)]),
            np.concatenate([test, np.zeros((n_new, width), dtype=np.int32)]),
            np.concatenate([threshold, np.zeros(n_new)]),
            np.concatenate([leaf, np.array(new_leaves, dtype=np.int32)]),
        )
        return tree, np.array(parent, dtype=np.int64)


class LeafSplit(NamedTuple):
    """Best split of a leaf: its test, threshold and gain."""

    test: int  # index of the test among the tests that were tried
    threshold: float
    gain: float  # increase of the split criterion; may be negative for projected gradients before convergence


def draw_tests(n_tests, n_channels, radius, rng):
    """Draw random tests: about half use one channel at an offset, and the others a difference of two channels.

    Half of the differences compare one channel at two offsets, the others compare any two channels. Half of the tests
    use magnitudes, because the strength of a filter's response is often more informative than its sign. If there are no
    offsets and no more channels than tests, every channel is tested at least once.
    """
    # radius: (2,), or (3,) for volumes; returns (n_tests, 7), or (n_tests, 9)
    deep, down, right = _compute_radii(radius)
    tests = np.zeros((n_tests, 7 if deep is None else 9), dtype=np.int32)
    for channel, rows, columns, slices in ((0, 1, 2, 7), (3, 4, 5, 8)):
        tests[:, channel] = rng.randint(n_channels, size=n_tests)
        tests[:, rows] = rng.randint(-down, down + 1, size=n_tests)
        tests[:, columns] = rng.randint(-right, right + 1, size=n_tests)
        if deep is not None:
            tests[:, slices] = rng.randint(-deep, deep + 1, size=n_tests)
    kind = rng.randint(4, size=n_tests)
    tests[:, 6] = rng.randint(2, size=n_tests)
    tests[kind == 2, 3] = tests[kind == 2, 0]
    alone = kind < 2
    if not deep and down == right == 0 and n_channels <= n_tests:
        tests[:n_channels, 0] = np.arange(n_channels)
        alone[:n_channels], tests[:n_channels, 6] = True, 0
    tests[alone, 3], tests[alone, 4:6], tests[alone, 8:] = -1, 0, 0
    return tests


def _compute_radii(radius):
    """Return the largest offsets in slices (None for planes), rows and columns."""
    return (None, *np.broadcast_to(radius, 2)) if np.size(radius) < 3 else tuple(radius)


def enumerate_tests(n_channels, radius):
    """Return tests of every channel at every offset, without differences."""
    # returns (n_tests, 7), or (n_tests, 9) for volumes
    deep, *of_plane = _compute_radii(radius)
    largest = of_plane if deep is None else [*of_plane, deep]
    axes = np.arange(n_channels), *(np.arange(-own, own + 1) for own in largest)
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 1 + len(largest))
    tests = np.zeros((len(places), 7 if deep is None else 9), dtype=np.int32)
    tests[:, :3], tests[:, 3] = places[:, :3], -1
    tests[:, 7:8] = places[:, 3:]
    return tests


def compute_projected_norm(linear, square, precision, bounds):
    r"""Return the squared norm of the projected gradient, :math:`\|P(w - g) - w\|^2`, for parameters of leaves."""
    # linear: (..., n); square: (..., m, m); precision: (m, m); returns (...)
    moved = clip_eigenvalues(precision - square, *bounds) - precision
    return np.sum(linear**2, axis=-1) + np.sum(moved**2, axis=(-2, -1))


def compute_gradient_norm(sums, precision, bounds, slopes):
    """Return the split criterion of joint training, which is the squared norm of the projected gradient.

    Both new leaves keep the parameters of the old leaf. The gradient of a new leaf is therefore the sum of the terms of
    its factors.
    """
    # sums: (..., q), sums of weights and of derivatives for precision, slopes and other parameters, in this order
    # precision: (m, m), precision of the leaf; bounds: bounds of its eigenvalues
    # slopes: (I, m, m), increase of the precision per channel, with eigenvalues from 0 to the upper bound
    shape = 1 + len(slopes), *precision.shape
    n_squares = int(np.prod(shape))
    squares = sums[..., 1 : 1 + n_squares].reshape(*sums.shape[:-1], *shape)
    norm = compute_projected_norm(sums[..., 1 + n_squares :], squares[..., 0, :, :], precision, bounds)
    for slope, square in zip(slopes, np.moveaxis(squares[..., 1:, :, :], -3, 0), strict=True):
        norm = norm + compute_projected_norm(np.zeros(1), square, slope, (0.0, bounds[1]))
    return norm


def compute_explained_variance(sums):
    r"""Return the split criterion of separate training, :math:`\|\sum_F y_F\|^2 / n`.

    A split decreases the sum of squared distances from the mean by the amount by which this criterion increases.
    """
    # sums: (..., 1 + m); returns (...)
    weight = sums[..., 0]
    return np.divide(np.sum(sums[..., 1:] ** 2, axis=-1), weight, out=np.zeros(weight.shape), where=weight > 0)


def find_best_split(terms, responses, criterion, *, n_thresholds, min_samples, run=run_alone, members=None):
    """Return the split with the largest criterion for one leaf, or None if no split is allowed."""
    # terms: (n, q); responses: (T, n), rows contiguous; members: (n,), columns of responses, None for all
    checkpoint()
    # Quantiles of a sample are nearly as good as quantiles of all factors, and take a tenth of the time.
    ranked = slice(None, None, max(1, len(terms) // tuned.LEAST_RANKED))
    thresholds = np.empty((len(responses), n_thresholds), dtype=responses.dtype)
    sums = np.zeros((len(responses), n_thresholds + 1, terms.shape[1]))

    def of_tests(start, stop):
        seen, own = responses[start:stop], slice(start, stop)
        seen = seen if members is None else np.take(seen, members, axis=1)
        thresholds[own] = _compute_quantiles(seen[:, ranked], terms[ranked, 0], n_thresholds)
        add_to_bins(terms, seen, thresholds[own], sums[own])

    run(of_tests, len(responses), smallest_range=max(1, tuned.RESPONSES_OF_THREAD // len(terms)))
    left = np.cumsum(sums, axis=1)
    total = left[:, -1:]
    left = left[:, :-1]
    right = total - left
    lighter = np.minimum(left[..., 0], right[..., 0])
    allowed = (lighter >= min_samples * (1 - tuned.ROUNDING)) & (lighter > tuned.ROUNDING * total[..., 0])
    if not allowed.any():
        return None
    norm = criterion(left[allowed]) + criterion(right[allowed])
    best = int(np.argmax(norm))
    if not norm[best] > 0:
        return None
    gain = norm - criterion(total[:1, 0])
    test, k = (index[best] for index in np.nonzero(allowed))
    return LeafSplit(int(test), float(thresholds[test, k]), float(gain[best]))


def _compute_quantiles(responses, weight, n_thresholds):
    """Return, for each test, weighted quantiles of the responses, (T, n_thresholds), at k / (n_thresholds + 1)."""
    n = responses.shape[1]
    steps = np.arange(1, n_thresholds + 1)
    if np.all(weight == weight[0]):
        ranks = -(-steps * n // (n_thresholds + 1)) - 1
        # NumPy's vectorised sort is faster than a partition at several ranks.
        return np.sort(responses, axis=1)[:, ranks]
    order = np.argsort(responses, axis=1, kind="stable")
    below = np.cumsum(weight[order], axis=1, dtype=np.float64)
    wanted = steps / (n_thresholds + 1) * (1 - tuned.ROUNDING)
    ranks = [np.searchsorted(row, wanted * row[-1]) for row in below]
    return np.take_along_axis(np.take_along_axis(responses, order, axis=1), np.array(ranks), axis=1)


def find_splits(risk, trees, coef, max_depths, options, bounds, rng):
    """Return, for each type, a dict from leaves to best splits; a split is a test and a threshold."""
    # options: Splits; bounds: bounds of the eigenvalues of precisions
    parameters = risk.potentials.unpack(coef)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(trees))
    sizes = risk.parts(_measure_part)
    samples = [
        _draw_type_sample(sizes, number, options, seeds[number])
        for number, tree in enumerate(trees)
        if tree.depth < max_depths[number]
    ]
    samples = [sample for sample in samples if sample is not None]
    splits: list[dict] = [{} for _ in trees]
    found = zip(*risk.parts(gather_samples, coef, samples, options.criterion == "gradient"), strict=True)
    # Process types one after the other, each with all threads, because the terms of a type take tens of megabytes.
    for sample, parts in zip(samples, found, strict=True):
        own = parameters[sample.number]
        splits[sample.number] = _find_type_splits(sample, _sort_by_leaf(parts), own, options, bounds, risk.n_jobs)
    return splits


class FactorSample(NamedTuple):
    """Sample of a type's factors on which splits are compared, and the tests to try."""

    number: int  # index of the type
    chosen: np.ndarray | None  # chosen factors if images are in memory; None if each shard draws its own factors
    quotas: np.ndarray  # number of factors from each shard
    seed: int
    share: float  # fraction of all factors that are in the sample
    tests: np.ndarray

    def of_part(self, n_factors, whole):
        """Return the sorted factors of a part that belong to the sample."""
        if self.chosen is not None:
            return self.chosen
        quota = self.quotas[whole.part]
        if quota == n_factors:
            return np.arange(n_factors)
        return np.sort(whole.random_state(self.seed).choice(n_factors, quota, replace=False))


def _measure_part(risk):
    """Return the factor count of each type, the channel count and the longest axes; return None without images."""
    if not risk.images:
        return None
    counts = np.sum([[len(leaf) for leaf in image.leaves] for image in risk.images], axis=0)
    shapes = np.array([image.features.shape for image in risk.images])
    # Rows of a table are not neighbours, so tests must not use offsets.
    is_table = risk.images[0].graph.n_edges == 0 and shapes[0, 0] == 1
    return counts, int(shapes[0, -1]), np.ones(2, dtype=int) if is_table else shapes[:, :-1].max(axis=0)


def _draw_type_sample(sizes, number, options, seed):
    """Return a sample of the factors of a type, or None if the type has no factors."""
    counts = np.array([0 if size is None else size[0][number] for size in sizes])
    n_factors = int(counts.sum())
    if n_factors == 0:
        return None
    rng = np.random.RandomState(seed)
    limit = n_factors if options.max_samples is None else min(options.max_samples, n_factors)
    chosen = None
    if len(sizes) > 1:
        drawn = np.random.default_rng(seed)
        quotas = drawn.multivariate_hypergeometric(counts, limit, method="marginals")
    else:
        quotas = np.array([limit])
        chosen = np.arange(n_factors) if limit == n_factors else np.sort(rng.choice(n_factors, limit, replace=False))
    present = [size for size in sizes if size is not None]
    n_channels = present[0][1]
    largest = np.max([size[2] for size in present], axis=0)
    radius = tuple(min(options.feature_radius, int(length) - 1) for length in largest)
    if options.n_feature_tests is None:
        tests = enumerate_tests(n_channels, radius)
    else:
        tests = draw_tests(options.n_feature_tests, n_channels, radius, rng)
    return FactorSample(number, chosen, quotas, int(seed), limit / n_factors, tests)


def sort_by_leaf(leaf):
    """Return the indices of factors, sorted by leaf."""
    # leaf: (n,) int32; converted to two-byte integers if possible, because NumPy sorts these much faster
    is_short = leaf.max(initial=0) <= np.iinfo(np.int16).max
    return np.argsort(leaf.astype(np.int16) if is_short else leaf, kind="stable")


def locate_by_leaf(leaf):
    """Return the indices of factors, sorted by leaf, and the position of each factor in this order."""
    order = sort_by_leaf(leaf)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return order, place


def _sort_by_leaf(parts):
    """Concatenate the terms, responses and leaves of several parts, sorted by leaf."""
    parts = [part for part in parts if part is not None]
    if len(parts) == 1:
        return parts[0]
    terms, responses, leaf = zip(*parts, strict=True)
    leaf = np.concatenate(leaf)
    order = sort_by_leaf(leaf)
    return np.concatenate(terms)[order], np.take(np.concatenate(responses, axis=1), order, axis=1), leaf[order]


def _find_type_splits(sample, gathered, parameters, options, eigenvalue_bounds, n_jobs):
    terms, responses, leaf = gathered
    precision, slopes = parameters.precision, parameters.slopes
    bounds = np.searchsorted(leaf, np.arange(len(precision) + 1))
    least = options.min_samples_leaf
    if least is None:
        least = tuned.SAMPLES_OF_WEIGHT * parameters.weight.shape[2]

    def of_leaf(k, n_threads):
        first, last = bounds[k : k + 2]
        criterion = compute_explained_variance
        if options.criterion == "gradient":
            own = {"precision": precision[k], "bounds": eigenvalue_bounds, "slopes": slopes[k]}
            criterion = partial(compute_gradient_norm, **own)
        return find_best_split(
            terms[first:last],
            responses[:, first:last],
            criterion,
            n_thresholds=options.n_thresholds,
            min_samples=least * sample.share,
            run=make_range_runner(n_threads),
        )

    leaves = np.flatnonzero(np.diff(bounds) >= 2).tolist()
    found = zip(leaves, map_tasks(of_leaf, leaves, n_jobs), strict=True)
    return {k: (sample.tests[split.test], split.threshold) for k, split in found if split is not None}


def gather_samples(risk, coef, samples, is_joint):
    """Yield, for each sample of factors, the criterion's terms, responses and leaves, or None without images."""
    statistics = risk.statistics(coef) if is_joint and samples else None
    for sample in samples:
        yield _gather(risk, statistics, sample) if risk.images else None


def _gather(risk, statistics, sample):
    """Return the terms, responses and leaves of the factors of one sample, sorted by leaf."""
    number, tests, share = sample.number, sample.tests, sample.share
    counts = np.array([len(image.leaves[number]) for image in risk.images])
    chosen = sample.of_part(int(counts.sum()), risk.whole)
    kind = risk.potentials.types[number]
    dtype = risk.images[0].features.dtype
    starts = np.concatenate(([0], np.cumsum(counts)))
    bounds = np.searchsorted(chosen, starts)
    members = [chosen[bounds[k] : bounds[k + 1]] - starts[k] for k in range(len(counts))]
    leaf = np.concatenate([image.leaves[number][own] for image, own in zip(risk.images, members, strict=True)])
    order, place = locate_by_leaf(leaf)
    size = risk.potentials.n_values * (2 if kind.paired else 1)
    if statistics is not None:
        size *= size * (1 + len(kind.multipliers)) + len(risk.potentials.whitening[number])
    # The first term is the weight of a factor.
    terms = np.empty((len(chosen), 1 + size), dtype=dtype)
    responses = np.empty((len(tests), len(chosen)), dtype=dtype)

    def of_image(k, n_threads):
        image, own, target = risk.images[k], members[k], place[bounds[k] : bounds[k + 1]]
        pixels = kind.rows(image.features.shape[:-1]).pixels(own)
        weight = risk.gather_factor_weights(k, kind)[own]
        if statistics is None:
            terms[target] = np.column_stack([weight, weight[:, None] * _gather_factor_values(risk, k, kind)[own]])
        else:
            _write_gradient_terms(risk, statistics[k], image, number, own, weight, share, target, terms)
        find_responses(as_plane(image.features), image.features.shape[-3], pixels, tests, target, responses)

    map_tasks(of_image, np.flatnonzero(np.diff(bounds)).tolist(), risk.n_jobs)
    return terms, responses, leaf[order]


def _write_gradient_terms(risk, statistics, image, number, own, weight, share, place, terms):
    """Write each factor's weight, and its terms in the derivatives for precision, slopes and linear model."""
    types, white = risk.potentials.types, risk.potentials.whitening[number]
    kind, dtype, shape = types[number], image.features.dtype, image.features.shape[:-1]
    inputs = kind.inputs(image.seen(kind), own) @ white.T.astype(dtype)
    n_multipliers = len(kind.multipliers)
    multipliers = (
        kind.average_multiplier_channels(image.features)[own] if n_multipliers else np.empty((len(own), 0), dtype=dtype)
    )
    cross = cross_of(statistics, image, types, number)
    where = shape[-1], kind.paired, *kind.rows(shape), np.asarray(own, dtype=np.int64)
    split_terms(*contiguous(statistics), cross, *where, weight, share, inputs, multipliers, place, terms)


def _gather_factor_values(risk, k, kind):
    """Return the targets at the pixels of each factor of a type on image k, (n_factors, m)."""
    plane = risk.images[k].features.shape[:-1]
    # Targets have mean 0, so 0 replaces missing values.
    target = np.nan_to_num(risk.targets[k]).reshape(*plane, -1)
    return np.concatenate([target[end].reshape(-1, target.shape[-1]) for end in kind.ends(plane)], axis=1)
