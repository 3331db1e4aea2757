"""Potentials that are linear in sparse features of nodes and of edges."""

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding import replace_fields
from sklearn_crf.potentials._feature_columns import FeatureColumns, build_feature_columns
from sklearn_crf.potentials._sparse import (
    SparsePotentials,
    add_gradient,
    add_gradients,
    add_scores,
    add_squares,
    split_features_evenly,
)


class SparseEdgePotentials(SparsePotentials):
    r"""Potentials that are linear in sparse features of nodes and edges, with a separate table for each edge.

    .. math:: \theta_e = \mathrm{form}(v_e), \qquad v_{e, p} = \sum_{f : (f, p) \in P} w_{f p} \, x_{e f}

    Weights exist for given pairs of an edge feature and a table weight, such as a feature and two labels that occur
    together. Tables are recomputed for every model, so that memory is only needed for one batch.
    """

    takes_sparse_edges = True

    def __init__(self, pairs, edge_pairs, n_features, n_classes, form, **options):
        self.edge_pairs = edge_pairs
        super().__init__(pairs, n_features, n_classes, form, **options)
        self._edge_shape = (len(edge_pairs),)

    def build_inference_model(self, coef, example):
        return self.model(coef, example)

    def prepared(self, example):
        return convert_to_edge_columns(example, self.n_node_types, self.n_edge_types)

    def prepare_once(self, example):
        return self.prepared(example)

    def _tables(self, weights, example):
        features = self.prepared(example).edge_features
        n_edges = example.graph.n_edges
        scores = np.zeros((max(n_edges, 1), self.form.n_weights))
        add_scores(features, self.edge_pairs, weights.edge_coef, scores)
        return self.form.expand(scores[:, None])

    def compute_edge_layout(self, example):
        n_edges = example.graph.n_edges
        return (max(n_edges, 1), 1), np.arange(n_edges, dtype=np.int32), None

    def _pull_edges(self, parts, example, tables):
        add_gradient(
            self.prepared(example).edge_features, self.edge_pairs, self._compute_edge_columns(tables), parts.edge_coef
        )

    def _compute_edge_columns(self, tables):
        return self.form.adjoint(tables[:, 0])

    def _set_edge_curvature(self, edge_coef, examples, edge_weights, variance):
        squares = np.zeros(len(self.edge_pairs.ptr) - 1)
        for example, weight in zip(examples, edge_weights, strict=True):
            add_squares(example.edge_features, weight, squares)
        edge_coef[...] = variance[self.edge_pairs.column] * np.repeat(squares, np.diff(self.edge_pairs.ptr))

    def find_touched_weights(self, example):
        first = self.n_coef - len(self.edge_pairs)
        of_others = super().find_touched_weights(example)
        of_edges = self.edge_pairs.of_features(self.prepared(example).edge_features.feature)
        return np.concatenate([of_others[of_others < first], first + of_edges])

    def pullback_each(self, example, statistics, node_ptr):
        raise NotImplementedError(
            "every edge has its own table, so derivatives of several scalars cannot be summed by table."
        )

    def split_shared_ranges(self, examples):
        return super().split_shared_ranges(examples), split_features_evenly(
            [x.edge_features for x in examples], self.edge_pairs
        )

    def add_pullbacks(self, gradient, examples, statistics, ranges, *, n_jobs=None):
        of_nodes, of_edges = ranges
        super().add_pullbacks(gradient, examples, statistics, of_nodes, n_jobs=n_jobs)
        blocks = [
            (example.edge_features, self._compute_edge_columns(part.tables))
            for example, part in zip(examples, statistics, strict=True)
        ]
        add_gradients(blocks, self.edge_pairs, self.unpack(gradient).edge_coef, of_edges, n_jobs)

    def _pull_shared_tables(self, parts, statistics):
        """Do nothing, because edges do not share tables."""


def convert_to_edge_columns(example, n_node_types, n_edge_types):
    """Convert the node features and the edge features of an example to :class:`FeatureColumns`."""
    x, features = example, example.edge_features
    if isinstance(features, FeatureColumns):
        return example
    if features is None:
        features = sp.csr_matrix((0, 0), dtype=x.node_features.dtype)
    of_nodes = x.node_features
    if not isinstance(of_nodes, FeatureColumns):
        of_nodes = build_feature_columns(of_nodes, x.node_type if n_node_types > 1 else None)
    of_edges = build_feature_columns(features, x.edge_type if n_edge_types > 1 else None, "edge features")
    return replace_fields(x, node_features=of_nodes, edge_features=of_edges)
