"""Validation of the fields of a factor graph."""

import numpy as np

from sklearn_crf.factor_graphs._tables import COUNT, DENSE, MAX_CELLS, SPARSE
from sklearn_crf.models import as_scores


def normalised_fields(given):
    """The fields in their own types, each of the right length."""
    log_table = as_scores(given.log_table, "log_table")
    if log_table.ndim != 1:
        raise ValueError(f"log_table must be 1-D, got shape {log_table.shape}.")
    scope = _as_integers(given.scope, "scope", np.int32)
    table_ptr = _as_offsets(given.table_ptr, "table_ptr", log_table.size, "log_table")
    scope_ptr = _as_offsets(given.scope_ptr, "scope_ptr", scope.size, "scope")
    table_id = _as_integers(given.table_id, "table_id", np.int32)
    if len(table_id) != len(scope_ptr) - 1:
        raise ValueError(f"table_id must have one entry for each of {len(scope_ptr) - 1} factors, got {len(table_id)}.")
    n_tables = len(table_ptr) - 1
    default = np.full(n_tables, -np.inf) if given.table_default is None else given.table_default
    default = as_scores(default, "table_default", log_table.dtype)
    if default.shape != (n_tables,):
        raise ValueError(f"table_default must have shape ({n_tables},), got {default.shape}.")
    cell = None if given.table_cell is None else _as_integers(given.table_cell, "table_cell", np.int64)
    if cell is not None and len(cell) != log_table.size:
        raise ValueError(f"table_cell must have one entry for each of {log_table.size} scores, got {len(cell)}.")
    return {
        "n_states": _as_integers(given.n_states, "n_states", np.int32),
        "scope": scope,
        "scope_ptr": scope_ptr,
        "table_id": table_id,
        "log_table": np.ascontiguousarray(log_table),
        "table_ptr": table_ptr,
        "table_kind": _per_table(given.table_kind, "table_kind", n_tables, DENSE, np.int8),
        "table_cell": cell,
        "table_default": np.ascontiguousarray(default),
        "table_state": _per_table(given.table_state, "table_state", n_tables, 1, np.int32),
    }


def _as_integers(values, name, dtype):
    values = np.asarray(values)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ValueError(f"{name} must be a 1-D array of integers, got {values.dtype} of shape {values.shape}.")
    limits = np.iinfo(dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise ValueError(f"{name} must fit into {np.dtype(dtype)}, found {values.min()} to {values.max()}.")
    return np.ascontiguousarray(values, dtype=dtype)


def _as_offsets(values, name, length, of):
    values = _as_integers(values, name, np.int64)
    if not len(values) or values[0] != 0 or values[-1] != length or np.any(np.diff(values) < 0):
        raise ValueError(f"{name} must ascend from 0 to {length}, the length of {of}.")
    return values


def _per_table(values, name, n_tables, default, dtype):
    if values is None:
        return np.full(n_tables, default, dtype=dtype)
    values = _as_integers(values, name, dtype)
    if len(values) != n_tables:
        raise ValueError(f"{name} must have one entry for each of {n_tables} tables, got {len(values)}.")
    return values


def check_fields(graph):
    """Raise ValueError unless the normalised fields of a factor graph fit together."""
    if graph.n_nodes and graph.n_states.min() < 1:
        raise ValueError(f"n_states must be at least 1, found {graph.n_states.min()}.")
    _check_range(graph.scope, graph.n_nodes, "scope")
    _check_range(graph.table_id, graph.n_tables, "table_id")
    if graph.n_tables and not 0 <= graph.table_kind.min() <= graph.table_kind.max() <= COUNT:
        raise ValueError(f"table_kind must be {DENSE}, {SPARSE} or {COUNT}.")
    if graph.n_tables and graph.table_state.min() < 0:
        raise ValueError(f"table_state must not be negative, found {graph.table_state.min()}.")
    if graph.table_cell is None and np.any(graph.table_kind == SPARSE):
        raise ValueError("table_cell must be given if a table is sparse.")
    if graph.n_factors and not graph.n_nodes:
        raise ValueError("n_states is empty, but there are factors: a factor graph with factors needs a node.")
    for factors, scope in graph.by_arity():
        _check_scopes(graph, factors, scope)
    _check_cells(graph)


def _check_range(values, stop, name):
    if values.size and (values.min() < 0 or values.max() >= stop):
        raise ValueError(f"{name} must lie in 0 to {stop - 1}, found {values.min()} to {values.max()}.")


def _check_scopes(graph, factors, scope):
    """No node twice in a factor; tables as large as the states of their nodes ask."""
    in_order = np.sort(scope, axis=1)
    repeated = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if repeated.any():
        row = int(np.argmax(repeated))
        raise ValueError(f"factor {factors[row]} has a node twice in its scope {scope[row].tolist()}.")
    sized = np.flatnonzero(graph.table_kind[graph.table_id[factors]] != COUNT)
    factors, shape = factors[sized], graph.n_states[scope[sized]]
    tables = graph.table_id[factors]
    n_cells = shape.prod(axis=1, dtype=np.float64)
    if np.any(n_cells > MAX_CELLS):
        raise ValueError(f"factor {factors[np.argmax(n_cells)]} has more than 2**62 joint states.")
    length = np.diff(graph.table_ptr)[tables]
    wrong = (graph.table_kind[tables] == DENSE) & (length != n_cells)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"factor {factors[row]} has nodes with {shape[row].tolist()} states, but its table {tables[row]} "
            f"has {length[row]} scores."
        )
    _, first, inverse = np.unique(tables, return_index=True, return_inverse=True)
    unlike = (shape != shape[first[inverse]]).any(axis=1)
    if unlike.any():
        row = int(np.argmax(unlike))
        raise ValueError(
            f"factors {factors[first[inverse[row]]]} and {factors[row]} share table {tables[row]}, but their nodes "
            f"have {shape[first[inverse[row]]].tolist()} and {shape[row].tolist()} states."
        )


def _check_cells(graph):
    """Listed cells ascend in each sparse table and lie inside it; one arity for each shared table."""
    sized = np.flatnonzero(graph.table_kind[graph.table_id] != COUNT)
    tables, first, inverse = np.unique(graph.table_id[sized], return_index=True, return_inverse=True)
    unlike = graph.arity[sized] != graph.arity[sized[first]][inverse]
    if unlike.any():
        table = graph.table_id[sized[np.argmax(unlike)]]
        raise ValueError(f"table {table} is shared by factors of different arity, which only a count table can be.")
    sparse = graph.table_kind[tables] == SPARSE
    for table, f in zip(tables[sparse], sized[first][sparse], strict=True):
        cell = graph.table_cell[graph.table_ptr[table] : graph.table_ptr[table + 1]]
        n_cells = graph.n_states[graph.scope[graph.scope_ptr[f] : graph.scope_ptr[f + 1]]].prod(dtype=np.int64)
        if np.any(np.diff(cell) <= 0) or (cell.size and (cell[0] < 0 or cell[-1] >= n_cells)):
            raise ValueError(
                f"table_cell of table {table} must list each cell at most once, ascending, below {n_cells}."
            )
