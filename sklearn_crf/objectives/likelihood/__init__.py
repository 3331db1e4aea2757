"""Likelihoods (exact, relaxed, piecewise), pseudolikelihood, and the learning rules of Kumar et al. (2005)."""
