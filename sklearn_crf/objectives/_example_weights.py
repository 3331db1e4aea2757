"""Weights of examples in the sums over a batch: of nodes, and of edges, which share tables."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from sklearn_crf.models import EdgeLayout, Statistics, model_with_layout


def weight_of_nodes(batch):
    """Weight of the example of each node, (N,) float64."""
    sizes = np.diff(batch.node_ptr)
    return np.repeat(np.ones(len(sizes)) if batch.weight is None else batch.weight, sizes)


class EdgesByWeight:
    r"""Tables for each weight that examples with edges of one batch have.

    .. math:: \sum_i \omega_i \frac{\partial \ell_i}{\partial \theta} =
        \sum_\omega \omega \frac{\partial \ell}{\partial \theta_\omega}, \qquad \theta_\omega = \theta

    Statistics of tables are sums over the edges of a batch. Edges whose examples have different weights read tables of
    their own, which are equal: so there is a sum for each weight.
    """

    def __init__(self, batch, model):
        tails = batch.example.graph.edges[:, 0]
        weights = batch.weight[np.searchsorted(batch.node_ptr, tails, side="right") - 1]
        values, index = np.unique(weights, return_inverse=True)
        # Pairs of a type and a weight that occur are the types; a type of one weight has no second table.
        pairs, edge_type = np.unique(model.edge_type.astype(np.int64) * len(values) + index, return_inverse=True)
        self._type, self._shape = pairs // len(values), model.tables.shape
        entries = values[pairs % len(values)], (self._type, np.arange(len(pairs)))
        self._sum = sp.csr_matrix(entries, shape=(self._shape[0], len(pairs)))
        self._layout = EdgeLayout(edge_type.astype(np.int32), model.edge_weight)

    @classmethod
    def of(cls, batch, model):
        """The tables by weight of a model of the batch; None where all edges have one weight."""
        if batch.weight is None or not np.ptp(batch.weight) or not batch.example.graph.n_edges:
            return None
        return cls(batch, model)

    def model(self, model):
        """The same scores, from tables of each type and weight."""
        tables = model.tables[self._type]
        if model.n_states is not None:
            return replace(model, tables=tables, edge_type=self._layout.edge_type)
        return model_with_layout(model.graph, model.unary, tables, self._layout)

    def summed(self, statistics, node_weight):
        """Weighted statistics of the model of a batch, of those of the tables of each type and weight."""
        unary, tables = statistics
        tables = (self._sum @ tables.reshape(len(tables), -1)).reshape(self._shape)
        return Statistics(unary * node_weight[:, np.newaxis], tables)
