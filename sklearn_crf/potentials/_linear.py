"""Potentials that are linear in features and weights, for nodes and for pairwise tables."""

from copy import copy
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import gram, sum_columns
from sklearn_crf.encoding import Encoded, SharedRows, make_trusted_example, multiply_rows, sum_edges_of_example
from sklearn_crf.models import EdgeLayout, PairwiseModel, build_model_with_layout

# Maximum number of edges for which a copied edge layout is cached for all models of an example.
# With more edges, the memory of the copy matters more than the time that the cache saves.
_MOST_KEPT_EDGES = 2**16


class LinearWeights(NamedTuple):
    """Parts of the flat weight vector of linear potentials."""

    coef: np.ndarray  # (n_node_types, n_columns, n_features); n_columns is 1 for two classes
    intercept: np.ndarray  # (n_node_types, n_columns); empty without intercepts
    edge_coef: np.ndarray  # (n_edge_types, n_edge_features, n_table_weights), weights of the pairwise tables


class LinearPotentials:
    r"""Scores theta = B(x) w, linear in the weights w, and the adjoint B(x)' of this linear map.

    .. math::
        u_{s, k} = w_{t_s, k}^\top x_s + b_{t_s, k}, \qquad
        \theta_{t, r} = \mathrm{form}(v_{t, r}), \qquad w_{e r} = \mu_r(x_i, x_j)

    :math:`u_{s, k}` is the unary score of node s in state k, with the features :math:`x_s` and the type :math:`t_s` of
    the node. :math:`\theta_{t, r}` is the pairwise table of edge type t and edge feature r, built from its weights
    :math:`v_{t, r}`. The scores of edge e = (i, j) are the sum of these tables, each multiplied by the value
    :math:`w_{e r}` of its feature.

    Two classes share one weight vector: the unary scores are :math:`-z/2` and :math:`+z/2` for
    :math:`z = w^\top x + b`. A field without edges is thus logistic regression (Kumar et al. 2005, Eq. 3).
    """

    # forbidden: (K, K) of bool, pairs of states, or None
    # forbidden_ends: (2, K) of bool, states of the first and of the last nodes of chains, or None

    #: Whether the features of examples must be converted to storage by column before use.
    by_columns = False
    #: Whether edge features may be sparse.
    takes_sparse_edges = False
    #: Scales of the node features, (n_node_types, n_features), set by :class:`FeatureScaling`; None if all are 1.
    feature_scale = None
    #: Scales of the edge features divided by their sizes d_j in the penalty, (n_edge_types, n_edge_features);
    #: None if all these ratios are 1.
    edge_scale = None
    #: Scales of node and edge features divided by their robust spreads, None if spreads were not measured.
    #: The shapes are the shapes of ``feature_scale`` and ``edge_scale``.
    feature_tail = edge_tail = None
    #: Costs of errors that models add to the scores of edges, (n_kinds, K, K), or None.
    edge_costs: np.ndarray | None = None

    def __init__(
        self,
        n_features,
        n_classes,
        form,
        *,
        n_edge_features=1,
        n_node_types=1,
        n_edge_types=1,
        fit_intercept=True,
        forbidden=None,
        forbidden_ends=None,
    ):
        self.forbidden = forbidden
        self.forbidden_ends = forbidden_ends
        self.n_features = n_features
        self.n_classes = n_classes
        self.form = form
        self.n_edge_features = n_edge_features
        self.n_node_types = n_node_types
        self.n_edge_types = n_edge_types
        self.fit_intercept = fit_intercept
        self._coef_shape, self.n_columns = self._get_node_shape()
        self._intercept_shape = (n_node_types, self.n_columns if fit_intercept else 0)
        self._edge_shape: tuple[int, ...] = (n_edge_types, n_edge_features, form.n_weights)

    def check(self, encoded: Encoded, name: str) -> None:
        """Raise ValueError if examples have types, states or features that training examples did not have."""
        for i, example in enumerate(encoded.representatives):
            # With an unknown node type, an index would lie beyond the end of the array of weights.
            has_more_types = encoded.n_node_types > self.n_node_types and example.node_type is not None
            if has_more_types and example.node_type.max() >= self.n_node_types:
                raise ValueError(
                    f"X[{i}] has nodes of type {example.node_type.max()}, but {name} was fitted with "
                    f"{self.n_node_types} types of nodes, numbered from 0."
                )
            if example.n_states is not None and example.n_states.max() > self.n_classes:
                raise ValueError(
                    f"X[{i}].n_states goes up to {example.n_states.max()}, but there are {self.n_classes} classes."
                )
        if encoded.n_edge_types:
            self._check_edges(encoded, name)

    def _check_edges(self, encoded, name):
        if encoded.n_edge_types > self.n_edge_types:
            raise ValueError(
                f"X has {encoded.n_edge_types} types of edges, but {name} was fitted with {self.n_edge_types}."
            )
        if encoded.has_sparse_edges and not self.takes_sparse_edges:
            raise ValueError(f"X has sparse edge features, but {name} was fitted with dense edge features.")
        if encoded.n_edge_features != self.n_edge_features:
            raise ValueError(
                f"X has {encoded.n_edge_features} edge features, but {name} was fitted with {self.n_edge_features}."
            )

    def _get_node_shape(self):
        """Return the shape of the node weights, and the number of score columns."""
        n_columns = 1 if self.n_classes == 2 else self.n_classes
        return (self.n_node_types, n_columns, self.n_features), n_columns

    @property
    def n_coef(self):
        """Length of the flat weight vector."""
        return prod(self._coef_shape) + prod(self._intercept_shape) + prod(self._edge_shape)

    def unpack(self, coef):
        """Split a flat weight vector into its parts, which are views."""
        # coef: (n_coef,)
        first = prod(self._coef_shape)
        second = first + prod(self._intercept_shape)
        return LinearWeights(
            coef[:first].reshape(self._coef_shape),
            coef[first:second].reshape(self._intercept_shape),
            coef[second:].reshape(self._edge_shape),
        )

    def pack(self, coef, intercept, edge_coef):
        """Concatenate the parts to a flat weight vector, the inverse of :meth:`unpack`."""
        # returns: (n_coef,), float64
        shapes = self._coef_shape, self._intercept_shape, self._edge_shape
        parts = [np.reshape(part, shape) for part, shape in zip((coef, intercept, edge_coef), shapes, strict=True)]
        return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])

    @property
    def penalty(self):
        """Coefficient of each squared weight in the penalty, (n_coef,): 0 for intercepts, otherwise 1 / scale**2."""
        factors = np.ones(self.n_coef)
        self.unpack(factors).intercept[...] = 0.0
        if self.feature_scale is not None:
            self.unpack(factors).coef[...] /= self.feature_scale[:, np.newaxis] ** 2
        if self.edge_scale is not None:
            self.unpack(factors).edge_coef[...] /= self.edge_scale[..., np.newaxis] ** 2
        return factors

    @property
    def tails(self):
        """For each weight, the scale of its feature divided by the robust spread, (n_coef,); 1 without outliers."""
        lengths = np.ones(self.n_coef)
        if self.feature_tail is not None:
            self.unpack(lengths).coef[...] *= self.feature_tail[:, np.newaxis]
            self.unpack(lengths).edge_coef[...] *= self.edge_tail[..., np.newaxis]
        return lengths

    @property
    def on_edges(self):
        """Mask of the weights of pairwise tables, (n_coef,) bool."""
        mask = np.zeros(self.n_coef, dtype=bool)
        self.unpack(mask).edge_coef[...] = True
        return mask

    def model(self, coef, example, edges=None):
        """Return the model of an example for given weights."""
        # coef: (n_coef,)
        if edges is None:
            return self._model(coef, example)
        unary, tables = self.compute_scores_and_tables(coef, example)
        return build_model_with_layout(example.graph, unary, tables, edges)

    def unary(self, coef, example):
        """Return the unary scores of :meth:`model`, without -inf for labels forbidden at the ends of chains."""
        # coef: (n_coef,); returns: (N, K)
        unary = self._unary(self.unpack(np.asarray(coef)), example)
        return unary.astype(example.node_features.dtype, copy=False)

    def prepare_edges(self, example):
        """Build and check the edge layout that all models of an example share; return None if it is not cached."""
        is_shared = example.stores_edges and example.n_states is None and not example.has_factors
        if not is_shared or not example.graph.n_edges:
            return None
        (n_types, n_features), edge_type, edge_weight = self.compute_edge_layout(example)
        # A layout of edge types without edge weights needs no copy, so it is cached for any number of edges.
        if example.graph.n_edges > _MOST_KEPT_EDGES and (edge_type is None or edge_weight is not None):
            return None
        dtype = example.node_features.dtype
        return EdgeLayout.of(edge_type, edge_weight, example.graph.n_edges, n_types, n_features, dtype)

    def _model(self, coef, example, unary_of=None):
        unary, tables = self.compute_scores_and_tables(coef, example, unary_of)
        _, edge_type, edge_weight = self.compute_edge_layout(example)
        return PairwiseModel(
            example.graph, unary, tables, edge_type=edge_type, edge_weight=edge_weight, n_states=example.n_states
        )

    def compute_scores_and_tables(self, coef, example, unary_of=None):
        """Compute the unary scores and the pairwise tables of :meth:`model`, without checks."""
        # unary_of: function that computes the unary scores from weights; None uses ``_unary``
        # coef: (n_coef,); returns: unary: (N, K); tables: (T, R, K, K)
        weights, dtype = self.unpack(np.asarray(coef)), example.node_features.dtype
        tables = self._tables(weights, example)
        if self._needs_forbidding_feature(example):
            constraint = np.zeros((len(tables), 1, *tables.shape[2:]), dtype=tables.dtype)
            tables = np.concatenate([tables, self.forbid_pairs(constraint)], axis=1)
        else:
            tables = self.forbid_pairs(tables)
        unary = (unary_of or self._unary)(weights, example).astype(dtype, copy=False)
        return self.forbid_ends(unary, *example.graph.ends) if self.forbidden_ends is not None else unary, tables

    @property
    def forbids(self):
        """Whether any pair of labels, or any label at the ends of chains, is forbidden."""
        return self.forbidden is not None or self.forbidden_ends is not None

    def without_ends(self):
        """Return a copy of the potentials that allows all states at the ends of chains, for use on parts of chains."""
        found = copy(self)
        found.forbidden_ends = None
        return found

    def forbid_ends(self, unary, first, last):
        """Set the scores of forbidden classes at first and last nodes to -inf, in place."""
        # unary: (N, K); returns: (N, K)
        if self.forbidden_ends is not None:
            for nodes, is_forbidden in zip((first, last), self.forbidden_ends, strict=True):
                unary[np.ix_(nodes, np.flatnonzero(is_forbidden))] = -np.inf
        return unary

    def _needs_forbidding_feature(self, example):
        """Return whether forbidden pairs need an additional table, whose edge feature is 1 on all edges."""
        # If the only edge feature is positive on all edges, its table can contain -inf.
        if self.forbidden is None or self.takes_sparse_edges or not example.graph.n_edges:
            return False
        if self.n_edge_features > 1:
            return True
        return example.edge_features is not None and bool(np.min(example.edge_features) <= 0)

    def forbid_pairs(self, tables):
        """Return tables with -inf at the forbidden pairs."""
        # tables: (T, R, K, K); returns: (T, R, K, K)
        return tables if self.forbidden is None else np.where(self.forbidden, -np.inf, tables)

    def build_inference_model(self, coef, example):
        """Build a model with the scores of :meth:`model`, for inference only.

        If each table has a single weight and nothing is forbidden, the edge features are summed to one feature, which
        saves memory and time. The gradient with respect to the tables of this model is not the gradient with respect to
        the tables of :meth:`model`.
        """
        # coef: (n_coef,)
        one_feature = self.n_edge_features == 1 or not example.graph.n_edges
        if one_feature or self.form.n_weights > 1 or self.forbids:
            return self._model(coef, example, self._compute_part_unaries)
        weights = self.unpack(np.asarray(coef))
        return PairwiseModel(
            example.graph,
            self._compute_part_unaries(weights, example).astype(example.node_features.dtype, copy=False),
            self.form.expand(np.ones((1, 1, 1))),
            edge_weight=sum_edges_of_example(example, weights.edge_coef[..., 0]),
            n_states=example.n_states,
        )

    def _tables(self, weights, example):
        """Return the tables for the edges of an example."""
        return self.form.expand(weights.edge_coef)

    def compute_edge_layout(self, example):
        """Return the shape of a model's tables, and the types and weights of its edges."""
        # returns: shape: tuple of int; edge_type: (E,) or None; edge_weight: (E, R) or None
        n_features, features = self.n_edge_features, example.edge_features
        if self._needs_forbidding_feature(example):
            n_features += 1
            features = np.concatenate([features, np.ones((len(features), 1), dtype=features.dtype)], axis=1)
        return (self.n_edge_types, n_features), example.edge_type, features

    def find_touched_weights(self, example):
        """Return the indices of the weights on which the model of an example depends."""
        return slice(None)

    def pullback(self, example, statistics):
        """Return the gradient with respect to the weights, B(x)' times the gradient with respect to the scores."""
        # returns: (n_coef,), float64
        gradient = np.zeros(self.n_coef)
        parts = self.unpack(gradient)
        self._pull_nodes(parts, example, self._columns(statistics.unary))
        self._pull_edges(parts, example, statistics.tables)
        return gradient

    def _pull_edges(self, parts, example, tables):
        """Write the gradient with respect to the edge weights, given the gradient with respect to the tables."""
        parts.edge_coef[...] = self._compute_edge_gradient(tables)

    def _compute_edge_gradient(self, tables):
        """Convert the gradient with respect to the tables, (..., T, R, K, K), to the gradient of the edge weights."""
        # The additional table of forbidden pairs has no weights.
        return self.form.adjoint(tables[..., : self.n_edge_features, :, :])

    def pullback_each(self, example, statistics, node_ptr):
        """Return the gradient with respect to the weights, separately for each of m joined graphs.

        The sum of the results is the result of :meth:`pullback`.
        """
        # statistics.tables: (m, T, R, K, K)
        # node_ptr: (m + 1,), first node of each graph, followed by the number of nodes; returns: (m, n_coef), float64
        gradients = np.zeros((len(node_ptr) - 1, self.n_coef))
        columns, edge_coef = self._columns(statistics.unary), self._compute_edge_gradient(statistics.tables)
        for gradient, own, ends in zip(gradients, edge_coef, pairwise(node_ptr.tolist()), strict=True):
            parts, nodes = self.unpack(gradient), slice(*ends)
            parts.edge_coef[...] = own
            self._pull_nodes(parts, example, columns[nodes], nodes)
        return gradients

    def _unary(self, weights, example):
        scores = self._compute_score_columns(weights, example)
        if self.n_columns < self.n_classes:
            halves = np.empty((len(scores), 2), dtype=scores.dtype)
            np.multiply(scores[:, 0], scores.dtype.type(0.5), out=halves[:, 1])
            np.negative(halves[:, 1], out=halves[:, 0])
            return halves
        return scores

    def _compute_part_unaries(self, weights, example):
        """Return the unary scores of joined graphs, bit-identical to those of separate graphs if any graph has cycles.

        If the nodes of an example share one row of features, there are many small examples. The scores of all examples
        are then computed by one product.
        """
        parts = example.graph.parts
        # Rounding errors of dense matrix products depend on the number of rows, so compute one product per graph.
        is_dense = isinstance(example.node_features, np.ndarray)
        if len(parts) == 1 or example.graph.is_forest or not is_dense:
            return self._unary(weights, example)
        found, start = [], 0
        for part in parts:
            nodes = slice(start, start := start + part.n_nodes)
            node_type = None if example.node_type is None else example.node_type[nodes]
            found.append(
                self._unary(weights, make_trusted_example(example.node_features[nodes], part, None, node_type))
            )
        return np.concatenate(found)

    def _columns(self, unary):
        """Convert the gradient of unary scores, (N, K), to the gradient of score columns, (N, n_columns)."""
        if self.n_columns < self.n_classes:
            return (unary[:, 1:] - unary[:, :1]) * unary.dtype.type(0.5)
        return unary

    def _compute_score_columns(self, weights, example):
        """Return features times weights plus intercepts, (N, n_columns)."""
        if isinstance(example.node_features, SharedRows):
            scores = example.node_features.scores(weights.coef)
            if self.fit_intercept:
                scores.reshape(-1, weights.intercept.size)[...] += weights.intercept.ravel().astype(scores.dtype)
            return scores
        # With one node type, do not select rows, because for large images copying rows takes longer than the product.
        if self.n_node_types == 1:
            return self._multiply(weights, 0, example.node_features)
        scores = np.zeros((example.n_nodes, self.n_columns), dtype=example.node_features.dtype)
        for node_type, nodes in self._group_nodes_by_type(example):
            scores[nodes] = self._multiply(weights, node_type, example.node_features[nodes])
        return scores

    def _multiply(self, weights, node_type, features):
        """Compute the score columns of nodes of one type."""
        columns = multiply_rows(features, weights.coef[node_type])
        if self.fit_intercept:
            columns += weights.intercept[node_type].astype(features.dtype)
        return columns

    def _pull_nodes(self, parts, example, columns, nodes=slice(None)):
        """Write the gradient with respect to the node weights, given the gradient of the score columns of ``nodes``."""
        features = example.node_features[nodes]
        if isinstance(features, SharedRows):
            parts.coef[...], by_constant = features.gradient(columns)
            if self.fit_intercept:
                parts.intercept[...] = by_constant
            return
        for node_type, members in self._group_nodes_by_type(example, nodes):
            chosen = columns[members]
            parts.coef[node_type] = gram(features[members], chosen)
            if self.fit_intercept:
                parts.intercept[node_type] = sum_columns(chosen)

    def _group_nodes_by_type(self, example, nodes=slice(None)):
        if self.n_node_types == 1:
            return [(0, slice(None))]
        node_type = np.zeros(example.n_nodes, dtype=np.int32) if example.node_type is None else example.node_type
        node_type, n_types = node_type[nodes], self.n_node_types
        return [(t, np.flatnonzero(node_type == t)) for t in range(n_types)]
