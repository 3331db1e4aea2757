"""Displays of examples, of fitted fields and of their training, drawn with matplotlib."""

from sklearn_crf.display._field import FieldDisplay
from sklearn_crf.display._summaries import (
    CouplingAuditDisplay,
    MarginalEntropyDisplay,
    PairwiseTablesDisplay,
    ReliabilityDisplay,
)
from sklearn_crf.display._trace import TrainingTraceDisplay

__all__ = [
    "CouplingAuditDisplay",
    "FieldDisplay",
    "MarginalEntropyDisplay",
    "PairwiseTablesDisplay",
    "ReliabilityDisplay",
    "TrainingTraceDisplay",
]
