"""Dense, sparse and count tables of factors, and the flat arrays that store a list of them."""

from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import as_array, as_integer, as_integers, as_reals, n_joint_states, offsets_from_lengths

DENSE, SPARSE, COUNT = 0, 1, 2

# Cell numbers, and the sums that compute them, are int64.
MAX_CELLS = 2.0**62


class SparseTable(NamedTuple):
    """Table that lists the scores of a few joint states; all other joint states have one default score.

    Attributes
    ----------
    states : array-like of shape (n_listed, arity) of int
        The listed joint states, in the order of the factor's nodes.
    values : array-like of shape (n_listed,)
        Their scores.
    default : float
        Score of every other joint state; -inf forbids them.

    Examples
    --------
    >>> from sklearn_crf.models import FactorGraph, SparseTable, score
    >>> table = SparseTable([[0, 0, 0], [1, 1, 1]], [2.0, 3.0], default=0.0)
    >>> graph = FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), table)])
    >>> score(graph, [1, 1, 1]), score(graph, [1, 0, 1])
    (3.0, 0.0)
    """

    states: np.ndarray
    values: np.ndarray
    default: float = -np.inf


class CountTable(NamedTuple):
    """Table that depends only on the number of nodes of the factor that are in a given state.

    The memory of the table depends only on the number of listed counts, not on the number of nodes. Factors of
    different arity can share a count table. For hard constraints see :func:`at_most_one`, :func:`exactly_one` and
    :func:`at_least_one`.

    Attributes
    ----------
    values : array-like of shape (n_listed,)
        Score of the counts 0, 1, ..., n_listed - 1.
    default : float
        Score of every larger count.
    state : int
        The state that is counted.

    Examples
    --------
    >>> from sklearn_crf.models import CountTable, FactorGraph, score
    >>> table = CountTable([0.0, 1.0, 3.0], default=5.0)  # by how many nodes are in state 1
    >>> score(FactorGraph.from_factors([2] * 4, [((0, 1, 2, 3), table)]), [1, 1, 0, 0])
    3.0
    """

    values: np.ndarray
    default: float = -np.inf
    state: int = 1


def at_most_one(state: int = 1) -> CountTable:
    """Return a count table that allows at most one node of a factor to be in the given state.

    Parameters
    ----------
    state : int, default=1

    Returns
    -------
    CountTable

    Examples
    --------
    >>> from sklearn_crf.models import FactorGraph, at_most_one, score
    >>> graph = FactorGraph.from_factors([2, 2], [((0, 1), at_most_one())])
    >>> score(graph, [1, 0]), score(graph, [1, 1])
    (0.0, -inf)
    """
    return CountTable(np.zeros(2), -np.inf, state)


def exactly_one(state: int = 1) -> CountTable:
    """Return a count table that requires exactly one node of a factor to be in the given state.

    Parameters
    ----------
    state : int, default=1

    Returns
    -------
    CountTable

    Examples
    --------
    >>> from sklearn_crf.models import FactorGraph, exactly_one, score
    >>> graph = FactorGraph.from_factors([2, 2], [((0, 1), exactly_one())])
    >>> score(graph, [1, 0]), score(graph, [1, 1])
    (0.0, -inf)
    """
    return CountTable(np.array([-np.inf, 0.0]), -np.inf, state)


def at_least_one(state: int = 1) -> CountTable:
    """Return a count table that requires at least one node of a factor to be in the given state.

    Parameters
    ----------
    state : int, default=1

    Returns
    -------
    CountTable

    Examples
    --------
    >>> from sklearn_crf.models import FactorGraph, at_least_one, score
    >>> graph = FactorGraph.from_factors([2, 2], [((0, 1), at_least_one())])
    >>> score(graph, [1, 0]), score(graph, [0, 0])
    (0.0, -inf)
    """
    return CountTable(np.array([-np.inf]), 0.0, state)


def iterate_factor_pairs(factors, name):
    """Yield the (nodes, table) pairs of a list of factors; raise ValueError for an item that is not such a pair."""
    if not np.iterable(factors):
        raise ValueError(f"{name} must be a list of pairs (nodes, table), got {factors!r}.")
    for f, factor in enumerate(factors):
        try:
            scope, table = factor
        except (TypeError, ValueError):
            raise ValueError(f"{name}[{f}] must be a pair of nodes and a table, got {factor!r}.") from None
        yield scope, table


