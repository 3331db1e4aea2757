"""Weights of examples in the sums over a batch: of nodes, and of edges and factors, which share tables."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from sklearn_crf.models import EdgeLayout, FactorGraph, FactorStatistics, Statistics, model_with_layout


def weight_of_nodes(batch):
    """Weight of the example of each node, (N,) float64."""
    sizes = np.diff(batch.node_ptr)
    return np.repeat(np.ones(len(sizes)) if batch.weight is None else batch.weight, sizes)


def weight_of_edges(batch):
    """Weight of the example of each edge, (E,) float64."""
    return weight_of_nodes(batch)[batch.example.graph.edges[:, 0]]


def tables_by_weight(batch, model):
    """Return the tables by weight of a model of the batch, or None if all its edges and factors have one weight."""
    if batch.weight is None or not np.ptp(batch.weight):
        return None
    if isinstance(model, FactorGraph):
        return FactorsByWeight(batch, model)
    return EdgesByWeight(batch, model) if batch.example.graph.n_edges else None


def model_by_weight(potentials, coef, batch):
    """Return the model of a batch, with tables of each weight where its examples differ in weight."""
    model = potentials.model(coef, batch.example)
    return by_weights(model, tables_by_weight(batch, model))


def by_weights(model, by_weight):
    """Return a model with the tables of each weight, or as it is without such tables."""
    return model if by_weight is None else by_weight.model(model)


class EdgesByWeight:
    r"""Tables for each weight that examples with edges of one batch have.

    .. math:: \sum_i \omega_i \frac{\partial \ell_i}{\partial \theta} =
        \sum_\omega \omega \frac{\partial \ell}{\partial \theta_\omega}, \qquad \theta_\omega = \theta

    Statistics of tables are sums over the edges of a batch. Edges whose examples have different weights read tables of
    their own, which are equal: so there is a sum for each weight.
    """

    def __init__(self, batch, model):
        values, index = np.unique(weight_of_edges(batch), return_inverse=True)
        # Pairs of a type and a weight that occur are the types; a type of one weight has no second table.
        pairs, edge_type = np.unique(model.edge_type.astype(np.int64) * len(values) + index, return_inverse=True)
        self._type, self._shape = pairs // len(values), model.tables.shape
        self._sum = _sums(values[pairs % len(values)], self._type, self._shape[0])
        self.shape = (len(pairs), *self._shape[1:])
        self._layout = EdgeLayout(edge_type.astype(np.int32), model.edge_weight)

    def model(self, model):
        """The same scores, from tables of each type and weight."""
        tables = self.tables(model.tables)
        if model.n_states is not None:
            return replace(model, tables=tables, edge_type=self._layout.edge_type)
        return model_with_layout(model.graph, model.unary, tables, self._layout)

    def tables(self, tables):
        """Return the tables of each type and weight."""
        return tables[self._type]

    def unweighted(self, statistics):
        """Statistics of the model of a batch, of those of the tables of each type and weight."""
        tables = np.zeros(self._shape)
        np.add.at(tables, self._type, statistics.tables)
        return Statistics(statistics.unary, tables)

    def summed(self, statistics, node_weight):
        """Weighted statistics of the model of a batch, of those of the tables of each type and weight."""
        unary, tables = statistics
        tables = (self._sum @ tables.reshape(len(tables), -1)).reshape(self._shape)
        return Statistics(unary * node_weight[:, np.newaxis], tables)


class FactorsByWeight:
    """Tables of a factor graph for each weight that examples of one batch have, as :class:`EdgesByWeight`."""

    def __init__(self, batch, model):
        # Constants, which have no node, are of no example.
        first = np.append(model.scope, 0)[model.scope_ptr[:-1]]
        values, index = np.unique(weight_of_nodes(batch)[first], return_inverse=True)
        pairs, self._table_id = np.unique(model.table_id * len(values) + index, return_inverse=True)
        self._table, weight = pairs // len(values), values[pairs % len(values)]
        sizes = np.diff(model.table_ptr)[self._table]
        self._ptr = np.concatenate(([0], np.cumsum(sizes)))
        # Cells of the tables of each weight among those of the model.
        self._cell = np.arange(self._ptr[-1]) + np.repeat(model.table_ptr[self._table] - self._ptr[:-1], sizes)
        self._sum = _sums(weight, self._table, model.n_tables)
        self._sum_of_cells = _sums(np.repeat(weight, sizes), self._cell, model.log_table.size)

    def model(self, model):
        """The same scores, from tables of each weight."""
        return replace(
            model,
            table_id=self._table_id,
            log_table=model.log_table[self._cell],
            table_ptr=self._ptr,
            table_kind=model.table_kind[self._table],
            table_cell=None if model.table_cell is None else model.table_cell[self._cell],
            table_default=model.table_default[self._table],
            table_state=model.table_state[self._table],
        )

    def summed(self, statistics, node_weight):
        """Weighted statistics of the model of a batch, of those of the tables of each weight."""
        # Tables of costs may follow those of the model.
        cells, defaults = statistics.log_table[: len(self._cell)], statistics.table_default[: len(self._table)]
        return FactorStatistics(self._sum_of_cells @ cells, self._sum @ defaults)


def _sums(weight, row, n_rows):
    """Matrix of weighted sums over what belongs to each row."""
    return sp.csr_matrix((weight, (row, np.arange(len(row)))), shape=(n_rows, len(row)))
