"""Potentials that are linear in sparse features, with weights for all or some pairs of feature and score column."""

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import allocate_workspace, map_tasks
from sklearn_crf.encoding import replace_fields, tie_constant_edges
from sklearn_crf.kernels.learning.learning import pair_gradient, pair_scores, pair_scores_of_rows
from sklearn_crf.potentials._feature_columns import FeatureColumns, build_feature_columns
from sklearn_crf.potentials._linear import LinearPotentials

# Number of ranges of features that threads process in parallel. Each range reads all statistics.
_N_RANGES = 8


class SparsePotentials(LinearPotentials):
    r"""Potentials that are linear in sparse features, with node weights for given pairs of feature and score column.

    .. math:: u_{s, k} = \sum_{f : (f, k) \in P} w_{f k} \, x_{s f} + b_k

    ``LinearWeights.coef`` is a vector with one weight for each given pair, in the order of the features.
    """

    by_columns = True

    def __init__(self, pairs, n_features, n_classes, form, **options):
        self.pairs = pairs
        super().__init__(n_features, n_classes, form, **options)

    def _get_node_shape(self):
        return (len(self.pairs),), self.pairs.n_columns

    def prepared(self, example):
        """Convert an example to features stored by column, for repeated use."""
        return convert_to_feature_columns(example, self.n_node_types)

    def prepare_once(self, example):
        """Convert an example to the form that is fastest for a single call of :meth:`model`."""
        return tie_constant_edges(example) if self._reads_rows(example.node_features) else self.prepared(example)

    def _reads_rows(self, features):
        return self.n_node_types == 1 and sp.issparse(features) and features.format == "csr"

    def find_touched_weights(self, example):
        pairs = self.pairs.of_features(self.prepared(example).node_features.feature)
        return np.concatenate([pairs, np.arange(len(self.pairs), self.n_coef)])

    def _compute_score_columns(self, weights, example):
        scores = np.zeros((example.n_nodes, self.n_columns))
        if self.fit_intercept:
            for node_type, nodes in self._group_nodes_by_type(example):
                scores[nodes] = weights.intercept[node_type]
        if self._reads_rows(example.node_features):
            rows, pairs = example.node_features, self.pairs
            ptr, feature = rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False)
            coef = np.ascontiguousarray(weights.coef, dtype=np.float64)
            pair_scores_of_rows(ptr, feature, rows.data, pairs.ptr, pairs.column, coef, scores)
        else:
            add_scores(self.prepared(example).node_features, self.pairs, weights.coef, scores)
        return scores

    def _pull_nodes(self, parts, example, columns):  # type: ignore[override]  # never called for a subset of the nodes
        self._pull_intercepts(parts, example, columns)
        features = self.prepared(example).node_features
        add_gradient(features, self.pairs, columns, parts.coef)

    def _pull_intercepts(self, parts, example, columns):
        if self.fit_intercept:
            for node_type, nodes in self._group_nodes_by_type(example):
                parts.intercept[node_type] += columns[nodes].sum(axis=0, dtype=np.float64)

    def pullback_each(self, example, statistics, node_ptr):
        gradients = np.zeros((len(node_ptr) - 1, self.n_coef))
        columns = self._columns(statistics.unary)
        edge_coef = self._compute_edge_gradient(statistics.tables)
        # Rows of features stored by column cannot be selected, so set the statistics of all other nodes to zero.
        for i, (start, stop) in enumerate(pairwise(node_ptr)):
            parts = self.unpack(gradients[i])
            alone = np.zeros_like(columns)
            alone[start:stop] = columns[start:stop]
            self._pull_nodes(parts, example, alone)
            parts.edge_coef[...] = edge_coef[i]
        return gradients

    def add_pullbacks(self, gradient, examples, statistics, ranges, *, n_jobs=None):
        """Add the pullbacks of all examples to a gradient, without storing a gradient for each example.

        The nodes of every feature are summed in the order of the examples, for any number of threads.
        """
        # gradient: (n_coef,), float64
        parts = self.unpack(gradient)
        blocks = []
        for example, part in zip(examples, statistics, strict=True):
            columns = np.ascontiguousarray(self._columns(part.unary), dtype=np.float64)
            self._pull_intercepts(parts, example, columns)
            blocks.append((example.node_features, columns))
        self._pull_shared_tables(parts, statistics)
        add_gradients(blocks, self.pairs, parts.coef, ranges, n_jobs)

    def _pull_shared_tables(self, parts, statistics):
        for part in statistics:
            parts.edge_coef[...] += self._compute_edge_gradient(part.tables)

    def curvature(self, examples, node_weights):
        r"""Return the diagonal of the Hessian of the negative log-likelihood at zero weights.

        .. math:: h_{f k} = \frac{1}{K} \Bigl(1 - \frac{1}{K}\Bigr) \sum_s \omega_s x_{s f}^2

        K is the number of classes, and :math:`\omega_s` is the weight of node s. Edges are treated as independent. For
        table weights, the variance over pairs of labels of the coefficient of the weight takes the place of the
        variance of the indicator of a label.
        """
        # node_weights: sequence of (N,); returns: (n_coef,), float64
        total = np.zeros(self.n_coef)
        parts = self.unpack(total)
        variance = (1 - 1 / self.n_classes) / self.n_classes
        squares = np.zeros(len(self.pairs.ptr) - 1)
        for example, weight in zip(examples, node_weights, strict=True):
            add_squares(example.node_features, weight, squares)
            if self.fit_intercept:
                for node_type, nodes in self._group_nodes_by_type(example):
                    parts.intercept[node_type] += variance * weight[nodes].sum()
        parts.coef[...] = variance * np.repeat(squares, np.diff(self.pairs.ptr))
        mean = self.form.adjoint(np.full(self.form.sign.shape, 1 / self.n_classes**2))
        mean_square = self.form.adjoint(self.form.sign / self.n_classes**2)
        of_edges = [weight[example.graph.edges[:, 0]] for example, weight in zip(examples, node_weights, strict=True)]
        self._set_edge_curvature(parts.edge_coef, examples, of_edges, mean_square - mean**2)
        return total

    def _set_edge_curvature(self, edge_coef, examples, edge_weights, variance):
        """Add the curvature of edge weights to ``edge_coef``.

        ``variance`` (P,) is the curvature for an edge whose weight and feature are 1.
        """
        for example, weight in zip(examples, edge_weights, strict=True):
            edge_type = np.zeros(len(weight), dtype=np.int32) if example.edge_type is None else example.edge_type
            features = np.ones((len(weight), 1)) if example.edge_features is None else example.edge_features
            squares = features.astype(np.float64) ** 2 * weight[:, np.newaxis]
            for t in range(self.n_edge_types):
                edge_coef[t] += squares[edge_type == t].sum(axis=0)[:, np.newaxis] * variance

    def split_shared_ranges(self, examples):
        """Split features into ranges with about equal numbers of entries."""
        return split_features_evenly([example.node_features for example in examples], self.pairs)


