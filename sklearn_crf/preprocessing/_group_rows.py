"""Conversion of long tables, with a row for each node, to examples and back."""

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import as_array, convert_to_csr
from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import convert_to_label_array, count_examples, make_object_array, mask_missing_nodes


def group_rows(rows: Any, groups: str | list[str] | Any, time: str | Any = None) -> np.ndarray:
    """Split a long table into examples: the rows of each group, in their order, form a chain.

    A warning is issued if the rows of a group are not consecutive and ``time`` is not given. For instance, sentence
    numbers that restart in each document would join sentences of several documents.

    Parameters
    ----------
    rows : data frame, series, array-like or sparse matrix with n_rows rows
        Features or labels, with a row for each node.
    groups : str, list of str, or array-like of shape (n_rows,) or (n_rows, n_group_columns)
        Group of each row, such as the number of its sentence, or the name of a column of the frame. Rows belong to the
        same group if they agree in all group columns, such as a document and the number of a sentence in it. Columns
        that are given by their names are excluded from the examples. A list of distinct names of columns always means
        these columns. If the groups themselves have such names, pass an array.
    time : str or array-like of shape (n_rows,), optional
        Values by which the rows of each group are sorted, such as the position in a sentence, or the name of a column
        of the frame. Ordered categories are sorted in their order. A column given by name is excluded from the
        examples. None keeps the order of the table.

    Returns
    -------
    ndarray of shape (n_groups,), of object
        Groups in the order of their first rows, each of the type of ``rows``: a frame, a CSR matrix or an array.

    Raises
    ------
    ValueError
        If ``groups`` or ``time`` differs in length from ``rows``, a column does not exist, a row lacks a group or time,
        or columns are given by their names and a column occurs twice in ``rows``.

    See Also
    --------
    ungroup_rows : Converts predictions back to the order of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import group_rows, ungroup_rows
    >>> sentence, position = ["a", "a", "b", "a"], [2, 0, 0, 1]
    >>> parts = group_rows(np.array([12, 10, 20, 11]), sentence, position)
    >>> [part.tolist() for part in parts]
    [[10, 11, 12], [20]]
    >>> ungroup_rows(parts, sentence, position)
    array([12, 10, 20, 11])
    """
    is_frame = hasattr(rows, "columns")
    left_out: list[str] = []
    if isinstance(groups, str) or (is_frame and _are_names(groups, rows)):
        left_out += [groups] if isinstance(groups, str) else groups
        groups = _select_column("groups", groups, rows)
    if isinstance(time, str):
        left_out.append(time)
        time = _select_column("time", time, rows)
    if left_out:
        rows = rows[[name for name in rows.columns if name not in left_out]]
    if not is_frame:
        # asanyarray keeps masked arrays.
        rows = convert_to_csr(rows, "rows") if sp.issparse(rows) else np.asanyarray(rows)
    if not rows.ndim:
        raise ValueError(f"rows must be a table or a column with a row for each node, got {rows!r}.")
    n_rows = rows.shape[0]
    members = _find_members(groups, n_rows, time)
    apart = [] if time is not None else [part for part in members if part[-1] - part[0] >= len(part)]
    if apart:
        first = slice(apart[0][0], apart[0][0] + 1)
        name = ", ".join(repr(*column[first].tolist()) for column in _split_columns(groups))
        warn_caller(
            f"The rows of {len(apart)} of {len(members)} groups are not consecutive, such as the rows of {name}: they "
            "are joined in the order of the table. Pass the column of times as time, or give each group a name that is "
            "not used again."
        )
    if hasattr(rows, "iloc"):
        return make_object_array([rows.iloc[part] for part in members])
    return make_object_array([rows[part] for part in members])


def ungroup_rows(parts: Any, groups: Any, time: Any = None) -> np.ndarray:
    """Join the values of examples to one column or table, in the order that rows had before :func:`group_rows`.

    Parameters
    ----------
    parts : sequence of array-like
        Predicted labels or probabilities of each group, with one entry for each of its rows.
    groups : array-like of shape (n_rows,) or (n_rows, n_group_columns)
        Groups as given to :func:`group_rows`; values, not the name of a column.
    time : array-like of shape (n_rows,), optional
        Times as given to :func:`group_rows`; values, not the name of a column.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_columns)

    Raises
    ------
    ValueError
        If the number of parts differs from the number of groups, or a part differs in length from its group.

    Examples
    --------
    >>> from sklearn_crf.preprocessing import ungroup_rows
    >>> ungroup_rows([["B", "O"], ["O"]], [7, 7, 9]).tolist()
    ['B', 'O', 'O']
    """
    members = _find_members(groups, np.size(_split_columns(groups)[0]), time)
    if count_examples(parts, "parts") != len(members):
        raise ValueError(f"parts holds {len(parts)} examples, but groups has entries for {len(members)}.")
    parts = [as_array(part, f"parts[{i}]") for i, part in enumerate(parts)]
    for i, (part, rows) in enumerate(zip(parts, members, strict=True)):
        if len(part) != len(rows):
            raise ValueError(f"parts[{i}] has {len(part)} rows, but its group has {len(rows)}.")
    return np.concatenate(parts)[np.argsort(np.concatenate(members), kind="stable")]


