"""Inference: algorithms that compute labelings, marginals or samples from the scores of a model."""

from sklearn_crf.inference._base import Inference, convergence_left_to_caller
from sklearn_crf.inference._results import Labeling, Marginals
from sklearn_crf.inference.automatic._cost import exact_inference
from sklearn_crf.inference.automatic._map import AutoMap
from sklearn_crf.inference.automatic._marginals import AutoMarginals
from sklearn_crf.inference.automatic._names import (
    NAMES,
    NamedInference,
    choose_able_inference,
    choose_labeling_rule,
    resolve_inference,
)
from sklearn_crf.inference.bounds._couplings import best_coupling_statistics, best_couplings
from sklearn_crf.inference.bounds._edge_entropy import (
    EdgeEntropyBP,
    edge_shared_bound,
    nodes_of_edge_shares,
    optimise_edge_shares,
)
from sklearn_crf.inference.bounds._factor_parts import FactorParts, choose_component_forests, divide_scores
from sklearn_crf.inference.bounds._shared_bound import SharedBound, mutual_information
from sklearn_crf.inference.bounds._tighten_bound import (
    TightenBound,
    TightenedBound,
    compute_consistent_statistics,
    tighten_with_information,
)
from sklearn_crf.inference.cuts._alpha_expansion import AlphaBetaSwap, AlphaExpansion
from sklearn_crf.inference.cuts._fusion import fuse_labelings
from sklearn_crf.inference.cuts._graph_cut import CutState, GraphCut
from sklearn_crf.inference.exact._best_labelings import BestLabelings, TreeBestLabelings
from sklearn_crf.inference.exact._brute_force import BruteForce, n_labelings, score_all_labelings
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._linear_program import LinearProgram
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.gaussian._base import GaussianInference, GaussianMarginals, Solution
from sklearn_crf.inference.gaussian._belief_propagation import GaussianBP, GaussianMessages
from sklearn_crf.inference.gaussian._conjugate_gradient import ConjugateGradient
from sklearn_crf.inference.gaussian._direct import GaussianDirect
from sklearn_crf.inference.gaussian._gibbs import GaussianGibbs
from sklearn_crf.inference.local._dense_mean_field import DenseMeanField
from sklearn_crf.inference.local._gibbs import GibbsSampler, gibbs_sweeps
from sklearn_crf.inference.local._icm import ICM, compute_conditional_scores
from sklearn_crf.inference.local._mean_field import MeanField
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._belief_propagation import LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages._counting_numbers import CountingNumbers
from sklearn_crf.inference.messages._factor_messages import FactorMessages
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._norm_product import NormProductBP
from sklearn_crf.inference.messages._trws import TRWS, TRWSState
from sklearn_crf.inference.relaxations._ad3 import AD3, AD3State
from sklearn_crf.inference.relaxations._cluster_tightening import ClusterTightening
from sklearn_crf.inference.relaxations._cycle_relaxation import CycleRelaxation
from sklearn_crf.inference.relaxations._dual_decomposition import DualDecomposition, DualDecompositionState
from sklearn_crf.inference.relaxations._incmp import IncMP, IncMPState

__all__ = [
    "AD3",
    "ICM",
    "MPLP",
    "TRWS",
    "AlphaBetaSwap",
    "AlphaExpansion",
    "AutoMap",
    "AutoMarginals",
    "BruteForce",
    "ClusterTightening",
    "ConjugateGradient",
    "CountingNumbers",
    "CycleRelaxation",
    "DenseMeanField",
    "DualDecomposition",
    "EdgeEntropyBP",
    "GaussianBP",
    "GaussianDirect",
    "GaussianGibbs",
    "GibbsSampler",
    "GraphCut",
    "IncMP",
    "Inference",
    "JunctionTree",
    "Labeling",
    "LargeNeighborhoodSearch",
    "LinearProgram",
    "LoopyBP",
    "Marginals",
    "MeanField",
    "NormProductBP",
    "TRWMessagePassing",
    "TightenBound",
    "TreeBestLabelings",
    "TreeInference",
    "convergence_left_to_caller",
    "exact_inference",
    "fuse_labelings",
    "resolve_inference",
]
