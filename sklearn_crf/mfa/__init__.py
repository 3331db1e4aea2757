"""Mixtures of factor analysers trained by multi-conditional likelihoods."""

from sklearn_crf.mfa._estimator import MultiConditionalMFA, alpha_path
from sklearn_crf.mfa._parameters import Priors
from sklearn_crf.mfa._solvers import EM, ScaledLBFGS, ScaledSGD

__all__ = ["EM", "MultiConditionalMFA", "Priors", "ScaledLBFGS", "ScaledSGD", "alpha_path"]
