"""The weights of a field: flat vectors of potentials, and fitted attributes."""

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding import tie_constant_edges
from sklearn_crf.models import numbers_of_states
from sklearn_crf.potentials import (
    FactorPotentials,
    FactorType,
    FeaturePairs,
    LinearPotentials,
    PairwiseForm,
    SparseEdgePotentials,
    SparsePotentials,
    check_factors,
    factor_types,
    with_edge_columns,
    with_feature_columns,
)


class WeightLayout(NamedTuple):
    """Which weights a field has: from fitted attributes to flat vectors and back."""

    form: PairwiseForm
    fit_intercept: bool
    forbidden: np.ndarray | None = None  # (K, K) bool: pairs of classes that no edge may join
    seen_only: bool = False  # weights only for what occurs in training
    seen_only_on_edges: bool = True  # the same for sparse features of edges
    takes_factors: bool = False

    # Training ------------------------------------------------------------------------------------------------------

    def prepare(self, encoded):
        """Function that converts an example to the form that is fastest for many passes."""
        if encoded.has_sparse_edges:
            return partial(
                with_edge_columns, n_node_types=encoded.n_node_types, n_edge_types=max(encoded.n_edge_types, 1)
            )
        if encoded.is_sparse:
            return partial(with_feature_columns, n_node_types=encoded.n_node_types)
        return tie_constant_edges

    def check(self, batches, classes):
        """Raise ValueError where labels are a pair that no edge may join."""
        if self.forbidden is not None:
            _require_allowed(batches, self.forbidden, classes)

    def potentials(self, encoded, classes, batches):
        """Potentials for training on prepared batches."""
        pairwise = self._pairwise_potentials(encoded, classes, batches)
        if not encoded.has_factors:
            return pairwise
        types = factor_types(encoded.items, batches, len(classes))
        check_factors(encoded.items, types, len(classes))
        return FactorPotentials(pairwise, types)

    def _pairwise_potentials(self, encoded, classes, batches):
        n_classes, form = len(classes), self.form
        self.check(batches, classes)
        options = {
            "n_edge_features": max(encoded.n_edge_features, 1),
            "n_node_types": encoded.n_node_types,
            "n_edge_types": max(encoded.n_edge_types, 1),
            "fit_intercept": self.fit_intercept,
            "forbidden": self.forbidden,
        }
        if self.seen_only and not encoded.is_sparse:
            raise ValueError("weights='seen' needs sparse X, got dense features: use weights='all'.")
        if not (encoded.is_sparse or encoded.has_sparse_edges):
            return LinearPotentials(encoded.n_features, n_classes, form, **options)
        n_features = encoded.n_features * encoded.n_node_types
        if self.seen_only:
            seen = ((batch.example.node_features, _labels_that_count(batch)) for batch in batches)
            pairs = FeaturePairs.seen(n_features, n_classes, seen)
        else:
            pairs = FeaturePairs.all(n_features, 1 if n_classes == 2 else n_classes)
        if encoded.has_sparse_edges:
            edge_pairs = self._edge_pairs(batches, options["n_edge_features"] * options["n_edge_types"])
            return SparseEdgePotentials(pairs, edge_pairs, encoded.n_features, n_classes, form, **options)
        if self.seen_only:
            form = form.restricted(_seen_on_edges(batches, n_classes))
        return SparsePotentials(pairs, encoded.n_features, n_classes, form, **options)

    def _edge_pairs(self, batches, n_features):
        """Pairs of a sparse feature of edges and a weight of their tables."""
        if not self.seen_only_on_edges:
            return FeaturePairs.all(n_features, self.form.n_weights)
        seen = ((batch.example.edge_features, _table_weights(batch, self.form)) for batch in batches)
        return FeaturePairs.seen(n_features, self.form.n_weights, seen)

    # Attributes ----------------------------------------------------------------------------------------------------

    def attributes(self, potentials, flat):
        """Fitted attributes of a flat vector of weights."""
        if not isinstance(potentials, FactorPotentials):
            none = {name: {} for name in _FACTOR_ATTRIBUTES} if self.takes_factors else {}
            return self._pairwise_attributes(potentials, flat) | none
        pairwise, factors = potentials.unpack(flat)
        return self._pairwise_attributes(potentials.pairwise, pairwise) | {
            "factor_coef_": {name: np.array(coef) for name, coef in factors.items()},
            "factor_states_": {kind.name: kind.states for kind in potentials.types},
            "factor_shapes_": {kind.name: kind.n_states for kind in potentials.types},
        }

    def _pairwise_attributes(self, potentials, flat):
        coef, intercept, edge_coef = potentials.unpack(flat)
        if not self.fit_intercept:
            intercept = np.zeros((potentials.n_node_types, potentials.n_columns))
        attributes = {"coef_": self._kept_coef(potentials, coef)}
        attributes["intercept_"] = (intercept[0] if potentials.n_node_types == 1 else intercept).copy()
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.matrix(edge_coef)
            return {**attributes, "edge_coef_": edge_coef, "n_edge_types_": potentials.n_edge_types}
        return {**attributes, "edge_coef_": self.form.contract(potentials.form.expand(edge_coef))}

    def _kept_coef(self, potentials, coef):
        if isinstance(potentials, SparsePotentials):
            if self.seen_only:
                return potentials.pairs.matrix(coef)
            shape = potentials.n_node_types, potentials.n_features, potentials.n_columns
            coef = np.moveaxis(coef.reshape(shape), 2, 1)
        return np.array(coef[0] if potentials.n_node_types == 1 else coef, order="C")

    # Prediction ----------------------------------------------------------------------------------------------------

    def fitted_potentials(self, field, encoded=None):
        """Potentials of the fitted weights of a field, for the features of some encoded X."""
        pairwise = self._fitted_pairwise(field, encoded)
        if not self.takes_factors or not (field.factor_coef_ or (encoded is not None and encoded.has_factors)):
            return pairwise
        types = [
            FactorType(name, field.factor_shapes_[name], len(coef), field.factor_states_[name])
            for name, coef in field.factor_coef_.items()
        ]
        return FactorPotentials(pairwise, types)

    def _fitted_pairwise(self, field, encoded):
        n_classes, n_features = len(field.classes_), field.n_features_in_
        n_node_types = field.intercept_.shape[0] if field.intercept_.ndim == 2 else 1
        sparse_edges = sp.issparse(field.edge_coef_)
        n_edge_types = field.n_edge_types_ if sparse_edges else field.edge_coef_.shape[0]
        options = {
            "n_edge_features": field.edge_coef_.shape[1] // (n_edge_types if sparse_edges else 1),
            "n_node_types": n_node_types,
            "n_edge_types": n_edge_types,
            "fit_intercept": self.fit_intercept,
            "forbidden": self.forbidden,
        }
        n_table_weights = field.edge_coef_.shape[0 if sparse_edges else -1]
        if self.form.n_weights != n_table_weights:
            raise ValueError(
                f"pairwise={field.pairwise!r} has tables of {self.form.n_weights} weights, but those of the fit have "
                f"{n_table_weights}: call fit without warm_start."
            )
        if sp.issparse(field.coef_):
            pairs = FeaturePairs.of_matrix(field.coef_)
        elif sparse_edges or (encoded is not None and encoded.is_sparse):
            pairs = FeaturePairs.all(n_features * n_node_types, field.coef_.shape[-2])
        else:
            return LinearPotentials(n_features, n_classes, self.form, **options)
        if sparse_edges:
            edge_pairs = FeaturePairs.of_matrix(field.edge_coef_)
            return SparseEdgePotentials(pairs, edge_pairs, n_features, n_classes, self.form, **options)
        return SparsePotentials(pairs, n_features, n_classes, self.form, **options)

    def flat(self, field, potentials):
        """The fitted weights as a flat vector of potentials, which may have been made for other training data."""
        if not isinstance(potentials, FactorPotentials):
            return self._flat_pairwise(field, potentials)
        parts = [self._flat_pairwise(field, potentials.pairwise)]
        parts += [_weights_of_type(field, kind).ravel() for kind in potentials.types]
        return np.concatenate(parts)

    def _flat_pairwise(self, field, potentials):
        coef, n_features = field.coef_, field.n_features_in_
        if isinstance(potentials, SparsePotentials):
            if not sp.issparse(coef):
                types_apart = coef.reshape(potentials.n_node_types, -1, n_features)
                coef = np.moveaxis(types_apart, 1, 0).reshape(-1, potentials.n_node_types * n_features)
            coef = potentials.pairs.pick(coef)
        intercept = field.intercept_ if self.fit_intercept else np.zeros(0)
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.pick(field.edge_coef_)
        else:
            edge_coef = potentials.form.contract(self.form.expand(field.edge_coef_))
        return potentials.pack(coef, intercept, edge_coef)


