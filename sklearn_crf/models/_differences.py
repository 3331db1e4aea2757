"""Comparison of a labeling with another labeling, with marginals, and by groups of edges."""

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import MAX_INT32, as_integer, as_integers
from sklearn_crf.kernels.labelings import changes_of_labelings, count_pairs, marginals_less_labels
from sklearn_crf.models._pairwise import (
    PairwiseModel,
    Statistics,
    check_labels,
    compute_labeling_statistics,
    compute_score_terms,
    get_kernel_weights,
)


@singledispatch
def compute_labeling_difference(model: Any, labels: ArrayLike, others: ArrayLike) -> tuple[np.ndarray, Any]:
    """Compare two labelings: return the score terms and statistics of ``labels`` minus those of ``others``."""
    # labels: (N,) of int; others: (N,) of int; returns: terms: (N,), float64, and statistics
    statistics = compute_labeling_statistics(model, labels).minus(compute_labeling_statistics(model, others))
    return compute_score_terms(model, labels) - compute_score_terms(model, others), statistics


@compute_labeling_difference.register
def _subtract_in_one_pass(
    model: PairwiseModel, labels: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, Statistics]:
    labels, others = check_labels(model, labels), check_labels(model, others)
    terms = np.empty(len(labels))
    unary, tables = np.zeros(model.unary.shape, dtype=model.dtype), np.zeros(model.tables.shape)
    edges = model.graph.edges, model.edge_type, get_kernel_weights(model)
    changes_of_labelings(model.unary, model.tables, *edges, labels, others, terms, unary, tables)
    return terms, Statistics(unary, tables)


def compute_label_excess(
    model: PairwiseModel, labels: np.ndarray, statistics: Statistics, log_z_terms: np.ndarray
) -> tuple[np.ndarray, Statistics, np.ndarray] | None:
    """Subtract the score terms and statistics of labels from log-partition terms and expected statistics.

    Return both differences, and the state with the largest marginal of each node; or None if a label is not a state.
    """
    # labels: (N,) of int; log_z_terms: (N,), float64; returns: terms: (N,), float64, excess, predicted: (N,), int32
    labels = as_integers(labels, "labels", shape=(model.n_nodes,), kinds="iub")
    marginals = np.ascontiguousarray(statistics.unary, dtype=model.dtype)
    log_z_terms = np.ascontiguousarray(log_z_terms, dtype=np.float64)
    shapes = marginals.shape, np.shape(statistics.tables), log_z_terms.shape
    if shapes != (model.unary.shape, model.tables.shape, labels.shape):
        raise ValueError(
            f"statistics and log_z_terms must have shapes {model.unary.shape}, {model.tables.shape} and {labels.shape} "
            f"for this model, got {', '.join(map(str, shapes))}."
        )
    excess, counts = np.empty_like(model.unary), np.zeros(model.tables.shape)
    terms, predicted = np.empty(len(excess)), np.empty(len(excess), dtype=np.int32)
    edges = model.graph.edges, model.edge_type, get_kernel_weights(model)
    given = labels, marginals, log_z_terms
    if not marginals_less_labels(model.unary, model.tables, *edges, *given, excess, counts, terms, predicted):
        return None
    return terms, Statistics(excess, statistics.tables - counts), predicted


def count_pair_states(model: PairwiseModel, labels: ArrayLike, edge_group: ArrayLike, n_groups: int) -> np.ndarray:
    """Return the derivatives of the score of a labeling by the tables, separately for each group of edges."""
    # labels: (N,) of int; edge_group: (E,) of int; returns: (n_groups, T, R, K, K), float64
    n_types = max(len(model.tables), 1)
    n_groups = as_integer(n_groups, "n_groups", highest=MAX_INT32 // n_types)
    edge_group = as_integers(edge_group, "edge_group", shape=(model.graph.n_edges,), lowest=0, highest=n_groups - 1)
    counts = np.zeros((n_groups * len(model.tables), *model.tables.shape[1:]))
    kind = model.edge_type + np.int32(n_types) * edge_group
    count_pairs(model.graph.edges, kind, get_kernel_weights(model), check_labels(model, labels), counts)
    return counts.reshape(n_groups, *model.tables.shape)
