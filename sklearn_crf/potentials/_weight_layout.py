"""Conversion between the fitted attributes of an estimator and flat weight vectors."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._own_methods import require_classes, require_numbers, require_optional_numbers
from sklearn_crf.potentials._factors import FactorPotentials, FactorType
from sklearn_crf.potentials._feature_columns import FeaturePairs
from sklearn_crf.potentials._linear import LinearPotentials
from sklearn_crf.potentials._pairwise_tables import PairwiseForm
from sklearn_crf.potentials._segments import SegmentPotentials, Segments
from sklearn_crf.potentials._sparse import SparseEdgePotentials, SparsePotentials


class WeightLayout(NamedTuple):
    """Layout of the weights of a field, which converts between fitted attributes and flat vectors."""

    form: PairwiseForm
    fit_intercept: bool
    forbidden: np.ndarray | None = None  # (K, K) bool, forbidden pairs of classes on edges
    forbidden_ends: np.ndarray | None = None  # (2, K) bool, forbidden classes of first nodes and of last nodes
    forbidden_by: str = ""  # name of the parameter that forbids classes, for errors
    # whether only pairs seen in training have node weights; if None, the number of pairs decides
    seen_only: bool | None = False
    seen_tables: bool = False  # whether only pairs of labels seen in training have table weights
    seen_only_on_edges: bool = True  # whether only pairs seen in training have weights of sparse edge features
    takes_factors: bool = False
    segments: Segments | None = None  # options of segments, if durations of runs have weights
    has_boundaries: bool = False  # whether the last two node features mark the first and last nodes of sequences

    def prepare_runs(self, prepare, encoded):
        """Return a function that prepares an example and, if features of runs have weights, adds these features."""
        kinds = None if self.segments is None else self.segments.feature_kinds
        return prepare if kinds is None else kinds.added_to(prepare, encoded.n_added)

    # Attributes ----------------------------------------------------------------------------------------------------

    def attributes(self, potentials, flat):
        """Convert a flat weight vector to fitted attributes."""
        if isinstance(potentials, SegmentPotentials):
            pairwise, durations, features = potentials.unpack(flat)
            own = {"duration_coef_": np.array(durations)}
            if features.size:
                own["segment_coef_"] = np.array(features)
            return self.attributes(potentials.pairwise, pairwise) | own
        if not isinstance(potentials, FactorPotentials):
            none: dict[str, dict] = {name: {} for name in _FACTOR_ATTRIBUTES} if self.takes_factors else {}
            return self._build_pairwise_attributes(potentials, flat) | none
        pairwise, factors = potentials.unpack(flat)
        return self._build_pairwise_attributes(potentials.pairwise, pairwise) | {
            "factor_coef_": {name: np.array(coef) for name, coef in factors.items()},
            "factor_states_": {kind.name: kind.states for kind in potentials.types},
            "factor_shapes_": {kind.name: kind.n_states for kind in potentials.types},
        }

    def _build_pairwise_attributes(self, potentials, flat):
        coef, intercept, edge_coef = potentials.unpack(flat)
        if not self.fit_intercept:
            intercept = np.zeros((potentials.n_node_types, potentials.n_columns))
        kept = self._shape_kept_coef(potentials, coef)
        attributes = dict(zip(("coef_", "boundary_coef_"), self._split_boundaries(kept, potentials), strict=True))
        attributes |= {"duration_coef_": None, "segment_coef_": None}
        attributes["intercept_"] = (intercept[0] if potentials.n_node_types == 1 else intercept).copy()
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.matrix(edge_coef)
            return {**attributes, "edge_coef_": edge_coef, "n_edge_types_": potentials.n_edge_types}
        return {**attributes, "edge_coef_": self.form.contract(potentials.form.expand(edge_coef))}

    def _split_boundaries(self, coef, potentials):
        """Split node weights into weights of the features of X, and weights of first and last nodes, if any."""
        if not self.has_boundaries:
            return coef, None
        if not sp.issparse(coef):
            return np.ascontiguousarray(coef[..., :-2]), np.ascontiguousarray(np.moveaxis(coef[..., -2:], -1, 0))
        places = np.arange(coef.shape[1]).reshape(potentials.n_node_types, -1)
        apart = coef[:, places[:, -2:].ravel()].toarray().T.reshape(potentials.n_node_types, 2, -1).swapaxes(0, 1)
        return coef[:, places[:, :-2].ravel()], np.array(apart[:, 0] if potentials.n_node_types == 1 else apart)

    def _get_node_coef(self, field):
        """Return the node weights of a fitted field, including the weights of first and last nodes."""
        coef = field.coef_
        if not self.has_boundaries:
            return coef
        if not sp.issparse(coef):
            return np.concatenate([coef, np.moveaxis(field.boundary_coef_, 0, -1)], axis=-1)
        n_features = count_inputs(field)
        apart = field.boundary_coef_.reshape(2, -1, coef.shape[0]).swapaxes(0, 1).reshape(-1, coef.shape[0]).T
        starts = range(0, coef.shape[1], n_features)
        parts = [(coef[:, s : s + n_features], apart[:, 2 * t : 2 * t + 2]) for t, s in enumerate(starts)]
        return sp.hstack([part for own in parts for part in own], format="csr")

    def _shape_kept_coef(self, potentials, coef):
        if isinstance(potentials, SparsePotentials):
            if self.seen_only or not potentials.pairs.are_all:
                return potentials.pairs.matrix(coef)
            coef = np.moveaxis(coef.reshape(potentials.n_node_types, -1, potentials.n_columns), 2, 1)
        return np.array(coef[0] if potentials.n_node_types == 1 else coef, order="C")

    # Prediction ----------------------------------------------------------------------------------------------------

    def build_fitted_potentials(self, field, encoded=None):
        """Build the potentials for the fitted weights of a field and the features of an encoded X."""
        pairwise = self._build_fitted_pairwise(field, encoded)
        if self.segments is not None:
            coef = _get_segment_coef(field)
            return SegmentPotentials(pairwise, self.segments, coef.shape[1])
        has_factors = encoded is not None and encoded.has_factors
        if not self.takes_factors or not (has_factors or _get_factor_coef(field)):
            return pairwise
        return FactorPotentials(pairwise, list(_build_fitted_types(field).values()))

    def _build_fitted_pairwise(self, field, encoded):
        n_classes, n_features = len(field.classes_), count_inputs(field) + 2 * self.has_boundaries
        coef = self._get_node_coef(field)
        n_node_types = field.intercept_.shape[0] if field.intercept_.ndim == 2 else 1
        sparse_edges = sp.issparse(field.edge_coef_)
        n_edge_types = field.n_edge_types_ if sparse_edges else field.edge_coef_.shape[0]
        options = {
            "n_edge_features": field.edge_coef_.shape[1] // (n_edge_types if sparse_edges else 1),
            "n_node_types": n_node_types,
            "n_edge_types": n_edge_types,
            "fit_intercept": self.fit_intercept,
            "forbidden": self.forbidden,
            "forbidden_ends": self.forbidden_ends,
        }
        n_table_weights = field.edge_coef_.shape[0 if sparse_edges else -1]
        if self.form.n_weights != n_table_weights:
            raise ValueError(
                f"pairwise={field.pairwise!r} has tables of {self.form.n_weights} weights, but the tables of the last "
                f"fit have {n_table_weights}: call fit without warm_start."
            )
        if sp.issparse(coef) and self.seen_only is not False:
            pairs = FeaturePairs.of_matrix(coef)
        elif sp.issparse(coef) or sparse_edges or (encoded is not None and encoded.is_sparse):
            pairs = FeaturePairs.all(n_features * n_node_types, coef.shape[-2])
        else:
            return LinearPotentials(n_features, n_classes, self.form, **options)
        if sparse_edges:
            all_pairs = FeaturePairs.all(field.edge_coef_.shape[1], n_table_weights)
            edge_pairs = FeaturePairs.of_matrix(field.edge_coef_) if self.seen_only_on_edges else all_pairs
            return SparseEdgePotentials(pairs, edge_pairs, n_features, n_classes, self.form, **options)
        return SparsePotentials(pairs, n_features, n_classes, self.form, **options)

    def flat(self, field, potentials):
        """Convert the fitted weights to a flat vector for given potentials, possibly of other training data."""
        if isinstance(potentials, SegmentPotentials):
            of_runs = field.duration_coef_, _get_segment_coef(field)
            return np.concatenate([self._flatten_pairwise(field, potentials.pairwise), *map(np.ravel, of_runs)])
        if not isinstance(potentials, FactorPotentials):
            return self._flatten_pairwise(field, potentials)
        parts, fitted = [self._flatten_pairwise(field, potentials.pairwise)], _build_fitted_types(field)
        for kind in potentials.types:
            parts.append(kind.weights_of(fitted.get(kind.name), _get_factor_coef(field).get(kind.name)).ravel())
        return np.concatenate(parts)

    def _flatten_pairwise(self, field, potentials):
        coef, n_features = self._get_node_coef(field), potentials.n_features
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


def check_fitted_weights(field: Any) -> None:
    """Raise ValueError unless the fitted attributes of a field are weights of consistent shapes."""
    classes, n_features, intercept = field.classes_, count_inputs(field), field.intercept_
    require_classes(classes)
    columns = {len(classes), 1} if len(classes) == 2 else {len(classes)}
    require_numbers("intercept_", intercept, *((n,) for n in columns), *((None, n) for n in columns))
    if sp.issparse(field.coef_):
        require_numbers("coef_", field.coef_, (intercept.shape[-1], intercept.size // intercept.shape[-1] * n_features))
    else:
        require_numbers("coef_", field.coef_, (*intercept.shape, n_features))
    require_numbers("edge_coef_", field.edge_coef_, (None,) * (2 if sp.issparse(field.edge_coef_) else 3))
    optional = {
        "boundary_coef_": (2, *intercept.shape),
        "decision_weight_": (len(classes),),
        "duration_coef_": (len(classes), None),
        "fill_values_": (field.n_features_in_,),
        "indicator_features_": (None,),
        "edge_fill_values_": (None,),
        "edge_indicator_features_": (None,),
        "segment_coef_": (len(classes), None),
        "voters_": (None, None),
    }
    present = {name: shape for name, shape in optional.items() if getattr(field, name, None) is not None}
    require_optional_numbers(field, present)
    for name, kind in _build_fitted_types(field).items():
        require_numbers(f"factor_coef_[{name!r}]", _get_factor_coef(field)[name], (kind.n_features, kind.n_listed + 1))


def count_inputs(field: Any) -> int:
    """Return the number of features of a fitted field, including the features that mark missing values."""
    marked = getattr(field, "indicator_features_", None)
    return field.n_features_in_ + (0 if marked is None else len(marked))


_FACTOR_ATTRIBUTES = ("factor_coef_", "factor_states_", "factor_shapes_")


def _get_factor_coef(field):
    """Return the fitted weights of each factor type, or an empty dict if learning did not support factors."""
    return getattr(field, "factor_coef_", {})


def _get_segment_coef(field: Any) -> np.ndarray:
    """Return the fitted weights of features of runs, (K, P), where P may be 0."""
    coef = getattr(field, "segment_coef_", None)
    return np.zeros((len(field.classes_), 0)) if coef is None else coef


def _build_fitted_types(field):
    """Return the factor types of a fitted field, as a dict by name."""
    return {
        name: FactorType(name, field.factor_shapes_[name], len(coef), field.factor_states_[name])
        for name, coef in _get_factor_coef(field).items()
    }