_FACTOR_ATTRIBUTES = ("factor_coef_", "factor_states_", "factor_shapes_")


def _weights_of_type(field, kind):
    """The fitted weights of a type of factors that may have been collected from other training data."""
    coef = field.factor_coef_.get(kind.name)
    if coef is None:
        return np.zeros((kind.n_features, kind.n_listed + 1))
    if len(coef) != kind.n_features or not np.array_equal(field.factor_shapes_[kind.name], kind.n_states):
        raise ValueError(
            f"factors of type {kind.name!r} have nodes of {kind.n_states.tolist()} states and {kind.n_features} "
            f"features, in the former fit {field.factor_shapes_[kind.name].tolist()} and {len(coef)}."
        )
    listed = numbers_of_states(field.factor_states_[kind.name], kind.n_states)
    place = np.searchsorted(listed, kind.cells)
    known = np.append(listed, -1)[place] == kind.cells
    # States that were not listed share the last weight.
    return coef[:, np.append(np.where(known, place, len(listed)), len(listed))]


def _seen_on_edges(batches, n_classes):
    """Pairs of labels that occur on an edge, (K, K) of bool."""
    seen = np.zeros((n_classes, n_classes), dtype=bool)
    for batch in batches:
        tail, head, _ = _labelled_edges(batch)
        seen[tail, head] = True
    return seen


