"""Metrics, reports and scorers for structured y, in which every labelled node, or every entity, counts once."""

from sklearn_crf.metrics._entities import (
    Entity,
    EntityScore,
    entities,
    entity_f1_score,
    entity_labels,
    entity_scores,
    find_continuations,
    sequence_classification_report,
)
from sklearn_crf.metrics._nodes import (
    NODE_SCORERS,
    NodeScorer,
    flatten_nodes,
    make_node_scorer,
    node_accuracy_score,
    node_classification_report,
    node_f1_score,
    node_jaccard_score,
    node_log_likelihood_score,
)

__all__ = [
    "NODE_SCORERS",
    "entities",
    "entity_f1_score",
    "entity_labels",
    "entity_scores",
    "make_node_scorer",
    "node_accuracy_score",
    "node_classification_report",
    "node_f1_score",
    "node_jaccard_score",
    "node_log_likelihood_score",
    "sequence_classification_report",
]
