"""Long tables, one row for each node, to examples and back."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import sound_csr
from sklearn_crf.encoding import label_array, missing_nodes, object_array


def group_rows(rows: Any, groups: str | Any) -> np.ndarray:
    """Cut a long table into examples: the rows of one group, in their order, become one chain.

    Parameters
    ----------
    rows : data frame, series, array-like or sparse matrix with n_rows rows
        Features or labels, one row for each node.
    groups : str or array-like of shape (n_rows,)
        Group of each row, such as the number of its sentence; or the name of a column of the frame, which is then left
        out of the examples. Rows of a group need not follow each other.

    Returns
    -------
    ndarray of shape (n_groups,), of object
        Groups in the order in which they come first, each of the type of rows: a frame, a CSR matrix or an array.

    Raises
    ------
    ValueError
        If groups has another length than rows, names no column, or a row has no group.

    See Also
    --------
    ungroup_rows : Predictions in the order of the rows again.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.preprocessing import group_rows, ungroup_rows
    >>> sentence = ["a", "a", "b", "a"]
    >>> parts = group_rows(np.array([10, 11, 20, 12]), sentence)
    >>> [part.tolist() for part in parts]
    [[10, 11, 12], [20]]
    >>> ungroup_rows(parts, sentence)
    array([10, 11, 20, 12])
    """
    is_frame = hasattr(rows, "columns")
    if isinstance(groups, str):
        if not is_frame or groups not in rows.columns:
            held = f"{list(rows.columns)}" if is_frame else f"rows is a {type(rows).__name__}, not a data frame"
            raise ValueError(f"groups={groups!r} names no column: {held}.")
        groups, rows = rows[groups], rows[[name for name in rows.columns if name != groups]]
    if not is_frame:
        # Masks of arrays stay.
        rows = sound_csr(rows, "rows") if sp.issparse(rows) else np.asanyarray(rows)
    if not rows.ndim:
        raise ValueError(f"rows must be a table or a column with a row for each node, got {rows!r}.")
    n_rows = rows.shape[0]
    members = _members(groups, n_rows)
    if hasattr(rows, "iloc"):
        return object_array([rows.iloc[part] for part in members])
    return object_array([rows[part] for part in members])


def ungroup_rows(parts: Any, groups: Any) -> np.ndarray:
    """Values of examples as one column or table in the order of the rows that :func:`group_rows` cut.

    Parameters
    ----------
    parts : sequence of array-like
        One for each group, one row for each of its rows: predicted labels or probabilities.
    groups : array-like of shape (n_rows,)
        As given to :func:`group_rows`, the values of the column rather than its name.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_columns)

    Raises
    ------
    ValueError
        If there is another number of parts than of groups, or a part has another length than its group.

    Examples
    --------
    >>> from sklearn_crf.preprocessing import ungroup_rows
    >>> ungroup_rows([["B", "O"], ["O"]], [7, 7, 9]).tolist()
    ['B', 'O', 'O']
    """
    members = _members(groups, len(groups))
    if len(parts) != len(members):
        raise ValueError(f"parts holds {len(parts)} examples, but groups names {len(members)}.")
    parts = [np.asarray(part) for part in parts]
    for i, (part, rows) in enumerate(zip(parts, members, strict=True)):
        if len(part) != len(rows):
            raise ValueError(f"parts[{i}] has {len(part)} rows, but its group has {len(rows)}.")
    return np.concatenate(parts)[np.argsort(np.concatenate(members), kind="stable")]


def _members(groups, n_rows):
    """Rows of each group, groups in the order of their first row."""
    groups = label_array(groups)
    if groups.shape != (n_rows,) or not n_rows:
        raise ValueError(
            f"groups must have shape ({n_rows},), one for each row, of which one is needed; got {groups.shape}."
        )
    lacking = missing_nodes(groups, np.nan)
    # NaT, too, is unlike itself.
    lacking[~lacking] = [value != value for value in groups[~lacking]]
    if lacking.any():
        row = int(np.argmax(lacking))
        raise ValueError(f"groups[{row}] is {groups[row]}: every row needs a group.")
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    of_row = number[inverse]
    counts = np.bincount(of_row)
    return np.split(np.argsort(of_row, kind="stable"), np.cumsum(counts)[:-1])
