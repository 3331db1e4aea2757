"""Local search, which changes one node at a time: arrays for kernels, orders of updates, and hill climbing."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf._threads import checkpoint, run_alone
from sklearn_crf.inference import _tuning
from sklearn_crf.kernels.local.local import (
    SearchWorkspace,
    annealing_sweep,
    cells_of_labels,
    change_costs,
    icm_update,
)
from sklearn_crf.models import DENSE, FactorGraph, PairwiseModel, SmallFactors, check_labels, score
from sklearn_crf.models._pairwise import get_kernel_weights
from sklearn_crf.models._row_models import split_row_ranges, stored_rows

SCHEDULES = ("sequential", "checkerboard")


class LocalEdges(NamedTuple):
    """Edges of a model, in the layout of kernels that update one node given its neighbours."""

    tables: np.ndarray
    agreement: np.ndarray  # (T, R) float64; (0, 0) if tables are not Potts
    edge_type: np.ndarray
    edge_weight: np.ndarray  # (E, R); (0, 0) if all weights are 1
    ptr: np.ndarray
    neighbor: np.ndarray
    half_edge: np.ndarray


def build_local_arguments(model):
    """Return the unary scores and the :class:`LocalEdges` of a model."""
    ptr, neighbor, half_edge, _ = model.graph.incidence
    kinds = model.tables, _agreement(model), model.edge_type, get_kernel_weights(model)
    edges = LocalEdges(*kinds, ptr, neighbor, half_edge)
    return model.unary, edges


def _agreement(model):
    if model.n_columns == 1 or not model.is_potts or not np.all(np.isfinite(model.tables)):
        return np.empty((0, 0))
    tables = model.tables.astype(np.float64)
    return np.ascontiguousarray(tables[..., 0, 0] - tables[..., 0, 1])


def group_updates(graph, schedule):
    """Return groups of nodes in update order; a group of one colour has no inner edges, so threads can share it."""
    if schedule == "sequential":
        return [np.arange(graph.n_nodes, dtype=np.int32)]
    nodes, ptr = graph.colouring
    return [nodes[a:b] for a, b in pairwise(ptr)]


def sweep(run, groups, update, unary, *arguments):
    """Call ``update(nodes, start, stop, unary, *arguments, scores)`` for each group of nodes in turn."""
    # unary: (N, K)
    # update: kernel that updates ``nodes[start:stop]``; ``scores`` is its workspace, (K,) float64
    # returns the list of results of all calls, in no particular order
    returned = []

    def part(nodes, start, stop):
        returned.append(update(nodes, start, stop, unary, *arguments, np.empty(unary.shape[1])))

    for nodes in groups:
        run(partial(part, nodes), len(nodes))
    return returned


def allocate_table_buffers(model, n_items):
    """Return zeros for partial sums of tables, (n_ranges, T, R, K, K) float64.

    The number of ranges depends only on the model, so sums do not depend on the number of threads.
    """
    n_ranges = max(1, min(16, n_items // _tuning.SMALLEST_RANGE, _tuning.BUFFER_SIZE // max(model.tables.size, 1)))
    return np.zeros((n_ranges, *model.tables.shape))


def random_labels(model, rng):
    """Draw labels uniformly from the states that ``unary`` allows, (N,) int32."""
    allowed = ~np.isneginf(get_unary(model))
    rank = (rng.uniform(size=len(allowed)) * allowed.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(allowed, axis=1) > rank[:, None], axis=1).astype(np.int32)


def label_nodes_independently(model):
    """Return the labels, (N,) int32, that maximise the unary score of each node, ignoring its neighbours."""
    return np.argmax(get_unary(model), axis=1).astype(np.int32)


def get_unary(model):
    """Return the scores of single nodes, (N, K); in a factor graph, these are the scores of single-node factors."""
    return search_problem(model)[1] if isinstance(model, FactorGraph) else model.unary


def copy_initial_labels(model, init):
    """Return a copy of the initial labels, checked against the model."""
    labels = check_labels(model, init, name="init").copy()
    forbidden = np.flatnonzero(np.isneginf(np.take_along_axis(get_unary(model), labels[:, None], axis=1)[:, 0]))
    if len(forbidden):
        s = forbidden[0]
        raise ValueError(f"init[{s}] is {labels[s]}, a state whose score is -inf: choose an allowed state.")
    return labels


class SearchProblem(NamedTuple):
    """Model in the layout of search kernels. A slot is a pair of a factor and one of its nodes, factor by factor."""

    n_states: np.ndarray  # (N,) int32
    node_ptr: np.ndarray  # (N + 1,) int64
    node_slot: np.ndarray  # (n_slots,) int32
    slot_ptr: np.ndarray  # (F + 1,) int64
    slot_node: np.ndarray  # (n_slots,) int32
    slot_factor: np.ndarray  # (n_slots,) int32
    slot_step: np.ndarray  # (n_slots,) int64, distance, in cells, between successive states of the node
    table: np.ndarray  # (F,) int32
    table_ptr: np.ndarray  # (T + 1,) int64
    kind: np.ndarray  # (T,) int8
    counted: np.ndarray  # (T,) int32
    fallback: np.ndarray  # (T,) float64
    listed: np.ndarray  # cells of sparse tables, int64
    values: np.ndarray  # cells of all tables, in the data type of the unary scores
    weight: np.ndarray  # (F, R) or empty
    forbidden: float  # finite score that replaces -inf

    @property
    def work_of_sweep(self):
        """Number of table entries that a sweep over all nodes reads."""
        return max(1, int((self.n_states * (1 + np.diff(self.node_ptr))).sum()))

    def cells(self, unary: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the cell of each factor's table for a labeling, (F,) int64."""
        cells = np.empty(len(self.table), dtype=np.int64)
        cells_of_labels(self, unary, labels, cells)
        return cells

    def compute_mean_change_cost(self, unary, labels, cells, workspace=None):
        """Return the mean absolute score change if a node takes its best other label, for nodes with several states."""
        cost = np.empty(len(labels))
        workspace = workspace or SearchWorkspace(len(unary), len(cells), unary.shape[1])
        change_costs(self, unary, labels, cells, cost, workspace)
        cost = np.abs(cost[cost != 0])
        if self.forbidden:
            cost = cost[cost < -self.forbidden / 2]
        return float(cost.mean()) if len(cost) else 0.0


