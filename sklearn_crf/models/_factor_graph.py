"""Factor graphs, which score a labeling by a sum over factors of any arity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from sklearn_crf._numbers import as_integers, as_scores, n_joint_states
from sklearn_crf._own_methods import ChecksPickles
from sklearn_crf._threads import cached_property
from sklearn_crf.models import _tuning
from sklearn_crf.models._factor_tables import COUNT, DENSE, MAX_CELLS, SPARSE, build_factor_arrays


def normalise_fields(given):
    """Convert the fields of a factor graph to arrays of the types that kernels expect, after checking their lengths."""
    log_table = as_scores(given.log_table, "log_table")
    if log_table.ndim != 1:
        raise ValueError(f"log_table must be 1-D, got shape {log_table.shape}.")
    scope = _as_vector(given.scope, "scope", np.int32)
    table_ptr = _as_offsets(given.table_ptr, "table_ptr", log_table.size, "log_table")
    scope_ptr = _as_offsets(given.scope_ptr, "scope_ptr", scope.size, "scope")
    table_id = _as_vector(given.table_id, "table_id", np.int32)
    if len(table_id) != len(scope_ptr) - 1:
        raise ValueError(f"table_id must have one entry for each of {len(scope_ptr) - 1} factors, got {len(table_id)}.")
    n_tables = len(table_ptr) - 1
    default = np.full(n_tables, -np.inf) if given.table_default is None else given.table_default
    default = as_scores(default, "table_default", log_table.dtype)
    if default.shape != (n_tables,):
        raise ValueError(f"table_default must have shape ({n_tables},), got {default.shape}.")
    cell = None if given.table_cell is None else _as_vector(given.table_cell, "table_cell", np.int64)
    if cell is not None and len(cell) != log_table.size:
        raise ValueError(f"table_cell must have one entry for each of {log_table.size} scores, got {len(cell)}.")
    return {
        "n_states": _as_vector(given.n_states, "n_states", np.int32),
        "scope": scope,
        "scope_ptr": scope_ptr,
        "table_id": table_id,
        "log_table": np.ascontiguousarray(log_table),
        "table_ptr": table_ptr,
        "table_kind": _check_per_table(given.table_kind, "table_kind", n_tables, DENSE, np.int8),
        "table_cell": cell,
        "table_default": np.ascontiguousarray(default),
        "table_state": _check_per_table(given.table_state, "table_state", n_tables, 1, np.int32),
    }


def _as_vector(values, name, dtype):
    values = as_integers(values, name, dtype=dtype)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a 1-D array of integers, got shape {values.shape}.")
    return values


def _as_offsets(values, name, length, of):
    values = _as_vector(values, name, np.int64)
    if not len(values) or values[0] != 0 or values[-1] != length or np.any(np.diff(values) < 0):
        raise ValueError(f"{name} must ascend from 0 to {length}, the length of {of}.")
    return values


def _check_per_table(values, name, n_tables, default, dtype):
    if values is None:
        return np.full(n_tables, default, dtype=dtype)
    values = _as_vector(values, name, dtype)
    if len(values) != n_tables:
        raise ValueError(f"{name} must have one entry for each of {n_tables} tables, got {len(values)}.")
    return values


def check_fields(graph):
    """Raise ValueError unless the normalised fields of a factor graph are consistent with each other."""
    if graph.n_nodes and graph.n_states.min() < 1:
        raise ValueError(f"n_states must be at least 1, found {graph.n_states.min()}.")
    _check_range(graph.scope, graph.n_nodes, "scope")
    _check_range(graph.table_id, graph.n_tables, "table_id")
    if graph.n_tables and not 0 <= graph.table_kind.min() <= graph.table_kind.max() <= COUNT:
        kinds = graph.table_kind.min(), graph.table_kind.max()
        raise ValueError(f"table_kind must be {DENSE}, {SPARSE} or {COUNT}, found values {kinds[0]} to {kinds[1]}.")
    if graph.n_tables and graph.table_state.min() < 0:
        raise ValueError(f"table_state must not be negative, found {graph.table_state.min()}.")
    if graph.table_cell is None and np.any(graph.table_kind == SPARSE):
        raise ValueError("table_cell must be given if a table is sparse.")
    if graph.n_factors and not graph.n_nodes:
        raise ValueError("n_states is empty, but a factor graph with factors needs at least one node.")
    for factors, scope in graph.by_arity():
        _check_scopes(graph, factors, scope)
    _check_cells(graph)


def _check_range(values, stop, name):
    if values.size and (values.min() < 0 or values.max() >= stop):
        raise ValueError(
            f"{name} must be between 0 and {stop - 1}, found values from {values.min()} to {values.max()}."
        )


def _check_scopes(graph, factors, scope):
    """Raise ValueError if a scope contains a node twice, or if a table does not fit its nodes' numbers of states."""
    in_order = np.sort(scope, axis=1)
    repeated = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if repeated.any():
        row = int(np.argmax(repeated))
        raise ValueError(f"factor {factors[row]} has a node twice in its scope {scope[row].tolist()}.")
    sized = np.flatnonzero(graph.table_kind[graph.table_id[factors]] != COUNT)
    factors, shape = factors[sized], graph.n_states[scope[sized]]
    tables = graph.table_id[factors]
    n_cells = n_joint_states(shape, axis=1)
    if np.any(n_cells > MAX_CELLS):
        raise ValueError(f"factor {factors[np.argmax(n_cells)]} has more than 2**62 joint states.")
    length = np.diff(graph.table_ptr)[tables]
    wrong = (graph.table_kind[tables] == DENSE) & (length != n_cells)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"factor {factors[row]} needs one score for each joint state of nodes with {shape[row].tolist()} states,"
            f" but its table {tables[row]} has {length[row]} scores."
        )
    _, first, inverse = np.unique(tables, return_index=True, return_inverse=True)
    unlike = (shape != shape[first[inverse]]).any(axis=1)
    if unlike.any():
        row = int(np.argmax(unlike))
        raise ValueError(
            f"factors {factors[first[inverse[row]]]} and {factors[row]} share table {tables[row]}, but their nodes "
            f"have different numbers of states, {shape[first[inverse[row]]].tolist()} and {shape[row].tolist()}."
        )