def build_factor_arrays(n_states, factors):
    """Build the fields of a FactorGraph from a list of pairs (scope, table)."""
    n_states = as_integers(n_states, "n_states", lowest=1)
    if n_states.ndim != 1:
        raise ValueError(f"n_states must be a 1-D array of integers, got shape {n_states.shape}.")
    scopes, table_id, number = [], [], {}
    tables: list[Any] = []
    for f, (scope, table) in enumerate(iterate_factor_pairs(factors, "factors")):
        scope = as_integers(scope, f"the scope of factors[{f}]", lowest=0, highest=len(n_states) - 1).ravel()
        # The list keeps all tables alive. Otherwise, Python could reuse the id of a deleted table.
        if id(table) not in number:
            number[id(table)] = len(tables)
            tables.append((table, _flatten_table(table, n_states[scope], f)))
        elif not isinstance(table, CountTable):
            _require_shape(table, n_states[scope], f)
        scopes.append(scope)
        table_id.append(number[id(table)])
    kind, values, cell, default, state = zip(*(fields for _, fields in tables), strict=True) if tables else [()] * 5
    single = bool(tables) and all(part.dtype == np.float32 for part in values)
    return {
        "n_states": n_states,
        "scope": _concatenate(scopes, np.int64),
        "scope_ptr": offsets_from_lengths(list(map(len, scopes))),
        "table_id": np.array(table_id, dtype=np.int64),
        "log_table": _concatenate(values, np.float32 if single else np.float64),
        "table_ptr": offsets_from_lengths([len(part) for part in values]),
        "table_kind": np.array(kind, dtype=np.int64),
        "table_cell": _concatenate(cell, np.int64) if SPARSE in kind else None,
        "table_default": as_reals(default, "the defaults of factors", np.float64),
        "table_state": np.array(state, dtype=np.int64),
    }


def _concatenate(arrays, dtype):
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype=dtype)


def _flatten_table(table, shape, f):
    """Return the kind, stored scores, cell numbers, default score and counted state of one table."""
    if isinstance(table, CountTable):
        values = as_reals(table.values, f"values of factors[{f}]", np.float64).ravel()
        state = as_integer(table.state, f"state of factors[{f}]")
        return COUNT, values, np.zeros(len(values), dtype=np.int64), table.default, state
    _require_shape(table, shape, f)
    if isinstance(table, SparseTable):
        values = as_reals(table.values, f"values of factors[{f}]", np.float64).ravel()
        cell = _number_cells(table, shape, f)
        order = np.argsort(cell, kind="stable")
        cell, values = cell[order], values[order]
        return SPARSE, values, cell, table.default, 1
    name = f"the table of factors[{f}]"
    values = as_reals(as_array(table, name), name).ravel()
    return DENSE, values, np.zeros(len(values), dtype=np.int64), -np.inf, 1


def _number_cells(table, shape, f):
    states = as_integers(table.states, f"states of factors[{f}]", dtype=np.int64).reshape(-1, len(shape))
    if n_joint_states(shape) > MAX_CELLS:
        raise ValueError(f"factors[{f}] has more than 2**62 joint states, which is too many for a SparseTable.")
    outside = ((states < 0) | (states >= shape)).any(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(
            f"factors[{f}] lists the states {states[row].tolist()}, but its nodes have {shape.tolist()} states."
        )
    return numbers_of_states(states, shape)


def _compute_strides(shape):
    """Return, for each node, the difference in cell number between two successive states of the node.

    ``numpy.ravel_multi_index`` is limited to 32 or 64 nodes, depending on the version.
    """
    sizes = np.asarray(shape, dtype=np.int64)
    return np.cumprod(np.append(sizes[1:], 1)[::-1])[::-1] if len(sizes) else sizes


def numbers_of_states(states, shape):
    """Return the C-order cell numbers of joint states; :func:`decode_cells` is the inverse."""
    # states: (n_cells, arity); returns: (n_cells,), int64
    return states.astype(np.int64, copy=False) @ _compute_strides(shape)


def decode_cells(cells, shape):
    """Return the joint states of table cells, given the C-order numbers of the cells."""
    # cells: (n_cells,), int64; returns: (n_cells, arity), int64
    return cells[:, None] // _compute_strides(shape) % np.asarray(shape, dtype=np.int64)


def _require_shape(table, shape, f):
    if isinstance(table, SparseTable):
        states = np.shape(table.states)
        if len(states) != 2 or states[1] != len(shape) or np.shape(table.values) != states[:1]:
            raise ValueError(
                f"factors[{f}] has {len(shape)} nodes, so its SparseTable needs states of shape (n_listed, "
                f"{len(shape)}) and values of shape (n_listed,), got {states} and {np.shape(table.values)}."
            )
    elif np.shape(table) != tuple(shape):
        raise ValueError(f"factors[{f}] needs a table of shape {tuple(shape.tolist())}, got {np.shape(table)}.")
