"""Likelihood of labelled chains that share one table, computed by one kernel call instead of batch by batch."""

from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from sklearn_crf._threads import cached_property, count_threads
from sklearn_crf.encoding import tie_constant_edges
from sklearn_crf.inference.exact._chains import RunTransitions, padded
from sklearn_crf.kernels.chains.chains import risk_of_chains
from sklearn_crf.objectives._risk import RiskValue, expand_weights_to_nodes
from sklearn_crf.objectives.likelihood._likelihood import Likelihood
from sklearn_crf.potentials import LinearPotentials, SegmentPotentials, SparsePotentials

# Number of blocks, for any number of threads; minimum number of scores of a block; maximum number of scores of a block.
# With 128 blocks, each of sixteen threads has eight blocks.
# A block with the minimum number of scores is large enough to be a task. A block with the maximum number fits in cache.
_N_BLOCKS, _LEAST_OF_A_BLOCK, _MOST_OF_A_BLOCK = 128, 2**11, 2**14

# Minimum number of nodes of a block, divided by the number of classes.
# Each block stores sums for all pairs of classes and for all dense features.
# In a block with many nodes, these sums need little memory and time compared with the nodes.
_NODES_FOR_A_CLASS = 4

# Maximum number of node derivatives (32 MB) that are stored before threads pull them back by ranges of features.
_MOST_KEPT = 2**22

# If features have weights for more than a third of the columns, storing whole rows of weights is faster.
_COLUMNS_OF_A_PAIR = 3

# Number of panels of sparse features for each thread; number of ranges of features for each thread.
# There are more panels than threads, so that other threads can process the panels of a delayed thread.
_PANELS_OF_A_THREAD, _RANGES_OF_A_THREAD = 4, 2

# Number of fields of the kernel's ChainPanel: first block, last block, number of sparse columns, four addresses.
_FIELDS_OF_A_PANEL = 7


