"""Models of chains that score runs of equal labels, also called segment models or semi-Markov models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import as_integer, as_integers, as_scores
from sklearn_crf.graphs import Graph
from sklearn_crf.kernels.exact.labelings import count_pairs
from sklearn_crf.models._pairwise import (
    HasGraph,
    PairwiseModel,
    Statistics,
    check_labels,
    clamped,
    compute_labeling_difference,
    compute_labeling_statistics,
    compute_score_terms,
    get_kernel_weights,
    replace_unary,
    subtract_labeling,
)


class SegmentStatistics(NamedTuple):
    """Derivatives of a scalar with respect to the scores of a :class:`SegmentModel`."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (T, R, K, K), float64
    durations: np.ndarray  # (S, K, D), float64
    ends: np.ndarray  # (2, N, K), or (0, N, K)
    spans: np.ndarray  # (N, D - 1, K), or (N, 0, K)
    means: np.ndarray  # (N, K), or (0, K)

    def minus(self, other: SegmentStatistics) -> SegmentStatistics:
        """Return ``self - other``, component by component."""
        return SegmentStatistics(*(own - its for own, its in zip(self, other, strict=True)))

    def scaled(self, unary_scale: Any, scale: Any) -> SegmentStatistics:
        """Return the statistics, with unary statistics multiplied by ``unary_scale`` and all others by ``scale``."""
        means = self.means * unary_scale if len(self.means) else self.means
        of_runs = self.ends * unary_scale, self.spans * np.reshape(unary_scale, (-1, 1, 1)), means
        return SegmentStatistics(self.unary * unary_scale, self.tables * scale, self.durations * scale, *of_runs)


class Runs(NamedTuple):
    """Maximal sequences of consecutive nodes that have the same label."""

    first: np.ndarray  # (n_runs,) first node
    chain: np.ndarray  # (n_runs,)
    label: np.ndarray  # (n_runs,)
    length: np.ndarray  # (n_runs,) number of nodes


def find_label_runs(labels: np.ndarray, ptr: np.ndarray) -> Runs:
    """Return the runs of equal labels in all chains, in order."""
    # labels: (N,); ptr: (n_chains + 1,), the first node of each chain, followed by N
    begins = np.ones(len(labels), dtype=bool)
    begins[1:] = labels[1:] != labels[:-1]
    begins[ptr[:-1]] = True
    first = np.flatnonzero(begins)
    chain = np.searchsorted(ptr, first, side="right") - 1
    return Runs(first, chain, labels[first], np.append(first[1:], len(labels)) - first)


def mark_short_runs(runs: Runs, ptr: np.ndarray, min_duration: int) -> np.ndarray:
    """Return a mask (n_runs,) of the runs shorter than ``min_duration`` that touch neither end of their chain."""
    is_inside = (runs.first > ptr[runs.chain]) & (runs.first + runs.length < ptr[runs.chain + 1])
    return is_inside & (runs.length < min_duration)


