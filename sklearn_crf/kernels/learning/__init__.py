"""Kernels of objectives: features, scores, statistics and gradients."""
