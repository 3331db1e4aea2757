"""Likelihood, exact, relaxed and by pieces; pseudolikelihood; the rules of Kumar et al."""