@dataclass(frozen=True, eq=False)
class SegmentModel(HasGraph):
    r"""Model that scores labelings of chains by nodes, edges and the durations of runs (semi-Markov model).

    .. math::
        \mathrm{score}(y) = \mathrm{score}_{\mathrm{pairwise}}(y)
            + \sum_{\mathrm{runs}\ r} \bigl( \delta_{c_r, k_r, \min(d_r, D)} + f_{b_r, k_r} + l_{e_r, k_r}
            + s_{b_r, d_r, k_r} + \frac{1}{\min(d_r, D)} \sum_{t = b_r}^{e_r} m_{t, k_r} \bigr)

    A run is a maximal sequence of consecutive nodes with one label :math:`k_r`; it has :math:`d_r` nodes from
    :math:`b_r` to :math:`e_r`. Labels thus determine the runs. All runs of at least D nodes have the last score of
    durations, and no score :math:`s`.
    """

    pairwise: PairwiseModel  # scores of nodes and edges; each edge leads to the next node
    # (K, D), stored as (S, K, D): scores of runs of 1, 2, ..., D nodes; -inf forbids a duration
    durations: np.ndarray
    # (n_chains,), table of durations of each chain; None is replaced by zeros
    duration_type: np.ndarray = None  # type: ignore[assignment]
    # Minimum number of nodes of a run, at most D. Runs at either end of a chain may be shorter, as they may be cut off.
    min_duration: int = 1
    ends: Any = None  # (2, N, K), scores f of the first and l of the last node of a run; None is stored as (0, N, K)
    # (N, D - 1, K), scores s of the runs of 1, 2, ..., D - 1 nodes from each node; None is stored as (N, 0, K)
    spans: Any = None
    means: Any = None  # (N, K), finite scores m of nodes; a run's score includes their mean; None is stored as (0, K)

    def __post_init__(self) -> None:
        if self.graph.chain_ptr is None and self.n_nodes:
            raise ValueError("segments need chains, in which each edge joins a node to the next node, in order.")
        durations = as_scores(self.durations, "durations", self.dtype)
        durations = durations[np.newaxis] if durations.ndim == 2 else durations
        if durations.ndim != 3 or durations.shape[1] != self.n_columns or 0 in durations.shape:
            raise ValueError(
                f"durations must have shape ({self.n_columns}, n_durations), got {np.shape(self.durations)}."
            )
        n_chains = len(self.chain_ptr) - 1
        kind = np.zeros(n_chains, dtype=np.int32) if self.duration_type is None else self.duration_type
        kind = as_integers(kind, "duration_type", shape=(n_chains,), lowest=0, highest=len(durations) - 1)
        object.__setattr__(self, "durations", np.ascontiguousarray(durations))
        object.__setattr__(self, "duration_type", kind)
        object.__setattr__(
            self, "min_duration", as_integer(self.min_duration, "min_duration", lowest=1, highest=durations.shape[2])
        )
        n, k = self.n_nodes, self.n_columns
        for name, shape, none in (
            ("ends", (2, n, k), (0, n, k)),
            ("spans", (n, durations.shape[2] - 1, k), (n, 0, k)),
            ("means", (n, k), (0, k)),
        ):
            given = getattr(self, name)
            scores = np.zeros(none, self.dtype) if given is None else as_scores(given, name, self.dtype)
            if scores.shape not in (shape, none):
                raise ValueError(f"{name} must have shape {shape}, got {scores.shape}.")
            object.__setattr__(self, name, np.ascontiguousarray(scores))
        if not np.isfinite(self.means.min(initial=0.0)):
            raise ValueError("means must be finite: to forbid a state, set its unary score to -inf.")

    @property
    def graph(self) -> Graph:
        """Graph of the pairwise model."""
        return self.pairwise.graph

    @property
    def chain_ptr(self) -> np.ndarray:
        """First node of each chain, followed by the number of nodes, (n_chains + 1,)."""
        ptr = self.graph.chain_ptr
        return np.zeros(1, dtype=np.int64) if ptr is None else ptr

    @property
    def unary(self) -> np.ndarray:
        """Scores of nodes, (N, K)."""
        return self.pairwise.unary

    @property
    def tables(self) -> np.ndarray:
        """Pairwise tables, (T, R, K, K)."""
        return self.pairwise.tables

    def locate_duration_cells(self, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
        """Return the state of each run, and the column of the run's duration in the table of durations."""
        return runs.label, np.minimum(runs.length, self.durations.shape[2]) - 1

    def locate_spans(self, runs: Runs) -> tuple[np.ndarray, ...]:
        """Return the indices in ``spans`` of the runs that have a score in ``spans``."""
        scored = runs.length <= self.spans.shape[1]
        return runs.first[scored], runs.length[scored] - 1, runs.label[scored]

    @property
    def mean_shares(self) -> np.ndarray:
        """Differences 1 / d - 1 / D between the weights of sums over d nodes and over long runs, d = 1, ..., D - 1."""
        n_durations = self.durations.shape[2]
        return 1 / np.arange(1, n_durations) - 1 / n_durations

    def locate_ends(self, runs: Runs) -> tuple[np.ndarray, ...]:
        """Return the indices in ``ends`` of the first nodes of all runs, followed by the indices of the last nodes."""
        if not len(self.ends):
            return (np.zeros(0, dtype=np.int64),) * 3
        part = np.repeat(np.arange(len(self.ends)), len(runs.first))
        node = np.concatenate((runs.first, runs.first + runs.length - 1))
        return part, node, np.tile(runs.label, 2)


def count_durations(model: SegmentModel, labels: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    """Count the runs of each state and duration, separately for each group of chains."""
    # labels: (N,); group: (n_chains,); returns: (n_groups, K, D), float64
    counts = np.zeros((n_groups, *model.durations.shape[1:]))
    runs = find_label_runs(labels, model.chain_ptr)
    np.add.at(counts, (group[runs.chain], *model.locate_duration_cells(runs)), 1.0)
    return counts


@replace_unary.register
def _replace_unary(model: SegmentModel, unary: Any) -> SegmentModel:
    return replace(model, pairwise=replace_unary(model.pairwise, unary))


@compute_score_terms.register
def _compute_score_terms(model: SegmentModel, labels: ArrayLike) -> np.ndarray:
    labels = check_labels(model, labels)
    runs = find_label_runs(labels, model.chain_ptr)
    return compute_score_terms(model.pairwise, labels) + _score_runs(model, runs, labels)


def _score_runs(model: SegmentModel, runs: Runs, labels: np.ndarray) -> np.ndarray:
    """Return the scores of the runs of a labeling, as terms of nodes, (N,)."""
    terms = np.zeros(len(labels))
    scores = model.durations[(model.duration_type[runs.chain], *model.locate_duration_cells(runs))]
    terms[runs.first] = np.where(mark_short_runs(runs, model.chain_ptr, model.min_duration), -np.inf, scores)
    at_ends, in_spans = model.locate_ends(runs), model.locate_spans(runs)
    np.add.at(terms, at_ends[1], model.ends[at_ends])
    terms[in_spans[0]] += model.spans[in_spans]
    if len(model.means):
        own = model.means[np.arange(len(labels)), labels].astype(np.float64)
        terms += own / np.repeat(np.minimum(runs.length, model.durations.shape[2]), runs.length)
    return terms


@compute_labeling_statistics.register
def _compute_labeling_statistics(model: SegmentModel, labels: ArrayLike) -> SegmentStatistics:
    labels = check_labels(model, labels)
    found = _extend_by_runs(model, compute_labeling_statistics(model.pairwise, labels))
    _add_runs(model, found, find_label_runs(labels, model.chain_ptr), labels, 1)
    return found


@subtract_labeling.register
def _subtract_labeling(model: SegmentModel, statistics: SegmentStatistics, labels: ArrayLike) -> SegmentStatistics:
    # Few cells change, so this is several times as fast as building arrays of the statistics of the labeling.
    labels = check_labels(model, labels)
    unary, counts = statistics.unary.copy(), np.zeros(model.tables.shape)
    unary[np.arange(len(labels)), labels] -= 1
    count_pairs(model.graph.edges, model.pairwise.edge_type, get_kernel_weights(model.pairwise), labels, counts)
    found = statistics._replace(unary=unary, tables=statistics.tables - counts)
    _add_runs(model, found, find_label_runs(labels, model.chain_ptr), labels, -1)
    return found


@compute_labeling_difference.register
def _compute_labeling_difference(
    model: SegmentModel, labels: ArrayLike, others: ArrayLike
) -> tuple[np.ndarray, SegmentStatistics]:
    labels, others = check_labels(model, labels), check_labels(model, others)
    terms, pairs = compute_labeling_difference(model.pairwise, labels, others)
    found = _extend_by_runs(model, pairs)
    for own, sign in ((labels, 1), (others, -1)):
        runs = find_label_runs(own, model.chain_ptr)
        terms += sign * _score_runs(model, runs, own)
        _add_runs(model, found, runs, own, sign)
    return terms, found


def _extend_by_runs(model: SegmentModel, pairs: Statistics) -> SegmentStatistics:
    """Extend statistics of nodes and edges by statistics of runs, which are zero."""
    of_runs = (np.zeros_like(each) for each in (model.ends, model.spans, model.means))
    return SegmentStatistics(pairs.unary, pairs.tables, np.zeros(model.durations.shape), *of_runs)


def _add_runs(model: SegmentModel, statistics: SegmentStatistics, runs: Runs, labels: np.ndarray, sign: int) -> None:
    """Add the statistics of the runs of a labeling, multiplied by a sign, to the arrays of ``statistics``."""
    kind = model.duration_type[runs.chain]
    np.add.at(statistics.durations, (kind, *model.locate_duration_cells(runs)), sign)
    statistics.ends[model.locate_ends(runs)] += sign
    statistics.spans[model.locate_spans(runs)] += sign
    if len(model.means):
        n_nodes = np.minimum(runs.length, model.durations.shape[2])
        statistics.means[np.arange(len(labels)), labels] += sign / np.repeat(n_nodes, runs.length)


@clamped.register
def _clamped(model: SegmentModel, labels: ArrayLike) -> SegmentModel:
    return replace(model, pairwise=clamped(model.pairwise, labels))
