"""Losses and marginals of graphs with cycles, whose messages one kernel call updates until they converge."""

from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import cached_property, map_tasks
from sklearn_crf.encoding import Batch
from sklearn_crf.inference._field import LARGEST_RANGE, Messages
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.inference.messages._belief_propagation import MessagePassing, TRWMessagePassing
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.inference.messages._extrapolation import is_large, plan_sweeps
from sklearn_crf.inference.messages._schedules import SCHEDULES, choose_schedule, get_sorted_components
from sklearn_crf.kernels.messages.edges import range_of_tables
from sklearn_crf.kernels.messages.sweeps import risk_of_graphs
from sklearn_crf.models import EdgeLayout, are_potts

# Columns of the kernel's rows that hold addresses: of edge kinds, given messages, found messages, and marginals.
_KINDS, _GIVEN, _FOUND, _MARGINALS = 13, 17, 18, 19


class LinearScores(NamedTuple):
    """Weights of the features of nodes and of edges, in the precision of the features."""

    weights: np.ndarray  # (C, F); C is one for two classes, which use differences of scores
    intercept: np.ndarray  # (C,), or empty
    tables: np.ndarray  # (T, R, K, K)

    @classmethod
    def of(cls, potentials: Any, coef: np.ndarray, dtype: np.dtype) -> "LinearScores":
        """Unpack the weights of linear potentials, and convert them to ``dtype``."""
        weights = potentials.unpack(np.asarray(coef, dtype=np.float64))
        intercept = weights.intercept[0] if potentials.fit_intercept else np.zeros(0)
        each = weights.coef[0], intercept, potentials.form.expand(weights.edge_coef)
        return cls(*(np.ascontiguousarray(numbers, dtype=dtype) for numbers in each))


class ExcessOverLabels(NamedTuple):
    """Losses and derivatives that the kernel computed for some batches."""

    sums: np.ndarray  # (n_sums,), over the batches that did not fail
    settled: list  # indices of the batches that did not fail
    messages: list  # messages of each batch that did not fail, as stored for warm starts


