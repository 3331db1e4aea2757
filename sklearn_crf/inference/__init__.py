"""Inference: scores in, labels, marginals or samples out."""

from sklearn_crf.inference._base import Inference, Labeling, Marginals
from sklearn_crf.inference._brute_force import BruteForce

__all__ = ["BruteForce", "Inference", "Labeling", "Marginals"]
