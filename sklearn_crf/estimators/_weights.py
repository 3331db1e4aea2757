"""Weights of a field: the potentials that they belong to, and how they are kept as attributes."""

from functools import partial

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding import tie_constant_edges
from sklearn_crf.estimators._formulations import nodes_together
from sklearn_crf.models import numbers_of_states
from sklearn_crf.potentials import (
    FactorPotentials,
    FactorType,
    FeaturePairs,
    LinearPotentials,
    SparseEdgePotentials,
    SparsePotentials,
    check_factors,
    factor_types,
    pairwise_form,
    with_edge_columns,
    with_feature_columns,
)


class FactorWeights:
    """Mixin before :class:`FieldClassifier` for examples that may have factors besides nodes and edges."""

    _takes_factors = True

    def _factor_batch_nodes(self):
        return 1 if self.solver == "sgd" else nodes_together(self.formulation, self.entropy)

    def _make_potentials(self, encoded, classes, batches):
        pairwise = super()._make_potentials(encoded, classes, batches)
        if not encoded.has_factors:
            return pairwise
        types = factor_types(encoded.items, batches, len(classes))
        check_factors(encoded.items, types, len(classes))
        return FactorPotentials(pairwise, types)

    def _fitted_potentials(self, encoded=None):
        pairwise = super()._fitted_potentials(encoded)
        if not self.factor_coef_ and (encoded is None or not encoded.has_factors):
            return pairwise
        types = [
            FactorType(name, self.factor_shapes_[name], len(coef), self.factor_states_[name])
            for name, coef in self.factor_coef_.items()
        ]
        return FactorPotentials(pairwise, types)

    def _weight_attributes(self, potentials, flat):
        if not isinstance(potentials, FactorPotentials):
            return super()._weight_attributes(potentials, flat) | {name: {} for name in _ATTRIBUTES}
        pairwise, factors = potentials.unpack(flat)
        return super()._weight_attributes(potentials.pairwise, pairwise) | {
            "factor_coef_": {name: np.array(coef) for name, coef in factors.items()},
            "factor_states_": {kind.name: kind.states for kind in potentials.types},
            "factor_shapes_": {kind.name: kind.n_states for kind in potentials.types},
        }

    def _flat_weights(self, potentials):
        if not isinstance(potentials, FactorPotentials):
            return super()._flat_weights(potentials)
        parts = [super()._flat_weights(potentials.pairwise)]
        parts += [self._weights_of_type(kind).ravel() for kind in potentials.types]
        return np.concatenate(parts)

    def _weights_of_type(self, kind):
        """The fitted weights of a type that may have been collected from other training data."""
        coef = self.factor_coef_.get(kind.name)
        if coef is None:
            return np.zeros((kind.n_features, kind.n_listed + 1))
        if len(coef) != kind.n_features or not np.array_equal(self.factor_shapes_[kind.name], kind.n_states):
            raise ValueError(
                f"factors of type {kind.name!r} have nodes of {kind.n_states.tolist()} states and {kind.n_features} "
                f"features, in the former fit {self.factor_shapes_[kind.name].tolist()} and {len(coef)}."
            )
        listed = numbers_of_states(self.factor_states_[kind.name], kind.n_states)
        place = np.searchsorted(listed, kind.cells)
        known = np.append(listed, -1)[place] == kind.cells
        # What was not listed had the weight of all others, the last.
        return coef[:, np.append(np.where(known, place, len(listed)), len(listed))]

    def _check_examples(self, encoded, potentials):
        if not isinstance(potentials, FactorPotentials):
            super()._check_examples(encoded, potentials)
        else:
            super()._check_examples(encoded, potentials.pairwise)
            check_factors(encoded.items, potentials.types, potentials.n_classes)


_ATTRIBUTES = ("factor_coef_", "factor_states_", "factor_shapes_")


