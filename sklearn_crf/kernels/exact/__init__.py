"""Kernels of elimination: junction trees, best labelings and samples."""
