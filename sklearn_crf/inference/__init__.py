"""Inference: scores in, labels, marginals or samples out."""

from sklearn_crf.inference._ad3 import AD3, AD3State
from sklearn_crf.inference._alpha_expansion import AlphaBetaSwap, AlphaExpansion
from sklearn_crf.inference._automatic import AutoMap, AutoMarginals
from sklearn_crf.inference._base import (
    FactorMarginals,
    Inference,
    Labeling,
    Marginals,
    convergence_left_to_caller,
)
from sklearn_crf.inference._best_labelings import BestLabelings, TreeBestLabelings
from sklearn_crf.inference._brute_force import BruteForce, n_labelings, scored_labelings
from sklearn_crf.inference._conditional_scores import conditional_scores
from sklearn_crf.inference._conjugate_gradient import ConjugateGradient, Solution
from sklearn_crf.inference._counting_numbers import CountingNumbers
from sklearn_crf.inference._dual_decomposition import DualDecomposition, DualDecompositionState
from sklearn_crf.inference._edge_couplings import best_couplings
from sklearn_crf.inference._edge_entropy import EdgeEntropyBP
from sklearn_crf.inference._edge_shares import edge_shared_bound, edge_shares_of
from sklearn_crf.inference._factor_messages import FactorMessages
from sklearn_crf.inference._gaussian import GaussianInference, GaussianMarginals
from sklearn_crf.inference._gaussian_bp import GaussianBP, GaussianMessages
from sklearn_crf.inference._gaussian_direct import GaussianDirect
from sklearn_crf.inference._gaussian_gibbs import GaussianGibbs
from sklearn_crf.inference._gibbs import GibbsSampler, gibbs_sweeps
from sklearn_crf.inference._graph_cut import CutState, GraphCut
from sklearn_crf.inference._icm import ICM
from sklearn_crf.inference._incmp import IncMP, IncMPState
from sklearn_crf.inference._junction_tree import JunctionTree
from sklearn_crf.inference._linear_program import LinearProgram
from sklearn_crf.inference._loopy_bp import LoopyBP
from sklearn_crf.inference._mean_field import MeanField
from sklearn_crf.inference._mplp import MPLP
from sklearn_crf.inference._norm_product import NormProductBP
from sklearn_crf.inference._shared_bound import SharedBound, shared_bound, shares_of
from sklearn_crf.inference._tighten_bound import TightenBound, TightenedBound
from sklearn_crf.inference._tree import TreeInference
from sklearn_crf.inference._trw import TRWMessagePassing
from sklearn_crf.inference._trws import TRWS, TRWSState

__all__ = [
    "AD3",
    "ICM",
    "MPLP",
    "TRWS",
    "AD3State",
    "AlphaBetaSwap",
    "AlphaExpansion",
    "AutoMap",
    "AutoMarginals",
    "BestLabelings",
    "BruteForce",
    "ConjugateGradient",
    "CountingNumbers",
    "CutState",
    "DualDecomposition",
    "DualDecompositionState",
    "EdgeEntropyBP",
    "FactorMarginals",
    "FactorMessages",
    "GaussianBP",
    "GaussianDirect",
    "GaussianGibbs",
    "GaussianInference",
    "GaussianMarginals",
    "GaussianMessages",
    "GibbsSampler",
    "GraphCut",
    "IncMP",
    "IncMPState",
    "Inference",
    "JunctionTree",
    "Labeling",
    "LinearProgram",
    "LoopyBP",
    "Marginals",
    "MeanField",
    "NormProductBP",
    "SharedBound",
    "Solution",
    "TRWMessagePassing",
    "TRWSState",
    "TightenBound",
    "TightenedBound",
    "TreeBestLabelings",
    "TreeInference",
    "best_couplings",
    "conditional_scores",
    "convergence_left_to_caller",
    "edge_shared_bound",
    "edge_shares_of",
    "gibbs_sweeps",
    "n_labelings",
    "scored_labelings",
    "shared_bound",
    "shares_of",
]