def search_problem(model: PairwiseModel | FactorGraph) -> tuple[SearchProblem, np.ndarray]:
    """Convert a model to the layout of search kernels; return it with the unary scores, (N, K)."""
    arrays, unary = _build_factor_problem(model) if isinstance(model, FactorGraph) else _build_edge_problem(model)
    return arrays._replace(forbidden=_compute_forbidden_score(arrays, unary)), unary


def _build_edge_problem(model):
    graph, n_columns = model.graph, model.n_columns
    ptr, _, half_edge, _ = graph.incidence
    n_types, size = len(model.tables), model.tables[0].size if len(model.tables) else 0
    n_edges = graph.n_edges
    arrays = SearchProblem(
        n_states=np.full(graph.n_nodes, n_columns, dtype=np.int32) if model.n_states is None else model.n_states,
        node_ptr=ptr,
        node_slot=half_edge,
        slot_ptr=np.arange(0, 2 * n_edges + 1, 2, dtype=np.int64),
        slot_node=graph.edges.ravel(),
        slot_factor=np.repeat(np.arange(n_edges, dtype=np.int32), 2),
        slot_step=np.tile(np.array([n_columns, 1], dtype=np.int64), n_edges),
        table=model.edge_type,
        table_ptr=np.arange(n_types + 1, dtype=np.int64) * size,
        kind=np.full(n_types, DENSE, dtype=np.int8),
        counted=np.zeros(n_types, dtype=np.int32),
        fallback=np.full(n_types, -np.inf),
        listed=np.zeros(0, dtype=np.int64),
        values=model.tables.reshape(-1),
        weight=get_kernel_weights(model),
        forbidden=0.0,
    )
    return arrays, model.unary


def _build_factor_problem(model):
    joint = np.flatnonzero(model.arity >= 2)
    lengths = model.arity[joint]
    slot_ptr = offsets_from_lengths(lengths)
    slots = np.repeat(model.scope_ptr[joint] - slot_ptr[:-1], lengths) + np.arange(slot_ptr[-1])
    slot_node = model.scope[slots]
    node_slot = np.argsort(slot_node, kind="stable").astype(np.int32)
    n_in = np.bincount(slot_node, minlength=model.n_nodes)
    arrays = SearchProblem(
        n_states=model.n_states,
        node_ptr=offsets_from_lengths(n_in),
        node_slot=node_slot,
        slot_ptr=slot_ptr,
        slot_node=slot_node,
        slot_factor=np.repeat(np.arange(len(joint), dtype=np.int32), lengths),
        slot_step=_compute_strides(model.n_states[slot_node], slot_ptr),
        table=model.table_id[joint],
        table_ptr=model.table_ptr,
        kind=model.table_kind,
        counted=model.table_state,
        fallback=model.table_default.astype(np.float64),
        listed=np.zeros(0, dtype=np.int64) if model.table_cell is None else model.table_cell,
        values=model.log_table.astype(np.float64, copy=False),
        weight=np.zeros((0, 0)),
        forbidden=0.0,
    )
    return arrays, SmallFactors(model).node_scores(model, model.n_columns)


def _compute_strides(n_states, slot_ptr):
    """Return the strides of a factor's table in C order, for each node of each factor."""
    steps = np.ones(len(n_states), dtype=np.int64)
    longest = int(np.diff(slot_ptr).max(initial=0))
    last = slot_ptr[1:] - 1
    for back in range(1, longest):
        at = last - back
        at = at[at >= slot_ptr[:-1]]
        # Strides of count tables are not used, and may overflow.
        with np.errstate(over="ignore"):
            steps[at] = steps[at + 1] * n_states[at + 1]
    return steps


