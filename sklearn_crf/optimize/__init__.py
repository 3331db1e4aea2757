"""Optimizers: plain functions on vectors that know nothing of fields, and return scipy's OptimizeResult."""

from sklearn_crf.optimize._adagrad import AdaGradState, adagrad_steps
from sklearn_crf.optimize._bundle import bmrm, one_slack
from sklearn_crf.optimize._cutting_plane import cutting_plane
from sklearn_crf.optimize._cycles import CycleDetector, detect_cycle
from sklearn_crf.optimize._exponentiated_gradient import exponentiated_gradient
from sklearn_crf.optimize._frank_wolfe import frank_wolfe
from sklearn_crf.optimize._gradient_ascent import gradient_ascent
from sklearn_crf.optimize._iterates import UNPROVEN
from sklearn_crf.optimize._lbfgs import minimize_lbfgs, scaling_by_differences
from sklearn_crf.optimize._owlqn import minimize_owlqn
from sklearn_crf.optimize._pqn import minimize_pqn
from sklearn_crf.optimize._sgd import minimize_sgd
from sklearn_crf.optimize._spg import minimize_spg
from sklearn_crf.optimize._subgradient import subgradient

__all__ = [
    "UNPROVEN",
    "AdaGradState",
    "CycleDetector",
    "adagrad_steps",
    "bmrm",
    "cutting_plane",
    "detect_cycle",
    "exponentiated_gradient",
    "frank_wolfe",
    "gradient_ascent",
    "minimize_lbfgs",
    "minimize_owlqn",
    "minimize_pqn",
    "minimize_sgd",
    "minimize_spg",
    "one_slack",
    "scaling_by_differences",
    "subgradient",
]
