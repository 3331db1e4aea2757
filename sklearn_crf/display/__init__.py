"""Matplotlib displays of examples, fitted fields and their training."""

from sklearn_crf.display._field import FieldDisplay
from sklearn_crf.display._summaries import (
    CouplingAuditDisplay,
    MarginalEntropyDisplay,
    PairwiseTablesDisplay,
    ReliabilityDisplay,
    TopWeightsDisplay,
)
from sklearn_crf.display._trace import TrainingTraceDisplay

__all__ = [
    "CouplingAuditDisplay",
    "FieldDisplay",
    "MarginalEntropyDisplay",
    "PairwiseTablesDisplay",
    "ReliabilityDisplay",
    "TopWeightsDisplay",
    "TrainingTraceDisplay",
]
