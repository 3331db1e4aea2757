"""Discriminative random fields with the scikit-learn interface."""

from sklearn_crf._energies import marginals, solve
from sklearn_crf.encoding import Example
from sklearn_crf.estimators.contrastive import ContrastiveCRF
from sklearn_crf.estimators.drf import DRFClassifier
from sklearn_crf.estimators.m3n import M3NClassifier
from sklearn_crf.estimators.trw import TRWCRF
from sklearn_crf.graphs import Graph
from sklearn_crf.mfa import MultiConditionalMFA
from sklearn_crf.rtf import RegressionTreeField, RegressionTreeFieldClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "TRWCRF",
    "ContrastiveCRF",
    "DRFClassifier",
    "Example",
    "Graph",
    "M3NClassifier",
    "MultiConditionalMFA",
    "RegressionTreeField",
    "RegressionTreeFieldClassifier",
    "marginals",
    "solve",
]
