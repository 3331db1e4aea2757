"""Optimizers of functions of vectors. They do not depend on graphical models, and return scipy's OptimizeResult."""

from sklearn_crf.optimize._bundle import bmrm, one_slack
from sklearn_crf.optimize._cutting_plane import cutting_plane
from sklearn_crf.optimize._exponentiated_gradient import exponentiated_gradient, maximize_dual
from sklearn_crf.optimize._frank_wolfe import frank_wolfe
from sklearn_crf.optimize._iterates import AT_LIMIT, UNPROVEN
from sklearn_crf.optimize._lbfgs import minimize_lbfgs, scaling_by_differences
from sklearn_crf.optimize._owlqn import compute_least_subgradient, minimize_owlqn
from sklearn_crf.optimize._pqn import minimize_pqn
from sklearn_crf.optimize._spg import minimize_spg
from sklearn_crf.optimize._steps import AdaGradState, CycleDetector, adagrad_steps, gradient_ascent, minimize_sgd
from sklearn_crf.optimize._subgradient import subgradient
from sklearn_crf.optimize._tuning import SHARE_LEFT

__all__ = [
    "minimize_owlqn",
]
