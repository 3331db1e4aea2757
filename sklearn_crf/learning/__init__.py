"""Learning: rules, formulations and solvers, the objects behind the names that estimators take."""

from sklearn_crf.learning._contrastive import choose_edge_penalty, train_by_rounds
from sklearn_crf.learning._formulation import Formulation, are_narrow
from sklearn_crf.learning._formulations import (
    FORMULATION_CONSTRAINTS,
    Exact,
    LoopyTraining,
    MeanFieldTraining,
    PiecewiseTraining,
    PseudolikelihoodTraining,
    SharedPiecesTraining,
    resolve_formulation,
    resolve_solver,
)
from sklearn_crf.learning._growing_sets import (
    INITS,
    GrowingSets,
    PlannedSets,
    joined_labelings,
    observed_labelings,
    resolve_sets,
)
from sklearn_crf.learning._learning_rule import LearningRule
from sklearn_crf.learning._margin_formulations import (
    MARGIN_CONSTRAINTS,
    DualMargin,
    JointMargin,
    MarginFormulation,
    MaxMargin,
    RelaxedMargin,
    ReparameterizedMargin,
    SmoothedMargin,
    resolve_margin_formulation,
)
from sklearn_crf.learning._margin_training import (
    MARGIN_SOLVERS,
    BundleMethod,
    CuttingPlane,
    FrankWolfe,
    MarginSetting,
    OneSlack,
    PlaneSolver,
    Subgradient,
    resolve_margin_solver,
    train_by_margins,
)
from sklearn_crf.learning._online import ONLINE_BATCH_SIZE, online_pass
from sklearn_crf.learning._relaxations import (
    DualRelaxation,
    JointRelaxation,
    OptimalEdgeProbabilities,
    Relaxation,
    Reparameterization,
)
from sklearn_crf.learning._rules import (
    LEARNING_CONSTRAINTS,
    PL,
    PMA,
    MaximumLikelihood,
    map_inference,
    resolve_learning,
)
from sklearn_crf.learning._solvers import LBFGS, SGD, AnchoredBundle, DualAscent, GradientSteps, Solver
from sklearn_crf.learning._stepped_rules import CD, MMA, SPA
from sklearn_crf.learning._training import (
    GraphSummary,
    HeldOutScores,
    PenalisedRisk,
    TrainingRecord,
    TrainingRun,
    checked_node_weights,
    cost_matrix,
    have_cycles,
    have_factors,
    initial_weights,
    penalty_factors,
    require_associative,
    restore_units,
    with_node_weights,
)

__all__ = [
    "CD",
    "LBFGS",
    "MMA",
    "PL",
    "PMA",
    "SPA",
    "Exact",
    "GradientSteps",
    "GrowingSets",
    "MaxMargin",
    "PiecewiseTraining",
    "PseudolikelihoodTraining",
    "Relaxation",
    "SharedPiecesTraining",
    "SmoothedMargin",
    "Subgradient",
]
