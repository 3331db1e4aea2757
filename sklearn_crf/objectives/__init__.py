"""Objectives: losses that training minimises, computed from a model and labels, with their derivatives."""

from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives._risk import EmpiricalRisk, RiskValue
from sklearn_crf.objectives._sharded_risk import ShardedRisk
from sklearn_crf.objectives.contrastive._assignment_sets import AssignmentSets
from sklearn_crf.objectives.contrastive._block_likelihood import BlockLikelihood
from sklearn_crf.objectives.contrastive._contrastive_sets import ContrastiveSets, SetsOfBatches
from sklearn_crf.objectives.contrastive._generators import Generator, GibbsGenerator, MapGenerator, MostViolated
from sklearn_crf.objectives.fast_paths import FastRisk, plane_oracle
from sklearn_crf.objectives.likelihood._discrete import ContrastiveDivergence, MaximumMarginal, SaddlePoint
from sklearn_crf.objectives.likelihood._dual_blocks import DualBlock
from sklearn_crf.objectives.likelihood._joint_risk import (
    EdgeProbabilityRisk,
    JointHingeRisk,
    JointRisk,
    RiskLessObserved,
    choose_trees,
    chooses_trees,
    make_tangent,
)
from sklearn_crf.objectives.likelihood._likelihood import (
    FreeLikelihood,
    Likelihood,
    ObservedLogPartition,
    RelaxedLikelihood,
    loss_and_gradient,
)
from sklearn_crf.objectives.likelihood._piecewise import Piecewise, SharedPieces, set_best_edge_shares
from sklearn_crf.objectives.likelihood._pseudolikelihood import Pseudolikelihood, mask_known_surroundings
from sklearn_crf.objectives.likelihood._truncated import JointCost, TruncatedLoss
from sklearn_crf.objectives.margin._costs import (
    SoftmaxMargin,
    apply_temperature,
    complete_labels,
    loss_augmented,
    replace_likelihood,
)
from sklearn_crf.objectives.margin._forest_planes import ForestDual, ForestPlanes
from sklearn_crf.objectives.margin._hinges import RelaxedHinge, StructuredHinge
from sklearn_crf.objectives.margin._planes import PlaneOracle, ShardPlanes, make_blocks, split_risk_into_blocks
from sklearn_crf.objectives.margin._slack_rescaling import SlackRescaledHinge

__all__ = [
    "AssignmentSets",
    "BlockLikelihood",
    "ContrastiveSets",
    "GibbsGenerator",
    "Likelihood",
    "Loss",
    "MapGenerator",
    "Objective",
    "Pseudolikelihood",
    "SaddlePoint",
    "loss_and_gradient",
]
