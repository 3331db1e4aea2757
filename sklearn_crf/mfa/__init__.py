"""Mixtures of factor analysers trained by multi-conditional likelihoods."""

from sklearn_crf.mfa._estimator import MultiConditionalMFA
from sklearn_crf.mfa._parameters import Priors
from sklearn_crf.mfa._search import MultiConditionalMFACV, alpha_path
from sklearn_crf.mfa._solvers import EM, LBFGS, SGD

__all__ = ["EM", "LBFGS", "SGD", "MultiConditionalMFA", "MultiConditionalMFACV", "Priors", "alpha_path"]
