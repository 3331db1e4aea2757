"""Likelihoods (exact, relaxed, piecewise), pseudolikelihood, and the rules of Kumar et al. (2005)."""
