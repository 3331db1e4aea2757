"""Models that score the labelings of a graph: pairwise, dense and Gaussian models, and factor graphs."""

from sklearn_crf.models._auxiliary import ExpandedFactors, expand_factors, rescore
from sklearn_crf.models._conversion import (
    convert_to_pairwise_statistics,
    extract_components,
    extract_nodes,
    factor_graph_of,
    models_of_parts,
    pairwise_model_of,
)
from sklearn_crf.models._dense import DenseModel
from sklearn_crf.models._factor_graph import FactorGraph, build_trusted_factor_graph, replace_scores
from sklearn_crf.models._factor_scores import (
    FactorStatistics,
    SmallFactors,
    add_cells,
    compute_changed_scores,
    expand_tables,
    split_into_tables,
    unite_factors,
)
from sklearn_crf.models._factor_tables import (
    COUNT,
    DENSE,
    SPARSE,
    CountTable,
    SparseTable,
    at_least_one,
    at_most_one,
    decode_cells,
    exactly_one,
    numbers_of_states,
)
from sklearn_crf.models._gaussian import GaussianModel
from sklearn_crf.models._pairwise import (
    EdgeLayout,
    PairwiseModel,
    Statistics,
    are_potts,
    build_model_with_layout,
    cache_with_layout,
    check_allowed_states,
    check_labels,
    clamped,
    compute_label_excess,
    compute_labeling_difference,
    compute_labeling_statistics,
    compute_score_terms,
    count_pair_states,
    expand_edge_tables,
    replace_edge_weight,
    replace_unary,
    require_states,
    score,
    subtract_labeling,
)
from sklearn_crf.models._permutohedral import PermutohedralFilter, pad_rows
from sklearn_crf.models._segments import (
    SegmentModel,
    SegmentStatistics,
    count_durations,
    find_label_runs,
    mark_short_runs,
)

__all__ = [
    "CountTable",
    "DenseModel",
    "FactorGraph",
    "GaussianModel",
    "PairwiseModel",
    "PermutohedralFilter",
    "SparseTable",
    "Statistics",
    "at_least_one",
    "at_most_one",
    "clamped",
    "exactly_one",
    "factor_graph_of",
    "pairwise_model_of",
    "score",
]
