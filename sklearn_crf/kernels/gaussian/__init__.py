"""Kernels of Gaussian fields: products, solvers and statistics."""
