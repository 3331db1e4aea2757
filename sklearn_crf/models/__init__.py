"""Models that score the labelings of a graph: pairwise, dense and Gaussian models, and factor graphs."""

from sklearn_crf.models._conversion import (
    factor_graph_of,
    model_of_components,
    model_of_nodes,
    models_of_parts,
    pairwise_model_of,
    pairwise_statistics,
)
from sklearn_crf.models._dense import DenseModel
from sklearn_crf.models._differences import difference_of_labelings, excess_over_labels, pair_counts
from sklearn_crf.models._edge_layout import EdgeLayout
from sklearn_crf.models._factor_graph import FactorGraph
from sklearn_crf.models._factor_scores import FactorStatistics, add_cells, scores_given_others, union_of_factors
from sklearn_crf.models._factor_tables import (
    COUNT,
    DENSE,
    SPARSE,
    CountTable,
    SparseTable,
    at_least_one,
    at_most_one,
    exactly_one,
    numbers_of_states,
    states_of_cells,
)
from sklearn_crf.models._gaussian import GaussianModel
from sklearn_crf.models._pairwise import (
    PairwiseModel,
    Statistics,
    are_potts,
    check_allowed_states,
    check_labels,
    clamped,
    kept_with_layout,
    labeling_statistics,
    model_with_layout,
    score,
    score_terms,
    with_edge_weight,
    with_table_of_each_edge,
    with_unary,
)
from sklearn_crf.models._permutohedral import PermutohedralFilter, padded_rows
from sklearn_crf.models._segments import SegmentModel, SegmentStatistics, duration_counts, runs_of, too_short

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
