"""Kernels of linear-programming relaxations."""
