"""Fully connected fields with Gaussian edges."""

from sklearn_crf.dense.permutohedral import PermutohedralFilter

__all__ = ["PermutohedralFilter"]