class LinearWeights:
    """Mixin of field classifiers: from ``coef_``, ``intercept_``, ``edge_coef_`` to flat vectors and back.

    Sparse features get :class:`SparsePotentials`, whose weights are in the order of the features.
    """

    def _seen_only(self):
        """Whether weights are only for what occurs in training."""
        return False

    def _seen_only_on_edges(self):
        """Whether weights of sparse edge features are; None where these are not taken."""
        return None

    def _forbidden(self, classes):
        """(K, K) bool: pairs of classes that no edge may join; None for none."""
        return None

    def _base_form(self, n_classes):
        return pairwise_form(self.pairwise, n_classes)

    def _prepare_example(self, encoded):
        """Function that puts an example into the form that is quickest for many passes."""
        if encoded.has_sparse_edges:
            return partial(
                with_edge_columns, n_node_types=encoded.n_node_types, n_edge_types=max(encoded.n_edge_types, 1)
            )
        if encoded.is_sparse:
            return partial(with_feature_columns, n_node_types=encoded.n_node_types)
        return tie_constant_edges

    def _make_potentials(self, encoded, classes, batches):
        """Potentials for training on prepared batches."""
        n_classes, forbidden = len(classes), self._forbidden(classes)
        if forbidden is not None:
            _require_allowed(batches, forbidden, classes)
        form = self._base_form(n_classes)
        options = {
            "n_edge_features": max(encoded.n_edge_features, 1),
            "n_node_types": encoded.n_node_types,
            "n_edge_types": max(encoded.n_edge_types, 1),
            "fit_intercept": self.fit_intercept,
            "forbidden": forbidden,
        }
        if self._seen_only() and not encoded.is_sparse:
            raise ValueError("weights='seen' needs sparse X, got dense features: use weights='all'.")
        if not (encoded.is_sparse or encoded.has_sparse_edges):
            return LinearPotentials(encoded.n_features, n_classes, form, **options)
        n_features = encoded.n_features * encoded.n_node_types
        if self._seen_only():
            seen = ((batch.example.node_features, _labels_that_count(batch)) for batch in batches)
            pairs = FeaturePairs.seen(n_features, n_classes, seen)
        else:
            pairs = FeaturePairs.all(n_features, 1 if n_classes == 2 else n_classes)
        if encoded.has_sparse_edges:
            edge_pairs = self._edge_pairs(batches, form, options["n_edge_features"] * options["n_edge_types"])
            return SparseEdgePotentials(pairs, edge_pairs, encoded.n_features, n_classes, form, **options)
        if self._seen_only():
            form = form.restricted(_seen_on_edges(batches, n_classes))
        return SparsePotentials(pairs, encoded.n_features, n_classes, form, **options)

    def _edge_pairs(self, batches, form, n_features):
        """Pairs of a sparse feature of edges and a weight of their tables."""
        seen_only = self._seen_only_on_edges()
        if seen_only is None:
            raise ValueError(f"{type(self).__name__} takes dense edge features only, got sparse ones: TRWCRF has both.")
        if not seen_only:
            return FeaturePairs.all(n_features, form.n_weights)
        seen = ((batch.example.edge_features, _table_weights(batch, form)) for batch in batches)
        return FeaturePairs.seen(n_features, form.n_weights, seen)

    def _weight_attributes(self, potentials, flat):
        """``coef_``, ``intercept_`` and ``edge_coef_`` of a flat vector."""
        coef, intercept, edge_coef = potentials.unpack(flat)
        if not self.fit_intercept:
            intercept = np.zeros((potentials.n_node_types, potentials.n_columns))
        attributes = {"coef_": self._kept_coef(potentials, coef)}
        attributes["intercept_"] = (intercept[0] if potentials.n_node_types == 1 else intercept).copy()
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.matrix(edge_coef)
            return {**attributes, "edge_coef_": edge_coef, "n_edge_types_": potentials.n_edge_types}
        edge_coef = self._base_form(potentials.n_classes).contract(potentials.form.expand(edge_coef))
        return {**attributes, "edge_coef_": edge_coef}

    def _kept_coef(self, potentials, coef):
        if isinstance(potentials, SparsePotentials):
            if self._seen_only():
                return potentials.pairs.matrix(coef)
            shape = potentials.n_node_types, potentials.n_features, potentials.n_columns
            coef = np.moveaxis(coef.reshape(shape), 2, 1)
        return np.array(coef[0] if potentials.n_node_types == 1 else coef, order="C")

    def _fitted_potentials(self, encoded=None):
        """Potentials of the fitted weights, for the features of some encoded X."""
        n_classes = len(self.classes_)
        n_node_types = self.intercept_.shape[0] if self.intercept_.ndim == 2 else 1
        sparse_edges = sp.issparse(self.edge_coef_)
        n_edge_types = self.n_edge_types_ if sparse_edges else self.edge_coef_.shape[0]
        options = {
            "n_edge_features": self.edge_coef_.shape[1] // (n_edge_types if sparse_edges else 1),
            "n_node_types": n_node_types,
            "n_edge_types": n_edge_types,
            "fit_intercept": self.fit_intercept,
            "forbidden": self._forbidden(self.classes_),
        }
        form = self._base_form(n_classes)
        n_table_weights = self.edge_coef_.shape[0 if sparse_edges else -1]
        if form.n_weights != n_table_weights:
            raise ValueError(
                f"pairwise={self.pairwise!r} has tables of {form.n_weights} weights, but those of the fit have "
                f"{n_table_weights}: fit anew, without warm_start."
            )
        if sp.issparse(self.coef_):
            pairs = FeaturePairs.of_matrix(self.coef_)
        elif sparse_edges or (encoded is not None and encoded.is_sparse):
            pairs = FeaturePairs.all(self.n_features_in_ * n_node_types, self.coef_.shape[-2])
        else:
            return LinearPotentials(self.n_features_in_, n_classes, form, **options)
        if sparse_edges:
            edge_pairs = FeaturePairs.of_matrix(self.edge_coef_)
            return SparseEdgePotentials(pairs, edge_pairs, self.n_features_in_, n_classes, form, **options)
        return SparsePotentials(pairs, self.n_features_in_, n_classes, form, **options)

    def _flat_weights(self, potentials):
        """The fitted weights as a flat vector of potentials, which may have been made for other training data."""
        coef = self.coef_
        if isinstance(potentials, SparsePotentials):
            if not sp.issparse(coef):
                types_apart = coef.reshape(potentials.n_node_types, -1, self.n_features_in_)
                coef = np.moveaxis(types_apart, 1, 0).reshape(-1, potentials.n_node_types * self.n_features_in_)
            coef = potentials.pairs.pick(coef)
        intercept = self.intercept_ if self.fit_intercept else np.zeros(0)
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.pick(self.edge_coef_)
        else:
            edge_coef = potentials.form.contract(self._base_form(len(self.classes_)).expand(self.edge_coef_))
        return potentials.pack(coef, intercept, edge_coef)


