"""Kernels of mixtures of factor analysers."""