def _check_cells(graph):
    """Raise ValueError if the cells of a sparse table are invalid, or factors that share a table differ in arity."""
    sized = np.flatnonzero(graph.table_kind[graph.table_id] != COUNT)
    tables, first, inverse = np.unique(graph.table_id[sized], return_index=True, return_inverse=True)
    unlike = graph.arity[sized] != graph.arity[sized[first]][inverse]
    if unlike.any():
        table = graph.table_id[sized[np.argmax(unlike)]]
        raise ValueError(f"table {table} is shared by factors of different arity, but only count tables can be.")
    sparse = graph.table_kind[tables] == SPARSE
    for table, f in zip(tables[sparse], sized[first][sparse], strict=True):
        cell = graph.table_cell[graph.table_ptr[table] : graph.table_ptr[table + 1]]
        n_cells = graph.n_states[graph.scope[graph.scope_ptr[f] : graph.scope_ptr[f + 1]]].prod(dtype=np.int64)
        if np.any(np.diff(cell) <= 0) or (cell.size and (cell[0] < 0 or cell[-1] >= n_cells)):
            raise ValueError(
                f"table_cell of table {table} must contain strictly increasing indices of cells below {n_cells}."
            )


@dataclass(frozen=True, eq=False)
class FactorGraph(ChecksPickles):
    r"""Factor graph, which scores a labeling by a sum over factors of any arity, on nodes with any number of states.

    .. math::
        \mathrm{score}(y) = \sum_f \theta_{t_f}(y_{s_{f,1}}, \dots, y_{s_{f,n}})

    where :math:`s_f` is the scope of factor f and :math:`t_f` its table. Larger is better: the distribution is
    :math:`p(y) = \exp(\mathrm{score}(y)) / Z`. Unary scores are factors of arity one; factors of arity zero are
    constants. :meth:`from_factors` builds a factor graph from a list of factors.

    A *dense* table lists the scores of all joint states; the state of the last node changes fastest. A *sparse* table
    lists the scores of some cells; all other cells have the default score. A *count* table lists one score for each
    number of nodes in the scope that are in a given state; larger counts have the default score.

    Parameters
    ----------
    n_states : array-like of shape (N,) of int
        Number of states of each node.
    scope : array-like of int
        Nodes of all factors, one factor after the other.
    scope_ptr : array-like of shape (F + 1,) of int
        The nodes of factor f are ``scope[scope_ptr[f]:scope_ptr[f + 1]]``.
    table_id : array-like of shape (F,) of int
        Table of each factor. Factors can share a dense or sparse table only if their nodes have the same numbers of
        states.
    log_table : array-like of shape (n_cells,)
        Scores of all tables, one table after the other, float32 or float64. -inf forbids a joint state.
    table_ptr : array-like of shape (T + 1,) of int
        The scores of table t are ``log_table[table_ptr[t]:table_ptr[t + 1]]``.
    table_kind : array-like of shape (T,) of int, optional
        ``DENSE`` (0), ``SPARSE`` (1) or ``COUNT`` (2) for each table; None means that all tables are dense.
    table_cell : array-like of shape (n_cells,) of int, optional
        For sparse tables, the number of each listed cell (in C order of the joint states), ascending within each table.
    table_default : array-like of shape (T,), optional
        Score of the cells or counts that a sparse or count table does not list; None means -inf.
    table_state : array-like of shape (T,) of int, optional
        The state that a count table counts; None means state 1.

    Raises
    ------
    ValueError
        If shapes, numbers of states or pointers are inconsistent, or a score is NaN, +inf, or in magnitude above 1e100
        (float32: 1e18).

    Examples
    --------
    >>> from sklearn_crf.models import FactorGraph, exactly_one, score
    >>> graph = FactorGraph.from_factors(
    ...     [2, 2, 3], [((0,), [0.0, 1.0]), ((0, 1, 2), exactly_one())]
    ... )
    >>> graph.n_nodes, graph.n_factors
    (3, 2)
    >>> score(graph, [1, 0, 0]), score(graph, [1, 1, 0])
    (1.0, -inf)
    """

    n_states: np.ndarray
    scope: np.ndarray
    scope_ptr: np.ndarray
    table_id: np.ndarray
    log_table: np.ndarray
    table_ptr: np.ndarray
    table_kind: np.ndarray = None  # type: ignore[assignment]  # the argument may be None, the attribute never is
    table_cell: np.ndarray | None = None
    table_default: np.ndarray = None  # type: ignore[assignment]
    table_state: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self):
        for name, value in normalise_fields(self).items():
            object.__setattr__(self, name, value)
        check_fields(self)

    @classmethod
    def from_factors(cls, n_states: ArrayLike, factors: Iterable[tuple[ArrayLike, Any]]) -> FactorGraph:
        """Build a factor graph from a list of factors.

        Parameters
        ----------
        n_states : array-like of shape (N,) of int
            Number of states of each node.
        factors : iterable of (scope, table)
            ``scope`` is the sequence of the factor's nodes, ``table`` an array with one axis per node, or a
            :class:`SparseTable`, or a :class:`CountTable`. Factors with the same table object share one table.

        Returns
        -------
        FactorGraph
            Its scores are float32 if all tables are, otherwise float64.
        """
        return cls(**build_factor_arrays(n_states, factors))

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.n_states)

    @property
    def n_factors(self) -> int:
        """Number of factors F."""
        return len(self.table_id)

    @property
    def n_tables(self) -> int:
        """Number of tables T."""
        return len(self.table_kind)

    @property
    def n_columns(self) -> int:
        """Largest number of states of a node, K."""
        return int(self.n_states.max(initial=1))

    @property
    def dtype(self) -> np.dtype:
        """Precision of the scores, float32 or float64."""
        return self.log_table.dtype

    @property
    def arity(self) -> np.ndarray:
        """Number of nodes of each factor, (F,) int64."""
        return np.diff(self.scope_ptr)

    @cached_property
    def component(self) -> np.ndarray:
        """Index of each node's connected component, (N,) int32. Components are ordered by their first nodes."""
        owner = np.repeat(np.arange(self.n_factors), self.arity) + self.n_nodes
        size = self.n_nodes + self.n_factors
        joined = sp.coo_matrix((np.ones(len(owner), dtype=np.int8), (self.scope, owner)), shape=(size, size))
        label = connected_components(joined, directed=False)[1][: self.n_nodes]
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int32)

    @property
    def n_components(self) -> int:
        """Number of connected components."""
        return int(self.component.max(initial=-1)) + 1

    def by_arity(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the factors in groups of equal arity, so that each group fits in arrays.

        Yields
        ------
        factors : ndarray of shape (n_group,)
            Indices of factors of one arity, ascending. Groups ascend by arity.
        scope : ndarray of shape (n_group, arity)
            Nodes of each of these factors.
        """
        arity = self.arity
        for n in np.unique(arity):
            factors = np.flatnonzero(arity == n)
            yield factors, self.scope[self.scope_ptr[factors][:, None] + np.arange(n)]

    def cells(self, factors: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return the index of the stored score of each factor, given the states of its nodes.

        Parameters
        ----------
        factors : array of shape (G,) of int
            Factors of equal arity; a factor may appear several times.
        states : array of shape (G, arity) of int
            States of their nodes.

        Returns
        -------
        ndarray of shape (G,), int64
            Index into ``log_table``, or -1 for the default score of the table.
        """
        tables = self.table_id[factors]
        kind = self.table_kind[tables]
        cells = np.empty(len(tables), dtype=np.int64)
        listed = kind == COUNT
        if listed.any():
            count = (states[listed] == self.table_state[tables[listed], None]).sum(axis=1)
            start, stop = self.table_ptr[tables[listed]], self.table_ptr[tables[listed] + 1]
            cells[listed] = np.where(start + count < stop, start + count, -1)
        if not listed.all():
            rows = np.flatnonzero(~listed)
            scope = self.scope[self.scope_ptr[factors[rows]][:, None] + np.arange(states.shape[1])]
            cells[rows] = _compute_cell_numbers(states[rows], self.n_states[scope])
            dense = rows[kind[rows] == DENSE]
            cells[dense] += self.table_ptr[tables[dense]]
            for table in np.unique(tables[kind == SPARSE]):
                same = np.flatnonzero(tables == table)
                cells[same] = self._look_up(table, cells[same])
        return cells

    def _look_up(self, table, numbers):
        start, stop = self.table_ptr[table : table + 2]
        listed = self.table_cell[start:stop]  # type: ignore[index]  # None if no table is sparse
        place = np.searchsorted(listed, numbers)
        found = place < len(listed)
        found[found] = listed[place[found]] == numbers[found]
        return np.where(found, start + place, -1)

    def factor_scores(self, factors: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return the score of each factor, given the states of its nodes.

        Parameters
        ----------
        factors : array of shape (G,) of int
            Factors of equal arity; a factor may appear several times.
        states : array of shape (G, arity) of int
            States of their nodes.

        Returns
        -------
        ndarray of shape (G,), float64
        """
        return read_cells(self, factors, self.cells(factors, states))

    def dense_table(self, factor: int) -> np.ndarray:
        """Return the scores of all joint states of a factor as an array, for a table of any kind.

        Parameters
        ----------
        factor : int

        Returns
        -------
        ndarray of shape (n_states of its nodes)
            In the precision of the scores.

        Raises
        ------
        ValueError
            If the array would have more than 2**26 entries.
        """
        scope = self.scope[self.scope_ptr[factor] : self.scope_ptr[factor + 1]]
        shape = tuple(self.n_states[scope].tolist())
        table = self.table_id[factor]
        values = self.log_table[self.table_ptr[table] : self.table_ptr[table + 1]]
        if self.table_kind[table] == DENSE:
            return values.reshape(shape)
        n_cells = n_joint_states(shape)
        if n_cells > _tuning.MAX_DENSE_CELLS:
            raise ValueError(f"factor {factor} has {n_cells:.3g} joint states, which is too many for a dense array.")
        dense = np.full(shape, self.table_default[table])
        if self.table_kind[table] == SPARSE:
            cells = slice(*self.table_ptr[table : table + 2])
            dense.ravel()[self.table_cell[cells]] = values  # type: ignore[index]  # None if no table is sparse
            return dense
        counts = np.zeros(shape, dtype=np.int64)
        for axis, length in enumerate(shape):
            counted = np.arange(length) == self.table_state[table]
            counts += counted.reshape((1,) * axis + (length,) + (1,) * (len(shape) - axis - 1))
        stored = counts < len(values)
        dense[stored] = values[counts[stored]]
        return dense


def replace_scores(model: FactorGraph, log_table: np.ndarray, table_default: np.ndarray) -> FactorGraph:
    """Return a factor graph with other scores of the same shapes, without checks."""
    graph = FactorGraph.__new__(FactorGraph)
    graph.__dict__.update(model.__dict__, log_table=log_table, table_default=table_default)
    return graph


def build_trusted_factor_graph(
    n_states: np.ndarray,
    scope: np.ndarray,
    scope_ptr: np.ndarray,
    table_id: np.ndarray,
    log_table: np.ndarray,
    table_ptr: np.ndarray,
    **of_tables: Any,
) -> FactorGraph:
    """Build a factor graph, without checks, from arrays of the right types that this package made.

    Tables are dense if the fields ``table_kind`` to ``table_state`` are not given.
    """
    graph, n_tables = FactorGraph.__new__(FactorGraph), len(table_ptr) - 1
    dense = {
        "table_kind": np.full(n_tables, DENSE, dtype=np.int8),
        "table_cell": None,
        "table_default": np.full(n_tables, -np.inf, dtype=log_table.dtype),
        "table_state": np.ones(n_tables, dtype=np.int32),
    }
    graph.__dict__.update(
        n_states=n_states,
        scope=scope,
        scope_ptr=scope_ptr,
        table_id=table_id,
        log_table=log_table,
        table_ptr=table_ptr,
        **dense | of_tables,
    )
    return graph


def _compute_cell_numbers(states: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return the C-order cell number of each row of ``states``, in a table whose shape is that row of ``shape``."""
    numbers = np.zeros(len(states), dtype=np.int64)
    for axis in range(states.shape[1]):
        numbers = numbers * shape[:, axis] + states[:, axis]
    return numbers


def read_cells(model: FactorGraph, factors: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the scores of factors at the given cells; a negative cell number means the default score."""
    # factors, cells: (G,) of int; returns (G,) float64
    scores = model.table_default[model.table_id[factors]].astype(np.float64)
    scores[cells >= 0] = model.log_table[cells[cells >= 0]]
    return scores