def _compute_forbidden_score(arrays: SearchProblem, unary: np.ndarray) -> float:
    """Return a score so low that labelings with it are worse than all labelings without it."""
    scores = [unary, arrays.values, arrays.fallback[arrays.kind != DENSE]]
    if all(part.min(initial=0.0) > -np.inf for part in scores):
        return 0.0
    largest = float(np.abs(arrays.weight).max(initial=0.0)) if arrays.weight.size else 1.0
    most = max(float(np.abs(part[part > -np.inf]).max(initial=0.0)) for part in scores) * max(largest, 1.0)
    # Scores of a node or factor differ by at most twice the largest absolute score.
    return -(1.0 + most * (1 + 2 * (len(unary) + len(arrays.table))))


class Sweeps(ABC):
    """Sweeps over the nodes of a model that change one label at a time if the score increases."""

    @abstractmethod
    def sweeps(self, labels: np.ndarray) -> Iterator[int]:
        """Update labels in place by repeated sweeps; yield the number of changes in each sweep."""

    def climb(self, labels: np.ndarray) -> np.ndarray:
        """Change labels in place until no single change increases the score."""
        for n_changed in islice(self.sweeps(labels), _tuning.MOST_CLIMBS):
            if not n_changed:
                break
        return labels


class Climber(Sweeps):
    """Sweeps over a pairwise model."""

    def __init__(self, model, schedule="sequential", run=run_alone):
        self.arguments, self.groups, self.run = build_local_arguments(model), group_updates(model.graph, schedule), run

    def sweeps(self, labels):
        pending = np.ones(len(labels), dtype=np.uint8)
        while True:
            checkpoint()
            yield sum(sweep(self.run, self.groups, icm_update, *self.arguments, labels, pending))


@dataclass(eq=False)
class RowsClimber(Sweeps):
    """Sweeps over a large lattice that list neighbours for a few rows at a time; results equal those of ``Climber``."""

    rows: Any  # RowModels

    def start(self):
        """Return the state with the highest unary score of each node, (N,) int32."""
        labels = np.empty(self.rows.graph.n_nodes, dtype=np.int32)
        for start, stop in split_row_ranges(self.rows.graph, _tuning.NODES_AT_ONCE):
            checkpoint()
            labels[self.rows.nodes(start, stop)] = label_nodes_independently(self.rows.between(start, stop))
        return labels

    def sweeps(self, labels):
        pending = np.ones(len(labels), dtype=np.uint8)
        while True:
            n_changed = 0
            for start, stop in split_row_ranges(self.rows.graph, _tuning.NODES_AT_ONCE):
                if pending[self.rows.nodes(start, stop)].any():
                    n_changed += self._sweep(labels, pending, start, stop)
            yield n_changed

    def _sweep(self, labels, pending, start, stop):
        """Update the nodes of some rows that may change, and return the number of changes."""
        checkpoint()
        model, low, high = self.rows.around(start, stop)
        width, around = self.rows.width, self.rows.nodes(low, high)
        nodes = np.arange((start - low) * width, (stop - low) * width, dtype=np.int32)
        state = labels[around], pending[around]
        return icm_update(nodes, 0, len(nodes), *build_local_arguments(model), *state, np.empty(model.n_columns))


class Descent(Sweeps):
    """Sweeps on a SearchProblem, in which forbidden states have a low but finite score."""

    def __init__(self, model):
        self.model = model
        self.arrays, self.unary = search_problem(model)
        self.workspace = SearchWorkspace(len(self.unary), len(self.arrays.table), self.unary.shape[1])

    def sweeps(self, labels):
        cells = self.arrays.cells(self.unary, labels)
        while True:
            checkpoint()
            yield annealing_sweep(self.arrays, self.unary, 0.0, 0, labels, cells, self.workspace)[2]


class FactorClimber(Descent):
    """Sweeps over a factor graph."""

    def climb(self, labels):
        before = labels.copy()
        super().climb(labels)
        # Rounding errors depend on the order of sums, so a change between equal scores may look like a gain.
        if not score(self.model, labels) > score(self.model, before):
            labels[:] = before
        return labels


def choose_climber(model):
    """Return the hill climbing sweeps for a model, which go row by row on large lattices to save memory."""
    if isinstance(model, FactorGraph):
        return FactorClimber(model)
    rows = stored_rows(model) if model.graph.n_nodes > 2 * _tuning.NODES_AT_ONCE else None
    return Climber(model) if rows is None else RowsClimber(rows)


def improve_by_climbing(model, labels):
    """Improve labels by hill climbing; return labels that no change of a single node improves."""
    # labels: (N,) int32, with a finite score; returns (N,) int32
    return choose_climber(model).climb(labels.copy())
