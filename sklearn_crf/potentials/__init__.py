"""Potentials: functions from weights and features to models, with their adjoints."""

from sklearn_crf.potentials._edge_costs import add_edge_costs
from sklearn_crf.potentials._extended import ExtendedPotentials
from sklearn_crf.potentials._factors import (
    FactorPotentials,
    FactorType,
    check_factors,
    collect_factor_types,
    join_factor_types,
    states_of,
)
from sklearn_crf.potentials._feature_columns import FeatureColumns, FeaturePairs, build_feature_columns
from sklearn_crf.potentials._feature_scaling import FeatureBulk, FeatureMoments, FeatureScaling, warn_of_small_features
from sklearn_crf.potentials._linear import LinearPotentials
from sklearn_crf.potentials._pairwise_tables import (
    ENTITY_SCHEMES,
    PAIRWISE_FORMS,
    PairwiseForm,
    PairwiseTables,
    make_pairwise_form,
)
from sklearn_crf.potentials._segments import SegmentPotentials, Segments
from sklearn_crf.potentials._sparse import (
    SparseEdgePotentials,
    SparsePotentials,
    convert_to_edge_columns,
    convert_to_feature_columns,
)
from sklearn_crf.potentials._weight_layout import WeightLayout, check_fitted_weights

__all__ = ["PairwiseTables", "Segments"]
