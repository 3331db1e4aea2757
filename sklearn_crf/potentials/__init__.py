"""Potentials: functions from weights and features to models, with their adjoints."""

from sklearn_crf.potentials._entity_schemes import ENTITY_SCHEMES
from sklearn_crf.potentials._extended import ExtendedPotentials
from sklearn_crf.potentials._factor_types import FactorType, check_factors, collect_factor_types
from sklearn_crf.potentials._factors import FactorPotentials
from sklearn_crf.potentials._feature_bulk import FeatureBulk
from sklearn_crf.potentials._feature_columns import FeatureColumns, FeaturePairs, build_feature_columns
from sklearn_crf.potentials._feature_scaling import FeatureMoments, FeatureScaling, warn_of_small_features
from sklearn_crf.potentials._linear import LinearPotentials
from sklearn_crf.potentials._pairwise_tables import PAIRWISE_FORMS, PairwiseForm, PairwiseTables, make_pairwise_form
from sklearn_crf.potentials._segments import SegmentPotentials, Segments
from sklearn_crf.potentials._sparse import SparsePotentials, convert_to_feature_columns
from sklearn_crf.potentials._sparse_edges import SparseEdgePotentials, convert_to_edge_columns
from sklearn_crf.potentials._weight_layout import WeightLayout, check_fitted_weights

__all__ = ["PairwiseTables", "Segments"]
