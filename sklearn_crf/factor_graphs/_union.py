"""Factor graphs put together over the same nodes."""

import numpy as np

from sklearn_crf.factor_graphs._graph import FactorGraph


def union_of_factors(*graphs):
    """The factor graph of the factors of several: scores of labelings add up.

    Parameters
    ----------
    *graphs : FactorGraph
        Over the same nodes.

    Returns
    -------
    FactorGraph
        Factors and tables in the order of the graphs, in the precision of the first.

    Raises
    ------
    ValueError
        If numbers of states differ.
    """
    first = graphs[0]
    for graph in graphs[1:]:
        if not np.array_equal(graph.n_states, first.n_states):
            raise ValueError("factor graphs to be put together must have nodes of the same numbers of states.")
    n_tables = np.cumsum([0, *(graph.n_tables for graph in graphs)])
    is_sparse = any(graph.table_cell is not None for graph in graphs)
    return FactorGraph(
        n_states=first.n_states,
        scope=np.concatenate([graph.scope for graph in graphs]),
        scope_ptr=_joined_offsets([graph.scope_ptr for graph in graphs]),
        table_id=np.concatenate([graph.table_id + n for graph, n in zip(graphs, n_tables[:-1], strict=True)]),
        log_table=np.concatenate([graph.log_table.astype(first.dtype, copy=False) for graph in graphs]),
        table_ptr=_joined_offsets([graph.table_ptr for graph in graphs]),
        table_kind=np.concatenate([graph.table_kind for graph in graphs]),
        table_cell=np.concatenate([_cells(graph) for graph in graphs]) if is_sparse else None,
        table_default=np.concatenate([graph.table_default.astype(first.dtype, copy=False) for graph in graphs]),
        table_state=np.concatenate([graph.table_state for graph in graphs]),
    )


def _joined_offsets(pointers):
    ends = np.cumsum([0, *(ptr[-1] for ptr in pointers)])
    return np.concatenate([[0], *(ptr[1:] + end for ptr, end in zip(pointers, ends[:-1], strict=True))])


def _cells(graph):
    return np.zeros(graph.log_table.size, dtype=np.int64) if graph.table_cell is None else graph.table_cell
