"""Potentials: weights and features in, a model out, and the adjoint of that."""

from sklearn_crf.potentials._linear import LinearPotentials
from sklearn_crf.potentials._pairwise_forms import PAIRWISE_FORMS, PairwiseForm, pairwise_form

__all__ = ["PAIRWISE_FORMS", "LinearPotentials", "PairwiseForm", "pairwise_form"]