class SweptGraphs:
    """Batches of graphs with cycles and dense features, in the form that the kernel expects."""

    def __init__(
        self,
        batches: list[Batch],
        edges: list[EdgeLayout | None],
        algorithm: MessagePassing,
        n_jobs: int | None,
    ) -> None:
        # edges: layout of each batch, or None to leave the batch out
        chosen = [(i, layout) for i, layout in enumerate(edges) if layout is not None]

        def arrays_of(part: tuple[int, EdgeLayout], n_threads: int) -> tuple[int, "_GraphArrays"]:
            i, layout = part
            return i, _GraphArrays(batches[i], layout, algorithm)

        self.batches = dict(map_tasks(arrays_of, chosen, n_jobs))
        self.dtype = next(iter(self.batches.values())).dtype if self.batches else np.dtype(np.float64)
        self._nodes_of_block = ceil(sum(each.n_nodes for each in self.batches.values()) / _tuning.N_PARTS)

    def excess(
        self,
        chosen: list[int],
        starts: list[Messages | None],
        scores: LinearScores,
        tol: float,
        max_iter: int,
        n_threads: int,
    ) -> ExcessOverLabels:
        """Return losses and derivatives of labelled batches whose messages converge; initial messages may be None."""
        # Messages that were stored as scores could not be represented as probabilities.
        given = [None if each is None or each.as_scores else each.values for each in starts]
        given = [None if each is None else np.ascontiguousarray(each, dtype=self.dtype) for each in given]
        # Use new arrays, because the given messages must not change if messages do not converge.
        n_classes = scores.tables.shape[3]
        messages = [np.empty((2 * self.batches[i].n_edges, n_classes), self.dtype) for i in chosen]
        sums, failed = self._run(chosen, {_GIVEN: given, _FOUND: messages}, scores, tol, max_iter, n_threads)
        is_sound = [not each.any() for each in failed]
        settled = np.flatnonzero(is_sound)
        found = [Messages(messages[k], as_scores=False) for k in settled]
        total = np.concatenate([part for part, sound in zip(sums, is_sound, strict=True) if sound] or [sums[0][:0]])
        return ExcessOverLabels(total.sum(axis=0), [chosen[k] for k in settled], found)

    def marginals(
        self, scores: LinearScores, tol: float, max_iter: int, n_threads: int
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return node marginals of all batches, and for each example whether its messages failed to converge."""
        chosen, n_classes = list(self.batches), scores.tables.shape[3]
        # Start with zeros, because the kernel does not write the rows of examples that fail.
        found = [np.zeros((self.batches[i].n_nodes, n_classes), self.dtype) for i in chosen]
        _, failed = self._run(chosen, {_MARGINALS: found}, scores, tol, max_iter, n_threads)
        return dict(zip(chosen, zip(found, failed, strict=True), strict=True))

    def _run(
        self, chosen: list[int], arrays: dict, scores: LinearScores, tol: float, max_iter: int, n_threads: int
    ) -> tuple[list, list]:
        """Run the kernel; return the sums of the blocks and the failures of the examples of each chosen batch."""
        # arrays: lists of arrays of the chosen batches, by the column of their addresses
        n_types, n_features, n_classes, _ = scores.tables.shape
        spread = np.empty(n_types * n_features)
        range_of_tables(scores.tables.reshape(len(spread), -1), spread)
        is_potts = are_potts(scores.tables)
        by_kind = n_classes > 2 and not is_potts
        layout = [self.batches[i].rows(k, self._nodes_of_block, by_kind) for k, i in enumerate(chosen)]
        rows, examples, weight, blocks = (list(part) for part in zip(*layout, strict=True))
        for column, each in arrays.items():
            for row, array in zip(rows, each, strict=True):
                row[column] = _address(array)
        firsts = np.cumsum([0, *map(len, examples)])
        bounds = np.concatenate([*(own + first for own, first in zip(blocks, firsts, strict=False)), firsts[-1:]])
        sums = np.empty((len(bounds) - 1, 2 + len(scores.weights) + scores.weights.size + scores.tables.size))
        failed = np.empty(firsts[-1], dtype=np.uint8)
        risk_of_graphs(
            np.array(rows), np.concatenate(examples), np.concatenate(weight), bounds, n_classes, *scores,
            is_potts, spread.reshape(n_types, n_features), LARGEST_RANGE[self.dtype], tol, max_iter,
            plan_sweeps(), _tuning.MOST_BYTES, sums, failed, n_threads,
        )  # fmt: skip
        ends = np.cumsum([len(own) for own in blocks])[:-1]
        return np.split(sums, ends), [failed[start:stop] for start, stop in pairwise(firsts)]


class _GraphArrays:
    """Arrays of a batch, and their addresses, from which the kernel reads."""

    def __init__(self, batch: Batch, edges: EdgeLayout, algorithm: MessagePassing) -> None:
        example, graph = batch.example, batch.example.graph
        is_reweighted = isinstance(algorithm, TRWMessagePassing)
        probabilities = np.ones(graph.n_edges)
        if is_reweighted:
            probabilities = choose_edge_probabilities(graph, algorithm.edge_probabilities)
        self.dtype, self.n_nodes, self.n_edges = example.node_features.dtype, graph.n_nodes, graph.n_edges
        self._is_large = is_reweighted and is_large(graph)
        divided = (1.0 if edges.edge_weight is None else edges.edge_weight) / probabilities[:, None]
        divided = np.ascontiguousarray(divided, dtype=self.dtype)
        order, rank, ranges = get_sorted_components(graph)
        self._arrays = [
            np.ascontiguousarray(example.node_features), *graph.incidence, order, rank, ranges, edges.edge_type,
            edges.edge_weight, divided, probabilities.astype(self.dtype),
            None if batch.labels is None else np.asarray(batch.labels, dtype=np.int32),
        ]  # fmt: skip
        self._edge_type, self._divided = edges.edge_type, divided
        node_ptr = batch.node_ptr
        first_edge = np.append(0, np.cumsum(np.bincount(
            np.searchsorted(node_ptr, graph.edges[:, 0], side="right") - 1, minlength=len(node_ptr) - 1
        )))  # fmt: skip
        first_range = np.searchsorted(ranges[:, 0], node_ptr)
        ends = [np.stack((ptr[:-1], ptr[1:]), axis=1) for ptr in (node_ptr, first_edge, first_range)]
        self._examples = np.concatenate([np.zeros((len(node_ptr) - 1, 1), dtype=np.int64), *ends], axis=1)
        self._weight = np.ones(len(node_ptr) - 1) if batch.weight is None else batch.weight.astype(np.float64)
        self._node_ptr = node_ptr

    def __getstate__(self) -> dict[str, Any]:
        # Exclude addresses, because copies, possibly in other processes, have other addresses.
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_row")}

    @cached_property
    def _kinds(self) -> tuple:
        return _kinds(self._edge_type, self._divided, len(self._node_ptr) - 1)

    @cached_property
    def _row(self) -> np.ndarray:
        return np.array([*map(_address, self._arrays), *[0] * 7, self._is_large], dtype=np.int64)

    @cached_property
    def _row_by_kind(self) -> np.ndarray:
        kind, types, weights = self._kinds
        row = self._row.copy()
        row[_KINDS:_GIVEN] = _address(kind), _address(types), _address(weights), 0 if types is None else len(types)
        return row

    def rows(
        self, number: int, nodes_of_block: int, by_kind: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the kernel's rows for the batch and its examples, weights of the examples, and starts of blocks."""
        # by_kind: whether edges of one kind share their factors
        self._examples[:, 0] = number
        wanted = np.arange(0, self.n_nodes, nodes_of_block)
        blocks = np.unique(np.searchsorted(self._node_ptr[:-1], wanted))
        row = self._row_by_kind if by_kind else self._row
        return row.copy(), self._examples, self._weight, blocks


def _kinds(edge_type: np.ndarray, divided: np.ndarray, n_examples: int) -> tuple:
    """Return the kind of each edge, and the type and weight of each kind, or None if there are too many kinds."""
    if divided.shape[1] == 1:
        # Pairs are encoded as complex numbers, which have the same order and are sorted without the interpreter's lock.
        pairs, kind = np.unique(edge_type + 1j * divided[:, 0], return_inverse=True)
        if 2 * len(pairs) * n_examples <= len(edge_type):
            types = pairs.real.astype(np.int32)
            return kind.astype(np.int32), types, np.ascontiguousarray(pairs.imag[:, None], dtype=divided.dtype)
    return None, None, None


def can_sweep_together(batch: Batch, algorithm: MessagePassing) -> bool:
    """Return whether a batch contains labelled graphs that can be swept and whose edge features are stored."""
    has_labels = batch.labels is not None and np.min(batch.labels, initial=0) >= 0
    return has_labels and batch.example.stores_edges and are_swept(batch.example, algorithm)


def are_swept(example: Any, algorithm: MessagePassing) -> bool:
    """Return whether an example contains graphs with cycles and dense features whose sweeps are sequential."""
    if example.has_factors or example.n_states is not None or example.graph.is_forest:
        return False
    if not isinstance(example.node_features, np.ndarray):
        return False
    return (
        algorithm.schedule != "convergent"
        and choose_schedule(algorithm.schedule, example.graph) is SCHEDULES["sequential"]
    )


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None or not array.size else array.__array_interface__["data"][0]