def forbidden_pairs(pairs, classes):
    """Which pairs of classes are named.

    Parameters
    ----------
    pairs : array-like of shape (n_pairs, 2)
    classes : ndarray of shape (K,)

    Returns
    -------
    ndarray of shape (K, K) of bool

    Raises
    ------
    ValueError
        If the shape is another or a pair names what is no class.
    """
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"forbidden must have shape (n_pairs, 2), got {pairs.shape}.")
    unknown = pairs[~np.isin(pairs, classes)]
    if len(unknown):
        raise ValueError(f"forbidden names {unknown.tolist()[0]!r}, which is none of the classes {classes.tolist()}.")
    mask = np.zeros((len(classes), len(classes)), dtype=bool)
    mask[tuple(np.searchsorted(classes, pairs).T)] = True
    return mask


def _seen_on_edges(batches, n_classes):
    """(K, K) bool: which labels of the two ends of an edge occur together."""
    seen = np.zeros((n_classes, n_classes), dtype=bool)
    for batch in batches:
        tail, head, _ = _labelled_edges(batch)
        seen[tail, head] = True
    return seen


def _labels_that_count(batch):
    """Labels of the nodes, -1 for those of examples of weight zero."""
    if batch.weight is None:
        return batch.labels
    return np.where(np.repeat(batch.weight > 0, np.diff(batch.node_ptr)), batch.labels, -1)


def _table_weights(batch, form):
    """Weight of the table that each edge adds to by its labels, -1 for none."""
    tail, head = _labels_that_count(batch)[batch.example.graph.edges.T]
    known = (tail >= 0) & (head >= 0) & (form.sign[tail, head] != 0)
    return np.where(known, form.index[tail, head], -1)


def _labelled_edges(batch):
    """Labels of the two ends of the edges of which both are labelled and count, and the first nodes of these."""
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
