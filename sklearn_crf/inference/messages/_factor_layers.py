"""Factor graphs prepared for messages: scopes in the order of nodes, tables as paths through layers."""

import copy
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf.models import (
    COUNT,
    DENSE,
    SPARSE,
    FactorGraph,
    FactorStatistics,
    SmallFactors,
    decode_cells,
    factor_graph_of,
)

# Kind of table in the kernels: a sparse table whose sums are sums of probabilities.
_SPARSE_SUMS = 3

# Minimum weight of the leaves of a table whose largest weight is 1; far above the smallest floating-point number.
_LEAST_WEIGHT = 1e-100


class FactorLayers(NamedTuple):
    """Arrays, for the kernels of factor messages, of all factors with at least two nodes."""

    maximum: bool
    n_columns: int  # K, but at least 2, because count tables need a column for each of two symbols
    n_states: np.ndarray  # (N,) int32
    node_ptr: np.ndarray  # (N + 1,) int64
    node_slots: np.ndarray  # (n_slots,) int32
    slot_ptr: np.ndarray  # (F + 1,) int64
    slot_node: np.ndarray  # (n_slots,) int32, ascending within a factor
    slot_factor: np.ndarray  # (n_slots,) int32
    table: np.ndarray  # (F,) int32
    scale: np.ndarray  # (F,) float64
    position_ptr: np.ndarray  # (n_slots + 1,) int64
    kind: np.ndarray  # (T,) int8
    counted: np.ndarray  # (T,) int32
    leaf_ptr: np.ndarray  # (T + 1,) int64
    leaf: np.ndarray  # (n_leaves,) float64
    leaf_weight: np.ndarray  # (n_leaves,) float64, or empty
    leaf_shift: np.ndarray  # (T,) float64, or empty
    child_ptr: np.ndarray  # (n_slots,) int64
    child: np.ndarray  # int32

    @property
    def n_factors(self) -> int:
        """Number of factors F."""
        return len(self.table)

    @property
    def arity(self) -> np.ndarray:
        """Number of nodes of each factor."""
        return np.diff(self.slot_ptr)

    def scale_for_sums(self, scale):
        """Return layers with scores multiplied by factors' scales, and exponentiated for tables with a single scale."""
        least, most = np.full((2, len(self.kind)), [[np.inf], [-np.inf]])
        np.minimum.at(least, self.table, scale)
        np.maximum.at(most, self.table, scale)
        length = np.diff(self.leaf_ptr)
        with np.errstate(invalid="ignore"):
            scores = self.leaf * np.repeat(np.where(least == most, least, np.nan), length)
            # Using reduceat is safe, because every table has a leaf.
            shift = np.maximum.reduceat(scores, self.leaf_ptr[:-1]) if len(length) else np.zeros(0)
            weight = np.exp(scores - np.repeat(shift, length))
        shift[np.isneginf(shift)] = np.nan
        least = np.minimum.reduceat(weight, self.leaf_ptr[:-1]) if len(self.kind) else np.zeros(0)
        # The comparison is False for NaN, which marks tables whose factors differ in scale.
        kind = np.where((self.kind == SPARSE) & (least > _LEAST_WEIGHT), _SPARSE_SUMS, self.kind).astype(np.int8)
        return self._replace(maximum=False, scale=scale, kind=kind, leaf_weight=weight, leaf_shift=shift)


