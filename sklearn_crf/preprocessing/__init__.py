"""Transformers on lattices, in scikit-learn's sense."""

from sklearn_crf.preprocessing._pixel_features import PixelFeatures

__all__ = ["PixelFeatures"]
