"""Kernels of chains: marginals, labels, samples and likelihoods."""
