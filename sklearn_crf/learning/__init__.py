"""Learning methods, which train the weights of a field, and their solvers."""

from sklearn_crf.learning._contrastive_training import ContrastiveTraining
from sklearn_crf.learning._costs import (
    ErrorCost,
    cost_matrix,
    decision_costs,
    edge_cost,
    factor_costs,
    set_joint_costs,
    sort_costs,
)
from sklearn_crf.learning._edge_probabilities import OptimalEdgeProbabilities
from sklearn_crf.learning._labeler import Labeler, given, weigh_correct_nodes
from sklearn_crf.learning._learning import Learning
from sklearn_crf.learning._likelihood import (
    Exact,
    LoopyTraining,
    MaximumLikelihood,
    MeanFieldTraining,
    PiecewiseTraining,
    PseudoMarginalTraining,
    SharedPiecesTraining,
    TruncatedInference,
)
from sklearn_crf.learning._margin_training import (
    MARGIN_SOLVERS,
    BundleMethod,
    CuttingPlane,
    FrankWolfe,
    OneSlack,
    PlaneSolver,
    Subgradient,
)
from sklearn_crf.learning._margins import DualMargin, MaxMargin, RelaxedMargin, SmoothedMargin
from sklearn_crf.learning._names import LEARNING_CONSTRAINTS, LEARNINGS, find_learning_class, resolve_learning
from sklearn_crf.learning._plan import ONLINE_BATCH_SIZE, Facts, FitPlan, make_online_pass
from sklearn_crf.learning._pseudolikelihood import PseudolikelihoodTraining
from sklearn_crf.learning._relaxations import (
    DualRelaxation,
    JointRelaxation,
    Relaxation,
    Reparameterization,
)
from sklearn_crf.learning._reparameterized_margins import JointMargin, ReparameterizedMargin
from sklearn_crf.learning._solvers import LBFGS, SGD, SOLVERS, AnchoredBundle, GradientSteps, Solver
from sklearn_crf.learning._steps import ContrastiveDivergenceTraining, MaximumMarginalTraining, SaddlePointTraining
from sklearn_crf.learning._training import (
    HeldOutScores,
    PenalisedRisk,
    check_node_weights,
    compute_initial_weights,
    restore_units,
)

__all__ = [
    "LBFGS",
    "ContrastiveTraining",
    "ErrorCost",
    "Exact",
    "Learning",
    "MaxMargin",
    "MaximumMarginalTraining",
    "PiecewiseTraining",
    "PseudoMarginalTraining",
    "PseudolikelihoodTraining",
    "Relaxation",
    "SaddlePointTraining",
    "SmoothedMargin",
    "Subgradient",
    "TruncatedInference",
]
