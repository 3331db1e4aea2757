"""Factor graphs: scores of labelings as a sum over factors of any arity."""

from sklearn_crf.factor_graphs._graph import ArityGroup, FactorGraph
from sklearn_crf.factor_graphs._pairwise import factor_graph_of, pairwise_model_of, pairwise_statistics
from sklearn_crf.factor_graphs._scores import FactorStatistics, add_cells
from sklearn_crf.factor_graphs._tables import (
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
from sklearn_crf.factor_graphs._union import union_of_factors

__all__ = [
    "COUNT",
    "DENSE",
    "SPARSE",
    "ArityGroup",
    "CountTable",
    "FactorGraph",
    "FactorStatistics",
    "SparseTable",
    "add_cells",
    "at_least_one",
    "at_most_one",
    "exactly_one",
    "factor_graph_of",
    "numbers_of_states",
    "pairwise_model_of",
    "pairwise_statistics",
    "states_of_cells",
    "union_of_factors",
]
