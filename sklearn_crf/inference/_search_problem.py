"""Models as the kernels of the search take them: one way of addressing the tables of edges and of factors."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.kernels.local.neighborhood_search import SearchWorkspace, cells_of_labels, change_costs
from sklearn_crf.models import DENSE, FactorGraph, PairwiseModel


class SearchProblem(NamedTuple):
    """The arrays that the kernels take. Slots are the ends of factors, factor by factor."""

    n_states: np.ndarray  # (N,) int32
    node_ptr: np.ndarray  # (N + 1,) int64
    node_slot: np.ndarray  # (n_slots,) int32
    slot_ptr: np.ndarray  # (F + 1,) int64
    slot_node: np.ndarray  # (n_slots,) int32
    slot_factor: np.ndarray  # (n_slots,) int32
    slot_step: np.ndarray  # (n_slots,) int64, cells from one state of the node to the next
    table: np.ndarray  # (F,) int32
    table_ptr: np.ndarray  # (T + 1,) int64
    kind: np.ndarray  # (T,) int8
    counted: np.ndarray  # (T,) int32
    fallback: np.ndarray  # (T,) float64
    listed: np.ndarray  # cells of sparse tables, int64
    values: np.ndarray  # in the precision of the unary scores
    weight: np.ndarray  # (F, R) or empty
    forbidden: float  # what -inf counts

    @property
    def work_of_sweep(self):
        """Table entries that a sweep over all nodes reads."""
        return max(1, int((self.n_states * (1 + np.diff(self.node_ptr))).sum()))

    def cells(self, unary, labels):
        """The cell of each factor's table that a labeling has, (F,) int64."""
        cells = np.empty(len(self.table), dtype=np.int64)
        cells_of_labels(self, unary, labels, cells)
        return cells

    def mean_cost_of_change(self, unary, labels, cells, workspace=None):
        """Mean size of what the best change of one label costs or gains, of the nodes that have another."""
        cost = np.empty(len(labels))
        workspace = workspace or SearchWorkspace(len(unary), len(cells), unary.shape[1])
        change_costs(self, unary, labels, cells, cost, workspace)
        cost = np.abs(cost[cost != 0])
        if self.forbidden:
            cost = cost[cost < -self.forbidden / 2]
        return float(cost.mean()) if len(cost) else 0.0


def search_problem(model: PairwiseModel | FactorGraph) -> tuple[SearchProblem, np.ndarray]:
    """The arrays of a model, and its unary scores, (N, K)."""
    arrays, unary = _of_factors(model) if isinstance(model, FactorGraph) else _of_edges(model)
    return arrays._replace(forbidden=_forbidden_score(arrays, unary)), unary


def _of_edges(model):
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
        weight=np.zeros((0, 0), dtype=model.dtype) if model.edge_weight is None else model.edge_weight,
        forbidden=0.0,
    )
    return arrays, model.unary


def _of_factors(model):
    joint = np.flatnonzero(model.arity >= 2)
    lengths = model.arity[joint]
    slot_ptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    slots = np.repeat(model.scope_ptr[joint] - slot_ptr[:-1], lengths) + np.arange(slot_ptr[-1])
    slot_node = model.scope[slots]
    node_slot = np.argsort(slot_node, kind="stable").astype(np.int32)
    n_in = np.bincount(slot_node, minlength=model.n_nodes)
    unary = np.where(np.arange(model.n_columns) < model.n_states[:, None], 0.0, -np.inf)
    single = np.flatnonzero(model.arity == 1)
    nodes = model.scope[model.scope_ptr[single]]
    for a in range(model.n_columns):
        has = model.n_states[nodes] > a
        np.add.at(unary[:, a], nodes[has], model.factor_scores(single[has], np.full((has.sum(), 1), a)))
    arrays = SearchProblem(
        n_states=model.n_states,
        node_ptr=np.concatenate(([0], np.cumsum(n_in))).astype(np.int64),
        node_slot=node_slot,
        slot_ptr=slot_ptr,
        slot_node=slot_node,
        slot_factor=np.repeat(np.arange(len(joint), dtype=np.int32), lengths),
        slot_step=_steps(model.n_states[slot_node], slot_ptr),
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
    return arrays, unary


def _steps(n_states, slot_ptr):
    """Products of the numbers of states behind each node of a factor, of its table in C order."""
    steps = np.ones(len(n_states), dtype=np.int64)
    longest = int(np.diff(slot_ptr).max(initial=0))
    last = slot_ptr[1:] - 1
    for back in range(1, longest):
        at = last - back
        at = at[at >= slot_ptr[:-1]]
        # Of count tables steps are not used, and may be too large for their type.
        with np.errstate(over="ignore"):
            steps[at] = steps[at + 1] * n_states[at + 1]
    return steps


def _forbidden_score(arrays, unary):
    """A score so low that no labeling with it is better than one without."""
    scores = [unary, arrays.values, arrays.fallback[arrays.kind != DENSE]]
    if all(part.min(initial=0.0) > -np.inf for part in scores):
        return 0.0
    largest = float(np.abs(arrays.weight).max(initial=0.0)) if arrays.weight.size else 1.0
    most = max(float(np.abs(part[part > -np.inf]).max(initial=0.0)) for part in scores) * max(largest, 1.0)
    # No score of a node or factor differs from another by more than twice the largest.
    return -(1.0 + most * (1 + 2 * (len(unary) + len(arrays.table))))