def _labels_that_count(batch):
    """Labels of nodes, -1 in examples of weight zero."""
    if batch.weight is None:
        return batch.labels
    return np.where(np.repeat(batch.weight > 0, np.diff(batch.node_ptr)), batch.labels, -1)


def _table_weights(batch, form):
    """Index of the table weight that the labels of each edge select, -1 for none."""
    tail, head = _labels_that_count(batch)[batch.example.graph.edges.T]
    known = (tail >= 0) & (head >= 0) & (form.sign[tail, head] != 0)
    return np.where(known, form.index[tail, head], -1)


def _labelled_edges(batch):
    """Labels of both ends, and the first node, of each edge whose ends are labelled and have positive weight."""
    edges, labels = batch.example.graph.edges, _labels_that_count(batch)
    tail, head = labels[edges[:, 0]], labels[edges[:, 1]]
    known = (tail >= 0) & (head >= 0)
    return tail[known], head[known], edges[known, 0]


def _require_allowed(batches, forbidden, classes):
    for batch in batches:
        tail, head, first_node = _labelled_edges(batch)
        wrong = np.flatnonzero(forbidden[tail, head])
        if len(wrong):
            member = np.searchsorted(batch.node_ptr, first_node[wrong[0]], side="right") - 1
            pair = classes[tail[wrong[0]]], classes[head[wrong[0]]]
            raise ValueError(
                f"y[{batch.members[member]}] has the labels {pair[0]} and {pair[1]} on an edge, a pair that forbidden "
                "names."
            )