class LayeredModel:
    """A factor graph in layers, with its nodes in an order that suits messages.

    The order of nodes is the original order, component by component. On forests, it leads from the roots to the leaves.
    Then two sweeps are exact, and labels can be determined one by one.
    """

    # layers: with ``maximum`` False and scales of one; order: (N,), node of the model at each position
    # constant: sum of the scores of factors without nodes; graph: graph of a pairwise model
    # components: (n_components, 2) int32, first position of each component, and the position after its last position
    # factors: (F,), indices of the factors with at least two nodes, in the order of ``layers``: by arity
    # node_scores: (N, K) float64, scores of single-node factors by position, -inf beyond a node's number of states

    def __init__(self, model):
        self.graph = None if isinstance(model, FactorGraph) else model.graph
        self.source = model
        self.model = model = factor_graph_of(model)
        arity = model.arity
        by_arity = np.argsort(arity, kind="stable")
        self.factors = by_arity[arity[by_arity] >= 2]
        self.is_forest = is_forest_of_factors(model) if self.graph is None else self.graph.is_forest
        component = model.component if self.graph is None else self.graph.component
        if not self.is_forest:
            self.order = np.argsort(component, kind="stable")
        elif self.graph is None:
            self.order = _order_from_roots(model, np.sort(self.factors), component)
        else:
            self.order = self.graph.forest.order
        numbers = component[self.order]
        ends = np.flatnonzero(np.append(numbers[1:] != numbers[:-1], len(numbers) > 0)) + 1
        self.components = np.stack((np.append(0, ends)[:-1], ends), axis=1).astype(np.int32)
        place = np.argsort(self.order)
        self._small = SmallFactors(model)
        self.constant = self._small.constant(model)
        self.layers, self._leaf_cell = _build_layers(model, place)
        self.node_scores = self._small.node_scores(model, self.layers.n_columns)[self.order]

    def rescored(self, model, node_scores):
        """Return a copy for a model that differs only in its scores; ``node_scores`` replace all scores of nodes."""
        # node_scores: (N, K), -inf beyond the number of states of a node
        other = copy.copy(self)
        other.source = other.model = model
        other.layers = self.layers._replace(leaf=_read_leaves(model, self._leaf_cell))
        other.node_scores = np.full((model.n_nodes, self.layers.n_columns), -np.inf)
        other.node_scores[:, : model.n_columns] = node_scores[self.order]
        return other

    def reorder_by_node(self, values: np.ndarray) -> np.ndarray:
        """Convert rows by position to rows by node of the model, without padded states."""
        result = np.empty_like(values)
        result[self.order] = values
        return np.ascontiguousarray(result[:, : self.model.n_columns]) if values.ndim == 2 else result

    def terms(self, values: np.ndarray) -> np.ndarray:
        """Convert terms by position to the term of each node in ``log_z``; constants are added to the first node."""
        terms = self.reorder_by_node(values)
        terms[:1] += self.constant
        return terms

    def statistics(self, unary: np.ndarray, leaves: np.ndarray) -> FactorStatistics:
        """Return the derivative with respect to the scores of the model."""
        # unary: (N, K), marginals of the model's nodes
        # leaves: (n_leaves,), summed beliefs of the joint state at the end of each path through ``layers``
        model = self.model
        log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)
        stored = self._leaf_cell >= 0
        np.add.at(log_table, self._leaf_cell[stored], leaves[stored])
        np.add.at(table_default, -1 - self._leaf_cell[~stored], leaves[~stored])
        self._small.add_statistics(model, unary, log_table, table_default)
        return FactorStatistics(log_table, table_default)


def is_forest_of_factors(model):
    """Return whether the bipartite graph of nodes and factors has no cycles, by counting its edges."""
    arity = model.arity[model.arity >= 2]
    return int(arity.sum()) == model.n_nodes + len(arity) - model.n_components