def _are_names(groups: Any, rows: Any) -> bool:
    """Return whether ``groups`` is a list of column names, rather than a list with the group of each row."""
    if not (isinstance(groups, list) and groups and all(isinstance(name, str) for name in groups)):
        return False
    # A list of another length cannot contain the groups of rows. Names that are not columns then raise an error.
    return len(groups) != len(rows) or (len(set(groups)) == len(groups) and set(groups) <= set(rows.columns))


def _select_column(argument: str, names: str | list[str], rows: Any) -> Any:
    """Return a single column of a frame, or several columns, by name."""
    is_frame = hasattr(rows, "columns")
    held = list(rows.columns) if is_frame else f"rows is a {type(rows).__name__}, not a data frame"
    for name in [names] if isinstance(names, str) else names:
        if not is_frame or name not in rows.columns:
            raise ValueError(f"{argument}={name!r} is no column of the table rows: {held}.")
    if len(set(held)) < len(held):
        twice = sorted({name for name in held if held.count(name) > 1}, key=str)
        raise ValueError(f"rows has a column twice: {twice}. Rename the columns, or pass {argument} as an array.")
    return rows[names]


def _split_columns(groups: Any) -> list[np.ndarray]:
    """Return the columns of groups as arrays."""
    if hasattr(groups, "columns") and groups.shape[1]:
        return [convert_to_label_array(groups[name]) for name in groups.columns]
    groups = convert_to_label_array(groups)
    return list(groups.T) if groups.ndim == 2 and groups.shape[1] else [groups]


def _find_members(groups, n_rows, time):
    """Return the row indices of each group; groups are in the order of their first rows."""
    columns = [_read_column(column, n_rows, "groups", "group") for column in _split_columns(groups)]
    rank, *others = (_rank_values(column, "groups") for column in columns)
    for own in others:
        rank = _rank_values(rank * (1 + own.max()) + own, "groups")
    _, first = np.unique(rank, return_index=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    of_row = number[rank]
    counts = np.bincount(of_row)
    keys = [of_row]
    if time is not None:
        keys.insert(0, _rank_times(time, n_rows))
    return np.split(np.lexsort(keys), np.cumsum(counts)[:-1])


def _rank_times(time: Any, n_rows: int) -> np.ndarray:
    """Return the rank of the time of each row; ordered categories are ranked in their order."""
    values = _read_column(time, n_rows, "time", "time")
    if getattr(getattr(time, "dtype", None), "ordered", False):
        return np.asarray(getattr(time, "cat", time).codes)
    ranks = _rank_values(values, "time")
    numbers = _parse_numbers(values)
    if numbers and np.any(np.argsort(_rank_values(numbers, "time"), kind="stable") != np.argsort(ranks, kind="stable")):
        raise ValueError(
            f"time holds numbers as strings, such as {values[0]!r}, which are sorted as text: convert them."
        )
    return ranks


def _parse_numbers(values: np.ndarray) -> list[Decimal]:
    """Parse strings as numbers; return an empty list if any value is not a string with a finite number."""
    try:
        numbers = [Decimal(value) for value in values] if isinstance(values[0], str) else []
    except (InvalidOperation, TypeError):
        return []
    return numbers if all(number.is_finite() for number in numbers) else []


def _rank_values(values, name):
    """Return the rank of each value among the distinct values."""
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(f"{name} must have entries of one type, found {' and '.join(kinds)}.") from error


def _read_column(values, n_rows, name, what):
    """Return the values of all rows, or raise ValueError if a value is missing."""
    values = convert_to_label_array(values)
    if values.shape != (n_rows,) or not n_rows:
        raise ValueError(
            f"{name} must have shape ({n_rows},), one entry for each row and at least one entry, got {values.shape}."
        )
    lacking = mask_missing_nodes(values, np.nan)
    # Like NaN, the missing time NaT differs from itself.
    lacking[~lacking] = [value != value for value in values[~lacking]]
    if lacking.any():
        row = int(np.argmax(lacking))
        raise ValueError(f"{name}[{row}] is {values[row]}: every row needs a {what}.")
    return values
