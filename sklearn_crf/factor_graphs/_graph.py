"""Factor graphs: scores of labelings as a sum over factors of any arity."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sklearn_crf.factor_graphs._checks import check_fields, normalised_fields
from sklearn_crf.factor_graphs._tables import COUNT, DENSE, SPARSE, arrays_of_factors

# A table written out in full takes at most 512 MiB.
_MAX_DENSE_CELLS = 2**26


class ArityGroup(NamedTuple):
    """Factors with the same number of nodes.

    Attributes
    ----------
    factors : ndarray of shape (G,)
        Their numbers.
    scope : ndarray of shape (G, arity)
        Their nodes.
    """

    factors: np.ndarray
    scope: np.ndarray


@dataclass(frozen=True, eq=False)
class FactorGraph:
    r"""Scores of the labelings of nodes with any number of states, by factors of any arity.

    .. math::
        \mathrm{score}(y) = \sum_f \theta_{t_f}(y_{s_{f,1}}, \dots, y_{s_{f,n}})

    where :math:`s_f` is the scope of factor f and :math:`t_f` its table. Larger is better: the distribution is
    :math:`p(y) = \exp(\mathrm{score}(y)) / Z`. Unary scores are factors of arity one; factors of arity zero are
    constants. :meth:`from_factors` builds one from a list of factors.

    A *dense* table lists the scores of all joint states, the last node's state changing fastest. A *sparse* table
    lists some cells, all others have the default score. A *count* table lists scores by how many nodes of the scope
    are in one state; larger counts have the default score.

    Parameters
    ----------
    n_states : array-like of shape (N,) of int
        Number of states of each node.
    scope : array-like of int
        Nodes of all factors, one factor after the other.
    scope_ptr : array-like of shape (F + 1,) of int
        Factor f has the nodes ``scope[scope_ptr[f]:scope_ptr[f + 1]]``.
    table_id : array-like of shape (F,) of int
        Table of each factor. Factors that share a dense or sparse table agree in the numbers of states of their nodes.
    log_table : array-like of shape (n_cells,)
        Scores of all tables, one table after the other, float32 or float64. -inf forbids.
    table_ptr : array-like of shape (T + 1,) of int
        Table t is ``log_table[table_ptr[t]:table_ptr[t + 1]]``.
    table_kind : array-like of shape (T,) of int, optional
        ``DENSE`` (0), ``SPARSE`` (1) or ``COUNT`` (2); None is dense for all.
    table_cell : array-like of shape (n_cells,) of int, optional
        For sparse tables, the number (in C order of the joint states) of each listed cell, ascending in a table.
    table_default : array-like of shape (T,), optional
        Score of what a sparse or count table does not list; None is -inf.
    table_state : array-like of shape (T,) of int, optional
        The state that a count table counts; None is 1.

    Raises
    ------
    ValueError
        If shapes, numbers of states or pointers do not fit, or a score is NaN or +inf.
    """

    n_states: np.ndarray
    scope: np.ndarray
    scope_ptr: np.ndarray
    table_id: np.ndarray
    log_table: np.ndarray
    table_ptr: np.ndarray
    table_kind: np.ndarray | None = None
    table_cell: np.ndarray | None = None
    table_default: np.ndarray | None = None
    table_state: np.ndarray | None = None

    def __post_init__(self):
        for name, value in normalised_fields(self).items():
            object.__setattr__(self, name, value)
        check_fields(self)

    @classmethod
    def _trusted(cls, n_states, scope, scope_ptr, table_id, log_table, table_ptr):
        """Skip the checks, for dense tables that this package put together itself, in the types of the fields."""
        graph, n_tables = cls.__new__(cls), len(table_ptr) - 1
        graph.__dict__.update(
            n_states=n_states,
            scope=scope,
            scope_ptr=scope_ptr,
            table_id=table_id,
            log_table=log_table,
            table_ptr=table_ptr,
            table_kind=np.full(n_tables, DENSE, dtype=np.int8),
            table_cell=None,
            table_default=np.full(n_tables, -np.inf, dtype=log_table.dtype),
            table_state=np.ones(n_tables, dtype=np.int32),
        )
        return graph

    @classmethod
    def from_factors(cls, n_states, factors):
        """Factor graph from a list of factors.

        Parameters
        ----------
        n_states : array-like of shape (N,) of int
            Number of states of each node.
        factors : iterable of (scope, table)
            ``scope`` is the sequence of the factor's nodes, ``table`` an array with one axis per node, or a
            :class:`SparseTable`, or a :class:`CountTable`. The same table object given to several factors is one
            shared table.

        Returns
        -------
        FactorGraph
            In float32 if all tables are, else in float64.
        """
        return cls(**arrays_of_factors(n_states, factors))

    @property
    def n_nodes(self):
        """Number of nodes N."""
        return len(self.n_states)

    @property
    def n_factors(self):
        """Number of factors F."""
        return len(self.table_id)

    @property
    def n_tables(self):
        """Number of tables T."""
        return len(self.table_kind)

    @property
    def n_columns(self):
        """Largest number of states of a node, K."""
        return int(self.n_states.max(initial=1))

    @property
    def dtype(self):
        """Precision of the scores, float32 or float64."""
        return self.log_table.dtype

    @property
    def arity(self):
        """Number of nodes of each factor, (F,) int64."""
        return np.diff(self.scope_ptr)

    @cached_property
    def component(self):
        """Number of each node's connected component, (N,) int32, components in the order of their first nodes."""
        owner = np.repeat(np.arange(self.n_factors), self.arity) + self.n_nodes
        size = self.n_nodes + self.n_factors
        joined = sp.coo_matrix((np.ones(len(owner), dtype=np.int8), (self.scope, owner)), shape=(size, size))
        label = connected_components(joined, directed=False)[1][: self.n_nodes]
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int32)

    @property
    def n_components(self):
        """Number of connected components."""
        return int(self.component.max(initial=-1)) + 1

    def by_arity(self) -> Iterator[ArityGroup]:
        """Factors grouped by their number of nodes, so that arrays can be used on each group.

        Yields
        ------
        ArityGroup
            Ascending by arity; ``factors`` ascending inside a group.
        """
        arity = self.arity
        for n in np.unique(arity):
            factors = np.flatnonzero(arity == n)
            yield ArityGroup(factors, self.scope[self.scope_ptr[factors][:, None] + np.arange(n)])

    def cells(self, factors, states):
        """Where the score of each factor is stored, given the states of its nodes.

        Parameters
        ----------
        factors : array of shape (G,) of int
            Factors of one arity; a factor may come several times.
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
            cells[rows] = _cell_numbers(states[rows], self.n_states[scope])
            dense = rows[kind[rows] == DENSE]
            cells[dense] += self.table_ptr[tables[dense]]
            for table in np.unique(tables[kind == SPARSE]):
                same = np.flatnonzero(tables == table)
                cells[same] = self._look_up(table, cells[same])
        return cells

    def _look_up(self, table, numbers):
        start, stop = self.table_ptr[table : table + 2]
        listed = self.table_cell[start:stop]
        place = np.searchsorted(listed, numbers)
        found = place < len(listed)
        found[found] = listed[place[found]] == numbers[found]
        return np.where(found, start + place, -1)

    def factor_scores(self, factors, states):
        """Score of each factor, given the states of its nodes.

        Parameters
        ----------
        factors : array of shape (G,) of int
            Factors of one arity; a factor may come several times.
        states : array of shape (G, arity) of int
            States of their nodes.

        Returns
        -------
        ndarray of shape (G,), float64
        """
        cells = self.cells(factors, states)
        scores = self.table_default[self.table_id[factors]].astype(np.float64)
        stored = cells >= 0
        scores[stored] = self.log_table[cells[stored]]
        return scores

    def dense_table(self, factor):
        """Scores of all joint states of a factor, whatever the kind of its table.

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
            If it would take more than 2**26 numbers.
        """
        scope = self.scope[self.scope_ptr[factor] : self.scope_ptr[factor + 1]]
        shape = tuple(self.n_states[scope].tolist())
        table = self.table_id[factor]
        values = self.log_table[self.table_ptr[table] : self.table_ptr[table + 1]]
        if self.table_kind[table] == DENSE:
            return values.reshape(shape)
        n_cells = np.prod(shape, dtype=float)
        if n_cells > _MAX_DENSE_CELLS:
            raise ValueError(f"factor {factor} has {n_cells:.3g} joint states, more than can be written out in full.")
        dense = np.full(shape, self.table_default[table])
        if self.table_kind[table] == SPARSE:
            dense.ravel()[self.table_cell[self.table_ptr[table] : self.table_ptr[table + 1]]] = values
            return dense
        counts = np.zeros(shape, dtype=np.int64)
        for axis, length in enumerate(shape):
            counted = np.arange(length) == self.table_state[table]
            counts += counted.reshape((1,) * axis + (length,) + (1,) * (len(shape) - axis - 1))
        stored = counts < len(values)
        dense[stored] = values[counts[stored]]
        return dense


def _cell_numbers(states, shape):
    """Number, in C order, of each row of states in a table of the shape of that row."""
    numbers = np.zeros(len(states), dtype=np.int64)
    for axis in range(states.shape[1]):
        numbers = numbers * shape[:, axis] + states[:, axis]
    return numbers