def add_squares(features, weight, squares):
    """Add the weighted sum of squares of each feature to ``squares``."""
    # weight: (n_rows,); squares: (n_features,) float64, updated in place by addition
    if len(features.feature):
        entries = weight[features.node]
        if len(features.value):
            entries = entries * features.value.astype(np.float64) ** 2
        squares[features.feature] += np.add.reduceat(entries, features.ptr[:-1])


def add_scores(features, pairs, weights, scores):
    """Add the weights of the features of each row to its scores."""
    # weights: (n_pairs,); scores: (n_rows, n_columns) float64, updated in place by addition
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    pair_scores(*features.arrays, pairs.ptr, pairs.column, weights, scores, allocate_workspace(pairs.n_columns))


def add_gradient(features, pairs, columns, gradient, limits=None):
    """Add the products of features and statistics to the gradient, the adjoint of :func:`add_scores`."""
    # columns: (n_rows, n_columns); gradient: (n_pairs,) float64, updated in place by addition
    # limits: range of features to process, or None for all features
    columns = np.ascontiguousarray(columns, dtype=np.float64)
    start, stop = (0, len(features.feature)) if limits is None else np.searchsorted(features.feature, limits)
    work = allocate_workspace(pairs.n_columns)
    pair_gradient(*features.arrays, start, stop, pairs.ptr, pairs.column, columns, gradient, work)


def add_gradients(blocks, pairs, gradient, ranges, n_jobs):
    """Call :func:`add_gradient` for many blocks in order, in threads that each process a range of features."""
    # blocks: list of pairs of features and statistics; gradient: (n_pairs,) float64, updated in place by addition

    def run(limits, n_threads):
        for features, columns in blocks:
            add_gradient(features, pairs, columns, gradient, limits)

    map_tasks(run, ranges, n_jobs)


def split_features_evenly(columns, pairs):
    """Return ranges of features with about equal numbers of entries."""
    n_features = len(pairs.ptr) - 1
    entries = np.zeros(n_features, dtype=np.int64)
    for features in columns:
        entries[features.feature] += np.diff(features.ptr)
    ends = np.cumsum(entries)
    wanted = np.arange(1, _N_RANGES) * (ends[-1] / _N_RANGES if n_features else 0)
    return list(pairwise([0, *np.searchsorted(ends, wanted).tolist(), n_features]))


def convert_to_feature_columns(example, n_node_types):
    """Convert the node features of an example to :class:`FeatureColumns`, and drop edge features that are all 1."""
    if isinstance(example.node_features, FeatureColumns):
        return example
    edge_features = example.edge_features
    if edge_features is not None and edge_features.shape[1] == 1 and np.all(edge_features == 1):
        edge_features = None
    columns = build_feature_columns(example.node_features, example.node_type if n_node_types > 1 else None)
    return replace_fields(example, node_features=columns, edge_features=edge_features)


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
