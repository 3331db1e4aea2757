"""Exact inference on chains that score the durations of runs."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Labeling, Marginals, Refuted
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.inference.exact._best_labelings import BestLabelings, find_largest
from sklearn_crf.inference.exact._chains import RunTransitions
from sklearn_crf.kernels.chains.chains import best_labels, log_partitions, sample_labels, segment_marginals
from sklearn_crf.models import SegmentModel, SegmentStatistics, expand_edge_tables, score


class SegmentInference(Inference):
    r"""Exact inference on chains that score the durations and other properties of runs (semi-Markov chains).

    .. math::
        \beta_s(k) = \sum_{e \ge s} \exp\Bigl( \sum_{t = s}^{e} u_t(k) + \sum_{t = s + 1}^{e} \theta_t(k, k)
            + \delta_{s, e, k} \Bigr) \sum_{l \ne k} \exp(\theta_{e + 1}(k, l)) \, \beta_{e + 1}(l)

    :math:`\beta_s(k)` sums over all labelings of the nodes from s on in which a run of label k begins at s. For the
    best labeling, a maximum takes the place of the sum. :math:`\delta_{s, e, k}` is the score of the run itself. Runs
    that are still open are stored by their durations up to D, so a node takes O(K (K + D)) time. Memory is O(K) for
    each node, plus O(K D). All sums are log-sum-exp.

    Source: S. Sarawagi, W. Cohen. Semi-Markov conditional random fields for information extraction. NIPS 2004.
    """

    tasks = frozenset({"map", "marginals", "sample"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    takes = (SegmentModel,)
    exact_on = "any"

    def _map(self, model: SegmentModel, *, init: Any = None, n_threads: int = 1) -> Labeling:
        labels = np.empty(model.n_nodes, dtype=np.int32)
        self._call(best_labels, model, _gather_kernel_arrays(model), labels, n_threads)
        best = score(model, labels)
        return Labeling(labels, best, bound=best)

    def _marginals(self, model: SegmentModel, *, init: Any = None, n_threads: int = 1) -> Marginals:
        unary, terms = np.empty_like(model.unary), np.empty(model.n_nodes)
        n_sums = model.tables.size + model.durations.size
        fields = _gather_kernel_arrays(model, n_sums)
        sums = np.zeros((max(len(fields[-1]) - 1, 1), n_sums))
        of_runs = np.empty_like(model.ends), np.zeros_like(model.spans), np.empty_like(model.means)
        self._call(segment_marginals, model, fields, _choose_factors(model), unary, *of_runs, terms, sums, n_threads)
        # The kernel subtracts runs that end from runs that begin, which leaves rounding errors.
        unary[np.isneginf(model.unary)] = 0.0
        tables, durations = np.split(sums[0], [model.tables.size])
        statistics = SegmentStatistics(
            unary, tables.reshape(model.tables.shape), durations.reshape(model.durations.shape), *of_runs
        )
        return Marginals(unary, statistics, float(terms.sum()), terms, bound="exact", n_iter=1)

    def log_partitions(self, model: SegmentModel, *, n_threads: int = 1) -> np.ndarray:
        """Compute the log-partition of each chain, (n_chains,), with O(K D) memory besides the model."""
        found = np.zeros(len(model.chain_ptr) - 1)
        self._call(log_partitions, model, _gather_kernel_arrays(model), found, n_threads)
        return found

    def _sample(
        self, model: SegmentModel, n_samples: int, *, random_state: Any = None, n_threads: int = 1
    ) -> np.ndarray:
        rng = check_random_state(random_state)
        labels = np.empty((n_samples, model.n_nodes), dtype=np.int32)
        fields, step = _gather_kernel_arrays(model), max(1, _tuning.UNIFORM_BUDGET // max(model.n_nodes, 1))
        for first in range(0, n_samples, step):
            drawn = labels[first : first + step]
            self._call(sample_labels, model, fields, rng.random_sample(drawn.shape), drawn, n_threads)
        return labels

    def edge_marginals(self, model: SegmentModel, *, n_threads: int = 1) -> np.ndarray:
        """Compute the joint marginals of the two ends of every edge, (E, K, K)."""
        apart = replace(model, pairwise=expand_edge_tables(model.pairwise))
        return self.marginals(apart, n_threads=n_threads).tables[:, 0]

    def best(self, model: SegmentModel, m: int) -> BestLabelings:
        """Find the m best labelings."""
        scores, labels = np.zeros(1), np.zeros((1, 0), dtype=np.int32)
        for number, (first, stop) in enumerate(pairwise(model.chain_ptr.tolist())):
            own = _find_best_of_chain(model, number, min(m, model.n_columns ** min(stop - first, 32)))
            if not len(own.scores):
                raise Refuted(list(range(first, stop)))
            joined, places = find_largest((scores[:, np.newaxis] + own.scores).reshape(1, -1), m)
            places = places[0][joined[0] > -np.inf]
            scores = joined[0][joined[0] > -np.inf]
            before, new = np.divmod(places, len(own.scores))
            labels = np.concatenate((labels[before], own.labels[new]), axis=1)
        return BestLabelings(labels, scores)

    def _call(self, kernel: Any, model: SegmentModel, fields: tuple, *arguments: Any) -> None:
        """Call a kernel; raise the error if all labelings of a chain are forbidden."""
        if not model.n_nodes:
            return
        failed = kernel(model.unary, fields, *arguments)
        if failed >= 0:
            raise Refuted(list(range(*model.chain_ptr[failed : failed + 2])))


def _choose_factors(model: SegmentModel) -> RunTransitions | None:
    """Return the factors of a model, or None if its chains have different tables."""
    shares_tables = model.pairwise.edge_weight is None and model.tables.shape[:2] == (1, 1) == (len(model.durations), 1)
    if not shares_tables:
        return None
    table, durations = model.tables[0, 0].astype(np.float64), model.durations[0].astype(np.float64)
    varies = any(scores.size for scores in (model.ends, model.spans, model.means))
    return RunTransitions.of(table, durations, model.min_duration, varies=varies)


def _gather_kernel_arrays(model: SegmentModel, n_sums: int = 0) -> tuple:
    """Return the arrays of a model that kernels read, and the first chain of each block."""
    # n_sums: number of sums that each block adds up; adding them up must not take longer than the nodes of the block
    pairwise, ptr = model.pairwise, model.chain_ptr
    weight = np.zeros((0, 1), model.dtype) if pairwise.edge_weight is None else pairwise.edge_weight
    size = max(_tuning.NODES_OF_A_BLOCK, n_sums // model.n_columns)
    wanted = np.linspace(0, model.n_nodes, max(model.n_nodes // size, 1) + 1)
    return (
        ptr.astype(np.int64, copy=False),
        pairwise.tables.astype(np.float64, copy=False),
        pairwise.edge_type,
        weight,
        model.durations.astype(np.float64, copy=False),
        model.duration_type,
        model.ends,
        model.spans,
        model.means,
        model.min_duration,
        np.unique(np.searchsorted(ptr, wanted)).astype(np.int64, copy=False),
    )


class _EndingRuns(NamedTuple):
    """The m best labelings of all nodes up to the end of a run, for each label of this run."""

    scores: np.ndarray  # (K, m), in descending order
    start: np.ndarray  # (K, m), first node of the last run
    rank: np.ndarray  # (K, m), rank of the labeling before the last run, among those that this run may follow


def _find_best_of_chain(model: SegmentModel, number: int, m: int) -> BestLabelings:
    """Find the m best labelings of one chain by lists of the m best scores in place of maxima."""
    first, stop = model.chain_ptr[number : number + 2].tolist()
    n_classes, n_short = model.n_columns, model.durations.shape[2] - 1
    durations = model.durations[model.duration_type[number]].astype(np.float64)
    ranks = np.tile(np.arange(m), (n_classes, 1))
    # Open runs: a list for each number of nodes below D, and one list for all longer runs
    runs = np.full((n_short, n_classes, m), -np.inf)
    of_nodes, sums = model.unary[first:stop].astype(np.float64), np.zeros((stop - first + 1, n_classes))
    if len(model.means):
        # Here, sums over runs get the weight of the longest runs. The rest of the weight is added when a run ends.
        of_nodes += model.means[first:stop].astype(np.float64) / (n_short + 1)
        sums = np.cumsum(np.pad(model.means[first:stop].astype(np.float64), ((1, 0), (0, 0))), axis=0)
    tail = _EndingRuns(np.full((n_classes, m), -np.inf), np.zeros_like(ranks), ranks)
    begin = np.where(np.arange(m) == 0, 0.0, np.full((n_classes, 1), -np.inf))
    ended: list[_EndingRuns] = []
    sources: list[np.ndarray] = []
    for i, s in enumerate(range(first, stop)):
        checkpoint()
        own, within = of_nodes[i], np.zeros((n_classes, 1))
        if i:
            table = model.pairwise.edge_tables(slice(s - 1 - number, s - number))[0].astype(np.float64)
            within = (own + np.diagonal(table))[:, np.newaxis]
            leaving = np.where(np.eye(n_classes, dtype=bool), -np.inf, table).T
            begin, source = find_largest((leaving[:, :, np.newaxis] + ended[-1].scores).reshape(n_classes, -1), m)
            sources.append(source)
        fresh = begin + (own + (model.ends[0, s] if len(model.ends) else 0.0))[:, np.newaxis]
        grown = np.concatenate((fresh[np.newaxis], runs + within))
        tail = _extend_tail(tail, within, grown[-1], i - n_short, ranks)
        runs = grown[:-1]
        scores = np.concatenate((runs, tail.scores[np.newaxis])) + durations.T[:, :, np.newaxis]
        for d in range(1, min(i + 1, model.spans.shape[1]) + 1):
            scores[d - 1] += model.spans[s - d + 1, d - 1][:, np.newaxis]
        for d in range(1, min(i + 1, n_short) + 1):
            scores[d - 1] += ((sums[i + 1] - sums[i + 1 - d]) * model.mean_shares[d - 1])[:, np.newaxis]
        # Runs at the ends of a chain may be shorter.
        is_short = (np.arange(1, n_short + 2) < model.min_duration) & (np.arange(1, n_short + 2) <= i) & (s < stop - 1)
        scores[is_short] = -np.inf
        best, place = find_largest(scores.swapaxes(0, 1).reshape(n_classes, -1), m)
        length, rank = np.divmod(place, m)
        start, is_long = i - length, length == n_short
        start = np.where(is_long, np.take_along_axis(tail.start, rank, 1), start)
        rank = np.where(is_long, np.take_along_axis(tail.rank, rank, 1), rank)
        ended.append(_EndingRuns(best + (model.ends[1, s][:, np.newaxis] if len(model.ends) else 0.0), start, rank))
    best, place = find_largest(ended[-1].scores.reshape(1, -1), m)
    found = place[0][best[0] > -np.inf]
    labels = [_read_back_runs(ended, sources, *divmod(int(each), m)) for each in found]
    return BestLabelings(np.array(labels, dtype=np.int32).reshape(len(found), stop - first), best[0][: len(found)])


def _extend_tail(tail: _EndingRuns, within: np.ndarray, new: np.ndarray, start: int, ranks: np.ndarray) -> _EndingRuns:
    """Extend all runs of at least D nodes by a node, and add the runs that have just reached D nodes."""
    m = new.shape[1]
    scores, place = find_largest(np.concatenate((tail.scores + within, new), axis=1), m)
    parts = ((tail.start, np.full_like(ranks, start)), (tail.rank, ranks))
    return _EndingRuns(scores, *(np.take_along_axis(np.concatenate(part, axis=1), place, 1) for part in parts))


def _read_back_runs(ended: list, sources: list, label: int, rank: int) -> np.ndarray:
    """Return the labels of a chain, given the label of its last run and the rank of the labeling."""
    labels, stop = np.empty(len(ended), dtype=np.int32), len(ended)
    while stop:
        start, own_rank = (int(each[label, rank]) for each in (ended[stop - 1].start, ended[stop - 1].rank))
        labels[start:stop] = label
        if start:
            label, rank = divmod(int(sources[start - 1][label, own_rank]), ended[0].scores.shape[1])
        stop = start
    return labels
