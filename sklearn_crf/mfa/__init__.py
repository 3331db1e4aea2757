"""Mixtures of factor analysers trained by multi-conditional likelihoods."""

from sklearn_crf.mfa._estimator import MultiConditionalMFA

__all__ = ["MultiConditionalMFA"]
