"""Mixtures of factor analysers: densities, posteriors, criteria, their gradients, and expectation-maximisation."""