def _order_from_roots(model, factors, component):
    """Return nodes in an order from the roots to the leaves, component by component."""
    n_nodes, arity = model.n_nodes, model.arity[factors]
    owner = np.repeat(np.arange(len(factors)), arity) + n_nodes
    ends = model.scope[_concatenate_ranges(model.scope_ptr[factors], arity)]
    # One search from an added node, which is joined to the first node of each component, finds the order of all.
    start = n_nodes + len(factors)
    roots = np.unique(component, return_index=True)[1]
    rows, columns = np.append(ends, np.full(len(roots), start)), np.append(owner, roots)
    joined = sp.csr_matrix((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(start + 1, start + 1))
    found = breadth_first_order(joined, start, directed=False, return_predecessors=False)
    found = found[found < n_nodes]
    return found[np.argsort(component[found], kind="stable")].astype(np.int64)


def _concatenate_ranges(starts, lengths):
    """Return the concatenation of ``arange(start, start + length)`` for all pairs."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


class _Tables:
    """Collection of tables in layers, which contains each combination of a table and an order of its nodes once."""

    def __init__(self, model):
        self.model = model
        self.kind, self.counted, self.leaf_cell, self.child, self.sizes, self.child_start = [], [], [], [], [], []
        self.n_children = 0

    def add(self, table, shape, axes):
        """Add the layers of a table over nodes with this shape, read in the order ``axes``, and return its index."""
        model, kind = self.model, self.model.table_kind[table]
        start, stop = model.table_ptr[table : table + 2]
        self.kind.append(kind)
        self.counted.append(model.table_state[table])
        sizes, starts = None, np.zeros(len(shape), dtype=np.int64)
        if kind == DENSE:
            cell = np.arange(start, stop).reshape(shape).transpose(axes).ravel()
        elif kind == COUNT:
            cell = np.append(np.arange(start, stop), -1 - table)
        else:
            states = decode_cells(model.table_cell[start:stop], shape)[:, axes]
            ranked = np.lexsort(states.T[::-1])
            sizes, children = _build_prefix_tree(states[ranked])
            starts = self.n_children + offsets_from_lengths([len(child) for child in children])[:-1]
            self.child += children
            self.n_children += sum(len(child) for child in children)
            cell = np.append(start + ranked, -1 - table)
        self.leaf_cell.append(cell)
        self.sizes.append(sizes)
        self.child_start.append(starts)
        return len(self.kind) - 1


def _build_prefix_tree(states):
    """Build a prefix tree of sorted joint states, layer by layer, with an additional position for unlisted prefixes."""
    # returns sizes: for each node, the number of positions (prefixes) in the layer before it
    # returns children: for each node, start and end of each position's children, state and parent of each child
    n_listed, arity = states.shape
    first = np.ones(n_listed, dtype=bool)
    number, count, sizes, children = np.zeros(n_listed, dtype=np.int64), 1, [], []
    first[1:] = False
    for d in range(arity):
        differs = np.ones(n_listed, dtype=bool)
        differs[1:] = states[1:, d] != states[:-1, d]
        first = first | differs
        after = np.cumsum(first) - 1
        n_after = int(after[-1]) + 1 if n_listed else 0
        sizes.append(count)
        begins = np.flatnonzero(first)
        starts = np.searchsorted(number[begins], np.arange(count + 1))
        children.append(np.concatenate((starts, states[begins, d], number[begins])).astype(np.int32))
        number, count = after, n_after + 1
    return sizes, children


def _build_layers(model: FactorGraph, place: np.ndarray) -> tuple:
    """Return the layers of all factors with several nodes, and the table cell of each leaf.

    A negative cell -1 - t stands for the default value of table t.
    """
    tables = _Tables(model)
    table_of, arities, slot_node, n_before, child_ptr = [], [], [], [], []
    for factors, scope in model.by_arity():
        arity = scope.shape[1]
        if arity < 2:
            continue
        axes = np.argsort(place[scope], axis=1)
        scope = np.take_along_axis(scope, axes, axis=1)
        ids = model.table_id[factors]
        axes[model.table_kind[ids] == COUNT] = np.arange(arity)
        _, first, inverse = np.unique(np.column_stack((ids, axes)), axis=0, return_index=True, return_inverse=True)
        shape = model.n_states[scope].astype(np.int64)
        unsorted = np.argsort(axes[first], axis=1)
        added = [
            tables.add(ids[f], tuple(shape[f][back].tolist()), axes[f]) for f, back in zip(first, unsorted, strict=True)
        ]
        number = np.array(added)[inverse.ravel()]
        table_of.append(number)
        arities.append(np.full(len(factors), arity))
        slot_node.append(place[scope].ravel())
        n_before.append(_count_positions(model, tables, ids, number, shape).ravel())
        child_ptr.append(np.stack([tables.child_start[t] for t in added])[inverse.ravel()].ravel())
    arity = _concatenate(arities, np.int64)
    slot_node = _concatenate(slot_node, np.int32)
    leaf_cell = _concatenate(tables.leaf_cell, np.int64)
    n_nodes = model.n_nodes
    n_states = np.empty(n_nodes, dtype=np.int32)
    n_states[place] = model.n_states
    layers = FactorLayers(
        maximum=False,
        n_columns=max(model.n_columns, 2),
        n_states=n_states,
        node_ptr=offsets_from_lengths(np.bincount(slot_node, minlength=n_nodes)),
        node_slots=np.argsort(slot_node, kind="stable").astype(np.int32),
        slot_ptr=offsets_from_lengths(arity),
        slot_node=slot_node,
        slot_factor=np.repeat(np.arange(len(arity)), arity).astype(np.int32),
        table=_concatenate(table_of, np.int32),
        scale=np.ones(len(arity)),
        position_ptr=offsets_from_lengths(_concatenate(n_before, np.int64)),
        kind=np.array(tables.kind, dtype=np.int8),
        counted=np.array(tables.counted, dtype=np.int32),
        leaf_ptr=offsets_from_lengths([len(cell) for cell in tables.leaf_cell]),
        leaf=_read_leaves(model, leaf_cell),
        leaf_weight=np.zeros(0),
        leaf_shift=np.zeros(0),
        child_ptr=_concatenate(child_ptr, np.int64),
        child=_concatenate(tables.child, np.int32),
    )
    return layers, leaf_cell


def _read_leaves(model, leaf_cell):
    """Return the scores of leaves, given the table cells of :func:`_build_layers`."""
    scores = np.empty(len(leaf_cell))
    stored = leaf_cell >= 0
    scores[stored] = model.log_table[leaf_cell[stored]]
    scores[~stored] = model.table_default[-1 - leaf_cell[~stored]]
    return scores


def _count_positions(model, tables, ids, number, shape):
    """Return the number of positions before each node of factors of one arity, plus one for sparse tables."""
    n_before = np.ones(shape.shape, dtype=np.int64)
    kind = model.table_kind[ids]
    dense, count = kind == DENSE, kind == COUNT
    n_before[dense, 1:] = np.cumprod(shape[dense, :-1], axis=1)
    n_listed = np.diff(model.table_ptr)[ids[count]]
    n_before[count] = np.minimum(np.arange(shape.shape[1]), n_listed[:, None]) + 1
    for f in np.flatnonzero(~dense & ~count):
        n_before[f] = np.array(tables.sizes[number[f]]) + 1
    return n_before


def _concatenate(arrays, dtype):
    return np.ascontiguousarray(np.concatenate(arrays) if arrays else [], dtype=dtype)
