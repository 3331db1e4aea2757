"""Kernels of fields that join all pairs of points."""
