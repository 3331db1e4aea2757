"""Discriminative random fields with the scikit-learn interface."""

from sklearn_crf.examples import Example
from sklearn_crf.graphs import Graph

__all__ = ["Example", "Graph"]
