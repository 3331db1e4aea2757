"""Kernels of local methods: pseudolikelihood, mean field, sampling and search."""
