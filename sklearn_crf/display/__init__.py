"""Displays: one example as a field sees it, and how training went (they draw with matplotlib)."""

from sklearn_crf.display._field import FieldDisplay
from sklearn_crf.display._trace import TrainingTraceDisplay

__all__ = ["FieldDisplay", "TrainingTraceDisplay"]
