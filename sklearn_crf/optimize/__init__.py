"""Optimizers: plain functions on vectors that know nothing of fields, and return scipy's OptimizeResult."""

from sklearn_crf.optimize._cycles import CycleDetector, detect_cycle
from sklearn_crf.optimize._gradient_ascent import gradient_ascent
from sklearn_crf.optimize._lbfgs import minimize_lbfgs
from sklearn_crf.optimize._sgd import minimize_sgd
from sklearn_crf.optimize._spg import minimize_spg

__all__ = ["CycleDetector", "detect_cycle", "gradient_ascent", "minimize_lbfgs", "minimize_sgd", "minimize_spg"]