class PassOverChains:
    """Negative log-likelihood of labelled chains with dense or sparse features, computed by one kernel call.

    Chains are divided into blocks. The data of a block remain in the cache while its scores and gradient are computed.
    """

    name = "chains"
    objectives = (Likelihood,)

    def __init__(self, risk):
        (potentials, n_durations), batches = _split_durations(risk.potentials), risk.batches
        pointers = [batch.example.graph.chain_ptr for batch in batches]
        cuts = compute_block_starts(pointers, potentials.n_classes, n_durations)
        self._potentials = potentials
        self._ptr = _join_pointers(pointers)
        self._labels = np.concatenate([batch.labels for batch in batches]).astype(np.int32, copy=False)
        self._weight = np.empty(0)
        if any(batch.weight is not None for batch in batches):
            each = zip(batches, pointers, strict=True)
            self._weight = np.concatenate([expand_weights_to_nodes(batch)[ptr[:-1]] for batch, ptr in each])
        ends = potentials.forbidden_ends
        self._ends = np.zeros((0, potentials.n_classes)) if ends is None else np.where(ends, -np.inf, 0.0)
        starts = np.cumsum([0, *(len(ptr) - 1 for ptr in pointers)])
        # For each block: its first chain, and the first chain after it.
        self._blocks = np.array(
            [ends for own, start in zip(cuts, starts, strict=False) for ends in pairwise(own + start)]
        )
        first_nodes = [ptr[own] for ptr, own in zip(pointers, cuts, strict=True)]
        kind = _Columns if isinstance(potentials, SparsePotentials) else _Rows
        self._features = kind(potentials, [batch.example for batch in batches], first_nodes)
        # Each block has an array of sums that consists of six parts. ``_bounds`` contains the ends of these parts.
        # Parts 1 to 3: loss and errors; derivatives of intercepts; derivatives of tables.
        # Parts 4 to 6: counts of label pairs; derivatives of durations; derivatives of feature weights.
        n_classes, width = potentials.n_classes, padded(potentials.n_classes)
        of_runs = (1 + n_durations) * width
        sizes = 2, potentials.n_columns, n_classes * width, n_classes**2, of_runs, self._features.n_sums
        self._shortest = risk.potentials.segments.min_duration if n_durations else 1
        self._bounds = np.cumsum(sizes).tolist()
        self._partial = np.empty((len(self._blocks), self._bounds[-1]))
        self._no_intercept = np.zeros(potentials.n_columns)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether inference is exact, and examples are labelled chains that share one table."""
        if objective.exact_on is None:
            return False
        potentials = _split_durations(potentials)[0]
        if type(potentials) not in (LinearPotentials, SparsePotentials):
            return False
        types = potentials.n_node_types, potentials.n_edge_types, potentials.n_edge_features
        # The kernel supports labels that are forbidden at ends only in combination with forbidden pairs of labels.
        ends_alone = potentials.forbidden_ends is not None and potentials.forbidden is None
        if types != (1, 1, 1) or ends_alone or not potentials.n_features:
            return False
        return any(batch.example.graph.n_edges for batch in batches) and all(
            _are_labelled_chains(batch, potentials.by_columns) for batch in batches
        )

    def value_grad(self, risk, coef, members):
        """Return the risk of the given batches and its gradient, or None if scores range too widely."""
        potentials, coef = self._potentials, np.ascontiguousarray(coef, dtype=np.float64)
        weights = potentials.unpack(coef[: potentials.n_coef])
        table = potentials.forbid_pairs(potentials.form.expand(weights.edge_coef))[0, 0]
        runs = RunTransitions.of(table, coef[potentials.n_coef :].reshape(len(table), -1), self._shortest)
        if runs is None:
            return None
        n_threads = count_threads(risk.n_jobs)
        panels, *shared = self._features.shared(n_threads)
        panels = np.concatenate(panels if members is None else [panels[i] for i in members])
        gradient, total = np.zeros(len(coef)), np.empty(self._bounds[-1])
        parts = potentials.unpack(gradient[: potentials.n_coef])
        fits = risk_of_chains(
            *self._features.arguments(weights.coef),
            weights.intercept[0] if potentials.fit_intercept else self._no_intercept,
            runs,
            self._ends,
            self._ptr,
            self._labels,
            self._weight,
            self._blocks,
            panels,
            *shared,
            parts.coef.reshape(-1),
            self._partial,
            total,
            n_threads,
        )
        if not fits:
            return None
        _, intercept, pairs, counts, of_runs, of_features = np.split(total, self._bounds[:-1])
        if potentials.fit_intercept:
            parts.intercept[0] = intercept
        if len(of_features):
            parts.coef[0] = of_features.reshape(parts.coef[0].shape)
        stays, *of_durations = of_runs.reshape(-1, runs.pairs.factor.shape[1])[:, : len(table)]
        gradient[potentials.n_coef :] = np.ravel(of_durations, order="F")
        table = (pairs.reshape(len(table), -1) * runs.pairs.factor)[:, : len(table)] + np.diag(stays)
        table -= counts.reshape(table.shape)
        parts.edge_coef[...] = potentials.form.adjoint(table[np.newaxis, np.newaxis])
        return RiskValue(float(total[0]), gradient, float(total[1]), converged=True, n_nonsubmodular=0)


class _InPlace:
    """Base class of features that the kernel reads by their memory addresses.

    Pickles do not contain the addresses, so unpickled copies compute them again.
    """

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name not in ("_panels", "_cut", "_shared")}


class _Rows(_InPlace):
    """Dense node features of batches, read in place to save memory."""

    def __init__(self, potentials, examples, first_nodes):
        self._arrays = [np.ascontiguousarray(example.node_features) for example in examples]
        self._first_nodes = first_nodes
        self.n_sums = potentials.n_columns * potentials.n_features

    @cached_property
    def _panels(self):
        panels, n_blocks = [], 0
        for rows, first in zip(self._arrays, self._first_nodes, strict=True):
            own = np.zeros((len(first) - 1, _FIELDS_OF_A_PANEL), dtype=np.int64)
            own[:, 0] = np.arange(n_blocks, n_blocks := n_blocks + len(own))
            own[:, 1] = own[:, 0] + 1
            own[:, 3] = _address(rows) + first[:-1] * rows.strides[0]
            panels.append(own)
        return panels

    def arguments(self, weights):
        """Return the arrays of weights that the kernel reads."""
        none, no_rows = np.zeros(0, dtype=np.int32), np.zeros((2, 0, 0))
        return weights[0].astype(self._arrays[0].dtype), np.zeros(0, dtype=np.int64), none, np.zeros(0), none, no_rows

    def shared(self, n_threads):
        """Return the panels of batches and an empty workspace; dense features need no shared workspace."""
        return self._panels, np.zeros(0), 0, np.zeros(0, dtype=np.int32)


class _Columns(_InPlace):
    """Sparse node features of batches, stored by column and divided into panels for threads."""

    n_sums = 0

    def __init__(self, potentials, examples, first_nodes):
        self._pairs, self._first_nodes = potentials.pairs, first_nodes
        self._columns = [potentials.prepared(example).node_features for example in examples]
        n_columns = self._pairs.n_columns
        self._stride = 1 if n_columns == 1 else padded(n_columns)
        has_row = _COLUMNS_OF_A_PAIR * np.diff(self._pairs.ptr) > n_columns
        number = np.cumsum(has_row, dtype=np.int32)
        self._row_of = np.where(has_row, number - 1, np.int32(-1))
        self._rows = np.empty((2, number[-1] + 1, self._stride))

    def arguments(self, weights):
        """Return the arrays of weights that the kernel reads."""
        dense, pairs = np.zeros((0, 0), dtype=self._columns[0].dtype), self._pairs
        return dense, pairs.ptr, pairs.column, weights, self._row_of, self._rows

    def shared(self, n_threads):
        """Return the panels, the workspace for node derivatives, its number of nodes, and the ends of the ranges."""
        if n_threads not in self._shared:
            self._shared[n_threads] = self._build_thread_arrays(n_threads)
        return self._shared[n_threads][1]

    @cached_property
    def _shared(self):
        return {}

    def _build_thread_arrays(self, n_threads):
        """Build the arrays of the panels, and the values that :meth:`shared` returns."""
        n_nodes = sum(int(first[-1]) for first in self._first_nodes)
        arrays, panels, n_blocks, largest = [], [], 0, 0
        for columns, first in zip(self._columns, self._first_nodes, strict=True):
            # Divide columns into as few parts as threads need, because long columns are faster. Results do not change.
            n_parts = 1 if n_threads == 1 else ceil(_PANELS_OF_A_THREAD * n_threads * first[-1] / n_nodes)
            blocks = np.unique(np.linspace(0, len(first) - 1, n_parts + 1).astype(np.int64))
            largest = max(largest, int(np.diff(first[blocks]).max()))
            cut, starts = _cut_columns(columns, first[blocks])
            arrays.append(cut)
            panels.append(_build_panels(cut, starts, n_blocks + blocks))
            n_blocks += len(first) - 1
        most_kept = largest if n_threads == 1 else max(largest, min(n_nodes, _MOST_KEPT // self._stride))
        kept = np.empty(most_kept * self._stride)
        return arrays, (panels, kept, most_kept, self._compute_range_ends(n_threads))

    def _compute_range_ends(self, n_threads):
        """Return the features at which ranges end; all ranges have about the same number of feature entries."""
        entries = np.zeros(len(self._row_of))
        for columns in self._columns:
            entries[columns.feature] += np.diff(columns.ptr)
        n_ranges, ends = _RANGES_OF_A_THREAD * n_threads, np.cumsum(entries)
        wanted = np.arange(1, n_ranges + 1) * (ends[-1] / n_ranges)
        return np.searchsorted(ends, wanted).astype(np.int32)


def _are_labelled_chains(batch, by_columns):
    """Return whether a batch consists of labelled chains with supported node features and no varying edge features."""
    example = batch.example
    if example.has_factors or example.n_states is not None:
        return False
    if not isinstance(example.node_features, np.ndarray) and not by_columns:
        return False
    return example.graph.chain_ptr is not None and tie_constant_edges(example).edge_features is None


def _split_durations(potentials: Any) -> tuple[Any, int]:
    """Split off scores of durations that have no features; return the other potentials and the number of durations."""
    has_durations = isinstance(potentials, SegmentPotentials) and potentials.segments is not None
    if not has_durations or potentials.segments.features:
        return potentials, 0
    return potentials.pairwise, potentials.segments.max_duration


def compute_block_starts(pointers, n_classes, n_durations=0):
    """Return, for each batch, the first chain of each block, followed by the number of chains."""
    n_numbers = sum(ptr[-1] for ptr in pointers) * n_classes
    least = max(_LEAST_OF_A_BLOCK, _NODES_FOR_A_CLASS * n_classes * (n_classes + n_durations))
    size = max(least, min(n_numbers / _N_BLOCKS, _MOST_OF_A_BLOCK))
    cuts = []
    for ptr in pointers:
        n_blocks = int(-(-ptr[-1] * n_classes // size))
        # Chains are never divided, so the number of blocks may be smaller than ``n_blocks``.
        found = np.searchsorted(ptr, ptr[-1] * np.arange(n_blocks + 1) / n_blocks)
        cuts.append(found[np.diff(found, prepend=-1) > 0])
    return cuts


def _join_pointers(pointers):
    """Join several arrays of pointers, each of which begins with 0, into one array of pointers."""
    starts = np.cumsum([0, *(ptr[-1] for ptr in pointers)])
    parts = [ptr[:-1].astype(np.int64) + start for ptr, start in zip(pointers, starts, strict=False)]
    return np.append(np.concatenate(parts), starts[-1])


def _address(array):
    return array.__array_interface__["data"][0]


def _build_panels(columns, starts, blocks):
    """Build panels, each with the columns between two starts, and with the indices of its first and last block."""
    first, last = np.array(starts[:-1]), np.array(starts[1:])
    own = np.empty((len(first), _FIELDS_OF_A_PANEL), dtype=np.int64)
    own[:, 0], own[:, 1], own[:, 2] = blocks[:-1], blocks[1:], last - first
    own[:, 3] = _address(columns.feature) + columns.feature.itemsize * first
    own[:, 4] = _address(columns.ptr) + columns.ptr.itemsize * first
    own[:, 5] = _address(columns.node)
    own[:, 6] = _address(columns.value) if len(columns.value) else 0
    return own


def _cut_columns(columns, first_node):
    """Divide columns of features at the bounds of node ranges; return the columns, and each range's first column."""
    # first_node: (n + 1,), first node of each range; returns: FeatureColumns, and (n + 1,), first column of each range
    n_parts = len(first_node) - 1
    if n_parts == 1:
        return columns, [0, len(columns.feature)]
    part_of_node = np.repeat(np.arange(n_parts).astype(np.min_scalar_type(n_parts)), np.diff(first_node))
    part = part_of_node[columns.node]
    order = np.argsort(part, kind="stable")
    part, node = part[order], columns.node[order]
    feature = np.repeat(columns.feature, np.diff(columns.ptr))[order]
    is_first = np.ones(len(node), dtype=bool)
    is_first[1:] = (feature[1:] != feature[:-1]) | (part[1:] != part[:-1])
    ptr = np.append(np.flatnonzero(is_first), len(node)).astype(np.int32)
    cut = replace(
        columns,
        feature=feature[ptr[:-1]],
        ptr=ptr,
        node=node - first_node[part].astype(np.int32),
        value=columns.value[order] if len(columns.value) else columns.value,
    )
    return cut, np.searchsorted(part[ptr[:-1]], np.arange(n_parts + 1))
